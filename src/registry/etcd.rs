//! The registry in etcd: one transaction to read, and one to compare and swap.
//!
//! Records are plain keys below a prefix, one JSON object each (`record.rs`). They never
//! belong to a lease of etcd's, which would delete them, and with them the end of the last lease of
//! a number. Each transaction is a call of etcd's JSON gateway (`/v3/kv/txn`, from 3.4 on), which
//! answers only with a majority of the members.
//!
//! ```text
//! /snowflake_id/FLEET/fleet                        the fleet's record
//! /snowflake_id/FLEET/numbers/DATACENTER/NUMBER    a number's record; - without a datacenter
//! /snowflake_id/FLEET/history/DATACENTER/NUMBER/FROM_MS    each lease, from its begin on
//! /snowflake_id/FLEET/tags/TAG                     a tag's record
//! ```
//!
//! **A swap compares whole records**: the fleet's, and each one that is replaced, with the text
//! that was read. Each change has another random number in it. A key's `mod_revision` comes again
//! with other contents when a snapshot is restored, so that it could not tell a lost record from
//! the one that was read. The text also shows an operator's edit by hand, which leaves the random
//! number as it is.
//!
//! A transaction cannot compare the incarnation (`etcd/gateway.rs`), so a swap also reads it
//! afterwards: the core takes a swap that shows another one for none.
//!
//! **etcd checks nothing else.** It knows no rule of the protocol. A client that may write the keys
//! may write anything, and what a client says of itself is believed.
//!
//! | question | file, in `etcd/` |
//! |---|---|
//! | Which members are there, and what can the setting say? | `address.rs` |
//! | What if a member is slow, silent or gone? | `http.rs` |
//! | Who logs in, what do errors mean, which incarnation and which time is it? | `gateway.rs` |
//! | How long may an answer be? | `answer.rs` |
//! | Under which key is a record, and how is it written? | `keys.rs`, `record.rs` |
//! | What do only operators do? | `operator.rs` |

mod address;
mod answer;
mod gateway;
mod http;
mod keys;
mod operator;
mod record;

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::Value;
use snowflake_core::fleet::registry::{NumberRecord, Reading, RecordChange, Store, Swap, SwapAnswer, Wanted};

pub(crate) use address::{Address, SCHEME};
use gateway::Gateway;
use keys::{Keys, delete, is_as_read, one, put};

use crate::config::{Config, MemberName};
use crate::connection::Waiter;
use crate::error::RegistryError;
use crate::reading;
use crate::step::RegistryStep;

/// How many operations a transaction can have, unless etcd is told otherwise (`--max-txn-ops`). As
/// many comparisons do not count with them.
const MOST_OPERATIONS: usize = 128;

/// Records as they stand in etcd, by their keys.
type Records = BTreeMap<String, String>;

/// A registry in etcd. It connects when it is used, and anew after an error.
pub struct Etcd<W: Waiter> {
    gateway: Gateway<W>,
    keys: Keys,
    /// What was read last, and written since.
    known: RefCell<Records>,
}

/// What a transaction compares and does, and the records that it leaves; `None` for one that is
/// deleted.
#[derive(Debug, Default)]
struct Prepared {
    compare: Vec<Value>,
    operations: Vec<Value>,
    records: Vec<(String, Option<String>)>,
}

impl<W: Waiter> Etcd<W> {
    /// Makes a registry that is not connected yet.
    pub fn new(config: Config, waiter: W) -> Self {
        // If the address is wrong, connecting says so.
        let prefix = Address::parse(&config.conninfo).map(|address| address.prefix).unwrap_or_default();
        let keys = Keys::new(prefix, &config.fleet);
        Self { gateway: Gateway::new(config, waiter), keys, known: RefCell::default() }
    }

    /// Reads records in one transaction, and remembers how they stand in etcd.
    fn read_ranges(&self, ranges: &[Value]) -> Result<Reading, RegistryError> {
        self.gateway.run(RegistryStep::Read, |session, deadline| {
            let called = session.transact(&[], ranges, deadline)?;
            let now_ms = called.now_ms()?;
            let incarnation = session.incarnation(deadline)?;
            let found = called.answer.found()?;
            let reading = self.keys.understood(&found, incarnation, now_ms)?;
            self.known.replace(found);
            reading::checked(reading)
        })
    }

    /// Returns what a swap compares and does. `None` if something is not as compared already, or is
    /// not known.
    fn prepared(&self, swap: &Swap) -> Option<Prepared> {
        let (known, fleet_key) = (self.known.borrow(), self.keys.fleet());
        let fleet_text = known.get(&fleet_key)?;
        let fleet = record::fleet(fleet_text, swap.incarnation).ok()?.ok()?;
        if fleet.version != swap.fleet || fleet.closed && !self.gateway.config.operator {
            return None;
        }
        let mut prepared = Prepared { compare: vec![is_as_read(&fleet_key, Some(fleet_text))], ..Prepared::default() };
        let mut history = Vec::new();
        for change in &swap.changes {
            let key = self.keys.changed(change);
            let old = known.get(&key).map(String::as_str);
            let was = match change {
                RecordChange::Number { was, .. } | RecordChange::Tag { was, .. } => Some(*was),
                RecordChange::DropNumber { was, .. } => Some(Some(*was)),
                RecordChange::Fleet(_) => None,
            };
            if let Some(was) = was {
                if old.map(record::nonce).transpose().ok()? != was {
                    return None;
                }
                prepared.compare.push(is_as_read(&key, old));
            }
            let new = match change {
                RecordChange::Fleet(fleet) => Some(record::fleet_text(old, fleet)),
                RecordChange::Number { number, record, .. } => {
                    let new = record::number_text(old, record, self.name_of(record).as_ref());
                    history.extend(self.keys.history(*number, old, record, &new));
                    Some(new)
                }
                RecordChange::DropNumber { number, .. } => {
                    history.extend(old.and_then(|old| self.keys.ended(*number, old)));
                    None
                }
                RecordChange::Tag { record, .. } => record.map(|record| record::tag_text(old, &record)),
            };
            prepared.operations.push(new.as_ref().map_or_else(|| delete(&key), |new| put(&key, new)));
            prepared.records.push((key, new));
        }
        // Only people read the history. An operator may cut more leases than it has room for here.
        prepared.operations.extend(history);
        prepared.operations.truncate(MOST_OPERATIONS);
        Some(prepared)
    }

    /// Returns the name under which operators see the holder of a number; `None` if that stays as
    /// it is.
    fn name_of(&self, record: &NumberRecord) -> Option<MemberName> {
        match (record.server, self.gateway.config.operator) {
            // An operator keeps the number.
            (0, true) => Some(MemberName::default()),
            (_, true) => None,
            (_, false) => Some(self.gateway.config.member.clone()),
        }
    }
}

impl<W: Waiter> Store for Etcd<W> {
    type Error = RegistryError;

    fn read(&self, wanted: &Wanted) -> Result<Reading, RegistryError> {
        self.read_ranges(&self.keys.wanted(wanted))
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, RegistryError> {
        if self.prepared(swap).is_none() {
            // Other records may have been read since those on which it was decided.
            let before = self.known.take();
            let keys = swap.changes.iter().map(|change| self.keys.changed(change)).chain([self.keys.fleet()]);
            self.read_ranges(&keys.map(|key| one(&key)).collect::<Vec<_>>())?;
            let has_changed = |(key, text): (&String, &String)| before.get(key).is_some_and(|was| was != text);
            if !before.contains_key(&self.keys.fleet()) || self.known.borrow().iter().any(has_changed) {
                return Ok(SwapAnswer::Refused);
            }
        }
        let Some(Prepared { compare, operations, records }) = self.prepared(swap) else {
            return Ok(SwapAnswer::Refused);
        };
        let answer = self.gateway.run(RegistryStep::of(swap), |session, deadline| {
            if session.transact(&compare, &operations, deadline)?.answer.succeeded {
                Ok(SwapAnswer::Done(session.incarnation(deadline)?))
            } else {
                Ok(SwapAnswer::Refused)
            }
        })?;
        if let SwapAnswer::Done(_) = answer {
            let mut known = self.known.borrow_mut();
            for (key, text) in records {
                match text {
                    Some(text) => known.insert(key, text),
                    None => known.remove(&key),
                };
            }
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::time::Duration;

    use snowflake_core::fleet::registry::{Fleet, Incarnation, MOST_CHANGES, NumberKey, TagRecord};
    use snowflake_core::fleet::tag::Tag;

    use super::*;
    use crate::connection::{Interest, Stopped};
    use keys::shown;

    /// Nothing is sent here.
    struct NoConnection;

    impl Waiter for NoConnection {
        fn wait(&self, _: BorrowedFd<'_>, _: Interest, _: Duration) -> Result<bool, Stopped> {
            Err(Stopped)
        }
    }

    const NOW: Incarnation = Incarnation { store: 7, timeline: 0, counts: [2, 5] };

    const FLEET: &str = r#"{"uuid": "00000000-0000-0000-0000-000000000001", "note": "x", "version": "9"}"#;

    const SEVEN: &str = r#"{"cluster_name":"","count":"1","from_ms":10,"generation":1,"holder":"00000000-0000-0000-0000-0000000000aa","host":"a","nonce":"3","offset_ms":0,"port":1,"renewed_ms":0,"server":"5","until_ms":20,"version":"1"}"#;

    const ORDERS: &str = r#"{"next_value": 1, "least_step": 5, "greatest_step": 50, "jumps": false, "generation": 1,
        "written_ms": 0, "returnable_from": 9, "id": "1", "nonce": "4", "description": "y"}"#;

    /// Makes a registry that has read these records.
    fn etcd(operator: bool, known: &[(&str, &str)]) -> Etcd<NoConnection> {
        let member =
            MemberName { host: "b".to_owned(), port: 2, cluster_name: "c".to_owned(), version: "2".to_owned() };
        let (conninfo, fleet, timeout) = ("etcd:http://a:1".to_owned(), "f".to_owned(), Duration::from_secs(1));
        let etcd = Etcd::new(Config { conninfo, fleet, member, secret: 0, operator, timeout }, NoConnection);
        let known = known.iter().map(|(key, text)| (format!("/snowflake_id/f/{key}"), (*text).to_owned()));
        etcd.known.replace(known.collect());
        etcd
    }

    fn server() -> Etcd<NoConnection> {
        etcd(false, &[("fleet", FLEET), ("numbers/-/7", SEVEN), ("tags/orders", ORDERS)])
    }

    fn swap(changes: Vec<RecordChange>) -> Swap {
        Swap { fleet: 9, incarnation: NOW, changes }
    }

    fn number(was: Option<u64>, record: NumberRecord) -> RecordChange {
        RecordChange::Number { number: NumberKey::new(None, 7), was, record }
    }

    fn tag(was: Option<u64>, record: Option<TagRecord>) -> RecordChange {
        RecordChange::Tag { tag: Tag::new("orders").unwrap(), was, record }
    }

    fn renewed() -> NumberRecord {
        NumberRecord { until_ms: 30, nonce: 8, count: 2, ..record::number(SEVEN).unwrap() }
    }

    /// Returns what is compared, and what is done.
    #[track_caller]
    fn shown_of(etcd: &Etcd<NoConnection>, changes: Vec<RecordChange>) -> (Vec<String>, Vec<String>) {
        let Prepared { compare, operations, .. } = etcd.prepared(&swap(changes)).expect("it is as compared");
        let short = |part: &Value| shown(part).replace("/snowflake_id/f/", "");
        (compare.iter().map(short).collect(), operations.iter().map(short).collect())
    }

    fn equal(key: &str, text: &str) -> String {
        format!("key {key}, result EQUAL, target VALUE, value {text}")
    }

    fn absent(key: &str) -> String {
        format!("key {key}, result EQUAL, target VERSION, version 0")
    }

    fn put(key: &str, text: &str) -> String {
        format!("request_put key {key}, value {text}")
    }

    fn delete(key: &str) -> String {
        format!("request_delete_range key {key}")
    }

    #[test]
    fn a_swap_compares_the_whole_text_of_each_record_that_it_replaces() {
        let fleet = Fleet { version: 10, ..record::fleet(FLEET, NOW).unwrap().unwrap() };
        let orders = TagRecord { next: 6, nonce: 5, ..record::tag(ORDERS).unwrap() };
        let (compare, operations) = shown_of(
            &server(),
            vec![RecordChange::Fleet(fleet), number(Some(3), renewed()), tag(Some(4), Some(orders))],
        );
        assert_eq!(compare, [equal("fleet", FLEET), equal("numbers/-/7", SEVEN), equal("tags/orders", ORDERS)]);
        let seven = [
            (r#""host":"a""#, r#""host":"b""#),
            (r#""port":1"#, r#""port":2"#),
            (r#""cluster_name":"""#, r#""cluster_name":"c""#),
            (r#""version":"1""#, r#""version":"2""#),
            (r#""until_ms":20"#, r#""until_ms":30"#),
            (r#""count":"1""#, r#""count":"2""#),
            (r#""nonce":"3""#, r#""nonce":"8""#),
        ];
        let seven = seven.iter().fold(SEVEN.to_owned(), |text, (old, new)| text.replace(old, new));
        let with = |text: String, more: &str| {
            let mut record: Value = serde_json::from_str(&text).unwrap();
            record.as_object_mut().unwrap().extend(serde_json::from_str::<crate::record::Fields>(more).unwrap());
            record.to_string()
        };
        assert_eq!(
            operations,
            [
                put("fleet", &with(record::fleet_text(None, &fleet), r#"{"note": "x"}"#)),
                put("numbers/-/7", &seven),
                put("tags/orders", &with(record::tag_text(None, &orders), r#"{"description": "y"}"#)),
            ]
        );
        // Nothing but the fleet's record is compared where nothing else is replaced.
        assert_eq!(shown_of(&server(), vec![]), (vec![equal("fleet", FLEET)], vec![]));
    }

    #[test]
    fn what_is_not_to_exist_must_not() {
        let etcd = etcd(true, &[("fleet", FLEET)]);
        let (compare, operations) = shown_of(&etcd, vec![tag(None, record::tag(ORDERS).ok()), number(None, renewed())]);
        assert_eq!(compare, [equal("fleet", FLEET), absent("tags/orders"), absent("numbers/-/7")]);
        assert_eq!(operations.len(), 3, "a tag, a number and the begin of its lease: {operations:?}");
        let (compare, operations) = shown_of(&server(), vec![tag(Some(4), None)]);
        assert_eq!(compare, [equal("fleet", FLEET), equal("tags/orders", ORDERS)]);
        assert_eq!(operations, [delete("tags/orders")]);
    }

    #[test]
    fn a_swap_of_what_is_not_known_or_has_changed_is_not_sent() {
        let orders = record::tag(ORDERS).ok();
        for changes in [
            vec![number(None, renewed())],
            vec![number(Some(4), renewed())],
            vec![tag(None, orders)],
            vec![tag(Some(3), orders)],
            vec![number(Some(3), renewed()), tag(Some(3), None)],
        ] {
            assert!(server().prepared(&swap(changes.clone())).is_none(), "{changes:?}");
        }
        assert!(server().prepared(&Swap { fleet: 8, ..swap(vec![]) }).is_none());
        let bare = etcd(false, &[("fleet", FLEET)]);
        assert!(bare.prepared(&swap(vec![number(Some(3), renewed())])).is_none());
        assert!(etcd(true, &[]).prepared(&swap(vec![])).is_none());
    }

    #[test]
    fn only_an_operator_changes_a_fleet_that_is_closed() {
        let closed = [
            ("fleet", r#"{"uuid": "00000000-0000-0000-0000-000000000001", "version": "9", "closed": true}"#),
            ("numbers/-/7", SEVEN),
        ];
        for changes in [vec![], vec![number(Some(3), renewed())]] {
            assert!(etcd(false, &closed).prepared(&swap(changes.clone())).is_none());
            assert!(etcd(true, &closed).prepared(&swap(changes)).is_some());
        }
    }

    #[test]
    fn the_history_has_each_lease_from_its_begin_on() {
        let operations = |etcd: &Etcd<NoConnection>, record| {
            let (_, operations) = shown_of(etcd, vec![number(Some(3), record)]);
            let short = |operation: &String| operation.split(", value").next().unwrap_or_default().to_owned();
            operations[1..].iter().map(short).collect::<Vec<_>>()
        };
        let put = |from_ms: i64| format!("request_put key history/-/7/{from_ms}");
        assert!(operations(&server(), renewed()).is_empty());
        let follows = NumberRecord { holder: 0xbb, from_ms: 20, ..renewed() };
        assert_eq!(operations(&server(), follows), [put(20), put(10)]);
        let (_, all) = shown_of(&server(), vec![number(Some(3), follows)]);
        assert!(all[2].ends_with(SEVEN), "the end of the lease before: {all:?}");
        // One transaction cannot put a key twice.
        assert_eq!(operations(&server(), NumberRecord { from_ms: 10, ..follows }), [put(10)]);
        // An operator cuts a lease, whose holder keeps its nonce.
        let operator = etcd(true, &[("fleet", FLEET), ("numbers/-/7", SEVEN)]);
        let cut = NumberRecord { until_ms: 15, nonce: 3, ..renewed() };
        assert!(operations(&operator, cut).is_empty());
        let moved = NumberRecord { from_ms: 5, until_ms: 5, ..cut };
        assert_eq!(operations(&operator, moved), [put(5), delete("history/-/7/10")]);
    }

    #[test]
    fn an_operator_keeps_the_name_of_a_holder_and_has_none() {
        let operator = etcd(true, &[("fleet", FLEET), ("numbers/-/7", SEVEN)]);
        let name = |record| {
            let prepared = operator.prepared(&swap(vec![number(Some(3), record)])).unwrap();
            record::member(prepared.records[0].1.as_ref().unwrap()).unwrap()
        };
        assert_eq!(name(NumberRecord { until_ms: 15, ..renewed() }), record::member(SEVEN).unwrap());
        assert_eq!(name(NumberRecord { server: 0, holder: 0xbb, from_ms: 20, ..renewed() }), MemberName::default());
    }

    #[test]
    fn a_swap_has_no_more_operations_than_etcd_takes() {
        let change = |worker, record| RecordChange::Number { number: NumberKey::new(None, worker), was: None, record };
        let changes: Vec<_> = (0..MOST_CHANGES as i64).map(|worker| change(worker, renewed())).collect();
        let (compare, operations) = shown_of(&etcd(true, &[("fleet", FLEET)]), changes);
        assert_eq!((compare.len(), operations.len()), (1 + MOST_CHANGES, MOST_OPERATIONS));
        assert!(operations[..MOST_CHANGES].iter().all(|put| put.contains("key numbers/-/")), "{operations:?}");
    }
}
