//! Tests the first sequence of a tick: it is small, and varies enough that seldom drawn ids spread
//! over shards.

use proptest::prelude::*;
use snowflake_core::draw::generator::{Generator, Limits, NO_MARK, first_sequence};
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::id::layout::{BUILT_IN, Field, Layout};

use crate::spec::{specs_with_sequence, up_to};
use crate::{Scripted, config, model};

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn they_cost_less_than_a_64th_of_a_tick(
        (spec, tick) in specs_with_sequence(1..=31_u32)
            .prop_flat_map(|spec| (Just(spec.clone()), up_to(spec.last_tick()))),
    ) {
        let first = i128::from(first_sequence(&spec.layout(), tick as u64));
        prop_assert!(first == 0 || first < spec.size(Field::Sequence) / 64);
        prop_assert_eq!(first, model::start(&spec, tick));
    }
}

/// Draws one id in each of 16,000 consecutive ticks, as for a table that is seldom written. Only
/// built-in layouts that end in a sequence of 10 bits or more are tested. Fewer bits do not give 16
/// different first sequences, and a sequence above other fields has no influence on `id % 16`.
///
/// A fair share of the ids is 16,000 / n, and a share from half to twice of that counts as spread.
/// A random share of 1,000 would be within 10 % (three standard deviations of 31.6). A Fibonacci
/// hash of consecutive numbers is more even than random. If all ticks began at 0, every id would be
/// in one shard of 2, 4, 8 and 16.
#[test]
fn they_spread_seldom_drawn_ids_over_shards() {
    const TICKS: usize = 16_000;
    for (name, _) in BUILT_IN {
        let layout = Layout::parse(name).unwrap();
        let sequence = layout.fields().find(|field| field.field == Field::Sequence).unwrap();
        if sequence.bits < 10 || sequence.shift > 0 {
            continue;
        }
        let given = |field| layout.max_of(field).map(|_| 3);
        let drawing = IdStamp::new(layout, given(Field::Worker), given(Field::Datacenter), false).unwrap();
        let limits = Limits { max_borrow_ms: 0, marks_ms: [NO_MARK; 2] };
        for first_tick in [1, 1_000_003, layout.last_tick() / 2, layout.last_tick() - TICKS as u64] {
            let generator = Generator::new();
            let ids: Vec<i64> = (first_tick..first_tick + TICKS as u64)
                .map(|tick| {
                    let clock = Scripted::at(layout.start_of_ms(tick));
                    let run = generator.draw(&drawing, &clock, &limits, 1).unwrap();
                    run.last_id()
                })
                .collect();
            for n in 2..=16_i64 {
                let mut shards = vec![0; n as usize];
                for id in &ids {
                    shards[(id % n) as usize] += 1;
                }
                let fair = TICKS / n as usize;
                assert!(
                    shards.iter().all(|ids| (fair / 2..=fair * 2).contains(ids)),
                    "{name} from tick {first_tick}, id % {n}: {shards:?}"
                );
            }
        }
    }
}
