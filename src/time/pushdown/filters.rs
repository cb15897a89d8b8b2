//! Drops from a finished plan's filters the bounds that a kept condition beside them implies.
//!
//! Indexes, partitions, CHECK constraints and other libraries need the bounds while a query is
//! planned. A filter that checks the kept condition does not: there, the bounds would only be
//! computed again for each row. They are marked when they are made, and stand in the same list as
//! the condition, so they reach the same filter.
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

/// The place in the query's text of what is marked. What the planner makes has none, which is -1,
/// and PostgreSQL compares nodes without it.
const IMPLIED: c_int = -51;

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

/// Marks a comparison of an id with a bound, beside which a condition is kept that implies it.
pub(super) unsafe fn mark_bound(comparison: *mut Node) {
    // SAFETY: an operator's node, just made.
    unsafe { (*comparison.cast::<pg_sys::OpExpr>()).location = IMPLIED };
    HAS_MARKED.set(true);
}

/// Marks a call that returns its argument, which a filter then checks by itself.
pub(super) unsafe fn mark_call(call: *mut Node) {
    // SAFETY: a function's node, just made.
    unsafe { (*call.cast::<pg_sys::FuncExpr>()).location = IMPLIED };
    HAS_MARKED.set(true);
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

/// Returns conditions that hold together without what is marked, which is never all of them.
unsafe fn without_implied(conditions: *mut List) -> *mut List {
    // SAFETY: a list of conditions.
    unsafe {
        let is_needed = |cell: &&pg_sys::ListCell| !is_implied(cell.ptr_value.cast());
        let has_needed = cells(conditions).iter().any(|cell| is_needed(&cell));
        let mut rest = ptr::null_mut();
        for cell in cells(conditions).iter().filter(|cell| !has_needed || is_needed(cell)) {
            rest = lappend(rest, simplified(cell.ptr_value.cast()).cast());
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
            NodeTag::T_FuncExpr if (*condition.cast::<pg_sys::FuncExpr>()).location == IMPLIED => {
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

/// Returns whether a condition consists of marked comparisons.
unsafe fn is_implied(condition: *mut Node) -> bool {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        match (*condition).type_ {
            NodeTag::T_OpExpr => (*condition.cast::<pg_sys::OpExpr>()).location == IMPLIED,
            NodeTag::T_BoolExpr => {
                check_stack_depth();
                let parts = cells((*condition.cast::<pg_sys::BoolExpr>()).args);
                parts.iter().all(|cell| is_implied(cell.ptr_value.cast()))
            }
            _ => false,
        }
    }
}
