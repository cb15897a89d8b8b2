//! The registry in PostgreSQL: what is sent, and what an answer means.
//!
//! Each call is one statement, in a transaction of its own: `read` or `swap` of the schema
//! `snowflake_registry`. So a transaction pooler may lie between. No statement outlives its answer,
//! and no session has a state. What is written and what is answered is JSON
//! (`postgres/record.rs`).
//!
//! **Only a complete answer without a notice is a yes.** PostgreSQL sends the rows before it
//! commits. When a wait for a synchronous standby is cancelled, it commits all the same, and says
//! so in a warning.

mod operator;
mod record;

use std::cell::RefCell;
use std::ffi::CStr;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use snowflake_core::fleet::registry::{
    Fleet, Reading, RecordChange, Store, Swap, SwapAnswer, Wanted, WantedNumbers, WantedTags,
};
use snowflake_core::fleet::tag::Tag;

use crate::FORMAT;
use crate::config::Config;
use crate::connection::{self, PostgresConnection, Waiter};
use crate::conninfo::Options;
use crate::error::{Diagnostic, RegistryError};
use crate::libpq::Rows;
use crate::reading;
use crate::record::{FleetRow, NumberRow, TagRow};
use crate::report::beginning;
use crate::step::RegistryStep;
pub use operator::REGISTRY_SQL;
use record::{NO_DATACENTER, NumberName, RegistryRow, SwapRow, TagName, Writer, dropped};

/// How often a transaction is tried that PostgreSQL rolls back for another one's sake.
const TRIES: u32 = 5;

const READ: &CStr = c"SELECT kind, record FROM snowflake_registry.read($1, $2, $3, $4, $5)";

const SWAP: &CStr =
    c"SELECT pg_catalog.row_to_json(s) FROM snowflake_registry.swap($1, $2, $3, $4, $5, $6, $7, $8, $9) s";

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
                answer => return answer.map_err(|error| self.explain(error)),
            }
        }
    }

    fn connect(&self) -> Result<PostgresConnection<W>, RegistryError> {
        let options = Options::parse(&self.config.conninfo).map_err(RegistryError::Connect)?;
        let (options, note) = options.with_defaults().without_ignored_passfile();
        PostgresConnection::open(&options, self.config.timeout, &self.waiter).map_err(|error| match (error, note) {
            (RegistryError::Connect(text), Some(note)) => {
                RegistryError::Connect(format!("{}. {note}", text.trim_end_matches('.')))
            }
            (error, _) => error,
        })
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
        let mut connection = kept.map_or_else(|| self.connect(), Ok)?;
        let mut answer = connection.run(sql, values, step, timeout);
        // The registry may have been restarted since the last call. To read twice does no harm.
        if is_kept && !step.may_be_done() && matches!(answer, Err(RegistryError::Lost { .. })) {
            drop(connection);
            connection = self.connect()?;
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
    fn explain(&self, error: RegistryError) -> RegistryError {
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
            "42501" if self.config.operator => RegistryError::NoOperator(diagnostic.message),
            "42501" => RegistryError::NoRights(diagnostic.message),
            // A wait for a lock, which ends before that for the answer.
            "55P03" => RegistryError::Locked(diagnostic.detail),
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

    fn patience_ms(&self) -> Option<String> {
        text(self.patience().as_millis().max(1))
    }

    /// Runs a statement that changes something. Its answer has to be complete, and without a
    /// notice.
    fn change(&self, sql: &CStr, values: &[Option<String>], step: RegistryStep) -> Result<Rows, RegistryError> {
        let answer = self.run(sql, values, step)?;
        match answer.notices.into_iter().find(may_be_of_a_commit) {
            Some(notice) => {
                self.connection.replace(None);
                Err(RegistryError::WaitCancelled(Box::new(notice)))
            }
            None => Ok(answer.rows),
        }
    }

    /// Returns what an answer means. A connection that answers nonsense is given up.
    fn understood<T>(&self, understood: Result<T, RegistryError>) -> Result<T, RegistryError> {
        understood.inspect_err(|_| drop(self.connection.take()))
    }
}

impl<W: Waiter> Store for Postgres<W> {
    type Error = RegistryError;

    fn read(&self, wanted: &Wanted) -> Result<Reading, RegistryError> {
        let datacenter = |datacenter: Option<i64>| text(datacenter.unwrap_or(NO_DATACENTER));
        let (numbers, datacenter, worker) = match wanted.numbers {
            WantedNumbers::None => ("none", None, None),
            WantedNumbers::One(number) => ("one", datacenter(number.datacenter), text(number.worker)),
            WantedNumbers::Of(of) => ("datacenter", datacenter(of), None),
            WantedNumbers::All => ("all", None, None),
        };
        let tags = match &wanted.tags {
            WantedTags::None => text("{}"),
            WantedTags::Named(tags) => Some(array(tags)),
            WantedTags::All => None,
        };
        let values = [text(&self.config.fleet), text(numbers), datacenter, worker, tags];
        let answer = self.run(READ, &values, RegistryStep::Read)?;
        self.understood(reading(&answer.rows).and_then(reading::checked))
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, RegistryError> {
        let Config { fleet, member, secret, operator, .. } = &self.config;
        let writer = if *operator { Writer::Operator } else { Writer::Server(member, *secret) };
        let (mut new_fleet, mut numbers, mut tags) = (None, Vec::new(), Vec::new());
        for change in &swap.changes {
            match change {
                RecordChange::Fleet(fleet) => new_fleet = Some(Value::Object(crate::record::fleet(fleet))),
                RecordChange::Number { number, was, record } => numbers.push(writer.number(*number, *was, record)),
                RecordChange::DropNumber { number, was } => numbers.push(dropped(*number, *was)),
                RecordChange::Tag { tag, was, record } => tags.push(writer.tag(*tag, *was, record.as_ref())),
            }
        }
        let records = |records: Vec<Value>| (!records.is_empty()).then(|| Value::from(records).to_string());
        let values = [
            text(fleet),
            self.patience_ms(),
            text(swap.fleet.cast_signed()),
            text(swap.incarnation.store.cast_signed()),
            text(swap.incarnation.timeline.cast_signed()),
            text(operator),
            new_fleet.map(|fleet| fleet.to_string()),
            records(numbers),
            records(tags),
        ];
        let rows = self.change(SWAP, &values, RegistryStep::of(swap))?;
        let answer: SwapRow = self.understood(only(&rows))?;
        Ok(if answer.done { SwapAnswer::Done(answer.incarnation()) } else { SwapAnswer::Refused })
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

/// Returns tags as an array of texts.
fn array(tags: &[Tag]) -> String {
    let quoted = |tag: &Tag| format!("\"{}\"", tag.as_str().replace('\\', "\\\\").replace('"', "\\\""));
    format!("{{{}}}", tags.iter().map(quoted).collect::<Vec<_>>().join(","))
}

fn garbage(what: impl Into<String>) -> RegistryError {
    RegistryError::Garbage(what.into())
}

/// Understands a value that is JSON.
fn parsed<T: DeserializeOwned>(value: Option<&str>) -> Result<T, RegistryError> {
    let value = value.ok_or_else(|| garbage("value NULL"))?;
    serde_json::from_str(value).map_err(|error| garbage(beginning(&error.to_string())))
}

/// Understands an answer of one value in each row, which is JSON.
fn each<T: DeserializeOwned>(rows: &Rows) -> Result<Vec<T>, RegistryError> {
    let value = |row: Vec<Option<&str>>| match row[..] {
        [value] => parsed(value),
        _ => Err(garbage(format!("{} columns instead of 1", row.len()))),
    };
    rows.iter().map(value).collect()
}

/// Understands an answer of one value, which is JSON.
fn only<T: DeserializeOwned>(rows: &Rows) -> Result<T, RegistryError> {
    let [answer] = <[T; 1]>::try_from(each(rows)?).map_err(|rows| garbage(format!("{} rows", rows.len())))?;
    Ok(answer)
}

/// Understands the answer of `read`: what the registry is, the fleet's record, and the others.
fn reading(rows: &Rows) -> Result<Reading, RegistryError> {
    #[derive(Deserialize)]
    struct VersionRow {
        version: i64,
    }
    let mut rows = rows.iter().map(|row| match row[..] {
        [Some(kind), record] => Ok((kind, record)),
        _ => Err(garbage(format!("a row of {} columns", row.len()))),
    });
    let mut first = |expected| match rows.next().transpose()? {
        Some((kind, record)) if kind == expected => Ok(record),
        _ => Err(garbage(format!("no row of kind {expected}"))),
    };
    let registry = first("registry")?;
    let VersionRow { version } = parsed(registry)?;
    if version != FORMAT {
        return Err(RegistryError::OtherVersion(Some(version)));
    }
    let registry: RegistryRow = parsed(registry)?;
    let fleet: FleetRow = parsed(first("fleet")?)?;
    let mut reading = Reading {
        fleet: Fleet::from(fleet),
        numbers: Default::default(),
        tags: Default::default(),
        incarnation: registry.incarnation(),
        now_ms: registry.now_ms,
    };
    for row in rows {
        match row? {
            ("number", record) => {
                let number = parsed::<NumberName>(record)?.key();
                reading.numbers.insert(number, parsed::<NumberRow>(record)?.into());
            }
            ("tag", record) => {
                let TagName { tag } = parsed(record)?;
                let tag = Tag::new(&tag).map_err(|_| garbage(format!("tag {}", beginning(&tag))))?;
                reading.tags.insert(tag, parsed::<TagRow>(record)?.into());
            }
            (kind, _) => return Err(garbage(format!("a row of kind {}", beginning(kind)))),
        }
    }
    Ok(reading)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use snowflake_core::fleet::registry::{Incarnation, NumberKey, NumberRecord, TagRecord};

    /// The least and the greatest numbers, and what no number is.
    const ODD: [&str; 15] = [
        "-9223372036854775808",
        "-1",
        "0",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "1e9",
        "0.5",
        "\"5\"",
        "\"x\"",
        "\"-9223372036854775809\"",
        "\"9223372036854775808\"",
        "null",
        "[]",
        "99999999999999999999999999999999999999999",
    ];

    const REGISTRY: &str = r#"{"version": 2, "store": 7, "timeline": 3, "now_ms": 1700000000000}"#;

    const FLEET: &str = r#"{"name": "default", "uuid": "1b4e28ba-2fa1-41d2-883f-0016d3cca427", "layout": 5,
        "backup": true, "first_worker": 0, "last_worker": 9, "loses_nothing": false, "closed": false,
        "longest_ms": 600000, "skew_ms": 60000, "lease_ms": 300000, "clock_skew_ms": 1000, "store": 7,
        "timeline": 3, "generation": 1, "horizon_ms": 5, "freeze_ms": 6, "version": 8}"#;

    const NUMBER: &str = r#"{"datacenter": -1, "worker": 4, "holder": "1b4e28ba-2fa1-41d2-883f-0016d3cca427",
        "nonce": -1, "count": 2, "server": 3, "from_ms": 1700000000000, "until_ms": 1700000001000, "generation": 1,
        "renewed_ms": 5, "offset_ms": -6}"#;

    const TAG: &str = r#"{"tag": "orders", "id": 1, "next_value": 100, "least_step": 10, "greatest_step": 1000,
        "jumps": false, "nonce": 50, "generation": 1, "written_ms": 7, "returnable_from": 9223372036854775807}"#;

    fn rows(values: &[[Option<&str>; 2]]) -> Rows {
        let mut rows = Rows::default();
        for row in values {
            rows.push(row.iter().map(|value| value.map(str::as_bytes))).unwrap();
        }
        rows
    }

    const KINDS: [&str; 4] = ["registry", "fleet", "number", "tag"];

    fn read(records: [&str; 4]) -> Result<Reading, RegistryError> {
        let values: Vec<_> = KINDS.into_iter().zip(records).map(|(kind, record)| [Some(kind), Some(record)]).collect();
        reading(&rows(&values)).and_then(reading::checked)
    }

    const RECORDS: [&str; 4] = [REGISTRY, FLEET, NUMBER, TAG];

    #[test]
    fn a_reading_is_what_the_registry_shows() {
        let read = read(RECORDS).unwrap();
        let now = Incarnation { store: 7, timeline: 3, counts: [0; 2] };
        assert_eq!((read.incarnation, read.now_ms), (now, 1_700_000_000_000));
        let Fleet { uuid, layout, range, incarnation, version, .. } = read.fleet;
        assert_eq!((uuid, layout), (0x1b4e_28ba_2fa1_41d2_883f_0016_d3cc_a427, Some((5, true))));
        assert_eq!((range, incarnation, version), (Some((0, 9)), now, 8));
        let number = read.numbers[&NumberKey::new(None, 4)];
        assert_eq!((number.nonce, number.offset_ms, number.holder), (u64::MAX, -6, uuid));
        let tag = read.tags[&Tag::new("orders").unwrap()];
        assert_eq!((tag.next, tag.steps, tag.jumps, tag.returnable), (100, (10, 1000), false, i64::MAX));
    }

    #[test]
    fn no_number_in_a_reading_is_beyond_its_range_or_panics() {
        let mut refused = 0;
        for at in 0..RECORDS.len() {
            let record: Value = serde_json::from_str(RECORDS[at]).unwrap();
            for name in record.as_object().unwrap().keys() {
                for odd in ODD {
                    let with = format!("{{\"{name}\": {odd},{}", &without(&record, name)[1..]);
                    let mut records = RECORDS;
                    records[at] = &with;
                    match read(records) {
                        Ok(read) => {
                            let Fleet { longest_ms, skew_ms, lease_ms, clock_skew_ms, .. } = read.fleet;
                            let all = [read.now_ms, longest_ms, skew_ms, lease_ms, clock_skew_ms];
                            assert!(all.iter().all(|ms| (0..1 << 50).contains(ms)), "{name}: {odd}");
                            assert!(read.tags.values().all(|tag| tag.steps.0 > 0 && tag.steps.1 > 0), "{name}: {odd}");
                        }
                        Err(_) => refused += 1,
                    }
                    // What is left out is not taken for 0.
                    let left_out = without(&record, name);
                    records[at] = &left_out;
                    let may_be_null =
                        ["layout", "backup", "first_worker", "last_worker", "jumps", "name", "returnable_from"];
                    assert_eq!(read(records).is_ok(), may_be_null.contains(&name.as_str()), "{name}");
                }
            }
        }
        assert!(refused > 200, "{refused}");
        let with_skew = FLEET.replace("\"skew_ms\": 60000", "\"skew_ms\": -1");
        let error = read([REGISTRY, &with_skew, NUMBER, TAG]);
        assert!(matches!(error, Err(RegistryError::OutOfRange { name: "skew_ms", value: -1, .. })), "{error:?}");
        let late = REGISTRY.replace("1700000000000", "9223372036854775807");
        let error = read([&late, FLEET, NUMBER, TAG]);
        assert!(matches!(error, Err(RegistryError::OutOfRange { name: "now_ms", value: i64::MAX, .. })), "{error:?}");
    }

    fn without(record: &Value, name: &str) -> String {
        let mut record = record.clone();
        record.as_object_mut().unwrap().remove(name);
        record.to_string()
    }

    #[test]
    fn an_answer_that_is_no_reading_is_not_taken_for_one() {
        let (registry, fleet) = ([Some("registry"), Some(REGISTRY)], [Some("fleet"), Some(FLEET)]);
        assert!(reading(&rows(&[registry, fleet])).is_ok());
        for wrong in [
            &[][..],
            &[registry],
            &[fleet, registry],
            &[fleet],
            &[[Some("registry"), None], fleet],
            &[[None, Some(REGISTRY)], fleet],
            &[registry, fleet, [Some("other"), Some(NUMBER)]],
            &[registry, fleet, [Some("tag"), Some(NUMBER)]],
            &[registry, fleet, [Some("number"), Some("{")]],
            &[registry, fleet, [Some("number"), None]],
            &[registry, fleet, registry],
        ] {
            assert!(matches!(reading(&rows(wrong)), Err(RegistryError::Garbage(_))), "{wrong:?}");
        }
        let mut narrow = Rows::default();
        narrow.push([Some(&b"registry"[..])].into_iter()).unwrap();
        assert!(matches!(reading(&narrow), Err(RegistryError::Garbage(_))));
        let other = REGISTRY.replace("\"version\": 2", "\"version\": 1");
        assert_eq!(
            reading(&rows(&[[Some("registry"), Some(&other)], fleet])),
            Err(RegistryError::OtherVersion(Some(1)))
        );
    }

    #[test]
    fn an_answer_to_a_swap_has_one_row() {
        let answer = |texts: &[&str]| {
            let mut rows = Rows::default();
            texts.iter().for_each(|text| rows.push([Some(text.as_bytes())].into_iter()).unwrap());
            only::<SwapRow>(&rows).map(|row| (row.done, row.incarnation().store))
        };
        let done = r#"{"done": true, "store": -1, "timeline": 3}"#;
        assert_eq!(answer(&[done]), Ok((true, u64::MAX)));
        for wrong in [&[][..], &[done, done], &[r#"{"done": null, "store": 1, "timeline": 3}"#], &[r#"{"done": true}"#]]
        {
            assert!(matches!(answer(wrong), Err(RegistryError::Garbage(_))), "{wrong:?}");
        }
    }

    /// What is written reads as it was.
    #[test]
    fn a_change_names_what_its_writer_writes() {
        let number = NumberKey::new(Some(3), 4);
        let record = NumberRecord {
            holder: 7,
            nonce: u64::MAX,
            count: 2,
            server: 1 << 63,
            from_ms: -5,
            until_ms: 9,
            generation: 1,
            renewed_ms: 5,
            offset_ms: -6,
        };
        let name = crate::MemberName { host: "a \"b\"".to_owned(), ..crate::MemberName::default() };
        let written = Writer::Server(&name, 5).number(number, Some(6), &record);
        let text = written.to_string();
        assert_eq!(parsed::<NumberName>(Some(&text)).unwrap().key(), number);
        assert_eq!(NumberRecord::from(parsed::<NumberRow>(Some(&text)).unwrap()), record);
        let secret = "00000000-0000-0000-0000-000000000005";
        assert_eq!(
            (&written["was"], &written["secret"], &written["host"]),
            (&json!("6"), &json!(secret), &json!("a \"b\""))
        );
        // An operator cuts a lease, whose holder stays known.
        let cut = Writer::Operator.number(number, Some(6), &record);
        assert!(cut.get("host").is_none() && cut.get("secret").is_none(), "{cut}");
        let kept = Writer::Operator.number(number, None, &NumberRecord { server: 0, ..record });
        assert_eq!((&kept["was"], &kept["secret"], &kept["host"]), (&Value::Null, &Value::Null, &json!("")));

        let tag = Tag::new("we\"ird\\{}").unwrap();
        let record = TagRecord {
            id: 1 << 63,
            next: -5,
            steps: (10, 1000),
            jumps: true,
            nonce: 50,
            generation: 1,
            written_ms: 7,
            returnable: i64::MIN,
        };
        let written = Writer::Server(&name, 5).tag(tag, Some(6), Some(&record));
        assert_eq!(TagRecord::from(parsed::<TagRow>(Some(&written.to_string())).unwrap()), record);
        assert_eq!((&written["was"], &written["secret"]), (&json!("6"), &json!(secret)));
        assert_eq!(Writer::Operator.tag(tag, None, Some(&record))["secret"], Value::Null);
        let gone = Writer::Operator.tag(tag, Some(6), None);
        assert_eq!((&gone["tag"], &gone["delete"], &gone["was"]), (&json!(tag.as_str()), &json!(true), &json!("6")));
        assert_eq!(array(&[tag, Tag::new("NULL").unwrap()]), r#"{"we\"ird\\{}","NULL"}"#);
    }
}
