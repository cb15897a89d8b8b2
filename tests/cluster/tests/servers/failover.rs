//! Failover: an asynchronous standby is promoted under load. Its clock is right or an hour behind,
//! it lags, or it has another layout in its own configuration. The standby gets the mark before the
//! rows, however far it lags.

use std::ops::RangeInclusive;

use cluster::drawing::{HOUR_MS, WORKER, greatest, noon};
use cluster::refusal::assert_refused_as;
use cluster::{
    Draw, Ledger, Load, Marks, Promise, Refusal, Running, Server, assert_unique, faketime_library, refused, skip,
    wait_until,
};
use postgres::Client;
use snowflake_core::id::layout::Layout;

/// By how much a clock that was set back by an hour is behind the mark. The mark runs ahead, which
/// makes it more; the time since the last draw makes it less.
const AN_HOUR: RangeInclusive<i64> = HOUR_MS - 60_000..=HOUR_MS + 1101;

/// A primary and its standby, each with a clock that can be set; the standby's is an hour behind.
/// Without libfaketime it returns `None`, and the test is reported as skipped.
fn primary_and_slow_standby(on_rollback: &str) -> Option<(Server, Server)> {
    if faketime_library().is_none() {
        skip("libfaketime is not installed");
        return None;
    }
    let primary = Server::drawing().set("on_rollback", on_rollback).faketime().start_with_extension();
    let standby = primary.standby().faketime_from("-1h").start();
    Some((primary, standby))
}

#[test]
fn a_promoted_standby_whose_clock_is_behind_draws_nothing_until_it_has_caught_up() {
    let Some((primary, standby)) = primary_and_slow_standby("error") else { return };
    let load = Load::start(&primary, 3);
    load.wait_for(200);
    primary.crash();
    let ledger = load.end();
    standby.promote();

    let behind_ms = ledger.check(&standby, Promise::Held).refused();
    assert!(AN_HOUR.contains(&behind_ms), "{behind_ms}");
    // It is still refused, and the clock is a little less behind.
    assert!(ledger.check(&standby, Promise::Held).refused() <= behind_ms);
    standby.set_clock_offset(0.0);
    let first = ledger.check(&standby, Promise::Held).drawn();
    // The clock is right now, so no id comes again that a client of the primary has seen.
    assert!(first > greatest(&ledger.seen));
}

#[test]
fn a_lagging_standby_continues_above_what_it_has_received() {
    let Some((primary, standby)) = primary_and_slow_standby("error") else { return };
    let load = Load::start(&primary, 3);
    load.wait_for(100);
    let received = standby.cut_off();
    let mut on_primary = primary.connect();
    let mark_ms = on_primary.mark_ms();
    wait_until("the primary to move its mark on", || on_primary.mark_ms() > mark_ms);
    load.wait_for(100);
    primary.crash();
    let ledger = load.end();
    standby.wait_until_replayed(&received);
    standby.promote();

    let mut session = standby.connect();
    let held = ledger.check_held(&mut session, Promise::Held);
    assert!(!held.is_empty() && ledger.stored.iter().any(|id| !held.contains(id)), "the standby lags");
    let behind_ms = ledger.check(&standby, Promise::Held).refused();
    assert!(AN_HOUR.contains(&behind_ms), "{behind_ms}");
    // The standby draws as soon as its clock has passed its own mark. It cannot know how far the
    // primary was.
    standby.set_clock_offset((behind_ms - HOUR_MS + 100) as f64 / 1000.0);
    ledger.check(&standby, Promise::Held).drawn();
}

/// The mark that has reached the standby covers every id that was drawn under it, stored or not.
#[test]
fn what_was_only_seen_does_not_come_again_where_the_mark_has_arrived() {
    let Some((primary, standby)) = primary_and_slow_standby("error") else { return };
    let load = Load::start(&primary, 3);
    load.wait_for(100);
    let ledger = load.end();
    standby.wait_until_replayed(&primary.flushed());
    primary.crash();
    standby.promote();

    let behind_ms = ledger.check(&standby, Promise::Seen).refused();
    // No further than necessary, so the clock is still about where it was when the primary drew.
    standby.set_clock_offset((behind_ms - HOUR_MS) as f64 / 1000.0);
    ledger.check(&standby, Promise::Seen).drawn();
}

/// Each lane has its own mark. A standby whose clock is behind draws in the backup lane only if
/// that lane was never used.
#[test]
fn a_promoted_standby_draws_with_the_backup_worker_only_above_that_ones_mark() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    for backup_used in [false, true] {
        let settings = Server::drawing().set("layout", "js53").set("backup_worker", "on");
        let primary = settings.faketime().start_with_extension();
        let standby = primary.standby().faketime_from("-1h").start();
        // At its first load a server counts what it may borrow as drawn, and then the backup worker
        // would serve.
        primary.load_first();
        primary.set_clock_offset(10.0);
        let load = Load::start(&primary, 3);
        load.wait_for(100);
        if backup_used {
            // The primary lane is further ahead of the clock than it may borrow.
            primary.set_clock_offset(5.0);
            let mut session = primary.connect();
            wait_until("the backup worker to serve", || session.backup_mark_ms().is_some());
            load.wait_for(100);
        }
        primary.crash();
        let ledger = load.end();
        standby.promote();
        standby.load_first();

        let js53 = Layout::parse("js53").unwrap();
        let worker = |id: i64| js53.parts(id).unwrap().worker;
        let backup = Some(WORKER + 16);
        assert_eq!(ledger.seen.iter().any(|id| worker(*id) == backup), backup_used);
        let next = ledger.check(&standby, Promise::Held);
        if backup_used {
            next.refused();
        } else {
            assert_eq!(worker(next.drawn()), backup);
        }
        standby.set_clock_offset(12.0);
        assert_eq!(worker(ledger.check(&standby, Promise::Held).drawn()), Some(WORKER));
    }
}

/// Every prefix of the WAL that holds a row holds the mark that covers it. The clock jumps by two
/// seconds again and again, so the mark must move before each next id. Replay is paused at
/// arbitrary points.
#[test]
fn wherever_replay_stops_the_mark_covers_every_row() {
    let Some((primary, standby)) = primary_and_slow_standby("error") else { return };
    let load = Load::start(&primary, 3);
    let (mut session, ledger) = (standby.connect(), Ledger::default());
    let mut held = 0;
    for stop in 1..=40 {
        primary.set_clock_offset(f64::from(2 * stop));
        load.wait_for(10);
        session.batch_execute("SELECT pg_wal_replay_pause()").unwrap();
        wait_until("the pause", || session.value("pg_get_wal_replay_pause_state()") == "paused");
        if session.value("to_regclass('ledger') IS NOT NULL") == "true" {
            held = ledger.check_held(&mut session, Promise::Held).len();
        }
        session.batch_execute("SELECT pg_wal_replay_resume()").unwrap();
    }
    assert!(held > 700, "only {held} rows have reached the standby");
    let last = primary.flushed();
    let ledger = load.end();
    standby.wait_until_replayed(&last);
    ledger.check_held(&mut session, Promise::Held);
}

#[test]
fn a_session_that_is_open_on_the_standby_draws_after_the_promotion() {
    let primary = Server::drawing().start_with_extension();
    let standby = primary.standby().start();
    // It shows before the promotion whether it can draw.
    assert!(standby.log().contains("snowflake_id: worker 5, layout \"snowflake\" ("), "{}", standby.log());
    let load = Load::start(&primary, 3);
    load.wait_for(100);
    let mut session = standby.connect();
    let next = session.prepare("SELECT snowflake_next()").unwrap();
    for _ in 0..2 {
        let refusal = refused(session.query(&next, &[]));
        assert_refused_as(&refusal, "25006", "cannot execute snowflake_next() during recovery");
        let refusal = refused(session.ids("SELECT snowflake_batch(2)"));
        assert_refused_as(&refusal, "25006", "cannot execute snowflake_batch() during recovery");
        let refusal = refused(session.ids("SELECT 1 FROM snowflake_advance(1)"));
        assert_refused_as(&refusal, "25006", "cannot execute snowflake_advance() during recovery");
    }
    primary.stop(cluster::Shutdown::Immediate);
    let ledger = load.end();
    standby.promote();

    let id: i64 = session.query_one(&next, &[]).unwrap().get(0);
    assert!(id > greatest(&ledger.seen));
    let next = ledger.check(&standby, Promise::Held).drawn();
    assert!(next > id && session.draw() > next);
}

#[test]
fn a_standby_notices_that_the_extension_was_made_anew() {
    let primary = Server::drawing().start_with_extension();
    let mut on_primary = primary.connect();
    on_primary.draw();
    let standby = primary.standby().start();
    let mut session = standby.connect();
    // This session has looked up the sequences before.
    assert_ne!(session.value("snowflake_timestamp(4194304)"), "NULL");
    on_primary.batch_execute("DROP EXTENSION snowflake_id").unwrap();
    standby.wait_until_replayed(&primary.flushed());
    assert_eq!(refused(session.query("SELECT snowflake_timestamp(4194304)", &[])).sqlstate, "42883");
    on_primary.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    let load = Load::start(&primary, 2);
    load.wait_for(50);
    let ledger = load.end();
    standby.wait_until_replayed(&primary.flushed());
    assert_ne!(session.value("snowflake_timestamp(4194304)"), "NULL");
    primary.crash();
    standby.promote();
    let id = session.draw();
    assert!(id > greatest(&ledger.seen));
    ledger.check(&standby, Promise::Seen).drawn();
}

/// Layouts and settings with which a promotion takes less time than a tick, or than the time that
/// may have been borrowed.
const QUICK: [(&str, &str); 3] = [
    ("js53", "100ms"),
    ("snowflake", "10s"),
    ("time:41 worker:10 sequence:4 unit:1ms epoch:2025-01-01T00:00:00Z", "100ms"),
];

/// A primary with two databases that have drawn, and its standby, on the same frozen clock.
fn two_databases_and_a_standby(layout: &str, max_borrow: &str) -> Option<(Server, Server)> {
    let settings = Server::drawing().set("layout", layout).set("max_borrow", max_borrow);
    let primary = settings.start_frozen(noon() - 60_000)?;
    primary.connect().batch_execute("CREATE DATABASE other").unwrap();
    primary.connect_to("other").batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    for database in ["postgres", "other"] {
        primary.connect_to(database).draw();
    }
    let standby = primary.standby().faketime_from("-20y").start();
    standby.freeze_clock(noon() - 60_000);
    standby.wait_until_replayed(&primary.flushed());
    Some((primary, standby))
}

/// Draws ids in a database as soon as they can be drawn at noon, and returns them. If they have to
/// wait, the clock goes on by two ticks, which are enough in each layout.
fn draw_from_noon_on(server: &Server, database: &str, layout: &str) -> Vec<i64> {
    let drawing = Running::start(server.connect_to(database), "SELECT * FROM snowflake_batch(20)");
    if server.waits_for_the_clock(&drawing) {
        server.freeze_clock_and_wake(noon() + 2 * Layout::parse(layout).unwrap().unit().ms(), &drawing);
    }
    drawing.end().1.unwrap()
}

/// A standby's shared memory is as old as its start. It learns what the primary has drawn since
/// then from the clock and from the databases' marks, each of which is read only when its database
/// draws.
#[test]
fn a_promoted_standby_repeats_no_id_of_another_database_within_the_tick() {
    for (layout, max_borrow) in QUICK {
        let Some((primary, standby)) = two_databases_and_a_standby(layout, max_borrow) else { return };
        primary.freeze_clock(noon());
        let seen = primary.connect().draw_batch(20);
        standby.wait_until_replayed(&primary.flushed());
        primary.crash();
        standby.freeze_clock(noon());
        standby.promote();
        let ids = draw_from_noon_on(&standby, "other", layout);
        assert_unique(seen.iter().chain(&ids));
        assert!(ids[0] > greatest(&seen), "{layout}: {} after {}", ids[0], greatest(&seen));
    }
}

/// G2 for a clock that is not behind: neither the mark nor the rows have arrived.
#[test]
fn a_promoted_standby_on_the_same_clock_repeats_no_id_that_a_client_has_seen() {
    for (layout, max_borrow) in QUICK {
        let Some((primary, standby)) = two_databases_and_a_standby(layout, max_borrow) else { return };
        let received = standby.cut_off();
        primary.freeze_clock(noon());
        let seen = primary.connect().draw_batch(20);
        primary.crash();
        standby.wait_until_replayed(&received);
        standby.freeze_clock(noon());
        standby.promote();
        let ids = draw_from_noon_on(&standby, "postgres", layout);
        assert_unique(seen.iter().chain(&ids));
        assert!(ids[0] > greatest(&seen), "{layout}: {} after {}", ids[0], greatest(&seen));
    }
}

/// The server waits once for the tick of what can have been drawn before the promotion, not once in
/// each database.
#[test]
fn only_the_first_draw_after_a_promotion_waits_for_a_tick() {
    let Some((primary, standby)) = two_databases_and_a_standby("js53", "100ms") else { return };
    primary.crash();
    standby.freeze_clock(noon());
    standby.promote();
    let (mut first, ids) = standby.draw_through_wait("SELECT snowflake_next()", noon() + 1000);
    let other = Running::start(standby.connect_to("other"), "SELECT snowflake_next()");
    assert!(!standby.waits_for_the_clock(&other), "the second database waits, too");
    let other = other.end().1.unwrap();
    assert!(ids[0] < other[0] && other[0] < first.draw());
}

/// The first session moves the mark ahead of the clock. The others draw for the first time, too.
/// They must not take the new mark for what the primary has drawn, and wait for it.
#[test]
fn all_sessions_draw_as_soon_as_the_first_one_does() {
    let Some((primary, standby)) = primary_and_slow_standby("error") else { return };
    let load = Load::start(&primary, 2);
    load.wait_for(50);
    primary.crash();
    let ledger = load.end();
    // Each flush takes a tenth of a second, so all sessions come while the first one is moving the
    // mark.
    standby.set_config("fsync", "on");
    standby.set_config("commit_delay", "100000");
    standby.set_config("commit_siblings", "0");
    standby.reload();
    standby.promote();
    let mark_ms = standby.connect().mark_ms().unwrap();
    standby.freeze_clock_after_first_load(mark_ms);
    let sessions: Vec<_> = (0..12).map(|_| standby.connect()).collect();
    let draw = |session| Running::start(session, "SELECT snowflake_next()");
    let drawing: Vec<_> = sessions.into_iter().map(draw).collect();
    let mut observer = standby.connect();
    wait_until("all sessions to draw", || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension'";
        assert_eq!(observer.value(waiting), "0", "the clock has come as far as it must, and a session waits for it");
        drawing.iter().all(Running::is_over)
    });
    let ids: Vec<i64> = drawing.into_iter().flat_map(|one| one.end().1.unwrap()).collect();
    assert_eq!(assert_unique(&ids), 12);
    assert!(ids.iter().min() > ledger.seen.iter().max());
}

/// Functions that read or make an id by the layout in the configuration.
const BY_THE_SETTING: [&str; 6] = [
    "SELECT snowflake_timestamp(4194304)",
    "SELECT snowflake_parse(4194304)",
    "SELECT * FROM snowflake_parse(4194304)",
    "SELECT snowflake_format(4194304)",
    "SELECT snowflake_compose('2026-06-01 12:00Z', 5, 0)",
    "SELECT snowflake_min('2026-06-01 12:00Z')",
];

/// The same with the layout of the ids as an argument.
const BY_ARGUMENT: [&str; 5] = [
    "snowflake_timestamp(4194304, 'snowflake')",
    "snowflake_parse(4194304, 'snowflake')",
    "snowflake_format(4194304, 'snowflake')",
    "snowflake_compose('2026-06-01 12:00Z', 5, 0, 0, 'snowflake')",
    "snowflake_min('2026-06-01 12:00Z', 'snowflake')",
];

fn assert_other_layout(refusal: &Refusal) {
    let message = "layout \"leaf\" is not the one that this database's ids were drawn with";
    assert_eq!(refusal.sqlstate, "55000", "{refusal:?}");
    assert!(refusal.message.starts_with(message), "{refusal:?}");
    assert!(refusal.detail.as_deref().is_some_and(|detail| detail.contains("\"snowflake\"")), "{refusal:?}");
    assert!(refusal.hint.as_deref().is_some_and(|hint| hint.contains("snowflake_accept_layout()")), "{refusal:?}");
}

fn assert_reads_only_by_argument(session: &mut Client) {
    for sql in BY_THE_SETTING {
        assert_other_layout(&refused(session.query(sql, &[])));
    }
    for sql in BY_ARGUMENT {
        assert_ne!(session.value(sql), "NULL");
    }
}

/// `leaf` has the fields of `snowflake` and another epoch: without a check, the time of every
/// stored id would be 14 years wrong.
#[test]
fn a_standby_with_another_layout_reads_nothing_by_it_and_draws_nothing_after_its_promotion() {
    let primary = Server::drawing().start_with_extension();
    let standby = primary.standby().set("layout", "leaf").start();
    let load = Load::start(&primary, 2);
    load.wait_for(50);
    let before = primary.flushed();
    standby.wait_until_replayed(&before);

    let mut session = standby.connect();
    assert_reads_only_by_argument(&mut session);
    assert_refused_as(
        &refused(session.query("SELECT snowflake_accept_layout()", &[])),
        "25006",
        "cannot execute snowflake_accept_layout() during recovery",
    );
    assert_eq!(refused(session.try_draw()).sqlstate, "25006");

    primary.crash();
    let ledger = load.end();
    standby.promote();
    for session in [&mut session, &mut standby.connect()] {
        assert_reads_only_by_argument(session);
        assert_other_layout(&refused(session.try_draw()));
        assert_other_layout(&refused(session.ids("SELECT snowflake_batch(2)")));
    }
    ledger.check_held(&mut session, Promise::Held);

    let mut other = standby.connect();
    other.batch_execute("SELECT snowflake_accept_layout()").unwrap();
    for session in [&mut session, &mut other, &mut standby.connect()] {
        let id = session.draw();
        assert_eq!(session.value(&format!("(snowflake_parse({id})).worker_id")), "5");
        let late = format!("abs(extract(epoch FROM clock_timestamp() - snowflake_timestamp({id}))) < 60");
        assert_eq!(session.value(&late), "true");
    }
}
