//! A number from Redis: the time of a round trip to `INCR`, against one to
//! `SELECT snowflake_next()`.
//!
//! Each server listens on a Unix socket, and has one client: its own load generator. Redis stores
//! nothing on disk here, as with its default configuration between two snapshots. With a flushed
//! log it would be slower.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::figure::{Bar, Figure, Measured};
use crate::pgbench;
use crate::series::{Series, in_turn};
use crate::servers;

/// About two seconds of `INCR`. PostgreSQL gets the same time.
const INCRS: u32 = 60_000;
const SECONDS: u32 = 2;

/// Measures round trips, both ways in each run. `programs` is a directory with `redis-server` and
/// `redis-benchmark`.
pub fn measure(programs: Option<&Path>, runs: usize) -> Result<Measured, Failure> {
    const FIGURE: &str = "Redis INCR / SELECT snowflake_next()";
    let Some(programs) = programs else {
        return Ok(Measured::left_out(
            FIGURE,
            "there is no redis-server here (Debian has it in redis-server and redis-tools)",
        ));
    };
    let server = servers::drawing().start_with_extension();
    if !pgbench::is_there(&server) {
        return Ok(Measured::left_out(FIGURE, pgbench::MISSING));
    }
    let redis = Redis::start(programs)?;
    let values = in_turn(runs, 2, |number| {
        let rate = match number {
            0 => redis.incrs_per_second()?,
            _ => pgbench::per_second(&server, 1, SECONDS, "SELECT snowflake_next()")?,
        };
        Ok::<_, Failure>(1e6 / rate)
    })?;
    let series = |number: usize, what: &str| Series::new(what, "us", values[number].clone());
    Ok(vec![Figure::ratio(&series(0, "Redis INCR"), &series(1, "SELECT snowflake_next()"), Bar::None)].into())
}

/// A Redis server that ends with this process.
struct Redis {
    server: Child,
    programs: PathBuf,
}

impl Redis {
    /// The socket's name, in the directory of the programs.
    const SOCKET: &str = "socket";

    /// Starts it, and returns when it accepts connections.
    fn start(programs: &Path) -> Result<Self, Failure> {
        // setpriv makes the kernel kill it when this process ends, also by SIGKILL.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(programs.join("redis-server"));
        command.args(["--port", "0", "--unixsocket", Self::SOCKET, "--save", "", "--appendonly", "no"]);
        command.current_dir(programs).stdin(Stdio::null()).stdout(Stdio::null());
        let mut redis = Self { server: command.spawn()?, programs: programs.to_owned() };
        let deadline = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(programs.join(Self::SOCKET)).is_err() {
            if redis.server.try_wait()?.is_some() || Instant::now() > deadline {
                return Err("redis-server did not start".into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(redis)
    }

    /// Increments a number for the whole run.
    fn incrs_per_second(&self) -> Result<f64, Failure> {
        let mut command = Command::new(self.programs.join("redis-benchmark"));
        command.current_dir(&self.programs).args(["-s", Self::SOCKET, "-c", "1", "--csv", "-n"]);
        let output = command.arg(INCRS.to_string()).args(["INCR", "ids"]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        // The last line: "INCR ids","54054.05",... ; older versions print no more than these two
        // columns.
        let rate = text.lines().last().and_then(|line| line.split(',').nth(1)?.trim_matches('"').parse().ok());
        rate.ok_or_else(|| {
            io::Error::other(format!("redis-benchmark failed:\n{text}{}", String::from_utf8_lossy(&output.stderr)))
                .into()
        })
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
