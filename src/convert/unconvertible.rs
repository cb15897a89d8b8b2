//! The errors and notices of converting a column: SQLSTATE, primary message, DETAIL and HINT of
//! each in one place. No `unsafe`. All other errors are in `src/error.rs`.

use std::ffi::CString;

use pgrx::prelude::PgSqlErrorCode::*;
use pgrx::prelude::*;
use snowflake_core::id::layout::Layout;

use crate::error::{Busy, Error, Report, Reportable, Sent, known_as};
use crate::postgres::text::legible;

/// Why a column cannot become a snowflake column. A table is given by its qualified name in SQL,
/// and a list has one item per line.
#[derive(Debug, Clone, PartialEq)]
pub enum Unconvertible {
    /// The server cannot draw an id, so the next id is not known.
    NoIds(Error),
    /// The transaction sees only what was committed before it began.
    Isolation(String),
    /// The list of columns contains a NULL.
    Null,
    /// A text that is not a column with its table, or has too many parts.
    Name(String),
    /// More columns are named than one call takes.
    TooMany(usize),
    /// No relation has that name.
    Unknown(String),
    /// No relation has that OID.
    NoRelation(u32),
    /// A view, an index, a foreign table.
    NoTable(String),
    /// A system catalog.
    System(String),
    /// The caller does not own the table.
    NotOwner(String),
    /// The table has no such column.
    NoColumn { table: String, column: String },
    /// A type other than smallint, integer and bigint.
    Type { table: String, column: String, type_name: String },
    /// The same, for a tag or an identity.
    NoInteger { table: String, column: String, type_name: String },
    /// A column that PostgreSQL computes from others.
    Generated { table: String, column: String },
    /// The column is inherited from a parent, or from the partitioned table.
    Inherited { table: String, column: String, parent: String },
    /// A column that refers to another one, with the table where it does so.
    ForeignKey { table: String, column: String, referred: String },
    /// A CHECK constraint of a table or a domain that the next value would violate.
    Constraint { constraint: String, definition: String, table: String, column: String, next: i64 },
    /// Columns that are too narrow for ids, though the call does not permit widening them.
    TooNarrow(String),
    /// A column that is too narrow for ids, and is in the partition key of its table.
    PartitionKey { table: String, column: String, type_name: String },
    /// A column that is too narrow for ids, in a typed table.
    TypedTable { table: String, column: String },
    /// A column that is too narrow for ids, and inherited from two tables.
    TwoParents { table: String, column: String },
    /// Objects that depend on a column to be widened, and those for which only the user knows how
    /// to create them again.
    Dependents { objects: String, unwritten: String },
    /// Objects that use the sequence of an identity column.
    IdentityInUse { sequence: String, objects: String },
    /// More than one of these.
    Several(Vec<Self>),
    /// The tables were not all free at the same time before `lock_timeout` ran out.
    Busy(Busy),
    /// A column whose default does not draw from a tag.
    NoTag { table: String, column: String },
    /// A column whose default does not draw ids.
    NoIdsDrawn { table: String, column: String },
    /// No value is left above the stored ones.
    NoRoom { table: String, column: String },
    /// A column that a table inherits, which does not inherit an identity.
    Child { table: String, column: String, child: String },
    /// The next value does not fit into the column.
    OutOfRange { table: String, column: String, type_name: String, limit: i64, next: i64 },
    /// The tag would have to begin too near to the end of its values.
    TooFar { least: i64, last: i64 },
    /// A column that is to draw from a tag draws ids.
    DrawsIds { table: String, column: String },
    /// A value that is not below the next id.
    ValuesAhead { table: String, column: String, greatest: i64, next: i64 },
}

impl From<Error> for Unconvertible {
    fn from(error: Error) -> Self {
        Self::NoIds(error)
    }
}

impl From<Busy> for Unconvertible {
    fn from(busy: Busy) -> Self {
        Self::Busy(busy)
    }
}

impl Reportable for Unconvertible {
    fn report(&self) -> Report {
        match self {
            Self::NoIds(error) => error.report(),
            Self::Isolation(level) => Report::new(
                ERRCODE_ACTIVE_SQL_TRANSACTION,
                format!("cannot convert a column in a transaction with isolation level \"{level}\""),
            )
            .hint("Use a transaction with isolation level READ COMMITTED."),
            Self::Null => Report::new(ERRCODE_NULL_VALUE_NOT_ALLOWED, "list of columns must not contain NULL"),
            Self::Name(name) => {
                Report::new(ERRCODE_INVALID_PARAMETER_VALUE, format!("\"{name}\" does not name a column of a table"))
                    .hint("Write table.column or schema.table.column, and quote each part where SQL requires it.")
            }
            Self::TooMany(most) => {
                Report::new(ERRCODE_PROGRAM_LIMIT_EXCEEDED, format!("more than {most} columns are named"))
                    .hint("Convert them in several calls.")
            }
            Self::Unknown(name) => Report::new(ERRCODE_UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")),
            Self::NoRelation(number) => {
                Report::new(ERRCODE_UNDEFINED_TABLE, format!("relation with OID {number} does not exist"))
            }
            Self::NoTable(name) => Report::new(ERRCODE_WRONG_OBJECT_TYPE, format!("{name} is not a table"))
                .hint("Name the table that holds the values."),
            Self::System(table) => {
                Report::new(ERRCODE_INSUFFICIENT_PRIVILEGE, format!("permission denied: {table} is a system catalog"))
            }
            Self::NotOwner(table) => {
                Report::new(ERRCODE_INSUFFICIENT_PRIVILEGE, format!("must be owner of table {table}"))
            }
            Self::NoColumn { table, column } => {
                Report::new(ERRCODE_UNDEFINED_COLUMN, format!("column \"{column}\" of table {table} does not exist"))
            }
            Self::Type { table, column, type_name } => Report::new(
                ERRCODE_DATATYPE_MISMATCH,
                format!("column \"{column}\" of table {table} is of type {type_name}"),
            )
            .hint(
                "Ids are of type bigint. A column can hold them if its type is bigint or a domain directly over \
                 bigint, or, once it has been widened, smallint or integer.",
            ),
            Self::NoInteger { table, column, type_name } => Report::new(
                ERRCODE_DATATYPE_MISMATCH,
                format!("column \"{column}\" of table {table} is of type {type_name}"),
            )
            .hint(
                "The values of tags and identities are integers. The column's type must be bigint, integer or \
                 smallint; for a tag, it can also be a domain directly over one of these.",
            ),
            Self::Generated { table, column } => Report::new(
                ERRCODE_INVALID_TABLE_DEFINITION,
                format!("column \"{column}\" of table {table} is a generated column"),
            )
            .hint("Give the ids a column of their own."),
            Self::Inherited { table, column, parent } => Report::new(
                ERRCODE_INVALID_TABLE_DEFINITION,
                format!("column \"{column}\" of table {table} is inherited from {parent}"),
            )
            .hint(format!("Convert the column of {parent}; its partitions and children are converted with it.")),
            Self::ForeignKey { table, column, referred } => Report::new(
                ERRCODE_INVALID_TABLE_DEFINITION,
                format!("column \"{column}\" of table {table} refers to {referred}"),
            )
            .detail("Its default would draw an id that no referenced row has.")
            .hint(format!(
                "Convert the column of {referred} that it refers to, which also widens this one, or drop the foreign \
                 key."
            )),
            Self::Constraint { constraint, definition, table, column, next } => Report::new(
                ERRCODE_INVALID_TABLE_DEFINITION,
                format!("new values of column \"{column}\" of table {table} would violate {constraint}"),
            )
            .detail(format!("The next value is {next}, which violates {definition}."))
            .hint("Drop the constraint, or change it, before you convert the column."),
            Self::TooNarrow(columns) => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "ids do not fit into columns that are narrower than bigint",
            )
            .detail(format!("To be widened:\n{columns}"))
            .hint(
                "Call the function with rewrite => true to widen them. This rewrites their tables, and no other \
                 session can use the tables meanwhile.",
            ),
            Self::PartitionKey { table, column, type_name } => Report::new(
                ERRCODE_INVALID_TABLE_DEFINITION,
                format!("cannot widen column \"{column}\": table {table} is partitioned by it"),
            )
            .detail(format!("Its type is {type_name}, which is too narrow for ids."))
            .hint("Create a new table that is partitioned by a bigint column, and move the rows."),
            Self::TypedTable { table, column } => Report::new(
                ERRCODE_INVALID_TABLE_DEFINITION,
                format!("cannot widen column \"{column}\" of typed table {table}"),
            )
            .hint(format!("Use ALTER TABLE {table} NOT OF to give the table columns of its own.")),
            Self::TwoParents { table, column } => Report::new(
                ERRCODE_INVALID_TABLE_DEFINITION,
                format!("cannot widen column \"{column}\": table {table} inherits it from two tables"),
            )
            .hint("Use ALTER TABLE ... NO INHERIT, convert the column, and use ALTER TABLE ... INHERIT."),
            Self::Dependents { objects, unwritten } => {
                let report = Report::new(
                    ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST,
                    "cannot widen columns that other objects depend on",
                );
                if unwritten.is_empty() {
                    report.detail(objects).hint(
                        "Call the function with dry_run => true. It then returns statements that drop these objects, \
                         convert the columns, and create the objects again. Run them in one transaction.",
                    )
                } else {
                    report
                        .detail(format!(
                            "{objects}\nThe function cannot write statements that create these again:\n{unwritten}"
                        ))
                        .hint("Drop or change those objects, and call the function again.")
                }
            }
            Self::IdentityInUse { sequence, objects } => Report::new(
                ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST,
                format!("cannot drop identity sequence {sequence} because other objects depend on it"),
            )
            .detail(objects)
            .hint("Give these objects a sequence of their own first."),
            Self::Several(reasons) => all_of(reasons),
            Self::Busy(busy) => busy.report(),
            Self::NoTag { table, column } => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("column \"{column}\" of table {table} does not draw from a tag"),
            )
            .detail("Its default is not snowflake_segment_next() with a constant tag.")
            .hint("Use ALTER TABLE ... ADD GENERATED BY DEFAULT AS IDENTITY for other columns."),
            Self::NoIdsDrawn { table, column } => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("column \"{column}\" of table {table} does not draw ids"),
            )
            .detail("Its default is not snowflake_next().")
            .hint("Use ALTER TABLE ... ADD GENERATED BY DEFAULT AS IDENTITY for other columns."),
            Self::NoRoom { table, column } => Report::new(
                ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
                format!("column \"{column}\" of table {table} has the greatest value of bigint"),
            )
            .hint("Give the row another value, because an identity has to start above all stored values."),
            Self::Child { table, column, child } => Report::new(
                ERRCODE_INVALID_TABLE_DEFINITION,
                format!("cannot make column \"{column}\" of table {table} an identity because {child} inherits it"),
            )
            .detail(format!("Table {child} would have no default, because children do not inherit identities."))
            .hint("Create a sequence that starts above all values, and use ALTER TABLE ... SET DEFAULT nextval(...)."),
            Self::OutOfRange { table, column, type_name, limit, next } => Report::new(
                ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
                format!("next value {next} does not fit into column \"{column}\" of table {table}"),
            )
            .detail(format!("The greatest value of type {type_name} is {limit}."))
            .hint("Widen the column first, or use a tag whose next value is smaller."),
            Self::TooFar { least, last } => Report::new(
                ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
                format!("cannot let a tag go on from {least}, too near to the end of bigint"),
            )
            .detail(format!("The tag has to go on above all stored values, at {last} at most."))
            .hint("Give the rows with the greatest values other ones."),
            Self::DrawsIds { table, column } => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("column \"{column}\" of table {table} draws ids from snowflake_next()"),
            )
            .detail("A tag would have to go on above these ids, so its values would be as long.")
            .hint("Give the rows short numbers in another column, and convert that one."),
            Self::ValuesAhead { table, column, greatest, next } => Report::new(
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("column \"{column}\" of table {table} holds a value that is not below the next id"),
            )
            .detail(format!("The greatest value is {greatest}, and the next id is {next}."))
            .hint(format!(
                "If the values are ids of this layout, call snowflake_advance({greatest}), and convert the column \
                 when the clock has passed the time of that id. Otherwise, give these rows other values, or choose a \
                 layout whose ids are greater."
            )),
        }
    }
}

/// One report for several reasons: one line of DETAIL for each, each HINT once, and the first
/// SQLSTATE.
fn all_of(reasons: &[Unconvertible]) -> Report {
    let reports: Vec<_> = reasons.iter().map(Reportable::report).collect();
    let line = |report: &Report| match &report.detail {
        Some(detail) => format!("{}: {detail}", report.message),
        None => report.message.clone(),
    };
    let lines: Vec<_> = reports.iter().map(line).collect();
    let mut hints = Vec::new();
    for hint in reports.iter().filter_map(|report| report.hint.as_deref()) {
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    let message = format!("cannot convert the columns for {} reasons", reasons.len());
    Report {
        detail: Some(lines.join("\n")),
        hint: (!hints.is_empty()).then(|| hints.join("\n")),
        ..Report::new(reports[0].code, message)
    }
}

/// What to tell the user about a column that becomes a snowflake column.
#[derive(Debug)]
pub enum ConversionNotice<'a> {
    /// Ids of the layout exceed 2^53.
    Beyond2_53(&'a Layout),
    /// No partition of the table accepts the next id.
    NoPartition { table: &'a str, next: i64 },
    /// What only the statements of a dry run can convert.
    Dependents(&'a str),
    /// Other servers may draw values of the tag that are below the column's.
    OtherBlocks { tag: &'a str, least: i64 },
    /// A table is about to be rewritten.
    Rewrite { table: &'a str, size: &'a str },
    /// Tables with columns to be widened, each with its publication.
    Published(&'a str),
    /// A sequence no longer belongs to the column, but other objects use it.
    SequenceKept { sequence: &'a str, objects: &'a str },
    /// Columns that were `GENERATED ALWAYS`, which no default can be.
    Always(&'a [String]),
    /// CHECK constraints that the next value may violate, each with the reason.
    Constraints(&'a [String]),
    /// What may fail with the new values.
    Suspects(&'a Suspects),
}

/// What may fail with the new values, though the catalogs do not connect it with the columns.
#[derive(Debug, Default)]
pub struct Suspects {
    /// A line for each, in the database's encoding.
    pub lines: Vec<CString>,
    /// How many of them are functions; the others are columns.
    pub functions: usize,
}

/// How many suspects a message names.
const FEW: usize = 10;

impl ConversionNotice<'_> {
    /// Sends the message: a WARNING, or a NOTICE.
    pub fn send(&self) {
        let report = self.report();
        let level = if report.code == ERRCODE_WARNING { PgLogLevel::WARNING } else { PgLogLevel::NOTICE };
        report.report(level);
    }
}

impl Reportable for ConversionNotice<'_> {
    fn report(&self) -> Report {
        match self {
            Self::Beyond2_53(layout) => {
                Report::new(ERRCODE_WARNING, format!("ids of layout \"{}\" exceed 2^53", known_as(layout)))
                    .detail(
                        "JavaScript, and JSON readers that use its numbers, represent integers exactly only up \
                         to 2^53.",
                    )
                    .hint("Pass ids as strings where that matters, or draw them with layout \"js53\".")
            }
            Self::NoPartition { table, next } => {
                Report::new(ERRCODE_WARNING, format!("table {table} has no partition for new ids"))
                    .detail(format!("The next id is {next}."))
                    .hint("Create partitions for them, and use snowflake_min() for their bounds.")
            }
            Self::Dependents(objects) => {
                Report::new(ERRCODE_WARNING, "other objects depend on the columns to be widened").detail(*objects).hint(
                    "Without dry_run, the function refuses to convert the columns. Run the returned statements in \
                     one transaction. They also drop these objects and create them again.",
                )
            }
            Self::OtherBlocks { tag, least } => Report::new(
                ERRCODE_SUCCESSFUL_COMPLETION,
                format!("other servers that have drawn from tag \"{tag}\" may still draw values below {least}"),
            )
            .detail("A server that has drawn from a tag keeps up to two blocks of values.")
            .hint("If there are such servers, restart them before they insert into this table."),
            Self::Rewrite { table, size } => {
                Report::new(ERRCODE_SUCCESSFUL_COMPLETION, format!("rewriting table {table} ({size})"))
            }
            Self::Published(tables) => Report::new(ERRCODE_WARNING, "columns to be widened are in published tables")
                .detail(*tables)
                .hint("A subscription stops at the first id that its column cannot hold. Widen the subscribers' columns first."),
            Self::SequenceKept { sequence, objects } => Report::new(
                ERRCODE_SUCCESSFUL_COMPLETION,
                format!("sequence {sequence} is kept because other objects use it"),
            )
            .detail(*objects),
            Self::Always(columns) => Report::new(
                ERRCODE_SUCCESSFUL_COMPLETION,
                "columns that were GENERATED ALWAYS will store the values that statements give",
            )
            .detail(format!("These are {}. OVERRIDING USER VALUE has no effect on a default.", columns.join(", ")))
            .hint("\"Move in\" in docs/migrate.md has a trigger that refuses such values."),
            Self::Constraints(uncertain) => Report::new(ERRCODE_WARNING, "check constraints may not permit new values")
                .detail(uncertain.join("\n"))
                .hint("Compare each with rows that have new values."),
            Self::Suspects(Suspects { lines, functions }) => {
                let mut named: Vec<_> = lines.iter().take(FEW).map(|line| legible(line.to_bytes())).collect();
                if lines.len() > FEW {
                    named.push(format!("... and {} more", lines.len() - FEW).into());
                }
                let counts = [(lines.len() - functions, "column"), (*functions, "function")];
                let counts = counts.into_iter().filter(|(count, _)| *count > 0);
                let counts: Vec<_> = counts
                    .map(|(count, noun)| format!("{count} {noun}{}", if count == 1 { "" } else { "s" }))
                    .collect();
                Report::new(ERRCODE_WARNING, format!("{} may not take new values", counts.join(" and ")))
                    .detail(named.join("\n"))
                    .hint(
                        "The script of a dry run names all of them at its head. \"Suspects\" in docs/migrate.md says \
                         what to do about them.",
                    )
            }
        }
    }
}
