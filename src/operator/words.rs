//! What a change brings about that its values do not show, and why one is refused, in words.
//!
//! A message follows PostgreSQL's style guide: in lower case, without a period. DETAIL and HINT are
//! sentences.

use snowflake_core::fleet::operate::{JumpedTag, Outcome, RESERVED_AHEAD_MS, Refusal, Restored};
use snowflake_core::fleet::registry::{Fleet, NumberKey, TagRecord};
use snowflake_core::fleet::segment::{END, JUMP};
use snowflake_core::fleet::tag::Tag;

use crate::instant::Shown;
use crate::report::{Report, refused};
use crate::span::Span;

/// Names one of the program's commands, for a hint.
pub fn command(words: &str) -> String {
    format!("\"snowflake-registry {words}\"")
}

/// Names a number.
pub fn number(number: NumberKey) -> String {
    match number.datacenter {
        Some(datacenter) => format!("number {} of datacenter {datacenter}", number.worker),
        None => format!("number {}", number.worker),
    }
}

/// Writes a uuid as PostgreSQL does.
pub fn uuid(uuid: u128) -> String {
    uuid::Uuid::from_u128(uuid).to_string()
}

/// Says what a change brings about that its values do not show: a sentence or more in each line.
/// `before` is the fleet's record before the change, if that is written.
pub fn consequence(outcome: &Outcome, before: Option<&Fleet>) -> Vec<String> {
    const STILL_CLOSED: &str = "The fleet is still closed.";
    let mut said = Vec::new();
    match outcome {
        Outcome::RangeSet { first, last, numbers } => {
            let Some(gained) = before.and_then(|before| gained(before, (*first, *last))) else { return said };
            said.push(gained);
            if numbers.is_none() {
                said.push(
                    "Servers refuse a range with numbers beyond their layout's: they renew nothing, and stop drawing \
                     when their leases end."
                        .to_owned(),
                );
            }
        }
        Outcome::LimitsSet { longest_ms, skew_ms, used_lease_ms, used_skew_ms } => {
            if before.is_none_or(|before| (before.longest_ms, before.skew_ms) == (*longest_ms, *skew_ms)) {
                return said;
            }
            if *longest_ms > 0 && *skew_ms > 0 {
                said.push(format!(
                    "Each freeze lasts {} from now on: for so long a server that is restarted generates no ids.",
                    Span(longest_ms.saturating_add(2 * skew_ms))
                ));
            }
            said.push("Limits cannot be lowered once a server has used the fleet.".to_owned());
            if used_lease_ms < longest_ms || used_skew_ms < skew_ms {
                said.push(format!(
                    "To use more than before, run {}, when no failover can lose this change any more.",
                    command("set-lease")
                ));
            }
        }
        Outcome::LosesNothingSet { loses_nothing: true } if before.is_some_and(|before| !before.loses_nothing) => said
            .push(
                "If a failover promotes a standby that lacks the last changes, two servers lease one number, and ids \
                 repeat."
                    .to_owned(),
            ),
        Outcome::Closed { was_closed: false } => said.push(
            "Nothing is leased or renewed while the fleet is closed. Servers draw ids until their leases end."
                .to_owned(),
        ),
        Outcome::Opened { was_closed: true, moved: true } => said.push(
            "If this is not the closed registry, moved whole, or if the old one is opened, both lease the same \
             numbers, and ids repeat."
                .to_owned(),
        ),
        Outcome::Opened { was_closed: true, moved: false } => said.push(
            "If any server has reached a moved copy of this registry that was opened, both lease the same numbers, and \
             ids repeat."
                .to_owned(),
        ),
        Outcome::SettingsReset { is_closed } => {
            said.push(
                "The next server that starts decides the layout of the fleet's ids. A database in which a wrong server \
                 has drawn ids refuses another layout."
                    .to_owned(),
            );
            said.extend(is_closed.then(|| STILL_CLOSED.to_owned()));
        }
        Outcome::Restored(restored) => said = restored_said(restored),
        Outcome::Lost { freeze_ms, is_closed, .. } => {
            said.push(format!(
                "No number is leased for ids before {}. If the lost registry permitted longer leases, or clocks \
                 further apart, than you say, ids repeat.",
                Shown(*freeze_ms)
            ));
            said.push(
                "If servers show another uuid than the fleet's, in the column \"fleet\" of snowflake_lease, they refuse \
                 to draw: run this again with that --uuid."
                    .to_owned(),
            );
            said.extend(is_closed.then(|| STILL_CLOSED.to_owned()));
        }
        Outcome::Reserved { number: reserved, until_ms } => said.push(format!(
            "{} is not leased for ids before {}. This cannot be undone.",
            capitalized(&number(*reserved)),
            Shown(*until_ms)
        )),
        Outcome::TagCreated { record, .. } => said.push(on_loss(record)),
        Outcome::TagSet { tag, was, record } => {
            if (record.next, record.generation) != (was.next, was.generation) {
                said.push(goes_on(*tag, was, record));
            }
            if record.jumps != was.jumps {
                said.push(on_loss(record));
            }
        }
        Outcome::NumbersDropped { before_ms, count: count @ 1.. } => {
            let numbers = if *count == 1 { "1 number".to_owned() } else { format!("{count} numbers") };
            said.push(format!(
                "The records of {numbers} are deleted, whose leases ended by {}. This cannot be undone.",
                Shown(*before_ms)
            ));
        }
        Outcome::TagDropped { tag, was } => said.push(format!(
            "Draws of tag \"{tag}\" fail within 20 seconds. If it is made again with a next value below {}, values \
             come twice.",
            was.next
        )),
        Outcome::LeaseSet { .. }
        | Outcome::LosesNothingSet { .. }
        | Outcome::Closed { was_closed: true }
        | Outcome::Opened { was_closed: false, .. }
        | Outcome::NumbersDropped { count: 0, .. } => {}
    }
    said
}

/// Says where a tag goes on whose next value was set.
fn goes_on(tag: Tag, was: &TagRecord, record: &TagRecord) -> String {
    if record.next == END {
        return format!("Tag \"{tag}\" ends, and never gives a value again. This cannot be undone.");
    }
    let mut said = match record.next > was.next {
        true => format!(
            "Tag \"{tag}\" never gives the values from {} to {}. This cannot be undone.",
            was.next,
            record.next - 1
        ),
        false => format!("Tag \"{tag}\" goes on at {}.", record.next),
    };
    if was.generation < record.generation {
        said += &format!(" If servers have had values from {} on, these come twice.", record.next);
    }
    said
}

/// Says what a tag does when the registry may have lost blocks.
fn on_loss(record: &TagRecord) -> String {
    match record.jumps {
        true => format!("When the registry may have lost blocks, the tag jumps ahead by {JUMP} values."),
        false => {
            "When the registry may have lost blocks, the tag gives no values until you set its next value.".to_owned()
        }
    }
}

fn restored_said(restored: &Restored) -> Vec<String> {
    let Restored { freeze_ms, jumped, stopped, .. } = restored;
    let mut said = vec![format!(
        "A freeze begins: until {}, a server that is restarted or added generates no ids. This cannot be undone.",
        Shown(*freeze_ms)
    )];
    let list = |list: Vec<String>| list.join(", ");
    if !jumped.is_empty() {
        let of = |jumped: &JumpedTag| format!("\"{}\" from {} to {}", jumped.tag, jumped.from, jumped.to);
        said.push(format!("These tags jump ahead: {}.", list(jumped.iter().map(of).collect())));
    }
    if !stopped.is_empty() {
        let of = |(tag, next): &(Tag, i64)| format!("\"{tag}\" at {next}");
        said.push(format!(
            "These tags give no values until you set their next value ({}): {}.",
            command("set-tag TAG --next-value VALUE"),
            list(stopped.iter().map(of).collect())
        ));
    }
    said
}

/// Says which numbers a range gains, if any.
fn gained(before: &Fleet, (first, last): (i64, i64)) -> Option<String> {
    // A fleet that no server has used yet has all numbers, and those of the range are fewer.
    let (old_first, old_last) = match before.range {
        Some(range) => range,
        None if before.layout.is_none() => return None,
        None => (first, first - 1),
    };
    let gained = [(first, last.min(old_first - 1)), (first.max(old_last.saturating_add(1)), last)];
    let gained: Vec<_> = gained
        .into_iter()
        .filter(|(first, last)| first <= last)
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first} to {last}") })
        .collect();
    (!gained.is_empty()).then(|| {
        format!(
            "The range gains the numbers {}. If a server has one of them in its own configuration, ids repeat.",
            gained.join(" and ")
        )
    })
}

/// Says why an operation is refused.
pub fn refusal(refusal: &Refusal, fleet: &str) -> Report {
    const AS_A_SPAN: &str = "Give it as '10 min', '90s', '1h30m' or '500 ms'.";
    let outside = |what: &str, ms: i64, allowed: &std::ops::RangeInclusive<i64>| {
        refused(format!("{what} cannot be {}", Span(ms)))
            .detail(format!("It must be from {} to {}.", Span(*allowed.start()), Span(*allowed.end())))
            .hint(AS_A_SPAN)
    };
    match refusal {
        Refusal::LeaseOutside { lease_ms, allowed } => outside("lease", *lease_ms, allowed),
        Refusal::SkewOutside { skew_ms, allowed } => outside("skew", *skew_ms, allowed),
        Refusal::NoTimelines => refused("etcd needs no declaration that a failover loses nothing")
            .detail("A change of etcd is kept by a majority of its members, so another leader has all of it.")
            .hint(format!("After a restore of a snapshot, run {}.", command("restored"))),
        Refusal::RangeBelowZero { first } => {
            refused(format!("range cannot begin at {first}, because numbers begin at 0"))
                .hint("Give the first and the last number that may be leased, from 0 on.")
        }
        Refusal::EmptyRange { first, last } => refused(format!("range {first} to {last} has no numbers")).hint(
            "Give the first and the last number that may be leased, from 0 on. Numbers that are configured on servers \
             must lie outside.",
        ),
        Refusal::RangeOutsideLayout { first, last, numbers } => {
            refused(format!("range {first} to {last} has numbers that the layout does not have"))
                .detail(format!(
                    "The fleet's layout has the numbers 0 to {}. Servers would renew nothing, and stop drawing when \
                     their leases end.",
                    numbers - 1
                ))
                .hint("Give numbers of the layout.")
        }
        Refusal::LimitsLowered { lease_ms, skew_ms, least_lease_ms, least_skew_ms } => {
            let lease = lease_ms.filter(|lease_ms| lease_ms < least_lease_ms);
            let skew = skew_ms.filter(|skew_ms| skew_ms < least_skew_ms);
            let asked: Vec<_> = [("longest lease", lease, least_lease_ms), ("clock skew", skew, least_skew_ms)]
                .into_iter()
                .filter_map(|(what, asked, least)| Some(format!("{what} from {} to {}", Span(*least), Span(asked?))))
                .collect();
            refused(format!("limits of fleet \"{fleet}\" cannot be lowered: {}", asked.join(", ")))
                .detail("Leases of that length may still run, or be lost at a failover.")
                .hint(format!(
                    "Run {} instead, which servers follow at their next renewal. To lower limits, stop all servers, \
                     and run {}.",
                    command("set-lease"),
                    command("reset-settings")
                ))
        }
        Refusal::BeyondLimits { lease_ms, skew_ms, longest_ms, most_skew_ms } => {
            let lease = lease_ms.filter(|lease_ms| lease_ms > longest_ms);
            let skew = skew_ms.filter(|skew_ms| skew_ms > most_skew_ms);
            let asked: Vec<_> = [("lease", lease), ("skew", skew)]
                .into_iter()
                .filter_map(|(what, asked)| Some(format!("{what} of {}", Span(asked?))))
                .collect();
            refused(format!("{} is beyond the limits of fleet \"{fleet}\"", asked.join(" with ")))
                .detail(format!("Leases may be {} long, and clocks {} apart.", Span(*longest_ms), Span(*most_skew_ms)))
                .hint(format!(
                    "Raise the limits first with {}, and run this again when no failover of the registry can lose \
                     that. A longer lease that is lost together with its limit would be leased again too early.",
                    command("set-limits")
                ))
        }
        Refusal::NotNoted { is_closed } => {
            let report =
                refused(format!("registry may have lost leases of fleet \"{fleet}\", which no server has noted yet"))
                    .detail(
                        "It has failed over, or was restored, since the fleet's record was written. This command would \
                         hide that, or a tag would stop or jump at once.",
                    );
            let restored = command("restored");
            report.hint(match is_closed {
                false => format!(
                    "Let a server of the fleet reach the registry, which takes up to ten seconds. Without one, run \
                     {restored}. Then run this again."
                ),
                true => format!(
                    "The fleet is closed, so that no server can note it. If this is the registry that was moved to, \
                     run {}. If it failed over or was restored, run {restored}. Then run this again.",
                    command("open --moved")
                ),
            })
        }
        Refusal::IsClosed => refused(format!("fleet \"{fleet}\" is closed for a move"))
            .detail(
                "Numbers and tags are not changed meanwhile, because the registry may be copied already. If servers \
                 have reached a moved copy, and this registry is opened, both lease the same numbers, and ids come \
                 twice.",
            )
            .hint(format!(
                "In the registry that was moved to, run {}. To give up the move, and only if no server has reached an \
                 opened copy, run {} in the old one.",
                command("open --moved"),
                command("open --not-moved")
            )),
        Refusal::NotClosed => refused(format!("fleet \"{fleet}\" is not closed"))
            .hint(format!("A registry is moved while it is closed. If it was restored, run {}.", command("restored"))),
        Refusal::MayStillDraw { until_ms } => refused(format!("servers of fleet \"{fleet}\" may still draw ids"))
            .detail(format!("The last lease, and what clocks may be apart, end at {}.", Shown(*until_ms)))
            .hint(
                "Stop all servers of the fleet cleanly, so that they give their numbers back, wait until then, and \
                     run this again.",
            ),
        Refusal::LimitsUnknown => refused("longest lease and skew of the lost leases are not known").hint(format!(
            "Give --lease and --skew, the greatest limits that were set for the fleet with {}. Unless you set any, \
             they were 10 min and 1 min.",
            command("set-limits")
        )),
        Refusal::GenerationBegan { was, generation, freeze_ms } => {
            refused(format!("generation {generation} of fleet \"{fleet}\" has begun meanwhile"))
                .detail(format!(
                    "A server or another operator has begun it, after generation {was}. Numbers are leased again for \
                     ids from {} on. Some tags may have jumped already.",
                    Shown(*freeze_ms)
                ))
                .hint(format!(
                    "For {}, look again at what servers have had of the tag, and run this again. For {} and {}: if \
                     another operator has run it, no action is needed. If not, keep servers away from the registry, \
                     and run this again.",
                    command("set-tag"),
                    command("restored"),
                    command("lost")
                ))
        }
        Refusal::HasLeases => refused(format!("fleet \"{fleet}\" has leases")).hint(format!(
            "This is for a registry that was just made anew. For one that was restored, run {}.",
            command("restored")
        )),
        Refusal::HasTags => refused(format!("fleet \"{fleet}\" has tags"))
            .detail("In a registry that was just made anew, they would jump once for each second since 1970.")
            .hint(format!(
                "Delete them with {}, run this again, and make them with {}. For a registry that was restored, run {}.",
                command("drop-tag"),
                command("create-tag"),
                command("restored")
            )),
        Refusal::NoSuchNumber { number: key } => refused(format!("{} is not one that a server can have", number(*key)))
            .hint("Numbers begin at 0. In a layout without a datacenter field, leave --datacenter out."),
        Refusal::NumberOutsideLayout { number: key, numbers } => {
            refused(format!("layout has no number {}", key.worker))
                .detail(format!("The fleet's layout has the numbers 0 to {}.", numbers - 1))
                .hint(
                    "Give the number that was set on a server. With \"backup_worker\", that is the one below the half \
                     of all.",
                )
        }
        Refusal::DatacenterOutsideLayout { number: key, greatest } => match (key.datacenter, greatest) {
            (_, None) => refused("layout has no datacenter field").hint("Leave --datacenter out."),
            (None, Some(greatest)) => refused("layout has a datacenter field")
                .detail(format!("Its datacenters are 0 to {greatest}."))
                .hint("Give --datacenter as well: each datacenter has numbers of its own."),
            (Some(datacenter), Some(greatest)) => refused(format!("layout has no datacenter {datacenter}"))
                .detail(format!("Its datacenters are 0 to {greatest}."))
                .hint("Give the datacenter that was set on the server."),
        },
        Refusal::ReservedTooLong { number: key, until_ms, most_ms } => refused(format!(
            "{} would be kept until {}, more than {} from now",
            number(*key),
            Shown(*until_ms),
            Span(RESERVED_AHEAD_MS)
        ))
        .detail(format!("This cannot be undone. Without --force, it can be kept until {}.", Shown(*most_ms)))
        .hint(format!(
            "Check the mark that it comes from. If it is right, add --force. To keep a number for good, leave it out \
             of the range with {}.",
            command("set-range")
        )),
        Refusal::NumberLeased { number: key, until_ms, again_ms } => refused(format!("{} is leased", number(*key)))
            .detail(format!(
                "Its lease ends at {}. Clocks may be apart, so it can be reserved from {} on.",
                Shown(*until_ms),
                Shown(*again_ms)
            ))
            .hint("Set a range without it, restart the server that has it, and wait until that lease has ended."),
        Refusal::MayBeLost { number: key, until_ms } => {
            refused(format!("a lost lease of {} may still run", number(*key)))
                .detail(format!("The registry may have lost leases, which end before {}.", Shown(*until_ms)))
                .hint("Run this again then. Until then, the number is not leased to another server.")
        }
        Refusal::EndedLater { number: key, until_ms, ended_ms } => {
            refused(format!("{} has a lease that ended later than {}", number(*key), Shown(*until_ms)))
                .detail(format!("It ended at {}.", Shown(*ended_ms)))
                .hint("No action is needed: the number is leased only for ids after that.")
        }
        Refusal::TagExists { tag } => {
            refused(format!("tag \"{tag}\" exists already")).hint(format!("{} changes it.", command("set-tag")))
        }
        Refusal::NoSuchTag { tag } => refused(format!("tag \"{tag}\" does not exist")).hint(format!(
            "{} makes it, and {} lists those that exist. Names are case-sensitive.",
            command("create-tag"),
            command("show")
        )),
        Refusal::StepsOutside { steps: (least, greatest), allowed } => {
            refused(format!("blocks of a tag cannot have {least} to {greatest} values"))
                .detail(format!("A block has from {} to {} values.", allowed.start(), allowed.end()))
                .hint("Give steps within that range, and a least one that is not above the greatest one.")
        }
        Refusal::NextLowered { tag, next, least } => {
            refused(format!("next value of tag \"{tag}\" cannot be lowered from {least} to {next}"))
                .detail("Servers have had the values before it.")
                .hint(format!(
                    "To begin anew, run {} and {}, when no server uses the tag any more.",
                    command("drop-tag"),
                    command("create-tag")
                ))
        }
        Refusal::NeedsNext { tag, least } => refused(format!("tag \"{tag}\" needs a next value, too"))
            .detail("The registry may have lost values of it, and it did not jump then.")
            .hint(format!("Give --next-value as well, above all values that servers have had, and {least} at least.")),
        Refusal::NothingToSet => {
            refused("nothing to set was given").hint("The command's --help lists what can be set.")
        }
        Refusal::MayStillBeDrawnWith { before_ms, latest_ms } => {
            refused(format!("leases that end before {} cannot be pruned", Shown(*before_ms)))
                .detail(format!(
                    "They may still be drawn with. What has ended before {} can be pruned.",
                    Shown(*latest_ms)
                ))
                .hint("Give an earlier time. Keep leases for as long as you may ask which server drew an id.")
        }
        Refusal::InFreeze { until_ms } => refused("records of numbers cannot be deleted in a freeze")
            .detail(format!("They say where lost leases may have ended. This holds until {}.", Shown(*until_ms)))
            .hint("Wait until then, and run this again."),
        Refusal::Contended => {
            refused("other sessions have changed the registry's records at each try").hint("Run this again.")
        }
    }
}

/// Begins a text with a capital letter.
fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowflake_core::fleet::operate::{LEASES_MS, SKEWS_MS, STEPS};

    use crate::samples::{NOW_MS, TAG, fleet};

    fn tag() -> Tag {
        Tag::new("invoices").unwrap()
    }

    /// Each refusal, with numbers that a person can check.
    fn refusals() -> Vec<Refusal> {
        let (key, far) = (NumberKey::new(None, 5), NumberKey::new(Some(3), 5));
        let later = NOW_MS + 60_000;
        vec![
            Refusal::LeaseOutside { lease_ms: 999, allowed: LEASES_MS },
            Refusal::SkewOutside { skew_ms: 3_600_001, allowed: SKEWS_MS },
            Refusal::NoTimelines,
            Refusal::RangeBelowZero { first: -1 },
            Refusal::EmptyRange { first: 7, last: 6 },
            Refusal::RangeOutsideLayout { first: 0, last: 1024, numbers: 1024 },
            Refusal::LimitsLowered {
                lease_ms: Some(1000),
                skew_ms: None,
                least_lease_ms: 600_000,
                least_skew_ms: 60_000,
            },
            Refusal::BeyondLimits {
                lease_ms: Some(600_001),
                skew_ms: Some(60_001),
                longest_ms: 600_000,
                most_skew_ms: 60_000,
            },
            Refusal::NotNoted { is_closed: false },
            Refusal::NotNoted { is_closed: true },
            Refusal::IsClosed,
            Refusal::NotClosed,
            Refusal::MayStillDraw { until_ms: later },
            Refusal::LimitsUnknown,
            Refusal::GenerationBegan { was: 3, generation: 4, freeze_ms: later },
            Refusal::HasLeases,
            Refusal::HasTags,
            Refusal::NoSuchNumber { number: NumberKey::new(None, -1) },
            Refusal::NumberOutsideLayout { number: NumberKey::new(None, 1024), numbers: 1024 },
            Refusal::DatacenterOutsideLayout { number: far, greatest: None },
            Refusal::DatacenterOutsideLayout { number: key, greatest: Some(31) },
            Refusal::DatacenterOutsideLayout { number: NumberKey::new(Some(32), 5), greatest: Some(31) },
            Refusal::ReservedTooLong { number: key, until_ms: later, most_ms: NOW_MS },
            Refusal::NumberLeased { number: far, until_ms: NOW_MS, again_ms: later },
            Refusal::MayBeLost { number: key, until_ms: later },
            Refusal::EndedLater { number: key, until_ms: NOW_MS, ended_ms: later },
            Refusal::TagExists { tag: tag() },
            Refusal::NoSuchTag { tag: tag() },
            Refusal::StepsOutside { steps: (5, 4), allowed: STEPS },
            Refusal::NextLowered { tag: tag(), next: 1, least: 4001 },
            Refusal::NeedsNext { tag: tag(), least: 4001 },
            Refusal::NothingToSet,
            Refusal::MayStillBeDrawnWith { before_ms: later, latest_ms: NOW_MS },
            Refusal::InFreeze { until_ms: later },
            Refusal::Contended,
        ]
    }

    /// What is said of each outcome, beside its values. Nothing is said where the list is empty.
    fn consequences() -> Vec<(Outcome, &'static [&'static str])> {
        let jumping = TagRecord { jumps: true, next: 5000, steps: (10, 100), ..TAG };
        let limits = |longest_ms, skew_ms| Outcome::LimitsSet {
            longest_ms,
            skew_ms,
            used_lease_ms: 600_000,
            used_skew_ms: 60_000,
        };
        let reset = |is_closed| Outcome::SettingsReset { is_closed };
        let restored = Restored {
            freeze_ms: NOW_MS + 720_000,
            jumped: vec![JumpedTag { tag: tag(), from: 1, to: 2 }],
            stopped: vec![(tag(), 4001)],
            ..Restored::default()
        };
        let set = |was, record| Outcome::TagSet { tag: tag(), was, record };
        vec![
            (Outcome::RangeSet { first: 0, last: 9, numbers: None }, &[]),
            (Outcome::RangeSet { first: 0, last: 2000, numbers: None }, &["gains", "beyond their layout's"]),
            (limits(3_600_000, 60_000), &["Each freeze lasts 1 hr 2 mins from now on", "cannot be lowered"]),
            (limits(3_600_000, 60_000), &["\"snowflake-registry set-lease\", when no failover can lose this change"]),
            (limits(3_600_000, 0), &["Limits cannot be lowered once a server has used the fleet."]),
            (limits(600_000, 60_000), &[]),
            (Outcome::LeaseSet { lease_ms: 120_000, skew_ms: 10_000 }, &[]),
            (Outcome::LosesNothingSet { loses_nothing: true }, &["two servers lease one number, and ids repeat"]),
            (Outcome::LosesNothingSet { loses_nothing: false }, &[]),
            (Outcome::Closed { was_closed: false }, &["Nothing is leased or renewed", "until their leases end"]),
            (Outcome::Closed { was_closed: true }, &[]),
            (Outcome::Opened { was_closed: true, moved: false }, &["moved copy of this registry that was opened"]),
            (Outcome::Opened { was_closed: true, moved: true }, &["moved whole", "ids repeat"]),
            (Outcome::Opened { was_closed: false, moved: false }, &[]),
            (reset(true), &["decides the layout", "The fleet is still closed."]),
            (reset(false), &["refuses another layout"]),
            (
                Outcome::Restored(restored),
                &[
                    "A freeze begins: until 2026-11-24 12:12:00Z, a server that is restarted",
                    "These tags jump ahead: \"invoices\" from 1 to 2.",
                    "\"invoices\" at 4001.",
                ],
            ),
            (
                Outcome::Lost { generation: 1_795_521_600, freeze_ms: NOW_MS, uuid: 1, is_closed: true },
                &["leased for ids before 2026-11-24 12:00:00Z", "with that --uuid", "The fleet is still closed."],
            ),
            (
                Outcome::Reserved { number: NumberKey::new(None, 5), until_ms: NOW_MS },
                &["Number 5 is not leased for ids before 2026-11-24 12:00:00Z. This cannot be undone."],
            ),
            (Outcome::TagCreated { tag: tag(), record: TAG }, &["no values until you set its next value"]),
            (
                set(TAG, jumping),
                &["never gives the values from 4001 to 4999. This cannot", "jumps ahead by 1000000000 values"],
            ),
            (set(TAG, TagRecord { next: END, ..TAG }), &["ends, and never gives a value again"]),
            // It had stopped there.
            (set(TAG, TagRecord { generation: 4, ..TAG }), &["goes on at 4001. If servers have had values from 4001"]),
            (set(TAG, TagRecord { steps: (10, 100), ..TAG }), &[]),
            (
                Outcome::TagDropped { tag: tag(), was: TAG },
                &["Draws of tag \"invoices\" fail within 20 seconds", "below 4001, values come twice"],
            ),
            (Outcome::NumbersDropped { before_ms: NOW_MS, count: 2 }, &["The records of 2 numbers are deleted"]),
            (Outcome::NumbersDropped { before_ms: NOW_MS, count: 0 }, &[]),
        ]
    }

    /// The most words of a sentence.
    const MOST_WORDS: usize = 30;

    fn check_sentences(text: &str) {
        let is_begun = text.starts_with(|c: char| c.is_uppercase() || c == '"') || text.starts_with("etcd");
        assert!(text.ends_with('.') && is_begun, "{text}");
        for sentence in text.split(". ") {
            assert!(sentence.split_whitespace().count() <= MOST_WORDS, "{sentence}");
        }
        assert!(!text.contains("  ") && !text.contains('\n'), "{text}");
    }

    #[test]
    fn refusals_follow_the_style_guide() {
        for of in refusals() {
            let Report { message, detail, hint, .. } = refusal(&of, "default");
            assert!(message.starts_with(|c: char| c.is_lowercase() || c.is_ascii_digit()), "{message}");
            assert!(!message.ends_with('.') && !message.contains(['\n', '{']), "{message}");
            detail.iter().chain(&hint).for_each(|text| check_sentences(text));
            assert!(hint.is_some(), "what to do: {message}");
        }
    }

    #[test]
    fn a_refusal_names_the_value_and_what_is_allowed() {
        let said: Vec<_> = refusals().iter().map(|of| refusal(of, "shop").to_string()).collect();
        for (at, texts) in [
            (0, ["lease cannot be 999 msecs", "from 1 sec to 30 days"]),
            (1, ["skew cannot be 1 hr 1 msec", "from 10 msecs to 1 hr"]),
            (3, ["range cannot begin at -1", "from 0 on"]),
            (5, ["range 0 to 1024", "the numbers 0 to 1023"]),
            (6, ["longest lease from 10 mins to 1 sec", "\"snowflake-registry set-lease\""]),
            (
                7,
                [
                    "lease of 10 mins 1 msec with skew of 1 min 1 msec is beyond",
                    "Leases may be 10 mins long, and clocks 1 min apart",
                ],
            ),
            (12, ["servers of fleet \"shop\" may still draw ids", "end at 2026-11-24 12:01:00Z"]),
            (20, ["layout has a datacenter field", "0 to 31"]),
            (23, ["number 5 of datacenter 3 is leased", "from 2026-11-24 12:01:00Z on"]),
            (28, ["5 to 4 values", "from 1 to 10000000"]),
            (29, ["cannot be lowered from 4001 to 1", "\"snowflake-registry drop-tag\""]),
        ] {
            for text in texts {
                assert!(said[at].contains(text), "{}", said[at]);
            }
        }
    }

    #[test]
    fn what_the_values_do_not_show_is_said() {
        for (of, texts) in consequences() {
            let said = consequence(&of, Some(&fleet()));
            said.iter().for_each(|line| check_sentences(line));
            assert_eq!(said.is_empty(), texts.is_empty(), "{of:?}: {said:?}");
            for text in texts {
                assert!(said.join(" ").contains(text), "{text}: {said:?}");
            }
        }
        // It was declared before.
        let declared = Fleet { loses_nothing: true, ..fleet() };
        assert_eq!(consequence(&Outcome::LosesNothingSet { loses_nothing: true }, Some(&declared)).len(), 0);
    }

    #[test]
    fn a_range_that_gains_numbers_says_which() {
        let said = |range: Option<(i64, i64)>, (first, last), numbers| {
            let fleet = Fleet { range, ..fleet() };
            consequence(&Outcome::RangeSet { first, last, numbers }, Some(&fleet)).join(" ")
        };
        let both = said(Some((100, 200)), (0, 201), Some(1024));
        assert!(both.starts_with("The range gains the numbers 0 to 99 and 201. "), "{both}");
        assert_eq!(said(Some((100, 200)), (100, 200), Some(1024)), "");
    }

    #[test]
    fn a_uuid_is_written_as_postgresql_writes_it() {
        assert_eq!(uuid(0x1b4e_28ba_2fa1_41d2_883f_0016_d3cc_a427), "1b4e28ba-2fa1-41d2-883f-0016d3cca427");
    }
}
