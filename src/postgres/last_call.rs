//! What a function remembers between its calls at one place of a plan. A filter calls it for each
//! row, mostly with the same arguments.
//!
//! It is kept in `fn_extra`, which PostgreSQL leaves to the function, and pgrx uses only in
//! functions that return rows.

use std::marker::PhantomData;
use std::slice;

use pgrx::FromDatum;
use pgrx::callconv::{Arg, ArgAbi};
use pgrx::pg_sys;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};

/// A call that PostgreSQL makes, at a place of a plan.
#[derive(Clone, Copy)]
pub struct Call(pg_sys::FunctionCallInfo);

/// The last call.
#[derive(Clone, Copy)]
struct LastCall {
    argument: pg_sys::Datum,
    /// The session's time zone then: `SET` can change it between two rows of a cursor.
    zone: *const pg_sys::pg_tz,
    result: Option<i64>,
}

impl Call {
    /// Returns the call.
    ///
    /// # Safety
    /// PostgreSQL makes the call now.
    pub unsafe fn of(fcinfo: pg_sys::FunctionCallInfo) -> Self {
        Self(fcinfo)
    }

    /// Returns what a function computes from its first argument, constants and the session's time
    /// zone, or what it returned in the last call if they are the same. The argument must be passed
    /// by value.
    #[inline]
    pub fn or_last(self, compute: impl FnOnce() -> Option<i64>) -> Option<i64> {
        // SAFETY: a call's arguments, of which there is one at least, and a zone that is set when a
        // session begins.
        let (argument, zone) = unsafe { ((*self.0).args.as_slice(1)[0].value, pg_sys::session_timezone.cast_const()) };
        // SAFETY: a function that keeps its last call keeps nothing else.
        let last = unsafe { self.kept::<LastCall>() };
        if let Some(last) = last.filter(|last| last.argument == argument && last.zone == zone) {
            return last.result;
        }
        let result = compute();
        // SAFETY: as above.
        unsafe { self.keep(LastCall { argument, zone, result }) };
        result
    }

    /// Returns what [`keep`](Self::keep) has kept for calls at this place.
    ///
    /// # Safety
    /// The function that is called keeps values of one type only, this one.
    #[inline]
    pub unsafe fn kept<T: Copy>(&self) -> Option<&T> {
        // SAFETY: PostgreSQL makes the call. Its description is null where another function makes
        // it without a look-up. `keep` alone writes here.
        unsafe { (*self.0).flinfo.as_ref().and_then(|call| call.fn_extra.cast::<T>().as_ref()) }
    }

    /// Keeps what a function makes of constants, if all its arguments but the first are such. (A
    /// parameter is not: PL/pgSQL evaluates one expression with different values of its
    /// variables.)
    ///
    /// # Safety
    /// As for [`kept`](Self::kept).
    #[inline(never)]
    pub unsafe fn keep<T: Copy>(self, value: T) {
        // PostgreSQL aligns what it allocates so.
        const { assert!(align_of::<T>() <= pg_sys::MAXIMUM_ALIGNOF as usize) };
        // SAFETY: as above. The memory lives as long as the call's description.
        unsafe {
            let Some(call) = (*self.0).flinfo.as_mut() else { return };
            if call.fn_extra.is_null() {
                if !has_constants(call.fn_expr) {
                    return;
                }
                call.fn_extra = pg_sys::MemoryContextAlloc(call.fn_mcxt, size_of::<T>());
            }
            call.fn_extra.cast::<T>().write(value);
        }
    }
}

// SAFETY: it is not one of the arguments.
unsafe impl<'fcx> ArgAbi<'fcx> for Call {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::of(pg_sys::FunctionCallInfo::unbox_arg_unchecked(arg)) }
    }

    fn is_virtual_arg() -> bool {
        true
    }
}

// SAFETY: SQL does not see it.
unsafe impl SqlTranslatable for Call {
    const TYPE_IDENT: &'static str = <pg_sys::FunctionCallInfo as SqlTranslatable>::TYPE_IDENT;
    const TYPE_ORIGIN: TypeOrigin = <pg_sys::FunctionCallInfo as SqlTranslatable>::TYPE_ORIGIN;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> =
        <pg_sys::FunctionCallInfo as SqlTranslatable>::ARGUMENT_SQL;
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = <pg_sys::FunctionCallInfo as SqlTranslatable>::RETURN_SQL;
}

/// Returns whether all arguments of a call but the first are constants.
///
/// # Safety
/// `call` is null or an expression.
unsafe fn has_constants(call: *const pg_sys::Node) -> bool {
    // SAFETY: the caller's. The tag of a node says what it is, and the elements of a list of
    // arguments are nodes. A function that keeps something has arguments.
    unsafe {
        if call.is_null() || (*call).type_ != pg_sys::NodeTag::T_FuncExpr {
            return false;
        }
        let arguments = (*call.cast::<pg_sys::FuncExpr>()).args;
        let cells = slice::from_raw_parts((*arguments).elements, (*arguments).length as usize);
        let is_constant = |node: *const pg_sys::Node| (*node).type_ == pg_sys::NodeTag::T_Const;
        cells.iter().skip(1).all(|cell| is_constant(cell.ptr_value.cast()))
    }
}

/// An argument that is read only if what is kept does not answer.
pub struct Unread<T>(pg_sys::Datum, PhantomData<T>);

impl<T: FromDatum> Unread<T> {
    /// Reads the argument.
    pub fn read(self) -> T {
        // SAFETY: `unbox_arg_unchecked` had a value of this type, which is not null.
        unsafe { T::from_datum(self.0, false) }.expect("the function is strict")
    }
}

// SAFETY: nothing is read before `read`, which reads the type.
unsafe impl<'fcx, T: FromDatum> ArgAbi<'fcx> for Unread<T> {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: any value is a datum.
        let datum = unsafe { arg.unbox_arg_using_from_datum() };
        Self(datum.expect("the function is strict"), PhantomData)
    }
}

// SAFETY: maps to the type's own name in SQL.
unsafe impl<T: SqlTranslatable> SqlTranslatable for Unread<T> {
    const TYPE_IDENT: &'static str = T::TYPE_IDENT;
    const TYPE_ORIGIN: TypeOrigin = T::TYPE_ORIGIN;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = T::ARGUMENT_SQL;
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = T::RETURN_SQL;
}
