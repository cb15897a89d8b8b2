//! The background worker that leases this server's worker number: it acquires a number, renews the
//! lease, and gives the rest of it back at the end. It also reserves the blocks from which sessions
//! draw dense values (`keeper/supply.rs`). It blocks no session.
//!
//! The decisions are the core's (`core/lease.rs`), and the way to the registry is that of
//! `snowflake_registry`. This file runs the one over the other, and tells operators what happens.
//! What the lease takes effect on lies in shared memory, as does the holder itself. So the worker
//! may end between any two statements, and the next one goes on.

mod supply;

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use pgrx::prelude::*;
use snowflake_core::clock::{Clock, Utc};
use snowflake_core::layout::Layout;
use snowflake_core::lease::{self, Failure, Holder, LeaseNotice, SharedWords};
use snowflake_core::pace::{self, Pace};
use snowflake_core::registry::{Change, Fleet, FleetLimits, NumberRecord, Reading, Registry, Swap, SwapAnswer, Wanted};
use snowflake_registry::{self as registry, Config, Either, MemberName};

use crate::error::fleet::{self as texts, Worded};
use crate::fleet::worker::{self, Worker};
use crate::ids::stats::MINUTE_MS;
use crate::postgres::backend::{self, SharedLatch, WallClock};
use crate::shared::lease_status::{FailureReason, LeaseStatus, Line, can_lease};
use crate::shared::locked::Locked;
use crate::shared::shmem::{self, Topic, Work};
use crate::shared::tags::Tags;
use crate::{ids::stamp, settings::guc};

/// How long one step of a call of the registry may take: connecting, or a statement.
const STEP: Duration = Duration::from_secs(5);

/// How many times longer than the clock skew a lease should be, at least.
const LEASES_PER_SKEW: i64 = 4;

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
    said: Cell<Option<Said>>,
    /// Whether the server was promoted, and has not generated ids since.
    is_promoted: Cell<bool>,
}

/// What the log says of a failure, as far as a change of it is worth a line of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said {
    /// A hash of the reason, without what changes each time.
    reason: u64,
    gap: Option<(i64, i64)>,
    /// Whether the server still has a lease.
    has_lease: bool,
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
        match holder.give_back(self, self) {
            Ok(()) => {}
            Err(Failure::Away(registry::RegistryError::Stopped)) => log!(
                "snowflake_id: the worker number was not given back, and stays leased to its end: the registry did not \
                 answer within two seconds"
            ),
            Err(failure) => {
                let why = worded(&failure).message;
                log!("snowflake_id: the worker number was not given back, and stays leased to its end: {why}");
            }
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
            && leased(&reading).count() as i64 * 2 > last.saturating_sub(first).saturating_add(1)
        {
            return Ok(());
        }
        holder.keep(self, self, terms)
    }

    /// Notes what the holder has, for sessions and operators, and tells when ids go on.
    fn note(&self, holder: &Holder) {
        let (held, next, now_ms) = (holder.held(), holder.next(), self.now_ms());
        let is_primary = !backend::is_in_recovery();
        let in_use = held.filter(|held| held.until_ms > now_ms);
        let mut goes_on = None;
        self.status.change(|status| {
            let had = status.held.map(|held| held.until_ms.min(now_ms));
            // The end of a lease that is over says since when there is none.
            let is_over = |held: &lease::Lease| next.is_none() && held.until_ms <= now_ms;
            status.held = held.or(status.held.filter(is_over));
            status.next = next;
            // What the registry has said of a freeze may be over while it is away.
            status.gap = holder.gap().filter(|gap| gap.until_ms > now_ms).map(|gap| {
                let since_ms = status.gap.map(|(from_ms, _)| from_ms).or(had).unwrap_or(now_ms);
                (gap.from_ms.unwrap_or(since_ms), gap.until_ms)
            });
            match in_use {
                // It may have stopped and gone on since the last look.
                Some(_) => {
                    let stopped_ms = had.filter(|had_ms| is_primary && *had_ms < now_ms);
                    goes_on = status.stopped_ms.take().or(stopped_ms);
                }
                None if is_primary => status.stopped_ms = status.stopped_ms.or(had),
                None => status.stopped_ms = None,
            }
        });
        let Some(held) = in_use else { return };
        let worker = held.worker;
        if self.is_promoted.take() {
            log!("snowflake_id: this server was promoted, and generates ids with worker number {worker}");
        } else if let Some(since_ms) = goes_on {
            log!(
                "snowflake_id: this server generates ids again, with worker number {worker}; it had not since {}",
                Utc(since_ms)
            );
        }
    }

    fn succeeded(&self) {
        self.pace.take();
        self.said.take();
        let mut was_failing = None;
        self.status.change(|status| {
            was_failing = status.failing_since_ms.take();
            (status.error, status.failed_ms) = (None, None);
        });
        if let Some(since_ms) = was_failing {
            log!(
                "snowflake_id: the registry leases this server's worker number again; it had not since {}",
                Utc(since_ms)
            );
        }
    }

    /// Counts the fleet's free numbers now and then. A renewal does not look at other numbers.
    fn count_numbers(&self) {
        if backend::boot_ms() >= self.counts_at_ms.get() {
            self.counts_at_ms.set(backend::boot_ms().saturating_add(pace::counts_in_ms(0)));
            // A failure shows at the next renewal.
            let _ = self.read(Wanted::All);
        }
    }

    /// Notes how many numbers are free, if all of them were read.
    fn note_numbers(&self, reading: &Reading) {
        let taken: Vec<i64> = leased(reading).map(|(worker, _)| worker).collect();
        let count = taken.len() as i64;
        self.counts_at_ms.set(backend::boot_ms().saturating_add(pace::counts_in_ms(count)));
        self.taken.replace(Some(taken));
        let Some((first, last)) = reading.fleet.range else { return };
        let all = last.saturating_sub(first).saturating_add(1);
        self.status.change(|status| status.numbers = Some((all, all.saturating_sub(count))));
    }

    /// Notes that this server has taken a number after all of them were read, so that they need not
    /// be read again.
    fn note_taken(&self, worker: i64) {
        if let Some(taken) = self.taken.borrow_mut().as_mut().filter(|taken| !taken.contains(&worker)) {
            taken.push(worker);
            self.status.change(|status| {
                if let Some((_, free)) = &mut status.numbers {
                    *free = free.saturating_sub(1);
                }
            });
        }
    }

    /// Warns where a failover of the registry would stop the fleet, because it renews no lease that
    /// ends within two skews.
    fn check_terms(&self, fleet: &Fleet) {
        let lease_ms = fleet.used_lease_ms();
        let skew_ms = fleet.used_skew_ms();
        let is_close =
            fleet.longest_ms > 0 && !fleet.loses_nothing && lease_ms < LEASES_PER_SKEW.saturating_mul(skew_ms);
        let found = is_close.then_some((lease_ms, skew_ms));
        if self.warned.replace(found) != found && is_close {
            texts::close_terms(guc::registry_kind(), lease_ms, skew_ms).report(PgLogLevel::WARNING);
        }
    }

    fn failed(&self, failure: &RegistryFailure) {
        self.status.change(|status| status.failures += 1);
        let mut worded = worded(failure);
        let has_lease = self.lease_in_use().is_some() && !backend::is_in_recovery();
        // These ask for a restart, or say themselves when not to.
        let is_other = matches!(
            failure,
            Failure::OtherLayout { .. } | Failure::OtherFleet { .. } | Failure::Frozen { .. } | Failure::Closed
        );
        if has_lease && !is_other {
            let hint = worded.hint.unwrap_or_default();
            worded.hint = Some(format!("Do not restart this server, because it would have no number then. {hint}"));
        }
        self.fails(worded, reason(failure));
    }

    /// Notes that the registry answers, and that the lease is not renewed all the same: another one
    /// begins too late.
    fn lacks(&self, holder: &Holder, gap: (i64, i64)) {
        self.pace.take();
        self.fails(Worded::of_gap(holder.held(), holder.next(), gap.1), 0);
    }

    /// Returns the lease that the server can draw with now.
    fn lease_in_use(&self) -> Option<lease::Lease> {
        self.status.get().held.filter(|held| held.until_ms > self.now_ms())
    }

    /// Notes and logs that the lease is not renewed.
    fn fails(&self, worded: Worded, reason: u64) {
        let (noted, now_ms) = (kept(&worded), self.now_ms());
        let mut is_new = false;
        self.status.change(|status| {
            is_new = status.failing_since_ms.is_none();
            status.failing_since_ms.get_or_insert(now_ms);
            (status.error, status.failed_ms) = (Some(noted), Some(now_ms));
        });
        let status = self.status.get();
        let lease = self.lease_in_use();
        let said = Said { reason, gap: status.gap, has_lease: lease.is_some() };
        let before = self.said.replace(Some(said));
        // A gap that was not known, or the end of the lease, which must not wait for the minute.
        let is_grave = before.is_none_or(|before| {
            said.gap.is_some() && said.gap != before.gap
                || before.has_lease && !said.has_lease && !backend::is_in_recovery()
        });
        // The first, a change, and then once a minute.
        let is_due = shmem::is_due(Topic::LeaseFails, MINUTE_MS);
        let is_changed = before != Some(said) && !is_new && shmem::is_due(Topic::LeaseReason, MINUTE_MS);
        if self.worker.is_ending() || !(is_new || is_grave || is_due || is_changed) {
            return;
        }
        let is_standby = backend::is_in_recovery();
        let consequence = texts::without_renewal(status.gap, lease, is_standby);
        // A standby draws nothing. At its start, the registry may be starting, too.
        let is_calm = is_standby && is_new && status.renewals == 0;
        worded.report(&consequence).report(if is_calm { PgLogLevel::LOG } else { PgLogLevel::WARNING });
    }
}

/// Words a failure.
fn worded(failure: &RegistryFailure) -> Worded {
    let own = stamp::layout().map(|own| (own, stamp::has_backup()));
    texts::worded(failure, guc::registry_kind(), own)
}

/// Returns what is kept of a failure for sessions and operators.
fn kept(worded: &Worded) -> FailureReason {
    FailureReason { whole: Line::new(&worded.whole()), open: Line::new(&worded.open) }
}

/// Returns a hash of a failure, by which a change of it is noticed: without the instants and
/// figures that another try changes.
fn reason(failure: &RegistryFailure) -> u64 {
    let mut hasher = DefaultHasher::new();
    std::mem::discriminant(failure).hash(&mut hasher);
    if let Failure::Away(error) = failure {
        let registry::RegistryReport { message, detail, .. } = error.report();
        (message, detail).hash(&mut hasher);
    }
    hasher.finish()
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

/// Returns the records of numbers that are leased now, by the registry's clock.
fn leased(reading: &Reading) -> impl Iterator<Item = (i64, &NumberRecord)> {
    let range = reading.fleet.range.filter(|(first, last)| first <= last);
    let range = range.map(|(first, last)| reading.records.range(first..=last));
    let records = range.into_iter().flatten().map(|(worker, record)| (*worker, record));
    records.filter(|(_, record)| record.until_ms > reading.now_ms)
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
        report(&notice, self.status.get().fleet);
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

/// Tells the operator what has happened.
fn report(notice: &LeaseNotice, fleet: Option<u128>) {
    let is_due = match notice {
        // In a freeze, each turn finds it again.
        LeaseNotice::Older(lease) => {
            lease.until_ms > WallClock.now_ms() && shmem::is_due(Topic::LeaseForgotten, MINUTE_MS)
        }
        LeaseNotice::ClockOff { .. } => shmem::is_due(Topic::ClockOff, MINUTE_MS),
        _ => true,
    };
    if is_due && let Some((level, report)) = texts::lease_notice(notice, fleet, guc::max_borrow_ms()) {
        report.report(level);
    }
}
