//! One piece of shared memory: a header, and two arrays behind it.
//!
//! ```text
//! start
//! | H | A 0 | A 1 | ... | B 0 | B 1 | ... |
//! ```
//!
//! This is a crate of its own so that Miri can look at it, which cannot run PostgreSQL
//! (`tools/miri`). Everything is reached from the raw start. A reference to the header would not
//! do, because nothing behind the header may be reached through it. The extension's `shmem.rs` says
//! what lies in its memory.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

/// Memory that [`Region::begin`] has filled. Each process has a copy of this, and none of them ever
/// frees the memory.
pub struct Region<H, A, B> {
    start: NonNull<H>,
    /// How many elements each array has.
    counts: (usize, usize),
    arrays: PhantomData<(A, B)>,
}

impl<H, A, B> Clone for Region<H, A, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H, A, B> Copy for Region<H, A, B> {}

impl<H, A, B> fmt::Debug for Region<H, A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("start", &self.start).field("counts", &self.counts).finish()
    }
}

// SAFETY: it gives out shared references to these types, and nothing else. All of them are `Sync`.
unsafe impl<H: Sync, A: Sync, B: Sync> Send for Region<H, A, B> {}

// SAFETY: as above.
unsafe impl<H: Sync, A: Sync, B: Sync> Sync for Region<H, A, B> {}

impl<H: 'static, A: 'static, B: 'static> Region<H, A, B> {
    /// The alignment of the memory, in bytes.
    pub const ALIGN: usize = {
        let (header, first, second) = (align_of::<H>(), align_of::<A>(), align_of::<B>());
        let arrays = if first > second { first } else { second };
        if header > arrays { header } else { arrays }
    };

    /// Where the first array begins, in bytes from the start.
    const FIRST_AT: usize = size_of::<H>().next_multiple_of(align_of::<A>());

    /// Where the second array begins, in bytes from the start.
    fn second_at(firsts: usize) -> usize {
        (Self::FIRST_AT + firsts * size_of::<A>()).next_multiple_of(align_of::<B>())
    }

    /// Returns the size of the memory, in bytes, with so many elements in each array.
    ///
    /// # Panics
    /// Panics if that is beyond `usize`, where overflows are checked.
    pub fn size((firsts, seconds): (usize, usize)) -> usize {
        Self::second_at(firsts) + seconds * size_of::<B>()
    }

    /// Fills memory. What it held is not dropped.
    ///
    /// # Safety
    /// The memory has [`size`](Self::size) bytes for these counts, and is aligned to
    /// [`ALIGN`](Self::ALIGN). Nothing else refers to it. It stays as long as the result, a copy of
    /// it, or a reference from one of them is used.
    pub unsafe fn begin(
        memory: NonNull<u8>,
        counts: (usize, usize),
        header: H,
        mut first: impl FnMut() -> A,
        mut second: impl FnMut() -> B,
    ) -> Self {
        let region = Self { start: memory.cast(), counts, arrays: PhantomData };
        let (firsts, seconds) = (region.first_start(), region.second_start());
        // SAFETY: the caller's: the memory has room for all of them, each at its alignment.
        unsafe {
            region.start.write(header);
            for number in 0..counts.0 {
                firsts.add(number).write(first());
            }
            for number in 0..counts.1 {
                seconds.add(number).write(second());
            }
        }
        region
    }

    /// Returns the header.
    #[inline(always)]
    pub fn header(self) -> &'static H {
        // SAFETY: `begin` wrote it. Its caller keeps the memory, and all references are shared.
        unsafe { self.start.as_ref() }
    }

    /// Returns the first array.
    pub fn firsts(self) -> &'static [A] {
        // SAFETY: `begin` wrote so many elements there. As for the header.
        unsafe { slice::from_raw_parts(self.first_start(), self.counts.0) }
    }

    /// Returns the second array.
    pub fn seconds(self) -> &'static [B] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts(self.second_start(), self.counts.1) }
    }

    fn first_start(self) -> *mut A {
        self.start.as_ptr().wrapping_byte_add(Self::FIRST_AT).cast()
    }

    fn second_start(self) -> *mut B {
        self.start.as_ptr().wrapping_byte_add(Self::second_at(self.counts.0)).cast()
    }
}
