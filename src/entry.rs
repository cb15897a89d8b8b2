//! The entry point of `snowflake_next()`, in front of pgrx's wrapper.
//!
//! pgrx guards each call of a function: it saves the memory context and prepares to turn a panic
//! into an ERROR, which takes about a tenth of the call. Almost every call needs no guard, because
//! it can draw an id at once, without raising, waiting or allocating. All other calls go to the
//! guarded function in `functions.rs`, which finds out again what is in the way.
//!
//! This file must never raise, wait or allocate. What a draw does is in `draw.rs`.

use pgrx::pg_sys;

use crate::{draw, functions};

/// Called by PostgreSQL for `snowflake_next()`.
///
/// # Safety
/// Called by PostgreSQL only, in a backend, with a valid `fcinfo`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_next_entry(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    match draw::one_at_once() {
        // fcinfo's isnull is false, because every caller of a function sets it so.
        Some(id) => pg_sys::Datum::from(id),
        // SAFETY: the arguments are passed on unchanged.
        None => unsafe { functions::snowflake_next_wrapper(fcinfo) },
    }
}

/// Tells PostgreSQL the calling convention of the function above, as PG_FUNCTION_INFO_V1 does in C.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_snowflake_next_entry() -> &'static pg_sys::Pg_finfo_record {
    const V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
    &V1
}
