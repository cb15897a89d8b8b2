//! What replaces a condition on an id's time: comparisons of the id with bounds, and what must hold
//! beside them, so that numbers that are not ids are left out.

use std::ptr;

use pgrx::pg_sys::{self, List, Node, NodeTag};

use super::filters;
use super::nodes::{
    INT8_GREATER, INT8_GREATER_OR_EQUAL, INT8_LESS, INT8_LESS_OR_EQUAL, cells, compare, copyObjectImpl, equal, lappend,
    makeBoolExpr, number,
};

/// What becomes of the numbers on one side of a layout's ids. Of alternatives, the greatest counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outside {
    /// The bound excludes them, or there are none. No guard is needed where it also holds.
    Excluded,
    /// The bound excludes them, but not before a row of another table is known. PostgreSQL may read
    /// this table's ids first, and then check the condition.
    ExcludedLate,
    /// They need a guard.
    Guarded,
}

/// The two sides of a layout's ids.
#[derive(Clone, Copy)]
enum Side {
    Below0,
    AboveLast,
}

/// What replaces a condition.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    pub(super) id: *mut Node,
    /// The last id of the id's layout.
    pub(super) last_id: i64,
    /// The comparison of the id that takes the condition's place. It may be an OR.
    pub(super) comparison: *mut Node,
    /// Another comparison that holds beside it; null for none.
    pub(super) second: *mut Node,
    pub(super) below_0: Outside,
    pub(super) above_last: Outside,
    /// The condition itself, if another table still needs it, or if it is only implied; else null.
    pub(super) kept: *mut Node,
}

impl Bound {
    /// Returns whether two bounds are for the same id and layout.
    pub(super) unsafe fn is_like(&self, other: &Self) -> bool {
        // SAFETY: two expressions.
        self.last_id == other.last_id && unsafe { equal(self.id.cast(), other.id.cast()) }
    }

    fn outside(&self, side: Side) -> Outside {
        match side {
            Side::Below0 => self.below_0,
            Side::AboveLast => self.above_last,
        }
    }

    /// Returns whether this bound makes the guard of `other` superfluous, where both hold. Its
    /// comparisons may do so. So may its guard, if it is `earlier`.
    unsafe fn guards(&self, other: &Self, side: Side, earlier: bool) -> bool {
        let is_guarding = match self.outside(side) {
            Outside::Excluded => true,
            Outside::ExcludedLate => false,
            Outside::Guarded => earlier,
        };
        let is_enough = matches!(side, Side::Below0) || self.last_id <= other.last_id;
        // SAFETY: two expressions.
        is_guarding && is_enough && unsafe { equal(self.id.cast(), other.id.cast()) }
    }

    /// Makes the condition that excludes the numbers of one side.
    unsafe fn guard(&self, side: Side) -> *mut Node {
        // SAFETY: a column of type bigint. A node's type is what its tag says.
        unsafe {
            let id = copyObjectImpl(self.id.cast()).cast();
            let (inside, beyond, end) = match side {
                Side::AboveLast => (INT8_LESS_OR_EQUAL, INT8_GREATER, number(self.last_id)),
                Side::Below0 => (INT8_GREATER_OR_EQUAL, INT8_LESS, number(0)),
            };
            if (*self.comparison).type_ != NodeTag::T_BoolExpr {
                let guard = compare(id, inside, end);
                // What implies the bound is true for no number that is not an id.
                filters::mark_bound(guard, filters::mark_of(self.comparison));
                return guard;
            }
            // PostgreSQL would add an index's condition to each arm of the OR, and plan it there.
            let beyond = lappend(ptr::null_mut(), compare(id, beyond, end).cast());
            makeBoolExpr(pg_sys::BoolExprType::NOT_EXPR, beyond, -1).cast()
        }
    }
}

/// Makes one condition of several.
pub(super) unsafe fn conjunction(conditions: *mut List) -> *mut Node {
    // SAFETY: a list of conditions, of which there is one at least.
    unsafe {
        match cells(conditions) {
            [only] => only.ptr_value.cast(),
            _ => makeBoolExpr(pg_sys::BoolExprType::AND_EXPR, conditions, -1).cast(),
        }
    }
}

/// Adds the kept conditions of bounds, so that they are checked where they stood.
#[inline(never)]
pub(super) unsafe fn with_kept(mut conditions: *mut List, bounds: &[pg_sys::ListCell]) -> *mut List {
    // SAFETY: the cells hold pointers to `Bound`.
    unsafe {
        for cell in bounds {
            let one = &*cell.ptr_value.cast::<Bound>();
            if !one.kept.is_null() {
                conditions = lappend(conditions, one.kept.cast());
            }
        }
        conditions
    }
}

/// Adds to conditions what must hold beside the bounds: second comparisons, and guards that are not
/// superfluous.
#[inline(never)]
pub(super) unsafe fn with_companions(mut conditions: *mut List, bounds: *mut List) -> *mut List {
    // SAFETY: the second list holds pointers to `Bound`.
    unsafe {
        for (n, cell) in cells(bounds).iter().enumerate() {
            let one = &*cell.ptr_value.cast::<Bound>();
            if !one.second.is_null() {
                conditions = lappend(conditions, one.second.cast());
            }
            for side in [Side::AboveLast, Side::Below0] {
                let mut others = cells(bounds).iter().enumerate();
                let mut is_guarded = || others.any(|(m, by)| (*by.ptr_value.cast::<Bound>()).guards(one, side, m < n));
                if one.outside(side) == Outside::Guarded && !is_guarded() {
                    conditions = lappend(conditions, one.guard(side).cast());
                }
            }
        }
        conditions
    }
}
