//! What the servers of a fleet share: its registry, the numbers that it leases, the values of tags.

pub(crate) mod bytes;
pub mod exchange;
pub mod lease;
pub mod membership;
pub mod operate;
pub mod pace;
pub mod page;
pub mod registry;
pub mod segment;
pub mod tag;
