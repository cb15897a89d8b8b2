//! The short way to an id: a session that draws one id after the other knows the tick that it draws
//! from.
//!
//! While the clock stays in one tick, a server's ids differ in the sequence alone. So all that a
//! draw asks of the layout and of the numbers is computed once for the tick ([`KnownTick`]). What
//! is left are three comparisons, of the lane's word, the clock and the mark, and one
//! multiplication.
//!
//! The short way takes what the whole way takes (the table in `generator.rs`), or nothing, and then
//! the session goes the whole way. `tests/properties` holds both against one model, `tests/loom`
//! runs both.
//!
//! # Why a session may keep a tick
//!
//! - **Words and instants** of a tick follow from the layout, which never changes while a server
//!   runs.
//! - **The numbers** are those of the run that the tick was made of. The session drew it under the
//!   view of the marks that the tick holds. As long as that view is valid, the server has these
//!   numbers (`numbers.rs`). Each draw asks the view.
//! - **What was drawn** is in the lane's word, and how far the database may draw is in the
//!   published mark. Each draw reads both anew, and the clock between them.

use crate::clock::Clock;
use crate::draw::generator::{Generator, IdRun, MarkLimits, first_sequence};
use crate::draw::published::Marks;
use crate::id::identity::LaneName;

/// A tick of the primary lane, and how an id of it is drawn. It has one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct KnownTick<'a> {
    marks: Marks<'a>,
    /// The word before the first one of the tick. It may be the one before 0.
    before: u64,
    /// The id of the first word.
    first_id: i64,
    /// How much greater the id of each next word is.
    step: i64,
    /// The last millisecond of the tick, since 1970.
    last_ms: i64,
    /// How many words the tick has, and how many milliseconds.
    words: u32,
    length_ms: u32,
}

const _: () = assert!(size_of::<Option<KnownTick>>() == 64);

impl<'a> KnownTick<'a> {
    /// Returns the tick of a run's last id, which was drawn under this view of the marks. `None`
    /// for a run of the backup lane.
    pub fn of(run: &IdRun, marks: Marks<'a>) -> Option<Self> {
        if run.lane() != LaneName::Primary {
            return None;
        }
        let layout = run.layout();
        let (tick, last) = (run.last_word() >> layout.sequence.bits, layout.sequence.max());
        let begin = tick << layout.sequence.bits;
        // A draw below it would skip to it.
        let first = begin + first_sequence(layout, tick);
        Some(Self {
            marks,
            before: first.wrapping_sub(1),
            first_id: run.id(first),
            step: 1 << layout.sequence.shift,
            last_ms: layout.start_of_ms(tick) + layout.unit().ms() - 1,
            // At most 2^31, and at most 1000.
            words: (begin + last - first + 1) as u32,
            length_ms: layout.unit().ms() as u32,
        })
    }

    /// Returns which word of the tick follows a lane's word, counted from 1; `None` if none does.
    #[inline(always)]
    fn place_after(&self, word: u64) -> Option<u64> {
        // Wraps to a great number where the word is not in the tick.
        Some(word.wrapping_sub(self.before)).filter(|place| *place < u64::from(self.words))
    }

    /// Returns what follows a lane's word, as a word and as an id, if it is in the tick, and if the
    /// clock is. `None` also if the tick ends after the mark.
    #[inline(always)]
    fn next(&self, word: u64, now_ms: i64) -> Option<(u64, i64)> {
        let place = self.place_after(word)?;
        // Wraps to a great number where the clock is not in the tick.
        let left_ms = self.last_ms.wrapping_sub(now_ms) as u64;
        if left_ms < u64::from(self.length_ms) && self.last_ms < self.marks.limit_ms(LaneName::Primary) {
            return Some((word + 1, self.first_id + place as i64 * self.step));
        }
        None
    }
}

/// Draws one id of the tick that `known` returns, if `may_draw` says so. `None` if that is not the
/// clock's tick, or if the draw takes more than raising the lane by one. The lane is then
/// unchanged.
///
/// Where the lane is not in the tick, the clock is not read, because the whole way reads it, too.
/// All else is asked after the clock is read. Reading its counter takes a processor most of the
/// time of a draw. What comes next in the program, and does not depend on the clock, it does
/// meanwhile.
#[inline(always)]
pub fn draw_one<'a>(
    generator: &Generator,
    clock: &impl Clock,
    known: impl Fn() -> Option<KnownTick<'a>>,
    may_draw: impl Fn() -> bool,
) -> Option<i64> {
    let look = |word| known().and_then(|tick| tick.place_after(word)).map(drop).ok_or(());
    let decide = |word, now_ms| {
        let known = if may_draw() { known() } else { None };
        known.and_then(|tick| tick.next(word, now_ms)).ok_or(())
    };
    generator.primary().take(clock, look, decide).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::generator::{Limits, NO_MARK};
    use crate::draw::published::{PublishedMarks, UNCLAIMED};
    use crate::draw::stamp::IdStamp;
    use crate::id::layout::Layout;

    /// The whole way then reads it, and a session that borrows would read it twice for each id.
    #[test]
    fn outside_the_known_tick_the_clock_is_not_read() {
        const NOW_MS: i64 = 1_800_000_000_000;
        let layout = Layout::parse("js53").unwrap();
        let drawing = IdStamp::new(layout, Some(3), None, false).unwrap();
        let (generator, published) = (Generator::new(), PublishedMarks::new());
        let marks = published.of(UNCLAIMED).unwrap();
        assert!(marks.set(0, marks.get(0), NO_MARK));
        let run = generator.draw(&drawing, &|| NOW_MS, &Limits { max_borrow_ms: 0, marks_ms: marks }, 1).unwrap();
        let tick = KnownTick::of(&run, marks);
        let draw = |clock: &dyn Fn() -> i64, tick| draw_one(&generator, &|| clock(), || tick, || true);
        assert_eq!(draw(&|| NOW_MS, tick), Some(run.last_id() + 1));
        let unread = || -> i64 { panic!("the clock is read") };
        assert_eq!(draw(&unread, None), None);
        generator.raise(LaneName::Primary, &layout, NOW_MS + 5000);
        assert_eq!(draw(&unread, tick), None);
    }
}
