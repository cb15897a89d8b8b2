//! What a command says: lines for people, or one object for programs.

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use crate::report::Failure;

/// What a command has to say.
#[derive(Debug, Default)]
pub struct Said {
    /// For people.
    pub lines: Vec<String>,
    /// For programs, by names that do not change.
    pub json: Map<String, Json>,
}

impl Said {
    /// Makes one of lines, and of an object.
    ///
    /// # Panics
    /// If `json` is not an object.
    pub fn new(lines: Vec<String>, json: Json) -> Self {
        let Json::Object(json) = json else { panic!("{json} is not an object") };
        Self { lines, json }
    }

    /// Returns the text for people.
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Returns the object for programs, in a line. Arguments that are not understood have no
    /// command and no fleet.
    pub fn line(&self, command: Option<&str>, fleet: Option<&str>, failure: Option<&Failure>) -> String {
        let mut object = self.json.clone();
        object.insert("command".to_owned(), json!(command));
        object.insert("fleet".to_owned(), json!(fleet));
        let error = failure.and_then(|failure| {
            let report = failure.report()?;
            let (detail, hint, status) = (&report.detail, &report.hint, failure.status());
            Some(json!({"message": report.message, "detail": detail, "hint": hint, "exit_status": status}))
        });
        object.insert("error".to_owned(), json!(error));
        format!("{}\n", Json::Object(object))
    }
}

/// Prints to standard output. Returns whether anybody still reads it.
pub fn print(text: &str) -> bool {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_ok()
}

/// Prints to standard error.
pub fn print_error(text: &str) {
    // There is no other place to say it.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    #[test]
    fn every_object_has_the_same_frame() {
        let said = Said::new(vec!["Done.".to_owned()], json!({"done": true}));
        assert_eq!(said.text(), "Done.\n");
        assert_eq!(
            said.line(Some("close"), Some("shop"), None),
            "{\"command\":\"close\",\"done\":true,\"error\":null,\"fleet\":\"shop\"}\n"
        );
        let failure = Failure::Refused(Report::new("no").hint("Wait."));
        let line = Said::default().line(Some("close"), None, Some(&failure));
        let object: Json = serde_json::from_str(&line).unwrap();
        assert_eq!(object["error"], json!({"message": "no", "detail": null, "hint": "Wait.", "exit_status": 1}));
    }
}
