//! Shared memory: the generator, the marks of the databases that draw, and one slot for each backend.
//!
//! ```text
//! +-----------+-------+----------+------------+---------------------+--------+-----+----------------------+
//! | Generator | clock | nobody's | since the  | marks of each of up | Slot 0 | ... | Slot MaxBackends - 1 |
//! |           | refer-| marks    | last reset | to max_databases    |        |     |                      |
//! |           | ence  |          |            | databases           |        |     |                      |
//! +-----------+-------+----------+------------+---------------------+--------+-----+----------------------+
//! ```
//!
//! Protocol: generator and marks are atomic words (`core/generator.rs`, `core/published.rs`); a session
//! writes the marks of a database only while it holds a lock on their sequence (`mark.rs`). A slot has
//! one writer, its backend (`slot.rs`). Nothing here is ever freed: it lives as long as the postmaster,
//! and is made anew when a crashed backend makes the postmaster start over.

use std::mem::size_of;
use std::ptr;

use pgrx::pg_sys;
use pgrx::prelude::*;
use snowflake_core::atomic::{AtomicI64, AtomicU64, Ordering};
use snowflake_core::clock::{Clock, ClockReference, Seldom};
use snowflake_core::generator::Generator;
use snowflake_core::published::{PublishedMarks, UNCLAIMED};

use crate::backend::{self, WallClock};
use crate::error::Error;
use crate::guc;
use crate::local::Local;
use crate::slot::{Counter, Counts, OfBackend, Slot, places};

/// What all backends share.
#[derive(Debug)]
#[repr(C)]
struct Shared {
    generator: Generator,
    clocks: ClockReference,
    /// Marks that nobody ever loads: they permit nothing.
    nobodys: PublishedMarks,
    since: Since,
    /// One for each [`Topic`].
    notices: [Seldom; Topic::COUNT],
}

/// What the server's counts were when they were last reset. Nobody but a backend itself may write its slot, so the counts
/// go on, and what they were is subtracted.
#[derive(Debug)]
struct Since {
    counts: [AtomicU64; Counter::COUNT],
    /// When that was, in milliseconds since 1970.
    reset_ms: AtomicI64,
}

places! {
    /// What is logged at most once in a while.
    pub enum Topic {
        UsedUp,
        ClockStepBack,
        LastYear,
        FewPlaces,
        ClockStepBackRefused,
        ClockJumpRefused,
        MarkRefused,
        LayoutRefused,
        NumberRefused,
        TimeUsedUpRefused,
        DatabasesRefused,
    }
}

/// Start of the shared memory, `None` without preload. Set by the postmaster and inherited by its children.
static START: Local<Option<&'static Shared>> = Local::new(None);

/// This backend's slot, `None` until it draws. Children of the postmaster start with `None`.
static SLOT: Local<Option<&'static Slot>> = Local::new(None);

// ShmemInitStruct aligns to PG_CACHE_LINE_SIZE; the marks of databases follow what all share, and then the slots.
const _: () = assert!(
    align_of::<Shared>() <= 128
        && size_of::<Shared>().is_multiple_of(align_of::<PublishedMarks>())
        && size_of::<PublishedMarks>().is_multiple_of(align_of::<Slot>())
);

#[inline]
fn shared() -> Option<&'static Shared> {
    START.get()
}

/// The generator, or `None` without preload.
#[inline]
pub fn generator() -> Option<&'static Generator> {
    Some(&shared()?.generator)
}

/// How a jump of the clock is known, or `None` without preload.
pub fn clocks() -> Option<&'static ClockReference> {
    Some(&shared()?.clocks)
}

/// The marks of all databases, or `None` without preload.
pub fn marks() -> Option<&'static [PublishedMarks]> {
    let first = first_marks(ptr::from_ref(shared()?));
    // SAFETY: `startup` initialized so many marks behind what all share. They are only ever used through shared references to
    // atomics.
    Some(unsafe { std::slice::from_raw_parts(first, guc::max_databases()) })
}

/// The published marks that belong to a database, or did. They are taken from the front.
pub fn marks_in_use() -> impl Iterator<Item = &'static PublishedMarks> {
    marks().unwrap_or_default().iter().take_while(|marks| marks.owner() != UNCLAIMED)
}

fn first_marks(shared: *const Shared) -> *const PublishedMarks {
    shared.wrapping_add(1).cast()
}

fn first_slot(shared: *const Shared) -> *const Slot {
    first_marks(shared).wrapping_add(guc::max_databases()).cast()
}

/// Marks that permit nothing, or `None` without preload.
pub fn nobodys_marks() -> Option<&'static PublishedMarks> {
    Some(&shared()?.nobodys)
}

/// The slots of all backends, or `None` without preload.
fn slots() -> Option<&'static [Slot]> {
    let first = first_slot(ptr::from_ref(shared()?));
    // SAFETY: `startup` initialized MaxBackends slots behind the rest. They are only ever used through shared references to
    // atomics.
    Some(unsafe { std::slice::from_raw_parts(first, backend::max_backends()) })
}

/// What the server has counted since the last reset, and when that was, in milliseconds since 1970; or `None` without
/// preload. While backends draw, one count may be of a moment later than another.
pub fn counts() -> Option<(Counts, i64)> {
    let (since, slots) = (&shared()?.since, slots()?);
    // Acquire: pairs with the Release in `reset_counts`. Counts only grow, and those read after this are not older than those
    // that were subtracted then.
    let before: Counts = std::array::from_fn(|counter| since.counts[counter].load(Ordering::Acquire));
    let counts = std::array::from_fn(|counter| sum(slots, counter).wrapping_sub(before[counter]));
    // Relaxed: as in `reset_counts`.
    Some((counts, since.reset_ms.load(Ordering::Relaxed)))
}

/// Counts from here on. `None` without preload.
pub fn reset_counts(now_ms: i64) -> Option<()> {
    let (since, slots) = (&shared()?.since, slots()?);
    for (counter, before) in since.counts.iter().enumerate() {
        // Release: pairs with the Acquire in `counts`. fetch_max: of two resets at once, the later reading counts.
        before.fetch_max(sum(slots, counter), Ordering::Release);
    }
    // Relaxed: not ordered with the counts; a reading between them is of before and of after the reset.
    since.reset_ms.store(now_ms, Ordering::Relaxed);
    Some(())
}

fn sum(slots: &[Slot], counter: usize) -> u64 {
    slots.iter().fold(0, |sum, slot| sum.wrapping_add(slot.count(counter)))
}

/// The greatest id drawn by any backend since the start, dead ones included.
pub fn greatest_id() -> Option<i64> {
    slots()?.iter().filter_map(Slot::greatest_id).max()
}

/// Whether any backend has drawn since the start.
pub fn has_drawn() -> bool {
    let has = |slot: &Slot| slot.count(Counter::Drawn as usize) > 0;
    // Its own first: the others' are being written.
    slot().is_some_and(has) || slots().is_some_and(|slots| slots.iter().any(has))
}

/// What the backends that have drawn, or waited to, and still live have done; or `None` without preload.
pub fn backends() -> Option<impl Iterator<Item = OfBackend>> {
    Some(slots()?.iter().enumerate().filter_map(|(number, slot)| slot.of_backend(number)))
}

/// Whether it is time to log something that is logged every `every_ms` milliseconds at most; false without preload.
pub fn is_due(notice: Topic, every_ms: i64) -> bool {
    shared().is_some_and(|shared| shared.notices[notice as usize].is_due(backend::boot_ms(), every_ms))
}

/// This backend's slot, or `None` before it was claimed.
#[inline]
pub fn slot() -> Option<&'static Slot> {
    SLOT.get()
}

/// Claims this backend's slot, unless that was done before.
///
/// # Errors
/// [`Error::NotPreloaded`].
pub fn claim_slot() -> Result<&'static Slot, Error> {
    if let Some(slot) = slot() {
        return Ok(slot);
    }
    let number = backend::proc_number();
    let slot = slots().ok_or(Error::NotPreloaded)?.get(number);
    let slot = slot.unwrap_or_else(|| panic!("backend {number} is beyond MaxBackends"));
    slot.begin(backend::pid());
    SLOT.set(Some(slot));
    Ok(slot)
}

/// The hooks that were there before ours.
static PREVIOUS_REQUEST: Local<pg_sys::shmem_request_hook_type> = Local::new(None);
static PREVIOUS_STARTUP: Local<pg_sys::shmem_startup_hook_type> = Local::new(None);

/// Asks for shared memory, when preloaded. (Not pgrx's `pg_shmem_init!`, which is of fixed size: MaxBackends is known
/// only when the request hook runs.)
pub fn init() {
    if !backend::is_preloading() {
        return;
    }
    // SAFETY: the postmaster has one thread; this is how PostgreSQL chains hooks.
    unsafe {
        PREVIOUS_REQUEST.set(pg_sys::shmem_request_hook);
        pg_sys::shmem_request_hook = Some(request);
        PREVIOUS_STARTUP.set(pg_sys::shmem_startup_hook);
        pg_sys::shmem_startup_hook = Some(startup);
    }
}

fn size() -> usize {
    size_of::<Shared>()
        + guc::max_databases() * size_of::<PublishedMarks>()
        + backend::max_backends() * size_of::<Slot>()
}

/// What was drawn before is lost with the words. What is known of it is looked up at the first draw (`core/mark.rs`), and not
/// here, where a standby may have years to go until it is promoted.
fn at_start() -> Shared {
    Shared {
        generator: Generator::new(),
        clocks: ClockReference::new(),
        nobodys: PublishedMarks::new(),
        since: Since {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            reset_ms: AtomicI64::new(WallClock.now_ms()),
        },
        notices: std::array::from_fn(|_| Seldom::new()),
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn request() {
    // SAFETY: called by the postmaster as PostgreSQL's shmem_request_hook, where requesting is allowed.
    unsafe {
        if let Some(previous) = PREVIOUS_REQUEST.get() {
            previous();
        }
        pg_sys::RequestAddinShmemSpace(size());
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn startup() {
    // SAFETY: called by the postmaster as PostgreSQL's shmem_startup_hook, before it has any child (so no lock is needed:
    // children are forked and never run it), at the start and after each crash of a backend. The memory is large
    // enough, aligned to PG_CACHE_LINE_SIZE (128), and nobody else refers to it yet. It is never freed while a process lives that has
    // it from `START`: the postmaster replaces it there before it forks again.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP.get() {
            previous();
        }
        let mut found = false;
        let start = pg_sys::ShmemInitStruct(c"snowflake_id".as_ptr(), size(), &raw mut found).cast::<Shared>();
        start.write(at_start());
        let (marks, slots) = (first_marks(start).cast_mut(), first_slot(start).cast_mut());
        for number in 0..guc::max_databases() {
            marks.add(number).write(PublishedMarks::new());
        }
        for number in 0..backend::max_backends() {
            slots.add(number).write(Slot::new());
        }
        START.set(Some(&*start));
    }
}
