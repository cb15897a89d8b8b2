//! Time: what a condition on an id's time means for the id.

pub mod instant;
pub mod pushdown;
pub mod undo;
pub mod zone;
