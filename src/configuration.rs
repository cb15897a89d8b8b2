//! Where the server's settings come from: what was given for a name, and where it stands, at the start and for the next one.
//!
//! At the start PostgreSQL has read its files, and keeps what it does not know yet as a text, with file and line. Later the files
//! are read anew, by PostgreSQL's own parser: only that tells which values the next start will find. Nothing here raises an error
//! for what it finds in them.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use pgrx::pg_sys;
use pgrx::prelude::*;

/// The file that ALTER SYSTEM writes, in the data directory. It is read last.
const AUTO: &CStr = c"postgresql.auto.conf";

/// A value, as somebody wrote it.
#[derive(Debug, Clone)]
pub struct Given {
    pub name: String,
    pub value: CString,
    pub place: Place,
}

/// Where a value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    File {
        path: String,
        line: i32,
    },
    /// Options of the server's program, or its environment.
    CommandLine,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // As PostgreSQL words it for pg_hba.conf.
            Self::File { path, line } => write!(f, "line {line} of configuration file \"{path}\""),
            Self::CommandLine => f.write_str("command line of the server"),
        }
    }
}

impl Place {
    /// Whether it is the file that ALTER SYSTEM writes.
    pub fn is_auto(&self) -> bool {
        matches!(self, Self::File { path, .. } if path.as_bytes().ends_with(AUTO.to_bytes()))
    }

    /// Does something during which every message has this place as its CONTEXT.
    pub fn as_context<T>(&self, work: impl FnOnce() -> T) -> T {
        let text = CString::new(self.to_string()).unwrap_or_default();
        // SAFETY: the stack is this process's, which has one thread; ours is on top of it until `_on_top` ends, also by a panic,
        // and lives longer. (FATAL ends the process.)
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

/// Takes what is on top of the stack of contexts down again.
struct OnTop {
    previous: *mut pg_sys::ErrorContextCallback,
}

impl Drop for OnTop {
    fn drop(&mut self) {
        // SAFETY: what was the top of the stack before is still there.
        unsafe { pg_sys::error_context_stack = self.previous };
    }
}

unsafe extern "C-unwind" {
    // utils/elog.h: what the macro errcontext() calls. pgrx has no binding for the second.
    fn set_errcontext_domain(domain: *const c_char) -> c_int;
    fn errcontext_msg(fmt: *const c_char, ...) -> c_int;
}

/// Called while PostgreSQL puts a message together. Plain: needs no guard, since it calls nothing that is one of ours.
unsafe extern "C-unwind" fn add_context(text: *mut c_void) {
    // SAFETY: the argument is a text; a null domain is PostgreSQL's own.
    unsafe {
        set_errcontext_domain(ptr::null());
        errcontext_msg(c"%s".as_ptr(), text.cast::<c_char>());
    }
}

/// What was given for names that PostgreSQL does not know, or not yet: at the start.
pub fn unknown() -> Vec<Given> {
    // SAFETY: what is a placeholder is a text, perhaps null; it is copied at once.
    let given = |setting: &pg_sys::config_generic| unsafe {
        let value = *(*ptr::from_ref(setting).cast::<pg_sys::config_string>()).variable;
        // A file that has the name is noted even where its value does not count, below one on the command line.
        let place = match setting.sourcefile {
            path if path.is_null() || setting.source != pg_sys::GucSource::PGC_S_FILE => Place::CommandLine,
            path => Place::File { path: text(path), line: setting.sourceline },
        };
        (!value.is_null()).then(|| Given { name: text(setting.name), value: CStr::from_ptr(value).to_owned(), place })
    };
    settings().filter(|setting| is_placeholder(setting)).filter_map(given).collect()
}

/// The names of the settings that begin with `prefix`.
pub fn known(prefix: &str) -> Vec<String> {
    // SAFETY: every setting has a name.
    let names = settings().filter(|setting| !is_placeholder(setting)).map(|setting| unsafe { text(setting.name) });
    names.filter(|name| has_prefix(name, prefix)).collect()
}

fn is_placeholder(setting: &pg_sys::config_generic) -> bool {
    setting.flags & pg_sys::GUC_CUSTOM_PLACEHOLDER as c_int != 0
}

/// All settings of this process. To be read at the start, before anything else is defined.
fn settings() -> impl Iterator<Item = &'static pg_sys::config_generic> {
    // SAFETY: the postmaster, which has one thread, reads its own list of settings. What is defined is never freed; a placeholder is,
    // when it is defined.
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

/// What the configuration files give for names that begin with `prefix`, in their order: of a name, the last one counts. `None` if
/// they cannot be read, with which no server starts.
pub fn in_files(prefix: &str) -> Option<Vec<Given>> {
    let mut found = Vec::new();
    // SAFETY: a variable of this process, which has one thread, and which is set since the start.
    let main = unsafe { pg_sys::ConfigFileName };
    for (path, must_exist) in [(main.cast_const(), true), (AUTO.as_ptr(), false)] {
        // SAFETY: as PostgreSQL itself reads its files, in a process whose directory is the data directory, but that an error is no
        // more than a message for those who debug. What it returns is a list of texts.
        unsafe {
            let (mut first, mut last) = (ptr::null_mut(), ptr::null_mut());
            let level = PgLogLevel::DEBUG2 as c_int;
            let is_read =
                pg_sys::ParseConfigFile(path, must_exist, ptr::null(), 0, 0, level, &raw mut first, &raw mut last);
            let mut next: *mut pg_sys::ConfigVariable = first;
            while let Some(line) = next.as_ref() {
                // One that could not be read has no name.
                if !line.name.is_null() && !line.value.is_null() && has_prefix(&text(line.name), prefix) {
                    found.push(Given {
                        name: text(line.name),
                        value: CStr::from_ptr(line.value).to_owned(),
                        place: Place::File { path: text(line.filename), line: line.sourceline },
                    });
                }
                next = line.next;
            }
            pg_sys::FreeConfigVariables(first);
            if !is_read {
                return None;
            }
        }
    }
    Some(found)
}

/// Whether a name begins so, in upper or lower case.
pub fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// The names of the libraries that are loaded at the start, in that order, without directory and suffix.
pub fn preloaded_libraries() -> Vec<String> {
    // SAFETY: the setting's text, split as PostgreSQL splits it, from a copy, which that changes; a list of texts comes back.
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
/// Not null, and a text.
unsafe fn text(text: *const c_char) -> String {
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
