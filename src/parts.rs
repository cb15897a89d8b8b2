//! Returns an id's parts to SQL as one row.
//!
//! It has the columns `(created_at timestamptz, datacenter_id int, worker_id int, sequence int,
//! tick bigint)`. It is a row instead of a set of rows, so that `(snowflake_parse(id)).created_at`
//! can stand in a WHERE clause. It is built here because pgrx offers only sets for functions with
//! OUT parameters.

use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::datum::{Datum, IntoDatum};
use pgrx::pg_sys;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use snowflake_core::id::parts::Parts;

use crate::time::instant::timestamptz;

/// The parts of an id, as SQL gets them.
pub struct PartsRow(pub Parts);

// SAFETY: box_into returns a composite datum of the function's own result type.
unsafe impl BoxRet for PartsRow {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        let Parts { tick, created_at_ms, datacenter, worker, sequence } = self.0;
        // Widths are at most 31 bits, ticks at most 62: all fit.
        let number = |number: Option<u32>| number.map(|number| number as i32).into_datum();
        let columns = [
            timestamptz(created_at_ms).into_datum(),
            number(datacenter),
            number(worker),
            number(Some(sequence)),
            (tick as i64).into_datum(),
        ];
        let mut values = columns.map(|column| column.unwrap_or(pg_sys::Datum::from(0)));
        let mut nulls = columns.map(|column| column.is_none());
        // SAFETY: fcinfo is valid during the call. The descriptor has as many columns as the two
        // arrays, as the assertion checks.
        unsafe {
            let descriptor = row_descriptor(fcinfo);
            assert_eq!((*descriptor).natts as usize, values.len(), "snowflake_parse is declared with other columns");
            let tuple = pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
            fcinfo.return_raw_datum(pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data))
        }
    }
}

/// Returns the descriptor of the function's result. It is looked up at a call site's first call,
/// and kept with the call site.
///
/// # Safety
/// `fcinfo` must belong to a running call of a function that returns a row.
unsafe fn row_descriptor(fcinfo: &FcInfo<'_>) -> pg_sys::TupleDesc {
    // SAFETY: a running call has fcinfo and flinfo. fn_extra is for the function's own use, and
    // what it points to must live in fn_mcxt. The descriptor is copied there, because
    // get_call_result_type makes a new one for OUT parameters.
    unsafe {
        let fcinfo = fcinfo.as_mut_ptr();
        let flinfo = (*fcinfo).flinfo;
        if (*flinfo).fn_extra.is_null() {
            let mut descriptor: pg_sys::TupleDesc = std::ptr::null_mut();
            let class = pg_sys::get_call_result_type(fcinfo, std::ptr::null_mut(), &raw mut descriptor);
            assert_eq!(class, pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE, "snowflake_parse must return a row");
            let previous = pg_sys::MemoryContextSwitchTo((*flinfo).fn_mcxt);
            (*flinfo).fn_extra = pg_sys::BlessTupleDesc(pg_sys::CreateTupleDescCopy(descriptor)).cast();
            pg_sys::MemoryContextSwitchTo(previous);
        }
        (*flinfo).fn_extra.cast()
    }
}

// SAFETY: not used, because the functions that return a Record declare their OUT parameters in SQL
// (`sql = ...`).
unsafe impl SqlTranslatable for PartsRow {
    const TYPE_IDENT: &'static str = pgrx::pgrx_resolved_type!(Record);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Err(ArgumentError::NotValidAsArgument("Record"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::literal("record")));
}
