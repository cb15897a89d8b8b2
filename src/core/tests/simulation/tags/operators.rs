//! What operators do to tags, and say of them after a restore. What the pages forbid, no operator
//! does here.

use snowflake_core::fleet::operate::{Began, Operation, decide};
use snowflake_core::fleet::registry::{
    DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, FleetLimits, NumberKey, Reading, RecordChange, SinceIncarnation, Swap, TagRecord,
};
use snowflake_core::fleet::segment::{END, JUMP};
use snowflake_core::fleet::tag::Tag;

use super::TAGS;
use crate::fleet::{HOME, Registered};
use crate::kit::registry::{Kind, Store};
use crate::operators::{Desk, Sent};
use crate::promises::Lie;
use crate::swarm::Choice;
use crate::world::World;

impl Desk<'_> {
    /// Changes what an operator reads of tags, for lies.
    pub fn lie_about_tags_read(&self, reading: &mut Reading) {
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

    /// Changes what an operator sends of tags, for lies.
    pub fn lie_about_tags(&self, swap: &mut Swap, real: &Reading) {
        let Self { world, .. } = self;
        let is_restored = matches!(self.operation, Operation::Restored { .. });
        let is_part = !swap.changes.iter().any(|change| matches!(change, RecordChange::Fleet(_)));
        if world.lies(Lie::FleetFirst) && is_restored && is_part {
            // The record alone, and the tags later.
            let whole = decide(self.operation, &Began::at(real), real, &mut || world.random.bits());
            let whole = whole.map(|decision| decision.changes).unwrap_or_default();
            let fleet = whole.into_iter().filter(|change| matches!(change, RecordChange::Fleet(_)));
            swap.changes = fleet.collect();
            return;
        }
        if let (Some(Lie::LostAtOnce), Operation::Lost { .. }, [RecordChange::Fleet(new)]) =
            (world.lie, self.operation, swap.changes.as_mut_slice())
        {
            new.closed = real.fleet.closed;
        }
        for change in &mut swap.changes {
            let RecordChange::Tag { tag, record: Some(record), .. } = change else { continue };
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
    /// Notes what an operator's swap says of tags, before it is written.
    pub fn note_said(&self, fleet: &Registered, sent: &Sent) {
        let store = fleet.store.borrow();
        for change in &sent.swap.changes {
            match change {
                RecordChange::Fleet(new) if new.generation != store.fleet.generation => {
                    fleet.tags.begin_restored(new.version);
                    if !sent.is_second {
                        fleet.tags.lose();
                    }
                }
                RecordChange::Tag { tag, record: Some(record), .. } => {
                    fleet.tags.change(record.id);
                    // No jump covers a raise by more than the jump. A restore that forgets it is
                    // like one that forgets another restore: an operator sets the value again.
                    let was = store.tags.get(tag).map_or(record.next, |was| was.next);
                    if sent.is_restored || record.jumps && record.next.saturating_sub(was) > JUMP {
                        fleet.tags.begin_restored(record.nonce);
                    }
                }
                // A failover may forget that. Then no server can have given back meanwhile.
                RecordChange::Tag { tag, record: None, .. } => {
                    store.tags.get(tag).into_iter().for_each(|was| fleet.tags.change(was.id));
                }
                _ => {}
            }
        }
    }

    /// Shows that a registry is restored, to a point in time on another timeline or into another
    /// store, unless it is so by files alone. Returns what an operator has to do before servers
    /// reach it.
    pub fn plan_restored_tags(&self, fleet: &Registered, now: &Store, next: &mut Store) -> Vec<Operation> {
        // What an operator has said shows in no timeline.
        let known_restores = fleet.tags.are_restores_known(next);
        let newest = fleet.tags.newest.get();
        let known = next.fleet.generation == newest && known_restores;
        let way = self.random.below(3);
        // Whether each generation that is forgotten has a timeline that tells of it.
        let (forgotten, then) = (newest.saturating_sub(next.fleet.generation), next.fleet.incarnation);
        let is_same = now.incarnation.store == then.store;
        let timelines = if is_same { now.incarnation.timeline.saturating_sub(then.timeline) } else { 0 };
        if way == 0 && next.kind == Kind::Postgres && forgotten <= timelines && known_restores {
            next.incarnation.timeline += 1;
            return Vec::new();
        }
        if way == 1 && known {
            match next.kind {
                Kind::Etcd => next.incarnation.counts[1] = next.fleet.incarnation.counts[1] - 1,
                Kind::Postgres | Kind::Synchronous => next.incarnation.store += 1,
            }
            return Vec::new();
        }
        // The operator does not know how many generations there have been.
        let mut plan = vec![self.restored(fleet)];
        plan.extend(next.fleet.closed.then_some(Operation::Open { moved: Some(false) }));
        // If another restore is forgotten, the operator has to say where tags go on.
        let jumping = next.tags.iter().filter(|(_, record)| record.jumps && !known_restores);
        plan.extend(jumping.map(|(tag, _)| set_tag(*tag, None)));
        plan
    }

    /// The operator knows what the limits were: the backup may be from before the first server
    /// brought them.
    fn restored(&self, fleet: &Registered) -> Operation {
        let (lease_ms, skew_ms) = fleet.operators.limits_ms();
        Operation::Restored { lease_ms: Some(lease_ms), skew_ms: Some(skew_ms) }
    }

    pub fn any_operation_on_tags(&self, fleet: &Registered) -> Option<Operation> {
        type Choose = fn(&World, &Registered) -> Option<Operation>;
        let (waits, is_empty) = {
            let store = fleet.store.borrow();
            // Servers wait for whoever has closed the fleet.
            (store.fleet.closed && self.random.one_in(2), store.tags.is_empty())
        };
        let choices: [(usize, Choose); 7] = [
            (3, Self::any_existence),
            (8, Self::any_jump),
            (4, Self::any_steps),
            (4, |world, _| world.any_move()),
            (2, Self::any_restored_tags),
            (1, |world, _| {
                let number = NumberKey::new(None, world.random.of(0..=3));
                let until_ms = world.time_ms() + world.random.pick(&[-5000, 0, 3000, 3_600_000]);
                Some(Operation::Reserve { number, until_ms, force: false })
            }),
            // It was not.
            (1, |_, _| {
                Some(Operation::Lost { lease_ms: DEFAULT_LEASE_MS, skew_ms: DEFAULT_SKEW_MS, uuid: Some(HOME) })
            }),
        ];
        match (waits, is_empty) {
            (true, _) => self.any_move(),
            (false, true) => self.any_existence(fleet),
            (false, false) => self.chooses(Choice::Operator, &choices)(self, fleet),
        }
    }

    /// Returns a next value above all that was given of a tag.
    pub fn next_to_say(&self, fleet: &Registered, record: &TagRecord) -> i64 {
        record.next_in(&fleet.store.borrow().fleet).max(fleet.tags.ledger.borrow().above(record.id))
    }

    /// Deletes a tag, or makes it.
    fn any_existence(&self, fleet: &Registered) -> Option<Operation> {
        let tag = self.any_tag();
        let is_there = fleet.store.borrow().tags.contains_key(&tag);
        Some(match is_there && !self.random.one_in(8) {
            true => Operation::DropTag { tag },
            false => self.create(tag),
        })
    }

    pub fn create(&self, tag: Tag) -> Operation {
        let least = self.random.of(1..=6) as u32;
        let steps = (least, self.any_greatest(least));
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

    fn any_greatest(&self, least: u32) -> u32 {
        least + self.random.pick(&[0, 3, 7, 11, 200])
    }

    /// Lets a tag jump that does not. A tag that waits for an operator needs to be told where it
    /// goes on, and may stay as it is.
    fn any_jump(&self, fleet: &Registered) -> Option<Operation> {
        let none: Vec<_> = {
            let store = fleet.store.borrow();
            let none = store.tags.iter().filter(|(_, record)| !record.jumps);
            none.map(|(tag, record)| (*tag, *record)).collect()
        };
        if none.is_empty() {
            return None;
        }
        let (tag, record) = none[self.random.below(none.len())];
        Some(self.set_jump(fleet, tag, &record))
    }

    fn set_jump(&self, fleet: &Registered, tag: Tag, record: &TagRecord) -> Operation {
        let is_stopped = record.generation < fleet.store.borrow().fleet.generation;
        let stays = is_stopped && !self.settles.get() && self.random.one_in(2);
        // Otherwise it is refused, if the tag has stopped.
        let says = self.settles.get() || is_stopped && !self.random.one_in(4);
        let next = (says || stays).then(|| self.next_to_say(fleet, record));
        Operation::SetTag { tag, next, least: None, greatest: None, jumps: (!stays).then_some(true) }
    }

    /// Changes how large blocks are, or raises a tag; or tries to lower it.
    fn any_steps(&self, fleet: &Registered) -> Option<Operation> {
        let tag = self.any_tag();
        let record = *fleet.store.borrow().tags.get(&tag)?;
        match self.random.below(4) {
            0 => {
                let next = self.next_to_say(fleet, &record).saturating_add(self.random.of(0..=40));
                Some(set_tag(tag, Some(next)))
            }
            1 => Some(set_tag(tag, Some(record.next.saturating_sub(self.random.of(1..=40))))),
            _ => {
                let least = self.random.of(1..=6) as u32;
                let greatest = self.any_greatest(least);
                Some(Operation::SetTag { tag, next: None, least: Some(least), greatest: Some(greatest), jumps: None })
            }
        }
    }

    /// Says that the registry was restored, though it was not. If a restore before is forgotten,
    /// the operator would have to say where each tag goes on.
    fn any_restored_tags(&self, fleet: &Registered) -> Option<Operation> {
        fleet.tags.are_restores_known(&fleet.store.borrow()).then(|| self.restored(fleet))
    }

    /// In the end there is a tag, and every tag jumps.
    pub fn settle_jumps(&self) {
        let fleet = self.registered();
        if fleet.store.borrow().tags.is_empty() {
            self.perform(self.create(self.any_tag()), false);
        }
        for tag in TAGS.map(|tag| Tag::new(tag).unwrap()) {
            let record = fleet.store.borrow().tags.get(&tag).copied();
            if let Some(record) = record.filter(|record| !record.jumps) {
                self.perform(self.set_jump(fleet, tag, &record), false);
            }
        }
    }
}

/// Returns the operation that says where a tag goes on.
pub fn set_tag(tag: Tag, next: Option<i64>) -> Operation {
    Operation::SetTag { tag, next, least: None, greatest: None, jumps: None }
}

/// Returns the number of the generation that would begin now.
fn next_generation(reading: &Reading) -> u64 {
    let Reading { fleet, incarnation, now_ms, .. } = reading;
    fleet.begin_generation(*incarnation, *now_ms, FleetLimits::default(), 0).generation
}
