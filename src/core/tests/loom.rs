//! All schedules of two and three threads that draw while another one moves the clock.
//!
//! Run with `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p snowflake_core --release --test loom`;
//! without that cfg there is nothing here. loom tries every interleaving and, for each load, every value that the
//! memory model lets it read. The clock is such a load, and `Relaxed`: nothing but the word's Acquire and Release keeps
//! it from saying less than the clock reading of the thread that wrote the word. If either of the two were Relaxed, the
//! load of a word would not order what follows it after what preceded its store, an old reading would be allowed beside
//! a new word, and [`a_clock_that_runs_forward_is_never_a_rollback`] would find it: that test is their guard.

#![cfg(loom)]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicI64, Ordering};
use loom::thread;
use snowflake_core::clock::Clock;
use snowflake_core::generator::{Generator, Identity, Lane, LaneName, LaneRefusal, Limits, NO_MARK, Refusal};
use snowflake_core::layout::Layout;

/// Where the clock stands at first; any tick but 0 will do.
const START_MS: i64 = 5;

/// A clock that another thread moves. Relaxed is the least that a clock can promise, and all that the system's does.
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

/// A reading taken before the draw, hence before the word is loaded: the order that the generator must not have. Each
/// retry gets it again.
struct Captured(i64);

impl Clock for Captured {
    fn now_ms(&self) -> i64 {
        self.0
    }
}

/// Few ids per tick, so that a few draws use one up; `sequence_bits` below 7 let every tick begin at 0.
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
    /// To be called inside a model: the lane's atomic is loom's.
    fn new(sequence_bits: u32) -> Arc<Self> {
        let (lane, clock) = (Lane::new(), Moved::new());
        Arc::new(Self { layout: layout(sequence_bits), lane, clock, returned: AtomicI64::new(0) })
    }

    fn draw(&self, clock: &impl Clock, count: u32) -> Result<(u64, u64), LaneRefusal> {
        self.lane.draw(&self.layout, clock, 0, NO_MARK, count)
    }

    /// Draws one id by the clock.
    fn draw_one(&self) -> Result<u64, LaneRefusal> {
        self.draw(&self.clock, 1).map(|(_, word)| word)
    }

    /// Draws one id, and asserts that it is above every id whose draw had returned before this one began (I1).
    fn draw_after_returned(&self) -> Result<u64, LaneRefusal> {
        // Acquire: pairs with the Release below, which makes "returned before this one began" true in the model.
        let returned = self.returned.load(Ordering::Acquire);
        let drawn = self.draw_one();
        if let Ok(word) = drawn {
            assert!(word as i64 > returned, "{word} was drawn after {returned} had returned");
            self.returned.fetch_max(word as i64, Ordering::Release);
        }
        drawn
    }
}

/// Runs `schedule` in all schedules, and says how many there are.
fn all_schedules(name: &str, schedule: impl Fn() + Sync + Send + 'static) {
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    loom::model(move || {
        counted.fetch_add(1, SeqCst);
        schedule();
    });
    println!("{name}: {} schedules", count.load(SeqCst));
}

/// Asserts that each thread's words increase and that no two threads have one in common.
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

/// The words that were drawn; a tick that is used up is no error here, anything else is.
fn drawn(answers: impl IntoIterator<Item = Result<u64, LaneRefusal>>) -> Vec<u64> {
    let used_up = |refused: &LaneRefusal| matches!(refused, LaneRefusal::UsedUp { .. });
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
    // I2. `drawn` panics at LaneRefusal::Behind; with allowance 0, nothing else would hide a false one.
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
                    Err(LaneRefusal::Behind { behind_ms: 1, wait_ms: 1 }) => {
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
                        Err(LaneRefusal::Behind { .. }) => {
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

/// A server with a backup lane, two ids per tick and lane. `before` ids are drawn when the threads begin, so that they
/// have to change lanes.
fn backup_schedules(name: &'static str, max_borrow_ms: i64, before: usize) {
    let lanes = std::sync::Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let counted = lanes.clone();
    all_schedules(name, move || {
        let layout = layout(1);
        let identity = Identity::new(&layout, Some(1), None, true).unwrap();
        let limits = Limits { max_borrow_ms, marks_ms: [NO_MARK; 2] };
        let shared = Arc::new((Generator::new(), Moved::new()));
        let draw_some = {
            let counted = counted.clone();
            move |shared: Arc<(Generator, Moved)>, draws: usize| {
                let (generator, clock) = &*shared;
                let mut ids = [const { Vec::new() }; 2];
                for _ in 0..draws {
                    match generator.draw(&layout, &identity, clock, &limits, 1) {
                        Ok(run) => {
                            let lane = run.lane() as usize;
                            counted[lane].fetch_add(1, SeqCst);
                            let id = identity.last_id(&layout, run);
                            let worker = if run.lane() == LaneName::Backup { 3 } else { 1 };
                            assert_eq!(layout.parts(id).unwrap().worker, Some(worker));
                            ids[lane].push(id as u64);
                        }
                        // I2: what looks like a step back is what the backup lane has borrowed, and is no rollback.
                        Err(Refusal::UsedUp { .. } | Refusal::Behind { .. }) => {}
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
        // Unique and increasing per lane; across lanes the worker differs, asserted above.
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
