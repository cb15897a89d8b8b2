//! PostgreSQL's own load generator. Its sessions send one statement after the other and wait for
//! each answer.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;

use cluster::Server;

use crate::Failure;

/// Why a figure that needs pgbench is left out.
pub const MISSING: &str = "this installation of PostgreSQL has no pgbench";

/// Whether pgbench is installed.
pub fn is_there(server: &Server) -> bool {
    server.client("pgbench").arg("--version").output().is_ok()
}

/// Lets sessions run a statement for some seconds, and returns how many statements they ran per
/// second in all.
///
/// The statement is prepared, so the server parses and plans once, as with most drivers. That gives
/// the functions in the statement the greatest weight.
///
/// # Errors
///
/// pgbench fails.
pub fn per_second(server: &Server, sessions: usize, seconds: u32, sql: &str) -> Result<f64, Failure> {
    run(server, sessions, seconds, sql, &[])
}

/// Does the same, and also returns how long each statement took, in microseconds.
///
/// # Errors
///
/// pgbench fails.
pub fn rate_and_micros(server: &Server, sessions: usize, seconds: u32, sql: &str) -> Result<(f64, Vec<f64>), Failure> {
    const PREFIX: &str = "statements";
    // pgbench runs where the server's files are, which is a directory of the test's own.
    let logs = |directory: &Path| -> Result<Vec<PathBuf>, Failure> {
        let files = fs::read_dir(directory)?.map(|file| file.map(|file| file.path()));
        let is_log = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        Ok(files.collect::<Result<Vec<_>, _>>()?.into_iter().filter(is_log).collect())
    };
    let directory = server.data_dir().parent().expect("it has a parent").to_owned();
    let rate = run(server, sessions, seconds, sql, &["--log", &format!("--log-prefix={PREFIX}")])?;
    let mut micros = Vec::new();
    for log in logs(&directory)? {
        let third = |line: &str| line.split(' ').nth(2)?.parse::<f64>().ok();
        micros.extend(fs::read_to_string(&log)?.lines().filter_map(third));
        fs::remove_file(log)?;
    }
    Ok((rate, micros))
}

fn run(server: &Server, sessions: usize, seconds: u32, sql: &str, options: &[&str]) -> Result<f64, Failure> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(sessions);
    let mut command = server.client("pgbench");
    command.args(["--no-vacuum", "--protocol=prepared", "--file=-"]);
    command.args(options);
    command.args([format!("--client={sessions}"), format!("--jobs={threads}"), format!("--time={seconds}")]);
    let mut pgbench = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    pgbench.stdin.take().expect("it is piped").write_all(sql.as_bytes())?;
    let output = pgbench.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    match rate.filter(|_| output.status.success()) {
        Some(rate) => Ok(rate),
        None => Err(format!("pgbench failed:\n{text}{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}
