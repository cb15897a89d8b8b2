//! From what is computed from a time to the time: between which limits it lies.
//!
//! Only what PostgreSQL computes inexactly is here: seconds as a float, and an age in months. Both
//! limits then have a margin, and whoever uses them checks the condition itself, too. A lower limit
//! is inclusive, and an upper one is exclusive.

/// Microseconds of a day.
const DAY_US: i128 = 24 * 3600 * 1_000_000;

/// Returns a limit on the whole microseconds of which a float has the seconds: each number of
/// microseconds whose seconds are `seconds` or more is the lower limit or more, and each whose
/// seconds are `seconds` or less is below the upper one. NaN counts as more than all numbers, as
/// PostgreSQL has it.
///
/// Seconds are computed with at most three roundings, each of 2^-53 of the value, and the product
/// here with another one. The margin is 2^-50 of the value, and two microseconds: at most 6 us for
/// times of this century.
///
/// ```
/// use snowflake_core::id::computed::limit_of_seconds_us;
/// assert!((1_999_990..=2_000_000).contains(&limit_of_seconds_us(2.0, false)));
/// assert!((2_000_001..=2_000_010).contains(&limit_of_seconds_us(2.0, true)));
/// ```
pub fn limit_of_seconds_us(seconds: f64, upper: bool) -> i128 {
    let us = if seconds.is_nan() { f64::INFINITY } else { seconds * 1e6 };
    // Far more than all times; sums with it stay within the type.
    let us = us.clamp(-1e25, 1e25);
    let margin_us = us.abs() / 2_f64.powi(50) + 2.0;
    if upper { (us + margin_us).ceil() as i128 + 1 } else { (us - margin_us).floor() as i128 }
}

/// Returns how much local time can lie between two local times whose age PostgreSQL's `age()` gives
/// as `age_us`, at `most` or at least. Both are negative if the second time is the later one. A
/// month of the age counts as 30 days, as when PostgreSQL compares intervals.
///
/// `age()` counts months, and then days and a time. Its value in this count differs from the time
/// that passes by the lengths of those months, each of 28 to 31 days: any number of successive
/// months has at least 30 days each, less two, and at most 31 days each. Where clocks are set back
/// between the two times, `age()` also borrows days of a month the wrong way, at most two of them.
/// So the margin is three days, and a thirtieth of the age on the side where months are longer.
///
/// ```
/// use snowflake_core::id::computed::elapsed_us;
/// let day_us = 86_400_000_000;
/// // From January 31 to March 1 it is a month and a day, and 29 days.
/// assert!(elapsed_us(31 * day_us, false) <= 29 * day_us);
/// // A year has 12 months, which count as 360 days, and 365 or 366 days.
/// assert!(elapsed_us(360 * day_us, true) >= 366 * day_us);
/// ```
pub fn elapsed_us(age_us: i128, most: bool) -> i128 {
    let margin_us = 3 * DAY_US;
    if most { age_us + age_us.max(0) / 30 + margin_us } else { age_us + age_us.min(0) / 30 - margin_us }
}
