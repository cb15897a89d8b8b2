//! The numbers that a server draws with now, in shared memory, and how they change while sessions
//! draw.
//!
//! ```text
//! +---------+---------+---------+---------+    version  odd while the numbers change
//! | version | code    | until   | fleet   |    code     the numbers (Identity::code), or NO_NUMBERS
//! +---------+---------+---------+---------+    until    where the last tick that may be drawn ends
//!                                              fleet    which fleet leases them (Fleet::code)
//! ```
//!
//! One process writes: the one that leases the numbers (`lease.rs`). All sessions read.
//!
//! A session looks up its marks first, and then reads the numbers under one even version. It keeps
//! the two together. So its fast path does not look at the numbers at all: a change of numbers
//! gives the marks another version, and every draw compares that ([`PublishedView::get`]).
//!
//! A change takes these steps:
//!
//! 1. The version becomes odd.
//! 2. Every database's marks are retired: they get another version, and are forgotten.
//! 3. The lanes: if the server enters a lease, each begins in the tick after its last id, or in the
//!    lease's first tick if that is later. If the server leaves a lease, to give the rest of it
//!    back, each lane gets another word.
//! 4. The new numbers and their end are stored, or that there are none. The version becomes even.
//!
//! | a session that | cannot draw too much, because |
//! |---|---|
//! | looks up its marks after step 2 | it reads the numbers after that, and finds the version odd, or the new numbers |
//! | looks up its marks before step 2, and reads the new numbers | its view is void |
//! | has read the mark of the old numbers before step 2 | that mark ends where they end, and its compare-exchange comes before step 3, or fails |
//! | publishes a mark for the old numbers | it exchanges what it found before it looked at the numbers, and fails if that was retired |
//!
//! So the one that leaves numbers knows, after step 3, the last tick in which they can have been
//! drawn. A run keeps the bits that it was drawn with ([`IdRun`](crate::draw::generator::IdRun)).
//!
//! # The order of the ids
//!
//! Of two ids of one tick, the one with the lower number is less, whatever their sequences. So in a
//! lane, the new numbers are drawn in later ticks than the old ones. Then a server's ids ascend
//! through a change of numbers, in all of its databases.
//!
//! The databases' marks do not see to that. They keep the ids of *one* database ascending, whatever
//! the numbers, and through crashes, restarts and promotions: its first draw with other numbers is
//! above its stored mark (`mark.rs`). But a database that has not drawn lately has a low mark.
//!
//! The first draw may have to wait for a tick. A lane whose last tick was used up lies in the next
//! one, which may be ahead of the clock. That is not a rollback, so the first draw waits
//! (`draw/session.rs`).
//!
//! [`PublishedView::get`]: crate::draw::published::PublishedView::get
//! Orderings: the table in `generator.rs`.

use crate::atomic::{AtomicI64, AtomicU64, Ordering};
use crate::draw::generator::Generator;
use crate::draw::published::PublishedMarks;
use crate::draw::stamp::IdStamp;
use crate::id::identity::Identity;
use crate::id::layout::Layout;

/// The code of a server that has no numbers.
const NO_NUMBERS: i64 = -1;

/// The numbers of a server, and until when it may draw with them.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Numbers {
    version: AtomicU64,
    code: AtomicI64,
    until_ms: AtomicI64,
    fleet: AtomicI64,
}

/// Numbers that a server changes to: it may draw ids with them whose ticks lie wholly between two
/// instants, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextNumbers {
    /// The numbers.
    pub identity: Identity,
    /// The start of the first tick.
    pub from_ms: i64,
    /// The end of the last tick.
    pub until_ms: i64,
    /// The fleet that leases them ([`Fleet::code`](crate::fleet::registry::Fleet::code)).
    pub fleet: i64,
}

impl Numbers {
    /// Makes the words of a server that has no leased numbers. One whose numbers are configured
    /// never changes them.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        let zero = || AtomicI64::new(0);
        Self { version: AtomicU64::new(0), code: AtomicI64::new(NO_NUMBERS), until_ms: zero(), fleet: zero() }
    }

    /// Reads the numbers. Returns `None` while there are none, and while they change.
    pub fn read(&self, layout: &Layout) -> Option<IdStamp> {
        // Acquire, four times: each pairs with the Release of its store. The values come after the
        // version, and the version is read again after the values.
        let version = self.version.load(Ordering::Acquire);
        let (code, until_ms) = (self.code.load(Ordering::Acquire), self.until_ms.load(Ordering::Acquire));
        let fleet = self.fleet.load(Ordering::Acquire);
        // Relaxed: ordered by the loads before it.
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        if !is_whole || code == NO_NUMBERS {
            return None;
        }
        let identity = Identity::of_code(layout, code).ok()?;
        Some(IdStamp::leased(*layout, identity, until_ms, fleet, version))
    }

    /// Whether the numbers are those that `drawing` was read with, and are not changing. A session
    /// that is to publish a mark asks this after it has looked at the published one.
    pub fn are(&self, drawing: &IdStamp) -> bool {
        // Acquire: pairs with the Release in `change`. The published mark was read before.
        self.version.load(Ordering::Acquire) == drawing.version()
    }

    /// Returns the version of the numbers, or `None` while they change. What was read between two
    /// equal versions was read under the same numbers.
    pub fn version(&self) -> Option<u64> {
        // Acquire: pairs with the Release in `change`. A lane's word that was read before this,
        // with Acquire, shows the version under which it was written.
        Some(self.version.load(Ordering::Acquire)).filter(|version| version.is_multiple_of(2))
    }

    /// Lets the same numbers be drawn with for longer. Never call it with an earlier end: only
    /// [`leave`](Self::leave) makes sure that nothing is drawn beyond it.
    pub fn extend(&self, until_ms: i64) {
        // Release: pairs with the load in `read`. A session that still has the earlier end draws
        // less.
        self.until_ms.fetch_max(until_ms, Ordering::Release);
    }

    /// Changes to other numbers. Call it from the one process that writes here.
    pub fn enter(&self, marks: &[PublishedMarks], generator: &Generator, layout: &Layout, next: &NextNumbers) {
        self.change(marks, Some((next.identity.code(layout), next.until_ms, next.fleet)), || {
            generator.begin(layout, next.from_ms);
        });
    }

    /// Changes to no numbers. Call it from the one process that writes here.
    ///
    /// Returns where the latest tick ends that can have been drawn, in milliseconds since 1970;
    /// `None` if none can. Without numbers nothing changes: if each of several tries moved the
    /// lanes, the first draw with the next numbers could be some ticks ahead of the clock.
    pub fn leave(&self, marks: &[PublishedMarks], generator: &Generator, layout: &Layout) -> Option<i64> {
        // Relaxed, twice: this process has written them, or one that has ended.
        let is_whole = self.version.load(Ordering::Relaxed).is_multiple_of(2);
        if is_whole && self.code.load(Ordering::Relaxed) == NO_NUMBERS {
            return generator.left_ms(layout);
        }
        self.change(marks, None, || generator.cut_off(layout))
    }

    fn change<T>(&self, marks: &[PublishedMarks], next: Option<(i64, i64, i64)>, lanes: impl FnOnce() -> T) -> T {
        // Relaxed: this process has written it.
        let odd = self.version.load(Ordering::Relaxed) | 1;
        // Release: pairs with the loads in `read` and `are`. A session that sees the marks' new
        // version sees this one, too.
        self.version.store(odd, Ordering::Release);
        marks.iter().for_each(PublishedMarks::retire);
        let result = lanes();
        let (code, until_ms, fleet) = next.unwrap_or((NO_NUMBERS, 0, 0));
        // Release, four times: pair with the loads in `read`, in the opposite order.
        self.code.store(code, Ordering::Release);
        self.until_ms.store(until_ms, Ordering::Release);
        self.fleet.store(fleet, Ordering::Release);
        self.version.store(odd + 1, Ordering::Release);
        result
    }
}
