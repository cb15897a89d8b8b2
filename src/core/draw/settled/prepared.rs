//! The prepared transactions that have drawn (two-phase commit).
//!
//! A transaction that was prepared runs for all snapshots until COMMIT PREPARED or ROLLBACK
//! PREPARED, which another session may call, in another life of the server. PostgreSQL tells no
//! library of its end. So a transaction is entered here when it is prepared, and it counts for each
//! snapshot that sees it as running.
//!
//! The table has places for all transactions that can be prepared at once, and [`SPARE`] more for
//! ended ones that a snapshot may still see as running. Where it is about to be full, ended ones
//! make room: they are [joined to runs](super::run). They have not ended one after the other, so a
//! run is over for a snapshot only if the snapshot knows none of its transactions as running.
//!
//! A restart loses the table. What it held for transactions that are still prepared is in locks,
//! which PostgreSQL keeps with them, and is entered from there before one of them ends
//! (`src/ids/prepared.rs`).
//!
//! What changes the table is called with a lock held that one session has at a time, and what reads
//! it with one that keeps those out. Nothing here allocates.

use super::Snapshot;
use super::run::{Run, RunPlace, join_neighbours};
use crate::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// How many places there are for ended transactions.
pub const SPARE: usize = if cfg!(loom) { 1 } else { 128 };

/// How many runs there are at most.
pub const MOST_RUNS: usize = 16;

/// A place of the table.
#[derive(Debug)]
pub struct PreparedPlace {
    /// The full transaction id; 0 if the place is free.
    xid: AtomicU64,
    floor: AtomicI64,
    database: AtomicU32,
}

/// What the table knows of one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreparedTransaction {
    /// The full transaction id.
    pub xid: u64,
    /// The first id that it has drawn.
    pub floor: i64,
    /// Its database.
    pub database: u32,
}

/// The runs of transactions that have made room.
#[derive(Debug)]
pub struct PreparedRuns {
    used: AtomicU64,
    runs: [(AtomicU64, RunPlace); MOST_RUNS],
}

/// The table. Without places, nothing can be prepared.
#[derive(Debug, Clone, Copy)]
pub struct PreparedTable<'a> {
    /// The places.
    pub places: &'a [PreparedPlace],
    /// What has made room.
    pub runs: &'a PreparedRuns,
}

// Relaxed everywhere: the lock orders it.
impl PreparedPlace {
    /// Makes a free place.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        Self { xid: AtomicU64::new(0), floor: AtomicI64::new(0), database: AtomicU32::new(0) }
    }

    /// Returns how many places a server needs that can prepare `most` transactions at once.
    pub fn count(most: usize) -> usize {
        if most == 0 { 0 } else { most + SPARE }
    }

    fn get(&self) -> Option<PreparedTransaction> {
        let xid = Some(self.xid.load(Ordering::Relaxed)).filter(|xid| *xid != 0)?;
        let (floor, database) = (self.floor.load(Ordering::Relaxed), self.database.load(Ordering::Relaxed));
        Some(PreparedTransaction { xid, floor, database })
    }
}

impl PreparedRuns {
    /// Makes it without any.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        Self { used: AtomicU64::new(0), runs: std::array::from_fn(|_| (AtomicU64::new(0), RunPlace::new())) }
    }
}

impl PreparedTable<'_> {
    /// Returns what the places hold.
    pub fn transactions(&self) -> impl Iterator<Item = PreparedTransaction> {
        self.places.iter().filter_map(PreparedPlace::get)
    }

    /// Returns the runs.
    pub fn runs(&self) -> impl Iterator<Item = Run> {
        let used = self.runs.runs.iter().take(self.runs.used.load(Ordering::Relaxed) as usize);
        used.map(|(first_xid, run)| Run { first_xid: first_xid.load(Ordering::Relaxed), ..run.get() })
    }

    /// Returns the xids of all transactions, if so few places are free that those of them that have
    /// ended should [make room](Self::make_room). Half of the spare places are still free then.
    pub fn to_look_at(&self) -> impl Iterator<Item = u64> {
        let are_many = self.transactions().count() + SPARE / 2 >= self.places.len();
        self.transactions().map(|transaction| transaction.xid).filter(move |_| are_many)
    }

    /// Lets these transactions make room, at most [`SPARE`]. They have ended.
    pub fn make_room(&self, ended: &[u64], join: impl Fn(Run, Run) -> Run) {
        if ended.is_empty() {
            return;
        }
        let mut all = [Run::of(0, 0, 0); MOST_RUNS + SPARE];
        let mut count = 0;
        for run in self.runs() {
            all[count] = run;
            count += 1;
        }
        for place in self.places {
            let Some(PreparedTransaction { xid, floor, database }) = place.get() else { continue };
            if count < all.len() && ended.contains(&xid) {
                all[count] = Run::of(xid, floor, database);
                count += 1;
                place.xid.store(0, Ordering::Relaxed);
            }
        }
        all[..count].sort_unstable_by_key(|run| run.last_xid);
        let used = join_neighbours(&mut all[..count], MOST_RUNS, join);
        for ((first_xid, place), run) in self.runs.runs.iter().zip(&all[..used]) {
            first_xid.store(run.first_xid, Ordering::Relaxed);
            place.set(run);
        }
        self.runs.used.store(used as u64, Ordering::Relaxed);
    }

    /// Enters a transaction that is being prepared, or was. Does nothing if it is there. Returns
    /// false if there is no room.
    pub fn enter(&self, transaction: PreparedTransaction) -> bool {
        if self.transactions().any(|known| known.xid == transaction.xid) {
            return true;
        }
        let Some(place) = self.places.iter().find(|place| place.get().is_none()) else { return false };
        place.floor.store(transaction.floor, Ordering::Relaxed);
        place.database.store(transaction.database, Ordering::Relaxed);
        place.xid.store(transaction.xid, Ordering::Relaxed);
        true
    }
}

/// Returns the least floor of those transactions of a database that run for a snapshot, of runs as
/// far as that can be told.
///
/// - `transactions` and `runs` are what the table had after the snapshot was taken.
/// - `xmax` is the first full transaction id that the snapshot does not know.
/// - `has_ended_since` says whether a transaction with an xid from the first one to the second one
///   runs for the snapshot and does not run now. One that still runs is in no run.
pub fn least(
    database: u32,
    transactions: &[PreparedTransaction],
    runs: &[Run],
    snapshot: &impl Snapshot,
    xmax: u64,
    has_ended_since: impl Fn(u64, u64) -> bool,
) -> Option<i64> {
    let running = transactions.iter().filter(|known| known.database == database && snapshot.sees_running(known.xid));
    let may_run = runs.iter().filter(|run| {
        run.may_be_of(database) && (run.last_xid >= xmax || has_ended_since(run.first_xid, run.last_xid))
    });
    running.map(|transaction| transaction.floor).chain(may_run.map(|run| run.first_floor)).min()
}
