//! What every history has, whatever it is about: its random numbers, the right time, its lie, what
//! was found broken, and how often what has happened.

use std::cell::{Cell, RefCell};

use crate::histories::Counts;
use crate::kit::random::Random;
use crate::promises::{Guarantee, Lie};
use crate::swarm::{Chance, Choice, Swarm};

/// The course of a history.
pub struct Course {
    pub random: Random,
    /// How often things happen in this history.
    pub swarm: Swarm,
    pub lie: Option<Lie>,
    tells: bool,
    /// The promises that were found broken.
    pub broken: RefCell<Vec<(Guarantee, String)>>,
    /// How often each event happened.
    pub counts: RefCell<Counts>,
    /// Whether the registry answers everything.
    pub settles: Cell<bool>,
    /// The right time, in milliseconds since 1970, which also serves as the time since boot.
    time_ms: Cell<i64>,
    events: Cell<u64>,
    depth: Cell<u32>,
}

impl Course {
    /// Begins the history of a seed. With `tells`, it reports what happens.
    pub fn new(seed: u64, lie: Option<Lie>, tells: bool, time_ms: i64) -> Self {
        let random = Random::new(seed);
        Self {
            swarm: Swarm::new(&random),
            random,
            lie,
            tells,
            broken: RefCell::default(),
            counts: RefCell::default(),
            settles: Cell::new(false),
            time_ms: Cell::new(time_ms),
            events: Cell::new(1),
            depth: Cell::new(0),
        }
    }

    /// Reports what happens, in a replay.
    pub fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            println!("{:>7} {}{}", self.events.get(), "  ".repeat(self.depth.get() as usize), what());
        }
    }

    /// Returns true once in `times`, as often as this history has it.
    pub fn happens(&self, chance: Chance, times: usize) -> bool {
        self.swarm.one_in(&self.random, chance, times)
    }

    /// Returns true once in `times`, unless the registry answers everything.
    pub fn fails(&self, chance: Chance, times: usize) -> bool {
        !self.settles.get() && self.happens(chance, times)
    }

    /// Returns one of the choices, as often as this history has it.
    pub fn chooses<T: Copy, const N: usize>(&self, choice: Choice, choices: &[(usize, T); N]) -> T {
        self.swarm.weighed(&self.random, choice, choices)
    }

    /// Whether other things happen during a call: not more than `deepest` deep.
    pub fn is_disturbed(&self, deepest: u32, chance: Chance, times: usize) -> bool {
        !self.settles.get() && self.depth.get() < deepest && self.happens(chance, times)
    }

    /// Lets other things happen during a call.
    pub fn during(&self, others: impl FnOnce()) {
        self.depth.set(self.depth.get() + 1);
        others();
        self.depth.set(self.depth.get() - 1);
    }

    /// Whether this happens during a call.
    pub fn is_during_a_call(&self) -> bool {
        self.depth.get() > 0
    }

    pub fn lies(&self, lie: Lie) -> bool {
        self.lie == Some(lie)
    }

    /// Notes that a promise is broken.
    pub fn broken(&self, guarantee: Guarantee, what: impl FnOnce() -> String) {
        let what = what();
        self.tell(|| format!("BROKEN: {guarantee:?}: {what}"));
        self.broken.borrow_mut().push((guarantee, what));
    }

    pub fn count(&self, event: &'static str) {
        *self.counts.borrow_mut().entry(event).or_default() += 1;
    }

    /// Returns the next event's number.
    pub fn event(&self) -> u64 {
        self.events.set(self.events.get() + 1);
        self.events.get()
    }

    pub fn time_ms(&self) -> i64 {
        self.time_ms.get()
    }

    pub fn pass(&self, ms: i64) {
        self.time_ms.set(self.time_ms.get() + ms);
    }
}
