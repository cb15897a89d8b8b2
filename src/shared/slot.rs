//! A slot: what one backend has drawn and met, in shared memory.
//!
//! Only its backend writes it, with plain stores, so that counting costs no shared write. Any
//! process may read it. Its counts must never be set back: the next backend in a slot goes on from
//! the counts of the one before. So nothing has to be saved when a backend ends, however it ends.
//! Where slots lie: `shmem.rs`. What is made of them: `stats.rs`.

use std::mem::offset_of;

use snowflake_core::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering};
use snowflake_core::draw::generator::IdRun;
use snowflake_core::draw::settled::{Ended, FirstDraw, Floor, SlotView};
use snowflake_core::id::identity::LaneName;

use crate::postgres::backend;

/// Makes an enum whose variants are the places of an array, and counts them. An array that is too
/// short for a variant would be noticed only at that variant's first use.
macro_rules! places {
    ($(#[$of_enum:meta])* pub enum $name:ident { $($(#[$of_variant:meta])* $variant:ident,)+ }) => {
        $(#[$of_enum])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum $name {
            $($(#[$of_variant])* $variant,)+
        }

        impl $name {
            /// All variants.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// How many variants there are.
            pub const COUNT: usize = Self::ALL.len();
        }
    };
}

pub(crate) use places;

places! {
    /// What is counted. A backend counts in its slot; the sum over all slots is the server's.
    pub enum Counter {
        /// Ids drawn.
        Drawn,
        /// Drawn ids that carry the backup worker's number.
        DrawnBackup,
        /// Drawn ids whose tick had not begun by the clock.
        Borrowed,
        /// Draws that found the clock behind by more than can be borrowed.
        ClockStepsBack,
        /// Marks logged, and how long that took, in microseconds, from the first write to the end
        /// of the flush.
        MarksMoved,
        MoveMicros,
        /// Draws that had to wait, by reason ([`WaitReason`](crate::ids::waiting::WaitReason)), and
        /// how long they waited, in microseconds.
        UsedUpWaits,
        ClockWaits,
        MarkWaits,
        LeaseWaits,
        UsedUpWaitMicros,
        ClockWaitMicros,
        MarkWaitMicros,
        LeaseWaitMicros,
        /// Draws that were refused, by reason ([`crate::ids::stats::note_refusal`]). Each counts in
        /// one of these.
        ClockStepsBackRefused,
        ClockJumpsRefused,
        MarkRefused,
        LayoutRefused,
        NumberRefused,
        TimeUsedUpRefused,
        DatabasesRefused,
        LeaseRefused,
        FleetRefused,
    }
}

/// One number for each [`Counter`].
pub type DrawCounts = [u64; Counter::COUNT];

/// What one backend has drawn and met. Where cache lines have 64 bytes, they are its own. Where
/// they have 128, what two sessions' draws write is still not in one line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot {
    /// The last id drawn by the backends that have had the slot, [`NO_ID`] if none.
    last_id: AtomicI64,
    /// The greatest id at the time when an id was drawn that may have been lower. (All others
    /// ascend, so the last one is the greatest.)
    greatest_id: AtomicI64,
    /// The first id of the open transaction.
    floor: Floor,
    /// The counts of all backends that have had the slot.
    counts: [AtomicU64; Counter::COUNT],
    /// The process that took the slot over last, which may have ended; 0 before the first.
    pid: AtomicI32,
    /// The counts when that process took the slot over.
    drawn_before: AtomicU64,
    waits_before: AtomicU64,
    /// The last transactions that had drawn.
    ended: Ended,
}

// What a draw writes is in the first cache line, so the counts of ids come first.
const _: () = assert!(
    offset_of!(Slot, last_id) < 64
        && offset_of!(Slot, greatest_id) < 64
        && offset_of!(Slot, floor) < 64
        && offset_of!(Slot, counts) + (Counter::Borrowed as usize + 1) * size_of::<AtomicU64>() <= 64
        && align_of::<Slot>() == 64
        && size_of::<Slot>() >= 128
);

/// Not an id, because ids are not negative.
const NO_ID: i64 = -1;

/// What a slot says of the backend that owns it.
#[derive(Debug, Clone, Copy)]
pub struct OfBackend {
    pub pid: i32,
    /// Ids drawn.
    pub drawn: u64,
    /// Draws that had to wait.
    pub waits: u64,
    /// The last id drawn.
    pub last_id: Option<i64>,
}

// Relaxed in all functions of a slot, and a load and a store instead of an addition, because only
// the backend that owns the slot writes it. Readers need no order between two numbers. The next
// owner sees what an earlier one wrote, because PostgreSQL handles PGPROCs under a spinlock in
// between. What a slot tells of transactions has orderings of its own (`core/draw/settled.rs`): a
// reader of a floor also finds the process that has drawn it, which took the slot over before.
impl Slot {
    /// Makes a slot that no backend has had.
    pub fn new() -> Self {
        Self {
            last_id: AtomicI64::new(NO_ID),
            greatest_id: AtomicI64::new(NO_ID),
            floor: Floor::new(),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            pid: AtomicI32::new(0),
            drawn_before: AtomicU64::new(0),
            waits_before: AtomicU64::new(0),
            ended: Ended::new(),
        }
    }

    /// Takes the slot over from the backend that had it, for one that is connected to `database`.
    pub fn begin(&self, pid: i32, database: u32) {
        self.view().begin(database);
        self.drawn_before.store(self.count(Counter::Drawn), Ordering::Relaxed);
        self.waits_before.store(self.waits(), Ordering::Relaxed);
        self.pid.store(pid, Ordering::Relaxed);
    }

    /// Returns what the slot tells of transactions.
    pub fn view(&self) -> SlotView<'_> {
        SlotView { floor: &self.floor, ended: &self.ended }
    }

    /// Whether the transaction of the backend that owns the slot has drawn.
    #[inline(always)]
    pub fn has_first_id(&self) -> bool {
        self.floor.is_set()
    }

    /// Returns what the backend that owns the slot announces its draw to.
    #[inline(always)]
    pub fn announce(&self) -> FirstDraw<'_> {
        self.floor.announce()
    }

    /// Returns the process that took the slot over last, if it still runs.
    pub fn process(&self, number: usize) -> Option<i32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| backend::is_running(*pid, number))
    }

    /// Counts an id that was drawn in the clock's tick from the primary lane, and notes it as
    /// [`note_id`](Self::note_id) does.
    #[inline(always)]
    pub fn note_one(&self, id: i64) {
        self.add(Counter::Drawn, 1);
        self.note_id(id);
    }

    /// Counts `count` ids that were drawn.
    #[inline]
    pub fn note_run(&self, run: &IdRun, count: u64) {
        self.add(Counter::Drawn, count);
        if run.lane() == LaneName::Backup {
            self.add(Counter::DrawnBackup, count);
        }
        if run.borrowed() > 0 {
            self.add(Counter::Borrowed, run.borrowed());
        }
    }

    /// Notes the last id drawn. It is greater than all earlier ones except those of
    /// [`note_any`](Self::note_any).
    #[inline]
    pub fn note_id(&self, id: i64) {
        self.last_id.store(id, Ordering::Relaxed);
    }

    /// Notes the last id drawn, if it may be lower than earlier ones: a backup worker's, or one of
    /// a batch that was reserved earlier.
    pub fn note_any(&self, id: i64) {
        let greatest = self.last_id.load(Ordering::Relaxed).max(self.greatest_id.load(Ordering::Relaxed));
        self.greatest_id.store(greatest.max(id), Ordering::Relaxed);
        self.last_id.store(id, Ordering::Relaxed);
    }

    /// Adds to a count.
    #[inline]
    pub fn add(&self, counter: Counter, number: u64) {
        let count = &self.counts[counter as usize];
        count.store(count.load(Ordering::Relaxed).wrapping_add(number), Ordering::Relaxed);
    }

    /// Returns a count of all backends that have had the slot.
    pub fn count(&self, counter: Counter) -> u64 {
        self.counts[counter as usize].load(Ordering::Relaxed)
    }

    fn waits(&self) -> u64 {
        let waits = [Counter::UsedUpWaits, Counter::ClockWaits, Counter::MarkWaits, Counter::LeaseWaits];
        waits.map(|counter| self.count(counter)).iter().sum()
    }

    /// Returns the last id drawn by the backend that owns the slot.
    pub fn last_id(&self) -> Option<i64> {
        let has_drawn = self.count(Counter::Drawn) != self.drawn_before.load(Ordering::Relaxed);
        Some(self.last_id.load(Ordering::Relaxed)).filter(|_| has_drawn)
    }

    /// Returns the greatest id drawn by the backends that have had the slot.
    pub fn greatest_id(&self) -> Option<i64> {
        let greatest = self.last_id.load(Ordering::Relaxed).max(self.greatest_id.load(Ordering::Relaxed));
        Some(greatest).filter(|id| *id != NO_ID)
    }

    /// Returns what the backend that owns the slot has done, or `None` if it has ended, or done
    /// nothing yet. (A backend does not note its end, because a process has few places for exit
    /// callbacks: see `catalog.rs`.)
    pub fn of_backend(&self, number: usize) -> Option<OfBackend> {
        let pid = self.process(number)?;
        // If another backend takes the slot over between two of these readings, they mix both
        // backends.
        let drawn = self.count(Counter::Drawn).saturating_sub(self.drawn_before.load(Ordering::Relaxed));
        let waits = self.waits().saturating_sub(self.waits_before.load(Ordering::Relaxed));
        (drawn + waits > 0).then(|| OfBackend { pid, drawn, waits, last_id: self.last_id() })
    }
}
