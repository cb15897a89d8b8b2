//! Which block a tag's record gives, and what it takes back: each a function of what was read, and
//! of nothing else.

use super::{Block, END, FARTHEST, JUMP};
use crate::fleet::registry::{Fleet, TagRecord};
use crate::fleet::tag::Tag;

/// What a server asks for a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The tag.
    pub tag: Tag,
    /// The [`TagRecord::id`] that the tag had before, if the server has used it.
    pub id: Option<u64>,
    /// How many values the server wants; `None` if it only wants to know whether the tag is there.
    pub step: Option<u32>,
    /// Up to where the server has had values of the tag: after the last one. [`i64::MIN`] if it has
    /// had none.
    pub above: i64,
    /// Below this the server wants no value, because a session takes over values that were drawn
    /// elsewhere. [`i64::MIN`] if it wants any.
    pub least: i64,
    /// The fleet's generation when it got the values before `above`.
    pub generation: u64,
    /// The nonce under which the server has reserved its last block of the tag, if it could give
    /// that back.
    pub was: Option<u64>,
    /// The nonce of the changed record.
    pub nonce: u64,
}

/// The registry's answer for one tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// A block is reserved.
    Block {
        /// The tag's [`TagRecord::id`].
        id: u64,
        /// Its [`TagRecord::steps`].
        steps: (u32, u32),
        /// The values.
        block: Block,
        /// The fleet's generation.
        generation: u64,
        /// How many values were skipped, because the registry may have forgotten something.
        skipped: i64,
    },
    /// The tag is there. Nothing was asked for.
    Known,
    /// There is no such tag, or another one has its name now.
    Unknown,
    /// No value is left before [`END`].
    Ended,
    /// The registry may have forgotten something, and the tag does not jump ([`TagRecord::jumps`]).
    NoJump,
    /// The tag lies below what the server has had, so the registry has forgotten something.
    Forgot,
    /// What the server has had, or its minimum, lies further above the tag than [`FARTHEST`].
    TooFar,
}

/// Values that a server gives back, because it has drawn none of them and never will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Return {
    /// The tag.
    pub tag: Tag,
    /// Its [`TagRecord::id`].
    pub id: u64,
    /// The nonce under which the server has reserved its last block of the tag.
    pub was: u64,
    /// The first of the values. They reach up to the end of that block.
    pub first: i64,
    /// The nonce of the changed record.
    pub nonce: u64,
}

impl TagRecord {
    /// Returns how often the tag has to jump ahead before it is used under this record of the
    /// fleet: once for each generation, because a jump may be forgotten, too.
    fn due(&self, fleet: &Fleet) -> i64 {
        i64::try_from(fleet.generation.saturating_sub(self.generation)).unwrap_or(i64::MAX)
    }

    /// Decides what a server gets when the registry's clock shows `now_ms`, and returns the record
    /// that is to be written, if any.
    pub fn answer(&self, ask: &Ask, fleet: &Fleet, now_ms: i64) -> (Grant, Option<Self>) {
        if ask.id.is_some_and(|id| id != self.id) {
            return (Grant::Unknown, None);
        }
        let due = self.due(fleet);
        // If the tag has jumped since the server had its values, that was for this.
        if due == 0 && self.next < ask.above && self.generation <= ask.generation {
            return (Grant::Forgot, None);
        }
        let next = match (due, self.jumps) {
            (0, _) => self.next,
            // Also if nothing is asked for: an operator should know before the blocks are used up.
            // What the server has had is noted, so that the operator cannot set less.
            (_, false) => {
                // As much as one call may raise a tag; the next look adds to it.
                let next = ask.above.min(self.next.saturating_add(FARTHEST));
                let raised = Self { next, nonce: ask.nonce, written_ms: now_ms, ..*self };
                return (Grant::NoJump, Some(raised).filter(|raised| raised.next > self.next));
            }
            (_, true) => self.next_in(fleet),
        };
        let Some(step) = ask.step else { return (Grant::Known, None) };
        // A minimum is not history: it must not count as values that were lost.
        let known = next.max(ask.above);
        // A minimum may only raise.
        let first = known.max(ask.least);
        // Otherwise one call could use up the tag for ever.
        if first > next.saturating_add(FARTHEST) {
            return (Grant::TooFar, None);
        }
        let (least, greatest) = self.steps;
        let count = i64::from(step.max(least).min(greatest)).min(END.saturating_sub(first));
        if count <= 0 {
            return (Grant::Ended, None);
        }
        let block = Block { first, count: count as u32 };
        // If the server has reserved the last block, too, it can give both back.
        let follows = ask.was == Some(self.nonce) && first == self.next;
        let returnable = if follows { self.returnable.min(first) } else { first };
        let written = Self { next: block.end(), nonce: ask.nonce, generation: fleet.generation, returnable, ..*self };
        let new = Self { written_ms: now_ms, ..written };
        let skipped = known.saturating_sub(self.next);
        (Grant::Block { id: self.id, steps: self.steps, block, generation: fleet.generation, skipped }, Some(new))
    }

    /// Returns the first value that the tag gives under this record of the fleet, if it
    /// [jumps](Self::jumps): after the jumps that are due.
    pub fn next_in(&self, fleet: &Fleet) -> i64 {
        if self.jumps { self.next_after(self.due(fleet)) } else { self.next }
    }

    /// Returns the next value after this many jumps, [`END`] if they lead beyond it. A sum that is
    /// cut off lower would be the same after one more jump, and values would come again.
    fn next_after(&self, jumps: i64) -> i64 {
        i64::try_from(i128::from(self.next) + i128::from(JUMP) * i128::from(jumps)).unwrap_or(END)
    }

    /// Returns the record that an operator writes before the generation of `fleet` begins, because
    /// the registry was restored, when the registry's clock shows `now_ms`. `None` if
    /// the tag does not [jump](Self::jumps): it then gives nothing until an operator sets its next
    /// value.
    ///
    /// The backup may lack generations in which the tag has jumped already, and nothing tells how
    /// many. So the tag jumps once for each second since, and for each by which clocks may be
    /// apart, because the backup may come from another machine. Together with the jump of the
    /// generation that begins, it then lies above all that was given, if generations did not follow
    /// each other faster than that, and if fewer values than a jump were given in each second that
    /// had none.
    ///
    /// The record keeps its generation. Otherwise the tag would not jump if this generation is
    /// never begun, and the next one forgets what was given meanwhile.
    pub fn restored(&self, fleet: &Fleet, now_ms: i64, nonce: u64) -> Option<Self> {
        let age_ms = now_ms.saturating_sub(self.written_ms).saturating_add(fleet.skew_ms).max(0);
        let seconds = age_ms / 1000 + i64::from(age_ms % 1000 > 0);
        let next = self.next_after(seconds);
        self.jumps.then_some(Self { next, nonce, written_ms: now_ms, ..*self })
    }

    /// Returns the record with what a server gives back, or `None` if a block was reserved, or a
    /// generation has begun, since the server has reserved its last one. More than two blocks are
    /// not taken, because no server has more. Values of blocks before another server's are not
    /// taken either.
    pub fn take_back(&self, given: &Return, fleet: &Fleet, now_ms: i64) -> Option<Self> {
        let is_last = (self.id, self.nonce) == (given.id, given.was) && self.generation == fleet.generation;
        let most = 2 * i64::from(self.steps.1);
        let next = given.first.max(self.returnable);
        let is_right = next < self.next && self.next.saturating_sub(given.first) <= most;
        (is_last && is_right).then_some(Self { next, nonce: given.nonce, returnable: END, written_ms: now_ms, ..*self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::registry::Incarnation;

    const FLEET: Fleet = Fleet {
        uuid: 1,
        layout: None,
        range: None,
        loses_nothing: false,
        closed: false,
        longest_ms: 0,
        skew_ms: 0,
        lease_ms: 0,
        clock_skew_ms: 0,
        incarnation: Incarnation { store: 7, timeline: 3, counts: [0; 2] },
        generation: 5,
        horizon_ms: 0,
        freeze_ms: 0,
        version: 11,
    };

    const WRITTEN_MS: i64 = 1_800_000_000_000;

    const NOW_MS: i64 = WRITTEN_MS + 5000;

    const RECORD: TagRecord = TagRecord {
        id: 1,
        next: 100,
        steps: (10, 1000),
        jumps: true,
        nonce: 50,
        generation: FLEET.generation,
        written_ms: WRITTEN_MS,
        returnable: END,
    };

    fn ask(step: u32) -> Ask {
        Ask {
            tag: Tag::new("orders").unwrap(),
            id: Some(1),
            step: Some(step),
            above: 60,
            least: i64::MIN,
            generation: FLEET.generation,
            was: None,
            nonce: 51,
        }
    }

    fn block(grant: Grant) -> (i64, u32, i64) {
        let Grant::Block { block, skipped, .. } = grant else { panic!("{grant:?}") };
        (block.first, block.count, skipped)
    }

    #[test]
    fn a_block_has_as_many_values_as_are_asked_for_within_the_steps() {
        for (step, count) in [(0, 10), (9, 10), (10, 10), (500, 500), (1000, 1000), (u32::MAX, 1000)] {
            let (grant, record) = RECORD.answer(&ask(step), &FLEET, NOW_MS);
            assert_eq!(block(grant), (100, count, 0));
            assert_eq!(
                record,
                Some(TagRecord {
                    next: 100 + i64::from(count),
                    nonce: 51,
                    written_ms: NOW_MS,
                    returnable: 100,
                    ..RECORD
                })
            );
        }
        // An operator may have set these the wrong way round. The greatest counts.
        let (grant, _) = TagRecord { steps: (10, 5), ..RECORD }.answer(&ask(7), &FLEET, NOW_MS);
        assert_eq!(block(grant), (100, 5, 0));
    }

    #[test]
    fn a_tag_jumps_once_for_each_second_that_a_restore_goes_back() {
        let next = Fleet { generation: FLEET.generation + 1, ..FLEET };
        for (skew_ms, age_ms, seconds) in [
            (0, -5, 0),
            (0, 0, 0),
            (0, 1, 1),
            (0, 1000, 1),
            (0, 1001, 2),
            (0, 3_600_000, 3600),
            // The backup may come from a machine whose clock was ahead.
            (5000, -5000, 0),
            (5000, -4999, 1),
            (5000, 1, 6),
        ] {
            let now_ms = WRITTEN_MS + age_ms;
            let fleet = Fleet { skew_ms, ..next };
            let record = RECORD.restored(&fleet, now_ms, 51).unwrap();
            let raised = 100 + seconds * JUMP;
            assert_eq!(record, TagRecord { next: raised, nonce: 51, written_ms: now_ms, ..RECORD });
            // It also jumps for the generation, once that has begun.
            assert_eq!(record.next_in(&fleet), raised + JUMP);
            assert_eq!(block(record.answer(&ask(10), &fleet, NOW_MS).0), (raised + JUMP, 10, JUMP));
        }
        assert_eq!(RECORD.restored(&next, i64::MAX, 51).unwrap().next, END);
        let stopped = TagRecord { jumps: false, ..RECORD };
        assert_eq!((stopped.restored(&next, NOW_MS, 51), stopped.next_in(&next)), (None, 100));
    }

    #[test]
    fn a_tag_jumps_once_for_each_generation() {
        for generations in [1, 2, 5] {
            let fleet = Fleet { generation: FLEET.generation + generations, ..FLEET };
            let (grant, record) = RECORD.answer(&ask(10), &fleet, NOW_MS);
            assert_eq!(block(grant).2, generations as i64 * JUMP);
            // It does not jump again.
            let record = record.unwrap();
            assert_eq!(block(record.answer(&ask(10), &fleet, NOW_MS).0), (record.next, 10, 0));
        }
    }

    #[test]
    fn a_tag_without_a_jump_gives_nothing_in_a_new_generation() {
        let (record, fleet) = (TagRecord { jumps: false, ..RECORD }, Fleet { generation: 6, ..FLEET });
        assert_eq!(record.answer(&ask(10), &fleet, NOW_MS), (Grant::NoJump, None));
        let look = Ask { step: None, above: 130, ..ask(10) };
        let raised = TagRecord { next: 130, nonce: look.nonce, written_ms: NOW_MS, ..record };
        assert_eq!(record.answer(&look, &fleet, NOW_MS), (Grant::NoJump, Some(raised)));
        assert_eq!(raised.answer(&look, &fleet, NOW_MS), (Grant::NoJump, None));
        assert_eq!(block(record.answer(&ask(10), &FLEET, NOW_MS).0), (100, 10, 0));
    }

    #[test]
    fn a_tag_below_what_a_server_has_had_shows_that_the_registry_has_forgotten() {
        let beyond = Ask { above: 101, ..ask(10) };
        assert_eq!(RECORD.answer(&beyond, &FLEET, NOW_MS), (Grant::Forgot, None));
        assert_eq!(RECORD.answer(&Ask { step: None, ..beyond }, &FLEET, NOW_MS), (Grant::Forgot, None));
        assert_eq!(RECORD.answer(&Ask { step: None, ..ask(10) }, &FLEET, NOW_MS), (Grant::Known, None));
        // A generation has begun since. The tag jumps, or has done so, at least to what is known.
        for above in [101 + JUMP, 5000 + JUMP] {
            let (grant, _) = RECORD.answer(&Ask { above, ..ask(10) }, &Fleet { generation: 6, ..FLEET }, NOW_MS);
            assert_eq!(block(grant), (above, 10, above - 100));
        }
        let (grant, _) = RECORD.answer(&Ask { generation: 4, ..beyond }, &FLEET, NOW_MS);
        assert_eq!(block(grant), (101, 10, 1));
    }

    #[test]
    fn a_wish_raises_a_tag_and_lowers_none() {
        let with_minimum = |least| Ask { least, ..ask(10) };
        for least in [i64::MIN, 0, 99, 100] {
            assert_eq!(
                RECORD.answer(&with_minimum(least), &FLEET, NOW_MS),
                RECORD.answer(&ask(10), &FLEET, NOW_MS),
                "{least}"
            );
        }
        // The registry has forgotten nothing, so nothing was skipped.
        let (grant, record) = RECORD.answer(&with_minimum(5000), &FLEET, NOW_MS);
        assert_eq!((block(grant), record.unwrap().next), ((5000, 10, 0), 5010));
        assert_eq!(block(record.unwrap().answer(&with_minimum(5000), &FLEET, NOW_MS).0), (5010, 10, 0));
        // It is not lost in a jump, and does not hide one.
        let fleet = Fleet { generation: 6, ..FLEET };
        assert_eq!(block(RECORD.answer(&with_minimum(5000), &fleet, NOW_MS).0), (100 + JUMP, 10, JUMP));
        assert_eq!(block(RECORD.answer(&with_minimum(2 * JUMP), &fleet, NOW_MS).0), (2 * JUMP, 10, JUMP));
        let beyond = Ask { above: 101, ..with_minimum(5000) };
        assert_eq!(RECORD.answer(&beyond, &FLEET, NOW_MS), (Grant::Forgot, None));
        assert_eq!(RECORD.answer(&Ask { step: None, ..with_minimum(5000) }, &FLEET, NOW_MS), (Grant::Known, None));
    }

    #[test]
    fn one_call_does_not_use_up_a_tag() {
        let with_minimum = |least| Ask { least, ..ask(10) };
        assert_eq!(block(RECORD.answer(&with_minimum(100 + FARTHEST), &FLEET, NOW_MS).0).0, 100 + FARTHEST);
        for far in [101 + FARTHEST, END - 1, END] {
            assert_eq!(RECORD.answer(&with_minimum(far), &FLEET, NOW_MS), (Grant::TooFar, None));
            // A server that says that it has had them, before a generation that the tag knows of.
            let had = Ask { above: far, generation: 4, ..ask(10) };
            assert_eq!(RECORD.answer(&had, &FLEET, NOW_MS), (Grant::TooFar, None));
        }
        // A jump is the operator's, and counts from there.
        let fleet = Fleet { generation: 6, ..FLEET };
        assert_eq!(
            block(RECORD.answer(&with_minimum(100 + JUMP + FARTHEST), &fleet, NOW_MS).0).0,
            100 + JUMP + FARTHEST
        );
        assert_eq!(RECORD.answer(&with_minimum(101 + JUMP + FARTHEST), &fleet, NOW_MS), (Grant::TooFar, None));
    }

    #[test]
    fn only_a_servers_own_blocks_are_taken_back() {
        // Another server has drawn from the values before 100.
        let (_, mine) = RECORD.answer(&ask(10), &FLEET, NOW_MS);
        let give = |record: TagRecord, first| {
            let given = Return { tag: ask(10).tag, id: 1, was: record.nonce, first, nonce: 90 };
            record.take_back(&given, &FLEET, NOW_MS).map(|record| record.next)
        };
        assert_eq!((give(mine.unwrap(), 100), give(mine.unwrap(), 50)), (Some(100), Some(100)));
        // The next block follows its own, for it knows that one's nonce.
        let second = Ask { was: Some(51), nonce: 52, above: 110, ..ask(10) };
        let (_, both) = mine.unwrap().answer(&second, &FLEET, NOW_MS);
        assert_eq!((give(both.unwrap(), 104), give(both.unwrap(), 50)), (Some(104), Some(100)));
        // It does not know that of another one, nor does a block follow that lies further above.
        for other in [Ask { was: Some(50), ..second }, Ask { was: None, ..second }, Ask { least: 111, ..second }] {
            let (grant, record) = mine.unwrap().answer(&other, &FLEET, NOW_MS);
            let first = block(grant).0;
            assert_eq!(give(record.unwrap(), 104), Some(first), "{other:?}");
        }
        // Once they are back, nothing more is.
        let given = Return { tag: ask(10).tag, id: 1, was: 51, first: 105, nonce: 90 };
        let back = mine.unwrap().take_back(&given, &FLEET, NOW_MS).unwrap();
        assert_eq!((back.next, give(back, 100)), (105, None));
    }

    #[test]
    fn another_tag_of_the_same_name_is_not_the_same_tag() {
        let other = TagRecord { id: 2, ..RECORD };
        assert_eq!(other.answer(&ask(10), &FLEET, NOW_MS), (Grant::Unknown, None));
        assert_eq!(block(other.answer(&Ask { id: None, ..ask(10) }, &FLEET, NOW_MS).0), (100, 10, 0));
    }

    #[test]
    fn values_end_with_bigint() {
        let near = TagRecord { next: END - 15, ..RECORD };
        let (grant, record) = near.answer(&ask(10), &FLEET, NOW_MS);
        assert_eq!(block(grant), (END - 15, 10, 0));
        let (grant, record) = record.unwrap().answer(&ask(10), &FLEET, NOW_MS);
        assert_eq!(block(grant), (END - 5, 5, 0));
        assert_eq!(record.unwrap().answer(&ask(10), &FLEET, NOW_MS), (Grant::Ended, None));
        // A jump beyond the end ends the tag, too, wherever it begins.
        let fleet = Fleet { generation: u64::MAX, ..FLEET };
        for next in [100, -100, i64::MIN] {
            let far = TagRecord { next, ..RECORD };
            assert_eq!(far.answer(&ask(10), &fleet, NOW_MS), (Grant::Ended, None), "{next}");
        }
    }

    #[test]
    fn values_are_taken_back_if_nothing_has_changed_since() {
        let (_, record) = RECORD.answer(&ask(10), &FLEET, NOW_MS);
        let record = record.unwrap();
        let tag = ask(10).tag;
        let given = Return { tag, id: 1, was: 51, first: 104, nonce: 52 };
        let back = record.take_back(&given, &FLEET, NOW_MS).unwrap();
        assert_eq!((back.next, back.nonce), (104, 52));
        // The same message arrives again.
        assert_eq!(back.take_back(&given, &FLEET, NOW_MS), None);
        // Another server has reserved a block. Then it has given all of it back.
        let other = record.answer(&Ask { nonce: 60, ..ask(10) }, &FLEET, NOW_MS).1.unwrap();
        assert_eq!(other.take_back(&given, &FLEET, NOW_MS), None);
        let whole = Return { was: 60, first: record.next, nonce: 61, ..given };
        let again = other.take_back(&whole, &FLEET, NOW_MS).unwrap();
        assert_eq!((again.next, again.take_back(&given, &FLEET, NOW_MS)), (record.next, None));
        let others = [
            (Return { id: 2, ..given }, FLEET),
            (given, Fleet { generation: 6, ..FLEET }),
            (Return { first: record.next, ..given }, FLEET),
            (Return { first: record.next - 2001, ..given }, FLEET),
        ];
        for (given, fleet) in others {
            assert_eq!(record.take_back(&given, &fleet, NOW_MS), None);
        }
    }
}
