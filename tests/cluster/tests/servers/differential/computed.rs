//! What queries compute from an id's time before they compare it, in one step or several.

use crate::random::Random;

/// Units of `date_trunc`, one of them by a name that is left alone.
const UNITS: [&str; 14] = [
    "microseconds",
    "milliseconds",
    "second",
    "minute",
    "hour",
    "day",
    "Day",
    "week",
    "month",
    "quarter",
    "year",
    "decade",
    "century",
    "mon",
];

const ZONES: [&str; 8] = [
    "UTC",
    "America/Havana",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "CET",
    "<+13:30>-13:30",
    "A-167:59:00B,J1,J365",
];

const SHIFTS: [&str; 9] = [
    "1 day",
    "1 month",
    "-1 month",
    "1 month -1 day 30 minutes",
    "13 months 40 days",
    "25 hours",
    "-2 years -3 days",
    "0",
    "1 month -31 days",
];

const OFFSETS: [&str; 4] = ["2 hours", "-09:30", "00:00:01.9", "-00:00:01.9"];

const STRIDES: [&str; 7] =
    ["15 minutes", "1 hour", "1 day", "1 day 00:00:00.1", "7 days", "00:00:00.000001", "300 milliseconds"];

const ORIGINS: [&str; 6] =
    ["2001-01-01Z", "1970-01-01Z", "2026-01-01 00:00:00.1Z", "2100-01-01Z", "2026-05-31 22:00Z", "0001-01-01Z"];

/// A field of what is computed, exactly or as a float.
fn number(sql: &str, field: &'static str, random: &Random) -> (Type, String) {
    if random.one_in(2) {
        (Type::Number(field, true), format!("date_part('{field}', {sql})"))
    } else {
        (Type::Number(field, false), format!("extract({field} FROM {sql})"))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Type {
    Instant,
    Local,
    Day,
    /// A number: what of, and whether it is a float.
    Number(&'static str, bool),
}

/// An expression that is computed from a time.
pub struct Computed {
    pub sql: String,
    of: Type,
}

impl Computed {
    /// One to three steps from a time.
    pub fn new(time: &str, random: &Random) -> Self {
        let mut computed = Self { sql: time.to_owned(), of: Type::Instant };
        for _ in 0..random.pick(&[1, 1, 1, 2, 2, 3]) {
            computed = computed.step(random);
        }
        computed
    }

    fn step(self, random: &Random) -> Self {
        let Self { sql, of } = self;
        let (unit, zone) = (random.pick(&UNITS), random.pick(&ZONES));
        let (of, sql) = match of {
            Type::Instant => match random.below(16) {
                12 | 13 => {
                    let (stride, origin) = (random.pick(&STRIDES), random.pick(&ORIGINS));
                    (Type::Instant, format!("date_bin('{stride}', {sql}, timestamptz '{origin}')"))
                }
                14 => number(&sql, "epoch", random),
                0 | 1 => (Type::Instant, format!("date_trunc('{unit}', {sql})")),
                2 => (Type::Instant, format!("date_trunc('{unit}', {sql}, '{zone}')")),
                3 | 4 => (Type::Instant, format!("({sql} + interval '{}')", random.pick(&SHIFTS))),
                5 => (Type::Instant, format!("({sql} - interval '{}')", random.pick(&SHIFTS))),
                6 => (Type::Local, format!("({sql} AT TIME ZONE interval '{}')", random.pick(&OFFSETS))),
                7 => (Type::Local, format!("({sql} AT TIME ZONE '{zone}')")),
                8 => (Type::Local, format!("{sql}::timestamp")),
                9 => (Type::Day, format!("{sql}::date")),
                10 | 15 => number(&sql, "year", random),
                _ => (Type::Instant, format!("(interval '{}' + {sql})", random.pick(&SHIFTS))),
            },
            Type::Local => match random.below(7) {
                6 => {
                    let (stride, origin) = (random.pick(&STRIDES), random.pick(&ORIGINS));
                    (Type::Local, format!("date_bin('{stride}', {sql}, timestamptz '{origin}'::timestamp)"))
                }
                0 | 1 => (Type::Local, format!("date_trunc('{unit}', {sql})")),
                2 => (Type::Instant, format!("{sql}::timestamptz")),
                3 => (Type::Instant, format!("({sql} AT TIME ZONE '{zone}')")),
                4 => (Type::Day, format!("{sql}::date")),
                _ => number(&sql, "year", random),
            },
            Type::Day => match random.below(3) {
                0 => (Type::Local, format!("{sql}::timestamp")),
                1 => (Type::Instant, format!("{sql}::timestamptz")),
                _ => number(&sql, "year", random),
            },
            Type::Number(..) => (of, sql),
        };
        Self { sql, of }
    }

    /// The number that it would be for a time.
    pub fn number(&self, time: &str) -> Option<String> {
        match self.of {
            Type::Number(field, false) => Some(format!("extract({field} FROM {time})")),
            Type::Number(field, true) => Some(format!("date_part('{field}', {time})")),
            _ => None,
        }
    }

    /// A type that it can be compared with.
    pub fn kind(&self, random: &Random) -> &'static str {
        match self.of {
            Type::Number(_, false) => "numeric",
            Type::Number(_, true) => "float8",
            _ => random.pick(&["timestamptz", "date", "timestamp"]),
        }
    }
}
