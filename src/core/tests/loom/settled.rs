//! Transactions draw and end, while a reader asks for the settled id.
//!
//! PostgreSQL is a list of ended transactions behind a lock. A snapshot is a copy of it, and a
//! transaction ends for the snapshots that are taken after it was added. The reader's answer is
//! compared with all that was drawn, once all threads have ended: an id at or below it must be of a
//! transaction that its snapshot saw as ended.
//!
//! Eleven controls take a step away, or change the order of two. They must find an id that is
//! missed, or an answer that is less than an earlier one. Under loom, a slot has two places and two
//! runs.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use loom::sync::{Arc, Mutex};
use loom::thread;
use snowflake_core::draw::generator::{Announce, Generator, Limits, NO_MARK};
use snowflake_core::draw::numbers::{NextNumbers, Numbers};
use snowflake_core::draw::settled::ended::leaving;
use snowflake_core::draw::settled::run::Run;
use snowflake_core::draw::settled::{Ended, Floor, Promise, Reader, SlotView, Snapshot};
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::id::identity::Identity;
use snowflake_core::id::layout::Layout;

use super::{START_MS, layout, schedules, schedules_until};

/// How often a schedule interrupts the running thread.
const PREEMPTIONS: Option<usize> = Some(3);

const DATABASE: u32 = 1;

/// What is done wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    /// The floor is stored after the draw.
    LateFloor,
    /// The floor is cleared before the transaction is entered.
    LateEntry,
    /// Ended transactions are not entered.
    NoEntry,
    /// The reader reads the floors before the word.
    FloorsFirst,
    /// The reader looks at a slot's ended transactions before its floor.
    EndedFirst,
    /// The reader looks at a slot's runs before its places.
    RunsFirst,
    /// A transaction leaves its place before it is in a run.
    LateFold,
    /// The reader does not look at its snapshot.
    NoSnapshot,
    /// Nothing is promised.
    NoPromise,
    /// What a reader has found for its snapshot is promised to all.
    PromisesAll,
}

/// A slot, and what PostgreSQL knows of its process.
struct Slot {
    floor: Floor,
    ended: Ended,
}

struct Server {
    lie: Lie,
    layout: Layout,
    generator: Generator,
    numbers: Numbers,
    slots: [Slot; 2],
    promise: Promise,
    /// The xids of the transactions that have ended.
    visible: Mutex<Vec<u64>>,
}

/// The xids that had ended when it was taken.
#[derive(Clone)]
struct Seen(Vec<u64>);

impl Snapshot for Seen {
    fn sees_running(&self, xid: u64) -> bool {
        !self.0.contains(&xid)
    }
}

struct Everything;

impl Snapshot for Everything {
    fn sees_running(&self, _xid: u64) -> bool {
        false
    }
}

/// A transaction: its xid, and the id that it has drawn.
type Transaction = (u64, i64);

impl Server {
    fn new(lie: Lie) -> Arc<Self> {
        let slot = || {
            let slot = Slot { floor: Floor::new(), ended: Ended::new() };
            SlotView { floor: &slot.floor, ended: &slot.ended }.begin(DATABASE);
            slot
        };
        let server = Self {
            lie,
            layout: layout(4),
            generator: Generator::new(),
            numbers: Numbers::new(),
            slots: [slot(), slot()],
            promise: Promise::new(),
            visible: Mutex::new(Vec::new()),
        };
        server.promise.take(DATABASE);
        Arc::new(server)
    }

    fn drawing(&self) -> IdStamp {
        IdStamp::new(self.layout, Some(1), None, false).unwrap()
    }

    fn told(&self, slot: usize) -> SlotView<'_> {
        SlotView { floor: &self.slots[slot].floor, ended: &self.slots[slot].ended }
    }

    /// Runs a transaction in a slot from its draw to its end. It is the slot's of this number.
    fn transaction(&self, slot: usize, number: u64) -> Transaction {
        let xid = 10 * (slot as u64 + 1) + number;
        let told = self.told(slot);
        let limits = Limits { max_borrow_ms: 0, marks_ms: [NO_MARK; 2] };
        let (drawing, now) = (self.drawing(), || START_MS);
        let id = if self.lie == Lie::LateFloor {
            let id = self.generator.draw(&drawing, &now, &limits, 1).unwrap().last_id();
            told.floor.announce().attempts(|| id);
            id
        } else {
            self.generator.draw_announced(&drawing, &now, &limits, 1, told.floor.announce()).unwrap().last_id()
        };
        self.visible.lock().unwrap().push(xid);
        match self.lie {
            Lie::LateEntry => {
                let floor = told.floor.get().unwrap();
                told.floor.clear();
                told.ended.enter(xid, floor);
            }
            Lie::NoEntry => told.end(|| None),
            Lie::LateFold => {
                told.ended.put(xid, told.floor.get().unwrap());
                if let Some(leaving) = leaving(number) {
                    told.ended.fold(leaving, Run::join);
                }
                told.floor.clear();
            }
            _ => told.end(|| Some(xid)),
        }
        (xid, id)
    }

    /// Takes a snapshot.
    fn snapshot(&self) -> Seen {
        Seen(self.visible.lock().unwrap().clone())
    }

    /// Returns the settled id for a snapshot.
    fn settled(&self, snapshot: &Seen) -> i64 {
        let promise = Some(&self.promise).filter(|_| self.lie != Lie::NoPromise);
        let Self { generator, numbers, layout, .. } = self;
        let reader = Reader { generator, numbers, layout, database: DATABASE, promise, covered: i64::MAX };
        let drawing = || Some(self.drawing());
        let slots = || (0..self.slots.len()).map(|slot| self.told(slot));
        // As the reader does, but in another order.
        let below = |last: i64, floors: Vec<Option<i64>>| {
            floors.into_iter().flatten().min().map_or(last, |least| last.min(least - 1))
        };
        let id = match self.lie {
            Lie::FloorsFirst => {
                let mut floors: Vec<_> = slots().map(|told| told.open_floor(DATABASE)).collect();
                floors.extend(slots().map(|told| told.ended.least(DATABASE, snapshot)));
                below(reader.last_id(drawing).unwrap(), floors)
            }
            Lie::EndedFirst => {
                let last = reader.last_id(drawing).unwrap();
                let both = |told: SlotView<'_>| [told.ended.least(DATABASE, snapshot), told.open_floor(DATABASE)];
                below(last, slots().flat_map(both).collect())
            }
            Lie::RunsFirst => {
                let last = reader.last_id(drawing).unwrap();
                let all = |told: SlotView<'_>| {
                    let floor = told.open_floor(DATABASE);
                    let before = told.ended.least_of_runs(DATABASE, snapshot);
                    let last = told.ended.last(DATABASE, snapshot);
                    [floor, last.least, before.filter(|_| last.all_run)]
                };
                below(last, slots().flat_map(all).collect())
            }
            Lie::NoSnapshot => reader.settled(drawing, slots(), &Everything, |_| true, || None).unwrap(),
            _ => reader.settled(drawing, slots(), snapshot, |_| true, || None).unwrap(),
        };
        if self.lie == Lie::PromisesAll { id.max(self.promise.id()) } else { id }
    }
}

/// How often a reader's answer held a transaction back, let one pass, was none, and missed an id or
/// fell.
#[derive(Clone, Default)]
struct Found(std::sync::Arc<[AtomicUsize; 4]>);

impl Found {
    fn count(&self, what: usize) {
        self.0[what].fetch_add(1, SeqCst);
    }

    /// Compares an answer with all transactions there were.
    fn compare(&self, snapshot: &Seen, settled: i64, transactions: &[Transaction]) {
        for (xid, id) in transactions {
            let is_seen = !snapshot.sees_running(*xid);
            match (*id <= settled, is_seen) {
                (true, true) => self.count(1),
                (true, false) => self.count(3),
                (false, _) => self.count(0),
            }
        }
    }

    fn times(&self) -> [usize; 4] {
        std::array::from_fn(|what| self.0[what].load(SeqCst))
    }

    fn assert_all(&self, what: &[usize]) {
        let times = self.times();
        assert!(what.iter().all(|what| times[*what] > 0), "something never happened: {times:?}");
        assert_eq!(times[3], 0, "an id was missed, or an answer fell: {times:?}");
    }

    fn assert_control_fails(&self) {
        assert!(self.times()[3] > 0, "no schedule shows that it matters: {:?}", self.times());
    }
}

/// Runs `schedule`, which counts in `found`, in all schedules; with a lie, until it was found.
fn run(name: &str, lie: Lie, found: &Found, schedule: impl Fn() + Sync + Send + 'static) {
    let counted = found.clone();
    match lie {
        Lie::None => schedules(name, PREEMPTIONS, schedule),
        _ => schedules_until(move || counted.times()[3] > 0, name, PREEMPTIONS, schedule),
    }
}

/// Lets a transaction in each of two slots draw and end beside a reader.
fn two_transactions(name: &str, lie: Lie) -> Found {
    let found = Found::default();
    let counted = found.clone();
    run(name, lie, &found, move || {
        let server = Server::new(lie);
        let others = [0, 1].map(|slot| {
            let server = server.clone();
            thread::spawn(move || server.transaction(slot, 0))
        });
        let snapshot = server.snapshot();
        let settled = server.settled(&snapshot);
        let transactions = others.map(|thread| thread.join().unwrap());
        counted.compare(&snapshot, settled, &transactions);
        // With all at their end, all is settled.
        let last = server.snapshot();
        assert_eq!(Some(server.settled(&last)), transactions.iter().map(|(_, id)| *id).max());
    });
    found
}

#[test]
fn every_settled_id_is_of_a_transaction_that_the_snapshot_sees_as_ended() {
    two_transactions("two transactions and a reader", Lie::None).assert_all(&[0, 1]);
}

#[test]
fn a_floor_that_is_stored_after_the_draw_comes_too_late() {
    two_transactions("a late floor", Lie::LateFloor).assert_control_fails();
}

#[test]
fn a_transaction_that_is_entered_after_its_floor_is_cleared_is_missed_in_between() {
    two_transactions("a late entry", Lie::LateEntry).assert_control_fails();
}

#[test]
fn a_transaction_that_is_not_entered_is_missed_by_a_snapshot_from_before_its_end() {
    two_transactions("no entry", Lie::NoEntry).assert_control_fails();
}

#[test]
fn floors_that_are_read_before_the_word_miss_who_draws_in_between() {
    two_transactions("floors first", Lie::FloorsFirst).assert_control_fails();
}

#[test]
fn a_reader_that_does_not_look_at_its_snapshot_passes_what_that_does_not_see() {
    two_transactions("no snapshot", Lie::NoSnapshot).assert_control_fails();
}

#[test]
fn ended_ones_that_are_read_before_the_floor_miss_who_ends_in_between() {
    two_transactions("ended ones first", Lie::EndedFirst).assert_control_fails();
}

/// Lets a slot run transactions one after the other, more than have places, beside a reader. So
/// many have ended before, and the reader's snapshot sees the first of them.
fn one_after_the_other(name: &str, lie: Lie, before: u64) -> Found {
    let found = Found::default();
    let counted = found.clone();
    run(name, lie, &found, move || {
        let server = Server::new(lie);
        let mut transactions: Vec<_> = (0..before).map(|number| server.transaction(0, number)).collect();
        let other = thread::spawn({
            let server = server.clone();
            // The last one overwrites the place of the first, or the buffer of the runs.
            let end = if before == 0 { 3 } else { before + 2 };
            move || (before..end).map(|number| server.transaction(0, number)).collect::<Vec<_>>()
        });
        let mut snapshot = server.snapshot();
        if before > 0 {
            snapshot.0.truncate(1);
        }
        let settled = server.settled(&snapshot);
        transactions.extend(other.join().unwrap());
        counted.compare(&snapshot, settled, &transactions);
    });
    found
}

#[test]
fn a_transaction_that_leaves_its_place_is_in_a_run() {
    one_after_the_other("places are overwritten", Lie::None, 0).assert_all(&[0, 1]);
}

/// The runs change twice while they are read, so that the buffer is overwritten.
#[test]
fn runs_are_read_as_they_were_at_one_time() {
    one_after_the_other("runs are overwritten", Lie::None, 3).assert_all(&[0, 1]);
}

#[test]
fn runs_that_are_read_before_the_places_miss_what_leaves_them_in_between() {
    one_after_the_other("runs first", Lie::RunsFirst, 0).assert_control_fails();
}

#[test]
fn a_transaction_that_leaves_its_place_before_it_is_in_a_run_is_missed_in_between() {
    one_after_the_other("a late fold", Lie::LateFold, 0).assert_control_fails();
}

/// Lets transactions draw and end beside two readers, of which the later one has the later
/// snapshot, or an older one.
fn two_readers(name: &str, lie: Lie, is_later: bool) -> Found {
    let found = Found::default();
    let counted = found.clone();
    run(name, lie, &found, move || {
        let server = Server::new(lie);
        let others = [0, 1].map(|slot| {
            let server = server.clone();
            thread::spawn(move || server.transaction(slot, 0))
        });
        let old = server.snapshot();
        let first_snapshot = if is_later { old.clone() } else { server.snapshot() };
        let first = server.settled(&first_snapshot);
        let second_snapshot = if is_later { server.snapshot() } else { old };
        let second = server.settled(&second_snapshot);
        let transactions = others.map(|thread| thread.join().unwrap());
        counted.compare(&first_snapshot, first, &transactions);
        counted.compare(&second_snapshot, second, &transactions);
        if is_later && second < first {
            counted.count(3);
        }
    });
    found
}

#[test]
fn the_settled_id_never_falls_from_a_snapshot_to_a_later_one() {
    two_readers("two readers", Lie::None, true).assert_all(&[0, 1]);
}

#[test]
fn without_a_promise_the_settled_id_falls() {
    two_readers("no promise", Lie::NoPromise, true).assert_control_fails();
}

#[test]
fn an_older_snapshot_gets_a_lower_id_after_a_newer_one() {
    two_readers("an older snapshot", Lie::None, false).assert_all(&[0, 1]);
}

#[test]
fn what_was_found_for_a_newer_snapshot_is_wrong_for_an_older_one() {
    two_readers("all is promised", Lie::PromisesAll, false).assert_control_fails();
}

/// Changes from the worker number 2 to 1, and draws an id of it, beside a reader of the lane's last
/// id. Draws another one afterwards.
fn numbers_change(name: &str, read: fn(&Reader<'_>, &dyn Fn() -> Option<IdStamp>) -> Option<i64>) -> Found {
    let found = Found::default();
    let counted = found.clone();
    schedules(name, PREEMPTIONS, move || {
        let (layout, generator, numbers) = (layout(1), Generator::new(), Numbers::new());
        let span = move |worker| NextNumbers {
            identity: Identity::new(&layout, Some(worker), None, false).unwrap(),
            from_ms: 1,
            until_ms: 100,
            fleet: 7,
        };
        numbers.enter(&[], &generator, &layout, &span(2));
        let server = Arc::new((layout, generator, numbers));
        let draw = |server: &(Layout, Generator, Numbers)| {
            let (layout, generator, numbers) = server;
            let drawing = numbers.read(layout).unwrap();
            let limits = Limits { max_borrow_ms: 0, marks_ms: [NO_MARK; 2] };
            (START_MS..).find_map(|now_ms| generator.draw(&drawing, &|| now_ms, &limits, 1).ok()).unwrap().last_id()
        };
        let before = draw(&server);
        let other = thread::spawn({
            let server = server.clone();
            move || {
                let (layout, generator, numbers) = &*server;
                numbers.enter(&[], generator, layout, &span(1));
                draw(&server);
            }
        });
        let (layout, generator, numbers) = &*server;
        let reader = Reader { generator, numbers, layout, database: DATABASE, promise: None, covered: i64::MAX };
        let last = read(&reader, &|| numbers.read(layout));
        other.join().unwrap();
        let after = draw(&server);
        assert!(after > before);
        counted.count(match last {
            None => 2,
            Some(last) if last >= after || last < before => 3,
            Some(_) => 1,
        });
    });
    found
}

#[test]
fn nothing_is_drawn_below_the_last_id_while_the_numbers_change() {
    numbers_change("the last id", |reader, drawing| reader.last_id(drawing)).assert_all(&[1, 2]);
}

/// A control: the reader does not look whether the numbers have changed.
#[test]
fn a_word_of_the_new_numbers_with_the_old_number_is_above_what_is_drawn_later() {
    let read: fn(&Reader<'_>, &dyn Fn() -> Option<IdStamp>) -> Option<i64> =
        |reader, drawing| drawing().map(|drawing| reader.generator.last_id(reader.layout, Some(&drawing)));
    numbers_change("no look at the version", read).assert_control_fails();
}
