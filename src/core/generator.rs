//! The generator: how an id is drawn, and why no two are equal. Everything atomic about it is in this file.
//!
//! # The word
//!
//! A **lane** is one atomic word in shared memory that holds the last id drawn from it, without its fixed bits:
//!
//! ```text
//!  63                          S  S-1           0        S = width of the layout's sequence
//! +------------------------------+---------------+
//! | tick                         | sequence      |        0 = nothing drawn yet
//! +------------------------------+---------------+
//! ```
//!
//! Worker and datacenter are added when the id is composed. Adding 1 to a full sequence carries into the next tick, which
//! is what borrowing is: the word may run ahead of the clock, by at most `max_borrow`.
//!
//! What a draw does; the first row that fits counts:
//!
//! | clock | word | |
//! |---|---|---|
//! | before the epoch | | [`LaneRefusal::BeforeEpoch`] |
//! | after the last tick | | [`LaneRefusal::TimeUsedUp`] |
//! | | word + 1 is beyond the last tick | [`LaneRefusal::TimeUsedUp`] |
//! | in a later tick than the word | | takes the clock's tick, at its first sequence ([`first_sequence`]) |
//! | in the word's tick | below the tick's first sequence (an earlier run or loan reached into the tick) | the same |
//! | in the word's tick, or earlier | word + 1 is in a tick up to limit | takes word + 1, perhaps borrowed |
//! | in the word's tick, or earlier | the word's own tick is beyond limit | [`LaneRefusal::Behind`] |
//! | in the word's tick, or earlier | word + 1 is in a tick beyond limit | [`LaneRefusal::UsedUp`] |
//!
//! and what it takes is refused if its tick ends after the mark ([`LaneRefusal::MarkReached`]);
//! where `limit` is the tick that holds the clock + the allowance (0 or `max_borrow`).
//!
//! # The invariants
//!
//! - **I1** Each successful draw raises its lane's word (compare-exchange from the word that was read to a greater one). So
//!   ids of one server are unique and, per lane, strictly increasing in the order drawn, across all backends. Without
//!   backup workers, an id whose draw began after another's had returned is greater.
//! - **I2** A rollback is reported only if the clock, read *after* the word, is behind it. Read before, a backend that
//!   slept between the two would compare an old clock with a new word and see a rollback that is none.
//! - **I3** The end of an id's tick is at or below the mark when the id is published.
//! - **I4** An id's tick is at most the tick of the clock + `max_borrow` when it is drawn.
//! - **I5** No field spills into another, on any path; the layout's last tick is checked on every path.
//! - **I6** Two lanes of a fleet never compose the same worker number: with backup workers, a server's number is in the
//!   lower half and its backup lane uses number + half ([`Identity::new`]).
//!
//! # Memory ordering
//!
//! | access | order | partner |
//! |---|---|---|
//! | load of the word | Acquire | the compare-exchange of whoever wrote it: the clock reading that follows comes after the writer's (I2) |
//! | compare-exchange, success | Release | that load |
//! | compare-exchange, failure | Relaxed | none: the value is thrown away, word and clock are read anew |
//! | raising a lane, to the mark or above a predecessor | Release | that load; a draw that is under way fails its compare-exchange |
//! | whether a predecessor was followed: store, load | Release, Acquire | each other: who finds that it was done finds the lanes raised |
//! | load of the published mark | Acquire | the store that published it: its log record, and the lane's raise, come before |
//! | publishing a mark, forgetting it | Release | that load |
//! | claiming marks: owner, then version | AcqRel, Release | the loads of a session that looks for its marks: version, then owner, both Acquire |
//! | load of the version, after the mark | Relaxed | ordered by the mark's Acquire: a mark of the next owner shows its version |
//! | a lane's word, and what is seldom, for statistics | Relaxed | none: for people, not ordered with anything |
//! | the clock reference | Relaxed | none: one word, compared with two clocks |
//!
//! I1 needs no ordering at all, only that one word has one modification order. `tests/loom.rs` runs all schedules of two
//! and three threads, and shows that a clock read before the word breaks I2.
//!
//! Nothing here sleeps, logs, locks or knows PostgreSQL: a draw returns ids, or the reason why not.

use crate::clock::Clock;
use crate::error::IdError;
use crate::layout::{Field, Layout};

/// The one place that knows loom, which swaps the atomics for its own to try all schedules.
mod atomic {
    #[cfg(loom)]
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
    #[cfg(not(loom))]
    pub(super) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
}
use atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// A mark that limits nothing, in milliseconds since 1970.
pub const NO_MARK: i64 = i64::MAX;

/// Which of a server's two lanes. As wide as a word: a byte within [`Run`] made copying it stall for some nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum LaneName {
    /// Always there; composes the server's worker number.
    Primary,
    /// Used with backup workers; composes worker number + half of the numbers.
    Backup,
}

impl LaneName {
    /// Both lanes.
    pub const ALL: [Self; 2] = [Self::Primary, Self::Backup];

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Primary => Self::Backup,
            Self::Backup => Self::Primary,
        }
    }
}

/// The numbers that every id of a server carries, checked against the layout and in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Datacenter and worker bits of the primary lane and of the backup lane.
    fixed: [u64; 2],
    backup: bool,
}

impl Identity {
    /// Checks a server's numbers. `None` is right for a field that the layout lacks, and only then.
    ///
    /// With `backup`, the upper half of the worker numbers belongs to backup lanes: `worker` is then in `0..half`.
    ///
    /// # Errors
    /// [`IdError::Part`] with the range that holds (halved with `backup`), [`IdError::PartMissing`],
    /// [`IdError::NoField`], [`IdError::NoBackup`].
    pub fn new(layout: &Layout, worker: Option<i64>, datacenter: Option<i64>, backup: bool) -> Result<Self, IdError> {
        let numbers = Self::worker_numbers(layout, backup)?;
        if let Some(value) = worker.filter(|value| backup && !(0..numbers).contains(value)) {
            return Err(IdError::Part { field: Field::Worker, value, max: numbers - 1 });
        }
        // I6: with backup workers, primary lanes of the fleet use 0..half and backup lanes half..2*half.
        let of_backup = worker.map(|value| if backup { value + numbers } else { value });
        Ok(Self { fixed: [layout.fixed_bits(datacenter, worker)?, layout.fixed_bits(datacenter, of_backup)?], backup })
    }

    /// How many servers the layout can number: 2^bits, or half of it with backup workers; 1 without a worker field.
    ///
    /// # Errors
    /// [`IdError::NoBackup`] for backup workers in a layout without a worker field.
    pub fn worker_numbers(layout: &Layout, backup: bool) -> Result<i64, IdError> {
        match (layout.max_of(Field::Worker), backup) {
            (None, true) => Err(IdError::NoBackup),
            (max, _) => Ok((max.unwrap_or(0) as i64 + 1) >> u32::from(backup)),
        }
    }

    /// Whether the server has a backup lane.
    pub fn has_backup(&self) -> bool {
        self.backup
    }

    /// The server's number in a field, 0 where the layout lacks the field.
    pub fn number(&self, layout: &Layout, field: Field) -> u64 {
        let bits = layout.field(field);
        self.fixed[LaneName::Primary as usize] >> bits.shift & bits.max()
    }

    /// Whether some id could be composed by both of two servers, given the same time.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.fixed.iter().any(|fixed| other.fixed.contains(fixed))
    }

    /// Composes the ids of a run, ascending.
    pub fn ids(&self, layout: &Layout, run: Run) -> impl Iterator<Item = i64> + use<> {
        let (identity, layout) = (*self, *layout);
        (run.first..=run.last).map(move |word| identity.id(&layout, run.lane, word))
    }

    /// Composes the last id of a run; for a run of one, the id.
    #[inline]
    pub fn last_id(&self, layout: &Layout, run: Run) -> i64 {
        self.id(layout, run.lane, run.last)
    }

    #[inline]
    fn id(&self, layout: &Layout, lane: LaneName, word: u64) -> i64 {
        layout.pack(word >> layout.sequence.bits, self.fixed[lane as usize], word & layout.sequence.max())
    }
}

/// Ids drawn together: consecutive words of one lane, perhaps across the end of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    lane: LaneName,
    first: u64,
    last: u64,
    borrowed: u64,
}

impl Run {
    /// The lane that served.
    pub fn lane(self) -> LaneName {
        self.lane
    }

    /// How many ids the run holds, at least 1.
    pub fn count(self) -> u64 {
        self.last - self.first + 1
    }

    /// How many of them are borrowed: of ticks after the one that the clock was in.
    #[inline]
    pub fn borrowed(self) -> u64 {
        self.borrowed
    }
}

/// The bounds of one draw, all in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits<M = [i64; 2]> {
    /// How far ids may run ahead of the clock; not negative.
    pub max_borrow_ms: i64,
    /// For each lane, the instant (since 1970) that no id's tick may end after; [`NO_MARK`] for none.
    pub marks_ms: M,
}

/// Says for each lane up to which instant (milliseconds since 1970) it may draw.
pub trait MarkLimits: Copy {
    /// Reads it. Asked after the lane's word was read, at each attempt.
    fn limit_ms(&self, lane: LaneName) -> i64;
}

impl MarkLimits for [i64; 2] {
    #[inline(always)]
    fn limit_ms(&self, lane: LaneName) -> i64 {
        self[lane as usize]
    }
}

/// Why one lane does not serve. Instants are milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneRefusal {
    /// The clock is before the layout's epoch.
    BeforeEpoch {
        /// What the clock says.
        now_ms: i64,
    },
    /// The layout's last tick is over, or all its ids are drawn.
    TimeUsedUp,
    /// The clock is behind the last id by more than the allowance.
    Behind {
        /// How far the clock is behind the start of the last id's tick.
        behind_ms: i64,
        /// How long the clock has to run until it is no longer behind; the tick may be used up even then.
        wait_ms: i64,
    },
    /// All ids that the clock and the allowance permit are drawn.
    UsedUp {
        /// How long the clock has to run until the lane serves.
        wait_ms: i64,
    },
    /// The mark has to be moved first.
    MarkReached {
        /// The end of the tick that the draw wants.
        end_ms: i64,
    },
}

/// Why no lane serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The clock is before the layout's epoch.
    BeforeEpoch {
        /// What the clock says, in milliseconds since 1970.
        now_ms: i64,
    },
    /// The layout's last tick is over, or all its ids are drawn.
    TimeUsedUp,
    /// All ids that clock and `max_borrow` permit are drawn: wait.
    UsedUp {
        /// How long the clock has to run until a lane serves, in milliseconds.
        wait_ms: i64,
    },
    /// The clock is behind, but by no more than another `max_borrow`: wait. (A saturated generator has borrowed all it
    /// may, and would take the smallest step back for a rollback.)
    Behind {
        /// How long the clock has to run until a lane serves, in milliseconds.
        wait_ms: i64,
    },
    /// The clock was set back. What to do is the operator's choice.
    Rollback {
        /// How far the clock is behind the last id, in milliseconds.
        behind_ms: i64,
        /// How long the clock has to run until a lane serves, in milliseconds.
        wait_ms: i64,
    },
    /// The mark of `lane` has to be moved first.
    MarkReached {
        /// The lane.
        lane: LaneName,
        /// The end of the tick that the draw wants, in milliseconds since 1970.
        end_ms: i64,
    },
}

/// The most ids that one run may take: a sixteenth of a tick's sequence, so that no session starves the others.
pub fn longest_run(layout: &Layout) -> u32 {
    // At most 2^31 / 16; the sequence has at least one bit.
    (((layout.sequence.max() + 1) / 16) as u32).max(1)
}

/// The first sequence of a tick: a hash of the tick, below 1/64 of the sequence's range.
///
/// If every tick began at 0, a table that gets few ids per tick would hold mostly even ones, and users shard by `id % n`.
/// Costs under 1 % of the ceiling. (Fibonacci hashing, Knuth, TAOCP volume 3, 6.4: the high bits of a product with
/// 2^64 / golden ratio.)
#[inline]
pub fn first_sequence(layout: &Layout, tick: u64) -> u64 {
    match layout.sequence.bits {
        ..=6 => 0,
        bits => tick.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 + 6 - bits),
    }
}

/// The last word of a tick, or of the layout if the tick is beyond it; nothing is drawn yet before the epoch.
fn last_word(layout: &Layout, tick: i64) -> u64 {
    u64::try_from(tick).map_or(0, |tick| tick.min(layout.last_tick()) << layout.sequence.bits | layout.sequence.max())
}

/// One lane: the last id drawn from it, without its fixed bits. On cache lines of its own (128 bytes, since processors
/// fetch them in pairs).
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Lane(AtomicU64);

impl Lane {
    /// A lane from which nothing was drawn.
    #[allow(clippy::new_without_default, reason = "a lane is made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts all ids of ticks that end at `mark_ms` or before as drawn. Never lowers the lane.
    pub fn raise(&self, layout: &Layout, mark_ms: i64) {
        self.raise_over(layout, layout.tick_at(mark_ms).saturating_sub(1));
    }

    /// Counts all ids of the ticks up to `tick` as drawn. Never lowers the lane.
    fn raise_over(&self, layout: &Layout, tick: i64) {
        // Release: pairs with the load in `draw`, as every write of the word does.
        self.0.fetch_max(last_word(layout, tick), Ordering::Release);
    }

    /// Draws `count` consecutive ids: the whole run or nothing. All bounds hold for the run's last id.
    ///
    /// # Errors
    /// [`LaneRefusal`]; the lane is then unchanged.
    #[inline(always)]
    pub fn draw<C: Clock>(
        &self,
        layout: &Layout,
        clock: &C,
        allowance_ms: i64,
        mark_ms: i64,
        count: u32,
    ) -> Result<(u64, u64), LaneRefusal> {
        self.draw_below(layout, clock, allowance_ms, || mark_ms, count).map(|words| (words.first, words.last))
    }

    /// The same with a mark that may change meanwhile. It is read between the word and the compare-exchange: if the lane was
    /// raised before that mark was published, and after the word was read, then the compare-exchange fails.
    #[inline(always)]
    fn draw_below<C: Clock>(
        &self,
        layout: &Layout,
        clock: &C,
        allowance_ms: i64,
        mark_ms: impl Fn() -> i64,
        count: u32,
    ) -> Result<Words, LaneRefusal> {
        loop {
            // Acquire: pairs with the Release below, and keeps the clock reading after the load (I2).
            let word = self.0.load(Ordering::Acquire);
            let now_ms = clock.now_ms();
            let words = next_run(layout, word, now_ms, allowance_ms, &mark_ms, count)?;
            // Release: whoever reads this word reads the clock after we did. Relaxed: a failure's value is not used.
            // Weak: the loop is there anyway.
            if self.0.compare_exchange_weak(word, words.last, Ordering::Release, Ordering::Relaxed).is_ok() {
                return Ok(words);
            }
        }
    }
}

/// What a draw takes from a lane.
#[derive(Clone, Copy)]
struct Words {
    first: u64,
    last: u64,
    /// How many of them are of ticks after the clock's.
    borrowed: u64,
}

/// The decision of a draw: a pure function of the word and the clock.
///
/// The short way, for a run that follows the word within the clock's own tick: all but one comparison can be made before
/// the clock is read, and that one needs no division. Everything else goes the whole way ([`next_run_in_full`]), and
/// the short way must never decide otherwise; `tests/properties` holds both against one model.
#[inline(always)]
fn next_run(
    layout: &Layout,
    word: u64,
    now_ms: i64,
    allowance_ms: i64,
    mark_ms: &impl Fn() -> i64,
    count: u32,
) -> Result<Words, LaneRefusal> {
    let sequence_bits = layout.sequence.bits;
    let (first, last) = (word + 1, word + u64::from(count));
    let tick = last >> sequence_bits;
    let start_ms = layout.start_of_ms(tick);
    let end_ms = start_ms + layout.unit().ms();
    // Else the whole way would skip to the tick's first sequence.
    let follows = first >= (tick << sequence_bits) + first_sequence(layout, tick);
    if (start_ms..end_ms).contains(&now_ms) && follows && tick <= layout.last_tick() && end_ms <= mark_ms() {
        return Ok(Words { first, last, borrowed: 0 });
    }
    next_run_in_full(layout, word, now_ms, allowance_ms, mark_ms(), count)
}

/// The whole decision: the table at the top of this file.
#[inline(never)]
fn next_run_in_full(
    layout: &Layout,
    word: u64,
    now_ms: i64,
    allowance_ms: i64,
    mark_ms: i64,
    count: u32,
) -> Result<Words, LaneRefusal> {
    let sequence_bits = layout.sequence.bits;
    let Ok(now) = u64::try_from(layout.tick_at(now_ms)) else {
        return Err(LaneRefusal::BeforeEpoch { now_ms });
    };
    // Before anything is shifted (I5): a clock beyond the layout's end would lose its high bits.
    if now > layout.last_tick() {
        return Err(LaneRefusal::TimeUsedUp);
    }
    let first = ((now << sequence_bits) + first_sequence(layout, now)).max(word + 1);
    let last = first + u64::from(count - 1);
    let tick = last >> sequence_bits;
    if tick > layout.last_tick() {
        return Err(LaneRefusal::TimeUsedUp);
    }
    // A tick is beyond the one that holds `allowed_ms` if and only if it starts after it (I4).
    let allowed_ms = now_ms.saturating_add(allowance_ms);
    let start_ms = layout.start_of_ms(tick);
    if start_ms > allowed_ms {
        let drawn_ms = layout.start_of_ms(word >> sequence_bits);
        return Err(if drawn_ms > allowed_ms {
            LaneRefusal::Behind { behind_ms: drawn_ms - now_ms, wait_ms: drawn_ms - allowed_ms }
        } else {
            LaneRefusal::UsedUp { wait_ms: start_ms - allowed_ms }
        });
    }
    let end_ms = start_ms + layout.unit().ms();
    if end_ms > mark_ms {
        return Err(LaneRefusal::MarkReached { end_ms });
    }
    // In the tick after the clock's and later ones; `now` may be the layout's last, which is no tick to borrow from.
    let borrowed_from = (now + 1) << sequence_bits;
    Ok(Words { first, last, borrowed: (last + 1).saturating_sub(borrowed_from.max(first)) })
}

/// All state of a server's ids that is shared by its backends: its lanes. It lives as long as shared memory.
#[derive(Debug)]
#[repr(C)]
pub struct Generator {
    lanes: [Lane; 2],
    /// Whether [`follow`](Self::follow) was called.
    has_followed: AtomicBool,
}

impl Generator {
    /// A generator that has drawn nothing, and follows nothing yet.
    #[allow(clippy::new_without_default, reason = "as for Lane")]
    pub fn new() -> Self {
        Self { lanes: [Lane::new(), Lane::new()], has_followed: AtomicBool::new(false) }
    }

    /// Counts as drawn, in both lanes, all that a predecessor whose words are lost can have drawn by `now_ms`: the generator
    /// before a crash or a restart, or that of the primary whose standby this server was. Does so once, at the first call. The
    /// next draw may have to wait for the next tick.
    ///
    /// To be called before anything is drawn, and by a server that may write: then the predecessor is dead. (When shared
    /// memory was made is too early: a standby's is older than its promotion.) What the predecessor has drawn is covered if
    /// its clock was not ahead of `now_ms`, and its `max_borrow` not greater.
    pub fn follow(&self, layout: &Layout, now_ms: i64, max_borrow_ms: i64) {
        // Acquire: pairs with the Release below.
        if self.has_followed.load(Ordering::Acquire) {
            return;
        }
        // Two sessions may both come here, for two databases. Raised twice, a lane skips some ids more, and repeats none.
        for lane in &self.lanes {
            lane.raise_over(layout, layout.tick_at(now_ms.saturating_add(max_borrow_ms)));
        }
        // Release: after the lanes are raised, so that a session that need not do it finds them so.
        self.has_followed.store(true, Ordering::Release);
    }

    /// The start of the tick that a lane has reached, in milliseconds since 1970, or `None` if nothing is drawn from it yet
    /// and nothing counts as drawn.
    pub fn reached_ms(&self, lane: LaneName, layout: &Layout) -> Option<i64> {
        // Relaxed: a reading for people, not ordered with anything.
        match self.lanes[lane as usize].0.load(Ordering::Relaxed) {
            0 => None,
            word => Some(layout.start_of_ms(word >> layout.sequence.bits)),
        }
    }

    /// Counts all ids of a lane as drawn whose ticks end at `mark_ms` (since 1970) or before. Never lowers the lane.
    pub fn raise(&self, lane: LaneName, layout: &Layout, mark_ms: i64) {
        self.lanes[lane as usize].raise(layout, mark_ms);
    }

    /// Draws `count` consecutive ids (1 to [`longest_run`]) from the first lane that serves: without backup workers the
    /// primary, borrowing; with them the primary, then the backup, then the backup, borrowing.
    ///
    /// # Errors
    /// [`Refusal`], of the lane that would serve soonest.
    #[inline(always)]
    pub fn draw<C: Clock, M: MarkLimits>(
        &self,
        layout: &Layout,
        identity: &Identity,
        clock: &C,
        limits: &Limits<M>,
        count: u32,
    ) -> Result<Run, Refusal> {
        debug_assert!((1..=longest_run(layout)).contains(&count) && limits.max_borrow_ms >= 0);
        if identity.backup {
            return self.draw_with_backup(layout, clock, limits, count);
        }
        self.draw_from(LaneName::Primary, layout, clock, limits.max_borrow_ms, limits, count)
    }

    /// The order with backup workers. Not inlined, so that the common case without them stays small.
    #[inline(never)]
    fn draw_with_backup<C: Clock, M: MarkLimits>(
        &self,
        layout: &Layout,
        clock: &C,
        limits: &Limits<M>,
        count: u32,
    ) -> Result<Run, Refusal> {
        let attempts = [(LaneName::Primary, 0), (LaneName::Backup, 0), (LaneName::Backup, limits.max_borrow_ms)];
        let mut soonest = None;
        for (lane, allowance_ms) in attempts {
            match self.draw_from(lane, layout, clock, allowance_ms, limits, count) {
                Ok(run) => return Ok(run),
                // Another lane must not serve in its place: moving the mark takes no time worth a step out of order.
                Err(refusal @ Refusal::MarkReached { .. }) => return Err(refusal),
                Err(refusal) => {
                    soonest = soonest.into_iter().chain([refusal]).min_by_key(Refusal::wait_ms_or_never);
                }
            }
        }
        Err(soonest.unwrap_or(Refusal::TimeUsedUp))
    }

    #[inline(always)]
    fn draw_from<C: Clock, M: MarkLimits>(
        &self,
        lane: LaneName,
        layout: &Layout,
        clock: &C,
        allowance_ms: i64,
        limits: &Limits<M>,
        count: u32,
    ) -> Result<Run, Refusal> {
        let mark_ms = || limits.marks_ms.limit_ms(lane);
        match self.lanes[lane as usize].draw_below(layout, clock, allowance_ms, mark_ms, count) {
            Ok(Words { first, last, borrowed }) => Ok(Run { lane, first, last, borrowed }),
            Err(refused) => Err(refused.judged(lane, limits.max_borrow_ms)),
        }
    }
}

/// The published marks of one database, in shared memory: up to which instant its lanes may draw, since so much is durable
/// in its log. On a cache line of its own.
///
/// ```text
/// +---------+---------+---------+---------+    owner    whose marks these are: database and sequence; NOBODY, RELEASED
/// | owner   | version | primary | backup  |    version  grows with each owner, so that one who comes back is another
/// +---------+---------+---------+---------+    lanes    the mark less half of MARK_AHEAD, or NOT_LOADED
/// ```
///
/// A lane's word holds less than the mark, so that one comparison of a draw asks both whether the mark permits it and
/// whether it is time to move the mark early. Only whoever holds the database's lock (`mark.rs`) publishes and claims;
/// anybody may [`forget`](Self::forget) marks: then they are loaded anew.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct PublishedMarks {
    owner: AtomicU64,
    version: AtomicU64,
    early_ms: [AtomicI64; 2],
}

// What the description of `max_databases` says that each takes. (loom's atomics are larger.)
#[cfg(not(loom))]
const _: () = assert!(size_of::<PublishedMarks>() == 64);

/// Owner of marks that were never claimed.
pub const NOBODY: u64 = 0;

/// Owner of marks that were given back. It is not [`NOBODY`]: whoever looks for marks may stop at the first that were never claimed.
/// Database 0, which there is not, so that they can be claimed like those of any database that is gone.
pub const RELEASED: u64 = 1;

/// A mark that permits nothing, since nobody has read what the database holds.
pub const NOT_LOADED: i64 = i64::MIN;

/// How far the published word lies before the mark, in milliseconds: half of [`MARK_AHEAD_MS`](crate::mark::MARK_AHEAD_MS).
const EARLY_MS: i64 = crate::mark::MARK_AHEAD_MS / 2;

impl PublishedMarks {
    /// Marks that belong to nobody.
    #[allow(clippy::new_without_default, reason = "as for Lane")]
    pub fn new() -> Self {
        let lane = || AtomicI64::new(NOT_LOADED);
        Self { owner: AtomicU64::new(NOBODY), version: AtomicU64::new(0), early_ms: [lane(), lane()] }
    }

    /// Whom the marks belong to.
    pub fn owner(&self) -> u64 {
        // Acquire: in `of`, after the version. Elsewhere a hint.
        self.owner.load(Ordering::Acquire)
    }

    /// The marks as those of `owner`, if they are.
    pub fn of(&self, owner: u64) -> Option<Marks<'_>> {
        // Acquire: the version before the owner. If the owner is another by then, so is the version, and these marks permit
        // nothing.
        let version = self.version.load(Ordering::Acquire);
        (self.owner() == owner).then_some(Marks { published: self, version })
    }

    /// Claims marks among `all` for `owner`: its own, those of its database, some that belong to nobody, or those of a database
    /// that is gone. `None` if there are none. To be called with the database's lock held: so nobody else claims for this
    /// database. For others they may, hence nothing is claimed but what was looked at, by one reading of the owner.
    ///
    /// An owner's high 32 bits are its database's number.
    pub fn claim_one(all: &[Self], owner: u64, is_gone: impl Fn(u32) -> bool) -> Option<Marks<'_>> {
        let database = |owner: u64| (owner >> 32) as u32;
        let claim = |wanted: &dyn Fn(u64) -> bool| {
            let candidates = all.iter().map(|marks| (marks, marks.owner()));
            candidates
                .filter(|(_, from)| wanted(*from))
                .find(|(marks, from)| *from == owner || marks.claim(*from, owner))
        };
        let (claimed, _) = claim(&|from| from != NOBODY && database(from) == database(owner))
            .or_else(|| claim(&|from| from == NOBODY))
            .or_else(|| claim(&|from| is_gone(database(from))))?;
        claimed.of(owner)
    }

    /// Gives the marks of `owner` back, if they still are: its sequence is being dropped. Should that be rolled back, they are
    /// claimed anew.
    pub fn release(&self, owner: u64) {
        // Should another take them right now, its marks are forgotten, and loaded once more.
        if self.owner() == owner {
            self.claim(owner, RELEASED);
        }
    }

    /// Takes over the marks of `from`, which must be [`NOBODY`], [`RELEASED`], or a sequence or database that nobody draws in. False if
    /// another took them. They never belong to [`NOBODY`] again.
    pub fn claim(&self, from: u64, to: u64) -> bool {
        if from != NOBODY {
            self.forget();
        }
        // AcqRel: after the marks are forgotten, and before the version. Relaxed: a failure's value is not used.
        let claimed = self.owner.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if claimed {
            // Release: pairs with the load in `of`. Whoever sees a mark that is published later sees it too (`early_ms`).
            self.version.fetch_add(1, Ordering::Release);
        }
        claimed
    }

    /// Forgets what is published: the next draw reads what the database holds.
    pub fn forget(&self) {
        for early_ms in &self.early_ms {
            // Release: nothing is handed over by it, but it must not fall behind what the caller does next.
            early_ms.store(NOT_LOADED, Ordering::Release);
        }
    }
}

/// A session's view of its database's marks: which they are, and the version under which they are its own.
#[derive(Debug, Clone, Copy)]
pub struct Marks<'a> {
    published: &'a PublishedMarks,
    version: u64,
}

impl<'a> Marks<'a> {
    /// The marks in `published` under a version that [`version`](Self::version) gave.
    #[inline]
    pub fn new(published: &'a PublishedMarks, version: u64) -> Self {
        Self { published, version }
    }

    /// What to give to [`new`](Self::new), to have the same marks.
    pub fn version(&self) -> (&'a PublishedMarks, u64) {
        (self.published, self.version)
    }

    /// The marks themselves, for [`Limits::marks_ms`]: for a draw that need not look after the mark.
    pub fn limits_ms(&self) -> [i64; 2] {
        LaneName::ALL.map(|lane| self.mark_ms(lane).unwrap_or(NOT_LOADED))
    }

    /// A lane's mark, or `None` if it has to be loaded.
    pub fn mark_ms(&self, lane: LaneName) -> Option<i64> {
        Some(self.early_ms(lane)).filter(|ms| *ms != NOT_LOADED).map(|ms| ms + EARLY_MS)
    }

    /// Whether a draw whose tick ends at `end_ms` should move the mark early, or has to.
    pub fn is_due(&self, lane: LaneName, end_ms: i64) -> bool {
        end_ms > self.early_ms(lane)
    }

    /// Up to where a lane may draw without a thought for the mark.
    #[inline(always)]
    pub fn early_ms(&self, lane: LaneName) -> i64 {
        // Acquire: pairs with the Release in `publish`: the mark's log record, and the raise of the lane to what was loaded,
        // come before the draw. And the mark before the version: a mark of the next owner shows its version.
        let early_ms = self.published.early_ms[lane as usize].load(Ordering::Acquire);
        // Relaxed: ordered by the load before it.
        if self.published.version.load(Ordering::Relaxed) == self.version { early_ms } else { NOT_LOADED }
    }

    /// Publishes a mark that is durable. To be called with the database's lock held.
    pub fn publish(&self, lane: LaneName, mark_ms: i64) {
        // Release: pairs with the load in `early_ms`.
        self.published.early_ms[lane as usize].store(mark_ms - EARLY_MS, Ordering::Release);
    }

    /// Forgets what is published, see [`PublishedMarks::forget`].
    pub fn forget(&self) {
        self.published.forget();
    }
}

/// For a draw that looks after the mark: it is refused when the mark should be moved, early or not.
impl MarkLimits for Marks<'_> {
    #[inline(always)]
    fn limit_ms(&self, lane: LaneName) -> i64 {
        self.early_ms(lane)
    }
}

/// How far the wall clock has been from the time since boot, at most, when marks moved on this server: a clock that jumps
/// ahead shows as a greater distance.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ClockReference(AtomicI64);

impl ClockReference {
    const UNKNOWN: i64 = i64::MIN;

    /// No mark has moved yet.
    #[allow(clippy::new_without_default, reason = "as for Lane")]
    pub fn new() -> Self {
        Self(AtomicI64::new(Self::UNKNOWN))
    }

    /// By how much the wall clock has run ahead of the time since boot, in milliseconds; 0 if no mark has moved yet, or if
    /// it has fallen behind.
    pub fn jump_ms(&self, now_ms: i64, boot_ms: i64) -> i64 {
        // Relaxed, here and below: one word, compared with two clocks, and not ordered with anything.
        match self.0.load(Ordering::Relaxed) {
            Self::UNKNOWN => 0,
            before => now_ms.saturating_sub(boot_ms).saturating_sub(before).max(0),
        }
    }

    /// Notes both clocks, when a mark moves. The reference never falls: a clock that was set back, and comes right again, has
    /// not jumped.
    pub fn note(&self, now_ms: i64, boot_ms: i64) {
        self.0.fetch_max(now_ms.saturating_sub(boot_ms), Ordering::Relaxed);
    }
}

/// Lets something happen at most once in a while on the whole server, whoever asks first.
#[derive(Debug)]
pub struct Seldom(AtomicI64);

impl Seldom {
    const NEVER: i64 = i64::MIN;

    /// It has not happened yet.
    #[allow(clippy::new_without_default, reason = "as for Lane")]
    pub fn new() -> Self {
        Self(AtomicI64::new(Self::NEVER))
    }

    /// Whether it may happen now, and if so, notes that it does: `every_ms` milliseconds after the last time, by the time
    /// since boot, since the wall clock may be set back.
    pub fn is_due(&self, boot_ms: i64, every_ms: i64) -> bool {
        // Relaxed, both: one word, not ordered with anything; of several who find it due, one wins the exchange.
        let last_ms = self.0.load(Ordering::Relaxed);
        (last_ms == Self::NEVER || boot_ms.saturating_sub(last_ms) >= every_ms)
            && self.0.compare_exchange(last_ms, boot_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl LaneRefusal {
    /// Tells a rollback from being behind by what a saturated generator has borrowed.
    #[cold]
    fn judged(self, lane: LaneName, max_borrow_ms: i64) -> Refusal {
        match self {
            Self::BeforeEpoch { now_ms } => Refusal::BeforeEpoch { now_ms },
            Self::TimeUsedUp => Refusal::TimeUsedUp,
            Self::UsedUp { wait_ms } => Refusal::UsedUp { wait_ms },
            Self::Behind { wait_ms, .. } if wait_ms <= max_borrow_ms => Refusal::Behind { wait_ms },
            Self::Behind { behind_ms, wait_ms } => Refusal::Rollback { behind_ms, wait_ms },
            Self::MarkReached { end_ms } => Refusal::MarkReached { lane, end_ms },
        }
    }
}

impl Refusal {
    fn wait_ms_or_never(&self) -> i64 {
        match self {
            Self::UsedUp { wait_ms } | Self::Behind { wait_ms } | Self::Rollback { wait_ms, .. } => *wait_ms,
            Self::BeforeEpoch { .. } | Self::TimeUsedUp | Self::MarkReached { .. } => i64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seldom_happens_once_in_a_while() {
        let seldom = Seldom::new();
        let happens: Vec<_> = [5, 5, 6, 64, 65, 66, 124, 125, 1000].map(|now_ms| seldom.is_due(now_ms, 60)).to_vec();
        assert_eq!(happens, [true, false, false, false, true, false, false, true, true]);
    }

    /// Draws the longest runs there are until the lanes refuse, and returns the last id of each lane.
    fn exhaust(
        generator: &Generator,
        layout: &Layout,
        identity: &Identity,
        now_ms: i64,
        max_borrow_ms: i64,
    ) -> [i64; 2] {
        let limits = Limits { max_borrow_ms, marks_ms: [NO_MARK; 2] };
        let mut last = [-1; 2];
        for count in [longest_run(layout), 1] {
            while let Ok(run) = generator.draw(layout, identity, &|| now_ms, &limits, count) {
                last[run.lane() as usize] = identity.last_id(layout, run);
            }
        }
        last
    }

    #[test]
    fn marks_that_are_given_back_are_claimed_by_another_database() {
        const ONE: u64 = 7 << 32 | 70;
        const OTHER: u64 = 8 << 32 | 80;
        /// Claims for one of two databases that there are, and returns the version.
        fn claim(all: &[PublishedMarks], owner: u64) -> Option<u64> {
            let marks = PublishedMarks::claim_one(all, owner, |database| ![7, 8].contains(&database))?;
            marks.publish(LaneName::Primary, 1000);
            Some(marks.version().1)
        }
        let all = [PublishedMarks::new()];
        let version = claim(&all, ONE).unwrap();
        assert!(claim(&all, OTHER).is_none());
        // Only by whoever has them.
        all[0].release(OTHER);
        assert!(all[0].of(ONE).unwrap().mark_ms(LaneName::Primary).is_some());
        all[0].release(ONE);
        assert!(all[0].of(ONE).is_none() && all[0].owner() == RELEASED);
        assert_eq!(Marks::new(&all[0], version).mark_ms(LaneName::Primary), None);
        claim(&all, OTHER).unwrap();
        assert_eq!(Marks::new(&all[0], version).mark_ms(LaneName::Primary), None);
        // A release that comes late takes nothing away.
        all[0].release(ONE);
        assert!(all[0].of(OTHER).unwrap().mark_ms(LaneName::Primary).is_some());
        // What was dropped and is there again finds no place while another has it.
        assert!(claim(&all, ONE).is_none());
        all[0].release(OTHER);
        assert!(claim(&all, ONE).is_some());
    }

    fn following(layout: &Layout, now_ms: i64, max_borrow_ms: i64) -> Generator {
        let generator = Generator::new();
        generator.follow(layout, now_ms, max_borrow_ms);
        generator
    }

    #[test]
    fn a_generator_follows_once_and_never_lowers_a_lane() {
        let layout = Layout::parse("js53").unwrap();
        let now_ms = 1_800_000_000_000;
        let words = |generator: &Generator| [0, 1].map(|lane| generator.lanes[lane].0.load(Ordering::Relaxed));
        let followed = following(&layout, now_ms, 2500);
        assert_eq!(words(&followed), [last_word(&layout, layout.tick_at(now_ms + 2500)); 2]);
        followed.follow(&layout, now_ms + 60_000, 2500);
        assert_eq!(words(&followed), words(&following(&layout, now_ms, 2500)));
        let raised = Generator::new();
        raised.raise(LaneName::Backup, &layout, now_ms + 60_000);
        let [_, backup] = words(&raised);
        raised.follow(&layout, now_ms, 2500);
        assert_eq!(words(&raised), [words(&followed)[0], backup]);
    }

    #[test]
    fn nothing_is_drawn_again_by_the_generator_that_follows_a_lost_one() {
        let now_ms = 1_800_000_000_123;
        for (name, backup) in [("snowflake", false), ("js53", false), ("js53", true), ("sonyflake", true)] {
            let layout = Layout::parse(name).unwrap();
            let identity = Identity::new(&layout, Some(3), None, backup).unwrap();
            for max_borrow_ms in [0, 100, 2500] {
                let before = exhaust(&Generator::new(), &layout, &identity, now_ms, max_borrow_ms);
                let following = following(&layout, now_ms, max_borrow_ms);
                // With the same clock there is nothing left to draw; a tick later there is, and it is greater.
                assert_eq!(exhaust(&following, &layout, &identity, now_ms, max_borrow_ms), [-1; 2], "{name}");
                let after = exhaust(&following, &layout, &identity, now_ms + layout.unit().ms(), max_borrow_ms);
                assert_ne!(after, [-1; 2], "{name} {max_borrow_ms}");
                for (before, after) in before.into_iter().zip(after) {
                    // With backup workers the primary lane, which never borrows, sits out what it could have borrowed.
                    assert!(after > before || after == -1, "{name} {max_borrow_ms}: {before} {after}");
                }
            }
        }
    }

    #[test]
    fn a_generator_can_follow_at_any_time() {
        let layout = Layout::parse("js53").unwrap();
        let identity = Identity::new(&layout, Some(3), None, false).unwrap();
        let draw = |generator: &Generator, now_ms| {
            let limits = Limits { max_borrow_ms: 0, marks_ms: [NO_MARK; 2] };
            generator.draw(&layout, &identity, &|| now_ms, &limits, 1)
        };
        for before_epoch in [i64::MIN, layout.epoch_ms() - 1] {
            assert!(draw(&following(&layout, before_epoch, 0), layout.epoch_ms()).is_ok());
        }
        for at_the_end in [layout.last_instant_ms(), layout.last_instant_ms() + 1000, i64::MAX] {
            let refusal = draw(&following(&layout, at_the_end, 1000), layout.last_instant_ms());
            assert_eq!(refusal, Err(Refusal::TimeUsedUp));
        }
    }
}
