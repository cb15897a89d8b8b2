//! Shared memory: the generator, the marks of the databases that draw, and one slot for each backend.
//!
//! ```text
//! +-----------+-------+----------+-----------------+--------+-----+------------------------+
//! | Generator | clock | nobody's | marks of each   | Slot 0 | ... | Slot MaxBackends - 1   |
//! |           | refer-| marks    | of up to 128    |        |     |                        |
//! |           | ence  |          | databases       |        |     |                        |
//! +-----------+-------+----------+-----------------+--------+-----+------------------------+
//! ```
//!
//! Protocol: generator and marks are atomic words (`core/generator.rs`); who may write the marks of a database holds a lock
//! on its sequence (`mark.rs`). A slot is written by its backend alone,
//! with plain stores, so that counting costs no shared write; anybody may read it. Nothing here is ever freed: it lives
//! as long as the postmaster, and is made anew when a crashed backend makes the postmaster start over.

use std::mem::size_of;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering};

use pgrx::pg_sys;
use pgrx::prelude::*;
use snowflake_core::clock::Clock;
use snowflake_core::generator::{ClockReference, Generator, PublishedMarks};

use crate::backend::{self, WallClock};
use crate::error::Error;
use crate::guc;

/// How many databases can draw ids between two starts of the server.
pub const MOST_DATABASES: usize = 128;

/// What all backends share.
#[derive(Debug)]
#[repr(C)]
struct Shared {
    generator: Generator,
    clocks: ClockReference,
    /// Marks that nobody ever loads: they permit nothing.
    nobodys: PublishedMarks,
    marks: [PublishedMarks; MOST_DATABASES],
}

/// What one backend has drawn. A cache line of its own.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot {
    /// Ids drawn by the backend that owns the slot now. (For statistics, which are to come; counted from the start, so that
    /// the figures of the hot path hold.)
    drawn: AtomicU64,
    /// The last id it drew, [`NO_ID`] if none.
    last_id: AtomicI64,
}

/// Not an id: ids are not negative.
const NO_ID: i64 = -1;

impl Slot {
    fn new() -> Self {
        Self { drawn: AtomicU64::new(0), last_id: AtomicI64::new(NO_ID) }
    }

    /// Notes that `id` was drawn.
    #[inline]
    pub fn note(&self, id: i64) {
        // Relaxed, and a load and a store instead of an addition: only this backend writes, and readers of statistics
        // need no order between the two.
        self.drawn.store(self.drawn.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.last_id.store(id, Ordering::Relaxed);
    }

    /// The last id drawn in this session.
    pub fn last_id(&self) -> Option<i64> {
        // Relaxed: written by this backend.
        Some(self.last_id.load(Ordering::Relaxed)).filter(|id| *id != NO_ID)
    }
}

/// Start of the shared memory, null without preload. Set by the postmaster and inherited by its children.
static START: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

/// This backend's slot, null until it draws. Children of the postmaster start with null.
static SLOT: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());

// ShmemInitStruct aligns to PG_CACHE_LINE_SIZE, and the slots follow what all share.
const _: () = assert!(align_of::<Shared>() <= 128 && size_of::<Shared>().is_multiple_of(align_of::<Slot>()));

#[inline]
fn shared() -> Option<&'static Shared> {
    // Relaxed: written before this process was forked.
    let start = START.load(Ordering::Relaxed);
    // SAFETY: null, or what `startup` initialized and that is never freed while this process lives.
    unsafe { start.as_ref() }
}

/// The generator, or `None` without preload.
#[inline]
pub fn generator() -> Option<&'static Generator> {
    Some(&shared()?.generator)
}

/// How a leap of the clock is known, or `None` without preload.
pub fn clocks() -> Option<&'static ClockReference> {
    Some(&shared()?.clocks)
}

/// The marks of all databases, or `None` without preload.
pub fn marks() -> Option<&'static [PublishedMarks]> {
    Some(&shared()?.marks)
}

/// Marks that permit nothing, or `None` without preload.
pub fn nobodys_marks() -> Option<&'static PublishedMarks> {
    Some(&shared()?.nobodys)
}

/// This backend's slot, or `None` before it was claimed.
#[inline]
pub fn slot() -> Option<&'static Slot> {
    // Relaxed: written by this process, which has one thread.
    let slot = SLOT.load(Ordering::Relaxed);
    // SAFETY: null, or the slot that `claim_slot` found, which is never freed while this process lives.
    unsafe { slot.as_ref() }
}

/// Claims this backend's slot, emptied of its previous owner's ids, unless that was done before.
///
/// # Errors
/// [`Error::NotPreloaded`].
pub fn claim_slot() -> Result<&'static Slot, Error> {
    if let Some(slot) = slot() {
        return Ok(slot);
    }
    let start = ptr::from_ref(shared().ok_or(Error::NotPreloaded)?);
    let number = backend::proc_number();
    assert!(number < backend::max_backends(), "backend {number} is beyond MaxBackends");
    // SAFETY: `startup` initialized MaxBackends slots behind the rest, and `number` is one of theirs. Slots are
    // only ever used through shared references to atomics.
    let slot = unsafe { &*start.add(1).cast::<Slot>().add(number) };
    // Relaxed: the previous owner is gone, and PostgreSQL's own handling of PGPROCs lies between it and us.
    slot.drawn.store(0, Ordering::Relaxed);
    slot.last_id.store(NO_ID, Ordering::Relaxed);
    SLOT.store(ptr::from_ref(slot).cast_mut(), Ordering::Relaxed);
    Ok(slot)
}

/// The hooks that were there before ours.
static mut PREVIOUS_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut PREVIOUS_STARTUP: pg_sys::shmem_startup_hook_type = None;

/// Asks for shared memory, when preloaded. (Not pgrx's `pg_shmem_init!`, which is of fixed size: MaxBackends is known
/// only when the request hook runs.)
pub fn init() {
    if !backend::is_preloading() {
        return;
    }
    // SAFETY: the postmaster has one thread; this is how PostgreSQL chains hooks.
    unsafe {
        PREVIOUS_REQUEST = pg_sys::shmem_request_hook;
        pg_sys::shmem_request_hook = Some(request);
        PREVIOUS_STARTUP = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(startup);
    }
}

fn size() -> usize {
    size_of::<Shared>() + backend::max_backends() * size_of::<Slot>()
}

/// The words of an earlier start, or of the time before a crash, are lost. Each database has its mark; but what other
/// databases of this server drew is known only by the clock: all that can have been drawn by now counts as drawn.
fn at_start() -> Shared {
    // A generator that follows nothing would repeat ids, so there is no default to fall back to.
    let config = guc::config().expect("the settings are defined before the hook that asks for them is installed");
    Shared {
        generator: Generator::following(&config.layout, WallClock.now_ms(), guc::max_borrow_ms()),
        clocks: ClockReference::new(),
        nobodys: PublishedMarks::new(),
        marks: std::array::from_fn(|_| PublishedMarks::new()),
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn request() {
    // SAFETY: called by the postmaster as PostgreSQL's shmem_request_hook, where requesting is allowed.
    unsafe {
        if let Some(previous) = PREVIOUS_REQUEST {
            previous();
        }
        pg_sys::RequestAddinShmemSpace(size());
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn startup() {
    // SAFETY: called by the postmaster as PostgreSQL's shmem_startup_hook, before it has any child (so no lock is needed:
    // children are forked and never run it), at the start and after each crash of a backend. The memory is large
    // enough, aligned to PG_CACHE_LINE_SIZE (128), and nobody else refers to it yet.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP {
            previous();
        }
        let mut found = false;
        let start = pg_sys::ShmemInitStruct(c"snowflake_id".as_ptr(), size(), &raw mut found).cast::<Shared>();
        start.write(at_start());
        let slots = start.add(1).cast::<Slot>();
        for number in 0..backend::max_backends() {
            slots.add(number).write(Slot::new());
        }
        // Relaxed: the children that read it are forked later.
        START.store(start, Ordering::Relaxed);
    }
}
