//! One PostgreSQL server: start, configure, connect, stop, crash.
//!
//! A server begins as a copy of a data directory that `initdb` makes once per process, or of
//! another server's ([`copies`](crate::copies)). So all servers of a process have the same system
//! identifier. A server stays a child of this process, and ends by a signal to its process id.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, fchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postgres::{Client, NoTls};

use crate::copies::Files;
use crate::installation::{Installation, compile_library, programs_of};
use crate::outcome::{PATIENCE, skip, wait_until};
use crate::{clock, disk, patroni, scratch};

/// Only names the socket. Such a server does not listen on the network, so servers with the same
/// port do not collide.
const PORT: u16 = 5432;

/// The file in the data directory that holds a test's settings, included at the end of
/// postgresql.conf.
const CONFIG: &str = "test.conf";

/// The setting that loads the extension's library at the start, and the library.
const PRELOAD: &str = "shared_preload_libraries";
const LIBRARY: &str = "snowflake_id";

/// How to shut down a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Accepts no new session, and waits for the end of the existing ones.
    Smart,
    /// Ends the sessions, and writes a checkpoint.
    Fast,
    /// Ends everything at once; the next start recovers from the WAL.
    Immediate,
}

/// The stopped processes of a server (see [`Server::pause`]).
#[derive(Debug)]
pub struct Paused(Vec<Pid>);

impl Drop for Paused {
    fn drop(&mut self) {
        for &process in &self.0 {
            signal(process, Signal::SIGCONT);
        }
    }
}

/// A server that did not start, and what it wrote to its log in the attempt.
pub struct StartFailure {
    /// How the server ended; `None` if it neither came up nor ended within five minutes.
    pub status: Option<ExitStatus>,
    /// The log of this start.
    pub log: String,
}

impl fmt::Debug for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the server did not start ({:?}); its log:\n{}", self.status, self.log)
    }
}

/// The description of a server before its first start.
#[derive(Clone, Debug)]
pub struct Builder {
    settings: BTreeMap<String, String>,
    /// The time of a settable clock at the start, in libfaketime's notation.
    clock: Option<String>,
    /// The data directory to copy; by default the one that `initdb` made.
    origin: Option<Arc<Files>>,
    /// An empty file that tells PostgreSQL how to start from a copy: `standby.signal`,
    /// `recovery.signal`.
    signal_file: Option<&'static str>,
    archive: bool,
    small_disk: Option<u32>,
    full_segments: bool,
    tcp: bool,
    may_run_long: bool,
    environment: Vec<(&'static str, &'static str)>,
    bin: PathBuf,
}

impl Builder {
    /// Sets a setting in the server's configuration file.
    #[must_use]
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.settings.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Leaves `shared_preload_libraries` empty; by default it is `snowflake_id`.
    #[must_use]
    pub fn without_preload(self) -> Self {
        self.config(PRELOAD, "")
    }

    /// Gives the server a clock that can be set (see [`Server::set_clock`]). Needs
    /// [`clock::faketime_library`].
    #[must_use]
    pub fn faketime(self) -> Self {
        self.faketime_from("+0")
    }

    /// Gives the server a clock that can be set, and sets it before the first start, in the
    /// notation of [`Server::set_clock`].
    #[must_use]
    pub fn faketime_from(mut self, time: &str) -> Self {
        self.clock = Some(time.to_owned());
        self
    }

    /// Lets a server with a clock that can be set run for longer than half an hour. The test must
    /// not let its clock stand still, because the server may then hang.
    #[must_use]
    pub fn may_run_long(mut self) -> Self {
        self.may_run_long = true;
        self
    }

    /// Keeps the server's WAL in an archive, from which a copy can be recovered to any point
    /// ([`Backup::recovered_to`](crate::copies::Backup::recovered_to)).
    #[must_use]
    pub fn archive(mut self) -> Self {
        self.archive = true;
        self
    }

    /// Puts the data directory onto a separate disk of this size, which a test can fill
    /// ([`Server::fill_disk`]). Needs [`disk::can_mount`].
    #[must_use]
    pub fn small_disk(mut self, megabytes: u32) -> Self {
        self.small_disk = Some(megabytes);
        self
    }

    /// Turns `fsync` on, which a registry needs, and a test that counts what is flushed.
    #[must_use]
    pub fn durable(self) -> Self {
        self.config("fsync", "on")
    }

    /// Leaves `fsync`, `jit` and the size of WAL segments as `initdb` does by default, for what is
    /// measured or shown.
    #[must_use]
    pub fn like_outside_of_tests(mut self) -> Self {
        self.full_segments = true;
        self.settings.remove("jit");
        // What initdb writes for segments of 16 MB.
        self.durable().config("min_wal_size", "80MB").config("max_wal_size", "1GB")
    }

    /// Lets the server also listen on a port of 127.0.0.1. A role needs a password there, because
    /// every user of the machine can reach it. All connections through the socket are trusted, as
    /// always.
    #[must_use]
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Sets a variable in the server's environment, which otherwise has nothing from the caller's.
    #[must_use]
    pub fn environment(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// Runs the server from the installation that this `pg_config` describes, with a new data
    /// directory of that.
    ///
    /// # Panics
    ///
    /// Panics if there is no such installation.
    #[must_use]
    pub fn installation(mut self, pg_config: impl AsRef<Path>) -> Self {
        self.bin = programs_of(pg_config.as_ref());
        let files = Files::new();
        initialize(files.directory(), &self.bin);
        self.origin = Some(Arc::new(files));
        self
    }

    /// Starts the server, and creates the extension in the database `postgres`.
    ///
    /// The statement takes as long as a start. So a preloaded server begins as a copy of one in
    /// which it has run, and which was shut down since.
    ///
    /// # Panics
    ///
    /// Panics as [`Builder::start`], or if the extension cannot be created.
    #[must_use]
    #[track_caller]
    pub fn start_with_extension(mut self) -> Server {
        let is_preloaded = self.settings.get(PRELOAD).is_some_and(|libraries| libraries == LIBRARY);
        if self.origin.is_none() && is_preloaded {
            self.origin = Some(Arc::clone(template_with_extension()));
            return self.start();
        }
        let server = self.start();
        server.create_extension();
        server
    }

    /// Describes a server that begins as a copy of a data directory.
    pub(crate) fn copy_of(
        files: &Arc<Files>,
        settings: BTreeMap<String, String>,
        signal_file: Option<&'static str>,
    ) -> Self {
        Self { settings, origin: Some(Arc::clone(files)), signal_file, ..Server::builder() }
    }

    /// Starts the server, and returns when it accepts connections.
    ///
    /// # Panics
    ///
    /// Panics with the server's log if it does not start.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> Server {
        self.try_start().expect("the server starts")
    }

    /// Starts the server like [`Builder::start`].
    ///
    /// # Errors
    ///
    /// Returns the log if the server does not start. Nothing else is left of the server then.
    pub fn try_start(self) -> Result<Server, StartFailure> {
        let directory = scratch::new_directory();
        if let Some(time) = &self.clock {
            clock::set(&directory, time);
        }
        let [port] = if self.tcp { patroni::free_ports() } else { [PORT] };
        let server = Server {
            directory,
            port,
            tcp: self.tcp,
            settings: Mutex::new(self.settings),
            faketime: AtomicBool::new(self.clock.is_some()),
            postmaster: Mutex::new(None),
            kept: AtomicBool::new(false),
            has_disk: self.small_disk.is_some(),
            may_run_long: self.may_run_long,
            environment: self.environment,
            bin: self.bin,
        };
        let (data_dir, origin) =
            (server.data_dir(), self.origin.as_ref().map_or_else(|| template().join("data"), |files| files.data_dir()));
        if let Some(megabytes) = self.small_disk {
            disk::mount(&data_dir, megabytes);
        } else {
            make_directory(&data_dir);
        }
        copy_files(&origin, &data_dir);
        if self.full_segments {
            let mut resetwal = Installation::get().command("pg_resetwal", &server.directory);
            run(resetwal.arg("--wal-segsize=16").arg(&data_dir));
        }
        if let Some(file) = self.signal_file {
            fs::write(data_dir.join(file), "").expect("the data directory is writable");
        }
        if self.tcp {
            let rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
            fs::write(data_dir.join("pg_hba.conf"), rules).expect("the data directory is writable");
        }
        if self.archive {
            let archive = server.archive_dir();
            fs::create_dir(&archive).expect("the server's directory is writable");
            Installation::get().hand_over(&archive);
            server.set_config("archive_mode", "on");
            server.set_config("archive_command", &format!("cp %p '{}/%f'", archive.display()));
        }
        server.write_config();
        server.try_start_again()?;
        Ok(server)
    }
}

/// A PostgreSQL server of a test. Every method takes `&self`, so that threads can share it.
#[derive(Debug)]
pub struct Server {
    directory: PathBuf,
    port: u16,
    /// Whether the server listens on the network, too.
    tcp: bool,
    settings: Mutex<BTreeMap<String, String>>,
    faketime: AtomicBool,
    /// `None` while the server is down.
    postmaster: Mutex<Option<Child>>,
    kept: AtomicBool,
    /// Whether the data directory is a mounted file system.
    has_disk: bool,
    may_run_long: bool,
    environment: Vec<(&'static str, &'static str)>,
    /// Where its programs are, if they are not those of `PG_CONFIG`.
    bin: PathBuf,
}

impl Server {
    /// Describes a server with `snowflake_id` preloaded, and everything else as `initdb` leaves it,
    /// except for what only costs time where no machine loses its power: `fsync` is off, and WAL
    /// segments have 1 MB. The processes of a server may end in any way, because what they have
    /// written stays with the operating system. `jit` is off, because a plan without an index costs
    /// so much in many tests that PostgreSQL would compile each of them. WAL is kept for a standby
    /// that is restarted on a busy machine.
    #[must_use]
    pub fn builder() -> Builder {
        let nothing = Builder {
            settings: BTreeMap::new(),
            clock: None,
            origin: None,
            signal_file: None,
            archive: false,
            small_disk: None,
            full_segments: false,
            tcp: false,
            may_run_long: false,
            environment: Vec::new(),
            bin: PathBuf::new(),
        };
        nothing.config(PRELOAD, LIBRARY).config("fsync", "off").config("jit", "off").config("wal_keep_size", "32MB")
    }

    // Connections

    /// Returns how to connect as the superuser. A test can change this, or take it to another
    /// thread.
    #[must_use]
    pub fn connection(&self) -> postgres::Config {
        let mut config = postgres::Config::new();
        config.host_path(&self.directory).port(self.port).user("postgres").dbname("postgres");
        config
    }

    /// Returns how other programs of PostgreSQL connect as the superuser.
    #[must_use]
    pub fn conninfo(&self) -> String {
        format!("host='{}' port={} user=postgres dbname=postgres", self.directory.display(), self.port)
    }

    /// Connects as the superuser to the database `postgres`.
    ///
    /// # Panics
    ///
    /// Panics if the server refuses, like the next two functions.
    #[must_use]
    #[track_caller]
    pub fn connect(&self) -> Client {
        self.connection().connect(NoTls).expect("the server accepts a connection")
    }

    /// Connects as `user`.
    #[must_use]
    #[track_caller]
    pub fn connect_as(&self, user: &str) -> Client {
        self.connection().user(user).connect(NoTls).expect("the server accepts a connection")
    }

    /// Connects as the superuser to `database`.
    #[must_use]
    #[track_caller]
    pub fn connect_to(&self, database: &str) -> Client {
        self.connection().dbname(database).connect(NoTls).expect("the server accepts a connection")
    }

    /// Prepares a run of one of PostgreSQL's client programs against this server: `psql`,
    /// `pg_dump`, `pgbench` and so on.
    #[must_use]
    pub fn client(&self, program: &str) -> Command {
        let mut command = Installation::get().command(self.bin.join(program), &self.directory);
        command
            .env("PGHOST", &self.directory)
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", "postgres")
            .env("PGDATABASE", "postgres")
            .env("PGCLIENTENCODING", "UTF8")
            .stdin(Stdio::null());
        command
    }

    /// Compiles the library `libraries/NAME.c` for this server, and returns its file. If
    /// PostgreSQL's header files are missing, it returns `None` and reports the test as skipped.
    ///
    /// # Panics
    ///
    /// Panics if it does not compile.
    #[must_use]
    pub fn compile_library(&self, name: &str) -> Option<PathBuf> {
        let library = self.directory.join(name).with_extension("so");
        if !compile_library(name, &library) {
            skip("PostgreSQL's header files are not installed");
            return None;
        }
        Some(library)
    }

    /// Returns whether an extension's files are installed. If not, a test that needs it calls
    /// [`skip`].
    ///
    /// # Panics
    ///
    /// Panics if the server refuses a connection.
    #[must_use]
    #[track_caller]
    pub fn has_extension(&self, name: &str) -> bool {
        let available = "SELECT FROM pg_available_extensions WHERE name = $1";
        !self.connect().query(available, &[&name]).expect("the view exists").is_empty()
    }

    /// Runs statements through `psql`, which stops at the first error.
    #[must_use]
    pub fn psql(&self, sql: &str) -> Output {
        let mut psql = self.client("psql");
        psql.args(["--no-psqlrc", "--set=ON_ERROR_STOP=1", "--command", sql]);
        psql.output().expect("psql runs")
    }

    /// Runs a file through `psql`, with more options.
    #[must_use]
    pub fn psql_file(&self, file: &Path, options: &[&str]) -> Output {
        // Root's files may be out of the reach of the user that runs psql.
        let file = fs::File::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut psql = self.client("psql");
        psql.arg("--no-psqlrc").args(options).arg("--file=-").stdin(file);
        psql.output().expect("psql runs")
    }

    /// Returns the command to connect from a terminal.
    #[must_use]
    pub fn psql_command_line(&self) -> String {
        let psql = Installation::get().program("psql");
        format!("{} -h {} -p {} -U postgres postgres", psql.display(), self.directory.display(), self.port)
    }

    // Configuration

    /// Sets a setting in the configuration file, for the next [`Server::reload`] or start.
    pub fn set_config(&self, name: &str, value: &str) {
        locked(&self.settings).insert(name.to_owned(), value.to_owned());
        self.write_config();
    }

    /// Removes a setting from the configuration file, for the next [`Server::reload`] or start.
    pub fn unset_config(&self, name: &str) {
        locked(&self.settings).remove(name);
        self.write_config();
    }

    pub(crate) fn write_config(&self) {
        let quoted = |value: &str| format!("'{}'", value.replace('\'', "''"));
        let mut lines = format!(
            "listen_addresses = '{}'\nport = {}\nunix_socket_directories = {}\n\
             # In files in the data directory, which go with it after a crash; POSIX shared memory would stay behind.\n\
             dynamic_shared_memory_type = mmap\n",
            if self.tcp { "127.0.0.1" } else { "" },
            self.port,
            quoted(&self.directory.display().to_string())
        );
        for (name, value) in locked(&self.settings).iter() {
            lines += &format!("{name} = {}\n", quoted(value));
        }
        // Renames a new file, because the server may be reading the old one.
        let new = self.data_dir().join("test.conf.new");
        fs::write(&new, lines).expect("the data directory is writable");
        // The server's user may have to write it, too, with pg_rewind.
        Installation::get().hand_over(&new);
        fs::rename(new, self.data_dir().join(CONFIG)).expect("the data directory is writable");
    }

    /// Makes the server read its configuration again, and returns when the postmaster has read it.
    /// A new session has the new settings from its start. An open session has them a moment later.
    pub fn reload(&self) {
        let start = self.log_length();
        self.signal(Signal::SIGHUP);
        wait_until("the reload", || self.log_since(start).contains("received SIGHUP"));
        // The postmaster reads the configuration before it takes a new connection.
        drop(self.connect());
    }

    /// Returns the settings in the configuration file.
    pub(crate) fn settings(&self) -> BTreeMap<String, String> {
        locked(&self.settings).clone()
    }

    /// Returns the port on which the server listens if it was made with [`Builder::tcp`]. Otherwise
    /// the port only names the socket.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Returns the directory that holds the data directory, the socket and the log.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns where the server keeps its WAL, if it was made with [`Builder::archive`].
    pub(crate) fn archive_dir(&self) -> PathBuf {
        self.directory.join("archive")
    }

    // Clock

    /// Sets the server's clock off the real one by `seconds`, from the next reading on.
    ///
    /// # Panics
    ///
    /// Panics if the server was not made with [`Builder::faketime`], like [`Server::set_clock`].
    pub fn set_clock_offset(&self, seconds: f64) {
        self.set_clock(&format!("{seconds:+.6}"));
    }

    /// Sets the server's clock in libfaketime's notation, from the next reading on. `-2d` is an
    /// offset; with `2024-06-01 12:00:00` (UTC) the clock stands still. (`@2024-06-01 12:00:00` was
    /// the time when the server *started*.)
    pub fn set_clock(&self, time: &str) {
        assert!(self.faketime.load(Ordering::Relaxed), "the server was made without faketime()");
        clock::set(&self.directory, time);
    }

    /// Gives the server a clock that can be set, or the real one, from its next start on.
    pub fn use_faketime(&self, on: bool) {
        // Relaxed: a plain flag, read by the thread that starts the server.
        self.faketime.store(on, Ordering::Relaxed);
    }

    // Life and death

    /// Starts the server after [`Server::stop`] or [`Server::crash`], and returns when it accepts
    /// connections.
    ///
    /// # Panics
    ///
    /// Panics with the server's log if it does not start.
    #[track_caller]
    pub fn start_again(&self) {
        self.try_start_again().expect("the server starts");
    }

    /// Starts the server like [`Server::start_again`].
    ///
    /// # Errors
    ///
    /// Returns the log of this attempt if the server does not start.
    pub fn try_start_again(&self) -> Result<(), StartFailure> {
        self.try_start_again_with(&[])
    }

    /// Starts the server with options on its command line, such as `-c`.
    ///
    /// # Errors
    ///
    /// As [`Server::try_start_again`].
    pub fn try_start_again_with(&self, options: &[&str]) -> Result<(), StartFailure> {
        let mut postmaster = locked(&self.postmaster);
        assert!(postmaster.is_none(), "the server is already running");
        let log_start = self.log_length();
        // Relaxed: see use_faketime.
        let mut command = if self.faketime.load(Ordering::Relaxed) {
            let mut command = Installation::get().command_in_a_copy(self.bin.join("postgres"), &self.directory);
            clock::follow(&mut command, &self.directory);
            command
        } else {
            Installation::get().command(self.bin.join("postgres"), &self.directory)
        };
        command.arg("-D").arg(self.data_dir()).args(options).envs(self.environment.iter().copied());
        let mut child = spawn(&mut command, &self.directory);
        let failure = |status| StartFailure { status, log: self.log_since(log_start) };
        let deadline = Instant::now() + PATIENCE;
        while !self.is_ready(child.id()) {
            if let Some(status) = child.try_wait().expect("it is our child") {
                return Err(failure(Some(status)));
            }
            if Instant::now() > deadline {
                end(&mut child, Signal::SIGQUIT);
                return Err(failure(None));
            }
            thread::sleep(Duration::from_millis(10));
        }
        if self.faketime.load(Ordering::Relaxed) && !self.may_run_long {
            let pid = pid_of(&child);
            thread::spawn(move || end_after_minutes(pid));
        }
        *postmaster = Some(child);
        Ok(())
    }

    /// Runs statements in single-user mode, in the database `postgres`, and returns what the server
    /// prints. The server must be stopped.
    ///
    /// # Panics
    ///
    /// Panics if it runs, or if the program cannot be run.
    #[must_use]
    pub fn single_user(&self, statements: &str) -> String {
        assert!(locked(&self.postmaster).is_none(), "the server is running");
        let mut command = Installation::get().command("postgres", &self.directory);
        command.args(["--single", "-D"]).arg(self.data_dir()).arg("postgres").envs(self.environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("postgres can be run");
        child.stdin.take().expect("it is piped").write_all(statements.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        [output.stdout, output.stderr].iter().map(|printed| String::from_utf8_lossy(printed)).collect()
    }

    /// Reads postmaster.pid as `pg_ctl --wait` does: the last line says whether connections are
    /// accepted.
    fn is_ready(&self, pid: u32) -> bool {
        let file = fs::read_to_string(self.data_dir().join("postmaster.pid")).unwrap_or_default();
        let mut lines = file.lines();
        lines.next() == Some(&pid.to_string()) && lines.nth(6).is_some_and(|status| status.trim() == "ready")
    }

    /// Shuts the server down, and returns when it is down.
    pub fn stop(&self, how: Shutdown) {
        let signal = match how {
            Shutdown::Smart => Signal::SIGTERM,
            Shutdown::Fast => Signal::SIGINT,
            Shutdown::Immediate => Signal::SIGQUIT,
        };
        let mut child = locked(&self.postmaster).take().expect("the server is running");
        assert!(end(&mut child, signal), "the server did not stop within five minutes; its log:\n{}", self.log());
    }

    /// Returns whether the server is running. A server that has ended by itself then counts as
    /// stopped.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let mut postmaster = locked(&self.postmaster);
        if postmaster.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None))) {
            *postmaster = None;
        }
        postmaster.is_some()
    }

    /// Stops the server in fast mode and starts it again.
    pub fn restart(&self) {
        self.stop(Shutdown::Fast);
        self.start_again();
    }

    /// Kills every process of the server with SIGKILL, like a power cut, and returns when they are
    /// gone.
    pub fn crash(&self) {
        let mut postmaster = locked(&self.postmaster).take().expect("the server is running");
        let children = stop_and_list(pid_of(&postmaster));
        for &child in &children {
            signal(child, Signal::SIGKILL);
        }
        end(&mut postmaster, Signal::SIGKILL);
        wait_until("the end of the server's processes", || children.iter().all(|&child| is_gone(child)));
    }

    /// Stops every process of the server with SIGSTOP, as a virtual machine is suspended. They go
    /// on when the result is dropped.
    #[must_use]
    pub fn pause(&self) -> Paused {
        let postmaster = self.pid();
        let mut processes = stop_and_list(postmaster);
        for &child in &processes {
            signal(child, Signal::SIGSTOP);
        }
        processes.push(postmaster);
        Paused(processes)
    }

    /// Kills the postmaster alone with SIGKILL, and returns when its children have noticed and are
    /// gone.
    pub fn kill_postmaster(&self) {
        let mut postmaster = locked(&self.postmaster).take().expect("the server is running");
        let children = stop_and_list(pid_of(&postmaster));
        end(&mut postmaster, Signal::SIGKILL);
        wait_until("the end of the server's processes", || children.iter().all(|&child| is_gone(child)));
    }

    /// Kills one process of the server with SIGKILL, such as the one that `pg_backend_pid()` names.
    /// The server then terminates every session and recovers by itself;
    /// [`Server::wait_until_ready`] waits for that.
    ///
    /// # Panics
    ///
    /// Panics if the process is not one of this server's.
    pub fn kill_backend(&self, pid: i32) {
        let pid = Pid::from_raw(pid);
        assert!(children_of(self.pid()).contains(&pid), "process {pid} is not one of this server's");
        signal(pid, Signal::SIGKILL);
        wait_until("the end of the backend", || is_gone(pid));
    }

    /// Tells one process of the server to end (SIGTERM), such as a background worker.
    ///
    /// # Panics
    ///
    /// Panics if the process is not one of this server's.
    pub fn end_worker(&self, pid: i32) {
        let pid = Pid::from_raw(pid);
        assert!(children_of(self.pid()).contains(&pid), "process {pid} is not one of this server's");
        signal(pid, Signal::SIGTERM);
    }

    /// Gives a session's process so many bytes of address space more than it has, as `ulimit -v`
    /// does.
    ///
    /// # Panics
    ///
    /// Panics if the process is gone.
    #[track_caller]
    pub fn limit_memory(&self, pid: i32, more: usize) {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the session's process runs");
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a process has a size");
        let size: usize = size.trim().trim_end_matches(" kB").parse().expect("the size is a number");
        // The servers' user may do this, and root in a container may not.
        let mut sh = Installation::get().command("/bin/sh", &self.directory);
        let script = format!("prlimit --pid {pid} --as={}:unlimited", size * 1024 + more);
        run(sh.args(["-c", &script]));
    }

    /// Waits until the server accepts connections.
    pub fn wait_until_ready(&self) {
        wait_until("the server to accept connections", || self.connection().connect(NoTls).is_ok());
    }

    /// Returns the process id of the postmaster.
    ///
    /// # Panics
    ///
    /// Panics if the server is down.
    #[must_use]
    pub fn postmaster_pid(&self) -> i32 {
        self.pid().as_raw()
    }

    #[track_caller]
    fn create_extension(&self) {
        self.connect().batch_execute("CREATE EXTENSION snowflake_id").expect("the extension can be created");
    }

    fn pid(&self) -> Pid {
        pid_of(locked(&self.postmaster).as_ref().expect("the server is running"))
    }

    fn signal(&self, sent: Signal) {
        signal(self.pid(), sent);
    }

    /// Lets the server run on after this process has ended, and returns the command that stops and
    /// removes it. Call it last, after all use of other servers.
    #[must_use]
    pub fn keep(self) -> String {
        // Leaves no work for the reaper, which might still be busy when the command is run.
        let _ = fs::remove_dir_all(template());
        if let Some(files) = TEMPLATE_WITH_EXTENSION.get() {
            let _ = fs::remove_dir_all(files.directory());
        }
        fs::write(self.directory.join(scratch::KEEP), "").expect("the server's directory is writable");
        // Relaxed: read by this thread's drop.
        self.kept.store(true, Ordering::Relaxed);
        let as_user = if Installation::get().changes_user() { "runuser -u postgres -- " } else { "" };
        format!(
            "{as_user}{} stop -D {} && rm -r {}",
            Installation::get().program("pg_ctl").display(),
            self.data_dir().display(),
            scratch::directory().display()
        )
    }

    // Log

    /// Returns what the server has written to its log, over all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        self.log_since(0)
    }

    /// Returns the present length of the log, in bytes, for [`Server::log_since`].
    #[must_use]
    pub fn log_length(&self) -> usize {
        fs::metadata(self.log_path()).map_or(0, |log| log.len() as usize)
    }

    /// Returns what the server has written to its log since the log had this length.
    #[must_use]
    pub fn log_since(&self, length: usize) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(log.get(length..).unwrap_or_default()).into_owned()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.join("log")
    }
}

impl Drop for Server {
    /// Never panics: it runs while a failed test unwinds.
    fn drop(&mut self) {
        if self.kept.load(Ordering::Relaxed) {
            return;
        }
        if thread::panicking() {
            eprintln!("The server's log:\n{}", self.log());
        }
        if let Some(mut child) = locked(&self.postmaster).take() {
            end(&mut child, Signal::SIGQUIT);
        }
        remove_shared_memory(&self.data_dir());
        if self.has_disk {
            disk::unmount(&self.data_dir());
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Makes a data directory at the first call. Every server starts with a copy of it.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let directory = scratch::new_directory();
        initialize(&directory, Path::new(""));
        shrink(&directory);
        directory
    })
}

fn initialize(directory: &Path, bin: &Path) {
    let mut initdb = Installation::get().command(bin.join("initdb"), directory);
    initdb.args(["--pgdata=data", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]);
    // Segments are files that each start of a server copies.
    initdb.args(["--wal-segsize=1", "--no-sync"]);
    run(&mut initdb);
    let path = directory.join("data/postgresql.conf");
    let config = fs::read_to_string(&path).expect("initdb has made a configuration file");
    fs::write(&path, format!("{config}\ninclude '{CONFIG}'\n")).expect("the data directory is writable");
}

static TEMPLATE_WITH_EXTENSION: OnceLock<Arc<Files>> = OnceLock::new();

/// Makes a data directory at the first call, with the extension in the database `postgres`.
fn template_with_extension() -> &'static Arc<Files> {
    TEMPLATE_WITH_EXTENSION.get_or_init(|| {
        let server = Server::builder().start();
        server.create_extension();
        server.stop(Shutdown::Fast);
        let files = Files::new();
        fs::rename(server.data_dir(), files.data_dir()).expect("both are in the scratch directory");
        shrink(files.directory());
        Arc::new(files)
    })
}

/// Removes from a new data directory what servers make again, and copies would only copy.
fn shrink(directory: &Path) {
    // Leaves one segment. The others would be copied, too, and a full disk noticed only when they
    // are used up. PostgreSQL 13 and 14 come without the program (tools/fetch).
    if Installation::get().program("pg_resetwal").exists() {
        run(Installation::get().command("pg_resetwal", directory).arg("data"));
    }
    // A fourth of the files.
    remove_maps(&directory.join("data"));
}

/// Removes the free space maps and the visibility maps.
fn remove_maps(directory: &Path) {
    for entry in fs::read_dir(directory).expect("the template is readable").flatten() {
        let path = entry.path();
        let name = entry.file_name().into_string().expect("PostgreSQL's names are ASCII");
        if path.is_dir() {
            remove_maps(&path);
        } else if name.ends_with("_fsm") || name.ends_with("_vm") {
            fs::remove_file(&path).expect("the template is writable");
        }
    }
}

fn make_directory(path: &Path) {
    DirBuilder::new().mode(0o700).create(path).expect("the server's directory is writable");
    Installation::get().hand_over(path);
}

/// Copies all files of a data directory for the servers' user. Each start of a server does that,
/// and `cp` takes twice as long.
fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("the data directory is readable").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().expect("the file is there");
        if kind.is_dir() {
            make_directory(&to);
            copy_files(&from, &to);
        } else if kind.is_symlink() {
            let target = fs::read_link(&from).expect("the link is readable");
            symlink(target, &to).expect("the data directory is writable");
        } else {
            let mut from = File::open(&from).expect("the file is readable");
            let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&to);
            let mut to = new.expect("the data directory is writable");
            io::copy(&mut from, &mut to).expect("there is room");
            if let Some((uid, gid)) = Installation::get().server_user() {
                fchown(&to, Some(uid.as_raw()), Some(gid.as_raw())).expect("root may give a file away");
            }
        }
    }
}

pub(crate) fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to));
}

pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("could not run {command:?}: {error}"));
    assert!(output.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Starts a program that writes to the log in its directory.
pub(crate) fn spawn(command: &mut Command, directory: &Path) -> Child {
    let log = OpenOptions::new().append(true).create(true).open(directory.join("log")).expect("the log is writable");
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file can be cloned")).stderr(log);
    // A separate group, because Ctrl-C goes to a whole process group and must not reach the program
    // in mid-test.
    command.process_group(0).spawn().unwrap_or_else(|error| panic!("could not run {command:?}: {error}"))
}

/// Returns a new password.
pub(crate) fn password() -> String {
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").expect("Linux generates UUIDs");
    uuid.trim().to_owned()
}

/// Sends a signal to a child and waits for its end; after five minutes it sends SIGKILL and returns
/// false.
pub(crate) fn end(child: &mut Child, sent: Signal) -> bool {
    signal(pid_of(child), sent);
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// Ends a server whose clock can be set, if the test has not ended it. While the clock is frozen, a
/// statement may wait for ever, and PostgreSQL's own timeouts do not work. A test that fails must
/// not hang.
fn end_after_minutes(postmaster: Pid) {
    let deadline = Instant::now() + 6 * PATIENCE;
    // Only a child of this process: another process may have the id by now.
    while matches!(stat(postmaster), Some((_, parent)) if parent == Pid::this()) {
        if Instant::now() > deadline {
            return signal(postmaster, Signal::SIGQUIT);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Sends a signal, and ignores that a process has ended already.
pub(crate) fn signal(pid: Pid, sent: Signal) {
    let _ = kill(pid, sent);
}

pub(crate) fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("a process id is a positive int"))
}

/// Removes the shared memory segment that a crashed server leaves behind for its next start. Its id
/// is the second number in the seventh line of postmaster.pid. After any other end this file is
/// gone.
pub(crate) fn remove_shared_memory(data_dir: &Path) {
    let file = fs::read_to_string(data_dir.join("postmaster.pid")).unwrap_or_default();
    if let Some(id) = file.lines().nth(6).and_then(|line| line.split_ascii_whitespace().nth(1)) {
        let _ = Command::new("ipcrm").args(["-m", id]).output();
    }
}

/// Stops a postmaster and returns its children. So none starts meanwhile, and none is terminated
/// because another one has died.
pub(crate) fn stop_and_list(postmaster: Pid) -> Vec<Pid> {
    signal(postmaster, Signal::SIGSTOP);
    wait_until("the postmaster to stop", || matches!(stat(postmaster), Some(('T', _))));
    children_of(postmaster)
}

pub(crate) fn children_of(parent: Pid) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").expect("there is a /proc").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw));
    pids.filter(|&pid| matches!(stat(pid), Some((_, its_parent)) if its_parent == parent)).collect()
}

/// Whether a process has ended. A zombie counts as ended.
pub(crate) fn is_gone(pid: Pid) -> bool {
    stat(pid).is_none_or(|(state, _)| state == 'Z' || state == 'X')
}

/// Returns the state and the parent of a process. Its name is in parentheses and may contain any
/// character.
fn stat(pid: Pid) -> Option<(char, Pid)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, Pid::from_raw(fields.next()?.parse().ok()?)))
}

/// A test that panicked in one thread must still be able to stop its server from another.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
