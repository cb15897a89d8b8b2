//! The README's examples: its fenced blocks, and a way to run SQL as a reader would.

use std::io::Write;
use std::process::Stdio;

use crate::server::Server;

/// The README.
pub const README: &str = include_str!("../../../README.md");

/// A fenced block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The word behind the fence: `sql`, `text`, `python`...
    pub language: &'static str,
    /// The text between the fences.
    pub text: &'static str,
}

/// Returns all blocks, in their order.
#[must_use]
pub fn blocks() -> Vec<Block> {
    let mut fences = README.split("\n```");
    let _before_the_first = fences.next();
    let mut blocks = Vec::new();
    // Prose follows the end of a block.
    while let (Some(block), _prose) = (fences.next(), fences.next()) {
        let (language, text) = block.split_once('\n').expect("a fence is followed by lines");
        blocks.push(Block { language, text });
    }
    blocks
}

/// Returns the block of a language that begins with these words.
///
/// # Panics
///
/// Panics if there is no such block, or more than one.
#[must_use]
#[track_caller]
pub fn block(language: &str, first_words: &str) -> &'static str {
    let is_meant = |block: &Block| block.language == language && block.text.starts_with(first_words);
    match blocks().iter().filter(|block| is_meant(block)).collect::<Vec<_>>()[..] {
        [block] => block.text,
        [] => panic!("the README has no block in {language} that begins with \"{first_words}\""),
        _ => panic!("the README has several blocks in {language} that begin with \"{first_words}\""),
    }
}

/// Runs SQL in one session of psql, as `psql < file`, and returns what it prints, without command
/// tags and blanks at the ends of lines. `arguments` are psql's.
///
/// # Panics
///
/// Panics if a statement fails.
#[track_caller]
pub fn psql(server: &Server, arguments: &[&str], sql: &str) -> String {
    let mut psql = server.client("psql");
    psql.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]).args(arguments);
    let mut child =
        psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("psql runs");
    child.stdin.take().expect("it is piped").write_all(sql.as_bytes()).expect("psql reads");
    let output = child.wait_with_output().expect("psql ends");
    assert!(output.status.success(), "{sql}\n{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    printed.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim_end().to_owned()
}
