//! Up to which id a reader misses nothing.
//!
//! Ids are drawn before their transactions commit. So a reader that goes on from the greatest id it
//! has seen misses each row that is committed later with a lower id. This file finds the
//! **settled** id, from which a reader can go on.
//!
//! **The promise (G4).** Every id of this server and database at or below the settled one belongs
//! to a transaction that has ended for the reader's snapshot. None at or below it will be drawn.
//!
//! # What a backend tells
//!
//! ```text
//! floor   the first id of the open transaction, 0 if it has drawn none
//! ended   the transactions that had drawn and then committed with an xid: xid, floor, database
//! ```
//!
//! The last ended transactions are told one by one. Those before them are [joined to runs](run), so
//! that none is forgotten.
//!
//! A transaction takes these steps, in this order:
//!
//! 1. Its first draw stores the floor, and then exchanges the lane's word (`generator.rs`). If the
//!    exchange fails, the next attempt stores its own. A draw that is refused clears the floor.
//! 2. PostgreSQL makes its end visible. Each snapshot that is taken from then on sees it as ended.
//! 3. If it has committed with an xid, it is entered among the ended ones.
//! 4. The floor is cleared.
//!
//! PREPARE TRANSACTION ends a session's transaction, but not for snapshots. What has drawn goes
//! into the table of [prepared] transactions before the floor is cleared.
//!
//! # What a reader does
//!
//! 1. It finds the greatest id that the database's [mark](crate::draw::mark::Mark::covered) covers,
//!    and reads what earlier readers of its database have [promised](Promise).
//! 2. It reads the lane's last id, and takes the lesser of it and the one that is covered.
//! 3. It reads each backend's floor, and then its ended transactions and runs: from the last one,
//!    as far back as the first one that its snapshot sees as ended. Those of other databases do not
//!    count.
//! 4. It reads the prepared transactions.
//! 5. **Open**: the id of step 2, but less than each floor of step 3; and at least what was
//!    promised. The reader promises this to later readers.
//! 6. The settled id is that one, but less than the floor of each ended or prepared transaction
//!    that runs for its snapshot.
//!
//! # Why it holds
//!
//! Let a transaction have drawn at or below the id of step 2. Its exchange of the word comes before
//! the reading of the word, and the store of its floor before the exchange. So step 3 finds the
//! floor, or finds it cleared, and then finds the transaction among the ended ones.
//!
//! - **The transactions of a slot end one after the other.** So a snapshot that sees one as ended
//!   sees all earlier ones of the slot as ended, also those of other databases.
//! - **A run that has ended as a whole is over.** The snapshot that sees its last transaction as
//!   ended sees all of it so. If not, all of it counts as running, which lowers the settled id.
//! - **A floor may lie below what was settled, for a moment.** Then the word has gone on since its
//!   draw has read it, so the exchange will fail. A promise tells such a floor from a real one: no
//!   open transaction has drawn at or below what was promised. So the settled id never falls from
//!   one snapshot to a later one, while runs are not needed. In a session it never falls
//!   ([`answers`]).
//! - **Only what is open is promised.** Who runs for a snapshot is found anew for each snapshot: an
//!   older one does not see what a newer one sees.
//! - **The lane's word has no number in it.** So the last id is read under one version of the
//!   [`Numbers`]. Other numbers begin in a later tick (`numbers.rs`).
//!
//! # Through a restart
//!
//! The lanes are lost in a restart, and the marks are not. Each database begins above its own mark.
//! The lane's last id may be one that another database has drawn, far above that. So the settled id
//! stays at or below what the database's mark covers, durably. Then no id at or below it is drawn
//! in the database after a restart or a crash, and the next life's settled id is not less. A reader
//! misses nothing by that: the mark is stored before the database's ids are drawn, so it covers
//! all those that were drawn before the reader looked. `tests/simulation.rs` has lies for this.
//!
//! # Memory ordering
//!
//! | access | order | partner |
//! |---|---|---|
//! | store of the floor; its clearing | Release | load of the floor: a floor shows its database, and a cleared one the entry |
//! | exchange of the lane's word, load of the word | Release, Acquire | each other: the reader of a word finds the floors of all draws up to it |
//! | an ended transaction's values, and then the count | Release | loads of the count, the values, and the count again: a value that is overwritten shows the count before it |
//! | a run's values, and then the number of changes | Release | the same |
//! | database of a slot | Release | its load after the floor |
//! | raising a promise | AcqRel | its load: who finds a promise finds what the one who made it has found |
//!
//! `tests/loom/settled.rs` takes steps away, or changes their order, and finds an id that is
//! missed.

use crate::atomic::{AtomicI64, AtomicU32, Ordering};
use crate::draw::generator::{Announce, Generator};
use crate::draw::numbers::Numbers;
use crate::draw::stamp::IdStamp;
use crate::id::layout::Layout;

pub mod answers;
pub mod ended;
pub mod prepared;
pub mod run;

pub use ended::Ended;

/// The first id of a backend's open transaction. It is a word of its own, so that it can lie beside
/// what each draw writes.
#[derive(Debug)]
pub struct Floor(AtomicI64);

/// Never drawn, because a lane's first word is 1.
const NONE: i64 = 0;

impl Floor {
    /// Makes the floor of a backend that has drawn nothing.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        Self(AtomicI64::new(NONE))
    }

    /// Whether the open transaction has drawn. For the backend itself.
    #[inline(always)]
    pub fn is_set(&self) -> bool {
        // Relaxed: only this backend writes it.
        self.0.load(Ordering::Relaxed) != NONE
    }

    /// Returns what a draw of this backend announces: nothing, if its transaction has drawn before.
    #[inline(always)]
    pub fn announce(&self) -> FirstDraw<'_> {
        FirstDraw((!self.is_set()).then_some(self))
    }

    /// Returns the first id of the open transaction, `None` if it has drawn none.
    pub fn get(&self) -> Option<i64> {
        // Acquire: pairs with the Release in `set`.
        Some(self.0.load(Ordering::Acquire)).filter(|floor| *floor != NONE)
    }

    /// Clears the floor.
    pub fn clear(&self) {
        self.set(NONE);
    }

    #[inline(always)]
    fn set(&self, floor: i64) {
        // Release: pairs with the load in `get`.
        self.0.store(floor, Ordering::Release);
    }
}

/// See [`Floor::announce`]. By default, nothing is announced.
#[derive(Debug, Clone, Copy, Default)]
pub struct FirstDraw<'a>(Option<&'a Floor>);

impl Announce for FirstDraw<'_> {
    #[inline(always)]
    fn attempts(&self, first_id: impl FnOnce() -> i64) {
        if let Some(floor) = self.0 {
            floor.set(first_id());
        }
    }

    #[inline(always)]
    fn is_refused(&self) {
        if let Some(floor) = self.0 {
            floor.clear();
        }
    }
}

/// What a reader's snapshot knows.
pub trait Snapshot {
    /// Whether a transaction runs for the snapshot, or has not begun for it, so that its rows are
    /// invisible. `xid` is a full transaction id, of 64 bits.
    fn sees_running(&self, xid: u64) -> bool;
}

/// What is told in one slot, wherever its parts lie.
#[derive(Debug, Clone, Copy)]
pub struct SlotView<'a> {
    /// The floor of the open transaction.
    pub floor: &'a Floor,
    /// The ended transactions.
    pub ended: &'a Ended,
}

impl SlotView<'_> {
    /// Takes the slot over, for a backend that is connected to `database`.
    pub fn begin(&self, database: u32) {
        // Another library may have kept the backend before from clearing it at its end. That
        // transaction was rolled back.
        self.floor.clear();
        // Release: pairs with the load in `open_floor`. The floors of this backend come later.
        self.ended.database.store(database, Ordering::Release);
    }

    /// Notes the end of the backend's transaction, once it is visible. `xid` is its full
    /// transaction id if it has committed with one.
    #[inline]
    pub fn end(&self, xid: impl FnOnce() -> Option<u64>) {
        let Some(floor) = self.floor.get() else { return };
        if let Some(xid) = xid() {
            self.ended.enter(xid, floor);
        }
        self.floor.clear();
    }

    /// Returns the floor, if it is that of a transaction of `database`.
    pub fn open_floor(&self, database: u32) -> Option<i64> {
        let floor = self.floor.get()?;
        // Acquire: pairs with the Release in `begin`. If it is another database by now, the
        // transaction has ended, and what is read after this shows it.
        (self.ended.database.load(Ordering::Acquire) == database).then_some(floor)
    }

    /// Returns the floor, and the database of the backend. For people: a backend that takes the
    /// slot over may mix with the one before.
    pub fn open(&self) -> Option<(i64, u32)> {
        // Acquire: as in `open_floor`.
        Some((self.floor.get()?, self.ended.database.load(Ordering::Acquire)))
    }

    /// Returns what [`open_floor`](Self::open_floor) does to a reader to whom only floors up to
    /// `last` matter. Returns `None` if the backend's process has ended and could not clear it:
    /// that transaction was rolled back.
    fn floor_up_to(&self, last: i64, database: u32, is_alive: impl Fn() -> bool) -> Option<i64> {
        loop {
            let floor = self.open_floor(database).filter(|floor| *floor <= last)?;
            if is_alive() {
                return Some(floor);
            }
            // The transaction may have ended, and then the process, since the floor was read.
            if self.open_floor(database) == Some(floor) {
                return None;
            }
        }
    }
}

/// What was promised to the readers of one database: no open transaction of it has drawn at or
/// below this id, and none will.
#[derive(Debug)]
pub struct Promise {
    /// The database; 0 if the promise is free.
    database: AtomicU32,
    id: AtomicI64,
    /// The id that the database's mark covered when a reader looked last.
    covered: AtomicI64,
}

impl Promise {
    /// Makes a free one.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        Self { database: AtomicU32::new(0), id: AtomicI64::new(0), covered: AtomicI64::new(0) }
    }

    /// Returns its database; 0 if it is free.
    pub fn database(&self) -> u32 {
        // Acquire: pairs with the Release in `take`.
        self.database.load(Ordering::Acquire)
    }

    /// Finds the promise of a database. They are taken from the front.
    pub fn find(all: &[Self], database: u32) -> Option<&Self> {
        let mut taken = all.iter().take_while(|promise| promise.database() != 0);
        taken.find(|promise| promise.database() == database)
    }

    /// Gives it to a database that has none. It must be free, or belong to a database that was
    /// dropped, because no session uses that one any more. Call it with a lock held that one
    /// session has at a time.
    pub fn take(&self, database: u32) {
        // Relaxed, twice: found only after the database.
        self.id.store(0, Ordering::Relaxed);
        self.covered.store(0, Ordering::Relaxed);
        // Release: pairs with the load in `database`.
        self.database.store(database, Ordering::Release);
    }

    /// Returns the greatest id that was promised, 0 if none was.
    pub fn id(&self) -> i64 {
        // Acquire: pairs with the Release in `raise`.
        self.id.load(Ordering::Acquire)
    }

    /// Returns the id that [`cover`](Self::cover) was given last, 0 if none.
    pub fn covered(&self) -> i64 {
        // Acquire: pairs with the Release in `cover`.
        self.covered.load(Ordering::Acquire)
    }

    /// Notes what [`Mark::covered`](crate::draw::mark::Mark::covered) has returned. It is durable.
    pub fn cover(&self, id: i64) {
        // Release: pairs with the load in `covered`. A reader that overwrites a later one's makes
        // the next one flush once more, which finds nothing to do.
        self.covered.store(id, Ordering::Release);
    }

    /// Promises an id.
    pub fn raise(&self, id: i64) {
        // AcqRel: pairs with the load in `id`. Acquire, because a higher promise that stays is
        // passed on, with what came before it.
        self.id.fetch_max(id, Ordering::AcqRel);
    }
}

/// What a reader needs besides the slots.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    /// The server's lanes. There must be no backup lane: two lanes do not ascend together.
    pub generator: &'a Generator,
    /// The server's numbers.
    pub numbers: &'a Numbers,
    /// The server's layout.
    pub layout: &'a Layout,
    /// The reader's database.
    pub database: u32,
    /// Its promise. Without one, the settled id may fall.
    pub promise: Option<&'a Promise>,
    /// What its mark [covers](crate::draw::mark::Mark::covered).
    pub covered: i64,
}

impl Reader<'_> {
    /// Returns the settled id for a snapshot that was taken before; 0 if there is none, and `None`
    /// if the server's numbers have changed meanwhile. Then the caller tries again.
    ///
    /// - `drawing` returns what the server draws with now, `None` if it has no numbers.
    /// - `slots` are all slots. `is_alive` says whether the process that has the slot of an index
    ///   runs. It is asked only where a floor would make the result less.
    /// - `prepared` returns the least floor of the database's prepared transactions that run for
    ///   the snapshot.
    pub fn settled<'b>(
        &self,
        drawing: impl FnOnce() -> Option<IdStamp>,
        slots: impl Iterator<Item = SlotView<'b>>,
        snapshot: &impl Snapshot,
        is_alive: impl Fn(usize) -> bool,
        prepared: impl FnOnce() -> Option<i64>,
    ) -> Option<i64> {
        let promised = self.promise.map_or(0, Promise::id);
        let mut open = self.last_id(drawing)?.min(self.covered);
        let mut ended = i64::MAX;
        for (index, told) in slots.enumerate() {
            if let Some(floor) = told.floor_up_to(open, self.database, || is_alive(index)) {
                open = floor - 1;
            }
            if let Some(floor) = told.ended.least(self.database, snapshot) {
                ended = ended.min(floor - 1);
            }
        }
        if let Some(floor) = prepared() {
            ended = ended.min(floor - 1);
        }
        let open = open.max(promised);
        if let Some(promise) = self.promise {
            promise.raise(open);
        }
        Some(open.min(ended))
    }

    /// Reads the lane's last id under one version of the numbers; `None` if they change.
    pub fn last_id(&self, drawing: impl FnOnce() -> Option<IdStamp>) -> Option<i64> {
        let version = self.numbers.version()?;
        let id = self.generator.last_id(self.layout, drawing().as_ref());
        (self.numbers.version() == Some(version)).then_some(id)
    }
}
