//! Runs of ended transactions, which are told as one.
//!
//! An old snapshot has to be told of transactions that ended long ago. There is no room for each of
//! them, so neighbours are joined. A snapshot for which a run has ended as a whole passes it.
//! For any other snapshot, each transaction of the run counts as running. So whatever is joined,
//! the settled id of an old snapshot may be lower than it need be, and never wrong.

use crate::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Transactions that have ended, one or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The least full transaction id; 0 where that is not kept.
    pub first_xid: u64,
    /// The greatest full transaction id.
    pub last_xid: u64,
    /// The least first id that one of them has drawn.
    pub first_floor: i64,
    /// The greatest first id that one of them has drawn.
    pub last_floor: i64,
    /// Their database, 0 if they are of more than one.
    pub database: u32,
}

/// Not the number of a database.
const SEVERAL: u32 = 0;

/// How much of its distance from the newest run a run may span at first: an eighth.
const SHARE: u128 = 8;

/// After so many doublings of that share, everything is joined. Ids of 63 bits need fewer.
const MOST_DOUBLINGS: u32 = 64;

impl Run {
    /// Returns the run of one transaction.
    pub fn of(xid: u64, floor: i64, database: u32) -> Self {
        Self { first_xid: xid, last_xid: xid, first_floor: floor, last_floor: floor, database }
    }

    /// Returns the run of both.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            first_xid: self.first_xid.min(other.first_xid),
            last_xid: self.last_xid.max(other.last_xid),
            first_floor: self.first_floor.min(other.first_floor),
            last_floor: self.last_floor.max(other.last_floor),
            database: if self.database == other.database { self.database } else { SEVERAL },
        }
    }

    /// Whether one of its transactions may be of `database`.
    pub fn may_be_of(&self, database: u32) -> bool {
        self.database == database || self.database == SEVERAL
    }
}

/// Joins neighbours in `runs`, which ascend, until at most `most` of them are left, and returns how
/// many that are. They stand at the beginning then.
///
/// A run may span a part of its distance from the newest one, so the settled id of a snapshot is
/// older by that part of the snapshot's age at most. Ids are times, so this needs no clock, and the
/// gap of an idle hour is joined last. If an eighth does not do, the part is doubled.
pub fn join_neighbours(runs: &mut [Run], most: usize, join: impl Fn(Run, Run) -> Run) -> usize {
    let mut left = runs.len();
    let newest = runs.iter().map(|run| run.last_floor).max().unwrap_or(0);
    for doublings in 0..=MOST_DOUBLINGS {
        if left <= most {
            break;
        }
        let mut at = 0;
        for next in 1..left {
            let joined = runs[at].join(runs[next]);
            let [width, distance] =
                [joined.last_floor.abs_diff(joined.first_floor), newest.abs_diff(joined.last_floor)].map(u128::from);
            if doublings == MOST_DOUBLINGS || width * SHARE <= distance << doublings {
                runs[at] = join(runs[at], runs[next]);
            } else {
                at += 1;
                runs[at] = runs[next];
            }
        }
        left = at + 1;
    }
    left
}

/// A run in shared memory, without its first xid.
#[derive(Debug)]
pub struct RunPlace {
    last_xid: AtomicU64,
    first_floor: AtomicI64,
    last_floor: AtomicI64,
    database: AtomicU32,
}

impl RunPlace {
    /// Makes a place whose run means nothing yet.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        Self {
            last_xid: AtomicU64::new(0),
            first_floor: AtomicI64::new(0),
            last_floor: AtomicI64::new(0),
            database: AtomicU32::new(0),
        }
    }

    // Release in `set`, Acquire in `get`: they pair with each other. A reader that finds a new
    // value in an old place also finds the number of the change before (`ended.rs`).
    pub(super) fn set(&self, run: &Run) {
        self.last_xid.store(run.last_xid, Ordering::Release);
        self.first_floor.store(run.first_floor, Ordering::Release);
        self.last_floor.store(run.last_floor, Ordering::Release);
        self.database.store(run.database, Ordering::Release);
    }

    pub(super) fn get(&self) -> Run {
        Run {
            first_xid: 0,
            last_xid: self.last_xid.load(Ordering::Acquire),
            first_floor: self.first_floor.load(Ordering::Acquire),
            last_floor: self.last_floor.load(Ordering::Acquire),
            database: self.database.load(Ordering::Acquire),
        }
    }
}
