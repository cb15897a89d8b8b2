//! What holds for all values: layouts, ids, instants, and the draw against a model that knows no bits.
//!
//! | question | file, in `properties/` |
//! |---|---|
//! | What is a layout, in plain arithmetic? What is the draw, in plain words? | `spec.rs`, `model.rs`: the oracles |
//! | Do layouts, ids and instants do as the oracle does? | `layouts.rs`, `ids.rs`, `instants.rs` |
//! | Do their texts? | `encodings.rs` |
//! | Do servers? | `draws.rs`, `js53.rs`, `identities.rs`, `first_sequences.rs` |
//! | Does what the mark builds on? | `marks.rs` |
//!
//! Every run takes new values; a failing test prints the line that repeats it (`PROPTEST_RNG_SEED=...`, a variable of
//! proptest's own) and writes no file. All schedules of threads: `loom.rs`.

// Outside a model of its own, loom's atomics panic.
#![cfg(not(loom))]

use std::cell::Cell;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use snowflake_core::clock::Clock;

#[path = "properties/bounds.rs"]
mod bounds;
#[path = "properties/draws.rs"]
mod draws;
#[path = "properties/encodings.rs"]
mod encodings;
#[path = "properties/first_sequences.rs"]
mod first_sequences;
#[path = "properties/identities.rs"]
mod identities;
#[path = "properties/ids.rs"]
mod ids;
#[path = "properties/instants.rs"]
mod instants;
#[path = "properties/js53.rs"]
mod js53;
#[path = "properties/layouts.rs"]
mod layouts;
#[path = "properties/marks.rs"]
mod marks;
#[path = "properties/model.rs"]
mod model;
#[path = "properties/spec.rs"]
mod spec;

/// New values in each run, unless the seed is given; the harness shows the line only when the test fails.
fn config(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(RandomState::new().build_hasher().finish());
    }
    println!("PROPTEST_RNG_SEED={} repeats this run", config.rng_seed);
    config
}

/// Runs `test` for values of `strategy`; for tests that also look at all cases together, which `proptest!` cannot.
fn for_all<S: Strategy>(cases: u32, strategy: S, test: impl Fn(S::Value) -> Result<(), TestCaseError>)
where
    S::Value: Debug,
{
    if let Err(error) = TestRunner::new(config(cases)).run(&strategy, test) {
        panic!("{error}");
    }
}

/// A clock that says what it is told, and moves on by `step_ms` after each reading.
struct Scripted {
    now_ms: Cell<i64>,
    step_ms: i64,
}

impl Scripted {
    fn at(now_ms: i64) -> Self {
        Self { now_ms: Cell::new(now_ms), step_ms: 0 }
    }
}

impl Clock for Scripted {
    fn now_ms(&self) -> i64 {
        self.now_ms.replace(self.now_ms.get().saturating_add(self.step_ms))
    }
}
