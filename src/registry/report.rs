//! The form of an error report of this crate, as PostgreSQL has it, and what of other programs'
//! words it takes. Nothing here needs a server, so that SQLSTATEs are texts.

use std::time::Duration;

/// An error in the parts of a PostgreSQL error report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryReport {
    /// The SQLSTATE under which a server reports it.
    pub sqlstate: String,
    /// The message without words from elsewhere: libpq, the registry and the system name hosts,
    /// users and files. Every role may see it.
    pub open: String,
    /// The primary message: one line, in lower case, without a period.
    pub message: String,
    /// The facts, in full sentences.
    pub detail: Option<String>,
    /// What to do about it, in full sentences.
    pub hint: Option<String>,
    /// The heading of its entry in `docs/runbook.md`.
    pub entry: &'static str,
}

impl RegistryReport {
    /// Makes a report. The message has no words from elsewhere. The SQLSTATE tells which entry the
    /// runbook has for it, unless [`entry`](Self::entry) names another one.
    pub fn new(sqlstate: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let entry = match sqlstate {
            "08001" | "08006" => "The registry cannot be reached",
            "57P01" => "No worker number",
            _ => "The registry reports an error",
        };
        Self { sqlstate: sqlstate.to_owned(), open: message.clone(), message, detail: None, hint: None, entry }
    }

    /// Appends words from elsewhere to the message.
    pub(crate) fn quoting(self, words: &str) -> Self {
        Self { message: format!("{}: {words}", self.message), ..self }
    }

    /// The same with a DETAIL.
    #[must_use]
    pub fn detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// The same with a HINT.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The same with the heading of another entry in the runbook.
    #[must_use]
    pub fn entry(self, heading: &'static str) -> Self {
        Self { entry: heading, ..self }
    }

    /// Returns the message and the DETAIL in one line.
    pub fn whole(&self) -> String {
        self.detail.as_ref().map_or_else(|| self.message.clone(), |detail| format!("{}. {detail}", self.message))
    }
}

/// Who asks a registry, and so where a reader finds what a report names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// A server, with its settings.
    Server,
    /// An operator's program, with its options.
    Operator,
}

impl Asker {
    /// Returns what says where the registry is.
    pub(crate) fn registry(self) -> &'static str {
        match self {
            Self::Server => "\"snowflake_id.registry\"",
            Self::Operator => "--registry",
        }
    }

    /// Returns what says which fleet it is.
    pub(crate) fn fleet(self) -> &'static str {
        match self {
            Self::Server => "\"snowflake_id.fleet\"",
            Self::Operator => "--fleet",
        }
    }

    /// Returns what asks.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Server => "this server",
            Self::Operator => "this program",
        }
    }
}

/// The most bytes of another program's text that an error repeats, so that no error grows with it.
const LONGEST_TEXT: usize = 1000;

/// Returns the beginning of such a text.
pub(crate) fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_TEXT)]
}

pub(crate) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}
