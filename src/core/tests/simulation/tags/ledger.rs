//! What was given and drawn, which no registry forgets, and what must hold of it; and what excuses
//! it: what the registry may have forgotten, and what operators have said.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use snowflake_core::fleet::registry::TagRecord;
use snowflake_core::fleet::segment::Block;

use crate::fleet::Registered;
use crate::kit::registry::Store;
use crate::promises::Guarantee;

/// What has become of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Its server has had the answer.
    Had,
    /// Its server may draw from it no more, and this was noticed.
    WrittenOff,
    /// The answer was lost.
    Lost,
}

/// A block that the registry has given.
#[derive(Debug, Clone, Copy)]
pub struct Given {
    pub life: u64,
    pub id: u64,
    pub block: Block,
    pub generation: u64,
    /// How often the registry was restored before. Generations of two restores may have one number.
    pub restores: u64,
    pub nonce: u64,
    pub fate: Fate,
}

/// All blocks in the order given, and all values that were drawn.
#[derive(Debug, Default)]
pub struct Ledger {
    given: Vec<Given>,
    drawn: BTreeMap<(u64, i64), u64>,
    last: BTreeMap<(u64, u64), i64>,
}

pub type Broken = (Guarantee, String);

impl Ledger {
    /// Returns how many blocks were given.
    pub fn given(&self) -> usize {
        self.given.len()
    }

    /// Returns the value after the greatest one that was given of a tag.
    pub fn above(&self, id: u64) -> i64 {
        self.given.iter().filter(|given| given.id == id).map(|given| given.block.end()).max().unwrap_or(i64::MIN)
    }

    pub fn give(&mut self, new: Given) {
        self.given.push(new);
    }

    /// The answer that gave a block under a nonce has arrived.
    pub fn have(&mut self, nonce: u64) -> Option<Broken> {
        let at = self.given.iter().rposition(|given| given.nonce == nonce)?;
        let new = self.given[at];
        let is_over =
            |old: &&Given| old.id == new.id && old.block.first < new.block.end() && new.block.first < old.block.end();
        let over = self.given.iter().filter(|old| old.fate != Fate::Lost && old.block.count > 0).find(is_over).copied();
        self.given[at].fate = Fate::Had;
        over.map(|old| (Guarantee::Apart, format!("{new:?} overlaps {old:?}")))
    }

    pub fn draw(&mut self, life: u64, id: u64, value: i64) -> Vec<Broken> {
        let mut broken = Vec::new();
        let is_its = |given: &Given| {
            (given.life, given.id) == (life, id)
                && given.fate == Fate::Had
                && (given.block.first..given.block.end()).contains(&value)
        };
        if !self.given.iter().any(is_its) {
            broken.push((Guarantee::Granted, format!("life {life} draws {value}, which it was not given")));
        }
        if let Some(other) = self.drawn.insert((id, value), life) {
            broken.push((Guarantee::Unique, format!("{value} is drawn by life {life} and was drawn by {other}")));
        }
        let last = self.last.insert((life, id), value);
        if let Some(last) = last.filter(|last| *last >= value) {
            broken.push((Guarantee::Ascending, format!("life {life} draws {value} after {last}")));
        }
        broken
    }

    /// Values from `first` to the end of the block that was given under a nonce are back in the
    /// registry.
    pub fn take_back(&mut self, life: u64, id: u64, nonce: u64, first: i64) {
        let Some(last) = self.given.iter().position(|old| old.nonce == nonce) else { return };
        let its = self.given[..=last].iter_mut().filter(|old| (old.life, old.id) == (life, id));
        for old in its {
            let kept = first.saturating_sub(old.block.first).max(0);
            old.block.count = i64::from(old.block.count).min(kept) as u32;
        }
    }

    /// Returns the nonce of the last block that a life has had.
    pub fn last(&self, life: u64, id: u64) -> Option<u64> {
        let mut its = self.given.iter().filter(|given| (given.life, given.id, given.fate) == (life, id, Fate::Had));
        its.next_back().map(|given| given.nonce)
    }

    /// The answer that gave a block under a nonce is lost after all.
    pub fn lose(&mut self, nonce: u64) {
        self.given.iter_mut().filter(|given| given.nonce == nonce).for_each(|given| given.fate = Fate::Lost);
    }

    fn undrawn(&self, given: &Given) -> Option<i64> {
        (given.block.first..given.block.end()).find(|value| !self.drawn.contains_key(&(given.id, *value)))
    }

    /// Returns the blocks of a life of which something is left.
    pub fn left(&self, life: u64) -> Vec<(usize, Given)> {
        let its = self.given.iter().copied().enumerate();
        its.filter(|(_, given)| (given.life, given.fate) == (life, Fate::Had) && self.undrawn(given).is_some())
            .collect()
    }

    /// Returns the block before the one at `at` of the same life and tag, or that one if it is the
    /// first.
    pub fn before(&self, at: usize) -> usize {
        let (given, earlier) = (self.given[at], &self.given[..at]);
        earlier.iter().rposition(|old| (old.life, old.id) == (given.life, given.id)).unwrap_or(at)
    }

    /// Whether a block of the same tag was reserved after the one at `at`, though it may have been
    /// given back.
    pub fn is_followed(&self, at: usize) -> bool {
        let (given, later) = (self.given[at], &self.given[at + 1..]);
        later.iter().any(|later| later.id == given.id && later.block.first >= given.block.end())
    }

    /// What is left of a life's blocks will not be drawn, and this is known.
    pub fn write_off(&mut self, life: u64, id: Option<u64>) {
        let its = self.given.iter_mut().filter(|given| given.life == life && given.fate == Fate::Had);
        its.filter(|given| id.is_none_or(|id| id == given.id)).for_each(|given| given.fate = Fate::WrittenOff);
    }

    /// Asserts that no more than two blocks of each tag have something left.
    pub fn crash(&self, life: u64) -> Option<Broken> {
        let mut blocks: BTreeMap<u64, Vec<Block>> = BTreeMap::new();
        self.left(life).into_iter().for_each(|(_, given)| blocks.entry(given.id).or_default().push(given.block));
        let lost = blocks.into_values().find(|blocks| blocks.len() > 2)?;
        Some((Guarantee::TwoBlocks, format!("life {life} ends, and loses {lost:?}")))
    }
}

/// What is known of the tags of a fleet.
#[derive(Default)]
pub struct Tags {
    pub ledger: RefCell<Ledger>,
    /// The greatest generation that any registry of the history has had.
    pub newest: Cell<u64>,
    /// How often the registry was restored.
    pub restores: Cell<u64>,
    /// How often the registry may have forgotten something.
    pub losses: Cell<u64>,
    /// How often it had when an operator said last where a tag goes on, and where that is.
    said: RefCell<BTreeMap<u64, (u64, i64)>>,
    /// The versions of the fleet's record, and the nonces of tags', that an operator has written
    /// after a restore.
    restored: RefCell<Vec<u64>>,
    /// How many of them the present registry has had, or one before it.
    most_restored: Cell<usize>,
    /// How many blocks were given of any tag when an operator has changed a tag.
    changed: RefCell<BTreeMap<u64, usize>>,
}

impl Tags {
    /// The registry may have forgotten something.
    pub fn lose(&self) {
        self.losses.set(self.losses.get() + 1);
    }

    /// An operator has said where a tag goes on, when the registry may have forgotten something so
    /// often.
    pub fn say(&self, id: u64, losses: u64, next: i64) {
        self.said.borrow_mut().insert(id, (losses, next));
    }

    /// Returns where an operator has said that a tag goes on, if the registry has forgotten nothing
    /// since.
    pub fn said_next(&self, id: u64) -> Option<i64> {
        let said = self.said.borrow().get(&id).copied();
        said.filter(|(losses, _)| *losses == self.losses.get()).map(|(_, next)| next)
    }

    /// Whether the registry may have forgotten where an operator has said that a tag goes on.
    pub fn may_have_unsaid(&self, id: u64) -> bool {
        self.said.borrow().get(&id).is_some_and(|(losses, _)| *losses < self.losses.get())
    }

    /// Whether an operator has said where a tag that does not jump goes on, and the registry has
    /// forgotten nothing since.
    pub fn goes_on(&self, record: &TagRecord) -> bool {
        self.said_next(record.id).is_some()
    }

    /// An operator changes a tag.
    pub fn change(&self, id: u64) {
        self.changed.borrow_mut().insert(id, self.ledger.borrow().given.len());
    }

    /// Whether an operator has changed a tag since a block was given. Its nonce is another one
    /// then, so that the server cannot prove that the block was the last. Or its steps are smaller,
    /// and no more than two of the largest blocks are taken back.
    pub fn has_changed(&self, id: u64, given: usize) -> bool {
        self.changed.borrow().get(&id).is_some_and(|changed| given < *changed)
    }

    /// An operator begins a generation, or raises a tag before that.
    pub fn begin_restored(&self, version: u64) {
        self.restored.borrow_mut().push(version);
    }

    /// The registry is lost, and with it all that an operator has said.
    pub fn forget_restores(&self) {
        self.restores.set(self.restores.get() + 1);
        self.restored.borrow_mut().clear();
        self.most_restored.set(0);
    }

    /// Returns how often an operator has said that a registry was restored, as far as it knows.
    fn restores_of(&self, store: &Store) -> usize {
        let restored = self.restored.borrow();
        let generations = store.fleets().filter(|(_, fleet)| restored.contains(&fleet.version)).count();
        generations + store.tag_nonces().filter(|nonce| restored.contains(nonce)).count()
    }

    /// Whether a registry knows of all generations that an operator has begun.
    pub fn are_restores_known(&self, store: &Store) -> bool {
        self.restores_of(store) == self.most_restored.get()
    }
}

impl Registered {
    pub fn note_restores(&self) {
        let Tags { most_restored, .. } = &self.tags;
        most_restored.set(most_restored.get().max(self.tags.restores_of(&self.store.borrow())));
        self.note_generation();
    }

    pub fn note_generation(&self) {
        let Tags { newest, .. } = &self.tags;
        newest.set(newest.get().max(self.store.borrow().fleet.generation));
    }
}
