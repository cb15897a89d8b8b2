//! A clock that is set back or jumps, a little or by hours, or stands outside the layout's time:
//! what is borrowed, what is refused and what waits. No id comes twice in any case.
//!
//! Most tests freeze the clock and step between instants, so that every number in a message is
//! certain.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use cluster::drawing::{HOUR_MS, WORKER, at_once, noon};
use cluster::{
    Draw, Ends, Known, Refusal, Running, Server, assert_ascending, assert_unique, faketime_library, instant, refused,
    skip, wait_until,
};
use postgres::Client;
use snowflake_core::clock::Utc;
use snowflake_core::draw::generator::first_sequence;
use snowflake_core::id::layout::Layout;

/// The time that an id holds, in milliseconds since 1970.
fn created_at(layout: &str, id: i64) -> i64 {
    Layout::parse(layout).unwrap().created_at_ms(id).unwrap()
}

fn worker(layout: &str, id: i64) -> u32 {
    Layout::parse(layout).unwrap().parts(id).unwrap().worker.unwrap()
}

/// Asserts that a draw is refused because the clock is behind an id of noon.
#[track_caller]
fn assert_rollback(refusal: &Refusal, behind_ms: i64, max_borrow_ms: i64) {
    let message = format!("clock is {behind_ms} ms behind the last id");
    assert_eq!((refusal.sqlstate.as_str(), &refusal.message), ("58000", &message));
    let again = Utc(noon() - max_borrow_ms);
    let detail = format!(
        "Ids may run ahead of the clock by up to {max_borrow_ms} ms (\"snowflake_id.max_borrow\"). \
         The server draws ids again once its clock reaches {again}."
    );
    assert_eq!(refusal.detail.as_ref(), Some(&detail));
    let hint = refusal.hint.as_deref().unwrap_or_default();
    assert!(hint.starts_with("Check the server's time synchronization, and whether"), "{hint}");
    // The hint advises to wait only if the wait is short.
    assert_eq!(hint.contains("\"snowflake_id.on_rollback\""), behind_ms - max_borrow_ms <= 60_000, "{hint}");
}

#[test]
fn a_small_step_back_is_borrowed() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    let mut ids = vec![session.draw()];
    ids.extend(session.draw_batch(300));
    // Further and further back, up to all of max_borrow.
    for back_ms in [1, 50, 99, 100] {
        server.freeze_clock(noon() - back_ms);
        ids.push(session.draw());
        ids.push(server.connect().draw());
        ids.extend(session.draw_batch(300));
    }
    // 1505 ids fit into one tick, so no later tick was needed.
    assert!(ids.iter().all(|id| created_at("snowflake", *id) == noon()));
    server.freeze_clock(noon() + 1);
    ids.push(session.draw());
    assert_eq!(created_at("snowflake", ids[ids.len() - 1]), noon() + 1);
    assert_ascending(&ids);
}

#[test]
fn a_step_back_by_another_max_borrow_is_waited_out_and_a_longer_one_refused() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    let before = session.draw();
    server.freeze_clock(noon() - 201);
    assert_rollback(&refused(session.try_draw()), 201, 100);
    for back_ms in [200, 101] {
        server.freeze_clock(noon() - back_ms);
        let waiting = Running::start(session, "SELECT snowflake_next()");
        server.wait_until_waiting(waiting.pid);
        assert!(!waiting.is_over());
        server.freeze_clock(noon() - 100);
        let ids;
        (session, ids) = waiting.end();
        assert!(ids.unwrap()[0] > before);
    }
    assert_eq!(created_at("snowflake", session.draw()), noon());
}

#[test]
fn a_clock_an_hour_back_is_refused_until_it_comes_forward() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    let before = session.draw_batch(300);
    server.freeze_clock(noon() - HOUR_MS);
    for sql in ["SELECT snowflake_next()", "SELECT * FROM snowflake_batch(10)", "SELECT snowflake_batch(1)"] {
        assert_rollback(&refused(session.ids(sql)), HOUR_MS, 100);
        assert_rollback(&refused(server.connect().ids(sql)), HOUR_MS, 100);
    }
    // Reading still works, and the errors have used no ids.
    assert_eq!(session.value("snowflake_last()"), before[299].to_string());
    server.freeze_clock(noon());
    assert_eq!(session.draw(), before[299] + 1);
    server.freeze_clock(noon() + HOUR_MS);
    assert_eq!(created_at("snowflake", session.draw()), noon() + HOUR_MS);
}

#[test]
fn without_borrowing_every_step_back_is_refused() {
    let Some(server) = Server::drawing().set("max_borrow", "0").start_frozen(noon()) else { return };
    let mut session = server.connect();
    let before = session.draw();
    for back_ms in [50, 1] {
        server.freeze_clock(noon() - back_ms);
        assert_rollback(&refused(session.try_draw()), back_ms, 0);
    }
    server.freeze_clock(noon());
    assert_eq!(session.draw(), before + 1);
}

/// The wait ends when the clock has caught up, and not before. It does not last the hour or the
/// fourteen years that the clock was behind (more milliseconds than a latch can wait).
#[test]
fn under_the_policy_wait_a_session_waits_until_the_clock_comes_forward() {
    let settings = Server::drawing().set("layout", "leaf").set("on_rollback", "wait");
    // PostgreSQL's own timers would wake the sessions otherwise: one sends statistics, one is left
    // from the connection's start.
    let settings = settings.config("track_counts", "off").config("authentication_timeout", "10min");
    let Some(server) = settings.start_frozen(noon()) else { return };
    let before = server.connect().draw();
    for back_to in [noon() - HOUR_MS, instant("2012-02-29T00:00:00Z")] {
        server.freeze_clock(back_to);
        let one = Running::start(server.connect(), "SELECT snowflake_next()");
        let many = Running::start(server.connect(), "SELECT * FROM snowflake_batch(300)");
        for waiting in [&one, &many] {
            server.wait_until_waiting(waiting.pid);
        }
        // Forward, but not far enough.
        server.freeze_clock(noon() - 1000);
        assert!(!one.is_over() && !many.is_over());
        server.wait_until_waiting(one.pid);
        server.freeze_clock(noon() - 100);
        let ids = [one.end().1.unwrap(), many.end().1.unwrap()].concat();
        assert_eq!(assert_unique(&ids), 301);
        assert!(ids.iter().all(|id| *id > before));
    }
}

#[test]
fn policy_and_borrow_change_at_a_reload() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    let before = session.draw();
    server.freeze_clock(noon() - HOUR_MS);
    assert_rollback(&refused(session.try_draw()), HOUR_MS, 100);

    server.set_config("snowflake_id.on_rollback", "wait");
    server.reload();
    let shown = "current_setting('snowflake_id.on_rollback')";
    wait_until("the open session to read the new configuration", || session.value(shown) == "wait");
    let waiting = Running::start(session, "SELECT snowflake_next()");
    server.wait_until_waiting(waiting.pid);
    server.freeze_clock(noon());
    assert_eq!(waiting.end().1.unwrap(), [before + 1]);

    server.set_config("snowflake_id.on_rollback", "error");
    server.set_config("snowflake_id.max_borrow", "1s");
    server.reload();
    let mut session = server.connect();
    server.freeze_clock(noon() - 1000);
    assert_eq!(session.draw(), before + 2);
    server.freeze_clock(noon() - 2001);
    assert_rollback(&refused(session.try_draw()), 2001, 1000);
}

/// A server's databases share its lanes. After a restart only this setting tells how far the other
/// databases may have drawn.
#[test]
fn a_lowered_max_borrow_is_logged_once_at_the_reload() {
    let server = Server::drawing().set("max_borrow", "10s").start_with_extension();
    let _open = server.connect();
    let lowered = |server: &Server| -> Vec<String> {
        let lines = server.log();
        lines.lines().filter(|line| line.contains("was lowered from")).map(str::to_owned).collect()
    };
    server.set_config("snowflake_id.max_borrow", "20s");
    server.reload();
    assert_eq!(lowered(&server), [""; 0]);
    server.set_config("snowflake_id.max_borrow", "1s");
    server.reload();
    server.reload();
    let lines = lowered(&server);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("LOG:") && lines[0].contains("from 20000 ms to 1000 ms"), "{lines:?}");
}

#[test]
fn a_clock_before_the_epoch_is_refused() {
    let epoch = instant("2025-01-01T00:00:00Z");
    let Some(server) = Server::drawing().start_frozen(epoch - 1) else { return };
    let mut session = server.connect();
    for (now, text) in
        [(epoch - 1, "2024-12-31T23:59:59.999Z"), (instant("1999-12-31T00:00:00Z"), "1999-12-31T00:00:00.000Z")]
    {
        server.freeze_clock(now);
        for sql in ["SELECT snowflake_next()", "SELECT * FROM snowflake_batch(10)"] {
            let refusal = refused(session.ids(sql));
            let expected = ("22008", "clock is before the layout's epoch");
            assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), expected);
            let detail = format!("The clock says {text}, and the epoch is 2025-01-01T00:00:00.000Z.");
            assert_eq!(refusal.detail, Some(detail));
            assert!(refusal.hint.is_some_and(|hint| hint.starts_with("Check the server's clock")));
        }
    }
    // All that can be borrowed at the first draw counts as drawn.
    server.freeze_clock(epoch);
    let first = epoch + 101;
    let (mut session, drawn) = server.draw_through_wait("SELECT snowflake_next()", first);
    let ids = [drawn, session.draw_batch(300)].concat();
    assert!(ids.iter().all(|id| created_at("snowflake", *id) == first && worker("snowflake", *id) == WORKER));
    assert_ascending(&ids);
    // Ids have been drawn by now, but the clock is still before the epoch.
    server.freeze_clock(epoch - 1);
    assert_eq!(refused(session.try_draw()).sqlstate, "22008");
}

#[test]
fn after_the_layouts_last_id_nothing_is_drawn() {
    // 32 ids a millisecond for 2^31 milliseconds.
    let layout = "time:31 worker:5 sequence:5 unit:1ms epoch:2026-06-01T00:00:00Z";
    let last_tick = instant("2026-06-25T20:31:23.647Z");
    let Some(server) = Server::drawing().set("layout", layout).start_frozen(last_tick - 50) else { return };
    let assert_used_up = |session: &mut Client| {
        for sql in ["SELECT snowflake_next()", "SELECT snowflake_batch(1)", "SELECT * FROM snowflake_batch(10)"] {
            let refusal = refused(session.ids(sql));
            let message = format!("the time of layout \"{layout}\" has run out");
            assert_eq!((refusal.sqlstate.as_str(), &refusal.message), ("2200H", &message), "{sql}");
            assert_eq!(refusal.detail.as_deref(), Some("Its last instant was 2026-06-25T20:31:23.647Z."), "{sql}");
        }
    };
    // Borrowed to the end: no wait for a tick that will never come, and nothing spills over.
    let mut session = server.connect();
    let ids = [session.draw_batch(51 * 32 - 1), vec![session.draw()]].concat();
    assert_ascending(&ids);
    assert!(ids.iter().all(|id| worker(layout, *id) == WORKER));
    assert_eq!(created_at(layout, *ids.last().unwrap()), last_tick);
    assert_used_up(&mut session);

    // The mark is beyond the last id. It must not make a server wait for a tick that will never
    // come.
    server.restart();
    server.freeze_clock(last_tick + 2000);
    assert_used_up(&mut server.connect());

    let Some(server) = Server::drawing().set("layout", layout).start_frozen(last_tick) else { return };
    let mut session = server.connect();
    let ids = session.draw_batch(32);
    assert!(ids.iter().all(|id| created_at(layout, *id) == last_tick && worker(layout, *id) == WORKER));
    assert_ascending(&ids);
    assert_used_up(&mut session);
    for later_ms in [1, HOUR_MS, 1 << 40] {
        server.freeze_clock(last_tick + later_ms);
        assert_used_up(&mut session);
    }
    assert_eq!(session.value(&format!("snowflake_timestamp({})", ids[31])), "2026-06-25 20:31:23.647+00");
}

#[test]
fn the_backup_worker_draws_while_the_clock_is_behind() {
    let Some(server) = Server::drawing().set("backup_worker", "on").start_frozen(noon()) else { return };
    let mut session = server.connect();
    let mut all = Vec::new();
    let mut draw_at = |offset_ms: i64, expected_worker: u32| {
        server.freeze_clock(noon() + offset_ms);
        let ids = [vec![session.draw()], session.draw_batch(300), vec![server.connect().draw()]].concat();
        assert_ascending(&ids);
        for id in &ids {
            let seen = (created_at("snowflake", *id), worker("snowflake", *id));
            assert_eq!(seen, (noon() + offset_ms, expected_worker));
        }
        all.extend(ids);
    };
    let (primary, backup) = (WORKER, WORKER + 512);
    draw_at(0, primary);
    draw_at(-HOUR_MS, backup);
    // The backup worker serves after each step back that both lanes could serve, because its lane
    // needs to borrow nothing.
    draw_at(-50, backup);
    draw_at(0, primary);
    draw_at(1, primary);
    draw_at(0, backup);
    draw_at(2, primary);

    // The clock is behind both lanes. The message tells by how much, for the lane that will serve
    // first.
    server.freeze_clock(noon() - HOUR_MS);
    for sql in ["SELECT snowflake_next()", "SELECT * FROM snowflake_batch(10)"] {
        assert_rollback(&refused(server.connect().ids(sql)), HOUR_MS, 100);
    }
    draw_at(3, primary);
    assert_unique(&all);
}

/// All ids of both workers, exactly: the model is `snowflake_core`'s.
#[test]
fn two_lanes_are_used_up_in_the_order_that_the_model_says() {
    let settings = Server::drawing().set("layout", "js53").set("backup_worker", "on").set("max_borrow", "3s");
    let Some(server) = settings.start_frozen(noon()) else { return };
    let layout = Layout::parse("js53").unwrap();
    let tick = u64::try_from(layout.tick_at(noon())).unwrap();
    let (primary, backup) = (i64::from(WORKER), i64::from(WORKER) + 16);
    let id = |worker: i64, tick: u64, sequence: u64| {
        let created_at_ms = layout.start_of_ms(tick);
        layout.compose(Some(created_at_ms), None, Some(worker), i64::try_from(sequence).unwrap()).unwrap()
    };
    let rest_of = |worker, tick, from| (from..1 << 16).map(move |sequence| id(worker, tick, sequence));
    let now = first_sequence(&layout, tick);
    let expected: Vec<i64> = rest_of(primary, tick, now)
        .chain(rest_of(backup, tick, now))
        .chain((1..=3).flat_map(|ahead| rest_of(backup, tick + ahead, 0)))
        .collect();

    let sql = format!("SELECT snowflake_next() FROM generate_series(1, {})", expected.len());
    let mut session = server.connect();
    let drawn = session.ids(&sql).unwrap();
    let differ = drawn.iter().zip(&expected).position(|(drawn, expected)| drawn != expected);
    if let Some(number) = differ {
        let parts = |id| layout.parts(id).unwrap();
        panic!("id {number} is {}, expected is {}", parts(drawn[number]), parts(expected[number]));
    }
    assert_eq!(drawn.len(), expected.len());

    let waiting = Running::start(session, "SELECT snowflake_next()");
    server.wait_until_waiting(waiting.pid);
    server.freeze_clock(noon() + 1000);
    let (mut session, next) = waiting.end();
    let first = first_sequence(&layout, tick + 1);
    assert_eq!(next.unwrap(), [id(primary, tick + 1, first)]);
    assert_eq!(session.draw(), id(primary, tick + 1, first + 1));
}

/// Runs sessions that draw in a loop with `sql`, while the clock takes each of these offsets (in
/// seconds) from the real one. It takes the next offset when every session has drawn at least
/// twice.
fn jump(
    server: &Server,
    sessions: usize,
    offsets: &[f64],
    sql: impl Fn(usize) -> &'static str + Sync,
) -> Vec<Vec<i64>> {
    let stop = AtomicBool::new(false);
    let rounds: Vec<_> = (0..sessions).map(|_| AtomicUsize::new(0)).collect();
    let known = Known::default();
    thread::scope(|scope| {
        let drawn = scope.spawn(|| {
            at_once(server, sessions, |number, mut session| {
                let mut ids = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    ids.extend(known.draw(|| session.ids(sql(number)).expect("no step is too long")));
                    rounds[number].fetch_add(1, Ordering::Relaxed);
                }
                assert_ascending(&ids);
                ids
            })
        });
        let stop = Ends(&stop);
        for offset in offsets {
            server.set_clock_offset(*offset);
            let start: Vec<_> = rounds.iter().map(|rounds| rounds.load(Ordering::Relaxed)).collect();
            wait_until("every session to draw twice", || {
                drawn.is_finished()
                    || rounds.iter().zip(&start).all(|(now, start)| now.load(Ordering::Relaxed) > start + 1)
            });
        }
        drop(stop);
        drawn.join().unwrap()
    })
}

#[test]
fn ids_ascend_while_the_clock_jumps_under_sixteen_sessions() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    // No time limit: a step by an hour can look to PostgreSQL like the end of a statement's time.
    let server = Server::drawing().faketime().start_with_extension();
    let offsets = [0.0, -0.02, 0.0, -0.08, 0.3, 0.25, 0.22, 0.31, 0.23, 5.0, 4.92, 5.0, 4.95, 3600.0, 3599.92, 3600.0];
    let all = jump(&server, 16, &offsets, |number| match number % 3 {
        0 => "SELECT snowflake_next()",
        1 => "SELECT snowflake_next() FROM generate_series(1, 20)",
        _ => "SELECT * FROM snowflake_batch(300)",
    });
    assert_unique(all.iter().flatten());
}

/// A generator that has borrowed all it may is already behind when the clock steps back by a
/// millisecond.
#[test]
fn small_steps_back_do_no_harm_to_a_saturated_generator() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    // Four ids a millisecond.
    let layout = "time:41 worker:10 sequence:2 unit:1ms epoch:2025-01-01T00:00:00Z";
    let server = Server::drawing().set("layout", layout).time_limit().faketime().start_with_extension();
    let mut session = server.connect();
    let ahead = "SELECT bool_or(snowflake_timestamp(id) > clock_timestamp() + interval '50 ms')
                 FROM (SELECT snowflake_next() AS id FROM generate_series(1, 1000) OFFSET 0) s";
    wait_until("the generator to be saturated", || session.value(ahead) == "true");
    let offsets = [0.0, -0.05, 0.0, -0.01, -0.08, 0.0, -0.02, -0.04, -0.06, -0.08, 0.1, 0.02];
    let all = jump(&server, 6, &offsets, |number| match number % 2 {
        0 => "SELECT snowflake_next() FROM generate_series(1, 100)",
        _ => "SELECT * FROM snowflake_batch(100)",
    });
    assert_unique(all.iter().flatten());
}
