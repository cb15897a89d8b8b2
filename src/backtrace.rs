//! Keeps Rust's backtraces out of errors that are PostgreSQL's own.
//!
//! pgrx notes a backtrace in its panic hook, and appends it to the DETAIL of every error of PostgreSQL's that passes a guard,
//! where `RUST_BACKTRACE` is set in the server's environment. Such an error is no panic to look into: a draw in a read-only
//! transaction, a wait that was cancelled, a constraint that a statement of `snowflake_convert` violates. Without the hook
//! nothing is noted, and nothing appended. (Not by changing the environment, which other libraries of the server read.)
//!
//! A broken invariant of ours is a real panic, and keeps its backtrace. The hook is this library's: each has a Rust runtime of
//! its own.

use std::panic;

use pgrx::pg_sys::panic::{CaughtError, ErrorReport, ErrorReportWithLevel};

/// Puts a hook in front of pgrx's, which was set before PostgreSQL calls `_PG_init`.
pub fn init() {
    let note = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let is_report =
            payload.is::<CaughtError>() || payload.is::<ErrorReportWithLevel>() || payload.is::<ErrorReport>();
        if !is_report {
            note(info);
        }
    }));
}
