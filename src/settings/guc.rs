//! The settings, and how a wrong one stops the start.
//!
//! PostgreSQL only warns about a wrong value of a custom setting, and takes the default. A typo
//! would then draw ids of another layout, or another server's. So `define` offers each setting its
//! given value again, and a refusal is FATAL. An unknown name with this prefix is FATAL too. The
//! order is layout, backup_worker, the numbers, then the registry, because each check uses the
//! earlier values.
//!
//! A reload runs the same checks against the values of the next start (`values.rs`). A check hook
//! must never panic there, because that would take the postmaster down. ALTER SYSTEM is checked
//! before it runs (`utility.rs`), because hooks see neither rounding nor RESET. **Without preload**
//! a session may define only what it may change, so only `layout` is defined, for decoding.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::ptr;
use std::sync::OnceLock;

use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};
use snowflake_core::clock::DAY_MS;
use snowflake_core::id::IdError;
use snowflake_core::layout::{Field, Layout};
use snowflake_core::lease;
use snowflake_core::spelling::{distance, nearest};
use snowflake_registry::{Kind, check_address};

use crate::error::{Error, Report, Reportable, Sent};
use crate::postgres::backend;
use crate::postgres::local::Local;
use crate::postgres::text::{beginning, legible};
use crate::settings::configuration::{self, Given, SettingPlace, has_prefix};
use crate::settings::values::{DEFAULT_LAYOUT, NOT_SET, Next, Setting, Values, is_rounded, number as as_number};

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

/// An hour. A longer borrow would put ids further into the future than any reader would look for
/// them.
const LONGEST_BORROW_MS: i32 = 3_600_000;

/// The most databases. Their marks take 4 MB of shared memory.
const MOST_DATABASES: i32 = 65_536;

const LAYOUT_NAME: &CStr = Setting::Layout.name();

/// The prefix of all settings of this extension.
const PREFIX: &str = "snowflake_id.";

static LAYOUT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(DEFAULT_LAYOUT));
static WORKER_ID: GucSetting<i32> = GucSetting::<i32>::new(NOT_SET);
static DATACENTER_ID: GucSetting<i32> = GucSetting::<i32>::new(NOT_SET);
static BACKUP_WORKER: GucSetting<bool> = GucSetting::<bool>::new(false);
static ON_ROLLBACK: GucSetting<OnRollback> = GucSetting::<OnRollback>::new(OnRollback::Error);
static MAX_BORROW: GucSetting<i32> = GucSetting::<i32>::new(100);
static MAX_CLOCK_JUMP: GucSetting<i32> = GucSetting::<i32>::new(DAY_MS as i32);
static MAX_DATABASES: GucSetting<i32> = GucSetting::<i32>::new(128);
static REGISTRY: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static FLEET: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"default"));
static ENABLE_TIME_PUSHDOWN: GucSetting<bool> = GucSetting::<bool>::new(true);

/// The value of `MAX_BORROW` for the hot path, because `MAX_BORROW.get()` also checks that the
/// thread is PostgreSQL's.
static MAX_BORROW_MS: Local<i32> = Local::new(100);

/// The layout that this server runs with. Set when `layout` is defined at server start, and used by
/// later checks.
static RUNNING_LAYOUT: Local<Option<Layout>> = Local::new(None);

/// Whether all settings are defined. True from the end of `init` at server start.
static ALL_DEFINED: Local<bool> = Local::new(false);

/// Whether the server was started with a registry.
static HAS_REGISTRY: Local<bool> = Local::new(false);

/// The settings that are given on the server's command line.
static OF_COMMAND_LINE: OnceLock<Vec<Setting>> = OnceLock::new();

/// Returns the farthest that the clock may jump, in milliseconds; 0 for any distance.
pub fn max_clock_jump_ms() -> i64 {
    MAX_CLOCK_JUMP.get().into()
}

/// Returns how far ids may run ahead of the clock, in milliseconds.
#[inline]
pub fn max_borrow_ms() -> i64 {
    MAX_BORROW_MS.get().into()
}

/// Returns how many databases can draw ids. Fixed at server start.
pub fn max_databases() -> usize {
    usize::try_from(MAX_DATABASES.get()).unwrap_or(0)
}

/// Returns how to reach the registry; empty if the numbers are configured.
pub fn registry() -> String {
    REGISTRY.get().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns what the registry is in.
pub fn registry_kind() -> Kind {
    Kind::of(&registry())
}

/// Returns the fleet's name in the registry.
pub fn fleet() -> String {
    FLEET.get().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the settings that bear on this server's leases.
pub fn lease_terms() -> lease::LeaseTerms {
    lease::LeaseTerms { max_borrow_ms: max_borrow_ms() }
}

/// Whether conditions on an id's time are planned as conditions on the id.
pub fn enable_time_pushdown() -> bool {
    ENABLE_TIME_PUSHDOWN.get()
}

/// Returns what to do after a rollback.
pub fn on_rollback() -> OnRollback {
    ON_ROLLBACK.get()
}

/// How often PostgreSQL has accepted a value for `layout` in this process. The default counts once,
/// when the setting is defined.
static ACCEPTED_LAYOUTS: Local<u32> = Local::new(0);

/// Without preload, the value that `layout` had before it was defined.
static GIVEN_LAYOUT: OnceLock<String> = OnceLock::new();

/// Returns the layout's text, without preload.
///
/// # Errors
/// [`Error::LayoutRefused`] if there was a value, but PostgreSQL accepted none. It has then warned
/// and taken the default, and decoding by that would be silently wrong. Either the
/// configuration file's value is not a layout, or a role, database or client has set one on top of
/// it. They may not, and the file's value is then lost. A reload may fix it.
pub fn layout_text_without_preload() -> Result<String, Error> {
    match GIVEN_LAYOUT.get() {
        Some(given) if ACCEPTED_LAYOUTS.get() <= 1 => {
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
            GIVEN_LAYOUT.get_or_init(|| legible(text.to_bytes()).into_owned());
        }
        return;
    }

    let of_command_line =
        |given: Given| Setting::named(&given.name).filter(|_| given.place == SettingPlace::CommandLine);
    OF_COMMAND_LINE.get_or_init(|| configuration::unknown().into_iter().filter_map(of_command_line).collect());

    define(LAYOUT_NAME, || define_layout(GucContext::Postmaster));
    // Valid: `define` would have ended the start with any other text.
    let text = LAYOUT.get().unwrap_or_default();
    let layout = Layout::parse(&text.to_string_lossy()).expect("the check hook accepts layouts only");
    RUNNING_LAYOUT.set(Some(layout));

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
        c"A primary and its standbys share one number, which no other primary of the fleet may have. -1 means not \
          set; no id can then be drawn.",
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
    define(Setting::Registry.name(), || {
        // SAFETY: the hook is guarded by `checked`.
        unsafe {
            GucRegistry::define_string_guc_with_hooks(
                Setting::Registry.name(),
                c"Sets the registry from which this server leases its worker number.",
                c"A connection string or URI of libpq, such as \"service=fleet\", or etcd:URL,URL; the same on every server of the fleet. \
                  Empty means that the number is configured (\"snowflake_id.worker_id\"). Put a password into a password \
                  file or a service file.",
                &REGISTRY,
                GucContext::Sighup,
                GucFlags::SUPERUSER_ONLY,
                Some(check_registry),
                None,
                None,
            );
        }
    });
    HAS_REGISTRY.set(!registry().is_empty());
    define(c"snowflake_id.fleet", || {
        GucRegistry::define_string_guc(
            c"snowflake_id.fleet",
            c"Sets the name of the fleet in the registry.",
            c"One registry can serve several fleets, whose ids may be equal.",
            &FLEET,
            GucContext::Postmaster,
            GucFlags::default(),
        );
    });
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
        // SAFETY: the hook stores a number, and logs where it catches all that unwinds.
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
            c"The clock is compared with the time since boot. If it has gained more than this since a mark was last \
              logged, no id is drawn, so that a clock that is wrong for a moment cannot push ids into the future \
              for good. 0 permits any jump.",
            &MAX_CLOCK_JUMP,
            0,
            i32::MAX,
            GucContext::Sighup,
            GucFlags::UNIT_MS,
        );
    });
    define(c"snowflake_id.max_databases", || {
        GucRegistry::define_int_guc(
            c"snowflake_id.max_databases",
            c"Sets how many databases of the server can draw ids.",
            c"Each takes 80 bytes of shared memory. A database that is dropped, or whose extension is dropped, does \
              not count.",
            &MAX_DATABASES,
            1,
            MOST_DATABASES,
            GucContext::Postmaster,
            GucFlags::default(),
        );
    });
    define(c"snowflake_id.enable_time_pushdown", || {
        GucRegistry::define_bool_guc(
            c"snowflake_id.enable_time_pushdown",
            c"Lets the planner use indexes and partitions on ids for conditions on their time.",
            c"Plans that exist already, such as those of prepared statements, do not change.",
            &ENABLE_TIME_PUSHDOWN,
            GucContext::Userset,
            GucFlags::EXPLAIN,
        );
    });
    check_unknown_names();
    // SAFETY: runs in the postmaster, which has one thread. PostgreSQL copies the text.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"snowflake_id".as_ptr()) };
    ALL_DEFINED.set(true);
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

/// Returns what the configuration file or the command line gave for a setting that is not defined
/// yet, or the beginning of that: any role may have set the name to a long text.
fn given(name: &CStr) -> Option<CString> {
    // SAFETY: a session reads its own settings; the text is copied at once.
    unsafe {
        let value = pg_sys::GetConfigOption(name.as_ptr(), true, false);
        (!value.is_null()).then(|| CString::new(beginning(CStr::from_ptr(value).to_bytes())).unwrap_or_default())
    }
}

/// Defines a setting. A given value that it refuses is FATAL, in PostgreSQL's words or the check
/// hook's.
fn define(name: &'static CStr, define: impl FnOnce()) {
    let unknown = configuration::unknown();
    let given = unknown.into_iter().find(|given| given.name.as_bytes().eq_ignore_ascii_case(name.to_bytes()));
    silently(define);
    let Some(Given { value, place, .. }) = given else { return };
    place.as_context(|| {
        if Setting::named(&name.to_string_lossy()).is_some_and(Setting::is_number) && is_rounded(&value) {
            not_whole(name, &value).report().report(PgLogLevel::FATAL);
        }
        // SAFETY: runs in the postmaster, which has one thread. changeVal = false only checks.
        // FATAL ends this process without unwinding.
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
    });
}

/// Defines a setting without PostgreSQL's WARNING for a value that it refuses, because that is
/// reported as FATAL afterwards.
fn silently(define: impl FnOnce()) {
    // SAFETY: a setting of the postmaster, which has one thread. The definition raises FATAL or
    // nothing.
    unsafe {
        #[cfg(not(feature = "pg19"))]
        let level = &raw mut pg_sys::log_min_messages;
        // From 19 on, each kind of process has a level.
        #[cfg(feature = "pg19")]
        let level = (&raw mut pg_sys::log_min_messages).cast::<c_int>().add(pg_sys::MyBackendType as usize);
        let before = level.replace(PgLogLevel::ERROR as c_int);
        define();
        level.write(before);
    }
}

fn not_whole(name: &CStr, value: &CStr) -> Error {
    let [setting, text] = [name, value].map(|text| text.to_string_lossy().into_owned());
    Error::NotWhole { setting, text }
}

/// Ends the start if a value was given for an unknown name with this prefix, because a typo in a
/// name is as bad as one in a value. PostgreSQL only warns. Warns of a known name with a similar
/// prefix, because nothing else would. Other prefixes belong to other libraries.
fn check_unknown_names() {
    let known = configuration::known(PREFIX);
    for Given { name, place, .. } in configuration::unknown() {
        let Some((prefix, last)) = name.split_once('.') else { continue };
        if has_prefix(&name, PREFIX) {
            let own_parts = known.iter().map(|name| &name[PREFIX.len()..]);
            let meant = nearest(last, own_parts).map(|last| format!("{PREFIX}{last}"));
            let error = Error::UnknownSetting { name, meant, known: known.clone() };
            place.as_context(|| error.report().report(PgLogLevel::FATAL));
            return;
        }
        let is_like_ours = prefix.to_ascii_lowercase().contains("snowflake") || distance(prefix, "snowflake_id") <= 2;
        let meant = format!("{PREFIX}{}", last.to_ascii_lowercase());
        if is_like_ours && known.contains(&meant) {
            place.as_context(|| Error::OtherPrefix { name, meant }.report().report(PgLogLevel::WARNING));
        }
    }
}

/// Why a value is refused, and what to do.
struct SettingRefusal {
    error: Error,
    hint: Option<String>,
}

impl<E: Into<Error>> From<E> for SettingRefusal {
    fn from(error: E) -> Self {
        let error = error.into();
        Self { hint: error.report().hint, error }
    }
}

/// Runs a check, and tells PostgreSQL why a value is refused. Never unwinds into PostgreSQL,
/// because during a reload that would take the postmaster down.
fn checked(setting: Setting, check: impl FnOnce() -> Result<(), SettingRefusal> + std::panic::UnwindSafe) -> bool {
    catch_unwind(move || match check() {
        Ok(()) => true,
        Err(refused) => {
            explain(setting, refused);
            false
        }
    })
    .unwrap_or_else(|caught| {
        if caught.is::<CaughtError>() {
            // PostgreSQL's own error, which is not raised again, would stay on its stack of errors.
            // The stack has five places, and one error more ends the process.
            // SAFETY: a settings file is read outside of any handling of errors.
            unsafe { pg_sys::FlushErrorState() };
        }
        false
    })
}

/// Returns the DETAIL of a refused value.
fn detail(setting: Setting) -> String {
    format!("The value is invalid for parameter \"{}\".", setting.name().to_string_lossy())
}

/// Sets what PostgreSQL reports for a refused value: the message, the setting in the DETAIL, and a
/// HINT.
fn explain(setting: Setting, refused: SettingRefusal) {
    let copy = |text: String| {
        CString::new(text).map_or(ptr::null_mut(), |text| {
            // SAFETY: copies into PostgreSQL's current memory context, as GUC_check_errmsg() does.
            unsafe { pg_sys::pstrdup(text.as_ptr()) }
        })
    };
    // SAFETY: these variables exist for check hooks to set; a process has one thread.
    unsafe {
        pg_sys::GUC_check_errmsg_string = copy(refused.error.report().message);
        pg_sys::GUC_check_errdetail_string = copy(detail(setting));
        pg_sys::GUC_check_errhint_string = refused.hint.map_or(ptr::null_mut(), copy);
    }
}

/// Returns the values of the running server, or, at the start, of what is defined already.
pub fn running() -> Values {
    Values {
        layout: RUNNING_LAYOUT.get(),
        backup_worker: BACKUP_WORKER.get(),
        worker_id: WORKER_ID.get(),
        datacenter_id: DATACENTER_ID.get(),
        has_registry: HAS_REGISTRY.get(),
    }
}

fn next_start() -> Option<Next> {
    Next::read(running(), OF_COMMAND_LINE.get().map(Vec::as_slice).unwrap_or_default())
}

/// Checks a new value of a setting against the others: at the start, against those that are defined
/// already; later, against those of the next start. Every process calls it at each reload, so
/// nothing is read for a value that does not change.
fn check_change(setting: Setting, change: impl Fn(&mut Values)) -> Result<(), SettingRefusal> {
    let running = running();
    let mut values = running;
    change(&mut values);
    if !ALL_DEFINED.get() {
        return values.check(setting).map_err(|error| SettingRefusal { hint: hint_at_start(&values, &error), error });
    }
    if !values.differs(&running, setting) {
        return Ok(());
    }
    let next = next_start();
    if let Some(Given { value, .. }) =
        next.as_ref().and_then(|next| next.given(setting)).filter(|_| setting.is_number())
        && is_rounded(value)
        // ALTER SYSTEM has a value of its own, which was checked before and may fix the file's.
        && !backend::is_in_transaction()
    {
        let mut rounded = running;
        let number = as_number(value).unwrap_or(NOT_SET);
        if setting == Setting::WorkerId {
            rounded.worker_id = number
        } else {
            rounded.datacenter_id = number
        }
        if !rounded.differs(&values, setting) {
            return Err(not_whole(setting.name(), value).into());
        }
    }
    let mut values = next.as_ref().map_or(running, Next::values);
    change(&mut values);
    // Another setting that changes too is checked separately.
    let is_new = |other: &Setting| *other != setting && values.differs(&running, *other);
    check_all(setting.concerns().iter().filter(|other| !is_new(other)), setting, &values, next.as_ref())
}

/// Checks the values of settings that have to fit a new value of `changed`.
fn check_all<'a>(
    mut settings: impl Iterator<Item = &'a Setting>,
    changed: Setting,
    values: &Values,
    next: Option<&Next>,
) -> Result<(), SettingRefusal> {
    settings.try_for_each(|other| {
        values.check(*other).map_err(|error| {
            let hint = if *other == changed {
                hint_by_layout(values, &error, next)
            } else {
                hint_by_other(*other, values, next)
            };
            SettingRefusal { error, hint: Some(hint) }
        })
    })
}

/// Describes the layout that a value does not fit.
fn layout_of(values: &Values, error: &Error) -> String {
    let is_halved = values.backup_worker && matches!(error, Error::Id(IdError::Part { field: Field::Worker, .. }));
    let half = if is_halved {
        ", and \"snowflake_id.backup_worker\" reserves the upper half of its worker numbers"
    } else {
        ""
    };
    format!("is \"{}\"{half}", values.shown(Setting::Layout))
}

fn hint_at_start(values: &Values, error: &Error) -> Option<String> {
    let layout = layout_of(values, error);
    match error {
        Error::Id(IdError::Part { .. }) => Some(format!("The layout {layout}.")),
        Error::Id(IdError::NoField { .. }) => {
            Some(format!("Remove the setting, or choose another layout; the layout {layout}."))
        }
        error => error.report().hint,
    }
}

fn hint_by_layout(values: &Values, error: &Error, next: Option<&Next>) -> String {
    if let Error::TypedAndLeased(_) = error {
        return hint_by_other(Setting::WorkerId, values, next);
    }
    let (layout, place) = (layout_of(values, error), place_of(Setting::Layout, next));
    format!(
        "At the next start the layout {layout}{place}. To use a number that another layout has room for, change the \
         layout first, or edit the configuration file; then restart the server."
    )
}

fn hint_by_other(other: Setting, values: &Values, next: Option<&Next>) -> String {
    let (name, value, place) = (other.name().to_string_lossy(), values.shown(other), place_of(other, next));
    format!(
        "At the next start \"{name}\" is {value}{place}. Change that first, or edit the configuration file; then restart \
         the server."
    )
}

fn place_of(setting: Setting, next: Option<&Next>) -> String {
    next.and_then(|next| next.place(setting)).map(|place| format!(" ({place})")).unwrap_or_default()
}

/// Raises an error for an ALTER SYSTEM after which the next start would fail, or would take another
/// number than the one written. PostgreSQL itself refuses what the caller may not do, and a value
/// that is wrong by itself.
///
/// # Safety
/// `statement` is about to run.
#[pg_guard]
pub unsafe extern "C-unwind" fn check_alter_system(statement: *mut pg_sys::AlterSystemStmt) {
    use pg_sys::VariableSetKind::{VAR_RESET_ALL, VAR_SET_VALUE};
    // SAFETY: the caller's; the statement has a name unless it concerns all settings. Errors are
    // raised through pgrx's guard.
    let (setting, value) = unsafe {
        let set = (*statement).setstmt;
        let concerns_all = (*set).kind == VAR_RESET_ALL;
        let setting = (!concerns_all).then(|| Setting::named(&CStr::from_ptr((*set).name).to_string_lossy())).flatten();
        if setting.is_none() && !concerns_all || !may_alter_system((*set).name) {
            return;
        }
        let value = if (*set).kind == VAR_SET_VALUE { pg_sys::ExtractSetVariableArgs(set) } else { ptr::null_mut() };
        (setting, value.as_ref().map(|value| CStr::from_ptr(value)))
    };
    let result = match (setting, value) {
        (Some(setting), Some(value)) => check_written(setting, value).map_err(|refused| (refused, detail(setting))),
        _ => check_removed(setting).map_err(|refused| {
            let what =
                setting.map_or("the settings".into(), |setting| format!("\"{}\"", setting.name().to_string_lossy()));
            (refused, format!("The server would not start without {what} in postgresql.auto.conf."))
        }),
    };
    if let Err((SettingRefusal { error, hint }, detail)) = result {
        Report { detail: Some(detail), hint, ..error.report() }.report(PgLogLevel::ERROR);
    }
}

/// Checks a value that ALTER SYSTEM is about to write.
fn check_written(setting: Setting, value: &CStr) -> Result<(), SettingRefusal> {
    if setting.is_number() && is_rounded(value) {
        return Err(not_whole(setting.name(), value).into());
    }
    let Some(next) = next_start() else { return Ok(()) };
    let next = next.with(setting, value);
    check_all(setting.concerns().iter(), setting, &next.values(), Some(&next))
}

/// Checks what is left when ALTER SYSTEM has removed a value, or all. A setting that is wrong
/// before the removal does not prevent it.
fn check_removed(setting: Option<Setting>) -> Result<(), SettingRefusal> {
    let Some(next) = next_start() else { return Ok(()) };
    let before = next.values();
    let next = next.without(setting);
    let values = next.values();
    let concerned = setting.map_or(&Setting::ALL[..], Setting::concerns);
    concerned.iter().filter(|other| before.check(**other).is_ok()).try_for_each(|other| {
        values
            .check(*other)
            .map_err(|error| SettingRefusal { error, hint: Some(hint_by_other(*other, &values, Some(&next))) })
    })
}

/// Whether PostgreSQL lets the caller change a setting in the configuration file; all settings if
/// `name` is null.
///
/// # Safety
/// `name` is a text or null.
unsafe fn may_alter_system(name: *const c_char) -> bool {
    // SAFETY: the caller's; the calls look up rows of catalogs in a transaction. Errors are raised
    // through pgrx's guard.
    unsafe {
        let mode = pg_sys::ACL_ALTER_SYSTEM as pg_sys::AclMode;
        let is_permitted = pg_sys::AclResult::ACLCHECK_OK;
        pg_sys::superuser()
            || !name.is_null() && pg_sys::pg_parameter_aclcheck(name, pg_sys::GetUserId(), mode) == is_permitted
    }
}

unsafe extern "C-unwind" fn assign_layout(_value: *const c_char, _extra: *mut c_void) {
    ACCEPTED_LAYOUTS.set(ACCEPTED_LAYOUTS.get().saturating_add(1));
}

unsafe extern "C-unwind" fn assign_max_borrow(value: c_int, _extra: *mut c_void) {
    let before = MAX_BORROW_MS.replace(value);
    // Logged once at a reload, not in each backend.
    if value < before && ALL_DEFINED.get() && backend::is_postmaster() {
        // Nothing may unwind into PostgreSQL here. A line that is lost from the log does no harm.
        let _ = catch_unwind(|| {
            log!(
                "snowflake_id: \"snowflake_id.max_borrow\" was lowered from {before} ms to {value} ms; running \
                 statements keep the old value: until they have ended and {before} ms more have passed, do not \
                 restart the server or fail over, or its databases could repeat each other's ids"
            );
        });
    }
}

unsafe extern "C-unwind" fn check_layout(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    checked(Setting::Layout, move || {
        // SAFETY: PostgreSQL hands check hooks a pointer to the new value, a text or null.
        let text = unsafe { (*value).as_ref().map(|text| CStr::from_ptr(text)) };
        let layout = Layout::parse(&legible(beginning(text.unwrap_or_default().to_bytes())))?;
        check_change(Setting::Layout, |values| values.layout = Some(layout))
    })
}

unsafe extern "C-unwind" fn check_backup_worker(
    value: *mut bool,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL hands check hooks a pointer to the new value.
    let backup = unsafe { *value };
    checked(Setting::BackupWorker, move || check_change(Setting::BackupWorker, |values| values.backup_worker = backup))
}

unsafe extern "C-unwind" fn check_registry(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    checked(Setting::Registry, move || {
        // SAFETY: PostgreSQL hands check hooks a pointer to the new value, a text or null.
        let text = unsafe { (*value).as_ref().map(|text| CStr::from_ptr(text)) }.unwrap_or_default();
        if !text.is_empty() {
            let text = text.to_str().map_err(|_| Error::Registry("it is not valid UTF-8".to_owned()))?;
            check_address(text).map_err(Error::Registry)?;
        }
        let has_registry = !text.is_empty();
        // ALTER SYSTEM is for the next start.
        if ALL_DEFINED.get() && has_registry != HAS_REGISTRY.get() && !backend::is_in_transaction() {
            return Err(Error::RegistryAtStart.into());
        }
        check_change(Setting::Registry, |values| values.has_registry = has_registry)
    })
}

unsafe extern "C-unwind" fn check_worker_id(
    value: *mut c_int,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL hands check hooks a pointer to the new value.
    let worker = unsafe { *value };
    checked(Setting::WorkerId, move || check_change(Setting::WorkerId, |values| values.worker_id = worker))
}

unsafe extern "C-unwind" fn check_datacenter_id(
    value: *mut c_int,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL hands check hooks a pointer to the new value.
    let datacenter = unsafe { *value };
    checked(Setting::DatacenterId, move || {
        check_change(Setting::DatacenterId, |values| values.datacenter_id = datacenter)
    })
}
