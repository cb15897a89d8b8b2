//! How the program says that something failed: an error in PostgreSQL's style, and an exit status.

use snowflake_registry::{Asker, Problem, RegistryError};

/// The exit status of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It is done.
    Done = 0,
    /// A rule forbids it, the registry refuses it, or the person who was asked.
    Refused = 1,
    /// The arguments are wrong, or something that asks could not ask.
    Usage = 2,
    /// The registry has not answered, or not with an answer of a registry.
    NoAnswer = 3,
    /// `check` has found something.
    Found = 4,
}

/// Why a command is not done.
pub type Report = snowflake_registry::Report<Exit>;

/// Says that a rule forbids a command, or a person.
pub fn refused(message: impl Into<String>) -> Report {
    Report::new(Exit::Refused, message)
}

/// Says that arguments are wrong, or that something that asks could not ask.
pub fn misused(message: impl Into<String>) -> Report {
    Report::new(Exit::Usage, message)
}

/// Says that a call of the registry has failed.
pub fn failed(error: RegistryError) -> Report {
    // libpq is asked nothing before it connects, and has read its files then.
    if let RegistryError::Connect(text) = &error
        && ["definition of service", "service file"].iter().any(|words| text.contains(words))
    {
        return misused("the registry's service is not defined").detail(text).hint(
            "Check service= in --registry. Define the service in ~/.pg_service.conf, in the file that PGSERVICEFILE \
             names, or in pg_service.conf of the directory that PGSYSCONFDIR names.",
        );
    }
    // etcd's files are read before it connects, as libpq's are.
    let is_file = match &error {
        RegistryError::Etcd(Problem::File(_)) => true,
        RegistryError::Connect(text) => {
            ["certificate file", "private key file"].iter().any(|words| text.contains(words))
        }
        _ => false,
    };
    error.report_of(Asker::Operator).coded(match is_answer(&error) {
        _ if is_file => Exit::Usage,
        true => Exit::Refused,
        false => Exit::NoAnswer,
    })
}

/// Whether the registry has said no, and has done nothing. All else is no answer.
fn is_answer(error: &RegistryError) -> bool {
    use RegistryError::{
        Connect, Etcd, FsyncOff, Garbage, InRecovery, Locked, Lost, NoDescriptor, NoFleet, NoOperator, NoRights,
        NoSchema, NotNoted, OtherVersion, OutOfRange, ReadOnly, Refused, Stopped, TimedOut, TooLong, WaitCancelled,
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
        | NotNoted(_)
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
        let report = refused("fleet \"a\" is closed").detail("It is being moved.").hint("Wait.");
        assert_eq!(report.to_string(), "error: fleet \"a\" is closed\ndetail: It is being moved.\nhint: Wait.");
        assert_eq!(refused("no").to_string(), "error: no");
    }

    #[test]
    fn the_exit_status_says_whether_a_change_may_have_been_made() {
        let status = |error: RegistryError| failed(error).code as u8;
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
        let report = failed(no_service);
        assert_eq!(report.code, Exit::Usage);
        assert!(report.hint.as_ref().unwrap().contains("pg_service.conf"), "{report:?}");
    }
}
