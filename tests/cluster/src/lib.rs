//! Real PostgreSQL servers for the tests of `snowflake_id`.
//!
//! A [`Server`] has its own directory, and is reachable only through a Unix socket in it. It is
//! stopped and removed when the test is over, even if the test panics or is killed. The environment
//! variable `PG_CONFIG` selects the installation. `make test` sets it to a private copy
//! (`tests/stage`), so that no test installs anything.
//!
//! - [`server`]: start, configure, connect, stop, crash
//! - [`copies`]: base backup, standby, recovery to a point, pg_rewind, dump
//! - [`disk`]: a disk that a test can fill
//! - [`clock`]: a clock that a test can set
//! - [`clock_proxy`]: a proxy before an etcd, which moves the clock that etcd tells
//! - [`drawing`]: sessions that draw, and assertions about ids
//! - [`edition`]: the SQL edition in a database
//! - [`fleet`]: a registry, and servers that lease their worker numbers from it
//! - [`ledger`]: a load whose clients note their ids, and what every copy of its database has to
//!   fulfil
//! - [`marks`]: the marks of a database, and draws that wait for them
//! - [`objects`]: the objects that make up the extension in a database, for comparison
//! - [`plans`]: plans and rows, with the time pushdown and without
//! - [`patroni`]: servers that Patroni manages
//! - [`pods`]: containers as Kubernetes starts them
//! - [`pooler`]: PgBouncer in front of a server
//! - [`clients`]: programs that use PostgreSQL clients as applications do
//! - [`monitoring`]: the figures of servers, judged by the alerts; Prometheus and its exporters
//! - [`pages`]: the examples of the README and of `docs`
//! - [`operator`]: the program with which operators use a registry
//! - [`registry`]: a fleet's registry, its members, and an oracle for their leases
//! - [`crowd`]: many members at once, which come as often as servers do
//! - [`refusal`]: an error of the server, split into its parts
//! - [`outcome`]: waiting for a condition, and reporting a test as skipped
//! - `scratch`, `installation`: the directory of the servers, and their programs

#![forbid(unsafe_code)]

pub mod clients;
pub mod clock;
pub mod clock_proxy;
pub mod copies;
pub mod crowd;
pub mod disk;
pub mod drawing;
pub mod edition;
pub mod etcd;
pub mod fleet;
mod installation;
pub mod ledger;
pub mod marks;
pub mod monitoring;
pub mod objects;
pub mod operator;
pub mod outcome;
pub mod pages;
pub mod patroni;
pub mod plans;
pub mod pods;
pub mod pooler;
pub mod refusal;
pub mod registry;
mod scratch;
pub mod server;
pub mod tag_member;

pub use clients::{Application, Language, Program};
pub use clock::faketime_library;
pub use clock_proxy::ClockProxy;
pub use copies::Backup;
pub use crowd::{Crowd, Order};
pub use drawing::{Draw, Known, Running, assert_ascending, assert_unique, instant};
pub use edition::{EDITION, Edition};
pub use etcd::{Etcd, has_etcd};
pub use fleet::{Fleet, Leases};
pub use installation::{compile_library, postgres_version, program_path, runs_extension, use_installation};
pub use ledger::{Ledger, Load, Next, Promise};
pub use marks::Marks;
pub use operator::Operated;
pub use outcome::{Ends, skip, wait_until};
pub use patroni::{Patroni, has_patroni};
pub use plans::plan;
pub use pods::{Container, Pod, Volume, can_isolate};
pub use pooler::{PgBouncer, PoolMode, has_pgbouncer};
pub use refusal::{Refusal, refused};
pub use registry::{Member, Oracle};
pub use server::{Builder, Paused, Server, Shutdown, StartFailure};
pub use tag_member::TagMember;
