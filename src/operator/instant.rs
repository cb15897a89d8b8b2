//! Instants, as people and PostgreSQL write them: `2026-11-24 12:00+00`, RFC 3339, `in 3 days`,
//! `730 days ago`, `now`.

use std::fmt;

use snowflake_core::clock::{InstantError, Utc, parse_instant};

use crate::span::Span;

/// How to write an instant.
const FORMS: &str = "write it with its zone, as '2026-11-24 12:00+00' or '2026-11-24T12:00:00Z', or as 'in 3 days', \
                     '730 days ago' or 'now'";

/// When something is to be, as an argument says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At an instant, in milliseconds since 1970.
    At(i64),
    /// So many milliseconds after the registry's clock, or before it.
    FromNow(i64),
}

impl When {
    /// Reads an instant. A fraction that is finer than a millisecond is rounded up.
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
        let error = match rfc_3339(said).map(|(text, is_rounded)| (parse_instant(&text), is_rounded)) {
            Some((Ok(ms), is_rounded)) => return Ok(Self::At(ms + i64::from(is_rounded))),
            Some((Err(InstantError::NoZone), _)) => "has no zone",
            Some((Err(InstantError::Malformed), _)) | None => "is not an instant",
        };
        Err(format!("\"{text}\" {error}; {FORMS}"))
    }

    /// Returns the instant, in milliseconds since 1970, when the registry's clock shows `now_ms`.
    pub fn ms(self, now_ms: i64) -> i64 {
        match self {
            Self::At(ms) => ms,
            Self::FromNow(ms) => now_ms.saturating_add(ms),
        }
    }
}

/// Writes an instant as RFC 3339 has it, from the forms in which PostgreSQL prints it. Returns,
/// too, whether a millisecond has to be added, because a finer fraction was cut. `None` if it has
/// neither form.
fn rfc_3339(text: &str) -> Option<(String, bool)> {
    let (date, time) = text.split_once([' ', 'T', 't'])?;
    let zone_at = time.find(|char: char| !(char.is_ascii_digit() || ":.".contains(char))).unwrap_or(time.len());
    let (time, zone) = time.split_at(zone_at);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let seconds = if clock.len() == "12:00".len() { ":00" } else { "" };
    let (kept, cut) = fraction.split_at_checked(3).unwrap_or((fraction, ""));
    if cut.len() > 3 || time.ends_with('.') {
        return None;
    }
    let point = if kept.is_empty() { "" } else { "." };
    let zone = match zone.trim_start() {
        "z" | "Z" | "UTC" | "utc" => "Z".to_owned(),
        short if short.len() == "+00".len() => format!("{short}:00"),
        bare if bare.len() == "+0000".len() && bare.is_ascii() => format!("{}:{}", &bare[..3], &bare[3..]),
        zone => zone.to_owned(),
    };
    let is_rounded = cut.bytes().any(|digit| digit != b'0');
    Some((format!("{date}T{clock}{seconds}{point}{kept}{zone}"), is_rounded))
}

/// An instant for people: to the second, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown(pub i64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Utc(self.0).to_string();
        let (seconds, _) = text.split_once('.').unwrap_or((&text, ""));
        write!(f, "{}Z", seconds.replacen('T', " ", 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_read_as_people_and_postgresql_write_it() {
        let noon = parse_instant("2026-11-24T12:00:00Z").unwrap();
        for text in [
            "2026-11-24T12:00:00Z",
            "2026-11-24t12:00:00z",
            "2026-11-24 12:00:00Z",
            "2026-11-24 12:00Z",
            "2026-11-24 12:00 UTC",
            "2026-11-24 12:00+00",
            "2026-11-24 12:00:00+00",
            "2026-11-24 12:00:00 +0000",
            "2026-11-24 12:00:00.000+00:00",
            "2026-11-24 12:00:00.000000+00",
            "2026-11-24 13:30+01:30",
            "2026-11-24 13:30+0130",
            " 2026-11-24 09:00-03 ",
        ] {
            assert_eq!(When::parse(text), Ok(When::At(noon)), "{text}");
        }
        assert_eq!(When::parse("2026-11-24 12:00:00.12+00"), Ok(When::At(noon + 120)));
        // Rounded up, because an id of that millisecond may have been drawn.
        assert_eq!(When::parse("2026-11-24 12:00:00.120001+00"), Ok(When::At(noon + 121)));
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
            "24.11.2026 12:00Z",
            "2026-11-24 12Z",
            "2026-11-24 25:00Z",
            "2026-11-31 12:00Z",
            "2026-11-24 12:00:00.Z",
            "2026-11-24 12:00:00.1234567Z",
            "2026-11-24 12:00 CET",
            "2026-11-24 12:00+\u{e4}\u{e4}",
            "infinity",
            "tomorrow",
        ] {
            let error = When::parse(text).unwrap_err();
            assert!(
                error.starts_with(&format!("\"{text}\" is not an instant")) && error.contains("in 3 days"),
                "{error}"
            );
        }
        assert!(When::parse("2026-11-24 12:00").unwrap_err().starts_with("\"2026-11-24 12:00\" has no zone"));
        assert!(When::parse("in 3 fortnights").unwrap_err().contains("is not a length of time"));
    }

    #[test]
    fn an_instant_is_shown_to_the_second() {
        assert_eq!(Shown(1_288_834_974_657).to_string(), "2010-11-04 01:42:54Z");
    }
}
