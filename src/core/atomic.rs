//! The only file that names atomics, and the only one that knows loom.
//!
//! Every word that processes share is made of these types, in the core and in the extension, so
//! that the tests under loom (`tests/loom.rs`) run the code that the server runs. What a single
//! process keeps for itself is not atomic (`local.rs` in the extension).

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
