//! Statistics: every id, wait, refused draw and move of the mark is counted once, whatever happens
//! to the session that counted it. Also which roles may read the counts, and what the server logs,
//! and how seldom.
//!
//! With a frozen clock, every count is certain.

use std::time::Instant;

use cluster::drawing::{HOUR_MS, WORKER, at_once, noon, wait_until_gone};
use cluster::pages::block;
use cluster::refusal::{REFUSALS, assert_counted};
use cluster::{Draw, Running, Server, Shutdown, assert_ascending, instant, postgres_version, refused, wait_until};
use postgres::Client;
use snowflake_core::clock::Utc;

/// A layout with a second worker number for this server, and 16 ids a second.
const SPARSE: &str = "time:32 worker:5 sequence:4 unit:1s epoch:2019-01-01T00:00:00Z";

/// All counts.
const COUNTS: [&str; 19] = [
    "drawn",
    "drawn_backup",
    "borrowed",
    "used_up_waits",
    "used_up_wait_time",
    "clock_waits",
    "clock_wait_time",
    "mark_waits",
    "mark_wait_time",
    "clock_steps_back",
    "clock_steps_back_refused",
    "clock_jumps_refused",
    "mark_refused",
    "layout_refused",
    "number_refused",
    "time_used_up_refused",
    "databases_refused",
    "marks_moved",
    "mark_move_time",
];

/// Reads columns of `snowflake_stat`, which are numbers.
fn stat<const N: usize>(session: &mut Client, columns: [&str; N]) -> [i64; N] {
    let list = columns.map(|column| format!("{column}::bigint")).join(", ");
    let row = session.query_one(&format!("SELECT {list} FROM snowflake_stat"), &[]).unwrap();
    std::array::from_fn(|column| row.get::<_, Option<i64>>(column).unwrap_or(-1))
}

fn drawn(session: &mut Client) -> i64 {
    stat(session, ["drawn"])[0]
}

/// Returns how often a text is in the log.
fn logged(server: &Server, text: &str) -> usize {
    server.log().matches(text).count()
}

#[test]
fn every_id_is_counted_once_and_stays_counted_when_its_session_ends() {
    let server = Server::drawing().start_with_extension();
    let mut observer = server.connect();
    assert_eq!(stat(&mut observer, ["drawn", "last_id", "marks_moved"]), [0, -1, 0]);
    let mut expected = 0;
    let mut greatest = -1;
    // More sessions than there are slots, so that each slot has several owners.
    for _ in 0..4 {
        let ids = at_once(&server, 40, |number, mut session| {
            let mut ids: Vec<_> = (0..number).map(|_| session.draw()).collect();
            ids.extend(session.draw_batch(100));
            ids.extend(session.ids("SELECT snowflake_next() FROM generate_series(1, 900)").unwrap());
            ids
        });
        expected += ids.iter().map(Vec::len).sum::<usize>() as i64;
        greatest = greatest.max(*ids.iter().flatten().max().unwrap());
        assert_eq!(stat(&mut observer, ["drawn", "drawn_backup", "last_id"]), [expected, 0, greatest]);
    }
    assert_eq!(expected, 4 * (40 * 1000 + 780));
    let gone = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    wait_until("the end of the sessions", || observer.value(gone) == "1");
    assert_eq!(stat(&mut observer, ["drawn", "last_id"]), [expected, greatest]);
    let same = "SELECT last_created_at = snowflake_timestamp(last_id) FROM snowflake_stat";
    assert_eq!(observer.value(same), "true");
}

#[test]
fn counts_survive_sessions_that_are_terminated_and_fail() {
    let server = Server::drawing().start_with_extension();
    let mut observer = server.connect();
    for round in 1..=3 {
        let mut session = server.connect();
        session.draw_batch(100);
        // Ids of a rolled back transaction are counted, too.
        session.batch_execute("BEGIN; SELECT snowflake_next(); ROLLBACK").unwrap();
        assert_eq!(refused(session.ids("SELECT snowflake_next() / 0")).sqlstate, "22012");
        let pid = session.pid();
        assert_eq!(observer.value(&format!("pg_terminate_backend({pid})")), "true");
        wait_until_gone(&mut observer, pid);
        assert_eq!(drawn(&mut observer), 102 * round);
    }
}

#[test]
fn a_session_that_is_killed_takes_the_counts_of_its_server_with_it() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    session.draw_batch(100);
    let pid = session.pid();
    let before = server.connect().value("SELECT stats_reset FROM snowflake_stat");
    // PostgreSQL then makes shared memory anew, because the session may have left it in any state.
    server.kill_backend(pid);
    server.wait_until_ready();
    let mut session = server.connect();
    assert_eq!(stat(&mut session, ["drawn", "last_id"]), [0, -1]);
    assert_eq!(session.value(&format!("SELECT stats_reset > '{before}' FROM snowflake_stat")), "true");
    assert_eq!(session.value("SELECT count(*) FROM snowflake_stat_backend"), "0");
    session.draw_batch(7);
    assert_eq!(drawn(&mut session), 7);
}

#[test]
fn a_batch_is_counted_when_it_is_reserved() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    // A session reserves a sixteenth of a tick's ids at once, and fetches two of them.
    let ids = session.ids("SELECT snowflake_batch(1000) LIMIT 2").unwrap();
    assert_eq!(stat(&mut session, ["drawn", "last_id"]), [256, ids[1]]);
}

#[test]
fn a_session_shows_what_it_has_drawn_itself() {
    let server = Server::drawing().config("max_connections", "4").config("superuser_reserved_connections", "0");
    let server = server.start_with_extension();
    // The first draw of all may wait for a tick.
    server.load_first();
    let mut observer = server.connect();
    let mut of = move |pid: i32| {
        let sql = format!("SELECT concat_ws(' ', drawn, waits, last_id) FROM snowflake_stat_backend WHERE pid = {pid}");
        let rows = observer.query(&sql, &[]).unwrap();
        assert!(rows.len() <= 1);
        rows.first().map(|row| row.get::<_, String>(0))
    };
    let mut lasting = server.connect();
    let kept = lasting.draw_batch(3)[2];
    for number in 1..=5 {
        // The sessions use the same slot, one after the other.
        let mut session = server.connect();
        let pid = session.pid();
        assert_eq!(of(pid), None);
        assert_eq!(refused(session.ids("SELECT snowflake_last()")).sqlstate, "55000");
        assert_eq!(of(pid), None);
        let last = *session.draw_batch(number).last().unwrap();
        assert_eq!(of(pid), Some(format!("{number} 0 {last}")));
        assert_eq!(session.ids("SELECT snowflake_last()").unwrap(), [last]);
        drop(session);
        wait_until("the end of the backend", || of(pid).is_none());
        assert_eq!(of(lasting.pid()), Some(format!("3 0 {kept}")));
    }
    assert_eq!(lasting.value("snowflake_last()"), kept.to_string());
}

#[test]
fn what_is_borrowed_is_counted_to_the_id() {
    let Some(server) = Server::drawing().set("layout", SPARSE).set("max_borrow", "2s").start_frozen(noon()) else {
        return;
    };
    let mut session = server.connect();
    session.draw();
    session.batch_execute("SELECT snowflake_stat_reset()").unwrap();
    // The tick has fifteen ids left. Each further id belongs to a later tick.
    session.draw_batch(10);
    assert_eq!(stat(&mut session, ["drawn", "borrowed", "ahead_ms"]), [10, 0, 0]);
    session.draw_batch(9);
    assert_eq!(stat(&mut session, ["drawn", "borrowed", "ahead_ms"]), [19, 4, 1000]);
    let ids = session.ids("SELECT snowflake_next() FROM generate_series(1, 20)").unwrap();
    assert_eq!(stat(&mut session, ["drawn", "borrowed", "ahead_ms", "last_id"]), [39, 24, 2000, ids[19]]);
    // Behind a clock that was set back, ids of the former tick count as borrowed, too. Once the
    // clock has caught up, they do not.
    server.freeze_clock(noon() + 1000);
    session.draw();
    assert_eq!(stat(&mut session, ["drawn", "borrowed", "ahead_ms"]), [40, 25, 1000]);
    server.freeze_clock(noon() + 3000);
    session.draw();
    assert_eq!(stat(&mut session, ["drawn", "borrowed", "ahead_ms"]), [41, 25, 0]);
}

#[test]
fn what_a_backup_worker_draws_is_counted_apart() {
    let Some(server) = Server::drawing().set("backup_worker", "on").start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.draw_batch(10);
    assert_eq!(stat(&mut session, ["drawn", "drawn_backup", "borrowed"]), [10, 0, 0]);
    let worker = i64::from(WORKER);
    assert_eq!(stat(&mut session, ["worker_id", "backup_worker_id", "datacenter_id"]), [worker, worker + 512, -1]);
    server.freeze_clock(noon() - 50);
    session.draw_batch(7);
    session.draw();
    assert_eq!(stat(&mut session, ["drawn", "drawn_backup", "borrowed", "clock_steps_back"]), [18, 8, 0, 0]);
}

#[test]
fn the_last_id_is_the_greatest_whichever_worker_drew_it() {
    let Some(server) = Server::drawing().set("backup_worker", "on").start_frozen(noon()) else { return };
    let mut session = server.connect();
    let greatest = session.draw();
    server.freeze_clock(noon() - 50);
    let mut earlier = vec![session.draw()];
    earlier.extend(session.draw_batch(3));
    assert!(earlier.iter().all(|id| *id < greatest));
    assert_eq!(stat(&mut session, ["last_id", "ahead_ms"]), [greatest, 50]);
    assert_eq!(session.value("snowflake_last()"), earlier[3].to_string());
    // The next owner of the slot.
    let pid = session.pid();
    drop(session);
    let mut session = server.connect();
    wait_until_gone(&mut session, pid);
    let mut other = server.connect();
    assert!(other.draw() < greatest);
    assert_eq!(stat(&mut session, ["last_id"]), [greatest]);
    server.freeze_clock(noon() + 50);
    let last = session.draw();
    assert!(last > greatest);
    assert_eq!(stat(&mut session, ["last_id"]), [last]);

    // An id of a batch that was reserved before.
    session.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT snowflake_batch(100)").unwrap();
    let first = session.ids("FETCH c").unwrap()[0];
    let greatest = session.draw();
    assert_eq!(session.ids("FETCH c").unwrap(), [first + 1]);
    assert!(greatest > first + 1);
    assert_eq!(stat(&mut session, ["last_id"]), [greatest]);
}

#[test]
fn a_step_back_of_a_saturated_generator_is_no_rollback() {
    let layout = "time:41 worker:10 sequence:2 unit:1ms epoch:2025-01-01T00:00:00Z";
    let Some(server) = Server::drawing().set("layout", layout).start_frozen(noon()) else { return };
    let mut session = server.connect();
    // The ids of this tick and of a hundred borrowed ticks.
    session.draw_batch(404);
    server.freeze_clock(noon() - 1);
    let next = "SELECT snowflake_next()";
    assert_wait(&server, "clock_waits", "clock_wait_time", "SnowflakeClock", next, noon() + 1);
    assert_eq!(stat(&mut session, ["clock_steps_back", "used_up_waits", "drawn"]), [0, 0, 405]);
    assert_eq!(logged(&server, "behind the last id"), 0);
}

#[test]
fn a_clock_before_the_epoch_is_a_rollback() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.draw();
    server.freeze_clock(instant("1971-01-01T00:00:00Z"));
    for _ in 0..3 {
        assert_eq!(refused(session.try_draw()).sqlstate, "22008");
    }
    assert_eq!(stat(&mut session, ["clock_steps_back", "clock_steps_back_refused"]), [3, 3]);
    let line = "LOG:  snowflake_id: draws are refused: clock is before the layout's epoch\n";
    assert_eq!(logged(&server, line), 1);

    // The machine has booted without a right clock.
    drop(session);
    server.restart_at(instant("1971-01-01T00:00:00Z"));
    let mut session = server.connect();
    assert_eq!(refused(session.try_draw()).sqlstate, "22008");
    assert_eq!(stat(&mut session, ["clock_steps_back", "clock_steps_back_refused"]), [1, 1]);
}

/// First behind the ids of another database since the start, then behind the mark.
#[test]
fn a_draw_that_finds_the_clock_set_back_twice_counts_once() {
    let Some(server) = Server::drawing().set("on_rollback", "wait").start_frozen(noon() + 10_000) else { return };
    server.connect().draw();
    server.restart_at(noon() + 8000);
    server.load_first();
    server.freeze_clock(noon());
    let waiting = Running::start(server.connect(), "SELECT snowflake_next()");
    server.wait_until_waiting(waiting.pid);
    let mut observer = server.connect();
    server.freeze_clock_and_wake(noon() + 9000, &waiting);
    wait_until_it_has_looked(&mut observer);
    server.freeze_clock_and_wake(noon() + 20_000, &waiting);
    waiting.end().1.unwrap();
    assert_eq!(stat(&mut observer, ["clock_steps_back", "clock_waits", "mark_waits"]), [1, 1, 0]);
}

/// Waits until a session that waits for the clock has read it, which it does after each sleep.
fn wait_until_it_has_looked(observer: &mut Client) {
    let slept = "SELECT clock_wait_time FROM snowflake_stat";
    for _ in 0..2 {
        let before = observer.value(slept);
        wait_until("a sleep to end", || observer.value(slept) != before);
    }
}

/// All ids that can have been drawn before the start count as drawn, up to the end of their tick.
#[test]
fn a_wait_for_the_tick_of_the_start_is_not_taken_for_a_generator_that_is_used_up() {
    let Some(server) = Server::drawing().set("layout", "js53").start_frozen(noon()) else { return };
    server.stop(Shutdown::Fast);
    server.freeze_clock(noon());
    server.start_again();
    let next = "SELECT snowflake_next()";
    assert_wait(&server, "mark_waits", "mark_wait_time", "SnowflakeMark", next, noon() + 1000);
    let mut session = server.connect();
    assert_eq!(stat(&mut session, ["used_up_waits", "drawn"]), [0, 1]);
    assert_eq!(logged(&server, "ahead of the clock"), 0);
}

/// Asserts what a waiting statement has counted during the wait, and after the clock has caught up.
fn assert_wait(server: &Server, waits: &str, wait_time: &str, event: &str, sql: &str, then_ms: i64) {
    let start = Instant::now();
    let mut observer = server.connect();
    let before = stat(&mut observer, [waits, "drawn"]);
    let time_ms = |observer: &mut Client| -> f64 {
        observer.value(&format!("SELECT {wait_time} FROM snowflake_stat")).parse().unwrap()
    };
    let time_before_ms = time_ms(&mut observer);
    let waiting = Running::start(server.connect(), sql);
    server.wait_until_waiting(waiting.pid);
    wait_until("the wait to be counted", || stat(&mut observer, [waits]) == [before[0] + 1]);
    // PostgreSQL shows names for the waits of extensions from version 17 on.
    let event = if postgres_version() < 17 { "Extension" } else { event };
    let shown =
        format!("SELECT wait_event_type || ' ' || wait_event FROM pg_stat_activity WHERE pid = {}", waiting.pid);
    wait_until("the event", || observer.value(&shown) == format!("Extension {event}"));
    let backend = format!("SELECT waits FROM snowflake_stat_backend WHERE pid = {}", waiting.pid);
    assert_eq!(observer.value(&backend), "1");
    server.freeze_clock(then_ms);
    let ids = waiting.end().1.unwrap();
    // One wait, however often the session has read the clock.
    assert_eq!(stat(&mut observer, [waits, "drawn"]), [before[0] + 1, before[1] + ids.len() as i64]);
    // No more than the time that has passed, in the same unit.
    let waited_ms = time_ms(&mut observer) - time_before_ms;
    assert!(waited_ms > 0.0 && waited_ms <= start.elapsed().as_secs_f64() * 1000.0, "{waited_ms} ms");
}

#[test]
fn each_kind_of_wait_is_counted_and_has_a_name() {
    let sparse = Server::drawing().set("layout", SPARSE).set("max_borrow", "0");
    let Some(server) = sparse.start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.draw_batch(16);
    let next = "SELECT snowflake_next()";
    assert_wait(&server, "used_up_waits", "used_up_wait_time", "SnowflakeUsedUp", next, noon() + 1000);
    assert_eq!(stat(&mut session, ["used_up_waits", "clock_waits", "mark_waits", "clock_steps_back"]), [1, 0, 0, 0]);
    session.batch_execute("SELECT snowflake_stat_reset()").unwrap();
    assert_eq!(stat(&mut session, COUNTS), [0; COUNTS.len()]);

    // A layout with few ids, and no borrowing.
    let sparse = Server::drawing().set("max_borrow", "0");
    let sparse = sparse.set("layout", "time:41 worker:10 sequence:2 unit:1ms epoch:2025-01-01T00:00:00Z");
    let Some(server) = sparse.start_frozen(noon()) else { return };
    server.connect().draw_batch(4);
    assert_wait(&server, "used_up_waits", "used_up_wait_time", "SnowflakeUsedUp", next, noon() + 1);

    let Some(server) = Server::drawing().set("on_rollback", "wait").start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.draw();
    // A clock that is behind by less than another max_borrow is not a rollback.
    for (waits, back_ms, rollbacks) in [(1, 150, 0), (2, HOUR_MS, 1)] {
        server.freeze_clock(noon() - back_ms);
        assert_wait(&server, "clock_waits", "clock_wait_time", "SnowflakeClock", next, noon());
        let columns = ["used_up_waits", "clock_waits", "mark_waits", "clock_steps_back", "clock_steps_back_refused"];
        assert_eq!(stat(&mut session, columns), [0, waits, 0, rollbacks, 0]);
    }

    // After a start, a wait for what can have been drawn before it; then a wait for a clock that
    // was set back meanwhile.
    drop(session);
    let kinds = [(0, "mark_waits", "SnowflakeMark"), (HOUR_MS, "clock_waits", "SnowflakeClock")];
    for (back_ms, waits, event) in kinds {
        let now_ms = noon() + HOUR_MS + back_ms;
        server.freeze_clock(now_ms);
        let mut session = server.connect();
        session.draw();
        drop(session);
        server.restart_at(now_ms - back_ms);
        let wait_time = waits.replace("waits", "wait_time");
        assert_wait(&server, waits, &wait_time, event, next, now_ms + 5000);
        let columns = ["used_up_waits", "clock_steps_back", "clock_steps_back_refused"];
        let mut session = server.connect();
        assert_eq!(stat(&mut session, columns), [0, i64::from(back_ms > 0), 0]);
        session.batch_execute("SELECT snowflake_stat_reset()").unwrap();
        assert_eq!(stat(&mut session, COUNTS), [0; COUNTS.len()]);
    }
}

/// The last second of the wait looks like the wait after any start.
#[test]
fn a_wait_for_a_clock_that_was_set_back_is_one_to_its_end() {
    let Some(server) = Server::drawing().set("on_rollback", "wait").start_frozen(noon()) else { return };
    server.connect().draw();
    server.restart_at(noon() - HOUR_MS);
    let waiting = Running::start(server.connect(), "SELECT snowflake_next()");
    server.wait_until_waiting(waiting.pid);
    let mut observer = server.connect();
    server.freeze_clock_and_wake(noon() + 500, &waiting);
    wait_until_it_has_looked(&mut observer);
    server.freeze_clock_and_wake(noon() + 5000, &waiting);
    waiting.end().1.unwrap();
    assert_eq!(stat(&mut observer, ["clock_waits", "mark_waits", "mark_wait_time", "clock_steps_back"]), [1, 0, 0, 1]);
}

#[test]
fn a_wait_that_is_cancelled_was_one() {
    let Some(server) = Server::drawing().set("on_rollback", "wait").start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.draw();
    server.freeze_clock(noon() - HOUR_MS);
    let waiting = Running::start(server.connect(), "SELECT snowflake_next()");
    server.wait_until_waiting(waiting.pid);
    assert_eq!(session.value(&format!("pg_cancel_backend({})", waiting.pid)), "true");
    assert_eq!(refused(waiting.end().1).sqlstate, "57014");
    assert_eq!(
        stat(&mut session, ["clock_waits", "clock_steps_back", "clock_steps_back_refused", "drawn"]),
        [1, 1, 0, 1]
    );
    assert_eq!(session.value("SELECT clock_wait_time > 0 FROM snowflake_stat"), "true");
    // The next session in that slot has not waited.
    let backends = "SELECT string_agg(waits::text, ' ' ORDER BY waits) FROM snowflake_stat_backend";
    wait_until("the end of the session", || session.value(backends) == "0");
    server.freeze_clock(noon());
    let mut next = server.connect();
    next.draw();
    assert_eq!(session.value(backends), "0 0");
}

#[test]
fn a_clock_set_back_is_counted_and_logged_once_a_minute() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.draw();
    server.freeze_clock(noon() - HOUR_MS);
    assert_counted(&server, 20, "58000", "clock_steps_back_refused", "clock is 3600000 ms behind the last id");
    // The log says when it will be over, and what to do until then.
    let again = Utc(noon() - 100);
    let detail = format!("(\"snowflake_id.max_borrow\"). The server draws ids again once its clock reaches {again}.\n");
    let log = server.log();
    let (_, said) = log.split_once("LOG:  snowflake_id: draws are refused").unwrap();
    let said: Vec<_> = said.lines().take(3).collect();
    assert!(said[1].contains("DETAIL:") && said[1].ends_with(detail.trim_end()), "{said:?}");
    assert!(said[2].contains("HINT:") && said[2].contains("snowflake_reset_mark()"), "{said:?}");
    assert_eq!(stat(&mut session, ["clock_steps_back", "clock_waits", "drawn"]), [20, 0, 1]);
    // A step back within what may be borrowed is not counted.
    server.freeze_clock(noon() - 100);
    session.draw();
    assert_eq!(stat(&mut session, ["clock_steps_back", "borrowed"]), [20, 1]);

    // Each kind of line has its own minute.
    server.freeze_clock(noon());
    let waiting = Running::start(server.connect(), "SELECT count(*) FROM snowflake_batch(420000)");
    server.wait_until_waiting(waiting.pid);
    assert_eq!(session.value(&format!("pg_cancel_backend({})", waiting.pid)), "true");
    assert_eq!(refused(waiting.end().1).sqlstate, "57014");
    assert_eq!(logged(&server, "ahead of the clock are drawn; draws wait"), 1);

    // A draw that waits is not refused.
    server.set_config("snowflake_id.on_rollback", "wait");
    server.reload();
    server.freeze_clock(noon() - HOUR_MS);
    for waits in 1..=2 {
        let waiting = Running::start(server.connect(), "SELECT snowflake_next()");
        server.wait_until_waiting(waiting.pid);
        assert_eq!(session.value(&format!("pg_cancel_backend({})", waiting.pid)), "true");
        assert_eq!(refused(waiting.end().1).sqlstate, "57014");
        let counted = stat(&mut session, ["clock_steps_back", "clock_steps_back_refused", "clock_waits"]);
        assert_eq!(counted, [20 + waits, 20, waits]);
    }
    assert_eq!(logged(&server, "LOG:  snowflake_id: draws wait until "), 1);
    assert_eq!(logged(&server, "LOG:  snowflake_id: draws are refused: "), 1);
}

/// At the first draw after a start, and in a running server.
#[test]
fn a_clock_behind_the_mark_is_counted_with_each_draw_that_it_refuses() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    server.connect().draw();
    server.restart_at(noon() - HOUR_MS);
    let behind = "clock is 3601000 ms behind the last id that may have been drawn";
    assert_counted(&server, 4, "58000", "mark_refused", behind);
    let mut session = server.connect();
    assert_eq!(stat(&mut session, ["clock_steps_back", "clock_steps_back_refused", "drawn"]), [4, 0, 0]);
    server.freeze_clock(noon() + HOUR_MS);
    let id = session.draw();
    session.batch_execute(&format!("SELECT snowflake_advance({})", id + (HOUR_MS << 22))).unwrap();
    assert_eq!(refused(session.try_draw()).sqlstate, "58000");
    assert_eq!(stat(&mut session, ["clock_steps_back", "clock_steps_back_refused", "mark_refused"]), [5, 0, 5]);
}

#[test]
fn a_clock_that_jumps_ahead_is_counted_with_each_draw_that_it_refuses() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    server.connect().draw();
    server.freeze_clock(noon() + 48 * HOUR_MS);
    assert_counted(&server, 4, "58000", "clock_jumps_refused", "clock jumped ahead by ");
    assert_eq!(stat(&mut server.connect(), ["clock_steps_back", "ahead_ms"]), [0, 0]);
    server.freeze_clock(noon());
    server.connect().draw();
}

/// One reason after the other, on one server.
#[test]
fn each_reason_is_counted_with_each_draw_that_it_refuses() {
    let server = Server::builder().start_with_extension();
    let numbers = ["worker_id", "backup_worker_id", "datacenter_id", "drawn"];
    assert_eq!(stat(&mut server.connect(), numbers), [-1, -1, -1, 0]);
    assert_counted(&server, 4, "55000", "number_refused", "parameter \"snowflake_id.worker_id\" is not set");
    // A draw inside a conversion.
    let mut session = server.connect();
    session.batch_execute("CREATE TABLE t (id bigserial PRIMARY KEY)").unwrap();
    assert_eq!(refused(session.batch_execute("SELECT snowflake_convert('t', 'id')")).sqlstate, "55000");
    assert_eq!(stat(&mut session, ["number_refused"]), [5]);
    drop(session);

    let set_layout = |layout: &str| {
        server.set_config("snowflake_id.layout", layout);
        server.restart();
    };
    server.set_config("snowflake_id.worker_id", "5");
    set_layout("baidu");
    assert_counted(&server, 4, "2200H", "time_used_up_refused", "the time of layout \"baidu\" has run out");

    set_layout("snowflake");
    server.connect().draw();
    set_layout("js53");
    let line = "layout \"js53\" is not the one that this database's ids were drawn with";
    assert_counted(&server, 4, "55000", "layout_refused", line);
}

/// The first ids are drawn, and the rest are refused.
#[test]
fn a_batch_that_is_refused_in_its_midst_counts_once() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT snowflake_batch(1000)").unwrap();
    assert_eq!(session.ids("FETCH 10 FROM c").unwrap().len(), 10);
    server.freeze_clock(noon() - HOUR_MS);
    assert_eq!(refused(session.ids("FETCH ALL FROM c")).sqlstate, "58000");
    session.batch_execute("ROLLBACK").unwrap();
    assert_eq!(stat(&mut session, ["drawn", "clock_steps_back", "clock_steps_back_refused"]), [256, 1, 1]);
    assert_eq!(logged(&server, "LOG:  snowflake_id: draws are refused: "), 1);
}

#[test]
fn what_only_the_caller_can_mend_is_no_refusal() {
    let primary = Server::drawing().start_with_extension();
    let mut session = primary.connect();
    assert_eq!(refused(session.ids("SELECT snowflake_batch(-1)")).sqlstate, "22023");
    assert_eq!(refused(session.batch_execute("BEGIN READ ONLY; SELECT snowflake_next()")).sqlstate, "25006");
    session.batch_execute("ROLLBACK").unwrap();
    assert_eq!(stat(&mut session, REFUSALS), [0; REFUSALS.len()]);
    let standby = primary.standby().start();
    let mut session = standby.connect();
    assert_eq!(refused(session.try_draw()).sqlstate, "25006");
    assert_eq!(stat(&mut session, REFUSALS), [0; REFUSALS.len()]);
    assert_eq!(logged(&primary, "draws are refused") + logged(&standby, "draws are refused"), 0);
}

/// Each refusal by itself. A real server often has two reasons for an alarm at once.
#[test]
fn the_documented_alarm_sees_each_refusal() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    let columns = "SELECT string_agg(attname, ' ') FROM pg_attribute
                   WHERE attrelid = 'snowflake_stat'::regclass AND attname ~ 'refused$|^clock_steps_back$'";
    let columns = session.value(columns);
    let columns: Vec<_> = columns.split(' ').collect();
    assert_eq!(columns.len(), 1 + REFUSALS.len(), "{columns:?}");
    // From now on the alarm reads this table.
    session.batch_execute("CREATE TEMP TABLE snowflake_stat AS SELECT * FROM snowflake_stat").unwrap();
    let alarm = block("alarm");
    let mut alarms = |changes: &str| {
        session.batch_execute(&format!("BEGIN; UPDATE snowflake_stat SET {changes}")).unwrap();
        let rows = session.query(alarm, &[]).unwrap().len();
        session.batch_execute("ROLLBACK").unwrap();
        rows
    };
    assert_eq!(alarms("drawn = 1000, used_up_waits = 1, mark_waits = 1"), 0);
    for column in columns {
        assert_eq!(alarms(&format!("{column} = 1")), 1, "{column}");
    }
    assert_eq!((alarms("ahead_ms = 1001"), alarms("last_instant = now() + interval '364 days'")), (1, 1));
}

#[test]
fn used_up_ticks_are_logged_once_a_minute() {
    let layout = "time:41 worker:10 sequence:2 unit:1ms epoch:2025-01-01T00:00:00Z";
    let server = Server::drawing().set("layout", layout).time_limit().start_with_extension();
    let ids = at_once(&server, 4, |_, mut session| session.draw_batch(500));
    ids.iter().for_each(|ids| assert_ascending(ids));
    let mut session = server.connect();
    let [waits, drawn] = stat(&mut session, ["used_up_waits", "drawn"]);
    assert!(waits > 1 && drawn == 2000, "{waits} waits");
    let line = "LOG:  snowflake_id: all ids up to 100 ms ahead of the clock are drawn; draws wait\n";
    assert_eq!((logged(&server, line), logged(&server, "ahead of the clock")), (1, 1));
}

#[test]
fn the_last_year_of_a_layout_is_logged_once_a_day_and_at_the_start() {
    let end = instant("2094-09-07T15:47:35.551Z");
    let Some(server) = Server::drawing().set("max_clock_jump", "0").start_frozen(end - 366 * 24 * HOUR_MS) else {
        return;
    };
    let line = "has no ids after 2094-09-07T15:47:35.551Z, which is less than a year from now";
    let mut session = server.connect();
    session.draw();
    assert_eq!(logged(&server, line), 0);
    for hours in 0..5 {
        server.freeze_clock(end - (364 * 24 - hours) * HOUR_MS);
        session.draw();
    }
    assert_eq!(logged(&server, line), 1);
    assert_eq!(logged(&server, &format!("LOG:  snowflake_id: layout \"snowflake\" {line}\n")), 1);
    assert_eq!(session.value("SELECT last_instant FROM snowflake_stat"), "2094-09-07 15:47:35.551+00");
    drop(session);
    server.restart_at(end - 300 * 24 * HOUR_MS);
    assert_eq!(logged(&server, &format!("WARNING:  layout \"snowflake\" {line}\n")), 1);
}

#[test]
fn marks_are_counted_where_they_move() {
    let start = Instant::now();
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.draw();
    assert_eq!(stat(&mut session, ["marks_moved"]), [1]);
    session.draw_batch(1000);
    assert_eq!(stat(&mut session, ["marks_moved"]), [1]);
    for moved in 2..5 {
        server.freeze_clock(noon() + moved * 10_000);
        session.draw();
        session.draw();
        assert_eq!(stat(&mut session, ["marks_moved"]), [moved]);
    }
    let time_ms: f64 = session.value("SELECT mark_move_time FROM snowflake_stat").parse().unwrap();
    assert!(time_ms > 0.0 && time_ms <= start.elapsed().as_secs_f64() * 1000.0, "{time_ms} ms");
    // By a session that has drawn nothing: the marks of both lanes.
    let advanced = format!("SELECT snowflake_advance({})", session.draw() + (60_000 << 22));
    server.connect().batch_execute(&advanced).unwrap();
    assert_eq!(stat(&mut session, ["marks_moved"]), [6]);
}

#[test]
fn a_reset_sets_the_counts_to_zero_and_nothing_else() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    let last = session.draw_batch(1000)[999];
    let pid = session.pid();
    let mut other = server.connect();
    other.draw_batch(20);
    let before = session.value("SELECT stats_reset FROM snowflake_stat");
    let last_of_all: i64 = session.value("SELECT last_id FROM snowflake_stat").parse().unwrap();
    other.batch_execute("SELECT snowflake_stat_reset()").unwrap();
    let columns = ["drawn", "borrowed", "marks_moved", "mark_move_time", "used_up_wait_time", "last_id"];
    assert_eq!(stat(&mut session, columns), [0, 0, 0, 0, 0, last_of_all]);
    assert_eq!(session.value(&format!("SELECT stats_reset > '{before}' FROM snowflake_stat")), "true");
    let backend = format!("SELECT drawn FROM snowflake_stat_backend WHERE pid = {pid}");
    assert_eq!(other.value(&backend), "1000");
    assert_eq!(session.value("snowflake_last()"), last.to_string());
    session.draw_batch(5);
    other.draw_batch(6);
    assert_eq!(drawn(&mut session), 11);
    // While others draw, a reset clears only the counts before it, and nothing is counted twice.
    let ids = at_once(&server, 8, |number, mut session| {
        let ids = session.draw_batch(20_000);
        if number % 4 == 0 {
            session.batch_execute("SELECT snowflake_stat_reset()").unwrap();
        }
        ids
    });
    let total = ids.iter().map(Vec::len).sum::<usize>() as i64;
    let left = drawn(&mut session);
    assert!((0..=total).contains(&left), "{left} of {total}");
    session.batch_execute("SELECT snowflake_stat_reset()").unwrap();
    at_once(&server, 4, |_, mut session| session.draw_batch(1000));
    assert_eq!(drawn(&mut session), 4000);
}

#[test]
fn only_who_monitors_may_read_and_only_who_is_permitted_may_reset() {
    let server = Server::drawing().start_with_extension();
    let mut superuser = server.connect();
    superuser.draw();
    superuser.batch_execute("CREATE ROLE app LOGIN; CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher").unwrap();
    let reads = [
        "SELECT drawn FROM snowflake_stat",
        "SELECT drawn FROM snowflake_stat()",
        "SELECT drawn FROM snowflake_stat_backend",
        "SELECT drawn FROM snowflake_stat_backend()",
    ];
    let reset = "SELECT 1::bigint FROM snowflake_stat_reset()";
    let mut app = server.connect_as("app");
    for sql in reads.into_iter().chain([reset]) {
        assert_eq!(refused(app.ids(sql)).sqlstate, "42501", "{sql}");
    }
    let mut watcher = server.connect_as("watcher");
    for sql in reads {
        assert_eq!(watcher.ids(sql).unwrap(), [1], "{sql}");
    }
    assert_eq!(refused(watcher.ids(reset)).sqlstate, "42501");
    superuser.batch_execute("GRANT EXECUTE ON FUNCTION snowflake_stat_reset() TO watcher").unwrap();
    watcher.ids(reset).unwrap();
    assert_eq!(drawn(&mut watcher), 0);
}

#[test]
fn a_standby_and_a_read_only_transaction_show_figures_too() {
    let primary = Server::drawing().start_with_extension();
    let mut session = primary.connect();
    session.draw_batch(10);
    session.batch_execute("SET default_transaction_read_only = on").unwrap();
    assert_eq!(drawn(&mut session), 10);

    let standby = primary.standby().start();
    let mut session = standby.connect();
    assert_eq!(stat(&mut session, ["drawn", "last_id", "worker_id"]), [0, -1, i64::from(WORKER)]);
    assert_eq!(session.value("SELECT layout FROM snowflake_stat"), "snowflake");
    assert_eq!(session.value("SELECT count(*) FROM snowflake_stat_backend"), "0");
    session.batch_execute("SELECT snowflake_stat_reset()").unwrap();
    standby.promote();
    session.draw_batch(3);
    assert_eq!(stat(&mut session, ["drawn", "mark_waits"])[0], 3);
}

#[test]
fn without_preload_there_is_nothing_to_show() {
    let server = Server::builder().without_preload().start_with_extension();
    let mut session = server.connect();
    for sql in ["SELECT * FROM snowflake_stat", "SELECT * FROM snowflake_stat_backend", "SELECT snowflake_stat_reset()"]
    {
        let refusal = refused(session.query(sql, &[]));
        let expected = ("55000", "snowflake_id must be loaded via \"shared_preload_libraries\"");
        assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), expected, "{sql}");
    }
}
