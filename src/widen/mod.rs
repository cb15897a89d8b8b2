//! Widens columns to bigint while sessions use their tables: writes the statements, from the
//! catalogs, and runs none. No `unsafe`.
//!
//! Beside each narrow column stands a wide one, which a trigger keeps equal (`trigger.rs`). Indexes
//! and constraints are built on the wide column, under names with the objects' numbers. The switch
//! gives all to the wide column under the old names. So a plan depends only on the narrow columns
//! and what depends on them. It is the same before each phase, and a phase can be repeated. The
//! switch makes the plan again under its locks, and refuses if it has changed.
//!
//! After the switch the narrow column stands beside the wide one, and the trigger keeps it equal as
//! long as values fit. So the way back is the same plan with the columns exchanged.
//!
//! The queries are in the `.sql` files. The procedures that the statements call are in the install
//! script, because they commit. The errors are in `unwidenable.rs`.

mod names;
pub mod trigger;
mod unwidenable;

use std::ffi::{CStr, CString};
use std::fmt::Write as _;

use pgrx::Spi;
use pgrx::datum::DatumWithOid;
use pgrx::pg_sys::Oid;

use self::names::Replaced;
pub use self::unwidenable::Unwidenable;
use crate::convert::Unconvertible;
use crate::convert::database::{Arguments, Column, SpiDatabase, given, pairs, text, value};
use crate::convert::target::{Aim, NamedColumn, Target};
use crate::locks;
use crate::postgres::backend::{self, Lock};
use crate::postgres::text::legible;

/// A query about the columns that hold a column's values.
macro_rules! with_holders {
    ($file:literal) => {
        concat!(include_str!("../convert/holds.sql"), include_str!($file))
    };
}

/// A query about the columns that triggers keep equal.
macro_rules! with_kept {
    ($file:literal) => {
        concat!(include_str!("kept.sql"), include_str!($file))
    };
}

/// A query about the columns to be replaced.
macro_rules! with_columns {
    ($file:literal) => {
        concat!(include_str!("kept.sql"), include_str!("col.sql"), include_str!($file))
    };
}

/// A query about the columns to be replaced and their foreign keys.
macro_rules! with_keys {
    ($file:literal) => {
        concat!(include_str!("kept.sql"), include_str!("col.sql"), include_str!("keys.sql"), include_str!($file))
    };
}

/// The phases, by their numbers in `steps.sql` and `clean.sql`.
const PHASES: [&str; 7] = ["notes", "prepare", "fill", "build", "switch", "check", "clean up"];

/// The numbers of two phases, and the place in `steps.sql` of what comes after all that is created
/// again.
const BUILD: i32 = 3;
const SWITCH: i32 = 4;
const LAST_OF_SWITCH: i32 = 95;

/// The places of what drops what was built for objects that are gone: in the build until the first
/// step of all calls, and in the switch what the build has not dropped.
const FIRST_OF_BUILD: i32 = 1;
const LEFT_OVER: std::ops::RangeInclusive<i32> = 36..=37;

/// What a fingerprint of the way back begins with.
const BACK: &str = "way back ";

/// A row: the phase, what the step does, its statement, its locks.
pub type Row = [Option<Vec<u8>>; 4];

fn bytes(text: &CStr) -> Vec<u8> {
    text.to_bytes().to_vec()
}

/// A text as a literal that PostgreSQL reads the same whatever the session's settings.
fn literal(text: &[u8]) -> Vec<u8> {
    let mut tag = b"$w$".to_vec();
    // Also where the text's end and the tag's begin make the tag.
    while [text, &tag[..]].concat().windows(tag.len()).position(|window| window == tag) != Some(text.len()) {
        tag.insert(1, b'w');
    }
    [&tag[..], text, &tag[..]].concat()
}

/// A step as `steps.sql` returns it, or a part of the switch.
struct Step {
    phase: i32,
    place: i32,
    what: Option<Vec<u8>>,
    statement: Vec<u8>,
    locks: Option<Vec<u8>>,
}

/// Which columns a plan replaces.
#[derive(Clone, Copy, PartialEq)]
enum Direction {
    /// The narrow ones, by wide ones.
    Forth,
    /// The wide ones of a switch, by the narrow ones that it has left.
    Back,
}

/// The columns to be replaced, and how the statements say it.
struct Plan {
    target: Target,
    direction: Direction,
    columns: Vec<Column>,
    wide: Vec<CString>,
    steps: Vec<Step>,
    drops: Vec<Vec<u8>>,
    remakes: Vec<Vec<u8>>,
}

impl Plan {
    /// `is_switching` in the transaction that has locked the tables.
    fn make(
        database: &mut SpiDatabase,
        named: &NamedColumn,
        direction: Direction,
        is_switching: bool,
    ) -> Result<Self, Unwidenable> {
        let target = Target::find(database, named, Aim::Ids { rewrite: true })?;
        let mut refusals: Vec<Unwidenable> = Vec::new();
        let mut columns = Vec::new();
        let narrow = match direction {
            Direction::Forth => database.ask(with_holders!("../convert/narrow.sql"), &pairs(&[target.column])),
            Direction::Back => {
                columns = switched(database, &target);
                Vec::new()
            }
        };
        for row in narrow {
            let [table, column, type_name] = [3, 4, 5].map(|number| text(&row, number).expect("all three have names"));
            let [is_plain, is_partition_key] = [6, 7].map(|number| given::<bool>(&row, number));
            if !is_plain {
                refusals.push(Unconvertible::Type { table, column, type_name }.into());
            } else if is_partition_key {
                refusals.push(Unconvertible::PartitionKey { table, column, type_name }.into());
            } else {
                columns.push(Column { table: given(&row, 1), number: given(&row, 2) });
            }
        }
        let [rels, atts] = pairs(&columns);
        let refused = concat!(include_str!("dependents.sql"), include_str!("refused.sql"));
        for row in database.ask(refused, &[rels, atts, is_switching.into()]) {
            let [reason, table, object] = [1, 2, 3].map(|number| text(&row, number).expect("all three have names"));
            refusals.push(Unwidenable::Table { reason, table, object });
        }
        let mut plan = Self {
            target,
            direction,
            columns,
            wide: Vec::new(),
            steps: Vec::new(),
            drops: Vec::new(),
            remakes: Vec::new(),
        };
        if refusals.is_empty() && !plan.columns.is_empty() {
            plan.find_steps(database, &mut refusals);
        }
        match refusals.len() {
            0 => Ok(plan),
            1 => Err(refusals.remove(0)),
            _ => Err(Unwidenable::Several(refusals)),
        }
    }

    fn find_steps(&mut self, database: &mut SpiDatabase, refusals: &mut Vec<Unwidenable>) {
        let mut names = Vec::new();
        for (row, column) in database.ask(with_kept!("columns.sql"), &pairs(&self.columns)).iter().zip(&self.columns) {
            self.wide.push(given(row, 1));
            let [other, name, kind] = [2, 3, 4].map(|number| bytes(&given::<CString>(row, number)));
            names.push((column.table, Replaced { name, other, kind }));
        }
        let (mut objects, mut texts) = (Vec::new(), Vec::new());
        for row in database.ask(with_columns!("texts.sql"), &self.arguments()) {
            let [object, table] = [1, 2].map(|number| given::<Oid>(&row, number));
            let of_table: Vec<_> =
                names.iter().filter(|(rel, _)| *rel == table).map(|(_, replaced)| replaced).collect();
            let (renamed, count) = names::replace(given::<CString>(&row, 3).to_bytes(), &of_table);
            let name = text(&row, 5).expect("it has a name");
            if count != given::<i64>(&row, 4) {
                refusals.push(Unwidenable::Text(name));
                continue;
            }
            let expressions = names::replace(given::<CString>(&row, 6).to_bytes(), &of_table).0;
            if !expressions.is_empty() {
                let from = given::<CString>(&row, 7);
                let query = [b"SELECT ", &expressions[..], b" ", from.to_bytes()].concat();
                if let Some(message) = database.misfit(&CString::new(query).expect("a text holds no NUL")) {
                    refusals.push(Unwidenable::Function { object: name, message });
                    continue;
                }
            }
            // The others are only tried.
            if object != Oid::INVALID {
                objects.push(object);
                texts.push(CString::new(renamed).expect("a text holds no NUL"));
            }
        }
        let texts: Vec<_> = texts.iter().map(CString::as_c_str).collect();
        let [rels, atts, wide] = self.arguments();
        for row in database.ask(with_keys!("steps.sql"), &[rels, atts, wide, objects.into(), texts.into()]) {
            let [what, locks] = [3, 5].map(|number| value::<CString>(&row, number).map(|text| bytes(&text)));
            let statement = bytes(&given::<CString>(&row, 4));
            self.steps.push(Step { phase: given(&row, 1), place: given(&row, 2), what, statement, locks });
        }
        let mut unwritten = Vec::new();
        let mut tables = Vec::new();
        for column in &self.columns {
            let [table, _] = self::names(database, *column);
            tables.push(table);
        }
        let remake = concat!(include_str!("dependents.sql"), include_str!("../convert/remake.sql"));
        for row in database.ask(remake, &pairs(&self.columns)) {
            let statement: CString = given(&row, 2);
            match given::<i32>(&row, 1) {
                0 => self.drops.push(bytes(&statement)),
                1 => {
                    let statement = bytes(&statement);
                    if names::lists_places(&statement, &tables) {
                        let head = legible(&statement).into_owned();
                        let words = head.split([' ', '\n']).take_while(|word| !["AS", "RETURNS"].contains(word));
                        let words = words.filter(|word| !["", "CREATE", "OR", "REPLACE"].contains(word));
                        let object = words.collect::<Vec<_>>().join(" ");
                        unwritten.push(format!("{object}: it lists columns by their places"));
                    }
                    self.remakes.push(statement);
                }
                _ => unwritten.push(legible(statement.to_bytes()).into_owned()),
            }
        }
        if !unwritten.is_empty() {
            refusals.push(Unwidenable::Unwritten(unwritten.join("\n")));
        }
    }

    /// The columns as arguments: their tables, their numbers, and the names of the wide ones.
    fn arguments(&self) -> [DatumWithOid<'_>; 3] {
        let [rels, atts] = pairs(&self.columns);
        let wide: Vec<_> = self.wide.iter().map(CString::as_c_str).collect();
        [rels, atts, wide.into()]
    }

    /// What the switch runs, in order: all, or what does not depend on how far the build is.
    fn switch(&self, is_all: bool) -> Vec<&[u8]> {
        let own = |is_last: bool| {
            self.steps
                .iter()
                .filter(move |step| step.phase == SWITCH && (step.place == LAST_OF_SWITCH) == is_last)
                .filter(move |step| is_all || !LEFT_OVER.contains(&step.place))
                .map(|step| step.statement.as_slice())
        };
        let drops = self.drops.iter().map(Vec::as_slice);
        drops.chain(own(false)).chain(self.remakes.iter().map(Vec::as_slice)).chain(own(true)).collect()
    }

    /// A number for all that the catalogs have decided: FNV-1a, because it only has to notice a
    /// change.
    fn fingerprint(&self) -> String {
        let built = |step: &&Step| step.phase < BUILD || step.phase == BUILD && step.place >= FIRST_OF_BUILD;
        let built = self.steps.iter().filter(built).map(|step| step.statement.as_slice());
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in built.chain(self.switch(false)).flat_map(|text| text.iter().chain(b"\n")) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut text = match self.direction {
            Direction::Forth => String::new(),
            Direction::Back => BACK.to_owned(),
        };
        write!(text, "{hash:016x}").expect("a String takes all");
        text
    }

    /// The rows of all phases, or those of the way back.
    fn rows(&self, database: &mut SpiDatabase, is_converted: bool) -> Vec<Row> {
        let is_forth = self.direction == Direction::Forth;
        let phase = |number: i32| {
            let name =
                if is_forth { PHASES[usize::try_from(number).expect("a phase's number is small")] } else { BACK };
            Some(name.trim_end().as_bytes().to_vec())
        };
        let [table, column] = names(database, self.target.column);
        let mut rows: Vec<Row> = Vec::new();
        if !self.columns.is_empty() {
            let notes = if is_forth { database.ask(with_columns!("notes.sql"), &self.arguments()) } else { Vec::new() };
            for row in notes {
                rows.push([phase(0), Some(bytes(&given::<CString>(&row, 1))), None, None]);
            }
            for view in self
                .remakes
                .iter()
                .filter_map(|statement| statement.strip_prefix(b"REFRESH MATERIALIZED VIEW "))
                .filter(|_| is_forth)
            {
                let note = [view, b": is filled again in the switch, under its locks"].concat();
                rows.push([phase(0), Some(note), None, None]);
            }
            if !is_forth {
                for row in database.ask(with_columns!("fits.sql"), &self.arguments()) {
                    let texts = [1, 2, 3].map(|number| Some(bytes(&given::<CString>(&row, number))));
                    let [step, statement, locks] = texts;
                    rows.push([phase(BUILD), step, statement, locks]);
                }
            }
            let first = if is_forth { 0 } else { BUILD };
            for step in self.steps.iter().filter(|step| (first..SWITCH).contains(&step.phase)) {
                rows.push([phase(step.phase), step.what.clone(), Some(step.statement.clone()), step.locks.clone()]);
            }
            rows.push(self.switch_row(database, phase(SWITCH), &table, &column));
        }
        let tables = database.ask(with_holders!("tables.sql"), &pairs(&[self.target.column]));
        let tables: Vec<Oid> = tables.iter().map(|row| given(row, 1)).collect();
        let former = switched(database, &self.target);
        let ([rels, atts, wide], [former_rels, former_atts]) = (self.arguments(), pairs(&former));
        let arguments = [rels, atts, wide, tables.into(), former_rels, former_atts];
        for row in database.ask(with_keys!("clean.sql"), &arguments) {
            let [step, statement, locks] = [2, 3, 4].map(|number| Some(bytes(&given::<CString>(&row, number))));
            rows.push([phase(given(&row, 1)), step, statement, locks]);
        }
        if is_converted {
            let sql = "SELECT format('SELECT %I.snowflake_convert(%L, %L);', nspname, $1::text, $2::text)::cstring
                       FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'snowflake_id'";
            let [table_name, column_name] =
                [&table, &column].map(|name| CString::new(name.clone()).expect("a name holds no NUL"));
            let row = database.ask(sql, &[table_name.as_c_str().into(), column_name.as_c_str().into()]).remove(0);
            rows.push([
                phase(6),
                Some(b"draw ids".to_vec()),
                Some(bytes(&given::<CString>(&row, 1))),
                Some([&table[..], b": ACCESS EXCLUSIVE, for a moment"].concat()),
            ]);
        }
        rows
    }

    /// The row of the switch: one statement that makes the plan again under its locks.
    fn switch_row(&self, database: &mut SpiDatabase, phase: Option<Vec<u8>>, table: &[u8], column: &[u8]) -> Row {
        let row = database.ask(with_columns!("locked.sql"), &self.arguments()).remove(0);
        let [list, locked] = [1, 2].map(|number| bytes(&given::<CString>(&row, number)));
        let [first_table, first_column] = names(database, self.columns[0]);
        let unless = [
            if self.direction == Direction::Forth { &b""[..] } else { b"NOT " },
            b"snowflake_plan.widen_has(",
            &literal(&first_table),
            b", 'bigint', ",
            &literal(&first_column),
            b")",
        ]
        .concat();
        let expect = [
            b"SELECT snowflake_plan.widen_expect(",
            &literal(table)[..],
            b", ",
            &literal(column),
            b", ",
            &literal(self.fingerprint().as_bytes()),
            b")",
        ]
        .concat();
        let statements: Vec<_> = std::iter::once(&expect[..])
            .chain(self.switch(true))
            .map(|statement| [b"    ", &literal(statement)[..]].concat())
            .collect();
        let call = [
            b"CALL snowflake_plan.widen_step(",
            &literal(&unless)[..],
            b", ",
            &literal(&list),
            b", ARRAY[\n",
            &statements.join(&b",\n"[..]),
            b"]);",
        ]
        .concat();
        let what = match self.direction {
            Direction::Forth => &b"put the new columns in the place of the old ones"[..],
            Direction::Back => b"put the old columns in the place of the new ones",
        };
        [phase, Some(what.to_vec()), Some(call), Some([&locked[..], b": ACCESS EXCLUSIVE, for a moment"].concat())]
    }
}

/// The column's table as in SQL, and its name.
fn names(database: &mut SpiDatabase, column: Column) -> [Vec<u8>; 2] {
    let sql = "SELECT format('%I.%I', nspname, relname)::cstring, attname::text::cstring
               FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_attribute ON attrelid = c.oid
               WHERE c.oid = $1 AND attnum = $2";
    let row = database.ask(sql, &column.arguments()).remove(0);
    [1, 2].map(|number| bytes(&given::<CString>(&row, number)))
}

/// The columns of a switch whose former columns are still there.
fn switched(database: &mut SpiDatabase, target: &Target) -> Vec<Column> {
    let column = |row: &_| Column { table: given(row, 1), number: given(row, 2) };
    let wide: Vec<_> = database.ask(with_holders!("wide.sql"), &pairs(&[target.column])).iter().map(column).collect();
    database.ask(with_kept!("switched.sql"), &pairs(&wide)).iter().map(column).collect()
}

fn in_database<T>(
    command: &'static CStr,
    work: impl FnOnce(&mut SpiDatabase) -> Result<T, Unwidenable>,
) -> Result<T, Unwidenable> {
    backend::require_writable(command);
    // As the statements are run. PostgreSQL writes strings by the setting.
    backend::with_settings(&[(c"standard_conforming_strings", c"on")], || {
        backend::with_trusted_settings(|| Spi::connect_mut(|client| work(&mut SpiDatabase(client))))
    })
}

/// Returns the statements that widen a column, and all columns that refer to it, in order.
///
/// # Errors
/// All of [`Unwidenable`] but `Outdated` and `Busy`.
pub fn widen(relation: Oid, attribute: &CStr, is_converted: bool) -> Result<Vec<Row>, Unwidenable> {
    let named = NamedColumn { relation, attribute: attribute.to_owned() };
    in_database(c"snowflake_widen()", |database| {
        let plan = Plan::make(database, &named, Direction::Forth, false)?;
        Ok(plan.rows(database, is_converted))
    })
}

/// Returns the statements that undo what those of [`widen`] have made, before the switch, or after
/// it while the former columns are there.
///
/// # Errors
/// Those of finding the column, and after the switch those of [`widen`].
pub fn widen_back(relation: Oid, attribute: &CStr) -> Result<Vec<Row>, Unwidenable> {
    let named = NamedColumn { relation, attribute: attribute.to_owned() };
    in_database(c"snowflake_widen_back()", |database| {
        let plan = Plan::make(database, &named, Direction::Back, false)?;
        if !plan.columns.is_empty() {
            return Ok(plan.rows(database, false));
        }
        let narrow: Vec<_> = database
            .ask(with_holders!("../convert/narrow.sql"), &pairs(&[plan.target.column]))
            .iter()
            .map(|row| Column { table: given(row, 1), number: given(row, 2) })
            .collect();
        let rows = database.ask(with_kept!("back.sql"), &pairs(&narrow));
        let texts = |row: &_| [2, 3, 4].map(|number| value::<CString>(row, number).map(|text| bytes(&text)));
        Ok(rows
            .iter()
            .map(texts)
            .map(|[step, statement, locks]| [Some(BACK.trim_end().as_bytes().to_vec()), step, statement, locks])
            .collect())
    })
}

/// Refuses the switch if what depends on the columns has changed since `fingerprint` was taken.
///
/// # Errors
/// [`Unwidenable::Outdated`], and those of [`widen`].
pub fn expect(relation: Oid, attribute: &CStr, fingerprint: &[u8]) -> Result<(), Unwidenable> {
    let named = NamedColumn { relation, attribute: attribute.to_owned() };
    in_database(c"snowflake_plan.widen_expect()", |database| {
        let direction = if fingerprint.starts_with(BACK.as_bytes()) { Direction::Back } else { Direction::Forth };
        let plan = Plan::make(database, &named, direction, true)?;
        if plan.fingerprint().as_bytes() == fingerprint {
            Ok(())
        } else {
            Err(Unwidenable::Outdated(plan.target.table_name))
        }
    })
}

/// `$1` relations: those that exist and that the caller may change, in order.
const OWNED: &str = "
SELECT DISTINCT c.oid FROM unnest($1) AS named (rel) JOIN pg_class c ON c.oid = rel WHERE pg_has_role(relowner, 'USAGE') ORDER BY 1";

/// Locks relations at one moment, until the transaction ends; none that the caller does not own.
///
/// # Errors
/// [`Unwidenable::Busy`] when `lock_timeout` has passed.
pub fn lock(relations: &[Oid], is_against_readers: bool) -> Result<(), Unwidenable> {
    let find = || {
        backend::with_trusted_settings(|| {
            Spi::connect_mut(|client| {
                let arguments: Arguments = &[relations.to_vec().into()];
                let found = SpiDatabase(client).ask_for::<Oid>(OWNED, arguments);
                Ok(found.into_iter().map(|relation| Lock { relation, is_against_readers }).collect::<Vec<_>>())
            })
        })
    };
    locks::lock_relations(find()?, find)
}

/// Notes where a fill stands, as the comment of the oldest trigger that keeps columns of the table
/// equal.
pub fn note(relation: Oid, note: &str) {
    let note = CString::new(note).expect("a text holds no NUL");
    backend::with_trusted_settings(|| {
        Spi::connect_mut(|client| {
            let trigger = SpiDatabase(client).ask_for::<Oid>(
                "SELECT min(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
                 WHERE tgrelid = $1 AND tgfoid = 'snowflake_plan.widen_keep()'::regprocedure AND pg_has_role(relowner, 'USAGE')",
                &[relation.into()],
            );
            for trigger in trigger {
                backend::comment_on_trigger(trigger, &note);
            }
        });
    });
}
