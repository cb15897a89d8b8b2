//! What a change of the registry changes: each value of each record, old and new.
//!
//! A [`Noting`] is a store that notes what is written through it. A [`Rehearsal`] is a store in
//! memory, which begins with what was read from the real one. So a dry run is the same turn as the
//! real one, and shows what that would write.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;

use serde_json::{Value as Json, json};
use snowflake_core::clock::Utc;
use snowflake_core::layout::Layout;
use snowflake_core::registry::{
    Change, Fleet, NumberKey, NumberRecord, Reading, Store, Swap, SwapAnswer, TagRecord, Wanted,
};
use snowflake_core::segment::END;
use snowflake_core::tag::Tag;

use crate::instant::Shown;
use crate::span::Span;
use crate::words;

/// A value of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// It is not set.
    None,
    /// A length of time, in milliseconds.
    Span(i64),
    /// The same, where 0 is this default.
    SpanOr(i64, i64),
    /// An instant, in milliseconds since 1970. The least is none.
    Instant(i64),
    /// A number.
    Number(i128),
    /// Yes or no.
    Flag(bool),
    /// A text.
    Text(String),
}

impl Value {
    /// Writes it for people.
    pub fn shown(&self) -> String {
        match self {
            Self::None | Self::Instant(i64::MIN) => "none".to_owned(),
            Self::Span(ms) => Span(*ms).to_string(),
            Self::SpanOr(0, default_ms) => format!("default ({})", Span(*default_ms)),
            Self::SpanOr(ms, _) => Span(*ms).to_string(),
            Self::Instant(ms) => Shown(*ms).to_string(),
            Self::Number(number) => number.to_string(),
            Self::Flag(is_set) => if *is_set { "yes" } else { "no" }.to_owned(),
            Self::Text(text) => text.clone(),
        }
    }

    /// Writes it for programs.
    pub fn json(&self) -> Json {
        match self {
            Self::None | Self::Instant(i64::MIN) => Json::Null,
            Self::Span(ms) | Self::SpanOr(ms, _) => json!(ms),
            Self::Instant(ms) => json!(Utc(*ms).to_string()),
            // No number of a record is beyond 64 bits.
            Self::Number(number) => match i64::try_from(*number) {
                Ok(number) => json!(number),
                Err(_) => json!(u64::try_from(*number).ok()),
            },
            Self::Flag(is_set) => json!(is_set),
            Self::Text(text) => json!(text),
        }
    }
}

/// The values of a record, by names that do not change.
pub type Fields = Vec<(&'static str, Value)>;

/// Returns the values of a fleet's record, all but the random one.
pub fn fleet_fields(fleet: &Fleet) -> Fields {
    let Fleet { uuid, layout, range, loses_nothing, closed, longest_ms, skew_ms, lease_ms, clock_skew_ms, .. } = *fleet;
    let Fleet { grace_ms, incarnation, generation, horizon_ms, freeze_ms, .. } = *fleet;
    let counts = incarnation.counts.map(|count| count.to_string()).join("/");
    vec![
        ("uuid", Value::Text(words::uuid(uuid))),
        ("layout", layout.map_or(Value::None, |(layout, _)| Value::Text(layout_name(layout)))),
        ("backup_worker", layout.map_or(Value::None, |(_, backup)| Value::Flag(backup))),
        ("first_number", range.map_or(Value::None, |(first, _)| Value::Number(first.into()))),
        ("last_number", range.map_or(Value::None, |(_, last)| Value::Number(last.into()))),
        ("loses_nothing", Value::Flag(loses_nothing)),
        ("closed", Value::Flag(closed)),
        ("longest_lease", limit(longest_ms)),
        ("greatest_skew", limit(skew_ms)),
        ("lease", Value::SpanOr(lease_ms, snowflake_core::registry::DEFAULT_LEASE_MS)),
        ("skew", Value::SpanOr(clock_skew_ms, snowflake_core::registry::DEFAULT_SKEW_MS)),
        ("grace", Value::Span(grace_ms)),
        ("store", Value::Number(incarnation.store.into())),
        ("timeline", Value::Number(incarnation.timeline.into())),
        ("counts", Value::Text(counts)),
        ("generation", Value::Number(generation.into())),
        ("horizon", Value::Instant(horizon_ms)),
        ("freeze", Value::Instant(freeze_ms)),
    ]
}

fn limit(ms: i64) -> Value {
    if ms > 0 { Value::Span(ms) } else { Value::None }
}

/// Returns the name of a built-in layout, or the fingerprint of another one.
pub fn layout_name(fingerprint: i64) -> String {
    Layout::built_in_with(fingerprint).map_or_else(|| format!("fingerprint {fingerprint:016x}"), |name| name.to_owned())
}

fn number_fields(record: &NumberRecord) -> Fields {
    let NumberRecord { holder, count, server, from_ms, until_ms, generation, renewed_ms, .. } = *record;
    vec![
        ("reserved", Value::Flag(server == 0)),
        ("from", Value::Instant(from_ms)),
        ("until", Value::Instant(until_ms)),
        ("generation", Value::Number(generation.into())),
        ("renewed", Value::Instant(renewed_ms)),
        ("count", Value::Number(count.into())),
        ("holder", Value::Text(words::uuid(holder))),
    ]
}

/// Returns the values of a tag's record, all but the random ones.
pub fn tag_fields(record: &TagRecord) -> Fields {
    let TagRecord { next, steps: (least, greatest), jump, generation, written_ms, returnable, .. } = *record;
    vec![
        ("next_value", Value::Number(next.into())),
        ("least_step", Value::Number(least.into())),
        ("greatest_step", Value::Number(greatest.into())),
        ("jump", jump.map_or(Value::None, |jump| Value::Number(jump.into()))),
        ("generation", Value::Number(generation.into())),
        ("written", Value::Instant(written_ms)),
        ("returnable_from", if returnable == END { Value::None } else { Value::Number(returnable.into()) }),
    ]
}

/// One value that is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Of which record.
    pub record: String,
    /// Which value.
    pub field: &'static str,
    /// Before; `None` if the record was not there.
    pub old: Option<Value>,
    /// Afterwards; `None` if the record is not there any more.
    pub new: Option<Value>,
}

impl Changed {
    /// Writes it for programs.
    pub fn json(&self) -> Json {
        let Self { record, field, old, new } = self;
        let value = |value: &Option<Value>| value.as_ref().map_or(Json::Null, Value::json);
        json!({"record": record, "field": field, "old": value(old), "new": value(new)})
    }
}

/// Writes changes for people: each record, and below it its values.
pub fn lines(changes: &[Changed]) -> Vec<String> {
    let mut lines = Vec::new();
    let width = changes.iter().map(|changed| changed.field.len()).max().unwrap_or(0);
    let mut record = None;
    for changed in changes {
        if record.replace(&changed.record) != Some(&changed.record) {
            let is_made = if changed.old.is_none() { ", which is made" } else { "" };
            let is_deleted = if changed.new.is_none() { ", which is deleted" } else { "" };
            lines.push(format!("{}{is_made}{is_deleted}", changed.record));
        }
        let field = changed.field;
        lines.push(match (&changed.old, &changed.new) {
            (Some(old), Some(new)) => format!("  {field:width$}  {} -> {}", old.shown(), new.shown()),
            (old, new) => {
                let value = old.as_ref().or(new.as_ref()).map(Value::shown).unwrap_or_default();
                format!("  {field:width$}  {value}")
            }
        });
    }
    lines
}

/// Returns what differs between two states of a record.
fn differences(record: &str, old: Option<Fields>, new: Option<Fields>) -> Vec<Changed> {
    let fields = old.as_ref().or(new.as_ref()).map(|fields| fields.iter().map(|(field, _)| *field).collect::<Vec<_>>());
    let value = |fields: &Option<Fields>, at: usize| fields.as_ref().map(|fields| fields[at].1.clone());
    let fields = fields.unwrap_or_default().into_iter().enumerate();
    fields
        .map(|(at, field)| Changed { record: record.to_owned(), field, old: value(&old, at), new: value(&new, at) })
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
    /// Notes a swap that was done after a reading.
    fn note(&mut self, read: &Reading, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Fleet(new) => {
                    let old = self.fleet.map_or(read.fleet, |(old, _)| old);
                    self.fleet = Some((old, *new));
                }
                Change::Number { number, record, .. } => {
                    let old = || (read.numbers.get(number).copied(), None);
                    self.numbers.entry(*number).or_insert_with(old).1 = Some(*record);
                }
                Change::DropNumber { number, .. } => {
                    let old = || (read.numbers.get(number).copied(), None);
                    self.numbers.entry(*number).or_insert_with(old).1 = None;
                }
                Change::Tag { tag, record, .. } => {
                    let old = || (read.tags.get(tag).copied(), *record);
                    self.tags.entry(*tag).or_insert_with(old).1 = *record;
                }
            }
        }
    }
}

/// A store that notes what is written through it.
pub struct Noting<'a, S: ?Sized> {
    store: &'a S,
    read: RefCell<Option<Reading>>,
    written: RefCell<Written>,
    /// Whether a swap was sent and not answered.
    is_unsure: RefCell<bool>,
}

impl<'a, S: Store + ?Sized> Noting<'a, S> {
    /// Begins to note.
    pub fn new(store: &'a S) -> Self {
        Self { store, read: RefCell::default(), written: RefCell::default(), is_unsure: RefCell::default() }
    }

    /// Whether something was sent that may have been written although it was not answered.
    pub fn is_unsure(&self) -> bool {
        *self.is_unsure.borrow()
    }

    /// Whether something is known to be written that is not as it was before.
    pub fn has_written(&self) -> bool {
        !self.changes("").is_empty()
    }

    /// Whether the fleet is known to be closed now, and was not before.
    pub fn has_closed(&self) -> bool {
        self.written.borrow().fleet.is_some_and(|(old, new)| new.closed && !old.closed)
    }

    /// Returns what was written: the fleet's record, numbers, and tags.
    pub fn changes(&self, fleet: &str) -> Vec<Changed> {
        let written = self.written.borrow();
        let fleets = written.fleet.iter().flat_map(|(old, new)| {
            differences(&format!("fleet \"{fleet}\""), Some(fleet_fields(old)), Some(fleet_fields(new)))
        });
        let numbers = written.numbers.iter().flat_map(|(number, (old, new))| {
            differences(&words::number(*number), old.as_ref().map(number_fields), new.as_ref().map(number_fields))
        });
        let tags = written.tags.iter().flat_map(|(tag, (old, new))| {
            differences(&format!("tag \"{tag}\""), old.as_ref().map(tag_fields), new.as_ref().map(tag_fields))
        });
        fleets.chain(numbers).chain(tags).collect()
    }
}

impl<S: Store + ?Sized> Store for Noting<'_, S> {
    type Error = S::Error;

    fn read(&self, wanted: &Wanted) -> Result<Reading, S::Error> {
        let reading = self.store.read(wanted)?;
        self.read.replace(Some(reading.clone()));
        Ok(reading)
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, S::Error> {
        self.is_unsure.replace(true);
        let answer = self.store.swap(swap)?;
        self.is_unsure.replace(false);
        if let (SwapAnswer::Done(_), Some(read)) = (answer, &*self.read.borrow()) {
            self.written.borrow_mut().note(read, &swap.changes);
        }
        Ok(answer)
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
                Change::Fleet(fleet) => reading.fleet = *fleet,
                Change::Number { number, record, .. } => {
                    reading.numbers.insert(*number, *record);
                }
                Change::DropNumber { number, .. } => {
                    reading.numbers.remove(number);
                }
                Change::Tag { tag, record: Some(record), .. } => {
                    reading.tags.insert(*tag, *record);
                }
                Change::Tag { tag, record: None, .. } => {
                    reading.tags.remove(tag);
                }
            }
        }
        Ok(SwapAnswer::Done(reading.incarnation))
    }
}

#[cfg(test)]
mod tests {
    use snowflake_core::operate::{Operation, Outcome, Turn};

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
        assert_eq!(lines(&changes), ["fleet \"shop\"", "  first_number  0 -> 100", "  last_number   1023 -> 200",]);
        let (_, changes) = rehearse(Operation::SetLease { lease_ms: Some(120_000), skew_ms: None });
        assert_eq!(lines(&changes), ["fleet \"shop\"", "  lease  default (10 min) -> 2 min"]);
        assert_eq!(changes[0].json(), json!({"record": "fleet \"shop\"", "field": "lease", "old": 0, "new": 120_000}));
    }

    #[test]
    fn a_record_that_is_made_or_deleted_shows_all_its_values() {
        let key = NumberKey::new(None, 900);
        let (_, changes) = rehearse(Operation::Reserve { number: key, until_ms: NOW_MS + 60_000, force: false });
        let made = lines(&changes);
        assert_eq!(made[0], "number 900, which is made");
        assert!(made.contains(&"  until       2026-11-24 12:01:00Z".to_owned()), "{made:?}");
        let (_, changes) = rehearse(Operation::DropTag { tag: Tag::new("invoices").unwrap() });
        assert_eq!(lines(&changes)[..2], ["tag \"invoices\", which is deleted", "  next_value       4001"]);
        assert!(changes.iter().all(|changed| changed.new.is_none() && changed.json()["new"].is_null()));
    }

    #[test]
    fn a_change_in_several_steps_shows_what_is_changed_in_the_end() {
        let (outcome, changes) = rehearse(Operation::Restored { lease_ms: None, skew_ms: None });
        assert!(matches!(outcome, Outcome::Restored(_)));
        let records: Vec<_> = changes.iter().map(|changed| changed.record.as_str()).collect();
        assert!(records.contains(&"fleet \"shop\"") && records.contains(&"tag \"parcels\""), "{records:?}");
        // The tag without a jump stays.
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
        let fields: Vec<_> = noting.changes("shop").iter().map(|changed| changed.field).collect();
        assert_eq!(
            fields,
            ["layout", "backup_worker", "first_number", "last_number", "longest_lease", "greatest_skew"]
        );
    }

    #[test]
    fn the_random_values_of_a_record_are_not_shown() {
        let record = number(NOW_MS, NOW_MS + 1);
        let other = NumberRecord { nonce: record.nonce + 1, ..record };
        assert_eq!(differences("x", Some(number_fields(&record)), Some(number_fields(&other))), []);
        let other = TagRecord { nonce: TAG.nonce + 1, ..TAG };
        assert_eq!(differences("x", Some(tag_fields(&TAG)), Some(tag_fields(&other))), []);
    }
}
