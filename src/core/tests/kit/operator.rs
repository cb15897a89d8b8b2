//! An operator at work: one operation, call by call, so that anything can come in between.

use std::cell::RefCell;

use snowflake_core::fleet::operate::{NotPerformed, Operation, Outcome, Refusal, Turn};
use snowflake_core::fleet::registry::{Reading, Store, Swap, SwapAnswer, Wanted};

use super::stepped::Stepped;

/// An operator who performs one operation.
pub struct Operator {
    pub operation: Operation,
    turn: Turn,
    stepped: Stepped,
}

/// How an operation goes on.
#[derive(Debug)]
pub enum Went {
    On,
    /// The registry has not answered. The operator may try again.
    Unanswered,
    Over(Result<Outcome, Refusal>),
}

impl Operator {
    /// Begins, with swaps of so many changes at most.
    pub fn new(operation: Operation, most_changes: usize) -> Self {
        let turn = Turn::new(operation.clone()).with_most_changes(most_changes);
        Self { operation, turn, stepped: Stepped::default() }
    }

    /// Goes on with the turn, up to the answer of its next call.
    pub fn go_on<S: Store>(&mut self, store: &S, random: &mut dyn FnMut() -> u64) -> Went {
        let (mut turn, stepped) = (self.turn.clone(), &self.stepped);
        stepped.runs_again();
        let random = RefCell::new(random);
        let result = turn.perform(&Step { store, stepped }, &mut || stepped.random(|| random.borrow_mut()()));
        match result {
            Ok(outcome) => Went::Over(Ok(outcome)),
            Err(NotPerformed::Refused(refusal)) => Went::Over(Err(refusal)),
            Err(NotPerformed::Away(None)) => Went::On,
            Err(NotPerformed::Away(Some(_))) => {
                (self.turn, self.stepped) = (turn, Stepped::default());
                Went::Unanswered
            }
        }
    }
}

/// The registry up to its next answer.
struct Step<'a, S> {
    store: &'a S,
    stepped: &'a Stepped,
}

impl<S: Store> Store for Step<'_, S> {
    type Error = Option<S::Error>;

    fn read(&self, wanted: &Wanted) -> Result<Reading, Option<S::Error>> {
        self.stepped.read(|| self.store.read(wanted))
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, Option<S::Error>> {
        self.stepped.swap(|| self.store.swap(swap))
    }
}
