//! What chaos needs of a registry of either kind.

use cluster::Operated;

use super::random::Random;

/// The first and the last number that may be leased: little more than what is leased at once, so
/// that each number is soon leased to another server.
pub const RANGE: [&str; 2] = ["0", "7"];

/// How long leases are, in milliseconds: so short that a pause is longer than one, and a freeze is
/// over soon.
pub const LEASE_MS: u32 = 5000;

/// How much WAL each server keeps, so that a standby which falls behind on a busy machine finds
/// what it has not received.
pub const KEPT_WAL: &str = "256MB";

/// Limits of a fleet, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub lease_ms: u32,
    pub skew_ms: u32,
}

/// A registry, to which things happen, too.
pub trait Registry {
    /// Returns the setting `snowflake_id.registry` of every member.
    fn address(&self) -> String;

    /// Returns the names of all that may happen to it.
    fn events(&self) -> &'static [&'static str];

    /// Lets one of the events happen, by its place among the names. `limits` are the greatest that
    /// operators have set. Returns what has happened, or nothing if it cannot happen now.
    fn happen(&mut self, event: usize, step: usize, random: &mut Random, limits: Limits) -> Option<String>;

    /// Ends the trouble that is due by this step.
    fn end_what_is_due(&mut self, step: usize);

    /// Ends all trouble.
    fn mend(&mut self);

    /// Returns the limits with which it was started.
    fn first_limits(&self) -> Limits;

    /// Returns what operators reach.
    fn operated(&self) -> &(dyn Operated + Sync);

    /// Waits until no failover can lose what was written by now, unless the registry is away.
    fn wait_until_replicated(&self);

    /// Whether the registry's clock is not behind a time that it has told, as a restore asks.
    fn has_right_clock(&self) -> bool;
}
