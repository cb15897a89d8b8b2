//! Rows as `read` shows them and `swap` takes them: the records (`record.rs`), with the columns
//! that say which one it is.

use serde::Deserialize;
use serde_json::{Value, json};
use snowflake_core::fleet::registry::{Incarnation, NumberKey, NumberRecord, TagRecord};
use snowflake_core::fleet::tag::Tag;
use uuid::Uuid;

use crate::config::MemberName;
use crate::record::{self, Bits};

/// The datacenter of a layout without that field.
pub(super) const NO_DATACENTER: i64 = -1;

/// What a registry says of itself.
#[derive(Debug, Deserialize)]
pub(super) struct RegistryRow {
    store: Bits,
    timeline: Bits,
    pub now_ms: i64,
}

impl RegistryRow {
    pub fn incarnation(&self) -> Incarnation {
        incarnation(self.store, self.timeline)
    }
}

/// The answer of a swap.
#[derive(Debug, Deserialize)]
pub(super) struct SwapRow {
    pub done: bool,
    store: Bits,
    timeline: Bits,
}

impl SwapRow {
    pub fn incarnation(&self) -> Incarnation {
        incarnation(self.store, self.timeline)
    }
}

fn incarnation(Bits(store): Bits, Bits(timeline): Bits) -> Incarnation {
    Incarnation { store, timeline, counts: [0; 2] }
}

/// Which number a row is of.
#[derive(Debug, Deserialize)]
pub(super) struct NumberName {
    datacenter: i64,
    worker: i64,
}

impl NumberName {
    pub fn key(&self) -> NumberKey {
        NumberKey::new(Some(self.datacenter).filter(|datacenter| *datacenter != NO_DATACENTER), self.worker)
    }
}

/// Which tag a row is of.
#[derive(Debug, Deserialize)]
pub(super) struct TagName {
    pub tag: String,
}

/// Returns the deletion of a number's record, as `swap` takes it.
pub(super) fn dropped(NumberKey { datacenter, worker }: NumberKey, was: u64) -> Value {
    json!({"datacenter": datacenter.unwrap_or(NO_DATACENTER), "worker": worker, "was": Bits(was), "delete": true})
}

/// The writer of a record.
#[derive(Debug, Clone, Copy)]
pub(super) enum Writer<'a> {
    /// A server, with what people know it by, and its [secret](crate::Config::secret).
    Server(&'a MemberName, u128),
    /// An operator.
    Operator,
}

impl Writer<'_> {
    /// Returns a change of a number's record, as `swap` takes it. What it does not name stays.
    pub fn number(self, key: NumberKey, was: Option<u64>, record: &NumberRecord) -> Value {
        let mut change = Value::Object(record::number(record));
        change["datacenter"] = json!(key.datacenter.unwrap_or(NO_DATACENTER));
        change["worker"] = json!(key.worker);
        change["was"] = json!(was.map(Bits));
        let (name, secret) = match self {
            Self::Server(name, secret) => (name, Some(secret)),
            // An operator keeps the number, or makes its record, so that it is no server's.
            Self::Operator if record.server == 0 || was.is_none() => (&MemberName::default(), None),
            Self::Operator => return change,
        };
        change["secret"] = json!(secret.map(Uuid::from_u128));
        for (field, value) in record::fields(name) {
            change[field] = value;
        }
        change
    }

    /// Returns a change of a tag's record, as `swap` takes it.
    pub fn tag(self, tag: Tag, was: Option<u64>, record: Option<&TagRecord>) -> Value {
        let mut change = record.map_or_else(|| json!({"delete": true}), |record| Value::Object(record::tag(record)));
        change["tag"] = json!(tag.as_str());
        change["was"] = json!(was.map(Bits));
        change["secret"] = match self {
            Self::Server(_, secret) => json!(Uuid::from_u128(secret)),
            // What servers have had before it, none gives back.
            Self::Operator => Value::Null,
        };
        change
    }
}

/// What the registry tells of its standbys.
#[derive(Debug, Deserialize)]
pub(super) struct StandbysRow {
    pub names: String,
    pub connected: i64,
    pub visible: i64,
    pub synchronous: i64,
}

/// What a tag is for.
#[derive(Debug, Deserialize)]
pub(super) struct DescriptionRow {
    pub tag: String,
    pub description: String,
}
