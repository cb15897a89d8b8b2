//! A process that stops after each call of its registry, so that anything can come in between. Each
//! time it is run again from its beginning, with the answers that it has had.

use std::cell::{Cell, RefCell};

use snowflake_core::fleet::registry::{Reading, SwapAnswer};

/// What a process has had so far.
#[derive(Default)]
pub struct Stepped {
    readings: Had<Reading>,
    answers: Had<SwapAnswer>,
    randoms: Had<u64>,
}

impl Stepped {
    /// The process is run again.
    pub fn runs_again(&self) {
        [&self.readings.again, &self.answers.again, &self.randoms.again].iter().for_each(|again| again.set(0));
    }

    /// Returns what it has read here, or reads and stops: the error is `None` then.
    pub fn read<E>(&self, read: impl FnOnce() -> Result<Reading, E>) -> Result<Reading, Option<E>> {
        self.readings.or_stop(read)
    }

    /// Returns what it was answered here, or swaps and stops: the error is `None` then.
    pub fn swap<E>(&self, swap: impl FnOnce() -> Result<SwapAnswer, E>) -> Result<SwapAnswer, Option<E>> {
        self.answers.or_stop(swap)
    }

    /// Returns the random number that it has had here, or another one.
    pub fn random(&self, random: impl FnOnce() -> u64) -> u64 {
        self.randoms.next().unwrap_or_else(|| {
            let random = random();
            self.randoms.had.borrow_mut().push(random);
            random
        })
    }
}

struct Had<T> {
    had: RefCell<Vec<T>>,
    /// How many of these it has had again.
    again: Cell<usize>,
}

impl<T> Default for Had<T> {
    fn default() -> Self {
        Self { had: RefCell::default(), again: Cell::new(0) }
    }
}

impl<T: Clone> Had<T> {
    fn next(&self) -> Option<T> {
        self.had.borrow().get(self.again.replace(self.again.get() + 1)).cloned()
    }

    fn or_stop<E>(&self, call: impl FnOnce() -> Result<T, E>) -> Result<T, Option<E>> {
        if let Some(answer) = self.next() {
            return Ok(answer);
        }
        let answer = call().map_err(Some)?;
        self.had.borrow_mut().push(answer);
        Err(None)
    }
}
