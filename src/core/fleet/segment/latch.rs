//! Whom a session wakes when a block is due: one word in shared memory, which names the worker.
//!
//! # No block is forgotten
//!
//! A session writes that a block is due, into the place's word, and then reads whom to wake. A
//! worker that begins writes that it is there, and then looks at the places. Each of them stores
//! one word and loads the other one's. Release and Acquire let both loads return the values from
//! before, on any processor that keeps stores in a buffer. Then nobody would be woken, and nobody
//! would have looked. So each has a `SeqCst` fence between its store and its load, and one of the
//! two loads sees the other's store.
//!
//! While the worker sleeps, PostgreSQL's latch does the same: `SetLatch` and `ResetLatch` have a
//! full barrier between what the caller stored and what it loads next.
//!
//! `tests/loom/segment.rs` finds the forgotten block without the fences, and none with them.

use crate::atomic::{AtomicU64, Ordering, fence};

/// The latch of the process that reserves blocks, as a number; 0 while there is none.
#[derive(Debug)]
pub struct WorkerLatch(AtomicU64);

impl WorkerLatch {
    /// Makes the word of a server without a worker.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Says that the worker with this latch, which is not 0, begins. It looks at all places after
    /// this.
    pub fn begin(&self, latch: u64) {
        // Release: pairs with the loads below.
        self.0.store(latch, Ordering::Release);
        // SeqCst: pairs with the fence in `to_wake`. The loads of the places come after the store.
        fence(Ordering::SeqCst);
    }

    /// Says that the worker ends. The next one looks at all places.
    pub fn end(&self) {
        // Release: pairs with the loads below.
        self.0.store(0, Ordering::Release);
    }

    /// Whether there is a worker.
    pub fn is_there(&self) -> bool {
        // Acquire: pairs with the stores above.
        self.0.load(Ordering::Acquire) != 0
    }

    /// Returns the latch to set, or 0 if there is no worker. Whatever the caller has stored or seen
    /// before, a worker that begins later sees as well.
    pub fn to_wake(&self) -> u64 {
        // SeqCst: pairs with the fence in `begin`. What made the block due comes before the load.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the stores above.
        self.0.load(Ordering::Acquire)
    }
}
