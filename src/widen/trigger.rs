//! The trigger that keeps a column equal to the one beside it while a table is widened: the wide
//! one to the narrow one, and after the switch the narrow one to the wide one. There a value that
//! does not fit becomes NULL. An INSERT without a list of columns would then put its value into the
//! narrow column, which stands where the session expects the key: that is an error. Never reads
//! another row, and changes no other column.
//!
//! A trigger in C, because each row that sessions write passes it. Its condition, `NEW.wide IS
//! DISTINCT FROM NEW.narrow` or the reverse, tells it the columns. PostgreSQL keeps the condition
//! right when a column is renamed, and when a dump is restored in which columns have other numbers.

use std::ffi::CStr;

use pgrx::PgTupleDesc;
use pgrx::pg_sys::{self, Datum, NameData, Oid};
use pgrx::prelude::PgSqlErrorCode::ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION;
use pgrx::prelude::*;

use crate::error::{Report, Sent};
use crate::postgres::text::legible;

/// Raises an error about a trigger that this library has not made, or whose table has changed.
fn refuse() -> ! {
    Report::new(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION, "trigger of snowflake_widen() does not fit its table")
        .hint("Drop the trigger and the column that it fills, and widen the narrow column again.")
        .report(PgLogLevel::ERROR);
    unreachable!("an ERROR does not return")
}

/// Raises an error about a row whose values are in another order than the columns.
fn misplaced(table: &NameData, former: &NameData, value: i64) -> ! {
    // SAFETY: a name ends with a NUL.
    let [table, former] = [table, former].map(|name| legible(unsafe { CStr::from_ptr(name.data.as_ptr()) }.to_bytes()));
    let message = format!("INSERT gives value {value} to the former column \"{former}\" of table \"{table}\"");
    Report::new(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION, message)
        .detail("snowflake_widen() has put another column in its place, which is the last one of the table.")
        .hint("List the columns in INSERT and COPY.")
        .report(PgLogLevel::ERROR);
    unreachable!("an ERROR does not return")
}

/// A column's value, whichever of the three integer types it has. By value, and without the sign's
/// bits where the platform leaves others above them.
fn integer(value: Datum, kind: Oid) -> i64 {
    match kind {
        pg_sys::INT2OID => i64::from(value.value() as i16),
        pg_sys::INT4OID => i64::from(value.value() as i32),
        _ => value.value() as i64,
    }
}

/// Whether a trigger's event has all of these bits.
fn is(event: u32, bits: u32, mask: u32) -> bool {
    event & mask == bits
}

/// The column's attribute, if the table has one of that number that is not dropped.
///
/// # Safety
/// `columns` is a table's description that lives as long as the result is used.
unsafe fn attribute<'a>(columns: pg_sys::TupleDesc, number: i32) -> Option<&'a pg_sys::FormData_pg_attribute> {
    // SAFETY: the caller's. pgrx knows where a version of PostgreSQL keeps the attributes.
    let columns = unsafe { PgTupleDesc::from_pg_unchecked(columns) };
    let place = usize::try_from(number).ok()?.checked_sub(1)?;
    let found = columns.get(place)?;
    let found: *const pg_sys::FormData_pg_attribute = found;
    // SAFETY: it lies in the table's description, by the caller's word.
    let found = unsafe { &*found };
    (!found.attisdropped).then_some(found)
}

/// The numbers of the first two columns that a condition names, as PostgreSQL stores it.
fn columns_of(condition: &CStr) -> Option<[i32; 2]> {
    let mut found = condition.to_str().ok()?.split(":varattno ").skip(1);
    let mut next = || found.next()?.split(' ').next()?.parse().ok();
    Some([next()?, next()?])
}

/// Called by PostgreSQL before a row is inserted or updated.
///
/// # Safety
/// Called by PostgreSQL only, with a valid `fcinfo`.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_widen_keep(fcinfo: pg_sys::FunctionCallInfo) -> Datum {
    // SAFETY: the caller's. A context that is a TriggerData describes a trigger's call, whose
    // pointers are valid during the call.
    let (data, trigger, columns) = unsafe {
        let context = (*fcinfo).context;
        if context.is_null() || (*context).type_ != pg_sys::NodeTag::T_TriggerData {
            refuse();
        }
        let data = &*context.cast::<pg_sys::TriggerData>();
        (data, &*data.tg_trigger, (*data.tg_relation).rd_att)
    };
    let event = data.tg_event;
    let is_update = is(event, pg_sys::TRIGGER_EVENT_UPDATE, pg_sys::TRIGGER_EVENT_OPMASK);
    let is_insert = is(event, pg_sys::TRIGGER_EVENT_INSERT, pg_sys::TRIGGER_EVENT_OPMASK);
    let is_before_row = is(event, pg_sys::TRIGGER_EVENT_BEFORE, pg_sys::TRIGGER_EVENT_TIMINGMASK)
        && is(event, pg_sys::TRIGGER_EVENT_ROW, pg_sys::TRIGGER_EVENT_ROW);
    if !(is_update || is_insert) || !is_before_row || trigger.tgqual.is_null() {
        refuse();
    }
    // SAFETY: a condition is a text that ends with a NUL.
    let Some([mut target, source]) = columns_of(unsafe { CStr::from_ptr(trigger.tgqual) }) else { refuse() };
    // SAFETY: the table's description lives as long as the call.
    let at = |number| unsafe { attribute(columns, number) };
    let [Some(former), Some(present)] = [target, source].map(at) else { refuse() };
    let (to, from) = (former.atttypid, present.atttypid);
    let row = if is_update { data.tg_newtuple } else { data.tg_trigtuple };
    // SAFETY: the row has the table's columns, and both numbers are columns of it.
    unsafe {
        let mut is_null = false;
        let value = integer(pg_sys::heap_getattr(row, source, columns, &mut is_null), from);
        match (from, to) {
            (pg_sys::INT2OID | pg_sys::INT4OID, pg_sys::INT8OID) => {}
            (pg_sys::INT8OID, pg_sys::INT2OID | pg_sys::INT4OID) if is_insert => {
                let mut has_none = false;
                let given = integer(pg_sys::heap_getattr(row, target, columns, &mut has_none), to);
                // A session that lists the columns knows nothing of this one. A row that an UPDATE
                // moves to another partition, or that a dump or a subscription brings, has both.
                if !has_none && (is_null || given != value) {
                    misplaced(&(*(*data.tg_relation).rd_rel).relname, &former.attname, given);
                }
            }
            (pg_sys::INT8OID, pg_sys::INT2OID | pg_sys::INT4OID) => {}
            _ => refuse(),
        }
        is_null |= match to {
            pg_sys::INT2OID => i16::try_from(value).is_err(),
            pg_sys::INT4OID => i32::try_from(value).is_err(),
            _ => false,
        };
        let mut value = Datum::from(value);
        let row = pg_sys::heap_modify_tuple_by_cols(row, columns, 1, &raw mut target, &raw mut value, &raw mut is_null);
        Datum::from(row)
    }
}

/// Tells PostgreSQL the calling convention of the function above, as PG_FUNCTION_INFO_V1 does in C.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_snowflake_widen_keep() -> &'static pg_sys::Pg_finfo_record {
    const V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
    &V1
}
