//! What operators may do, one operation after the other: each refusal with its facts, and each
//! outcome with what is written. The simulations test what operators, servers and the registry do
//! to each other.

// loom's atomics panic outside a loom model.
#![cfg(not(loom))]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use snowflake_core::clock::DAY_MS;
use snowflake_core::fleet::operate::{
    Began, Decision, JumpedTag, LEASES_MS, NotPerformed, Operation, Outcome, RESERVED_AHEAD_MS, Refusal, Restored,
    SKEWS_MS, STEPS, Turn, decide, lost_fleet, new_fleet, prunable_before,
};
use snowflake_core::fleet::registry::{
    DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, Fleet, Incarnation, MOST_CHANGES, NumberKey, NumberRecord, Reading,
    RecordChange, Store, Swap, SwapAnswer, TagRecord, Wanted, WantedNumbers, WantedTags,
};
use snowflake_core::fleet::segment::{END, JUMP, LONGEST_BLOCK};
use snowflake_core::fleet::tag::Tag;
use snowflake_core::id::layout::Layout;

const NOW_MS: i64 = 1_800_000_000_000;
const POSTGRES: Incarnation = Incarnation { store: 1, timeline: 1, counts: [0; 2] };
const ETCD: Incarnation = Incarnation { store: 1, timeline: 0, counts: [2, 3] };
const LEASE_MS: i64 = 600_000;
const SKEW_MS: i64 = 60_000;

/// A fleet of 1024 numbers, whose first server has brought layout, range and limits.
fn fleet() -> Fleet {
    let layout = Layout::parse("snowflake").unwrap().fingerprint();
    Fleet {
        layout: Some((layout, false)),
        range: Some((0, 1023)),
        longest_ms: LEASE_MS,
        skew_ms: SKEW_MS,
        ..new_fleet(7, POSTGRES, 1)
    }
}

fn of_layout(layout: &str, backup: bool) -> Fleet {
    Fleet { layout: Some((Layout::parse(layout).unwrap().fingerprint(), backup)), range: None, ..fleet() }
}

fn reading(fleet: Fleet) -> Reading {
    Reading { fleet, numbers: BTreeMap::new(), tags: BTreeMap::new(), incarnation: fleet.incarnation, now_ms: NOW_MS }
}

/// A registry that has failed over since the fleet's record was written.
fn failed_over(fleet: Fleet) -> Reading {
    Reading { incarnation: Incarnation { timeline: 2, ..fleet.incarnation }, ..reading(fleet) }
}

fn number(worker: i64) -> NumberKey {
    NumberKey::new(None, worker)
}

fn lease(until_ms: i64) -> NumberRecord {
    NumberRecord {
        holder: 9,
        nonce: 50,
        count: 3,
        server: 8,
        from_ms: until_ms - 1000,
        until_ms,
        generation: 1,
        renewed_ms: NOW_MS - 500,
        offset_ms: 5,
    }
}

/// What `reserve` writes.
fn kept(until_ms: i64) -> NumberRecord {
    NumberRecord { server: 0, offset_ms: 0, ..lease(until_ms) }
}

fn with_number(fleet: Fleet, worker: i64, record: NumberRecord) -> Reading {
    Reading { numbers: BTreeMap::from([(number(worker), record)]), ..reading(fleet) }
}

fn tag() -> Tag {
    Tag::new("orders").unwrap()
}

fn tag_record() -> TagRecord {
    TagRecord {
        id: 40,
        next: 5000,
        steps: (10, 1000),
        jumps: true,
        nonce: 60,
        generation: 1,
        written_ms: NOW_MS - 10_000,
        returnable: 4000,
    }
}

fn with_tag(fleet: Fleet, record: TagRecord) -> Reading {
    Reading { tags: BTreeMap::from([(tag(), record)]), ..reading(fleet) }
}

/// Decides with the random numbers 101, 102, ...
fn decided(operation: &Operation, reading: &Reading) -> Result<Decision, Refusal> {
    let mut random = 100;
    decide(operation, &Began::at(reading), reading, &mut || {
        random += 1;
        random
    })
}

/// Returns what an operation does, and the fleet's record that it writes, which is all it writes.
#[track_caller]
fn sets(operation: &Operation, reading: &Reading) -> (Outcome, Fleet) {
    let Decision { changes, is_last, outcome } = decided(operation, reading).unwrap();
    let [RecordChange::Fleet(fleet)] = changes.as_slice() else { panic!("{changes:?}") };
    assert!(is_last, "{outcome:?}");
    assert_ne!(fleet.version, reading.fleet.version);
    (outcome, Fleet { version: reading.fleet.version, ..*fleet })
}

#[track_caller]
fn refuses(operation: &Operation, reading: &Reading, refusal: Refusal) {
    assert_eq!(decided(operation, reading), Err(refusal), "{operation:?}");
}

#[test]
fn an_operation_reads_what_it_needs() {
    let fleet_alone = [
        Operation::SetRange { first: 0, last: 1 },
        Operation::SetLimits { lease_ms: None, skew_ms: None },
        Operation::SetLease { lease_ms: None, skew_ms: None },
        Operation::SetLosesNothing { loses_nothing: true },
        Operation::Close,
        Operation::Open { moved: None },
    ];
    for operation in fleet_alone {
        assert_eq!(operation.wanted(), Wanted::default(), "{operation:?}");
    }
    let of_numbers = Wanted { numbers: WantedNumbers::All, tags: WantedTags::None };
    assert_eq!(Operation::ResetSettings.wanted(), of_numbers);
    assert_eq!(Operation::Restored { lease_ms: None, skew_ms: None }.wanted(), Wanted::all());
    assert_eq!(Operation::Lost { lease_ms: 1000, skew_ms: 10, uuid: None }.wanted(), Wanted::all());
    let reserve = Operation::Reserve { number: number(5), until_ms: 0, force: false };
    assert_eq!(reserve.wanted(), Wanted::number(number(5)));
    for operation in [
        Operation::CreateTag { tag: tag(), next: 1, steps: (1, 1), jumps: false },
        Operation::SetTag { tag: tag(), next: None, least: None, greatest: None, jumps: None },
        Operation::DropTag { tag: tag() },
    ] {
        assert_eq!(operation.wanted(), Wanted::tags(vec![tag()]), "{operation:?}");
    }
}

#[test]
fn a_range_lies_within_the_layout() {
    let range = |first, last| Operation::SetRange { first, last };
    for (fleet, last, numbers) in [
        (fleet(), 1023, Some(1024)),
        (of_layout("snowflake", true), 511, Some(512)),
        (of_layout("js53", false), 31, Some(32)),
        (of_layout("mastodon", false), 0, Some(1)),
        // Its own numbers in each datacenter.
        (of_layout("twitter", false), 31, Some(32)),
        // Not built in, so that the operator has to know.
        (of_layout("time:41 worker:3 sequence:19 unit:1ms epoch:2025-01-01T00:00:00Z", false), i64::MAX, None),
        // No server has brought one.
        (Fleet { layout: None, ..fleet() }, i64::MAX, None),
    ] {
        let first = last.min(3);
        let (outcome, new) = sets(&range(first, last), &reading(fleet));
        assert_eq!(outcome, Outcome::RangeSet { first, last, numbers });
        assert_eq!(new, Fleet { range: Some((first, last)), ..fleet });
        if let Some(numbers) = numbers {
            let refusal = Refusal::RangeOutsideLayout { first, last: numbers, numbers };
            refuses(&range(first, numbers), &reading(fleet), refusal);
        }
    }
    refuses(&range(-1, 5), &reading(fleet()), Refusal::RangeBelowZero { first: -1 });
    refuses(&range(6, 5), &reading(fleet()), Refusal::EmptyRange { first: 6, last: 5 });
}

#[test]
fn limits_are_within_bounds() {
    for lease_ms in [i64::MIN, -1, 0, 999, 30 * DAY_MS + 1, i64::MAX] {
        let refusal = Refusal::LeaseOutside { lease_ms, allowed: LEASES_MS };
        let given = Some(lease_ms);
        refuses(&Operation::SetLimits { lease_ms: given, skew_ms: None }, &reading(fleet()), refusal.clone());
        refuses(&Operation::SetLease { lease_ms: given, skew_ms: None }, &reading(fleet()), refusal.clone());
        refuses(&Operation::Restored { lease_ms: given, skew_ms: None }, &reading(fleet()), refusal.clone());
        refuses(&Operation::Lost { lease_ms, skew_ms: 10, uuid: None }, &reading(fleet()), refusal.clone());
        assert_eq!(lost_fleet(&new_fleet(7, POSTGRES, 1), NOW_MS, lease_ms, 10, 2), Err(refusal));
    }
    for skew_ms in [i64::MIN, -1, 0, 9, 3_600_001, i64::MAX] {
        let refusal = Refusal::SkewOutside { skew_ms, allowed: SKEWS_MS };
        let given = Some(skew_ms);
        refuses(&Operation::SetLimits { lease_ms: None, skew_ms: given }, &reading(fleet()), refusal.clone());
        refuses(&Operation::SetLease { lease_ms: None, skew_ms: given }, &reading(fleet()), refusal.clone());
        refuses(&Operation::Restored { lease_ms: None, skew_ms: given }, &reading(fleet()), refusal.clone());
        refuses(&Operation::Lost { lease_ms: 1000, skew_ms, uuid: None }, &reading(fleet()), refusal.clone());
        assert_eq!(lost_fleet(&new_fleet(7, POSTGRES, 1), NOW_MS, 1000, skew_ms, 2), Err(refusal));
    }
    let nothing = (None, None);
    for operation in [
        Operation::SetLimits { lease_ms: nothing.0, skew_ms: nothing.1 },
        Operation::SetLease { lease_ms: nothing.0, skew_ms: nothing.1 },
    ] {
        refuses(&operation, &reading(fleet()), Refusal::NothingToSet);
    }
}

#[test]
fn limits_are_raised_and_what_is_used_stays() {
    let limits = |lease_ms, skew_ms| Operation::SetLimits { lease_ms, skew_ms };
    let greatest = limits(Some(30 * DAY_MS), Some(3_600_000));
    let (outcome, new) = sets(&greatest, &reading(fleet()));
    let (longest_ms, skew_ms) = (30 * DAY_MS, 3_600_000);
    let (used_lease_ms, used_skew_ms) = (LEASE_MS, SKEW_MS);
    assert_eq!(outcome, Outcome::LimitsSet { longest_ms, skew_ms, used_lease_ms, used_skew_ms });
    assert_eq!(new, Fleet { longest_ms, skew_ms, lease_ms: LEASE_MS, clock_skew_ms: SKEW_MS, ..fleet() });
    // What is used was less than before, or was set to more than the limit.
    for (set, used) in [((2000, 50), (2000, 50)), ((LEASE_MS + 1, SKEW_MS + 1), (LEASE_MS, SKEW_MS))] {
        let old = Fleet { lease_ms: set.0, clock_skew_ms: set.1, ..fleet() };
        let (_, new) = sets(&greatest, &reading(old));
        assert_eq!((new.lease_ms, new.clock_skew_ms), used);
    }
    // One of the two, and the same again.
    let (_, new) = sets(&limits(Some(LEASE_MS + 1), None), &reading(fleet()));
    assert_eq!((new.longest_ms, new.skew_ms), (LEASE_MS + 1, SKEW_MS));
    let (_, new) = sets(&limits(None, Some(SKEW_MS + 1)), &reading(fleet()));
    assert_eq!((new.longest_ms, new.skew_ms), (LEASE_MS, SKEW_MS + 1));
    sets(&limits(Some(LEASE_MS), Some(SKEW_MS)), &reading(fleet()));
}

#[test]
fn limits_are_not_lowered() {
    let limits = |lease_ms, skew_ms| Operation::SetLimits { lease_ms, skew_ms };
    let refusal = |lease_ms, skew_ms| Refusal::LimitsLowered {
        lease_ms,
        skew_ms,
        least_lease_ms: LEASE_MS,
        least_skew_ms: SKEW_MS,
    };
    for (lease_ms, skew_ms) in [
        (Some(LEASE_MS - 1), None),
        (None, Some(SKEW_MS - 1)),
        (Some(LEASE_MS - 1), Some(SKEW_MS)),
        (Some(LEASE_MS), Some(SKEW_MS - 1)),
    ] {
        refuses(&limits(lease_ms, skew_ms), &reading(fleet()), refusal(lease_ms, skew_ms));
    }
    // Before the first server, any are set.
    let new = new_fleet(7, POSTGRES, 1);
    let (outcome, set) = sets(&limits(Some(1000), Some(10)), &reading(new));
    let expected = Outcome::LimitsSet { longest_ms: 1000, skew_ms: 10, used_lease_ms: 1000, used_skew_ms: 10 };
    assert_eq!(outcome, expected);
    assert_eq!((set.used_lease_ms(), set.used_skew_ms()), (1000, 10));
    // The first server brings the other one.
    let (outcome, _) = sets(&limits(Some(1000), None), &reading(new));
    let (used_lease_ms, used_skew_ms) = (1000, DEFAULT_SKEW_MS);
    assert_eq!(outcome, Outcome::LimitsSet { longest_ms: 1000, skew_ms: 0, used_lease_ms, used_skew_ms });
    // But what the first server has brought may be lost.
    let (least_lease_ms, least_skew_ms) = (DEFAULT_LEASE_MS, DEFAULT_SKEW_MS);
    let (lease_ms, skew_ms) = (Some(DEFAULT_LEASE_MS - 1), None);
    let refusal = Refusal::LimitsLowered { lease_ms, skew_ms, least_lease_ms, least_skew_ms };
    refuses(&limits(lease_ms, skew_ms), &failed_over(new), refusal);
    sets(&limits(Some(DEFAULT_LEASE_MS), Some(DEFAULT_SKEW_MS)), &failed_over(new));
}

#[test]
fn a_raised_limit_is_used_only_when_that_is_set() {
    let limits = |lease_ms| Operation::SetLimits { lease_ms: Some(lease_ms), skew_ms: None };
    // Set before the first server, and raised.
    let (_, first) = sets(&limits(5000), &reading(new_fleet(7, POSTGRES, 1)));
    let (_, raised) = sets(&limits(3_600_000), &reading(first));
    assert_eq!(raised.used_lease_ms(), 5000);
    let lease = Operation::SetLease { lease_ms: Some(3_600_000), skew_ms: None };
    assert_eq!(sets(&lease, &reading(raised)).1.used_lease_ms(), 3_600_000);
}

#[test]
fn leases_are_up_to_the_limits() {
    let lease = |lease_ms, skew_ms| Operation::SetLease { lease_ms, skew_ms };
    let (outcome, new) = sets(&lease(Some(2000), Some(20)), &reading(fleet()));
    assert_eq!(outcome, Outcome::LeaseSet { lease_ms: 2000, skew_ms: 20 });
    assert_eq!(new, Fleet { lease_ms: 2000, clock_skew_ms: 20, ..fleet() });
    let (outcome, new) = sets(&lease(None, Some(20)), &reading(fleet()));
    assert_eq!(outcome, Outcome::LeaseSet { lease_ms: LEASE_MS, skew_ms: 20 });
    assert_eq!(new, Fleet { clock_skew_ms: 20, ..fleet() });
    for fleet in [fleet(), new_fleet(7, POSTGRES, 1)] {
        sets(&lease(Some(LEASE_MS), Some(SKEW_MS)), &reading(fleet));
        for (lease_ms, skew_ms) in [(Some(LEASE_MS + 1), None), (None, Some(SKEW_MS + 1))] {
            let refusal = Refusal::BeyondLimits { lease_ms, skew_ms, longest_ms: LEASE_MS, most_skew_ms: SKEW_MS };
            refuses(&lease(lease_ms, skew_ms), &reading(fleet), refusal);
        }
    }
}

#[test]
fn what_would_hide_a_failover_is_refused() {
    let refusal = |is_closed| Refusal::NotNoted { is_closed };
    let reserve = Operation::Reserve { number: number(5), until_ms: NOW_MS, force: false };
    let vouch = Operation::SetLosesNothing { loses_nothing: true };
    for operation in [vouch, Operation::Close, Operation::ResetSettings, reserve.clone()] {
        refuses(&operation, &failed_over(fleet()), refusal(false));
        if operation != reserve {
            refuses(&operation, &failed_over(Fleet { closed: true, ..fleet() }), refusal(true));
        }
        // Another store, and a restored etcd.
        let vouched = Fleet { loses_nothing: true, ..fleet() };
        let other = Reading { incarnation: Incarnation { store: 2, ..POSTGRES }, ..reading(vouched) };
        refuses(&operation, &other, refusal(false));
        decided(&operation, &failed_over(vouched)).expect("it loses nothing");
    }
    let etcd = Fleet { incarnation: ETCD, ..fleet() };
    let restored = Reading { incarnation: Incarnation { counts: [2, -7], ..ETCD }, ..reading(etcd) };
    refuses(&Operation::Close, &restored, refusal(false));
    let elected = Reading { incarnation: Incarnation { counts: [3, 3], ..ETCD }, ..reading(etcd) };
    decided(&Operation::Close, &elected).expect("an election loses nothing");
    // These hide nothing.
    for operation in [
        Operation::SetLosesNothing { loses_nothing: false },
        Operation::SetRange { first: 0, last: 5 },
        Operation::SetLimits { lease_ms: Some(LEASE_MS), skew_ms: None },
        Operation::SetLease { lease_ms: Some(LEASE_MS), skew_ms: None },
        Operation::Open { moved: None },
    ] {
        let Decision { changes, .. } = decided(&operation, &failed_over(fleet())).unwrap();
        if let [RecordChange::Fleet(new)] = changes.as_slice() {
            assert_eq!(new.incarnation, POSTGRES, "{operation:?}");
        }
    }
}

#[test]
fn an_operator_vouches_for_a_store_with_timelines_only() {
    for loses_nothing in [true, false] {
        let (outcome, new) = sets(&Operation::SetLosesNothing { loses_nothing }, &reading(fleet()));
        assert_eq!(outcome, Outcome::LosesNothingSet { loses_nothing });
        assert_eq!(new, Fleet { loses_nothing, ..fleet() });
    }
    let etcd = reading(Fleet { incarnation: ETCD, ..fleet() });
    refuses(&Operation::SetLosesNothing { loses_nothing: true }, &etcd, Refusal::NoTimelines);
    sets(&Operation::SetLosesNothing { loses_nothing: false }, &etcd);
}

#[test]
fn a_fleet_is_closed_and_opened() {
    let closed = Fleet { closed: true, ..fleet() };
    for (before, was_closed) in [(fleet(), false), (closed, true)] {
        let (outcome, new) = sets(&Operation::Close, &reading(before));
        assert_eq!((outcome, new), (Outcome::Closed { was_closed }, closed));
    }
    let open = |moved| Operation::Open { moved };
    let opened = |was_closed, moved| Outcome::Opened { was_closed, moved };
    // Moved to another store, where nothing is lost.
    let incarnation = Incarnation { store: 2, timeline: 5, counts: [0; 2] };
    let moved = Reading { incarnation, ..reading(closed) };
    assert_eq!(sets(&open(Some(true)), &moved), (opened(true, true), Fleet { incarnation, ..fleet() }));
    // Without that word, the next server finds another store.
    assert_eq!(sets(&open(Some(false)), &moved), (opened(true, false), fleet()));
    assert_eq!(sets(&open(Some(false)), &reading(closed)), (opened(true, false), fleet()));
    refuses(&open(None), &moved, Refusal::IsClosed);
    refuses(&open(Some(true)), &reading(fleet()), Refusal::NotClosed);
    for nothing in [None, Some(false)] {
        assert_eq!(sets(&open(nothing), &reading(fleet())), (opened(false, false), fleet()));
    }
}

/// The registry may be copied already.
#[test]
fn tags_and_numbers_of_a_closed_fleet_are_not_changed() {
    let closed = with_tag(Fleet { closed: true, ..fleet() }, tag_record());
    for operation in [
        create(1, (1, 1), false),
        set(Some(9000), None, None, None),
        Operation::DropTag { tag: tag() },
        reserve(number(5), NOW_MS, false),
    ] {
        refuses(&operation, &closed, Refusal::IsClosed);
    }
}

fn whole_reset(reading: &Reading) -> (Outcome, Fleet) {
    // First it closes the fleet.
    let Decision { changes, is_last, .. } = decided(&Operation::ResetSettings, reading).unwrap();
    let [RecordChange::Fleet(closed)] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!((*closed, is_last), (Fleet { closed: true, version: 101, ..reading.fleet }, false));
    let closed = Fleet { version: 55, ..*closed };
    sets(&Operation::ResetSettings, &Reading { fleet: closed, ..reading.clone() })
}

#[test]
fn settings_are_reset_when_no_server_draws() {
    let until_ms = NOW_MS - 2 * SKEW_MS;
    let over = with_number(fleet(), 5, lease(until_ms));
    let (outcome, new) = whole_reset(&over);
    assert_eq!(outcome, Outcome::SettingsReset { is_closed: true });
    let bare = Fleet { layout: None, range: None, longest_ms: 0, skew_ms: 0, ..fleet() };
    assert_eq!(new, Fleet { closed: true, version: new.version, ..bare });
    // Clocks may be apart, and the registry's own may have been.
    let runs = with_number(fleet(), 5, lease(until_ms + 1));
    refuses(&Operation::ResetSettings, &runs, Refusal::MayStillDraw { until_ms: NOW_MS + 1 });
    // What an operator keeps is not drawn with.
    whole_reset(&with_number(fleet(), 5, kept(NOW_MS + DAY_MS)));
    // A lost lease has not ended before the freeze.
    let frozen = reading(Fleet { freeze_ms: NOW_MS + 1, ..fleet() });
    refuses(&Operation::ResetSettings, &frozen, Refusal::MayStillDraw { until_ms: NOW_MS + 1 });
    whole_reset(&reading(Fleet { freeze_ms: NOW_MS, ..fleet() }));
}

#[test]
fn a_reset_keeps_a_range_that_is_not_all_of_the_layout() {
    let range = |fleet: Fleet| whole_reset(&reading(fleet)).1.range;
    assert_eq!(range(fleet()), None);
    assert_eq!(range(Fleet { range: Some((0, 1022)), ..fleet() }), Some((0, 1022)));
    assert_eq!(range(Fleet { range: Some((1, 1023)), ..fleet() }), Some((1, 1023)));
    assert_eq!(range(Fleet { range: Some((0, 511)), ..of_layout("snowflake", true) }), None);
    assert_eq!(range(Fleet { range: None, ..fleet() }), None);
    // Of another layout, nothing is known here.
    let other = of_layout("time:41 worker:3 sequence:19 unit:1ms epoch:2025-01-01T00:00:00Z", false);
    assert_eq!(range(Fleet { range: Some((0, 7)), ..other }), Some((0, 7)));
}

#[test]
fn a_reset_raises_nothing_that_is_used() {
    for (limit_ms, set_ms, stays_ms) in [
        (DEFAULT_LEASE_MS, 0, 0),
        (3_600_000, 3_600_000, 0),
        // The next server's limit is a raise.
        (5000, 0, 5000),
        (5000, 2000, 2000),
        (5000, 60_000, 5000),
        // The present one may be a raise.
        (DEFAULT_LEASE_MS, 2000, 2000),
        // It was reset before, and no server has come since.
        (0, 5000, 5000),
        (0, 0, 0),
    ] {
        let old = Fleet { longest_ms: limit_ms, lease_ms: set_ms, ..fleet() };
        let (_, new) = whole_reset(&reading(old));
        assert_eq!((new.longest_ms, new.lease_ms), (0, stays_ms), "{limit_ms} {set_ms}");
    }
    for (limit_ms, set_ms, stays_ms) in [(DEFAULT_SKEW_MS, 50, 50), (500, 0, 500), (0, 500, 500), (0, 0, 0)] {
        let (_, new) = whole_reset(&reading(Fleet { skew_ms: limit_ms, clock_skew_ms: set_ms, ..fleet() }));
        assert_eq!((new.skew_ms, new.clock_skew_ms), (0, stays_ms), "{limit_ms} {set_ms}");
    }
}

fn restored(lease_ms: Option<i64>, skew_ms: Option<i64>) -> Operation {
    Operation::Restored { lease_ms, skew_ms }
}

fn of_restored(operation: &Operation, reading: &Reading) -> (Restored, Vec<RecordChange>) {
    let Decision { changes, is_last, outcome } = decided(operation, reading).unwrap();
    let Outcome::Restored(restored) = outcome else { panic!("{outcome:?}") };
    assert!(is_last);
    (restored, changes)
}

#[test]
fn a_restore_begins_a_generation_with_the_greatest_limits_that_are_known() {
    for (lease_ms, skew_ms, longest_ms, most_skew_ms) in [
        (None, None, LEASE_MS, SKEW_MS),
        (Some(LEASE_MS - 1), Some(SKEW_MS - 1), LEASE_MS, SKEW_MS),
        (Some(3_600_000), None, 3_600_000, SKEW_MS),
        (None, Some(120_000), LEASE_MS, 120_000),
    ] {
        let (done, changes) = of_restored(&restored(lease_ms, skew_ms), &reading(fleet()));
        let horizon_ms = NOW_MS + 2 * most_skew_ms;
        let freeze_ms = horizon_ms + longest_ms;
        assert_eq!(done, Restored { generation: 2, horizon_ms, freeze_ms, ..Restored::default() });
        let [RecordChange::Fleet(new)] = changes.as_slice() else { panic!("{changes:?}") };
        // What is used stays.
        let limits = Fleet { longest_ms, skew_ms: most_skew_ms, lease_ms: LEASE_MS, clock_skew_ms: SKEW_MS, ..fleet() };
        assert_eq!(*new, Fleet { generation: 2, horizon_ms, freeze_ms, version: new.version, ..limits });
    }
    // As many generations as there were timelines since, and the incarnation is noted.
    let later = Reading { incarnation: Incarnation { timeline: 5, ..POSTGRES }, ..reading(fleet()) };
    let (done, changes) = of_restored(&restored(None, None), &later);
    let Some(RecordChange::Fleet(new)) = changes.last() else { panic!("{changes:?}") };
    assert_eq!((done.generation, new.generation, new.incarnation), (5, 5, later.incarnation));
    // A backup from before the first server.
    let new = reading(new_fleet(7, POSTGRES, 1));
    for (lease_ms, skew_ms) in [(None, None), (Some(LEASE_MS), None), (None, Some(SKEW_MS))] {
        refuses(&restored(lease_ms, skew_ms), &new, Refusal::LimitsUnknown);
    }
    assert_eq!(of_restored(&restored(Some(1000), Some(10)), &new).0.freeze_ms, NOW_MS + 1020);
}

#[test]
fn a_restore_cuts_leases_that_end_later_than_any_may() {
    let freeze_ms = NOW_MS + 2 * SKEW_MS + LEASE_MS;
    let far = NumberRecord { from_ms: freeze_ms + 5, ..lease(freeze_ms + 10) };
    let numbers = BTreeMap::from([
        (number(1), lease(freeze_ms)),
        (number(2), lease(freeze_ms + 1)),
        (number(3), far),
        (number(4), kept(freeze_ms + DAY_MS)),
    ]);
    let (_, changes) = of_restored(&restored(None, None), &Reading { numbers, ..reading(fleet()) });
    // The nonce stays, so that a server that lives recognizes its lease.
    let ended = |worker, from_ms, record: NumberRecord| RecordChange::Number {
        number: number(worker),
        was: Some(record.nonce),
        record: NumberRecord { from_ms, until_ms: freeze_ms, ..record },
    };
    assert_eq!(changes[..2], [ended(2, freeze_ms - 999, lease(freeze_ms + 1)), ended(3, freeze_ms, far)]);
    assert_eq!(changes.len(), 3);
}

#[test]
fn a_restore_moves_tags_that_have_a_jump() {
    let stopped = TagRecord { jumps: false, next: 77, ..tag_record() };
    let other = Tag::new("invoices").unwrap();
    let with_both = Reading { tags: BTreeMap::from([(tag(), tag_record()), (other, stopped)]), ..reading(fleet()) };
    let (done, changes) = of_restored(&restored(None, None), &with_both);
    // Ten seconds, the skew, and the generation that begins.
    let raised = 5000 + (10 + 60) * JUMP;
    assert_eq!(done.jumped, [JumpedTag { tag: tag(), from: 5000, to: raised + JUMP }]);
    assert_eq!(done.stopped, [(other, 77)]);
    let [RecordChange::Tag { tag: of, was: Some(60), record: Some(record) }, RecordChange::Fleet(_)] =
        changes.as_slice()
    else {
        panic!("{changes:?}")
    };
    assert_eq!(*of, tag());
    assert_eq!(*record, TagRecord { next: raised, nonce: record.nonce, written_ms: NOW_MS, ..tag_record() });
    assert_ne!(record.nonce, 60);
}

/// Performs an operation over a store that shows these, one after the other, and writes what it is
/// sent. Returns also what that was.
fn performed(mut turn: Turn, readings: &[Reading]) -> (Result<Outcome, NotPerformed<()>>, Vec<Vec<RecordChange>>) {
    let store = Showing { readings: RefCell::new(readings.iter().cloned().collect()), sent: RefCell::default() };
    // The versions are 5, 6, ...
    let result = turn.perform(&store, &mut || 5 + store.sent.borrow().len() as u64);
    (result, store.sent.into_inner())
}

struct Showing {
    readings: RefCell<VecDeque<Reading>>,
    sent: RefCell<Vec<Vec<RecordChange>>>,
}

impl Store for Showing {
    type Error = ();

    fn read(&self, _: &Wanted) -> Result<Reading, ()> {
        self.readings.borrow_mut().pop_front().ok_or(())
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, ()> {
        self.sent.borrow_mut().push(swap.changes.clone());
        Ok(SwapAnswer::Done(POSTGRES))
    }
}

#[test]
fn a_lost_fleet_is_newer_than_it_ever_was() {
    let new = new_fleet(7, POSTGRES, 1);
    let lost = |uuid| Operation::Lost { lease_ms: LEASE_MS, skew_ms: SKEW_MS, uuid };
    let generation = NOW_MS as u64 / 1000;
    let horizon_ms = NOW_MS + 2 * SKEW_MS;
    let freeze_ms = horizon_ms + LEASE_MS;
    let closed = Fleet { closed: true, ..new };
    for (given, uuid) in [(None, 7), (Some(8), 8)] {
        // First it is closed, so that nobody makes a tag meanwhile.
        let outcome = Outcome::Lost { generation, freeze_ms, uuid, is_closed: false };
        let first = decided(&lost(given), &reading(new)).unwrap();
        assert_eq!((first.is_last, &first.outcome), (false, &outcome));
        let [RecordChange::Fleet(fleet)] = first.changes.as_slice() else { panic!("{first:?}") };
        assert_ne!(fleet.version, new.version);
        assert_eq!(Fleet { version: new.version, ..*fleet }, closed);
        let limits = Fleet { longest_ms: LEASE_MS, skew_ms: SKEW_MS, ..new };
        let used = Fleet { lease_ms: LEASE_MS, clock_skew_ms: SKEW_MS, ..limits };
        let made = Fleet { uuid, generation, horizon_ms, freeze_ms, ..used };
        // Another operator had closed it, for a move.
        let kept_closed = Outcome::Lost { generation, freeze_ms, uuid, is_closed: true };
        let stays_closed = Fleet { closed: true, ..made };
        assert_eq!(sets(&lost(given), &reading(closed)), (kept_closed, stays_closed));
        let at_once = lost_fleet(&new_fleet(uuid, POSTGRES, 1), NOW_MS, LEASE_MS, SKEW_MS, 1);
        assert_eq!(at_once, Ok(made));
        // This turn has closed it.
        let closed_by_it = Fleet { closed: true, version: 5, ..new };
        let (result, sent) = performed(Turn::new(lost(given)), &[reading(new), reading(closed_by_it)]);
        let closes = vec![RecordChange::Fleet(closed_by_it)];
        assert_eq!(
            (result, sent),
            (Ok(outcome), vec![closes.clone(), vec![RecordChange::Fleet(Fleet { version: 6, ..made })]])
        );
        // A tag was made just before. The fleet is opened again.
        let with_tag = with_tag(closed_by_it, tag_record());
        let (result, sent) = performed(Turn::new(lost(given)), &[reading(new), with_tag]);
        assert_eq!(result, Err(NotPerformed::Refused(Refusal::HasTags)));
        assert_eq!(sent, [closes, vec![RecordChange::Fleet(Fleet { version: 6, ..new })]]);
    }
    let newest = Fleet { generation: u64::from(u32::MAX), ..closed };
    assert_eq!(sets(&lost(None), &reading(newest)).1.generation, u64::from(u32::MAX) + 1);
    refuses(&lost(None), &with_number(fleet(), 5, lease(0)), Refusal::HasLeases);
    refuses(&lost(None), &with_tag(fleet(), tag_record()), Refusal::HasTags);
    // It is not closed where that would hide a failover. Where it is closed already, nothing waits.
    refuses(&lost(None), &failed_over(new), Refusal::NotNoted { is_closed: false });
    assert!(decided(&lost(None), &failed_over(closed)).unwrap().is_last);
}

#[test]
fn a_generation_is_not_begun_where_another_hand_has_begun_one() {
    let began = Began::at(&reading(fleet()));
    let now = reading(Fleet { generation: 2, freeze_ms: 99, ..fleet() });
    let refusal = Refusal::GenerationBegan { was: 1, generation: 2, freeze_ms: 99 };
    let now = Reading { tags: BTreeMap::from([(tag(), tag_record())]), ..now };
    for operation in [
        restored(None, None),
        Operation::Lost { lease_ms: 1000, skew_ms: 10, uuid: None },
        set(Some(END), None, None, None),
    ] {
        assert_eq!(decide(&operation, &began, &now, &mut || 5), Err(refusal.clone()));
    }
    decide(&set(None, Some(5), None, None), &began, &now, &mut || 5).expect("it says nothing of what is lost");
    // Of two standbys that were promoted one after the other, both have begun it.
    let other = reading(Fleet { freeze_ms: 99, ..fleet() });
    let refusal = Refusal::GenerationBegan { was: 1, generation: 1, freeze_ms: 99 };
    assert_eq!(decide(&restored(None, None), &began, &other, &mut || 5), Err(refusal));
}

fn reserve(number: NumberKey, until_ms: i64, force: bool) -> Operation {
    Operation::Reserve { number, until_ms, force }
}

#[test]
fn a_number_is_kept() {
    let until_ms = NOW_MS + 5000;
    let kept_record = |reading: &Reading, until_ms| {
        let Decision { changes, is_last, outcome } = decided(&reserve(number(5), until_ms, false), reading).unwrap();
        assert_eq!((outcome, is_last), (Outcome::Reserved { number: number(5), until_ms }, true));
        let [RecordChange::Number { number: of, was, record }] = changes.as_slice() else { panic!("{changes:?}") };
        assert_eq!(*of, number(5));
        (*was, *record)
    };
    let base = NumberRecord {
        holder: 101 << 64 | 102,
        nonce: 103,
        count: 1,
        server: 0,
        from_ms: NOW_MS,
        until_ms,
        generation: 1,
        renewed_ms: NOW_MS,
        offset_ms: 0,
    };
    assert_eq!(kept_record(&reading(fleet()), until_ms), (None, base));
    // A mark that has passed.
    assert_eq!(kept_record(&reading(fleet()), 7), (None, NumberRecord { from_ms: 7, until_ms: 7, ..base }));
    // After its last lease, in the fleet's generation.
    let ended_ms = NOW_MS - SKEW_MS;
    let later = Fleet { generation: 3, ..fleet() };
    let (was, record) = kept_record(&with_number(later, 5, lease(ended_ms)), until_ms);
    assert_eq!((was, record), (Some(50), NumberRecord { count: 4, generation: 3, ..base }));
    let (_, record) = kept_record(&with_number(later, 5, lease(ended_ms)), ended_ms);
    let empty = NumberRecord { from_ms: ended_ms, until_ms: ended_ms, ..base };
    assert_eq!(record, NumberRecord { count: 4, generation: 3, ..empty });
    // It is kept already, and for longer now.
    let (was, record) = kept_record(&with_number(fleet(), 5, kept(until_ms)), until_ms + 1);
    let longer = NumberRecord { count: 4, from_ms: until_ms, until_ms: until_ms + 1, ..base };
    assert_eq!((was, record), (Some(50), longer));
}

/// The record is of this generation, whose freeze does not hold for it. So a server whose clock is
/// behind would lease it for ids of a lost lease.
#[test]
fn a_number_is_kept_until_lost_leases_have_ended() {
    let frozen = Fleet { generation: 2, freeze_ms: NOW_MS - 5, ..fleet() };
    let ended = lease(NOW_MS - SKEW_MS);
    for reading in [reading(frozen), with_number(frozen, 5, ended)] {
        let until_ms = NOW_MS - SKEW_MS;
        let Decision { changes, outcome, .. } = decided(&reserve(number(5), until_ms, false), &reading).unwrap();
        assert_eq!(outcome, Outcome::Reserved { number: number(5), until_ms: NOW_MS - 5 });
        let [RecordChange::Number { record, .. }] = changes.as_slice() else { panic!("{changes:?}") };
        assert_eq!((record.from_ms, record.until_ms, record.generation), (NOW_MS - 5, NOW_MS - 5, 2));
    }
    // It was leased since.
    let of_now = with_number(frozen, 5, NumberRecord { generation: 2, ..ended });
    let Decision { outcome, .. } = decided(&reserve(number(5), NOW_MS - 10, false), &of_now).unwrap();
    assert_eq!(outcome, Outcome::Reserved { number: number(5), until_ms: NOW_MS - 10 });
}

#[test]
fn a_number_that_may_be_leased_is_not_kept() {
    let until_ms = NOW_MS + 5000;
    let leased = |ended_ms| with_number(fleet(), 5, lease(ended_ms));
    let again_ms = NOW_MS + 1;
    let refusal = Refusal::NumberLeased { number: number(5), until_ms: again_ms - SKEW_MS, again_ms };
    refuses(&reserve(number(5), until_ms, false), &leased(again_ms - SKEW_MS), refusal);
    // A lost lease of it may run.
    let frozen = Fleet { generation: 2, freeze_ms: NOW_MS + 1, ..fleet() };
    let lost = Refusal::MayBeLost { number: number(5), until_ms: NOW_MS + 1 };
    refuses(&reserve(number(5), until_ms, false), &reading(frozen), lost.clone());
    let ended = lease(NOW_MS - SKEW_MS);
    refuses(&reserve(number(5), until_ms, false), &with_number(frozen, 5, ended), lost.clone());
    refuses(&reserve(number(5), until_ms, false), &with_number(frozen, 5, kept(NOW_MS)), lost);
    let of_now = NumberRecord { generation: 2, ..ended };
    decided(&reserve(number(5), until_ms, false), &with_number(frozen, 5, of_now)).expect("it was leased since");
    for (record, ended_ms) in [(ended, NOW_MS - SKEW_MS), (kept(until_ms), until_ms)] {
        let refusal = Refusal::EndedLater { number: number(5), until_ms: ended_ms - 1, ended_ms };
        refuses(&reserve(number(5), ended_ms - 1, false), &with_number(fleet(), 5, record), refusal);
    }
}

#[test]
fn a_number_is_kept_for_long_only_by_force() {
    let most_ms = NOW_MS + RESERVED_AHEAD_MS;
    decided(&reserve(number(5), most_ms, false), &reading(fleet())).expect("30 days");
    for until_ms in [most_ms + 1, i64::MAX] {
        let refusal = Refusal::ReservedTooLong { number: number(5), until_ms, most_ms };
        refuses(&reserve(number(5), until_ms, false), &reading(fleet()), refusal);
        decided(&reserve(number(5), until_ms, true), &reading(fleet())).expect("it is forced");
    }
}

#[test]
fn a_number_is_one_of_the_layout() {
    let of = |datacenter, worker| reserve(NumberKey::new(datacenter, worker), NOW_MS, false);
    for key in [NumberKey::new(None, -1), NumberKey::new(Some(-1), 5)] {
        refuses(&reserve(key, NOW_MS, false), &reading(fleet()), Refusal::NoSuchNumber { number: key });
    }
    decided(&of(None, 1023), &reading(fleet())).expect("the last number");
    let refusal = Refusal::NumberOutsideLayout { number: number(1024), numbers: 1024 };
    refuses(&of(None, 1024), &reading(fleet()), refusal);
    let outside =
        |datacenter, greatest| Refusal::DatacenterOutsideLayout { number: NumberKey::new(datacenter, 5), greatest };
    refuses(&of(Some(0), 5), &reading(fleet()), outside(Some(0), None));
    let twitter = reading(of_layout("twitter", false));
    decided(&of(Some(31), 31), &twitter).expect("the last number");
    refuses(&of(None, 5), &twitter, outside(None, Some(31)));
    refuses(&of(Some(32), 5), &twitter, outside(Some(32), Some(31)));
    // Of another layout, nothing is known here.
    let other = of_layout("time:41 worker:3 sequence:19 unit:1ms epoch:2025-01-01T00:00:00Z", false);
    for fleet in [other, new_fleet(7, POSTGRES, 1)] {
        decided(&of(Some(9), 99), &reading(fleet)).expect("the operator has to know");
    }
}

fn create(next: i64, steps: (u32, u32), jumps: bool) -> Operation {
    Operation::CreateTag { tag: tag(), next, steps, jumps }
}

fn set(next: Option<i64>, least: Option<u32>, greatest: Option<u32>, jumps: Option<bool>) -> Operation {
    Operation::SetTag { tag: tag(), next, least, greatest, jumps }
}

/// Returns the record that an operation writes, which is all it writes.
#[track_caller]
fn writes_tag(operation: &Operation, reading: &Reading) -> TagRecord {
    let Decision { changes, is_last, outcome } = decided(operation, reading).unwrap();
    let [RecordChange::Tag { tag: of, was, record: Some(written) }] = changes.as_slice() else { panic!("{changes:?}") };
    let old = reading.tags.get(&tag());
    assert_eq!((*of, *was, is_last), (tag(), old.map(|old| old.nonce), true));
    assert_ne!(Some(written.nonce), *was);
    let expected = match old {
        None => Outcome::TagCreated { tag: tag(), record: *written },
        Some(was) => Outcome::TagSet { tag: tag(), was: *was, record: *written },
    };
    assert_eq!(outcome, expected);
    *written
}

#[test]
fn a_tag_is_made() {
    let record = writes_tag(&create(-5, (1, LONGEST_BLOCK), true), &reading(fleet()));
    let TagRecord { id, nonce, .. } = record;
    assert_ne!(id, nonce);
    let (steps, jumps) = ((1, LONGEST_BLOCK), true);
    let (generation, written_ms) = (1, NOW_MS);
    assert_eq!(record, TagRecord { id, nonce, next: -5, steps, jumps, generation, written_ms, returnable: END });
    refuses(&create(1, (1, 1), false), &with_tag(fleet(), tag_record()), Refusal::TagExists { tag: tag() });
    for steps in [(0, 1), (2, 1), (1, LONGEST_BLOCK + 1), (0, 0)] {
        let refusal = Refusal::StepsOutside { steps, allowed: STEPS };
        refuses(&create(1, steps, false), &reading(fleet()), refusal);
    }
}

/// The next server begins a generation, in which the tag would stop, or jump, for nothing.
#[test]
fn nothing_is_said_of_a_tag_before_a_failover_is_noted() {
    let refusal = Refusal::NotNoted { is_closed: false };
    let create = create(1, (1, 1), false);
    refuses(&create, &failed_over(fleet()), refusal.clone());
    let vouched = Fleet { loses_nothing: true, ..fleet() };
    assert_eq!(writes_tag(&create, &failed_over(vouched)).generation, 1);
    let stopped = TagRecord { jumps: false, ..tag_record() };
    let failed = |record, fleet| Reading { tags: BTreeMap::from([(tag(), record)]), ..failed_over(fleet) };
    let (next, jump) = (set(Some(5000), None, None, None), set(None, None, None, Some(true)));
    refuses(&next, &failed(stopped, fleet()), refusal.clone());
    refuses(&next, &failed(tag_record(), fleet()), refusal);
    refuses(&jump, &failed(stopped, fleet()), Refusal::NeedsNext { tag: tag(), least: 5000 });
    for operation in [next, jump.clone()] {
        writes_tag(&operation, &failed(stopped, vouched));
    }
    // This says nothing of what was lost.
    writes_tag(&set(None, None, None, Some(false)), &failed(tag_record(), fleet()));
    writes_tag(&set(None, None, Some(500), None), &failed(stopped, fleet()));
}

#[test]
fn a_tags_next_value_is_raised() {
    for next in [5000, 5001, END] {
        let record = writes_tag(&set(Some(next), None, None, None), &with_tag(fleet(), tag_record()));
        let written = TagRecord { next, written_ms: NOW_MS, returnable: END, ..tag_record() };
        assert_eq!(record, TagRecord { nonce: record.nonce, ..written });
    }
    let refusal = Refusal::NextLowered { tag: tag(), next: 4999, least: 5000 };
    refuses(&set(Some(4999), None, None, None), &with_tag(fleet(), tag_record()), refusal);
    for operation in [set(Some(1), None, None, None), Operation::DropTag { tag: tag() }] {
        refuses(&operation, &reading(fleet()), Refusal::NoSuchTag { tag: tag() });
    }
    refuses(&set(None, None, None, None), &with_tag(fleet(), tag_record()), Refusal::NothingToSet);
}

#[test]
fn a_tags_steps_are_set() {
    for (least, greatest, steps) in [(None, Some(500), (10, 500)), (Some(5), Some(2000), (5, 2000))] {
        let record = writes_tag(&set(None, least, greatest, None), &with_tag(fleet(), tag_record()));
        // Nothing else changes.
        assert_eq!(record, TagRecord { steps, nonce: record.nonce, ..tag_record() });
    }
    for (least, greatest, steps) in [
        (None, Some(9), (10, 9)),
        (Some(1001), None, (1001, 1000)),
        (Some(0), None, (0, 1000)),
        (None, Some(0), (10, 0)),
    ] {
        let refusal = Refusal::StepsOutside { steps, allowed: STEPS };
        refuses(&set(None, least, greatest, None), &with_tag(fleet(), tag_record()), refusal);
    }
}

#[test]
fn a_tag_that_has_stopped_needs_a_next_value_too() {
    let (later, stopped) = (Fleet { generation: 2, ..fleet() }, TagRecord { jumps: false, ..tag_record() });
    let jump = set(None, None, None, Some(true));
    refuses(&jump, &with_tag(later, stopped), Refusal::NeedsNext { tag: tag(), least: 5000 });
    let both = set(Some(5000), None, None, Some(true));
    let record = writes_tag(&both, &with_tag(later, stopped));
    assert_eq!((record.next, record.jumps, record.generation), (5000, true, 2));
    // It has not stopped, or it jumps.
    assert!(writes_tag(&jump, &with_tag(fleet(), stopped)).jumps);
    assert!(writes_tag(&jump, &with_tag(later, tag_record())).jumps);
    // If it jumps no more, it stops.
    assert!(!writes_tag(&set(None, None, None, Some(false)), &with_tag(later, tag_record())).jumps);
    assert_eq!(writes_tag(&set(None, Some(20), None, None), &with_tag(later, stopped)).steps, (20, 1000));
}

/// Otherwise a next value that an operator has chosen without knowing of them would take their
/// place.
#[test]
fn jumps_that_are_due_come_before_what_is_set() {
    let later = Fleet { generation: 3, ..fleet() };
    let due = with_tag(later, tag_record());
    let jumped =
        TagRecord { next: 5000 + 2 * JUMP, generation: 3, written_ms: NOW_MS, returnable: END, ..tag_record() };
    let refusal = Refusal::NextLowered { tag: tag(), next: 4999 + 2 * JUMP, least: 5000 + 2 * JUMP };
    refuses(&set(Some(4999 + 2 * JUMP), None, None, None), &due, refusal);
    let written = |operation: Operation| {
        let record = writes_tag(&operation, &due);
        TagRecord { nonce: tag_record().nonce, ..record }
    };
    assert_eq!(written(set(Some(5000 + 2 * JUMP), None, None, None)), jumped);
    assert_eq!(written(set(None, Some(5), None, None)), TagRecord { steps: (5, 1000), ..jumped });
    assert_eq!(written(set(None, None, None, Some(true))), jumped);
    // If it jumps no more, the operator has to say where it goes on, and may know better.
    let stopped = TagRecord { jumps: false, ..tag_record() };
    assert_eq!(written(set(None, None, None, Some(false))), stopped);
    let said = TagRecord { next: 5000, generation: 3, written_ms: NOW_MS, returnable: END, ..stopped };
    assert_eq!(written(set(Some(5000), None, None, Some(false))), said);
}

#[test]
fn a_tag_is_deleted() {
    let Decision { changes, is_last, outcome } =
        decided(&Operation::DropTag { tag: tag() }, &with_tag(fleet(), tag_record())).unwrap();
    assert_eq!(changes, [RecordChange::Tag { tag: tag(), was: Some(60), record: None }]);
    assert_eq!((outcome, is_last), (Outcome::TagDropped { tag: tag(), was: tag_record() }, true));
}

#[test]
fn history_is_pruned_when_no_server_can_draw_with_it() {
    for fleet in [fleet(), new_fleet(7, POSTGRES, 1)] {
        let latest_ms = NOW_MS - LEASE_MS - 2 * SKEW_MS;
        assert_eq!(prunable_before(&reading(fleet), latest_ms), Ok(latest_ms));
        let before_ms = latest_ms + 1;
        let refusal = Refusal::MayStillBeDrawnWith { before_ms, latest_ms };
        assert_eq!(prunable_before(&reading(fleet), before_ms), Err(refusal));
    }
}

/// First the freeze is raised, then records are deleted, and with the last ones the fleet's record
/// gets another version, so that no swap that was decided before arrives later.
#[test]
fn records_of_leases_that_are_over_are_deleted() {
    let before_ms = NOW_MS - 2 * SKEW_MS;
    let drop = |before_ms| Operation::DropNumbers { before_ms };
    let refused = Refusal::MayStillBeDrawnWith { before_ms: before_ms + 1, latest_ms: before_ms };
    assert_eq!(decided(&drop(before_ms + 1), &reading(fleet())), Err(refused));
    let closed = Fleet { closed: true, ..fleet() };
    assert_eq!(decided(&drop(before_ms), &reading(closed)), Err(Refusal::IsClosed));
    let records = [(1, lease(before_ms)), (2, lease(before_ms + 1)), (3, kept(before_ms - 9)), (4, lease(NOW_MS))];
    let numbers = records.map(|(worker, record)| (number(worker), record)).into();
    let mut read = Reading { numbers, ..reading(fleet()) };
    let Decision { changes, is_last, .. } = decided(&drop(before_ms), &read).unwrap();
    let raised = Fleet { freeze_ms: before_ms, version: 101, ..fleet() };
    assert_eq!((changes, is_last), (vec![RecordChange::Fleet(raised)], false));
    read.fleet = raised;
    let gone = |worker| RecordChange::DropNumber { number: number(worker), was: 50 };
    let last = RecordChange::Fleet(Fleet { version: 101, ..raised });
    let outcome = Outcome::NumbersDropped { before_ms, count: 2 };
    let expected = Decision { changes: vec![gone(1), gone(3), last], is_last: true, outcome };
    assert_eq!(decided(&drop(before_ms), &read).unwrap(), expected);
    let frozen = Fleet { freeze_ms: before_ms + 5, ..fleet() };
    let until_ms = NOW_MS + 5;
    assert_eq!(decided(&drop(before_ms), &reading(frozen)), Err(Refusal::InFreeze { until_ms }));
    read.numbers.clear();
    let Decision { outcome, .. } = decided(&drop(before_ms), &read).unwrap();
    assert_eq!(outcome, Outcome::NumbersDropped { before_ms, count: 0 });
}

/// A store whose first swap is lost, or its answer.
struct Losing {
    reading: RefCell<Reading>,
    swaps: Cell<u32>,
    is_sent: bool,
    is_answered: bool,
}

impl Store for Losing {
    type Error = ();

    fn read(&self, _: &Wanted) -> Result<Reading, ()> {
        Ok(self.reading.borrow().clone())
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, ()> {
        let is_first = self.swaps.replace(self.swaps.get() + 1) == 0;
        if is_first && !self.is_sent {
            return Err(());
        }
        let mut reading = self.reading.borrow_mut();
        for change in swap.changes.clone() {
            match change {
                RecordChange::Number { number, record, .. } => _ = reading.numbers.insert(number, record),
                RecordChange::Tag { tag, record: Some(record), .. } => _ = reading.tags.insert(tag, record),
                RecordChange::Fleet(fleet) => reading.fleet = fleet,
                change => panic!("{change:?}"),
            }
        }
        if is_first && !self.is_answered { Err(()) } else { Ok(SwapAnswer::Done(reading.incarnation)) }
    }
}

/// A restore of more records than one swap can have. The first swap is lost, or its answer, or
/// nothing.
#[test]
fn a_restore_changes_each_record_once_though_an_answer_is_lost() {
    let tags = (0..=MOST_CHANGES).map(|tag| Tag::new(&format!("t{tag}")).unwrap());
    let numbers = BTreeMap::from([(number(5), lease(NOW_MS + 10 * LEASE_MS))]);
    let restored = Reading { tags: tags.map(|tag| (tag, tag_record())).collect(), numbers, ..failed_over(fleet()) };
    let run = |is_sent: bool, is_answered: bool| {
        let store = Losing { reading: RefCell::new(restored.clone()), swaps: Cell::new(0), is_sent, is_answered };
        let (mut turn, mut random) = (Turn::new(Operation::Restored { lease_ms: None, skew_ms: None }), 100);
        let mut random = || {
            random += 1;
            random
        };
        let outcome = loop {
            match turn.perform(&store, &mut random) {
                Err(NotPerformed::Away(())) => {}
                result => break result.unwrap(),
            }
        };
        (outcome, store.reading.into_inner().tags)
    };
    let (outcome, tags) = run(true, true);
    let next = |tags: &BTreeMap<Tag, TagRecord>| tags.values().map(|record| record.next).collect::<Vec<_>>();
    for (is_sent, is_answered) in [(true, false), (false, false)] {
        let (other, others) = run(is_sent, is_answered);
        assert_eq!((other, next(&others)), (outcome.clone(), next(&tags)), "{is_sent}");
    }
    let Outcome::Restored(Restored { jumped, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(jumped.len(), MOST_CHANGES + 1);
    assert!(jumped.iter().all(|jumped| jumped.from == 5000), "{jumped:?}");
}

/// Between what a person is shown and the answer, a server has noted a failover.
#[test]
fn what_a_person_has_confirmed_is_not_done_in_another_generation() {
    let (shown, next) = (with_tag(fleet(), tag_record()), Some(END / 2));
    let now = with_tag(Fleet { generation: 2, freeze_ms: NOW_MS, ..fleet() }, tag_record());
    for operation in [
        Operation::SetTag { tag: tag(), next, least: None, greatest: None, jumps: None },
        Operation::Restored { lease_ms: None, skew_ms: None },
    ] {
        let (_, sent) = performed(Turn::new(operation.clone()), std::slice::from_ref(&now));
        assert!(!sent.is_empty());
        let began = Refusal::GenerationBegan { was: 1, generation: 2, freeze_ms: NOW_MS };
        let confirmed = performed(Turn::new(operation).confirmed_at(&shown), std::slice::from_ref(&now));
        assert_eq!(confirmed, (Err(NotPerformed::Refused(began)), Vec::new()));
    }
}
