//! Tests limits on a time from what is computed from it, against what PostgreSQL computes.

use proptest::prelude::*;
use snowflake_core::clock::{civil_from_days, days_from_civil};
use snowflake_core::id::computed::{elapsed_us, limit_of_seconds_us};

use crate::config;

const DAY_US: i128 = 86_400_000_000;

/// Seconds since 1970 as PostgreSQL computes them for `date_part`, in either of its ways
/// (timestamptz_part_common in utils/adt/timestamp.c).
fn seconds_of(us: i64) -> [f64; 2] {
    const EPOCH_US: i64 = -946_684_800_000_000;
    [us as f64 / 1e6, ((us + EPOCH_US) as f64 - EPOCH_US as f64) / 1e6]
}

/// The age of two local times in microseconds, with months of 30 days (timestamptz_age in
/// utils/adt/timestamp.c). `is_earlier` tells whether the first instant is the earlier one.
fn age_us(first_us: i128, second_us: i128, is_earlier: bool) -> i128 {
    let parts = |us: i128| {
        let (year, month, day) = civil_from_days(us.div_euclid(DAY_US) as i64);
        (year, month, day, us.rem_euclid(DAY_US))
    };
    let ((year, month, day, time_us), (year_2, month_2, day_2, time_2_us)) = (parts(first_us), parts(second_us));
    let sign = if is_earlier { -1 } else { 1 };
    let mut months = sign * (12 * (year - year_2) + month - month_2);
    let mut days = sign * (day - day_2);
    let mut rest_us = i128::from(sign) * (time_us - time_2_us);
    while rest_us < 0 {
        rest_us += DAY_US;
        days -= 1;
    }
    let (year, month) = if is_earlier { (year, month) } else { (year_2, month_2) };
    while days < 0 {
        days += days_from_civil(year + month / 12, month % 12 + 1, 1) - days_from_civil(year, month, 1);
        months -= 1;
    }
    i128::from(sign) * (i128::from(months) * 30 * DAY_US + i128::from(days) * DAY_US + rest_us)
}

/// Microseconds since 1970: about this century, or about all that PostgreSQL has.
fn times_us() -> impl Strategy<Value = i64> {
    prop_oneof![0..4_102_444_800_000_000_i64, -200_000_000_000_000_000..9_000_000_000_000_000_000_i64]
}

proptest! {
    #![proptest_config(config(20_000))]

    #[test]
    fn seconds_of_a_float_are_within_their_limits(us in times_us(), near_us in -10_i64..=10, other in any::<f64>()) {
        for (this, that) in seconds_of(us).into_iter().flat_map(|this| seconds_of(us + near_us).map(|that| (this, that))) {
            for compared in [this, that, other, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                // NaN is more than all numbers.
                if this >= compared {
                    prop_assert!(i128::from(us) >= limit_of_seconds_us(compared, false), "{this} >= {compared}");
                }
                if this <= compared || compared.is_nan() {
                    prop_assert!(i128::from(us) < limit_of_seconds_us(compared, true), "{this} <= {compared}");
                }
            }
        }
        // The limits are near, so that few other times are read.
        let [seconds, _] = seconds_of(us);
        let near = 8 + i128::from(us.abs()) / (1 << 48);
        prop_assert!(limit_of_seconds_us(seconds, false) >= i128::from(us) - near);
        prop_assert!(limit_of_seconds_us(seconds, true) <= i128::from(us) + near);
    }

    #[test]
    fn what_has_passed_is_within_the_limits_of_an_age(
        first_us in times_us(), other_us in times_us(), near_us in -200_000_000_000_000_i64..=200_000_000_000_000,
        shift_us in prop_oneof![Just(0), -90_000_000_000_i64..=90_000_000_000],
    ) {
        for second_us in [other_us, first_us + near_us, first_us] {
            let passed_us = i128::from(first_us) - i128::from(second_us);
            // Clocks may be set between them, by a day at most, so that the earlier instant has the
            // later local time.
            let is_earlier = i128::from(first_us) + i128::from(shift_us) < i128::from(second_us);
            let age_us = age_us(first_us.into(), second_us.into(), is_earlier);
            prop_assert!(elapsed_us(age_us, false) <= passed_us && passed_us <= elapsed_us(age_us, true),
                "{passed_us} passed, {age_us} counted");
        }
    }
}

/// Each pair of days of eight years, around the end of a century's leap years.
#[test]
fn every_age_of_days_is_within_its_limits() {
    let first = days_from_civil(1898, 1, 1);
    let days = first..first + 8 * 366;
    for one in days.clone().step_by(3) {
        for other in days.clone() {
            let (one_us, other_us) = (i128::from(one) * DAY_US, i128::from(other) * DAY_US);
            let age_us = age_us(one_us, other_us, one < other);
            let passed_us = one_us - other_us;
            assert!(elapsed_us(age_us, false) <= passed_us && passed_us <= elapsed_us(age_us, true), "{one} {other}");
        }
    }
}
