//! Servers that share tags. They are killed, stopped, and cut off, at every call of the registry,
//! which is away, fails over with its tail lost, is restored, and loses answers.
//!
//! The places, the supply and the registry's rules are the real ones (`segment.rs`). How sessions
//! draw at the same moment, loom tries (`loom/segment.rs`).

pub mod directed;
mod ledger;
mod messages;
pub mod operators;
mod sessions;

pub use ledger::Tags;
pub use messages::{Late, Message, TagsRead};
pub use sessions::Tagged;

const TAGS: [&str; 5] = ["orders", "invoices", "tickets", "parcels", "refunds"];
