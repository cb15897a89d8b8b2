//! What operators do to tags and to their fleet (`simulation/office.rs` says how they work). The
//! decisions are the real ones (`operate.rs`). What the pages forbid, no operator does here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;

use snowflake_core::operate::{Began, Operation, Outcome, Refusal, decide, lost_fleet, new_fleet};
use snowflake_core::registry::{
    self, Change, DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, FleetLimits, Incarnation, NumberKey, Reading, SinceIncarnation,
    Swap, SwapAnswer, TagRecord, Wanted,
};
use snowflake_core::segment::{END, JUMP};
use snowflake_core::tag::Tag;

use super::link::{NoAnswer, Way};
use super::world::{TAGS, World};
use crate::kit::operator::{Operator, Went};
use crate::kit::registry::Store;
use crate::office::{AtWork, Move, Office, Operated, Read};
use crate::promises::Lie;
use crate::swarm::Choice;

/// The fleet's uuid.
pub const FLEET: u128 = 1;

/// What is done before servers reach a registry that was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Restored,
    /// The registry was made anew.
    Lost,
    /// The fleet was closed in the backup.
    Open,
    /// A tag's next value is set above all that was given.
    Raise(Tag),
}

/// A message of an operator to the registry.
pub struct Sent {
    swap: Swap,
    /// Whether the operator says that the registry was restored, and where tags go on then.
    is_restored: bool,
    /// Whether another one has said so since, for a lie.
    is_second: bool,
}

/// What operators know, and do.
#[derive(Default)]
pub struct Operators {
    office: Office<Step>,
    pub late: RefCell<Vec<Sent>>,
    /// How many blocks were given of any tag when an operator has changed a tag.
    changed: RefCell<BTreeMap<u64, usize>>,
}

impl Deref for Operators {
    type Target = Office<Step>;

    fn deref(&self) -> &Office<Step> {
        &self.office
    }
}

impl Operators {
    /// The registry is another one, to which this has to be done before servers reach it.
    pub fn plan(&self, plan: Vec<Step>) {
        self.late.borrow_mut().clear();
        self.office.replan(plan);
    }

    /// Whether an operator has changed a tag since a block was given. Its nonce is another one
    /// then, so that the server cannot prove that the block was the last. Or its steps are smaller,
    /// and no more than two of the largest blocks are taken back.
    pub fn has_changed(&self, id: u64, given: usize) -> bool {
        self.changed.borrow().get(&id).is_some_and(|changed| given < *changed)
    }
}

/// The way of one operator to the registry.
struct Desk<'a> {
    world: &'a World,
    operation: &'a Operation,
    /// How often the registry may have forgotten something when the operator has begun.
    losses: u64,
    read: &'a RefCell<Option<Read>>,
}

impl registry::Store for Desk<'_> {
    type Error = NoAnswer;

    fn read(&self, wanted: &Wanted) -> Result<Reading, NoAnswer> {
        let Self { world, .. } = self;
        if self.way()? != Way::Through {
            return Err(NoAnswer);
        }
        if is_said(self.operation) && self.read.borrow().is_none() && self.losses != world.losses() {
            return Err(NoAnswer);
        }
        let real = world.store.borrow().read(wanted, world.time_ms());
        let mut told = real.clone();
        self.lie_about_reading(&mut told);
        let began = self.read.borrow().as_ref().map_or(real.fleet.generation, |read| read.began);
        self.read.replace(Some(Read { real, told: told.clone(), began, losses: world.losses() }));
        Ok(told)
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, NoAnswer> {
        let Self { world, .. } = self;
        let Read { real, told, began, .. } = self.read.borrow().clone().expect("a swap follows a reading");
        let mut swap = Swap { incarnation: real.incarnation, ..swap.clone() };
        self.lie_about_swap(&mut swap, &real);
        let is_raise = matches!(self.operation, Operation::SetTag { .. }) && world.operators.is_sealed();
        let is_restored = matches!(self.operation, Operation::Restored { .. }) || is_raise;
        let is_second = world.lies(Lie::SecondBegins) && began != real.fleet.generation;
        let sent = Sent { swap, is_restored, is_second };
        let way = self.way()?;
        match way {
            Way::Lost => return Err(NoAnswer),
            Way::Late => {
                world.operators.late.borrow_mut().push(sent);
                return Err(NoAnswer);
            }
            Way::AnswerLost | Way::Through => {}
        }
        let answer = world.arrive_from_operator(&sent);
        if way == Way::AnswerLost {
            return Err(NoAnswer);
        }
        let mut store = world.store.borrow_mut();
        store.synced = store.changes();
        Ok(match answer {
            SwapAnswer::Done(after) if after == real.incarnation => SwapAnswer::Done(told.incarnation),
            answer => answer,
        })
    }
}

impl Desk<'_> {
    fn way(&self) -> Result<Way, NoAnswer> {
        let Self { world, .. } = self;
        let registry = world.operators.registries.get();
        world.meanwhile();
        let is_away = world.time_ms() < world.away_until_ms.get() && !world.settles.get();
        if is_away || registry != world.operators.registries.get() {
            return Err(NoAnswer);
        }
        Ok(world.any_way())
    }

    /// Changes what an operator reads, for lies.
    fn lie_about_reading(&self, reading: &mut Reading) {
        let skew_ms = DEFAULT_SKEW_MS;
        match (self.world.lie, self.operation) {
            (Some(Lie::NoAge), Operation::Restored { .. }) => {
                let written_ms = reading.now_ms + skew_ms;
                reading.tags.values_mut().for_each(|record| record.written_ms = written_ms);
            }
            (Some(Lie::NoSkew), Operation::Restored { .. }) => {
                reading.tags.values_mut().for_each(|record| record.written_ms += skew_ms);
            }
            (Some(Lie::LowersNext), Operation::SetTag { .. }) => {
                reading.tags.values_mut().for_each(|record| record.next = i64::MIN);
            }
            (Some(Lie::InPlaceOfJumps), Operation::SetTag { .. }) => {
                let generation = reading.fleet.generation;
                reading.tags.values_mut().for_each(|record| record.generation = generation);
            }
            (Some(Lie::SaysTooEarly), Operation::SetTag { .. } | Operation::CreateTag { .. })
            | (Some(Lie::SaysAhead), Operation::SetTag { .. }) => {
                reading.incarnation = reading.fleet.incarnation;
            }
            (Some(Lie::ChangesClosed), Operation::SetTag { .. }) => reading.fleet.closed = false,
            (Some(Lie::LostAtOnce), Operation::Lost { .. }) => reading.fleet.closed = true,
            _ => {}
        }
    }

    /// Changes what an operator sends, for lies.
    fn lie_about_swap(&self, swap: &mut Swap, real: &Reading) {
        let Self { world, .. } = self;
        let is_restored = matches!(self.operation, Operation::Restored { .. });
        let is_part = !swap.changes.iter().any(|change| matches!(change, Change::Fleet(_)));
        if world.lies(Lie::FleetFirst) && is_restored && is_part {
            // The record alone, and the tags later.
            let whole = decide(self.operation, &Began::at(real), real, &mut || world.random.bits());
            let whole = whole.map(|decision| decision.changes).unwrap_or_default();
            let fleet = whole.into_iter().filter(|change| matches!(change, Change::Fleet(_)));
            swap.changes = fleet.collect();
            return;
        }
        if let (Some(Lie::LostAtOnce), Operation::Lost { .. }, [Change::Fleet(new)]) =
            (world.lie, self.operation, swap.changes.as_mut_slice())
        {
            new.closed = real.fleet.closed;
        }
        for change in &mut swap.changes {
            let Change::Tag { tag, record: Some(record), .. } = change else { continue };
            let Some(was) = real.tags.get(tag) else { continue };
            let is_unnoted = real.incarnation.since(&real.fleet.incarnation) != SinceIncarnation::Same;
            match world.lie {
                Some(Lie::WritesGeneration) if is_restored => record.generation = next_generation(real),
                Some(Lie::SaysAhead) if !is_restored && is_unnoted => record.generation = next_generation(real),
                Some(Lie::KeepsNonce) if !is_restored => record.nonce = was.nonce,
                _ => {}
            }
        }
    }
}

impl World {
    /// An operator's swap arrives.
    pub fn arrive_from_operator(&self, sent: &Sent) -> SwapAnswer {
        let Sent { swap, is_restored, is_second } = sent;
        if !self.store.borrow().compares_for_operator(swap) {
            self.tell(|| "  the operator's swap is refused".to_owned());
            return SwapAnswer::Refused;
        }
        self.tell(|| format!("  the operator writes {:?}", swap.changes));
        for change in &swap.changes {
            match change {
                Change::Fleet(new) if new.generation != self.store.borrow().fleet.generation => {
                    self.begin_restored(new.version);
                    if !*is_second {
                        self.lose();
                    }
                }
                Change::Tag { tag, record: Some(record), .. } => {
                    let given = self.ledger.borrow().given();
                    self.operators.changed.borrow_mut().insert(record.id, given);
                    // No jump covers a raise by more than the jump. A restore that forgets it is
                    // like one that forgets another restore: an operator sets the value again.
                    let was = self.store.borrow().tags.get(tag).map_or(record.next, |was| was.next);
                    if *is_restored || record.jumps && record.next.saturating_sub(was) > JUMP {
                        self.begin_restored(record.nonce);
                    }
                }
                _ => {}
            }
        }
        let answer = self.store.borrow_mut().write(swap.changes.clone());
        if *is_restored {
            // A registry that was restored has no standbys yet. What a failover forgets of it, an
            // operator would have to say again for each tag.
            self.keep_all();
        }
        self.note_restores();
        answer
    }

    /// An operator begins something, or goes on with it.
    pub fn operate(&self) {
        if !self.is_silent && !self.settles.get() {
            self.some_operator();
        }
    }

    /// The operator knows what the limits were: the backup may be from before the first server
    /// brought them.
    fn restored(&self) -> Operation {
        Operation::Restored { lease_ms: Some(DEFAULT_LEASE_MS), skew_ms: Some(DEFAULT_SKEW_MS) }
    }

    fn lost(&self) -> Operation {
        Operation::Lost { lease_ms: DEFAULT_LEASE_MS, skew_ms: DEFAULT_SKEW_MS, uuid: Some(FLEET) }
    }

    /// The registry is lost, and made anew, without a tag.
    pub fn lose_registry(&self) {
        if self.is_silent || self.operators.is_sealed() || !self.random.one_in(4) {
            return;
        }
        self.tell(|| "the registry is lost, and made anew".to_owned());
        self.count("lost");
        let (kind, incarnation, offset_ms) = {
            let store = self.store.borrow();
            let incarnation = Incarnation { store: store.incarnation.store + 7, ..store.incarnation };
            (store.kind, incarnation, self.any_offset())
        };
        let mut new = new_fleet(self.random.bits().into(), incarnation, self.random.bits());
        let mut plan = vec![Step::Lost];
        if self.random.one_in(2) {
            new.uuid = FLEET;
            let now_ms = self.time_ms() + offset_ms;
            new = lost_fleet(&new, now_ms, DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, self.random.bits())
                .expect("limits that can be");
            plan.clear();
        }
        self.lose();
        self.forget_restores();
        self.operators.plan(plan);
        self.adopt(Store::new(kind, new, offset_ms));
        self.note_restores();
    }

    /// Keeps a number from being leased.
    fn any_reserve(&self) -> Option<Operation> {
        let number = NumberKey::new(None, self.random.of(0..=3));
        let until_ms = self.time_ms() + self.random.pick(&[-5000, 0, 3000, 3_600_000]);
        Some(Operation::Reserve { number, until_ms, force: false })
    }

    /// Returns a next value above all that was given of a tag.
    fn said_next(&self, record: &TagRecord) -> i64 {
        record.next_in(&self.store.borrow().fleet).max(self.ledger.borrow().above(record.id))
    }

    /// Deletes a tag, or makes it.
    fn any_existence(&self) -> Option<Operation> {
        let tag = self.any_tag();
        let is_there = self.store.borrow().tags.contains_key(&tag);
        Some(match is_there && !self.random.one_in(8) {
            true => Operation::DropTag { tag },
            false => self.create(tag),
        })
    }

    fn create(&self, tag: Tag) -> Operation {
        let least = self.random.of(1..=6) as u32;
        let steps = (least, least + self.random.pick(&[0, 3, 7, 11, 200]));
        let jumps = !self.random.one_in(3);
        let next = if self.random.one_in(12) { END - 40 } else { 1 };
        Operation::CreateTag { tag, next, steps, jumps }
    }

    /// Makes a tag before the history begins.
    pub fn insert(&self, tag: Tag) {
        self.settles.set(true);
        self.perform(self.create(tag), false);
        self.settles.set(false);
    }

    /// Lets a tag jump that does not. A tag that waits for an operator needs to be told where it
    /// goes on, and may stay as it is.
    fn any_jump(&self) -> Option<Operation> {
        let store = self.store.borrow();
        let none: Vec<_> = store.tags.iter().filter(|(_, record)| !record.jumps).collect();
        if none.is_empty() {
            return None;
        }
        let (tag, record) = none[self.random.below(none.len())];
        Some(self.set_jump(*tag, record))
    }

    fn set_jump(&self, tag: Tag, record: &TagRecord) -> Operation {
        let is_stopped = record.generation < self.store.borrow().fleet.generation;
        let stays = is_stopped && !self.settles.get() && self.random.one_in(2);
        // Otherwise it is refused, if the tag has stopped.
        let says = self.settles.get() || is_stopped && !self.random.one_in(4);
        let next = (says || stays).then(|| self.said_next(record));
        Operation::SetTag { tag, next, least: None, greatest: None, jumps: (!stays).then_some(true) }
    }

    /// Changes how large blocks are, or raises a tag; or tries to lower it.
    fn any_steps(&self) -> Option<Operation> {
        let tag = self.any_tag();
        let record = *self.store.borrow().tags.get(&tag)?;
        let set = |next| Some(Operation::SetTag { tag, next: Some(next), least: None, greatest: None, jumps: None });
        match self.random.below(4) {
            0 => set(self.said_next(&record).saturating_add(self.random.of(0..=40))),
            1 => set(record.next.saturating_sub(self.random.of(1..=40))),
            _ => {
                let least = self.random.of(1..=6) as u32;
                let greatest = least + self.random.pick(&[0, 3, 200]);
                Some(Operation::SetTag { tag, next: None, least: Some(least), greatest: Some(greatest), jumps: None })
            }
        }
    }

    /// Says that the registry was restored, though it was not. If a restore before is forgotten,
    /// the operator would have to say where each tag goes on.
    fn any_restored(&self) -> Option<Operation> {
        self.knows_restores().then(|| self.restored())
    }

    /// In the end operators do what has to be done, without faults.
    pub fn settle_operators(&self) {
        self.operators.late.borrow_mut().clear();
        self.settle_plan();
    }

    /// In the end there is a tag, and every tag jumps.
    pub fn settle_tags(&self) {
        if self.store.borrow().tags.is_empty() {
            self.perform(self.create(self.any_tag()), false);
        }
        let tags: Vec<_> = TAGS.iter().map(|tag| Tag::new(tag).unwrap()).collect();
        for tag in tags {
            let record = self.store.borrow().tags.get(&tag).copied();
            if let Some(record) = record.filter(|record| !record.jumps) {
                self.perform(self.set_jump(tag, &record), false);
            }
        }
    }
}

impl Operated for World {
    type Step = Step;
    const MOST_CALLS: i64 = 8;
    const ENDS_IN: usize = 30;

    fn office(&self) -> &Office<Step> {
        &self.operators
    }

    fn store(&self) -> &RefCell<Store> {
        &self.store
    }

    fn planned(&self, step: &Step) -> Operation {
        match *step {
            Step::Restored => self.restored(),
            Step::Lost => self.lost(),
            Step::Open => Operation::Open { moved: Some(false) },
            Step::Raise(tag) => {
                let record = self.store.borrow().tags.get(&tag).copied();
                let next = record.map(|record| self.said_next(&record));
                Operation::SetTag { tag, next, least: None, greatest: None, jumps: None }
            }
        }
    }

    fn any_operation(&self) -> Option<Operation> {
        type Choose = fn(&World) -> Option<Operation>;
        let (waits, is_empty) = {
            let store = self.store.borrow();
            // Servers wait for whoever has closed the fleet.
            (store.fleet.closed && self.random.one_in(2), store.tags.is_empty())
        };
        let choices: [(usize, Choose); 7] = [
            (3, Self::any_existence),
            (8, Self::any_jump),
            (4, Self::any_steps),
            (4, Self::any_move),
            (2, Self::any_restored),
            (1, Self::any_reserve),
            // It was not.
            (1, |world| Some(world.lost())),
        ];
        let chosen = || self.chooses(Choice::Operator, &choices);
        let choose = match (waits, is_empty) {
            (true, _) => Self::any_move,
            (false, true) => Self::any_existence,
            (false, false) => chosen(),
        };
        choose(self)
    }

    fn go_on(&self, at_work: &mut AtWork) -> Went {
        let operation = at_work.operator.operation.clone();
        let desk = Desk { world: self, operation: &operation, losses: at_work.losses, read: &at_work.read };
        let went = at_work.operator.go_on(&desk, &mut || self.random.bits());
        let is_late = match operation {
            Operation::SetTag { .. } => self.lies(Lie::SaysLate),
            _ => self.lies(Lie::SecondBegins),
        };
        if is_late && matches!(went, Went::Over(Err(Refusal::GenerationBegan { .. }))) {
            at_work.operator = Operator::new(operation, 100);
            return Went::On;
        }
        went
    }

    fn begin(&self, operation: Operation, is_planned: bool) -> AtWork {
        self.tell(|| format!("an operator begins: {operation:?}"));
        let most_changes = self.random.pick(&[1, 2, 3, 100]);
        let (failovers, losses) = (self.operators.failovers.get(), self.losses());
        AtWork {
            operator: Operator::new(operation, most_changes),
            is_planned,
            failovers,
            losses,
            read: RefCell::default(),
        }
    }

    fn operated(&self, at_work: &AtWork, result: Result<Outcome, Refusal>) {
        let Office { plan, moving, .. } = self.office();
        let operation = &at_work.operator.operation;
        self.tell(|| format!("an operator is done: {operation:?}: {result:?}"));
        let losses = at_work.read.borrow().as_ref().map(|read| read.losses);
        self.count(match &result {
            Ok(Outcome::Closed { .. }) => {
                if moving.get() == Move::None {
                    moving.set(Move::Closed(at_work.failovers));
                }
                "closed"
            }
            Ok(Outcome::Opened { .. }) => {
                moving.set(Move::None);
                "opened"
            }
            Ok(Outcome::Restored(_)) => "said to be restored",
            Ok(Outcome::Lost { .. }) => "said to be lost",
            Ok(Outcome::Reserved { .. }) => "reserved",
            Ok(Outcome::TagCreated { record, .. }) => {
                self.say(record.id, losses.expect("it was read"), record.next);
                "made again"
            }
            Ok(Outcome::TagSet { record, .. }) => {
                if let Operation::SetTag { next: Some(next), .. } = operation {
                    self.say(record.id, losses.expect("it was read"), *next);
                }
                match operation {
                    Operation::SetTag { jumps: Some(_), .. } => "jump set",
                    _ => "steps set",
                }
            }
            Ok(Outcome::TagDropped { .. }) => "deleted",
            Ok(other) => unreachable!("{other:?}"),
            Err(Refusal::GenerationBegan { .. }) => "another generation",
            Err(Refusal::NextLowered { .. }) => "next not lowered",
            Err(Refusal::NeedsNext { .. }) => "needs next",
            Err(Refusal::NotNoted { .. }) => "not noted",
            Err(_) => "refused",
        });
        // Two operators do at once what has to be done, and one of them says so.
        let is_others = match &result {
            Err(Refusal::GenerationBegan { .. }) => !self.lies(Lie::FleetFirst),
            Err(Refusal::NextLowered { .. }) => true,
            _ => false,
        };
        let is_next = plan.borrow().first().is_some_and(|step| match step {
            Step::Restored => matches!(operation, Operation::Restored { .. }),
            Step::Lost => matches!(operation, Operation::Lost { .. }),
            Step::Open => matches!(operation, Operation::Open { .. }),
            Step::Raise(of) => matches!(operation, Operation::SetTag { tag, .. } if tag == of),
        });
        if at_work.is_planned && is_next && !is_others {
            assert!(result.is_ok() || self.lie.is_some(), "{operation:?} is refused: {result:?}");
            plan.borrow_mut().remove(0);
            if !self.operators.is_sealed() {
                // Its standbys are made when the operator is done.
                self.keep_all();
            }
        }
        // It may be made again before any server has seen that it was gone.
        if let (Ok(Outcome::TagDropped { tag, .. }), true) = (&result, self.random.one_in(2)) {
            self.perform(self.create(*tag), false);
        }
    }

    // Where a tag goes on was not chosen before the registry has forgotten something.
    fn same_work(&self) -> Option<AtWork> {
        let at_work = self.operators.at_work.borrow();
        let other = at_work.first().filter(|other| self.random.one_in(2) && other.losses == self.losses())?;
        Some(self.begin(other.operator.operation.clone(), other.is_planned))
    }

    fn gives_up(&self, at_work: &AtWork) -> bool {
        is_said(&at_work.operator.operation) && at_work.read.borrow().is_none() && at_work.losses != self.losses()
    }

    fn any_offset(&self) -> i64 {
        self.random.pick(&[-DEFAULT_SKEW_MS / 2, 0, DEFAULT_SKEW_MS / 2])
    }

    fn forget_failed(&self) {
        self.failed.take();
    }

    fn adopt_moved(&self, copy: Store) {
        self.late.borrow_mut().clear();
        self.operators.plan(Vec::new());
        self.adopt(copy);
    }
}

/// Whether an operation says what the operator knows of this registry: a value above all others, or
/// that it was moved. An operator does not say so after the registry may have forgotten something,
/// unless the program has read the registry before that: then the decision refuses it.
fn is_said(operation: &Operation) -> bool {
    matches!(operation, Operation::SetTag { next: Some(_), .. } | Operation::Open { moved: Some(true) })
}

/// Returns the number of the generation that would begin now.
fn next_generation(reading: &Reading) -> u64 {
    let Reading { fleet, incarnation, now_ms, .. } = reading;
    fleet.begin_generation(*incarnation, *now_ms, FleetLimits::default(), 0).generation
}
