//! A registry of either kind. The string says which one: one that begins with `etcd:` names an
//! etcd, and any other one is libpq's.

use snowflake_core::registry::{Reading, Registry, Swap, SwapAnswer, Wanted};
use snowflake_core::segment::{GiveBack, Grant, Granted, Reserve, TagRegistry};

use crate::config::Config;
use crate::connection::Waiter;
use crate::conninfo;
use crate::error::RegistryError;
use crate::etcd::{Address, Etcd, SCHEME};
use crate::postgres::Postgres;

/// What a registry is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Tables and functions that `registry.sql` makes.
    Postgres,
    /// Keys that `registry-etcd` makes.
    Etcd,
}

impl Kind {
    /// Returns what a string names that says where a registry is.
    pub fn of(text: &str) -> Self {
        if text.starts_with(SCHEME) { Self::Etcd } else { Self::Postgres }
    }

    /// Returns, as a message names it, what an operator calls there. `function` is one of
    /// `registry.sql`; the commands of `registry-etcd` have the same names.
    ///
    /// ```
    /// use snowflake_registry::Kind;
    ///
    /// assert_eq!(Kind::of("service=fleet").command("set_range"), "snowflake_registry.set_range()");
    /// assert_eq!(Kind::of("etcd:http://a:2379").command("set_range"), "\"registry-etcd set-range\"");
    /// ```
    pub fn command(self, function: &str) -> String {
        match self {
            Self::Postgres => format!("snowflake_registry.{function}()"),
            Self::Etcd => format!("\"registry-etcd {}\"", function.replace('_', "-")),
        }
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
    Postgres(Postgres<W>),
    /// In etcd.
    Etcd(Box<Etcd<W>>),
}

impl<W: Waiter> Either<W> {
    /// Makes a registry that is not connected yet.
    pub fn new(config: Config, waiter: W) -> Self {
        match Kind::of(&config.conninfo) {
            Kind::Etcd => Self::Etcd(Box::new(Etcd::new(config, waiter))),
            Kind::Postgres => Self::Postgres(Postgres::new(config, waiter)),
        }
    }

    /// Returns where the registry is, and which server this is.
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

impl<W: Waiter> Registry for Either<W> {
    type Error = RegistryError;

    fn read(&self, wanted: Wanted) -> Result<Reading, RegistryError> {
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

impl<W: Waiter> TagRegistry for Either<W> {
    fn reserve(&self, reserve: &Reserve) -> Result<Option<Granted<Grant>>, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.reserve(reserve),
            Self::Etcd(registry) => registry.reserve(reserve),
        }
    }

    fn give_back(&self, give_back: &GiveBack) -> Result<Option<Granted<Option<i64>>>, RegistryError> {
        match self {
            Self::Postgres(registry) => registry.give_back(give_back),
            Self::Etcd(registry) => registry.give_back(give_back),
        }
    }
}
