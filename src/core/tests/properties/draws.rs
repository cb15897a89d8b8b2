//! Tests draws, and which lane serves, against the model in `model.rs`, and the invariants by the
//! ids alone.
//!
//! A script moves the clock: it stands, steps, jumps, runs backwards, is before the epoch or past
//! the end. Each comparison counts the outcomes it has seen, so that it fails if the scripts no
//! longer reach one.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use proptest::sample::Index;
use snowflake_core::draw::generator::{DrawRefusal, Generator, Lane, Limits, NO_MARK, first_sequence, longest_run};
use snowflake_core::draw::known_tick::{KnownTick, draw_one};
use snowflake_core::draw::published::{PublishedMarks, UNCLAIMED};
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::id::identity::LaneName;
use snowflake_core::id::layout::{Field, Layout};

use crate::model::{self, Place};
use crate::spec::{Numbers, Spec, numbers, place, specs, specs_with_sequence, up_to};
use crate::{Scripted, config, for_all};

/// What the clock does before a draw. [`Move::apply`] turns it into an instant.
#[derive(Debug, Clone, Copy)]
enum Move {
    Stand,
    Ms(i64),
    Ticks(i64),
    /// To a tick by its number, and a part of it in milliseconds.
    FromStart(i64, i64),
    /// The same, counted from the layout's last tick.
    FromEnd(i64, i64),
    To(i64),
}

impl Move {
    fn apply(self, spec: &Spec, now_ms: i64) -> i64 {
        let unit = spec.unit_ms();
        let ms = match self {
            Self::Stand => now_ms.into(),
            Self::Ms(ms) => i128::from(now_ms) + i128::from(ms),
            Self::Ticks(ticks) => i128::from(now_ms) + i128::from(ticks) * unit,
            Self::FromStart(tick, part) => spec.start_ms(tick.into()) + i128::from(part) % unit,
            Self::FromEnd(tick, part) => spec.start_ms(spec.last_tick() + i128::from(tick)) + i128::from(part) % unit,
            Self::To(ms) => ms.into(),
        };
        ms.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        12 => Just(Move::Stand),
        6 => (-10..30_i64).prop_map(Move::Ms),
        6 => (-3..=5_i64).prop_map(Move::Ticks),
        2 => (-100_000..=100_000_i64).prop_map(Move::Ticks),
        2 => (0..5000_i64, 0..1000_i64).prop_map(|(tick, part)| Move::FromStart(tick, part)),
        1 => (-3..0_i64, 0..1000_i64).prop_map(|(tick, part)| Move::FromStart(tick, part)),
        2 => (-4..=0_i64, 0..1000_i64).prop_map(|(tick, part)| Move::FromEnd(tick, part)),
        1 => (1..3_i64, 0..1000_i64).prop_map(|(tick, part)| Move::FromEnd(tick, part)),
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>()].prop_map(Move::To),
    ]
}

/// Where a mark stands: nowhere, some ticks after the clock's and off by some milliseconds, or
/// anywhere.
#[derive(Debug, Clone, Copy)]
enum Mark {
    None,
    Ahead(i64, i64),
    At(i64),
}

impl Mark {
    fn ms(self, spec: &Spec, now_ms: i64) -> i64 {
        match self {
            Self::None => NO_MARK,
            Self::Ahead(ticks, ms) => {
                let end_ms = spec.start_ms(spec.tick_at(now_ms.into()) + i128::from(ticks));
                (end_ms + i128::from(ms)).clamp(i64::MIN.into(), i64::MAX.into()) as i64
            }
            Self::At(ms) => ms,
        }
    }
}

fn marks() -> impl Strategy<Value = Mark> {
    prop_oneof![
        6 => Just(Mark::None),
        3 => (0..=4_i64, -1..=1_i64).prop_map(|(ticks, ms)| Mark::Ahead(ticks, ms)),
        1 => any::<i64>().prop_map(Mark::At),
    ]
}

/// A few draws at one reading of the clock.
#[derive(Debug, Clone)]
struct Step {
    clock: Move,
    marks: [Mark; 2],
    count: Count,
    times: u32,
}

/// How long the runs are, within what the layout allows.
#[derive(Debug, Clone, Copy)]
enum Count {
    One,
    Some(Index),
    Longest,
}

impl Count {
    fn of(self, layout: &Layout) -> u32 {
        match self {
            Self::One => 1,
            Self::Some(raw) => 1 + raw.index(longest_run(layout) as usize) as u32,
            Self::Longest => longest_run(layout),
        }
    }
}

fn counts() -> impl Strategy<Value = Count> {
    prop_oneof![2 => Just(Count::One), 1 => any::<Index>().prop_map(Count::Some), 2 => Just(Count::Longest)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (moves(), [marks(), marks()], counts(), prop_oneof![Just(1), 1..=20_u32])
        .prop_map(|(clock, marks, count, times)| Step { clock, marks, count, times });
    prop::collection::vec(step, 1..40)
}

fn borrows() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => Just(Move::To(0)),
        3 => (1..5_i64).prop_map(Move::Ticks),
        3 => (1..200_i64).prop_map(Move::To),
        2 => (1..1_000_000_i64).prop_map(Move::To),
        1 => Just(Move::To(i64::MAX)),
    ]
}

/// A server, and what happens to it.
#[derive(Debug, Clone)]
struct Script {
    spec: Spec,
    numbers: Numbers,
    with_backup: bool,
    max_borrow_ms: i64,
    start: Move,
    steps: Vec<Step>,
}

fn scripts() -> impl Strategy<Value = Script> {
    // Often few ids per tick, so that ticks are used up; often enough of them, so that runs are
    // longer than 1.
    let spec = specs_with_sequence(prop_oneof![1..=8_u32, 5..=7_u32, 1..=31_u32])
        .prop_flat_map(|spec| (Just(spec.clone()), numbers(&spec)));
    (spec, any::<bool>(), borrows(), moves(), steps()).prop_map(
        |((spec, mut numbers), with_backup, borrow, start, steps)| {
            // A backup worker needs a worker field. The server's number is then in the lower half.
            let with_backup = with_backup && spec.bits(Field::Worker) > 0;
            if with_backup {
                numbers[place(Field::Worker)] %= spec.size(Field::Worker) / 2;
            }
            let max_borrow_ms = borrow.apply(&spec, 0);
            Script { spec, numbers, with_backup, max_borrow_ms, start, steps }
        },
    )
}

impl Script {
    /// Returns the steps, each with its clock. A clock outside the layout's time lasts for one
    /// step, because otherwise few ids would be drawn.
    fn clocks(&self) -> impl Iterator<Item = (i64, &Step)> {
        let inside = |ms: i64| (0..=self.spec.last_tick()).contains(&self.spec.tick_at(ms.into()));
        let mut inside_ms = Some(self.start.apply(&self.spec, self.spec.epoch_ms)).filter(|ms| inside(*ms));
        self.steps.iter().map(move |step| {
            let now_ms = step.clock.apply(&self.spec, inside_ms.unwrap_or(self.spec.epoch_ms));
            inside_ms = Some(now_ms).filter(|ms| inside(*ms)).or(inside_ms);
            (now_ms, step)
        })
    }

    fn drawing(&self, layout: &Layout) -> IdStamp {
        let given = |field| self.spec.given(field, self.numbers);
        IdStamp::new(*layout, given(Field::Worker), given(Field::Datacenter), self.with_backup).unwrap()
    }

    /// Composes the id of a place in a lane, without the library.
    fn id(&self, lane: LaneName, place_in_lane: Place) -> i64 {
        let mut numbers = self.numbers;
        numbers[place(Field::Time)] = place_in_lane.tick;
        numbers[place(Field::Sequence)] = place_in_lane.sequence;
        if lane == LaneName::Backup {
            numbers[place(Field::Worker)] += self.spec.size(Field::Worker) / 2;
        }
        i64::try_from(self.spec.compose(numbers)).unwrap()
    }
}

/// Counts what happened in all cases together, to notice a strategy that never reaches an outcome.
#[derive(Default)]
struct Seen(RefCell<BTreeMap<(&'static str, bool), u64>>);

impl Seen {
    fn count(&self, what: &'static str, with_backup: bool) {
        *self.0.borrow_mut().entry((what, with_backup)).or_default() += 1;
    }

    fn assert_all(&self, with_backup: bool, outcomes: &[&'static str]) {
        let seen = self.0.borrow();
        for outcome in outcomes {
            assert!(seen.contains_key(&(*outcome, with_backup)), "no {outcome} in {seen:?}");
        }
    }
}

fn variant(refusal: DrawRefusal) -> &'static str {
    match refusal {
        DrawRefusal::BeforeEpoch { .. } => "before epoch",
        DrawRefusal::TimeUsedUp => "time used up",
        DrawRefusal::UsedUp { .. } => "used up",
        DrawRefusal::Behind { .. } => "behind",
        DrawRefusal::MarkReached { .. } => "mark reached",
    }
}

#[test]
fn a_server_draws_what_the_model_draws() {
    let seen = Seen::default();
    for_all(2000, scripts(), |script| {
        let Script { spec, with_backup, max_borrow_ms, .. } = &script;
        let layout = spec.layout();
        let drawing = script.drawing(&layout);
        let generator = Generator::new();
        let mut model = model::Generator::new();
        for (now_ms, step) in script.clocks() {
            let marks_ms = step.marks.map(|mark| mark.ms(spec, now_ms));
            let limits = Limits { max_borrow_ms: *max_borrow_ms, marks_ms };
            let count = step.count.of(&layout);
            for _ in 0..step.times {
                let drawn = generator.draw(&drawing, &Scripted::at(now_ms), &limits, count);
                let modelled = model.draw(spec, *with_backup, now_ms, *max_borrow_ms, marks_ms, count);
                match (drawn, modelled) {
                    (Ok(run), Ok((lane, first, last))) => {
                        let borrowed = last.tick > spec.tick_at(now_ms.into());
                        let what = match (lane, borrowed) {
                            (LaneName::Primary, false) => "primary",
                            (LaneName::Primary, true) => "primary, borrowed",
                            (LaneName::Backup, false) => "backup",
                            (LaneName::Backup, true) => "backup, borrowed",
                        };
                        seen.count(what, *with_backup);
                        if first.tick < last.tick {
                            seen.count("run across ticks", *with_backup);
                        }
                        prop_assert_eq!((run.lane(), run.count()), (lane, count.into()));
                        prop_assert_eq!(run.last_id(), script.id(lane, last));
                        // All ids of a short run, and the first ones of a long run.
                        let compared = if count <= 512 { count } else { 3 };
                        for (id, after) in run.ids().take(compared as usize).zip(0..) {
                            prop_assert_eq!(id, script.id(lane, first.after(after, spec)));
                        }
                        if count <= 512 {
                            prop_assert_eq!(run.ids().count(), count as usize);
                        }
                    }
                    (Err(refusal), Err(modelled)) => {
                        seen.count(variant(refusal), *with_backup);
                        prop_assert_eq!(refusal, modelled);
                    }
                    (drawn, modelled) => prop_assert!(false, "{drawn:?} is not {modelled:?}"),
                }
            }
        }
        Ok(())
    });
    for with_backup in [false, true] {
        let refusals = ["before epoch", "time used up", "used up", "behind", "mark reached"];
        seen.assert_all(with_backup, &refusals);
        seen.assert_all(with_backup, &["primary", "run across ticks"]);
    }
    seen.assert_all(false, &["primary, borrowed"]);
    seen.assert_all(true, &["backup", "backup, borrowed"]);
}

#[test]
fn a_lane_draws_what_the_model_draws() {
    let seen = Seen::default();
    for_all(1500, (scripts(), prop::collection::vec(borrows(), 40)), |(script, borrows)| {
        let spec = &script.spec;
        let layout = spec.layout();
        let lane = Lane::new();
        let mut model = model::Lane::new();
        for ((now_ms, step), borrow) in script.clocks().zip(borrows) {
            let mark_ms = step.marks[0].ms(spec, now_ms);
            let allowance_ms = borrow.apply(spec, 0);
            let count = step.count.of(&layout);
            for _ in 0..step.times {
                let drawn = lane.draw(LaneName::Primary, &layout, &Scripted::at(now_ms), allowance_ms, mark_ms, count);
                let word = |place: Place| (place.tick * spec.size(Field::Sequence) + place.sequence) as u64;
                let modelled = model
                    .draw(LaneName::Primary, spec, now_ms, allowance_ms, mark_ms, count)
                    .map(|(first, last)| (word(first), word(last)));
                prop_assert_eq!(drawn, modelled);
                seen.count(drawn.map_or_else(variant, |_| "drawn"), false);
            }
        }
        Ok(())
    });
    let refusals = ["before epoch", "time used up", "used up", "behind", "mark reached"];
    seen.assert_all(false, &refusals);
    seen.assert_all(false, &["drawn"]);
}

/// Draws of two sessions in turn, of which each goes the short way where it can. So the tick that
/// one knows is often an old one, or one from which the other has drawn the rest.
#[test]
fn a_known_tick_serves_what_the_model_draws_in_it_and_nothing_else() {
    const PRIMARY: usize = LaneName::Primary as usize;
    let seen = Seen::default();
    for_all(2000, scripts(), |script| {
        let Script { spec, with_backup, max_borrow_ms, .. } = &script;
        let layout = spec.layout();
        let drawing = script.drawing(&layout);
        let generator = Generator::new();
        let mut model = model::Generator::new();
        let published = PublishedMarks::new();
        let view = published.of(UNCLAIMED).unwrap();
        let mut sessions: [Option<(i128, KnownTick)>; 2] = [None; 2];
        for (now_ms, step) in script.clocks() {
            let marks_ms = step.marks.map(|mark| mark.ms(spec, now_ms));
            prop_assert!(view.set(PRIMARY, view.get(PRIMARY), marks_ms[PRIMARY]));
            let limits = Limits { max_borrow_ms: *max_borrow_ms, marks_ms };
            let (clock, now) = (Scripted::at(now_ms), spec.tick_at(now_ms.into()));
            for _ in 0..step.times {
                sessions.swap(0, 1);
                let known = sessions[0];
                let short = draw_one(&generator, &clock, || known.map(|(_, tick)| tick), || true);
                let modelled = model.draw(spec, *with_backup, now_ms, *max_borrow_ms, marks_ms, 1);
                if let Some(id) = short {
                    let Ok((lane, _, drawn)) = modelled else { panic!("{id} is drawn, and not {modelled:?}") };
                    prop_assert_eq!((id, Some(drawn.tick)), (script.id(lane, drawn), known.map(|(tick, _)| tick)));
                    // So none is borrowed, as the session counts it.
                    prop_assert_eq!(drawn.tick, now);
                    seen.count("known tick", *with_backup);
                    continue;
                }
                match (generator.draw(&drawing, &clock, &limits, 1), modelled) {
                    (Ok(run), Ok((lane, _, drawn))) => {
                        prop_assert_eq!(run.last_id(), script.id(lane, drawn));
                        let is_known = known.is_some_and(|(tick, _)| tick == now);
                        let is_first = drawn.sequence == first_sequence(&layout, drawn.tick as u64).into();
                        let serves = is_known && !is_first && lane == LaneName::Primary && drawn.tick == now;
                        prop_assert!(!serves, "{} is in the tick that the session knows", run.last_id());
                        if let Some(tick) = KnownTick::of(&run, view) {
                            prop_assert_eq!(lane, LaneName::Primary);
                            sessions[0] = Some((drawn.tick, tick));
                            seen.count(if drawn.tick > now { "learned, borrowed" } else { "learned" }, *with_backup);
                        }
                    }
                    (Err(refusal), Err(modelled)) => {
                        prop_assert_eq!(refusal, modelled);
                        let is_known = known.is_some_and(|(tick, _)| tick == now);
                        seen.count(if is_known { variant(refusal) } else { "refused" }, *with_backup);
                    }
                    (drawn, modelled) => prop_assert!(false, "{drawn:?} is not {modelled:?}"),
                }
            }
        }
        Ok(())
    });
    for with_backup in [false, true] {
        seen.assert_all(with_backup, &["known tick", "learned", "mark reached", "refused"]);
    }
    seen.assert_all(false, &["learned, borrowed"]);
}

/// Checks I1, I3, I4 and I5 by the ids alone, without the model or the words. The clock also moves
/// between the lanes of one draw.
#[test]
fn ids_keep_the_invariants_whatever_the_clock_does() {
    let seen = Seen::default();
    for_all(1500, (scripts(), -3..=3_i64), |(script, step_ticks)| {
        let Script { spec, max_borrow_ms, with_backup, .. } = &script;
        let layout = spec.layout();
        let drawing = script.drawing(&layout);
        let generator = Generator::new();
        let mut last_ids = [-1_i64; 2];
        let mut all = HashSet::new();
        for (now_ms, step) in script.clocks() {
            let marks_ms = step.marks.map(|mark| mark.ms(spec, now_ms));
            let limits = Limits { max_borrow_ms: *max_borrow_ms, marks_ms };
            let count = step.count.of(&layout).min(64);
            for _ in 0..step.times {
                let clock = Scripted { now_ms: Cell::new(now_ms), step_ms: step_ticks * spec.unit_ms() as i64 };
                let Ok(run) = generator.draw(&drawing, &clock, &limits, count) else { continue };
                let lane = run.lane() as usize;
                seen.count(if run.lane() == LaneName::Primary { "primary" } else { "backup" }, *with_backup);
                // The lane served on the last reading.
                let read_ms = i128::from(clock.now_ms.get()) - i128::from(clock.step_ms);
                let allowance_ms = if *with_backup && run.lane() == LaneName::Primary { 0 } else { *max_borrow_ms };
                let limit = spec.tick_at(read_ms + i128::from(allowance_ms));
                let mut borrowed = 0;
                for id in run.ids() {
                    prop_assert!(id > last_ids[lane], "I1: {} is not above {}", id, last_ids[lane]);
                    prop_assert!(all.insert(id), "I1: {} is there twice", id);
                    last_ids[lane] = id;
                    prop_assert!((0..spec.ids()).contains(&id.into()), "I5: {}", id);
                    let numbers = spec.decompose(id.into());
                    let (tick, worker) = (numbers[0], numbers[place(Field::Worker)]);
                    prop_assert_eq!(numbers[1], script.numbers[1], "I5");
                    let half = if run.lane() == LaneName::Backup { spec.size(Field::Worker) / 2 } else { 0 };
                    prop_assert_eq!(worker, script.numbers[place(Field::Worker)] + half, "I5");
                    prop_assert!(*with_backup || run.lane() == LaneName::Primary);
                    prop_assert!(spec.start_ms(tick + 1) <= marks_ms[lane].into(), "I3: {}", id);
                    prop_assert!(tick <= limit, "I4: {} > {}", tick, limit);
                    borrowed += u64::from(tick > spec.tick_at(read_ms));
                }
                prop_assert_eq!(run.borrowed(), borrowed, "of {}", run.count());
                seen.count(if borrowed > 0 { "borrowed" } else { "not borrowed" }, *with_backup);
            }
        }
        Ok(())
    });
    seen.assert_all(false, &["primary", "borrowed", "not borrowed"]);
    seen.assert_all(true, &["primary", "backup", "borrowed", "not borrowed"]);
}

proptest! {
    #![proptest_config(config(1500))]

    /// A refused draw changes nothing: the lane serves after the wait that the refusal names, and
    /// not a millisecond sooner.
    #[test]
    fn a_lane_serves_after_the_wait_it_names(script in scripts()) {
        let spec = &script.spec;
        let layout = spec.layout();
        let lane = Lane::new();
        for (now_ms, step) in script.clocks() {
            let count = step.count.of(&layout);
            let draw = |ms| lane.draw(LaneName::Primary, &layout, &Scripted::at(ms), script.max_borrow_ms, NO_MARK, count);
            for _ in 0..step.times {
                match draw(now_ms) {
                    Err(DrawRefusal::UsedUp { wait_ms }) => {
                        prop_assert!(wait_ms > 0);
                        prop_assert_eq!(draw(now_ms + wait_ms - 1), Err(DrawRefusal::UsedUp { wait_ms: 1 }));
                        prop_assert!(draw(now_ms + wait_ms).is_ok());
                    }
                    Err(DrawRefusal::Behind { behind_ms, wait_ms }) => {
                        prop_assert_eq!(i128::from(behind_ms), i128::from(wait_ms) + i128::from(script.max_borrow_ms));
                        let sooner = DrawRefusal::Behind { behind_ms: behind_ms - wait_ms + 1, wait_ms: 1 };
                        prop_assert_eq!(draw(now_ms + wait_ms - 1), Err(sooner));
                        let served = draw(now_ms + wait_ms);
                        prop_assert!(matches!(served, Ok(_) | Err(DrawRefusal::UsedUp { .. })), "{served:?}");
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn without_borrowing_every_step_back_is_a_rollback(
        (spec, before) in specs().prop_flat_map(|spec| (Just(spec.clone()), up_to(spec.last_tick() - 1))), back: Index,
    ) {
        let layout = spec.layout();
        let tick = before + 1;
        let now_ms = spec.start_ms(tick) as i64;
        let back_ms = 1 + back.index((now_ms - spec.epoch_ms) as usize) as i64;
        let generator = Generator::new();
        let given = |field| spec.given(field, [0; 4]);
        let drawing = IdStamp::new(layout, given(Field::Worker), given(Field::Datacenter), false).unwrap();
        let limits = Limits { max_borrow_ms: 0, marks_ms: [NO_MARK; 2] };
        let draw = |ms| generator.draw(&drawing, &Scripted::at(ms), &limits, 1);
        prop_assert!(draw(now_ms).is_ok());
        let rollback = DrawRefusal::Behind { behind_ms: back_ms, wait_ms: back_ms };
        prop_assert_eq!(draw(now_ms - back_ms), Err(rollback));
    }
}
