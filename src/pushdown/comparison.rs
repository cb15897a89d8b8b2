//! Comparisons of an id's time, and the comparisons of the id that replace them.

use std::ffi::c_int;
use std::ptr;

use pgrx::pg_sys::{self, Node, NodeTag, Oid};

#[cfg(not(feature = "pg15"))]
use super::nodes::object_aclcheck;
#[cfg(feature = "pg15")]
use super::nodes::pg_proc_aclcheck;
use super::nodes::{
    GetUserId, INT8_GREATER_OR_EQUAL, INT8_LESS_OR_EQUAL, bms_is_member, cells, compare, contain_volatile_functions,
    copyObjectImpl, eval_const_expressions, lappend, list_append_unique_oid, makeFuncExpr, number, pull_varnos,
    record_plan_function_dependency, set_opfuncid,
};
use super::time::{Found, Other, Time, is_organized, layout_argument, table_of, time_of};
use super::{Bounded, Site};

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

/// Rewrites a comparison, if an id's time is on one of its sides.
pub(super) unsafe fn rewrite_comparison(site: &Site, comparison: *mut pg_sys::OpExpr) -> Option<Bounded> {
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
