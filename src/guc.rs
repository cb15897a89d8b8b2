//! The settings, and how a wrong one stops the start.
//!
//! PostgreSQL only warns about a wrong value of a custom setting in the configuration file, and takes the default: a typo
//! would draw ids of another layout, or another server's. So each setting, once defined, is offered the file's value a
//! second time, with FATAL as the level of what it refuses. A name that is none of ours is FATAL too.
//!
//! Settings are defined in the order in which their checks build on each other: layout, backup_worker, then the numbers.
//! At a reload and in ALTER SYSTEM the same checks refuse, and the server lives on. A check hook that panicked there would
//! take the postmaster down: hooks catch everything.
//!
//! **Without preload** a session may define only what it may change, so only `layout` is defined, for decoding.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use pgrx::pg_sys;
use pgrx::prelude::*;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};
use snowflake_core::clock::{Clock, Utc};
use snowflake_core::error::IdError;
use snowflake_core::generator::Identity;
use snowflake_core::layout::{Field, Layout};

use crate::backend::{self, WallClock};
use crate::error::{Error, known_as};

/// What to do when the clock is behind the last id by more than can be borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
pub enum OnRollback {
    /// Raise 58000.
    #[name = c"error"]
    Error,
    /// Wait until the clock has passed the last id.
    #[name = c"wait"]
    Wait,
}

/// The value of a number that is not set. A default of 0 on every server is the classic way to duplicate ids.
const NOT_SET: i32 = -1;

/// An hour. More would only put ids further into the future than anybody would look for them.
const LONGEST_BORROW_MS: i32 = 3_600_000;

const DAY_MS: i32 = 86_400_000;

const LAYOUT_NAME: &CStr = c"snowflake_id.layout";

static LAYOUT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"snowflake"));
static WORKER_ID: GucSetting<i32> = GucSetting::<i32>::new(NOT_SET);
static DATACENTER_ID: GucSetting<i32> = GucSetting::<i32>::new(NOT_SET);
static BACKUP_WORKER: GucSetting<bool> = GucSetting::<bool>::new(false);
static ON_ROLLBACK: GucSetting<OnRollback> = GucSetting::<OnRollback>::new(OnRollback::Error);
static MAX_BORROW: GucSetting<i32> = GucSetting::<i32>::new(100);
static MAX_CLOCK_JUMP: GucSetting<i32> = GucSetting::<i32>::new(DAY_MS);
static ENABLE_TIME_PUSHDOWN: GucSetting<bool> = GucSetting::<bool>::new(true);

/// The value of `MAX_BORROW`, for the hot path: its `get()` also checks that the thread is PostgreSQL's.
static MAX_BORROW_MS: AtomicI32 = AtomicI32::new(100);

/// What ids are drawn with. Fixed at server start.
#[derive(Debug)]
pub struct Drawing {
    /// The layout.
    pub layout: Layout,
    /// The numbers in every id of this server.
    pub identity: Identity,
}

/// The settings that are fixed at server start.
#[derive(Debug)]
pub struct Config {
    /// The layout of new ids, and of decoding without an argument.
    pub layout: Layout,
    /// The same as a `layout` argument: its built-in name, or its line.
    pub layout_text: String,
    /// What ids are drawn with, or the field whose number is not set.
    drawing: Result<Drawing, Field>,
}

/// The layout that this server runs with: set when `layout` is defined at server start, and used by the later checks.
static RUNNING_LAYOUT: OnceLock<Layout> = OnceLock::new();

/// Set at the end of `init` at server start, and inherited by every backend.
static CONFIG: OnceLock<Config> = OnceLock::new();

/// The settings that are fixed at server start, or `None` if the library was not preloaded.
#[inline]
pub fn config() -> Option<&'static Config> {
    CONFIG.get()
}

/// What ids are drawn with, or `None` where [`drawing`] has an error.
#[inline]
pub fn drawing_if_set() -> Option<&'static Drawing> {
    config()?.drawing.as_ref().ok()
}

/// What ids are drawn with.
///
/// # Errors
/// [`Error::NotPreloaded`], or [`Error::NotSet`] for a number that the layout needs.
pub fn drawing() -> Result<&'static Drawing, Error> {
    match config() {
        Some(Config { drawing: Ok(drawing), .. }) => Ok(drawing),
        Some(Config { drawing: Err(field), .. }) => Err(Error::NotSet(*field)),
        None => Err(Error::NotPreloaded),
    }
}

/// The farthest that the clock may jump ahead, in milliseconds; 0 for any distance.
pub fn max_clock_jump_ms() -> i64 {
    MAX_CLOCK_JUMP.get().into()
}

/// How far ids may run ahead of the clock, in milliseconds.
#[inline]
pub fn max_borrow_ms() -> i64 {
    // Relaxed: a backend has one thread.
    MAX_BORROW_MS.load(Ordering::Relaxed).into()
}

/// Whether conditions on an id's time are planned as conditions on the id.
pub fn enable_time_pushdown() -> bool {
    ENABLE_TIME_PUSHDOWN.get()
}

/// What to do after a rollback.
pub fn on_rollback() -> OnRollback {
    ON_ROLLBACK.get()
}

/// The largest worker number that this server may have, or `None` for a layout without a worker field.
pub fn max_worker_id(layout: &Layout) -> Option<i32> {
    layout.max_of(Field::Worker)?;
    let backup = config().is_some() && BACKUP_WORKER.get();
    Identity::worker_numbers(layout, backup).ok().map(|numbers| (numbers - 1) as i32)
}

/// This server's number in a field, or `None` if it is not set or the layout lacks the field. In a preloaded library.
pub fn number(layout: &Layout, field: Field) -> Option<i32> {
    layout.max_of(field)?;
    let number = if field == Field::Datacenter { DATACENTER_ID.get() } else { WORKER_ID.get() };
    Some(number).filter(|number| *number != NOT_SET)
}

/// The worker number of this server's backup lane, if it has one. In a preloaded library.
pub fn backup_worker_id(layout: &Layout) -> Option<i32> {
    let half = Identity::worker_numbers(layout, true).ok()?;
    number(layout, Field::Worker).filter(|_| BACKUP_WORKER.get()).map(|worker| worker + half as i32)
}

/// How often PostgreSQL has accepted a value for `layout` in this process: once for the default, when it is defined.
static ACCEPTED_LAYOUTS: AtomicU32 = AtomicU32::new(0);

/// Where the library is not preloaded: the value that `layout` had before it was defined.
static GIVEN_LAYOUT: OnceLock<String> = OnceLock::new();

/// The layout's text, where the library is not preloaded.
///
/// # Errors
/// [`Error::LayoutRefused`] if there was a value, but PostgreSQL accepted none: it has warned and taken the default, and to
/// decode by that would be wrong without a word. Either the configuration file's value is no layout, or a role's,
/// database's or client's is on top of it, which may not set it, and the file's is lost. A reload may mend it.
pub fn layout_text_without_preload() -> Result<String, Error> {
    // Relaxed: a backend has one thread.
    match GIVEN_LAYOUT.get() {
        Some(given) if ACCEPTED_LAYOUTS.load(Ordering::Relaxed) <= 1 => {
            Layout::parse(given)?;
            Err(Error::LayoutRefused(given.clone()))
        }
        _ => Ok(LAYOUT.get().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()),
    }
}

/// Defines the settings. Ends the server's start if the configuration file holds a wrong one.
pub fn init() {
    if !backend::is_preloading() {
        let given = given(LAYOUT_NAME);
        define_layout(GucContext::Sighup);
        if let Some(text) = given {
            GIVEN_LAYOUT.get_or_init(|| text.to_string_lossy().into_owned());
        }
        return;
    }

    define(LAYOUT_NAME, || define_layout(GucContext::Postmaster));
    // Valid: define() has just ended the start of a server with another.
    let text = LAYOUT.get().unwrap_or_default();
    let layout = *RUNNING_LAYOUT
        .get_or_init(|| Layout::parse(&text.to_string_lossy()).expect("the check hook accepts layouts only"));

    define(c"snowflake_id.backup_worker", || {
        // SAFETY: the hook is guarded by `checked`.
        unsafe {
            GucRegistry::define_bool_guc_with_hooks(
                c"snowflake_id.backup_worker",
                c"Reserves the upper half of the worker numbers for backup workers.",
                c"Server w, below half, then also owns w + half, and draws with it when the clock is set back or a tick's \
                  ids are used up. Must be the same on every server of the fleet.",
                &BACKUP_WORKER,
                GucContext::Postmaster,
                GucFlags::default(),
                Some(check_backup_worker),
                None,
                None,
            );
        }
    });
    define_number(
        c"snowflake_id.worker_id",
        c"Sets the number of this server within the layout's worker field.",
        c"One number for a primary and its standbys, different from every other primary's of the fleet. -1 means not set: \
          no id can be drawn then.",
        &WORKER_ID,
        check_worker_id,
    );
    define_number(
        c"snowflake_id.datacenter_id",
        c"Sets the number of this server's datacenter within the layout's datacenter field.",
        c"Only for layouts with that field. -1 means not set.",
        &DATACENTER_ID,
        check_datacenter_id,
    );
    define(c"snowflake_id.on_rollback", || {
        GucRegistry::define_enum_guc(
            c"snowflake_id.on_rollback",
            c"Chooses what to do when the clock is behind the last id by more than can be borrowed.",
            c"error raises an error; wait makes the session wait until the clock has passed the last id.",
            &ON_ROLLBACK,
            GucContext::Sighup,
            GucFlags::default(),
        );
    });
    define(c"snowflake_id.max_borrow", || {
        // SAFETY: the hook only stores a number.
        unsafe {
            GucRegistry::define_int_guc_with_hooks(
                c"snowflake_id.max_borrow",
                c"Sets how far ids may run ahead of the clock.",
                c"Future ticks are borrowed when a tick's ids are used up or the clock is set back. 0 makes every step back \
                  a rollback.",
                &MAX_BORROW,
                0,
                LONGEST_BORROW_MS,
                GucContext::Sighup,
                GucFlags::UNIT_MS,
                None,
                Some(assign_max_borrow),
                None,
            );
        }
    });
    define(c"snowflake_id.max_clock_jump", || {
        GucRegistry::define_int_guc(
            c"snowflake_id.max_clock_jump",
            c"Sets how far the clock may jump ahead.",
            c"A clock that has gained more than this against the time since boot, since a mark was last logged, is refused, so \
              that a clock that is wrong for a moment cannot push ids into the future for good. 0 permits any jump.",
            &MAX_CLOCK_JUMP,
            0,
            i32::MAX,
            GucContext::Sighup,
            GucFlags::UNIT_MS,
        );
    });
    define(c"snowflake_id.enable_time_pushdown", || {
        GucRegistry::define_bool_guc(
            c"snowflake_id.enable_time_pushdown",
            c"Enables the planner to use indexes and partitions on ids for conditions on their time.",
            c"Plans that are kept, as those of prepared statements, stay as they were made.",
            &ENABLE_TIME_PUSHDOWN,
            GucContext::Userset,
            GucFlags::EXPLAIN,
        );
    });
    refuse_unknown_names();
    // SAFETY: a call into PostgreSQL's postmaster, which has one thread; the text is copied.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"snowflake_id".as_ptr()) };

    let config = CONFIG.get_or_init(|| Config { layout, layout_text: known_as(&layout), drawing: drawing_of(&layout) });
    announce(config);
}

/// Puts the settings together. The checks have passed, so the only thing that can be wrong is a number that is missing.
fn drawing_of(layout: &Layout) -> Result<Drawing, Field> {
    let number = |value: i32| (value != NOT_SET).then_some(i64::from(value));
    match Identity::new(layout, number(WORKER_ID.get()), number(DATACENTER_ID.get()), BACKUP_WORKER.get()) {
        Ok(identity) => Ok(Drawing { layout: *layout, identity }),
        Err(IdError::PartMissing(field)) => Err(field),
        Err(error) => unreachable!("the check hooks let pass: {error}"),
    }
}

/// Says at server start, on standbys too, what ids this server will draw: readiness for a failover must show before it.
fn announce(config: &Config) {
    let Config { layout, drawing, .. } = config;
    let name = layout.built_in_name().unwrap_or("custom");
    let number = |field: Field, value: i32| match (layout.max_of(field), value) {
        (None, _) => String::new(),
        (_, NOT_SET) => format!("{field} not set, "),
        _ => format!("{field} {value}, "),
    };
    let datacenter = number(Field::Datacenter, DATACENTER_ID.get());
    let worker = number(Field::Worker, WORKER_ID.get());
    let backup = if BACKUP_WORKER.get() { "backup worker on, " } else { "" };
    let end = Utc(layout.last_instant_ms());
    log!("snowflake_id: {datacenter}{worker}{backup}layout \"{name}\" ({layout}), time until {end}");
    if let Err(field) = drawing {
        Error::NotSet(*field).report().report(PgLogLevel::WARNING);
    }
    if layout.tick_at(WallClock.now_ms()) > layout.last_tick() as i64 {
        Error::TimeUsedUp(*layout).report().report(PgLogLevel::WARNING);
    } else if let Some(message) = last_year(layout) {
        warning!("{message}");
    }
}

/// What to say in the last year of a layout's time.
pub fn last_year(layout: &Layout) -> Option<String> {
    const YEAR_MS: i64 = 365 * DAY_MS as i64;
    let end_ms = layout.last_instant_ms();
    let is_last = end_ms.saturating_sub(WallClock.now_ms()) < YEAR_MS;
    is_last.then(|| {
        format!("the time of layout \"{}\" will be used up in less than a year, at {}", known_as(layout), Utc(end_ms))
    })
}

fn define_layout(context: GucContext) {
    // SAFETY: the hook is guarded by `checked`.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            LAYOUT_NAME,
            c"Sets the layout of new ids, and of decoding without a layout argument.",
            c"A built-in layout's name, or a line such as \"time:41 worker:10 sequence:12 unit:1ms \
              epoch:2025-01-01T00:00:00Z\".",
            &LAYOUT,
            context,
            GucFlags::default(),
            Some(check_layout),
            Some(assign_layout),
            None,
        );
    }
}

fn define_number(
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    setting: &'static GucSetting<i32>,
    check: unsafe extern "C-unwind" fn(*mut c_int, *mut *mut c_void, pg_sys::GucSource::Type) -> bool,
) {
    define(name, || {
        // SAFETY: the hook is guarded by `checked`.
        unsafe {
            GucRegistry::define_int_guc_with_hooks(
                name,
                short,
                long,
                setting,
                NOT_SET,
                i32::MAX,
                GucContext::Postmaster,
                GucFlags::default(),
                Some(check),
                None,
                None,
            );
        }
    });
}

/// What the configuration file or the command line gave for a setting that is not defined yet.
fn given(name: &CStr) -> Option<CString> {
    // SAFETY: the postmaster, or a session, reads its own settings; the text is copied at once.
    unsafe {
        let value = pg_sys::GetConfigOption(name.as_ptr(), true, false);
        (!value.is_null()).then(|| CStr::from_ptr(value).to_owned())
    }
}

/// Defines a setting; a value given for it that it refuses is FATAL, in PostgreSQL's words or the check hook's.
fn define(name: &'static CStr, define: impl FnOnce()) {
    let given = given(name);
    define();
    if let Some(value) = given {
        // SAFETY: a call into PostgreSQL's postmaster, which has one thread. changeVal = false: only checks. FATAL ends
        // this process without unwinding.
        unsafe {
            pg_sys::set_config_option(
                name.as_ptr(),
                value.as_ptr(),
                pg_sys::GucContext::PGC_POSTMASTER,
                pg_sys::GucSource::PGC_S_FILE,
                pg_sys::GucAction::GUC_ACTION_SET,
                false,
                PgLogLevel::FATAL as c_int,
                false,
            );
        }
    }
}

/// Ends the start if a value was given for a name with our prefix that is no setting: a typo in a name is as bad as one
/// in a value, and PostgreSQL only warns.
fn refuse_unknown_names() {
    // SAFETY: the postmaster, which has one thread, reads its own list of settings.
    let unknown = unsafe {
        #[cfg(feature = "pg15")]
        let (settings, count) = (pg_sys::get_guc_variables(), pg_sys::GetNumConfigOptions());
        #[cfg(not(feature = "pg15"))]
        let (settings, count) = {
            let mut count = 0;
            (pg_sys::get_guc_variables(&raw mut count), count)
        };
        (0..usize::try_from(count).unwrap_or(0))
            .map(|n| *(*settings.add(n)))
            .filter(|setting| setting.flags & pg_sys::GUC_CUSTOM_PLACEHOLDER as c_int != 0)
            .map(|setting| CStr::from_ptr(setting.name).to_string_lossy().into_owned())
            .find(|name| name.to_ascii_lowercase().starts_with("snowflake_id."))
    };
    if let Some(name) = unknown {
        ereport!(
            PgLogLevel::FATAL,
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            format!("unrecognized configuration parameter \"{name}\"")
        );
    }
}

/// Runs a check; tells PostgreSQL why a value is refused. Never unwinds into PostgreSQL: during a reload that would take
/// the postmaster down.
fn checked(setting: &'static CStr, check: impl FnOnce() -> Result<(), Error> + std::panic::UnwindSafe) -> bool {
    catch_unwind(move || match check() {
        Ok(()) => true,
        Err(error) => {
            explain(setting, &error);
            false
        }
    })
    .unwrap_or(false)
}

/// Sets what PostgreSQL reports for a refused value: our message, the setting in the DETAIL, and a HINT.
fn explain(setting: &CStr, error: &Error) {
    let running = RUNNING_LAYOUT.get().map(Layout::to_string).unwrap_or_default();
    let hint = match error {
        // Not at the start, but at a reload or in ALTER SYSTEM.
        Error::Id(_) if CONFIG.get().is_some() => Some(format!(
            "The running layout is \"{running}\". To change layout and number together, edit the configuration file and \
             restart the server."
        )),
        Error::Id(IdError::Part { field: Field::Worker, .. }) if BACKUP_WORKER.get() => Some(format!(
            "The layout is \"{running}\", and \"snowflake_id.backup_worker\" keeps the upper half of its worker numbers."
        )),
        Error::Id(IdError::Part { .. }) => Some(format!("The layout is \"{running}\".")),
        Error::Id(IdError::NoField { .. }) => {
            Some(format!("Remove the setting, or choose another layout; the layout is \"{running}\"."))
        }
        _ => error.hint(),
    };
    let detail = format!("The value is invalid for parameter \"{}\".", setting.to_string_lossy());
    let copy = |text: String| {
        CString::new(text).map_or(ptr::null_mut(), |text| {
            // SAFETY: copies into PostgreSQL's current memory context, as GUC_check_errmsg() does.
            unsafe { pg_sys::pstrdup(text.as_ptr()) }
        })
    };
    // SAFETY: these variables exist for check hooks to set; a process has one thread.
    unsafe {
        pg_sys::GUC_check_errmsg_string = copy(error.message());
        pg_sys::GUC_check_errdetail_string = copy(detail);
        pg_sys::GUC_check_errhint_string = hint.map_or(ptr::null_mut(), copy);
    }
}

unsafe extern "C-unwind" fn assign_layout(_value: *const c_char, _extra: *mut c_void) {
    // Relaxed: read by this process alone, which has one thread.
    ACCEPTED_LAYOUTS.fetch_add(1, Ordering::Relaxed);
}

unsafe extern "C-unwind" fn assign_max_borrow(value: c_int, _extra: *mut c_void) {
    // Relaxed: as above.
    let before = MAX_BORROW_MS.swap(value, Ordering::Relaxed);
    // At a reload, and once: not in each backend.
    if value < before && CONFIG.get().is_some() && backend::is_postmaster() {
        // Nothing may unwind into PostgreSQL here; a line in the log that is lost does no harm.
        let _ = catch_unwind(|| {
            log!(
                "snowflake_id: \"snowflake_id.max_borrow\" was lowered from {before} ms to {value} ms; ids may have been drawn up \
                 to {before} ms ahead of the clock: do not restart the server or fail over for {before} ms from now on, or one \
                 of its databases may repeat ids of another one"
            );
        });
    }
}

unsafe extern "C-unwind" fn check_layout(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    checked(LAYOUT_NAME, move || {
        // SAFETY: PostgreSQL hands check hooks a pointer to the new value, a text or null.
        let text = unsafe { (*value).as_ref().map(|text| CStr::from_ptr(text)) };
        Layout::parse(&text.unwrap_or_default().to_string_lossy())?;
        Ok(())
    })
}

unsafe extern "C-unwind" fn check_backup_worker(
    value: *mut bool,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    checked(c"snowflake_id.backup_worker", move || {
        // SAFETY: PostgreSQL hands check hooks a pointer to the new value.
        let backup = unsafe { *value };
        let layout = RUNNING_LAYOUT.get().expect("layout is defined first");
        Identity::worker_numbers(layout, backup)?;
        Ok(())
    })
}

unsafe extern "C-unwind" fn check_worker_id(
    value: *mut c_int,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL hands check hooks a pointer to the new value.
    let worker = unsafe { *value };
    checked(c"snowflake_id.worker_id", move || check_number(Field::Worker, worker))
}

unsafe extern "C-unwind" fn check_datacenter_id(
    value: *mut c_int,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL hands check hooks a pointer to the new value.
    let datacenter = unsafe { *value };
    checked(c"snowflake_id.datacenter_id", move || check_number(Field::Datacenter, datacenter))
}

/// Checks one number against the running layout, the other number being whatever the layout wants.
fn check_number(field: Field, value: i32) -> Result<(), Error> {
    if value == NOT_SET {
        return Ok(());
    }
    let layout = RUNNING_LAYOUT.get().expect("layout is defined first");
    let value = Some(i64::from(value));
    let (worker, datacenter, backup) = match field {
        Field::Worker => (value, Some(0), BACKUP_WORKER.get()),
        _ => (Some(0), value, false),
    };
    Identity::new(layout, worker, datacenter, backup)?;
    Ok(())
}
