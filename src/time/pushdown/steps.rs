//! Takes apart what a condition compares, if it is computed from an id's time in steps:
//! `date_trunc`, `date_bin`, `extract` and `date_part` of the year or the epoch, casts, `AT TIME
//! ZONE`, `AT LOCAL`, `date_add`, and `+` and `-` with an interval.
//!
//! Each step is undone by functions of the schema `snowflake_plan` (`undo.rs`), from the outside
//! in. What is left is a limit on the time itself. The original condition is kept, because clocks
//! are set back.

use std::{mem, ptr};

use pgrx::pg_sys::{self, Node, NodeTag};
use pgrx::prelude::*;

use super::nodes::{cells, copyObjectImpl, make_call, makeBoolConst, set_opfuncid, text};
use super::operators::{Comparison, Type};
use crate::postgres::catalog::{Functions, LimitFunction};
use crate::postgres::text::Text;
use crate::time::undo::TruncUnit;
use crate::time::zone;

/// A function that undoes a part of a step, with its second and third argument; null for those that
/// it does not have.
#[derive(Clone, Copy)]
pub(super) struct Undo {
    function: LimitFunction,
    arguments: [*mut Node; 2],
}

/// A step, taken apart.
#[derive(Clone, Copy)]
pub(super) struct TimeStep {
    /// What it is computed from.
    pub(super) inner: *mut Node,
    /// What undoes it, in this order.
    pub(super) undo: [Option<Undo>; 3],
    /// Whether it makes a number of seconds since 1970; any other number is a year.
    is_seconds: bool,
}

/// A comparison of something that is computed from a time.
#[derive(Clone, Copy)]
pub(super) struct Stepped {
    pub(super) operator: Comparison,
    /// What is computed, and its type.
    pub(super) expression: *mut Node,
    pub(super) of: Type,
    /// The type of what it is compared with.
    pub(super) with: Type,
    /// Whether that is an array of this type, of which one element must be equal. Then both types
    /// are the same, and none is a number.
    pub(super) is_array: bool,
}

impl Stepped {
    /// Returns the time that the expression is computed from. `None` if there are no steps.
    pub(super) unsafe fn time(&self) -> Option<*mut Node> {
        // SAFETY: an expression.
        unsafe { time_inside(self.expression) }
    }

    /// Folds the arguments of the steps, until there is no result.
    pub(super) unsafe fn fold_arguments<T>(&self, init: T, fold: impl Fn(T, *mut Node) -> Option<T>) -> Option<T> {
        // SAFETY: an expression.
        let undo = unsafe { steps(self.expression) }.flat_map(|step| step.undo.into_iter().flatten());
        let arguments = undo.flat_map(|undo| undo.arguments);
        arguments.filter(|argument| !argument.is_null()).try_fold(init, fold)
    }

    /// Returns whether one of the steps is `date_bin`.
    pub(super) unsafe fn has_bins(&self) -> bool {
        // SAFETY: an expression.
        let mut undo = unsafe { steps(self.expression) }.flat_map(|step| step.undo.into_iter().flatten());
        undo.any(|undo| matches!(undo.function, LimitFunction::CeilOfBin | LimitFunction::CeilOfLocalBin))
    }

    /// Makes the limit on the time, from what the expression is compared with.
    pub(super) unsafe fn limit(&self, functions: &Functions, x: *mut Node, is_upper: bool) -> *mut Node {
        // SAFETY: an expression and a node of the query's tree, which may be changed.
        unsafe {
            let is_after = match self.operator {
                Comparison::Greater => !is_upper,
                Comparison::LessOrEqual | Comparison::Equal => is_upper,
                _ => false,
            };
            let is_instant = self.of == Type::Timestamptz || self.with == Type::Timestamptz;
            let is_seconds = step_of(self.expression).is_some_and(|step| step.is_seconds);
            let mut started = match (is_instant, self.with) {
                // The equal element is neither below the least nor above the greatest one.
                (true, _) if self.is_array && is_upper => LimitFunction::UpperOfArray,
                (true, _) if self.is_array => LimitFunction::LowerOfArray,
                (false, Type::Date) if self.is_array => LimitFunction::LocalOfDays,
                (false, _) if self.is_array => LimitFunction::LocalOfArray,
                (true, Type::Date) => LimitFunction::InstantOfDay,
                (true, Type::Timestamp) => LimitFunction::InstantOfLocal,
                (true, _) => LimitFunction::Instant,
                (false, Type::Date) => LimitFunction::LocalOfDay,
                (false, Type::Numeric) if is_seconds => LimitFunction::InstantOfSeconds,
                (false, Type::Float) if is_seconds => LimitFunction::InstantOfFloatSeconds,
                (false, Type::Numeric) => LimitFunction::LocalOfYear,
                (false, Type::Float) => LimitFunction::LocalOfFloatYear,
                (false, _) => LimitFunction::Local,
            };
            let none = ptr::null_mut();
            let call = |function, arguments| call(functions, function, arguments);
            let flag = |value| makeBoolConst(value, false);
            // Seconds of a float are not exact, so their limit has a margin on either side.
            let is_after = if matches!(started, LimitFunction::InstantOfFloatSeconds) { is_upper } else { is_after };
            let is_day = self.of == Type::Date && self.with == Type::Date;
            let mut limit = x;
            if matches!(started, LimitFunction::LocalOfDay) && !is_day {
                // The start of the day is compared with a local time.
                limit = call(started, [limit, flag(false), none, none]);
                started = LimitFunction::Local;
            }
            if matches!(started, LimitFunction::LowerOfArray | LimitFunction::UpperOfArray) {
                limit = call(started, [limit, none, none, none]);
            } else if is_after || !matches!(started, LimitFunction::Instant | LimitFunction::Local) {
                limit = call(started, [limit, flag(is_after), none, none]);
            }
            if is_instant && self.of != Type::Timestamptz {
                // PostgreSQL converts what it compares with a timestamptz.
                limit = call(LimitFunction::LocalInZone, [limit, text(c"TimeZone"), flag(is_upper), none]);
            }
            // Undoing a cast to a day begins with the next start of one. Between days it is that.
            let mut superfluous = usize::from(is_day);
            let mut expression = self.expression;
            while let Some(step) = step_of(expression) {
                for Undo { function, arguments } in step.undo.into_iter().flatten().skip(mem::take(&mut superfluous)) {
                    // What stands in two places must be two nodes.
                    let [second, third] = arguments.map(|argument| copyObjectImpl(argument.cast()).cast());
                    let last = if matches!(function, LimitFunction::Ceil) { none } else { flag(is_upper) };
                    limit = call(function, [limit, second, third, last]);
                }
                expression = step.inner;
            }
            limit
        }
    }
}

/// Returns the steps by which an expression is computed, from the outside in.
unsafe fn steps(expression: *mut Node) -> impl Iterator<Item = TimeStep> {
    // SAFETY: an expression, and an argument of one.
    std::iter::successors(unsafe { step_of(expression) }, |step| unsafe { step_of(step.inner) })
}

/// Returns the time that an expression is computed from in steps. `None` if there are no steps.
pub(super) unsafe fn time_inside(expression: *mut Node) -> Option<*mut Node> {
    // SAFETY: an expression.
    unsafe { steps(expression) }.last().map(|step| step.inner)
}

/// Makes a call of a function that makes a limit. It has those arguments that are not null.
pub(super) unsafe fn call(functions: &Functions, function: LimitFunction, arguments: [*mut Node; 4]) -> *mut Node {
    let result = match function {
        LimitFunction::Local
        | LimitFunction::LocalOfDay
        | LimitFunction::LocalOfYear
        | LimitFunction::LocalOfFloatYear
        | LimitFunction::LocalOfArray
        | LimitFunction::LocalOfDays
        | LimitFunction::LocalInZone
        | LimitFunction::Ceil
        | LimitFunction::CeilOfLocalBin => pg_sys::TIMESTAMPOID,
        _ => pg_sys::TIMESTAMPTZOID,
    };
    // SAFETY: expressions of the types that the function takes.
    unsafe { make_call(functions.limits[function as usize], result, &arguments, pg_sys::DEFAULT_COLLATION_OID) }
}

/// Takes a step apart. `None` if the expression is not one.
pub(super) unsafe fn step_of(expression: *mut Node) -> Option<TimeStep> {
    // SAFETY: a node's type is what its tag says. These functions have as many arguments.
    unsafe {
        let (function, arguments) = match (*expression).type_ {
            NodeTag::T_FuncExpr => {
                let call = expression.cast::<pg_sys::FuncExpr>();
                ((*call).funcid, (*call).args)
            }
            NodeTag::T_OpExpr => {
                let operator = expression.cast::<pg_sys::OpExpr>();
                set_opfuncid(operator);
                ((*operator).opfuncid, (*operator).args)
            }
            _ => return None,
        };
        let argument = |at: usize| cells(arguments)[at].ptr_value.cast::<Node>();
        let session = || text(c"TimeZone");
        let undo = |function, argument| Some(Undo { function, arguments: [argument, ptr::null_mut()] });
        let to_local = |zone| undo(LimitFunction::LocalInZone, zone);
        let to_instant = |zone| undo(LimitFunction::InstantInZone, zone);
        let ceil = |unit| undo(LimitFunction::Ceil, unit);
        // A length, and the start of one.
        let bin = |function| Some(Undo { function, arguments: [argument(0), argument(2)] });
        let (inner, undo) = match function.to_u32() {
            pg_sys::F_DATE_TRUNC_TEXT_TIMESTAMPTZ if is_word(argument(0), Word::Unit) => {
                (argument(1), [to_local(session()), ceil(argument(0)), to_instant(session())])
            }
            pg_sys::F_DATE_TRUNC_TEXT_TIMESTAMPTZ_TEXT if is_word(argument(0), Word::Unit) && is_zone(argument(2)) => {
                (argument(1), [to_local(argument(2)), ceil(argument(0)), to_instant(argument(2))])
            }
            pg_sys::F_DATE_TRUNC_TEXT_TIMESTAMP if is_word(argument(0), Word::Unit) => {
                (argument(1), [ceil(argument(0)), None, None])
            }
            pg_sys::F_DATE_BIN_INTERVAL_TIMESTAMPTZ_TIMESTAMPTZ => {
                (argument(1), [bin(LimitFunction::CeilOfBin), None, None])
            }
            pg_sys::F_DATE_BIN_INTERVAL_TIMESTAMP_TIMESTAMP => {
                (argument(1), [bin(LimitFunction::CeilOfLocalBin), None, None])
            }
            pg_sys::F_EXTRACT_TEXT_TIMESTAMPTZ | pg_sys::F_DATE_PART_TEXT_TIMESTAMPTZ
                if is_word(argument(0), Word::Year) =>
            {
                (argument(1), [to_instant(session()), None, None])
            }
            pg_sys::F_EXTRACT_TEXT_TIMESTAMP | pg_sys::F_EXTRACT_TEXT_DATE | pg_sys::F_DATE_PART_TEXT_TIMESTAMP
                if is_word(argument(0), Word::Year) =>
            {
                (argument(1), [None; 3])
            }
            pg_sys::F_EXTRACT_TEXT_TIMESTAMPTZ | pg_sys::F_DATE_PART_TEXT_TIMESTAMPTZ
                if is_word(argument(0), Word::Epoch) =>
            {
                return Some(TimeStep { inner: argument(1), undo: [None; 3], is_seconds: true });
            }
            pg_sys::F_TIMESTAMP_TIMESTAMPTZ => (argument(0), [to_instant(session()), None, None]),
            pg_sys::F_TIMEZONE_TEXT_TIMESTAMPTZ if is_zone(argument(0)) => {
                (argument(1), [to_instant(argument(0)), None, None])
            }
            pg_sys::F_TIMEZONE_INTERVAL_TIMESTAMPTZ => {
                (argument(1), [undo(LimitFunction::InstantAtOffset, argument(0)), None, None])
            }
            pg_sys::F_DATE_TIMESTAMPTZ => (argument(0), [ceil(text(c"day")), to_instant(session()), None]),
            pg_sys::F_DATE_TIMESTAMP => (argument(0), [ceil(text(c"day")), None, None]),
            pg_sys::F_TIMESTAMP_DATE => (argument(0), [None; 3]),
            pg_sys::F_TIMESTAMPTZ_DATE | pg_sys::F_TIMESTAMPTZ_TIMESTAMP => {
                (argument(0), [to_local(session()), None, None])
            }
            pg_sys::F_TIMEZONE_TEXT_TIMESTAMP if is_zone(argument(0)) => {
                (argument(1), [to_local(argument(0)), None, None])
            }
            pg_sys::F_TIMESTAMPTZ_PL_INTERVAL => (argument(0), [undo(LimitFunction::Minus, argument(1)), None, None]),
            #[cfg(not(feature = "pg15"))]
            pg_sys::F_DATE_ADD_TIMESTAMPTZ_INTERVAL => {
                (argument(0), [undo(LimitFunction::Minus, argument(1)), None, None])
            }
            #[cfg(not(feature = "pg15"))]
            pg_sys::F_DATE_ADD_TIMESTAMPTZ_INTERVAL_TEXT if is_zone(argument(2)) => {
                let minus = Undo { function: LimitFunction::MinusInZone, arguments: [argument(1), argument(2)] };
                (argument(0), [Some(minus), None, None])
            }
            // AT LOCAL
            #[cfg(not(any(feature = "pg15", feature = "pg16")))]
            pg_sys::F_TIMEZONE_TIMESTAMPTZ => (argument(0), [to_instant(session()), None, None]),
            #[cfg(not(any(feature = "pg15", feature = "pg16")))]
            pg_sys::F_TIMEZONE_TIMESTAMP => (argument(0), [to_local(session()), None, None]),
            pg_sys::F_TIMESTAMPTZ_MI_INTERVAL => (argument(0), [undo(LimitFunction::Plus, argument(1)), None, None]),
            _ => return None,
        };
        Some(TimeStep { inner, undo, is_seconds: false })
    }
}

/// What a constant text may be.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Word {
    /// A unit that `date_trunc` surely knows.
    Unit,
    Year,
    Epoch,
    /// A zone's name or abbreviation.
    Zone,
}

/// Returns whether a zone may exist. A constant that does not must raise its error where there is a
/// row, whatever the time of that row is.
unsafe fn is_zone(node: *mut Node) -> bool {
    // SAFETY: a node's type is what its tag says.
    unsafe { (*node).type_ != NodeTag::T_Const || is_word(node, Word::Zone) }
}

/// Returns whether a node is a constant text of a kind.
unsafe fn is_word(node: *mut Node, word: Word) -> bool {
    // SAFETY: a node's type is what its tag says.
    unsafe { (*node).type_ == NodeTag::T_Const && is_constant_word(node.cast(), word) }
}

#[pg_guard]
unsafe extern "C-unwind" fn is_constant_word(constant: *mut pg_sys::Const, word: Word) -> bool {
    // SAFETY: a constant of type text.
    let text = unsafe { Text::from_datum((*constant).constvalue, (*constant).constisnull) };
    text.is_some_and(|text| match word {
        Word::Unit => TruncUnit::named(text.as_str()).is_some(),
        // As extract() and date_part() know them.
        Word::Year => text.as_str().eq_ignore_ascii_case("year"),
        Word::Epoch => text.as_str().eq_ignore_ascii_case("epoch"),
        Word::Zone => zone::exists(text.as_str()),
    })
}
