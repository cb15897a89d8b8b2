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

use cluster::operator::commands;
use cluster::pages::block;
use cluster::pooler::{PgBouncer, PoolMode, has_pgbouncer};
use cluster::registry::{Poll, ROLE, config, now_ms, number, role_sql};
use cluster::{Builder, Draw, Member, Operated, Oracle, Server, refused, skip, wait_until};
use postgres::Client;
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::lease::{LeaseNotice, LeaseTerms};
use snowflake_core::fleet::registry::{
    DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, Fleet, NumberKey, NumberRecord, RecordChange, Store, Swap, SwapAnswer, Wanted,
};
use snowflake_core::id::layout::Layout;
use snowflake_registry::{Config, Postgres, Registry, RegistryError, RegistryStep};

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
                member.registry().read(&Wanted::default()).unwrap();
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
    let mut states = |first: &str, last: &str| {
        server.operate(&["set-range", first, last]);
        session.value("SELECT string_agg(worker || ' ' || state, ', ' ORDER BY worker) FROM snowflake_registry.fleet")
    };
    states("5", "5");
    let member = Member::new(config_of(&server), &oracle);
    member.lease();
    assert_eq!(states("5", "5"), "5 held");
    assert_eq!(states("6", "9"), "5 held, outside the range");
    assert_eq!(states("0", "4"), "5 held, outside the range");
    // It is renewed nevertheless.
    member.lease();
    assert_eq!(states("0", "4"), "5 held, outside the range");
    // A lease that begins later, and a number that nobody draws with.
    execute(&server, "UPDATE snowflake_registry.numbers SET from_ms = until_ms - 1000");
    server.operate(&["reserve", "8", "in 1 hour"]);
    assert_eq!(states("0", "4"), "5 ahead, outside the range, 8 reserved");
    assert_eq!(states("5", "5"), "5 ahead, 8 reserved");
    execute(&server, "UPDATE snowflake_registry.numbers SET from_ms = 0, until_ms = 1");
    assert_eq!(states("0", "4"), "5 free, 8 free");
}

#[test]
fn the_history_tells_which_server_drew_an_id() {
    let (server, oracle) = (registry(), Oracle::new());
    server.operate(&["set-range", "7", "7"]);
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
    let before = first.registry().read(&Wanted::default()).unwrap().fleet;
    assert_eq!((before.layout, before.range, before.longest_ms, before.skew_ms), (None, None, 0, 0));
    first.lease();
    let fleet = first.registry().read(&Wanted::default()).unwrap().fleet;
    let fingerprint = Layout::parse("snowflake").unwrap().fingerprint();
    assert_eq!((fleet.layout, fleet.range), (Some((fingerprint, false)), Some((0, 1023))));
    assert_eq!((fleet.longest_ms, fleet.skew_ms), (DEFAULT_LEASE_MS, DEFAULT_SKEW_MS));
    assert_eq!(fleet.uuid, before.uuid);
    // Those that come later take it as it is.
    let longer = LeaseTerms { max_borrow_ms: 2 * DEFAULT_LEASE_MS };
    Member::new(config_of(&server), &oracle).with_terms(longer).lease();
    assert_eq!(first.registry().read(&Wanted::default()).unwrap().fleet, fleet);
    let other = Member::new(config_of(&server), &oracle).with_layout("js53");
    assert!(matches!(other.keep(), Err(Failure::OtherLayout { .. })));
}

#[test]
fn each_datacenter_has_its_own_numbers() {
    let (server, oracle) = (registry(), Oracle::new());
    server.operate(&["set-range", "3", "3"]);
    for datacenter in [0, 1, 31] {
        let member = || Member::new(config_of(&server), &oracle).with_layout("twitter").in_datacenter(datacenter);
        assert_eq!(member().lease().worker, 3);
        let second = member();
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
        registry.read(&Wanted::default()).unwrap();
        let pid = registry.connection_id().expect("it is connected");
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
                assert_eq!(error.report().code, "08007");
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
    member.registry().read(&Wanted::default()).unwrap();
    lose_the_synchronous_standby(&server);
    member.set_config(hasty(config_of(&server)));
    for is_first in [true, false, false, false] {
        let error = member.unanswered();
        // Those that come later wait for its lock.
        match is_first {
            true => {
                assert!(matches!(error, RegistryError::TimedOut { step: RegistryStep::SwapNumber, .. }), "{error:?}")
            }
            false => assert!(matches!(error, RegistryError::Locked(_)), "{error:?}"),
        }
        assert!(error.report().hint.is_some_and(|hint| hint.contains("pg_stat_replication")));
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
    assert!(members.iter().any(Member::has_begun_a_generation));
    // A new one must wait until the lost lease has ended.
    let new = Member::new(config_of(&standby), &oracle);
    assert!(matches!(new.keep(), Err(Failure::Frozen { until_ms }) if until_ms > lost.until_ms));
    oracle.accept_history(&mut session);
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
    restored.operate(&["restored"]);
    kept.set_config(config_of(&restored));
    let _ = kept.keep();
    assert_eq!(kept.held().map(|lease| lease.holder), Some(before.holder));
    let new = Member::new(config_of(&restored), &oracle);
    assert!(matches!(new.keep(), Err(Failure::Frozen { until_ms }) if until_ms > lost.until_ms));
    // The limits may be lost, too.
    restored.operate(&["restored", "--lease", "2 hours", "--skew", "3 min"]);
    assert!(matches!(new.keep(), Err(Failure::Frozen { until_ms }) if until_ms > now_ms() + 7_200_000));
}

// A registry that must not be used

#[test]
fn a_standby_is_refused() {
    let server = registry();
    let standby = server.standby().start();
    let registry = Postgres::new(config_of(&standby), Poll);
    assert_eq!(registry.read(&Wanted::default()), Err(RegistryError::InRecovery));
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
        assert_eq!(registry.read(&Wanted::default()).as_ref(), Err(expected));
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
    let read = |config: &Config| Postgres::new(config.clone(), Poll).read(&Wanted::default());
    set(&version("1"));
    assert_eq!(read(&config), Err(RegistryError::OtherVersion(Some(1))));
    set(&version("NULL::integer"));
    assert!(matches!(read(&config), Err(RegistryError::Garbage(what)) if what.contains("null")));
    set("DROP FUNCTION snowflake_registry.read, snowflake_registry.swap");
    says(&config, &RegistryError::OtherVersion(None));
}

#[test]
fn a_server_that_cannot_be_reached_is_named_in_libpqs_words() {
    let server = plain().tcp().start();
    server.make_registry();
    let says = |conninfo: &str, words: &str| {
        let error = Postgres::new(config(conninfo), Poll).read(&Wanted::default()).unwrap_err();
        let text = error.report().detail.unwrap_or_default();
        assert!(matches!(error, RegistryError::Connect(_)) && text.contains(words), "{error:?}");
    };
    let tcp = format!("host=127.0.0.1 port={} dbname=postgres user={ROLE}", server.port());
    says(&tcp, "no password supplied");
    says(&format!("{tcp} password=wrong"), "password authentication failed");
    says("host=/nonexistent", "No such file or directory");
    says(&format!("{} dbname=nonexistent", server.registry_conninfo()), "does not exist");
    says(&format!("{} target_session_attrs=standby", server.registry_conninfo()), "standby");
    says("hots=a", "not a connection string of libpq");
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
    let error = registry.read(&Wanted::default()).unwrap_err();
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
    assert_eq!(registry.read(&Wanted::numbers_of(None)).unwrap().numbers.len(), 131_072);
    insert(131_073, 131_073);
    assert_eq!(registry.read(&Wanted::numbers_of(None)), too_long(131_074, "rows"));
    assert_eq!(registry.read(&Wanted::number(number(7))).unwrap().numbers.len(), 1);

    // One of them could say that a commit is not what it should be.
    let notices = |count: u32| {
        let body =
            format!("BEGIN FOR i IN 1..{count} LOOP RAISE NOTICE '%', repeat('x', 1000); END LOOP; RETURN true; END");
        execute(
            &server,
            &format!(
                "CREATE OR REPLACE FUNCTION snowflake_registry.check_server() RETURNS boolean LANGUAGE plpgsql AS $${body}$$"
            ),
        );
    };
    notices(100);
    assert!(registry.read(&Wanted::number(number(7))).is_ok());
    notices(101);
    assert_eq!(registry.read(&Wanted::number(number(7))), too_long(100, "notices"));
    notices(0);
    assert!(registry.read(&Wanted::number(number(7))).is_ok());

    // One value is enough, too.
    execute(
        &server,
        "DROP FUNCTION snowflake_registry.read; \
         CREATE FUNCTION snowflake_registry.read(text, text, integer, bigint, text[], OUT kind text, OUT record text) \
         LANGUAGE sql SECURITY DEFINER AS $$ SELECT 'registry', repeat('x', 100000000) $$",
    );
    assert_eq!(registry.read(&Wanted::number(number(7))), too_long(64 << 20, "bytes"));
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let port = listener(|mut stream| while stream.read(&mut [0; 1000]).is_ok_and(|read| read > 0) {});
    let silent = format!("host=127.0.0.1 port={port}");
    let error = Postgres::new(hasty(config(&silent)), Poll).read(&Wanted::default()).unwrap_err();
    assert_eq!(error, RegistryError::TimedOut { step: RegistryStep::Connect, after: Duration::from_secs(1) });

    // The next host has its turn, which libpq by itself would not give it.
    let server = registry();
    let socket = server.data_dir().parent().unwrap().display().to_string();
    let both =
        format!("host='127.0.0.1,127.0.0.1,{socket}' port={port},{port},{} dbname=postgres user={ROLE}", server.port());
    assert!(Postgres::new(hasty(config(&both)), Poll).read(&Wanted::default()).is_ok());
    // An error names those before it, too.
    let error =
        Postgres::new(hasty(config(&format!("{both} user=nobody"))), Poll).read(&Wanted::default()).unwrap_err();
    let text = error.report().detail.unwrap_or_default();
    assert!(text.contains("timed out") && text.contains("role \"nobody\" does not exist"), "{text}");

    // A statement that waits for ever.
    let registry = Postgres::new(config_of(&server), Poll);
    registry.read(&Wanted::default()).unwrap();
    let mut locker = server.connect();
    let mut lock = locker.transaction().unwrap();
    lock.batch_execute("LOCK snowflake_registry.fleets").unwrap();
    let registry = Postgres::new(hasty(config_of(&server)), Poll);
    assert_eq!(
        registry.read(&Wanted::default()),
        Err(RegistryError::TimedOut { step: RegistryStep::Read, after: Duration::from_secs(1) })
    );
    lock.rollback().unwrap();
    assert!(registry.read(&Wanted::default()).is_ok());
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
    let reading = registry.read(&Wanted::numbers_of(None)).unwrap();
    let mut fleet = reading.fleet;
    fleet.version = fleet.version.wrapping_add(1);
    Swap::after(&reading, vec![RecordChange::Fleet(fleet)])
}

/// Returns the fleet's record that such a swap writes.
fn written(swap: &Swap) -> Fleet {
    match swap.changes[..] {
        [RecordChange::Fleet(fleet)] => fleet,
        _ => panic!("it writes the fleet's record: {swap:?}"),
    }
}

/// Returns a swap that compares the same, and writes something else.
fn with(swap: &Swap, change: RecordChange) -> Swap {
    Swap { changes: vec![change], ..*swap }
}

/// Returns the first lease of a number, half a minute long.
fn lease_of(swap: &Swap, number: NumberKey, from_ms: i64, holder: u128) -> Swap {
    let generation = written(swap).generation;
    let record = NumberRecord {
        holder,
        nonce: 1,
        count: 1,
        server: 1,
        from_ms,
        until_ms: from_ms + 30_000,
        generation,
        renewed_ms: from_ms,
        offset_ms: 0,
    };
    with(swap, RecordChange::Number { number, was: None, record })
}

#[test]
fn a_swap_changes_nothing_unless_everything_is_as_it_was_read() {
    let (server, oracle) = (registry(), Oracle::new());
    Member::new(config_of(&server), &oracle).lease();
    let registry = Postgres::new(config_of(&server), Poll);
    let fleet = fleet_swap(&registry);
    let before = registry.read(&Wanted::numbers_of(None)).unwrap();
    let unused = (0..).map(number).find(|number| !before.numbers.contains_key(number)).unwrap();
    let first = lease_of(&fleet, unused, now_ms(), 7);
    for swap in [&fleet, &first] {
        let mut others = [(); 3].map(|()| swap.clone());
        others[0].fleet ^= 1;
        others[1].incarnation.store ^= 1;
        others[2].incarnation.timeline += 1;
        for other in others {
            assert_eq!(registry.swap(&other), Ok(SwapAnswer::Refused), "{other:?}");
        }
    }
    let RecordChange::Number { record, .. } = first.changes[0] else { unreachable!() };
    let next = |was, record| with(&first, RecordChange::Number { number: unused, was, record });
    assert_eq!(registry.swap(&next(Some(5), record)), Ok(SwapAnswer::Refused));
    let after = registry.read(&Wanted::numbers_of(None)).unwrap();
    assert_eq!((before.fleet, before.numbers), (after.fleet, after.numbers));

    assert_eq!(registry.swap(&first), Ok(SwapAnswer::Done(first.incarnation)));
    // The same message again.
    assert_eq!(registry.swap(&first), Ok(SwapAnswer::Refused));
    assert_eq!(registry.swap(&next(Some(2), NumberRecord { nonce: 3, count: 2, ..record })), Ok(SwapAnswer::Refused));
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
    assert_eq!(registry.swap(&next(Some(1), extreme)), Ok(SwapAnswer::Done(first.incarnation)));
    assert_eq!(registry.read(&Wanted::number(unused)).unwrap().numbers, [(unused, extreme)].into());
    assert_eq!(registry.swap(&fleet), Ok(SwapAnswer::Done(fleet.incarnation)));
    assert_eq!(registry.swap(&fleet), Ok(SwapAnswer::Refused));
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
    assert_eq!(may, ["read", "swap"]);
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
                  WHERE pronamespace = 'snowflake_registry'::regnamespace AND proname IN ('read', 'check_server')";
    let records = ["fleets", "numbers", "history"]
        .map(|table| format!("SELECT string_agg(t::text, ' ' ORDER BY t) FROM snowflake_registry.{table} t"));
    records.iter().map(String::as_str).chain([rights]).map(|sql| session.value(sql)).collect()
}

/// Names the owner, before the file.
const AS_DBA: &str = "--command=SET snowflake_registry.owner = 'dba'";

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
         DROP FUNCTION snowflake_registry.swap, snowflake_registry.keep_numbers CASCADE; \
         DROP TABLE snowflake_registry.tags CASCADE; \
         DROP VIEW snowflake_registry.leases CASCADE; \
         DROP TRIGGER check_number ON snowflake_registry.numbers; \
         CREATE OR REPLACE FUNCTION snowflake_registry.instant(ms bigint) RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'; \
         COMMENT ON TABLE snowflake_registry.history IS 'old'",
    );
    let mut session = server.connect();
    let before = contents(&mut session);
    // A superuser brings it up to date, and everything still belongs to its owner.
    for again in [false, true] {
        let said = server.make_registry_with(&[AS_DBA]);
        assert!(said.contains("this database had a registry already: records and rights are as they were"), "{said}");
        assert!(!said.contains("WARNING"), "{said}");
        // It tells what it has changed, and what is left to do.
        for (line, parts) in [
            (" new: ", ["function keep_numbers()", "function swap(", "table tags", "view leases"]),
            (" changed: ", ["function instant(", "table history", "table numbers", ""]),
        ] {
            let found = said.lines().find(|found| found.contains(line)).unwrap_or_default();
            assert!(parts.iter().all(|part| found.contains(part)) != again, "{line}: {said}");
        }
        assert_eq!(said.contains("nothing has changed"), again, "{said}");
        assert!(said.contains("role snowflake lacks a right that servers need"), "{said}");
        let grant = said.split("HINT:  Run: ").nth(1).and_then(|hint| hint.lines().next()).unwrap_or_default();
        assert_eq!(grant, "GRANT EXECUTE ON FUNCTION snowflake_registry.swap TO snowflake;");
        assert_eq!(contents(&mut session), before);
        let others = "SELECT count(*) FROM (SELECT relnamespace, relowner FROM pg_class \
                      UNION ALL SELECT pronamespace, proowner FROM pg_proc) AS o (namespace, owner) \
                      WHERE namespace = 'snowflake_registry'::regnamespace AND owner <> 'dba'::regrole";
        assert_eq!(session.value(others), "0");
    }
    let triggers = "SELECT count(*) FROM pg_trigger WHERE tgname IN \
                    ('check_fleet', 'check_number', 'check_tag', 'keep_tags', 'keep_numbers', 'note_lease', 'note_first_lease')";
    assert_eq!(session.value(triggers), "7");
    assert_eq!(session.value("SELECT snowflake_registry.instant(0) < '2000-01-01'"), "true");
    assert!(!session.value("obj_description('snowflake_registry.history'::regclass)").contains("old"));
    // New functions are not for everybody.
    let everybody = "SELECT count(*) FROM pg_proc p, aclexplode(coalesce(proacl, acldefault('f', proowner))) a \
                     WHERE pronamespace = 'snowflake_registry'::regnamespace AND a.grantee = 0";
    assert_eq!(session.value(everybody), "0");
    execute(&server, "GRANT EXECUTE ON FUNCTION snowflake_registry.swap TO snowflake");
    assert!(!server.make_registry_with(&[AS_DBA]).contains("lacks a right"));
    assert_eq!(member.lease().holder, lease.holder);
    assert_eq!(oracle.accept_history(&mut session), 1);

    let refused = |options: &[&str], words: &str| {
        let refused = server.registry_file(options);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(words), "{said}");
        assert!(!said.contains("NOTICE"), "{said}");
    };
    refused(&[], "schema \"snowflake_registry\" belongs to role \"dba\", and not to \"postgres\"");
    refused(&["--command=SET snowflake_registry.owner = 'nobody'"], "belongs to role \"dba\", and not to \"nobody\"");
    // A file of another version leaves it alone.
    let sql =
        "CREATE OR REPLACE FUNCTION snowflake_registry.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 3'";
    execute(&server, sql);
    refused(&[AS_DBA], "a registry of version 3, and this file is for version 2");
    assert_eq!(session.value("snowflake_registry.version()"), "3");
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
        let owner = "--command=SET snowflake_registry.owner = 'mallory'";
        for options in [&["--dbname=ids"][..], &["--dbname=ids", owner]] {
            let run = server.registry_file(options);
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            let is_super = "SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'";
            assert_eq!(server.connect().value(is_super), "false", "{trap}: {said}");
            let is_refused = said.contains("belongs to role \"mallory\", and not to \"postgres\"");
            assert_eq!(is_refused, is_there && options.len() == 1, "{trap}: {said}");
        }
    }
}

/// Only the role that runs the file names its owner, and not the database's owner.
#[test]
fn no_setting_of_a_database_or_a_role_names_the_owner() {
    let server = plain().start();
    execute(&server, "CREATE ROLE mallory LOGIN");
    execute(&server, "CREATE DATABASE ids OWNER mallory");
    // Newer servers permit this to no ordinary role, unless a superuser does.
    execute(&server, "GRANT SET ON PARAMETER snowflake_registry.owner TO mallory");
    let mut mallory = server.connection().user("mallory").dbname("ids").connect(postgres::NoTls).unwrap();
    mallory.batch_execute("ALTER DATABASE ids SET Snowflake_Registry.Owner = 'mallory'").unwrap();
    for options in [&["--dbname=ids"][..], &["--dbname=ids", AS_DBA]] {
        let run = server.registry_file(options);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(!run.status.success() && said.contains("is set for a database or a role"), "{said}");
    }
    assert_eq!(mallory.value("to_regnamespace('snowflake_registry')"), "NULL");
}

#[test]
fn a_registry_of_an_unreleased_build_is_refused_with_both_formats() {
    let server = registry();
    execute(
        &server,
        "CREATE OR REPLACE FUNCTION snowflake_registry.version() RETURNS integer LANGUAGE sql STABLE AS 'SELECT 1'",
    );
    let output = server.registry_file(&[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("a registry of version 1, and this file is for version 2"), "{said}");
    assert!(said.contains("Nothing converts it."), "{said}");
}

#[test]
fn a_new_registry_belongs_to_the_role_that_is_named() {
    let server = plain().start();
    execute(&server, "CREATE ROLE \"the dba\"; GRANT CREATE ON DATABASE postgres TO \"the dba\"");
    let owner = "--command=SET snowflake_registry.owner = 'the dba'";
    server.make_registry_with(&[owner]);
    execute(&server, &role_sql());
    let owners = "SELECT string_agg(DISTINCT o::regrole::text, ' ') FROM (SELECT nspowner FROM pg_namespace \
                  WHERE nspname = 'snowflake_registry' UNION ALL SELECT proowner FROM pg_proc \
                  WHERE pronamespace = 'snowflake_registry'::regnamespace UNION ALL SELECT relowner FROM pg_class \
                  WHERE relnamespace = 'snowflake_registry'::regnamespace) AS s (o)";
    assert_eq!(server.connect().value(owners), "\"the dba\"");
    let oracle = Oracle::new();
    Member::new(config_of(&server), &oracle).lease();
    assert!(server.make_registry_with(&[owner]).contains("nothing has changed"));
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
        let runs = [(); 5].map(|()| server.registry_file(&[]));
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
    let refused = server.registry_file(&[]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("lock timeout"), "{said}");
    lock.rollback().unwrap();
    server.make_registry_with(&[]);
}

#[test]
fn the_file_is_refused_where_a_registry_would_forget() {
    let server = plain().config("fsync", "off").start();
    let refused = server.registry_file(&[]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("\"fsync\" is off"));
    let standby = server.standby().start();
    let refused = standby.registry_file(&[]);
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
fn a_fleet_whose_first_server_has_brought_the_wrong_settings_gets_others() {
    let (server, oracle) = (registry(), Oracle::new());
    server.limit_leases("20 min", "500 ms");
    let wrong = Member::new(config_of(&server), &oracle).with_layout("js53");
    wrong.lease();
    let right = Member::new(config_of(&server), &oracle);
    assert!(matches!(right.keep(), Err(Failure::OtherLayout { .. })));
    assert!(server.refuses(&["reset-settings"]).contains("may still draw ids"));
    wrong.give_back();
    assert_eq!(commands(block("fleet-reset")), "snowflake-registry reset-settings");
    wait_until("the end of what clocks may be apart", || server.try_operate(&["reset-settings"]).is_ok());
    right.lease();
    let fleet = right.registry().read(&Wanted::default()).unwrap().fleet;
    assert_eq!((fleet.range, fleet.longest_ms, fleet.skew_ms), (Some((0, 1023)), DEFAULT_LEASE_MS, DEFAULT_SKEW_MS));
    assert!(matches!(wrong.keep(), Err(Failure::OtherLayout { .. })));
    // A range that an operator has set stays.
    server.operate(&["set-range", "16", "1023"]);
    execute(&server, "UPDATE snowflake_registry.numbers SET from_ms = 0, until_ms = 1");
    let said = server.operate(&["reset-settings"]);
    assert!(said.contains(" layout: snowflake -> none\n") && !said.contains("_worker: "), "{said}");
    // A raise is not used before that is set.
    let of = || right.registry().read(&Wanted::default()).unwrap().fleet;
    server.enter(&commands(block("fleet-limits")));
    assert_eq!((of().longest_ms, of().skew_ms, of().used_lease_ms()), (3_600_000, 60_000, DEFAULT_LEASE_MS));
    server.enter(&commands(block("fleet-lease")));
    assert_eq!((of().used_lease_ms(), of().used_skew_ms()), (120_000, 10_000));
}

// The oracle

#[test]
fn the_oracle_refuses_leases_that_overlap() {
    let oracle = Oracle::new();
    let accept = |datacenter, worker, holder, from_ms, until_ms| {
        oracle
            .try_accept(NumberKey::new(datacenter, worker), holder, from_ms, until_ms)
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
    assert_eq!(Oracle::new().try_accept(number(1), 9, 0, 40).map_err(|error| error.to_string()), Ok(()));
}
