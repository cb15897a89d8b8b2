//! The registry in etcd: what is sent, and what an answer means.
//!
//! Records are plain keys below a prefix, one line of text each (`etcd/record.rs`). They never
//! belong to a lease of etcd's, which would delete them, and with them the end of the last lease of
//! a number. Each read and each swap is one transaction of etcd's JSON gateway (`/v3/kv/txn`, from
//! 3.4 on), which answers only with a majority of the members.
//!
//! ```text
//! /snowflake_id/FLEET/fleet                        the fleet's record
//! /snowflake_id/FLEET/numbers/DATACENTER/NUMBER    a number's record; - without a datacenter
//! /snowflake_id/FLEET/history/DATACENTER/NUMBER/FROM_MS    each lease, from its begin on
//! /snowflake_id/FLEET/tags/TAG                     a tag's record (`etcd/tags.rs`)
//! ```
//!
//! **A swap compares whole records.** Each change has another random number in it. A key's
//! `mod_revision` comes again with other contents when a snapshot is restored, so that it could
//! not tell a lost record from the one that was read.
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
//! connection, and so knows of all that was written before. A transaction cannot compare the
//! incarnation, so a swap also reads it afterwards: the core takes a swap that shows another one
//! for none.
//!
//! # The clock
//!
//! The header `Date` has whole seconds. The middle of its second is taken, so the offset is known
//! within half a second, and half of the way back and forth.

mod address;
mod answer;
mod http;
mod record;
mod tags;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use snowflake_core::clock::days_from_civil;
use snowflake_core::registry::{Change, Fleet, Incarnation, NumberRecord, Reading, Registry, Swap, SwapAnswer, Wanted};

pub(crate) use address::{Address, SCHEME};
use answer::{EtcdStatus, Login, Pair, Transaction};
use http::{Deadline, HttpConnection};

use crate::config::Config;
use crate::connection::Waiter;
use crate::error::RegistryError;
use crate::problem::Problem;
use crate::reading;
use crate::report::beginning;
use crate::step::RegistryStep;

/// How long connecting to one address may take, so that there is time for the next one.
const CONNECT: Duration = Duration::from_secs(1);

/// How often etcd is asked for its state, until it shows the same revision twice.
const LOOKS: u32 = 20;

/// Half a second: what `Date` lacks, in the middle.
const HALF_SECOND_MS: i64 = 500;

/// A connection, and the token that goes with it.
struct EtcdSession<W: Waiter> {
    connection: HttpConnection<W>,
    token: Option<String>,
}

/// What was read last, as it stands in etcd.
#[derive(Default)]
struct LastRead {
    fleet: Option<(Fleet, String)>,
    numbers: BTreeMap<i64, (NumberRecord, String)>,
}

/// A registry in etcd. It connects when it is used, keeps the connection, and connects anew after
/// an error, to the next of the addresses.
pub struct Etcd<W: Waiter> {
    config: Config,
    waiter: Rc<W>,
    session: RefCell<Option<EtcdSession<W>>>,
    /// Which of the addresses is tried first.
    first: Cell<usize>,
    known: RefCell<LastRead>,
}

/// The longest error of etcd's that is read, in bytes.
const LONGEST_ERROR: usize = 64 << 10;

/// etcd's answer to a call.
struct Called<T> {
    answer: T,
    /// The header `Date`.
    date: Option<String>,
}

impl<T> Called<T> {
    /// Returns etcd's clock.
    fn now_ms(&self) -> Result<i64, RegistryError> {
        let date = self.date.as_deref().ok_or_else(|| RegistryError::Garbage("no Date".to_owned()))?;
        date_ms(date).ok_or_else(|| RegistryError::Garbage(format!("Date \"{}\"", beginning(date))))
    }
}

impl<W: Waiter> Etcd<W> {
    /// Makes a registry that is not connected yet.
    pub fn new(config: Config, waiter: W) -> Self {
        let (session, first, known) = Default::default();
        Self { config, waiter: Rc::new(waiter), session, first, known }
    }

    /// Returns where the registry is, and which server this is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns a number that two copies of a memory do not share, if there is a connection.
    pub fn connection_id(&self) -> Option<i32> {
        self.session.borrow().as_ref().and_then(|session| session.connection.local_port()).map(i32::from)
    }

    /// Closes the connection.
    pub fn disconnect(&self) {
        self.session.replace(None);
    }

    /// Runs `work` on the connection. If a kept one fails although nothing can have been changed, a
    /// new one is tried, because etcd may have been restarted since the last call.
    fn run<T>(
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
        let (count, timeout) = (address.endpoints.len(), CONNECT.min(self.config.timeout));
        let mut failure = None;
        for tried in 0..count {
            let number = self.first.get().wrapping_add(tried) % count;
            match HttpConnection::open(&address.endpoints[number], &address, timeout, &self.waiter) {
                Ok(connection) => {
                    self.first.set(number);
                    let mut session = EtcdSession { connection, token: None };
                    session.token = log_in(&mut session, &address, deadline)?;
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

    fn key(&self, rest: &str) -> String {
        let prefix = match Address::parse(&self.config.conninfo) {
            Ok(address) => address.prefix,
            Err(_) => String::new(),
        };
        format!("{prefix}{}/{rest}", address::encoded(&self.config.fleet))
    }

    fn fleet_key(&self) -> String {
        self.key("fleet")
    }

    /// Returns below which key numbers, or their history, are.
    fn below(&self, what: &str) -> String {
        let datacenter = self.config.datacenter.map_or_else(|| "-".to_owned(), |datacenter| datacenter.to_string());
        self.key(&format!("{what}/{datacenter}/"))
    }

    fn number_key(&self, worker: i64) -> String {
        format!("{}{worker}", self.below("numbers"))
    }

    /// Reads records, and remembers how they stand in etcd.
    fn read_in(
        &self,
        session: &mut EtcdSession<W>,
        wanted: Wanted,
        deadline: &Deadline,
    ) -> Result<Reading, RegistryError> {
        let fleet_key = self.fleet_key();
        let numbers = match wanted {
            Wanted::Number(worker) => json!({"key": base64(&self.number_key(worker))}),
            Wanted::All => {
                let first = self.below("numbers");
                // The prefix ends with a slash, which a zero follows in ASCII.
                let end = format!("{}0", first.trim_end_matches('/'));
                json!({"key": base64(&first), "range_end": base64(&end)})
            }
        };
        let body = json!({"success": [{"request_range": {"key": base64(&fleet_key)}}, {"request_range": numbers}]});
        let called: Called<Transaction> = call(session, "kv/txn", &body, deadline)?;
        let now_ms = called.now_ms()?;
        let incarnation = incarnation(session, deadline)?;
        let mut found = called.answer.pairs()?.into_iter();
        let mut next = || found.next().unwrap_or_default();
        let Some(Pair { value: text, .. }) = next().into_iter().next() else {
            return Err(RegistryError::Etcd(Problem::NoFleet(fleet_key)));
        };
        let wrong = |key: &str, why| RegistryError::Etcd(Problem::Record(key.to_owned(), why));
        let fleet = record::fleet(&text, incarnation)
            .map_err(|why| wrong(&fleet_key, why))?
            .map_err(|format| RegistryError::OtherVersion(Some(format)))?;
        let mut records = BTreeMap::new();
        let mut known = self.known.borrow_mut();
        known.numbers.clear();
        for Pair { key, value: text } in next() {
            let worker = key.rsplit('/').next().and_then(|worker| worker.parse().ok());
            let worker: i64 = worker.ok_or_else(|| wrong(&key, "no number".to_owned()))?;
            let record = record::number(&text).map_err(|why| wrong(&key, why))?;
            records.insert(worker, record);
            known.numbers.insert(worker, (record, text));
        }
        known.fleet = Some((fleet, text));
        reading::checked(Reading { fleet, records, incarnation, now_ms, up_ms: None })
    }

    /// Returns what a swap compares and writes, or `None` if something is not as compared already.
    fn transaction(&self, swap: &Swap) -> Option<(Value, String)> {
        let known = self.known.borrow();
        let (fleet, fleet_text) = known.fleet.as_ref()?;
        if fleet.version != swap.fleet || fleet.closed {
            return None;
        }
        let fleet_key = self.fleet_key();
        let mut compare = vec![is_equal(&fleet_key, fleet_text)];
        let (puts, written) = match &swap.change {
            Change::Fleet(fleet) => {
                let text = record::fleet_text(fleet);
                (vec![put(&fleet_key, &text)], text)
            }
            Change::Number { worker, was, record } => {
                let key = self.number_key(*worker);
                let old = known.numbers.get(worker);
                if old.map(|(old, _)| old.nonce) != *was {
                    return None;
                }
                compare.push(match old {
                    Some((_, text)) => is_equal(&key, text),
                    None => json!({"target": "VERSION", "key": base64(&key), "version": "0", "result": "EQUAL"}),
                });
                let text = record::number_text(record, &self.config.member);
                let mut puts = vec![put(&key, &text)];
                if old.is_none_or(|(old, _)| old.holder != record.holder) {
                    let history = |from_ms: i64| format!("{}{worker}/{from_ms}", self.below("history"));
                    // The holder before may have been killed, and could not do this itself.
                    puts.extend(old.map(|(old, text)| put(&history(old.from_ms), text)));
                    if old.is_none_or(|(old, _)| old.from_ms != record.from_ms) {
                        puts.push(put(&history(record.from_ms), &text));
                    }
                }
                (puts, text)
            }
        };
        Some((json!({"compare": compare, "success": puts}), written))
    }
}

impl<W: Waiter> Registry for Etcd<W> {
    type Error = RegistryError;

    fn read(&self, wanted: Wanted) -> Result<Reading, RegistryError> {
        self.run(RegistryStep::Read, |session, deadline| self.read_in(session, wanted, deadline))
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, RegistryError> {
        if self.transaction(swap).is_none() {
            // Another number's record may have been read since.
            let fleet = |known: &LastRead| known.fleet.as_ref().map(|(_, text)| text.clone());
            let before = fleet(&self.known.borrow());
            let wanted = match swap.change {
                Change::Fleet(_) => Wanted::All,
                Change::Number { worker, .. } => Wanted::Number(worker),
            };
            self.read(wanted)?;
            // An operator's edit leaves the version as it is, and the swap was decided without it.
            if fleet(&self.known.borrow()) != before {
                return Ok(SwapAnswer::Refused);
            }
        }
        let Some((transaction, written)) = self.transaction(swap) else { return Ok(SwapAnswer::Refused) };
        let answer = self.run(RegistryStep::of(swap), |session, deadline| {
            let Called::<Transaction> { answer, .. } = call(session, "kv/txn", &transaction, deadline)?;
            if answer.succeeded {
                Ok(SwapAnswer::Done(incarnation(session, deadline)?))
            } else {
                Ok(SwapAnswer::Refused)
            }
        })?;
        if let SwapAnswer::Done(_) = answer {
            let mut known = self.known.borrow_mut();
            match swap.change {
                Change::Fleet(fleet) => known.fleet = Some((fleet, written)),
                Change::Number { worker, record, .. } => {
                    known.numbers.insert(worker, (record, written));
                }
            }
        }
        Ok(answer)
    }
}

/// Calls etcd's gateway.
fn call<W: Waiter, T: DeserializeOwned>(
    session: &mut EtcdSession<W>,
    method: &str,
    body: &Value,
    deadline: &Deadline,
) -> Result<Called<T>, RegistryError> {
    let path = format!("/v3/{method}");
    let body = body.to_string();
    let (answer, is_kept) = session.connection.post(&path, session.token.as_deref(), body.as_bytes(), deadline)?;
    if answer.status != 200 {
        let error = refused(answer.status, &answer.body[..answer.body.len().min(LONGEST_ERROR)], deadline);
        return Err(match error {
            // etcd tells a call without a token only this.
            RegistryError::Etcd(Problem::NoRights(message)) if session.token.is_none() => {
                RegistryError::Etcd(Problem::Login(message))
            }
            other => other,
        });
    }
    let json = serde_json::from_slice(&answer.body).map_err(|error| RegistryError::Garbage(answer::wrong(&error)))?;
    if !is_kept {
        // The next call would find it closed. No member of an etcd does this.
        return Err(RegistryError::Lost { step: deadline.step, text: "It was closed after an answer.".to_owned() });
    }
    Ok(Called { answer: json, date: answer.date })
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
        3 if ["user name is empty", "authentication failed", "auth store"].iter().any(|is| message.contains(is)) => {
            Problem::Login(message)
        }
        // A certificate names a user, and the gateway does not take it for one.
        _ if message.contains("CommonName of client") => Problem::Login(message),
        _ => Problem::Refused(if message.is_empty() { format!("HTTP {status}") } else { message }),
    })
}

/// Logs in, if the address has a user. Returns the token, which etcd takes for five minutes after
/// its last use. `None` if etcd asks nobody for a password.
fn log_in<W: Waiter>(
    session: &mut EtcdSession<W>,
    address: &Address,
    deadline: &Deadline,
) -> Result<Option<String>, RegistryError> {
    let password = address.password().map_err(|why| RegistryError::Etcd(Problem::File(why)))?;
    let (Some(user), Some(password)) = (&address.user, password) else { return Ok(None) };
    match call(session, "auth/authenticate", &json!({"name": user, "password": password}), deadline) {
        Ok(Called::<Login> { answer: Login { token: Some(token) }, .. }) => Ok(Some(token)),
        Ok(_) => Err(RegistryError::Garbage("no token".to_owned())),
        Err(RegistryError::Etcd(Problem::Refused(message))) if message.contains("authentication is not enabled") => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Reads the incarnation; see the head of the file.
fn incarnation<W: Waiter>(session: &mut EtcdSession<W>, deadline: &Deadline) -> Result<Incarnation, RegistryError> {
    // The revision and the counts of the look before, if all that was committed was applied.
    let mut before: Option<(i64, [i64; 2])> = None;
    for _ in 0..LOOKS {
        let Called::<EtcdStatus> { answer, .. } = call(session, "maintenance/status", &json!({}), deadline)?;
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

fn base64(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

fn is_equal(key: &str, text: &str) -> Value {
    json!({"target": "VALUE", "key": base64(key), "value": base64(text), "result": "EQUAL"})
}

fn put(key: &str, text: &str) -> Value {
    json!({"request_put": {"key": base64(key), "value": base64(text)}})
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
