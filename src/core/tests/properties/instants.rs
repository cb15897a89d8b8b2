//! Tests instants: they are printed and parsed as RFC 3339 prescribes, compared with the `time`
//! crate.

use proptest::prelude::*;
use proptest::sample::Index;
use snowflake_core::clock::{InstantError, Utc, parse_instant};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::config;
use crate::spec::{WRITABLE_MS, epochs_ms, rfc_3339};

/// Parses an instant with the oracle; whole milliseconds only.
fn oracle(text: &str) -> Option<i64> {
    let instant = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    let nanoseconds = instant.unix_timestamp_nanos();
    (nanoseconds % 1_000_000 == 0).then_some((nanoseconds / 1_000_000) as i64)
}

/// The 28th to the 30th of February, half of them in years that end in 00.
const FEBRUARYS_ENDS: &str = "[0-9]{2}(00|[0-9]{2})-02-(28|29|30)T00:00:00Z";

/// Any instant that the grammar can write, and the ends of days around new year and the end of
/// February.
fn instants_ms() -> impl Strategy<Value = i64> {
    let in_year = (1..=9999, prop_oneof![0..=1_i64, 57..=61_i64, 364..=366_i64], -1..=0_i64);
    let days_ends = in_year.prop_map(|(year, days, ms)| {
        let new_year = OffsetDateTime::UNIX_EPOCH.replace_year(year).unwrap();
        let instant_ms = (new_year.unix_timestamp() + days * 86_400) * 1000 + ms;
        instant_ms.clamp(*WRITABLE_MS.start(), *WRITABLE_MS.end())
    });
    prop_oneof![WRITABLE_MS, epochs_ms(), days_ends]
}

proptest! {
    #![proptest_config(config(5000))]

    #[test]
    fn an_instant_is_printed_as_rfc_3339_writes_it_and_read_back(ms in instants_ms()) {
        let text = Utc(ms).to_string();
        prop_assert_eq!(&text, &rfc_3339(ms));
        prop_assert_eq!(parse_instant(&text), Ok(ms));
        prop_assert_eq!(oracle(&text), Some(ms));
        prop_assert_eq!(parse_instant(text.strip_suffix('Z').unwrap()), Err(InstantError::NoZone));
    }

    #[test]
    fn an_instant_of_any_zone_is_read(
        ms in WRITABLE_MS, offset in -(23 * 60 + 59)..=23 * 60 + 59_i64, digits in 0..=3_usize,
    ) {
        let step = 10_i64.pow(3 - digits as u32);
        let ms = ms.div_euclid(step) * step;
        let local_ms = ms + offset * 60_000;
        prop_assume!(WRITABLE_MS.contains(&ms) && WRITABLE_MS.contains(&local_ms));
        let local = rfc_3339(local_ms);
        let cut = if digits == 0 { 19 } else { 20 + digits };
        let sign = if offset < 0 { '-' } else { '+' };
        let text = format!("{}{sign}{:02}:{:02}", &local[..cut], offset.abs() / 60, offset.abs() % 60);
        prop_assert_eq!(parse_instant(&text), Ok(ms), "{}", text);
        prop_assert_eq!(oracle(&text), Some(ms));
    }

    /// Generates digits, days, hours and zones a little out of range, and single changed
    /// characters.
    #[test]
    fn what_parses_is_an_instant(
        text in prop_oneof![
            concat!(
                "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]",
                "(\\.[0-9]{1,4})?(Z|[+-][0-2][0-9]:[0-6][0-9])?"
            ),
            FEBRUARYS_ENDS,
            (WRITABLE_MS, any::<Index>(), any::<char>()).prop_map(|(ms, at, stray)| {
                let mut text: Vec<char> = rfc_3339(ms).chars().collect();
                let at = at.index(text.len());
                text[at] = stray;
                text.into_iter().collect()
            }),
            any::<String>(),
        ],
    ) {
        if let Ok(ms) = parse_instant(&text) {
            prop_assert_eq!(oracle(&text), Some(ms));
        }
    }

    /// Checks the other direction, for the form that the library prints.
    #[test]
    fn every_instant_parses(
        text in prop_oneof![
            concat!(
                "[0-9]{4}-(0[1-9]|1[0-2])-[0-3][0-9]T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]",
                "(\\.[0-9]{1,3})?(Z|[+-][01][0-9]:[0-5][0-9])"
            ),
            FEBRUARYS_ENDS,
        ],
    ) {
        if let Some(ms) = oracle(&text).filter(|ms| WRITABLE_MS.contains(ms)) {
            prop_assert_eq!(parse_instant(&text), Ok(ms));
        }
    }
}
