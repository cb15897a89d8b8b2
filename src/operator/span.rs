//! Lengths of time, as people write and read them: `10 min`, `600s`, `1h30m`, `500 ms`.

use std::fmt;

use snowflake_core::clock::DAY_MS;

/// The units that are read, longest first, with the name that is written.
const UNITS: [(i64, &[&str]); 6] = [
    (7 * DAY_MS, &["week", "weeks", "w"]),
    (DAY_MS, &["d", "day", "days"]),
    (3_600_000, &["h", "hr", "hour", "hours"]),
    (60_000, &["min", "m", "mins", "minute", "minutes"]),
    (1000, &["s", "sec", "secs", "second", "seconds"]),
    (1, &["ms", "msec", "msecs", "millisecond", "milliseconds"]),
];

/// The longest that is read: a thousand years, so that adding two of them cannot overflow.
const LONGEST_MS: i64 = 365_250 * DAY_MS;

/// A length of time, in milliseconds. It is written with all its units, so that reading what is
/// written gives the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub i64);

impl Span {
    /// Reads a length of time: whole numbers, each with a unit, from 0 to a thousand years.
    ///
    /// # Errors
    /// What is wrong with the text, and how to write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let malformed = || {
            Err(format!(
                "\"{text}\" is not a length of time; write it as '10 min', '90s', '1h30m', '2 days' or '500 ms'"
            ))
        };
        let (mut rest, mut ms) = (text.trim(), 0_i64);
        if rest.is_empty() {
            return malformed();
        }
        while !rest.is_empty() {
            let digits = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
            let (number, after) = rest.split_at(digits);
            let after = after.trim_start();
            let letters = after.find(|char: char| !char.is_ascii_alphabetic()).unwrap_or(after.len());
            let (unit, after) = after.split_at(letters);
            let unit = unit.to_ascii_lowercase();
            let Some((unit_ms, _)) = UNITS.iter().find(|(_, names)| names.contains(&&*unit)) else {
                return malformed();
            };
            if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                return malformed();
            }
            let part_ms = number.parse().ok().and_then(|number: i64| number.checked_mul(*unit_ms));
            match part_ms.and_then(|part_ms| part_ms.checked_add(ms)).filter(|ms| *ms <= LONGEST_MS) {
                Some(sum_ms) => ms = sum_ms,
                None => return Err(format!("\"{text}\" is longer than a thousand years")),
            }
            rest = after.trim_start();
        }
        Ok(Self(ms))
    }

    /// Writes the length with two units at most, rounded down: for what only people read.
    pub fn short(self) -> String {
        let ms = self.0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        let parts = parts(ms);
        // Milliseconds say nothing beside seconds.
        let is_long = ms >= 10_000;
        let shown: Vec<_> = parts.into_iter().filter(|(_, unit)| !is_long || *unit != "ms").take(2).collect();
        format!("{sign}{}", joined(&shown))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}", joined(&parts(self.0.unsigned_abs())))
    }
}

/// Splits a length into days, hours, minutes, seconds and milliseconds.
fn parts(mut ms: u64) -> Vec<(u64, &'static str)> {
    let mut parts = Vec::new();
    for (unit_ms, names) in &UNITS[1..] {
        let unit_ms = unit_ms.unsigned_abs();
        if ms >= unit_ms {
            parts.push((ms / unit_ms, names[0]));
            ms %= unit_ms;
        }
    }
    parts
}

fn joined(parts: &[(u64, &str)]) -> String {
    if parts.is_empty() {
        return "0 s".to_owned();
    }
    let parts: Vec<_> = parts.iter().map(|(number, unit)| format!("{number} {unit}")).collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_as_people_write_it() {
        for (text, ms) in [
            ("10 min", 600_000),
            ("10min", 600_000),
            ("10m", 600_000),
            ("600s", 600_000),
            ("600 seconds", 600_000),
            ("1h30m", 5_400_000),
            ("1h 30 min", 5_400_000),
            (" 1 hour  30 minutes ", 5_400_000),
            ("500 ms", 500),
            ("2 days", 172_800_000),
            ("1 Week", 604_800_000),
            ("0s", 0),
            ("1s500ms", 1500),
            ("365250 d", LONGEST_MS),
        ] {
            assert_eq!(Span::parse(text), Ok(Span(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_length_is_refused_with_its_form() {
        for text in
            ["", " ", "10", "min", "10 mn", "-10 min", "1.5 h", "10 min 5", "1h,30m", "\u{661}0 s", "10:00", "1 s\0"]
        {
            let error = Span::parse(text).unwrap_err();
            assert!(
                error.starts_with(&format!("\"{text}\" is not a length of time")) && error.contains("10 min"),
                "{error}"
            );
        }
        for text in ["365251 d", "99999999999999999999 s", "9223372036854775807 d", "365250 d 1 ms"] {
            assert!(Span::parse(text).unwrap_err().ends_with("longer than a thousand years"), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for ms in [0, 1, 999, 1000, 1500, 60_000, 61_001, 3_600_000, 5_400_000, 86_400_000, 93_784_005, LONGEST_MS] {
            assert_eq!(Span::parse(&Span(ms).to_string()), Ok(Span(ms)));
        }
        assert_eq!(Span(93_784_005).to_string(), "1 d 2 h 3 min 4 s 5 ms");
        assert_eq!(Span(-1500).to_string(), "-1 s 500 ms");
    }

    #[test]
    fn a_short_length_has_two_units() {
        for (ms, text) in [
            (0, "0 s"),
            (999, "999 ms"),
            (1500, "1 s 500 ms"),
            (10_500, "10 s"),
            (590_900, "9 min 50 s"),
            (93_784_005, "1 d 2 h"),
            (86_400_000, "1 d"),
            (-12, "-12 ms"),
            (i64::MIN, "-106751991167 d 7 h"),
        ] {
            assert_eq!(Span(ms).short(), text);
        }
    }
}
