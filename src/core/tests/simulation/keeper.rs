//! The process of one server that leases its number and reserves values of tags, with its
//! connection to the registry: what gets lost on the way, what is sent wrongly for a lie, and the
//! ledger of what each holder knows.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use snowflake_core::draw::generator::Generator;
use snowflake_core::fleet::lease::{Holder, LeaseNotice, LeaseTerms, SharedWords};
use snowflake_core::fleet::membership::FleetNotice;
use snowflake_core::fleet::registry::{
    NumberKey, NumberRecord, Reading, RecordChange, SinceIncarnation, Swap, SwapAnswer, Wanted, WantedNumbers,
};
use snowflake_core::fleet::segment::Claimed;
use snowflake_core::id::identity::LaneName;
use snowflake_core::id::layout::{Field, Layout};

use crate::fleet::{Known, Registered};
use crate::kit::registry::Store;
use crate::kit::server::{Notice, Places, Process};
use crate::promises::{Guarantee, Lie};
use crate::server::{DATACENTER, Server, Shared};
use crate::swarm::Chance;
use crate::tags::{Late, Message, TagsRead};
use crate::world::World;

/// Why the registry has not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoAnswer;

/// For a process that waits for no clock.
const ALL_IS_NEAR: LeaseTerms = LeaseTerms { max_borrow_ms: i64::MAX / 4 };

/// The process of one server, with its connection to the registry.
pub struct Keeper<'a> {
    pub world: &'a World,
    pub fleet: &'a Registered,
    pub server: &'a Rc<Server>,
    pub shared: &'a Rc<Shared>,
    /// The server's settings.
    pub terms: LeaseTerms,
    /// How often the registry was called.
    pub calls: Cell<u32>,
    /// The holder as the process has kept it last, if it has, and whether the process has ended.
    kept: Cell<Option<Holder>>,
    has_ended: Cell<bool>,
    /// Whether it gives back, and what its page has to hold, for lies.
    pub gives_back: Cell<bool>,
    unwritten: Cell<Option<Holder>>,
    /// What it has read of tags.
    pub tags_read: RefCell<TagsRead>,
    /// The nonces of what was written of tags by the last swap, if it was answered.
    answered: RefCell<Vec<u64>>,
    /// Lanes that no session draws from, for the lie that the others stay in the last id's tick.
    others: Generator,
}

impl<'a> Keeper<'a> {
    pub fn new(world: &'a World, fleet: &'a Registered, server: &'a Rc<Server>, shared: &'a Rc<Shared>) -> Self {
        Self {
            world,
            fleet,
            server,
            shared,
            terms: if world.lies(Lie::EntersEarly) { ALL_IS_NEAR } else { fleet.terms },
            gives_back: Cell::new(false),
            unwritten: Cell::new(None),
            calls: Cell::new(0),
            kept: Cell::new(None),
            has_ended: Cell::new(false),
            tags_read: RefCell::default(),
            answered: RefCell::default(),
            others: Generator::new(),
        }
    }

    /// Whether the call reaches the registry, and the answer the caller.
    pub fn is_heard(&self) -> Result<(), NoAnswer> {
        self.world.meanwhile(self.server);
        let away_until_ms = self.fleet.away_until_ms.get().max(self.server.cut_off_until_ms.get());
        let is_sealed = self.fleet.operators.is_sealed() && !self.shared.elsewhere;
        let is_away = (self.world.time_ms() < away_until_ms || is_sealed) && !self.world.settles.get();
        let is_lost = self.world.fails(Chance::CallLost, 16);
        if self.shared.gone.get() || is_away || is_lost { Err(NoAnswer) } else { Ok(()) }
    }

    /// Returns the registry that this call reaches.
    pub fn store(&self) -> &RefCell<Store> {
        self.fleet.store_of(self.shared)
    }

    /// Whether the process goes on, which may end before and after any call.
    fn lives(&self) -> Result<(), NoAnswer> {
        self.world.write_off_gone(self.shared);
        let answered = self.answered.take();
        let ends = self.world.fails(Chance::ProcessEnds, 100);
        if ends && !self.has_ended.replace(true) {
            // What the process was told last, it has not noted yet.
            answered.into_iter().for_each(|nonce| self.fleet.tags.ledger.borrow_mut().lose(nonce));
        }
        if self.has_ended.get() { Err(NoAnswer) } else { Ok(()) }
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// Leaves to the next process what a turn's process has kept. Returns whether that has ended.
    pub fn leaves(&self, holder: &mut Holder, before: Holder, is_away: bool) -> bool {
        let kept = self.kept.get().unwrap_or(before);
        if self.has_ended.get() {
            *holder = kept;
        } else if is_away {
            assert_eq!(*holder, kept, "something is changed after a call without an answer");
        }
        self.has_ended.get()
    }

    pub fn lies(&self, lie: Lie) -> bool {
        self.world.lies(lie)
    }

    /// Notes what the process takes for written, and checks it.
    fn note_changes(&self, message: &Message) {
        self.world.had(message);
        for change in &message.swap.changes {
            if let RecordChange::Number { number, record, .. } = change {
                self.note(number.worker, record);
            }
        }
    }

    /// Notes a lease that the holder takes for written, and checks that no other holder knows of
    /// one that overlaps.
    pub fn note(&self, worker: i64, record: &NumberRecord) {
        let NumberRecord { from_ms, until_ms, holder, .. } = *record;
        let Shared { memory, elsewhere, .. } = **self.shared;
        self.shared.holders.borrow_mut().insert(holder);
        let mut known = self.fleet.known.borrow_mut();
        match known.iter_mut().find(|known| (known.worker, known.holder, known.from_ms) == (worker, holder, from_ms)) {
            Some(known) => {
                // A process that ends may note late a lease that the next life has prolonged.
                let is_late = self.server.is_orphan.get() || self.shared.gone.get();
                known.until_ms = if is_late { until_ms.max(known.until_ms) } else { until_ms };
                known.latest_ms = known.latest_ms.max(until_ms);
                // Both have proposed it when the memory was copied.
                known.is_copied |= known.memory != memory;
            }
            None => {
                let (is_entered, is_copied, latest_ms) = (false, false, until_ms);
                known.push(Known {
                    worker,
                    holder,
                    from_ms,
                    until_ms,
                    latest_ms,
                    memory,
                    elsewhere,
                    is_entered,
                    is_copied,
                });
            }
        }
        let is_copied = known.iter().any(|known| known.holder == holder && known.is_copied);
        let overlaps = |known: &&Known| {
            known.worker == worker
                && known.elsewhere == elsewhere
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

impl Process for Keeper<'_> {
    type NoAnswer = NoAnswer;

    fn layout(&self) -> &Layout {
        &self.fleet.layout
    }

    fn datacenter(&self) -> Option<i64> {
        self.fleet.layout.max_of(Field::Datacenter).map(|_| DATACENTER)
    }

    fn has_backup(&self) -> bool {
        self.fleet.backup
    }

    fn now_ms(&self) -> i64 {
        // A block counts as had when its answer has arrived, and no crash comes before it is noted.
        if !self.world.has_tags {
            self.world.meanwhile(self.server);
        }
        self.server.now_ms(self.world.time_ms())
    }

    fn nonce(&self) -> u64 {
        self.world.random.bits()
    }

    fn words(&self) -> SharedWords<'_> {
        let Shared { numbers, generator, marks, .. } = &**self.shared;
        let marks = if self.lies(Lie::TornNumbers) { &[] } else { &marks[..] };
        // What is given back still ends where the lanes are.
        let enters = numbers.read(&self.fleet.layout).is_none();
        let generator = if self.lies(Lie::SameTick) && enters { &self.others } else { generator };
        SharedWords { numbers, generator, marks }
    }

    fn saves(&self, holder: &Holder) -> Result<(), NoAnswer> {
        self.lives()?;
        self.kept.set(Some(*holder));
        let written = match self.world.lie {
            // What was to be written before the call is written before the next one.
            Some(Lie::CallsFirst) => self.unwritten.replace(Some(*holder)),
            Some(Lie::OlderHolder) if !self.world.random.one_in(4) => None,
            Some(Lie::ReturnsUnnoted) if self.gives_back.get() => None,
            _ => Some(*holder),
        };
        if written.is_some_and(|holder| !self.world.notes_in_page(self.server, self.shared, &holder)) {
            return Err(NoAnswer);
        }
        self.lives()
    }

    fn report(&self, notice: Notice) -> Result<(), NoAnswer> {
        match notice {
            Notice::Fleet(notice) => self.report_fleet(notice),
            Notice::Lease(notice) => self.report_lease(notice),
            Notice::Supply(notice) => {
                self.lives()?;
                self.report_supply(notice);
                self.lives()
            }
        }
    }

    fn tags(&self) -> &Places {
        &self.shared.tags().places
    }

    fn claimed(&self) -> Vec<Claimed> {
        self.claimed_tags()
    }

    fn read(&self, wanted: &Wanted) -> Result<Reading, NoAnswer> {
        self.calls.set(self.calls.get() + 1);
        self.lives()?;
        if self.lies(Lie::Wasted) {
            (0..3).for_each(|_| self.waste(wanted));
        }
        self.is_heard()?;
        let mut reading = self.store().borrow().read(wanted, self.world.time_ms());
        if self.lies(Lie::NoCap) && matches!(wanted.numbers, WantedNumbers::One(_)) {
            reading.now_ms = reading.now_ms.max(self.server.now_ms(self.world.time_ms()));
        }
        let Reading { fleet, numbers, now_ms, .. } = &mut reading;
        if self.lies(Lie::BeyondLimit) && fleet.longest_ms > 0 {
            fleet.longest_ms = fleet.longest_ms.max(fleet.lease_ms);
        }
        if self.lies(Lie::BorrowLengthens) && fleet.longest_ms > 0 {
            fleet.lease_ms = fleet.used_lease_ms().max(self.terms.least_ms(&self.fleet.layout));
        }
        if self.lies(Lie::NoHorizon) {
            fleet.horizon_ms = i64::MIN;
        }
        if self.lies(Lie::FromClock) {
            let clock_ms = self.server.now_ms(self.world.time_ms());
            for record in numbers.values_mut().filter(|record| record.until_ms <= *now_ms) {
                record.until_ms = record.until_ms.min(clock_ms);
            }
        }
        self.read_tags(&mut reading);
        self.lives().map(|()| reading)
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, NoAnswer> {
        self.calls.set(self.calls.get() + 1);
        self.lives()?;
        let (fleet, sent) = (self.fleet, swap);
        let mut message = self.message(swap);
        self.lie_about(&mut message.swap);
        self.prove(&message.swap)?;
        self.note_given_back(&message.swap);
        self.sends(&message);
        let cuts = self.fleet.operators.cuts.get();
        self.world.message_takes_time(self.server);
        let heard = self.is_heard();
        if cuts != self.fleet.operators.cuts.get() {
            return Err(NoAnswer);
        }
        let is_late = self.world.fails(Chance::Late, 12);
        if is_late && !self.shared.gone.get() && !self.shared.elsewhere {
            self.world.count("late");
            if self.lies(Lie::LostIsYes) {
                self.world.give(&message);
                self.note_changes(&message);
            }
            fleet.late.borrow_mut().push(Late::Server(message));
            return if self.lies(Lie::LostIsYes) { Ok(SwapAnswer::Done(sent.incarnation)) } else { Err(NoAnswer) };
        }
        heard?;
        // It may arrive once more.
        if message.gives_back() && self.world.random.one_in(4) {
            fleet.late.borrow_mut().push(Late::Server(message.clone()));
        }
        let answer = self.world.arrive(&message);
        if answer == SwapAnswer::Refused {
            return Ok(answer);
        }
        if self.world.fails(Chance::NotConfirmed, 12) {
            // The standby has not confirmed it.
            self.world.count("answer lost");
            self.world.meanwhile(self.server);
            if !self.lies(Lie::ReadIsYes) {
                return Err(NoAnswer);
            }
            self.note_changes(&message);
            return Ok(answer);
        }
        if !self.lies(Lie::NotDurable) {
            self.store().borrow_mut().sync();
        }
        self.world.meanwhile(self.server);
        if self.shared.gone.get() || self.world.fails(Chance::AnswerLost, 16) {
            return Err(NoAnswer);
        }
        let is_any = self.world.compares_records_alone() || self.lies(Lie::AnyIncarnation);
        let answer = if is_any { SwapAnswer::Done(sent.incarnation) } else { answer };
        // What is written into a store that has forgotten something since is neither a lease nor a
        // block.
        if matches!(answer, SwapAnswer::Done(after) if after.since(&sent.incarnation) == SinceIncarnation::Same) {
            self.note_changes(&message);
            self.answered.replace(message.nonces());
        }
        self.lives().map(|()| answer)
    }
}

impl Keeper<'_> {
    fn report_fleet(&self, notice: FleetNotice) -> Result<(), NoAnswer> {
        self.lives()?;
        let Keeper { world, server, .. } = self;
        world.tell(|| format!("    server {} reports: {}", server.number, world.words.fleet_notice(&notice)));
        world.count(match notice {
            FleetNotice::Adopted(_) => "adopted",
            FleetNotice::Forgot(_) => "forgot",
        });
        self.lives()
    }

    fn report_lease(&self, notice: LeaseNotice) -> Result<(), NoAnswer> {
        self.world.tell(|| format!("    server {} reports: {}", self.server.number, self.world.words.notice(&notice)));
        self.world.count(match notice {
            LeaseNotice::Acquired(_) => "acquired",
            LeaseNotice::Entered(_) => "entered",
            LeaseNotice::GivenBack(_) => "given back",
            LeaseNotice::Older(_) => "older",
            LeaseNotice::Lost(_) => "lost",
            LeaseNotice::Copied(_) => "copied",
            LeaseNotice::Overlapped(_) => "overlapped",
            LeaseNotice::ClockOff { .. } => "clock off",
        });
        if let LeaseNotice::Entered(lease) = notice {
            let mut known = self.fleet.known.borrow_mut();
            known.iter_mut().filter(|known| known.holder == lease.holder).for_each(|known| known.is_entered = true);
        }
        if let LeaseNotice::Copied(lease) | LeaseNotice::Overlapped(lease) = notice {
            let number = NumberKey::new(self.datacenter(), lease.worker);
            let store = self.store().borrow();
            let is_back = |record: &NumberRecord| store.dropped.borrow().contains(&record.holder);
            let is_excused = store.numbers.get(&number).is_some_and(is_back)
                || self.shared.was_copied.get()
                || self.fleet.has_more.get()
                || self.overlaps_a_copy(&notice);
            if !is_excused && self.fleet.beyond.is_none() {
                self.world.broken(Guarantee::Alone, || format!("a memory that has no copy stops: {notice:?}"));
            }
            self.shared.memory_ends();
        }
        Ok(())
    }

    /// Proves to the registry that the records are the holder's own.
    fn prove(&self, swap: &Swap) -> Result<(), NoAnswer> {
        for change in &swap.changes {
            let RecordChange::Number { record, .. } = change else { continue };
            let (own, mut secrets) = (self.shared.secret.get(), self.fleet.secrets.borrow_mut());
            if *secrets.entry(record.holder).or_insert(own) != own {
                self.world.broken(Guarantee::Alone, || format!("the holder is not known any more: {record:?}"));
                return Err(NoAnswer);
            }
        }
        Ok(())
    }

    /// Changes what is sent, for lies.
    fn lie_about(&self, swap: &mut Swap) {
        let read = self.store().borrow().fleet;
        for change in &mut swap.changes {
            match change {
                RecordChange::Fleet(new) => {
                    if read.longest_ms > 0 {
                        if new.generation != read.generation {
                            new.freeze_ms = new.freeze_ms.saturating_sub(new.longest_ms - read.longest_ms);
                        }
                        new.longest_ms = read.longest_ms;
                    } else if self.lies(Lie::BringsOther) {
                        let other_ms = self.world.random.pick(&[12_000, 600_000]);
                        if new.generation != read.generation {
                            new.freeze_ms = new.freeze_ms.saturating_sub(new.longest_ms - other_ms);
                        }
                        new.longest_ms = other_ms;
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
                RecordChange::Number { number, record, .. } => {
                    let key = (number.worker, record.holder, record.from_ms);
                    let gives_back = self.fleet.known.borrow().iter().any(|known| {
                        (known.worker, known.holder, known.from_ms) == key && known.until_ms > record.until_ms
                    });
                    if self.lies(Lie::OneLane) && gives_back {
                        let reached = self.shared.generator.reached_ms(LaneName::Primary, &self.fleet.layout);
                        let end_ms = reached.unwrap_or(record.from_ms) + self.fleet.layout.unit().ms();
                        record.until_ms = end_ms.clamp(record.from_ms, record.until_ms);
                    }
                }
                RecordChange::DropNumber { .. } | RecordChange::Tag { .. } => {}
            }
        }
    }

    /// Whether a notice is about a lease that another memory's overlaps, which was copied: what one
    /// of two copies gives back, the other still holds, and renews if the registry has forgotten
    /// that.
    fn overlaps_a_copy(&self, notice: &LeaseNotice) -> bool {
        let LeaseNotice::Overlapped(lease) = notice else { return false };
        let overlaps = |known: &Known| {
            (known.worker, known.elsewhere) == (lease.worker, self.shared.elsewhere)
                && known.is_copied
                && known.memory != self.shared.memory
                && known.from_ms < lease.until_ms
                && lease.from_ms < known.latest_ms
        };
        self.fleet.known.borrow().iter().any(overlaps)
    }

    /// Notes that a holder never draws with leases that it has not entered and does not keep.
    pub fn drop_others(&self, holder: &Holder) {
        // The next life, whose memory counts as the same, may have acquired them. And where a
        // process ends while it enters what was kept, what comes after that is not shown.
        let goes_on = self.shared.gone.get() && self.server.shared().memory == self.shared.memory;
        let keeps_all = goes_on || self.server.is_orphan.get() || self.has_ended();
        let [held, next] =
            [holder.held().or(holder.kept()), holder.next()].map(|lease| lease.map(|lease| lease.holder));
        let is_kept = |known: &mut Known| {
            // A process may end before it reports that a lease was entered.
            known.is_entered |= Some(known.holder) == held;
            let is_shown = known.is_entered || known.is_copied || Some(known.holder) == next;
            keeps_all || known.memory != self.shared.memory || is_shown
        };
        self.fleet.known.borrow_mut().retain_mut(is_kept);
    }

    /// Notes that a holder draws nothing beyond what it gives back. Only then a record ends before
    /// what its holder has known.
    pub fn note_given_back(&self, swap: &Swap) {
        for change in &swap.changes {
            let RecordChange::Number { number, record, .. } = change else { continue };
            let reached = || self.shared.reached_ms.borrow().get(&number.worker).copied();
            for known in self.fleet.known.borrow_mut().iter_mut() {
                let is_it =
                    (known.worker, known.holder, known.from_ms) == (number.worker, record.holder, record.from_ms);
                if is_it && known.until_ms > record.until_ms {
                    let reached_ms = reached().unwrap_or(i64::MIN);
                    if reached_ms > record.until_ms {
                        let what = || format!("{known:?} is given back, and was drawn up to {reached_ms}");
                        self.world.broken(Guarantee::R2, what);
                    }
                    known.until_ms = record.until_ms;
                    // A copy of its memory had the same request on its way.
                    known.is_copied |= known.memory != self.shared.memory;
                }
            }
        }
    }
}

impl Shared {
    /// Makes this memory one that has no copy.
    pub fn memory_ends(&self) {
        self.answers_since_copy.set(2);
    }
}
