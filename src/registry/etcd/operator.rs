//! What is asked beside reading and swapping, by operators only: fleets, and what people read and
//! the protocol does not.

use std::collections::BTreeMap;

use serde_json::Value;
use snowflake_core::fleet::registry::{Fleet, Incarnation, MOST_CHANGES, NumberKey};
use snowflake_core::fleet::tag::Tag;

use super::address::decoded;
use super::gateway::EtcdSession;
use super::http::Deadline;
use super::keys::{all, delete, first, is_as_read, one, put};
use super::{Etcd, Records, record};
use crate::config::{Config, MemberName};
use crate::connection::Waiter;
use crate::error::RegistryError;
use crate::problem::Problem;
use crate::registry::Registry;
use crate::step::RegistryStep;

impl<W: Waiter> Registry for Etcd<W> {
    fn config(&self) -> &Config {
        &self.gateway.config
    }

    fn connection_id(&self) -> Option<i32> {
        self.gateway.local_port().map(i32::from)
    }

    fn disconnect(&self) {
        self.gateway.disconnect();
    }

    fn now(&self) -> Result<(Incarnation, i64), RegistryError> {
        let ranges = [one(&self.keys.fleet())];
        self.gateway.run(RegistryStep::Read, |session, deadline| {
            let now_ms = session.transact(&[], &ranges, deadline)?.now_ms()?;
            Ok((session.incarnation(deadline)?, now_ms))
        })
    }

    fn alarms(&self) -> Result<Vec<String>, RegistryError> {
        self.gateway.run(RegistryStep::Read, EtcdSession::alarms)
    }

    fn create_fleet(&self, fleet: &Fleet) -> Result<bool, RegistryError> {
        let key = self.keys.fleet();
        self.gateway.run(RegistryStep::Change, |session, deadline| {
            // Without it, a snapshot that is restored before the first server writes the record
            // would not show.
            let incarnation = session.incarnation(deadline)?;
            let text = record::fleet_text(None, &Fleet { incarnation, ..*fleet });
            Ok(session.transact(&[is_as_read(&key, None)], &[put(&key, &text)], deadline)?.answer.succeeded)
        })
    }

    fn fleets(&self) -> Result<Vec<String>, RegistryError> {
        let prefix = &self.keys.prefix;
        let (mut fleets, mut from) = (Vec::new(), if prefix.is_empty() { "\0" } else { prefix }.to_owned());
        while let Some(key) = self.find(first(1, &from, prefix))?.into_keys().next() {
            from = key.clone() + "\0";
            if let Some((name, _)) = key[prefix.len()..].split_once('/') {
                fleets.extend(match self.find(one(&format!("{prefix}{name}/fleet")))?.is_empty() {
                    true => None,
                    false => decoded(name),
                });
                // A zero follows a slash: behind all records of this fleet.
                from = format!("{prefix}{name}0");
            }
        }
        Ok(fleets)
    }

    fn names(&self) -> Result<BTreeMap<NumberKey, MemberName>, RegistryError> {
        self.values("numbers", |key| self.keys.number_of(key), record::member)
    }

    fn descriptions(&self) -> Result<BTreeMap<Tag, String>, RegistryError> {
        let mut descriptions = self.values("tags", |key| self.keys.tag_of(key), record::description)?;
        descriptions.retain(|_, description| !description.is_empty());
        Ok(descriptions)
    }

    fn describe_tag(&self, tag: Tag, description: &str) -> Result<bool, RegistryError> {
        let key = self.keys.tag(tag);
        loop {
            let Some(old) = self.find(one(&key))?.remove(&key) else { return Ok(false) };
            let text = record::described(&old, description);
            let (compare, operations) = ([is_as_read(&key, Some(&old))], [put(&key, &text)]);
            // If not, a server has changed the tag since.
            if self.write(&compare, &operations)? {
                return Ok(true);
            }
        }
    }

    fn prune(&self, before_ms: i64) -> Result<u64, RegistryError> {
        // Read first. While a lease is its number's last, its end in the history is an old one.
        let numbers = self.find(all(&self.keys.below("numbers")))?;
        let is_over = |key: &str, text: &str| -> Option<bool> {
            let number = record::number(numbers.get(&self.keys.number_of_lease(key)?)?).ok()?;
            let lease = record::number(text).ok()?;
            Some(lease.until_ms < before_ms && lease.holder != number.holder)
        };
        let (below, mut pruned) = (self.keys.below("history"), 0);
        let mut from = below.clone();
        loop {
            let leases = self.find(first(MOST_CHANGES, &from, &below))?;
            let Some(last) = leases.keys().next_back() else { return Ok(pruned) };
            from = last.clone() + "\0";
            let over = leases.iter().filter(|(key, text)| is_over(key, text) == Some(true));
            let operations: Vec<_> = over.map(|(key, _)| delete(key)).collect();
            if !operations.is_empty() {
                self.write(&[], &operations)?;
                pruned += operations.len() as u64;
            }
        }
    }
}

impl<W: Waiter> Etcd<W> {
    fn find(&self, range: Value) -> Result<Records, RegistryError> {
        let ranges = [range];
        let find = |session: &mut EtcdSession<W>, deadline: &Deadline| {
            session.transact(&[], &ranges, deadline)?.answer.found()
        };
        self.gateway.run(RegistryStep::Read, find)
    }

    /// Returns whether all was as compared, and is written.
    fn write(&self, compare: &[Value], operations: &[Value]) -> Result<bool, RegistryError> {
        self.gateway.run(RegistryStep::Change, |session, deadline| {
            Ok(session.transact(compare, operations, deadline)?.answer.succeeded)
        })
    }

    /// Reads a value of each record of a kind.
    fn values<K: Ord, V>(
        &self,
        below: &str,
        name: impl Fn(&str) -> Option<K>,
        value: impl Fn(&str) -> Result<V, String>,
    ) -> Result<BTreeMap<K, V>, RegistryError> {
        let wrong = |key: String, why: String| RegistryError::Etcd(Problem::Record(key, why));
        let found = self.find(all(&self.keys.below(below)))?.into_iter();
        let understood =
            found.filter_map(|(key, text)| Some((name(&key)?, value(&text).map_err(|why| wrong(key, why)))));
        understood.map(|(name, value)| Ok((name, value?))).collect()
    }
}
