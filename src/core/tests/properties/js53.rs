//! Tests the scheme of `js53`: 65,536 ids per second of worker w, then as many of worker w + 16,
//! then those of the seconds to come.
//!
//! The expected ids are listed one by one, so that the test does not depend on the model in
//! `model.rs`.

use proptest::prelude::*;
use snowflake_core::draw::generator::{DrawRefusal, Generator, Limits, NO_MARK, first_sequence};
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::id::layout::Layout;

use crate::{Scripted, config};

const IDS: i64 = 65_536;
const HALF: i64 = 16;

/// Composes a worker's id in plain arithmetic.
fn id(second: i64, worker: i64, sequence: i64) -> i64 {
    (second * 32 + worker) * IDS + sequence
}

/// Returns all ids that the server can draw in one second, after it has borrowed up to (not
/// including) `borrowed`.
fn expected(layout: &Layout, second: i64, worker: i64, borrow: i64, borrowed: i64) -> Vec<i64> {
    let last = layout.last_tick() as i64;
    let start = |second: i64| match second {
        // The word 0 means that nothing was drawn, so the layout's very first sequence is never
        // used.
        0 => 1,
        _ => first_sequence(layout, second as u64) as i64,
    };
    let mut ids: Vec<i64> = (start(second)..IDS).map(|sequence| id(second, worker, sequence)).collect();
    for ahead in second.max(borrowed)..=(second + borrow).min(last) {
        let from = if ahead == second { start(second) } else { 0 };
        ids.extend((from..IDS).map(|sequence| id(ahead, worker + HALF, sequence)));
    }
    ids
}

fn check(second: i64, part_ms: i64, worker: i64, borrow: i64) -> Result<(), TestCaseError> {
    let layout = Layout::parse("js53").unwrap();
    let last = layout.last_tick() as i64;
    let drawing = IdStamp::new(layout, Some(worker), None, true).unwrap();
    let generator = Generator::new();
    let limits = Limits { max_borrow_ms: borrow * 1000, marks_ms: [NO_MARK; 2] };
    let now_ms = layout.epoch_ms() + second * 1000 + part_ms;
    let draw = |now_ms| {
        let run = generator.draw(&drawing, &Scripted::at(now_ms), &limits, 1)?;
        Ok(run.last_id())
    };
    // This second and the next. The next adds all ids of worker w, and one more second of worker
    // w + 16.
    let mut borrowed = second;
    for next in 0..2 {
        let (second, now_ms) = (second + next, now_ms + next * 1000);
        if second > last {
            prop_assert_eq!(draw(now_ms), Err(DrawRefusal::TimeUsedUp));
            break;
        }
        for (drawn, id) in expected(&layout, second, worker, borrow, borrowed).into_iter().enumerate() {
            let answer = draw(now_ms);
            prop_assert_eq!(answer, Ok(id), "draw {} of second {}", drawn, second);
            prop_assert!(id < 1 << 53);
        }
        let used_up = match second {
            _ if second == last => DrawRefusal::TimeUsedUp,
            _ => DrawRefusal::UsedUp { wait_ms: 1000 - part_ms },
        };
        prop_assert_eq!(draw(now_ms), Err(used_up));
        prop_assert_eq!(draw(now_ms), Err(used_up));
        borrowed = second + borrow + 1;
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(4))]

    #[test]
    fn a_second_is_used_up_worker_by_worker(
        second in 1..(1_i64 << 32) - 10, part_ms in 0..1000_i64, worker in 0..HALF, borrow in 0..=4_i64,
    ) {
        check(second, part_ms, worker, borrow)?;
    }

    #[test]
    fn the_first_second_is_used_up_the_same_way(part_ms in 0..1000_i64, worker in 0..HALF) {
        check(0, part_ms, worker, 2)?;
    }

    #[test]
    fn nothing_is_drawn_above_two_to_the_53(back in 0..=3_i64, part_ms in 0..1000_i64) {
        // Worker 15 has the backup number 31, all bits set: the largest id that exists.
        check((1 << 32) - 1 - back, part_ms, HALF - 1, 2)?;
    }
}
