//! What this server knows of its lease, for sessions and operators: a value in shared memory
//! (`shmem.rs`). The process that leases the number writes it (`keeper.rs`). No draw may depend on
//! it, because the numbers themselves are words of their own (`core/draw/numbers.rs`).

use snowflake_core::fleet::lease::Lease;
use snowflake_core::fleet::registry::Incarnation;

use crate::error::Error;
use crate::error::fleet::{Failing, WorkerSeen, no_lease};
use crate::postgres::backend;

/// What the process that leases the number has found out. Instants are milliseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct LeaseStatus {
    /// Its process id; 0 while it does not run.
    pub pid: i32,
    /// The lease that the server draws with, or drew with last.
    pub held: Option<Lease>,
    /// The lease that it draws with later.
    pub next: Option<Lease>,
    /// From when until when it draws nothing, as far as is known.
    pub gap: Option<(i64, i64)>,
    /// Since when a primary that has drawn has no lease.
    pub stopped_ms: Option<i64>,
    /// The uuid of the fleet, once it is known.
    pub fleet: Option<u128>,
    /// How many worker numbers the fleet has, and how many of them were free when they were last
    /// counted.
    pub numbers: Option<(i64, i64)>,
    /// The registry's incarnation.
    pub incarnation: Option<Incarnation>,
    /// Until when the registry leases no number anew, or did so last.
    pub freeze_ms: Option<i64>,
    /// When a lease was last acquired or renewed.
    pub renewed_ms: Option<i64>,
    /// How far the server's clock was ahead of the registry's, in milliseconds.
    pub offset_ms: Option<i64>,
    /// How often a lease was acquired or renewed.
    pub renewals: i64,
    /// How often that failed.
    pub failures: i64,
    /// Since when it fails, and why; `None` while it does not.
    pub failing: Option<Failing>,
    /// When it failed last; `None` while it does not.
    pub failed_ms: Option<i64>,
}

impl LeaseStatus {
    /// Returns the status of a server that has just started, with the uuid of its fleet, if that is
    /// known from before a crash.
    pub fn new(fleet: Option<u128>) -> Self {
        Self {
            pid: 0,
            held: None,
            next: None,
            gap: None,
            stopped_ms: None,
            fleet,
            numbers: None,
            incarnation: None,
            freeze_ms: None,
            renewed_ms: None,
            offset_ms: None,
            renewals: 0,
            failures: 0,
            failing: None,
            failed_ms: None,
        }
    }

    /// Returns why this server has no number, or may not draw any more with it.
    pub fn why_none(&self) -> Error {
        let worker = WorkerSeen { failing: self.failing, runs: self.pid != 0, can_run: can_lease() };
        let over_ms = self.held.map(|held| held.until_ms);
        Error::NotSupplied(Box::new(no_lease(over_ms, self.gap.map(|(_, until_ms)| until_ms), &worker)))
    }
}

/// Whether a process can lease a number on this server. None runs in single-user mode. pg_upgrade
/// draws no ids, and runs the old server and the new one in turn.
pub fn can_lease() -> bool {
    backend::has_postmaster() && !backend::is_upgrading()
}
