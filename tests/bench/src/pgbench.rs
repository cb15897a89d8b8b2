//! PostgreSQL's own load generator. Its sessions send one statement after the other and wait for
//! each answer.

use std::io::Write;
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
    let threads = thread::available_parallelism().map_or(1, usize::from).min(sessions);
    let mut command = server.client("pgbench");
    command.args(["--no-vacuum", "--protocol=prepared", "--file=-"]);
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
