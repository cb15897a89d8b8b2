//! Limits on a time: from what a condition compares to a limit on the time of an id.
//!
//! A condition such as `date_trunc('month', t) >= x` compares what comes out of a few steps: `t` is
//! shown by a zone's clocks, cut to its month, and made an instant again. Each step is monotone, or
//! nearly so. Most functions here undo one step: they return a limit on what went in, so that every
//! time that fulfils the condition is within it. Others take a limit from an age, a range or an
//! array. The planner (`pushdown/steps.rs`) puts them into each other, and at last into
//! `snowflake_from` or another of these four bounds.
//!
//! There are two kinds of limits: lower ones, which are inclusive, and `upper` ones, which are
//! exclusive. So one function, the next start of a unit, serves both. Like all bounds, these
//! functions raise nothing. What is beyond timestamptz is infinite. They are in the schema
//! `snowflake_plan`, because no statement but a plan calls them.

use pgrx::datum::RangeBound;
use pgrx::prelude::*;
use snowflake_core::clock::{civil_from_days, days_from_civil};
use snowflake_core::id::computed::{elapsed_us, limit_of_seconds_us};
use snowflake_core::id::layout::Layout;

use crate::ids::layouts;
use crate::postgres::last_call::Call;
use crate::postgres::text::Text;
use crate::time::instant::{
    DAY_US, SUBTRACTABLE_US, local_us, local_us_after_day, local_us_of_day, timestamp_of_us, timestamptz,
    timestamptz_of_us, us, us_before, us_of_day, us_of_local,
};
use crate::time::zone::{SESSION, earliest_us, greatest_local_us, latest_us, least_local_us};

/// The schema of what only plans and views call. The install script has its rights and its comment.
#[pg_schema]
mod snowflake_plan {}

/// The days from 1970 to 2000.
const POSTGRES_EPOCH_DAYS: i64 = 10_957;

/// Returns a time, or with `after` the next one, a microsecond later.
#[pg_extern(name = "instant", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_instant(ts: TimestampWithTimeZone, after: bool) -> TimestampWithTimeZone {
    timestamptz_of_us(us(ts) + i128::from(after))
}

/// Returns the start of a day in the session's time zone, or with `after` the next time.
#[pg_extern(name = "instant", schema = "snowflake_plan", stable, strict, parallel_safe)]
fn snowflake_instant_of_day(ts: Date, after: bool) -> TimestampWithTimeZone {
    timestamptz_of_us(us_of_day(ts) + i128::from(after))
}

/// Returns the time that a local one is in the session's time zone, or with `after` the next time.
#[pg_extern(name = "instant", schema = "snowflake_plan", stable, strict, parallel_safe)]
fn snowflake_instant_of_local(ts: Timestamp, after: bool) -> TimestampWithTimeZone {
    timestamptz_of_us(us_of_local(ts) + i128::from(after))
}

/// Returns a local time, or with `after` the next one, a microsecond later.
#[pg_extern(name = "local", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_local(local: Timestamp, after: bool) -> Timestamp {
    timestamp_of_us(local_us(local) + i128::from(after))
}

/// Returns the start of a day, or with `after` of the next one.
#[pg_extern(name = "local", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_local_of_day(day: Date, after: bool) -> Timestamp {
    timestamp_of_us(if after { local_us_after_day(day) } else { local_us_of_day(day) })
}

/// More years than timestamptz has.
const MOST_YEARS: f64 = 1e6;

/// Returns the start of a year as `extract` counts them, without a year 0: of the first one that is
/// not below the given number, or with `after` of the first one that is above it.
#[pg_extern(name = "local", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_local_of_year(year: AnyNumeric, after: bool) -> Timestamp {
    let number = match float(&year) {
        // Whole numbers by then, so that an f64 has them exactly. For the largest numbers of the
        // type, the next whole one is an error.
        number if number.abs() < MOST_YEARS => {
            float(&if after { year.floor() } else { year.ceil() }) + f64::from(u8::from(after))
        }
        number => number,
    };
    start_of_year(number)
}

/// The same for a float, as `date_part` returns one.
#[pg_extern(name = "local", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_local_of_float_year(year: f64, after: bool) -> Timestamp {
    start_of_year(if after { year.floor() + 1.0 } else { year.ceil() })
}

fn float(number: &AnyNumeric) -> f64 {
    number.normalize().parse().unwrap_or(f64::NAN)
}

/// Returns the start of a year, as `extract` counts them. NaN is greater than all numbers.
fn start_of_year(year: f64) -> Timestamp {
    let year = if year.is_nan() { f64::MAX } else { year }.clamp(-MOST_YEARS, MOST_YEARS) as i64;
    timestamp_of_us(start_of_month_us(12 * (year + i64::from(year < 1))))
}

/// More seconds than timestamptz has on either side of 1970.
const MOST_SECONDS: f64 = 1e14;

/// The microseconds from 1970 to 2000.
const POSTGRES_EPOCH_US: i128 = POSTGRES_EPOCH_DAYS as i128 * DAY_US;

/// Returns the first time that is not below a number of seconds since 1970, or with `after` the
/// first one above it. Both are exact, because `extract(epoch FROM ...)` is.
#[pg_extern(name = "instant", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_instant_of_seconds(seconds: AnyNumeric, after: bool) -> TimestampWithTimeZone {
    let us = match float(&seconds) {
        number if number.abs() < MOST_SECONDS => {
            let us = seconds * AnyNumeric::from(1_000_000);
            let whole = if after { us.floor() } else { us.ceil() };
            let whole = whole.normalize().parse::<i128>().expect("a whole number of 21 digits");
            whole + i128::from(after) - POSTGRES_EPOCH_US
        }
        number => unbounded_us(number.is_nan() || number > 0.0),
    };
    timestamptz_of_us(us)
}

/// Returns a limit on the time from the same limit on the seconds since 1970, as a float that
/// `date_part` returns.
#[pg_extern(name = "instant", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_instant_of_float_seconds(seconds: f64, upper: bool) -> TimestampWithTimeZone {
    timestamptz_of_us(limit_of_seconds_us(seconds, upper) - POSTGRES_EPOCH_US)
}

/// Returns a limit on the local time from a limit on the instant that it is in a zone.
#[pg_extern(name = "local", schema = "snowflake_plan", stable, strict, parallel_safe)]
fn snowflake_local_in_zone(ts: TimestampWithTimeZone, zone: Text<'_>, upper: bool) -> Timestamp {
    timestamp_of_us(to_local_us(us(ts), zone.as_str(), upper))
}

/// Returns a limit on the instant from a limit on the local time of a zone.
#[pg_extern(name = "instant", schema = "snowflake_plan", stable, strict, parallel_safe)]
fn snowflake_instant_in_zone(local: Timestamp, zone: Text<'_>, upper: bool) -> TimestampWithTimeZone {
    timestamptz_of_us(to_instant_us(local_us(local), zone.as_str(), upper))
}

/// Returns a limit on the instant from a limit on the local time that is an interval ahead of UTC.
/// PostgreSQL refuses an interval with days or months, so nothing is bounded then.
#[pg_extern(name = "instant", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_instant_at_offset(local: Timestamp, zone: Interval, upper: bool) -> TimestampWithTimeZone {
    // PostgreSQL cuts it to seconds.
    let offset_us = i128::from(zone.micros() / 1_000_000 * 1_000_000);
    let is_offset = zone.months() == 0 && zone.days() == 0;
    timestamptz_of_us(if is_offset { local_us(local) - offset_us } else { unbounded_us(upper) })
}

/// Returns the first start of a unit, such as `month`, at a local time or later. NULL for a text
/// that is not a unit.
#[pg_extern(name = "ceil", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_ceil(local: Timestamp, unit: Text<'_>) -> Option<Timestamp> {
    TruncUnit::named(unit.as_str()).map(|unit| timestamp_of_us(unit.ceil_us(local_us(local))))
}

/// Returns a limit on a time from the same limit on the start of its bin. `date_bin` cuts to bins
/// of a length, of which one starts at the origin.
#[pg_extern(name = "ceil", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_ceil_of_bin(
    ts: TimestampWithTimeZone,
    stride: Interval,
    origin: TimestampWithTimeZone,
    upper: bool,
) -> TimestampWithTimeZone {
    timestamptz_of_us(ceil_of_bin_us(us(ts), &stride, us(origin), upper))
}

/// The same for local times.
#[pg_extern(name = "ceil", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_ceil_of_local_bin(local: Timestamp, stride: Interval, origin: Timestamp, upper: bool) -> Timestamp {
    timestamp_of_us(ceil_of_bin_us(local_us(local), &stride, local_us(origin), upper))
}

/// A bin starts at `l` or later if and only if all of it is at the first start from `l` on, or
/// later. And it starts before `l` if and only if all of it is before that first start. So this
/// start is either limit.
///
/// Some versions of PostgreSQL return the start of the bin before for a time before the origin at
/// which a bin starts. So the upper limit is just after it there.
fn ceil_of_bin_us(limit_us: i128, stride: &Interval, origin_us: i128, upper: bool) -> i128 {
    let stride_us = i128::from(stride.days()) * DAY_US + i128::from(stride.micros());
    let is_bin = stride.months() == 0 && (1..=MOST_BIN_US).contains(&stride_us);
    // PostgreSQL raises an error, or may do so, and must see the rows for that.
    if !is_bin || origin_us.abs() >= i128::from(SUBTRACTABLE_US.end) {
        return unbounded_us(upper);
    }
    let start_us = TruncUnit::Even(stride_us, origin_us).ceil_us(limit_us);
    start_us + i128::from(upper && start_us < origin_us)
}

/// Returns a limit on a time from a limit on the time that is an interval after it, in the
/// session's time zone.
#[pg_extern(name = "minus", schema = "snowflake_plan", stable, strict, parallel_safe)]
fn snowflake_minus(ts: TimestampWithTimeZone, shift: Interval, upper: bool) -> TimestampWithTimeZone {
    timestamptz_of_us(shifted_back_us(us(ts), &shift, 1, SESSION, upper))
}

/// Does the same in the given time zone.
#[pg_extern(name = "minus", schema = "snowflake_plan", stable, strict, parallel_safe)]
fn snowflake_minus_in_zone(
    ts: TimestampWithTimeZone,
    shift: Interval,
    zone: Text<'_>,
    upper: bool,
) -> TimestampWithTimeZone {
    timestamptz_of_us(shifted_back_us(us(ts), &shift, 1, zone.as_str(), upper))
}

/// Returns a limit on a time from a limit on the time that is an interval before it.
#[pg_extern(name = "plus", schema = "snowflake_plan", stable, strict, parallel_safe)]
fn snowflake_plus(ts: TimestampWithTimeZone, shift: Interval, upper: bool) -> TimestampWithTimeZone {
    timestamptz_of_us(shifted_back_us(us(ts), &shift, -1, SESSION, upper))
}

/// Returns the time that is `age` before another one. The age has days of 24 hours and months of 30
/// days, as when PostgreSQL compares intervals.
///
/// It is for conditions on the age of an id, `now() - snowflake_timestamp(id)`. It is a limit that
/// excludes nothing where PostgreSQL may raise an error about such a difference: for infinite
/// times, and for those outside the years 2000 to 148137.
#[pg_extern(name = "ago", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_ago(ts: TimestampWithTimeZone, age: Interval, upper: bool) -> TimestampWithTimeZone {
    timestamptz_of_us(us_before(ts, age).unwrap_or_else(|| unbounded_us(upper)))
}

/// Returns a limit on a time whose `age()` at another one, `ts`, is `age`, or the same limit from
/// it. An upper limit on the time is the greatest that such an age permits, and a lower one the
/// least.
///
/// `age()` counts months between the local times of the session's time zone, so the limits have a
/// margin of days. They exclude nothing for the same times as `ago`.
#[pg_extern(name = "aged", schema = "snowflake_plan", stable, strict, parallel_safe)]
fn snowflake_aged(ts: TimestampWithTimeZone, age: Interval, upper: bool) -> TimestampWithTimeZone {
    let Some(at_us) = us_before(ts, age) else { return timestamptz_of_us(unbounded_us(upper)) };
    let local_us = to_local_us(us(ts), SESSION, upper) - elapsed_us(us(ts) - at_us, !upper);
    timestamptz_of_us(to_instant_us(local_us, SESSION, upper))
}

/// Returns the first time of a range. NULL if the range is empty.
#[pg_extern(name = "lower", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_lower(during: Range<TimestampWithTimeZone>) -> Option<TimestampWithTimeZone> {
    Some(timestamptz_of_us(match during.lower()? {
        RangeBound::Infinite => unbounded_us(false),
        RangeBound::Inclusive(ts) => us(*ts),
        RangeBound::Exclusive(ts) => us(*ts) + 1,
    }))
}

/// Returns the first time after a range. NULL if the range is empty.
#[pg_extern(name = "upper", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_upper(during: Range<TimestampWithTimeZone>) -> Option<TimestampWithTimeZone> {
    Some(timestamptz_of_us(match during.upper()? {
        RangeBound::Infinite => unbounded_us(true),
        RangeBound::Inclusive(ts) => us(*ts) + 1,
        RangeBound::Exclusive(ts) => us(*ts),
    }))
}

/// Returns the least time of an array. NULL if no time is in it.
#[pg_extern(name = "lower", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_lower_of_array(times: Array<'_, TimestampWithTimeZone>) -> Option<TimestampWithTimeZone> {
    times.iter().flatten().map(us).min().map(timestamptz_of_us)
}

/// Returns the first time after the greatest of an array. NULL if no time is in it.
#[pg_extern(name = "upper", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_upper_of_array(times: Array<'_, TimestampWithTimeZone>) -> Option<TimestampWithTimeZone> {
    times.iter().flatten().map(us).max().map(|greatest_us| timestamptz_of_us(greatest_us + 1))
}

/// Returns the least local time of an array, or with `after` the next one after the greatest. NULL
/// if no time is in it.
#[pg_extern(name = "local", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_local_of_array(locals: Array<'_, Timestamp>, after: bool) -> Option<Timestamp> {
    let all = locals.iter().flatten().map(local_us);
    let end_us = if after { all.max()? + 1 } else { all.min()? };
    Some(timestamp_of_us(end_us))
}

/// Returns the start of the first day of an array, or with `after` of the day after the last. NULL
/// if no day is in it.
#[pg_extern(name = "local", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_local_of_days(days: Array<'_, Date>, after: bool) -> Option<Timestamp> {
    let all = days.iter().flatten();
    let end_us = if after { all.map(local_us_after_day).max()? } else { all.map(local_us_of_day).min()? };
    Some(timestamp_of_us(end_us))
}

/// Returns the time of an id of the given layout; NULL for a number that is not one, and for a text
/// that is not a layout.
///
/// Unlike `snowflake_timestamp`, it raises nothing: in a plan it stands in bounds and in conditions
/// that are kept, which PostgreSQL may evaluate before it has excluded a row.
#[pg_extern(
    schema = "snowflake_plan",
    sql = r#"
CREATE FUNCTION snowflake_plan.time_of(id bigint, layout text) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_time_of_entry';
"#
)]
pub fn snowflake_time_of(id: i64, layout: Text<'_>, call: Call) -> Option<TimestampWithTimeZone> {
    let layout = layouts::of(&layout).ok()?;
    // SAFETY: nothing else is kept, and its entry reads this.
    unsafe { call.keep(layout) };
    time_of(&layout, id)
}

/// Returns the time of an id, `None` for a number that is not one.
pub fn time_of(layout: &Layout, id: i64) -> Option<TimestampWithTimeZone> {
    layout.created_at_ms(id).ok().map(timestamptz)
}

fn to_local_us(us: i128, zone: &str, upper: bool) -> i128 {
    if upper { greatest_local_us(us, zone) } else { least_local_us(us, zone) }
}

fn to_instant_us(local_us: i128, zone: &str, upper: bool) -> i128 {
    if upper { latest_us(local_us, zone) } else { earliest_us(local_us, zone) }
}

/// A limit that excludes nothing.
fn unbounded_us(upper: bool) -> i128 {
    if upper { i128::from(i64::MAX) } else { i128::from(i64::MIN) }
}

/// The greatest parts of an interval that are undone. PostgreSQL raises an error for a sum that is
/// beyond timestamptz, and must see the rows for that.
const MOST_MONTHS: u32 = 12 * 1000;
const MOST_DAYS: u32 = 366 * 1000;

/// The longest bin that is undone, in microseconds, for the same reason.
const MOST_BIN_US: i128 = MOST_DAYS as i128 * DAY_US;

/// Undoes the addition of an interval, or with a `sign` of -1 its subtraction. PostgreSQL adds
/// months, then days, each to the zone's local time, and then the rest.
fn shifted_back_us(us: i128, shift: &Interval, sign: i64, zone: &str, upper: bool) -> i128 {
    let too_long_us = i128::from(MOST_DAYS) * DAY_US;
    let micros = i128::from(shift.micros());
    if shift.months().unsigned_abs() > MOST_MONTHS
        || shift.days().unsigned_abs() > MOST_DAYS
        || micros.abs() > too_long_us
    {
        return unbounded_us(upper);
    }
    let sign_us = i128::from(sign);
    let mut limit_us = us - sign_us * micros;
    if shift.days() != 0 {
        let local_us = to_local_us(limit_us, zone, upper) - sign_us * i128::from(shift.days()) * DAY_US;
        limit_us = to_instant_us(local_us, zone, upper);
    }
    if shift.months() != 0 {
        let local_us = to_local_us(limit_us, zone, upper);
        limit_us = to_instant_us(months_back_us(local_us, sign * i64::from(shift.months()), upper), zone, upper);
    }
    limit_us
}

/// Undoes the addition of months to a local time. Where the month is too short for the day,
/// PostgreSQL takes its last day instead.
fn months_back_us(local_us: i128, months: i64, upper: bool) -> i128 {
    let Some((month, day_us)) = month_of(local_us) else { return local_us };
    let start_us = |month: i64| start_of_month_us(month);
    let back = month - months;
    let (length_us, back_length_us) = (start_us(month + 1) - start_us(month), start_us(back + 1) - start_us(back));
    let is_last_day = day_us + DAY_US >= length_us;
    if day_us < back_length_us && !(upper && is_last_day) {
        start_us(back) + day_us
    } else if upper {
        start_us(back + 1)
    } else {
        // The same time of the month's last day.
        start_us(back + 1) - DAY_US + day_us.rem_euclid(DAY_US)
    }
}

/// Returns the month of a local time, counted from the year 0, and the microseconds since its
/// start. `None` if it is infinite.
fn month_of(local_us: i128) -> Option<(i64, i128)> {
    let days = i64::try_from(local_us.div_euclid(DAY_US)).ok().filter(|days| days.abs() < 1 << 32)?;
    let (year, month, _) = civil_from_days(days + POSTGRES_EPOCH_DAYS);
    let month = 12 * year + month - 1;
    Some((month, local_us - start_of_month_us(month)))
}

/// Returns the start of a month, counted from the year 0, in microseconds of local time since 2000.
fn start_of_month_us(month: i64) -> i128 {
    let days = days_from_civil(month.div_euclid(12), month.rem_euclid(12) + 1, 1) - POSTGRES_EPOCH_DAYS;
    i128::from(days) * DAY_US
}

/// What `date_trunc` cuts to.
#[derive(Clone, Copy)]
pub enum TruncUnit {
    /// A unit of so many microseconds, of which one starts so many after 2000.
    Even(i128, i128),
    /// A unit of so many months, of which one starts at a month that is counted from the year 0.
    Months(i64, i64),
}

impl TruncUnit {
    /// Returns the unit of a name. `None` for abbreviations and for what is not a unit.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "microsecond" | "microseconds" => Self::Even(1, 0),
            "millisecond" | "milliseconds" => Self::Even(1000, 0),
            "second" | "seconds" => Self::Even(1_000_000, 0),
            "minute" | "minutes" => Self::Even(60_000_000, 0),
            "hour" | "hours" => Self::Even(3_600_000_000, 0),
            "day" | "days" => Self::Even(DAY_US, 0),
            // 2000-01-03 was a Monday.
            "week" | "weeks" => Self::Even(7 * DAY_US, 2 * DAY_US),
            "month" | "months" => Self::Months(1, 0),
            // PostgreSQL knows no plural of it.
            "quarter" => Self::Months(3, 0),
            "year" | "years" => Self::Months(12, 0),
            "decade" | "decades" => Self::Months(120, 0),
            // The first year of a century is 1, 101 and so on.
            "century" | "centuries" => Self::Months(1200, 12),
            "millennium" | "millennia" => Self::Months(12_000, 12),
            _ => return None,
        })
    }

    /// Returns the first start of such a unit at a local time or later.
    fn ceil_us(self, local_us: i128) -> i128 {
        match self {
            Self::Even(us, first_us) => first_us - (first_us - local_us).div_euclid(us) * us,
            Self::Months(months, first) => {
                let Some((month, day_us)) = month_of(local_us) else { return local_us };
                let from = month + i64::from(day_us > 0);
                start_of_month_us(first - (first - from).div_euclid(months) * months)
            }
        }
    }
}
