//! Lengths of time, read and written by jiff in its friendly format: `10 min`, `600s`, `1h30m`.

use std::fmt;

use jiff::fmt::friendly::{Designator, Direction, Spacing, SpanPrinter};
use jiff::{RoundMode, SpanRelativeTo, SpanRound, Unit};

use snowflake_core::clock::DAY_MS;

/// The longest that is read or written: a thousand years, so that adding two of them cannot
/// overflow.
const LONGEST_MS: i64 = 365_250 * DAY_MS;

/// A length of time, in milliseconds. It is written with all its units, so that reading what is
/// written gives the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub i64);

impl Span {
    /// Reads a length of time, from 0 to a thousand years. A fraction of a millisecond is cut.
    ///
    /// # Errors
    /// What is wrong with the text, and how to write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let ms = text.trim().parse().and_then(|span: jiff::Span| span.to_duration(days()));
        match ms.map(|duration| i64::try_from(duration.as_millis())) {
            Ok(Ok(ms @ 0..=LONGEST_MS)) => Ok(Self(ms)),
            _ => Err(format!(
                "\"{text}\" is not a length of time from 0 s to a thousand years; write it as '10 min', '90s', '1h30m', \
                 '2 days' or '500 ms'"
            )),
        }
    }

    /// Writes the length with two units at most, rounded down: for what only people read.
    pub fn short(self) -> String {
        self.to_units(match self.0.unsigned_abs() {
            0..10_000 => Unit::Millisecond,
            10_000..3_600_000 => Unit::Second,
            3_600_000..86_400_000 => Unit::Minute,
            _ => Unit::Hour,
        })
    }

    /// Writes the length in days and all units down to one, rounded down.
    fn to_units(self, smallest: Unit) -> String {
        const PRINTER: SpanPrinter = SpanPrinter::new()
            .designator(Designator::Short)
            .spacing(Spacing::BetweenUnitsAndDesignators)
            .direction(Direction::Sign);
        let rounding = SpanRound::new().largest(Unit::Day).smallest(smallest).mode(RoundMode::Trunc).relative(days());
        let span = jiff::Span::new().milliseconds(self.0.clamp(-LONGEST_MS, LONGEST_MS)).round(rounding);
        PRINTER.span_to_string(&span.expect("a thousand years are within what jiff can write"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_units(Unit::Millisecond))
    }
}

/// Each day has 24 hours here.
fn days<'a>() -> SpanRelativeTo<'a> {
    SpanRelativeTo::days_are_24_hours()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_as_people_write_it() {
        for (text, ms) in [
            ("10 min", 600_000),
            ("600s", 600_000),
            ("1h30m", 5_400_000),
            (" 1 hour  30 minutes ", 5_400_000),
            ("1.5 h", 5_400_000),
            ("500 ms", 500),
            ("2 days", 172_800_000),
            ("1 week", 604_800_000),
            ("0s", 0),
            ("365250 d", LONGEST_MS),
        ] {
            assert_eq!(Span::parse(text), Ok(Span(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_length_is_refused_with_its_form() {
        // A month has no length by itself.
        for text in [
            "",
            "10",
            "min",
            "10 mn",
            "1 month",
            "1 s\0",
            "99999999999999999999 s",
            "-10 min",
            "10 min ago",
            "365250 d 1 ms",
        ] {
            let error = Span::parse(text).unwrap_err();
            assert!(
                error.starts_with(&format!("\"{text}\" is not a length of time")) && error.contains("10 min"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for ms in [0, 1, 999, 1500, 60_000, 61_001, 5_400_000, 86_400_000, 93_784_005, LONGEST_MS] {
            assert_eq!(Span::parse(&Span(ms).to_string()), Ok(Span(ms)));
        }
        assert_eq!(Span(93_784_005).to_string(), "1 day 2 hrs 3 mins 4 secs 5 msecs");
    }

    #[test]
    fn a_short_length_has_two_units() {
        for (ms, text) in [
            (0, "0 secs"),
            (1500, "1 sec 500 msecs"),
            (10_500, "10 secs"),
            (590_900, "9 mins 50 secs"),
            (93_784_005, "1 day 2 hrs"),
            (-12, "-12 msecs"),
            (i64::MIN, "-365250 days"),
        ] {
            assert_eq!(Span(ms).short(), text);
        }
    }
}
