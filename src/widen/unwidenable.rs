//! The errors of widening a column: SQLSTATE, primary message, DETAIL and HINT of each in one
//! place. No `unsafe`.

use pgrx::prelude::PgSqlErrorCode::*;

use crate::convert::Unconvertible;
use crate::error::{Busy, Report, Reportable};

/// Why a column cannot be widened. A table is given by its qualified name in SQL.
#[derive(Debug, Clone, PartialEq)]
pub enum Unwidenable {
    /// What forbids a conversion as well.
    Unconvertible(Unconvertible),
    /// A table, by its refusal's word in `refused.sql`, with the object that forbids it.
    Table { reason: String, table: String, object: String },
    /// A text of an object that names columns in a way that this library cannot read.
    Text(String),
    /// An object that calls a function which takes no bigint, with PostgreSQL's message.
    Function { object: String, message: String },
    /// Objects, a line for each, for which only the user knows how to create them again.
    Unwritten(String),
    /// What depends on the columns has changed since the call that wrote the statement.
    Outdated(String),
    /// More than one of these.
    Several(Vec<Self>),
    /// Tables that were not free.
    Busy(Busy),
}

impl From<Unconvertible> for Unwidenable {
    fn from(reason: Unconvertible) -> Self {
        Self::Unconvertible(reason)
    }
}

impl From<Busy> for Unwidenable {
    fn from(busy: Busy) -> Self {
        Self::Busy(busy)
    }
}

/// The report of a refusal of `refused.sql`.
fn of_table(reason: &str, table: &str, object: &str) -> Report {
    let is_no =
        |what: &str| Report::new(ERRCODE_INVALID_TABLE_DEFINITION, format!("cannot widen column \"{object}\": {what}"));
    match reason {
        "inheritance" => is_no(&format!("table {table} inherits, or is inherited from"))
            .hint("Use snowflake_convert() with rewrite => true, which locks the table while it is rewritten."),
        "foreign" => is_no(&format!("{table} is not a table of this database")).hint("Widen it where its rows are."),
        "typed" => is_no(&format!("{table} is a typed table"))
            .hint(format!("Use ALTER TABLE {table} NOT OF to give the table columns of its own.")),
        "owner" => Report::new(ERRCODE_INSUFFICIENT_PRIVILEGE, format!("must be owner of table {table}"))
            .detail(format!("Its column \"{object}\" has to be widened with the column that it refers to."))
            .hint("Ask the owner of all these tables, or a superuser."),
        "owner of" => Report::new(ERRCODE_INSUFFICIENT_PRIVILEGE, format!("must be owner of {object}"))
            .detail(format!("It depends on a column of table {table} that has to be widened."))
            .hint("Ask the owner of all these objects, or a superuser."),
        "schema" => Report::new(ERRCODE_INSUFFICIENT_PRIVILEGE, format!("permission denied for schema {object}"))
            .detail(format!("What depends on a column of table {table} has to be created again there."))
            .hint("Grant CREATE on the schema to the role that calls."),
        "rows" => Report::new(
            ERRCODE_INVALID_TABLE_DEFINITION,
            format!("cannot widen a column of table {table}, whose rows are stored in column {object}"),
        )
        .detail("The stored rows would lose the column's value.")
        .hint("Give that column another type, such as jsonb."),
        "returns" => Report::new(
            ERRCODE_INVALID_TABLE_DEFINITION,
            format!("cannot widen a column of table {table}, whose row type {object} returns"),
        )
        .detail("The function's body in SQL lists the columns by their places.")
        .hint("Select the row as a whole in the body, or write the body as a string."),
        "period" => Report::new(
            ERRCODE_INVALID_TABLE_DEFINITION,
            format!("cannot widen a column of constraint \"{object}\" of table {table}"),
        )
        .detail("The constraint has WITHOUT OVERLAPS or PERIOD.")
        .hint("Drop the constraint, and add it again afterwards."),
        "late" => Report::new(
            ERRCODE_INVALID_TABLE_DEFINITION,
            format!("trigger \"{object}\" of table {table} would fire after the one that fills the new column"),
        )
        .detail("PostgreSQL fires triggers in the order of their names, and what this one changes would not be copied.")
        .hint(format!("Use ALTER TRIGGER ... ON {table} RENAME TO a shorter name.")),
        _ => Report::new(
            ERRCODE_ACTIVE_SQL_TRANSACTION,
            format!("cannot widen a column of table {table}, which this transaction has locked or changed"),
        )
        .hint("Call the function in a transaction of its own."),
    }
}

impl Reportable for Unwidenable {
    fn report(&self) -> Report {
        match self {
            Self::Unconvertible(reason) => reason.report(),
            Self::Busy(busy) => busy.report(),
            Self::Table { reason, table, object } => of_table(reason, table, object),
            Self::Text(object) => Report::new(
                ERRCODE_FEATURE_NOT_SUPPORTED,
                format!("cannot write a definition with the new column for {object}"),
            )
            .detail("A word in its definition looks like a column's name.")
            .hint("Rename the column, or drop the object and create it again afterwards."),
            Self::Function { object, message } => {
                Report::new(ERRCODE_UNDEFINED_FUNCTION, format!("cannot write {object} for a bigint column: {message}"))
                    .hint("Create the function for bigint as well, or drop the object.")
            }
            Self::Unwritten(objects) => Report::new(
                ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST,
                "cannot widen columns that objects depend on for which no statements can be written",
            )
            .detail(objects.as_str())
            .hint("Drop or change these objects, and call the function again."),
            Self::Outdated(table) => Report::new(
                ERRCODE_OBJECT_IN_USE,
                format!("objects of table {table} have changed since snowflake_widen() wrote the statements"),
            )
            .detail("The switch would lose the change.")
            .hint("Call snowflake_widen() again, and run the statements from the phase \"build\" on."),
            Self::Several(reasons) => {
                let reports: Vec<_> = reasons.iter().map(Reportable::report).collect();
                let lines: Vec<_> = reports.iter().map(|report| report.message.clone()).collect();
                let mut hints: Vec<String> = Vec::new();
                for hint in reports.iter().filter_map(|report| report.hint.clone()) {
                    if !hints.contains(&hint) {
                        hints.push(hint);
                    }
                }
                Report::new(reports[0].code, format!("cannot widen the columns for {} reasons", reasons.len()))
                    .detail(lines.join("\n"))
                    .hint(hints.join("\n"))
            }
        }
    }
}
