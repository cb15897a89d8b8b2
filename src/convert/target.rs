//! The columns that a call names, and whether the caller may change them. No `unsafe`.

use std::ffi::{CStr, CString};

use pgrx::pg_sys::Oid;

use super::database::{Column, SpiDatabase, given, text, value};
use super::unconvertible::Unconvertible;
use crate::postgres::backend;
use crate::postgres::text::{LONGEST, beginning, legible};

/// The most columns that one call converts. A person names them, and each takes memory.
const MOST_COLUMNS: usize = 10_000;

/// `$1` a table's name: its OID, by the caller's search_path. So all other names in it are
/// qualified.
const REGCLASS: &str = "SELECT pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid";

/// A column as the caller names it. The table is given by its OID, which stays the same while the
/// call waits for locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedColumn {
    pub relation: Oid,
    pub attribute: CString,
}

impl NamedColumn {
    /// Finds the columns that texts name as `schema.table.column` or, by the search_path,
    /// `table.column`. Returns each once.
    pub fn find<'a>(
        database: &mut SpiDatabase,
        texts: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Result<Vec<Self>, Unconvertible> {
        let mut columns = Vec::new();
        for (number, text) in texts.enumerate() {
            if number == MOST_COLUMNS {
                return Err(Unconvertible::TooMany(MOST_COLUMNS));
            }
            let text = text.ok_or(Unconvertible::Null)?;
            let not_a_name = || Unconvertible::Name(legible(beginning(text)).into_owned());
            if text.len() > LONGEST {
                return Err(not_a_name());
            }
            let name = CString::new(text).expect("a text holds no NUL");
            let parts =
                backend::with_trusted_settings(|| database.ask(include_str!("name.sql"), &[name.as_c_str().into()]));
            let [table, attribute]: [CString; 2] = match given::<i32>(&parts[0], 1) {
                2 | 3 => [2, 3].map(|number| given(&parts[0], number)),
                _ => return Err(not_a_name()),
            };
            let relation = database.ask_for(REGCLASS, &[table.as_c_str().into()]).pop();
            let relation = relation.ok_or_else(|| Unconvertible::Unknown(legible(table.to_bytes()).into_owned()))?;
            let column = Self { relation, attribute };
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        Ok(columns)
    }
}

/// What a column's values come from afterwards.
#[derive(Debug, Clone, Copy)]
pub enum Aim<'a> {
    /// From `snowflake_next()`. With `rewrite`, columns that are too narrow for ids are widened.
    Ids { rewrite: bool },
    /// From `snowflake_segment_next()`, with this tag in the database's encoding.
    Tag(&'a CStr),
    /// From an identity. They have come from a tag, or from `snowflake_next()`.
    Identity(Former),
}

/// What a column that becomes an identity has drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Former {
    Ids,
    Tag,
}

/// A column that is to be converted, with its qualified table's name and its own name for messages.
pub struct Target {
    pub column: Column,
    pub table_name: String,
    pub column_name: String,
    pub type_name: String,
    /// The greatest value that its type has.
    pub limit: i64,
    /// Whether it is `GENERATED ALWAYS AS IDENTITY`.
    pub is_always: bool,
}

impl Target {
    /// Finds the column, if the caller may change it and its type may hold the values.
    pub fn find(database: &mut SpiDatabase, named: &NamedColumn, aim: Aim) -> Result<Self, Unconvertible> {
        let NamedColumn { relation, attribute } = named;
        let rows = database.ask(include_str!("target.sql"), &[(*relation).into(), attribute.as_c_str().into()]);
        let row = rows.first().ok_or(Unconvertible::NoRelation(relation.to_u32()))?;
        let table = text(row, 1).expect("a relation has a name");
        let [is_table, is_system, is_owner] = [2, 3, 4].map(|number| given::<bool>(row, number));
        if !is_table {
            return Err(Unconvertible::NoTable(table));
        } else if is_system {
            return Err(Unconvertible::System(table));
        } else if !is_owner {
            return Err(Unconvertible::NotOwner(table));
        }
        let Some(number) = value(row, 5) else {
            return Err(Unconvertible::NoColumn { table, column: legible(attribute.to_bytes()).into_owned() });
        };
        let column = text(row, 6).expect("a column has a name");
        let type_name = text(row, 7).expect("a column has a type");
        let [is_integer, is_generated, is_domain] = [8, 9, 12].map(|number| given::<bool>(row, number));
        if !is_integer || is_domain && matches!(aim, Aim::Identity(_)) {
            return Err(match aim {
                Aim::Ids { .. } => Unconvertible::Type { table, column, type_name },
                Aim::Tag(_) | Aim::Identity(_) => Unconvertible::NoInteger { table, column, type_name },
            });
        } else if is_generated {
            return Err(Unconvertible::Generated { table, column });
        } else if let Some(parent) = text(row, 10) {
            return Err(Unconvertible::Inherited { table, column, parent });
        }
        let column_name = column;
        let column = Column { table: *relation, number };
        let (limit, is_always) = (given(row, 11), given(row, 13));
        Ok(Self { column, table_name: table, column_name, type_name, limit, is_always })
    }
}
