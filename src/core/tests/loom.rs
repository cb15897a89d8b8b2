//! Tries all schedules of two and three threads that draw while another thread moves the clock.
//!
//! Run with `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p snowflake_core
//! --test loom`. Without that cfg this file is empty.
//!
//! loom tries every interleaving and, for each load, every value that the memory model allows. The
//! clock is such a load, and `Relaxed`. Only the word's Acquire and Release keep it from returning
//! less than the clock reading of the thread that wrote the word. If either were Relaxed, the load
//! of a word would not order later loads after what preceded its store. An old reading could then
//! appear beside a new word, and [`a_clock_that_runs_forward_is_never_a_rollback`] would find it:
//! that test guards both.
//!
//! How numbers change while sessions draw: `loom/numbers.rs`. How blocks of dense values do:
//! `loom/segment.rs`. Up to which id a reader misses nothing: `loom/settled.rs`. The stacks of a
//! schedule's threads: `loom/stacks.rs`.
//!
//! The marks' log is such a load, too. A draw that sees a published mark without what came before
//! it finds an old log, and each test of marks asserts that it does not. Sessions draw by both ways
//! there: the whole one, and the short one of a session that knows its tick.

#![cfg(loom)]

#[path = "loom/numbers.rs"]
mod numbers;
#[path = "loom/segment.rs"]
mod segment;
#[path = "loom/settled.rs"]
mod settled;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
#[path = "loom/stacks.rs"]
mod stacks;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicI64, Ordering};
use loom::thread;
use snowflake_core::clock::Clock;
use snowflake_core::draw::generator::{DrawRefusal, Generator, Lane, Limits, NO_MARK};
use snowflake_core::draw::known_tick::{KnownTick, draw_one};
use snowflake_core::draw::published::{MARK_AHEAD_MS, Marks, PublishedMarks, UNCLAIMED};
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::id::identity::LaneName;
use snowflake_core::id::layout::Layout;

/// The clock's first reading. Any tick but 0 will do.
const START_MS: i64 = 5;

/// A clock that another thread moves. Relaxed is the least that a clock can promise, and the
/// system's clock promises no more.
struct Moved(AtomicI64);

impl Moved {
    fn new() -> Self {
        Self(AtomicI64::new(START_MS))
    }

    fn set(&self, ms: i64) {
        self.0.store(ms, Ordering::Relaxed);
    }
}

impl Clock for Moved {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A reading taken before the draw, and so before the word is loaded, which the generator must
/// never do. Each retry gets the same reading.
struct Captured(i64);

impl Clock for Captured {
    fn now_ms(&self) -> i64 {
        self.0
    }
}

/// Returns a layout with few ids per tick, so that a few draws use one up. With `sequence_bits`
/// below 7, every tick begins at 0.
fn layout(sequence_bits: u32) -> Layout {
    Layout::parse(&format!("time:20 worker:2 sequence:{sequence_bits} unit:1ms epoch:1970-01-01T00:00:00Z")).unwrap()
}

/// A lane, its clock, and the largest word that a draw has returned.
struct Shared {
    layout: Layout,
    lane: Lane,
    clock: Moved,
    returned: AtomicI64,
}

impl Shared {
    /// Must be called inside a model, because the lane's atomic is loom's.
    fn new(sequence_bits: u32) -> Arc<Self> {
        let (lane, clock) = (Lane::new(), Moved::new());
        Arc::new(Self { layout: layout(sequence_bits), lane, clock, returned: AtomicI64::new(0) })
    }

    fn draw(&self, clock: &impl Clock, count: u32) -> Result<(u64, u64), DrawRefusal> {
        self.lane.draw(LaneName::Primary, &self.layout, clock, 0, NO_MARK, count)
    }

    /// Draws one id by the shared clock.
    fn draw_one(&self) -> Result<u64, DrawRefusal> {
        self.draw(&self.clock, 1).map(|(_, word)| word)
    }

    /// Draws one id, and asserts that it is above every id whose draw returned before this one
    /// began (I1).
    fn draw_after_returned(&self) -> Result<u64, DrawRefusal> {
        // Acquire: pairs with the Release below, which makes "returned before this one began" true
        // in the model.
        let returned = self.returned.load(Ordering::Acquire);
        let drawn = self.draw_one();
        if let Ok(word) = drawn {
            assert!(word as i64 > returned, "{word} was drawn after {returned} had returned");
            self.returned.fetch_max(word as i64, Ordering::Release);
        }
        drawn
    }
}

/// Runs `schedule` in all schedules, and prints how many there are.
fn all_schedules(name: &str, schedule: impl Fn() + Sync + Send + 'static) {
    schedules(name, None, schedule);
}

/// Runs `schedule` in all schedules in which the running thread is interrupted at most so often,
/// and prints how many there are.
fn schedules(name: &str, preemptions: Option<usize>, schedule: impl Fn() + Sync + Send + 'static) {
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        counted.fetch_add(1, SeqCst);
        schedule();
    });
    println!("{name}: {} schedules", count.load(SeqCst));
}

/// Runs `schedule` of a control until it has found what it must find.
fn schedules_until(
    found: impl Fn() -> bool + Sync + Send + 'static,
    name: &str,
    preemptions: Option<usize>,
    schedule: impl Fn() + Sync + Send + 'static,
) {
    const FOUND: &str = "the control has found it";
    let search = AssertUnwindSafe(|| {
        schedules(name, preemptions, move || {
            schedule();
            // loom ends its search in no other way.
            assert!(!found(), "{FOUND}");
        });
    });
    if let Err(panic) = catch_unwind(search)
        && panic.downcast_ref::<String>().is_none_or(|message| message != FOUND)
    {
        resume_unwind(panic);
    }
}

/// Asserts that each thread's words increase, and that no two threads have one in common.
fn assert_unique(threads: &[Vec<u64>]) {
    for words in threads {
        assert!(words.is_sorted_by(|one, next| one < next), "a thread's ids do not increase: {threads:?}");
    }
    let mut all: Vec<u64> = threads.concat();
    let drawn = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), drawn, "an id was drawn twice: {threads:?}");
}

/// Returns the words that were drawn. A tick that is used up is allowed here; any other refusal is
/// an error.
fn drawn(answers: impl IntoIterator<Item = Result<u64, DrawRefusal>>) -> Vec<u64> {
    let used_up = |refused: &DrawRefusal| matches!(refused, DrawRefusal::UsedUp { .. });
    answers
        .into_iter()
        .inspect(|answer| assert!(answer.as_ref().err().is_none_or(used_up), "{answer:?}"))
        .flatten()
        .collect()
}

#[test]
fn two_threads_draw_unique_and_increasing_ids() {
    all_schedules("two threads, two draws each", || {
        let shared = Shared::new(1);
        let draw_twice = |shared: &Shared| drawn([shared.draw_after_returned(), shared.draw_after_returned()]);
        let other = thread::spawn({
            let shared = shared.clone();
            move || draw_twice(&shared)
        });
        shared.clock.set(START_MS + 1);
        let mine = draw_twice(&shared);
        assert_unique(&[mine, other.join().unwrap()]);
    });
}

#[test]
fn three_threads_draw_unique_ids() {
    all_schedules("three threads, one draw each", || {
        let shared = Shared::new(1);
        let others = [0, 1].map(|_| {
            let shared = shared.clone();
            thread::spawn(move || drawn([shared.draw_one()]))
        });
        shared.clock.set(START_MS + 1);
        let mine = drawn([shared.draw_one()]);
        let [one, other] = others.map(|thread| thread.join().unwrap());
        assert_unique(&[mine, one, other]);
    });
}

#[test]
fn a_clock_that_runs_forward_is_never_a_rollback() {
    // I2: `drawn` panics at DrawRefusal::Behind. Allowance 0 keeps a false one from being hidden.
    all_schedules("a clock that runs forward", || {
        let shared = Shared::new(2);
        let others = [0, 1].map(|_| {
            let shared = shared.clone();
            thread::spawn(move || drawn([shared.draw_one()]))
        });
        shared.clock.set(START_MS + 1);
        let [one, other] = others.map(|thread| thread.join().unwrap());
        assert_unique(&[one, other]);
    });
}

#[test]
fn a_lane_that_is_raised_is_never_a_rollback() {
    // I2, where a thread that has seen the clock reach the mark raises the word instead of drawing
    // it.
    all_schedules("a lane that is raised", || {
        let shared = Shared::new(2);
        let other = thread::spawn({
            let shared = shared.clone();
            move || drawn([shared.draw_one()])
        });
        shared.clock.set(START_MS + 2);
        shared.lane.raise(&shared.layout, START_MS + 2);
        other.join().unwrap();
    });
}

/// The negative control of the test above: the same clock, read in the wrong order.
#[test]
fn a_clock_read_before_the_word_makes_false_rollbacks() {
    let false_rollbacks = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = false_rollbacks.clone();
    all_schedules("a clock read before the word", move || {
        let shared = Shared::new(2);
        let other = thread::spawn({
            let (shared, counted) = (shared.clone(), counted.clone());
            move || {
                let before = Captured(shared.clock.now_ms());
                match shared.draw(&before, 1) {
                    Ok(_) => {}
                    Err(DrawRefusal::Behind { behind_ms: 1, wait_ms: 1 }) => {
                        counted.fetch_add(1, SeqCst);
                    }
                    refused => panic!("{refused:?}"),
                }
            }
        });
        shared.clock.set(START_MS + 1);
        drawn([shared.draw_one()]);
        other.join().unwrap();
    });
    assert!(false_rollbacks.load(SeqCst) > 0, "no schedule shows that the order matters");
}

#[test]
fn ids_stay_unique_while_the_clock_is_set_back() {
    let seen = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    all_schedules("a clock that is set back", move || {
        let shared = Shared::new(2);
        let draw_twice = {
            let counted = counted.clone();
            move |shared: Arc<Shared>| -> Vec<u64> {
                let answers = [shared.draw_after_returned(), shared.draw_after_returned()];
                for answer in answers {
                    match answer {
                        Ok(_) => {}
                        Err(DrawRefusal::Behind { .. }) => {
                            counted.fetch_add(1, SeqCst);
                        }
                        Err(refused) => panic!("{refused:?}"),
                    }
                }
                answers.into_iter().flatten().collect()
            }
        };
        let other = thread::spawn({
            let (shared, draw_twice) = (shared.clone(), draw_twice.clone());
            move || draw_twice(shared)
        });
        shared.clock.set(START_MS - 1);
        let mine = draw_twice(shared);
        assert_unique(&[mine, other.join().unwrap()]);
    });
    assert!(seen.load(SeqCst) > 0, "no schedule has drawn with the clock set back");
}

#[test]
fn a_run_is_drawn_whole_or_not_at_all() {
    all_schedules("runs of two", || {
        // 32 ids per tick, of which a run may take two.
        let shared = Shared::new(5);
        let other = thread::spawn({
            let shared = shared.clone();
            move || shared.draw(&shared.clock, 2).unwrap()
        });
        let mine = [0, 1].map(|_| shared.draw(&shared.clock, 2).unwrap());
        let words = |(first, last): (u64, u64)| [first, last];
        let other = other.join().unwrap();
        for (first, last) in mine.into_iter().chain([other]) {
            assert_eq!(last, first + 1);
        }
        assert_unique(&[mine.map(words).concat(), words(other).to_vec()]);
    });
}

/// Tests a server with a backup lane, and two ids per tick and lane. `before` ids are drawn before
/// the threads begin, so that they have to change lanes.
fn backup_schedules(name: &'static str, max_borrow_ms: i64, before: usize) {
    let lanes = std::sync::Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let counted = lanes.clone();
    all_schedules(name, move || {
        let layout = layout(1);
        let drawing = IdStamp::new(layout, Some(1), None, true).unwrap();
        let limits = Limits { max_borrow_ms, marks_ms: [NO_MARK; 2] };
        let shared = Arc::new((Generator::new(), Moved::new()));
        let draw_some = {
            let counted = counted.clone();
            move |shared: Arc<(Generator, Moved)>, draws: usize| {
                let (generator, clock) = &*shared;
                let mut ids = [const { Vec::new() }; 2];
                for _ in 0..draws {
                    match generator.draw(&drawing, clock, &limits, 1) {
                        Ok(run) => {
                            let lane = run.lane() as usize;
                            counted[lane].fetch_add(1, SeqCst);
                            let id = run.last_id();
                            let worker = if run.lane() == LaneName::Backup { 3 } else { 1 };
                            assert_eq!(layout.parts(id).unwrap().worker, Some(worker));
                            ids[lane].push(id as u64);
                        }
                        // I2: what looks like a step back has been borrowed by the backup lane, and
                        // is not a rollback.
                        Err(DrawRefusal::UsedUp { .. }) => {}
                        Err(DrawRefusal::Behind { wait_ms, .. }) if wait_ms <= max_borrow_ms => {}
                        Err(refusal) => panic!("{refusal:?}"),
                    }
                }
                ids
            }
        };
        draw_some(shared.clone(), before);
        let other = thread::spawn({
            let (shared, draw_some) = (shared.clone(), draw_some.clone());
            move || draw_some(shared, 2)
        });
        shared.1.set(START_MS + 1);
        let mine = draw_some(shared, 3);
        let other = other.join().unwrap();
        // Unique and increasing per lane. Across lanes the workers differ, as asserted above.
        for lane in [0, 1] {
            assert_unique(&[mine[lane].clone(), other[lane].clone()]);
        }
    });
    assert!(lanes.iter().all(|drawn| drawn.load(SeqCst) > 0), "a lane was never used: {lanes:?}");
}

#[test]
fn two_threads_share_both_lanes() {
    backup_schedules("both lanes", 0, 1);
}

#[test]
fn two_threads_borrow_from_the_backup_lane() {
    backup_schedules("both lanes, borrowing", 1, 3);
}

/// How the sessions of a model draw.
#[derive(Clone)]
enum Way {
    /// As a session that knows nothing.
    Whole,
    /// As one that knows its tick, if that serves (`known_tick.rs`); counts how often it did.
    Short(std::sync::Arc<AtomicUsize>),
}

/// Runs a test for both ways, and asserts that the short one has served.
fn both_ways(test: impl Fn(Way)) {
    test(Way::Whole);
    let served = std::sync::Arc::new(AtomicUsize::new(0));
    test(Way::Short(served.clone()));
    assert!(served.load(SeqCst) > 0, "no session has drawn from a tick that it knows");
}

/// A server whose marks one thread moves, with the database's lock, while another thread draws. It
/// has the log that the marks make promises about, and a flag.
struct Guarded {
    way: Way,
    layout: Layout,
    generator: Generator,
    published: PublishedMarks,
    /// The mark in the log. Relaxed: only the published mark shows that it is there.
    logged_ms: AtomicI64,
    done: AtomicI64,
}

/// The two sequences that marks can belong to.
const ONE: u64 = 1;
const OTHER: u64 = 2;

/// How far a mark is ahead of the limit up to which a draw ignores it.
const EARLY_MS: i64 = MARK_AHEAD_MS / 2;

/// All ids of ticks below this instant were drawn before a start.
const DRAWN_MS: i64 = START_MS + 3;

impl Guarded {
    /// Returns a server whose marks belong to [`ONE`], and are not loaded. The next id is the first
    /// one of the clock's tick.
    fn new(way: &Way) -> Arc<Self> {
        let (published, generator, layout) = (PublishedMarks::new(), Generator::new(), layout(1));
        assert!(published.claim(UNCLAIMED, ONE));
        generator.raise(LaneName::Primary, &layout, START_MS);
        let [logged_ms, done] = [0, 0].map(AtomicI64::new);
        Arc::new(Self { way: way.clone(), layout, generator, published, logged_ms, done })
    }

    fn marks_of(&self, owner: u64) -> Marks<'_> {
        self.published.of(owner).expect("it is the owner")
    }

    /// Logs and publishes a mark that draws up to `end_ms` can ignore.
    fn move_mark(&self, marks: Marks<'_>, end_ms: i64) {
        let mark_ms = end_ms + EARLY_MS;
        self.logged_ms.store(mark_ms, Ordering::Relaxed);
        assert!(marks.publish(marks.find(LaneName::Primary), mark_ms));
    }

    /// Draws one id at an instant, and returns its tick. Instants and ticks are equal here.
    fn draw(&self, marks: Marks<'_>, now_ms: i64) -> Result<i64, DrawRefusal> {
        let drawing = IdStamp::new(self.layout, Some(1), None, false).unwrap();
        let limits = Limits { max_borrow_ms: 10, marks_ms: marks };
        if let Way::Short(served) = &self.way
            && let Some(tick) = self.draw_known(marks, now_ms)
        {
            served.fetch_add(1, SeqCst);
            return Ok(tick);
        }
        let run = self.generator.draw(&drawing, &|| now_ms, &limits, 1)?;
        Ok(self.layout.parts(run.last_id()).unwrap().tick as i64)
    }

    /// Draws as a session that knows the tick of an instant, and returns that tick.
    fn draw_known(&self, marks: Marks<'_>, now_ms: i64) -> Option<i64> {
        let drawing = IdStamp::new(self.layout, Some(1), None, false).unwrap();
        let unlimited = Limits { max_borrow_ms: 0, marks_ms: [NO_MARK; 2] };
        let run = Generator::new().draw(&drawing, &|| now_ms, &unlimited, 1).unwrap();
        let tick = KnownTick::of(&run, marks);
        let id = draw_one(&self.generator, &|| now_ms, || tick, || true)?;
        Some(self.layout.parts(id).unwrap().tick as i64)
    }
}

/// Counts the draws that were served and those that were refused. A model without both shows
/// nothing.
#[derive(Clone, Default)]
struct Served(std::sync::Arc<[AtomicUsize; 2]>);

impl Served {
    fn count(&self, drawn: &Result<i64, DrawRefusal>) {
        assert!(matches!(drawn, Ok(_) | Err(DrawRefusal::MarkReached { .. })), "{drawn:?}");
        self.0[usize::from(drawn.is_ok())].fetch_add(1, SeqCst);
    }

    fn assert_both(&self) {
        assert!(self.0.iter().all(|count| count.load(SeqCst) > 0), "one of the two never happened: {:?}", self.0);
    }
}

#[test]
fn two_databases_never_claim_the_same_marks() {
    claim_in_all_schedules("two databases draw for the first time", false, |_| {});
    claim_in_all_schedules("two databases take what was given back", true, |all| {
        for marks in all {
            marks.claim(UNCLAIMED, 3 << 32 | 7);
            marks.release(3 << 32 | 7);
        }
    });
}

/// Lets two databases claim marks at once, each among the same two.
fn claim_in_all_schedules(name: &str, may_be_forgotten: bool, before: fn(&[PublishedMarks])) {
    all_schedules(name, move || {
        let all = Arc::new([PublishedMarks::new(), PublishedMarks::new()]);
        before(&all[..]);
        let draw_first = move |all: &[PublishedMarks], database: u64| {
            let owner = database << 32 | 7;
            let mark_ms = START_MS + database as i64;
            let is_gone = |database: u32| database == 0;
            let marks = PublishedMarks::claim_one(all, owner, is_gone).expect("there are enough");
            let is_published = marks.publish(marks.find(LaneName::Primary), mark_ms);
            assert!(is_published || may_be_forgotten);
            // This holds whatever the other database does meanwhile.
            let marks = all.iter().find_map(|marks| marks.of(owner)).expect("they were claimed");
            let found_ms = marks.mark_ms(LaneName::Primary);
            // The other database may have tried to take the same marks, and made them forget their
            // mark. It is then loaded once more.
            assert!(found_ms == Some(mark_ms) || may_be_forgotten && found_ms.is_none(), "{found_ms:?}");
        };
        let other = thread::spawn({
            let all = all.clone();
            move || draw_first(&all[..], 2)
        });
        draw_first(&all[..], 1);
        other.join().unwrap();
        assert_ne!(all[0].owner(), all[1].owner());
    });
}

#[test]
fn who_sees_a_published_mark_sees_its_log_record() {
    both_ways(|way| {
        let served = Served::default();
        let counted = served.clone();
        all_schedules("a mark is moved", move || {
            let server = Guarded::new(&way);
            server.move_mark(server.marks_of(ONE), START_MS);
            let others = [0, 1].map(|_| {
                let (server, counted) = (server.clone(), counted.clone());
                thread::spawn(move || {
                    let drawn = server.draw(server.marks_of(ONE), START_MS);
                    counted.count(&drawn);
                    // The id's tick ends at or below the mark in the log.
                    let covers = |tick: &i64| server.logged_ms.load(Ordering::Relaxed) - EARLY_MS > *tick;
                    drawn.inspect(|tick| assert!(covers(tick), "{tick}")).ok()
                })
            });
            server.move_mark(server.marks_of(ONE), START_MS + 1);
            let ids: Vec<u64> =
                others.into_iter().filter_map(|thread| thread.join().unwrap()).map(|tick| tick as u64).collect();
            assert!(ids.len() < 2 || ids.iter().all(|tick| *tick == START_MS as u64), "{ids:?}");
        });
        served.assert_both();
    });
}

#[test]
fn nothing_is_drawn_below_the_mark_that_was_loaded() {
    both_ways(|way| {
        let served = Served::default();
        let counted = served.clone();
        all_schedules("a mark is loaded", move || {
            let server = Guarded::new(&way);
            let other = thread::spawn({
                let (server, counted) = (server.clone(), counted.clone());
                move || {
                    // The draw may have read the word before it was raised, and the mark after it
                    // was published.
                    let drawn = server.draw(server.marks_of(ONE), START_MS);
                    counted.count(&drawn);
                    drawn.inspect(|tick| assert!(*tick >= DRAWN_MS, "{tick} was drawn before")).ok()
                }
            });
            server.generator.raise(LaneName::Primary, &server.layout, DRAWN_MS);
            server.move_mark(server.marks_of(ONE), DRAWN_MS + 2);
            for now_ms in [START_MS, DRAWN_MS] {
                let mine = server.draw(server.marks_of(ONE), now_ms).unwrap();
                assert!(mine >= DRAWN_MS, "{mine} was drawn before");
            }
            other.join().unwrap();
        });
        served.assert_both();
    });
}

#[test]
fn no_database_draws_what_a_lost_predecessor_can_have_drawn() {
    let counts = std::sync::Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let counted = counts.clone();
    all_schedules("two databases are loaded at once", move || {
        let server = Arc::new((layout(1), Generator::new()));
        let draw_first = {
            let counted = counted.clone();
            move |server: &(Layout, Generator), now_ms: i64| {
                let (layout, generator) = server;
                generator.follow(layout, START_MS, 0);
                let drawing = IdStamp::new(*layout, Some(1), None, false).unwrap();
                let limits = Limits { max_borrow_ms: 0, marks_ms: [NO_MARK; 2] };
                let drawn = generator.draw(&drawing, &|| now_ms, &limits, 1);
                counted[usize::from(drawn.is_ok())].fetch_add(1, SeqCst);
                match drawn {
                    Ok(run) => {
                        let tick = layout.parts(run.last_id()).unwrap().tick as i64;
                        assert!(tick > START_MS, "{tick} can have been drawn before");
                    }
                    Err(refusal) => assert_eq!(now_ms, START_MS, "{refusal:?}"),
                }
            }
        };
        let other = thread::spawn({
            let (server, draw_first) = (server.clone(), draw_first.clone());
            move || draw_first(&server, START_MS)
        });
        draw_first(&server, START_MS + 1);
        other.join().unwrap();
    });
    assert!(counts.iter().all(|count| count.load(SeqCst) > 0), "one of the two never happened: {counts:?}");
}

#[test]
fn no_session_draws_under_the_mark_of_another_sequence() {
    const FAR_MS: i64 = START_MS + 8;
    let served = Served::default();
    let counted = served.clone();
    all_schedules("marks change hands, and back", move || {
        let server = Guarded::new(&Way::Whole);
        let known = server.marks_of(ONE).version();
        server.move_mark(server.marks_of(ONE), START_MS + 1);
        let other = thread::spawn({
            let (server, counted) = (server.clone(), counted.clone());
            move || {
                let known = Marks::new(&server.published, known);
                // A draw may use what this sequence's own mark permits, and not what only the
                // other's permits.
                counted.count(&server.draw(known, START_MS));
                for marks in [Some(known), server.published.of(ONE)].into_iter().flatten() {
                    let drawn = server.draw(marks, FAR_MS);
                    assert!(matches!(drawn, Err(DrawRefusal::MarkReached { .. })), "{drawn:?}");
                }
            }
        });
        assert!(server.published.claim(ONE, OTHER));
        server.move_mark(server.marks_of(OTHER), FAR_MS + 1);
        assert!(server.published.claim(OTHER, ONE));
        other.join().unwrap();
    });
    served.assert_both();
}

#[test]
fn no_session_draws_from_a_known_tick_under_the_mark_of_another_sequence() {
    const FAR_MS: i64 = START_MS + 8;
    all_schedules("marks change hands in a known tick", || {
        let server = Guarded::new(&Way::Whole);
        server.generator.raise(LaneName::Primary, &server.layout, FAR_MS);
        let known = server.marks_of(ONE).version();
        server.move_mark(server.marks_of(ONE), START_MS + 1);
        let other = thread::spawn({
            let server = server.clone();
            move || {
                let known = Marks::new(&server.published, known);
                assert_eq!(server.draw_known(known, FAR_MS), None);
            }
        });
        assert!(server.published.claim(ONE, OTHER));
        server.move_mark(server.marks_of(OTHER), FAR_MS + 1);
        assert_eq!(server.draw_known(server.marks_of(OTHER), FAR_MS), Some(FAR_MS));
        assert!(server.published.claim(OTHER, ONE));
        other.join().unwrap();
    });
}

#[test]
fn what_a_restored_dump_holds_is_not_drawn_once_it_is_there() {
    both_ways(|way| {
        let served = Served::default();
        let counted = served.clone();
        all_schedules("marks are forgotten and loaded", move || {
            let server = Guarded::new(&way);
            server.move_mark(server.marks_of(ONE), START_MS + 1);
            let other = thread::spawn({
                let (server, counted) = (server.clone(), counted.clone());
                move || {
                    // Acquire: pairs with the Release below, which makes "once it is there" true in
                    // the model.
                    let there = server.done.load(Ordering::Acquire) == 1;
                    let drawn = server.draw(server.marks_of(ONE), START_MS);
                    counted.count(&drawn);
                    let Ok(tick) = drawn else { return };
                    // Either the old mark permitted it, earlier, or the new mark does, above what
                    // was restored.
                    assert!(tick >= DRAWN_MS || !there && tick == START_MS, "{tick} is drawn, restored: {there}");
                    assert!(tick < DRAWN_MS || server.logged_ms.load(Ordering::Relaxed) > DRAWN_MS + EARLY_MS);
                }
            });
            server.published.forget();
            server.done.store(1, Ordering::Release);
            server.generator.raise(LaneName::Primary, &server.layout, DRAWN_MS);
            server.move_mark(server.marks_of(ONE), DRAWN_MS + 2);
            other.join().unwrap();
        });
        served.assert_both();
    });
}
