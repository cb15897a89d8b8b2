//! What this server draws with: the layout, which comes from the settings, and the numbers, which
//! come from the settings or are leased from a registry. This file is the only owner of both.
//!
//! Other files get a [`IdStamp`] by value, or borrow it for the length of a call. They must not
//! keep it, because leased numbers change while the server runs (`core/draw/numbers.rs`).

use std::sync::OnceLock;

use pgrx::prelude::*;
use snowflake_core::clock::{Clock, DAY_MS, Utc};
use snowflake_core::draw::mark::IS_CONTROL;
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::id::identity::Identity;
use snowflake_core::id::layout::{Field, Layout};
use snowflake_core::id::parts::IdError;

use crate::error::{Error, Reportable, Sent, known_as};
use crate::postgres::backend::WallClock;
use crate::postgres::local::Local;
use crate::settings::configuration;
use crate::settings::guc::{self, NOT_SET, Values};
use crate::shared::shmem;

/// What the settings said at server start. The layout never changes.
#[derive(Debug)]
struct Running {
    layout: Layout,
    /// The layout as an argument: its built-in name, or its line.
    layout_text: String,
    source: NumberSource,
}

/// Where the numbers come from.
#[derive(Debug)]
enum NumberSource {
    /// The settings.
    Configured(IdStamp),
    /// The settings, but this field's number is not set.
    Missing(Field),
    /// A registry leases the worker number. The rest comes from the settings.
    Leased { datacenter: Option<i64> },
}

/// A server's numbers as they are shown: `None` if not set, or where the layout lacks the field.
#[derive(Debug, Clone, Copy)]
pub struct ShownNumbers {
    pub datacenter: Option<i32>,
    pub worker: Option<i32>,
    /// The number of the backup lane, if there is one.
    pub backup_worker: Option<i32>,
}

/// Set at server start, and inherited by every backend.
static RUNNING: OnceLock<Running> = OnceLock::new();

/// What this session's fast path draws with. Configured numbers are here from the server's start.
/// Leased ones belong to the marks that the session knows ([`keep`]).
static KEPT: Local<Option<&'static IdStamp>> = Local::new(None);

/// Takes the settings, which are defined by now, and logs what ids this server will draw.
pub fn init() {
    let values = guc::running();
    let Some(layout) = values.layout else { return };
    let source = source_of(layout, &values);
    let running = RUNNING.get_or_init(|| Running { layout, layout_text: known_as(&layout), source });
    if let NumberSource::Configured(drawing) = &running.source {
        KEPT.set(Some(drawing));
    }
    announce(running, &values);
}

/// Puts the settings together. The checks have passed, so only a number can be missing.
fn source_of(layout: Layout, values: &Values) -> NumberSource {
    let number = |value: i32| (value != NOT_SET).then_some(i64::from(value));
    let datacenter = number(values.datacenter_id);
    if values.has_registry {
        return match (layout.max_of(Field::Datacenter), datacenter) {
            (Some(_), None) => NumberSource::Missing(Field::Datacenter),
            _ => NumberSource::Leased { datacenter },
        };
    }
    match IdStamp::new(layout, number(values.worker_id), datacenter, values.backup_worker) {
        Ok(drawing) => NumberSource::Configured(drawing),
        Err(IdError::PartMissing(field)) => NumberSource::Missing(field),
        Err(error) => unreachable!("the check hooks let pass: {error}"),
    }
}

impl ShownNumbers {
    /// Returns the numbers of a server that has these, or none of the leased ones.
    fn of(layout: &Layout, worker: Option<i64>, datacenter: Option<i64>, has_backup: bool) -> Self {
        let number =
            |field, value: Option<i64>| layout.max_of(field).and(value).and_then(|value| i32::try_from(value).ok());
        let worker = number(Field::Worker, worker);
        let half = Identity::worker_numbers(layout, true).ok().filter(|_| has_backup);
        Self {
            datacenter: number(Field::Datacenter, datacenter),
            worker,
            backup_worker: worker.zip(half).map(|(worker, half)| worker + half as i32),
        }
    }
}

/// Reads what ids are drawn with now; `None` while there is no lease.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::NotSet`] for a number that the layout needs.
pub fn read() -> Result<Option<IdStamp>, Error> {
    let running = RUNNING.get().ok_or(Error::NotPreloaded)?;
    match running.source {
        NumberSource::Configured(drawing) => Ok(Some(drawing)),
        NumberSource::Missing(field) => Err(Error::NotSet(field)),
        NumberSource::Leased { .. } => Ok(shmem::numbers().ok_or(Error::NotPreloaded)?.read(&running.layout)),
    }
}

/// Returns what ids are drawn with now.
///
/// # Errors
/// As for [`read`], and [`Error::NotSupplied`].
pub fn current() -> Result<IdStamp, Error> {
    read()?.ok_or_else(no_lease)
}

/// Returns why there are no leased numbers. Call it only where [`read`] returns `None`.
#[cold]
pub fn no_lease() -> Error {
    shmem::status().map_or(Error::NotPreloaded, |status| status.get().why_none())
}

/// Checks that ids can be drawn once there is a lease, if numbers are leased.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::NotSet`].
pub fn check() -> Result<(), Error> {
    match RUNNING.get().ok_or(Error::NotPreloaded)?.source {
        NumberSource::Missing(field) => Err(Error::NotSet(field)),
        NumberSource::Configured(_) | NumberSource::Leased { .. } => Ok(()),
    }
}

/// Returns what [`read`] does, for the marks that this session knows, and keeps it for the fast
/// path. The marks must have been looked up before (`core/draw/numbers.rs`).
///
/// # Errors
/// As for [`read`].
pub fn keep() -> Result<Option<IdStamp>, Error> {
    let Some(drawing) = read()? else { return Ok(None) };
    if KEPT.get().is_none_or(|kept| kept.version() != drawing.version()) {
        // A session keeps its numbers until they change, which takes a restart of the registry, or
        // of the process that leases them. What it leaves behind then is about a hundred bytes.
        KEPT.set(Some(Box::leak(Box::new(drawing))));
    }
    Ok(Some(drawing))
}

/// Forgets what the fast path draws with, because the session has looked up its marks anew.
pub fn forget_kept() {
    if is_leased() {
        KEPT.set(None);
    }
}

/// Returns what the fast path draws with; `None` if the session has to look it up.
#[inline(always)]
pub fn kept() -> Option<&'static IdStamp> {
    KEPT.get()
}

/// Returns until when the registry leases no number anew, if it was frozen when it answered last,
/// and this server leases its number from it.
pub fn frozen_ms() -> Option<i64> {
    let status = shmem::status().filter(|_| is_leased())?;
    status.get().freeze_ms.filter(|freeze_ms| *freeze_ms > WallClock.now_ms())
}

/// Whether the worker number is leased from a registry.
pub fn is_leased() -> bool {
    RUNNING.get().is_some_and(|running| matches!(running.source, NumberSource::Leased { .. }))
}

/// Returns the layout of new ids, and of decoding without an argument; `None` if the library was
/// not preloaded.
#[inline]
pub fn layout() -> Option<&'static Layout> {
    RUNNING.get().map(|running| &running.layout)
}

/// Returns the layout as a `layout` argument (its built-in name, or its line), and this server's
/// numbers; `None` if the library was not preloaded.
pub fn shown() -> Option<(&'static str, ShownNumbers)> {
    let running = RUNNING.get()?;
    let (layout, values) = (&running.layout, guc::running());
    let number = |value: i32| (value != NOT_SET).then_some(i64::from(value));
    let worker = match running.source {
        NumberSource::Leased { .. } => {
            let drawing = read().ok().flatten();
            drawing.map(|drawing| drawing.identity().number(layout, Field::Worker) as i64)
        }
        NumberSource::Configured(_) | NumberSource::Missing(_) => number(values.worker_id),
    };
    let numbers = ShownNumbers::of(layout, worker, number(values.datacenter_id), values.backup_worker);
    Some((&running.layout_text, numbers))
}

/// Returns the datacenter that the settings give, for a layout that has that field.
pub fn datacenter() -> Option<i64> {
    match RUNNING.get()?.source {
        NumberSource::Leased { datacenter } => datacenter,
        NumberSource::Configured(_) | NumberSource::Missing(_) => None,
    }
}

/// Whether the server has a backup number.
pub fn has_backup() -> bool {
    guc::running().backup_worker
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
    let Running { layout, source, .. } = running;
    let name = layout.built_in_name().unwrap_or("custom");
    let number = |field: Field, value: i32| match (layout.max_of(field), value) {
        (None, _) => String::new(),
        _ if field == Field::Worker && values.has_registry => "worker leased from the registry, ".to_owned(),
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
    if let NumberSource::Missing(field) = source {
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
    const YEAR_MS: i64 = 365 * DAY_MS;
    let end_ms = layout.last_instant_ms();
    let is_last = end_ms.saturating_sub(WallClock.now_ms()) < YEAR_MS;
    is_last.then(|| {
        format!("layout \"{}\" has no ids after {}, which is less than a year from now", known_as(layout), Utc(end_ms))
    })
}
