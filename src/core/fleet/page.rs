//! The page: one record, outside of the memory that a crash loses, from which the next life of a
//! server goes on with its lease. It is a registry of one lease, for one server's lives.
//!
//! ```text
//! +-------+----------+------+---------+--------+--------+----------+
//! | magic | made for | life | ceiling | holder | secret | checksum |
//! +-------+----------+------+---------+--------+--------+----------+
//! made for   a hash of what the page is for: the server, its settings
//! life       a random number: the life of shared memory that may write
//! ceiling    no mark was published beyond this instant
//! holder     what the life holds (`lease/holder.rs`), field by field; none before the first call
//! secret     what proves to the registry that the holder's records are its own
//! ```
//!
//! # Why it holds
//!
//! - Every draw ends within a published mark (I3), and the ceiling is raised to a mark before that
//!   is published (`draw/mark.rs`). So no life has drawn beyond the ceiling, and the next one
//!   begins there (R3). No lane's word and no clock enters the argument.
//! - The next life takes the page, with the right to raise the ceiling, in one write. A life whose
//!   number the page no longer has is **fenced**: it publishes no mark and sends nothing.
//! - What a call is to do is written before the call (`LeasingServer::saves`). So the registry
//!   knows nothing of the holder that the page lacks, and a lease that is to be given back is not
//!   in the page any more.
//! - There is one record, and no second copy: an older one would be a rollback of the holder. What
//!   a page is for holds where it lies, so that a copy elsewhere is void.
//!
//! # A page that outlives its processes
//!
//! Where a page outlives a whole server, two **locks** guard it. Each belongs to one process, and
//! ends with it.
//!
//! - The **postmaster's**: a postmaster takes it at its start, before it begins a life, and keeps
//!   it until it ends. So no life begins on the page of a server that runs.
//! - The **writer's**: a process has it from a read of the page to the write that follows. So a
//!   ceiling that an **orphan** raises, a process of a postmaster that was killed, is either seen
//!   by the next life, or the orphan sees that life, and is fenced. Until then it draws up to the
//!   ceiling.
//!
//! A page that is broken stays so for as long as the life that finds it so. As long as that life's
//! postmaster has its lock, nobody else has begun, so the life goes on without a page, and the next
//! one leases another number. Without that postmaster, another life may have begun, and the process
//! counts as fenced ([`PageStore::is_own`]).
//!
//! The page must never be mapped, so that no stray write reaches it. Where it lies, its
//! [`PageStore`] says.

use super::bytes::{Bytes, bytes};
use super::lease::Holder;
use crate::draw::mark::IS_CONTROL;

/// What a page begins with. Another form gets another last character.
const MAGIC: u64 = u64::from_le_bytes(*b"snowpag1");

/// How far ahead of the clock and of what ids may borrow a ceiling may lie, in milliseconds. A page
/// whose ceiling lies further ahead is void, so that a crash or a restart is a way out when the
/// clock was ahead.
const FARTHEST_MS: i64 = 60_000;

/// What a life leaves to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// What it holds.
    pub holder: Holder,
    /// What proves to the registry that the holder's records are its own.
    pub secret: u128,
}

bytes!(Kept { holder: Holder, secret: u128 });

/// The record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    made_for: u64,
    life: u64,
    ceiling_ms: i64,
    kept: Option<Kept>,
}

bytes!(Page { made_for: u64, life: u64, ceiling_ms: i64, kept: Option<Kept> });

const CHECKSUM_AT: usize = (8 + Page::LENGTH).next_multiple_of(8);

/// How many bytes a page has.
pub const PAGE_BYTES: usize = CHECKSUM_AT + 8;

/// Where a page lies. One process at a time calls it, with the writer's lock.
pub trait PageStore {
    /// What can go wrong.
    type Error;

    /// Whether only this server's lives can have begun here since this process started: its
    /// postmaster runs and has its lock.
    ///
    /// # Errors
    /// The store's.
    fn is_own(&self) -> Result<bool, Self::Error>;

    /// Reads the whole page.
    ///
    /// # Errors
    /// The store's.
    fn read(&self) -> Result<[u8; PAGE_BYTES], Self::Error>;

    /// Writes the whole page.
    ///
    /// # Errors
    /// The store's. Whether the page was written is then unknown.
    fn write(&self, bytes: &[u8; PAGE_BYTES]) -> Result<(), Self::Error>;
}

/// Why a page was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFailure<E> {
    /// Its store has failed.
    Store(E),
    /// A later life has taken it, or may have.
    Fenced,
}

/// Whether a page was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It holds what was to be written.
    Yes,
    /// It is broken, so that the next life goes on from nothing.
    Broken,
}

/// Why a life does not go on from a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Void {
    /// It is not a page, or not a whole one.
    Broken,
    /// It was made for another server, or for other settings.
    MadeForOther,
    /// It has no lease.
    NoLease,
    /// The lease is over by this clock.
    Over {
        /// Where it ended, in milliseconds since 1970.
        until_ms: i64,
    },
    /// The lease was drawn with so far ahead that the clock must have been wrong.
    FarAhead {
        /// How far the ceiling is ahead of the clock, in milliseconds.
        ahead_ms: i64,
    },
}

/// How a life begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    /// The instant up to which all counts as drawn, in both lanes, in milliseconds since 1970.
    pub begins_ms: i64,
    /// What it goes on with.
    pub kept: Kept,
}

/// A life that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextLife {
    /// A hash of what its page is for.
    pub made_for: u64,
    /// Its random number.
    pub life: u64,
    /// What its clock says, in milliseconds since 1970.
    pub now_ms: i64,
    /// How far ids may run ahead of the clock, in milliseconds.
    pub max_borrow_ms: i64,
}

impl Page {
    /// Returns the page as it is stored.
    pub fn encode(&self) -> [u8; PAGE_BYTES] {
        let mut bytes = [0; PAGE_BYTES];
        let (record, checksum) = bytes.split_at_mut(CHECKSUM_AT);
        let mut to = &mut *record;
        MAGIC.put(&mut to);
        self.put(&mut to);
        checksum.copy_from_slice(&sum(record).to_le_bytes());
        bytes
    }

    /// Reads a page; `None` if it is broken.
    pub fn decode(bytes: &[u8; PAGE_BYTES]) -> Option<Self> {
        let (record, mut checksum) = bytes.split_at(CHECKSUM_AT);
        if sum(record) != u64::read(&mut checksum)? {
            return None;
        }
        let mut from = record;
        (u64::read(&mut from)? == MAGIC).then(|| Self::read(&mut from))?
    }

    /// Returns how a life goes on from this page.
    fn goes_on(&self, next: &NextLife) -> Result<Beginning, Void> {
        if self.made_for != next.made_for {
            return Err(Void::MadeForOther);
        }
        // The negative control shows that ids repeat.
        let begins_ms = if IS_CONTROL { i64::MIN } else { self.ceiling_ms };
        let kept = self.kept.ok_or(Void::NoLease)?;
        let (holder, until_ms) = kept.holder.goes_on(begins_ms).ok_or(Void::NoLease)?;
        if until_ms <= next.now_ms {
            return Err(Void::Over { until_ms });
        }
        let ahead_ms = begins_ms.saturating_sub(next.now_ms);
        if ahead_ms.saturating_sub(next.max_borrow_ms) > FARTHEST_MS {
            return Err(Void::FarAhead { ahead_ms });
        }
        Ok(Beginning { begins_ms, kept: Kept { holder, ..kept } })
    }
}

/// Begins a life, and gives it the page. Returns how it goes on from there, or why it begins anew.
/// Where the page outlives its processes, the caller has the postmaster's lock.
///
/// # Errors
/// The store's. The life then has no page, and begins anew.
pub fn begin<S: PageStore>(store: &S, next: &NextLife) -> Result<Result<Beginning, Void>, S::Error> {
    let NextLife { made_for, life, .. } = *next;
    let beginning = Page::decode(&store.read()?).ok_or(Void::Broken).and_then(|page| page.goes_on(next));
    let (ceiling_ms, kept) = match &beginning {
        Ok(Beginning { begins_ms, kept }) => (*begins_ms, Some(*kept)),
        Err(_) => (i64::MIN, None),
    };
    store.write(&Page { made_for, life, ceiling_ms, kept }.encode())?;
    Ok(beginning)
}

/// Makes the page of a server's first life.
///
/// # Errors
/// The store's.
pub fn make<S: PageStore>(store: &S, next: &NextLife) -> Result<(), S::Error> {
    let NextLife { made_for, life, .. } = *next;
    store.write(&Page { made_for, life, ceiling_ms: i64::MIN, kept: None }.encode())
}

/// Notes that a mark is going to be published, unless the page notes a later one.
///
/// # Errors
/// [`PageFailure`]. The mark must not be published then.
pub fn raise_ceiling<S: PageStore>(store: &S, life: u64, mark_ms: i64) -> Result<Written, PageFailure<S::Error>> {
    change(store, life, |page| page.ceiling_ms = page.ceiling_ms.max(mark_ms))
}

/// Notes what the life holds, before a call. `made_for` is what its page is for from now on.
///
/// # Errors
/// [`PageFailure`]. The call must not be made then.
pub fn keep<S: PageStore>(store: &S, life: u64, made_for: u64, kept: &Kept) -> Result<Written, PageFailure<S::Error>> {
    change(store, life, |page| (page.made_for, page.kept) = (made_for, Some(*kept)))
}

/// Whether another life would go on from a page, if its lease is not over by then.
pub fn has_lease(bytes: &[u8; PAGE_BYTES]) -> bool {
    Page::decode(bytes).and_then(|page| page.kept?.holder.goes_on(page.ceiling_ms)).is_some()
}

fn change<S: PageStore>(
    store: &S,
    life: u64,
    change: impl FnOnce(&mut Page),
) -> Result<Written, PageFailure<S::Error>> {
    let Some(mut page) = Page::decode(&store.read().map_err(PageFailure::Store)?) else {
        let is_own = store.is_own().map_err(PageFailure::Store)?;
        return if is_own { Ok(Written::Broken) } else { Err(PageFailure::Fenced) };
    };
    if page.life != life {
        return Err(PageFailure::Fenced);
    }
    let before = page;
    change(&mut page);
    if page != before {
        store.write(&page.encode()).map_err(PageFailure::Store)?;
    }
    Ok(Written::Yes)
}

/// Returns a sum of bytes, whose number is a multiple of eight. A change of any eight that stand
/// together changes it.
fn sum(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks();
    words
        .iter()
        .fold(0, |sum: u64, word| (sum.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x517c_c1b7_2722_0a95))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const NOW_MS: i64 = 1_800_000_000_000;
    const NEXT: NextLife = NextLife { made_for: 7, life: 2, now_ms: NOW_MS, max_borrow_ms: 250 };

    /// A page that may be out of reach, and whose server may be gone.
    struct Fake {
        bytes: Cell<[u8; PAGE_BYTES]>,
        is_gone: Cell<bool>,
        is_orphan: Cell<bool>,
    }

    impl PageStore for Fake {
        type Error = ();

        fn is_own(&self) -> Result<bool, ()> {
            Ok(!self.is_orphan.get())
        }

        fn read(&self) -> Result<[u8; PAGE_BYTES], ()> {
            if self.is_gone.get() { Err(()) } else { Ok(self.bytes.get()) }
        }

        fn write(&self, bytes: &[u8; PAGE_BYTES]) -> Result<(), ()> {
            self.read().map(|_| self.bytes.set(*bytes))
        }
    }

    /// A page whose first life, number 1, holds a lease up to `until_ms`.
    fn page(until_ms: i64) -> (Fake, Kept) {
        let [is_gone, is_orphan] = [false; 2].map(Cell::new);
        let fake = Fake { bytes: Cell::new([0; PAGE_BYTES]), is_gone, is_orphan };
        assert_eq!(make(&fake, &NextLife { life: 1, ..NEXT }), Ok(()));
        let kept = Kept { holder: Holder::drawing_until(until_ms), secret: 9 };
        assert_eq!(keep(&fake, 1, 7, &kept), Ok(Written::Yes));
        (fake, kept)
    }

    #[test]
    fn a_page_is_read_back_and_each_byte_of_it_counts() {
        let (fake, kept) = page(NOW_MS + 1);
        raise_ceiling(&fake, 1, NOW_MS).unwrap();
        let bytes = fake.bytes.get();
        let expected = Page { made_for: 7, life: 1, ceiling_ms: NOW_MS, kept: Some(kept) };
        assert_eq!(Page::decode(&bytes), Some(expected));
        for at in 0..PAGE_BYTES {
            let mut other = bytes;
            other[at] ^= 0x10;
            assert_eq!(Page::decode(&other), None, "byte {at}");
        }
        assert_eq!(Page::decode(&[0; PAGE_BYTES]), None);
    }

    #[test]
    fn a_life_goes_on_at_the_ceiling_with_what_the_one_before_held() {
        let (fake, kept) = page(NOW_MS + 5000);
        // It never falls.
        for mark_ms in [NOW_MS + 700, NOW_MS + 300] {
            assert_eq!(raise_ceiling(&fake, 1, mark_ms), Ok(Written::Yes));
        }
        let begun = begin(&fake, &NEXT).unwrap().unwrap();
        assert_eq!((begun.begins_ms, begun.kept.secret), (NOW_MS + 700, 9));
        let lease = kept.holder.held().unwrap();
        assert_eq!((begun.kept.holder.held(), begun.kept.holder.kept()), (None, Some(lease)));
        // The one after begins there, too, though this one has published no mark.
        let again = begin(&fake, &NextLife { life: 3, ..NEXT }).unwrap();
        assert_eq!(again, Ok(begun));
    }

    #[test]
    fn a_life_that_was_followed_by_another_writes_nothing() {
        let (fake, kept) = page(NOW_MS + 5000);
        begin(&fake, &NEXT).unwrap().unwrap();
        let before = fake.bytes.get();
        assert_eq!(raise_ceiling(&fake, 1, NOW_MS + 9000), Err(PageFailure::Fenced));
        assert_eq!(keep(&fake, 1, 7, &kept), Err(PageFailure::Fenced));
        assert_eq!(fake.bytes.get(), before);
        assert_eq!(raise_ceiling(&fake, 2, NOW_MS + 9000), Ok(Written::Yes));
    }

    #[test]
    fn a_life_begins_anew_where_the_page_is_not_its_own_or_of_no_use() {
        let void = |page: &Fake, next| begin(page, &next).unwrap().unwrap_err();
        assert_eq!(void(&page(NOW_MS + 1).0, NextLife { made_for: 8, ..NEXT }), Void::MadeForOther);
        assert_eq!(void(&page(NOW_MS).0, NEXT), Void::Over { until_ms: NOW_MS });
        let fresh = page(NOW_MS + 1).0;
        make(&fresh, &NEXT).unwrap();
        assert_eq!(void(&fresh, NEXT), Void::NoLease);
        for (ceiling_ms, expected) in
            [(NOW_MS + 60_250, None), (NOW_MS + 60_251, Some(Void::FarAhead { ahead_ms: 60_251 }))]
        {
            let (ahead, _) = page(NOW_MS + 600_000);
            raise_ceiling(&ahead, 1, ceiling_ms).unwrap();
            assert_eq!(begin(&ahead, &NEXT).unwrap().err(), expected);
            // What is void for one life is so for the next one, whatever its clock.
            let next = NextLife { life: 3, now_ms: ceiling_ms, ..NEXT };
            assert_eq!(begin(&ahead, &next).unwrap().is_err(), expected.is_some());
        }
    }

    /// Else a write of the same life would make a whole page of it, whose ceiling is too low.
    #[test]
    fn a_page_that_is_broken_stays_so_until_the_next_life() {
        let (fake, kept) = page(NOW_MS + 5000);
        let mut bytes = fake.bytes.get();
        bytes[20] ^= 1;
        fake.bytes.set(bytes);
        assert_eq!(raise_ceiling(&fake, 1, NOW_MS + 9000), Ok(Written::Broken));
        assert_eq!(keep(&fake, 1, 7, &kept), Ok(Written::Broken));
        // Another life may have begun since the postmaster has ended.
        fake.is_orphan.set(true);
        assert_eq!(raise_ceiling(&fake, 1, NOW_MS + 9000), Err(PageFailure::Fenced));
        assert_eq!(keep(&fake, 1, 7, &kept), Err(PageFailure::Fenced));
        assert_eq!(begin(&fake, &NEXT), Ok(Err(Void::Broken)));
        assert_eq!(keep(&fake, 2, 7, &kept), Ok(Written::Yes));
    }

    #[test]
    fn a_page_without_a_lease_is_of_no_use() {
        let (fake, _) = page(NOW_MS + 5000);
        assert!(has_lease(&fake.bytes.get()));
        make(&fake, &NEXT).unwrap();
        assert!(!has_lease(&fake.bytes.get()));
        assert!(!has_lease(&[0; PAGE_BYTES]));
    }

    #[test]
    fn what_cannot_be_written_is_an_error() {
        let (fake, kept) = page(NOW_MS + 5000);
        fake.is_gone.set(true);
        assert_eq!(raise_ceiling(&fake, 1, NOW_MS + 9000), Err(PageFailure::Store(())));
        assert_eq!(keep(&fake, 1, 7, &kept), Err(PageFailure::Store(())));
        assert_eq!(begin(&fake, &NEXT), Err(()));
    }
}
