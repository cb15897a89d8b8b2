//! How operators work: one or two at once, call by call. They begin what has to be done or any
//! other operation, go on with it, give it up, and move the registry.

use std::cell::RefCell;

use snowflake_core::fleet::operate::Operation;
use snowflake_core::fleet::registry::{Fleet, Reading};

use crate::kit::operator::{Operator, Went};
use crate::kit::registry::Kind;
use crate::operators::Operators;
use crate::promises::Lie;
use crate::swarm::Chance;
use crate::tags::operators::set_tag;
use crate::world::World;

/// How far a move of the registry has come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    #[default]
    None,
    /// An operator has closed the fleet in the old registry, after so many failovers.
    Closed(u32),
    /// It is copied, after so many failovers.
    Copied(u32),
    /// Servers reach the new one.
    Moved,
    /// An operator has opened it, perhaps without an answer, after so many failovers.
    Opening(u32),
}

/// An operator at work.
pub struct AtWork {
    pub operator: Operator,
    /// Whether servers wait for this.
    pub is_planned: bool,
    /// How often the registry had failed over when the operator has begun.
    pub failovers: u32,
    /// How often it may have forgotten something by then.
    pub losses: u64,
    pub read: RefCell<Option<Read>>,
}

/// What an operator has read.
#[derive(Clone)]
pub struct Read {
    /// What the registry held.
    pub real: Reading,
    /// The same, as a lie may have changed it.
    pub told: Reading,
    /// The fleet's generation when the operator has read it first.
    pub began: u64,
    /// How often the registry may have forgotten something by then.
    pub losses: u64,
}

/// How many calls an operator makes at most before others go on.
const MOST_CALLS: i64 = 8;

impl World {
    pub fn operators(&self) -> &Operators {
        &self.registered().operators
    }

    /// An operator begins something, or goes on with it.
    pub fn some_operator(&self) {
        let at_work = self.operators().at_work.borrow().len();
        let next = match at_work {
            0 => self.next_work(),
            1 if self.random.one_in(3) => self.same_work().or_else(|| self.next_work()),
            _ => {
                let at = self.random.below(at_work);
                Some(self.operators().at_work.borrow_mut().swap_remove(at))
            }
        };
        if let Some(at_work) = next {
            self.work(at_work);
        }
    }

    /// An operator goes on for some calls.
    fn work(&self, mut at_work: AtWork) {
        let Operators { registries, .. } = self.operators();
        let registry = registries.get();
        for _ in 0..self.random.of(1..=MOST_CALLS) {
            if registry != registries.get()
                || self.is_said_too_late(&at_work.operator.operation, &at_work.read, at_work.losses)
            {
                return;
            }
            if self.happens(Chance::ProcessEnds, 60) {
                self.count("operator ends");
                return;
            }
            match self.go_on(&mut at_work) {
                Went::On => {}
                Went::Unanswered if self.random.one_in(4) => return,
                Went::Unanswered if self.lies(Lie::OpensAgain) => {
                    at_work.operator = Operator::new(at_work.operator.operation.clone(), 100);
                }
                Went::Unanswered => {}
                Went::Over(result) => return self.operated(&at_work, result),
            }
        }
        if registry == registries.get() {
            self.operators().at_work.borrow_mut().push(at_work);
        }
    }

    /// Returns the operation for what has to be done.
    fn planned(&self, step: &Operation) -> Operation {
        match *step {
            Operation::SetTag { tag, .. } => {
                let fleet = self.registered();
                let record = fleet.store.borrow().tags.get(&tag).copied();
                set_tag(tag, record.map(|record| self.next_to_say(fleet, &record)))
            }
            _ => step.clone(),
        }
    }

    /// Begins what another operator is doing, sometimes. Where a tag goes on was not chosen before
    /// the registry has forgotten something.
    fn same_work(&self) -> Option<AtWork> {
        let at_work = self.operators().at_work.borrow();
        let losses = self.registered().tags.losses.get();
        let other = at_work.first().filter(|other| self.has_tags && self.random.one_in(2) && other.losses == losses)?;
        Some(self.begin(other.operator.operation.clone(), other.is_planned))
    }

    /// Whether an operator does not say any more where a tag goes on, because the registry may have
    /// forgotten something meanwhile. If the program has read the registry before that, the
    /// decision refuses it.
    pub fn is_said_too_late(&self, operation: &Operation, read: &RefCell<Option<Read>>, losses: u64) -> bool {
        let is_late = read.borrow().is_none() && losses != self.registered().tags.losses.get();
        is_late && matches!(operation, Operation::SetTag { next: Some(_), .. })
    }

    /// Performs an operation at once, as far as the registry answers.
    pub fn perform(&self, operation: Operation, is_planned: bool) {
        let mut at_work = self.begin(operation, is_planned);
        let Operators { registries, .. } = self.operators();
        let registry = registries.get();
        while registry == registries.get() {
            match self.go_on(&mut at_work) {
                Went::On => {}
                Went::Unanswered => return,
                Went::Over(result) => return self.operated(&at_work, result),
            }
        }
    }

    /// Returns what an operator does next.
    fn next_work(&self) -> Option<AtWork> {
        let Operators { plan, at_work, .. } = self.operators();
        if let Some(step) = { plan.borrow().first().cloned() } {
            let is_at_work = at_work.borrow().iter().any(|at_work| at_work.is_planned);
            return (!is_at_work).then(|| self.begin(self.planned(&step), true));
        }
        let operation = self.any_operation()?;
        Some(self.begin(operation, false))
    }

    /// Goes on with a move to another registry, or gives it up.
    pub fn any_move(&self) -> Option<Operation> {
        let Operators { moving, failovers, .. } = self.operators();
        let is_closed = self.registered().store.borrow().fleet.closed;
        let give_up = Operation::Open { moved: Some(false) };
        match moving.get() {
            // It was closed without an answer, or what has opened it is forgotten.
            Move::None if is_closed => Some(give_up),
            Move::None if !self.has_tags && self.random.one_in(8) => {
                self.copy_registry();
                None
            }
            Move::None => Some(Operation::Close),
            // A failover may have forgotten it, and show an older record that is closed, too.
            Move::Closed(then) | Move::Copied(then) if then != failovers.get() => {
                moving.set(Move::None);
                None
            }
            // Another operator has opened it.
            Move::Closed(_) if !is_closed => {
                moving.set(Move::None);
                None
            }
            Move::Closed(_) if self.random.one_in(5) => {
                moving.set(Move::None);
                Some(give_up)
            }
            Move::Closed(_) => {
                self.copy_registry();
                None
            }
            Move::Copied(_) => {
                self.move_registry();
                None
            }
            Move::Opening(then) if then != failovers.get() && !self.lies(Lie::OpensAgain) => {
                // Servers may have written since, and the registry may have lost both.
                moving.set(Move::None);
                Some(give_up)
            }
            Move::Moved | Move::Opening(_) => {
                self.registered().failed.take();
                moving.set(Move::Opening(failovers.get()));
                Some(Operation::Open { moved: Some(true) })
            }
        }
    }

    fn copy_registry(&self) {
        let Operators { copy, moving, failovers, .. } = self.operators();
        copy.replace(Some(self.registered().store.borrow().clone()));
        moving.set(Move::Copied(failovers.get()));
    }

    /// Lets all servers reach the copy of the registry, on another machine. First the operator sees
    /// to it that the old one is closed since: another operator may have opened it. If it was open
    /// before the copy was made, the copy is not closed either, and cannot be opened as a moved
    /// one. No limit was raised since.
    fn move_registry(&self) {
        let Operators { copy, moving, .. } = self.operators();
        let Some(mut copy) = copy.take() else { return };
        let is_old = {
            let store = self.registered().store.borrow();
            let limits_ms = |fleet: &Fleet| (fleet.longest_ms, fleet.skew_ms);
            match copy.fleet.closed {
                true => store.fleet.version != copy.fleet.version,
                false => limits_ms(&store.fleet) != limits_ms(&copy.fleet),
            }
        };
        if is_old {
            moving.set(Move::None);
            return;
        }
        self.tell(|| "the registry is moved".to_owned());
        self.count("moved");
        copy.incarnation.store += 7;
        if copy.kind == Kind::Etcd {
            copy.incarnation.counts = [1, 1];
        }
        copy.offset_ms = self.any_offset(self.registered());
        copy.sync();
        self.adopt_moved(copy);
        moving.set(Move::Moved);
    }

    /// In the end operators do what has to be done, without faults.
    pub fn settle_plan(&self) {
        let Operators { at_work, plan, moving, .. } = self.operators();
        at_work.borrow_mut().clear();
        while let Some(step) = { plan.borrow().first().cloned() } {
            self.perform(self.planned(&step), true);
        }
        if self.registered().store.borrow().fleet.closed {
            let moved = moving.get() == Move::Moved;
            self.perform(Operation::Open { moved: Some(moved) }, false);
        }
    }
}
