//! Records in etcd: one line of `name=value` each, so that an operator can read and edit them with
//! etcdctl and a shell alone. Values have no spaces ([`encoded`]).
//!
//! A record that replaces another one keeps the fields that are not written here: a tag's
//! description, and whatever an operator has added.

use std::collections::BTreeMap;
use std::str::FromStr;

use snowflake_core::registry::{Fleet, Incarnation, NumberRecord, TagRecord};
use snowflake_core::segment::{END, LONGEST_BLOCK};

use super::address::{decoded, encoded};
use crate::config::MemberName;

/// A record's values by their names.
struct Fields<'a>(BTreeMap<&'a str, &'a str>);

/// What is wrong with a record.
pub(super) type Wrong = String;

impl<'a> Fields<'a> {
    fn parse(text: &'a str) -> Result<Self, Wrong> {
        let pairs = text.split_ascii_whitespace().map(|pair| pair.split_once('=').ok_or_else(|| pair.to_owned()));
        Ok(Self(pairs.collect::<Result<_, _>>()?))
    }

    /// Returns a value; `None` if the record does not have it.
    fn maybe<T>(&self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Wrong> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        parse(value).map(Some).ok_or_else(|| format!("{name}={value}"))
    }

    fn of<T>(&self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, Wrong> {
        self.maybe(name, parse)?.ok_or_else(|| format!("no {name}"))
    }

    fn number<T: FromStr>(&self, name: &str) -> Result<T, Wrong> {
        self.of(name, |value| value.parse().ok())
    }

    fn number_or<T: FromStr>(&self, name: &str, default: T) -> Result<T, Wrong> {
        Ok(self.maybe(name, |value| value.parse().ok())?.unwrap_or(default))
    }

    fn uuid(&self, name: &str) -> Result<u128, Wrong> {
        self.of(name, |value| u128::from_str_radix(&value.replace('-', ""), 16).ok())
    }

    fn text(&self, name: &str) -> Result<String, Wrong> {
        Ok(self.maybe(name, decoded)?.unwrap_or_default())
    }
}

/// A field as it is written; `None` for one that the record does not get.
type Written = (&'static str, Option<String>);

fn written(name: &'static str, value: impl ToString) -> Written {
    (name, Some(value.to_string()))
}

/// Writes a record that replaces another one.
fn line(old: Option<&str>, fields: &[Written]) -> String {
    let is_other = |pair: &&str| fields.iter().all(|(name, _)| pair.split('=').next() != Some(name));
    let others = old.unwrap_or_default().split_ascii_whitespace().filter(is_other).map(str::to_owned);
    let new = fields.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)));
    new.chain(others).collect::<Vec<_>>().join(" ")
}

fn pair<A: FromStr, B: FromStr>(text: &str, between: &str) -> Option<(A, B)> {
    let (first, second) = text.split_once(between)?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

/// Returns the random number that a number's or a tag's record got with its last change.
pub(super) fn nonce(text: &str) -> Result<u64, Wrong> {
    Fields::parse(text)?.number("nonce")
}

/// The version of this form.
const FORMAT: i64 = crate::VERSION;

/// Understands the fleet's record. Only `uuid` must be there: an operator can make a fleet by that
/// alone. What is missing is not known yet. A record without a `store` was written under `now`.
pub(super) fn fleet(text: &str, now: Incarnation) -> Result<Result<Fleet, i64>, Wrong> {
    let fields = Fields::parse(text)?;
    let format = fields.number_or("format", FORMAT)?;
    if format != FORMAT {
        return Ok(Err(format));
    }
    let incarnation = match fields.maybe("store", |value| value.parse().ok())? {
        Some(store) => {
            let counts = [fields.number_or("term", 0)?, fields.number_or("unseen", 0)?];
            Incarnation { store, timeline: 0, counts }
        }
        None => now,
    };
    Ok(Ok(Fleet {
        uuid: fields.uuid("uuid")?,
        layout: fields.maybe("layout", |value| pair(value, "/"))?,
        range: fields.maybe("range", |value| pair(value, "-"))?,
        // A failover of etcd loses nothing, and shows no other timeline. etcd does not tell since
        // when it is up, as a grace would need.
        loses_nothing: false,
        grace_ms: 0,
        closed: fields.number_or("closed", false)?,
        longest_ms: fields.number_or("longest_ms", 0)?,
        skew_ms: fields.number_or("skew_ms", 0)?,
        lease_ms: fields.number_or("lease_ms", 0)?,
        clock_skew_ms: fields.number_or("clock_skew_ms", 0)?,
        incarnation,
        generation: fields.number_or("generation", 1)?,
        horizon_ms: fields.number_or("horizon_ms", i64::MIN)?,
        freeze_ms: fields.number_or("freeze_ms", i64::MIN)?,
        version: fields.number_or("version", 0)?,
    }))
}

/// Writes the fleet's record.
pub(super) fn fleet_text(old: Option<&str>, fleet: &Fleet) -> String {
    let Incarnation { store, counts: [term, unseen], .. } = fleet.incarnation;
    line(
        old,
        &[
            written("format", FORMAT),
            written("uuid", format_args!("{:032x}", fleet.uuid)),
            ("layout", fleet.layout.map(|(layout, backup)| format!("{layout}/{backup}"))),
            ("range", fleet.range.map(|(first, last)| format!("{first}-{last}"))),
            written("closed", fleet.closed),
            written("longest_ms", fleet.longest_ms),
            written("skew_ms", fleet.skew_ms),
            written("lease_ms", fleet.lease_ms),
            written("clock_skew_ms", fleet.clock_skew_ms),
            written("store", store),
            written("term", term),
            written("unseen", unseen),
            written("generation", fleet.generation),
            written("horizon_ms", fleet.horizon_ms),
            written("freeze_ms", fleet.freeze_ms),
            written("version", fleet.version),
        ],
    )
}

/// Understands a number's record.
pub(super) fn number(text: &str) -> Result<NumberRecord, Wrong> {
    let fields = Fields::parse(text)?;
    Ok(NumberRecord {
        holder: fields.uuid("holder")?,
        nonce: fields.number("nonce")?,
        count: fields.number("count")?,
        server: fields.number("server")?,
        from_ms: fields.number("from_ms")?,
        until_ms: fields.number("until_ms")?,
        generation: fields.number("generation")?,
        renewed_ms: fields.number("renewed_ms")?,
        offset_ms: fields.number("offset_ms")?,
    })
}

/// Returns what operators know the holder of a number by.
pub(super) fn member(text: &str) -> Result<MemberName, Wrong> {
    let fields = Fields::parse(text)?;
    Ok(MemberName {
        host: fields.text("host")?,
        port: fields.number_or("port", 0)?,
        cluster_name: fields.text("cluster_name")?,
        version: fields.text("version")?,
    })
}

/// Writes a number's record, with what operators know its holder by; `None` if that stays as it is.
pub(super) fn number_text(old: Option<&str>, record: &NumberRecord, member: Option<&MemberName>) -> String {
    let name = |MemberName { host, port, cluster_name, version }: &MemberName| {
        [
            written("host", encoded(host)),
            written("port", port),
            written("cluster_name", encoded(cluster_name)),
            written("version", encoded(version)),
        ]
    };
    let mut fields: Vec<_> = member.into_iter().flat_map(name).collect();
    fields.extend([
        written("from_ms", record.from_ms),
        written("until_ms", record.until_ms),
        written("generation", record.generation),
        written("renewed_ms", record.renewed_ms),
        written("offset_ms", record.offset_ms),
        written("server", record.server),
        written("count", record.count),
        written("holder", format_args!("{:032x}", record.holder)),
        written("nonce", record.nonce),
    ]);
    line(old, &fields)
}

/// Understands a tag's record. `jump` counts greatest steps, or is `none`. Without it and
/// `returnable_from`, the tag does not jump, and nothing is given back.
pub(super) fn tag(text: &str) -> Result<TagRecord, Wrong> {
    let fields = Fields::parse(text)?;
    let positive = |value: &str| value.parse().ok().filter(|number| *number > 0_u32);
    let step = |name| fields.of(name, |value| positive(value).filter(|step| *step <= LONGEST_BLOCK));
    let jump = |value: &str| if value == "none" { Some(None) } else { positive(value).map(Some) };
    Ok(TagRecord {
        id: fields.number("id")?,
        next: fields.number("next_value")?,
        steps: (step("least_step")?, step("greatest_step")?),
        jump: fields.maybe("jump", jump)?.flatten(),
        nonce: fields.number("nonce")?,
        generation: fields.number("generation")?,
        written_ms: fields.number("written_ms")?,
        returnable: fields.number_or("returnable_from", END)?,
    })
}

/// Writes a tag's record.
pub(super) fn tag_text(old: Option<&str>, record: &TagRecord) -> String {
    line(
        old,
        &[
            written("next_value", record.next),
            written("least_step", record.steps.0),
            written("greatest_step", record.steps.1),
            written("jump", record.jump.map_or_else(|| "none".to_owned(), |jump| jump.to_string())),
            written("generation", record.generation),
            written("written_ms", record.written_ms),
            written("returnable_from", record.returnable),
            written("id", record.id),
            written("nonce", record.nonce),
        ],
    )
}

/// Returns the description of a tag; empty if it has none.
pub(super) fn description(text: &str) -> Result<String, Wrong> {
    Fields::parse(text)?.text("description")
}

/// Writes a tag's record with another description, and changes nothing else.
pub(super) fn described(old: &str, description: &str) -> String {
    line(Some(old), &[("description", (!description.is_empty()).then(|| encoded(description)))])
}

#[cfg(test)]
mod tests {
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
        grace_ms: 0,
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
        jump: Some(u32::MAX),
        nonce: 2,
        generation: 4,
        written_ms: i64::MAX,
        returnable: -1,
    };

    fn name() -> MemberName {
        MemberName { host: "a b=c\n".to_owned(), port: u16::MAX, cluster_name: "ü".to_owned(), version: String::new() }
    }

    /// Returns the text with another value of a field; `None` for none.
    fn with(text: &str, name: &str, value: Option<&str>) -> String {
        let is_other = |pair: &&str| pair.split('=').next() != Some(name);
        let others = text.split(' ').filter(is_other).map(str::to_owned);
        others.chain(value.map(|value| format!("{name}={value}"))).collect::<Vec<_>>().join(" ")
    }

    fn names(text: &str) -> Vec<&str> {
        text.split(' ').map(|pair| pair.split_once('=').unwrap().0).collect()
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
        for record in [TAG, TagRecord { next: i64::MAX, jump: None, nonce: u64::MAX, written_ms: i64::MIN, ..TAG }] {
            let text = tag_text(None, &record);
            assert_eq!((tag(&text), nonce(&text)), (Ok(record), Ok(record.nonce)));
        }
    }

    #[test]
    fn what_an_operator_has_added_stays() {
        let added = "note=a%20b other=";
        let old = format!("{added} {} reason=x", fleet_text(None, &FLEET));
        let new = Fleet { layout: None, range: None, version: 10, ..FLEET };
        let text = fleet_text(Some(&old), &new);
        assert_eq!(fleet(&text, NOW), Ok(Ok(new)));
        assert!(text.ends_with("version=10 note=a%20b other= reason=x") && !text.contains("range="), "{text}");

        let old = format!("{added} {}", number_text(None, &NUMBER, Some(&name())));
        let new = NumberRecord { holder: 2, nonce: 1, ..NUMBER };
        let text = number_text(Some(&old), &new, None);
        assert_eq!((number(&text), member(&text)), (Ok(new), Ok(name())));
        assert!(text.contains(added), "{text}");
        let text = number_text(Some(&old), &new, Some(&MemberName::default()));
        assert_eq!((number(&text), member(&text)), (Ok(new), Ok(MemberName::default())));
        assert!(text.ends_with(added), "{text}");

        let old = described(&format!("{added} {}", tag_text(None, &TAG)), "of the \"shop\" = ä");
        assert_eq!((tag(&old), description(&old).as_deref()), (Ok(TAG), Ok("of the \"shop\" = ä")));
        let new = TagRecord { next: 43, nonce: 1, jump: None, ..TAG };
        let text = tag_text(Some(&old), &new);
        assert_eq!((tag(&text), description(&text)), (Ok(new), description(&old)));
        assert!(text.contains(added), "{text}");
        let text = described(&text, "");
        assert_eq!((description(&text).as_deref(), text.contains("description")), (Ok(""), false));
        // No field is there twice, whatever is written over what.
        for text in [fleet_text(Some(&text), &FLEET), number_text(Some(&text), &NUMBER, Some(&name()))] {
            let mut all = names(&text);
            all.sort_unstable();
            assert!(all.is_sorted_by(|one, next| one < next), "{text}");
        }
    }

    #[test]
    fn a_fleet_is_made_by_its_uuid_alone() {
        let made = fleet("uuid=1b4e28ba-2fa1-41d2-883f-0016d3cca427", NOW).unwrap().unwrap();
        assert_eq!(made.uuid, 0x1b4e_28ba_2fa1_41d2_883f_0016_d3cc_a427);
        assert_eq!((made.layout, made.range, made.incarnation, made.generation), (None, None, NOW, 1));
        // One that was restored at the very beginning has no counts.
        let stored = fleet("uuid=1 store=0", NOW).unwrap().unwrap();
        assert_eq!(stored.incarnation, Incarnation { store: 0, timeline: 0, counts: [0; 2] });
        assert_eq!(fleet("format=2 uuid=1", NOW).unwrap(), Err(2));
        for wrong in ["", "layout=1/true", "uuid=x", "uuid", "uuid=1 range=5", "uuid=1 closed=yes", "uuid=1 store=x"] {
            assert!(fleet(wrong, NOW).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_record_that_makes_no_sense_says_which_field() {
        let text = number_text(None, &NUMBER, None);
        for name in names(&text) {
            assert_eq!(number(&with(&text, name, None)), Err(format!("no {name}")));
            for odd in ["", "x", "1.9", "99999999999999999999999999999999999999999", "0x9"] {
                assert_eq!(number(&with(&text, name, Some(odd))), Err(format!("{name}={odd}")));
            }
        }
        let text = tag_text(None, &TAG);
        for name in names(&text) {
            let without = match name {
                "jump" => Ok(TagRecord { jump: None, ..TAG }),
                "returnable_from" => Ok(TagRecord { returnable: END, ..TAG }),
                _ => Err(format!("no {name}")),
            };
            assert_eq!(tag(&with(&text, name, None)), without);
            for odd in ["", "x", "9e9", "9223372036854775808000"] {
                assert_eq!(tag(&with(&text, name, Some(odd))), Err(format!("{name}={odd}")));
            }
        }
        for wrong in
            ["least_step=0", "greatest_step=0", "greatest_step=10000001", "jump=0", "jump=-1", "jump=4294967296"]
        {
            let (name, value) = wrong.split_once('=').unwrap();
            assert_eq!(tag(&with(&text, name, Some(value))), Err(wrong.to_owned()));
        }
        assert_eq!(tag(&with(&text, "jump", Some("none"))), Ok(TagRecord { jump: None, ..TAG }));
        assert_eq!(member("host=%4").unwrap_err(), "host=%4");
        assert_eq!(description("description=%FF").unwrap_err(), "description=%FF");
        assert_eq!(nonce("nonce").unwrap_err(), "nonce");
    }
}
