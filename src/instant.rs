//! Instants between the core, which counts milliseconds since 1970, and PostgreSQL's timestamptz.

use pgrx::prelude::*;
use snowflake_core::bounds::Instant;

/// Milliseconds from 1970 to 2000, where PostgreSQL's time begins (POSTGRES_EPOCH_JDATE in datatype/timestamp.h).
const POSTGRES_EPOCH_MS: i64 = 946_684_800_000;

/// Milliseconds since 1970 as timestamptz. A layout's instants are within its range, by `Layout::parse`.
pub fn timestamptz(ms: i64) -> TimestampWithTimeZone {
    TimestampWithTimeZone::try_from((ms - POSTGRES_EPOCH_MS) * 1000).expect("a layout's instants fit timestamptz")
}

/// timestamptz as milliseconds since 1970, rounded down; `None` if it is infinite. (Not microseconds: the last 30 years of
/// timestamptz are too many of them since 1970.)
pub fn unix_ms(time: TimestampWithTimeZone) -> Option<i64> {
    time.is_finite().then(|| time.into_inner().div_euclid(1000) + POSTGRES_EPOCH_MS)
}

/// timestamptz at its full precision; `None` if it is infinite.
pub fn instant(time: TimestampWithTimeZone) -> Option<Instant> {
    unix_ms(time).map(|ms| Instant { ms, later: time.into_inner().rem_euclid(1000) != 0 })
}
