//! Drops from a finished plan's filters the bounds that the next condition, a kept one, implies.
//!
//! Indexes, partitions, CHECK constraints and other libraries need the bounds while a query is
//! planned. A filter that checks the kept condition does not: there, the bounds would only be
//! computed again for each row. Both are marked when they are made, and stand in the same list.
//! They mostly reach the same filter, but a join may check the condition, and a policy may come
//! first.
//!
//! Custom scans and foreign scans are left alone, because their libraries decide what they check.

use std::ffi::{c_char, c_int};
use std::ptr;

use pgrx::pg_sys::{
    self, List, Node, NodeTag, ParamListInfo, PlannedStmt, Query, planner_hook, planner_hook_type as Hook,
};

use super::nodes::{cells, check_stack_depth, lappend, makeBoolExpr};
use crate::postgres::local::Local;

unsafe extern "C-unwind" {
    // optimizer/planner.h
    #[cfg(not(feature = "pg19"))]
    fn standard_planner(
        parse: *mut Query,
        query_string: *const c_char,
        cursor_options: c_int,
        bound_params: ParamListInfo,
    ) -> *mut PlannedStmt;
    #[cfg(feature = "pg19")]
    fn standard_planner(
        parse: *mut Query,
        query_string: *const c_char,
        cursor_options: c_int,
        bound_params: ParamListInfo,
        explain: *mut pg_sys::ExplainState,
    ) -> *mut PlannedStmt;
}

/// The hook that was installed before ours.
static PREVIOUS: Local<Hook> = Local::new(None);

/// Whether a bound was marked in the query that is being planned.
static HAS_MARKED: Local<bool> = Local::new(false);

/// The mark of the last kept condition.
static LAST_MARK: Local<c_int> = Local::new(FIRST_MARK);

/// A mark stands as the place in the query's text. What the planner makes has none, which is -1,
/// and PostgreSQL compares nodes without it. Kept conditions have these marks, which are even, and
/// their bounds the next lower ones.
const FIRST_MARK: c_int = -52;

/// Installs the hook.
///
/// # Safety
/// Called once, by the postmaster.
pub(super) unsafe fn init() {
    // SAFETY: the postmaster has one thread; this is how PostgreSQL chains hooks.
    unsafe {
        PREVIOUS.set(planner_hook);
        planner_hook = Some(planner);
    }
}

/// Returns whether a bound was marked in the query that is being planned.
pub(super) fn has_marked() -> bool {
    HAS_MARKED.get()
}

/// What is not marked has this place.
pub(super) const NO_MARK: c_int = -1;

/// A bound that no kept condition implies has this place. Only `estimate.rs` looks at it.
pub(super) const NOTHING_KEPT: c_int = -2;

/// Marks a kept condition, which may be an argument of `snowflake_plan.checked()`. A filter then
/// checks it without that call. Returns the mark of its bounds. `original` is what it was before,
/// which may have been kept for another table's bounds.
pub(super) unsafe fn mark_kept(kept: *mut Node, original: *mut Node) -> c_int {
    // SAFETY: conditions' nodes, of which the first was just made.
    unsafe {
        let mut mark = mark_of(original);
        if !is_marked(mark) {
            let last = LAST_MARK.get();
            mark = if last > c_int::MIN + 2 { last - 2 } else { FIRST_MARK };
            LAST_MARK.set(mark);
        }
        match (*kept).type_ {
            NodeTag::T_FuncExpr => (*kept.cast::<pg_sys::FuncExpr>()).location = mark,
            NodeTag::T_OpExpr => (*kept.cast::<pg_sys::OpExpr>()).location = mark,
            NodeTag::T_ScalarArrayOpExpr => (*kept.cast::<pg_sys::ScalarArrayOpExpr>()).location = mark,
            // A comparison of rows has no place.
            _ => (),
        }
        mark - 1
    }
}

/// Marks a comparison of an id.
pub(super) unsafe fn mark_bound(comparison: *mut Node, mark: c_int) {
    HAS_MARKED.set(true);
    // SAFETY: an operator's node, just made.
    unsafe { (*comparison.cast::<pg_sys::OpExpr>()).location = mark };
}

#[cfg(not(feature = "pg19"))]
unsafe extern "C-unwind" fn planner(
    parse: *mut Query,
    query_string: *const c_char,
    cursor_options: c_int,
    bound_params: ParamListInfo,
) -> *mut PlannedStmt {
    // SAFETY: PostgreSQL calls it, with a query to be planned.
    unsafe {
        planned(|| match PREVIOUS.get() {
            Some(previous) => previous(parse, query_string, cursor_options, bound_params),
            None => standard_planner(parse, query_string, cursor_options, bound_params),
        })
    }
}

#[cfg(feature = "pg19")]
unsafe extern "C-unwind" fn planner(
    parse: *mut Query,
    query_string: *const c_char,
    cursor_options: c_int,
    bound_params: ParamListInfo,
    explain: *mut pg_sys::ExplainState,
) -> *mut PlannedStmt {
    // SAFETY: as above.
    unsafe {
        planned(|| match PREVIOUS.get() {
            Some(previous) => previous(parse, query_string, cursor_options, bound_params, explain),
            None => standard_planner(parse, query_string, cursor_options, bound_params, explain),
        })
    }
}

/// Plans a query, and drops what is marked. A function that is evaluated meanwhile may plan others.
unsafe fn planned(plan: impl FnOnce() -> *mut PlannedStmt) -> *mut PlannedStmt {
    let outer = HAS_MARKED.replace(false);
    let planned = plan();
    // After an error, it may still be true, and a plan is searched in vain.
    if HAS_MARKED.replace(outer) {
        // SAFETY: a finished plan, which nothing else refers to yet.
        unsafe {
            drop_implied((*planned).planTree);
            cells((*planned).subplans).iter().for_each(|cell| drop_implied(cell.ptr_value.cast()));
        }
    }
    planned
}

/// Drops what is marked from the filters of a plan's node, and of those below it.
unsafe fn drop_implied(plan: *mut pg_sys::Plan) {
    // SAFETY: a node's type is what its tag says. A subplan may be null.
    unsafe {
        if plan.is_null() {
            return;
        }
        check_stack_depth();
        let mut is_own = true;
        let below = match (*plan).type_ {
            NodeTag::T_Append => (*plan.cast::<pg_sys::Append>()).appendplans,
            NodeTag::T_MergeAppend => (*plan.cast::<pg_sys::MergeAppend>()).mergeplans,
            NodeTag::T_SubqueryScan => {
                drop_implied((*plan.cast::<pg_sys::SubqueryScan>()).subplan);
                ptr::null_mut()
            }
            NodeTag::T_CustomScan => {
                is_own = false;
                (*plan.cast::<pg_sys::CustomScan>()).custom_plans
            }
            NodeTag::T_ForeignScan => {
                is_own = false;
                ptr::null_mut()
            }
            NodeTag::T_NestLoop | NodeTag::T_MergeJoin | NodeTag::T_HashJoin => {
                let join = plan.cast::<pg_sys::Join>();
                (*join).joinqual = without_implied((*join).joinqual);
                ptr::null_mut()
            }
            _ => ptr::null_mut(),
        };
        if is_own {
            (*plan).qual = without_implied((*plan).qual);
        }
        cells(below).iter().for_each(|cell| drop_implied(cell.ptr_value.cast()));
        drop_implied((*plan).lefttree);
        drop_implied((*plan).righttree);
    }
}

/// Returns conditions that hold together without the bounds whose kept condition is checked
/// earlier, or right after the bounds. What else is checked in between, the planner has found
/// cheaper than the kept condition, or it must be checked earlier: there, a bound saves its cost.
unsafe fn without_implied(conditions: *mut List) -> *mut List {
    // SAFETY: a list of conditions.
    unsafe {
        let all = cells(conditions);
        let marks = |cells: &'static [pg_sys::ListCell]| cells.iter().map(|cell| mark_of(cell.ptr_value.cast()));
        let mut rest = ptr::null_mut();
        for (n, cell) in all.iter().enumerate() {
            let mark = mark_of(cell.ptr_value.cast());
            let is_kept = |other| other == mark + 1;
            let is_implied = is_bound(mark)
                && (marks(&all[..n]).any(is_kept) || marks(&all[n..]).take_while(|mark| is_marked(*mark)).any(is_kept));
            if !is_implied {
                rest = lappend(rest, simplified(cell.ptr_value.cast()).cast());
            }
        }
        rest
    }
}

/// Returns a condition without what is marked in its parts. What kept the planner from counting a
/// kept condition twice is also marked, and gives way to that condition.
unsafe fn simplified(condition: *mut Node) -> *mut Node {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        match (*condition).type_ {
            NodeTag::T_FuncExpr if is_marked(mark_of(condition)) => {
                cells((*condition.cast::<pg_sys::FuncExpr>()).args)[0].ptr_value.cast()
            }
            NodeTag::T_BoolExpr => {
                check_stack_depth();
                let parts = condition.cast::<pg_sys::BoolExpr>();
                // A copy, because what an index searches may share the node.
                let rest = if (*parts).boolop == pg_sys::BoolExprType::AND_EXPR {
                    without_implied((*parts).args)
                } else {
                    let simplified = |cell: &pg_sys::ListCell| simplified(cell.ptr_value.cast());
                    cells((*parts).args)
                        .iter()
                        .map(simplified)
                        .fold(ptr::null_mut(), |rest, part| lappend(rest, part.cast()))
                };
                match cells(rest) {
                    [only] if (*parts).boolop != pg_sys::BoolExprType::NOT_EXPR => only.ptr_value.cast(),
                    _ => makeBoolExpr((*parts).boolop, rest, -1).cast(),
                }
            }
            _ => condition,
        }
    }
}

fn is_marked(mark: c_int) -> bool {
    mark <= FIRST_MARK
}

fn is_bound(mark: c_int) -> bool {
    is_marked(mark) && mark % 2 != 0
}

/// Returns the mark of a condition, if it has one. What consists of bounds has that of the first
/// one: an OR has one kept condition for all its arms, with that mark.
pub(super) unsafe fn mark_of(condition: *mut Node) -> c_int {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        match (*condition).type_ {
            NodeTag::T_FuncExpr => (*condition.cast::<pg_sys::FuncExpr>()).location,
            NodeTag::T_OpExpr => (*condition.cast::<pg_sys::OpExpr>()).location,
            NodeTag::T_ScalarArrayOpExpr => (*condition.cast::<pg_sys::ScalarArrayOpExpr>()).location,
            NodeTag::T_BoolExpr => {
                check_stack_depth();
                let parts = cells((*condition.cast::<pg_sys::BoolExpr>()).args);
                let mark = mark_of(parts[0].ptr_value.cast());
                if parts.iter().all(|cell| is_bound(mark_of(cell.ptr_value.cast()))) { mark } else { NO_MARK }
            }
            _ => NO_MARK,
        }
    }
}
