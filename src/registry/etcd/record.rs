//! Records in etcd: each is one JSON object (`record.rs`), so that an operator can read and edit it
//! with etcdctl and jq.
//!
//! A record that replaces another one keeps the fields that are not written here: a tag's
//! description, and whatever an operator has added.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use snowflake_core::fleet::operate::new_fleet;
use snowflake_core::fleet::registry::{Fleet, Incarnation, NumberRecord, TagRecord};

use crate::FORMAT;
use crate::config::MemberName;
use crate::record::{self, Bits, Fields, FleetRow, Int, NumberRow, TagRow, understood};

/// What is wrong with a record.
pub(super) type Wrong = String;

fn parse(text: &str) -> Result<Fields, Wrong> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Understands a record as it is read. A fleet has many, so a map of the fields is only made to say
/// which of them is wrong.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, Wrong> {
    serde_json::from_str(text).or_else(|_| understood(parse(text)?))
}

/// Writes a record that replaces another one.
fn text(old: Option<&str>, new: Fields) -> String {
    let mut fields = old.and_then(|old| parse(old).ok()).unwrap_or_default();
    fields.extend(new);
    Value::Object(fields).to_string()
}

/// Returns the random number that a number's or a tag's record got with its last change.
pub(super) fn nonce(text: &str) -> Result<u64, Wrong> {
    #[derive(Deserialize)]
    struct Nonce {
        nonce: Bits,
    }
    read(text).map(|Nonce { nonce: Bits(nonce) }| nonce)
}

/// Understands the fleet's record, or returns its format if that is another one. Only `uuid` must
/// be there: an operator can make a fleet by that alone. What is missing is as in a fleet that no
/// server has used. A record without a `store` was written under `now`.
pub(super) fn fleet(text: &str, now: Incarnation) -> Result<Result<Fleet, i64>, Wrong> {
    // Lines of name=value.
    if !text.trim_start().starts_with('{') && text.contains("uuid=") {
        return Ok(Err(1));
    }
    let record = parse(text)?;
    #[derive(Deserialize)]
    struct Format {
        format: Option<Int<i64>>,
    }
    if let Format { format: Some(Int(format)) } = understood(record.clone())?
        && format != FORMAT
    {
        return Ok(Err(format));
    }
    let incarnation = if record.contains_key("store") { Incarnation { counts: [0; 2], ..now } } else { now };
    let mut fields = record::fleet(&new_fleet(0, incarnation, 0));
    fields.remove("uuid");
    fields.extend(record);
    let fleet = Fleet::from(understood::<FleetRow>(fields)?);
    // A failover of etcd loses nothing, and shows no other timeline.
    let incarnation = Incarnation { timeline: 0, ..fleet.incarnation };
    Ok(Ok(Fleet { loses_nothing: false, incarnation, ..fleet }))
}

/// Writes the fleet's record.
pub(super) fn fleet_text(old: Option<&str>, fleet: &Fleet) -> String {
    let mut fields = record::fleet(fleet);
    fields.insert("format".to_owned(), json!(FORMAT));
    text(old, fields)
}

/// Understands a number's record.
pub(super) fn number(text: &str) -> Result<NumberRecord, Wrong> {
    read::<NumberRow>(text).map(NumberRecord::from)
}

/// Returns what operators know the holder of a number by.
pub(super) fn member(text: &str) -> Result<MemberName, Wrong> {
    read(text)
}

/// Writes a number's record, with what operators know its holder by; `None` if that stays as it is.
pub(super) fn number_text(old: Option<&str>, record: &NumberRecord, member: Option<&MemberName>) -> String {
    let mut fields = record::number(record);
    fields.extend(member.map(record::fields).unwrap_or_default());
    text(old, fields)
}

/// Understands a tag's record. Without `jumps` and `returnable_from`, the tag does not jump, and
/// nothing is given back.
pub(super) fn tag(text: &str) -> Result<TagRecord, Wrong> {
    read::<TagRow>(text).map(TagRecord::from)
}

/// Writes a tag's record.
pub(super) fn tag_text(old: Option<&str>, record: &TagRecord) -> String {
    text(old, record::tag(record))
}

/// Returns the description of a tag; empty if it has none.
pub(super) fn description(text: &str) -> Result<String, Wrong> {
    #[derive(Deserialize)]
    struct Described {
        description: Option<String>,
    }
    read(text).map(|Described { description }| description.unwrap_or_default())
}

/// Writes a tag's record with another description, and changes nothing else.
pub(super) fn described(old: &str, description: &str) -> String {
    let description = Some(description).filter(|description| !description.is_empty());
    text(Some(old), Fields::from_iter([("description".to_owned(), json!(description))]))
}

#[cfg(test)]
mod tests {
    use snowflake_core::fleet::segment::{END, LONGEST_BLOCK};

    use super::*;

    const NOW: Incarnation = Incarnation { store: 7, timeline: 0, counts: [2, 5] };

    const FLEET: Fleet = Fleet {
        uuid: u128::MAX,
        layout: Some((-5, true)),
        range: Some((0, 1023)),
        loses_nothing: false,
        closed: true,
        longest_ms: 1,
        skew_ms: 2,
        lease_ms: 3,
        clock_skew_ms: 4,
        incarnation: Incarnation { store: u64::MAX, timeline: 0, counts: [i64::MAX, i64::MIN] },
        generation: u64::MAX,
        horizon_ms: i64::MIN,
        freeze_ms: i64::MAX,
        version: 9,
    };

    const NUMBER: NumberRecord = NumberRecord {
        holder: 1,
        nonce: u64::MAX,
        count: 2,
        server: 3,
        from_ms: -4,
        until_ms: 5,
        generation: 6,
        renewed_ms: 7,
        offset_ms: -8,
    };

    const TAG: TagRecord = TagRecord {
        id: u64::MAX,
        next: i64::MIN,
        steps: (1, LONGEST_BLOCK),
        jumps: true,
        nonce: 2,
        generation: 4,
        written_ms: i64::MAX,
        returnable: -1,
    };

    fn name() -> MemberName {
        MemberName { host: "a b=c\n".to_owned(), port: u16::MAX, cluster_name: "ü".to_owned(), version: String::new() }
    }

    /// Returns the text with another value of a field; `None` for none.
    fn with(text: &str, name: &str, value: Option<Value>) -> String {
        let mut fields = parse(text).unwrap();
        match value {
            Some(value) => fields.insert(name.to_owned(), value),
            None => fields.remove(name),
        };
        Value::Object(fields).to_string()
    }

    fn names(text: &str) -> Vec<String> {
        parse(text).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let least = Fleet {
            uuid: 0,
            layout: Some((i64::MIN, false)),
            range: Some((0, i64::MAX)),
            closed: false,
            longest_ms: i64::MIN,
            skew_ms: i64::MAX,
            incarnation: Incarnation { store: 0, timeline: 0, counts: [i64::MIN, i64::MAX] },
            generation: 0,
            freeze_ms: i64::MIN,
            ..FLEET
        };
        for written in [FLEET, least, Fleet { layout: None, range: None, ..FLEET }] {
            assert_eq!(fleet(&fleet_text(None, &written), NOW), Ok(Ok(written)));
        }
        for record in [
            NUMBER,
            NumberRecord { holder: u128::MAX, from_ms: i64::MIN, until_ms: i64::MAX, offset_ms: i64::MIN, ..NUMBER },
            NumberRecord { count: u64::MAX, server: u64::MAX, generation: u64::MAX, renewed_ms: i64::MAX, ..NUMBER },
        ] {
            let text = number_text(None, &record, Some(&name()));
            assert_eq!((number(&text), member(&text), nonce(&text)), (Ok(record), Ok(name()), Ok(record.nonce)));
            assert!(!text.contains('\n'), "{text}");
            let bare = number_text(None, &record, None);
            assert_eq!((number(&bare), member(&bare)), (Ok(record), Ok(MemberName::default())));
        }
        for record in [TAG, TagRecord { next: i64::MAX, jumps: false, nonce: u64::MAX, written_ms: i64::MIN, ..TAG }] {
            let text = tag_text(None, &record);
            assert_eq!((tag(&text), nonce(&text)), (Ok(record), Ok(record.nonce)));
        }
    }

    #[test]
    fn what_an_operator_has_added_stays() {
        let added = json!({"note": "a b", "other": {"list": [1, null]}, "huge": "18446744073709551616"});
        let with_added = |text: &str| super::text(Some(text), added.as_object().unwrap().clone());
        let has_added = |text: &str| {
            let fields = parse(text).unwrap();
            added.as_object().unwrap().iter().all(|(name, value)| fields.get(name) == Some(value))
        };
        let new = Fleet { layout: None, range: None, version: 10, ..FLEET };
        let text = fleet_text(Some(&with_added(&fleet_text(None, &FLEET))), &new);
        assert_eq!((fleet(&text, NOW), has_added(&text)), (Ok(Ok(new)), true));

        let old = with_added(&number_text(None, &NUMBER, Some(&name())));
        let new = NumberRecord { holder: 2, nonce: 1, ..NUMBER };
        let text = number_text(Some(&old), &new, None);
        assert_eq!((number(&text), member(&text), has_added(&text)), (Ok(new), Ok(name()), true));
        let text = number_text(Some(&old), &new, Some(&MemberName::default()));
        assert_eq!((number(&text), member(&text), has_added(&text)), (Ok(new), Ok(MemberName::default()), true));

        let old = described(&with_added(&tag_text(None, &TAG)), "of the \"shop\" = ä");
        assert_eq!((tag(&old), description(&old).as_deref()), (Ok(TAG), Ok("of the \"shop\" = ä")));
        let new = TagRecord { next: 43, nonce: 1, jumps: false, ..TAG };
        let text = tag_text(Some(&old), &new);
        assert_eq!((tag(&text), description(&text), has_added(&text)), (Ok(new), description(&old), true));
        assert_eq!(description(&described(&text, "")).as_deref(), Ok(""));
    }

    #[test]
    fn a_fleet_is_made_by_its_uuid_alone() {
        let made = fleet(r#"{"uuid": "1b4e28ba-2fa1-41d2-883f-0016d3cca427"}"#, NOW).unwrap().unwrap();
        assert_eq!(made.uuid, 0x1b4e_28ba_2fa1_41d2_883f_0016_d3cc_a427);
        assert_eq!((made.layout, made.range, made.incarnation, made.generation), (None, None, NOW, 1));
        // One that was restored at the very beginning has no counts.
        let stored = fleet(r#"{"uuid": "00000000-0000-0000-0000-000000000001", "store": "0"}"#, NOW).unwrap().unwrap();
        assert_eq!(stored.incarnation, Incarnation { store: 0, timeline: 0, counts: [0; 2] });
        // What only PostgreSQL has.
        let odd = fleet(
            r#"{"uuid": "00000000-0000-0000-0000-000000000001", "store": 7, "timeline": 9, "loses_nothing": true}"#,
            NOW,
        );
        let odd = odd.unwrap().unwrap();
        assert_eq!((odd.incarnation.timeline, odd.loses_nothing), (0, false));
    }

    #[test]
    fn a_fleet_of_another_format_says_which() {
        assert_eq!(fleet(r#"{"format": 3, "uuid": 1}"#, NOW), Ok(Err(3)));
        assert_eq!(fleet("format=1 uuid=1b4e28ba2fa141d2883f0016d3cca427 closed=false", NOW), Ok(Err(1)));
        for wrong in [
            "",
            "x",
            "[]",
            "{",
            r#"{"uuid": "uuid=""#,
            r#"{"layout": 1}"#,
            r#"{"uuid": "x"}"#,
            r#"{"uuid": 1}"#,
            r#"{"uuid": "00000000-0000-0000-0000-000000000001", "first_worker": "many"}"#,
            r#"{"uuid": "00000000-0000-0000-0000-000000000001", "closed": "yes"}"#,
            r#"{"uuid": "00000000-0000-0000-0000-000000000001", "store": "x"}"#,
            r#"{"uuid": "00000000-0000-0000-0000-000000000001", "format": "x"}"#,
        ] {
            assert!(fleet(wrong, NOW).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_integer_is_exact_for_every_reader() {
        let fleet = parse(&fleet_text(None, &FLEET)).unwrap();
        let expected = [
            ("layout", json!("-5")),
            ("last_worker", json!(1023)),
            ("store", json!("-1")),
            ("term", json!("9223372036854775807")),
            ("generation", json!("18446744073709551615")),
            ("horizon_ms", json!("-9223372036854775808")),
            ("version", json!("9")),
        ];
        for (name, value) in expected {
            assert_eq!(fleet[name], value, "{name}");
        }
        for (next, written) in [(1_i64 << 53, json!(1_i64 << 53)), ((1 << 53) + 1, json!("9007199254740993"))] {
            let text = tag_text(None, &TagRecord { next, ..TAG });
            assert_eq!(parse(&text).unwrap()["next_value"], written);
            assert_eq!(tag(&with(&text, "next_value", Some(json!(next)))).unwrap().next, next);
            assert_eq!(tag(&with(&text, "least_step", Some(json!("5")))).unwrap().steps.0, 5);
        }
    }

    #[test]
    fn a_record_that_makes_no_sense_says_which_field() {
        let says = |wrong: Result<(), String>, words: &str| {
            let wrong = wrong.expect_err(words);
            assert!(wrong.contains(words), "{wrong} lacks {words}");
        };
        let odd = ["", "x", "1.9", "99999999999999999999999999999999999999999", "0x9"].map(|odd| json!(odd));
        let odd = || odd.clone().into_iter().chain([json!(1.9), json!(true), json!(null), json!([1])]);
        let text = number_text(None, &NUMBER, None);
        for name in names(&text) {
            says(number(&with(&text, &name, None)).map(drop), &format!("missing field `{name}`"));
            for odd in odd() {
                says(number(&with(&text, &name, Some(odd))).map(drop), &format!("{name}: "));
            }
        }
        let text = tag_text(None, &TAG);
        for name in names(&text) {
            let without = tag(&with(&text, &name, None));
            match name.as_str() {
                "jumps" => assert_eq!(without, Ok(TagRecord { jumps: false, ..TAG })),
                "returnable_from" => assert_eq!(without, Ok(TagRecord { returnable: END, ..TAG })),
                _ => says(without.map(drop), &format!("missing field `{name}`")),
            }
            for odd in odd().filter(|odd| name != "jumps" || !odd.is_boolean()) {
                says(tag(&with(&text, &name, Some(odd))).map(drop), &format!("{name}: "));
            }
        }
        for (name, value) in
            [("least_step", 0), ("greatest_step", 0), ("greatest_step", 10_000_001), ("generation", -1)]
        {
            says(tag(&with(&text, name, Some(json!(value)))).map(drop), &format!("{name}: "));
        }
        says(member(r#"{"port": 65536}"#).map(drop), "port: ");
        says(description(r#"{"description": 5}"#).map(drop), "description: ");
        says(nonce("{}").map(drop), "missing field `nonce`");
    }
}
