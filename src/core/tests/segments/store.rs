//! A simulated registry: a log of changes on one machine, of which a standby or a backup holds a
//! prefix.

use std::collections::BTreeMap;

use snowflake_core::registry::{Answer, Change, Fleet, Incarnation, Swap};
use snowflake_core::segment::{GiveBack, Grant, Granted, Record, Reserve, Tag};

use crate::Lie;

/// Which kind of store it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PostgreSQL: a failover shows another timeline, and may lose the last changes.
    Postgres,
    /// PostgreSQL with a synchronous standby, for which an operator vouches.
    Synchronous,
    /// etcd: a failover loses nothing. The incarnation is only in the answer.
    Etcd,
}

/// A change of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    Fleet(Fleet),
    Tag(Tag, Option<Record>),
}

/// What a registry has stored.
#[derive(Debug, Clone)]
pub struct Store {
    pub kind: Kind,
    log: Vec<Written>,
    /// How many changes a synchronous standby has.
    pub synced: usize,
    pub fleet: Fleet,
    pub tags: BTreeMap<Tag, Record>,
    pub incarnation: Incarnation,
}

impl Store {
    pub fn new(kind: Kind, fleet: Fleet) -> Self {
        let (log, tags, incarnation) = (vec![Written::Fleet(fleet)], BTreeMap::new(), fleet.incarnation);
        Self { kind, log, synced: 1, fleet, tags, incarnation }
    }

    pub fn write(&mut self, change: Written) {
        self.log.push(change);
        match change {
            Written::Fleet(fleet) => self.fleet = fleet,
            Written::Tag(tag, Some(record)) => _ = self.tags.insert(tag, record),
            Written::Tag(tag, None) => _ = self.tags.remove(&tag),
        }
    }

    pub fn changes(&self) -> usize {
        self.log.len()
    }

    /// Returns how many changes there were when the fleet's record first told of this store. Its
    /// standbys are made after that.
    pub fn of_this_store(&self) -> usize {
        let is_its = |written: &Written| match written {
            Written::Fleet(fleet) => fleet.incarnation.store == self.incarnation.store,
            Written::Tag(..) => false,
        };
        self.log.iter().position(is_its).map_or(self.log.len(), |at| at + 1)
    }

    /// Returns a copy that lacks what comes after the first `end` changes.
    pub fn prefix(&self, end: usize) -> Self {
        let Written::Fleet(first) = self.log[0] else { unreachable!("the first change makes the fleet") };
        let mut copy = Self::new(self.kind, first);
        self.log[1..end].iter().for_each(|change| copy.write(*change));
        copy.synced = self.synced.min(end);
        copy.incarnation = self.incarnation;
        copy
    }

    fn compares(&self, fleet: u64, incarnation: Incarnation, lie: Option<Lie>) -> bool {
        let as_read = fleet == self.fleet.version
            && (self.kind == Kind::Etcd || incarnation == self.incarnation)
            && !self.fleet.closed;
        as_read || lie == Some(Lie::NotCompared)
    }

    pub fn swap(&mut self, swap: &Swap, lie: Option<Lie>) -> Answer {
        let Change::Fleet(mut fleet) = swap.change else { unreachable!("no numbers are leased") };
        if lie == Some(Lie::NoTimelines) {
            fleet.generation = fleet.generation.min(self.fleet.generation + 1);
        }
        if !self.compares(swap.fleet, swap.incarnation, None) {
            return Answer::Refused;
        }
        self.write(Written::Fleet(fleet));
        Answer::Done(self.incarnation)
    }

    /// Reserves, by the records that `seen` holds.
    pub fn reserve(
        &mut self,
        reserve: &Reserve,
        seen: &BTreeMap<Tag, Record>,
        lie: Option<Lie>,
    ) -> Option<Granted<Grant>> {
        if !self.compares(reserve.fleet, reserve.incarnation, lie) {
            return None;
        }
        let answers = reserve.asks.iter().map(|ask| {
            let Some(record) = seen.get(&ask.tag).copied() else { return Grant::Unknown };
            let (mut record, mut ask) = (record, *ask);
            match lie {
                Some(Lie::NoJumps) => record.generation = self.fleet.generation,
                Some(Lie::OneJump) if record.generation < self.fleet.generation => {
                    record.generation = self.fleet.generation - 1;
                }
                Some(Lie::ShortJump) => record.jump = record.jump.map(|_| record.steps.0.into()),
                Some(Lie::NoId) => ask.id = ask.id.map(|_| record.id),
                Some(Lie::NothingAbove) => ask.above = i64::MIN,
                Some(Lie::WishLowers) if ask.least > i64::MIN => {
                    (record.next, ask.above) = (record.next.min(ask.least), i64::MIN);
                }
                Some(Lie::NoWish) => ask.least = i64::MIN,
                Some(Lie::AnyStep) => record.steps = (1, 1_000_000),
                _ => {}
            }
            let (answer, new) = record.answer(&ask, &self.fleet);
            if let Some(new) = new {
                let real = self.tags.get(&ask.tag).copied().unwrap_or(new);
                self.write(Written::Tag(ask.tag, Some(Record { steps: real.steps, jump: real.jump, ..new })));
            }
            answer
        });
        let answers = answers.collect();
        Some(Granted { incarnation: self.incarnation, answers })
    }

    /// Takes back what ends at `ends`, which only lies look at.
    pub fn give_back(&mut self, give_back: &GiveBack, ends: &[i64], lie: Option<Lie>) -> Option<Granted<bool>> {
        if !self.compares(give_back.fleet, give_back.incarnation, lie) {
            return None;
        }
        let answers = give_back.returns.iter().zip(ends).map(|(given, end)| {
            let Some(record) = self.tags.get(&given.tag).copied() else { return false };
            let mut given = *given;
            match lie {
                Some(Lie::ComparedByValue) if *end == record.next => given.was = record.nonce,
                Some(Lie::NotComparedAtAll) => given.was = record.nonce,
                _ => {}
            }
            let new = record.take_back(&given, &self.fleet);
            if new.is_some() {
                self.write(Written::Tag(given.tag, new));
            }
            new.is_some()
        });
        let answers = answers.collect();
        Some(Granted { incarnation: self.incarnation, answers })
    }
}
