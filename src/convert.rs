//! Turns a table's column into a snowflake column: which statements that takes, what forbids them, and running them. No `unsafe`.
//!
//! Everything is read from the catalogs through SPI, and everything that is done is a plain `ALTER TABLE` or the like, run as
//! the caller, so that PostgreSQL checks each step as if the caller had typed it. It is one transaction, the caller's: an
//! error at any point leaves nothing changed. The catalogs are read with a search_path by which all names come out qualified,
//! and values with `row_security = off`, by which none is overlooked.
//!
//! Names are kept as they are stored, in the database's encoding; only in messages they are UTF-8.

use std::ffi::{CStr, CString};

use pgrx::datum::DatumWithOid;
use pgrx::pg_sys::Oid;
use pgrx::spi::{SpiClient, SpiHeapTupleData};
use pgrx::{FromDatum, IntoDatum, Spi};

use crate::backend;
use crate::draw;
use crate::error::{Error, Notice, Unconvertible};
use crate::layouts;
use crate::text::legible;

/// The greatest number below which each integer is one of JavaScript's: 2^53 - 1.
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// `$1` relation, `$2` attribute: what the relation is, what the column is, if there is one.
const TARGET: &str = "
SELECT c.oid::regclass::text::cstring,
       c.relkind IN ('r', 'p'),
       c.oid < 16384,
       pg_has_role(c.relowner, 'USAGE'),
       a.attnum,
       a.attname::text::cstring,
       format_type(a.atttypid, a.atttypmod)::cstring,
       CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype),
       a.attgenerated <> '',
       (WITH RECURSIVE up (rel) AS (
            SELECT c.oid
          UNION
            SELECT i.inhparent FROM up JOIN pg_inherits i ON i.inhrelid = rel
                                       JOIN pg_attribute b ON b.attrelid = i.inhparent AND b.attname = a.attname
        )
        SELECT min(p.oid::regclass::text)::cstring
        FROM up JOIN pg_class p ON p.oid = rel JOIN pg_attribute b ON b.attrelid = rel AND b.attname = a.attname
        WHERE b.attinhcount = 0 AND a.attinhcount > 0)
FROM pg_class c
     LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = $2::text::name AND a.attnum > 0 AND NOT a.attisdropped
     LEFT JOIN pg_type t ON t.oid = a.atttypid
WHERE c.oid = $1";

/// `$1` table, `$2` column: the columns that hold its values and have to become bigint. Those are the same column of the table's partitions
/// and children, the foreign key columns that refer to one of these, in any table, and so on: of each, whether something
/// forbids it.
const NARROW: &str = "
WITH RECURSIVE holds (rel, att) AS (
    SELECT attrelid, attname FROM pg_attribute WHERE attrelid = $1 AND attnum = $2
  UNION
    SELECT next.* FROM holds h, LATERAL (
        SELECT inhrelid, h.att FROM pg_inherits WHERE inhparent = h.rel
      UNION ALL
        SELECT i.inhparent, h.att FROM pg_inherits i JOIN pg_attribute a ON a.attrelid = i.inhparent AND a.attname = h.att
        WHERE i.inhrelid = h.rel
      UNION ALL
        SELECT f.conrelid, b.attname
        FROM pg_attribute a JOIN pg_constraint f ON f.confrelid = a.attrelid AND f.contype = 'f',
             unnest(f.confkey, f.conkey) AS key (referred, referring) JOIN pg_attribute b ON b.attnum = key.referring
        WHERE a.attrelid = h.rel AND a.attname = h.att AND key.referred = a.attnum AND b.attrelid = f.conrelid
    ) AS next (rel, att)
)
SELECT c.oid,
       a.attnum,
       c.oid::regclass::text::cstring,
       a.attname::text::cstring,
       format_type(a.atttypid, a.atttypmod)::cstring,
       a.atttypid IN ('int2'::regtype, 'int4'::regtype),
       EXISTS (SELECT FROM pg_depend d  -- of each column in the partition key, also in an expression
               WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = a.attnum AND d.deptype = 'i'
                     AND d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND d.refobjsubid = 0),
       c.reloftype <> 0,
       a.attinhcount > 0
FROM holds h
     JOIN pg_class c ON c.oid = h.rel
     JOIN pg_attribute a ON a.attrelid = h.rel AND a.attname = h.att
     JOIN pg_type t ON t.oid = a.atttypid
WHERE CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END <> 'int8'::regtype
ORDER BY c.oid <> $1, c.oid, a.attnum";

/// `$1` tables, `$2` their columns, in pairs: what depends on one of them in a way that forbids another type. That includes columns
/// that are made of its table's row type, as an array, a domain, a range, or a part of another row type, and expressions
/// that name such a type.
const DEPENDENTS: &str = "
WITH RECURSIVE narrow AS (SELECT * FROM unnest($1, $2) AS narrow (rel, att)),
     made_of (rel, type) AS (
    SELECT DISTINCT rel, t.oid FROM narrow JOIN pg_type t ON t.typrelid = rel
  UNION
    SELECT m.rel, CASE WHEN d.classid = 'pg_type'::regclass THEN d.objid ELSE c.reltype END
    FROM made_of m
         JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid = m.type
         LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind IN ('c', 'v')
    WHERE d.classid = 'pg_type'::regclass OR c.reltype <> 0
),
     found (rel, att, classid, objid, objsubid) AS (
    SELECT rel, att, classid, objid, objsubid
    FROM narrow
         JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = rel AND d.refobjsubid = att
         LEFT JOIN pg_attrdef e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
    WHERE d.classid IN ('pg_rewrite'::regclass, 'pg_trigger'::regclass, 'pg_policy'::regclass,
                        'pg_publication_rel'::regclass, 'pg_proc'::regclass)
       OR e.adnum <> att
  UNION
    SELECT m.rel, 0, classid, objid, objsubid
    FROM made_of m
         JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid = m.type AND d.deptype = 'n'
         LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
    WHERE d.classid IN ('pg_rewrite'::regclass, 'pg_constraint'::regclass, 'pg_trigger'::regclass, 'pg_policy'::regclass,
                        'pg_attrdef'::regclass, 'pg_statistic_ext'::regclass)
       OR c.relkind IN ('r', 'm', 'p', 'f') OR d.objsubid = 0 AND c.oid IS NOT NULL
)
SELECT string_agg(DISTINCT format('%s depends on %s',
           CASE WHEN r.rulename = '_RETURN' THEN pg_describe_object('pg_class'::regclass, r.ev_class, 0)
                ELSE pg_describe_object(classid, objid, objsubid) END,
           pg_describe_object('pg_class'::regclass, rel, att)), E'\\n')::cstring
FROM found LEFT JOIN pg_rewrite r ON classid = 'pg_rewrite'::regclass AND r.oid = objid";

/// `$1` tables, `$2` their columns, in pairs: one that inherits from two, so that neither can be widened before the other.
const TWO_PARENTS: &str = "
WITH RECURSIVE below (root, rel) AS (
    SELECT rel, rel FROM unnest($1, $2) AS narrow (rel, att) JOIN pg_attribute ON attrelid = rel AND attnum = att
    WHERE attinhcount = 0
  UNION
    SELECT root, inhrelid FROM below JOIN pg_inherits ON inhparent = rel
)
SELECT c.oid::regclass::text::cstring, a.attname::text::cstring
FROM unnest($1, $2) AS narrow (rel, att)
     JOIN pg_class c ON c.oid = rel
     JOIN pg_attribute a ON a.attrelid = rel AND a.attnum = att
WHERE a.attinhcount > 1
      AND 1 < (SELECT count(*) FROM below JOIN pg_attribute b ON b.attrelid = root AND b.attname = a.attname WHERE below.rel = narrow.rel)";

/// A relation's name with its schema, whatever the search_path is that it will be read with: regclass leaves out the schema of
/// temporary tables.
macro_rules! qualified {
    ($oid:literal) => {
        concat!(
            "(SELECT format('%I.%I', nspname, relname) FROM pg_class r JOIN pg_namespace n ON n.oid = relnamespace WHERE r.oid = ",
            $oid,
            ")"
        )
    };
}

/// `$1` tables, `$2` their columns, in pairs: the statements that make them bigint. A table's partitions and children come with it.
/// A foreign key that refers to a partition, and not to its table, stands in the way of a new type of the latter.
const WIDEN: &str = concat!(
    "
WITH narrow AS (SELECT * FROM unnest($1, $2) WITH ORDINALITY AS narrow (rel, att, place)),
     obstacle AS (
    SELECT DISTINCT f.oid, f.conrelid, f.conname
    FROM narrow JOIN pg_class c ON c.oid = rel AND c.relispartition
         JOIN pg_constraint f ON f.confrelid = rel AND f.contype = 'f' AND f.conparentid = 0 AND att = ANY (f.confkey)
)
SELECT statement::cstring FROM (
    SELECT 1, 0, conrelid, conname, format('ALTER TABLE %s DROP CONSTRAINT %I', ",
    qualified!("conrelid"),
    ", conname) FROM obstacle
  UNION ALL
    SELECT 2, min(place), rel, NULL,
           format('ALTER TABLE %s %s', ",
    qualified!("rel"),
    ", string_agg(format('ALTER COLUMN %I TYPE bigint', attname), ', ' ORDER BY place))
    FROM narrow JOIN pg_attribute ON attrelid = rel AND attnum = att WHERE attinhcount = 0 GROUP BY rel
  UNION ALL
    SELECT 3, 0, conrelid, conname,
           format('ALTER TABLE %s ADD CONSTRAINT %I %s', ",
    qualified!("conrelid"),
    ", conname, pg_get_constraintdef(oid)) FROM obstacle
  UNION ALL
    SELECT 4, 0, conrelid, conname, format('COMMENT ON CONSTRAINT %I ON %s IS %L', conname, ",
    qualified!("conrelid"),
    ", description)
    FROM obstacle JOIN pg_description ON classoid = 'pg_constraint'::regclass AND objoid = oid
) AS step (number, place, rel, name, statement)
ORDER BY number, place, rel, name"
);

/// What the next three have in common. `$1` table, `$2` column: the column in the table, its partitions and its children.
macro_rules! with_family {
    ($($sql:tt)*) => {
        concat!(
            "
WITH RECURSIVE tree (rel) AS (SELECT $1 UNION SELECT inhrelid FROM tree JOIN pg_inherits ON inhparent = rel),
     family AS (
    SELECT rel, a.attnum, a.attname, a.attidentity, c.relispartition, d.oid AS def, pg_get_expr(d.adbin, d.adrelid) AS expression
    FROM pg_attribute named, tree
         JOIN pg_class c ON c.oid = rel
         JOIN pg_attribute a ON a.attrelid = rel
         LEFT JOIN pg_attrdef d ON d.adrelid = rel AND d.adnum = a.attnum
    WHERE named.attrelid = $1 AND named.attnum = $2 AND a.attname = named.attname
)",
            $($sql)*
        )
    };
}

/// The statements after which the column is no identity. (From PostgreSQL 17 on, partitions have their table's.)
const DROP_IDENTITY: &str = with_family!(
    "
SELECT format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', ",
    qualified!("rel"),
    ", attname)::cstring
FROM family
WHERE attidentity <> '' AND NOT (relispartition AND current_setting('server_version_num')::integer >= 170000)
ORDER BY rel"
);

/// The statement that gives the column its default, unless it has it everywhere.
const SET_DEFAULT: &str = with_family!(
    "
SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %I.%I()', ",
    qualified!("rel"),
    ", attname, nspname, proname)::cstring
FROM family, pg_proc p
     JOIN pg_namespace s ON s.oid = p.pronamespace
     JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_extension'::regclass
     JOIN pg_extension e ON e.oid = d.refobjid
WHERE rel = $1 AND e.extname = 'snowflake_id' AND d.deptype = 'e' AND p.proname = 'snowflake_next'
      AND EXISTS (SELECT FROM family WHERE expression IS DISTINCT FROM p.oid::regprocedure::text)"
);

/// The sequences that belong to the column: whether as an identity's, and what else uses them, if anything.
const SEQUENCES: &str = with_family!(
    "
SELECT ",
    qualified!("o.objid"),
    "::cstring,
       o.deptype = 'i',
       (SELECT string_agg(DISTINCT pg_describe_object(u.classid, u.objid, u.objsubid), E'\\n')::cstring
        FROM pg_depend u
        WHERE u.refclassid = 'pg_class'::regclass AND u.refobjid = o.objid AND u.deptype = 'n'
              AND NOT (u.classid = 'pg_attrdef'::regclass AND u.objid IN (SELECT def FROM family WHERE def IS NOT NULL)))
FROM family
     JOIN pg_depend o ON o.refclassid = 'pg_class'::regclass AND o.refobjid = rel AND o.refobjsubid = attnum
                         AND o.classid = 'pg_class'::regclass AND o.deptype IN ('a', 'i')
     JOIN pg_class s ON s.oid = o.objid AND s.relkind = 'S'
ORDER BY o.objid"
);

/// `$1` tables, `$2` their columns, in pairs: the statement that keeps everybody else away; partitions and children come with
/// their tables.
const LOCK: &str = concat!(
    "
SELECT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', string_agg(",
    qualified!("rel"),
    ", ', ' ORDER BY rel))::cstring
FROM (SELECT DISTINCT rel FROM unnest($1, $2) AS altered (rel, att) JOIN pg_attribute ON attrelid = rel AND attnum = att
      WHERE attinhcount = 0) AS altered
HAVING count(*) > 0"
);

/// `$1` tables, `$2` their columns to be widened, in pairs, `$3` the table, `$4` its column: what PostgreSQL locks for the
/// statements, and the name of each that is altered and is not the caller's. That is the table with its partitions and children,
/// those with a column to be widened, those at the other end of a foreign key that is made anew, and sequences that belong to
/// these columns.
const LOCKED: &str = "
WITH RECURSIVE narrow AS (SELECT * FROM unnest($1, $2) AS narrow (rel, att)),
     tree (rel) AS (SELECT $3 UNION SELECT inhrelid FROM tree JOIN pg_inherits ON inhparent = rel),
     altered (rel, att) AS (
    SELECT rel, a.attnum FROM tree JOIN pg_attribute a ON a.attrelid = rel
                                   JOIN pg_attribute named ON named.attrelid = $3 AND named.attnum = $4 AND named.attname = a.attname
  UNION
    SELECT rel, att FROM narrow
),
     anew AS (
    SELECT f.conrelid, f.confrelid, p.relispartition AND f.conparentid = 0 AND f.confrelid = rel AS is_dropped
    FROM narrow JOIN pg_constraint f ON f.contype = 'f' AND (f.confrelid = rel AND att = ANY (f.confkey)
                                                             OR f.conrelid = rel AND att = ANY (f.conkey))
         JOIN pg_class p ON p.oid = f.confrelid
)
SELECT rel, min(CASE WHEN is_altered AND NOT pg_has_role(relowner, 'USAGE') THEN rel::regclass::text END)::cstring
FROM (
    SELECT rel, true FROM altered
  UNION ALL
    SELECT conrelid, is_dropped FROM anew
  UNION ALL
    SELECT confrelid, false FROM anew
  UNION ALL
    SELECT s.oid, false
    FROM altered JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = rel AND d.refobjsubid = att
                                     AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
         JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
) AS locked (rel, is_altered) JOIN pg_class ON oid = rel
GROUP BY rel
ORDER BY rel";

/// `$1` table, `$2` column: the question for its greatest value.
const GREATEST: &str = concat!(
    "
SELECT format('SELECT max(%I)::bigint FROM %s', attname, ",
    qualified!("attrelid"),
    ")::cstring
FROM pg_attribute WHERE attrelid = $1 AND attnum = $2"
);

/// `$1` table, `$2` column, `$3` id: the question whether no partition takes that id, if the table is partitioned by the column alone.
const NO_PARTITION: &str = "
SELECT format('SELECT (%s) IS NOT TRUE FROM (SELECT %s::bigint AS %I) AS next',
              coalesce(string_agg(constraintdef, ' OR '), 'false'), $3, attname)::cstring
FROM pg_partitioned_table JOIN pg_attribute ON attrelid = partrelid
     LEFT JOIN (SELECT inhparent, coalesce(pg_get_partition_constraintdef(inhrelid), 'true')  -- NULL: all that there is
                FROM pg_inherits) AS partition (inhparent, constraintdef) ON inhparent = partrelid
WHERE partrelid = $1 AND attnum = $2 AND partnatts = 1 AND partattrs[0] = attnum
GROUP BY attname";

/// The transaction's isolation level, if it does not let a statement see what others have committed before it.
const ISOLATION: &str = "
SELECT level::cstring FROM current_setting('transaction_isolation') AS level WHERE level NOT LIKE 'read %'";

/// The function's name in messages.
const COMMAND: &CStr = c"snowflake_convert()";

/// A query's arguments.
type Arguments<'a> = &'a [DatumWithOid<'a>];

/// The session, as this file talks to it.
struct Database<'a, 'conn>(&'a mut SpiClient<'conn>);

impl<'conn> Database<'_, 'conn> {
    /// Asks for rows. By `update`, though nothing is: `select` would see what was there when the statement began, before it
    /// waited for a lock.
    fn rows(&mut self, sql: &CStr, arguments: Arguments) -> Vec<SpiHeapTupleData<'conn>> {
        self.0.update(sql, None, arguments).expect("PostgreSQL raises errors itself").collect()
    }

    fn ask(&mut self, sql: &str, arguments: Arguments) -> Vec<SpiHeapTupleData<'conn>> {
        self.rows(&CString::new(sql).expect("this file's SQL holds no NUL"), arguments)
    }

    /// The first column of each row.
    fn ask_for<T: FromDatum + IntoDatum>(&mut self, sql: &str, arguments: Arguments) -> Vec<T> {
        self.ask(sql, arguments).iter().filter_map(|row| value(row, 1)).collect()
    }
}

/// A row's value, `None` for NULL.
fn value<T: FromDatum + IntoDatum>(row: &SpiHeapTupleData, column: usize) -> Option<T> {
    row.get(column).expect("this file's SQL has that column, of that type")
}

/// A row's value that is never NULL.
fn given<T: FromDatum + IntoDatum>(row: &SpiHeapTupleData, column: usize) -> T {
    value(row, column).expect("this file's SQL yields no NULL there")
}

/// A text for messages.
fn text(row: &SpiHeapTupleData, column: usize) -> Option<String> {
    value::<CString>(row, column).map(|text| legible(text.to_bytes()).into_owned())
}

/// A column of a table, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Column {
    table: Oid,
    number: i16,
}

impl Column {
    /// The column as arguments: its table, and its number.
    fn arguments(self) -> [DatumWithOid<'static>; 2] {
        [self.table.into(), self.number.into()]
    }
}

/// Columns as arguments: their tables, and their numbers.
fn pairs(columns: &[Column]) -> [DatumWithOid<'static>; 2] {
    let tables: Vec<_> = columns.iter().map(|column| column.table).collect();
    let numbers: Vec<_> = columns.iter().map(|column| column.number).collect();
    [tables.into(), numbers.into()]
}

/// Finds the column, if the caller may change it and ids may stand in it; with its table's and its own name for messages.
fn target(database: &mut Database, relation: Oid, attribute: &CStr) -> Result<(Column, String, String), Unconvertible> {
    let rows = database.ask(TARGET, &[relation.into(), attribute.into()]);
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
    Ok((Column { table: relation, number }, table, column))
}

/// Finds the columns that have to become bigint, if they can.
fn narrow(database: &mut Database, column: Column, rewrite: bool) -> Result<Vec<Column>, Unconvertible> {
    let mut narrow = Vec::new();
    let mut labels = Vec::new();
    for row in database.ask(NARROW, &column.arguments()) {
        let [table, column, type_name] = [3, 4, 5].map(|number| text(&row, number).expect("all three have names"));
        let [is_plain, is_partition_key, is_typed, is_inherited] =
            [6, 7, 8, 9].map(|number| given::<bool>(&row, number));
        if !is_plain {
            return Err(Unconvertible::Type { table, column, type_name });
        } else if is_partition_key {
            return Err(Unconvertible::PartitionKey { table, column, type_name });
        } else if is_typed {
            return Err(Unconvertible::TypedTable { table, column });
        }
        narrow.push(Column { table: given(&row, 1), number: given(&row, 2) });
        if !is_inherited {
            labels.push(format!("column {column} of table {table} ({type_name})"));
        }
    }
    if !rewrite && !narrow.is_empty() {
        return Err(Unconvertible::TooNarrow(labels.join("\n")));
    }
    if let Some(row) = database.ask(TWO_PARENTS, &pairs(&narrow)).first() {
        let [table, column] = [1, 2].map(|number| text(row, number).expect("both have names"));
        return Err(Unconvertible::TwoParents { table, column });
    }
    match database.ask(DEPENDENTS, &pairs(&narrow)).first().and_then(|row| text(row, 1)) {
        Some(dependents) => Err(Unconvertible::Dependents(dependents)),
        None => Ok(narrow),
    }
}

/// What is to be done, as the catalogs stand.
struct Plan {
    column: Column,
    /// The names of its table (with the schema) and of itself, for messages.
    table_name: String,
    column_name: String,
    /// What PostgreSQL will lock.
    locked: Vec<Oid>,
    /// What keeps everybody else away from those that are altered, then what changes something.
    lock: CString,
    statements: Vec<CString>,
    /// The sequences that stay, with what uses them.
    kept: Vec<(String, String)>,
}

impl Plan {
    /// Finds out what is to be done, and whether something forbids it.
    fn make(database: &mut Database, relation: Oid, attribute: &CStr, rewrite: bool) -> Result<Self, Unconvertible> {
        let (column, table_name, column_name) = target(database, relation, attribute)?;
        let narrow = narrow(database, column, rewrite)?;
        let [rels, atts] = pairs(&narrow);
        let [table, number] = column.arguments();
        let mut locked = Vec::new();
        for row in database.ask(LOCKED, &[rels, atts, table, number]) {
            if let Some(table) = text(&row, 2) {
                return Err(Unconvertible::NotOwner(table));
            }
            locked.push(given(&row, 1));
        }
        let (mut drops, mut kept) = (Vec::new(), Vec::new());
        for row in database.ask(SEQUENCES, &column.arguments()) {
            let sequence: CString = given(&row, 1);
            let name = legible(sequence.to_bytes()).into_owned();
            match (given(&row, 2), text(&row, 3)) {
                // It goes with the identity.
                (true, None) => {}
                (true, Some(objects)) => return Err(Unconvertible::IdentityInUse { sequence: name, objects }),
                (false, None) => drops.push(statement([b"DROP SEQUENCE ", sequence.to_bytes()])),
                (false, Some(objects)) => {
                    // Else it would go with the column, or keep it from going.
                    drops.push(statement([b"ALTER SEQUENCE ", sequence.to_bytes(), b" OWNED BY NONE"]));
                    kept.push((name, objects));
                }
            }
        }
        // The identity first: its sequence need not be widened. The default after that, so that it need not be converted.
        let mut statements: Vec<CString> = database.ask_for(DROP_IDENTITY, &column.arguments());
        statements.extend(database.ask_for::<CString>(WIDEN, &pairs(&narrow)));
        statements.extend(database.ask_for::<CString>(SET_DEFAULT, &column.arguments()));
        statements.extend(drops);
        let altered = [&[column], &narrow[..]].concat();
        // None, if somebody has dropped it meanwhile.
        let lock =
            database.ask_for(LOCK, &pairs(&altered)).pop().ok_or(Unconvertible::NoRelation(relation.to_u32()))?;
        Ok(Self { column, table_name, column_name, locked, lock, statements, kept })
    }

    /// Sees to it that no id to come is there already, or below one that is. Returns the next id.
    fn check_values(&self, database: &mut Database) -> Result<i64, Error> {
        let question: CString = database.ask_for(GREATEST, &self.column.arguments()).pop().expect("the column exists");
        let greatest = database.rows(&question, &[]).first().and_then(|row| value(row, 1));
        // After it: whoever stored an id by hand has drawn it before.
        let next = draw::least_to_come(COMMAND)?;
        match greatest {
            Some(greatest) if greatest >= next => Err(Unconvertible::ValuesAhead {
                table: self.table_name.clone(),
                column: self.column_name.clone(),
                greatest,
                next,
            }
            .into()),
            _ => Ok(next),
        }
    }

    /// Tells the user what comes of it.
    fn announce(&self, database: &mut Database, next: i64) -> Result<(), Error> {
        let layout = layouts::configured()?;
        if layout.max_id() > MAX_SAFE_INTEGER {
            Notice::Beyond2_53(&layout).send();
        }
        let Column { table, number } = self.column;
        let question: Option<CString> =
            database.ask_for(NO_PARTITION, &[table.into(), number.into(), next.into()]).pop();
        if question.is_some_and(|question| given(&database.rows(&question, &[])[0], 1)) {
            Notice::NoPartition { table: &self.table_name, next }.send();
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

/// Makes a column a snowflake column, or only finds out how. Returns the statements, in the database's encoding.
///
/// # Errors
/// [`Error::Unconvertible`], and those of [`draw::one`].
pub fn convert(relation: Oid, attribute: &CStr, rewrite: bool, dry_run: bool) -> Result<Vec<Vec<u8>>, Error> {
    backend::require_writable(COMMAND);
    Spi::connect_mut(|client| {
        let database = &mut Database(client);
        let isolation = backend::with_trusted_settings(|| database.ask(ISOLATION, &[]));
        let isolation = isolation.first().and_then(|row| text(row, 1));
        if let Some(level) = isolation {
            return Err(Unconvertible::Isolation(level).into());
        }
        let make = |database: &mut Database| {
            backend::with_trusted_settings(|| Plan::make(database, relation, attribute, rewrite))
        };
        let mut plan = make(database)?;
        if plan.statements.is_empty() {
            return Ok(Vec::new());
        }
        // What keeps this server from drawing, or makes it wait, does so before anything is locked.
        draw::least_to_come(COMMAND)?;
        let mut run = Vec::new();
        while !dry_run && run.last() != Some(&plan.lock) {
            // The statement by itself could end in a deadlock.
            if !backend::lock_relations(&plan.locked) {
                return Err(Unconvertible::Busy.into());
            }
            database.rows(&plan.lock, &[]);
            run.push(plan.lock);
            // Somebody may have been at work until now, also on foreign keys that were not locked yet.
            plan = make(database)?;
        }
        if dry_run {
            run.push(plan.lock.clone());
        }
        backend::with_trusted_settings(|| {
            let next = plan.check_values(database)?;
            plan.announce(database, next)
        })?;
        if !dry_run {
            // With the caller's settings, for the triggers, constraints and indexes that this calls.
            for statement in &plan.statements {
                database.rows(statement, &[]);
            }
        }
        run.extend(plan.statements);
        Ok(run.into_iter().map(CString::into_bytes).collect())
    })
}
