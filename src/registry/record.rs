//! The records of a fleet, in the one form that etcd, PostgreSQL and the operator's program have:
//! JSON, whose names are the columns of `sql/registry.sql`.
//!
//! - An integer beyond 2^53 is a text, because programs that read JSON round such a number.
//! - 64 bits that are random, or a fingerprint, are always a text: that of the bigint with these
//!   bits.
//! - Both are read as a number or as a text. PostgreSQL writes numbers.
//!
//! Nothing here is decided. What a registry answers may be anything, and every number of it has to
//! fit its place.

use std::fmt;

use serde::de::{DeserializeOwned, Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use snowflake_core::fleet::registry::{Fleet, Incarnation, NumberRecord, TagRecord};
use snowflake_core::fleet::segment::{END, LONGEST_BLOCK};
use uuid::Uuid;

/// A record's fields by their names.
pub type Fields = Map<String, Value>;

/// Returns the fleet's record.
pub fn fleet(fleet: &Fleet) -> Fields {
    fields(&FleetRow::from(fleet))
}

/// Returns a number's record.
pub fn number(record: &NumberRecord) -> Fields {
    fields(&NumberRow::from(record))
}

/// Returns a tag's record.
pub fn tag(record: &TagRecord) -> Fields {
    fields(&TagRow::from(record))
}

/// Returns the fields of a row.
pub(crate) fn fields(row: &impl Serialize) -> Fields {
    match json!(row) {
        Value::Object(fields) => fields,
        _ => Fields::new(),
    }
}

/// Understands the fields of a record, of which those that are not known are left out.
///
/// # Errors
/// Which field is wrong, and why.
pub(crate) fn understood<T: DeserializeOwned>(fields: Fields) -> Result<T, String> {
    serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| match error.path().to_string().as_str() {
        "." => error.inner().to_string(),
        field => format!("{field}: {}", error.inner()),
    })
}

/// The greatest integer that is written as a number.
const MOST_NUMBER: u64 = 1 << 53;

/// An integer. It is a text where a program might round a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Int<T>(pub T);

impl<T: Copy + fmt::Display + Into<i128>> Serialize for Int<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match i64::try_from(self.0.into()) {
            Ok(number) if number.unsigned_abs() <= MOST_NUMBER => serializer.serialize_i64(number),
            _ => serializer.collect_str(&self.0),
        }
    }
}

impl<'de, T: TryFrom<i128>> Deserialize<'de> for Int<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyInt).and_then(|number| {
            T::try_from(number).map(Self).map_err(|_| D::Error::custom(format_args!("{number} is out of range")))
        })
    }
}

/// 64 bits, which are a bigint in PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bits(pub u64);

impl Serialize for Bits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.cast_signed())
    }
}

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Int::<i64>::deserialize(deserializer).map(|Int(bits)| Self(bits.cast_unsigned()))
    }
}

/// Reads an integer that is a number or a text.
struct AnyInt;

impl Visitor<'_> for AnyInt {
    type Value = i128;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer, as a number or a text")
    }

    fn visit_i64<E>(self, number: i64) -> Result<i128, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<i128, E> {
        Ok(number.into())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<i128, E> {
        text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// The fleet's record.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FleetRow {
    uuid: Uuid,
    layout: Option<Bits>,
    backup: Option<bool>,
    first_worker: Option<Int<i64>>,
    last_worker: Option<Int<i64>>,
    loses_nothing: bool,
    closed: bool,
    longest_ms: Int<i64>,
    skew_ms: Int<i64>,
    lease_ms: Int<i64>,
    clock_skew_ms: Int<i64>,
    store: Bits,
    timeline: Int<i64>,
    /// Counts of etcd's. PostgreSQL has none.
    #[serde(default = "none")]
    term: Int<i64>,
    #[serde(default = "none")]
    unseen: Int<i64>,
    generation: Int<u64>,
    horizon_ms: Int<i64>,
    freeze_ms: Int<i64>,
    version: Bits,
}

fn none() -> Int<i64> {
    Int(0)
}

impl From<&Fleet> for FleetRow {
    fn from(fleet: &Fleet) -> Self {
        let (layout, backup) = fleet.layout.unzip();
        let (first_worker, last_worker) = fleet.range.unzip();
        let Incarnation { store, timeline, counts: [term, unseen] } = fleet.incarnation;
        Self {
            uuid: Uuid::from_u128(fleet.uuid),
            layout: layout.map(|layout| Bits(layout.cast_unsigned())),
            backup,
            first_worker: first_worker.map(Int),
            last_worker: last_worker.map(Int),
            loses_nothing: fleet.loses_nothing,
            closed: fleet.closed,
            longest_ms: Int(fleet.longest_ms),
            skew_ms: Int(fleet.skew_ms),
            lease_ms: Int(fleet.lease_ms),
            clock_skew_ms: Int(fleet.clock_skew_ms),
            store: Bits(store),
            timeline: Int(timeline.cast_signed()),
            term: Int(term),
            unseen: Int(unseen),
            generation: Int(fleet.generation),
            horizon_ms: Int(fleet.horizon_ms),
            freeze_ms: Int(fleet.freeze_ms),
            version: Bits(fleet.version),
        }
    }
}

impl From<FleetRow> for Fleet {
    fn from(row: FleetRow) -> Self {
        Self {
            uuid: row.uuid.as_u128(),
            layout: row.layout.map(|layout| layout.0.cast_signed()).zip(row.backup),
            range: row.first_worker.map(|first| first.0).zip(row.last_worker.map(|last| last.0)),
            loses_nothing: row.loses_nothing,
            closed: row.closed,
            longest_ms: row.longest_ms.0,
            skew_ms: row.skew_ms.0,
            lease_ms: row.lease_ms.0,
            clock_skew_ms: row.clock_skew_ms.0,
            incarnation: Incarnation {
                store: row.store.0,
                timeline: row.timeline.0.cast_unsigned(),
                counts: [row.term.0, row.unseen.0],
            },
            generation: row.generation.0,
            horizon_ms: row.horizon_ms.0,
            freeze_ms: row.freeze_ms.0,
            version: row.version.0,
        }
    }
}

/// A number's record. Which number it is, its key says, or other columns.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NumberRow {
    holder: Uuid,
    nonce: Bits,
    count: Bits,
    server: Bits,
    from_ms: Int<i64>,
    until_ms: Int<i64>,
    generation: Int<u64>,
    renewed_ms: Int<i64>,
    offset_ms: Int<i64>,
}

impl From<&NumberRecord> for NumberRow {
    fn from(record: &NumberRecord) -> Self {
        Self {
            holder: Uuid::from_u128(record.holder),
            nonce: Bits(record.nonce),
            count: Bits(record.count),
            server: Bits(record.server),
            from_ms: Int(record.from_ms),
            until_ms: Int(record.until_ms),
            generation: Int(record.generation),
            renewed_ms: Int(record.renewed_ms),
            offset_ms: Int(record.offset_ms),
        }
    }
}

impl From<NumberRow> for NumberRecord {
    fn from(row: NumberRow) -> Self {
        Self {
            holder: row.holder.as_u128(),
            nonce: row.nonce.0,
            count: row.count.0,
            server: row.server.0,
            from_ms: row.from_ms.0,
            until_ms: row.until_ms.0,
            generation: row.generation.0,
            renewed_ms: row.renewed_ms.0,
            offset_ms: row.offset_ms.0,
        }
    }
}

/// A tag's record. Which tag it is, its key says, or another column.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TagRow {
    id: Bits,
    next_value: Int<i64>,
    least_step: UpTo<LONGEST_BLOCK>,
    greatest_step: UpTo<LONGEST_BLOCK>,
    #[serde(default)]
    jumps: bool,
    nonce: Bits,
    generation: Int<u64>,
    written_ms: Int<i64>,
    #[serde(default = "end")]
    returnable_from: Int<i64>,
}

/// Nothing is given back.
fn end() -> Int<i64> {
    Int(END)
}

/// A number from 1 to a greatest one. What is written is left to the registry's own check.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "Int<i64>")]
struct UpTo<const MOST: u32>(u32);

impl<const MOST: u32> TryFrom<Int<i64>> for UpTo<MOST> {
    type Error = String;

    fn try_from(Int(number): Int<i64>) -> Result<Self, String> {
        let fits = u32::try_from(number).ok().filter(|number| (1..=MOST).contains(number));
        fits.map(Self).ok_or_else(|| format!("{number} is not from 1 to {MOST}"))
    }
}

impl From<&TagRecord> for TagRow {
    fn from(record: &TagRecord) -> Self {
        Self {
            id: Bits(record.id),
            next_value: Int(record.next),
            least_step: UpTo(record.steps.0),
            greatest_step: UpTo(record.steps.1),
            jumps: record.jumps,
            nonce: Bits(record.nonce),
            generation: Int(record.generation),
            written_ms: Int(record.written_ms),
            returnable_from: Int(record.returnable),
        }
    }
}

impl From<TagRow> for TagRecord {
    fn from(row: TagRow) -> Self {
        Self {
            id: row.id.0,
            next: row.next_value.0,
            steps: (row.least_step.0, row.greatest_step.0),
            jumps: row.jumps,
            nonce: row.nonce.0,
            generation: row.generation.0,
            written_ms: row.written_ms.0,
            returnable: row.returnable_from.0,
        }
    }
}
