//! What a registry of either kind does, beside reading and swapping.

use std::collections::BTreeMap;

use snowflake_core::fleet::registry::{Fleet, Incarnation, NumberKey, Store};
use snowflake_core::fleet::tag::Tag;

use crate::config::{Config, MemberName};
use crate::error::{Diagnostic, RegistryError};

/// What a registry tells of its standbys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standbys {
    /// `synchronous_standby_names`.
    pub names: String,
    /// How many standbys are connected, and how many of them are synchronous; `None` if the role
    /// may not see that.
    pub connected: Option<(i64, i64)>,
}

impl Standbys {
    /// Returns how many synchronous standbys a change waits for: `FIRST 2 (a, b)`, `ANY 2 (a, b)`,
    /// `2 (a, b)`, and one for a mere list.
    pub fn needed(&self) -> i64 {
        if self.names.is_empty() {
            return 0;
        }
        let before = self.names.split_once('(').map_or("", |(before, _)| before);
        before.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(1)
    }
}

/// What one of the hosts that a connection string names is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSeen {
    /// Its name and port.
    pub host: String,
    /// Which server takes writes there, where two names may be those of one server; `None` if none
    /// does. An error if it does not answer.
    pub writable: Result<Option<String>, RegistryError>,
}

/// A registry, in PostgreSQL or etcd. It connects when it is used, keeps the connection, and
/// connects anew after an error.
///
/// Only operators use what stands below [`disconnect`](Self::disconnect).
///
/// # Errors
/// Each call has the registry's, if there is no answer.
pub trait Registry: Store<Error = RegistryError> {
    /// Returns where the registry is, and which server or operator this is.
    fn config(&self) -> &Config;

    /// Returns a number that two copies of a memory do not share, because they share no connection.
    /// `None` if there is none.
    fn connection_id(&self) -> Option<i32>;

    /// Closes the connection.
    fn disconnect(&self);

    /// Makes what fleets need, or brings it up to date: the schema in PostgreSQL. It belongs to the
    /// role that connects, or to `owner`. Returns what the registry says of it. If it refuses, it
    /// has changed nothing.
    fn create(&self, _owner: Option<&str>) -> Result<Vec<Diagnostic>, RegistryError> {
        Ok(Vec::new())
    }

    /// Returns the registry's incarnation, and its clock in milliseconds since 1970. It needs no
    /// fleet.
    fn now(&self) -> Result<(Incarnation, i64), RegistryError>;

    /// Makes a fleet, under the present incarnation, whatever the record says of it. Returns
    /// whether it did not exist.
    fn create_fleet(&self, fleet: &Fleet) -> Result<bool, RegistryError>;

    /// Returns the names of all fleets.
    fn fleets(&self) -> Result<Vec<String>, RegistryError>;

    /// Returns which servers hold the numbers, or have held them last. The name of a number that an
    /// operator keeps is empty.
    fn names(&self) -> Result<BTreeMap<NumberKey, MemberName>, RegistryError>;

    /// Returns the descriptions of all tags that have one.
    fn descriptions(&self) -> Result<BTreeMap<Tag, String>, RegistryError>;

    /// Describes a tag for people. An empty text removes what was there. Returns whether there is
    /// such a tag.
    fn describe_tag(&self, tag: Tag, description: &str) -> Result<bool, RegistryError>;

    /// Deletes the history of leases that ended before an instant, in milliseconds since 1970. The
    /// last lease of each number stays. Returns how many were deleted. If it fails in etcd, some
    /// may be deleted.
    fn prune(&self, before_ms: i64) -> Result<u64, RegistryError>;

    /// Returns what PostgreSQL tells of its standbys.
    fn standbys(&self) -> Result<Option<Standbys>, RegistryError> {
        Ok(None)
    }

    /// Returns what each host is that the connection string of a PostgreSQL names, if there are
    /// several. All members of an etcd are one registry.
    fn hosts(&self) -> Result<Vec<HostSeen>, RegistryError> {
        Ok(Vec::new())
    }

    /// Returns the settings of the servers' roles in PostgreSQL: each role, its database if the
    /// setting is only for that one, and the setting.
    fn role_settings(&self) -> Result<Vec<String>, RegistryError> {
        Ok(Vec::new())
    }

    /// Returns which transactions of servers make records of numbers now, or wait for one that
    /// does, the oldest first. In etcd no transaction is left open.
    fn makers(&self) -> Result<Vec<String>, RegistryError> {
        Ok(Vec::new())
    }

    /// Returns the parts of the fleet's numbers whose records a transaction makes now.
    fn held_parts(&self) -> Result<Vec<i64>, RegistryError> {
        Ok(Vec::new())
    }

    /// Returns the alarms that members of an etcd have raised, each name once, such as `NOSPACE`.
    fn alarms(&self) -> Result<Vec<String>, RegistryError> {
        Ok(Vec::new())
    }
}
