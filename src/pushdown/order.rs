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

use std::ffi::c_int;
use std::ptr;

use pgrx::pg_sys::{
    self, Index, List, Node, NodeTag, ScanDirection, set_rel_pathlist_hook, set_rel_pathlist_hook_type as Hook,
};

use super::Site;
use super::nodes::{
    add_path, bms_equal, cells, contain_volatile_functions, create_index_path, is_column, lappend, makeNode,
    set_opfuncid, without_relabeling,
};
use super::time::{Time, time_of};
use crate::guc;
use crate::local::Local;

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
        let is_table = (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION && !(*entry).inh;
        let is_sampled = !(*entry).tablesample.is_null();
        if is_table && !is_sampled && !(*rel).indexlist.is_null() && (*rel).lateral_relids.is_null() {
            add_ordered_paths(root, rel, relid);
        }
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
            let is_ordered_by_id = (*index).relam == pg_sys::BTREE_AM_OID
                && *(*index).indexkeys == c_int::from((*column).varattno)
                && (*(*index).opfamily).to_u32() == INTEGER_FAMILY
                && (*(*index).opcintype) == pg_sys::INT8OID;
            let is_whole = (*index).indpred.is_null() || (*index).predOK;
            if !is_ordered_by_id || !is_whole {
                continue;
            }
            let forward = (*(*index).reverse_sort, *(*index).nulls_first);
            let wanted = (is_descending(key), (*key).pk_nulls_first);
            let direction = if wanted == forward {
                ScanDirection::ForwardScanDirection
            } else if wanted == (!forward.0, !forward.1) {
                ScanDirection::BackwardScanDirection
            } else {
                continue;
            };
            let (none, keys) = (ptr::null_mut(), lappend(ptr::null_mut(), key.cast()));
            let clauses = conditions_on(rel, relid, index, (*column).varattno);
            let path =
                create_index_path(root, index, clauses, none, none, keys, direction, false, none.cast(), 1.0, false);
            add_path(rel, path.cast());
        }
    }
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
        let mut functions = None;
        let mut layout = None;
        let mut dependency = pg_sys::InvalidOid;
        let site = Site {
            root,
            rel,
            relid,
            is_union: false,
            is_below: false,
            functions: &raw mut functions,
            layout: &raw mut layout,
            dependency: &raw mut dependency,
        };
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
