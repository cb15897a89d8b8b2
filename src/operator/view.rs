//! What `show` and `check` say of a fleet: facts, computed from what was read.

use std::collections::{BTreeMap, BTreeSet};

use snowflake_core::fleet::lease::FIRST_LEASE_MS;
use snowflake_core::fleet::registry::{FleetLimits, NumberKey, NumberRecord, Reading, SinceIncarnation, TagRecord};
use snowflake_core::fleet::segment::END;
use snowflake_core::fleet::tag::Tag;
use snowflake_core::id::identity::Identity;
use snowflake_core::id::layout::{Field, Layout};
use snowflake_registry::{Kind, MemberName};

/// The longest time between two renewals, in milliseconds, and how many there are in a lease that
/// is short (`core/fleet/lease/decisions.rs`).
const RENEWED_EVERY_MS: i64 = 10_000;
const RENEWALS_PER_LEASE: i64 = 10;

/// How many renewals may be missing until a server counts as late.
const MISSED: i64 = 4;

/// What the registry holds of a fleet, with the names that people know servers by.
#[derive(Debug, Clone)]
pub struct View {
    /// The fleet's name.
    pub fleet: String,
    /// What the registry is in.
    pub kind: Kind,
    /// Its address, without secrets.
    pub address: String,
    /// What was read.
    pub reading: Reading,
    /// The servers that hold the numbers, or have held them last.
    pub names: BTreeMap<NumberKey, MemberName>,
    /// What tags are for.
    pub descriptions: BTreeMap<Tag, String>,
}

/// What a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NumberState {
    /// A server has it now.
    Held,
    /// A server has it, for ids of a later time.
    Ahead,
    /// An operator keeps it.
    Reserved,
    /// Free after the freeze.
    Frozen,
    /// Free.
    Free,
}

impl NumberState {
    /// The name, as the registry's view has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Ahead => "ahead",
            Self::Reserved => "reserved",
            Self::Frozen => "frozen",
            Self::Free => "free",
        }
    }

    /// Whether a server has it.
    pub fn is_leased(self) -> bool {
        matches!(self, Self::Held | Self::Ahead)
    }
}

/// One number.
#[derive(Debug, Clone)]
pub struct NumberView {
    /// Which number.
    pub key: NumberKey,
    /// Its record.
    pub record: NumberRecord,
    /// Its server.
    pub name: MemberName,
    /// What it is now.
    pub state: NumberState,
    /// Whether it is leased, and its server has missed several renewals.
    pub is_late: bool,
    /// Whether a server has renewed it lately. No server has written a time that is still to come.
    pub is_living: bool,
    /// Whether it is late because its server has started again, with another number.
    pub is_left_behind: bool,
    /// Whether it is leased, and lies outside of the range.
    pub is_outside: bool,
    /// Whether its lease has ended, was not given back, and is the last one that its server wrote,
    /// which has no other. So that server has no number, if it runs.
    pub is_dropped: bool,
}

impl NumberView {
    /// Names its server: host and port, or nothing for a number that an operator keeps.
    pub fn server(&self) -> String {
        let MemberName { host, port, .. } = &self.name;
        if host.is_empty() { String::new() } else { format!("{host}:{port}") }
    }
}

/// What a tag does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagState {
    /// It gives values.
    Open,
    /// It jumps at its next block, because the registry may have lost some.
    Jumps,
    /// It gives nothing until its next value is set.
    Stopped,
    /// It has no values left.
    Ended,
}

impl TagState {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Jumps => "jumps",
            Self::Stopped => "stopped",
            Self::Ended => "ended",
        }
    }
}

impl View {
    /// Returns all numbers that have a record.
    pub fn numbers(&self) -> Vec<NumberView> {
        let Reading { fleet, numbers, now_ms, .. } = &self.reading;
        let latest_ms = now_ms.saturating_add(fleet.used_skew_ms());
        let is_living = |record: &NumberRecord| !is_late(record, *now_ms) && record.renewed_ms <= latest_ms;
        // The servers that renew something.
        let living: BTreeSet<u64> = numbers
            .values()
            .filter(|record| record.server != 0 && record.until_ms > *now_ms && is_living(record))
            .map(|record| record.server)
            .collect();
        // When each server has written one of its records last.
        let mut written: BTreeMap<u64, i64> = BTreeMap::new();
        for record in numbers.values() {
            let last_ms = written.entry(record.server).or_insert(i64::MIN);
            *last_ms = record.renewed_ms.max(*last_ms);
        }
        // The servers that hold something, renewed or not.
        let holding: BTreeSet<u64> =
            numbers.values().filter(|record| record.until_ms > *now_ms).map(|record| record.server).collect();
        let view = |(key, record): (&NumberKey, &NumberRecord)| {
            let state = if record.until_ms <= *now_ms {
                let is_frozen = record.generation < fleet.generation && fleet.freeze_ms > *now_ms;
                if is_frozen { NumberState::Frozen } else { NumberState::Free }
            } else if record.server == 0 {
                NumberState::Reserved
            } else if record.from_ms > *now_ms {
                NumberState::Ahead
            } else {
                NumberState::Held
            };
            let is_late = state.is_leased() && is_late(record, *now_ms);
            let is_inside = fleet.range.is_some_and(|(first, last)| (first..=last).contains(&key.worker));
            let is_last = record.server != 0 && written[&record.server] == record.renewed_ms;
            let has_none = !holding.contains(&record.server);
            NumberView {
                key: *key,
                record: *record,
                name: self.names.get(key).cloned().unwrap_or_default(),
                state,
                is_late,
                is_living: is_living(record),
                is_left_behind: is_late && living.contains(&record.server),
                is_outside: state.is_leased() && !is_inside,
                is_dropped: has_none && is_last && !self.was_given_back(record),
            }
        };
        numbers.iter().map(view).collect()
    }

    /// Whether a server has given a lease back: its end lies where the server's ids were then, and
    /// not as far ahead as a lease that is renewed.
    fn was_given_back(&self, record: &NumberRecord) -> bool {
        let NumberRecord { from_ms, until_ms, renewed_ms, offset_ms, .. } = *record;
        let fleet = &self.reading.fleet;
        let ahead_ms = until_ms.saturating_sub(renewed_ms).saturating_sub(offset_ms.min(fleet.used_skew_ms()));
        until_ms <= from_ms || ahead_ms < fleet.used_lease_ms().min(FIRST_LEASE_MS) / 2
    }

    /// Returns how many numbers the range has, in each datacenter.
    pub fn in_range(&self) -> Option<i64> {
        self.reading.fleet.range.map(|(first, last)| last.saturating_sub(first).saturating_add(1))
    }

    /// Returns how many numbers of the range cannot be leased now, in each datacenter that has any.
    pub fn taken(&self) -> BTreeMap<Option<i64>, i64> {
        let mut taken = BTreeMap::new();
        let (first, last) = self.reading.fleet.range.unwrap_or((0, -1));
        for number in self.numbers() {
            let is_inside = (first..=last).contains(&number.key.worker);
            if is_inside && !matches!(number.state, NumberState::Free | NumberState::Frozen) {
                *taken.entry(number.key.datacenter).or_insert(0) += 1;
            }
        }
        taken
    }

    /// Returns the fleet's layout, if it is built in.
    pub fn layout(&self) -> Option<Layout> {
        let (fingerprint, _) = self.reading.fleet.layout?;
        Layout::parse(Layout::built_in_with(fingerprint)?).ok()
    }

    /// Returns how many numbers the fleet's layout has for servers, if it is built in.
    pub fn layout_numbers(&self) -> Option<i64> {
        let (_, has_backup) = self.reading.fleet.layout?;
        Identity::worker_numbers(&self.layout()?, has_backup).ok()
    }

    /// Whether each datacenter has numbers of its own.
    pub fn has_datacenters(&self) -> bool {
        self.layout().is_some_and(|layout| layout.max_of(Field::Datacenter).is_some())
            || self.reading.numbers.keys().any(|key| key.datacenter.is_some())
    }

    /// Whether the registry may have lost something that no server has noted yet.
    pub fn is_unnoted(&self) -> bool {
        let Reading { fleet, incarnation, .. } = &self.reading;
        match incarnation.since(&fleet.incarnation) {
            SinceIncarnation::Same => false,
            SinceIncarnation::Failover => !fleet.loses_nothing,
            SinceIncarnation::Other => true,
        }
    }

    /// Returns the generation of what is given now: the one that the next server begins, if it will
    /// find that the registry may have lost something.
    fn generation(&self) -> u64 {
        let Reading { fleet, incarnation, now_ms, .. } = &self.reading;
        match self.is_unnoted() {
            true => fleet.begin_generation(*incarnation, *now_ms, FleetLimits::default(), 0).generation,
            false => fleet.generation,
        }
    }

    /// Returns what a tag does now.
    pub fn tag_state(&self, record: &TagRecord) -> TagState {
        if record.next == END {
            TagState::Ended
        } else if record.generation >= self.generation() {
            TagState::Open
        } else if !record.jumps {
            TagState::Stopped
        } else {
            TagState::Jumps
        }
    }

    /// Returns for how long the freeze still runs, in milliseconds.
    pub fn frozen_ms(&self) -> Option<i64> {
        let left_ms = self.reading.fleet.freeze_ms.saturating_sub(self.reading.now_ms);
        (left_ms > 0).then_some(left_ms)
    }
}

/// Whether a server has missed several renewals. A short lease is renewed more often.
fn is_late(record: &NumberRecord, now_ms: i64) -> bool {
    let length_ms = record.until_ms.saturating_sub(record.renewed_ms);
    let every_ms = (length_ms / RENEWALS_PER_LEASE).clamp(1000, RENEWED_EVERY_MS);
    now_ms.saturating_sub(record.renewed_ms) > MISSED * every_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{INCARNATION, NOW_MS, TAG, number, view};
    use snowflake_core::fleet::registry::{Fleet, Incarnation};

    fn states(view: &View) -> Vec<(i64, NumberState)> {
        view.numbers().iter().map(|number| (number.key.worker, number.state)).collect()
    }

    #[test]
    fn a_number_is_what_its_record_and_the_clock_say() {
        let mut view = view();
        let (held, key) = (number(NOW_MS - 1, NOW_MS + 1), |worker| NumberKey::new(None, worker));
        view.reading.numbers = [
            (1, held),
            (2, NumberRecord { from_ms: NOW_MS + 1, until_ms: NOW_MS + 2, ..held }),
            (3, NumberRecord { server: 0, ..held }),
            (4, NumberRecord { until_ms: NOW_MS, ..held }),
            (5, NumberRecord { until_ms: NOW_MS, generation: 2, ..held }),
        ]
        .map(|(worker, record)| (key(worker), record))
        .into();
        view.reading.fleet.freeze_ms = NOW_MS + 1;
        use NumberState::{Ahead, Free, Frozen, Held, Reserved};
        assert_eq!(states(&view), [(1, Held), (2, Ahead), (3, Reserved), (4, Free), (5, Frozen)]);
        assert_eq!(view.taken(), [(None, 3)].into());
        view.reading.fleet.freeze_ms = NOW_MS;
        assert_eq!(states(&view)[4], (5, Free));
    }

    #[test]
    fn a_server_is_late_that_has_missed_several_renewals() {
        let lease = number(NOW_MS - 86_400_000, NOW_MS + 560_000);
        let late = |renewed_ms| is_late(&NumberRecord { renewed_ms, ..lease }, NOW_MS);
        assert!(!late(NOW_MS - 40_000) && late(NOW_MS - 40_001));
        // A first lease of half a minute is renewed every three seconds.
        let first = NumberRecord { renewed_ms: NOW_MS - 12_001, until_ms: NOW_MS + 17_999, ..lease };
        assert!(is_late(&first, NOW_MS) && !is_late(&first, NOW_MS - 1));
    }

    #[test]
    fn what_a_crash_leaves_behind_is_told_from_a_server_that_is_cut_off() {
        let mut view = view();
        let old = NumberRecord { renewed_ms: NOW_MS - 100_000, ..number(NOW_MS - 86_400_000, NOW_MS + 500_000) };
        // Number 4 has the fingerprint 4, and its server lives.
        view.reading.numbers.insert(NumberKey::new(None, 8), NumberRecord { server: 4, ..old });
        view.reading.numbers.insert(NumberKey::new(None, 9), NumberRecord { server: 9, ..old });
        let late: Vec<_> =
            view.numbers().iter().filter(|number| number.is_late).map(|n| (n.key.worker, n.is_left_behind)).collect();
        assert_eq!(late, [(8, true), (9, false)]);
        // A record of a time that is still to come shows no server that lives.
        let four = view.reading.numbers.get_mut(&NumberKey::new(None, 4)).unwrap();
        four.renewed_ms = i64::MAX;
        assert!(view.numbers().iter().all(|number| !number.is_left_behind));
        let living: Vec<_> = view.numbers().iter().map(|number| (number.key.worker, number.is_living)).collect();
        assert_eq!(living[..2], [(4, false), (5, true)]);
    }

    #[test]
    fn a_tag_stops_where_the_registry_may_have_lost_blocks() {
        let mut view = view();
        let jumping = TagRecord { jumps: true, ..TAG };
        let states = |view: &View| [TAG, jumping].map(|record| view.tag_state(&record));
        assert_eq!(states(&view), [TagState::Open, TagState::Open]);
        view.reading.fleet.generation += 1;
        assert_eq!(states(&view), [TagState::Stopped, TagState::Jumps]);
        view.reading.fleet.generation -= 1;
        // No server has noted it yet.
        view.reading.incarnation = Incarnation { timeline: 4, ..INCARNATION };
        assert_eq!(states(&view), [TagState::Stopped, TagState::Jumps]);
        view.reading.fleet = Fleet { loses_nothing: true, ..view.reading.fleet };
        assert_eq!(states(&view), [TagState::Open, TagState::Open]);
        assert_eq!(view.tag_state(&TagRecord { next: END, ..TAG }), TagState::Ended);
    }
}
