//! What this server knows of its lease, for sessions and operators: a value in shared memory
//! (`shmem.rs`). The process that leases the number writes it (`keeper.rs`). No draw may depend on
//! it, because the numbers themselves are words of their own (`core/numbers.rs`).

use snowflake_core::lease::Lease;
use snowflake_core::registry::Incarnation;

use crate::error::{Fails, NoLease};
use crate::postgres::backend;

/// A text of limited length, in shared memory.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    length: usize,
    bytes: [u8; 480],
}

impl Line {
    /// Takes a text, or as much of it as there is room for.
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; 480];
        let length = text.floor_char_boundary(bytes.len());
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        Self { length, bytes }
    }

    /// Returns the text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..self.length]).into_owned()
    }
}

/// Why the registry has not given what it was asked for.
#[derive(Debug, Clone, Copy)]
pub struct FailureReason {
    /// For operators. It may say where the registry is, and how it is reached.
    pub whole: Line,
    /// For every role.
    pub open: Line,
}

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
    /// Why it fails, and when it failed last; `None` while it does not.
    pub error: Option<FailureReason>,
    pub failed_ms: Option<i64>,
    /// Since when it fails; `None` while it does not.
    pub failing_since_ms: Option<i64>,
}

impl LeaseStatus {
    /// Returns the status of a server that has just started.
    pub fn new() -> Self {
        Self {
            pid: 0,
            held: None,
            next: None,
            gap: None,
            stopped_ms: None,
            fleet: None,
            numbers: None,
            incarnation: None,
            freeze_ms: None,
            renewed_ms: None,
            offset_ms: None,
            renewals: 0,
            failures: 0,
            error: None,
            failed_ms: None,
            failing_since_ms: None,
        }
    }

    /// Returns why this server has no number, or may not draw any more with it.
    pub fn why_none(&self) -> NoLease {
        NoLease {
            over_ms: self.held.map(|held| held.until_ms),
            gap_until_ms: self.gap.map(|(_, until_ms)| until_ms),
            failing: self.failing_since_ms.zip(self.error).map(|(since_ms, reason)| Fails::new(since_ms, reason)),
            has_worker: self.pid != 0,
            can_lease: can_lease(),
        }
    }
}

impl Fails {
    /// Makes what an error says of it to this session's user, and to the server's log.
    pub fn new(since_ms: i64, reason: FailureReason) -> Self {
        let (whole, open) = (reason.whole.text(), reason.open.text());
        let shown = if backend::may_monitor() { whole.clone() } else { open };
        Self { since_ms, shown, logged: whole }
    }
}

/// Whether a process can lease a number on this server. None runs in single-user mode. pg_upgrade
/// draws no ids, and runs the old server and the new one in turn.
pub fn can_lease() -> bool {
    backend::has_postmaster() && !backend::is_upgrading()
}
