//! Feeds anything to `Layout::parse`; what must hold is in `check.rs`, which `tests/corpus.rs` runs without a fuzzer.
//!
//! `cargo +nightly fuzz run layout`, or with a stable compiler `RUSTC_BOOTSTRAP=1 cargo fuzz run layout`.

#![no_main]

#[path = "../check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::layout(bytes));
