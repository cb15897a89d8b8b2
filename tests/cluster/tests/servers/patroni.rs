//! Failover by Patroni with etcd, under load: the recipes of docs/operate.md and
//! docs/fleet-operate.md, word for word, with a configured number and with leased ones.
//!
//! The configuration of the extension is the pages' own blocks. The tests assert that no id is
//! stored or seen twice, over all leaders. A new leader draws above everything that was stored and,
//! because its clock is right, above everything that was seen. If its clock is behind, it draws
//! nothing until the clock has caught up. With leased numbers, that is only for the order of the
//! ids: each leader has a number of its own. So only they stay unique if two leaders live.
//!
//! A parser checks the pages' other YAML, which cannot run here.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

use cluster::drawing::{Draw, HOUR_MS, assert_unique, greatest};
use cluster::etcd::Etcd;
use cluster::fleet::Leases;
use cluster::pages::{block, pages};
use cluster::patroni::SCOPE;
use cluster::registry::now_ms;
use cluster::{Ledger, Load, Operated, Patroni, Promise, faketime_library, has_patroni, skip, wait_until};
use postgres::{Client, NoTls};
use serde_json::Value;

/// How many sessions draw and insert at once. Up to six clusters run at the same time, and more
/// load would keep a dead leader from being rewound in time.
const SESSIONS: usize = 2;

/// Where the servers' numbers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    /// All members have the same number in their configuration.
    Configured,
    /// Members lease numbers from the etcd that Patroni uses.
    Leased,
}

use Numbers::{Configured, Leased};

/// Runs a test with both, at the same time, because most of it is waiting for a dead leader's lock.
fn with_both(test: impl Fn(Numbers) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        for numbers in [Configured, Leased] {
            // The name stands in the message of a panic.
            let named = thread::Builder::new().name(format!("{numbers:?}"));
            named.spawn_scoped(scope, move || test(numbers)).expect("a thread can start");
        }
    });
}

impl Numbers {
    /// Starts an etcd, with a registry if numbers are leased.
    fn etcd(self) -> Etcd {
        let mut etcd = Etcd::start(1);
        if self == Leased {
            etcd.make_registry();
        }
        etcd.enable_passwords();
        etcd
    }

    /// Patroni's dynamic configuration, from a page. Only the way to etcd is another one here.
    fn recipe(self, etcd: &Etcd) -> String {
        const PAGES_ETCD: &str = "etcd:https://a.example:2379,https://b.example:2379?cacert=/etc/ssl/etcd-ca.pem\
                                  &user=snowflake&password_file=/etc/snowflake-etcd";
        match self {
            Configured => block("patroni-settings").to_owned(),
            Leased => {
                let recipe = block("patroni-registry");
                assert!(recipe.contains(PAGES_ETCD), "{recipe}");
                recipe.replace(PAGES_ETCD, &etcd.address())
            }
        }
    }

    /// Waits until a server can draw. A standby leases its number before it is promoted.
    fn wait_until_ready(self, cluster: &Patroni, member: usize) {
        if self == Leased {
            // In a new session each time: Patroni may restart the server meanwhile. On a standby,
            // the view is there once it has been replayed.
            wait_until("a lease", || {
                let state = |mut session: Client| session.query_one("SELECT state FROM snowflake_lease", &[]);
                let row = cluster.connection_to(member).connect(NoTls).and_then(state);
                row.is_ok_and(|row| row.get::<_, &str>(0) == "held")
            });
        }
    }
}

fn session(cluster: &Patroni, member: usize) -> Client {
    cluster.connection_to(member).connect(NoTls).expect("the member's server accepts a connection")
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
    with_both(|numbers| {
        let etcd = numbers.etcd();
        let dynamic = format!("primary_start_timeout: 0\n{}", numbers.recipe(&etcd));
        let cluster = Patroni::start(etcd, 3, &bootstrap(&dynamic), false);
        cluster.connect().batch_execute("CREATE EXTENSION snowflake_id").unwrap();
        let mut ledger = Ledger::default();
        for only_the_server in [false, true] {
            let leader = cluster.leader();
            (0..3).for_each(|member| numbers.wait_until_ready(&cluster, member));
            let number = session(&cluster, leader).lease("worker_id");
            let load = Load::start_at(&cluster.connection(), SESSIONS);
            load.wait_for(200);
            if only_the_server {
                cluster.crash(leader);
            } else {
                cluster.kill(leader);
            }
            ledger.add(load.end());

            // The load starts as soon as a new leader takes writes.
            let next = cluster.leader();
            assert_ne!(next, leader);
            numbers.wait_until_ready(&cluster, next);
            // It leased its number while the leader had one.
            assert_eq!(session(&cluster, next).lease("worker_id") == number, numbers == Configured);
            let load = Load::start_at(&cluster.connection(), SESSIONS);
            load.wait_for(200);
            if !only_the_server {
                cluster.start_again(leader);
            }
            cluster.wait_until_standby(leader);
            cluster.wait_until_followed_by(2);
            load.wait_for(200);
            let after = load.end();
            // With another number, too: a failover takes longer than ids are ahead of the clock.
            assert!(smallest(&after.seen) > greatest(&ledger.seen));
            let held = BTreeSet::from_iter(ledger.check_held(&mut cluster.connect(), Promise::Held));
            assert!(after.stored.iter().all(|id| held.contains(id)));
            ledger.add(after);
        }
        let next = ledger.check_at(&cluster.connection(), Promise::Held).drawn();
        assert!(next > greatest(&ledger.seen));
    });
}

/// The recipe for an existing cluster. Its standby is synchronous, so it has what clients were told
/// is stored, and the mark above that. Ids that a client has only seen do not come again either.
/// That is not promised with a configured number.
#[test]
fn a_standby_that_patroni_promotes_takes_no_id_back_though_its_clock_is_behind() {
    if !has_patroni() {
        return skip("Patroni and etcd are not installed");
    }
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    with_both(|numbers| {
        let etcd = numbers.etcd();
        let recipe = numbers.recipe(&etcd);
        let cluster = Patroni::start(etcd, 2, &bootstrap("synchronous_mode: true"), true);
        cluster.edit_config(&recipe);
        cluster.patronictl(&["restart", SCOPE, "--force"]);
        cluster.wait_until_followed_by(1);
        cluster.connect().batch_execute("CREATE EXTENSION snowflake_id").unwrap();
        cluster.wait_until_synchronous();
        let primary = cluster.leader();
        let standby = 1 - primary;
        // A server whose clock is an hour off renews a lease, and acquires none.
        [primary, standby].into_iter().for_each(|member| numbers.wait_until_ready(&cluster, member));
        let load = Load::start_at(&cluster.connection(), SESSIONS);
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
        cluster.wait_until_standby(primary);
        cluster.wait_until_synchronous();
        numbers.wait_until_ready(&cluster, primary);
        let load = Load::start_at(&cluster.connection(), SESSIONS);
        load.wait_for(200);
        cluster.patronictl(&["switchover", SCOPE, "--force"]);
        wait_until("the other leader", || cluster.leader() == primary);
        ledger.add(load.end());
        let next = ledger.check_at(&cluster.connection(), Promise::Held).drawn();
        assert!(next > greatest(&ledger.seen));
    });
}

/// The leader's Patroni dies, and its server goes on as a primary. The other member is promoted
/// when the lock has run out, so two primaries draw for as long as the old one's Patroni is dead.
/// Their clocks then stand still at the same instant, so that it is certain which ids a configured
/// number repeats: all.
#[test]
fn two_primaries_of_a_patroni_that_died_alone_repeat_ids_with_a_configured_number_only() {
    if !has_patroni() {
        return skip("Patroni and etcd are not installed");
    }
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    with_both(|numbers| {
        let etcd = numbers.etcd();
        let recipe = numbers.recipe(&etcd);
        let cluster = Patroni::start(etcd, 2, &bootstrap(&recipe), true);
        cluster.connect().batch_execute("CREATE EXTENSION snowflake_id").unwrap();
        let old = cluster.leader();
        let new = 1 - old;
        [old, new].into_iter().for_each(|member| numbers.wait_until_ready(&cluster, member));
        let load = Load::start_at(&cluster.connection_to(old), SESSIONS);
        load.wait_for(50);
        cluster.kill_patroni(old);
        let mut promoted = session(&cluster, new);
        wait_until("the promotion", || promoted.value("pg_is_in_recovery()") == "false");
        let more = Load::start_at(&cluster.connection_to(new), SESSIONS);
        more.wait_for(50);
        // The same sessions still draw from the old one.
        load.wait_for(50);
        let mut orphan = session(&cluster, old);
        assert_eq!(orphan.value("pg_is_in_recovery()"), "false");
        if numbers == Leased {
            let renewals = orphan.lease("renewals");
            wait_until("a renewal by the old leader", || orphan.lease("renewals") != renewals);
            for session in [&mut orphan, &mut promoted] {
                assert_eq!(session.lease("state"), "held");
                // The registry's list has both.
                let list = cluster.etcd.operate(&["show", "--json"]);
                let list: Value = serde_json::from_str(&list).unwrap();
                let number: i64 = session.lease("worker_id").parse().unwrap();
                let port: i64 = session.value("current_setting('port')").parse().unwrap();
                let held = list["numbers"].as_array().unwrap().iter().find(|shown| shown["worker"] == number);
                assert_eq!(held.map(|held| held["port"].as_i64()), Some(Some(port)), "{list}");
            }
        }
        let loads = [load.end(), more.end()];

        let instant_ms = now_ms() + 2000;
        cluster.freeze_clocks(instant_ms);
        let frozen = [&mut orphan, &mut promoted].map(|session| session.draw_batch(100));
        if numbers == Configured {
            assert_eq!(frozen[0], frozen[1], "two servers with one number draw the same ids");
            return;
        }
        let [mut ledger, more] = loads;
        ledger.add(more);
        assert_unique(ledger.seen.iter().chain(frozen.iter().flatten()));

        // Patroni comes back, demotes its server, and rewinds it.
        [old, new].into_iter().for_each(|member| cluster.set_clock_offset(member, 0.0));
        wait_until("the instant at which the clocks stood", || now_ms() > instant_ms + 1);
        cluster.start_again(old);
        cluster.wait_until_standby(old);
        cluster.wait_until_followed_by(1);
        assert_eq!(cluster.leader(), new);
        numbers.wait_until_ready(&cluster, old);
        let load = Load::start_at(&cluster.connection(), SESSIONS);
        load.wait_for(50);
        ledger.add(load.end());
        ledger.check_at(&cluster.connection(), Promise::Held).drawn();
        assert_unique(ledger.seen.iter().chain(frozen.iter().flatten()));
    });
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
    assert_eq!(blocks.len(), 6, "two for Patroni, Prometheus, CloudNativePG, and two for StatefulSets");
    for block in blocks.iter().map(|block| &block.text) {
        let mut python = Command::new("/usr/bin/python3");
        let mut python = python.args(["-c", READ]).stdin(Stdio::piped()).spawn().unwrap();
        python.stdin.take().unwrap().write_all(block.as_bytes()).unwrap();
        assert!(python.wait().unwrap().success(), "{block}");
    }
}
