//! What operators and sessions see of the worker: the status in shared memory, and the log. Nothing
//! here decides anything. The texts are in `error/fleet.rs`.

use std::hash::{DefaultHasher, Hash, Hasher};

use pgrx::prelude::*;
use snowflake_core::clock::Clock;
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::lease::{self, Holder, LeaseNotice};
use snowflake_core::fleet::pace;
use snowflake_core::fleet::registry::{Fleet, NumberKey, NumberRecord, Reading, RecordChange, Swap, Wanted};
use snowflake_core::id::layout::Layout;

use super::{Keeper, RegistryFailure, all_numbers};
use crate::error::fleet::{self as texts, Failing};
use crate::error::{Report, Sent};
use crate::ids::stamp;
use crate::ids::stats::MINUTE_MS;
use crate::postgres::backend::{self, WallClock};
use crate::settings::guc;
use crate::shared::shmem::{self, Topic};

/// How many times longer than the clock skew a lease should be, at least.
const LEASES_PER_SKEW: i64 = 4;

/// What the log says of a failure, as far as a change of it is worth a line of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Said {
    /// A hash of the reason, without what changes each time.
    reason: u64,
    gap: Option<(i64, i64)>,
    /// Whether the server still has a lease.
    has_lease: bool,
}

impl Keeper<'_> {
    /// Notes what the holder has, for sessions and operators, and tells when ids go on.
    pub(super) fn note(&self, holder: &Holder) {
        let (held, next, now_ms) = (holder.held(), holder.next(), self.now_ms());
        let is_primary = !backend::is_in_recovery();
        let in_use = held.filter(|held| held.until_ms > now_ms);
        let mut goes_on = None;
        self.status.change(|status| {
            let had = status.held.map(|held| held.until_ms.min(now_ms));
            let failing_ms = status.failing.map(|failing| failing.since_ms);
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
                    let failing_ms = failing_ms.filter(|_| is_primary && had.is_none());
                    goes_on = status.stopped_ms.take().or(stopped_ms).or(failing_ms);
                }
                // It may have begun without a number.
                None if is_primary => status.stopped_ms = status.stopped_ms.or(had).or(failing_ms),
                None => status.stopped_ms = None,
            }
        });
        let Some(held) = in_use else { return };
        let worker = held.worker;
        if self.is_promoted.take() {
            texts::promoted(worker).report(PgLogLevel::LOG);
        } else if let Some(since_ms) = goes_on {
            texts::generates_again(worker, since_ms).report(PgLogLevel::LOG);
        }
    }

    /// Notes that the lease is renewed.
    pub(super) fn succeeded(&self) {
        self.said.take();
        let mut was_failing = None;
        self.status.change(|status| {
            was_failing = status.failing.take();
            status.failed_ms = None;
        });
        if let Some(Failing { since_ms, .. }) = was_failing {
            texts::leases_again(since_ms).report(PgLogLevel::LOG);
        }
    }

    /// Notes that the worker runs.
    pub(super) fn begins(&self) {
        self.status.change(|status| status.pid = backend::pid());
    }

    /// Notes that the worker ends. The server draws nothing from now on, unless its lease could not
    /// be given back.
    pub(super) fn ends(&self, holder: &Holder) {
        self.status.change(|status| {
            (status.pid, status.held, status.next) = (0, holder.held(), holder.next());
            status.gap = status.gap.filter(|_| status.held.is_some());
        });
    }

    /// Notes what the registry has answered.
    pub(super) fn note_reading(&self, wanted: &Wanted, reading: &Reading) {
        self.status.change(|status| {
            (status.incarnation, status.fleet) = (Some(reading.incarnation), Some(reading.fleet.uuid));
            status.freeze_ms = Some(reading.fleet.freeze_ms);
        });
        self.tags.set_fleet(Fleet::code(reading.fleet.uuid));
        if *wanted == all_numbers() {
            self.note_numbers(reading);
        }
        self.check_terms(&reading.fleet);
    }

    /// Notes what was written.
    pub(super) fn note_swap(&self, swap: &Swap) {
        for change in &swap.changes {
            if let RecordChange::Number { number, record, .. } = change {
                let now_ms = self.now_ms();
                self.note_taken(number.worker);
                self.status.change(|status| {
                    status.renewals += 1;
                    (status.renewed_ms, status.offset_ms) = (Some(now_ms), Some(record.offset_ms));
                });
            }
        }
    }

    /// Notes how many numbers are free, if all of them were read.
    fn note_numbers(&self, reading: &Reading) {
        let taken: Vec<i64> = leased(reading).map(|(worker, _)| worker).collect();
        let count = taken.len() as i64;
        self.counts.set(backend::boot_ms().saturating_add(pace::counts_in_ms(count)));
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

    /// Notes that the lease is not renewed, because something has failed.
    pub(super) fn failed(&self, failure: &RegistryFailure) {
        self.status.change(|status| status.failures += 1);
        let mut worded = worded(failure);
        let has_lease = self.lease_in_use().is_some() && !backend::is_in_recovery();
        // These ask for a restart, or say themselves when not to.
        let is_other = matches!(
            failure,
            Failure::OtherLayout { .. } | Failure::OtherFleet { .. } | Failure::Frozen { .. } | Failure::Closed
        );
        if has_lease && !is_other {
            worded = texts::without_restart(worded);
        }
        self.fails(worded, reason(failure));
    }

    /// Notes that the registry answers, and that the lease is not renewed all the same: another one
    /// begins too late.
    pub(super) fn lacks(&self, holder: &Holder, gap: (i64, i64)) {
        self.fails(texts::of_gap(holder.held(), holder.next(), gap.1), 0);
    }

    /// Returns the lease that the server can draw with now.
    fn lease_in_use(&self) -> Option<lease::Lease> {
        self.status.get().held.filter(|held| held.until_ms > self.now_ms())
    }

    /// Notes and logs that the lease is not renewed.
    fn fails(&self, worded: Report, reason: u64) {
        let (now_ms, mut is_new) = (self.now_ms(), false);
        let failing = Failing::new(now_ms, &worded);
        self.status.change(|status| {
            is_new = status.failing.is_none();
            let since_ms = status.failing.map_or(now_ms, |before| before.since_ms);
            (status.failing, status.failed_ms) = (Some(Failing { since_ms, ..failing }), Some(now_ms));
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
        // A standby draws nothing. At its start, the registry may be starting, too.
        let is_calm = is_standby && is_new && status.renewals == 0;
        let level = if is_calm { PgLogLevel::LOG } else { PgLogLevel::WARNING };
        texts::not_renewed(status.gap, lease, is_standby, worded).report(level);
    }

    /// Notes that the blocks that are due are reserved.
    pub(super) fn supplied(&self) {
        if let Some(Failing { since_ms, .. }) = self.tags.note_failing(None) {
            texts::supplies_again(since_ms).report(PgLogLevel::LOG);
        }
    }

    /// Notes that blocks are not reserved. Logs the first failure, and then one a minute.
    pub(super) fn not_supplied(&self, failure: &RegistryFailure) {
        let worded = worded(failure);
        let before = self.tags.failing();
        let since_ms = before.map_or_else(|| self.now_ms(), |failing| failing.since_ms);
        self.tags.note_failing(Some(Failing::new(since_ms, &worded)));
        let is_due = shmem::is_due(Topic::SupplyFails, MINUTE_MS);
        if !self.worker.is_ending() && (before.is_none() || is_due) {
            texts::not_supplied(worded).report(PgLogLevel::WARNING);
        }
    }
}

/// Tells that the number stays leased, because giving it back has failed.
pub(super) fn number_kept(failure: &RegistryFailure) {
    texts::number_kept(failure, guc::registry_kind(), own()).report(PgLogLevel::LOG);
}

/// Tells that the rest of the blocks is lost, because giving it back has failed.
pub(super) fn blocks_kept(failure: &RegistryFailure) {
    texts::blocks_kept(failure, guc::registry_kind(), own()).report(PgLogLevel::LOG);
}

/// This server's layout, and whether it has a backup number, for the texts.
fn own() -> Option<(&'static Layout, bool)> {
    stamp::layout().map(|own| (own, stamp::has_backup()))
}

/// Words a failure.
fn worded(failure: &RegistryFailure) -> Report {
    texts::worded(failure, guc::registry_kind(), own())
}

/// Returns a hash of a failure, by which a change of it is noticed: without the instants and
/// figures that another try changes.
fn reason(failure: &RegistryFailure) -> u64 {
    let mut hasher = DefaultHasher::new();
    std::mem::discriminant(failure).hash(&mut hasher);
    if let Failure::Away(error) = failure {
        error.report().whole().hash(&mut hasher);
    }
    hasher.finish()
}

/// Returns the records of numbers that are leased now, by the registry's clock.
pub(super) fn leased(reading: &Reading) -> impl Iterator<Item = (i64, &NumberRecord)> {
    let range = reading.fleet.range.filter(|(first, last)| first <= last);
    let range = range.map(|(first, last)| reading.numbers.range(NumberKey::range(stamp::datacenter(), (first, last))));
    let records = range.into_iter().flatten().map(|(number, record)| (number.worker, record));
    records.filter(|(_, record)| record.until_ms > reading.now_ms)
}

/// Tells the operator what has happened.
pub(super) fn report(notice: &LeaseNotice, fleet: Option<u128>) {
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
