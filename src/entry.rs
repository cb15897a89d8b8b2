//! The entry points of `snowflake_next()`, `snowflake_segment_next()` and
//! `snowflake_plan.time_of()`, in front of pgrx's wrappers.
//!
//! pgrx guards each call of a function: it saves the memory context and prepares to turn a panic
//! into an ERROR, which takes about a tenth of the call. Almost every call needs no guard, because
//! it can draw an id at once, without raising, waiting or allocating. All other calls go to the
//! guarded function in `functions.rs`, which finds out again what is in the way.
//!
//! This file must never raise, wait or allocate. What a draw does is in `next.rs` and `dense.rs`.

use std::ptr;

use pgrx::pg_sys;
use pgrx::{varatt_is_1b, varatt_is_1b_e, varatt_is_4b_u, vardata_any, varsize_any_exhdr};

use crate::postgres::last_call::Call;
use crate::time::undo;
use crate::{functions, ids::dense, ids::invalidation, ids::next};

/// Called by PostgreSQL for `snowflake_next()`.
///
/// # Safety
/// Called by PostgreSQL only, in a backend, with a valid `fcinfo`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_next_entry(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // fcinfo's isnull is false, because every caller of a function sets it so.
    if let Some(id) = next::one_of_known_tick() {
        return pg_sys::Datum::from(id);
    }
    if let Some(id) = next::one_of_any_tick() {
        return pg_sys::Datum::from(id);
    }
    // SAFETY: the arguments are passed on unchanged.
    unsafe { next_guarded(fcinfo) }
}

/// Calls the guarded function. Not inlined, because the calls that need no guard would then make
/// room for it on the stack.
///
/// # Safety
/// As above.
#[cold]
#[inline(never)]
unsafe fn next_guarded(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the caller's.
    unsafe { functions::snowflake_next_wrapper(fcinfo) }
}

/// Called by PostgreSQL for `snowflake_segment_next(tag)`.
///
/// Where the tag is a constant, the call remembers where its values are: in `fn_extra`, which is
/// null at first, and otherwise this function's own. It holds a number, and points nowhere, which
/// costs no allocation for a call that is made once. PostgreSQL leaves `fn_extra` to the function,
/// and pgrx uses it only in functions that return rows
/// (`a_call_that_waits_keeps_the_number_of_its_place` in `segments.rs`).
///
/// # Safety
/// Called by PostgreSQL only, in a backend, with a valid `fcinfo`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_segment_next_entry(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the caller's. It is null where another function calls this one without a look-up.
    let call = unsafe { (*fcinfo).flinfo };
    // SAFETY: a call's description belongs to this backend, and to nobody else during the call.
    let kept = if call.is_null() { 0 } else { unsafe { (*call).fn_extra.addr() as u64 } };
    if let Some(value) = dense::one_at_once(kept) {
        return pg_sys::Datum::from(value);
    }
    // SAFETY: as above.
    let function = if call.is_null() { pg_sys::InvalidOid } else { unsafe { (*call).fn_oid } };
    invalidation::function_called(function);
    // SAFETY: the function has one argument, a text. It is STRICT unless an operator changes that.
    let name = unsafe {
        let argument = (*fcinfo).args.as_slice(1)[0];
        if argument.isnull { None } else { plain_text(argument.value) }
    };
    let ticket = name.map_or(0, dense::ticket_of_argument);
    // SAFETY: as above.
    unsafe {
        if ticket != kept && !call.is_null() && has_constant((*call).fn_expr) {
            (*call).fn_extra = ptr::without_provenance_mut(ticket as usize);
        }
    }
    match dense::one_at_once(ticket) {
        Some(value) => pg_sys::Datum::from(value),
        // SAFETY: the arguments are passed on unchanged.
        None => unsafe { leave_to_guarded(fcinfo) },
    }
}

/// Calls the guarded function. In what tests load, asserts that it leaves `fn_extra` as it is.
///
/// # Safety
/// As above.
unsafe fn leave_to_guarded(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the caller's.
    let number = || unsafe { (*fcinfo).flinfo.as_ref().map(|call| call.fn_extra.addr()) };
    let before = number();
    // SAFETY: as above.
    let value = unsafe { functions::snowflake_segment_next_wrapper(fcinfo) };
    debug_assert_eq!(number(), before, "pgrx has changed what a call keeps");
    value
}

/// Returns the bytes of a text that is stored as it is; `None` for one that is compressed or stored
/// elsewhere.
///
/// # Safety
/// `text` is a text that lives as long as the result is used.
unsafe fn plain_text<'a>(text: pg_sys::Datum) -> Option<&'a [u8]> {
    let text = text.cast_mut_ptr::<pg_sys::varlena>();
    // SAFETY: the caller's. The header says how long the text is.
    unsafe {
        let is_plain = varatt_is_4b_u(text) || varatt_is_1b(text) && !varatt_is_1b_e(text);
        is_plain.then(|| std::slice::from_raw_parts(vardata_any(text).cast(), varsize_any_exhdr(text)))
    }
}

/// Whether the first argument of a call is a constant. (A parameter is not: PL/pgSQL evaluates one
/// expression with different values of its variables.)
///
/// # Safety
/// `call` is null or an expression.
unsafe fn has_constant(call: *const pg_sys::Node) -> bool {
    // SAFETY: the caller's. The tag of a node says what it is, and the elements of a list of
    // arguments are nodes.
    unsafe {
        if call.is_null() || (*call).type_ != pg_sys::NodeTag::T_FuncExpr {
            return false;
        }
        let arguments = (*call.cast::<pg_sys::FuncExpr>()).args;
        if arguments.is_null() || (*arguments).length < 1 {
            return false;
        }
        let first = (*(*arguments).elements).ptr_value.cast::<pg_sys::Node>();
        !first.is_null() && (*first).type_ == pg_sys::NodeTag::T_Const
    }
}

/// Called by PostgreSQL for `snowflake_plan.time_of(id, layout)`, as a filter does for each row.
///
/// # Safety
/// Called by PostgreSQL only, in a backend, with a valid `fcinfo`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_time_of_entry(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the caller's. The function is STRICT, its first argument is a bigint, and it keeps a
    // layout.
    unsafe {
        let call = Call::of(fcinfo);
        let Some(layout) = call.kept() else { return time_of_guarded(fcinfo) };
        let id = (*fcinfo).args.as_slice(1)[0].value.value() as i64;
        match undo::time_of(layout, id) {
            Some(time) => pg_sys::Datum::from(time.into_inner()),
            None => {
                (*fcinfo).isnull = true;
                pg_sys::Datum::from(0)
            }
        }
    }
}

/// Calls the guarded function.
///
/// # Safety
/// As above.
#[cold]
#[inline(never)]
unsafe fn time_of_guarded(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the caller's.
    unsafe { undo::snowflake_time_of_wrapper(fcinfo) }
}

// A ticket fits a pointer.
const _: () = assert!(size_of::<usize>() == size_of::<u64>());

const V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };

/// Tells PostgreSQL the calling convention of the function above, as PG_FUNCTION_INFO_V1 does in C.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_snowflake_next_entry() -> &'static pg_sys::Pg_finfo_record {
    &V1
}

/// The same for another one.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_snowflake_time_of_entry() -> &'static pg_sys::Pg_finfo_record {
    &V1
}

/// The same for another one.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_snowflake_segment_next_entry() -> &'static pg_sys::Pg_finfo_record {
    &V1
}
