//! Plans conditions on an id's time as conditions on the id, which indexes and partitions serve.
//!
//! ```text
//! snowflake_timestamp(id) >= X    id >= snowflake_from(X, layout)   [ AND id <= the layout's last id ]
//! snowflake_timestamp(id) >  X    id >= snowflake_after(X, layout)  [ AND the same ]
//! snowflake_timestamp(id) <  X    id <= snowflake_before(X, layout) [ AND id >= 0 ]
//! snowflake_timestamp(id) <= X    id <= snowflake_until(X, layout)  [ AND id >= 0 ]
//! snowflake_timestamp(id) =  X    id >= snowflake_from(X, layout) AND id <= snowflake_until(X, layout)
//! ```
//!
//! The same holds for `(snowflake_parse(id)).created_at`, for ranges and for ages. The bound is
//! always one of these four. Functions of the schema `snowflake_plan` (`steps.rs`) stand inside it
//! where `X` is not a time itself, as in `snowflake_from(snowflake_plan.lower(X), layout)`.
//!
//! `IN` becomes an OR. Some conditions are only implied: those of a column of `snowflake_parse(id)`
//! in FROM, of an array, of an `age()`, of rows that begin with a time, and of a local time or
//! whatever else is computed from a time. They are added, and the original one is kept. In it, and
//! inside a bound, `snowflake_plan.time_of(id, layout)` reads the time of an id.
//!
//! The rewritten condition is exact for every id of the layout (`core/id/bounds.rs`). A bound is
//! NULL where no id can match, and a condition treats that as false.
//!
//! For a number that is not an id of the layout, `snowflake_timestamp` raises an error. With
//! pushdown its row is left out instead, so that no statement deletes it by its age. The guards in
//! brackets see to that, and `time_of`, which returns NULL. A guard is omitted where a condition on
//! the other side does the same, or where no bigint lies beyond the last id. For an OR of such
//! conditions it stands once beside it.
//!
//! This happens in `get_relation_info_hook`, or `build_simple_rel_hook` from PostgreSQL 19 on:
//! views, CTEs, subqueries and inlined functions are merged in by then, and the conditions are
//! about to be distributed. Conditions on a flattened UNION ALL are rewritten with those on the
//! first table beside it. (`planner_hook` runs before that, and would also change ON CONFLICT's
//! conditions and expression indexes.)
//!
//! **The hooks are also called for what PostgreSQL skips itself**: a relation that it proves empty
//! (`IS_DUMMY_REL`), a partitioned table by itself, a table of which CLUSTER and CREATE INDEX only
//! ask for an estimate, without a statement. What is done here holds for all of them. It only
//! changes conditions, before they are distributed, or before the parts of a UNION ALL take them
//! over:
//!
//! - A condition stays in the list where it stood, so it keeps its place among outer joins and its
//!   security level, and what is added stands beside it in the same list. PostgreSQL hands the
//!   lists to whatever path it makes: of parts, partial, parallel, parameterized, in any join
//!   order. It also makes a child's conditions from them, and may prove that it is empty.
//! - What it proves by the rewritten condition holds for the original one, except for numbers that
//!   are not ids.
//! - An estimate (`estimate.rs`) changes which path is chosen, never what one returns.
//!
//! `order.rs` alone adds paths, and says which relations it must leave alone.
//!
//! **Everything here and in `pushdown/` is plain, except for what is marked `pg_guard`.** A guard
//! around calls into PostgreSQL would lose an error's context and the stack of a deep query. So
//! plain code must never panic, allocate in Rust, or hold a value with a destructor. The guarded
//! functions look things up, and must never call anything that plans.
//!
//! `comparison.rs` takes a condition apart, and makes the bound that replaces it (`bound.rs`).
//! `steps.rs` takes apart what is computed from a time, such as a `date_trunc`, and `id_time.rs`
//! takes apart the time of an id. `order.rs` reads rows in the order of time. `estimate.rs` keeps
//! the planner from counting a kept condition twice, and from expecting no rows where ids have
//! jumped. `filters.rs` keeps the executor from checking more than a kept condition, and `nodes.rs`
//! has what the query's trees are made of.

use std::ffi::c_int;
use std::{ptr, slice};

use pgrx::pg_sys::{self, Index, List, Node, NodeTag};

#[cfg(feature = "pg19")]
use pgrx::pg_sys::{build_simple_rel_hook as hook, build_simple_rel_hook_type as Hook};
#[cfg(not(feature = "pg19"))]
use pgrx::pg_sys::{get_relation_info_hook as hook, get_relation_info_hook_type as Hook};

mod bound;
mod comparison;
mod estimate;
mod filters;
mod id_time;
mod nodes;
mod operators;
mod order;
mod steps;

use crate::postgres::local::Local;
use crate::settings::guc;
use bound::{Bound, Outside, conjunction, with_companions, with_kept};
use comparison::{is_comparison, rewritten};
use id_time::{Found, Site};
use nodes::{
    INT8_GREATER_OR_EQUAL, cells, check_stack_depth, compare, is_column, lappend, list_of, makeBoolExpr, number,
    palloc, pfree,
};

/// The hook that was installed before ours.
static PREVIOUS: Local<Hook> = Local::new(None);

/// Installs the hook, when preloaded.
pub fn init() {
    if !crate::postgres::backend::is_preloading() {
        return;
    }
    // SAFETY: the postmaster has one thread; this is how PostgreSQL chains hooks.
    unsafe {
        PREVIOUS.set(hook);
        hook = Some(relation_info);
        order::init();
        estimate::init();
    }
}

/// Installs the planner's hook, after all libraries are loaded (`utility.rs`).
///
/// # Safety
/// Called once, by the postmaster.
pub unsafe fn init_planner() {
    // SAFETY: the caller's.
    unsafe { filters::init() };
}

/// Called for each table of a query, and for each of its partitions and children, before the
/// planner looks at the table's conditions.
#[cfg(not(feature = "pg19"))]
unsafe extern "C-unwind" fn relation_info(
    root: *mut pg_sys::PlannerInfo,
    table: pg_sys::Oid,
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

/// The same, at the same point of planning. It is called for everything in FROM, tables or not.
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
        let is_table = (*range_table_entry).rtekind == pg_sys::RTEKind::RTE_RELATION;
        if is_table || !(*root).append_rel_list.is_null() {
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
        let mut found = Found::new();
        let site = Site { root, rel, relid, is_union: false, is_below: false, found: &raw mut found };
        if (*rel).reloptkind == pg_sys::RelOptKind::RELOPT_BASEREL {
            let join_tree = (*(*root).parse).jointree.cast();
            // The list has no partitions or children yet.
            if !(*root).append_rel_list.is_null() && first_seen(root, join_tree) == relid {
                rewrite_unions(&site, join_tree);
            }
            if is_table(root, relid) {
                rewrite_join_tree(&site, join_tree);
            }
        } else if is_table(root, relid) {
            rewrite_part(&site);
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

/// Rewrites the conditions on each flattened UNION ALL of a query, as those on a table. Its parts
/// are planned as children, later. They take over the conditions of the whole, those of joins too.
unsafe fn rewrite_unions(site: &Site, join_tree: *mut Node) {
    let root = site.root;
    // SAFETY: the planner fills these arrays before it looks at a table.
    unsafe {
        for relid in 1..(*root).simple_rel_array_size as Index {
            let is_part = !(*(*root).append_rel_array.add(relid as usize)).is_null();
            if !is_part && is_union(root, relid) {
                rewrite_join_tree(&Site { rel: ptr::null_mut(), relid, is_union: true, ..*site }, join_tree);
            }
        }
    }
}

unsafe fn is_table(root: *mut pg_sys::PlannerInfo, relid: Index) -> bool {
    // SAFETY: the planner has filled this array.
    unsafe { (**(*root).simple_rte_array.add(relid as usize)).rtekind == pg_sys::RTEKind::RTE_RELATION }
}

/// Returns whether a range table entry is a flattened UNION ALL.
unsafe fn is_union(root: *mut pg_sys::PlannerInfo, relid: Index) -> bool {
    // SAFETY: the planner has filled this array.
    unsafe {
        let entry = *(*root).simple_rte_array.add(relid as usize);
        (*entry).rtekind == pg_sys::RTEKind::RTE_SUBQUERY && (*entry).inh
    }
}

/// Returns the first entry of a join tree that the hook is called for: before PostgreSQL 19, the
/// first table. Returns 0 if there is none.
unsafe fn first_seen(root: *mut pg_sys::PlannerInfo, node: *mut Node) -> Index {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        if node.is_null() {
            return 0;
        }
        check_stack_depth();
        match (*node).type_ {
            NodeTag::T_RangeTblRef => {
                let relid = (*node.cast::<pg_sys::RangeTblRef>()).rtindex as Index;
                if cfg!(feature = "pg19") || is_table(root, relid) { relid } else { 0 }
            }
            NodeTag::T_FromExpr => {
                let from = cells((*node.cast::<pg_sys::FromExpr>()).fromlist).iter();
                let mut seen = from.map(|cell| first_seen(root, cell.ptr_value.cast()));
                seen.find(|first| *first != 0).unwrap_or(0)
            }
            NodeTag::T_JoinExpr => {
                let join = node.cast::<pg_sys::JoinExpr>();
                match first_seen(root, (*join).larg) {
                    0 => first_seen(root, (*join).rarg),
                    first => first,
                }
            }
            _ => 0,
        }
    }
}

/// Rewrites the conditions of a flattened UNION ALL in a query that has no table beside it, before
/// PostgreSQL 19. Its parts take over the conditions of the whole right after this hook, so the
/// first part that is a table rewrites them for all. Those of joins have been distributed by then,
/// and stay as they are.
unsafe fn rewrite_part(site: &Site) {
    let Site { root, rel, .. } = *site;
    // SAFETY: the planner fills these arrays before it builds children, and every child has its
    // entry.
    unsafe {
        let child = *(*root).append_rel_array.add((*rel).relid as usize);
        if child.is_null() {
            return;
        }
        let relid = (*child).parent_relid;
        // The conditions of partitions and inheritance children are rewritten with their parent's.
        if !is_union(root, relid) || first_seen(root, (*(*root).parse).jointree.cast()) != 0 {
            return;
        }
        let site = Site { relid, is_union: true, ..*site };
        for cell in cells((**(*root).simple_rel_array.add(relid as usize)).baserestrictinfo) {
            let condition = cell.ptr_value.cast::<pg_sys::RestrictInfo>();
            // In place, because the planner makes the conditions of the parts from this clause
            // alone.
            let clause = (*condition).clause.cast::<Node>();
            (*condition).clause = rewrite(&site, clause, false, &mut ptr::null_mut()).cast();
        }
    }
}

/// Rewrites the conditions of a join tree. Returns whether the site's entry is in it.
unsafe fn rewrite_join_tree(site: &Site, node: *mut Node) -> bool {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        if node.is_null() {
            return false;
        }
        check_stack_depth();
        match (*node).type_ {
            NodeTag::T_RangeTblRef => (*node.cast::<pg_sys::RangeTblRef>()).rtindex == site.relid as c_int,
            NodeTag::T_FromExpr => {
                let from = node.cast::<pg_sys::FromExpr>();
                let mut is_below = false;
                for cell in cells((*from).fromlist) {
                    is_below |= rewrite_join_tree(site, cell.ptr_value.cast());
                }
                (*from).quals = rewrite_all(&Site { is_below, ..*site }, (*from).quals.cast(), true).cast();
                is_below
            }
            NodeTag::T_JoinExpr => {
                let join = node.cast::<pg_sys::JoinExpr>();
                let is_left = rewrite_join_tree(site, (*join).larg);
                let is_right = rewrite_join_tree(site, (*join).rarg);
                // The conditions of other joins leave rows of the left side that do not fulfil
                // them, so an implied condition would serve no index there.
                let is_below = match (*join).jointype {
                    pg_sys::JoinType::JOIN_INNER => is_left || is_right,
                    pg_sys::JoinType::JOIN_FULL => false,
                    _ => is_right,
                };
                (*join).quals = rewrite_all(&Site { is_below, ..*site }, (*join).quals.cast(), true).cast();
                is_left || is_right
            }
            _ => false,
        }
    }
}

/// Rewrites each condition of a list. Returns the same list if there is nothing to rewrite.
/// `is_and`: all of them hold together.
///
/// This function, the next and `rewrite_arms` are called for each level of AND and OR. They must
/// use little stack, so that they can follow whatever PostgreSQL can nest in its own.
unsafe fn rewrite_all(site: &Site, conditions: *mut List, is_and: bool) -> *mut List {
    // SAFETY: conditions are a list by now, or null, wherever they are looked for.
    unsafe {
        let (mut rewritten, mut bounded, mut is_changed) = (ptr::null_mut(), ptr::null_mut(), false);
        for (n, cell) in cells(conditions).iter().enumerate() {
            let old = cell.ptr_value.cast::<Node>();
            let known = cells(bounded).len();
            let new = rewrite(site, old, is_and, &mut bounded);
            if new != old && !is_changed {
                is_changed = true;
                rewritten = list_of(&cells(conditions)[..n]);
            }
            if !is_changed {
                continue;
            }
            // What stood inside IS TRUE. The planner looks for indexes in the conditions of a list.
            let parts = new.cast::<pg_sys::BoolExpr>();
            if (*new).type_ == NodeTag::T_BoolExpr && (*parts).boolop == pg_sys::BoolExprType::AND_EXPR {
                rewritten = cells((*parts).args).iter().fold(rewritten, |list, part| lappend(list, part.ptr_value));
            } else {
                rewritten = lappend(rewritten, new.cast());
            }
            rewritten = with_kept(rewritten, &cells(bounded)[known..]);
        }
        if is_changed { with_companions(rewritten, bounded) } else { conditions }
    }
}

/// Rewrites a condition on an id's time, or its parts below AND, OR and IS TRUE, because elsewhere
/// no index would be used. Returns the same node if there is nothing to rewrite. With `is_and`, the
/// caller adds what must hold beside a comparison, from `bounded`.
unsafe fn rewrite(site: &Site, condition: *mut Node, is_and: bool, bounded: &mut *mut List) -> *mut Node {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        match (*condition).type_ {
            tag if is_comparison(tag) => replace(site, condition, is_and, bounded),
            // As a condition, NULL is as good as false.
            NodeTag::T_BooleanTest => {
                let test = condition.cast::<pg_sys::BooleanTest>();
                if (*test).booltesttype != pg_sys::BoolTestType::IS_TRUE {
                    return condition;
                }
                check_stack_depth();
                let tested = (*test).arg.cast::<Node>();
                let new = rewrite(site, tested, is_and, bounded);
                if new == tested { condition } else { new }
            }
            NodeTag::T_BoolExpr => {
                let parts = condition.cast::<pg_sys::BoolExpr>();
                // The planner has removed NOT from comparisons. What is left is skipped, because
                // NULL below NOT is not false.
                if (*parts).boolop == pg_sys::BoolExprType::NOT_EXPR {
                    return condition;
                }
                check_stack_depth();
                let is_or = (*parts).boolop == pg_sys::BoolExprType::OR_EXPR;
                let mut bounds = ptr::null_mut();
                if is_or {
                    bounds = bounds_of_all(site, (*parts).args);
                    let one = alternatives((*parts).args, bounds, is_and, bounded);
                    if !one.is_null() {
                        pfree(bounds.cast());
                        return one;
                    }
                }
                let args = if is_or {
                    rewrite_arms(site, (*parts).args, bounds)
                } else {
                    rewrite_all(site, (*parts).args, true)
                };
                // Thousands of arms take hundreds of kB. The planner then uses these pages again.
                if !bounds.is_null() {
                    pfree(bounds.cast());
                }
                if args == (*parts).args {
                    return condition;
                }
                makeBoolExpr((*parts).boolop, args, (*parts).location).cast()
            }
            NodeTag::T_NullTest => not_null(site, condition),
            _ => condition,
        }
    }
}

/// Replaces `IS NOT NULL` of a partitioned table's bigint column by `>=` the least bigint. Beside
/// an OR of comparisons of a key, PostgreSQL (15, 16, 18) prunes the default partition because of
/// the test.
#[inline(never)]
unsafe fn not_null(site: &Site, condition: *mut Node) -> *mut Node {
    // SAFETY: a node's type is what its tag says. The planner has filled this array.
    unsafe {
        let test = condition.cast::<pg_sys::NullTest>();
        let column = (*test).arg.cast::<pg_sys::Var>();
        let entry = *(*site.root).simple_rte_array.add(site.relid as usize);
        if (*test).nulltesttype != pg_sys::NullTestType::IS_NOT_NULL
            || !(site.is_union || (*entry).relkind as u8 == pg_sys::RELKIND_PARTITIONED_TABLE)
            || !is_column(column.cast(), site.relid)
            || (*column.cast::<Node>()).type_ != NodeTag::T_Var
            || (*column).vartype != pg_sys::INT8OID
        {
            return condition;
        }
        compare(column.cast(), INT8_GREATER_OR_EQUAL, number(i64::MIN))
    }
}

/// Rewrites those conditions of an OR that are comparisons. Returns what replaces each, or null if
/// none is on an id's time.
#[inline(never)]
unsafe fn bounds_of_all(site: &Site, conditions: *mut List) -> *mut Option<Bound> {
    // SAFETY: a list of conditions; what is allocated lives as long as the planning.
    unsafe {
        let mut all = ptr::null_mut::<Option<Bound>>();
        for (n, cell) in cells(conditions).iter().enumerate() {
            let condition = cell.ptr_value.cast::<Node>();
            let is_comparison = is_comparison((*condition).type_);
            let Some(bound) = (if is_comparison { rewritten(site, condition) } else { None }) else { continue };
            if all.is_null() {
                let count = cells(conditions).len();
                all = palloc(count * size_of::<Option<Bound>>()).cast();
                (0..count).for_each(|n| all.add(n).write(None));
            }
            all.add(n).write(Some(bound));
        }
        all
    }
}

/// Rewrites an OR of conditions that are all on the time of one id. What excludes numbers that are
/// not ids then stands once beside the OR, and not in each of its arms. Returns null for any other
/// OR.
#[inline(never)]
unsafe fn alternatives(
    conditions: *mut List,
    bounds: *const Option<Bound>,
    is_and: bool,
    bounded: &mut *mut List,
) -> *mut Node {
    // SAFETY: as many bounds as conditions, or null.
    unsafe {
        if bounds.is_null() {
            return ptr::null_mut();
        }
        let bounds = slice::from_raw_parts(bounds, cells(conditions).len());
        let Some(Some(first)) = bounds.first() else { return ptr::null_mut() };
        if !bounds.iter().all(|bound| bound.as_ref().is_some_and(|bound| bound.is_like(first))) {
            return ptr::null_mut();
        }
        // A guard of one arm is true for what the others leave.
        let (mut arms, mut below_0, mut above_last) = (ptr::null_mut(), Outside::Excluded, Outside::Excluded);
        for one in bounds.iter().flatten() {
            (below_0, above_last) = (below_0.max(one.below_0), above_last.max(one.above_last));
            let mut parts = lappend(ptr::null_mut(), one.comparison.cast());
            for other in [one.second, one.kept] {
                if !other.is_null() {
                    parts = lappend(parts, other.cast());
                }
            }
            arms = lappend(arms, conjunction(parts).cast());
        }
        let comparison = makeBoolExpr(pg_sys::BoolExprType::OR_EXPR, arms, -1).cast();
        let or = Bound { comparison, second: ptr::null_mut(), below_0, above_last, kept: ptr::null_mut(), ..*first };
        with_bound(or, is_and, bounded)
    }
}

/// Rewrites the arms of any other OR. Returns the same list if there is nothing to rewrite.
unsafe fn rewrite_arms(site: &Site, conditions: *mut List, bounds: *const Option<Bound>) -> *mut List {
    // SAFETY: as many bounds as conditions, or null.
    unsafe {
        let (mut arms, mut is_changed) = (ptr::null_mut(), false);
        for (n, cell) in cells(conditions).iter().enumerate() {
            let old = cell.ptr_value.cast::<Node>();
            let new = match bounds.as_ref().and_then(|_| *bounds.add(n)) {
                Some(bound) => with_bound(bound, false, &mut ptr::null_mut()),
                None if matches!((*old).type_, NodeTag::T_BoolExpr | NodeTag::T_BooleanTest) => {
                    rewrite(site, old, false, &mut ptr::null_mut())
                }
                None => old,
            };
            if new != old && !is_changed {
                is_changed = true;
                arms = list_of(&cells(conditions)[..n]);
            }
            if is_changed {
                arms = lappend(arms, new.cast());
            }
        }
        if is_changed { arms } else { conditions }
    }
}

#[inline(never)]
unsafe fn replace(site: &Site, condition: *mut Node, is_and: bool, bounded: &mut *mut List) -> *mut Node {
    // SAFETY: the condition is a comparison.
    unsafe {
        match rewritten(site, condition) {
            Some(bound) => with_bound(bound, is_and, bounded),
            None => condition,
        }
    }
}

/// Returns the condition that takes the place of the original one. With `is_and`, the caller adds
/// what must hold beside it, from `bounded`.
#[inline(never)]
unsafe fn with_bound(bound: Bound, is_and: bool, bounded: &mut *mut List) -> *mut Node {
    // SAFETY: what is allocated lives as long as the planning.
    unsafe {
        let place = palloc(size_of::<Bound>()).cast::<Bound>();
        place.write(bound);
        let list = lappend(if is_and { *bounded } else { ptr::null_mut() }, place.cast());
        if is_and {
            *bounded = list;
            return bound.comparison;
        }
        let conditions = with_kept(lappend(ptr::null_mut(), bound.comparison.cast()), cells(list));
        conjunction(with_companions(conditions, list))
    }
}
