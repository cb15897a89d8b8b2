//! A fleet's registry, and servers whose calls a test disturbs one by one.

use std::cell::{Cell, RefCell};

use snowflake_core::draw::numbers::NextNumbers;
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::lease::{Holder, LeaseNotice, LeaseTerms};
use snowflake_core::fleet::membership::FleetNotice;
use snowflake_core::fleet::registry::{
    Fleet, MOST_CHANGES, NumberKey, NumberRecord, Reading, RecordChange, Swap, SwapAnswer, Wanted,
};
use snowflake_core::fleet::segment::{PLACES, Supply};
use snowflake_core::fleet::tag::Tag;
use snowflake_core::id::identity::Identity;
use snowflake_core::id::layout::Layout;

use super::registry::{Kind, Store, used_fleet};
use super::server::{Connected, Memory, Notice, Process};
use super::stepped::Stepped;

pub const START_MS: i64 = 1_800_000_000_000;
pub const TERMS: LeaseTerms = LeaseTerms { max_borrow_ms: 0 };

/// A fleet, its registry, and the time.
pub struct World {
    pub layout: Layout,
    pub backup: bool,
    pub store: RefCell<Store>,
    pub time_ms: Cell<i64>,
    nonces: Cell<u64>,
}

impl World {
    pub fn new(numbers: i64) -> Self {
        Self::of(Kind::Postgres, "js53", false, numbers)
    }

    pub fn of(kind: Kind, layout: &str, backup: bool, numbers: i64) -> Self {
        let layout = Layout::parse(layout).unwrap();
        let fleet = used_fleet(kind, &layout, backup, numbers);
        let store = RefCell::new(Store::new(kind, fleet, 0));
        Self { layout, backup, store, time_ms: Cell::new(START_MS), nonces: Cell::new(100) }
    }

    fn nonce(&self) -> u64 {
        self.nonces.set(self.nonces.get() + 1);
        self.nonces.get()
    }

    pub fn server(&self, name: u64) -> Server<'_> {
        Server {
            world: self,
            holder: Cell::new(Holder::new(name)),
            kept: Cell::new(Holder::new(name)),
            terms: Cell::new(TERMS),
            memory: Memory::new(PLACES),
            offset_ms: Cell::new(0),
            is_cut_off: Cell::new(false),
            stepped: None,
            has_stopped: Cell::new(false),
            dies_in: Cell::new(u32::MAX),
            loses_answers: Cell::new(0),
            loses_swaps: Cell::new(0),
            delays: Cell::new(false),
            delayed: RefCell::new(None),
            meanwhile: RefCell::default(),
            takes_ms: Cell::new([0; 2]),
            calls: Cell::new(0),
            notices: RefCell::default(),
            fleet_notices: RefCell::default(),
        }
    }

    pub fn pass(&self, ms: i64) {
        self.time_ms.set(self.time_ms.get() + ms);
    }

    /// Makes the registry what it was after its first `changes`, on another machine.
    pub fn fail_over(&self, changes: usize) {
        let mut next = self.store.borrow().prefix(changes);
        next.incarnation.timeline += 1;
        *self.store.borrow_mut() = next;
    }

    /// Makes the registry what it was after its first `changes`, and shows nothing of it.
    pub fn restore(&self, changes: usize) {
        let next = self.store.borrow().prefix(changes);
        *self.store.borrow_mut() = next;
    }

    /// Changes the fleet's record, as an operator does.
    pub fn operate(&self, change: impl FnOnce(&mut Fleet)) {
        let mut store = self.store.borrow_mut();
        let mut fleet = store.fleet;
        change(&mut fleet);
        fleet.version = self.nonce();
        store.write(vec![RecordChange::Fleet(fleet)]);
    }

    pub fn fleet(&self) -> Fleet {
        self.store.borrow().fleet
    }

    /// Returns a number's record.
    pub fn record(&self, worker: i64) -> NumberRecord {
        self.store.borrow().numbers[&NumberKey::new(None, worker)]
    }

    /// Changes a number's record, as a person does.
    pub fn edit(&self, worker: i64, change: impl FnOnce(&mut NumberRecord)) {
        change(self.store.borrow_mut().numbers.get_mut(&NumberKey::new(None, worker)).unwrap());
    }

    pub fn changes(&self) -> usize {
        self.store.borrow().changes()
    }
}

/// A server, with its connection.
pub struct Server<'a> {
    world: &'a World,
    pub holder: Cell<Holder>,
    /// The holder as it was kept last.
    kept: Cell<Holder>,
    pub terms: Cell<LeaseTerms>,
    pub memory: Memory,
    pub offset_ms: Cell<i64>,
    pub is_cut_off: Cell<bool>,
    /// Whether it stops after each call, and has stopped so.
    stepped: Option<Stepped>,
    has_stopped: Cell<bool>,
    /// How often its process goes on before and after a call.
    pub dies_in: Cell<u32>,
    /// How many of the next answers are lost.
    pub loses_answers: Cell<u32>,
    /// At how many of the next swaps others are first.
    pub loses_swaps: Cell<u32>,
    /// Whether what is sent arrives later, and the last that was sent so.
    pub delays: Cell<bool>,
    pub delayed: RefCell<Option<Swap>>,
    /// What happens while the next swap is on its way.
    pub meanwhile: RefCell<Option<Box<dyn FnOnce() + 'a>>>,
    /// How long the registry takes, in milliseconds: before and after it reads its clock.
    pub takes_ms: Cell<[i64; 2]>,
    pub calls: Cell<u32>,
    pub notices: RefCell<Vec<LeaseNotice>>,
    pub fleet_notices: RefCell<Vec<FleetNotice>>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct NoAnswer;

impl Process for Server<'_> {
    type NoAnswer = NoAnswer;

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn layout(&self) -> &Layout {
        &self.world.layout
    }

    fn has_backup(&self) -> bool {
        self.world.backup
    }

    fn now_ms(&self) -> i64 {
        self.world.time_ms.get() + self.offset_ms.get()
    }

    fn nonce(&self) -> u64 {
        self.stepped.as_ref().map_or_else(|| self.world.nonce(), |stepped| stepped.random(|| self.world.nonce()))
    }

    fn saves(&self, holder: &Holder) -> Result<(), NoAnswer> {
        self.lives()?;
        self.kept.set(*holder);
        self.lives()
    }

    fn report(&self, notice: Notice) -> Result<(), NoAnswer> {
        self.lives()?;
        match notice {
            Notice::Fleet(notice) => self.fleet_notices.borrow_mut().push(notice),
            Notice::Lease(notice) => self.notices.borrow_mut().push(notice),
            Notice::Supply(_) => {}
        }
        self.lives()
    }

    fn read(&self, wanted: &Wanted) -> Result<Reading, NoAnswer> {
        match &self.stepped {
            Some(stepped) => stepped.read(|| self.reads(wanted)).map_err(|error| self.stops(error)),
            None => self.reads(wanted),
        }
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, NoAnswer> {
        match &self.stepped {
            Some(stepped) => stepped.swap(|| self.swaps(swap)).map_err(|error| self.stops(error)),
            None => self.swaps(swap),
        }
    }
}

impl Server<'_> {
    fn stops(&self, error: Option<NoAnswer>) -> NoAnswer {
        self.has_stopped.set(error.is_none());
        NoAnswer
    }

    fn reads(&self, wanted: &Wanted) -> Result<Reading, NoAnswer> {
        self.calls.set(self.calls.get() + 1);
        self.lives()?;
        if self.is_cut_off.get() {
            return Err(NoAnswer);
        }
        let [before_ms, after_ms] = self.takes_ms.get();
        self.world.pass(before_ms);
        let reading = self.world.store.borrow().read(wanted, self.world.time_ms.get());
        self.world.pass(after_ms);
        self.lives().map(|()| reading)
    }

    fn swaps(&self, swap: &Swap) -> Result<SwapAnswer, NoAnswer> {
        assert!((1..=MOST_CHANGES).contains(&swap.changes.len()));
        self.calls.set(self.calls.get() + 1);
        self.lives()?;
        if let Some(meanwhile) = self.meanwhile.take() {
            meanwhile();
        }
        if self.delays.get() {
            self.delayed.replace(Some(swap.clone()));
            return Err(NoAnswer);
        }
        if let Some(left) = self.loses_swaps.get().checked_sub(1) {
            self.loses_swaps.set(left);
            return Ok(SwapAnswer::Refused);
        }
        let answer = self.world.store.borrow_mut().swap(swap);
        if let Some(left) = self.loses_answers.get().checked_sub(1) {
            self.loses_answers.set(left);
            return Err(NoAnswer);
        }
        self.lives().map(|()| answer)
    }

    /// Whether the process goes on, which may end before and after each call.
    fn lives(&self) -> Result<(), NoAnswer> {
        let left = self.dies_in.get();
        self.dies_in.set(if left == u32::MAX { left } else { left.saturating_sub(1) });
        if left == 0 { Err(NoAnswer) } else { Ok(()) }
    }

    /// Runs a process that ends at one of its calls, unless it ends before. Returns the holder that
    /// the next one finds, and whether it has ended so.
    pub fn dies(&self, dies_at: u32, life: impl FnOnce(&mut Holder)) -> (Holder, bool) {
        let mut holder = self.holder.get();
        self.kept.set(holder);
        self.dies_in.set(dies_at);
        life(&mut holder);
        let has_died = self.dies_in.replace(u32::MAX) == 0;
        (if has_died { self.kept.get() } else { holder }, has_died)
    }

    pub fn keep(&self) -> Result<(), Failure<NoAnswer>> {
        let mut holder = self.holder.get();
        self.calls.set(0);
        let kept = holder.renew_or_acquire(&self.process(), &self.terms.get());
        self.holder.set(holder);
        kept
    }

    pub fn give_back(&self) {
        let mut holder = self.holder.get();
        holder.give_back(&self.process()).unwrap();
        self.holder.set(holder);
    }

    /// Makes this server's memory one that holds what another one holds.
    pub fn is_copy_of(&self, original: &Self) {
        self.holder.set(original.holder.get());
        let Some(lease) = self.holder.get().held() else { return };
        let identity = Identity::new(&self.world.layout, Some(lease.worker), None, false).unwrap();
        let span = NextNumbers { identity, from_ms: lease.from_ms, until_ms: lease.until_ms, fleet: 0 };
        self.memory.numbers.enter(&self.memory.marks, &self.memory.generator, &self.world.layout, &span);
    }

    /// Returns the number, and the lease's two ends.
    pub fn held(&self) -> Option<(i64, i64, i64)> {
        self.holder.get().held().map(|lease| (lease.worker, lease.from_ms, lease.until_ms))
    }

    /// Whether it can draw an id, if a mark beyond the lease's end permits it.
    pub fn draws(&self) -> bool {
        self.draw().is_some()
    }

    pub fn draw(&self) -> Option<i64> {
        self.memory.draw(&self.world.layout, &self.process(), self.terms.get().max_borrow_ms)
    }

    /// Lets its worker supply its sessions. Returns how many calls of the registry that takes.
    pub fn supply(&self, supply: &mut Supply) -> u32 {
        self.calls.set(0);
        assert_eq!(self.try_to_supply(supply), Ok(()));
        self.calls.get()
    }

    pub fn try_to_supply(&self, supply: &mut Supply) -> Result<(), Failure<NoAnswer>> {
        let mut holder = self.holder.get();
        let result = supply.supply(&self.process(), &mut holder.membership);
        self.holder.set(holder);
        result
    }

    pub fn give_values_back(&self, supply: &mut Supply) -> Result<(), Failure<NoAnswer>> {
        let mut holder = self.holder.get();
        let result = supply.give_back(&self.process(), &mut holder.membership);
        self.holder.set(holder);
        result
    }

    /// Lets its worker go on up to the answer of its next call. Returns what came of it all in the
    /// end.
    pub fn step(&mut self, supply: &mut Supply) -> Option<Result<(), Failure<NoAnswer>>> {
        self.stepped.get_or_insert_default().runs_again();
        let (mut tried, before) = (*supply, self.holder.get());
        let result = self.try_to_supply(&mut tried);
        if self.has_stopped.take() {
            self.holder.set(before);
            return None;
        }
        (*supply, self.stepped) = (tried, None);
        Some(result)
    }

    /// Draws one value of a tag, as a session does.
    pub fn draw_value(&self, tag: Tag) -> Option<i64> {
        let (_, view) = self.memory.tags.find(tag).unwrap();
        view.draw(1).ok().map(|drawn| drawn.run.first)
    }

    pub fn process(&self) -> Connected<'_, Self> {
        Connected(self)
    }

    pub fn enter(&self) {
        let mut holder = self.holder.get();
        holder.enter(&self.process(), &self.terms.get()).unwrap();
        self.holder.set(holder);
    }

    pub fn enters_in_ms(&self) -> Option<i64> {
        self.holder.get().enters_in_ms(&self.process(), &self.terms.get())
    }

    pub fn reported(&self, what: impl Fn(&LeaseNotice) -> bool) -> bool {
        self.notices.borrow().iter().any(what)
    }
}
