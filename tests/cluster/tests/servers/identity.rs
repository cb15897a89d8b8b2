//! A server that starts with another identity than the ids of its databases were drawn with.
//! Another layout is refused until it is accepted. Another worker number is logged, and no id comes
//! again that either number can have drawn.

use std::collections::BTreeSet;

use cluster::drawing::{HOUR_MS, noon};
use cluster::marks::{MARK_AHEAD_MS, behind_the_mark_ms, end_ms, start_ms, worker};
use cluster::plans::plan;
use cluster::{Builder, Draw, Marks, Refusal, Running, Server, Shutdown, assert_ascending, assert_unique, refused};
use postgres::Client;
use snowflake_core::id::layout::{BUILT_IN, Layout};

fn set(server: &Server, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        server.set_config(&format!("snowflake_id.{name}"), value);
    }
}

/// All functions that draw ids, or read them by the server's layout.
const BY_THE_SETTING: [&str; 10] = [
    "SELECT snowflake_next()",
    "SELECT snowflake_batch(1)",
    "SELECT * FROM snowflake_batch(10)",
    "SELECT snowflake_parse(1)",
    "SELECT * FROM snowflake_parse(1)",
    "SELECT snowflake_timestamp(1)",
    "SELECT snowflake_format(1)",
    "SELECT snowflake_compose('2026-06-01 12:00:00Z', 5, 17)",
    "SELECT snowflake_compose('2026-06-01 12:00:00Z', 5, 17, 0)",
    "SELECT snowflake_min('2026-06-01 12:00:00Z')",
];

#[track_caller]
fn assert_another_layout(refusal: &Refusal, running: &str, stored: Option<&str>) {
    let beginning = format!("layout \"{running}\" is not the one that this database's ids were drawn with");
    assert_eq!(refusal.sqlstate, "55000", "{refusal:?}");
    assert!(refusal.message.starts_with(&beginning), "{refusal:?}");
    let detail = refusal.detail.as_deref().unwrap_or_default();
    match stored {
        Some(name) => assert!(detail.contains(&format!("\"{name}\"")), "{refusal:?}"),
        None => assert!(!detail.contains("\"snowflake\""), "{refusal:?}"),
    }
    assert!(refusal.hint.as_deref().is_some_and(|hint| hint.contains("snowflake_accept_layout()")), "{refusal:?}");
}

/// Asserts that in a session every function that uses the server's layout is refused, and none that
/// is given a layout.
#[track_caller]
fn assert_refuses_the_layout(session: &mut Client, running: &str, stored: Option<&str>) {
    for sql in BY_THE_SETTING {
        let refusal = refused(session.batch_execute(sql));
        assert_another_layout(&refusal, running, stored);
    }
    for layout in ["snowflake", "twitter", "js53"] {
        assert_eq!(session.value(&format!("snowflake_timestamp(0, '{layout}') IS NOT NULL")), "true");
        assert_eq!(session.value(&format!("snowflake_format(0, '{layout}') LIKE '20%'")), "true");
        assert_eq!(session.value(&format!("(snowflake_parse(0, '{layout}')).sequence")), "0");
    }
    let composed = "snowflake_compose('2022-06-28 16:07:40.105+00', 26, 0, 11, 'twitter')";
    assert_eq!(session.value(composed), "1541815603606036480");
    // And the current layout.
    assert_eq!(session.value("SELECT count(*) FROM snowflake_layouts"), (BUILT_IN.len() + 1).to_string());
}

#[test]
fn another_layout_is_refused_until_it_is_accepted() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let before = server.connect().draw_batch(300);
    let mark = server.connect().mark_ms();
    let mut now = noon() + 10_000;

    set(&server, &[("layout", "leaf")]);
    server.restart_at(now);
    // The first check of a session, and the second.
    let mut session = server.connect();
    for _ in 0..2 {
        assert_refuses_the_layout(&mut session, "leaf", Some("snowflake"));
        assert_refuses_the_layout(&mut server.connect(), "leaf", Some("snowflake"));
    }
    assert_eq!(session.mark_ms(), mark);

    // With the right layout again, everything is as before.
    set(&server, &[("layout", "snowflake")]);
    server.restart_at(now);
    assert!(server.connect().draw() > before[299]);
    assert_eq!(server.connect().value(&format!("snowflake_timestamp({})", before[0])), "2026-06-01 12:00:00+00");

    now += 10_000;
    set(&server, &[("layout", "leaf")]);
    server.restart_at(now);
    let mut open = server.connect();
    assert_another_layout(&refused(open.try_draw()), "leaf", Some("snowflake"));
    assert_another_layout(&refused(open.batch_execute("SELECT snowflake_format(1)")), "leaf", Some("snowflake"));
    server.connect().batch_execute("SELECT snowflake_accept_layout()").unwrap();
    // In the session that was refused, too.
    for mut session in [open, server.connect()] {
        for sql in &BY_THE_SETTING[..BY_THE_SETTING.len() - 1] {
            session.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        let id = session.draw();
        assert_eq!(start_ms("leaf", id), now);
        assert!(session.mark_ms().unwrap() >= end_ms("leaf", id));
    }
    // Accepting once more does no harm. From now on layouts are compared with the accepted one.
    server.connect().batch_execute("SELECT snowflake_accept_layout()").unwrap();
    server.crash();
    server.start_again_at(now - HOUR_MS);
    behind_the_mark_ms(&server.refused_draw("SELECT snowflake_next()"));
    set(&server, &[("layout", "snowflake")]);
    server.restart_at(now + 10_000);
    assert_refuses_the_layout(&mut server.connect(), "snowflake", Some("leaf"));
}

#[test]
fn a_forbidden_acceptance_changes_nothing_and_a_rolled_back_one_stays() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.draw();
    session.batch_execute("CREATE ROLE ordinary LOGIN; CREATE ROLE trusted LOGIN").unwrap();
    session.batch_execute("GRANT EXECUTE ON FUNCTION snowflake_accept_layout() TO trusted").unwrap();
    set(&server, &[("layout", "leaf")]);
    server.restart_at(noon() + 10_000);
    let accept = "SELECT snowflake_accept_layout()";
    assert_eq!(refused(server.connect_as("ordinary").batch_execute(accept)).sqlstate, "42501");
    let refusal = refused(server.connect().batch_execute(&format!("BEGIN READ ONLY; {accept}")));
    assert_eq!(refusal.sqlstate, "25006", "{refusal:?}");
    assert_another_layout(&refused(server.connect().try_draw()), "leaf", Some("snowflake"));
    server.connect_as("trusted").batch_execute(&format!("BEGIN; {accept}; ROLLBACK")).unwrap();
    server.connect_as("ordinary").draw();
    // Like the mark, an acceptance does not depend on the transaction's end, and survives a crash.
    server.crash();
    server.start_again_at(noon() + 20_000);
    server.connect_as("ordinary").draw();
}

#[test]
fn a_layout_is_known_by_what_it_says_and_not_by_its_name() {
    let text = "time:41 worker:10 sequence:12 unit:1ms epoch:2025-01-01T00:00:00Z";
    let custom = "time:40 worker:11 sequence:12 unit:1ms epoch:2025-01-01T00:00:00Z";
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut ids = vec![server.connect().draw()];
    let mut now = noon();
    let mut restart_with = |layout: &str| {
        set(&server, &[("layout", layout)]);
        now += 10_000;
        server.restart_at(now);
        server.connect()
    };
    ids.push(restart_with(text).draw());
    ids.push(restart_with("snowflake").draw());
    assert_ascending(&ids);
    // These layouts are similar to the stored one, but not the same.
    for layout in ["leaf", "cosid", "pgedge", custom] {
        assert_another_layout(&refused(restart_with(layout).try_draw()), layout, Some("snowflake"));
    }
    let mut session = restart_with(custom);
    session.batch_execute("SELECT snowflake_accept_layout()").unwrap();
    session.draw();
    // The stored layout has no name, so the message has none.
    assert_refuses_the_layout(&mut restart_with("leaf"), "leaf", None);
}

#[test]
fn where_nothing_was_drawn_any_layout_will_do() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut owner = server.connect();
    owner.draw();
    owner.batch_execute("CREATE DATABASE empty").unwrap();
    let mut session = server.connect_to("empty");
    session.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    // Reading does not bind the database to a layout.
    session.batch_execute("SELECT snowflake_format(1)").unwrap();
    set(&server, &[("layout", "leaf")]);
    server.restart_at(noon() + 10_000);
    let mut session = server.connect_to("empty");
    session.batch_execute("SELECT snowflake_format(1)").unwrap();
    let id = session.draw();
    assert_eq!(start_ms("leaf", id), noon() + 10_000);
    // This does not affect the other databases.
    assert_another_layout(&refused(server.connect().try_draw()), "leaf", Some("snowflake"));
}

/// A copy of the data can start without the preloaded library. It would read ids by the wrong
/// layout, too.
#[test]
fn another_layout_is_refused_without_preload() {
    let server = Server::drawing().start_with_extension();
    let id = server.connect().draw();
    server.set_config("shared_preload_libraries", "");
    set(&server, &[("layout", "leaf")]);
    server.restart();
    for sql in ["SELECT snowflake_format(1)", "SELECT snowflake_timestamp(1)", "SELECT snowflake_parse(1)"] {
        assert_another_layout(&refused(server.connect().batch_execute(sql)), "leaf", Some("snowflake"));
    }
    set(&server, &[("layout", "snowflake")]);
    server.restart();
    assert_eq!(server.connect().value(&format!("snowflake_timestamp({id}) > '2026-01-01'")), "true");
}

/// A server with ticks of a second and a table for its ids. `first` gives the worker numbers that
/// it draws with at first.
fn start_js53(first: &[(&str, &str)]) -> Option<Server> {
    let settings = |builder: Builder, (name, value): &(&str, &str)| builder.set(name, value);
    let server = first.iter().fold(Server::drawing().set("layout", "js53"), settings).start_frozen(noon())?;
    server.connect().batch_execute("CREATE TABLE t (id bigint DEFAULT snowflake_next())").unwrap();
    Some(server)
}

/// More than one tick's ids.
fn store_many(session: &mut Client) -> Vec<i64> {
    session.ids("INSERT INTO t SELECT snowflake_next() FROM generate_series(1, 70000) RETURNING id").unwrap()
}

/// Restarts the server with other worker numbers and its clock an hour back. Then draws, tick by
/// tick, until both of its workers have passed everything that was there before. Returns the ids.
/// Asserts that the LOG line comes once.
fn change_number(server: &Server, numbers: &[(&str, &str)], before: &[i64], logged: [&str; 2]) -> Vec<i64> {
    let marks = (server.connect().mark_ms(), server.connect().backup_mark_ms());
    let highest = marks.0.max(marks.1).unwrap();
    server.stop(Shutdown::Immediate);
    set(server, numbers);
    let log_start = server.log_length();
    server.start_again_at(noon() - HOUR_MS);
    for _ in 0..2 {
        let behind_ms = behind_the_mark_ms(&server.refused_draw("SELECT snowflake_next()"));
        assert!((HOUR_MS - 100..=highest - noon() + HOUR_MS).contains(&behind_ms), "{behind_ms} ms");
    }
    // The clock has passed one lane, but not yet the other. The draw may succeed at once, borrow,
    // or wait.
    server.freeze_clock(marks.0.min(marks.1).unwrap_or(highest));
    let first = Running::start(server.connect(), "INSERT INTO t SELECT snowflake_batch(3) RETURNING id");
    if server.waits_for_the_clock(&first) {
        server.freeze_clock_and_wake(highest, &first);
    }
    let mut drawn = first.end().1.unwrap();
    for seconds in 0..4 {
        server.freeze_clock(highest + 1000 * seconds);
        drawn.extend(store_many(&mut server.connect()));
    }
    assert!(drawn.iter().all(|id| start_ms("js53", *id) >= highest), "an id is from before the marks");
    assert_unique(before.iter().chain(&drawn));
    assert_eq!(server.connect().value("SELECT count(*) - count(DISTINCT id) FROM t"), "0");

    let log = server.log_since(log_start);
    let lines: Vec<_> = log.lines().filter(|line| line.contains("LOG:") && line.contains("drawn with")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("worker") && logged.iter().all(|number| lines[0].contains(number)), "{}", lines[0]);
    drawn
}

fn workers(ids: &[i64]) -> BTreeSet<u32> {
    ids.iter().map(|id| worker("js53", *id)).collect()
}

/// 19 was the server's primary worker number, and is now the backup of 3. The backup lane has no
/// mark, and must not begin below what the primary lane drew as 19.
#[test]
fn a_worker_that_becomes_a_backup_worker_repeats_nothing() {
    let Some(server) = start_js53(&[("worker_id", "19")]) else { return };
    let mut session = server.connect();
    let mut before = Vec::new();
    for seconds in [0, 1, 2] {
        server.freeze_clock(noon() + 1000 * seconds);
        before.extend(session.ids("INSERT INTO t SELECT snowflake_batch(20000) RETURNING id").unwrap());
    }
    assert_eq!(workers(&before), BTreeSet::from([19]));
    let drawn = change_number(&server, &[("worker_id", "3"), ("backup_worker", "on")], &before, ["19", "3"]);
    assert_eq!(workers(&drawn), BTreeSet::from([3, 19]));
}

/// The reverse: 19 drew in the backup lane, further ahead of the clock than the primary lane as 3,
/// and is now the primary.
#[test]
fn a_backup_worker_that_becomes_a_worker_repeats_nothing() {
    let Some(server) = start_js53(&[("worker_id", "3"), ("backup_worker", "on"), ("max_borrow", "3s")]) else { return };
    let mut session = server.connect();
    let fill = "INSERT INTO t SELECT snowflake_next() FROM generate_series(1, 300000) RETURNING id";
    let before = session.ids(fill).unwrap();
    assert_eq!(workers(&before), BTreeSet::from([3, 19]));
    assert!(session.backup_mark_ms() > session.mark_ms().map(|mark| mark + MARK_AHEAD_MS));
    let drawn = change_number(&server, &[("worker_id", "19"), ("backup_worker", "off")], &before, ["19", "3"]);
    assert_eq!(workers(&drawn), BTreeSet::from([19]));
}

#[test]
fn a_change_of_number_is_logged_once_and_an_equal_one_not_at_all() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut now = noon();
    let mut ids = vec![server.connect().draw()];
    let mut lines_with = |worker: &str| {
        set(&server, &[("worker_id", worker)]);
        let log_start = server.log_length();
        now += 10_000;
        server.restart_at(now);
        for _ in 0..3 {
            ids.push(server.connect().draw());
        }
        server.freeze_clock(now + 5000);
        ids.push(server.connect().draw());
        let log = server.log_since(log_start);
        let drawn = |line: &&str| line.contains("LOG:") && line.contains("worker") && line.contains("drawn");
        log.lines().filter(drawn).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines_with("5"), [""; 0]);
    let lines = lines_with("77");
    assert!(lines.len() == 1 && lines[0].contains("77") && lines[0].contains(" 5"), "{lines:?}");
    assert_eq!(lines_with("77"), [""; 0]);
    assert_eq!(lines_with("5").len(), 1);
    assert_unique(&ids);
}

/// Nothing was drawn, so any layout is accepted. Then a dump brings another layout.
#[test]
fn a_kept_plan_does_not_outlive_the_layout_that_it_was_made_by() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    let sql = "CREATE TABLE orders (id bigint PRIMARY KEY);
        INSERT INTO orders VALUES (snowflake_compose('2026-06-01 12:00:00Z', 5, 17));
        SET plan_cache_mode = force_generic_plan;
        PREPARE since(timestamptz) AS SELECT id FROM orders WHERE snowflake_timestamp(id) >= $1";
    session.batch_execute(sql).unwrap();
    let since = "EXECUTE since('2026-06-01 12:00:00Z')";
    assert_eq!(session.query(since, &[]).unwrap().len(), 1);
    assert!(plan(&mut session, since).contains("Index Cond: (id >= snowflake_from($1"));

    let twitter = Layout::parse("twitter").unwrap().fingerprint();
    server.connect().execute("SELECT setval('snowflake_mark_layout', $1)", &[&twitter]).unwrap();
    assert_another_layout(&refused(session.query(since, &[])), "snowflake", Some("twitter"));
    assert!(plan(&mut session, since).contains("Filter: (snowflake_timestamp(id) >= $1)"));

    // A plan that was made under the refused layout does not outlive it either.
    server.connect().batch_execute("SELECT snowflake_accept_layout()").unwrap();
    assert_eq!(session.query(since, &[]).unwrap().len(), 1);
    assert!(plan(&mut session, since).contains("Index Cond: (id >= snowflake_from($1"));
}
