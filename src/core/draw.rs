//! How the sessions of a server draw ids: what one of them may draw, and what all share.

pub mod generator;
pub mod known_tick;
pub mod mark;
pub mod numbers;
pub mod published;
pub mod session;
pub mod settled;
pub mod stamp;
