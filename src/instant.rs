//! Converts instants between the core's milliseconds since 1970 and PostgreSQL's timestamptz.

use pgrx::pg_sys;
use pgrx::prelude::*;
use snowflake_core::bounds::Instant;

/// Milliseconds from 1970 to 2000, the epoch of timestamptz (POSTGRES_EPOCH_JDATE in
/// datatype/timestamp.h).
const POSTGRES_EPOCH_MS: i64 = 946_684_800_000;

/// Converts milliseconds since 1970 to timestamptz. `Layout::parse` keeps a layout's instants
/// within its range.
pub fn timestamptz(ms: i64) -> TimestampWithTimeZone {
    TimestampWithTimeZone::try_from((ms - POSTGRES_EPOCH_MS) * 1000).expect("a layout's instants fit timestamptz")
}

/// Converts timestamptz to milliseconds since 1970, rounded down; `None` if it is infinite. (Not to
/// microseconds, because those since 1970 overflow in the last 30 years of timestamptz.)
pub fn unix_ms(time: TimestampWithTimeZone) -> Option<i64> {
    time.is_finite().then(|| time.into_inner().div_euclid(1000) + POSTGRES_EPOCH_MS)
}

/// Converts timestamptz at its full precision; `None` if it is infinite.
pub fn instant(time: TimestampWithTimeZone) -> Option<Instant> {
    unix_ms(time).map(|ms| Instant { ms, later: time.into_inner().rem_euclid(1000) != 0 })
}

/// Converts timestamptz at its full precision. The infinite values lie before and after all times
/// that ids can hold.
pub fn instant_or_end(time: TimestampWithTimeZone) -> Instant {
    let infinite = if time.into_inner() > 0 { Instant::LAST } else { Instant::FIRST };
    instant(time).unwrap_or(infinite)
}

/// Converts the start of a day in the session's time zone, as PostgreSQL compares `date` with
/// `timestamptz`. A day beyond timestamptz is not an error: PostgreSQL returns an infinite time.
pub fn start_of_day(day: Date) -> Instant {
    // SAFETY: reads the session's time zone, and raises nothing because it has a place for the
    // overflow.
    #[cfg(not(feature = "pg19"))]
    let time = unsafe { pg_sys::date2timestamptz_opt_overflow(day.into_inner(), &mut 0) };
    // SAFETY: the same.
    #[cfg(feature = "pg19")]
    let time = unsafe { pg_sys::date2timestamptz_safe(day.into_inner(), std::ptr::from_mut(&mut overflow()).cast()) };
    converted(time)
}

/// Converts a local time in the session's time zone, as PostgreSQL compares `timestamp` with
/// `timestamptz`.
pub fn local_instant(time: Timestamp) -> Instant {
    // SAFETY: as above.
    #[cfg(not(feature = "pg19"))]
    let time = unsafe { pg_sys::timestamp2timestamptz_opt_overflow(time.into_inner(), &mut 0) };
    // SAFETY: as above.
    #[cfg(feature = "pg19")]
    let time =
        unsafe { pg_sys::timestamp2timestamptz_safe(time.into_inner(), std::ptr::from_mut(&mut overflow()).cast()) };
    converted(time)
}

/// A place where a conversion notes that it overflows.
#[cfg(feature = "pg19")]
fn overflow() -> pg_sys::ErrorSaveContext {
    pg_sys::ErrorSaveContext { type_: pg_sys::NodeTag::T_ErrorSaveContext, ..Default::default() }
}

fn converted(time: pg_sys::TimestampTz) -> Instant {
    instant_or_end(TimestampWithTimeZone::try_from(time).expect("PostgreSQL has converted it"))
}
