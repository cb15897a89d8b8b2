//! Local times: between which instants a zone's clocks can show one.
//!
//! Local time is not monotone, because clocks are set back: a day can begin twice. So a condition
//! on a local time bounds the instants from outside. Their ends come from PostgreSQL's own table of
//! transitions. Nothing here raises an error: a zone that is not known has any offset.

use std::ffi::{CString, c_int};
use std::ptr;

use pgrx::pg_sys;
use snowflake_core::bounds::Instant;

use crate::instant::{POSTGRES_EPOCH_MS, instant_of_us};

/// What stands for the session's zone in place of a name.
const SESSION: &str = "TimeZone";

/// More than the greatest offset that the name of a zone can spell out, 167:59:59
/// (timezone/localtime.c).
const MOST_S: i64 = 168 * 3600;

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
pub fn earliest(local_us: i128, zone: &str) -> Instant {
    let mut earliest_us = None;
    let is_known = for_each_period(local_us, zone, |Period { start_us, end_us, offset_us }| {
        let at_us = start_us.max(local_us - offset_us);
        if at_us < end_us {
            earliest_us.get_or_insert(at_us);
        }
    });
    let us = earliest_us.filter(|_| is_known);
    instant_of_us(us.unwrap_or(local_us - micros(MOST_S)))
}

/// Returns the first instant from which on the zone's clocks never show less than `local_us`.
pub fn latest(local_us: i128, zone: &str) -> Instant {
    let mut latest_us = None;
    let is_known = for_each_period(local_us, zone, |Period { start_us, end_us, offset_us }| {
        let at_us = end_us.min(local_us - offset_us);
        if at_us > start_us {
            latest_us = Some(at_us);
        }
    });
    let us = latest_us.filter(|_| is_known);
    instant_of_us(us.unwrap_or(local_us + micros(MOST_S)))
}

fn micros(seconds: i64) -> i128 {
    i128::from(seconds) * 1_000_000
}

/// Calls `visit` for the periods of a zone in which its clocks can show a local time, in order.
/// Before them they show less, and after them more. Returns `false` if the zone is not known.
fn for_each_period(local_us: i128, zone: &str, mut visit: impl FnMut(Period)) -> bool {
    let Some(zone) = named(zone).filter(|_| local_us.abs() < FAR_US) else { return false };
    let epoch_s = POSTGRES_EPOCH_MS / 1000;
    let since_2000_us = |unix_s: i64| micros(unix_s - epoch_s);
    let local_s = local_us.div_euclid(1_000_000) as i64 + epoch_s;
    let (mut at_s, last_s) = (local_s - MOST_S, local_s + 1 + MOST_S);
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
    if !zone.contains('/') && !["UTC", "GMT"].contains(&zone) {
        return None;
    }
    let name = CString::new(zone).ok()?;
    // SAFETY: a string that ends with NUL; the result is null or lives as long as the process.
    let zone = unsafe { pg_sys::pg_tzset(name.as_ptr()) };
    (!zone.is_null()).then_some(zone)
}
