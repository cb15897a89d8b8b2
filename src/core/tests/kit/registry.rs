//! A simulated registry: a log of changes on one machine, of which a standby or a backup holds a
//! prefix. It can be away, fail over, and be restored, copied, and made again after a loss.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use snowflake_core::fleet::operate::new_fleet;
use snowflake_core::fleet::registry::{
    DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, Fleet, Incarnation, NumberKey, NumberRecord, Reading, RecordChange, Swap,
    SwapAnswer, TagRecord, Wanted, WantedNumbers, WantedTags,
};
use snowflake_core::fleet::tag::Tag;
use snowflake_core::id::layout::Layout;

/// Which kind of store it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PostgreSQL: a failover shows another timeline, and may lose the last changes. The
    /// incarnation is compared in the swap.
    Postgres,
    /// PostgreSQL with a synchronous standby, for which an operator vouches. What can be read may
    /// still be lost.
    Synchronous,
    /// etcd: a failover loses nothing. The incarnation is only in the answer.
    Etcd,
}

/// What a registry has stored, and where.
#[derive(Debug, Clone)]
pub struct Store {
    pub kind: Kind,
    /// What each swap has written.
    log: Vec<Vec<RecordChange>>,
    /// How many swaps a synchronous standby has.
    pub synced: usize,
    pub fleet: Fleet,
    pub numbers: BTreeMap<NumberKey, NumberRecord>,
    pub tags: BTreeMap<Tag, TagRecord>,
    /// The leases of numbers whose records an operator has deleted, also if this registry has
    /// forgotten that.
    pub dropped: Rc<RefCell<BTreeSet<u128>>>,
    pub incarnation: Incarnation,
    /// How far the machine's clock is from the right time.
    pub offset_ms: i64,
}

impl Store {
    pub fn new(kind: Kind, fleet: Fleet, offset_ms: i64) -> Self {
        Self {
            kind,
            log: vec![vec![RecordChange::Fleet(fleet)]],
            synced: 1,
            fleet,
            numbers: BTreeMap::new(),
            tags: BTreeMap::new(),
            dropped: Rc::default(),
            incarnation: fleet.incarnation,
            offset_ms,
        }
    }

    /// Reads at the right time `time_ms`.
    pub fn read(&self, wanted: &Wanted, time_ms: i64) -> Reading {
        let is_wanted_number = |number: &NumberKey| match wanted.numbers {
            WantedNumbers::None => false,
            WantedNumbers::One(one) => *number == one,
            WantedNumbers::Of(datacenter) => number.datacenter == datacenter,
            WantedNumbers::All => true,
        };
        let is_wanted_tag = |tag: &Tag| match &wanted.tags {
            WantedTags::None => false,
            WantedTags::Named(tags) => tags.contains(tag),
            WantedTags::All => true,
        };
        let numbers = self.numbers.iter().filter(|(number, _)| is_wanted_number(number));
        let tags = self.tags.iter().filter(|(tag, _)| is_wanted_tag(tag));
        Reading {
            fleet: self.fleet,
            numbers: numbers.map(|(number, record)| (*number, *record)).collect(),
            tags: tags.map(|(tag, record)| (*tag, *record)).collect(),
            incarnation: self.incarnation,
            now_ms: time_ms + self.offset_ms,
        }
    }

    /// Whether what a server's swap compares is as it was read. With `records_alone`, only the
    /// records that are replaced count, unless the fleet's is.
    pub fn compares(&self, swap: &Swap, records_alone: bool) -> bool {
        let as_read = self.is_as_read(swap) && !self.fleet.closed;
        (as_read || records_alone) && self.are_as_read(swap, as_read)
    }

    /// Whether what an operator's swap compares is as it was read.
    pub fn compares_for_operator(&self, swap: &Swap) -> bool {
        self.is_as_read(swap) && self.are_as_read(swap, true)
    }

    fn is_as_read(&self, swap: &Swap) -> bool {
        swap.fleet == self.fleet.version && (self.kind == Kind::Etcd || swap.incarnation == self.incarnation)
    }

    fn are_as_read(&self, swap: &Swap, is_fleet: bool) -> bool {
        swap.changes.iter().all(|change| match change {
            RecordChange::Fleet(_) => is_fleet,
            RecordChange::Number { number, was, .. } => self.numbers.get(number).map(|record| record.nonce) == *was,
            RecordChange::DropNumber { number, was } => {
                self.numbers.get(number).is_some_and(|record| record.nonce == *was)
            }
            RecordChange::Tag { tag, was, .. } => self.tags.get(tag).map(|record| record.nonce) == *was,
        })
    }

    /// Compares and swaps, for a server.
    pub fn swap(&mut self, swap: &Swap) -> SwapAnswer {
        if self.compares(swap, false) { self.write(swap.changes.clone()) } else { SwapAnswer::Refused }
    }

    /// Writes in one step, and compares nothing.
    pub fn write(&mut self, changes: Vec<RecordChange>) -> SwapAnswer {
        for change in &changes {
            match *change {
                RecordChange::Fleet(fleet) => self.fleet = fleet,
                RecordChange::Number { number, record, .. } => _ = self.numbers.insert(number, record),
                RecordChange::DropNumber { number, .. } => {
                    // The next lease is counted anew, so each of these would look like a later one.
                    let its = self.log.iter().flatten().filter_map(|change| match change {
                        RecordChange::Number { number: of, record, .. } if *of == number => Some(record.holder),
                        _ => None,
                    });
                    self.dropped.borrow_mut().extend(its);
                    self.numbers.remove(&number);
                }
                RecordChange::Tag { tag, record: Some(record), .. } => _ = self.tags.insert(tag, record),
                RecordChange::Tag { tag, record: None, .. } => _ = self.tags.remove(&tag),
            }
        }
        self.log.push(changes);
        SwapAnswer::Done(self.incarnation)
    }

    /// A synchronous standby has what is written.
    pub fn sync(&mut self) {
        self.synced = self.changes();
    }

    /// Returns how many swaps there were.
    pub fn changes(&self) -> usize {
        self.log.len()
    }

    /// Returns the fleet's records, in the order written, each with the number of its swap.
    pub fn fleets(&self) -> impl Iterator<Item = (usize, Fleet)> {
        self.log.iter().enumerate().flat_map(|(at, changes)| {
            changes.iter().filter_map(move |change| match change {
                RecordChange::Fleet(fleet) => Some((at, *fleet)),
                RecordChange::Number { .. } | RecordChange::DropNumber { .. } | RecordChange::Tag { .. } => None,
            })
        })
    }

    /// Returns the nonces of all tags' records, in the order written.
    pub fn tag_nonces(&self) -> impl Iterator<Item = u64> {
        self.log.iter().flatten().filter_map(|change| match change {
            RecordChange::Tag { record: Some(record), .. } => Some(record.nonce),
            _ => None,
        })
    }

    /// Returns a copy that lacks what comes after the first `end` swaps.
    pub fn prefix(&self, end: usize) -> Self {
        let [RecordChange::Fleet(first)] = self.log[0][..] else { unreachable!("the first change makes the fleet") };
        let mut copy = Self::new(self.kind, first, self.offset_ms);
        for changes in &self.log[1..end] {
            copy.write(changes.clone());
        }
        copy.synced = self.synced.min(end);
        copy.incarnation = self.incarnation;
        copy.dropped = self.dropped.clone();
        copy
    }
}

/// Returns the fleet of a registry of this kind, which no server has used.
pub fn unused_fleet(kind: Kind, uuid: u128, version: u64) -> Fleet {
    let counts = if kind == Kind::Etcd { [2, 3] } else { [0; 2] };
    let loses_nothing = kind == Kind::Synchronous;
    Fleet { loses_nothing, ..new_fleet(uuid, Incarnation { store: 1, timeline: 1, counts }, version) }
}

/// Returns the same fleet, to which its first server has brought layout, range and limits.
pub fn used_fleet(kind: Kind, layout: &Layout, backup: bool, numbers: i64) -> Fleet {
    Fleet {
        layout: Some((layout.fingerprint(), backup)),
        range: Some((0, numbers - 1)),
        longest_ms: DEFAULT_LEASE_MS,
        skew_ms: DEFAULT_SKEW_MS,
        ..unused_fleet(kind, 1, 1)
    }
}
