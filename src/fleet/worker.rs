//! The background worker's process: how it is started and told to end, and how it waits.
//!
//! The worker has shared memory, and no database. What it does is in `keeper.rs`.

use std::cell::Cell;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags};
use pgrx::pg_sys;
use snowflake_registry::{Interest, Stopped, Waiter};

use crate::postgres::backend::WaitEvent;
use crate::shared::locked::WorkerToken;

/// How long the postmaster waits until it starts the worker again.
const STARTED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long the worker may take to end, in all. A fast stop of the server waits for it.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Asks the postmaster to run the worker: at once, during recovery, and on standbys too. Its entry
/// point is `snowflake_lease_main`. Returns false if there are too many background workers.
pub fn register() -> bool {
    let before = newest();
    BackgroundWorkerBuilder::new("snowflake_id lease")
        .set_type("snowflake_id lease")
        .set_library("snowflake_id")
        .set_function("snowflake_lease_main")
        .enable_shmem_access(None)
        .set_start_time(BgWorkerStartTime::PostmasterStart)
        .set_restart_time(Some(STARTED_AGAIN_AFTER))
        .load();
    newest() != before
}

/// Returns where the postmaster keeps the background worker that was registered last.
fn newest() -> usize {
    // SAFETY: the head of the postmaster's list, read by value while it loads libraries.
    unsafe { pg_sys::BackgroundWorkerList.head.next as usize }
}

/// This process as the worker.
#[derive(Debug)]
pub struct Worker {
    /// When it was told to end.
    ends: Cell<Option<Instant>>,
    event: &'static WaitEvent,
}

impl Worker {
    /// Prepares the process: its signals, and how it looks up names.
    ///
    /// # Safety
    /// Call it once, in a background worker that PostgreSQL has just started.
    pub unsafe fn begin() -> (Self, WorkerToken) {
        static IDLE: WaitEvent = WaitEvent::new(c"SnowflakeRegistry");
        BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
        // A look-up of a name cannot be interrupted, and takes ten seconds by default if a name
        // server is away.
        // SAFETY: the process has one thread, and is the worker.
        let is_worker = unsafe {
            std::env::set_var("RES_OPTIONS", "timeout:1 attempts:1");
            WorkerToken::new()
        };
        (Self { ends: Cell::new(None), event: &IDLE }, is_worker)
    }

    /// Whether the process was told to end.
    pub fn is_ending(&self) -> bool {
        if self.ends.get().is_none() && BackgroundWorker::sigterm_received() {
            self.ends.set(Some(Instant::now()));
        }
        self.ends.get().is_some()
    }

    /// Whether the settings were changed since this was last asked; if so, reads them.
    pub fn reloads(&self) -> bool {
        let reloads = BackgroundWorker::sighup_received();
        if reloads {
            // SAFETY: the worker reads its settings as any process does, outside of a transaction.
            // Errors are raised through pgrx's guard.
            unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
        }
        reloads
    }

    /// Sleeps, at most for this long. A signal ends the sleep.
    pub fn sleep(&self, timeout: Duration) {
        self.wait_for(pg_sys::PGINVALID_SOCKET, 0, timeout);
    }

    /// Ends the process, so that the postmaster starts it again unless the server stops.
    pub fn exit(&self) -> ! {
        #[allow(unreachable_code, reason = "the bindings of PostgreSQL 19 do not say that it never returns")]
        {
            // SAFETY: this is how a background worker ends.
            unsafe { pg_sys::proc_exit(1) };
            unreachable!("proc_exit does not return")
        }
    }

    /// Waits for events of a socket, or a signal. Returns what has happened.
    fn wait_for(&self, socket: RawFd, events: u32, timeout: Duration) -> u32 {
        let events = events | pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
        let timeout_ms = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX).clamp(1, 3_600_000);
        // SAFETY: MyLatch is this process's own latch. Errors are raised through pgrx's guard. An
        // interrupt, such as another process's call for a barrier, is served as anywhere.
        unsafe {
            let number = self.event.number();
            let occurred = pg_sys::WaitLatchOrSocket(pg_sys::MyLatch, events as i32, socket, timeout_ms, number);
            pg_sys::ResetLatch(pg_sys::MyLatch);
            pgrx::check_for_interrupts!();
            occurred as u32
        }
    }
}

impl Waiter for &Worker {
    fn wait(&self, socket: BorrowedFd<'_>, interest: Interest, timeout: Duration) -> Result<bool, Stopped> {
        let (was_ending, mut timeout) = (self.ends.get().is_some(), timeout);
        if let Some(since) = self.ends.get() {
            // What is given back at the end may take so long, and no longer.
            timeout = timeout.min(ENDS_WITHIN.checked_sub(since.elapsed()).ok_or(Stopped)?);
        }
        let events = match interest {
            Interest::Read => pg_sys::WL_SOCKET_READABLE,
            Interest::Write => pg_sys::WL_SOCKET_WRITEABLE,
            Interest::ReadOrWrite => pg_sys::WL_SOCKET_READABLE | pg_sys::WL_SOCKET_WRITEABLE,
        };
        let is_ready = self.wait_for(socket.as_raw_fd(), events, timeout) & events != 0;
        // What was under way when the signal came is given up.
        if self.is_ending() && !was_ending { Err(Stopped) } else { Ok(is_ready) }
    }

    fn acquire_descriptor(&self) -> bool {
        // SAFETY: counts a descriptor that PostgreSQL does not manage; raises nothing.
        unsafe { pg_sys::AcquireExternalFD() }
    }

    fn release_descriptor(&self) {
        // SAFETY: the count was raised before.
        unsafe { pg_sys::ReleaseExternalFD() };
    }
}
