//! A simulated registry: a log of changes on one machine, of which a standby or a backup holds a
//! prefix.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use snowflake_core::registry::{self, Fleet, Incarnation, Swap, SwapAnswer};
use snowflake_core::segment::{GiveBack, Grant, Granted, Reserve, Tag, TagRecord};

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
    Tag(Tag, Option<TagRecord>),
    Number(i64, registry::NumberRecord),
}

/// Which transaction a change belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// One of its own.
    Alone,
    /// An operator's, who says that the registry was restored.
    Restored,
    /// The same as the change before.
    More,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    at_ms: i64,
    part: Part,
    written: Written,
}

/// What a registry has stored.
#[derive(Debug, Clone)]
pub struct Store {
    pub kind: Kind,
    log: Vec<Change>,
    /// How many changes a synchronous standby has.
    pub synced: usize,
    pub fleet: Fleet,
    pub tags: BTreeMap<Tag, TagRecord>,
    /// The leases.
    pub numbers: BTreeMap<i64, registry::NumberRecord>,
    /// When each tag was written.
    pub written_ms: BTreeMap<Tag, i64>,
    pub incarnation: Incarnation,
    now_ms: Rc<Cell<i64>>,
}

impl Store {
    pub fn new(kind: Kind, fleet: Fleet, now_ms: &Rc<Cell<i64>>) -> Self {
        Self {
            kind,
            log: vec![Change { at_ms: now_ms.get(), part: Part::Alone, written: Written::Fleet(fleet) }],
            synced: 1,
            fleet,
            tags: BTreeMap::new(),
            numbers: BTreeMap::new(),
            written_ms: BTreeMap::new(),
            incarnation: fleet.incarnation,
            now_ms: Rc::clone(now_ms),
        }
    }

    pub fn write(&mut self, written: Written) {
        self.push(Change { at_ms: self.now_ms.get(), part: Part::Alone, written });
    }

    /// Writes, in one transaction, what an operator writes who says that the registry was restored.
    pub fn write_restored(&mut self, fleet: Fleet, tags: &[(Tag, TagRecord)]) {
        let at_ms = self.now_ms.get();
        self.push(Change { at_ms, part: Part::Restored, written: Written::Fleet(fleet) });
        for (tag, record) in tags {
            self.push(Change { at_ms, part: Part::More, written: Written::Tag(*tag, Some(*record)) });
        }
    }

    /// Returns how often an operator has said so.
    pub fn restores(&self) -> usize {
        self.log.iter().filter(|change| change.part == Part::Restored).count()
    }

    fn push(&mut self, change: Change) {
        self.log.push(change);
        let Change { at_ms, written, .. } = change;
        match written {
            Written::Fleet(fleet) => self.fleet = fleet,
            Written::Tag(tag, Some(record)) => {
                self.tags.insert(tag, record);
                self.written_ms.insert(tag, at_ms);
            }
            Written::Tag(tag, None) => _ = self.tags.remove(&tag),
            Written::Number(worker, record) => _ = self.numbers.insert(worker, record),
        }
    }

    pub fn changes(&self) -> usize {
        self.log.len()
    }

    /// Returns how many changes there were when the fleet's record first told of this store. Its
    /// standbys are made after that.
    pub fn of_this_store(&self) -> usize {
        let is_its = |change: &Change| match change.written {
            Written::Fleet(fleet) => fleet.incarnation.store == self.incarnation.store,
            Written::Tag(..) | Written::Number(..) => false,
        };
        self.log.iter().position(is_its).map_or(self.log.len(), |at| at + 1)
    }

    /// Returns a copy that lacks what comes after the first `end` changes, and after the rest of
    /// their transaction.
    pub fn prefix(&self, end: usize) -> Self {
        let Written::Fleet(first) = self.log[0].written else { unreachable!("the first change makes the fleet") };
        let end = end + self.log[end..].iter().take_while(|change| change.part == Part::More).count();
        let mut copy = Self::new(self.kind, first, &self.now_ms);
        self.log[1..end].iter().for_each(|change| copy.push(*change));
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

    pub fn swap(&mut self, swap: &Swap, lie: Option<Lie>) -> SwapAnswer {
        if !self.compares(swap.fleet, swap.incarnation, None) {
            return SwapAnswer::Refused;
        }
        self.write(match swap.change {
            registry::Change::Fleet(mut fleet) => {
                if lie == Some(Lie::NoTimelines) {
                    fleet.generation = fleet.generation.min(self.fleet.generation + 1);
                }
                Written::Fleet(fleet)
            }
            registry::Change::Number { worker, was, record } => {
                if self.numbers.get(&worker).map(|record| record.nonce) != was {
                    return SwapAnswer::Refused;
                }
                Written::Number(worker, record)
            }
        });
        SwapAnswer::Done(self.incarnation)
    }

    /// Reserves, by the records that `seen` holds.
    pub fn reserve(
        &mut self,
        reserve: &Reserve,
        seen: &BTreeMap<Tag, TagRecord>,
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
                self.write(Written::Tag(ask.tag, Some(TagRecord { steps: real.steps, jump: real.jump, ..new })));
            }
            answer
        });
        let answers = answers.collect();
        Some(Granted { incarnation: self.incarnation, answers })
    }

    /// Takes back what ends at `ends`, which only lies look at.
    pub fn give_back(&mut self, give_back: &GiveBack, ends: &[i64], lie: Option<Lie>) -> Option<Granted<Option<i64>>> {
        if !self.compares(give_back.fleet, give_back.incarnation, lie) {
            return None;
        }
        let answers = give_back.returns.iter().zip(ends).map(|(given, end)| {
            let record = self.tags.get(&given.tag).copied()?;
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
            new.map(|new| new.next)
        });
        let answers = answers.collect();
        Some(Granted { incarnation: self.incarnation, answers })
    }
}
