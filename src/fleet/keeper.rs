//! The background worker that leases this server's worker number: it acquires a number, renews the
//! lease, and gives the rest of it back at the end. It also reserves the blocks from which sessions
//! draw dense values (`keeper/supply.rs`). It blocks no session.
//!
//! The decisions are the core's (`core/lease.rs`), and the way to the registry is that of
//! `snowflake_registry`. This file runs the one over the other; `keeper/notes.rs` notes what comes
//! of it, and tells operators. What the lease takes effect on lies in shared memory, as does the
//! holder itself. So the worker may end between any two effects, and the next one goes on.

mod notes;
mod supply;

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use pgrx::prelude::*;
use snowflake_core::clock::Clock;
use snowflake_core::layout::Layout;
use snowflake_core::lease::{self, Failure, Holder, LeaseNotice, SharedWords};
use snowflake_core::pace::{self, Pace};
use snowflake_core::registry::{Change, Fleet, FleetLimits, Reading, Registry, Swap, SwapAnswer, Wanted};
use snowflake_registry::{self as registry, Config, Either, MemberName};

use crate::error::fleet as texts;
use crate::fleet::worker::{self, Worker};
use crate::postgres::backend::{self, SharedLatch, WallClock};
use crate::shared::lease_status::{LeaseStatus, can_lease};
use crate::shared::locked::Locked;
use crate::shared::shmem::{self, Work};
use crate::shared::tags::Tags;
use crate::{ids::stamp, settings::guc};

/// How long one step of a call of the registry may take: connecting, or a statement.
const STEP: Duration = Duration::from_secs(5);

/// How often a server that is starting looks whether it is consistent, and a standby that has no
/// number whether it was promoted, in milliseconds.
const RECOVERY_IS_LOOKED_AT_MS: i64 = 100;

/// Asks for the worker, if this server leases its number. Call it where the library is preloaded.
pub fn init() {
    if backend::is_preloading() && stamp::is_leased() && can_lease() && !worker::register() {
        texts::no_worker().report(PgLogLevel::WARNING);
    }
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
    let keeper = Keeper::new(&worker, layout, status, words, tags);
    keeper.run(work.of(&mut is_worker));
    worker.exit()
}

fn words() -> Option<SharedWords<'static>> {
    Some(SharedWords { numbers: shmem::numbers()?, generator: shmem::generator()?, marks: shmem::marks()? })
}

/// Why there is no lease.
type RegistryFailure = Failure<registry::RegistryError>;

/// This server, for the core, and its connection to the registry.
struct Keeper<'a> {
    worker: &'a Worker,
    layout: &'static Layout,
    status: &'static Locked<LeaseStatus>,
    words: SharedWords<'static>,
    tags: &'static Tags,
    registry: RefCell<Either<&'a Worker>>,
    /// How many nonces were made.
    nonces: Cell<u64>,
    /// When the registry is asked again after a failure.
    pace: Cell<Pace>,
    /// When all numbers are counted again, in milliseconds since boot.
    counts_at_ms: Cell<i64>,
    /// The numbers that are leased, if all were read in this turn.
    taken: RefCell<Option<Vec<i64>>>,
    /// How often blocks, or what is known of tags, were asked for.
    asked: Cell<u64>,
    /// When blocks are asked for again after a failure: its pace, and milliseconds since boot.
    supply_pace: Cell<Pace>,
    supplies_at_ms: Cell<i64>,
    /// The greatest limits that the fleet's record has had, and how far clocks may be apart, in
    /// milliseconds.
    limits: Cell<FleetLimits>,
    skew_ms: Cell<i64>,
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
    ) -> Self {
        let registry = RefCell::new(Either::new(config(), worker));
        Self {
            worker,
            layout,
            status,
            words,
            tags,
            registry,
            nonces: Cell::new(0),
            pace: Cell::default(),
            counts_at_ms: Cell::new(i64::MIN),
            taken: RefCell::default(),
            asked: Cell::new(0),
            supply_pace: Cell::default(),
            supplies_at_ms: Cell::new(i64::MIN),
            limits: Cell::default(),
            skew_ms: Cell::new(0),
            warned: Cell::new(None),
            said: Cell::new(None),
            is_promoted: Cell::new(false),
        }
    }

    /// Leases a number until the process is told to end.
    fn run(&self, Work { holder, supply }: &mut Work) {
        self.status.change(|status| status.pid = backend::pid());
        // What a process before has read, a registry may have forgotten since.
        self.limits.set(holder.limits());
        self.tags.set_worker(Some(SharedLatch::own()));
        let (mut due_ms, mut was_in_recovery) = (i64::MIN, false);
        while !self.worker.is_ending() {
            if self.worker.reloads() {
                let (config, mut registry) = (config(), self.registry.borrow_mut());
                if *registry.config() != config {
                    *registry = Either::new(config, self.worker);
                }
                due_ms = i64::MIN;
                self.pace.take();
                self.counts_at_ms.set(i64::MIN);
                self.supply_pace.take();
                self.supplies_at_ms.set(i64::MIN);
            }
            // Nothing is drawn before. A server that is itself the registry would refuse its own
            // worker again and again, and log each time.
            if !backend::is_consistent() {
                self.worker.sleep(Duration::from_millis(RECOVERY_IS_LOOKED_AT_MS as u64));
                continue;
            }
            let terms = guc::lease_terms();
            let is_in_recovery = backend::is_in_recovery();
            let is_promoted = was_in_recovery && !is_in_recovery;
            was_in_recovery = is_in_recovery;
            self.is_promoted.set(!is_in_recovery && (is_promoted || self.is_promoted.get()));
            if is_promoted || backend::boot_ms() >= due_ms {
                due_ms = backend::boot_ms().saturating_add(self.turn(holder, &terms));
            } else {
                let held = holder.held();
                holder.enter(self, &terms);
                self.note(holder);
                if holder.held() != held {
                    // Renew it, and see that nothing fails any more.
                    due_ms = i64::MIN;
                }
            }
            let mut wait_ms = due_ms.saturating_sub(backend::boot_ms());
            if let Some(enters_in_ms) = holder.enters_in_ms(self, &terms) {
                wait_ms = wait_ms.min(enters_in_ms);
            } else if is_in_recovery && holder.held().is_none() {
                wait_ms = wait_ms.min(RECOVERY_IS_LOOKED_AT_MS);
            }
            if !is_in_recovery {
                wait_ms = wait_ms.min(self.supply(supply));
            }
            self.worker.sleep(Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0)));
        }
        if let Err(failure) = holder.give_back(self, self) {
            texts::number_kept(&failure, guc::registry_kind(), notes::own()).report(PgLogLevel::LOG);
        }
        self.give_back_blocks(supply);
        self.tags.set_worker(None);
        self.status.change(|status| (status.pid, status.held, status.next, status.gap) = (0, None, None, None));
    }

    /// Renews the lease, or acquires one, as far as that can be done now. Returns when to come
    /// again, in milliseconds from now.
    fn turn(&self, holder: &mut Holder, terms: &lease::LeaseTerms) -> i64 {
        self.taken.take();
        let has_none = holder.held().is_none() && holder.next().is_none();
        let kept = match has_none && backend::is_in_recovery() {
            true => self.reserve(holder, terms),
            false => holder.keep(self, self, terms),
        };
        self.note(holder);
        // A lease that is renewed up to the registry's clock may be over by this server's.
        let kept = kept.and_then(|()| self.reaches_the_clock(holder));
        match kept {
            Ok(()) => {
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
                again_in_ms(&self.pace, &failure)
            }
        }
    }

    #[allow(clippy::result_large_err, reason = "as for `reserve`")]
    fn reaches_the_clock(&self, holder: &Holder) -> Result<(), RegistryFailure> {
        let (now_ms, offset_ms) = (self.now_ms(), self.status.get().offset_ms.unwrap_or(0));
        match holder.held().filter(|held| holder.next().is_none() && held.until_ms <= now_ms) {
            Some(_) => {
                let registry_ms = now_ms.saturating_sub(offset_ms);
                Err(Failure::ClockOff { now_ms, registry_ms, skew_ms: self.skew_ms.get() })
            }
            None => Ok(()),
        }
    }

    /// Acquires a number on a standby that has none, if at least half of all are free: a promotion
    /// then needs no registry.
    #[allow(clippy::result_large_err, reason = "the registry's error has texts, and failures are rare")]
    fn reserve(&self, holder: &mut Holder, terms: &lease::LeaseTerms) -> Result<(), RegistryFailure> {
        let reading = self.read(Wanted::All).map_err(Failure::Away)?;
        if let Some((first, last)) = reading.fleet.range
            && notes::leased(&reading).count() as i64 * 2 > last.saturating_sub(first).saturating_add(1)
        {
            return Ok(());
        }
        holder.keep(self, self, terms)
    }

    /// Counts the fleet's free numbers now and then. A renewal does not look at other numbers.
    fn count_numbers(&self) {
        if backend::boot_ms() >= self.counts_at_ms.get() {
            self.counts_at_ms.set(backend::boot_ms().saturating_add(pace::counts_in_ms(0)));
            // A failure shows at the next renewal.
            let _ = self.read(Wanted::All);
        }
    }
}

/// Notes a failure of the registry. Returns when to ask it again, in milliseconds from now.
fn again_in_ms(pace: &Cell<Pace>, failure: &RegistryFailure) -> i64 {
    let failed = match failure {
        Failure::Away(error) => error.paced_as(),
        _ => pace::AttemptFailure::Otherwise,
    };
    let mut noted = pace.get();
    let wait_ms = noted.failed(failed, backend::boot_ms(), backend::random_bits());
    pace.set(noted);
    wait_ms
}

/// Returns where the registry is, and which server this is.
fn config() -> Config {
    let (host, port) = backend::host_and_port();
    Config {
        conninfo: guc::registry(),
        fleet: guc::fleet(),
        datacenter: stamp::datacenter(),
        member: MemberName {
            host,
            port,
            cluster_name: backend::cluster_name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        timeout: STEP,
    }
}

impl Clock for Keeper<'_> {
    fn now_ms(&self) -> i64 {
        WallClock.now_ms()
    }
}

impl lease::LeasingServer for Keeper<'_> {
    fn layout(&self) -> &Layout {
        self.layout
    }

    fn datacenter(&self) -> Option<i64> {
        stamp::datacenter()
    }

    fn has_backup(&self) -> bool {
        stamp::has_backup()
    }

    fn words(&self) -> SharedWords<'_> {
        self.words
    }

    fn nonce(&self) -> u64 {
        self.nonces.set(self.nonces.get() + 1);
        let mut hasher = DefaultHasher::new();
        let boot = std::time::Instant::now();
        // Two copies of one memory may get the same random bits, but have no common connection.
        (backend::random_bits(), backend::random_bits(), backend::pid(), self.nonces.get()).hash(&mut hasher);
        (self.registry.borrow().connection_id(), boot).hash(&mut hasher);
        hasher.finish()
    }

    fn report(&self, notice: LeaseNotice) {
        notes::report(&notice, self.status.get().fleet);
    }
}

impl Registry for Keeper<'_> {
    type Error = registry::RegistryError;

    fn read(&self, wanted: Wanted) -> Result<Reading, registry::RegistryError> {
        let reading = self.registry.borrow().read(wanted)?;
        self.status.change(|status| {
            (status.incarnation, status.fleet) = (Some(reading.incarnation), Some(reading.fleet.uuid));
        });
        self.tags.set_fleet(Fleet::code(reading.fleet.uuid));
        if wanted == Wanted::All {
            self.note_numbers(&reading);
        }
        self.limits.set(self.limits.get().noting(&reading.fleet));
        self.skew_ms.set(reading.fleet.used_skew_ms());
        self.check_terms(&reading.fleet);
        Ok(reading)
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, registry::RegistryError> {
        let answer = self.registry.borrow().swap(swap)?;
        if let (Change::Number { worker, record, .. }, SwapAnswer::Done(_)) = (&swap.change, answer) {
            let now_ms = self.now_ms();
            self.note_taken(*worker);
            self.status.change(|status| {
                status.renewals += 1;
                (status.renewed_ms, status.offset_ms) = (Some(now_ms), Some(record.offset_ms));
            });
        }
        Ok(answer)
    }
}
