//! PgBouncer in front of a server: many clients share one session of the server.
//!
//! It listens on a Unix socket in its own directory below the scratch directory. This is also its
//! working directory, by which the reaper knows it.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::thread;

use nix::sys::signal::Signal;
use postgres::{Client, Config, NoTls};

use crate::installation::{Installation, cache};
use crate::outcome::wait_until;
use crate::scratch;
use crate::server::{Server, copy, end, spawn};

/// Only names the socket, because PgBouncer does not listen on the network.
const PORT: u16 = 6432;

/// The path of the program, which is installed, or unpacked by `make setup`.
fn program() -> Option<PathBuf> {
    let directories = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    let installed = directories.into_iter().chain([PathBuf::from("/usr/sbin")]).map(|path| path.join("pgbouncer"));
    let unpacked = cache().map(|cache| cache.join("programs/usr/sbin/pgbouncer"));
    installed.chain(unpacked).find(|path| path.exists())
}

/// Returns whether PgBouncer is here. If not, a test that needs it calls [`skip`](crate::skip).
#[must_use]
pub fn has_pgbouncer() -> bool {
    program().is_some()
}

/// When a client's session of the server goes to another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// When the client leaves, after a `DISCARD ALL`.
    Session,
    /// After each transaction, without a reset.
    Transaction,
}

/// A PgBouncer whose clients share one session of the server, or a few.
#[derive(Debug)]
pub struct PgBouncer {
    directory: PathBuf,
    process: Child,
}

impl PgBouncer {
    /// Starts a PgBouncer in front of a server, and returns when it accepts connections. Needs
    /// [`has_pgbouncer`].
    ///
    /// # Panics
    ///
    /// Panics if it does not start.
    #[must_use]
    #[track_caller]
    pub fn start(server: &Server, mode: PoolMode) -> Self {
        Self::start_sized(server, mode, 1, 100)
    }

    /// Starts a PgBouncer whose clients, at most `clients` of them, share `sessions` sessions of
    /// the server.
    ///
    /// # Panics
    ///
    /// Panics if it does not start.
    #[must_use]
    #[track_caller]
    pub fn start_sized(server: &Server, mode: PoolMode, sessions: usize, clients: usize) -> Self {
        let directory = scratch::new_directory();
        let mut program = program().expect("a test asks for has_pgbouncer() first");
        // PgBouncer's user may have no access to the home directory of the test's user.
        if Installation::get().changes_user() {
            let readable = directory.join("pgbouncer");
            copy(&program, &readable);
            program = readable;
        }
        let mode = match mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
        };
        let configuration = format!(
            "[databases]
* = host='{server}' port={server_port} user=postgres
[pgbouncer]
listen_addr =
listen_port = {PORT}
unix_socket_dir = {directory}
auth_type = any
pool_mode = {mode}
server_reset_query = DISCARD ALL
default_pool_size = {sessions}
max_client_conn = {clients}
listen_backlog = {clients}
",
            server = server.directory().display(),
            server_port = server.port(),
            directory = directory.display(),
        );
        let file = directory.join("pgbouncer.ini");
        fs::write(&file, configuration).expect("the directory is writable");
        let mut command = Installation::get().command(program.to_str().expect("its name is UTF-8"), &directory);
        let process = spawn(command.arg(&file), &directory);
        let pooler = Self { directory, process };
        wait_until("PgBouncer", || pooler.connection().connect(NoTls).is_ok());
        pooler
    }

    fn connection(&self) -> Config {
        let mut config = Config::new();
        config.host_path(&self.directory).port(PORT).user("postgres").dbname("postgres");
        config
    }

    /// Returns the string with which a program of PostgreSQL connects.
    #[must_use]
    pub fn conninfo(&self) -> String {
        format!("host='{}' port={PORT} user=postgres dbname=postgres", self.directory.display())
    }

    /// Connects a client. In [`PoolMode::Transaction`] it must send only simple queries, because
    /// PgBouncer supports prepared statements only from version 1.21 on.
    ///
    /// # Panics
    ///
    /// Panics if it is refused.
    #[must_use]
    #[track_caller]
    pub fn connect(&self) -> Client {
        self.connection().connect(NoTls).expect("PgBouncer accepts a connection")
    }
}

impl Drop for PgBouncer {
    /// Never panics: it runs while a failed test unwinds.
    fn drop(&mut self) {
        // "Immediate shutdown", whatever clients there are.
        end(&mut self.process, Signal::SIGTERM);
        if thread::panicking() {
            let log = fs::read(self.directory.join("log")).unwrap_or_default();
            eprintln!("PgBouncer's log:\n{}", String::from_utf8_lossy(&log));
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}
