//! Servers whose clocks may do anything. They crash, and are promoted, copied and restored, at
//! every step of the mark's protocol.
//!
//! The protocol and the generator are the real ones. The log, clocks, locks and sessions are
//! simulated from one seed: the same seed always gives the same history. `simulation/world.rs` says
//! what must hold ([`Guarantee`]). It also says what is done wrong on purpose ([`Lie`]), to show
//! that each guarantee's check can fail.
//!
//! `SEEDS=100000` sets how many histories are run. A failing history is printed, and `SEED=123`
//! prints it again.

// loom's atomics panic outside a loom model.
#![cfg(not(loom))]

#[path = "simulation/log.rs"]
mod log;
#[path = "simulation/random.rs"]
mod random;
#[path = "simulation/server.rs"]
mod server;
#[path = "simulation/session.rs"]
mod session;
#[path = "simulation/world.rs"]
mod world;

use std::collections::BTreeMap;

use world::{Guarantee, Lie, World};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Prints how to repeat a history that fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("SEED={} cargo test -p snowflake_core --test simulation no_id -- --nocapture", self.0);
        }
    }
}

fn run(seed: u64, lie: Option<Lie>, tells: bool) -> World {
    let world = World::new(seed, lie, tells);
    world.run();
    world
}

/// What must happen often in the histories, because they would otherwise show little.
const EVENTS: [&str; 21] = [
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
    "failover",
    "jumped",
    "other layout",
    "reset",
    "reset refused",
    "restore",
    "rollback",
    "sequences copied",
    "standby",
    "stored",
];

#[test]
fn no_id_comes_twice_whatever_happens_to_the_servers() {
    let one = number("SEED");
    let seeds = one.map_or(0..number("SEEDS").unwrap_or(100_000), |seed| seed..seed + 1);
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for seed in seeds.clone() {
        let _replay = Replay(seed);
        let world = run(seed, None, one.is_some());
        if let Some((guarantee, what)) = world.broken.borrow().first() {
            if one.is_none() {
                run(seed, None, true);
            }
            panic!("{guarantee:?}: {what}");
        }
        for (what, count) in world.counts.take() {
            *counts.entry(what).or_default() += count;
        }
    }
    println!("{seeds:?}: {counts:?}");
    let often = (seeds.end - seeds.start) / 20;
    assert!(
        EVENTS.iter().all(|event| counts.get(event).copied().unwrap_or(0) >= often),
        "something hardly happens: {counts:?}"
    );
}

/// Asserts that a lie breaks a promise, and prints how soon that is seen.
fn assert_breaks(lie: Lie, guarantee: Guarantee) {
    const SEEDS: u64 = 20_000;
    let breaks =
        |seed: &u64| run(*seed, Some(lie), false).broken.borrow().iter().any(|(broken, _)| *broken == guarantee);
    let seed = (0..SEEDS).find(breaks);
    assert!(seed.is_some(), "{lie:?} does not break {guarantee:?} in {SEEDS} histories");
    println!("{lie:?} breaks {guarantee:?} in history {seed:?}");
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
        (Lie::NoLookAhead, &[Guarantee::G1, Guarantee::G2, Guarantee::Flushed]),
        (Lie::NothingStored, &[Guarantee::G1, Guarantee::G2, Guarantee::Order, Guarantee::Advance]),
        (Lie::NoIdentity, &[Guarantee::G1, Guarantee::G2, Guarantee::Order, Guarantee::Reset]),
        (Lie::NoLayout, &[Guarantee::Layout]),
        (Lie::NoLock, &[Guarantee::G1, Guarantee::G2]),
        (Lie::NoRecheck, &[Guarantee::G1]),
        (Lie::NothingRemembered, &[Guarantee::G1]),
        (Lie::MarksSurvive, &[Guarantee::G1, Guarantee::G2]),
        (Lie::TooFarAhead, &[Guarantee::Bounded]),
        (Lie::AlwaysForced, &[Guarantee::Ahead]),
    ] {
        for guarantee in guarantees {
            assert_breaks(lie, *guarantee);
        }
    }
}
