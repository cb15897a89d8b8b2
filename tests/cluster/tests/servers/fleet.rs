//! A fleet whose servers lease their worker numbers from a registry: real servers, a real registry,
//! and a ledger outside of them that holds every id which a client saw. No two are equal, whatever
//! happens to servers, registry, clocks and copies.

use cluster::Operated;
use cluster::operator::commands;
use cluster::pages::{block, psql, settings};
use cluster::refusal::assert_refused_as;
use cluster::{
    Builder, Draw, Fleet, Leases, Load, Running, Server, Shutdown, assert_unique, faketime_library, postgres_version,
    refused, skip, wait_until,
};
use postgres::Client;
use snowflake_core::id::layout::Layout;
use std::fs;

/// Returns the worker numbers in ids, each once.
fn workers(ids: &[i64]) -> Vec<i64> {
    let layout = Layout::parse("snowflake").unwrap();
    let mut workers: Vec<_> = ids.iter().map(|id| layout.parts(*id).unwrap().worker.unwrap().into()).collect();
    workers.sort_unstable();
    workers.dedup();
    workers
}

fn draw(session: &mut Client, count: u32) -> Vec<i64> {
    session.ids(&format!("SELECT snowflake_next() FROM generate_series(1, {count})")).expect("ids are drawn")
}

/// A fleet whose leases are so short that a test can wait for their end.
fn short_fleet() -> Fleet {
    Fleet::start().limited("3s", None)
}

#[test]
fn two_servers_with_one_configuration_draw_different_ids() {
    let fleet = Fleet::start();
    let [one, other] = [(); 2].map(|()| fleet.member().start_with_extension());
    let (mut numbers, mut ids) = (Vec::new(), Vec::new());
    for server in [&one, &other] {
        let mut session = server.connect();
        // The first draw waits for the lease.
        let drawn = draw(&mut session, 1000);
        let number = session.wait_for_lease();
        assert_eq!(workers(&drawn), [number]);
        fleet.hear(server);
        numbers.push(number);
        ids.extend(drawn);
    }
    assert_ne!(numbers[0], numbers[1]);
    assert_unique(&ids);
    numbers.sort_unstable();
    assert_eq!(fleet.leased(), numbers);
}

#[test]
fn a_restart_gets_the_same_number_again_and_goes_on_above_what_it_has_drawn() {
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    let mut ids = draw(&mut server.connect(), 1000);
    let number = server.connect().wait_for_lease();
    server.stop(Shutdown::Fast);
    assert_eq!(fleet.leased(), [] as [i64; 0], "it is given back");
    server.start_again();
    ids.extend(draw(&mut server.connect(), 1000));
    cluster::assert_ascending(&ids);
    assert_eq!(workers(&ids), [number]);
    assert_eq!(server.connect().wait_for_lease(), number);
}

/// With its page, it goes on with its own number: `lives.rs`, `restarts.rs`.
#[test]
fn after_a_crash_without_its_page_a_server_has_another_number_at_once() {
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    let mut numbers = Vec::new();
    let mut ids = Vec::new();
    for crash in ["none", "server", "immediate stop"] {
        match crash {
            "server" => {
                server.crash();
                fs::remove_file(server.page().unwrap()).unwrap();
                server.start_again();
            }
            "immediate stop" => {
                server.stop(Shutdown::Immediate);
                fs::remove_file(server.page().unwrap()).unwrap();
                server.start_again();
            }
            _ => {}
        }
        let drawn = draw(&mut server.connect(), 1000);
        let number = server.connect().wait_for_lease();
        assert_eq!(workers(&drawn), [number], "{crash}");
        fleet.hear(&server);
        assert!(!numbers.contains(&number), "{crash}: {number} is in {numbers:?}");
        numbers.push(number);
        ids.extend(drawn);
    }
    assert_unique(&ids);
    // What the old lives held stays leased.
    numbers.sort_unstable();
    assert_eq!(fleet.leased(), numbers);
}

#[test]
fn a_server_draws_without_its_registry_until_its_lease_ends() {
    let fleet = short_fleet();
    let server = fleet.member().start_with_extension();
    let mut session = server.connect();
    draw(&mut session, 10);
    fleet.registry.crash();
    // It goes on, and then it is refused with what the registry's connection has met.
    let mut ids = Vec::new();
    let refusal = loop {
        match session.ids("SELECT snowflake_next()") {
            Ok(drawn) => ids.extend(drawn),
            Err(error) => break refused::<()>(Err(error)),
        }
    };
    assert!(!ids.is_empty());
    let until = session.value(
        "SELECT to_char(lease_until AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') FROM snowflake_lease",
    );
    assert_refused_as(&refusal, "58000", &format!("the lease of this server's worker number ended at {until}"));
    assert!(refusal.detail.unwrap().contains("could not connect to the registry"));
    assert_eq!(session.lease("state"), "over");
    assert_eq!(session.lease("refused"), "1");
    assert!(session.lease("last_error").starts_with("could not connect to the registry"));
    fleet.registry.start_again();
    // It need not be told.
    session.wait_for_lease();
    ids.extend(draw(&mut session, 10));
    assert_unique(&ids);
    assert_eq!(session.lease("failing_since"), "");
    assert!(server.log().contains("the registry leases this server's worker number again"));
}

/// A restore has lost a server's lease, so that is not renewed, and the next one begins after
/// the freeze. Nothing may look well meanwhile, although each call of the registry succeeds.
#[test]
fn a_gap_between_two_leases_is_told_before_it_begins_and_when_it_is_over() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    const UTC: &str = "'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'";
    let fleet = Fleet::start_with(Builder::faketime);
    let server = fleet.member().faketime().start_with_extension();
    let mut session = server.connect();
    let first = session.wait_for_lease();
    let mut ids = draw(&mut session, 10);
    fleet.lengthen_the_lease(&server);
    fleet.forget_leases();
    wait_until("the gap", || !session.lease("gap_until").is_empty());
    let freeze =
        fleet.registry.connect().value("SELECT snowflake_registry.instant(freeze_ms) FROM snowflake_registry.fleets");
    assert_eq!(session.lease(&format!("gap_from = lease_until AND gap_until = '{freeze}'")), "true");
    let gap = session.lease("gap_from || ' ' || gap_until");
    let mut utc = |column: &str| session.lease(&format!("to_char({column} AT TIME ZONE 'UTC', {UTC})"));
    let (from, until) = (utc("gap_from"), utc("gap_until"));
    let warning = format!("WARNING:  snowflake_id: this server generates no ids from {from} to {until}: ");
    wait_until(&warning, || server.log().contains(&warning));

    // From two skews on, it has a number for the time after the freeze.
    let set_clocks = |seconds| [&fleet.registry, &server].map(|server| server.set_clock_offset(seconds));
    set_clocks(150.0);
    wait_until("the next lease", || {
        server.reload();
        !session.lease("next_worker_id").is_empty()
    });
    let error = format!("the lease of worker number {first} ends at {from} and is not renewed, and that of number ");
    wait_until(&error, || session.lease("last_error").starts_with(&error));
    assert_eq!(session.lease("state"), "held");
    assert_eq!(session.lease("gap_from || ' ' || gap_until"), gap);
    assert_ne!(session.lease("failing_since"), "");
    assert_eq!(session.lease("last_error_time >= failing_since"), "true");
    let again = "the registry leases this server's worker number again";
    assert!(!server.log().contains(again), "{}", server.log());
    ids.extend(draw(&mut session, 10));

    set_clocks(605.0);
    let refusal = refused(session.ids("SELECT snowflake_next()"));
    assert_refused_as(&refusal, "58000", &format!("the lease of this server's worker number ended at {from}"));
    let detail = refusal.detail.unwrap();
    assert!(detail.starts_with(&format!("No number can be used before {until}: ")), "{detail}");
    assert_ne!(session.lease("failing_since"), "");

    set_clocks(730.0);
    server.reload();
    let next = session.wait_for_lease();
    assert_ne!(next, first);
    ids.extend(draw(&mut session, 10));
    assert_unique(&ids);
    for line in [again, &format!("this server generates ids again, with worker number {next}; it had not since {from}")]
    {
        wait_until(line, || server.log().contains(line));
    }
    let nothing = "num_nulls(failing_since, last_error, last_error_time, gap_from, gap_until)";
    assert_eq!(session.lease(nothing), "5");
}

/// A server sleeps for longer than its lease, while another one takes its number and draws. When it
/// wakes, its sessions are in the middle of their statements.
#[test]
fn a_server_that_slept_beyond_its_lease_draws_nothing_with_its_old_number() {
    let fleet = short_fleet();
    fleet.operate(&["set-range", "7", "7"]);
    let sleeper = fleet.member().start_with_extension();
    assert_eq!(sleeper.connect().wait_for_lease(), 7);
    let other = fleet.member().start_with_extension();
    let loads = Load::start(&sleeper, 16);
    loads.wait_for(20);
    let paused = sleeper.pause();
    let mut session = other.connect();
    assert_eq!(session.wait_for_lease(), 7);
    let of_other = Load::start(&other, 16);
    of_other.wait_for(20);
    fleet.hear(&other);
    drop(paused);
    // The other one holds on to the number, so the sleeper's draws are refused.
    let mut observer = sleeper.connect();
    wait_until("the refusal of the sleeper's draws", || observer.lease("refused").parse::<i64>().unwrap() >= 16);
    of_other.wait_for(20);
    let (ledger, refusals) = loads.end_with_refusals();
    assert!(!refusals.is_empty());
    let mut all = ledger;
    all.add(of_other.end());
    assert_eq!(workers(&all.seen), [7]);
}

#[test]
fn a_copy_of_a_running_server_that_is_started_beside_it_draws_other_ids() {
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    let load = Load::start(&server, 16);
    load.wait_for(50);
    let copy = server.base_backup().alone().start();
    let of_copy = Load::start(&copy, 16);
    for load in [&load, &of_copy] {
        load.wait_for(100);
    }
    [&server, &copy].into_iter().for_each(|server| fleet.hear(server));
    let mut ledger = load.end();
    ledger.add(of_copy.end());
    assert_eq!(workers(&ledger.seen).len(), 2);
}

#[test]
fn a_standby_that_is_promoted_while_its_primary_lives_draws_other_ids() {
    let fleet = Fleet::start();
    let primary = fleet.member().start_with_extension();
    let standby = primary.standby().start();
    // It is ready before it is needed.
    let mut session = standby.connect();
    let reserved = session.wait_for_lease();
    let load = Load::start(&primary, 16);
    load.wait_for(50);
    standby.promote();
    let of_standby = Load::start(&standby, 16);
    for load in [&load, &of_standby] {
        load.wait_for(100);
    }
    [&primary, &standby].into_iter().for_each(|server| fleet.hear(server));
    let of_standby = of_standby.end();
    assert_eq!(workers(&of_standby.seen), [reserved]);
    let line = format!("this server was promoted, and generates ids with worker number {reserved}");
    wait_until(&line, || standby.log().contains(&line));
    let mut ledger = load.end();
    ledger.add(of_standby);
}

#[test]
fn a_standby_takes_no_number_while_most_are_leased_and_gets_one_at_its_promotion() {
    let fleet = Fleet::start();
    fleet.operate(&["set-range", "7", "9"]);
    let [primary, _other] = [(); 2].map(|()| {
        let server = fleet.member().start_with_extension();
        server.connect().wait_for_lease();
        server
    });
    let standby = primary.standby().start();
    let mut session = standby.connect();
    wait_until("an answer of the registry", || !session.lease("incarnation").is_empty());
    assert_eq!(session.lease("state"), "none");
    assert_eq!(fleet.leased().len(), 2);
    standby.promote();
    let mut ids = draw(&mut standby.connect(), 100);
    assert_eq!(fleet.leased(), [7, 8, 9]);
    ids.extend(draw(&mut primary.connect(), 100));
    assert_unique(&ids);
    // All are leased now.
    let late = fleet.member().start_with_extension();
    let mut session = late.connect();
    wait_until("the refusal", || {
        session.lease("last_error").starts_with("all 3 worker numbers of the fleet are leased")
    });
}

/// A registry that accepts connections and says nothing.
#[test]
fn a_server_with_a_silent_registry_says_so_and_stops() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let registry = format!("host=127.0.0.1 port={} dbname=ids", silent.local_addr().unwrap().port());
    let server = Server::builder().set("registry", &registry).start_with_extension();
    let refusal = refused(server.connect().ids("SELECT snowflake_next()"));
    assert_refused_as(&refusal, "58000", "this server has no worker number yet");
    let mut session = server.connect();
    wait_until("the error", || session.lease("last_error").contains("could not connect to the registry within 5 s"));
    assert_eq!(
        session.lease("registry"),
        format!("host=127.0.0.1 port={} dbname=ids", silent.local_addr().unwrap().port())
    );
    server.stop(Shutdown::Fast);
}

#[test]
fn a_server_whose_clock_is_an_hour_off_gets_no_number_and_says_why() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let fleet = Fleet::start();
    for offset in ["-1h", "+1h"] {
        let server = fleet.member().faketime_from(offset).start_with_extension();
        let mut session = server.connect();
        wait_until("the refusal", || session.lease("last_error").contains("more than 60000 ms apart"));
        assert_eq!(session.lease("state"), "none");
    }
    // A clock that goes wrong later does not end the lease, but cannot repeat an id either.
    let server = fleet.member().faketime().start_with_extension();
    let mut ids = draw(&mut server.connect(), 100);
    server.set_clock_offset(3600.0);
    let refusal = refused(server.connect().ids("SELECT snowflake_next()"));
    assert_eq!(refusal.sqlstate, "58000");
    for words in [
        "ms ahead of the registry's",
        "DETAIL:  Ids carry this clock's times. If this clock is wrong, draws will wait or be refused once it is right, ",
        "HINT:  Check the time synchronization of both.",
        "See \"Clocks are apart\" in docs/runbook.md.",
    ] {
        wait_until(words, || server.log().contains(words));
    }
    server.set_clock_offset(0.0);
    let mut session = server.connect();
    session.wait_for_lease();
    ids.extend(draw(&mut session, 100));
    assert_unique(&ids);
}

/// A server that starts in a freeze gets no number before its end, which may be later than waiting
/// takes.
#[test]
fn a_hint_in_a_freeze_does_not_advise_a_restart() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let fleet = Fleet::start().limited("20min", "10min");
    let server = fleet.member().faketime().start_with_extension();
    let mut session = server.connect();
    session.wait_for_lease();
    fleet.lengthen_the_lease(&server);
    server.set_clock_offset(300.0);
    assert!(session.draw() > 0);
    server.set_clock_offset(0.0);
    let hint = |server: &Server| {
        let refusal = refused(server.connect().ids("SELECT snowflake_next()"));
        assert!(refusal.sqlstate == "58000" && refusal.message.contains(" ms behind the last id"), "{refusal:?}");
        refusal.hint.expect("it has one")
    };
    assert!(hint(&server).contains("restart the server, and call snowflake_reset_mark()"));
    fleet.operate(&["restored"]);
    // It hears of that with its next renewal.
    wait_until("the freeze", || {
        server.reload();
        hint(&server).starts_with("Wait, and do not restart the server: the registry's freeze lasts until ")
    });
}

/// The registry's standby takes over, and lacks the leases of a server that goes on.
#[test]
fn a_registry_that_fails_over_with_its_tail_lost_leases_no_number_twice() {
    let mut fleet = Fleet::start().limited("10s", "200ms");
    let standby = fleet.registry.standby().start();
    let first = fleet.member().start_with_extension();
    let mut ids = draw(&mut first.connect(), 100);
    let received = standby.cut_off();
    // These leases are lost.
    let second = fleet.member().start_with_extension();
    ids.extend(draw(&mut second.connect(), 100));
    standby.wait_until_replayed(&received);
    fleet.registry.crash();
    standby.promote();
    let _ = fleet.replace(standby);
    let third = fleet.member().start_with_extension();
    for server in [&first, &second] {
        server.set_config("snowflake_id.registry", &fleet.conninfo());
        server.reload();
    }
    for server in [&first, &second] {
        let mut session = server.connect();
        let renewed = session.lease("last_renewal");
        wait_until("a renewal", || session.lease("last_renewal") != renewed);
        ids.extend(draw(&mut session, 100));
        fleet.hear(server);
    }
    assert_after_the_freeze(&fleet, &third);
    ids.extend(draw(&mut third.connect(), 100));
    fleet.hear(&third);
    assert_unique(&ids);
}

/// Asserts that the registry has begun a generation, and that a server that came later has a lease
/// for ids after its freeze.
#[track_caller]
fn assert_after_the_freeze(fleet: &Fleet, server: &Server) {
    let begun = "SELECT generation > 1 FROM snowflake_registry.fleets";
    wait_until("another generation", || fleet.registry.connect().value(begun) == "true");
    let freeze =
        fleet.registry.connect().value("SELECT snowflake_registry.instant(freeze_ms) FROM snowflake_registry.fleets");
    let mut session = server.connect();
    session.wait_for_lease();
    assert_eq!(session.lease(&format!("lease_from >= '{freeze}'")), "true");
}

/// The registry is restored from a backup: recovered to a point in its archive, which its timeline
/// shows, or started as it was, after which an operator says so.
#[test]
fn a_registry_that_is_restored_from_a_backup_leases_no_number_twice() {
    for with_recovery in [true, false] {
        let mut fleet = Fleet::start_with(Builder::archive).limited("10s", "200ms");
        let first = fleet.member().start_with_extension();
        let mut ids = draw(&mut first.connect(), 100);
        fleet.hear(&first);
        let backup = fleet.registry.base_backup();
        let point = fleet.registry.flushed();
        // What the backup does not have.
        let second = fleet.member().start_with_extension();
        ids.extend(draw(&mut second.connect(), 100));
        fleet.hear(&second);
        fleet.registry.archive_now();
        fleet.registry.stop(Shutdown::Fast);
        let restored = if with_recovery {
            let restored = backup.recovered_to(&fleet.registry, &point).start();
            restored.wait_until_primary();
            restored
        } else {
            let restored = backup.alone().start();
            restored.enter(&commands(block("fleet-restored")));
            restored
        };
        let _lost = fleet.replace(restored);
        for server in [&first, &second] {
            server.set_config("snowflake_id.registry", &fleet.conninfo());
            server.reload();
        }
        let third = fleet.member().start_with_extension();
        assert_after_the_freeze(&fleet, &third);
        // They have numbers, or get one when the freeze is over.
        for server in [&first, &second, &third] {
            let mut session = server.connect();
            wait_until("ids", || session.ids("SELECT snowflake_next()").map(|drawn| ids.extend(drawn)).is_ok());
            ids.extend(draw(&mut session, 100));
            fleet.hear(server);
        }
        assert_unique(&ids);
    }
}

/// Three servers with 16 sessions each, while servers and the registry are killed and come back.
#[test]
fn servers_and_registry_are_killed_under_load_and_no_id_comes_twice() {
    let fleet = short_fleet();
    let servers = [(); 3].map(|()| fleet.member().start_with_extension());
    let mut all = Vec::new();
    let mut loads: Vec<_> = servers.iter().map(|server| Load::start(server, 16)).collect();
    for killed in 0..3 {
        loads.iter().for_each(|load| load.wait_for(20));
        servers.iter().for_each(|server| fleet.hear(server));
        servers[killed].crash();
        all.extend(loads.remove(killed).end_with_refusals().0.seen);
        fleet.registry.crash();
        servers[killed].start_again();
        fleet.registry.start_again();
        let mut session = servers[killed].connect();
        session.wait_for_lease();
        loads.insert(killed, Load::start(&servers[killed], 16));
    }
    for load in loads {
        load.wait_for(20);
        all.extend(load.end_with_refusals().0.seen);
    }
    assert_unique(&all);
    // A life may get the number of the one before, once that one's lease is over.
    assert!(workers(&all).len() >= 3, "{:?}", workers(&all));
}

/// pg_upgrade starts a server to copy into it, and must not lease a number for that.
#[test]
fn a_server_in_binary_upgrade_mode_leases_nothing() {
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    server.connect().wait_for_lease();
    server.stop(Shutdown::Fast);
    server.try_start_again_with(&["-b"]).expect("it starts as pg_upgrade starts it");
    assert_eq!(server.connect().lease("state || pid"), "");
    assert_eq!(server.connect().lease("state"), "none");
}

/// Returns how often the server has flushed its log for ten inserts into a table, with two seconds
/// by its clock before each, from so many seconds on, so that the mark moves for each.
fn flushes_of_ten_inserts(server: &Server, table: &str, seconds: f64) -> i64 {
    let flushes = if postgres_version() < 18 {
        "SELECT wal_sync FROM pg_stat_wal"
    } else {
        "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'"
    };
    let mut session = server.connect();
    let mut count = || {
        session.batch_execute("SELECT pg_stat_force_next_flush()").unwrap();
        session.ids(flushes).unwrap()[0]
    };
    let before = count();
    let mut inserting = server.connect();
    for insert in 1..=10 {
        server.set_clock_offset(seconds + 2.0 * f64::from(insert));
        inserting
            .batch_execute(&format!("INSERT INTO {table} DEFAULT VALUES; SELECT pg_stat_force_next_flush()"))
            .unwrap();
    }
    count() - before
}

/// A leased number needs no flushed mark, because the next life has another lease.
#[test]
fn an_insert_with_a_leased_number_flushes_the_log_as_often_as_one_with_bigserial() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let fleet = Fleet::start();
    let tables = "CREATE TABLE snowflakes (id bigint PRIMARY KEY DEFAULT snowflake_next());
                  CREATE TABLE serials (id bigserial PRIMARY KEY);
                  INSERT INTO snowflakes DEFAULT VALUES; INSERT INTO serials DEFAULT VALUES";
    let [leased, configured] = [fleet.member(), Server::drawing()].map(|builder| {
        // Nothing else writes meanwhile.
        let server = builder.durable().faketime().config("autovacuum", "off").start_with_extension();
        server.connect().batch_execute(tables).unwrap();
        [("snowflakes", 0.0), ("serials", 20.0)].map(|(table, seconds)| flushes_of_ten_inserts(&server, table, seconds))
    });
    assert!(configured[0] >= configured[1] + 8, "a configured number's mark is flushed: {configured:?}");
    // The log's writer may flush now and then by itself.
    assert!(leased[0] <= leased[1] + 3, "{leased:?}");
}

#[test]
fn a_server_that_is_pointed_at_another_fleet_changes_nothing_there_and_draws_on() {
    let [fleet, stray] = [(); 2].map(|()| Fleet::start());
    let server = fleet.member().start_with_extension();
    let mut session = server.connect();
    let mut ids = draw(&mut session, 100);
    let records = "SELECT md5(string_agg(f::text, '')) FROM snowflake_registry.fleets f";
    let before = stray.registry.connect().value(records);
    server.set_config("snowflake_id.registry", &stray.conninfo());
    server.reload();
    wait_until("the refusal", || session.lease("last_error").starts_with("the registry has another fleet"));
    ids.extend(draw(&mut session, 100));
    assert_eq!(stray.registry.connect().value(records), before);
    server.set_config("snowflake_id.registry", &fleet.conninfo());
    server.reload();
    wait_until("a renewal", || session.lease("failing_since").is_empty());
    ids.extend(draw(&mut session, 100));
    assert_unique(&ids);
    assert_eq!(workers(&ids).len(), 1);
}

#[test]
fn a_table_is_converted_and_draws_with_the_leased_number() {
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    let mut session = server.connect();
    session.batch_execute("CREATE TABLE orders (id bigserial PRIMARY KEY); INSERT INTO orders DEFAULT VALUES").unwrap();
    session.batch_execute("SELECT snowflake_convert('orders', 'id')").unwrap();
    let ids = session.ids("INSERT INTO orders DEFAULT VALUES RETURNING id").unwrap();
    assert_eq!(workers(&ids), [session.wait_for_lease()]);
    assert_eq!(session.value("SELECT worker_id FROM snowflake_stat"), session.lease("worker_id"));
}

/// The way out of a mark that is far ahead needs no other number, because each start has a lease
/// that begins after the last one.
#[test]
fn a_mark_that_is_far_ahead_is_reset_after_a_restart() {
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    let mut session = server.connect();
    let mut ids = draw(&mut session, 10);
    let far = "SELECT snowflake_advance(snowflake_compose(now() + interval '2 days', 0, 0), true)";
    session.batch_execute(far).unwrap();
    let refusal = refused(session.ids("SELECT snowflake_next()"));
    assert_eq!(refusal.sqlstate, "58000");
    let hint = refusal.hint.unwrap();
    assert!(hint.contains("restart the server, and call snowflake_reset_mark() in each database"), "{hint}");
    server.restart();
    let mut session = server.connect();
    session.batch_execute("SELECT snowflake_reset_mark()").unwrap();
    ids.extend(draw(&mut session, 10));
    assert_unique(&ids);
}

#[test]
fn a_worker_that_is_told_to_end_gives_its_number_back_and_is_started_again() {
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    let load = Load::start(&server, 16);
    load.wait_for(20);
    let mut session = server.connect();
    let pid = session.lease("pid");
    server.end_worker(pid.parse().unwrap());
    wait_until("another worker", || !["", &pid].contains(&session.lease("pid").as_str()));
    session.wait_for_lease();
    load.wait_for(20);
    let _ = load.end();
    assert!(server.log().contains("is given back, for ids from"));
}

#[test]
fn a_draw_waits_for_the_lease_and_can_be_cancelled() {
    let fleet = Fleet::start();
    fleet.registry.stop(Shutdown::Fast);
    let server = fleet.member().start_with_extension();
    let session = server.connect();
    let cancel = session.cancel_token();
    let running = Running::start(session, "SELECT snowflake_next()");
    let mut observer = server.connect();
    wait_until("the wait", || observer.lease("waits") == "1");
    cancel.cancel_query(postgres::NoTls).unwrap();
    let (session, result) = running.end();
    assert_eq!(refused(result).sqlstate, "57014");
    // The registry comes up while another draw waits.
    let running = Running::start(session, "SELECT snowflake_next()");
    wait_until("the wait", || observer.lease("waits") == "2");
    fleet.registry.start_again();
    assert_eq!(running.end().1.unwrap().len(), 1);
}

/// What stops a start, and what is refused later on.
#[test]
fn a_registry_is_checked_at_the_start_at_a_reload_and_by_alter_system() {
    let start = |settings: &[(&str, &str)]| {
        let builder = settings.iter().fold(Server::builder(), |builder, (name, value)| builder.set(name, value));
        builder.try_start().expect_err("the server does not start").log
    };
    let log = start(&[("registry", "service=fleet"), ("worker_id", "5")]);
    assert!(
        log.contains("FATAL:  \"snowflake_id.worker_id\" is 5, and \"snowflake_id.registry\" leases a worker number"),
        "{log}"
    );
    let log = start(&[("registry", "hots=a")]);
    assert!(log.contains("FATAL:  \"snowflake_id.registry\" is wrong: not a connection string of libpq\n"), "{log}");
    let layout = "time:41 sequence:22 unit:1ms epoch:2025-01-01T00:00:00Z";
    let log = start(&[("layout", layout), ("registry", "service=fleet")]);
    assert!(log.contains("has no worker number that a registry could lease"), "{log}");
    // How long leases are is the fleet's, and not a server's.
    for setting in ["lease", "max_clock_skew"] {
        let log = start(&[("registry", "service=fleet"), (setting, "1min")]);
        assert!(
            log.contains(&format!("FATAL:  unrecognized configuration parameter \"snowflake_id.{setting}\"")),
            "{log}"
        );
    }

    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    let mut session = server.connect();
    session.wait_for_lease();
    for (registry, why) in [
        ("hots=a", "\"snowflake_id.registry\" is wrong: not a connection string of libpq"),
        ("", "a server changes between a configured and a leased number only at its start"),
    ] {
        let length = server.log_length();
        server.set_config("snowflake_id.registry", registry);
        server.reload();
        assert!(server.log_since(length).contains(why), "{}", server.log_since(length));
        assert_eq!(session.value("current_setting('snowflake_id.registry')"), fleet.conninfo());
    }
    server.set_config("snowflake_id.registry", &fleet.conninfo());
    let refusal = refused(session.batch_execute("ALTER SYSTEM SET snowflake_id.registry = 'hots=a'"));
    assert_eq!(refusal.sqlstate, "22023");
    assert!(refusal.message.ends_with("is wrong: not a connection string of libpq"), "{refusal:?}");
    // Both may change for the next start.
    session.batch_execute("ALTER SYSTEM SET snowflake_id.registry = ''").unwrap();
    session.batch_execute("ALTER SYSTEM SET snowflake_id.worker_id = 5").unwrap();
    assert_eq!(session.lease("state"), "held");
    server.restart();
    assert_eq!(server.connect().lease("state"), "configured");
    assert_eq!(workers(&draw(&mut server.connect(), 10)), [5]);
}

#[test]
fn the_examples_of_the_page_about_fleets_run() {
    let registry = Server::builder().without_preload().durable().start();
    registry.make_registry_with(&[]);
    psql(&registry, &[], block("fleet-role"));
    registry.enter(&commands(block("fleet-range")));
    assert_eq!(settings(block("readme-registry")), settings(block("fleet-member")));
    // The lines name a host that does not exist.
    let mut member = Server::builder();
    for (name, value) in settings(block("fleet-member")) {
        assert!(value.starts_with("host=registry.example") == (name == "snowflake_id.registry"), "{name} = {value}");
        let own = registry.registry_conninfo();
        member = member.config(name, if name == "snowflake_id.registry" { &own } else { value });
    }
    let server = member.start_with_extension();
    let number = server.connect().wait_for_lease();
    assert!((100..=1023).contains(&number));
    assert_eq!(workers(&draw(&mut server.connect(), 10)), [number]);
    let alarms = psql(&server, &["--tuples-only"], block("lease-alarm"));
    assert_eq!(alarms, "");
    let shown = psql(&registry, &["--tuples-only"], block("fleet-numbers"));
    assert!(shown.contains(&number.to_string()) && shown.contains("held"), "{shown}");
    let drawn_by = block("fleet-drawn-by").replace("'2026-11-22 12:00:00+00', 104", &format!("now(), {number}"));
    let shown = psql(&registry, &["--tuples-only"], &drawn_by);
    assert!(shown.contains(&number.to_string()), "{shown}");
}
