//! Records as `read` shows them and `swap` takes them: JSON whose names are the tables' columns.
//!
//! A number without a sign is a bigint that has its bits. Nothing here is decided. What the
//! registry answers may be anything, and every number of it has to fit its place.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use snowflake_core::registry::{Fleet, Incarnation, NumberKey, NumberRecord, TagRecord};
use snowflake_core::segment::LONGEST_BLOCK;
use snowflake_core::tag::Tag;

use crate::config::MemberName;

/// The datacenter of a layout without that field.
pub(super) const NO_DATACENTER: i64 = -1;

/// 64 bits, which are a bigint in PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bits(pub u64);

impl Serialize for Bits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.0.cast_signed())
    }
}

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        i64::deserialize(deserializer).map(|bits| Self(bits.cast_unsigned()))
    }
}

/// 128 bits, which are a uuid in PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Uuid(pub u128);

impl Serialize for Uuid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // PostgreSQL takes one without hyphens.
        serializer.collect_str(&format_args!("{:032x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Uuid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text.replace('-', ""), 16).map(Self).map_err(|_| D::Error::custom("not a uuid"))
    }
}

/// What a registry says of itself.
#[derive(Debug, Deserialize)]
pub(super) struct RegistryRow {
    store: Bits,
    timeline: Bits,
    pub now_ms: i64,
    pub up_ms: i64,
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

/// The fleet's record.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FleetRow {
    uuid: Uuid,
    layout: Option<i64>,
    backup: Option<bool>,
    first_worker: Option<i64>,
    last_worker: Option<i64>,
    loses_nothing: bool,
    closed: bool,
    longest_ms: i64,
    skew_ms: i64,
    lease_ms: i64,
    clock_skew_ms: i64,
    grace_ms: i64,
    store: Bits,
    timeline: Bits,
    generation: Bits,
    horizon_ms: i64,
    freeze_ms: i64,
    version: Bits,
}

impl From<&Fleet> for FleetRow {
    fn from(fleet: &Fleet) -> Self {
        let (layout, backup) = fleet.layout.unzip();
        let (first_worker, last_worker) = fleet.range.unzip();
        Self {
            uuid: Uuid(fleet.uuid),
            layout,
            backup,
            first_worker,
            last_worker,
            loses_nothing: fleet.loses_nothing,
            closed: fleet.closed,
            longest_ms: fleet.longest_ms,
            skew_ms: fleet.skew_ms,
            lease_ms: fleet.lease_ms,
            clock_skew_ms: fleet.clock_skew_ms,
            grace_ms: fleet.grace_ms,
            store: Bits(fleet.incarnation.store),
            timeline: Bits(fleet.incarnation.timeline),
            generation: Bits(fleet.generation),
            horizon_ms: fleet.horizon_ms,
            freeze_ms: fleet.freeze_ms,
            version: Bits(fleet.version),
        }
    }
}

impl From<FleetRow> for Fleet {
    fn from(row: FleetRow) -> Self {
        Self {
            uuid: row.uuid.0,
            layout: row.layout.zip(row.backup),
            range: row.first_worker.zip(row.last_worker),
            loses_nothing: row.loses_nothing,
            closed: row.closed,
            longest_ms: row.longest_ms,
            skew_ms: row.skew_ms,
            lease_ms: row.lease_ms,
            clock_skew_ms: row.clock_skew_ms,
            grace_ms: row.grace_ms,
            incarnation: incarnation(row.store, row.timeline),
            generation: row.generation.0,
            horizon_ms: row.horizon_ms,
            freeze_ms: row.freeze_ms,
            version: row.version.0,
        }
    }
}

/// A number's record.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NumberRow {
    datacenter: i64,
    worker: i64,
    holder: Uuid,
    nonce: Bits,
    count: Bits,
    server: Bits,
    from_ms: i64,
    until_ms: i64,
    generation: Bits,
    renewed_ms: i64,
    offset_ms: i64,
}

impl NumberRow {
    fn of(number: NumberKey, record: &NumberRecord) -> Self {
        Self {
            datacenter: number.datacenter.unwrap_or(NO_DATACENTER),
            worker: number.worker,
            holder: Uuid(record.holder),
            nonce: Bits(record.nonce),
            count: Bits(record.count),
            server: Bits(record.server),
            from_ms: record.from_ms,
            until_ms: record.until_ms,
            generation: Bits(record.generation),
            renewed_ms: record.renewed_ms,
            offset_ms: record.offset_ms,
        }
    }

    pub fn understood(self) -> (NumberKey, NumberRecord) {
        let record = NumberRecord {
            holder: self.holder.0,
            nonce: self.nonce.0,
            count: self.count.0,
            server: self.server.0,
            from_ms: self.from_ms,
            until_ms: self.until_ms,
            generation: self.generation.0,
            renewed_ms: self.renewed_ms,
            offset_ms: self.offset_ms,
        };
        (number(self.datacenter, self.worker), record)
    }
}

fn number(datacenter: i64, worker: i64) -> NumberKey {
    NumberKey::new(Some(datacenter).filter(|datacenter| *datacenter != NO_DATACENTER), worker)
}

/// Returns the deletion of a number's record, as `swap` takes it.
pub(super) fn dropped(NumberKey { datacenter, worker }: NumberKey, was: u64) -> Value {
    json!({"datacenter": datacenter.unwrap_or(NO_DATACENTER), "worker": worker, "was": Bits(was), "delete": true})
}

/// A tag's record.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TagRow {
    tag: String,
    id: Bits,
    next_value: i64,
    least_step: u32,
    greatest_step: u32,
    jump: Option<u32>,
    nonce: Bits,
    generation: Bits,
    written_ms: i64,
    returnable_from: i64,
}

impl TagRow {
    fn of(tag: Tag, record: &TagRecord) -> Self {
        let (least_step, greatest_step) = record.steps;
        Self {
            tag: tag.as_str().to_owned(),
            id: Bits(record.id),
            next_value: record.next,
            least_step,
            greatest_step,
            jump: record.jump,
            nonce: Bits(record.nonce),
            generation: Bits(record.generation),
            written_ms: record.written_ms,
            returnable_from: record.returnable,
        }
    }

    /// Returns the tag and its record. `None` if there cannot be such a tag.
    pub fn understood(self) -> Option<(Tag, TagRecord)> {
        let steps = (self.least_step, self.greatest_step);
        let is_possible = |step| (1..=LONGEST_BLOCK).contains(&step);
        let record = TagRecord {
            id: self.id.0,
            next: self.next_value,
            steps,
            jump: self.jump,
            nonce: self.nonce.0,
            generation: self.generation.0,
            written_ms: self.written_ms,
            returnable: self.returnable_from,
        };
        Some((Tag::new(&self.tag).ok()?, record)).filter(|_| is_possible(steps.0) && is_possible(steps.1))
    }
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
        let mut change = json!(NumberRow::of(key, record));
        change["was"] = json!(was.map(Bits));
        let (name, secret) = match self {
            Self::Server(name, secret) => (name, Some(secret)),
            // An operator keeps the number, or makes its record, so that it is no server's.
            Self::Operator if record.server == 0 || was.is_none() => (&MemberName::default(), None),
            Self::Operator => return change,
        };
        change["secret"] = json!(secret.map(Uuid));
        change["host"] = json!(name.host);
        change["port"] = json!(name.port);
        change["cluster_name"] = json!(name.cluster_name);
        change["version"] = json!(name.version);
        change
    }

    /// Returns a change of a tag's record, as `swap` takes it.
    pub fn tag(self, tag: Tag, was: Option<u64>, record: Option<&TagRecord>) -> Value {
        let mut change = match record {
            Some(record) => json!(TagRow::of(tag, record)),
            None => json!({"tag": tag.as_str(), "delete": true}),
        };
        change["was"] = json!(was.map(Bits));
        change["secret"] = match self {
            Self::Server(_, secret) => json!(Uuid(secret)),
            // What servers have had before it, none gives back.
            Self::Operator => Value::Null,
        };
        change
    }
}

/// What people know the holder of a number by.
#[derive(Debug, Deserialize)]
pub(super) struct NameRow {
    datacenter: i64,
    worker: i64,
    host: String,
    port: u16,
    cluster_name: String,
    version: String,
}

impl NameRow {
    pub fn understood(self) -> (NumberKey, MemberName) {
        let Self { datacenter, worker, host, port, cluster_name, version } = self;
        (number(datacenter, worker), MemberName { host, port, cluster_name, version })
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
