//! How far `snowflake_advance` reaches: no further ahead of the clock than the clock may jump,
//! unless it is forced. After an advance that went too far, or with a clock that is behind, the
//! refusal of a draw says when ids are drawn again, and what the way out is.
//!
//! `mark.rs` tests what an advance does within that bound. `clock_jump.rs` tests which roles may
//! call it.

use cluster::drawing::{DAY_MS, HOUR_MS, noon};
use cluster::marks::{MARK_AHEAD_MS, MAX_BORROW_MS, behind_the_mark_ms, end_ms, start_ms, worker};
use cluster::{Draw, Marks, Refusal, Server, Shutdown, instant, refused};
use postgres::Client;
use snowflake_core::clock::Utc;
use snowflake_core::id::layout::Layout;

/// The first id of a tick.
fn id_at(layout: &str, instant_ms: i64) -> i64 {
    let layout = Layout::parse(layout).unwrap();
    layout.compose(Some(instant_ms), None, Some(5), 0).unwrap()
}

fn try_advance(session: &mut Client, id: i64) -> Result<(), postgres::Error> {
    session.execute("SELECT snowflake_advance($1)", &[&id]).map(drop)
}

fn force(session: &mut Client, id: i64) {
    session.execute("SELECT snowflake_advance($1, true)", &[&id]).unwrap();
}

/// Asserts that an advance is refused in a message with both times, and changes nothing.
#[track_caller]
fn assert_too_far(session: &mut Client, id: i64, id_ms: i64, now_ms: i64, most_ms: i64) {
    let marks = (session.mark_ms(), session.backup_mark_ms());
    for call in ["snowflake_advance($1)", "snowflake_advance($1, false)"] {
        let refusal = refused(session.execute(&format!("SELECT {call}"), &[&id]));
        assert_eq!(refusal.sqlstate, "22023", "{refusal:?}");
        assert_eq!(refusal.message, format!("id with time {} is too far ahead of the clock", Utc(id_ms)));
        let detail = refusal.detail.as_deref().unwrap_or_default();
        assert!(detail.contains(&Utc(now_ms).to_string()) && detail.contains(&format!(" {most_ms} ms ")), "{detail}");
        assert!(refusal.hint.is_some_and(|hint| hint.contains("snowflake_advance(id, true)")));
    }
    assert_eq!((session.mark_ms(), session.backup_mark_ms()), marks);
}

#[test]
fn the_greatest_number_is_refused_and_the_database_goes_on_drawing() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    let before = session.draw();
    // One such value in a table is enough for `max(id)`.
    session.batch_execute("CREATE TABLE t (id bigint DEFAULT snowflake_next())").unwrap();
    session.batch_execute("INSERT INTO t DEFAULT VALUES; INSERT INTO t VALUES (9223372036854775807)").unwrap();
    let end = instant("2094-09-07T15:47:35.551Z");
    assert_too_far(&mut session, i64::MAX, end, noon(), DAY_MS);
    assert_eq!(refused(session.batch_execute("SELECT snowflake_advance(max(id)) FROM t")).sqlstate, "22023");
    for session in [&mut session, &mut server.connect()] {
        let id = session.draw();
        assert!(id > before);
        assert_eq!(start_ms("snowflake", id), noon());
    }
    // The recipe of docs/several-writers.md.
    session
        .batch_execute("SELECT snowflake_advance(max(id)) FROM t WHERE id < snowflake_min(now() + interval '1 day')")
        .unwrap();
    assert!(session.draw() > before);
}

#[test]
fn the_bound_is_how_far_the_clock_may_jump_and_a_day_where_that_is_anywhere() {
    for (layout, tick_ms) in [("snowflake", 1), ("js53", 1000)] {
        for (setting, most_ms) in [("1d", DAY_MS), ("0", DAY_MS), ("1h", HOUR_MS), ("10d", 10 * DAY_MS)] {
            let settings = Server::drawing().set("layout", layout).set("max_clock_jump", setting);
            let Some(server) = settings.start_frozen(noon()) else { return };
            let mut session = server.connect();
            let beyond = noon() + most_ms + tick_ms;
            assert_too_far(&mut session, id_at(layout, beyond), beyond, noon(), most_ms);
            let last = id_at(layout, noon() + most_ms);
            try_advance(&mut session, last).unwrap();
            assert_eq!(session.mark_ms(), Some(end_ms(layout, last)), "{layout} {setting}");
            // The bound depends on the clock, not on an earlier advance.
            assert_too_far(&mut session, id_at(layout, beyond), beyond, noon(), most_ms);
            server.freeze_clock(noon() + tick_ms);
            try_advance(&mut session, id_at(layout, beyond)).unwrap();
            assert_eq!(session.mark_ms(), Some(beyond + tick_ms), "{layout} {setting}");
        }
    }
}

#[test]
fn what_is_null_advances_nothing() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.draw();
    let mark = session.mark_ms();
    for call in ["NULL", "NULL, true", "9223372036854775807, NULL", "NULL, NULL"] {
        assert_eq!(session.value(&format!("snowflake_advance({call})")), "NULL", "{call}");
    }
    assert_eq!(session.mark_ms(), mark);
    session.draw();
}

#[test]
fn what_is_forced_is_advanced_to_and_ids_are_drawn_again_when_the_clock_is_there() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.draw();
    // Like any advance, it stays when it is rolled back.
    let id = id_at("snowflake", noon() + 30 * DAY_MS);
    session.batch_execute("BEGIN").unwrap();
    force(&mut session, id);
    session.batch_execute("ROLLBACK").unwrap();
    assert_eq!(session.mark_ms(), Some(end_ms("snowflake", id)));
    for session in [&mut session, &mut server.connect()] {
        assert_eq!(behind_the_mark_ms(&refused(session.try_draw())), 30 * DAY_MS + 1);
    }
    server.crash();
    server.start_again_at(noon());
    behind_the_mark_ms(&server.refused_draw("SELECT snowflake_next()"));
    // A server that has drawn would take this step for a jump of the clock.
    server.restart_at(noon() + 30 * DAY_MS);
    let mut session = server.connect();
    assert!(session.draw() > id);
    // Force also works where it is not needed.
    let id = id_at("snowflake", noon() + 30 * DAY_MS + 50);
    force(&mut session, id);
    assert!(session.draw() > id);
}

/// Reads from a refusal when ids are drawn again, and whether it names the way out. It must name an
/// advance as a possible cause.
#[track_caller]
fn told(refusal: &Refusal) -> (i64, bool) {
    let detail = refusal.detail.as_deref().unwrap_or_default();
    let told = detail.split_once("once its clock reaches ").and_then(|(_, rest)| rest.strip_suffix("."));
    let hint = refusal.hint.as_deref().unwrap_or_default();
    assert!(hint.contains("snowflake_advance()"), "{hint}");
    // The hint does not advise a wait of days.
    assert_ne!(hint.contains("\"snowflake_id.on_rollback\""), hint.contains("snowflake_reset_mark()"), "{hint}");
    (instant(told.unwrap_or_else(|| panic!("{refusal:?}"))), hint.contains("snowflake_reset_mark()"))
}

#[test]
fn a_refused_draw_says_when_ids_are_drawn_again_after_an_advance_and_is_right() {
    // Within a minute, waiting is the only advice.
    for (wait_ms, names_the_way_out) in [(30_000, false), (60_000, false), (60_001, true), (3650 * DAY_MS, true)] {
        // Without a guard the clock may reach that instant in one step.
        let Some(server) = Server::drawing().set("max_clock_jump", "0").start_frozen(noon()) else { return };
        let mut session = server.connect();
        session.draw();
        let again_ms = noon() + wait_ms;
        // The clock has to reach the end of the tick, less what may be borrowed.
        let id = id_at("snowflake", again_ms + MAX_BORROW_MS - 1);
        force(&mut session, id);
        for sql in ["SELECT snowflake_next()", "SELECT * FROM snowflake_batch(2)"] {
            let refusal = refused(session.ids(sql));
            assert_eq!(behind_the_mark_ms(&refusal), wait_ms + MAX_BORROW_MS);
            assert_eq!(told(&refusal), (again_ms, names_the_way_out), "{refusal:?}");
        }
        // A start may find a mark as near as this, and waits for it.
        server.freeze_clock(again_ms - MARK_AHEAD_MS - 2);
        assert_eq!(told(&refused(session.try_draw())), (again_ms, false));
        server.freeze_clock(again_ms);
        assert!(session.draw() > id);
    }
}

#[test]
fn a_refused_draw_says_when_ids_are_drawn_again_after_a_clock_set_back_and_is_right() {
    for (back_ms, names_the_way_out) in [(60_100, false), (60_101, true), (HOUR_MS, true)] {
        let Some(server) = Server::drawing().start_frozen(noon()) else { return };
        let mut session = server.connect();
        let before = session.draw();
        server.freeze_clock(noon() - back_ms);
        let refusal = refused(session.try_draw());
        assert_eq!(refusal.message, format!("clock is {back_ms} ms behind the last id"));
        assert_eq!(told(&refusal), (noon() - MAX_BORROW_MS, names_the_way_out), "{refusal:?}");
        server.freeze_clock(noon() - MAX_BORROW_MS);
        assert_eq!(session.draw(), before + 1);
    }
}

/// The way out that the hint names: another worker number, a restart, and a mark that begins anew.
#[test]
fn an_advance_that_went_too_far_has_a_way_out() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.draw();
    force(&mut session, i64::MAX);
    let refusal = refused(session.try_draw());
    let (detail, hint) = (refusal.detail.unwrap(), refusal.hint.unwrap());
    assert!(
        detail.ends_with(". The layout's time ends before the clock gets there, so it has no more ids."),
        "{detail}"
    );
    assert!(hint.contains("snowflake_reset_mark()"), "{hint}");
    drop(session);
    server.stop(Shutdown::Fast);
    server.set_config("snowflake_id.worker_id", "6");
    server.start_again_at(noon());
    let mut session = server.connect();
    session.batch_execute("SELECT snowflake_reset_mark()").unwrap();
    let id = session.draw();
    assert_eq!((start_ms("snowflake", id), worker("snowflake", id)), (noon(), 6));
}
