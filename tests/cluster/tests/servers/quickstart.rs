//! docs/quickstart.md step by step, and image/compose.yaml, without Docker.
//!
//! Each service is a container of [`cluster::pods`]: the image's entry script, a stand-in for the
//! official image's, and the environment, files, command and health check of the file. Containers
//! share this machine's network, so each service has an address of its own below 127.0.0.0/8, which
//! `/etc/hosts` gives the service's name.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::slice::Iter;
use std::{fs, process};

use cluster::pages::{Block, block, page};
use cluster::{Container, Draw, Operated, Pod, Server, Volume, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::kubernetes::{can_run, documents, hold, text};
use crate::pages::masked;

const PAGE: &str = "docs/quickstart.md";

/// The block that starts the servers without Docker.
const ALONE: &str = "quickstart-alone";

/// The image's directory of data, which is a volume.
const PGDATA: &str = "/var/lib/postgresql/data";

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns a text of the file as Compose reads it. No other variable is in it.
#[track_caller]
fn interpolated(value: &Value) -> String {
    let parts: Vec<_> = text(value).split("$$").collect();
    assert!(parts.iter().all(|part| !part.contains('$')), "{value}");
    parts.join("$")
}

#[track_caller]
fn keys(value: &Value) -> Vec<&str> {
    value.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

/// Returns three bytes of addresses at which nothing listens on PostgreSQL's port.
#[track_caller]
fn free_network() -> String {
    let networks = (process::id()..).map(|n| format!("127.{}.{}", 1 + n / 250 % 250, 1 + n % 250));
    let is_free = |network: &String| (1..=9).all(|n| TcpListener::bind(format!("{network}.{n}:5432")).is_ok());
    networks.take(1000).find(is_free).expect("nothing listens on all addresses at PostgreSQL's port")
}

struct Service {
    container: Container,
    volume: Volume,
    pod: Option<Pod>,
    /// The services that must be healthy before.
    needs: Vec<String>,
    health: Vec<String>,
}

impl Service {
    /// Reads a service of the file, with the files that it may name.
    #[track_caller]
    fn read(service: &Value, configs: &Value) -> Self {
        // What is not here, this test would not notice.
        let known = ["command", "configs", "depends_on", "environment", "healthcheck", "hostname", "image"];
        assert!(keys(service).iter().all(|key| known.contains(key)), "{service}");
        assert_eq!(text(&service["image"]), "${IMAGE:-postgres-snowflake-id:17}");

        let name = text(&service["hostname"]);
        let mut environment = BTreeMap::from([("PGDATA", PGDATA.to_owned()), ("LISTEN", name.to_owned())]);
        let values = service["environment"].as_object().unwrap();
        environment.extend(values.iter().map(|(name, value)| (name.as_str(), interpolated(value))));
        // Without it, the official image makes no data directory, unless there is a password.
        let makes_data = service["command"].is_null();
        assert!(!makes_data || environment["POSTGRES_HOST_AUTH_METHOD"] == "trust", "{service}");
        let command = service["command"].as_array().map(|command| command.iter().map(interpolated).collect());
        let mut container = Container {
            environment: environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            volume: PGDATA.to_owned(),
            command: command.unwrap_or_else(|| vec!["postgres".to_owned()]),
            ..Container::new(name, &[])
        };
        let of_image = (in_repository("image/create-extension.sql"), "10-snowflake_id.sql");
        container.mounts.push((of_image.0, format!("/docker-entrypoint-initdb.d/{}", of_image.1)));
        for config in service["configs"].as_array().into_iter().flatten() {
            let content = interpolated(&configs[text(&config["source"])]["content"]);
            container.add_file(text(&config["target"]), &content);
        }

        let needs = service["depends_on"].as_object().into_iter().flatten();
        let needs = needs.map(|(name, need)| {
            assert_eq!(need["condition"], "service_healthy");
            name.clone()
        });
        let health: Vec<_> = service["healthcheck"]["test"].as_array().unwrap().iter().map(interpolated).collect();
        assert_eq!(health[0], "CMD");
        Self { needs: needs.collect(), health: health[1..].into(), container, volume: Volume::empty(), pod: None }
    }

    #[track_caller]
    fn pod(&self) -> &Pod {
        self.pod.as_ref().expect("the service is running")
    }

    #[track_caller]
    fn start(&mut self) {
        let pod = self.pod.insert(self.container.start(&self.volume));
        wait_until("a healthy service", || {
            assert!(pod.is_running(), "the container has ended; its log:\n{}", pod.log());
            let mut check = pod.command(&self.health[0]);
            check.args(&self.health[1..]).stdout(Stdio::null()).status().unwrap().success()
        });
    }
}

/// A reader of the page, who has the services of the file, and does what each block says.
struct Reader {
    services: BTreeMap<String, Service>,
    blocks: Iter<'static, Block>,
    /// The words of the last command that opened a session.
    session: Vec<&'static str>,
    printed: String,
}

impl Reader {
    /// Opens the page and the file. Returns `None` without a parser for YAML.
    #[track_caller]
    fn open() -> Option<Self> {
        let file = fs::read_to_string(in_repository("image/compose.yaml")).unwrap();
        let documents = documents(&file)?;
        let [file] = &documents[..] else { panic!("one document") };
        assert_eq!(keys(file), ["configs", "name", "services"]);
        let services = file["services"].as_object().unwrap();
        let network = free_network();
        let mut hosts = "127.0.0.1 localhost\n".to_owned();
        for (n, name) in services.keys().enumerate() {
            hosts += &format!("{network}.{} {name}\n", n + 1);
        }
        let read = |(name, service): (&String, &Value)| {
            let mut service = Service::read(service, &file["configs"]);
            assert_eq!(*name, service.container.name);
            service.container.add_file("/etc/hosts", &hosts);
            (name.clone(), service)
        };
        let services = services.iter().map(read).collect();
        Some(Self { services, blocks: page(PAGE).blocks.iter(), session: Vec::new(), printed: String::new() })
    }

    #[track_caller]
    fn pod(&self, service: &str) -> &Pod {
        self.services[service].pod()
    }

    /// Does what the page says, up to the block of this name and what it prints.
    #[track_caller]
    fn follow(&mut self, name: &str) {
        loop {
            let block = self.blocks.next().unwrap_or_else(|| panic!("the page has no block {name} from here"));
            self.take(block);
            if block.key("name") == Some(name) {
                break;
            }
        }
        if let Some(output) = self.blocks.clone().next().filter(|block| block.language == "text") {
            self.blocks.next();
            self.take(output);
        }
    }

    /// Does what the rest of the page says.
    #[track_caller]
    fn finish(mut self) {
        while let Some(block) = self.blocks.next() {
            self.take(block);
        }
        assert!(self.services.is_empty(), "the page stops the fleet");
    }

    #[track_caller]
    fn take(&mut self, block: &'static Block) {
        match block.language.as_str() {
            "console" if block.key("name") == Some(ALONE) => start_alone(&block.text),
            "console" => block.text.lines().for_each(|line| self.enter(line.strip_prefix("$ ").expect("a command"))),
            "sql" => {
                assert_eq!(block.key("server"), Some(self.session[0]), "{}", block.text);
                self.printed = self.run(&self.session, &block.text);
            }
            "text" => {
                let shown = |text: &str| if block.key("numbers") == Some("vary") { masked(text) } else { text.into() };
                assert_eq!(shown(&self.printed), shown(&block.text), "printed:\n{}", self.printed);
            }
            other => panic!("a block of {other}"),
        }
    }

    /// Enters a command into the shell.
    #[track_caller]
    fn enter(&mut self, command: &'static str) {
        // Only single quotes, and no blank within redirections.
        let quoted = command.split('\'').enumerate();
        let words = quoted.flat_map(|(n, part)| match n % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        });
        let words: Vec<_> = words.collect();
        match words[..] {
            ["docker", "compose", "up", "--detach", "--wait"] => self.up(),
            ["docker", "compose", "kill", service] => {
                let pod = self.services.get_mut(service).and_then(|service| service.pod.take());
                pod.expect("the service is running").stop(Signal::SIGKILL);
            }
            ["docker", "compose", "exec", "-T", ref session @ .., redirection] => match redirection.split_at(1) {
                (">", "orders.txt") => self.printed = self.run(session, ""),
                ("<", "orders.txt") => self.printed = self.run(session, &format!("{}\n", self.printed)),
                _ => panic!("{command}"),
            },
            ["docker", "compose", "exec", ref session @ ..] => {
                self.session = session.to_vec();
                self.session.extend(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]);
            }
            ["docker", "compose", "down", "--volumes"] => self.services.clear(),
            // tools/package and tools/test-image test these two.
            ["make", "package"] => {}
            ["docker", "build", ..] => {
                assert_eq!(command, "docker build -f image/Dockerfile -t postgres-snowflake-id:17 .");
            }
            ["cd", "image"] | ["rm", "orders.txt"] => {}
            _ => panic!("{command}"),
        }
    }

    /// Starts each service that is not running, when those that it needs are healthy.
    #[track_caller]
    fn up(&mut self) {
        loop {
            let is_running = |name: &String| self.services[name].pod.is_some();
            let is_ready =
                |(name, service): &(&String, &Service)| !is_running(name) && service.needs.iter().all(is_running);
            let Some(next) = self.services.iter().find(is_ready).map(|(name, _)| name.clone()) else { break };
            self.services.get_mut(&next).unwrap().start();
        }
        assert!(self.services.values().all(|service| service.pod.is_some()), "services need each other");
    }

    /// Runs a program in a service, the first of the words, and returns what it prints.
    #[track_caller]
    fn run(&self, words: &[&str], input: &str) -> String {
        let mut command: Command = self.pod(words[0]).command(words[1]);
        let pipes = command.args(&words[2..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{words:?}\n{input}\n{}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8(output.stdout).unwrap();
        printed.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim_end().to_owned()
    }

    /// Runs a block of the page in another service's session.
    #[track_caller]
    fn again(&self, service: &str, sql: &str) -> String {
        let mut session = self.session.clone();
        session[0] = service;
        self.run(&session, sql)
    }

    /// Returns the worker numbers in a service's ids, in the ids' order.
    #[track_caller]
    fn numbers(&self, service: &str) -> Vec<i64> {
        let sql = "SELECT p.worker_id::bigint FROM orders o, snowflake_parse(o.id) p GROUP BY 1 ORDER BY min(o.id)";
        self.pod(service).connect().ids(sql).unwrap()
    }
}

#[test]
fn the_reader_of_the_page_sees_other_numbers_after_a_kill_and_a_promotion_and_no_id_twice() {
    if !can_run() {
        return;
    }
    let Some(mut reader) = Reader::open() else { return };
    reader.follow("quickstart-insert");
    // "Do the same on `primary-b`."
    reader.again("primary-b", block("quickstart-insert"));
    // Leases of minutes, which outlast all that follows on a busy machine as well.
    let [a, b, standby] = ["primary-a", "primary-b", "standby"].map(|name| hold(&mut reader.pod(name).connect()));
    assert!(a != b && b != standby && a != standby, "{a}, {b}, {standby}");
    assert_eq!((reader.numbers("primary-a"), reader.numbers("primary-b")), (vec![a], vec![b]));
    reader.follow("quickstart-registry");
    let in_registry = reader.session.clone();

    reader.follow("quickstart-again");
    let next = hold(&mut reader.pod("primary-a").connect());
    assert!(![a, b, standby].contains(&next), "{next} is one of {a}, {b}, {standby}");
    assert_eq!(reader.numbers("primary-a"), [a, next]);
    let shown = reader.run(&in_registry, block("quickstart-registry"));
    assert_eq!(shown.matches("primary-a").count(), 2, "{shown}");

    wait_until("the standby's rows", || reader.numbers("standby").len() == 2);
    reader.follow("quickstart-promote");
    assert_eq!(reader.numbers("standby"), [a, next, standby]);
    reader.follow("quickstart-all");
    let mut numbers = reader.numbers("standby");
    numbers.sort_unstable();
    let mut all = [a, b, next, standby];
    all.sort_unstable();
    assert_eq!(numbers, all);
    reader.finish();
}

/// The role of the registry is the one of the page about fleets.
#[test]
fn the_file_makes_the_role_as_the_page_about_fleets_does() {
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>().join("\n");
    let file = fs::read_to_string(in_repository("image/compose.yaml")).unwrap();
    assert!(lines(&file).contains(&lines(block("fleet-role"))));
}

/// Starts the fleet without containers, kills a primary as the table below says, and stops all.
#[track_caller]
fn start_alone(console: &str) {
    let commands: Vec<_> = console.lines().map(|line| line.strip_prefix("$ ").unwrap_or(line)).collect();
    let rest = "pg_ctl -D primary-a -m immediate stop; start primary-a 5502
        psql -h \"$PWD\" -p 5502 -d postgres -Atc 'SELECT snowflake_next() > 0'
        for server in *.log; do pg_ctl -D ${server%.log} -m fast stop; done";
    let server = Server::builder().without_preload().start();
    let said = server.enter(&format!("{}\n{rest}", commands.join("\n")));
    assert!(said.lines().any(|line| line == "t"), "{said}");
}
