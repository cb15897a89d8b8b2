//! The life of the sequences that store the mark: extensions and databases that come and go,
//! transactions that end in any way, other roles' objects and rights. What the server knows of a
//! mark must never outlive the sequence that it was read from.
//!
//! Most tests end with a crash and a clock that is set back by an hour. The database must still
//! know its mark then ([`Server::assert_remembers`]).

use std::thread;

use cluster::drawing::{HOUR_MS, noon};
use cluster::marks::{assert_marked, behind_the_mark_ms, end_ms};
use cluster::refusal::assert_counted_in;
use cluster::{
    Draw, Ledger, Load, Marks, Promise, Running, Server, assert_ascending, assert_unique, faketime_library, refused,
    skip, wait_until,
};
use postgres::Client;

/// How many databases can draw, unless a test sets it.
const SLOTS: usize = 128;

#[test]
fn a_new_extension_does_not_rest_on_the_old_ones_mark() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut open = server.connect();
    let mut ids = vec![open.draw()];
    let mut owner = server.connect();
    for round in 0..3 {
        owner.batch_execute("DROP EXTENSION snowflake_id").unwrap();
        let refusal = refused(open.try_draw());
        assert_eq!(refusal.sqlstate, "42883", "{refusal:?}");
        owner.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
        assert_eq!(owner.mark_ms(), None, "round {round}");
        // The sessions take turns in being the first to draw.
        for number in 0..2 {
            let session = if (round + number) % 2 == 0 { &mut open } else { &mut owner };
            ids.push(session.draw());
            assert_marked(session, *ids.last().unwrap());
        }
        ids.extend(server.connect().draw_batch(300));
    }
    assert_ascending(&ids);
    server.assert_remembers("postgres", noon(), *ids.last().unwrap());
}

/// A plan outlives the function that it calls until it is invalidated.
#[test]
fn a_prepared_statement_draws_from_the_new_extension() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut open = server.connect();
    let statement = open.prepare("SELECT snowflake_next()").unwrap();
    let mut draw = || open.query_one(&statement, &[]).map(|row| row.get::<_, i64>(0));
    let mut ids = vec![draw().unwrap()];
    for _ in 0..2 {
        server.connect().batch_execute("DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id").unwrap();
        ids.push(draw().unwrap());
        assert_marked(&mut server.connect(), *ids.last().unwrap());
    }
    assert_ascending(&ids);
    server.assert_remembers("postgres", noon(), *ids.last().unwrap());
}

#[test]
fn an_extension_whose_creation_was_rolled_back_leaves_no_mark_behind() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.batch_execute("DROP EXTENSION snowflake_id").unwrap();
    let mut ids = Vec::new();
    // The third one is of a tick that the session knows.
    let three = |session: &mut Client| [(); 3].map(|()| session.draw());
    for (begin, end) in [("BEGIN", "ROLLBACK"), ("BEGIN; SAVEPOINT s", "ROLLBACK TO s; COMMIT")] {
        session.batch_execute(&format!("{begin}; CREATE EXTENSION snowflake_id")).unwrap();
        ids.extend(three(&mut session));
        ids.extend(session.draw_batch(300));
        assert_marked(&mut session, *ids.last().unwrap());
        session.batch_execute(end).unwrap();
        assert_eq!(refused(session.try_draw()).sqlstate, "42883", "after {end}");
    }
    // Within one transaction, an extension that a savepoint takes back, and one that stays.
    session.batch_execute("BEGIN; SAVEPOINT s; CREATE EXTENSION snowflake_id").unwrap();
    ids.extend(three(&mut session));
    session.batch_execute("ROLLBACK TO s; CREATE EXTENSION snowflake_id").unwrap();
    ids.push(session.draw());
    assert_marked(&mut session, *ids.last().unwrap());
    session.batch_execute("COMMIT").unwrap();
    for mut session in [session, server.connect()] {
        ids.push(session.draw());
        assert_marked(&mut session, *ids.last().unwrap());
    }
    assert_ascending(&ids);
    server.assert_remembers("postgres", noon(), *ids.last().unwrap());
}

/// With `wal_level = minimal`, PostgreSQL does not log what a transaction writes to a relation that
/// it has created itself.
#[test]
fn an_extension_that_drew_in_the_transaction_that_made_it_remembers_that() {
    for wal_level in ["minimal", "replica"] {
        let settings = Server::drawing().config("wal_level", wal_level).config("max_wal_senders", "0");
        let Some(server) = settings.start_frozen(noon()) else { return };
        let mut session = server.connect();
        session
            .batch_execute(
                "DROP EXTENSION snowflake_id;
                 BEGIN; CREATE EXTENSION snowflake_id; CREATE TABLE t (id bigint DEFAULT snowflake_next())",
            )
            .unwrap();
        let mut ids = session.ids("INSERT INTO t DEFAULT VALUES RETURNING id").unwrap();
        // The mark moves once more in this transaction.
        server.freeze_clock(noon() + 5000);
        ids.push(session.draw());
        session.batch_execute("COMMIT").unwrap();
        // Nothing more is logged now, because these ids are below the mark.
        ids.extend(server.connect().draw_batch(300));
        server.assert_remembers("postgres", noon() + 5000, *ids.last().unwrap());

        // A crash before the commit: the new extension is gone, and the mark of the old one counts.
        let mut session = server.connect();
        let now = session.mark_ms().unwrap();
        server.freeze_clock(now);
        session.batch_execute("BEGIN; DROP EXTENSION snowflake_id CASCADE; CREATE EXTENSION snowflake_id").unwrap();
        session.draw();
        server.crash();
        server.start_again_at(now + 2000);
        let mut session = server.connect();
        ids.push(session.draw());
        assert_marked(&mut session, *ids.last().unwrap());
        assert_ascending(&ids);
        assert_eq!(session.value("SELECT count(*) FROM t"), "1", "wal_level {wal_level}");
    }
}

/// Draws in a session that may have to wait for another session's transaction. That transaction
/// makes the server forget what it knew of the mark, so the draw may then have to wait for the
/// clock.
fn draw_beside(server: &Server, blocker: &mut Client, end: &str, then_ms: i64) -> (Client, Option<i64>) {
    let drawing = Running::start(server.connect(), "SELECT snowflake_next()");
    let mut observer = server.connect();
    let waits = format!("SELECT FROM pg_stat_activity WHERE pid = {} AND wait_event_type = 'Lock'", drawing.pid);
    wait_until("the draw to end or to wait for a lock", || {
        drawing.is_over() || observer.query_opt(&waits, &[]).unwrap().is_some()
    });
    blocker.batch_execute(end).unwrap();
    if server.waits_for_the_clock(&drawing) {
        server.freeze_clock_and_wake(then_ms, &drawing);
    }
    server.freeze_clock(then_ms);
    let (session, result) = drawing.end();
    match result {
        Ok(ids) => (session, Some(ids[0])),
        Err(error) => {
            // The extension that the statement began with is gone.
            let refusal = refused::<()>(Err(error));
            assert!(["55000", "42883", "42P01"].contains(&refusal.sqlstate.as_str()), "{refusal:?}");
            assert_eq!(end, "COMMIT", "{refusal:?}");
            (session, None)
        }
    }
}

#[test]
fn a_new_extension_that_is_not_committed_yet_has_no_say_in_other_sessions() {
    // How much of the mark is left when the others draw: nothing, half, all.
    for later_ms in [5000, 700, 0] {
        for end in ["ROLLBACK", "COMMIT"] {
            let Some(server) = Server::drawing().start_frozen(noon()) else { return };
            let case = format!("{later_ms} ms later, {end}");
            let mut other = server.connect();
            let mut ids = vec![other.draw()];
            let mut session = server.connect();
            session.batch_execute("BEGIN; DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id").unwrap();
            server.freeze_clock(noon() + later_ms);
            ids.push(session.draw());
            let (mut third, id) = draw_beside(&server, &mut session, end, noon() + 7000);
            if let Some(id) = id {
                ids.push(id);
                if end == "ROLLBACK" {
                    assert_marked(&mut other, id);
                }
            }
            for session in [&mut other, &mut session, &mut third] {
                ids.push(session.draw());
                assert_marked(session, *ids.last().unwrap());
            }
            // In the last millisecond before the mark. It must be the present extension's mark.
            let mark = other.mark_ms().unwrap();
            server.freeze_clock(mark - 1);
            for session in [&mut other, &mut session, &mut third] {
                ids.push(session.draw());
                assert_marked(session, *ids.last().unwrap());
            }
            assert_ascending(&ids);
            println!("{case}: the third session drew {id:?}");
            server.assert_remembers("postgres", mark, *ids.last().unwrap());
        }
    }
}

#[test]
fn a_mark_that_was_moved_in_a_rolled_back_transaction_stays_where_it_is() {
    for (begin, end) in [("BEGIN", "ROLLBACK"), ("BEGIN; SAVEPOINT s", "ROLLBACK TO s; ROLLBACK")] {
        let Some(server) = Server::drawing().start_frozen(noon()) else { return };
        let mut session = server.connect();
        let mut ids = vec![session.draw()];
        for later_ms in [700, 5000] {
            session.batch_execute(begin).unwrap();
            server.freeze_clock(noon() + later_ms);
            ids.push(session.draw());
            let mark = session.mark_ms();
            session.batch_execute(end).unwrap();
            assert_eq!(session.mark_ms(), mark, "after {end}");
            ids.push(server.connect().draw());
            assert_marked(&mut session, *ids.last().unwrap());
        }
        assert_ascending(&ids);
        server.assert_remembers("postgres", noon() + 5000, *ids.last().unwrap());
    }
}

#[test]
fn two_databases_draw_at_once() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let server = Server::drawing().time_limit().faketime().start_with_extension();
    server.connect().batch_execute("CREATE DATABASE other").unwrap();
    server.connect_to("other").batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    let databases = ["postgres", "other"];
    let loads = databases.map(|database| Load::start_in(&server, database, 3));
    let marks = || databases.map(|database| server.connect_to(database).mark_ms());
    let start = marks();
    wait_until("both marks to move under load", || {
        marks().iter().zip(&start).all(|(mark, start)| *mark > start.map(|start| start + 1000))
    });
    loads.iter().for_each(|load| load.wait_for(50));
    server.crash();
    let ledgers = loads.map(Load::end);
    assert_unique(ledgers.iter().flat_map(|ledger| &ledger.seen));

    server.set_clock_offset(-3600.0);
    server.start_again();
    let check = |(ledger, database): (&Ledger, &str)| ledger.check_in(&server, database, Promise::Seen);
    for copy in ledgers.iter().zip(databases) {
        check(copy).refused();
    }
    server.set_clock_offset(0.0);
    for copy in ledgers.iter().zip(databases) {
        check(copy).drawn();
    }
}

/// A database that is dropped and created again from the same template, with the same oid, looks
/// the same from outside. Its sequences have the same oids and the same files, but the files hold
/// old values.
#[test]
fn a_database_with_the_oid_of_a_dropped_one_loads_its_own_mark() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut owner = server.connect();
    owner.batch_execute("CREATE DATABASE template").unwrap();
    let mut template = server.connect_to("template");
    template.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    let mut ids = vec![template.draw()];
    let old_mark = template.mark_ms();
    drop(template);
    server.freeze_clock(noon() + 10_000);

    let mut oids = Vec::new();
    for round in 0..3 {
        wait_until("the database to be made", || {
            // The server notices a moment after the client that the template is not in use any
            // more.
            let made = owner.batch_execute("CREATE DATABASE d OID = 50000 TEMPLATE template");
            made.as_ref().err().is_none_or(|error| error.code().is_some_and(|code| code.code() != "55006"))
                && made.map_err(|error| panic!("{error}")).is_ok()
        });
        let mut session = server.connect_to("d");
        oids.push(session.value("'snowflake_mark'::regclass::oid"));
        assert_eq!(session.mark_ms(), old_mark, "round {round}");
        ids.push(session.draw());
        assert_marked(&mut session, *ids.last().unwrap());
        ids.extend(server.connect_to("d").draw_batch(300));
        assert_marked(&mut session, *ids.last().unwrap());
        if round < 2 {
            drop(session);
            owner.batch_execute("DROP DATABASE d WITH (FORCE)").unwrap();
        }
    }
    assert!(oids.iter().all(|oid| *oid == oids[0]), "the test is to make equal oids: {oids:?}");
    assert_ascending(&ids);
    server.assert_remembers("d", noon() + 10_000, *ids.last().unwrap());
}

#[test]
fn so_many_databases_draw_and_a_dropped_one_makes_room() {
    // This test has no crash.
    let settings = Server::drawing().config("autovacuum", "off").config("max_wal_size", "10GB");
    let server = settings.start_with_extension();
    let mut owner = server.connect();
    owner.batch_execute("CREATE DATABASE template STRATEGY file_copy IS_TEMPLATE on").unwrap();
    server.connect_to("template").batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    let create = |owner: &mut Client, number: usize| {
        let sql = format!("CREATE DATABASE d{number} TEMPLATE template STRATEGY file_copy");
        wait_until("the database to be made", || owner.batch_execute(&sql).is_ok());
    };
    let mut ids = vec![owner.draw()];
    for number in 1..=SLOTS {
        create(&mut owner, number);
        // A restore does this, and needs no place either.
        server.connect_to(&format!("d{number}")).batch_execute("SELECT setval('snowflake_mark', 1)").unwrap();
        if number < SLOTS {
            ids.push(server.connect_to(&format!("d{number}")).draw());
        }
    }
    let places = "SELECT concat_ws(' ', databases, max_databases) FROM snowflake_stat";
    assert_eq!(owner.value(places), "128 128");
    // The warning comes from nine tenths on, with the 116th database, at most once a minute.
    let log = server.log();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("databases draw ids, and the limit")).collect();
    assert!(!warnings.is_empty() && warnings.len() < 5, "{warnings:?}");
    assert!(
        warnings[0].contains("WARNING:  snowflake_id: 116 databases draw ids, and the limit is 128"),
        "{warnings:?}"
    );
    let last = format!("d{SLOTS}");
    let message = "128 databases already draw ids, which is the limit";
    assert_counted_in(&server, &last, 4, "53400", "databases_refused", message);
    let hint = refused(server.connect_to(&last).try_draw()).hint.unwrap();
    assert!(hint.contains("\"snowflake_id.max_databases\"") && hint.contains("Dropping"), "{hint}");
    // The other databases go on, and reading needs no place.
    assert_eq!(server.connect_to(&last).value("snowflake_format(0)"), "2025-01-01T00:00:00.000Z #0 @(0)");
    for database in ["postgres", "d1", "d127"] {
        ids.push(server.connect_to(database).draw());
    }

    owner.batch_execute("DROP DATABASE d64 WITH (FORCE)").unwrap();
    let mut session = server.connect_to(&last);
    ids.push(session.draw());
    assert_marked(&mut session, *ids.last().unwrap());
    create(&mut owner, 64);
    assert_eq!(refused(server.connect_to("d64").try_draw()).sqlstate, "53400");
    // A database that could not be dropped keeps its place.
    assert_eq!(refused(owner.batch_execute("DROP DATABASE template")).sqlstate, "42809");
    assert_eq!(refused(owner.batch_execute("BEGIN; DROP DATABASE d2")).sqlstate, "25001");
    owner.batch_execute("ROLLBACK").unwrap();
    assert_eq!(refused(server.connect_to("d64").try_draw()).sqlstate, "53400");
    assert_unique(&ids);
    server.restart();
    ids.push(server.connect_to("d64").draw());
    assert_ascending(&ids);
}

/// However the extension is dropped. If a rollback restores it, it takes a place again, if there is
/// one.
#[test]
fn an_extension_that_is_dropped_makes_room_for_another_database() {
    let server = Server::drawing().set("max_databases", "2").start_with_extension();
    let mut owner = server.connect();
    let create = "CREATE SCHEMA ids; CREATE EXTENSION snowflake_id SCHEMA ids";
    for database in ["one", "two"] {
        owner.batch_execute(&format!("CREATE DATABASE {database}")).unwrap();
        server.connect_to(database).batch_execute(create).unwrap();
    }
    let draw = |database: &str| server.connect_to(database).ids("SELECT ids.snowflake_next()");
    let places = "SELECT concat_ws(' ', databases, max_databases) FROM snowflake_stat";
    let mut ids = vec![owner.draw()];
    assert_eq!(owner.value(places), "1 2");
    ids.extend(draw("one").unwrap());
    assert_eq!(refused(draw("two")).sqlstate, "53400");
    for drop in ["DROP EXTENSION snowflake_id", "DROP SCHEMA ids CASCADE"] {
        let mut one = server.connect_to("one");
        one.batch_execute(drop).unwrap();
        assert_eq!(owner.value(places), "1 2", "{drop}");
        ids.extend(draw("two").unwrap());
        assert_eq!(owner.value(places), "2 2", "{drop}");
        one.batch_execute("CREATE SCHEMA IF NOT EXISTS ids; CREATE EXTENSION snowflake_id SCHEMA ids").unwrap();
        assert_eq!(refused(draw("one")).sqlstate, "53400", "{drop}");
        // And the other way round.
        let mut two = server.connect_to("two");
        two.batch_execute("DROP EXTENSION snowflake_id").unwrap();
        ids.extend(draw("one").unwrap());
        two.batch_execute("CREATE EXTENSION snowflake_id SCHEMA ids").unwrap();
    }

    // After the rollback the extension is there again with its mark, in an open session and in a
    // new one.
    let mut open = server.connect_to("one");
    ids.extend(open.ids("SELECT ids.snowflake_next()").unwrap());
    for (begin, end) in [("BEGIN", "ROLLBACK"), ("BEGIN; SAVEPOINT s", "ROLLBACK TO s; COMMIT")] {
        open.batch_execute(&format!("{begin}; DROP SCHEMA ids CASCADE; {end}")).unwrap();
        assert_eq!(owner.value(places), "1 2", "{begin}");
        ids.extend(open.ids("SELECT ids.snowflake_next()").unwrap());
        ids.extend(draw("one").unwrap());
        assert_eq!(owner.value(places), "2 2", "{begin}");
    }
    // Otherwise it waits for the database that has taken the place meanwhile.
    open.batch_execute("BEGIN; DROP EXTENSION snowflake_id").unwrap();
    ids.extend(draw("two").unwrap());
    open.batch_execute("ROLLBACK").unwrap();
    for _ in 0..2 {
        assert_eq!(refused(open.ids("SELECT ids.snowflake_next()")).sqlstate, "53400");
    }
    server.connect_to("two").batch_execute("DROP EXTENSION snowflake_id").unwrap();
    ids.extend(open.ids("SELECT ids.snowflake_next()").unwrap());
    ids.push(owner.draw());
    assert_ascending(&ids);
}

#[test]
fn as_many_databases_as_can_be_asked_for_fit() {
    let server = Server::drawing().set("max_databases", "65536").start_with_extension();
    let mut session = server.connect();
    assert_ascending(&session.draw_batch(300));
    assert_eq!(
        session.value("SELECT concat_ws(' ', databases, max_databases, drawn) FROM snowflake_stat"),
        "1 65536 300"
    );
    for wrong in ["0", "65537", "-1"] {
        let failure = Server::drawing().set("max_databases", wrong).try_start().unwrap_err();
        assert!(failure.log.contains("FATAL") && failure.log.contains("(1 .. 65536)"), "{}", failure.log);
    }
}

#[test]
fn a_prepared_transaction_that_moved_the_mark_is_in_nobodys_way() {
    for end in ["COMMIT PREPARED 'p'", "ROLLBACK PREPARED 'p'"] {
        let Some(server) = Server::drawing().config("max_prepared_transactions", "2").start_frozen(noon()) else {
            return;
        };
        let mut session = server.connect();
        session.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_next())").unwrap();
        let mut ids = Vec::new();
        // The first mark, and one that is moved early, within one transaction.
        session.batch_execute("BEGIN").unwrap();
        for later_ms in [0, 700] {
            server.freeze_clock(noon() + later_ms);
            ids.extend(session.ids("INSERT INTO t DEFAULT VALUES RETURNING id").unwrap());
        }
        let mark = session.mark_ms();
        session.batch_execute("PREPARE TRANSACTION 'p'").unwrap();
        assert_eq!(session.mark_ms(), mark);
        // Other sessions and the same one draw: within the mark, beyond half of it, beyond it.
        for later_ms in [750, 1400, 9000] {
            server.freeze_clock(noon() + later_ms);
            for _ in 0..2 {
                let drawn;
                (session, drawn) = Running::start(session, "SELECT snowflake_next()").end();
                ids.extend(drawn.unwrap());
                assert_marked(&mut session, *ids.last().unwrap());
                session = server.connect();
            }
        }
        server.assert_remembers("postgres", noon() + 9000, *ids.last().unwrap());
        let mut session = server.connect();
        let now = session.mark_ms().unwrap() + 5000;
        server.freeze_clock(now);
        assert_eq!(session.value("SELECT count(*) FROM pg_prepared_xacts"), "1");
        ids.push(session.draw());
        session.batch_execute(end).unwrap();
        let expected = if end.starts_with("COMMIT") { &ids[..2] } else { &[] };
        assert_eq!(session.ids("SELECT id FROM t ORDER BY id").unwrap(), expected);
        server.freeze_clock(now + 5000);
        ids.push(session.draw());
        assert_ascending(&ids);
        server.assert_remembers("postgres", now + 5000, *ids.last().unwrap());
    }
}

/// A schema that is in no search_path, while the search_path has whatever another role could put
/// there.
#[test]
fn other_peoples_objects_of_the_same_names_are_not_used() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut owner = server.connect();
    owner
        .batch_execute(
            "DROP EXTENSION snowflake_id; CREATE SCHEMA ids; CREATE EXTENSION snowflake_id SCHEMA ids;
             GRANT USAGE ON SCHEMA ids TO PUBLIC;
             CREATE ROLE mallory LOGIN; CREATE SCHEMA evil AUTHORIZATION mallory; GRANT USAGE ON SCHEMA evil TO PUBLIC;
             CREATE ROLE ordinary LOGIN; GRANT CREATE ON SCHEMA public TO mallory;
             ALTER ROLE ALL SET search_path = evil, public, pg_catalog, pg_temp",
        )
        .unwrap();
    let mut mallory = server.connect_as("mallory");
    for name in ["", "_backup", "_local", "_backup_local", "_layout", "_identity"] {
        let name = format!("snowflake_mark{name}");
        mallory.batch_execute(&format!("CREATE SEQUENCE evil.{name}; CREATE TABLE public.{name} (x int)")).unwrap();
    }
    for (name, arguments, result) in [
        ("setval", "regclass, bigint", "bigint"),
        ("setval", "regclass, bigint, boolean", "bigint"),
        ("nextval", "regclass", "bigint"),
        ("to_regclass", "text", "regclass"),
        ("current_setting", "text", "text"),
        ("pg_extension_config_dump", "regclass, text", "void"),
    ] {
        let body = "BEGIN RAISE EXCEPTION ''mallory was called''; END";
        mallory
            .batch_execute(&format!(
                "CREATE FUNCTION evil.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql AS '{body}'"
            ))
            .unwrap();
    }
    let mut ids = Vec::new();
    let mut now = noon();
    for user in ["ordinary", "postgres", "mallory"] {
        let mut session = server.connect_as(user);
        session
            .batch_execute("CREATE TEMP SEQUENCE snowflake_mark; CREATE TEMP TABLE snowflake_mark_layout (x int)")
            .unwrap();
        for path in ["evil, public, pg_catalog, pg_temp", "pg_temp, evil, pg_catalog", "", "ids"] {
            session.batch_execute(&format!("SET search_path = {}", if path.is_empty() { "''" } else { path })).unwrap();
            for later_ms in [700, 5000] {
                now += later_ms;
                server.freeze_clock(now);
                ids.extend(session.ids("SELECT ids.snowflake_next()").unwrap());
                ids.extend(session.ids("SELECT ids.snowflake_batch(2)").unwrap());
                let bound = "SELECT last_value FROM ids.snowflake_mark";
                assert!(session.ids(bound).unwrap()[0] >= end_ms("snowflake", *ids.last().unwrap()), "{user}, {path}");
            }
            session.ids("SELECT ids.snowflake_parse(0) IS NULL, 1 WHERE false").unwrap();
        }
        assert_eq!(session.ids("SELECT last_value FROM pg_temp.snowflake_mark WHERE is_called").unwrap(), [0; 0]);
    }
    owner.batch_execute(&format!("SELECT ids.snowflake_advance({})", ids.last().unwrap())).unwrap();
    let touched = "SELECT 1::bigint FROM evil.snowflake_mark WHERE is_called
                   UNION ALL SELECT 1 FROM evil.snowflake_mark_layout WHERE is_called
                   UNION ALL SELECT 1 FROM evil.snowflake_mark_identity WHERE is_called
                   UNION ALL SELECT 1 FROM public.snowflake_mark";
    assert_eq!(owner.ids(touched).unwrap(), [0; 0]);
    assert_ascending(&ids);

    server.crash();
    server.start_again_at(now - HOUR_MS);
    behind_the_mark_ms(&refused(server.connect_as("ordinary").ids("SELECT ids.snowflake_next()")));
}

#[test]
fn whoever_may_draw_moves_the_mark_but_only_by_drawing() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut owner = server.connect();
    let mut ids = vec![owner.draw()];
    let rights = "SELECT string_agg(relname || ' ' || relacl::text, ' ' ORDER BY relname COLLATE \"C\")
                  FROM pg_class WHERE relname LIKE 'snowflake\\_mark%' AND relkind = 'S'";
    let names = ["", "_backup", "_backup_local", "_fleet", "_identity", "_layout", "_local"]
        .map(|n| format!("snowflake_mark{n}"));
    let expected = names.each_ref().map(|name| format!("{name} {{postgres=rwU/postgres,=r/postgres}}"));
    assert_eq!(owner.value(rights), expected.join(" "));

    owner
        .batch_execute(
            "CREATE ROLE ordinary LOGIN;
             CREATE FUNCTION definer() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT snowflake_next()';
             GRANT CREATE ON SCHEMA public TO ordinary",
        )
        .unwrap();
    let mut session = server.connect_as("ordinary");
    for name in names {
        for attempt in [
            format!("SELECT setval('{name}', 1)"),
            format!("SELECT nextval('{name}')"),
            format!("ALTER SEQUENCE {name} RESTART"),
            format!("DROP SEQUENCE {name}"),
            format!("COMMENT ON SEQUENCE {name} IS 'mine'"),
        ] {
            let refusal = refused(session.batch_execute(&attempt));
            assert_eq!(refusal.sqlstate, "42501", "{attempt}: {refusal:?}");
        }
        session.batch_execute(&format!("SELECT last_value, is_called FROM {name}")).unwrap();
        // Drawing does not even need the right to read it.
        owner.batch_execute(&format!("REVOKE ALL ON SEQUENCE {name} FROM PUBLIC")).unwrap();
    }
    session.batch_execute("CREATE MATERIALIZED VIEW m AS SELECT snowflake_next() AS id WITH NO DATA").unwrap();
    ids.push(session.draw());
    let mut now = noon();
    for draw in [
        "SELECT snowflake_next()",
        "SELECT * FROM snowflake_batch(3)",
        "SELECT definer()",
        // The mark moves as the extension's owner, in a security-restricted operation.
        "REFRESH MATERIALIZED VIEW m",
    ] {
        for later_ms in [700, 5000] {
            now += later_ms;
            server.freeze_clock(now);
            let before = owner.mark_ms();
            if draw.starts_with("REFRESH") {
                session.batch_execute(draw).unwrap();
                ids.extend(session.ids("SELECT id FROM m").unwrap());
            } else {
                ids.extend(session.ids(draw).unwrap());
            }
            assert!(owner.mark_ms() > before, "{draw}");
            assert_marked(&mut owner, *ids.last().unwrap());
            // The session keeps none of the rights with which the mark was moved.
            assert_eq!(session.value("current_user || ' ' || session_user"), "ordinary ordinary");
            assert_eq!(refused(session.batch_execute("SELECT setval('snowflake_mark', 1)")).sqlstate, "42501");
        }
    }
    assert_ascending(&ids);
}

#[test]
fn without_the_extension_nothing_is_drawn() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    session
        .batch_execute(
            "DROP EXTENSION snowflake_id;
             CREATE FUNCTION f() RETURNS bigint LANGUAGE c AS '$libdir/snowflake_id', 'snowflake_next_entry'",
        )
        .unwrap();
    let draw = "SELECT f()";
    for _ in 0..2 {
        let refusal = refused(session.ids(draw));
        assert_eq!(refusal.sqlstate, "55000", "{refusal:?}");
        session.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
        let ids = [session.ids(draw).unwrap(), vec![session.draw()]].concat();
        assert_ascending(&ids);
        assert_marked(&mut session, ids[1]);
        // What the server knew of the extension is lost with it.
        session.batch_execute("DROP EXTENSION snowflake_id").unwrap();
    }
    assert_eq!(refused(session.ids(draw)).sqlstate, "55000");
}

/// Sessions draw while the extension comes and goes. They get an id or an error, and no id comes
/// twice.
#[test]
fn sessions_survive_an_extension_that_comes_and_goes() {
    const ROUNDS: usize = 20;
    let server = Server::drawing().time_limit().start_with_extension();
    let owner = server.connect();
    let drawn: Vec<Vec<i64>> = thread::scope(|scope| {
        let draw = |mut session: Client| {
            scope.spawn(move || {
                let mut ids = Vec::new();
                while session.value("to_regclass('over')") == "NULL" {
                    match session.try_draw() {
                        Ok(id) => ids.push(id),
                        Err(error) => {
                            let refusal = refused::<()>(Err(error));
                            let known = ["42883", "55000", "42P01"].contains(&refusal.sqlstate.as_str());
                            assert!(known, "{refusal:?}");
                        }
                    }
                }
                ids
            })
        };
        let threads: Vec<_> = (0..4).map(|_| draw(server.connect())).collect();
        let mut owner = owner;
        for round in 0..ROUNDS {
            let end = if round % 3 == 0 { "ROLLBACK" } else { "COMMIT" };
            owner
                .batch_execute(&format!("BEGIN; DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id; {end}"))
                .unwrap();
            owner.draw();
        }
        owner.batch_execute("CREATE TABLE over ()").unwrap();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    drawn.iter().for_each(|ids| assert_ascending(ids));
    assert!(assert_unique(drawn.iter().flatten()) >= ROUNDS);
    let mut session = server.connect();
    let last = session.draw();
    assert!(last > *drawn.iter().flatten().max().unwrap());
    assert_marked(&mut session, last);
}
