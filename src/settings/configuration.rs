//! Reads what the configuration files and the command line give for a setting, and where.
//!
//! At the start PostgreSQL has read its files, and keeps each unknown setting as a text with its
//! file and line. Nothing here raises an error for what it finds. `guc.rs` judges the values.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use pgrx::pg_sys;

/// A value as it was written.
#[derive(Debug, Clone)]
pub struct Given {
    pub name: String,
    pub value: CString,
    pub place: SettingPlace,
}

/// The place where a value was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingPlace {
    File {
        path: String,
        line: i32,
    },
    /// The options of the server's program, or its environment.
    CommandLine,
}

impl std::fmt::Display for SettingPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // PostgreSQL's wording for pg_hba.conf.
            Self::File { path, line } => write!(f, "line {line} of configuration file \"{path}\""),
            Self::CommandLine => f.write_str("command line of the server"),
        }
    }
}

impl SettingPlace {
    /// Runs `work`; every message meanwhile has this place as its CONTEXT.
    pub fn as_context<T>(&self, work: impl FnOnce() -> T) -> T {
        let text = CString::new(self.to_string()).unwrap_or_default();
        // SAFETY: the stack belongs to this process, which has one thread. Our entry is on top
        // until `_on_top` is dropped, also by a panic, and lives longer than that. (FATAL ends the
        // process.)
        unsafe {
            let mut callback = pg_sys::ErrorContextCallback {
                previous: pg_sys::error_context_stack,
                callback: Some(add_context),
                arg: text.as_ptr().cast_mut().cast(),
            };
            let _on_top = OnTop { previous: callback.previous };
            pg_sys::error_context_stack = &raw mut callback;
            work()
        }
    }
}

/// Removes the top of the context stack when it is dropped.
struct OnTop {
    previous: *mut pg_sys::ErrorContextCallback,
}

impl Drop for OnTop {
    fn drop(&mut self) {
        // SAFETY: the previous top of the stack still exists.
        unsafe { pg_sys::error_context_stack = self.previous };
    }
}

unsafe extern "C-unwind" {
    // utils/elog.h: what the macro errcontext() calls. pgrx does not bind the second.
    fn set_errcontext_domain(domain: *const c_char) -> c_int;
    fn errcontext_msg(fmt: *const c_char, ...) -> c_int;
}

/// Called while PostgreSQL builds a message. Plain: it needs no guard, because nothing in it
/// panics.
unsafe extern "C-unwind" fn add_context(text: *mut c_void) {
    // SAFETY: the argument is a text; a null domain means PostgreSQL's own.
    unsafe {
        set_errcontext_domain(ptr::null());
        errcontext_msg(c"%s".as_ptr(), text.cast::<c_char>());
    }
}

/// Returns the values given for names that PostgreSQL does not know (yet). To be called at the
/// start.
pub fn unknown() -> Vec<Given> {
    // SAFETY: a placeholder's value is a text, perhaps null, and is copied at once.
    let given = |setting: &pg_sys::config_generic| unsafe {
        #[cfg(not(feature = "pg19"))]
        let value = *(*ptr::from_ref(setting).cast::<pg_sys::config_string>()).variable;
        #[cfg(feature = "pg19")]
        let value = *setting.__bindgen_anon_1._string.variable;
        // PostgreSQL notes a file that has the name even where the command line overrides it.
        let place = match setting.sourcefile {
            path if path.is_null() || setting.source != pg_sys::GucSource::PGC_S_FILE => SettingPlace::CommandLine,
            path => SettingPlace::File { path: text(path), line: setting.sourceline },
        };
        (!value.is_null()).then(|| Given { name: text(setting.name), value: CStr::from_ptr(value).to_owned(), place })
    };
    settings().filter(|setting| is_placeholder(setting)).filter_map(given).collect()
}

/// Returns the names of the defined settings that begin with `prefix`.
pub fn known(prefix: &str) -> Vec<String> {
    // SAFETY: every setting has a name.
    let names = settings().filter(|setting| !is_placeholder(setting)).map(|setting| unsafe { text(setting.name) });
    names.filter(|name| has_prefix(name, prefix)).collect()
}

fn is_placeholder(setting: &pg_sys::config_generic) -> bool {
    setting.flags & pg_sys::GUC_CUSTOM_PLACEHOLDER as c_int != 0
}

/// Returns all settings of this process. To be read at the start, before anything else is defined.
fn settings() -> impl Iterator<Item = &'static pg_sys::config_generic> {
    // SAFETY: the postmaster, which has one thread, reads its own list of settings. Defined
    // settings are never freed; a placeholder is freed only when its setting is defined.
    unsafe {
        #[cfg(feature = "pg15")]
        let (settings, count) = (pg_sys::get_guc_variables(), pg_sys::GetNumConfigOptions());
        #[cfg(not(feature = "pg15"))]
        let (settings, count) = {
            let mut count = 0;
            (pg_sys::get_guc_variables(&raw mut count), count)
        };
        (0..usize::try_from(count).unwrap_or(0)).map(move |n| &**settings.add(n))
    }
}

/// Returns whether a name begins with `prefix`, in upper or lower case.
pub fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Returns the names of the preloaded libraries, in order, without directory and suffix.
pub fn preloaded_libraries() -> Vec<String> {
    // SAFETY: PostgreSQL's own function splits a copy of the setting's text, which it changes; the
    // result is a list of texts.
    unsafe {
        let libraries = pg_sys::shared_preload_libraries_string;
        if libraries.is_null() {
            return Vec::new();
        }
        let mut list = ptr::null_mut();
        if !pg_sys::SplitDirectoriesString(pg_sys::pstrdup(libraries), b',' as c_char, &raw mut list) {
            return Vec::new();
        }
        let Some(list) = list.as_ref() else { return Vec::new() };
        let cells = std::slice::from_raw_parts(list.elements, usize::try_from(list.length).unwrap_or(0));
        let base_name = |path: String| {
            let name = Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.strip_suffix(".so").map_or(name.clone(), str::to_owned)
        };
        cells.iter().map(|cell| base_name(text(cell.ptr_value.cast()))).collect()
    }
}

/// # Safety
/// `text` must be a text, and not null.
unsafe fn text(text: *const c_char) -> String {
    // SAFETY: the caller passes a text.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
