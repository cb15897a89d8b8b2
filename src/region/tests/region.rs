//! Threads share a region, as processes share the server's memory. `tools/miri` runs this under
//! Miri, which finds what a pointer may not reach, and what two threads may not touch. Elsewhere it
//! shows where the parts lie.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::thread;

use snowflake_core::atomic::{AtomicI64, AtomicU64, Ordering};
use snowflake_core::draw::generator::{Generator, Limits, NO_MARK};
use snowflake_core::draw::published::{PublishedMarks, UNCLAIMED};
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::id::layout::Layout as IdLayout;
use snowflake_region::Region;

/// Words such as the extension's header has. The size is not a multiple of the marks' alignment.
struct Header {
    generator: Generator,
    drawn: AtomicU64,
}

/// A backend's slot, on cache lines of its own.
#[repr(align(64))]
struct Slot {
    last_id: AtomicI64,
    counts: [AtomicU64; 9],
}

type Memory = Region<Header, PublishedMarks, Slot>;

fn header() -> Header {
    Header { generator: Generator::new(), drawn: AtomicU64::new(0) }
}

fn slot() -> Slot {
    Slot { last_id: AtomicI64::new(-1), counts: std::array::from_fn(|_| AtomicU64::new(0)) }
}

/// Memory of exactly the size that a region needs, where it has to be aligned exactly so. It is
/// freed at the end, so that Miri sees each use that comes later.
struct Allocated(NonNull<u8>, Layout);

impl Allocated {
    fn new(size: usize, align: usize) -> Self {
        let layout = Layout::from_size_align(size, align).expect("a small size");
        assert_ne!(layout.size(), 0);
        // SAFETY: the size is not 0.
        let memory = unsafe { alloc(layout) };
        Self(NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout)), layout)
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, once.
        unsafe { dealloc(self.0.as_ptr(), self.1) };
    }
}

/// Makes a region, and lends it.
fn with_memory(counts: (usize, usize), work: impl FnOnce(Memory, NonNull<u8>)) {
    let memory = Allocated::new(Memory::size(counts), Memory::ALIGN);
    // SAFETY: it has this size and alignment, and is freed after the work.
    let region = unsafe { Memory::begin(memory.0, counts, header(), PublishedMarks::new, slot) };
    work(region, memory.0);
}

/// Returns where a part begins and ends, in bytes from the start.
fn place<T: ?Sized>(start: NonNull<u8>, part: &T) -> (usize, usize) {
    let from = ptr::from_ref(part).addr() - start.addr().get();
    (from, from + size_of_val(part))
}

#[test]
fn the_parts_lie_behind_each_other_and_fill_the_memory() {
    for counts in [(0, 0), (1, 0), (0, 1), (3, 5), (128, 40)] {
        with_memory(counts, |region, start| {
            let (firsts, seconds) = (region.firsts(), region.seconds());
            assert_eq!((firsts.len(), seconds.len()), counts);
            let parts = [place(start, region.header()), place(start, firsts), place(start, seconds)];
            assert_eq!(parts[0].0, 0);
            assert!(parts[0].1 <= parts[1].0 && parts[1].1 <= parts[2].0, "{counts:?}: {parts:?}");
            assert_eq!(parts[2].1, Memory::size(counts));
            assert!(firsts.as_ptr().is_aligned() && seconds.as_ptr().is_aligned());
            assert!(firsts.iter().all(|marks| marks.owner() == UNCLAIMED));
            assert!(seconds.iter().all(|slot| slot.last_id.load(Ordering::Relaxed) == -1));
        });
    }
}

/// A narrow array in front of a wide one leaves a gap.
#[test]
fn arrays_of_any_alignment_are_aligned() {
    type Odd = Region<u8, u16, u64>;
    let counts = (3, 2);
    let memory = Allocated::new(Odd::size(counts), Odd::ALIGN);
    let (mut narrow, mut wide) = (0..3, 10..12);
    // SAFETY: it has this size and alignment, and is freed after the last use.
    let region = unsafe { Odd::begin(memory.0, counts, 7, || narrow.next().unwrap(), || wide.next().unwrap()) };
    assert_eq!((*region.header(), region.firsts(), region.seconds()), (7, &[0, 1, 2][..], &[10, 11][..]));
    assert_eq!((Odd::size(counts), Odd::ALIGN), (24, 8));
}

/// As backends do: all of them draw with the header, each claims marks for a database, and each has
/// a slot of its own, which others read.
#[test]
fn threads_share_what_lies_behind_the_header() {
    const BACKENDS: usize = 4;
    const TURNS: u64 = 10;
    let drawing = IdStamp::new(IdLayout::parse("snowflake").unwrap(), Some(5), None, false).unwrap();
    with_memory((BACKENDS, BACKENDS), |region, _| {
        let backend = move |number: usize| {
            let limits = Limits { max_borrow_ms: 100, marks_ms: [NO_MARK; 2] };
            let owner = (number as u64 + 1) << 32 | 70;
            for turn in 1..=TURNS {
                let (header, slot) = (region.header(), &region.seconds()[number]);
                let marks = PublishedMarks::claim_one(region.firsts(), owner, |_| false);
                assert!(marks.is_some(), "there are marks for each database");
                let run =
                    header.generator.draw(&drawing, &|| 1_800_000_000_000, &limits, 1).expect("the clock is right");
                header.drawn.fetch_add(1, Ordering::Relaxed);
                slot.counts[8].store(turn, Ordering::Relaxed);
                slot.last_id.store(run.last_id(), Ordering::Relaxed);
                let greatest = region.seconds().iter().map(|slot| slot.last_id.load(Ordering::Relaxed)).max();
                assert!(greatest >= Some(run.last_id()));
            }
        };
        let backends: Vec<_> = (0..BACKENDS).map(|number| thread::spawn(move || backend(number))).collect();
        backends.into_iter().for_each(|backend| backend.join().expect("it has not failed"));
        assert_eq!(region.header().drawn.load(Ordering::Relaxed), BACKENDS as u64 * TURNS);
        assert!(region.seconds().iter().all(|slot| slot.counts[8].load(Ordering::Relaxed) == TURNS));
        assert!(region.firsts().iter().all(|marks| marks.owner() != UNCLAIMED));
        let mut last_ids: Vec<_> = region.seconds().iter().map(|slot| slot.last_id.load(Ordering::Relaxed)).collect();
        last_ids.sort_unstable();
        last_ids.dedup();
        assert_eq!(last_ids.len(), BACKENDS);
    });
}

/// The control: what `tools/miri` must find. The pointer comes from a reference to the header, so
/// it may not reach the marks, though they lie there. Elsewhere nothing notices.
#[test]
#[ignore = "tools/miri runs it, and expects it to fail"]
fn a_pointer_from_the_header_may_not_reach_the_marks() {
    with_memory((1, 1), |region, start| {
        let (from, _) = place(start, region.firsts());
        let marks: *const PublishedMarks = ptr::from_ref(region.header()).wrapping_byte_add(from).cast();
        // SAFETY: there is none, and Miri says so.
        assert_eq!(unsafe { (*marks).owner() }, UNCLAIMED);
    });
}
