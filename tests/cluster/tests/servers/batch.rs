//! `snowflake_batch`: how many ids it returns, in which order, and what two sessions that draw at
//! once leave to each other.
//!
//! The clock is frozen where the ids themselves matter.

use cluster::drawing::noon;
use cluster::{Draw, Running, Server, assert_ascending, assert_unique, refused, wait_until};
use postgres::Client;
use snowflake_core::draw::generator::{first_sequence, longest_run};
use snowflake_core::id::layout::Layout;

/// Opens a batch as a cursor, from which ids are drawn as they are fetched.
fn open(session: &mut Client, count: i32) {
    session.batch_execute(&format!("BEGIN; DECLARE c CURSOR FOR SELECT snowflake_batch({count})")).unwrap();
}

fn fetch(session: &mut Client, count: usize) -> Vec<i64> {
    session.ids(&format!("FETCH {count} FROM c")).unwrap()
}

#[test]
fn a_batch_has_exactly_as_many_ids_as_were_asked_for() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    let mut all = Vec::new();
    // Counts around the length of a run and of a tick, and a million.
    for count in [0, 1, 2, 15, 255, 256, 257, 512, 513, 4095, 4096, 4097, 1_000_000] {
        for sql in ["SELECT * FROM snowflake_batch($)", "SELECT snowflake_batch($)"] {
            let ids = session.ids(&sql.replace('$', &count.to_string())).unwrap();
            assert_eq!(ids.len(), count, "{sql}");
            all.extend(ids);
        }
    }
    assert_ascending(&all);
    assert_eq!(session.value("snowflake_last()"), all.last().unwrap().to_string());
    let inserted = "CREATE TABLE t AS SELECT id, row_number() OVER () FROM snowflake_batch(1000000) id";
    session.batch_execute(inserted).unwrap();
    assert_eq!(session.value("SELECT count(DISTINCT id) FROM t"), "1000000");
    assert_eq!(session.value(&format!("SELECT min(id) > {} FROM t", all.last().unwrap())), "true");
}

#[test]
fn a_batch_of_a_layout_with_few_ids_per_tick_has_as_many_as_were_asked_for() {
    // A run is one id, then two, then four.
    for (sequence, count) in [(3, 500), (5, 1000), (6, 2000)] {
        let layout = format!("time:41 worker:10 sequence:{sequence} unit:1ms epoch:2025-01-01T00:00:00Z");
        let server = Server::drawing().set("layout", &layout).time_limit().start_with_extension();
        let ids = server.connect().draw_batch(count);
        assert_eq!(ids.len(), usize::try_from(count).unwrap());
        assert_ascending(&ids);
    }
}

#[test]
fn a_negative_count_is_refused() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    for count in [-1, i32::MIN] {
        for sql in ["SELECT * FROM snowflake_batch($)", "SELECT snowflake_batch($)"] {
            let refusal = refused(session.ids(&sql.replace('$', &format!("({count})"))));
            let message = format!("count {count} is outside the range 0..2147483647");
            assert_eq!((refusal.sqlstate.as_str(), refusal.message), ("22023", message));
        }
    }
    assert_eq!(refused(session.ids("SELECT snowflake_last()")).sqlstate, "55000");
}

#[test]
fn without_a_count_there_is_no_id() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    for count in ["0", "NULL"] {
        for sql in ["SELECT * FROM snowflake_batch($)", "SELECT snowflake_batch($)"] {
            assert_eq!(session.ids(&sql.replace('$', count)).unwrap(), [0; 0], "{sql} with {count}");
        }
    }
    assert_eq!(refused(session.ids("SELECT snowflake_last()")).sqlstate, "55000");
    let lateral = "SELECT id FROM (VALUES (2), (NULL), (0), (3)) counts (n), snowflake_batch(n) id";
    let ids = session.ids(lateral).unwrap();
    assert_eq!(assert_unique(&ids), 5);
}

#[test]
fn limit_stops_a_batch() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    // 2,000,000,000 ids would need hours, and the clock is frozen; three ids need one run.
    let ids = session.ids("SELECT snowflake_batch(2147483647) LIMIT 3").unwrap();
    assert_eq!(ids, [ids[0], ids[0] + 1, ids[0] + 2]);
    assert_eq!(session.value("snowflake_last()"), ids[2].to_string());
    assert_eq!(session.draw(), ids[0] + 256);
    // In FROM, PostgreSQL fetches all rows before it counts three.
    assert_eq!(
        session.ids("SELECT * FROM snowflake_batch(1000) LIMIT 3").unwrap(),
        [257, 258, 259].map(|n| ids[0] + n)
    );
    assert_eq!(session.draw(), ids[0] + 257 + 1000);
}

/// A sixteenth of a tick's sequence is the most that one session takes at a time.
#[test]
fn batches_of_two_sessions_interleave() {
    for (layout_name, expected_run) in [("snowflake", 256), ("js53", 4096), ("sonyflake", 16)] {
        let Some(server) = Server::drawing().set("layout", layout_name).start_frozen(noon()) else { return };
        let layout = Layout::parse(layout_name).unwrap();
        let run = usize::try_from(longest_run(&layout)).unwrap();
        assert_eq!(run, expected_run, "{layout_name}");
        let first = first_sequence(&layout, u64::try_from(layout.tick_at(noon())).unwrap());
        let mut sessions = [server.connect(), server.connect()];
        sessions.iter_mut().for_each(|session| open(session, i32::try_from(2 * run + 1).unwrap()));

        // The sessions take turns. Each fetch but the first needs one id of the next run.
        let mut drawn = [Vec::new(), Vec::new()];
        for count in [1, run, run, run] {
            for (session, drawn) in sessions.iter_mut().zip(&mut drawn) {
                drawn.extend(fetch(session, count));
            }
        }
        let sequences = drawn.each_ref().map(|ids: &Vec<i64>| {
            ids.iter().map(|id| usize::try_from(layout.parts(*id).unwrap().sequence).unwrap()).collect::<Vec<_>>()
        });
        let run_number = |number: usize, length: usize| {
            let start = usize::try_from(first).unwrap() + number * run;
            start..start + length
        };
        // The last run of each session is the one id that is left in the tick.
        let one = run_number(0, run).chain(run_number(2, run)).chain(run_number(4, 1));
        let other = run_number(1, run).chain(run_number(3, run)).chain(run_number(4, 2).skip(1));
        assert_eq!(sequences, [one.collect::<Vec<_>>(), other.collect()], "{layout_name}");
        assert_unique(drawn.iter().flatten());
    }
}

#[test]
fn single_draws_come_between_the_runs_of_a_batch() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let (mut session, mut other) = (server.connect(), server.connect());
    open(&mut session, 600);
    let batch = fetch(&mut session, 10);
    let start = batch[0];
    // In another session and in the same.
    assert_eq!(other.draw(), start + 256);
    assert_eq!(session.draw(), start + 257);
    assert_eq!(session.value("snowflake_last()"), (start + 257).to_string());
    let rest = fetch(&mut session, 1000);
    let expected: Vec<_> = (10..256).chain(258..602).map(|number| start + number).collect();
    assert_eq!(rest, expected);
    assert_eq!(session.value("snowflake_last()"), (start + 601).to_string());
}

#[test]
fn a_waiting_batch_can_be_cancelled_in_the_middle() {
    let layout = "time:32 worker:5 sequence:6 unit:1s epoch:2019-01-01T00:00:00Z";
    let settings = Server::drawing().set("layout", layout).set("max_borrow", "0");
    let Some(server) = settings.start_frozen(noon()) else { return };
    let mut session = server.connect();
    let first = session.draw();
    // The run is four ids, of which 63 hold fifteen; the ids of a tick end with the last whole run.
    let waiting = Running::start(session, "SELECT * FROM snowflake_batch(1000)");
    server.wait_until_waiting(waiting.pid);
    assert_eq!(server.connect().value(&format!("pg_cancel_backend({})", waiting.pid)), "true");
    let (mut session, result) = waiting.end();
    assert_eq!(refused(result).sqlstate, "57014");
    assert_eq!(session.value("snowflake_last()"), (first + 60).to_string());
    // The rest of the tick serves a session that asks for fewer ids.
    assert_eq!(session.draw_batch(3), [61, 62, 63].map(|number| first + number));
    server.freeze_clock(noon() + 1000);
    let ids = session.draw_batch(64);
    assert_eq!(assert_unique(&ids), 64);
    assert!(ids[0] > first + 63);
}

#[test]
fn a_batch_that_need_not_wait_can_be_cancelled() {
    let server = Server::drawing().set("layout", "mastodon").set("worker_id", "0").start_with_extension();
    let mut observer = server.connect();
    for sql in [
        "SELECT count(id) FROM (SELECT snowflake_batch(2147483647) id) s",
        "SELECT count(*) FROM snowflake_batch(2147483647)",
    ] {
        let running = Running::start(server.connect(), sql);
        // A session is active while it parses, too, and between that and the execution it ignores
        // a cancellation.
        let cancel = format!(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
             WHERE pid = {} AND state = 'active' AND clock_timestamp() - query_start > '100 ms'",
            running.pid
        );
        wait_until("the batch to end", || {
            observer.batch_execute(&cancel).unwrap();
            running.is_over()
        });
        let (mut session, result) = running.end();
        assert_eq!(refused(result).sqlstate, "57014", "{sql}");
        session.draw();
    }
}
