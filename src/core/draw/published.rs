//! Words in shared memory that have an owner: the published marks of the databases.
//!
//! ```text
//! +---------+---------+---------+---------+    owner    database and sequence; UNCLAIMED, RELEASED
//! | owner   | version | word 0  | word 1  |    version  grows with each claim, so that an owner that
//! +---------+---------+---------+---------+             comes back does not find its old words
//!                                              words    NOT_LOADED or less, or what their user has set
//! ```
//!
//! A mark's word ([`Marks`]) holds less than the mark. So one comparison tells a draw both whether
//! the mark permits it and whether it is time to move the mark early. A session publishes and
//! claims only while it holds the database's lock (`mark.rs`). Any session may
//! [`forget`](Published::forget) words at any time: the next draw then loads them anew.
//!
//! A change of the server's numbers [`retire`](Published::retire)s all words, without any lock. It
//! gives them another version, so that no view from before permits a draw. A forgotten word holds
//! the version under which it was forgotten. So a session that publishes by compare-exchange from
//! what it found *before* it looked at the numbers fails if they have changed since (`numbers.rs`).
//!
//! Orderings: the table in `generator.rs`.

use crate::atomic::{AtomicI64, AtomicU64, Ordering};
use crate::draw::generator::MarkLimits;
use crate::id::identity::LaneName;

/// How far the mark is moved beyond the tick that is asked for, in milliseconds. A greater distance
/// makes the wait after a crash longer. A smaller one makes more log records and flushes.
pub const MARK_AHEAD_MS: i64 = 1000;

/// How far the published word lies before the mark, in milliseconds.
const EARLY_MS: i64 = MARK_AHEAD_MS / 2;

/// The owner of words that were never claimed.
pub const UNCLAIMED: u64 = 0;

/// The owner of words that were released. It differs from [`UNCLAIMED`], because a search may stop
/// at the first words that were never claimed. Its database number is 0, which does not exist, so
/// such words are claimed like those of any dropped database.
pub const RELEASED: u64 = 1;

/// Placeholder: no draw is allowed until the stored value has been read. A word that was forgotten
/// holds this less the version that the words had then. So a later one is less than an earlier one,
/// and none of them permits a draw.
pub const NOT_LOADED: i64 = i64::MIN / 2;

/// What a view from before a change of version finds. No word ever holds it.
const VOID: i64 = i64::MIN;

/// Words of one owner, on a cache line of their own where lines have 64 bytes.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Published<const WORDS: usize> {
    owner: AtomicU64,
    version: AtomicU64,
    words: [AtomicI64; WORDS],
}

/// The published marks of one database: one word for each lane.
pub type PublishedMarks = Published<2>;

impl<const WORDS: usize> Published<WORDS> {
    /// Makes words that were never claimed.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        let words = std::array::from_fn(|_| AtomicI64::new(NOT_LOADED));
        Self { owner: AtomicU64::new(UNCLAIMED), version: AtomicU64::new(0), words }
    }

    /// Returns the owner, [`UNCLAIMED`] or [`RELEASED`].
    pub fn owner(&self) -> u64 {
        // Acquire: pairs with the exchange in `claim`. In `of`, this comes after the version.
        // Elsewhere it is a hint.
        self.owner.load(Ordering::Acquire)
    }

    /// Returns the words as `owner` may use them, if it is the owner.
    pub fn of(&self, owner: u64) -> Option<PublishedView<'_, WORDS>> {
        // Acquire: pairs with the Release in `claim`, and comes before the owner. If the owner
        // changes in between, so does the version, and this view permits nothing.
        let version = self.version.load(Ordering::Acquire);
        (self.owner() == owner).then_some(PublishedView { published: self, version })
    }

    /// Claims words among `all` for `owner`: its own, those of its database, unclaimed ones, or
    /// those of a database that is gone. Returns `None` if there are none.
    ///
    /// Call this with the database's lock held, so that no other session claims for this database.
    /// Other databases may claim at the same time, so each owner is read once and then
    /// compare-exchanged.
    ///
    /// The high 32 bits of an owner are its database's number.
    pub fn claim_one(all: &[Self], owner: u64, is_gone: impl Fn(u32) -> bool) -> Option<PublishedView<'_, WORDS>> {
        let database = |owner: u64| (owner >> 32) as u32;
        let claim = |wanted: &dyn Fn(u64) -> bool| {
            let candidates = all.iter().map(|words| (words, words.owner()));
            candidates
                .filter(|(_, from)| wanted(*from))
                .find(|(words, from)| *from == owner || words.claim(*from, owner))
        };
        let (claimed, _) = claim(&|from| from != UNCLAIMED && database(from) == database(owner))
            .or_else(|| claim(&|from| from == UNCLAIMED))
            .or_else(|| claim(&|from| is_gone(database(from))))?;
        claimed.of(owner)
    }

    /// Releases the words of `owner`, if they still belong to it, when its sequence is dropped. If
    /// the drop is rolled back, they are claimed anew.
    pub fn release(&self, owner: u64) {
        // If another owner takes them at this moment, its words are forgotten, and loaded once
        // more.
        if self.owner() == owner {
            self.claim(owner, RELEASED);
        }
    }

    /// Takes over the words of `from`, which must be [`UNCLAIMED`], [`RELEASED`], or an owner for
    /// which no session draws. Returns false if another owner took them. Words that were claimed
    /// never become [`UNCLAIMED`] again.
    pub fn claim(&self, from: u64, to: u64) -> bool {
        if from != UNCLAIMED {
            self.forget();
        }
        // AcqRel: pairs with the load in `owner`, after the words are forgotten, and before the
        // version. Relaxed: a failure's value is not used.
        let claimed = self.owner.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if claimed {
            // Release: pairs with the load in `of`. A session that sees a word that is published
            // later also sees this version (`PublishedView::get`).
            self.version.fetch_add(1, Ordering::Release);
        }
        claimed
    }

    /// Forgets what is published. The next draw reads what the database holds.
    pub fn forget(&self) {
        // Relaxed: an older version makes a greater word, which does not replace what a `retire`
        // has left.
        self.forget_under(self.version.load(Ordering::Relaxed));
    }

    fn forget_under(&self, version: u64) {
        for word in &self.words {
            // Release: what the caller does next is ordered by itself: a claim by its AcqRel
            // exchange, a change of numbers by their version, all else by giving back the
            // database's lock.
            word.fetch_min(NOT_LOADED - version as i64, Ordering::Release);
        }
    }

    /// Takes the words from all views that exist, and forgets them, because the server's numbers
    /// change.
    pub fn retire(&self) {
        // Release: pairs with the load in `of`. A session that sees this version finds the numbers
        // changing, or changed. Its result is greater than all versions that a word can hold.
        let version = self.version.fetch_add(1, Ordering::Release) + 1;
        self.forget_under(version);
    }
}

/// A session's view of published words: which they are, and the version under which they are its
/// own.
#[derive(Debug, Clone, Copy)]
pub struct PublishedView<'a, const WORDS: usize> {
    published: &'a Published<WORDS>,
    version: u64,
}

impl<'a, const WORDS: usize> PublishedView<'a, WORDS> {
    /// Makes a view of `published` under a `version`.
    #[cfg(loom)]
    pub fn new(published: &'a Published<WORDS>, version: u64) -> Self {
        Self { published, version }
    }

    /// Returns the version, which another thread needs to make the same view.
    #[cfg(loom)]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether this is the same view as another one. Words of two places may have equal versions.
    pub fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self.published, other.published) && self.version == other.version
    }

    /// Reads a word. It is not loaded if it is [`NOT_LOADED`] or less, as it is for a view whose
    /// words have another owner by now, or were retired.
    #[inline(always)]
    pub fn get(&self, word: usize) -> i64 {
        // Acquire: pairs with the Release in `set`, so that what came before the publication comes
        // before what follows here. The word is read before the version, so that a word of the next
        // owner shows its version.
        let value = self.published.words[word].load(Ordering::Acquire);
        // Relaxed: ordered by the load before it.
        if self.published.version.load(Ordering::Relaxed) == self.version { value } else { VOID }
    }

    /// Publishes a word, if it still holds what [`get`](Self::get) has found. Returns whether it
    /// did. Call it with the database's lock held.
    pub fn set(&self, word: usize, found: i64, value: i64) -> bool {
        // Release: pairs with the load in `get`. Relaxed: a failure's value is not used.
        self.published.words[word].compare_exchange(found, value, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Forgets what is published; see [`Published::forget`].
    pub fn forget(&self) {
        self.published.forget();
    }
}

/// A session's view of its database's marks.
pub type Marks<'a> = PublishedView<'a, 2>;

impl<'a> Marks<'a> {
    /// The limits of a draw that is to go up to the mark itself, and not only to where the mark
    /// should be moved early.
    pub fn both_lanes(self) -> BothLanes<'a> {
        BothLanes(self)
    }

    /// Returns a lane's mark, or `None` if it has to be loaded.
    pub fn mark_ms(&self, lane: LaneName) -> Option<i64> {
        self.find(lane).mark_ms()
    }

    /// Reads what is published for a lane, to be replaced by [`publish`](Self::publish).
    pub fn find(&self, lane: LaneName) -> FoundMark {
        FoundMark { word: self.limit_ms(lane), lane }
    }

    /// Whether a draw whose tick ends at `end_ms` should move the mark early, or must move it.
    pub fn needs_move(&self, lane: LaneName, end_ms: i64) -> bool {
        end_ms > self.limit_ms(lane)
    }

    /// Publishes a mark that is written, and durable where it has to be, in the place of what was
    /// found. Does nothing, and returns false, if that was forgotten or retired since. Call it with
    /// the database's lock held.
    pub fn publish(&self, found: FoundMark, mark_ms: i64) -> bool {
        // After this, a session that reads the word also sees the mark's log record, and the lane
        // raised to what was loaded.
        self.set(found.lane as usize, found.word, mark_ms - EARLY_MS)
    }
}

/// What a session has found published for a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundMark {
    word: i64,
    lane: LaneName,
}

impl FoundMark {
    /// Returns the mark, or `None` if it has to be loaded.
    pub fn mark_ms(&self) -> Option<i64> {
        (self.word > NOT_LOADED).then(|| self.word + EARLY_MS)
    }
}

/// See [`Marks::both_lanes`].
#[derive(Debug, Clone, Copy)]
pub struct BothLanes<'a>(Marks<'a>);

impl MarkLimits for BothLanes<'_> {
    fn limit_ms(&self, lane: LaneName) -> i64 {
        self.0.mark_ms(lane).unwrap_or(NOT_LOADED)
    }
}

/// For a draw that looks after the mark: it is refused when the mark should be moved, whether early
/// or not.
impl MarkLimits for Marks<'_> {
    #[inline(always)]
    fn limit_ms(&self, lane: LaneName) -> i64 {
        self.get(lane as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_that_are_released_are_claimed_by_another_database() {
        const ONE: u64 = 7 << 32 | 70;
        const OTHER: u64 = 8 << 32 | 80;
        /// Claims for one of two databases that exist, and returns the view.
        fn claim(all: &[PublishedMarks], owner: u64) -> Option<Marks<'_>> {
            let marks = PublishedMarks::claim_one(all, owner, |database| ![7, 8].contains(&database))?;
            assert!(marks.publish(marks.find(LaneName::Primary), 1000));
            Some(marks)
        }
        let all = [PublishedMarks::new()];
        let first = claim(&all, ONE).unwrap();
        assert!(claim(&all, OTHER).is_none());
        // Only their owner can release them.
        all[0].release(OTHER);
        assert!(all[0].of(ONE).unwrap().mark_ms(LaneName::Primary).is_some());
        all[0].release(ONE);
        assert!(all[0].of(ONE).is_none() && all[0].owner() == RELEASED);
        assert_eq!(first.mark_ms(LaneName::Primary), None);
        claim(&all, OTHER).unwrap();
        assert_eq!(first.mark_ms(LaneName::Primary), None);
        // A release that comes late takes nothing away.
        all[0].release(ONE);
        assert!(all[0].of(OTHER).unwrap().mark_ms(LaneName::Primary).is_some());
        // A sequence that was dropped and exists again finds no words while another database has
        // them.
        assert!(claim(&all, ONE).is_none());
        all[0].release(OTHER);
        assert!(claim(&all, ONE).is_some());
    }

    /// A session that has found its marks in another place reads its numbers anew.
    #[test]
    fn views_of_two_places_are_different_though_their_versions_are_equal() {
        let all = [PublishedMarks::new(), PublishedMarks::new()];
        let [one, other] = [&all[0], &all[1]].map(|marks| marks.of(UNCLAIMED).unwrap());
        assert_eq!(one.version, other.version);
        assert!(one.is_same(&all[0].of(UNCLAIMED).unwrap()) && !one.is_same(&other));
        all[0].retire();
        assert!(!one.is_same(&all[0].of(UNCLAIMED).unwrap()));
    }

    #[test]
    fn a_database_claims_its_own_words_before_unclaimed_ones() {
        let all = [PublishedMarks::new(), PublishedMarks::new()];
        let is_gone = |_| false;
        let owners = || [all[0].owner(), all[1].owner()];
        for (database, place) in [(7, 0), (8, 1)] {
            let owner = database << 32 | 70;
            let version = PublishedMarks::claim_one(&all, owner, is_gone).unwrap().version;
            // A second claim gives the same words, and takes nothing from them.
            assert_eq!(PublishedMarks::claim_one(&all, owner, is_gone).unwrap().version, version);
            assert_eq!(owners()[place], owner);
            // Its sequence was dropped and made again: the database takes over its own place, not
            // another one.
            assert!(PublishedMarks::claim_one(&all, owner + 1, is_gone).is_some());
            assert_eq!(owners()[place], owner + 1);
            assert_eq!(owners()[1 - place], if database == 7 { UNCLAIMED } else { 7 << 32 | 71 });
        }
    }
}
