//! What can go wrong with a registry: for each error the SQLSTATE, the message, DETAIL and HINT.
//!
//! The texts follow PostgreSQL's error message style guide. They name the settings of the
//! extension, because a person reads them in its log and its views, or the options of the program
//! for operators ([`Asker`]).

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use snowflake_core::fleet::pace;

use crate::FORMAT;
use crate::problem::Problem;
use crate::report::{Asker, Report, seconds};
use crate::step::RegistryStep;

/// What helps where the registry takes no writes.
fn name_all_servers(asker: Asker) -> String {
    format!(
        "Let {} name all servers of the registry, with target_session_attrs=read-write. If this is the primary, set \
         \"default_transaction_read_only\" to off for the role and the database.",
        asker.registry()
    )
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
pub enum RegistryError {
    /// No connection; libpq says why.
    Connect(String),
    /// No answer in time.
    TimedOut {
        /// What was not answered.
        step: RegistryStep,
        /// After how long.
        after: Duration,
    },
    /// Another transaction held a lock, for as long as a wait for it may last. This one was rolled
    /// back, so it has changed nothing. Which one it was, if the registry says so.
    Locked(Option<String>),
    /// The process is asked to end.
    Stopped,
    /// What is going to be sent could not be noted on this machine, so it was not sent: why.
    NotNoted(String),
    /// The process may not open another file.
    NoDescriptor,
    /// The connection broke; libpq says why.
    Lost {
        /// Meanwhile.
        step: RegistryStep,
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
    /// The role may not do what only operators do; PostgreSQL's message.
    NoOperator(String),
    /// The swap's commit came with a notice. So it is not known to have reached the synchronous
    /// standby.
    WaitCancelled(Box<Diagnostic>),
    /// The answer is not one of a registry.
    Garbage(String),
    /// The answer has more than this process reads.
    TooLong {
        /// How many it reads.
        most: usize,
        /// Of what: rows, bytes.
        of_what: &'static str,
    },
    /// A number in the fleet's record, or the registry's clock, is not what it can be.
    OutOfRange {
        /// The number's name.
        name: &'static str,
        /// Its value.
        value: i64,
        /// The greatest that it can have; the least is 0.
        most: i64,
    },
    /// Any other error that PostgreSQL reports.
    Refused(Box<Diagnostic>),
    /// What only etcd has.
    Etcd(Problem),
}

/// A process that notes nothing on its machine has no other call that fails
/// (`core/fleet/exchange.rs`).
impl From<Infallible> for RegistryError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl RegistryError {
    /// Returns how the registry has failed, for when to ask it again. It may be overloaded if it
    /// does not answer in time, or says so.
    pub fn paced_as(&self) -> pace::AttemptFailure {
        match self {
            Self::TimedOut { .. } | Self::Locked(_) | Self::Etcd(Problem::TimedOut { .. } | Problem::Busy) => {
                pace::AttemptFailure::Overloaded
            }
            // It would send as much again each second.
            Self::TooLong { .. } => pace::AttemptFailure::Overloaded,
            // etcd's own words, when too many changes wait, and when one was not agreed on in time.
            Self::Etcd(Problem::Refused(message))
                if ["too many requests", "request timed out"].iter().any(|is| message.contains(is)) =>
            {
                pace::AttemptFailure::Overloaded
            }
            _ => pace::AttemptFailure::Otherwise,
        }
    }

    /// Returns all that a server says of the error.
    pub fn report(&self) -> Report<&str> {
        self.report_of(Asker::Server)
    }

    /// Returns all that is said of the error where `asker` has met it. The code is the SQLSTATE.
    /// Every role may see the message without words from elsewhere.
    pub fn report_of(&self, asker: Asker) -> Report<&str> {
        let report = self.worded(asker);
        let open = report.open.clone().or_else(|| Some(report.message.clone()));
        let entry = match report.code {
            "08001" | "08006" => "The registry cannot be reached",
            "57P01" => "No worker number",
            _ => "The registry reports an error",
        };
        Report { open, ..report }.entry(entry)
    }

    fn worded(&self, asker: Asker) -> Report<&str> {
        let (registry, fleet, program) = (asker.registry(), asker.fleet(), asker.program());
        match self {
            Self::Connect(text) => {
                Report::new("08001", "could not connect to the registry").detail(text).hint(format!(
                    "Check {registry}, the network, and the registry's \"pg_hba.conf\". A password belongs in .pgpass \
                     or in a service file of the user that runs {program}."
                ))
            }
            Self::TimedOut { step: RegistryStep::Connect, after } => {
                Report::new("08001", format!("could not connect to the registry within {}", seconds(*after)))
                    .hint(format!("Check {registry}, the network, and whether a firewall drops packets."))
            }
            Self::TimedOut { step, after } => {
                let report =
                    Report::new("08006", format!("registry did not answer within {} ({step})", seconds(*after)));
                if step.may_be_done() {
                    report.detail("The change may have been made all the same, or may still be made.").hint(
                        "If the registry has \"synchronous_standby_names\", check its standbys in \
                         pg_stat_replication. If not, look for locks and a slow disk there.",
                    )
                } else {
                    report.hint("Look for locks and load on the registry.")
                }
            }
            Self::Locked(by) => Report::new("55P03", "another session holds a lock in the registry")
                .detail(match by {
                    Some(by) => format!("{by} Nothing was changed."),
                    None => "Nothing was changed.".to_owned(),
                })
                .hint(
                    "In the registry, look in pg_stat_activity for sessions that wait for a lock: \
                     pg_blocking_pids() names the one that holds it. 0 stands for a prepared transaction, which \
                     pg_prepared_xacts shows. If that waits for SyncRep, check the standbys in pg_stat_replication.",
                ),
            Self::Stopped => Report::new("57P01", "the process is asked to end"),
            Self::NotNoted(why) => Report::new("58030", "could not note on this machine what to send to the registry")
                .detail(why)
                .hint(
                    "Nothing was sent. End the process with pg_terminate_backend(): its \"pid\" is in snowflake_lease, and \
                     the server starts another one.",
                ),
            Self::NoDescriptor => {
                Report::new("53000", "could not open a connection to the registry: out of file descriptors")
                    .hint(format!("Raise the limit of open files (ulimit -n) of {program}."))
            }
            Self::Lost { step, text } => {
                let report = Report::new("08006", format!("connection to the registry was lost ({step})"));
                if step.may_be_done() {
                    report.detail(format!("{text}\nThe change may have been made all the same."))
                } else {
                    report.detail(text)
                }
            }
            Self::InRecovery => Report::new("25006", "registry is a standby")
                .detail("Only a primary can lease numbers.")
                .hint(name_all_servers(asker)),
            Self::ReadOnly => Report::new("25006", "registry is read-only").hint(name_all_servers(asker)),
            Self::FsyncOff => Report::new("55000", "registry has \"fsync\" off")
                .detail("A crash could make it lose leases, and then ids would repeat.")
                .hint("Set \"fsync\" to on in the registry, and reload its configuration."),
            Self::NoSchema => {
                Report::new("3F000", "registry's database has no schema \"snowflake_registry\"").hint(format!(
                    "Check the database that {registry} names. Run \"snowflake-registry create\", or \"psql -f \
                     registry.sql\", as the role that is to own the registry."
                ))
            }
            Self::OtherVersion(found) => Report::new(
                "55000",
                match found {
                    Some(found) => format!("registry has version {found}, but {program} needs version {FORMAT}"),
                    None => format!("registry has another version than {FORMAT}, which {program} needs"),
                },
            )
            .hint("Use the same version of snowflake_id on all servers, and the registry.sql that comes with it."),
            Self::NoFleet(name) => Report::new("42704", format!("registry has no fleet \"{name}\""))
                .hint(format!("Check {fleet}. \"snowflake-registry add-fleet\" makes a fleet.")),
            Self::NoRights(message) => {
                Report::new("42501", "role may not use the registry").quoting(message).hint(format!(
                    "In the registry, run the GRANT commands at the head of registry.sql for the role that {registry} \
                     names."
                ))
            }
            Self::NoOperator(message) => Report::new("42501", "role may not operate the registry")
                .quoting(message)
                .hint("Connect as the role that owns the schema \"snowflake_registry\", or as a member of that role."),
            Self::WaitCancelled(notice) => {
                let Diagnostic { message, detail, .. } = &**notice;
                Report::new("08007", "registry did not confirm a change")
                    .quoting(message)
                    .detail(detail.as_deref().unwrap_or("The change may be lost if the registry fails over."))
                    .hint(
                        "Look at pg_stat_replication in the registry: a standby that \"synchronous_standby_names\" \
                         names may be gone.",
                    )
            }
            Self::Garbage(what) => Report::new("08P01", "invalid response from registry")
                .quoting(what)
                .hint(format!("Check the host and the port in {registry}.")),
            Self::TooLong { most, of_what } => Report::new(
                "54000",
                format!("registry's answer is too long: more than {most} {of_what}"),
            )
            .hint(format!(
                "Check what answers at the host and the port in {registry}: a proxy, or another program. A fleet \
                     with so many records needs a registry for each part of it."
            )),
            Self::OutOfRange { name, value, most } => {
                let report = Report::new("22003", format!("registry has a number out of range: {name} is {value}"));
                report.detail(format!("It must be from 0 to {most} (milliseconds).")).hint(match *name {
                    "now_ms" => "Set the clock of the registry's server, and look at its time synchronization.",
                    _ => "Correct it in the registry, in the fleet's record.",
                })
            }
            Self::Refused(diagnostic) => {
                let Diagnostic { sqlstate, message, detail, hint, .. } = &**diagnostic;
                let report = Report::new("58000", "registry reports an error").quoting(message);
                let code = if sqlstate.is_empty() { report.code } else { sqlstate };
                Report { code, detail: detail.clone(), hint: hint.clone(), ..report }
            }
            Self::Etcd(problem) => problem.worded(asker),
        }
    }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.report().message)
    }
}

impl std::error::Error for RegistryError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_that_is_away_is_not_overloaded() {
        let after = Duration::from_secs(5);
        let refused = |message: &str| RegistryError::Etcd(Problem::Refused(message.to_owned()));
        for error in [
            RegistryError::TimedOut { step: RegistryStep::Connect, after },
            RegistryError::Etcd(Problem::TimedOut { step: RegistryStep::Read, after }),
            RegistryError::Locked(None),
            RegistryError::Etcd(Problem::Busy),
            RegistryError::TooLong { most: 10, of_what: "rows" },
            refused("too many requests"),
            refused("request timed out, possibly due to previous leader failure"),
        ] {
            assert_eq!(error.paced_as(), pace::AttemptFailure::Overloaded, "{error}");
        }
        for error in [
            RegistryError::Connect("refused".to_owned()),
            RegistryError::Lost { step: RegistryStep::Read, text: "gone".to_owned() },
            RegistryError::ReadOnly,
            RegistryError::Etcd(Problem::Unreachable("refused".to_owned())),
            refused("no leader"),
        ] {
            assert_eq!(error.paced_as(), pace::AttemptFailure::Otherwise, "{error}");
        }
    }

    #[test]
    fn what_every_role_may_see_has_no_words_from_elsewhere() {
        let words = || "db.example 5432 snowflake /var/lib/.pgpass".to_owned();
        let diagnostic = Diagnostic { message: words(), detail: Some(words()), ..Diagnostic::default() };
        for error in [
            RegistryError::Connect(words()),
            RegistryError::Lost { step: RegistryStep::Read, text: words() },
            RegistryError::NoRights(words()),
            RegistryError::NoOperator(words()),
            RegistryError::WaitCancelled(Box::new(diagnostic.clone())),
            RegistryError::Garbage(words()),
            RegistryError::Refused(Box::new(diagnostic)),
            RegistryError::Etcd(Problem::Unreachable(words())),
            RegistryError::Etcd(Problem::File(words())),
            RegistryError::Etcd(Problem::Login(words())),
            RegistryError::Etcd(Problem::Login(format!("CommonName {}", words()))),
            RegistryError::Etcd(Problem::NoRights(words())),
            RegistryError::Etcd(Problem::NoFleet(words())),
            RegistryError::Etcd(Problem::Record(words(), words())),
            RegistryError::Etcd(Problem::Refused(words())),
        ] {
            let Report { open, message, .. } = error.report();
            let open = open.unwrap();
            assert!(!open.contains("example"), "{open}");
            assert!(message.starts_with(&open) && !open.is_empty(), "{message}");
        }
    }

    #[test]
    fn an_operator_reads_of_options_and_a_server_of_settings() {
        let words = || "words".to_owned();
        for error in [
            RegistryError::Connect(words()),
            RegistryError::TimedOut { step: RegistryStep::Connect, after: Duration::from_secs(5) },
            RegistryError::ReadOnly,
            RegistryError::NoSchema,
            RegistryError::NoFleet(words()),
            RegistryError::Garbage(words()),
            RegistryError::TooLong { most: 10, of_what: "bytes" },
            RegistryError::Etcd(Problem::Unreachable(words())),
            RegistryError::Etcd(Problem::File(words())),
            RegistryError::Etcd(Problem::Login(words())),
            RegistryError::Etcd(Problem::NoFleet(words())),
        ] {
            let hint = |asker| error.report_of(asker).hint.unwrap();
            let (server, operator) = (hint(Asker::Server), hint(Asker::Operator));
            assert!(server.contains("\"snowflake_id.") && !server.contains("--"), "{server}");
            assert!(operator.contains("--") && !operator.contains("snowflake_id."), "{operator}");
            assert!(!operator.contains("this server"), "{operator}");
            assert_eq!(error.report(), error.report_of(Asker::Server));
        }
    }

    #[test]
    fn messages_follow_the_style_guide() {
        let diagnostic = Diagnostic { message: "out of memory".to_owned(), ..Diagnostic::default() };
        let errors = [
            RegistryError::Connect("refused".to_owned()),
            RegistryError::TimedOut { step: RegistryStep::Connect, after: Duration::from_secs(5) },
            RegistryError::TimedOut { step: RegistryStep::SwapNumber, after: Duration::from_millis(1500) },
            RegistryError::Locked(None),
            RegistryError::Stopped,
            RegistryError::NoDescriptor,
            RegistryError::Lost { step: RegistryStep::Read, text: "gone".to_owned() },
            RegistryError::InRecovery,
            RegistryError::ReadOnly,
            RegistryError::FsyncOff,
            RegistryError::NoSchema,
            RegistryError::OtherVersion(Some(2)),
            RegistryError::OtherVersion(None),
            RegistryError::NoFleet("other".to_owned()),
            RegistryError::NoRights("permission denied".to_owned()),
            RegistryError::NoOperator("permission denied".to_owned()),
            RegistryError::WaitCancelled(Box::new(diagnostic.clone())),
            RegistryError::Garbage("3 columns".to_owned()),
            RegistryError::TooLong { most: 10, of_what: "bytes" },
            RegistryError::OutOfRange { name: "skew_ms", value: -1, most: 5 },
            RegistryError::Refused(Box::new(diagnostic)),
        ];
        for error in errors {
            let Report { code, message, hint, .. } = error.report();
            assert!(!message.ends_with('.') && !message.contains('\n'), "{message}");
            assert!(message.starts_with(char::is_lowercase), "{message}");
            assert_eq!(code.len(), 5, "{message}");
            assert!(hint.is_none_or(|hint| hint.ends_with('.')), "{message}");
        }
        let late = RegistryError::TimedOut { step: RegistryStep::SwapNumber, after: Duration::from_millis(1500) };
        assert_eq!(late.to_string(), "registry did not answer within 1.5 s (changing a number's record)");
    }
}
