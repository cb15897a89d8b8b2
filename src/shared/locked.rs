//! Values in shared memory that do not fit into an atomic word: [`Locked`] ones, which are read and
//! written seldom, under one of PostgreSQL's lightweight locks; and those of one process
//! ([`WorkerCell`]).

use std::cell::UnsafeCell;
use std::ffi::CStr;

use pgrx::pg_sys;

/// The name of the locks, as `pg_stat_activity` shows it.
const TRANCHE: &CStr = c"snowflake_id";

/// A value that is copied in and out under a lock. It has no destructor, because shared memory is
/// given up as it is.
#[derive(Debug)]
pub struct Locked<T: Copy> {
    lock: *mut pg_sys::LWLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only touched with the lock held. The lock lies in shared memory, at the same
// address in all processes.
unsafe impl<T: Copy + Send> Sync for Locked<T> {}

/// The locks, one for each value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Lock {
    /// What is known of the lease.
    Lease,
    /// Which tag has which place.
    Tags,
    /// Promises and prepared transactions (`core/draw/settled.rs`).
    Settled,
    /// The page (`page.rs`), and which life may write it.
    Page,
}

impl Lock {
    const COUNT: usize = 4;
}

/// Asks for the locks. Call it where shared memory is requested.
pub fn request() {
    // SAFETY: called in PostgreSQL's shmem_request_hook, where requesting is allowed; the name is
    // copied.
    unsafe { pg_sys::RequestNamedLWLockTranche(TRANCHE.as_ptr(), Lock::COUNT as i32) };
}

impl<T: Copy> Locked<T> {
    /// Makes the value that this lock is for. Call it where shared memory is initialized.
    pub fn new(lock: Lock, value: T) -> Self {
        // SAFETY: called in PostgreSQL's shmem_startup_hook, after the request. The array has an
        // element for each lock, in shared memory.
        let lock = unsafe { &raw mut (*pg_sys::GetNamedLWLockTranche(TRANCHE.as_ptr()).add(lock as usize)).lock };
        Self { lock, value: UnsafeCell::new(value) }
    }

    /// Reads the value.
    pub fn get(&self) -> T {
        // SAFETY: with the lock held, no process writes.
        self.locked(pg_sys::LWLockMode::LW_SHARED, |value| unsafe { value.read() })
    }

    /// Looks at the value, and returns what `look` does, which must be plain, as below.
    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        // SAFETY: as above.
        self.locked(pg_sys::LWLockMode::LW_SHARED, |value| look(unsafe { &*value }))
    }

    /// Changes the value, and returns what `change` does, which must be plain: it must not raise,
    /// nor wait.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: with the lock held, no other process reads or writes.
        self.locked(pg_sys::LWLockMode::LW_EXCLUSIVE, |value| change(unsafe { &mut *value }))
    }

    fn locked<R>(&self, mode: pg_sys::LWLockMode::Type, work: impl FnOnce(*mut T) -> R) -> R {
        // SAFETY: any process with a PGPROC may take the lock, which holds off interrupts until it
        // is released. PostgreSQL releases the locks of a process that ends with an error.
        unsafe { pg_sys::LWLockAcquire(self.lock, mode) };
        let result = work(self.value.get());
        // SAFETY: as above.
        unsafe { pg_sys::LWLockRelease(self.lock) };
        result
    }
}

/// A value that lies in shared memory to outlive its process, and that only this process touches:
/// the background worker, of which PostgreSQL runs one at a time.
#[derive(Debug)]
pub struct WorkerCell<T: Copy>(UnsafeCell<T>);

// SAFETY: only one process touches the value, and it has one thread.
unsafe impl<T: Copy + Send> Sync for WorkerCell<T> {}

/// What a background worker needs to touch such values.
#[derive(Debug)]
pub struct WorkerToken(());

impl WorkerToken {
    /// Says that this process is the background worker.
    ///
    /// # Safety
    /// It must be, and must call this once.
    pub unsafe fn new() -> Self {
        Self(())
    }
}

impl<T: Copy> WorkerCell<T> {
    /// Begins with `value`.
    pub fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Lends the value to the worker.
    pub fn of<'a>(&'a self, _: &'a mut WorkerToken) -> &'a mut T {
        // SAFETY: the only token of the only process is lent for as long as the value is.
        unsafe { &mut *self.0.get() }
    }
}
