//! Prometheus, and exporters that ask servers with the queries of `monitoring`.
//!
//! All are the real programs. They listen on ports of 127.0.0.1, and give away figures only. Each
//! has its own directory below the scratch directory as its working directory, by which the reaper
//! knows it.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::drawing::Draw;
use crate::installation::{Installation, cache};
use crate::outcome::wait_until;
use crate::pages::block;
use crate::patroni::free_ports;
use crate::scratch;
use crate::server::{Server, copy, end, spawn};

/// The role with which exporters connect, of the page's block `monitor-role`.
pub const ROLE: &str = "prometheus";

/// How often figures are read and alerts are evaluated.
const INTERVAL: &str = "500ms";

/// The same where a server is down: the exporter waits a second for it before it answers.
const INTERVAL_DOWN: &str = "3s";

const PROGRAMS: [&str; 3] = ["prometheus", "promtool", "prometheus-postgres-exporter"];

/// The directory with Prometheus, promtool and the exporter, which are installed, or unpacked by
/// `make setup`.
fn programs() -> Option<&'static Path> {
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        let has_all = |directory: &PathBuf| PROGRAMS.iter().all(|program| directory.join(program).exists());
        let path = env::var_os("PATH").unwrap_or_default();
        let installed = env::split_paths(&path).find(has_all);
        installed.or_else(|| {
            let unpacked = Some(cache()?.join("programs/usr/bin")).filter(has_all)?;
            if !Installation::get().changes_user() {
                return Some(unpacked);
            }
            // The servers' user may have no access to the home directory of the test's user.
            let readable = scratch::new_directory();
            PROGRAMS.iter().for_each(|program| copy(&unpacked.join(program), &readable.join(program)));
            Some(readable)
        })
    });
    directory.as_deref()
}

/// Returns whether Prometheus and its exporter for PostgreSQL are here. If not, a test that needs
/// them calls [`skip`](crate::skip).
#[must_use]
pub fn has_prometheus() -> bool {
    programs().is_some()
}

/// Returns the path of a file in `monitoring`.
#[must_use]
pub fn monitoring_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring").join(name)
}

/// Reads a file in `monitoring`.
///
/// # Panics
///
/// Panics if there is no such file.
#[must_use]
#[track_caller]
pub fn read_monitoring_file(name: &str) -> String {
    fs::read_to_string(monitoring_file(name)).unwrap_or_else(|error| panic!("monitoring/{name}: {error}"))
}

fn command(program: &str, directory: &Path) -> Command {
    let programs = programs().expect("a test asks for has_prometheus() first");
    Installation::get().command(programs.join(program).to_str().expect("its name is UTF-8"), directory)
}

/// Runs promtool on files, which are copied into its directory, and returns what it prints.
///
/// # Panics
///
/// Panics if it finds an error.
#[track_caller]
pub fn promtool(arguments: &[&str], files: &[(&str, String)]) -> String {
    let directory = scratch::new_directory();
    for (name, text) in files {
        fs::write(directory.join(name), text).expect("the directory is writable");
    }
    let output = command("promtool", &directory).args(arguments).output().expect("promtool runs");
    let printed = [output.stdout, output.stderr].map(|printed| String::from_utf8_lossy(&printed).into_owned()).concat();
    assert!(output.status.success(), "promtool {arguments:?}:\n{printed}");
    let _ = fs::remove_dir_all(&directory);
    printed
}

/// A program that serves HTTP on a port of 127.0.0.1.
#[derive(Debug)]
struct Service {
    directory: PathBuf,
    port: u16,
    process: Child,
}

impl Service {
    #[track_caller]
    fn start(directory: PathBuf, port: u16, command: &mut Command, ready: &str) -> Self {
        let process = spawn(command, &directory);
        let service = Self { directory, port, process };
        wait_until("a program that serves HTTP", || service.get(ready).is_some());
        service
    }

    /// Asks for a path, and returns the answer unless that is an error.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.lines().next()?.contains(" 200 ").then(|| body.to_owned())
    }
}

impl Drop for Service {
    /// Never panics: it runs while a failed test unwinds.
    fn drop(&mut self) {
        end(&mut self.process, Signal::SIGKILL);
        if thread::panicking() {
            let log = fs::read(self.directory.join("log")).unwrap_or_default();
            eprintln!("The log of {}:\n{}", self.directory.display(), String::from_utf8_lossy(&log));
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Starts an exporter with a file of queries, as the page says.
fn export(server: &Server, queries: &str) -> Service {
    export_text(server, queries, &read_monitoring_file(queries))
}

/// The same with another text of the file.
fn export_text(server: &Server, queries: &str, text: &str) -> Service {
    let directory = scratch::new_directory();
    fs::write(directory.join(queries), text).expect("the directory is writable");
    let [port] = free_ports();
    let mut exporter = command("prometheus-postgres-exporter", &directory);
    let place = server.directory().display().to_string();
    for line in block("monitor-exporter").lines() {
        let (name, value) = line.split_once('=').expect("it is an assignment");
        let value = value.trim_matches('\'');
        match name {
            "DATA_SOURCE_NAME" => {
                let value = value.replace("/run/postgresql", &place).replace("dbname=app", "dbname=postgres");
                exporter.env(name, format!("{value} port={}", server.port()));
            }
            "ARGS" => {
                exporter.args(value.replace("/etc/prometheus/queries.yaml", queries).split_ascii_whitespace());
            }
            _ => panic!("{name} is another setting"),
        }
    }
    exporter.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    Service::start(directory, port, &mut exporter, "/")
}

/// A Prometheus, with the alerts of `monitoring`, that watches servers. An alert fires as soon as
/// its condition holds.
#[derive(Debug)]
pub struct Watch {
    prometheus: Service,
    exporters: Vec<Service>,
}

impl Watch {
    /// Watches servers with the extension.
    ///
    /// # Panics
    ///
    /// Panics if something does not start.
    #[must_use]
    #[track_caller]
    pub fn start(servers: &[&Server]) -> Self {
        Self::start_every(INTERVAL, servers, None)
    }

    /// Watches a server that may go down.
    ///
    /// # Panics
    ///
    /// As [`Watch::start`].
    #[must_use]
    #[track_caller]
    pub fn start_patiently(server: &Server) -> Self {
        Self::start_every(INTERVAL_DOWN, &[server], None)
    }

    /// Watches servers, and one that has a registry.
    ///
    /// # Panics
    ///
    /// As [`Watch::start`].
    #[must_use]
    #[track_caller]
    pub fn start_with_registry(servers: &[&Server], registry: &Server) -> Self {
        Self::start_every(INTERVAL, servers, Some(registry))
    }

    #[track_caller]
    fn start_every(interval: &str, servers: &[&Server], registry: Option<&Server>) -> Self {
        let all = servers.iter().copied().chain(registry);
        for server in all.filter(|server| server.connect().value("pg_is_in_recovery()") == "false") {
            let known = format!("SELECT count(*) FROM pg_roles WHERE rolname = '{ROLE}'");
            if server.connect().value(&known) == "0" {
                server.connect().batch_execute(block("monitor-role")).expect("the page's statements run");
            }
        }
        let mut exporters: Vec<_> = servers.iter().map(|server| export(server, "queries.yaml")).collect();
        if let Some(server) = registry {
            server.connect().batch_execute(block("monitor-registry")).expect("the page's statements run");
            exporters.push(export(server, "registry-queries.yaml"));
        }
        let prometheus = prometheus(interval, &exporters);
        Self { prometheus, exporters }
    }

    /// Ends the exporter of a server, which does not answer from now on.
    pub fn end_exporter(&mut self, number: usize) {
        end(&mut self.exporters[number].process, Signal::SIGKILL);
    }

    /// Watches a server with an exporter that cannot read its file of queries. The role exists
    /// since an earlier watch.
    ///
    /// # Panics
    ///
    /// As [`Watch::start`].
    #[must_use]
    #[track_caller]
    pub fn start_with_wrong_queries(server: &Server) -> Self {
        let exporters = vec![export_text(server, "queries.yaml", "snowflake_stat: [")];
        let prometheus = prometheus(INTERVAL, &exporters);
        Self { prometheus, exporters }
    }

    /// Asks Prometheus, and returns the data of its answer.
    ///
    /// # Panics
    ///
    /// Panics if it reports an error.
    #[track_caller]
    fn api(&self, path: &str) -> Value {
        let answer = self.prometheus.get(&format!("/api/v1/{path}")).unwrap_or_else(|| panic!("{path} is an error"));
        let mut answer: Value = serde_json::from_str(&answer).expect("the answer is JSON");
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].take()
    }

    /// Returns what a query gives now: labels and value of each series.
    ///
    /// # Panics
    ///
    /// Panics if the query is wrong.
    #[must_use]
    #[track_caller]
    pub fn query(&self, query: &str) -> Vec<Value> {
        let mut encoded = String::new();
        for byte in query.bytes() {
            write!(encoded, "%{byte:02X}").expect("a string grows");
        }
        let mut data = self.api(&format!("query?query={encoded}"));
        serde_json::from_value(data["result"].take()).expect("an instant query gives a list")
    }

    /// Returns when each group of rules was evaluated last.
    fn evaluations(&self) -> Vec<String> {
        let data = self.api("rules");
        let groups = data["groups"].as_array().expect("there are groups");
        groups.iter().map(|group| group["lastEvaluation"].to_string()).collect()
    }

    /// Waits until each server was asked twice more, and all rules were evaluated after that.
    ///
    /// # Panics
    ///
    /// Panics if that does not come.
    #[track_caller]
    pub fn evaluate(&self) {
        let asked = || -> Vec<f64> {
            let counts = self.query("count_over_time(up[1h])");
            counts.iter().map(value).collect()
        };
        wait_until("all exporters", || asked().len() == self.exporters.len());
        let before = asked();
        wait_until("the exporters' answers", || asked().iter().zip(&before).all(|(now, before)| *now >= before + 2.0));
        // The first may have begun before.
        for _ in 0..2 {
            let before = self.evaluations();
            wait_until("an evaluation", || self.evaluations().iter().zip(&before).all(|(now, before)| now != before));
        }
    }

    /// Returns the names of the alerts that fire.
    #[must_use]
    pub fn firing(&self) -> BTreeSet<String> {
        let data = self.api("alerts");
        let alerts = data["alerts"].as_array().expect("there is a list");
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"]["alertname"].as_str().expect("it has a name").to_owned()).collect()
    }

    /// Returns the summaries of the alerts that fire with a name.
    #[must_use]
    pub fn summaries(&self, name: &str) -> Vec<String> {
        let data = self.api("alerts");
        let alerts = data["alerts"].as_array().expect("there is a list");
        let named = alerts.iter().filter(|alert| alert["state"] == "firing" && alert["labels"]["alertname"] == name);
        named.map(|alert| alert["annotations"]["summary"].as_str().expect("it has a summary").to_owned()).collect()
    }

    /// Waits until these alerts fire, and asserts that no others do.
    ///
    /// # Panics
    ///
    /// Panics if not.
    #[track_caller]
    pub fn assert_fires(&self, alerts: &[&str]) {
        let expected: BTreeSet<_> = alerts.iter().map(|&alert| alert.to_owned()).collect();
        let mut firing = BTreeSet::new();
        // As often as it takes on a busy machine.
        for _ in 0..100 {
            self.evaluate();
            firing = self.firing();
            if firing.is_superset(&expected) {
                break;
            }
        }
        assert_eq!(firing, expected);
    }

    /// Asserts that all is measured and no alert fires.
    ///
    /// # Panics
    ///
    /// Panics if one does.
    #[track_caller]
    pub fn assert_silent(&self) {
        self.assert_fires(&[]);
    }
}

/// Returns the value of a series that a query gave.
///
/// # Panics
///
/// Panics if it has none.
#[must_use]
#[track_caller]
pub fn value(series: &Value) -> f64 {
    let text = series["value"][1].as_str().expect("a series of an instant query has a value");
    text.parse().expect("a value is a number")
}

fn prometheus(interval: &str, exporters: &[Service]) -> Service {
    let directory = scratch::new_directory();
    let alerts = read_monitoring_file("alerts.yaml");
    let durations =
        |line: &str| if line.trim_start().starts_with("for: ") { "        for: 0s" } else { line }.to_owned();
    // One figure that comes late, on a machine with other work, does not make an exporter dead.
    let alerts = alerts.lines().map(durations).collect::<Vec<_>>().join("\n").replace("up[1m]", "up[10s]");
    let targets: Vec<_> = exporters.iter().map(|exporter| format!("'127.0.0.1:{}'", exporter.port)).collect();
    let page = block("monitor-prometheus");
    let global =
        format!("global: {{scrape_interval: {interval}, scrape_timeout: {interval}, evaluation_interval: {interval}}}");
    let configuration = format!(
        "{}\n",
        page.replace("/etc/prometheus/", "")
            .replace("global: {scrape_interval: 15s}", &global)
            .replace("[db1.example:9187, db2.example:9187]", &format!("[{}]", targets.join(", ")))
    );
    assert!(
        configuration.contains("rule_files: [alerts.yaml]")
            && configuration.contains(&global)
            && !configuration.contains("db1.example"),
        "{page}"
    );
    for (name, text) in [("alerts.yaml", &alerts), ("prometheus.yml", &configuration)] {
        fs::write(directory.join(name), text).expect("the directory is writable");
    }
    let [port] = free_ports();
    let mut prometheus = command("prometheus", &directory);
    prometheus.args(["--config.file=prometheus.yml", "--storage.tsdb.path=series", "--log.level=warn"]);
    prometheus.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    Service::start(directory, port, &mut prometheus, "/-/ready")
}
