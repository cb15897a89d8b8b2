//! How the program says that something failed: an error in PostgreSQL's style, and an exit status.

use std::fmt;

use snowflake_registry::{Asker, Problem, RegistryError};

/// An error: one line in lower case without a period, and what to know and to do about it in full
/// sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What is wrong.
    pub message: String,
    /// The facts.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
}

impl Report {
    /// Makes a report without detail and hint.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), detail: None, hint: None }
    }

    /// The same with a detail.
    #[must_use]
    pub fn detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Appends a sentence to the detail, unless it is there.
    #[must_use]
    pub fn add_detail(self, sentence: &str) -> Self {
        let detail = match self.detail {
            Some(detail) if detail.contains(sentence) => detail,
            Some(detail) if detail.ends_with(['.', '!', '?']) => format!("{detail} {sentence}"),
            Some(detail) => format!("{detail}. {sentence}"),
            None => sentence.to_owned(),
        };
        Self { detail: Some(detail), ..self }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        let detail = self.detail.iter().map(|detail| ("detail", detail));
        let hint = self.hint.iter().map(|hint| ("hint", hint));
        detail.chain(hint).try_for_each(|(part, text)| write!(f, "\n{part}: {text}"))
    }
}

impl<C> From<snowflake_registry::Report<C>> for Report {
    fn from(report: snowflake_registry::Report<C>) -> Self {
        let snowflake_registry::Report { message, detail, hint, .. } = report;
        Self { message, detail, hint }
    }
}

/// Why a command is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// A rule forbids it, the registry refuses it, or the person who was asked.
    Refused(Report),
    /// The arguments are wrong, or something that asks could not ask.
    Usage(Report),
    /// The registry has not answered, or not with an answer of a registry.
    NoAnswer(Report),
    /// `check` has found something, and has said it.
    Found,
    /// `check` has no answer from the registry, and has said it.
    Silent,
}

impl Failure {
    /// The exit status of wrong usage.
    pub const USAGE: u8 = 2;

    /// Returns the exit status of the program.
    pub fn status(&self) -> u8 {
        match self {
            Self::Refused(_) => 1,
            Self::Usage(_) => Self::USAGE,
            Self::NoAnswer(_) | Self::Silent => 3,
            Self::Found => 4,
        }
    }

    /// Returns what is to be said, if it was not said yet.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Refused(report) | Self::Usage(report) | Self::NoAnswer(report) => Some(report),
            Self::Found | Self::Silent => None,
        }
    }
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Self {
        // libpq is asked nothing before it connects, and has read its files then.
        if let RegistryError::Connect(text) = &error
            && ["definition of service", "service file"].iter().any(|words| text.contains(words))
        {
            let report = Report::new("the registry's service is not defined").detail(text);
            return Self::Usage(report.hint(
                "Check service= in --registry. Define the service in ~/.pg_service.conf, in the file that \
                 PGSERVICEFILE names, or in pg_service.conf of the directory that PGSYSCONFDIR names.",
            ));
        }
        let report = error.report_of(Asker::Operator).into();
        // etcd's files are read before it connects, as libpq's are.
        let is_file = |text: &String| ["certificate file", "private key file"].iter().any(|words| text.contains(words));
        if matches!(&error, RegistryError::Etcd(Problem::File(_)))
            || matches!(&error, RegistryError::Connect(text) if is_file(text))
        {
            return Self::Usage(report);
        }
        if is_answer(&error) { Self::Refused(report) } else { Self::NoAnswer(report) }
    }
}

/// Whether the registry has said no, and has done nothing. All else is no answer.
fn is_answer(error: &RegistryError) -> bool {
    use RegistryError::{
        Connect, Etcd, FsyncOff, Garbage, InRecovery, Locked, Lost, NoDescriptor, NoFleet, NoOperator, NoRights,
        NoSchema, OtherVersion, OutOfRange, ReadOnly, Refused, Stopped, TimedOut, TooLong, WaitCancelled,
    };
    match error {
        InRecovery
        | ReadOnly
        | FsyncOff
        | Locked(_)
        | NoSchema
        | OtherVersion(_)
        | NoFleet(_)
        | NoRights(_)
        | NoOperator(_)
        | OutOfRange { .. }
        | Refused(_) => true,
        Etcd(problem) => match problem {
            Problem::Login(_) | Problem::NoRights(_) | Problem::NoFleet(_) | Problem::NoSpace | Problem::Record(..) => {
                true
            }
            // etcd also says so of a change that it may still make.
            Problem::File(_)
            | Problem::Unreachable(_)
            | Problem::TimedOut { .. }
            | Problem::Busy
            | Problem::Refused(_) => false,
        },
        Connect(_)
        | TimedOut { .. }
        | Stopped
        | NoDescriptor
        | Lost { .. }
        | WaitCancelled(_)
        | Garbage(_)
        | TooLong { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use snowflake_registry::RegistryStep;

    use super::*;

    #[test]
    fn a_report_has_a_line_for_each_part() {
        let report = Report::new("fleet \"a\" is closed").detail("It is being moved.").hint("Wait.");
        assert_eq!(report.to_string(), "error: fleet \"a\" is closed\ndetail: It is being moved.\nhint: Wait.");
        assert_eq!(Report::new("no").to_string(), "error: no");
    }

    #[test]
    fn the_exit_status_says_whether_a_change_may_have_been_made() {
        let status = |error: RegistryError| Failure::from(error).status();
        let words = || "words".to_owned();
        for error in [
            RegistryError::InRecovery,
            RegistryError::Locked(None),
            RegistryError::NoSchema,
            RegistryError::NoFleet(words()),
            RegistryError::Etcd(Problem::Login(words())),
            RegistryError::Etcd(Problem::NoSpace),
        ] {
            assert_eq!(status(error.clone()), 1, "{error}");
        }
        for error in [
            RegistryError::Connect(words()),
            RegistryError::TimedOut { step: RegistryStep::Read, after: Duration::from_secs(1) },
            RegistryError::Lost { step: RegistryStep::Connect, text: words() },
            RegistryError::Garbage(words()),
            RegistryError::Etcd(Problem::Unreachable(words())),
            RegistryError::Etcd(Problem::Refused(words())),
        ] {
            assert_eq!(status(error.clone()), 3, "{error}");
        }
        for error in [
            RegistryError::Etcd(Problem::File(words())),
            RegistryError::Connect("root certificate file \"/nowhere\" does not exist".to_owned()),
        ] {
            assert_eq!(status(error.clone()), 2, "{error}");
        }
        let no_service = RegistryError::Connect("definition of service \"nosuch\" not found".to_owned());
        let failure = Failure::from(no_service);
        assert_eq!(failure.status(), 2);
        assert!(failure.report().unwrap().hint.as_ref().unwrap().contains("pg_service.conf"), "{failure:?}");
    }
}
