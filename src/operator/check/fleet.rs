//! What `check` finds of the fleet's record and its tags: what keeps servers from leasing, limits,
//! and what is left.

use snowflake_core::fleet::registry::Reading;
use snowflake_registry::Kind;

use super::{Finding, named};
use crate::instant::Shown;
use crate::span::Span;
use crate::view::{TagState, View};
use crate::words::command;

/// How many clock skews a lease should last: else it is not renewed after a failover.
const SKEWS_PER_LEASE: i64 = 4;

/// Returns what keeps servers from leasing, if anything.
pub(super) fn state(view: &View) -> Vec<Finding> {
    let Reading { fleet, incarnation, .. } = &view.reading;
    let mut found = Vec::new();
    if fleet.closed {
        found.push(Finding::bad(
            "fleet",
            "is closed: nothing is leased or renewed, and servers stop when their leases end",
            format!(
                "Finish the move, and run {} in the registry that was moved to. To give it up, run {}, and only if no \
                 server has reached an opened copy.",
                command("open --moved"),
                command("open --not-moved")
            ),
        ));
    }
    if view.is_unnoted() {
        found.push(Finding::warn(
            "history",
            format!(
                "the registry has failed over or was restored since generation {}, and no server has noted it",
                fleet.generation
            ),
            format!(
                "After a failover, a server notes it within ten seconds. After a restore, run {} before a server \
                 reaches the registry.",
                command("restored")
            ),
        ));
    } else {
        let of = match view.kind {
            Kind::Postgres => format!("timeline {}", incarnation.timeline),
            Kind::Etcd => format!("cluster {:x}", incarnation.store),
        };
        found.push(Finding::ok("history", format!("generation {}, {of}, noted", fleet.generation)));
    }
    if let Some(left_ms) = view.frozen_ms() {
        found.push(Finding::warn(
            "freeze",
            format!(
                "no number of an older generation is leased for {} more, until {}",
                Span(left_ms).short(),
                Shown(fleet.freeze_ms)
            ),
            "Restart no server before then: it would generate no ids. Afterwards no action is needed.",
        ));
    }
    found
}

pub(super) fn limits(view: &View) -> Finding {
    let fleet = &view.reading.fleet;
    if fleet.longest_ms <= 0 || fleet.skew_ms <= 0 {
        return Finding::ok("limits", "the first server sets the defaults");
    }
    let (lease_ms, skew_ms) = (fleet.used_lease_ms(), fleet.used_skew_ms());
    let freeze = Span(fleet.longest_ms.saturating_add(2 * fleet.skew_ms));
    let message = format!(
        "leases {} of {}, clock skew {} of {}; a freeze lasts {freeze}",
        Span(lease_ms),
        Span(fleet.longest_ms),
        Span(skew_ms),
        Span(fleet.skew_ms)
    );
    // A failover that loses nothing freezes nothing.
    if lease_ms >= skew_ms.saturating_mul(SKEWS_PER_LEASE) || fleet.loses_nothing {
        return Finding::ok("limits", message);
    }
    Finding::warn(
        "limits",
        format!("{message}; leases are not several times as long as two clock skews"),
        format!("They are not renewed after a failover that may lose leases. Run {}.", command("set-lease")),
    )
}

/// Says how many numbers are left, in each datacenter.
pub(super) fn range(view: &View) -> Vec<Finding> {
    let (Some((first, last)), Some(numbers)) = (view.reading.fleet.range, view.in_range()) else {
        return vec![Finding::ok("numbers", "the first server brings layout and range")];
    };
    let mut found = Vec::new();
    if let Some(layout_numbers) = view.layout_numbers().filter(|layout_numbers| last >= *layout_numbers) {
        found.push(Finding::bad(
            "range",
            format!(
                "{first} to {last} has numbers that the layout does not have, which has 0 to {}",
                layout_numbers - 1
            ),
            format!("Servers renew nothing. Run {}.", command("set-range")),
        ));
    }
    let mut taken = view.taken();
    if !view.has_datacenters() {
        taken.entry(None).or_insert(0);
    }
    for (datacenter, taken) in taken {
        let place = datacenter.map(|datacenter| format!(" in datacenter {datacenter}")).unwrap_or_default();
        let message = format!("{} of {numbers} can be leased ({first} to {last}){place}", numbers - taken);
        let hint = || {
            format!(
                "Stop servers that are not needed cleanly, standbys first, or widen the range with {}, without numbers \
                 that are configured.",
                command("set-range")
            )
        };
        found.push(if taken >= numbers {
            Finding::bad("numbers", message, hint())
        } else if taken.saturating_mul(10) > numbers.saturating_mul(9) {
            Finding::warn("numbers", message, hint())
        } else {
            Finding::ok("numbers", message)
        });
    }
    found
}

pub(super) fn tags(view: &View) -> Vec<Finding> {
    let tags = &view.reading.tags;
    let of = |state: TagState| -> Vec<String> {
        let of = tags.iter().filter(|(_, record)| view.tag_state(record) == state);
        of.map(|(tag, record)| format!("\"{tag}\" at {}", record.next)).collect()
    };
    let mut found = Vec::new();
    let stopped = of(TagState::Stopped);
    if !stopped.is_empty() {
        found.push(Finding::bad(
            "tags",
            format!("{} of {} stopped: {}", stopped.len(), tags.len(), named(stopped.into_iter())),
            format!(
                "The registry may have lost blocks, so they give no values. Run {}, with a value above all that \
                 servers have had.",
                command("set-tag TAG --next-value VALUE")
            ),
        ));
    }
    let ended = of(TagState::Ended);
    if !ended.is_empty() {
        found.push(Finding::bad(
            "tags",
            format!("{} of {} ended, without values left: {}", ended.len(), tags.len(), named(ended.into_iter())),
            format!("Make another tag with {}, and let columns draw from it.", command("create-tag")),
        ));
    }
    if found.is_empty() && !tags.is_empty() {
        found.push(Finding::ok("tags", format!("{} open", tags.len())));
    }
    found
}
