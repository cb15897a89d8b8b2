//! The entry of `snowflake_next()`, ahead of pgrx's own.
//!
//! pgrx guards each call of a function: it notes the memory context and is ready to turn a panic into an ERROR, which
//! takes about a tenth of the whole call. Almost always there is nothing to guard: an id can be drawn at once, without
//! raising, waiting or allocating. Only otherwise the guarded function in `functions.rs` is called; it finds out anew why.

use pgrx::pg_sys;

use crate::{draw, functions};

/// Called by PostgreSQL for `snowflake_next()`.
///
/// # Safety
/// PostgreSQL calls it, with a valid `fcinfo`, in a backend.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_next_entry(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    match draw::one_at_once() {
        // fcinfo's isnull is false, as every caller of a function sets it.
        Some(id) => pg_sys::Datum::from(id),
        // SAFETY: the arguments are passed on as they came.
        None => unsafe { functions::snowflake_next_wrapper(fcinfo) },
    }
}

/// Tells PostgreSQL the calling convention of the function above, as PG_FUNCTION_INFO_V1 does in C.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_snowflake_next_entry() -> &'static pg_sys::Pg_finfo_record {
    const V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
    &V1
}
