//! Statistics: what is counted, waited for and logged, and how it is read.
//!
//! Each backend counts in its own slot (`shmem.rs`), so that counting costs no shared write; the server's figures are the sums
//! over all slots, less what they were at the last reset. They live as long as shared memory: a restart, or a backend that
//! crashes, begins anew. What happens often is logged once a minute at most.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pgrx::prelude::*;
use snowflake_core::clock::{self, Clock, Utc};
use snowflake_core::identity::LaneName;
use snowflake_core::layout::Layout;

use crate::backend::{self, WaitEvent, WallClock};
use crate::error::{Error, Reportable, few_places};
use crate::guc::{self, Config};
use crate::shmem::{self, Counter, Counts, Notice, OfBackend};

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 86_400_000;

/// A borrow at which oversleeping a tick by some milliseconds loses no ids: they can still be drawn afterwards.
const AMPLE_BORROW_MS: i64 = 5;

/// Why a tick's ids are used up: they are drawn, or they count as drawn since the first load, which was in the tick.
fn used_up() -> Wait {
    if shmem::has_drawn() { Wait::UsedUp } else { Wait::Mark }
}

/// Why a session waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// All ids that clock and `max_borrow` permit are drawn.
    UsedUp,
    /// The clock was set back, or is a little behind what was borrowed.
    Clock,
    /// After a start: until the clock has passed all that can have been drawn before.
    Mark,
}

impl Wait {
    /// Its name in pg_stat_activity.
    fn event(self) -> &'static WaitEvent {
        static USED_UP: WaitEvent = WaitEvent::new(c"SnowflakeUsedUp");
        static CLOCK: WaitEvent = WaitEvent::new(c"SnowflakeClock");
        static MARK: WaitEvent = WaitEvent::new(c"SnowflakeMark");
        match self {
            Self::UsedUp => &USED_UP,
            Self::Clock => &CLOCK,
            Self::Mark => &MARK,
        }
    }

    /// How often, and how long.
    fn counters(self) -> (Counter, Counter) {
        match self {
            Self::UsedUp => (Counter::UsedUpWaits, Counter::UsedUpWaitMicros),
            Self::Clock => (Counter::ClockWaits, Counter::ClockWaitMicros),
            Self::Mark => (Counter::MarkWaits, Counter::MarkWaitMicros),
        }
    }
}

/// What one draw has met so far: it counts once, however often it looks again. (Or what moves the mark without a draw.)
#[derive(Debug)]
pub struct Request {
    waits: Cell<Option<Wait>>,
    has_step_back: Cell<bool>,
    /// When the mark that is being moved was first written.
    moves_since: Cell<Option<Instant>>,
}

impl Request {
    /// A request that has met nothing.
    pub fn new() -> Self {
        Self { waits: Cell::new(None), has_step_back: Cell::new(false), moves_since: Cell::new(None) }
    }

    /// Waits so long, at most a second. Raises an ERROR at cancel, terminate and statement_timeout. To be called
    /// without any lock held.
    pub fn wait(&self, wait: clock::Wait) {
        match wait {
            // A latch's millisecond would cost ids.
            clock::Wait::UsedUp { wait_ms: 1 } if guc::max_borrow_ms() < AMPLE_BORROW_MS => {
                self.wait_by(used_up(), backend::nap);
            }
            clock::Wait::UsedUp { wait_ms } => self.wait_by(used_up(), |event| backend::sleep(wait_ms, event)),
            clock::Wait::Borrowed { wait_ms } => self.wait_by(Wait::Clock, |event| backend::sleep(wait_ms, event)),
            clock::Wait::Rollback { behind_ms, wait_ms } => {
                self.note_wait_for_clock(behind_ms, wait_ms);
                self.wait_by(Wait::Clock, |event| backend::sleep(wait_ms, event));
            }
            clock::Wait::Start { wait_ms } => self.wait_by(Wait::Mark, |event| backend::sleep(wait_ms, event)),
        }
    }

    /// Notes that a clock was set back, and says so: it is behind the last id, or the mark, by `behind_ms`.
    fn note_wait_for_clock(&self, behind_ms: i64, wait_ms: i64) {
        if self.note_step_back() && shmem::is_due(Notice::ClockStepBack, MINUTE_MS) {
            let again = Utc(WallClock.now_ms().saturating_add(wait_ms));
            log!(
                "snowflake_id: draws wait until {again}: clock is {behind_ms} ms behind the last id, or behind what \
                 snowflake_advance() was given"
            );
        }
    }

    /// Notes that the clock is behind by more than can be borrowed, whether that is waited for or refused. True the first time.
    pub fn note_step_back(&self) -> bool {
        let is_first = !self.has_step_back.replace(true);
        if is_first {
            count(Counter::ClockStepsBack, 1);
        }
        is_first
    }

    fn wait_by(&self, wait: Wait, sleep: impl FnOnce(&WaitEvent)) {
        // The last second of a wait for a clock that was set back looks like any start.
        let wait = if (self.waits.get(), wait) == (Some(Wait::Clock), Wait::Mark) { Wait::Clock } else { wait };
        let (waits, micros) = wait.counters();
        // Counted when it begins, so that a session that waits shows.
        if self.waits.replace(Some(wait)) != Some(wait) {
            count(waits, 1);
            if wait == Wait::UsedUp && shmem::is_due(Notice::UsedUp, MINUTE_MS) {
                let max_borrow_ms = guc::max_borrow_ms();
                log!("snowflake_id: all ids up to {max_borrow_ms} ms ahead of the clock are drawn; draws wait");
            }
        }
        let start = Instant::now();
        sleep(wait.event());
        count(micros, as_micros(start.elapsed()));
        pgrx::check_for_interrupts!();
    }

    /// Notes that something is about to be written with a mark, or a mark itself.
    pub fn writes(&self) {
        if self.moves_since.get().is_none() {
            self.moves_since.set(Some(Instant::now()));
        }
    }

    /// Notes that what was written is durable.
    pub fn has_flushed(&self) {
        if let Some(since) = self.moves_since.take() {
            count(Counter::MoveMicros, as_micros(since.elapsed()));
        }
    }
}

fn as_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Counts something, if this backend has a slot.
pub fn count(counter: Counter, number: u64) {
    if let Some(slot) = shmem::slot() {
        slot.add(counter, number);
    }
}

/// Notes that a draw ends with an error: counts it by its reason, and logs the first of each reason in a minute with all that the
/// error says, since the application that gets it may tell nobody.
#[cold]
pub fn note_refusal(error: &Error) {
    let (counter, notice) = match error {
        Error::Rollback { .. } | Error::ClockBeforeEpoch { .. } => {
            (Counter::ClockStepsBackRefused, Notice::ClockStepBackRefused)
        }
        Error::Jumped { .. } => (Counter::ClockJumpsRefused, Notice::ClockJumpRefused),
        Error::BehindMark { .. } => (Counter::MarkRefused, Notice::MarkRefused),
        Error::OtherLayout { .. } => (Counter::LayoutRefused, Notice::LayoutRefused),
        Error::NotSet(_) => (Counter::NumberRefused, Notice::NumberRefused),
        Error::TimeUsedUp(_) => (Counter::TimeUsedUpRefused, Notice::TimeUsedUpRefused),
        Error::TooManyDatabases(_) => (Counter::DatabasesRefused, Notice::DatabasesRefused),
        // A mistake of the caller's, or no preload, without which nothing can be counted.
        _ => return,
    };
    count(counter, 1);
    if shmem::is_due(notice, MINUTE_MS) {
        error.report().log("draws are refused");
    }
}

/// Says once a day that the layout's time ends within a year. (It is looked at when the mark moves.)
pub fn look_at_the_end(layout: &Layout) {
    if let Some(message) = guc::last_year(layout).filter(|_| shmem::is_due(Notice::LastYear, DAY_MS)) {
        log!("snowflake_id: {message}");
    }
}

/// Whether nine tenths of the places for databases are taken.
pub fn are_few_places_left(taken: usize, all: usize) -> bool {
    taken * 10 >= all * 9
}

/// Says when nine tenths of the places for databases are taken: at most once a minute, since they are taken one after the other. (It
/// is looked at when a database takes one.)
pub fn look_at_the_places(taken: usize, all: usize) {
    if are_few_places_left(taken, all) && shmem::is_due(Notice::FewPlaces, MINUTE_MS) {
        few_places(taken, all).report(PgLogLevel::WARNING);
    }
}

/// The server's figures.
#[derive(Debug)]
pub struct Server {
    /// The settings that ids are drawn with.
    pub config: &'static Config,
    counts: Counts,
    /// Since when they are counted, in milliseconds since 1970.
    pub reset_ms: i64,
    /// The greatest id drawn since the start, and its time in milliseconds since 1970.
    pub last: Option<(i64, i64)>,
    /// How far the lanes are ahead of the clock, in milliseconds; 0 if they are not.
    pub ahead_ms: i64,
}

impl Server {
    /// Reads them.
    ///
    /// # Errors
    /// [`Error::NotPreloaded`].
    pub fn read() -> Result<Self, Error> {
        let config = guc::config().ok_or(Error::NotPreloaded)?;
        let generator = shmem::generator().ok_or(Error::NotPreloaded)?;
        let (counts, reset_ms) = shmem::counts().ok_or(Error::NotPreloaded)?;
        // The lanes before the clock, as in a draw.
        let reached_ms = LaneName::ALL.iter().filter_map(|lane| generator.reached_ms(*lane, &config.layout)).max();
        let ahead_ms = reached_ms.map_or(0, |reached_ms| reached_ms.saturating_sub(WallClock.now_ms()).max(0));
        let last = shmem::greatest_id().map(|id| Ok::<_, Error>((id, config.layout.created_at_ms(id)?))).transpose()?;
        Ok(Self { config, counts, reset_ms, last, ahead_ms })
    }

    /// A count since the last reset.
    pub fn count(&self, counter: Counter) -> i64 {
        i64::try_from(self.counts[counter as usize]).unwrap_or(i64::MAX)
    }

    /// A count of microseconds, in milliseconds, as PostgreSQL's own views have times.
    pub fn time_ms(&self, counter: Counter) -> f64 {
        self.counts[counter as usize] as f64 / 1000.0
    }
}

/// The sessions that have drawn, or waited to.
///
/// # Errors
/// [`Error::NotPreloaded`].
pub fn backends() -> Result<impl Iterator<Item = OfBackend>, Error> {
    shmem::backends().ok_or(Error::NotPreloaded)
}

/// Counts the server's figures from now on.
///
/// # Errors
/// [`Error::NotPreloaded`].
pub fn reset() -> Result<(), Error> {
    shmem::reset_counts(WallClock.now_ms()).ok_or(Error::NotPreloaded)
}
