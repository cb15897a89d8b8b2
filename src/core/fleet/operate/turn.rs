//! One operation over a registry: read, decide, swap, and again.
//!
//! A call without an answer ends [`Turn::perform`]. What was sent then may have been done. The turn
//! remembers it, so the caller may call `perform` again with the same turn, which recognizes what
//! it has written itself. Another turn would begin a second generation, or say that a tag is there
//! already.
//!
//! Each step is decided from what is read then. So it makes no difference which turn has done the
//! steps before, and one that ends in between leaves nothing that another has to mend.

use super::decisions::{Began, Decision, decide};
use super::{JumpedTag, Operation, Outcome, Refusal, Restored};
use crate::fleet::exchange::{self, Swapped};
use crate::fleet::registry::{
    Fleet, Incarnation, MOST_CHANGES, NumberKey, NumberRecord, Reading, RecordChange, SinceIncarnation, Store,
};

/// How often a swap is refused, one after the other, until the turn gives up.
const MOST_REFUSED: u32 = 20;

/// Why an operation is not performed, or may not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotPerformed<E> {
    /// The registry does not answer.
    Away(E),
    /// It is refused.
    Refused(Refusal),
}

/// What was sent in the end, or would be.
#[derive(Debug, Clone)]
struct LastSwap {
    incarnation: Incarnation,
    /// What tells that it is written.
    sign: RecordChange,
    outcome: Outcome,
}

/// Some of what is to be written, in one swap.
#[derive(Debug, Clone)]
struct Part {
    incarnation: Incarnation,
    changes: Vec<RecordChange>,
    /// What it does of a restore.
    done: Restored,
}

/// What a swap is for.
enum SwapAim {
    /// Some of what is to be written.
    Part(Part),
    /// All that was left.
    Rest(Outcome),
    /// The fleet is opened, which this turn has closed.
    Undo(Refusal),
}

/// One operation, and what is known of what it has sent.
#[derive(Debug, Clone)]
pub struct Turn {
    operation: Operation,
    most_changes: usize,
    began: Option<Began>,
    /// What was sent, and would end the turn.
    proposals: Vec<LastSwap>,
    /// What was sent as well, and not answered.
    unanswered: Vec<Part>,
    /// What is written so far of a restore.
    so_far: Restored,
    /// How many records are deleted so far.
    dropped: usize,
}

impl Turn {
    /// Makes a turn that performs an operation.
    pub fn new(operation: Operation) -> Self {
        Self {
            operation,
            most_changes: MOST_CHANGES,
            began: None,
            proposals: Vec::new(),
            unanswered: Vec::new(),
            so_far: Restored::default(),
            dropped: 0,
        }
    }

    /// Limits how many changes a swap has, to 1 at least. So a simulation has turns of several
    /// swaps without more records than one can have ([`MOST_CHANGES`]).
    #[must_use]
    pub fn with_most_changes(self, most_changes: usize) -> Self {
        Self { most_changes: most_changes.clamp(1, MOST_CHANGES), ..self }
    }

    /// Begins at what a person has read and confirmed. The turn is refused where it must not be
    /// done in another generation than that.
    #[must_use]
    pub fn confirmed_at(self, reading: &Reading) -> Self {
        let most_changes = self.most_changes;
        Self { began: Some(Began { most_changes, ..Began::at(reading) }), ..self }
    }

    /// Performs the operation, or goes on with it after a failure. `random` returns a random number
    /// that no other call returns, in no program.
    ///
    /// # Errors
    /// [`NotPerformed`].
    pub fn perform<S: Store>(
        &mut self,
        store: &S,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<Outcome, NotPerformed<S::Error>> {
        let (mut refused, mut left) = (0, None);
        loop {
            let reading = match left.take() {
                Some(reading) => reading,
                None => store.read(&self.operation.wanted()).map_err(NotPerformed::Away)?,
            };
            let (aim, changes) = self.decide(&reading, random).map_err(NotPerformed::Refused)?;
            let swapped = exchange::swap(store, &reading, changes).map_err(|error| {
                if let SwapAim::Part(part) = &aim {
                    self.unanswered.push(part.clone());
                }
                NotPerformed::Away(error)
            })?;
            refused = if swapped == Swapped::Refused { refused + 1 } else { 0 };
            match (aim, swapped) {
                (SwapAim::Rest(outcome), Swapped::Written) => return Ok(self.with_parts(outcome)),
                (SwapAim::Undo(refusal), Swapped::Written | Swapped::Forgotten) => {
                    return Err(NotPerformed::Refused(refusal));
                }
                (SwapAim::Part(part), Swapped::Written) => {
                    self.note_part(&part);
                    left = without(reading, &part.changes);
                }
                _ if refused == MOST_REFUSED => return Err(NotPerformed::Refused(Refusal::Contended)),
                _ => {}
            }
        }
    }

    /// Returns what is to be written now, and what for.
    fn decide(
        &mut self,
        reading: &Reading,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<(SwapAim, Vec<RecordChange>), Refusal> {
        let most_changes = self.most_changes;
        self.began.get_or_insert_with(|| Began { most_changes, ..Began::at(reading) });
        self.note_what_shows(reading);
        let began = self.began.as_ref().expect("the turn has begun").clone();
        // A reading may show a write that is not durable yet. Only an answered swap proves that it
        // is.
        let shown = self.proposals.iter().find(|proposal| proposal.shows_in(reading, &began)).cloned();
        let decision = match shown {
            Some(LastSwap { outcome, .. }) => {
                let confirmed = Fleet { version: random(), ..reading.fleet };
                Ok(Decision { changes: vec![RecordChange::Fleet(confirmed)], is_last: true, outcome })
            }
            None => decide(&self.operation, &began, reading, random),
        };
        let Decision { changes, is_last, outcome } = match decision {
            Err(refusal) if began.closed_as == Some(reading.fleet.version) => {
                let opened = Fleet { closed: false, version: random(), ..reading.fleet };
                return Ok((SwapAim::Undo(refusal), vec![RecordChange::Fleet(opened)]));
            }
            decision => decision?,
        };
        let incarnation = reading.incarnation;
        if let [.., sign] = changes.as_slice()
            && is_last
        {
            self.proposals.push(LastSwap { incarnation, sign: sign.clone(), outcome: outcome.clone() });
            return Ok((SwapAim::Rest(outcome), changes));
        }
        if let ([RecordChange::Fleet(closed)], Some(began)) = (changes.as_slice(), &mut self.began)
            && closed.closed
        {
            began.closed_as = Some(closed.version);
        }
        let done = if let Outcome::Restored(restored) = outcome { restored } else { Restored::default() };
        Ok((SwapAim::Part(Part { incarnation, changes: changes.clone(), done }), changes))
    }

    /// Notes parts that were not answered, and are written. One record shows that, because the
    /// others may have changed since.
    fn note_what_shows(&mut self, reading: &Reading) {
        for part in std::mem::take(&mut self.unanswered) {
            if reading.incarnation.since(&part.incarnation) != SinceIncarnation::Same {
                continue;
            }
            if part.changes.iter().any(|change| is_written(change, reading)) {
                self.note_part(&part);
            } else {
                // It may arrive later.
                self.unanswered.push(part);
            }
        }
    }

    /// Notes what was written of a restore.
    fn note_part(&mut self, Part { changes, done, .. }: &Part) {
        for change in changes {
            match change {
                RecordChange::Tag { tag, record: Some(record), .. } => {
                    self.so_far.jumped.retain(|jumped| jumped.tag != *tag);
                    self.so_far.jumped.extend(done.jumped.iter().filter(|jumped| jumped.tag == *tag));
                    self.began.as_mut().map(|began| began.raised.insert(*tag, (record.id, record.next)));
                }
                RecordChange::DropNumber { .. } => self.dropped += 1,
                RecordChange::Tag { record: None, .. } | RecordChange::Number { .. } | RecordChange::Fleet(_) => {}
            }
        }
    }

    /// Returns an outcome with what was written before.
    fn with_parts(&mut self, outcome: Outcome) -> Outcome {
        let last = match outcome {
            Outcome::NumbersDropped { before_ms, count } => {
                return Outcome::NumbersDropped { before_ms, count: count + self.dropped };
            }
            Outcome::Restored(last) => last,
            outcome => return outcome,
        };
        let Restored { mut jumped, .. } = std::mem::take(&mut self.so_far);
        jumped.retain(|jumped: &JumpedTag| last.jumped.iter().all(|last| last.tag != jumped.tag));
        jumped.extend(last.jumped);
        jumped.sort_by_key(|jumped| jumped.tag);
        Outcome::Restored(Restored { jumped, ..last })
    }
}

impl LastSwap {
    /// Whether what is read shows that it is written. A store that has forgotten something since
    /// it was decided shows that it may rest on what is not true any more.
    fn shows_in(&self, reading: &Reading, began: &Began) -> bool {
        let is_written = match &self.sign {
            // A server may have changed the record since. No two generations have one freeze.
            RecordChange::Fleet(new) => {
                let begins = |fleet: &Fleet| (fleet.generation, fleet.horizon_ms, fleet.freeze_ms);
                let is_generation = matches!(self.outcome, Outcome::Restored(_) | Outcome::Lost { .. });
                reading.fleet.version == new.version || is_generation && begins(&reading.fleet) == begins(new)
            }
            RecordChange::Number { number, record, .. } => {
                reading.numbers.get(number).is_some_and(|found| found.nonce == record.nonce)
            }
            RecordChange::DropNumber { number, was } => is_dropped(*number, *was, reading),
            // In another generation, what was said of a tag does not hold any more.
            RecordChange::Tag { tag, record: Some(record), .. } => {
                let is_same = (reading.fleet.generation, reading.fleet.freeze_ms) == began.generation;
                is_same && reading.tags.get(tag).is_some_and(|found| found.nonce == record.nonce)
            }
            // Another tag may have its name by now.
            RecordChange::Tag { tag, record: None, .. } => {
                let Outcome::TagDropped { was, .. } = &self.outcome else { return false };
                reading.tags.get(tag).is_none_or(|found| found.id != was.id)
            }
        };
        is_written && reading.incarnation.since(&self.incarnation) == SinceIncarnation::Same
    }
}

/// Whether a record is read as a change has left it.
fn is_written(change: &RecordChange, reading: &Reading) -> bool {
    match change {
        RecordChange::Fleet(fleet) => reading.fleet.version == fleet.version,
        RecordChange::Number { number, record, .. } => {
            // A lease that is cut keeps its nonce.
            let is_same = |found: &NumberRecord| (found.nonce, found.until_ms) == (record.nonce, record.until_ms);
            reading.numbers.get(number).is_some_and(is_same)
        }
        RecordChange::DropNumber { number, was } => is_dropped(*number, *was, reading),
        RecordChange::Tag { tag, record: Some(record), .. } => {
            reading.tags.get(tag).is_some_and(|found| found.nonce == record.nonce)
        }
        RecordChange::Tag { record: None, .. } => false,
    }
}

/// Returns a reading without numbers' records that are deleted, if nothing else was changed: all
/// may be many. A deletion leaves the fleet's version as it was, so that the next swap notices a
/// change of the fleet.
fn without(mut reading: Reading, changes: &[RecordChange]) -> Option<Reading> {
    for change in changes {
        let RecordChange::DropNumber { number, .. } = change else { return None };
        reading.numbers.remove(number);
    }
    Some(reading)
}

/// Whether a record is gone. The number may have another one by now.
fn is_dropped(number: NumberKey, was: u64, reading: &Reading) -> bool {
    reading.numbers.get(&number).is_none_or(|found| found.nonce != was)
}
