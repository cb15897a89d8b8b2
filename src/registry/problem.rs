//! What can go wrong with an etcd.

use std::time::Duration;

use crate::report::{Asker, Report, seconds};
use crate::step::RegistryStep;

/// What helps where etcd has reached its quota.
pub const FREE_SPACE: &str = "Run \"etcdctl compact REVISION\" with the present revision, then \"etcdctl defrag \
                              --cluster\", then \"etcdctl alarm disarm\".";

/// Why an etcd has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// No connection to any of the addresses: why.
    Unreachable(String),
    /// A file of the string cannot be used: why.
    File(String),
    /// No answer in time.
    TimedOut {
        /// What was not answered.
        step: RegistryStep,
        /// After how long.
        after: Duration,
    },
    /// etcd refuses the user, or the password; its message.
    Login(String),
    /// The user may not use the fleet's keys; etcd's message.
    NoRights(String),
    /// There is no such fleet: the key where its record should be.
    NoFleet(String),
    /// etcd has reached its quota, and refuses every write.
    NoSpace,
    /// etcd is too busy to tell which incarnation it is.
    Busy,
    /// A record makes no sense: its key, and what is wrong.
    Record(String, String),
    /// Any other error that etcd reports.
    Refused(String),
}

impl Problem {
    /// Returns the parts of the error report.
    pub(crate) fn worded(&self, asker: Asker) -> Report<&'static str> {
        let (registry, fleet, program) = (asker.registry(), asker.fleet(), asker.program());
        match self {
            Self::Unreachable(why) => Report::new("08001", "could not connect to etcd").detail(why).hint(format!(
                "Check the addresses in {registry}, the network, and the certificates. The name in an address must be \
                 in etcd's certificate."
            )),
            Self::File(why) => Report::new("58030", "could not use etcd")
                .quoting(why)
                .hint(format!("The user that runs {program} must be able to read the files that {registry} names.")),
            Self::TimedOut { step, after } => {
                let report = Report::new("08006", format!("etcd did not answer within {} ({step})", seconds(*after)));
                let report = match step.may_be_done() {
                    true => report.detail("The change may have been made all the same, or may still be made."),
                    false => report,
                };
                report.hint(
                    "An etcd without a majority of its members does not answer. \"etcdctl endpoint status --cluster\" \
                     shows them.",
                )
            }
            // etcd's own words: "CommonName of client sending a request against gateway will be
            // ignored".
            Self::Login(message) if message.contains("CommonName") => {
                Report::new("28000", "etcd refuses the certificate")
                    .detail("Its JSON gateway takes no certificate with a common name (CN) once users have to log in.")
                    .hint(format!(
                        "Name a certificate without a common name in {registry}, such as with the subject \
                         \"/O=snowflake\"."
                    ))
            }
            Self::Login(message) => Report::new("28P01", "etcd refuses the user").quoting(message).hint(format!(
                "Check the parameters user and password_file in {registry}. A certificate does not take their place."
            )),
            Self::NoRights(message) => {
                Report::new("42501", "user may not use the registry in etcd").quoting(message).hint(
                    "Grant it: \"etcdctl role grant-permission ROLE --prefix=true readwrite /snowflake_id/\". Some \
                     releases of etcd also ask for the role root: see \"etcd\" in docs/fleet.md.",
                )
            }
            Self::NoFleet(key) => Report::new("42704", "etcd has no record of the fleet")
                .quoting(&format!("no key \"{key}\""))
                .hint(format!(
                    "Check {fleet}. \"snowflake-registry create\" makes it, or: etcdctl put {key} '{{\"uuid\": \
                     \"'$(uuidgen)'\"}}'. If it was there before, make it with \"snowflake-registry lost\"."
                )),
            Self::NoSpace => Report::new("53100", "etcd has no space left, and refuses every write").hint(FREE_SPACE),
            Self::Busy => Report::new("55000", "etcd is too busy to tell its state")
                .detail("It takes so many writes that its log and its revision could not be read together.")
                .hint(match asker {
                    Asker::Server => "The server tries again. Use an etcd with less load if this persists.",
                    Asker::Operator => "Try again. Use an etcd with less load if this persists.",
                }),
            Self::Record(key, why) => Report::new("22P02", "invalid record in etcd")
                .quoting(&format!("\"{key}\": {why}"))
                .hint("Look at it with \"etcdctl get\", and correct what was edited."),
            Self::Refused(message) => Report::new("58000", "etcd reports an error")
                .quoting(message)
                .hint("\"etcdctl endpoint health --cluster\" shows which members work."),
        }
    }
}
