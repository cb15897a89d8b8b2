//! Finds and reads the table of public keys, `snowflake_public_keys`.
//!
//! It is read as PostgreSQL reads its catalogs: directly, with a snapshot of now. So the caller
//! needs no right to the table, no policy applies, no name is looked up through search_path, and a
//! key is seen that was committed after the statement's snapshot. SPI has none of this.
//!
//! The first key makes the table (`snowflake_new_public_key()` in the install script), which is not
//! a member of the extension: pg_dump carries it like any other table.

use std::ffi::CStr;
use std::ptr;

use pgrx::pg_sys;
use snowflake_core::id::known_keys::PublicKey;
use zeroize::Zeroizing;

use crate::postgres::catalog;

const TABLE: &CStr = c"snowflake_public_keys";

/// The columns that are read, by name and type. Others may lie around them.
const FIRST_ID: (&CStr, pg_sys::Oid) = (c"first_id", pg_sys::INT8OID);
const KEY: (&CStr, pg_sys::Oid) = (c"key", pg_sys::BYTEAOID);

/// The table is not what `snowflake_new_public_key()` has made: its columns are others, or another
/// role may have made it.
#[derive(Debug, Clone, Copy)]
pub struct Strange;

/// Finds the table in the schema of the extension; `None` before the first key.
pub fn find() -> Option<pg_sys::Oid> {
    let (schema, _) = catalog::home(catalog::extension()?)?;
    // SAFETY: looks up a row of a catalog. Errors are raised through pgrx's guard.
    let table = unsafe { pg_sys::get_relname_relid(TABLE.as_ptr(), schema) };
    (table != pg_sys::InvalidOid).then_some(table)
}

/// Reads the keys, in no order. There are none before the table is made.
///
/// # Errors
/// [`Strange`].
pub fn read() -> Result<Vec<PublicKey>, Strange> {
    let mut keys = Vec::new();
    let Some(table) = find() else { return Ok(keys) };
    let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    // SAFETY: reads a table as PostgreSQL's own dependency.c reads a catalog, and uses each row
    // before asking for the next. A row's values have the types that were checked, and as many
    // places. Errors are raised through pgrx's guard, and PostgreSQL then closes everything.
    unsafe {
        let relation = pg_sys::try_relation_open(table, lock);
        if relation.is_null() {
            return Ok(keys);
        }
        let (class, columns) = ((*relation).rd_rel, (*relation).rd_att);
        let is_table = (*class).relkind as u8 == pg_sys::RELKIND_RELATION;
        let places = [FIRST_ID, KEY].map(|column| place(table, column));
        let ([Some(first_id), Some(key)], true, true) = (places, is_table, is_trusted((*class).relowner)) else {
            pg_sys::relation_close(relation, lock);
            return Err(Strange);
        };
        let mut values = vec![pg_sys::Datum::from(0); (*columns).natts as usize];
        let mut nulls = vec![true; values.len()];
        // Without an index, and with the snapshot of catalogs.
        let scan = pg_sys::systable_beginscan(relation, pg_sys::InvalidOid, false, ptr::null_mut(), 0, ptr::null_mut());
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            pg_sys::heap_deform_tuple(tuple, columns, values.as_mut_ptr(), nulls.as_mut_ptr());
            if !nulls[first_id] && !nulls[key] {
                let bytes = pg_sys::pg_detoast_datum_packed(values[key].cast_mut_ptr());
                let bytes = Zeroizing::new(pgrx::varlena_to_byte_slice(bytes).to_vec());
                keys.push((values[first_id].value() as i64, bytes));
            }
        }
        pg_sys::systable_endscan(scan);
        pg_sys::relation_close(relation, lock);
    }
    Ok(keys)
}

/// Returns the table, if it is what it should be. `None` before the first key.
///
/// # Errors
/// As [`read`].
pub fn table() -> Result<Option<pg_sys::Oid>, Strange> {
    read().map(|_| find())
}

/// Whether a role may give this database keys: the extension's owner, or a superuser. Another role
/// may make a table of that name, if it may create tables in the schema, and would know the keys.
fn is_trusted(owner: pg_sys::Oid) -> bool {
    let of_extension = catalog::extension().and_then(catalog::home).map(|(_, owner)| owner);
    // SAFETY: looks up a row of a catalog by oid. Errors are raised through pgrx's guard.
    of_extension == Some(owner) || unsafe { pg_sys::superuser_arg(owner) }
}

/// Finds a column by its name: its place in a row, if it has the type.
fn place(table: pg_sys::Oid, (name, of): (&CStr, pg_sys::Oid)) -> Option<usize> {
    // SAFETY: looks up rows of a catalog. Errors are raised through pgrx's guard.
    let (number, is_of) = unsafe {
        let number = pg_sys::get_attnum(table, name.as_ptr());
        (number, number > 0 && pg_sys::get_atttype(table, number) == of)
    };
    is_of.then(|| number as usize - 1)
}
