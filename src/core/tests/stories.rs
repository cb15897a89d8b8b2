//! The protocols of leases and tags as stories: each file of `stories/` has an event on each line,
//! and below it what a server wants and what the registry answers. The test plays the events again,
//! with the real holder and the real supply, and compares.
//!
//! `STORIES=write cargo test -p snowflake_core --test stories` writes the files anew. Read the
//! difference then, as one reads a change of code.
//!
//! | event | what happens |
//! |---|---|
//! | `# ...`, or nothing | a remark |
//! | `fleet of N numbers, KIND` | the registry: `postgres`, `synchronous` or `etcd`; no server has used it |
//! | `NAME starts` | a server, or its next life: shared memory is made anew |
//! | `NAME keeps` | it renews its lease, or acquires one |
//! | `NAME keeps, and loses the answer` | the same, but the answer to its first change is lost |
//! | `NAME keeps, and its message is late` | its first change has not arrived yet |
//! | `NAME keeps, and its process ends` | its worker ends instead of its first change |
//! | `NAME gives back` | it gives back its number, because it stops |
//! | `NAME draws N of TAG` | a session draws values of a tag |
//! | `NAME takes over TAG from N on` | a session wants no value of a tag that is less |
//! | `NAME reserves` | its worker reserves the blocks that are due, or looks whether its tags are there; also with what follows `keeps,` above |
//! | `NAME gives its values back` | it gives back what is left of its blocks, because it stops |
//! | `NAME is a copy of NAME` | a copy of a memory, such as a virtual machine's snapshot |
//! | `late messages arrive` | those that are late |
//! | `N s pass` | for all clocks |
//! | `NAME's clock goes N s ahead` | a clock that is wrong |
//! | `registry fails over, and loses N` | a standby without the last N changes is promoted |
//! | `registry is restored to N` | a backup that has the first N changes, on another machine |
//! | `registry is restored to N, and shows nothing` | files are copied back, and no operator says so |
//! | `registry is lost, and made anew` | another store, with the record of a fleet that no server has used |
//! | `registry is moved` | copied to another machine |
//! | `OPERATOR closes` | `operator` or `another operator`, as all of the following; also with what follows `keeps,` above |
//! | `OPERATOR opens what was moved`, `... the old registry` | after a move, or in place of one |
//! | `OPERATOR says that it was restored` | begins a generation; also `..., with leases of up to N s` |
//! | `OPERATOR says that it was lost, with leases of up to N s` | the same, for a registry that was made anew |
//! | `OPERATOR lets servers lease N to M` | the range |
//! | `OPERATOR permits leases of N s`, `... sets leases of N s` | the limit, and what is used of it |
//! | `OPERATOR keeps number N until N s` | a number that was configured on a server |
//! | `OPERATOR makes TAG, N to M values at a time` | a tag, which stops after a failover; or `..., and jumps` |
//! | `OPERATOR sets TAG to N`, `... lets TAG jump` | its next value, that it jumps |
//! | `OPERATOR deletes TAG` | a tag |
//! | `OPERATOR tries again` | after an answer that was lost, or a message that is late |
//!
//! Instants are seconds since the story began.

// loom's atomics panic outside a loom model.
#![cfg(not(loom))]

mod kit;
#[path = "simulation/told.rs"]
mod told;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use kit::registry::{Kind, Store, unused_fleet};
use kit::server::{Connected, Memory, Notice, Process};
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::lease::{Holder, Lease, LeaseTerms};
use snowflake_core::fleet::operate::{self, Operation};
use snowflake_core::fleet::registry::{
    self, DEFAULT_SKEW_MS, Fleet, Incarnation, NumberKey, Reading, Swap, SwapAnswer, Wanted,
};
use snowflake_core::fleet::segment::{PlaceRefusal, State, Supply};
use snowflake_core::fleet::tag::Tag;
use snowflake_core::id::layout::Layout;
use told::Words;

const START_MS: i64 = 1_800_000_000_000;

/// The uuids of the fleet, and of a registry that is made anew.
const FLEET: u128 = 1;
const OTHER_FLEET: u128 = 2;

/// One server: what lies in its shared memory, and its clock.
struct Server {
    holder: Holder,
    ahead_ms: i64,
    supply: Box<Supply>,
    memory: Memory,
}

impl Server {
    fn new(holder: Holder) -> Self {
        Self { holder, ahead_ms: 0, supply: Box::new(Supply::new()), memory: Memory::new(3) }
    }
}

fn number(word: &str) -> i64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is not a number"))
}

/// Returns a number that is not random. Any number up to 16 divides it, so that the first one of
/// the unused numbers is chosen.
fn next(nonces: &Cell<u64>) -> u64 {
    nonces.set(nonces.get() + 720_720);
    nonces.get()
}

/// What becomes of the first change that a server sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Through,
    AnswerLost,
    Late,
    ProcessEnds,
}

impl Way {
    /// Splits an event from what becomes of the first change.
    fn of(event: &str) -> (&str, Self) {
        let ways = [
            (", and loses the answer", Self::AnswerLost),
            (", and its message is late", Self::Late),
            (", and its process ends", Self::ProcessEnds),
        ];
        let split = |(words, way)| Some((event.strip_suffix(words)?, way));
        ways.into_iter().find_map(split).unwrap_or((event, Self::Through))
    }
}

/// What a process does with what lies in its server's memory.
type Turn = fn(&mut Holder, &mut Supply, &Connected<'_, Worker<'_>>) -> Result<(), Failure<NoAnswer>>;

/// The registry for a server's process or for an operator, of which the teller hears.
struct Desk<'a> {
    teller: RefCell<&'a mut Teller>,
    way: Cell<Way>,
    is_operators: bool,
}

/// A server's process.
struct Worker<'a> {
    desk: Desk<'a>,
    layout: Layout,
    server: &'a Server,
    /// The lease with which its sessions draw, as it was kept last.
    held: Cell<Option<Lease>>,
}

/// There is no answer, or the process has ended.
#[derive(Debug, Clone, Copy)]
struct NoAnswer;

impl Worker<'_> {
    fn tell(&self, what: impl FnOnce(&Words) -> String) -> Result<(), NoAnswer> {
        let mut teller = self.desk.teller.borrow_mut();
        let what = what(&teller.words);
        teller.tell(&what);
        Ok(())
    }
}

impl registry::Store for Desk<'_> {
    type Error = NoAnswer;

    fn read(&self, wanted: &Wanted) -> Result<Reading, NoAnswer> {
        Ok(self.teller.borrow_mut().read(wanted))
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, NoAnswer> {
        let way = self.way.replace(Way::Through);
        self.teller.borrow_mut().send(swap.clone(), self.is_operators, way).ok_or(NoAnswer)
    }
}

impl Process for Worker<'_> {
    type NoAnswer = NoAnswer;

    fn memory(&self) -> &Memory {
        &self.server.memory
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn now_ms(&self) -> i64 {
        self.running_ms() + self.server.ahead_ms
    }

    fn running_ms(&self) -> i64 {
        self.desk.teller.borrow().now_ms
    }

    fn nonce(&self) -> u64 {
        self.desk.teller.borrow().nonce()
    }

    fn read(&self, wanted: &Wanted) -> Result<Reading, NoAnswer> {
        registry::Store::read(&self.desk, wanted)
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, NoAnswer> {
        registry::Store::swap(&self.desk, swap)
    }

    fn saves(&self, holder: &Holder) -> Result<(), NoAnswer> {
        let (before, held) = (self.held.replace(holder.held()), holder.held());
        let span = |lease: Lease| (lease.worker, lease.from_ms, lease.until_ms);
        match (before.map(span), held.map(span)) {
            (before, held) if before == held => Ok(()),
            (_, None) => self.tell(|_| "draws nothing".to_owned()),
            (Some((worker, from_ms, _)), Some(held)) if (worker, from_ms) == (held.0, held.1) => {
                self.tell(|words| format!("draws until {}", words.at(held.2)))
            }
            (_, Some((_, from_ms, until_ms))) => {
                self.tell(|words| format!("draws from {} until {}", words.at(from_ms), words.at(until_ms)))
            }
        }
    }

    fn report(&self, notice: Notice) -> Result<(), NoAnswer> {
        self.tell(|words| {
            let notice = match &notice {
                Notice::Fleet(notice) => words.fleet_notice(notice),
                Notice::Lease(notice) => words.notice(notice),
                Notice::Supply(notice) => words.supply_notice(notice),
            };
            format!("reports: {notice}")
        })
    }
}

const TERMS: LeaseTerms = LeaseTerms { max_borrow_ms: 0 };

struct Teller {
    layout: Layout,
    store: Option<Store>,
    servers: BTreeMap<String, Server>,
    words: Words,
    /// Messages that are late, and whether they are an operator's.
    late: Vec<(Swap, bool)>,
    /// What operators go on with that had no answer.
    turns: BTreeMap<String, operate::Turn>,
    now_ms: i64,
    nonces: Cell<u64>,
    text: String,
}

impl Teller {
    fn new() -> Self {
        Self {
            layout: Layout::parse("js53").unwrap(),
            store: None,
            servers: BTreeMap::new(),
            words: Words::new(START_MS),
            late: Vec::new(),
            turns: BTreeMap::new(),
            now_ms: START_MS,
            nonces: Cell::new(0),
            text: String::new(),
        }
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.text, "    {what}").unwrap();
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("\"fleet of N numbers, KIND\" comes first")
    }

    fn nonce(&self) -> u64 {
        next(&self.nonces)
    }

    /// Plays a turn of an operator.
    fn operate(&mut self, operator: &str, mut turn: operate::Turn, way: Way) {
        let desk = Desk { teller: RefCell::new(self), way: Cell::new(way), is_operators: true };
        let result = turn.perform(&desk, &mut || desk.teller.borrow().nonce());
        let told = match result {
            Ok(outcome) => format!("done: {}", self.words.outcome(&outcome)),
            Err(operate::NotPerformed::Refused(refusal)) => format!("refuses: {}", self.words.refusal(&refusal)),
            Err(operate::NotPerformed::Away(NoAnswer)) => {
                self.turns.insert(operator.to_owned(), turn);
                return;
            }
        };
        self.tell(&told);
    }

    /// Plays what an operator does.
    fn play_operator(&mut self, operator: &str, words: &[&str], way: Way) {
        let number = |word: &str| number(word.trim_end_matches(','));
        let tag = |word: &str| Tag::new(word.trim_end_matches(',')).unwrap();
        let set = |tag, next, jumps| Operation::SetTag { tag, next, least: None, greatest: None, jumps };
        let operation = match *words {
            ["tries", "again"] => {
                let turn = self.turns.remove(operator).expect("the operator has had no answer");
                return self.operate(operator, turn, way);
            }
            ["closes"] => Operation::Close,
            ["opens", "what", "was", "moved"] => Operation::Open { moved: Some(true) },
            ["opens", "the", "old", "registry"] => Operation::Open { moved: Some(false) },
            ["says", "that", "it", "was", "restored"] => Operation::Restored { lease_ms: None, skew_ms: None },
            ["says", "that", "it", "was", "restored,", "with", "leases", "of", "up", "to", lease_s, "s"] => {
                Operation::Restored { lease_ms: Some(1000 * number(lease_s)), skew_ms: Some(DEFAULT_SKEW_MS) }
            }
            ["says", "that", "it", "was", "lost,", "with", "leases", "of", "up", "to", lease_s, "s"] => {
                let lease_ms = 1000 * number(lease_s);
                Operation::Lost { lease_ms, skew_ms: DEFAULT_SKEW_MS, uuid: Some(FLEET) }
            }
            ["lets", "servers", "lease", first, "to", last] => {
                Operation::SetRange { first: number(first), last: number(last) }
            }
            ["permits", "leases", "of", lease_s, "s"] => {
                Operation::SetLimits { lease_ms: Some(1000 * number(lease_s)), skew_ms: None }
            }
            ["sets", "leases", "of", lease_s, "s"] => {
                Operation::SetLease { lease_ms: Some(1000 * number(lease_s)), skew_ms: None }
            }
            ["keeps", "number", worker, "until", until_s, "s"] => {
                let number_key = NumberKey::new(None, number(worker));
                Operation::Reserve { number: number_key, until_ms: START_MS + 1000 * number(until_s), force: false }
            }
            ["makes", name, least, "to", greatest, "values", "at", "a", "time" | "time,", ref jumps @ ..] => {
                let jumps = match *jumps {
                    [] => false,
                    ["and", "jumps"] => true,
                    _ => panic!("an operator does not do this: {words:?}"),
                };
                let steps = (number(least) as u32, number(greatest) as u32);
                Operation::CreateTag { tag: tag(name), next: 1, steps, jumps }
            }
            ["sets", name, "to", next] => set(tag(name), Some(number(next)), None),
            ["lets", name, "jump"] => set(tag(name), None, Some(true)),
            ["deletes", name] => Operation::DropTag { tag: tag(name) },
            _ => panic!("an operator does not do this: {words:?}"),
        };
        self.operate(operator, operate::Turn::new(operation), way);
    }

    fn play(&mut self, event: &str) {
        writeln!(self.text, "{event}").unwrap();
        let (event, way) = Way::of(event);
        let words: Vec<&str> = event.split_whitespace().collect();
        match words.as_slice() {
            [] | ["#", ..] => {}
            ["fleet", "of", numbers, "numbers,", kind] => self.make_fleet(number(numbers), kind),
            ["registry", "fails", "over,", "and", "loses", lost] => self.fail_over(number(lost) as usize),
            ["registry", "is", "restored", "to", changes] => self.restore(number(changes) as usize, true),
            ["registry", "is", "restored", "to", changes, "and", "shows", "nothing"] => {
                self.restore(number(changes.trim_end_matches(',')) as usize, false);
            }
            ["registry", "is", "lost,", "and", "made", "anew"] => self.lose(),
            ["registry", "is", "moved"] => self.store().incarnation.store += 1,
            ["operator", words @ ..] => self.play_operator("operator", words, way),
            ["another", "operator", words @ ..] => self.play_operator("another operator", words, way),
            ["late", "messages", "arrive"] => self.deliver(),
            [seconds, "s", "pass"] => self.now_ms += 1000 * number(seconds),
            [name, "starts"] => {
                let server = name.bytes().map(u64::from).sum();
                self.servers.insert((*name).to_owned(), Server::new(Holder::new(server)));
            }
            [name, "is", "a", "copy", "of", original] => {
                let holder = self.servers[*original].holder;
                self.servers.insert((*name).to_owned(), Server::new(holder));
            }
            [name, "clock", "goes", seconds, "s", "ahead"] => {
                let name = name.trim_end_matches("'s");
                self.servers.get_mut(name).expect("a server").ahead_ms = 1000 * number(seconds);
            }
            [name, "gives", "back"] => self.turn(name, way, |holder, _, process| holder.give_back(process)),
            [name, "gives", "its", "values", "back"] => {
                self.turn(name, way, |holder, supply, process| supply.give_back(process, &mut holder.membership));
            }
            [name, "draws", count, "of", tag] => self.draw(name, number(count) as u32, tag),
            [name, "takes", "over", tag, "from", least, "on"] => self.take_over(name, tag, number(least)),
            [name, "keeps"] => self.turn(name, way, |holder, _, process| holder.renew_or_acquire(process, &TERMS)),
            [name, "reserves"] => {
                self.turn(name, way, |holder, supply, process| supply.supply(process, &mut holder.membership));
            }
            _ => panic!("{event:?} is not an event"),
        }
    }

    fn told(&mut self, swap: &Swap) -> String {
        let old = self.store().fleet;
        self.words.changes(swap, &old)
    }

    fn make_fleet(&mut self, numbers: i64, kind: &str) {
        let kind = match kind {
            "postgres" => Kind::Postgres,
            "synchronous" => Kind::Synchronous,
            "etcd" => Kind::Etcd,
            _ => panic!("{kind} is not a kind of registry"),
        };
        let fleet = Fleet { range: Some((0, numbers - 1)), ..unused_fleet(kind, FLEET, self.nonce()) };
        self.store = Some(Store::new(kind, fleet, 0));
    }

    fn fail_over(&mut self, lost: usize) {
        let store = self.store();
        let changes = store.changes();
        let mut next = store.prefix(changes - lost);
        match next.kind {
            Kind::Etcd => next.incarnation.counts[0] += 1,
            Kind::Postgres | Kind::Synchronous => next.incarnation.timeline += 1,
        }
        *store = next;
    }

    fn restore(&mut self, changes: usize, shows: bool) {
        let store = self.store();
        let mut next = store.prefix(changes);
        match next.kind {
            _ if !shows => {}
            Kind::Etcd => next.incarnation.counts[1] -= 100,
            Kind::Postgres | Kind::Synchronous => next.incarnation.store += 1,
        }
        *store = next;
    }

    fn lose(&mut self) {
        let version = self.nonce();
        let store = self.store();
        let incarnation = Incarnation { store: store.incarnation.store + 7, ..store.incarnation };
        let fleet = Fleet { loses_nothing: false, incarnation, ..unused_fleet(store.kind, OTHER_FLEET, version) };
        *store = Store::new(store.kind, fleet, 0);
    }

    fn deliver(&mut self) {
        for (swap, is_operators) in std::mem::take(&mut self.late) {
            let what = self.told(&swap);
            let answered = told_answer(self.arrive(&swap, is_operators));
            self.tell(&format!("{what}: {answered}"));
        }
    }

    /// Plays one turn of a server's process.
    fn turn(&mut self, name: &str, way: Way, turn: Turn) {
        let mut server = self.servers.remove(name).unwrap_or_else(|| panic!("{name} has not started"));
        let (mut holder, mut supply) = (server.holder, server.supply.clone());
        let layout = self.layout;
        let desk = Desk { teller: RefCell::new(self), way: Cell::new(way), is_operators: false };
        let process = Worker { desk, layout, server: &server, held: Cell::new(holder.held()) };
        let result = turn(&mut holder, &mut supply, &Connected(&process));
        // What it says it draws with, its sessions find.
        let until_ms = server.memory.numbers.read(&layout).map(|drawing| drawing.until_ms());
        assert_eq!(until_ms, holder.held().map(|lease| lease.until_ms));
        (server.holder, server.supply) = (holder, supply);
        self.servers.insert(name.to_owned(), server);
        self.end(result);
    }

    fn read(&mut self, wanted: &Wanted) -> Reading {
        let time_ms = self.now_ms;
        let reading = self.store().read(wanted, time_ms);
        let what = self.words.reading(wanted, &reading);
        self.tell(&what);
        reading
    }

    fn arrive(&mut self, swap: &Swap, is_operators: bool) -> SwapAnswer {
        let store = self.store();
        if is_operators && store.compares_for_operator(swap) {
            return store.write(swap.changes.clone());
        }
        if is_operators { SwapAnswer::Refused } else { store.swap(swap) }
    }

    /// Sends a swap. Returns the answer, if it arrives at a process.
    fn send(&mut self, swap: Swap, is_operators: bool, way: Way) -> Option<SwapAnswer> {
        let what = self.told(&swap);
        let answer = match way {
            Way::ProcessEnds => return None,
            Way::Late => {
                self.late.push((swap, is_operators));
                None
            }
            Way::AnswerLost => {
                self.arrive(&swap, is_operators);
                None
            }
            Way::Through => Some(self.arrive(&swap, is_operators)),
        };
        self.tell(&format!("{what}: {}", answer.map_or("no answer", told_answer)));
        answer
    }

    fn end<E: Copy + std::fmt::Debug>(&mut self, result: Result<(), Failure<E>>) {
        if let Err(failure) = result
            && !matches!(failure, Failure::Away(_))
        {
            let failure = self.words.failure(&failure);
            self.tell(&format!("fails: {failure}"));
        }
    }

    /// Plays a session that draws.
    fn draw(&mut self, name: &str, count: u32, tag: &str) {
        let server = &self.servers[name];
        let (_, view) = server.memory.tags.find(Tag::new(tag).unwrap()).unwrap();
        let told = match view.draw(count) {
            Ok(drawn) => {
                let last = drawn.run.values().last().expect("a run is not empty");
                let due = if drawn.needs_refill { ", and wakes the worker" } else { "" };
                format!("draws {} to {last}{due}", drawn.run.first)
            }
            Err(PlaceRefusal::Empty(State::Open)) => "draws nothing, and waits for a block".to_owned(),
            Err(refusal) => format!("draws nothing: {refusal:?}"),
        };
        self.tell(&told);
    }

    /// Plays a session that throws away what is less than `least`.
    fn take_over(&mut self, name: &str, tag: &str, least: i64) {
        let places = &self.servers[name].memory.tags;
        let (place, view) = places.find(Tag::new(tag).unwrap()).unwrap();
        places.raise_minimum(place, view.claim(), least);
        while let Ok(found) = view.find(1) {
            match u32::try_from(least.saturating_sub(found.run().first)) {
                Ok(below @ 1..) => _ = view.draw(below),
                _ => break,
            }
        }
    }
}

fn told_answer(answer: SwapAnswer) -> &'static str {
    match answer {
        SwapAnswer::Done(_) => "written",
        SwapAnswer::Refused => "refused",
    }
}

#[test]
fn each_story_goes_as_it_is_told() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let writes = std::env::var("STORIES").is_ok_and(|value| value == "write");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 10, "{} has {} stories", folder.display(), files.len());
    let mut changed = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut teller = Teller::new();
        // What is indented was told before.
        text.lines().filter(|line| !line.starts_with(' ')).for_each(|line| teller.play(line));
        if teller.text != text {
            println!("--- {}\n{}", file.display(), teller.text);
            changed.push(file.file_name().unwrap().to_string_lossy().into_owned());
            if writes {
                std::fs::write(&file, teller.text).unwrap();
            }
        }
    }
    assert!(writes || changed.is_empty(), "these go differently now: {changed:?}; STORIES=write writes them anew");
}
