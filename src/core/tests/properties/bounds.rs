//! Tests bounds: an id's time is at an instant or later exactly if the id is at or above the
//! instant's first id, and above the last id before it.

use proptest::prelude::*;
use snowflake_core::id::bounds::Instant;
use snowflake_core::id::layout::{Field, Layout};
use snowflake_core::id::parts::IdError;

use crate::config;
use crate::spec::{numbers, place, specs};

/// Converts microseconds since 1970 to an instant.
fn instant_at(us: i128) -> Instant {
    Instant { ms: i64::try_from(us.div_euclid(1000)).unwrap(), later: us.rem_euclid(1000) != 0 }
}

/// Returns the start of an id's tick, in microseconds since 1970.
fn created_us(layout: &Layout, id: i64) -> i128 {
    i128::from(layout.created_at_ms(id).unwrap()) * 1000
}

/// Microseconds from the start of a tick: any, whole milliseconds, and none, since at the start
/// itself the bounds differ.
fn near_us() -> impl Strategy<Value = i128> {
    prop_oneof![-2_000_000_i128..=2_000_000, (-2000_i128..=2000).prop_map(|ms| ms * 1000), Just(0)]
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn the_last_ids_before_and_until_an_instant_divide_all_ids(
        (spec, numbers) in specs().prop_flat_map(|spec| (Just(spec.clone()), numbers(&spec))),
        near_us in near_us(), far_ms in any::<i64>(), near in any::<bool>(),
    ) {
        let layout = spec.layout();
        let id = i64::try_from(spec.compose(numbers)).unwrap();
        let start_us = spec.start_ms(numbers[place(Field::Time)]) * 1000;
        let instant_us = if near { start_us + near_us } else { i128::from(far_ms) * 1000 };
        let (before, until) = (layout.last_id_before(instant_at(instant_us)), layout.last_id_until(instant_at(instant_us)));
        // For this id, and for those next to the bounds.
        for id in [id, before, before.saturating_add(1), until, until.saturating_add(1)] {
            if layout.check(id).is_ok() {
                prop_assert_eq!(created_us(&layout, id) < instant_us, id <= before, "{} < {}", id, instant_us);
                prop_assert_eq!(created_us(&layout, id) <= instant_us, id <= until, "{} <= {}", id, instant_us);
            }
        }
        // A bound is an id, or -1.
        for bound in [before, until] {
            prop_assert!((-1..=layout.max_id()).contains(&bound));
        }
        // Each first id is the one after the last id before, unless that was the layout's last.
        let next = |last: i64| (last < layout.max_id()).then(|| last + 1);
        prop_assert_eq!(layout.first_id_from(instant_at(instant_us)), next(before));
        prop_assert_eq!(layout.first_id_after(instant_at(instant_us)), next(until));
        if let Ok(first) = layout.first_id_at(Some(instant_at(instant_us))) {
            prop_assert_eq!(first, before + 1);
        }
    }

    #[test]
    fn every_id_lies_between_the_first_and_the_last_instant(spec in specs()) {
        let layout = spec.layout();
        for far in [Instant::FIRST, Instant { ms: i64::MIN, later: true }, instant_at(i128::from(layout.epoch_ms()) * 1000 - 1)] {
            prop_assert_eq!((layout.last_id_before(far), layout.last_id_until(far)), (-1, -1));
        }
        let after_us = i128::from(layout.last_instant_ms()) * 1000 + 1;
        for far in [Instant::LAST, Instant { ms: i64::MAX, later: false }, instant_at(after_us)] {
            let all = layout.max_id();
            prop_assert_eq!((layout.last_id_before(far), layout.last_id_until(far)), (all, all));
        }
    }

    #[test]
    fn the_first_id_at_an_instant_divides_all_ids(
        (spec, numbers) in specs().prop_flat_map(|spec| (Just(spec.clone()), numbers(&spec))),
        near_us in near_us(), far_ms in any::<i32>(), near in any::<bool>(),
    ) {
        let layout = spec.layout();
        let id = spec.compose(numbers);
        let start_us = spec.start_ms(numbers[place(Field::Time)]) * 1000;
        // Mostly within a few ticks of the id's tick, in microseconds.
        let instant_us = if near { start_us + near_us } else { start_us + i128::from(far_ms) * 1000 };
        let instant = instant_at(instant_us);
        match layout.first_id_at(Some(instant)) {
            Ok(first) => {
                prop_assert_eq!(start_us >= instant_us, id >= i128::from(first));
                // It is an id itself, and the id before it, if any, has an earlier time.
                prop_assert!(created_us(&layout, first) >= instant_us);
                prop_assert!(first == 0 || created_us(&layout, first - 1) < instant_us);
            }
            Err(error) => {
                let before = instant.ms < layout.epoch_ms();
                let after = instant_us > i128::from(layout.last_instant_ms()) * 1000;
                prop_assert!(before || after);
                let (first_ms, last_ms) = (layout.epoch_ms(), layout.last_instant_ms());
                // The error's time is outside the layout, too.
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
        let last_start = Instant { ms: layout.last_instant_ms(), later: false };
        prop_assert_eq!((layout.last_id_before(last_start), layout.last_id_until(last_start)), (last - 1, layout.max_id()));
        let refused = |instant| matches!(layout.first_id_at(instant), Err(IdError::Time { .. }));
        let (before_ms, last_ms) = (layout.epoch_ms() - 1, layout.last_instant_ms());
        for (ms, later) in [(before_ms, true), (last_ms, true), (i64::MAX, true), (i64::MIN, false)] {
            prop_assert!(refused(Some(Instant { ms, later })), "{ms} {later}");
        }
        prop_assert!(refused(None));
        // The time it names is rounded away from what the layout holds.
        let named = |ms, later| match first_id_at(ms, later) {
            Err(IdError::Time { time_ms, .. }) => time_ms,
            other => panic!("{other:?}"),
        };
        for (ms, later, name) in
            [(before_ms, true, before_ms), (last_ms, true, last_ms + 1), (last_ms + 1, false, last_ms + 1)]
        {
            prop_assert_eq!(named(ms, later), Some(name), "{} {}", ms, later);
        }
    }
}
