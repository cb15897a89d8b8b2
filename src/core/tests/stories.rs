//! The lease's protocol as stories: each file of `stories/` has an event on each line, and below it
//! what the holder wants and what the registry answers. The test plays the events again, with the
//! real holder, and compares.
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
//! | `NAME gives back` | it stops |
//! | `NAME is a copy of NAME` | a copy of a memory, such as a virtual machine's snapshot |
//! | `late messages arrive` | those that are late |
//! | `N s pass` | for all clocks |
//! | `NAME's clock goes N s ahead` | a clock that is wrong |
//! | `registry fails over, and loses N` | a standby without the last N changes is promoted |
//! | `registry is restored to N` | a backup that has the first N changes, on another machine |
//! | `registry is lost, and made again` | as an operator does, who says how long leases were |
//! | `registry is moved` | closed, copied to another machine, and opened there |
//! | `operator closes`, `operator opens` | the fleet's record |
//!
//! Instants are seconds since the story began.

// loom's atomics panic outside a loom model.
#![cfg(not(loom))]

#[allow(dead_code, reason = "the simulation uses the rest")]
#[path = "simulation/registry.rs"]
mod registry;
#[path = "simulation/told.rs"]
mod told;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use registry::{Kind, Store};
use snowflake_core::generator::Generator;
use snowflake_core::layout::Layout;
use snowflake_core::lease::{Effect, Event, Facts, Holder, LeaseTerms, Nonces, Request, Turn};
use snowflake_core::numbers::Numbers;
use snowflake_core::registry::{
    Change, DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, Fleet, FleetLimits, Incarnation, Reading, Swap, SwapAnswer, Wanted,
};
use told::Words;

const START_MS: i64 = 1_800_000_000_000;

/// One server: what lies in its shared memory, and its clock.
struct Server {
    holder: Holder,
    numbers: Numbers,
    generator: Generator,
    ahead_ms: i64,
}

/// What becomes of the first change that a server sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Through,
    AnswerLost,
    Late,
    ProcessEnds,
}

struct Teller {
    layout: Layout,
    store: Option<Store>,
    servers: BTreeMap<String, Server>,
    words: Words,
    late: Vec<Swap>,
    now_ms: i64,
    nonces: u64,
    told: String,
}

impl Teller {
    fn new() -> Self {
        Self {
            layout: Layout::parse("js53").unwrap(),
            store: None,
            servers: BTreeMap::new(),
            words: Words::new(START_MS),
            late: Vec::new(),
            now_ms: START_MS,
            nonces: 0,
            told: String::new(),
        }
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.told, "    {what}").unwrap();
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("\"fleet of N numbers, KIND\" comes first")
    }

    fn nonce(&mut self) -> u64 {
        self.nonces += 1;
        self.nonces
    }

    /// Changes the fleet's record, as an operator does.
    fn operate(&mut self, change: impl FnOnce(&mut Fleet)) {
        let version = self.nonce();
        let store = self.store();
        let mut fleet = store.fleet;
        change(&mut fleet);
        store.write(Change::Fleet(Fleet { version, ..fleet }));
    }

    fn play(&mut self, event: &str) {
        writeln!(self.told, "{event}").unwrap();
        let words: Vec<&str> = event.split_whitespace().collect();
        let number = |word: &str| word.parse::<i64>().unwrap_or_else(|_| panic!("{event}: {word} is not a number"));
        match words.as_slice() {
            [] | ["#", ..] => {}
            ["fleet", "of", numbers, "numbers,", kind] => self.make_fleet(number(numbers), kind),
            ["registry", "fails", "over,", "and", "loses", lost] => self.fail_over(number(lost) as usize),
            ["registry", "is", "restored", "to", changes] => self.restore(number(changes) as usize),
            ["registry", "is", "lost,", "and", "made", "again"] => self.lose(),
            ["registry", "is", "moved"] => self.store().incarnation.store += 1,
            ["operator", "closes"] => self.operate(|fleet| fleet.closed = true),
            ["operator", "opens"] => {
                // It was closed before it was copied, so that nothing is forgotten.
                let incarnation = self.store().incarnation;
                self.operate(|fleet| (fleet.closed, fleet.incarnation) = (false, incarnation));
            }
            ["late", "messages", "arrive"] => self.deliver(),
            [seconds, "s", "pass"] => self.now_ms += 1000 * number(seconds),
            [name, "starts"] => {
                let server = name.bytes().map(u64::from).sum();
                let started = Server {
                    holder: Holder::new(server),
                    numbers: Numbers::new(),
                    generator: Generator::new(),
                    ahead_ms: 0,
                };
                self.servers.insert((*name).to_owned(), started);
            }
            [name, "is", "a", "copy", "of", original] => {
                let holder = self.servers[*original].holder;
                let copy = Server { holder, numbers: Numbers::new(), generator: Generator::new(), ahead_ms: 0 };
                self.servers.insert((*name).to_owned(), copy);
            }
            [name, "clock", "goes", seconds, "s", "ahead"] => {
                let name = name.trim_end_matches("'s");
                self.servers.get_mut(name).expect("a server").ahead_ms = 1000 * number(seconds);
            }
            [name, "keeps"] => self.turn(name, Request::Keep, Way::Through),
            [name, "keeps,", "and", "loses", "the", "answer"] => self.turn(name, Request::Keep, Way::AnswerLost),
            [name, "keeps,", "and", "its", "message", "is", "late"] => self.turn(name, Request::Keep, Way::Late),
            [name, "keeps,", "and", "its", "process", "ends"] => self.turn(name, Request::Keep, Way::ProcessEnds),
            [name, "gives", "back"] => self.turn(name, Request::GiveBack, Way::Through),
            _ => panic!("{event:?} is not an event"),
        }
    }

    fn told_change(&mut self, change: &Change) -> String {
        let old = self.store().fleet;
        self.words.change(change, &old)
    }

    fn make_fleet(&mut self, numbers: i64, kind: &str) {
        let kind = match kind {
            "postgres" => Kind::Postgres,
            "synchronous" => Kind::Synchronous,
            "etcd" => Kind::Etcd,
            _ => panic!("{kind} is not a kind of registry"),
        };
        let counts = if kind == Kind::Etcd { [2, 3] } else { [0; 2] };
        let fleet = Fleet {
            uuid: 1,
            layout: None,
            range: Some((0, numbers - 1)),
            loses_nothing: kind == Kind::Synchronous,
            closed: false,
            longest_ms: 0,
            skew_ms: 0,
            lease_ms: 0,
            clock_skew_ms: 0,
            grace_ms: 0,
            incarnation: Incarnation { store: 1, timeline: 1, counts },
            generation: 1,
            horizon_ms: i64::MIN,
            freeze_ms: i64::MIN,
            version: self.nonce(),
        };
        self.store = Some(Store::new(kind, fleet, 0, START_MS));
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

    fn restore(&mut self, changes: usize) {
        let store = self.store();
        let mut next = store.prefix(changes);
        match next.kind {
            Kind::Etcd => next.incarnation.counts[1] -= 100,
            Kind::Postgres | Kind::Synchronous => next.incarnation.store += 1,
        }
        *store = next;
    }

    fn lose(&mut self) {
        let (now_ms, version) = (self.now_ms, self.nonce());
        let store = self.store();
        let limits = FleetLimits { longest_ms: DEFAULT_LEASE_MS, skew_ms: DEFAULT_SKEW_MS };
        let was = store.fleet;
        let incarnation = Incarnation { store: was.incarnation.store + 7, ..store.incarnation };
        let new = Fleet { generation: 0, longest_ms: DEFAULT_LEASE_MS, skew_ms: DEFAULT_SKEW_MS, ..was };
        let new = new.begin_generation(incarnation, now_ms, limits, version);
        *store = Store::new(store.kind, new, 0, now_ms);
    }

    fn deliver(&mut self) {
        for swap in std::mem::take(&mut self.late) {
            let is_as_read = self.store().compares(&swap, false);
            let what = self.told_change(&swap.change);
            self.tell(&format!("{what}: {}", if is_as_read { "written" } else { "refused" }));
            if is_as_read {
                self.store().write(swap.change);
            }
        }
    }

    /// Plays one turn of a server's process.
    fn turn(&mut self, name: &str, request: Request, mut way: Way) {
        let mut server = self.servers.remove(name).unwrap_or_else(|| panic!("{name} has not started"));
        let (mut turn, mut event) = (Turn::new(request), Event::Begin);
        'turn: loop {
            let nonces = Nonces {
                version: self.nonce(),
                proposals: [self.nonce(), self.nonce()],
                name: [self.nonce(), self.nonce()],
                choice: 0,
            };
            let now_ms = self.now_ms + server.ahead_ms;
            let (layout, terms) = (self.layout, LeaseTerms { max_borrow_ms: 0 });
            let facts = Facts { layout: &layout, datacenter: None, has_backup: false, terms, now_ms, nonces };
            let effects = server.holder.step(&mut turn, &facts, event);
            event = Event::Begin;
            for effect in effects {
                match effect {
                    Effect::Report(notice) => {
                        let notice = self.words.notice(&notice);
                        self.tell(&format!("reports: {notice}"));
                    }
                    Effect::Extend(until_ms) => {
                        server.numbers.extend(until_ms);
                        let until = self.words.at(until_ms);
                        self.tell(&format!("draws until {until}"));
                    }
                    Effect::Enter(span) => {
                        server.numbers.enter(&[], &server.generator, &layout, &span);
                        event = Event::Entered;
                        let [from, until] = [span.from_ms, span.until_ms].map(|ms| self.words.at(ms));
                        self.tell(&format!("draws from {from} until {until}"));
                    }
                    Effect::Leave => {
                        event = Event::Left(server.numbers.leave(&[], &server.generator, &layout));
                        self.tell("draws nothing");
                    }
                    Effect::Read(wanted) => {
                        let reading = self.read(wanted);
                        let what = self.words.reading(wanted, &reading);
                        self.tell(&what);
                        event = Event::Read { reading, before_ms: now_ms };
                    }
                    Effect::Swap(swap) => {
                        let what = self.told_change(&swap.change);
                        match std::mem::replace(&mut way, Way::Through) {
                            Way::ProcessEnds => break 'turn,
                            Way::Late => {
                                self.tell(&format!("{what}: no answer"));
                                self.late.push(swap);
                                break 'turn;
                            }
                            way => {
                                let answer = match self.store().compares(&swap, false) {
                                    true => self.store().write(swap.change),
                                    false => SwapAnswer::Refused,
                                };
                                let answered = match (way, answer) {
                                    (Way::AnswerLost, _) => "no answer",
                                    (_, SwapAnswer::Done(_)) => "written",
                                    (_, SwapAnswer::Refused) => "refused",
                                };
                                self.tell(&format!("{what}: {answered}"));
                                if way == Way::AnswerLost {
                                    break 'turn;
                                }
                                event = Event::Swapped(answer);
                            }
                        }
                    }
                    Effect::Done(result) => {
                        if let Err(failure) = result {
                            let failure = self.words.failure(&failure);
                            self.tell(&format!("fails: {failure}"));
                        }
                        break 'turn;
                    }
                }
            }
        }
        self.servers.insert(name.to_owned(), server);
    }

    fn read(&mut self, wanted: Wanted) -> Reading {
        let now_ms = self.now_ms;
        let Store { fleet, records, incarnation, started_ms, .. } = self.store();
        let mut records = records.clone();
        if let Wanted::Number(worker) = wanted {
            records.retain(|of, _| *of == worker);
        }
        Reading { fleet: *fleet, records, incarnation: *incarnation, now_ms, up_ms: Some(now_ms - *started_ms) }
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
        if teller.told != text {
            println!("--- {}\n{}", file.display(), teller.told);
            changed.push(file.file_name().unwrap().to_string_lossy().into_owned());
            if writes {
                std::fs::write(&file, teller.told).unwrap();
            }
        }
    }
    assert!(writes || changed.is_empty(), "these go differently now: {changed:?}; STORIES=write writes them anew");
}
