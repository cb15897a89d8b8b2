//! Under which keys the records of a fleet are, and the parts of a transaction that name them, in
//! the JSON of etcd's gateway.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use snowflake_core::fleet::registry::{
    Incarnation, NumberKey, NumberRecord, Reading, RecordChange, Wanted, WantedNumbers, WantedTags,
};
use snowflake_core::fleet::tag::Tag;

use super::address::{decoded, encoded};
use super::{Records, record};
use crate::error::RegistryError;
use crate::problem::Problem;

/// Under which keys the records of a fleet are.
pub(super) struct Keys {
    /// What all keys begin with.
    pub prefix: String,
    /// What the fleet's keys begin with.
    fleet: String,
}

impl Keys {
    pub fn new(prefix: String, fleet: &str) -> Self {
        Self { fleet: format!("{prefix}{}/", encoded(fleet)), prefix }
    }

    pub fn fleet(&self) -> String {
        format!("{}fleet", self.fleet)
    }

    pub fn below(&self, what: &str) -> String {
        format!("{}{what}/", self.fleet)
    }

    fn below_datacenter(&self, what: &str, datacenter: Option<i64>) -> String {
        let datacenter = datacenter.map_or_else(|| "-".to_owned(), |datacenter| datacenter.to_string());
        format!("{}{datacenter}/", self.below(what))
    }

    pub fn number(&self, number: NumberKey) -> String {
        format!("{}{}", self.below_datacenter("numbers", number.datacenter), number.worker)
    }

    fn lease(&self, number: NumberKey, from_ms: i64) -> String {
        format!("{}{}/{from_ms}", self.below_datacenter("history", number.datacenter), number.worker)
    }

    pub fn tag(&self, tag: Tag) -> String {
        self.below("tags") + &encoded(tag.as_str())
    }

    /// Returns of which number a record below `numbers` is.
    pub fn number_of(&self, key: &str) -> Option<NumberKey> {
        let (datacenter, worker) = key.strip_prefix(&self.below("numbers"))?.split_once('/')?;
        let datacenter = if datacenter == "-" { None } else { Some(datacenter.parse().ok()?) };
        let number = NumberKey::new(datacenter, worker.parse().ok()?);
        // A number has one record. So it is written in one way.
        Some(number).filter(|number| self.number(*number) == key)
    }

    /// Returns the key of the number's record that a lease in the history belongs to.
    pub fn number_of_lease(&self, key: &str) -> Option<String> {
        let (number, _) = key.strip_prefix(&self.below("history"))?.rsplit_once('/')?;
        Some(self.below("numbers") + number)
    }

    /// Returns of which tag a record below `tags` is.
    pub fn tag_of(&self, key: &str) -> Option<Tag> {
        let tag = Tag::new(&decoded(key.strip_prefix(&self.below("tags"))?)?).ok()?;
        Some(tag).filter(|tag| self.tag(*tag) == key)
    }

    /// Returns what is read: the fleet's record, and those that are wanted.
    pub fn wanted(&self, wanted: &Wanted) -> Vec<Value> {
        let mut ranges = vec![one(&self.fleet())];
        ranges.extend(match wanted.numbers {
            WantedNumbers::None => None,
            WantedNumbers::One(number) => Some(one(&self.number(number))),
            WantedNumbers::Of(datacenter) => Some(all(&self.below_datacenter("numbers", datacenter))),
            WantedNumbers::All => Some(all(&self.below("numbers"))),
        });
        match &wanted.tags {
            WantedTags::None => {}
            WantedTags::Named(tags) => ranges.extend(tags.iter().map(|tag| one(&self.tag(*tag)))),
            WantedTags::All => ranges.push(all(&self.below("tags"))),
        }
        ranges
    }

    /// Returns which record a change replaces.
    pub fn changed(&self, change: &RecordChange) -> String {
        match change {
            RecordChange::Fleet(_) => self.fleet(),
            RecordChange::Number { number, .. } | RecordChange::DropNumber { number, .. } => self.number(*number),
            RecordChange::Tag { tag, .. } => self.tag(*tag),
        }
    }

    /// Understands the records that were found.
    pub fn understood(&self, found: &Records, incarnation: Incarnation, now_ms: i64) -> Result<Reading, RegistryError> {
        let fleet_key = self.fleet();
        let wrong = |key: &str, why: String| RegistryError::Etcd(Problem::Record(key.to_owned(), why));
        let text = found.get(&fleet_key).ok_or_else(|| RegistryError::Etcd(Problem::NoFleet(fleet_key.clone())))?;
        let fleet = record::fleet(text, incarnation).map_err(|why| wrong(&fleet_key, why))?;
        let fleet = fleet.map_err(|format| RegistryError::OtherVersion(Some(format)))?;
        let (mut numbers, mut tags) = (BTreeMap::new(), BTreeMap::new());
        for (key, text) in found.iter().filter(|(key, _)| **key != fleet_key) {
            if let Some(number) = self.number_of(key) {
                numbers.insert(number, record::number(text).map_err(|why| wrong(key, why))?);
            } else if let Some(tag) = self.tag_of(key) {
                tags.insert(tag, record::tag(text).map_err(|why| wrong(key, why))?);
            } else {
                return Err(wrong(key, "neither a number nor a tag".to_owned()));
            }
        }
        Ok(Reading { fleet, numbers, tags, incarnation, now_ms })
    }

    /// Returns how a change of a number's record shows in the history. Each lease is there from its
    /// begin on. Its end is written when another one follows, because a holder that is killed
    /// could not do that itself.
    pub fn history(&self, number: NumberKey, old_text: Option<&str>, new: &NumberRecord, text: &str) -> Vec<Value> {
        let key = |from_ms: i64| self.lease(number, from_ms);
        let begins = || put(&key(new.from_ms), text);
        let old = old_text.and_then(|text| Some((record::number(text).ok()?, text)));
        match old {
            Some((old, _)) if old.holder == new.holder && old.from_ms == new.from_ms => vec![],
            // An operator has cut the lease.
            Some((old, _)) if old.holder == new.holder => vec![begins(), delete(&key(old.from_ms))],
            Some((old, old_text)) if old.from_ms != new.from_ms => vec![begins(), put(&key(old.from_ms), old_text)],
            // None before it, or one that was given back before it began.
            _ => vec![begins()],
        }
    }

    /// Returns how the deletion of a number's record shows in the history, which has the end of its
    /// last lease from then on.
    pub fn ended(&self, number: NumberKey, text: &str) -> Option<Value> {
        Some(put(&self.lease(number, record::number(text).ok()?.from_ms), text))
    }
}

fn base64(text: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(text)
}

/// Reads one key.
pub(super) fn one(key: &str) -> Value {
    json!({"request_range": {"key": base64(key)}})
}

/// Reads all keys with a prefix.
pub(super) fn all(prefix: &str) -> Value {
    json!({"request_range": {"key": base64(prefix), "range_end": base64(end_of(prefix))}})
}

/// Reads the first keys from one on that begin with a prefix.
pub(super) fn first(count: usize, from: &str, prefix: &str) -> Value {
    json!({"request_range": {"key": base64(from), "range_end": base64(end_of(prefix)), "limit": count.to_string()}})
}

/// Returns the first key behind all that begin with a prefix. No text has the byte 255.
fn end_of(prefix: &str) -> Vec<u8> {
    match prefix.as_bytes() {
        // All keys.
        [] => vec![0],
        [first @ .., last] => [first, &[last + 1]].concat(),
    }
}

pub(super) fn put(key: &str, text: &str) -> Value {
    json!({"request_put": {"key": base64(key), "value": base64(text)}})
}

pub(super) fn delete(key: &str) -> Value {
    json!({"request_delete_range": {"key": base64(key)}})
}

/// Compares a record with what was read; `None` if it must not exist.
pub(super) fn is_as_read(key: &str, text: Option<&str>) -> Value {
    match text {
        Some(text) => json!({"target": "VALUE", "key": base64(key), "value": base64(text), "result": "EQUAL"}),
        None => json!({"target": "VERSION", "key": base64(key), "version": "0", "result": "EQUAL"}),
    }
}

/// Shows a part of a transaction with texts in place of base64.
#[cfg(test)]
pub(super) fn shown(part: &Value) -> String {
    let plain = |name: &str, value: &Value| match (name, value) {
        ("key" | "range_end" | "value", Value::String(text)) => {
            String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap()
        }
        (_, Value::Object(_)) => shown(value),
        (_, Value::String(text)) => text.clone(),
        _ => value.to_string(),
    };
    let pairs = part.as_object().unwrap().iter().map(|(name, value)| format!("{name} {}", plain(name, value)));
    pairs.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = r#"{"uuid": "00000000-0000-0000-0000-000000000001"}"#;

    fn keys() -> Keys {
        Keys::new("/snowflake_id/".to_owned(), "a/b")
    }

    fn of(datacenter: impl Into<Option<i64>>, worker: i64) -> NumberKey {
        NumberKey::new(datacenter.into(), worker)
    }

    #[test]
    fn each_record_has_one_key() {
        let keys = keys();
        for (number, key) in [
            (of(None, 0), "/snowflake_id/a%2Fb/numbers/-/0"),
            (of(0, 7), "/snowflake_id/a%2Fb/numbers/0/7"),
            (of(i64::MIN, i64::MAX), "/snowflake_id/a%2Fb/numbers/-9223372036854775808/9223372036854775807"),
        ] {
            assert_eq!((&*keys.number(number), keys.number_of(key)), (key, Some(number)));
            let lease = keys.lease(number, -1);
            assert_eq!(lease, format!("{}/-1", key.replace("numbers", "history")));
            assert_eq!(keys.number_of_lease(&lease).as_deref(), Some(key));
        }
        for wrong in ["/07", "/+7", "", "/", "7", "//7", "x/7", "/7/", "/7/8", "/7 "] {
            assert_eq!(keys.number_of(&format!("/snowflake_id/a%2Fb/numbers/-{wrong}")), None, "{wrong}");
        }
        for (tag, key) in [("orders", "orders"), ("../fleet", "..%2Ffleet"), ("ä", "%C3%A4")] {
            let (tag, key) = (Tag::new(tag).unwrap(), format!("/snowflake_id/a%2Fb/tags/{key}"));
            assert_eq!((keys.tag(tag), keys.tag_of(&key)), (key.clone(), Some(tag)));
        }
        for wrong in ["", "%6Frders", "a b", "%2", "a/b", &"x".repeat(64)] {
            assert_eq!(keys.tag_of(&format!("/snowflake_id/a%2Fb/tags/{wrong}")), None, "{wrong}");
        }
    }

    #[test]
    fn only_what_is_wanted_is_read() {
        let read = |wanted: &Wanted| {
            let ranges = keys().wanted(wanted);
            let shown = ranges.iter().map(|range| shown(range).replace("/snowflake_id/a%2Fb/", ""));
            shown.map(|range| range.replace("request_range key ", "")).collect::<Vec<_>>()
        };
        let tags = ["x", "y"].map(|tag| Tag::new(tag).unwrap()).to_vec();
        assert_eq!(read(&Wanted::default()), ["fleet"]);
        assert_eq!(read(&Wanted::number(of(None, 7))), ["fleet", "numbers/-/7"]);
        assert_eq!(read(&Wanted::numbers_of(None)), ["fleet", "numbers/-/, range_end numbers/-0"]);
        assert_eq!(read(&Wanted::numbers_of(Some(3))), ["fleet", "numbers/3/, range_end numbers/30"]);
        assert_eq!(read(&Wanted::tags(tags)), ["fleet", "tags/x", "tags/y"]);
        assert_eq!(read(&Wanted::all()), ["fleet", "numbers/, range_end numbers0", "tags/, range_end tags0"]);
    }

    #[test]
    fn a_prefix_has_an_end() {
        let ends = |prefix: &str| end_of(prefix);
        assert_eq!((ends("/a/"), ends("x"), ends("")), (b"/a0".to_vec(), b"y".to_vec(), vec![0]));
        assert_eq!(ends("\u{10ffff}"), [0xf4, 0x8f, 0xbf, 0xc0]);
    }

    #[test]
    fn a_key_that_is_not_the_fleets_is_named() {
        let incarnation = Incarnation { store: 1, timeline: 0, counts: [0; 2] };
        let understood = |more: &[(&str, &str)]| {
            let all = [("fleet", UUID)].iter().chain(more);
            let found = all.map(|(key, text)| (format!("/snowflake_id/a%2Fb/{key}"), (*text).to_owned())).collect();
            keys().understood(&found, incarnation, 5)
        };
        let reading = understood(&[]).unwrap();
        assert_eq!((reading.fleet.uuid, reading.incarnation, reading.now_ms), (1, incarnation, 5));
        for (key, text, why) in [
            ("numbers/-/7", r#"{"nonce": "1"}"#, "missing field `holder`"),
            ("numbers/-/07", r#"{"nonce": "1"}"#, "neither a number nor a tag"),
            (
                "tags/x",
                r#"{"next_value": "many"}"#,
                "next_value: invalid value: string \"many\", expected an integer, as a number or a text",
            ),
            ("tags/%78", r#"{"id": "1"}"#, "neither a number nor a tag"),
        ] {
            let problem = Problem::Record(format!("/snowflake_id/a%2Fb/{key}"), why.to_owned());
            assert_eq!(understood(&[(key, text)]), Err(RegistryError::Etcd(problem)));
        }
        let none = keys().understood(&Records::new(), incarnation, 5).unwrap_err();
        assert_eq!(none, RegistryError::Etcd(Problem::NoFleet("/snowflake_id/a%2Fb/fleet".to_owned())));
    }
}
