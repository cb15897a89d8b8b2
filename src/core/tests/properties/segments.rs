//! Places against a model that has its blocks in lists, and records of tags whatever is asked.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use snowflake_core::registry::{Fleet, Incarnation};
use snowflake_core::segment::{
    Ask, Block, END, FARTHEST, Grant, LONGEST_BLOCK, Place, PlaceRefusal, PlaceView, Rest, Return, State, Tag,
    TagRecord, ValueRun,
};

use crate::config;

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
                    prop_assert_eq!(view.draw(count).map(|drawn| (drawn.run, drawn.is_due)), expected);
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
                prop_assert_eq!(place.is_due(), model.is_due());
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
        let incarnation = Incarnation { store: 7, timeline: 1, counts: [0; 2] };
        let mut fleet = Fleet {
            uuid: 1, layout: None, range: None, loses_nothing: false, closed: false, longest_ms: 0, skew_ms: 0,
            lease_ms: 0, clock_skew_ms: 0, grace_ms: 0, incarnation, generation: 1, horizon_ms: 0, freeze_ms: 0, version: 1,
        };
        let least = greatest.div_ceil(3);
        let jump = Some(i64::from(greatest) * 1000);
        let mut record = TagRecord { id: 1, next, steps: (least, greatest), jump, nonce: 0, generation: 1, returnable: END };
        let mut held: Vec<Vec<(Block, u64)>> = vec![Vec::new(); 3];
        let mut sent: Vec<Return> = Vec::new();
        for (nonce, (server, step, what, which, wish)) in (1_u64..).zip(calls) {
            match what {
                0 => fleet.generation += 1,
                // The last block is given back, all but its first value.
                1 | 2 => {
                    let Some((block, was)) = held[server].last_mut().filter(|(block, _)| block.count > 1) else { continue };
                    let given = Return { tag, id: 1, was: *was, first: block.first + 1, nonce };
                    block.count = 1;
                    sent.push(given);
                    if what == 1 {
                        record = record.take_back(&given, &fleet).unwrap_or(record);
                    }
                }
                // All of the last block, and what lies before it.
                8 => {
                    let Some((block, was)) = held[server].last_mut() else { continue };
                    let first = block.first.saturating_sub(i64::from(step % greatest) + 1);
                    let given = Return { tag, id: 1, was: *was, first, nonce };
                    if let Some(new) = record.take_back(&given, &fleet) {
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
                    record = record.take_back(given, &fleet).unwrap_or(record);
                }
                _ => {
                    let above = held[server].last().map_or(i64::MIN, |(block, _)| block.end());
                    let was = held[server].last().map(|(_, nonce)| *nonce);
                    let generation = fleet.generation;
                    let ask = Ask { tag, id: Some(1), step: Some(step), above, least: wish, generation, was, nonce };
                    let (grant, new) = record.answer(&ask, &fleet);
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
