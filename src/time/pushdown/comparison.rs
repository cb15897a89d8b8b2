//! Conditions on an id's time, taken apart, and the comparisons of the id that replace them.

use std::ffi::c_int;
use std::ptr;

use pgrx::pg_sys::{self, Index, List, Node, NodeTag, Oid};
use snowflake_core::id::layout::Layout;

use super::bound::{Bound, Outside};
use super::filters;
use super::id_time::{
    Other, Site, Time, is_organized, layout_for_bound, may_execute, null_time, table_of, time_of, without_errors,
};
use super::nodes::{
    INT8_GREATER_OR_EQUAL, INT8_LESS_OR_EQUAL, bms_is_member, cells, compare, contain_subplans,
    contain_volatile_functions, copyObjectImpl, deconstruct_array, eval_const_expressions, exprType, get_opcode,
    lappend, make_call, makeBoolConst, makeBoolExpr, makeConst, null_number, number, pg_detoast_datum, pull_varnos,
    set_opfuncid, set_sa_opfuncid,
};
use super::operators::Comparison::{self, Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
use super::operators::Type::{self, Date, Float, Numeric, Timestamp, Timestamptz};
use super::operators::{interval_operator, local_operator, operator};
use super::steps::{Stepped, call, time_inside};
use crate::postgres::catalog::{Functions, LimitFunction};
use crate::time::instant::{LAST_SUBTRACTABLE_MS, SUBTRACTABLE_US, instant_of_value};

/// What a comparison of a difference with an age means for the difference's second side.
type AgeLimit = fn(Comparison, *mut Node) -> Limit;

/// What an id's time is compared with, and so which functions give the bounds.
#[derive(Clone, Copy)]
enum Limit {
    /// A moment of a type, in a way.
    Moment(Comparison, Type),
    /// The same, where the condition says more: it compares rows of which this is the first column,
    /// or has a list of such moments.
    First(Comparison, Type),
    /// The moment that is an age before another one, in a way: the age is the interval.
    Aged(Comparison, *mut Node),
    /// The same, if the age is what `age()` returns.
    Counted(Comparison, *mut Node),
    /// What is computed from it, compared in a way.
    Computed(Stepped),
    /// A range that holds it.
    Range,
    /// An array that holds it.
    Array,
}
use Limit::{Aged, Array, Computed, Counted, First, Moment, Range};

/// The functions that give the first and the last id of a condition.
#[derive(Clone, Copy)]
enum Callees {
    Lower(Oid),
    Upper(Oid),
    Both(Oid, Oid),
}
use Callees::{Both, Lower, Upper};

impl Limit {
    /// Returns how an id's time itself is compared with a moment, and that one's type.
    fn moment(self) -> Option<(Comparison, Type)> {
        match self {
            Moment(operator, of) | First(operator, of) => Some((operator, of)),
            _ => None,
        }
    }

    /// Returns the functions, unless another one is missing because the objects are an older
    /// version's.
    fn callees(self, functions: &Functions) -> Option<Callees> {
        let moment = self.moment();
        if moment.is_none() && functions.limits.contains(&pg_sys::InvalidOid) {
            return None;
        }
        let of = moment.map_or(Timestamptz, |(_, of)| of);
        let [from, after, before, until] = functions.bounds.map(|bound| bound[of as usize]);
        Some(match self {
            Moment(operator, _) | First(operator, _) | Aged(operator, _) => match operator {
                Less => Upper(before),
                LessOrEqual => Upper(until),
                Equal => Both(from, until),
                Greater => Lower(after),
                GreaterOrEqual => Lower(from),
            },
            // The limits are inclusive below, and exclusive above.
            Computed(Stepped { operator, .. }) | Counted(operator, _) => match operator {
                Less | LessOrEqual => Upper(before),
                Equal => Both(from, before),
                Greater | GreaterOrEqual => Lower(from),
            },
            Range | Array => Both(from, before),
        })
    }

    /// Returns the age that is compared, if there is one.
    fn age(self) -> Option<*mut Node> {
        match self {
            Aged(_, age) | Counted(_, age) => Some(age),
            _ => None,
        }
    }

    fn is_equality(self) -> bool {
        matches!(
            self,
            Moment(Equal, _)
                | First(Equal, _)
                | Aged(Equal, _)
                | Counted(Equal, _)
                | Computed(Stepped { operator: Equal, .. })
        )
    }

    /// Returns whether the bounds say all that the condition does. They are also kept if a filter
    /// would compute bounds of two calls again for each row.
    unsafe fn is_exact(self, x: *mut Node) -> bool {
        // SAFETY: expressions.
        unsafe {
            match self {
                Moment(..) => true,
                Aged(_, age) => is_subtractable(x) && is_constant(age),
                Range => is_constant(x),
                First(..) | Counted(..) | Computed(_) | Array => false,
            }
        }
    }

    /// Makes the limit on the time, from what is compared with it and the age, if there is one.
    unsafe fn on_time(self, functions: &Functions, x: *mut Node, age: *mut Node, is_upper: bool) -> *mut Node {
        // SAFETY: nodes of the query's tree, which may be changed.
        unsafe {
            let none = ptr::null_mut();
            let (function, second, third) = match self {
                Moment(..) | First(..) => return x,
                Computed(stepped) => return stepped.limit(functions, x, is_upper),
                Aged(..) => (LimitFunction::Ago, age, makeBoolConst(is_upper, false)),
                Counted(..) => (LimitFunction::Aged, age, makeBoolConst(is_upper, false)),
                Range if is_upper => (LimitFunction::UpperOfRange, none, none),
                Range => (LimitFunction::LowerOfRange, none, none),
                Array if is_upper => (LimitFunction::UpperOfArray, none, none),
                Array => (LimitFunction::LowerOfArray, none, none),
            };
            call(functions, function, [x, second, third, none])
        }
    }
}

/// Returns whether a condition may be one on an id's time: an operator, or a comparison of rows.
pub(super) fn is_comparison(tag: NodeTag) -> bool {
    matches!(tag, NodeTag::T_OpExpr | NodeTag::T_ScalarArrayOpExpr | NodeTag::T_RowCompareExpr)
}

/// Rewrites a comparison.
pub(super) unsafe fn rewritten(site: &Site, condition: *mut Node) -> Option<Bound> {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        match (*condition).type_ {
            NodeTag::T_OpExpr => rewrite_operator(site, condition.cast()),
            NodeTag::T_RowCompareExpr => rewrite_rows(site, condition.cast()),
            _ => rewrite_any(site, condition.cast()),
        }
    }
}

/// Rewrites an operator's condition, if an id's time is on one of its sides.
unsafe fn rewrite_operator(site: &Site, condition: *mut pg_sys::OpExpr) -> Option<Bound> {
    // SAFETY: these operators have two arguments.
    unsafe {
        // It is not set yet if NOT was removed from the comparison.
        set_opfuncid(condition);
        let function = (*condition).opfuncid;
        let sides = || {
            let arguments = cells((*condition).args);
            (arguments[0].ptr_value.cast::<Node>(), arguments[1].ptr_value.cast::<Node>())
        };
        if let Some(compared) = operator(function).or_else(|| local_operator(function)) {
            return rewrite_compared(site, condition.cast(), compared, sides(), Moment);
        }
        let rewrite = |time, limit, x| bound_of(site, condition.cast(), time, limit, x);
        if let Some(operator) = interval_operator(function) {
            let (left, right) = sides();
            let aged = |difference, operator: Comparison, age| {
                let (x, time, limit) = difference_of(difference)?;
                // The greater the age, the earlier the time.
                rewrite(time, limit(operator.commuted(), age), x)
            };
            return aged(left, operator, right).or_else(|| aged(right, operator.commuted(), left));
        }
        let (time, range) = match function.to_u32() {
            pg_sys::F_ELEM_CONTAINED_BY_RANGE => sides(),
            pg_sys::F_RANGE_CONTAINS_ELEM => {
                let (range, time) = sides();
                (time, range)
            }
            _ => return None,
        };
        if exprType(range) != pg_sys::TSTZRANGEOID {
            return None;
        }
        rewrite(time, Range, range)
    }
}

/// Rewrites a comparison between two types, if an id's time, or what is computed from it, is on one
/// of its sides. `limit` says what a moment is there.
unsafe fn rewrite_compared(
    site: &Site,
    condition: *mut Node,
    (left_type, operator, right_type): (Type, Comparison, Type),
    (left, right): (*mut Node, *mut Node),
    limit: fn(Comparison, Type) -> Limit,
) -> Option<Bound> {
    // SAFETY: two expressions of these types.
    unsafe {
        let rewrite = |time, limit, x| bound_of(site, condition, time, limit, x);
        let computed = |expression, operator, of, with, x| {
            let stepped = Stepped { operator, expression, of, with, is_array: false };
            rewrite(stepped.time()?, Computed(stepped), x)
        };
        let from_left = || (left_type == Timestamptz).then(|| rewrite(left, limit(operator, right_type), right))?;
        let from_right =
            || (right_type == Timestamptz).then(|| rewrite(right, limit(operator.commuted(), left_type), left))?;
        from_left()
            .or_else(from_right)
            .or_else(|| computed(left, operator, left_type, right_type, right))
            .or_else(|| computed(right, operator.commuted(), right_type, left_type, left))
    }
}

/// Rewrites a comparison of two rows, such as `(t, id) > (x, y)`, if an id's time, or what is
/// computed from it, is in the first column of one.
///
/// Rows are compared by their first columns, and by the others only where these are equal. So the
/// comparison implies the same of the first columns, or that they are equal: `t >= x`. It also
/// implies that none of them is NULL.
unsafe fn rewrite_rows(site: &Site, condition: *mut pg_sys::RowCompareExpr) -> Option<Bound> {
    // SAFETY: rows that are compared have a column at least, and an operator for it.
    unsafe {
        let first = |list| cells(list)[0].ptr_value.cast::<Node>();
        let function = get_opcode(cells((*condition).opnos)[0].oid_value);
        let (left_type, operator, right_type) = operator(function).or_else(|| local_operator(function))?;
        let or_equal = match operator {
            Less | LessOrEqual => LessOrEqual,
            Greater | GreaterOrEqual => GreaterOrEqual,
            Equal => return None,
        };
        let sides = (first((*condition).largs), first((*condition).rargs));
        rewrite_compared(site, condition.cast(), (left_type, or_equal, right_type), sides, First)
    }
}

/// Returns both sides of a difference of two timestamptz, and what a comparison of it with an age
/// means.
unsafe fn difference_of(expression: *mut Node) -> Option<(*mut Node, *mut Node, AgeLimit)> {
    // SAFETY: a node's type is what its tag says. A difference has two arguments.
    unsafe {
        let (arguments, limit) = match (*expression).type_ {
            NodeTag::T_OpExpr => {
                let difference = expression.cast::<pg_sys::OpExpr>();
                set_opfuncid(difference);
                if (*difference).opfuncid.to_u32() != pg_sys::F_TIMESTAMPTZ_MI {
                    return None;
                }
                ((*difference).args, Aged as fn(_, _) -> _)
            }
            NodeTag::T_FuncExpr => {
                let call = expression.cast::<pg_sys::FuncExpr>();
                // age() of one argument is an SQL function, which is inlined by now.
                if (*call).funcid.to_u32() != pg_sys::F_AGE_TIMESTAMPTZ_TIMESTAMPTZ {
                    return None;
                }
                ((*call).args, Counted as fn(_, _) -> _)
            }
            _ => return None,
        };
        let arguments = cells(arguments);
        Some((arguments[0].ptr_value.cast(), arguments[1].ptr_value.cast(), limit))
    }
}

/// Returns whether PostgreSQL surely raises no error where it subtracts an id's time from `x`: for
/// a constant that is not far from the present.
unsafe fn is_subtractable(x: *mut Node) -> bool {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        let constant = x.cast::<pg_sys::Const>();
        is_constant(x)
            && ((*constant).constisnull || SUBTRACTABLE_US.contains(&((*constant).constvalue.value() as i64)))
    }
}

/// The most elements of an array to search for one by one. PostgreSQL's own proofs about arrays
/// also stop at 100 (`MAX_SAOP_ARRAY_SIZE` in optimizer/util/predtest.c).
const MOST_ELEMENTS: usize = 100;

/// The same where the elements are compared with something computed from the time, because each
/// takes several calls.
const MOST_COMPUTED: usize = 8;

/// The most elements for which a filter checks the OR. For more, the condition is kept beside it,
/// and a filter checks that alone. PostgreSQL hashes the elements from 9 on.
const MOST_COMPARED: usize = 2;

/// Rewrites `= ANY` of a list or a constant array, which `IN` is, as an OR. For another array, or
/// one of many elements, adds the bounds of all of them.
unsafe fn rewrite_any(site: &Site, condition: *mut pg_sys::ScalarArrayOpExpr) -> Option<Bound> {
    // SAFETY: such an operator has two arguments.
    unsafe {
        set_sa_opfuncid(condition);
        let function = (*condition).opfuncid;
        let Some((of, Equal, with)) = operator(function).or_else(|| local_operator(function)) else { return None };
        if !(*condition).useOr {
            return None;
        }
        let arguments = cells((*condition).args);
        let left = arguments[0].ptr_value.cast::<Node>();
        let array = arguments[1].ptr_value.cast::<Node>();
        // What is computed from a time, or else the time itself.
        let stepped = Stepped { operator: Equal, expression: left, of, with, is_array: false };
        let computed = stepped.time();
        if computed.is_none() && of != Timestamptz {
            return None;
        }
        let time = computed.unwrap_or(left);
        let elements = elements(array, with);
        let most = if computed.is_some() { MOST_COMPUTED } else { MOST_ELEMENTS };
        if elements.is_none_or(|elements| cells(elements).len() > most) {
            let limit = match (computed, with) {
                (None, Timestamptz) => Array,
                (None, _) => return None,
                (Some(_), _) => Computed(Stepped { is_array: true, ..stepped }),
            };
            // Only of the same type, because the least local time of an array need not be the
            // earliest instant: where clocks are set ahead, PostgreSQL converts 02:30, which they
            // do not show, to a later one than 03:00.
            let is_searched = match (of, with) {
                (Timestamptz, Timestamptz) => exprType(array) == pg_sys::TIMESTAMPTZARRAYOID,
                (Date, Date) => exprType(array) == pg_sys::DATEARRAYOID,
                (Timestamp, Timestamp) => exprType(array) == pg_sys::TIMESTAMPARRAYOID,
                _ => false,
            };
            return if is_searched { bound_of(site, condition.cast(), time, limit, array) } else { None };
        }
        let elements = elements?;
        let limit = match computed {
            Some(_) => Computed(stepped),
            // Of a foreign table, another server checks the OR, if it is exact.
            None if cells(elements).len() > MOST_COMPARED && !is_foreign(site) => First(Equal, with),
            None => Moment(Equal, with),
        };
        if let [element] = cells(elements) {
            return bound_of(site, condition.cast(), time, limit, element.ptr_value.cast());
        }
        let (mut arms, mut first) = (ptr::null_mut(), None);
        for element in cells(elements) {
            let copy = copyObjectImpl(time.cast()).cast();
            let x = element.ptr_value.cast();
            // The first one also keeps the condition, once for all arms, if it must be kept.
            let kept = if first.is_none() { condition.cast() } else { makeBoolConst(true, false) };
            let bound = bound_of(site, kept, copy, limit, x)?;
            let both = lappend(lappend(ptr::null_mut(), bound.comparison.cast()), bound.second.cast());
            arms = lappend(arms, makeBoolExpr(pg_sys::BoolExprType::AND_EXPR, both, -1).cast());
            first.get_or_insert(bound);
        }
        let comparison = makeBoolExpr(pg_sys::BoolExprType::OR_EXPR, arms, -1).cast();
        // Each arm has two bounds, so the whole excludes what is not an id, on either side.
        Some(Bound { comparison, second: ptr::null_mut(), ..first? })
    }
}

/// Returns whether a site's entry is a foreign table.
unsafe fn is_foreign(site: &Site) -> bool {
    // SAFETY: the planner has filled this array.
    unsafe {
        let entry = *(*site.root).simple_rte_array.add(site.relid as usize);
        c_int::from((*entry).relkind) == c_int::from(pg_sys::RELKIND_FOREIGN_TABLE)
    }
}

/// Returns the elements of a list or a constant array of a type, except for NULL constants, which
/// equal nothing. `None` if it is neither.
unsafe fn elements(array: *mut Node, of: Type) -> Option<*mut List> {
    // SAFETY: a node's type is what its tag says; a constant array has the elements that
    // deconstruct_array finds.
    unsafe {
        let mut list = ptr::null_mut();
        match (*array).type_ {
            NodeTag::T_ArrayExpr if !(*array.cast::<pg_sys::ArrayExpr>()).multidims => {
                for cell in cells((*array.cast::<pg_sys::ArrayExpr>()).elements) {
                    let element = cell.ptr_value.cast::<Node>();
                    let is_null =
                        (*element).type_ == NodeTag::T_Const && (*element.cast::<pg_sys::Const>()).constisnull;
                    if !is_null {
                        list = lappend(list, element.cast());
                    }
                }
            }
            NodeTag::T_Const if !(*array.cast::<pg_sys::Const>()).constisnull => {
                let array = pg_detoast_datum((*array.cast::<pg_sys::Const>()).constvalue.cast_mut_ptr());
                // The size in bytes of a value that is passed as itself, else -1, and how it is
                // aligned.
                let (size, align) = match of {
                    Date => (4, b'i'),
                    Numeric => (-1, b'i'),
                    Timestamptz | Timestamp | Float => (8, b'd'),
                };
                let of = (*array.cast::<pg_sys::ArrayType>()).elemtype;
                let by_value = size > 0;
                let (mut values, mut nulls, mut count) = (ptr::null_mut(), ptr::null_mut(), 0);
                deconstruct_array(
                    array.cast(),
                    of,
                    size,
                    by_value,
                    align as _,
                    &raw mut values,
                    &raw mut nulls,
                    &raw mut count,
                );
                for at in (0..count as usize).filter(|at| !*nulls.add(*at)) {
                    let element = makeConst(of, -1, pg_sys::InvalidOid, size, *values.add(at), false, by_value);
                    list = lappend(list, element.cast());
                }
            }
            _ => return None,
        }
        Some(list)
    }
}

/// For what a value is the same. Of several, the greatest counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Varies {
    /// A constant.
    Never,
    /// It is the same for all rows of the plan, though it is not known yet.
    ByExecution,
    /// For a row of another table, or because it is a subquery, which cannot be in two places.
    ByRow,
}

unsafe fn is_constant(node: *mut Node) -> bool {
    // SAFETY: a node's type is what its tag says.
    unsafe { (*node).type_ == NodeTag::T_Const }
}

/// Returns for what an expression is the same. `None` if no index can be searched for it: it is
/// volatile, or a column of the same row.
unsafe fn varies(site: &Site, row: Index, node: *mut Node) -> Option<Varies> {
    // SAFETY: an expression of the query.
    unsafe {
        if is_constant(node) {
            return Some(Varies::Never);
        }
        let tables = pull_varnos(site.root, node);
        let is_own = bms_is_member(site.relid as c_int, tables) || row != 0 && bms_is_member(row as c_int, tables);
        if is_own || contain_volatile_functions(node) {
            return None;
        }
        Some(if tables.is_null() && !contain_subplans(node) { Varies::ByExecution } else { Varies::ByRow })
    }
}

/// Returns whether `x` is also the time of another table's ids, which has not looked at the
/// condition yet, so that the planner may search either. `None` if that table is organized by the
/// time: the comparison then stays as it is.
unsafe fn is_for_other(site: &Site, functions: &Functions, x: *mut Node) -> Option<bool> {
    // SAFETY: an expression. The planner has filled this array.
    unsafe {
        if is_constant(x) {
            return Some(false);
        }
        // What is computed from such a time is no index's expression, but may also be searched.
        let innermost = time_inside(x);
        let Some(Other { table, function }) = table_of(site, innermost.unwrap_or(x)) else { return Some(false) };
        let rel = *(*site.root).simple_rel_array.add(table as usize);
        let other = Site { rel, relid: table, is_union: false, ..*site };
        let may_be_organized = innermost.is_none() && [functions.timestamp[1], functions.parse[1]].contains(&function);
        (!may_be_organized || !is_organized(&other, function, functions)).then_some(rel.is_null())
    }
}

/// Returns whether the role may call the original function, and those that replace it. Otherwise it
/// must see the error of the original one, and not of the bound.
unsafe fn may_replace(site: &Site, functions: &Functions, function: Oid, limit: Limit, callees: Callees) -> bool {
    // SAFETY: the plan that is being made.
    unsafe {
        if functions.public {
            return true;
        }
        // The plan is then made again for another role.
        (*(*site.root).glob).dependsOnRole = true;
        let may_call = match callees {
            Lower(bound) | Upper(bound) => may_execute(bound),
            Both(lower, upper) => may_execute(lower) && may_execute(upper),
        };
        let may_limit = || limit.moment().is_some() || functions.limits.into_iter().all(|limit| may_execute(limit));
        may_execute(function) && may_call && may_limit()
    }
}

/// A condition that compares an id's time with `x`, and can be replaced.
#[derive(Clone, Copy)]
struct Compared<'a> {
    site: &'a Site,
    time: &'a Time<'a>,
    limit: Limit,
    x: *mut Node,
    /// For what all that the time is compared with is the same.
    varies: Varies,
    /// The layout, as an argument and as itself.
    layout: *mut pg_sys::Const,
    meaning: &'a Layout,
    /// Whether bounds and kept conditions can read times without an error.
    has_null_times: bool,
}

/// Replaces a condition that compares an id's time with `x`. `None` if it must stay as it is.
unsafe fn bound_of(site: &Site, condition: *mut Node, time: *mut Node, limit: Limit, x: *mut Node) -> Option<Bound> {
    // SAFETY: nodes of the query's tree, made and used as the planner does.
    unsafe {
        let expression = time;
        let time = &time_of(site, expression)?;
        let Time { id, function, layout, functions, row } = *time;
        let with = |known: Varies, node| Some(known.max(varies(site, row, node)?));
        let mut varies = limit.age().into_iter().try_fold(with(Varies::Never, x)?, with)?;
        if let Computed(stepped) = limit {
            varies = stepped.fold_arguments(varies, with)?;
        }
        // Two tables can be joined by equal times with a hash or a merge, but not by ranges. And
        // what varies may be computed for rows that no row is compared with.
        if limit.is_equality() && varies == Varies::ByRow {
            return None;
        }
        let is_for_other = is_for_other(site, functions, x)?;
        let callees = limit.callees(functions)?;
        if !may_replace(site, functions, function, limit, callees) {
            return None;
        }
        site.depend_on(function);
        let mut given = None;
        let (layout, meaning) = layout_for_bound(site, layout, &mut given)?;
        // date_bin() subtracts its origin. For later times than these, PostgreSQL may raise an
        // error, and must see the rows for that.
        let is_far = meaning.last_instant_ms() > LAST_SUBTRACTABLE_MS;
        if is_far && matches!(limit, Computed(stepped) if stepped.has_bins()) {
            return None;
        }
        let has_null_times = may_use(functions, functions.time_of);
        let compared = Compared { site, time, limit, x, varies, layout, meaning, has_null_times };
        let is_exact = row == 0 && !is_for_other && limit.is_exact(x);
        let (kept, mark) = if is_exact {
            (ptr::null_mut(), filters::NOTHING_KEPT)
        } else {
            compared.keep(condition, expression, is_for_other)
        };
        // What stands in two places must be two nodes.
        let is_repeated = matches!(callees, Both(..)) || !kept.is_null();
        let bounded = |callee, is_above| compared.bounded(callee, is_above, is_repeated, mark);
        let last_id = meaning.max_id();
        let is_late = matches!(limit, Computed(_) | Counted(..) | First(..)) && varies == Varies::ByRow;
        let own = if is_late { Outside::ExcludedLate } else { Outside::Excluded };
        let beyond = if last_id == i64::MAX { Outside::Excluded } else { Outside::Guarded };
        let none = ptr::null_mut();
        let (comparison, second, below_0, above_last) = match callees {
            Lower(lower) => (bounded(lower, true), none, own, beyond),
            Upper(upper) => (bounded(upper, false), none, Outside::Guarded, own),
            Both(lower, upper) => (bounded(lower, true), bounded(upper, false), own, own),
        };
        Some(Bound { id, last_id, comparison, second, below_0, above_last, kept })
    }
}

impl Compared<'_> {
    /// Makes of a condition the one that is kept beside its bounds, and the mark of these.
    unsafe fn keep(&self, condition: *mut Node, time: *mut Node, is_for_other: bool) -> (*mut Node, c_int) {
        let Self { site, time: &Time { id, functions, row, .. }, .. } = *self;
        // SAFETY: nodes of the query's tree.
        unsafe {
            let mut kept = condition;
            // The condition is true for no number that is not within the bounds.
            let is_implied = self.has_null_times && row == 0;
            if is_implied {
                kept =
                    without_errors(site, functions, kept, time, null_time(functions, id, self.layout), !is_for_other);
            }
            // The bounds say how many rows there are. Those of an array do not. A row of a function
            // in FROM has its own estimate, and another table has not looked at its side yet.
            let is_estimated = !matches!(self.limit, Array) && row == 0 && !is_for_other;
            if is_estimated && may_use(functions, functions.checked) {
                kept = make_call(functions.checked, pg_sys::BOOLOID, &[kept], pg_sys::InvalidOid);
            }
            (kept, if is_implied { filters::mark_kept(kept, condition) } else { filters::NOTHING_KEPT })
        }
    }

    /// Makes the comparison of the id with what a function returns.
    unsafe fn bounded(&self, callee: Oid, is_above: bool, is_repeated: bool, mark: c_int) -> *mut Node {
        let Self { site, time: &Time { id, functions, .. }, limit, x, .. } = *self;
        // SAFETY: nodes of the query's tree.
        unsafe {
            let own = |node: *mut Node| if is_repeated { copyObjectImpl(node.cast()).cast() } else { node };
            let bound = match limit.moment() {
                // The common case, without a call of the function through the executor.
                Some((operator, Timestamptz)) if is_constant(x) => {
                    constant_bound(self.meaning, x.cast(), operator, is_above)
                }
                _ => {
                    let time = limit.on_time(functions, own(x), limit.age().map_or(ptr::null_mut(), own), !is_above);
                    let arguments = [time, self.layout.cast()];
                    let mut bound = make_call(callee, pg_sys::INT8OID, &arguments, pg_sys::DEFAULT_COLLATION_OID);
                    if self.has_null_times && self.varies == Varies::ByRow {
                        bound = without_errors(site, functions, bound, ptr::null_mut(), ptr::null_mut(), true);
                    }
                    // Everything else has been simplified by now.
                    let is_known = is_constant(x) && limit.age().is_none_or(|age| is_constant(age));
                    if is_known { eval_const_expressions(site.root, bound) } else { bound }
                }
            };
            let comparison = compare(own(id), if is_above { INT8_GREATER_OR_EQUAL } else { INT8_LESS_OR_EQUAL }, bound);
            filters::mark_bound(comparison, mark);
            comparison
        }
    }
}

/// Returns whether a function of the schema `snowflake_plan` exists, and the role may call it.
unsafe fn may_use(functions: &Functions, function: Oid) -> bool {
    // SAFETY: looks up rows of catalogs.
    function != pg_sys::InvalidOid && (functions.public || unsafe { may_execute(function) })
}

/// Returns what the bound's function returns for a constant time.
unsafe fn constant_bound(layout: &Layout, x: *const pg_sys::Const, operator: Comparison, is_above: bool) -> *mut Node {
    // SAFETY: a constant of type timestamptz.
    unsafe {
        let instant = instant_of_value((*x).constvalue.value() as i64);
        let id = match (operator, is_above) {
            _ if (*x).constisnull => None,
            (Greater, _) => layout.first_id_after(instant),
            (_, true) => layout.first_id_from(instant),
            (Less, _) => Some(layout.last_id_before(instant)),
            (_, false) => Some(layout.last_id_until(instant)),
        };
        id.map_or_else(|| null_number(), |id| number(id))
    }
}
