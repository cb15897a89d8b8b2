//! Feeds arbitrary bytes to `Encoding::decode`. The checks are in `check_encoding.rs`, which
//! `tests/corpus.rs` runs without a fuzzer.
//!
//! Run it with `cargo +nightly fuzz run encoding`, or, with a stable compiler,
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run encoding`.

#![no_main]

#[path = "../check_encoding.rs"]
mod check_encoding;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check_encoding::encoding(bytes));
