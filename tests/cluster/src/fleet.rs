//! A fleet: a registry, and servers that lease their worker numbers from it.

use postgres::Client;

use crate::drawing::Draw;
use crate::operator::Operated;
use crate::outcome::wait_until;
use crate::registry::{Oracle, number};
use crate::server::{Builder, Server};

/// A registry in PostgreSQL, without the extension, and oracles that hear of the servers' leases.
pub struct Fleet {
    /// The server that has the registry.
    pub registry: Server,
    /// Hears what servers draw with.
    oracle: Oracle,
    /// Hears what the registry has in its history.
    history: Oracle,
}

impl Fleet {
    /// Starts a server, and makes a registry in its database `postgres`.
    ///
    /// # Panics
    ///
    /// Panics if that fails.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with(|registry| registry)
    }

    /// Starts a server as [`Fleet::start`] does, with more in its description.
    ///
    /// # Panics
    ///
    /// Panics if that fails.
    #[must_use]
    #[track_caller]
    pub fn start_with(more: impl FnOnce(Builder) -> Builder) -> Self {
        let settings = Server::builder().without_preload().durable().config("dynamic_shared_memory_type", "mmap");
        let registry = more(settings).start();
        registry.make_registry();
        Self { registry, oracle: Oracle::new(), history: Oracle::new() }
    }

    /// Limits how long leases are, and how far clocks may be apart, before the first server starts.
    ///
    /// # Panics
    ///
    /// Panics if that is refused.
    #[must_use]
    #[track_caller]
    pub fn limited<'a>(self, lease: &str, skew: impl Into<Option<&'a str>>) -> Self {
        self.registry.limit_leases(lease, skew);
        self
    }

    /// Replaces the server that has the registry, and returns the one before.
    pub fn replace(&mut self, registry: Server) -> Server {
        std::mem::replace(&mut self.registry, registry)
    }

    /// Tells an oracle all leases that the registry knows.
    ///
    /// # Panics
    ///
    /// Panics if two of them overlap.
    #[track_caller]
    pub fn hear_history(&self) {
        self.history.accept_history(&mut self.registry.connect());
    }

    /// Tells the oracles which lease a server draws with, and all leases that the registry knows.
    /// Not for a server that then gives its lease back, because the first oracle never hears of
    /// that.
    ///
    /// # Panics
    ///
    /// Panics if two of them overlap.
    #[track_caller]
    pub fn hear(&self, server: &Server) {
        if self.registry.is_running() {
            self.hear_history();
        }
        let mut session = server.connect();
        let ms = |column: &str| format!("(extract(epoch FROM {column}) * 1000)::bigint");
        let sql = format!(
            "SELECT worker_id::bigint, {}, {} FROM snowflake_lease WHERE worker_id IS NOT NULL",
            ms("lease_from"),
            ms("lease_until")
        );
        let Some(row) = session.query_opt(&sql, &[]).expect("the view is there") else { return };
        let (from_ms, until_ms): (i64, i64) = (row.get(1), row.get(2));
        // One directory, whose lives go on with a lease, and one of its leases.
        let life = session.value("md5(current_setting('data_directory'))");
        let holder = u128::from_str_radix(&life, 16).expect("md5 is a number") ^ u128::from(from_ms.cast_unsigned());
        self.oracle
            .try_accept(number(row.get(0)), holder, from_ms, until_ms)
            .unwrap_or_else(|error| panic!("the lease {row:?} overlaps another one: {error}"));
    }

    /// Returns how servers connect to the registry.
    #[must_use]
    pub fn conninfo(&self) -> String {
        self.registry.registry_conninfo()
    }

    /// Describes a server of the fleet.
    #[must_use]
    pub fn member(&self) -> Builder {
        Server::builder().set("registry", &self.conninfo()).config("dynamic_shared_memory_type", "mmap").time_limit()
    }

    /// Lets a server renew its lease until it is as long as the default of 10 minutes.
    ///
    /// # Panics
    ///
    /// Panics if that takes a minute.
    #[track_caller]
    pub fn lengthen_the_lease(&self, server: &Server) {
        let mut session = server.connect();
        wait_until("a lease of full length", || {
            // It renews at once.
            server.reload();
            session.lease("lease_until - last_renewal > interval '9 min'") == "true"
        });
    }

    /// Makes the registry what it is after the restore of a backup from before all leases.
    ///
    /// # Panics
    ///
    /// Panics if the registry does not answer.
    #[track_caller]
    pub fn forget_leases(&self) {
        let sql = "SET session_replication_role = replica; DELETE FROM snowflake_registry.numbers";
        self.registry.connect().batch_execute(sql).expect("a superuser may do that");
        self.operate(&["restored"]);
    }

    /// Returns the numbers that are leased now, by the registry's clock.
    ///
    /// # Panics
    ///
    /// Panics if the registry does not answer.
    #[must_use]
    #[track_caller]
    pub fn leased(&self) -> Vec<i64> {
        let sql = "SELECT worker FROM snowflake_registry.numbers WHERE until_ms > snowflake_registry.now_ms() ORDER BY worker";
        self.registry.connect().ids(sql).expect("the registry has numbers")
    }
}

/// What a server says of its lease.
pub trait Leases {
    /// Returns a column of `snowflake_lease` as text; empty for NULL.
    fn lease(&mut self, column: &str) -> String;

    /// Waits until the server holds a lease, and returns its number.
    fn wait_for_lease(&mut self) -> i64;
}

impl Leases for Client {
    #[track_caller]
    fn lease(&mut self, column: &str) -> String {
        self.value(&format!("SELECT coalesce(({column})::text, '') FROM snowflake_lease"))
    }

    #[track_caller]
    fn wait_for_lease(&mut self) -> i64 {
        wait_until("a lease", || self.lease("state") == "held");
        self.lease("worker_id").parse().expect("a held lease has a number")
    }
}
