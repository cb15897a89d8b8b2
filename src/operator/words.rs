//! What an operation has done, what it would do, and why it is refused, in words.
//!
//! A message follows PostgreSQL's style guide: in lower case, without a period. DETAIL and HINT are
//! sentences.

use snowflake_core::operate::{
    CutLease, JumpedTag, KEPT_AHEAD_MS, Operation, Outcome, Refusal, Restored as RestoredOutcome,
};
use snowflake_core::registry::{DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, Fleet, NumberKey, TagRecord};
use snowflake_core::segment::END;
use snowflake_core::tag::Tag;

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

/// Writes a tag's jump.
pub fn jump(jump: Option<u32>) -> String {
    jump.map_or_else(|| "none".to_owned(), |jump| jump.to_string())
}

/// Says what an operation has done to a fleet, or would do: a sentence or more in each line.
pub fn outcome(outcome: &Outcome, fleet: &str, is_dry: bool) -> Vec<String> {
    match outcome {
        Outcome::RangeSet { first, last, numbers } => {
            let mut said = vec![format!("Numbers {first} to {last} may be leased.")];
            if numbers.is_none() {
                said.push(
                    "Servers refuse a range with numbers beyond their layout's: they renew nothing, and stop drawing \
                     when their leases end."
                        .to_owned(),
                );
            }
            said
        }
        Outcome::LimitsSet { longest_ms, skew_ms, used_lease_ms, used_skew_ms } => {
            let mut said = vec![match (longest_ms, skew_ms) {
                (0, _) | (_, 0) => "The limit is set, and the first server brings the other one. It cannot be lowered \
                                    afterwards. Each freeze lasts as long as the longest lease and two clock skews."
                    .to_owned(),
                (longest_ms, skew_ms) => format!(
                    "Leases may be {} long, and clocks {} apart. This cannot be lowered once a server has used the \
                     fleet. Each freeze lasts {} from now on.",
                    Span(*longest_ms),
                    Span(*skew_ms),
                    Span(longest_ms.saturating_add(2 * skew_ms))
                ),
            }];
            if used_lease_ms < longest_ms || used_skew_ms < skew_ms {
                said.push(format!(
                    "Leases are still {} long, and clocks are taken to be {} apart. Run {} to use more, when no \
                     failover can lose this change any more.",
                    Span(*used_lease_ms),
                    Span(*used_skew_ms),
                    command("set-lease")
                ));
            }
            said
        }
        Outcome::LeaseSet { lease_ms, skew_ms } => vec![format!(
            "Leases are {} long, and clocks may be {} apart, from each server's next renewal on.",
            Span(*lease_ms),
            Span(*skew_ms)
        )],
        Outcome::LosesNothingSet { loses_nothing: true } => vec![format!(
            "A failover of the registry freezes nothing from now on. Replication must be synchronous. Run {} before a \
             restore.",
            command("set-loses-nothing false")
        )],
        Outcome::LosesNothingSet { loses_nothing: false } => {
            vec!["A failover of the registry freezes what may be lost.".to_owned()]
        }
        Outcome::GraceSet { grace_ms: 0 } => {
            vec!["Numbers are acquired right after a start of the registry.".to_owned()]
        }
        Outcome::GraceSet { grace_ms } => vec![format!(
            "For {} after a start of the registry, servers renew, and none acquires a number.",
            Span(*grace_ms)
        )],
        Outcome::Closed { was_closed } => {
            let already = if *was_closed { " It was closed already." } else { "" };
            vec![format!(
                "Fleet \"{fleet}\" is closed: nothing is leased or renewed. Servers draw ids until their leases \
                 end.{already}"
            )]
        }
        Outcome::Opened { was_closed, moved } => {
            let mut said = vec![match was_closed {
                true => format!("Fleet \"{fleet}\" is open."),
                false => format!("Fleet \"{fleet}\" is open, as it was before."),
            }];
            if *was_closed && !moved {
                said.push(
                    "This is right only if no server has reached a moved copy of this registry that was opened. If one \
                     has, close this one again, and use that copy."
                        .to_owned(),
                );
            }
            said
        }
        Outcome::SettingsReset { range, lease_ms, skew_ms, is_closed } => {
            let range = match range {
                Some((first, last)) => format!("The range stays {first} to {last}."),
                None => "It brings the range, too.".to_owned(),
            };
            let mut said = vec![format!(
                "The next server brings layout and backup_worker to fleet \"{fleet}\". {range} Limits are as for a new \
                 fleet."
            )];
            if lease_ms.is_some() || skew_ms.is_some() {
                said.push(format!(
                    "Leases stay {} long, and clocks {} apart. Run {} to use more.",
                    Span(lease_ms.unwrap_or(DEFAULT_LEASE_MS)),
                    Span(skew_ms.unwrap_or(DEFAULT_SKEW_MS)),
                    command("set-lease")
                ));
            }
            if *is_closed {
                said.push("The fleet is still closed.".to_owned());
            }
            said
        }
        Outcome::Restored(restored) => restored_said(restored, fleet, is_dry),
        Outcome::Lost { generation, freeze_ms, uuid: lost, is_closed } => [
            Some(format!(
                "Fleet \"{fleet}\" is made anew, in generation {generation}, with the uuid {}. Servers of a fleet with \
                 another uuid refuse to draw.",
                uuid(*lost)
            )),
            Some(format!("Numbers are leased for ids from {} on, when all lost leases have ended.", Shown(*freeze_ms))),
            is_closed.then(|| "The fleet is still closed.".to_owned()),
        ]
        .into_iter()
        .flatten()
        .collect(),
        Outcome::Reserved { number: reserved, until_ms } => vec![format!(
            "{} is reserved until {}: it is not leased for ids before that. This cannot be undone.",
            capitalized(&number(*reserved)),
            Shown(*until_ms)
        )],
        Outcome::TagCreated { tag, record } => {
            vec![format!("Tag \"{tag}\" is there. Its values begin at {}.", record.next), on_loss(record)]
        }
        Outcome::TagSet { tag, was, record } => tag_set(*tag, was, record),
        Outcome::NumbersDropped { before_ms, count } => {
            let numbers = if *count == 1 { "1 number".to_owned() } else { format!("{count} numbers") };
            vec![format!("Deleted the records of {numbers}: what ended by {}.", Shown(*before_ms))]
        }
        Outcome::TagDropped { tag, was } => vec![
            format!("Tag \"{tag}\" is deleted. Servers draw what they have of it for up to 20 seconds."),
            format!("Its next value was {}. If the tag is made again, it must begin there or above.", was.next),
        ],
    }
}

fn tag_set(tag: Tag, was: &TagRecord, record: &TagRecord) -> Vec<String> {
    let mut said = Vec::new();
    if record.next != was.next || record.generation != was.generation {
        said.push(format!("Tag \"{tag}\" goes on at {}. Servers first draw the rest of their blocks.", record.next));
    }
    if record.steps != was.steps {
        let (least, greatest) = record.steps;
        said.push(format!("Blocks of tag \"{tag}\" have {least} to {greatest} values."));
    }
    match (was.jump, record.jump) {
        (Some(old), Some(new)) if old != new && record.steps.1 < was.steps.1 => said.push(format!(
            "The jump of tag \"{tag}\" is {new} greatest steps now, as many values as before, unless you have set it."
        )),
        (old, new) if old != new => said.push(on_loss(record)),
        _ => {}
    }
    if said.is_empty() {
        said.push(format!("Tag \"{tag}\" has these values already."));
    }
    said
}

/// Says what a tag does when the registry may have lost blocks.
fn on_loss(record: &TagRecord) -> String {
    match record.jump {
        Some(jump) => format!(
            "When the registry may have lost blocks, it jumps ahead by {} values.",
            u64::from(jump) * u64::from(record.steps.1)
        ),
        None => "When the registry may have lost blocks, it gives no values until you set its next value.".to_owned(),
    }
}

fn restored_said(restored: &RestoredOutcome, fleet: &str, is_dry: bool) -> Vec<String> {
    let RestoredOutcome { generation, freeze_ms, horizon_ms, jumped, stopped, cut } = restored;
    let (freeze, horizon) = (Shown(*freeze_ms), Shown(*horizon_ms));
    let mut said = vec![match is_dry {
        true => format!(
            "Generation {generation} of fleet \"{fleet}\" would begin. If it began now, numbers would be leased again \
             for ids from {freeze} on."
        ),
        false => format!(
            "Generation {generation} of fleet \"{fleet}\" has begun. Servers that hold a lease draw up to its end, and \
             renew it if it ends after {horizon}. Numbers are leased again for ids from {freeze} on."
        ),
    }];
    for CutLease { number: of, until_ms, becomes_ms } in cut {
        let (of, until, becomes) = (capitalized(&number(*of)), Shown(*until_ms), Shown(*becomes_ms));
        said.push(match is_dry {
            true => {
                format!("{of} is leased until {until}, later than any lease may end. It would be free at {becomes}.")
            }
            false => {
                format!("{of} was leased until {until}, later than any lease may end. It is free at {becomes} now.")
            }
        });
    }
    if !jumped.is_empty() {
        let list: Vec<_> =
            jumped.iter().map(|JumpedTag { tag, from, to }| format!("\"{tag}\" from {from} to {to}")).collect();
        said.push(match is_dry {
            true => format!(
                "These tags would jump ahead: {}. To choose the next value of one yourself, first run {}.",
                list.join(", "),
                command("set-tag TAG --jump none")
            ),
            false => format!("These tags have jumped ahead: {}.", list.join(", ")),
        });
    }
    if !stopped.is_empty() {
        let list: Vec<_> = stopped.iter().map(|(tag, next)| format!("\"{tag}\" at {next}")).collect();
        said.push(format!(
            "These tags give no values until you set their next value ({}): {}.",
            command("set-tag TAG --next-value VALUE"),
            list.join(", ")
        ));
    }
    said
}

/// Says what a dangerous operation brings about, for a person who is asked. `None` if nothing has
/// to be asked.
pub fn consequence(operation: &Operation, fleet: &Fleet, outcome: &Outcome) -> Option<String> {
    Some(match (operation, outcome) {
        (Operation::SetRange { .. }, Outcome::RangeSet { first, last, numbers }) => {
            return wider_range(fleet, (*first, *last), numbers.is_some());
        }
        (Operation::SetTag { next: Some(_), .. }, Outcome::TagSet { tag, was, record }) => {
            let mut said = match record.next {
                END => format!("Tag \"{tag}\" ends, and never gives a value again. This cannot be undone."),
                next if next > was.next => format!(
                    "Tag \"{tag}\" never gives the values from {} to {}. This cannot be undone.",
                    was.next,
                    next - 1
                ),
                next => format!("Tag \"{tag}\" goes on at {next}."),
            };
            if was.generation < record.generation && record.next != END {
                said += &format!(" If servers have had values from {} on, these come twice.", record.next);
            }
            said
        }
        (Operation::Restored { .. }, Outcome::Restored(restored)) => format!(
            "A freeze begins: until {}, a server that is restarted or added generates no ids. Tags jump or stop. This \
             cannot be undone.",
            Shown(restored.freeze_ms)
        ),
        (Operation::Lost { .. }, Outcome::Lost { freeze_ms, .. }) => format!(
            "No number is leased for ids before {}. If the lost registry permitted longer leases than you say, ids \
             repeat.",
            Shown(*freeze_ms)
        ),
        (Operation::Open { .. }, Outcome::Opened { was_closed: true, moved: true }) => {
            "If this is not the closed registry, moved whole, or if the old one is opened, too, both lease the same \
             numbers, and ids repeat."
                .to_owned()
        }
        (Operation::Open { .. }, Outcome::Opened { was_closed: true, moved: false }) => {
            "If any server has reached a moved copy of this registry that was opened, both lease the same numbers, and \
             ids repeat."
                .to_owned()
        }
        (Operation::ResetSettings, _) => {
            "The next server that starts decides the layout of the fleet's ids. A database in which a wrong server has \
             drawn ids refuses another layout."
                .to_owned()
        }
        (Operation::SetLosesNothing { loses_nothing: true }, _) => {
            "If a failover promotes a standby that lacks the last changes, two servers lease one number, and ids \
             repeat."
                .to_owned()
        }
        (Operation::DropTag { tag }, Outcome::TagDropped { was, .. }) => format!(
            "Draws of tag \"{tag}\" fail within 20 seconds. If it is made again with a next value below {}, values \
             come twice.",
            was.next
        ),
        (Operation::Reserve { force: true, .. }, Outcome::Reserved { number: reserved, until_ms }) => format!(
            "{} is not leased for ids before {}. This cannot be undone.",
            capitalized(&number(*reserved)),
            Shown(*until_ms)
        ),
        (
            Operation::SetLimits { .. },
            Outcome::LimitsSet { longest_ms: 0, .. } | Outcome::LimitsSet { skew_ms: 0, .. },
        ) => "Limits cannot be lowered once a server has used the fleet.".to_owned(),
        (Operation::SetLimits { .. }, Outcome::LimitsSet { longest_ms, skew_ms, .. })
            if (fleet.longest_ms, fleet.skew_ms) == (*longest_ms, *skew_ms) =>
        {
            return None;
        }
        (Operation::SetLimits { .. }, Outcome::LimitsSet { longest_ms, skew_ms, .. }) => format!(
            "Limits cannot be lowered once a server has used the fleet. After each failover that may lose leases, a \
             server that is restarted generates no ids for {}.",
            Span(longest_ms.saturating_add(2 * skew_ms))
        ),
        _ => return None,
    })
}

/// Says what numbers bring about that a range did not have before, if there are any.
fn wider_range(fleet: &Fleet, (first, last): (i64, i64), is_layout_known: bool) -> Option<String> {
    // A fleet that no server has used yet has all numbers, and those of the range are fewer.
    let (old_first, old_last) = match fleet.range {
        Some(range) => range,
        None if fleet.layout.is_none() => return None,
        None => (first, first - 1),
    };
    let gained = [(first, last.min(old_first - 1)), (first.max(old_last.saturating_add(1)), last)];
    let gained: Vec<_> = gained
        .into_iter()
        .filter(|(first, last)| first <= last)
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first} to {last}") })
        .collect();
    if gained.is_empty() {
        return None;
    }
    let mut said = format!(
        "The range gains the numbers {}. If a server has one of them in its own configuration, ids repeat.",
        gained.join(" and ")
    );
    if fleet.layout.is_some() && !is_layout_known {
        said += " The fleet's layout is not known here. If the layout lacks a number of the range, servers renew \
                 nothing, and stop drawing when their leases end.";
    }
    Some(said)
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
        Refusal::GraceOutside { grace_ms, allowed } => outside("grace", *grace_ms, allowed),
        Refusal::NoUptime => refused("etcd has no grace")
            .detail("etcd does not tell since when it is up, so a grace would not count.")
            .hint("No action is needed: an etcd that is started again has lost nothing."),
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
                         hide that, or a tag would stop or jump at once, or jump too little.",
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
        Refusal::KeptTooLong { number: key, until_ms, most_ms } => refused(format!(
            "{} would be kept until {}, more than {} from now",
            number(*key),
            Shown(*until_ms),
            Span(KEPT_AHEAD_MS)
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
        Refusal::JumpOutside { jump, allowed } => refused(format!("a tag cannot jump {jump} greatest steps"))
            .detail(format!("It can jump from {} to {}.", allowed.start(), allowed.end()))
            .hint("Give a number within that range, or none."),
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
            .detail("The registry may have lost values of it, and it had no jump then.")
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
    use snowflake_core::operate::{GRACES_MS, JUMPS, LEASES_MS, SKEWS_MS, STEPS};

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
            Refusal::GraceOutside { grace_ms: 86_400_001, allowed: GRACES_MS },
            Refusal::NoUptime,
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
            Refusal::KeptTooLong { number: key, until_ms: later, most_ms: NOW_MS },
            Refusal::NumberLeased { number: far, until_ms: NOW_MS, again_ms: later },
            Refusal::MayBeLost { number: key, until_ms: later },
            Refusal::EndedLater { number: key, until_ms: NOW_MS, ended_ms: later },
            Refusal::TagExists { tag: tag() },
            Refusal::NoSuchTag { tag: tag() },
            Refusal::StepsOutside { steps: (5, 4), allowed: STEPS },
            Refusal::JumpOutside { jump: 0, allowed: JUMPS },
            Refusal::NextLowered { tag: tag(), next: 1, least: 4001 },
            Refusal::NeedsNext { tag: tag(), least: 4001 },
            Refusal::NothingToSet,
            Refusal::MayStillBeDrawnWith { before_ms: later, latest_ms: NOW_MS },
            Refusal::InFreeze { until_ms: later },
            Refusal::Contended,
        ]
    }

    fn outcomes() -> Vec<Outcome> {
        let jumping = TagRecord { jump: Some(10), next: 5000, steps: (10, 100), ..TAG };
        vec![
            Outcome::RangeSet { first: 0, last: 9, numbers: None },
            Outcome::LimitsSet { longest_ms: 3_600_000, skew_ms: 60_000, used_lease_ms: 600_000, used_skew_ms: 60_000 },
            Outcome::LimitsSet { longest_ms: 3_600_000, skew_ms: 0, used_lease_ms: 600_000, used_skew_ms: 60_000 },
            Outcome::LeaseSet { lease_ms: 120_000, skew_ms: 10_000 },
            Outcome::LosesNothingSet { loses_nothing: true },
            Outcome::LosesNothingSet { loses_nothing: false },
            Outcome::GraceSet { grace_ms: 0 },
            Outcome::GraceSet { grace_ms: 60_000 },
            Outcome::Closed { was_closed: true },
            Outcome::Opened { was_closed: true, moved: false },
            Outcome::Opened { was_closed: true, moved: true },
            Outcome::Opened { was_closed: false, moved: false },
            Outcome::SettingsReset { range: Some((0, 9)), lease_ms: Some(1000), skew_ms: None, is_closed: true },
            Outcome::SettingsReset { range: None, lease_ms: None, skew_ms: None, is_closed: false },
            Outcome::Restored(RestoredOutcome {
                generation: 4,
                horizon_ms: NOW_MS,
                freeze_ms: NOW_MS + 720_000,
                jumped: vec![JumpedTag { tag: tag(), from: 1, to: 2 }],
                stopped: vec![(tag(), 4001)],
                cut: vec![CutLease { number: NumberKey::new(Some(3), 5), until_ms: i64::MAX, becomes_ms: NOW_MS }],
            }),
            Outcome::Lost { generation: 1_795_521_600, freeze_ms: NOW_MS, uuid: 1, is_closed: true },
            Outcome::Reserved { number: NumberKey::new(None, 5), until_ms: NOW_MS },
            Outcome::TagCreated { tag: tag(), record: TAG },
            Outcome::TagSet { tag: tag(), was: TAG, record: jumping },
            Outcome::TagSet {
                tag: tag(),
                was: jumping,
                record: TagRecord { jump: Some(20), steps: (10, 50), ..jumping },
            },
            Outcome::TagSet { tag: tag(), was: TAG, record: TAG },
            Outcome::TagDropped { tag: tag(), was: TAG },
            Outcome::NumbersDropped { before_ms: NOW_MS, count: 2 },
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
            (0, ["lease cannot be 999 ms", "from 1 s to 30 d"]),
            (1, ["skew cannot be 1 h 1 ms", "from 10 ms to 1 h"]),
            (2, ["grace cannot be 1 d 1 ms", "from 0 s to 1 d"]),
            (5, ["range cannot begin at -1", "from 0 on"]),
            (7, ["range 0 to 1024", "the numbers 0 to 1023"]),
            (8, ["longest lease from 10 min to 1 s", "\"snowflake-registry set-lease\""]),
            (
                9,
                [
                    "lease of 10 min 1 ms with skew of 1 min 1 ms is beyond",
                    "Leases may be 10 min long, and clocks 1 min apart",
                ],
            ),
            (14, ["servers of fleet \"shop\" may still draw ids", "end at 2026-11-24 12:01:00Z"]),
            (22, ["layout has a datacenter field", "0 to 31"]),
            (25, ["number 5 of datacenter 3 is leased", "from 2026-11-24 12:01:00Z on"]),
            (30, ["5 to 4 values", "from 1 to 10000000"]),
            (32, ["cannot be lowered from 4001 to 1", "\"snowflake-registry drop-tag\""]),
        ] {
            for text in texts {
                assert!(said[at].contains(text), "{}", said[at]);
            }
        }
    }

    #[test]
    fn outcomes_are_sentences() {
        for of in outcomes() {
            for is_dry in [false, true] {
                let said = outcome(&of, "default", is_dry);
                assert!(!said.is_empty());
                said.iter().for_each(|line| check_sentences(line));
            }
        }
    }

    #[test]
    fn a_tag_that_is_changed_says_what_has_changed() {
        let said = |was: TagRecord, record: TagRecord| tag_set(tag(), &was, &record).join(" ");
        let raised = said(TAG, TagRecord { next: 5000, ..TAG });
        assert_eq!(raised, "Tag \"invoices\" goes on at 5000. Servers first draw the rest of their blocks.");
        // It had stopped there.
        let again = said(TAG, TagRecord { generation: 4, ..TAG });
        assert!(again.starts_with("Tag \"invoices\" goes on at 4001."), "{again}");
        let smaller = said(TAG, TagRecord { steps: (10, 100), ..TAG });
        assert_eq!(smaller, "Blocks of tag \"invoices\" have 10 to 100 values.");
        let jumping = said(TAG, TagRecord { jump: Some(1000), ..TAG });
        assert_eq!(jumping, "When the registry may have lost blocks, it jumps ahead by 1000000000 values.");
        assert_eq!(said(TAG, TAG), "Tag \"invoices\" has these values already.");
    }

    #[test]
    fn what_is_dangerous_says_what_it_brings_about() {
        let restored = outcomes().into_iter().find(|of| matches!(of, Outcome::Restored(_))).unwrap();
        let asked = [
            (Operation::Restored { lease_ms: None, skew_ms: None }, restored),
            (
                Operation::SetLimits { lease_ms: None, skew_ms: None },
                Outcome::LimitsSet { longest_ms: 3_600_000, skew_ms: 60_000, used_lease_ms: 1, used_skew_ms: 1 },
            ),
            (Operation::Open { moved: Some(true) }, Outcome::Opened { was_closed: true, moved: true }),
            (Operation::Open { moved: Some(false) }, Outcome::Opened { was_closed: true, moved: false }),
            (Operation::SetLosesNothing { loses_nothing: true }, Outcome::LosesNothingSet { loses_nothing: true }),
            (Operation::DropTag { tag: tag() }, Outcome::TagDropped { tag: tag(), was: TAG }),
            (
                Operation::Reserve { number: NumberKey::new(None, 5), until_ms: NOW_MS, force: true },
                Outcome::Reserved { number: NumberKey::new(None, 5), until_ms: NOW_MS },
            ),
        ];
        for (operation, of) in asked {
            check_sentences(&consequence(&operation, &fleet(), &of).unwrap());
        }
        let set_range = |fleet: &Fleet, first, last, numbers| {
            let of = Outcome::RangeSet { first, last, numbers };
            consequence(&Operation::SetRange { first, last }, fleet, &of)
        };
        let narrow = Fleet { range: Some((100, 200)), ..fleet() };
        let both = set_range(&narrow, 0, 201, Some(1024)).unwrap();
        assert!(both.starts_with("The range gains the numbers 0 to 99 and 201. "), "{both}");
        check_sentences(&both);
        let unknown = set_range(&narrow, 100, 300, None).unwrap();
        assert!(unknown.contains("layout is not known here"), "{unknown}");
        check_sentences(&unknown);
        assert_eq!(set_range(&narrow, 100, 200, None), None);
        let set_tag = |was: TagRecord, next| {
            let operation = Operation::SetTag { tag: tag(), next: Some(next), least: None, greatest: None, jump: None };
            let record = TagRecord { next, generation: 3, ..was };
            let said = consequence(&operation, &fleet(), &Outcome::TagSet { tag: tag(), was, record }).unwrap();
            check_sentences(&said);
            said
        };
        assert!(set_tag(TAG, 5000).contains("never gives the values from 4001 to 4999. This cannot be undone."));
        assert!(set_tag(TAG, END).contains("ends"));
        let stopped = set_tag(TagRecord { generation: 2, ..TAG }, 4001);
        assert!(stopped.ends_with("If servers have had values from 4001 on, these come twice."), "{stopped}");
        // Nothing would be done.
        let opened = Outcome::Opened { was_closed: false, moved: false };
        assert_eq!(consequence(&Operation::Open { moved: Some(false) }, &fleet(), &opened), None);
    }

    #[test]
    fn a_uuid_is_written_as_postgresql_writes_it() {
        assert_eq!(uuid(0x1b4e_28ba_2fa1_41d2_883f_0016_d3cc_a427), "1b4e28ba-2fa1-41d2-883f-0016d3cca427");
    }
}
