//! A clock that is far ahead, for a moment or until ids are drawn by it: what the guard refuses,
//! what damage is done if the guard is off, and how to repair it. Also which roles may call the
//! functions that change what the database remembers.

use cluster::drawing::{DAY_MS, noon};
use cluster::marks::{MARK_AHEAD_MS, behind_the_mark_ms, end_ms, start_ms, worker};
use cluster::{Draw, Marks, Refusal, Running, Server, Shutdown, assert_ascending, assert_unique, refused};
use postgres::Client;

const TEN_YEARS_MS: i64 = 3653 * DAY_MS;
/// The longest that a test takes: the guard compares with a clock that goes on at its usual pace.
const PATIENCE_MS: i64 = 120_000;

const RESET: &str = "SELECT snowflake_reset_mark()";

/// By how much the clock has jumped, from the message.
#[track_caller]
fn jumped_ms(refusal: &Refusal) -> i64 {
    assert_eq!(refusal.sqlstate, "58000", "{refusal:?}");
    assert!(refusal.hint.as_deref().is_some_and(|hint| hint.contains("max_clock_jump")), "{refusal:?}");
    let number = refusal.message.strip_prefix("clock jumped ahead by ").and_then(|rest| rest.strip_suffix(" ms"));
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{refusal:?}"))
}

/// Asserts that no function draws, because the clock has jumped by `ms`, and that the refusals
/// change nothing.
#[track_caller]
fn assert_jumped(server: &Server, session: &mut Client, ms: i64) {
    let marks = (session.mark_ms(), session.backup_mark_ms());
    for sql in ["SELECT snowflake_next()", "SELECT * FROM snowflake_batch(300)", "SELECT snowflake_batch(1)"] {
        for session in [&mut *session, &mut server.connect()] {
            let jumped = jumped_ms(&refused(session.ids(sql)));
            assert!((ms - PATIENCE_MS..=ms + 1000).contains(&jumped), "{sql}: {jumped} ms");
        }
    }
    assert_eq!((session.mark_ms(), session.backup_mark_ms()), marks);
}

#[track_caller]
fn assert_rollback(result: Result<i64, postgres::Error>) {
    let refusal = refused(result);
    assert_eq!(refusal.sqlstate, "58000", "{refusal:?}");
    assert!(refusal.message.contains(" ms behind the last id"), "{refusal:?}");
}

/// Changes how far the clock may jump, for new sessions.
fn set_guard(server: &Server, value: &str) {
    server.set_config("snowflake_id.max_clock_jump", value);
    server.reload();
}

#[test]
fn a_clock_ten_years_ahead_for_a_moment_does_no_harm() {
    for backup_worker in ["off", "on"] {
        let settings = Server::drawing().set("backup_worker", backup_worker);
        let Some(server) = settings.start_frozen(noon()) else { return };
        let mut session = server.connect();
        let mut ids = session.draw_batch(300);
        server.freeze_clock(noon() + TEN_YEARS_MS);
        assert_jumped(&server, &mut session, TEN_YEARS_MS);
        assert_eq!(session.value("snowflake_last()"), ids[299].to_string());
        // The clock is right again: the next id is drawn at once.
        server.freeze_clock(noon());
        ids.push(session.draw());
        assert_eq!(ids[300], ids[299] + 1);
        server.freeze_clock(noon() + 60_000);
        ids.push(server.connect().draw());
        assert_eq!(start_ms("snowflake", ids[301]), noon() + 60_000);
        assert_eq!(session.mark_ms(), Some(noon() + 61_001));
        assert_ascending(&ids);
    }
}

#[test]
fn an_hour_by_the_clock_is_no_jump_and_two_days_are_one() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    let mut ids = vec![session.draw()];
    // Each step is just below a day, and the clock counts as right after it.
    let mut now = noon();
    for _ in 0..3 {
        now += DAY_MS - 1000;
        server.freeze_clock(now);
        ids.push(session.draw());
        assert_eq!(start_ms("snowflake", *ids.last().unwrap()), now);
    }
    server.freeze_clock(now + DAY_MS + PATIENCE_MS);
    assert_jumped(&server, &mut session, DAY_MS + PATIENCE_MS);

    // The setting at the moment of the draw counts.
    set_guard(&server, "2d");
    ids.push(server.connect().draw());
    now += DAY_MS + PATIENCE_MS;
    set_guard(&server, "1min");
    server.freeze_clock(now + 60_000 + PATIENCE_MS);
    assert_jumped(&server, &mut server.connect(), 60_000 + PATIENCE_MS);
    set_guard(&server, "0");
    ids.push(server.connect().draw());
    assert_eq!(start_ms("snowflake", *ids.last().unwrap()), now + 60_000 + PATIENCE_MS);
    assert_ascending(&ids);
}

/// A clock that is set back, and later set right, has not jumped, however far it was set back.
#[test]
fn a_clock_that_was_set_back_may_come_forward_again() {
    let settings = Server::drawing().set("backup_worker", "on").set("max_clock_jump", "20min");
    let Some(server) = settings.start_frozen(noon()) else { return };
    let mut session = server.connect();
    let mut all = Vec::new();
    // Eight hours, in steps of a quarter.
    for quarter in 0..32 {
        server.freeze_clock(noon() + quarter * 900_000);
        all.push(session.draw());
    }
    let evening = noon() + 31 * 900_000;
    server.freeze_clock(noon() + 60_000);
    // The backup worker draws by that clock, and moves its mark by it.
    let first = all.len();
    all.extend(session.draw_batch(300));
    assert_eq!(worker("snowflake", all[first]), 5 + 512);
    assert!(session.backup_mark_ms().unwrap() - end_ms("snowflake", all[first]) <= MARK_AHEAD_MS);
    server.freeze_clock(evening + 10_000);
    let last = session.draw();
    all.push(last);
    assert_eq!((start_ms("snowflake", last), worker("snowflake", last)), (evening + 10_000, 5));
    // The guard still works.
    server.freeze_clock(evening + TEN_YEARS_MS);
    assert_jumped(&server, &mut session, TEN_YEARS_MS);
    assert_unique(&all);
}

/// A server that has drawn by a clock ten years ahead, because its guard was off. The clock is
/// right again. Returns the ids, too.
fn start_far_ahead() -> Option<(Server, Vec<i64>)> {
    let server = Server::drawing().set("max_clock_jump", "0").start_frozen(noon())?;
    let mut session = server.connect();
    session.batch_execute("CREATE TABLE t (id bigint DEFAULT snowflake_next())").unwrap();
    let mut ids = vec![session.draw()];
    server.freeze_clock(noon() + TEN_YEARS_MS);
    ids.extend(session.draw_batch(300));
    ids.extend(session.ids("INSERT INTO t DEFAULT VALUES RETURNING id").unwrap());
    assert_eq!(start_ms("snowflake", ids[300]), noon() + TEN_YEARS_MS);
    server.freeze_clock(noon() + 10_000);
    Some((server, ids))
}

#[test]
fn without_the_guard_ids_of_the_future_stand_in_the_way_until_the_mark_is_reset() {
    let Some((server, far)) = start_far_ahead() else { return };
    let mut now = noon() + 10_000;
    assert_rollback(server.connect().try_draw());
    // It is refused while its mark is loaded.
    let refusal = refused(server.connect().batch_execute(RESET));
    assert_eq!(refusal.sqlstate, "55000", "{refusal:?}");
    assert!(refusal.hint.as_deref().is_some_and(|hint| hint.contains("estart")), "{refusal:?}");
    assert_rollback(server.connect().try_draw());

    // It is also refused with the worker number that drew the future's ids.
    let mut restart_as = |worker: &str, how: Shutdown| {
        server.stop(how);
        server.set_config("snowflake_id.worker_id", worker);
        now += 10_000;
        server.start_again_at(now);
        now
    };
    for how in [Shutdown::Fast, Shutdown::Immediate] {
        restart_as("5", how);
        let behind_ms = behind_the_mark_ms(&server.refused_draw("SELECT snowflake_next()"));
        assert!((TEN_YEARS_MS - DAY_MS..TEN_YEARS_MS).contains(&behind_ms), "{behind_ms} ms");
        let refusal = refused(server.connect().batch_execute(RESET));
        assert_eq!(refusal.sqlstate, "55000", "{refusal:?}");
        assert!(format!("{refusal:?}").contains("worker"), "{refusal:?}");
    }

    let now = restart_as("6", Shutdown::Fast);
    // A new worker number alone changes nothing. A session that tries to draw does not block the
    // way out.
    behind_the_mark_ms(&server.refused_draw("SELECT snowflake_next()"));
    let mut session = server.connect();
    behind_the_mark_ms(&refused(session.try_draw()));
    session.batch_execute(RESET).unwrap();
    assert!(session.mark_ms() <= Some(0));
    let ids = [vec![session.draw()], server.connect().draw_batch(300)].concat();
    assert!(ids.iter().all(|id| start_ms("snowflake", *id) == now && worker("snowflake", *id) == 6));
    assert_unique(far.iter().chain(&ids));
    // From now on the new mark counts.
    assert_eq!(refused(session.batch_execute(RESET)).sqlstate, "55000");
    server.crash();
    server.start_again_at(now - DAY_MS);
    behind_the_mark_ms(&server.refused_draw("SELECT snowflake_next()"));
    assert_eq!(refused(server.connect().batch_execute(RESET)).sqlstate, "55000");
    server.freeze_clock(now + 10_000);
    let id = server.connect().draw();
    assert!(id > ids[300]);
}

/// With backup workers, a server has two worker numbers, and both have drawn ids of the future.
#[test]
fn neither_of_a_servers_numbers_may_be_kept_when_the_mark_is_reset() {
    let settings = Server::drawing().set("layout", "js53").set("max_clock_jump", "0").set("backup_worker", "on");
    let Some(server) = settings.start_frozen(noon()) else { return };
    server.freeze_clock(noon() + TEN_YEARS_MS);
    let fill = "SELECT snowflake_next() FROM generate_series(1, 70000)";
    let far = server.connect().ids(fill).unwrap();
    let mut now = noon();
    for (number, backup_worker, accepted) in [
        ("5", "on", false),
        ("5", "off", false),
        // The number of the backup worker.
        ("21", "off", false),
        ("6", "on", true),
    ] {
        server.stop(Shutdown::Fast);
        server.set_config("snowflake_id.worker_id", number);
        server.set_config("snowflake_id.backup_worker", backup_worker);
        now += 10_000;
        server.start_again_at(now);
        let mut session = server.connect();
        behind_the_mark_ms(&refused(session.try_draw()));
        if !accepted {
            assert_eq!(refused(session.batch_execute(RESET)).sqlstate, "55000", "{number} {backup_worker}");
            behind_the_mark_ms(&refused(session.try_draw()));
            continue;
        }
        session.batch_execute(RESET).unwrap();
        let ids = session.ids(fill).unwrap();
        assert_unique(far.iter().chain(&ids));
        assert!(ids.iter().all(|id| start_ms("js53", *id) == now));
    }
}

#[test]
fn a_database_whose_mark_is_far_ahead_does_not_stop_another_one() {
    let Some((server, far)) = start_far_ahead() else { return };
    server.connect().batch_execute("CREATE DATABASE other").unwrap();
    let mut other = server.connect_to("other");
    other.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    // They share the server's memory until it is restarted.
    assert_rollback(other.try_draw());
    server.stop(Shutdown::Fast);
    let now = noon() + 20_000;
    server.start_again_at(now);
    // Either may be asked first.
    behind_the_mark_ms(&server.refused_draw("SELECT snowflake_next()"));
    let mut other = server.connect_to("other");
    let ids = other.draw_batch(300);
    assert!(ids.iter().all(|id| start_ms("snowflake", *id) == now));
    assert!(other.mark_ms().unwrap() - end_ms("snowflake", ids[299]) <= MARK_AHEAD_MS);
    behind_the_mark_ms(&server.refused_draw("SELECT snowflake_next()"));
    assert_eq!(start_ms("snowflake", other.draw()), now);
    assert_unique(far.iter().chain(&ids));
    // A session that waits there makes no difference.
    server.set_config("snowflake_id.on_rollback", "wait");
    server.reload();
    let waiting = Running::start(server.connect(), "SELECT snowflake_next()");
    server.wait_until_waiting(waiting.pid);
    server.freeze_clock(now + 5000);
    assert_eq!(start_ms("snowflake", server.connect_to("other").draw()), now + 5000);
    assert!(!waiting.is_over());
    server.connect().batch_execute(&format!("SELECT pg_cancel_backend({})", waiting.pid)).unwrap();
    assert_eq!(refused(waiting.end().1).sqlstate, "57014");
}

#[test]
fn only_who_was_granted_it_may_change_what_is_remembered() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut owner = server.connect();
    let before = owner.draw();
    owner.batch_execute("CREATE ROLE ordinary LOGIN; CREATE ROLE trusted LOGIN").unwrap();
    let advance = format!("SELECT snowflake_advance({})", before + (50 << 22));
    let forced = format!("SELECT snowflake_advance({}, true)", before + (50 << 22));
    let calls = [
        ("snowflake_advance(bigint)", advance.as_str()),
        ("snowflake_advance(bigint, boolean)", forced.as_str()),
        ("snowflake_accept_layout()", "SELECT snowflake_accept_layout()"),
        ("snowflake_reset_mark()", RESET),
    ];
    for (function, call) in calls {
        let mut session = server.connect_as("ordinary");
        let refusal = refused(session.batch_execute(call));
        assert_eq!(refusal.sqlstate, "42501", "{call}: {refusal:?}");
        owner.batch_execute(&format!("GRANT EXECUTE ON FUNCTION {function} TO trusted")).unwrap();
        // They are refused wherever nothing can be written.
        for begin in ["BEGIN READ ONLY", "BEGIN; SET TRANSACTION READ ONLY"] {
            let refusal = refused(server.connect_as("trusted").batch_execute(&format!("{begin}; {call}")));
            assert_eq!(refusal.sqlstate, "25006", "{call}: {refusal:?}");
        }
        let result = server.connect_as("trusted").batch_execute(call);
        if call == RESET {
            // The role is allowed to; only the moment is wrong.
            assert_eq!(refused(result).sqlstate, "55000");
        } else {
            result.unwrap();
        }
        let mut trusted = server.connect_as("trusted");
        assert_eq!(refused(trusted.batch_execute("SELECT setval('snowflake_mark', 1)")).sqlstate, "42501");
    }
    let parallel = "SELECT string_agg(proname || ' ' || proparallel::text || proisstrict::text, ', ' ORDER BY proname)
                    FROM pg_proc WHERE proname IN ('snowflake_advance', 'snowflake_accept_layout', 'snowflake_reset_mark')";
    let expected = ["accept_layout", "advance", "advance", "reset_mark"].map(|name| format!("snowflake_{name} utrue"));
    assert_eq!(owner.value(parallel), expected.join(", "));
    // An id is drawn, at the latest when the clock has reached the mark.
    server.freeze_clock(owner.mark_ms().unwrap());
    assert!(owner.draw() > before + (50 << 22));
}

/// There is no new worker number then, so the operator has to decide that the future's ids may come
/// again. Not while ids are drawn.
#[test]
fn a_layout_without_numbers_can_be_reset_only_after_a_restart() {
    let settings = Server::drawing().set("layout", "mastodon").set("worker_id", "-1").set("max_clock_jump", "0");
    let Some(server) = settings.start_frozen(noon()) else { return };
    server.freeze_clock(noon() + TEN_YEARS_MS);
    let far = server.connect().draw_batch(300);
    server.freeze_clock(noon());
    assert_eq!(refused(server.connect().batch_execute(RESET)).sqlstate, "55000");
    assert_rollback(server.connect().try_draw());
    server.restart_at(noon());
    behind_the_mark_ms(&server.refused_draw("SELECT snowflake_next()"));
    server.connect().batch_execute(RESET).unwrap();
    let ids = server.connect().draw_batch(300);
    assert!(ids.iter().all(|id| start_ms("mastodon", *id) == noon()));
    assert_unique(far.iter().chain(&ids));
    assert_eq!(refused(server.connect().batch_execute(RESET)).sqlstate, "55000");
}
