//! The mark: an id that was drawn before a crash is not drawn again after it, whatever the clock
//! says. When nothing is wrong, the mark costs a wait of little more than a second.
//!
//! With a frozen clock, ids depend on the clock alone
//! ([`first_sequence`](snowflake_core::draw::generator::first_sequence)): a server that lost what
//! it had drawn would draw the same ids at the same instant. The tests that use a [`Load`] have
//! several sessions and a clock that runs.

use std::collections::BTreeSet;

use cluster::drawing::{HOUR_MS, noon};
use cluster::marks::{MARK_AHEAD_MS, MAX_BORROW_MS, behind_the_mark_ms, end_ms, start_ms};
use cluster::{
    Draw, Ledger, Load, Marks, Promise, Server, Shutdown, assert_ascending, assert_unique, faketime_library, refused,
    skip, wait_until,
};
use postgres::Client;
use snowflake_core::id::layout::Layout;

/// A way to end a server without warning its sessions, and the name of that way.
type End = (&'static str, fn(&Server));

const ENDS: [End; 3] = [
    ("pg_ctl stop -m immediate", |server| server.stop(Shutdown::Immediate)),
    ("kill -9 of the postmaster", Server::kill_postmaster),
    ("a power cut", Server::crash),
];

fn unit_ms(layout: &str) -> i64 {
    Layout::parse(layout).unwrap().unit().ms()
}

/// How far a mark can be ahead of a right clock. The wait after a restart takes no longer than
/// that.
fn most_ahead_ms(layout: &str) -> i64 {
    MARK_AHEAD_MS + MAX_BORROW_MS + unit_ms(layout)
}

/// Restarts the server with its clock an hour before `now_ms`, and asserts that it refuses to draw,
/// by both functions and in more than one session.
#[track_caller]
fn assert_refused_an_hour_back(server: &Server, now_ms: i64) {
    server.start_again_at(now_ms - HOUR_MS);
    for sql in ["SELECT snowflake_next()", "SELECT * FROM snowflake_batch(10)", "SELECT snowflake_next()"] {
        let behind_ms = behind_the_mark_ms(&server.refused_draw(sql));
        assert!((HOUR_MS - MAX_BORROW_MS..HOUR_MS + 5000).contains(&behind_ms), "{behind_ms} ms");
    }
}

/// Ends a server while several sessions draw and store. When it comes back, its clock is first an
/// hour behind, and then right.
#[test]
fn what_sessions_drew_under_load_is_not_drawn_again_after_a_crash() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let server = Server::drawing().time_limit().faketime().start_with_extension();
    let mut ledger = Ledger::default();
    for (how, end) in ENDS {
        let load = Load::start(&server, 4);
        // Waits until the mark has moved under load.
        let start = server.connect().mark_ms();
        wait_until("the mark to move", || server.connect().mark_ms() > start.map(|mark| mark + 500));
        load.wait_for(20);
        end(&server);
        ledger.add(load.end());

        server.set_clock_offset(-3600.0);
        server.start_again();
        let behind_ms = ledger.check(&server, Promise::Seen).refused();
        assert!((HOUR_MS - 60_000..HOUR_MS + 5000).contains(&behind_ms), "after {how}: {behind_ms} ms");
        // The clock has just not reached it.
        let mark = server.connect().mark_ms().unwrap();
        server.freeze_clock(mark - most_ahead_ms("snowflake") - 1);
        ledger.check(&server, Promise::Seen).refused();
        server.set_clock_offset(0.0);
        ledger.check(&server, Promise::Seen).drawn();
    }
}

#[test]
fn a_clock_behind_the_mark_is_waited_for_up_to_what_a_restart_explains_and_refused_beyond() {
    for layout in ["snowflake", "js53"] {
        for (how, end) in ENDS {
            let Some(server) = Server::drawing().set("layout", layout).start_frozen(noon()) else { return };
            let mut seen = server.connect().draw_batch(300);
            seen.push(server.connect().draw());
            let mark = server.connect().mark_ms().unwrap();
            assert!(mark >= end_ms(layout, seen[300]) && mark <= noon() + unit_ms(layout) + MARK_AHEAD_MS, "{mark}");

            end(&server);
            assert_refused_an_hour_back(&server, noon());
            // The clock is so far behind the mark that it must be wrong.
            server.freeze_clock(mark - most_ahead_ms(layout) - 1);
            let behind_ms = behind_the_mark_ms(&server.refused_draw("SELECT snowflake_next()"));
            assert!((1..=most_ahead_ms(layout) + 1).contains(&behind_ms), "{layout}, after {how}: {behind_ms} ms");
            assert_eq!(server.connect().mark_ms(), Some(mark), "{layout}, after {how}");
            // The clock is as far behind the mark as a right clock can be.
            server.freeze_clock(mark - most_ahead_ms(layout));
            let (mut session, ids) = server.draw_through_wait("SELECT snowflake_next()", mark - MAX_BORROW_MS);
            assert_eq!(start_ms(layout, ids[0]), mark, "{layout}, after {how}");
            assert!(ids[0] > *seen.iter().max().unwrap());
            let ids = [ids, session.draw_batch(300), vec![server.connect().draw()]].concat();
            assert_ascending(&ids);
            assert_unique(seen.iter().chain(&ids));
            assert!(session.mark_ms().unwrap() >= end_ms(layout, *ids.last().unwrap()));
        }
    }
}

/// Restarts a server fifty times, while the clock moves on only by each wait: the worst case for a
/// right clock. No draw is refused, and the mark does not run away from the clock.
#[test]
fn fifty_restarts_on_end_are_never_refused() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut now = noon();
    let mut ids = vec![server.connect().draw()];
    for round in 0..50 {
        ids.extend(server.connect().draw_batch(20));
        ids.push(server.connect().draw());
        // The third way would do as well, but takes longer.
        ENDS[round % 2].1(&server);
        server.start_again_at(now);
        let mark = server.connect().mark_ms().unwrap();
        assert!(mark >= end_ms("snowflake", *ids.last().unwrap()), "round {round}");
        assert!(mark - now <= most_ahead_ms("snowflake"), "round {round}: the mark is {} ms ahead", mark - now);
        now = mark - MAX_BORROW_MS;
        ids.extend(server.draw_through_wait("SELECT snowflake_next()", now).1);
    }
    assert_ascending(&ids);
    // The clock moves on by no more per round than the wait.
    assert!(now - noon() <= 50 * most_ahead_ms("snowflake"));
}

/// The same with the real clock, and how long the draws wait. (The test is slow because it sleeps
/// nearly all the time.)
#[test]
fn a_restart_with_a_right_clock_costs_a_second_at_most() {
    let server = Server::drawing().start_with_extension();
    let mut ids = Vec::new();
    // Reads the mark before the clock, so the result can only be too small.
    let ahead = "SELECT last_value - extract(epoch FROM clock_timestamp()) * 1000 FROM snowflake_mark";
    for round in 0..10 {
        ENDS[round % 2].1(&server);
        server.start_again();
        let mut session = server.connect();
        // The server's own clock measures how far the first id is from the statement's start.
        let first = "WITH draw AS MATERIALIZED (SELECT snowflake_next() AS id)
                     SELECT id, extract(epoch FROM snowflake_timestamp(id) - statement_timestamp()) * 1000 FROM draw";
        let row = session.query_one(&format!("SELECT id, ms::float8 FROM ({first}) d(id, ms)"), &[]).unwrap();
        let (id, further): (i64, f64) = (row.get(0), row.get(1));
        assert!(further <= most_ahead_ms("snowflake") as f64, "round {round}: the id is {further} ms from the start");
        ids.push(id);
        ids.extend(session.draw_batch(1000));
        let ahead: f64 = session.value(ahead).parse().unwrap();
        // The clock is read in milliseconds, rounded down.
        assert!(ahead <= most_ahead_ms("snowflake") as f64 + 1.0, "round {round}: the mark is {ahead} ms ahead");
    }
    assert_ascending(&ids);
}

/// Shared memory is lost and made anew, while the postmaster goes on. By then it follows the real
/// clock, and the sessions follow the faked one, which was an hour ahead. Only the mark can tell
/// what was drawn.
#[test]
fn what_sessions_drew_is_not_drawn_again_after_the_kill_of_a_backend() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let server = Server::drawing().time_limit().faketime_from("+3600").start_with_extension();
    let mut ledger = Ledger::default();
    for _ in 0..2 {
        server.set_clock_offset(3600.0);
        let load = Load::start(&server, 4);
        load.wait_for(30);
        let of_the_load =
            "SELECT max(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        server.kill_backend(server.connect().value(of_the_load).parse().unwrap());
        // Only now, because a session that is still to be terminated would be refused for the
        // clock.
        wait_until("the load to be thrown out", || load.are_all_over());
        server.set_clock_offset(0.0);
        server.wait_until_ready();
        ledger.add(load.end());
        let behind_ms = ledger.check(&server, Promise::Seen).refused();
        assert!((HOUR_MS - 60_000..HOUR_MS + 2000).contains(&behind_ms), "{behind_ms} ms");
    }
    server.set_clock_offset(3600.0);
    ledger.check(&server, Promise::Seen).drawn();
}

/// No commit has made these ids durable, not even that of another transaction. Only the mark is
/// durable.
#[test]
fn an_id_seen_in_an_open_transaction_is_not_drawn_again() {
    for (how, end) in ENDS {
        let Some(server) = Server::drawing().start_frozen(noon()) else { return };
        server.connect().batch_execute("CREATE TABLE t (id bigint DEFAULT snowflake_next())").unwrap();
        let mut session = server.connect();
        session.batch_execute("BEGIN").unwrap();
        let mut seen = Vec::new();
        // Beyond the mark three times, and the crash may come after each.
        for later_ms in [0, 700, 5000] {
            server.freeze_clock(noon() + later_ms);
            seen.push(session.draw());
            seen.extend(session.draw_batch(300));
            seen.extend(session.ids("INSERT INTO t DEFAULT VALUES RETURNING id").unwrap());
        }
        end(&server);
        assert_refused_an_hour_back(&server, noon() + 5000);
        // At the instant of the last draw, where a server that had lost would draw the same
        // ids.
        server.freeze_clock(noon() + 5000);
        let mut session = server.connect();
        let until = session.mark_ms().unwrap() - MAX_BORROW_MS;
        let drawn = server.draw_through_wait("SELECT * FROM snowflake_batch(1000)", until).1;
        assert!(drawn[0] > *seen.last().unwrap(), "after {how}");
        assert_eq!(session.value("SELECT count(*) FROM t"), "0", "after {how}");
    }
}

/// A role may risk its own commits, but not the ids of other sessions, because a mark counts for
/// all of them. Nothing else writes the WAL to disk meanwhile: the WAL writer sleeps, and the
/// sessions that see ids commit nothing.
#[test]
fn a_role_that_switches_synchronous_commit_off_takes_no_id_from_others() {
    let settings = Server::drawing()
        .config("wal_writer_delay", "10s")
        .config("wal_writer_flush_after", "1GB")
        .config("autovacuum", "off")
        .config("checkpoint_timeout", "1h");
    let Some(server) = settings.start_frozen(noon()) else { return };
    server.connect().batch_execute("CREATE ROLE hasty LOGIN; ALTER ROLE hasty SET synchronous_commit = off").unwrap();
    let mut now = noon();
    let mut seen = vec![server.connect().draw()];
    // The first draw moves the mark early, and the second because it must.
    for later_ms in [700, 5000] {
        let mut hasty = server.connect_as("hasty");
        assert_eq!(hasty.value("current_setting('synchronous_commit')"), "off");
        seen.push(hasty.draw());
        now += later_ms;
        server.freeze_clock(now);
        let before = hasty.mark_ms();
        seen.push(hasty.draw());
        assert!(hasty.mark_ms() > before);
        // Beyond the mark before the hasty session moved it, but not so far that another session
        // moves it again.
        server.freeze_clock(now + 400);
        seen.extend(server.connect().draw_batch(100));
        server.stop(Shutdown::Immediate);
        assert_refused_an_hour_back(&server, now);
        let mark = server.connect().mark_ms().unwrap();
        assert!(mark >= end_ms("snowflake", *seen.last().unwrap()));
        now = mark - MAX_BORROW_MS;
        server.freeze_clock(now);
        seen.push(server.connect().draw());
    }
    assert_ascending(&seen);
}

#[test]
fn the_mark_moves_twice_a_second_and_only_while_ids_are_drawn() {
    let settings = Server::drawing().config("autovacuum", "off").config("checkpoint_timeout", "1h");
    let Some(server) = settings.start_frozen(noon()) else { return };
    let mut session = server.connect();
    assert_eq!((session.mark_ms(), session.backup_mark_ms()), (None, None));
    let mut marks = BTreeSet::new();
    // Ten seconds.
    for step in 0..500 {
        server.freeze_clock(noon() + 20 * step);
        let id = session.draw();
        let mark = session.mark_ms().unwrap();
        assert!(mark >= end_ms("snowflake", id), "step {step}");
        marks.insert(mark);
    }
    // The mark moves whenever half of it is used up, give or take a step. If it moved only when it
    // must, there would be ten moves.
    assert!((17..=20).contains(&(marks.len() - 1)), "moved {} times in 10 seconds", marks.len() - 1);

    let written = |session: &mut Client| session.value("pg_current_wal_insert_lsn() - '0/0'").parse::<i64>().unwrap();
    let (mark, start) = (session.mark_ms(), written(&mut session));
    for _ in 0..100 {
        session.draw();
        session.draw_batch(20);
    }
    assert_eq!(session.mark_ms(), mark);
    let bytes = written(&mut session) - start;
    assert!(bytes < 500, "{bytes} bytes of log for 2,100 ids of one millisecond");
    server.freeze_clock(noon() + HOUR_MS);
    assert_eq!(session.value("snowflake_last() > 0"), "true");
    assert_eq!((session.mark_ms(), session.backup_mark_ms()), (mark, None));
    // The mark follows the clock at once, wherever it was.
    let id = session.draw();
    assert_eq!(session.mark_ms(), Some(end_ms("snowflake", id) + MARK_AHEAD_MS));
}

/// Otherwise all sessions would wait for it together, each time.
#[test]
fn clients_that_connect_for_each_id_move_the_mark_early_too() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    server.connect().draw();
    let before = server.connect().mark_ms();
    server.freeze_clock(noon() + 700);
    server.connect().draw();
    assert!(server.connect().mark_ms() > before);
}

/// An id of a worker at an instant.
fn compose(instant_ms: i64, worker: i64, sequence: i64) -> i64 {
    Layout::parse("snowflake").unwrap().compose(Some(instant_ms), None, Some(worker), sequence).unwrap()
}

#[track_caller]
fn advance(session: &mut Client, id: i64) {
    session.execute("SELECT snowflake_advance($1)", &[&id]).unwrap();
}

#[test]
fn nothing_is_drawn_at_or_below_the_id_that_was_advanced_to() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    // A session that was open, one that drew, and later ones.
    let (mut session, mut other) = (server.connect(), server.connect());
    let mut last = other.draw();
    for id in [
        // The past, and the present.
        0,
        compose(noon() - HOUR_MS, 5, 4095),
        last,
        compose(noon(), 1023, 4095),
        // Ids within what may be borrowed, also of workers with a higher and with a lower number.
        compose(noon() + 10, 5, 17),
        compose(noon() + 20, 1023, 0),
        compose(noon() + 30, 0, 4095),
        compose(noon() + 30, 5, 4095),
        compose(noon() + 99, 5, 0),
    ] {
        advance(&mut session, id);
        for session in [&mut session, &mut other, &mut server.connect()] {
            let next = session.draw();
            assert!(next > id && next > last, "{next} was drawn after {last} and an advance to {id}");
            last = next;
        }
        assert!(session.mark_ms().unwrap() >= end_ms("snowflake", last));
    }
    // Slightly beyond that, a draw waits as after a start.
    let id = compose(noon() + 500, 5, 17);
    advance(&mut session, id);
    let mark = session.mark_ms().unwrap();
    assert!(server.draw_through_wait("SELECT snowflake_next()", mark - MAX_BORROW_MS).1[0] > id);
    assert!(session.draw() > id);
    assert_eq!(session.value("snowflake_advance(NULL)"), "NULL");
}

#[test]
fn an_advance_to_the_far_future_is_refused_until_the_clock_is_there_also_after_a_crash() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    let before = session.draw();
    // Like setval, an advance stays when its transaction is rolled back.
    session.batch_execute("BEGIN").unwrap();
    let id = compose(noon() + HOUR_MS, 5, 17);
    advance(&mut session, id);
    session.batch_execute("ROLLBACK").unwrap();
    assert!(session.mark_ms().unwrap() >= end_ms("snowflake", id));
    for session in [&mut session, &mut server.connect()] {
        assert_eq!(refused(session.try_draw()).sqlstate, "58000");
        assert_eq!(refused(session.ids("SELECT snowflake_batch(2)")).sqlstate, "58000");
    }
    // An advance to a lower id does not undo it.
    advance(&mut session, before);
    assert_eq!(refused(session.try_draw()).sqlstate, "58000");

    server.crash();
    server.start_again_at(noon());
    behind_the_mark_ms(&server.refused_draw("SELECT snowflake_next()"));
    let mark = server.connect().mark_ms().unwrap();
    server.freeze_clock(mark);
    assert!(server.connect().draw() > id);
}

#[test]
fn a_number_that_is_no_id_is_not_advanced_to() {
    let server = Server::drawing().set("layout", "js53").start_with_extension();
    let mut session = server.connect();
    let before = session.draw();
    let mark = session.mark_ms();
    for number in [-1, i64::MIN, 1 << 53, i64::MAX] {
        let refusal = refused(session.execute("SELECT snowflake_advance($1)", &[&number]));
        assert_eq!(refusal.sqlstate, "22023", "{number}: {refusal:?}");
        assert!(refusal.message.contains(&number.to_string()), "{number}: {refusal:?}");
    }
    assert_eq!(session.mark_ms(), mark);
    assert!(session.draw() > before);
}

/// The advance is the server's first access to the database. The stored mark must count, too.
#[test]
fn an_advance_before_the_first_draw_does_not_hide_the_mark() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let seen = server.connect().draw_batch(300);
    let mark = server.connect().mark_ms().unwrap();
    server.crash();
    server.start_again_at(noon() - HOUR_MS);
    advance(&mut server.connect(), compose(noon() - HOUR_MS, 5, 0));
    assert_eq!(refused(server.connect().try_draw()).sqlstate, "58000");
    assert_eq!(server.connect().mark_ms(), Some(mark));
    server.freeze_clock(mark);
    let ids = server.connect().draw_batch(300);
    assert_unique(seen.iter().chain(&ids));
    assert!(ids[0] > seen[299]);
}
