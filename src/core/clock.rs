//! Where time comes from, and how an instant is written.
//!
//! Instants are milliseconds (`_ms`) since 1970-01-01T00:00:00Z, counted as PostgreSQL and POSIX
//! do: without leap seconds. The only calendar here is the proleptic Gregorian one of RFC 3339, in
//! UTC. PostgreSQL's own functions do anything more.

use std::fmt;

use crate::atomic::{AtomicI64, Ordering};

/// A source of wall-clock time. It may jump, stand still or go backward: the generator assumes
/// nothing.
pub trait Clock {
    /// Reads the time, in milliseconds since 1970. Must not cache it, because invariant I2 rests on
    /// a new reading.
    fn now_ms(&self) -> i64;
}

/// A function serves as a clock, and so does a scripted time in a test. The extension reads the
/// server's own clock itself (`backend.rs`), because one call into libc is half the work of the
/// standard library's `SystemTime`.
impl<F: Fn() -> i64> Clock for F {
    #[inline]
    fn now_ms(&self) -> i64 {
        self()
    }
}

/// What a session waits for: how far the clock has to go, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// All ids that the clock and `max_borrow` permit are drawn.
    UsedUp {
        /// How far the clock has to go, in milliseconds.
        wait_ms: i64,
    },
    /// The clock is behind by no more than what was borrowed.
    Borrowed {
        /// How far the clock has to go, in milliseconds.
        wait_ms: i64,
    },
    /// The clock was set back.
    ClockStepBack {
        /// How far the clock has to go, in milliseconds.
        wait_ms: i64,
        /// How far the clock is behind the last id, or the mark, in milliseconds.
        behind_ms: i64,
    },
    /// After a start or a promotion: the clock has to pass the mark that a server with a right
    /// clock leaves behind.
    Start {
        /// How far the clock has to go, in milliseconds.
        wait_ms: i64,
    },
}

impl Wait {
    /// Returns how far the clock has to go, in milliseconds.
    pub fn ms(self) -> i64 {
        match self {
            Self::UsedUp { wait_ms }
            | Self::Borrowed { wait_ms }
            | Self::ClockStepBack { wait_ms, .. }
            | Self::Start { wait_ms } => wait_ms,
        }
    }
}

/// The greatest distance of the wall clock from the time since boot at which a mark moved on this
/// server. A clock that jumps shows as a greater distance.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ClockReference(AtomicI64);

impl ClockReference {
    const UNKNOWN: i64 = i64::MIN;

    /// Makes the reference of a server on which no mark has moved yet.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        Self(AtomicI64::new(Self::UNKNOWN))
    }

    /// Returns by how much the wall clock has gained on the time since boot, in milliseconds; 0 if
    /// no mark has moved yet, or if the wall clock has fallen behind.
    pub fn jump_ms(&self, now_ms: i64, boot_ms: i64) -> i64 {
        // Relaxed, here and below: one word, compared with two clocks, and not ordered with
        // anything.
        match self.0.load(Ordering::Relaxed) {
            Self::UNKNOWN => 0,
            before => now_ms.saturating_sub(boot_ms).saturating_sub(before).max(0),
        }
    }

    /// Notes both clocks when a mark moves. The reference never falls, because a clock that was set
    /// back and is put right again has not jumped.
    pub fn note(&self, now_ms: i64, boot_ms: i64) {
        self.0.fetch_max(now_ms.saturating_sub(boot_ms), Ordering::Relaxed);
    }
}

/// Lets an event happen at most once per interval on the whole server, whichever session asks
/// first.
#[derive(Debug)]
pub struct RateLimit(AtomicI64);

impl RateLimit {
    const NEVER: i64 = i64::MIN;

    /// Makes one whose event has not happened yet.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        Self(AtomicI64::new(Self::NEVER))
    }

    /// Whether the event is due: `every_ms` milliseconds after the last one. If so, notes it as
    /// happening now. Counts by the time since boot, because the wall clock may be set back.
    pub fn is_due(&self, boot_ms: i64, every_ms: i64) -> bool {
        // Relaxed, both: one word, not ordered with anything. Of several sessions that find it due,
        // one wins the exchange.
        let last_ms = self.0.load(Ordering::Relaxed);
        (last_ms == Self::NEVER || boot_ms.saturating_sub(last_ms) >= every_ms)
            && self.0.compare_exchange(last_ms, boot_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// A day, in milliseconds.
pub const DAY_MS: i64 = 86_400_000;

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar, in which 1 BC is the year
/// 0 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", days_from_civil).
///
/// ```
/// assert_eq!(snowflake_core::clock::days_from_civil(2000, 1, 1), 10_957);
/// ```
pub fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Returns the year, month and day of a day since 1970-01-01 (same source, civil_from_days).
///
/// ```
/// assert_eq!(snowflake_core::clock::civil_from_days(10_957), (2000, 1, 1));
/// ```
pub fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Prints an instant in UTC as RFC 3339 does: `2026-11-20T09:28:48.220Z`, always with milliseconds.
///
/// Years after 9999 are printed with all their digits, years before 0000 with a minus sign.
///
/// ```
/// assert_eq!(snowflake_core::clock::Utc(1_288_834_974_657).to_string(), "2010-11-04T01:42:54.657Z");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Utc(
    /// Milliseconds since 1970.
    pub i64,
);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0.div_euclid(DAY_MS));
        let ms = self.0.rem_euclid(DAY_MS);
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        let sign = if year < 0 { "-" } else { "" };
        write!(f, "{sign}{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", year.abs(), ms % 1000)
    }
}

/// What [`parse_instant`] found wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstantError {
    /// A date and a time, but nothing after them.
    NoZone,
    /// Not of the form `2025-01-01T00:00:00[.000](Z|+00:00)`, not an existing day or hour, or finer
    /// than a millisecond.
    Malformed,
}

/// Reads an instant as RFC 3339 writes it. The zone is required, and the fraction has up to three
/// digits.
///
/// Returns milliseconds since 1970, from 0001-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z.
///
/// # Errors
/// [`InstantError`]. Leap seconds (`:60`) are malformed, because no time here counts them.
///
/// ```
/// use snowflake_core::clock::parse_instant;
/// assert_eq!(parse_instant("2016-05-20T00:00:00+08:00"), parse_instant("2016-05-19T16:00:00Z"));
/// ```
pub fn parse_instant(text: &str) -> Result<i64, InstantError> {
    instant(text.as_bytes()).unwrap_or(Err(InstantError::Malformed))
}

/// Parses an instant. `None` means malformed, so that `?` can be used.
fn instant(mut rest: &[u8]) -> Option<Result<i64, InstantError>> {
    let year = number(&mut rest, 4)?;
    let month = after(&mut rest, b'-')?;
    let day = after(&mut rest, b'-')?;
    rest = rest.strip_prefix(b"T")?;
    let hour = number(&mut rest, 2)?;
    let minute = after(&mut rest, b':')?;
    let second = after(&mut rest, b':')?;
    let mut ms = 0;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if !(1..=3).contains(&digits) {
            return None;
        }
        rest = fraction;
        ms = number(&mut rest, digits)? * [100, 10, 1][digits - 1];
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let last_day = *days.get(usize::try_from(month - 1).ok()?)?;
    if !(1..=last_day).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let offset_minutes = match rest {
        [] => return Some(Err(InstantError::NoZone)),
        b"Z" => 0,
        [sign @ (b'+' | b'-'), zone @ ..] => {
            rest = zone;
            let hours = number(&mut rest, 2)?;
            let minutes = after(&mut rest, b':')?;
            if hours > 23 || minutes > 59 || !rest.is_empty() {
                return None;
            }
            (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let minutes = hour * 60 + minute - offset_minutes;
    let instant_ms = days_from_civil(year, month, day) * DAY_MS + minutes * 60_000 + second * 1000 + ms;
    let years = days_from_civil(1, 1, 1) * DAY_MS..days_from_civil(10_000, 1, 1) * DAY_MS;
    years.contains(&instant_ms).then_some(Ok(instant_ms))
}

/// Takes exactly `digits` ASCII digits from the front of `rest`.
fn number(rest: &mut &[u8], digits: usize) -> Option<i64> {
    let (head, tail) = rest.split_at_checked(digits)?;
    *rest = tail;
    head.iter().try_fold(0, |n, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
}

/// Takes `separator` and two digits from the front of `rest`.
fn after(rest: &mut &[u8], separator: u8) -> Option<i64> {
    *rest = rest.strip_prefix(&[separator])?;
    number(rest, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_due_once_per_interval() {
        let seldom = RateLimit::new();
        let happens: Vec<_> = [5, 5, 6, 64, 65, 66, 124, 125, 1000].map(|now_ms| seldom.is_due(now_ms, 60)).to_vec();
        assert_eq!(happens, [true, false, false, false, true, false, false, true, true]);
    }

    #[test]
    fn instants_are_read_as_rfc_3339_writes_them() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2010-11-04T01:42:54.657Z", 1_288_834_974_657),
            ("2016-05-20T00:00:00+08:00", 1_463_673_600_000),
            ("2000-02-29T23:59:59.9-00:30", 951_870_599_900),
            ("2000-01-01T00:00:00+23:59", 946_598_460_000),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ] {
            assert_eq!(parse_instant(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn text_that_is_not_an_instant_is_refused() {
        for text in [
            "",
            "2025",
            "2025-01-01",
            "2025-01-01T00:00Z",
            "2025-13-01T00:00:00Z",
            "2025-00-01T00:00:00Z",
            "2025-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2025-01-00T00:00:00Z",
            "2025-01-01T24:00:00Z",
            "2025-01-01T00:60:00Z",
            "2025-01-01T00:00:60Z",
            "2025-01-01T00:00:00+00:60",
            "2025-01-01T00:00:00.Z",
            "2025-01-01T00:00:00.1234Z",
            "2025-01-01T00:00:00z",
            "2025-01-01 00:00:00Z",
            "2025-01-01T00:00:00+8",
            "2025-01-01T00:00:00+08:00x",
            "2025-01-01T00:00:00+24:00",
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "+025-01-01T00:00:00Z",
            "２025-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_instant(text), Err(InstantError::Malformed), "{text}");
        }
        assert_eq!(parse_instant("2025-01-01T00:00:00"), Err(InstantError::NoZone));
        assert_eq!(parse_instant("2025-01-01T00:00:00.5"), Err(InstantError::NoZone));
    }

    #[test]
    fn far_instants_are_printed() {
        assert_eq!(Utc(i64::MIN / 1000).to_string(), "-290308-12-21T19:59:05.225Z");
        assert_eq!(Utc(9_224_318_015_999_999).to_string(), "294276-12-31T23:59:59.999Z");
        assert_eq!(Utc(-1).to_string(), "1969-12-31T23:59:59.999Z");
        // Year 0 is not negative.
        assert_eq!(Utc(-62_135_596_800_001).to_string(), "0000-12-31T23:59:59.999Z");
        // The last day of an era of 400 years.
        assert_eq!(Utc(951_782_400_000).to_string(), "2000-02-29T00:00:00.000Z");
    }
}
