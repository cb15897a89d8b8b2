//! Tests what the mark's protocol builds on: raised lanes, a generator that follows another one,
//! published marks, the numbers that a database stores and those that a server changes, and jumps.

use std::collections::HashSet;

use proptest::prelude::*;
use snowflake_core::clock::ClockReference;
use snowflake_core::draw::generator::{DrawRefusal, Generator, Limits, MarkLimits, NO_MARK, longest_run};
use snowflake_core::draw::published::{MARK_AHEAD_MS, NOT_LOADED, PublishedMarks, UNCLAIMED};
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::id::identity::{Identity, LaneName};
use snowflake_core::id::layout::{BUILT_IN, Field, Layout};

use crate::spec::{Spec, numbers, place, specs, up_to};
use crate::{Scripted, config};

/// The fingerprints of the layouts' lines, as `tools/layouts` computes them. They can never change,
/// because databases hold them.
const FINGERPRINTS: [(&str, i64); 13] = [
    ("snowflake", 659_112_385_214_155_961),
    ("twitter", 7_366_546_996_939_299_186),
    ("js53", 8_876_148_683_603_590_667),
    ("baidu", 6_716_042_574_934_541_900),
    ("leaf", 903_937_532_760_564_967),
    ("discord", 7_478_322_222_171_316_616),
    ("instagram", 5_163_230_396_149_121_768),
    ("mastodon", 3_545_235_968_293_553_177),
    ("sonyflake", 3_129_586_852_765_729_314),
    ("cosid", 8_438_707_181_393_898_272),
    ("pgedge", 4_107_238_148_521_907_482),
    ("tsid", 6_138_977_074_444_365_288),
    ("sonyflake2", 714_955_673_124_139_298),
];

#[test]
fn the_fingerprints_of_built_in_layouts_never_change() {
    let mut all = HashSet::new();
    for ((name, _), (pinned, fingerprint)) in BUILT_IN.into_iter().zip(FINGERPRINTS) {
        let layout = Layout::parse(name).unwrap();
        assert_eq!((name, layout.fingerprint()), (pinned, fingerprint));
        assert_eq!(Layout::built_in_with(fingerprint), Some(name));
        assert!(all.insert(fingerprint));
    }
    assert_eq!(all.len(), BUILT_IN.len());
    assert_eq!(Layout::built_in_with(0), None);
}

/// An identity of a layout, its datacenter, and the worker numbers that its lanes compose.
fn identities(spec: &Spec) -> impl Strategy<Value = (Identity, i128, Vec<i128>)> + use<> {
    let spec = spec.clone();
    (numbers(&spec), any::<bool>()).prop_map(move |(mut numbers, backup)| {
        let backup = backup && spec.bits(Field::Worker) > 0;
        let half = spec.size(Field::Worker) / 2;
        let worker = &mut numbers[place(Field::Worker)];
        if backup {
            *worker %= half;
        }
        let workers = if backup { vec![*worker, *worker + half] } else { vec![*worker] };
        let given = |field| spec.given(field, numbers);
        let identity = Identity::new(&spec.layout(), given(Field::Worker), given(Field::Datacenter), backup).unwrap();
        (identity, numbers[place(Field::Datacenter)], workers)
    })
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn a_raised_lane_begins_with_the_first_tick_that_ends_after_the_mark(
        (spec, tick, drawn) in specs()
            .prop_flat_map(|spec| (Just(spec.clone()), up_to(spec.last_tick() - 1), up_to(spec.last_tick()))),
        part in 0..1000_i64,
        lower in 1..5000_i64,
    ) {
        let layout = spec.layout();
        let given = |field| layout.max_of(field).map(|_| 0);
        let drawing = IdStamp::new(layout, given(Field::Worker), given(Field::Datacenter), false).unwrap();
        let mark_ms = layout.start_of_ms(tick as u64) + part % layout.unit().ms();
        let draw = |generator: &Generator, now_ms| {
            let limits = Limits { max_borrow_ms: 0, marks_ms: [NO_MARK; 2] };
            let run = generator.draw(&drawing, &Scripted::at(now_ms), &limits, 1);
            run.map(|run| i128::from(layout.parts(run.last_id()).unwrap().tick))
        };
        let generator = Generator::new();
        generator.raise(LaneName::Primary, &layout, mark_ms);
        generator.raise(LaneName::Primary, &layout, mark_ms.saturating_sub(lower));
        if tick > 0 {
            // Everything before it counts as drawn.
            prop_assert!(draw(&generator, layout.start_of_ms(tick as u64 - 1)).is_err());
        }
        prop_assert_eq!(draw(&generator, mark_ms), Ok(tick));
        // The other lane is unchanged, and a lane beyond the mark stays there.
        generator.raise(LaneName::Backup, &layout, i64::MAX);
        generator.raise(LaneName::Primary, &layout, i64::MIN);
        prop_assert_eq!(draw(&generator, layout.start_of_ms(tick as u64 + 1)), Ok(tick + 1));
        let generator = Generator::new();
        let drawn_ms = layout.start_of_ms(drawn as u64);
        prop_assert_eq!(draw(&generator, drawn_ms), Ok(drawn));
        generator.raise(LaneName::Primary, &layout, mark_ms);
        if drawn > tick {
            let lowered = !matches!(draw(&generator, mark_ms), Err(DrawRefusal::Behind { .. }));
            prop_assert!(!lowered);
        }
        // From the end on, nothing is left to draw.
        generator.raise(LaneName::Primary, &layout, layout.last_instant_ms() + layout.unit().ms());
        prop_assert_eq!(draw(&generator, layout.last_instant_ms()), Err(DrawRefusal::TimeUsedUp));
    }

    #[test]
    fn numbers_are_read_back_from_their_code((spec, (identity, datacenter, workers)) in specs()
        .prop_flat_map(|spec| (Just(spec.clone()), identities(&spec))))
    {
        let layout = spec.layout();
        let code = identity.code(&layout);
        prop_assert_eq!(Identity::of_code(&layout, code), Ok(identity));
        prop_assert_eq!(i128::from(code), (workers[0] << 32) + (datacenter << 1) + i128::from(identity.has_backup()));
        prop_assert_eq!(i128::from(identity.number(&layout, Field::Worker)), workers[0]);
        prop_assert_eq!(i128::from(identity.number(&layout, Field::Datacenter)), datacenter);
    }

    #[test]
    fn servers_overlap_exactly_if_two_of_their_lanes_have_equal_numbers(
        ((one, datacenter, workers), (other, other_datacenter, other_workers)) in specs()
            .prop_map(|mut spec| {
                // Few numbers, so that they are often equal.
                for (field, bits) in &mut spec.fields {
                    if matches!(field, Field::Worker | Field::Datacenter) {
                        *bits = 1.max(*bits % 4);
                    }
                }
                spec
            })
            .prop_flat_map(|spec| (identities(&spec), identities(&spec))),
    ) {
        let equal = datacenter == other_datacenter && workers.iter().any(|worker| other_workers.contains(worker));
        prop_assert_eq!(one.overlaps(&other), equal);
        prop_assert_eq!(other.overlaps(&one), equal);
        prop_assert!(one.overlaps(&one));
    }

    #[test]
    fn a_layout_has_one_fingerprint_however_it_is_written(spec in specs(), other in specs()) {
        let (layout, other) = (spec.layout(), other.layout());
        let text = spec.text();
        let written = Layout::parse(&text.replace(' ', "  ").replace("Z", "+00:00")).unwrap();
        prop_assert_eq!(written.fingerprint(), layout.fingerprint());
        prop_assert!(layout.fingerprint() >= 0);
        prop_assert_eq!(other.fingerprint() == layout.fingerprint(), other == layout);
        prop_assert_eq!(Layout::built_in_with(layout.fingerprint()), layout.built_in_name());
    }

    #[test]
    fn a_published_mark_is_due_halfway(mark_ms in -1_i64 << 53..1 << 53, near in -2..=2_i64) {
        let published = PublishedMarks::new();
        prop_assert!(published.claim(UNCLAIMED, 7));
        let marks = published.of(7).unwrap();
        prop_assert_eq!(LaneName::ALL.map(|lane| marks.both_lanes().limit_ms(lane)), [NOT_LOADED; 2]);
        prop_assert!(marks.publish(marks.find(LaneName::Backup), mark_ms));
        prop_assert_eq!((marks.mark_ms(LaneName::Primary), marks.mark_ms(LaneName::Backup)), (None, Some(mark_ms)));
        prop_assert_eq!(LaneName::ALL.map(|lane| marks.both_lanes().limit_ms(lane)), [NOT_LOADED, mark_ms]);
        let early_ms = mark_ms - MARK_AHEAD_MS / 2;
        prop_assert_eq!((marks.limit_ms(LaneName::Primary), marks.limit_ms(LaneName::Backup)), (NOT_LOADED, early_ms));
        prop_assert!(marks.needs_move(LaneName::Primary, NOT_LOADED + 1));
        prop_assert_eq!(marks.needs_move(LaneName::Backup, early_ms + near), near > 0);
        marks.forget();
        prop_assert_eq!(LaneName::ALL.map(|lane| marks.both_lanes().limit_ms(lane)), [NOT_LOADED; 2]);
    }

    #[test]
    fn a_jump_is_what_the_wall_clock_has_gained(now_ms: i64, boot_ms in 0..1_i64 << 50, ran in 0..1_i64 << 50, step in -1_i64 << 50..1 << 50) {
        let clocks = ClockReference::new();
        prop_assert_eq!(clocks.jump_ms(now_ms, boot_ms), 0);
        let now_ms = now_ms / 4;
        clocks.note(now_ms, boot_ms);
        prop_assert_eq!(clocks.jump_ms(now_ms + ran + step, boot_ms + ran), step.max(0));
        // Once noted again, the clock is right, and one that is set back may catch up again.
        clocks.note(now_ms + ran + step, boot_ms + ran);
        prop_assert_eq!(clocks.jump_ms(now_ms + ran + step, boot_ms + ran), 0);
        prop_assert_eq!(clocks.jump_ms(now_ms + ran, boot_ms + ran), 0);
    }
}

#[test]
fn marks_change_hands() {
    let published = PublishedMarks::new();
    assert_eq!((published.owner(), published.of(7).is_some()), (UNCLAIMED, false));
    assert!(!published.claim(8, 7), "it was nobody's, not 8's");
    assert!(published.claim(UNCLAIMED, 7));
    assert!(!published.claim(UNCLAIMED, 8), "another was faster");
    let of_seven = published.of(7).unwrap();
    assert!(of_seven.publish(of_seven.find(LaneName::Primary), 1000));
    assert_eq!(published.of(7).unwrap().mark_ms(LaneName::Primary), Some(1000));
    assert!(published.claim(7, 8) && published.of(7).is_none());
    let of_eight = published.of(8).unwrap();
    assert_eq!(of_eight.mark_ms(LaneName::Primary), None, "7's mark");
    assert!(of_eight.publish(of_eight.find(LaneName::Primary), 2000));
    assert_eq!(of_seven.mark_ms(LaneName::Primary), None, "8's mark");
    // An owner that comes back has a new version.
    assert!(published.claim(8, 7));
    let of_seven_again = published.of(7).unwrap();
    assert!(of_seven_again.publish(of_seven_again.find(LaneName::Primary), 3000));
    assert_eq!(of_seven.mark_ms(LaneName::Primary), None);
    assert_eq!(of_eight.mark_ms(LaneName::Primary), None);
    assert_eq!(published.of(7).unwrap().mark_ms(LaneName::Primary), Some(3000));
}

/// Draws the longest possible runs until the lanes refuse, and returns the last id of each lane.
fn exhaust(generator: &Generator, drawing: &IdStamp, now_ms: i64, max_borrow_ms: i64) -> [i64; 2] {
    let limits = Limits { max_borrow_ms, marks_ms: [NO_MARK; 2] };
    let mut last = [-1; 2];
    for count in [longest_run(drawing.layout()), 1] {
        while let Ok(run) = generator.draw(drawing, &|| now_ms, &limits, count) {
            last[run.lane() as usize] = run.last_id();
        }
    }
    last
}

fn following(layout: &Layout, now_ms: i64, max_borrow_ms: i64) -> Generator {
    let generator = Generator::new();
    generator.follow(layout, now_ms, max_borrow_ms);
    generator
}

#[test]
fn a_generator_follows_once_and_never_lowers_a_lane() {
    let layout = Layout::parse("js53").unwrap();
    let now_ms = 1_800_000_000_000;
    let reached = |generator: &Generator| LaneName::ALL.map(|lane| generator.reached_ms(lane, &layout).unwrap());
    let tick_ms = |ms| layout.start_of_ms(layout.tick_at(ms) as u64);
    let followed = following(&layout, now_ms, 2500);
    assert_eq!(reached(&followed), [tick_ms(now_ms + 2500); 2]);
    followed.follow(&layout, now_ms + 60_000, 2500);
    assert_eq!(reached(&followed), [tick_ms(now_ms + 2500); 2]);
    let raised = Generator::new();
    raised.raise(LaneName::Backup, &layout, now_ms + 60_000);
    raised.follow(&layout, now_ms, 2500);
    assert_eq!(reached(&raised), [tick_ms(now_ms + 2500), tick_ms(now_ms + 60_000) - layout.unit().ms()]);
}

#[test]
fn nothing_is_drawn_again_by_the_generator_that_follows_a_lost_one() {
    let now_ms = 1_800_000_000_123;
    for (name, backup) in [("snowflake", false), ("js53", false), ("js53", true), ("sonyflake", true)] {
        let layout = Layout::parse(name).unwrap();
        let drawing = IdStamp::new(layout, Some(3), None, backup).unwrap();
        for max_borrow_ms in [0, 100, 2500] {
            let before = exhaust(&Generator::new(), &drawing, now_ms, max_borrow_ms);
            let following = following(&layout, now_ms, max_borrow_ms);
            // With the same clock nothing is left to draw. A tick later there is an id, and it is
            // greater.
            assert_eq!(exhaust(&following, &drawing, now_ms, max_borrow_ms), [-1; 2], "{name}");
            let after = exhaust(&following, &drawing, now_ms + layout.unit().ms(), max_borrow_ms);
            assert_ne!(after, [-1; 2], "{name} {max_borrow_ms}");
            for (before, after) in before.into_iter().zip(after) {
                // With backup workers the primary lane never borrows, but it waits out what it
                // could have borrowed.
                assert!(after > before || after == -1, "{name} {max_borrow_ms}: {before} {after}");
            }
        }
    }
}

#[test]
fn a_generator_can_follow_at_any_time() {
    let layout = Layout::parse("js53").unwrap();
    let drawing = IdStamp::new(layout, Some(3), None, false).unwrap();
    let draw = |generator: &Generator, now_ms| {
        let limits = Limits { max_borrow_ms: 0, marks_ms: [NO_MARK; 2] };
        generator.draw(&drawing, &|| now_ms, &limits, 1)
    };
    for before_epoch in [i64::MIN, layout.epoch_ms() - 1] {
        assert!(draw(&following(&layout, before_epoch, 0), layout.epoch_ms()).is_ok());
    }
    for at_the_end in [layout.last_instant_ms(), layout.last_instant_ms() + 1000, i64::MAX] {
        let refusal = draw(&following(&layout, at_the_end, 1000), layout.last_instant_ms());
        assert_eq!(refusal, Err(DrawRefusal::TimeUsedUp));
    }
}

#[test]
fn giving_numbers_back_moves_no_lane_beyond_the_end_of_time() {
    let layout = Layout::parse("time:41 worker:10 sequence:1 unit:1ms epoch:2025-01-01T00:00:00Z").unwrap();
    let generator = following(&layout, i64::MAX, 0);
    let end_ms = layout.start_of_ms(layout.last_tick() + 1);
    // Two words make a tick.
    for _ in 0..5 {
        assert!(generator.cut_off(&layout).unwrap() <= end_ms + layout.unit().ms());
        for lane in LaneName::ALL {
            assert!(generator.reached_ms(lane, &layout).unwrap() <= end_ms);
        }
    }
}

#[test]
fn other_numbers_begin_no_tick_beyond_the_end_of_time() {
    let layout = Layout::parse("js53").unwrap();
    let drawing = IdStamp::new(layout, Some(3), None, false).unwrap();
    let generator = following(&layout, i64::MAX, 0);
    let end_ms = layout.start_of_ms(layout.last_tick() + 1);
    for _ in 0..3 {
        generator.begin(&layout, i64::MAX);
        for lane in LaneName::ALL {
            assert!(generator.reached_ms(lane, &layout).unwrap() <= end_ms);
        }
        let limits = Limits { max_borrow_ms: 0, marks_ms: [NO_MARK; 2] };
        let refusal = generator.draw(&drawing, &|| layout.last_instant_ms(), &limits, 1);
        assert_eq!(refusal, Err(DrawRefusal::TimeUsedUp));
    }
}
