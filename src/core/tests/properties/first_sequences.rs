//! The first sequence of a tick: small, and different enough that ids drawn seldom spread over shards.

use proptest::prelude::*;
use snowflake_core::generator::{Generator, Limits, NO_MARK, first_sequence};
use snowflake_core::identity::Drawing;
use snowflake_core::layout::{BUILT_IN, Field, Layout};

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

/// One id in each of 16,000 consecutive ticks, as a table gets that is seldom written, for each built-in layout that
/// ends in a sequence of 10 bits or more: fewer do not have 16 different beginnings, and above other fields the
/// sequence has no say in what `id % 16` is.
///
/// A fair share of the ids is 16,000 / n, and half to twice of it counts as spread. Drawn by lot, a share of 1,000
/// would be within 10 % (three standard deviations of 31.6), and a Fibonacci hash of consecutive numbers lies more
/// evenly than lots do; ticks that all begin at 0 put every id into one shard of 2, 4, 8 and 16.
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
        let drawing = Drawing::new(layout, given(Field::Worker), given(Field::Datacenter), false).unwrap();
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
