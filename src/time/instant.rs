//! Converts instants between the core's milliseconds since 1970 and PostgreSQL's timestamptz.

use pgrx::pg_sys;
use pgrx::prelude::*;
use snowflake_core::id::bounds::Instant;

/// Milliseconds from 1970 to 2000, the epoch of timestamptz (POSTGRES_EPOCH_JDATE in
/// datatype/timestamp.h).
pub const POSTGRES_EPOCH_MS: i64 = 946_684_800_000;

/// Converts milliseconds since 1970 to timestamptz. `Layout::parse` keeps a layout's instants
/// within its range. What lies beyond, as a registry's number may, is infinite.
pub fn timestamptz(ms: i64) -> TimestampWithTimeZone {
    let us = ms.checked_sub(POSTGRES_EPOCH_MS).and_then(|ms| ms.checked_mul(1000));
    let time = us.and_then(|us| TimestampWithTimeZone::try_from(us).ok());
    time.unwrap_or_else(if ms < 0 {
        TimestampWithTimeZone::negative_infinity
    } else {
        TimestampWithTimeZone::positive_infinity
    })
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

/// The instants from which every other can be subtracted, in microseconds since 2000: those of 2000
/// to 148137. For others the difference may overflow. PostgreSQL 16 and later then raise an error,
/// and 15 returns a wrong interval.
pub const SUBTRACTABLE_US: std::ops::Range<i64> = 0..1 << 62;

/// The last of the instants from which every other can be subtracted, in milliseconds since 1970.
pub const LAST_SUBTRACTABLE_MS: i64 = SUBTRACTABLE_US.end / 1000 + POSTGRES_EPOCH_MS - 1;

/// The microseconds of a day.
pub const DAY_US: i128 = 24 * 3600 * 1_000_000;

/// Stands for an infinite local time, beyond all others.
const INFINITE_US: i128 = 1 << 100;

/// Converts the start of a day to microseconds of local time since 2000.
pub fn local_us_of_day(day: Date) -> i128 {
    if day.is_infinity() {
        INFINITE_US
    } else if day.is_neg_infinity() {
        -INFINITE_US
    } else {
        i128::from(day.into_inner()) * DAY_US
    }
}

/// Converts the end of a day.
pub fn local_us_after_day(day: Date) -> i128 {
    local_us_of_day(day) + DAY_US
}

/// Converts a local time.
pub fn local_us(time: Timestamp) -> i128 {
    let us = time.into_inner();
    if time.is_finite() { us.into() } else { INFINITE_US * i128::from(us.signum()) }
}

/// Converts the time that is `age` before another one to microseconds since 2000. Days have 24
/// hours and months have 30 days, as when PostgreSQL compares intervals. `None` if PostgreSQL may
/// raise an error where it subtracts another time from `time`.
pub fn us_before(time: TimestampWithTimeZone, age: Interval) -> Option<i128> {
    let time_us = time.into_inner();
    if !time.is_finite() || !SUBTRACTABLE_US.contains(&time_us) {
        return None;
    }
    let days = i128::from(age.months()) * 30 + i128::from(age.days());
    Some(i128::from(time_us) - (days * DAY_US + i128::from(age.micros())))
}

/// Converts the value of a timestamptz, at its full precision. The infinite values lie before and
/// after all times that ids can hold.
pub fn instant_of_value(us: i64) -> Instant {
    match us {
        i64::MIN => Instant::FIRST,
        i64::MAX => Instant::LAST,
        _ => instant_of_us(us.into()),
    }
}

/// Converts microseconds since 2000.
fn instant_of_us(us: i128) -> Instant {
    let ms = us.div_euclid(1000) + i128::from(POSTGRES_EPOCH_MS);
    let beyond = if ms < 0 { Instant::FIRST } else { Instant::LAST };
    i64::try_from(ms).map_or(beyond, |ms| Instant { ms, later: us.rem_euclid(1000) != 0 })
}

/// Converts timestamptz to microseconds since 2000.
pub fn us(time: TimestampWithTimeZone) -> i128 {
    raw_us(time.into_inner())
}

fn raw_us(us: i64) -> i128 {
    match us {
        i64::MIN => -INFINITE_US,
        i64::MAX => INFINITE_US,
        finite => finite.into(),
    }
}

/// The finite values of timestamptz and timestamp, in microseconds since 2000 (MIN_TIMESTAMP and
/// END_TIMESTAMP in datatype/timestamp.h).
const FINITE_US: std::ops::Range<i128> = -211_813_488_000_000_000..9_223_371_331_200_000_000;

/// Converts microseconds since 2000; what is beyond timestamptz becomes infinite.
pub fn timestamptz_of_us(us: i128) -> TimestampWithTimeZone {
    TimestampWithTimeZone::try_from(finite_or_end(us)).expect("the value is finite or infinite")
}

/// Converts microseconds of local time since 2000; what is beyond timestamp becomes infinite.
pub fn timestamp_of_us(us: i128) -> Timestamp {
    Timestamp::try_from(finite_or_end(us)).expect("the value is finite or infinite")
}

fn finite_or_end(us: i128) -> i64 {
    let end = if us < 0 { i64::MIN } else { i64::MAX };
    if FINITE_US.contains(&us) { i64::try_from(us).unwrap_or(end) } else { end }
}

/// Converts the start of a day in the session's time zone to microseconds since 2000.
pub fn us_of_day(day: Date) -> i128 {
    raw_us(raw_start_of_day(day))
}

/// Converts a local time in the session's time zone to microseconds since 2000.
pub fn us_of_local(time: Timestamp) -> i128 {
    raw_us(raw_local_instant(time))
}

/// Converts the start of a day in the session's time zone, as PostgreSQL compares `date` with
/// `timestamptz`. A day beyond timestamptz is not an error: PostgreSQL returns an infinite time.
pub fn start_of_day(day: Date) -> Instant {
    converted(raw_start_of_day(day))
}

fn raw_start_of_day(day: Date) -> pg_sys::TimestampTz {
    // SAFETY: reads the session's time zone, and raises nothing because it has a place for the
    // overflow.
    #[cfg(not(feature = "pg19"))]
    let time = unsafe { pg_sys::date2timestamptz_opt_overflow(day.into_inner(), &mut 0) };
    // SAFETY: the same.
    #[cfg(feature = "pg19")]
    let time = unsafe { pg_sys::date2timestamptz_safe(day.into_inner(), std::ptr::from_mut(&mut overflow()).cast()) };
    time
}

/// Converts a local time in the session's time zone, as PostgreSQL compares `timestamp` with
/// `timestamptz`.
pub fn local_instant(time: Timestamp) -> Instant {
    converted(raw_local_instant(time))
}

fn raw_local_instant(time: Timestamp) -> pg_sys::TimestampTz {
    // SAFETY: as above.
    #[cfg(not(feature = "pg19"))]
    let time = unsafe { pg_sys::timestamp2timestamptz_opt_overflow(time.into_inner(), &mut 0) };
    // SAFETY: as above.
    #[cfg(feature = "pg19")]
    let time =
        unsafe { pg_sys::timestamp2timestamptz_safe(time.into_inner(), std::ptr::from_mut(&mut overflow()).cast()) };
    time
}

/// A place where a conversion notes that it overflows.
#[cfg(feature = "pg19")]
fn overflow() -> pg_sys::ErrorSaveContext {
    pg_sys::ErrorSaveContext { type_: pg_sys::NodeTag::T_ErrorSaveContext, ..Default::default() }
}

fn converted(time: pg_sys::TimestampTz) -> Instant {
    instant_or_end(TimestampWithTimeZone::try_from(time).expect("PostgreSQL has converted it"))
}
