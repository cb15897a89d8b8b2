//! Which kind of registry a string names: one that begins with `etcd:` an etcd, and any other one,
//! which is libpq's, a PostgreSQL.

use crate::config::Config;
use crate::connection::Waiter;
use crate::conninfo;
use crate::etcd::{Address, Etcd, SCHEME};
use crate::postgres::Postgres;
use crate::registry::Registry;

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

/// Makes a registry of the kind that the string names. It is not connected yet.
pub fn open<'a, W: Waiter + 'a>(config: Config, waiter: W) -> Box<dyn Registry + 'a> {
    match Kind::of(&config.conninfo) {
        Kind::Etcd => Box::new(Etcd::new(config, waiter)),
        Kind::Postgres => Box::new(Postgres::new(config, waiter)),
    }
}
