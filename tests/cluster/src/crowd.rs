//! Many members of a fleet in one process. Each has a thread and a connection of its own, so that a
//! registry serves them as it serves as many servers.
//!
//! The protocol is not simulated: a [`Member`] is the core's holder over the extension's
//! connection. When to come, and what else to ask for, is what a server's worker does
//! (`src/fleet/keeper.rs`).

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::lease::Lease;
use snowflake_core::fleet::pace::{self, Pace};
use snowflake_core::fleet::registry::{NumberRecord, Reading, Store, Wanted};
use snowflake_registry::{Config, RegistryError};

use crate::registry::{Calls, Member, now_ms};
use crate::server::locked;

/// The stack of a thread: there may be a thousand.
const STACK: usize = 512 << 10;

/// What the members of a crowd do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Nothing.
    Wait,
    /// Acquire or renew at once, and then as often as a server does.
    Keep,
    /// Acquire or renew again and again without a pause.
    Hurry,
    /// Stop as a server does: give back the number, disconnect, and then do nothing. The next order
    /// begins another life.
    Stop,
    /// End the thread.
    End,
}

/// What the members have done since the last order or [`Crowd::begin`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Their calls of the registry.
    pub calls: Calls,
    /// How often one has acquired or renewed.
    pub kept: u64,
    /// How often one could not, because others have changed the records at each try.
    pub contended: u64,
    /// How often one could not, because no number is free.
    pub none_free: u64,
    /// How often one could not for another reason.
    pub failed: u64,
}

impl Tally {
    /// Returns how many transactions the calls were.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.calls.reads + self.calls.reads_of_all + self.calls.swaps
    }
}

/// How long it took until all members had done something.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// Until the first one had.
    pub first: Duration,
    /// Until the last one had.
    pub last: Duration,
}

/// What one member shows.
#[derive(Default)]
struct Shown {
    lease: Option<Lease>,
    /// Since when it counts. What was begun earlier does not count.
    count: u64,
    tally: Tally,
    /// When it first acquired, renewed or gave back since the last order.
    done_at: Option<Instant>,
    failure: Option<String>,
}

/// The order for all, how many there were, and how often counting has begun.
struct Given {
    order: Order,
    number: u64,
    count: u64,
    at: Instant,
}

impl Given {
    fn begin(&mut self, all: &[Mutex<Shown>]) {
        (self.count, self.at) = (self.count + 1, Instant::now());
        for shown in all {
            let mut shown = locked(shown);
            (shown.count, shown.tally, shown.done_at) = (self.count, Tally::default(), None);
        }
    }
}

struct Shared {
    given: Mutex<Given>,
    changes: Condvar,
    shown: Vec<Mutex<Shown>>,
}

/// Many members. Dropping it ends them, and gives nothing back.
pub struct Crowd {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// Makes so many members of a layout, who wait for an order. `config` says how each reaches the
    /// registry.
    ///
    /// # Panics
    ///
    /// Panics if there is no such layout, or if there cannot be as many threads.
    #[must_use]
    pub fn new(members: usize, layout: &str, config: impl Fn(usize) -> Config) -> Self {
        raise_open_files();
        let given = Mutex::new(Given { order: Order::Wait, number: 0, count: 0, at: Instant::now() });
        let shown = (0..members).map(|_| Mutex::default()).collect();
        let shared = Arc::new(Shared { given, changes: Condvar::new(), shown });
        let start = |number: usize| {
            let (shared, layout, config) = (Arc::clone(&shared), layout.to_owned(), config(number));
            let run = move || Life::new(&shared, number, &layout, config).run();
            thread::Builder::new().stack_size(STACK).spawn(run).expect("there may be another thread")
        };
        let threads = (0..members).map(start).collect();
        Self { shared, threads }
    }

    /// Gives all members an order, which they follow at once, and begins to count anew.
    pub fn order(&self, order: Order) {
        let mut given = locked(&self.shared.given);
        given.begin(&self.shared.shown);
        (given.order, given.number) = (order, given.number + 1);
        self.shared.changes.notify_all();
    }

    /// Begins to count anew.
    pub fn begin(&self) {
        locked(&self.shared.given).begin(&self.shared.shown);
    }

    /// Waits until all members have acquired, renewed or given back since the last order or
    /// [`begin`](Self::begin). `None` after `patience`; see [`failures`](Self::failures).
    #[must_use]
    pub fn wait(&self, patience: Duration) -> Option<Took> {
        let from = locked(&self.shared.given).at;
        let end = Instant::now() + patience;
        loop {
            let done: Option<Vec<_>> = self.shared.shown.iter().map(|shown| locked(shown).done_at).collect();
            if let Some(done) = done {
                let took = |at: Option<&Instant>| at.map_or(Duration::ZERO, |at| at.saturating_duration_since(from));
                return Some(Took { first: took(done.iter().min()), last: took(done.iter().max()) });
            }
            if Instant::now() >= end {
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Tells what the members have done together.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.shared.shown.iter().fold(Tally::default(), |all, shown| {
            let tally = locked(shown).tally;
            let calls = Calls {
                reads: all.calls.reads + tally.calls.reads,
                reads_of_all: all.calls.reads_of_all + tally.calls.reads_of_all,
                swaps: all.calls.swaps + tally.calls.swaps,
                refused: all.calls.refused + tally.calls.refused,
                unanswered: all.calls.unanswered + tally.calls.unanswered,
            };
            Tally {
                calls,
                kept: all.kept + tally.kept,
                contended: all.contended + tally.contended,
                none_free: all.none_free + tally.none_free,
                failed: all.failed + tally.failed,
            }
        })
    }

    /// Returns the numbers that the members have now. Two that had the same one would be one here.
    #[must_use]
    pub fn numbers(&self) -> BTreeSet<i64> {
        self.shared.shown.iter().filter_map(|shown| Some(locked(shown).lease?.worker)).collect()
    }

    /// Returns where the last of their leases ends, in milliseconds since 1970.
    #[must_use]
    pub fn leased_until_ms(&self) -> i64 {
        let ends = self.shared.shown.iter().filter_map(|shown| Some(locked(shown).lease?.until_ms));
        ends.max().unwrap_or(i64::MIN)
    }

    /// Returns why members that have not done what was ordered could not, each reason once.
    #[must_use]
    pub fn failures(&self) -> BTreeSet<String> {
        let of_one = |shown: &Mutex<Shown>| {
            let shown = locked(shown);
            if shown.done_at.is_none() { shown.failure.clone() } else { None }
        };
        self.shared.shown.iter().filter_map(of_one).collect()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.order(Order::End);
        for thread in self.threads.drain(..) {
            // A member that has panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Lets this process have as many sockets open as it may.
fn raise_open_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // Without it, a large crowd fails with the reason.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// A member in its thread.
struct Life<'a> {
    shared: &'a Shared,
    shown: &'a Mutex<Shown>,
    member: Member<'static>,
    /// Since when what it does now counts.
    count: u64,
    /// What of its calls was counted.
    counted: Calls,
    counts_at: Option<Instant>,
    pace: Pace,
}

impl<'a> Life<'a> {
    fn new(shared: &'a Shared, number: usize, layout: &str, config: Config) -> Self {
        let (member, shown) = (Member::new(config, None).with_layout(layout), &shared.shown[number]);
        Self { shared, shown, member, count: 0, counted: Calls::default(), counts_at: None, pace: Pace::default() }
    }

    fn run(mut self) {
        let (mut number, mut order, mut due) = (0, Order::Wait, None);
        loop {
            if let Some((new_number, new)) = self.new_order(number, due) {
                (number, order) = (new_number, new);
                due = Some(Instant::now());
            }
            due = match order {
                Order::Wait => None,
                Order::End => return,
                Order::Hurry => {
                    let _ = self.keep();
                    Some(Instant::now())
                }
                Order::Keep if due.is_none_or(|due| due <= Instant::now()) => Some(self.turn()),
                Order::Keep => {
                    self.member.enter();
                    due
                }
                Order::Stop => {
                    self.stop();
                    None
                }
            };
        }
    }

    /// Waits until it is time, for the next lease or for a turn, or until there is another order.
    fn new_order(&mut self, number: u64, due: Option<Instant>) -> Option<(u64, Order)> {
        let enters = self.member.enters_in_ms().map(|ms| Instant::now() + millis(ms));
        let until = due.map(|due| enters.map_or(due, |enters| enters.min(due)));
        let mut given = locked(&self.shared.given);
        while given.number == number {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            given = match left {
                Some(Duration::ZERO) => {
                    self.count = given.count;
                    return None;
                }
                Some(left) => self.shared.changes.wait_timeout(given, left).expect("no member panics here").0,
                None => self.shared.changes.wait(given).expect("no member panics here"),
            };
        }
        self.count = given.count;
        Some((given.number, given.order))
    }

    /// Acquires or renews, and returns when to come again.
    fn turn(&mut self) -> Instant {
        let read_before = self.counted.reads_of_all;
        let wait_ms = match self.keep() {
            Ok(()) => {
                self.pace.succeeded();
                if self.counted.reads_of_all > read_before {
                    // All were read to acquire a number. The count is not known here.
                    self.counts_at = Some(Instant::now() + millis(pace::counts_in_ms(0)));
                } else if self.counts_at.is_none_or(|at| at <= Instant::now()) {
                    // A failure shows at the next renewal.
                    let read = self.member.read(&Wanted::numbers_of(None));
                    let leased = |reading: Reading| {
                        let is_leased = |record: &&NumberRecord| record.until_ms > reading.now_ms;
                        reading.numbers.values().filter(is_leased).count() as i64
                    };
                    self.counts_at = Some(Instant::now() + millis(pace::counts_in_ms(read.map_or(0, leased))));
                    self.count_calls();
                }
                pace::varied_ms(self.member.interval_ms(), crate::registry::random())
            }
            Err(failed) => self.pace.failed(failed, now_ms(), crate::registry::random()),
        };
        Instant::now() + millis(wait_ms)
    }

    /// Acquires or renews.
    fn keep(&mut self) -> Result<(), pace::AttemptFailure> {
        let kept = self.member.keep();
        let paced = match &kept {
            Ok(()) => Ok(()),
            Err(Failure::Away(error)) => Err(error.paced_as()),
            Err(_) => Err(pace::AttemptFailure::Otherwise),
        };
        self.note(kept);
        paced
    }

    fn stop(&mut self) {
        let given_back = self.member.try_give_back();
        self.note(given_back);
        // It is done whatever the registry says. Its number may stay leased up to its end.
        let mut shown = locked(self.shown);
        if shown.count == self.count {
            shown.done_at.get_or_insert_with(Instant::now);
        }
        self.member.registry().disconnect();
        self.member.crash();
        (self.counts_at, self.pace) = (None, Pace::default());
    }

    fn note(&mut self, done: Result<(), Failure<RegistryError>>) {
        self.count_calls();
        let mut shown = locked(self.shown);
        shown.lease = self.member.leased();
        if shown.count != self.count {
            return;
        }
        match done {
            Ok(()) => {
                shown.tally.kept += 1;
                shown.done_at.get_or_insert_with(Instant::now);
            }
            Err(failure) => {
                match failure {
                    Failure::Contended => shown.tally.contended += 1,
                    Failure::NoneFree { .. } => shown.tally.none_free += 1,
                    _ => shown.tally.failed += 1,
                }
                shown.failure = Some(format!("{failure:?}"));
            }
        }
    }

    /// Counts the calls since the last time.
    fn count_calls(&mut self) {
        let (now, before) = (self.member.calls(), self.counted);
        let calls = &mut locked(self.shown).tally.calls;
        calls.reads += now.reads - before.reads;
        calls.reads_of_all += now.reads_of_all - before.reads_of_all;
        calls.swaps += now.swaps - before.swaps;
        calls.refused += now.refused - before.refused;
        calls.unanswered += now.unanswered - before.unanswered;
        self.counted = now;
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
