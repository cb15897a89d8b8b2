//! Feeds anything to `Encoding::decode`; what must hold is in `check_encoding.rs`, which `tests/corpus.rs` runs without a fuzzer.
//!
//! `cargo +nightly fuzz run encoding`, or with a stable compiler `RUSTC_BOOTSTRAP=1 cargo fuzz run encoding`.

#![no_main]

#[path = "../check_encoding.rs"]
mod check_encoding;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check_encoding::encoding(bytes));
