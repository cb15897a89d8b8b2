//! Turns columns of tables into snowflake columns: finds the statements and what forbids them, and
//! runs them. No `unsafe`.
//!
//! SPI reads everything from the catalogs, and every change is a plain `ALTER TABLE` or the like.
//! The caller runs it, so PostgreSQL checks each step as if the caller had typed it. All of it is
//! in the caller's transaction, so an error at any point leaves nothing changed. While the catalogs
//! are read, search_path makes all names come out qualified, and `row_security = off`
//! makes a policy that would hide values an error.
//!
//! The queries are in the `.sql` files, each with a comment on its arguments; the errors are in
//! `error.rs`. This file never drops a view or another object that depends on a column to be
//! widened; only a dry run returns the statements for that (`remake.sql`).

mod database;
mod error;

use std::ffi::{CStr, CString};

use pgrx::Spi;
use pgrx::pg_sys::Oid;

use self::database::{Column, Database, given, pairs, text, value};
use self::error::Notice;
pub use self::error::Unconvertible;
use crate::backend;
use crate::draw;
use crate::layouts;
use crate::text::legible;

/// JavaScript represents every integer up to this one exactly: 2^53 - 1.
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// A statement about columns with their tables' partitions and children.
macro_rules! with_family {
    ($file:literal) => {
        concat!(include_str!("family.sql"), include_str!($file))
    };
}

/// A statement about the objects that prevent a new type.
macro_rules! with_found {
    ($file:literal) => {
        concat!(include_str!("found.sql"), include_str!($file))
    };
}

/// The transaction's isolation level, if a statement does not see what other sessions have
/// committed before it.
const ISOLATION: &str = "
SELECT level::cstring FROM current_setting('transaction_isolation') AS level WHERE level NOT LIKE 'read %'";

/// `$1` a table's name: its OID, by the caller's search_path. So all other names in it are
/// qualified.
const REGCLASS: &str = "SELECT pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid";

/// A column as the caller names it. The table is given by its OID, which stays the same while the
/// call waits for locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub relation: Oid,
    pub attribute: CString,
}

impl Named {
    /// Finds the columns that texts name as `schema.table.column` or, by the search_path,
    /// `table.column`. Returns each once.
    fn find(database: &mut Database, texts: &[Option<CString>]) -> Result<Vec<Self>, Unconvertible> {
        let mut columns = Vec::new();
        for name in texts {
            let name = name.as_ref().ok_or(Unconvertible::Null)?;
            let parts =
                backend::with_trusted_settings(|| database.ask(include_str!("name.sql"), &[name.as_c_str().into()]));
            let [table, attribute]: [CString; 2] = match given::<i32>(&parts[0], 1) {
                2 | 3 => [2, 3].map(|number| given(&parts[0], number)),
                _ => return Err(Unconvertible::Name(legible(name.to_bytes()).into_owned())),
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

/// A column that will hold ids, with its qualified table's name and its own name for messages.
struct Target {
    column: Column,
    table_name: String,
    column_name: String,
}

impl Target {
    /// Finds the column, if the caller may change it and it may hold ids.
    fn find(database: &mut Database, named: &Named) -> Result<Self, Unconvertible> {
        let Named { relation, attribute } = named;
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
        let [is_integer, is_generated] = [8, 9].map(|number| given::<bool>(row, number));
        if !is_integer {
            let type_name = text(row, 7).expect("a column has a type");
            return Err(Unconvertible::Type { table, column, type_name });
        } else if is_generated {
            return Err(Unconvertible::Generated { table, column });
        } else if let Some(parent) = text(row, 10) {
            return Err(Unconvertible::Inherited { table, column, parent });
        }
        Ok(Self { column: Column { table: *relation, number }, table_name: table, column_name: column })
    }
}

/// Everything that forbids a plan, so that the caller sees all reasons in one call.
#[derive(Default)]
struct Refusals(Vec<Unconvertible>);

impl Refusals {
    fn add(&mut self, reason: Unconvertible) {
        if !self.0.contains(&reason) {
            self.0.push(reason);
        }
    }

    /// Returns the value, or adds the reason why there is none.
    fn sort<T>(&mut self, result: Result<T, Unconvertible>) -> Option<T> {
        result.map_err(|reason| self.add(reason)).ok()
    }

    fn end(mut self) -> Result<(), Unconvertible> {
        match self.0.len() {
            0 => Ok(()),
            1 => Err(self.0.remove(0)),
            _ => Err(Unconvertible::Several(self.0)),
        }
    }
}

/// Finds the columns that have to become bigint, and which of them cannot.
fn narrow(database: &mut Database, columns: &[Column], rewrite: bool, refusals: &mut Refusals) -> Vec<Column> {
    let mut narrow = Vec::new();
    let mut labels = Vec::new();
    for row in database.ask(include_str!("narrow.sql"), &pairs(columns)) {
        let [table, column, type_name] = [3, 4, 5].map(|number| text(&row, number).expect("all three have names"));
        let [is_plain, is_partition_key, is_typed, is_inherited] =
            [6, 7, 8, 9].map(|number| given::<bool>(&row, number));
        if !is_plain {
            refusals.add(Unconvertible::Type { table, column, type_name });
        } else if is_partition_key {
            refusals.add(Unconvertible::PartitionKey { table, column, type_name });
        } else if is_typed {
            refusals.add(Unconvertible::TypedTable { table, column });
        } else {
            narrow.push(Column { table: given(&row, 1), number: given(&row, 2) });
            if !is_inherited {
                labels.push(format!("column {column} of table {table} ({type_name})"));
            }
        }
    }
    if !rewrite && !narrow.is_empty() {
        refusals.add(Unconvertible::TooNarrow(labels.join("\n")));
    }
    for row in database.ask(include_str!("two_parents.sql"), &pairs(&narrow)) {
        let [table, column] = [1, 2].map(|number| text(&row, number).expect("both have names"));
        refusals.add(Unconvertible::TwoParents { table, column });
    }
    narrow
}

/// What depends on columns to be widened, so that PostgreSQL does not change their type.
#[derive(Default)]
struct Dependents {
    /// Each object and what it depends on; empty if there is none.
    objects: String,
    /// The statements that drop them, and those that create them again.
    drops: Vec<CString>,
    remakes: Vec<CString>,
}

impl Dependents {
    /// Finds the dependent objects. Any is an error, unless a dry run asks for the statements and
    /// all of them can be written.
    fn find(database: &mut Database, narrow: &[Column], dry_run: bool) -> Result<Self, Unconvertible> {
        let rows = database.ask(with_found!("dependents.sql"), &pairs(narrow));
        let Some(objects) = rows.first().and_then(|row| text(row, 1)) else { return Ok(Self::default()) };
        let mut found = Self { objects, ..Self::default() };
        let mut unwritten = Vec::new();
        for row in database.ask(with_found!("remake.sql"), &pairs(narrow)) {
            match given::<i32>(&row, 1) {
                0 => found.drops.push(given(&row, 2)),
                1 => found.remakes.push(given(&row, 2)),
                _ => unwritten.push(text(&row, 2).expect("an object has a description")),
            }
        }
        if dry_run && unwritten.is_empty() {
            return Ok(found);
        }
        Err(Unconvertible::Dependents { objects: found.objects, unwritten: unwritten.join("\n") })
    }
}

/// What is done to columns besides widening them.
#[derive(Default)]
struct Steps {
    /// Before widening, because an identity's sequence then need not be widened.
    identities: Vec<CString>,
    /// After widening, so that defaults need not be converted.
    defaults: Vec<CString>,
    sequences: Vec<CString>,
    /// The sequences that stay, with what uses them.
    kept: Vec<(String, String)>,
    /// The columns that need a step, by their places from 1.
    places: Vec<i64>,
}

impl Steps {
    fn find(database: &mut Database, columns: &[Column], refusals: &mut Refusals) -> Self {
        let (mut sequences, mut kept, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for row in database.ask(with_family!("sequences.sql"), &pairs(columns)) {
            let sequence: CString = given(&row, 1);
            let name = legible(sequence.to_bytes()).into_owned();
            places.push(given(&row, 2));
            match (given(&row, 3), text(&row, 4)) {
                // It is dropped with the identity.
                (true, None) => {}
                (true, Some(objects)) => refusals.add(Unconvertible::IdentityInUse { sequence: name, objects }),
                (false, None) => sequences.push(statement([b"DROP SEQUENCE ", sequence.to_bytes()])),
                (false, Some(objects)) => {
                    // Otherwise it would be dropped with the column, or prevent that.
                    sequences.push(statement([b"ALTER SEQUENCE ", sequence.to_bytes(), b" OWNED BY NONE"]));
                    kept.push((name, objects));
                }
            }
        }
        let [identities, defaults] = [with_family!("drop_identity.sql"), with_family!("set_default.sql")].map(|sql| {
            let rows = database.ask(sql, &pairs(columns));
            places.extend(rows.iter().map(|row| given::<i64>(row, 2)));
            rows.iter().map(|row| given(row, 1)).collect()
        });
        Self { identities, defaults, sequences, kept, places }
    }
}

/// What has to be done, by the present catalogs.
struct Plan {
    /// The columns that are not snowflake columns yet.
    targets: Vec<Target>,
    /// What PostgreSQL will lock.
    locked: Vec<Oid>,
    /// The statement that locks out other sessions, and then those that change something; none if
    /// everything is done.
    lock: CString,
    statements: Vec<CString>,
    dependents: Dependents,
    /// The sequences that stay, with what uses them.
    kept: Vec<(String, String)>,
}

impl Plan {
    /// Finds what has to be done, and everything that forbids it. A column that is wrong by itself
    /// is left out of the later checks.
    fn make(database: &mut Database, columns: &[Named], rewrite: bool, dry_run: bool) -> Result<Self, Unconvertible> {
        let mut refusals = Refusals::default();
        let mut targets: Vec<_> =
            columns.iter().filter_map(|named| refusals.sort(Target::find(database, named))).collect();
        let columns: Vec<_> = targets.iter().map(|target| target.column).collect();
        let mut referring = Vec::new();
        for row in database.ask(with_family!("foreign_key.sql"), &pairs(&columns)) {
            let [table, column, referred] = [1, 2, 3].map(|number| text(&row, number).expect("all three have names"));
            refusals.add(Unconvertible::ForeignKey { table, column, referred });
            referring.push(columns[given::<i64>(&row, 4) as usize - 1]);
        }
        targets.retain(|target| !referring.contains(&target.column));
        let columns: Vec<_> = targets.iter().map(|target| target.column).collect();
        let narrow = narrow(database, &columns, rewrite, &mut refusals);
        let dependents = refusals.sort(Dependents::find(database, &narrow, dry_run)).unwrap_or_default();
        let steps = Steps::find(database, &columns, &mut refusals);
        // The other columns' tables need not even be locked.
        let mut place = 0;
        targets.retain(|target| {
            place += 1;
            steps.places.contains(&place) || narrow.contains(&target.column)
        });
        let columns: Vec<_> = targets.iter().map(|target| target.column).collect();
        let [rels, atts] = pairs(&narrow);
        let [tables, numbers] = pairs(&columns);
        let mut locked = Vec::new();
        for row in database.ask(include_str!("locked.sql"), &[rels, atts, tables, numbers]) {
            match text(&row, 2) {
                Some(table) => refusals.add(Unconvertible::NotOwner(table)),
                None => locked.push(given(&row, 1)),
            }
        }
        refusals.end()?;
        let mut statements = steps.identities;
        statements.extend(database.ask_for::<CString>(include_str!("widen.sql"), &pairs(&narrow)));
        statements.extend(steps.defaults);
        statements.extend(steps.sequences);
        let altered = [&columns[..], &narrow[..]].concat();
        // None if there is nothing to do, or if another session has dropped the table.
        let lock = database.ask_for(include_str!("lock.sql"), &pairs(&altered)).pop();
        let lock = match (lock, targets.first()) {
            (Some(lock), _) => lock,
            (None, None) => CString::default(),
            (None, Some(target)) => return Err(Unconvertible::NoRelation(target.column.table.to_u32())),
        };
        Ok(Self { targets, locked, lock, statements, dependents, kept: steps.kept })
    }

    /// Checks that all stored values are below the next id, and returns that id.
    fn check_values(&self, database: &mut Database, command: &'static CStr) -> Result<i64, Unconvertible> {
        let mut stored = Vec::new();
        for target in &self.targets {
            let arguments = target.column.arguments();
            let question: CString =
                database.ask_for(include_str!("greatest.sql"), &arguments).pop().expect("the column exists");
            stored.push(database.rows(&question, &[]).first().and_then(|row| value::<i64>(row, 1)));
        }
        // After them, because a session that stores an id by hand has drawn it before.
        let next = draw::least_to_come(command)?;
        for (target, greatest) in self.targets.iter().zip(stored) {
            if let Some(greatest) = greatest.filter(|greatest| *greatest >= next) {
                let (table, column) = (target.table_name.clone(), target.column_name.clone());
                return Err(Unconvertible::ValuesAhead { table, column, greatest, next });
            }
        }
        Ok(next)
    }

    /// Tells the user about the consequences.
    fn announce(&self, database: &mut Database, next: i64) -> Result<(), Unconvertible> {
        let layout = layouts::configured()?;
        if layout.max_id() > MAX_SAFE_INTEGER {
            Notice::Beyond2_53(&layout).send();
        }
        if !self.dependents.objects.is_empty() {
            Notice::Dependents(&self.dependents.objects).send();
        }
        for Target { column, table_name, .. } in &self.targets {
            let arguments = [column.table.into(), column.number.into(), next.into()];
            let question: Option<CString> = database.ask_for(include_str!("no_partition.sql"), &arguments).pop();
            if question.is_some_and(|question| given(&database.rows(&question, &[])[0], 1)) {
                Notice::NoPartition { table: table_name, next }.send();
            }
        }
        for (sequence, objects) in &self.kept {
            Notice::SequenceKept { sequence, objects }.send();
        }
        Ok(())
    }
}

fn statement<const N: usize>(parts: [&[u8]; N]) -> CString {
    CString::new(parts.concat()).expect("names hold no NUL")
}

/// psql can run the result as a file.
fn with_semicolons(statements: Vec<CString>) -> Vec<Vec<u8>> {
    statements.iter().map(|statement| [statement.to_bytes(), b";"].concat()).collect()
}

/// Makes a column a snowflake column, or with `dry_run` only finds out how. Returns the statements,
/// each with its semicolon, in the database's encoding.
///
/// # Errors
/// All of [`Unconvertible`]; those of [`draw::one`] as [`Unconvertible::NoIds`].
pub fn convert(relation: Oid, attribute: &CStr, rewrite: bool, dry_run: bool) -> Result<Vec<Vec<u8>>, Unconvertible> {
    let named = Named { relation, attribute: attribute.to_owned() };
    run(c"snowflake_convert()", |_| Ok(vec![named]), rewrite, dry_run)
}

/// The same for the columns that texts name, with one plan for all.
///
/// # Errors
/// The same.
pub fn convert_columns(
    columns: &[Option<CString>],
    rewrite: bool,
    dry_run: bool,
) -> Result<Vec<Vec<u8>>, Unconvertible> {
    run(c"snowflake_convert_columns()", |database| Named::find(database, columns), rewrite, dry_run)
}

/// `command` is the function's name in messages.
fn run(
    command: &'static CStr,
    find: impl FnOnce(&mut Database) -> Result<Vec<Named>, Unconvertible>,
    rewrite: bool,
    dry_run: bool,
) -> Result<Vec<Vec<u8>>, Unconvertible> {
    backend::require_writable(command);
    Spi::connect_mut(|client| {
        let database = &mut Database(client);
        let isolation = backend::with_trusted_settings(|| database.ask(ISOLATION, &[]));
        let isolation = isolation.first().and_then(|row| text(row, 1));
        if let Some(level) = isolation {
            return Err(Unconvertible::Isolation(level));
        }
        let columns = find(database)?;
        let make = |database: &mut Database| {
            backend::with_trusted_settings(|| Plan::make(database, &columns, rewrite, dry_run))
        };
        let mut plan = make(database)?;
        if plan.statements.is_empty() {
            return Ok(Vec::new());
        }
        // If this server cannot draw or has to wait, it finds out before it locks anything.
        draw::least_to_come(command)?;
        let mut run = Vec::new();
        while !dry_run && run.last() != Some(&plan.lock) && !plan.statements.is_empty() {
            // The LOCK statement alone could deadlock.
            if !backend::lock_relations(&plan.locked) {
                return Err(Unconvertible::Busy);
            }
            database.rows(&plan.lock, &[]);
            run.push(plan.lock);
            // Until now other sessions may have changed something, such as foreign keys of unlocked
            // tables.
            plan = make(database)?;
        }
        if plan.statements.is_empty() {
            return Ok(with_semicolons(run));
        }
        backend::with_trusted_settings(|| {
            let next = plan.check_values(database, command)?;
            plan.announce(database, next)
        })?;
        if dry_run {
            // Views come first because a session that reads a view locks it before its tables.
            run.extend(plan.dependents.drops);
            run.push(plan.lock);
        } else {
            // With the caller's settings, because triggers, constraints and indexes run code.
            for statement in &plan.statements {
                database.rows(statement, &[]);
            }
        }
        run.extend(plan.statements);
        run.extend(plan.dependents.remakes);
        Ok(with_semicolons(run))
    })
}
