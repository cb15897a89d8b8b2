//! Tests what holds for all layouts, ids and instants, and the draw against a model that works
//! without bits.
//!
//! | question | file, in `properties/` |
//! |---|---|
//! | What is a layout in plain arithmetic, and the draw in plain words? | `spec.rs`, `model.rs`: the oracles |
//! | Do layouts, ids and instants behave like the oracle? | `layouts.rs`, `ids.rs`, `instants.rs` |
//! | Is a time within the limits of what is computed from it? | `computed.rs` |
//! | Do the texts of ids? | `encodings.rs` |
//! | Does each id have one token, and does no other text stand for an id? | `public.rs` |
//! | Does it keep its token while keys are made? | `known_keys.rs` |
//! | Do servers? | `draws.rs`, `js53.rs`, `identities.rs`, `first_sequences.rs` |
//! | Does what the mark builds on? | `marks.rs` |
//! | Do blocks of dense values? | `segments.rs` |
//! | Up to which id does a reader miss nothing, and which answer does a statement get? | `settled.rs`, `answers.rs` |
//! | What if a registry has numbers that nobody expects? | `extremes.rs` |
//!
//! Every run takes new values. A failing test prints the line that repeats it
//! (`PROPTEST_RNG_SEED=...`, proptest's own variable), and writes no file. `loom.rs` tries all
//! schedules of threads.

// loom's atomics panic outside a loom model.
#![cfg(not(loom))]

use std::cell::Cell;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use snowflake_core::clock::Clock;

#[path = "properties/answers.rs"]
mod answers;
#[path = "properties/bounds.rs"]
mod bounds;
#[path = "properties/computed.rs"]
mod computed;
#[path = "properties/draws.rs"]
mod draws;
#[path = "properties/encodings.rs"]
mod encodings;
#[path = "properties/extremes.rs"]
mod extremes;
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
mod kit;
#[path = "properties/known_keys.rs"]
mod known_keys;
#[path = "properties/layouts.rs"]
mod layouts;
#[path = "properties/marks.rs"]
mod marks;
#[path = "properties/model.rs"]
mod model;
#[path = "properties/public.rs"]
mod public;
#[path = "properties/segments.rs"]
mod segments;
#[path = "properties/settled.rs"]
mod settled;
#[path = "properties/spec.rs"]
mod spec;

/// Takes new values in each run, unless the seed is given. The harness shows the line only when the
/// test fails.
fn config(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(RandomState::new().build_hasher().finish());
    }
    println!("PROPTEST_RNG_SEED={} repeats this run", config.rng_seed);
    config
}

/// Runs `test` for values of `strategy`. For tests that also look at all cases together, which
/// `proptest!` cannot do.
fn for_all<S: Strategy>(cases: u32, strategy: S, test: impl Fn(S::Value) -> Result<(), TestCaseError>)
where
    S::Value: Debug,
{
    if let Err(error) = TestRunner::new(config(cases)).run(&strategy, test) {
        panic!("{error}");
    }
}

/// A clock that shows what it is set to, and advances by `step_ms` after each reading.
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
