//! Calls of etcd's JSON gateway: on which member, with which login, what an error means; and what
//! etcd tells of itself, its clock and its incarnation.
//!
//! # The incarnation
//!
//! - `cluster_id`. A restored snapshot keeps it where it is restored with the same token and the
//!   same members' addresses.
//! - `raft_term`, and how many entries of the log changed no key: `raftAppliedIndex` less the
//!   revision. Neither ever falls, until a snapshot is restored: its log begins anew, while the
//!   revision goes on, or jumps ahead (`--bump-revision`). So the difference is negative from then
//!   on, and falls further at the next restore.
//!
//! A member tells the two of the last at two moments, and a change shows in the revision before it
//! counts as applied. So the member is asked until it has applied all that `raftIndex` says is
//! committed, and then shows the same revision again. Otherwise the difference could be one less
//! than before, as if a snapshot had been restored. It is asked after a transaction on the same
//! connection, and so knows of all that was written before.
//!
//! # The clock
//!
//! The header `Date` has whole seconds. The middle of its second is taken, so the offset is known
//! within half a second, and half of the way back and forth.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use snowflake_core::clock::days_from_civil;
use snowflake_core::fleet::registry::Incarnation;

use super::address::Address;
use super::answer::{self, Alarms, EtcdStatus, Login, Transaction};
use super::http::{Deadline, HttpConnection};
use crate::config::Config;
use crate::connection::Waiter;
use crate::error::RegistryError;
use crate::problem::Problem;
use crate::report::beginning;
use crate::step::RegistryStep;

/// How long connecting to one address may take where another one follows, so that there is time for
/// that.
const CONNECT: Duration = Duration::from_secs(1);

/// How often etcd is asked for its state, until it shows the same revision twice.
const LOOKS: u32 = 20;

/// Half a second: what `Date` lacks, in the middle.
const HALF_SECOND_MS: i64 = 500;

/// The longest error of etcd's that is read, in bytes.
const LONGEST_ERROR: usize = 64 << 10;

/// The way to an etcd. It connects when it is used, keeps the connection, and connects anew after
/// an error, to the next of the addresses.
pub(super) struct Gateway<W: Waiter> {
    pub config: Config,
    waiter: Rc<W>,
    session: RefCell<Option<EtcdSession<W>>>,
    /// Which of the addresses is tried first.
    first: Cell<usize>,
}

impl<W: Waiter> Gateway<W> {
    /// Makes a way that is not connected yet.
    pub fn new(config: Config, waiter: W) -> Self {
        let (session, first) = Default::default();
        Self { config, waiter: Rc::new(waiter), session, first }
    }

    /// Returns this end's port, if there is a connection.
    pub fn local_port(&self) -> Option<u16> {
        self.session.borrow().as_ref().and_then(|session| session.connection.local_port())
    }

    /// Closes the connection.
    pub fn disconnect(&self) {
        self.session.replace(None);
    }

    /// Runs `work` on the connection. If a kept one fails although nothing can have been changed, a
    /// new one is tried, because etcd may have been restarted since the last call.
    pub fn run<T>(
        &self,
        step: RegistryStep,
        work: impl Fn(&mut EtcdSession<W>, &Deadline) -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let deadline = Deadline::new(step, self.config.timeout);
        let kept = self.session.take();
        let is_kept = kept.is_some();
        let mut session = kept.map_or_else(|| self.connect(&deadline), Ok)?;
        let mut done = work(&mut session, &deadline);
        // What is refused for its token was not done.
        let is_stale = matches!(&done, Err(RegistryError::Etcd(Problem::Login(_))));
        let is_lost = !step.may_be_done() && matches!(&done, Err(RegistryError::Lost { .. }));
        if is_kept && (is_stale || is_lost) {
            drop(session);
            session = self.connect(&deadline)?;
            done = work(&mut session, &deadline);
        }
        let is_usable = match &done {
            Ok(_) => true,
            Err(RegistryError::Etcd(problem)) => {
                matches!(problem, Problem::NoFleet(_) | Problem::NoRights(_) | Problem::Record(..))
            }
            Err(_) => false,
        };
        if is_usable {
            self.session.replace(Some(session));
        } else {
            // This member may be cut off from the others.
            self.first.set(self.first.get().wrapping_add(1));
        }
        done
    }

    /// Connects to the first address that answers, and logs in.
    fn connect(&self, deadline: &Deadline) -> Result<EtcdSession<W>, RegistryError> {
        let address = Address::parse(&self.config.conninfo)
            .map_err(|why| RegistryError::Etcd(Problem::Unreachable(format!("The address is wrong: {why}."))))?;
        let count = address.endpoints.len();
        let mut failure = None;
        for tried in 0..count {
            let timeout = time_to_connect(tried, count, deadline.left()?);
            let number = self.first.get().wrapping_add(tried) % count;
            match HttpConnection::open(&address.endpoints[number], &address, timeout, &self.waiter) {
                Ok(connection) => {
                    self.first.set(number);
                    let mut session = EtcdSession { connection, token: None };
                    session.token = session.log_in(&address, deadline)?;
                    return Ok(session);
                }
                Err(
                    error @ (RegistryError::Stopped
                    | RegistryError::NoDescriptor
                    | RegistryError::Etcd(Problem::File(_))),
                ) => {
                    return Err(error);
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.expect("there is an address"))
    }
}

/// How long connecting to one of `count` addresses may take, after so many others. The last one has
/// all of `left`, what is left of the call.
fn time_to_connect(tried: usize, count: usize, left: Duration) -> Duration {
    if tried + 1 < count { CONNECT.min(left) } else { left }
}

/// A connection, and the token that goes with it.
pub(super) struct EtcdSession<W: Waiter> {
    connection: HttpConnection<W>,
    token: Option<String>,
}

impl<W: Waiter> EtcdSession<W> {
    /// Runs a transaction, which does nothing unless all is as compared. One that only reads has
    /// nothing to compare.
    pub fn transact(
        &mut self,
        compare: &[Value],
        operations: &[Value],
        deadline: &Deadline,
    ) -> Result<Called<Transaction>, RegistryError> {
        let body = match compare {
            [] => json!({"success": operations}),
            _ => json!({"compare": compare, "success": operations}),
        };
        self.call("kv/txn", &body, deadline)
    }

    /// Reads the incarnation; see the head of the file.
    pub fn incarnation(&mut self, deadline: &Deadline) -> Result<Incarnation, RegistryError> {
        // The revision and the counts of the look before, if all that was committed was applied.
        let mut before: Option<(i64, [i64; 2])> = None;
        for _ in 0..LOOKS {
            let Called::<EtcdStatus> { answer, .. } = self.call("maintenance/status", &json!({}), deadline)?;
            let (revision, term) = (answer.header.revision.signed()?, answer.term.signed()?);
            if let Some((_, counts)) = before.filter(|(was, _)| *was == revision) {
                return Ok(Incarnation { store: answer.header.cluster_id.0, timeline: 0, counts });
            }
            // etcd reads these after the revision, in this order.
            let (committed, applied) = (answer.committed.signed()?, answer.applied.signed()?);
            before = (applied >= committed).then(|| (revision, [term, applied - revision]));
        }
        Err(RegistryError::Etcd(Problem::Busy))
    }

    /// Returns the names of all alarms, each once.
    pub fn alarms(&mut self, deadline: &Deadline) -> Result<Vec<String>, RegistryError> {
        let Called::<Alarms> { answer, .. } = self.call("maintenance/alarm", &json!({"action": "GET"}), deadline)?;
        answer.names()
    }

    /// Logs in, if the address has a user. Returns the token, which etcd takes for five minutes
    /// after its last use. `None` if etcd asks nobody for a password.
    fn log_in(&mut self, address: &Address, deadline: &Deadline) -> Result<Option<String>, RegistryError> {
        let password = address.password().map_err(|why| RegistryError::Etcd(Problem::File(why)))?;
        let (Some(user), Some(password)) = (&address.user, password) else { return Ok(None) };
        match self.call("auth/authenticate", &json!({"name": user, "password": password}), deadline) {
            Ok(Called::<Login> { answer: Login { token: Some(token) }, .. }) => Ok(Some(token)),
            Ok(_) => Err(RegistryError::Garbage("no token".to_owned())),
            Err(RegistryError::Etcd(Problem::Refused(message)))
                if message.contains("authentication is not enabled") =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Calls etcd's gateway.
    fn call<T: DeserializeOwned>(
        &mut self,
        method: &str,
        body: &Value,
        deadline: &Deadline,
    ) -> Result<Called<T>, RegistryError> {
        let path = format!("/v3/{method}");
        let body = body.to_string();
        let (answer, is_kept) = self.connection.post(&path, self.token.as_deref(), body.as_bytes(), deadline)?;
        if answer.status != 200 {
            let error = refused(answer.status, &answer.body[..answer.body.len().min(LONGEST_ERROR)], deadline);
            return Err(match error {
                // etcd tells a call without a token only this.
                RegistryError::Etcd(Problem::NoRights(message)) if self.token.is_none() => {
                    RegistryError::Etcd(Problem::Login(message))
                }
                other => other,
            });
        }
        let json =
            serde_json::from_slice(&answer.body).map_err(|error| RegistryError::Garbage(answer::wrong(&error)))?;
        if !is_kept {
            // The next call would find it closed. No member of an etcd does this.
            return Err(RegistryError::Lost { step: deadline.step, text: "It was closed after an answer.".to_owned() });
        }
        Ok(Called { answer: json, date: answer.date })
    }
}

/// etcd's answer to a call.
pub(super) struct Called<T> {
    pub answer: T,
    /// The header `Date`.
    date: Option<String>,
}

impl<T> Called<T> {
    /// Returns etcd's clock.
    pub fn now_ms(&self) -> Result<i64, RegistryError> {
        let date = self.date.as_deref().ok_or_else(|| RegistryError::Garbage("no Date".to_owned()))?;
        date_ms(date).ok_or_else(|| RegistryError::Garbage(format!("Date \"{}\"", beginning(date))))
    }
}

/// Says what an error of etcd's means. Codes are those of gRPC.
fn refused(status: u16, body: &[u8], deadline: &Deadline) -> RegistryError {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let (code, text) = (json["code"].as_i64().unwrap_or_default(), String::from_utf8_lossy(body));
    let message = json["message"].as_str().or(json["error"].as_str()).unwrap_or(&text);
    let message = message.trim_start_matches("etcdserver: ").lines().next().unwrap_or_default();
    let message = beginning(message).to_owned();
    RegistryError::Etcd(match code {
        4 => Problem::TimedOut { step: deadline.step, after: deadline.after },
        7 => Problem::NoRights(message),
        16 => Problem::Login(message),
        _ if message.contains("database space exceeded") => Problem::NoSpace,
        3 if ["user name is empty", "authentication failed", "auth store"].iter().any(|is| message.contains(is)) => {
            Problem::Login(message)
        }
        // A certificate names a user, and the gateway does not take it for one.
        _ if message.contains("CommonName of client") => Problem::Login(message),
        _ => Problem::Refused(if message.is_empty() { format!("HTTP {status}") } else { message }),
    })
}

/// Reads a header `Date` (RFC 9110), such as `Sun, 06 Nov 1994 08:49:37 GMT`. Returns the middle of
/// its second, in milliseconds since 1970; `None` before that year, and if it is not a date.
fn date_ms(date: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // The years have four digits, and all other numbers two. So all that follows fits.
    let number = |text: &str, digits: usize, from: i64, to: i64| {
        let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_number.then(|| text.parse().ok()).flatten();
        number.filter(|number| (from..=to).contains(number))
    };
    let mut words = date.split_ascii_whitespace().skip(1);
    let day = number(words.next()?, 2, 1, 31)?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| *name == month)?;
    let year = number(words.next()?, 4, 1970, 9999)?;
    let mut time = words.next()?.split(':');
    let mut part = |to| number(time.next()?, 2, 0, to);
    // A leap second is the sixtieth.
    let (hour, minute, second) = (part(23)?, part(59)?, part(60)?);
    let days = days_from_civil(year, month as i64 + 1, day);
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + HALF_SECOND_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connecting_leaves_time_for_the_addresses_that_follow() {
        let (short, long) = (Duration::from_millis(300), Duration::from_secs(10));
        assert_eq!([0, 1, 2].map(|tried| time_to_connect(tried, 3, long)), [CONNECT, CONNECT, long]);
        assert_eq!(time_to_connect(0, 1, long), long);
        assert_eq!(time_to_connect(0, 2, short), short);
    }

    #[test]
    fn a_date_is_the_middle_of_its_second() {
        assert_eq!(date_ms("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777_500));
        assert_eq!(date_ms("Thu, 01 Jan 1970 00:00:00 GMT"), Some(500));
        assert_eq!(date_ms("Fri, 31 Dec 9999 23:59:60 GMT"), Some(253_402_300_800_500));
        for wrong in [
            "",
            "Sun",
            "Sun, 06 Nov 1994",
            "Sun, 06 Nev 1994 08:49:37 GMT",
            "06 Nov 1994 08:49",
            "Sun, 06 Nov 1000000000000000000 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, 06 Nov -994 08:49:37 GMT",
            "Sun, 06 Nov +994 08:49:37 GMT",
            "Sun, 9223372036854775807 Nov 1994 08:49:37 GMT",
            "Sun, -9223372036854775808 Nov 1994 08:49:37 GMT",
            "Sun, 32 Nov 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 9223372036854775807:49:37 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
        ] {
            assert_eq!(date_ms(wrong), None, "{wrong}");
            let called = Called { answer: (), date: Some(wrong.to_owned()) };
            assert_eq!(called.now_ms(), Err(RegistryError::Garbage(format!("Date \"{wrong}\""))));
        }
    }

    #[test]
    fn errors_of_etcd_are_told_apart() {
        let deadline = Deadline::new(RegistryStep::Read, Duration::from_secs(1));
        let of = |body: &str| match refused(400, body.as_bytes(), &deadline) {
            RegistryError::Etcd(problem) => problem,
            other => panic!("{other:?}"),
        };
        let problem = |code: i64, message: &str| of(&json!({"code": code, "message": message}).to_string());
        assert_eq!(problem(16, "etcdserver: invalid auth token"), Problem::Login("invalid auth token".to_owned()));
        assert!(matches!(problem(3, "etcdserver: user name is empty"), Problem::Login(_)));
        assert!(matches!(problem(3, "etcdserver: revision of auth store is old"), Problem::Login(_)));
        assert!(matches!(problem(7, "etcdserver: permission denied"), Problem::NoRights(_)));
        assert!(matches!(problem(14, "etcdserver: request timed out"), Problem::Refused(_)));
        assert_eq!(problem(0, ""), Problem::Refused("HTTP 400".to_owned()));
        // etcd 3.3 calls it so, and a proxy may answer in its own words.
        assert_eq!(of("{\"error\": \"x\"}"), Problem::Refused("x".to_owned()));
        assert_eq!(of("no\nway"), Problem::Refused("no".to_owned()));
        assert_eq!(of(&"ä".repeat(5000)), Problem::Refused("ä".repeat(500)));
    }
}
