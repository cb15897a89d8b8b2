//! Runs the fuzzer's corpora as plain tests: every file of `fuzz/corpus` passes the fuzzer's own
//! check.

use std::path::Path;

#[path = "../fuzz/check.rs"]
mod check;
#[path = "../fuzz/check_encoding.rs"]
mod check_encoding;
#[path = "../fuzz/check_public.rs"]
mod check_public;

/// Runs a target's check over its corpus.
fn for_each_file(target: &str, check: impl Fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files = 0;
    for entry in corpus.read_dir().unwrap() {
        let path = entry.unwrap().path();
        // The harness shows this line only if the check fails.
        println!("{}", path.display());
        check(&std::fs::read(path).unwrap());
        files += 1;
    }
    assert!(files >= 30, "{files} files in {}", corpus.display());
}

#[test]
fn every_file_of_the_layouts_corpus_passes_the_fuzzers_check() {
    for_each_file("layout", check::layout);
}

#[test]
fn every_file_of_the_encodings_corpus_passes_the_fuzzers_check() {
    for_each_file("encoding", check_encoding::encoding);
}

#[test]
fn every_file_of_the_corpus_of_public_ids_passes_the_fuzzers_check() {
    for_each_file("public", check_public::public);
}
