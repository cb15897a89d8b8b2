//! The form of an error report, as PostgreSQL has it, for this crate, the extension and the program
//! of operators; and what of other programs' words a report takes.

use std::fmt;
use std::time::Duration;

/// An error in the parts of a PostgreSQL error report.
///
/// `C` is what tells kinds of errors apart: an SQLSTATE, as a text or as PostgreSQL's type, or the
/// exit status of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report<C> {
    /// What kind of error it is.
    pub code: C,
    /// The primary message: one line, in lower case, without a period.
    pub message: String,
    /// The facts, in full sentences.
    pub detail: Option<String>,
    /// What to do about it, in full sentences.
    pub hint: Option<String>,
    /// What every role may see, where that is not all: libpq, the registry and the system name
    /// hosts, users and files. It takes the place of the DETAIL, and of the message with it where
    /// both are told in one line.
    pub open: Option<String>,
    /// The heading of its entry in `docs/runbook.md`.
    pub entry: Option<&'static str>,
}

impl<C> Report<C> {
    /// Makes a report that has a message.
    pub fn new(code: C, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: None, hint: None, open: None, entry: None }
    }

    /// Appends words from elsewhere to the message.
    pub(crate) fn quoting(self, words: &str) -> Self {
        Self { message: format!("{}: {words}", self.message), open: Some(self.message), ..self }
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

    /// The same with the heading of its entry in the runbook. `tests/pages` compares it with the
    /// reference, which names the entry of each message.
    #[must_use]
    pub fn entry(self, heading: &'static str) -> Self {
        Self { entry: Some(heading), ..self }
    }

    /// The same as another kind of error.
    pub fn coded<D>(self, code: D) -> Report<D> {
        let Self { message, detail, hint, open, entry, .. } = self;
        Report { code, message, detail, hint, open, entry }
    }

    /// Returns the message and the DETAIL in one line.
    pub fn whole(&self) -> String {
        self.detail.as_ref().map_or_else(|| self.message.clone(), |detail| format!("{}. {detail}", self.message))
    }
}

/// The form in which a program prints it.
impl<C> fmt::Display for Report<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        let detail = self.detail.iter().map(|detail| ("detail", detail));
        let hint = self.hint.iter().map(|hint| ("hint", hint));
        detail.chain(hint).try_for_each(|(part, text)| write!(f, "\n{part}: {text}"))
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
