//! The supply of blocks, step by step, over a registry that does what it is told. `simulation.rs`
//! tests what servers, registry and network do to each other.
//!
//! Each test of liveness says how many calls of the registry are needed.

// loom's atomics panic outside a loom model.
#![cfg(not(loom))]

mod kit;

use kit::fake::{NoAnswer, START_MS, World};
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::membership::FleetNotice;
use snowflake_core::fleet::pace::{AttemptFailure, Pace};
use snowflake_core::fleet::registry::{Fleet, RecordChange, TagRecord};
use snowflake_core::fleet::segment::{END, PLACES, Supply};
use snowflake_core::fleet::tag::Tag;

fn tag(number: usize) -> Tag {
    Tag::new(&format!("tag {number}")).unwrap()
}

/// Returns a fleet that has so many tags.
fn with_tags(tags: usize) -> World {
    let world = World::new(2);
    let record = TagRecord {
        id: 1,
        next: 1,
        steps: (10, 100),
        jumps: true,
        nonce: 1,
        generation: 1,
        written_ms: START_MS,
        returnable: END,
    };
    let change = |number| RecordChange::Tag { tag: tag(number), was: None, record: Some(record) };
    world.store.borrow_mut().write((0..tags).map(change).collect());
    world
}

fn next_of(world: &World, number: usize) -> i64 {
    world.store.borrow().tags[&tag(number)].next
}

#[test]
fn a_first_block_takes_two_calls_and_a_look_one() {
    let (world, mut supply) = (with_tags(1), Supply::new());
    let server = world.server(1);
    assert_eq!((server.draw_value(tag(0)), server.supply(&mut supply)), (None, 2));
    assert_eq!(server.draw_value(tag(0)), Some(1));
    // A tenth is drawn.
    assert_eq!((server.supply(&mut supply), next_of(&world, 0)), (2, 21));
    assert_eq!((server.supply(&mut supply), supply.looks_in_ms(&server.process())), (0, Some(10_000)));
    world.time_ms.set(START_MS + 10_000);
    assert_eq!((server.supply(&mut supply), next_of(&world, 0)), (1, 21));
}

#[test]
fn as_many_tags_as_a_server_can_use_take_three_swaps() {
    let (world, mut supply) = (with_tags(PLACES), Supply::new());
    let server = world.server(1);
    assert!((0..PLACES).all(|number| server.draw_value(tag(number)).is_none()));
    assert_eq!(server.supply(&mut supply), 6);
    assert!((0..PLACES).all(|number| server.draw_value(tag(number)) == Some(1)));
    server.calls.set(0);
    assert_eq!((server.give_values_back(&mut supply), server.calls.get()), (Ok(()), 6));
    assert!((0..PLACES).all(|number| next_of(&world, number) == 2));
}

/// Nothing of the swap is written then.
#[test]
fn a_tag_that_another_server_changes_meanwhile_costs_two_calls_more() {
    let world = with_tags(2);
    let [mut one, other] = [world.server(1), world.server(1)];
    let (mut supply, mut others) = (Supply::new(), Supply::new());
    assert!((0..2).all(|number| one.draw_value(tag(number)).is_none()) && other.draw_value(tag(1)).is_none());
    assert_eq!(one.step(&mut supply), None);
    other.supply(&mut others);
    let mut calls = 1;
    while one.step(&mut supply).is_none() {
        calls += 1;
    }
    assert_eq!((calls, one.calls.get()), (4, 4));
    assert_eq!(
        (one.draw_value(tag(0)), one.draw_value(tag(1)), other.draw_value(tag(1))),
        (Some(1), Some(11), Some(1))
    );
}

/// The worst case: all read before one swaps. Each refusal is another server's block, so that all
/// have theirs after as many rounds as there are servers.
#[test]
fn of_servers_that_ask_at_once_one_gets_a_block_in_each_round() {
    const SERVERS: usize = 50;
    let Rounds { rounds, contended, mut drawn, .. } = rounds(SERVERS, |_, _| 0);
    assert_eq!(rounds, SERVERS);
    assert!(contended > 0, "no server has had to come again");
    drawn.sort_unstable();
    assert!(drawn.into_iter().eq((0..SERVERS as i64).map(|nth| 1 + 10 * nth)));
}

/// How servers that want one tag in the same moment get their blocks. In a round, all that ask read
/// before one of them swaps.
struct Rounds {
    rounds: usize,
    /// How often a server has lost again and again.
    contended: u32,
    /// How often each server has called the registry.
    calls: Vec<u32>,
    /// The first value that each server draws.
    drawn: Vec<i64>,
}

/// `waits` says for how many rounds a server waits that has lost again and again; 0 for not at all.
fn rounds(servers: usize, mut waits: impl FnMut(usize, usize) -> usize) -> Rounds {
    let world = with_tags(1);
    let mut servers: Vec<_> = (0..servers).map(|_| (world.server(1), Box::new(Supply::new()))).collect();
    servers.iter().for_each(|(server, _)| assert_eq!(server.draw_value(tag(0)), None));
    // When each server asks next.
    let mut due = vec![0; servers.len()];
    let mut contended = 0;
    for round in 0.. {
        for (nth, (server, supply)) in servers.iter_mut().enumerate() {
            while due[nth] <= round {
                match server.step(supply) {
                    // It has read.
                    None => break,
                    Some(Err(Failure::Contended)) => {
                        contended += 1;
                        due[nth] = round + waits(nth, round);
                    }
                    Some(Ok(())) => due[nth] = usize::MAX,
                    result => panic!("{result:?} in round {round}"),
                }
            }
        }
        if due.iter().all(|due| *due == usize::MAX) {
            let calls = servers.iter().map(|(server, _)| server.calls.get()).collect();
            let drawn = servers.iter().map(|(server, _)| server.draw_value(tag(0)).expect("it has a block")).collect();
            return Rounds { rounds: round, contended, calls, drawn };
        }
        for ((server, supply), _) in servers.iter_mut().zip(&due).filter(|(_, due)| **due <= round) {
            assert_eq!(server.step(supply), None, "it has swapped");
        }
    }
    unreachable!("it returns")
}

#[test]
fn of_a_thousand_servers_that_want_one_tag_at_once_none_asks_for_it_often() {
    const SERVERS: usize = 1000;
    /// How long a read and a swap take.
    const ROUND_MS: i64 = 5;
    let (mut paces, mut bits) = (vec![Pace::default(); SERVERS], 0_u64);
    let Rounds { rounds, calls, .. } = rounds(SERVERS, |nth, round| {
        bits = bits.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let wait_ms = paces[nth].failed(AttemptFailure::Contended, round as i64 * ROUND_MS, bits >> 33);
        1 + (wait_ms / ROUND_MS) as usize
    });
    let (all, most) = (calls.iter().sum::<u32>(), calls.iter().max().unwrap());
    println!("{rounds} rounds, {all} calls, {most} by one server");
    // No fewer rounds are possible than there are servers.
    assert!(rounds < 3 * SERVERS && all < 60 * SERVERS as u32 && *most < 150, "{rounds} rounds, {all} calls, {most}");
}

/// The negative control: each server asks in each round, up to its block.
#[test]
fn servers_that_do_not_wait_ask_as_often_as_there_are_servers() {
    const SERVERS: usize = 200;
    let Rounds { calls, .. } = rounds(SERVERS, |_, _| 0);
    assert!(calls.iter().sum::<u32>() > 150 * SERVERS as u32, "{calls:?}");
}

/// What the holder of the server's lease has read counts, too: the registry may have forgotten it.
#[test]
fn a_generation_that_a_supply_begins_counts_with_the_limits_that_the_holder_has_read() {
    let (world, mut supply) = (with_tags(1), Supply::new());
    let server = world.server(1);
    server.draw_value(tag(0));
    server.supply(&mut supply);
    let fleet = world.store.borrow().fleet;
    let raised = Fleet { longest_ms: 3 * fleet.longest_ms, skew_ms: 2 * fleet.skew_ms, ..fleet };
    let mut holder = server.holder.get();
    holder.membership.read(&raised).unwrap();
    server.holder.set(holder);
    // A backup from before the raise, and from before the block.
    let Some(record) = world.store.borrow().tags.get(&tag(0)).copied() else { panic!("the tag is there") };
    let older = RecordChange::Tag { tag: tag(0), was: None, record: Some(TagRecord { next: 1, ..record }) };
    world.store.borrow_mut().write(vec![older]);
    world.time_ms.set(START_MS + 10_000);
    server.supply(&mut supply);
    let begun = world.store.borrow().fleet;
    let now_ms = world.time_ms.get();
    assert_eq!(begun.generation, fleet.generation + 1);
    assert_eq!(begun.freeze_ms, now_ms + raised.longest_ms + 2 * raised.skew_ms);
    assert_eq!(*server.fleet_notices.borrow(), [FleetNotice::Forgot(begun)]);
}

/// Wherever a process ends, the next one supplies its server, and one block at most is lost.
#[test]
fn a_supply_survives_the_end_of_its_process_at_any_call() {
    for gives_back in [false, true] {
        let mut goes_on = 0;
        loop {
            let (world, mut supply) = (with_tags(1), Supply::new());
            let server = world.server(1);
            server.draw_value(tag(0));
            server.supply(&mut supply);
            assert_eq!(server.draw_value(tag(0)), Some(1));
            server.dies_in.set(goes_on);
            let result = match gives_back {
                true => server.give_values_back(&mut supply),
                false => server.try_to_supply(&mut supply),
            };
            server.dies_in.set(u32::MAX);
            server.supply(&mut supply);
            let drawn = server.draw_value(tag(0)).expect("it has a block");
            let most = if gives_back { 11 } else { 2 };
            assert!((2..=most).contains(&drawn), "{drawn} after {goes_on}");
            assert!(next_of(&world, 0) <= 31);
            if result == Ok(()) {
                break;
            }
            assert_eq!(result, Err(Failure::Away(NoAnswer)));
            goes_on += 1;
        }
        assert!(goes_on >= 4, "gives back: {gives_back}");
    }
}
