//! Feeds arbitrary bytes to `Layout::parse`. The checks are in `check.rs`, which `tests/corpus.rs`
//! runs without a fuzzer.
//!
//! Run it with `cargo +nightly fuzz run layout`, or, with a stable compiler,
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run layout`.

#![no_main]

#[path = "../check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::layout(bytes));
