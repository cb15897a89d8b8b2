//! The examples of the project's pages (crate `pages`), and a way to run SQL as a reader would.

use std::io::Write;
use std::process::Stdio;

pub use pages::{Block, Page, block, page, pages};

use crate::server::{Builder, Server};

/// Whether a page has this text. The CHANGELOG does not count, because it keeps what earlier
/// versions said.
#[must_use]
pub fn is_shown(text: &str) -> bool {
    pages().iter().any(|page| page.path != "CHANGELOG.md" && page.text.contains(text))
}

/// Returns the README's configuration lines for a single server, each as a setting and its value.
///
/// # Panics
///
/// Panics if there are none, or one is not a configuration line.
#[must_use]
#[track_caller]
pub fn configuration() -> Vec<(&'static str, &'static str)> {
    let lines = page("README.md").blocks.iter().find(|block| block.language == "conf" && block.key("needs").is_none());
    settings(&lines.expect("the README has some").text)
}

/// Reads configuration lines, each as a setting and its value.
///
/// # Panics
///
/// Panics if one is not a configuration line.
#[must_use]
#[track_caller]
pub fn settings(lines: &str) -> Vec<(&str, &str)> {
    let setting = |line| {
        let (line, _comment) = str::split_once(line, " #").unwrap_or((line, ""));
        let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("\"{line}\" is not a configuration line"));
        (name.trim(), value.trim().trim_matches('\''))
    };
    lines.lines().map(setting).collect()
}

/// Returns a server that is to start with the README's configuration lines.
#[must_use]
#[track_caller]
pub fn configured() -> Builder {
    configuration().into_iter().fold(Server::builder(), |builder, (name, value)| builder.config(name, value))
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
