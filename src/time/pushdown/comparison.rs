//! Conditions on an id's time, taken apart, and the comparisons of the id that replace them.

use std::ffi::c_int;
use std::ptr;

use pgrx::pg_sys::{self, List, Node, NodeTag, Oid};
use snowflake_core::layout::Layout;

use super::filters;
use super::id_time::{
    Other, Time, is_organized, layout_for_bound, may_execute, null_time, table_of, time_of, without_errors,
};
use super::nodes::{
    INT8_GREATER_OR_EQUAL, INT8_LESS_OR_EQUAL, bms_is_member, cells, compare, contain_subplans,
    contain_volatile_functions, copyObjectImpl, deconstruct_array, eval_const_expressions, exprType, get_opcode,
    lappend, makeBoolConst, makeBoolExpr, makeConst, makeFuncExpr, null_number, number, pg_detoast_datum, pull_varnos,
    record_plan_function_dependency, set_opfuncid, set_sa_opfuncid,
};
use super::operators::Comparison::{self, Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
use super::operators::Type::{self, Date, Float, Numeric, Timestamp, Timestamptz};
use super::operators::{interval_operator, local_operator, operator};
use super::steps::{Stepped, call};
use super::{BoundedCondition, Guard, Site};
use crate::postgres::catalog::{Functions, LimitFunction};
use crate::time::instant::{LAST_SUBTRACTABLE_MS, SUBTRACTABLE_US, instant_of_value};

/// What replaces a condition: a comparison of the id with a bound, or two of them.
pub(super) type Bounds = (BoundedCondition, Option<BoundedCondition>);

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

/// The functions that give the first and the last id of a condition, `InvalidOid` for none.
struct Callees {
    lower: Oid,
    upper: Oid,
}

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
        let none = pg_sys::InvalidOid;
        let moment = self.moment();
        if moment.is_none() && functions.limits.contains(&none) {
            return None;
        }
        let of = moment.map_or(Timestamptz, |(_, of)| of);
        let [from, after, before, until] = functions.bounds.map(|bound| bound[of as usize]);
        let (lower, upper) = match self {
            Moment(operator, _) | First(operator, _) | Aged(operator, _) => match operator {
                Less => (none, before),
                LessOrEqual => (none, until),
                Equal => (from, until),
                Greater => (after, none),
                GreaterOrEqual => (from, none),
            },
            // The limits are inclusive below, and exclusive above.
            Computed(Stepped { operator, .. }) | Counted(operator, _) => match operator {
                Less | LessOrEqual => (none, before),
                Equal => (from, before),
                Greater | GreaterOrEqual => (from, none),
            },
            Range | Array => (from, before),
        };
        Some(Callees { lower, upper })
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

/// Rewrites an operator's condition, if an id's time is on one of its sides.
pub(super) unsafe fn rewrite_operator(site: &Site, condition: *mut pg_sys::OpExpr) -> Option<Bounds> {
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
        let rewrite = |time, limit, x| rewrite_sides(site, condition.cast(), time, limit, x);
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
) -> Option<Bounds> {
    // SAFETY: two expressions of these types.
    unsafe {
        let rewrite = |time, limit, x| rewrite_sides(site, condition, time, limit, x);
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
pub(super) unsafe fn rewrite_rows(site: &Site, condition: *mut pg_sys::RowCompareExpr) -> Option<Bounds> {
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
        (*x).type_ == NodeTag::T_Const
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
pub(super) unsafe fn rewrite_any(site: &Site, condition: *mut pg_sys::ScalarArrayOpExpr) -> Option<Bounds> {
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
            return if is_searched { rewrite_sides(site, condition.cast(), time, limit, array) } else { None };
        }
        let elements = elements?;
        let limit = match computed {
            Some(_) => Computed(stepped),
            // Of a foreign table, another server checks the OR, if it is exact.
            None if cells(elements).len() > MOST_COMPARED && !is_foreign(site) => First(Equal, with),
            None => Moment(Equal, with),
        };
        if let [element] = cells(elements) {
            return rewrite_sides(site, condition.cast(), time, limit, element.ptr_value.cast());
        }
        let (mut arms, mut first) = (ptr::null_mut(), None);
        for element in cells(elements) {
            let copy = copyObjectImpl(time.cast()).cast();
            let x = element.ptr_value.cast();
            // The first one also keeps the condition, once for all arms, if it must be kept.
            let kept = if first.is_none() { condition.cast() } else { makeBoolConst(true, false) };
            let (lower, upper) = rewrite_sides(site, kept, copy, limit, x)?;
            let both = lappend(lappend(ptr::null_mut(), lower.condition.cast()), upper?.condition.cast());
            arms = lappend(arms, makeBoolExpr(pg_sys::BoolExprType::AND_EXPR, both, -1).cast());
            first.get_or_insert(lower);
        }
        let first = first?;
        let condition = makeBoolExpr(pg_sys::BoolExprType::OR_EXPR, arms, -1).cast();
        // Each arm has two bounds, so the whole excludes what is not an id, on either side.
        Some((BoundedCondition { condition, ..first }, None))
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

/// Rewrites a condition that compares an id's time, `time`, with `x`.
unsafe fn rewrite_sides(
    site: &Site,
    condition: *mut Node,
    time: *mut Node,
    limit: Limit,
    x: *mut Node,
) -> Option<Bounds> {
    // SAFETY: nodes of the query's tree, made and used as the planner does.
    unsafe {
        let Time { id, function, layout, functions, row } = time_of(site, time)?;
        let is_constant = |node: *mut Node| (*node).type_ == NodeTag::T_Const;
        // A filter would compute bounds of two calls again for each row.
        let (age, is_exact) = match limit {
            Aged(_, age) => (age, is_subtractable(x) && is_constant(age)),
            Counted(_, age) => (age, false),
            Array | Computed(_) | First(..) => (ptr::null_mut(), false),
            Range => (ptr::null_mut(), is_constant(x)),
            Moment(..) => (ptr::null_mut(), true),
        };
        let is_usable = |node: *mut Node| {
            if is_constant(node) {
                return true;
            }
            // No index can be searched for a column of the same row.
            let tables = pull_varnos(site.root, node);
            let is_own = bms_is_member(site.relid as c_int, tables) || row != 0 && bms_is_member(row as c_int, tables);
            !is_own && !contain_volatile_functions(node)
        };
        if !is_usable(x) || !age.is_null() && !is_usable(age) {
            return None;
        }
        let are_arguments = |is_so: &dyn Fn(*mut Node) -> bool| match limit {
            Computed(stepped) => stepped.all_arguments(is_so),
            _ => true,
        };
        if !are_arguments(&is_usable) {
            return None;
        }
        // Two tables can be joined by equal times with a hash or a merge, but not by ranges. And a
        // subquery cannot be in two places.
        let is_plain =
            |node: *mut Node| is_constant(node) || pull_varnos(site.root, node).is_null() && !contain_subplans(node);
        let is_equality = match limit {
            Range | Array => false,
            Moment(operator, _)
            | First(operator, _)
            | Aged(operator, _)
            | Counted(operator, _)
            | Computed(Stepped { operator, .. }) => {
                matches!(operator, Equal)
            }
        };
        // What is not the same for all rows may be computed for those that no row is compared with.
        let is_for_all = is_plain(x) && (age.is_null() || is_plain(age)) && are_arguments(&is_plain);
        if is_equality && !is_for_all {
            return None;
        }
        let mut kept = if row == 0 && is_exact { ptr::null_mut() } else { condition };
        // If both sides are times of ids, the planner may search either table. The comparison is
        // kept, and rewritten for the other table in its turn. But it stays as it is if the other
        // table is organized by it.
        let mut is_for_other = false;
        // What is computed from such a time is no index's expression, but may also be searched.
        let innermost =
            Stepped { operator: Equal, expression: x, of: Timestamptz, with: Timestamptz, is_array: false }.time();
        let other = || if is_constant(x) { None } else { table_of(site, innermost.unwrap_or(x)) };
        if let Some(Other { table, function }) = other() {
            let rel = *(*site.root).simple_rel_array.add(table as usize);
            let other = Site { rel, relid: table, is_union: false, ..*site };
            if innermost.is_none()
                && [functions.timestamp[1], functions.parse[1]].contains(&function)
                && is_organized(&other, function, functions)
            {
                return None;
            }
            if rel.is_null() {
                kept = condition;
                is_for_other = true;
            }
        }

        let Callees { lower, upper } = limit.callees(functions)?;
        if !functions.public {
            // The plan is then made again for another role. A role that may not call the original
            // function must see the error of that one, not of the bound.
            (*(*site.root).glob).dependsOnRole = true;
            let may_call = |bound| bound == pg_sys::InvalidOid || may_execute(bound);
            let may_limit = || limit.moment().is_some() || functions.limits.into_iter().all(|limit| may_execute(limit));
            if !may_execute(function) || !may_call(lower) || !may_call(upper) || !may_limit() {
                return None;
            }
        }
        // A kept plan must notice when the function is dropped, or when a role may no longer call
        // it.
        if *site.dependency != function {
            record_plan_function_dependency(site.root, function);
            *site.dependency = function;
        }
        let mut given = None;
        let (layout, meaning) = layout_for_bound(site, layout, &mut given)?;
        let last_id = meaning.max_id();
        // date_bin() subtracts its origin. For later times than these, PostgreSQL may raise an
        // error, and must see the rows for that.
        let is_far = meaning.last_instant_ms() > LAST_SUBTRACTABLE_MS;
        if is_far && matches!(limit, Computed(stepped) if stepped.has_bins()) {
            return None;
        }

        // The bounds of an age, of what is computed from a time, or of rows' first columns say how
        // many rows there are. Those of an array do not. A row of a function in FROM has its own
        // estimate, and another table has not looked at its side yet.
        let is_estimated =
            matches!(limit, Aged(..) | Counted(..) | Computed(_) | First(..) | Range) && row == 0 && !is_for_other;
        let has_null_times =
            functions.time_of != pg_sys::InvalidOid && (functions.public || may_execute(functions.time_of));
        // The condition is true for no number that is not within the bounds.
        let is_implied = has_null_times && !kept.is_null() && row == 0;
        if is_implied {
            let null_time = null_time(functions, id, layout);
            kept = without_errors(site, functions, kept, time, null_time, !is_for_other);
        }
        let may_check = || functions.public || may_execute(functions.checked);
        if is_estimated && !kept.is_null() && functions.checked != pg_sys::InvalidOid && may_check() {
            let none = pg_sys::InvalidOid;
            let explicit = pg_sys::CoercionForm::COERCE_EXPLICIT_CALL;
            let arguments = lappend(ptr::null_mut(), kept.cast());
            kept = makeFuncExpr(functions.checked, pg_sys::BOOLOID, arguments, none, none, explicit).cast();
        }
        let mark = if is_implied { filters::mark_kept(kept, condition) } else { filters::NOTHING_KEPT };
        let is_range = lower != pg_sys::InvalidOid && upper != pg_sys::InvalidOid;
        let is_repeated = is_range || !kept.is_null();
        let bounded = |bound: Oid, is_above: bool| {
            // What stands in two places must be two nodes.
            let copy = |node: *mut Node| copyObjectImpl(node.cast()).cast();
            let bounded = |bound| {
                let operator = if is_above { INT8_GREATER_OR_EQUAL } else { INT8_LESS_OR_EQUAL };
                let condition = compare(if is_repeated { copy(id) } else { id }, operator, bound);
                filters::mark_bound(condition, mark);
                let guard = match is_above {
                    // The other bound does.
                    _ if is_range => Guard::None,
                    true if last_id == i64::MAX => Guard::None,
                    true => Guard::NotAbove,
                    false => Guard::NotBelow0,
                };
                let is_guarding = !matches!(limit, Computed(_) | Counted(..) | First(..))
                    || is_constant(x)
                    || pull_varnos(site.root, x).is_null();
                BoundedCondition {
                    id,
                    condition,
                    guard,
                    is_above,
                    is_guarding,
                    last_id,
                    is_or: false,
                    is_second: false,
                    kept,
                }
            };
            // The common case, without a call of the function through the executor.
            if let Some((operator, Timestamptz)) = limit.moment()
                && is_constant(x)
            {
                return bounded(constant_bound(meaning, x.cast(), operator, is_above));
            }
            let x: *mut Node = if is_repeated { copy(x) } else { x };
            let age = if is_repeated && !age.is_null() { copy(age) } else { age };
            let time = limit.on_time(functions, x, age, !is_above);
            let arguments = lappend(lappend(ptr::null_mut(), time.cast()), layout.cast());
            let none = pg_sys::InvalidOid;
            let explicit = pg_sys::CoercionForm::COERCE_EXPLICIT_CALL;
            let mut bound: *mut Node =
                makeFuncExpr(bound, pg_sys::INT8OID, arguments, none, pg_sys::DEFAULT_COLLATION_OID, explicit).cast();
            if has_null_times && !is_for_all {
                bound = without_errors(site, functions, bound, ptr::null_mut(), ptr::null_mut(), true);
            }
            // Everything else has been simplified by now.
            if is_constant(x) && (age.is_null() || is_constant(age)) {
                bound = eval_const_expressions(site.root, bound);
            }
            bounded(bound)
        };
        Some(if is_range {
            (bounded(lower, true), Some(BoundedCondition { kept: ptr::null_mut(), ..bounded(upper, false) }))
        } else if upper == pg_sys::InvalidOid {
            (bounded(lower, true), None)
        } else {
            (bounded(upper, false), None)
        })
    }
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
