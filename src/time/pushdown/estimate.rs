//! How many rows the planner expects where a condition is kept beside the bounds that it implies.
//!
//! The bounds already say how many. The kept condition is an argument of
//! `snowflake_plan.checked()`, and this file tells the planner that it holds. Else it would count
//! twice.

use pgrx::datum::Internal;
use pgrx::pg_sys::{self, Node, NodeTag};
use pgrx::prelude::*;

/// Returns its argument: a condition that is kept beside the bounds that it implies. The planner
/// expects it to be true, because the bounds already say how many rows there are.
#[pg_extern(name = "checked", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_checked(condition: bool) -> bool {
    condition
}

/// Answers what the planner asks about `snowflake_plan.checked()`: it is true. Called by the
/// planner only.
#[pg_extern(
    schema = "snowflake_plan",
    sql = r#"
CREATE FUNCTION snowflake_plan.checked_support(request internal) RETURNS internal
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_checked_support(request: Internal) -> Internal {
    let request = request.unwrap().expect("the function is strict");
    let node = request.cast_mut_ptr::<Node>();
    // SAFETY: only the planner can make an argument of type internal, and passes a node to a
    // support function. A node's type is what its tag says.
    let is_answered = unsafe {
        let is_selectivity = (*node).type_ == NodeTag::T_SupportRequestSelectivity;
        if is_selectivity {
            (*node.cast::<pg_sys::SupportRequestSelectivity>()).selectivity = 1.0;
        }
        is_selectivity
    };
    // A null pointer is "no answer". It is not an SQL NULL.
    Internal::from(Some(if is_answered { request } else { pg_sys::Datum::from(0) }))
}
