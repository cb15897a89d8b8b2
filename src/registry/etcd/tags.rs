//! Dense values in etcd: a record for each tag, and the two calls that change it.
//!
//! What a server gets, the core decides ([`TagRecord::answer`]), from records that were read just
//! before. The transaction that writes compares the fleet's record and those of the tags with what
//! was read, and is tried again if another server was faster. Only these calls and an operator
//! change a tag's record.

use serde_json::json;
use snowflake_core::registry::Fleet;
use snowflake_core::segment::{GiveBack, Grant, Granted, Reserve, Tag, TagRecord, TagRegistry};

use super::answer::{Pair, Transaction};
use super::{Called, Etcd, address, base64, call, incarnation, is_equal, put, record};
use crate::connection::Waiter;
use crate::error::RegistryError;
use crate::problem::Problem;
use crate::reading;
use crate::step::RegistryStep;

/// How often a call is tried again because another server has changed a tag meanwhile.
const TRIES: u32 = 20;

/// How many tags one transaction has. etcd takes 128 operations, unless it is told otherwise
/// (`--max-txn-ops`).
const MOST: usize = 100;

/// Records as they stand in etcd.
struct Read {
    fleet: Fleet,
    fleet_text: String,
    tags: Vec<Option<(TagRecord, String)>>,
    now_ms: i64,
}

/// The answers for tags, and what is to be written for each.
type Decided<T> = (T, Option<TagRecord>);

impl<W: Waiter> Etcd<W> {
    fn tag_key(&self, tag: Tag) -> String {
        self.key(&format!("tags/{}", address::encoded(tag.as_str())))
    }

    fn read_tags(&self, tags: &[Tag]) -> Result<Read, RegistryError> {
        let fleet_key = self.fleet_key();
        let keys: Vec<_> = tags.iter().map(|tag| self.tag_key(*tag)).collect();
        let ranges = [&fleet_key].into_iter().chain(&keys);
        let ranges: Vec<_> = ranges.map(|key| json!({"request_range": {"key": base64(key)}})).collect();
        let body = json!({"success": ranges});
        self.run(RegistryStep::Read, |session, deadline| {
            let called: Called<Transaction> = call(session, "kv/txn", &body, deadline)?;
            let now_ms = called.now_ms()?;
            let incarnation = incarnation(session, deadline)?;
            let mut found = called.answer.pairs()?.into_iter();
            let mut next = || found.next().and_then(|pairs| pairs.into_iter().next()).map(|Pair { value, .. }| value);
            let wrong = |key: &str, why| RegistryError::Etcd(Problem::Record(key.to_owned(), why));
            let fleet_text = next().ok_or_else(|| RegistryError::Etcd(Problem::NoFleet(fleet_key.clone())))?;
            let fleet = record::fleet(&fleet_text, incarnation)
                .map_err(|why| wrong(&fleet_key, why))?
                .map_err(|format| RegistryError::OtherVersion(Some(format)))?;
            reading::check(&fleet, now_ms)?;
            let tag = |key: &String| -> Result<Option<(TagRecord, String)>, RegistryError> {
                let Some(text) = next() else { return Ok(None) };
                let record = record::tag(&text).map_err(|why| wrong(key, why))?;
                Ok(Some((record, text)))
            };
            let tags = keys.iter().map(tag).collect::<Result<_, _>>()?;
            Ok(Read { fleet, fleet_text, tags, now_ms })
        })
    }

    /// Reads tags, decides about each, and writes what was decided. Returns `None` if the fleet's
    /// record has another version, or others have changed the tags at each try.
    fn change_tags<T>(
        &self,
        step: RegistryStep,
        version: u64,
        tags: &[Tag],
        decide: impl Fn(usize, Option<&TagRecord>, &Fleet) -> Decided<T>,
    ) -> Result<Option<Granted<T>>, RegistryError> {
        for _ in 0..TRIES {
            let read = self.read_tags(tags)?;
            if read.fleet.version != version || read.fleet.closed {
                return Ok(None);
            }
            let mut compare = vec![is_equal(&self.fleet_key(), &read.fleet_text)];
            let (mut puts, mut answers) = (Vec::new(), Vec::new());
            for (number, (tag, found)) in tags.iter().zip(&read.tags).enumerate() {
                let (answer, new) = decide(number, found.as_ref().map(|(record, _)| record), &read.fleet);
                answers.push(answer);
                if let (Some(new), Some((_, text))) = (new, found) {
                    let key = self.tag_key(*tag);
                    compare.push(is_equal(&key, text));
                    puts.push(put(&key, &record::tag_text(text, &new, read.now_ms)));
                }
            }
            let transaction = json!({"compare": compare, "success": puts});
            let done = self.run(step, |session, deadline| {
                let Called::<Transaction> { answer, .. } = call(session, "kv/txn", &transaction, deadline)?;
                answer.succeeded.then(|| incarnation(session, deadline)).transpose()
            })?;
            if let Some(incarnation) = done {
                return Ok(Some(Granted { incarnation, answers }));
            }
        }
        Ok(None)
    }

    /// The same for any number of tags. What was written for some of them is lost if there is no
    /// answer for the others, as with an answer that is lost.
    fn change_all<A, T>(
        &self,
        step: RegistryStep,
        version: u64,
        asked: &[A],
        tag: impl Fn(&A) -> Tag,
        decide: impl Fn(&A, Option<&TagRecord>, &Fleet) -> Decided<T>,
    ) -> Result<Option<Granted<T>>, RegistryError> {
        let mut all: Option<Granted<T>> = None;
        // Nothing asked for is asked for once, too, because it is a question for the incarnation.
        for part in asked.chunks(MOST).chain(asked.is_empty().then_some(asked)) {
            let tags: Vec<_> = part.iter().map(&tag).collect();
            let decide =
                |number: usize, record: Option<&TagRecord>, fleet: &Fleet| decide(&part[number], record, fleet);
            let Some(granted) = self.change_tags(step, version, &tags, decide)? else { return Ok(None) };
            match &mut all {
                None => all = Some(granted),
                Some(all) => {
                    all.incarnation = granted.incarnation;
                    all.answers.extend(granted.answers);
                }
            }
        }
        Ok(all)
    }
}

impl<W: Waiter> TagRegistry for Etcd<W> {
    fn reserve(&self, reserve: &Reserve) -> Result<Option<Granted<Grant>>, RegistryError> {
        self.change_all(
            RegistryStep::Reserve,
            reserve.fleet,
            &reserve.asks,
            |ask| ask.tag,
            |ask, record, fleet| record.map_or((Grant::Unknown, None), |record| record.answer(ask, fleet)),
        )
    }

    fn give_back(&self, give_back: &GiveBack) -> Result<Option<Granted<Option<i64>>>, RegistryError> {
        self.change_all(
            RegistryStep::GiveBack,
            give_back.fleet,
            &give_back.returns,
            |given| given.tag,
            |given, record, fleet| {
                let new = record.and_then(|record| record.take_back(given, fleet));
                (new.map(|new| new.next), new)
            },
        )
    }
}
