//! Failover by Patroni with etcd, under load: the recipe of docs/operate.md, word for word.
//!
//! The configuration of the extension is the page's own block. The tests assert that no id is
//! stored or seen twice, over all leaders. A new leader draws above everything that was stored and,
//! because its clock is right, above everything that was seen. If its clock is behind, it draws
//! nothing until the clock has caught up.
//!
//! A parser checks the pages' other YAML, which cannot run here.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use cluster::drawing::{HOUR_MS, greatest};
use cluster::pages::{block, pages};
use cluster::patroni::SCOPE;
use cluster::{Ledger, Load, Patroni, Promise, faketime_library, has_patroni, skip, wait_until};

/// Patroni's dynamic configuration, from the page.
fn recipe() -> &'static str {
    block("patroni-settings")
}

/// The same for a cluster that does not exist yet.
fn bootstrap(dynamic: &str) -> String {
    let indented = dynamic.lines().map(|line| format!("    {line}\n"));
    format!("bootstrap:\n  dcs:\n{}", indented.collect::<String>())
}

fn smallest(ids: &[i64]) -> i64 {
    *ids.iter().min().expect("ids were drawn")
}

/// First the leader's machine fails, and the others notice when its lock has run out. Then only its
/// server fails, and its Patroni releases the lock at once. Each time the old leader comes back and
/// is rewound, because it may hold rows that no other member has.
#[test]
fn no_id_comes_twice_while_patroni_fails_over_twice() {
    if !has_patroni() {
        return skip("Patroni and etcd are not installed");
    }
    let cluster = Patroni::start(3, &bootstrap(&format!("primary_start_timeout: 0\n{}", recipe())), false);
    cluster.connect().batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    let mut ledger = Ledger::default();
    for only_the_server in [false, true] {
        let leader = cluster.leader();
        let load = Load::start_at(&cluster.connection(), 4);
        load.wait_for(200);
        if only_the_server {
            cluster.crash(leader);
        } else {
            cluster.kill(leader);
        }
        ledger.add(load.end());

        // The load starts as soon as a new leader takes writes.
        assert_ne!(cluster.leader(), leader);
        let load = Load::start_at(&cluster.connection(), 4);
        load.wait_for(200);
        if !only_the_server {
            cluster.start_again(leader);
        }
        cluster.wait_until_followed_by(2);
        load.wait_for(200);
        let after = load.end();
        assert!(smallest(&after.seen) > greatest(&ledger.seen));
        let held = BTreeSet::from_iter(ledger.check_held(&mut cluster.connect(), Promise::Held));
        assert!(after.stored.iter().all(|id| held.contains(id)));
        ledger.add(after);
    }
    let next = ledger.check_at(&cluster.connection(), Promise::Held).drawn();
    assert!(next > greatest(&ledger.seen));
}

/// The recipe for an existing cluster. Its standby is synchronous, so it has what clients were told
/// is stored, and the mark above that. Ids that a client has only seen do not come again either,
/// but that is not promised.
#[test]
fn a_standby_that_patroni_promotes_takes_no_id_back_though_its_clock_is_behind() {
    if !has_patroni() {
        return skip("Patroni and etcd are not installed");
    }
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let cluster = Patroni::start(2, &bootstrap("synchronous_mode: true"), true);
    cluster.edit_config(recipe());
    cluster.patronictl(&["restart", SCOPE, "--force"]);
    cluster.wait_until_followed_by(1);
    cluster.connect().batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    cluster.wait_until_synchronous();
    let primary = cluster.leader();
    let standby = 1 - primary;
    let load = Load::start_at(&cluster.connection(), 4);
    load.wait_for(200);
    cluster.set_clock_offset(standby, -3600.0);
    load.wait_for(200);
    cluster.kill(primary);
    let mut ledger = load.end();

    let held = BTreeSet::from_iter(ledger.check_held(&mut cluster.connect(), Promise::Held));
    assert!(ledger.stored.iter().all(|id| held.contains(id)), "what was committed is there");
    let behind_ms = ledger.check_at(&cluster.connection(), Promise::Held).refused();
    // An hour, plus how far the mark was ahead, less the time that the failover took.
    assert!((1..=HOUR_MS + 1101).contains(&behind_ms), "{behind_ms}");
    cluster.set_clock_offset(standby, 0.0);
    let first = ledger.check_at(&cluster.connection(), Promise::Held).drawn();
    assert!(first > greatest(&ledger.seen));

    // Then a planned switchover back: the leader is shut down, and the other member is promoted
    // when it has received everything.
    cluster.start_again(primary);
    cluster.wait_until_synchronous();
    let load = Load::start_at(&cluster.connection(), 4);
    load.wait_for(200);
    cluster.patronictl(&["switchover", SCOPE, "--force"]);
    wait_until("the other leader", || cluster.leader() == primary);
    ledger.add(load.end());
    let next = ledger.check_at(&cluster.connection(), Promise::Held).drawn();
    assert!(next > greatest(&ledger.seen));
}

/// Reads YAML, and checks what Kubernetes requires: each document has a kind, and CloudNativePG's
/// parameters are strings.
const READ: &str = "
import sys, yaml
for document in yaml.safe_load_all(sys.stdin):
    assert isinstance(document, dict)
    if 'kind' in document:
        assert {'apiVersion', 'metadata', 'stringData' if document['kind'] == 'Secret' else 'spec'} <= document.keys()
    if document.get('kind') == 'Cluster':
        assert all(isinstance(value, str) for value in document['spec']['postgresql']['parameters'].values())
";

#[test]
fn the_pages_yaml_can_be_read() {
    // Debian's Python, which has the parser that Patroni needs.
    let mut python = Command::new("/usr/bin/python3");
    if !python.args(["-c", "import yaml"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return skip("Python has no parser for YAML");
    }
    let blocks: Vec<_> =
        pages().iter().flat_map(|page| &page.blocks).filter(|block| block.language == "yaml").collect();
    assert_eq!(blocks.len(), 5, "for Patroni, Prometheus, CloudNativePG, and two for StatefulSets");
    for block in blocks.iter().map(|block| &block.text) {
        let mut python = Command::new("/usr/bin/python3");
        let mut python = python.args(["-c", READ]).stdin(Stdio::piped()).spawn().unwrap();
        python.stdin.take().unwrap().write_all(block.as_bytes()).unwrap();
        assert!(python.wait().unwrap().success(), "{block}");
    }
}
