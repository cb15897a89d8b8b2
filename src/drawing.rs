//! What this server draws with: the layout and the numbers, which come from the settings. This file
//! is the only owner of both.
//!
//! Other files get a [`Drawing`] by value, or borrow it for the length of a call. They must not
//! keep it, so that a number can change while the server runs.

use std::sync::OnceLock;

use pgrx::prelude::*;
use snowflake_core::clock::{Clock, Utc};
use snowflake_core::id::IdError;
use snowflake_core::identity::{Drawing, Identity};
use snowflake_core::layout::{Field, Layout};
use snowflake_core::mark::IS_CONTROL;

use crate::backend::WallClock;
use crate::configuration;
use crate::error::{Error, Reportable, known_as};
use crate::guc;
use crate::values::{NOT_SET, Values};

/// What the settings said at server start. The layout never changes.
#[derive(Debug)]
struct Running {
    layout: Layout,
    /// The layout as an argument: its built-in name, or its line.
    layout_text: String,
    /// What ids are drawn with, or the field whose number is not set.
    drawing: Result<Drawing, Field>,
    numbers: Numbers,
}

/// A server's numbers as they are shown: `None` if not set, or where the layout lacks the field.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    pub datacenter: Option<i32>,
    pub worker: Option<i32>,
    /// The number of the backup lane, if there is one.
    pub backup_worker: Option<i32>,
}

/// Set at server start, and inherited by every backend.
static RUNNING: OnceLock<Running> = OnceLock::new();

/// Takes the settings, which are defined by now, and logs what ids this server will draw.
pub fn init() {
    let values = guc::running();
    let Some(layout) = values.layout else { return };
    let (drawing, numbers) = (drawing_of(layout, &values), numbers_of(&layout, &values));
    let running = RUNNING.get_or_init(|| Running { layout, layout_text: known_as(&layout), drawing, numbers });
    announce(running, &values);
}

/// Puts the settings together. The checks have passed, so only a number can be missing.
fn drawing_of(layout: Layout, values: &Values) -> Result<Drawing, Field> {
    let number = |value: i32| (value != NOT_SET).then_some(i64::from(value));
    match Drawing::new(layout, number(values.worker_id), number(values.datacenter_id), values.backup_worker) {
        Ok(drawing) => Ok(drawing),
        Err(IdError::PartMissing(field)) => Err(field),
        Err(error) => unreachable!("the check hooks let pass: {error}"),
    }
}

fn numbers_of(layout: &Layout, values: &Values) -> Numbers {
    let number = |field, value: i32| layout.max_of(field).map(|_| value).filter(|number| *number != NOT_SET);
    let worker = number(Field::Worker, values.worker_id);
    let half = Identity::worker_numbers(layout, true).ok().filter(|_| values.backup_worker);
    Numbers {
        datacenter: number(Field::Datacenter, values.datacenter_id),
        worker,
        backup_worker: worker.zip(half).map(|(worker, half)| worker + half as i32),
    }
}

/// Returns what ids are drawn with.
///
/// # Errors
/// [`Error::NotPreloaded`], or [`Error::NotSet`] for a number that the layout needs.
pub fn current() -> Result<Drawing, Error> {
    RUNNING.get().ok_or(Error::NotPreloaded)?.drawing.map_err(Error::NotSet)
}

/// Lends `work` what ids are drawn with, or returns `None` where [`current`] has an error. It lends
/// a reference, so that the fast path copies nothing.
#[inline(always)]
pub fn with<T>(work: impl FnOnce(&Drawing) -> Option<T>) -> Option<T> {
    work(RUNNING.get()?.drawing.as_ref().ok()?)
}

/// Returns the layout of new ids, and of decoding without an argument; `None` if the library was
/// not preloaded.
#[inline]
pub fn layout() -> Option<&'static Layout> {
    RUNNING.get().map(|running| &running.layout)
}

/// Returns the layout as a `layout` argument (its built-in name, or its line), and this server's
/// numbers; `None` if the library was not preloaded.
pub fn shown() -> Option<(&'static str, Numbers)> {
    RUNNING.get().map(|running| (running.layout_text.as_str(), running.numbers))
}

/// Returns the largest worker number that this server may have, or `None` for a layout without a
/// worker field.
pub fn max_worker_id(layout: &Layout) -> Option<i32> {
    layout.max_of(Field::Worker)?;
    let backup = RUNNING.get().is_some() && guc::running().backup_worker;
    Identity::worker_numbers(layout, backup).ok().map(|numbers| (numbers - 1) as i32)
}

/// Logs at server start, on standbys too, what ids this server will draw, because readiness for a
/// failover must show before it.
fn announce(running: &Running, values: &Values) {
    let Running { layout, drawing, .. } = running;
    let name = layout.built_in_name().unwrap_or("custom");
    let number = |field: Field, value: i32| match (layout.max_of(field), value) {
        (None, _) => String::new(),
        (_, NOT_SET) => format!("{field} not set, "),
        _ => format!("{field} {value}, "),
    };
    let datacenter = number(Field::Datacenter, values.datacenter_id);
    let worker = number(Field::Worker, values.worker_id);
    let backup = if values.backup_worker { "backup worker on, " } else { "" };
    let end = Utc(layout.last_instant_ms());
    log!("snowflake_id: {datacenter}{worker}{backup}layout \"{name}\" ({layout}), time until {end}");
    if IS_CONTROL {
        warning!(
            "this is a test build of snowflake_id without crash protection: ids repeat after a crash; do not use it"
        );
    }
    if let Err(field) = drawing {
        Error::NotSet(*field).report().report(PgLogLevel::WARNING);
    }
    let now_ms = WallClock.now_ms();
    if now_ms < layout.epoch_ms() {
        Error::ClockBeforeEpoch { now_ms, layout: *layout }.report().report(PgLogLevel::WARNING);
    } else if layout.tick_at(now_ms) > layout.last_tick() as i64 {
        Error::TimeUsedUp(*layout).report().report(PgLogLevel::WARNING);
    } else if let Some(message) = last_year(layout) {
        warning!("{message}");
    }
    // A library is named by its file. PostgreSQL loads the libraries from the first to the last.
    let libraries = configuration::preloaded_libraries();
    let position = |library: &str| libraries.iter().position(|name| name == library);
    if let (Some(ours), Some(citus)) = (position("snowflake_id"), position("citus"))
        && ours < citus
    {
        Error::BeforeCitus.report().report(PgLogLevel::WARNING);
    }
}

/// Returns the warning for the last year of a layout's time.
pub fn last_year(layout: &Layout) -> Option<String> {
    const YEAR_MS: i64 = 365 * 86_400_000;
    let end_ms = layout.last_instant_ms();
    let is_last = end_ms.saturating_sub(WallClock.now_ms()) < YEAR_MS;
    is_last.then(|| {
        format!("layout \"{}\" has no ids after {}, which is less than a year from now", known_as(layout), Utc(end_ms))
    })
}
