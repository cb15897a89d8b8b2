//! Waiting for a condition, which fails after five minutes, and skipping a test that cannot run
//! here.

use std::env;
use std::fs::OpenOptions;
use std::io::{Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Long, because the machine may be busy; only a test that fails waits to the end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// How long to wait between two checks: first this, and an eighth of the wait so far from then on,
/// because a check may cost a new session.
const LEAST_PAUSE: Duration = Duration::from_millis(10);
const MOST_PAUSE: Duration = Duration::from_millis(100);

/// Waits until `condition` holds, and checks it ten to a hundred times a second.
///
/// # Panics
///
/// Panics after five minutes, saying `what` it waited for.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited five minutes in vain for {what}");
        thread::sleep((start.elapsed() / 8).clamp(LEAST_PAUSE, MOST_PAUSE));
    }
}

/// Reports the test that calls it as skipped; the test then returns.
///
/// Prints a line, and appends it to the file that the environment variable `SKIPPED_TESTS` names,
/// which `make test` counts.
pub fn skip(reason: &str) {
    let line = format!("{}: {reason}\n", thread::current().name().unwrap_or("a test"));
    // Not with eprint!, which a passing test does not show.
    stderr().write_all(format!("skipped {line}").as_bytes()).expect("standard error is open");
    if let Some(file) = env::var_os("SKIPPED_TESTS") {
        let mut file = OpenOptions::new().append(true).create(true).open(file).expect("SKIPPED_TESTS names a file");
        file.write_all(line.as_bytes()).expect("the file is writable");
    }
}

/// Tells threads to end, also when an assertion fails while they run.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        // Release: pairs with the loads in the threads' loops, which then find all that was done.
        self.0.store(true, Ordering::Release);
    }
}
