//! Takes apart an expression that is the time of an id: which id, by which function and layout.
//!
//! An expression is left alone if an index or a partition key serves it as it is. The guarded
//! functions here look things up in the catalogs, and must never call anything that plans.

use std::ffi::{c_int, c_void};
use std::{ptr, slice};

use pgrx::pg_sys::{self, AttrNumber, Index, Node, NodeTag, Oid};
use pgrx::prelude::*;
use snowflake_core::id::layout::Layout;

#[cfg(not(feature = "pg15"))]
use super::nodes::object_aclcheck;
#[cfg(feature = "pg15")]
use super::nodes::pg_proc_aclcheck;
use super::nodes::{
    GetUserId, bms_is_member, cells, copyObjectImpl, equal, expression_tree_mutator, expression_tree_walker, is_column,
    list_append_unique_oid, make_call, makeConst, makeVar, record_plan_function_dependency, without_placeholder,
    without_relabeling,
};
use crate::ids::layouts;
use crate::ids::members;
use crate::ids::stamp;
use crate::postgres::catalog::{self, Functions, KnownFunctions};
use crate::postgres::text::Text;

/// The place where conditions are rewritten: those on the columns of one range table entry.
#[derive(Clone, Copy)]
pub(super) struct Site {
    pub(super) root: *mut pg_sys::PlannerInfo,
    /// The table, or the first table below a UNION ALL; null if not known yet.
    pub(super) rel: *mut pg_sys::RelOptInfo,
    /// The range table entry of the table, or of the UNION ALL.
    pub(super) relid: Index,
    pub(super) is_union: bool,
    /// Whether the entry is below the conditions in the join tree, on a side of it whose rows the
    /// conditions filter.
    pub(super) is_below: bool,
    pub(super) found: *mut Found,
}

/// What conditions have needed. A site and those made of it share one.
pub(super) struct Found {
    /// The extension's functions.
    functions: Option<Functions>,
    /// The database's layout.
    layout: Option<FoundLayout>,
    /// The function that the plan was last made to depend on.
    dependency: Oid,
}

impl Found {
    pub(super) fn new() -> Self {
        Self { functions: None, layout: None, dependency: pg_sys::InvalidOid }
    }
}

impl Site {
    /// Makes the plan depend on a function: a kept plan must notice when it is dropped, or when a
    /// role may no longer call it.
    pub(super) unsafe fn depend_on(&self, function: Oid) {
        // SAFETY: whoever made the site has the place on its frame.
        unsafe {
            if (*self.found).dependency != function {
                record_plan_function_dependency(self.root, function);
                (*self.found).dependency = function;
            }
        }
    }
}

/// An expression for an id's time, taken apart.
pub(super) struct Time<'a> {
    pub(super) id: *mut Node,
    /// The function that reads the id.
    pub(super) function: Oid,
    /// The layout argument, null if there is none.
    pub(super) layout: *mut pg_sys::Const,
    pub(super) functions: &'a Functions,
    /// The function in FROM whose column the time is; 0 if the expression calls the function.
    pub(super) row: Index,
}

/// Takes apart an expression that is the time of an id of the site, in a layout that is known now.
pub(super) unsafe fn time_of(site: &Site, expression: *mut Node) -> Option<Time<'_>> {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        let (computed, tables) = with_placeholders_tables(expression);
        let (call, is_record) = match call_of(computed) {
            Some(call) => call,
            None if site.is_union => return time_of_union(site, expression).or_else(|| time_of_row(site, expression)),
            None => return time_of_row(site, expression),
        };
        let id = cells((*call).args)[0].ptr_value.cast();
        if !is_column(id, site.relid) || !tables.is_null() && !bms_is_member(site.relid as c_int, tables) {
            return None;
        }
        let (layout, functions) = layout_of(site, call, is_record)?;
        Some(Time { id, function: (*call).funcid, layout, functions, row: 0 })
    }
}

/// Takes apart a column of a function in FROM, as in `FROM orders o, snowflake_parse(o.id) p`.
///
/// Where such a time fulfils a condition, no outer join makes the function's row NULL. That row
/// belongs to the table's row beside it. So the condition implies one on the id. This holds where
/// the join tree has both below the condition. Elsewhere, a condition on the id could refer to a
/// table that is not there yet.
unsafe fn time_of_row(site: &Site, expression: *mut Node) -> Option<Time<'_>> {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        if !site.is_below {
            return None;
        }
        let call = call_of_row(site.root, expression)?;
        let id = cells((*call).args)[0].ptr_value.cast::<Node>();
        if !is_column(id, site.relid) {
            return None;
        }
        let functions = known_functions(site, (*call).funcid)?;
        let (layout, functions) = layout_of(site, call, functions.parse.contains(&(*call).funcid))?;
        let row = (*expression.cast::<pg_sys::Var>()).varno as Index;
        let id = copyObjectImpl(id.cast()).cast();
        Some(Time { id, function: (*call).funcid, layout, functions, row })
    }
}

/// Returns the call of a function in FROM, if an expression is its first column and the function
/// may be one of ours. That column is the time in each of them.
unsafe fn call_of_row(root: *mut pg_sys::PlannerInfo, expression: *mut Node) -> Option<*mut pg_sys::FuncExpr> {
    // SAFETY: a node's type is what its tag says. The planner has filled this array.
    unsafe {
        let column = expression.cast::<pg_sys::Var>();
        if (*expression).type_ != NodeTag::T_Var || (*column).varattno != 1 || (*column).varlevelsup != 0 {
            return None;
        }
        // An outer join makes it NULL. (Before 16, a Var does not tell; the result is the same.)
        #[cfg(not(feature = "pg15"))]
        if !(*column).varnullingrels.is_null() {
            return None;
        }
        if !(1..(*root).simple_rel_array_size).contains(&(*column).varno) {
            return None;
        }
        let entry = *(*root).simple_rte_array.add((*column).varno as usize);
        if (*entry).rtekind != pg_sys::RTEKind::RTE_FUNCTION {
            return None;
        }
        // With ROWS FROM, the first of several functions has the first column.
        let function = cells((*entry).functions).first()?.ptr_value.cast::<pg_sys::RangeTblFunction>();
        let (call, is_record) = call_of((*function).funcexpr)?;
        (!is_record).then_some(call)
    }
}

/// Returns the same, and the tables whose rows the placeholder is a part of; null for any.
///
/// The time of a NULL id is NULL. So an outer join that makes these rows NULL gives the same result
/// with and without pushdown, if the id is a part of them. (It is not if the subquery is LATERAL
/// and reads a table beside it.)
unsafe fn with_placeholders_tables(expression: *mut Node) -> (*mut Node, *const pg_sys::Bitmapset) {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        let placeholder = expression.cast::<pg_sys::PlaceHolderVar>();
        if (*expression).type_ != NodeTag::T_PlaceHolderVar || (*placeholder).phlevelsup != 0 {
            return (expression, ptr::null());
        }
        // From 16 on, the planner records which joins make it NULL.
        #[cfg(not(feature = "pg15"))]
        if !(*placeholder).phnullingrels.is_null() {
            return (expression, ptr::null());
        }
        ((*placeholder).phexpr.cast(), (*placeholder).phrels)
    }
}

/// Returns the call in `f(...)` or `(f(...)).created_at`, and whether it is the latter, if `f` may
/// be one of our functions.
unsafe fn call_of(expression: *mut Node) -> Option<(*mut pg_sys::FuncExpr, bool)> {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        let field = expression.cast::<pg_sys::FieldSelect>();
        let is_record = (*expression).type_ == NodeTag::T_FieldSelect && (*field).fieldnum == 1;
        let call = if is_record { (*field).arg.cast() } else { expression };
        if (*call).type_ != NodeTag::T_FuncExpr {
            return None;
        }
        let call = call.cast::<pg_sys::FuncExpr>();
        let may_be_ours = (*call).funcid.to_u32() >= pg_sys::FirstNormalObjectId
            && matches!(cells((*call).args).len(), 1 | 2)
            && !(*call).funcretset;
        may_be_ours.then_some((call, is_record))
    }
}

/// Returns the layout argument of a call, null if it has none. The result is `None` unless the call
/// is of one of our functions, and the site is not organized by it.
unsafe fn layout_of(
    site: &Site,
    call: *mut pg_sys::FuncExpr,
    is_record: bool,
) -> Option<(*mut pg_sys::Const, &Functions)> {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        let functions = known_functions(site, (*call).funcid)?;
        let [plain, with_layout] = if is_record { functions.parse } else { functions.timestamp };
        if (*call).funcid == plain {
            return Some((ptr::null_mut(), functions));
        }
        if (*call).funcid != with_layout {
            return None;
        }
        let layout = cells((*call).args)[1].ptr_value.cast::<Node>();
        // An argument that may not be a layout must raise its error when it is used.
        if (*layout).type_ != NodeTag::T_Const || is_organized(site, with_layout, functions) {
            return None;
        }
        Some((layout.cast(), functions))
    }
}

/// Returns the extension's functions, of which `candidate` may be one. Thousands of conditions on a
/// table share one copy.
unsafe fn known_functions(site: &Site, candidate: Oid) -> Option<&Functions> {
    // SAFETY: `rewrite_conditions` has the place on its frame, and hands it to sites that end
    // before. It is written only while it holds `None`, so nothing refers to what is in it.
    unsafe {
        let place = &raw mut (*site.found).functions;
        if (*place).is_none() {
            let mut found = None;
            match catalog::known_functions(candidate) {
                KnownFunctions::Yes(functions) => found = Some(functions),
                KnownFunctions::No => (),
                KnownFunctions::NotYet => find_functions(candidate, &mut found),
            }
            place.write(found);
        }
        (*place).as_ref()
    }
}

#[pg_guard]
extern "C-unwind" fn find_functions(candidate: Oid, found: &mut Option<Functions>) {
    *found = catalog::find_functions(candidate);
}

/// Returns whether an index or a partition key of the site's tables uses a function. They then
/// serve the condition as it is.
pub(super) unsafe fn is_organized(site: &Site, function: Oid, functions: &Functions) -> bool {
    // SAFETY: the planner has filled these lists and arrays by now.
    unsafe {
        // The catalogs do not have hypothetical indexes of other libraries, such as hypopg, or
        // calls that were found in the body of an SQL function.
        let called = ptr::from_ref(&function).cast_mut().cast();
        if let Some(rel) = site.rel.as_ref() {
            for cell in cells(rel.indexlist) {
                let index = cell.ptr_value.cast::<pg_sys::IndexOptInfo>();
                if calls((*index).indexprs.cast(), called) || calls((*index).indpred.cast(), called) {
                    return true;
                }
            }
            if let Some(scheme) = rel.part_scheme.as_ref() {
                let keys = slice::from_raw_parts(rel.partexprs, scheme.partnatts as usize);
                if keys.iter().any(|key| calls(key.cast(), called)) {
                    return true;
                }
            }
        }
        let entry_of = |relid: Index| *(*site.root).simple_rte_array.add(relid as usize);
        let is_organized_by = |entry: *mut pg_sys::RangeTblEntry| {
            (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION && is_organized_by((*entry).relid, function, functions)
        };
        if site.is_union {
            return union_parts(site).any(|part| {
                let entry = entry_of((*part).child_relid);
                let tables = (*entry).subquery.as_ref().map_or(ptr::null_mut(), |subquery| subquery.rtable);
                is_organized_by(entry) || cells(tables).iter().any(|cell| is_organized_by(cell.ptr_value.cast()))
            });
        }
        is_organized_by(entry_of(site.relid))
    }
}

#[pg_guard]
extern "C-unwind" fn is_organized_by(table: Oid, function: Oid, functions: &Functions) -> bool {
    catalog::is_organized_by(table, function, functions)
}

/// Returns whether an expression calls the function whose oid `function` points to.
unsafe extern "C-unwind" fn calls(expression: *mut Node, function: *mut c_void) -> bool {
    // SAFETY: a node's type is what its tag says; `function` points to an oid.
    unsafe {
        if expression.is_null() {
            return false;
        }
        let call = expression.cast::<pg_sys::FuncExpr>();
        if (*expression).type_ == NodeTag::T_FuncExpr && (*call).funcid == *function.cast::<Oid>() {
            return true;
        }
        expression_tree_walker(expression, calls, function)
    }
}

/// What [`layout_argument`] finds.
#[derive(Clone, Copy)]
pub(super) struct FoundLayout {
    /// The argument for the bound, null if there is none.
    layout: *mut pg_sys::Const,
    meaning: Option<Layout>,
    /// The sequence that stores the database's layout, if that is the one to use.
    stored_in: Oid,
}

/// Finds the layout for a bound: the given one, or the database's.
///
/// # Safety
/// `given` is null, or a constant of type text.
#[pg_guard]
unsafe extern "C-unwind" fn layout_argument(given: *mut pg_sys::Const, found: &mut FoundLayout) {
    // SAFETY: the caller's.
    let given_text = unsafe { given.as_ref().map(|given| Text::from_datum(given.constvalue, given.constisnull)) };
    // An argument that is not a layout, or not the database's, raises its error when it is used.
    match given_text {
        Some(text) => {
            let Some(Ok(layout)) = text.map(|text| layouts::of(&text)) else { return };
            *found = FoundLayout { layout: given, meaning: Some(layout), stored_in: pg_sys::InvalidOid };
        }
        None => {
            found.stored_in = members::find().map_or(pg_sys::InvalidOid, |sequences| sequences.layout.0);
            let Ok(layout) = layouts::current() else { return };
            let Some(text) = stamp::shown().and_then(|(text, _)| text.into_datum()) else { return };
            let collation = pg_sys::DEFAULT_COLLATION_OID;
            // SAFETY: a text, of variable length, in the planner's memory.
            let argument = unsafe { makeConst(pg_sys::TEXTOID, -1, collation, -1, text, false, false) };
            found.layout = argument;
            found.meaning = Some(layout);
        }
    }
}

/// Returns the parts of the site's UNION ALL.
unsafe fn union_parts(site: &Site) -> impl Iterator<Item = *mut pg_sys::AppendRelInfo> {
    let relid = site.relid;
    // SAFETY: the planner collected the parts when it flattened the UNION ALL.
    let all = unsafe { cells((*site.root).append_rel_list) };
    all.iter()
        // SAFETY: a list of such nodes.
        .map(|cell| unsafe { cell.ptr_value }.cast::<pg_sys::AppendRelInfo>())
        // SAFETY: as above.
        .filter(move |part| unsafe { (**part).parent_relid == relid })
}

/// Takes apart a column of a UNION ALL that is the time of an id in each part, by one function and
/// layout. The id must be another column of the UNION ALL.
unsafe fn time_of_union(site: &Site, expression: *mut Node) -> Option<Time<'_>> {
    // SAFETY: a node's type is what its tag says. The parts have as many columns as the whole.
    unsafe {
        let column = expression.cast::<pg_sys::Var>();
        if !is_column(expression, site.relid) || (*expression).type_ != NodeTag::T_Var || (*column).varattno <= 0 {
            return None;
        }
        let shown_as = |part, column| shown_as(site.root, part, column);
        let first = union_parts(site).next()?;
        let (call, is_record) = call_of(shown_as(first, (*column).varattno))?;
        let (layout, functions) = layout_of(site, call, is_record)?;
        let columns = cells((*first).translated_vars).len() as AttrNumber;
        let id_column = (1..=columns).find(|id_column| {
            union_parts(site).all(|part| {
                let Some((other, _)) = call_of(shown_as(part, (*column).varattno)) else { return false };
                let (arguments, others) = (cells((*call).args), cells((*other).args));
                let id = others[0].ptr_value.cast::<Node>();
                let is_bigint = (*id).type_ == NodeTag::T_Var && (*id.cast::<pg_sys::Var>()).vartype == pg_sys::INT8OID;
                (*other).funcid == (*call).funcid
                    && (arguments.len() == 1 || equal(arguments[1].ptr_value, others[1].ptr_value))
                    && is_bigint
                    && equal(shown_as(part, *id_column).cast(), id.cast())
            })
        })?;
        let id = makeVar((*column).varno, id_column, pg_sys::INT8OID, -1, pg_sys::InvalidOid, 0);
        // The same outer joins make both NULL.
        #[cfg(not(feature = "pg15"))]
        {
            (*id).varnullingrels = (*column).varnullingrels;
        }
        Some(Time { id: id.cast(), function: (*call).funcid, layout, functions, row: 0 })
    }
}

/// Returns what a part of a UNION ALL shows as a column. That of a part that stays a subquery,
/// because it has a WHERE or a join, is an expression of that subquery.
unsafe fn shown_as(root: *mut pg_sys::PlannerInfo, part: *mut pg_sys::AppendRelInfo, column: AttrNumber) -> *mut Node {
    // SAFETY: a node's type is what its tag says. The part has such a column, and its subquery one
    // for each of its own.
    unsafe {
        let shown = without_placeholder(cells((*part).translated_vars)[column as usize - 1].ptr_value.cast());
        let entry = *(*root).simple_rte_array.add((*part).child_relid as usize);
        let subquery = (*entry).subquery;
        let is_own = (*shown).type_ == NodeTag::T_Var && is_column(shown, (*part).child_relid);
        if subquery.is_null() || !is_own || (*shown.cast::<pg_sys::Var>()).varattno < 1 {
            return shown;
        }
        // With GROUPING SETS, a row can have a time without its id. And a subquery with DISTINCT ON
        // may take over a condition on the time, but not one on the id.
        let is_plain = (*subquery).setOperations.is_null()
            && (*subquery).groupClause.is_null()
            && (*subquery).groupingSets.is_null()
            && (*subquery).distinctClause.is_null()
            && !(*subquery).hasAggs
            && !(*subquery).hasWindowFuncs
            && !(*subquery).hasTargetSRFs;
        let columns = cells((*subquery).targetList);
        match columns.get((*shown.cast::<pg_sys::Var>()).varattno as usize - 1) {
            Some(column) if is_plain => (*column.ptr_value.cast::<pg_sys::TargetEntry>()).expr.cast(),
            _ => shown,
        }
    }
}

/// What [`without_errors`] replaces.
struct Replaced<'a> {
    site: &'a Site,
    functions: &'a Functions,
    /// The time of the site's id, and what takes its place; null for none.
    time: *mut Node,
    null_time: *mut Node,
    /// Whether the times of other ids are replaced as well.
    is_for_others: bool,
}

/// Makes the time of an id that is NULL, and not an error, for a number that is not an id.
///
/// # Safety
/// `layout` is a constant that is a layout.
pub(super) unsafe fn null_time(functions: &Functions, id: *mut Node, layout: *mut pg_sys::Const) -> *mut Node {
    // SAFETY: an expression of type bigint, and one of type text.
    unsafe {
        let arguments = [copyObjectImpl(id.cast()).cast(), layout.cast()];
        make_call(functions.time_of, pg_sys::TIMESTAMPTZOID, &arguments, pg_sys::DEFAULT_COLLATION_OID)
    }
}

/// Returns a copy of an expression in which `null_time` stands for `time`, if they are not null,
/// and for other tables' ids such a time of theirs.
///
/// PostgreSQL decides when it computes a bound, and whether it checks a kept condition before the
/// bounds beside it. So neither may raise an error for a number that is not an id.
pub(super) unsafe fn without_errors(
    site: &Site,
    functions: &Functions,
    expression: *mut Node,
    time: *mut Node,
    null_time: *mut Node,
    is_for_others: bool,
) -> *mut Node {
    let mut replaced = Replaced { site, functions, time, null_time, is_for_others };
    // SAFETY: an expression; the context lives until the end.
    unsafe { replace_times(expression, (&raw mut replaced).cast()) }
}

unsafe extern "C-unwind" fn replace_times(expression: *mut Node, context: *mut c_void) -> *mut Node {
    // SAFETY: a node's type is what its tag says; `context` points to a `Replaced`.
    unsafe {
        if expression.is_null() {
            return expression;
        }
        let replaced = &*context.cast::<Replaced<'_>>();
        if !replaced.time.is_null() && equal(expression.cast(), replaced.time.cast()) {
            return copyObjectImpl(replaced.null_time.cast()).cast();
        }
        if replaced.is_for_others
            && let Some(time) = other_null_time(replaced, expression)
        {
            return time;
        }
        // It is computed elsewhere, where its subquery was.
        if (*expression).type_ == NodeTag::T_PlaceHolderVar {
            return copyObjectImpl(expression.cast()).cast();
        }
        expression_tree_mutator(expression, replace_times, context)
    }
}

/// Returns what takes the place of the time of an id, if an expression is one that the role may
/// read.
unsafe fn other_null_time(replaced: &Replaced<'_>, expression: *mut Node) -> Option<*mut Node> {
    let Replaced { site, functions, .. } = *replaced;
    // SAFETY: a node's type is what its tag says.
    unsafe {
        let (call, is_record) = call_of(expression)?;
        let function = (*call).funcid;
        let [plain, with_layout] = if is_record { functions.parse } else { functions.timestamp };
        let arguments = cells((*call).args);
        let layout = match function {
            _ if function == plain => ptr::null_mut(),
            _ if function == with_layout => arguments[1].ptr_value.cast::<pg_sys::Const>(),
            _ => return None,
        };
        let is_constant = layout.is_null() || (*layout.cast::<Node>()).type_ == NodeTag::T_Const;
        if !is_constant || !functions.public && !may_execute(function) {
            return None;
        }
        record_plan_function_dependency(site.root, function);
        let mut given = None;
        let (layout, _) = layout_for_bound(site, layout, &mut given)?;
        Some(null_time(functions, arguments[0].ptr_value.cast(), layout))
    }
}

/// Returns the layout argument for a bound, and what it means: the given one, or the database's if
/// it is null. `place` is where what is found of a given one is kept.
pub(super) unsafe fn layout_for_bound<'a>(
    site: &'a Site,
    given: *mut pg_sys::Const,
    place: &'a mut Option<FoundLayout>,
) -> Option<(*mut pg_sys::Const, &'a Layout)> {
    // SAFETY: `rewrite_conditions` has the site's place on its frame. It is written only while it
    // holds `None`, so nothing refers to what is in it.
    unsafe {
        let place = if given.is_null() { &raw mut (*site.found).layout } else { ptr::from_mut(place) };
        if (*place).is_none() {
            let mut found = FoundLayout { layout: ptr::null_mut(), meaning: None, stored_in: pg_sys::InvalidOid };
            layout_argument(given, &mut found);
            place.write(Some(found));
            if found.stored_in != pg_sys::InvalidOid {
                // The plan must be made again when another layout is stored.
                let glob = (*site.root).glob;
                (*glob).relationOids = list_append_unique_oid((*glob).relationOids, found.stored_in);
            }
        }
        // By reference, because thousands of conditions on a table share it.
        match (*place).as_ref() {
            Some(FoundLayout { layout, meaning: Some(meaning), .. }) if !layout.is_null() => Some((*layout, meaning)),
            _ => None,
        }
    }
}

/// Returns whether the query's role may call a function.
pub(super) unsafe fn may_execute(function: Oid) -> bool {
    let mode = pg_sys::ACL_EXECUTE as pg_sys::AclMode;
    // SAFETY: looks up rows of catalogs.
    unsafe {
        #[cfg(feature = "pg15")]
        let result = pg_proc_aclcheck(function, GetUserId(), mode);
        #[cfg(not(feature = "pg15"))]
        let result = object_aclcheck(pg_sys::ProcedureRelationId, function, GetUserId(), mode);
        result == pg_sys::AclResult::ACLCHECK_OK
    }
}

/// The table whose ids' time an expression is, and the function that it calls.
pub(super) struct Other {
    pub(super) table: Index,
    /// `InvalidOid` if it is a function in FROM, which no index serves.
    pub(super) function: Oid,
}

/// Takes apart an expression that is the time of any table's ids.
pub(super) unsafe fn table_of(site: &Site, expression: *mut Node) -> Option<Other> {
    // SAFETY: a node's type is what its tag says. The planner has filled this array.
    unsafe {
        let (call, is_record, function) = match call_of(with_placeholders_tables(expression).0) {
            Some((call, is_record)) => (call, Some(is_record), (*call).funcid),
            None => (call_of_row(site.root, expression)?, None, pg_sys::InvalidOid),
        };
        let functions = known_functions(site, (*call).funcid)?;
        let is_ours = match is_record {
            Some(true) => functions.parse.contains(&(*call).funcid),
            Some(false) => functions.timestamp.contains(&(*call).funcid),
            None => functions.parse.contains(&(*call).funcid) || functions.timestamp.contains(&(*call).funcid),
        };
        let id = without_relabeling(cells((*call).args)[0].ptr_value.cast());
        let var = id.cast::<pg_sys::Var>();
        if !is_ours || (*id).type_ != NodeTag::T_Var || (*var).varlevelsup != 0 {
            return None;
        }
        let table = (*var).varno as Index;
        let entry = *(*site.root).simple_rte_array.add(table as usize);
        let is_table = (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION;
        is_table.then_some(Other { table, function })
    }
}
