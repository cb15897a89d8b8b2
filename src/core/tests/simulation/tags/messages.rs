//! What servers read of tags, what they send, and what arrives. For a lie, it is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use snowflake_core::fleet::registry::{Reading, RecordChange, Swap, SwapAnswer, TagRecord, Wanted, WantedTags};
use snowflake_core::fleet::segment::{Ask, Block, Claimed, Grant, JUMP, State, SupplyNotice};
use snowflake_core::fleet::tag::Tag;

use super::ledger::{Fate, Given};
use crate::fleet::Beyond;
use crate::keeper::Keeper;
use crate::operators::Sent;
use crate::promises::{Guarantee, Lie};
use crate::server::Shared;
use crate::swarm::Chance;
use crate::world::World;

/// A message that arrives late.
pub enum Late {
    Server(Message),
    Operator(Sent),
}

/// A message of a server to the registry.
#[derive(Clone)]
pub struct Message {
    pub shared: Rc<Shared>,
    pub swap: Swap,
    /// The fleet's generation and the tags, as the server has read them.
    generation: u64,
    read: BTreeMap<Tag, TagRecord>,
}

/// What a server has read of tags.
#[derive(Default)]
pub struct TagsRead {
    /// The tags as they were, and as the server has read them.
    real: BTreeMap<Tag, TagRecord>,
    told: BTreeMap<Tag, TagRecord>,
    generation: u64,
    /// The tags of which an operator had said by then where they go on.
    going_on: BTreeSet<Tag>,
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
            RecordChange::Tag { tag, record: Some(new), .. } => {
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

    pub fn is_of_number(&self) -> bool {
        self.swap.changes.iter().any(|change| matches!(change, RecordChange::Number { .. }))
    }

    pub fn gives_back(&self) -> bool {
        self.tags().any(|(.., meaning)| matches!(meaning, Meaning::GivenBack(_)))
    }

    /// Returns the nonces of the tags' records that it writes.
    pub fn nonces(&self) -> Vec<u64> {
        self.tags().map(|(_, _, new, _)| new.nonce).collect()
    }
}

impl Keeper<'_> {
    /// Notes what is read of tags, and changes it for lies.
    pub fn read_tags(&self, reading: &mut Reading) {
        let real = reading.tags.clone();
        let going_on = real.iter().filter(|(_, record)| self.fleet.tags.goes_on(record)).map(|(tag, _)| *tag);
        let going_on = going_on.collect();
        // All begin at the same time.
        if self.lies(Lie::ByNumber) {
            reading.fleet.freeze_ms = i64::MIN;
        }
        let generation = reading.fleet.generation;
        reading.tags.iter_mut().for_each(|(tag, record)| self.lie_about_tag(*tag, record, generation));
        self.tags_read.replace(TagsRead { real, told: reading.tags.clone(), generation, going_on });
    }

    fn lie_about_tag(&self, tag: Tag, record: &mut TagRecord, generation: u64) {
        let Some(lie) = self.world.lie else { return };
        let claimed = || self.tags_claimed().into_iter().find(|claimed| claimed.tag == tag);
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
            Lie::NoId => record.id = self.shared.tags().ids.borrow().get(&tag).copied().unwrap_or(record.id),
            Lie::WishLowers => {
                let least = claimed().map_or(i64::MIN, |claimed| claimed.least);
                record.next = record.next.min(if least > i64::MIN { least } else { i64::MAX });
            }
            Lie::AnyStep => record.steps = (1, 1_000_000),
            Lie::AnyReturn => {
                let last = self.fleet.tags.ledger.borrow().last(self.shared.memory, record.id);
                record.nonce = last.unwrap_or(record.nonce);
            }
            _ => {}
        }
    }

    fn tags_claimed(&self) -> Vec<Claimed> {
        self.shared.tags().places.claimed()
    }

    /// Returns the tags that the worker sees as claimed.
    pub fn claimed_tags(&self) -> Vec<Claimed> {
        let mut claimed = self.tags_claimed();
        if self.lies(Lie::NeverAgain) {
            claimed.retain(|claimed| self.shared.tags().places.places[claimed.place].state() != State::NoJump);
        }
        if self.lies(Lie::NoWish) {
            claimed.iter_mut().for_each(|claimed| claimed.least = i64::MIN);
        }
        claimed
    }

    /// Reserves blocks and keeps none of them, for a lie.
    pub fn waste(&self, wanted: &Wanted) {
        let (world, WantedTags::Named(tags)) = (self.world, &wanted.tags) else { return };
        for tag in tags {
            let store = self.store().borrow();
            let Some(record) = store.tags.get(tag).copied() else { continue };
            let (id, generation, nonce) = (Some(record.id), store.fleet.generation, world.random.bits());
            let (above, least) = (i64::MIN, i64::MIN);
            let ask = Ask { tag: *tag, id, step: Some(1), above, least, generation, was: None, nonce };
            let (grant, new) = record.answer(&ask, &store.fleet, world.time_ms());
            drop(store);
            if let (Grant::Block { block, .. }, Some(new)) = (grant, new) {
                world.give_block(self.shared, *tag, &new, block);
                world.had_block(self.shared, *tag, &new);
                let change = RecordChange::Tag { tag: *tag, was: Some(record.nonce), record: Some(new) };
                self.store().borrow_mut().write(vec![change]);
            }
        }
    }

    /// Returns what is sent. What was changed in the reading for a lie is not written.
    pub fn message(&self, swap: &Swap) -> Message {
        let TagsRead { real, told, generation, .. } = &*self.tags_read.borrow();
        let mut swap = swap.clone();
        for change in &mut swap.changes {
            if let RecordChange::Tag { tag, was, record: Some(record) } = change
                && let Some(real) = real.get(tag)
            {
                *was = Some(real.nonce);
                *record = TagRecord { id: real.id, steps: real.steps, jumps: real.jumps, ..*record };
            }
        }
        Message { shared: Rc::clone(self.shared), swap, generation: *generation, read: told.clone() }
    }

    /// A message is sent.
    pub fn sends(&self, message: &Message) {
        if self.lies(Lie::NotTakenOut) {
            self.put_back(message);
        }
        if let Some((tag, ..)) = message.tags().next() {
            self.world.overtake(tag);
        }
    }

    /// For the lie that nothing was taken out: sessions draw what is given back.
    fn put_back(&self, message: &Message) {
        for (tag, read, _, meaning) in message.tags() {
            let Meaning::GivenBack(first) = meaning else { continue };
            let at = self.tags_claimed().into_iter().find(|claimed| claimed.tag == tag);
            let Some(place) = at.map(|at| &self.shared.tags().places.places[at.place]) else { continue };
            let count = read.next.saturating_sub(first) as u32;
            if let Some(room) = place.room().filter(|_| count > 0) {
                place.fill(room, Block { first, count });
                self.world.draw_tag(self.server, tag, 2);
            }
        }
    }

    /// Counts a notice, and checks it.
    pub fn report_supply(&self, notice: SupplyNotice) {
        let Self { world, server, .. } = self;
        world.tell(|| format!("    server {} reports: {}", server.number, world.words.supply_notice(&notice)));
        world.count(match notice {
            SupplyNotice::Jumped { .. } => "jumped",
            SupplyNotice::Gone(_) => "gone",
            SupplyNotice::Ended(_) => "ended",
            SupplyNotice::NoJump(tag) => {
                if self.tags_read.borrow().going_on.contains(&tag) {
                    world.broken(Guarantee::Once, || format!("server {}: {tag} stops again", server.number));
                }
                "no jump"
            }
            SupplyNotice::TooFar { .. } => "too far",
            SupplyNotice::Below { .. } => {
                if self.fleet.beyond != Some(Beyond::RestoredSilently) {
                    world.broken(Guarantee::Calm, || format!("server {} reports {notice:?}", server.number));
                }
                "below"
            }
            SupplyNotice::Unusable { .. } => "unusable",
            SupplyNotice::GivenBack { .. } => "given back",
        });
    }
}

impl World {
    /// Whether a server's swap compares the records alone that it replaces, for a lie.
    pub fn compares_records_alone(&self) -> bool {
        self.lies(Lie::NumberAlone) || self.lies(Lie::NotCompared)
    }

    /// A server's swap arrives.
    pub fn arrive(&self, message: &Message) -> SwapAnswer {
        let fleet = self.registered();
        let registry = fleet.store_of(&message.shared);
        let mut swap = message.swap.clone();
        for change in &mut swap.changes {
            match change {
                RecordChange::Fleet(new) if self.lies(Lie::NoTimelines) => {
                    new.generation = new.generation.min(registry.borrow().fleet.generation + 1);
                }
                RecordChange::Tag { tag, was, record: Some(new) } => {
                    let now = registry.borrow().tags.get(tag).copied();
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
        let compares = registry.borrow().compares(&swap, self.compares_records_alone());
        if self.lies(Lie::NotAtomic) {
            self.meanwhile(&self.any_server());
        }
        self.tell(|| {
            let told = self.words.changes(&swap, &registry.borrow().fleet);
            format!("    {told}: {}", if compares { "written" } else { "refused" })
        });
        if !compares {
            return SwapAnswer::Refused;
        }
        let raises_far = |(_, read, new, meaning): (Tag, TagRecord, TagRecord, Meaning)| {
            let Meaning::Reserved(block) = meaning else { return None };
            let raised = block.first.saturating_sub(read.next_in(&registry.borrow().fleet));
            (read.jumps && raised > JUMP).then_some(new.nonce)
        };
        let far: Vec<_> = message.tags().filter_map(raises_far).collect();
        self.give(message);
        let answer = registry.borrow_mut().write(swap.changes);
        if !far.is_empty() {
            // No jump covers a wish that raises a tag by more than the jump. An operator looks
            // after it, as the page says: no failover forgets it, and a restore that forgets it is
            // like one that forgets another restore.
            far.into_iter().for_each(|nonce| fleet.tags.begin_restored(nonce));
            fleet.keep_all();
            fleet.note_restores();
        }
        answer
    }

    /// Notes what a server reserves and gives back. It has not had the answer.
    pub fn give(&self, message: &Message) {
        for (tag, read, new, meaning) in message.tags() {
            match meaning {
                Meaning::Reserved(block) => self.give_block(&message.shared, tag, &new, block),
                Meaning::GivenBack(first) => {
                    let mut ledger = self.registered().tags.ledger.borrow_mut();
                    ledger.take_back(message.shared.memory, new.id, read.nonce, first);
                }
                Meaning::Told => {}
            }
        }
    }

    fn give_block(&self, shared: &Shared, tag: Tag, record: &TagRecord, block: Block) {
        let TagRecord { id, nonce, generation, .. } = *record;
        let tags = &self.registered().tags;
        let (life, restores, fate) = (shared.memory, tags.restores.get(), Fate::Lost);
        tags.ledger.borrow_mut().give(Given { life, id, block, generation, restores, nonce, fate });
        self.check_raised(id, block);
        if block.count > record.steps.1 {
            self.broken(Guarantee::Steps, || format!("{block:?} of {tag}"));
        }
    }

    /// A server has had the answer.
    pub fn had(&self, message: &Message) {
        for (tag, _, new, meaning) in message.tags() {
            if let Meaning::Reserved(_) = meaning {
                self.had_block(&message.shared, tag, &new);
            }
        }
    }

    fn had_block(&self, shared: &Shared, tag: Tag, record: &TagRecord) {
        let broken = self.registered().tags.ledger.borrow_mut().have(record.nonce);
        self.check_broken(broken);
        shared.tags().ids.borrow_mut().insert(tag, record.id);
    }

    /// Checks that a block lies where an operator has said that its tag goes on, unless the
    /// registry may have forgotten that.
    fn check_raised(&self, id: u64, block: Block) {
        if let Some(next) = self.registered().tags.said_next(id).filter(|next| block.first < *next) {
            self.broken(Guarantee::Raised, || format!("{block:?} lies below {next}"));
        }
    }

    /// While a message about a tag is under way, another server reserves and draws, and the
    /// registry forgets just that.
    fn overtake(&self, tag: Tag) {
        if !self.is_disturbed(2, Chance::Meanwhile, 30) {
            return;
        }
        self.during(|| {
            let (server, fleet) = (self.any_server(), self.registered());
            let changes = fleet.store.borrow().changes();
            (0..3).for_each(|_| _ = self.draw_tag(&server, tag, 4));
            self.supply(&server);
            (0..3).for_each(|_| _ = self.draw_tag(&server, tag, 4));
            if changes > super::TAGS.len() && fleet.store.borrow().changes() > changes {
                self.restore_to(fleet, changes);
            }
        });
    }
}
