//! How converting talks to the session's database through SPI. No `unsafe`.
//!
//! Names stay in the database's encoding; only messages have them in UTF-8.

use std::ffi::{CStr, CString};

use pgrx::datum::DatumWithOid;
use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReportWithLevel;
use pgrx::prelude::PgSqlErrorCode;
use pgrx::spi::{SpiClient, SpiHeapTupleData};
use pgrx::{FromDatum, IntoDatum};

use crate::postgres::backend;
use crate::postgres::text::legible;

/// A query's arguments.
pub type Arguments<'a> = &'a [DatumWithOid<'a>];

pub struct SpiDatabase<'a, 'conn>(pub &'a mut SpiClient<'conn>);

impl<'conn> SpiDatabase<'_, 'conn> {
    /// Asks for rows. It uses `update`, though it changes nothing, because `select` would see only
    /// what existed when the statement began, before it waited for a lock.
    pub fn rows(&mut self, sql: &CStr, arguments: Arguments) -> Vec<SpiHeapTupleData<'conn>> {
        self.0.update(sql, None, arguments).expect("PostgreSQL raises errors itself").collect()
    }

    /// Why PostgreSQL would not run a query, because of the types of its columns. It is only read.
    pub fn misfit(&mut self, sql: &CStr) -> Option<String> {
        let read = || {
            self.0.prepare_mut(sql, &[]).expect("PostgreSQL raises errors itself");
            None
        };
        let if_of_types = |report: &ErrorReportWithLevel| {
            use PgSqlErrorCode::{ERRCODE_AMBIGUOUS_FUNCTION, ERRCODE_DATATYPE_MISMATCH, ERRCODE_UNDEFINED_FUNCTION};
            let is_of_types = matches!(
                report.sql_error_code(),
                ERRCODE_AMBIGUOUS_FUNCTION | ERRCODE_DATATYPE_MISMATCH | ERRCODE_UNDEFINED_FUNCTION
            );
            is_of_types.then(|| Some(report.message().to_owned()))
        };
        backend::in_subtransaction(read, |_| false, if_of_types)
    }

    pub fn ask(&mut self, sql: &str, arguments: Arguments) -> Vec<SpiHeapTupleData<'conn>> {
        self.rows(&CString::new(sql).expect("these files hold no NUL"), arguments)
    }

    /// The first column of each row.
    pub fn ask_for<T: FromDatum + IntoDatum>(&mut self, sql: &str, arguments: Arguments) -> Vec<T> {
        self.ask(sql, arguments).iter().filter_map(|row| value(row, 1)).collect()
    }
}

/// A row's value, `None` for NULL.
pub fn value<T: FromDatum + IntoDatum>(row: &SpiHeapTupleData, column: usize) -> Option<T> {
    row.get(column).expect("the statement has that column, of that type")
}

/// A row's value that is never NULL.
pub fn given<T: FromDatum + IntoDatum>(row: &SpiHeapTupleData, column: usize) -> T {
    value(row, column).expect("the statement yields no NULL there")
}

/// A text for messages.
pub fn text(row: &SpiHeapTupleData, column: usize) -> Option<String> {
    value::<CString>(row, column).map(|text| legible(text.to_bytes()).into_owned())
}

/// A column of a table, by their OID and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub table: Oid,
    pub number: i16,
}

impl Column {
    /// The column as arguments: its table and its number.
    pub fn arguments(self) -> [DatumWithOid<'static>; 2] {
        [self.table.into(), self.number.into()]
    }
}

/// Columns as arguments: their tables and their numbers.
pub fn pairs(columns: &[Column]) -> [DatumWithOid<'static>; 2] {
    let tables: Vec<_> = columns.iter().map(|column| column.table).collect();
    let numbers: Vec<_> = columns.iter().map(|column| column.number).collect();
    [tables.into(), numbers.into()]
}
