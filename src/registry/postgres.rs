//! The registry in PostgreSQL: what is sent, and what an answer means.
//!
//! Each call is one statement, in a transaction of its own: `read`, `swap_fleet`, `swap_number`,
//! `reserve_blocks` or `return_blocks` of the schema `snowflake_registry`. So a transaction pooler
//! may lie between. No statement outlives its answer, and no session has a state.
//!
//! **Only a complete answer without a notice is a yes.** PostgreSQL sends the rows before it
//! commits. When a wait for a synchronous standby is cancelled, it commits all the same, and says
//! so in a warning.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use snowflake_core::registry::{Change, Fleet, Incarnation, NumberRecord, Reading, Registry, Swap, SwapAnswer, Wanted};
use snowflake_core::segment::{Block, GiveBack, Grant, Granted, Reserve, TagRegistry};

use crate::VERSION;
use crate::config::{Config, MemberName};
use crate::connection::{self, PostgresConnection, Waiter};
use crate::conninfo::Options;
use crate::error::{Diagnostic, RegistryError};
use crate::libpq::Rows;
use crate::reading;
use crate::report::beginning;
use crate::step::RegistryStep;

/// How often a transaction is tried that PostgreSQL rolls back for another one's sake.
const TRIES: u32 = 5;

/// The datacenter of a layout without that field.
const NO_DATACENTER: i64 = -1;

const READ: &CStr =
    c"SELECT version, uuid, layout, backup, first_worker, last_worker, loses_nothing, closed, longest_ms, \
skew_ms, lease_ms, clock_skew_ms, grace_ms, written_store, written_timeline, fleet_generation, horizon_ms, freeze_ms, \
fleet_version, store, timeline, now_ms, up_ms, number, holder, nonce, count, server, from_ms, until_ms, generation, renewed_ms, offset_ms \
FROM snowflake_registry.read($1, $2, $3)";

const SWAP_FLEET: &CStr =
    c"SELECT done, store, timeline FROM snowflake_registry.swap_fleet($1, $2, $3, $4, $5, $6, $7, \
$8, $9, $10, $11, $12, $13, $14, $15)";

const SWAP_NUMBER: &CStr = c"SELECT done, store, timeline FROM snowflake_registry.swap_number($1, $2, $3, $4, $5, $6, \
$7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)";

const RESERVE: &CStr = c"SELECT done, store, timeline, number, answer, id, least_step, greatest_step, first_value, \
value_count, generation, skipped FROM snowflake_registry.reserve_blocks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

const GIVE_BACK: &CStr = c"SELECT done, store, timeline, number, taken_from \
FROM snowflake_registry.return_blocks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/// A registry in PostgreSQL. It connects when it is used, keeps the connection, and connects anew
/// after an error.
pub struct Postgres<W: Waiter> {
    config: Config,
    waiter: Rc<W>,
    connection: RefCell<Option<PostgresConnection<W>>>,
}

impl<W: Waiter> Postgres<W> {
    /// Makes a registry that is not connected yet.
    pub fn new(config: Config, waiter: W) -> Self {
        Self { config, waiter: Rc::new(waiter), connection: RefCell::new(None) }
    }

    /// Returns where the registry is, and which server this is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the process id of the session in the registry, if there is one. Two copies of a
    /// memory have different ones, because they share no connection.
    pub fn backend_pid(&self) -> Option<i32> {
        self.connection.borrow().as_ref().map(PostgresConnection::backend_pid)
    }

    /// Closes the connection.
    pub fn disconnect(&self) {
        self.connection.replace(None);
    }

    /// Runs a statement, again if PostgreSQL has rolled it back for another one's sake.
    fn run(
        &self,
        sql: &CStr,
        values: &[Option<String>],
        step: RegistryStep,
    ) -> Result<connection::StatementAnswer, RegistryError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.run_once(sql, values, step) {
                Err(RegistryError::Refused(diagnostic)) if is_transient(&diagnostic) && tries < TRIES => {}
                answer => return answer.map_err(|error| self.explain(error, step)),
            }
        }
    }

    /// Runs a statement. The connection is kept only if there is an answer, or if the transaction
    /// was rolled back.
    fn run_once(
        &self,
        sql: &CStr,
        values: &[Option<String>],
        step: RegistryStep,
    ) -> Result<connection::StatementAnswer, RegistryError> {
        let timeout = self.config.timeout;
        let kept = self.connection.take();
        let is_kept = kept.is_some();
        let connect = || {
            let options = Options::parse(&self.config.conninfo).map_err(RegistryError::Connect)?;
            let (options, note) = options.with_defaults().without_ignored_passfile();
            PostgresConnection::open(&options, timeout, &self.waiter).map_err(|error| match (error, note) {
                (RegistryError::Connect(text), Some(note)) => {
                    RegistryError::Connect(format!("{}. {note}", text.trim_end_matches('.')))
                }
                (error, _) => error,
            })
        };
        let mut connection = kept.map_or_else(connect, Ok)?;
        let mut answer = connection.run(sql, values, step, timeout);
        // The registry may have been restarted since the last call. To read twice does no harm.
        if is_kept && !step.may_be_done() && matches!(answer, Err(RegistryError::Lost { .. })) {
            drop(connection);
            connection = connect()?;
            answer = connection.run(sql, values, step, timeout);
        }
        let is_usable = match &answer {
            Ok(_) => true,
            Err(RegistryError::Refused(diagnostic)) => is_transient(diagnostic),
            Err(_) => false,
        };
        if is_usable {
            self.connection.replace(Some(connection));
        }
        answer
    }

    /// Says what an error means in a registry.
    fn explain(&self, error: RegistryError, step: RegistryStep) -> RegistryError {
        let RegistryError::Refused(diagnostic) = error else { return error };
        match diagnostic.sqlstate.as_str() {
            // Raised by registry.sql.
            "SF001" => RegistryError::InRecovery,
            "SF002" => RegistryError::ReadOnly,
            "SF003" => RegistryError::FsyncOff,
            "SF004" => RegistryError::NoFleet(self.config.fleet.clone()),
            // What only a primary may do, before registry.sql could look.
            "25006" => RegistryError::ReadOnly,
            "3F000" => RegistryError::NoSchema,
            "42501" => RegistryError::NoRights(diagnostic.message),
            // A wait for a lock.
            "55P03" => RegistryError::TimedOut { step, after: self.patience() },
            // A function, a column or a table that is missing.
            "42883" | "42703" | "42P01" => RegistryError::OtherVersion(None),
            _ => RegistryError::Refused(diagnostic),
        }
    }

    /// Returns how long a statement may wait for a lock. It ends a little earlier than the wait for
    /// its answer, which would leave its transaction behind.
    fn patience(&self) -> Duration {
        self.config.timeout * 4 / 5
    }

    fn datacenter(&self) -> i64 {
        self.config.datacenter.unwrap_or(NO_DATACENTER)
    }

    /// What all changes begin with: the fleet, and what is compared.
    fn compared(&self, fleet: u64, incarnation: Incarnation) -> Vec<Option<String>> {
        vec![
            text(&self.config.fleet),
            text(self.patience().as_millis().max(1)),
            bits(fleet),
            bits(incarnation.store),
            bits(incarnation.timeline),
        ]
    }

    /// Runs a statement that changes something. Its answer has to be complete, and without a
    /// notice.
    fn change(&self, sql: &CStr, values: &[Option<String>], step: RegistryStep) -> Result<Rows, RegistryError> {
        let answer = self.run(sql, values, step)?;
        match answer.notices.into_iter().find(may_be_of_a_commit) {
            Some(notice) => {
                self.disconnect();
                Err(RegistryError::WaitCancelled(Box::new(notice)))
            }
            None => Ok(answer.rows),
        }
    }
}

impl<W: Waiter> Registry for Postgres<W> {
    type Error = RegistryError;

    fn read(&self, wanted: Wanted) -> Result<Reading, RegistryError> {
        let number = match wanted {
            Wanted::Number(worker) => text(worker),
            Wanted::All => None,
        };
        let values = [text(&self.config.fleet), text(self.datacenter()), number];
        let answer = self.run(READ, &values, RegistryStep::Read)?;
        understood(&answer.rows).and_then(reading::checked).inspect_err(|_| self.disconnect())
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, RegistryError> {
        let mut values = self.compared(swap.fleet, swap.incarnation);
        let sql = match &swap.change {
            Change::Fleet(fleet) => {
                values.extend([
                    fleet.layout.and_then(|(fingerprint, _)| text(fingerprint)),
                    fleet.layout.and_then(|(_, backup)| text(backup)),
                    fleet.range.and_then(|(first, _)| text(first)),
                    fleet.range.and_then(|(_, last)| text(last)),
                    text(fleet.longest_ms),
                    text(fleet.skew_ms),
                    bits(fleet.generation),
                    text(fleet.horizon_ms),
                    text(fleet.freeze_ms),
                    bits(fleet.version),
                ]);
                SWAP_FLEET
            }
            Change::Number { worker, was, record } => {
                let MemberName { host, port, cluster_name, version } = &self.config.member;
                values.extend([
                    text(self.datacenter()),
                    text(worker),
                    was.and_then(bits),
                    uuid(record.holder),
                    bits(record.nonce),
                    bits(record.count),
                    bits(record.server),
                    text(record.from_ms),
                    text(record.until_ms),
                    bits(record.generation),
                    text(record.renewed_ms),
                    text(record.offset_ms),
                    text(host),
                    text(port),
                    text(cluster_name),
                    text(version),
                ]);
                SWAP_NUMBER
            }
        };
        let rows = self.change(sql, &values, RegistryStep::of(swap))?;
        swapped(&rows).inspect_err(|_| self.disconnect())
    }
}

impl<W: Waiter> TagRegistry for Postgres<W> {
    fn reserve(&self, reserve: &Reserve) -> Result<Option<Granted<Grant>>, RegistryError> {
        let asks = &reserve.asks;
        let mut values = self.compared(reserve.fleet, reserve.incarnation);
        values.extend([
            array(asks.iter().map(|ask| Some(quoted(ask.tag.as_str())))),
            array(asks.iter().map(|ask| ask.id.and_then(bits))),
            array(asks.iter().map(|ask| ask.step.and_then(text))),
            array(asks.iter().map(|ask| text(ask.above))),
            array(asks.iter().map(|ask| text(ask.least))),
            array(asks.iter().map(|ask| bits(ask.generation))),
            array(asks.iter().map(|ask| bits(ask.nonce))),
            array(asks.iter().map(|ask| ask.was.and_then(bits))),
        ]);
        let rows = self.change(RESERVE, &values, RegistryStep::Reserve)?;
        granted(&rows, asks.len(), GRANT_COLUMNS, grant).inspect_err(|_| self.disconnect())
    }

    fn give_back(&self, give_back: &GiveBack) -> Result<Option<Granted<Option<i64>>>, RegistryError> {
        let returns = &give_back.returns;
        let mut values = self.compared(give_back.fleet, give_back.incarnation);
        values.extend([
            array(returns.iter().map(|given| Some(quoted(given.tag.as_str())))),
            array(returns.iter().map(|given| bits(given.id))),
            array(returns.iter().map(|given| bits(given.was))),
            array(returns.iter().map(|given| text(given.first))),
            array(returns.iter().map(|given| bits(given.nonce))),
        ]);
        let rows = self.change(GIVE_BACK, &values, RegistryStep::GiveBack)?;
        granted(&rows, returns.len(), 1, |row| row.maybe_number()).inspect_err(|_| self.disconnect())
    }
}

/// Whether a transaction was rolled back for the sake of another one, and would succeed now:
/// serialization_failure and deadlock_detected.
fn is_transient(diagnostic: &Diagnostic) -> bool {
    matches!(diagnostic.sqlstate.as_str(), "40001" | "40P01")
}

/// Whether a notice may say that a commit is not what it should be. Such notices are warnings. An
/// operator may have these others sent (`client_min_messages`).
fn may_be_of_a_commit(notice: &Diagnostic) -> bool {
    !matches!(notice.severity.as_str(), "DEBUG" | "LOG" | "INFO" | "NOTICE")
}

fn text(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

/// Returns a number as bigint, which has its bits.
fn bits(value: u64) -> Option<String> {
    text(value.cast_signed())
}

fn uuid(value: u128) -> Option<String> {
    // PostgreSQL takes one without hyphens.
    Some(format!("{value:032x}"))
}

/// Returns an array of PostgreSQL's, of texts that need no quotes or have them.
fn array(elements: impl Iterator<Item = Option<String>>) -> Option<String> {
    let elements: Vec<_> = elements.map(|element| element.unwrap_or_else(|| "NULL".to_owned())).collect();
    Some(format!("{{{}}}", elements.join(",")))
}

/// Quotes a text as an element of an array.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A row of an answer, read from the left to the right.
struct AnswerRow<'a>(std::slice::Iter<'a, Option<&'a str>>);

impl<'a> AnswerRow<'a> {
    fn of(row: &'a [Option<&'a str>], columns: usize) -> Result<Self, RegistryError> {
        if row.len() != columns {
            return Err(RegistryError::Garbage(format!("{} columns instead of {columns}", row.len())));
        }
        Ok(Self(row.iter()))
    }

    fn text(&mut self) -> Option<&'a str> {
        *self.0.next().expect("the number of columns was checked")
    }

    fn parsed<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, RegistryError> {
        let text = self.text();
        text.and_then(parse).ok_or_else(|| RegistryError::Garbage(format!("value {}", text.map_or("NULL", beginning))))
    }

    fn number<T: FromStr>(&mut self) -> Result<T, RegistryError> {
        self.parsed(|text| text.parse().ok())
    }

    fn maybe_number(&mut self) -> Result<Option<i64>, RegistryError> {
        match self.0.as_slice() {
            [None, ..] => {
                self.0.next();
                Ok(None)
            }
            _ => self.number().map(Some),
        }
    }

    fn bits(&mut self) -> Result<u64, RegistryError> {
        self.number().map(i64::cast_unsigned)
    }

    fn boolean(&mut self) -> Result<bool, RegistryError> {
        self.parsed(|text| match text {
            "t" => Some(true),
            "f" => Some(false),
            _ => None,
        })
    }

    /// Reads two values that are NULL together.
    fn both<A, B>(
        &mut self,
        first: impl FnOnce(&mut Self) -> Result<A, RegistryError>,
        second: impl FnOnce(&mut Self) -> Result<B, RegistryError>,
    ) -> Result<Option<(A, B)>, RegistryError> {
        if let [None, None, ..] = self.0.as_slice() {
            self.0.nth(1);
            return Ok(None);
        }
        Ok(Some((first(self)?, second(self)?)))
    }

    fn uuid(&mut self) -> Result<u128, RegistryError> {
        self.parsed(|text| u128::from_str_radix(&text.replace('-', ""), 16).ok())
    }

    fn incarnation(&mut self) -> Result<Incarnation, RegistryError> {
        Ok(Incarnation { store: self.bits()?, timeline: self.bits()?, counts: [0; 2] })
    }
}

/// How many columns `READ` has: the fleet's and the registry's, and a number's.
const FLEET_COLUMNS: usize = 23;
const NUMBER_COLUMNS: usize = 10;

/// Understands the answer of `read`: a row of the fleet, and one for each number. Each has NULL in
/// the columns of the other kind.
fn understood(rows: &Rows) -> Result<Reading, RegistryError> {
    let mut numbers = rows.iter();
    let first = numbers.next().ok_or_else(|| RegistryError::Garbage("no row".to_owned()))?;
    let mut row = AnswerRow::of(&first, FLEET_COLUMNS + NUMBER_COLUMNS)?;
    let version: i64 = row.number()?;
    if version != VERSION {
        return Err(RegistryError::OtherVersion(Some(version)));
    }
    let fleet = Fleet {
        uuid: row.uuid()?,
        layout: row.both(AnswerRow::number, AnswerRow::boolean)?,
        range: row.both(AnswerRow::number, AnswerRow::number)?,
        loses_nothing: row.boolean()?,
        closed: row.boolean()?,
        longest_ms: row.number()?,
        skew_ms: row.number()?,
        lease_ms: row.number()?,
        clock_skew_ms: row.number()?,
        grace_ms: row.number()?,
        incarnation: row.incarnation()?,
        generation: row.bits()?,
        horizon_ms: row.number()?,
        freeze_ms: row.number()?,
        version: row.bits()?,
    };
    let incarnation = row.incarnation()?;
    let (now_ms, up_ms) = (row.number()?, Some(row.number()?));
    let mut records = BTreeMap::new();
    for number in numbers {
        AnswerRow::of(&number, FLEET_COLUMNS + NUMBER_COLUMNS)?;
        let mut row = AnswerRow::of(&number[FLEET_COLUMNS..], NUMBER_COLUMNS)?;
        let worker = row.number()?;
        let record = NumberRecord {
            holder: row.uuid()?,
            nonce: row.bits()?,
            count: row.bits()?,
            server: row.bits()?,
            from_ms: row.number()?,
            until_ms: row.number()?,
            generation: row.bits()?,
            renewed_ms: row.number()?,
            offset_ms: row.number()?,
        };
        records.insert(worker, record);
    }
    Ok(Reading { fleet, records, incarnation, now_ms, up_ms })
}

/// Understands the answer of a swap.
fn swapped(rows: &Rows) -> Result<SwapAnswer, RegistryError> {
    let garbage = || RegistryError::Garbage(format!("{} rows", rows.len()));
    let row = rows.iter().next().filter(|_| rows.len() == 1).ok_or_else(garbage)?;
    let mut row = AnswerRow::of(&row, 3)?;
    let is_done = row.boolean()?;
    Ok(if is_done { SwapAnswer::Done(row.incarnation()?) } else { SwapAnswer::Refused })
}

/// Understands the answers for several tags, each of which has so many columns after the number of
/// what was asked. If something was not as compared, there is one row, which says only that.
fn granted<T>(
    rows: &Rows,
    asked: usize,
    columns: usize,
    read: impl Fn(&mut AnswerRow<'_>) -> Result<T, RegistryError>,
) -> Result<Option<Granted<T>>, RegistryError> {
    let garbage = || RegistryError::Garbage(format!("{} rows for {asked} tags", rows.len()));
    let mut answers: BTreeMap<usize, T> = BTreeMap::new();
    let mut found = None;
    for row in rows.iter() {
        let mut row = AnswerRow::of(&row, 4 + columns)?;
        if !row.boolean()? {
            return Ok(None);
        }
        found = Some(row.incarnation()?);
        answers.insert(row.number()?, read(&mut row)?);
    }
    // The rows come in the order of the tags' names.
    let is_whole = answers.keys().copied().eq(1..=asked) && rows.len() == asked;
    let incarnation = found.filter(|_| is_whole).ok_or_else(garbage)?;
    Ok(Some(Granted { incarnation, answers: answers.into_values().collect() }))
}

/// How many columns a [`Grant`] has.
const GRANT_COLUMNS: usize = 8;

fn grant(row: &mut AnswerRow<'_>) -> Result<Grant, RegistryError> {
    Ok(match row.text() {
        Some("unknown") => Grant::Unknown,
        Some("known") => Grant::Known,
        Some("ended") => Grant::Ended,
        Some("no jump") => Grant::NoJump,
        Some("too far") => Grant::TooFar,
        Some("forgot") => Grant::Forgot,
        Some("block") => {
            let (id, steps) = (row.bits()?, (row.number()?, row.number()?));
            let block = Block { first: row.number()?, count: row.number()? };
            if !block.is_possible() {
                return Err(RegistryError::Garbage(format!("a block of {} values from {}", block.count, block.first)));
            }
            Grant::Block { id, steps, block, generation: row.bits()?, skipped: row.number()? }
        }
        other => return Err(RegistryError::Garbage(format!("answer {}", other.map_or("NULL", beginning)))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least and the greatest numbers, and what no number is.
    const ODD: [&str; 9] = [
        "-9223372036854775808",
        "-1",
        "0",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "1e9",
        "",
        "99999999999999999999999999999999999999999",
    ];

    const FLEET: [&str; FLEET_COLUMNS] = [
        "1",
        "1b4e28ba-2fa1-41d2-883f-0016d3cca427",
        "5",
        "t",
        "0",
        "9",
        "f",
        "f",
        "600000",
        "60000",
        "300000",
        "1000",
        "0",
        "7",
        "3",
        "1",
        "5",
        "6",
        "8",
        "7",
        "3",
        "1700000000000",
        "100",
    ];

    const NUMBER: [&str; NUMBER_COLUMNS] =
        ["4", "1b4e28ba-2fa1-41d2-883f-0016d3cca427", "1", "2", "3", "1700000000000", "1700000001000", "1", "5", "0"];

    fn rows(values: &[Vec<Option<&str>>]) -> Rows {
        let mut rows = Rows::default();
        for row in values {
            rows.push(row.iter().map(|value| value.map(str::as_bytes))).unwrap();
        }
        rows
    }

    fn read(fleet: &[&str], number: &[&str]) -> Result<Reading, RegistryError> {
        let first = fleet.iter().copied().map(Some).chain([None; NUMBER_COLUMNS]).collect();
        let second = [None; FLEET_COLUMNS].into_iter().chain(number.iter().copied().map(Some)).collect();
        understood(&rows(&[first, second])).and_then(reading::checked)
    }

    #[test]
    fn no_number_in_a_reading_is_beyond_its_range_or_panics() {
        assert_eq!(read(&FLEET, &NUMBER).unwrap().records.len(), 1);
        for odd in ODD {
            for column in 0..FLEET_COLUMNS {
                let mut fleet = FLEET;
                fleet[column] = odd;
                if let Ok(read) = read(&fleet, &NUMBER) {
                    let Fleet { longest_ms, skew_ms, lease_ms, clock_skew_ms, grace_ms, .. } = read.fleet;
                    let all = [read.now_ms, longest_ms, skew_ms, lease_ms, clock_skew_ms, grace_ms];
                    assert!(all.iter().all(|ms| (0..1 << 50).contains(ms)), "column {column}: {odd}");
                }
            }
            for column in 0..NUMBER_COLUMNS {
                let mut number = NUMBER;
                number[column] = odd;
                let _ = read(&FLEET, &number);
            }
        }
        let mut fleet = FLEET;
        fleet[9] = "-1";
        assert!(matches!(read(&fleet, &NUMBER), Err(RegistryError::OutOfRange { name: "skew_ms", value: -1, .. })));
        fleet = FLEET;
        fleet[21] = "9223372036854775807";
        assert!(matches!(
            read(&fleet, &NUMBER),
            Err(RegistryError::OutOfRange { name: "now_ms", value: i64::MAX, .. })
        ));
    }

    #[test]
    fn no_number_in_a_block_panics() {
        let block = ["t", "7", "3", "1", "block", "1", "10", "1000", "100", "10", "1", "0"];
        let granted_of = |block: &[&str]| {
            let row = block.iter().copied().map(Some).collect();
            granted(&rows(&[row]), 1, GRANT_COLUMNS, grant)
        };
        assert!(matches!(granted_of(&block), Ok(Some(granted)) if granted.answers.len() == 1));
        for odd in ODD {
            for column in 0..block.len() {
                let mut block = block;
                block[column] = odd;
                if let Ok(Some(granted)) = granted_of(&block)
                    && let [Grant::Block { block, .. }] = granted.answers[..]
                {
                    assert!(block.first.checked_add(block.count.into()).is_some_and(|end| end > block.first));
                }
            }
        }
    }
}
