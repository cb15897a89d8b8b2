//! Statistics: what the views show, and what is counted and logged apart from waiting
//! (`waiting.rs`).
//!
//! Each backend counts in its own slot (`slot.rs`), so that counting costs no shared write. The
//! server's figures are the sums over all slots, minus the sums at the last reset. They live as
//! long as shared memory: a restart or a crashed backend starts them from 0. What happens often
//! must be logged at most once a minute.

use pgrx::prelude::*;
use snowflake_core::clock::{Clock, DAY_MS};
use snowflake_core::fleet::segment::State;
use snowflake_core::id::identity::LaneName;
use snowflake_core::id::layout::Layout;
use snowflake_registry::shown_address;

use crate::error::fleet::Failing;
use crate::error::{Error, Reportable, Sent, few_places};
use crate::ids::stamp::{self, ShownNumbers};
use crate::postgres::backend::WallClock;
use crate::settings::guc;
use crate::shared::lease_status::LeaseStatus;
use crate::shared::shmem::{self, Topic};
use crate::shared::slot::{Counter, DrawCounts, OfBackend};
use crate::shared::tags::TagRow;

/// The shortest time between two log lines about what happens often, in milliseconds.
pub const MINUTE_MS: i64 = 60_000;

/// Counts something, if this backend has a slot.
pub fn count(counter: Counter, number: u64) {
    if let Some(slot) = shmem::slot() {
        slot.add(counter, number);
    }
}

/// Notes that a draw ends with an error: counts it by its reason, and logs the first of each reason
/// in a minute. The log line says all that the error says, because the application may not pass it
/// on.
#[cold]
pub fn note_refusal(error: &Error) {
    let (counter, topic) = match error {
        Error::ClockStepBack { .. } | Error::ClockBeforeEpoch { .. } => {
            (Counter::ClockStepsBackRefused, Topic::ClockStepBackRefused)
        }
        Error::Jumped { .. } => (Counter::ClockJumpsRefused, Topic::ClockJumpRefused),
        Error::BehindMark { .. } => (Counter::MarkRefused, Topic::MarkRefused),
        Error::OtherLayout { .. } => (Counter::LayoutRefused, Topic::LayoutRefused),
        Error::NotSet(_) => (Counter::NumberRefused, Topic::NumberRefused),
        Error::NotSupplied(_) => (Counter::LeaseRefused, Topic::LeaseRefused),
        Error::OtherFleet { .. } => (Counter::FleetRefused, Topic::FleetRefused),
        Error::TimeUsedUp(_) => (Counter::TimeUsedUpRefused, Topic::TimeUsedUpRefused),
        Error::TooManyDatabases(_) => (Counter::DatabasesRefused, Topic::DatabasesRefused),
        // The caller's mistake, or no preload, without which nothing can be counted.
        _ => return,
    };
    count(counter, 1);
    if shmem::is_due(topic, MINUTE_MS) {
        error.report().log("draws are refused");
    }
}

/// Logs once a day that the layout's time ends within a year. Called when the mark moves.
pub fn warn_in_the_last_year(layout: &Layout) {
    if let Some(message) = stamp::last_year(layout).filter(|_| shmem::is_due(Topic::LastYear, DAY_MS)) {
        log!("snowflake_id: {message}");
    }
}

/// Whether nine tenths of the places for databases are taken.
pub fn are_few_places_left(taken: usize, all: usize) -> bool {
    taken * 10 >= all * 9
}

/// Warns when nine tenths of the places for databases are taken. Called when a database takes one.
/// Warns at most once a minute, because the places are taken one after the other.
pub fn warn_of_few_places(taken: usize, all: usize) {
    if are_few_places_left(taken, all) && shmem::is_due(Topic::FewPlaces, MINUTE_MS) {
        few_places(taken, all).report(PgLogLevel::WARNING);
    }
}

/// The server's figures.
#[derive(Debug)]
pub struct ServerFigures {
    /// The layout that ids are drawn with.
    pub layout: &'static Layout,
    /// The same as a `layout` argument.
    pub layout_text: &'static str,
    /// The numbers in every id of this server.
    pub numbers: ShownNumbers,
    counts: DrawCounts,
    /// When the counts were last reset, in milliseconds since 1970.
    pub reset_ms: i64,
    /// The greatest id drawn since the start, and its time in milliseconds since 1970.
    pub last: Option<(i64, i64)>,
    /// How far the lanes are ahead of the clock, in milliseconds; 0 if they are not.
    pub ahead_ms: i64,
}

impl ServerFigures {
    /// Reads the server's figures.
    ///
    /// # Errors
    /// [`Error::NotPreloaded`].
    pub fn read() -> Result<Self, Error> {
        let layout = stamp::layout().ok_or(Error::NotPreloaded)?;
        let (layout_text, numbers) = stamp::shown().ok_or(Error::NotPreloaded)?;
        let generator = shmem::generator().ok_or(Error::NotPreloaded)?;
        let (counts, reset_ms) = shmem::counts().ok_or(Error::NotPreloaded)?;
        // The lanes are read before the clock, as in a draw.
        let reached_ms = LaneName::ALL.iter().filter_map(|lane| generator.reached_ms(*lane, layout)).max();
        let ahead_ms = reached_ms.map_or(0, |reached_ms| reached_ms.saturating_sub(WallClock.now_ms()).max(0));
        let last = shmem::greatest_id().map(|id| Ok::<_, Error>((id, layout.created_at_ms(id)?))).transpose()?;
        Ok(Self { layout, layout_text, numbers, counts, reset_ms, last, ahead_ms })
    }

    /// Returns a count since the last reset.
    pub fn count(&self, counter: Counter) -> i64 {
        i64::try_from(self.counts[counter as usize]).unwrap_or(i64::MAX)
    }

    /// Returns a count of microseconds in milliseconds, the unit of PostgreSQL's own views.
    pub fn time_ms(&self, counter: Counter) -> f64 {
        self.counts[counter as usize] as f64 / 1000.0
    }
}

/// What is shown of the lease of this server's number.
#[derive(Debug)]
pub struct OfLease {
    /// `configured`, `none`, `held` or `over`.
    pub state: &'static str,
    pub status: LeaseStatus,
    /// How to reach the registry, without secrets; `None` for configured numbers.
    pub registry: Option<String>,
}

impl OfLease {
    /// Reads what is known of the lease.
    ///
    /// # Errors
    /// [`Error::NotPreloaded`].
    pub fn read() -> Result<Self, Error> {
        let status = shmem::status().ok_or(Error::NotPreloaded)?.get();
        if !stamp::is_leased() {
            return Ok(Self { state: "configured", status, registry: None });
        }
        let state = match (status.held, stamp::current()) {
            (Some(held), Ok(_)) if held.until_ms > WallClock.now_ms() => "held",
            (Some(_), _) => "over",
            (None, _) => "none",
        };
        Ok(Self { state, status, registry: Some(shown_address(&guc::registry())) })
    }
}

/// Returns the sessions that have drawn, or waited to draw.
///
/// # Errors
/// [`Error::NotPreloaded`].
pub fn backends() -> Result<impl Iterator<Item = OfBackend>, Error> {
    shmem::backends().ok_or(Error::NotPreloaded)
}

/// Returns the tags in use, and why the registry gives no blocks, if that is so.
///
/// # Errors
/// [`Error::NotPreloaded`].
pub fn tags() -> Result<(Vec<TagRow>, Option<Failing>), Error> {
    Ok(shmem::tags().ok_or(Error::NotPreloaded)?.read())
}

/// Returns what the view calls the state of a tag.
pub fn name_of(state: State) -> &'static str {
    match state {
        State::Open => "open",
        State::Unknown => "unknown",
        State::Ended => "ended",
        State::NoJump | State::TooFar => "stopped",
    }
}

/// Resets the server's counts, and those of sessions that waited for a tag's block.
///
/// # Errors
/// [`Error::NotPreloaded`].
pub fn reset() -> Result<(), Error> {
    shmem::reset_counts(WallClock.now_ms()).ok_or(Error::NotPreloaded)?;
    shmem::tags().ok_or(Error::NotPreloaded)?.reset_counts();
    Ok(())
}
