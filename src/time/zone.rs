//! Local times: between which instants a zone's clocks can show one.
//!
//! Local time is not monotone, because clocks are set back: a day can begin twice. So a condition
//! on a local time bounds the instants from outside. Their ends come from PostgreSQL's own table of
//! transitions. Nothing here raises an error: a zone that is not known has any offset.

use std::ffi::{CStr, CString, c_int};
use std::ptr;

use pgrx::pg_sys;

use crate::time::instant::POSTGRES_EPOCH_MS;

/// What stands for the session's zone in place of a name.
pub const SESSION: &str = "TimeZone";

/// More than the greatest offset that the name of a zone can spell out: 167:59:59, and the hour
/// that summer time without an offset of its own adds (`tzparse` in timezone/localtime.c).
const MOST_S: i64 = 169 * 3600;

/// A layout's instants are less than this many microseconds from 2000.
const FAR_US: i128 = 10_000_000_000_000_000_000;

/// A time in which a zone has one offset: microseconds since 2000, and those that its clocks are
/// ahead of UTC.
struct Period {
    start_us: i128,
    end_us: i128,
    offset_us: i128,
}

/// Returns the first instant at which the zone's clocks show `local_us` or later, in microseconds
/// since 2000.
pub fn earliest_us(local_us: i128, zone: &str) -> i128 {
    let mut earliest_us = None;
    let is_known = for_each_period(local_us, MOST_S, zone, |Period { start_us, end_us, offset_us }| {
        let at_us = start_us.max(local_us - offset_us);
        if at_us < end_us {
            earliest_us.get_or_insert(at_us);
        }
    });
    earliest_us.filter(|_| is_known).unwrap_or(local_us - micros(MOST_S))
}

/// Returns the first instant from which on the zone's clocks never show less than `local_us`, in
/// microseconds since 2000.
pub fn latest_us(local_us: i128, zone: &str) -> i128 {
    let mut latest_us = None;
    let is_known = for_each_period(local_us, MOST_S, zone, |Period { start_us, end_us, offset_us }| {
        let at_us = end_us.min(local_us - offset_us);
        if at_us > start_us {
            latest_us = Some(at_us);
        }
    });
    latest_us.filter(|_| is_known).unwrap_or(local_us + micros(MOST_S))
}

/// Returns the least local time that PostgreSQL can convert to the instant `us` or a later one.
///
/// For a local time that comes twice, or never, PostgreSQL chooses one of the offsets around it.
pub fn least_local_us(us: i128, zone: &str) -> i128 {
    let (mut least_us, reach_us) = (None, offset_reach_us(us, zone));
    let is_known = for_each_period(us, 3 * MOST_S, zone, |Period { start_us, end_us, offset_us }| {
        if us <= end_us + reach_us {
            let local_us = us.max(start_us - reach_us) + offset_us;
            least_us = Some(least_us.map_or(local_us, |least: i128| least.min(local_us)));
        }
    });
    least_us.filter(|_| is_known).unwrap_or(us - micros(MOST_S))
}

/// Returns a local time below which all are that PostgreSQL can convert to an instant before `us`.
pub fn greatest_local_us(us: i128, zone: &str) -> i128 {
    let (mut greatest_us, reach_us) = (None, offset_reach_us(us, zone));
    let is_known = for_each_period(us, 3 * MOST_S, zone, |Period { start_us, end_us, offset_us }| {
        if us > start_us - reach_us {
            let local_us = us.min(end_us + reach_us) + offset_us;
            greatest_us = Some(greatest_us.map_or(local_us, |greatest: i128| greatest.max(local_us)));
        }
    });
    greatest_us.filter(|_| is_known).unwrap_or(us + micros(MOST_S))
}

/// Returns how far from a period its offset can be the one that PostgreSQL chooses. It looks for
/// transitions from a day before the local time on, which it reads as one of UTC
/// (DetermineTimeZoneOffset in utils/adt/datetime.c).
fn offset_reach_us(us: i128, zone: &str) -> i128 {
    let mut greatest_us = 0;
    for_each_period(us, 3 * MOST_S, zone, |period| greatest_us = period.offset_us.abs().max(greatest_us));
    greatest_us + micros(24 * 3600 + 1)
}

fn micros(seconds: i64) -> i128 {
    i128::from(seconds) * 1_000_000
}

/// Calls `visit` for the periods of a zone that are within `reach_s` of a time, in order. Within
/// [`MOST_S`] are those in which its clocks can show a local time: before them they show less, and
/// after them more. Returns `false` if the zone is not known.
fn for_each_period(around_us: i128, reach_s: i64, zone: &str, mut visit: impl FnMut(Period)) -> bool {
    let Some(zone) = named(zone).filter(|_| around_us.abs() < FAR_US) else { return false };
    let epoch_s = POSTGRES_EPOCH_MS / 1000;
    let since_2000_us = |unix_s: i64| micros(unix_s - epoch_s);
    let around_s = around_us.div_euclid(1_000_000) as i64 + epoch_s;
    let (mut at_s, last_s) = (around_s - reach_s, around_s + 1 + reach_s);
    loop {
        let (mut offset_s, mut next_offset_s, mut boundary_s) = (0, 0, 0);
        let (mut was_dst, mut is_dst): (c_int, c_int) = (0, 0);
        // SAFETY: all point to variables of the right types, and the zone is one of PostgreSQL's.
        let outcome = unsafe {
            pg_sys::pg_next_dst_boundary(
                ptr::from_ref(&at_s),
                &raw mut offset_s,
                &raw mut was_dst,
                &raw mut boundary_s,
                &raw mut next_offset_s,
                &raw mut is_dst,
                zone,
            )
        };
        if outcome < 0 {
            return false;
        }
        let is_last = outcome == 0 || boundary_s > last_s || boundary_s <= at_s;
        visit(Period {
            start_us: since_2000_us(at_s),
            end_us: since_2000_us(if is_last { last_s } else { boundary_s }),
            offset_us: micros(offset_s),
        });
        if is_last {
            return true;
        }
        at_s = boundary_s;
    }
}

/// Returns the zone of a name, if it can be nothing else than a zone's name. An abbreviation such
/// as CET can have another offset than the zone of that name.
fn named(zone: &str) -> Option<*mut pg_sys::pg_tz> {
    if zone == SESSION {
        // SAFETY: a static of PostgreSQL's, which is set when a session begins.
        return Some(unsafe { pg_sys::session_timezone });
    }
    let name = CString::new(zone).ok()?;
    let is_utc = ["UTC", "GMT"].contains(&zone) && !is_sessions_own(&name);
    if !zone.contains('/') && !is_utc {
        return None;
    }
    // SAFETY: a string that ends with NUL; the result is null or lives as long as the process.
    let zone = unsafe { pg_sys::pg_tzset(name.as_ptr()) };
    (!zone.is_null()).then_some(zone)
}

/// Returns whether PostgreSQL knows a zone by this name, or this abbreviation. For the planner.
pub fn exists(zone: &str) -> bool {
    // PostgreSQL looks for abbreviations in lower case.
    let (Ok(name), Ok(lower)) = (CString::new(zone), CString::new(zone.to_ascii_lowercase())) else { return false };
    // SAFETY: a string that ends with NUL.
    !unsafe { pg_sys::pg_tzset(name.as_ptr()) }.is_null() || is_abbreviation(&lower)
}

#[cfg(not(feature = "pg15"))]
fn is_abbreviation(name: &CStr) -> bool {
    let (mut kind, mut offset_s, mut zone, mut extra) = (0, 0, ptr::null_mut(), pg_sys::DateTimeErrorExtra::default());
    // SAFETY: a string that ends with NUL, and variables of the right types.
    let outcome = unsafe {
        pg_sys::DecodeTimezoneAbbrev(0, name.as_ptr(), &raw mut kind, &raw mut offset_s, &raw mut zone, &raw mut extra)
    };
    outcome == 0 && kind != pg_sys::UNKNOWN_FIELD as c_int
}

#[cfg(feature = "pg15")]
fn is_abbreviation(name: &CStr) -> bool {
    let (mut offset_s, mut zone) = (0, ptr::null_mut());
    // SAFETY: a string that ends with NUL, which is only read, and variables of the right types.
    let kind = unsafe { pg_sys::DecodeTimezoneAbbrev(0, name.as_ptr().cast_mut(), &raw mut offset_s, &raw mut zone) };
    kind != pg_sys::UNKNOWN_FIELD as c_int
}

/// Returns whether `UTC` or `GMT` has an offset of the session's zone. PostgreSQL looks for an
/// abbreviation in that zone first from 18 on, and `SET TimeZone = 'UTC+5'` gives it another one.
#[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
fn is_sessions_own(abbreviation: &CStr) -> bool {
    let (mut is_fixed, mut offset_s, mut is_dst) = (false, 0, 0);
    // SAFETY: a string that ends with NUL, variables of the right types, and a static of
    // PostgreSQL's, which is set when a session begins.
    let is_known = unsafe {
        pg_sys::pg_timezone_abbrev_is_known(
            abbreviation.as_ptr(),
            &raw mut is_fixed,
            &raw mut offset_s,
            &raw mut is_dst,
            pg_sys::session_timezone,
        )
    };
    is_known && !(is_fixed && offset_s == 0)
}

/// The same: the session's zone does not matter before PostgreSQL 18.
#[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
fn is_sessions_own(_: &CStr) -> bool {
    false
}
