//! Who may see and do what: ordinary roles on a member, and the servers' role in the registry
//! (`the_members_role_can_do_no_more_than_lease` in `registry.rs` lists what it may call).

use std::sync::{Arc, Mutex};

use cluster::registry::{ROLE, config, now_ms};
use cluster::{Builder, Draw, Fleet, Leases, Oracle, Server, refused, wait_until};
use cluster::{Member, registry::Poll};
use postgres::{Client, NoTls};
use snowflake_core::lease::{Failure, LeaseNotice};
use snowflake_core::registry::{
    Change, DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, Fleet as FleetRecord, FleetLimits, NumberRecord, Reading, Registry,
    Swap, SwapAnswer, Wanted,
};
use snowflake_registry::{Postgres, RegistryError};

/// A password that belongs in a file, and stands in the string all the same.
const SECRET: &str = "secret-of-the-fleet";

fn execute(server: &Server, sql: &str) {
    server.connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

#[track_caller]
fn assert_refused(session: &mut Client, sql: &str, sqlstates: &[&str]) {
    let refusal = refused(session.simple_query(sql));
    assert!(sqlstates.contains(&refusal.sqlstate.as_str()), "{sql}: {refusal:?}");
}

#[test]
fn an_ordinary_role_sees_neither_the_registrys_string_nor_a_lease() {
    let fleet = Fleet::start();
    let registry = format!("{} password={SECRET}", fleet.conninfo());
    let server = fleet.member().set("registry", &registry).start_with_extension();
    server.connect().wait_for_lease();
    execute(&server, "CREATE ROLE app LOGIN; CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher");
    let mut app = server.connect_as("app");
    app.draw();
    for sql in [
        "SHOW snowflake_id.registry",
        "SELECT current_setting('snowflake_id.registry', true)",
        "SELECT * FROM snowflake_lease",
        "SELECT * FROM snowflake_plan.lease()",
        "SELECT * FROM pg_file_settings",
        "SELECT pg_read_file('postgresql.conf')",
    ] {
        assert_refused(&mut app, sql, &["42501"]);
    }
    assert_eq!(app.value("SELECT count(*) FROM pg_settings WHERE name = 'snowflake_id.registry'"), "0");

    // A monitor sees the string without the password in the view, and all of it as a setting.
    let mut watcher = server.connect_as("watcher");
    assert_eq!(watcher.lease("registry LIKE '%host=%' AND registry NOT LIKE '%secret%'"), "true");
    assert!(watcher.value("current_setting('snowflake_id.registry')").contains(SECRET));
    // Nobody sees the name of a lease, by which it could be ended.
    let columns = "SELECT count(*) FROM information_schema.columns \
                   WHERE table_name = 'snowflake_lease' AND (column_name ~ 'nonce' OR column_name ~ 'holder')";
    assert_eq!(server.connect().value(columns), "0");
}

#[test]
fn no_error_and_no_log_line_of_the_extension_has_the_registrys_password() {
    let fleet = Fleet::start();
    // libpq's words name the host and the role.
    let registry = format!("{} user=stranger password={SECRET}", fleet.conninfo());
    let server = fleet.member().set("registry", &registry).start_with_extension();
    let mut session = server.connect();
    wait_until("the refusal", || session.lease("last_error").contains("role \"stranger\" does not exist"));
    assert!(!session.lease("row_to_json(snowflake_lease)").contains(SECRET));
    execute(&server, "CREATE ROLE app LOGIN");
    let refusal = refused(server.connect_as("app").try_draw());
    assert_eq!(refusal.sqlstate, "58000");
    assert!(!format!("{refusal:?}").contains(SECRET), "{refusal:?}");
    assert!(!server.log().contains(SECRET));
    // PostgreSQL shows it itself, as the page says.
    server.set_config("snowflake_id.registry", &format!("{registry} connect_timeout=5"));
    server.reload();
    let changed = "parameter \"snowflake_id.registry\" changed to ";
    let log = server.log();
    assert!(log.lines().filter(|line| line.contains(SECRET)).all(|line| line.contains(changed)), "{log}");
    assert!(log.contains(SECRET), "{log}");
    // Nor does what libpq does not understand: it would repeat words of a password with a space.
    for (wrong, why) in [
        (format!("pasword={SECRET}"), "invalid connection option at character 1"),
        (format!("password=my {SECRET}"), "missing \"=\" after the word at character 13"),
        (format!("postgresql://u:%{SECRET}@h/d"), "wrong percent code at character 16"),
    ] {
        let failure = fleet.member().set("registry", &wrong).try_start().unwrap_err();
        assert!(failure.log.contains(why) && !failure.log.contains(SECRET), "{failure:?}");
    }
}

/// Where the registry is, and how it is reached, is for operators.
#[test]
fn an_ordinary_role_does_not_see_how_to_reach_the_registry() {
    let fleet = Fleet::start_with(Builder::tcp);
    let port = fleet.registry.port().to_string();
    let passfile = fleet.registry.connect().value("SELECT current_setting('data_directory') || '/pgpass'");
    // libpq names the host, the port, the role and this file.
    let write = format!("COPY (SELECT '*:*:*:*:wrong') TO PROGRAM 'umask 077; cat > {passfile}'");
    execute(&fleet.registry, &write);
    let registry = format!("host=127.0.0.1 port={port} user=stranger dbname=postgres passfile={passfile}");
    let server = fleet.member().set("registry", &registry).start_with_extension();
    execute(
        &server,
        "CREATE ROLE app LOGIN; CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher; GRANT watcher TO app;
         CREATE FUNCTION definer() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT snowflake_next()';
         ALTER FUNCTION definer() OWNER TO watcher; ALTER ROLE app NOINHERIT",
    );
    let secrets = ["127.0.0.1", &*port, "stranger", &*passfile];
    let has = |said: &str| secrets.map(|secret| said.contains(secret));
    let mut session = server.connect();
    let ways = ["SELECT snowflake_next()", "SELECT snowflake_segment_next('invoices')"];
    let refusal = |session: &mut Client, sql: &str| {
        let refusal = refused(session.simple_query(sql));
        assert_eq!(refusal.sqlstate, "58000", "{refusal:?}");
        format!("{refusal:?}")
    };
    for sql in ways {
        // The superuser sees all of it, once both the lease and the blocks are known to fail.
        wait_until("the reason", || has(&refusal(&mut session, sql)) == [true; 4]);
    }
    assert_eq!(has(&refusal(&mut server.connect_as("watcher"), ways[0])), [true; 4]);
    assert_eq!(has(&session.lease("last_error")), [true; 4]);

    // A role that asks for the server's log lines does not get them.
    let heard = Arc::new(Mutex::new(String::new()));
    let ear = Arc::clone(&heard);
    let mut connection = server.connection();
    connection.user("app").notice_callback(move |notice| *ear.lock().unwrap() += &format!("{notice:?}\n"));
    let mut app = connection.connect(NoTls).unwrap();
    app.batch_execute("SET client_min_messages = debug5").unwrap();
    for sql in ways.into_iter().chain(["SELECT definer()"]) {
        let said = refusal(&mut app, sql);
        assert_eq!(has(&said), [false; 4], "{said}");
        assert!(said.contains("could not connect to the registry"), "{said}");
    }
    let heard = heard.lock().unwrap().clone();
    assert_eq!(has(&heard), [false; 4], "{heard}");
    // In the role of a monitor, it is one.
    app.batch_execute("SET ROLE watcher").unwrap();
    assert_eq!(has(&refusal(&mut app, ways[0])), [true; 4]);
    // A superuser in the role is not.
    session.batch_execute("ALTER ROLE app INHERIT; REVOKE watcher FROM app; SET ROLE app").unwrap();
    assert_eq!(has(&refusal(&mut session, ways[0])), [false; 4]);
    // The log has all of it, for each kind of draw.
    for line in ["the server draws no ids: could not connect", "no blocks of values are reserved"] {
        let log = server.log();
        let at = log.find(line).unwrap_or_else(|| panic!("no \"{line}\" in\n{log}"));
        assert_eq!(has(&log[at..]), [true; 4]);
    }
}

/// A session's own line about a refusal says to the log what it keeps from an ordinary role.
#[test]
fn the_log_line_of_a_refused_draw_has_the_whole_reason() {
    let fleet = Fleet::start();
    let registry = format!("{} user=stranger", fleet.conninfo());
    let server = fleet.member().set("registry", &registry).start_with_extension();
    let mut session = server.connect();
    wait_until("the refusal", || session.lease("last_error").contains("stranger"));
    execute(&server, "CREATE ROLE app LOGIN");
    // It is the first refusal, which is logged, and the session asks for log lines.
    let heard = Arc::new(Mutex::new(String::new()));
    let ear = Arc::clone(&heard);
    let mut connection = server.connection();
    connection.user("app").notice_callback(move |notice| *ear.lock().unwrap() += &format!("{notice:?}\n"));
    let mut app = connection.connect(NoTls).unwrap();
    app.batch_execute("SET client_min_messages = log").unwrap();
    let refusal = refused(app.try_draw());
    assert!(!format!("{refusal:?}").contains("stranger"), "{refusal:?}");
    drop(app);
    let heard = heard.lock().unwrap().clone();
    assert!(!heard.contains("stranger"), "{heard}");
    let log = server.log();
    let line = log.split("draws are refused: ").nth(1).unwrap_or_else(|| panic!("{log}"));
    let detail = line.lines().nth(1).unwrap_or_default();
    assert!(detail.contains("DETAIL:") && detail.contains("role \"stranger\" does not exist"), "{line}");
}

#[test]
fn an_ordinary_role_neither_stops_the_worker_nor_makes_it_write() {
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    let mut observer = server.connect();
    observer.wait_for_lease();
    let worker = observer.lease("pid");
    execute(&server, "CREATE ROLE app LOGIN; CREATE ROLE sender LOGIN; GRANT pg_signal_backend TO sender");
    let written = "SELECT sum(count) FROM snowflake_registry.numbers";
    let before = fleet.registry.connect().value(written);
    let (mut app, mut sender) = (server.connect_as("app"), server.connect_as("sender"));
    for session in [&mut app, &mut sender] {
        // PostgreSQL does not take it for a session.
        for function in ["pg_terminate_backend", "pg_cancel_backend"] {
            assert_eq!(session.value(&format!("SELECT {function}({worker})")), "false");
        }
        for (sql, sqlstate) in [
            ("SET snowflake_id.registry = 'host=elsewhere'", "55P02"),
            ("SET snowflake_id.fleet = 'other'", "55P02"),
            ("SET snowflake_id.max_borrow = '1s'", "55P02"),
            ("ALTER SYSTEM SET snowflake_id.max_borrow = '1s'", "42501"),
            ("SELECT pg_reload_conf()", "42501"),
            ("SELECT snowflake_reset_mark()", "42501"),
            ("SELECT snowflake_stat_reset()", "42501"),
            ("CREATE FUNCTION run() RETURNS void LANGUAGE c AS 'snowflake_id', 'snowflake_lease_main'", "42501"),
        ] {
            assert_refused(session, sql, &[sqlstate]);
        }
    }
    assert_eq!(observer.lease("pid"), worker);
    assert_eq!(observer.lease("failures"), "0");
    // Nothing was written but by the clock: draws write nothing at all.
    app.draw_batch(1000);
    let renewals: i64 = observer.lease("renewals").parse().unwrap();
    let after: i64 = fleet.registry.connect().value(written).parse().unwrap();
    assert!(after <= renewals.max(before.parse().unwrap()) + 1, "{before}, then {after}, in {renewals} renewals");
}

/// What the page says of a stolen password, and no more.
#[test]
fn with_the_servers_password_leases_can_be_ended_taken_and_frozen_and_no_more() {
    let server = Server::builder().without_preload().durable().start();
    server.make_registry();
    execute(&server, "SELECT snowflake_registry.set_range(7, 8)");
    let oracle = Oracle::new();
    let victim = Member::new(config(&server.registry_conninfo()), &oracle);
    let lease = victim.lease();
    let limits = "SELECT (uuid, layout, backup, first_worker, last_worker, loses_nothing, closed, longest_ms, skew_ms, \
                  lease_ms, clock_skew_ms, grace_ms) FROM snowflake_registry.fleets";
    let before = server.connect().value(limits);

    let thief = Postgres::new(config(&server.registry_conninfo()), Poll);
    let reading = thief.read(Wanted::All).unwrap();
    let old = reading.records[&lease.worker];
    let swap = |was, record| Swap {
        fleet: reading.fleet.version,
        incarnation: reading.incarnation,
        change: Change::Number { worker: lease.worker, was, record },
    };
    // It ends the lease, and takes the number at once.
    let ended = NumberRecord { nonce: 1, count: old.count + 1, until_ms: old.from_ms, ..old };
    assert_eq!(thief.swap(&swap(Some(old.nonce), ended)), Ok(SwapAnswer::Done(reading.incarnation)));
    let now_ms = now_ms();
    let taken =
        NumberRecord { holder: 1, nonce: 2, count: old.count + 2, from_ms: now_ms, until_ms: now_ms + 30_000, ..old };
    assert_eq!(thief.swap(&swap(Some(1), taken)), Ok(SwapAnswer::Done(reading.incarnation)));
    // The server notices at its next renewal. It draws no more with that number, and freezes the
    // rest.
    assert!(matches!(victim.keep(), Err(Failure::Frozen { .. })));
    assert!(victim.has_reported(|notice| matches!(notice, LeaseNotice::Overlapped(_))));
    assert_eq!((victim.held(), victim.draw()), (None, None));

    // The longest freeze is that of the longest lease that an operator can set.
    let reading = thief.read(Wanted::All).unwrap();
    let freeze = |horizon_ms: i64, freeze_ms: i64| {
        let mut fleet = reading.fleet;
        (fleet.generation, fleet.version) = (fleet.generation + 1, 77);
        (fleet.horizon_ms, fleet.freeze_ms) = (horizon_ms, freeze_ms);
        thief.swap(&Swap {
            fleet: reading.fleet.version,
            incarnation: reading.incarnation,
            change: Change::Fleet(fleet),
        })
    };
    let (hour_ms, month_ms) = (3_600_000, 30 * 86_400_000);
    for (horizon_ms, freeze_ms) in
        [(i64::MAX, i64::MAX), (now_ms, i64::MAX), (i64::MAX, now_ms), (now_ms, now_ms + month_ms + 3 * hour_ms)]
    {
        assert!(refusal(freeze(horizon_ms, freeze_ms)).contains("cannot be that long"), "{horizon_ms} {freeze_ms}");
    }
    let horizon_ms = reading.now_ms + 2 * reading.fleet.skew_ms;
    assert_eq!(freeze(horizon_ms, now_ms + month_ms + 2 * hour_ms), Ok(SwapAnswer::Done(reading.incarnation)));
    assert_eq!(server.connect().value(limits), before);

    // What the page says to do about it: another password, and restored().
    execute(&server, &format!("ALTER ROLE {ROLE} PASSWORD 'another'; SELECT snowflake_registry.restored()"));
    let sane = "SELECT freeze_ms < snowflake_registry.now_ms() + 3600000 FROM snowflake_registry.fleets";
    assert_eq!(server.connect().value(sane), "true");
}

/// Returns why the registry refuses what no server asks for.
#[track_caller]
fn refusal(answer: Result<SwapAnswer, RegistryError>) -> String {
    match answer {
        Err(RegistryError::Refused(diagnostic)) if diagnostic.sqlstate == "SF005" => diagnostic.message,
        other => panic!("{other:?}"),
    }
}

/// A registry with these numbers, and the connection of a thief of the servers' password.
fn stolen(range: &str) -> (Server, Postgres<Poll>) {
    let server = Server::builder().without_preload().durable().start();
    server.make_registry();
    execute(&server, &format!("SELECT snowflake_registry.set_range({range})"));
    let thief = Postgres::new(config(&server.registry_conninfo()), Poll);
    (server, thief)
}

/// The first lease of a number by a thief.
fn first_lease(reading: &Reading) -> NumberRecord {
    let now_ms = reading.now_ms;
    let generation = reading.fleet.generation;
    NumberRecord {
        holder: 1,
        nonce: 1,
        count: 1,
        server: 1,
        from_ms: now_ms,
        until_ms: now_ms + 1000,
        generation,
        renewed_ms: now_ms,
        offset_ms: 0,
    }
}

/// Neither a free number, nor one that a server holds.
#[test]
fn with_the_servers_password_no_number_is_taken_away_for_ever() {
    let (server, thief) = stolen("7, 8");
    let oracle = Oracle::new();
    let victim = Member::new(config(&server.registry_conninfo()), &oracle);
    let held = victim.lease().worker;
    let free = 15 - held;
    let reading = thief.read(Wanted::All).unwrap();
    let old = reading.records[&held];
    let swap = |worker, was, record| {
        let change = Change::Number { worker, was, record };
        thief.swap(&Swap { fleet: reading.fleet.version, incarnation: reading.incarnation, change })
    };
    let new = first_lease(&reading);
    let renewed = NumberRecord { nonce: 1, count: old.count + 1, ..old };
    let empty = |ms: i64, record: NumberRecord| NumberRecord { from_ms: ms, until_ms: ms, ..record };
    let latest_ms = reading.now_ms + reading.fleet.longest_ms + 2 * reading.fleet.skew_ms;
    let hour_ms = 3_600_000;
    for (record, words) in [
        (empty(i64::MAX, new), "cannot end that late"),
        (empty(latest_ms + hour_ms, new), "cannot end that late"),
        (NumberRecord { until_ms: i64::MAX, ..new }, "cannot end that late"),
        (NumberRecord { from_ms: i64::MIN, ..new }, "cannot begin at"),
        // It would not be told from a number that an operator keeps.
        (NumberRecord { server: 0, ..new }, "fingerprint of a server"),
        // As a bigint, the first one is -1. The others leave none after them.
        (NumberRecord { count: u64::MAX, ..new }, "count of number"),
        (NumberRecord { count: 0, ..new }, "count of number"),
        (NumberRecord { count: i64::MAX as u64, ..new }, "count of number"),
        (NumberRecord { count: (reading.now_ms + hour_ms) as u64, ..new }, "count of number"),
    ] {
        assert!(refusal(swap(free, None, record)).contains(words), "{record:?}");
    }
    for (record, words) in [
        (NumberRecord { until_ms: i64::MAX, ..renewed }, "cannot end that late"),
        (NumberRecord { holder: 1, ..empty(i64::MAX, renewed) }, "cannot end that late"),
        (NumberRecord { count: u64::MAX, ..renewed }, "count of number"),
        (NumberRecord { count: i64::MAX as u64, ..renewed }, "count of number"),
    ] {
        assert!(refusal(swap(held, Some(old.nonce), record)).contains(words), "{record:?}");
    }
    // The most that is let through does not last.
    let most = NumberRecord { count: reading.now_ms as u64, until_ms: new.from_ms, ..new };
    assert_eq!(swap(free, None, most), Ok(SwapAnswer::Done(reading.incarnation)));
    assert_eq!(Member::new(config(&server.registry_conninfo()), &oracle).lease().worker, free);
    victim.lease();
}

/// What `reserve()` keeps is not ended, and a freeze covers what may be lost.
#[test]
fn with_the_servers_password_an_operators_number_stays_kept_and_no_freeze_is_cut_short() {
    let (server, thief) = stolen("7, 8");
    Member::new(config(&server.registry_conninfo()), &Oracle::new()).lease();
    // Of another number than the member's, whichever it has.
    let free = if thief.read(Wanted::All).unwrap().records.contains_key(&7) { 8 } else { 7 };
    execute(&server, &format!("SELECT snowflake_registry.reserve({free}, now() + '10 days')"));
    let reading = thief.read(Wanted::All).unwrap();
    let kept = reading.records[&free];
    let swap = |change| thief.swap(&Swap { fleet: reading.fleet.version, incarnation: reading.incarnation, change });
    let empty = NumberRecord { from_ms: kept.until_ms, ..kept };
    for record in [
        NumberRecord { server: 1, nonce: 1, count: kept.count + 1, until_ms: kept.from_ms, ..kept },
        NumberRecord {
            holder: 1,
            server: 1,
            nonce: 1,
            count: kept.count + 1,
            generation: reading.fleet.generation,
            ..empty
        },
    ] {
        let change = Change::Number { worker: free, was: Some(kept.nonce), record };
        assert!(refusal(swap(change)).contains("is kept until"), "{record:?}");
    }

    let begun = reading.fleet.begin_generation(reading.incarnation, reading.now_ms, FleetLimits::default(), 99);
    let begun = FleetRecord { generation: reading.fleet.generation + 1, ..begun };
    for (horizon_ms, freeze_ms) in [
        (i64::MIN, i64::MIN),
        (begun.horizon_ms, begun.horizon_ms),
        (begun.horizon_ms - 120_000, begun.freeze_ms - 120_000),
    ] {
        let refused = refusal(swap(Change::Fleet(FleetRecord { horizon_ms, freeze_ms, ..begun })));
        assert!(refused.contains("cannot begin with a freeze until"), "{refused}");
    }
    assert_eq!(swap(Change::Fleet(begun)), Ok(SwapAnswer::Done(reading.incarnation)));
}

/// A registry that shows another timeline may have lost leases. Only a new generation hides
/// that, with its freeze, unless an operator vouches for its standby.
#[test]
fn with_the_servers_password_no_failover_is_hidden() {
    let (server, thief) = stolen("7, 8");
    Member::new(config(&server.registry_conninfo()), &Oracle::new()).lease();
    let swap = |change: fn(FleetRecord, &Reading) -> FleetRecord| {
        let reading = thief.read(Wanted::All).unwrap();
        let new = FleetRecord { version: reading.fleet.version ^ 1, ..change(reading.fleet, &reading) };
        let change = Change::Fleet(new);
        thief.swap(&Swap { fleet: reading.fleet.version, incarnation: reading.incarnation, change })
    };
    let begun = |fleet: FleetRecord, reading: &Reading| {
        fleet.begin_generation(reading.incarnation, reading.now_ms, FleetLimits::default(), 0)
    };
    // As if the record had been written before a failover.
    execute(&server, "UPDATE snowflake_registry.fleets SET timeline = timeline - 1");
    assert!(refusal(swap(|fleet, _| fleet)).contains("cannot stay in generation"));
    let one_too_many = |fleet: FleetRecord, reading: &Reading| {
        let begun = fleet.begin_generation(reading.incarnation, reading.now_ms, FleetLimits::default(), 0);
        FleetRecord { generation: fleet.generation + 2, ..begun }
    };
    assert!(refusal(swap(one_too_many)).contains("cannot follow generation"));
    assert!(matches!(swap(begun), Ok(SwapAnswer::Done(_))));

    execute(&server, "SELECT snowflake_registry.set_loses_nothing(true)");
    execute(&server, "UPDATE snowflake_registry.fleets SET timeline = timeline - 1");
    assert!(matches!(swap(|fleet, _| fleet), Ok(SwapAnswer::Done(_))));
    // A synchronous standby says nothing of another store.
    execute(&server, "UPDATE snowflake_registry.fleets SET store = store + 1");
    assert!(refusal(swap(|fleet, _| fleet)).contains("cannot stay in generation"));
}

/// A registry that has lost the first server's limits must get the same ones again.
#[test]
fn with_the_servers_password_no_limits_are_brought_but_those_of_every_first_server() {
    let server = Server::builder().without_preload().durable().start();
    server.make_registry();
    let thief = Postgres::new(config(&server.registry_conninfo()), Poll);
    let reading = thief.read(Wanted::All).unwrap();
    let swap = |longest_ms, skew_ms, generation| {
        let fleet = FleetRecord { longest_ms, skew_ms, ..reading.fleet };
        let begun = fleet.begin_generation(reading.incarnation, reading.now_ms, FleetLimits::default(), 77);
        let new = if generation == 0 { FleetRecord { version: 77, ..fleet } } else { begun };
        let change = Change::Fleet(new);
        thief.swap(&Swap { fleet: reading.fleet.version, incarnation: reading.incarnation, change })
    };
    for (longest_ms, skew_ms) in
        [(0, 0), (12_000, DEFAULT_SKEW_MS), (DEFAULT_LEASE_MS, 10), (DEFAULT_LEASE_MS + 1, DEFAULT_SKEW_MS)]
    {
        for generation in [0, 1] {
            let refused = refusal(swap(longest_ms, skew_ms, generation));
            assert!(refused.contains("cannot change the layout, the range or the limits"), "{longest_ms} {skew_ms}");
        }
    }
    assert!(matches!(swap(DEFAULT_LEASE_MS, DEFAULT_SKEW_MS, 0), Ok(SwapAnswer::Done(_))));
}

/// A range that no server has brought yet lets nothing through, and NULL is equal to nothing.
#[test]
fn with_the_servers_password_nothing_is_leased_or_reserved_without_a_comparison() {
    let server = Server::builder().without_preload().durable().start();
    server.make_registry();
    let thief = Postgres::new(config(&server.registry_conninfo()), Poll);
    let reading = thief.read(Wanted::All).unwrap();
    let change = Change::Number { worker: 5000, was: None, record: first_lease(&reading) };
    let swap = Swap { fleet: reading.fleet.version, incarnation: reading.incarnation, change };
    assert!(refusal(thief.swap(&swap)).contains("the range is NULL to NULL"));
    execute(&server, "INSERT INTO snowflake_registry.tags (tag) VALUES ('orders')");
    let mut session = server.connect_as(ROLE);
    for call in [
        "reserve_blocks('default', 0, NULL, NULL, NULL, '{orders}', '{NULL}', '{1}', '{1}', '{1}', '{1}', '{1}', '{1}')",
        "return_blocks('default', 0, NULL, NULL, NULL, '{orders}', '{1}', '{1}', '{1}', '{1}')",
        "swap_number('default', 0, NULL, NULL, NULL, -1, 1, NULL, gen_random_uuid(), 1, 1, 1, 0, 0, 1, 0, 0, '', 0, '', '')",
        "swap_fleet('default', 0, NULL, NULL, NULL, 1, true, 0, 5000, 1, 1, 1, 0, 0, 1)",
    ] {
        assert_eq!(session.value(&format!("SELECT done FROM snowflake_registry.{call}")), "false", "{call}");
    }
    assert_eq!(server.connect().value("SELECT next_value FROM snowflake_registry.tags"), "1");
}

#[test]
fn with_the_servers_password_the_operators_views_and_queries_cannot_be_broken() {
    let (server, thief) = stolen("7, 8");
    let oracle = Oracle::new();
    Member::new(config(&server.registry_conninfo()), &oracle).lease();
    let queries = [
        "SELECT count(f) FROM snowflake_registry.fleet f",
        "SELECT count(l) FROM snowflake_registry.leases l",
        // The form of the alarm queries of the page and of `monitoring`.
        "SELECT max(abs(n.offset_ms)) < 1e16 FROM snowflake_registry.numbers n",
    ];
    let mut count = 1;
    for extreme in [i64::MIN, i64::MAX] {
        let reading = thief.read(Wanted::All).unwrap();
        for worker in [7, 8] {
            let was = reading.records.get(&worker).map(|record| record.nonce);
            count += 10;
            let lease =
                NumberRecord { offset_ms: extreme, renewed_ms: extreme, count, nonce: count, ..first_lease(&reading) };
            let kept = reading.records.get(&worker).map_or(lease, |old| {
                let NumberRecord { holder, from_ms, until_ms, .. } = *old;
                NumberRecord { holder, from_ms, until_ms, ..lease }
            });
            let change = Change::Number { worker, was, record: kept };
            let swap = Swap { fleet: reading.fleet.version, incarnation: reading.incarnation, change };
            assert_eq!(thief.swap(&swap), Ok(SwapAnswer::Done(reading.incarnation)));
        }
        for query in queries {
            let shown = server.connect().value(query);
            assert!(["2", "true"].contains(&shown.as_str()), "{extreme}: {query}: {shown}");
        }
    }
    // Nor by what an earlier build let through.
    for (from, until) in [("1", i64::MAX.to_string()), ("(-9223372036854775808)", "(-9223372036854775808)".to_owned())]
    {
        let damage = format!(
            "UPDATE snowflake_registry.numbers SET from_ms = {from}, until_ms = {until}, offset_ms = {until} WHERE worker = 7"
        );
        execute(&server, &damage);
        assert_eq!(server.connect().value(queries[0]), "2");
    }
}

/// What was written before the registry had these rules, or by a role that could write its tables.
#[test]
fn a_restored_registry_cuts_leases_that_end_later_than_any_may() {
    let (server, _) = stolen("7, 9");
    let oracle = Oracle::new();
    let living = Member::new(config(&server.registry_conninfo()), &oracle);
    let lease = living.lease();
    let others: Vec<i64> = (7..=9).filter(|worker| *worker != lease.worker).collect();
    let far = i64::MAX;
    execute(
        &server,
        &format!(
            "INSERT INTO snowflake_registry.numbers SELECT 'default', -1, {}, gen_random_uuid(), 1, 1, 5, {far}, {far}, 1, 0, 0, 'x', 1, '', '';
             INSERT INTO snowflake_registry.history SELECT fleet, datacenter, worker, from_ms, NULL, holder, host, port, '', ''
                 FROM snowflake_registry.numbers WHERE host = 'x';
             SELECT snowflake_registry.reserve({}, now() + '40 days', force => true)",
            others[0], others[1]
        ),
    );
    let kept = format!("SELECT until_ms FROM snowflake_registry.numbers WHERE worker = {}", others[1]);
    let reserved = server.connect().value(&kept);
    execute(&server, "SELECT snowflake_registry.restored()");
    let mut session = server.connect();
    let ends = format!(
        "SELECT (from_ms, until_ms) = (freeze_ms, freeze_ms) FROM snowflake_registry.numbers, snowflake_registry.fleets \
         WHERE worker = {}",
        others[0]
    );
    assert_eq!(session.value(&ends), "true");
    assert_eq!(session.value(&kept), reserved, "an operator keeps it");
    let shown =
        format!("SELECT count(*) FROM snowflake_registry.leases WHERE worker = {} AND isfinite(ends)", others[0]);
    assert_eq!(session.value(&shown), "1");
    // A server that lives draws on.
    let _ = living.keep();
    assert_eq!((living.held().map(|held| held.holder), living.draw().is_some()), (Some(lease.holder), true));
}
