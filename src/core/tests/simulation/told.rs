//! What happens at the registry, in words: for stories, and for histories that fail. Instants are
//! seconds since the story or the history began.

use std::cell::RefCell;
use std::fmt::{Debug, Write as _};

use snowflake_core::lease::{Failure, Lease, LeaseNotice};
use snowflake_core::registry::{Change, Fleet, Incarnation, NumberRecord, Reading, Wanted};

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

    pub fn reading(&self, wanted: Wanted, reading: &Reading) -> String {
        let Incarnation { store, timeline, .. } = reading.incarnation;
        let fleet = reading.fleet;
        let mut text = match wanted {
            Wanted::All => "reads all".to_owned(),
            Wanted::Number(worker) => format!("reads number {worker}"),
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
        for (worker, record) in &reading.records {
            let record = self.record(record);
            write!(text, "; {worker} is {record}").unwrap();
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

    pub fn change(&self, change: &Change, old: &Fleet) -> String {
        match change {
            Change::Fleet(fleet) => {
                let mut text = format!("writes the fleet: generation {}", fleet.generation);
                if old.layout != fleet.layout {
                    text.push_str(", its layout");
                }
                if old.longest_ms != fleet.longest_ms {
                    let (longest_s, skew_s) = (fleet.longest_ms / 1000, fleet.skew_ms / 1000);
                    write!(text, ", leases of up to {longest_s} s, clocks up to {skew_s} s apart").unwrap();
                }
                if old.generation != fleet.generation {
                    let (horizon, freeze) = (self.at(fleet.horizon_ms), self.at(fleet.freeze_ms));
                    write!(text, ", horizon {horizon}, freeze until {freeze}").unwrap();
                }
                text
            }
            Change::Number { worker, record, .. } => {
                let record = self.record(record);
                format!("writes number {worker} as {record}")
            }
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
            LeaseNotice::Adopted(_) => "the fleet has what this server brings".to_owned(),
            LeaseNotice::Forgot(fleet) => {
                format!("the registry has forgotten; freeze until {}", self.at(fleet.freeze_ms))
            }
            LeaseNotice::ClockOff { offset_ms } => format!("the clocks are {} s apart", offset_ms / 1000),
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
            other => format!("{other:?}"),
        }
    }
}
