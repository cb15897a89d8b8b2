//! Bounds: an id is drawn at an instant or later if and only if it is at or above the instant's first id.

use proptest::prelude::*;
use snowflake_core::bounds::Instant;
use snowflake_core::error::IdError;
use snowflake_core::layout::Field;

use crate::config;
use crate::spec::{numbers, place, specs};

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn the_first_id_at_an_instant_divides_all_ids(
        (spec, numbers) in specs().prop_flat_map(|spec| (Just(spec.clone()), numbers(&spec))),
        near_us in -2_000_000_i128..=2_000_000, far_ms in any::<i32>(), near in any::<bool>(),
    ) {
        let layout = spec.layout();
        let id = spec.compose(numbers);
        let start_us = spec.start_ms(numbers[place(Field::Time)]) * 1000;
        // Around the id's tick, mostly within a few ticks of it; in microseconds.
        let instant_us = if near { start_us + near_us } else { start_us + i128::from(far_ms) * 1000 };
        let later = instant_us.rem_euclid(1000) != 0;
        let instant = Instant { ms: i64::try_from(instant_us.div_euclid(1000)).unwrap(), later };
        match layout.first_id_at(Some(instant)) {
            Ok(first) => {
                prop_assert_eq!(start_us >= instant_us, id >= i128::from(first));
                // It is an id itself, and the one before it, if there is one, was drawn earlier.
                let created_us = |id| layout.created_at_ms(id).map(|ms| i128::from(ms) * 1000);
                prop_assert!(created_us(first).unwrap() >= instant_us);
                prop_assert!(first == 0 || created_us(first - 1).unwrap() < instant_us);
            }
            Err(error) => {
                let before = instant.ms < layout.epoch_ms();
                let after = instant_us > i128::from(layout.last_instant_ms()) * 1000;
                prop_assert!(before || after);
                let (first_ms, last_ms) = (layout.epoch_ms(), layout.last_instant_ms());
                // The time it names is outside the layout, too.
                let IdError::Time { time_ms: Some(named_ms), .. } = error else { panic!("{error:?}") };
                prop_assert!(named_ms < first_ms && before || named_ms > last_ms && after);
                prop_assert_eq!(error, IdError::Time { time_ms: Some(named_ms), first_ms, last_ms });
            }
        }
    }

    #[test]
    fn the_ends_of_a_layout_have_first_ids(spec in specs()) {
        let layout = spec.layout();
        let first_id_at = |ms: i64, later| layout.first_id_at(Some(Instant { ms, later }));
        prop_assert_eq!(first_id_at(layout.epoch_ms(), false), Ok(0));
        let last = first_id_at(layout.last_instant_ms(), false).unwrap();
        prop_assert_eq!(layout.parts(last).unwrap().tick, layout.last_tick());
        let refused = |instant| matches!(layout.first_id_at(instant), Err(IdError::Time { .. }));
        let (before_ms, last_ms) = (layout.epoch_ms() - 1, layout.last_instant_ms());
        for (ms, later) in [(before_ms, true), (last_ms, true), (i64::MAX, true), (i64::MIN, false)] {
            prop_assert!(refused(Some(Instant { ms, later })), "{ms} {later}");
        }
        prop_assert!(refused(None));
    }
}
