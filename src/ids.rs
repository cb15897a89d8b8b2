//! Ids and dense values: how a session draws them, and what it stores, waits for and counts
//! meanwhile.

pub mod database_mark;
pub mod dense;
pub mod invalidation;
pub mod layouts;
pub mod members;
pub mod next;
pub mod prepared;
pub mod public;
pub mod sequence;
pub mod settled;
pub mod stamp;
pub mod stats;
pub mod utility;
pub mod waiting;
