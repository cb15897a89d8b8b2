//! A registry of either kind. The string says which one: one that begins with `etcd:` names an
//! etcd, and any other one is libpq's.

use std::collections::BTreeMap;

use snowflake_core::registry::{Fleet, Incarnation, NumberKey, Reading, Store, Swap, SwapAnswer, Wanted};
use snowflake_core::tag::Tag;

use crate::config::{Config, MemberName};
use crate::connection::Waiter;
use crate::conninfo;
use crate::error::RegistryError;
use crate::etcd::{Address, Etcd, SCHEME};
use crate::postgres::{HostSeen, Postgres, Standbys};

/// What a registry is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Tables and functions that `registry.sql` makes.
    Postgres,
    /// Keys of text.
    Etcd,
}

impl Kind {
    /// Returns what a string names that says where a registry is.
    pub fn of(text: &str) -> Self {
        if text.starts_with(SCHEME) { Self::Etcd } else { Self::Postgres }
    }
}

/// Checks a string that says where a registry is, without connecting.
///
/// # Errors
/// What is wrong with it.
///
/// ```
/// use snowflake_registry::check_address;
///
/// assert_eq!(check_address("etcd:http://a:2379,http://b:2379"), Ok(()));
/// assert_eq!(check_address("host=a dbname=ids"), Ok(()));
/// assert!(check_address("etcd:https://a:2379").is_err());
/// ```
pub fn check_address(text: &str) -> Result<(), String> {
    match Kind::of(text) {
        Kind::Etcd => Address::parse(text).map(|_| ()),
        Kind::Postgres => conninfo::check_conninfo(text),
    }
}

/// Returns what of such a string may be shown.
pub fn shown_address(text: &str) -> String {
    match Kind::of(text) {
        Kind::Etcd => Address::parse(text).map(|address| address.shown()).unwrap_or_default(),
        Kind::Postgres => conninfo::without_secrets(text),
    }
}

/// A registry of either kind.
pub enum Either<W: Waiter> {
    /// In PostgreSQL.
    Postgres(Box<Postgres<W>>),
    /// In etcd.
    Etcd(Box<Etcd<W>>),
}

impl<W: Waiter> Either<W> {
    /// Makes a registry that is not connected yet.
    pub fn new(config: Config, waiter: W) -> Self {
        match Kind::of(&config.conninfo) {
            Kind::Etcd => Self::Etcd(Box::new(Etcd::new(config, waiter))),
            Kind::Postgres => Self::Postgres(Box::new(Postgres::new(config, waiter))),
        }
    }

    /// Returns where the registry is, and which server or operator this is.
    pub fn config(&self) -> &Config {
        match self {
            Self::Postgres(registry) => registry.config(),
            Self::Etcd(registry) => registry.config(),
        }
    }

    /// Returns a number that two copies of a memory do not share, if there is a connection.
    pub fn connection_id(&self) -> Option<i32> {
        match self {
            Self::Postgres(registry) => registry.backend_pid(),
            Self::Etcd(registry) => registry.connection_id(),
        }
    }

    /// Closes the connection.
    pub fn disconnect(&self) {
        match self {
            Self::Postgres(registry) => registry.disconnect(),
            Self::Etcd(registry) => registry.disconnect(),
        }
    }
}

impl<W: Waiter> Store for Either<W> {
    type Error = RegistryError;

    fn read(&self, wanted: &Wanted) -> Result<Reading, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.read(wanted),
            Self::Etcd(registry) => registry.read(wanted),
        }
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.swap(swap),
            Self::Etcd(registry) => registry.swap(swap),
        }
    }
}

/// What only operators do, beside reading and swapping.
impl<W: Waiter> Either<W> {
    /// [`Postgres::now`], [`Etcd::now`].
    ///
    /// # Errors
    /// The registry's, if there is no answer.
    pub fn now(&self) -> Result<(Incarnation, i64), RegistryError> {
        match self {
            Self::Postgres(registry) => registry.now(),
            Self::Etcd(registry) => registry.now(),
        }
    }

    /// [`Postgres::create_fleet`], [`Etcd::create_fleet`].
    ///
    /// # Errors
    /// The registry's, if there is no answer.
    pub fn create_fleet(&self, fleet: &Fleet) -> Result<bool, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.create_fleet(fleet),
            Self::Etcd(registry) => registry.create_fleet(fleet),
        }
    }

    /// [`Postgres::fleets`], [`Etcd::fleets`].
    ///
    /// # Errors
    /// The registry's, if there is no answer.
    pub fn fleets(&self) -> Result<Vec<String>, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.fleets(),
            Self::Etcd(registry) => registry.fleets(),
        }
    }

    /// [`Postgres::names`], [`Etcd::names`].
    ///
    /// # Errors
    /// The registry's, if there is no answer.
    pub fn names(&self) -> Result<BTreeMap<NumberKey, MemberName>, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.names(),
            Self::Etcd(registry) => registry.names(),
        }
    }

    /// [`Postgres::descriptions`], [`Etcd::descriptions`].
    ///
    /// # Errors
    /// The registry's, if there is no answer.
    pub fn descriptions(&self) -> Result<BTreeMap<Tag, String>, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.descriptions(),
            Self::Etcd(registry) => registry.descriptions(),
        }
    }

    /// [`Postgres::describe_tag`], [`Etcd::describe_tag`].
    ///
    /// # Errors
    /// The registry's, if there is no answer.
    pub fn describe_tag(&self, tag: Tag, description: &str) -> Result<bool, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.describe_tag(tag, description),
            Self::Etcd(registry) => registry.describe_tag(tag, description),
        }
    }

    /// [`Postgres::prune`], [`Etcd::prune`].
    ///
    /// # Errors
    /// The registry's, if there is no answer.
    pub fn prune(&self, before_ms: i64) -> Result<u64, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.prune(before_ms),
            Self::Etcd(registry) => registry.prune(before_ms),
        }
    }

    /// [`Postgres::standbys`]. etcd has none.
    ///
    /// # Errors
    /// The registry's, if there is no answer.
    pub fn standbys(&self) -> Result<Option<Standbys>, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.standbys().map(Some),
            Self::Etcd(_) => Ok(None),
        }
    }

    /// [`Postgres::hosts`]. All members of an etcd are one registry.
    ///
    /// # Errors
    /// The registry's, if there is no answer.
    pub fn hosts(&self) -> Result<Vec<HostSeen>, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.hosts(),
            Self::Etcd(_) => Ok(Vec::new()),
        }
    }

    /// [`Postgres::role_settings`]. etcd's users have none.
    ///
    /// # Errors
    /// The registry's, if there is no answer.
    pub fn role_settings(&self) -> Result<Vec<String>, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.role_settings(),
            Self::Etcd(_) => Ok(Vec::new()),
        }
    }

    /// [`Postgres::makers`]. In etcd no transaction is left open.
    ///
    /// # Errors
    /// The registry's, if there is no answer.
    pub fn makers(&self) -> Result<Vec<String>, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.makers(),
            Self::Etcd(_) => Ok(Vec::new()),
        }
    }

    /// [`Postgres::held_parts`]. In etcd no transaction is left open.
    ///
    /// # Errors
    /// The registry's, if there is no answer.
    pub fn held_parts(&self) -> Result<Vec<i64>, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.held_parts(),
            Self::Etcd(_) => Ok(Vec::new()),
        }
    }

    /// [`Etcd::alarms`]. PostgreSQL has none.
    ///
    /// # Errors
    /// The registry's, if there is no answer.
    pub fn alarms(&self) -> Result<Vec<String>, RegistryError> {
        match self {
            Self::Postgres(_) => Ok(Vec::new()),
            Self::Etcd(registry) => registry.alarms(),
        }
    }
}
