//! The fleet's part of a history: a registry that may do anything, the process of each server that
//! leases its number, and what must hold for all servers together.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use snowflake_core::clock::Clock;
use snowflake_core::identity::{Identity, LaneName, NO_END};
use snowflake_core::layout::{Field, Layout};
use snowflake_core::lease::{self, Holder, Notice, Terms, Words};
use snowflake_core::numbers::Span;
use snowflake_core::registry::{Answer, Change, Fleet, Incarnation, Reading, Record, Registry, Since, Swap, Wanted};

use crate::random::Random;
use crate::registry::{Kind, Store};
use crate::server::{DATACENTER, Server, Shared};
use crate::world::{Guarantee, Lie, World};

/// What is done to a registry beyond what the guarantee covers, to measure it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beyond {
    /// It is restored as files, shows the same incarnation, and no generation begins.
    RestoredSilently,
    /// The same, but after its start no number is acquired until holders have had time to renew.
    RestoredWithGrace,
    /// An operator vouches for a standby that is not synchronous.
    VouchedWrongly,
}

/// A lease as its holder knows it.
#[derive(Debug, Clone, Copy)]
struct Known {
    worker: i64,
    holder: u128,
    from_ms: i64,
    until_ms: i64,
    /// The latest end that it has had: what one of two copies gives back, the other still draws.
    latest_ms: i64,
    memory: u64,
    /// Whether the server has begun to draw with it.
    is_entered: bool,
    /// Whether two copies of one memory have it: one may give it back while the other draws.
    is_copied: bool,
}

/// The fleet of a history.
pub struct Registered {
    /// The servers' settings, and those of servers that were not reloaded since the last change.
    pub terms: Cell<Terms>,
    before: Cell<Terms>,
    /// The longest lease that the operator has let the fleet have.
    longest_ms: Cell<i64>,
    /// Settings that wait until no failover can forget that the fleet's limit was raised, and how
    /// many changes the registry had then.
    raised: Cell<Option<(Terms, usize)>>,
    /// How many of the registry's changes no failover forgets.
    kept: Cell<usize>,
    pub layout: Layout,
    pub backup: bool,
    pub range: (i64, i64),
    /// Whether the registry may lose changes. Its clocks are then within the skew.
    forgets: bool,
    beyond: Option<Beyond>,
    store: RefCell<Store>,
    /// What the primary had before the last failover, of which another standby may be promoted, and
    /// how much of it the promoted one had.
    failed: RefCell<Option<(Store, usize)>>,
    away_until_ms: Cell<i64>,
    /// Messages that arrive late.
    late: RefCell<Vec<Swap>>,
    known: RefCell<Vec<Known>>,
    /// The memories of holders whose leases were found to overlap, and where.
    overlaps: RefCell<Vec<([u64; 2], i64, i64)>>,
    /// All leased ids, and who has drawn them.
    drawn: RefCell<BTreeMap<i64, Drawer>>,
    /// Ids that were drawn with typed numbers.
    typed: RefCell<BTreeSet<i64>>,
}

/// Which memory has drawn an id.
#[derive(Debug, Clone, Copy)]
struct Drawer {
    memory: u64,
    /// Whether this memory has a copy, which may draw the same.
    may_repeat: bool,
}

/// One more than the most changes that a failover forgets.
const MOST_LOST: usize = 8;

impl Registered {
    pub fn new(random: &Random, layout: Layout, right_clock: bool, max_borrow_ms: i64, beyond: Option<Beyond>) -> Self {
        let kind = random.pick(&[Kind::Postgres, Kind::Postgres, Kind::Synchronous, Kind::Etcd]);
        let kind = if beyond.is_some() { Kind::Postgres } else { kind };
        let lease_ms = random.pick(&[2000, 10_000, 60_000]);
        let skew_ms = random.pick(&[200, 1000, 5000]);
        let terms = Terms { lease_ms, skew_ms, max_borrow_ms };
        let first = if layout.max_of(Field::Worker).is_some_and(|max| max >= 31) { 12 } else { 0 };
        let range = (first, first + random.of(0..=2));
        let forgets = beyond.is_some() || random.one_in(2);
        let backup = random.one_in(2);
        let counts = if kind == Kind::Etcd { [2, 3] } else { [0; 2] };
        let fleet = Fleet {
            uuid: 1,
            layout: None,
            range: Some(range),
            loses_nothing: kind == Kind::Synchronous || beyond == Some(Beyond::VouchedWrongly),
            closed: false,
            longest_ms: 0,
            skew_ms: 0,
            grace_ms: if beyond == Some(Beyond::RestoredWithGrace) { timer_ms(&terms, &layout) } else { 0 },
            incarnation: Incarnation { store: 1, timeline: 1, counts },
            generation: 1,
            horizon_ms: i64::MIN,
            freeze_ms: i64::MIN,
            version: bits(random),
        };
        let offset_ms = if right_clock { 0 } else { random.pick(&[-skew_ms / 2, skew_ms / 2]) };
        Self {
            terms: Cell::new(terms),
            before: Cell::new(terms),
            longest_ms: Cell::new(terms.longest_ms(&layout)),
            raised: Cell::new(None),
            kept: Cell::new(1),
            layout,
            backup,
            range,
            forgets,
            beyond,
            store: RefCell::new(Store::new(kind, fleet, offset_ms, i64::MIN / 4)),
            failed: RefCell::default(),
            away_until_ms: Cell::new(i64::MIN),
            late: RefCell::default(),
            known: RefCell::default(),
            overlaps: RefCell::default(),
            drawn: RefCell::default(),
            typed: RefCell::default(),
        }
    }

    /// Returns the settings of one server, which may not be reloaded yet.
    fn settings(&self, random: &Random) -> Terms {
        if random.one_in(2) { self.before.get() } else { self.terms.get() }
    }

    /// Returns a restored record of the fleet with the limits that the operator knows.
    fn with_limits(&self, fleet: &Fleet) -> Fleet {
        Fleet { longest_ms: self.longest_ms.get(), skew_ms: self.terms.get().skew_ms, ..*fleet }
    }

    /// Returns how far a server's clock is off: mostly so little that it may acquire a number, and
    /// seldom by more than a lease.
    pub fn any_offset_ms(&self, random: &Random) -> i64 {
        let half_ms = self.terms.get().skew_ms / 2;
        let little_ms = random.of(-half_ms..=half_ms);
        random.weighed(&[(3, -half_ms), (3, half_ms), (3, 3 * half_ms), (3, little_ms), (2, 4 * self.length_ms())])
    }

    /// Returns the length of a lease, for how long to let pass.
    pub fn length_ms(&self) -> i64 {
        self.terms.get().first_ms(&self.layout)
    }
}

/// Returns a random number that no other call is expected to return.
pub fn bits(random: &Random) -> u64 {
    random.below(usize::MAX) as u64
}

/// Why the registry has not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoAnswer;

/// The process of one server that leases its number, with its connection to the registry.
struct Keeper<'a> {
    world: &'a World,
    fleet: &'a Registered,
    server: &'a Rc<Server>,
    shared: &'a Shared,
    /// The server's settings.
    terms: Terms,
    /// How often the registry was called.
    calls: Cell<u32>,
}

impl<'a> Keeper<'a> {
    fn new(world: &'a World, fleet: &'a Registered, server: &'a Rc<Server>, shared: &'a Shared) -> Self {
        Self { world, fleet, server, shared, terms: fleet.settings(&world.random), calls: Cell::new(0) }
    }

    /// Whether the call reaches the registry, and the answer the caller.
    fn is_heard(&self) -> Result<(), NoAnswer> {
        self.world.meanwhile(self.server);
        let away_until_ms = self.fleet.away_until_ms.get().max(self.server.cut_off_until_ms.get());
        let is_away = self.world.time_ms() < away_until_ms && !self.world.settles.get();
        let is_lost = !self.world.settles.get() && self.world.random.one_in(16);
        if self.shared.gone.get() || is_away || is_lost { Err(NoAnswer) } else { Ok(()) }
    }

    /// Returns the registry that this call reaches.
    fn store(&self) -> &RefCell<Store> {
        &self.fleet.store
    }

    fn lies(&self, lie: Lie) -> bool {
        self.world.lies(lie)
    }

    /// Notes what the holder takes for written, and checks it.
    fn note_change(&self, change: &Change) {
        if let Change::Number { worker, record, .. } = change {
            self.note(*worker, record);
        }
    }

    /// Notes a lease that the holder takes for written, and checks that no other holder knows of
    /// one that overlaps.
    fn note(&self, worker: i64, record: &Record) {
        let Record { from_ms, until_ms, holder, .. } = *record;
        let memory = self.shared.memory;
        self.shared.holders.borrow_mut().insert(holder);
        let mut known = self.fleet.known.borrow_mut();
        match known.iter_mut().find(|known| (known.worker, known.holder, known.from_ms) == (worker, holder, from_ms)) {
            Some(known) => {
                known.until_ms = until_ms;
                known.latest_ms = known.latest_ms.max(until_ms);
                // Both have proposed it when the memory was copied.
                known.is_copied |= known.memory != memory;
            }
            None => {
                let (is_entered, is_copied, latest_ms) = (false, false, until_ms);
                known.push(Known { worker, holder, from_ms, until_ms, latest_ms, memory, is_entered, is_copied });
            }
        }
        let is_copied = known.iter().any(|known| known.holder == holder && known.is_copied);
        let overlaps = |known: &&Known| {
            known.worker == worker
                && !known.is_copied
                && !is_copied
                && known.holder != holder
                // Two leases of one memory share its lanes.
                && known.memory != memory
                && known.from_ms < until_ms
                && from_ms < known.until_ms
                && known.from_ms < known.until_ms
        };
        if let Some(other) = known.iter().find(overlaps) {
            let overlap = ([memory, other.memory], from_ms.max(other.from_ms), until_ms.min(other.until_ms));
            self.fleet.overlaps.borrow_mut().push(overlap);
            self.world.broken(Guarantee::R1, || format!("leases overlap: {worker} {record:?}, {other:?}"));
        }
    }
}

impl Clock for Keeper<'_> {
    fn now_ms(&self) -> i64 {
        self.world.meanwhile(self.server);
        self.server.now_ms(self.world.time_ms())
    }
}

impl lease::Server for Keeper<'_> {
    fn layout(&self) -> &Layout {
        &self.fleet.layout
    }

    fn datacenter(&self) -> Option<i64> {
        self.fleet.layout.max_of(Field::Datacenter).map(|_| DATACENTER)
    }

    fn has_backup(&self) -> bool {
        self.fleet.backup
    }

    fn words(&self) -> Words<'_> {
        let Shared { numbers, generator, marks, .. } = self.shared;
        let marks = if self.lies(Lie::TornNumbers) { &[] } else { &marks[..] };
        Words { numbers, generator, marks }
    }

    fn nonce(&self) -> u64 {
        bits(&self.world.random)
    }

    fn report(&self, notice: Notice) {
        self.world.tell(|| format!("  server {} reports {notice:?}", self.server.number));
        self.world.count(match notice {
            Notice::Acquired(_) => "acquired",
            Notice::Entered(_) => "entered",
            Notice::GivenBack(_) => "given back",
            Notice::Adopted(_) => "adopted",
            Notice::Forgot(_) => "forgot",
            Notice::Older(_) => "older",
            Notice::Lost(_) => "lost",
            Notice::Copied(_) => "copied",
            Notice::Overlapped(_) => "overlapped",
            Notice::ClockOff { .. } => "clock off",
            Notice::LengthLimited { .. } => "length limited",
            Notice::SkewLimited { .. } => "skew limited",
        });
        if let Notice::Entered(lease) = notice {
            let mut known = self.fleet.known.borrow_mut();
            known.iter_mut().filter(|known| known.holder == lease.holder).for_each(|known| known.is_entered = true);
            self.shared.entered.set(self.shared.entered.get() + 1);
        }
        if matches!(notice, Notice::Copied(_) | Notice::Overlapped(_)) {
            if !self.shared.was_copied.get() && self.fleet.beyond.is_none() {
                self.world.broken(Guarantee::Alone, || format!("a memory that has no copy stops: {notice:?}"));
            }
            self.shared.memory_ends();
        }
    }
}

impl Registry for Keeper<'_> {
    type Error = NoAnswer;

    fn read(&self, wanted: Wanted) -> Result<Reading, NoAnswer> {
        self.calls.set(self.calls.get() + 1);
        self.is_heard()?;
        let store = self.store().borrow();
        let mut now_ms = self.world.time_ms() + store.offset_ms;
        if self.lies(Lie::NoCap) && wanted != Wanted::All {
            now_ms = now_ms.max(self.server.now_ms(self.world.time_ms()));
        }
        let mut fleet = store.fleet;
        if self.lies(Lie::OwnLength) && fleet.longest_ms > 0 {
            fleet.longest_ms = fleet.longest_ms.max(self.terms.longest_ms(&self.fleet.layout));
        }
        if self.lies(Lie::NoHorizon) {
            fleet.horizon_ms = i64::MIN;
        }
        let mut records = match wanted {
            Wanted::All => store.records.clone(),
            Wanted::Number(worker) => store.records.get(&worker).map(|record| (worker, *record)).into_iter().collect(),
        };
        if self.lies(Lie::FromClock) {
            let clock_ms = self.server.now_ms(self.world.time_ms());
            for record in records.values_mut().filter(|record| record.until_ms <= now_ms) {
                record.until_ms = record.until_ms.min(clock_ms);
            }
        }
        let up_ms = Some(self.world.time_ms() - store.started_ms);
        Ok(Reading { fleet, records, incarnation: store.incarnation, now_ms, up_ms })
    }

    fn swap(&self, swap: &Swap) -> Result<Answer, NoAnswer> {
        self.calls.set(self.calls.get() + 1);
        let (random, fleet) = (&self.world.random, self.fleet);
        let sent = swap;
        let mut swap = *swap;
        self.lie_about(&mut swap);
        self.note_given_back(&swap);
        self.world.message_takes_time(self.server);
        let heard = self.is_heard();
        if !self.world.settles.get() && random.one_in(12) && !self.shared.gone.get() {
            fleet.late.borrow_mut().push(swap);
            self.world.count("late");
            if !self.lies(Lie::LostIsYes) {
                return Err(NoAnswer);
            }
            self.note_change(&swap.change);
            return Ok(Answer::Done(swap.incarnation));
        }
        heard?;
        let number_alone = self.lies(Lie::NumberAlone);
        let compares = self.store().borrow().compares(&swap, number_alone);
        if self.lies(Lie::NotAtomic) {
            self.world.meanwhile(self.server);
        }
        if !compares {
            self.world.tell(|| "  refused".to_owned());
            return Ok(Answer::Refused);
        }
        let answer = self.store().borrow_mut().write(swap.change);
        self.world.tell(|| format!("  written: {:?}", swap.change));
        if !self.world.settles.get() && random.one_in(12) {
            // The standby has not confirmed it.
            self.world.count("answer lost");
            self.world.meanwhile(self.server);
            if !self.lies(Lie::ReadIsYes) {
                return Err(NoAnswer);
            }
            self.note_change(&swap.change);
            return Ok(answer);
        }
        let mut store = self.store().borrow_mut();
        store.synced = store.changes();
        drop(store);
        self.world.meanwhile(self.server);
        if self.shared.gone.get() || !self.world.settles.get() && random.one_in(16) {
            return Err(NoAnswer);
        }
        self.note_change(&swap.change);
        // The lie compares no incarnation, neither before nor after.
        Ok(if number_alone { Answer::Done(sent.incarnation) } else { answer })
    }
}

impl Keeper<'_> {
    /// Changes what is sent, for lies.
    fn lie_about(&self, swap: &mut Swap) {
        let read = self.store().borrow().fleet;
        match &mut swap.change {
            Change::Fleet(new) => {
                if read.longest_ms > 0 {
                    if new.generation != read.generation {
                        new.freeze_ms = new.freeze_ms.saturating_sub(new.longest_ms - read.longest_ms);
                    }
                    new.longest_ms = read.longest_ms;
                }
                if new.generation != read.generation {
                    match self.world.lie {
                        Some(Lie::FreezeOfLength) => new.freeze_ms = new.freeze_ms.saturating_sub(2 * new.skew_ms),
                        Some(Lie::OneSkew) => {
                            new.freeze_ms = new.freeze_ms.saturating_sub(new.skew_ms);
                            new.horizon_ms = new.horizon_ms.saturating_sub(new.skew_ms);
                        }
                        _ => {}
                    }
                }
            }
            Change::Number { worker, record, .. } => {
                let key = (*worker, record.holder, record.from_ms);
                let gives_back = self.fleet.known.borrow().iter().any(|known| {
                    (known.worker, known.holder, known.from_ms) == key && known.until_ms > record.until_ms
                });
                if self.lies(Lie::OneLane) && gives_back {
                    let reached = self.shared.generator.reached_ms(LaneName::Primary, &self.fleet.layout);
                    let end_ms = reached.unwrap_or(record.from_ms) + self.fleet.layout.unit().ms();
                    record.until_ms = end_ms.clamp(record.from_ms, record.until_ms);
                }
            }
        }
    }

    /// Notes that a holder never draws with leases that it has not entered and does not keep.
    fn drop_others(&self, holder: &Holder) {
        let next = holder.next().map(|lease| lease.holder);
        let is_kept = |known: &Known| {
            known.memory != self.shared.memory || known.is_entered || known.is_copied || Some(known.holder) == next
        };
        self.fleet.known.borrow_mut().retain(is_kept);
    }

    /// Notes that a holder draws nothing beyond what it gives back. Only then a record ends before
    /// what its holder has known.
    fn note_given_back(&self, swap: &Swap) {
        let Change::Number { worker, record, .. } = swap.change else { return };
        for known in self.fleet.known.borrow_mut().iter_mut() {
            let is_it = (known.worker, known.holder, known.from_ms) == (worker, record.holder, record.from_ms);
            if is_it && known.until_ms > record.until_ms {
                let reached_ms = self.shared.reached_ms.borrow().get(&worker).copied().unwrap_or(i64::MIN);
                if reached_ms > record.until_ms {
                    self.world
                        .broken(Guarantee::R2, || format!("{known:?} is given back, and was drawn up to {reached_ms}"));
                }
                known.until_ms = record.until_ms;
                // A copy of its memory had the same request on its way.
                known.is_copied |= known.memory != self.shared.memory;
            }
        }
    }
}

impl Shared {
    /// Makes this memory one that has no copy.
    fn memory_ends(&self) {
        self.answers_since_copy.set(2);
    }
}

impl World {
    /// Runs the process that leases the server's number.
    pub fn keep(&self, server: &Rc<Server>) {
        let shared = server.shared();
        let Some(fleet) = self.fleet.as_ref().filter(|_| shared.leases) else { return };
        let keeper = Keeper::new(self, fleet, server, &shared);
        let Ok(mut holder) = shared.holder.try_borrow_mut() else { return };
        if server.is_standby() && !self.settles.get() && self.random.one_in(2) {
            return;
        }
        let before = *holder;
        let kept = holder.keep(&keeper, &keeper, &keeper.terms);
        keeper.drop_others(&holder);
        self.tell(|| format!("server {} keeps: {kept:?}", server.number));
        if shared.gone.get() {
            return;
        }
        match kept {
            Ok(()) => {
                self.count("kept");
                shared.answers_since_copy.set(shared.answers_since_copy.get() + 1);
            }
            Err(lease::Failure::Away(NoAnswer)) => {
                self.count("no answer");
                if self.lies(Lie::LostIsNo) {
                    *holder = before;
                }
            }
            Err(lease::Failure::NoneFree { .. }) => self.count("none free"),
            Err(lease::Failure::Frozen { .. }) => self.count("frozen"),
            Err(lease::Failure::Grace { .. }) => self.count("grace"),
            Err(lease::Failure::ClockOff { .. }) => self.count("clock off"),
            Err(lease::Failure::Contended) => self.count("contended"),
            Err(other) => panic!("{other:?}"),
        }
        if self.lies(Lie::NotFolded) && holder.held().is_some() {
            shared.numbers.extend(NO_END - 1);
        }
    }

    /// Ends the process that leases the number, or the whole server, cleanly.
    pub fn give_back(&self, server: &Rc<Server>) {
        let shared = server.shared();
        let Some(fleet) = self.fleet.as_ref().filter(|_| shared.leases) else { return };
        let keeper = Keeper::new(self, fleet, server, &shared);
        let Ok(mut holder) = shared.holder.try_borrow_mut() else { return };
        let before = *holder;
        let given = holder.give_back(&keeper, &keeper);
        keeper.drop_others(&holder);
        self.tell(|| format!("server {} gives back: {given:?}", server.number));
        self.count("gives back");
        if given.is_err() && self.lies(Lie::LostIsNo) {
            // It takes the lost answer for a no, and goes on.
            *holder = before;
            resume(fleet, &shared, &holder);
        }
    }

    /// A server draws, and gives its number back; another one takes it and draws, at the same
    /// moment.
    pub fn hand_over(&self, server: &Rc<Server>) {
        for _ in 0..self.random.below(5) {
            self.draw(server);
        }
        self.give_back(server);
        self.all_draw(server);
    }

    /// Checks an id for the whole fleet.
    pub fn check_fleet(&self, shared: &Shared, id: i64, worker: Option<u32>, start_ms: i64, end_ms: i64) {
        let Some(fleet) = &self.fleet else { return };
        if !shared.leases {
            fleet.typed.borrow_mut().insert(id);
            if fleet.drawn.borrow().contains_key(&id) {
                self.broken(Guarantee::G3, || format!("{id} was drawn with a leased number, and now with a typed one"));
            }
            return;
        }
        if fleet.typed.borrow().contains(&id) {
            self.broken(Guarantee::G3, || format!("{id} was drawn with a typed number, and now with a leased one"));
        }
        let Some(worker) = worker.map(i64::from) else { return };
        let half = fleet.layout.max_of(Field::Worker).unwrap_or(0).div_ceil(2) as i64;
        let worker = if fleet.backup && worker >= half { worker - half } else { worker };
        let memory = shared.memory;
        let covers = |known: &Known| known.worker == worker && known.from_ms <= start_ms && end_ms <= known.until_ms;
        // One of two copies notices at its next renewal of what both hold. If the registry has
        // forgotten that lease, there is none, and both draw up to its end.
        let is_common = shared.answers_since_copy.get() < 2
            || end_ms <= shared.copied_until_ms.get()
            || fleet.known.borrow().iter().any(|known| known.is_copied && covers(known));
        let may_repeat = shared.was_copied.get() && is_common;
        let drawer = Drawer { memory, may_repeat };
        if let Some(other) = fleet.drawn.borrow_mut().insert(id, drawer) {
            if other.memory != memory && (may_repeat || other.may_repeat) {
                self.count("repeated by a copy of memory");
            } else {
                self.broken(Guarantee::G3, || format!("{id} was drawn before, by {other:?}, and now by {drawer:?}"));
            }
        }
        let mut reached_ms = shared.reached_ms.borrow_mut();
        reached_ms.entry(worker).and_modify(|ms| *ms = end_ms.max(*ms)).or_insert(end_ms);
        let holders = shared.holders.borrow();
        let permits = |known: &Known| {
            let until_ms = if known.is_copied { known.latest_ms } else { known.until_ms };
            known.worker == worker
                && (known.from_ms..=until_ms).contains(&start_ms)
                && end_ms <= until_ms
                && (known.is_copied || holders.contains(&known.holder))
        };
        if !fleet.known.borrow().iter().any(permits) {
            self.broken(Guarantee::R2, || format!("the tick {start_ms}..{end_ms} is in no lease of {worker} here"));
        }
    }

    /// Something happens to the registry.
    pub fn shake(&self, _: &Rc<Server>) {
        let Some(fleet) = &self.fleet else { return };
        type Action = fn(&World, &Registered);
        let actions: [(usize, Action); 8] = [
            (2, Self::fail_over_and_freeze),
            (6, Self::deliver),
            (3, Self::cut_registry_off),
            (3, Self::cut_server_off),
            (4, Self::fail_registry_over),
            (1, Self::restore_registry),
            (1, Self::make_registry_anew),
            (6, Self::change_terms),
        ];
        self.random.weighed(&actions)(self, fleet);
    }

    /// A late message arrives.
    fn deliver(&self, fleet: &Registered) {
        let swap = {
            let mut late = fleet.late.borrow_mut();
            if late.is_empty() || self.time_ms() < fleet.away_until_ms.get() {
                return;
            }
            let at = self.random.below(late.len());
            late.swap_remove(at)
        };
        let mut store = fleet.store.borrow_mut();
        if store.compares(&swap, self.lies(Lie::NumberAlone)) {
            self.tell(|| format!("arrives late, and is written: {swap:?}"));
            store.write(swap.change);
            self.count("written late");
        }
    }

    fn cut_registry_off(&self, fleet: &Registered) {
        let length_ms = fleet.length_ms();
        let away_ms = self.random.pick(&[50, 1000, length_ms / 2, length_ms * 2]);
        self.tell(|| format!("the registry is away for {away_ms} ms"));
        fleet.away_until_ms.set(self.time_ms() + away_ms);
    }

    /// One server does not reach the registry for a while, and draws on.
    fn cut_server_off(&self, fleet: &Registered) {
        let servers = self.leasing();
        if servers.is_empty() {
            return;
        }
        let server = &servers[self.random.below(servers.len())];
        let length_ms = fleet.length_ms();
        let cut_off_ms = self.random.pick(&[length_ms / 2, length_ms, length_ms * 4]);
        self.tell(|| format!("server {} does not reach the registry for {cut_off_ms} ms", server.number));
        self.count("server cut off");
        server.cut_off_until_ms.set(self.time_ms() + cut_off_ms);
    }

    /// Returns how far the clock of another machine of the registry is off.
    fn any_offset(&self, fleet: &Registered) -> i64 {
        let half_ms = fleet.terms.get().skew_ms / 2;
        if self.right_clock { 0 } else { self.random.pick(&[-half_ms, half_ms]) }
    }

    fn fail_registry_over(&self, fleet: &Registered) {
        if !fleet.forgets {
            return;
        }
        let mut store = fleet.store.borrow_mut();
        // An etcd that was restored is noticed by its counts, unless they have grown again before.
        if store.kind == Kind::Etcd && store.incarnation.since(&store.fleet.incarnation) != Since::Same {
            return;
        }
        // Two standbys of one primary, promoted one after the other, get the same timeline. The
        // first one must have had more: a number that it has leased anew, because it lacked a
        // lease, could be renewed in the second.
        let again = fleet.failed.take().filter(|(failed, _)| failed.kind == Kind::Postgres && self.random.one_in(2));
        if again.is_some() {
            self.count("registry fails over twice");
            // What was sent to the first one does not reach the second.
            fleet.late.borrow_mut().clear();
        }
        let (failed, changes) = again.unwrap_or_else(|| (store.clone(), store.changes()));
        let kind = failed.kind;
        let first = if kind == Kind::Synchronous {
            failed.synced
        } else {
            changes.saturating_sub(self.random.below(MOST_LOST))
        };
        let first = first.max(fleet.kept.get());
        let end = if kind == Kind::Etcd { changes } else { self.random.of(first as i64..=changes as i64) as usize };
        let mut next = failed.prefix(end);
        match kind {
            Kind::Etcd => next.incarnation.counts = next.incarnation.counts.map(|count| count + 1),
            _ => next.incarnation.timeline += 1,
        }
        (next.offset_ms, next.started_ms) = (self.any_offset(fleet), self.time_ms());
        self.tell(|| format!("the registry fails over, and loses {} of {changes} changes", changes - end));
        self.count("registry fails over");
        fleet.failed.replace(Some((failed, end)));
        *store = next;
    }

    /// Restores a backup: in the ways that show, and as files, after which an operator begins a
    /// generation.
    fn restore_registry(&self, fleet: &Registered) {
        if !fleet.forgets {
            return;
        }
        let mut store = fleet.store.borrow_mut();
        let changes = store.changes();
        let mut next = store.prefix(self.random.of(1..=changes as i64) as usize);
        (next.offset_ms, next.started_ms) = (self.any_offset(fleet), self.time_ms());
        let silently = matches!(fleet.beyond, Some(Beyond::RestoredSilently | Beyond::RestoredWithGrace));
        // A second restore of etcd shows only if the backup knows that the count has grown since
        // the first, and for PostgreSQL a synchronous standby vouches for the timeline.
        let hides = next.kind == Kind::Synchronous || next.kind == Kind::Etcd && next.fleet.incarnation.counts[1] == 0;
        let begins = hides || self.random.one_in(2);
        if next.kind == Kind::Etcd {
            next.incarnation.counts[1] = 0;
        }
        if !silently {
            // The operator knows to what the limits were raised after the backup was taken.
            let mut known = fleet.with_limits(&next.fleet);
            known.version = bits(&self.random);
            if begins {
                let now_ms = self.time_ms() + next.offset_ms;
                known = known.begin_generation(next.incarnation, now_ms, 0, 0, known.version);
            } else if next.kind != Kind::Etcd {
                next.incarnation.store += 1;
            }
            next.write(Change::Fleet(known));
            next.synced = next.changes();
        }
        self.tell(|| format!("the registry is restored, with {} of {changes} changes", next.changes()));
        self.count("registry is restored");
        fleet.failed.take();
        fleet.kept.set(if silently { 1 } else { next.changes() });
        *store = next;
        drop(store);
        if silently {
            self.timers_fire(fleet);
        }
    }

    /// Lets the time pass in which every server turns to the registry once, in any order.
    fn timers_fire(&self, fleet: &Registered) {
        let mut servers = self.leasing();
        let step_ms = timer_ms(&fleet.terms.get(), &fleet.layout) / (servers.len() as i64 + 1);
        while !servers.is_empty() {
            self.pass(step_ms);
            self.keep(&servers.swap_remove(self.random.below(servers.len())));
        }
    }

    /// The registry is lost, and an operator makes it anew, saying so.
    fn make_registry_anew(&self, fleet: &Registered) {
        if !fleet.forgets || fleet.beyond.is_some() {
            return;
        }
        let mut store = fleet.store.borrow_mut();
        let was = store.fleet;
        let offset_ms = self.any_offset(fleet);
        let incarnation = Incarnation { store: was.incarnation.store + 7, ..store.incarnation };
        let now_ms = self.time_ms() + offset_ms;
        // The operator says how long leases were, which the registry has forgotten, too.
        let new = Fleet { generation: 0, ..fleet.with_limits(&was) };
        let mut new = new.begin_generation(incarnation, now_ms, 0, 0, bits(&self.random));
        if self.lies(Lie::AnewUnfrozen) {
            (new.freeze_ms, new.horizon_ms) = (i64::MIN, i64::MIN);
        }
        self.tell(|| "the registry is made anew".to_owned());
        self.count("registry is made anew");
        fleet.failed.take();
        fleet.kept.set(1);
        *store = Store::new(store.kind, new, offset_ms, self.time_ms());
    }

    /// The operator changes the length of leases: first the fleet's limit, if that is less, and
    /// the settings only when no failover can forget it.
    fn change_terms(&self, fleet: &Registered) {
        let mut store = fleet.store.borrow_mut();
        if fleet.beyond.is_some() || self.time_ms() < fleet.away_until_ms.get() {
            return;
        }
        // The operator first sees to it that all standbys have what the fleet has adopted, which is
        // its second change, and that none of them is left over from before a failover.
        if fleet.failed.borrow().is_some() || store.changes() < 2 {
            fleet.failed.borrow_mut().take_if(|_| self.random.one_in(2));
            return;
        }
        fleet.kept.set(fleet.kept.get().max(2));
        let reload = |terms| {
            self.count("reloaded");
            fleet.before.set(fleet.terms.get());
            fleet.terms.set(terms);
        };
        if let Some((terms, changes)) = fleet.raised.get() {
            if store.fleet.longest_ms < terms.longest_ms(&fleet.layout) {
                self.tell(|| "a failover has forgotten the raise".to_owned());
                self.count("raise forgotten");
                fleet.raised.set(None);
            } else if store.changes() >= changes + MOST_LOST {
                self.tell(|| format!("settings are reloaded: {terms:?}"));
                fleet.kept.set(changes);
                reload(terms);
                fleet.raised.set(None);
            }
            return;
        }
        let terms = Terms { lease_ms: self.random.pick(&[2000, 10_000, 60_000]), ..fleet.terms.get() };
        let longest_ms = terms.longest_ms(&fleet.layout);
        if longest_ms <= store.fleet.longest_ms || self.lies(Lie::OwnLength) {
            return reload(terms);
        }
        self.tell(|| format!("the fleet's limit is raised to {longest_ms} ms"));
        self.count("limit raised");
        let new = Fleet { longest_ms, version: bits(&self.random), ..store.fleet };
        store.write(Change::Fleet(new));
        store.synced = store.changes();
        fleet.longest_ms.set(longest_ms.max(fleet.longest_ms.get()));
        if self.lies(Lie::ReloadsAtOnce) {
            reload(terms);
        } else {
            fleet.raised.set(Some((terms, store.changes())));
        }
        drop(store);
        self.fail_over_and_freeze(fleet);
    }

    /// Some servers renew, and a failover forgets it, perhaps together with a raise of the limit
    /// just before. Some notice, and some acquire what is free when the freeze is over.
    fn fail_over_and_freeze(&self, fleet: &Registered) {
        self.some_keep();
        self.fail_registry_over(fleet);
        self.some_keep();
        // A server that crashes wants another number.
        if let Some(server) = self.leasing().first().filter(|_| !self.is_restoring_any()) {
            self.crash(server);
        }
        let freeze_ms = fleet.store.borrow().fleet.longest_ms + 3 * fleet.terms.get().skew_ms;
        self.pass(self.random.pick(&[0, freeze_ms, freeze_ms]));
        self.some_keep();
    }

    fn some_keep(&self) {
        self.leasing().iter().filter(|_| self.random.one_in(2)).for_each(|server| self.keep(server));
    }

    /// Makes a copy of a running server with its memory, as a virtual machine's snapshot does.
    pub fn copy_memory(&self, original: &Rc<Server>) {
        let shared = original.shared();
        let Some(fleet) = self.fleet.as_ref().filter(|_| shared.leases) else { return };
        if original.is_standby() || self.is_restoring_any() {
            return;
        }
        let Ok(holder) = shared.holder.try_borrow().map(|holder| *holder) else { return };
        let copy = self.clone_server(original);
        let memory = copy.shared();
        memory.holders.borrow_mut().clone_from(&shared.holders.borrow());
        *memory.holder.borrow_mut() = holder;
        for lease in [holder.held(), holder.next()].into_iter().flatten() {
            let mut known = fleet.known.borrow_mut();
            known.iter_mut().filter(|known| known.holder == lease.holder).for_each(|known| known.is_copied = true);
        }
        for of in [&shared, &memory] {
            of.was_copied.set(true);
            of.answers_since_copy.set(0);
            of.copied_until_ms.set(holder.held().map_or(i64::MIN, |held| held.until_ms));
        }
        for lane in LaneName::ALL {
            if let Some(start_ms) = shared.generator.reached_ms(lane, &fleet.layout) {
                // The words cannot be copied, so the copy begins in the next tick.
                memory.generator.raise(lane, &fleet.layout, start_ms + fleet.layout.unit().ms());
            }
        }
        if shared.numbers.read(&fleet.layout).is_some() {
            resume(fleet, &memory, &holder);
        }
        self.count("memory copied");
        self.tell(|| format!("server {} is copied with its memory, as server {}", original.number, copy.number));
    }

    /// For the lie that a holder survives a crash.
    pub fn survive(&self, before: &Shared, after: &Shared, now_ms: i64) {
        let Some(fleet) = self.fleet.as_ref().filter(|_| before.leases && after.leases) else { return };
        let Ok(holder) = before.holder.try_borrow().map(|holder| *holder) else { return };
        *after.holder.borrow_mut() = holder;
        after.generator.follow(&fleet.layout, now_ms, self.max_borrow_ms);
        resume(fleet, after, &holder);
    }

    /// Where leases overlap, sets the clocks of both servers to an instant there, and draws.
    pub fn hunt(&self) {
        let Some(fleet) = &self.fleet else { return };
        for (memories, from_ms, until_ms) in fleet.overlaps.take() {
            let servers: Vec<_> =
                self.leasing().into_iter().filter(|server| memories.contains(&server.shared().memory)).collect();
            for at_ms in [from_ms, from_ms.midpoint(until_ms), until_ms - 1] {
                for server in servers.iter().filter(|server| servers.len() == 2 && !server.is_standby()) {
                    server.stands_at_ms.set(Some(at_ms));
                    (0..4).for_each(|_| self.draw(server));
                }
            }
        }
    }

    /// With right clocks and a registry that answers, every server has a number after a freeze, and
    /// draws.
    pub fn settle(&self) {
        let Some(fleet) = self.fleet.as_ref().filter(|_| self.right_clock && self.lie.is_none()) else { return };
        self.settles.set(true);
        fleet.late.borrow_mut().clear();
        let terms = fleet.terms.get();
        let longest_ms = terms.longest_ms(&fleet.layout).max(fleet.store.borrow().fleet.longest_ms);
        // A generation may begin only now, and dead holders keep their numbers until their ends.
        self.pass(fleet.away_until_ms.get().saturating_sub(self.time_ms()).max(0));
        let servers = self.leasing();
        // Twice: a copy of a memory may be found out only by the second call, and begin a
        // generation.
        for server in servers.iter().chain(&servers) {
            self.keep(server);
        }
        self.pass(longest_ms * 2 + 4 * terms.skew_ms + 1000);
        let free = (fleet.range.1 - fleet.range.0 + 1) as usize;
        for server in servers.iter().take(free) {
            let shared = server.shared();
            let keeper = Keeper::new(self, fleet, server, &shared);
            let mut holder = shared.holder.borrow_mut();
            let kept = holder.keep(&keeper, &keeper, &keeper.terms);
            if kept.is_err() || keeper.calls.get() > MOST_CALLS || holder.held().is_none() {
                self.broken(Guarantee::Live, || {
                    format!("after {} calls, server {} keeps {kept:?}", keeper.calls.get(), server.number)
                });
            }
        }
        for server in servers.iter().take(free).filter(|server| !server.is_standby()) {
            self.count("settled");
            self.draw(server);
        }
    }
}

/// The most calls of the registry that a server with a right clock needs: to look at what it held,
/// to note what the registry has forgotten or another length, and to look for a number and lease
/// it.
const MOST_CALLS: u32 = 8;

/// The longest time between two renewals, and a fifth more.
fn timer_ms(terms: &Terms, layout: &Layout) -> i64 {
    Holder::new(0).interval_ms(terms, layout) * 6 / 5
}

/// Draws with what the holder holds.
fn resume(fleet: &Registered, shared: &Shared, holder: &Holder) {
    let Some(held) = holder.held() else { return };
    let datacenter = fleet.layout.max_of(Field::Datacenter).map(|_| DATACENTER);
    let identity = Identity::new(&fleet.layout, Some(held.worker), datacenter, fleet.backup).unwrap();
    let span = Span { identity, from_ms: held.from_ms, until_ms: held.until_ms };
    shared.numbers.enter(&shared.marks, &shared.generator, &fleet.layout, &span);
}
