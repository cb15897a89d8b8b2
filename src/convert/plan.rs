//! What has to be done to convert columns, by the catalogs and the stored values, and everything
//! that forbids it. No `unsafe`. Changes nothing but the tag that values are taken from.

use std::collections::HashMap;
use std::ffi::{CStr, CString};

use pgrx::pg_sys::Oid;
use snowflake_core::fleet::segment::END;

use super::database::{Column, SpiDatabase, given, pairs, text, value};
use super::target::{Aim, Former, NamedColumn, Target};
use super::unconvertible::{ConversionNotice, Suspects, Unconvertible};
use crate::ids::dense::Takeover;
use crate::ids::layouts;
use crate::ids::next;
use crate::postgres::backend::Lock;
use crate::postgres::restricted::run_as;
use crate::postgres::text::{legible, to_utf8};

/// JavaScript represents every integer up to this one exactly: 2^53 - 1.
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// The greatest value from which on a tag is made to go on. Others may use the tag, and nothing
/// lowers it again, so it keeps a million million values.
const LAST_START: i64 = END - 1_000_000_000_000;

/// The functions that become defaults.
pub const NEXT: &CStr = c"snowflake_next";
pub const SEGMENT_NEXT: &CStr = c"snowflake_segment_next";

/// A statement about columns with their tables' partitions and children.
macro_rules! with_family {
    ($file:literal) => {
        concat!(include_str!("family.sql"), include_str!($file))
    };
}

/// The same, beside the functions of the extension that a default may call.
macro_rules! with_ours {
    ($file:literal) => {
        concat!(include_str!("family.sql"), include_str!("ours.sql"), include_str!($file))
    };
}

/// The same, beside a name for an identity's sequence.
macro_rules! with_sequence {
    ($file:literal) => {
        concat!(
            include_str!("family.sql"),
            include_str!("ours.sql"),
            include_str!("sequence_name.sql"),
            include_str!($file)
        )
    };
}

/// A statement about all columns that hold the values of columns.
macro_rules! with_holders {
    ($file:literal) => {
        concat!(include_str!("holds.sql"), include_str!($file))
    };
}

/// A statement about the objects that prevent a new type.
macro_rules! with_found {
    ($file:literal) => {
        concat!(include_str!("found.sql"), include_str!($file))
    };
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
fn narrow(database: &mut SpiDatabase, columns: &[Column], rewrite: bool, refusals: &mut Refusals) -> Vec<Column> {
    let mut narrow = Vec::new();
    let mut labels = Vec::new();
    for row in database.ask(with_holders!("narrow.sql"), &pairs(columns)) {
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
    // There are none if all are inherited from one that cannot be widened. That is refused already,
    // and a rewrite would not help.
    if !rewrite && !labels.is_empty() {
        refusals.add(Unconvertible::TooNarrow(labels.join("\n")));
    }
    for row in database.ask(include_str!("two_parents.sql"), &pairs(&narrow)) {
        let [table, column] = [1, 2].map(|number| text(&row, number).expect("both have names"));
        refusals.add(Unconvertible::TwoParents { table, column });
    }
    narrow
}

/// Finds the CHECK constraints that the next value, which the columns will hold, violates. Returns
/// those of which this is not certain, each with the reason.
fn check_constraints(
    database: &mut SpiDatabase,
    columns: &[Column],
    next: i64,
    draws_ids: bool,
    refusals: &mut Refusals,
) -> Vec<String> {
    let mut uncertain = Vec::new();
    let [rels, atts] = pairs(columns);
    for row in database.ask(with_holders!("constraints.sql"), &[rels, atts, next.into(), draws_ids.into()]) {
        let [constraint, definition, table, column] =
            [1, 2, 3, 4].map(|number| text(&row, number).expect("all four have names"));
        let reason = match value::<CString>(&row, 7) {
            None => "names other columns as well".to_owned(),
            Some(question) => {
                let answer = || database.rows(&question, &[]).first().and_then(|row| value::<bool>(row, 1));
                match run_as(given(&row, 6), answer) {
                    Ok(answer) if answer != Some(false) => continue,
                    Err(failure) if !failure.is_of_data => format!("could not be checked: {}", failure.message),
                    _ if given(&row, 5) => {
                        refusals.add(Unconvertible::Constraint { constraint, definition, table, column, next });
                        continue;
                    }
                    _ => "does not permit the next value".to_owned(),
                }
            }
        };
        uncertain.push(format!("{constraint}, on column {column} of table {table}: {reason}"));
    }
    uncertain
}

/// What depends on columns to be widened, so that PostgreSQL does not change their type.
#[derive(Default)]
pub struct Dependents {
    /// Each object and what it depends on; empty if there is none.
    objects: String,
    /// The statements that drop them, and those that create them again.
    pub drops: Vec<CString>,
    pub remakes: Vec<CString>,
}

impl Dependents {
    /// Finds the dependent objects. Any is an error, unless a dry run asks for the statements and
    /// all of them can be written.
    fn find(database: &mut SpiDatabase, narrow: &[Column], dry_run: bool) -> Result<Self, Unconvertible> {
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
    /// How the caller reads statements that are shown shorter than they run.
    shown: HashMap<CString, CString>,
    sequences: Vec<CString>,
    /// The sequences that stay, with what uses them.
    kept: Vec<(String, String)>,
    identity: Option<NewIdentity>,
    /// The columns that need a step, by their places from 1.
    places: Vec<i64>,
}

/// An identity in place of a tag, or of ids.
pub struct NewIdentity {
    /// The statement, without where the identity starts.
    pub statement: CString,
    /// The tag that the column has drawn from, in the database's encoding; `None` if it was ids.
    tag: Option<CString>,
    /// The statements that let partitions and children draw from the identity's sequence, where
    /// they do not inherit the identity.
    pub partitions: Vec<CString>,
}

impl Steps {
    fn find(
        database: &mut SpiDatabase,
        targets: &[Target],
        aim: Aim,
        visible: Option<Oid>,
        refusals: &mut Refusals,
    ) -> Self {
        let columns: Vec<_> = targets.iter().map(|target| target.column).collect();
        let (function, argument) = match aim {
            Aim::Identity(former) => return Self::find_identity(database, targets, former, refusals),
            Aim::Ids { .. } => (NEXT, None),
            Aim::Tag(tag) => (SEGMENT_NEXT, Some(tag)),
        };
        let mut steps = Self::find_sequences(database, &columns, refusals);
        let [rels, atts] = pairs(&columns);
        let identities = database.ask(with_family!("drop_identity.sql"), &pairs(&columns));
        let arguments = [rels, atts, function.into(), argument.into(), visible.into()];
        let defaults = database.ask(with_ours!("set_default.sql"), &arguments);
        let shorter = |row| Some((given(row, 1), value(row, 3)?));
        steps.shown = defaults.iter().filter_map(shorter).collect();
        for (rows, statements) in [(identities, &mut steps.identities), (defaults, &mut steps.defaults)] {
            steps.places.extend(rows.iter().map(|row| given::<i64>(row, 2)));
            statements.extend(rows.iter().map(|row| given::<CString>(row, 1)));
        }
        steps
    }

    /// Finds what makes a column that draws from a tag, or ids, an identity; nothing if it is one.
    fn find_identity(database: &mut SpiDatabase, targets: &[Target], former: Former, refusals: &mut Refusals) -> Self {
        let columns: Vec<_> = targets.iter().map(|target| target.column).collect();
        let rows = database.ask(with_sequence!("set_identity.sql"), &pairs(&columns));
        let Some(row) = rows.first() else { return Self::default() };
        let mut steps = Self::find_sequences(database, &columns, refusals);
        let place: i64 = given(row, 1);
        let Target { table_name, column_name, .. } = &targets[place as usize - 1];
        let (table, column) = (table_name.clone(), column_name.clone());
        match (former, value::<CString>(row, 5)) {
            (Former::Tag, None) => {
                refusals.add(Unconvertible::NoTag { table: table.clone(), column: column.clone() });
            }
            (Former::Tag, tag) => {
                steps.identity = Some(NewIdentity { statement: given(row, 4), tag, partitions: Vec::new() });
            }
            (Former::Ids, _) if !given::<bool>(row, 7) => {
                refusals.add(Unconvertible::NoIdsDrawn { table: table.clone(), column: column.clone() });
            }
            (Former::Ids, _) => {
                let partitions = database.ask_for(with_sequence!("partition_defaults.sql"), &pairs(&columns));
                // Their defaults need the sequence's name.
                let statement = if partitions.is_empty() { given(row, 4) } else { given(row, 8) };
                steps.identity = Some(NewIdentity { statement, tag: None, partitions });
            }
        }
        if let (Former::Tag, Some(child)) = (former, text(row, 6)) {
            refusals.add(Unconvertible::Child { table, column, child });
        }
        steps.defaults.push(given(row, 2));
        steps.defaults.extend(value::<CString>(row, 3));
        steps.places.push(place);
        steps
    }

    /// Finds what becomes of the sequences that belong to the columns.
    fn find_sequences(database: &mut SpiDatabase, columns: &[Column], refusals: &mut Refusals) -> Self {
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
        Self { sequences, kept, places, ..Self::default() }
    }
}

/// What has to be done, by the present catalogs.
pub struct Plan {
    /// The columns that are not as they are to be.
    targets: Vec<Target>,
    /// What PostgreSQL will lock.
    pub locked: Vec<Lock>,
    /// The statement that locks out other sessions, and then those that change something; none if
    /// everything is done.
    pub lock: CString,
    pub statements: Vec<CString>,
    /// How the caller reads some of them.
    pub shown: HashMap<CString, CString>,
    /// The columns to be widened, and each statement that rewrites a table for that.
    narrow: Vec<Column>,
    pub rewrites: Vec<(CString, Oid)>,
    /// The constraints that the next id may violate.
    uncertain: Vec<String>,
    pub dependents: Dependents,
    /// The sequences that stay, with what uses them.
    kept: Vec<(String, String)>,
    pub identity: Option<NewIdentity>,
}

impl Plan {
    /// Finds what has to be done, and everything that forbids it. A column that is wrong by itself
    /// is left out of the later checks.
    pub fn make(
        database: &mut SpiDatabase,
        command: &'static CStr,
        columns: &[NamedColumn],
        aim: Aim,
        visible: Option<Oid>,
        dry_run: bool,
    ) -> Result<Self, Unconvertible> {
        let mut refusals = Refusals::default();
        let mut targets: Vec<_> =
            columns.iter().filter_map(|named| refusals.sort(Target::find(database, named, aim))).collect();
        let columns: Vec<_> = targets.iter().map(|target| target.column).collect();
        let mut referring = Vec::new();
        for row in database.ask(with_family!("foreign_key.sql"), &pairs(&columns)) {
            let [table, column, referred] = [1, 2, 3].map(|number| text(&row, number).expect("all three have names"));
            refusals.add(Unconvertible::ForeignKey { table, column, referred });
            referring.push(columns[given::<i64>(&row, 4) as usize - 1]);
        }
        targets.retain(|target| !referring.contains(&target.column));
        let columns: Vec<_> = targets.iter().map(|target| target.column).collect();
        // A tag's values fit into narrow columns, as long as they are short.
        let narrow = match aim {
            Aim::Ids { rewrite } => narrow(database, &columns, rewrite, &mut refusals),
            Aim::Tag(_) | Aim::Identity(_) => Vec::new(),
        };
        let dependents = refusals.sort(Dependents::find(database, &narrow, dry_run)).unwrap_or_default();
        let steps = Steps::find(database, &targets, aim, visible, &mut refusals);
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
                None => locked.push(Lock::against_all(given(&row, 1))),
            }
        }
        let mut uncertain = Vec::new();
        // A caller who does not own a table must not make its owner's functions run.
        let is_owner = !refusals.0.iter().any(|reason| matches!(reason, Unconvertible::NotOwner(_)));
        if let (Aim::Ids { .. }, true, false) = (aim, is_owner, columns.is_empty()) {
            // If the server cannot draw, or has to wait, this is before anything is locked.
            if let Some(next) = refusals.sort(next::least_to_come(command).map_err(Unconvertible::from)) {
                uncertain = check_constraints(database, &columns, next, true, &mut refusals);
            }
        }
        refusals.end()?;
        let mut statements = steps.identities;
        let mut rewrites = Vec::new();
        for row in database.ask(include_str!("widen.sql"), &pairs(&narrow)) {
            statements.push(given(&row, 1));
            rewrites.extend(value(&row, 2).map(|table| (given(&row, 1), table)));
        }
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
        let Steps { shown, kept, identity, .. } = steps;
        Ok(Self { targets, locked, lock, statements, shown, narrow, rewrites, uncertain, dependents, kept, identity })
    }

    /// Returns where the values come from that are taken over; `None` if these are ids.
    fn takeover(&self, command: &'static CStr, aim: Aim) -> Result<Option<Takeover>, Unconvertible> {
        let tag = match aim {
            Aim::Ids { .. } => None,
            Aim::Tag(tag) => Some(tag),
            Aim::Identity(_) => self.identity.as_ref().and_then(|identity| identity.tag.as_deref()),
        };
        Ok(tag.map(|tag| Takeover::find(command, &to_utf8(tag.to_bytes()))).transpose()?)
    }

    /// Finds out whether this server can draw, or has to wait, where the plan has not yet done so.
    pub fn try_to_draw(&self, command: &'static CStr, aim: Aim) -> Result<(), Unconvertible> {
        match (self.takeover(command, aim)?, aim) {
            (Some(takeover), _) => _ = takeover.next()?,
            (None, Aim::Identity(_)) => _ = next::least_to_come(command)?,
            (None, _) => {}
        }
        Ok(())
    }

    /// Returns the next value of the columns, which is above all stored ones. With `dry_run`, a tag
    /// is not raised to it.
    pub fn next_value(
        &self,
        database: &mut SpiDatabase,
        command: &'static CStr,
        aim: Aim,
        dry_run: bool,
    ) -> Result<i64, Unconvertible> {
        match (self.takeover(command, aim)?, aim) {
            (Some(takeover), _) => self.take_over(database, takeover, aim, dry_run),
            (None, Aim::Identity(_)) => self.go_on(database, command),
            (None, _) => self.check_values(database, command),
        }
    }

    /// Returns the greatest stored value of each column.
    fn stored(&self, database: &mut SpiDatabase) -> Vec<Option<i64>> {
        let mut stored = Vec::new();
        for target in &self.targets {
            let arguments = target.column.arguments();
            let question: CString =
                database.ask_for(include_str!("greatest.sql"), &arguments).pop().expect("the column exists");
            stored.push(database.rows(&question, &[]).first().and_then(|row| value::<i64>(row, 1)));
        }
        stored
    }

    /// Makes the next value one above all that are stored, or that sequences may have given, and
    /// returns it. With `dry_run`, returns what it would be.
    fn take_over(
        &self,
        database: &mut SpiDatabase,
        takeover: Takeover,
        aim: Aim,
        dry_run: bool,
    ) -> Result<i64, Unconvertible> {
        let columns: Vec<_> = self.targets.iter().map(|target| target.column).collect();
        let mut taken = self.stored(database);
        for question in database.ask_for::<CString>(with_family!("positions.sql"), &pairs(&columns)) {
            taken.push(database.rows(&question, &[]).first().and_then(|row| value::<i64>(row, 1)));
        }
        let least = taken.into_iter().flatten().max().map_or(i64::MIN, |taken| taken.saturating_add(1));
        let check = |next: i64| match self.targets.iter().find(|target| next > target.limit) {
            Some(target) => Err(Unconvertible::OutOfRange {
                table: target.table_name.clone(),
                column: target.column_name.clone(),
                type_name: target.type_name.clone(),
                limit: target.limit,
                next,
            }),
            None => Ok(next),
        };
        if matches!(aim, Aim::Tag(_))
            && database.ask_for::<bool>(with_ours!("draws_ids.sql"), &pairs(&columns)).contains(&true)
        {
            let target = self.targets.first().expect("there is a column");
            let (table, column) = (target.table_name.clone(), target.column_name.clone());
            return Err(Unconvertible::DrawsIds { table, column });
        }
        let before = takeover.next()?;
        check(before.max(least))?;
        if least > LAST_START {
            return Err(Unconvertible::TooFar { least, last: LAST_START });
        }
        // Before the tag is raised, because a rollback does not lower it.
        let mut refusals = Refusals::default();
        check_constraints(database, &columns, before.max(least), false, &mut refusals);
        refusals.end()?;
        // The registry does not tell which servers have blocks.
        if let Aim::Tag(tag) = aim
            && least > 1
        {
            ConversionNotice::OtherBlocks { tag: &legible(tag.to_bytes()), least }.send();
        }
        check(match aim {
            _ if dry_run => before.max(least),
            Aim::Identity(_) => takeover.fresh()?.max(least),
            Aim::Ids { .. } | Aim::Tag(_) => takeover.raise(least)?,
        })
    }

    /// Returns the first value of an identity in place of ids: above all that are stored, and all
    /// that this server has drawn.
    fn go_on(&self, database: &mut SpiDatabase, command: &'static CStr) -> Result<i64, Unconvertible> {
        let stored = self.stored(database).into_iter().flatten().max();
        // After them, because a session that stores an id by hand has drawn it before.
        let drawn = next::above_drawn(command)?;
        let least = stored.map_or(Some(drawn), |stored| stored.checked_add(1).map(|least| least.max(drawn)));
        match (least, self.targets.first()) {
            (Some(least), _) => Ok(least),
            (None, target) => {
                let target = target.expect("there is a column");
                Err(Unconvertible::NoRoom { table: target.table_name.clone(), column: target.column_name.clone() })
            }
        }
    }

    /// Checks that all stored values are below the next id, and returns that id.
    fn check_values(&self, database: &mut SpiDatabase, command: &'static CStr) -> Result<i64, Unconvertible> {
        let stored = self.stored(database);
        // After them, because a session that stores an id by hand has drawn it before.
        let next = next::least_to_come(command)?;
        for (target, greatest) in self.targets.iter().zip(stored) {
            if let Some(greatest) = greatest.filter(|greatest| *greatest >= next) {
                let (table, column) = (target.table_name.clone(), target.column_name.clone());
                return Err(Unconvertible::ValuesAhead { table, column, greatest, next });
            }
        }
        Ok(next)
    }

    /// Finds what may fail with the new values, though the catalogs do not connect it with the
    /// columns.
    pub fn suspects(&self, database: &mut SpiDatabase, aim: Aim) -> Suspects {
        let columns: Vec<_> = self.targets.iter().map(|target| target.column).collect();
        let [rels, atts] = pairs(&columns);
        let draws_ids = matches!(aim, Aim::Ids { .. });
        let mut suspects = Suspects::default();
        for row in database.ask(with_family!("suspects.sql"), &[rels, atts, draws_ids.into()]) {
            suspects.functions += usize::from(given::<bool>(&row, 1));
            suspects.lines.push(given(&row, 2));
        }
        suspects
    }

    /// Tells the user about the consequences.
    pub fn announce(
        &self,
        database: &mut SpiDatabase,
        aim: Aim,
        next: i64,
        suspects: &Suspects,
    ) -> Result<(), Unconvertible> {
        let layout = if matches!(aim, Aim::Ids { .. }) { Some(layouts::configured()?) } else { None };
        if let Some(layout) = layout.filter(|layout| layout.max_id() > MAX_SAFE_INTEGER) {
            ConversionNotice::Beyond2_53(&layout).send();
        }
        if !self.dependents.objects.is_empty() {
            ConversionNotice::Dependents(&self.dependents.objects).send();
        }
        if let Some(row) = database.ask(include_str!("published.sql"), &pairs(&self.narrow)).first() {
            ConversionNotice::Published(&text(row, 1).expect("there is a table")).send();
        }
        for Target { column, table_name, .. } in &self.targets {
            let arguments = [column.table.into(), column.number.into(), next.into()];
            let question: Option<CString> = database.ask_for(include_str!("no_partition.sql"), &arguments).pop();
            if question.is_some_and(|question| given(&database.rows(&question, &[])[0], 1)) {
                ConversionNotice::NoPartition { table: table_name, next }.send();
            }
        }
        let always = self.targets.iter().filter(|target| target.is_always);
        let always: Vec<_> = always.map(|target| format!("{}.{}", target.table_name, target.column_name)).collect();
        if !always.is_empty() && !matches!(aim, Aim::Identity(_)) {
            ConversionNotice::Always(&always).send();
        }
        if !self.uncertain.is_empty() {
            ConversionNotice::Constraints(&self.uncertain).send();
        }
        for (sequence, objects) in &self.kept {
            ConversionNotice::SequenceKept { sequence, objects }.send();
        }
        if !suspects.lines.is_empty() {
            ConversionNotice::Suspects(suspects).send();
        }
        Ok(())
    }
}

pub fn statement<const N: usize>(parts: [&[u8]; N]) -> CString {
    CString::new(parts.concat()).expect("names hold no NUL")
}
