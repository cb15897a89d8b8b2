//! A server's numbers change while its sessions draw, load marks and compose what they have drawn.
//!
//! The old numbers may be drawn up to one instant, and the new ones from one instant to another.
//! What a session has read of marks, numbers and lanes may be of different moments. A session may
//! also know a tick of the old numbers (`known_tick.rs`). Seven controls take a step of the change
//! away, or do it in the wrong order, and must find an id that is not allowed, or one out of order.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use snowflake_core::draw::generator::{Generator, IdRun, Limits, MarkLimits, NO_MARK};
use snowflake_core::draw::known_tick::{KnownTick, draw_one};
use snowflake_core::draw::numbers::{NextNumbers, Numbers};
use snowflake_core::draw::published::{Marks, PublishedMarks, UNCLAIMED};
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::id::identity::{Identity, LaneName};
use snowflake_core::id::layout::{Field, Layout};

use super::{EARLY_MS, ONE, layout, schedules, schedules_until};

/// How often a schedule interrupts the running thread. With one more, the models here take minutes
/// instead of seconds; such a run was not brought to its end.
const PREEMPTIONS: Option<usize> = Some(2);

/// The worker numbers before the change and after it.
const OLD: u32 = 0;
const NEW: u32 = 1;

/// Until when the old numbers may be drawn, in milliseconds, which are ticks here.
const OLD_UNTIL_MS: i64 = 12;

/// The fleet that leases them.
const FLEET: i64 = 7;

/// A server whose numbers change from [`OLD`] to [`NEW`], or to none.
struct Server {
    layout: Layout,
    generator: Generator,
    marks: [PublishedMarks; 1],
    numbers: Numbers,
    next: Option<NextNumbers>,
    backup: bool,
}

/// An id: its worker number, and its tick.
type Id = (u32, i64);

impl Server {
    /// Returns a server that may draw with the old numbers, under a mark that is loaded. It will
    /// change to the new numbers `from_ms..until_ms`, or to none.
    fn new(next_ms: Option<(i64, i64)>, backup: bool) -> Arc<Self> {
        Self::with_layout(layout(1), next_ms, backup)
    }

    fn with_layout(layout: Layout, next_ms: Option<(i64, i64)>, backup: bool) -> Arc<Self> {
        let identity = |worker: u32| Identity::new(&layout, Some(worker.into()), None, backup).unwrap();
        let next =
            next_ms.map(|(from_ms, until_ms)| NextNumbers { identity: identity(NEW), from_ms, until_ms, fleet: FLEET });
        let (generator, marks, numbers) = (Generator::new(), [PublishedMarks::new()], Numbers::new());
        assert!(marks[0].claim(UNCLAIMED, ONE));
        let old = NextNumbers { identity: identity(OLD), from_ms: 1, until_ms: OLD_UNTIL_MS, fleet: FLEET };
        numbers.enter(&marks, &generator, &layout, &old);
        let server = Self { layout, generator, marks, numbers, next, backup };
        let (known, drawing) = server.look().unwrap();
        for lane in LaneName::ALL {
            assert!(known.publish(known.find(lane), drawing.until_ms()));
        }
        Arc::new(server)
    }

    /// Looks up the marks, and then the numbers, as every session does.
    fn look(&self) -> Option<(Marks<'_>, IdStamp)> {
        let known = self.marks[0].of(ONE)?;
        Some((known, self.numbers.read(&self.layout)?))
    }

    /// Changes the numbers. Returns where the latest tick ends in which the old ones can be drawn.
    fn change(&self, marks: &[PublishedMarks]) -> i64 {
        let Self { layout, generator, numbers, next, .. } = self;
        let Some(next) = next else { return numbers.leave(marks, generator, layout).unwrap() };
        numbers.enter(marks, generator, layout, next);
        OLD_UNTIL_MS
    }

    /// Draws one id at an instant, if that is allowed.
    fn draw(&self, (known, drawing): (impl MarkLimits, IdStamp), now_ms: i64) -> Option<IdRun> {
        let limits = Limits { max_borrow_ms: 0, marks_ms: known };
        self.generator.draw(&drawing, &|| now_ms, &limits, 1).ok()
    }

    /// Draws as [`draw`](Self::draw) does, with what [`look`](Self::look) has found.
    fn draw_now(&self, now_ms: i64) -> Option<IdRun> {
        let (known, drawing) = self.look()?;
        self.draw((known.both_lanes(), drawing), now_ms)
    }

    /// Draws as a session that has drawn at this instant before, with what it has found then, and
    /// knows the tick.
    fn draw_known(&self, (known, drawing): (Marks<'_>, IdStamp), now_ms: i64) -> Option<Id> {
        let unlimited = Limits { max_borrow_ms: 0, marks_ms: [NO_MARK; 2] };
        let run = Generator::new().draw(&drawing, &|| now_ms, &unlimited, 1).unwrap();
        let tick = KnownTick::of(&run, known);
        draw_one(&self.generator, &|| now_ms, || tick, || true).map(|id| self.parts_of(id))
    }

    /// Publishes the mark for the numbers that it finds, as far as they may be drawn.
    fn load(&self) {
        let Some((known, drawing)) = self.look() else { return };
        let found = known.find(LaneName::Primary);
        if found.mark_ms().is_none() && self.numbers.are(&drawing) {
            known.publish(found, drawing.until_ms());
        }
    }

    fn parts(&self, run: &IdRun) -> Id {
        self.parts_of(run.last_id())
    }

    fn parts_of(&self, id: i64) -> Id {
        let parts = self.layout.parts(id).unwrap();
        (parts.worker.unwrap(), parts.tick as i64)
    }

    /// Whether an id may have been drawn: one with the old number up to `reached_ms`, and one with
    /// the new number only in its own span.
    fn allows(&self, (worker, tick): Id, reached_ms: i64) -> bool {
        let is_old = worker == OLD || self.backup && worker == OLD + 2;
        match self.next {
            _ if is_old => tick < reached_ms.min(OLD_UNTIL_MS),
            Some(next) => (next.from_ms..next.until_ms).contains(&tick),
            None => false,
        }
    }
}

/// How often the old and the new number were drawn, nothing was drawn, and what was drawn was not
/// allowed.
#[derive(Clone, Default)]
struct Drawn(std::sync::Arc<[AtomicUsize; 4]>);

impl Drawn {
    fn count(&self, server: &Server, runs: &[Option<IdRun>], reached_ms: i64) {
        let ids: Vec<_> = runs.iter().map(|run| run.as_ref().map(|run| server.parts(run))).collect();
        self.count_ids(server, &ids, reached_ms);
    }

    fn count_ids(&self, server: &Server, ids: &[Option<Id>], reached_ms: i64) {
        for id in ids {
            let what = match *id {
                None => 2,
                Some(id) if !server.allows(id, reached_ms) => 3,
                Some((worker, _)) => usize::from(worker == NEW),
            };
            self.0[what].fetch_add(1, SeqCst);
        }
    }

    fn times(&self) -> [usize; 4] {
        std::array::from_fn(|what| self.0[what].load(SeqCst))
    }

    /// Asserts that each of `what` has happened, and that nothing was drawn that was not allowed.
    fn assert_all(&self, what: &[usize]) {
        let times = self.times();
        assert!(what.iter().all(|what| times[*what] > 0), "something never happened: {times:?}");
        assert_eq!(times[3], 0, "ids were drawn that were not allowed");
    }

    fn assert_control_fails(&self) {
        assert!(self.times()[3] > 0, "no schedule shows that it matters: {:?}", self.times());
    }
}

/// Which schedules to run.
#[derive(Clone, Copy)]
enum Run {
    All,
    /// A control's: until something was drawn that was not allowed.
    UntilWrong,
}

impl Run {
    /// Runs `schedule`, which counts in `drawn`.
    fn schedules(self, name: &str, drawn: &Drawn, schedule: impl Fn() + Sync + Send + 'static) {
        let counted = drawn.clone();
        match self {
            Self::All => schedules(name, PREEMPTIONS, schedule),
            Self::UntilWrong => schedules_until(move || counted.times()[3] > 0, name, PREEMPTIONS, schedule),
        }
    }
}

/// Runs a session beside one that loads the mark, while the numbers change.
fn change_in_schedules(
    run: Run,
    name: &str,
    next_ms: (i64, i64),
    session: fn(&Server) -> Option<IdRun>,
    load: Option<fn(&Server)>,
) -> Drawn {
    let drawn = Drawn::default();
    let counted = drawn.clone();
    run.schedules(name, &drawn, move || {
        let server = Server::new(Some(next_ms), false);
        let others = [Some(session), None].map(|session| {
            let server = server.clone();
            match (session, load) {
                (Some(session), _) => Some(thread::spawn(move || session(&server))),
                (None, Some(load)) => Some(thread::spawn(move || {
                    load(&server);
                    None
                })),
                (None, None) => None,
            }
        });
        let reached_ms = server.change(&server.marks);
        let runs = others.map(|thread| thread.and_then(|thread| thread.join().unwrap()));
        counted.count(&server, &runs[..1], reached_ms);
    });
    drawn
}

#[test]
fn old_numbers_are_not_drawn_once_their_marks_are_retired() {
    // The session draws before the change, or not at all: nothing has loaded a mark since.
    change_in_schedules(Run::All, "numbers change", (9, 14), |server| server.draw_now(5), None).assert_all(&[0, 2]);
}

#[test]
fn new_numbers_are_drawn_only_in_their_own_span() {
    // The new numbers end before the old ones. So a mark that is published for the old ones would
    // allow too much.
    let early = (3, 6);
    let draw: fn(&Server) -> Option<IdRun> = |server| server.draw_now(5);
    change_in_schedules(Run::All, "a mark is loaded while numbers change", early, draw, Some(Server::load))
        .assert_all(&[0, 1, 2]);
    let draw: fn(&Server) -> Option<IdRun> = |server| server.draw_now(10);
    change_in_schedules(Run::All, "a mark is loaded for a shorter span", early, draw, Some(Server::load))
        .assert_all(&[0, 2]);
    // They begin where the old ones end, and the clock is there.
    let late = (OLD_UNTIL_MS, OLD_UNTIL_MS + 4);
    let draw: fn(&Server) -> Option<IdRun> = |server| server.draw_now(OLD_UNTIL_MS + 1);
    change_in_schedules(Run::All, "a mark is loaded for a later span", late, draw, Some(Server::load))
        .assert_all(&[1, 2]);
}

/// Draws a run of the old number beside the change, and composes its id when the change is over,
/// as `compose` says.
fn compose_after_the_change(run: Run, name: &str, compose: fn(&Server, &IdRun) -> Id) -> Drawn {
    let drawn = Drawn::default();
    let counted = drawn.clone();
    run.schedules(name, &drawn, move || {
        let server = Server::new(Some((OLD_UNTIL_MS, OLD_UNTIL_MS + 4)), false);
        let other = thread::spawn({
            let server = server.clone();
            move || server.draw_now(5)
        });
        let reached_ms = server.change(&server.marks);
        let id = other.join().unwrap().map(|run| compose(&server, &run));
        counted.count_ids(&server, &[id], reached_ms);
    });
    drawn
}

#[test]
fn a_run_keeps_the_numbers_that_it_was_drawn_with() {
    compose_after_the_change(Run::All, "a run is composed after the change", Server::parts).assert_all(&[0, 2]);
}

/// A control: the id gets the number that the server has when it is composed.
#[test]
fn a_run_composed_with_the_numbers_of_the_moment_has_the_wrong_one() {
    let compose: fn(&Server, &IdRun) -> Id = |server, run| {
        let (_, tick) = server.parts(run);
        let now = server.numbers.read(&server.layout).unwrap();
        (now.identity().number(&server.layout, Field::Worker) as u32, tick)
    };
    compose_after_the_change(Run::UntilWrong, "a run is composed with other numbers", compose).assert_control_fails();
}

#[test]
fn nothing_is_drawn_beyond_what_is_given_back() {
    let drawn = Drawn::default();
    let counted = drawn.clone();
    schedules("numbers are given back from both lanes", PREEMPTIONS, move || {
        let server = Server::new(None, true);
        // The primary lane has two ids in a tick: two sessions that meet there use the backup lane.
        server.draw_now(5).unwrap();
        let others = [5, 6].map(|now_ms| {
            let server = server.clone();
            thread::spawn(move || server.draw_now(now_ms))
        });
        let reached_ms = server.change(&server.marks);
        let runs = others.map(|thread| thread.join().unwrap());
        counted.count(&server, &runs, reached_ms);
        assert_eq!(server.draw_now(8), None);
    });
    drawn.assert_all(&[0, 2]);
}

/// A control: the marks are not retired.
#[test]
fn numbers_that_change_under_the_same_marks_are_drawn_beyond_their_span() {
    let drawn = Drawn::default();
    let counted = drawn.clone();
    Run::UntilWrong.schedules("marks that are not retired", &drawn, move || {
        let server = Server::new(Some((3, 6)), false);
        let other = thread::spawn({
            let server = server.clone();
            move || server.draw_now(10)
        });
        let reached_ms = server.change(&[]);
        counted.count(&server, &[other.join().unwrap()], reached_ms);
    });
    drawn.assert_control_fails();
}

/// A control: the numbers are read before the marks are looked up.
#[test]
fn numbers_read_before_the_marks_are_drawn_beyond_their_span() {
    let draw: fn(&Server) -> Option<IdRun> = |server| {
        let drawing = server.numbers.read(&server.layout)?;
        server.draw((server.marks[0].of(ONE)?.both_lanes(), drawing), OLD_UNTIL_MS + 1)
    };
    let late = (OLD_UNTIL_MS, OLD_UNTIL_MS + 4);
    change_in_schedules(Run::UntilWrong, "numbers read before the marks", late, draw, Some(Server::load))
        .assert_control_fails();
}

/// A control: a session that loads the mark looks at the numbers before it looks at the mark.
#[test]
fn a_mark_found_after_the_numbers_is_published_for_the_wrong_ones() {
    let load: fn(&Server) = |server| {
        let Some(drawing) = server.numbers.read(&server.layout) else { return };
        let Some(known) = server.marks[0].of(ONE) else { return };
        known.publish(known.find(LaneName::Primary), drawing.until_ms());
    };
    let draw: fn(&Server) -> Option<IdRun> = |server| server.draw_now(10);
    change_in_schedules(Run::UntilWrong, "a mark found after the numbers", (3, 6), draw, Some(load))
        .assert_control_fails();
}

/// Changes from the old numbers to the new ones within a tick, beside a session that draws, and
/// draws afterwards. `before` ids of the old numbers are drawn first, of two that a tick has. An id
/// of the new numbers that is not in a later tick than all of the old ones counts as not allowed.
fn change_within_a_tick(run: Run, name: &'static str, before: usize, change: fn(&Server)) -> Drawn {
    let drawn = Drawn::default();
    let counted = drawn.clone();
    run.schedules(name, &drawn, move || {
        let server = Server::new(Some((3, OLD_UNTIL_MS + 4)), false);
        let first: Vec<_> = (0..before).map(|_| server.draw_now(5)).collect();
        let other = thread::spawn({
            let server = server.clone();
            move || server.draw_now(6)
        });
        change(&server);
        server.load();
        let last = [5, 6].map(|now_ms| server.draw_now(now_ms));
        let runs = first.into_iter().chain([other.join().unwrap()]).chain(last).flatten();
        let ids: Vec<Id> = runs.map(|run| server.parts(&run)).collect();
        let old = ids.iter().filter(|(worker, _)| *worker == OLD).map(|(_, tick)| *tick).max();
        counted.0[2].fetch_add(1, SeqCst);
        for (worker, tick) in ids {
            let what = if worker == NEW && Some(tick) <= old { 3 } else { usize::from(worker == NEW) };
            counted.0[what].fetch_add(1, SeqCst);
        }
    });
    drawn
}

#[test]
fn new_numbers_are_drawn_in_later_ticks_than_the_old_ones() {
    for before in 0..=2 {
        let change: fn(&Server) = |server| _ = server.change(&server.marks);
        change_within_a_tick(Run::All, "numbers change within a tick", before, change).assert_all(&[0, 1, 2]);
    }
}

/// A control: the lanes stay in the tick of the last id.
#[test]
fn numbers_that_change_without_the_lanes_are_drawn_in_the_tick_of_the_old_ones() {
    let change: fn(&Server) = |server| {
        server.numbers.enter(&server.marks, &Generator::new(), &server.layout, &server.next.unwrap());
    };
    change_within_a_tick(Run::UntilWrong, "lanes that stay", 1, change).assert_control_fails();
}

/// A control: the lanes are raised to the end of the tick that was read of them. So a lane at the
/// end of its tick stays there, and a draw that has read it succeeds.
#[test]
fn a_lane_that_is_raised_to_the_end_of_its_tick_may_be_drawn_from_with_the_old_numbers() {
    let change: fn(&Server) = |server| {
        let Server { layout, generator, marks, numbers, .. } = server;
        let others = Generator::new();
        numbers.leave(marks, &others, layout);
        let reached_ms = generator.reached_ms(LaneName::Primary, layout).unwrap();
        generator.raise(LaneName::Primary, layout, reached_ms + 1);
        numbers.enter(marks, &others, layout, &server.next.unwrap());
    };
    change_within_a_tick(Run::UntilWrong, "a lane raised to the end of its tick", 2, change).assert_control_fails();
}

/// Changes the numbers, or gives them back, beside a session that knows a tick of the old ones, and
/// draws from it. The tick has ids left afterwards. An id that is drawn from it once the change is
/// over counts as not allowed, and so does one of the new numbers that is not in a later tick.
fn change_in_a_known_tick(run: Run, name: &'static str, next_ms: Option<(i64, i64)>, retires: bool) -> Drawn {
    const NOW_MS: i64 = 5;
    let drawn = Drawn::default();
    let counted = drawn.clone();
    run.schedules(name, &drawn, move || {
        let server = Server::with_layout(layout(3), next_ms, false);
        server.draw_now(NOW_MS).unwrap();
        let (known, drawing) = server.look().unwrap();
        // The short way ends where the mark should be moved early.
        assert!(known.publish(known.find(LaneName::Primary), drawing.until_ms() + EARLY_MS));
        let (version, is_over) = (known.version(), Arc::new(AtomicBool::new(false)));
        let other = thread::spawn({
            let (server, is_over) = (server.clone(), is_over.clone());
            move || {
                // Acquire: pairs with the Release below, which makes "once it is over" true in the
                // model.
                let is_over = is_over.load(Ordering::Acquire);
                let known = Marks::new(&server.marks[0], version);
                server.draw_known((known, drawing), NOW_MS).map(|id| (id, is_over))
            }
        });
        server.change(if retires { &server.marks } else { &[] });
        is_over.store(true, Ordering::Release);
        server.load();
        let late = server.draw_known((known, drawing), NOW_MS);
        let new = server.draw_now(NOW_MS + 1);
        let what = match (other.join().unwrap(), late) {
            (Some((_, true)), _) | (_, Some(_)) => 3,
            (Some((id, false)), None) => {
                assert_eq!(id, (OLD, NOW_MS));
                0
            }
            (None, None) => 2,
        };
        counted.0[what].fetch_add(1, SeqCst);
        if let Some((worker, tick)) = new.map(|run| server.parts(&run)) {
            counted.0[if worker == NEW && tick > NOW_MS { 1 } else { 3 }].fetch_add(1, SeqCst);
        }
    });
    drawn
}

#[test]
fn a_known_tick_is_not_drawn_from_once_the_numbers_have_changed() {
    let next = Some((3, OLD_UNTIL_MS + 4));
    change_in_a_known_tick(Run::All, "numbers change in a known tick", next, true).assert_all(&[0, 1, 2]);
    change_in_a_known_tick(Run::All, "numbers are given back in a known tick", None, true).assert_all(&[0, 2]);
}

/// A control: the marks are not retired.
#[test]
fn a_known_tick_under_marks_that_are_not_retired_is_drawn_from_after_the_numbers_are_given_back() {
    change_in_a_known_tick(Run::UntilWrong, "a known tick, and marks that are not retired", None, false)
        .assert_control_fails();
}
