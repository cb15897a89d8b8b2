//! The background worker: it leases this server's numbers, and reserves blocks of dense values.

pub mod keeper;
pub mod worker;
