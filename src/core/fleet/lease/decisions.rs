//! What a number's record is to become: the lease's decisions, each a function of what was read,
//! and of nothing else.
//!
//! Nothing here keeps anything: `holder.rs` does. All that is read may
//! have been typed by a person, so arithmetic on it saturates. Whatever the record says, a lease
//! begins and ends on the boundaries of ticks.

use super::Lease;
use crate::fleet::exchange::Failure;
use crate::fleet::registry::{NumberKey, NumberRecord, Reading, SinceIncarnation};
use crate::id::layout::Layout;

/// The longest time between two renewals, in milliseconds.
pub(super) const RENEWED_EVERY_MS: i64 = 10_000;

/// What a decision rests on.
pub(super) struct Inputs<'a> {
    /// The layout of the server's ids.
    pub layout: &'a Layout,
    /// The datacenter of the server's ids, if the layout has that field.
    pub datacenter: Option<i64>,
    /// A fingerprint of the server's host and port.
    pub server: u64,
    /// How long a lease is to be, in milliseconds.
    pub length_ms: i64,
    /// How far the clocks may be apart, in milliseconds.
    pub skew_ms: i64,
    /// What the registry holds.
    pub reading: &'a Reading,
    /// The clocks when it was read.
    pub clocks: Clocks,
}

/// The clocks of the server and of the registry at a reading.
#[derive(Clone, Copy)]
pub(super) struct Clocks {
    /// The server's clock after the answer.
    pub now_ms: i64,
    /// How far it was ahead of the registry's, in the middle of the call.
    pub offset_ms: i64,
    /// How wrong that may be, because the registry may have read its clock at any moment of the
    /// call.
    pub error_ms: u64,
}

impl Clocks {
    /// Puts together what the server's clock showed before and after a call, and the registry's
    /// clock in between.
    pub(super) fn new(before_ms: i64, now_ms: i64, registry_ms: i64) -> Self {
        let offset_ms = before_ms.midpoint(now_ms).saturating_sub(registry_ms);
        Self { now_ms, offset_ms, error_ms: now_ms.abs_diff(before_ms).div_ceil(2) }
    }

    /// Whether the clocks are surely further apart than `skew_ms`. A call that takes long does not
    /// show that.
    pub(super) fn are_off(&self, skew_ms: i64) -> bool {
        self.offset_ms.unsigned_abs().saturating_sub(self.error_ms) > skew_ms.max(0) as u64
    }
}

/// What a reading of a number's record means to the holder of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FoundLease {
    /// It shows the lease.
    Known(NumberRecord),
    /// It is older than the lease: the registry has forgotten. Holds the record if it is this
    /// holder's.
    Older(Option<NumberRecord>),
    /// Another holder has the number after the lease.
    Taken,
    /// A copy of this holder has changed it.
    Copied,
    /// Another holder's lease overlaps.
    Overlapped,
}

impl Lease {
    /// Compares what its holder knows of a lease with the number's record.
    pub(super) fn find(&self, record: Option<&NumberRecord>) -> FoundLease {
        match record {
            None => FoundLease::Older(None),
            Some(record) if record.nonce == self.nonce => FoundLease::Known(*record),
            Some(record) if record.holder == self.holder && record.count < self.count => {
                FoundLease::Older(Some(*record))
            }
            Some(record) if record.holder == self.holder => FoundLease::Copied,
            // It ended before this lease began, or it is this number's lease before this one, as it
            // was before it was given back. If nothing was drawn with it, both begin together.
            Some(record)
                if record.until_ms <= self.from_ms || record.from_ms <= self.from_ms && record.count < self.count =>
            {
                FoundLease::Older(None)
            }
            Some(record) if record.from_ms >= self.until_ms => FoundLease::Taken,
            Some(_) => FoundLease::Overlapped,
        }
    }
}

impl Inputs<'_> {
    /// Checks whether a number may be acquired now.
    pub(super) fn may_acquire<E>(&self) -> Result<(), Failure<E>> {
        let Self { reading, clocks, skew_ms, .. } = *self;
        if reading.incarnation.since(&reading.fleet.incarnation) != SinceIncarnation::Same {
            // It may have forgotten who has a number, and no generation has begun.
            return Err(Failure::Contended);
        }
        if clocks.are_off(skew_ms) {
            return Err(Failure::ClockOff { now_ms: clocks.now_ms, registry_ms: reading.now_ms, skew_ms });
        }
        Ok(())
    }

    /// Returns a record of this holder as it is to be renewed; `None` if it may have changed hands
    /// in what the registry has forgotten. It never ends before what is known of the lease.
    pub(super) fn renewed(&self, record: NumberRecord, known: impl Iterator<Item = Lease>) -> Option<NumberRecord> {
        let fleet = &self.reading.fleet;
        if record.generation != fleet.generation && record.until_ms <= fleet.horizon_ms {
            return None;
        }
        let known_ms = known.filter(|lease| lease.from_ms == record.from_ms).map(|lease| lease.until_ms).max();
        let until_ms = record.until_ms.max(self.end_ms()).max(known_ms.unwrap_or(i64::MIN));
        Some(NumberRecord { until_ms, ..record })
    }

    /// Returns the server's clock, but at most as far ahead of the registry's as clocks may be.
    fn now_ms(&self) -> i64 {
        self.clocks.now_ms.min(self.reading.now_ms.saturating_add(self.skew_ms))
    }

    /// Returns where a lease ends that is written now. Without the bound on the clock, a server
    /// whose clock is far ahead would have a lease that outlasts every freeze. The bound is what
    /// the fleet uses, which may be less than its limit: a raise of that may still be forgotten.
    fn end_ms(&self) -> i64 {
        tick_before(self.layout, self.now_ms().saturating_add(self.length_ms))
    }

    /// Returns the record of a lease of a number that is free, perhaps from a later instant on;
    /// `None` if it is not free. If the lease ends where it begins, the number cannot be used yet.
    pub(super) fn free(&self, record: Option<NumberRecord>) -> Option<NumberRecord> {
        let Self { layout, reading, .. } = *self;
        let fleet = &reading.fleet;
        // A server's lease that is empty was given back before it began. What an operator keeps has
        // only an end.
        let was_given_back = |record: NumberRecord| record.server != 0 && record.until_ms <= record.from_ms;
        let is_over = |record: NumberRecord| record.until_ms <= self.now_ms() || was_given_back(record);
        if !record.is_none_or(is_over) {
            return None;
        }
        let is_older = record.is_none_or(|record| record.generation < fleet.generation);
        let freeze_ms = if is_older { fleet.freeze_ms } else { i64::MIN };
        let earliest_ms = freeze_ms.max(record.map_or(i64::MIN, |record| record.until_ms));
        let from_ms = tick_before(layout, self.clocks.now_ms).max(tick_after(layout, earliest_ms));
        Some(NumberRecord {
            holder: 0,
            nonce: 0,
            count: 0,
            server: self.server,
            from_ms,
            until_ms: self.end_ms().max(from_ms),
            generation: fleet.generation,
            renewed_ms: 0,
            offset_ms: 0,
        })
    }

    /// Chooses a number to lease: one that can be used soonest; among these the one that this
    /// server had last, else any that was never used, else the one that is free for the longest
    /// time. Returns it with its record, and the record of the lease.
    pub(super) fn choose<E>(&self, random: u64) -> Result<(i64, Option<NumberRecord>, NumberRecord), Failure<E>> {
        self.may_acquire::<E>()?;
        // Not adopted yet: the next call does that.
        let Some((first, last)) = self.reading.fleet.range else { return Err(Failure::Contended) };
        let used = || self.used(first, last);
        let of_used = used().filter_map(|(worker, record)| {
            let rank = if record.server == self.server { i64::MIN } else { record.until_ms };
            Some((worker, Some(record), rank, self.free(Some(record))?))
        });
        let of_unused = self
            .any_unused(random, first, last)
            .and_then(|worker| Some((worker, None, i64::MIN + 1, self.free(None)?)));
        let Some((worker, record, _, new)) =
            of_used.chain(of_unused).min_by_key(|(_, _, rank, new)| (new.from_ms, *rank))
        else {
            // The end of a lease that is renewed moves on for ever, so that it tells nothing.
            let lives = |record: &NumberRecord| {
                record.renewed_ms.saturating_add(2 * RENEWED_EVERY_MS) > self.reading.now_ms && record.server != 0
            };
            let living = used().filter(|(_, record)| lives(record)).count() as i64;
            let others = used().filter(|(_, record)| !lives(record));
            let first_free = others.map(|(worker, record)| (worker, record.until_ms)).min_by_key(|(_, at_ms)| *at_ms);
            return Err(Failure::NoneFree {
                numbers: last.saturating_sub(first).saturating_add(1),
                living,
                first: first_free,
            });
        };
        if new.until_ms <= new.from_ms {
            return Err(Failure::Frozen { until_ms: new.from_ms });
        }
        Ok((worker, record, new))
    }

    /// Returns the numbers of a range that have a record.
    fn used(&self, first: i64, last: i64) -> impl Iterator<Item = (i64, NumberRecord)> + Clone {
        let used = self.reading.numbers.range(NumberKey::range(self.datacenter, (first, last)));
        used.map(|(number, record)| (number.worker, *record))
    }

    /// Returns any number that has no record. (If all starters wanted the same one, a thousand of
    /// them would take a thousand rounds.)
    fn any_unused(&self, random: u64, first: i64, last: i64) -> Option<i64> {
        let used = self.used(first, last);
        let unused = last.saturating_sub(first).saturating_add(1).saturating_sub(used.clone().count() as i64);
        if unused <= 0 {
            return None;
        }
        let nth = (random % unused as u64) as i64;
        // Each used number at or below the candidate moves it one up.
        Some(used.fold(first + nth, |candidate, (worker, _)| candidate + i64::from(worker <= candidate)))
    }
}

/// Returns a record as it is to be given back; `None` if it ends no later anyway.
pub(super) fn given_back(record: NumberRecord, ends_ms: i64) -> Option<NumberRecord> {
    let until_ms = ends_ms.max(record.from_ms);
    (until_ms < record.until_ms).then_some(NumberRecord { until_ms, ..record })
}

/// Returns the start of the tick that holds `ms`; the epoch for an earlier instant.
fn tick_before(layout: &Layout, ms: i64) -> i64 {
    let tick = u64::try_from(layout.tick_at(ms)).unwrap_or(0);
    layout.start_of_ms(tick.min(layout.last_tick() + 1))
}

/// Returns the start of the first tick at or after `ms`.
fn tick_after(layout: &Layout, ms: i64) -> i64 {
    tick_before(layout, ms.saturating_add(layout.unit().ms() - 1))
}
