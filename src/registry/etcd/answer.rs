//! etcd's answers: of their JSON only what is needed, so that an answer takes less memory here than
//! it has bytes. All other names are skipped.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::MOST_RECORDS;
use crate::error::RegistryError;
use crate::report::beginning;

/// The answer of `kv/txn`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Transaction {
    /// Whether all was as compared.
    pub succeeded: bool,
    responses: Option<BoundedList<Response>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Response {
    response_range: Option<Range>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Range {
    kvs: Option<BoundedList<Pair>>,
}

/// A key and its value.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pair {
    #[serde(deserialize_with = "text")]
    key: String,
    #[serde(deserialize_with = "text")]
    value: String,
}

impl Transaction {
    /// Returns the values that were found, by their keys.
    pub fn found(self) -> Result<BTreeMap<String, String>, RegistryError> {
        let mut found = BTreeMap::new();
        for response in self.responses.unwrap_or_default().all()? {
            let pairs = response.response_range.unwrap_or_default().kvs.unwrap_or_default().all()?;
            found.extend(pairs.into_iter().map(|Pair { key, value }| (key, value)));
        }
        Ok(found)
    }
}

/// The answer of `maintenance/status`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EtcdStatus {
    pub header: Header,
    #[serde(rename = "raftTerm")]
    pub term: Number,
    #[serde(rename = "raftIndex")]
    pub committed: Number,
    #[serde(rename = "raftAppliedIndex")]
    pub applied: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    pub cluster_id: Number,
    pub revision: Number,
}

/// The answer of `maintenance/alarm`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Alarms {
    alarms: Option<BoundedList<Alarm>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Alarm {
    alarm: String,
}

impl Alarms {
    /// Returns the alarms' names, each once, although several members may have raised it.
    pub fn names(self) -> Result<Vec<String>, RegistryError> {
        let mut names: Vec<_> =
            self.alarms.unwrap_or_default().all()?.into_iter().map(|Alarm { alarm }| alarm).collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}

/// The answer of `auth/authenticate`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Login {
    pub token: Option<String>,
}

/// A number of 64 bits, which is a text in JSON, and left out if it is 0.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number(pub u64);

impl Number {
    /// Returns a number that is never negative, and has 63 bits at most: the difference of two
    /// fits.
    pub fn signed(self) -> Result<i64, RegistryError> {
        i64::try_from(self.0).map_err(|_| RegistryError::Garbage(format!("value {}", self.0)))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;
        impl Visitor<'_> for Digits {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of 64 bits")
            }

            fn visit_u64<E>(self, number: u64) -> Result<Number, E> {
                Ok(Number(number))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Number, E> {
                text.parse().map(Number).map_err(|_| E::custom(format_args!("value {}", beginning(text))))
            }

            fn visit_unit<E>(self) -> Result<Number, E> {
                Ok(Number(0))
            }
        }
        deserializer.deserialize_any(Digits)
    }
}

/// Reads a text that is in base64.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Base64;
    impl Visitor<'_> for Base64 {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text in base64")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<String, E> {
            let bytes = BASE64_STANDARD.decode(text).ok();
            bytes
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .ok_or_else(|| E::custom("a key or a value that is not UTF-8"))
        }
    }
    deserializer.deserialize_str(Base64)
}

/// A list, of which one element more is kept than may be.
#[derive(Debug)]
struct BoundedList<T>(Vec<T>);

impl<T> Default for BoundedList<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> BoundedList<T> {
    fn all(self) -> Result<Vec<T>, RegistryError> {
        if self.0.len() > MOST_RECORDS {
            return Err(RegistryError::TooLong { most: MOST_RECORDS, of_what: "records" });
        }
        Ok(self.0)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for BoundedList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
            type Value = BoundedList<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<BoundedList<T>, A::Error> {
                let mut kept = Vec::new();
                while kept.len() <= MOST_RECORDS {
                    let Some(element) = list.next_element()? else { return Ok(BoundedList(kept)) };
                    kept.push(element);
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(BoundedList(kept))
            }
        }
        deserializer.deserialize_seq(List(PhantomData))
    }
}

/// Says what is wrong with an answer, without all of its text.
pub(super) fn wrong(error: &serde_json::Error) -> String {
    let what = error.to_string();
    let what = beginning(&what);
    if error.is_data() { what.to_owned() } else { format!("not JSON: {what}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(json: &str) -> Result<EtcdStatus, String> {
        serde_json::from_str(json).map_err(|error| wrong(&error))
    }

    #[test]
    fn numbers_are_texts_or_numbers_or_left_out() {
        let read = status(
            r#"{"header": {"cluster_id": "18446744073709551615", "x": [1, {"y": null}]}, "raftTerm": 7, "raftIndex": null}"#,
        )
        .unwrap();
        assert_eq!((read.header.cluster_id.0, read.header.revision.0), (u64::MAX, 0));
        assert_eq!((read.term.signed(), read.committed.signed(), read.applied.0), (Ok(7), Ok(0), 0));
        assert_eq!(read.header.cluster_id.signed(), Err(RegistryError::Garbage(format!("value {}", u64::MAX))));
        for (wrong, why) in [
            (r#"{"raftTerm": "18446744073709551616"}"#, "value 18446744073709551616"),
            (r#"{"raftTerm": "-1"}"#, "value -1"),
            (r#"{"raftTerm": -1}"#, "expected a number of 64 bits"),
            (r#"{"raftTerm": 1e300}"#, "expected a number of 64 bits"),
            (r#"{"raftTerm": {}}"#, "expected a number of 64 bits"),
            (r#"{"header": 3}"#, "expected struct Header"),
            ("{", "not JSON"),
            ("<html>", "not JSON"),
        ] {
            let error = status(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        let long = status(&format!(r#"{{"raftTerm": "{}"}}"#, "9".repeat(100_000))).unwrap_err();
        assert!(long.len() < 1100, "{long}");
    }

    #[test]
    fn pairs_are_read_and_only_so_many() {
        let read = |json: &str| serde_json::from_str::<Transaction>(json).map_err(|error| wrong(&error));
        let range = |pairs: &str| format!(r#"{{"response_range": {{"kvs": [{pairs}]}}}}"#);
        let found = |ranges: &str| read(&format!(r#"{{"responses": [{ranges}]}}"#)).unwrap().found();
        let (one, bare) = (r#"{"key": "eA==", "value": "eQ==", "lease": "0"}"#, r#"{"key": "eg=="}"#);
        let pairs = found(&format!("{}, {{}}, {}", range(one), range(bare))).unwrap();
        assert_eq!(pairs.into_iter().collect::<Vec<_>>(), [("x", "y"), ("z", "")].map(|(k, v)| (k.into(), v.into())));
        for empty in ["{}", r#"{"responses": null}"#] {
            assert!(read(empty).unwrap().found().unwrap().is_empty());
        }
        for wrong in [r#""key": "e""#, r#""key": "/w==""#, r#""key": 5"#] {
            assert!(read(&format!(r#"{{"responses": [{}]}}"#, range(&format!("{{{wrong}}}")))).is_err());
        }
        let many = |count: usize| {
            let pair = |number: usize| format!(r#"{{"key": "{}"}}"#, BASE64_STANDARD.encode(number.to_string()));
            found(&range(&(0..count).map(pair).collect::<Vec<_>>().join(",")))
        };
        assert_eq!(many(MOST_RECORDS).unwrap().len(), MOST_RECORDS);
        let too_long = RegistryError::TooLong { most: MOST_RECORDS, of_what: "records" };
        assert_eq!(many(MOST_RECORDS + 1).unwrap_err(), too_long);
        assert_eq!(many(MOST_RECORDS + 100).unwrap_err(), too_long);
    }
}
