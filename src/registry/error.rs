//! What can go wrong with a registry: for each error the SQLSTATE, the message, DETAIL and HINT.
//!
//! The texts follow PostgreSQL's error message style guide. They name the settings of the
//! extension, because a person reads them in its log and its views.

use std::fmt;
use std::time::Duration;

use snowflake_core::registry::{Change, Swap};

use crate::postgres::VERSION;

/// How the registry is set up.
const SET_UP: &str =
    "Run \"psql -f registry.sql\" in the registry's database, as the role that is to own the registry.";

/// What a connection is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Connecting, to each of the hosts that the string names.
    Connect,
    /// Reading records.
    Read,
    /// Changing the fleet's record.
    SwapFleet,
    /// Changing a number's record.
    SwapNumber,
}

impl Step {
    /// Returns what a swap changes.
    pub(crate) fn of(swap: &Swap) -> Self {
        match swap.change {
            Change::Fleet(_) => Self::SwapFleet,
            Change::Number { .. } => Self::SwapNumber,
        }
    }

    /// Whether the registry may have changed something although there is no answer.
    pub fn may_be_done(self) -> bool {
        matches!(self, Self::SwapFleet | Self::SwapNumber)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting",
            Self::Read => "reading its records",
            Self::SwapFleet => "changing the fleet's record",
            Self::SwapNumber => "changing a number's record",
        })
    }
}

/// An error or a notice as PostgreSQL has sent it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diagnostic {
    /// `ERROR`, `FATAL`, `WARNING` and so on, never translated; empty if the server is too old, or
    /// is not one.
    pub severity: String,
    /// Five characters; empty if libpq itself reports.
    pub sqlstate: String,
    /// The primary message.
    pub message: String,
    /// DETAIL, if there is one.
    pub detail: Option<String>,
    /// HINT, if there is one.
    pub hint: Option<String>,
}

/// Why there is no answer. After a swap, it may have been done all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// No connection; libpq says why.
    Connect(String),
    /// No answer in time.
    TimedOut {
        /// What was not answered.
        step: Step,
        /// After how long.
        after: Duration,
    },
    /// The process is asked to end.
    Stopped,
    /// The process may not open another file.
    NoDescriptor,
    /// The connection broke; libpq says why.
    Lost {
        /// Meanwhile.
        step: Step,
        /// libpq's words.
        text: String,
    },
    /// The registry is a standby.
    InRecovery,
    /// The registry's transactions are read-only.
    ReadOnly,
    /// The registry does not write its changes through to the disk.
    FsyncOff,
    /// The database has no registry.
    NoSchema,
    /// The registry was made by another version of `registry.sql`.
    OtherVersion(Option<i64>),
    /// The registry has no fleet of this name.
    NoFleet(String),
    /// The role may not use the registry; PostgreSQL's message.
    NoRights(String),
    /// The swap's commit came with a notice. So it is not known to have reached the synchronous
    /// standby.
    WaitCancelled(Box<Diagnostic>),
    /// The answer is not one of a registry.
    Garbage(String),
    /// Any other error that PostgreSQL reports.
    Refused(Box<Diagnostic>),
}

impl Error {
    /// Returns the SQLSTATE under which a server reports this.
    pub fn sqlstate(&self) -> &str {
        match self {
            Self::Connect(_) => "08001",
            Self::TimedOut { step: Step::Connect, .. } => "08001",
            Self::TimedOut { .. } | Self::Lost { .. } => "08006",
            Self::Stopped => "57P01",
            Self::NoDescriptor => "53000",
            Self::InRecovery | Self::ReadOnly => "25006",
            Self::FsyncOff => "55000",
            Self::NoSchema => "3F000",
            Self::OtherVersion(_) => "55000",
            Self::NoFleet(_) => "42704",
            Self::NoRights(_) => "42501",
            Self::WaitCancelled(_) => "08007",
            Self::Garbage(_) => "08P01",
            Self::Refused(diagnostic) if diagnostic.sqlstate.is_empty() => "58000",
            Self::Refused(diagnostic) => &diagnostic.sqlstate,
        }
    }

    /// Returns the primary message: one line, in lower case, without a period.
    pub fn message(&self) -> String {
        match self {
            Self::Connect(_) => "could not connect to the registry".to_owned(),
            Self::TimedOut { step: Step::Connect, after } => {
                format!("could not connect to the registry within {}", seconds(*after))
            }
            Self::TimedOut { step, after } => {
                format!("registry did not answer within {} ({step})", seconds(*after))
            }
            Self::Stopped => "the process is asked to end".to_owned(),
            Self::NoDescriptor => "could not open a connection to the registry: out of file descriptors".to_owned(),
            Self::Lost { step, .. } => format!("connection to the registry was lost ({step})"),
            Self::InRecovery => "registry is a standby".to_owned(),
            Self::ReadOnly => "registry is read-only".to_owned(),
            Self::FsyncOff => "registry has \"fsync\" off".to_owned(),
            Self::NoSchema => "registry's database has no schema \"snowflake_registry\"".to_owned(),
            Self::OtherVersion(Some(found)) => {
                format!("registry has version {found}, but this server needs version {VERSION}")
            }
            Self::OtherVersion(None) => {
                format!("registry has another version than {VERSION}, which this server needs")
            }
            Self::NoFleet(name) => format!("registry has no fleet \"{name}\""),
            Self::NoRights(message) => format!("role may not use the registry: {message}"),
            Self::WaitCancelled(notice) => format!("registry did not confirm a change: {}", notice.message),
            Self::Garbage(what) => format!("registry's answer makes no sense: {what}"),
            Self::Refused(diagnostic) => format!("registry reports an error: {}", diagnostic.message),
        }
    }

    /// Returns the facts in full sentences.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Connect(text) => Some(text.clone()),
            Self::Lost { step, text } if step.may_be_done() => {
                Some(format!("{text}\nThe change may have been made all the same."))
            }
            Self::Lost { text, .. } => Some(text.clone()),
            Self::TimedOut { step, .. } if step.may_be_done() => {
                Some("The change may have been made all the same, or may still be made.".to_owned())
            }
            Self::InRecovery => Some("Only a primary can lease numbers.".to_owned()),
            Self::FsyncOff => Some("A crash could make it forget leases, and then ids would repeat.".to_owned()),
            Self::WaitCancelled(notice) => Some(
                notice
                    .detail
                    .clone()
                    .unwrap_or_else(|| "The change may be lost if the registry fails over.".to_owned()),
            ),
            Self::Refused(diagnostic) => diagnostic.detail.clone(),
            _ => None,
        }
    }

    /// Returns what to do about it, in full sentences.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Connect(_) => {
                "Check \"snowflake_id.registry\", the network, and the registry's \"pg_hba.conf\". A password belongs \
                 into .pgpass or a service file of the user that runs this server."
            }
            Self::TimedOut { step: Step::Connect, .. } => {
                "Check \"snowflake_id.registry\", the network, and whether a firewall drops packets."
            }
            Self::TimedOut { step, .. } if step.may_be_done() => {
                "If the registry has \"synchronous_standby_names\", check its standbys in pg_stat_replication. If not, \
                 look for locks and a slow disk there."
            }
            Self::TimedOut { .. } => "Look for locks and load on the registry.",
            Self::NoDescriptor => "Raise the limit of open files (ulimit -n) of this server.",
            Self::InRecovery | Self::ReadOnly => {
                "Let \"snowflake_id.registry\" name all servers of the registry, with \
                 target_session_attrs=read-write. If this is the primary, set \"default_transaction_read_only\" to off \
                 for the role and the database."
            }
            Self::FsyncOff => "Set \"fsync\" to on in the registry, and reload its configuration.",
            Self::NoSchema => {
                return Some(format!("Check the database that \"snowflake_id.registry\" names. {SET_UP}"));
            }
            Self::OtherVersion(_) => {
                "Use the same version of snowflake_id on all servers, and the registry.sql that comes with it."
            }
            Self::NoFleet(_) => {
                "Check \"snowflake_id.fleet\". In the registry, \"SELECT name FROM snowflake_registry.fleets\" lists \
                 the fleets, and \"SELECT snowflake_registry.add_fleet('name')\" makes one."
            }
            Self::NoRights(_) => {
                "In the registry, run the GRANT commands at the head of registry.sql for the role that \
                 \"snowflake_id.registry\" names."
            }
            Self::WaitCancelled(_) => {
                "Look at pg_stat_replication in the registry: a standby that \"synchronous_standby_names\" names may be \
                 gone."
            }
            Self::Garbage(_) => "Check the host and the port in \"snowflake_id.registry\".",
            Self::Refused(diagnostic) => return diagnostic.hint.clone(),
            Self::Stopped | Self::Lost { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for Error {}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_follow_the_style_guide() {
        let diagnostic = Diagnostic { message: "out of memory".to_owned(), ..Diagnostic::default() };
        let errors = [
            Error::Connect("refused".to_owned()),
            Error::TimedOut { step: Step::Connect, after: Duration::from_secs(5) },
            Error::TimedOut { step: Step::SwapNumber, after: Duration::from_millis(1500) },
            Error::Stopped,
            Error::NoDescriptor,
            Error::Lost { step: Step::Read, text: "gone".to_owned() },
            Error::InRecovery,
            Error::ReadOnly,
            Error::FsyncOff,
            Error::NoSchema,
            Error::OtherVersion(Some(2)),
            Error::OtherVersion(None),
            Error::NoFleet("other".to_owned()),
            Error::NoRights("permission denied".to_owned()),
            Error::WaitCancelled(Box::new(diagnostic.clone())),
            Error::Garbage("3 columns".to_owned()),
            Error::Refused(Box::new(diagnostic)),
        ];
        for error in errors {
            let message = error.message();
            assert!(!message.ends_with('.') && !message.contains('\n'), "{message}");
            assert!(message.starts_with(char::is_lowercase), "{message}");
            assert_eq!(error.sqlstate().len(), 5, "{message}");
            assert!(error.hint().is_none_or(|hint| hint.ends_with('.')), "{message}");
        }
        let late = Error::TimedOut { step: Step::SwapNumber, after: Duration::from_millis(1500) };
        assert_eq!(late.message(), "registry did not answer within 1.5 s (changing a number's record)");
    }
}
