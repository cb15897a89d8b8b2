//! A draw can be ended while it moves the mark or waits for it. It must leave nothing behind that
//! affects other sessions.
//!
//! A session moves the mark under a lock on its sequence that conflicts with itself.
//! `COMMENT ON SEQUENCE` takes the same lock and keeps it to the end of its transaction, so a test
//! can hold up a moving session as long as necessary. Tests of PostgreSQL's own timeouts let the
//! clock run, behind the real one: signal handlers see the real clock, and would take the timeout
//! for one that is still to come.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::thread;

use cluster::drawing::noon;
use cluster::marks::end_ms;
use cluster::{
    Draw, Ends, Marks, Running, Server, Shutdown, assert_ascending, assert_unique, faketime_library, refused, skip,
    wait_until,
};
use postgres::Client;
use snowflake_core::draw::generator::first_sequence;
use snowflake_core::id::layout::Layout;

/// A session that holds the lock under which the mark is moved.
fn hold(server: &Server) -> Client {
    let mut holder = server.connect();
    holder.batch_execute("BEGIN; COMMENT ON SEQUENCE snowflake_mark IS 'held'").unwrap();
    holder
}

/// Starts a statement that must move the mark, and returns when it waits for the lock.
#[track_caller]
fn wait_to_move(server: &Server, session: Client, sql: &str) -> Running {
    let running = Running::start(session, sql);
    server.wait_until_locked(running.pid);
    running
}

/// A server whose next draws must move the mark.
fn start_beyond_the_mark() -> Option<(Server, i64)> {
    let server = Server::drawing().config("log_line_prefix", "%e %p ").start_frozen(noon())?;
    let before = server.connect().draw();
    server.freeze_clock(noon() + 5000);
    Some((server, before))
}

/// Asserts that existing and new sessions draw, now and beyond the present mark.
#[track_caller]
fn assert_all_draw(server: &Server, now_ms: i64, sessions: &mut [Client], before: &[i64]) {
    let mut ids = Vec::new();
    for later_ms in [0, 700, 5000] {
        server.freeze_clock(now_ms + later_ms);
        for session in sessions.iter_mut().chain([&mut server.connect()]) {
            let running = Running::start(server.connect(), "SELECT * FROM snowflake_batch(2)");
            ids.extend(running.end().1.unwrap());
            ids.push(session.draw());
            assert!(session.mark_ms().unwrap() >= end_ms("snowflake", *ids.last().unwrap()));
        }
    }
    assert_ascending(&ids);
    assert_unique(before.iter().chain(&ids));
    assert!(before.iter().all(|id| *id < ids[0]));
}

#[test]
fn while_one_session_moves_the_mark_others_wait_only_beyond_it() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut sessions = [server.connect(), server.connect()];
    let mut ids = vec![sessions[0].draw()];
    let mark = sessions[0].mark_ms().unwrap();
    let mut holder = hold(&server);
    // More than half of the mark is used up, and no session can move it. Draws do not wait up to
    // its last millisecond.
    for before_ms in [400, 300, 2, 1] {
        server.freeze_clock(mark - before_ms);
        sessions = sessions.map(|session| {
            let sql = "SELECT snowflake_next() UNION ALL SELECT snowflake_batch(10)";
            let (session, drawn) = Running::start(session, sql).end();
            ids.extend(drawn.unwrap());
            session
        });
    }
    assert_eq!(end_ms("snowflake", *ids.last().unwrap()), mark);
    assert_eq!(sessions[0].mark_ms(), Some(mark));
    // Borrowing from beyond the mark is not allowed either.
    server.freeze_clock(mark);
    let waiting = sessions.map(|session| wait_to_move(&server, session, "SELECT snowflake_next()"));
    assert!(waiting.iter().all(|waiting| !waiting.is_over()));
    holder.batch_execute("COMMIT").unwrap();
    let (mut sessions, last): (Vec<_>, Vec<_>) =
        waiting.map(Running::end).into_iter().map(|(session, ids)| (session, ids.unwrap()[0])).unzip();
    assert_ascending(&ids);
    assert!(last.iter().all(|id| id > ids.last().unwrap()));
    ids.extend(last);
    assert_all_draw(&server, mark, &mut sessions, &ids);
}

#[test]
fn whoever_waits_for_the_mark_can_be_cancelled_or_terminated() {
    let Some((server, before)) = start_beyond_the_mark() else { return };
    let mut owner = server.connect();
    owner.batch_execute("CREATE ROLE ordinary LOGIN; CREATE TABLE t (id bigint DEFAULT snowflake_next())").unwrap();
    owner.batch_execute("GRANT ALL ON t TO ordinary").unwrap();
    let mut holder = hold(&server);
    let mut waiting = Vec::new();
    for sql in
        ["SELECT snowflake_next()", "SELECT * FROM snowflake_batch(300)", "INSERT INTO t VALUES (DEFAULT) RETURNING id"]
    {
        for _ in 0..3 {
            waiting.push(wait_to_move(&server, server.connect_as("ordinary"), sql));
        }
    }
    let mut ids = vec![before];
    let (mut kept, mut sessions) = (Vec::new(), Vec::new());
    for (number, running) in waiting.into_iter().enumerate() {
        let pid = running.pid;
        match number % 3 {
            0 => {
                assert_eq!(owner.value(&format!("pg_cancel_backend({pid})")), "true");
                let (mut session, result) = running.end();
                assert_eq!(refused(result).sqlstate, "57014");
                // The session is itself again, although the mark moves with more rights than the
                // session has.
                assert_eq!(session.value("current_user"), "ordinary");
                let set = "SELECT setval('snowflake_mark', 1)";
                assert_eq!(refused(session.batch_execute(set)).sqlstate, "42501");
                sessions.push(session);
            }
            1 => {
                assert_eq!(owner.value(&format!("pg_terminate_backend({pid})")), "true");
                assert!(running.end().1.is_err());
                let line = format!("57P01 {pid} FATAL:  terminating connection due to administrator command\n");
                assert!(server.log().contains(&line));
            }
            _ => kept.push(running),
        }
    }
    assert!(kept.iter().all(|running| !running.is_over()));
    // Cancelled sessions come back and wait again.
    kept.extend(sessions.drain(..).map(|session| wait_to_move(&server, session, "SELECT snowflake_next()")));
    holder.batch_execute("ROLLBACK").unwrap();
    for running in kept {
        let (session, result) = running.end();
        ids.extend(result.unwrap());
        sessions.push(session);
    }
    assert_unique(&ids);
    ids.sort_unstable();
    assert_all_draw(&server, noon() + 5000, &mut sessions, &ids);
}

#[test]
fn the_end_of_a_session_that_holds_the_lock_lets_the_others_go_on() {
    let Some((server, before)) = start_beyond_the_mark() else { return };
    let mut holder = hold(&server);
    let pid = holder.pid();
    let waiting = wait_to_move(&server, server.connect(), "SELECT snowflake_next()");
    assert_eq!(server.connect().value(&format!("pg_terminate_backend({pid})")), "true");
    let (session, ids) = waiting.end();
    assert_all_draw(&server, noon() + 5000, &mut [session], &[vec![before], ids.unwrap()].concat());
}

#[test]
fn timeouts_end_the_wait_for_the_mark() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let server = Server::drawing().faketime_from("-600").start_with_extension();
    let mut ids = vec![server.connect().draw()];
    for (number, (timeout, sqlstate)) in
        [("statement_timeout", "57014"), ("lock_timeout", "55P03")].into_iter().enumerate()
    {
        let mut holder = hold(&server);
        server.set_clock_offset(60.0 * (number + 1) as f64 - 600.0);
        let patient = wait_to_move(&server, server.connect(), "SELECT snowflake_next()");
        let mut session = server.connect();
        session.batch_execute(&format!("SET {timeout} = '200ms'")).unwrap();
        for sql in ["SELECT snowflake_next()", "SELECT * FROM snowflake_batch(300)"] {
            let result;
            (session, result) = Running::start(session, sql).end();
            assert_eq!(refused(result).sqlstate, sqlstate, "{timeout}: {sql}");
        }
        assert!(!patient.is_over());
        holder.batch_execute("COMMIT").unwrap();
        ids.extend(patient.end().1.unwrap());
        for session in [&mut session, &mut server.connect()] {
            ids.push(session.draw());
        }
    }
    assert_ascending(&ids);
}

#[test]
fn a_deadlock_over_the_mark_is_detected() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let server = Server::drawing().faketime_from("-600").config("deadlock_timeout", "200ms").start_with_extension();
    let mut owner = server.connect();
    owner.batch_execute("CREATE TABLE t ()").unwrap();
    let before = owner.draw();
    server.set_clock_offset(-540.0);
    let holder = hold(&server);
    let mut drawer = server.connect();
    drawer.batch_execute("BEGIN; LOCK TABLE t").unwrap();
    let drawer = wait_to_move(&server, drawer, "SELECT snowflake_next()");
    let holder = Running::start(holder, "SELECT 1::bigint FROM t");
    // Each waits for the other. PostgreSQL chooses which one it cancels; the other goes on.
    wait_until("one to be given up", || drawer.is_over() || holder.is_over());
    let mut given_up = 0;
    let running = if drawer.is_over() { [drawer, holder] } else { [holder, drawer] };
    for running in running {
        let (mut session, result) = running.end();
        if let Err(error) = result {
            assert_eq!(refused::<()>(Err(error)).sqlstate, "40P01");
            given_up += 1;
        }
        session.batch_execute("ROLLBACK").unwrap();
    }
    assert_eq!(given_up, 1);
    for session in [&mut owner, &mut server.connect()] {
        assert!(session.draw() > before);
    }
}

/// The lock is held while the mark moves, and not to the end of the transaction that moved it.
#[test]
fn an_open_transaction_that_has_moved_the_mark_is_in_nobodys_way() {
    for end in ["COMMIT", "ROLLBACK"] {
        let Some((server, before)) = start_beyond_the_mark() else { return };
        let mut ids = vec![before];
        let mut open = server.connect();
        // Beyond the mark, and early.
        for (number, begin) in ["BEGIN", "SAVEPOINT s"].into_iter().enumerate() {
            open.batch_execute(begin).unwrap();
            let now = noon() + 20_000 * (number as i64 + 1);
            server.freeze_clock(now);
            for later_ms in [0, 700] {
                server.freeze_clock(now + later_ms);
                let mark = open.mark_ms();
                ids.push(open.draw());
                assert!(open.mark_ms() > mark);
            }
            let modes = "SELECT string_agg(DISTINCT mode, ' ') FROM pg_locks
                         WHERE relation = 'snowflake_mark'::regclass AND pid = pg_backend_pid()";
            let modes = open.value(modes);
            assert!(!modes.contains("ShareUpdateExclusiveLock"), "{modes}");
            for later_ms in [1500, 9000, 9700] {
                server.freeze_clock(now + later_ms);
                let running = Running::start(server.connect(), "SELECT snowflake_next()");
                ids.extend(running.end().1.unwrap());
            }
        }
        open.batch_execute(end).unwrap();
        assert_ascending(&ids);
        assert_all_draw(&server, noon() + 60_000, &mut [open], &ids);
    }
}

/// After a start the first draw may have to wait for the clock to reach the mark. It holds no lock
/// meanwhile, and ends like any other wait. Other draws wait beside it, not behind it.
#[test]
fn the_wait_for_the_clock_after_a_start_can_be_ended() {
    let Some(server) = Server::drawing().config("log_line_prefix", "%e %p ").start_frozen(noon()) else { return };
    let before = server.connect().draw_batch(300);
    server.stop(Shutdown::Immediate);
    server.start_again_at(noon());
    let mark = server.connect().mark_ms().unwrap();
    let mut waiting: Vec<_> =
        ["SELECT snowflake_next()", "SELECT * FROM snowflake_batch(3)", "SELECT snowflake_next()"]
            .into_iter()
            .map(|sql| Running::start(server.connect(), sql))
            .collect();
    let mut observer = server.connect();
    for waiting in &waiting {
        server.wait_until_waiting(waiting.pid);
        let locks = format!("SELECT string_agg(locktype || mode, ' ') FROM pg_locks WHERE pid = {}", waiting.pid);
        assert_eq!(observer.value(&locks), "virtualxidExclusiveLock");
        let xid = format!("SELECT backend_xid FROM pg_stat_activity WHERE pid = {}", waiting.pid);
        assert_eq!(observer.value(&xid), "NULL");
    }
    assert_eq!(observer.mark_ms(), Some(mark));

    let cancelled = waiting.remove(0);
    assert_eq!(observer.value(&format!("pg_cancel_backend({})", cancelled.pid)), "true");
    let (mut session, result) = cancelled.end();
    assert_eq!(refused(result).sqlstate, "57014");
    assert_eq!(refused(session.ids("SELECT snowflake_last()")).sqlstate, "55000");
    let terminated = waiting.remove(0);
    let pid = terminated.pid;
    assert_eq!(observer.value(&format!("pg_terminate_backend({pid})")), "true");
    assert!(terminated.end().1.is_err());
    assert!(
        server.log().contains(&format!("57P01 {pid} FATAL:  terminating connection due to administrator command\n"))
    );

    let last = waiting.remove(0);
    assert!(!last.is_over());
    server.freeze_clock_and_wake(mark, &last);
    let ids = last.end().1.unwrap();
    assert_all_draw(&server, mark, &mut [session], &[before, ids].concat());
}

#[test]
fn statement_timeout_ends_the_wait_for_the_clock_after_a_start() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let server = Server::drawing().set("on_rollback", "wait").faketime().start_with_extension();
    let before = server.connect().draw_batch(300);
    server.stop(Shutdown::Immediate);
    server.set_clock_offset(-3600.0);
    server.start_again();
    let mut session = server.connect();
    session.batch_execute("SET statement_timeout = '200ms'").unwrap();
    for sql in ["SELECT snowflake_next()", "SELECT * FROM snowflake_batch(300)", "SELECT snowflake_next()"] {
        let result;
        (session, result) = Running::start(session, sql).end();
        assert_eq!(refused(result).sqlstate, "57014", "{sql}");
    }
    let patient = Running::start(server.connect(), "SELECT snowflake_next()");
    server.wait_until_waiting(patient.pid);
    server.set_clock_offset(2.0);
    assert!(patient.end().1.unwrap()[0] > before[299]);
    assert!(session.draw() > before[299]);
}

/// Sixteen sessions draw while the clock jumps from second to second, so nearly every draw has to
/// move the mark. One session after another is cancelled or terminated at an arbitrary point.
#[test]
fn a_storm_of_cancels_leaves_everybody_able_to_draw() {
    const SESSIONS: usize = 16;
    const BLOWS: usize = 400;
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let server = Server::drawing().time_limit().faketime().start_with_extension();
    let pids: Vec<_> = (0..SESSIONS).map(|_| AtomicI32::new(0)).collect();
    let (over, drawn, hit) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let all: Mutex<Vec<i64>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let _ends = Ends(&over);
        for pid in &pids {
            let (server, over, drawn, hit, all) = (&server, &over, &drawn, &hit, &all);
            scope.spawn(move || {
                let mut session = server.connect();
                pid.store(session.pid(), Ordering::Relaxed);
                let mut ids = Vec::new();
                // Relaxed throughout: counts, and pids that may be old.
                while !over.load(Ordering::Relaxed) {
                    let sql = ["SELECT snowflake_next()", "SELECT * FROM snowflake_batch(20)"][ids.len() % 2];
                    match session.ids(sql) {
                        Ok(more) => {
                            assert_ascending(&more);
                            ids.extend(more);
                            drawn.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            let code = error.code().map(|code| code.code().to_owned());
                            let known = code.as_deref().is_none_or(|code| ["57014", "57P01"].contains(&code));
                            assert!(known, "{error}: {code:?}");
                            hit.fetch_add(1, Ordering::Relaxed);
                            if session.execute("", &[]).is_err() || session.is_closed() {
                                wait_until("the end of the session", || session.is_closed());
                                session = server.connect();
                                pid.store(session.pid(), Ordering::Relaxed);
                            }
                        }
                    }
                }
                all.lock().unwrap().extend(ids);
            });
        }
        let mut observer = server.connect();
        let layout = Layout::parse("snowflake").unwrap();
        let mut offset = 0.0;
        for blow in 0..BLOWS {
            offset += 1.5;
            server.set_clock_offset(offset);
            let start = drawn.load(Ordering::Relaxed) + hit.load(Ordering::Relaxed);
            // Any sequence without a pattern will do; the layout's hash of ticks is one.
            let random = first_sequence(&layout, blow as u64) as usize;
            let pid = pids[random % SESSIONS].load(Ordering::Relaxed);
            let blow = if random.is_multiple_of(3) { "pg_terminate_backend" } else { "pg_cancel_backend" };
            observer.batch_execute(&format!("SELECT {blow}(pid) FROM pg_stat_activity WHERE pid = {pid}")).unwrap();
            wait_until("sessions to draw or to be ended", || {
                drawn.load(Ordering::Relaxed) + hit.load(Ordering::Relaxed) > start + SESSIONS / 4
            });
        }
        // All sessions still draw.
        let start = drawn.load(Ordering::Relaxed);
        server.set_clock_offset(offset + 60.0);
        wait_until("the sessions to draw on", || drawn.load(Ordering::Relaxed) > start + 10 * SESSIONS);
    });
    let ids = all.into_inner().unwrap();
    assert_unique(&ids);
    assert!(hit.load(Ordering::Relaxed) > BLOWS / 20, "only {} blows hit a draw", hit.load(Ordering::Relaxed));
    let mut session = server.connect();
    let last = session.draw();
    assert!(ids.iter().all(|id| *id < last));
    assert!(session.mark_ms().unwrap() >= end_ms("snowflake", last));
    assert_eq!(
        session.value("SELECT count(*) FROM pg_locks WHERE relation = 'snowflake_mark'::regclass AND NOT granted"),
        "0"
    );
}
