//! Which numbers a reading may have. A registry is edited by people, and its clock may be anything.
//! A number that is out of range is refused, with its name, before anything is decided by it.
//!
//! The numbers of single records are not refused here. One of them would keep the whole fleet from
//! reading the others, and the core's arithmetic takes any.

use std::ops::RangeInclusive;

use snowflake_core::fleet::registry::{Fleet, Reading};

use crate::error::RegistryError;

/// Instants from 1970 to the end of the year 9999, in milliseconds since 1970. A length of time is
/// not longer.
const MS: RangeInclusive<i64> = 0..=253_402_300_799_999;

/// Returns a reading, if its numbers are within their ranges.
///
/// # Errors
/// [`RegistryError::OutOfRange`].
pub(crate) fn checked(reading: Reading) -> Result<Reading, RegistryError> {
    check(&reading.fleet, reading.now_ms)?;
    Ok(reading)
}

/// Checks the numbers of a fleet's record, and the registry's clock.
///
/// # Errors
/// [`RegistryError::OutOfRange`].
pub(crate) fn check(fleet: &Fleet, now_ms: i64) -> Result<(), RegistryError> {
    let Fleet { longest_ms, skew_ms, lease_ms, clock_skew_ms, .. } = *fleet;
    let numbers = [
        ("now_ms", now_ms),
        ("longest_ms", longest_ms),
        ("skew_ms", skew_ms),
        ("lease_ms", lease_ms),
        ("clock_skew_ms", clock_skew_ms),
    ];
    match numbers.into_iter().find(|(_, value)| !MS.contains(value)) {
        Some((name, value)) => Err(RegistryError::OutOfRange { name, value, most: *MS.end() }),
        None => Ok(()),
    }
}
