//! Servers that share tags. They are killed, stopped, and cut off, at every call of the registry,
//! which is away, fails over with its tail lost, is restored, and loses answers.
//!
//! The places, the supply and the registry's rules are the real ones (`segment.rs`). Sessions, time
//! and the registry's store are simulated from one seed: the same seed always gives the same
//! history. How sessions draw at the same moment, loom tries (`loom/segment.rs`).
//!
//! [`Guarantee`] says what must hold, and [`Lie`] what is done wrong on purpose, to show that each
//! check can fail. `SEEDS=100000` sets how many histories are run. A failing history is printed,
//! and `SEED=123` prints it again. `COUNT=20000` counts how many histories each lie breaks.

// loom's atomics panic outside a loom model.
#![cfg(not(loom))]

#[path = "segments/directed.rs"]
mod directed;
#[path = "simulation/histories.rs"]
mod histories;
mod kit;
#[path = "segments/ledger.rs"]
mod ledger;
#[path = "segments/link.rs"]
mod link;
#[path = "segments/operators.rs"]
mod operators;
#[path = "simulation/random.rs"]
#[allow(dead_code, reason = "the other simulation uses all of it")]
mod random;
#[path = "simulation/swarm.rs"]
#[allow(dead_code, reason = "the other simulation uses all of it")]
mod swarm;
#[path = "segments/world.rs"]
mod world;

use histories::on_all_processors;
use world::World;

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// No value of a tag is drawn twice.
    Unique,
    /// No block overlaps one that a server has had.
    Apart,
    /// A value is drawn only by a server that the registry has given it to, and for its own tag.
    Granted,
    /// On one server, the values of a tag ascend in the order drawn.
    Ascending,
    /// A crash loses what is left of two blocks of a tag at most. Blocks whose answers were lost
    /// do not count.
    TwoBlocks,
    /// What is left at a clean stop is given back, except before a block that was reserved later.
    GivenBack,
    /// A block has as many values as the tag's steps permit.
    Steps,
    /// No server says that the registry has forgotten something, unless it has, and nothing shows
    /// it.
    Calm,
    /// A tag without a jump stops once when the registry may have forgotten something: not again
    /// after an operator has said where it goes on.
    Once,
    /// No block lies below the next value that an operator has set, unless the registry may have
    /// forgotten that.
    Raised,
    /// With a registry that answers, every server draws from every tag that has values, and as high
    /// as a session wishes.
    Live,
}

/// What is done wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// The registry decides by a record that another call changes meanwhile.
    NotAtomic,
    /// A call compares the tags' records alone, and no incarnation afterwards either.
    NotCompared,
    /// The answer's incarnation is not looked at.
    AnyIncarnation,
    /// A new generation does not move the tags.
    NoJumps,
    /// A tag jumps once, however many generations were forgotten.
    OneJump,
    /// A generation is one more than the one before, however many timelines there were.
    NoTimelines,
    /// A tag jumps by its least step.
    ShortJump,
    /// A lost answer is taken for a yes.
    LostIsYes,
    /// The registry answers before what it has written is durable.
    NotDurable,
    /// What is given back is compared by the next value, and not by the nonce.
    ComparedByValue,
    /// What is given back is not compared.
    NotComparedAtAll,
    /// A server gives back though another one has reserved a block since.
    AnyReturn,
    /// What is given back is not taken out of the places.
    NotTakenOut,
    /// The blocks survive a crash as they were a while before.
    BlocksSurvive,
    /// A session remembers its place, and not the claim.
    NoClaim,
    /// Tags are told apart by their names alone.
    NoId,
    /// A server forgets up to where it has had values.
    NothingAbove,
    /// What a server has given back still counts as had.
    ReturnsCount,
    /// The next block is reserved again and again, and only the last one is kept.
    Wasted,
    /// A server that stops gives nothing back.
    NothingBack,
    /// Blocks are as large as a server wishes.
    AnyStep,
    /// A tag that cannot give values is never asked for again.
    NeverAgain,
    /// The registry begins a block where a session wishes, also below the values that it has given.
    WishLowers,
    /// The registry does not look at what a session wishes.
    NoWish,
    /// After a restore, a tag jumps once, however old the backup is.
    NoAge,
    /// Servers tell generations apart by their numbers alone.
    ByNumber,
    /// An operator sets a jump that is less than what the registry forgets: ten greatest steps.
    TenSteps,
    /// After a restore, a tag jumps as if all clocks were right.
    NoSkew,
    /// A tag that an operator raises after a restore is of the generation that has not begun yet.
    WritesGeneration,
    /// After a restore, an operator writes the fleet's record first, and the tags later.
    FleetFirst,
    /// Of two operators who say at once that the registry was restored, each begins a generation.
    SecondBegins,
    /// An operator lowers a tag's next value.
    LowersNext,
    /// What an operator says of a tag is of the generation before the one that the next server
    /// begins. So is a tag that is made then.
    SaysTooEarly,
    /// An operator says where a tag goes on, and another generation has begun since that was
    /// chosen.
    SaysLate,
    /// An operator changes a tag while the registry is being moved.
    ChangesClosed,
    /// A fleet that is made anew is not closed first.
    LostAtOnce,
    /// What an operator says of a tag is of the generation that the next server begins.
    SaysAhead,
    /// What an operator sets takes the place of the jumps that are due.
    InPlaceOfJumps,
    /// A tag whose greatest step is lowered jumps by as many steps as before, so by fewer values.
    KeepsJump,
    /// An operator writes a tag's record with the nonce that it had.
    KeepsNonce,
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

fn run(seed: u64, is_silent: bool, lie: Option<Lie>, tells: bool) -> World {
    let world = World::any(seed, is_silent, lie, tells);
    world.run();
    world
}

/// What must happen often in the histories, because they would otherwise show little.
const EVENTS: [&str; 45] = [
    "adopted",
    "an operator's is late",
    "another generation",
    "answer lost",
    "batch",
    "closed",
    "crash",
    "cut off",
    "deleted",
    "drawn",
    "ended",
    "fails over",
    "fails over again",
    "forgot",
    "full",
    "given back",
    "gone",
    "joined",
    "jump set",
    "jumped",
    "late",
    "lease forgotten",
    "leased",
    "lost",
    "made again",
    "moved",
    "needs next",
    "next not lowered",
    "no answer",
    "no jump",
    "not given back",
    "not noted",
    "opened",
    "operator ends",
    "process ends",
    "reserved",
    "restored",
    "said to be lost",
    "said to be restored",
    "settled",
    "steps set",
    "stop",
    "taken over",
    "void",
    "worker stops",
];

/// Runs histories, and asserts that the guarantees hold and that each of the events is frequent.
fn assert_holds(is_silent: bool, test: &str, guarantees: &[Guarantee], events: &[&str]) {
    let seeds = number("SEED").map_or(0..number("SEEDS").unwrap_or(10_000), |seed| seed..seed + 1);
    let (one, histories) = (seeds.end - seeds.start == 1, seeds.end - seeds.start);
    let counts = on_all_processors(seeds, |seed| {
        let world = run(seed, is_silent, None, one);
        let broken: Vec<_> =
            world.broken.take().into_iter().filter(|(broken, _)| guarantees.contains(broken)).collect();
        assert!(
            broken.is_empty(),
            "{broken:?}\nSEED={seed} cargo test -p snowflake_core --test segments {test} -- --nocapture"
        );
        world.counts.take()
    });
    let seldom: Vec<_> =
        events.iter().filter(|event| counts.get(**event).copied().unwrap_or(0) < histories / 100).collect();
    println!("{counts:?}");
    assert!(one || seldom.is_empty(), "these hardly happen: {seldom:?} in {counts:?}");
}

const ALL: [Guarantee; 11] = [
    Guarantee::Unique,
    Guarantee::Apart,
    Guarantee::Granted,
    Guarantee::Ascending,
    Guarantee::TwoBlocks,
    Guarantee::GivenBack,
    Guarantee::Steps,
    Guarantee::Calm,
    Guarantee::Once,
    Guarantee::Raised,
    Guarantee::Live,
];

#[test]
fn no_two_servers_get_the_same_value_of_a_tag() {
    assert_holds(false, "no_two", &ALL, &EVENTS);
}

/// A restore that nothing shows may repeat what other servers have drawn. On one server values
/// ascend all the same.
#[test]
fn values_ascend_on_a_server_whatever_the_registry_forgets() {
    let guarantees =
        [Guarantee::Granted, Guarantee::Ascending, Guarantee::TwoBlocks, Guarantee::Steps, Guarantee::Live];
    assert_holds(true, "values_ascend", &guarantees, &["restored silently", "below", "forgot"]);
}

/// Asserts that a lie breaks a guarantee, and prints how soon that is seen; with `COUNT`, in how
/// many histories.
fn assert_breaks(is_silent: bool, lie: Lie, guarantee: Guarantee) {
    const SEEDS: u64 = 20_000;
    let broken = |seed: &u64| {
        let world = run(*seed, is_silent, Some(lie), false);
        world.broken.take().iter().any(|(broken, _)| *broken == guarantee)
    };
    if let Some(histories) = number("COUNT") {
        let count = (0..histories).filter(broken).count();
        println!("{lie:?} breaks {guarantee:?} in {count} of {histories} histories");
        return;
    }
    let seed = (0..SEEDS).find(broken);
    assert!(seed.is_some(), "{lie:?} does not break {guarantee:?} in {SEEDS} histories");
    println!("{lie:?} breaks {guarantee:?} in history {seed:?}");
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
        assert_breaks(false, lie, Guarantee::Unique);
    }
}

/// The lies that no random history finds: in these a tag jumps very far, and an operator seldom
/// says where a tag goes on just before the registry forgets.
#[test]
fn a_value_comes_twice_in_a_directed_history_without_a_rule() {
    type History = fn(Option<Lie>) -> World;
    let histories: [(Lie, History); 3] = [
        (Lie::KeepsJump, directed::blocks_become_smaller_before_a_failover),
        (Lie::SaysLate, directed::the_registry_forgets_what_an_operator_did_not_know),
        (Lie::LostAtOnce, directed::a_tag_is_made_while_a_fleet_is_made_anew),
    ];
    for (lie, history) in histories {
        let honest = history(None);
        assert_eq!(*honest.broken.borrow(), [], "{lie:?}");
        let broken = history(Some(lie)).broken.take();
        assert!(broken.iter().any(|(broken, _)| *broken == Guarantee::Unique), "{lie:?}: {broken:?}");
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
        assert_breaks(false, lie, guarantee);
    }
    assert_breaks(true, Lie::NothingAbove, Guarantee::Ascending);
}
