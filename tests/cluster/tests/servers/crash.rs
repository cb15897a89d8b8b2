//! The end of a backend, and the places where nothing may be drawn: recovery, read-only
//! transactions, parallel workers.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::thread;

use cluster::drawing::noon;
use cluster::marks::MARK_AHEAD_MS;
use cluster::refusal::assert_refused_as;
use cluster::{Draw, Marks, Server, Shutdown, assert_ascending, assert_unique, refused, wait_until};
use postgres::Client;

fn plan(session: &mut Client, query: &str) -> String {
    let lines = session.query(&format!("EXPLAIN (ANALYZE, COSTS off, TIMING off) {query}"), &[]).unwrap();
    lines.iter().map(|line| line.get::<_, String>(0) + "\n").collect()
}

#[test]
fn ids_stay_unique_across_the_kill_of_a_backend() {
    const SESSIONS: usize = 8;
    let server = Server::drawing().start_with_extension();
    let postmaster = server.postmaster_pid();
    let mut all: Vec<i64> = Vec::new();
    for crash in 0..2 {
        let victim = AtomicI32::new(0);
        let drawing = AtomicUsize::new(0);
        let sessions: Vec<_> = (0..SESSIONS).map(|_| server.connect()).collect();
        let drawn: Vec<Vec<i64>> = thread::scope(|scope| {
            let draw = |mut session: Client| {
                let (victim, drawing) = (&victim, &drawing);
                scope.spawn(move || {
                    victim.store(session.pid(), Ordering::Relaxed);
                    let mut ids = Vec::new();
                    while let Ok(id) = session.try_draw() {
                        ids.push(id);
                        if ids.len() == 100 {
                            drawing.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    // Only the end of the session ends the loop. An error that the session survives
                    // does not.
                    wait_until("the end of the session", || session.is_closed());
                    ids
                })
            };
            let threads: Vec<_> = sessions.into_iter().map(draw).collect();
            wait_until("all sessions to draw", || drawing.load(Ordering::Relaxed) == SESSIONS);
            server.kill_backend(victim.load(Ordering::Relaxed));
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        server.wait_until_ready();
        assert_eq!(server.postmaster_pid(), postmaster);

        let greatest = drawn.iter().flatten().copied().max().unwrap();
        drawn.iter().for_each(|ids| assert_ascending(ids));
        all.extend(drawn.into_iter().flatten());
        let mut session = server.connect();
        let refusal = refused(session.ids("SELECT snowflake_last()"));
        assert_refused_as(&refusal, "55000", "no id has been drawn in this session yet");
        // It waits as long as the mark is ahead of the clock.
        let first = session.draw();
        assert!(first > greatest, "crash {crash}: {first} was drawn after {greatest}");
        all.push(first);
        all.extend(session.draw_batch(1000));
    }
    assert_unique(&all);
}

/// The server is back before the clock has moved on. Both lanes have borrowed all that they may.
#[test]
fn neither_borrowed_ids_nor_the_backup_workers_come_twice_after_a_restart() {
    let few = "time:41 worker:10 sequence:4 unit:1ms epoch:2025-01-01T00:00:00Z";
    let cases = [
        // All that may be borrowed, to the last id.
        (Server::drawing().set("layout", few).set("max_borrow", "1s"), 1000, 1, 16 * 1001),
        // All of the primary lane's tick, and some of the backup lane's.
        (Server::drawing().set("layout", "js53").set("backup_worker", "on"), 100, 1000, 65_536),
    ];
    let ends: [fn(&Server); 3] =
        [|server| server.stop(Shutdown::Fast), |server| server.stop(Shutdown::Immediate), Server::crash];
    for (settings, max_borrow_ms, tick_ms, count) in cases {
        let Some(server) = settings.start_frozen(noon()) else { return };
        let draw = format!("SELECT snowflake_next() FROM generate_series(1, {count})");
        let mut now = noon();
        let mut all = Vec::new();
        for end in ends {
            all.extend(server.connect().ids(&draw).unwrap());
            end(&server);
            server.start_again();
            let mut session = server.connect();
            let marks = session.mark_ms().max(session.backup_mark_ms()).unwrap();
            // What may be borrowed, one tick, and how far the mark runs ahead.
            assert!(marks - now <= max_borrow_ms + tick_ms + MARK_AHEAD_MS);
            all.extend(server.draw_through_first_load("SELECT snowflake_next()", marks, marks + tick_ms));
            now += 60_000;
            server.freeze_clock(now);
        }
        assert_eq!(assert_unique(&all), ends.len() * (count + 1));
    }
}

#[test]
fn nothing_is_drawn_in_a_read_only_transaction() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    let before = session.draw();
    let in_a_read_only_transaction = |function: &str| format!("cannot execute {function}() in a read-only transaction");
    for begin in ["BEGIN READ ONLY", "BEGIN; SET TRANSACTION READ ONLY"] {
        session.batch_execute(begin).unwrap();
        // Functions that only read work there.
        assert_eq!(session.ids("SELECT snowflake_last()").unwrap(), [before]);
        assert_eq!(session.value("snowflake_format(0)"), "2025-01-01T00:00:00.000Z #0 @(0)");
        session.batch_execute("SAVEPOINT s").unwrap();
        for (draw, function) in [
            ("SELECT snowflake_next()", "snowflake_next"),
            ("SELECT snowflake_batch(1)", "snowflake_batch"),
            ("SELECT * FROM snowflake_batch(0)", "snowflake_batch"),
        ] {
            assert_refused_as(&refused(session.ids(draw)), "25006", &in_a_read_only_transaction(function));
            session.batch_execute("ROLLBACK TO s").unwrap();
        }
        assert_eq!(session.ids("SELECT snowflake_last()").unwrap(), [before]);
        session.batch_execute("ROLLBACK").unwrap();
    }
    assert!(session.draw() > before);
}

/// A table that PostgreSQL reads in parallel if nothing in the query forbids it.
fn with_parallel_table(server: &Server) -> Client {
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE TABLE t AS SELECT snowflake_next() AS id FROM generate_series(1, 10000);
             SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
             SET parallel_leader_participation = off",
        )
        .unwrap();
    session
}

#[test]
fn a_query_that_draws_is_not_run_in_parallel() {
    let server = Server::drawing().start_with_extension();
    let mut session = with_parallel_table(&server);
    for query in [
        "SELECT count(DISTINCT snowflake_next()) FROM t",
        "SELECT count(DISTINCT b) FROM t, LATERAL (SELECT snowflake_batch(1) b WHERE id > 0) s",
        "SELECT count(*) FROM t WHERE id < snowflake_next()",
    ] {
        assert_eq!(session.value(query), "10000", "{query}");
        let plan = plan(&mut session, query);
        assert!(!plan.contains("Gather"), "{query}\n{plan}");
    }
}

#[test]
fn a_function_that_is_wrongly_marked_cannot_draw_in_parallel() {
    let server = Server::drawing().start_with_extension();
    let mut session = with_parallel_table(&server);
    let last = session.value("snowflake_last()");
    for draw in ["snowflake_next()", "(SELECT max(id) FROM snowflake_batch(1) id)"] {
        let function = format!(
            "CREATE OR REPLACE FUNCTION f(bigint) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN {draw}; END'"
        );
        session.batch_execute(&function).unwrap();
        // First in a worker, then in the leader, which takes part if no worker is available.
        for workers in [8, 0] {
            session.batch_execute(&format!("SET max_parallel_workers = {workers}")).unwrap();
            let refusal = refused(session.ids("SELECT count(f(id)) FROM t"));
            assert_eq!(refusal.sqlstate, "25000", "{refusal:?}");
            assert!(refusal.message.ends_with("() during a parallel operation"), "{refusal:?}");
        }
    }
    assert_eq!(session.value("snowflake_last()"), last);
}

/// A session that draws one id of a tick after the other asks less for each than for the first.
#[test]
fn a_session_that_has_just_drawn_still_draws_nothing_where_nothing_may_be_drawn() {
    let Some(server) = Server::drawing().set("layout", "js53").start_frozen(noon()) else { return };
    let mut session = with_parallel_table(&server);
    session
        .batch_execute(
            "SET max_parallel_workers = 0;
             CREATE FUNCTION f(bigint) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE
             AS 'BEGIN RETURN snowflake_next(); END'",
        )
        .unwrap();
    let in_parallel = "SELECT count(f(id)) FROM t";
    for (change, draw, sqlstate, message) in [
        ("SET TRANSACTION READ ONLY", "SELECT snowflake_next()", "25006", "in a read-only transaction"),
        ("SAVEPOINT s", in_parallel, "25000", "during a parallel operation"),
    ] {
        session.batch_execute("BEGIN").unwrap();
        let ids = [(); 4].map(|()| session.draw());
        assert_ascending(&ids);
        session.batch_execute(change).unwrap();
        assert_refused_as(&refused(session.ids(draw)), sqlstate, &format!("cannot execute snowflake_next() {message}"));
        session.batch_execute("ROLLBACK").unwrap();
        assert_eq!(session.ids("SELECT snowflake_last()").unwrap(), [ids[3]]);
    }
}

#[test]
fn a_query_that_reads_runs_in_parallel() {
    let server = Server::drawing().start_with_extension();
    let mut session = with_parallel_table(&server);
    let last = session.draw();
    for query in [
        "SELECT min(snowflake_timestamp(id)) || ' ' || max(snowflake_timestamp(id)) FROM t",
        "SELECT sum((snowflake_parse(id)).sequence) || max(snowflake_format(id, 'leaf')) FROM t",
        // The leader's last id, because a worker is another session.
        "SELECT count(*) FILTER (WHERE snowflake_timestamp(id) IS NOT NULL) || ' ' || snowflake_last() FROM t",
    ] {
        let parallel = session.value(query);
        let plan = plan(&mut session, query);
        let launched = plan.lines().find(|line| line.contains("Workers Launched:"));
        assert!(launched.is_some_and(|line| !line.ends_with(" 0")), "{query}\n{plan}");
        session.batch_execute("BEGIN; SET LOCAL max_parallel_workers_per_gather = 0").unwrap();
        assert_eq!(parallel, session.value(query), "{query}");
        session.batch_execute("COMMIT").unwrap();
    }
    assert_eq!(session.ids("SELECT snowflake_last()").unwrap(), [last]);
}

/// The last id is lost with shared memory, and the clock is still in the tick of one second in
/// which it was drawn.
#[test]
fn no_id_comes_twice_after_a_crash_or_a_restart_within_one_tick() {
    let Some(server) = Server::drawing().set("layout", "js53").start_frozen(noon()) else { return };
    let crash = |server: &Server| {
        server.crash();
        server.start_again();
    };
    let losses: [&dyn Fn(&Server); 3] = [&crash, &Server::restart, &crash];
    let mut ids = server.connect().draw_batch(10);
    for lose in losses {
        lose(&server);
        let mark = server.connect().mark_ms().unwrap();
        let sql = "SELECT snowflake_next() FROM generate_series(1, 10)";
        ids.extend(server.draw_through_first_load(sql, mark, mark + 1000));
    }
    assert_unique(&ids);
    assert_ascending(&ids);
}
