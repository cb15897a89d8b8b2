//! The mark in PostgreSQL: where a database stores it, who may write it, and when what is known of it becomes wrong.
//!
//! The protocol, and why no id comes twice after a crash, a failover or a restore, is in `core/mark.rs`; this file gives it
//! a [`Database`]. Six sequences, members of the extension, hold what is stored: a sequence's record in the log (and so on
//! every standby and in every backup) comes before the record of any row that holds an id drawn later; pg_dump carries it
//! (but for the local marks), and no rollback undoes it.
//!
//! Found by extension membership, never by search_path. Locked with ShareUpdateExclusiveLock on the primary lane's sequence,
//! which conflicts with itself, but not with what earlier writers' transactions still hold. Written by PostgreSQL's own
//! `setval`, as the bootstrap superuser, since PUBLIC may only read. Published in shared memory for database and sequence, and
//! forgotten when either is dropped or made.
//!
//! What a session remembers needs no invalidation callback (there are few places for those, see `catalog.rs`): a draw looks at
//! published marks, which the session that drops their sequence forgets; everything else is looked up again first, and a
//! sequence that is gone is not found. What this session has made itself it forgets when that is rolled back.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use parking_lot::Mutex;
use pgrx::pg_sys;
use pgrx::prelude::*;
use snowflake_core::clock::{Clock, Utc, Wait};
use snowflake_core::identity::{Drawing, Identity};
use snowflake_core::layout::{Field, Layout};
use snowflake_core::mark::{Database, Mark, Notice, Refusal, Stored, Terms, Value, Written};
use snowflake_core::published::{Marks, PublishedMarks, UNCLAIMED};

use crate::backend::{self, WallClock};
use crate::catalog;
use crate::error::{Again, Error, OrRaise};
use crate::guc::{self, OnRollback};
use crate::local::Local;
use crate::shmem;
use crate::slot::Counter;
use crate::stats;
use crate::waiting::Request;

/// The sequences of this session's database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sequences {
    marks: [pg_sys::Oid; 2],
    local: [pg_sys::Oid; 2],
    layout: pg_sys::Oid,
    identity: pg_sys::Oid,
}

impl Sequences {
    /// Whose marks are published: this database's, of this sequence. A sequence that is dropped and made again is another.
    fn owner(&self) -> u64 {
        // SAFETY: a variable of this backend, read by value.
        let database = unsafe { pg_sys::MyDatabaseId };
        u64::from(database.to_u32()) << 32 | u64::from(self.marks[0].to_u32())
    }

    fn all(&self) -> [pg_sys::Oid; 6] {
        [self.marks[0], self.marks[1], self.local[0], self.local[1], self.layout, self.identity]
    }

    fn oid(&self, value: Value) -> pg_sys::Oid {
        match value {
            Value::Mark(lane) => self.marks[lane as usize],
            Value::Local(lane) => self.local[lane as usize],
            Value::Layout => self.layout,
            Value::Identity => self.identity,
        }
    }
}

/// The sequences as they were found last. They may be gone.
static SEQUENCES: Mutex<Option<Sequences>> = Mutex::new(None);

/// The published marks of this session's database, once they were claimed or seen to be.
static KNOWN: Local<Option<Marks<'static>>> = Local::new(None);

/// The millisecond in which this session last tried to move the mark early.
static LAST_TRY_MS: Local<i64> = Local::new(i64::MIN);

/// Whether this transaction has seen that the database's ids can be read by the running layout.
static LAYOUT_CHECKED: Local<bool> = Local::new(false);

/// Whether this transaction has called `setval`, perhaps for one of our sequences, as a dump does that is restored.
static CALLS_SETVAL: Local<bool> = Local::new(false);

/// Whether this transaction has made or dropped a relation, perhaps one of our sequences.
static MAKES_RELATIONS: Local<bool> = Local::new(false);

/// The marks that this session's draws look at, if they were found before. Raises nothing.
#[inline(always)]
pub fn known() -> Option<Marks<'static>> {
    KNOWN.get()
}

/// The same, or marks that permit nothing, so that the first draw loads them.
///
/// # Errors
/// [`Error::NotPreloaded`].
pub fn known_or_none() -> Result<Marks<'static>, Error> {
    known().or_else(nobodys).ok_or(Error::NotPreloaded)
}

fn nobodys() -> Option<Marks<'static>> {
    shmem::nobodys_marks()?.of(UNCLAIMED)
}

/// Checks that this database's ids can be read by `layout`, the running one: once in a transaction. Works on a standby, and
/// without preload.
///
/// # Errors
/// [`Error::OtherLayout`].
#[inline]
pub fn check_layout(layout: &Layout) -> Result<(), Error> {
    if LAYOUT_CHECKED.get() { Ok(()) } else { check_layout_now(layout) }
}

#[cold]
fn check_layout_now(layout: &Layout) -> Result<(), Error> {
    // Without the extension nothing is stored that could differ.
    if let Some(sequences) = sequences() {
        let stored = read_sequence(sequences.layout)?;
        if let Some(stored) = stored.filter(|stored| *stored != layout.fingerprint()) {
            return Err(Error::OtherLayout { stored, layout: *layout });
        }
    }
    LAYOUT_CHECKED.set(true);
    Ok(())
}

/// The sequence in which the layout of this database's ids is stored: its definition counts as changed when the layout does.
pub fn layout_sequence() -> Option<pg_sys::Oid> {
    sequences().map(|sequences| sequences.layout)
}

/// Lets every session plan anew what it has planned by the layout that was stored.
fn announce_layout(sequences: &Sequences) {
    // SAFETY: takes effect for others when the transaction commits. Errors are raised through pgrx's guard.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(sequences.layout) };
}

/// The settings that bear on the mark.
pub fn terms() -> Terms {
    Terms {
        max_borrow_ms: guc::max_borrow_ms(),
        max_clock_jump_ms: guc::max_clock_jump_ms(),
        wait_for_clock: guc::on_rollback() == OnRollback::Wait,
    }
}

/// The mark of the session's database, for a request.
///
/// # Errors
/// [`Error::NotPreloaded`].
pub fn of<'a>(
    layout: &'a Layout,
    request: &'a Request,
) -> Result<Mark<'static, impl Database<Error = Error> + 'a>, Error> {
    let generator = shmem::generator().ok_or(Error::NotPreloaded)?;
    let clocks = shmem::clocks().ok_or(Error::NotPreloaded)?;
    let database = Here { layout, locked: Cell::new(pg_sys::InvalidOid), request };
    Ok(Mark { database, generator, clocks })
}

/// The database that this session is connected to.
#[derive(Debug)]
struct Here<'a> {
    layout: &'a Layout,
    /// The sequence that was locked last.
    locked: Cell<pg_sys::Oid>,
    /// On whose behalf, and what that has met so far.
    request: &'a Request,
}

impl Database for Here<'_> {
    type Error = Error;

    fn read(&self) -> Result<Stored, Error> {
        let sequences = sequences().ok_or(Error::NoExtension)?;
        let both = |[primary, backup]: [pg_sys::Oid; 2]| {
            Ok::<_, Error>([read_sequence(primary)?.unwrap_or(0), read_sequence(backup)?.unwrap_or(0)])
        };
        Ok(Stored {
            marks_ms: both(sequences.marks)?,
            local_ms: both(sequences.local)?,
            layout: read_sequence(sequences.layout)?,
            identity: read_sequence(sequences.identity)?,
        })
    }

    fn marks(&self) -> Result<Option<Marks<'_>>, Error> {
        let owner = sequences().ok_or(Error::NoExtension)?.owner();
        Ok(in_use().find_map(|marks| marks.of(owner)).map(remember))
    }

    fn lock(&self, wait: bool) -> Result<Option<Marks<'_>>, Error> {
        if !wait {
            // So that a session that draws while another one moves the mark is not slowed down by asking for the lock.
            let now_ms = self.now_ms();
            if LAST_TRY_MS.replace(now_ms) == now_ms {
                return Ok(None);
            }
        }
        loop {
            let sequences = sequences().ok_or(Error::NoExtension)?;
            if !lock_sequence(sequences.marks[0], wait) {
                return Ok(None);
            }
            // The sequence may have been dropped while we waited for it.
            if self::sequences() == Some(sequences) {
                self.locked.set(sequences.marks[0]);
                let marks = self.marks()?;
                return Ok(if marks.is_some() { marks } else { nobodys() });
            }
            unlock_sequence(sequences.marks[0]);
            pgrx::check_for_interrupts!();
        }
    }

    fn claim(&self) -> Result<Marks<'_>, Error> {
        claim(sequences().ok_or(Error::NoExtension)?.owner())
    }

    fn unlock(&self) {
        unlock_sequence(self.locked.get());
    }

    fn write(&self, value: Value, number: i64) -> Result<(), Error> {
        let sequences = sequences().ok_or(Error::NoExtension)?;
        self.request.writes();
        write_sequence(sequences.oid(value), number);
        match value {
            Value::Mark(_) => stats::count(Counter::MarksMoved, 1),
            Value::Layout => announce_layout(&sequences),
            Value::Local(_) | Value::Identity => {}
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        // Whatever `synchronous_commit` says: any role can switch that off, and would void the promise for all.
        // SAFETY: the end of this backend's last log record. (0 if `wal_level` is minimal and the sequence is new: the
        // commit that makes it visible to others then makes it durable as a whole.)
        unsafe { pg_sys::XLogFlush(pg_sys::XactLastRecEnd) };
        self.request.has_flushed();
        Ok(())
    }

    fn now_ms(&self) -> i64 {
        WallClock.now_ms()
    }

    fn boot_ms(&self) -> i64 {
        backend::boot_ms()
    }

    fn wait(&self, wait: Wait) -> Result<(), Error> {
        self.request.wait(wait);
        Ok(())
    }

    fn report(&self, notice: Notice) {
        match notice {
            Notice::OtherIdentity { stored, mark_ms } => {
                let numbers = |identity: &Identity| numbers(self.layout, identity);
                let old = Identity::of_code(self.layout, stored).as_ref().map_or("other numbers".into(), numbers);
                let new = guc::drawing().map_or_else(|_| String::new(), |drawing| numbers(drawing.identity()));
                let begin = Utc(mark_ms);
                log!("snowflake_id: this database's ids were drawn with {old}; with {new} they begin after {begin}");
            }
            Notice::SetBack { stored_ms, mark_ms } => {
                let (stored, mark) = (Utc(stored_ms), Utc(mark_ms));
                warning!("snowflake_id: the mark of this database was set back to {stored}; it is {mark} again");
            }
        }
    }
}

impl From<Refusal> for Error {
    fn from(refused: Refusal) -> Self {
        match refused {
            Refusal::Behind { behind_ms, mark_ms } => {
                let max_borrow_ms = guc::max_borrow_ms();
                let is_never = guc::config().is_some_and(|config| mark_ms > config.layout.last_instant_ms());
                let again = Again { at_ms: mark_ms - max_borrow_ms, in_ms: behind_ms - max_borrow_ms, is_never };
                Self::BehindMark { behind_ms, mark_ms, again }
            }
            Refusal::Jumped { jump_ms } => Self::Jumped { jump_ms, max_ms: guc::max_clock_jump_ms() },
            Refusal::OtherLayout { stored } => {
                let config = guc::config().expect("a mark exists only where the settings are defined");
                Self::OtherLayout { stored, layout: config.layout }
            }
            Refusal::InUse => Self::MarkInUse,
            Refusal::SameNumber => Self::SameNumber,
            Refusal::FarAhead { id_ms, now_ms, most_ms } => Self::FarAhead { id_ms, now_ms, most_ms },
        }
    }
}

/// A server's numbers, for people: `datacenter 3, worker 5, backup worker on`.
fn numbers(layout: &Layout, identity: &Identity) -> String {
    let number = |field: Field| layout.max_of(field).map(|_| format!("{field} {}", identity.number(layout, field)));
    let backup = identity.has_backup().then(|| "backup worker on".to_owned());
    let parts = [number(Field::Datacenter), number(Field::Worker), backup];
    parts.into_iter().flatten().reduce(|line, part| line + ", " + &part).unwrap_or_else(|| "no number".into())
}

/// Takes over the published marks of this database, or free ones. Says when few are left.
fn claim(owner: u64) -> Result<Marks<'static>, Error> {
    let all = shmem::marks().ok_or(Error::NotPreloaded)?;
    let is_new = !in_use().any(|marks| marks.owner() >> 32 == owner >> 32);
    let gone = |database| !catalog::database_exists(database);
    let marks = PublishedMarks::claim_one(all, owner, gone).ok_or(Error::TooManyDatabases(all.len()))?;
    // Counted only where there can be so many: each is looked up.
    if is_new && stats::are_few_places_left(in_use().count(), all.len()) {
        stats::look_at_the_places(places_taken(), all.len());
    }
    Ok(remember(marks))
}

/// How many databases draw ids, and have a place for their marks.
pub fn places_taken() -> usize {
    in_use().filter(|marks| catalog::database_exists((marks.owner() >> 32) as u32)).count()
}

/// Remembers the marks for this session's draws.
fn remember(marks: Marks<'static>) -> Marks<'static> {
    KNOWN.set(Some(marks));
    marks
}

/// The sequences of this database, or `None` without the extension. They live and die together.
fn sequences() -> Option<Sequences> {
    // Copied: the lock is not held while something may raise.
    let known = *SEQUENCES.lock();
    let found = known.filter(|known| catalog::relation_exists(known.marks[0])).or_else(find_sequences);
    *SEQUENCES.lock() = found;
    found
}

/// Looks the sequences up among the members of the extension.
fn find_sequences() -> Option<Sequences> {
    const NAMES: [&CStr; 6] = [
        c"snowflake_mark",
        c"snowflake_mark_backup",
        c"snowflake_mark_local",
        c"snowflake_mark_backup_local",
        c"snowflake_mark_layout",
        c"snowflake_mark_identity",
    ];
    let mut found = [None; NAMES.len()];
    for member in catalog::members(catalog::extension()?).filter(|member| member.class == pg_sys::RelationRelationId) {
        // SAFETY: look up rows of a catalog; the name is a palloc'd copy. Errors are raised through pgrx's guard.
        unsafe {
            let name = pg_sys::get_rel_name(member.number);
            if name.is_null() || pg_sys::get_rel_relkind(member.number) as u8 != pg_sys::RELKIND_SEQUENCE {
                continue;
            }
            if let Some(which) = NAMES.iter().position(|known| *known == CStr::from_ptr(name)) {
                found[which] = Some(member.number);
            }
        }
    }
    let [primary, backup, local_primary, local_backup, layout, identity] = found;
    let (marks, local) = ([primary?, backup?], [local_primary?, local_backup?]);
    Some(Sequences { marks, local, layout: layout?, identity: identity? })
}

/// commands/sequence.h: the one row of a sequence.
#[repr(C)]
struct SequenceRow {
    last_value: i64,
    log_count: i64,
    is_called: bool,
}

/// A sequence's value, or `None` if it was never set. (Not PostgreSQL's function for it, which keeps a lock to the end of the
/// transaction: who waits must hold none.)
fn read_sequence(sequence: pg_sys::Oid) -> Result<Option<i64>, Error> {
    // SAFETY: a sequence has one page with one row, as PostgreSQL's own sequence.c reads it; the page is pinned and locked
    // while the row is copied. A relation that is gone is null. Errors are raised through pgrx's guard.
    unsafe {
        let relation = pg_sys::try_relation_open(sequence, pg_sys::AccessShareLock as _);
        if relation.is_null() {
            return Err(Error::NoExtension);
        }
        let buffer = pg_sys::ReadBuffer(relation, 0);
        pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE as _);
        let page = pg_sys::BufferGetPage(buffer);
        let first_item = (*page.cast::<pg_sys::PageHeaderData>()).pd_linp.as_ptr();
        let tuple = page.add((*first_item).lp_off() as usize).cast::<pg_sys::HeapTupleHeaderData>();
        let row = tuple.cast::<u8>().add((*tuple).t_hoff.into()).cast::<SequenceRow>();
        let value = (*row).is_called.then(|| (*row).last_value);
        pg_sys::UnlockReleaseBuffer(buffer);
        pg_sys::relation_close(relation, pg_sys::AccessShareLock as _);
        Ok(value)
    }
}

/// Sets a sequence as the bootstrap superuser does, and logs it. The transaction gets an id and keeps its lock on the
/// sequence, as with `nextval`.
fn write_sequence(sequence: pg_sys::Oid, value: i64) {
    // SAFETY: should setval raise, the end of the (sub)transaction restores the user; else we do. It is called with its two
    // arguments, of the types it has.
    unsafe {
        let (mut user, mut context) = (pg_sys::InvalidOid, 0);
        pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        let as_superuser = context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as c_int;
        pg_sys::SetUserIdAndSecContext(pg_sys::BOOTSTRAP_SUPERUSERID.into(), as_superuser);
        pgrx::direct_function_call_as_datum(pg_sys::setval_oid, &[sequence.into_datum(), value.into_datum()]);
        pg_sys::SetUserIdAndSecContext(user, context);
    }
}

const LOCK: pg_sys::LOCKMODE = pg_sys::ShareUpdateExclusiveLock as pg_sys::LOCKMODE;

fn lock_sequence(sequence: pg_sys::Oid, wait: bool) -> bool {
    // SAFETY: may be called in any transaction; a relation that is gone can be locked too. Errors (cancel, deadlock) are
    // raised through pgrx's guard.
    unsafe {
        if wait {
            pg_sys::LockRelationOid(sequence, LOCK);
            return true;
        }
        pg_sys::ConditionalLockRelationOid(sequence, LOCK)
    }
}

fn unlock_sequence(sequence: pg_sys::Oid) {
    // SAFETY: as above, for a lock that this session has taken.
    unsafe { pg_sys::UnlockRelationOid(sequence, LOCK) };
}

/// Whether this transaction has written the sequence: `setval` keeps its lock to the end.
fn has_written(sequence: pg_sys::Oid) -> bool {
    let mode = pg_sys::RowExclusiveLock as pg_sys::LOCKMODE;
    // SAFETY: looks at this backend's own table of locks; the tag is SET_LOCKTAG_RELATION's. MyDatabaseId is read by value.
    unsafe {
        let tag = pg_sys::LOCKTAG {
            locktag_field1: pg_sys::MyDatabaseId.to_u32(),
            locktag_field2: sequence.to_u32(),
            locktag_field3: 0,
            locktag_field4: 0,
            locktag_type: pg_sys::LockTagType::LOCKTAG_RELATION as u8,
            locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
        };
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return pg_sys::LockHeldByMe(&raw const tag, mode);
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        return pg_sys::LockHeldByMe(&raw const tag, mode, false);
    }
}

/// The hook that was there before ours.
static PREVIOUS_OBJECT_ACCESS: Local<pg_sys::object_access_hook_type> = Local::new(None);

/// Asks PostgreSQL to tell when transactions end, and when objects are made, dropped and called. (For these PostgreSQL has as
/// many places as are asked for.)
pub fn init() {
    // SAFETY: the postmaster, or a session, has one thread; this is how PostgreSQL registers callbacks and chains hooks. Once,
    // since a library is initialized once per process.
    unsafe {
        pg_sys::RegisterXactCallback(Some(transaction_ends), ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(part_of_transaction_ends), ptr::null_mut());
        if backend::is_preloading() {
            PREVIOUS_OBJECT_ACCESS.set(pg_sys::object_access_hook);
            pg_sys::object_access_hook = Some(object_accessed);
        }
    }
}

/// Called when an object is made or dropped, and for each function in an expression that is about to be executed. Plain: no guard,
/// no destructor, since the previous hook may raise.
unsafe extern "C-unwind" fn object_accessed(
    access: pg_sys::ObjectAccessType::Type,
    class: pg_sys::Oid,
    object: pg_sys::Oid,
    sub_object: c_int,
    argument: *mut c_void,
) {
    // SAFETY: the previous hook is called as it would have been; MyDatabaseId is a variable of this backend, read by value.
    unsafe {
        if let Some(previous) = PREVIOUS_OBJECT_ACCESS.get() {
            previous(access, class, object, sub_object, argument);
        }
        if access == pg_sys::ObjectAccessType::OAT_FUNCTION_EXECUTE {
            if object == pg_sys::F_SETVAL_REGCLASS_INT8.into() || object == pg_sys::F_SETVAL_REGCLASS_INT8_BOOL.into() {
                CALLS_SETVAL.set(true);
            }
            return;
        }
        let made_or_dropped =
            access == pg_sys::ObjectAccessType::OAT_POST_CREATE || access == pg_sys::ObjectAccessType::OAT_DROP;
        if !made_or_dropped || sub_object != 0 {
            return;
        }
        // A number may be given again, and to a database even on purpose: what is published must not outlive either end.
        // And a database without the extension needs no place.
        if class == pg_sys::DatabaseRelationId {
            let database = u64::from(object.to_u32());
            in_use().filter(|marks| marks.owner() >> 32 == database).for_each(PublishedMarks::forget);
        } else if class == pg_sys::RelationRelationId {
            MAKES_RELATIONS.set(true);
            let owner = u64::from(pg_sys::MyDatabaseId.to_u32()) << 32 | u64::from(object.to_u32());
            in_use().for_each(|marks| marks.release(owner));
        }
    }
}

/// The published marks that belong to a database, or did. They are taken from the front.
fn in_use() -> impl Iterator<Item = &'static PublishedMarks> {
    shmem::marks().unwrap_or_default().iter().take_while(|marks| marks.owner() != UNCLAIMED)
}

/// Called at every end of a transaction. Cheap for those that have set no sequence.
unsafe extern "C-unwind" fn transaction_ends(event: pg_sys::XactEvent::Type, _: *mut c_void) {
    use pg_sys::XactEvent::{XACT_EVENT_COMMIT, XACT_EVENT_PRE_COMMIT, XACT_EVENT_PRE_PREPARE};
    if event != XACT_EVENT_PRE_COMMIT && event != XACT_EVENT_PRE_PREPARE {
        if event != XACT_EVENT_COMMIT {
            // After PREPARE TRANSACTION, too, this session sees nothing any more of what it has made.
            forget_what_was_made();
        }
        for static_of_transaction in [&LAYOUT_CHECKED, &CALLS_SETVAL, &MAKES_RELATIONS] {
            static_of_transaction.set(false);
        }
        return;
    }
    // A background worker may set sequences without a call in SQL: pglogical's does, when it replicates them.
    let may_have_set = CALLS_SETVAL.get() || backend::is_background_worker();
    // SAFETY: a variable of this backend, read by value.
    let database = unsafe { pg_sys::MyDatabaseId };
    if may_have_set && backend::has_written() && database != pg_sys::InvalidOid && shmem::generator().is_some() {
        recheck();
    }
}

/// Called at every end of a part of a transaction, such as a savepoint's.
unsafe extern "C-unwind" fn part_of_transaction_ends(
    event: pg_sys::SubXactEvent::Type,
    _part: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _: *mut c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        forget_what_was_made();
    }
}

/// The marks of a sequence that this transaction has made, and that is gone with it, must not be drawn by.
fn forget_what_was_made() {
    if MAKES_RELATIONS.get() {
        KNOWN.set(None);
    }
}

/// Notices that this transaction has set the sequences itself: it has restored a dump. Guarded, since it may raise.
#[pg_guard]
extern "C-unwind" fn recheck() {
    let (Some(sequences), Some(config)) = (sequences(), guc::config()) else { return };
    let all = sequences.all().map(has_written);
    if all.contains(&true) {
        let [primary, backup, _, _, layout, identity] = all;
        if layout {
            announce_layout(&sequences);
        }
        let written = Written { marks: [primary, backup], layout, identity };
        let drawing = guc::drawing().ok();
        let identity = drawing.as_ref().map(Drawing::identity);
        let layout = &config.layout;
        of(layout, &Request::new()).and_then(|mark| mark.recheck(layout, identity, written)).or_raise();
    }
}
