//! The settings: what they may be, and where a value stands.

pub mod configuration;
pub mod guc;
