//! Sessions draw from blocks while the worker puts blocks in place and takes them out, and while
//! another tag takes the place.
//!
//! A worker that begins misses no block that becomes due meanwhile.
//!
//! Five controls take a step away, or do it in the wrong order. They must find a value that is
//! drawn twice, or that belongs to another tag, or a block that nobody reserves.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use loom::thread;
use snowflake_core::fleet::segment::{
    Block, Drawn, Place, PlaceRefusal, PlaceView, Rest, State, ValueRun, WorkerLatch,
};

use super::{schedules, schedules_until};

/// How often a schedule interrupts the running thread. With one more, the models of three threads
/// take minutes instead of seconds.
const PREEMPTIONS: Option<usize> = Some(3);

/// The first values of the blocks, of one tag and of another.
const ONE: i64 = 100;
const NEXT: i64 = 200;
const THIRD: i64 = 300;
const OTHER: i64 = 900;

/// Returns a place that is claimed, with blocks that begin at these values.
fn place(blocks: &[(i64, u32)]) -> Arc<Place> {
    let place = Place::new();
    place.claim();
    for block in blocks {
        put(&place, *block);
        // The first block becomes the current one without a draw.
        if blocks.len() > 1 && *block == blocks[0] {
            assert_eq!(drawn(place.view().draw(1)), [block.0]);
        }
    }
    Arc::new(place)
}

/// Puts a block in place, if there is room.
fn put(place: &Place, (first, count): (i64, u32)) -> bool {
    place.room().map(|room| place.fill(room, Block { first, count })).is_some()
}

fn values(run: ValueRun) -> Vec<i64> {
    run.values().collect()
}

/// Returns what was drawn, if anything.
fn drawn(answer: Result<Drawn, PlaceRefusal>) -> Vec<i64> {
    answer.map(|drawn| values(drawn.run)).unwrap_or_default()
}

/// Returns the values that are left.
fn left(rest: Rest) -> Vec<i64> {
    let values = |block: Block| (block.first..block.end()).collect::<Vec<_>>();
    [rest.current, rest.next].into_iter().flatten().flat_map(values).collect()
}

/// Makes loom try other threads' steps here. loom looks for schedules only where it sees that two
/// accesses depend on each other, and does not see that a load by the worker depends on an exchange
/// by a session that has loaded the word just before. Relaxed: it orders nothing in the model.
#[derive(Clone)]
struct Turn(Arc<AtomicI64>);

impl Turn {
    fn new() -> Self {
        Self(Arc::new(AtomicI64::new(0)))
    }

    fn may_change(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs a draw in a thread of its own.
fn session(place: &Arc<Place>, draw: impl FnOnce(PlaceView<'_>) -> Vec<i64> + 'static) -> thread::JoinHandle<Vec<i64>> {
    let (place, claim) = (place.clone(), place.view().claim());
    thread::spawn(move || draw(PlaceView::new(&place, claim)))
}

/// How often each thing was seen.
#[derive(Clone, Default)]
struct Seen(std::sync::Arc<[AtomicUsize; 4]>);

impl Seen {
    fn count(&self, what: usize, is_seen: bool) {
        self.0[what].fetch_add(usize::from(is_seen), SeqCst);
    }

    fn assert_all(&self, what: &[&str]) {
        for (name, count) in what.iter().zip(&*self.0) {
            assert!(count.load(SeqCst) > 0, "never seen: {name}");
        }
    }
}

/// Asserts that no value comes twice, and that each is of one of the blocks.
fn assert_unique(threads: &[Vec<i64>], blocks: &[(i64, u32)]) {
    assert!(is_unique(threads, blocks), "{threads:?} of {blocks:?}");
}

fn is_unique(threads: &[Vec<i64>], blocks: &[(i64, u32)]) -> bool {
    let mut all = threads.concat();
    all.sort_unstable();
    let is_of = |value: &i64| blocks.iter().any(|(first, count)| (*first..first + i64::from(*count)).contains(value));
    all.is_sorted_by(|one, next| one < next) && all.iter().all(is_of)
}

#[test]
fn sessions_draw_each_value_once_while_blocks_change() {
    let seen = Seen::default();
    let counted = seen.clone();
    schedules("blocks change", PREEMPTIONS, move || {
        let blocks = [(ONE, 2), (NEXT, 1), (THIRD, 2)];
        let place = place(&blocks[..2]);
        // One value is drawn already. The first draw takes the last one of its block.
        let turn = Turn::new();
        let other = session(&place, {
            let turn = turn.clone();
            move |view| {
                let values = draw_twice(view);
                turn.may_change();
                values
            }
        });
        let third = session(&place, |view| drawn(view.draw(2)));
        turn.may_change();
        let is_put = put(&place, blocks[2]);
        let mine = drawn(place.view().draw(1));
        let [other, third] = [other, third].map(|thread| thread.join().unwrap());
        assert!(other.is_sorted_by(|one, next| one < next), "{other:?}");
        counted.count(0, is_put);
        counted.count(1, !is_put);
        counted.count(2, [&mine, &other, &third].into_iter().flatten().any(|value| *value >= THIRD));
        assert_unique(&[mine, other, third], &blocks);
    });
    seen.assert_all(&["room", "no room", "a value of the third block"]);
}

#[test]
fn a_value_is_greater_than_all_whose_draw_had_returned_before() {
    schedules("values ascend", PREEMPTIONS, || {
        let place = place(&[(ONE, 2), (NEXT, 2)]);
        let returned = Arc::new(AtomicI64::new(0));
        let draw = |place: &Place, returned: &AtomicI64| {
            // Acquire: pairs with the Release below, which makes "had returned before" true in the
            // model.
            let before = returned.load(Ordering::Acquire);
            let value = drawn(place.view().draw(1))[0];
            assert!(value > before, "{value} was drawn after {before} had returned");
            returned.fetch_max(value, Ordering::Release);
        };
        let others = [0, 1].map(|_| {
            let (place, returned) = (place.clone(), returned.clone());
            thread::spawn(move || draw(&place, &returned))
        });
        draw(&place, &returned);
        others.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn no_session_is_refused_while_a_block_is_there() {
    schedules("blocks that suffice", PREEMPTIONS, || {
        let blocks = [(ONE, 2), (NEXT, 1), (THIRD, 1)];
        let place = place(&blocks[..2]);
        let turn = Turn::new();
        let others = [0, 1].map(|_| {
            let turn = turn.clone();
            session(&place, move |view| {
                turn.may_change();
                let values = drawn(view.draw(1));
                turn.may_change();
                values
            })
        });
        turn.may_change();
        put(&place, blocks[2]);
        let others = others.map(|thread| thread.join().unwrap());
        assert!(others.iter().all(|values| values.len() == 1), "{others:?}");
        assert_unique(&others, &blocks);
    });
}

#[test]
fn what_is_taken_out_is_not_drawn_and_nothing_else_is_left() {
    schedules("what is left is taken out", PREEMPTIONS, || {
        let place = place(&[(ONE, 2), (NEXT, 2)]);
        let others = [1, 2].map(|count| session(&place, move |view| drawn(view.draw(count))));
        let left = left(place.take_out());
        let others = others.map(|thread| thread.join().unwrap()).concat();
        let mut all = [left, others].concat();
        all.sort_unstable();
        assert_eq!(all, [ONE + 1, NEXT, NEXT + 1]);
    });
}

/// How another tag takes the place while a session of the one before draws.
type TakeOver = fn(&Place) -> Vec<i64>;

/// Runs a session beside a change of the tag, and another session that draws for the new tag.
/// `check` gets what the session of the old tag has drawn, and what was drawn for the new one.
fn change_of_tag(take_over: TakeOver, draw: fn(PlaceView<'_>) -> Vec<i64>, check: impl Fn(&[i64], &[i64])) {
    let place = place(&[(ONE, 2), (NEXT, 1)]);
    let old = session(&place, draw);
    let new = take_over(&place);
    check(&old.join().unwrap(), &new);
}

fn draw_twice(view: PlaceView<'_>) -> Vec<i64> {
    [drawn(view.draw(1)), drawn(view.draw(1))].concat()
}

/// The right order: emptied, claimed, filled.
fn take_over(place: &Place) -> Vec<i64> {
    place.free();
    let view = place.claim();
    assert!(put(place, (OTHER, 2)));
    drawn(view.draw(1))
}

#[test]
fn a_place_gives_each_tag_its_own_values() {
    let seen = Seen::default();
    let counted = seen.clone();
    schedules("another tag takes the place", PREEMPTIONS, move || {
        change_of_tag(take_over, draw_twice, |old, new| {
            assert_eq!(new, [OTHER]);
            assert!(old.iter().all(|value| *value < OTHER), "{old:?}");
            for (what, count) in [0, 1, 2].into_iter().enumerate() {
                counted.count(what, old.len() == count);
            }
        });
    });
    seen.assert_all(&["no value", "one value", "two values"]);
}

#[test]
fn a_session_of_another_tag_is_told_to_look_again_and_not_to_wait() {
    schedules("a place is claimed", PREEMPTIONS, || {
        let place = place(&[(ONE, 1)]);
        assert_eq!(drawn(place.view().draw(1)), [ONE]);
        let claim = place.view().claim();
        let other = thread::spawn({
            let place = place.clone();
            move || PlaceView::new(&place, claim).draw(1)
        });
        place.free();
        place.claim();
        let refused = other.join().unwrap();
        let told = [PlaceRefusal::Void, PlaceRefusal::Empty(State::Open), PlaceRefusal::Empty(State::Unknown)];
        assert!(told.contains(&refused.unwrap_err()), "{refused:?}");
        assert_eq!(PlaceView::new(&place, claim).draw(1), Err(PlaceRefusal::Void));
        assert_eq!(place.view().draw(1), Err(PlaceRefusal::Empty(State::Open)));
    });
}

/// Draws the value that makes a block due, and wakes the worker, while a worker begins. Returns
/// whether the session has woken it, and whether the worker has seen that the block is due.
fn worker_begins<L: Send + Sync + 'static>(latch: L, begin: fn(&L), to_wake: fn(&L) -> u64) -> (bool, bool) {
    let place = place(&[(ONE, 1)]);
    let latch = Arc::new(latch);
    let session = thread::spawn({
        let (place, latch) = (place.clone(), latch.clone());
        move || {
            let drawn = place.view().draw(1).unwrap();
            assert!(drawn.needs_refill);
            to_wake(&latch) != 0
        }
    });
    begin(&latch);
    let is_seen = place.room().is_some() && place.needs_refill();
    (session.join().unwrap(), is_seen)
}

#[test]
fn a_block_that_becomes_due_while_a_worker_begins_is_not_forgotten() {
    let seen = Seen::default();
    let counted = seen.clone();
    schedules("a worker begins", None, move || {
        let (is_woken, is_seen) = worker_begins(WorkerLatch::new(), |latch| latch.begin(1), WorkerLatch::to_wake);
        assert!(is_woken || is_seen, "nobody reserves the block");
        counted.count(0, !is_seen);
        counted.count(1, !is_woken);
    });
    seen.assert_all(&["a worker that is woken only", "a worker that sees it only"]);
}

/// A control: the same stores and loads, without the fences between them.
#[test]
fn a_block_is_forgotten_without_the_fences_between_store_and_load() {
    let seen = Seen::default();
    let counted = seen.clone();
    control("a worker begins without fences", None, &seen, move || {
        let (is_woken, is_seen) = worker_begins(
            AtomicU64::new(0),
            |latch| latch.store(1, Ordering::Release),
            |latch| latch.load(Ordering::Acquire),
        );
        counted.count(0, !is_woken && !is_seen);
    });
    seen.assert_all(&["a block that nobody reserves"]);
}

/// Runs schedules of a control until the first thing was seen.
fn control(name: &str, preemptions: Option<usize>, seen: &Seen, schedule: impl Fn() + Sync + Send + 'static) {
    let seen = seen.clone();
    schedules_until(move || seen.0[0].load(SeqCst) > 0, name, preemptions, schedule);
}

/// A control must find a session of the old tag that draws a value of the new one, or the reverse.
fn control_of_tags(name: &'static str, take_over: TakeOver, draw: fn(PlaceView<'_>) -> Vec<i64>) {
    let seen = Seen::default();
    let counted = seen.clone();
    control(name, PREEMPTIONS, &seen, move || {
        change_of_tag(take_over, draw, |old, new| {
            let is_wrong = old.iter().any(|value| *value >= OTHER) || new.iter().any(|value| *value < OTHER);
            counted.count(0, is_wrong);
        });
    });
    seen.assert_all(&["a value of another tag"]);
}

/// A control: the place is claimed, and not emptied before.
#[test]
fn a_place_that_is_claimed_with_its_blocks_gives_them_to_the_wrong_tag() {
    let claim_at_once: TakeOver = |place| {
        let view = place.claim();
        drawn(view.draw(1))
    };
    control_of_tags("a place is claimed with its blocks", claim_at_once, |view| drawn(view.draw(1)));
}

/// A control: the next tag's block is put in place before the place is claimed.
#[test]
fn a_place_that_is_filled_before_it_is_claimed_gives_values_to_the_wrong_tag() {
    let fill_first: TakeOver = |place| {
        place.free();
        put(place, (OTHER, 2));
        drawn(place.claim().draw(1))
    };
    control_of_tags("a place is filled before it is claimed", fill_first, draw_twice);
}

/// A control: a session remembers its place, and not the claim.
#[test]
fn a_session_that_forgets_the_claim_draws_values_of_another_tag() {
    let seen = Seen::default();
    let counted = seen.clone();
    control("a session forgets the claim", PREEMPTIONS, &seen, move || {
        let place = place(&[(ONE, 2), (NEXT, 1)]);
        let old = thread::spawn({
            let place = place.clone();
            move || drawn(place.view().draw(1))
        });
        take_over(&place);
        counted.count(0, old.join().unwrap().iter().any(|value| *value >= OTHER));
    });
    seen.assert_all(&["a value of another tag"]);
}

/// A control: two workers at a time fill the same room.
#[test]
fn two_workers_that_fill_one_room_give_values_of_no_block() {
    let seen = Seen::default();
    let counted = seen.clone();
    control("two workers", Some(2), &seen, move || {
        let place = place(&[(ONE, 1)]);
        assert_eq!(drawn(place.view().draw(1)), [ONE]);
        let room = place.room().unwrap();
        let worker = thread::spawn({
            let place = place.clone();
            move || place.fill(room, Block { first: NEXT, count: 1 })
        });
        let other = session(&place, |view| drawn(view.draw(3)));
        place.fill(room, Block { first: THIRD, count: 3 });
        let mine = drawn(place.view().draw(3));
        worker.join().unwrap();
        let other = other.join().unwrap();
        counted.count(0, !is_unique(&[mine, other], &[(NEXT, 1), (THIRD, 3)]));
    });
    seen.assert_all(&["a value of no block, or one that is drawn twice"]);
}
