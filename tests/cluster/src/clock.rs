//! A clock that a test can set: libfaketime, preloaded into the server, reads an offset from a file
//! whenever the server reads the clock. The monotonic clock stays real, so waits go on at their
//! usual pace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use snowflake_core::clock::Utc;

/// Finds libfaketime. If it returns `None`, a test that needs libfaketime calls
/// [`skip`](crate::skip).
pub fn faketime_library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            let library = |directory: PathBuf| directory.join("faketime/libfaketime.so.1");
            let multiarch = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
            let plain = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].into_iter().map(PathBuf::from);
            multiarch.chain(plain).map(library).find(|path| path.exists())
        })
        .as_deref()
}

/// Makes a server that is about to start follow the clock file in `directory`.
pub(crate) fn follow(command: &mut Command, directory: &Path) {
    let library = faketime_library().expect("a test asks for faketime_library() before it sets the clock");
    if !file(directory).exists() {
        set(directory, "+0");
    }
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", file(directory))
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
}

/// Sets the clock, in libfaketime's notation. It renames a new file, because a server may be
/// reading the old one.
pub(crate) fn set(directory: &Path, time: &str) {
    let new = directory.join("clock.new");
    fs::write(&new, time).expect("the server's directory is writable");
    fs::rename(new, file(directory)).expect("the server's directory is writable");
}

/// Returns an instant at which the clock stands still, in libfaketime's notation. It is given in
/// milliseconds since 1970.
pub(crate) fn frozen_at(instant_ms: i64) -> String {
    // Adds half a millisecond, because libfaketime reads the fraction as floating point and rounds
    // down.
    Utc(instant_ms).to_string().replace('T', " ").replace('Z', "5")
}

fn file(directory: &Path) -> PathBuf {
    directory.join("clock")
}
