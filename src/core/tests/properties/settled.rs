//! The settled id against an oracle that knows every transaction.
//!
//! A history has sessions that draw, write, commit, roll back, prepare, end and die; slots that
//! change their database; snapshots that are kept; numbers that change; and restarts. It has one
//! thread, so the settled id is known exactly, and where transactions were joined to runs, its
//! bound. `loom/settled.rs` has the threads.

use std::cell::Cell;
use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use snowflake_core::draw::generator::{Announce, DrawRefusal, Generator, Limits, NO_MARK, longest_run};
use snowflake_core::draw::numbers::{NextNumbers, Numbers};
use snowflake_core::draw::settled::answers::{Answers, Asking};
use snowflake_core::draw::settled::ended::{MOST_ENDED, leaving};
use snowflake_core::draw::settled::prepared::{self, PreparedPlace, PreparedRuns, PreparedTable, PreparedTransaction};
use snowflake_core::draw::settled::run::Run;
use snowflake_core::draw::settled::{Ended, Floor, Promise, Reader, SlotView, Snapshot};
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::id::identity::{Identity, LaneName};
use snowflake_core::id::layout::Layout;

use crate::{config, for_all};

const SLOTS: usize = 3;
const DATABASES: u32 = 2;

/// How many transactions can be prepared at once, and how many places there are for ended ones.
const MOST_PREPARED: usize = 2;
const SPARE: usize = 2;

/// A transaction id whose low 32 bits are about to wrap around.
const FIRST_XID: u64 = (1 << 32) - 20;

#[derive(Debug, Clone, Copy)]
enum Step {
    Draw(usize, u32),
    /// The transaction gets an xid.
    Write(usize),
    Commit(usize),
    /// So many transactions draw, write and commit, one after the other; if that is said, backends
    /// of both databases have the slot in turn.
    CommitMany(usize, usize, bool),
    RollBack(usize),
    /// The lane is used up, so a draw is refused after it has announced itself.
    Refuse(usize),
    Prepare(usize),
    /// So many transactions are prepared and end, one after the other.
    PrepareMany(usize, usize),
    /// Ends a prepared transaction.
    Finish(usize, bool),
    /// Another backend takes the slot, for a database.
    Take(usize, u32),
    /// The process of the slot ends, and another library keeps it from clearing its floor.
    Die(usize),
    /// The clock goes on.
    Tick(i64),
    /// The server gets another worker number.
    Number(i64),
    Keep,
    /// A reader of a database, with a snapshot that was kept, or a new one.
    Read(u32, Option<usize>),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slot = || 0..SLOTS;
    let database = || 1..=DATABASES;
    let step = prop_oneof![
        12 => (slot(), prop_oneof![3 => Just(1), 1 => 1_u32..=4]).prop_map(|(slot, count)| Step::Draw(slot, count)),
        8 => slot().prop_map(Step::Write),
        8 => slot().prop_map(Step::Commit),
        1 => (slot(), 1..90_usize, any::<bool>()).prop_map(|(slot, times, turns)| Step::CommitMany(slot, times, turns)),
        2 => slot().prop_map(Step::RollBack),
        1 => slot().prop_map(Step::Refuse),
        3 => slot().prop_map(Step::Prepare),
        1 => (slot(), 1..30_usize).prop_map(|(slot, times)| Step::PrepareMany(slot, times)),
        4 => (0..4_usize, any::<bool>()).prop_map(|(which, commits)| Step::Finish(which, commits)),
        2 => (slot(), database()).prop_map(|(slot, database)| Step::Take(slot, database)),
        1 => slot().prop_map(Step::Die),
        2 => (0..2000_i64).prop_map(Step::Tick),
        1 => (0..32_i64).prop_map(Step::Number),
        3 => Just(Step::Keep),
        12 => (database(), proptest::option::of(0..4_usize)).prop_map(|(of, kept)| Step::Read(of, kept)),
        1 => Just(Step::Restart),
    ];
    vec(step, 0..150)
}

/// What is done wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    /// The floor is that of the last draw.
    LastDraw,
    /// A draw that is refused leaves its floor.
    RefusedStays,
    /// Ended transactions are not entered.
    NoEntry,
    /// Entries do not know their database.
    AnyDatabase,
    /// The reader does not look at its snapshot.
    NoSnapshot,
    /// The reader believes the floor of a process that has ended.
    DeadStay,
    /// Prepared transactions are not entered.
    NoPrepared,
    /// Nobody loads what was prepared before a restart.
    NotLoaded,
    /// Transactions leave their places a transaction too late.
    LeaveLate,
    /// A run is over when its first transaction is.
    RunOfFirst,
    /// A run has the greatest floor.
    RunOfGreatest,
    /// A run is of the database of its last transaction.
    RunOfOneDatabase,
    /// Transactions that leave their places are in no run.
    NoRuns,
    /// A prepared transaction that makes room leaves nothing.
    NoPreparedRuns,
    /// A run of prepared transactions is over if its last one is.
    PreparedRunOfLast,
    /// A later snapshot may get less than an earlier one of the session got.
    Falls,
    /// What a reader has found for its snapshot is promised to all.
    PromisesAll,
    /// The reader goes up to what other databases have drawn.
    Uncovered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Prepared,
    /// With an xid, so that snapshots from before its end do not see its rows.
    Committed,
    /// It has left no rows.
    Gone,
}

#[derive(Debug)]
struct Transaction {
    database: u32,
    xid: Option<u64>,
    first: Option<i64>,
    state: State,
    /// Whether it was prepared: it counts for snapshots from before its end even if it is rolled
    /// back.
    was_prepared: bool,
}

struct Slot {
    floor: Floor,
    ended: Ended,
    database: u32,
    is_alive: bool,
    /// The open transaction, as an index.
    open: Option<usize>,
    /// The xids that were entered.
    entered: Vec<u64>,
}

#[derive(Debug, Clone)]
struct Kept {
    ended: BTreeSet<u64>,
    /// The first xid that it does not know.
    first_unknown: u64,
    /// When it was taken.
    number: usize,
}

impl Snapshot for Kept {
    fn sees_running(&self, xid: u64) -> bool {
        !self.ended.contains(&xid)
    }
}

struct Everything;

impl Snapshot for Everything {
    fn sees_running(&self, _xid: u64) -> bool {
        false
    }
}

/// What a restart loses.
struct Memory {
    generator: Generator,
    numbers: Numbers,
    slots: [Slot; SLOTS],
    promises: [Promise; DATABASES as usize],
    prepared: Vec<PreparedPlace>,
    runs: PreparedRuns,
}

impl Memory {
    fn new() -> Self {
        let slot = |_| {
            let (floor, ended, database) = (Floor::new(), Ended::new(), 1);
            SlotView { floor: &floor, ended: &ended }.begin(database);
            Slot { floor, ended, database, is_alive: true, open: None, entered: Vec::new() }
        };
        let promise = |number| {
            let promise = Promise::new();
            promise.take(number as u32 + 1);
            promise
        };
        Self {
            generator: Generator::new(),
            numbers: Numbers::new(),
            slots: std::array::from_fn(slot),
            promises: std::array::from_fn(promise),
            prepared: (0..MOST_PREPARED + SPARE).map(|_| PreparedPlace::new()).collect(),
            runs: PreparedRuns::new(),
        }
    }

    fn told(&self, slot: usize) -> SlotView<'_> {
        SlotView { floor: &self.slots[slot].floor, ended: &self.slots[slot].ended }
    }

    fn table(&self) -> PreparedTable<'_> {
        PreparedTable { places: &self.prepared, runs: &self.runs }
    }
}

struct World {
    lie: Lie,
    layout: Layout,
    now_ms: i64,
    memory: Memory,
    /// What the reading session of each database remembers.
    sessions: [Answers; DATABASES as usize],
    transactions: Vec<Transaction>,
    /// The locks of prepared transactions, which outlive a restart.
    locks: Vec<PreparedTransaction>,
    next_xid: u64,
    ended: BTreeSet<u64>,
    kept: Vec<Kept>,
    snapshots: usize,
    /// For each database: the greatest id that it has drawn, which its mark covers.
    covered: [i64; DATABASES as usize],
    /// For each database: each answer, and when its snapshot was taken.
    answers: [Vec<(usize, i64)>; DATABASES as usize],
    /// How often runs mattered.
    by_runs: usize,
}

impl World {
    fn new(lie: Lie, layout: Layout) -> Self {
        let world = Self {
            lie,
            layout,
            now_ms: 1_800_000_000_000,
            memory: Memory::new(),
            sessions: [Answers::new(), Answers::new()],
            transactions: Vec::new(),
            locks: Vec::new(),
            next_xid: FIRST_XID,
            ended: BTreeSet::new(),
            kept: Vec::new(),
            snapshots: 0,
            covered: [0; DATABASES as usize],
            answers: [Vec::new(), Vec::new()],
            by_runs: 0,
        };
        world.enter(5);
        world
    }

    fn enter(&self, worker: i64) {
        let identity = Identity::new(&self.layout, Some(worker), None, false).unwrap();
        let span = NextNumbers { identity, from_ms: self.now_ms, until_ms: i64::MAX - 1, fleet: 7 };
        self.memory.numbers.enter(&[], &self.memory.generator, &self.layout, &span);
    }

    fn drawing(&self) -> Option<IdStamp> {
        self.memory.numbers.read(&self.layout)
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Draw(slot, count) => self.draw(slot, count)?,
            Step::Refuse(slot) => self.refuse(slot),
            Step::Write(slot) => {
                if let Some(open) = self.memory.slots[slot].open {
                    self.write(open);
                }
            }
            Step::Commit(slot) => self.end(slot, true),
            Step::CommitMany(slot, times, turns) => {
                for time in 0..times {
                    if turns {
                        self.step(Step::Take(slot, time as u32 / 3 % DATABASES + 1))?;
                    }
                    self.draw(slot, 1)?;
                    if let Some(open) = self.memory.slots[slot].open {
                        self.write(open);
                    }
                    self.end(slot, true);
                }
            }
            Step::RollBack(slot) => self.end(slot, false),
            Step::Prepare(slot) => self.prepare(slot),
            Step::PrepareMany(slot, times) => {
                for time in 0..times {
                    self.draw(slot, 1)?;
                    self.prepare(slot);
                    self.finish(time, time % 2 == 0);
                }
            }
            Step::Finish(which, commits) => self.finish(which, commits),
            Step::Take(slot, database) => {
                self.end(slot, false);
                self.memory.told(slot).begin(if self.lie == Lie::AnyDatabase { 1 } else { database });
                let slot = &mut self.memory.slots[slot];
                (slot.database, slot.is_alive) = (database, true);
            }
            Step::Die(slot) => {
                if let Some(open) = self.memory.slots[slot].open.take() {
                    self.over(open, State::Gone);
                }
                self.memory.slots[slot].is_alive = false;
            }
            Step::Tick(ms) => self.now_ms += ms,
            Step::Number(worker) => self.enter(worker),
            Step::Keep => {
                let snapshot = self.snapshot();
                self.kept.push(snapshot);
            }
            Step::Read(database, kept) => self.read(database, kept)?,
            Step::Restart => self.restart(),
        }
        Ok(())
    }

    fn draw(&mut self, slot: usize, count: u32) -> Result<(), TestCaseError> {
        if !self.memory.slots[slot].is_alive {
            return Ok(());
        }
        let told = self.memory.told(slot);
        if self.lie == Lie::LastDraw {
            told.floor.clear();
        }
        let limits = Limits { max_borrow_ms: 1_000_000_000, marks_ms: [NO_MARK; 2] };
        let (drawing, count) = (self.drawing().unwrap(), count.min(longest_run(&self.layout)));
        let now = || self.now_ms;
        let run = self.memory.generator.draw_announced(&drawing, &now, &limits, count, told.floor.announce()).unwrap();
        let ids: Vec<_> = run.ids().collect();
        let database = self.memory.slots[slot].database;
        let settled = self.answers[database as usize - 1].iter().map(|(_, id)| *id).max().unwrap_or(0);
        prop_assert!(ids[0] > settled, "{} is drawn, but {settled} was settled", ids[0]);
        self.covered[database as usize - 1] = ids[ids.len() - 1];
        let open = self.open(slot);
        self.transactions[open].first.get_or_insert(ids[0]);
        Ok(())
    }

    /// Announces a draw that is then refused.
    fn refuse(&mut self, slot: usize) {
        let told = self.memory.told(slot);
        if !self.memory.slots[slot].is_alive {
            return;
        }
        let announce = told.floor.announce();
        let last = self.memory.generator.last_id(&self.layout, self.drawing().as_ref());
        announce.attempts(|| last + 1);
        if self.lie != Lie::RefusedStays {
            let limits = Limits { max_borrow_ms: 0, marks_ms: [0; 2] };
            let (drawing, now) = (self.drawing().unwrap(), || self.now_ms);
            let refusal = self.memory.generator.draw_announced(&drawing, &now, &limits, 1, announce);
            let is_expected = |refusal: &DrawRefusal| !matches!(refusal, DrawRefusal::TimeUsedUp);
            assert!(refusal.as_ref().is_err_and(is_expected), "{refusal:?}");
        }
    }

    /// Returns the slot's transaction, and begins one if there is none.
    fn open(&mut self, slot: usize) -> usize {
        let database = self.memory.slots[slot].database;
        *self.memory.slots[slot].open.get_or_insert_with(|| {
            let new = Transaction { database, xid: None, first: None, state: State::Open, was_prepared: false };
            self.transactions.push(new);
            self.transactions.len() - 1
        })
    }

    fn write(&mut self, transaction: usize) -> u64 {
        let next = &mut self.next_xid;
        *self.transactions[transaction].xid.get_or_insert_with(|| {
            *next += 1;
            *next - 1
        })
    }

    /// Makes the end of a transaction visible.
    fn over(&mut self, transaction: usize, state: State) {
        let transaction = &mut self.transactions[transaction];
        transaction.state = state;
        self.ended.extend(transaction.xid);
    }

    fn end(&mut self, slot: usize, commits: bool) {
        let Some(open) = self.memory.slots[slot].open.take() else { return };
        let Transaction { xid, first, .. } = self.transactions[open];
        self.over(open, if commits && xid.is_some() { State::Committed } else { State::Gone });
        let xid = xid.filter(|_| commits && self.lie != Lie::NoEntry);
        let told = self.memory.told(slot);
        if let (Some(xid), Some(floor)) = (xid, told.floor.get()) {
            let number = self.memory.slots[slot].entered.len() as u64;
            let join = |one: Run, other: Run| {
                let run = one.join(other);
                match self.lie {
                    Lie::RunOfFirst => Run { last_xid: one.last_xid, ..run },
                    Lie::RunOfGreatest => Run { first_floor: other.first_floor, ..run },
                    Lie::RunOfOneDatabase => Run { database: other.database, ..run },
                    _ => run,
                }
            };
            match self.lie {
                Lie::LeaveLate => {
                    told.ended.put(xid, floor);
                    if let Some(leaving) = number.checked_sub(1).and_then(leaving) {
                        told.ended.fold(leaving, join);
                    }
                }
                Lie::NoRuns => told.ended.put(xid, floor),
                Lie::RunOfFirst | Lie::RunOfGreatest | Lie::RunOfOneDatabase => {
                    if let Some(leaving) = leaving(number) {
                        told.ended.fold(leaving, join);
                    }
                    told.ended.put(xid, floor);
                }
                _ => told.ended.enter(xid, floor),
            }
            told.floor.clear();
        }
        told.end(|| None);
        if first.is_some() {
            self.memory.slots[slot].entered.extend(xid);
        }
    }

    fn prepare(&mut self, slot: usize) {
        let count = self.transactions.iter().filter(|transaction| transaction.state == State::Prepared).count();
        let Some(open) = self.memory.slots[slot].open.filter(|_| count < MOST_PREPARED) else { return };
        self.memory.slots[slot].open = None;
        let xid = self.write(open);
        let database = self.transactions[open].database;
        if let Some(floor) = self.memory.told(slot).floor.get() {
            let transaction = PreparedTransaction { xid, floor, database };
            self.locks.push(transaction);
            if self.lie != Lie::NoPrepared {
                self.tabulate(transaction);
            }
        }
        (self.transactions[open].state, self.transactions[open].was_prepared) = (State::Prepared, true);
        self.memory.told(slot).end(|| None);
    }

    /// Enters a transaction into the table, as the server does.
    fn tabulate(&self, transaction: PreparedTransaction) {
        let table = self.memory.table();
        let ended: Vec<_> = table.to_look_at().filter(|xid| self.ended.contains(xid)).collect();
        for ended in ended.chunks(SPARE) {
            table.make_room(ended, |one, other| match self.lie {
                Lie::PreparedRunOfLast => Run { first_xid: other.last_xid, ..one.join(other) },
                _ => one.join(other),
            });
        }
        assert!(table.enter(transaction), "there is room for all that can be prepared");
    }

    fn finish(&mut self, which: usize, commits: bool) {
        let prepared = (0..self.transactions.len()).filter(|n| self.transactions[*n].state == State::Prepared);
        let prepared: Vec<_> = prepared.collect();
        if let Some(transaction) = prepared.get(which % prepared.len().max(1)) {
            self.over(*transaction, if commits { State::Committed } else { State::Gone });
            let xid = self.transactions[*transaction].xid;
            self.locks.retain(|lock| Some(lock.xid) != xid);
        }
    }

    fn snapshot(&mut self) -> Kept {
        self.snapshots += 1;
        let first_unknown = self.ended.last().map_or(FIRST_XID, |last| last + 1);
        Kept { ended: self.ended.clone(), first_unknown, number: self.snapshots }
    }

    /// Ends all open transactions. The lanes begin above all that was drawn.
    fn restart(&mut self) {
        for slot in 0..SLOTS {
            if let Some(open) = self.memory.slots[slot].open.take() {
                self.over(open, State::Gone);
            }
        }
        self.kept.clear();
        // As the mark does, which is ahead of all.
        let reached_ms = self.memory.generator.reached_ms(LaneName::Primary, &self.layout).unwrap_or(self.now_ms);
        self.now_ms = self.now_ms.max(reached_ms) + self.layout.unit().ms();
        self.memory = Memory::new();
        self.memory.generator.raise(LaneName::Primary, &self.layout, self.now_ms);
        self.enter(5);
        if self.lie != Lie::NotLoaded {
            self.locks.iter().for_each(|lock| self.tabulate(*lock));
        }
    }

    /// Returns what the settled id is, and whether runs may make it lower.
    fn expected(&self, database: u32, snapshot: &Kept) -> (i64, bool) {
        let runs = |xid: Option<u64>| xid.is_some_and(|xid| snapshot.sees_running(xid));
        let holds = |transaction: &&Transaction| {
            let Transaction { xid, state, was_prepared, .. } = transaction;
            transaction.database == database
                && match state {
                    State::Open | State::Prepared => true,
                    State::Committed => runs(*xid),
                    State::Gone => *was_prepared && runs(*xid),
                }
        };
        let last = self.memory.generator.last_id(&self.layout, self.drawing().as_ref());
        let floors = self.transactions.iter().filter(holds).filter_map(|transaction| transaction.first);
        let needs_runs = self.memory.slots.iter().any(|slot| {
            let mut last = slot.entered.iter().rev().take(MOST_ENDED);
            slot.entered.len() > MOST_ENDED && last.all(|xid| snapshot.sees_running(*xid))
        });
        let covered = self.covered[database as usize - 1];
        let may_be_lower = needs_runs || self.memory.table().runs().next().is_some();
        (floors.map(|floor| floor - 1).chain([last, covered]).min().unwrap(), may_be_lower)
    }

    fn read(&mut self, database: u32, kept: Option<usize>) -> Result<(), TestCaseError> {
        let kept = kept.filter(|_| !self.kept.is_empty()).map(|n| self.kept[n % self.kept.len()].clone());
        let snapshot = kept.unwrap_or_else(|| self.snapshot());
        let Memory { generator, numbers, slots, promises, .. } = &self.memory;
        let promise = Promise::find(promises, database);
        let is_alive = |slot: usize| slots[slot].is_alive || self.lie == Lie::DeadStay;
        let seen = &snapshot;
        let prepared = || {
            let table = self.memory.table();
            let known: Vec<_> = table.transactions().collect();
            let runs: Vec<_> = table.runs().filter(|_| self.lie != Lie::NoPreparedRuns).collect();
            let has_ended_since = |first, last| {
                self.ended.range(first..=last).any(|xid| *xid < seen.first_unknown && seen.sees_running(*xid))
            };
            let least = prepared::least(database, &known, &runs, seen, seen.first_unknown, has_ended_since);
            least.filter(|_| self.lie != Lie::NoSnapshot)
        };
        let covered = if self.lie == Lie::Uncovered { i64::MAX } else { self.covered[database as usize - 1] };
        let reader = Reader { generator, numbers, layout: &self.layout, database, promise, covered };
        let told = (0..SLOTS).map(|slot| self.memory.told(slot));
        let drawing = || self.drawing();
        let settled = match self.lie {
            Lie::NoSnapshot => reader.settled(drawing, told, &Everything, is_alive, prepared),
            _ => reader.settled(drawing, told, seen, is_alive, prepared),
        }
        .unwrap();
        let (expected, may_be_lower) = self.expected(database, seen);
        let settled = if self.lie == Lie::PromisesAll { settled.max(promise.unwrap().id()) } else { settled };
        prop_assert!(settled == expected || may_be_lower && settled < expected, "{settled}, and not {expected}");
        self.by_runs += usize::from(settled < expected);
        // Each read is a transaction of the session.
        let transaction = self.answers[database as usize - 1].len() as u32;
        let running: Vec<_> = (FIRST_XID..seen.first_unknown).filter(|xid| seen.sees_running(*xid)).collect();
        let running: Vec<_> = running.into_iter().map(|xid| xid as u32).collect();
        let asking = Asking { transaction, xmax: seen.first_unknown, running: &running, own: None };
        let session = &mut self.sessions[database as usize - 1];
        prop_assert_eq!(session.find(&asking), Ok(None));
        let settled = if self.lie == Lie::Falls { settled } else { session.give(&asking, settled) };
        prop_assert!(settled <= expected, "{settled}, but {expected} is settled");
        let answers = &mut self.answers[database as usize - 1];
        let before = answers.iter().filter(|(number, _)| *number <= seen.number).map(|(_, id)| *id).max();
        prop_assert!(before <= Some(settled), "{before:?} falls to {settled}");
        answers.push((seen.number, settled));
        Ok(())
    }
}

/// Runs histories, and returns what the first one that fails has found, and how often runs
/// mattered.
fn run(lie: Lie, cases: u32) -> (Option<String>, usize) {
    let layouts = prop_oneof![
        Just(Layout::parse("snowflake").unwrap()),
        Just(Layout::parse("js53").unwrap()),
        Just(Layout::parse("time:40 sequence:2 worker:5 unit:10ms epoch:2020-01-01T00:00:00Z").unwrap()),
    ];
    let by_runs = Cell::new(0);
    let mut config = config(cases);
    // A history that fails for a lie need not be a short one.
    config.max_shrink_iters = if lie == Lie::None { config.max_shrink_iters } else { 0 };
    let result = TestRunner::new(config).run(&(layouts, steps()), |(layout, steps)| {
        let mut world = World::new(lie, layout);
        let result = steps.into_iter().try_for_each(|step| world.step(step));
        by_runs.set(by_runs.get() + world.by_runs);
        result
    });
    (result.err().map(|error| error.to_string()), by_runs.get())
}

#[test]
fn the_settled_id_is_what_an_oracle_says_and_never_falls() {
    let (error, by_runs) = run(Lie::None, 3000);
    assert_eq!(error, None);
    assert!(by_runs > 0, "no snapshot needed runs");
}

#[test]
fn the_oracle_notices_each_lie() {
    for lie in [
        Lie::LastDraw,
        Lie::RefusedStays,
        Lie::NoEntry,
        Lie::AnyDatabase,
        Lie::NoSnapshot,
        Lie::DeadStay,
        Lie::NoPrepared,
        Lie::NotLoaded,
        Lie::LeaveLate,
        Lie::RunOfFirst,
        Lie::RunOfGreatest,
        Lie::RunOfOneDatabase,
        Lie::NoRuns,
        Lie::NoPreparedRuns,
        Lie::PreparedRunOfLast,
        Lie::Falls,
        Lie::PromisesAll,
        Lie::Uncovered,
    ] {
        assert!(run(lie, 20_000).0.is_some(), "nothing shows that it matters: {lie:?}");
    }
}

/// Only times matter here, so ids are microseconds.
#[test]
fn an_old_snapshot_gets_an_id_that_is_older_by_less_than_its_age() {
    struct From(u64);
    impl Snapshot for From {
        fn sees_running(&self, xid: u64) -> bool {
            xid >= self.0
        }
    }
    // So many transactions one after the other, so far from each other, at each of a few rates.
    let gap = prop_oneof![Just(16_i64), Just(100), Just(1000), Just(100_000), Just(3_600_000_000)];
    for_all(40, (vec((1..60_000_usize, gap), 1..6), any::<u64>()), |(phases, seed)| {
        let (ended, mut floors, mut now, mut random) = (Ended::new(), Vec::new(), 0, seed);
        for (times, gap) in &phases {
            for _ in 0..*times {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                now += 1 + (random >> 33) as i64 % (2 * gap);
                ended.enter(floors.len() as u64, now);
                floors.push(now);
            }
        }
        // With one rate, half of it is enough.
        let share = if phases.len() == 1 { 2 } else { 1 };
        for first in (0..floors.len()).step_by(floors.len().div_ceil(100)) {
            let least = ended.least(0, &From(first as u64)).unwrap();
            let (floor, age) = (floors[first], now - floors[first]);
            prop_assert!(least <= floor, "{least} is above {floor}");
            // A reader for which all of the last ones run looks at the runs, which may have one of
            // them already.
            if floors.len() - first < MOST_ENDED {
                prop_assert_eq!(least, floor);
            }
            prop_assert!((floor - least) * share <= age, "{} of {age}, {first} of {phases:?}", floor - least);
        }
        Ok(())
    });
}
