//! The operators whose conditions are replaced: what each compares, and how.

use pgrx::pg_sys::{self, Oid};

#[derive(Clone, Copy)]
pub(super) enum Comparison {
    Less,
    LessOrEqual,
    Equal,
    Greater,
    GreaterOrEqual,
}
use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};

impl Comparison {
    pub(super) fn commuted(self) -> Self {
        match self {
            Less => Greater,
            LessOrEqual => GreaterOrEqual,
            Equal => Equal,
            Greater => Less,
            GreaterOrEqual => LessOrEqual,
        }
    }
}

/// A type of what is compared. The number is its place in
/// [`Functions`](crate::postgres::catalog::Functions).
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Type {
    Timestamptz = 0,
    Date = 1,
    Timestamp = 2,
    /// A year, or seconds.
    Numeric = 3,
    /// The same, as a float.
    Float = 4,
}
use Type::{Date, Float, Numeric, Timestamp, Timestamptz};

/// Returns what an operator's function compares: the comparison between the types of its two sides.
pub(super) fn operator(function: Oid) -> Option<(Type, Comparison, Type)> {
    Some(match function.to_u32() {
        pg_sys::F_TIMESTAMPTZ_LT => (Timestamptz, Less, Timestamptz),
        pg_sys::F_TIMESTAMPTZ_LE => (Timestamptz, LessOrEqual, Timestamptz),
        pg_sys::F_TIMESTAMPTZ_EQ => (Timestamptz, Equal, Timestamptz),
        pg_sys::F_TIMESTAMPTZ_GT => (Timestamptz, Greater, Timestamptz),
        pg_sys::F_TIMESTAMPTZ_GE => (Timestamptz, GreaterOrEqual, Timestamptz),
        pg_sys::F_TIMESTAMPTZ_LT_DATE => (Timestamptz, Less, Date),
        pg_sys::F_TIMESTAMPTZ_LE_DATE => (Timestamptz, LessOrEqual, Date),
        pg_sys::F_TIMESTAMPTZ_EQ_DATE => (Timestamptz, Equal, Date),
        pg_sys::F_TIMESTAMPTZ_GT_DATE => (Timestamptz, Greater, Date),
        pg_sys::F_TIMESTAMPTZ_GE_DATE => (Timestamptz, GreaterOrEqual, Date),
        pg_sys::F_DATE_LT_TIMESTAMPTZ => (Date, Less, Timestamptz),
        pg_sys::F_DATE_LE_TIMESTAMPTZ => (Date, LessOrEqual, Timestamptz),
        pg_sys::F_DATE_EQ_TIMESTAMPTZ => (Date, Equal, Timestamptz),
        pg_sys::F_DATE_GT_TIMESTAMPTZ => (Date, Greater, Timestamptz),
        pg_sys::F_DATE_GE_TIMESTAMPTZ => (Date, GreaterOrEqual, Timestamptz),
        pg_sys::F_TIMESTAMPTZ_LT_TIMESTAMP => (Timestamptz, Less, Timestamp),
        pg_sys::F_TIMESTAMPTZ_LE_TIMESTAMP => (Timestamptz, LessOrEqual, Timestamp),
        pg_sys::F_TIMESTAMPTZ_EQ_TIMESTAMP => (Timestamptz, Equal, Timestamp),
        pg_sys::F_TIMESTAMPTZ_GT_TIMESTAMP => (Timestamptz, Greater, Timestamp),
        pg_sys::F_TIMESTAMPTZ_GE_TIMESTAMP => (Timestamptz, GreaterOrEqual, Timestamp),
        pg_sys::F_TIMESTAMP_LT_TIMESTAMPTZ => (Timestamp, Less, Timestamptz),
        pg_sys::F_TIMESTAMP_LE_TIMESTAMPTZ => (Timestamp, LessOrEqual, Timestamptz),
        pg_sys::F_TIMESTAMP_EQ_TIMESTAMPTZ => (Timestamp, Equal, Timestamptz),
        pg_sys::F_TIMESTAMP_GT_TIMESTAMPTZ => (Timestamp, Greater, Timestamptz),
        pg_sys::F_TIMESTAMP_GE_TIMESTAMPTZ => (Timestamp, GreaterOrEqual, Timestamptz),
        _ => return None,
    })
}

/// Returns what an operator's function compares two intervals for.
pub(super) fn interval_operator(function: Oid) -> Option<Comparison> {
    Some(match function.to_u32() {
        pg_sys::F_INTERVAL_LT => Less,
        pg_sys::F_INTERVAL_LE => LessOrEqual,
        pg_sys::F_INTERVAL_EQ => Equal,
        pg_sys::F_INTERVAL_GT => Greater,
        pg_sys::F_INTERVAL_GE => GreaterOrEqual,
        _ => return None,
    })
}

/// Returns what an operator's function compares, between days, local times and numbers.
pub(super) fn local_operator(function: Oid) -> Option<(Type, Comparison, Type)> {
    Some(match function.to_u32() {
        pg_sys::F_DATE_LT => (Date, Less, Date),
        pg_sys::F_DATE_LE => (Date, LessOrEqual, Date),
        pg_sys::F_DATE_EQ => (Date, Equal, Date),
        pg_sys::F_DATE_GT => (Date, Greater, Date),
        pg_sys::F_DATE_GE => (Date, GreaterOrEqual, Date),
        pg_sys::F_TIMESTAMP_LT => (Timestamp, Less, Timestamp),
        pg_sys::F_TIMESTAMP_LE => (Timestamp, LessOrEqual, Timestamp),
        pg_sys::F_TIMESTAMP_EQ => (Timestamp, Equal, Timestamp),
        pg_sys::F_TIMESTAMP_GT => (Timestamp, Greater, Timestamp),
        pg_sys::F_TIMESTAMP_GE => (Timestamp, GreaterOrEqual, Timestamp),
        pg_sys::F_DATE_LT_TIMESTAMP => (Date, Less, Timestamp),
        pg_sys::F_DATE_LE_TIMESTAMP => (Date, LessOrEqual, Timestamp),
        pg_sys::F_DATE_EQ_TIMESTAMP => (Date, Equal, Timestamp),
        pg_sys::F_DATE_GT_TIMESTAMP => (Date, Greater, Timestamp),
        pg_sys::F_DATE_GE_TIMESTAMP => (Date, GreaterOrEqual, Timestamp),
        pg_sys::F_TIMESTAMP_LT_DATE => (Timestamp, Less, Date),
        pg_sys::F_TIMESTAMP_LE_DATE => (Timestamp, LessOrEqual, Date),
        pg_sys::F_TIMESTAMP_EQ_DATE => (Timestamp, Equal, Date),
        pg_sys::F_TIMESTAMP_GT_DATE => (Timestamp, Greater, Date),
        pg_sys::F_TIMESTAMP_GE_DATE => (Timestamp, GreaterOrEqual, Date),
        pg_sys::F_NUMERIC_LT => (Numeric, Less, Numeric),
        pg_sys::F_NUMERIC_LE => (Numeric, LessOrEqual, Numeric),
        pg_sys::F_NUMERIC_EQ => (Numeric, Equal, Numeric),
        pg_sys::F_NUMERIC_GT => (Numeric, Greater, Numeric),
        pg_sys::F_NUMERIC_GE => (Numeric, GreaterOrEqual, Numeric),
        pg_sys::F_FLOAT8LT => (Float, Less, Float),
        pg_sys::F_FLOAT8LE => (Float, LessOrEqual, Float),
        pg_sys::F_FLOAT8EQ => (Float, Equal, Float),
        pg_sys::F_FLOAT8GT => (Float, Greater, Float),
        pg_sys::F_FLOAT8GE => (Float, GreaterOrEqual, Float),
        _ => return None,
    })
}
