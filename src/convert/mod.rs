//! Turns columns of tables into snowflake columns, or into columns that draw from a tag, and back:
//! finds the statements and what forbids them, and runs them. No `unsafe`.
//!
//! SPI reads everything from the catalogs, and every change is a plain `ALTER TABLE` or the like.
//! The caller runs it, so PostgreSQL checks each step as if the caller had typed it. All of it is
//! in the caller's transaction, so an error at any point leaves nothing changed. While the catalogs
//! are read, search_path makes all names come out qualified, and `row_security = off`
//! makes a policy that would hide values an error. What runs stays qualified. What the caller reads
//! names a default's function as `pg_get_expr` would, because tools compare defaults as texts.
//!
//! `target.rs` finds the columns, `plan.rs` what has to be done with them, and this file does it.
//! The queries are in the `.sql` files, each with a comment on its arguments; the errors are in
//! `unconvertible.rs`. Nothing here drops a view or another object that depends on a column to be
//! widened; only a dry run returns the statements for that (`remake.sql`).

pub mod database;
mod plan;
pub mod target;
mod unconvertible;

use std::collections::HashMap;
use std::ffi::{CStr, CString};

use pgrx::Spi;
use pgrx::pg_sys::Oid;

use self::database::{SpiDatabase, given, text};
use self::plan::{NEXT, NewIdentity, Plan, SEGMENT_NEXT, statement};
use self::target::{Aim, Former, NamedColumn};
pub use self::unconvertible::Unconvertible;
use self::unconvertible::{ConversionNotice, Suspects};
use crate::locks;
use crate::postgres::backend;
use crate::postgres::text::legible;

/// The transaction's isolation level, if a statement does not see what other sessions have
/// committed before it.
const ISOLATION: &str = "
SELECT level::cstring FROM current_setting('transaction_isolation') AS level WHERE level NOT LIKE 'read %'";

/// `$1` a function's name: the OID of the only one that the caller's search_path finds.
const REGPROC: &str = "SELECT pg_catalog.to_regproc($1::pg_catalog.text)::pg_catalog.oid";

/// Returns a table's name, and its size with indexes, partitions and children.
fn size(database: &mut SpiDatabase, table: Oid) -> [CString; 2] {
    backend::with_trusted_settings(|| {
        let rows = database.ask(include_str!("size.sql"), &[table.into()]);
        [1, 2].map(|number| given(&rows[0], number))
    })
}

/// psql can run the result as a file.
fn with_semicolons(statements: &[CString], shown: &HashMap<CString, CString>) -> Vec<Vec<u8>> {
    let shown = statements.iter().map(|statement| shown.get(statement).unwrap_or(statement));
    shown.map(|statement| [statement.to_bytes(), b";"].concat()).collect()
}

/// Makes a column a snowflake column, or with `dry_run` only finds out how. Returns the statements,
/// each with its semicolon, in the database's encoding.
///
/// # Errors
/// All of [`Unconvertible`]; those of [`next::one`](crate::ids::next::one) as
/// [`Unconvertible::NoIds`].
pub fn convert(relation: Oid, attribute: &CStr, rewrite: bool, dry_run: bool) -> Result<Vec<Vec<u8>>, Unconvertible> {
    run_for_one(c"snowflake_convert()", relation, attribute, Aim::Ids { rewrite }, dry_run)
}

/// The same for the columns that texts name, with one plan for all.
///
/// # Errors
/// The same.
pub fn convert_columns<'a>(
    columns: impl Iterator<Item = Option<&'a [u8]>>,
    rewrite: bool,
    dry_run: bool,
) -> Result<Vec<Vec<u8>>, Unconvertible> {
    run(c"snowflake_convert_columns()", |database| NamedColumn::find(database, columns), Aim::Ids { rewrite }, dry_run)
}

/// Makes a column draw from a tag, in the database's encoding, and the tag go on where the column
/// stands.
///
/// # Errors
/// All of [`Unconvertible`]; those of [`dense::one`](crate::ids::dense::one) as
/// [`Unconvertible::NoIds`].
pub fn convert_to_tag(
    relation: Oid,
    attribute: &CStr,
    tag: &CStr,
    dry_run: bool,
) -> Result<Vec<Vec<u8>>, Unconvertible> {
    run_for_one(c"snowflake_segment_convert()", relation, attribute, Aim::Tag(tag), dry_run)
}

/// Makes a column that draws from a tag an identity, which goes on where the tag stands.
///
/// # Errors
/// The same.
pub fn convert_back(relation: Oid, attribute: &CStr, dry_run: bool) -> Result<Vec<Vec<u8>>, Unconvertible> {
    let aim = Aim::Identity(Former::Tag);
    run_for_one(c"snowflake_segment_convert_back()", relation, attribute, aim, dry_run)
}

/// Makes a column that draws ids an identity, which counts on above them.
///
/// # Errors
/// All of [`Unconvertible`]; those of [`next::one`](crate::ids::next::one) as
/// [`Unconvertible::NoIds`].
pub fn convert_ids_back(relation: Oid, attribute: &CStr, dry_run: bool) -> Result<Vec<Vec<u8>>, Unconvertible> {
    let aim = Aim::Identity(Former::Ids);
    run_for_one(c"snowflake_convert_back()", relation, attribute, aim, dry_run)
}

fn run_for_one(
    command: &'static CStr,
    relation: Oid,
    attribute: &CStr,
    aim: Aim,
    dry_run: bool,
) -> Result<Vec<Vec<u8>>, Unconvertible> {
    let named = NamedColumn { relation, attribute: attribute.to_owned() };
    run(command, |_| Ok(vec![named]), aim, dry_run)
}

/// `command` is the function's name in messages.
fn run(
    command: &'static CStr,
    find: impl FnOnce(&mut SpiDatabase) -> Result<Vec<NamedColumn>, Unconvertible>,
    aim: Aim,
    dry_run: bool,
) -> Result<Vec<Vec<u8>>, Unconvertible> {
    backend::require_writable(command);
    Spi::connect_mut(|client| {
        let database = &mut SpiDatabase(client);
        let isolation = backend::with_trusted_settings(|| database.ask(ISOLATION, &[]));
        let isolation = isolation.first().and_then(|row| text(row, 1));
        if let Some(level) = isolation {
            return Err(Unconvertible::Isolation(level));
        }
        let columns = find(database)?;
        let make = |database: &mut SpiDatabase| {
            let function = if matches!(aim, Aim::Tag(_)) { SEGMENT_NEXT } else { NEXT };
            let visible = database.ask_for(REGPROC, &[function.into()]).pop();
            backend::with_trusted_settings(|| Plan::make(database, command, &columns, aim, visible, dry_run))
        };
        let mut plan = make(database)?;
        if plan.statements.is_empty() {
            return Ok(Vec::new());
        }
        // If this server cannot draw or has to wait, it finds out before it locks anything.
        plan.try_to_draw(command, aim)?;
        // Before anything is locked, because this reads the text of all functions.
        let suspects = match aim {
            Aim::Identity(_) => Suspects::default(),
            _ => backend::with_trusted_settings(|| plan.suspects(database, aim)),
        };
        let mut run = Vec::new();
        if !dry_run {
            // The LOCK statement alone could deadlock. Until all is locked, other sessions may
            // change something, such as foreign keys.
            locks::lock_relations(std::mem::take(&mut plan.locked), || {
                plan = make(database)?;
                Ok::<_, Unconvertible>(std::mem::take(&mut plan.locked))
            })?;
            if plan.statements.is_empty() {
                return Ok(Vec::new());
            }
            database.rows(&plan.lock, &[]);
            run.push(plan.lock.clone());
        }
        backend::with_trusted_settings(|| {
            let next = plan.next_value(database, command, aim, dry_run)?;
            if let Some(NewIdentity { statement: make, partitions, .. }) = &plan.identity {
                plan.statements.push(statement([make.to_bytes(), format!("START WITH {next})").as_bytes()]));
                plan.statements.extend_from_slice(partitions);
            }
            plan.announce(database, aim, next, &suspects)
        })?;
        let mut comments = Vec::new();
        if dry_run {
            comments = suspects.lines.iter().map(|line| [b"-- suspect: ", line.to_bytes()].concat()).collect();
            for (_, table) in &plan.rewrites {
                let [name, size] = size(database, *table);
                comments.push([b"-- size: ", name.to_bytes(), b", ", size.to_bytes()].concat());
            }
            // Views come first because a session that reads a view locks it before its tables.
            run.extend(plan.dependents.drops);
            run.push(plan.lock);
        } else {
            // With the caller's settings, because triggers, constraints and indexes run code.
            for statement in &plan.statements {
                if let Some((_, table)) = plan.rewrites.iter().find(|(rewrite, _)| rewrite == statement) {
                    let [table, size] = size(database, *table).map(|text| legible(text.to_bytes()).into_owned());
                    ConversionNotice::Rewrite { table: &table, size: &size }.send();
                }
                database.rows(statement, &[]);
            }
        }
        run.extend(plan.statements);
        run.extend(plan.dependents.remakes);
        Ok(comments.into_iter().chain(with_semicolons(&run, &plan.shown)).collect())
    })
}
