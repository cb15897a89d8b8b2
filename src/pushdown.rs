//! Plans conditions on an id's time as conditions on the id, which indexes and partitions serve.
//!
//! ```text
//! snowflake_timestamp(id) >= X    id >= snowflake_from(X, layout)   [ AND id <= the layout's last id ]
//! snowflake_timestamp(id) >  X    id >= snowflake_after(X, layout)  [ AND the same ]
//! snowflake_timestamp(id) <  X    id <= snowflake_before(X, layout) [ AND id >= 0 ]
//! snowflake_timestamp(id) <= X    id <= snowflake_until(X, layout)  [ AND id >= 0 ]
//! ```
//!
//! The rewritten condition is exact for every id of the layout (`core/bounds.rs`). A bound is NULL
//! where no id can match, and a condition treats that as false.
//!
//! For a number that is not an id of the layout, `snowflake_timestamp` raises an error. With
//! pushdown its row is left out instead, so that no statement deletes it by its age. The guards in
//! brackets see to that. A guard is omitted where a condition on the other side does the same, or
//! where no bigint lies beyond the last id.
//!
//! This happens in `get_relation_info_hook`, or `build_simple_rel_hook` from PostgreSQL 19 on:
//! views, CTEs, subqueries and inlined functions are merged in by then, and the conditions are
//! about to be distributed. (`planner_hook` runs before that, and would also change ON CONFLICT's
//! conditions and expression indexes.)
//!
//! **Everything in this file is plain, except for what is marked `pg_guard`.** A guard around calls
//! into PostgreSQL would lose an error's context and the stack of a deep query. So plain code must
//! never panic, allocate in Rust, or hold a value with a destructor. The guarded functions look
//! things up, and must never call anything that plans.

use std::ffi::{c_int, c_void};
use std::{ptr, slice};

use pgrx::pg_sys::{self, AttrNumber, Expr, Index, List, Node, NodeTag, Oid};
use pgrx::prelude::*;

#[cfg(feature = "pg19")]
use pgrx::pg_sys::{build_simple_rel_hook as hook, build_simple_rel_hook_type as Hook};
#[cfg(not(feature = "pg19"))]
use pgrx::pg_sys::{get_relation_info_hook as hook, get_relation_info_hook_type as Hook};

use crate::catalog::{self, Functions, Known};
use crate::drawing;
use crate::guc;
use crate::layouts;
use crate::local::Local;
use crate::members;
use crate::text::Text;

unsafe extern "C-unwind" {
    // miscadmin.h
    fn check_stack_depth();
    fn GetUserId() -> Oid;
    // nodes
    fn bms_is_member(x: c_int, a: *const pg_sys::Bitmapset) -> bool;
    fn copyObjectImpl(from: *const c_void) -> *mut c_void;
    fn equal(a: *const c_void, b: *const c_void) -> bool;
    fn lappend(list: *mut List, datum: *mut c_void) -> *mut List;
    fn makeBoolExpr(kind: pg_sys::BoolExprType::Type, args: *mut List, location: c_int) -> *mut Expr;
    fn makeConst(
        consttype: Oid,
        consttypmod: i32,
        constcollid: Oid,
        constlen: c_int,
        constvalue: pg_sys::Datum,
        constisnull: bool,
        constbyval: bool,
    ) -> *mut pg_sys::Const;
    fn makeFuncExpr(
        funcid: Oid,
        rettype: Oid,
        args: *mut List,
        funccollid: Oid,
        inputcollid: Oid,
        fformat: pg_sys::CoercionForm::Type,
    ) -> *mut pg_sys::FuncExpr;
    fn makeVar(
        varno: c_int,
        varattno: AttrNumber,
        vartype: Oid,
        vartypmod: i32,
        varcollid: Oid,
        varlevelsup: Index,
    ) -> *mut pg_sys::Var;
    fn make_opclause(
        opno: Oid,
        opresulttype: Oid,
        opretset: bool,
        leftop: *mut Expr,
        rightop: *mut Expr,
        opcollid: Oid,
        inputcollid: Oid,
    ) -> *mut Expr;
    fn set_opfuncid(opexpr: *mut pg_sys::OpExpr);
    #[cfg_attr(not(feature = "pg15"), link_name = "expression_tree_walker_impl")]
    fn expression_tree_walker(node: *mut Node, walker: Walker, context: *mut c_void) -> bool;
    fn list_append_unique_oid(list: *mut List, datum: Oid) -> *mut List;
    // optimizer/planmain.h
    fn record_plan_function_dependency(root: *mut pg_sys::PlannerInfo, funcid: Oid);
    // optimizer/optimizer.h
    fn contain_volatile_functions(clause: *mut Node) -> bool;
    fn eval_const_expressions(root: *mut pg_sys::PlannerInfo, node: *mut Node) -> *mut Node;
    fn pull_varnos(root: *mut pg_sys::PlannerInfo, node: *mut Node) -> *mut pg_sys::Bitmapset;
    // utils/palloc.h
    fn palloc(size: usize) -> *mut c_void;
    // utils/acl.h
    #[cfg(feature = "pg15")]
    fn pg_proc_aclcheck(proc_oid: Oid, roleid: Oid, mode: pg_sys::AclMode) -> pg_sys::AclResult::Type;
    #[cfg(not(feature = "pg15"))]
    fn object_aclcheck(classid: Oid, objectid: Oid, roleid: Oid, mode: pg_sys::AclMode) -> pg_sys::AclResult::Type;
}

type Walker = unsafe extern "C-unwind" fn(*mut Node, *mut c_void) -> bool;

/// The hook that was installed before ours.
static PREVIOUS: Local<Hook> = Local::new(None);

/// Installs the hook, when preloaded.
pub fn init() {
    if !crate::backend::is_preloading() {
        return;
    }
    // SAFETY: the postmaster has one thread; this is how PostgreSQL chains hooks.
    unsafe {
        PREVIOUS.set(hook);
        hook = Some(relation_info);
    }
}

/// Called for each table of a query, and for each of its partitions and children, before the
/// planner looks at the table's conditions.
#[cfg(not(feature = "pg19"))]
unsafe extern "C-unwind" fn relation_info(
    root: *mut pg_sys::PlannerInfo,
    table: Oid,
    inhparent: bool,
    rel: *mut pg_sys::RelOptInfo,
) {
    // SAFETY: PostgreSQL calls it, with arguments that are valid while the query is planned.
    unsafe {
        if let Some(previous) = PREVIOUS.get() {
            previous(root, table, inhparent, rel);
        }
        rewrite_conditions(root, rel);
    }
}

/// The same, at the same point of planning. It is also called for what is not a table.
#[cfg(feature = "pg19")]
unsafe extern "C-unwind" fn relation_info(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    range_table_entry: *mut pg_sys::RangeTblEntry,
) {
    // SAFETY: as above.
    unsafe {
        if let Some(previous) = PREVIOUS.get() {
            previous(root, rel, range_table_entry);
        }
        if (*range_table_entry).rtekind == pg_sys::RTEKind::RTE_RELATION {
            rewrite_conditions(root, rel);
        }
    }
}

/// Rewrites the conditions on a table, or those that a flattened UNION ALL hands down to it.
///
/// # Safety
/// As for all functions below: the arguments belong to a query that is being planned.
unsafe fn rewrite_conditions(root: *mut pg_sys::PlannerInfo, rel: *mut pg_sys::RelOptInfo) {
    if !guc::enable_time_pushdown() {
        return;
    }
    // SAFETY: the planner fills these arrays before it looks at a table.
    unsafe {
        let relid = (*rel).relid;
        let site = Site { root, rel, relid, is_union: false };
        if (*rel).reloptkind == pg_sys::RelOptKind::RELOPT_BASEREL {
            rewrite_join_tree(&site, (*(*root).parse).jointree.cast());
        } else {
            rewrite_union(root, rel);
        }
        // The conditions of row-level security and of security barrier views.
        let range_table_entry = *(*root).simple_rte_array.add(relid as usize);
        let policies = (*range_table_entry).securityQuals;
        for (n, policy) in cells(policies).iter().map(|cell| cell.ptr_value).enumerate() {
            let rewritten = rewrite_all(&site, policy.cast(), true);
            (*(*policies).elements.add(n)).ptr_value = rewritten.cast();
        }
    }
}

/// The place where conditions are rewritten: those on the columns of one range table entry.
struct Site {
    root: *mut pg_sys::PlannerInfo,
    /// The table, or the first table below a UNION ALL; null if not known yet.
    rel: *mut pg_sys::RelOptInfo,
    /// The range table entry of the table, or of the UNION ALL.
    relid: Index,
    is_union: bool,
}

/// Rewrites the conditions of a flattened UNION ALL. The planner plans its parts as children, which
/// take over the conditions of the whole right after this hook. So the first part that is a table
/// rewrites them for all.
unsafe fn rewrite_union(root: *mut pg_sys::PlannerInfo, rel: *mut pg_sys::RelOptInfo) {
    // SAFETY: the planner fills these arrays before it builds children, and every child has its
    // entry.
    unsafe {
        let child = *(*root).append_rel_array.add((*rel).relid as usize);
        if child.is_null() {
            return;
        }
        let relid = (*child).parent_relid;
        // The conditions of partitions and inheritance children are rewritten with their parent's.
        if (**(*root).simple_rte_array.add(relid as usize)).rtekind != pg_sys::RTEKind::RTE_SUBQUERY {
            return;
        }
        let site = Site { root, rel, relid, is_union: true };
        for cell in cells((**(*root).simple_rel_array.add(relid as usize)).baserestrictinfo) {
            let condition = cell.ptr_value.cast::<pg_sys::RestrictInfo>();
            // In place, because the planner makes the conditions of the parts from this clause
            // alone.
            let clause = (*condition).clause.cast::<Node>();
            (*condition).clause = rewrite(&site, clause, false, &mut ptr::null_mut()).cast();
        }
    }
}

unsafe fn rewrite_join_tree(site: &Site, node: *mut Node) {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        if node.is_null() {
            return;
        }
        check_stack_depth();
        match (*node).type_ {
            NodeTag::T_FromExpr => {
                let from = node.cast::<pg_sys::FromExpr>();
                for cell in cells((*from).fromlist) {
                    rewrite_join_tree(site, cell.ptr_value.cast());
                }
                (*from).quals = rewrite_all(site, (*from).quals.cast(), true).cast();
            }
            NodeTag::T_JoinExpr => {
                let join = node.cast::<pg_sys::JoinExpr>();
                rewrite_join_tree(site, (*join).larg);
                rewrite_join_tree(site, (*join).rarg);
                (*join).quals = rewrite_all(site, (*join).quals.cast(), true).cast();
            }
            _ => (),
        }
    }
}

/// What replaces a comparison of an id's time: a comparison of the id with a bound, and what must
/// hold beside it.
#[derive(Clone, Copy)]
struct Bounded {
    id: *mut Node,
    condition: *mut Node,
    /// Excludes numbers that are not ids of the layout. Null if there is nothing to exclude.
    guard: *mut Node,
    /// Whether the matching ids are at or above the bound. The guard then excludes numbers beyond
    /// the layout, else those below 0.
    is_above: bool,
    /// The layout's last id.
    last_id: i64,
    /// The comparison itself, if another table still needs it; else null.
    kept: *mut Node,
}

impl Bounded {
    /// Returns whether this condition makes the guard of `other` superfluous, where both hold. Its
    /// bound may do so, because a first id is at least 0 and a last one at most the layout's. So
    /// may its guard, if it is `earlier`.
    unsafe fn guards(&self, other: &Self, earlier: bool) -> bool {
        let is_guarding = self.is_above != other.is_above || earlier;
        let is_enough = !other.is_above || self.last_id <= other.last_id;
        // SAFETY: two expressions.
        is_guarding && is_enough && unsafe { equal(self.id.cast(), other.id.cast()) }
    }
}

/// Rewrites each condition of a list. Returns the same list if there is nothing to rewrite.
/// `is_and`: all of them hold together.
///
/// This function and the next are called for each level of AND and OR. They must use little stack,
/// so that they can follow whatever PostgreSQL can nest in its own.
unsafe fn rewrite_all(site: &Site, conditions: *mut List, is_and: bool) -> *mut List {
    // SAFETY: conditions are a list by now, or null, wherever they are looked for.
    unsafe {
        let (mut rewritten, mut bounded, mut is_changed) = (ptr::null_mut(), ptr::null_mut(), false);
        for (n, cell) in cells(conditions).iter().enumerate() {
            let old = cell.ptr_value.cast::<Node>();
            let new = rewrite(site, old, is_and, &mut bounded);
            if new != old && !is_changed {
                is_changed = true;
                rewritten = list_of(&cells(conditions)[..n]);
            }
            if is_changed {
                rewritten = lappend(rewritten, new.cast());
            }
        }
        if is_changed { with_companions(rewritten, bounded) } else { conditions }
    }
}

/// Rewrites a condition on an id's time, or its parts below AND and OR, because elsewhere no index
/// would be used. Returns the same node if there is nothing to rewrite. With `is_and`, the caller
/// adds what must hold beside a comparison, from `bounded`.
unsafe fn rewrite(site: &Site, condition: *mut Node, is_and: bool, bounded: &mut *mut List) -> *mut Node {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        match (*condition).type_ {
            NodeTag::T_OpExpr => replace_comparison(site, condition, is_and, bounded),
            NodeTag::T_BoolExpr => {
                let parts = condition.cast::<pg_sys::BoolExpr>();
                // The planner has removed NOT from comparisons. What is left is skipped, because
                // NULL below NOT is not false.
                if (*parts).boolop == pg_sys::BoolExprType::NOT_EXPR {
                    return condition;
                }
                check_stack_depth();
                let args = rewrite_all(site, (*parts).args, (*parts).boolop == pg_sys::BoolExprType::AND_EXPR);
                if args == (*parts).args {
                    return condition;
                }
                makeBoolExpr((*parts).boolop, args, (*parts).location).cast()
            }
            _ => condition,
        }
    }
}

#[inline(never)]
unsafe fn replace_comparison(site: &Site, condition: *mut Node, is_and: bool, bounded: &mut *mut List) -> *mut Node {
    // SAFETY: the condition is an operator; what is allocated lives as long as the planning.
    unsafe {
        let Some(new) = rewrite_comparison(site, condition.cast()) else { return condition };
        let kept = palloc(size_of::<Bounded>()).cast::<Bounded>();
        kept.write(new);
        if is_and {
            *bounded = lappend(*bounded, kept.cast());
            return new.condition;
        }
        let alone = lappend(ptr::null_mut(), kept.cast());
        let all = with_companions(lappend(ptr::null_mut(), new.condition.cast()), alone);
        if (*all).length == 1 {
            return new.condition;
        }
        makeBoolExpr(pg_sys::BoolExprType::AND_EXPR, all, -1).cast()
    }
}

/// Adds to conditions what must hold beside the bounded ones: guards that are not superfluous, and
/// comparisons that are kept.
#[inline(never)]
unsafe fn with_companions(mut conditions: *mut List, bounded: *mut List) -> *mut List {
    // SAFETY: the second list holds pointers to `Bounded`.
    unsafe {
        for (n, cell) in cells(bounded).iter().enumerate() {
            let one = &*cell.ptr_value.cast::<Bounded>();
            let mut others = cells(bounded).iter().enumerate();
            let is_guarded = others.any(|(m, by)| (*by.ptr_value.cast::<Bounded>()).guards(one, m < n));
            if !one.guard.is_null() && !is_guarded {
                conditions = lappend(conditions, one.guard.cast());
            }
            if !one.kept.is_null() {
                conditions = lappend(conditions, one.kept.cast());
            }
        }
        conditions
    }
}

#[inline(never)]
unsafe fn list_of(cells: &[pg_sys::ListCell]) -> *mut List {
    // SAFETY: cells of a list of nodes.
    unsafe { cells.iter().fold(ptr::null_mut(), |list, cell| lappend(list, cell.ptr_value)) }
}

#[derive(Clone, Copy)]
enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}
use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual};

impl Comparison {
    fn commuted(self) -> Self {
        match self {
            Less => Greater,
            LessOrEqual => GreaterOrEqual,
            Greater => Less,
            GreaterOrEqual => LessOrEqual,
        }
    }
}

/// A type that timestamptz can be compared with. The number is its place in [`Functions`].
#[derive(Clone, Copy, PartialEq)]
enum Type {
    Timestamptz = 0,
    Date = 1,
    Timestamp = 2,
}
use Type::{Date, Timestamp, Timestamptz};

/// Returns what an operator's function compares: the comparison between the types of its two sides.
fn operator(function: Oid) -> Option<(Type, Comparison, Type)> {
    Some(match function.to_u32() {
        pg_sys::F_TIMESTAMPTZ_LT => (Timestamptz, Less, Timestamptz),
        pg_sys::F_TIMESTAMPTZ_LE => (Timestamptz, LessOrEqual, Timestamptz),
        pg_sys::F_TIMESTAMPTZ_GT => (Timestamptz, Greater, Timestamptz),
        pg_sys::F_TIMESTAMPTZ_GE => (Timestamptz, GreaterOrEqual, Timestamptz),
        pg_sys::F_TIMESTAMPTZ_LT_DATE => (Timestamptz, Less, Date),
        pg_sys::F_TIMESTAMPTZ_LE_DATE => (Timestamptz, LessOrEqual, Date),
        pg_sys::F_TIMESTAMPTZ_GT_DATE => (Timestamptz, Greater, Date),
        pg_sys::F_TIMESTAMPTZ_GE_DATE => (Timestamptz, GreaterOrEqual, Date),
        pg_sys::F_DATE_LT_TIMESTAMPTZ => (Date, Less, Timestamptz),
        pg_sys::F_DATE_LE_TIMESTAMPTZ => (Date, LessOrEqual, Timestamptz),
        pg_sys::F_DATE_GT_TIMESTAMPTZ => (Date, Greater, Timestamptz),
        pg_sys::F_DATE_GE_TIMESTAMPTZ => (Date, GreaterOrEqual, Timestamptz),
        pg_sys::F_TIMESTAMPTZ_LT_TIMESTAMP => (Timestamptz, Less, Timestamp),
        pg_sys::F_TIMESTAMPTZ_LE_TIMESTAMP => (Timestamptz, LessOrEqual, Timestamp),
        pg_sys::F_TIMESTAMPTZ_GT_TIMESTAMP => (Timestamptz, Greater, Timestamp),
        pg_sys::F_TIMESTAMPTZ_GE_TIMESTAMP => (Timestamptz, GreaterOrEqual, Timestamp),
        pg_sys::F_TIMESTAMP_LT_TIMESTAMPTZ => (Timestamp, Less, Timestamptz),
        pg_sys::F_TIMESTAMP_LE_TIMESTAMPTZ => (Timestamp, LessOrEqual, Timestamptz),
        pg_sys::F_TIMESTAMP_GT_TIMESTAMPTZ => (Timestamp, Greater, Timestamptz),
        pg_sys::F_TIMESTAMP_GE_TIMESTAMPTZ => (Timestamp, GreaterOrEqual, Timestamptz),
        _ => return None,
    })
}

/// Operators of bigint: their oids in catalog/pg_operator.dat.
const INT8_LESS_OR_EQUAL: u32 = 414;
const INT8_GREATER_OR_EQUAL: u32 = 415;

/// Rewrites a comparison, if an id's time is on one of its sides.
unsafe fn rewrite_comparison(site: &Site, comparison: *mut pg_sys::OpExpr) -> Option<Bounded> {
    // SAFETY: a binary operator has two arguments.
    unsafe {
        // It is not set yet if NOT was removed from the comparison.
        set_opfuncid(comparison);
        let (left_type, operator, right_type) = operator((*comparison).opfuncid)?;
        let arguments = cells((*comparison).args);
        let (left, right) = (arguments[0].ptr_value.cast(), arguments[1].ptr_value.cast());
        let from_left =
            || (left_type == Timestamptz).then(|| rewrite_sides(site, left, operator, right, right_type))?;
        let from_right =
            || (right_type == Timestamptz).then(|| rewrite_sides(site, right, operator.commuted(), left, left_type))?;
        let (mut new, x) = match from_left() {
            Some(new) => (new, right),
            None => (from_right()?, left),
        };
        // If both sides are times of ids, the planner may search either table. The comparison is
        // kept, and rewritten for the other table in its turn. But it stays as it is if the other
        // table is organized by it.
        if let Some(Other { table, function, functions }) = table_of(site.root, x) {
            let rel = *(*site.root).simple_rel_array.add(table as usize);
            let other = Site { root: site.root, rel, relid: table, is_union: false };
            if [functions.timestamp[1], functions.parse[1]].contains(&function)
                && is_organized(&other, function, &functions)
            {
                return None;
            }
            if rel.is_null() {
                new.kept = comparison.cast();
            }
        }
        Some(new)
    }
}

/// The table whose ids' time an expression is, and the function that it calls.
struct Other {
    table: Index,
    function: Oid,
    functions: Functions,
}

/// Takes apart an expression that is the time of any table's ids.
unsafe fn table_of(root: *mut pg_sys::PlannerInfo, expression: *mut Node) -> Option<Other> {
    // SAFETY: a node's type is what its tag says. The planner has filled this array.
    unsafe {
        let (call, is_record) = call_of(with_placeholders_tables(expression).0)?;
        let functions = known_functions((*call).funcid)?;
        let ours = if is_record { functions.parse } else { functions.timestamp };
        let id = without_relabeling(cells((*call).args)[0].ptr_value.cast());
        let var = id.cast::<pg_sys::Var>();
        if !ours.contains(&(*call).funcid) || (*id).type_ != NodeTag::T_Var || (*var).varlevelsup != 0 {
            return None;
        }
        let table = (*var).varno as Index;
        let entry = *(*root).simple_rte_array.add(table as usize);
        let is_table = (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION;
        is_table.then_some(Other { table, function: (*call).funcid, functions })
    }
}

/// Does what [`rewrite_comparison`] does, for an id's time `time` on the left of `operator`.
unsafe fn rewrite_sides(
    site: &Site,
    time: *mut Node,
    operator: Comparison,
    x: *mut Node,
    x_type: Type,
) -> Option<Bounded> {
    // SAFETY: nodes of the query's tree, made and used as the planner does.
    unsafe {
        let Time { id, function, layout, functions } = time_of(site, time)?;
        let relid = site.relid as c_int;
        // No index can be searched for a column of the same row.
        if contain_volatile_functions(x) || bms_is_member(relid, pull_varnos(site.root, x)) {
            return None;
        }
        // The order is that of `Functions::bounds`.
        let bound = match operator {
            GreaterOrEqual => 0,
            Greater => 1,
            Less => 2,
            LessOrEqual => 3,
        };
        let bound = functions.bounds[bound][x_type as usize];
        if !functions.public {
            // The plan is then made again for another role. A role that may not call the original
            // function must see the error of that one, not of the bound.
            (*(*site.root).glob).dependsOnRole = true;
            if !may_execute(function) || !may_execute(bound) {
                return None;
            }
        }
        // A kept plan must notice when the function is dropped, or when a role may no longer call
        // it.
        record_plan_function_dependency(site.root, function);
        let mut found = Found { layout: ptr::null_mut(), last_id: 0, stored_in: pg_sys::InvalidOid };
        layout_argument(layout, &mut found);
        let Found { layout, last_id, stored_in } = found;
        if stored_in != pg_sys::InvalidOid {
            // The plan must be made again when another layout is stored.
            let glob = (*site.root).glob;
            (*glob).relationOids = list_append_unique_oid((*glob).relationOids, stored_in);
        }
        if layout.is_null() {
            return None;
        }

        let arguments = lappend(lappend(ptr::null_mut(), x.cast()), layout.cast());
        let none = pg_sys::InvalidOid;
        let explicit = pg_sys::CoercionForm::COERCE_EXPLICIT_CALL;
        let mut bound: *mut Node =
            makeFuncExpr(bound, pg_sys::INT8OID, arguments, none, pg_sys::DEFAULT_COLLATION_OID, explicit).cast();
        // Everything else has been simplified by now.
        if (*x).type_ == NodeTag::T_Const {
            bound = eval_const_expressions(site.root, bound);
        }
        let is_above = matches!(operator, Greater | GreaterOrEqual);
        let condition = compare(id, if is_above { INT8_GREATER_OR_EQUAL } else { INT8_LESS_OR_EQUAL }, bound);
        let copy = || copyObjectImpl(id.cast()).cast();
        let guard = match is_above {
            true if last_id == i64::MAX => ptr::null_mut(),
            true => compare(copy(), INT8_LESS_OR_EQUAL, number(last_id)),
            false => compare(copy(), INT8_GREATER_OR_EQUAL, number(0)),
        };
        Some(Bounded { id, condition, guard, is_above, last_id, kept: ptr::null_mut() })
    }
}

unsafe fn compare(id: *mut Node, operator: u32, bound: *mut Node) -> *mut Node {
    let none = pg_sys::InvalidOid;
    // SAFETY: two expressions of type bigint, and an operator of bigint.
    unsafe {
        let clause = make_opclause(operator.into(), pg_sys::BOOLOID, false, id.cast(), bound.cast(), none, none);
        set_opfuncid(clause.cast());
        clause.cast()
    }
}

unsafe fn number(value: i64) -> *mut Node {
    // SAFETY: a bigint has eight bytes and is passed by value.
    unsafe { makeConst(pg_sys::INT8OID, -1, pg_sys::InvalidOid, 8, value.into(), false, true).cast() }
}

unsafe fn may_execute(function: Oid) -> bool {
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

/// An expression for an id's time, taken apart.
struct Time {
    id: *mut Node,
    /// The function that reads the id.
    function: Oid,
    /// The layout argument, null if there is none.
    layout: *mut pg_sys::Const,
    functions: Functions,
}

/// Takes apart an expression that is the time of an id of the site, in a layout that is known now.
unsafe fn time_of(site: &Site, expression: *mut Node) -> Option<Time> {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        let (computed, tables) = with_placeholders_tables(expression);
        let (call, is_record) = match call_of(computed) {
            Some(call) => call,
            None => return if site.is_union { time_of_union(site, expression) } else { None },
        };
        let id = cells((*call).args)[0].ptr_value.cast();
        if !is_column(id, site.relid) || !tables.is_null() && !bms_is_member(site.relid as c_int, tables) {
            return None;
        }
        let (layout, functions) = layout_of(site, call, is_record)?;
        Some(Time { id, function: (*call).funcid, layout, functions })
    }
}

/// Returns the expression inside a placeholder, which marks what came out of a subquery; else the
/// same expression.
unsafe fn without_placeholder(expression: *mut Node) -> *mut Node {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        let placeholder = expression.cast::<pg_sys::PlaceHolderVar>();
        if (*expression).type_ == NodeTag::T_PlaceHolderVar { (*placeholder).phexpr.cast() } else { expression }
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

/// Removes the relabeling of a domain over bigint; else returns the same expression.
unsafe fn without_relabeling(mut expression: *mut Node) -> *mut Node {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        while (*expression).type_ == NodeTag::T_RelabelType {
            expression = (*expression.cast::<pg_sys::RelabelType>()).arg.cast();
        }
    }
    expression
}

/// Returns whether an expression is a column (perhaps of a domain) of a range table entry.
unsafe fn is_column(expression: *mut Node, relid: Index) -> bool {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        let expression = without_relabeling(expression);
        let var = expression.cast::<pg_sys::Var>();
        (*expression).type_ == NodeTag::T_Var && (*var).varno == relid as c_int && (*var).varlevelsup == 0
    }
}

/// Returns the layout argument of a call, null if it has none. The result is `None` unless the call
/// is of one of our functions, and the site is not organized by it.
unsafe fn layout_of(
    site: &Site,
    call: *mut pg_sys::FuncExpr,
    is_record: bool,
) -> Option<(*mut pg_sys::Const, Functions)> {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        let functions = known_functions((*call).funcid)?;
        let [plain, with_layout] = if is_record { functions.parse } else { functions.timestamp };
        if (*call).funcid == plain {
            return Some((ptr::null_mut(), functions));
        }
        if (*call).funcid != with_layout {
            return None;
        }
        let layout = cells((*call).args)[1].ptr_value.cast::<Node>();
        // An argument that may not be a layout must raise its error when it is used.
        if (*layout).type_ != NodeTag::T_Const || is_organized(site, with_layout, &functions) {
            return None;
        }
        Some((layout.cast(), functions))
    }
}

fn known_functions(candidate: Oid) -> Option<Functions> {
    match catalog::known_functions(candidate) {
        Known::Yes(functions) => Some(functions),
        Known::No => None,
        Known::NotYet => {
            let mut found = None;
            find_functions(candidate, &mut found);
            found
        }
    }
}

#[pg_guard]
extern "C-unwind" fn find_functions(candidate: Oid, found: &mut Option<Functions>) {
    *found = catalog::find_functions(candidate);
}

/// Returns whether an index or a partition key of the site's tables uses a function. They then
/// serve the condition as it is.
unsafe fn is_organized(site: &Site, function: Oid, functions: &Functions) -> bool {
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
        let is_organized_by = |relid: Index| {
            let entry = *(*site.root).simple_rte_array.add(relid as usize);
            (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION && is_organized_by((*entry).relid, function, functions)
        };
        if site.is_union {
            return union_parts(site).any(|part| is_organized_by((*part).child_relid));
        }
        is_organized_by(site.relid)
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
struct Found {
    /// The argument for the bound, null if there is none.
    layout: *mut pg_sys::Const,
    last_id: i64,
    /// The sequence that stores the database's layout, if that is the one to use.
    stored_in: Oid,
}

/// Finds the layout for a bound: the given one, or the database's.
#[pg_guard]
extern "C-unwind" fn layout_argument(given: *mut pg_sys::Const, found: &mut Found) {
    // SAFETY: null, or a constant of type text.
    let given_text = unsafe { given.as_ref().map(|given| Text::from_datum(given.constvalue, given.constisnull)) };
    // An argument that is not a layout, or not the database's, raises its error when it is used.
    match given_text {
        Some(text) => {
            let Some(Ok(layout)) = text.map(|text| layouts::named(text.as_str())) else { return };
            *found = Found { layout: given, last_id: layout.max_id(), stored_in: pg_sys::InvalidOid };
        }
        None => {
            found.stored_in = members::find().map_or(pg_sys::InvalidOid, |sequences| sequences.layout.0);
            let Ok(layout) = layouts::current() else { return };
            let Some(text) = drawing::shown().and_then(|(text, _)| text.into_datum()) else { return };
            let collation = pg_sys::DEFAULT_COLLATION_OID;
            // SAFETY: a text, of variable length, in the planner's memory.
            let argument = unsafe { makeConst(pg_sys::TEXTOID, -1, collation, -1, text, false, false) };
            found.layout = argument;
            found.last_id = layout.max_id();
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
unsafe fn time_of_union(site: &Site, expression: *mut Node) -> Option<Time> {
    // SAFETY: a node's type is what its tag says. The parts have as many columns as the whole.
    unsafe {
        let column = expression.cast::<pg_sys::Var>();
        if !is_column(expression, site.relid) || (*expression).type_ != NodeTag::T_Var || (*column).varattno <= 0 {
            return None;
        }
        let shown_as = |part: *mut pg_sys::AppendRelInfo, column: AttrNumber| {
            without_placeholder(cells((*part).translated_vars)[column as usize - 1].ptr_value.cast())
        };
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
        let id = makeVar((*column).varno, id_column, pg_sys::INT8OID, -1, pg_sys::InvalidOid, 0).cast();
        Some(Time { id, function: (*call).funcid, layout, functions })
    }
}

/// Returns a list's cells; none if it is null.
unsafe fn cells<'a>(list: *const List) -> &'a [pg_sys::ListCell] {
    // SAFETY: a list of the query's tree has `length` cells, which are not written to meanwhile.
    unsafe {
        match list.as_ref() {
            None => &[],
            Some(list) => slice::from_raw_parts(list.elements, list.length as usize),
        }
    }
}
