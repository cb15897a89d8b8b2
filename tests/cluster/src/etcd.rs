//! A real etcd of one or three members, as the registry of a fleet, and etcdctl.
//!
//! Each member has its own directory below the scratch directory as its working directory, by
//! which the reaper knows it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::{env, iter};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::installation::{Installation, cache};
use crate::operator::Operated;
use crate::outcome::wait_until;
use crate::patroni::free_ports;
use crate::scratch;
use crate::server::{copy, end, password, pid_of, signal, spawn};

/// The directory of etcd and etcdctl, readable for the servers' user.
fn programs() -> Option<&'static Path> {
    static PROGRAMS: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let has_both = |directory: &PathBuf| ["etcd", "etcdctl"].iter().all(|name| directory.join(name).exists());
        let path = env::var_os("PATH")?;
        if let Some(installed) = env::split_paths(&path).find(has_both) {
            return Some(installed);
        }
        let unpacked = cache()?.join("programs/usr/bin");
        if !has_both(&unpacked) {
            return None;
        }
        let readable = scratch::new_directory().join("bin");
        fs::create_dir(&readable).expect("the directory is new");
        for name in ["etcd", "etcdctl"] {
            copy(&unpacked.join(name), &readable.join(name));
        }
        Some(readable)
    };
    PROGRAMS.get_or_init(find).as_deref()
}

/// Returns whether etcd and etcdctl are here. If not, a test that needs them calls
/// [`skip`](crate::skip).
#[must_use]
pub fn has_etcd() -> bool {
    programs().is_some()
}

/// A member.
#[derive(Debug)]
struct Node {
    directory: PathBuf,
    port: u16,
    peer_port: u16,
    process: Option<Child>,
}

impl Node {
    fn peer_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer_port)
    }
}

/// An etcd. Its members are numbered from 0.
#[derive(Debug)]
pub struct Etcd {
    nodes: Vec<Node>,
    has_tls: bool,
    /// Where certificates and snapshots are.
    directory: PathBuf,
    /// What etcdctl logs in with.
    login: Option<String>,
    token: String,
    has_short_logins: bool,
    /// In bytes; 0 for etcd's own.
    quota: u32,
}

impl Etcd {
    /// Starts an etcd with so many members. Needs [`has_etcd`].
    ///
    /// # Panics
    ///
    /// Panics if it does not come up.
    #[must_use]
    #[track_caller]
    pub fn start(members: usize) -> Self {
        Self::start_with(members, false, false, 0)
    }

    /// Starts an etcd that takes only clients with a certificate.
    ///
    /// # Panics
    ///
    /// Panics if it does not come up.
    #[must_use]
    #[track_caller]
    pub fn start_with_tls(members: usize) -> Self {
        Self::start_with(members, true, false, 0)
    }

    /// Starts an etcd whose logins are good for ten seconds, which is longer than a call takes on a
    /// busy machine.
    ///
    /// # Panics
    ///
    /// Panics if it does not come up.
    #[must_use]
    #[track_caller]
    pub fn start_with_short_logins(members: usize) -> Self {
        Self::start_with(members, false, true, 0)
    }

    /// Starts an etcd of one member that holds so many bytes, and then refuses every write.
    ///
    /// # Panics
    ///
    /// Panics if it does not come up.
    #[must_use]
    #[track_caller]
    pub fn start_with_quota(quota: u32) -> Self {
        Self::start_with(1, false, false, quota)
    }

    fn start_with(members: usize, has_tls: bool, has_short_logins: bool, quota: u32) -> Self {
        let directory = scratch::new_directory();
        let node = || {
            let [port, peer_port] = free_ports();
            Node { directory: scratch::new_directory(), port, peer_port, process: None }
        };
        let nodes = iter::repeat_with(node).take(members).collect();
        let mut etcd =
            Self { nodes, has_tls, directory, login: None, token: "one".to_owned(), has_short_logins, quota };
        if has_tls {
            etcd.make_certificates();
        }
        if has_short_logins {
            etcd.make_signing_keys();
        }
        for number in 0..members {
            etcd.start_member(number);
        }
        etcd.wait();
        etcd
    }

    /// Makes what etcd signs logins with.
    fn make_signing_keys(&self) {
        self.run_script("openssl genrsa -out sign.key 2048 && openssl rsa -in sign.key -pubout -out sign.pem");
    }

    fn make_certificates(&self) {
        let script = "
            set -e
            openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem
            for name in server client named; do
                case $name in client) subject=/O=snowflake ;; *) subject=/CN=$name ;; esac
                openssl req -newkey rsa:2048 -nodes -subj $subject -keyout $name.key -out $name.csr
                printf 'subjectAltName=IP:127.0.0.1\\nextendedKeyUsage=serverAuth,clientAuth\\n' > $name.ext
                openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile $name.ext \
                    -out $name.pem
            done";
        self.run_script(script);
    }

    fn run_script(&self, script: &str) {
        let mut sh = Installation::get().command("/bin/sh", &self.directory);
        let output = sh.args(["-c", script]).output().expect("there is a shell");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// Prepares a run of a program of PostgreSQL's installation.
    pub(crate) fn program(&self, name: &str) -> Command {
        Installation::get().command(name, &self.directory)
    }

    fn command(&self, name: &str, directory: &Path) -> Command {
        let program = programs().expect("a test asks for has_etcd() first").join(name);
        let mut command = Installation::get().command(program.to_str().expect("its name is UTF-8"), directory);
        command.env("ETCDCTL_API", "3");
        command
    }

    fn url(&self, number: usize) -> String {
        format!("{}://127.0.0.1:{}", if self.has_tls { "https" } else { "http" }, self.nodes[number].port)
    }

    fn urls(&self) -> String {
        (0..self.nodes.len()).map(|number| self.url(number)).collect::<Vec<_>>().join(",")
    }

    fn initial_cluster(&self) -> String {
        let member = |(number, node): (usize, &Node)| format!("node{number}={}", node.peer_url());
        self.nodes.iter().enumerate().map(member).collect::<Vec<_>>().join(",")
    }

    /// Starts a member again, or for the first time.
    pub fn start_member(&mut self, number: usize) {
        let (node, url) = (&self.nodes[number], self.url(number));
        let mut command = self.command("etcd", &node.directory);
        command.args([&format!("--name=node{number}"), "--data-dir=data", "--initial-cluster-token", &self.token]);
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &node.peer_url(), "--initial-advertise-peer-urls", &node.peer_url()]);
        command.args(["--initial-cluster", &self.initial_cluster()]);
        // The cheapest hash of passwords: on a busy machine, Patroni gives a login up otherwise.
        command.args(["--bcrypt-cost=4", &format!("--quota-backend-bytes={}", self.quota)]);
        if self.has_tls {
            command.args(["--cert-file", &self.file("server.pem"), "--key-file", &self.file("server.key")]);
            command.args(["--client-cert-auth", "--trusted-ca-file", &self.file("ca.pem")]);
        }
        if self.has_short_logins {
            let keys = format!("pub-key={},priv-key={}", self.file("sign.pem"), self.file("sign.key"));
            command.args(["--auth-token", &format!("jwt,{keys},sign-method=RS256,ttl=10s")]);
        }
        let process = spawn(&mut command, &node.directory);
        self.nodes[number].process = Some(process);
    }

    /// Kills a member (SIGKILL).
    pub fn kill_member(&mut self, number: usize) {
        if let Some(mut process) = self.nodes[number].process.take() {
            end(&mut process, Signal::SIGKILL);
        }
    }

    /// Sends a signal to all members.
    pub fn signal(&self, sent: Signal) {
        for process in self.nodes.iter().filter_map(|node| node.process.as_ref()) {
            signal(pid_of(process), sent);
        }
    }

    /// Sends a signal to a member.
    pub fn signal_member(&self, number: usize, sent: Signal) {
        if let Some(process) = &self.nodes[number].process {
            signal(pid_of(process), sent);
        }
    }

    /// Returns on which port of 127.0.0.1 each member listens.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(|node| node.port).collect()
    }

    /// Returns what a member has logged.
    ///
    /// # Panics
    ///
    /// Panics if it has no log.
    #[must_use]
    #[track_caller]
    pub fn log(&self, number: usize) -> String {
        let log = fs::read(self.nodes[number].directory.join("log")).expect("a member has a log");
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Returns the process ids of the members that run.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        self.nodes.iter().filter_map(|node| Some(pid_of(node.process.as_ref()?).as_raw())).collect()
    }

    /// Waits until it answers.
    ///
    /// # Panics
    ///
    /// Panics if it does not.
    #[track_caller]
    pub fn wait(&self) {
        wait_until("etcd", || self.try_ctl(&["get", "x"]).is_ok());
    }

    /// Runs etcdctl, and returns what it says.
    ///
    /// # Errors
    ///
    /// What it says if it fails.
    pub fn try_ctl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.command("etcdctl", &self.directory);
        command.args(["--endpoints", &self.urls()]);
        if self.has_tls {
            command.args(["--cacert", &self.file("ca.pem")]);
            command.args(["--cert", &self.file("client.pem"), "--key", &self.file("client.key")]);
        }
        command.args(self.login.iter().map(|login| format!("--user={login}")));
        let output = command.args(arguments).output().expect("etcdctl runs");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
    }

    /// Runs etcdctl, and returns what it says.
    ///
    /// # Panics
    ///
    /// Panics if it fails.
    #[track_caller]
    pub fn ctl(&self, arguments: &[&str]) -> String {
        self.try_ctl(arguments).unwrap_or_else(|error| panic!("etcdctl {arguments:?}: {error}"))
    }

    /// Runs commands of a shell, in which etcdctl reaches it without more, and returns what they
    /// say.
    ///
    /// # Panics
    ///
    /// Panics if one of them fails.
    #[must_use]
    #[track_caller]
    pub fn shell(&self, commands: &str) -> String {
        let programs = programs().expect("a test asks for has_etcd() first").display().to_string();
        let path = format!("{programs}:{}", env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", commands]).env("PATH", path).env("ETCDCTL_ENDPOINTS", self.urls());
        let output = shell.env("ETCDCTL_API", "3").output().expect("bash runs");
        assert!(output.status.success(), "{commands}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Makes the fleet `default`.
    ///
    /// # Panics
    ///
    /// Panics if that fails.
    #[track_caller]
    pub fn make_registry(&self) {
        self.operate(&["create"]);
    }

    /// Returns the record of the fleet `default`.
    ///
    /// # Panics
    ///
    /// Panics if etcd does not answer.
    #[must_use]
    #[track_caller]
    pub fn fleet(&self) -> String {
        self.ctl(&["get", "--print-value-only", "/snowflake_id/default/fleet"]).trim().to_owned()
    }

    /// Changes values of a record below the fleet `default`, as an operator does.
    ///
    /// # Panics
    ///
    /// Panics if etcd does not answer.
    #[track_caller]
    pub fn edit(&self, record: &str, values: &[(&str, Value)]) {
        let key = format!("/snowflake_id/default/{record}");
        let text = self.ctl(&["get", "--print-value-only", &key]);
        let mut fields: Value = serde_json::from_str(&text).expect("a record is JSON");
        for (name, value) in values {
            fields[name] = value.clone();
        }
        self.ctl(&["put", &key, &fields.to_string()]);
    }

    /// Changes values of the fleet's record, as an operator does.
    ///
    /// # Panics
    ///
    /// Panics if etcd does not answer.
    #[track_caller]
    pub fn edit_fleet(&self, values: &[(&str, Value)]) {
        self.edit("fleet", values);
    }

    /// Returns the string with which servers reach it.
    #[must_use]
    pub fn address(&self) -> String {
        let mut parameters = Vec::new();
        if self.has_tls {
            let file = |name, file| format!("{name}={}", self.file(file));
            parameters.extend([file("cacert", "ca.pem"), file("cert", "client.pem"), file("key", "client.key")]);
        }
        if self.login.is_some() {
            parameters.extend(["user=snowflake".to_owned(), format!("password_file={}", self.file("password"))]);
        }
        let query = if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) };
        format!("etcd:{}{query}", self.urls())
    }

    /// Asks for passwords from now on, and makes a user `snowflake` who may use the fleets only.
    ///
    /// # Panics
    ///
    /// Panics if etcd refuses that.
    #[track_caller]
    pub fn enable_passwords(&mut self) {
        let (root, member) = (password(), password());
        fs::write(self.directory.join("password"), format!("{member}\n")).expect("the directory is writable");
        for command in [
            format!("user add root:{root}"),
            format!("user add snowflake:{member}"),
            "role add snowflake".to_owned(),
            "role grant-permission snowflake --prefix=true readwrite /snowflake_id/".to_owned(),
            "user grant-role snowflake snowflake".to_owned(),
            "user grant-role root root".to_owned(),
            "auth enable".to_owned(),
        ] {
            self.ctl(&command.split(' ').collect::<Vec<_>>());
        }
        // Some releases tell their state only to this role, as the page says.
        self.login = Some(format!("snowflake:{member}"));
        let status = self.try_ctl(&["endpoint", "status"]);
        self.login = Some(format!("root:{root}"));
        match status {
            Err(said) if said.contains("permission denied") => self.ctl(&["user", "grant-role", "snowflake", "root"]),
            said => said.expect("etcd tells its state"),
        };
    }

    /// Returns the password of etcd's root; `None` before [`Etcd::enable_passwords`].
    #[must_use]
    pub fn root_password(&self) -> Option<&str> {
        Some(self.login.as_ref()?.split_once(':')?.1)
    }

    /// Returns the number of the leader, once there is one.
    ///
    /// # Panics
    ///
    /// Panics if the members do not elect one.
    #[must_use]
    #[track_caller]
    pub fn leader(&self) -> usize {
        let is_leader = |number: &usize| {
            // A member that is down has no status.
            let mut command = self.command("etcdctl", &self.directory);
            let output = command.args(["--endpoints", &self.url(*number), "endpoint", "status"]).output();
            let output = output.expect("etcdctl runs");
            String::from_utf8_lossy(&output.stdout).split(", ").nth(4) == Some("true")
        };
        let is_running = |number: &usize| self.nodes[*number].process.is_some();
        let mut leader = None;
        wait_until("a leader", || {
            leader = (0..self.nodes.len()).filter(is_running).find(is_leader);
            leader.is_some()
        });
        leader.expect("it was found")
    }

    /// Writes as another program does, which shares the etcd. A snapshot that is restored shows by
    /// the writes before it, because the log that begins then lacks them. It has elections and
    /// starts of members instead, of which a busy machine may need many.
    ///
    /// # Panics
    ///
    /// Panics if etcd does not answer.
    #[track_caller]
    pub fn write_elsewhere(&self) {
        for _ in 0..20 {
            self.ctl(&["put", "x", "y"]);
        }
    }

    /// Saves a snapshot.
    ///
    /// # Panics
    ///
    /// Panics if that fails.
    #[track_caller]
    pub fn save(&self, name: &str) {
        let (path, url) = (self.file(name), self.url(0));
        // etcdctl takes the snapshot from one member.
        let mut command = self.command("etcdctl", &self.directory);
        let output = command.args(["--endpoints", &url, "snapshot", "save", &path]).output().expect("etcdctl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Replaces the data of all members by a snapshot, under another token or the same one.
    ///
    /// # Panics
    ///
    /// Panics if that fails.
    #[track_caller]
    pub fn restore(&mut self, name: &str, token: &str) {
        self.token = token.to_owned();
        for number in 0..self.nodes.len() {
            self.kill_member(number);
        }
        for (number, node) in self.nodes.iter().enumerate() {
            fs::remove_dir_all(node.directory.join("data")).expect("etcd had data");
            let mut command = self.command("etcdctl", &node.directory);
            command.args(["snapshot", "restore", &self.file(name), &format!("--name=node{number}")]);
            command.args(["--data-dir=data", "--initial-cluster-token", token]);
            command.args(["--initial-cluster", &self.initial_cluster()]);
            let output = command.args(["--initial-advertise-peer-urls", &node.peer_url()]).output();
            let output = output.expect("etcdctl runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        for number in 0..self.nodes.len() {
            self.start_member(number);
        }
        self.wait();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for number in 0..self.nodes.len() {
            self.kill_member(number);
        }
        for directory in self.nodes.iter().map(|node| &node.directory).chain([&self.directory]) {
            let _ = fs::remove_dir_all(directory);
        }
    }
}
