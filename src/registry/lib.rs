//! A fleet's registry: in PostgreSQL, what `sql/registry.sql` makes, reached through libpq; or in
//! etcd, plain keys, reached through its JSON gateway.
//!
//! The protocol is the core's (`core/fleet/lease.rs`), and so are the decisions. This crate reads,
//! and it compares and swaps. It knows nothing of the server that it runs in, so it is tested
//! without one.
//!
//! | question | file |
//! |---|---|
//! | What does a registry do, and which kind is it? | [`registry`], [`kind`] |
//! | What is sent, and what does an answer mean? | [`postgres`], [`etcd`] |
//! | What if the registry is slow, silent or gone? | [`connection`], and `etcd/http.rs` |
//! | How long may an answer be, and which numbers may it have? | `MOST_RECORDS`, `etcd/answer.rs`, `reading.rs` |
//! | What can a connection string hold, and what of it may be shown? | [`conninfo`] |
//! | Where is it, and which server asks? | [`config`] |
//! | What can go wrong, and what does an operator do about it? | [`error`], and [`problem`] for etcd |
//! | Where is the `unsafe`? | [`connection`], for connections, and `libpq.rs`, for what they give out |
//! | What does a word mean here? | `docs/internals/glossary.md` |
//! | What does the registry hold, and who may change it? | [`record`], `sql/registry.sql` |
//!
//! libpq never blocks here, with three exceptions, for which it has no other way:
//!
//! - It looks up host names. A caller that must end in time bounds this with the environment
//!   variable `RES_OPTIONS` (`timeout:1 attempts:1`), or uses addresses.
//! - It reads files: the service file, `.pgpass`, certificates and keys.
//! - It asks Kerberos for tickets, where there is a cache of them (`gssencmode=disable` prevents
//!   it).
//!
//! For etcd, the first two are the only ones.

#![warn(missing_docs)]

pub mod config;
pub mod connection;
pub mod conninfo;
pub mod error;
pub mod etcd;
pub mod kind;
mod libpq;
pub mod postgres;
pub mod problem;
mod reading;
pub mod record;
pub mod registry;
pub mod report;
pub mod step;

pub use config::{Config, MemberName};
pub use connection::{Interest, Stopped, Waiter};
pub use conninfo::{check_conninfo, has_password, without_secrets};
pub use error::RegistryError;
pub use etcd::Etcd;
pub use kind::{Kind, check_address, open, shown_address};
pub use postgres::Postgres;
pub use problem::{FREE_SPACE, Problem};
pub use registry::{HostSeen, Registry, Standbys};
pub use report::{Asker, Report};
pub use step::RegistryStep;

/// The format of registries that this crate works with: of `registry.sql`, and of the records in
/// etcd.
pub const FORMAT: i64 = 2;

/// How many records one answer of a registry may have. A server holds all of them in memory at a
/// time, and a layout has 65,536 numbers, if it is not made for more servers than there are.
pub(crate) const MOST_RECORDS: usize = 1 << 17;
