//! The background worker that leases this server's worker number: it acquires a number, renews the
//! lease, and gives the rest of it back at the end. It also reserves the blocks from which sessions
//! draw dense values. It blocks no session.
//!
//! This file says when. What is done then, the core decides (`core/fleet/lease/holder.rs`,
//! `core/fleet/segment/supply.rs`), and `snowflake_registry` is the way to the registry.
//! `keeper/server.rs` is what the core sees of this server and its registry. `keeper/notes.rs`
//! notes what comes of it, and tells operators.
//!
//! What the lease and the blocks take effect on lies in shared memory, as do the holder and the
//! supply themselves. So the worker may end at any call, and the next one goes on. The page also
//! has the holder, before each call (`shared/page.rs`). From there it goes on after a crash. A
//! registry that does not answer holds up both alike: this process asks for them over one
//! connection.

mod notes;
mod server;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use pgrx::prelude::*;
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::lease::{Holder, LeaseTerms, SharedWords};
use snowflake_core::fleet::membership::Membership;
use snowflake_core::fleet::pace::{self, Pace};
use snowflake_core::fleet::registry::{Store, Wanted};
use snowflake_core::fleet::segment::Supply;
use snowflake_core::id::layout::Layout;
use snowflake_registry::{Registry, RegistryError, open};

use crate::error::{Sent, fleet as texts};
use crate::fleet::worker::{self, Worker};
use crate::ids::stamp;
use crate::postgres::backend::{self, SharedLatch};
use crate::settings::guc;
use crate::shared::lease_status::{LeaseStatus, can_lease};
use crate::shared::locked::Locked;
use crate::shared::shmem::{self, Work};
use crate::shared::tags::Tags;

/// How often a server that is starting looks whether it is consistent, and a standby that has no
/// number whether it was promoted, in milliseconds.
const RECOVERY_IS_LOOKED_AT_MS: i64 = 100;

/// How soon a lease that is kept through a crash begins, if the registry is asked only then, in
/// milliseconds.
const KEPT_IS_NEAR_MS: i64 = 5000;

/// Asks for the worker, if this server leases its number. Call it where the library is preloaded.
pub fn init() {
    if backend::is_preloading() && stamp::is_leased() && can_lease() && !worker::register() {
        texts::no_worker().report(PgLogLevel::WARNING);
    }
}

/// What is read to count the numbers that are leased.
fn all_numbers() -> Wanted {
    Wanted::numbers_of(stamp::datacenter())
}

/// Called by PostgreSQL as the background worker's main function.
///
/// # Safety
/// Called by PostgreSQL only, in a new background worker.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_lease_main(_argument: pg_sys::Datum) {
    // SAFETY: the caller's.
    let (worker, mut is_worker) = unsafe { Worker::begin() };
    let places = (stamp::layout(), shmem::status(), shmem::work(), words(), shmem::tags());
    let (Some(layout), Some(status), Some(work), Some(words), Some(tags)) = places else { return };
    let work = work.of(&mut is_worker);
    let keeper = Keeper::new(&worker, layout, status, words, tags, work.secret);
    keeper.run(work);
    worker.exit()
}

fn words() -> Option<SharedWords<'static>> {
    Some(SharedWords { numbers: shmem::numbers()?, generator: shmem::generator()?, marks: shmem::marks()? })
}

/// Why there is no lease, or no block.
type RegistryFailure = Failure<RegistryError>;

/// When something is done again.
struct Due {
    /// In milliseconds since boot.
    at_ms: Cell<i64>,
    /// How it has failed, since it did not.
    pace: Cell<Pace>,
}

impl Due {
    fn at_once() -> Self {
        Self { at_ms: Cell::new(i64::MIN), pace: Cell::default() }
    }

    fn reset(&self) {
        self.at_ms.set(i64::MIN);
        self.pace.take();
    }

    fn set(&self, at_ms: i64) {
        self.at_ms.set(at_ms);
    }

    /// Returns how long to wait, in milliseconds; 0 for not at all.
    fn in_ms(&self) -> i64 {
        self.at_ms.get().saturating_sub(backend::boot_ms()).max(0)
    }

    /// Returns how long to wait after a failure, in milliseconds.
    fn after(&self, failure: &RegistryFailure) -> i64 {
        let failed = match failure {
            Failure::Away(error) => error.paced_as(),
            Failure::Contended => pace::AttemptFailure::Contended,
            _ => pace::AttemptFailure::Otherwise,
        };
        let mut pace = self.pace.get();
        let wait_ms = pace.failed(failed, backend::boot_ms(), backend::random_bits());
        self.pace.set(pace);
        wait_ms
    }
}

/// The worker, with what it knows for as long as it runs.
struct Keeper<'a> {
    worker: &'a Worker,
    layout: &'static Layout,
    status: &'static Locked<LeaseStatus>,
    words: SharedWords<'static>,
    tags: &'static Tags,
    registry: RefCell<Box<dyn Registry + 'a>>,
    /// This life's secret (`registry::Config`).
    secret: u128,
    /// What the page of this life's lease is for.
    made_for: Cell<u64>,
    /// How many nonces were made.
    nonces: Cell<u64>,
    /// When the lease is renewed, or acquired.
    lease: Due,
    /// When blocks are asked for again, after a failure.
    blocks: Due,
    /// When all numbers are counted again.
    counts: Due,
    /// The numbers that are leased, if all were read in this turn.
    taken: RefCell<Option<Vec<i64>>>,
    /// How often tags were read.
    asked: Cell<u64>,
    /// The length of leases and the skew that were found too close to each other, in milliseconds.
    warned: Cell<Option<(i64, i64)>>,
    /// What was said last of why no lease is renewed; `None` while that does not fail.
    said: Cell<Option<notes::Said>>,
    /// Whether the server was promoted, and has not generated ids since.
    is_promoted: Cell<bool>,
}

impl<'a> Keeper<'a> {
    fn new(
        worker: &'a Worker,
        layout: &'static Layout,
        status: &'static Locked<LeaseStatus>,
        words: SharedWords<'static>,
        tags: &'static Tags,
        secret: u128,
    ) -> Self {
        Self {
            worker,
            layout,
            status,
            words,
            tags,
            registry: RefCell::new(open(server::config(secret), worker)),
            secret,
            made_for: Cell::new(shmem::made_for()),
            nonces: Cell::new(0),
            lease: Due::at_once(),
            blocks: Due::at_once(),
            counts: Due::at_once(),
            taken: RefCell::default(),
            asked: Cell::new(0),
            warned: Cell::new(None),
            said: Cell::new(None),
            is_promoted: Cell::new(false),
        }
    }

    /// Leases a number and reserves blocks until the process is told to end.
    fn run(&self, Work { holder, supply, .. }: &mut Work) {
        self.begins();
        self.tags.set_worker(Some(SharedLatch::own()));
        let mut was_in_recovery = false;
        while !self.worker.is_ending() {
            if self.worker.reloads() {
                self.reload();
            }
            // Nothing is drawn before. A server that is itself the registry would refuse its own
            // worker again and again, and log each time.
            if !backend::is_consistent() {
                self.sleep(RECOVERY_IS_LOOKED_AT_MS);
                continue;
            }
            let is_in_recovery = backend::is_in_recovery();
            if was_in_recovery && !is_in_recovery {
                self.is_promoted.set(true);
                self.lease.set(i64::MIN);
            }
            was_in_recovery = is_in_recovery;
            let lease_in_ms = self.keep_lease(holder);
            // A standby draws nothing.
            let blocks_in_ms = if is_in_recovery { i64::MAX } else { self.keep_blocks(supply, &mut holder.membership) };
            self.sleep(lease_in_ms.min(blocks_in_ms));
        }
        if let Err(failure) = holder.give_back(self) {
            notes::number_kept(&failure);
        }
        let has_tags = !self.tags.claimed().is_empty();
        if let Err(failure) = supply.give_back(self, &mut holder.membership)
            && has_tags
        {
            notes::blocks_kept(&failure);
        }
        self.tags.set_worker(None);
        self.ends(holder);
    }

    fn sleep(&self, ms: i64) {
        self.worker.sleep(Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
    }

    /// Takes over settings that may have changed.
    fn reload(&self) {
        let (config, mut registry) = (server::config(self.secret), self.registry.borrow_mut());
        if *registry.config() != config {
            *registry = open(config, self.worker);
        }
        self.made_for.set(shmem::made_for());
        for due in [&self.lease, &self.blocks, &self.counts] {
            due.reset();
        }
    }

    /// Does with the lease what it is time for. Returns when to come again, in milliseconds from
    /// now.
    fn keep_lease(&self, holder: &mut Holder) -> i64 {
        let terms = guc::lease_terms();
        // What is kept is entered first: sessions wait for it, and not for the registry's answer.
        if holder.kept().is_some() {
            let entered = holder.enter(self, &terms);
            self.note(holder);
            match (holder.kept(), holder.enters_in_ms(self, &terms)) {
                _ if entered.is_err() => {}
                (Some(_), Some(enters_in_ms)) if enters_in_ms <= KEPT_IS_NEAR_MS => return enters_in_ms,
                _ => {}
            }
        }
        if self.lease.in_ms() == 0 {
            let began_ms = backend::boot_ms();
            let wait_ms = self.turn(holder, &terms);
            self.lease.set(began_ms.saturating_add(wait_ms));
        } else {
            let held = holder.held();
            let entered = holder.enter(self, &terms);
            self.note(holder);
            if entered.is_err() || holder.held() != held {
                // Renew it, and see that nothing fails any more.
                self.lease.set(i64::MIN);
            }
        }
        let most_ms = match holder.enters_in_ms(self, &terms) {
            Some(enters_in_ms) => enters_in_ms,
            None if backend::is_in_recovery() && holder.held().is_none() => RECOVERY_IS_LOOKED_AT_MS,
            None => i64::MAX,
        };
        self.lease.in_ms().min(most_ms)
    }

    /// Renews the lease, or acquires one, as far as that can be done now. Returns when to come
    /// again, in milliseconds from the beginning of the turn.
    fn turn(&self, holder: &mut Holder, terms: &LeaseTerms) -> i64 {
        self.taken.take();
        let has_none = holder.held().or(holder.kept()).or(holder.next()).is_none();
        let kept = match has_none && backend::is_in_recovery() {
            true => self.reserve(holder, terms),
            false => holder.renew_or_acquire(self, terms),
        };
        self.note(holder);
        // If this clock is ahead, a lease that was just renewed may already have ended here.
        match kept.and_then(|()| self.reaches_the_clock(holder)) {
            Ok(()) => {
                self.lease.pace.take();
                // It may have renewed the next lease only.
                match self.status.get().gap {
                    Some(gap) => self.lacks(holder, gap),
                    None => self.succeeded(),
                }
                self.count_numbers();
                pace::varied_ms(holder.interval_ms(terms, self.layout), backend::random_bits())
            }
            Err(failure) => {
                self.failed(&failure);
                self.lease.after(&failure)
            }
        }
    }

    #[allow(clippy::result_large_err, reason = "as for `reserve`")]
    fn reaches_the_clock(&self, holder: &Holder) -> Result<(), RegistryFailure> {
        let (now_ms, offset_ms) = (server::now_ms(), self.status.get().offset_ms.unwrap_or(0));
        match holder.held().filter(|held| holder.next().is_none() && held.until_ms <= now_ms) {
            Some(_) => {
                let registry_ms = now_ms.saturating_sub(offset_ms);
                Err(Failure::ClockOff { now_ms, registry_ms, skew_ms: holder.membership.skew_ms() })
            }
            None => Ok(()),
        }
    }

    /// Acquires a number on a standby that has none, if at least half of all are free: a promotion
    /// then needs no registry.
    #[allow(clippy::result_large_err, reason = "the registry's error has texts, and failures are rare")]
    fn reserve(&self, holder: &mut Holder, terms: &LeaseTerms) -> Result<(), RegistryFailure> {
        let reading = self.read(&all_numbers()).map_err(Failure::Away)?;
        if let Some((first, last)) = reading.fleet.range
            && notes::leased(&reading).count() as i64 * 2 > last.saturating_sub(first).saturating_add(1)
        {
            return Ok(());
        }
        holder.renew_or_acquire(self, terms)
    }

    /// Counts the fleet's free numbers now and then. A renewal does not look at other numbers.
    fn count_numbers(&self) {
        if self.counts.in_ms() == 0 {
            self.counts.set(backend::boot_ms().saturating_add(pace::counts_in_ms(0)));
            // A failure shows at the next renewal.
            let _ = self.read(&all_numbers());
        }
    }

    /// Reserves the blocks that are due. Returns when to come again, in milliseconds from now.
    /// Sessions wake the worker earlier.
    fn keep_blocks(&self, supply: &mut Supply, membership: &mut Membership) -> i64 {
        let wait_ms = self.blocks.in_ms();
        if wait_ms > 0 {
            return wait_ms;
        }
        let asked = self.asked.get();
        let supplied = supply.supply(self, membership);
        let has_asked = self.asked.get() != asked;
        if has_asked {
            self.tags.show(supply);
        }
        match supplied {
            // Another block may have become due during the call, which has used up the wake-up.
            Ok(()) if has_asked => {
                self.supplied();
                self.blocks.reset();
                0
            }
            Ok(()) => supply.looks_in_ms(self).unwrap_or(i64::MAX),
            Err(failure) => {
                self.not_supplied(&failure);
                let wait_ms = self.blocks.after(&failure);
                self.blocks.set(backend::boot_ms().saturating_add(wait_ms));
                wait_ms
            }
        }
    }
}
