//! Shared memory: what all backends share, and one slot for each backend.
//!
//! ```text
//! Generator | clock reference | numbers | worker's own | lease | life | unclaimed marks | counts at the last reset
//! topics
//! places of tags
//! marks of each of up to max_databases databases | Slot 0 | ... | Slot MaxBackends - 1
//!
//! what readers share | promises of each of up to max_databases databases | prepared transactions
//! ```
//!
//! `region/lib.rs` computes where each part lies, and has tests of its own. Generator and marks are
//! atomic words (`core/draw/generator.rs`, `core/draw/published.rs`). A session must publish marks
//! only while it holds a lock on their sequence (`database_mark.rs`). A slot has one writer, its
//! backend (`slot.rs`). Nothing here is ever freed; after a crash of a backend, the postmaster
//! makes it anew. What a lease needs for a life to go on then lies elsewhere (`page.rs`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ptr::NonNull;

use pgrx::pg_sys;
use pgrx::prelude::*;
use snowflake_core::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use snowflake_core::clock::{Clock, ClockReference, RateLimit};
use snowflake_core::draw::generator::Generator;
use snowflake_core::draw::numbers::Numbers;
use snowflake_core::draw::published::{PublishedMarks, UNCLAIMED};
use snowflake_core::draw::settled::Promise;
use snowflake_core::draw::settled::prepared::{PreparedPlace, PreparedRuns, PreparedTable};
use snowflake_core::fleet::lease::Holder;
use snowflake_core::fleet::page::{self as record, Beginning, Kept, NextLife, PageFailure, Void, Written};
use snowflake_core::fleet::segment::Supply;
use snowflake_core::id::identity::LaneName;
use snowflake_region::Region;

use crate::error::fleet as texts;
use crate::error::{Error, Sent};
use crate::postgres::backend::{self, WallClock};
use crate::postgres::local::Local;
use crate::settings::guc;
use crate::shared::lease_status::{LeaseStatus, can_lease};
use crate::shared::locked::{self, Lock, Locked, WorkerCell};
use crate::shared::page::{self, PageError};
use crate::shared::slot::{Counter, DrawCounts, OfBackend, Slot, places};
use crate::shared::tags::Tags;

/// What all backends share.
#[derive(Debug)]
#[repr(C)]
struct Shared {
    generator: Generator,
    clocks: ClockReference,
    numbers: Numbers,
    workers: WorkerCell<Work>,
    lease: Locked<LeaseStatus>,
    /// Which life of shared memory this is, as the page knows it (`page.rs`).
    life: Locked<u64>,
    /// Marks that are never claimed or loaded, so they permit nothing.
    unclaimed: PublishedMarks,
    since: CountsAtReset,
    /// One for each [`Topic`].
    topics: [RateLimit; Topic::COUNT],
    tags: Tags,
}

/// What the background worker keeps in shared memory, so that the next one goes on.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// This life of shared memory, which leases the number.
    pub holder: Holder,
    /// What is known of the tags.
    pub supply: Supply,
    /// What proves to the registry that a record is this life's own. No other server knows it.
    pub secret: u128,
}

/// The server's counts at the last reset. Only a backend itself may write its slot, so the slots'
/// counts go on, and these are subtracted.
#[derive(Debug)]
struct CountsAtReset {
    counts: [AtomicU64; Counter::COUNT],
    /// The time of the last reset, in milliseconds since 1970.
    reset_ms: AtomicI64,
}

/// What readers of the settled id share, besides the slots.
#[derive(Debug)]
pub struct Readers {
    /// Guards the promises' databases, and the table of prepared transactions.
    pub lock: Locked<()>,
    /// The prepared transactions that have made room.
    runs: PreparedRuns,
    /// Whether the table was filled from locks.
    pub is_filled: AtomicBool,
}

places! {
    /// What is logged at most once per interval.
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
        LeaseRefused,
        FleetRefused,
        PageBroken,
        LeaseFails,
        LeaseReason,
        LeaseForgotten,
        ClockOff,
        BlockRefused,
        SupplyFails,
    }
}

/// What all backends share, the marks of each database, and the slot of each backend.
type Memory = Region<Shared, PublishedMarks, Slot>;

/// What readers of the settled id share, the promise of each database, and the prepared
/// transactions.
type ReaderMemory = Region<Readers, Promise, PreparedPlace>;

/// The shared memory; `None` without preload. The postmaster sets it, and its children inherit it.
static MEMORY: Local<Option<Memory>> = Local::new(None);

/// As above.
static READER_MEMORY: Local<Option<ReaderMemory>> = Local::new(None);

/// This backend's slot, `None` until it draws. Children of the postmaster start with `None`.
static SLOT: Local<Option<&'static Slot>> = Local::new(None);

// ShmemInitStruct aligns to PG_CACHE_LINE_SIZE.
const _: () = assert!(Memory::ALIGN <= 128 && ReaderMemory::ALIGN <= 128);

// As the description of `max_databases` says.
const _: () = assert!(size_of::<PublishedMarks>() == 64);

#[inline]
fn shared() -> Option<&'static Shared> {
    Some(MEMORY.get()?.header())
}

/// Returns the generator, or `None` without preload.
#[inline]
pub fn generator() -> Option<&'static Generator> {
    Some(&shared()?.generator)
}

/// Returns the reference that shows a jump of the clock, or `None` without preload.
pub fn clocks() -> Option<&'static ClockReference> {
    Some(&shared()?.clocks)
}

/// Returns the leased numbers, or `None` without preload. There are none, and never will be, where
/// the numbers are configured.
pub fn numbers() -> Option<&'static Numbers> {
    Some(&shared()?.numbers)
}

/// Returns what the background worker keeps, or `None` without preload.
pub fn work() -> Option<&'static WorkerCell<Work>> {
    Some(&shared()?.workers)
}

/// Returns the tags that sessions draw dense values from, or `None` without preload.
#[inline]
pub fn tags() -> Option<&'static Tags> {
    Some(&shared()?.tags)
}

/// Returns what is known of the lease, or `None` without preload.
pub fn status() -> Option<&'static Locked<LeaseStatus>> {
    Some(&shared()?.lease)
}

/// Returns the marks of all databases, or `None` without preload.
pub fn marks() -> Option<&'static [PublishedMarks]> {
    Some(MEMORY.get()?.firsts())
}

/// Returns the published marks that belong to a database, or once did. They are taken from the
/// front.
pub fn marks_in_use() -> impl Iterator<Item = &'static PublishedMarks> {
    marks().unwrap_or_default().iter().take_while(|marks| marks.owner() != UNCLAIMED)
}

/// Returns marks that permit nothing, or `None` without preload.
pub fn unclaimed_marks() -> Option<&'static PublishedMarks> {
    Some(&shared()?.unclaimed)
}

/// Returns what readers of the settled id share, or `None` without preload.
pub fn readers() -> Option<&'static Readers> {
    Some(READER_MEMORY.get()?.header())
}

/// Returns the promises of all databases, or `None` without preload.
pub fn promises() -> Option<&'static [Promise]> {
    Some(READER_MEMORY.get()?.firsts())
}

/// Returns the table of prepared transactions, or `None` without preload.
pub fn prepared() -> Option<PreparedTable<'static>> {
    let memory = READER_MEMORY.get()?;
    Some(PreparedTable { places: memory.seconds(), runs: &memory.header().runs })
}

/// Returns the slots of all backends, or `None` without preload. Their index is that of
/// [`proc_number`](backend::proc_number).
pub fn slots() -> Option<&'static [Slot]> {
    Some(MEMORY.get()?.seconds())
}

/// Returns what the server has counted since the last reset, and when that was, in milliseconds
/// since 1970; `None` without preload. While backends draw, one count may be later than another.
pub fn counts() -> Option<(DrawCounts, i64)> {
    let (since, slots) = (&shared()?.since, slots()?);
    // Acquire: pairs with the Release in `reset_counts`. Counts only grow, and those read after
    // this are not older than those that the reset has read.
    let before: DrawCounts = std::array::from_fn(|counter| since.counts[counter].load(Ordering::Acquire));
    let counts = Counter::ALL.map(|counter| sum(slots, counter).wrapping_sub(before[counter as usize]));
    // Relaxed: as in `reset_counts`.
    Some((counts, since.reset_ms.load(Ordering::Relaxed)))
}

/// Resets the counts at `now_ms`. Returns `None` without preload.
pub fn reset_counts(now_ms: i64) -> Option<()> {
    let (since, slots) = (&shared()?.since, slots()?);
    for (counter, before) in Counter::ALL.into_iter().zip(&since.counts) {
        // Release: pairs with the Acquire in `counts`. fetch_max: of two resets at once, the later
        // reading counts.
        before.fetch_max(sum(slots, counter), Ordering::Release);
    }
    // Relaxed: not ordered with the counts. A reading during the reset mixes values from before and
    // after it.
    since.reset_ms.store(now_ms, Ordering::Relaxed);
    Some(())
}

fn sum(slots: &[Slot], counter: Counter) -> u64 {
    slots.iter().fold(0, |sum, slot| sum.wrapping_add(slot.count(counter)))
}

/// Returns the greatest id that any backend has drawn since the start, even one that has ended.
pub fn greatest_id() -> Option<i64> {
    slots()?.iter().filter_map(Slot::greatest_id).max()
}

/// Whether any backend has drawn since the start.
pub fn has_drawn() -> bool {
    let has = |slot: &Slot| slot.count(Counter::Drawn) > 0;
    // This backend's slot first, because the other backends are writing theirs.
    slot().is_some_and(has) || slots().is_some_and(|slots| slots.iter().any(has))
}

/// Returns what the live backends that have drawn, or waited to draw, have done; `None` without
/// preload.
pub fn backends() -> Option<impl Iterator<Item = OfBackend>> {
    Some(slots()?.iter().enumerate().filter_map(|(number, slot)| slot.of_backend(number)))
}

/// Whether to log now what is logged every `every_ms` milliseconds at most; false without preload.
pub fn is_due(topic: Topic, every_ms: i64) -> bool {
    shared().is_some_and(|shared| shared.topics[topic as usize].is_due(backend::boot_ms(), every_ms))
}

/// Returns this backend's slot, or `None` before it was claimed.
#[inline]
pub fn slot() -> Option<&'static Slot> {
    SLOT.get()
}

/// Claims this backend's slot, unless it has one.
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
    slot.begin(backend::pid(), backend::database());
    SLOT.set(Some(slot));
    Ok(slot)
}

/// The hooks that were installed before these.
static PREVIOUS_REQUEST: Local<pg_sys::shmem_request_hook_type> = Local::new(None);
static PREVIOUS_STARTUP: Local<pg_sys::shmem_startup_hook_type> = Local::new(None);

/// Requests shared memory, when preloaded. (pgrx's `pg_shmem_init!` is of fixed size, but
/// MaxBackends is known only when the request hook runs.)
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

/// Returns how many databases have marks, and how many backends have slots.
fn elements() -> (usize, usize) {
    (guc::max_databases(), backend::max_backends())
}

/// Returns how many databases can have a promise, and how many prepared transactions a place.
fn reader_elements() -> (usize, usize) {
    (guc::max_databases(), PreparedPlace::count(backend::max_prepared()))
}

/// Notes in the page that a mark of leased numbers is going to be published.
///
/// # Errors
/// [`PageError`]. The mark must not be published then.
pub fn raise_ceiling(mark_ms: i64) -> Result<(), PageError> {
    write_page(|page, life| record::raise_ceiling(page, life, mark_ms))
}

/// Notes in the page what this life holds, before a call. `made_for` is what the page is for.
///
/// # Errors
/// [`PageError`]. The call must not be made then.
pub fn keep(made_for: u64, kept: &Kept) -> Result<(), PageError> {
    write_page(|page, life| record::keep(page, life, made_for, kept))
}

fn write_page(
    write: impl Fn(&page::OwnPage, u64) -> Result<Written, PageFailure<std::io::Error>>,
) -> Result<(), PageError> {
    let Some((page, shared)) = page::own().zip(shared()) else { return Ok(()) };
    // The lock keeps processes apart, and the file's pages are in memory, so that it is held for
    // some microseconds. What remains of an earlier postmaster's processes knows another lock.
    let written: Written = page::patiently(|| {
        shared.life.change(|life| -> Result<_, PageError> {
            let Some(_lock) = page.lock()? else { return Ok(None) };
            Ok(Some(write(&page, *life)?))
        })
    })?;
    if written == Written::Broken && is_due(Topic::PageBroken, HOUR_MS) {
        texts::page_is_broken().report(PgLogLevel::WARNING);
    }
    Ok(())
}

const HOUR_MS: i64 = 3_600_000;

/// Returns a hash of what the page is for. Another registry, or another fleet, knows nothing of the
/// lease.
pub fn made_for() -> u64 {
    made_for_page(page::own().and_then(|page| page.belongs_to()))
}

fn made_for_page(belongs_to: Option<u64>) -> u64 {
    let values = guc::running();
    let mut hasher = DefaultHasher::new();
    (values.layout.map(|layout| layout.fingerprint()), values.datacenter_id, values.backup_worker).hash(&mut hasher);
    (guc::registry(), guc::fleet(), belongs_to).hash(&mut hasher);
    hasher.finish()
}

/// Begins a life: it goes on from the page of the one before, and makes the page if there is none.
/// Returns its number, and how it goes on.
fn begin_life() -> (u64, Option<Beginning>) {
    let life = backend::random_bits();
    if !guc::running().has_registry || !can_lease() {
        return (life, None);
    }
    let (now_ms, max_borrow_ms) = (WallClock.now_ms(), guc::max_borrow_ms());
    let next = |belongs_to| NextLife { made_for: made_for_page(belongs_to), life, now_ms, max_borrow_ms };
    let is_first = MEMORY.get().is_none();
    let begun = match page::own() {
        Some(page) => page.begin_again(next),
        None if is_first => page::begin_in_file(next).or_else(|error| {
            texts::no_file(&error).report(PgLogLevel::WARNING);
            page::begin_in_memory(next)
        }),
        // An earlier life of this postmaster could make none, or has lost it.
        None => return (life, None),
    };
    let event = if is_first { "restart" } else { "crash" };
    match begun {
        Ok(None | Some(Err(Void::NoLease))) => (life, None),
        Ok(Some(Err(void))) => {
            texts::begins_anew(event, &void).report(PgLogLevel::LOG);
            (life, None)
        }
        Ok(Some(Ok(beginning))) => {
            texts::goes_on(event, &beginning).report(PgLogLevel::LOG);
            (life, Some(beginning))
        }
        Err(error) => {
            // Whatever it holds, nothing goes on from there.
            page::give_up();
            texts::no_page(&error).report(PgLogLevel::WARNING);
            (life, None)
        }
    }
}

/// Makes what all backends share. What was drawn before is lost with the words. Where a life goes
/// on from the page, it counts as drawn. Otherwise the first draw looks up what is known of it
/// (`core/draw/mark.rs`), because a standby may run for years from here to its promotion.
fn at_start() -> Shared {
    let (life, beginning) = begin_life();
    let generator = Generator::new();
    if let Some((Beginning { begins_ms, .. }, layout)) = beginning.zip(guc::running().layout) {
        LaneName::ALL.into_iter().for_each(|lane| generator.raise(lane, &layout, begins_ms));
    }
    let begins = || Kept { holder: Holder::new(fingerprint()), secret: secret() };
    let Kept { holder, secret } = beginning.map_or_else(begins, |beginning| beginning.kept);
    Shared {
        generator,
        clocks: ClockReference::new(),
        numbers: Numbers::new(),
        workers: WorkerCell::new(Work { holder, supply: Supply::new(), secret }),
        lease: Locked::new(Lock::Lease, LeaseStatus::new(holder.membership.fleet())),
        life: Locked::new(Lock::Page, life),
        unclaimed: PublishedMarks::new(),
        since: CountsAtReset {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            reset_ms: AtomicI64::new(WallClock.now_ms()),
        },
        topics: std::array::from_fn(|_| RateLimit::new()),
        tags: Tags::new(),
    }
}

/// Returns a secret of this life of shared memory.
fn secret() -> u128 {
    u128::from(backend::random_bits()) << 64 | u128::from(backend::random_bits())
}

/// Returns a fingerprint of this server, by which it gets the number again that it had last. It is
/// not 0, which stands for an operator who keeps a number.
fn fingerprint() -> u64 {
    let mut hasher = DefaultHasher::new();
    (backend::host_and_port(), backend::data_directory()).hash(&mut hasher);
    hasher.finish().max(1)
}

#[pg_guard]
unsafe extern "C-unwind" fn request() {
    // SAFETY: called by the postmaster as PostgreSQL's shmem_request_hook, where requesting is
    // allowed.
    unsafe {
        if let Some(previous) = PREVIOUS_REQUEST.get() {
            previous();
        }
        pg_sys::RequestAddinShmemSpace(Memory::size(elements()));
        pg_sys::RequestAddinShmemSpace(ReaderMemory::size(reader_elements()));
        locked::request();
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn startup() {
    // SAFETY: called by the postmaster as PostgreSQL's shmem_startup_hook, at the start and after
    // each crash of a backend. It has no child then, and children are forked and never run this, so
    // no lock is needed. The memory is as large as asked for, aligned to PG_CACHE_LINE_SIZE (128),
    // and not referred to yet. It is never freed while a process lives that uses `MEMORY`: the
    // postmaster replaces `MEMORY` here before it forks again, and processes that detach draw
    // nothing.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP.get() {
            previous();
        }
        let (elements, mut found) = (elements(), false);
        let start = pg_sys::ShmemInitStruct(c"snowflake_id".as_ptr(), Memory::size(elements), &raw mut found);
        let start = NonNull::new(start.cast()).expect("PostgreSQL raises an error where there is no memory");
        MEMORY.set(Some(Memory::begin(start, elements, at_start(), PublishedMarks::new, Slot::new)));
        let elements = reader_elements();
        let size = ReaderMemory::size(elements);
        let start = pg_sys::ShmemInitStruct(c"snowflake_id readers".as_ptr(), size, &raw mut found);
        let start = NonNull::new(start.cast()).expect("PostgreSQL raises an error where there is no memory");
        let (lock, is_filled) = (Locked::new(Lock::Settled, ()), AtomicBool::new(false));
        let readers = Readers { lock, runs: PreparedRuns::new(), is_filled };
        READER_MEMORY.set(Some(ReaderMemory::begin(start, elements, readers, Promise::new, PreparedPlace::new)));
    }
}
