//! The transactions of a slot that had drawn and then committed with an xid: the last ones one by
//! one, and those before them as [runs](super::run).
//!
//! ```text
//! runs, at most 64                     places, 32
//! | oldest run | ... | newest run |    | ended | ended | ... | ended | the next one |
//! ```
//!
//! An ended transaction leaves its place only once it is in a run. A reader looks at the places
//! first, so it finds each of them in one or the other.

use std::array;
use std::ops::Range;

use super::Snapshot;
use super::run::{Run, RunPlace, join_neighbours};
use crate::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// How many ended transactions of a slot have a place. One of the places may be being overwritten,
/// so a reader finds one fewer.
const PLACES: usize = if cfg!(loom) { 2 } else { 32 };

/// How many ended transactions of a session a reader finds one by one.
pub const MOST_ENDED: usize = PLACES - 1;

/// How many leave their places together.
const LEAVE_TOGETHER: usize = PLACES / 2;

/// How many runs a slot has at most. They span all that has ended in the slot since the start.
/// After 60,000 ends at one rate, the settled id of a snapshot is older by less than half of the
/// snapshot's age. At rates that change, it is older by less than that age
/// (`tests/properties/settled.rs`).
pub const MOST_RUNS: usize = if cfg!(loom) { 2 } else { 64 };

/// The transactions of a slot that had drawn and then committed with an xid.
#[derive(Debug)]
pub struct Ended {
    /// How many were entered, by all backends that have had the slot.
    count: AtomicU64,
    /// The database of the backend that has the slot.
    pub(super) database: AtomicU32,
    places: [EndedPlace; PLACES],
    /// How often the runs have changed. They are in the buffer of that number.
    changes: AtomicU64,
    buffers: [Buffer; 2],
}

#[derive(Debug)]
struct EndedPlace {
    xid: AtomicU64,
    floor: AtomicI64,
    database: AtomicU32,
}

#[derive(Debug)]
struct Buffer {
    used: AtomicU64,
    runs: [RunPlace; MOST_RUNS],
}

/// What the places alone tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Last {
    /// The least floor there.
    pub least: Option<i64>,
    /// Whether none of them has ended for the snapshot, so that earlier ones may run, too.
    pub all_run: bool,
}

impl Ended {
    /// Makes what a slot has that no backend has had.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        let place = |_| EndedPlace { xid: AtomicU64::new(0), floor: AtomicI64::new(0), database: AtomicU32::new(0) };
        let buffer = |_| Buffer { used: AtomicU64::new(0), runs: array::from_fn(|_| RunPlace::new()) };
        Self {
            count: AtomicU64::new(0),
            database: AtomicU32::new(0),
            places: array::from_fn(place),
            changes: AtomicU64::new(0),
            buffers: array::from_fn(buffer),
        }
    }

    /// Enters a transaction of the backend that has the slot.
    pub fn enter(&self, xid: u64, floor: i64) {
        // Relaxed: only this backend writes it.
        if let Some(leaving) = leaving(self.count.load(Ordering::Relaxed)) {
            self.fold(leaving, Run::join);
        }
        self.put(xid, floor);
    }

    /// Puts a transaction into the next place. [`leaving`] says what must be folded before.
    pub fn put(&self, xid: u64, floor: i64) {
        // Relaxed, both: only this backend writes them.
        let (count, database) = (self.count.load(Ordering::Relaxed), self.database.load(Ordering::Relaxed));
        let place = &self.places[count as usize % PLACES];
        // Release, four times: pair with the loads in `last`. A reader that finds a new value in an
        // old place also finds the count of the entry before, and so that the place is overwritten.
        place.xid.store(xid, Ordering::Release);
        place.floor.store(floor, Ordering::Release);
        place.database.store(database, Ordering::Release);
        self.count.store(count + 1, Ordering::Release);
    }

    /// Adds the transactions of these numbers to the runs.
    pub fn fold(&self, leaving: Range<u64>, join: impl Fn(Run, Run) -> Run) {
        let (runs, used) = self.runs();
        let mut all = [Run::of(0, 0, 0); MOST_RUNS + LEAVE_TOGETHER];
        all[..used].copy_from_slice(&runs[..used]);
        let mut count = used;
        for number in leaving {
            let EndedPlace { xid, floor, database } = &self.places[number as usize % PLACES];
            // Relaxed, three times: only this backend writes them.
            let (xid, floor) = (xid.load(Ordering::Relaxed), floor.load(Ordering::Relaxed));
            all[count] = Run::of(xid, floor, database.load(Ordering::Relaxed));
            count += 1;
        }
        let used = join_neighbours(&mut all[..count], MOST_RUNS, join);
        // Relaxed: only this backend writes it.
        let changes = self.changes.load(Ordering::Relaxed) + 1;
        let buffer = &self.buffers[changes as usize % 2];
        buffer.runs.iter().zip(&all[..used]).for_each(|(place, run)| place.set(run));
        // Release, twice: pair with the loads in `runs`.
        buffer.used.store(used as u64, Ordering::Release);
        self.changes.store(changes, Ordering::Release);
    }

    /// Returns the least floor of the database's transactions here that run for the snapshot;
    /// `None` if there is none. If it may belong to an earlier transaction that does not run, it is
    /// that one's.
    pub fn least(&self, database: u32, snapshot: &impl Snapshot) -> Option<i64> {
        let last = self.last(database, snapshot);
        // In this order: what leaves its place meanwhile is in the runs.
        let before = if last.all_run { self.least_of_runs(database, snapshot) } else { None };
        last.least.into_iter().chain(before).min()
    }

    /// Looks at the places.
    pub fn last(&self, database: u32, snapshot: &impl Snapshot) -> Last {
        // Acquire, here and for the values: pairs with the Release in `put`. It also shows the runs
        // that were made before.
        let count = self.count.load(Ordering::Acquire);
        let oldest = count.saturating_sub(MOST_ENDED as u64);
        let mut least: Option<i64> = None;
        for number in (oldest..count).rev() {
            let EndedPlace { xid, floor, database: of } = &self.places[number as usize % PLACES];
            let (xid, floor) = (xid.load(Ordering::Acquire), floor.load(Ordering::Acquire));
            let is_counted = of.load(Ordering::Acquire) == database;
            // Acquire: as above. If the place may have been overwritten, this transaction and all
            // before it are in runs.
            if number + PLACES as u64 <= self.count.load(Ordering::Acquire) {
                return Last { least, all_run: true };
            }
            if !snapshot.sees_running(xid) {
                return Last { least, all_run: false };
            }
            if is_counted {
                least = Some(least.map_or(floor, |least| least.min(floor)));
            }
        }
        Last { least, all_run: oldest != 0 }
    }

    /// Looks at the runs: returns the least floor of the database's runs that have not ended as a
    /// whole for the snapshot.
    pub fn least_of_runs(&self, database: u32, snapshot: &impl Snapshot) -> Option<i64> {
        let (runs, used) = self.runs();
        let running = runs[..used].iter().rev().take_while(|run| snapshot.sees_running(run.last_xid));
        running.filter(|run| run.may_be_of(database)).map(|run| run.first_floor).min()
    }

    /// Returns the runs, and how many there are.
    fn runs(&self) -> ([Run; MOST_RUNS], usize) {
        loop {
            // Acquire, here and for the values: pairs with the Release in `fold`.
            let changes = self.changes.load(Ordering::Acquire);
            let buffer = &self.buffers[changes as usize % 2];
            let used = buffer.used.load(Ordering::Acquire) as usize;
            let runs =
                array::from_fn(|number| if number < used { buffer.runs[number].get() } else { Run::of(0, 0, 0) });
            // Relaxed: ordered by the loads before it. After one change, the next one may be
            // overwriting this buffer.
            if changes == self.changes.load(Ordering::Relaxed) {
                return (runs, used);
            }
        }
    }
}

/// Returns the numbers of the transactions that leave their places before the one of this number is
/// put: a reader finds the last [`MOST_ENDED`] of them in places, so all others must be in runs.
pub fn leaving(number: u64) -> Option<Range<u64>> {
    let together = LEAVE_TOGETHER as u64;
    let is_due = number % together == together - 1;
    let first = number.checked_sub(MOST_ENDED as u64).filter(|_| is_due)?;
    Some(first..first + together)
}
