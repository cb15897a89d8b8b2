//! Feeds arbitrary bytes to `Prefix::parse` and `Keys::reveal`. The checks are in
//! `check_public.rs`, which `tests/corpus.rs` runs without a fuzzer.
//!
//! Run it with `cargo +nightly fuzz run public`, or, with a stable compiler,
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run public`.

#![no_main]

#[path = "../check_public.rs"]
mod check_public;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check_public::public(bytes));
