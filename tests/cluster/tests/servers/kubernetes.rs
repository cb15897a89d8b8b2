//! What happens to pods, without Kubernetes: the recipes of docs/kubernetes.md word for word, and
//! pods ([`cluster::pods`]) that move, stop, are killed, share a volume by mistake, and have a
//! snapshot of their volume started beside them. No id comes twice.
//!
//! Neither the kubelet nor CloudNativePG's operator runs here. The tests do what these do to
//! containers: they give them variables, files, a volume, a host name and signals.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use cluster::drawing::greatest;
use cluster::pages::block;
use cluster::registry::{Oracle, ROLE, role_sql};
use cluster::{
    Container, Draw, Fleet, Leases, Ledger, Load, Pod, Promise, Server, Volume, assert_unique, can_isolate, skip,
    wait_until,
};
use nix::sys::signal::Signal;
use postgres::Client;
use serde_json::Value;

/// Returns whether pods can be started here, and reports the test as skipped if not.
pub(crate) fn can_run() -> bool {
    let can_run = can_isolate();
    if !can_run {
        skip("only root may make namespaces");
    }
    can_run
}

/// A container with the image's variable for a registry.
fn member(fleet: &Fleet, name: &str) -> Container {
    Container::new(name, &[("SNOWFLAKE_REGISTRY", &fleet.conninfo())])
}

/// Waits until a pod holds a lease, and has renewed it to minutes: a first lease of half a minute
/// may end on a busy machine before a test has looked. Each reload renews, and doubles it.
#[track_caller]
pub(crate) fn hold(session: &mut Client) -> i64 {
    session.wait_for_lease();
    for _ in 0..3 {
        let renewals = session.lease("renewals");
        session.batch_execute("SELECT pg_reload_conf()").unwrap();
        wait_until("a renewal", || session.lease("renewals") != renewals);
    }
    session.wait_for_lease()
}

/// Draws under load until every session has stored some ids.
#[track_caller]
fn load(pod: &Pod) -> Load {
    let load = Load::start_at(&pod.connection(), 4);
    load.wait_for(50);
    load
}

/// Compares a pod's database with all that clients have seen, and asserts that its next id is above
/// all of it. Returns the pod's number.
#[track_caller]
fn goes_on(pod: &Pod, ledger: &Ledger) -> i64 {
    let next = ledger.check_at(&pod.connection(), Promise::Seen).drawn();
    assert!(next > greatest(&ledger.seen));
    hold(&mut pod.connect())
}

// The recipes

/// Reads the YAML documents of a block.
#[track_caller]
pub(crate) fn documents(block: &str) -> Option<Vec<Value>> {
    let read = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)";
    // Debian's Python, which has the parser that Patroni needs.
    let mut python = Command::new("/usr/bin/python3");
    if !python.args(["-c", "import yaml"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        skip("Python has no parser for YAML");
        return None;
    }
    let mut python = Command::new("/usr/bin/python3");
    let python = python.args(["-c", read]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().unwrap();
    python.stdin.take().unwrap().write_all(block.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{block}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Returns the document of a kind.
#[track_caller]
fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().find(|document| document["kind"] == kind).unwrap_or_else(|| panic!("there is no {kind}"))
}

#[track_caller]
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a text"))
}

/// An authority, its certificate for `registry.example`, and one for the servers' role.
const CERTIFICATES: &str = "
    set -e
    new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
    $new -x509 -days 2 -subj /CN=authority -keyout ca.key -out ca.crt
    printf 'subjectAltName=DNS:registry.example' >names
    for name in registry.example snowflake; do
        $new -subj /CN=$name -keyout $name.key -out $name.csr
        openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out $name.crt
    done
    chmod 600 *.key";

/// The registry of the recipes: `registry.example`, database `ids`, role `snowflake`, over TLS.
struct Registry {
    server: Server,
    oracle: Oracle,
}

impl Registry {
    /// Starts it, with a method of authentication for the role. Returns `None` without TLS.
    #[track_caller]
    fn start(method: &str) -> Option<Self> {
        let server = Server::builder().without_preload().durable().tcp().start();
        let mut session = server.connect();
        if session.value("current_setting('ssl_library')").is_empty() {
            skip("PostgreSQL was built without TLS");
            return None;
        }
        session.batch_execute("CREATE DATABASE ids").unwrap();
        server.make_registry_with(&["--dbname=ids"]);
        let registry = Self { server, oracle: Oracle::new() };
        registry.connect().batch_execute(&role_sql()).unwrap();

        let directory = registry.file("");
        fs::create_dir(&directory).unwrap();
        let mut sh = Command::new("sh");
        let output = sh.args(["-c", CERTIFICATES]).current_dir(&directory).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let data_dir = fs::metadata(registry.server.data_dir()).unwrap();
        for file in [&directory, &registry.file("registry.example.key")] {
            chown(file, Some(data_dir.uid()), Some(data_dir.gid())).unwrap();
        }
        let rules = format!("local all postgres trust\nhostssl ids {ROLE} 127.0.0.1/32 {method}\n");
        fs::write(registry.server.data_dir().join("pg_hba.conf"), rules).unwrap();
        let file = |name| registry.file(name).display().to_string();
        for (name, value) in [
            ("ssl", "on".to_owned()),
            ("ssl_ca_file", file("ca.crt")),
            ("ssl_cert_file", file("registry.example.crt")),
            ("ssl_key_file", file("registry.example.key")),
        ] {
            registry.server.set_config(name, &value);
        }
        registry.server.reload();
        Some(registry)
    }

    fn connect(&self) -> Client {
        self.server.connect_to("ids")
    }

    /// Returns one of the certificates' files.
    fn file(&self, name: &str) -> PathBuf {
        self.server.data_dir().join("certificates").join(name)
    }

    /// Makes a file for a container, owned by root, with a mode and a group that may read it.
    fn make_file(&self, name: &str, mode: u32, content: &[u8]) -> PathBuf {
        let file = self.file(name);
        fs::write(&file, content).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        chown(&file, Some(0), Some(fs::metadata(self.server.data_dir()).unwrap().gid())).unwrap();
        file
    }

    /// Lets a container find `registry.example`, as a cluster's DNS does. The port is the default
    /// one of libpq.
    fn reach(&self, container: &mut Container) {
        let hosts = self.make_file("hosts", 0o644, b"127.0.0.1 localhost\n127.0.0.1 registry.example\n");
        container.mounts.push((hosts, "/etc/hosts".to_owned()));
        container.environment.push(("PGPORT".to_owned(), self.server.port().to_string()));
    }

    /// Returns the host names that hold a lease.
    fn holders(&self) -> Vec<String> {
        let sql = "SELECT host FROM snowflake_registry.numbers WHERE until_ms > snowflake_registry.now_ms() ORDER BY 1";
        self.connect().query(sql, &[]).unwrap().iter().map(|row| row.get(0)).collect()
    }
}

/// A StatefulSet: the registry's password is in a Secret with a service file.
#[test]
fn the_pods_of_the_recipes_statefulset_lease_numbers_of_their_own() {
    let Some(documents) = documents(block("kubernetes-statefulset")).filter(|_| can_run()) else { return };
    let (secret, set) = (of_kind(&documents, "Secret"), of_kind(&documents, "StatefulSet"));
    let Some(registry) = Registry::start("scram-sha-256") else { return };
    let service = text(&secret["stringData"]["pg_service.conf"]);
    let password = service.lines().find_map(|line| line.strip_prefix("password=")).unwrap();
    registry.connect().batch_execute(&format!("ALTER ROLE {ROLE} PASSWORD '{password}'")).unwrap();

    let pod = &set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let environment = container["env"].as_array().unwrap().iter().filter(|variable| variable["value"].is_string());
    let mount = |volume: &str| {
        let mounts = container["volumeMounts"].as_array().unwrap();
        text(&mounts.iter().find(|mount| mount["name"] == volume).unwrap()["mountPath"]).to_owned()
    };
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], secret["metadata"]["name"]);
    let secrets = mount(text(&pod["volumes"][0]["name"]));
    // What Kubernetes makes of a Secret: root's files that every user of the container can read.
    let files =
        [("ca.crt", fs::read(registry.file("ca.crt")).unwrap()), ("pg_service.conf", service.as_bytes().to_vec())];
    let mut described = Container {
        environment: environment.map(|v| (text(&v["name"]).to_owned(), text(&v["value"]).to_owned())).collect(),
        volume: mount(text(&set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"])),
        ..Container::new("", &[])
    };
    for (name, content) in files {
        assert!(secret["stringData"][name].is_string(), "the Secret has no {name}");
        let file = registry.make_file(&format!("pod.{name}"), 0o644, &content);
        described.mounts.push((file, format!("{secrets}/{name}")));
    }
    registry.reach(&mut described);

    let names = ["shard-0", "shard-1"];
    let pods = names.map(|name| {
        let volume = Volume::new();
        (Container { name: name.to_owned(), ..described.clone() }.start(&volume), volume)
    });
    let mut ids = Vec::new();
    let mut numbers = BTreeSet::new();
    for (pod, _) in &pods {
        let mut session = pod.connect();
        numbers.insert(hold(&mut session));
        ids.extend(session.draw_batch(1000));
        assert_eq!(session.lease("registry"), "service=fleet");
    }
    assert_eq!(numbers.len(), names.len());
    assert_eq!(registry.holders(), names);
    pods.iter().for_each(|(pod, _)| pod.stop(Signal::SIGINT));
    assert_eq!(registry.holders(), [] as [&str; 0]);
    assert_unique(&ids);
    registry.oracle.accept_history(&mut registry.connect());
}

/// CloudNativePG: a certificate in a projected volume, because the operator keeps all variables
/// that begin with PG for itself. Then the primary's node is lost.
#[test]
fn the_instances_of_the_recipes_cluster_lease_numbers_of_their_own_and_fail_over() {
    let Some(documents) = documents(block("kubernetes-cloudnativepg")).filter(|_| can_run()) else { return };
    let spec = &of_kind(&documents, "Cluster")["spec"];
    let Some(registry) = Registry::start("cert") else { return };

    let mut described = Container::new("", &[]).without_entry_script();
    let mode = u32::try_from(spec["projectedVolumeTemplate"]["defaultMode"].as_u64().unwrap()).unwrap();
    for item in spec["projectedVolumeTemplate"]["sources"][0]["secret"]["items"].as_array().unwrap() {
        // The keys that cert-manager gives a Secret.
        let key = text(&item["key"]);
        let content = fs::read(registry.file(&key.replace("tls", ROLE))).unwrap();
        let file = registry.make_file(&format!("pod.{key}"), mode, &content);
        described.mounts.push((file, Path::new("/projected").join(text(&item["path"])).display().to_string()));
    }
    registry.reach(&mut described);
    let start = |name: &str, volume: &Volume| Container { name: name.to_owned(), ..described.clone() }.start(volume);

    // What the operator writes for all instances alike.
    let volume = Volume::new();
    let libraries: Vec<_> =
        spec["postgresql"]["shared_preload_libraries"].as_array().unwrap().iter().map(text).collect();
    volume.set_config("shared_preload_libraries", &libraries.join(","));
    volume.set_config("cluster_name", "orders");
    for (name, value) in spec["postgresql"]["parameters"].as_object().unwrap() {
        volume.set_config(name, text(value));
    }
    let primary = start("orders-1", &volume);
    let of_primary = hold(&mut primary.connect());
    let copy = primary.snapshot(&volume);
    copy.follow(&primary);
    let standby = start("orders-2", &copy);
    let mut session = standby.connect();
    // It is ready before it is needed.
    let of_standby = hold(&mut session);
    assert_ne!(of_primary, of_standby);
    assert_eq!(registry.holders(), ["orders-1", "orders-2"]);

    let before = load(&primary);
    primary.stop(Signal::SIGKILL);
    let mut ledger = before.end();
    assert_eq!(session.value("pg_promote()"), "true");
    let after = load(&standby).end();
    assert!(after.seen.iter().min() > ledger.seen.iter().max(), "the clocks are one");
    assert_eq!(session.wait_for_lease(), of_standby);
    ledger.add(after);
    registry.oracle.accept_history(&mut registry.connect());
}

// What happens to pods

/// A pod of a StatefulSet has its name on the other node, too; one of a Deployment has a new name.
#[test]
fn a_pod_that_moves_gets_its_number_again_only_if_it_has_given_it_back() {
    if !can_run() {
        return;
    }
    let fleet = Fleet::start();
    let volume = Volume::new();
    let mut ledger = Ledger::default();
    let mut pod = member(&fleet, "shard-0").start(&volume);
    let mut number = hold(&mut pod.connect());
    for (end, name, is_same) in [
        (Signal::SIGINT, "shard-0", true),
        // The node is lost.
        (Signal::SIGKILL, "shard-0", false),
        (Signal::SIGINT, "app-5d8f-x2x", false),
        (Signal::SIGKILL, "app-5d8f-k9k", false),
    ] {
        let load = load(&pod);
        pod.stop(end);
        ledger.add(load.end());
        let is_leased = fleet.leased().contains(&number);
        assert_eq!(is_leased, end == Signal::SIGKILL);
        pod = member(&fleet, name).start(&volume);
        let next = goes_on(&pod, &ledger);
        assert_eq!(next == number, is_same, "{name} after {end}: {number}, {next}");
        let host = "SELECT host FROM snowflake_registry.numbers WHERE until_ms > snowflake_registry.now_ms() \
                    AND worker = $1";
        let host: String = fleet.registry.connect().query_one(host, &[&next]).unwrap().get(0);
        assert_eq!(host, name);
        number = next;
    }
    fleet.hear_history();
}

/// The official image's signal for a stop. The sessions are ended.
#[test]
fn a_pod_that_stops_fast_gives_its_number_back_under_load() {
    if !can_run() {
        return;
    }
    let fleet = Fleet::start();
    let volume = Volume::new();
    let pod = member(&fleet, "shard-0").start(&volume);
    let number = hold(&mut pod.connect());
    let load = load(&pod);
    pod.stop(Signal::SIGINT);
    let ledger = load.end();
    assert!(pod.log().contains(&format!("worker number {number} is given back")), "{}", pod.log());
    assert_eq!(fleet.leased(), [] as [i64; 0]);
    let pod = member(&fleet, "shard-0").start(&volume);
    assert_eq!(goes_on(&pod, &ledger), number);
    fleet.hear_history();
}

/// SIGTERM waits for the sessions. They draw on, until the grace period ends with SIGKILL.
#[test]
fn a_pod_whose_sessions_outlast_the_grace_period_has_another_number_at_once() {
    if !can_run() {
        return;
    }
    let fleet = Fleet::start();
    let volume = Volume::new();
    let pod = member(&fleet, "shard-0").start(&volume);
    let mut session = pod.connect();
    let number = hold(&mut session);
    let load = load(&pod);
    pod.signal(Signal::SIGTERM);
    wait_until("the smart shutdown", || pod.log().contains("received smart shutdown request"));
    load.wait_for(50);
    assert_eq!((session.lease("state"), session.wait_for_lease()), ("held".to_owned(), number));
    pod.stop(Signal::SIGKILL);
    let ledger = load.end();
    assert!(!pod.log().contains("is given back"), "{}", pod.log());
    assert_eq!(fleet.leased(), [number]);
    let pod = member(&fleet, "shard-0").start(&volume);
    assert_ne!(goes_on(&pod, &ledger), number);
    fleet.hear_history();
}

#[test]
fn a_pod_with_a_snapshot_of_a_running_pods_volume_draws_other_ids() {
    if !can_run() {
        return;
    }
    let fleet = Fleet::start();
    let volume = Volume::new();
    let pod = member(&fleet, "shard-0").start(&volume);
    let of_original = load(&pod);
    let snapshot = pod.snapshot(&volume);
    let copy = member(&fleet, "restored-0").start(&snapshot);
    let of_copy = load(&copy);
    of_original.wait_for(50);
    let mut ledger = of_original.end();
    ledger.add(of_copy.end());
    let numbers = [&pod, &copy].map(|pod| pod.connect().wait_for_lease());
    assert_ne!(numbers[0], numbers[1]);
    fleet.hear_history();
}

// Two pods with one volume

/// Starts a pod with the volume of one that runs, as after a pod was deleted by force, and draws in
/// both at once until `enough` says so of what each has drawn.
#[track_caller]
fn draw_with_one_volume(container: &Container, enough: impl Fn(&[Vec<i64>; 2]) -> bool) -> [Vec<i64>; 2] {
    let volume = Volume::new();
    let first = container.start(&volume);
    let mut session = first.connect();
    let mut ids = [session.draw_batch(1000), Vec::new()];
    let second = container.start(&volume);
    let mut sessions = [session, second.connect()];
    wait_until("what was drawn with one volume", || {
        thread::scope(|scope| {
            for (session, ids) in sessions.iter_mut().zip(&mut ids) {
                scope.spawn(|| ids.extend(session.draw_batch(10_000)));
            }
        });
        enough(&ids)
    });
    ids
}

/// Neither server notices the other: the process in `postmaster.pid` is each one's own, and their
/// shared memory is apart. They ruin the database, but not the ids.
#[test]
fn two_pods_with_one_volume_draw_different_ids_with_leases_and_the_same_with_a_configured_number() {
    if !can_run() {
        return;
    }
    let fleet = Fleet::start();
    let ids = draw_with_one_volume(&member(&fleet, "shard-0"), |[_, second]| second.len() >= 100_000);
    assert_unique(ids.iter().flatten());
    fleet.hear_history();

    let configured = Container::new("shard-0", &[("SNOWFLAKE_WORKER_ID", "7")]);
    draw_with_one_volume(&configured, |[first, second]| {
        let first = BTreeSet::from_iter(first);
        second.iter().any(|id| first.contains(id))
    });
}
