//! Looks up in the catalogs which objects are the extension's own, and which tables are organized
//! by its functions.
//!
//! The extension's objects are found by membership, never through search_path. Catalogs are read
//! directly, through their indexes: SPI cannot be used everywhere where ids are drawn, read and
//! planned for, and costs ten times as much. What is remembered is forgotten when PostgreSQL
//! reports that it may have changed.

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_int};
use std::ptr;

use parking_lot::Mutex;
use pgrx::pg_sys;

use crate::postgres::local::Local;

/// The extension's name, which is unique in a database.
const EXTENSION: &CStr = c"snowflake_id";

/// An object as catalogs refer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// The catalog, such as `pg_class`.
    pub class: pg_sys::Oid,
    /// The object's oid.
    pub number: pg_sys::Oid,
}

/// The functions that appear in conditions on an id's time, and those that replace them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Functions {
    /// `snowflake_timestamp`: without and with a layout.
    pub timestamp: [pg_sys::Oid; 2],
    /// `snowflake_parse`: without and with a layout.
    pub parse: [pg_sys::Oid; 2],
    /// `snowflake_from`, `_after`, `_before` and `_until`, each for a timestamptz, a date and a
    /// timestamp.
    pub bounds: [[pg_sys::Oid; 3]; 4],
    /// Those of the schema `snowflake_plan` that make a limit on a time, in the order of
    /// [`LimitFunction`]. `InvalidOid`, like `checked` and `time_of`, where an older version's
    /// objects are installed.
    pub limits: [pg_sys::Oid; LIMITS.len()],
    /// `snowflake_plan.checked`.
    pub checked: pg_sys::Oid,
    /// `snowflake_plan.time_of`.
    pub time_of: pg_sys::Oid,
    /// Whether every role may call all of them, as after CREATE EXTENSION. The rights on their
    /// schemas do not matter: PostgreSQL asks for USAGE where a name is looked up, and a plan has
    /// oids.
    pub public: bool,
}

/// A function that makes a limit on an id's time from what a condition compares (`undo.rs`).
#[derive(Debug, Clone, Copy)]
pub enum LimitFunction {
    Instant,
    InstantOfDay,
    InstantOfLocal,
    Local,
    LocalOfDay,
    LocalOfYear,
    LocalInZone,
    InstantInZone,
    InstantAtOffset,
    Ceil,
    Minus,
    Plus,
    Ago,
    LowerOfRange,
    UpperOfRange,
    LowerOfArray,
    UpperOfArray,
    LocalOfArray,
    LocalOfDays,
    LocalOfFloatYear,
    InstantOfSeconds,
    InstantOfFloatSeconds,
    CeilOfBin,
    CeilOfLocalBin,
    Aged,
    #[cfg_attr(feature = "pg15", expect(dead_code, reason = "PostgreSQL 15 does not have date_add()"))]
    MinusInZone,
}

/// The extension's own schema, whose functions only plans and views call. Their names are short,
/// and mean nothing elsewhere: `lower` is also one of PostgreSQL's.
const PLAN_SCHEMA: &CStr = c"snowflake_plan";

const LIMITS: [(&CStr, &[pg_sys::Oid]); 26] = [
    (c"instant", &[pg_sys::TIMESTAMPTZOID, pg_sys::BOOLOID]),
    (c"instant", &[pg_sys::DATEOID, pg_sys::BOOLOID]),
    (c"instant", &[pg_sys::TIMESTAMPOID, pg_sys::BOOLOID]),
    (c"local", &[pg_sys::TIMESTAMPOID, pg_sys::BOOLOID]),
    (c"local", &[pg_sys::DATEOID, pg_sys::BOOLOID]),
    (c"local", &[pg_sys::NUMERICOID, pg_sys::BOOLOID]),
    (c"local", &[pg_sys::TIMESTAMPTZOID, pg_sys::TEXTOID, pg_sys::BOOLOID]),
    (c"instant", &[pg_sys::TIMESTAMPOID, pg_sys::TEXTOID, pg_sys::BOOLOID]),
    (c"instant", &[pg_sys::TIMESTAMPOID, pg_sys::INTERVALOID, pg_sys::BOOLOID]),
    (c"ceil", &[pg_sys::TIMESTAMPOID, pg_sys::TEXTOID]),
    (c"minus", &[pg_sys::TIMESTAMPTZOID, pg_sys::INTERVALOID, pg_sys::BOOLOID]),
    (c"plus", &[pg_sys::TIMESTAMPTZOID, pg_sys::INTERVALOID, pg_sys::BOOLOID]),
    (c"ago", &[pg_sys::TIMESTAMPTZOID, pg_sys::INTERVALOID, pg_sys::BOOLOID]),
    (c"lower", &[pg_sys::TSTZRANGEOID]),
    (c"upper", &[pg_sys::TSTZRANGEOID]),
    (c"lower", &[pg_sys::TIMESTAMPTZARRAYOID]),
    (c"upper", &[pg_sys::TIMESTAMPTZARRAYOID]),
    (c"local", &[pg_sys::TIMESTAMPARRAYOID, pg_sys::BOOLOID]),
    (c"local", &[pg_sys::DATEARRAYOID, pg_sys::BOOLOID]),
    (c"local", &[pg_sys::FLOAT8OID, pg_sys::BOOLOID]),
    (c"instant", &[pg_sys::NUMERICOID, pg_sys::BOOLOID]),
    (c"instant", &[pg_sys::FLOAT8OID, pg_sys::BOOLOID]),
    (c"ceil", &[pg_sys::TIMESTAMPTZOID, pg_sys::INTERVALOID, pg_sys::TIMESTAMPTZOID, pg_sys::BOOLOID]),
    (c"ceil", &[pg_sys::TIMESTAMPOID, pg_sys::INTERVALOID, pg_sys::TIMESTAMPOID, pg_sys::BOOLOID]),
    (c"aged", &[pg_sys::TIMESTAMPTZOID, pg_sys::INTERVALOID, pg_sys::BOOLOID]),
    (c"minus", &[pg_sys::TIMESTAMPTZOID, pg_sys::INTERVALOID, pg_sys::TEXTOID, pg_sys::BOOLOID]),
];

/// The functions as last found, with the hash values by which PostgreSQL reports their changes.
static FUNCTIONS: Mutex<Option<(Functions, Vec<u32>)>> = Mutex::new(None);

/// A function that is known not to be the extension's, `InvalidOid` for none. (If it is added to
/// the extension, a process that does not listen plans conditions with it as before.)
static STRANGER: Local<pg_sys::Oid> = Local::new(pg_sys::InvalidOid);

/// The tables that are organized by a function with a layout: `(function, table)`.
static ORGANIZED: Mutex<Option<HashSet<(pg_sys::Oid, pg_sys::Oid)>>> = Mutex::new(None);

/// How often something was forgotten. What was found while this changed may be out of date.
static FORGOTTEN: Local<u32> = Local::new(0);

/// Whether PostgreSQL tells this process about changes of functions and tables.
static LISTENS: Local<bool> = Local::new(false);

/// Registers for changes of functions and tables, unless that was done before.
///
/// **How many callback slots this library takes.** A process has 10 for changes of relations
/// (relcache), 64 for changes of catalogs (syscache) and 20 for its exit. All libraries share them
/// with PostgreSQL itself, and one callback too many ends the process. This library takes:
///
/// | relcache | syscache | end of the process | |
/// |---|---|---|---|
/// | 0 | 2 | 0 | a process that has planned a condition on an id's time: here |
/// | 0 | 0 | 1 | the postmaster of a server that leases its number: `shared/page/file.rs` |
/// | 0 | 0 | 0 | any other process, whether it draws, reads, converts, replicates or not |
///
/// Changes of `pg_class` report all tables and indexes that are created and dropped, tables that
/// become partitions, and a parent's first child. They do not report `ALTER TABLE ... INHERIT` for
/// a further child, or `NO INHERIT`. Until some table or index changes, a condition on the parent
/// may then be planned as before, which costs time but changes no rows.
fn listen() {
    let (functions, tables) = (pg_sys::SysCacheIdentifier::PROCOID, pg_sys::SysCacheIdentifier::RELOID);
    if !LISTENS.get() {
        // SAFETY: this is how callbacks are registered, once per process.
        unsafe {
            pg_sys::CacheRegisterSyscacheCallback(functions as c_int, Some(function_changed), pg_sys::Datum::from(0));
            pg_sys::CacheRegisterSyscacheCallback(tables as c_int, Some(table_changed), pg_sys::Datum::from(0));
        }
        LISTENS.set(true);
    }
}

/// Called when a function changes, with the hash value of its oid, or 0 if all may have changed.
/// Plain: it raises nothing, and calls nothing of PostgreSQL's.
unsafe extern "C-unwind" fn function_changed(_: pg_sys::Datum, _cache: c_int, hash: u32) {
    let mut functions = FUNCTIONS.lock();
    // A function that is still missing may be the one that was created.
    let is_affected =
        |(functions, hashes): &(Functions, Vec<u32>)| hash == 0 || hashes.contains(&hash) || !functions.is_complete();
    if functions.as_ref().is_none_or(is_affected) {
        *functions = None;
        STRANGER.set(pg_sys::InvalidOid);
        FORGOTTEN.set(FORGOTTEN.get().wrapping_add(1));
    }
}

/// Called when a row of `pg_class` changes: an index may have been created, or a partition
/// attached. Plain, as above.
unsafe extern "C-unwind" fn table_changed(_: pg_sys::Datum, _cache: c_int, _hash: u32) {
    *ORGANIZED.lock() = None;
    FORGOTTEN.set(FORGOTTEN.get().wrapping_add(1));
}

/// Returns what is remembered of the extension's functions, of which `candidate` may be one. Raises
/// nothing.
pub fn known_functions(candidate: pg_sys::Oid) -> KnownFunctions {
    match FUNCTIONS.lock().as_ref() {
        Some((functions, _)) => KnownFunctions::Yes(*functions),
        None if STRANGER.get() == candidate => KnownFunctions::No,
        None => KnownFunctions::NotYet,
    }
}

/// Whether the extension's functions are known.
#[derive(Debug, Clone, Copy)]
pub enum KnownFunctions {
    /// They are known.
    Yes(Functions),
    /// The candidate is not one of them.
    No,
    /// They have not been looked up.
    NotYet,
}

/// Looks up the extension's functions, if `candidate` is one of its members, and remembers them.
///
/// Starts from the candidate's oid, so that nothing is looked up by name in a database without the
/// extension.
pub fn find_functions(candidate: pg_sys::Oid) -> Option<Functions> {
    // SAFETY: looks up rows of catalogs by oid; the results are palloc'd. Errors are raised through
    // pgrx's guard.
    let extension = unsafe {
        let extension = pg_sys::getExtensionOfObject(pg_sys::ProcedureRelationId, candidate);
        let is_ours = || {
            let name = pg_sys::get_extension_name(extension);
            !name.is_null() && CStr::from_ptr(name) == EXTENSION
        };
        (extension != pg_sys::InvalidOid && is_ours()).then_some(extension)
    };
    if extension.is_some() {
        listen();
    }
    let before = FORGOTTEN.get();
    let found = extension.and_then(functions_of);
    // Reading a catalog processes invalidations, which may outdate what was found before them. Such
    // a result still serves this query, like all that the query has looked up; the next query looks
    // again.
    if FORGOTTEN.get() == before {
        match found {
            Some(functions) => *FUNCTIONS.lock() = Some((functions, functions.hashes())),
            None if extension.is_none() => STRANGER.set(candidate),
            // The extension is just being created, or of an older version.
            None => (),
        }
    }
    found
}

impl Functions {
    /// Those that every version has.
    fn first(&self) -> impl Iterator<Item = pg_sys::Oid> + use<> {
        self.timestamp.into_iter().chain(self.parse).chain(self.bounds.into_iter().flatten())
    }

    /// Those that an older version's objects lack.
    fn later(&self) -> impl Iterator<Item = pg_sys::Oid> + use<> {
        self.limits.into_iter().chain([self.checked, self.time_of])
    }

    /// Those that were found.
    fn all(&self) -> impl Iterator<Item = pg_sys::Oid> + use<> {
        self.first().chain(self.later()).filter(|number| *number != pg_sys::InvalidOid)
    }

    /// Whether each of them was found.
    fn is_complete(&self) -> bool {
        self.later().all(|number| number != pg_sys::InvalidOid)
    }

    fn hashes(&self) -> Vec<u32> {
        let (functions, none) = (pg_sys::SysCacheIdentifier::PROCOID as c_int, pg_sys::Datum::from(0));
        // SAFETY: computes a hash value of an oid.
        self.all()
            .map(|number| unsafe { pg_sys::GetSysCacheHashValue(functions, number.into(), none, none, none) })
            .collect()
    }
}

fn functions_of(extension: pg_sys::Oid) -> Option<Functions> {
    const BOUNDS: [&CStr; 4] = [c"snowflake_from", c"snowflake_after", c"snowflake_before", c"snowflake_until"];
    const TYPES: [pg_sys::Oid; 3] = [pg_sys::TIMESTAMPTZOID, pg_sys::DATEOID, pg_sys::TIMESTAMPOID];
    let missing = pg_sys::InvalidOid;
    let mut functions = Functions {
        timestamp: [missing; 2],
        parse: [missing; 2],
        bounds: [[missing; 3]; 4],
        limits: [missing; LIMITS.len()],
        checked: missing,
        time_of: missing,
        public: false,
    };
    // SAFETY: looks up a row of a catalog. Errors are raised through pgrx's guard.
    let plan_schema = unsafe { pg_sys::get_namespace_oid(PLAN_SCHEMA.as_ptr(), true) };
    for member in members(extension).filter(|member| member.class == pg_sys::ProcedureRelationId) {
        let Some((name, arguments)) = signature(member.number) else { continue };
        let name = name.as_c_str();
        // SAFETY: as above.
        let is_for_plans = unsafe { pg_sys::get_func_namespace(member.number) } == plan_schema;
        let limit = LIMITS.iter().position(|limit| *limit == (name, arguments.as_slice()));
        if let Some(limit) = limit.filter(|_| is_for_plans) {
            functions.limits[limit] = member.number;
            continue;
        }
        let bound = BOUNDS.iter().position(|bound| *bound == name);
        let place = match (arguments.as_slice(), bound) {
            ([of, pg_sys::TEXTOID], Some(bound)) => match TYPES.iter().position(|known| known == of) {
                Some(of) => &mut functions.bounds[bound][of],
                None => continue,
            },
            ([pg_sys::BOOLOID], _) if is_for_plans && name == c"checked" => &mut functions.checked,
            ([pg_sys::INT8OID, pg_sys::TEXTOID], _) if is_for_plans && name == c"time_of" => &mut functions.time_of,
            ([pg_sys::INT8OID], _) if name == c"snowflake_timestamp" => &mut functions.timestamp[0],
            ([pg_sys::INT8OID, pg_sys::TEXTOID], _) if name == c"snowflake_timestamp" => &mut functions.timestamp[1],
            ([pg_sys::INT8OID], _) if name == c"snowflake_parse" => &mut functions.parse[0],
            ([pg_sys::INT8OID, pg_sys::TEXTOID], _) if name == c"snowflake_parse" => &mut functions.parse[1],
            _ => continue,
        };
        *place = member.number;
    }
    functions.public = functions.all().all(has_default_privileges);
    functions.first().all(|number| number != missing).then_some(functions)
}

/// Returns a function's name and the types of its arguments.
fn signature(function: pg_sys::Oid) -> Option<(CString, Vec<pg_sys::Oid>)> {
    // SAFETY: both return copies in the current memory context, which is not reset before they are
    // copied here. The types are as many as returned. A dropped function has no name.
    unsafe {
        let name = pg_sys::get_func_name(function);
        if name.is_null() {
            return None;
        }
        let (mut types, mut count) = (ptr::null_mut(), 0);
        pg_sys::get_func_signature(function, &raw mut types, &raw mut count);
        let types = if count > 0 { std::slice::from_raw_parts(types, count as usize).to_vec() } else { Vec::new() };
        Some((CStr::from_ptr(name).to_owned(), types))
    }
}

/// Returns whether a function has its default privileges, with which every role may call it.
fn has_default_privileges(function: pg_sys::Oid) -> bool {
    let functions = pg_sys::SysCacheIdentifier::PROCOID as c_int;
    let none = pg_sys::Datum::from(0);
    // SAFETY: the row is released after its last use. Errors are raised through pgrx's guard.
    unsafe {
        let row = pg_sys::SearchSysCache(functions, function.into(), none, none, none);
        if row.is_null() {
            return false;
        }
        let mut is_null = false;
        pg_sys::SysCacheGetAttr(functions, row, pg_sys::Anum_pg_proc_proacl as i16, &raw mut is_null);
        pg_sys::ReleaseSysCache(row);
        is_null
    }
}

/// Returns whether a table is organized by `function`: `snowflake_timestamp` or `snowflake_parse`
/// with a layout (the others are not allowed there). Either an index or a partition key of the
/// table or of a part of it uses the function, or the CHECK constraint of an inheritance child
/// does, by which the planner excludes that child.
pub fn is_organized_by(table: pg_sys::Oid, function: pg_sys::Oid, functions: &Functions) -> bool {
    if let Some(organized) = ORGANIZED.lock().as_ref() {
        return organized.contains(&(function, table));
    }
    let before = FORGOTTEN.get();
    let of = |function| tables_organized_by(function).into_iter().map(move |table| (function, table));
    let organized: HashSet<_> = of(functions.timestamp[1]).chain(of(functions.parse[1])).collect();
    let answer = organized.contains(&(function, table));
    // As in `find_functions`.
    if FORGOTTEN.get() == before {
        *ORGANIZED.lock() = Some(organized);
    }
    answer
}

fn tables_organized_by(function: pg_sys::Oid) -> HashSet<pg_sys::Oid> {
    let mut found = Vec::new();
    for (user, _) in references_to(Object { class: pg_sys::ProcedureRelationId, number: function }) {
        if user.class == pg_sys::RelationRelationId {
            // SAFETY: looks up a row of a catalog by oid. Errors are raised through pgrx's guard.
            let table = unsafe { pg_sys::IndexGetRelation(user.number, true) };
            found.push(if table == pg_sys::InvalidOid { user.number } else { table });
        } else if user.class == CONSTRAINT_RELATION.into() {
            let constrained = references_from(user).into_iter().filter(|on| on.class == pg_sys::RelationRelationId);
            // SAFETY: as above.
            let children = constrained.filter(|table| unsafe { !pg_sys::get_rel_relispartition(table.number) });
            // A constraint excludes nothing in a query of that table alone.
            found.extend(children.flat_map(|table| parents(table.number)));
        }
    }
    // Tables that contain them are organized too. There may be several paths to one.
    let mut tables = HashSet::new();
    while let Some(table) = found.pop() {
        if tables.insert(table) {
            found.extend(parents(table));
        }
    }
    tables
}

/// Returns whether a column of a table is NOT NULL.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn is_column_not_null(table: pg_sys::Oid, attribute: pg_sys::AttrNumber) -> bool {
    let (columns, none) = (pg_sys::SysCacheIdentifier::ATTNUM as c_int, pg_sys::Datum::from(0));
    // SAFETY: the row is released after its last use. Errors are raised through pgrx's guard.
    unsafe {
        let row = pg_sys::SearchSysCache(columns, table.into(), attribute.into(), none, none);
        if row.is_null() {
            return false;
        }
        let column = pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_attribute>();
        let is_not_null = (*column).attnotnull;
        pg_sys::ReleaseSysCache(row);
        is_not_null
    }
}

/// Returns whether a relation of that oid exists in this database.
pub fn relation_exists(relation: pg_sys::Oid) -> bool {
    exists(pg_sys::SysCacheIdentifier::RELOID as c_int, relation)
}

/// Returns whether a database of that oid exists.
pub fn database_exists(database: u32) -> bool {
    exists(pg_sys::SysCacheIdentifier::DATABASEOID as c_int, database.into())
}

fn exists(cache: c_int, number: pg_sys::Oid) -> bool {
    let none = pg_sys::Datum::from(0);
    // SAFETY: looks up a row of a catalog by its oid. Errors are raised through pgrx's guard.
    unsafe { pg_sys::SearchSysCacheExists(cache, number.into(), none, none, none) }
}

/// Returns the extension, if it exists in this database.
pub fn extension() -> Option<pg_sys::Oid> {
    // SAFETY: looks up a row of a catalog. Errors are raised through pgrx's guard.
    let extension = unsafe { pg_sys::get_extension_oid(EXTENSION.as_ptr(), true) };
    (extension != pg_sys::InvalidOid).then_some(extension)
}

const EXTENSION_OID_INDEX: u32 = 3080;
const EXTENSION_OID: i16 = 1;

/// Returns an extension's schema and owner.
pub fn home(extension: pg_sys::Oid) -> Option<(pg_sys::Oid, pg_sys::Oid)> {
    let catalog = pg_sys::ExtensionRelationId.to_u32();
    let home = |row: &pg_sys::FormData_pg_extension| (row.extnamespace, row.extowner);
    scan(catalog, EXTENSION_OID_INDEX, [(EXTENSION_OID, extension)], home).pop()
}

/// catalog/pg_depend.h, the fixed part of a row, unchanged since PostgreSQL 7.3.
#[repr(C)]
struct Dependency {
    class: pg_sys::Oid,
    number: pg_sys::Oid,
    sub_number: i32,
    referenced_class: pg_sys::Oid,
    referenced_number: pg_sys::Oid,
    referenced_sub_number: i32,
    kind: u8,
}

const CONSTRAINT_RELATION: u32 = 2606;
const DEPEND_RELATION: u32 = 2608;
const DEPEND_DEPENDER_INDEX: u32 = 2673;
const DEPEND_REFERENCE_INDEX: u32 = 2674;
const DEPEND_CLASS: i16 = 1;
const DEPEND_NUMBER: i16 = 2;
const DEPEND_REFERENCED_CLASS: i16 = 4;
const DEPEND_REFERENCED_NUMBER: i16 = 5;
const MEMBER_OF_EXTENSION: u8 = b'e';

/// Returns the objects that belong to an extension.
pub fn members(extension: pg_sys::Oid) -> impl Iterator<Item = Object> {
    let extension = Object { class: pg_sys::ExtensionRelationId, number: extension };
    references_to(extension).into_iter().filter(|(_, kind)| *kind == MEMBER_OF_EXTENSION).map(|(object, _)| object)
}

/// Returns the objects that depend on an object, and how.
fn references_to(object: Object) -> Vec<(Object, u8)> {
    let keys = [(DEPEND_REFERENCED_CLASS, object.class), (DEPEND_REFERENCED_NUMBER, object.number)];
    scan(DEPEND_RELATION, DEPEND_REFERENCE_INDEX, keys, |row: &Dependency| {
        (Object { class: row.class, number: row.number }, row.kind)
    })
}

/// Returns the objects that an object depends on.
fn references_from(object: Object) -> Vec<Object> {
    let keys = [(DEPEND_CLASS, object.class), (DEPEND_NUMBER, object.number)];
    scan(DEPEND_RELATION, DEPEND_DEPENDER_INDEX, keys, |row: &Dependency| Object {
        class: row.referenced_class,
        number: row.referenced_number,
    })
}

/// catalog/pg_inherits.h, the first part of a row, unchanged since PostgreSQL 7.3.
#[repr(C)]
struct Inheritance {
    child: pg_sys::Oid,
    parent: pg_sys::Oid,
}

const INHERITS_RELATION: u32 = 2611;
const INHERITS_CHILD_INDEX: u32 = 2680;
const INHERITS_CHILD: i16 = 1;

/// Returns the tables that a table is a partition or a child of.
fn parents(table: pg_sys::Oid) -> Vec<pg_sys::Oid> {
    let keys = [(INHERITS_CHILD, table)];
    scan(INHERITS_RELATION, INHERITS_CHILD_INDEX, keys, |row: &Inheritance| row.parent)
}

/// Reads the rows of a catalog whose columns have the wanted values, through an index. `Row` is how
/// a row begins.
fn scan<Row, Value, const N: usize>(
    catalog: u32,
    index: u32,
    wanted: [(i16, pg_sys::Oid); N],
    value: impl Fn(&Row) -> Value,
) -> Vec<Value> {
    let mut found = Vec::new();
    // SAFETY: reads a catalog as PostgreSQL's own dependency.c does, and uses each row before
    // asking for the next. Errors are raised through pgrx's guard, and PostgreSQL then closes
    // everything. The callers' rows are those of their catalogs.
    unsafe {
        let relation = pg_sys::table_open(catalog.into(), pg_sys::AccessShareLock as _);
        let mut keys = [pg_sys::ScanKeyData::default(); N];
        for (key, (column, value)) in keys.iter_mut().zip(wanted) {
            let equal = pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber;
            pg_sys::ScanKeyInit(key, column, equal, pg_sys::F_OIDEQ.into(), value.into());
        }
        let scan =
            pg_sys::systable_beginscan(relation, index.into(), true, ptr::null_mut(), N as c_int, keys.as_mut_ptr());
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            found.push(value(&*pg_sys::GETSTRUCT(tuple).cast::<Row>()));
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as _);
    }
    found
}
