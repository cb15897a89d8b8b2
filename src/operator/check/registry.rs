//! What `check` finds of the registry itself: what it is in, its hosts, clock, roles and standbys.

use std::cmp::max;
use std::collections::BTreeMap;

use snowflake_registry::{FREE_SPACE, HostSeen, Kind, Standbys};

use super::{CLOCKS_APART_MS, ClockHere, Finding, Seen, named, off};
use crate::table::printable;
use crate::view::View;
use crate::words::command;

/// Says whether the connection string leads to one registry. An old primary that comes back after a
/// failover may be the first host that takes writes.
pub(super) fn hosts(hosts: &[HostSeen]) -> Option<Finding> {
    let count = hosts.len();
    let mut primaries = BTreeMap::new();
    for HostSeen { host, writable } in hosts {
        if let Ok(Some(server)) = writable {
            primaries.entry(server).or_insert(host);
        }
    }
    let names = primaries.values().map(|host| printable(host)).collect::<Vec<_>>().join(" and ");
    let silent = hosts.iter().filter(|seen| seen.writable.is_err()).map(|seen| printable(&seen.host));
    let silent = match named(silent) {
        silent if silent.is_empty() => silent,
        silent => format!(", no answer from {silent}"),
    };
    match primaries.len() {
        _ if count == 0 => None,
        0 | 1 => Some(Finding::ok("hosts", format!("1 of {count} takes writes ({names}){silent}"))),
        _ => Some(Finding::bad(
            "hosts",
            format!("{names} take writes, so two registries lease the same numbers{silent}"),
            "Ids can repeat. Stop the one that is not the registry any more, and keep it from starting. See \"The \
             registry fails over\" in docs/runbook.md.",
        )),
    }
}

/// Says which settings a role of servers has that "Set up" does not set. A thief of its password
/// could have set them, so that no server renews its lease.
pub(super) fn role_settings(settings: &[String]) -> Option<Finding> {
    // "Set up" sets a timeout, which may be another one.
    let settings: Vec<_> = settings.iter().filter(|setting| !is_patient(setting)).collect();
    let shown = named(settings.iter().map(|setting| printable(setting)));
    (!settings.is_empty()).then(|| {
        Finding::warn(
            "role",
            format!("the servers' role has settings of its own: {shown}"),
            "If you have not set them, see \"A password is stolen\" in docs/runbook.md. ALTER ROLE ... RESET ALL removes \
             those for all databases, and ALTER ROLE ... IN DATABASE ... RESET ALL those for one.",
        )
    })
}

/// Whether a setting of a role is a `statement_timeout` of five seconds or more.
fn is_patient(setting: &str) -> bool {
    let value = setting.split_once(": ").and_then(|(_, line)| line.strip_prefix("statement_timeout="));
    let Some(value) = value.map(str::trim) else { return false };
    let (count, unit) = value.split_at(value.find(|char: char| !char.is_ascii_digit()).unwrap_or(value.len()));
    let unit_ms = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return false,
    };
    count.parse().is_ok_and(|count: i64| count.saturating_mul(unit_ms) >= 5000)
}

/// Says whether etcd takes writes: a member that has reached its quota still answers, and counts as
/// healthy.
pub(super) fn alarms(view: &View, seen: &Seen) -> Option<Finding> {
    let alarms = seen.alarms.as_ref().filter(|_| view.kind == Kind::Etcd)?;
    let names = printable(&alarms.join(", "));
    Some(match alarms.as_slice() {
        [] => Finding::ok("alarms", "etcd has none"),
        [alarm] if alarm == "NOSPACE" => {
            Finding::bad("alarms", "NOSPACE: etcd has no space left, and refuses every write", FREE_SPACE)
        }
        _ => Finding::bad("alarms", format!("etcd has raised {names}"), "Run \"etcdctl alarm list\"."),
    })
}

/// What is read only if it is so.
pub(super) fn registry(view: &View) -> Finding {
    let what = match view.kind {
        Kind::Postgres => "PostgreSQL, a primary, \"fsync\" on",
        Kind::Etcd => "etcd, with a majority of its members",
    };
    let version = snowflake_registry::FORMAT;
    Finding::ok("registry", format!("answers: {what}, version {version}, {}", printable(&view.address)))
}

pub(super) fn clocks_here(view: &View, here: ClockHere) -> Finding {
    const HINT: &str = "Compare both with a right clock (\"chronyc tracking\"). If servers' clocks are off as well, \
                        the registry's is wrong.";
    let ClockHere { offset_ms, error_ms } = here;
    // etcd's clock is known to half a second.
    let error_ms = error_ms.saturating_add(if view.kind == Kind::Etcd { 500 } else { 0 });
    let surely_ms = i64::try_from(offset_ms.unsigned_abs()).unwrap_or(i64::MAX).saturating_sub(error_ms);
    let message = format!("this machine's clock is {}", off(offset_ms));
    match surely_ms {
        ms if ms > max(view.reading.fleet.used_skew_ms(), CLOCKS_APART_MS) => Finding::bad("this clock", message, HINT),
        ms if ms > CLOCKS_APART_MS => Finding::warn("this clock", message, HINT),
        _ => Finding::ok("this clock", message),
    }
}

/// Says which transaction keeps servers from leasing numbers that have no record yet.
pub(super) fn held_up(seen: &Seen) -> Option<Finding> {
    let (parts, makers) = seen.held_up.as_ref()?;
    let ends = match makers.len() {
        1 => "a transaction does not end",
        _ => "a transaction does not end, which is one of these",
    };
    let makers = named(makers.iter().map(|maker| printable(maker)));
    Some(Finding::bad(
        "numbers",
        format!("new numbers of {parts} of 64 parts cannot be leased, because {ends}: {makers}"),
        "End it in the registry, with pg_terminate_backend() or ROLLBACK PREPARED. If it is not a server's of the fleet, \
         see \"A password is stolen\" in docs/runbook.md.",
    ))
}

/// Says whether the registry has the standbys that it waits for, and whether what was declared of
/// failovers can be true.
pub(super) fn replication(view: &View, standbys: &Standbys) -> Finding {
    let Standbys { names, connected } = standbys;
    let shown = printable(names);
    let loses_nothing = view.reading.fleet.loses_nothing;
    if names.is_empty() && loses_nothing {
        return Finding::bad(
            "replication",
            "is not synchronous, although it was declared that a failover loses nothing",
            format!(
                "A failover can let ids repeat. Set \"synchronous_standby_names\" in the registry, or run {}.",
                command("set-loses-nothing false")
            ),
        );
    }
    let needed = standbys.needed();
    match *connected {
        Some((0, _)) if names.is_empty() => Finding::warn(
            "replication",
            "no standby is connected, so the registry is lost with its server",
            "Make a standby of the registry, or bring it back.",
        ),
        _ if names.is_empty() => {
            Finding::ok("replication", "is not synchronous, and a failover freezes what may be lost")
        }
        Some((_, synchronous)) if synchronous < needed => Finding::bad(
            "replication",
            format!("{synchronous} of {needed} synchronous standbys connected ({shown}): no change is confirmed"),
            "Servers renew nothing. Look at pg_stat_replication in the registry, and bring a standby back.",
        ),
        _ if !loses_nothing => Finding::ok(
            "replication",
            format!(
                "is synchronous ({shown}), and a failover freezes nevertheless, because {} was not run",
                command("set-loses-nothing true")
            ),
        ),
        Some((all, synchronous)) => {
            Finding::ok("replication", format!("{synchronous} of {all} standbys are synchronous ({shown})"))
        }
        None => Finding::ok("replication", format!("is synchronous ({shown}); only pg_monitor can see the standbys")),
    }
}
