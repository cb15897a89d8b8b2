//! Copies of a database other than standbys: point-in-time recovery, base backups, `pg_rewind`,
//! dumps, CREATE DATABASE.
//!
//! Each copy starts with its clock an hour behind. By its clock alone it would draw ids that it
//! holds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cluster::drawing::noon;
use cluster::marks::worker;
use cluster::{
    Draw, Ledger, Load, Marks, Promise, Running, Server, Shutdown, assert_ascending, faketime_library, refused, skip,
    wait_until,
};
use postgres::Client;

/// Reports the test as skipped where libfaketime is not installed.
fn no_clock_to_set() -> bool {
    let missing = faketime_library().is_none();
    if missing {
        skip("libfaketime is not installed");
    }
    missing
}

/// Checks a copy whose clock is an hour behind: it draws nothing until its clock is right.
#[track_caller]
fn check_with_a_slow_clock(ledger: &Ledger, copy: &Server, database: &str, promise: Promise) {
    let behind_ms = ledger.check_in(copy, database, promise).refused();
    assert!((3_480_000..=3_601_101).contains(&behind_ms), "{behind_ms}");
    copy.set_clock_offset(0.0);
    let first = ledger.check_in(copy, database, promise).drawn();
    // With a right clock, no id comes again that any client has seen.
    assert!(ledger.seen.iter().all(|id| *id < first));
}

// Recovery to a point

/// The points in the archive of `server` at which a record of a sequence begins, in order. There
/// the mark was moved.
fn marks_moved(server: &Server, from: &str, to: &str) -> Vec<String> {
    let mut waldump: Command = server.client("pg_waldump");
    waldump.args(["--rmgr=Sequence", "--start", from, "--end", to, "--path"]).arg(server.data_dir().join("pg_wal"));
    let output = waldump.output().expect("pg_waldump runs");
    let text = String::from_utf8(output.stdout).expect("pg_waldump prints text");
    let lsn = |line: &str| Some(line.split_once("lsn: ")?.1.split_once(',')?.0.to_owned());
    text.lines().filter_map(lsn).collect()
}

/// Recovers to arbitrary points, and to points right before and after a move of the mark.
#[test]
fn a_server_recovered_to_any_point_continues_above_what_it_holds() {
    if no_clock_to_set() {
        return;
    }
    let mut clock = -60.0;
    let primary = Server::drawing().archive().faketime_from("-60s").start_with_extension();
    let load = Load::start(&primary, 3);
    load.wait_for(30);
    let backup = primary.base_backup();
    let mut session = primary.connect();
    let mut insert_lsn = || session.value("pg_current_wal_insert_lsn()");
    let mut points = vec![insert_lsn()];
    for _ in 0..3 {
        // The mark must be moved before the next id.
        clock += 2.0;
        primary.set_clock_offset(clock);
        load.wait_for(100);
        points.push(insert_lsn());
    }
    let ledger = load.end();
    let moved = marks_moved(&primary, &points[1], &points[2]);
    assert!(!moved.is_empty(), "the mark was moved between {} and {}", points[1], points[2]);
    primary.archive_now();
    primary.stop(Shutdown::Fast);

    let mut held = Vec::new();
    for (point, inclusive) in [(&points[1], "on"), (&moved[0], "off"), (&moved[0], "on"), (&points[3], "on")] {
        let copy = backup
            .recovered_to(&primary, point)
            .config("recovery_target_inclusive", inclusive)
            .faketime_from("-1h")
            .start();
        copy.wait_until_primary();
        held.push(ledger.check_held(&mut copy.connect(), Promise::Held).len());
        check_with_a_slow_clock(&ledger, &copy, "postgres", Promise::Held);
    }
    assert!(held.is_sorted() && held[0] > 100 && held[3] > held[2] + 100, "each copy holds more: {held:?}");
}

#[test]
fn a_base_backup_taken_under_load_continues_above_what_it_holds() {
    if no_clock_to_set() {
        return;
    }
    let primary = Server::drawing().start_with_extension();
    let load = Load::start(&primary, 3);
    load.wait_for(100);
    let backup = primary.base_backup();
    load.wait_for(100);
    let ledger = load.end();
    // The copy takes over the primary's worker number.
    primary.stop(Shutdown::Fast);

    let copy = backup.alone().faketime_from("-1h").start();
    let held = ledger.check_held(&mut copy.connect(), Promise::Held);
    assert!(held.len() >= 300 && held.len() < ledger.stored.len());
    check_with_a_slow_clock(&ledger, &copy, "postgres", Promise::Held);
}

/// The standby takes over. The old primary is rewound, follows it, and takes over again.
#[test]
fn a_rewound_primary_continues_above_what_its_successor_has_drawn() {
    if no_clock_to_set() {
        return;
    }
    // pg_rewind needs to know which pages have changed, and needs the WAL since before the
    // histories diverged.
    let settings = Server::drawing().config("wal_log_hints", "on").config("wal_keep_size", "160MB");
    let first = settings.start_with_extension();
    let second = first.standby().start();
    let load = Load::start(&first, 2);
    load.wait_for(50);
    let received = second.cut_off();
    // The successor never receives these ids.
    load.wait_for(50);
    first.crash();
    let lost = load.end();
    second.wait_until_replayed(&received);
    second.promote();
    lost.check(&second, Promise::Held).drawn();

    let load = Load::start(&second, 2);
    load.wait_for(100);
    let ledger = load.end();
    first.rewind_to(&second);
    first.follow(&second);
    first.use_faketime(true);
    first.set_clock("-1h");
    first.start_again();
    first.wait_until_replayed(&second.flushed());
    second.stop(Shutdown::Fast);
    first.promote();

    let held = ledger.check_held(&mut first.connect(), Promise::Seen);
    assert!(lost.stored.iter().any(|id| !held.contains(id)), "nothing was lost in the failover");
    check_with_a_slow_clock(&ledger, &first, "postgres", Promise::Seen);
}

// Dumps

const OWNER: &str = "CREATE ROLE owner LOGIN";

/// A database whose owner is not a superuser. Only a superuser can create the extension in it.
fn create_owned_database(server: &Server) {
    server.connect().batch_execute(OWNER).unwrap();
    server.connect().batch_execute("CREATE DATABASE d OWNER owner").unwrap();
    server.connect_to("d").batch_execute("CREATE EXTENSION snowflake_id").unwrap();
}

#[test]
fn a_dump_by_the_owner_restored_into_a_fresh_server_carries_the_mark() {
    if no_clock_to_set() {
        return;
    }
    let source = Server::drawing().start_with_extension();
    create_owned_database(&source);
    let load = Load::start_in(&source, "d", 2);
    source.connect_to("d").batch_execute("ALTER TABLE ledger OWNER TO owner").unwrap();
    load.wait_for(100);
    // While others draw, and as a role that may not move the mark.
    let dump = source.dump("d", "owner", &[]);
    load.wait_for(100);
    let ledger = load.end();

    let fresh = Server::drawing().faketime_from("-1h").start();
    fresh.connect().batch_execute(OWNER).unwrap();
    fresh.connect().batch_execute("CREATE DATABASE d OWNER owner").unwrap();
    fresh.restore(&dump, "d", &[]);
    let held = ledger.check_held(&mut fresh.connect_to("d"), Promise::Held);
    assert!(held.len() >= 200 && held.len() < ledger.stored.len());
    check_with_a_slow_clock(&ledger, &fresh, "d", Promise::Held);
}

/// A role that may not set the sequences restores rows without a mark. docs/operate.md says what a
/// superuser has to do then.
#[test]
fn after_a_restore_by_the_owner_a_superuser_puts_the_mark_up() {
    if no_clock_to_set() {
        return;
    }
    let source = Server::drawing().start_with_extension();
    create_owned_database(&source);
    source
        .connect_to("d")
        .batch_execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_next(), n int);
             ALTER TABLE orders OWNER TO owner; INSERT INTO orders (n) SELECT generate_series(1, 10)",
        )
        .unwrap();
    let dump = source.dump("d", "owner", &[]);

    let server = Server::drawing().faketime_from("-1h").start();
    create_owned_database(&server);
    let mut psql = server.client("psql");
    let restored = psql.args(["--no-psqlrc", "--username=owner", "--dbname=d", "--file"]).arg(&dump).output().unwrap();
    let errors = String::from_utf8_lossy(&restored.stderr);
    assert!(restored.status.success() && errors.contains("permission denied for sequence snowflake_mark"), "{errors}");

    // Without the call the server could draw ids again that it holds.
    server.connect().batch_execute("CREATE DATABASE without TEMPLATE d").unwrap();
    let greatest: i64 = server.connect_to("d").value("SELECT max(id) FROM orders").parse().unwrap();
    assert!(server.connect_to("without").draw() < greatest);

    let mut session = server.connect_to("d");
    assert_eq!(session.value("SELECT count(*) FROM orders"), "10");
    session.batch_execute("SELECT snowflake_advance(max(id)) FROM orders").unwrap();
    assert_eq!(refused(session.try_draw()).sqlstate, "58000");
    server.set_clock_offset(0.0);
    assert!(session.draw() > greatest);
}

/// What a dump carries, as text. (A restore raises the backup lane's mark to the primary's, because
/// the worker numbers may differ.)
fn sequences(session: &mut Client) -> String {
    session.value(
        "SELECT string_agg(format('%s %s', sequencename, last_value), ', ' ORDER BY sequencename) FROM pg_sequences
         WHERE sequencename IN ('snowflake_mark', 'snowflake_mark_identity', 'snowflake_mark_layout')",
    )
}

/// The restored mark is an hour ahead of the server's. The server must notice it before the next
/// id, also in a session that has drawn already, whether the dump sets the existing sequences or
/// creates the extension again.
#[test]
fn a_dump_with_a_higher_mark_restored_into_a_server_that_draws_counts_at_once() {
    if no_clock_to_set() {
        return;
    }
    let source = Server::drawing().start_with_extension();
    create_owned_database(&source);
    let load = Load::start_in(&source, "d", 2);
    load.wait_for(100);
    let ledger = load.end();
    let source_sequences = sequences(&mut source.connect_to("d"));

    let anew: (&[&str], &[&str]) = (&["--clean", "--if-exists"], &["--single-transaction"]);
    for (dump_options, restore_options) in [(&[][..], &[][..]), anew] {
        let dump = source.dump("d", "postgres", dump_options);
        let server = Server::drawing().faketime_from("-1h").start();
        create_owned_database(&server);
        let mut open = server.connect_to("d");
        let mut drawn = vec![open.draw()];
        drawn.extend(open.draw_batch(100));
        server.restore(&dump, "d", restore_options);
        let refusal = refused(open.try_draw());
        assert_eq!(refusal.sqlstate, "58000", "{refusal:?}");
        assert_eq!(sequences(&mut open), source_sequences, "nothing was drawn, so nothing has moved");
        check_with_a_slow_clock(&ledger, &server, "d", Promise::Seen);
        assert_ascending(&[drawn, vec![open.draw()]].concat());
    }
}

/// The dump holds the layout that its ids were drawn with. `leaf` would read their times 14 years
/// wrong.
#[test]
fn a_dump_restored_into_a_server_with_another_layout_is_not_read_or_continued_by_it() {
    let source = Server::drawing().start_with_extension();
    create_owned_database(&source);
    let load = Load::start_in(&source, "d", 2);
    load.wait_for(50);
    let ledger = load.end();
    let dump = source.dump("d", "postgres", &[]);
    for draws_before in [true, false] {
        let server = Server::drawing().set("layout", "leaf").start();
        create_owned_database(&server);
        let mut open = server.connect_to("d");
        if draws_before {
            open.draw();
        }
        server.restore(&dump, "d", &[]);
        for session in [&mut open, &mut server.connect_to("d")] {
            for sql in ["SELECT snowflake_next()", "SELECT id FROM ledger WHERE snowflake_timestamp(id) < now()"] {
                let refusal = refused(session.ids(sql));
                assert_eq!(refusal.sqlstate, "55000", "{refusal:?}");
                assert!(refusal.message.starts_with("layout \"leaf\" is not the one"), "{refusal:?}");
            }
        }
        ledger.check_held(&mut open, Promise::Seen);
    }
}

/// When a session wakes up from a wait for the clock, what it knew before is out of date.
#[test]
fn a_session_that_waits_for_the_clock_notices_that_a_dump_was_restored() {
    let Some(source) = Server::drawing().start_frozen(noon() + 500) else { return };
    create_owned_database(&source);
    let load = Load::start_in(&source, "d", 2);
    load.wait_for(100);
    let ledger = load.end();
    let dump = source.dump("d", "postgres", &[]);

    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    create_owned_database(&server);
    // More ids than can be borrowed.
    let waiting = Running::start(server.connect_to("d"), "SELECT snowflake_next() FROM generate_series(1, 500000)");
    server.wait_until_waiting(waiting.pid);
    server.restore(&dump, "d", &["--single-transaction"]);
    // The session could go on without the dump. The clock is still within the present mark.
    server.freeze_clock(noon() + 200);
    let (mut session, ids) = waiting.end();
    let refusal = refused(ids);
    assert_eq!(refusal.sqlstate, "58000", "{refusal:?}");
    assert_eq!(refused(session.try_draw()).sqlstate, "58000");
    server.freeze_clock(noon() + 5000);
    ledger.check_in(&server, "d", Promise::Seen).drawn();
}

/// The restored mark is an hour behind the server's. The server must not use it, and must correct
/// it, or ids would come again after a crash.
#[test]
fn a_dump_with_a_lower_mark_restored_into_a_server_that_draws_does_not_take_its_mark_back() {
    if no_clock_to_set() {
        return;
    }
    let source = Server::drawing().faketime_from("-1h").start();
    create_owned_database(&source);
    let load = Load::start_in(&source, "d", 2);
    load.wait_for(100);
    let restored = load.end();
    let dump = source.dump("d", "postgres", &[]);

    let server = Server::drawing().faketime().start();
    create_owned_database(&server);
    let load = Load::start_in(&server, "d", 2);
    load.wait_for(100);
    let mut ledger = load.end();
    let mut open = server.connect_to("d");
    let mut ids = vec![open.draw()];
    let mark_ms = open.mark_ms();
    open.batch_execute("DROP TABLE ledger").unwrap();
    server.restore(&dump, "d", &[]);
    // The mark is corrected already, because the server may crash before the next id.
    assert!(mark_ms.is_some() && open.mark_ms() >= mark_ms);
    ids.push(open.draw());
    ids.extend(open.draw_batch(300));
    assert_ascending(&ids);
    assert!(ledger.seen.iter().all(|id| *id < ids[0]));

    // The rows that clients stored here were dropped, but the ids that they have seen still count.
    ledger.stored.clear();
    ledger.seen.extend(ids);
    ledger.add(restored);
    server.crash();
    server.set_clock("-1h");
    server.start_again();
    check_with_a_slow_clock(&ledger, &server, "d", Promise::Seen);
}

/// The restored rows are above the ids of this server, but the restored mark is lower than the one
/// in use here.
#[test]
fn a_dump_with_a_lower_mark_and_higher_ids_counts_too() {
    let Some(source) = Server::drawing().start_frozen(noon()) else { return };
    create_owned_database(&source);
    source.connect_to("d").draw();
    // Less than half of the mark is used up, so it does not move.
    source.freeze_clock(noon() + 400);
    let load = Load::start_in(&source, "d", 2);
    load.wait_for(50);
    let ledger = load.end();
    let dump = source.dump("d", "postgres", &[]);

    let Some(server) = Server::drawing().start_frozen(noon() + 200) else { return };
    create_owned_database(&server);
    let mut open = server.connect_to("d");
    let drawn = open.draw();
    assert!(ledger.stored.iter().all(|id| drawn < *id));
    assert!(open.mark_ms() > source.connect_to("d").mark_ms());
    server.restore(&dump, "d", &[]);
    let waiting = Running::start(open, "SELECT snowflake_next()");
    server.wait_until_waiting(waiting.pid);
    server.freeze_clock(noon() + 1200);
    let ids = waiting.end().1.unwrap();
    assert!(ledger.seen.iter().all(|id| *id < ids[0]));
    ledger.check_in(&server, "d", Promise::Seen).drawn();
}

/// Like `pg_restore --jobs`, several sessions set the sequences at once, in a database where
/// nothing was drawn.
#[test]
fn no_mark_is_lost_when_several_sessions_restore_a_dump() {
    let server = Server::drawing().start_with_extension();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = server.connect();
            // SeqCst: a plain flag.
            while !done.load(Ordering::SeqCst) {
                session.batch_execute("SELECT setval('snowflake_mark_identity', 7)").unwrap();
            }
        });
        let restore = catch_unwind(AssertUnwindSafe(|| {
            let mut session = server.connect();
            for mark_ms in 1..=1000 {
                session.batch_execute(&format!("SELECT setval('snowflake_mark', {mark_ms})")).unwrap();
                let kept = "SELECT greatest(m.last_value, l.last_value) FROM snowflake_mark m, snowflake_mark_local l";
                assert_eq!(session.ids(kept).unwrap(), [mark_ms]);
            }
        }));
        done.store(true, Ordering::SeqCst);
        restore.unwrap();
    });
}

/// The end of a transaction checks the sequences only if the transaction has called `setval`, in
/// any way that SQL permits.
#[test]
fn a_mark_that_is_set_back_is_put_up_again_at_the_commit_however_setval_was_called() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    session.draw();
    session
        .batch_execute(
            "CREATE FUNCTION set_back(n bigint) RETURNS bigint LANGUAGE plpgsql AS
                 $$ DECLARE was bigint; BEGIN was := setval('snowflake_mark', n); RETURN was; END $$;
             CREATE FUNCTION set_in_sql(n bigint) RETURNS bigint LANGUAGE sql AS $$ SELECT setval('snowflake_mark', n, true) $$;
             CREATE OPERATOR <<< (FUNCTION = setval, LEFTARG = regclass, RIGHTARG = bigint);
             CREATE TABLE t (n bigint, was bigint DEFAULT setval('snowflake_mark', 5));
             PREPARE set_prepared(bigint) AS SELECT setval('snowflake_mark', $1)",
        )
        .unwrap();
    for sql in [
        "SELECT setval('snowflake_mark', 1)",
        "SELECT * FROM setval('snowflake_mark', 1, true)",
        "BEGIN; SAVEPOINT s; SELECT setval('snowflake_mark', 1); RELEASE s; COMMIT",
        "BEGIN; SAVEPOINT s; SELECT setval('snowflake_mark', 1); ROLLBACK TO s; COMMIT",
        "SELECT set_back(1)",
        "SELECT set_back(2)",
        "SELECT set_in_sql(1)",
        "SELECT 'snowflake_mark'::regclass <<< 1::bigint",
        "INSERT INTO t (n) VALUES (1)",
        "EXECUTE set_prepared(1)",
        "EXECUTE set_prepared(2)",
        "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT setval('snowflake_mark', 1); COMMIT; CLOSE c",
        "COPY (SELECT setval('snowflake_mark', 1)) TO '/dev/null'",
        // The second transaction of a CALL uses expressions that the first has prepared.
        "DO $$ DECLARE was bigint; now bigint; BEGIN
             FOR n IN 1..3 LOOP
                 was := setval('snowflake_mark', n);
                 COMMIT;
                 SELECT last_value INTO now FROM snowflake_mark;
                 IF now < 1000 THEN RAISE EXCEPTION 'round %', n; END IF;
             END LOOP; END $$",
    ] {
        let before_ms = session.mark_ms();
        session.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert!(session.mark_ms() >= before_ms, "{sql}: {:?} after {before_ms:?}", session.mark_ms());
    }
}

/// A restore sets the mark back, one sequence at a time, whether or not it commits, and whether or
/// not anything was drawn since the start. The mark must be correct afterwards.
#[test]
fn a_restore_that_sets_the_mark_back_never_takes_an_id_back() {
    let ways: [(&str, &[&str]); 5] = [
        ("rolled back", &["BEGIN; SELECT setval('snowflake_mark', 1), setval('snowflake_mark_backup', 1); ROLLBACK"]),
        ("cut off by a crash", &["BEGIN; SELECT setval('snowflake_mark', 1), setval('snowflake_mark_backup', 1)"]),
        ("each for itself", &["SELECT setval('snowflake_mark', 1)", "SELECT setval('snowflake_mark_backup', 1)"]),
        (
            "of a database in which nothing was drawn",
            &[
                "SELECT setval('snowflake_mark', 0, false)",
                "SELECT setval('snowflake_mark_backup', 0, false)",
                "SELECT setval('snowflake_mark_identity', 0, false)",
                "SELECT setval('snowflake_mark_layout', 0, false)",
            ],
        ),
        ("twice", &["SELECT setval('snowflake_mark_backup', 1)", "SELECT setval('snowflake_mark_backup', 2)"]),
    ];
    for since_the_start in [true, false] {
        let settings = Server::drawing().set("layout", "js53").set("backup_worker", "on").set("max_borrow", "0");
        let Some(server) = settings.start_frozen(noon()) else { return };
        let mut now = noon();
        for (way, restore) in ways {
            // The backup worker draws too, because the clock is set back.
            let primary = server.connect().draw();
            server.freeze_clock(now - 5000);
            let backup = server.connect().draw();
            assert_eq!((worker("js53", primary), worker("js53", backup)), (5, 21), "{way}");
            if !since_the_start {
                server.restart_at(now - 3_600_000);
            }
            let mut session = server.connect();
            let marks = |session: &mut Client| (session.mark_ms(), session.backup_mark_ms());
            let before = marks(&mut session);
            for sql in restore {
                session.batch_execute(sql).unwrap();
            }
            // The marks that a dump would carry now. They cannot be corrected before the commit.
            if way == "rolled back" {
                session.batch_execute("SELECT snowflake_advance(0)").unwrap();
            }
            if way != "cut off by a crash" {
                let after = marks(&mut session);
                assert!(after.0 >= before.0 && after.1 >= before.1, "{way}, {since_the_start}: {before:?} {after:?}");
                let known = "SELECT count(*) FROM snowflake_mark_layout l, snowflake_mark_identity i WHERE l.is_called AND i.is_called";
                assert_eq!(session.ids(known).unwrap(), [1], "{way}");
            }
            server.crash();
            server.start_again_at(now - 3_600_000);
            let refusal = refused(server.connect().try_draw());
            assert_eq!(refusal.sqlstate, "58000", "{way}, {since_the_start}: {refusal:?}");
            now += 60_000;
            server.freeze_clock(now);
        }
    }
}

// A database as the template of another

#[test]
fn a_database_made_from_another_continues_above_what_it_holds() {
    if no_clock_to_set() {
        return;
    }
    let server = Server::drawing().faketime().start_with_extension();
    let load = Load::start(&server, 2);
    load.wait_for(100);
    let ledger = load.end();
    wait_until("the copy", || {
        server.connect_to("template1").execute("CREATE DATABASE d TEMPLATE postgres", &[]).is_ok()
    });
    let drawn = ledger.check_in(&server, "d", Promise::Seen).drawn();
    server.set_clock("-1h");
    ledger.check_in(&server, "d", Promise::Seen).refused();
    server.crash();
    server.start_again();
    // Both databases, because each has its own mark.
    assert_eq!(refused(server.connect_to("postgres").try_draw()).sqlstate, "58000");
    check_with_a_slow_clock(&ledger, &server, "d", Promise::Seen);
    assert!(server.connect().draw() > drawn);
}

/// The new database has drawn nothing itself, and its mark is far ahead of the clock. It knows that
/// only from the copied sequences.
#[test]
fn a_database_made_from_one_whose_mark_is_far_ahead_knows_it() {
    let server = Server::drawing().start_with_extension();
    let session = &mut server.connect();
    session.draw();
    session.batch_execute("SELECT snowflake_advance(snowflake_compose(now() + interval '1 hour', 5, 0))").unwrap();
    let mark_ms = session.mark_ms().unwrap();
    server.restart();
    let mut template1 = server.connect_to("template1");
    template1.batch_execute("CREATE DATABASE copy TEMPLATE postgres").unwrap();
    template1.batch_execute("CREATE DATABASE plain").unwrap();
    server.connect_to("plain").batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    for database in ["copy", "postgres"] {
        let mut session = server.connect_to(database);
        assert_eq!(refused(session.try_draw()).sqlstate, "58000");
        assert_eq!(session.mark_ms(), Some(mark_ms));
    }
    server.connect_to("plain").draw();
}

// The ledger itself

/// The checks of these tests can fail: each kind of damage is found and reported.
#[test]
fn the_ledger_finds_out_what_is_wrong_with_a_copy() {
    let server = Server::drawing().start_with_extension();
    let load = Load::start(&server, 2);
    load.wait_for(50);
    let ledger = load.end();
    ledger.check(&server, Promise::Seen).drawn();
    let mut session = server.connect();
    let first = *ledger.stored.iter().min().unwrap();
    let unstored = *ledger.seen.iter().find(|id| !ledger.stored.contains(id)).unwrap();
    let draws =
        |sql: &str| format!("CREATE OR REPLACE FUNCTION snowflake_next() RETURNS bigint LANGUAGE sql AS '{sql}'");
    for (promise, damage, repair, message) in [
        (
            Promise::Held,
            "INSERT INTO ledger SELECT snowflake_compose(now() + interval '1 hour', 5, 0), -2".to_owned(),
            "DELETE FROM ledger WHERE session = -2".to_owned(),
            "is above the mark",
        ),
        (
            Promise::Held,
            format!("INSERT INTO ledger VALUES ({first}, -2)"),
            "DELETE FROM ledger WHERE session = -2".to_owned(),
            "drawn twice",
        ),
        (
            Promise::Seen,
            format!("UPDATE ledger SET id = id - 1 WHERE id = {first}"),
            format!("UPDATE ledger SET id = {first} WHERE id = {first} - 1"),
            "committed and is not there",
        ),
        // The next id was drawn before: stored, or only seen.
        (Promise::Held, draws(&format!("SELECT {first}::bigint")), String::new(), "although there is"),
        (Promise::Seen, draws(&format!("SELECT {unstored}::bigint")), String::new(), "although there is"),
    ] {
        session.batch_execute(&damage).unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| ledger.check(&server, promise))).expect_err(&damage);
        let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(said.contains(message), "after {damage}: {said}");
        session.batch_execute("DELETE FROM ledger WHERE session = -1").unwrap();
        session.batch_execute(&repair).unwrap();
    }
}
