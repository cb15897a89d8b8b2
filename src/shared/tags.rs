//! The tags that this server's sessions draw dense values from: their places in shared memory, and
//! what is shown of them. Sessions (`dense.rs`) draw, and the background worker
//! (`keeper.rs`) puts blocks in place.
//!
//! Values are drawn from the places alone, which are atomic words (`core/fleet/segment/place.rs`).
//! What lies behind the lock says which tag has which place, and is for operators.

use snowflake_core::atomic::{AtomicI64, Ordering};
use snowflake_core::fleet::segment::{
    Claimed, Directory, Full, PLACES, Place, PlaceView, Rest, State, Supply, WorkerLatch,
};
use snowflake_core::fleet::tag::Tag;

use crate::error::fleet::Failing;
use crate::postgres::backend::{self, SharedLatch};
use crate::shared::locked::{Lock, Locked};

/// What all sessions and the worker share.
#[derive(Debug)]
pub struct Tags {
    places: [Place; PLACES],
    table: Locked<Table>,
    /// Which fleet the values are of
    /// ([`Fleet::code`](snowflake_core::fleet::registry::Fleet::code)), or [`NO_FLEET`].
    fleet: AtomicI64,
    worker: WorkerLatch,
}

const NO_FLEET: i64 = -1;

/// What lies behind the lock.
#[derive(Debug, Clone, Copy)]
struct Table {
    directory: Directory,
    counts: [TagCounts; PLACES],
    failing: Option<Failing>,
}

/// What is shown of a place's tag.
#[derive(Debug, Clone, Copy, Default)]
pub struct TagCounts {
    /// Which claim of the place this is about.
    claim: u64,
    /// How many values the next block will have, as far as one was reserved.
    pub step: u32,
    /// How many blocks were reserved.
    pub blocks: u64,
    /// How long a block has lasted, in milliseconds.
    pub lasted_ms: Option<i64>,
    /// How often, and how long, sessions have waited for a block.
    pub waits: u64,
    pub wait_micros: u64,
    /// How many draws were refused.
    pub refused: u64,
}

/// A tag in use.
#[derive(Debug, Clone, Copy)]
pub struct TagRow {
    pub tag: Tag,
    pub state: State,
    pub rest: Rest,
    pub counts: TagCounts,
}

/// A place under a claim, in one word, which is never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

const PLACE_BITS: u32 = 8;

const _: () = assert!(PLACES == 1 << PLACE_BITS);

impl Ticket {
    /// Packs a place and its claim. Claims are counted from 1.
    fn new(place: usize, claim: u64) -> Self {
        Self(claim << PLACE_BITS | place as u64)
    }

    /// Returns the ticket that [`bits`](Self::bits) came from; `None` for 0.
    #[inline(always)]
    pub fn of_bits(bits: u64) -> Option<Self> {
        (bits != 0).then_some(Self(bits))
    }

    /// Returns the ticket as a number.
    pub fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    fn place(self) -> usize {
        (self.0 & (PLACES as u64 - 1)) as usize
    }

    #[inline(always)]
    fn claim(self) -> u64 {
        self.0 >> PLACE_BITS
    }
}

impl Tags {
    /// Makes places without tags. Call it where shared memory is initialized.
    pub fn new() -> Self {
        let table = Table { directory: Directory::new(), counts: [TagCounts::default(); PLACES], failing: None };
        Self {
            places: std::array::from_fn(|_| Place::new()),
            table: Locked::new(Lock::Tags, table),
            fleet: AtomicI64::new(NO_FLEET),
            worker: WorkerLatch::new(),
        }
    }

    /// Returns the places.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Returns a view of a ticket's place.
    #[inline(always)]
    pub fn view(&self, ticket: Ticket) -> PlaceView<'_> {
        PlaceView::new(&self.places[ticket.place()], ticket.claim())
    }

    /// Returns the place of a tag, and claims one if it has none.
    ///
    /// # Errors
    /// [`Full`].
    pub fn find(&self, tag: Tag) -> Result<Ticket, Full> {
        let (place, view) = self.table.change(|table| table.directory.find(&self.places, tag))?;
        Ok(Ticket::new(place, view.claim()))
    }

    /// Notes that values below `least` are not wanted of a ticket's place
    /// ([`Directory::raise_minimum`]).
    pub fn raise_minimum(&self, ticket: Ticket, least: i64) {
        self.table.change(|table| table.directory.raise_minimum(&self.places, ticket.place(), ticket.claim(), least));
    }

    /// Forgets a minimum ([`Directory::drop_minimum`]).
    pub fn drop_minimum(&self, place: usize, claim: u64, least: i64) {
        self.table.change(|table| table.directory.drop_minimum(&self.places, place, claim, least));
    }

    /// Returns the places that have a tag.
    pub fn claimed(&self) -> Vec<Claimed> {
        self.table.change(|table| table.directory.claimed(&self.places))
    }

    /// Returns the tags in use, and why the registry gives no blocks, if that is so.
    pub fn read(&self) -> (Vec<TagRow>, Option<Failing>) {
        let table = self.table.get();
        let rows =
            table.directory.claimed(&self.places).into_iter().map(|Claimed { place: at, claim, tag, .. }| {
                let (place, counts) = (&self.places[at], table.counts[at]);
                let counts = if counts.claim == claim { counts } else { TagCounts::default() };
                TagRow { tag, state: place.state(), rest: place.rest(), counts }
            });
        (rows.collect(), table.failing)
    }

    /// Returns why the registry gives no blocks, if that is so.
    pub fn failing(&self) -> Option<Failing> {
        self.table.change(|table| table.failing)
    }

    /// Notes whether the registry gives blocks. Returns what was noted before.
    pub fn note_failing(&self, failing: Option<Failing>) -> Option<Failing> {
        self.table.change(|table| std::mem::replace(&mut table.failing, failing))
    }

    /// Changes the counts of a ticket's place, unless another tag has it now.
    pub fn count(&self, ticket: Ticket, change: impl FnOnce(&mut TagCounts)) {
        self.table.change(|table| {
            if self.places[ticket.place()].claimed() == ticket.claim() {
                change(table.counts_of(ticket.place(), ticket.claim()));
            }
        });
    }

    /// Resets how often sessions have waited, and how often they were refused.
    pub fn reset_counts(&self) {
        self.table.change(|table| {
            for counts in &mut table.counts {
                (counts.waits, counts.wait_micros, counts.refused) = (0, 0, 0);
            }
        });
    }

    /// Shows what the worker knows of all tags in use.
    pub fn show(&self, supply: &Supply) {
        self.table.change(|table| {
            for Claimed { place, claim, .. } in table.directory.claimed(&self.places) {
                if let Some(known) = supply.last_seen(place, claim) {
                    let counts = table.counts_of(place, claim);
                    (counts.step, counts.blocks, counts.lasted_ms) = (known.step(), known.blocks(), known.lasted_ms());
                }
            }
        });
    }

    /// Returns the fleet that the values are of, once it is known: before the first block is.
    pub fn fleet(&self) -> Option<i64> {
        // Relaxed: a session that has drawn from a block has read a word that was written later.
        Some(self.fleet.load(Ordering::Relaxed)).filter(|fleet| *fleet != NO_FLEET)
    }

    /// Sets the fleet. The first one stays, because the worker refuses another.
    pub fn set_fleet(&self, fleet: i64) {
        // Relaxed: the worker puts the first block in place later, with Release, and a draw from it
        // has read that with Acquire.
        let _ = self.fleet.compare_exchange(NO_FLEET, fleet, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Says whether this process is the worker, which [`wake_worker`](Self::wake_worker) wakes. It
    /// looks at all places afterwards.
    pub fn set_worker(&self, latch: Option<SharedLatch>) {
        match latch {
            Some(latch) => self.worker.begin(latch.bits()),
            None => self.worker.end(),
        }
    }

    /// Whether the worker runs.
    pub fn has_worker(&self) -> bool {
        self.worker.is_there()
    }

    /// Wakes the worker, to reserve a block. If it begins just now, it sees itself that the block
    /// is due, because both this and [`set_worker`](Self::set_worker) have a full fence between
    /// their store and their load (`core/fleet/segment/latch.rs`). Raises nothing.
    pub fn wake_worker(&self) {
        if let Some(latch) = SharedLatch::of_bits(self.worker.to_wake()) {
            backend::wake(latch);
        }
    }
}

impl Table {
    /// Returns the counts of a place, from 0 for a new claim.
    fn counts_of(&mut self, place: usize, claim: u64) -> &mut TagCounts {
        let counts = &mut self.counts[place];
        if counts.claim != claim {
            *counts = TagCounts { claim, ..TagCounts::default() };
        }
        counts
    }
}
