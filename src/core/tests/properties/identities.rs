//! Tests identities: which numbers a server may have, and that no two lanes of a fleet share one
//! (I6).

use std::collections::HashSet;

use proptest::prelude::*;
use proptest::sample::Index;
use snowflake_core::draw::generator::{Generator, Limits, NO_MARK};
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::id::identity::{Identity, LaneName};
use snowflake_core::id::layout::Field;
use snowflake_core::id::parts::IdError;

use crate::spec::{Spec, specs};
use crate::{Scripted, config};

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn a_number_is_accepted_exactly_if_it_is_in_the_range(spec in specs(), backup: bool, far: i64, near: Index) {
        let layout = spec.layout();
        let numbers = spec.size(Field::Worker) as i64;
        let numbers = if backup { numbers / 2 } else { numbers };
        let datacenter = spec.given(Field::Datacenter, [0; 4]);
        let new = |worker| Identity::new(&layout, worker, datacenter, backup);
        if spec.bits(Field::Worker) == 0 {
            let field = Field::Worker;
            let servers = if backup { Err(IdError::NoBackup) } else { Ok(1) };
            prop_assert_eq!(Identity::worker_numbers(&layout, backup), servers);
            prop_assert_eq!(new(None).err(), backup.then_some(IdError::NoBackup));
            let no_field = IdError::NoField { field, value: 1 };
            // With a backup worker two settings are wrong, and either error will do.
            let refused = new(Some(1)).err();
            prop_assert!(refused == Some(no_field) || (backup && refused == Some(IdError::NoBackup)), "{refused:?}");
            return Ok(());
        }
        prop_assert_eq!(Identity::worker_numbers(&layout, backup), Ok(numbers));
        prop_assert_eq!(new(None).err(), Some(IdError::PartMissing(Field::Worker)));
        let near = near.index(numbers as usize) as i64;
        for value in [0, near, numbers - 1, numbers, numbers * 2 - 1, numbers * 2, -1, i64::MIN, i64::MAX, far] {
            let error = IdError::Part { field: Field::Worker, value, max: numbers - 1 };
            prop_assert_eq!(new(Some(value)).err(), (!(0..numbers).contains(&value)).then_some(error));
        }
    }

    #[test]
    fn a_datacenter_is_accepted_exactly_if_it_is_in_the_range(spec in specs(), far: i64) {
        let layout = spec.layout();
        let size = spec.size(Field::Datacenter) as i64;
        let worker = spec.given(Field::Worker, [0; 4]);
        let new = |datacenter| Identity::new(&layout, worker, datacenter, false).err();
        let field = Field::Datacenter;
        prop_assert_eq!(new(None), (size > 1).then_some(IdError::PartMissing(field)));
        for value in [0, size - 1, size, -1, i64::MIN, i64::MAX, far] {
            let error = match size {
                1 => IdError::NoField { field, value },
                _ => IdError::Part { field, value, max: size - 1 },
            };
            prop_assert_eq!(new(Some(value)), (!(0..size).contains(&value)).then_some(error));
        }
    }
}

proptest! {
    #![proptest_config(config(200))]

    /// Checks I6 by the ids: there are two per tick and lane, so the third draw is the backup
    /// lane's.
    #[test]
    fn no_two_lanes_of_a_fleet_compose_the_same_worker(
        bits in 1..=8_u32,
        datacenter_bits in 0..=2_u32,
        order in Just([Field::Datacenter, Field::Worker, Field::Sequence]).prop_shuffle(),
    ) {
        let width = |field| match field {
            Field::Datacenter => datacenter_bits,
            Field::Worker => bits,
            _ => 1,
        };
        let fields = order.into_iter().map(|field| (field, width(field))).filter(|(_, bits)| *bits > 0);
        let fields = [(Field::Time, 40)].into_iter().chain(fields).collect();
        let spec = Spec { fields, unit: "1ms", epoch_ms: 0 };
        let layout = spec.layout();
        let limits = Limits { max_borrow_ms: 0, marks_ms: [NO_MARK; 2] };
        let mut numbers = HashSet::new();
        for datacenter in 0..spec.size(Field::Datacenter) as i64 {
            for worker in 0..Identity::worker_numbers(&layout, true).unwrap() {
                let given = (datacenter_bits > 0).then_some(datacenter);
                let drawing = IdStamp::new(layout, Some(worker), given, true).unwrap();
                let generator = Generator::new();
                let draw = || generator.draw(&drawing, &Scripted::at(5), &limits, 1).unwrap();
                for lane in [LaneName::Primary, LaneName::Primary, LaneName::Backup] {
                    let run = draw();
                    prop_assert_eq!(run.lane(), lane);
                    let parts = layout.parts(run.last_id()).unwrap();
                    let new = numbers.insert((parts.datacenter, parts.worker));
                    prop_assert_eq!(new, parts.sequence == 0, "{:?}", parts);
                }
            }
        }
        // No number is unused.
        prop_assert_eq!(numbers.len() as i128, spec.size(Field::Datacenter) * spec.size(Field::Worker));
    }
}
