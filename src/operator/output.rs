//! What a command says: lines for people, or one object for programs.

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use crate::report::Report;

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

    /// Adds what another change has done, or would do.
    pub fn add(&mut self, more: Self) {
        let lines = more.lines.into_iter().filter(|line| !self.lines.contains(line)).collect::<Vec<_>>();
        self.lines.extend(lines);
        for (name, value) in more.json {
            match (self.json.get_mut(&name), value) {
                (Some(Json::Array(all)), Json::Array(more)) => all.extend(more),
                (Some(_), _) => {}
                (None, value) => drop(self.json.insert(name, value)),
            }
        }
    }

    /// Returns the text for people.
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Returns the object for programs, in a line. Arguments that are not understood have no
    /// command and no fleet.
    pub fn line(&self, command: Option<&str>, fleet: Option<&str>, report: Option<&Report>) -> String {
        let mut object = self.json.clone();
        object.insert("command".to_owned(), json!(command));
        object.insert("fleet".to_owned(), json!(fleet));
        let error = report.map(|Report { code, message, detail, hint, .. }| {
            json!({"message": message, "detail": detail, "hint": hint, "exit_status": *code as u8})
        });
        object.insert("error".to_owned(), json!(error));
        format!("{}\n", Json::Object(object))
    }
}

/// Prints to standard output. Returns whether anybody still reads it.
///
/// # Errors
/// What keeps it from being written, such as a full disk.
pub fn print(text: &str) -> io::Result<bool> {
    let mut stdout = io::stdout().lock();
    is_read(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Tells a reader that has gone, which is no failure, from a text that could not be written.
///
/// # Errors
/// The other ones.
pub fn is_read(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// Shows in red, on a terminal, what begins a line and cannot wait.
pub fn coloured(text: &str) -> String {
    let colour = |line: &str| match ["BAD", "FROZEN"].iter().find(|word| line.starts_with(&format!("{word} "))) {
        Some(word) => format!("\x1b[1;31m{word}\x1b[0m{}\n", &line[word.len()..]),
        None => format!("{line}\n"),
    };
    text.lines().map(colour).collect()
}

/// Prints to standard error.
pub fn print_error(text: &str) {
    // There is no other place to say it.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::refused;

    #[test]
    fn what_cannot_wait_is_red() {
        assert_eq!(coloured("ok    a\nBAD   b BAD c\n"), "ok    a\n\x1b[1;31mBAD\x1b[0m   b BAD c\n");
        assert_eq!(coloured("FROZEN      for 1 min\n"), "\x1b[1;31mFROZEN\x1b[0m      for 1 min\n");
    }

    #[test]
    fn every_object_has_the_same_frame() {
        let said = Said::new(vec!["Done.".to_owned()], json!({"done": true}));
        assert_eq!(said.text(), "Done.\n");
        assert_eq!(
            said.line(Some("close"), Some("shop"), None),
            "{\"command\":\"close\",\"done\":true,\"error\":null,\"fleet\":\"shop\"}\n"
        );
        let report = refused("no").hint("Wait.");
        let line = Said::default().line(Some("close"), None, Some(&report));
        let object: Json = serde_json::from_str(&line).unwrap();
        assert_eq!(object["error"], json!({"message": "no", "detail": null, "hint": "Wait.", "exit_status": 1}));
    }
}
