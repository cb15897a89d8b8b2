//! What a change of the registry changes: each value of each record, old and new.
//!
//! A [`Noting`] is a store that notes what is written through it. A [`Rehearsal`] is a store in
//! memory, which begins with what was read from the real one. So a dry run is the same turn as the
//! real one, and shows what that would write.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;

use serde_json::{Value as Json, json};
use snowflake_core::fleet::registry::{
    DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, Fleet, NumberKey, NumberRecord, Reading, RecordChange, Store, Swap, SwapAnswer,
    TagRecord, Wanted,
};
use snowflake_core::fleet::segment::END;
use snowflake_core::fleet::tag::Tag;
use snowflake_core::id::layout::Layout;
use snowflake_registry::record::{self, Fields};

use crate::instant::Shown;
use crate::span::Span;
use crate::words;

/// Fields that no change shows: another random number with each one.
const RANDOM: [&str; 4] = ["version", "nonce", "id", "holder"];

/// Writes a value of a record for people.
fn shown(field: &str, value: &Json) -> String {
    let whole = value.as_i64().or_else(|| value.as_str()?.parse().ok());
    match (field, whole) {
        (_, _) if value.is_null() => "none".to_owned(),
        ("layout", Some(fingerprint)) => layout_name(fingerprint),
        ("server", Some(0)) => "reserved".to_owned(),
        ("returnable_from", Some(END)) | ("longest_ms" | "skew_ms", Some(0)) => "none".to_owned(),
        ("lease_ms", Some(0)) => format!("default ({})", Span(DEFAULT_LEASE_MS)),
        ("clock_skew_ms", Some(0)) => format!("default ({})", Span(DEFAULT_SKEW_MS)),
        ("longest_ms" | "skew_ms" | "lease_ms" | "clock_skew_ms" | "offset_ms", Some(ms)) => Span(ms).to_string(),
        ("horizon_ms" | "freeze_ms", Some(i64::MIN)) => "none".to_owned(),
        (_, Some(ms)) if field.ends_with("_ms") => Shown(ms).to_string(),
        _ => match value {
            Json::Bool(is_set) => if *is_set { "yes" } else { "no" }.to_owned(),
            Json::String(text) => text.clone(),
            value => value.to_string(),
        },
    }
}

/// Returns the name of a built-in layout, or the fingerprint of another one.
pub fn layout_name(fingerprint: i64) -> String {
    Layout::built_in_with(fingerprint).map_or_else(|| format!("fingerprint {fingerprint:016x}"), |name| name.to_owned())
}

/// One value that is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Of which record.
    pub record: String,
    /// Which value.
    pub field: String,
    /// Before; `None` if the record was not there.
    pub old: Option<Json>,
    /// Afterwards; `None` if the record is not there any more.
    pub new: Option<Json>,
}

impl Changed {
    /// Writes it for programs.
    pub fn json(&self) -> Json {
        let Self { record, field, old, new } = self;
        json!({"record": record, "field": field, "old": old, "new": new})
    }
}

/// Writes changes for people, each value in a line.
pub fn lines(changes: &[Changed]) -> Vec<String> {
    let line = |Changed { record, field, old, new }: &Changed| {
        let [was, is] = [old, new].map(|value| value.as_ref().map_or("none".to_owned(), |value| shown(field, value)));
        // A record that is made or deleted also has values that are none, and two instants may lie
        // within a second.
        (was != is).then(|| format!("{record} {field}: {was} -> {is}"))
    };
    changes.iter().filter_map(line).collect()
}

/// Returns what differs between two states of a record.
pub fn differences(record: &str, old: Option<Fields>, new: Option<Fields>) -> Vec<Changed> {
    let value = |fields: &Option<Fields>, field: &str| fields.as_ref().and_then(|fields| fields.get(field).cloned());
    let fields = old.as_ref().or(new.as_ref()).into_iter().flat_map(Fields::keys);
    fields
        .filter(|field| !RANDOM.contains(&field.as_str()))
        .map(|field| Changed {
            record: record.to_owned(),
            field: field.clone(),
            old: value(&old, field),
            new: value(&new, field),
        })
        .filter(|changed| changed.old != changed.new)
        .collect()
}

/// The records that were written, as they were before the first change, and as they are now.
#[derive(Debug, Default)]
struct Written {
    fleet: Option<(Fleet, Fleet)>,
    numbers: BTreeMap<NumberKey, (Option<NumberRecord>, Option<NumberRecord>)>,
    tags: BTreeMap<Tag, (Option<TagRecord>, Option<TagRecord>)>,
}

impl Written {
    /// Notes a swap after a reading. `is_done` says whether it is known to be done.
    fn note(&mut self, read: &Reading, changes: &[RecordChange], is_done: bool) {
        for change in changes {
            match change {
                RecordChange::Fleet(new) => {
                    let (_, now) = self.fleet.get_or_insert((read.fleet, read.fleet));
                    *now = if is_done { *new } else { *now };
                }
                RecordChange::Number { number, .. } | RecordChange::DropNumber { number, .. } => {
                    let old = read.numbers.get(number).copied();
                    let (_, now) = self.numbers.entry(*number).or_insert((old, old));
                    let new = if let RecordChange::Number { record, .. } = change { Some(*record) } else { None };
                    *now = if is_done { new } else { *now };
                }
                RecordChange::Tag { tag, record, .. } => {
                    let old = read.tags.get(tag).copied();
                    let (_, now) = self.tags.entry(*tag).or_insert((old, old));
                    *now = if is_done { *record } else { *now };
                }
            }
        }
    }

    /// Looks at what a swap has done that was not answered.
    fn look(&mut self, read: &Reading) {
        self.fleet.iter_mut().for_each(|(_, now)| *now = read.fleet);
        self.numbers.iter_mut().for_each(|(number, (_, now))| *now = read.numbers.get(number).copied());
        self.tags.iter_mut().for_each(|(tag, (_, now))| *now = read.tags.get(tag).copied());
    }
}

/// A store that notes what is written through it.
pub struct Noting<'a, S: ?Sized> {
    store: &'a S,
    read: RefCell<Option<Reading>>,
    written: RefCell<Written>,
    /// Whether a swap was sent and not answered.
    is_unsure: Cell<bool>,
    /// Whether an answer says that something was written.
    has_written: Cell<bool>,
}

impl<'a, S: Store + ?Sized> Noting<'a, S> {
    /// Begins to note.
    pub fn new(store: &'a S) -> Self {
        let (read, written) = (RefCell::default(), RefCell::default());
        Self { store, read, written, is_unsure: Cell::default(), has_written: Cell::default() }
    }

    /// Whether something was sent that may have been written although it was not answered.
    pub fn is_unsure(&self) -> bool {
        self.is_unsure.get()
    }

    /// Whether an answer says that something was written.
    pub fn has_written(&self) -> bool {
        self.has_written.get()
    }

    /// Whether the fleet is known to be closed now, and was not before.
    pub fn has_closed(&self) -> bool {
        self.written.borrow().fleet.is_some_and(|(old, new)| new.closed && !old.closed)
    }

    /// Returns the fleet's record before it was written, if it was.
    pub fn fleet_before(&self) -> Option<Fleet> {
        self.written.borrow().fleet.map(|(old, _)| old)
    }

    /// Returns what was written: the fleet's record, numbers, and tags.
    pub fn changes(&self, fleet: &str) -> Vec<Changed> {
        let written = self.written.borrow();
        let fleets = written.fleet.iter().flat_map(|(old, new)| {
            differences(&format!("fleet \"{fleet}\""), Some(record::fleet(old)), Some(record::fleet(new)))
        });
        let numbers = written.numbers.iter().flat_map(|(number, (old, new))| {
            differences(&words::number(*number), old.as_ref().map(record::number), new.as_ref().map(record::number))
        });
        let tags = written.tags.iter().flat_map(|(tag, (old, new))| {
            differences(&format!("tag \"{tag}\""), old.as_ref().map(record::tag), new.as_ref().map(record::tag))
        });
        fleets.chain(numbers).chain(tags).collect()
    }
}

impl<S: Store + ?Sized> Store for Noting<'_, S> {
    type Error = S::Error;

    fn read(&self, wanted: &Wanted) -> Result<Reading, S::Error> {
        let reading = self.store.read(wanted)?;
        if self.is_unsure() {
            self.written.borrow_mut().look(&reading);
        }
        self.read.replace(Some(reading.clone()));
        Ok(reading)
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, S::Error> {
        self.is_unsure.set(true);
        let answer = self.store.swap(swap);
        self.is_unsure.set(answer.is_err());
        let is_done = matches!(answer, Ok(SwapAnswer::Done(_)));
        if let Some(read) = self.read.borrow().as_ref().filter(|_| is_done || answer.is_err()) {
            self.written.borrow_mut().note(read, &swap.changes, is_done);
        }
        self.has_written.set(self.has_written() || is_done);
        answer
    }
}

/// A store in memory. Nobody else changes it.
pub struct Rehearsal(RefCell<Reading>);

impl Rehearsal {
    /// Begins with what was read. Only that can be read from it.
    pub fn new(reading: Reading) -> Self {
        Self(RefCell::new(reading))
    }
}

impl Store for Rehearsal {
    type Error = Infallible;

    fn read(&self, _wanted: &Wanted) -> Result<Reading, Infallible> {
        Ok(self.0.borrow().clone())
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, Infallible> {
        let mut reading = self.0.borrow_mut();
        for change in &swap.changes {
            match change {
                RecordChange::Fleet(fleet) => reading.fleet = *fleet,
                RecordChange::Number { number, record, .. } => {
                    reading.numbers.insert(*number, *record);
                }
                RecordChange::DropNumber { number, .. } => {
                    reading.numbers.remove(number);
                }
                RecordChange::Tag { tag, record: Some(record), .. } => {
                    reading.tags.insert(*tag, *record);
                }
                RecordChange::Tag { tag, record: None, .. } => {
                    reading.tags.remove(tag);
                }
            }
        }
        Ok(SwapAnswer::Done(reading.incarnation))
    }
}

#[cfg(test)]
mod tests {
    use snowflake_core::fleet::operate::{Operation, Outcome, Turn};

    use super::*;
    use crate::samples::{NOW_MS, TAG, number, reading};

    fn rehearse(operation: Operation) -> (Outcome, Vec<Changed>) {
        let store = Rehearsal::new(reading());
        let noting = Noting::new(&store);
        let mut random = 100;
        let mut random = move || {
            random += 1;
            random
        };
        let outcome = Turn::new(operation).perform(&noting, &mut random).unwrap();
        (outcome, noting.changes("shop"))
    }

    #[test]
    fn a_change_shows_each_value_that_differs() {
        let (_, changes) = rehearse(Operation::SetRange { first: 100, last: 200 });
        assert_eq!(
            lines(&changes),
            ["fleet \"shop\" first_worker: 0 -> 100", "fleet \"shop\" last_worker: 1023 -> 200"]
        );
        let (_, changes) = rehearse(Operation::SetLease { lease_ms: Some(120_000), skew_ms: None });
        assert_eq!(lines(&changes), ["fleet \"shop\" lease_ms: default (10 mins) -> 2 mins"]);
        assert_eq!(
            changes[0].json(),
            json!({"record": "fleet \"shop\"", "field": "lease_ms", "old": 0, "new": 120_000})
        );
    }

    #[test]
    fn a_record_that_is_made_or_deleted_shows_all_its_values() {
        let key = NumberKey::new(None, 900);
        let (_, changes) = rehearse(Operation::Reserve { number: key, until_ms: NOW_MS + 60_000, force: false });
        let made = lines(&changes);
        for line in ["number 900 server: none -> reserved", "number 900 until_ms: none -> 2026-11-24 12:01:00Z"] {
            assert!(made.contains(&line.to_owned()), "{made:?}");
        }
        assert!(made.iter().all(|line| !line.contains("holder")), "it is random: {made:?}");
        let (_, changes) = rehearse(Operation::DropTag { tag: Tag::new("invoices").unwrap() });
        let deleted = lines(&changes);
        assert!(deleted.contains(&"tag \"invoices\" next_value: 4001 -> none".to_owned()), "{deleted:?}");
        assert!(deleted.iter().all(|line| !line.contains("returnable_from")), "it had none: {deleted:?}");
        assert!(changes.iter().all(|changed| changed.new.is_none() && changed.json()["new"].is_null()));
    }

    #[test]
    fn a_change_in_several_steps_shows_what_is_changed_in_the_end() {
        let (outcome, changes) = rehearse(Operation::Restored { lease_ms: None, skew_ms: None });
        assert!(matches!(outcome, Outcome::Restored(_)));
        let records: Vec<_> = changes.iter().map(|changed| changed.record.as_str()).collect();
        assert!(records.contains(&"fleet \"shop\"") && records.contains(&"tag \"parcels\""), "{records:?}");
        // The tag that does not jump stays.
        assert!(!records.contains(&"tag \"invoices\""), "{records:?}");
        // Closed meanwhile, and open again.
        let store = Rehearsal::new(Reading { numbers: BTreeMap::new(), ..reading() });
        let noting = Noting::new(&store);
        let mut random = 1;
        let mut random = move || {
            random += 1;
            random
        };
        Turn::new(Operation::ResetSettings).perform(&noting, &mut random).unwrap();
        let fields: Vec<_> = noting.changes("shop").into_iter().map(|changed| changed.field).collect();
        assert_eq!(fields, ["backup", "first_worker", "last_worker", "layout", "longest_ms", "skew_ms"]);
    }

    #[test]
    fn a_value_that_is_written_as_before_is_no_line() {
        let told = |written_ms| {
            let new = record::tag(&TagRecord { written_ms, ..TAG });
            lines(&differences("x", Some(record::tag(&TAG)), Some(new))).len()
        };
        assert_eq!([1, 1000].map(|ms| told(TAG.written_ms + ms)), [0, 1]);
    }

    #[test]
    fn the_random_values_of_a_record_are_not_shown() {
        let old = number(NOW_MS, NOW_MS + 1);
        let other = NumberRecord { nonce: old.nonce + 1, ..old };
        assert_eq!(differences("x", Some(record::number(&old)), Some(record::number(&other))), []);
        let other = TagRecord { nonce: TAG.nonce + 1, ..TAG };
        assert_eq!(differences("x", Some(record::tag(&TAG)), Some(record::tag(&other))), []);
    }
}
