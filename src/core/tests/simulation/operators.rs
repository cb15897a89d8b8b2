//! What operators do to a fleet. `office.rs` says how they work, and `tags/operators.rs` what they
//! do to tags. The decisions are the real ones (`operate.rs`). What the pages forbid, no operator
//! does here.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use snowflake_core::fleet::operate::{Operation, Outcome, Refusal};
use snowflake_core::fleet::registry::{
    DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, NumberKey, NumberRecord, Reading, RecordChange, Swap, SwapAnswer, Wanted,
};

use crate::faults::MOST_LOST;
use crate::fleet::Registered;
use crate::keeper::NoAnswer;
use crate::kit::operator::{Operator, Went};
use crate::kit::registry::{Kind, Store};
use crate::office::{AtWork, Move, Read};
use crate::promises::{Guarantee, Lie};
use crate::server::Server;
use crate::swarm::{Chance, Choice};
use crate::tags::Late;
use crate::world::World;

/// Numbers that were configured on servers which are gone. They come into the range one after the
/// other.
const CONFIGURED: [i64; 3] = [11, 10, 9];

/// The first number that no server has had configured.
pub const FIRST_FREE: i64 = 12;

/// The last number that every layout has here, also with backup numbers.
const LAST: i64 = 15;

/// What operators know, do, and have to do.
#[derive(Default)]
pub struct Operators {
    pub at_work: RefCell<Vec<AtWork>>,
    /// What has to be done before servers reach the registry, in this order.
    pub plan: RefCell<Vec<Operation>>,
    pub moving: Cell<Move>,
    /// The copy of the registry that is moved.
    pub copy: RefCell<Option<Store>>,
    /// How often the registry was restored, lost or moved, or a second standby of one primary was
    /// promoted: whoever does that sees to it that no operator is at work.
    pub registries: Cell<u32>,
    /// How often it has failed over.
    pub failovers: Cell<u32>,
    /// Whether one vouches for the standby, or no longer.
    has_the_word: Cell<bool>,
    /// How often all connections to it were cut, because it was moved, or etcd was restored.
    pub cuts: Cell<u32>,
    /// How many changes the oldest backup has: those with which a registry that was made anew is
    /// complete.
    pub oldest_backup: Cell<usize>,
    /// The greatest limits that were ever asked for.
    pub longest_ms: Cell<i64>,
    pub most_skew_ms: Cell<i64>,
    /// Up to which limit leases may be set: no failover brings back a record with a smaller one.
    safe_ms: Cell<i64>,
    /// A limit that was raised, and how many changes there were then.
    raised: Cell<Option<(i64, usize)>>,
    /// For each number that was configured, the highest mark of its databases.
    pub marks: RefCell<BTreeMap<i64, i64>>,
}

impl Operators {
    /// Returns the operators of a fleet that has these limits.
    pub fn new(longest_ms: i64, most_skew_ms: i64) -> Self {
        Self {
            oldest_backup: Cell::new(1),
            longest_ms: Cell::new(longest_ms),
            most_skew_ms: Cell::new(most_skew_ms),
            safe_ms: Cell::new(longest_ms),
            ..Self::default()
        }
    }

    /// Returns the greatest limits that were ever asked for, in milliseconds.
    pub fn limits_ms(&self) -> (i64, i64) {
        (self.longest_ms.get(), self.most_skew_ms.get())
    }

    /// Whether no server reaches the registry, because an operator has not said yet what has
    /// happened to it.
    pub fn is_sealed(&self) -> bool {
        !self.plan.borrow().is_empty()
    }

    /// The registry is another one, to which this has to be done before servers reach it.
    pub fn plan(&self, plan: Vec<Operation>) {
        self.raised.set(None);
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

/// Whether an operator keeps the number.
pub fn is_kept(record: &NumberRecord) -> bool {
    record.server == 0
}

/// A message of an operator to the registry.
pub struct Sent {
    pub swap: Swap,
    /// Whether the operator says that the registry was restored, and where tags go on then.
    pub is_restored: bool,
    /// Whether another one has said so since, for a lie.
    pub is_second: bool,
}

/// The way of one operator to the registry.
pub struct Desk<'a> {
    pub world: &'a World,
    fleet: &'a Registered,
    pub operation: &'a Operation,
    /// How often the registry may have forgotten something when the operator has begun.
    losses: u64,
    read: &'a RefCell<Option<Read>>,
}

impl snowflake_core::fleet::registry::Store for Desk<'_> {
    type Error = NoAnswer;

    fn read(&self, wanted: &Wanted) -> Result<Reading, NoAnswer> {
        let Self { world, fleet, .. } = self;
        self.is_heard()?;
        if world.is_said_too_late(self.operation, self.read, self.losses) {
            return Err(NoAnswer);
        }
        let real = fleet.store.borrow().read(wanted, world.time_ms());
        let mut told = real.clone();
        self.lie_about_reading(&mut told);
        self.lie_about_tags_read(&mut told);
        let began = self.read.borrow().as_ref().map_or(real.fleet.generation, |read| read.began);
        self.read.replace(Some(Read { real, told: told.clone(), began, losses: fleet.tags.losses.get() }));
        Ok(told)
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, NoAnswer> {
        let Self { world, fleet, .. } = self;
        let Read { real, told, began, .. } = self.read.borrow().clone().expect("a swap follows a reading");
        let mut swap = Swap { incarnation: real.incarnation, ..swap.clone() };
        self.lie_about_swap(&mut swap, &real);
        self.lie_about_tags(&mut swap, &real);
        let is_raise = matches!(self.operation, Operation::SetTag { .. }) && fleet.operators.is_sealed();
        let is_restored = matches!(self.operation, Operation::Restored { .. }) || is_raise;
        let is_second = world.lies(Lie::SecondBegins) && began != real.fleet.generation;
        let sent = Sent { swap, is_restored, is_second };
        let registry = fleet.operators.registries.get();
        let heard = self.is_heard();
        if registry != fleet.operators.registries.get() {
            return Err(NoAnswer);
        }
        if world.fails(Chance::Late, 12) {
            fleet.late.borrow_mut().push(Late::Operator(sent));
            world.count("late");
            return Err(NoAnswer);
        }
        heard?;
        let answer = world.arrive_from_operator(fleet, &sent);
        if answer == SwapAnswer::Refused {
            return Ok(answer);
        }
        if world.fails(Chance::NotConfirmed, 12) {
            world.count("answer lost");
            return Err(NoAnswer);
        }
        fleet.store.borrow_mut().sync();
        self.meanwhile();
        if world.fails(Chance::AnswerLost, 16) {
            return Err(NoAnswer);
        }
        let is_as_read = |after| after == real.incarnation;
        Ok(match answer {
            SwapAnswer::Done(after) if is_as_read(after) => SwapAnswer::Done(told.incarnation),
            answer => answer,
        })
    }
}

impl Desk<'_> {
    fn meanwhile(&self) {
        if let Some(server) = self.world.leasing().first() {
            self.world.message_takes_time(server);
        }
    }

    fn is_heard(&self) -> Result<(), NoAnswer> {
        let registries = &self.fleet.operators.registries;
        let registry = registries.get();
        self.meanwhile();
        let is_another = registry != registries.get();
        let is_away = !self.world.settles.get() && self.world.time_ms() < self.fleet.away_until_ms.get();
        if is_away || is_another || self.world.fails(Chance::CallLost, 16) { Err(NoAnswer) } else { Ok(()) }
    }

    /// Changes what an operator reads, for lies.
    fn lie_about_reading(&self, reading: &mut Reading) {
        let Some(lie) = self.world.lie else { return };
        match (lie, self.operation) {
            (Lie::ClosesUnnoted, Operation::Close)
            | (Lie::LostUnnoted, Operation::Lost { .. })
            | (Lie::VouchesUnnoted, Operation::SetLosesNothing { .. })
            | (Lie::ReservesUnnoted, Operation::Reserve { .. }) => reading.incarnation = reading.fleet.incarnation,
            (Lie::ReservesLost, Operation::Reserve { .. }) => reading.fleet.freeze_ms = i64::MIN,
            (Lie::OpensUnclosed, Operation::Open { .. }) => reading.fleet.closed = true,
            (Lie::ResetsRunning, Operation::ResetSettings) => {
                reading.numbers.clear();
                reading.fleet.freeze_ms = i64::MIN;
            }
            (Lie::ResetsOpen, Operation::ResetSettings) => reading.fleet.closed = true,
            (Lie::LowersLimits, Operation::SetLimits { .. }) => reading.fleet.longest_ms = 0,
            (Lie::BeyondLimit, Operation::SetLease { .. }) => reading.fleet.longest_ms = i64::MAX,
            (Lie::DropsEarly, Operation::DropNumbers { .. }) => {
                reading.numbers.values_mut().for_each(|record| record.until_ms -= 1000);
            }
            (Lie::CutsKept, Operation::Restored { .. }) => {
                reading.numbers.values_mut().for_each(|record| record.server = record.server.max(1));
            }
            _ => {}
        }
    }

    /// Changes what an operator sends, for lies. What was changed in the reading is not written.
    fn lie_about_swap(&self, swap: &mut Swap, real: &Reading) {
        let Some(lie) = self.world.lie else { return };
        let old = &real.fleet;
        for change in &mut swap.changes {
            match change {
                RecordChange::Fleet(new) => {
                    match (lie, self.operation) {
                        (Lie::ResetsRunning, Operation::ResetSettings) => new.freeze_ms = old.freeze_ms,
                        (Lie::ResetsOpen, Operation::ResetSettings) => new.closed = old.closed,
                        (Lie::ResetsRaise, Operation::ResetSettings) => new.lease_ms = 0,
                        (Lie::ResetsToLimit, Operation::ResetSettings) => {
                            new.lease_ms = if old.longest_ms < DEFAULT_LEASE_MS { old.longest_ms } else { 0 };
                        }
                        (Lie::ResetsTwice, Operation::ResetSettings) if old.longest_ms == 0 => new.lease_ms = 0,
                        (Lie::LowersLimits, Operation::SetLimits { .. }) => new.lease_ms = old.used_lease_ms(),
                        (Lie::RaisesBoth, Operation::SetLimits { .. }) => new.lease_ms = old.lease_ms,
                        (Lie::BeyondLimit, Operation::SetLease { .. }) => new.longest_ms = old.longest_ms,
                        _ => {}
                    }
                    if new.generation != old.generation {
                        match lie {
                            Lie::FreezeOfLength | Lie::RestoredShort => new.freeze_ms -= 2 * new.skew_ms,
                            Lie::OneSkew => {
                                new.freeze_ms -= new.skew_ms;
                                new.horizon_ms -= new.skew_ms;
                            }
                            Lie::RestoredForgetful => {
                                (new.longest_ms, new.skew_ms) = (old.longest_ms, old.skew_ms);
                            }
                            Lie::LostUnfrozen if matches!(self.operation, Operation::Lost { .. }) => {
                                (new.freeze_ms, new.horizon_ms) = (i64::MIN, i64::MIN);
                            }
                            _ => {}
                        }
                    }
                }
                RecordChange::Number { number, record, .. } => {
                    let old = real.numbers.get(number);
                    if let (Lie::CutsKept, Some(old)) = (lie, old) {
                        record.server = old.server;
                    }
                    if let (Lie::ReservesUnfrozen, Operation::Reserve { until_ms, .. }) = (lie, self.operation) {
                        record.until_ms = *until_ms;
                    }
                }
                RecordChange::DropNumber { .. } | RecordChange::Tag { .. } => {}
            }
        }
    }
}

impl World {
    /// Whether an operator does something next. Operators do not leave for long what they have
    /// begun.
    pub fn operates(&self) -> bool {
        let Some(fleet) = self.fleet.as_ref().filter(|fleet| fleet.beyond.is_none()) else { return false };
        let Operators { at_work, moving, .. } = &fleet.operators;
        let has_begun = fleet.operators.is_sealed() || moving.get() != Move::None || !at_work.borrow().is_empty();
        self.happens(Chance::Operates, if has_begun { 3 } else { 8 })
    }

    /// An operator begins something, or goes on with it.
    pub fn operate(&self, _: &Rc<Server>) {
        let is_promised = self.fleet.as_ref().is_some_and(|fleet| fleet.beyond.is_none());
        if is_promised && !self.settles.get() {
            self.some_operator();
        }
    }

    /// Performs an operation at once, if no other has to be done before.
    pub fn perform_unless_sealed(&self, operation: impl Into<Option<Operation>>) {
        if let Some(operation) = operation.into().filter(|_| !self.registered().operators.is_sealed()) {
            self.perform(operation, false);
        }
    }

    pub fn registered(&self) -> &Registered {
        self.fleet.as_ref().expect("operators work for a fleet")
    }

    /// Raises the limit of leases, or sets how long they are: up to what no failover can forget.
    fn any_lease(&self, fleet: &Registered) -> Option<Operation> {
        let operators = &fleet.operators;
        // The operator first sees to it that no standby is left over from before a failover.
        if fleet.failed.borrow().is_some() {
            fleet.failed.borrow_mut().take_if(|_| self.random.one_in(2));
            return None;
        }
        let (longest_ms, changes) = {
            let store = fleet.store.borrow();
            (store.fleet.longest_ms, store.changes())
        };
        let set = |lease_ms| Some(Operation::SetLease { lease_ms: Some(lease_ms), skew_ms: None });
        if let Some((lease_ms, then)) = operators.raised.get() {
            if longest_ms < lease_ms {
                self.tell(|| "a failover has forgotten the raise".to_owned());
                self.count("raise forgotten");
                operators.raised.set(None);
            } else if changes >= then + MOST_LOST {
                fleet.kept.set(changes);
                operators.safe_ms.set(lease_ms);
                operators.raised.set(None);
                return set(lease_ms);
            }
        }
        let least_ms = fleet.terms.least_ms(&fleet.layout);
        let lease_ms = self.random.pick(&[2000, 10_000, 60_000, 2 * DEFAULT_LEASE_MS]).max(least_ms);
        if lease_ms <= operators.safe_ms.get() && self.random.one_in(2) || self.lies(Lie::BeyondLimit) {
            return set(lease_ms);
        }
        // It may be refused, because limits are raised only.
        Some(Operation::SetLimits { lease_ms: Some(lease_ms), skew_ms: None })
    }

    /// Sets a range: of numbers that were never configured, or are kept, which all standbys have.
    fn any_range(&self, fleet: &Registered) -> Option<Operation> {
        let mut first = FIRST_FREE;
        let store = fleet.store.borrow().prefix(fleet.kept.get());
        for number in CONFIGURED {
            let mark_ms = fleet.operators.marks.borrow().get(&number).copied();
            let record = store.numbers.get(&self.number(fleet, number));
            let is_kept = record.zip(mark_ms).is_some_and(|(record, mark_ms)| record.until_ms >= mark_ms);
            if !is_kept {
                break;
            }
            first = number;
        }
        let first = self.random.of(first..=LAST - 1);
        Some(Operation::SetRange { first, last: self.random.of(first..=LAST) })
    }

    fn number(&self, fleet: &Registered, worker: i64) -> NumberKey {
        NumberKey::new(fleet.datacenter(), worker)
    }

    /// Vouches for a synchronous standby, or makes it asynchronous, which is said first. One
    /// operator at a time does so.
    fn any_word(&self, fleet: &Registered) -> Option<Operation> {
        if !fleet.is_synchronous || fleet.operators.has_the_word.replace(true) {
            return None;
        }
        let loses_nothing = {
            let mut store = fleet.store.borrow_mut();
            let loses_nothing = !store.fleet.loses_nothing;
            if loses_nothing {
                // No standby is left over that is not synchronous.
                store.kind = Kind::Synchronous;
                store.sync();
                fleet.failed.take();
            }
            loses_nothing
        };
        self.perform_unless_sealed(Operation::SetLosesNothing { loses_nothing });
        fleet.operators.has_the_word.set(false);
        None
    }

    /// Says that the registry was restored, though it was not. The operator may know of limits.
    fn any_restored(&self, fleet: &Registered) -> Option<Operation> {
        let Operators { longest_ms, most_skew_ms, .. } = &fleet.operators;
        let known = self.random.one_in(2);
        let given = |limit_ms: &Cell<i64>| Some(limit_ms.get()).filter(|_| known);
        Some(Operation::Restored { lease_ms: given(longest_ms), skew_ms: given(most_skew_ms) })
    }

    /// Keeps a number that was configured on a server which is gone, or another one.
    fn any_reserve(&self, fleet: &Registered) -> Option<Operation> {
        if self.random.one_in(3) {
            return Some(self.reserve(fleet, self.random.of(FIRST_FREE..=LAST)));
        }
        let mut marks = fleet.operators.marks.borrow_mut();
        let next = CONFIGURED.into_iter().find(|number| !marks.contains_key(number));
        let number = match next {
            Some(number) if marks.is_empty() || self.random.one_in(3) => {
                let ahead_ms = self.random.pick(&[-5000, 3000, 30_000, 3_600_000, 1_000_000_000]);
                marks.insert(number, self.time_ms() + ahead_ms);
                number
            }
            _ => *marks.keys().nth(self.random.below(marks.len()))?,
        };
        let until_ms = marks[&number];
        Some(Operation::Reserve { number: self.number(fleet, number), until_ms, force: self.random.one_in(8) })
    }

    fn reserve(&self, fleet: &Registered, worker: i64) -> Operation {
        let until_ms = self.time_ms() + self.random.pick(&[-5000, 500, 3000, 30_000]);
        Operation::Reserve { number: self.number(fleet, worker), until_ms, force: false }
    }

    /// Deletes the records of leases that are over by every clock, or were some time ago.
    fn any_drop(&self, fleet: &Registered) -> Option<Operation> {
        let store = fleet.store.borrow();
        let over_ms = store.fleet.over_ms(self.time_ms() + store.offset_ms);
        Some(Operation::DropNumbers { before_ms: over_ms - self.random.pick(&[0, 0, 1, 3000]) })
    }

    /// Operators do things at the worst moments: between what servers write, and a failover that
    /// forgets it.
    pub fn hasten(&self, fleet: &Registered) {
        if fleet.beyond.is_some() || fleet.operators.is_sealed() || self.settles.get() {
            return;
        }
        type Scene = fn(&World, &Registered);
        let scenes: [(usize, Scene); 9] = [
            (2, Self::close_after_a_failover),
            (2, Self::vouch_after_a_failover),
            (2, Self::reserve_after_a_failover),
            (1, Self::lower_between_failovers),
            (1, Self::reset_before_a_failover),
            (1, Self::restore_before_a_raise),
            (1, Self::open_before_a_failover),
            (1, Self::restore_what_keeps),
            (1, Self::drop_what_ends),
        ];
        self.chooses(Choice::Scene, &scenes)(self, fleet);
    }

    /// A server without memory comes first, and all the others.
    fn a_new_server_keeps(&self) {
        if let Some(server) = self.leasing().first().filter(|_| !self.is_restoring_any()) {
            self.crash(server);
            self.leasing().first().iter().for_each(|server| self.keep(server));
        }
        self.some_keep();
    }

    /// Lets a freeze of these limits pass, or a bit less.
    fn pass_freeze(&self, (longest_ms, skew_ms): (i64, i64)) {
        self.pass(longest_ms + self.random.pick(&[1, 2, 3]) * skew_ms);
    }

    fn close_after_a_failover(&self, fleet: &Registered) {
        self.some_keep();
        self.fail_registry_over(fleet);
        self.perform_unless_sealed(Operation::Close);
        for _ in 0..4 {
            if fleet.operators.moving.get() != Move::None {
                self.perform_unless_sealed(self.any_move());
            }
            self.some_keep();
        }
        self.a_new_server_keeps();
    }

    fn vouch_after_a_failover(&self, fleet: &Registered) {
        for _ in 0..2 {
            self.any_word(fleet);
            if !fleet.store.borrow().fleet.loses_nothing {
                self.some_keep();
                self.fail_registry_over(fleet);
            }
        }
        self.a_new_server_keeps();
    }

    fn reserve_after_a_failover(&self, fleet: &Registered) {
        self.some_keep();
        let leased: Vec<_> = fleet.store.borrow().numbers.keys().map(|number| number.worker).collect();
        self.fail_registry_over(fleet);
        if self.random.one_in(2) {
            self.some_keep();
        }
        if leased.is_empty() {
            return;
        }
        self.perform_unless_sealed(self.reserve(fleet, self.random.pick(&leased)));
        self.some_keep();
        self.pass(self.random.pick(&[0, 500, 3000]));
        self.a_new_server_keeps();
    }

    fn lower_between_failovers(&self, fleet: &Registered) {
        let limits_ms = fleet.store.borrow().fleet.limits_ms();
        let lease_ms = self.random.pick(&[1000, 2000]).max(fleet.terms.least_ms(&fleet.layout));
        self.some_keep();
        self.fail_registry_over(fleet);
        self.some_keep();
        self.perform_unless_sealed(Operation::SetLimits { lease_ms: Some(lease_ms), skew_ms: None });
        self.some_keep();
        self.fail_registry_over(fleet);
        self.a_new_server_keeps();
        self.pass_freeze((lease_ms, limits_ms.1));
        self.a_new_server_keeps();
    }

    fn reset_before_a_failover(&self, fleet: &Registered) {
        let (longest_ms, skew_ms) = fleet.store.borrow().fleet.limits_ms();
        self.pass(longest_ms + 4 * skew_ms);
        for _ in 0..self.random.of(1..=2) {
            self.perform_unless_sealed(Operation::ResetSettings);
        }
        self.some_keep();
        self.some_keep();
        self.fail_registry_over(fleet);
        self.a_new_server_keeps();
        self.pass_freeze((longest_ms, skew_ms));
        self.a_new_server_keeps();
    }

    fn restore_before_a_raise(&self, fleet: &Registered) {
        let limits_ms = fleet.store.borrow().fleet.limits_ms();
        self.perform_unless_sealed(self.any_lease(fleet));
        let Some((lease_ms, _)) = fleet.operators.raised.take() else { return };
        if fleet.failed.borrow().is_none() && fleet.store.borrow().fleet.longest_ms >= lease_ms {
            fleet.kept.set(fleet.store.borrow().changes());
            fleet.operators.safe_ms.set(lease_ms);
            self.perform_unless_sealed(Operation::SetLease { lease_ms: Some(lease_ms), skew_ms: None });
        }
        self.some_keep();
        self.some_keep();
        self.restore_registry(fleet);
        for _ in 0..3 {
            let first = fleet.operators.plan.borrow().first().cloned();
            first.into_iter().for_each(|operation| self.perform(operation, true));
        }
        self.a_new_server_keeps();
        self.pass_freeze(limits_ms);
        self.a_new_server_keeps();
    }

    fn open_before_a_failover(&self, fleet: &Registered) {
        self.perform_unless_sealed(Operation::Close);
        for _ in 0..2 {
            if matches!(fleet.operators.moving.get(), Move::Closed(_) | Move::Copied(_)) {
                self.perform_unless_sealed(self.any_move());
            }
        }
        if fleet.operators.moving.get() != Move::Moved {
            return;
        }
        let Some(operation) = self.any_move() else { return };
        let registry = fleet.operators.registries.get();
        let mut at_work = self.begin(operation, false);
        let _ = (self.go_on(&mut at_work), self.go_on(&mut at_work));
        self.some_keep();
        self.fail_registry_over(fleet);
        if self.lies(Lie::OpensAgain) {
            at_work = self.begin(at_work.operator.operation.clone(), false);
        }
        for _ in 0..6 {
            if registry != fleet.operators.registries.get() {
                return;
            }
            if let Went::Over(result) = self.go_on(&mut at_work) {
                self.operated(&at_work, result);
                break;
            }
        }
        self.a_new_server_keeps();
    }

    fn restore_what_keeps(&self, fleet: &Registered) {
        for _ in 0..2 {
            self.perform_unless_sealed(self.any_reserve(fleet));
        }
        self.perform_unless_sealed(self.any_range(fleet));
        self.perform_unless_sealed(self.any_restored(fleet));
        self.some_keep();
        self.pass_freeze(fleet.store.borrow().fleet.limits_ms());
        self.a_new_server_keeps();
        self.leasing().iter().filter(|server| !server.is_standby()).for_each(|server| self.draw(server));
    }

    fn drop_what_ends(&self, fleet: &Registered) {
        self.some_keep();
        let left_ms = {
            let store = fleet.store.borrow();
            let now_ms = self.time_ms() + store.offset_ms;
            let ends = store.numbers.values().map(|record| record.until_ms.saturating_sub(now_ms));
            ends.filter(|left_ms| (0..1_000_000).contains(left_ms)).min()
        };
        let Some(left_ms) = left_ms else { return };
        self.pass((left_ms + self.random.pick(&[-500, -100, 0, 2 * fleet.skew_ms])).max(0));
        self.perform_unless_sealed(self.any_drop(fleet));
        self.a_new_server_keeps();
        self.leasing().iter().filter(|server| !server.is_standby()).for_each(|server| self.draw(server));
    }

    /// What is refused, or changes nothing.
    fn any_mistake(&self, fleet: &Registered) -> Option<Operation> {
        let is_closed = fleet.store.borrow().fleet.closed;
        let leased = fleet.store.borrow().numbers.keys().next().copied();
        let number = leased.unwrap_or(NumberKey::new(None, -1));
        let until_ms = self.time_ms();
        Some(match self.random.below(7) {
            0 => Operation::SetLimits { lease_ms: Some(1), skew_ms: None },
            1 => Operation::SetRange { first: 3, last: 2 },
            2 => {
                let (lease_ms, skew_ms) = fleet.operators.limits_ms();
                Operation::Lost { lease_ms, skew_ms, uuid: None }
            }
            3 => Operation::SetLease { lease_ms: Some(2_592_000_000), skew_ms: None },
            4 if !is_closed => Operation::Open { moved: Some(true) },
            // Its lease has hardly ended.
            5 if number.worker < FIRST_FREE => {
                Operation::Reserve { number, until_ms: until_ms - 1_000_000_000, force: true }
            }
            _ => Operation::Open { moved: None },
        })
    }

    /// A thief of the servers' password leases a number for years, where nothing checks that.
    fn steal(&self, fleet: &Registered) -> Option<Operation> {
        let mut store = fleet.store.borrow_mut();
        let now_ms = self.time_ms() + store.offset_ms;
        if store.fleet.closed
            || fleet.operators.is_sealed()
            || self.lie.is_some_and(|lie| lie != Lie::CutsKept)
            || !self.random.one_in(3)
        {
            return None;
        }
        let number = self.number(fleet, self.random.of(FIRST_FREE..=LAST));
        let old = store.numbers.get(&number).copied();
        if old.is_some_and(|old| old.until_ms > now_ms) {
            return None;
        }
        let from_ms = old.map_or(now_ms, |old| old.until_ms).max(store.fleet.freeze_ms).max(now_ms) + 10_000_000_000;
        let record = NumberRecord {
            holder: self.random.bits().into(),
            nonce: self.random.bits(),
            count: old.map_or(0, |old| old.count) + 1,
            server: 1,
            from_ms,
            until_ms: from_ms + 100_000_000_000,
            generation: store.fleet.generation,
            renewed_ms: now_ms,
            offset_ms: 0,
        };
        store.write(vec![RecordChange::Number { number, was: None, record }]);
        store.sync();
        self.count("stolen");
        None
    }

    /// An operator's swap arrives.
    pub fn arrive_from_operator(&self, fleet: &Registered, sent: &Sent) -> SwapAnswer {
        let Sent { swap, is_restored, .. } = sent;
        if !fleet.store.borrow().compares_for_operator(swap) {
            self.tell(|| "    the operator's swap is refused".to_owned());
            return SwapAnswer::Refused;
        }
        self.tell(|| format!("    the operator {}", self.words.changes(swap, &fleet.store.borrow().fleet)));
        self.check_operator(fleet, swap);
        if self.has_tags {
            self.note_said(fleet, sent);
        }
        let answer = fleet.store.borrow_mut().write(swap.changes.clone());
        if self.has_tags {
            if *is_restored {
                // A registry that was restored has no standbys yet. What a failover forgets of it,
                // an operator would have to say again for each tag.
                fleet.keep_all();
            }
            fleet.note_restores();
        }
        answer
    }

    /// Checks what an operator writes.
    fn check_operator(&self, fleet: &Registered, swap: &Swap) {
        let store = fleet.store.borrow();
        let now_ms = self.time_ms() + store.offset_ms;
        for change in &swap.changes {
            let RecordChange::Fleet(new) = change else { continue };
            let is_reset = new.longest_ms == 0 && store.fleet.longest_ms > 0;
            let known = fleet.known.borrow();
            let running = known.iter().find(|known| !known.elsewhere && known.until_ms > now_ms.max(known.from_ms));
            if let Some(running) = running.filter(|_| is_reset) {
                self.broken(Guarantee::Idle, || format!("settings are reset at {now_ms}, and {running:?} runs"));
            }
        }
    }

    /// In the end operators do what has to be done, without faults, and servers reach the registry.
    pub fn settle_operators(&self, fleet: &Registered) {
        self.settle_plan();
        let is_stolen = |store: &Store| store.numbers.values().any(|record| record.server == 1);
        if !self.has_tags && is_stolen(&fleet.store.borrow()) {
            let Operators { longest_ms, most_skew_ms, .. } = &fleet.operators;
            self.perform(
                Operation::Restored { lease_ms: Some(longest_ms.get()), skew_ms: Some(most_skew_ms.get()) },
                false,
            );
        }
    }

    /// Returns any operation, or does something else.
    pub fn any_operation(&self) -> Option<Operation> {
        if self.has_tags {
            return self.any_operation_on_tags(self.registered());
        }
        type Choose = fn(&World, &Registered) -> Option<Operation>;
        let choices: [(usize, Choose); 10] = [
            (6, Self::any_lease),
            (3, Self::any_range),
            (2, Self::any_word),
            (6, |world, _| world.any_move()),
            (2, |_, _| Some(Operation::ResetSettings)),
            (2, Self::any_restored),
            (4, Self::any_reserve),
            (3, Self::any_drop),
            (1, Self::any_mistake),
            (1, Self::steal),
        ];
        self.chooses(Choice::Operator, &choices)(self, self.registered())
    }

    pub fn begin(&self, operation: Operation, is_planned: bool) -> AtWork {
        self.tell(|| format!("an operator begins: {operation:?}"));
        let Operators { longest_ms, most_skew_ms, failovers, .. } = &self.registered().operators;
        let (lease_ms, skew_ms) = match operation {
            Operation::SetLimits { lease_ms, skew_ms } => (lease_ms, skew_ms),
            // The next server brings these.
            Operation::ResetSettings => (Some(DEFAULT_LEASE_MS), Some(DEFAULT_SKEW_MS)),
            _ => (None, None),
        };
        longest_ms.set(longest_ms.get().max(lease_ms.unwrap_or(0)));
        most_skew_ms.set(most_skew_ms.get().max(skew_ms.unwrap_or(0)));
        let most_changes = self.random.pick(&[1, 2, 3, 100]);
        AtWork {
            operator: Operator::new(operation, most_changes),
            is_planned,
            failovers: failovers.get(),
            losses: self.registered().tags.losses.get(),
            read: RefCell::default(),
        }
    }

    /// Goes on up to the next answer.
    pub fn go_on(&self, at_work: &mut AtWork) -> Went {
        let operation = at_work.operator.operation.clone();
        let AtWork { operator, losses, read, .. } = &mut *at_work;
        let desk = Desk { world: self, fleet: self.registered(), operation: &operation, losses: *losses, read };
        let went = operator.go_on(&desk, &mut || self.random.bits());
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

    /// Takes what has come of an operation.
    pub fn operated(&self, at_work: &AtWork, result: Result<Outcome, Refusal>) {
        let fleet = self.registered();
        let operators = &fleet.operators;
        let operation = &at_work.operator.operation;
        self.tell(|| {
            let told = result.as_ref().map_or_else(
                |refusal| format!("refuses: {}", self.words.refusal(refusal)),
                |outcome| format!("done: {}", self.words.outcome(outcome)),
            );
            format!("an operator's {operation:?}: {told}")
        });
        let losses = || at_work.read.borrow().as_ref().expect("it was read").losses;
        let (changes, is_vouched) = {
            let store = fleet.store.borrow();
            (store.changes(), store.fleet.loses_nothing)
        };
        self.count(match &result {
            Ok(Outcome::RangeSet { .. }) => "range set",
            Ok(Outcome::LimitsSet { longest_ms, .. }) => {
                if let Operation::SetLimits { lease_ms: Some(lease_ms), .. } = operation {
                    operators.safe_ms.set(operators.safe_ms.get().min(*longest_ms));
                    if self.lies(Lie::UsedAtOnce) {
                        self.perform_unless_sealed(Operation::SetLease { lease_ms: Some(*lease_ms), skew_ms: None });
                    } else {
                        operators.raised.set(Some((*lease_ms, changes)));
                    }
                    if !self.settles.get() {
                        self.fail_over_and_freeze(fleet);
                    }
                }
                "limit raised"
            }
            Ok(Outcome::LeaseSet { lease_ms, .. }) => {
                fleet.lease_ms.set(*lease_ms);
                "lease set"
            }
            Ok(Outcome::LosesNothingSet { loses_nothing: false }) if !is_vouched => {
                // From now on the standby is not synchronous.
                fleet.kept.set(changes);
                fleet.failed.take();
                fleet.store.borrow_mut().kind = Kind::Postgres;
                "not vouched for"
            }
            Ok(Outcome::LosesNothingSet { .. }) => "vouched for",
            Ok(Outcome::Closed { .. }) => {
                if operators.moving.get() == Move::None {
                    operators.moving.set(Move::Closed(at_work.failovers));
                }
                "closed"
            }
            Ok(Outcome::Opened { .. }) => {
                operators.moving.set(Move::None);
                "opened"
            }
            Ok(Outcome::SettingsReset { .. }) => {
                // The next limits are a server's, and a failover forgets them like any others.
                operators.safe_ms.set(0);
                operators.raised.set(None);
                "settings reset"
            }
            Ok(Outcome::Restored(_)) => "restored",
            Ok(Outcome::Lost { .. }) => "made as a lost one",
            Ok(Outcome::Reserved { number, .. }) => {
                // All standbys have it before the range is widened.
                if fleet.failed.borrow().is_none() && CONFIGURED.contains(&number.worker) {
                    fleet.kept.set(changes);
                }
                "reserved"
            }
            Ok(Outcome::NumbersDropped { count: 0, .. }) => "nothing dropped",
            Ok(Outcome::NumbersDropped { .. }) => "numbers dropped",
            Ok(Outcome::TagCreated { record, .. }) => {
                fleet.tags.say(record.id, losses(), record.next);
                "made again"
            }
            Ok(Outcome::TagSet { record, .. }) => {
                if let Operation::SetTag { next: Some(next), .. } = operation {
                    fleet.tags.say(record.id, losses(), *next);
                }
                match operation {
                    Operation::SetTag { jumps: Some(_), .. } => "jump set",
                    _ => "steps set",
                }
            }
            Ok(Outcome::TagDropped { .. }) => "deleted",
            Err(Refusal::NotNoted { .. }) => "not noted",
            Err(Refusal::LimitsLowered { .. }) => "limits not lowered",
            Err(Refusal::MayStillDraw { .. }) => "may still draw",
            Err(Refusal::MayBeLost { .. }) => "may be lost",
            Err(Refusal::GenerationBegan { .. }) => "another generation",
            Err(Refusal::NotClosed) => "not closed",
            Err(Refusal::NextLowered { .. }) => "next not lowered",
            Err(Refusal::NeedsNext { .. }) => "needs next",
            Err(Refusal::Contended) => "operator contended",
            Err(_) => "refused",
        });
        // Two operators do at once what has to be done, and one of them says so.
        let is_others = match &result {
            Err(Refusal::GenerationBegan { .. }) => !self.lies(Lie::FleetFirst),
            Err(Refusal::NextLowered { .. }) => true,
            _ => false,
        };
        let is_next = operators.plan.borrow().first().is_some_and(|step| match (step, operation) {
            (Operation::SetTag { tag, .. }, Operation::SetTag { tag: set, .. }) => tag == set,
            _ => step == operation,
        });
        if at_work.is_planned && is_next && !is_others {
            assert!(result.is_ok() || self.lie.is_some(), "{operation:?} is refused: {result:?}");
            operators.plan.borrow_mut().remove(0);
            if !operators.is_sealed() {
                // Its standbys are made when the operator is done.
                fleet.keep_all();
                if operators.oldest_backup.get() == 0 {
                    operators.oldest_backup.set(fleet.store.borrow().changes());
                }
            }
        }
        // It may be made again before any server has seen that it was gone.
        if let (Ok(Outcome::TagDropped { tag, .. }), true) = (&result, self.random.one_in(2)) {
            self.perform(self.create(*tag), false);
        }
    }

    /// Servers reach a copy of the registry. No operator is at work, and no message on its way.
    pub fn adopt_moved(&self, copy: Store) {
        let fleet = self.registered();
        // Standbys are made of the new one.
        fleet.failed.take();
        fleet.kept.set(copy.changes());
        fleet.late.borrow_mut().clear();
        fleet.operators.stop();
        fleet.operators.cuts.set(fleet.operators.cuts.get() + 1);
        *fleet.store.borrow_mut() = copy;
    }
}
