//! What a server knows of its fleet, and what it writes of it. The holder of its lease
//! (`lease/holder.rs`) and the supply of its blocks (`segment/supply.rs`) read one registry, so
//! they share this.

use crate::fleet::bytes::bytes;
use crate::fleet::registry::{Fleet, FleetLimits, MemberTerms, Reading};

/// What one life of shared memory knows of its fleet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Membership {
    /// Which fleet this life belongs to, once it has read a registry.
    fleet: Option<u128>,
    /// The greatest limits that the fleet's record has had.
    limits: FleetLimits,
    /// How far clocks are taken to be apart, as the fleet's record said last, in milliseconds.
    skew_ms: i64,
}

bytes!(FleetLimits { longest_ms: i64, skew_ms: i64 });
bytes!(Membership { fleet: Option<u128>, limits: FleetLimits, skew_ms: i64 });

impl Membership {
    /// Makes what is known at the start: nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the uuid of the fleet, once a registry was read.
    pub fn fleet(&self) -> Option<u128> {
        self.fleet
    }

    /// Returns how far clocks are taken to be apart, as the fleet's record said last, in
    /// milliseconds.
    pub fn skew_ms(&self) -> i64 {
        self.skew_ms
    }

    /// Takes what was read of the fleet. Refuses another fleet than the one that this life has
    /// first read, of whose leases and blocks that one knows nothing. Nothing is noted of it then.
    ///
    /// # Errors
    /// [`OtherFleet`].
    pub fn read(&mut self, fleet: &Fleet) -> Result<(), OtherFleet> {
        let (known, found) = (*self.fleet.get_or_insert(fleet.uuid), fleet.uuid);
        if known != found {
            return Err(OtherFleet { known, found });
        }
        self.limits = self.limits.noting(fleet);
        self.skew_ms = fleet.used_skew_ms();
        Ok(())
    }

    /// Returns what has to be written of the fleet before anything else, if there is something
    /// ([`Fleet::amended`]).
    pub fn amends(&self, reading: &Reading, member: &MemberTerms, version: u64) -> Option<Fleet> {
        reading.fleet.amended(reading, member, self.limits, version)
    }

    /// Returns the beginning of a generation, because the registry has forgotten something.
    pub fn begins_generation(&self, reading: &Reading, version: u64) -> Fleet {
        let Reading { fleet, incarnation, now_ms, .. } = reading;
        fleet.begin_generation(*incarnation, *now_ms, self.limits, version)
    }
}

/// The registry is that of another fleet than the one that this life belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherFleet {
    /// The uuid of this life's fleet.
    pub known: u128,
    /// The uuid of the registry's fleet.
    pub found: u128,
}

/// What operators should know of the fleet's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetNotice {
    /// It now holds what this server has brought as the fleet's first, and limits.
    Adopted(Fleet),
    /// The registry has forgotten something, and a generation has begun.
    Forgot(Fleet),
}

impl FleetNotice {
    /// Returns what operators should know when a server has written `new` in place of `old`.
    pub(crate) fn of(old: &Fleet, new: &Fleet) -> impl Iterator<Item = Self> + use<> {
        let brought = |fleet: &Fleet| (fleet.layout, fleet.range, fleet.longest_ms, fleet.skew_ms);
        let adopted = (brought(new) != brought(old)).then_some(Self::Adopted(*new));
        let forgot = (new.generation != old.generation).then_some(Self::Forgot(*new));
        adopted.into_iter().chain(forgot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::registry::Incarnation;

    const INCARNATION: Incarnation = Incarnation { store: 7, timeline: 3, counts: [0; 2] };

    const FLEET: Fleet = Fleet {
        uuid: 1,
        layout: Some((5, false)),
        range: Some((0, 7)),
        loses_nothing: false,
        closed: false,
        longest_ms: 7000,
        skew_ms: 50,
        lease_ms: 0,
        clock_skew_ms: 0,
        incarnation: INCARNATION,
        generation: 1,
        horizon_ms: i64::MIN,
        freeze_ms: i64::MIN,
        version: 1,
    };

    const MEMBER: MemberTerms = MemberTerms { layout: (5, false), range: (0, 7) };

    fn reading(fleet: Fleet, incarnation: Incarnation) -> Reading {
        let (numbers, tags) = Default::default();
        Reading { fleet, numbers, tags, incarnation, now_ms: 1000 }
    }

    #[test]
    fn another_fleet_is_refused_and_nothing_is_noted_of_it() {
        let mut known = Membership::new();
        assert_eq!((known.fleet(), known.read(&FLEET), known.fleet()), (None, Ok(()), Some(1)));
        let before = known;
        let other = Fleet { uuid: 2, longest_ms: 9000, ..FLEET };
        assert_eq!(known.read(&other), Err(OtherFleet { known: 1, found: 2 }));
        assert_eq!(known, before);
    }

    /// A registry that forgets may lack a raise, and with it leases of that length.
    #[test]
    fn a_generation_counts_with_the_greatest_limits_that_were_read() {
        let mut known = Membership::new();
        known.read(&Fleet { longest_ms: 9000, skew_ms: 60, ..FLEET }).unwrap();
        known.read(&FLEET).unwrap();
        assert_eq!(known.skew_ms(), 50);
        let begun = known.begins_generation(&reading(FLEET, INCARNATION), 2);
        assert_eq!((begun.freeze_ms, begun.longest_ms, begun.skew_ms), (10_120, 7000, 50));
        let promoted = Incarnation { timeline: 4, ..INCARNATION };
        let amended = known.amends(&reading(FLEET, promoted), &MEMBER, 2).unwrap();
        assert_eq!((amended.freeze_ms, amended.generation), (10_120, 2));
        assert_eq!(known.amends(&reading(FLEET, INCARNATION), &MEMBER, 2), None);
    }

    #[test]
    fn what_is_adopted_and_what_is_forgotten_is_told_once_it_is_written() {
        let new = Fleet { layout: None, range: None, longest_ms: 0, skew_ms: 0, ..FLEET };
        let promoted = Incarnation { timeline: 4, ..INCARNATION };
        let reported = |old: Fleet, incarnation| {
            let written = Membership::new().amends(&reading(old, incarnation), &MEMBER, 2).unwrap();
            let name = |notice| match notice {
                FleetNotice::Adopted(fleet) => ("adopted", fleet == written),
                FleetNotice::Forgot(fleet) => ("forgot", fleet == written),
            };
            FleetNotice::of(&old, &written).map(name).collect::<Vec<_>>()
        };
        assert_eq!(reported(new, INCARNATION), [("adopted", true)]);
        assert_eq!(reported(FLEET, promoted), [("forgot", true)]);
        assert_eq!(reported(new, promoted), [("adopted", true), ("forgot", true)]);
        // An operator vouches that nothing was lost. The incarnation alone is no news.
        assert_eq!(reported(Fleet { loses_nothing: true, ..FLEET }, promoted), []);
    }
}
