//! The SQL edition on a server that loads no library: what it refuses to install, what another
//! installation changes, who may do what, and that sessions draw ids which are unique and ascend.
//!
//! `edition_read.rs` compares what it reads and makes with the extension.

use std::collections::BTreeSet;

use cluster::drawing::{DAY_MS, at_once, noon};
use cluster::refusal::assert_refused_as;
use cluster::{
    Draw, EDITION, Edition, Known, Running, Server, assert_ascending, assert_unique, faketime_library, refused,
    runs_extension, skip, wait_until,
};
use postgres::Client;
use snowflake_core::clock::Utc;
use snowflake_core::id::layout::Layout;

/// Starts a server without the library, and installs in the schema `edition`.
fn start(arguments: &str) -> (Server, Client) {
    let server = Server::builder().without_preload().config("max_prepared_transactions", "4").time_limit().start();
    server.connect().batch_execute("ALTER DATABASE postgres SET search_path = edition, public").unwrap();
    let mut session = server.connect();
    session.install_edition("edition", arguments);
    (server, session)
}

fn install(session: &mut Client, arguments: &str) -> Result<(), postgres::Error> {
    session.batch_execute(&format!("SELECT edition.snowflake_install({arguments})"))
}

/// Returns a part of an id.
fn part(session: &mut Client, part: &str, id: i64) -> String {
    session.value(&format!("SELECT {part} FROM edition.snowflake_parse({id})"))
}

/// Returns how many locks any session holds: those of a draw, and those of open transactions.
fn locks(session: &mut Client) -> String {
    session.value(
        "SELECT count(*) FROM pg_locks
         WHERE locktype = 'advisory' OR relation = 'edition._snowflake_lock'::regclass AND mode = 'ShareUpdateExclusiveLock'",
    )
}

fn settled(session: &mut Client) -> i64 {
    session.query_one("CALL edition.snowflake_settled()", &[]).expect("it is switched on").get(0)
}

#[test]
fn eight_sessions_draw_unique_ids_in_the_order_drawn_whatever_their_transactions_do() {
    const ROUNDS: usize = 150;
    // The second one has four ids in a tick, so that ticks are used up and ids run ahead.
    for layout in ["snowflake", "time:41 worker:10 sequence:2 unit:1ms epoch:2025-01-01T00:00:00Z"] {
        let (server, mut session) = start(&format!("worker_id => 5, layout => '{layout}'"));
        session
            .batch_execute("CREATE TABLE public.t (id bigint PRIMARY KEY DEFAULT edition.snowflake_next())")
            .unwrap();
        let known = Known::default();
        let all = at_once(&server, 8, |number, mut session| {
            let mut ids = Vec::new();
            for round in 0..ROUNDS {
                session.batch_execute("BEGIN").unwrap();
                ids.extend(known.draw(|| vec![session.draw()]));
                session.batch_execute("SAVEPOINT s").unwrap();
                ids.extend(known.draw(|| session.draw_batch(10)));
                ids.extend(
                    known.draw(|| session.ids("INSERT INTO t SELECT FROM generate_series(1, 3) RETURNING id").unwrap()),
                );
                let end = ["COMMIT", "ROLLBACK", "ROLLBACK TO s; COMMIT", "RELEASE s; COMMIT"][(round + number) % 4];
                ids.extend(known.draw(|| vec![session.draw()]));
                session.batch_execute(end).unwrap();
                assert_eq!(session.value("snowflake_last()"), ids.last().unwrap().to_string());
            }
            assert_ascending(&ids);
            ids
        });
        assert_eq!(assert_unique(all.iter().flatten()), 8 * ROUNDS * 15);
        let layout = Layout::parse(layout).unwrap();
        assert!(all.iter().flatten().all(|id| layout.parts(*id).unwrap().worker == Some(5)));
        // None is ahead of the clock by more than may be borrowed.
        assert_eq!(session.value("SELECT ahead_ms <= 100 FROM snowflake_stat"), "true");
        assert_eq!(locks(&mut session), "0");
    }
}

/// One transaction holds what it has drawn for a minute; the others go on.
#[test]
fn an_open_transaction_that_has_drawn_blocks_no_other_session() {
    let (server, mut session) = start("worker_id => 5");
    session.batch_execute("BEGIN; SAVEPOINT s").unwrap();
    let first = session.draw();
    let mut other = server.connect();
    other.batch_execute("SET lock_timeout = '10s'").unwrap();
    let ids = other.draw_batch(10_000);
    assert_ascending(&ids);
    assert!(ids[0] > first);
    assert_eq!(locks(&mut other), "0");
    assert!(session.draw() > *ids.last().unwrap());
}

/// Before the lock is there, and while the block that takes it runs.
#[test]
fn a_draw_that_is_cancelled_or_terminated_leaves_no_lock() {
    let (server, mut session) = start("worker_id => 5");
    let sql = "SELECT snowflake_next()";
    // Stops the holder within the block.
    let slow = "DO $$ BEGIN EXECUTE replace(pg_get_functiondef('_snowflake_forward(bigint)'::regprocedure),
        'target := greatest', 'PERFORM pg_advisory_xact_lock(42); target := greatest'); END $$";
    session.batch_execute(slow).unwrap();
    for end in ["pg_cancel_backend", "pg_terminate_backend"] {
        session.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(42)").unwrap();
        let holder = Running::start(server.connect(), sql);
        server.wait_until_locked(holder.pid);
        let waiting = Running::start(server.connect(), sql);
        server.wait_until_locked(waiting.pid);
        for draw in [waiting, holder] {
            session.batch_execute(&format!("SELECT {end}({})", draw.pid)).unwrap();
            draw.end().1.unwrap_err();
        }
        session.batch_execute("COMMIT").unwrap();
        wait_until("the end of the locks", || locks(&mut session) == "0");
        session.draw();
    }
}

#[test]
fn ids_of_few_are_not_all_even() {
    let (_server, mut session) = start("worker_id => 5");
    let mut sequences = BTreeSet::new();
    while sequences.len() < 8 {
        let id = session.draw();
        sequences.insert(part(&mut session, "sequence % 8", id));
    }
}

#[test]
fn what_the_layout_has_no_room_for_is_not_installed() {
    let server = Server::builder().without_preload().start();
    let mut session = server.connect();
    session.load_edition("edition").unwrap();
    for (arguments, sqlstate, message) in [
        ("", "55000", "parameter \"worker_id\" is not set"),
        ("worker_id => 5, layout => 'twitter'", "55000", "parameter \"datacenter_id\" is not set"),
        ("worker_id => 1024", "22023", "worker 1024 is outside the layout's range 0..1023"),
        ("worker_id => -1", "22023", "worker -1 is outside the layout's range 0..1023"),
        (
            "worker_id => 5, datacenter_id => 1",
            "22023",
            "datacenter 1 is given, but the layout has no datacenter field",
        ),
        (
            "worker_id => 5, datacenter_id => 32, layout => 'twitter'",
            "22023",
            "datacenter 32 is outside the layout's range 0..31",
        ),
        ("worker_id => 5, layout => 'mastodon'", "22023", "worker 5 is given, but the layout has no worker field"),
        ("worker_id => 5, layout => 'twiter'", "22023", "unknown layout \"twiter\""),
        (
            "worker_id => 5, max_borrow => -1",
            "22023",
            "-1 ms is outside the valid range for parameter \"max_borrow\" (0 ms .. 3600000 ms)",
        ),
        (
            "worker_id => 5, max_borrow => 3600001",
            "22023",
            "3600001 ms is outside the valid range for parameter \"max_borrow\" (0 ms .. 3600000 ms)",
        ),
    ] {
        assert_refused_as(&refused(install(&mut session, arguments)), sqlstate, message);
    }
    // Nothing is there.
    assert_eq!(refused(session.try_draw()).sqlstate, "42883");
    install(&mut session, "worker_id => 0, layout => 'mastodon'").unwrap();
    session.draw();
}

#[test]
fn another_number_begins_above_and_another_layout_has_to_be_accepted() {
    let (_server, mut session) = start("worker_id => 5");
    let mut ids = session.draw_batch(100);
    // The same again, and with the file of a later version.
    install(&mut session, "worker_id => 5").unwrap();
    session.batch_execute(EDITION).unwrap();
    install(&mut session, "").unwrap();
    ids.extend(session.draw_batch(100));
    for worker in [4, 1023, 0] {
        install(&mut session, &format!("worker_id => {worker}")).unwrap();
        let next = session.draw_batch(100);
        assert!(next.iter().all(|id| Layout::parse("snowflake").unwrap().parts(*id).unwrap().worker == Some(worker)));
        ids.extend(next);
    }
    assert_ascending(&ids);
    let refusal = refused(install(&mut session, "layout => 'js53'"));
    assert_refused_as(&refusal, "55000", "layout \"js53\" is not the one that this database's ids were drawn with");
    assert_eq!(refusal.detail.as_deref(), Some("They were drawn with layout \"snowflake\"."));
    assert!(refusal.hint.is_some_and(|hint| hint.contains("accept => true")));
    // Written in other words, it is the same.
    install(&mut session, "layout => 'epoch'").unwrap_err();
    let line = "time:41 worker:10 sequence:12 unit:1ms epoch:2025-01-01T01:00:00+01:00";
    install(&mut session, &format!("layout => '{line}'")).unwrap();
    let before = session.draw();
    install(&mut session, "layout => 'js53', accept => true").unwrap();
    let after = session.draw();
    let ms = |layout: &str, id| Layout::parse(layout).unwrap().created_at_ms(id).unwrap();
    assert!(ms("js53", after) > ms("snowflake", before));
    assert_eq!(session.value("SELECT layout FROM snowflake_stat"), "js53");
}

/// A draw by the old number cannot come after the installation of the new one.
#[test]
fn another_number_waits_for_open_transactions_that_have_drawn() {
    let (server, mut session) = start("worker_id => 5");
    let mut drawing = server.connect();
    drawing.batch_execute("BEGIN").unwrap();
    let first = drawing.draw();
    let mut patient = server.connect();
    patient.batch_execute("SET lock_timeout = '60s'").unwrap();
    let installing = Running::start(patient, "SELECT 1::bigint FROM snowflake_install(worker_id => 6)");
    server.wait_until_locked(installing.pid);
    // It has drawn in this transaction, so it need not wait.
    let second = drawing.draw();
    let waiting = Running::start(server.connect(), "SELECT snowflake_next()");
    server.wait_until_locked(waiting.pid);
    drawing.batch_execute("COMMIT").unwrap();
    installing.end().1.unwrap();
    // This one had begun with the old number.
    let refusal = refused(waiting.end().1);
    assert!(refusal.message.contains("could not open relation") || refusal.sqlstate == "42P01", "{refusal:?}");
    let third = session.draw();
    assert!(first < second && second < third);
    assert_eq!(part(&mut session, "worker_id", third), "6");
    assert_eq!(part(&mut session, "worker_id", second), "5");
}

/// All draws wait for an installation that waits.
#[test]
fn an_installation_that_open_transactions_hold_up_gives_up_and_names_them() {
    let (server, mut session) = start("worker_id => 5");
    session.batch_execute("BEGIN; SELECT snowflake_next(); PREPARE TRANSACTION 'p'").unwrap();
    let [mut drawing, mut looking, mut installing] = [(); 3].map(|()| server.connect());
    drawing.batch_execute("BEGIN; SELECT snowflake_next()").unwrap();
    looking.batch_execute("BEGIN; TABLE snowflake_layouts").unwrap();
    installing.batch_execute("BEGIN; SELECT pg_advisory_xact_lock('edition'::regnamespace::oid::integer, 0)").unwrap();
    let holders =
        [&mut installing, &mut drawing, &mut looking].map(|holder| (holder.value("pg_backend_pid()"), holder));
    let mut holders = Vec::from(holders);
    while !holders.is_empty() {
        let mut names: Vec<_> = holders.iter().map(|(pid, _)| pid.clone()).collect();
        names.sort_unstable();
        if session.value("SELECT count(*) FROM pg_prepared_xacts") == "1" {
            names.push("a prepared transaction".to_owned());
        }
        for timeout in ["0", "20ms"] {
            session.batch_execute(&format!("SET lock_timeout = '{timeout}'")).unwrap();
            let refusal = refused(install(&mut session, "worker_id => 6"));
            let within = if timeout == "0" { "500 ms" } else { "\"lock_timeout\"" };
            assert_refused_as(&refusal, "55P03", &format!("could not lock what is installed within {within}"));
            assert_eq!(refusal.detail, Some(format!("These processes hold locks on it: {}.", names.join(", "))));
            server.connect().draw();
        }
        let (_, holder) = holders.remove(0);
        holder.batch_execute("COMMIT").unwrap();
        if holders.len() == 1 {
            session.batch_execute("COMMIT PREPARED 'p'").unwrap();
        }
    }
    install(&mut session, "worker_id => 6").unwrap();
    assert_eq!(session.value("current_setting('lock_timeout')"), "20ms");
}

#[test]
fn a_role_that_owns_only_its_schema_installs_and_others_only_draw() {
    let server = Server::builder().without_preload().start();
    server
        .connect()
        .batch_execute("CREATE ROLE app LOGIN; CREATE ROLE writer LOGIN; CREATE ROLE stranger LOGIN; CREATE SCHEMA ids AUTHORIZATION app")
        .unwrap();
    let mut owner = server.connect_as("app");
    owner.install_edition("ids", "worker_id => 5, settled => true");
    let id = owner.draw();
    owner.batch_execute("GRANT USAGE ON SCHEMA ids TO writer, pg_monitor").unwrap();
    assert_eq!(refused(server.connect_as("stranger").batch_execute("SELECT ids.snowflake_next()")).sqlstate, "42501");
    let mut writer = server.connect_as("writer");
    writer.batch_execute("SET search_path = ids").unwrap();
    assert!(writer.draw() > id);
    assert_eq!(writer.draw_batch(3).len(), 3);
    writer.batch_execute("SELECT snowflake_last(); CALL snowflake_settled(); SELECT * FROM snowflake_layouts").unwrap();
    for statement in [
        "SELECT snowflake_install(worker_id => 6)",
        "SELECT snowflake_advance(0)",
        "SELECT snowflake_advance(0, true)",
        "SELECT _snowflake_forward(0)",
        "SELECT nextval('snowflake_word')",
        "SELECT setval('snowflake_word', 1)",
        "SELECT last_value FROM snowflake_word",
        "ALTER SEQUENCE snowflake_word RESTART",
        "DROP FUNCTION snowflake_next()",
        "SELECT * FROM snowflake_stat",
    ] {
        assert_eq!(refused(writer.batch_execute(statement)).sqlstate, "42501", "{statement}");
    }
    server.connect().batch_execute("GRANT pg_monitor TO writer").unwrap();
    writer.batch_execute("SELECT * FROM snowflake_stat").unwrap();
}

/// Functions run with the rights of the role that ran the file. A sequence of another role, though
/// it may do more, would stop all draws.
#[test]
fn only_the_role_that_ran_the_file_installs_again() {
    let server = Server::builder().without_preload().start();
    server
        .connect()
        .batch_execute(
            "CREATE ROLE app LOGIN; CREATE ROLE deployer LOGIN IN ROLE app; CREATE SCHEMA ids AUTHORIZATION app",
        )
        .unwrap();
    let mut owner = server.connect_as("app");
    owner.install_edition("ids", "worker_id => 5");
    for mut other in [server.connect_as("deployer"), server.connect()] {
        let refusal = refused(other.batch_execute("SELECT ids.snowflake_install(worker_id => 6)"));
        assert_refused_as(&refusal, "42501", "composite type ids._snowflake_layout belongs to role \"app\"");
        assert!(refusal.hint.is_some_and(|hint| hint.contains("run SET ROLE app, and repeat the command")));
        assert_eq!(refused(other.load_edition("ids")).sqlstate, "42501");
        owner.draw();
        other.batch_execute("SET ROLE app; SELECT ids.snowflake_install(worker_id => 6)").unwrap();
        other
            .batch_execute(
                "RESET ROLE; SELECT ids.snowflake_next(); SET ROLE app; SELECT ids.snowflake_install(worker_id => 5)",
            )
            .unwrap();
        owner.draw();
    }
}

/// The installer and the file run what they find, and CREATE OR REPLACE leaves it to its owner. So
/// a role that may create objects in the schema could put its own there first.
#[test]
fn objects_of_another_role_are_refused_before_anything_is_called_or_replaced() {
    let server = Server::builder().without_preload().start();
    let mut session = server.connect();
    session
        .batch_execute("CREATE ROLE mallory LOGIN; CREATE SCHEMA edition; GRANT ALL ON SCHEMA edition TO mallory")
        .unwrap();
    let mut mallory = server.connect_as("mallory");
    mallory.batch_execute("SET search_path = edition").unwrap();
    let escalate = "LANGUAGE plpgsql AS 'BEGIN ALTER ROLE mallory SUPERUSER; END'";
    let installed = "OUT worker_id integer, OUT datacenter_id integer, OUT layout text, OUT max_borrow integer, OUT settled boolean";
    let mut refuse = |session: &mut Client, object: &str, drop: &str, run: &str| {
        let refusal = refused(session.batch_execute(run));
        assert_refused_as(&refusal, "42501", &format!("{object} belongs to role \"mallory\""));
        mallory.batch_execute(&format!("DROP {drop}")).unwrap();
    };
    let mut create = server.connect_as("mallory");
    create.batch_execute("SET search_path = edition").unwrap();
    for (sql, object, drop) in [
        (
            format!("CREATE FUNCTION _snowflake_installed({installed}) {escalate}"),
            "function edition._snowflake_installed()",
            "FUNCTION _snowflake_installed()",
        ),
        (
            format!("CREATE FUNCTION snowflake_next(text) RETURNS void {escalate}"),
            "function edition.snowflake_next(text)",
            "FUNCTION snowflake_next(text)",
        ),
        ("CREATE VIEW _snowflake_lock AS SELECT 1".to_owned(), "view edition._snowflake_lock", "VIEW _snowflake_lock"),
        (
            "CREATE DOMAIN _snowflake_layout AS text".to_owned(),
            "type edition._snowflake_layout",
            "DOMAIN _snowflake_layout",
        ),
        ("CREATE SEQUENCE snowflake_word".to_owned(), "sequence edition.snowflake_word", "SEQUENCE snowflake_word"),
    ] {
        create.batch_execute(&sql).unwrap();
        session.batch_execute("SET search_path = edition").unwrap();
        refuse(&mut session, object, drop, EDITION);
    }
    assert_eq!(session.value("SELECT count(*) FROM pg_proc WHERE pronamespace = 'edition'::regnamespace"), "0");
    session.load_edition("edition").unwrap();
    let hostile = format!("CREATE FUNCTION _snowflake_installed({installed}) {escalate}");
    create.batch_execute(&hostile).unwrap();
    let install = "SELECT edition.snowflake_install(worker_id => 5)";
    refuse(&mut session, "function edition._snowflake_installed()", "FUNCTION _snowflake_installed()", install);

    // Put there while the installer runs, before it makes its own.
    let stopped = EDITION.replace("FOREACH template", "PERFORM pg_advisory_xact_lock_shared(77); FOREACH template");
    session.batch_execute(&format!("{stopped}; SELECT pg_advisory_lock(77)")).unwrap();
    let installing = Running::start(server.connect(), &format!("SELECT 1::bigint FROM ({install}) i"));
    server.wait_until_locked(installing.pid);
    create.batch_execute("CREATE FUNCTION snowflake_last() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'").unwrap();
    session.batch_execute("SELECT pg_advisory_unlock(77)").unwrap();
    let refusal = refused(installing.end().1);
    assert_refused_as(&refusal, "42501", "function edition.snowflake_last() belongs to role \"mallory\"");
    create.batch_execute("DROP FUNCTION snowflake_last()").unwrap();

    // Each object that there is.
    session.install_edition("edition", "worker_id => 5");
    let alter = "SELECT format('ALTER %s %s OWNER TO mallory', upper(i.type), i.identity)
        FROM pg_depend, pg_identify_object(classid, objid, 0) AS i
        WHERE refclassid = 'pg_namespace'::regclass AND refobjid = 'edition'::regnamespace";
    let alters: Vec<String> = session.query(alter, &[]).unwrap().iter().map(|row| row.get(0)).collect();
    assert!(alters.len() > 50, "{alters:?}");
    for alter in alters {
        for run in [EDITION, install] {
            session.batch_execute(&format!("BEGIN; {}", alter.replace("COMPOSITE ", ""))).unwrap();
            let refusal = refused(session.batch_execute(run));
            assert_eq!(refusal.sqlstate, "42501", "{alter}: {refusal:?}");
            session.batch_execute("ROLLBACK").unwrap();
        }
    }
    assert_eq!(session.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"), "false");
    session.draw();
}

/// The installer waits for this lock, which each role can take. Of what a role puts into the schema
/// meanwhile, nothing is called.
#[test]
fn what_another_role_creates_while_the_installer_waits_is_refused_and_not_called() {
    let server = Server::builder().without_preload().start();
    let mut session = server.connect();
    session
        .batch_execute("CREATE ROLE mallory LOGIN; CREATE SCHEMA edition; GRANT ALL ON SCHEMA edition TO mallory")
        .unwrap();
    session.load_edition("edition").unwrap();
    let mut mallory = server.connect_as("mallory");
    mallory.batch_execute("BEGIN; SELECT pg_advisory_xact_lock('edition'::regnamespace::oid::integer, 0)").unwrap();
    let mut patient = server.connect();
    patient.batch_execute("SET lock_timeout = '60s'").unwrap();
    let installing = Running::start(patient, "SELECT 1::bigint FROM edition.snowflake_install(worker_id => 5)");
    server.wait_until_locked(installing.pid);
    mallory
        .batch_execute(
            "CREATE FUNCTION edition._snowflake_place(text, integer, integer, integer) RETURNS bigint LANGUAGE plpgsql AS
                 'BEGIN
                      ALTER ROLE mallory SUPERUSER;
                      EXECUTE format(''ALTER FUNCTION edition._snowflake_place(text, integer, integer, integer) OWNER TO %I'', current_user);
                      RETURN 0;
                  END';
             COMMIT",
        )
        .unwrap();
    let outcome = installing.end().1;
    assert_eq!(session.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"), "false");
    let object = "function edition._snowflake_place(text,integer,integer,integer)";
    assert_refused_as(&refused(outcome), "42501", &format!("{object} belongs to role \"mallory\""));
    mallory.batch_execute("DROP FUNCTION edition._snowflake_place(text, integer, integer, integer)").unwrap();

    // The checks would not see what is committed while a transaction with one snapshot runs.
    for run in [EDITION, "SELECT edition.snowflake_install(worker_id => 5)"] {
        session.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
        let message = "the SQL edition cannot be installed with isolation level \"repeatable read\"";
        assert_refused_as(&refused(session.batch_execute(run)), "0A000", message);
        session.batch_execute("ROLLBACK").unwrap();
    }

    // After the file's own check: a type is not taken over.
    session
        .batch_execute("CREATE SCHEMA other; GRANT ALL ON SCHEMA other TO mallory; SET search_path = other")
        .unwrap();
    let layouts = EDITION.find("-- Layouts: ").unwrap();
    let (checked, rest) = EDITION.split_at(EDITION[..layouts].rfind("DO $edition$").unwrap());
    session.batch_execute(checked).unwrap();
    mallory.batch_execute("CREATE TYPE other._snowflake_layout AS (time_bits integer)").unwrap();
    let refusal = refused(session.batch_execute(rest));
    assert_refused_as(&refusal, "42710", "type \"_snowflake_layout\" already exists");
}

/// A function whose parameters suit a call better than ours would take it over, so each call of the
/// edition has exactly the types of what it calls. These overloads are the owner's, who is not
/// refused.
#[test]
fn no_overload_of_a_function_suits_a_call_of_the_edition_better() {
    let (server, mut session) = start("worker_id => 5, settled => true");
    let create = "DO $$
        DECLARE
            own record;
            alternatives text[];
            lists text[];
        BEGIN
            FOR own IN
                SELECT proname, prokind, proargtypes::oid[] AS types FROM pg_proc
                WHERE pronamespace = 'edition'::regnamespace AND proname <> 'snowflake_install' AND pronargs > 0
            LOOP
                lists := ARRAY[''];
                FOR n IN array_lower(own.types, 1) .. array_upper(own.types, 1) LOOP
                    alternatives := CASE format_type(own.types[n], NULL)
                        WHEN 'bigint' THEN '{bigint, integer, text}'
                        WHEN 'integer' THEN '{integer, bigint, text}'
                        WHEN 'text' THEN '{text, name, varchar}'
                        ELSE ARRAY[format_type(own.types[n], NULL)] END;
                    lists := ARRAY(SELECT list || ', ' || alternative FROM unnest(lists) AS list, unnest(alternatives) AS alternative);
                END LOOP;
                FOR n IN 1 .. cardinality(lists) LOOP
                    BEGIN
                        EXECUTE format('CREATE FUNCTION edition.%I(%s) RETURNS void LANGUAGE plpgsql AS %L',
                            own.proname, substr(lists[n], 3), 'BEGIN RAISE ''an overload is called''; END');
                    EXCEPTION WHEN duplicate_function THEN NULL;
                    END;
                END LOOP;
            END LOOP;
        END $$";
    session.batch_execute(create).unwrap();
    assert!(refused(session.batch_execute("SELECT _snowflake_unit(1)")).message.contains("overload"));
    assert!(
        refused(session.batch_execute("SELECT snowflake_min('2026-01-01', 'js53'::name)")).message.contains("overload")
    );

    let layouts =
        "(VALUES ('js53'::text), ('time:41 sequence:22 unit:1ms epoch:2025-01-01T00:00:00Z')) AS layouts (layout)";
    let calls = [
        "SELECT snowflake_install(max_borrow => 50)",
        "SELECT snowflake_install(worker_id => 6)",
        "SELECT snowflake_next()",
        "SELECT snowflake_batch(5000::integer)",
        "SELECT snowflake_last()",
        "SELECT * FROM snowflake_stat",
        "SELECT * FROM snowflake_layouts",
        "SELECT * FROM snowflake_layout_fields()",
        "CALL snowflake_settled(NULL::bigint)",
        "SELECT snowflake_advance(snowflake_next())",
        "SELECT snowflake_timestamp(1::bigint), snowflake_parse(1::bigint), snowflake_format(1::bigint)",
        "SELECT snowflake_min('2026-01-01'::timestamptz)",
        "SELECT snowflake_compose('2026-01-01'::timestamptz, 5::integer, 0::integer)",
        "SELECT snowflake_compose('2026-01-01'::timestamptz, 5::integer, 0::integer, 0::integer)",
        "SELECT snowflake_compose('2026-01-01'::timestamptz, 5::integer, 0::integer, 5::integer, 'twitter'::text)",
        &format!("SELECT snowflake_timestamp(1::bigint, layout), snowflake_parse(1::bigint, layout) FROM {layouts}"),
        &format!(
            "SELECT snowflake_format(1::bigint, layout), snowflake_min('2026-01-01'::timestamptz, layout) FROM {layouts}"
        ),
        &format!(
            "SELECT snowflake_from('2026-01-01'::timestamptz, layout), snowflake_after(now(), layout) FROM {layouts}"
        ),
        &format!(
            "SELECT snowflake_before('2026-01-01'::timestamptz, layout), snowflake_until(now(), layout) FROM {layouts}"
        ),
        "SELECT snowflake_decode(snowflake_encode(1::bigint, 'base62'::text), 'base62'::text)",
        // The file, which makes anew what is there.
        EDITION,
        "SELECT snowflake_install(worker_id => 7), snowflake_next()",
    ];
    for call in calls {
        session.batch_execute(call).unwrap_or_else(|error| panic!("{}: {error:?}", &call[..20]));
    }
    let mut drawing = server.connect();
    drawing.batch_execute("BEGIN; SELECT edition.snowflake_next()").unwrap();
    for (call, sqlstate) in [
        ("SELECT snowflake_install(worker_id => 8)", "55P03"),
        ("SELECT snowflake_install(layout => 'x')", "22023"),
        ("SELECT snowflake_decode('?'::text, 'base32'::text)", "22023"),
        ("SELECT snowflake_decode('0'::text, 'base32'::text)", "22023"),
        ("SELECT snowflake_encode(1::bigint, 'x'::text)", "22023"),
        ("SELECT snowflake_parse((-1)::bigint)", "22023"),
        ("SELECT snowflake_timestamp((-1)::bigint)", "22023"),
        ("SELECT snowflake_parse(1::bigint, 'x'::text)", "22023"),
        ("SELECT snowflake_min('1000-01-01'::timestamptz)", "22008"),
        ("SELECT snowflake_compose('2026-01-01'::timestamptz, 5::integer, (-1)::integer)", "22023"),
        ("SELECT snowflake_advance((-1)::bigint)", "22023"),
        ("BEGIN READ ONLY; SELECT snowflake_batch(1::integer)", "25006"),
        ("BEGIN READ ONLY; SELECT snowflake_advance(1::bigint)", "25006"),
    ] {
        let refusal = refused(session.batch_execute(call));
        assert_eq!(refusal.sqlstate, sqlstate, "{call}: {refusal:?}");
        session.batch_execute("ROLLBACK").unwrap();
    }
}

/// As services have it that give all rights on new objects to the roles of their users.
#[test]
fn default_privileges_permit_others_no_more_than_to_draw() {
    let server = Server::builder().without_preload().start();
    let mut owner = server.connect();
    owner
        .batch_execute(
            "CREATE ROLE writer LOGIN; CREATE SCHEMA edition; GRANT USAGE ON SCHEMA edition TO writer;
             ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO writer, PUBLIC;
             ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO writer, PUBLIC;
             ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO writer",
        )
        .unwrap();
    owner.load_edition("edition").unwrap();
    for arguments in ["worker_id => 5", "max_borrow => 50", "worker_id => 6", ""] {
        if arguments.is_empty() {
            // As a dump that is restored in such a database.
            owner
                .batch_execute("GRANT ALL ON SEQUENCE edition.snowflake_word TO writer; GRANT ALL ON edition._snowflake_lock TO PUBLIC")
                .unwrap();
        }
        install(&mut owner, arguments).unwrap();
        let mut writer = server.connect_as("writer");
        writer.batch_execute("SET search_path = edition").unwrap();
        let id = writer.draw();
        for sql in [
            "SELECT nextval('snowflake_word')",
            "SELECT setval('snowflake_word', 1)",
            "SELECT snowflake_advance(1)",
            "SELECT snowflake_advance(1, true)",
            "SELECT _snowflake_forward(1)",
            "BEGIN; LOCK TABLE _snowflake_lock IN SHARE UPDATE EXCLUSIVE MODE",
            "SELECT snowflake_install(worker_id => 7)",
        ] {
            assert_eq!(refused(writer.batch_execute(sql)).sqlstate, "42501", "{sql}");
            writer.batch_execute("ROLLBACK").unwrap();
        }
        assert!(writer.draw() > id);
    }
}

/// Its number of microseconds is negative, and a minus sign would be an operator of the caller.
#[test]
fn an_epoch_before_1970_calls_no_operator_of_the_caller() {
    let (server, _session) =
        start("worker_id => 5, layout => 'time:45 worker:8 sequence:10 unit:1ms epoch:1900-01-01T00:00:00Z'");
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE SCHEMA hostile; CREATE FUNCTION hostile.minus(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint / 0';
             CREATE OPERATOR hostile.- (RIGHTARG = bigint, FUNCTION = hostile.minus); SET search_path = hostile, pg_catalog, edition",
        )
        .unwrap();
    refused(session.batch_execute("SELECT - 1::bigint"));
    let id = session.draw();
    assert!(session.ids("SELECT * FROM snowflake_batch(5000)").unwrap()[0] > id);
    assert_eq!(part(&mut session, "worker_id", id), "5");
}

/// What comes first in the search_path of a session, or in its temporary schema, changes nothing.
#[test]
fn names_of_other_schemas_do_not_get_in_between() {
    let (server, _session) = start("worker_id => 5, settled => true");
    let mut session = server.connect();
    let types = "CREATE DOMAIN pg_temp.text AS int; CREATE DOMAIN pg_temp.timestamptz AS int; CREATE DOMAIN pg_temp.regclass AS int";
    session.batch_execute(types).unwrap();
    let mut hostile = "CREATE SCHEMA hostile; CREATE FUNCTION hostile.f(bigint, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint / 0';
         CREATE FUNCTION hostile.i(bigint, integer) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint / 0';
         CREATE FUNCTION hostile.b(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT 1 / 0 = 1';
         CREATE FUNCTION hostile.t(pg_catalog.text, pg_catalog.text) RETURNS boolean LANGUAGE sql AS 'SELECT 1 / 0 = 1';
         CREATE FUNCTION hostile.d(double precision, double precision) RETURNS double precision LANGUAGE sql AS 'SELECT 1.0 / 0';
         CREATE FUNCTION hostile.nextval(pg_catalog.regclass) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint / 0';
         CREATE FUNCTION hostile.clock_timestamp() RETURNS pg_catalog.timestamptz LANGUAGE sql AS 'SELECT now() + (1 / 0) * interval ''1 s''';
         CREATE FUNCTION hostile.setval(pg_catalog.regclass, bigint, boolean) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint / 0';"
        .to_owned();
    for operator in ["+", "-", "*", "/", "%", "&", "|"] {
        hostile +=
            &format!("CREATE OPERATOR hostile.{operator} (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = hostile.f);");
    }
    for operator in ["<<", ">>"] {
        hostile += &format!(
            "CREATE OPERATOR hostile.{operator} (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = hostile.i);"
        );
    }
    for operator in ["<", ">", "<=", ">=", "=", "<>"] {
        hostile +=
            &format!("CREATE OPERATOR hostile.{operator} (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = hostile.b);");
    }
    for operator in ["*", "/"] {
        hostile += &format!(
            "CREATE OPERATOR hostile.{operator} (LEFTARG = double precision, RIGHTARG = double precision, FUNCTION = hostile.d);"
        );
    }
    hostile +=
        "CREATE OPERATOR hostile.= (LEFTARG = pg_catalog.text, RIGHTARG = pg_catalog.text, FUNCTION = hostile.t)";
    session.batch_execute(&hostile).unwrap();
    session.batch_execute("SET search_path = hostile, pg_temp, edition, pg_catalog").unwrap();
    let mut ids = vec![session.draw()];
    ids.extend(session.ids("SELECT * FROM snowflake_batch(5000)").unwrap());
    assert_ascending(&ids);
    session
        .batch_execute(
            "SELECT snowflake_timestamp(snowflake_last()), snowflake_timestamp(0, 'twitter'), snowflake_parse(1),
                snowflake_parse(1, 'time:41 sequence:22 unit:1ms epoch:2025-01-01T00:00:00Z'), snowflake_format(1),
                snowflake_compose('2026-01-01', 5, 0), snowflake_min('2026-01-01'), snowflake_until('2026-01-01', 'js53'),
                snowflake_encode(1, 'base62'), snowflake_decode('0000000000000', 'base32');
             CALL snowflake_settled(); SELECT * FROM snowflake_stat; SELECT * FROM snowflake_layouts;
             SELECT snowflake_advance(snowflake_last())",
        )
        .unwrap();
    // The installer, and the file.
    session.batch_execute("SELECT snowflake_install(worker_id => 6)").unwrap();
    assert!(session.draw() > *ids.last().unwrap());
    session.batch_execute("CREATE SCHEMA other; SET search_path = other, hostile, pg_catalog").unwrap();
    session.batch_execute(EDITION).unwrap();
    session.batch_execute("SELECT snowflake_install(worker_id => 7)").unwrap();
    session.batch_execute("SELECT snowflake_next()").unwrap();
}

#[test]
fn two_installations_in_one_database_do_not_wait_for_each_other() {
    let (server, mut session) = start("worker_id => 5");
    session.install_edition("Other one", "worker_id => 6, layout => 'sonyflake'");
    session.batch_execute("BEGIN; LOCK TABLE edition._snowflake_lock IN SHARE UPDATE EXCLUSIVE MODE").unwrap();
    let mut other = server.connect();
    other.batch_execute("SET lock_timeout = '10s'; SET search_path = \"Other one\"").unwrap();
    let ids = other.draw_batch(1000);
    assert_ascending(&ids);
    assert_eq!(other.value("SELECT worker_id FROM snowflake_parse(snowflake_last())"), "6");
    session.batch_execute("COMMIT").unwrap();
    assert_eq!(session.value("SELECT worker_id FROM edition.snowflake_parse(edition.snowflake_next())"), "5");
}

#[test]
fn schemas_that_cannot_serve_are_refused() {
    if !runs_extension() {
        return skip("the extension needs PostgreSQL 15");
    }
    let server = Server::drawing().start();
    let mut session = server.connect();
    session.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    for (path, sqlstate) in
        [("public", "42710"), ("nowhere", "3F000"), ("pg_temp", "3F000"), ("\"a$b\"", "3F000"), ("\"a@k@b\"", "3F000")]
    {
        let mut session = server.connect();
        session.batch_execute("CREATE SCHEMA IF NOT EXISTS \"a$b\"; CREATE SCHEMA IF NOT EXISTS \"a@k@b\"").unwrap();
        session.batch_execute(&format!("CREATE TEMP TABLE temporary (); SET search_path = {path}")).unwrap();
        assert_eq!(refused(session.batch_execute(EDITION)).sqlstate, sqlstate, "{path}");
    }
    // Beside the extension, in a schema of its own.
    session.install_edition("edition", "worker_id => 6");
    session.batch_execute("SELECT public.snowflake_next(), edition.snowflake_next()").unwrap();
}

#[test]
fn an_advance_is_not_undone_by_a_rollback() {
    let (server, mut session) = start("worker_id => 5");
    let first = session.draw();
    let later = session.value("SELECT snowflake_min(now() + interval '50 ms') + 77");
    session.batch_execute(&format!("BEGIN; SELECT snowflake_advance({later}); ROLLBACK")).unwrap();
    let next = server.connect().draw();
    assert!(next > later.parse().unwrap() && next > first, "{next} {later}");
    // Below the last one, nothing changes.
    session.batch_execute(&format!("SELECT snowflake_advance({first}), snowflake_advance(0, true)")).unwrap();
    assert!(session.draw() > next);
    let far = session.value("SELECT snowflake_min(now() + interval '2 days')");
    let refusal = refused(session.batch_execute(&format!("SELECT snowflake_advance({far})")));
    assert!(refusal.message.ends_with(" is too far ahead of the clock"), "{refusal:?}");
    session.draw();
    session.batch_execute(&format!("SELECT snowflake_advance({far}, true)")).unwrap();
    for _ in 0..3 {
        let refusal = refused(session.try_draw());
        assert_eq!(refusal.sqlstate, "58000");
        assert!(refusal.message.starts_with("clock is 172"), "{refusal:?}");
        assert!(refusal.hint.is_some_and(|hint| hint.contains("drop the sequence snowflake_word")));
    }
    // The way out.
    session.batch_execute("DROP SEQUENCE snowflake_word; SELECT snowflake_install(worker_id => 6)").unwrap();
    assert!(session.draw() < far.parse().unwrap());
}

#[test]
fn the_last_id_is_the_sessions_until_it_discards_it() {
    let (server, mut session) = start("worker_id => 5");
    let id = session.draw();
    server.connect().draw_batch(100);
    assert_eq!(session.value("snowflake_last()"), id.to_string());
    session.batch_execute("DISCARD ALL").unwrap();
    assert_eq!(refused(session.ids("SELECT snowflake_last()")).sqlstate, "55000");
    assert_eq!(refused(server.connect().ids("SELECT snowflake_last()")).sqlstate, "55000");
}

#[test]
fn a_sequence_that_was_altered_is_noticed_by_the_installer() {
    let (_server, mut session) = start("worker_id => 5");
    for alter in ["CACHE 20", "INCREMENT 2", "CYCLE"] {
        session.batch_execute(&format!("ALTER SEQUENCE snowflake_word {alter}")).unwrap();
        let refusal = refused(install(&mut session, ""));
        assert_refused_as(&refusal, "55000", "sequence \"snowflake_word\" was altered");
        session.batch_execute("ALTER SEQUENCE snowflake_word INCREMENT 1 CACHE 1 NO CYCLE").unwrap();
    }
    install(&mut session, "").unwrap();
}

/// Starts a server whose clock stands still, with the edition.
fn start_frozen(arguments: &str) -> Option<(Server, Client)> {
    if faketime_library().is_none() {
        skip("libfaketime is not installed");
        return None;
    }
    let server = Server::builder().without_preload().faketime().start();
    server.connect().batch_execute("ALTER DATABASE postgres SET search_path = edition, public").unwrap();
    server.freeze_clock(noon() - 1);
    let mut session = server.connect();
    session.install_edition("edition", arguments);
    server.freeze_clock(noon());
    Some((server, session))
}

#[test]
fn ids_run_ahead_of_a_clock_that_is_a_little_behind_and_are_refused_by_one_that_was_set_back() {
    let Some((server, mut session)) = start_frozen("worker_id => 5") else { return };
    let ms = |id| Layout::parse("snowflake").unwrap().created_at_ms(id).unwrap();
    let mut ids = session.draw_batch(10);
    assert!(ids.iter().all(|id| ms(*id) == noon()));
    for behind_ms in [1, 50, 100] {
        server.freeze_clock(noon() - behind_ms);
        ids.push(session.draw());
    }
    server.freeze_clock(noon() - 201);
    for _ in 0..2 {
        let refusal = refused(session.try_draw());
        assert_refused_as(&refusal, "58000", "clock is 201 ms behind the last id");
        let detail = format!(
            "Ids may run ahead of the clock by up to 100 ms (\"max_borrow\"). The server draws ids again once its clock \
             reaches {}.",
            Utc(noon() - 100)
        );
        assert_eq!(refusal.detail, Some(detail));
    }
    server.freeze_clock(noon() - DAY_MS);
    assert_refused_as(&refused(session.try_draw()), "58000", "clock is 86400000 ms behind the last id");
    assert_eq!(locks(&mut session), "0");
    server.freeze_clock(noon() + 1);
    ids.push(session.draw());
    // More than the tick has.
    ids.extend(session.draw_batch(10_000));
    assert_ascending(&ids);
    assert_eq!(assert_unique(&ids), 10_014);
    assert_eq!(ms(*ids.last().unwrap()), noon() + 3);
    server.freeze_clock(cluster::instant("2024-12-31T23:59:59Z"));
    assert_refused_as(&refused(session.try_draw()), "22008", "clock is before the layout's epoch");
    server.freeze_clock(cluster::instant("2094-09-07T15:47:35.552Z"));
    assert_refused_as(&refused(session.try_draw()), "2200H", "the time of layout \"snowflake\" has run out");
}

/// The lie: an edition in which the next tick follows right after the last sequence, so that
/// `nextval` can get there while another session is about to begin that tick.
const LIE: &str = "
    UPDATE edits SET body = replace(replace(replace(replace(body, '>> 25', '>> 2'), '<< 25', '<< 2'), '33554428', '0'),
        '33554431', '3');
    UPDATE edits SET body = replace(body, 'OPERATOR(pg_catalog.>>) 25', 'OPERATOR(pg_catalog.>>) 2');
    SELECT setval('snowflake_word', (last_value >> 25 << 2) + 3) FROM snowflake_word";

/// A session that holds the lock is stopped between reading the last word and setting the next one.
#[test]
fn while_a_session_changes_the_tick_no_other_gets_there_by_drawing() {
    let layout = "time:38 worker:10 sequence:2 unit:1ms epoch:2026-01-01T00:00:00Z";
    for is_lie in [false, true] {
        let Some((server, mut session)) = start_frozen(&format!("worker_id => 5, layout => '{layout}'")) else {
            return;
        };
        let edits = "CREATE TEMP TABLE edits AS SELECT replace(pg_get_functiondef(f),
                'target := greatest', 'PERFORM pg_advisory_xact_lock(42); target := greatest') AS body
            FROM unnest('{snowflake_next(),_snowflake_forward(bigint)}'::regprocedure[]) AS f";
        session.batch_execute(edits).unwrap();
        if is_lie {
            session.batch_execute(LIE).unwrap();
        }
        session.batch_execute("DO 'DECLARE b text; BEGIN FOR b IN TABLE edits LOOP EXECUTE b; END LOOP; END'").unwrap();
        // Two of the tick's four.
        let mut ids = vec![session.draw(), session.draw()];
        server.freeze_clock(noon() + 1);
        session.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(42)").unwrap();
        let holder = Running::start(server.connect(), "SELECT snowflake_next()");
        server.wait_until_locked(holder.pid);
        let second = Running::start(server.connect(), "SELECT snowflake_next()");
        server.wait_until_locked(second.pid);
        let third = Running::start(server.connect(), "SELECT snowflake_next()");
        if is_lie {
            wait_until("the draw of the next tick", || third.is_over());
        } else {
            server.wait_until_locked(third.pid);
        }
        session.batch_execute("COMMIT").unwrap();
        for draw in [holder, second, third] {
            ids.extend(draw.end().1.unwrap());
        }
        let distinct: BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len() < ids.len(), is_lie, "{ids:?}");
    }
}

#[test]
fn every_built_in_layout_draws_the_ids_that_it_reads() {
    let Some((server, mut session)) = start_frozen("worker_id => 5") else { return };
    let mut at = noon();
    for layout in [
        "twitter",
        "js53",
        "leaf",
        "discord",
        "instagram",
        "mastodon",
        "sonyflake",
        "cosid",
        "pgedge",
        "time:41 sequence:22 unit:1ms epoch:2025-01-01T00:00:00Z",
        "time:33 sequence:30 unit:1s epoch:2025-01-01T00:00:00Z",
        "time:38 worker:24 sequence:1 unit:100ms epoch:2025-01-01T00:00:00Z",
    ] {
        let parsed = Layout::parse(layout).unwrap();
        let fields: Vec<_> = parsed.fields().map(|field| field.field.name()).collect();
        let number = |name: &str| if fields.contains(&name) { 3 } else { 0 };
        let (worker, datacenter) = (number("worker"), number("datacenter"));
        install(
            &mut session,
            &format!("worker_id => {worker}, datacenter_id => {datacenter}, layout => '{layout}', accept => true"),
        )
        .unwrap();
        // Ids begin in the tick after the installation.
        at += 2000;
        server.freeze_clock(at);
        let ids = session.draw_batch(2);
        assert_ascending(&ids);
        for id in ids {
            let parts = parsed.parts(id).unwrap();
            assert!(
                (at - parsed.unit().ms() + 1..=at + parsed.unit().ms()).contains(&parts.created_at_ms),
                "{layout} {id}"
            );
            assert_eq!((parts.worker.unwrap_or(0), parts.datacenter.unwrap_or(0)), (worker, datacenter), "{layout}");
        }
    }
}

#[test]
fn the_settled_id_covers_what_has_ended_and_nothing_that_is_open() {
    let (server, mut reader) = start("worker_id => 5");
    assert_eq!(refused(reader.batch_execute("CALL snowflake_settled()")).sqlstate, "0A000");
    install(&mut reader, "settled => true").unwrap();
    let mut writer = server.connect();
    let first = writer.draw();
    assert!(settled(&mut reader) >= first);

    let ends = ["COMMIT", "ROLLBACK", "PREPARE TRANSACTION 'p'", "ROLLBACK TO s; COMMIT"];
    for end in ends {
        writer.batch_execute("BEGIN").unwrap();
        let open = writer.draw();
        writer.batch_execute("SAVEPOINT s").unwrap();
        writer.draw_batch(3);
        let later = server.connect().draw();
        assert!(settled(&mut reader) < open, "{end}");
        assert_eq!(locks(&mut reader), "1");
        writer.batch_execute(end).unwrap();
        if end.starts_with("PREPARE") {
            assert!(settled(&mut reader) < open, "{end}");
            writer.batch_execute("COMMIT PREPARED 'p'").unwrap();
        }
        assert!(settled(&mut reader) >= later, "{end}");
    }
    assert_eq!(locks(&mut reader), "0");

    // Where later statements do not see what has ended.
    reader.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
    let refusal = refused(reader.batch_execute("CALL snowflake_settled()"));
    assert_refused_as(&refusal, "0A000", "snowflake_settled() does not work with isolation level \"repeatable read\"");
}
