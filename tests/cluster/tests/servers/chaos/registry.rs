//! What chaos needs of a registry of either kind.

use super::random::Random;

/// The first and the last number that may be leased: little more than what is leased at once, so
/// that each number is soon leased to another server.
pub const RANGE: [&str; 2] = ["0", "7"];

/// How long leases are, in milliseconds: so short that a pause is longer than one, and a freeze is
/// over soon.
pub const LEASE_MS: &str = "5000";

/// A registry, to which things happen, too.
pub trait Registry {
    /// Returns the setting `snowflake_id.registry` of every member.
    fn address(&self) -> String;

    /// Returns the names of all that may happen to it.
    fn events(&self) -> &'static [&'static str];

    /// Lets one of the events happen, by its place among the names. Returns what has happened, or
    /// nothing if it cannot happen now.
    fn happen(&mut self, event: usize, step: usize, random: &mut Random) -> Option<String>;

    /// Ends the trouble that is due by this step.
    fn end_what_is_due(&mut self, step: usize);

    /// Ends all trouble.
    fn mend(&mut self);
}
