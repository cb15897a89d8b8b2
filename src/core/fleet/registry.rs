//! The registry of a fleet: its records, and the two calls through which servers and operators use
//! it.
//!
//! A registry is a [`Store`] that all servers of a fleet reach. It holds one record for the fleet
//! ([`Fleet`]), one for each number that was leased ([`NumberRecord`]), and one for each tag of
//! dense values ([`TagRecord`]). A number's record is deleted only by an operator, and only if it
//! ends at or before the fleet's freeze. A number without a record is leased from there on, so no
//! end is forgotten. A registry must know nothing of the protocol (`lease.rs`, `segment.rs`,
//! `operate.rs`): it reads, and it changes records if nothing has changed since.
//!
//! A registry may forget: a standby that is promoted lacks the last changes, a backup lacks more.
//! Its [`Incarnation`] shows most of this. A new **generation** of the fleet's record then makes
//! sure that no lease of the forgotten ones is given to another server:
//!
//! - **freeze**: no number of an older generation is leased for ticks before it. The longest
//!   forgotten lease has ended by then.
//! - **horizon**: a record of an older generation that ends after it cannot have changed hands in
//!   what was forgotten, so its holder may renew it.
//!
//! # Limits
//!
//! The freeze must be as long as the longest lease that can have been forgotten. So the fleet's
//! record has two pairs of values, and servers have no settings of their own:
//!
//! - **limits**, with which a freeze counts: how long a lease may be ([`Fleet::longest_ms`]) and
//!   how far clocks may be apart ([`Fleet::skew_ms`]). They are only raised, while leases exist.
//! - **what is used**: how long leases are ([`Fleet::lease_ms`]) and how far clocks are apart
//!   ([`Fleet::clock_skew_ms`]). It counts up to the limits, from the next renewal on.
//!
//! A swap compares the version of the fleet's record, so that no lease is longer than the limits of
//! the record under which it is written. The first server writes the same limits as any other would
//! ([`DEFAULT_LEASE_MS`], [`DEFAULT_SKEW_MS`]). If that is forgotten together with leases, the next
//! server writes them again, and freezes for long enough. Later on only an operator changes them:
//!
//! - To raise a limit, raise it, and wait until no failover can forget that. Only then use it. A
//!   longer lease that is written before can be forgotten together with the raise, and the freeze
//!   would be too short for it.
//! - To lower what is used needs no order: a freeze may be longer than it must.
//! - To lower a limit, lower what is used first, and wait for as long as the old limit.
//! - After a restore of a backup that may have been taken before a raise, raise the limits again
//!   before a server reaches the registry. A server that runs knows the greatest limits that it has
//!   read, and freezes for these ([`FleetLimits`]).
//!
//! Instants are milliseconds since 1970.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::clock::DAY_MS;
use crate::fleet::tag::Tag;

/// How long a lease is, and may be, in milliseconds, unless an operator sets something else.
pub const DEFAULT_LEASE_MS: i64 = 600_000;

/// How far two clocks of a fleet may be apart, in milliseconds, unless an operator sets something
/// else.
pub const DEFAULT_SKEW_MS: i64 = 60_000;

/// Which life of which store a registry is. A registry that has forgotten something nearly always
/// shows another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incarnation {
    /// Which store: PostgreSQL's system identifier, etcd's `cluster_id`.
    pub store: u64,
    /// PostgreSQL's timeline, which a promotion changes; 0 in etcd.
    pub timeline: u64,
    /// Counts that never fall unless something is forgotten: etcd's `raft_term`, and
    /// `raftAppliedIndex` less the revision, which is negative after a restore; 0 in PostgreSQL.
    pub counts: [i64; 2],
}

/// What an incarnation says about what an earlier one has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinceIncarnation {
    /// It is all there.
    Same,
    /// A standby of the store was promoted. The last changes may be forgotten, unless the standby
    /// is synchronous.
    Failover,
    /// Another store, or one that was restored.
    Other,
}

impl Incarnation {
    /// Compares with the incarnation that was seen before.
    pub fn since(&self, seen: &Self) -> SinceIncarnation {
        if self.store != seen.store || self.counts.iter().zip(&seen.counts).any(|(now, seen)| now < seen) {
            SinceIncarnation::Other
        } else if self.timeline != seen.timeline {
            SinceIncarnation::Failover
        } else {
            SinceIncarnation::Same
        }
    }

    /// Whether the store has timelines, as PostgreSQL has. Where it has none, as in etcd, a
    /// failover forgets nothing.
    pub fn has_timelines(&self) -> bool {
        self.timeline > 0
    }

    /// Returns how often the store may have forgotten something between an earlier incarnation and
    /// this one, if it has: at least once for each timeline, and once at least.
    fn lives_since(&self, seen: &Self) -> u64 {
        let timelines = if self.store == seen.store { self.timeline.saturating_sub(seen.timeline) } else { 0 };
        timelines.max(1)
    }

    /// Whether the counts have grown so much that the fleet's record should show it. Every change
    /// of that record makes all servers read it again, so that not every step is noted.
    fn has_grown(&self, seen: &Self) -> bool {
        self.counts
            .iter()
            .zip(&seen.counts)
            .any(|(now, seen)| now.saturating_sub(*seen) >= seen.saturating_abs().max(1))
    }
}

/// The fleet's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fleet {
    /// Which fleet. A life of shared memory refuses another one than it has first read, and a
    /// database another one than it was first drawn in ([`code`](Self::code)).
    pub uuid: u128,
    /// The layout's fingerprint, and whether each server also has a backup number. `None` until the
    /// first server adopts its own.
    pub layout: Option<(i64, bool)>,
    /// The first and the last number that may be leased. Configured numbers lie outside. `None`
    /// until the first server adopts all numbers of its layout.
    pub range: Option<(i64, i64)>,
    /// Whether an operator vouches that a failover forgets nothing.
    pub loses_nothing: bool,
    /// Whether nothing may be leased, because the registry is being moved.
    pub closed: bool,
    /// How long a lease may be, in milliseconds; see [Limits](self#limits). 0 until the first
    /// server writes [`DEFAULT_LEASE_MS`].
    pub longest_ms: i64,
    /// How far two clocks of the fleet may be apart, in milliseconds; see [Limits](self#limits). 0
    /// until the first server writes [`DEFAULT_SKEW_MS`].
    pub skew_ms: i64,
    /// How long leases are to be, in milliseconds; 0 for [`DEFAULT_LEASE_MS`]. Never written by
    /// servers. What counts is [`used_lease_ms`](Self::used_lease_ms).
    pub lease_ms: i64,
    /// How far clocks are taken to be apart, in milliseconds; 0 for [`DEFAULT_SKEW_MS`]. Never
    /// written by servers. What counts is [`used_skew_ms`](Self::used_skew_ms).
    pub clock_skew_ms: i64,
    /// The incarnation under which this was written.
    pub incarnation: Incarnation,
    /// How often the registry may have forgotten something.
    pub generation: u64,
    /// Records of an older generation that end at or before this may have changed hands.
    pub horizon_ms: i64,
    /// Numbers of an older generation may be leased from here on.
    pub freeze_ms: i64,
    /// Another random number with each change of this record.
    pub version: u64,
}

impl Fleet {
    /// Packs a fleet's uuid into one integer, as a database stores it: its first 60 bits, which are
    /// not negative. 56 of them are random.
    pub fn code(uuid: u128) -> i64 {
        (uuid >> 68) as i64
    }

    /// Writes a [`code`](Self::code) as the uuid begins: `1b4e28ba-2fa1`.
    pub fn beginning(code: i64) -> String {
        format!("{:08x}-{:04x}", code >> 28, code >> 12 & 0xffff)
    }

    /// Returns how long leases are, in milliseconds: what an operator has set, or the default, but
    /// never more than the limit.
    pub fn used_lease_ms(&self) -> i64 {
        used(self.lease_ms, DEFAULT_LEASE_MS, self.longest_ms)
    }

    /// Returns how far clocks are taken to be apart, in milliseconds: what an operator has set, or
    /// the default, but never more than the limit.
    pub fn used_skew_ms(&self) -> i64 {
        used(self.clock_skew_ms, DEFAULT_SKEW_MS, self.skew_ms)
    }

    /// Returns the instant at or before which a lease must end to be over by every clock of the
    /// fleet, when the registry's shows `now_ms`. Its machine may have changed.
    pub fn over_ms(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(self.limits_ms().1.saturating_mul(2))
    }

    /// Whether an operator may have deleted a record that ended at `until_ms`. Nothing is deleted
    /// before a freeze is over.
    pub fn may_lack(&self, until_ms: i64, now_ms: i64) -> bool {
        until_ms <= self.freeze_ms && self.freeze_ms <= self.over_ms(now_ms)
    }

    /// Returns the limits, in milliseconds: how long a lease may be, and how far clocks may be
    /// apart. Where none is known, it is the one that the first server brings.
    pub fn limits_ms(&self) -> (i64, i64) {
        let limit = |limit_ms: i64, default_ms: i64| if limit_ms > 0 { limit_ms } else { default_ms };
        (limit(self.longest_ms, DEFAULT_LEASE_MS), limit(self.skew_ms, DEFAULT_SKEW_MS))
    }

    /// Returns the record of the generation that begins when a registry at `now_ms` is found to
    /// have forgotten something. `known` are limits that it had before: they count where they are
    /// greater than the record's, which may be forgotten, too.
    ///
    /// A forgotten lease ends at most `longest_ms + skew_ms` after the clock of the machine that
    /// has forgotten it (`lease.rs`). A forgotten taker of a record took one that
    /// ended at most `skew_ms` after that clock. That machine's clock may have been ahead of this
    /// one's by another `skew_ms`.
    ///
    /// Generations grow by the registry's timelines, because a generation that was begun on one of
    /// them may be forgotten itself.
    pub fn begin_generation(&self, incarnation: Incarnation, now_ms: i64, known: FleetLimits, version: u64) -> Self {
        let FleetLimits { longest_ms, skew_ms } = known.and(self);
        let horizon_ms = now_ms.saturating_add(skew_ms).saturating_add(skew_ms);
        let freeze_ms = horizon_ms.saturating_add(longest_ms);
        let generation = self.generation.saturating_add(incarnation.lives_since(&self.incarnation));
        Self { incarnation, generation, horizon_ms, freeze_ms, version, ..*self }
    }

    /// Returns the record with what `member` has found out, if it has to be written before anything
    /// else: what the fleet adopts from its first server, a new generation, the registry's
    /// incarnation. `known` are limits that the record had before.
    pub fn amended(&self, reading: &Reading, member: &MemberTerms, known: FleetLimits, version: u64) -> Option<Self> {
        let Reading { incarnation, now_ms, .. } = *reading;
        let adopted = self.adopting(member);
        let new = Self { incarnation, version, ..adopted };
        let begin = || adopted.begin_generation(incarnation, now_ms, known, version);
        match incarnation.since(&self.incarnation) {
            SinceIncarnation::Other => Some(begin()),
            SinceIncarnation::Failover if !self.loses_nothing => Some(begin()),
            SinceIncarnation::Failover => Some(new),
            SinceIncarnation::Same => (adopted != *self || incarnation.has_grown(&self.incarnation)).then_some(new),
        }
    }

    /// Returns the record with everything from `member` that no server has brought before, and with
    /// limits.
    fn adopting(&self, member: &MemberTerms) -> Self {
        let (longest_ms, skew_ms) = self.limits_ms();
        let (layout, range) = (self.layout.or(Some(member.layout)), self.range.or(Some(member.range)));
        Self { layout, range, longest_ms, skew_ms, ..*self }
    }
}

fn used(set_ms: i64, default_ms: i64, limit_ms: i64) -> i64 {
    let wanted_ms = if set_ms > 0 { set_ms } else { default_ms };
    wanted_ms.min(limit_ms)
}

/// The longest lease that an operator can set: 30 days.
pub const MOST_LEASE_MS: i64 = 30 * DAY_MS;

/// The farthest apart that an operator can set clocks to be: an hour.
pub const MOST_SKEW_MS: i64 = 3_600_000;

/// The greatest [limits](self#limits) that a server has read in its fleet's record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FleetLimits {
    /// How long leases can have been, in milliseconds.
    pub longest_ms: i64,
    /// How far clocks can have been apart, in milliseconds.
    pub skew_ms: i64,
}

impl FleetLimits {
    /// Returns the greater of these and the record's.
    fn and(self, fleet: &Fleet) -> Self {
        Self { longest_ms: self.longest_ms.max(fleet.longest_ms), skew_ms: self.skew_ms.max(fleet.skew_ms) }
    }

    /// Returns these with the record's noted. A number that a person has typed wrongly, beyond what
    /// can be set, must not freeze the fleet for as long as this server runs.
    #[must_use]
    pub fn noting(self, fleet: &Fleet) -> Self {
        let Self { longest_ms, skew_ms } = self.and(fleet);
        Self { longest_ms: longest_ms.min(MOST_LEASE_MS), skew_ms: skew_ms.min(MOST_SKEW_MS) }
    }
}

/// What a server brings to its fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberTerms {
    /// Its layout's fingerprint, and whether it has a backup number.
    pub layout: (i64, bool),
    /// The first and the last number that its layout has for servers.
    pub range: (i64, i64),
}

/// A number's record: its last lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberRecord {
    /// The random name that its holder, a life of shared memory, has given to the lease.
    pub holder: u128,
    /// Another random number with each change of this record.
    pub nonce: u64,
    /// Greater than in the record that this one replaces, and than in all that its holder has
    /// proposed before. So it tells which of two records of one lease is older.
    pub count: u64,
    /// A fingerprint of the server's host and port.
    pub server: u64,
    /// The start of the lease's first tick.
    pub from_ms: i64,
    /// The end of the lease's last tick.
    pub until_ms: i64,
    /// The fleet's generation when this was written.
    pub generation: u64,
    /// The registry's clock when this was written.
    pub renewed_ms: i64,
    /// How far the holder's clock was ahead of the registry's, in milliseconds.
    pub offset_ms: i64,
}

/// Which number: in a layout with a datacenter field, each datacenter has numbers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumberKey {
    /// The datacenter, in a layout with that field.
    pub datacenter: Option<i64>,
    /// The worker number.
    pub worker: i64,
}

impl NumberKey {
    /// Names a number.
    pub fn new(datacenter: Option<i64>, worker: i64) -> Self {
        Self { datacenter, worker }
    }

    /// Returns all numbers of a datacenter that lie in a range.
    pub fn range(datacenter: Option<i64>, (first, last): (i64, i64)) -> RangeInclusive<Self> {
        Self::new(datacenter, first)..=Self::new(datacenter, last)
    }
}

/// A tag's record: the next of its dense values (`segment.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TagRecord {
    /// A random number. A tag that is deleted and made again has another one.
    pub id: u64,
    /// The first value of the next block.
    pub next: i64,
    /// The fewest and the most values of a block, from 1 to
    /// [`LONGEST_BLOCK`](crate::fleet::segment::LONGEST_BLOCK).
    pub steps: (u32, u32),
    /// Whether the tag jumps ahead by [`JUMP`](crate::fleet::segment::JUMP) values after the
    /// registry may have forgotten something. Otherwise it gives nothing then until an operator has
    /// set its next value.
    pub jumps: bool,
    /// Another random number with each change of this record.
    pub nonce: u64,
    /// The fleet's generation when this was written.
    pub generation: u64,
    /// The registry's clock when the next value was written.
    pub written_ms: i64,
    /// From where on values may be given back: the first value of the blocks that the last server
    /// has reserved one after the other. [`END`](crate::fleet::segment::END) if none may be.
    pub returnable: i64,
}

/// Which records are read beside the fleet's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Of numbers.
    pub numbers: WantedNumbers,
    /// Of tags.
    pub tags: WantedTags,
}

/// Which numbers' records are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WantedNumbers {
    /// None.
    #[default]
    None,
    /// One number's.
    One(NumberKey),
    /// All that exist in a datacenter, or in a layout without that field.
    Of(Option<i64>),
    /// All that exist.
    All,
}

/// Which tags' records are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum WantedTags {
    /// None.
    #[default]
    None,
    /// Those of these names, [`MOST_CHANGES`] at most.
    Named(Vec<Tag>),
    /// All that exist.
    All,
}

impl Wanted {
    /// Asks for one number's record.
    pub fn number(key: NumberKey) -> Self {
        Self { numbers: WantedNumbers::One(key), ..Self::default() }
    }

    /// Asks for the records of all numbers of a datacenter.
    pub fn numbers_of(datacenter: Option<i64>) -> Self {
        Self { numbers: WantedNumbers::Of(datacenter), ..Self::default() }
    }

    /// Asks for tags' records.
    pub fn tags(tags: Vec<Tag>) -> Self {
        Self { tags: WantedTags::Named(tags), ..Self::default() }
    }

    /// Asks for everything, as operators do.
    pub fn all() -> Self {
        Self { numbers: WantedNumbers::All, tags: WantedTags::All }
    }
}

/// What a registry holds, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The fleet's record.
    pub fleet: Fleet,
    /// The numbers' records that are wanted and exist, and no others.
    pub numbers: BTreeMap<NumberKey, NumberRecord>,
    /// The tags' records that are wanted and exist, and no others.
    pub tags: BTreeMap<Tag, TagRecord>,
    /// The registry's incarnation.
    pub incarnation: Incarnation,
    /// The registry's clock.
    pub now_ms: i64,
}

/// How many changes a [`Swap`] can have. (etcd takes 128 operations in a transaction, unless it is
/// told otherwise.)
pub const MOST_CHANGES: usize = 100;

/// One compare-and-swap. It changes nothing unless the fleet's record has this version, the
/// registry this incarnation, and each record that is replaced its nonce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    /// The version of the fleet's record.
    pub fleet: u64,
    /// The registry's incarnation. A store that cannot compare it with the rest in one step does
    /// not have to.
    pub incarnation: Incarnation,
    /// What is written: each record once, [`MOST_CHANGES`] at most.
    pub changes: Vec<RecordChange>,
}

impl Swap {
    /// Makes a swap that compares what was read.
    pub fn after(reading: &Reading, changes: Vec<RecordChange>) -> Self {
        Self { fleet: reading.fleet.version, incarnation: reading.incarnation, changes }
    }
}

/// What a [`Swap`] writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordChange {
    /// Replaces the fleet's record.
    Fleet(Fleet),
    /// Replaces a number's record that has this nonce, or makes it if it is not to exist yet.
    Number {
        /// Which number.
        number: NumberKey,
        /// The nonce of the record that is replaced.
        was: Option<u64>,
        /// The new record.
        record: NumberRecord,
    },
    /// Deletes a number's record that has this nonce. Only an operator deletes.
    DropNumber {
        /// Which number.
        number: NumberKey,
        /// The nonce of the record.
        was: u64,
    },
    /// Replaces a tag's record that has this nonce, or makes it if it is not to exist yet.
    Tag {
        /// The tag.
        tag: Tag,
        /// The nonce of the record that is replaced.
        was: Option<u64>,
        /// The new record; `None` deletes it. Only an operator deletes.
        record: Option<TagRecord>,
    },
}

/// A registry's answer to a [`Swap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapAnswer {
    /// It is written, and durable. The registry's incarnation was this one afterwards.
    Done(Incarnation),
    /// Something was not as compared, so nothing is written.
    Refused,
}

/// A registry, as a store of records. An error means only that there is no answer: what was sent
/// may have been done, may be done later, or never.
///
/// A store belongs to a server or to an operator. It refuses every swap of a server while the
/// fleet is [closed](Fleet::closed), and those that no server's own rules permit, as far as it can
/// check them.
pub trait Store {
    /// What can go wrong.
    type Error;

    /// Reads the fleet's record, and those that are wanted. What is read need not be durable yet.
    ///
    /// # Errors
    /// The store's, if there is no answer.
    fn read(&self, wanted: &Wanted) -> Result<Reading, Self::Error>;

    /// Compares and swaps, in one step.
    ///
    /// # Errors
    /// The store's, if there is no answer.
    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, Self::Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_begins_as_the_uuid_does() {
        let code = Fleet::code(0x0b4e_28ba_2fa1_41d2_883f_0016_d3cc_a427);
        assert_eq!(Fleet::beginning(code), "0b4e28ba-2fa1");
        assert_eq!((Fleet::code(u128::MAX), Fleet::code(0)), ((1 << 60) - 1, 0));
    }

    #[test]
    fn an_incarnation_counts_the_timelines_that_may_have_been_forgotten() {
        let seen = Incarnation { store: 7, timeline: 3, counts: [0; 2] };
        let lives = |timeline| Incarnation { timeline, ..seen }.lives_since(&seen);
        assert_eq!([3, 4, 6, 1].map(lives), [1, 1, 3, 1]);
        assert_eq!(Incarnation { store: 8, timeline: 9, ..seen }.lives_since(&seen), 1);
    }

    const FLEET: Fleet = Fleet {
        uuid: 1,
        layout: None,
        range: None,
        loses_nothing: false,
        closed: false,
        longest_ms: 7000,
        skew_ms: 50,
        lease_ms: 0,
        clock_skew_ms: 0,
        incarnation: Incarnation { store: 7, timeline: 3, counts: [0; 2] },
        generation: 1,
        horizon_ms: i64::MIN,
        freeze_ms: i64::MIN,
        version: 1,
    };

    #[test]
    fn what_is_used_is_what_was_set_up_to_the_limits() {
        let used = |fleet: Fleet| (fleet.used_lease_ms(), fleet.used_skew_ms());
        assert_eq!(used(FLEET), (7000, 50));
        assert_eq!(used(Fleet { lease_ms: 6999, clock_skew_ms: 49, ..FLEET }), (6999, 49));
        assert_eq!(used(Fleet { lease_ms: 7001, clock_skew_ms: 51, ..FLEET }), (7000, 50));
        let wide = Fleet { longest_ms: i64::MAX, skew_ms: i64::MAX, ..FLEET };
        for unset in [0, -1, i64::MIN] {
            let fleet = Fleet { lease_ms: unset, clock_skew_ms: unset, ..wide };
            assert_eq!(used(fleet), (DEFAULT_LEASE_MS, DEFAULT_SKEW_MS));
        }
    }

    #[test]
    fn a_freeze_counts_with_the_greatest_limits_that_are_known() {
        let freeze = |longest_ms, skew_ms| {
            let new = FLEET.begin_generation(FLEET.incarnation, 1000, FleetLimits { longest_ms, skew_ms }, 2);
            (new.horizon_ms, new.freeze_ms, new.longest_ms, new.skew_ms)
        };
        assert_eq!(freeze(0, 0), (1100, 8100, 7000, 50));
        assert_eq!(freeze(6999, 49), (1100, 8100, 7000, 50));
        assert_eq!(freeze(9000, 60), (1120, 10_120, 7000, 50));
        let noted =
            |longest_ms, skew_ms| FleetLimits::default().noting(&Fleet { longest_ms, skew_ms, ..FLEET }).noting(&FLEET);
        assert_eq!(noted(1, 1), FleetLimits { longest_ms: 7000, skew_ms: 50 });
        assert_eq!(noted(9000, 60), FleetLimits { longest_ms: 9000, skew_ms: 60 });
        assert_eq!(noted(i64::MAX, i64::MAX), FleetLimits { longest_ms: MOST_LEASE_MS, skew_ms: MOST_SKEW_MS });
    }

    #[test]
    fn an_incarnation_shows_what_was_forgotten() {
        let postgres = Incarnation { store: 7, timeline: 3, counts: [0; 2] };
        assert_eq!(postgres.since(&postgres), SinceIncarnation::Same);
        assert_eq!(Incarnation { timeline: 4, ..postgres }.since(&postgres), SinceIncarnation::Failover);
        // A restore to a point in time may choose a timeline that is less.
        assert_eq!(Incarnation { timeline: 2, ..postgres }.since(&postgres), SinceIncarnation::Failover);
        assert_eq!(Incarnation { store: 8, ..postgres }.since(&postgres), SinceIncarnation::Other);
        let etcd = Incarnation { store: 7, timeline: 0, counts: [4, 3] };
        // An election forgets nothing.
        assert_eq!(Incarnation { counts: [5, 3], ..etcd }.since(&etcd), SinceIncarnation::Same);
        // A snapshot that was restored keeps the cluster and the term.
        let restored = Incarnation { counts: [4, -7], ..etcd };
        assert_eq!(restored.since(&etcd), SinceIncarnation::Other);
        // A second one shows as well.
        assert_eq!(Incarnation { counts: [4, -37], ..etcd }.since(&restored), SinceIncarnation::Other);
        assert_eq!(Incarnation { counts: [4, -1_000_000_007], ..etcd }.since(&restored), SinceIncarnation::Other);
    }
}
