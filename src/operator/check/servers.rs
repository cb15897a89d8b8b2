//! What `check` finds of the servers: their leases, clocks and versions.

use std::collections::BTreeSet;

use super::{CLOCKS_APART_MS, Finding, Grade, named, off};
use crate::instant::Shown;
use crate::span::Span;
use crate::table::printable;
use crate::view::{NumberView, View};
use crate::words;

/// For how long a server that has no number is likely to be missed, in milliseconds: an hour.
const MISSED_MS: i64 = 3_600_000;

/// Says which servers do not renew.
pub(super) fn leases(view: &View, numbers: &[NumberView]) -> Finding {
    let now_ms = view.reading.now_ms;
    let leased = numbers.iter().filter(|number| number.state.is_leased()).count();
    let left = numbers.iter().filter(|number| number.is_left_behind).count();
    let late: Vec<_> = numbers.iter().filter(|number| number.is_late && !number.is_left_behind).collect();
    if late.is_empty() {
        let left = match left {
            0 => String::new(),
            left => format!(", and {left} left by servers that have started again with another number"),
        };
        return Finding::ok("leases", format!("{} renewed{left}", leased - left_count(numbers)));
    }
    let names = named(late.iter().map(|number| {
        let ends = Span(number.record.until_ms.saturating_sub(now_ms)).short();
        let renewed = Span(now_ms.saturating_sub(number.record.renewed_ms)).short();
        format!("{} ({}) since {renewed}, ends in {ends}", words::number(number.key), printable(&number.server()))
    }));
    let message = format!("{} of {leased} not renewed: {names}", late.len());
    let hint = "If the server was killed, no action is needed: the number is free when the lease ends. If it runs, \
                look at last_error in its snowflake_lease, and do not restart it.";
    // As the alert has it: less than half of the lease is left.
    let half_ms = view.reading.fleet.used_lease_ms() / 2;
    let ends_soon = late.iter().any(|number| number.record.until_ms.saturating_sub(now_ms) < half_ms);
    if ends_soon { Finding::bad("leases", message, hint) } else { Finding::warn("leases", message, hint) }
}

/// Says which servers may run without a number: their last lease has ended, and they have not given
/// it back, as a server does that stops.
pub(super) fn dropped(view: &View, numbers: &[NumberView]) -> Vec<Finding> {
    let missed_ms = view.reading.now_ms.saturating_sub(MISSED_MS);
    let (late, old): (Vec<_>, Vec<_>) =
        numbers.iter().filter(|number| number.is_dropped).partition(|number| number.record.until_ms >= missed_ms);
    let of = |dropped: Vec<&NumberView>, grade| {
        let count = dropped.len();
        let names = named(dropped.into_iter().map(|number| {
            let (server, ended) = (printable(&number.server()), Shown(number.record.until_ms));
            format!("{server} ({}, until {ended})", words::number(number.key))
        }));
        let message = match count {
            1 => format!("1 server has let its lease end, and has no other number: {names}"),
            _ => format!("{count} servers have let their leases end, and have no other number: {names}"),
        };
        let hint = "If the server runs, it generates no ids: see \"No worker number\" in docs/runbook.md. If it is gone \
                    for good, run \"snowflake-registry reserve NUMBER now\".";
        (count > 0).then(|| Finding { grade, ..Finding::warn("leases", message, hint) })
    };
    [of(late, Grade::Bad), of(old, Grade::Warn)].into_iter().flatten().collect()
}

fn left_count(numbers: &[NumberView]) -> usize {
    numbers.iter().filter(|number| number.is_left_behind).count()
}

pub(super) fn outside(numbers: &[NumberView]) -> Option<Finding> {
    let outside: Vec<_> = numbers.iter().filter(|number| number.is_outside).collect();
    let names =
        named(outside.iter().map(|number| format!("{} ({})", words::number(number.key), printable(&number.server()))));
    (!outside.is_empty()).then(|| {
        Finding::warn(
            "range",
            format!("servers hold numbers outside of it: {names}"),
            "Restart these servers, so that they lease other numbers. Configure such a number nowhere before its lease \
             has ended.",
        )
    })
}

/// Says how far servers' clocks are off.
pub(super) fn clocks(view: &View, numbers: &[NumberView]) -> Finding {
    let living: Vec<_> = numbers.iter().filter(|number| number.state.is_leased() && number.is_living).collect();
    let Some(worst) = living.iter().max_by_key(|number| number.record.offset_ms.unsigned_abs()) else {
        return Finding::ok("clocks", "no server has a lease that it renews");
    };
    let offset_ms = worst.record.offset_ms;
    let server = match worst.server() {
        server if server.is_empty() => words::number(worst.key),
        server => printable(&server),
    };
    let (skew_ms, off_ms) = (view.reading.fleet.used_skew_ms(), offset_ms.unsigned_abs());
    let message = format!("clock of {server} is {}, the most of all; {} is allowed", off(offset_ms), Span(skew_ms));
    let hint = "Look at the time synchronization of both. If several servers are off, the registry's clock is wrong.";
    if off_ms > skew_ms.unsigned_abs() {
        Finding::bad("clocks", message, hint)
    } else if off_ms > CLOCKS_APART_MS.unsigned_abs() {
        Finding::warn("clocks", message, hint)
    } else {
        Finding::ok("clocks", message)
    }
}

pub(super) fn versions(numbers: &[NumberView]) -> Option<Finding> {
    let servers = numbers.iter().filter(|number| number.state.is_leased());
    let versions: BTreeSet<_> =
        servers.map(|number| printable(&number.name.version)).filter(|version| !version.is_empty()).collect();
    let list: Vec<_> = versions.iter().cloned().collect();
    match list.as_slice() {
        [] => None,
        [version] => Some(Finding::ok("versions", format!("all servers have snowflake_id {version}"))),
        _ => Some(Finding::warn(
            "versions",
            format!("servers have different versions of snowflake_id: {}", named(list.into_iter())),
            "Use the same version on all servers, and run \"snowflake-registry create\" with each new one first.",
        )),
    }
}
