//! Reads rows in the order of their ids' times from an index on the ids, as `ORDER BY ... LIMIT`
//! asks for.
//!
//! The time is the high bits of an id, so the order of ids is one of the orders of their times. The
//! sort key is not rewritten, because ids with equal times are ties, for a second key, WITH TIES or
//! DISTINCT ON. The planner gets a path that it would not find: one of an index on the ids, which
//! is said to return the times in order. LIMIT, an incremental sort and a merge of partitions
//! follow by themselves.
//!
//! A number that is not an id of the layout raises its error when its time is read. A LIMIT may be
//! reached before that.
//!
//! A path that the hook adds must return no row that PostgreSQL's own paths do not. So it may only
//! be added where PostgreSQL would look for paths of the same index itself (`is_scanned`,
//! `is_usable`), and must carry every condition on the table (`carries_every_condition`).

use std::ffi::{c_char, c_int};
use std::ptr;

use pgrx::pg_sys::{
    self, Index, List, Node, NodeTag, ScanDirection, set_rel_pathlist_hook, set_rel_pathlist_hook_type as Hook,
};

#[cfg(any(feature = "pg15", feature = "pg16"))]
use pgrx::pg_guard;

use super::id_time::{Found, Site, Time, time_of};
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
use super::nodes::bms_is_member;
use super::nodes::{
    add_path, bms_equal, cells, contain_volatile_functions, create_index_path, is_column, is_dummy_rel, lappend,
    makeNode, predicate_implied_by, set_opfuncid, without_relabeling,
};
#[cfg(any(feature = "pg15", feature = "pg16"))]
use crate::postgres::catalog;
use crate::postgres::local::Local;
use crate::settings::guc;

/// The hook that was installed before ours.
static PREVIOUS: Local<Hook> = Local::new(None);

/// Installs the hook, when preloaded.
///
/// # Safety
/// Called by the postmaster, while it loads libraries.
pub(super) unsafe fn init() {
    // SAFETY: the postmaster has one thread; this is how PostgreSQL chains hooks.
    unsafe {
        PREVIOUS.set(set_rel_pathlist_hook);
        set_rel_pathlist_hook = Some(paths);
    }
}

/// Called for each table of a query, and for each of its partitions, when the planner has collected
/// the ways to read it.
unsafe extern "C-unwind" fn paths(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    relid: Index,
    entry: *mut pg_sys::RangeTblEntry,
) {
    // SAFETY: PostgreSQL calls it, with arguments that are valid while the query is planned.
    unsafe {
        if let Some(previous) = PREVIOUS.get() {
            previous(root, rel, relid, entry);
        }
        if is_scanned(rel, entry) && !(*rel).indexlist.is_null() {
            add_ordered_paths(root, rel, relid);
        }
    }
}

/// Returns whether PostgreSQL looks for scans of a relation's indexes itself
/// (`set_plain_rel_pathlist()`). The hook is also called for relations for which it does not:
///
/// - What was proved empty, because a condition is false or NULL, or contradicts a constraint, and
///   `FROM ONLY` of a partitioned table. Nothing about its indexes is prepared, least of all the
///   conditions that a scan checks: a scan would return rows that a policy hides. From PostgreSQL
///   16 on, a partitioned table lists indexes of its own, whose order is a null pointer.
/// - What stands for its children. A pruned partition has no relation at all.
/// - What is not a table of its own, a foreign table (other hooks may show indexes of one), and
///   TABLESAMPLE, which leaves out rows that an index has.
/// - What needs rows of another relation, by LATERAL. Such a path has parameters.
///
/// For UPDATE, DELETE and MERGE it is the same, and `WHERE CURRENT OF`, for which only a TID scan
/// is right, comes with no order. Joins are not looked at: they take these paths like others, with
/// the conditions that they add.
unsafe fn is_scanned(rel: *mut pg_sys::RelOptInfo, entry: *const pg_sys::RangeTblEntry) -> bool {
    let kind = |kind: u8| c_int::from(kind) as c_char;
    // SAFETY: a relation that the planner has prepared, and its entry.
    unsafe {
        let is_table = (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION
            && !(*entry).inh
            && [kind(pg_sys::RELKIND_RELATION), kind(pg_sys::RELKIND_MATVIEW)].contains(&(*entry).relkind);
        is_table && (*entry).tablesample.is_null() && (*rel).lateral_relids.is_null() && !is_dummy_rel(rel)
    }
}

unsafe fn add_ordered_paths(root: *mut pg_sys::PlannerInfo, rel: *mut pg_sys::RelOptInfo, relid: Index) {
    // SAFETY: the planner has filled these lists by now. A node's type is what its tag says.
    unsafe {
        let Some(key) = cells((*root).query_pathkeys).first() else { return };
        let key = key.ptr_value.cast::<pg_sys::PathKey>();
        if (*key).pk_opfamily.to_u32() != TIMESTAMPTZ_FAMILY || !guc::enable_time_pushdown() {
            return;
        }
        let Some(id) = id_of(root, rel, relid, (*key).pk_eclass) else { return };
        let column = without_relabeling(id).cast::<pg_sys::Var>();
        for cell in cells((*rel).indexlist) {
            let index = cell.ptr_value.cast::<pg_sys::IndexOptInfo>();
            if !is_ordered_by(index, (*column).varattno) || !is_usable(rel, index) {
                continue;
            }
            let is_forward = is_descending(key) == *(*index).reverse_sort;
            let has_nulls_there = ((*key).pk_nulls_first == *(*index).nulls_first) == is_forward;
            if !has_nulls_there && !is_not_null(root, rel, relid, (*column).varattno) {
                continue;
            }
            let direction =
                if is_forward { ScanDirection::ForwardScanDirection } else { ScanDirection::BackwardScanDirection };
            let (none, keys) = (ptr::null_mut(), lappend(ptr::null_mut(), key.cast()));
            let clauses = conditions_on(rel, relid, index, (*column).varattno);
            let path =
                create_index_path(root, index, clauses, none, none, keys, direction, false, none.cast(), 1.0, false);
            if cfg!(debug_assertions) && !carries_every_condition(rel, index) {
                fail_assertion();
            }
            add_path(rel, path.cast());
        }
    }
}

/// Returns whether an index is a B-tree whose first column is a column of type bigint.
pub(super) unsafe fn is_ordered_by(index: *const pg_sys::IndexOptInfo, attribute: pg_sys::AttrNumber) -> bool {
    // SAFETY: an index that the planner has prepared.
    unsafe {
        (*index).relam == pg_sys::BTREE_AM_OID
            && *(*index).indexkeys == c_int::from(attribute)
            && (*(*index).opfamily).to_u32() == INTEGER_FAMILY
            && (*(*index).opcintype) == pg_sys::INT8OID
    }
}

/// Returns whether the index can be scanned in its order, has all rows that the conditions on its
/// table leave, and the planner has decided which conditions a scan must check.
///
/// Both lists are the same by then, except for a partial index, which has a flag for it
/// (`check_index_predicates()`). A second line behind `is_scanned`: elsewhere the index's list is
/// null, and a scan would check nothing.
unsafe fn is_usable(rel: *const pg_sys::RelOptInfo, index: *const pg_sys::IndexOptInfo) -> bool {
    // SAFETY: an index of the relation.
    unsafe {
        let is_prepared = if (*index).indpred.is_null() {
            (*index).indrestrictinfo == (*rel).baserestrictinfo
        } else {
            (*index).predOK
        };
        // An index of a partitioned table has no order.
        is_prepared && !(*index).sortopfamily.is_null()
    }
}

/// Returns whether a scan of the index checks every condition on its table, or has only rows that
/// fulfil it. Too slow for each planning: builds for tests assert it before a path is added.
unsafe fn carries_every_condition(rel: *const pg_sys::RelOptInfo, index: *const pg_sys::IndexOptInfo) -> bool {
    // SAFETY: lists of conditions, and of what the index's rows fulfil.
    unsafe {
        cells((*rel).baserestrictinfo).iter().all(|cell| {
            let condition = cell.ptr_value.cast::<pg_sys::RestrictInfo>();
            let is_checked = cells((*index).indrestrictinfo).iter().any(|checked| checked.ptr_value == cell.ptr_value);
            let clause = || lappend(ptr::null_mut(), (*condition).clause.cast());
            is_checked || !(*index).indpred.is_null() && predicate_implied_by(clause(), (*index).indpred, false)
        })
    }
}

/// Ends the process, and with it the server's others, as an assertion of PostgreSQL does. Not by a
/// panic, which could not pass the planner's frames.
#[cold]
fn fail_assertion() -> ! {
    eprintln!("TRAP: failed assertion: a path for the order of time does not carry every condition of its table");
    std::process::abort()
}

/// The operator families of B-trees on timestamptz and on bigint: their oids in
/// catalog/pg_opfamily.dat.
const TIMESTAMPTZ_FAMILY: u32 = 434;
const INTEGER_FAMILY: u32 = 1976;

unsafe fn is_descending(key: *const pg_sys::PathKey) -> bool {
    // SAFETY: a sort key.
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    let order = unsafe { (*key).pk_strategy as u32 };
    // SAFETY: the same. The numbers are those of a B-tree's strategies.
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    let order = unsafe { (*key).pk_cmptype as u32 };
    order == pg_sys::BTGreaterStrategyNumber
}

/// Returns whether a column of a table is NOT NULL, so that it does not matter at which end of an
/// index NULLs are.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
unsafe fn is_not_null(
    _: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    _: Index,
    attribute: pg_sys::AttrNumber,
) -> bool {
    // SAFETY: the planner has filled the set.
    unsafe { bms_is_member(attribute.into(), (*rel).notnullattnums) }
}

/// The same, before the planner knew.
#[cfg(any(feature = "pg15", feature = "pg16"))]
unsafe fn is_not_null(
    root: *mut pg_sys::PlannerInfo,
    _: *mut pg_sys::RelOptInfo,
    relid: Index,
    attribute: pg_sys::AttrNumber,
) -> bool {
    // SAFETY: the planner has filled this array.
    unsafe { is_column_not_null((**(*root).simple_rte_array.add(relid as usize)).relid, attribute) }
}

#[cfg(any(feature = "pg15", feature = "pg16"))]
#[pg_guard]
extern "C-unwind" fn is_column_not_null(table: pg_sys::Oid, attribute: pg_sys::AttrNumber) -> bool {
    catalog::is_column_not_null(table, attribute)
}

/// Returns the id of the table whose time is what is sorted by.
unsafe fn id_of(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    relid: Index,
    class: *mut pg_sys::EquivalenceClass,
) -> Option<*mut Node> {
    // SAFETY: the planner keeps the members for a child table with the class.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
        let members = (*class).ec_members;
        #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
        let members = {
            let is_child = (*rel).reloptkind == pg_sys::RelOptKind::RELOPT_OTHER_MEMBER_REL;
            let has_children = !(*class).ec_childmembers.is_null() && (relid as c_int) < (*class).ec_childmembers_size;
            match (is_child, has_children) {
                (true, true) => *(*class).ec_childmembers.add(relid as usize),
                (true, false) => return None,
                (false, _) => (*class).ec_members,
            }
        };
        let mut found = Found::new();
        let site = Site { root, rel, relid, is_union: false, is_below: false, found: &raw mut found };
        for cell in cells(members) {
            let member = cell.ptr_value.cast::<pg_sys::EquivalenceMember>();
            if bms_equal((*member).em_relids, (*rel).relids)
                && let Some(Time { id, .. }) = time_of(&site, (*member).em_expr.cast())
            {
                return Some(id);
            }
        }
        None
    }
}

/// Returns those conditions on a table that the index's first column serves: comparisons of the id
/// with what no table is needed for.
unsafe fn conditions_on(
    rel: *mut pg_sys::RelOptInfo,
    relid: Index,
    index: *mut pg_sys::IndexOptInfo,
    attribute: pg_sys::AttrNumber,
) -> *mut List {
    // SAFETY: a list of conditions. A node's type is what its tag says; these operators have two
    // arguments.
    unsafe {
        let mut clauses = ptr::null_mut();
        for cell in cells((*index).indrestrictinfo) {
            let condition = cell.ptr_value.cast::<pg_sys::RestrictInfo>();
            let operator = (*condition).clause.cast::<pg_sys::OpExpr>();
            // A condition of a view's user must not see rows that the view hides.
            let is_secure = (*condition).security_level <= (*rel).baserestrict_min_security || (*condition).leakproof;
            if (*operator).xpr.type_ != NodeTag::T_OpExpr || (*condition).pseudoconstant || !is_secure {
                continue;
            }
            set_opfuncid(operator);
            let function = (*operator).opfuncid.to_u32();
            let is_comparison =
                [pg_sys::F_INT8LT, pg_sys::F_INT8LE, pg_sys::F_INT8EQ, pg_sys::F_INT8GE, pg_sys::F_INT8GT]
                    .contains(&function);
            if !is_comparison {
                continue;
            }
            let arguments = cells((*operator).args);
            let (left, right) = (arguments[0].ptr_value.cast::<Node>(), arguments[1].ptr_value.cast::<Node>());
            let is_on_column =
                is_column(left, relid) && (*without_relabeling(left).cast::<pg_sys::Var>()).varattno == attribute;
            if is_on_column && (*condition).right_relids.is_null() && !contain_volatile_functions(right) {
                let clause = makeNode::<pg_sys::IndexClause>(NodeTag::T_IndexClause);
                (*clause).rinfo = condition;
                (*clause).indexquals = lappend(ptr::null_mut(), condition.cast());
                clauses = lappend(clauses, clause.cast());
            }
        }
        clauses
    }
}
