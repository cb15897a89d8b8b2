//! The way from a server to the registry. Other servers and sessions go on during a call. A call
//! may never arrive, arrive late, or lose its answer. For a lie, what is read or sent is changed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use snowflake_core::layout::Layout;
use snowflake_core::lease::{LeaseNotice, LeaseTerms};
use snowflake_core::membership::FleetNotice;
use snowflake_core::registry::{Change, Reading, SinceIncarnation, Swap, SwapAnswer, TagRecord, Wanted, WantedTags};
use snowflake_core::segment::{Ask, Block, Claimed, Grant, JUMP, State, SupplyNotice};
use snowflake_core::tag::Tag;

use super::ledger::{Fate, Given};
use super::world::{Life, World};
use crate::kit::registry::Kind;
use crate::kit::server::{Memory, Notice, Process};
use crate::promises::{Guarantee, Lie};
use crate::swarm::Chance;

/// What may happen to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Through,
    AnswerLost,
    Late,
    Lost,
}

/// A message to the registry.
#[derive(Debug, Clone)]
pub struct Message {
    life: Rc<Life>,
    swap: Swap,
    /// The fleet's generation and the tags, as the server has read them.
    generation: u64,
    read: BTreeMap<Tag, TagRecord>,
}

/// What a change of a tag's record means.
enum Meaning {
    Reserved(Block),
    /// Values from this one on are given back.
    GivenBack(i64),
    /// The next value is raised, so that an operator cannot set less.
    Told,
}

impl Message {
    /// Returns what the swap writes of tags, with what was read of them, and what it means.
    fn tags(&self) -> impl Iterator<Item = (Tag, TagRecord, TagRecord, Meaning)> {
        self.swap.changes.iter().filter_map(|change| match change {
            Change::Tag { tag, record: Some(new), .. } => {
                let read = self.read.get(tag)?;
                Some((*tag, *read, *new, self.meaning(read, new)))
            }
            _ => None,
        })
    }

    fn meaning(&self, read: &TagRecord, new: &TagRecord) -> Meaning {
        if new.next < read.next {
            return Meaning::GivenBack(new.next);
        }
        if new.generation < self.generation {
            return Meaning::Told;
        }
        // Unless the block follows one of the server's own, its first value is the first that can
        // be given back.
        let first = read.next.max(new.returnable);
        Meaning::Reserved(Block { first, count: (new.next - first) as u32 })
    }

    fn gives_back(&self) -> bool {
        self.tags().any(|(.., meaning)| matches!(meaning, Meaning::GivenBack(_)))
    }
}

/// There is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoAnswer;

pub struct Link<'a> {
    pub world: &'a World,
    pub life: &'a Rc<Life>,
    /// The tags as they were when the registry was read last, and what the server has read.
    read: RefCell<Option<(BTreeMap<Tag, TagRecord>, Reading)>>,
    /// The tags of which an operator had said by then where they go on.
    going_on: RefCell<BTreeSet<Tag>>,
    /// The nonces of what was written by the last swap, if it was answered.
    answered: RefCell<Vec<u64>>,
    /// Whether the worker may end at a call, and whether it has.
    may_end: bool,
    has_ended: Cell<bool>,
}

impl<'a> Link<'a> {
    /// Makes the connection of a worker, which may end at a call if `may_end` says so.
    pub fn new(world: &'a World, life: &'a Rc<Life>, may_end: bool) -> Self {
        let (read, going_on, answered) = Default::default();
        Self { world, life, read, going_on, answered, may_end, has_ended: Cell::new(false) }
    }

    /// Whether the worker goes on, which may end before and after any call.
    fn lives(&self) -> Result<(), NoAnswer> {
        let Self { world, life, .. } = self;
        world.write_off_gone(life);
        let answered = self.answered.take();
        let ends = self.may_end && !world.settles.get() && world.happens(Chance::ProcessEnds, 100);
        if ends && !self.has_ended.replace(true) {
            world.count("process ends");
            // What the process was told last, it has not noted yet.
            answered.into_iter().for_each(|nonce| world.ledger.borrow_mut().lose(nonce));
        }
        if self.has_ended.get() { Err(NoAnswer) } else { Ok(()) }
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// Something happens while the message is under way.
    fn way(&self) -> Result<Way, NoAnswer> {
        let Self { world, life, .. } = self;
        world.meanwhile();
        let is_cut_off = world.time_ms() < world.away_until_ms.get().max(life.cut_off_until_ms.get());
        if life.is_over.get() || is_cut_off || world.operators.is_sealed() {
            world.count("no answer");
            return Err(NoAnswer);
        }
        Ok(world.any_way())
    }

    fn answer_lost<T>(&self) -> Result<T, NoAnswer> {
        self.world.count("answer lost");
        Err(NoAnswer)
    }

    /// Changes what is read of a tag, for lies.
    fn lie_about(&self, tag: Tag, record: &mut TagRecord, generation: u64) {
        let Self { world, life, .. } = self;
        let Some(lie) = world.lie else { return };
        let claimed = || life.memory.claimed().into_iter().find(|claimed| claimed.tag == tag);
        let jump_by = |values: i64, record: &mut TagRecord| {
            if record.generation < generation && record.jumps {
                let due = (generation - record.generation) as i64;
                record.next = record.next.saturating_add(values.saturating_mul(due));
                record.generation = generation;
            }
        };
        match lie {
            Lie::NoJumps => record.generation = generation,
            Lie::OneJump if record.generation < generation => record.generation = generation - 1,
            Lie::ShortJump => jump_by(record.steps.0.into(), record),
            Lie::TenSteps => jump_by(10 * i64::from(record.steps.1), record),
            Lie::JumpsByStep => jump_by(1000 * i64::from(record.steps.1), record),
            Lie::NoId => record.id = life.ids.borrow().get(&tag).copied().unwrap_or(record.id),
            Lie::WishLowers => {
                let least = claimed().map_or(i64::MIN, |claimed| claimed.least);
                record.next = record.next.min(if least > i64::MIN { least } else { i64::MAX });
            }
            Lie::AnyStep => record.steps = (1, 1_000_000),
            Lie::AnyReturn => record.nonce = world.ledger.borrow().last(life.number, record.id).unwrap_or(record.nonce),
            _ => {}
        }
    }

    /// Reserves blocks and keeps none of them, for a lie.
    fn waste(&self, wanted: &Wanted) {
        let (world, WantedTags::Named(tags)) = (self.world, &wanted.tags) else { return };
        for tag in tags {
            let store = world.store.borrow();
            let Some(record) = store.tags.get(tag).copied() else { continue };
            let (id, generation, nonce) = (Some(record.id), store.fleet.generation, world.random.bits());
            let (above, least) = (i64::MIN, i64::MIN);
            let ask = Ask { tag: *tag, id, step: Some(1), above, least, generation, was: None, nonce };
            let (grant, new) = record.answer(&ask, &store.fleet, world.time_ms());
            drop(store);
            if let (Grant::Block { block, .. }, Some(new)) = (grant, new) {
                world.give(self.life, *tag, &new, block, Fate::Had);
                let change = Change::Tag { tag: *tag, was: Some(record.nonce), record: Some(new) };
                world.store.borrow_mut().write(vec![change]);
            }
        }
    }

    /// For the lie that nothing was taken out: sessions draw what is given back.
    fn put_back(&self, message: &Message) {
        for (tag, read, _, meaning) in message.tags() {
            let Meaning::GivenBack(first) = meaning else { continue };
            let at = self.claimed().into_iter().find(|claimed| claimed.tag == tag);
            let Some(place) = at.map(|at| &self.life.memory.places[at.place]) else { continue };
            let count = read.next.saturating_sub(first) as u32;
            if let Some(room) = place.room().filter(|_| count > 0) {
                place.fill(room, Block { first, count });
                self.world.draw(self.life, tag, 2);
            }
        }
    }

    /// The answer arrives: what is written is durable.
    fn is_answered(&self, message: &Message) {
        self.answered.replace(message.tags().map(|(_, _, new, _)| new.nonce).collect());
        let mut store = self.world.store.borrow_mut();
        if store.kind == Kind::Synchronous && !self.world.lies(Lie::NotDurable) {
            store.synced = store.changes();
        }
    }
}

impl World {
    /// A server's swap arrives.
    pub fn arrive(&self, message: &Message, fate: Fate) -> SwapAnswer {
        let mut swap = message.swap.clone();
        for change in &mut swap.changes {
            match change {
                Change::Fleet(fleet) if self.lies(Lie::NoTimelines) => {
                    fleet.generation = fleet.generation.min(self.store.borrow().fleet.generation + 1);
                }
                Change::Tag { tag, was, record: Some(new) } => {
                    let now = self.store.borrow().tags.get(tag).copied();
                    let Some((read, now)) = message.read.get(tag).zip(now) else { continue };
                    let is_as_compared = match self.lie {
                        Some(Lie::ComparedByValue) => now.next == read.next,
                        Some(Lie::NotComparedAtAll) => true,
                        _ => false,
                    };
                    if is_as_compared && matches!(message.meaning(read, new), Meaning::GivenBack(_)) {
                        *was = Some(now.nonce);
                    }
                }
                _ => {}
            }
        }
        let compares = self.store.borrow().compares(&swap, self.lies(Lie::NotCompared));
        if self.lies(Lie::NotAtomic) {
            self.meanwhile();
        }
        if !compares {
            return SwapAnswer::Refused;
        }
        self.tell(|| format!("  life {} writes {:?}", message.life.number, swap.changes));
        let mut far = Vec::new();
        for (tag, read, new, meaning) in message.tags() {
            match meaning {
                Meaning::Reserved(block) => {
                    let raised = block.first.saturating_sub(read.next_in(&self.store.borrow().fleet));
                    far.extend((read.jumps && raised > JUMP).then_some(new.nonce));
                    self.give(&message.life, tag, &new, block, fate);
                }
                Meaning::GivenBack(first) => {
                    self.ledger.borrow_mut().take_back(message.life.number, new.id, read.nonce, first);
                }
                Meaning::Told => {}
            }
        }
        let answer = self.store.borrow_mut().write(swap.changes);
        if !far.is_empty() {
            // No jump covers a wish that raises a tag by more than the jump. An operator looks
            // after it, as the page says: no failover forgets it, and a restore that forgets it is
            // like one that forgets another restore.
            far.into_iter().for_each(|nonce| self.begin_restored(nonce));
            self.keep_all();
            self.note_restores();
        }
        answer
    }

    /// Notes a block that is reserved for a server.
    fn give(&self, life: &Rc<Life>, tag: Tag, record: &TagRecord, block: Block, fate: Fate) {
        let TagRecord { id, nonce, generation, .. } = *record;
        let given = Given { life: life.number, id, block, generation, restores: self.restores.get(), nonce, fate };
        self.check(self.ledger.borrow_mut().give(given));
        self.check_raised(id, block);
        if fate == Fate::Had {
            life.ids.borrow_mut().insert(tag, id);
        }
        if block.count > record.steps.1 {
            self.broken(Guarantee::Steps, || format!("{block:?} of {tag}"));
        }
    }
}

impl Process for Link<'_> {
    type NoAnswer = NoAnswer;

    fn memory(&self) -> &Memory {
        &self.life.memory
    }

    fn layout(&self) -> &Layout {
        &self.world.layout
    }

    fn now_ms(&self) -> i64 {
        self.world.time_ms()
    }

    fn nonce(&self) -> u64 {
        self.world.random.bits()
    }

    fn claimed(&self) -> Vec<Claimed> {
        let mut claimed = self.life.memory.claimed();
        if self.world.lies(Lie::NeverAgain) {
            claimed.retain(|claimed| self.life.memory.places[claimed.place].state() != State::NoJump);
        }
        if self.world.lies(Lie::NoWish) {
            claimed.iter_mut().for_each(|claimed| claimed.least = i64::MIN);
        }
        claimed
    }

    fn report(&self, notice: Notice) -> Result<(), NoAnswer> {
        let Self { world, life, .. } = self;
        let is_lease = matches!(notice, Notice::Lease(_));
        if !is_lease {
            self.lives()?;
        }
        world.tell(|| format!("  life {} reports {notice:?}", life.number));
        match notice {
            Notice::Fleet(FleetNotice::Adopted(_)) => world.count("adopted"),
            Notice::Fleet(FleetNotice::Forgot(_)) => world.count("forgot"),
            Notice::Lease(LeaseNotice::Acquired(_)) => world.count("leased"),
            Notice::Lease(LeaseNotice::Older(_)) => world.count("lease forgotten"),
            Notice::Lease(_) => {}
            Notice::Supply(notice) => self.note(notice),
        }
        if is_lease { Ok(()) } else { self.lives() }
    }

    fn read(&self, wanted: &Wanted) -> Result<Reading, NoAnswer> {
        self.lives()?;
        if self.world.lies(Lie::Wasted) {
            (0..3).for_each(|_| self.waste(wanted));
        }
        if self.way()? != Way::Through {
            return self.answer_lost();
        }
        let mut reading = self.world.store.borrow().read(wanted, self.world.time_ms());
        let real = reading.tags.clone();
        let going_on = real.iter().filter(|(_, record)| self.world.goes_on(record)).map(|(tag, _)| *tag);
        self.going_on.replace(going_on.collect());
        // All begin at the same time.
        if self.world.lies(Lie::ByNumber) {
            reading.fleet.freeze_ms = i64::MIN;
        }
        let generation = reading.fleet.generation;
        reading.tags.iter_mut().for_each(|(tag, record)| self.lie_about(*tag, record, generation));
        self.read.replace(Some((real, reading.clone())));
        self.lives().map(|()| reading)
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, NoAnswer> {
        self.lives()?;
        let Self { world, life, .. } = self;
        let (real, reading) = self.read.borrow().clone().expect("a swap follows a reading");
        let mut swap = swap.clone();
        for change in &mut swap.changes {
            // What was changed in the reading for a lie is not written.
            if let Change::Tag { tag, was, record: Some(record) } = change
                && let Some(real) = real.get(tag)
            {
                *was = Some(real.nonce);
                *record = TagRecord { id: real.id, steps: real.steps, jumps: real.jumps, ..*record };
            }
        }
        let compared = swap.incarnation;
        let (generation, read) = (reading.fleet.generation, reading.tags);
        let message = Message { life: Rc::clone(life), swap, generation, read };
        if world.lies(Lie::NotTakenOut) {
            self.put_back(&message);
        }
        if let Some((tag, ..)) = message.tags().next() {
            world.overtake(tag);
        }
        let way = self.way()?;
        match way {
            Way::Lost if world.lies(Lie::LostIsYes) => {
                for (tag, _, new, meaning) in message.tags() {
                    if let Meaning::Reserved(block) = meaning {
                        world.give(life, tag, &new, block, Fate::Had);
                    }
                }
                return Ok(SwapAnswer::Done(compared));
            }
            Way::Lost => return self.answer_lost(),
            Way::Late => {
                world.late.borrow_mut().push(message);
                return self.answer_lost();
            }
            Way::AnswerLost | Way::Through => {}
        }
        // It may arrive once more.
        if message.gives_back() && world.random.one_in(4) {
            world.late.borrow_mut().push(message.clone());
        }
        if way == Way::AnswerLost {
            world.arrive(&message, Fate::Lost);
            return self.answer_lost();
        }
        // An answer of another incarnation is none.
        let any = world.lies(Lie::AnyIncarnation) || world.lies(Lie::NotCompared);
        let is_same = world.store.borrow().incarnation.since(&compared) == SinceIncarnation::Same || any;
        let answer = world.arrive(&message, if is_same { Fate::Had } else { Fate::Lost });
        self.is_answered(&message);
        self.lives()?;
        Ok(match answer {
            SwapAnswer::Done(_) if any => SwapAnswer::Done(compared),
            answer => answer,
        })
    }
}

/// The settings for leases.
pub const TERMS: LeaseTerms = LeaseTerms { max_borrow_ms: 100 };

impl Link<'_> {
    /// Counts a notice, and checks it.
    fn note(&self, notice: SupplyNotice) {
        let Self { world, life, .. } = self;
        world.count(match notice {
            SupplyNotice::Jumped { .. } => "jumped",
            SupplyNotice::Gone(_) => "gone",
            SupplyNotice::Ended(_) => "ended",
            SupplyNotice::NoJump(tag) => {
                if self.going_on.borrow().contains(&tag) {
                    world.broken(Guarantee::Once, || format!("life {}: {tag} stops again", life.number));
                }
                "no jump"
            }
            SupplyNotice::TooFar { .. } => "too far",
            SupplyNotice::Below { .. } => {
                if !world.is_silent {
                    world.broken(Guarantee::Calm, || format!("life {} reports {notice:?}", life.number));
                }
                "below"
            }
            SupplyNotice::Unusable { .. } => "unusable",
            SupplyNotice::GivenBack { .. } => "given back",
        });
    }
}
