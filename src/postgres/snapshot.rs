//! The snapshot of the statement that runs: which transactions run for it.

use pgrx::pg_sys;
use snowflake_core::draw::settled::Snapshot;
use snowflake_core::draw::settled::answers::Asking;

/// The active snapshot, which lives at least as long as the call of a function.
#[derive(Debug, Clone, Copy)]
pub struct StatementSnapshot {
    snapshot: pg_sys::Snapshot,
    /// The next full transaction id, read after the snapshot was taken.
    next_xid: u64,
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

    /// The transactions below `xmax` that run for the snapshot, without subtransactions. (A copy of
    /// a snapshot may lack those. One that was taken on a standby has all of them there.)
    fn xip(&self) -> &[u32] {
        // SAFETY: as above; `xcnt` says how many elements `xip` has, which may be null for none. A
        // TransactionId is a transparent u32.
        unsafe {
            let pg_sys::SnapshotData { xip, xcnt, .. } = *self.snapshot;
            if xcnt == 0 { &[] } else { std::slice::from_raw_parts(xip.cast(), xcnt as usize) }
        }
    }

    /// Returns the full ids of the transactions that run for the snapshot.
    pub fn running(&self) -> impl Iterator<Item = u64> {
        self.xip().iter().map(|xid| full_xid(pg_sys::TransactionId::from_inner(*xid), self.next_xid))
    }

    /// Returns what tells this snapshot from others of this session.
    pub fn asking(&self) -> Asking<'_> {
        // SAFETY: MyProc is this backend's own.
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        let transaction = unsafe { (*pg_sys::MyProc).lxid };
        // SAFETY: as above.
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        let transaction = unsafe { (*pg_sys::MyProc).vxid.lxid };
        let xmax = self.first_unknown();
        // SAFETY: reads variables of this process.
        let own = Some(unsafe { pg_sys::GetTopTransactionIdIfAny() })
            .filter(|xid| *xid != pg_sys::InvalidTransactionId && full_xid(*xid, self.next_xid) < xmax);
        Asking { transaction, xmax, running: self.xip(), own: own.map(pg_sys::TransactionId::into_inner) }
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
