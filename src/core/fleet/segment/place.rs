//! A place: the words in shared memory from which sessions draw the values of one tag.
//!
//! ```text
//! +-------+-------+--------+--------+--------+--------+-------+-------+
//! | word  | ready | first  | count  | first  | count  | claim | state |
//! +-------+-------+--------+--------+--------+--------+-------+-------+
//!                  slot of blocks    slot of blocks
//!                  0, 2, 4 ..        1, 3, 5 ..
//!
//!  63                     24 23                      0
//! +-------------------------+-------------------------+
//! | the current block's     | how many of its values  |    the word
//! | number                  | are drawn               |
//! +-------------------------+-------------------------+
//! ```
//!
//! Blocks are numbered in the order in which they are put here, whatever their tag. `ready` is the
//! number of the last one. It is the word's, or one more if there is a next block. `claim` grows
//! each time another tag takes the place, and `state` says what a session is told that finds no
//! value.
//!
//! | role | what it does | how many at a time |
//! |---|---|---|
//! | session | draws, by a compare-exchange of the word: from the current block, or from the next one if the current one is used up | any number |
//! | worker | puts a block into the slot of the one before the current one; takes out what is left; says that the tag is unknown | one |
//! | claimer | takes over a place whose tag is unknown | one, with the directory's lock |
//!
//! # The invariants
//!
//! - **P1** The word never holds the same twice, except that it may be emptied when it is empty.
//!   Its number and its count only grow, in this order.
//! - **P2** A slot is written only while the word is at a number greater than that of the slot's
//!   block. So a session whose compare-exchange succeeds has read the slot of its block: the word
//!   has not changed since it was loaded.
//! - **P3** A place is claimed only when it is empty, and no block is put there between the two. So
//!   a session that has loaded the word, and then finds its own claim, can only exchange a word of
//!   its own tag.
//! - **P4** The worker may end between any two statements. Until `ready` is stored, the block is
//!   not there, and is lost. After that, it is whole.
//!
//! 40 bits number the blocks. After 2^40 of them a place takes no more until the server is
//! restarted: at a block in each millisecond that is after 34 years.
//!
//! # Memory ordering
//!
//! | access | order | partner |
//! |---|---|---|
//! | load of the word, by a session | Acquire | the exchange that wrote it: the slot and the claim are at least as new |
//! | exchange of the word, success | Release | the load of the word; all stores to it are exchanges, so each continues those before it |
//! | exchange of the word, failure | Relaxed | none: the word is loaded anew |
//! | load of `ready`, by a session | Acquire | its store: the next block's slot is written |
//! | load of the word, by the worker | Acquire | the exchanges: the sessions that read the old slot have done so |
//! | slots: load, store | Acquire, Release | each other: a session that finds a later block's slot finds the word changed |
//! | claim: load, growth | Acquire, Release | each other, and the word: a word of the next claim shows it |
//! | state: load, store | Acquire, Release | each other: a state of the next claim shows it |
//!
//! `tests/loom/segment.rs` runs all schedules of sessions beside the worker and the claimer.

use super::{Block, LONGEST_BLOCK};
use crate::atomic::{AtomicI64, AtomicU64, Ordering};

/// How many bits of the word count the values that are drawn.
const COUNT_BITS: u32 = 24;

/// The count of a word whose block was taken out. No block has so many values.
const TAKEN_OUT: u64 = (1 << COUNT_BITS) - 1;

const _: () = assert!((LONGEST_BLOCK as u64) < TAKEN_OUT);

/// The last number that a block can have.
const LAST_NUMBER: u64 = u64::MAX >> COUNT_BITS;

/// A block's words.
#[derive(Debug)]
struct BlockWords {
    first: AtomicI64,
    count: AtomicU64,
}

impl BlockWords {
    fn new() -> Self {
        Self { first: AtomicI64::new(0), count: AtomicU64::new(0) }
    }
}

/// The words of one tag, on a cache line of their own where lines have 64 bytes.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Place {
    word: AtomicU64,
    ready: AtomicU64,
    slots: [BlockWords; 2],
    claim: AtomicU64,
    state: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Place>() == 64);

/// What a session is told that finds no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The worker reserves a block.
    Open,
    /// The registry does not have the tag. Another tag may take the place.
    Unknown,
    /// The tag's values end with the last one of a `bigint`.
    Ended,
    /// The registry may have forgotten blocks of the tag, and an operator must say how far it has
    /// to jump ahead.
    NoJump,
    /// What the server has had, or a session's minimum, lies further above the tag's next value
    /// than [`FARTHEST`](super::FARTHEST). An operator must raise that.
    TooFar,
}

impl State {
    const ALL: [Self; 5] = [Self::Open, Self::Unknown, Self::Ended, Self::NoJump, Self::TooFar];

    fn of(code: u64) -> Self {
        Self::ALL.into_iter().find(|state| *state as u64 == code).unwrap_or(Self::Open)
    }
}

/// Why no value is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceRefusal {
    /// Both blocks are used up, and the place is in this state.
    Empty(State),
    /// The place was claimed for another tag. The caller looks its tag up again.
    Void,
}

/// Consecutive values that were drawn together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueRun {
    /// The first value.
    pub first: i64,
    /// How many values there are, at least 1.
    pub count: u32,
}

impl ValueRun {
    /// Returns the values, ascending.
    pub fn values(self) -> impl Iterator<Item = i64> {
        (self.first..).take(self.count as usize)
    }
}

/// What a draw has given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// The values.
    pub run: ValueRun,
    /// Whether this draw has made it time to reserve the next block, so that the caller wakes the
    /// worker. Of all draws from a block, one at most says so.
    pub needs_refill: bool,
}

/// Values that a session has found, to be [taken](PlaceView::take).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundValues {
    word: u64,
    next: u64,
    drawn: Drawn,
}

impl FoundValues {
    /// Returns the values.
    pub fn run(&self) -> ValueRun {
        self.drawn.run
    }
}

/// Room for a block in a place, to be [filled](Place::fill).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    number: u64,
}

/// What was left in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// Of the current block.
    pub current: Option<Block>,
    /// The next block.
    pub next: Option<Block>,
}

fn join(number: u64, count: u64) -> u64 {
    number << COUNT_BITS | count
}

fn split(word: u64) -> (u64, u64) {
    (word >> COUNT_BITS, word & TAKEN_OUT)
}

/// Whether the next block is to be reserved when so many values of a block are drawn: from a tenth
/// on (Leaf's rule).
fn needs_refill(drawn: u64, count: u64) -> bool {
    drawn.saturating_mul(10) >= count
}

impl Place {
    /// Makes a place that was never claimed.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        let [word, ready, claim] = [0; 3].map(AtomicU64::new);
        let state = AtomicU64::new(State::Unknown as u64);
        Self { word, ready, slots: [BlockWords::new(), BlockWords::new()], claim, state }
    }

    fn slot(&self, number: u64) -> &BlockWords {
        &self.slots[(number & 1) as usize]
    }

    /// Returns which claim of the place this is; 0 if it was never claimed.
    pub fn claimed(&self) -> u64 {
        // Acquire: pairs with the Release in `claim`.
        self.claim.load(Ordering::Acquire)
    }

    /// Returns what a session is told that finds no value.
    pub fn state(&self) -> State {
        // Acquire: pairs with the Release of the store. In `refused`, the claim is loaded later.
        State::of(self.state.load(Ordering::Acquire))
    }

    /// Returns a view of the place under its present claim.
    pub fn view(&self) -> PlaceView<'_> {
        PlaceView { place: self, claim: self.claimed() }
    }

    /// Takes over the place for another tag. Call it with the directory's lock held, and only if
    /// the state is [`State::Unknown`].
    pub fn claim(&self) -> PlaceView<'_> {
        // Release: pairs with the load in `claimed`. The place is empty, and the block that is put
        // there next comes after this.
        let claim = self.claim.fetch_add(1, Ordering::Release) + 1;
        // After the claim, so that a session of the tag before is not told to wait. Sessions of
        // this tag find the place only when the lock is given back.
        self.tell(State::Open);
        PlaceView { place: self, claim }
    }

    /// Sets what a session is told that finds no value. Only the worker calls this, and says that a
    /// tag is unknown by [`free`](Self::free) instead.
    pub fn tell(&self, state: State) {
        // Release: pairs with the load in `state`.
        self.state.store(state as u64, Ordering::Release);
    }

    /// Whether the next block should be reserved.
    pub fn needs_refill(&self) -> bool {
        let (number, drawn) = split(self.word.load(Ordering::Acquire));
        needs_refill(drawn, self.slot(number).count.load(Ordering::Acquire))
    }

    /// Returns room for a block, unless there is a next block already. Only the worker calls this.
    pub fn room(&self) -> Option<Room> {
        // Acquire: pairs with the exchanges. No session that has read the slot that is to be
        // written can still take from it.
        let (number, _) = split(self.word.load(Ordering::Acquire));
        // Acquire: another process may have been the worker before.
        let ready = self.ready.load(Ordering::Acquire);
        (ready == number && ready < LAST_NUMBER).then_some(Room { number: ready + 1 })
    }

    /// Puts a block here. Only the worker calls this, once for each room. The caller must pass
    /// blocks in ascending order.
    ///
    /// # Panics
    /// If the block is empty or too long.
    pub fn fill(&self, room: Room, block: Block) {
        assert!((1..=LONGEST_BLOCK).contains(&block.count), "a block of {} values", block.count);
        let slot = self.slot(room.number);
        // Release, twice: pair with the loads in `find`. A session that still looks for the slot's
        // last block finds the word changed.
        slot.first.store(block.first, Ordering::Release);
        slot.count.store(block.count.into(), Ordering::Release);
        // Release: pairs with the load in `find`. From here on the block is there.
        self.ready.store(room.number, Ordering::Release);
        self.tell(State::Open);
    }

    /// Takes out what is left. When this returns, no session can draw it. Only the worker calls
    /// this.
    pub fn take_out(&self) -> Rest {
        let ready = self.ready.load(Ordering::Acquire);
        // Release: pairs with the load in `find`, and comes before a claim. Acquire: the draws
        // before this one have read what they need.
        let emptied = |_| Some(join(ready, TAKEN_OUT));
        let (Ok(word) | Err(word)) = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, emptied);
        self.left(word, ready)
    }

    /// Returns what is left, for people: while sessions draw, it may be of two moments.
    pub fn rest(&self) -> Rest {
        // Acquire, twice: pair with the exchanges and with the store in `fill`.
        let word = self.word.load(Ordering::Acquire);
        self.left(word, self.ready.load(Ordering::Acquire).min(split(word).0 + 1))
    }

    /// Returns what is left under this word, if `ready` is the last block's number.
    fn left(&self, word: u64, ready: u64) -> Rest {
        let (number, drawn) = split(word);
        let left = |number: u64, drawn: u64| {
            let slot = self.slot(number);
            let (first, count) = (slot.first.load(Ordering::Acquire), slot.count.load(Ordering::Acquire));
            let left = count.saturating_sub(drawn) as u32;
            (left > 0).then(|| Block { first: first.wrapping_add(drawn as i64), count: left })
        };
        Rest { current: left(number, drawn), next: (ready != number).then(|| left(ready, 0)).flatten() }
    }

    /// Empties the place, because the registry does not have the tag. From then on another tag may
    /// take it. Only the worker calls this.
    pub fn free(&self) {
        self.take_out();
        self.tell(State::Unknown);
    }
}

/// A session's view of a place: which one it is, and the claim under which it is its tag's.
#[derive(Debug, Clone, Copy)]
pub struct PlaceView<'a> {
    place: &'a Place,
    claim: u64,
}

impl<'a> PlaceView<'a> {
    /// Makes a view of a place under a [claim](Self::claim).
    pub fn new(place: &'a Place, claim: u64) -> Self {
        Self { place, claim }
    }

    /// Returns the claim, for [`new`](Self::new).
    pub fn claim(&self) -> u64 {
        self.claim
    }

    /// Draws up to `count` values: fewer if the block has no more. A `count` of 0 counts as 1.
    ///
    /// # Errors
    /// [`PlaceRefusal`] if there is none.
    #[inline]
    pub fn draw(&self, count: u32) -> Result<Drawn, PlaceRefusal> {
        loop {
            let found = self.find(count)?;
            if let Some(drawn) = self.take(found) {
                return Ok(drawn);
            }
        }
    }

    /// Looks which values [`draw`](Self::draw) would take.
    ///
    /// # Errors
    /// [`PlaceRefusal`] if there is none.
    #[inline]
    pub fn find(&self, count: u32) -> Result<FoundValues, PlaceRefusal> {
        let place = self.place;
        loop {
            // Acquire: see the table above. Everything else is read after the word.
            let word = place.word.load(Ordering::Acquire);
            let (mut number, mut drawn) = split(word);
            let read = |number: u64| {
                let slot = place.slot(number);
                // Acquire, twice: pair with the stores in `fill`.
                (slot.first.load(Ordering::Acquire), slot.count.load(Ordering::Acquire))
            };
            let (mut first, mut length) = read(number);
            if drawn >= length {
                // Acquire: pairs with the store in `fill`.
                if place.ready.load(Ordering::Acquire) <= number {
                    // Acquire: after the slot. If that was a later block's, the word is later, too.
                    if place.word.load(Ordering::Acquire) == word {
                        return Err(self.refused());
                    }
                    continue;
                }
                (number, drawn) = (number + 1, 0);
                (first, length) = read(number);
            }
            // Acquire: after the word, so that a word of the next claim shows it.
            if place.claimed() != self.claim {
                return Err(PlaceRefusal::Void);
            }
            // If the word has changed, these may be parts of two blocks, and are not taken.
            let taken = u64::from(count.max(1)).min(length.saturating_sub(drawn));
            let run = ValueRun { first: first.wrapping_add(drawn as i64), count: taken as u32 };
            let needs_refill = needs_refill(drawn + taken, length) && (drawn == 0 || !needs_refill(drawn, length));
            return Ok(FoundValues { word, next: join(number, drawn + taken), drawn: Drawn { run, needs_refill } });
        }
    }

    /// Takes the values that were found, if no other draw has come first.
    #[inline]
    pub fn take(&self, found: FoundValues) -> Option<Drawn> {
        let FoundValues { word, next, drawn } = found;
        // Release: pairs with the loads of the word. Relaxed: a failure's value is not used.
        self.place.word.compare_exchange(word, next, Ordering::Release, Ordering::Relaxed).ok()?;
        Some(drawn)
    }

    #[cold]
    fn refused(&self) -> PlaceRefusal {
        let state = self.place.state();
        // After the state, so that a state of the next claim shows it.
        if self.place.claimed() == self.claim { PlaceRefusal::Empty(state) } else { PlaceRefusal::Void }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(first: i64, count: u32) -> Block {
        Block { first, count }
    }

    fn claimed() -> Place {
        let place = Place::new();
        place.claim();
        place
    }

    fn fill(place: &Place, block: Block) {
        place.fill(place.room().expect("there is room"), block);
    }

    /// Draws one value after the other until there is none.
    fn drain(view: PlaceView<'_>) -> Vec<i64> {
        std::iter::from_fn(|| view.draw(1).ok()).flat_map(|drawn| drawn.run.values()).collect()
    }

    #[test]
    fn values_are_drawn_from_one_block_after_the_other() {
        let place = claimed();
        let view = place.view();
        assert_eq!(view.draw(1), Err(PlaceRefusal::Empty(State::Open)));
        fill(&place, block(1, 3));
        // The first block is the next one until a session draws from it.
        assert_eq!(view.draw(1).unwrap().run, ValueRun { first: 1, count: 1 });
        fill(&place, block(11, 2));
        assert_eq!(place.room(), None);
        assert_eq!(drain(view), [2, 3, 11, 12]);
        assert_eq!(view.draw(1), Err(PlaceRefusal::Empty(State::Open)));
    }

    #[test]
    fn a_draw_of_many_ends_with_its_block() {
        let place = claimed();
        let view = place.view();
        fill(&place, block(1, 5));
        assert_eq!(view.draw(3).unwrap().run, ValueRun { first: 1, count: 3 });
        fill(&place, block(100, 2));
        let runs = std::iter::from_fn(|| view.draw(3).ok()).map(|drawn| drawn.run);
        assert!(runs.eq([ValueRun { first: 4, count: 2 }, ValueRun { first: 100, count: 2 }]));
        // Nothing asks for no value.
        fill(&place, block(200, 2));
        assert_eq!(view.draw(0).unwrap().run, ValueRun { first: 200, count: 1 });
        assert_eq!(view.draw(u32::MAX).unwrap().run, ValueRun { first: 201, count: 1 });
    }

    #[test]
    fn one_draw_of_a_block_says_that_the_next_one_is_due() {
        for length in [1, 2, 9, 10, 11, 25, 100] {
            for count in [1, 2, 7, 100] {
                let place = claimed();
                fill(&place, block(1, length));
                let due: Vec<_> = std::iter::from_fn(|| place.view().draw(count).ok())
                    .filter(|drawn| drawn.needs_refill)
                    .map(|drawn| drawn.run)
                    .collect();
                let [run] = due[..] else { panic!("{due:?} of {length}, {count} at a time") };
                let tenth = i64::from(length.div_ceil(10));
                assert!((run.first..run.first + i64::from(run.count)).contains(&tenth));
            }
        }
        let place = claimed();
        // A place without a block wants one.
        assert!(place.needs_refill());
        fill(&place, block(1, 20));
        assert!(!place.view().draw(1).unwrap().needs_refill && !place.needs_refill());
        assert!(place.view().draw(1).unwrap().needs_refill && place.needs_refill());
    }

    #[test]
    fn what_is_taken_out_is_not_drawn() {
        let place = claimed();
        let view = place.view();
        assert_eq!(place.take_out(), Rest { current: None, next: None });
        fill(&place, block(1, 5));
        assert_eq!(place.take_out(), Rest { current: None, next: Some(block(1, 5)) });
        assert_eq!(place.take_out(), Rest { current: None, next: None });
        fill(&place, block(6, 5));
        view.draw(2).unwrap();
        let found = view.find(1).unwrap();
        fill(&place, block(21, 5));
        let rest = Rest { current: Some(block(8, 3)), next: Some(block(21, 5)) };
        assert_eq!((place.rest(), place.rest()), (rest, rest));
        assert_eq!(place.take_out(), rest);
        assert_eq!(place.rest(), Rest { current: None, next: None });
        // What a session had found before is gone, too.
        assert_eq!(view.take(found), None);
        assert_eq!(view.draw(1), Err(PlaceRefusal::Empty(State::Open)));
        fill(&place, block(31, 1));
        assert_eq!(drain(view), [31]);
    }

    #[test]
    fn a_place_that_is_claimed_again_gives_its_values_to_its_own_tag_alone() {
        let place = claimed();
        let old = place.view();
        fill(&place, block(1, 5));
        let found = old.find(1).unwrap();
        place.tell(State::Ended);
        assert!(old.draw(1).is_ok());
        place.free();
        assert_eq!(old.draw(1), Err(PlaceRefusal::Empty(State::Unknown)));
        let new = place.claim();
        assert_eq!((old.draw(1), new.draw(1)), (Err(PlaceRefusal::Void), Err(PlaceRefusal::Empty(State::Open))));
        // The same numbers, of another tag.
        fill(&place, block(1, 5));
        assert_eq!((old.draw(1), old.take(found)), (Err(PlaceRefusal::Void), None));
        assert_eq!(drain(new), [1, 2, 3, 4, 5]);
    }

    /// The worker ends before it has stored that the block is there (P4). The next one reserves
    /// another block.
    #[test]
    fn a_block_that_is_half_put_in_place_is_not_drawn() {
        let place = claimed();
        let view = place.view();
        fill(&place, block(1, 2));
        view.draw(1).unwrap();
        let room = place.room().unwrap();
        let slot = place.slot(room.number);
        slot.first.store(11, Ordering::Release);
        assert_eq!(place.room(), Some(room));
        slot.count.store(5, Ordering::Release);
        assert_eq!(place.room(), Some(room));
        assert_eq!(drain(view), [2]);
        fill(&place, block(21, 3));
        assert_eq!(drain(view), [21, 22, 23]);
    }

    #[test]
    fn a_place_takes_no_block_after_the_last_number() {
        let place = claimed();
        place.ready.store(LAST_NUMBER - 1, Ordering::Release);
        place.word.store(join(LAST_NUMBER - 1, TAKEN_OUT), Ordering::Release);
        fill(&place, block(1, 2));
        assert_eq!(drain(place.view()), [1, 2]);
        assert_eq!(place.room(), None);
        assert_eq!(place.take_out(), Rest { current: None, next: None });
        assert_eq!(place.room(), None);
    }

    #[test]
    fn values_reach_the_end_of_bigint_and_the_longest_block_is_drawn_whole() {
        let place = claimed();
        fill(&place, block(i64::MAX - 2, 2));
        assert_eq!(drain(place.view()), [i64::MAX - 2, i64::MAX - 1]);
        fill(&place, block(1, LONGEST_BLOCK));
        let mut drawn = 0;
        while let Ok(more) = place.view().draw(999_983) {
            assert_eq!(more.run.first, drawn + 1);
            drawn += i64::from(more.run.count);
        }
        assert_eq!(drawn, LONGEST_BLOCK.into());
    }
}
