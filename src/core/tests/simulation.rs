//! Servers whose clocks may do anything. They crash, and are promoted, copied and restored, at
//! every step of the mark's protocol.
//!
//! In half of the histories the servers are a fleet that leases its numbers. Its registry is away,
//! fails over, and is restored, at every step of the lease's protocol (`simulation/faults.rs`). In
//! further histories its servers are started with the registry of another fleet now and then.
//!
//! In histories of tags, the servers of such a fleet also draw values of tags
//! (`simulation/tags/`).
//!
//! A few rules are needed only where several rare things come together, which random histories do
//! not meet. For these the events are chosen (`simulation/directed.rs`).
//!
//! The protocols and the generator are the real ones. The log, clocks, locks, sessions and the
//! registry are simulated from one seed: the same seed always gives the same history.
//! `simulation/promises.rs` says what must hold ([`Guarantee`]). It also says what is done wrong on
//! purpose ([`Lie`]), to show that each guarantee's check can fail.
//!
//! `SEEDS=100000` sets how many histories of each kind are run. A failing history is printed, and
//! `SEED=123` prints it again. `COUNT=20000` counts how many histories each lie breaks, and
//! `LIE=NoFlush` leaves out the others.

// loom's atomics panic outside a loom model.
#![cfg(not(loom))]

#[path = "simulation/checks.rs"]
mod checks;
#[path = "simulation/copies.rs"]
mod copies;
#[path = "simulation/course.rs"]
mod course;
#[path = "simulation/directed.rs"]
mod directed;
#[path = "simulation/faults.rs"]
mod faults;
#[path = "simulation/fleet.rs"]
mod fleet;
#[path = "simulation/histories.rs"]
mod histories;
#[path = "simulation/keeper.rs"]
mod keeper;
mod kit;
#[path = "simulation/lives.rs"]
mod lives;
#[path = "simulation/log.rs"]
mod log;
#[path = "simulation/office.rs"]
mod office;
#[path = "simulation/operators.rs"]
mod operators;
#[path = "simulation/promises.rs"]
mod promises;
#[path = "simulation/server.rs"]
mod server;
#[path = "simulation/session.rs"]
mod session;
#[path = "simulation/swarm.rs"]
mod swarm;
#[path = "simulation/tags/mod.rs"]
mod tags;
#[allow(dead_code, reason = "stories use the rest")]
#[path = "simulation/told.rs"]
mod told;
#[path = "simulation/world.rs"]
mod world;

use course::Course;
use fleet::Beyond;
use histories::{Counts, on_all_processors};
use promises::{Guarantee, Lie};
use world::{Story, World};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Prints how to repeat a history that fails.
struct Replay(u64, &'static str);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("SEED={} cargo test -p snowflake_core --test simulation {} -- --nocapture", self.0, self.1);
        }
    }
}

fn run(seed: u64, story: Story, lie: Option<Lie>, tells: bool) -> Course {
    let world = World::new(seed, story, lie, tells);
    world.run();
    world.course
}

/// What must happen often in the histories, because they would otherwise show little.
const EVENTS: [&str; 23] = [
    "advance refused",
    "advanced",
    "advanced far ahead",
    "behind",
    "blocked",
    "cancelled",
    "copy",
    "crash",
    "crash within a statement",
    "crashed",
    "drawn",
    "drawn from a known tick",
    "failover",
    "jumped",
    "other layout",
    "read",
    "reset",
    "reset refused",
    "restore",
    "rollback",
    "sequences copied",
    "standby",
    "stored",
];

/// What must happen often in the histories of a fleet.
const FLEET_EVENTS: [&str; 55] = [
    "acquired",
    "adopted",
    "answer lost",
    "another generation",
    "clock off",
    "closed",
    "copied",
    "crash with page",
    "drawn",
    "drawn from a known tick",
    "draws on",
    "entered",
    "forgot",
    "frozen",
    "given back",
    "gives back",
    "goes on",
    "kept",
    "late",
    "lease set",
    "limit raised",
    "limits not lowered",
    "lost",
    "may still draw",
    "memory copied",
    "moved",
    "no answer",
    "no lease",
    "none free",
    "not noted",
    "older",
    "opened",
    "operator ends",
    "orphan fenced",
    "orphans",
    "page broken",
    "page broken meanwhile",
    "page is void",
    "page lost",
    "page older",
    "process ends",
    "range set",
    "read",
    "registry fails over",
    "registry fails over twice",
    "registry is lost",
    "registry is restored",
    "reserved",
    "reset",
    "restart with page",
    "restored",
    "server cut off",
    "settings reset",
    "settled",
    "vouched for",
];

/// What must happen often in the histories of tags.
const TAG_EVENTS: [&str; 48] = [
    "acquired",
    "adopted",
    "an operator's is written late",
    "another generation",
    "answer lost",
    "batch",
    "closed",
    "crash",
    "deleted",
    "drawn",
    "ended",
    "forgot",
    "full",
    "given back",
    "gone",
    "joined",
    "jump set",
    "jumped",
    "kept",
    "late",
    "made again",
    "made as a lost one",
    "moved",
    "needs next",
    "next not lowered",
    "no answer",
    "no jump",
    "not given back",
    "not noted",
    "older",
    "opened",
    "operator ends",
    "process ends",
    "registry fails over",
    "registry fails over twice",
    "registry is lost",
    "registry is restored",
    "reserved",
    "restored",
    "server cut off",
    "settled",
    "steps set",
    "stop",
    "taken over",
    "value drawn",
    "void",
    "worker stops",
    "written late",
];

/// Those that need two things at once. They must happen half as often.
const RARER: [&str; 2] = ["another generation", "copied"];

/// Runs histories, and asserts that every guarantee holds and that each of the events is frequent.
fn assert_holds(story: Story, test: &'static str, histories: u64, events: &[&str]) {
    let one = number("SEED");
    let seeds = one.map_or(0..number("SEEDS").unwrap_or(histories), |seed| seed..seed + 1);
    let counts = on_all_processors(seeds.clone(), |seed| {
        let _replay = Replay(seed, test);
        let course = run(seed, story, None, one.is_some());
        if let Some((guarantee, what)) = course.broken.take().iter().find(|(broken, _)| story.promises(*broken)) {
            if one.is_none() {
                run(seed, story, None, true);
            }
            panic!("{guarantee:?}: {what}");
        }
        course.counts.take()
    });
    println!("{seeds:?}: {counts:?}");
    let often = |event: &str| (seeds.end - seeds.start) / if RARER.contains(&event) { 100 } else { 50 };
    let seldom = |event: &&&str| counts.get(**event).copied().unwrap_or(0) < often(event);
    let seldom: Vec<_> = events.iter().filter(seldom).collect();
    assert!(seldom.is_empty(), "these hardly happen: {seldom:?} in {counts:?}");
}

#[test]
fn no_id_comes_twice_whatever_happens_to_the_servers() {
    assert_holds(Story::Configured, "no_id", 30_000, &EVENTS);
}

/// What must happen often where servers are started with another fleet's registry.
const TWO_FLEETS_EVENTS: [&str; 5] = ["drawn", "entered", "fleet accepted", "other fleet", "other registry"];

#[test]
fn no_id_of_a_fleet_comes_twice_where_servers_are_started_with_another_registry() {
    assert_holds(Story::TwoFleets, "another_registry", 20_000, &TWO_FLEETS_EVENTS);
}

#[test]
fn no_two_servers_draw_the_same_id_whatever_happens_to_the_fleet() {
    assert_holds(Story::Fleet(None), "no_two_servers_draw", 30_000, &FLEET_EVENTS);
}

#[test]
fn no_two_servers_get_the_same_value_of_a_tag() {
    assert_holds(Story::Tags, "of_a_tag", 10_000, &TAG_EVENTS);
}

#[test]
fn values_ascend_on_a_server_whatever_the_registry_forgets() {
    assert_holds(Story::SilentTags, "values_ascend", 10_000, &["registry is restored silently", "below", "forgot"]);
}

/// Asserts that a lie breaks one of the promises, and prints how soon that is seen; with `COUNT`,
/// in how many histories each one is broken.
fn assert_breaks(story: Story, lie: Lie, guarantees: &[Guarantee]) {
    assert_breaks_each(story, lie, &[guarantees]);
}

/// Asserts that a lie breaks one promise of each group, perhaps in different histories.
fn assert_breaks_each(story: Story, lie: Lie, groups: &[&[Guarantee]]) {
    const SEEDS: u64 = 100_000;
    if std::env::var("LIE").is_ok_and(|one| one != format!("{lie:?}")) {
        return;
    }
    let broken = |seed: u64| run(seed, story, Some(lie), false).broken.take();
    if let Some(histories) = number("COUNT") {
        let guarantees = groups.concat();
        let mut counts = vec![0; guarantees.len()];
        for broken in (0..histories).map(broken) {
            for (guarantee, count) in guarantees.iter().zip(&mut counts) {
                *count += u64::from(broken.iter().any(|(broken, _)| broken == guarantee));
            }
        }
        println!("{lie:?} breaks {guarantees:?} in {counts:?} of {histories} histories");
        return;
    }
    let mut left = groups.to_vec();
    for seed in 0..SEEDS {
        let broken = broken(seed);
        left.retain(|guarantees| {
            let is_broken = broken.iter().any(|(broken, _)| guarantees.contains(broken));
            if is_broken {
                println!("{lie:?} breaks {guarantees:?} in history {seed}");
            }
            !is_broken
        });
        if left.is_empty() {
            return;
        }
    }
    panic!("{lie:?} does not break {left:?} in {SEEDS} histories");
}

#[test]
fn each_promise_is_broken_by_what_breaks_it() {
    for (lie, guarantees) in [
        (Lie::OwnGenerator, &[Guarantee::G0][..]),
        (Lie::NothingFollows, &[Guarantee::G0, Guarantee::Failover]),
        (Lie::FollowsAtStart, &[Guarantee::Failover]),
        (Lie::NoFlush, &[Guarantee::G2, Guarantee::Flushed]),
        (Lie::LateLog, &[Guarantee::G1, Guarantee::G2, Guarantee::Flushed]),
        (Lie::NoLimit, &[Guarantee::G1, Guarantee::G2, Guarantee::Flushed]),
        (Lie::KeptTick, &[Guarantee::Advance]),
        (Lie::NoLookAhead, &[Guarantee::G1, Guarantee::G2, Guarantee::Flushed]),
        (Lie::NothingStored, &[Guarantee::G1, Guarantee::G2, Guarantee::Order, Guarantee::Advance]),
        (Lie::NoIdentity, &[Guarantee::G1, Guarantee::G2, Guarantee::Order, Guarantee::Reset]),
        (Lie::NoLayout, &[Guarantee::Layout]),
        (Lie::NoLock, &[Guarantee::G1, Guarantee::G2]),
        (Lie::NoRecheck, &[Guarantee::G1]),
        (Lie::NothingRemembered, &[Guarantee::G1]),
        (Lie::MarksSurvive, &[Guarantee::G1, Guarantee::G2]),
        (Lie::Uncovered, &[Guarantee::Settled]),
        (Lie::CoveredByOneCopy, &[Guarantee::Settled]),
        (Lie::TooFarAhead, &[Guarantee::Bounded]),
        (Lie::AlwaysForced, &[Guarantee::Ahead]),
    ] {
        let each: Vec<_> = guarantees.chunks(1).collect();
        assert_breaks_each(Story::Configured, lie, &each);
    }
}

/// Each lie breaks a rule, and in most cases two ids are equal within the histories that `COUNT`
/// counts.
#[test]
fn two_servers_draw_the_same_id_without_any_one_of_the_rules() {
    const RULES: &[Guarantee] = &[Guarantee::G3, Guarantee::R1, Guarantee::R2];
    for lie in [
        Lie::NotAtomic,
        Lie::NumberAlone,
        Lie::FromClock,
        Lie::NotFolded,
        Lie::NoCap,
        Lie::NoHorizon,
        Lie::FreezeOfLength,
        Lie::OneSkew,
        Lie::LostIsNo,
        Lie::LostIsYes,
        Lie::ReadIsYes,
        Lie::TornNumbers,
        Lie::OneLane,
        Lie::SameHolder,
        Lie::LostUnfrozen,
        Lie::UsedAtOnce,
        Lie::RaisesBoth,
        Lie::BorrowLengthens,
        Lie::BeyondLimit,
        Lie::BringsOther,
    ] {
        assert_breaks(Story::Fleet(None), lie, RULES);
    }
    for (lie, guarantees) in [
        (Lie::PublishedFirst, RULES),
        (Lie::NoCeiling, RULES),
        (Lie::ReturnsUnnoted, RULES),
        (Lie::LanesNotRaised, RULES),
        (Lie::OlderHolder, &[Guarantee::Alone]),
        (Lie::CallsFirst, &[Guarantee::Alone]),
        (Lie::NoFence, &[Guarantee::Alone]),
        (Lie::OtherSecret, &[Guarantee::Alone]),
        (Lie::EntersEarly, &[Guarantee::Bounded]),
        (Lie::OrphansPublish, RULES),
        (Lie::NoWriterLock, RULES),
        (Lie::CopiedPage, RULES),
        (Lie::BrokenIsOwn, RULES),
        (Lie::NoPostmasterLock, &[Guarantee::Alone]),
    ] {
        assert_breaks(Story::Fleet(None), lie, guarantees);
    }
    assert_breaks(Story::TwoFleets, Lie::AnyFleet, &[Guarantee::G3]);
    assert_breaks(Story::Fleet(None), Lie::LostIsNo, &[Guarantee::Alone]);
    assert_breaks(Story::Fleet(None), Lie::SameHolder, &[Guarantee::G2]);
    assert_breaks(Story::Fleet(None), Lie::OwnGenerator, &[Guarantee::Ascending]);
    assert_breaks(Story::Fleet(None), Lie::SameTick, &[Guarantee::Ascending]);
    assert_breaks(Story::Fleet(None), Lie::Uncovered, &[Guarantee::Settled]);
    assert_breaks(Story::Fleet(None), Lie::CoveredUnflushed, &[Guarantee::Settled]);
}

/// Each lie is of an operator's action. Most break a rule, and some make a server stop.
#[test]
fn two_servers_draw_the_same_id_where_an_operator_may_do_what_is_refused() {
    const RULES: &[Guarantee] = &[Guarantee::G3, Guarantee::R1, Guarantee::R2];
    for (lie, guarantees) in [
        (Lie::LowersLimits, RULES),
        (Lie::ClosesUnnoted, RULES),
        (Lie::OpensUnclosed, RULES),
        (Lie::OpensAgain, RULES),
        (Lie::VouchesUnnoted, RULES),
        (Lie::ReservesLost, RULES),
        (Lie::ReservesUnnoted, &[Guarantee::Alone]),
        (Lie::ResetsRunning, &[Guarantee::Idle]),
        (Lie::ResetsOpen, &[Guarantee::Idle]),
        (Lie::ResetsRaise, RULES),
        (Lie::CutsKept, RULES),
        (Lie::DropsEarly, RULES),
    ] {
        assert_breaks(Story::Fleet(None), lie, guarantees);
    }
}

type History = fn(Option<Lie>) -> Course;

/// Asserts that a lie breaks a guarantee in a history that breaks nothing without it, whose events
/// are chosen. Returns how often what has happened in that one.
fn assert_breaks_directed(lie: Lie, history: History, guarantee: Guarantee) -> Counts {
    let honest = history(None);
    assert_eq!(*honest.broken.borrow(), [], "{lie:?}");
    let broken = history(Some(lie)).broken.take();
    assert!(broken.iter().any(|(broken, _)| *broken == guarantee), "{lie:?}: {broken:?}");
    honest.counts.take()
}

/// The lies that no random history finds, or hardly any.
#[test]
fn two_servers_draw_the_same_id_in_a_directed_history_without_a_rule() {
    let histories: [(Lie, History); 6] = [
        (Lie::LostUnnoted, directed::a_fleet_is_made_anew_that_was_moved_open),
        (Lie::ReservesUnfrozen, directed::a_number_is_kept_when_a_freeze_ends),
        (Lie::RestoredForgetful, directed::a_registry_fails_over_after_a_restore_that_has_forgotten_a_raise),
        (Lie::ResetsToLimit, directed::settings_are_reset_after_a_raise),
        (Lie::ResetsTwice, directed::settings_are_reset_twice),
        (Lie::RestoredShort, directed::a_registry_is_restored_on_a_machine_whose_clock_is_behind),
    ];
    for (lie, history) in histories {
        let counts = assert_breaks_directed(lie, history, Guarantee::G3);
        assert!(counts["entered"] >= 2, "both servers draw: {lie:?}");
    }
    let history = directed::a_registry_fails_over_before_a_range_is_widened_to_what_is_kept;
    let counts = assert_breaks_directed(Lie::WidensEarly, history, Guarantee::G3);
    assert!(counts["drawn"] > 0, "the number is leased when it is no longer kept");
}

/// As before, for a database that another fleet's server draws in after a crash.
#[test]
fn an_accepted_fleet_begins_above_a_mark_that_a_crash_has_lost() {
    let history = directed::another_fleet_is_accepted_after_a_crash;
    let counts = assert_breaks_directed(Lie::AcceptsUnraised, history, Guarantee::G2);
    assert_eq!((counts["entered"], counts["drawn"]), (2, 3), "{counts:?}");
}

/// As before, for the settled id, which no reader may find lower than before.
#[test]
fn a_settled_id_outlives_what_random_histories_hardly_do() {
    for history in [
        directed::a_copy_has_a_mark_without_numbers,
        directed::a_copy_has_half_a_reset,
        directed::a_promoted_standby_lacks_a_database,
    ] {
        let honest = history(None);
        assert_eq!(*honest.broken.borrow(), []);
        let counts = honest.counts.borrow();
        assert!(counts["read"] >= 2 && counts["drawn"] >= 2, "{counts:?}");
    }
    let lies: [(Lie, History); 2] = [
        (Lie::OwnWithoutNumbers, directed::a_copy_has_a_mark_without_numbers),
        (Lie::CoveredByEitherLane, directed::a_copy_has_half_a_reset),
    ];
    for (lie, history) in lies {
        assert_breaks_directed(lie, history, Guarantee::Settled);
    }
}

#[test]
fn a_value_comes_twice_without_any_one_of_the_rules() {
    for lie in [
        Lie::NotAtomic,
        Lie::NotCompared,
        Lie::AnyIncarnation,
        Lie::NoJumps,
        Lie::OneJump,
        Lie::NoTimelines,
        Lie::ShortJump,
        Lie::LostIsYes,
        Lie::NotDurable,
        Lie::ComparedByValue,
        Lie::NotComparedAtAll,
        Lie::AnyReturn,
        Lie::NotTakenOut,
        Lie::BlocksSurvive,
        Lie::WishLowers,
        Lie::NoAge,
        Lie::TenSteps,
        Lie::NoSkew,
        Lie::WritesGeneration,
        Lie::FleetFirst,
        Lie::LowersNext,
        Lie::SaysAhead,
        Lie::InPlaceOfJumps,
    ] {
        assert_breaks(Story::Tags, lie, &[Guarantee::Unique]);
    }
}

/// The lies that no random history finds: in these a tag jumps very far, and an operator seldom
/// says where a tag goes on just before the registry forgets.
#[test]
fn a_value_comes_twice_in_a_directed_history_without_a_rule() {
    let histories: [(Lie, History); 3] = [
        (Lie::JumpsByStep, tags::directed::a_failover_forgets_a_raised_step),
        (Lie::SaysLate, tags::directed::the_registry_forgets_what_an_operator_did_not_know),
        (Lie::LostAtOnce, tags::directed::a_tag_is_made_while_a_fleet_is_made_anew),
    ];
    for (lie, history) in histories {
        assert_breaks_directed(lie, history, Guarantee::Unique);
    }
}

#[test]
fn each_other_guarantee_is_broken_by_what_breaks_it() {
    for (lie, guarantee) in [
        (Lie::NoClaim, Guarantee::Granted),
        (Lie::NoId, Guarantee::Granted),
        (Lie::Wasted, Guarantee::TwoBlocks),
        (Lie::NothingBack, Guarantee::GivenBack),
        (Lie::AnyStep, Guarantee::Steps),
        (Lie::ReturnsCount, Guarantee::Calm),
        (Lie::ByNumber, Guarantee::Once),
        (Lie::SecondBegins, Guarantee::Once),
        (Lie::SaysTooEarly, Guarantee::Once),
        (Lie::KeepsNonce, Guarantee::Raised),
        (Lie::ChangesClosed, Guarantee::Raised),
        (Lie::NeverAgain, Guarantee::Live),
        (Lie::NoWish, Guarantee::Live),
        (Lie::NotAtomic, Guarantee::Apart),
    ] {
        assert_breaks(Story::Tags, lie, &[guarantee]);
    }
    assert_breaks(Story::SilentTags, Lie::NothingAbove, &[Guarantee::Ascending]);
}

/// What no promise covers, to say how much it costs: `COUNT` sets the number of histories.
#[test]
fn what_an_operator_says_wrongly_or_not_at_all_does_harm() {
    let histories = number("COUNT").unwrap_or(5000);
    let broken = |beyond, guarantees: &[Guarantee]| {
        let is_broken = |seed: &u64| {
            let broken = run(*seed, Story::Fleet(Some(beyond)), None, false).broken.take();
            broken.iter().any(|(broken, _)| guarantees.contains(broken))
        };
        let count = (0..histories).filter(is_broken).count();
        println!("{beyond:?} breaks {guarantees:?} in {count} of {histories} histories");
        count
    };
    for beyond in [Beyond::VouchedWrongly, Beyond::RestoredSilently] {
        for guarantee in [Guarantee::R1, Guarantee::G3] {
            assert!(broken(beyond, &[guarantee]) > 0, "{beyond:?} does no harm to {guarantee:?}");
        }
    }
}
