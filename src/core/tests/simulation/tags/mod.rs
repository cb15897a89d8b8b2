//! Servers that share tags. They are killed, stopped, and cut off, at every call of the registry,
//! which is away, fails over with its tail lost, is restored, and loses answers.
//!
//! The places, the supply and the registry's rules are the real ones (`segment.rs`). How sessions
//! draw at the same moment, loom tries (`loom/segment.rs`).

pub mod directed;
mod ledger;
mod link;
mod operators;
mod world;

use crate::course::Course;
use crate::promises::Lie;
use world::World;

/// Runs the history of a seed. Where it is silent, a restore does not show.
pub fn run(seed: u64, is_silent: bool, lie: Option<Lie>, tells: bool) -> Course {
    let world = World::any(seed, is_silent, lie, tells);
    world.run();
    world.course
}
