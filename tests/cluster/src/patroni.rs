//! PostgreSQL servers that Patroni manages. Patroni stores in etcd which member is the leader.
//!
//! There are a real [`Etcd`], and a real Patroni for each member, which creates, starts, promotes
//! and rewinds the member's server by itself. A test connects to the servers through Unix sockets,
//! as to any [`Server`](crate::Server). Patroni, etcd and replication need the network. They use
//! ports of 127.0.0.1 and passwords, because write access to etcd gives control of all the servers.
//!
//! Each process has its own directory below the scratch directory as its working directory, by
//! which the reaper knows it.

use std::env;
use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postgres::config::TargetSessionAttrs;
use postgres::{Client, Config, NoTls};

use crate::drawing::Draw;
use crate::etcd::{Etcd, has_etcd};
use crate::installation::{Installation, cache};
use crate::outcome::wait_until;
use crate::server::{
    copy, end, is_gone, locked, password, pid_of, remove_pages, remove_shared_memory, signal, spawn, stop_and_list,
};
use crate::{clock, scratch};

/// What Patroni calls the cluster.
pub const SCOPE: &str = "snowflake";

/// How long a dead leader keeps its lock, how often Patroni checks, for how long it retries, and by
/// how many bytes a standby may lag to be promoted. Newer versions permit no lock of less than 20
/// seconds. With less time to retry, or a smaller lag, a busy machine would have unexpected
/// failovers, or none.
const LIMITS: &str = "{ttl: 20, loop_wait: 1, retry_timeout: 9, maximum_lag_on_failover: 100000000}";

/// The paths of the programs, which are installed, or unpacked by `make setup`.
#[derive(Debug)]
struct Programs {
    patroni: PathBuf,
    patronictl: PathBuf,
    /// The directory of the Python modules, if Patroni is only unpacked.
    modules: Option<PathBuf>,
}

impl Programs {
    fn get() -> Option<&'static Self> {
        static PROGRAMS: OnceLock<Option<Programs>> = OnceLock::new();
        PROGRAMS.get_or_init(|| Self::installed().or_else(Self::unpacked)).as_ref()
    }

    fn installed() -> Option<Self> {
        let directories: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
        let find = |name| directories.iter().map(|directory| directory.join(name)).find(|path| path.exists());
        Some(Self { patroni: find("patroni")?, patronictl: find("patronictl")?, modules: None })
    }

    fn unpacked() -> Option<Self> {
        let mut root = cache()?.join("programs/usr");
        if !["patroni", "patronictl"].iter().all(|name| root.join("bin").join(name).exists()) {
            return None;
        }
        // The servers' user may have no access to the home directory of the test's user.
        if Installation::get().changes_user() {
            let readable = scratch::new_directory().join("usr");
            copy(&root, &readable);
            root = readable;
        }
        let program = |name| root.join("bin").join(name);
        Some(Self {
            patroni: program("patroni"),
            patronictl: program("patronictl"),
            modules: Some(root.join("lib/python3/dist-packages")),
        })
    }

    /// Prepares a run of a program in `directory`, as the servers' user.
    fn command(&self, program: &Path, directory: &Path) -> Command {
        let mut command = Installation::get().command(program.to_str().expect("its name is UTF-8"), directory);
        command.envs(self.modules.iter().map(|modules| ("PYTHONPATH", modules)));
        command
    }
}

/// Returns whether Patroni and etcd are here. If not, a test that needs them calls
/// [`skip`](crate::skip).
#[must_use]
pub fn has_patroni() -> bool {
    Programs::get().is_some() && has_etcd()
}

/// A cluster that Patroni manages. Its members are numbered from 0.
#[derive(Debug)]
pub struct Patroni {
    /// Before etcd, because fields are dropped in this order, and a Patroni without its etcd would
    /// stop its server first.
    members: Vec<Member>,
    /// Where Patroni stores which member is the leader.
    pub etcd: Etcd,
}

impl Patroni {
    /// Starts a cluster with an etcd that asks for passwords, and a Patroni configuration that all
    /// members share (`bootstrap:` and so on). Returns when one member is the leader and the others
    /// stream from it. `faketime` gives each server a clock that can be set (see
    /// [`Patroni::set_clock_offset`]). Needs [`has_patroni`].
    ///
    /// # Panics
    ///
    /// Panics if the cluster does not come up.
    #[must_use]
    #[track_caller]
    pub fn start(etcd: Etcd, members: usize, configuration: &str, faketime: bool) -> Self {
        let password = password();
        let member = |number| Member::new(number, &etcd, &password, configuration, faketime);
        let cluster = Self { members: (0..members).map(member).collect(), etcd };
        // One after the other, because on a busy machine each takes its time, and has a minute.
        cluster.members[0].start();
        assert_eq!(cluster.leader(), 0);
        cluster.members[1..].iter().for_each(Member::start);
        (1..members).for_each(|member| cluster.wait_until_standby(member));
        cluster.wait_until_followed_by(members - 1);
        cluster
    }

    /// Returns how to connect to a member as the superuser.
    #[must_use]
    pub fn connection_to(&self, member: usize) -> Config {
        self.members[member].connection()
    }

    /// Returns how to connect to the member that takes writes at that moment.
    #[must_use]
    pub fn connection(&self) -> Config {
        let mut config = Config::new();
        for member in &self.members {
            config.host_path(&member.directory).port(member.port);
        }
        config.user("postgres").dbname("postgres").target_session_attrs(TargetSessionAttrs::ReadWrite);
        config
    }

    /// Connects to the member that takes writes, and waits until there is one.
    ///
    /// # Panics
    ///
    /// Panics if none does within five minutes.
    #[must_use]
    #[track_caller]
    pub fn connect(&self) -> Client {
        let mut client = None;
        wait_until("a leader", || {
            client = self.connection().connect(NoTls).ok();
            client.is_some()
        });
        client.expect("it was waited for")
    }

    /// Returns which member takes writes, and waits until there is one.
    ///
    /// # Panics
    ///
    /// Panics like [`Patroni::connect`].
    #[must_use]
    #[track_caller]
    pub fn leader(&self) -> usize {
        let mut data_dir = String::new();
        wait_until("a leader", || {
            // The server may stop between connecting and asking.
            let ask = |mut leader: Client| leader.query_one("SHOW data_directory", &[]);
            self.connection().connect(NoTls).and_then(ask).map(|row| data_dir = row.get(0)).is_ok()
        });
        let is_leader = |member: &Member| member.data_dir() == Path::new(&data_dir);
        self.members.iter().position(is_leader).expect("the leader is a member")
    }

    /// Waits until a member's server runs as a standby.
    ///
    /// # Panics
    ///
    /// Panics if that does not come.
    #[track_caller]
    pub fn wait_until_standby(&self, member: usize) {
        wait_until("a standby", || {
            // In a new session each time, because Patroni may restart the server in between.
            let ask = |mut session: Client| session.query_one("SELECT pg_is_in_recovery()", &[]);
            self.connection_to(member).connect(NoTls).and_then(ask).is_ok_and(|row| row.get(0))
        });
    }

    /// Waits until there is a leader from which this number of members stream.
    ///
    /// # Panics
    ///
    /// Panics if that does not come.
    #[track_caller]
    pub fn wait_until_followed_by(&self, members: usize) {
        let sql =
            "SELECT count(*) FROM pg_stat_replication WHERE application_name LIKE 'member-%' AND state = 'streaming'";
        wait_until("the members to stream", || {
            // In a new session each time, because the leader may change in between.
            let row = self.connection().connect(NoTls).and_then(|mut leader| leader.query_one(sql, &[]));
            row.is_ok_and(|row| row.get::<_, i64>(0) == members as i64)
        });
    }

    /// Waits until Patroni may promote a synchronous standby (`synchronous_mode`). Patroni notes
    /// that only some time after the server has one.
    ///
    /// # Panics
    ///
    /// Panics if that does not come.
    #[track_caller]
    pub fn wait_until_synchronous(&self) {
        wait_until("a synchronous standby", || self.patronictl(&["list"]).contains("Sync Standby"));
    }

    /// Kills a member's Patroni and all processes of its server with SIGKILL, like a power cut, and
    /// returns when they are gone.
    pub fn kill(&self, member: usize) {
        self.members[member].kill();
    }

    /// Kills a member's Patroni with SIGKILL. Its server goes on.
    pub fn kill_patroni(&self, member: usize) {
        self.members[member].kill_patroni();
    }

    /// Kills all processes of a member's server with SIGKILL, and returns when they are gone. Its
    /// Patroni keeps running.
    pub fn crash(&self, member: usize) {
        self.members[member].crash();
    }

    /// Starts the Patroni of a member that was killed. Patroni does what is necessary for its
    /// server to follow the leader.
    pub fn start_again(&self, member: usize) {
        self.members[member].start();
    }

    /// Runs `patronictl`, and returns what it prints.
    ///
    /// # Panics
    ///
    /// Panics if it fails.
    #[track_caller]
    pub fn patronictl(&self, arguments: &[&str]) -> String {
        let programs = Programs::get().expect("the cluster was started with them");
        let member = &self.members[0];
        let mut command = programs.command(&programs.patronictl, &member.directory);
        let output = command.arg("-c").arg(member.config_dir()).args(arguments).output().expect("patronictl runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "patronictl {arguments:?} failed:\n{printed}{errors}");
        printed
    }

    /// Changes the configuration that all members share, and returns when each server knows that it
    /// needs a restart.
    ///
    /// # Panics
    ///
    /// Panics if `patronictl` fails, or if no restart is needed.
    #[track_caller]
    pub fn edit_config(&self, change: &str) {
        // For a while after a server streams, Patroni takes it for one that is starting. It then
        // tells the server of changes only at a restart.
        let is_up = |line: &&str| line.contains("| running ") || line.contains("| streaming ");
        wait_until("members that run, as Patroni sees it", || {
            self.patronictl(&["list"]).lines().filter(is_up).count() == self.members.len()
        });
        let file = self.members[0].directory.join("change.yml");
        fs::write(&file, change).expect("the member's directory is writable");
        self.patronictl(&["edit-config", SCOPE, "--force", "--apply", file.to_str().expect("its name is UTF-8")]);
        for member in &self.members {
            let mut session = member.connection().connect(NoTls).expect("the member's server accepts a connection");
            let pending = "SELECT count(*) > 0 FROM pg_settings WHERE pending_restart";
            wait_until("a configuration that needs a restart", || session.value(pending) == "true");
        }
    }

    /// Sets the clock of a member's server off the real one by `seconds`. (Patroni's own clock
    /// stays real. It takes a server that *starts* with another clock for a different process.)
    ///
    /// # Panics
    ///
    /// Panics if the cluster was started without `faketime`.
    pub fn set_clock_offset(&self, member: usize, seconds: f64) {
        assert!(self.members[member].faketime, "the cluster was started without faketime");
        clock::set(&self.members[member].directory, &format!("{seconds:+.6}"));
    }

    /// Stops the clocks of all servers at an instant, in milliseconds since 1970.
    ///
    /// # Panics
    ///
    /// Panics like [`Patroni::set_clock_offset`].
    pub fn freeze_clocks(&self, instant_ms: i64) {
        for member in &self.members {
            assert!(member.faketime, "the cluster was started without faketime");
            clock::set(&member.directory, &clock::frozen_at(instant_ms));
        }
    }
}

/// One Patroni and its server.
#[derive(Debug)]
struct Member {
    directory: PathBuf,
    port: u16,
    faketime: bool,
    /// `None` while it is down.
    patroni: Mutex<Option<Child>>,
}

impl Member {
    fn new(number: usize, etcd: &Etcd, password: &str, configuration: &str, faketime: bool) -> Self {
        let directory = scratch::new_directory();
        let [port, api_port] = free_ports();
        let member = Self { directory, port, faketime, patroni: Mutex::new(None) };
        let bin_dir = if faketime { member.programs_with_a_clock() } else { Installation::get().program("") };
        let own = format!(
            "
scope: {SCOPE}
name: member-{number}
etcd3: {{host: '127.0.0.1:{etcd_port}', username: root, password: '{etcd_password}'}}
restapi:
  listen: 127.0.0.1:{api_port}
  connect_address: 127.0.0.1:{api_port}
  authentication: {{username: patroni, password: '{password}'}}
bootstrap:
  dcs: {LIMITS}
  initdb: [encoding: UTF8, no-locale]
postgresql:
  listen: 127.0.0.1:{port}
  connect_address: 127.0.0.1:{port}
  bin_dir: '{bin_dir}'
  data_dir: '{directory}/data'
  pgpass: '{directory}/pgpass'
  use_unix_socket: true
  authentication:
    superuser: {{username: postgres}}
    replication: {{username: replicator, password: '{password}'}}
    rewind: {{username: rewinder, password: '{password}'}}
  pg_hba:
  - local all all trust
  - host replication replicator 127.0.0.1/32 scram-sha-256
  - host all rewinder 127.0.0.1/32 scram-sha-256
  parameters:
    unix_socket_directories: '{directory}'
    # In files in the data directory, which go with it; POSIX shared memory would stay behind.
    dynamic_shared_memory_type: mmap
    # How long a standby waits before it asks its primary again; otherwise five seconds.
    wal_retrieve_retry_interval: 200ms
",
            etcd_port = etcd.ports()[0],
            etcd_password = etcd.root_password().expect("it asks for passwords"),
            bin_dir = bin_dir.display(),
            directory = member.directory.display(),
        );
        fs::create_dir(member.config_dir()).expect("the member's directory is writable");
        // Patroni merges the files of a directory.
        for (name, text) in [("common.yml", configuration), ("own.yml", &own)] {
            fs::write(member.config_dir().join(name), text).expect("the member's directory is writable");
        }
        member
    }

    fn config_dir(&self) -> PathBuf {
        self.directory.join("config")
    }

    fn data_dir(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn connection(&self) -> Config {
        let mut config = Config::new();
        config.host_path(&self.directory).port(self.port).user("postgres").dbname("postgres");
        config
    }

    /// Makes a directory with PostgreSQL's programs, in which the server follows the member's clock
    /// file.
    fn programs_with_a_clock(&self) -> PathBuf {
        let bin_dir = self.directory.join("bin");
        fs::create_dir(&bin_dir).expect("the member's directory is writable");
        let programs = fs::read_dir(Installation::get().program("")).expect("there are programs").flatten();
        for program in programs.filter(|program| program.file_name() != "postgres") {
            std::os::unix::fs::symlink(program.path(), bin_dir.join(program.file_name())).expect("it was just made");
        }
        let mut postgres = Command::new(Installation::get().program("postgres"));
        clock::follow(&mut postgres, &self.directory);
        let set = postgres
            .get_envs()
            .map(|(name, value)| format!("{}='{}' ", name.display(), value.expect("it sets variables only").display()));
        let program = Path::new(postgres.get_program()).display();
        let script = format!("#!/bin/sh\n{}exec '{program}' \"$@\"\n", set.collect::<String>());
        fs::write(bin_dir.join("postgres"), script).expect("it was just made");
        fs::set_permissions(bin_dir.join("postgres"), Permissions::from_mode(0o755)).expect("it was just made");
        bin_dir
    }

    fn start(&self) {
        let mut patroni = locked(&self.patroni);
        assert!(patroni.is_none(), "the member is already running");
        let programs = Programs::get().expect("a test asks for has_patroni() first");
        let mut command = programs.command(&programs.patroni, &self.directory);
        *patroni = Some(spawn(command.arg(self.config_dir()), &self.directory));
    }

    /// Returns the server's process; `None` if it is down.
    fn postmaster(&self) -> Option<Pid> {
        let file = fs::read_to_string(self.data_dir().join("postmaster.pid")).ok()?;
        let pid = Pid::from_raw(file.lines().next()?.trim().parse().ok()?);
        // The file outlives a server that was killed, and another process may have its id by now.
        let is_it = fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == self.data_dir());
        (is_it && !is_gone(pid)).then_some(pid)
    }

    fn kill(&self) {
        self.kill_patroni();
        self.crash();
    }

    fn kill_patroni(&self) {
        let mut patroni = locked(&self.patroni).take().expect("the member is running");
        kill_group(&mut patroni);
    }

    fn crash(&self) {
        let postmaster = self.postmaster().expect("the member's server is running");
        let children = stop_and_list(postmaster);
        for &process in children.iter().chain([&postmaster]) {
            signal(process, Signal::SIGKILL);
        }
        wait_until("the end of the server's processes", || {
            children.iter().chain([&postmaster]).all(|&pid| is_gone(pid))
        });
    }
}

impl Drop for Member {
    /// Never panics: it runs while a failed test unwinds.
    fn drop(&mut self) {
        if let Some(mut patroni) = locked(&self.patroni).take() {
            kill_group(&mut patroni);
        }
        if thread::panicking() {
            eprintln!("The log of {}, Patroni's and the server's:\n{}", self.directory.display(), log(&self.directory));
        }
        if let Some(postmaster) = self.postmaster() {
            signal(postmaster, Signal::SIGQUIT);
            // It is not a child of this process, so its end is not reported.
            for _ in 0..1000 {
                if is_gone(postmaster) {
                    break;
                }
                thread::sleep(std::time::Duration::from_millis(5));
            }
            signal(postmaster, Signal::SIGKILL);
        }
        remove_shared_memory(&self.data_dir());
        remove_pages(&self.directory);
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Kills a program and what it has started itself; a server that Patroni has started is not in its
/// group.
fn kill_group(leader: &mut Child) {
    let _ = kill(Pid::from_raw(-pid_of(leader).as_raw()), Signal::SIGKILL);
    end(leader, Signal::SIGKILL);
}

fn log(directory: &Path) -> String {
    fs::read(directory.join("log"))
        .map_or_else(|error| error.to_string(), |log| String::from_utf8_lossy(&log).into_owned())
}

/// Returns ports that nothing listens on. They are outside the range of outgoing connections, which
/// could take the port of a member that is down.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 10_000;
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let outgoing = range.split_ascii_whitespace().next().and_then(|first| first.parse().ok());
    let count = outgoing.filter(|first| *first > FIRST + 1000).unwrap_or(30_000) - FIRST;
    // Other test programs look for ports at the same time, so each begins at a different one.
    let start = std::process::id() as u16;
    std::array::from_fn(|_| {
        let mut candidates = (0..count).map(|_| {
            // Relaxed: only the number itself matters.
            FIRST + start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count
        });
        let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        candidates.find(is_free).expect("there are free ports")
    })
}
