//! Keeps Rust's backtraces out of PostgreSQL's own errors.
//!
//! Where `RUST_BACKTRACE` is set in the server's environment, pgrx records a backtrace in its panic
//! hook. It appends that to the DETAIL of every PostgreSQL error that passes a guard. Such an error
//! is not a bug: a draw in a read-only transaction, a cancelled wait, a constraint that a statement
//! of `snowflake_convert` violates. Without pgrx's hook, nothing is recorded or appended. (The
//! environment stays as it is, because other libraries of the server read it.)
//!
//! A broken invariant of this library is a real panic, and keeps its backtrace. The hook is for
//! this library alone, because each library has its own Rust runtime.

use std::panic;

use pgrx::pg_sys::panic::{CaughtError, ErrorReport, ErrorReportWithLevel};

/// Puts a hook in front of pgrx's, which is set before PostgreSQL calls `_PG_init`.
pub fn init() {
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let is_report =
            payload.is::<CaughtError>() || payload.is::<ErrorReportWithLevel>() || payload.is::<ErrorReport>();
        if !is_report {
            previous(info);
        }
    }));
}
