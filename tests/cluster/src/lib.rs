//! Real PostgreSQL servers for the tests of `snowflake_id`.
//!
//! A [`Server`] lives in a directory of its own, is reachable only through a Unix socket in it, and
//! is stopped and removed when the test is over, even if it panics or is killed. The environment
//! variable `PG_CONFIG` picks the installation; `make test` points it at a private copy
//! (`tests/stage`), so that nothing is ever installed for a test.
//!
//! - [`server`]: start, configure, connect, stop, crash
//! - [`copies`]: base backup, standby, recovery to a point, pg_rewind, dump
//! - [`disk`]: a disk that a test can fill
//! - [`clock`]: a clock that a test can set
//! - [`drawing`]: sessions that draw, and what a test asserts about ids
//! - [`ledger`]: a load whose clients keep their own books, and what every copy of its database is
//!   held to
//! - [`marks`]: the marks of a database, and what an id needs of them
//! - [`plans`]: plans and rows, with the time pushdown and without
//! - [`patroni`]: servers that Patroni manages
//! - [`pooler`]: PgBouncer in front of a server
//! - [`clients`]: programs as people write them with their client, run for real
//! - [`readme`]: the README's examples
//! - [`refusal`]: an error of the server, taken apart
//! - [`outcome`]: waiting for a condition, and reporting a test as skipped
//! - `scratch`, `installation`: where the servers live, and which programs they are

#![forbid(unsafe_code)]

pub mod clients;
pub mod clock;
pub mod copies;
pub mod disk;
pub mod drawing;
mod installation;
pub mod ledger;
pub mod marks;
pub mod outcome;
pub mod patroni;
pub mod plans;
pub mod pooler;
pub mod readme;
pub mod refusal;
mod scratch;
pub mod server;

pub use clients::{Application, Language, Program};
pub use clock::faketime_library;
pub use copies::Backup;
pub use drawing::{Draw, Known, Running, assert_ascending, assert_unique, instant};
pub use installation::{compile_library, postgres_version, use_installation};
pub use ledger::{Ledger, Load, Next, Promise};
pub use marks::Marks;
pub use outcome::{skip, wait_until};
pub use patroni::{Patroni, has_patroni};
pub use plans::plan;
pub use pooler::{PgBouncer, PoolMode, has_pgbouncer};
pub use refusal::{Refusal, refused};
pub use server::{Builder, Server, Shutdown, StartFailure};
