//! What this backend may do right now, with which settings, what time it is, and how it waits for
//! the clock and for locks. It must know nothing of ids.
//!
//! On the hot path no call goes through pgrx's guarded wrappers, because each sets a jump buffer,
//! and two of them cost as much as drawing the id. The functions needed there, and at the end of
//! every transaction, are declared directly.

use std::ffi::{CStr, CString, c_char};
use std::panic::AssertUnwindSafe;

use pgrx::pg_sys::panic::{CaughtError, ErrorReportWithLevel};
use pgrx::pg_sys::{self, PgTryBuilder};
use snowflake_core::clock::Clock;

use crate::postgres::local::Local;

unsafe extern "C-unwind" {
    /// access/xact.h: whether the transaction is in parallel mode. Reads a backend-local variable;
    /// raises nothing.
    fn IsInParallelMode() -> bool;
    /// access/xact.h: the id of the top transaction, 0 if it has none. Reads a backend-local
    /// variable; raises nothing.
    fn GetTopTransactionIdIfAny() -> pg_sys::TransactionId;
    /// access/xact.h: the same, with 64 bits.
    fn GetTopFullTransactionIdIfAny() -> pg_sys::FullTransactionId;
    /// storage/latch.h: wakes the process that waits on the latch. Raises nothing.
    fn SetLatch(latch: *mut pg_sys::Latch);
}

/// Whether this backend has seen that recovery is over. Recovery does not return during a backend's
/// life.
static RECOVERY_IS_OVER: Local<bool> = Local::new(false);

/// After how long a wait for a lock looks for deadlocks, in milliseconds.
const DEADLOCK_TIMEOUT: &CStr = c"100";

/// Whether the transaction permits ids to be drawn. False may only mean that this backend has not
/// looked yet: then call [`require_writable`]. Raises nothing.
#[inline]
pub fn may_write() -> bool {
    RECOVERY_IS_OVER.get() && may_still_write()
}

/// Returns what [`may_write`] does, if that has returned true before. Raises nothing.
#[inline(always)]
pub fn may_still_write() -> bool {
    // SAFETY: XactReadOnly is a variable of this backend, which has one thread; it is read by
    // value. IsInParallelMode has no preconditions inside a backend and raises nothing.
    unsafe { !pg_sys::XactReadOnly && !IsInParallelMode() }
}

/// Whether the transaction has an id, as every transaction that has written does. Raises nothing.
pub fn has_written() -> bool {
    // SAFETY: the function has no preconditions inside a backend, and raises nothing.
    unsafe { GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId }
}

/// Whether this process executes a part of another session's query.
pub fn is_parallel_worker() -> bool {
    // SAFETY: a variable of this process, which has one thread; it is read by value.
    unsafe { pg_sys::ParallelWorkerNumber >= 0 }
}

/// Returns the full id of the transaction, also while it ends; `None` if it has none. Raises
/// nothing.
pub fn full_xid() -> Option<u64> {
    // SAFETY: as above.
    Some(unsafe { GetTopFullTransactionIdIfAny() }.value).filter(|xid| *xid != 0)
}

/// Raises what `nextval` raises where no id can be drawn: 25006 in recovery and in a read-only
/// transaction, 25000 in parallel mode. `command` names the SQL function in the message.
pub fn require_writable(command: &'static CStr) {
    // SAFETY: any backend may call these at any time. Errors are raised through pgrx's guard.
    unsafe {
        pg_sys::PreventCommandDuringRecovery(command.as_ptr());
        pg_sys::PreventCommandIfReadOnly(command.as_ptr());
        pg_sys::PreventCommandIfParallelMode(command.as_ptr());
    }
    // Recovery is over, or the first of the three would have raised.
    RECOVERY_IS_OVER.set(true);
}

/// Raises what VACUUM raises inside a transaction block: 25001. `command` names the statement in
/// the message.
pub fn require_no_block(command: &'static CStr) {
    // SAFETY: any backend may call it while it runs a statement. Errors are raised through pgrx's
    // guard. That the statement is not called from a function is not known here; COMMIT finds out.
    unsafe { pg_sys::PreventInTransactionBlock(true, command.as_ptr()) };
}

/// Runs `work` with settings that no user has chosen. Names mean what is in `pg_catalog`, and a
/// policy that would hide rows is an error. Nothing is compiled for a query of the catalogs,
/// because that would take a hundred times as long as the query.
pub fn with_trusted_settings<T>(work: impl FnOnce() -> T) -> T {
    with_settings(&[(c"search_path", c"pg_catalog, pg_temp"), (c"row_security", c"off"), (c"jit", c"off")], work)
}

/// Runs `work` with other settings, also those that only a superuser may change.
pub fn with_settings<T>(settings: &[(&CStr, &CStr)], work: impl FnOnce() -> T) -> T {
    // SAFETY: this is how settings are changed for a while (guc.c). All of them exist, and have
    // these values. Errors are raised through pgrx's guard. An error that ends the work ends the
    // (sub)transaction, which puts the settings back.
    let level = unsafe { pg_sys::NewGUCNestLevel() };
    for (name, value) in settings {
        // SAFETY: as above.
        unsafe {
            pg_sys::set_config_option(
                name.as_ptr(),
                value.as_ptr(),
                pg_sys::GucContext::PGC_SUSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
        }
    }
    let result = work();
    // SAFETY: as above.
    unsafe { pg_sys::AtEOXact_GUC(true, level) };
    result
}

/// A lock on a table or a sequence, until the transaction ends.
#[derive(Debug, Clone, Copy)]
pub struct Lock {
    pub relation: pg_sys::Oid,
    /// Whether sessions that only read are locked out too.
    pub is_against_readers: bool,
}

impl Lock {
    pub fn against_all(relation: pg_sys::Oid) -> Self {
        Self { relation, is_against_readers: true }
    }

    fn mode(self) -> pg_sys::LOCKMODE {
        let mode = if self.is_against_readers { pg_sys::AccessExclusiveLock } else { pg_sys::ShareRowExclusiveLock };
        mode as pg_sys::LOCKMODE
    }
}

/// Writes the comment of a trigger, without the lock of its table that COMMENT takes: that would
/// end an autovacuum. Checks no right. Until the transaction ends, nobody else writes it by this.
pub fn comment_on_trigger(trigger: pg_sys::Oid, comment: &CStr) {
    // SAFETY: a comment is of a number, whether a trigger has it or not. PostgreSQL copies the
    // text. Errors are raised through pgrx's guard.
    unsafe {
        pg_sys::LockDatabaseObject(pg_sys::TriggerRelationId, trigger, 0, pg_sys::ShareUpdateExclusiveLock as i32);
        pg_sys::CreateComments(trigger, pg_sys::TriggerRelationId, 0, comment.as_ptr());
    }
}

/// Takes a lock, if it is free.
pub fn lock_if_free(lock: Lock) -> bool {
    // SAFETY: a lock is on a number, whether a relation has it or not. Errors are raised through
    // pgrx's guard.
    unsafe { pg_sys::ConditionalLockRelationOid(lock.relation, lock.mode()) }
}

/// Takes a lock. Raises 55P03 if it is not free within `wait_ms` milliseconds.
///
/// Looks for deadlocks sooner than the session does otherwise, because the wait could end before.
/// That also ends an autovacuum of the table.
pub fn lock_within(lock: Lock, wait_ms: i64) {
    let wait = CString::new(wait_ms.max(1).to_string()).expect("a number holds no NUL");
    with_settings(&[(c"lock_timeout", &wait), (c"deadlock_timeout", DEADLOCK_TIMEOUT)], || {
        // SAFETY: as for `lock_if_free`.
        unsafe { pg_sys::LockRelationOid(lock.relation, lock.mode()) };
    });
    // PostgreSQL takes a free lock without a check for interrupts.
    pgrx::check_for_interrupts!();
}

/// Returns `lock_timeout` in milliseconds; `None` if it is 0, which sets no limit.
pub fn lock_timeout_ms() -> Option<i64> {
    // SAFETY: a variable of this backend, which has one thread; it is read by value.
    Some(i64::from(unsafe { pg_sys::LockTimeout })).filter(|ms| *ms > 0)
}

/// Runs `work` in a subtransaction. What it has done stays if `keeps` says so of its result, locks
/// included, and is rolled back otherwise. `caught` makes a result of an error; other errors and
/// panics pass, after the subtransaction has ended. `work` returns nothing of the subtransaction's
/// memory.
pub fn in_subtransaction<T>(
    work: impl FnOnce() -> T,
    keeps: fn(&T) -> bool,
    caught: fn(&ErrorReportWithLevel) -> Option<T>,
) -> T {
    // SAFETY: variables of this backend, read by value.
    let (context, owner) = unsafe { (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner) };
    // SAFETY: this is how PL/pgSQL begins the block of an EXCEPTION clause (pl_exec.c). The context
    // outlives the subtransaction, because it was there before. Errors are raised through pgrx's
    // guard.
    unsafe {
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::CurrentMemoryContext = context;
    }
    let end = move |keeps: bool| {
        // SAFETY: this is how PL/pgSQL ends such a block. Each subtransaction that `work` began has
        // ended.
        unsafe {
            if keeps {
                pg_sys::ReleaseCurrentSubTransaction();
            } else {
                pg_sys::RollbackAndReleaseCurrentSubTransaction();
            }
            pg_sys::CurrentMemoryContext = context;
            pg_sys::CurrentResourceOwner = owner;
        }
    };
    let result = PgTryBuilder::new(AssertUnwindSafe(work))
        .catch_others(move |error| {
            let result = match &error {
                CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => caught(report),
                CaughtError::RustPanic { .. } => None,
            };
            result.unwrap_or_else(|| {
                // Here, because PostgreSQL forgets the error when a handler returns. An outer
                // EXCEPTION clause ends one subtransaction, which must be its own.
                end(false);
                error.rethrow()
            })
        })
        .execute();
    end(keeps(&result));
    result
}

/// The operating system's wall clock: about 20 ns a reading, most of it in the processor's counter.
///
/// It is read through `gettimeofday`, as by PostgreSQL's own `clock_timestamp()`, because glibc
/// binds that to the kernel's page directly. `clock_gettime` takes another call in between. A
/// precision of a millisecond is enough.
pub struct WallClock;

impl Clock for WallClock {
    #[inline(always)]
    fn now_ms(&self) -> i64 {
        let mut now = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: writes to `now` only, and cannot fail with a valid pointer and no time zone.
        unsafe { libc::gettimeofday(&raw mut now, std::ptr::null_mut()) };
        // Below a million, which 32 bits hold. They are faster to divide.
        let ms = i64::from(now.tv_usec as u32 / 1000);
        now.tv_sec.checked_mul(1000).and_then(|start_ms| start_ms.checked_add(ms)).unwrap_or_else(|| absurd(now.tv_sec))
    }
}

/// Returns the end of time that is nearer to an absurd clock, because that must be refused, and not
/// end the backend (see `entry.rs`).
#[cold]
#[inline(never)]
fn absurd(seconds: i64) -> i64 {
    if seconds < 0 { i64::MIN } else { i64::MAX }
}

/// From 1970 to 2000, in milliseconds (POSTGRES_EPOCH_JDATE in datatype/timestamp.h).
const POSTGRES_EPOCH_MS: i64 = 946_684_800_000;

/// Returns until when this session sees all that was committed: until now, and on a standby until
/// the last transaction that was replayed. In milliseconds since 1970.
pub fn visible_until_ms(now_ms: i64) -> i64 {
    // SAFETY: both read the shared memory of recovery, and raise nothing.
    let replayed_us = unsafe { pg_sys::RecoveryInProgress().then(|| pg_sys::GetLatestXTime()) };
    replayed_us.map_or(now_ms, |us| now_ms.min(us.div_euclid(1000) + POSTGRES_EPOCH_MS))
}

/// Returns bytes that nobody can guess; `None` if the system has none.
pub fn random_bytes<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: writes as many bytes as there are. Raises nothing.
    unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), N) }.then_some(bytes)
}

/// Returns the time since boot, including the time that the machine was suspended, in milliseconds.
/// It cannot be set.
pub fn boot_ms() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to `time` only, and cannot fail for a clock that Linux has.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000)
}

/// The longest sleep before the clock is read again. A clock that jumps must wake its waiters, and
/// a clock that is ten years behind would overflow a latch's timeout.
const LONGEST_SLEEP_MS: i64 = 1000;

/// What a waiting session shows in pg_stat_activity: a name of its own, from PostgreSQL 17 on.
#[derive(Debug)]
pub struct WaitEvent {
    #[cfg_attr(
        any(feature = "pg15", feature = "pg16"),
        expect(dead_code, reason = "extensions have one event in common")
    )]
    name: &'static CStr,
    /// Its number, 0 until it is first needed.
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    number: Local<u32>,
}

impl WaitEvent {
    /// Makes an event of that name, which is registered when this backend first waits.
    pub const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            #[cfg(not(any(feature = "pg15", feature = "pg16")))]
            number: Local::new(0),
        }
    }

    #[cfg(any(feature = "pg15", feature = "pg16"))]
    pub fn number(&self) -> u32 {
        pg_sys::PG_WAIT_EXTENSION
    }

    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    pub fn number(&self) -> u32 {
        match self.number.get() {
            0 => {
                // SAFETY: a backend may call it at any time; the name is copied. If there are too
                // many events, it raises through pgrx's guard.
                let number = unsafe { pg_sys::WaitEventExtensionNew(self.name.as_ptr()) };
                self.number.set(number);
                number
            }
            number => number,
        }
    }
}

/// Sleeps on the latch for `wait_ms` milliseconds, at most a second. A signal ends the sleep. Call
/// it without any lock held, and check for interrupts afterwards.
pub fn sleep(wait_ms: i64, event: &WaitEvent) {
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    let timeout_ms = wait_ms.clamp(1, LONGEST_SLEEP_MS);
    let number = event.number();
    // SAFETY: MyLatch is this process's own latch from the start of a backend to its end.
    unsafe {
        pg_sys::WaitLatch(pg_sys::MyLatch, events as i32, timeout_ms, number);
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
}

/// Sleeps for a tenth of a millisecond, where a latch's millisecond would cost ids. Check for
/// interrupts afterwards.
pub fn nap(event: &WaitEvent) {
    let number = event.number();
    // SAFETY: the variable points to this backend's own word, which others only read. The writes
    // are those of PostgreSQL's inline functions pgstat_report_wait_start and _end. The sleep has
    // no preconditions, and a signal may end it early.
    unsafe {
        pg_sys::my_wait_event_info.write_volatile(number);
        pg_sys::pg_usleep(100);
        pg_sys::my_wait_event_info.write_volatile(0);
    }
}

/// A process's latch, which lies in shared memory, at the same address in all processes. It stays
/// there when the process has ended.
#[derive(Debug, Clone, Copy)]
pub struct SharedLatch(u64);

impl SharedLatch {
    /// Returns this process's latch. Call it in a process that has shared memory.
    pub fn own() -> Self {
        // SAFETY: a variable of this process, read by value; nothing is read through it.
        Self(unsafe { pg_sys::MyLatch } as u64)
    }

    /// Returns the latch that [`bits`](Self::bits) came from; `None` for 0.
    pub fn of_bits(bits: u64) -> Option<Self> {
        (bits != 0).then_some(Self(bits))
    }

    /// Returns the latch as a number, for other processes.
    pub fn bits(self) -> u64 {
        self.0
    }
}

/// Wakes the process that a latch belongs to. If it has ended, another process may have its latch,
/// and looks once more than it has to. Raises nothing.
pub fn wake(latch: SharedLatch) {
    // SAFETY: it is a latch in shared memory, which is never freed, or PostgreSQL's processes would
    // not run.
    unsafe { SetLatch(latch.0 as *mut pg_sys::Latch) };
}

/// Returns this process's id.
pub fn pid() -> i32 {
    // SAFETY: a variable of this process, read by value.
    unsafe { pg_sys::MyProcPid }
}

/// Returns the name of this machine, and the port of this server.
pub fn host_and_port() -> (String, u16) {
    let mut name = [0; 256];
    // SAFETY: writes a text, and leaves the last byte, which is zero, alone.
    let found = unsafe { libc::gethostname(name.as_mut_ptr(), name.len() - 1) == 0 };
    // SAFETY: the array ends with a zero byte, whatever was written.
    let text = unsafe { CStr::from_ptr(name.as_ptr()) };
    // SAFETY: a variable that the postmaster sets before it starts any process; read by value.
    let port = unsafe { pg_sys::PostPortNumber };
    let name = if found { text.to_string_lossy().into_owned() } else { "unknown".to_owned() };
    (name, u16::try_from(port).unwrap_or(0))
}

/// Returns the data directory.
pub fn data_directory() -> String {
    // SAFETY: a text that the postmaster sets before it loads any library, and never changes.
    unsafe { CStr::from_ptr(pg_sys::DataDir) }.to_string_lossy().into_owned()
}

/// Returns what `initdb` has named this server, and its copies. Call it where the postmaster has
/// made its shared memory.
pub fn system_identifier() -> u64 {
    // SAFETY: the control file has been read by then.
    unsafe { pg_sys::GetSystemIdentifier() }
}

/// Returns the process id of the postmaster that has started this process, or is it.
pub fn postmaster_pid() -> i32 {
    // SAFETY: a variable that the postmaster sets before it starts any process; read by value.
    unsafe { pg_sys::PostmasterPid }
}

/// Returns the setting `cluster_name`, which is empty if nothing was given.
pub fn cluster_name() -> String {
    // SAFETY: reads a setting of this process, which is set at the start only; a text or null.
    unsafe { pg_sys::cluster_name.as_ref().map(|name| CStr::from_ptr(name)) }
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Whether this session's user may see what monitoring shows: a superuser, or a member of
/// `pg_monitor`. Both the role of SET ROLE and the current one must be, because they differ in a
/// function with SECURITY DEFINER, and either may read an error. Call it in a transaction.
pub fn may_monitor() -> bool {
    // SAFETY: both functions read a static of this process. `has_privs_of_role` reads the catalog,
    // which the caller's transaction permits.
    unsafe {
        [pg_sys::GetUserId(), pg_sys::GetOuterUserId()]
            .into_iter()
            .all(|role| pg_sys::has_privs_of_role(role, pg_sys::Oid::from(pg_sys::ROLE_PG_MONITOR)))
    }
}

/// Whether the server is in recovery: a standby, or after a crash.
pub fn is_in_recovery() -> bool {
    // SAFETY: looks at shared memory, which a process with a PGPROC may do at any time.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// Whether the server is through with what no session may see: the replay after a crash, or a
/// standby's up to a consistent state. Never on a standby where "hot_standby" is off.
pub fn is_consistent() -> bool {
    // SAFETY: as for `is_in_recovery`.
    !is_in_recovery() || unsafe { pg_sys::HotStandbyActive() }
}

/// Whether there is a postmaster, which starts background workers: not in single-user mode.
pub fn has_postmaster() -> bool {
    // SAFETY: a variable that is set before any library is loaded; read by value.
    unsafe { pg_sys::IsPostmasterEnvironment }
}

/// Whether pg_upgrade runs this server.
pub fn is_upgrading() -> bool {
    // SAFETY: a variable that the postmaster sets before it loads any library; read by value.
    unsafe { pg_sys::IsBinaryUpgrade }
}

/// Returns bits that nobody can guess.
pub fn random_bits() -> u64 {
    let mut bits = [0; 8];
    // SAFETY: writes that many bytes; raises nothing.
    let _ = unsafe { pg_sys::pg_strong_random(bits.as_mut_ptr().cast(), bits.len()) };
    u64::from_ne_bytes(bits)
}

/// Returns the database that this process is connected to; 0 if it is to none.
pub fn database() -> u32 {
    // SAFETY: a variable of this process, read by value.
    unsafe { pg_sys::MyDatabaseId }.to_u32()
}

/// Returns how many transactions can be prepared at once.
pub fn max_prepared() -> usize {
    // SAFETY: a setting that is read before any library is loaded, and then never changes.
    usize::try_from(unsafe { pg_sys::max_prepared_xacts }).unwrap_or(0)
}

/// Returns the backend's index among all that can run at once (PostgreSQL's MaxBackends). Auxiliary
/// processes have indexes beyond.
pub fn proc_number() -> usize {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    // SAFETY: a process that runs SQL functions has a PGPROC, which is shared memory and outlives
    // it.
    let number = unsafe { (*pg_sys::MyProc).pgprocno };
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    // SAFETY: a variable of this backend, read by value.
    let number = unsafe { pg_sys::MyProcNumber };
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns how many backends can run at once; 0 before the postmaster has read its settings.
pub fn max_backends() -> usize {
    // SAFETY: the postmaster sets it once before it starts any process; then it is only read.
    usize::try_from(unsafe { pg_sys::MaxBackends }).unwrap_or(0)
}

/// Whether a transaction is under way: a statement runs, and not a reload.
pub fn is_in_transaction() -> bool {
    // SAFETY: reads a variable of this process, which any process of the server may do at any time.
    unsafe { pg_sys::IsTransactionState() }
}

/// Whether this process is the postmaster.
pub fn is_postmaster() -> bool {
    // SAFETY: variables of this process, read by value.
    unsafe { pg_sys::IsPostmasterEnvironment && !pg_sys::IsUnderPostmaster }
}

/// Whether this process is a background worker, or a worker of a parallel query.
pub fn is_background_worker() -> bool {
    // SAFETY: a variable of this process, read by value.
    !unsafe { pg_sys::MyBgworkerEntry }.is_null()
}

/// Whether this process does nothing but copy the values of another server's sequences: the worker
/// that PostgreSQL has for this from 19 on (replication/logical/launcher.c names its function so).
pub fn copies_sequences() -> bool {
    // SAFETY: variables of this process, which are set before its first transaction; both names are
    // texts that end within their array.
    unsafe {
        let Some(worker) = pg_sys::MyBgworkerEntry.as_ref() else { return false };
        let is = |name: &[c_char], wanted: &CStr| CStr::from_ptr(name.as_ptr()) == wanted;
        is(&worker.bgw_library_name, c"postgres") && is(&worker.bgw_function_name, c"SequenceSyncWorkerMain")
    }
}

/// Whether the backend of that number (see [`proc_number`]) is the process `pid`. Another backend
/// may have that process id by now.
pub fn is_running(pid: i32, number: usize) -> bool {
    // SAFETY: looks through the list of backends, under a lock that it takes and releases. Raises
    // nothing. It returns an element of an array in shared memory, which outlives the backend.
    unsafe {
        let process = pg_sys::BackendPidGetProc(pid);
        if process.is_null() {
            return false;
        }
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        let its_number = (*process).pgprocno;
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        let its_number = process.offset_from((*pg_sys::ProcGlobal).allProcs);
        usize::try_from(its_number) == Ok(number)
    }
}

/// Whether the postmaster is loading the library at server start.
pub fn is_preloading() -> bool {
    // SAFETY: a variable of this process, read by value.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}
