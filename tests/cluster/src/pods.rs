//! Pods without Kubernetes: the image's entry script and PostgreSQL as process 1 of a container.
//!
//! A [`Pod`] has its own processes, System V memory, host name, mounts and `/dev/shm`, and a
//! [`Volume`]. So one pod's `postmaster.pid` says nothing to another one, as on two machines. The
//! network is this machine's, and the programs and `/etc` are, too.
//!
//! Only root may start one ([`can_isolate`]).

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use postgres::{Client, NoTls};

use crate::disk;
use crate::installation::Installation;
use crate::outcome::wait_until;
use crate::scratch;
use crate::server::{Server, Shutdown, children_of, copy, end, locked, pid_of, run, signal, spawn, stop_and_list};

/// The data directory in a volume, unless the pod's environment has another one.
const PGDATA: &str = "pgdata";

/// The image's user, as whom servers also run elsewhere if root runs the tests.
const USER: &str = "postgres";

/// Where the entry script finds the socket's directory, as in the official image.
const SOCKET: &str = "/var/run/postgresql";

/// Makes the root file system from this machine's, with `/var` empty, mounts what `$4` and on say
/// as `FROM TO`, and becomes the command after `--`, as the user of the server, as the image says.
/// It ends with the process that made its namespaces: `unshare --kill-child` alone is lost when the
/// user changes.
const CONTAINER: &str = r#"
set -eu
name=$1 user=$2 root=$3
shift 3
mount -t tmpfs -o mode=755 root "$root"
for from in /*; do
    to=$root$from
    if [ -L "$from" ]; then
        cp -P "$from" "$to"
    elif [ -d "$from" ]; then
        mkdir "$to"
        case $from in /proc | /var) ;; *) mount --rbind "$from" "$to" ;; esac
    fi
done
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$(dirname "$root$2")"; [ -e "$root$2" ] || : >"$root$2"; fi
    mount --bind "$1" "$root$2"
    shift 2
done
shift
hostname "$name"
exec chroot "$root" setpriv --pdeathsig KILL --reuid "$user" --regid "$user" --init-groups "$@"
"#;

/// Returns whether a pod can be started here. If not, a test that needs one calls
/// [`skip`](crate::skip).
#[must_use]
pub fn can_isolate() -> bool {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--pid", "--ipc", "--uts", "--fork", "mount", "-t", "tmpfs", "none", "/mnt"]);
    let unshare = unshare.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    geteuid().is_root() && unshare.status().is_ok_and(|status| status.success())
}

/// What a pod keeps when it ends: a directory with a data directory in it.
#[derive(Debug)]
pub struct Volume(PathBuf);

impl Volume {
    /// Makes a volume whose data directory has the extension in the database `postgres`.
    ///
    /// # Panics
    ///
    /// Panics if that fails.
    #[must_use]
    pub fn new() -> Self {
        static TEMPLATE: OnceLock<Volume> = OnceLock::new();
        let template = TEMPLATE.get_or_init(|| {
            let server = Server::builder().start_with_extension();
            server.stop(Shutdown::Fast);
            let volume = Self(scratch::new_directory());
            fs::rename(server.data_dir(), volume.0.join(PGDATA)).expect("both are in one directory");
            volume
        });
        template.copied()
    }

    /// Makes a volume with nothing in it, in which the entry script makes the data directory.
    #[must_use]
    pub fn empty() -> Self {
        Self(scratch::new_directory())
    }

    /// Adds a setting to the configuration file.
    ///
    /// # Panics
    ///
    /// Panics if the file is not there.
    pub fn set_config(&self, name: &str, value: &str) {
        let file = OpenOptions::new().append(true).open(self.0.join(PGDATA).join("postgresql.conf"));
        let line = format!("{name} = '{}'\n", value.replace('\'', "''"));
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the volume has a data directory");
    }

    /// Lets a server start from this volume as a standby of a pod.
    ///
    /// # Panics
    ///
    /// Panics if there is no data directory.
    pub fn follow(&self, primary: &Pod) {
        fs::write(self.0.join(PGDATA).join("standby.signal"), "").expect("the volume has a data directory");
        self.set_config("primary_conninfo", &format!("host='{}' port=5432 user=postgres", primary.socket.display()));
    }

    fn copied(&self) -> Self {
        let volume = Self(scratch::new_directory());
        copy(&self.0.join("."), &volume.0);
        volume
    }
}

impl Default for Volume {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A pod's memory, which outlives its containers: what they have as `/dev/shm`.
#[derive(Debug)]
pub struct Memory(PathBuf);

impl Memory {
    /// Makes an empty one, for a pod that root can start.
    ///
    /// # Panics
    ///
    /// Panics if that fails.
    #[must_use]
    pub fn new() -> Self {
        let directory = scratch::new_directory();
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=1777", "shm"]).arg(&directory));
        Self(directory)
    }

    /// Returns where it is, and its place in a container.
    #[must_use]
    pub fn mount(&self) -> (PathBuf, String) {
        (self.0.clone(), "/dev/shm".to_owned())
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        disk::unmount(&self.0);
        let _ = fs::remove_dir(&self.0);
    }
}

/// What a pod is started with.
#[derive(Clone, Debug)]
pub struct Container {
    /// The host name.
    pub name: String,
    /// Variables of the environment, each with its value.
    pub environment: Vec<(String, String)>,
    /// Files and directories of this machine, each with its place in the container.
    pub mounts: Vec<(PathBuf, String)>,
    /// Where the volume is mounted.
    pub volume: String,
    /// The program that starts the server, on the image's `PATH`.
    pub entry: &'static str,
    /// What the entry script gets, before the arguments.
    pub command: Vec<String>,
    /// The container's arguments.
    pub arguments: Vec<String>,
}

impl Container {
    /// Describes a container with a host name, and with these variables besides `PGDATA`.
    #[must_use]
    pub fn new(name: &str, environment: &[(&str, &str)]) -> Self {
        let volume = "/var/lib/postgresql/data";
        let mut all = vec![("PGDATA".to_owned(), format!("{volume}/{PGDATA}"))];
        all.extend(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        // The network is not the pod's own, so the server does not listen there.
        let socket = format!("unix_socket_directories={SOCKET}");
        let command = ["postgres", "-c", "listen_addresses=", "-c", "port=5432", "-c", &socket];
        Self {
            name: name.to_owned(),
            environment: all,
            mounts: Vec::new(),
            volume: volume.to_owned(),
            entry: "snowflake-entrypoint.sh",
            command: command.map(str::to_owned).into(),
            arguments: Vec::new(),
        }
    }

    /// Leaves out the extension's entry script, so that only the volume's configuration counts.
    #[must_use]
    pub fn without_entry_script(self) -> Self {
        Self { entry: "docker-entrypoint.sh", ..self }
    }

    /// Puts a file that every user can read into the container.
    ///
    /// # Panics
    ///
    /// Panics if the file cannot be written.
    pub fn add_file(&mut self, path: &str, content: &str) {
        let file = scratch::new_directory().join("file");
        fs::write(&file, content).expect("the directory is new");
        run(Command::new("chmod").arg("644").arg(&file));
        self.mounts.push((file, path.to_owned()));
    }

    /// Starts it, and returns when it accepts connections. A volume that another pod has already is
    /// given to this one, too.
    ///
    /// # Panics
    ///
    /// Panics with the server's log if it does not start.
    #[must_use]
    #[track_caller]
    pub fn start(&self, volume: &Volume) -> Pod {
        let installation = Installation::get();
        let directory = scratch::new_directory();
        for name in ["root", "bin", "run"] {
            fs::create_dir(directory.join(name)).expect("the directory is new");
        }
        installation.hand_over(&directory.join("run"));
        let (bin, repository) = (directory.join("bin"), Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
        let scripts = ["image/snowflake-entrypoint.sh", "tests/image/docker-entrypoint.sh"];
        run(Command::new("install").args(["-m", "755"]).args(scripts.map(|script| repository.join(script))).arg(&bin));

        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-c", CONTAINER, "pod"]);
        command.arg(&self.name).arg(USER).arg(directory.join("root")).current_dir(&directory);
        for (from, to) in &self.mounts {
            command.arg(from).arg(to);
        }
        // This process's directory, in case that it is below /var or a memory.
        command.arg(scratch::directory()).arg(scratch::directory());
        command.arg(directory.join("run")).arg(SOCKET).arg(&volume.0).arg(&self.volume);
        let path = format!(
            "PATH={}:{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            bin.display(),
            installation.program("").display()
        );
        let mut environment = vec!["LC_ALL=C".to_owned(), "TZ=UTC".to_owned(), path];
        environment.extend(self.environment.iter().map(|(name, value)| format!("{name}={value}")));
        command.args(["--", "env", "--ignore-environment"]).args(&environment);
        command.arg(self.entry).args(&self.command).args(&self.arguments);
        let pod = Pod {
            socket: directory.join("run"),
            process: Mutex::new(spawn(&mut command, &directory)),
            directory,
            environment,
        };
        wait_until("a pod that accepts connections", || {
            assert!(pod.is_running(), "the pod has ended; its log:\n{}", pod.log());
            pod.connection().connect(NoTls).is_ok()
        });
        pod
    }
}

/// A container that runs PostgreSQL. When it is dropped, all its processes are killed.
#[derive(Debug)]
pub struct Pod {
    directory: PathBuf,
    socket: PathBuf,
    /// Variables with their values.
    environment: Vec<String>,
    /// Has made the namespaces, and waits for process 1.
    process: Mutex<Child>,
}

impl Pod {
    /// Returns how to connect as the superuser to the database `postgres`.
    #[must_use]
    pub fn connection(&self) -> postgres::Config {
        let mut config = postgres::Config::new();
        config.host_path(&self.socket).port(5432).user("postgres").dbname("postgres");
        config
    }

    /// Connects as the superuser to the database `postgres`.
    ///
    /// # Panics
    ///
    /// Panics if the server refuses.
    #[must_use]
    #[track_caller]
    pub fn connect(&self) -> Client {
        self.connection().connect(NoTls).expect("the pod accepts a connection")
    }

    /// Returns what the container has written to its output.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Returns whether the container is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(locked(&self.process).try_wait(), Ok(None))
    }

    /// Sends a signal to process 1 of the container, as the kubelet does.
    ///
    /// # Panics
    ///
    /// Panics if it has ended.
    pub fn signal(&self, sent: Signal) {
        kill(self.first().expect("the container is running"), sent).expect("the container is running");
    }

    /// Sends a signal like [`Pod::signal`], and returns when the container has ended.
    ///
    /// # Panics
    ///
    /// Panics if it does not end.
    #[track_caller]
    pub fn stop(&self, sent: Signal) {
        self.signal(sent);
        wait_until("the end of a pod", || !self.is_running());
    }

    /// Returns a command that runs in the container as its user, with its files and variables, as
    /// `docker exec` does.
    ///
    /// # Panics
    ///
    /// Panics if the container has ended.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let first = self.first().expect("the container is running");
        let mut command = Command::new("chroot");
        command.arg(format!("/proc/{first}/root"));
        command.args(["setpriv", "--reuid", USER, "--regid", USER, "--init-groups", "env", "--ignore-environment"]);
        command.args(&self.environment).arg(program);
        command
    }

    /// Copies the volume of this pod as a storage system does: all files at one instant, while the
    /// server runs.
    #[must_use]
    pub fn snapshot(&self, volume: &Volume) -> Volume {
        let postmaster = self.first().expect("the container is running");
        let mut processes = stop_and_list(postmaster);
        processes.iter().for_each(|&process| signal(process, Signal::SIGSTOP));
        processes.push(postmaster);
        let copied = volume.copied();
        processes.iter().for_each(|&process| signal(process, Signal::SIGCONT));
        copied
    }

    /// Returns process 1 of the container, as this machine numbers it, or `None` if it has ended.
    fn first(&self) -> Option<Pid> {
        // Its parent's id may be another process's once the parent has ended.
        self.is_running().then(|| children_of(pid_of(&locked(&self.process))).first().copied())?
    }
}

impl Drop for Pod {
    /// Never panics: it runs while a failed test unwinds.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("The pod's log:\n{}", self.log());
        }
        if let Some(first) = self.first() {
            // With process 1, the kernel ends all others, before the process that waits for it.
            signal(first, Signal::SIGKILL);
            let _ = locked(&self.process).wait();
        } else if self.is_running() {
            end(&mut locked(&self.process), Signal::SIGKILL);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}
