//! A session that waits for the clock: what ends the wait. It costs other sessions nothing
//! meanwhile.
//!
//! There are three kinds of wait, and each test goes through all of them. With a frozen clock a
//! wait does not end by itself.

use std::fs;
use std::path::Path;
use std::thread;

use cluster::drawing::{at_once, noon, wait_until_gone};
use cluster::{
    Builder, Draw, Known, Running, Server, Shutdown, assert_ascending, assert_unique, faketime_library, refused, skip,
    wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postgres::Client;

/// Sixteen ids a second.
const SPARSE: &str = "time:32 worker:5 sequence:4 unit:1s epoch:2019-01-01T00:00:00Z";

/// A reason to wait, and how to bring it about with a frozen clock.
#[derive(Clone, Copy, Debug)]
enum Reason {
    /// All ids of the tick are drawn.
    UsedUp,
    /// The clock is behind by no more than another `max_borrow`.
    Behind,
    /// The clock is behind by more, and the policy is to wait.
    Rollback,
}

const REASONS: [Reason; 3] = [Reason::UsedUp, Reason::Behind, Reason::Rollback];

impl Reason {
    /// Starts a server on which every draw waits, and returns it with the last id that was drawn
    /// before.
    fn start(self) -> Option<(Server, i64)> {
        let settings = match self {
            Self::UsedUp => Server::drawing().set("layout", SPARSE).set("max_borrow", "0"),
            Self::Behind => Server::drawing(),
            Self::Rollback => Server::drawing().set("on_rollback", "wait"),
        };
        let server = settings.config("log_line_prefix", "%e %p ").start_frozen(noon())?;
        let mut session = server.connect();
        session.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_next())").unwrap();
        let before = *session.draw_batch(16).last().unwrap();
        server.freeze_clock(match self {
            Self::UsedUp => noon(),
            Self::Behind => noon() - 150,
            Self::Rollback => noon() - 3_600_000,
        });
        Some((server, before))
    }
}

/// Ends every wait.
fn clock_comes_forward(server: &Server) {
    server.freeze_clock(noon() + 1000);
}

/// Starts a statement, and returns when it waits.
fn wait_for_the_clock(server: &Server, sql: &str) -> Running {
    let waiting = Running::start(server.connect(), sql);
    server.wait_until_waiting(waiting.pid);
    waiting
}

#[test]
fn a_wait_can_be_cancelled() {
    for reason in REASONS {
        let Some((server, before)) = reason.start() else { return };
        for sql in ["SELECT snowflake_next()", "INSERT INTO t DEFAULT VALUES RETURNING id", "SELECT snowflake_batch(3)"]
        {
            let waiting = wait_for_the_clock(&server, sql);
            assert_eq!(server.connect().value(&format!("pg_cancel_backend({})", waiting.pid)), "true");
            let (mut session, result) = waiting.end();
            let refusal = refused(result);
            let expected = ("57014", "canceling statement due to user request");
            assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), expected, "{reason:?}: {sql}");
            // The session goes on, and has drawn nothing.
            assert_eq!(refused(session.ids("SELECT snowflake_last()")).sqlstate, "55000", "{reason:?}: {sql}");
        }
        clock_comes_forward(&server);
        assert!(server.connect().draw() > before, "{reason:?}");
    }
}

/// From the log, because the client may see no more than the end of the connection.
fn assert_terminated(server: &Server, pid: i32) {
    let line = format!("57P01 {pid} FATAL:  terminating connection due to administrator command\n");
    assert!(server.log().contains(&line));
}

#[test]
fn a_waiting_session_can_be_terminated() {
    for reason in REASONS {
        let Some((server, before)) = reason.start() else { return };
        let waiting = wait_for_the_clock(&server, "SELECT snowflake_next()");
        let pid = waiting.pid;
        let mut other = server.connect();
        assert_eq!(other.value(&format!("pg_terminate_backend({pid})")), "true");
        assert!(waiting.end().1.is_err());
        assert_terminated(&server, pid);
        wait_until_gone(&mut other, pid);
        clock_comes_forward(&server);
        assert!(other.draw() > before, "{reason:?}");
    }
}

/// The clock runs, because PostgreSQL's timeouts follow it. So each wait here would end at some
/// time.
#[test]
fn statement_timeout_ends_a_wait() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    for reason in REASONS {
        let settings = match reason {
            Reason::UsedUp => Server::drawing().set("layout", SPARSE).set("max_borrow", "0"),
            Reason::Behind => Server::drawing().set("max_borrow", "1h"),
            Reason::Rollback => Server::drawing().set("on_rollback", "wait"),
        };
        let server = settings.faketime().start_with_extension();
        let mut session = server.connect();
        session.draw();
        server.set_clock_offset(match reason {
            Reason::UsedUp => 0.0,
            Reason::Behind => -2700.0,
            Reason::Rollback => -7200.0,
        });
        // A thousand ids take a minute. After its start the server draws an hour ahead, so the wait
        // would be 45 minutes.
        for sql in ["SELECT snowflake_batch(1000)", "SELECT snowflake_next() FROM generate_series(1, 1000)"] {
            session.batch_execute("SET statement_timeout = '300ms'").unwrap();
            let result;
            (session, result) = Running::start(session, sql).end();
            let refusal = refused(result);
            let expected = ("57014", "canceling statement due to statement timeout");
            assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), expected, "{reason:?}: {sql}");
            session.batch_execute("SET statement_timeout = 0").unwrap();
        }
        server.set_clock_offset(10.0);
        session.draw();
    }
}

#[test]
fn a_fast_shutdown_ends_a_wait() {
    for reason in REASONS {
        let Some((server, before)) = reason.start() else { return };
        let waiting = wait_for_the_clock(&server, "SELECT snowflake_next()");
        let pid = waiting.pid;
        server.stop(Shutdown::Fast);
        assert!(waiting.end().1.is_err());
        assert_terminated(&server, pid);
        server.start_again_at(noon() + 3000);
        assert!(server.connect().draw() > before, "{reason:?}");
    }
}

#[test]
fn a_smart_shutdown_lets_a_wait_end() {
    for reason in REASONS {
        let Some((server, before)) = reason.start() else { return };
        let waiting = wait_for_the_clock(&server, "SELECT snowflake_next()");
        let log_start = server.log_length();
        thread::scope(|scope| {
            scope.spawn(|| server.stop(Shutdown::Smart));
            wait_until("the shutdown to begin", || {
                server.log_since(log_start).contains("received smart shutdown request")
            });
            assert!(!waiting.is_over());
            clock_comes_forward(&server);
            // The session is closed when this is dropped, and the server ends.
            assert!(waiting.end().1.unwrap()[0] > before, "{reason:?}");
        });
        assert!(server.log_since(log_start).contains("database system is shut down"));
    }
}

#[test]
fn a_waiting_session_does_not_outlive_the_postmaster() {
    let Some((server, _)) = Reason::Rollback.start() else { return };
    let waiting = wait_for_the_clock(&server, "SELECT snowflake_next()");
    let process = format!("/proc/{}", waiting.pid);
    kill(Pid::from_raw(server.postmaster_pid()), Signal::SIGKILL).unwrap();
    wait_until("the end of the backend", || !Path::new(&process).exists());
    assert!(waiting.end().1.is_err());
}

/// What a backend holds or waits for, one line each.
fn locks(observer: &mut Client, pid: i32) -> Vec<String> {
    let sql =
        "SELECT concat_ws(' ', locktype, relation::regclass::text, mode, CASE WHEN NOT granted THEN 'not granted' END)
               FROM pg_locks WHERE pid = $1 ORDER BY 1";
    observer.query(sql, &[&pid]).unwrap().iter().map(|row| row.get(0)).collect()
}

#[test]
fn a_waiting_session_holds_no_lock_but_those_of_its_statement() {
    for reason in REASONS {
        let Some((server, before)) = reason.start() else { return };
        let mut observer = server.connect();
        let alone = wait_for_the_clock(&server, "SELECT snowflake_next()");
        assert_eq!(locks(&mut observer, alone.pid), ["virtualxid ExclusiveLock"], "{reason:?}");
        let insert = wait_for_the_clock(&server, "INSERT INTO t DEFAULT VALUES RETURNING id");
        let expected = ["relation t RowExclusiveLock", "virtualxid ExclusiveLock"];
        assert_eq!(locks(&mut observer, insert.pid), expected, "{reason:?}");
        let event =
            format!("SELECT wait_event_type || ' ' || wait_event FROM pg_stat_activity WHERE pid = {}", insert.pid);
        assert!(observer.value(&event).starts_with("Extension "));

        // Other sessions can do everything that the statements' own locks allow.
        observer
            .batch_execute(
                "SET lock_timeout = '10s';
                 CREATE TABLE u (id bigint PRIMARY KEY DEFAULT snowflake_next()); DROP TABLE u;
                 INSERT INTO t VALUES (1);
                 CREATE FUNCTION f() RETURNS bigint LANGUAGE sql AS 'SELECT snowflake_next()'; DROP FUNCTION f();",
            )
            .unwrap();
        observer.batch_execute("CHECKPOINT").unwrap();
        assert_eq!(observer.value("SELECT count(*) FROM pg_locks WHERE NOT granted"), "0", "{reason:?}");
        assert!(!alone.is_over() && !insert.is_over());

        clock_comes_forward(&server);
        let ids = [observer.draw(), alone.end().1.unwrap()[0], insert.end().1.unwrap()[0]];
        assert_eq!(assert_unique(&ids), 3);
        assert!(ids.iter().all(|id| *id > before), "{reason:?}");
    }
}

/// A process's state, and its processor time in ticks of the kernel (proc(5): `state`, `utime` and
/// `stime`).
fn process(pid: i32) -> (char, u64) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat[stat.rfind(')').unwrap() + 1..].split_ascii_whitespace().collect();
    let number = |field: usize| fields[field].parse::<u64>().unwrap();
    (fields[0].chars().next().unwrap(), number(11) + number(12))
}

/// The session is compared with another backend, which is kept busy. A session that read the clock
/// in a loop would use about as much processor time, whatever the machine and its load. One that
/// wakes once a second uses next to nothing.
#[test]
fn a_waiting_session_sleeps() {
    for reason in REASONS {
        let Some((server, _)) = reason.start() else { return };
        let waiting = wait_for_the_clock(&server, "SELECT snowflake_next()");
        let mut busy = server.connect();
        let busy_pid = busy.pid();
        let used = |pid: i32| process(pid).1;
        let (busy_start, waiting_start) = (used(busy_pid), used(waiting.pid));
        let (mut looks, mut asleep) = (0, 0);
        while used(busy_pid) < busy_start + 50 {
            busy.value("SELECT count(*) FROM generate_series(1, 10000)");
            looks += 1;
            asleep += usize::from(process(waiting.pid).0 == 'S');
        }
        let used = used(waiting.pid) - waiting_start;
        assert!(used <= 5, "{reason:?}: {used} ticks of processor time while a busy backend used 50");
        assert!(asleep * 10 >= looks * 9, "{reason:?}: asleep at {asleep} of {looks} looks");
        clock_comes_forward(&server);
        assert!(waiting.end().1.is_ok());
    }
}

/// Sessions that together draw `count` ids in each way, faster than the layout allows, with the
/// real clock.
fn saturate(builder: Builder, count: i32, max_borrow: &str) {
    const SESSIONS: i32 = 4;
    let server = builder.set("max_borrow", max_borrow).time_limit().start_with_extension();
    let known = Known::default();
    let each = count / SESSIONS;
    let all = at_once(&server, 4, |_, mut session| {
        let mut ids = Vec::new();
        for number in [each / 2, each - each / 2] {
            // The clock is read after the draw, so no id may be further ahead of it than may be
            // borrowed.
            let sql = format!(
                "SELECT id, snowflake_timestamp(id) <= clock_timestamp() + interval '{max_borrow} ms'
                 FROM (SELECT snowflake_next() AS id FROM generate_series(1, {number}) OFFSET 0) s"
            );
            ids.extend(known.draw(|| {
                let rows = session.query(&sql, &[]).unwrap();
                assert!(rows.iter().all(|row| row.get(1)), "an id is too far ahead of the clock");
                rows.iter().map(|row| row.get(0)).collect()
            }));
            ids.extend(known.draw(|| session.draw_batch(number)));
        }
        assert_ascending(&ids);
        ids
    });
    assert_eq!(assert_unique(all.iter().flatten()), usize::try_from(2 * SESSIONS * each).unwrap());
}

#[test]
fn a_saturated_generator_of_milliseconds_goes_on() {
    let layout = "time:41 worker:10 sequence:2 unit:1ms epoch:2025-01-01T00:00:00Z";
    for max_borrow in ["0", "3", "100"] {
        saturate(Server::drawing().set("layout", layout), 2000, max_borrow);
    }
}

#[test]
fn a_saturated_generator_of_long_ticks_goes_on() {
    let layout = "time:39 sequence:1 worker:16 unit:10ms epoch:2014-09-01T00:00:00Z";
    saturate(Server::drawing().set("layout", layout), 200, "25");
    let layout = "time:37 sequence:3 worker:16 unit:100ms epoch:2014-09-01T00:00:00Z";
    saturate(Server::drawing().set("layout", layout), 80, "0");
}

#[test]
fn a_saturated_generator_of_seconds_goes_on() {
    saturate(Server::drawing().set("layout", SPARSE), 40, "0");
}

#[test]
fn saturated_backup_workers_go_on() {
    let layout = "time:41 worker:10 sequence:2 unit:1ms epoch:2025-01-01T00:00:00Z";
    let server = Server::drawing().set("layout", layout).set("backup_worker", "on").time_limit().start_with_extension();
    let all = at_once(&server, 4, |_, mut session| {
        let mut ids = session.ids("SELECT snowflake_next() FROM generate_series(1, 1000)").unwrap();
        ids.extend(session.draw_batch(1000));
        ids
    });
    assert_eq!(assert_unique(all.iter().flatten()), 8000);
}
