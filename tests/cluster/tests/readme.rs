//! The README's SQL examples, run in their order on a server with the README's configuration lines.
//!
//! A block of SQL must run without an error; if a block of text follows it, that is psql's output, exactly. Only where new
//! ids are shown (the table `orders`) numbers are masked, since they are others each time.

use std::io::Write;
use std::process::Stdio;

use cluster::Server;

const README: &str = include_str!("../../../README.md");

/// A fenced block: its language and its lines.
struct Block {
    language: &'static str,
    text: String,
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = README.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text: Vec<_> = lines.by_ref().take_while(|line| *line != "```").map(str::trim_end).collect();
            blocks.push(Block { language, text: text.join("\n") });
        }
    }
    blocks
}

/// Runs statements in one session of psql, as `psql < file`; output without command tags.
fn psql(server: &Server, sql: &str) -> String {
    let mut psql = server.client("psql");
    psql.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]);
    let mut child =
        psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("psql runs");
    child.stdin.take().expect("it is piped").write_all(sql.as_bytes()).expect("psql reads");
    let output = child.wait_with_output().expect("psql ends");
    assert!(output.status.success(), "{sql}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Masks numbers, and the width of the columns that depends on them.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    for c in text.trim_end().chars() {
        let c = if c.is_ascii_digit() { '0' } else { c };
        let fractional = c == '.' && masked.ends_with('0');
        let repeated = matches!(c, '0' | ' ' | '-') && masked.ends_with(c);
        if !fractional && !repeated {
            masked.push(c);
        }
    }
    masked
}

#[test]
fn every_sql_example_of_the_readme_runs_and_prints_what_the_readme_says() {
    let blocks = blocks();
    let settings = &blocks.iter().find(|block| block.language == "conf").expect("there are configuration lines").text;
    let server = settings.lines().fold(Server::builder(), |builder, line| {
        let line = line.split(" #").next().unwrap_or_default();
        let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("\"{line}\" is no configuration line"));
        builder.config(name.trim(), value.trim().trim_matches('\''))
    });
    let server = server.start();

    let (mut examples, mut outputs) = (0, 0);
    for (n, block) in blocks.iter().enumerate().filter(|(_, block)| block.language == "sql") {
        examples += 1;
        let printed = psql(&server, &block.text);
        if let Some(Block { language: "text", text }) = blocks.get(n + 1) {
            outputs += 1;
            if block.text.contains("orders") {
                assert_eq!(masked(&printed), masked(text), "{}\nprinted:\n{printed}", block.text);
            } else {
                assert_eq!(printed.trim_end(), text.trim_end(), "{}\nprinted:\n{printed}", block.text);
            }
        }
    }
    assert!(examples >= 6 && outputs >= 5, "found only {examples} examples, {outputs} of them with their output");
}
