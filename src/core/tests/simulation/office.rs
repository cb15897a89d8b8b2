//! How operators work in each kind of history: one or two at once, call by call. They begin what
//! has to be done or any other operation, go on with it, give it up, and move the registry.

use std::cell::{Cell, RefCell};
use std::ops::Deref;

use snowflake_core::operate::{Operation, Outcome, Refusal};
use snowflake_core::registry::{Fleet, Reading};

use crate::course::Course;
use crate::kit::operator::{Operator, Went};
use crate::kit::registry::{Kind, Store};
use crate::promises::Lie;
use crate::swarm::Chance;

/// How far a move of the registry has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
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

/// What operators do, and have to do.
pub struct Office<S> {
    pub at_work: RefCell<Vec<AtWork>>,
    /// What has to be done before servers reach the registry, in this order.
    pub plan: RefCell<Vec<S>>,
    pub moving: Cell<Move>,
    /// The copy of the registry that is moved.
    copy: RefCell<Option<Store>>,
    /// How often the registry was restored, lost or moved, or a second standby of one primary was
    /// promoted: whoever does that sees to it that no operator is at work.
    pub registries: Cell<u32>,
    /// How often it has failed over.
    pub failovers: Cell<u32>,
}

impl<S> Default for Office<S> {
    fn default() -> Self {
        Self {
            at_work: RefCell::default(),
            plan: RefCell::default(),
            moving: Cell::new(Move::None),
            copy: RefCell::default(),
            registries: Cell::new(0),
            failovers: Cell::new(0),
        }
    }
}

impl<S> Office<S> {
    /// Whether no server reaches the registry, because an operator has not said yet what has
    /// happened to it.
    pub fn is_sealed(&self) -> bool {
        !self.plan.borrow().is_empty()
    }

    /// The registry is another one, to which this has to be done before servers reach it.
    pub fn replan(&self, plan: Vec<S>) {
        self.stop();
        self.moving.set(Move::None);
        self.plan.replace(plan);
    }

    /// Operators give up what they are doing, and begin it again.
    pub fn stop(&self) {
        self.registries.set(self.registries.get() + 1);
        self.at_work.borrow_mut().clear();
    }
}

/// A world in which operators work.
pub trait Operated: Deref<Target = Course> {
    /// What has to be done.
    type Step: Clone;
    /// How many calls an operator makes at most before others go on.
    const MOST_CALLS: i64;
    /// An operator ends at one in so many calls.
    const ENDS_IN: usize;

    fn office(&self) -> &Office<Self::Step>;
    fn store(&self) -> &RefCell<Store>;

    /// Returns the operation for what has to be done.
    fn planned(&self, step: &Self::Step) -> Operation;
    /// Returns any operation, or does something else.
    fn any_operation(&self) -> Option<Operation>;
    fn begin(&self, operation: Operation, is_planned: bool) -> AtWork;
    /// Goes on up to the next answer.
    fn go_on(&self, at_work: &mut AtWork) -> Went;
    /// Takes what has come of an operation.
    fn operated(&self, at_work: &AtWork, result: Result<Outcome, Refusal>);

    /// Returns the clock of another machine of the registry: how far it is off.
    fn any_offset(&self) -> i64;
    /// No standby is left over from before a failover.
    fn forget_failed(&self);
    /// Servers reach a copy of the registry. No operator is at work, and no message on its way.
    fn adopt_moved(&self, copy: Store);

    /// Begins what another operator is doing, sometimes.
    fn same_work(&self) -> Option<AtWork> {
        None
    }

    /// Whether an operator who has not read yet gives up.
    fn gives_up(&self, _: &AtWork) -> bool {
        false
    }

    /// Whether the operator forgets to close the fleet before a move.
    fn forgets_to_close(&self) -> bool {
        false
    }

    /// An operator begins something, or goes on with it.
    fn some_operator(&self) {
        let at_work = self.office().at_work.borrow().len();
        let next = match at_work {
            0 => self.next_work(),
            1 if self.random.one_in(3) => self.same_work().or_else(|| self.next_work()),
            _ => {
                let at = self.random.below(at_work);
                Some(self.office().at_work.borrow_mut().swap_remove(at))
            }
        };
        if let Some(at_work) = next {
            self.work(at_work);
        }
    }

    /// An operator goes on for some calls.
    fn work(&self, mut at_work: AtWork) {
        let Office { registries, .. } = self.office();
        let registry = registries.get();
        for _ in 0..self.random.of(1..=Self::MOST_CALLS) {
            if registry != registries.get() || self.gives_up(&at_work) {
                return;
            }
            if self.happens(Chance::ProcessEnds, Self::ENDS_IN) {
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
            self.office().at_work.borrow_mut().push(at_work);
        }
    }

    /// Performs an operation at once, as far as the registry answers.
    fn perform(&self, operation: Operation, is_planned: bool) {
        let mut at_work = self.begin(operation, is_planned);
        let Office { registries, .. } = self.office();
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
        let Office { plan, at_work, .. } = self.office();
        if let Some(step) = { plan.borrow().first().cloned() } {
            let is_at_work = at_work.borrow().iter().any(|at_work| at_work.is_planned);
            return (!is_at_work).then(|| self.begin(self.planned(&step), true));
        }
        let operation = self.any_operation()?;
        Some(self.begin(operation, false))
    }

    /// Goes on with a move to another registry, or gives it up.
    fn any_move(&self) -> Option<Operation> {
        let Office { moving, failovers, .. } = self.office();
        let is_closed = self.store().borrow().fleet.closed;
        let give_up = Operation::Open { moved: Some(false) };
        match moving.get() {
            // It was closed without an answer, or what has opened it is forgotten.
            Move::None if is_closed => Some(give_up),
            Move::None if self.forgets_to_close() => {
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
                self.forget_failed();
                moving.set(Move::Opening(failovers.get()));
                Some(Operation::Open { moved: Some(true) })
            }
        }
    }

    fn copy_registry(&self) {
        let Office { copy, moving, failovers, .. } = self.office();
        copy.replace(Some(self.store().borrow().clone()));
        moving.set(Move::Copied(failovers.get()));
    }

    /// Lets all servers reach the copy of the registry, on another machine. First the operator sees
    /// to it that the old one is closed since: another operator may have opened it. If it was open
    /// before the copy was made, the copy is not closed either, and cannot be opened as a moved
    /// one. No limit was raised since.
    fn move_registry(&self) {
        let Office { copy, moving, .. } = self.office();
        let Some(mut copy) = copy.take() else { return };
        let is_old = {
            let store = self.store().borrow();
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
        copy.offset_ms = self.any_offset();
        copy.synced = copy.changes();
        self.adopt_moved(copy);
        moving.set(Move::Moved);
    }

    /// In the end operators do what has to be done, without faults.
    fn settle_plan(&self) {
        let Office { at_work, plan, moving, .. } = self.office();
        at_work.borrow_mut().clear();
        while let Some(step) = { plan.borrow().first().cloned() } {
            self.perform(self.planned(&step), true);
        }
        if self.store().borrow().fleet.closed {
            let moved = moving.get() == Move::Moved;
            self.perform(Operation::Open { moved: Some(moved) }, false);
        }
    }
}
