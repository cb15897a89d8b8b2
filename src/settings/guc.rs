//! The settings, and how a wrong one stops the start.
//!
//! PostgreSQL only warns about a wrong value of a custom setting, and takes the default. A typo
//! would then draw ids of another layout, or another server's. So `define` offers each setting its
//! given value again, and a refusal is FATAL. An unknown name with this prefix is FATAL too. The
//! order is layout, backup_worker, the numbers, then the registry, because each check uses the
//! earlier values.
//!
//! Later, only a value that is wrong by itself is refused: which values go together, the next start
//! decides. A check hook must never panic at a reload, because that would take the postmaster down.
//! **Without preload** a session may define only what it may change, so only `layout` is defined,
//! for decoding.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::ptr;
use std::sync::OnceLock;

use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};
use snowflake_core::clock::DAY_MS;
use snowflake_core::fleet::lease;
use snowflake_core::id::identity::Identity;
use snowflake_core::id::layout::{Field, Layout};
use snowflake_core::id::parts::IdError;
use snowflake_core::id::spelling::{distance, nearest};
use snowflake_registry::{Kind, check_address};

use crate::error::{Error, Reportable, Sent};
use crate::postgres::backend;
use crate::postgres::local::Local;
use crate::postgres::text::{beginning, legible};
use crate::settings::configuration::{self, Given, has_prefix};

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

/// The value of a number that is not set. A default of 0 would duplicate ids, because every server
/// would have it.
pub const NOT_SET: c_int = -1;

const LAYOUT_NAME: &CStr = c"snowflake_id.layout";
const BACKUP_WORKER_NAME: &CStr = c"snowflake_id.backup_worker";
const WORKER_ID_NAME: &CStr = c"snowflake_id.worker_id";
const DATACENTER_ID_NAME: &CStr = c"snowflake_id.datacenter_id";
const REGISTRY_NAME: &CStr = c"snowflake_id.registry";

/// The prefix of all settings of this extension.
const PREFIX: &str = "snowflake_id.";

static LAYOUT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"snowflake"));
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

    define(LAYOUT_NAME, || define_layout(GucContext::Postmaster));
    // Valid: `define` would have ended the start with any other text.
    let text = LAYOUT.get().unwrap_or_default();
    let layout = Layout::parse(&text.to_string_lossy()).expect("the check hook accepts layouts only");
    RUNNING_LAYOUT.set(Some(layout));

    define(BACKUP_WORKER_NAME, || {
        // SAFETY: the hook is guarded by `checked`.
        unsafe {
            GucRegistry::define_bool_guc_with_hooks(
                BACKUP_WORKER_NAME,
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
        WORKER_ID_NAME,
        c"Sets the number of this server within the layout's worker field.",
        c"A primary and its standbys share one number, which no other primary of the fleet may have. -1 means not \
          set; no id can then be drawn.",
        &WORKER_ID,
        check_worker_id,
    );
    define_number(
        DATACENTER_ID_NAME,
        c"Sets the number of this server's datacenter within the layout's datacenter field.",
        c"Only for layouts with that field. -1 means not set.",
        &DATACENTER_ID,
        check_datacenter_id,
    );
    define(REGISTRY_NAME, || {
        // SAFETY: the hook is guarded by `checked`.
        unsafe {
            GucRegistry::define_string_guc_with_hooks(
                REGISTRY_NAME,
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
        if [WORKER_ID_NAME, DATACENTER_ID_NAME].contains(&name) && is_rounded(&value) {
            let [setting, text] = [name, &value].map(|text| text.to_string_lossy().into_owned());
            Error::NotWhole { setting, text }.report().report(PgLogLevel::FATAL);
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

/// Returns whether PostgreSQL would round a text to a whole number: `5.5`, but not `5.0`.
fn is_rounded(value: &CStr) -> bool {
    let mut end = ptr::null_mut();
    // SAFETY: reads a text, as PostgreSQL does for a number that is not whole. The locale of
    // numbers is always C.
    let exact = unsafe { libc::strtod(value.as_ptr(), &raw mut end) };
    exact.is_finite() && exact.fract() != 0.0
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
fn checked(name: &CStr, check: impl FnOnce() -> Result<(), SettingRefusal> + std::panic::UnwindSafe) -> bool {
    catch_unwind(move || match check() {
        Ok(()) => true,
        Err(refused) => {
            explain(name, refused);
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

/// Sets what PostgreSQL reports for a refused value: the message, the setting in the DETAIL, and a
/// HINT.
fn explain(name: &CStr, refused: SettingRefusal) {
    let copy = |text: String| {
        CString::new(text).map_or(ptr::null_mut(), |text| {
            // SAFETY: copies into PostgreSQL's current memory context, as GUC_check_errmsg() does.
            unsafe { pg_sys::pstrdup(text.as_ptr()) }
        })
    };
    // SAFETY: these variables exist for check hooks to set; a process has one thread.
    unsafe {
        pg_sys::GUC_check_errmsg_string = copy(refused.error.report().message);
        pg_sys::GUC_check_errdetail_string =
            copy(format!("The value is invalid for parameter \"{}\".", name.to_string_lossy()));
        pg_sys::GUC_check_errhint_string = refused.hint.map_or(ptr::null_mut(), copy);
    }
}

/// What a server runs with.
#[derive(Debug, Clone, Copy)]
pub struct Values {
    /// `None` without preload.
    pub layout: Option<Layout>,
    pub backup_worker: bool,
    pub worker_id: c_int,
    pub datacenter_id: c_int,
    /// Whether there is a registry, from which the worker number is leased.
    pub has_registry: bool,
}

/// Returns the values of the running server.
pub fn running() -> Values {
    Values {
        layout: RUNNING_LAYOUT.get(),
        backup_worker: BACKUP_WORKER.get(),
        worker_id: WORKER_ID.get(),
        datacenter_id: DATACENTER_ID.get(),
        has_registry: HAS_REGISTRY.get(),
    }
}

/// At the start, checks a value against those that are defined already.
fn at_start(check: impl FnOnce(&Layout) -> Result<(), Error>) -> Result<(), SettingRefusal> {
    match RUNNING_LAYOUT.get() {
        Some(layout) if !ALL_DEFINED.get() => {
            check(&layout).map_err(|error| SettingRefusal { hint: hint(&layout, &error), error })
        }
        _ => Ok(()),
    }
}

fn hint(layout: &Layout, error: &Error) -> Option<String> {
    match error {
        Error::Id(IdError::Part { field: Field::Worker, .. }) if BACKUP_WORKER.get() => Some(format!(
            "The layout is \"{layout}\", and \"snowflake_id.backup_worker\" reserves the upper half of its worker \
             numbers."
        )),
        Error::Id(IdError::Part { .. }) => Some(format!("The layout is \"{layout}\".")),
        Error::Id(IdError::NoField { .. }) => {
            Some(format!("Remove the setting, or choose another layout; the layout is \"{layout}\"."))
        }
        error => error.report().hint,
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
    checked(LAYOUT_NAME, move || {
        // SAFETY: PostgreSQL hands check hooks a pointer to the new value, a text or null.
        let text = unsafe { (*value).as_ref().map(|text| CStr::from_ptr(text)) };
        Layout::parse(&legible(beginning(text.unwrap_or_default().to_bytes())))?;
        Ok(())
    })
}

unsafe extern "C-unwind" fn check_backup_worker(
    value: *mut bool,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL hands check hooks a pointer to the new value.
    let backup = unsafe { *value };
    checked(BACKUP_WORKER_NAME, move || at_start(|layout| Ok(Identity::worker_numbers(layout, backup).map(drop)?)))
}

unsafe extern "C-unwind" fn check_registry(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    checked(REGISTRY_NAME, move || {
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
        at_start(|layout| match WORKER_ID.get() {
            _ if !has_registry => Ok(()),
            _ if layout.max_of(Field::Worker).is_none() => Err(Error::NothingToLease(*layout)),
            NOT_SET => Ok(()),
            worker => Err(Error::TypedAndLeased(worker)),
        })
    })
}

unsafe extern "C-unwind" fn check_worker_id(
    value: *mut c_int,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL hands check hooks a pointer to the new value.
    let worker = unsafe { *value };
    checked(WORKER_ID_NAME, move || {
        at_start(|layout| match worker {
            NOT_SET => Ok(()),
            // The other number is 0, which suits every layout.
            worker => Ok(Identity::new(layout, Some(worker.into()), Some(0), BACKUP_WORKER.get()).map(drop)?),
        })
    })
}

unsafe extern "C-unwind" fn check_datacenter_id(
    value: *mut c_int,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL hands check hooks a pointer to the new value.
    let datacenter = unsafe { *value };
    checked(DATACENTER_ID_NAME, move || {
        at_start(|layout| match datacenter {
            NOT_SET => Ok(()),
            datacenter => Ok(Identity::new(layout, Some(0), Some(datacenter.into()), false).map(drop)?),
        })
    })
}
