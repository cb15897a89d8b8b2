//! Instants, as people and PostgreSQL write them: `2026-11-24 12:00+00`, RFC 3339, `in 3 days`,
//! `730 days ago`, `now`. jiff reads and writes them.

use std::fmt;

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

use crate::span::Span;

/// When something is to be, as an argument says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At an instant, in milliseconds since 1970.
    At(i64),
    /// So many milliseconds after the registry's clock, or before it.
    FromNow(i64),
}

impl When {
    /// Reads an instant. A fraction that is finer than a millisecond is rounded up, because an id
    /// of that millisecond may have been drawn.
    ///
    /// # Errors
    /// What is wrong with the text, and how to write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let said = text.trim();
        if said.eq_ignore_ascii_case("now") {
            return Ok(Self::FromNow(0));
        }
        if let Some(span) = said.strip_prefix("in ") {
            return Ok(Self::FromNow(Span::parse(span)?.0));
        }
        if let Some(span) = said.strip_suffix(" ago") {
            return Ok(Self::FromNow(-Span::parse(span)?.0));
        }
        let up = TimestampRound::new().smallest(Unit::Millisecond).mode(RoundMode::Ceil);
        let instant = said.parse().and_then(|instant: Timestamp| instant.round(up));
        instant.map(|instant| Self::At(instant.as_millisecond())).map_err(|_| {
            format!(
                "\"{text}\" is not an instant with its zone; write it as '2026-11-24 12:00+00' or \
                 '2026-11-24T12:00:00Z', or as 'in 3 days', '730 days ago' or 'now'"
            )
        })
    }

    /// Returns the instant, in milliseconds since 1970, when the registry's clock shows `now_ms`.
    pub fn ms(self, now_ms: i64) -> i64 {
        match self {
            Self::At(ms) => ms,
            Self::FromNow(ms) => now_ms.saturating_add(ms),
        }
    }
}

/// An instant for people, in milliseconds since 1970: to the second, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown(pub i64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nearest = if self.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
        let instant = Timestamp::from_millisecond(self.0).unwrap_or(nearest);
        write!(f, "{}", instant.strftime("%Y-%m-%d %H:%M:%SZ"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON_MS: i64 = 1_795_521_600_000;

    #[test]
    fn an_instant_is_read_as_people_and_postgresql_write_it() {
        for text in [
            "2026-11-24T12:00:00Z",
            "2026-11-24 12:00Z",
            "2026-11-24 12:00+00",
            "2026-11-24 12:00:00.000000+00",
            "2026-11-24 13:30+01:30",
            " 2026-11-24 09:00-03 ",
        ] {
            assert_eq!(When::parse(text), Ok(When::At(NOON_MS)), "{text}");
        }
        assert_eq!(When::parse("2026-11-24 12:00:00.120001+00"), Ok(When::At(NOON_MS + 121)));
    }

    #[test]
    fn an_instant_may_count_from_the_registrys_clock() {
        for (text, ms) in
            [("now", 0), ("in 3 days", 259_200_000), ("in 1h30m", 5_400_000), ("2 weeks ago", -1_209_600_000)]
        {
            assert_eq!(When::parse(text), Ok(When::FromNow(ms)));
            assert_eq!(When::parse(text).unwrap().ms(1000), 1000 + ms);
        }
        assert_eq!(When::FromNow(5).ms(i64::MAX), i64::MAX);
    }

    #[test]
    fn what_is_not_an_instant_is_refused_with_its_forms() {
        for text in [
            "",
            "2026-11-24",
            "2026-11-24 12:00",
            "24.11.2026 12:00Z",
            "2026-11-31 12:00Z",
            "2026-11-24 12:00 CET",
            "infinity",
            "tomorrow",
        ] {
            let error = When::parse(text).unwrap_err();
            assert!(
                error.starts_with(&format!("\"{text}\" is not an instant")) && error.contains("in 3 days"),
                "{error}"
            );
        }
        assert!(When::parse("in 3 fortnights").unwrap_err().contains("is not a length of time"));
    }

    #[test]
    fn an_instant_is_shown_to_the_second() {
        assert_eq!(Shown(1_288_834_974_657).to_string(), "2010-11-04 01:42:54Z");
        assert_eq!(Shown(i64::MAX).to_string(), "9999-12-30 22:00:00Z");
    }
}
