//! Tests ids: they are composed of their parts, decoded into them, and in order, and no number is
//! truncated.
//!
//! The oracle is `spec.rs`. Published ids are in `vectors.rs`.

use proptest::prelude::*;
use proptest::sample::Index;
use snowflake_core::id::layout::{Field, Layout};
use snowflake_core::id::parts::IdError;

use crate::config;
use crate::spec::{Numbers, Spec, numbers, place, specs, up_to};

/// A layout and a number for each of its fields.
fn specs_and_numbers() -> impl Strategy<Value = (Spec, Numbers)> {
    specs().prop_flat_map(|spec| (Just(spec.clone()), numbers(&spec)))
}

/// A layout and two ids of it. The second is the first with some of its numbers changed, so they
/// may be neighbours.
fn pairs() -> impl Strategy<Value = (Spec, Numbers, Numbers)> {
    specs().prop_flat_map(|spec| {
        let drawn = (numbers(&spec), numbers(&spec), prop::array::uniform4(any::<bool>()));
        (Just(spec), drawn).prop_map(|(spec, (one, fresh, change))| {
            (spec, one, std::array::from_fn(|i| if change[i] { fresh[i] } else { one[i] }))
        })
    })
}

/// Returns an id's time for [`Layout::compose`], in milliseconds: `late_ms` after the start of its
/// tick.
fn created_at_ms(spec: &Spec, numbers: Numbers, late_ms: i128) -> Option<i64> {
    Some(i64::try_from(spec.start_ms(numbers[place(Field::Time)]) + late_ms).expect("within timestamptz"))
}

/// Composes `numbers`, with `value` instead of one of them.
fn compose_with(layout: &Layout, spec: &Spec, numbers: Numbers, changed: Field, value: i64) -> Result<i64, IdError> {
    let given = |field| if field == changed { Some(value) } else { spec.given(field, numbers) };
    let (datacenter, worker) = (given(Field::Datacenter), given(Field::Worker));
    layout.compose(created_at_ms(spec, numbers, 0), datacenter, worker, given(Field::Sequence).unwrap())
}

const FIELDS: [Field; 3] = [Field::Datacenter, Field::Worker, Field::Sequence];

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn the_parts_of_a_composed_id_are_those_it_was_composed_of(
        (spec, numbers) in specs_and_numbers(), late in any::<Index>(),
    ) {
        let layout = spec.layout();
        let [tick, datacenter, worker, sequence] = numbers;
        // Any instant of the tick gives the same id.
        let time = created_at_ms(&spec, numbers, late.index(spec.unit_ms() as usize) as i128);
        let given = |field| spec.given(field, numbers);
        let id = layout.compose(time, given(Field::Datacenter), given(Field::Worker), sequence as i64);
        prop_assert_eq!(id.clone().map(i128::from), Ok(spec.compose(numbers)));
        let parts = layout.parts(id.clone().unwrap()).unwrap();
        prop_assert_eq!(i128::from(parts.tick), tick);
        prop_assert_eq!(i128::from(parts.created_at_ms), spec.start_ms(tick));
        prop_assert_eq!(layout.created_at_ms(id.unwrap()), Ok(parts.created_at_ms));
        prop_assert_eq!(parts.datacenter, (spec.bits(Field::Datacenter) > 0).then_some(datacenter as u32));
        prop_assert_eq!(parts.worker, (spec.bits(Field::Worker) > 0).then_some(worker as u32));
        prop_assert_eq!(i128::from(parts.sequence), sequence);
    }

    #[test]
    fn every_id_is_composed_of_its_parts(
        (spec, id) in specs().prop_flat_map(|spec| (Just(spec.clone()), up_to(spec.ids() - 1))),
    ) {
        let layout = spec.layout();
        let id = id as i64;
        let parts = layout.parts(id).unwrap();
        let number = |part: Option<u32>| part.map_or(0, i128::from);
        let numbers =
            [parts.tick.into(), number(parts.datacenter), number(parts.worker), i128::from(parts.sequence)];
        prop_assert_eq!(numbers, spec.decompose(id.into()));
        let (datacenter, worker) = (parts.datacenter.map(i64::from), parts.worker.map(i64::from));
        let composed = layout.compose(Some(parts.created_at_ms), datacenter, worker, parts.sequence.into());
        prop_assert_eq!(composed, Ok(id));
    }

    #[test]
    fn ids_are_ordered_by_time_and_then_by_their_fields((spec, one, other) in pairs()) {
        let layout = spec.layout();
        let compose = |numbers: Numbers| {
            let time = created_at_ms(&spec, numbers, 0);
            let (datacenter, worker) = (spec.given(Field::Datacenter, numbers), spec.given(Field::Worker, numbers));
            layout.compose(time, datacenter, worker, numbers[3] as i64).unwrap()
        };
        let in_order = |numbers: Numbers| -> Vec<i128> {
            spec.fields.iter().map(|(field, _)| numbers[place(*field)]).collect()
        };
        // They are equal exactly if all their parts are.
        prop_assert_eq!(compose(one).cmp(&compose(other)), in_order(one).cmp(&in_order(other)));
    }

    #[test]
    fn a_number_outside_its_field_is_refused_with_the_range((spec, numbers) in specs_and_numbers(), far: i64) {
        let layout = spec.layout();
        for field in FIELDS {
            let size = spec.size(field) as i64;
            for value in [0, size - 1, size, -1, size * 2, i64::MAX, i64::MIN, far] {
                let expected = if (0..size).contains(&value) {
                    let mut numbers = numbers;
                    numbers[place(field)] = value.into();
                    Ok(spec.compose(numbers) as i64)
                } else if spec.bits(field) == 0 {
                    Err(IdError::NoField { field, value })
                } else {
                    Err(IdError::Part { field, value, max: size - 1 })
                };
                prop_assert_eq!(compose_with(&layout, &spec, numbers, field, value), expected);
            }
        }
    }

    #[test]
    fn a_part_is_given_exactly_if_the_layout_has_it((spec, numbers) in specs_and_numbers()) {
        let layout = spec.layout();
        let time = created_at_ms(&spec, numbers, 0);
        let given = |field| spec.given(field, numbers);
        let sequence = numbers[3] as i64;
        for field in [Field::Datacenter, Field::Worker] {
            let without = |other| given(other).filter(|_| other != field);
            let composed = layout.compose(time, without(Field::Datacenter), without(Field::Worker), sequence);
            match spec.bits(field) {
                0 => prop_assert_eq!(composed, Ok(spec.compose(numbers) as i64)),
                _ => prop_assert_eq!(composed, Err(IdError::PartMissing(field))),
            }
        }
    }

    #[test]
    fn a_time_outside_the_layout_is_refused_with_the_range((spec, numbers) in specs_and_numbers(), far: i64) {
        let layout = spec.layout();
        let first_ms = spec.epoch_ms;
        let end_ms = i64::try_from(spec.start_ms(spec.last_tick() + 1)).expect("within timestamptz");
        let given = |field| spec.given(field, numbers);
        let compose = |ms| layout.compose(ms, given(Field::Datacenter), given(Field::Worker), numbers[3] as i64);
        let error = |time_ms| IdError::Time { time_ms, first_ms, last_ms: layout.last_instant_ms() };
        prop_assert_eq!(compose(None), Err(error(None)));
        for ms in [first_ms - 1, first_ms, end_ms - 1, end_ms, i64::MIN, i64::MAX, far] {
            if (first_ms..end_ms).contains(&ms) {
                let mut numbers = numbers;
                numbers[0] = spec.tick_at(ms.into());
                prop_assert_eq!(compose(Some(ms)), Ok(spec.compose(numbers) as i64));
            } else {
                prop_assert_eq!(compose(Some(ms)), Err(error(Some(ms))));
            }
        }
    }

    #[test]
    fn a_number_that_is_not_an_id_of_the_layout_is_refused(spec in specs(), far: i64) {
        let layout = spec.layout();
        let max = (spec.ids() - 1) as i64;
        for id in [-1, i64::MIN, 0, max, max.saturating_add(1), i64::MAX, far] {
            let error = (!(0..=max).contains(&id)).then_some(IdError::Id { id, max });
            prop_assert_eq!(layout.parts(id).err(), error.clone());
            prop_assert_eq!(layout.created_at_ms(id).err(), error.clone());
            prop_assert_eq!(layout.check(id), error.map_or(Ok(id as u64), Err));
        }
    }
}
