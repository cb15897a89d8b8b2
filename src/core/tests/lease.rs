//! The lease's protocol, step by step: one server after the other, over a registry that does what
//! it is told, as far as no story tells it (`stories/`). `simulation.rs` tests what servers,
//! registry and network do to each other.
//!
//! Each test of liveness says how many calls of the registry are needed, and how long to wait.

// loom's atomics panic outside a loom model.
#![cfg(not(loom))]

mod kit;

use kit::fake::{NoAnswer, START_MS, Server, TERMS, World};
use kit::registry::Kind;
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::lease::{FIRST_LEASE_MS, Gap, Holder, LeaseNotice, LeaseTerms};
use snowflake_core::fleet::membership::FleetNotice;
use snowflake_core::fleet::registry::{Fleet, FleetLimits, NumberKey, RecordChange};

const LEASE_MS: i64 = 600_000;
const SKEW_MS: i64 = 60_000;

/// Ten ticks and a second, in the layout of these tests.
const LEAST_MS: i64 = 11_000;

#[test]
fn nothing_is_drawn_beyond_the_lease_and_nothing_lost_when_the_registry_comes_back() {
    let world = World::new(2);
    let server = world.server(1);
    assert_eq!(server.holder.get().interval_ms(&TERMS, &world.layout), FIRST_LEASE_MS / 10);
    server.keep().unwrap();
    let name = server.holder.get().held().unwrap().holder;
    assert!(name >> 64 != 0 && name as u64 != 0, "half of a lease's name is not random");
    server.is_cut_off.set(true);
    world.pass(FIRST_LEASE_MS - 1000);
    assert_eq!(server.keep(), Err(Failure::Away(NoAnswer)));
    assert!(server.draws());
    world.pass(1000);
    assert!(!server.draws(), "the lease is over");
    server.is_cut_off.set(false);
    // The number is still its own, because no other server has taken it.
    let before = server.held().unwrap();
    assert_eq!((server.keep(), server.calls.get()), (Ok(()), 2));
    assert_eq!(server.held().map(|(worker, from_ms, _)| (worker, from_ms)), Some((before.0, before.1)));
}

#[test]
fn when_all_numbers_are_leased_the_error_says_which_one_is_free_first_unless_it_is_renewed() {
    let world = World::new(2);
    world.operate(|fleet| fleet.range = Some((3, 4)));
    let [one, other, third] = [1, 2, 3].map(|name| world.server(name));
    one.keep().unwrap();
    world.pass(1000);
    other.keep().unwrap();
    let (first, _, at_ms) = one.held().unwrap();
    assert_eq!(third.keep(), Err(Failure::NoneFree { numbers: 2, living: 2, first: None }));
    // The one is gone, and the other goes on.
    world.pass(21_000);
    other.keep().unwrap();
    assert_eq!(third.keep(), Err(Failure::NoneFree { numbers: 2, living: 1, first: Some((first, at_ms)) }));
    world.pass(FIRST_LEASE_MS - 22_000);
    assert_eq!((third.keep(), third.held().map(|held| held.0)), (Ok(()), Some(first)));
    // The one that was away finds that its number is gone, and takes another one when there is one.
    assert!(matches!(one.keep(), Err(Failure::NoneFree { .. })));
    assert!(one.reported(|notice| matches!(notice, LeaseNotice::Lost(_))));
    assert!(!one.draws());
}

/// Both records have no time between their beginning and their end.
#[test]
fn a_number_that_was_given_back_early_is_free_and_one_that_was_reserved_twice_is_not() {
    for (fingerprint, is_free) in [(8, true), (0, false)] {
        let world = World::new(1);
        world.server(1).keep().unwrap();
        let end_ms = world.record(0).until_ms;
        world.edit(0, |record| (record.server, record.from_ms, record.until_ms) = (fingerprint, end_ms, end_ms));
        // A lease of a free one begins at its end.
        let found = world.server(2).keep();
        match is_free {
            true => assert_eq!(found, Err(Failure::Frozen { until_ms: end_ms })),
            false => assert!(matches!(found, Err(Failure::NoneFree { .. })), "{found:?}"),
        }
        world.pass(FIRST_LEASE_MS);
        world.server(3).keep().expect("its end has passed, and nobody has begun");
    }
}

/// The registry has forgotten what each of them has written after the copy was made.
#[test]
fn a_copy_is_found_out_that_has_renewed_as_often() {
    let world = World::new(3);
    let [original, copy] = [1, 1].map(|name| world.server(name));
    original.keep().unwrap();
    copy.is_copy_of(&original);
    let before = world.changes();
    let record = || world.record(original.held().unwrap().0);
    world.pass(3000);
    original.keep().unwrap();
    let renewed = record();
    world.restore(before);
    copy.keep().unwrap();
    assert_eq!((record().holder, record().count), (renewed.holder, renewed.count));
    let _ = original.keep();
    assert!(original.reported(|notice| matches!(notice, LeaseNotice::Copied(_))));
    assert_ne!(original.held().map(|held| held.0), copy.held().map(|held| held.0));
}

#[test]
fn a_crash_loop_on_32_numbers_goes_on() {
    // A server that crashes each second leaves a number locked each time, for half a minute.
    let world = World::new(32);
    for _ in 0..600 {
        let life = world.server(1);
        assert_eq!((life.keep(), life.calls.get()), (Ok(()), 2));
        assert!(life.draws());
        world.pass(1000);
    }
    // One that crashes twice a second waits, and no longer than for a first lease.
    for _ in 0..200 {
        let life = world.server(1);
        let begin_ms = world.time_ms.get();
        while life.keep().is_err() {
            world.pass(1000);
        }
        assert!(world.time_ms.get() - begin_ms <= FIRST_LEASE_MS);
        world.pass(500);
    }
}

/// The registry has lost the last renewal, and the server's clock was set back since.
#[test]
fn a_renewal_ends_no_earlier_than_what_the_registry_has_forgotten() {
    let world = World::new(4);
    let server = world.server(1);
    for _ in 0..6 {
        world.pass(10_000);
        server.keep().unwrap();
    }
    let (worker, _, until_ms) = server.held().unwrap();
    world.fail_over(world.changes() - 1);
    server.offset_ms.set(-SKEW_MS);
    server.keep().unwrap();
    assert_eq!((world.record(worker).until_ms, world.record(worker).offset_ms), (until_ms, -SKEW_MS));
}

#[test]
fn a_registry_that_forgets_twice_is_found_out_twice() {
    let world = World::new(4);
    let holder = world.server(1);
    for generation in 1..=3 {
        for _ in 0..6 {
            world.pass(10_000);
            holder.keep().unwrap();
        }
        let Fleet { generation: found, version, .. } = world.fleet();
        assert_eq!(found, generation);
        world.restore(world.changes() - 1);
        holder.keep().unwrap();
        // Other versions refuse what was decided before.
        assert_ne!(world.fleet().version, version);
    }
}

#[test]
fn the_fleets_record_notes_when_a_count_of_etcd_has_doubled() {
    let world = World::of(Kind::Etcd, "js53", false, 1);
    world.store.borrow_mut().incarnation.counts = [4, 3];
    world.server(1).keep().unwrap();
    assert_eq!(world.fleet().incarnation.counts, [4, 3]);
}

#[test]
fn a_registry_that_was_restored_unnoticed_is_found_out_at_the_next_renewal() {
    let world = World::new(4);
    let [holder, newcomer] = [1, 2].map(|name| world.server(name));
    for _ in 0..6 {
        holder.keep().unwrap();
        world.pass(10_000);
    }
    // Only its first renewal is left, which ended long ago. So it draws on, up to what it knows.
    world.restore(2);
    assert!(matches!(holder.keep(), Err(Failure::Frozen { .. })));
    assert!(holder.reported(|notice| matches!(notice, LeaseNotice::Older(_))));
    assert!(matches!(holder.fleet_notices.borrow()[..], [FleetNotice::Forgot(_)]));
    assert!(matches!(newcomer.keep(), Err(Failure::Frozen { .. })));
    assert!(holder.draws());
}

/// Its number is that of the generation that the backup lacks.
#[test]
fn a_generation_that_an_operator_has_begun_is_enough_for_a_lease_of_one_that_is_forgotten() {
    let world = World::new(4);
    let server = world.server(1);
    // A long lease, which is renewed after a failover.
    for _ in 0..8 {
        server.keep().unwrap();
        world.pass(10_000);
    }
    let backup = world.changes();
    world.fail_over(backup);
    server.keep().unwrap();
    let (forgotten, lease) = (world.fleet(), server.held());
    assert!(forgotten.generation == 2 && lease.is_some());
    world.pass(60_000);
    world.restore(backup);
    let (incarnation, now_ms) = (world.store.borrow().incarnation, world.time_ms.get());
    world.operate(|fleet| *fleet = fleet.begin_generation(incarnation, now_ms, FleetLimits::default(), 0));
    let begun = world.fleet();
    assert!(begun.generation == forgotten.generation && begun.freeze_ms > forgotten.freeze_ms);
    let _ = server.keep();
    assert!(server.reported(|notice| matches!(notice, LeaseNotice::Older(_))));
    assert_eq!(world.fleet().generation, begun.generation);
    // What was forgotten in it begins another one.
    let before = world.changes();
    world.pass(begun.freeze_ms - world.time_ms.get());
    server.keep().unwrap();
    world.pass(10_000);
    server.keep().unwrap();
    world.restore(before);
    let _ = server.keep();
    assert_eq!(world.fleet().generation, begun.generation + 1);
}

#[test]
fn a_fleet_of_another_layout_a_closed_one_and_a_wrong_range_are_refused() {
    let change = |change: fn(&mut Fleet)| {
        let world = World::new(4);
        world.operate(change);
        world.server(1).keep()
    };
    let other = |backup| Err(Failure::OtherLayout { layout: 5, backup });
    assert_eq!(change(|fleet| fleet.layout = Some((5, false))), other(false));
    assert_eq!(change(|fleet| fleet.layout = Some((5, true))), other(true));
    assert_eq!(change(|fleet| fleet.closed = true), Err(Failure::Closed));
    let outside = |range| Err(Failure::OutsideLayout { range, numbers: 32 });
    assert_eq!(change(|fleet| fleet.range = Some((0, 32))), outside((0, 32)));
    assert_eq!(change(|fleet| fleet.range = Some((-1, 3))), outside((-1, 3)));
    assert_eq!(change(|fleet| fleet.range = Some((3, 2))), outside((3, 2)));
    let too_short = || Failure::TooShort { lease_ms: LEAST_MS - 1, least_ms: LEAST_MS };
    assert_eq!(change(|fleet| fleet.longest_ms = LEAST_MS - 1), Err(too_short()));
    assert_eq!(change(|fleet| fleet.longest_ms = LEAST_MS), Ok(()));
    assert_eq!(change(|fleet| fleet.lease_ms = LEAST_MS - 1), Err(too_short()));
    assert_eq!(change(|fleet| fleet.lease_ms = LEAST_MS), Ok(()));
}

#[test]
fn of_two_first_servers_only_one_tells_what_the_fleet_gets() {
    let world = World::new(4);
    world.operate(|fleet| fleet.layout = None);
    let first = world.server(2);
    let slower = world.server(1);
    slower.meanwhile.replace(Some(Box::new(|| first.keep().unwrap())));
    slower.keep().unwrap();
    assert_eq!(*slower.fleet_notices.borrow(), []);
    assert_eq!(*first.fleet_notices.borrow(), [FleetNotice::Adopted(world.fleet())]);
}

#[test]
fn a_fleet_gets_layout_and_range_of_its_first_server_and_limits_that_any_server_brings() {
    let world = World::new(4);
    world.operate(|fleet| (fleet.layout, fleet.range, fleet.longest_ms, fleet.skew_ms) = (None, None, 0, 0));
    // One whose layout has not the numbers of the range is not the first.
    world.operate(|fleet| fleet.range = Some((0, 32)));
    assert_eq!(world.server(1).keep(), Err(Failure::OutsideLayout { range: (0, 32), numbers: 32 }));
    assert_eq!(world.fleet().layout, None);
    world.operate(|fleet| fleet.range = None);
    let [first, second] = [1, 2].map(|name| world.server(name));
    // What it borrows lengthens the leases that it asks for, and no limit.
    first.terms.set(LeaseTerms { max_borrow_ms: 2 * LEASE_MS });
    assert_eq!((first.keep(), first.calls.get()), (Ok(()), 4));
    let Fleet { layout, range, longest_ms, skew_ms, generation, .. } = world.fleet();
    assert_eq!((layout, range), (Some((world.layout.fingerprint(), false)), Some((0, 31))));
    assert_eq!((longest_ms, skew_ms, generation), (LEASE_MS, SKEW_MS, 1));
    assert_eq!(*first.fleet_notices.borrow(), [FleetNotice::Adopted(world.fleet())]);
    // The second one changes nothing.
    assert_eq!((second.keep(), second.calls.get()), (Ok(()), 2));
    assert_eq!(world.fleet().longest_ms, LEASE_MS);
    // An operator may set one limit, or both, before the first server starts.
    for (longest_ms, skew_ms, adopted) in [
        (20_000, 0, (20_000, SKEW_MS)),
        (0, 1000, (LEASE_MS, 1000)),
        (2 * LEASE_MS, 2 * SKEW_MS, (2 * LEASE_MS, 2 * SKEW_MS)),
    ] {
        let world = World::new(4);
        world.operate(|fleet| (fleet.layout, fleet.longest_ms, fleet.skew_ms) = (None, longest_ms, skew_ms));
        world.server(1).keep().unwrap();
        let fleet = world.fleet();
        assert_eq!((fleet.longest_ms, fleet.skew_ms), adopted);
        // What is used is the default up to the limit.
        let used = (LEASE_MS.min(adopted.0), SKEW_MS.min(adopted.1));
        assert_eq!((fleet.used_lease_ms(), fleet.used_skew_ms()), used);
    }
}

/// The first server's start is forgotten. The next one brings the same limits, so that the freeze
/// is as long as the forgotten lease. It is not if an operator sets a lower limit before: the
/// registry refuses that.
#[test]
fn what_the_first_server_has_brought_may_be_forgotten() {
    for lowered_ms in [None, Some(20_000)] {
        let world = World::new(1);
        world.operate(|fleet| (fleet.layout, fleet.longest_ms, fleet.skew_ms) = (None, 0, 0));
        let made = world.changes();
        let [first, second] = [1, 2].map(|name| world.server(name));
        first.terms.set(LeaseTerms { max_borrow_ms: 2 * LEASE_MS });
        first.offset_ms.set(SKEW_MS);
        for _ in 0..6 {
            first.keep().unwrap();
        }
        let (_, _, until_ms) = first.held().unwrap();
        assert_eq!(until_ms, world.time_ms.get() + SKEW_MS + LEASE_MS);
        world.fail_over(made);
        if let Some(longest_ms) = lowered_ms {
            world.operate(|fleet| fleet.longest_ms = longest_ms);
        }
        let Err(Failure::Frozen { until_ms: freeze_ms }) = second.keep() else { panic!("a number is free") };
        assert_eq!(freeze_ms >= until_ms, lowered_ms.is_none(), "a lease would overlap one that is forgotten");
    }
}

#[test]
fn what_an_operator_sets_counts_from_the_next_renewal_on_and_up_to_the_limits() {
    let world = World::new(2);
    let server = world.server(1);
    let renew = |times: u32| {
        (0..times).for_each(|_| {
            world.pass(10_000);
            server.keep().unwrap();
        });
        server.held().unwrap().2 - world.time_ms.get()
    };
    server.keep().unwrap();
    assert_eq!(renew(8), LEASE_MS);
    // Beyond the limit it does not count, and a limit alone does not either.
    world.operate(|fleet| fleet.lease_ms = 2 * LEASE_MS);
    assert_eq!(renew(4), LEASE_MS);
    world.operate(|fleet| fleet.longest_ms = 3 * LEASE_MS / 2);
    assert_eq!(renew(4), 3 * LEASE_MS / 2);
    world.operate(|fleet| fleet.longest_ms = 4 * LEASE_MS);
    assert_eq!(renew(4), 2 * LEASE_MS);
    // What is lowered counts at the next renewal, which does not shorten the lease itself.
    let (_, _, until_ms) = server.held().unwrap();
    world.operate(|fleet| fleet.lease_ms = LEASE_MS / 10);
    renew(1);
    assert_eq!(server.held().unwrap().2, until_ms);
    assert_eq!(server.holder.get().interval_ms(&TERMS, &world.layout), LEASE_MS / 100);
    world.pass(until_ms - world.time_ms.get() - LEASE_MS / 20);
    assert_eq!(renew(1), LEASE_MS / 10);
    // Likewise the skew.
    let off_by = |offset_ms| {
        let other = world.server(2);
        other.offset_ms.set(offset_ms);
        other.keep()
    };
    world.operate(|fleet| fleet.clock_skew_ms = 2 * SKEW_MS);
    assert!(matches!(off_by(-SKEW_MS - 1), Err(Failure::ClockOff { skew_ms: SKEW_MS, .. })));
    world.operate(|fleet| (fleet.skew_ms, fleet.clock_skew_ms) = (2 * SKEW_MS, 0));
    assert!(matches!(off_by(-SKEW_MS - 1), Err(Failure::ClockOff { skew_ms: SKEW_MS, .. })));
    world.operate(|fleet| fleet.clock_skew_ms = 1000);
    assert!(matches!(off_by(-1001), Err(Failure::ClockOff { skew_ms: 1000, .. })));
    world.operate(|fleet| fleet.clock_skew_ms = 2 * SKEW_MS);
    assert_eq!(off_by(-SKEW_MS - 1), Ok(()));
}

/// A limit that was just raised may be forgotten.
#[test]
fn what_is_borrowed_lengthens_no_lease_beyond_what_the_fleet_uses() {
    let world = World::new(1);
    world.operate(|fleet| fleet.longest_ms = 10 * LEASE_MS);
    let server = world.server(1);
    server.terms.set(LeaseTerms { max_borrow_ms: 2 * LEASE_MS });
    server.keep().unwrap();
    assert_eq!(server.held().unwrap().2, START_MS + LEASE_MS);
    world.operate(|fleet| fleet.lease_ms = 4 * LEASE_MS);
    server.keep().unwrap();
    assert_eq!(server.held().unwrap().2, START_MS + LEAST_MS + 2 * LEASE_MS);
}

/// Makes a registry forget something, so that two numbers that were leased are frozen. Returns when
/// that ends.
fn freeze_two_numbers(world: &World) -> i64 {
    let lives = [(); 2].map(|()| world.server(9));
    lives.iter().for_each(|life| life.keep().unwrap());
    world.pass(FIRST_LEASE_MS);
    world.fail_over(world.changes());
    let Err(Failure::Frozen { until_ms }) = world.server(8).keep() else { panic!("a number is free") };
    until_ms
}

#[test]
fn a_lease_that_begins_at_the_end_of_a_freeze_is_entered_at_once() {
    let world = World::new(2);
    let freeze_ms = freeze_two_numbers(&world);
    let server = world.server(1);
    assert_eq!(server.enters_in_ms(), None);
    // From here on, the lease would end after the freeze.
    world.pass(freeze_ms - world.time_ms.get() - 5000);
    server.keep().unwrap();
    assert_eq!((server.held(), server.enters_in_ms()), (None, Some(5000)));
    assert!(server.holder.get().interval_ms(&TERMS, &world.layout) > 5000);
    world.pass(4999);
    server.enter();
    assert_eq!((server.held(), server.enters_in_ms()), (None, Some(1)));
    world.pass(1);
    server.enter();
    assert!(server.draws());
    assert_eq!(server.enters_in_ms(), None);
    // Where the lane is in the next tick, it is entered when the clock is there, too.
    server.give_back();
    let again = server;
    again.keep().unwrap();
    assert_eq!((again.held(), again.enters_in_ms()), (None, Some(1000)));
    world.pass(1000);
    again.enter();
    assert!(again.draws());
}

/// The registry has forgotten a lease altogether, so it is not renewed, and the next one begins
/// after the freeze. All calls succeed meanwhile.
#[test]
fn a_lease_that_ends_before_the_next_one_begins_leaves_a_gap_that_is_known_before() {
    let world = World::new(4);
    let [server, newcomer] = [1, 2].map(|name| world.server(name));
    let gap = |server: &Server| server.holder.get().gap();
    let changes = world.changes();
    for _ in 0..6 {
        server.keep().unwrap();
        assert_eq!(gap(&server), None);
        world.pass(10_000);
    }
    let (_, _, until_ms) = server.held().unwrap();
    world.restore(changes);
    // No number can be used before the end of the freeze, which is known at once.
    let freeze_ms = world.time_ms.get() + LEASE_MS + 2 * SKEW_MS;
    let known = Some(Gap { from_ms: Some(until_ms), until_ms: freeze_ms });
    assert!(until_ms < freeze_ms);
    assert_eq!((server.keep(), gap(&server)), (Err(Failure::Frozen { until_ms: freeze_ms }), known));
    // It is known while the registry is away, too.
    server.is_cut_off.set(true);
    assert_eq!((server.keep(), gap(&server)), (Err(Failure::Away(NoAnswer)), known));
    server.is_cut_off.set(false);
    // For a server that has nothing, it has begun.
    assert_eq!(newcomer.keep(), Err(Failure::Frozen { until_ms: freeze_ms }));
    assert_eq!(gap(&newcomer), Some(Gap { from_ms: None, until_ms: freeze_ms }));
    // From here on, a lease would end after the freeze.
    world.pass(2 * SKEW_MS + 1000);
    while world.time_ms.get() < freeze_ms {
        assert_eq!((server.keep(), gap(&server)), (Ok(()), known));
        assert_eq!(server.draws(), world.time_ms.get() < until_ms);
        world.pass(10_000);
    }
    server.keep().unwrap();
    assert_eq!(gap(&server), None);
    assert!(server.draws());
}

#[test]
fn a_next_lease_that_begins_in_time_leaves_no_gap() {
    let world = World::new(2);
    let server = world.server(1);
    server.keep().unwrap();
    let (worker, _, until_ms) = server.held().unwrap();
    world.operate(|fleet| {
        (fleet.generation, fleet.horizon_ms, fleet.freeze_ms) = (fleet.generation + 1, until_ms, until_ms - 5000);
    });
    server.keep().unwrap();
    let holder = server.holder.get();
    assert!(holder.held().unwrap().worker == worker && holder.next().unwrap().from_ms == until_ms - 5000);
    assert_eq!(holder.gap(), None);
}

#[test]
fn orderly_restarts_in_a_freeze_leave_a_number_for_the_next_one() {
    let world = World::new(2);
    let freeze_ms = freeze_two_numbers(&world);
    world.pass(freeze_ms - world.time_ms.get() - 5000);
    for name in 1..7 {
        let life = world.server(name);
        life.keep().unwrap();
        assert_eq!(life.holder.get().next().map(|next| next.from_ms), Some(freeze_ms));
        life.give_back();
        // A lease that was asked for, and whose answer was lost.
        let life = world.server(name);
        life.loses_answers.set(1);
        assert_eq!(life.keep(), Err(Failure::Away(NoAnswer)));
        life.give_back();
    }
    world.pass(5000);
    let last = world.server(9);
    last.keep().unwrap();
    assert!(last.draws());
}

#[test]
fn a_lease_that_was_asked_for_cannot_arrive_after_it_was_given_back() {
    let world = World::new(1);
    let server = world.server(1);
    server.delays.set(true);
    assert_eq!(server.keep(), Err(Failure::Away(NoAnswer)));
    server.delays.set(false);
    server.give_back();
    let asked = server.delayed.take().unwrap();
    assert!(!world.store.borrow().compares(&asked, false), "the message is written though it arrives late");
    let other = world.server(2);
    assert_eq!((other.keep(), other.held().map(|held| held.0)), (Ok(()), Some(0)));
}

/// The record then shows the lease before this one, which was not given back yet.
#[test]
fn a_server_draws_on_when_the_registry_forgets_a_give_back_and_the_lease_after_it() {
    let world = World::new(2);
    let server = world.server(7);
    for _ in 0..4 {
        server.keep().unwrap();
        world.pass(10_000);
    }
    server.keep().unwrap();
    assert!(server.draws());
    let worker = server.held().unwrap().0;
    server.give_back();
    world.pass(1000);
    let again = world.server(7);
    again.keep().unwrap();
    assert_eq!(again.held().unwrap().0, worker);
    assert!(again.draws());
    world.pass(1000);
    world.fail_over(world.changes() - 2);
    let _ = again.keep();
    assert!(again.draws(), "no other server has the number: {:?}", again.notices.borrow());
}

/// What is left is for the next turn.
#[test]
fn a_turn_ends_after_eight_rounds_in_which_others_are_first() {
    let world = World::new(4);
    let server = world.server(1);
    server.loses_swaps.set(100);
    assert_eq!((server.keep(), server.calls.get()), (Err(Failure::Contended), 16));
    server.loses_swaps.set(7);
    assert_eq!((server.keep(), server.calls.get()), (Ok(()), 16));
    server.loses_swaps.set(100);
    server.calls.set(0);
    let mut holder = server.holder.get();
    assert_eq!((holder.give_back(&server.process()), server.calls.get()), (Err(Failure::Contended), 16));
    server.loses_swaps.set(0);
    assert_eq!(holder.give_back(&server.process()), Ok(()));
}

#[test]
fn a_number_is_given_back_at_the_second_try() {
    let world = World::new(2);
    let server = world.server(7);
    server.keep().unwrap();
    let (worker, _, until_ms) = server.held().unwrap();
    server.is_cut_off.set(true);
    let mut holder = server.holder.get();
    let before = holder;
    assert_eq!(holder.give_back(&server.process()), Err(Failure::Away(NoAnswer)));
    // Without an answer, nothing is left.
    assert!(holder == before && server.draws());
    server.is_cut_off.set(false);
    holder.give_back(&server.process()).unwrap();
    assert!(world.record(worker).until_ms < until_ms);
}

#[test]
fn a_give_back_that_has_arrived_is_not_sent_again() {
    let world = World::new(2);
    let server = world.server(7);
    server.keep().unwrap();
    let mut holder = server.holder.get();
    server.loses_answers.set(1);
    assert_eq!(holder.give_back(&server.process()), Err(Failure::Away(NoAnswer)));
    let changes = world.changes();
    holder.give_back(&server.process()).unwrap();
    assert_eq!(world.changes(), changes);
}

#[test]
fn the_next_lease_of_the_same_number_is_given_back() {
    let world = World::new(2);
    let server = world.server(1);
    server.keep().unwrap();
    // It may not renew: the registry may have forgotten who has the number next.
    world.fail_over(world.changes());
    let Err(Failure::Frozen { until_ms: freeze_ms }) = server.keep() else { panic!("it is not frozen") };
    world.pass(freeze_ms - world.time_ms.get() - 5000);
    server.keep().unwrap();
    let holder = server.holder.get();
    let (held, next) = (holder.held().unwrap(), holder.next().unwrap());
    assert_eq!((held.worker, next.from_ms), (next.worker, freeze_ms));
    server.give_back();
    assert_eq!(world.record(next.worker).until_ms, freeze_ms);
}

#[test]
fn a_server_stops_when_another_one_has_its_number_at_the_same_time() {
    let world = World::new(1);
    let [one, other] = [1, 2].map(|name| world.server(name));
    let before = world.changes();
    one.keep().unwrap();
    // The registry is another one without showing it.
    world.restore(before);
    world.pass(1000);
    other.keep().unwrap();
    assert!(one.draws() && other.draws());
    assert!(matches!(one.keep(), Err(Failure::NoneFree { .. } | Failure::Frozen { .. })));
    assert!(one.reported(|notice| matches!(notice, LeaseNotice::Overlapped(_))));
    assert!(!one.draws() && other.draws());
    assert_eq!(world.fleet().generation, 2);
}

/// The registry shows again what it had before the later one was leased.
#[test]
fn a_server_stops_whose_lease_overlaps_an_earlier_one() {
    let world = World::new(1);
    let [one, other] = [1, 2].map(|name| world.server(name));
    let before = world.changes();
    one.keep().unwrap();
    let with_one = world.store.borrow().prefix(world.changes());
    world.restore(before);
    world.pass(1000);
    other.keep().unwrap();
    world.store.replace(with_one);
    let _ = other.keep();
    assert!(other.reported(|notice| matches!(notice, LeaseNotice::Overlapped(_))));
    assert!(one.draws() && !other.draws());
}

/// The renewal is written, and its answer is lost. Or it arrives after the give-back.
#[test]
fn a_number_is_given_back_whether_a_renewal_arrives_or_not() {
    for arrives in [true, false] {
        let world = World::new(1);
        let server = world.server(1);
        server.keep().unwrap();
        assert!(server.draws());
        world.pass(3000);
        server.delays.set(!arrives);
        server.loses_answers.set(1);
        assert_eq!(server.keep(), Err(Failure::Away(NoAnswer)));
        server.delays.set(false);
        server.loses_answers.set(0);
        server.give_back();
        assert_eq!(world.record(0).until_ms, START_MS + 1000);
        if let Some(renewal) = server.delayed.take() {
            assert!(!world.store.borrow().compares(&renewal, false), "the renewal is written late");
        }
    }
}

#[test]
fn a_server_draws_on_when_the_registry_forgets_that_its_next_lease_was_given_back() {
    let world = World::new(1);
    let freeze_ms = {
        world.server(9).keep().unwrap();
        world.pass(FIRST_LEASE_MS);
        world.fail_over(world.changes());
        let Err(Failure::Frozen { until_ms }) = world.server(8).keep() else { panic!("a number is free") };
        until_ms
    };
    world.pass(freeze_ms - world.time_ms.get() - 5000);
    let life = world.server(7);
    life.keep().unwrap();
    let forgotten = world.changes();
    life.give_back();
    let again = world.server(7);
    again.keep().unwrap();
    assert_eq!(again.holder.get().next().map(|next| next.from_ms), Some(freeze_ms));
    world.pass(5000);
    again.enter();
    assert!(again.draws());
    world.fail_over(forgotten);
    let _ = again.keep();
    assert!(!again.reported(|notice| matches!(notice, LeaseNotice::Overlapped(_))));
    assert!(again.draws(), "no other server has the number: {:?}", again.notices.borrow());
}

#[test]
fn a_give_back_writes_no_empty_lease_over_one_that_may_be_forgotten() {
    let world = World::new(1);
    let (first, before) = (world.server(1), world.changes());
    let second = world.server(2);
    *second.meanwhile.borrow_mut() = Some(Box::new(|| {
        first.keep().unwrap();
        world.fail_over(before);
    }));
    second.delays.set(true);
    assert_eq!(second.keep(), Err(Failure::Away(NoAnswer)));
    second.delays.set(false);
    second.give_back();
    assert!(world.store.borrow().numbers.is_empty());
    let _ = first.keep();
    assert!(first.draws());
}

#[test]
fn a_slow_registry_is_not_taken_for_a_wrong_clock() {
    let skew_ms = 1000;
    for takes_ms in [[0, 10 * skew_ms], [10 * skew_ms, 0]] {
        let keeps = |offset_ms| {
            let world = World::new(1);
            let server = world.server(1);
            world.operate(|fleet| fleet.clock_skew_ms = skew_ms);
            server.takes_ms.set(takes_ms);
            server.offset_ms.set(offset_ms);
            server.keep()
        };
        assert_eq!(keeps(0), Ok(()));
        // What the time of the call does not explain is refused.
        for offset_ms in [12 * skew_ms, -12 * skew_ms] {
            assert!(matches!(keeps(offset_ms), Err(Failure::ClockOff { .. })));
        }
    }
    // It does not make a number free whose holder the horizon does not allow for.
    let world = World::new(1);
    let [one, other] = [1, 2].map(|name| world.server(name));
    one.keep().unwrap();
    other.takes_ms.set([0, FIRST_LEASE_MS]);
    world.operate(|fleet| fleet.clock_skew_ms = skew_ms);
    assert!(matches!(other.keep(), Err(Failure::NoneFree { .. })));
}

#[test]
fn numbers_that_are_left_before_an_id_is_drawn_have_reached_no_tick() {
    let world = World::new(1);
    let server = world.server(1);
    assert_eq!(server.memory.numbers.leave(&server.memory.marks, &server.memory.generator, &world.layout), None);
}

#[test]
fn the_last_lease_ends_with_the_layouts_time() {
    let world = World::new(1);
    let end_ms = world.layout.start_of_ms(world.layout.last_tick()) + 1000;
    world.pass(end_ms - START_MS - 5000);
    let server = world.server(1);
    server.keep().unwrap();
    assert_eq!(server.held().map(|held| held.2), Some(end_ms));
    world.pass(4999);
    assert!(server.draws());
}

#[test]
fn a_lease_begins_on_a_ticks_boundary_after_an_end_that_a_person_has_typed() {
    let world = World::new(1);
    let server = world.server(1);
    server.keep().unwrap();
    server.give_back();
    world.edit(0, |record| record.until_ms = START_MS + 5001);
    world.pass(5500);
    let next = world.server(2);
    next.keep().unwrap();
    let lease = next.holder.get().next().or(next.holder.get().held()).unwrap();
    assert_eq!((lease.from_ms, lease.until_ms % 1000), (START_MS + 6000, 0));
    assert!(!next.draws(), "its tick is not wholly in the lease");
    world.pass(500);
    next.enter();
    assert!(next.draws());
}

/// The process that uses the holder ends at each of its calls in turn, and another one goes on with
/// what it has left. (The words of the numbers are changed whole here: loom tests these.)
#[test]
fn a_holder_survives_the_end_of_its_process_at_any_call() {
    type Life = fn(&mut Holder, &Server<'_>);
    let lives: [Life; 3] = [
        |holder, server| drop(holder.renew_or_acquire(&server.process(), &TERMS)),
        |holder, server| drop(holder.give_back(&server.process())),
        |holder, server| drop(holder.enter(&server.process(), &TERMS)),
    ];
    let mut deaths = 0;
    for (first, second) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)] {
        for (renewals, dies_at) in (0..80).flat_map(|dies_at| [0, 1, 2].map(|renewals| (renewals, dies_at))) {
            let world = World::new(2);
            let [server, other] = [1, 2].map(|name| world.server(name));
            // It has nothing, or a lease, or a lease and a renewal without an answer.
            if renewals > 0 {
                server.keep().unwrap();
            }
            world.pass(3000);
            if renewals > 1 {
                server.loses_answers.set(1);
                assert_eq!(server.keep(), Err(Failure::Away(NoAnswer)));
            }
            let (mut holder, has_died) = server.dies(dies_at, |holder| lives[first](holder, &server));
            deaths += u32::from(has_died);
            lives[second](&mut holder, &server);
            world.pass(1000);
            holder.renew_or_acquire(&server.process(), &TERMS).unwrap();
            assert!(server.draws(), "{first} {second} {dies_at}: {holder:?}");
            // What it draws with is what the registry has, and no copy of it was suspected.
            let held = holder.held().unwrap();
            let record = world.record(held.worker);
            assert_eq!((record.holder, record.from_ms, record.until_ms), (held.holder, held.from_ms, held.until_ms));
            assert_eq!(server.memory.numbers.read(&world.layout).unwrap().until_ms(), held.until_ms);
            let is_alarm = |notice: &LeaseNotice| matches!(notice, LeaseNotice::Copied(_) | LeaseNotice::Overlapped(_));
            assert!(!server.reported(is_alarm), "{first} {second} {dies_at}");
            // At most one number is left locked, up to the end of a lease that was renewed once.
            world.pass(2 * FIRST_LEASE_MS);
            assert_eq!(other.keep(), Ok(()));
        }
    }
    assert!(deaths > 50, "only {deaths} processes have ended early");
}

/// What the lanes had reached is unknown then, so that not even a renewal without an answer gives
/// anything back.
#[test]
fn what_a_process_was_leaving_when_it_ended_stays_leased_to_its_end() {
    let world = World::new(1);
    let server = world.server(1);
    server.keep().unwrap();
    world.pass(3000);
    assert!(server.draws());
    server.loses_answers.set(1);
    assert_eq!(server.keep(), Err(Failure::Away(NoAnswer)));
    // It ends when the numbers are left, before that is noted.
    let (holder, has_died) = server.dies(6, |holder| drop(holder.give_back(&server.process())));
    assert!(has_died && !server.draws());
    server.holder.set(holder);
    server.give_back();
    let until_ms = world.record(0).until_ms;
    assert!(until_ms > START_MS + FIRST_LEASE_MS, "the renewal is written");
    let other = world.server(2);
    assert!(matches!(other.keep(), Err(Failure::NoneFree { .. })));
    world.pass(until_ms - world.time_ms.get());
    assert_eq!(other.keep(), Ok(()));
}

/// Makes a server hold a number and have another one next, which begins in 5 seconds.
fn lease_two_numbers(world: &World) -> Server<'_> {
    let server = world.server(1);
    server.keep().unwrap();
    let held = server.held().unwrap().0;
    world.fail_over(1);
    let Err(Failure::Frozen { until_ms: freeze_ms }) = server.keep() else { panic!("it is not frozen") };
    world.pass(freeze_ms - world.time_ms.get() - 5000);
    // The registry no longer knows which number it had, so another one comes next.
    server.keep().unwrap();
    let holder = server.holder.get();
    assert!(holder.held().unwrap().worker == held && holder.next().unwrap().worker != held);
    server
}

/// The clock is then set back, so that the next process does not enter the lease.
#[test]
fn a_number_that_was_being_left_is_not_drawn_with_in_the_lease_of_the_next() {
    for dies_at in 0..8 {
        let world = World::new(32);
        let server = lease_two_numbers(&world);
        let before = server.memory.numbers.read(&world.layout).unwrap();
        world.pass(5000);
        let (mut holder, _) = server.dies(dies_at, |holder| drop(holder.enter(&server.process(), &TERMS)));
        server.offset_ms.set(-10_000);
        holder.renew_or_acquire(&server.process(), &TERMS).unwrap();
        let now = server.memory.numbers.read(&world.layout).unwrap();
        assert!(now.identity() != before.identity() || now.until_ms() == before.until_ms(), "{dies_at}");
    }
}

#[test]
fn the_next_lease_of_another_number_is_given_back() {
    let world = World::new(32);
    let server = lease_two_numbers(&world);
    let next = server.holder.get().next().unwrap();
    server.give_back();
    assert_eq!(world.record(next.worker).until_ms, next.from_ms);
}

#[test]
fn a_give_back_of_two_numbers_that_was_cut_off_looks_like_no_copy() {
    for dies_at in 0..24 {
        let world = World::new(32);
        let server = lease_two_numbers(&world);
        let (mut holder, _) = server.dies(dies_at, |holder| drop(holder.give_back(&server.process())));
        world.pass(5000);
        holder.renew_or_acquire(&server.process(), &TERMS).unwrap();
        assert!(
            !server.reported(|notice| matches!(notice, LeaseNotice::Copied(_) | LeaseNotice::Overlapped(_))),
            "{dies_at}"
        );
        assert!(server.draws(), "{dies_at}");
    }
}

/// It has not renewed for longer than its lease, and an operator has deleted the records that are
/// over.
#[test]
fn a_server_whose_record_was_deleted_leases_a_number_anew_and_freezes_nothing() {
    let world = World::new(2);
    let [sleeping, other] = [1, 2].map(|name| world.server(name));
    sleeping.keep().unwrap();
    let (worker, _, until_ms) = sleeping.held().unwrap();
    world.pass(FIRST_LEASE_MS + 2 * SKEW_MS);
    world.operate(|fleet| fleet.freeze_ms = until_ms);
    let was = world.record(worker).nonce;
    world.store.borrow_mut().write(vec![RecordChange::DropNumber { number: NumberKey::new(None, worker), was }]);
    // A clock that is set back as far as may be does not lead to times that were leased.
    other.offset_ms.set(-SKEW_MS);
    other.keep().unwrap();
    world.pass(SKEW_MS);
    sleeping.keep().unwrap();
    assert!(sleeping.draws() && sleeping.held().unwrap().1 >= until_ms);
    assert!(!sleeping.reported(|notice| matches!(notice, LeaseNotice::Older(_))));
    assert_eq!(*sleeping.fleet_notices.borrow(), []);
    assert_eq!((world.fleet().generation, world.fleet().freeze_ms), (1, until_ms));
}

/// A reload that names another registry by mistake.
#[test]
fn a_server_changes_nothing_in_the_registry_of_another_fleet() {
    let world = World::new(4);
    let server = world.server(1);
    server.keep().unwrap();
    let held = server.held();
    let mut fleet = world.store.borrow().fleet;
    fleet.uuid = 2;
    fleet.incarnation.store += 1;
    world.store.borrow_mut().write(vec![RecordChange::Fleet(fleet)]);
    let before = world.changes();
    world.pass(3000);
    assert_eq!(server.keep(), Err(Failure::OtherFleet { known: 1, found: 2 }));
    let mut holder = server.holder.get();
    assert_eq!(holder.give_back(&server.process()), Err(Failure::OtherFleet { known: 1, found: 2 }));
    assert_eq!((world.changes(), server.held()), (before, held));
    // Another life may belong to it. It finds another store than the one of the fleet's record.
    assert!(matches!(world.server(1).keep(), Err(Failure::Frozen { .. })));
}
