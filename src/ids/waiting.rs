//! Waiting: how a session sleeps until the clock has gone on, and what is counted and logged of it.
//!
//! A session must hold no lock of any kind while it waits. A wait lasts at most a second. The
//! caller then reads the clock again and decides anew, so that nothing rests on how long a sleep
//! took.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pgrx::prelude::*;
use snowflake_core::clock::{Clock, Utc, Wait};

use crate::ids::stats::{self, MINUTE_MS};
use crate::postgres::backend::{self, WaitEvent, WallClock};
use crate::settings::guc;
use crate::shared::shmem::{self, Topic};
use crate::shared::slot::Counter;

/// A borrow that is ample: oversleeping a tick by some milliseconds loses no ids, because they can
/// still be drawn afterwards.
const AMPLE_BORROW_MS: i64 = 5;

/// How long a draw waits for a lease, in all. The server may have started just now, or a new
/// primary may be acquiring its number.
const LONGEST_WAIT_FOR_LEASE: Duration = Duration::from_secs(5);

/// How often a waiting session looks for the lease, in milliseconds.
const LEASE_IS_LOOKED_FOR_MS: i64 = 10;

/// For how long a session that waits for a block looks at each millisecond, before it looks as
/// often as for a lease. Most blocks come within a round trip to the registry.
const BLOCK_IS_SOON: Duration = Duration::from_millis(100);

/// Why a session waits, as it is counted and shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// All ids that the clock and `max_borrow` permit are drawn.
    UsedUp,
    /// The clock was set back, or is a little behind what was borrowed.
    Clock,
    /// After a start, the clock has to pass all that can have been drawn before. The same holds
    /// after the first load has counted the ids of its tick as drawn.
    Mark,
    /// The server has no leased number, or the lease ends before the id's tick does.
    Lease,
}

impl WaitReason {
    /// Returns its event in pg_stat_activity.
    fn event(self) -> &'static WaitEvent {
        static USED_UP: WaitEvent = WaitEvent::new(c"SnowflakeUsedUp");
        static CLOCK: WaitEvent = WaitEvent::new(c"SnowflakeClock");
        static MARK: WaitEvent = WaitEvent::new(c"SnowflakeMark");
        static LEASE: WaitEvent = WaitEvent::new(c"SnowflakeLease");
        match self {
            Self::UsedUp => &USED_UP,
            Self::Clock => &CLOCK,
            Self::Mark => &MARK,
            Self::Lease => &LEASE,
        }
    }

    /// Returns the counters of how often, and how long, sessions have waited.
    fn counters(self) -> (Counter, Counter) {
        match self {
            Self::UsedUp => (Counter::UsedUpWaits, Counter::UsedUpWaitMicros),
            Self::Clock => (Counter::ClockWaits, Counter::ClockWaitMicros),
            Self::Mark => (Counter::MarkWaits, Counter::MarkWaitMicros),
            Self::Lease => (Counter::LeaseWaits, Counter::LeaseWaitMicros),
        }
    }
}

/// A draw's wait for a block of dense values, which lasts as long as one for a lease at most.
#[derive(Debug)]
pub struct BlockWait(Cell<Option<Instant>>);

impl BlockWait {
    /// Prepares a wait.
    pub const fn new() -> Self {
        Self(Cell::new(None))
    }

    /// Begins the wait. Returns false if it has begun before.
    pub fn begins(&self) -> bool {
        let begins = !self.has_begun();
        if begins {
            self.0.set(Some(Instant::now()));
        }
        begins
    }

    /// Whether the draw has waited.
    pub fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    /// Returns how long it has waited, in microseconds.
    pub fn micros(&self) -> u64 {
        self.0.get().map_or(0, |since| as_micros(since.elapsed()))
    }

    /// Waits a little. Returns false after five seconds, in all. Check for interrupts afterwards.
    /// Call it without any lock held.
    pub fn wait(&self) -> bool {
        static BLOCK: WaitEvent = WaitEvent::new(c"SnowflakeSegment");
        let elapsed = self.0.get().map_or(Duration::ZERO, |since| since.elapsed());
        let is_left = elapsed < LONGEST_WAIT_FOR_LEASE;
        if is_left {
            backend::sleep(if elapsed < BLOCK_IS_SOON { 1 } else { LEASE_IS_LOOKED_FOR_MS }, &BLOCK);
        }
        is_left
    }
}

/// What one draw, or one call that moves the mark without drawing, has met so far. It counts once,
/// however often it looks again.
#[derive(Debug)]
pub struct Request {
    waits: Cell<Option<WaitReason>>,
    has_step_back: Cell<bool>,
    /// When the wait for a lease began.
    waits_for_lease: Cell<Option<Instant>>,
    /// When the mark that is being moved was first written.
    moves_since: Cell<Option<Instant>>,
}

impl Request {
    /// Makes a request that has met nothing.
    pub fn new() -> Self {
        Self {
            waits: Cell::new(None),
            has_step_back: Cell::new(false),
            waits_for_lease: Cell::new(None),
            moves_since: Cell::new(None),
        }
    }

    /// Waits for as long as `wait` says, but at most a second. Raises an ERROR at cancel, terminate
    /// and statement_timeout. Call it without any lock held.
    pub fn wait(&self, wait: Wait) {
        let reason = match wait {
            Wait::UsedUp { .. } if shmem::has_drawn() => WaitReason::UsedUp,
            Wait::Borrowed { .. } => WaitReason::Clock,
            Wait::ClockStepBack { behind_ms, wait_ms } => {
                self.note_wait_for_clock(behind_ms, wait_ms);
                WaitReason::Clock
            }
            // The last second of a wait for a clock that was set back looks like the wait after a
            // start.
            Wait::Start { .. } | Wait::UsedUp { .. } if self.waits.get() == Some(WaitReason::Clock) => {
                WaitReason::Clock
            }
            Wait::Start { .. } | Wait::UsedUp { .. } => WaitReason::Mark,
        };
        let is_first = self.begin(reason);
        if is_first && reason == WaitReason::UsedUp && shmem::is_due(Topic::UsedUp, MINUTE_MS) {
            let max_borrow_ms = guc::max_borrow_ms();
            log!("snowflake_id: all ids up to {max_borrow_ms} ms ahead of the clock are drawn; draws wait");
        }
        if wait == (Wait::UsedUp { wait_ms: 1 }) && guc::max_borrow_ms() < AMPLE_BORROW_MS {
            // A latch sleeps for a millisecond at least, which would cost ids.
            self.sleep(reason, || backend::nap(reason.event()));
        } else {
            self.sleep(reason, || backend::sleep(wait.ms(), reason.event()));
        }
    }

    /// Waits a little for a lease. Returns false when this request has waited for five seconds, in
    /// all. Raises an ERROR at cancel, terminate and statement_timeout. Call it without any lock
    /// held.
    pub fn wait_for_lease(&self) -> bool {
        let since = self.waits_for_lease.get().unwrap_or_else(Instant::now);
        self.waits_for_lease.set(Some(since));
        if since.elapsed() >= LONGEST_WAIT_FOR_LEASE {
            return false;
        }
        self.begin(WaitReason::Lease);
        self.sleep(WaitReason::Lease, || backend::sleep(LEASE_IS_LOOKED_FOR_MS, WaitReason::Lease.event()));
        true
    }

    /// Counts a wait at its beginning, so that a waiting session shows. Returns whether it begins.
    fn begin(&self, reason: WaitReason) -> bool {
        let is_first = self.waits.replace(Some(reason)) != Some(reason);
        if is_first {
            stats::count(reason.counters().0, 1);
        }
        is_first
    }

    fn sleep(&self, reason: WaitReason, sleep: impl FnOnce()) {
        let start = Instant::now();
        sleep();
        stats::count(reason.counters().1, as_micros(start.elapsed()));
        pgrx::check_for_interrupts!();
    }

    /// Notes that the clock was set back, and logs it. The clock is behind the last id, or the
    /// mark, by `behind_ms`.
    fn note_wait_for_clock(&self, behind_ms: i64, wait_ms: i64) {
        if self.note_step_back() && shmem::is_due(Topic::ClockStepBack, MINUTE_MS) {
            let again = Utc(WallClock.now_ms().saturating_add(wait_ms));
            log!(
                "snowflake_id: draws wait until {again}: clock is {behind_ms} ms behind the last id, or behind \
                 the id given to snowflake_advance()"
            );
        }
    }

    /// Notes that the clock is behind by more than can be borrowed, whether the session waits or is
    /// refused. Returns true the first time.
    pub fn note_step_back(&self) -> bool {
        let is_first = !self.has_step_back.replace(true);
        if is_first {
            stats::count(Counter::ClockStepsBack, 1);
        }
        is_first
    }

    /// Notes that a mark, or something with a mark, is about to be written.
    pub fn writes(&self) {
        if self.moves_since.get().is_none() {
            self.moves_since.set(Some(Instant::now()));
        }
    }

    /// Notes that what was written is durable, or need not be.
    pub fn has_moved(&self) {
        if let Some(since) = self.moves_since.take() {
            stats::count(Counter::MoveMicros, as_micros(since.elapsed()));
        }
    }
}

fn as_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
