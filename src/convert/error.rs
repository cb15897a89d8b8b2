//! What keeps a column from becoming a snowflake column, and what the user is told when it becomes one: SQLSTATE, message, DETAIL
//! and HINT of each. No `unsafe`. All other errors are in `src/error.rs`, which raises these, too.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use snowflake_core::layout::Layout;

use crate::error::known_as;

/// Why a column cannot become a snowflake column as it is. Tables by their names in SQL, with the schema; lists one to a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unconvertible {
    /// The transaction sees only what was committed before it began.
    Isolation(String),
    /// A list of columns has a NULL in it.
    Null,
    /// A text that names a column without its table, or more than that.
    Name(String),
    /// There is no relation of that name.
    Unknown(String),
    /// There is no relation of that number.
    NoRelation(u32),
    /// A view, an index, a foreign table.
    NoTable(String),
    /// A table of PostgreSQL's own.
    System(String),
    /// The caller does not own the table.
    NotOwner(String),
    /// The table has no such column.
    NoColumn { table: String, column: String },
    /// A type that is neither smallint, integer nor bigint.
    Type { table: String, column: String, type_name: String },
    /// A column that is computed from others.
    Generated { table: String, column: String },
    /// The column comes from a parent, or the table that this is a partition of.
    Inherited { table: String, column: String, parent: String },
    /// A column that refers to another one, with the table where it does so.
    ForeignKey { table: String, column: String, referred: String },
    /// Columns that are too narrow for ids, and may not be widened.
    TooNarrow(String),
    /// A column that is too narrow for ids, by which its table is partitioned.
    PartitionKey { table: String, column: String, type_name: String },
    /// A column that is too narrow for ids, of a table whose columns are those of a type.
    TypedTable { table: String, column: String },
    /// A column that is too narrow for ids, and inherited from two tables.
    TwoParents { table: String, column: String },
    /// Objects that depend on a column that is to be widened; and those among them, or that depend on them, for which nobody but the
    /// user knows how they are made again.
    Dependents { objects: String, unwritten: String },
    /// Objects that use the sequence of an identity column.
    IdentityInUse { sequence: String, objects: String },
    /// More than one of these.
    Several(Vec<Self>),
    /// The tables were not all free at one time before `lock_timeout` was over.
    Busy,
    /// A value that is not below the ids to come.
    ValuesAhead { table: String, column: String, greatest: i64, next: i64 },
}

impl Unconvertible {
    pub fn sqlstate(&self) -> PgSqlErrorCode {
        use PgSqlErrorCode::*;
        match self {
            Self::Isolation(_) => ERRCODE_ACTIVE_SQL_TRANSACTION,
            Self::Null => ERRCODE_NULL_VALUE_NOT_ALLOWED,
            Self::Name(_) => ERRCODE_INVALID_PARAMETER_VALUE,
            Self::Unknown(_) | Self::NoRelation(_) => ERRCODE_UNDEFINED_TABLE,
            Self::NoTable(_) => ERRCODE_WRONG_OBJECT_TYPE,
            Self::System(_) | Self::NotOwner(_) => ERRCODE_INSUFFICIENT_PRIVILEGE,
            Self::NoColumn { .. } => ERRCODE_UNDEFINED_COLUMN,
            Self::Type { .. } => ERRCODE_DATATYPE_MISMATCH,
            Self::Generated { .. } | Self::Inherited { .. } | Self::ForeignKey { .. } => {
                ERRCODE_INVALID_TABLE_DEFINITION
            }
            Self::PartitionKey { .. } | Self::TypedTable { .. } | Self::TwoParents { .. } => {
                ERRCODE_INVALID_TABLE_DEFINITION
            }
            Self::TooNarrow(_) | Self::ValuesAhead { .. } => ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            Self::Dependents { .. } | Self::IdentityInUse { .. } => ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST,
            Self::Several(reasons) => reasons[0].sqlstate(),
            Self::Busy => ERRCODE_LOCK_NOT_AVAILABLE,
        }
    }

    pub fn message(&self) -> String {
        match self {
            Self::Isolation(level) => {
                format!("cannot convert a column in a transaction of isolation level \"{level}\"")
            }
            Self::Null => "list of columns must not contain NULL".into(),
            Self::Name(name) => format!("\"{name}\" does not name a column of a table"),
            Self::Unknown(name) => format!("relation \"{name}\" does not exist"),
            Self::NoRelation(number) => format!("relation with OID {number} does not exist"),
            Self::NoTable(name) => format!("{name} is not a table"),
            Self::System(table) => format!("permission denied: {table} is a system catalog"),
            Self::NotOwner(table) => format!("must be owner of table {table}"),
            Self::NoColumn { table, column } => format!("column \"{column}\" of table {table} does not exist"),
            Self::Type { table, column, type_name } => {
                format!("column \"{column}\" of table {table} is of type {type_name}")
            }
            Self::Generated { table, column } => {
                format!("column \"{column}\" of table {table} is a generated column")
            }
            Self::Inherited { table, column, parent } => {
                format!("column \"{column}\" of table {table} is inherited from {parent}")
            }
            Self::ForeignKey { table, column, referred } => {
                format!("column \"{column}\" of table {table} refers to {referred}")
            }
            Self::TooNarrow(_) => "ids do not fit into columns that are narrower than bigint".into(),
            Self::PartitionKey { table, column, .. } => {
                format!("cannot widen column \"{column}\": table {table} is partitioned by it")
            }
            Self::TypedTable { table, column } => {
                format!("cannot widen column \"{column}\" of typed table {table}")
            }
            Self::TwoParents { table, column } => {
                format!("cannot widen column \"{column}\": table {table} inherits it from two tables")
            }
            Self::Dependents { .. } => "cannot widen columns that other objects depend on".into(),
            Self::IdentityInUse { sequence, .. } => {
                format!("cannot drop identity sequence {sequence} because other objects depend on it")
            }
            Self::Several(reasons) => format!("cannot convert the columns for {} reasons", reasons.len()),
            Self::Busy => "could not lock all tables at the same time within \"lock_timeout\"".into(),
            Self::ValuesAhead { table, column, .. } => {
                format!("column \"{column}\" of table {table} holds a value that is not below the ids to come")
            }
        }
    }

    pub fn detail(&self) -> Option<String> {
        match self {
            Self::TooNarrow(columns) => Some(format!("To be widened:\n{columns}")),
            Self::PartitionKey { type_name, .. } => {
                Some(format!("It is of type {type_name}, into which ids do not fit."))
            }
            Self::Several(reasons) => {
                let line = |reason: &Self| {
                    reason.message() + &reason.detail().map_or(String::new(), |detail| format!(": {detail}"))
                };
                Some(reasons.iter().map(line).collect::<Vec<_>>().join("\n"))
            }
            Self::ForeignKey { .. } => Some("No row that it refers to has the id that its default would draw.".into()),
            Self::Dependents { objects, unwritten } if !unwritten.is_empty() => {
                Some(format!("{objects}\nStatements that make it again cannot be written for:\n{unwritten}"))
            }
            Self::Dependents { objects, .. } | Self::IdentityInUse { objects, .. } => Some(objects.clone()),
            Self::ValuesAhead { greatest, next, .. } => {
                Some(format!("The greatest value is {greatest}, the next id is {next}."))
            }
            _ => None,
        }
    }

    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Isolation(_) => "Use a transaction of isolation level READ COMMITTED.".into(),
            Self::NoTable(_) => "Name the table that holds the values.".into(),
            Self::Type { .. } => {
                "Ids are of type bigint. Columns of type smallint, integer, bigint, or a domain directly over bigint, can hold them, the \
                 first two after they have been widened."
                    .into()
            }
            Self::Name(_) => "Write table.column or schema.table.column, each part quoted where SQL needs it.".into(),
            Self::ForeignKey { referred, .. } => format!(
                "Convert the column of {referred} that it refers to, which widens this one too; or drop the foreign key."
            ),
            Self::Generated { .. } => "Give the ids a column of their own.".into(),
            Self::Inherited { parent, .. } => {
                format!("Convert the column of {parent}; its partitions and children are converted with it.")
            }
            Self::TooNarrow(_) => "Call it with rewrite => true to widen them, which rewrites their tables while \
                 nobody else can use these."
                .into(),
            Self::PartitionKey { .. } => "Create a new table that is partitioned by a bigint column, and move the rows.".into(),
            Self::TypedTable { table, .. } => {
                format!("Use ALTER TABLE {table} NOT OF, to give the table columns of its own.")
            }
            Self::TwoParents { .. } => "Use ALTER TABLE ... NO INHERIT, convert, and let the table inherit again.".into(),
            Self::Dependents { unwritten, .. } if unwritten.is_empty() => {
                "Call it with dry_run => true: the statements that it then returns drop these objects, convert, and make the \
                 objects again. Run them in one transaction."
                    .into()
            }
            Self::Dependents { .. } => "Drop or change those, and call it again.".into(),
            Self::Several(reasons) => {
                // Each once, in the order of the reasons.
                let mut hints = Vec::new();
                for hint in reasons.iter().filter_map(Self::hint) {
                    if !hints.contains(&hint) {
                        hints.push(hint);
                    }
                }
                if hints.is_empty() {
                    return None;
                }
                hints.join("\n")
            }
            Self::Busy => "Try again when there is less going on, or with a longer \"lock_timeout\".".into(),
            Self::IdentityInUse { .. } => "Give these objects a sequence of their own first.".into(),
            Self::ValuesAhead { greatest, .. } => format!(
                "If the values are ids of this layout, call snowflake_advance({greatest}), and convert when the clock has passed \
                 the time of that id. Else give these rows other values, or choose a layout whose ids are greater."
            ),
            Self::Null | Self::Unknown(_) | Self::NoRelation(_) | Self::System(_) | Self::NotOwner(_) | Self::NoColumn { .. } => {
                return None;
            }
        })
    }
}

/// What the user is told of a column that becomes a snowflake column.
#[derive(Debug)]
pub enum Notice<'a> {
    /// Ids of the layout exceed 2^53.
    Beyond2_53(&'a Layout),
    /// The table's partitions are for other values.
    NoPartition { table: &'a str, next: i64 },
    /// What only a dry run gets past.
    Dependents(&'a str),
    /// A sequence is no longer the column's, but still in use.
    SequenceKept { sequence: &'a str, objects: &'a str },
}

impl Notice<'_> {
    /// Sends the message.
    pub fn send(&self) {
        use PgSqlErrorCode::{ERRCODE_SUCCESSFUL_COMPLETION, ERRCODE_WARNING};
        let report = |code, message: String| ErrorReport::new(code, message, "snowflake_id");
        match self {
            Self::Beyond2_53(layout) => {
                report(ERRCODE_WARNING, format!("ids of layout \"{}\" exceed 2^53", known_as(layout)))
                    .set_detail("JavaScript's numbers, and what reads JSON into such, are exact only up to there.")
                    .set_hint("Pass ids on as strings where that matters, or draw them with layout \"js53\".")
                    .report(PgLogLevel::WARNING);
            }
            Self::NoPartition { table, next } => {
                report(ERRCODE_WARNING, format!("no partition of table {table} takes the ids to come"))
                    .set_detail(format!("The next id is {next}."))
                    .set_hint("Create partitions for them, with snowflake_min() for their bounds.")
                    .report(PgLogLevel::WARNING);
            }
            Self::Dependents(objects) => {
                report(ERRCODE_WARNING, "other objects depend on columns to be widened".into())
                    .set_detail(*objects)
                    .set_hint(
                        "Without dry_run the call is refused. Run the statements that it returns, in one transaction: they also \
                         drop these objects and make them again.",
                    )
                    .report(PgLogLevel::WARNING);
            }
            Self::SequenceKept { sequence, objects } => {
                report(
                    ERRCODE_SUCCESSFUL_COMPLETION,
                    format!("sequence {sequence} is kept, since other objects use it"),
                )
                .set_detail(*objects)
                .report(PgLogLevel::NOTICE);
            }
        }
    }
}
