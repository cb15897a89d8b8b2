//! What happens at the registry, in words: for stories, and for histories that fail. Instants are
//! seconds since the story or the history began.

use std::cell::RefCell;
use std::fmt::{Debug, Write as _};

use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::lease::{Lease, LeaseNotice};
use snowflake_core::fleet::membership::FleetNotice;
use snowflake_core::fleet::operate::{JumpedTag, Outcome, Refusal, Restored};
use snowflake_core::fleet::registry::{
    Fleet, Incarnation, NumberRecord, Reading, RecordChange, Swap, TagRecord, Wanted, WantedNumbers, WantedTags,
};
use snowflake_core::fleet::segment::{END, SupplyNotice};
use snowflake_core::fleet::tag::Tag;

/// Tells of leases by short names.
pub struct Words {
    start_ms: i64,
    /// The random names of leases, in the order in which they were told of.
    holders: RefCell<Vec<u128>>,
}

impl Words {
    pub fn new(start_ms: i64) -> Self {
        Self { start_ms, holders: RefCell::default() }
    }

    /// Writes an instant.
    pub fn at(&self, ms: i64) -> String {
        match ms {
            i64::MIN => "ever".to_owned(),
            ms => format!("{} s", ms.saturating_sub(self.start_ms) as f64 / 1000.0),
        }
    }

    /// Names a lease, in the order in which they come.
    fn holder(&self, holder: u128) -> String {
        let mut holders = self.holders.borrow_mut();
        let at = holders.iter().position(|known| *known == holder).unwrap_or_else(|| {
            holders.push(holder);
            holders.len() - 1
        });
        format!("L{}", at + 1)
    }

    pub fn reading(&self, wanted: &Wanted, reading: &Reading) -> String {
        let Incarnation { store, timeline, .. } = reading.incarnation;
        let fleet = reading.fleet;
        let mut text = match wanted {
            Wanted { numbers: WantedNumbers::One(number), .. } => format!("reads number {}", number.worker),
            Wanted { numbers: WantedNumbers::None, tags: WantedTags::None } => "reads the fleet".to_owned(),
            Wanted { tags: WantedTags::Named(tags), .. } => {
                let tags: Vec<_> = tags.iter().map(Tag::as_str).collect();
                format!("reads {}", tags.join(", "))
            }
            _ => "reads all".to_owned(),
        };
        write!(text, ": generation {}", fleet.generation).unwrap();
        if fleet.incarnation != reading.incarnation {
            write!(text, " of another registry (store {store}, timeline {timeline})").unwrap();
        }
        if fleet.layout.is_none() {
            text.push_str(", no layout");
        }
        if fleet.closed {
            text.push_str(", closed");
        }
        for (number, record) in &reading.numbers {
            let record = self.record(record);
            write!(text, "; {} is {record}", number.worker).unwrap();
        }
        for (tag, record) in &reading.tags {
            let record = tag_record(record);
            write!(text, "; {tag} is {record}").unwrap();
        }
        text
    }

    fn record(&self, record: &NumberRecord) -> String {
        let NumberRecord { from_ms, until_ms, count, generation, holder, .. } = *record;
        let holder = self.holder(holder);
        format!(
            "{holder} from {} until {} (change {count}, generation {generation})",
            self.at(from_ms),
            self.at(until_ms)
        )
    }

    /// Tells what a swap writes, in place of this record of the fleet.
    pub fn changes(&self, swap: &Swap, old: &Fleet) -> String {
        let changes: Vec<_> = swap.changes.iter().map(|change| self.change(change, old)).collect();
        changes.join("; ")
    }

    fn change(&self, change: &RecordChange, old: &Fleet) -> String {
        match change {
            RecordChange::Fleet(fleet) => {
                let mut text = format!("writes the fleet: generation {}", fleet.generation);
                if old.layout != fleet.layout {
                    text.push_str(if fleet.layout.is_some() { ", its layout" } else { ", no layout" });
                }
                if let Some((first, last)) = fleet.range.filter(|range| old.range != Some(*range)) {
                    write!(text, ", numbers {first} to {last}").unwrap();
                }
                if old.closed != fleet.closed {
                    text.push_str(if fleet.closed { ", closed" } else { ", open" });
                }
                if old.longest_ms != fleet.longest_ms {
                    let (longest_s, skew_s) = (fleet.longest_ms / 1000, fleet.skew_ms / 1000);
                    write!(text, ", leases of up to {longest_s} s, clocks up to {skew_s} s apart").unwrap();
                }
                if old.longest_ms > 0 && old.used_lease_ms() != fleet.used_lease_ms() {
                    write!(text, ", leases of {} s", fleet.used_lease_ms() / 1000).unwrap();
                }
                if old.generation == fleet.generation && old.incarnation != fleet.incarnation {
                    text.push_str(", in this registry");
                }
                if old.generation != fleet.generation {
                    let (horizon, freeze) = (self.at(fleet.horizon_ms), self.at(fleet.freeze_ms));
                    write!(text, ", horizon {horizon}, freeze until {freeze}").unwrap();
                }
                text
            }
            RecordChange::Number { number, record, .. } => {
                let record = self.record(record);
                format!("writes number {} as {record}", number.worker)
            }
            RecordChange::DropNumber { number, .. } => format!("deletes the record of number {}", number.worker),
            RecordChange::Tag { tag, record: Some(record), .. } => format!("writes {tag} as {}", tag_record(record)),
            RecordChange::Tag { tag, record: None, .. } => format!("deletes {tag}"),
        }
    }

    pub fn notice(&self, notice: &LeaseNotice) -> String {
        let lease = |what: &str, lease: &Lease| {
            let holder = self.holder(lease.holder);
            format!(
                "{what} {} as {holder} from {} until {}",
                lease.worker,
                self.at(lease.from_ms),
                self.at(lease.until_ms)
            )
        };
        match notice {
            LeaseNotice::Acquired(of) => lease("acquired", of),
            LeaseNotice::Entered(of) => lease("entered", of),
            LeaseNotice::GivenBack(of) => lease("gave back", of),
            LeaseNotice::Older(of) => lease("the registry has forgotten", of),
            LeaseNotice::Lost(of) => lease("another server has, after its end here,", of),
            LeaseNotice::Copied(of) => lease("a copy of this memory has renewed", of),
            LeaseNotice::Overlapped(of) => lease("another server has, at the same time,", of),
            LeaseNotice::ClockOff { offset_ms } => format!("the clocks are {} s apart", offset_ms / 1000),
        }
    }

    pub fn fleet_notice(&self, notice: &FleetNotice) -> String {
        match notice {
            FleetNotice::Adopted(_) => "the fleet has what this server brings".to_owned(),
            FleetNotice::Forgot(fleet) => {
                format!("the registry has forgotten; freeze until {}", self.at(fleet.freeze_ms))
            }
        }
    }

    pub fn supply_notice(&self, notice: &SupplyNotice) -> String {
        match notice {
            SupplyNotice::Jumped { tag, skipped, to } => format!("{tag} has jumped by {skipped} values to {to}"),
            SupplyNotice::Gone(tag) => format!("the registry has no {tag} any more"),
            SupplyNotice::Ended(tag) => format!("{tag} has no more values"),
            SupplyNotice::NoJump(tag) => format!("an operator must say where {tag} goes on"),
            SupplyNotice::TooFar { tag, from } => format!("{tag} lies too far below {from}"),
            SupplyNotice::Below { tag, above } => format!("{tag} lies below {above}, up to where values were had"),
            SupplyNotice::Unusable { tag, block } => format!("{block:?} of {tag} cannot be used"),
            SupplyNotice::GivenBack { tag, first } => format!("gave back {tag} from {first} on"),
        }
    }

    /// Tells what an operation has done.
    pub fn outcome(&self, outcome: &Outcome) -> String {
        match outcome {
            Outcome::RangeSet { first, last, .. } => format!("numbers {first} to {last} may be leased"),
            Outcome::LimitsSet { longest_ms, used_lease_ms, .. } => {
                let (longest_s, used_s) = (longest_ms / 1000, used_lease_ms / 1000);
                format!("leases may be {longest_s} s long, and are {used_s} s long")
            }
            Outcome::LeaseSet { lease_ms, .. } => format!("leases are {} s long", lease_ms / 1000),
            Outcome::Closed { .. } => "nothing is leased or renewed".to_owned(),
            Outcome::Opened { moved: true, .. } => "servers use this registry, and nothing is forgotten".to_owned(),
            Outcome::Opened { moved: false, .. } => "servers use this registry".to_owned(),
            Outcome::Restored(restored) => self.restored(restored),
            Outcome::Lost { generation, freeze_ms, .. } => {
                format!("generation {generation}, freeze until {}", self.at(*freeze_ms))
            }
            Outcome::Reserved { number, until_ms } => {
                format!("number {} is kept until {}", number.worker, self.at(*until_ms))
            }
            Outcome::TagCreated { tag, .. } => format!("{tag} is made"),
            Outcome::TagSet { tag, was, record } if was.next == record.next => format!("{tag} is changed"),
            Outcome::TagSet { tag, was, record } => {
                format!("{tag} goes on at {} in place of {}", record.next, was.next)
            }
            Outcome::TagDropped { tag, .. } => format!("{tag} is deleted"),
            other => format!("{other:?}"),
        }
    }

    fn restored(&self, restored: &Restored) -> String {
        let Restored { generation, freeze_ms, jumped, stopped, .. } = restored;
        let mut text = format!("generation {generation}, freeze until {}", self.at(*freeze_ms));
        for JumpedTag { tag, from, to } in jumped {
            write!(text, "; {tag} jumps from {from} to {to}").unwrap();
        }
        for (tag, next) in stopped {
            write!(text, "; {tag} stops at {next}").unwrap();
        }
        text
    }

    /// Tells why an operation is refused.
    pub fn refusal(&self, refusal: &Refusal) -> String {
        match refusal {
            Refusal::NotNoted { .. } => "no server has noted what the registry may have forgotten".to_owned(),
            Refusal::IsClosed => "the fleet is closed".to_owned(),
            Refusal::NotClosed => "the fleet is not closed".to_owned(),
            Refusal::GenerationBegan { was, generation, .. } => {
                format!("generation {generation} has begun since generation {was} was read")
            }
            Refusal::TagExists { tag } => format!("{tag} is there already"),
            Refusal::NextLowered { tag, least, .. } => format!("{tag} goes on at {least} at least"),
            Refusal::NeedsNext { tag, least } => format!("it must also say where {tag} goes on, at {least} at least"),
            Refusal::NumberLeased { number, until_ms, .. } => {
                format!("number {} is leased until {}", number.worker, self.at(*until_ms))
            }
            Refusal::MayBeLost { number, until_ms } => {
                format!("a lost lease of number {} may run until {}", number.worker, self.at(*until_ms))
            }
            other => format!("{other:?}"),
        }
    }

    /// Tells why a turn has come to nothing.
    pub fn failure<E: Copy + Debug>(&self, failure: &Failure<E>) -> String {
        match *failure {
            Failure::Frozen { until_ms } => format!("no number can be used before {}", self.at(until_ms)),
            Failure::NoneFree { numbers, living, .. } => {
                format!("{living} of {numbers} numbers are renewed, none is free")
            }
            Failure::ClockOff { now_ms, registry_ms, .. } => {
                format!("the clock shows {}, and the registry's {}", self.at(now_ms), self.at(registry_ms))
            }
            Failure::Closed => "the fleet is closed".to_owned(),
            Failure::OtherFleet { .. } => "the registry is another fleet's".to_owned(),
            other => format!("{other:?}"),
        }
    }
}

fn tag_record(record: &TagRecord) -> String {
    let TagRecord { next, generation, returnable, .. } = *record;
    let returnable = if returnable == END { String::new() } else { format!(", returnable from {returnable} on") };
    format!("{next} next (generation {generation}{returnable})")
}
