//! The fuzzer's corpus as a plain test: every file of `fuzz/corpus/layout` passes the check that the fuzzer runs.

use std::path::Path;

#[path = "../fuzz/check.rs"]
mod check;

#[test]
fn every_file_of_the_corpus_passes_the_fuzzers_check() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/layout");
    let mut files = 0;
    for entry in corpus.read_dir().unwrap() {
        let path = entry.unwrap().path();
        // Shown if the check fails.
        println!("{}", path.display());
        check::layout(&std::fs::read(path).unwrap());
        files += 1;
    }
    assert!(files >= 30, "{files} files in {}", corpus.display());
}
