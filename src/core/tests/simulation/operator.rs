//! An operator at work: one operation, call by call, so that anything can come in between.

use snowflake_core::operate::{Failure, Operation, Outcome, Refusal, Turn};
use snowflake_core::registry::Store;

use crate::stepped::{NoAnswer, Step, Stepped};

/// A turn after it was performed, and what came of it.
type Performed = (Turn, Result<Outcome, Failure<NoAnswer>>);

/// An operator who performs one operation.
pub struct Operator {
    pub operation: Operation,
    turn: Turn,
    at_work: Option<Stepped<Performed>>,
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
        Self { operation, turn, at_work: None }
    }

    /// Goes on with the turn, up to the answer of its next call.
    pub fn go_on<S: Store>(&mut self, store: &S, random: &mut dyn FnMut() -> u64) -> Went {
        let at_work = self.at_work.get_or_insert_with(|| {
            let mut turn = self.turn.clone();
            Stepped::begin(move |registry| {
                let result = turn.perform(registry, &mut || registry.random());
                (turn, result)
            })
        });
        loop {
            match at_work.next() {
                Step::Random => at_work.draws(random()),
                Step::Read(wanted) => {
                    let reading = store.read(&wanted).ok();
                    let is_answered = reading.is_some();
                    at_work.reads(reading);
                    if is_answered {
                        return Went::On;
                    }
                }
                Step::Swap(swap) => {
                    let answer = store.swap(&swap).ok();
                    at_work.swaps(answer);
                    if answer.is_some() {
                        return Went::On;
                    }
                }
                Step::Over((turn, result)) => {
                    (self.turn, self.at_work) = (turn, None);
                    return match result {
                        Ok(outcome) => Went::Over(Ok(outcome)),
                        Err(Failure::Refused(refusal)) => Went::Over(Err(refusal)),
                        Err(Failure::Away(NoAnswer)) => Went::Unanswered,
                    };
                }
            }
        }
    }
}
