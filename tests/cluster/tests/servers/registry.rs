//! The registry of a fleet: `sql/registry.sql` on real servers, through the extension's connection
//! (`src/registry`), used by the core's holder as a server uses it. None of these needs the
//! extension.
//!
//! Deadlines of a second are there to be missed. All others only keep a test from hanging.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cluster::pages::block;
use cluster::pooler::{PgBouncer, PoolMode, has_pgbouncer};
use cluster::registry::{Poll, ROLE, config, now_ms, role_sql};
use cluster::{Builder, Draw, Member, Oracle, Server, refused, skip, wait_until};
use postgres::Client;
use snowflake_core::identity::Identity;
use snowflake_core::layout::{BUILT_IN, Layout};
use snowflake_core::lease::{Failure, LeaseNotice, LeaseTerms};
use snowflake_core::registry::{
    Change, DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, NumberRecord, Registry, Swap, SwapAnswer, Wanted,
};
use snowflake_registry::{Config, Postgres, RegistryError, RegistryStep};

fn plain() -> Builder {
    Server::builder().without_preload().durable()
}

fn registry() -> Server {
    let server = plain().start();
    server.make_registry();
    server
}

fn config_of(server: &Server) -> Config {
    config(&server.registry_conninfo())
}

/// A deadline that a test expects to be missed.
fn hasty(config: Config) -> Config {
    Config { timeout: Duration::from_secs(1), ..config }
}

fn named(host: &str, config: Config) -> Config {
    let member = snowflake_registry::MemberName { host: host.to_owned(), ..config.member.clone() };
    Config { member, ..config }
}

fn execute(server: &Server, sql: &str) {
    server.connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Waits until a session of the members' role waits for something, and returns its process id.
fn waiting(session: &mut Client, event: &str) -> i32 {
    let sql = format!("SELECT pid FROM pg_stat_activity WHERE usename = '{ROLE}' AND wait_event = '{event}'");
    let mut pid = None;
    wait_until(event, || {
        pid = session.query_opt(&sql, &[]).expect("there is one at most").map(|row| row.get(0));
        pid.is_some()
    });
    pid.expect("it was found")
}

/// Makes every commit of the registry wait for a standby that does not exist.
fn lose_the_synchronous_standby(server: &Server) {
    server.set_config("synchronous_standby_names", "gone");
    server.reload();
}

fn find_the_synchronous_standby(server: &Server) {
    server.unset_config("synchronous_standby_names");
    server.reload();
}

// A fleet at work

#[test]
fn many_that_start_at_once_get_different_numbers_without_a_deadlock() {
    for starters in [2, 24] {
        let (server, oracle) = (registry(), Oracle::new());
        let start = Barrier::new(starters);
        let numbers: BTreeSet<i64> = thread::scope(|scope| {
            let start_one = || {
                let member = Member::new(config_of(&server), &oracle);
                // Connected already, they all change the fleet's record at the same moment.
                member.registry().read(Wanted::All).unwrap();
                start.wait();
                member.lease().worker
            };
            let threads: Vec<_> = (0..starters).map(|_| scope.spawn(start_one)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!((numbers.len(), oracle.count()), (starters, starters));
        assert_eq!(server.connect().value("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"), "0");
        assert_eq!(oracle.accept_history(&mut server.connect()), starters);
    }
}

#[test]
fn a_renewal_extends_the_lease_and_a_give_back_ends_it() {
    let (server, oracle) = (registry(), Oracle::new());
    let member = Member::new(named("a", config_of(&server)), &oracle);
    let first = member.lease();
    let renewed = member.lease();
    assert_eq!((renewed.worker, renewed.from_ms, renewed.holder), (first.worker, first.from_ms, first.holder));
    assert!(renewed.until_ms > first.until_ms);
    let mut session = server.connect();
    let sql = "SELECT state, host, port, version, begins = to_timestamp($1 / 1000.0::float8), \
               ends = to_timestamp($2 / 1000.0::float8), remaining > '0', clock_offset < '1 min' \
               FROM snowflake_registry.fleet";
    let row = session.query_one(sql, &[&(renewed.from_ms as f64), &(renewed.until_ms as f64)]).unwrap();
    assert_eq!((row.get(0), row.get(1), row.get(2), row.get(3)), ("held", "a", 5432, "0.3.0"));
    assert!((4..8).all(|column| row.get(column)), "{row:?}");

    member.give_back();
    assert_eq!((member.held(), member.draw()), (None, None));
    let until_ms: i64 = session.query_one("SELECT until_ms FROM snowflake_registry.numbers", &[]).unwrap().get(0);
    assert!(until_ms < renewed.until_ms);
    // The same server gets the same number, from where it was given back.
    let again = member.lease();
    assert_eq!(again.worker, first.worker);
    assert!(again.from_ms >= until_ms && again.holder != first.holder);
    assert_eq!(oracle.accept_history(&mut session), 2);
}

#[test]
fn a_held_number_that_the_range_leaves_out_is_shown_as_such() {
    let (server, oracle) = (registry(), Oracle::new());
    let mut session = server.connect();
    let mut states = |range: &str| {
        execute(&server, &format!("SELECT snowflake_registry.set_range({range})"));
        session.value("SELECT string_agg(worker || ' ' || state, ', ' ORDER BY worker) FROM snowflake_registry.fleet")
    };
    states("5, 5");
    let member = Member::new(config_of(&server), &oracle);
    member.lease();
    assert_eq!(states("5, 5"), "5 held");
    assert_eq!(states("6, 9"), "5 held, outside the range");
    assert_eq!(states("0, 4"), "5 held, outside the range");
    // It is renewed nevertheless.
    member.lease();
    assert_eq!(states("0, 4"), "5 held, outside the range");
    // A lease that begins later, and a number that nobody draws with.
    execute(&server, "UPDATE snowflake_registry.numbers SET from_ms = until_ms - 1000");
    execute(&server, "SELECT snowflake_registry.reserve(8, now() + '1 hour')");
    assert_eq!(states("0, 4"), "5 ahead, outside the range, 8 reserved");
    assert_eq!(states("5, 5"), "5 ahead, 8 reserved");
    execute(&server, "UPDATE snowflake_registry.numbers SET from_ms = 0, until_ms = 1");
    assert_eq!(states("0, 4"), "5 free, 8 free");
}

#[test]
fn the_history_tells_which_server_drew_an_id() {
    let (server, oracle) = (registry(), Oracle::new());
    execute(&server, "SELECT snowflake_registry.set_range(7, 7)");
    let first = Member::new(named("first", config_of(&server)), &oracle);
    let (lease, id) = (first.lease(), first.draw().expect("it has a number"));
    first.give_back();
    let second = Member::new(named("second", config_of(&server)), &oracle);
    let next = second.lease();
    // It does not say that its lease ends.
    second.crash();
    let mut session = server.connect();
    let mut drawn_by = |at_ms: i64| -> Vec<String> {
        let sql = "SELECT host FROM snowflake_registry.drawn_by(snowflake_registry.instant($1), 7)";
        session.query(sql, &[&at_ms]).unwrap().iter().map(|row| row.get(0)).collect()
    };
    let layout = Layout::parse("snowflake").unwrap();
    assert_eq!(drawn_by(layout.parts(id).unwrap().created_at_ms), ["first"]);
    assert_eq!(drawn_by(next.from_ms), ["second"]);
    assert_eq!(drawn_by(next.until_ms - 1), ["second"]);
    assert_eq!(drawn_by(lease.from_ms - 1), [""; 0]);
    assert_eq!(drawn_by(next.until_ms), [""; 0]);
}

#[test]
fn the_first_server_brings_what_the_fleet_does_not_know_yet() {
    let (server, oracle) = (registry(), Oracle::new());
    let first = Member::new(config_of(&server), &oracle);
    let before = first.registry().read(Wanted::All).unwrap().fleet;
    assert_eq!((before.layout, before.range, before.longest_ms, before.skew_ms), (None, None, 0, 0));
    first.lease();
    let fleet = first.registry().read(Wanted::All).unwrap().fleet;
    let fingerprint = Layout::parse("snowflake").unwrap().fingerprint();
    assert_eq!((fleet.layout, fleet.range), (Some((fingerprint, false)), Some((0, 1023))));
    assert_eq!((fleet.longest_ms, fleet.skew_ms), (DEFAULT_LEASE_MS, DEFAULT_SKEW_MS));
    assert_eq!(fleet.uuid, before.uuid);
    // Those that come later take it as it is.
    let longer = LeaseTerms { max_borrow_ms: 2 * DEFAULT_LEASE_MS };
    Member::new(config_of(&server), &oracle).with_terms(longer).lease();
    assert_eq!(first.registry().read(Wanted::All).unwrap().fleet, fleet);
    let other = Member::new(config_of(&server), &oracle).with_layout("js53");
    assert!(matches!(other.keep(), Err(Failure::OtherLayout { .. })));
}

#[test]
fn each_datacenter_has_its_own_numbers() {
    let (server, oracle) = (registry(), Oracle::new());
    execute(&server, "SELECT snowflake_registry.set_range(3, 3)");
    for datacenter in [0, 1, 31] {
        let config = Config { datacenter: Some(datacenter), ..config_of(&server) };
        let member = Member::new(config.clone(), &oracle).with_layout("twitter");
        assert_eq!(member.lease().worker, 3);
        let second = Member::new(config, &oracle).with_layout("twitter");
        assert!(matches!(second.keep(), Err(Failure::NoneFree { numbers: 1, living: 1, first: None })));
        let found = "SELECT d.host FROM snowflake_registry.fleet n, \
                     snowflake_registry.drawn_by(n.begins, n.worker, n.datacenter) d WHERE n.datacenter = $1";
        let datacenter = i32::try_from(datacenter).unwrap();
        assert_eq!(server.connect().query(found, &[&datacenter]).unwrap().len(), 1);
    }
    assert_eq!(oracle.accept_history(&mut server.connect()), 3);
}

#[test]
fn behind_a_pooler_that_keeps_a_session_for_a_transaction_only() {
    if !has_pgbouncer() {
        return skip("PgBouncer is not installed");
    }
    let (server, oracle) = (registry(), Oracle::new());
    let pooler = PgBouncer::start(&server, PoolMode::Transaction);
    let members = [(); 3].map(|()| Member::new(config(&pooler.conninfo()), &oracle));
    let numbers: BTreeSet<i64> = members.iter().map(|member| member.lease().worker).collect();
    assert_eq!(numbers.len(), members.len());
    for _ in 0..3 {
        for member in &members {
            member.lease();
        }
    }
    // Neither settings nor prepared statements stay in the session that all of them share.
    let mut other = pooler.connect();
    let left = other.simple_query("SELECT name FROM pg_settings WHERE source = 'session'").unwrap();
    let left: Vec<_> = left.iter().map(|message| format!("{message:?}")).filter(|text| text.contains("Row(")).collect();
    assert!(left.iter().all(|row| row.contains("client_encoding") || row.contains("application_name")), "{left:?}");
    members[0].give_back();
}

#[test]
fn the_session_bears_the_name_of_the_extension_unless_the_string_has_another() {
    let server = registry();
    let conninfo = server.registry_conninfo();
    for (conninfo, name) in [(conninfo.clone(), "snowflake_id"), (format!("{conninfo} application_name=mine"), "mine")]
    {
        let registry = Postgres::new(config(&conninfo), Poll);
        registry.read(Wanted::All).unwrap();
        let pid = registry.backend_pid().expect("it is connected");
        let sql = "SELECT application_name FROM pg_stat_activity WHERE pid = $1";
        assert_eq!(server.connect().query_one(sql, &[&pid]).unwrap().get::<_, String>(0), name);
    }
}

#[test]
fn what_postgresql_rolls_back_for_another_transactions_sake_is_tried_again() {
    let (server, oracle) = (registry(), Oracle::new());
    execute(&server, &format!("ALTER ROLE {ROLE} SET default_transaction_isolation = 'repeatable read'"));
    Member::new(config_of(&server), &oracle).lease();
    let (mut other, mut observer) = (server.connect(), server.connect());
    let mut update = other.transaction().unwrap();
    update.batch_execute("UPDATE snowflake_registry.fleets SET version = version").unwrap();
    thread::scope(|scope| {
        let member = scope.spawn(|| {
            let member = Member::new(config_of(&server), &oracle);
            member.keep().map(|()| member.held().is_some())
        });
        waiting(&mut observer, "transactionid");
        // The row is another version now, with the same values.
        update.commit().unwrap();
        assert!(matches!(member.join().unwrap(), Ok(true)));
    });
    assert!(server.log().contains("could not serialize access due to concurrent update"));
}

// Answers that are lost

#[test]
fn a_session_that_is_terminated_between_two_calls_is_replaced() {
    let (server, oracle) = (registry(), Oracle::new());
    let member = Member::new(config_of(&server), &oracle);
    let first = member.lease();
    let pid = member.registry().connection_id().unwrap();
    let mut session = server.connect();
    session.query("SELECT pg_terminate_backend($1)", &[&pid]).unwrap();
    let left = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    wait_until("the end of the session", || session.value(&left) == "0");
    assert_eq!(member.lease().worker, first.worker);
    assert_ne!(member.registry().connection_id(), Some(pid));
    server.restart();
    assert_eq!(member.lease().worker, first.worker);
    server.crash();
    assert!(matches!(member.unanswered(), RegistryError::Connect(_)));
    server.start_again();
    assert_eq!(member.lease().worker, first.worker);
}

#[test]
fn a_swap_that_is_terminated_before_its_commit_is_not_done() {
    let (server, oracle) = (registry(), Oracle::new());
    Member::new(config_of(&server), &oracle).lease();
    let member = Member::new(config_of(&server), &oracle);
    let (mut locker, mut observer) = (server.connect(), server.connect());
    let mut lock = locker.transaction().unwrap();
    lock.batch_execute("SELECT FROM snowflake_registry.fleets FOR UPDATE").unwrap();
    let killer = thread::spawn(move || {
        let pid = waiting(&mut observer, "transactionid");
        observer.query("SELECT pg_terminate_backend($1)", &[&pid]).unwrap();
    });
    let error = member.unanswered();
    assert!(matches!(error, RegistryError::Lost { step: RegistryStep::SwapNumber, .. }), "{error:?}");
    killer.join().unwrap();
    lock.rollback().unwrap();
    member.lease();
    assert_eq!((oracle.count(), oracle.accept_history(&mut server.connect())), (2, 2));
}

#[test]
fn a_request_that_has_no_answer_is_given_back() {
    let (server, oracle) = (registry(), Oracle::new());
    Member::new(config_of(&server), &oracle).lease();
    let member = Member::new(config_of(&server), &oracle);
    lose_the_synchronous_standby(&server);
    let mut observer = server.connect();
    let ender = thread::spawn(move || {
        let pid = waiting(&mut observer, "SyncRep");
        observer.query("SELECT pg_terminate_backend($1)", &[&pid]).unwrap();
    });
    member.unanswered();
    ender.join().unwrap();
    find_the_synchronous_standby(&server);
    member.give_back();
    assert_eq!(member.held(), None);
    let mut session = server.connect();
    assert_eq!(session.value("SELECT count(*) FROM snowflake_registry.fleet WHERE state = 'free'"), "1");
    assert_eq!(oracle.accept_history(&mut session), 2);
}

/// The same for a cancelled and for a terminated wait: the change is made, but may be lost at a
/// failover, so that it is not an answer.
#[test]
fn a_wait_for_a_synchronous_standby_that_is_ended_is_a_lost_answer() {
    for (end, defaults) in [
        ("pg_cancel_backend", ""),
        ("pg_terminate_backend", ""),
        // What an operator may have set for the role changes nothing.
        ("pg_cancel_backend", "SET synchronous_commit = off"),
        ("pg_cancel_backend", "SET client_min_messages = error"),
        ("pg_cancel_backend", "SET client_min_messages = debug5"),
        ("pg_cancel_backend", "SET default_transaction_isolation = serializable"),
    ] {
        let (server, oracle) = (registry(), Oracle::new());
        if !defaults.is_empty() {
            execute(&server, &format!("ALTER ROLE {ROLE} {defaults}"));
        }
        let other = Member::new(config_of(&server), &oracle);
        other.lease();
        let member = Member::new(config_of(&server), &oracle);
        lose_the_synchronous_standby(&server);
        let mut observer = server.connect();
        let ender = thread::spawn(move || {
            let pid = waiting(&mut observer, "SyncRep");
            observer.query(&format!("SELECT {end}($1)"), &[&pid]).unwrap();
        });
        let error = member.unanswered();
        ender.join().unwrap();
        match end {
            "pg_cancel_backend" => {
                assert!(
                    matches!(&error, RegistryError::WaitCancelled(notice) if notice.severity == "WARNING"),
                    "{error:?}"
                );
                assert_eq!(error.sqlstate(), "08007");
            }
            _ => assert!(matches!(error, RegistryError::Lost { step: RegistryStep::SwapNumber, .. }), "{error:?}"),
        }
        assert_eq!(member.held(), None, "it draws with what the registry may lose");
        // It is there, and the holder finds that it is its own.
        assert_eq!(server.connect().value("SELECT count(*) FROM snowflake_registry.numbers"), "2");
        find_the_synchronous_standby(&server);
        member.lease();
        assert!(!member.has_reported(|notice| matches!(notice, LeaseNotice::Copied(_))));
        assert_eq!((oracle.count(), oracle.accept_history(&mut server.connect())), (2, 2));
    }
}

#[test]
fn a_synchronous_standby_that_is_gone_means_no_answer_and_leaves_one_session_behind() {
    let (server, oracle) = (registry(), Oracle::new());
    let other = Member::new(config_of(&server), &oracle);
    other.lease();
    let mut member = Member::new(config_of(&server), &oracle);
    // Connects before the deadline gets short.
    member.registry().read(Wanted::All).unwrap();
    lose_the_synchronous_standby(&server);
    member.set_config(hasty(config_of(&server)));
    for _ in 0..4 {
        let error = member.unanswered();
        assert!(matches!(error, RegistryError::TimedOut { step: RegistryStep::SwapNumber, .. }), "{error:?}");
        assert!(error.hint().is_some_and(|hint| hint.contains("pg_stat_replication")));
    }
    assert_eq!(member.held(), None);
    let mut observer = server.connect();
    let pid = waiting(&mut observer, "SyncRep");
    // Those that came later waited for its lock, and have not stayed.
    let others =
        format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{ROLE}' AND pid <> {pid} AND state = 'active'");
    wait_until("the end of the waits for locks", || observer.value(&others) == "0");
    find_the_synchronous_standby(&server);
    member.set_config(config_of(&server));
    member.lease();
    assert_eq!(oracle.count(), 2);
}

// A registry that has lost

#[test]
fn a_failover_that_loses_the_last_changes_begins_a_generation() {
    let (server, oracle) = (registry(), Oracle::new());
    let conninfo = |standby: &Server| {
        let sockets = [&server, standby].map(|server| server.data_dir().parent().unwrap().display().to_string());
        format!("host='{}' user={ROLE} dbname=postgres target_session_attrs=read-write", sockets.join(","))
    };
    let standby = server.standby().start();
    let members = [(); 2].map(|()| Member::new(config(&conninfo(&standby)), &oracle));
    let kept = members[0].lease();
    standby.wait_until_replayed(&server.flushed());
    let received = standby.cut_off();
    let lost = members[1].lease();
    members[0].lease();
    server.crash();
    standby.wait_until_replayed(&received);
    standby.promote();

    // Each finds the standby by itself. What it holds stays its own, though the registry knows
    // less.
    for (member, before) in members.iter().zip([kept, lost]) {
        let _ = member.keep();
        let held = member.held().expect("what it held");
        assert_eq!((held.worker, held.from_ms, held.holder), (before.worker, before.from_ms, before.holder));
    }
    let mut session = standby.connect();
    assert_eq!(session.value("SELECT generation FROM snowflake_registry.fleets"), "2");
    assert!(members.iter().any(|member| member.has_reported(|notice| matches!(notice, LeaseNotice::Forgot(_)))));
    // A new one must wait until the lost lease has ended.
    let new = Member::new(config_of(&standby), &oracle);
    assert!(matches!(new.keep(), Err(Failure::Frozen { until_ms }) if until_ms > lost.until_ms));
    oracle.accept_history(&mut session);
}

#[test]
fn a_failover_to_a_synchronous_standby_begins_none_if_the_operator_says_so() {
    let (server, oracle) = (registry(), Oracle::new());
    execute(&server, "SELECT snowflake_registry.set_loses_nothing(true)");
    let standby = server.standby().start();
    let mut member = Member::new(config_of(&server), &oracle);
    let before = member.lease();
    standby.wait_until_replayed(&server.flushed());
    server.crash();
    standby.promote();
    member.set_config(config_of(&standby));
    assert_eq!(member.lease().holder, before.holder);
    assert_eq!(standby.connect().value("SELECT (generation, timeline) FROM snowflake_registry.fleets"), "(1,2)");
    Member::new(config_of(&standby), &oracle).lease();
}

#[test]
fn a_backup_that_is_restored_is_frozen_when_the_operator_says_so() {
    let (server, oracle) = (registry(), Oracle::new());
    let mut kept = Member::new(config_of(&server), &oracle);
    let before = kept.lease();
    // Simply started, it shows the same system identifier and timeline.
    let backup = server.base_backup();
    let lost = Member::new(config_of(&server), &oracle).lease();
    server.crash();
    let restored = backup.alone().start();
    execute(&restored, "SELECT snowflake_registry.restored()");
    kept.set_config(config_of(&restored));
    let _ = kept.keep();
    assert_eq!(kept.held().map(|lease| lease.holder), Some(before.holder));
    let new = Member::new(config_of(&restored), &oracle);
    assert!(matches!(new.keep(), Err(Failure::Frozen { until_ms }) if until_ms > lost.until_ms));
    // The limits may be lost, too.
    execute(&restored, "SELECT snowflake_registry.restored(lease => '2 hours', skew => '3 min')");
    assert!(matches!(new.keep(), Err(Failure::Frozen { until_ms }) if until_ms > now_ms() + 7_200_000));
}

#[test]
fn a_registry_that_was_lost_is_made_anew_with_a_freeze() {
    let (server, oracle) = (registry(), Oracle::new());
    // Numbers below 100 are configured on other servers.
    let range = "SELECT snowflake_registry.set_range(100, 1023)";
    execute(&server, range);
    let mut member = Member::new(config_of(&server), &oracle);
    let before = member.lease();
    let uuid = server.connect().value("SELECT uuid FROM snowflake_registry.fleets");
    let anew = plain().start();
    // It does not guess how long leases were.
    let refused = anew.psql_file(&cluster::registry::registry_sql(), &["--set=lost=true"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("longest lease"));
    assert_eq!(anew.connect().value("to_regnamespace('snowflake_registry')"), "NULL");
    let said = anew.make_registry_with(&["--set=lost=true", "--set=lease=10 min", "--set=skew=1 min"]);
    assert!(said.contains("made anew"), "{said}");
    // It can be the same fleet for the databases that have noted its uuid.
    execute(&anew, &format!("SELECT snowflake_registry.lost('10 min', '1 min', uuid => '{uuid}')"));
    execute(&anew, range);
    execute(&anew, "CREATE ROLE snowflake LOGIN");
    member.set_config(config_of(&anew));
    // Nothing is brought or leased before the role has its rights, which it gets last.
    member.unanswered();
    execute(&anew, role_sql().split_once("LOGIN;").expect("the first command makes the role").1);
    let _ = member.keep();
    assert_eq!(member.held().map(|lease| lease.holder), Some(before.holder));
    let new = Member::new(config_of(&anew), &oracle);
    assert!(matches!(new.keep(), Err(Failure::Frozen { until_ms }) if until_ms > before.until_ms));
    assert_eq!(new.registry().read(Wanted::All).unwrap().fleet.range, Some((100, 1023)));
}

#[test]
fn a_registry_is_moved_while_it_is_closed() {
    let (server, oracle) = (registry(), Oracle::new());
    let mut member = Member::new(config_of(&server), &oracle);
    let before = member.lease();
    execute(&server, "SELECT snowflake_registry.close()");
    assert!(matches!(member.keep(), Err(Failure::Closed)));
    let dump = server.dump("postgres", "postgres", &["--schema=snowflake_registry"]);
    // Another system identifier.
    let target = plain().start();
    execute(&target, "CREATE ROLE snowflake LOGIN");
    target.restore(&dump, "postgres", &[]);
    member.set_config(config_of(&target));
    assert!(matches!(member.keep(), Err(Failure::Closed)));
    let said = target.connect().value("snowflake_registry.open(moved => true)");
    assert_eq!(said, "Fleet \"default\" is open.");
    // The old one needs a word more.
    let error = refused(server.connect().query("SELECT snowflake_registry.open()", &[]));
    assert!(error.sqlstate == "22004" && error.message.contains("is closed for a move"), "{error:?}");
    assert!(error.hint.as_deref().is_some_and(|hint| hint.contains("open(moved => false)")), "{error:?}");
    let said = server.connect().value("snowflake_registry.open(moved => false)");
    assert!(said.contains("only if no server has reached a moved copy"), "{said}");
    execute(&server, "SELECT snowflake_registry.close()");
    assert_eq!(member.lease().holder, before.holder);
    Member::new(config_of(&target), &oracle).lease();
    assert_eq!(oracle.accept_history(&mut target.connect()), 2);
    let error = refused(target.connect().query("SELECT snowflake_registry.open(moved => true)", &[]));
    assert_eq!(error.sqlstate, "55000");
}

// A registry that must not be used

#[test]
fn a_standby_is_refused() {
    let server = registry();
    let standby = server.standby().start();
    let registry = Postgres::new(config_of(&standby), Poll);
    assert_eq!(registry.read(Wanted::All), Err(RegistryError::InRecovery));
    // A change is refused by the same name, if the server has become a standby since it was read.
    let swap = fleet_swap(&Postgres::new(config_of(&server), Poll));
    assert_eq!(registry.swap(&swap), Err(RegistryError::InRecovery));
}

#[test]
fn what_a_registry_lacks_is_named() {
    let server = registry();
    let swap = fleet_swap(&Postgres::new(config_of(&server), Poll));
    let says = |config: &Config, expected: &RegistryError| {
        let registry = Postgres::new(config.clone(), Poll);
        assert_eq!(registry.read(Wanted::All).as_ref(), Err(expected));
        assert_eq!(registry.swap(&swap).as_ref(), Err(expected));
    };
    let config = config_of(&server);
    let set = |command: &str| execute(&server, command);

    set("ALTER ROLE snowflake SET default_transaction_read_only = on");
    says(&config, &RegistryError::ReadOnly);
    set("ALTER ROLE snowflake RESET ALL");

    server.set_config("fsync", "off");
    server.reload();
    says(&config, &RegistryError::FsyncOff);
    server.set_config("fsync", "on");
    server.reload();

    says(&Config { fleet: "other".to_owned(), ..config.clone() }, &RegistryError::NoFleet("other".to_owned()));

    set("CREATE ROLE stranger LOGIN");
    set("CREATE DATABASE empty");
    let conninfo = config.conninfo.clone();
    let stranger = Config { conninfo: format!("{conninfo} user=stranger"), ..config.clone() };
    says(&stranger, &RegistryError::NoRights("permission denied for schema snowflake_registry".to_owned()));
    says(&Config { conninfo: format!("{conninfo} dbname=empty"), ..config.clone() }, &RegistryError::NoSchema);

    let version = |body| {
        format!(
            "CREATE OR REPLACE FUNCTION snowflake_registry.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT {body}'"
        )
    };
    let read = |config: &Config| Postgres::new(config.clone(), Poll).read(Wanted::All);
    set(&version("2"));
    assert_eq!(read(&config), Err(RegistryError::OtherVersion(Some(2))));
    set(&version("NULL::integer"));
    assert_eq!(read(&config), Err(RegistryError::Garbage("value NULL".to_owned())));
    set("DROP FUNCTION snowflake_registry.read, snowflake_registry.swap_fleet");
    says(&config, &RegistryError::OtherVersion(None));
}

#[test]
fn a_server_that_cannot_be_reached_is_named_in_libpqs_words() {
    let server = plain().tcp().start();
    server.make_registry();
    let says = |conninfo: &str, words: &str| {
        let error = Postgres::new(config(conninfo), Poll).read(Wanted::All).unwrap_err();
        let text = error.detail().unwrap_or_default();
        assert!(matches!(error, RegistryError::Connect(_)) && text.contains(words), "{error:?}");
    };
    let tcp = format!("host=127.0.0.1 port={} dbname=postgres user={ROLE}", server.port());
    says(&tcp, "no password supplied");
    says(&format!("{tcp} password=wrong"), "password authentication failed");
    says("host=/nonexistent", "No such file or directory");
    says(&format!("{} dbname=nonexistent", server.registry_conninfo()), "does not exist");
    says(&format!("{} target_session_attrs=standby", server.registry_conninfo()), "standby");
    says("hots=a", "invalid connection option");
    let garbage = listener(|mut stream| {
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    says(
        &format!("host=127.0.0.1 port={garbage} sslmode=disable gssencmode=disable"),
        "expected authentication request",
    );
}

#[test]
fn a_server_that_answers_garbage_to_a_statement_is_not_believed() {
    let port = listener(|mut stream| {
        let _ = stream.read(&mut [0; 1000]);
        // AuthenticationOk, and ReadyForQuery.
        let _ = stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I");
        let _ = stream.read(&mut [0; 10000]);
        let _ = stream.write_all(&[0xff; 1000]);
        let _ = stream.read(&mut [0; 10000]);
    });
    let registry =
        Postgres::new(config(&format!("host=127.0.0.1 port={port} sslmode=disable gssencmode=disable")), Poll);
    let error = registry.read(Wanted::All).unwrap_err();
    assert!(
        matches!(&error, RegistryError::Lost { step: RegistryStep::Read, text } if text.contains("lost synchronization")),
        "{error:?}"
    );
}

#[test]
fn an_answer_with_more_rows_than_a_fleet_has_is_given_up() {
    let server = registry();
    let insert = |first: i64, last: i64| {
        let sql = format!(
            "INSERT INTO snowflake_registry.numbers (fleet, datacenter, worker, holder, nonce, count, server, from_ms, \
             until_ms, generation, renewed_ms, offset_ms, host, port, cluster_name, version) \
             SELECT 'default', -1, n, gen_random_uuid(), 1, 1, 1, 0, 1, 1, 0, 0, 'h', 1, '', '' \
             FROM generate_series({first}, {last}) n"
        );
        execute(&server, &sql);
    };
    // So many rows may take a busy machine longer than the page's timeout.
    execute(&server, &format!("ALTER ROLE {ROLE} RESET statement_timeout"));
    let registry = Postgres::new(config_of(&server), Poll);
    let too_long = |most, of_what| Err(RegistryError::TooLong { most, of_what });
    insert(1, 131_072);
    assert_eq!(registry.read(Wanted::All).unwrap().records.len(), 131_072);
    insert(131_073, 131_073);
    assert_eq!(registry.read(Wanted::All), too_long(131_073, "rows"));
    assert_eq!(registry.read(Wanted::Number(7)).unwrap().records.len(), 1);

    // One of them could say that a commit is not what it should be.
    let notices = |count: u32| {
        let body = format!("BEGIN FOR i IN 1..{count} LOOP RAISE NOTICE '%', repeat('x', 1000); END LOOP; END");
        execute(
            &server,
            &format!(
                "CREATE OR REPLACE FUNCTION snowflake_registry.check_server() RETURNS void LANGUAGE plpgsql AS $${body}$$"
            ),
        );
    };
    notices(100);
    assert!(registry.read(Wanted::Number(7)).is_ok());
    notices(101);
    assert_eq!(registry.read(Wanted::Number(7)), too_long(100, "notices"));
    notices(0);
    assert!(registry.read(Wanted::Number(7)).is_ok());

    // One value is enough, too.
    execute(
        &server,
        "DROP FUNCTION snowflake_registry.read(text, integer, bigint); \
         CREATE FUNCTION snowflake_registry.read(text, integer, bigint, OUT version integer, OUT uuid text, OUT layout text, \
         OUT backup text, OUT first_worker text, OUT last_worker text, OUT loses_nothing text, OUT closed text, \
         OUT longest_ms text, OUT skew_ms text, OUT lease_ms text, OUT clock_skew_ms text, OUT grace_ms text, OUT written_store text, OUT written_timeline text, \
         OUT fleet_generation text, OUT horizon_ms text, OUT freeze_ms text, OUT fleet_version text, OUT store text, \
         OUT timeline text, OUT now_ms text, OUT up_ms text, OUT number text, OUT holder text, OUT nonce text, \
         OUT count text, OUT server text, OUT from_ms text, OUT until_ms text, OUT generation text, OUT renewed_ms text, \
         OUT offset_ms text) LANGUAGE sql SECURITY DEFINER \
         AS $$ SELECT 1, repeat('x', 100000000), '', '', '', '', '', '', '', '', '', '', '', '', '', '', '', '', '', '', '', \
         '', '', '', '', '', '', '', '', '', '', '', '' $$",
    );
    assert_eq!(registry.read(Wanted::Number(7)), too_long(64 << 20, "bytes"));
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let port = listener(|mut stream| while stream.read(&mut [0; 1000]).is_ok_and(|read| read > 0) {});
    let silent = format!("host=127.0.0.1 port={port}");
    let error = Postgres::new(hasty(config(&silent)), Poll).read(Wanted::All).unwrap_err();
    assert_eq!(error, RegistryError::TimedOut { step: RegistryStep::Connect, after: Duration::from_secs(1) });

    // The next host has its turn, which libpq by itself would not give it.
    let server = registry();
    let socket = server.data_dir().parent().unwrap().display().to_string();
    let both =
        format!("host='127.0.0.1,127.0.0.1,{socket}' port={port},{port},{} dbname=postgres user={ROLE}", server.port());
    assert!(Postgres::new(hasty(config(&both)), Poll).read(Wanted::All).is_ok());
    // An error names those before it, too.
    let error = Postgres::new(hasty(config(&format!("{both} user=nobody"))), Poll).read(Wanted::All).unwrap_err();
    let text = error.detail().unwrap_or_default();
    assert!(text.contains("timed out") && text.contains("role \"nobody\" does not exist"), "{text}");

    // A statement that waits for ever.
    let registry = Postgres::new(config_of(&server), Poll);
    registry.read(Wanted::All).unwrap();
    let mut locker = server.connect();
    let mut lock = locker.transaction().unwrap();
    lock.batch_execute("LOCK snowflake_registry.fleets").unwrap();
    let registry = Postgres::new(hasty(config_of(&server)), Poll);
    assert_eq!(
        registry.read(Wanted::All),
        Err(RegistryError::TimedOut { step: RegistryStep::Read, after: Duration::from_secs(1) })
    );
    lock.rollback().unwrap();
    assert!(registry.read(Wanted::All).is_ok());
}

/// Listens on a port of 127.0.0.1, and does this with each connection.
fn listener(serve: impl Fn(std::net::TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().flatten().for_each(&serve));
    port
}

// What the registry checks by itself

/// Returns a change of the fleet's record that changes nothing but its version.
fn fleet_swap(registry: &Postgres<Poll>) -> Swap {
    let reading = registry.read(Wanted::All).unwrap();
    let mut fleet = reading.fleet;
    fleet.version = fleet.version.wrapping_add(1);
    Swap { fleet: reading.fleet.version, incarnation: reading.incarnation, change: Change::Fleet(fleet) }
}

/// Returns the first lease of a number, half a minute long.
fn lease_of(swap: &Swap, worker: i64, from_ms: i64, holder: u128) -> Swap {
    let Change::Fleet(fleet) = swap.change else { panic!("a swap of the fleet's record shows what was read") };
    let record = NumberRecord {
        holder,
        nonce: 1,
        count: 1,
        server: 1,
        from_ms,
        until_ms: from_ms + 30_000,
        generation: fleet.generation,
        renewed_ms: from_ms,
        offset_ms: 0,
    };
    Swap { change: Change::Number { worker, was: None, record }, ..*swap }
}

#[test]
fn a_swap_changes_nothing_unless_everything_is_as_it_was_read() {
    let (server, oracle) = (registry(), Oracle::new());
    Member::new(config_of(&server), &oracle).lease();
    let registry = Postgres::new(config_of(&server), Poll);
    let fleet = fleet_swap(&registry);
    let unused = (0..).find(|worker| !registry.read(Wanted::All).unwrap().records.contains_key(worker)).unwrap();
    let number = lease_of(&fleet, unused, now_ms(), 7);
    let before = registry.read(Wanted::All).unwrap();
    for swap in [fleet, number] {
        let mut others = [swap; 3];
        others[0].fleet ^= 1;
        others[1].incarnation.store ^= 1;
        others[2].incarnation.timeline += 1;
        for other in others {
            assert_eq!(registry.swap(&other), Ok(SwapAnswer::Refused), "{other:?}");
        }
    }
    let Change::Number { worker, record, .. } = number.change else { unreachable!() };
    let with = |was, record| Swap { change: Change::Number { worker, was, record }, ..number };
    assert_eq!(registry.swap(&with(Some(5), record)), Ok(SwapAnswer::Refused));
    let after = registry.read(Wanted::All).unwrap();
    assert_eq!((before.fleet, before.records), (after.fleet, after.records));

    assert_eq!(registry.swap(&number), Ok(SwapAnswer::Done(number.incarnation)));
    // The same message again.
    assert_eq!(registry.swap(&number), Ok(SwapAnswer::Refused));
    assert_eq!(registry.swap(&with(Some(2), NumberRecord { nonce: 3, count: 2, ..record })), Ok(SwapAnswer::Refused));
    // Every number has its bits.
    let extreme = NumberRecord {
        nonce: u64::MAX,
        // The greatest that leaves room for the next one.
        count: before.now_ms as u64,
        server: 1 << 63,
        holder: 7,
        offset_ms: -5,
        until_ms: record.until_ms + 1,
        ..record
    };
    assert_eq!(registry.swap(&with(Some(1), extreme)), Ok(SwapAnswer::Done(number.incarnation)));
    assert_eq!(registry.read(Wanted::Number(worker)).unwrap().records, [(worker, extreme)].into());
    assert_eq!(registry.swap(&fleet), Ok(SwapAnswer::Done(fleet.incarnation)));
    assert_eq!(registry.swap(&fleet), Ok(SwapAnswer::Refused));
}

#[test]
fn the_registry_refuses_what_no_member_may_ask_for() {
    let (server, oracle) = (registry(), Oracle::new());
    execute(&server, "SELECT snowflake_registry.set_range(0, 9)");
    Member::new(config_of(&server), &oracle).lease();
    let registry = Postgres::new(config_of(&server), Poll);
    let reading = registry.read(Wanted::All).unwrap();
    let (&worker, &old) = reading.records.first_key_value().unwrap();
    let fleet = fleet_swap(&registry);
    let free = (worker + 1) % 10;
    let new = NumberRecord { holder: 99, nonce: 99, count: old.count + 1, ..old };
    let said = |worker, was, record| {
        let swap = Swap { change: Change::Number { worker, was, record }, ..fleet };
        match registry.swap(&swap) {
            Err(RegistryError::Refused(diagnostic)) if diagnostic.sqlstate == "SF005" => diagnostic.message,
            other => panic!("{record:?}: {other:?}"),
        }
    };
    let was = Some(old.nonce);
    let next_ms = old.until_ms;
    for (record, words) in [
        (
            NumberRecord { from_ms: next_ms - 1, until_ms: next_ms + 1, ..new },
            "cannot begin 1 ms before the end of the one before",
        ),
        (NumberRecord { holder: old.holder, from_ms: old.from_ms - 1, ..new }, "cannot begin at another time"),
        (NumberRecord { from_ms: next_ms, until_ms: next_ms + 3_600_000, ..new }, "cannot end that late"),
        (NumberRecord { holder: old.holder, until_ms: next_ms + 3_600_000, ..new }, "cannot end that late"),
        (NumberRecord { from_ms: next_ms, until_ms: next_ms + 1, count: old.count, ..new }, "count of number"),
    ] {
        let message = said(worker, was, record);
        assert!(message.contains(words), "{message}");
    }
    assert!(said(10, None, new).contains("the range is 0 to 9"));
    execute(&server, "SELECT snowflake_registry.restored()");
    let frozen = fleet_swap(&registry);
    let swap = Swap { change: Change::Number { worker: free, was: None, record: new }, ..frozen };
    assert!(registry.swap(&swap).unwrap_err().to_string().contains("before the end of the freeze"));
    let renewal = NumberRecord { holder: old.holder, until_ms: old.until_ms + 1, ..new };
    // What is given back keeps its generation. Nothing else does.
    let swap = Swap { change: Change::Number { worker, was, record: renewal }, ..frozen };
    assert!(registry.swap(&swap).unwrap_err().to_string().contains("cannot be of generation 1"));
    let renewal = NumberRecord { generation: 2, ..renewal };
    let swap = Swap { change: Change::Number { worker, was, record: renewal }, ..frozen };
    assert!(registry.swap(&swap).unwrap_err().to_string().contains("may have changed hands"));

    let Change::Fleet(known) = frozen.change else { unreachable!() };
    let mut others = [known; 5];
    others[0].longest_ms += 1;
    others[1].skew_ms -= 1;
    others[2].freeze_ms -= 1;
    others[3].generation += 2;
    others[4].generation -= 1;
    for other in others {
        let error = registry.swap(&Swap { change: Change::Fleet(other), ..frozen }).unwrap_err();
        assert!(matches!(&error, RegistryError::Refused(diagnostic) if diagnostic.sqlstate == "SF005"), "{error:?}");
    }
    assert_eq!(registry.read(Wanted::Number(worker)).unwrap().records, [(worker, old)].into());
    // A lease that begins in the first tick after a freeze, and is given back before that.
    let empty = |ms| {
        let record = NumberRecord { generation: 2, from_ms: ms, until_ms: ms, ..new };
        registry.swap(&Swap { change: Change::Number { worker: free, was: None, record }, ..frozen })
    };
    assert!(empty(known.freeze_ms + 3_600_000).unwrap_err().to_string().contains("cannot end that late"));
    assert_eq!(empty(known.freeze_ms + 1000), Ok(SwapAnswer::Done(frozen.incarnation)));
    let given_back = NumberRecord { holder: old.holder, until_ms: old.until_ms - 1, ..new };
    let swap = Swap { change: Change::Number { worker, was, record: given_back }, ..frozen };
    assert_eq!(registry.swap(&swap), Ok(SwapAnswer::Done(frozen.incarnation)));
}

#[test]
fn the_members_role_can_do_no_more_than_lease() {
    let (server, oracle) = (registry(), Oracle::new());
    Member::new(config_of(&server), &oracle).lease();
    let mut member = server.connect_as(ROLE);
    let tables = ["fleets", "numbers", "history", "tags", "fleet", "leases"];
    for table in tables {
        for sql in ["SELECT FROM", "DELETE FROM", "TRUNCATE"] {
            let sql = format!("{sql} snowflake_registry.{table}");
            let sqlstate = refused(member.query(&sql, &[])).sqlstate;
            // No role can do this to a view.
            let is_view = ["fleet", "leases"].contains(&table) && !sql.starts_with("SELECT");
            assert!(sqlstate == "42501" || is_view, "{sql}: {sqlstate}");
        }
    }
    let sql = "SELECT proname::text FROM pg_proc WHERE pronamespace = 'snowflake_registry'::regnamespace \
               AND has_function_privilege($1, oid, 'EXECUTE') ORDER BY 1";
    let mut session = server.connect();
    let may: Vec<String> = session.query(sql, &[&ROLE]).unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(may, ["read", "reserve_blocks", "return_blocks", "swap_fleet", "swap_number"]);
    let may: Vec<String> = session.query(sql, &[&"pg_monitor"]).unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(may, ["drawn_by", "instant", "now_ms", "version"]);
    // Functions that run with the owner's rights must not find anything through the caller's path.
    let unpinned = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'snowflake_registry'::regnamespace \
                    AND prosecdef AND proconfig IS DISTINCT FROM '{\"search_path=pg_catalog, pg_temp\"}'";
    assert_eq!(session.value(unpinned), "0");
    execute(&server, "CREATE ROLE dba LOGIN; GRANT pg_monitor TO dba");
    let mut monitor = server.connect_as("dba");
    assert_eq!(monitor.query("SELECT * FROM snowflake_registry.fleet", &[]).unwrap().len(), 1);
    let drawn = "SELECT f.* FROM snowflake_registry.fleet n, snowflake_registry.drawn_by(n.begins, n.worker) f";
    assert_eq!(monitor.query(drawn, &[]).unwrap().len(), 1);
    assert_eq!(refused(monitor.query("SELECT nonce FROM snowflake_registry.numbers", &[])).sqlstate, "42501");
}

// For operators

/// Everything that an operator or a server has put into the registry, and what roles may do there.
fn contents(session: &mut Client) -> Vec<String> {
    let rights = "SELECT string_agg(proname || proowner || proacl::text, ' ' ORDER BY proname) FROM pg_proc \
                  WHERE pronamespace = 'snowflake_registry'::regnamespace AND proname IN ('read', 'swap_fleet', 'swap_number')";
    let records = ["fleets", "numbers", "history"]
        .map(|table| format!("SELECT string_agg(t::text, ' ' ORDER BY t) FROM snowflake_registry.{table} t"));
    records.iter().map(String::as_str).chain([rights]).map(|sql| session.value(sql)).collect()
}

#[test]
fn the_file_brings_a_registry_up_to_date_and_keeps_what_it_holds() {
    let (server, oracle) = (plain().start(), Oracle::new());
    execute(&server, "CREATE ROLE dba LOGIN; GRANT CREATE ON DATABASE postgres TO dba");
    server.make_registry_with(&["--username=dba"]);
    execute(&server, &role_sql());
    let member = Member::new(config_of(&server), &oracle);
    let lease = member.lease();
    // As an earlier build has made it.
    execute(
        &server,
        "SET ROLE dba; \
         DROP FUNCTION snowflake_registry.reserve; \
         CREATE FUNCTION snowflake_registry.reserve(worker bigint, until timestamptz, datacenter integer DEFAULT -1, \
             fleet text DEFAULT 'default') RETURNS text LANGUAGE sql AS 'SELECT NULL::text'; \
         DROP FUNCTION snowflake_registry.prune, snowflake_registry.reserve_blocks, snowflake_registry.return_blocks; \
         CREATE FUNCTION snowflake_registry.reserve_blocks(fleet text, patience_ms bigint, was_version bigint, \
             was_store bigint, was_timeline bigint, tags text[], ids bigint[], steps bigint[], aboves bigint[], \
             generations bigint[], nonces bigint[]) RETURNS TABLE (done boolean) LANGUAGE sql AS 'SELECT false'; \
         REVOKE ALL ON FUNCTION snowflake_registry.reserve_blocks FROM PUBLIC; \
         GRANT EXECUTE ON FUNCTION snowflake_registry.reserve_blocks TO snowflake; \
         DROP TABLE snowflake_registry.tags; DROP FUNCTION snowflake_registry.keep_tags; \
         DROP VIEW snowflake_registry.leases CASCADE; \
         DROP TRIGGER keep_numbers ON snowflake_registry.numbers; \
         CREATE OR REPLACE FUNCTION snowflake_registry.set_range(first_worker bigint, last_worker bigint, \
             fleet text DEFAULT 'default') RETURNS text LANGUAGE sql AS 'SELECT NULL::text'; \
         COMMENT ON TABLE snowflake_registry.history IS 'old'",
    );
    let mut session = server.connect();
    let before = contents(&mut session);
    // A superuser brings it up to date, and everything still belongs to its owner.
    for again in [false, true] {
        let said = server.make_registry_with(&["--set=owner=dba"]);
        assert!(said.contains("had a registry already (version 1). Records"), "{said}");
        assert!(!said.contains("NOTICE") && !said.contains("WARNING"), "{said}");
        // It tells what it has changed, and what is left to do.
        for (line, parts) in [
            ("New: ", ["function keep_tags()", "function prune(", "table tags", "view leases"]),
            ("Changed: ", ["function set_range(", "table history", "table numbers", ""]),
            ("Gone: ", ["function reserve(", "function reserve_blocks(", "generations bigint[], nonces bigint[]", ""]),
        ] {
            let found = said.lines().find(|found| found.starts_with(line)).unwrap_or_default();
            assert!(parts.iter().all(|part| found.contains(part)) != again, "{line}: {said}");
        }
        assert_eq!(said.contains("Nothing has changed."), again, "{said}");
        assert!(said.contains("GRANT EXECUTE ON FUNCTION snowflake_registry.return_blocks TO snowflake;"), "{said}");
        assert!(!said.contains("snowflake_registry.reserve_blocks TO snowflake"), "{said}");
        assert_eq!(contents(&mut session), before);
        let others = "SELECT count(*) FROM (SELECT relnamespace, relowner FROM pg_class \
                      UNION ALL SELECT pronamespace, proowner FROM pg_proc) AS o (namespace, owner) \
                      WHERE namespace = 'snowflake_registry'::regnamespace AND owner <> 'dba'::regrole";
        assert_eq!(session.value(others), "0");
    }
    let count = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'snowflake_registry'::regnamespace AND proname IN \
                 ('prune', 'reserve', 'reserve_blocks', 'return_blocks', 'keep_tags', 'drawn_by')";
    assert_eq!(session.value(count), "6");
    let may =
        "SELECT has_function_privilege('snowflake', oid, 'EXECUTE') FROM pg_proc WHERE proname = 'reserve_blocks'";
    assert_eq!(session.value(may), "true", "the servers may call it, as they might before");
    let trigger = "SELECT count(*) FROM pg_trigger WHERE tgname IN ('keep_tags', 'keep_numbers')";
    assert_eq!(session.value(trigger), "2");
    assert!(session.value("snowflake_registry.set_range(0, 1023)").contains("may be leased"));
    assert!(!session.value("obj_description('snowflake_registry.history'::regclass)").contains("old"));
    // New functions are not for everybody.
    let everybody = "SELECT count(*) FROM pg_proc p, aclexplode(coalesce(proacl, acldefault('f', proowner))) a \
                     WHERE pronamespace = 'snowflake_registry'::regnamespace AND a.grantee = 0";
    assert_eq!(session.value(everybody), "0");
    assert_eq!(member.lease().holder, lease.holder);
    assert_eq!(oracle.accept_history(&mut session), 1);

    let refused = |options: &[&str], words: &str| {
        let refused = server.psql_file(&cluster::registry::registry_sql(), options);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(words) && said.contains("nothing was changed"), "{said}");
    };
    refused(&[], "schema snowflake_registry belongs to role dba, and not to postgres");
    refused(&["--set=owner=nobody"], "belongs to role dba, and not to nobody");
    refused(&["--set=owner=dba", "--set=lost=true"], "made anew");
    // A file of another version leaves it alone.
    let sql =
        "CREATE OR REPLACE FUNCTION snowflake_registry.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 2'";
    execute(&server, sql);
    refused(&["--set=owner=dba"], "a registry of version 2, and this file is for version 1");
    assert_eq!(session.value("snowflake_registry.version()"), "2");
}

/// A role that may create a schema waits for a superuser to run the file.
#[test]
fn a_schema_that_is_there_does_not_take_over_the_role_that_runs_the_file() {
    let take_over = |name: &str, returns: &str, value: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION {name} RETURNS {returns} LANGUAGE plpgsql AS $$ BEGIN
                 RESET ROLE; ALTER ROLE mallory SUPERUSER; RETURN {value};
             EXCEPTION WHEN insufficient_privilege THEN RETURN {value}; END $$;"
        )
    };
    let version = take_over("snowflake_registry.version()", "integer", "1");
    let allow = take_over("snowflake_registry.allow()", "boolean", "true");
    let cast = take_over("snowflake_registry.to_text(snowflake_registry.t)", "text", "'default'");
    let traps = [
        // A column whose cast to text runs a function.
        format!(
            "REGISTRY; CREATE TYPE snowflake_registry.t AS (x text); {cast} \
             CREATE CAST (snowflake_registry.t AS text) WITH FUNCTION snowflake_registry.to_text(snowflake_registry.t) AS IMPLICIT; \
             CREATE TABLE snowflake_registry.others (LIKE snowflake_registry.fleets INCLUDING DEFAULTS); \
             DROP TABLE snowflake_registry.fleets CASCADE; ALTER TABLE snowflake_registry.others RENAME TO fleets; \
             ALTER TABLE snowflake_registry.fleets DROP name, ADD name snowflake_registry.t; \
             INSERT INTO snowflake_registry.fleets (name, store, timeline) VALUES (ROW('a'), 1, 1)"
        ),
        // Functions that the file calls, or that take PostgreSQL's place.
        format!("CREATE SCHEMA snowflake_registry; {version} CREATE TABLE snowflake_registry.fleets (name text)"),
        format!(
            "CREATE SCHEMA evil; ALTER DATABASE ids SET search_path = evil, pg_catalog; {}",
            ["current_setting(text)", "quote_ident(text)", "to_regnamespace(text)"]
                .map(|name| take_over(&format!("evil.{name}"), "text", "'on'"))
                .concat()
        ),
        // A registry with traps in it: a function, a policy, a check, a view.
        format!("REGISTRY; {version}"),
        format!(
            "REGISTRY; {allow} ALTER TABLE snowflake_registry.fleets ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; \
             CREATE POLICY trap ON snowflake_registry.fleets USING (snowflake_registry.allow())"
        ),
        format!(
            "REGISTRY; INSERT INTO snowflake_registry.tags (tag) VALUES ('a'); {allow} \
             ALTER TABLE snowflake_registry.tags DROP written_ms, DROP returnable_from, \
             ADD CHECK (snowflake_registry.allow()) NOT VALID"
        ),
        format!(
            "REGISTRY; {allow} ALTER TABLE snowflake_registry.fleets RENAME TO others; \
             CREATE VIEW snowflake_registry.fleets AS SELECT * FROM snowflake_registry.others WHERE snowflake_registry.allow()"
        ),
    ];
    for trap in traps {
        let server = plain().start();
        execute(&server, "CREATE ROLE mallory LOGIN");
        execute(&server, "CREATE DATABASE ids OWNER mallory");
        let mut mallory = server.connection().user("mallory").dbname("ids").connect(postgres::NoTls).unwrap();
        let trap = match trap.strip_prefix("REGISTRY;") {
            Some(trap) => {
                server.make_registry_with(&["--username=mallory", "--dbname=ids"]);
                trap
            }
            None => &trap,
        };
        mallory.batch_execute(trap).unwrap_or_else(|error| panic!("{trap}: {error:?}"));
        let is_there = mallory.value("to_regnamespace('snowflake_registry') IS NOT NULL") == "true";
        for options in [&["--dbname=ids"][..], &["--dbname=ids", "--set=owner=mallory"]] {
            let run = server.psql_file(&cluster::registry::registry_sql(), options);
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            let is_super = "SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'";
            assert_eq!(server.connect().value(is_super), "false", "{trap}: {said}");
            let is_refused = said.contains("belongs to role mallory, and not to postgres");
            assert_eq!(is_refused, is_there && options.len() == 1, "{trap}: {said}");
        }
    }
}

#[test]
fn a_new_registry_belongs_to_the_role_that_is_named() {
    let server = plain().start();
    execute(&server, "CREATE ROLE \"the dba\"; GRANT CREATE ON DATABASE postgres TO \"the dba\"");
    server.make_registry_with(&["--set=owner=the dba"]);
    execute(&server, &role_sql());
    let owners = "SELECT string_agg(DISTINCT o::regrole::text, ' ') FROM (SELECT nspowner FROM pg_namespace \
                  WHERE nspname = 'snowflake_registry' UNION ALL SELECT proowner FROM pg_proc \
                  WHERE pronamespace = 'snowflake_registry'::regnamespace UNION ALL SELECT relowner FROM pg_class \
                  WHERE relnamespace = 'snowflake_registry'::regnamespace) AS s (o)";
    assert_eq!(server.connect().value(owners), "\"the dba\"");
    let oracle = Oracle::new();
    Member::new(config_of(&server), &oracle).lease();
    assert!(server.make_registry_with(&["--set=owner=the dba"]).contains("Nothing has changed."));
}

#[test]
fn the_file_runs_while_servers_renew() {
    let (server, oracle) = (registry(), Oracle::new());
    let (ready, done) = (Barrier::new(5), AtomicBool::new(false));
    thread::scope(|scope| {
        let renew = || {
            let member = Member::new(config_of(&server), &oracle);
            let first = member.lease();
            ready.wait();
            while !done.load(Ordering::Relaxed) {
                assert_eq!(member.lease().holder, first.holder);
            }
            member.give_back();
            member.lease();
        };
        let members = [(); 4].map(|()| scope.spawn(renew));
        ready.wait();
        let runs = [(); 5].map(|()| server.psql_file(&cluster::registry::registry_sql(), &[]));
        // Before anything can fail, so that the members end.
        done.store(true, Ordering::Relaxed);
        assert!(runs.iter().all(|run| run.status.success()), "{runs:?}");
        members.into_iter().for_each(|member| member.join().expect("the registry always answers"));
    });
    let mut session = server.connect();
    assert_eq!(session.value("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"), "0");
    assert_eq!(oracle.accept_history(&mut session), 8);
}

#[test]
fn the_file_gives_up_when_a_session_holds_it_up() {
    let server = registry();
    let mut other = server.connect();
    let mut lock = other.transaction().unwrap();
    lock.batch_execute("LOCK TABLE snowflake_registry.fleets IN ACCESS SHARE MODE").unwrap();
    let refused = server.psql_file(&cluster::registry::registry_sql(), &[]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("lock timeout"), "{said}");
    lock.rollback().unwrap();
    server.make_registry_with(&[]);
}

#[test]
fn the_file_is_refused_where_a_registry_would_forget() {
    let server = plain().config("fsync", "off").start();
    let refused = server.psql_file(&cluster::registry::registry_sql(), &[]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("\"fsync\" is off"));
    let standby = server.standby().start();
    let refused = standby.psql_file(&cluster::registry::registry_sql(), &[]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("this server is a standby"));
}

#[test]
fn an_ordinary_role_can_own_a_registry() {
    let (server, oracle) = (plain().start(), Oracle::new());
    execute(&server, "CREATE ROLE dba LOGIN");
    execute(&server, "CREATE DATABASE ids OWNER dba");
    server.make_registry_with(&["--username=dba", "--dbname=ids"]);
    // Roles are another matter.
    let (roles, grants): (Vec<_>, Vec<_>) =
        role_sql().split_inclusive(';').map(str::to_owned).partition(|command| command.contains(" ROLE "));
    execute(&server, &roles.concat());
    let grants = grants.concat();
    server.connection().user("dba").dbname("ids").connect(postgres::NoTls).unwrap().batch_execute(&grants).unwrap();
    let member = Member::new(config(&format!("{} dbname=ids", server.registry_conninfo())), &oracle);
    member.lease();
    member.lease();
    member.give_back();
}

#[test]
fn every_object_has_a_comment() {
    let server = registry();
    let sql = "
        SELECT string_agg(name, ', ') FROM (
            SELECT p.oid::regprocedure::text FROM pg_proc p WHERE pronamespace = 'snowflake_registry'::regnamespace
                AND obj_description(p.oid, 'pg_proc') IS NULL
            UNION ALL SELECT c.oid::regclass::text FROM pg_class c WHERE relnamespace = 'snowflake_registry'::regnamespace
                AND relkind IN ('r', 'v') AND obj_description(c.oid, 'pg_class') IS NULL
            UNION ALL SELECT c.oid::regclass::text || '.' || attname FROM pg_class c JOIN pg_attribute ON attrelid = c.oid
                WHERE relnamespace = 'snowflake_registry'::regnamespace AND relkind IN ('r', 'v') AND attnum > 0
                AND col_description(c.oid, attnum) IS NULL
        ) AS without (name)";
    assert_eq!(server.connect().value(sql), "NULL");
}

#[test]
fn operators_set_range_and_limits() {
    let (server, oracle) = (registry(), Oracle::new());
    let mut operator = server.connect();
    let mut refuses = |sql: &str, sqlstate: &str, words: &str| {
        let error = refused(operator.query(&format!("SELECT snowflake_registry.{sql}"), &[]));
        assert!(
            error.sqlstate == sqlstate && error.message.contains(words) && error.hint.is_some(),
            "{sql}: {error:?}"
        );
    };
    refuses("restored()", "22023", "are not known");
    refuses("set_range(5, 4)", "22023", "range 5 to 4 has no numbers");
    refuses("set_range(-1, 4)", "22023", "range cannot begin at -1, because numbers begin at 0");
    refuses("set_range(NULL, 4)", "22023", "range NULL to 4");
    refuses("set_range(0, 4, 'other')", "SF004", "no fleet \"other\"");
    for call in [
        "set_range(0, 4, NULL)",
        "restored(NULL)",
        "lost('10 min', '1 min', NULL)",
        "set_limits(NULL, NULL, NULL)",
        "set_lease(NULL, NULL, NULL)",
        "set_loses_nothing(true, NULL)",
        "set_grace('0', NULL)",
        "close(NULL)",
        "open(NULL)",
        "reset_settings(NULL)",
        "reserve(5, now(), -1, NULL)",
        "prune('-infinity', NULL)",
    ] {
        refuses(call, "22004", "fleet is NULL");
    }
    // A freeze of years.
    refuses("set_limits('1 year', NULL)", "22023", "lease cannot be 1 year");
    refuses("set_limits(NULL, '61 min')", "22023", "skew cannot be 01:01:00");
    refuses("set_limits('-1 s', NULL)", "22023", "lease cannot be -00:00:01");
    refuses("set_lease('999 ms', NULL)", "22023", "lease cannot be 00:00:00.999");
    refuses("set_lease(NULL, '9 ms')", "22023", "skew cannot be 00:00:00.009");
    // Nothing is permitted yet but the defaults.
    refuses("set_lease('601 s', NULL)", "22023", "cannot be beyond the fleet's limits");
    refuses("set_lease(NULL, '61 s')", "22023", "cannot be beyond the fleet's limits");
    refuses("restored(lease => '31 days', skew => '1 min')", "22023", "lease cannot be 31 days");
    refuses("lost('10 min', '1 day')", "22023", "skew cannot be 1 day");
    refuses("lost(NULL, '1 min')", "22023", "are not known");
    refuses("set_grace('-1 s')", "22023", "grace cannot be -00:00:01");
    refuses("set_grace(NULL)", "22023", "grace cannot be");
    refuses("set_loses_nothing(NULL)", "22004", "cannot be NULL");
    refuses("reserve(-1, now())", "22023", "worker -1 of datacenter -1");
    refuses("reserve(NULL, now())", "22023", "worker NULL");
    refuses("reserve(5, 'infinity')", "22023", "until infinity");
    refuses("reserve(5, NULL)", "22023", "until NULL");
    // A mark in milliseconds that is taken for seconds would keep it for thousands of years.
    refuses("reserve(5, now() + '31 days')", "22023", "more than 30 days from now");
    refuses("reserve(5, now() + '31 days', force => NULL)", "22023", "more than 30 days from now");
    refuses("add_fleet('default')", "42710", "fleet \"default\" exists already");
    refuses("add_fleet('')", "22023", "needs a name");
    refuses("add_fleet(NULL)", "22023", "needs a name");
    let mut session = server.connect();
    let mut says = |sql: &str, words: &str| {
        let said = session.value(&format!("snowflake_registry.{sql}"));
        assert!(said.contains(words), "{sql}: {said}");
    };
    says("set_range(5, 6)", "Numbers 5 to 6 may be leased. Servers refuse a range with numbers beyond their layout's");
    says("set_limits('20 min', NULL)", "the first server brings the other one. It cannot be lowered");
    says("set_limits('20 min', '2 min')", "This cannot be lowered. Each freeze lasts 00:24:00 from now on.");
    refuses("set_limits('19 min', NULL)", "22023", "cannot be lowered");
    refuses("set_limits(NULL, '119 s')", "22023", "cannot be lowered");
    says("set_limits(NULL, '3 min')", "Leases may be 00:20:00 long, and clocks 00:03:00 apart");
    says("set_lease('1 min', NULL)", "Leases are 00:01:00 long, and clocks may be 00:01:00 apart");
    refuses("set_lease('1201 s', NULL)", "22023", "cannot be beyond the fleet's limits");
    refuses("set_lease(NULL, '181 s')", "22023", "cannot be beyond the fleet's limits");
    says("set_lease('20 min', '3 min')", "Leases are 00:20:00 long, and clocks may be 00:03:00 apart");
    let mut numbers = [(); 2].map(|()| Member::new(config_of(&server), &oracle).lease().worker);
    numbers.sort_unstable();
    assert_eq!(numbers, [5, 6]);
    for sql in ["DELETE FROM snowflake_registry.numbers", "TRUNCATE snowflake_registry.numbers"] {
        let error = refused(server.connect().query(sql, &[]));
        assert_eq!(
            (error.sqlstate.as_str(), error.message.as_str()),
            ("55000", "records of numbers cannot be deleted")
        );
    }
    let third = Member::new(config_of(&server), &oracle);
    assert!(matches!(third.keep(), Err(Failure::NoneFree { numbers: 2, .. })));
    let fleet = third.registry().read(Wanted::All).unwrap().fleet;
    assert_eq!((fleet.longest_ms, fleet.skew_ms), (1_200_000, 180_000));
    assert_eq!((fleet.used_lease_ms(), fleet.used_skew_ms()), (1_200_000, 180_000));
    refuses("lost('1 min', '1 min')", "55000", "has leases");
}

/// A registry that has failed over, and whose servers have not noted it, may lack leases. What an
/// operator does then must not hide that.
#[test]
fn an_operator_does_not_hide_what_a_failover_may_have_lost() {
    let (server, oracle) = (registry(), Oracle::new());
    execute(&server, "SELECT snowflake_registry.set_range(7, 9)");
    let member = Member::new(config_of(&server), &oracle);
    let worker = member.lease().worker;
    let free = if worker == 9 { 8 } else { 9 };
    // As if the record had been written before a failover.
    execute(&server, "UPDATE snowflake_registry.fleets SET timeline = timeline - 1");
    let reserve = format!("reserve({free}, now())");
    let says = |call: &str, sqlstate: &str, words: &str| {
        let refusal = refused(server.connect().batch_execute(&format!("SELECT snowflake_registry.{call}")));
        assert_eq!(refusal.sqlstate, sqlstate, "{call}: {refusal:?}");
        assert!(refusal.message.contains(words), "{call}: {refusal:?}");
    };
    for call in ["set_loses_nothing(true)", "close()", "reset_settings()", &reserve] {
        says(call, "55000", "may have lost leases of fleet \"default\", which no server has noted yet");
    }
    execute(&server, "SELECT snowflake_registry.set_loses_nothing(false)");
    // A server notes it, and the freeze begins.
    let _ = member.keep();
    says(&reserve, "55006", "a lost lease of number");
    execute(&server, "SELECT snowflake_registry.set_loses_nothing(true), snowflake_registry.close()");
    execute(&server, "SELECT snowflake_registry.open(moved => false)");
    member.give_back();
    says("reset_settings()", "55006", "may still draw ids");
    // With a synchronous standby, another timeline has lost nothing. Another store may have.
    execute(&server, "UPDATE snowflake_registry.fleets SET timeline = timeline - 1, freeze_ms = 0");
    execute(&server, &format!("SELECT snowflake_registry.{reserve}, snowflake_registry.close()"));
    execute(&server, "UPDATE snowflake_registry.fleets SET store = store + 1");
    says("close()", "55000", "which no server has noted yet");
}

/// A raise can be lost. So can what the first server has written.
#[test]
fn a_raised_limit_is_not_used_and_a_forgotten_one_is_not_lowered() {
    let (server, oracle) = (registry(), Oracle::new());
    let of = || Member::new(config_of(&server), &oracle).registry().read(Wanted::All).unwrap().fleet;
    let set = |call: &str| execute(&server, &format!("SELECT snowflake_registry.{call}"));
    let used = || (of().used_lease_ms(), of().used_skew_ms());
    // Below the defaults, what is used follows, because no server has started.
    set("set_limits('3 s', '1 s')");
    assert_eq!(used(), (3000, 1000));
    set("set_limits('1 h', '2 min')");
    assert_eq!(used(), (3000, 1000));
    set("restored(lease => '2 h', skew => '3 min')");
    assert_eq!((of().longest_ms, of().skew_ms, used()), (7_200_000, 180_000, (3000, 1000)));
    set("set_lease('2 h', NULL)");
    assert_eq!(used(), (7_200_000, 1000));
    // As if the freeze were over.
    execute(&server, "UPDATE snowflake_registry.fleets SET freeze_ms = 0");
    set("reset_settings()");
    assert_eq!((of().longest_ms, of().skew_ms, of().lease_ms, of().clock_skew_ms), (0, 0, 0, 0));
    execute(&server, block("fleet-limits"));
    assert_eq!((of().longest_ms, of().skew_ms, used()), (3_600_000, 60_000, (DEFAULT_LEASE_MS, DEFAULT_SKEW_MS)));
    execute(&server, block("fleet-lease"));
    assert_eq!(used(), (120_000, 10_000));
    // The registry is another one now, and may lack what the first server has brought.
    set("reset_settings()");
    execute(&server, "UPDATE snowflake_registry.fleets SET timeline = timeline - 1");
    for call in ["set_limits('599 s', NULL)", "set_limits(NULL, '59 s')"] {
        let error = refused(server.connect().query(&format!("SELECT snowflake_registry.{call}"), &[]));
        assert_eq!((error.sqlstate.as_str(), error.message.as_str()), ("22023", "limits of a fleet cannot be lowered"));
    }
    set("set_limits('10 min', '1 min')");
}

/// The registry knows the numbers of built-in layouts by their fingerprints, as the core does.
#[test]
fn a_number_that_the_layout_does_not_have_is_neither_leased_nor_kept() {
    let server = registry();
    let mut session = server.connect();
    let mut set = |layout: &str, backup: bool| {
        let set = format!("UPDATE snowflake_registry.fleets SET layout = {layout}, backup = {backup}");
        session.batch_execute(&set).unwrap();
        session.value("SELECT snowflake_registry.layout_numbers(layout, backup) FROM snowflake_registry.fleets")
    };
    let mut calls = server.connect();
    for (name, line) in BUILT_IN {
        let layout = Layout::parse(line).unwrap();
        for backup in [false, true] {
            let Ok(numbers) = Identity::worker_numbers(&layout, backup) else { continue };
            assert_eq!(set(&layout.fingerprint().to_string(), backup), numbers.to_string(), "{name} {backup}");
            for (call, words) in [
                (format!("set_range(0, {numbers})"), "has numbers that the layout does not have"),
                (format!("reserve({numbers}, now())"), "the layout has no number"),
            ] {
                let error = refused(calls.query(&format!("SELECT snowflake_registry.{call}"), &[]));
                assert!(error.sqlstate == "22023" && error.message.contains(words), "{call}: {error:?}");
                let detail = error.detail.unwrap_or_default();
                assert!(detail.contains(&format!("has the numbers 0 to {}.", numbers - 1)), "{detail}");
            }
            let said = calls.value(&format!("snowflake_registry.set_range(0, {})", numbers - 1));
            assert_eq!(said, format!("Numbers 0 to {} may be leased.", numbers - 1));
        }
    }
    // Of another layout only the servers know it.
    assert_eq!(set("5", false), "NULL");
    assert!(calls.value("snowflake_registry.set_range(0, 2000)").contains("Servers refuse a range"));
}

#[test]
fn a_fleet_whose_first_server_has_brought_the_wrong_settings_gets_others() {
    let (server, oracle) = (registry(), Oracle::new());
    server.limit_leases("20 min", "500 ms");
    let wrong = Member::new(config_of(&server), &oracle).with_layout("js53");
    wrong.lease();
    let right = Member::new(config_of(&server), &oracle);
    assert!(matches!(right.keep(), Err(Failure::OtherLayout { .. })));
    let reset = block("fleet-reset");
    let mut session = server.connect();
    let error = refused(session.query(reset, &[]));
    assert!(error.sqlstate == "55006" && error.message.contains("may still draw ids"), "{error:?}");
    wrong.give_back();
    wait_until("the end of what clocks may be apart", || session.batch_execute(reset).is_ok());
    right.lease();
    let fleet = right.registry().read(Wanted::All).unwrap().fleet;
    assert_eq!((fleet.range, fleet.longest_ms, fleet.skew_ms), (Some((0, 1023)), DEFAULT_LEASE_MS, DEFAULT_SKEW_MS));
    assert!(matches!(wrong.keep(), Err(Failure::OtherLayout { .. })));
    // A range that an operator has set stays.
    execute(&server, "SELECT snowflake_registry.set_range(16, 1023)");
    execute(&server, "UPDATE snowflake_registry.numbers SET from_ms = 0, until_ms = 1");
    assert!(session.value("snowflake_registry.reset_settings()").ends_with(" The range stays 16 to 1023."));
}

#[test]
fn pruning_forgets_old_leases_and_keeps_the_last_one_of_each_number() {
    let (server, oracle) = (registry(), Oracle::new());
    execute(&server, "SELECT snowflake_registry.set_range(7, 8)");
    for _ in 0..3 {
        let member = Member::new(config_of(&server), &oracle);
        member.lease();
        member.give_back();
    }
    let held = Member::new(config_of(&server), &oracle).lease();
    let mut session = server.connect();
    let count = |session: &mut Client| session.value("SELECT count(*) FROM snowflake_registry.leases");
    assert_eq!(count(&mut session), "4");
    // As if three years had passed since.
    let age = "UPDATE snowflake_registry.history SET from_ms = from_ms - 100000000000, until_ms = until_ms - 100000000000 \
               WHERE until_ms IS NOT NULL";
    execute(&server, age);
    let numbers = "SELECT string_agg(n::text, ' ' ORDER BY worker) FROM snowflake_registry.numbers n";
    let before = session.value(numbers);
    for (before, sqlstate) in
        [("now()", "22023"), ("now() - interval '11 min'", "22023"), ("'infinity'", "22023"), ("NULL", "22023")]
    {
        let refusal = refused(session.batch_execute(&format!("SELECT snowflake_registry.prune({before})")));
        assert_eq!(refusal.sqlstate, sqlstate, "{before}: {refusal:?}");
        assert!(refusal.hint.is_some(), "{refusal:?}");
    }
    assert_eq!(
        refused(session.batch_execute("SELECT snowflake_registry.prune('-infinity', 'other')")).sqlstate,
        "SF004"
    );
    let said = session.value("SELECT snowflake_registry.prune('-infinity')");
    assert_eq!(said, "Pruned leases: 0. Leases left: 4.");
    let said = session.value("SELECT snowflake_registry.prune(now() - interval '2 years')");
    assert!(said.starts_with("Pruned leases that ended before "), "{said}");
    assert!(said.ends_with(&format!(". Leases left: {}.", count(&mut session))), "{said}");
    let kept = "SELECT string_agg(DISTINCT worker::text, ' ') FROM snowflake_registry.leases";
    let used = "SELECT string_agg(worker::text, ' ' ORDER BY worker) FROM snowflake_registry.numbers";
    assert_eq!(session.value(kept), session.value(used));
    assert_eq!(session.value(numbers), before);
    let drawn_by = format!(
        "SELECT count(*) FROM snowflake_registry.drawn_by(snowflake_registry.instant({}), {})",
        held.from_ms, held.worker
    );
    assert_eq!(session.value(&drawn_by), "1");
    // The numbers are leased as before.
    let next = Member::new(config_of(&server), &oracle).lease();
    assert_ne!(next.worker, held.worker);
}

#[test]
fn a_number_that_was_set_on_a_server_is_kept_until_its_ids_have_ended() {
    let (server, oracle) = (registry(), Oracle::new());
    execute(&server, "SELECT snowflake_registry.set_range(5, 5)");
    let said = server.connect().value("snowflake_registry.reserve(5, '2000-01-01 00:00:00+00'::timestamptz + '1 ms')");
    assert!(said.starts_with("Number 5 is reserved until 2000-01-01"), "{said}");
    assert!(said.ends_with("This cannot be undone."), "{said}");
    execute(&server, "SELECT snowflake_registry.reserve(5, now() + '1 hour')");
    let member = Member::new(config_of(&server), &oracle);
    assert!(matches!(member.keep(), Err(Failure::NoneFree { numbers: 1, .. })));
    let mut session = server.connect();
    assert_eq!(session.value("SELECT state FROM snowflake_registry.fleet"), "reserved");
    let error = refused(session.query("SELECT snowflake_registry.reserve(5, now() + '2 hours')", &[]));
    assert_eq!(error.sqlstate, "55006");
    // What is far ahead needs a second word.
    execute(&server, "SELECT snowflake_registry.reserve(9, now() + '31 days', force => true)");
    assert_eq!(session.value("SELECT ends > now() + '30 days' FROM snowflake_registry.fleet WHERE worker = 9"), "true");
    // One whose ids have ended is leased from their end on.
    execute(
        &server,
        "SELECT snowflake_registry.set_range(6, 6), snowflake_registry.reserve(6, now() - '1 ms'::interval)",
    );
    let lease = member.lease();
    assert_eq!(lease.worker, 6);
    assert_eq!(oracle.accept_history(&mut session), 5);
}

// The oracle

#[test]
fn the_oracle_refuses_leases_that_overlap() {
    let oracle = Oracle::new();
    let accept = |datacenter, worker, holder, from_ms, until_ms| {
        oracle
            .try_accept(datacenter, worker, holder, from_ms, until_ms)
            .map_err(|error| error.as_db_error().expect("the server refuses").code().code().to_owned())
    };
    assert_eq!(accept(None, 1, 1, 0, 10), Ok(()));
    // A renewal, and a give-back.
    assert_eq!(accept(None, 1, 1, 0, 30), Ok(()));
    assert_eq!(accept(None, 1, 1, 0, 20), Ok(()));
    let overlaps = || Err("23P01".to_owned());
    assert_eq!(accept(None, 1, 2, 19, 40), overlaps());
    assert_eq!(accept(None, 1, 2, 20, 40), Ok(()));
    assert_eq!(accept(None, 1, 1, 0, 21), overlaps());
    assert_eq!(accept(None, 2, 3, 0, 40), Ok(()));
    assert_eq!(accept(Some(0), 1, 3, 0, 40), Ok(()));
    assert_eq!(oracle.count(), 4);
    // Another fleet.
    assert_eq!(Oracle::new().try_accept(None, 1, 9, 0, 40).map_err(|error| error.to_string()), Ok(()));
}
