//! The figures of `monitoring`, judged by its alerts; and Prometheus with exporters.
//!
//! The programs are the real ones. They listen on ports of 127.0.0.1, and give away figures only.
//! Each has its own directory below the scratch directory as its working directory, by which the
//! reaper knows it.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

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

/// Runs promtool on files, which are copied into its directory.
///
/// # Errors
///
/// What it prints if it finds an error.
pub fn promtool(arguments: &[&str], files: &[(&str, String)]) -> Result<(), String> {
    let directory = scratch::new_directory();
    for (name, text) in files {
        fs::write(directory.join(name), text).expect("the directory is writable");
    }
    let output = command("promtool", &directory).args(arguments).output().expect("promtool runs");
    let printed = [output.stdout, output.stderr].map(|printed| String::from_utf8_lossy(&printed).into_owned()).concat();
    let _ = fs::remove_dir_all(&directory);
    if output.status.success() { Ok(()) } else { Err(printed) }
}

/// What the queries of `monitoring` give: the labels of each series, its name among them, and its
/// value, NaN for NULL.
pub type Figures = BTreeMap<BTreeMap<String, String>, f64>;

/// Asks a server what a file of queries asks, as the exporter's role.
///
/// # Errors
///
/// PostgreSQL's, if a query fails.
pub fn read_figures(server: &Server, file: &str) -> Result<Figures, postgres::Error> {
    let mut session = server.connect_as(ROLE);
    let instance = format!("{} {file}", server.data_dir().display());
    let target = [("job", "postgres"), ("fleet", "shop"), ("instance", &instance), ("server", &instance)];
    let mut figures = Figures::new();
    for (name, sql, columns) in queries(file) {
        for row in session.query(&format!("SELECT to_jsonb(q)::text FROM ({sql}) q"), &[])? {
            let row: Value = serde_json::from_str(row.get(0)).expect("PostgreSQL writes JSON");
            let text = |column: &str| match &row[column] {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let (labels, values): (Vec<_>, Vec<_>) = columns.iter().partition(|column| column.1);
            let labels = labels.iter().map(|(column, _)| (column.clone(), text(column)));
            let target = target.map(|(label, value)| (label.to_owned(), value.to_owned()));
            let labels: BTreeMap<_, _> = target.into_iter().chain(labels).collect();
            for (column, _) in values {
                let mut series = labels.clone();
                series.insert("__name__".to_owned(), format!("{name}_{column}"));
                figures.insert(series, row[column].as_f64().unwrap_or(f64::NAN));
            }
        }
    }
    Ok(figures)
}

/// A query's name, its SQL, and its columns, each with whether it is a label.
type Query = (String, String, Vec<(String, bool)>);

/// Returns the queries of a file.
fn queries(file: &str) -> Vec<Query> {
    let mut queries = Vec::new();
    for line in read_monitoring_file(file).lines() {
        if let Some(name) = line.strip_suffix(':').filter(|name| !name.starts_with([' ', '#'])) {
            queries.push((name.to_owned(), String::new(), Vec::new()));
        }
        let Some((_, sql, columns)) = queries.last_mut() else { continue };
        if let Some(column) = line.strip_prefix("    - ") {
            let (column, usage) = column.split_once(": {usage: ").expect("it has a usage");
            columns.push((column.to_owned(), usage.starts_with("LABEL")));
        } else if let Some(text) =
            line.strip_prefix("    ").or(line.strip_prefix("  query: ").filter(|text| *text != "|"))
        {
            sql.push_str(text);
            sql.push('\n');
        }
    }
    assert!(!queries.is_empty() && queries.iter().all(|(_, sql, columns)| !sql.is_empty() && !columns.is_empty()));
    queries
}

/// Makes the exporter's role, and permits it to read the registry, as the page says.
#[track_caller]
fn permit(server: &Server, is_registry: bool) {
    let mut session = server.connect();
    if session.value("pg_is_in_recovery()") == "true" {
        return;
    }
    if session.value(&format!("SELECT count(*) FROM pg_roles WHERE rolname = '{ROLE}'")) == "0" {
        session.batch_execute(block("monitor-role")).expect("the page's statements run");
    }
    if is_registry {
        session.batch_execute(block("monitor-registry")).expect("the page's statements run");
    }
}

/// Servers whose figures are read, and judged by the alerts of `monitoring` without their delays,
/// as if they had changed a minute ago.
#[derive(Debug)]
pub struct Watch<'a> {
    /// Each server with its file of queries.
    sources: Vec<(&'a Server, &'static str)>,
    before: Figures,
}

impl<'a> Watch<'a> {
    /// Watches servers with the extension, and one that has a registry.
    ///
    /// # Panics
    ///
    /// Panics if a query fails.
    #[must_use]
    #[track_caller]
    pub fn start(servers: &[&'a Server], registry: Option<&'a Server>) -> Self {
        let sources: Vec<_> = servers.iter().map(|&server| (server, "queries.yaml")).collect();
        let mut watch = Self { sources, before: Figures::new() };
        watch.sources.extend(registry.map(|server| (server, "registry-queries.yaml")));
        watch.sources.iter().for_each(|(server, file)| permit(server, file.starts_with("registry")));
        watch.before = watch.read();
        watch
    }

    /// The same, of servers that raise no alert.
    ///
    /// # Panics
    ///
    /// Panics if they do.
    #[must_use]
    #[track_caller]
    pub fn start_silent(servers: &[&'a Server], registry: Option<&'a Server>) -> Self {
        let watch = Self::start(servers, registry);
        watch.assert_fires(&[]);
        Self::start(servers, registry)
    }

    #[track_caller]
    fn read(&self) -> Figures {
        let read =
            |(server, file): &(&Server, &str)| read_figures(server, file).expect("the role may read the figures");
        self.sources.iter().flat_map(read).collect()
    }

    /// Waits until these alerts fire, and no others do.
    ///
    /// # Panics
    ///
    /// Panics if that does not come.
    #[track_caller]
    pub fn assert_fires(&self, alerts: &[&str]) {
        let mut said = String::new();
        // Only a test that fails asks more than some dozen times.
        for _ in 0..300 {
            match judge(&self.before, &self.read(), alerts) {
                Ok(()) => return,
                Err(printed) => said = printed,
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("{alerts:?}: {said}");
    }
}

/// Asks promtool whether these alerts fire, and no others, when figures have changed.
fn judge(before: &Figures, after: &Figures, alerts: &[&str]) -> Result<(), String> {
    let all: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let mut test =
        "rule_files: [alerts.yaml]\nevaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n"
            .to_owned();
    for series in all {
        let labels: Vec<_> = series.iter().map(|(label, value)| format!("{label}={value:?}")).collect();
        let labels = labels.join(", ").replace('\'', "''");
        // promtool cannot read NaN. No series raises no alert either.
        let [before, after] = [before, after].map(|figures| match figures.get(series) {
            Some(value) if !value.is_nan() => value.to_string(),
            _ => "_".to_owned(),
        });
        writeln!(test, "      - {{series: '{{{labels}}}', values: '{before}x40 {after}x4'}}").expect("a string grows");
    }
    test += "    promql_expr_test:\n      - expr: 'count by (alertname) (ALERTS{alertstate=\"firing\"})'\n        eval_time: 11m\n";
    let samples: Vec<_> =
        alerts.iter().map(|alert| format!("{{labels: '{{alertname=\"{alert}\"}}', value: 1}}")).collect();
    writeln!(test, "        exp_samples: [{}]", samples.join(", ")).expect("a string grows");
    promtool(&["test", "rules", "test.yaml"], &[("alerts.yaml", alerts_at_once()), ("test.yaml", test)])
}

/// Returns the alerts without their delays.
fn alerts_at_once() -> String {
    let at_once = |line: &str| {
        if line.starts_with("        for: ") { "        for: 0s\n".to_owned() } else { format!("{line}\n") }
    };
    read_monitoring_file("alerts.yaml").lines().map(at_once).collect()
}

/// A program that serves HTTP on a port of 127.0.0.1.
#[derive(Debug)]
pub struct Service {
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
    #[must_use]
    pub fn get(&self, path: &str) -> Option<String> {
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

/// Starts an exporter with a file of queries, which has this text, as the page says.
///
/// # Panics
///
/// Panics if it does not start.
#[must_use]
#[track_caller]
pub fn export(server: &Server, queries: &str, text: &str) -> Service {
    permit(server, queries.starts_with("registry"));
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

/// A Prometheus with the alerts of `monitoring`, which watches a server and its registry through
/// exporters.
#[derive(Debug)]
pub struct Prometheus {
    service: Service,
    _exporters: [Service; 2],
}

impl Prometheus {
    /// Starts one.
    ///
    /// # Panics
    ///
    /// Panics if something does not start.
    #[must_use]
    #[track_caller]
    pub fn start(server: &Server, registry: &Server) -> Self {
        let exporters = [(server, "queries.yaml"), (registry, "registry-queries.yaml")]
            .map(|(server, queries)| export(server, queries, &read_monitoring_file(queries)));
        Self { service: prometheus(&exporters), _exporters: exporters }
    }

    /// Asks Prometheus, and returns the data of its answer.
    ///
    /// # Panics
    ///
    /// Panics if it reports an error.
    #[track_caller]
    fn api(&self, path: &str) -> Value {
        let answer = self.service.get(&format!("/api/v1/{path}")).unwrap_or_else(|| panic!("{path} is an error"));
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

    /// Returns the alerts that fire: name and summary.
    ///
    /// # Panics
    ///
    /// Panics if Prometheus reports an error.
    #[must_use]
    pub fn firing(&self) -> BTreeMap<String, String> {
        let data = self.api("alerts");
        let alerts = data["alerts"].as_array().expect("there is a list");
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        let text = |value: &Value| value.as_str().expect("it is a text").to_owned();
        firing.map(|alert| (text(&alert["labels"]["alertname"]), text(&alert["annotations"]["summary"]))).collect()
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

fn prometheus(exporters: &[Service]) -> Service {
    let directory = scratch::new_directory();
    let alerts = alerts_at_once();
    let targets: Vec<_> = exporters.iter().map(|exporter| format!("'127.0.0.1:{}'", exporter.port)).collect();
    let page = block("monitor-prometheus");
    let global =
        format!("global: {{scrape_interval: {INTERVAL}, scrape_timeout: {INTERVAL}, evaluation_interval: {INTERVAL}}}");
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
