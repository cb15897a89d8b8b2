//! Places against a model that has its blocks in lists, and records of tags whatever is asked.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use snowflake_core::fleet::operate::new_fleet;
use snowflake_core::fleet::registry::{Fleet, Incarnation, TagRecord};
use snowflake_core::fleet::segment::{
    Ask, Block, END, FARTHEST, Grant, LONGEST_BLOCK, Place, PlaceRefusal, PlaceView, Rest, Return, State, ValueRun,
};
use snowflake_core::fleet::tag::Tag;

use crate::extremes::extreme;
use crate::{config, for_all};

#[derive(Debug, Clone)]
enum Step {
    Draw(u32),
    Put(u32),
    TakeOut,
    Tell(State),
    /// Another tag takes the place.
    Change,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![4 => 1_u32..=30, 1 => 1..=LONGEST_BLOCK];
    let count = prop_oneof![4 => 0_u32..=12, 1 => any::<u32>()];
    let step = prop_oneof![
        8 => count.prop_map(Step::Draw),
        6 => length.prop_map(Step::Put),
        1 => Just(Step::TakeOut),
        1 => prop_oneof![Just(State::Open), Just(State::Ended), Just(State::NoJump)].prop_map(Step::Tell),
        1 => Just(Step::Change),
    ];
    vec(step, 0..60)
}

/// Below which a server wants no value.
fn wishes() -> impl Strategy<Value = i64> {
    prop_oneof![4 => Just(i64::MIN), 2 => -5_i64..100_000, 1 => any::<i64>()]
}

/// The blocks of a place: the current one, with how many values it had, and the next one.
struct Model {
    current: Option<(Block, u32)>,
    next: Option<Block>,
    state: State,
}

impl Model {
    /// Returns the values that a draw gives, and whether the next block becomes due.
    fn draw(&mut self, count: u32) -> Option<(ValueRun, bool)> {
        let (rest, length) = match (self.current.filter(|(rest, _)| rest.count > 0), self.next) {
            (Some(current), _) => current,
            (None, Some(next)) => {
                self.next = None;
                (next, next.count)
            }
            (None, None) => return None,
        };
        let taken = count.max(1).min(rest.count);
        let left = Block { first: rest.first + i64::from(taken), count: rest.count - taken };
        self.current = Some((left, length));
        // A tenth of the block, rounded up.
        let tenth = length.div_ceil(10);
        let drawn = |rest: Block| length - rest.count;
        let is_due = drawn(rest) < tenth && tenth <= drawn(left);
        Some((ValueRun { first: rest.first, count: taken }, is_due))
    }

    fn rest(&mut self) -> Rest {
        let current = self.current.take().map(|(rest, _)| rest).filter(|rest| rest.count > 0);
        Rest { current, next: self.next.take() }
    }

    fn is_due(&self) -> bool {
        self.current.is_none_or(|(rest, length)| length - rest.count >= length.div_ceil(10))
    }
}

/// A fleet's record of a generation.
fn fleet(generation: u64) -> Fleet {
    Fleet {
        generation,
        horizon_ms: 0,
        freeze_ms: 0,
        ..new_fleet(1, Incarnation { store: 7, timeline: 1, counts: [0; 2] }, 1)
    }
}

/// Generations near each other, so that each may be the older one, and far apart.
fn generations() -> impl Strategy<Value = [u64; 3]> {
    prop_oneof![3 => [1_u64..4, 1..4, 1..4], 1 => [any::<u64>(), any::<u64>(), any::<u64>()]]
}

/// Any record of a tag, as a person may have typed it, and when it is read.
fn records() -> impl Strategy<Value = (TagRecord, Fleet, u64, i64)> {
    let numbers = (extreme(), extreme(), extreme(), extreme());
    let steps = (prop_oneof![1_u32..20, any::<u32>()], prop_oneof![1_u32..20, any::<u32>()]);
    (numbers, steps, any::<bool>(), generations()).prop_map(
        |((next, returnable, written_ms, now_ms), steps, jumps, generations)| {
            let [generation, of_fleet, of_server] = generations;
            let record = TagRecord { id: 1, next, steps, jumps, nonce: 7, generation, written_ms, returnable };
            (record, fleet(of_fleet), of_server, now_ms)
        },
    )
}

/// A value near one of the record's, or any other.
fn value_near(record: &TagRecord, (near, other): (i64, i64)) -> i64 {
    match near % 4 {
        0 => record.next.saturating_add(near / 4),
        1 => record.returnable.saturating_add(near / 4),
        2 => i64::MIN,
        _ => other,
    }
}

/// What a server or an operator changes on purpose only.
fn kept(record: &TagRecord) -> (u64, (u32, u32), bool) {
    (record.id, record.steps, record.jumps)
}

/// A tag's next value falls only by what its last server gives back, whatever was typed into its
/// record.
#[test]
fn no_answer_lowers_a_tag() {
    let values = || (-200_i64..200, extreme());
    let asked = (proptest::option::of(prop_oneof![0_u32..20, any::<u32>()]), values(), values(), any::<bool>());
    for_all(20_000, (records(), asked), |((record, fleet, generation, now_ms), (step, above, least, follows))| {
        let (above, least) = (value_near(&record, above), value_near(&record, least));
        let was = follows.then_some(record.nonce);
        let ask = Ask { tag: Tag::new("orders").unwrap(), id: Some(1), step, above, least, generation, was, nonce: 8 };
        let (grant, new) = record.answer(&ask, &fleet, now_ms);
        if let Some(new) = new {
            prop_assert!(new.next > record.next);
            prop_assert_eq!((kept(&new), new.nonce, new.written_ms), (kept(&record), 8, now_ms));
        }
        match grant {
            Grant::Block { block, skipped, .. } => {
                let new = new.expect("a block is written");
                prop_assert!(block.first >= record.next.max(above).max(least) && skipped >= 0);
                prop_assert!(i64::from(block.count) == new.next - block.first && block.count <= record.steps.1);
                prop_assert_eq!(new.generation, fleet.generation);
                prop_assert!(new.returnable == block.first || follows && block.first == record.next);
                prop_assert!(new.returnable <= block.first);
            }
            // What the server has had is told, and nothing else changes.
            Grant::NoJump => {
                let told = |new: TagRecord| {
                    new.next <= above && new.next - record.next <= FARTHEST && new.generation == record.generation
                };
                prop_assert!(!record.jumps && new.is_none_or(told));
            }
            _ => prop_assert_eq!(new, None),
        }
        Ok(())
    });
}

#[test]
fn a_restore_lowers_no_tag_and_no_value_that_it_gives_next() {
    for_all(20_000, records(), |(record, fleet, _, now_ms)| {
        let Some(restored) = record.restored(&fleet, now_ms, 8) else {
            prop_assert!(!record.jumps);
            return Ok(());
        };
        prop_assert!(restored.next >= record.next);
        prop_assert_eq!((kept(&restored), restored.nonce), (kept(&record), 8));
        // It gives no value that is less than without the restore.
        let ask = Ask {
            tag: Tag::new("orders").unwrap(),
            id: None,
            step: Some(1),
            above: i64::MIN,
            least: i64::MIN,
            generation: 0,
            was: None,
            nonce: 9,
        };
        let first = |record: &TagRecord| match record.answer(&ask, &fleet, now_ms).0 {
            Grant::Block { block, .. } => block.first,
            _ => END,
        };
        prop_assert!(first(&restored) >= first(&record));
        Ok(())
    });
}

#[test]
fn a_return_lowers_a_tag_once_by_two_blocks_at_most_and_to_no_other_servers_values() {
    let given = ((-200_i64..200, extreme()), any::<bool>(), any::<bool>());
    for_all(20_000, (records(), given), |((record, fleet, _, now_ms), (first, is_its, is_last))| {
        let given = Return {
            tag: Tag::new("orders").unwrap(),
            id: if is_its { record.id } else { 2 },
            was: if is_last { record.nonce } else { 6 },
            first: value_near(&record, first),
            nonce: 8,
        };
        if let Some(new) = record.take_back(&given, &fleet, now_ms) {
            prop_assert!(is_its && is_last && record.generation == fleet.generation);
            prop_assert!(new.next < record.next && record.next - new.next <= 2 * i64::from(record.steps.1));
            prop_assert!(new.next >= record.returnable && new.next >= given.first);
            prop_assert_eq!((kept(&new), new.nonce, new.generation), (kept(&record), 8, record.generation));
            let again = Return { was: new.nonce, first: new.next.saturating_sub(1), ..given };
            prop_assert_eq!(
                (new.take_back(&given, &fleet, now_ms), new.take_back(&again, &fleet, now_ms)),
                (None, None)
            );
        }
        Ok(())
    });
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn a_place_gives_what_the_model_gives(steps in steps(), first in prop_oneof![Just(1_i64), -1000..END - 1_000_000_000]) {
        let place = Place::new();
        let mut views: Vec<PlaceView<'_>> = vec![place.claim()];
        let mut model = Model { current: None, next: None, state: State::Open };
        let mut first = first;
        for step in steps {
            let view = views[views.len() - 1];
            match step {
                Step::Draw(count) => {
                    let expected = model.draw(count).ok_or(PlaceRefusal::Empty(model.state));
                    prop_assert_eq!(view.draw(count).map(|drawn| (drawn.run, drawn.needs_refill)), expected);
                }
                Step::Put(count) => {
                    let room = place.room();
                    prop_assert_eq!(room.is_some(), model.next.is_none());
                    if let Some(room) = room {
                        let block = Block { first, count };
                        first = block.end() + 3;
                        place.fill(room, block);
                        model.next = Some(block);
                        model.state = State::Open;
                    }
                }
                Step::TakeOut => prop_assert_eq!(place.take_out(), model.rest()),
                Step::Tell(state) => {
                    place.tell(state);
                    model.state = state;
                }
                Step::Change => {
                    place.free();
                    prop_assert_eq!(view.draw(1), Err(PlaceRefusal::Empty(State::Unknown)));
                    model.rest();
                    model.state = State::Open;
                    views.push(place.claim());
                }
            }
            // Sessions of the tags before draw nothing.
            for view in &views[..views.len() - 1] {
                prop_assert_eq!(view.draw(1), Err(PlaceRefusal::Void));
            }
            // A next block that is not current yet says nothing about a tenth.
            if model.current.is_some() {
                prop_assert_eq!(place.needs_refill(), model.is_due());
            }
        }
    }

    /// Several servers reserve blocks and give the rest of the last one back, late or twice, while
    /// generations begin. A wish raises the next value. Some give back what was never theirs.
    #[test]
    fn blocks_never_overlap_whatever_is_asked(
        calls in vec((0..3_usize, any::<u32>(), 0..9_u8, any::<prop::sample::Index>(), wishes()), 0..60),
        next in prop_oneof![Just(1_i64), END - 5000..END],
        greatest in 1..=LONGEST_BLOCK,
    ) {
        let tag = Tag::new("orders").unwrap();
        let mut fleet = fleet(1);
        let least = greatest.div_ceil(3);
        let mut record = TagRecord {
            id: 1, next, steps: (least, greatest), jumps: true, nonce: 0, generation: 1, written_ms: 0, returnable: END,
        };
        let mut held: Vec<Vec<(Block, u64)>> = vec![Vec::new(); 3];
        let mut sent: Vec<Return> = Vec::new();
        for (nonce, (server, step, what, which, wish)) in (1_u64..).zip(calls) {
            let now_ms = nonce as i64;
            match what {
                0 => fleet.generation += 1,
                // The last block is given back, all but its first value.
                1 | 2 => {
                    let Some((block, was)) = held[server].last_mut().filter(|(block, _)| block.count > 1) else { continue };
                    let given = Return { tag, id: 1, was: *was, first: block.first + 1, nonce };
                    block.count = 1;
                    sent.push(given);
                    if what == 1 {
                        record = record.take_back(&given, &fleet, now_ms).unwrap_or(record);
                    }
                }
                // All of the last block, and what lies before it.
                8 => {
                    let Some((block, was)) = held[server].last_mut() else { continue };
                    let first = block.first.saturating_sub(i64::from(step % greatest) + 1);
                    let given = Return { tag, id: 1, was: *was, first, nonce };
                    if let Some(new) = record.take_back(&given, &fleet, now_ms) {
                        // It loses what it has given back of its own.
                        for (block, _) in &mut held[server] {
                            block.count = i64::from(block.count).min((new.next - block.first).max(0)) as u32;
                        }
                        held[server].retain(|(block, _)| block.count > 0);
                        record = new;
                    }
                }
                // What was sent before arrives, perhaps again.
                3 if !sent.is_empty() => {
                    let given = which.get(&sent);
                    record = record.take_back(given, &fleet, now_ms).unwrap_or(record);
                }
                _ => {
                    let above = held[server].last().map_or(i64::MIN, |(block, _)| block.end());
                    let was = held[server].last().map(|(_, nonce)| *nonce);
                    let generation = fleet.generation;
                    let ask = Ask { tag, id: Some(1), step: Some(step), above, least: wish, generation, was, nonce };
                    let (grant, new) = record.answer(&ask, &fleet, now_ms);
                    prop_assert_eq!(new.is_some(), matches!(grant, Grant::Block { .. }));
                    match grant {
                        Grant::Block { block, .. } => {
                            let new = new.unwrap();
                            prop_assert!(block.count <= greatest && (block.count >= least || block.end() == END));
                            prop_assert!(block.first >= above.max(wish).max(record.next) && new.next == block.end());
                            held[server].push((block, nonce));
                            record = new;
                        }
                        Grant::TooFar => prop_assert!(wish > record.next.saturating_add(FARTHEST)),
                        grant => prop_assert_eq!(grant, Grant::Ended),
                    }
                }
            }
        }
        let left = || held.iter().flatten().filter(|(block, _)| block.count > 0);
        let blocks: BTreeSet<_> = left().map(|(block, _)| (block.first, block.end())).collect();
        prop_assert_eq!(blocks.len(), left().count());
        prop_assert!(blocks.iter().zip(blocks.iter().skip(1)).all(|((_, end), (first, _))| end <= first), "{:?}", blocks);
    }
}
