//! The snapshot of the statement that runs: which transactions run for it.

use pgrx::pg_sys;
use snowflake_core::settled::Snapshot;

/// The active snapshot, which lives at least as long as the call of a function.
#[derive(Debug, Clone, Copy)]
pub struct StatementSnapshot {
    snapshot: pg_sys::Snapshot,
    /// The next full transaction id, read after the snapshot was taken.
    next_xid: u64,
}

/// What tells a statement with its snapshot from all others of a session.
///
/// Two snapshots of one transaction that are equal in this are equal: PostgreSQL adds no
/// transaction to the running ones below `xmax`, and each that ends makes them fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementKey {
    transaction: u32,
    /// When the client's message began that has made the statement's portal. Several statements may
    /// share it: where their snapshots are equal, too, later ones get the earlier answer, which is
    /// right for them. The FETCHes of a cursor are statements to the client, and one to this. 0
    /// where all statements of the transaction have one snapshot.
    portal: i64,
    xmin: u32,
    xmax: u32,
    running: [i64; 2],
}

impl StatementKey {
    /// Whether this statement is of the same transaction as another one, and not newer.
    pub fn is_not_newer_than(&self, other: &Self) -> bool {
        let xmax = (self.xmax.wrapping_sub(other.xmax) as i32).cmp(&0);
        // Of two snapshots with one xmax, the older one has more running transactions.
        let order = self.portal.cmp(&other.portal).then(xmax).then(other.running.cmp(&self.running));
        self.transaction == other.transaction && order.is_le()
    }
}

impl StatementSnapshot {
    /// Returns the statement's snapshot; `None` if it has none by which rows are visible as of one
    /// moment.
    pub fn active() -> Option<Self> {
        // SAFETY: both functions read variables of this process. The snapshot that is active stays
        // until the statement that has pushed it pops it, which is after this call.
        unsafe {
            let snapshot = if pg_sys::ActiveSnapshotSet() { pg_sys::GetActiveSnapshot() } else { return None };
            let is_mvcc = (*snapshot).snapshot_type == pg_sys::SnapshotType::SNAPSHOT_MVCC;
            is_mvcc.then(|| Self { snapshot, next_xid: next_xid() })
        }
    }

    /// Whether the snapshot was taken on a standby, before a promotion.
    pub fn is_from_recovery(&self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.snapshot).takenDuringRecovery }
    }

    /// Returns the first full transaction id that the snapshot does not know.
    pub fn first_unknown(&self) -> u64 {
        // SAFETY: as above.
        full_xid(unsafe { (*self.snapshot).xmax }, self.next_xid)
    }

    /// Returns the least full transaction id that may run for the snapshot.
    pub fn first_running(&self) -> u64 {
        // SAFETY: as above.
        full_xid(unsafe { (*self.snapshot).xmin }, self.next_xid)
    }

    /// Returns the transactions that run for the snapshot, as far as it knows them; `None` if it
    /// was taken on a standby, and so does not have them in one list.
    pub fn running(&self) -> Option<impl Iterator<Item = u64>> {
        // SAFETY: as above; `xcnt` says how many elements `xip` has, which may be null for none.
        let running: &[pg_sys::TransactionId] = unsafe {
            let pg_sys::SnapshotData { xip, xcnt, takenDuringRecovery, .. } = *self.snapshot;
            match (takenDuringRecovery, xcnt) {
                (true, _) => return None,
                (false, 0) => &[],
                (false, count) => std::slice::from_raw_parts(xip, count as usize),
            }
        };
        let next_xid = self.next_xid;
        Some(running.iter().map(move |xid| full_xid(*xid, next_xid)))
    }

    /// Returns what tells this statement with this snapshot from others.
    pub fn key(&self) -> StatementKey {
        // SAFETY: as above. MyProc is this backend's own, and ActivePortal is null or the portal
        // that runs. The isolation level is a variable of this process.
        unsafe {
            #[cfg(any(feature = "pg15", feature = "pg16"))]
            let transaction = (*pg_sys::MyProc).lxid;
            #[cfg(not(any(feature = "pg15", feature = "pg16")))]
            let transaction = (*pg_sys::MyProc).vxid.lxid;
            let has_one_snapshot = pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32;
            let portal = pg_sys::ActivePortal.as_ref().filter(|_| !has_one_snapshot);
            let portal = portal.map_or(0, |portal| portal.creation_time);
            let pg_sys::SnapshotData { xmin, xmax, xcnt, subxcnt, .. } = *self.snapshot;
            let running = [xcnt.into(), subxcnt.into()];
            StatementKey { transaction, portal, xmin: xmin.into_inner(), xmax: xmax.into_inner(), running }
        }
    }
}

impl Snapshot for StatementSnapshot {
    fn sees_running(&self, xid: u64) -> bool {
        // An xid of long ago has no meaning in 32 bits.
        if xid < self.first_running() {
            return false;
        }
        // SAFETY: as above. The xid is not far from those of the snapshot. Errors are raised
        // through pgrx's guard.
        unsafe { pg_sys::XidInMVCCSnapshot(pg_sys::TransactionId::from_inner(xid as u32), self.snapshot) }
    }
}

/// Returns the next full transaction id that will be given.
pub fn next_xid() -> u64 {
    // SAFETY: reads shared memory under a lock that it takes and releases.
    unsafe { pg_sys::ReadNextFullTransactionId() }.value
}

/// Returns the full id of a transaction that is not older than half of all ids with 32 bits. `next`
/// is the next full id, or a later one.
pub fn full_xid(xid: pg_sys::TransactionId, next: u64) -> u64 {
    next - u64::from((next as u32).wrapping_sub(xid.into_inner()))
}

/// Whether a transaction runs now, or is prepared. It must be one of the last 2^31.
pub fn is_running(xid: u64) -> bool {
    // SAFETY: any backend may call it. Errors are raised through pgrx's guard.
    unsafe { pg_sys::TransactionIdIsInProgress(pg_sys::TransactionId::from_inner(xid as u32)) }
}
