//! The generator: how an id is drawn, and why no two ids are equal.
//!
//! # The word
//!
//! A **lane** is one atomic word in shared memory. It holds the last id drawn from the lane,
//! without the id's fixed bits:
//!
//! ```text
//!  63                          S  S-1           0        S = width of the layout's sequence
//! +------------------------------+---------------+
//! | tick                         | sequence      |        0 = nothing drawn yet
//! +------------------------------+---------------+
//! ```
//!
//! Worker and datacenter are added when the id is composed. Adding 1 to a full sequence carries
//! into the next tick. That is borrowing: the word may run ahead of the clock, by at most
//! `max_borrow`.
//!
//! What a draw does; the first row that matches decides:
//!
//! | clock | word | outcome |
//! |---|---|---|
//! | before the epoch | | [`DrawRefusal::BeforeEpoch`] |
//! | after the last tick | | [`DrawRefusal::TimeUsedUp`] |
//! | | word + 1 is beyond the last tick | [`DrawRefusal::TimeUsedUp`] |
//! | in a later tick than the word | | takes the clock's tick, at its first sequence ([`first_sequence`]) |
//! | in the word's tick | below the tick's first sequence, because an earlier run or loan reached into the tick | the same |
//! | in the word's tick, or earlier | word + 1 is in a tick up to `limit` | takes word + 1, perhaps borrowed |
//! | in the word's tick, or earlier | the word's own tick is beyond `limit` | [`DrawRefusal::Behind`] |
//! | in the word's tick, or earlier | word + 1 is in a tick beyond `limit` | [`DrawRefusal::UsedUp`] |
//!
//! Here `limit` is the tick that holds the clock + the allowance (0 or `max_borrow`). For a run of
//! several ids, `word + 1` stands for the run's last id: all bounds hold for that one. What a draw
//! takes is refused if its tick ends after the mark ([`DrawRefusal::MarkReached`]).
//!
//! # The invariants
//!
//! - **I1** Each successful draw raises its lane's word, by a compare-exchange from the word that
//!   was read to a greater one. So the ids of one server are unique. Per lane they strictly
//!   increase in the order drawn, across all backends. Without backup workers, an id is greater
//!   than any other whose draw had returned before its own began.
//! - **I2** A rollback is reported only if the clock, read *after* the word, is behind it. If the
//!   clock were read first, a backend that slept between the two readings would compare an old
//!   clock with a new word. It would report a rollback that did not happen.
//! - **I3** The end of an id's tick is at or before the mark when the id is drawn.
//! - **I4** An id's tick is at most the tick of the clock + `max_borrow` when the id is drawn.
//! - **I5** No field spills into another on any path, and every path checks the layout's last tick.
//! - **I6** Two lanes of a fleet never compose the same worker number. With backup workers, a
//!   server's number is in the lower half, and its backup lane uses number + half
//!   ([`Identity::new`](crate::id::identity::Identity::new)).
//!
//! # Memory ordering
//!
//! The table covers every word of this crate that sessions share: the lanes here, the published
//! words (`published.rs`), the numbers (`numbers.rs`), the clock reference and `RateLimit`
//! (`clock.rs`). All are made of the types in `atomic.rs`.
//!
//! | access | order | partner |
//! |---|---|---|
//! | load of the word | Acquire | the compare-exchange that wrote it: the clock reading that follows comes after the writer's (I2); and what was announced before any draw up to that word (`settled.rs`) |
//! | compare-exchange, success | Release | the load of the word |
//! | compare-exchange, failure | Relaxed | none: the value is discarded, and word and clock are read anew |
//! | raising a lane, to the mark or above a predecessor | Release | the load of the word; a draw that is under way fails its compare-exchange |
//! | whether a predecessor was followed: store, load | Release, Acquire | each other: a session that finds it done finds the lanes raised |
//! | load of the published mark | Acquire | the store that published it: its log record and the lane's raise come before |
//! | publishing a mark, forgetting it | Release | the load of the published mark |
//! | claiming marks: owner, then version | AcqRel, Release | the loads of a session that looks for its marks: version, then owner, both Acquire |
//! | load of the version, after the mark | Relaxed | ordered by the mark's Acquire: a mark of the next owner shows its version |
//! | retiring marks: version, then words | Release | the loads of a session that looks for its marks, which then finds the numbers changing |
//! | publishing a mark: compare-exchange from what was found before the numbers were looked at | Release | the load of the published mark; it fails if the marks were retired meanwhile |
//! | raising lanes or cutting them off, after the marks are retired | Release | the load of the word: a draw that reads it finds its view of the marks void; one that does not fails its compare-exchange |
//! | numbers: odd version, values, even version | Release | the loads of version and values, both Acquire |
//! | load of the numbers' version, after the values | Relaxed | ordered by the values' Acquire: values of the next version show it |
//! | a lane's word for statistics; `RateLimit` | Relaxed | none: for people, not ordered with anything |
//! | the clock reference | Relaxed | none: one word, compared with two clocks |
//!
//! No argument rests on the order that x86 adds. A clock is not memory, so Acquire alone does not
//! order its reading after the word's (I2). The C library's `gettimeofday` does that: it first
//! loads from the kernel's page, which Acquire orders, and then waits for that load before it reads
//! the counter (LFENCE on x86, ISB on arm64). The writer stores only after it has compared its
//! clock with the word, so its store comes after its reading. If that failed, a rollback would be
//! reported that did not happen. No id would come twice.
//!
//! I1 needs no ordering at all, only that one word has one modification order. `tests/loom.rs` runs
//! all schedules of two and three threads, and shows that a clock read before the word breaks I2.
//!
//! Nothing here sleeps, logs, locks or knows PostgreSQL: a draw returns ids, or the reason why it
//! cannot.

use crate::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::clock::Clock;
use crate::draw::stamp::IdStamp;
use crate::id::identity::LaneName;
use crate::id::layout::Layout;

/// A mark that limits nothing, in milliseconds since 1970.
pub const NO_MARK: i64 = i64::MAX;

/// Ids drawn together: consecutive words of one lane, perhaps across the end of a tick.
///
/// A run carries what it was reserved with, and composes its ids from that. So it keeps its numbers
/// even if the server gets others before the ids are composed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRun {
    layout: Layout,
    /// The datacenter and worker bits of the lane, in place.
    fixed: u64,
    lane: LaneName,
    first: u64,
    last: u64,
    borrowed: u64,
}

impl IdRun {
    /// Returns the lane that served.
    #[inline]
    pub fn lane(&self) -> LaneName {
        self.lane
    }

    /// Returns how many ids the run holds, at least 1.
    pub fn count(&self) -> u64 {
        self.last - self.first + 1
    }

    /// Returns how many of the ids are borrowed: of ticks after the one that the clock was in.
    #[inline]
    pub fn borrowed(&self) -> u64 {
        self.borrowed
    }

    /// Composes the ids, ascending.
    pub fn ids(self) -> impl Iterator<Item = i64> {
        (self.first..=self.last).map(move |word| self.id(word))
    }

    /// Composes the last id, which is the only one of a run of one.
    #[inline(always)]
    pub fn last_id(&self) -> i64 {
        self.id(self.last)
    }

    /// Composes the id of a word, as if the run held it.
    #[inline(always)]
    pub(crate) fn id(&self, word: u64) -> i64 {
        self.layout.pack_word(self.fixed, word)
    }

    pub(crate) fn last_word(&self) -> u64 {
        self.last
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// The bounds of one draw, all in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits<M = [i64; 2]> {
    /// How far ids may run ahead of the clock; never negative.
    pub max_borrow_ms: i64,
    /// For each lane, the latest instant (since 1970) at which an id's tick may end; [`NO_MARK`]
    /// for no limit.
    pub marks_ms: M,
}

/// Says for each lane up to which instant it may draw, in milliseconds since 1970.
pub trait MarkLimits: Copy {
    /// Reads a lane's limit. Each attempt calls it after reading the lane's word.
    fn limit_ms(&self, lane: LaneName) -> i64;
}

impl MarkLimits for [i64; 2] {
    #[inline(always)]
    fn limit_ms(&self, lane: LaneName) -> i64 {
        self[lane as usize]
    }
}

/// What a draw tells before it takes its ids (`settled.rs`).
pub trait Announce: Copy {
    /// Called before each attempt to exchange a lane's word. If it succeeds, the draw's first id is
    /// the one that `first_id` composes.
    fn attempts(&self, first_id: impl FnOnce() -> i64);

    /// Called when a lane refuses the draw, perhaps after an attempt has failed.
    fn is_refused(&self);
}

/// For a draw that tells nothing.
impl Announce for () {
    #[inline(always)]
    fn attempts(&self, _first_id: impl FnOnce() -> i64) {}

    #[inline(always)]
    fn is_refused(&self) {}
}

/// Why a draw is refused: by a lane, by all lanes, and in the end by the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrawRefusal {
    /// The clock is before the layout's epoch.
    BeforeEpoch {
        /// What the clock says, in milliseconds since 1970.
        now_ms: i64,
    },
    /// The layout's last tick is over, or has too few ids left for the run.
    TimeUsedUp,
    /// The clock is behind the last id by more than the allowance.
    Behind {
        /// How far the clock is behind the start of the last id's tick, in milliseconds.
        behind_ms: i64,
        /// How long the clock has to run until it is no longer behind, in milliseconds; the tick
        /// may be used up even then.
        wait_ms: i64,
    },
    /// All ids that the clock and the allowance permit are drawn.
    UsedUp {
        /// How long the clock has to run until the lane serves, in milliseconds.
        wait_ms: i64,
    },
    /// The mark of `lane` must be moved first.
    MarkReached {
        /// The lane.
        lane: LaneName,
        /// The end of the tick that the draw wants, in milliseconds since 1970.
        end_ms: i64,
    },
}

impl DrawRefusal {
    fn wait_ms_or_never(&self) -> i64 {
        match self {
            Self::UsedUp { wait_ms } | Self::Behind { wait_ms, .. } => *wait_ms,
            Self::BeforeEpoch { .. } | Self::TimeUsedUp | Self::MarkReached { .. } => i64::MAX,
        }
    }
}

/// Returns the most ids that one run may take: a sixteenth of a tick's sequence, so that no session
/// starves the others.
pub fn longest_run(layout: &Layout) -> u32 {
    // At most 2^31 / 16; the sequence has at least one bit.
    (((layout.sequence.max() + 1) / 16) as u32).max(1)
}

/// Returns the first sequence of a tick: a hash of the tick, below 1/64 of the sequence's range.
///
/// If every tick began at 0, a table that gets few ids per tick would hold mostly even ones, which
/// shard badly by `id % n`. The hash costs under 1 % of the ceiling. (Fibonacci hashing, Knuth,
/// TAOCP volume 3, 6.4: the high bits of a product with 2^64 / golden ratio.)
#[inline]
pub fn first_sequence(layout: &Layout, tick: u64) -> u64 {
    match layout.sequence.bits {
        ..=6 => 0,
        bits => tick.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 + 6 - bits),
    }
}

/// Returns the last word of a tick, or of the layout if the tick is beyond it. Before the epoch
/// that is 0: nothing is drawn yet.
fn last_word(layout: &Layout, tick: i64) -> u64 {
    u64::try_from(tick).map_or(0, |tick| tick.min(layout.last_tick()) << layout.sequence.bits | layout.sequence.max())
}

/// One lane: the last id drawn from it, without its fixed bits. It has cache lines of its own (128
/// bytes, because processors fetch them in pairs).
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Lane(AtomicU64);

impl Lane {
    /// Makes a lane from which nothing is drawn yet.
    #[allow(clippy::new_without_default, reason = "a lane is made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts as drawn all ids of ticks that end at or before `mark_ms`. Never lowers the lane.
    pub fn raise(&self, layout: &Layout, mark_ms: i64) {
        self.raise_over(layout, layout.tick_at(mark_ms).saturating_sub(1));
    }

    /// Counts as drawn all ids of the ticks up to `tick`. Never lowers the lane.
    fn raise_over(&self, layout: &Layout, tick: i64) {
        // Release: pairs with the load in `draw_below`, as every write of the word does.
        self.0.fetch_max(last_word(layout, tick), Ordering::Release);
    }

    /// Moves on, and makes every draw that is under way fail. Returns the word before. A lane
    /// beyond the layout's time stays, because no draw that has read it succeeds.
    fn move_on(&self, layout: &Layout, next: impl Fn(u64) -> u64) -> u64 {
        let moved = |word: u64| if word >> layout.sequence.bits > layout.last_tick() { word } else { next(word) };
        // Release: pairs with the load in `draw_below`, as every write of the word does: a draw
        // that reads the new word finds its view of the marks void. Relaxed: a failure's value is
        // only compared again.
        let moved = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, |word| Some(moved(word)));
        moved.unwrap_or_else(|word| word)
    }

    /// Counts as drawn the rest of the tick that the lane is in. A lane at the end of its tick goes
    /// to the first sequence of the next one: if it stayed, a draw that has read it would succeed
    /// later.
    fn end_tick(&self, layout: &Layout) {
        self.move_on(layout, |word| (word + 1).max(word | layout.sequence.max()));
    }

    /// Draws `count` consecutive ids: the whole run or nothing. All bounds hold for the run's last
    /// id.
    ///
    /// # Errors
    /// [`DrawRefusal`]; the lane is then unchanged.
    #[inline(always)]
    pub fn draw<C: Clock>(
        &self,
        name: LaneName,
        layout: &Layout,
        clock: &C,
        allowance_ms: i64,
        mark_ms: i64,
        count: u32,
    ) -> Result<(u64, u64), DrawRefusal> {
        self.draw_below(name, layout, clock, allowance_ms, || mark_ms, count, |_| ())
            .map(|words| (words.first, words.last))
    }

    /// Draws as [`draw`](Self::draw) does, by a mark that may change during the draw. `announce` is
    /// called before each attempt, with the first word that it takes.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "as for `draw_from`")]
    fn draw_below<C: Clock>(
        &self,
        name: LaneName,
        layout: &Layout,
        clock: &C,
        allowance_ms: i64,
        mark_ms: impl Fn() -> i64,
        count: u32,
        announce: impl Fn(u64),
    ) -> Result<LaneSpan, DrawRefusal> {
        let decide = |word, now_ms| {
            let words = next_run(name, layout, word, now_ms, allowance_ms, mark_ms(), count)?;
            announce(words.first);
            Ok((words.last, words))
        };
        self.take(clock, |_| Ok(()), decide)
    }

    /// Raises the lane: the loop of every draw. `decide` returns the word to raise it to, from the
    /// word that was read and from the clock. It is called again if another draw was first. `look`
    /// may refuse a word before the clock is read, because that takes most of the time of a draw.
    ///
    /// `decide` reads the mark, which is then read between the word and the compare-exchange. So
    /// the compare-exchange fails if the lane was raised before that mark was published, but after
    /// the word was read.
    ///
    /// # Errors
    /// Those of `look` and `decide`; the lane is then unchanged.
    #[inline(always)]
    pub(crate) fn take<T, E>(
        &self,
        clock: &impl Clock,
        look: impl Fn(u64) -> Result<(), E>,
        decide: impl Fn(u64, i64) -> Result<(u64, T), E>,
    ) -> Result<T, E> {
        loop {
            // Acquire: pairs with the Release below, and keeps the clock reading after the load
            // (I2).
            let word = self.0.load(Ordering::Acquire);
            look(word)?;
            let now_ms = clock.now_ms();
            let (raised, taken) = decide(word, now_ms)?;
            // Release: a session that reads this word reads the clock later than this one did, and
            // finds what was announced. Relaxed: a failure's value is not used. Weak: a spurious
            // failure only repeats the loop.
            if self.0.compare_exchange_weak(word, raised, Ordering::Release, Ordering::Relaxed).is_ok() {
                return Ok(taken);
            }
        }
    }
}

/// What a draw takes from a lane.
#[derive(Clone, Copy)]
struct LaneSpan {
    first: u64,
    last: u64,
    /// How many of them are in ticks after the clock's.
    borrowed: u64,
}

/// The decision of a draw, by the table at the top of this file: a function of the word, the clock
/// and the mark, and of nothing else. A draw that knows its tick has a shorter way to the same
/// (`known_tick.rs`).
#[inline(never)]
fn next_run(
    lane: LaneName,
    layout: &Layout,
    word: u64,
    now_ms: i64,
    allowance_ms: i64,
    mark_ms: i64,
    count: u32,
) -> Result<LaneSpan, DrawRefusal> {
    let sequence_bits = layout.sequence.bits;
    let Ok(now) = u64::try_from(layout.tick_at(now_ms)) else {
        return Err(DrawRefusal::BeforeEpoch { now_ms });
    };
    // Comes before any shift (I5), because a clock beyond the layout's end would lose its high
    // bits.
    if now > layout.last_tick() {
        return Err(DrawRefusal::TimeUsedUp);
    }
    let first = ((now << sequence_bits) + first_sequence(layout, now)).max(word + 1);
    let last = first + u64::from(count - 1);
    let tick = last >> sequence_bits;
    if tick > layout.last_tick() {
        return Err(DrawRefusal::TimeUsedUp);
    }
    // A tick is beyond the one that holds `allowed_ms` if and only if it starts after `allowed_ms`
    // (I4).
    let allowed_ms = now_ms.saturating_add(allowance_ms);
    let start_ms = layout.start_of_ms(tick);
    if start_ms > allowed_ms {
        let drawn_ms = layout.start_of_ms(word >> sequence_bits);
        return Err(if drawn_ms > allowed_ms {
            DrawRefusal::Behind { behind_ms: drawn_ms - now_ms, wait_ms: drawn_ms - allowed_ms }
        } else {
            DrawRefusal::UsedUp { wait_ms: start_ms - allowed_ms }
        });
    }
    let end_ms = start_ms + layout.unit().ms();
    if end_ms > mark_ms {
        return Err(DrawRefusal::MarkReached { lane, end_ms });
    }
    // Ids of ticks after the clock's are borrowed. There are none if `now` is the layout's last
    // tick.
    let borrowed_from = (now + 1) << sequence_bits;
    Ok(LaneSpan { first, last, borrowed: (last + 1).saturating_sub(borrowed_from.max(first)) })
}

/// What all backends share of a server's ids: its lanes. It lives as long as shared memory.
#[derive(Debug)]
#[repr(C)]
pub struct Generator {
    lanes: [Lane; 2],
    /// Whether [`follow`](Self::follow) has been called.
    has_followed: AtomicBool,
}

impl Generator {
    /// Makes a generator that has drawn nothing and has not followed a predecessor.
    #[allow(clippy::new_without_default, reason = "as for Lane")]
    pub fn new() -> Self {
        Self { lanes: [Lane::new(), Lane::new()], has_followed: AtomicBool::new(false) }
    }

    /// Counts as drawn, in both lanes, all that a predecessor whose words are lost can have drawn
    /// by `now_ms`. Does so once, at the first call. The next draw may have to wait for the next
    /// tick.
    ///
    /// The predecessor is the generator before a crash or a restart, or that of the primary whose
    /// standby this server was. What it has drawn is covered if its clock was not ahead of
    /// `now_ms`, and its `max_borrow` not greater.
    ///
    /// Call this before anything is drawn, and only on a server that may write, because its
    /// predecessor is then dead. The start of the server is too early: a standby starts before it
    /// is promoted.
    pub fn follow(&self, layout: &Layout, now_ms: i64, max_borrow_ms: i64) {
        // Acquire: pairs with the Release below.
        if self.has_followed.load(Ordering::Acquire) {
            return;
        }
        // Two sessions may both get here, for two databases. A lane that is raised twice skips a
        // few more ids, and repeats none.
        for lane in &self.lanes {
            lane.raise_over(layout, layout.tick_at(now_ms.saturating_add(max_borrow_ms)));
        }
        // Release: after the lanes are raised, so that a session that finds this set also finds
        // them raised.
        self.has_followed.store(true, Ordering::Release);
    }

    /// Makes every draw that is under way fail, because its numbers are given back (`numbers.rs`).
    ///
    /// Returns the end of the latest tick in which a lane was, in milliseconds since 1970: nothing
    /// drawn so far is in a later tick. `None` if nothing is drawn and nothing counts as drawn.
    pub fn cut_off(&self, layout: &Layout) -> Option<i64> {
        // The next word may be in the next tick.
        let words = self.lanes.each_ref().map(|lane| lane.move_on(layout, |word| word + 1));
        let reached = words.into_iter().max().filter(|word| *word > 0)?;
        Some(layout.start_of_ms(reached >> layout.sequence.bits) + layout.unit().ms())
    }

    /// Returns what [`cut_off`](Self::cut_off) does, and moves no lane. Only for a server that has
    /// no numbers, where no draw is under way.
    pub fn left_ms(&self, layout: &Layout) -> Option<i64> {
        let starts_ms = LaneName::ALL.map(|lane| self.reached_ms(lane, layout));
        starts_ms.into_iter().flatten().max().map(|start_ms| start_ms + layout.unit().ms())
    }

    /// Begins a tick in both lanes for other numbers, the one of `from_ms` (since 1970) or a later
    /// one (`numbers.rs`). Every id that is drawn from now on is in a later tick of its lane than
    /// all before, and so it is greater, whatever the numbers. Makes every draw that is under way
    /// fail.
    pub fn begin(&self, layout: &Layout, from_ms: i64) {
        for lane in &self.lanes {
            lane.end_tick(layout);
            lane.raise(layout, from_ms);
        }
    }

    /// Returns the primary lane.
    #[inline(always)]
    pub(crate) fn primary(&self) -> &Lane {
        &self.lanes[LaneName::Primary as usize]
    }

    /// Returns the id up to which the primary lane is used up; 0 if there is none. The
    /// announcements of those draws can be found after this.
    ///
    /// `drawing` is what the server draws with now, `None` if it has no numbers. The result is only
    /// right if that does not change during the call, and if there is no backup lane.
    pub fn last_id(&self, layout: &Layout, drawing: Option<&IdStamp>) -> i64 {
        // Acquire: pairs with the Release in `draw_below`, of this word and of each earlier one:
        // all writes of a word are exchanges, which pass on what the ones before have released.
        let word = self.lanes[LaneName::Primary as usize].0.load(Ordering::Acquire);
        match drawing {
            _ if word == 0 => 0,
            Some(drawing) if word & layout.sequence.max() != layout.sequence.max() => {
                layout.pack_word(drawing.identity().fixed(LaneName::Primary), word)
            }
            // All ids of a tick that is used up, whatever their numbers: a lane that was raised to
            // a mark covers those of other servers, and one whose numbers have changed those of the
            // numbers before. Without numbers, nothing more is drawn in the tick.
            _ => layout.last_id_of(word >> layout.sequence.bits),
        }
    }

    /// Returns the start of the tick that a lane has reached, in milliseconds since 1970. `None` if
    /// nothing is drawn from it yet and nothing counts as drawn.
    pub fn reached_ms(&self, lane: LaneName, layout: &Layout) -> Option<i64> {
        // Relaxed: for people, and for the process that has moved the lanes on (or one that has
        // ended), so that no draw changes them. Not ordered with anything.
        match self.lanes[lane as usize].0.load(Ordering::Relaxed) {
            0 => None,
            word => Some(layout.start_of_ms(word >> layout.sequence.bits)),
        }
    }

    /// Counts as drawn all ids of a lane whose ticks end at or before `mark_ms` (since 1970). Never
    /// lowers the lane.
    pub fn raise(&self, lane: LaneName, layout: &Layout, mark_ms: i64) {
        self.lanes[lane as usize].raise(layout, mark_ms);
    }

    /// Draws `count` consecutive ids (1 to [`longest_run`]) from the first lane that serves.
    /// Without backup workers that is the primary lane, borrowing. With them it is the primary,
    /// then the backup, then the backup, borrowing.
    ///
    /// # Errors
    /// [`DrawRefusal`], of the lane that would serve soonest.
    #[inline(always)]
    pub fn draw<C: Clock, M: MarkLimits>(
        &self,
        drawing: &IdStamp,
        clock: &C,
        limits: &Limits<M>,
        count: u32,
    ) -> Result<IdRun, DrawRefusal> {
        self.draw_announced(drawing, clock, limits, count, ())
    }

    /// Draws as [`draw`](Self::draw) does, and announces each attempt.
    ///
    /// # Errors
    /// As for [`draw`](Self::draw).
    #[inline(always)]
    pub fn draw_announced<C: Clock, M: MarkLimits>(
        &self,
        drawing: &IdStamp,
        clock: &C,
        limits: &Limits<M>,
        count: u32,
        announce: impl Announce,
    ) -> Result<IdRun, DrawRefusal> {
        let (layout, identity) = (drawing.layout(), drawing.identity());
        debug_assert!((1..=longest_run(layout)).contains(&count) && limits.max_borrow_ms >= 0);
        let (lane, LaneSpan { first, last, borrowed }) = if identity.has_backup() {
            self.draw_with_backup(drawing, clock, limits, count, announce)
        } else {
            self.draw_from(LaneName::Primary, drawing, clock, limits.max_borrow_ms, limits, count, announce)
        }?;
        // Assembled here, where the run is never in memory. A callee would return it through
        // memory.
        Ok(IdRun { layout: *layout, fixed: identity.fixed(lane), lane, first, last, borrowed })
    }

    /// Tries the lanes in the order for backup workers. Not inlined, so that the common case
    /// without them stays small.
    #[inline(never)]
    fn draw_with_backup<C: Clock, M: MarkLimits>(
        &self,
        drawing: &IdStamp,
        clock: &C,
        limits: &Limits<M>,
        count: u32,
        announce: impl Announce,
    ) -> Result<(LaneName, LaneSpan), DrawRefusal> {
        let attempts = [(LaneName::Primary, 0), (LaneName::Backup, 0), (LaneName::Backup, limits.max_borrow_ms)];
        let mut soonest = None;
        for (lane, allowance_ms) in attempts {
            match self.draw_from(lane, drawing, clock, allowance_ms, limits, count, announce) {
                Ok(words) => return Ok(words),
                // The next lane must not serve instead: moving the mark takes too little time to be
                // worth an id out of order.
                Err(refusal @ DrawRefusal::MarkReached { .. }) => return Err(refusal),
                Err(refusal) => {
                    soonest = soonest.into_iter().chain([refusal]).min_by_key(DrawRefusal::wait_ms_or_never);
                }
            }
        }
        Err(soonest.unwrap_or(DrawRefusal::TimeUsedUp))
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "it is a part of the function above, for each lane")]
    fn draw_from<C: Clock, M: MarkLimits>(
        &self,
        lane: LaneName,
        drawing: &IdStamp,
        clock: &C,
        allowance_ms: i64,
        limits: &Limits<M>,
        count: u32,
        announce: impl Announce,
    ) -> Result<(LaneName, LaneSpan), DrawRefusal> {
        let (layout, fixed) = (drawing.layout(), drawing.identity().fixed(lane));
        let mark_ms = || limits.marks_ms.limit_ms(lane);
        let attempts = |first: u64| announce.attempts(|| layout.pack_word(fixed, first));
        match self.lanes[lane as usize].draw_below(lane, layout, clock, allowance_ms, mark_ms, count, attempts) {
            Ok(words) => Ok((lane, words)),
            Err(refusal) => {
                announce.is_refused();
                Err(refusal)
            }
        }
    }
}
