//! An operator at work: one operation, effect by effect, so that anything can come in between.

use snowflake_core::operate::{Effect, Event, Operation, Outcome, Refusal, Turn};
use snowflake_core::registry::Store;

/// An operator who performs one operation.
pub struct Operator {
    pub operation: Operation,
    turn: Turn,
    /// What has happened since its last effect.
    event: Event,
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
        Self { operation, turn, event: Event::Begin }
    }

    /// Performs the next effect.
    pub fn go_on<S: Store>(&mut self, store: &S, random: &mut dyn FnMut() -> u64) -> Went {
        let event = std::mem::replace(&mut self.event, Event::Begin);
        let answer = match self.turn.step(event, random) {
            Effect::Read(wanted) => store.read(&wanted).map(Event::Read),
            Effect::Swap(swap) => store.swap(&swap).map(Event::Swapped),
            Effect::Done(result) => return Went::Over(result),
        };
        match answer {
            Ok(event) => {
                self.event = event;
                Went::On
            }
            Err(_) => Went::Unanswered,
        }
    }
}
