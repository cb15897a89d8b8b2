//! The settings: what they may be, which go together, and where a value stands.

pub mod configuration;
pub mod guc;
pub mod values;
