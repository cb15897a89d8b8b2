//! The prepared transactions that have drawn (two-phase commit).
//!
//! A transaction that was prepared runs for all snapshots until COMMIT PREPARED or ROLLBACK
//! PREPARED, which another session may call, in another life of the server. PostgreSQL tells no
//! library of these commands. So a transaction is entered here when it is prepared, and it counts
//! for each snapshot that sees it as running.
//!
//! The table has places for all transactions that can be prepared at once, and [`SPARE`] more for
//! ended ones that a snapshot may still see as running. Where it is full, one that has ended makes
//! room. Then snapshots from before its end cannot tell ([`SnapshotTooOld`]). For each ended one,
//! the table knows a [bound](PreparedPlace) that tells such snapshots.
//!
//! A restart loses the table. What it held for transactions that are still prepared is in locks,
//! which PostgreSQL keeps with them (`src/ids/prepared.rs`).
//!
//! What changes the table is called with a lock held that one session has at a time, and what reads
//! it with one that keeps those out. Nothing here allocates.

use crate::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::settled::{Snapshot, SnapshotTooOld};

/// How many places there are for ended transactions.
pub const SPARE: usize = if cfg!(loom) { 1 } else { 128 };

/// A place of the table.
#[derive(Debug)]
pub struct PreparedPlace {
    /// The full transaction id; 0 if the place is free.
    xid: AtomicU64,
    floor: AtomicI64,
    database: AtomicU32,
    /// Whether the transaction is known to have ended: 0 if not, otherwise a full transaction id
    /// that was not given when that was seen. A snapshot that sees the transaction as running was
    /// taken before, so the first xid that it does not know is at most this one.
    ended_before: AtomicU64,
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

/// The table. Without places, nothing can be prepared.
#[derive(Debug, Clone, Copy)]
pub struct PreparedTable<'a> {
    /// The places.
    pub places: &'a [PreparedPlace],
    /// The greatest bound of the transactions that have made room.
    pub forgotten: &'a AtomicU64,
}

// Relaxed everywhere: the lock orders it.
impl PreparedPlace {
    /// Makes a free place.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { xid: zero(), floor: AtomicI64::new(0), database: AtomicU32::new(0), ended_before: zero() }
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

    fn ended_before(&self) -> Option<u64> {
        Some(self.ended_before.load(Ordering::Relaxed)).filter(|bound| *bound != 0)
    }
}

impl PreparedTable<'_> {
    /// Returns what the table knows.
    pub fn transactions(&self) -> impl Iterator<Item = PreparedTransaction> {
        self.places.iter().filter_map(PreparedPlace::get)
    }

    /// Returns the transactions that are not known to have ended, if so many places are in use that
    /// the caller should find out which of them have: for each of those it then calls
    /// [`note_end`](Self::note_end). Half of the spare places are still free then, so those that
    /// make room have ended a while ago.
    pub fn to_look_at(&self) -> impl Iterator<Item = u64> {
        let unknown = || self.places.iter().filter(|place| place.ended_before().is_none());
        let xids = || unknown().filter_map(PreparedPlace::get).map(|transaction| transaction.xid);
        let are_many = xids().count() + SPARE / 2 >= self.places.len();
        xids().filter(move |_| are_many)
    }

    /// Notes that a transaction has ended. `next_xid` is the next full transaction id that will be
    /// given, read after that was seen.
    pub fn note_end(&self, xid: u64, next_xid: u64) {
        let is_it = |place: &&PreparedPlace| place.xid.load(Ordering::Relaxed) == xid;
        if let Some(place) = self.places.iter().find(is_it).filter(|place| place.ended_before().is_none()) {
            place.ended_before.store(next_xid, Ordering::Relaxed);
        }
    }

    /// Enters a transaction that is being prepared, or was. Does nothing if it is there. Returns
    /// false if there is no room.
    pub fn enter(&self, transaction: PreparedTransaction) -> bool {
        if self.transactions().any(|known| known.xid == transaction.xid) {
            return true;
        }
        let free = self.places.iter().find(|place| place.get().is_none());
        let ended = || {
            let ended = self.places.iter().filter_map(|place| Some((place.ended_before()?, place)));
            let (bound, place) = ended.min_by_key(|(bound, _)| *bound)?;
            self.forgotten.store(bound.max(self.forgotten.load(Ordering::Relaxed)), Ordering::Relaxed);
            Some(place)
        };
        let Some(place) = free.or_else(ended) else { return false };
        place.floor.store(transaction.floor, Ordering::Relaxed);
        place.database.store(transaction.database, Ordering::Relaxed);
        place.ended_before.store(0, Ordering::Relaxed);
        place.xid.store(transaction.xid, Ordering::Relaxed);
        true
    }

    /// Returns the transactions of a database, for a snapshot to which `first_unknown` is the first
    /// full transaction id that it does not know (PostgreSQL's xmax).
    ///
    /// # Errors
    /// [`SnapshotTooOld`].
    pub fn of(
        &self,
        database: u32,
        first_unknown: u64,
    ) -> Result<impl Iterator<Item = PreparedTransaction>, SnapshotTooOld> {
        // It may have been taken before the end of one that has made room.
        if first_unknown <= self.forgotten.load(Ordering::Relaxed) {
            return Err(SnapshotTooOld);
        }
        Ok(self.transactions().filter(move |transaction| transaction.database == database))
    }
}

/// Returns the least floor of those that run for a snapshot.
pub fn least(transactions: &[PreparedTransaction], snapshot: &impl Snapshot) -> Option<i64> {
    let running = transactions.iter().filter(|transaction| snapshot.sees_running(transaction.xid));
    running.map(|transaction| transaction.floor).min()
}
