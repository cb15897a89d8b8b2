//! `snowflake_partitions()`: which partitions it makes and drops, what it refuses, and what other
//! sessions notice of it.
//!
//! Unless a clock is frozen, the present is that of the machine, so expected months are computed by
//! the server, too.

use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cluster::drawing::DAY_MS;
use cluster::plans::rows;
use cluster::{Draw, Refusal, Running, Server, assert_unique, instant, refused, wait_until};
use postgres::Client;

/// A table of ids, and a function that makes a partition from a number of months ago to another.
const EVENTS: &str = "
    CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_next(), n integer) PARTITION BY RANGE (id);
    CREATE FUNCTION month(ago integer) RETURNS bigint LANGUAGE sql AS
        $$SELECT snowflake_min(date_trunc('month', now(), 'UTC') - ago * interval '1 month')$$;
    CREATE FUNCTION make(name text, ago integer, until integer) RETURNS void LANGUAGE plpgsql AS $$BEGIN
        EXECUTE format('CREATE TABLE %I PARTITION OF events FOR VALUES FROM (%s) TO (%s)', name, month(ago), month(until));
    END$$";

fn events(sql: &str) -> (Server, Client) {
    // An autovacuum changes what catalogs say.
    let server = Server::drawing().config("autovacuum", "off").start_with_extension();
    let mut session = server.connect();
    // Far from UTC, which decides alone.
    session.batch_execute("ALTER DATABASE postgres SET timezone = 'Pacific/Kiritimati'").unwrap();
    let mut session = server.connect();
    session.batch_execute(EVENTS).unwrap();
    session.batch_execute(sql).unwrap();
    (server, session)
}

/// Calls the procedure, and returns the statements that it has run.
#[track_caller]
fn call(session: &mut Client, arguments: &str) -> Vec<String> {
    let text = rows(session, &format!("CALL snowflake_partitions({arguments})")).unwrap().concat();
    if text == "NULL" { Vec::new() } else { text.lines().map(str::to_owned).collect() }
}

#[track_caller]
fn refuse(session: &mut Client, arguments: &str) -> Refusal {
    refused(session.batch_execute(&format!("CALL snowflake_partitions({arguments})")))
}

/// The names of a table's partitions, in the order of their bounds.
fn names(session: &mut Client, table: &str) -> Vec<String> {
    let sql = format!(
        r"SELECT relname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = '{table}'::regclass
          ORDER BY substring(pg_get_expr(relpartbound, c.oid) FROM 'TO \(''(\d+)')::bigint"
    );
    rows(session, &sql).unwrap()
}

/// The names that partitions have from a number of months ago to a number of months ahead.
fn months(session: &mut Client, from: i32, to: i32) -> Vec<String> {
    let sql = format!(
        "SELECT to_char((now() AT TIME ZONE 'UTC')::date - extract(day FROM now() AT TIME ZONE 'UTC')::integer + 1
                        + n * interval '1 month', '\"events_\"YYYY_MM')
         FROM generate_series({from}, {to}) n ORDER BY n"
    );
    rows(session, &sql).unwrap()
}

/// Everything that the catalogs say about tables, and the transaction that changed it.
fn catalogs(session: &mut Client) -> Vec<String> {
    let mut all = Vec::new();
    for catalog in ["pg_class", "pg_inherits", "pg_attribute", "pg_constraint", "pg_depend", "pg_trigger", "pg_index"] {
        all.extend(rows(session, &format!("SELECT xmin, c.* FROM {catalog} c ORDER BY c::text")).unwrap());
    }
    all
}

#[test]
fn the_present_and_what_is_ahead_have_partitions_and_a_second_call_does_nothing() {
    let (_server, mut session) = events("");
    let run = call(&mut session, "'events', 'month', ahead => 3, keep => '1 year'");
    let expected = months(&mut session, 0, 3);
    assert_eq!(names(&mut session, "events"), expected);
    assert_eq!(run.iter().filter(|statement| statement.contains(" ATTACH PARTITION ")).count(), 4, "{run:#?}");
    session.batch_execute("INSERT INTO events DEFAULT VALUES").unwrap();
    for _ in 0..2 {
        let before = catalogs(&mut session);
        assert_eq!(call(&mut session, "'events', 'month', ahead => 3, keep => '1 year'"), [""; 0]);
        assert_eq!(catalogs(&mut session), before);
    }
    // The defaults: three ahead, and nothing is dropped.
    assert_eq!(call(&mut session, "'events', 'month'"), [""; 0]);
    assert_eq!(call(&mut session, "'events', 'month', 4").len(), 2);
    assert_eq!(names(&mut session, "events"), months(&mut session, 0, 4));
    assert_eq!(session.value("current_setting('lock_timeout')"), "0", "the session's settings are as before");
}

#[test]
fn each_unit_begins_where_utc_says_and_each_id_has_its_partition() {
    let (_server, mut session) = events("");
    let layouts = ["snowflake", "twitter", "js53", "sonyflake", "tsid"];
    let units = ["hour", "day", "week", "month", "quarter", "year"];
    for (number, unit) in units.into_iter().enumerate() {
        for (other, layout) in layouts.into_iter().enumerate() {
            // Each with the setting's layout, too.
            let argument = if other == 0 { "NULL".to_owned() } else { format!("'{layout}'") };
            let table = format!("t{number}_{other}");
            session.batch_execute(&format!("CREATE TABLE {table} (id bigint) PARTITION BY RANGE (id)")).unwrap();
            let arguments = format!("'{table}', '{unit}', 5, layout => {argument}");
            call(&mut session, &arguments);
            assert_eq!(call(&mut session, &arguments), [""; 0], "{unit} {layout}");
            let bounds = format!(
                r"SELECT snowflake_timestamp(b[1]::bigint, '{layout}') AS s, snowflake_timestamp(b[2]::bigint, '{layout}') AS e,
                         b[1]::bigint AS first, b[2]::bigint AS after
                  FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid,
                       regexp_match(pg_get_expr(relpartbound, c.oid), 'FROM \(''(\d+)''\) TO \(''(\d+)''\)') b
                  WHERE inhparent = '{table}'::regclass"
            );
            let right = format!(
                "SELECT count(*) = 6 AND min(s) <= now() AND max(e) > now() + 5 * interval '{}'
                        AND bool_and(s = date_trunc('{unit}', s, 'UTC') AND e = date_trunc('{unit}', e, 'UTC') AND s < e
                                     AND first = snowflake_min(s, '{layout}') AND after = snowflake_min(e, '{layout}'))
                        AND count(DISTINCT s) = 6 AND bool_and(s = (SELECT min(s) FROM ({bounds}) b)
                                                               OR s IN (SELECT e FROM ({bounds}) b)) FROM ({bounds}) b",
                ["59 minutes", "23 hours", "6 days", "27 days", "85 days", "360 days"][number]
            );
            assert_eq!(session.value(&right), "true", "{unit} {layout}");
            // The first and the last id of each.
            session
                .batch_execute(&format!("INSERT INTO {table} SELECT unnest(ARRAY[first, after - 1]) FROM ({bounds}) b"))
                .unwrap();
            let spread = format!("SELECT max(n) FROM (SELECT count(*) AS n FROM {table} GROUP BY tableoid) c");
            assert_eq!(session.value(&spread), "2", "{unit} {layout}");
        }
    }
}

#[test]
fn only_what_lies_wholly_before_the_limit_is_dropped() {
    let all = "SELECT make('before', 20, 14), make('old', 14, 13), make('young', 12, 11), make('rest', 11, 0);
         ALTER TABLE before RENAME TO \"Be\"\"fore\"; CREATE SCHEMA attic; SELECT make('edge', 13, 12); ALTER TABLE edge SET SCHEMA attic;
         INSERT INTO events SELECT month(ago) FROM generate_series(1, 20) ago";
    let (_server, mut session) = events(all);
    let ahead = months(&mut session, 0, 1);
    let expect = |session: &mut Client, dropped: usize, keep: &str| {
        call(session, &format!("'events', 'month', 1, {keep}"));
        let old = ["Be\"fore", "old", "edge", "young", "rest"].map(str::to_owned);
        assert_eq!(names(session, "events"), [&old[dropped..], &ahead].concat(), "{keep}");
        let rows = [20, 14, 13, 12, 11, 0][dropped];
        assert_eq!(session.value("SELECT count(*) FROM events"), rows.to_string(), "{keep}");
    };
    expect(&mut session, 0, "NULL");
    expect(&mut session, 0, "'100 years'");
    for (number, keep) in ["'15 months'", "'14 months'", "'13 months'", "'12 months'", "'11 months'"].iter().enumerate()
    {
        expect(&mut session, number, keep);
        expect(&mut session, number, keep);
    }
    // What is in a month that has not ended stays, even if nothing is to be kept.
    expect(&mut session, 5, "'0'");
    session.batch_execute("INSERT INTO events DEFAULT VALUES").unwrap();
    assert_eq!(call(&mut session, "'events', 'month', 1, '0'"), [""; 0]);
    assert_eq!(session.value("SELECT count(*) FROM events"), "1");
    assert_eq!(session.value("SELECT count(*) FROM pg_class WHERE relname IN ('Be\"fore', 'old', 'edge')"), "0");
}

/// At the very moment at which a partition becomes old.
#[test]
fn a_partition_is_dropped_when_the_time_of_its_end_is_the_limit_and_not_a_millisecond_before() {
    let start = instant("2026-10-15T12:00:00Z");
    let Some(server) = Server::drawing().start_frozen(start) else { return };
    let mut session = server.connect();
    session.batch_execute("CREATE TABLE events (id bigint) PARTITION BY RANGE (id)").unwrap();
    call(&mut session, "'events', 'day', 3, '2 days'");
    let name = |day: u32| format!("events_2026_10_{day}");
    assert_eq!(names(&mut session, "events"), (15..=18).map(name).collect::<Vec<_>>());
    server.freeze_clock(instant("2026-10-18T00:00:00Z") - 1);
    call(&mut session, "'events', 'day', 3, '2 days'");
    assert_eq!(names(&mut session, "events"), (15..=20).map(name).collect::<Vec<_>>());
    server.freeze_clock(instant("2026-10-18T00:00:00Z"));
    call(&mut session, "'events', 'day', 3, '2 days'");
    assert_eq!(names(&mut session, "events"), (16..=21).map(name).collect::<Vec<_>>());
    // Year after year, as pg_cron would call it.
    for day in 0..400 {
        server.freeze_clock(instant("2026-10-18T03:15:00Z") + day * DAY_MS);
        call(&mut session, "'events', 'day', 3, '2 days'");
        assert_eq!(names(&mut session, "events").len(), 6);
    }
}

/// The clock, or the layout, makes all partitions look old.
#[test]
fn nothing_is_dropped_across_a_gap() {
    let Some(server) = Server::drawing().start_frozen(instant("2026-10-15T12:00:00Z")) else { return };
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE TABLE events (id bigint DEFAULT snowflake_next()) PARTITION BY RANGE (id);
             CREATE TABLE plain (id bigint) PARTITION BY RANGE (id)",
        )
        .unwrap();
    for table in ["events", "plain"] {
        call(&mut session, &format!("'{table}', 'day', 3, '2 days'"));
    }
    // Ten years to the day lie between the epochs of these layouts. The names are taken.
    assert_eq!(refuse(&mut session, "'plain', 'day', 3, '2 days', layout => 'discord'").sqlstate, "42P07");
    session.batch_execute("DO $$BEGIN FOR day IN 15..18 LOOP EXECUTE format('ALTER TABLE plain_2026_10_%s RENAME TO plain_%s', day, day); END LOOP; END$$").unwrap();
    let refusal = refuse(&mut session, "'plain', 'day', 3, '2 days', layout => 'discord'");
    assert_eq!(refusal.sqlstate, "42P16");
    assert_eq!(refusal.message, "cannot drop partition public.plain_15 because of a gap between it and the present");
    assert!(names(&mut session, "plain").contains(&"plain_15".to_owned()));
    // A clock that is a year ahead. Rows of that time can be stored, and none is lost.
    server.freeze_clock(instant("2027-10-15T12:00:00Z"));
    let refusal = refuse(&mut session, "'events', 'day', 3, '2 days', dry_run => true");
    for _ in 0..2 {
        assert_eq!(refuse(&mut session, "'events', 'day', 3, '2 days'"), refusal);
        assert_eq!(names(&mut session, "events").len(), 8);
    }
    let detail = refusal.detail.unwrap();
    assert!(
        detail.contains("(2026-10-19 00:00:00.000Z) to") && detail.contains("(2027-10-15 00:00:00.000Z)"),
        "{detail}"
    );
    // Without keep there is nothing to refuse.
    assert_eq!(call(&mut session, "'events', 'day'"), [""; 0]);
    // A person fills the gap.
    let fill = "SELECT format('CREATE TABLE gap PARTITION OF events FOR VALUES FROM (%s) TO (%s)',
                snowflake_min('2026-10-19Z'), snowflake_min('2027-10-15Z'))";
    let fill = session.value(&fill["SELECT ".len()..]);
    session.batch_execute(&fill).unwrap();
    call(&mut session, "'events', 'day', 3, '2 days'");
    assert_eq!(names(&mut session, "events").len(), 5, "the gap ends with the present day");
}

#[test]
fn a_dry_run_changes_nothing_and_psql_can_run_what_it_returns() {
    let (server, mut session) = events("SELECT make('old', 15, 14), make('older', 20, 15), make('rest', 14, 0)");
    for with_default in [false, true] {
        if with_default {
            session
                .batch_execute("SELECT make('old', 15, 14); CREATE TABLE others PARTITION OF events DEFAULT")
                .unwrap();
        }
        let ahead = if with_default { 3 } else { 2 };
        let arguments = format!("'events', 'month', {ahead}, '1 year', dry_run => true");
        let before = catalogs(&mut session);
        // Whatever others hold.
        let mut other = server.connect();
        other.batch_execute("BEGIN; LOCK TABLE events").unwrap();
        let script = call(&mut session, &arguments);
        other.batch_execute("ROLLBACK").unwrap();
        assert_eq!(session.value("pg_current_xact_id_if_assigned()"), "NULL");
        assert_eq!(catalogs(&mut session), before);
        let detaches: Vec<_> = script.iter().filter(|statement| statement.contains(" DETACH ")).collect();
        assert_eq!(detaches.len(), 2 - usize::from(with_default), "{script:#?}");
        // PostgreSQL does not detach concurrently beside a default partition.
        assert!(detaches.iter().all(|detach| detach.ends_with(" CONCURRENTLY;") != with_default), "{detaches:?}");
        // In a transaction block, a dry run is as good.
        assert_eq!(
            rows(&mut session, &format!("BEGIN; CALL snowflake_partitions({arguments}); COMMIT")).unwrap(),
            [script.join("\n")]
        );

        let file = std::env::temp_dir().join(format!("partitions-{}-{with_default}.sql", std::process::id()));
        std::fs::write(&file, script.join("\n")).unwrap();
        let Output { status, stderr, .. } = server.psql_file(&file, &["--set=ON_ERROR_STOP=1"]);
        std::fs::remove_file(&file).unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        let mut expected = [vec!["rest".to_owned()], months(&mut session, 0, ahead)].concat();
        expected.extend(with_default.then(|| "others".to_owned()));
        assert_eq!(names(&mut session, "events"), expected);
        assert_eq!(call(&mut session, &format!("'events', 'month', {ahead}, '1 year'")), [""; 0]);
    }
}

#[test]
fn sessions_that_call_at_once_share_the_steps() {
    let (server, mut session) = events("SELECT make('a' || ago, ago, ago - 1) FROM generate_series(1, 20) ago");
    let steps: Vec<_> = thread::scope(|scope| {
        let calls: Vec<_> = (0..6)
            .map(|_| {
                let mut session = server.connect();
                scope.spawn(move || {
                    // A busy machine may let a session wait for more than half a second.
                    session.batch_execute("SET lock_timeout = '5min'").unwrap();
                    call(&mut session, "'events', 'month', 20, '1 year'")
                })
            })
            .collect();
        calls.into_iter().flat_map(|call| call.join().unwrap()).collect()
    });
    let mut distinct = steps.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), steps.len(), "no step is done twice");
    assert_eq!(steps.iter().filter(|step| step.contains(" ATTACH ")).count(), 21);
    assert_eq!(steps.iter().filter(|step| step.contains("DROP TABLE")).count(), 8);
    let kept: Vec<_> = (1..=12).rev().map(|ago| format!("a{ago}")).collect();
    assert_eq!(names(&mut session, "events"), [kept, months(&mut session, 0, 20)].concat());
}

#[test]
fn writers_and_readers_lose_nothing_while_partitions_come_and_go() {
    let (server, mut session) = events(
        "SELECT make('a' || ago, ago, ago - 1) FROM generate_series(1, 20) ago;
         CREATE TABLE marks (event bigint NOT NULL REFERENCES events);
         CREATE INDEX ON events (n);
         INSERT INTO events SELECT month(ago), -1 FROM generate_series(1, 20) ago",
    );
    call(&mut session, "'events', 'month', 0");
    let over = AtomicBool::new(false);
    let write = |number: usize| {
        let mut session = server.connect();
        let prepared = session.prepare("INSERT INTO events (n) VALUES ($1) RETURNING id").unwrap();
        let mut ids = Vec::new();
        // Relaxed: the flag only ends the loop, two turns later.
        let mut left = 2;
        while left > 0 {
            left -= usize::from(over.load(Ordering::Relaxed));
            let id: i64 = session.query_one(&prepared, &[&i32::try_from(number).unwrap()]).unwrap().get(0);
            ids.push(id);
            match number {
                0 => assert_eq!(session.ids(&format!("SELECT id FROM events WHERE id = {id}")).unwrap(), [id]),
                1 => session.batch_execute(&format!("INSERT INTO marks VALUES ({id})")).unwrap(),
                _ => {}
            }
        }
        ids
    };
    let (told, run) = thread::scope(|scope| {
        let writers: Vec<_> = (0..4).map(|number| scope.spawn(move || write(number))).collect();
        let mut session = server.connect();
        session.batch_execute("SET lock_timeout = '5min'").unwrap();
        let mut run = Vec::new();
        // One more ahead, and one less behind, each time. All locks come at one moment, so no
        // writer ends in a deadlock.
        for turn in 0..20 {
            let arguments = format!("'events', 'month', {turn}, '{} months'", 20 - turn);
            match rows(&mut session, &format!("CALL snowflake_partitions({arguments})")) {
                Ok(statements) => run.extend(statements.concat().lines().map(str::to_owned)),
                Err(error) => run.push(format!("{error:?}")),
            }
            let stored = "SELECT count(*) FROM events WHERE n >= 0";
            let more = format!("({stored}) > {}", session.value(stored));
            if writers.iter().any(|writer| !writer.is_finished()) {
                wait_until("a writer's row", || {
                    session.value(&more) == "true" || writers.iter().all(|w| w.is_finished())
                });
            }
        }
        // Before any assertion can fail, because the threads would go on.
        over.store(true, Ordering::Relaxed);
        (writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<_>>(), run)
    });
    assert_eq!(run.iter().filter(|statement| statement.contains(" ATTACH ")).count(), 19, "{run:#?}");
    let dropped = run.iter().filter(|statement| statement.contains("DROP TABLE")).count();
    assert_eq!(dropped, 19, "{run:#?}");
    let mut stored = session.ids("SELECT id FROM events WHERE n >= 0 ORDER BY id").unwrap();
    let mut told = told;
    assert_eq!(assert_unique(&told), told.len());
    told.sort_unstable();
    stored.sort_unstable();
    assert_eq!(stored, told);
    assert_eq!(session.value("SELECT count(*) FROM events WHERE n < 0"), (20 - dropped).to_string());
}

#[test]
fn transactions_that_use_the_table_hold_up_a_drop_for_half_a_second_and_no_new_partition() {
    let (server, mut session) = events("SELECT make('old', 15, 14), make('rest', 14, 0)");
    call(&mut session, "'events', 'month', 0");
    let mut user = server.connect();
    user.batch_execute("BEGIN; INSERT INTO events DEFAULT VALUES; SELECT * FROM events").unwrap();
    let made = call(&mut session, "'events', 'month', 1");
    assert_eq!(made.len(), 2);
    let refusal = refuse(&mut session, "'events', 'month', 2, '1 year'");
    assert_eq!(refusal.sqlstate, "55P03");
    assert_eq!(refusal.message, "could not lock table events within \"lock_timeout\"");
    let detail = format!("The last to lock public.events was process {}. What the call did before stays.", user.pid());
    assert_eq!(refusal.detail, Some(detail));
    assert!(refusal.hint.is_some());
    // The new one came first, and stays.
    let ahead = months(&mut session, 0, 2);
    assert_eq!(names(&mut session, "events"), [vec!["old".to_owned(), "rest".to_owned()], ahead.clone()].concat());
    // With a limit of one's own, the call waits.
    let mut patient = server.connect();
    patient.batch_execute("SET lock_timeout = '5min'").unwrap();
    let mut waiting = None;
    let pid = patient.pid();
    thread::scope(|scope| {
        let thread = scope.spawn(move || call(&mut patient, "'events', 'month', 2, '1 year'"));
        server.wait_until_locked(pid);
        // The limit is for the test's failure.
        session.batch_execute("SET lock_timeout = '1min'; SELECT FROM events; RESET lock_timeout").unwrap();
        user.batch_execute("COMMIT").unwrap();
        waiting = Some(thread.join().unwrap());
    });
    assert_eq!(waiting.unwrap(), ["ALTER TABLE public.events DETACH PARTITION public.old;", "DROP TABLE public.old;"]);
    assert_eq!(names(&mut session, "events"), [vec!["rest".to_owned()], ahead].concat());
    assert_eq!(session.value("SELECT count(*) FROM events"), "1");
}

/// These are the default partition, and both ends of foreign keys. Readers of the latter are not in
/// the way.
#[test]
fn sessions_pass_while_a_new_partition_waits_for_other_tables() {
    let (server, mut session) = events(
        "CREATE TABLE people (id bigint PRIMARY KEY); ALTER TABLE events ADD person bigint REFERENCES people;
         CREATE TABLE marks (event bigint REFERENCES events); CREATE TABLE rest PARTITION OF events DEFAULT",
    );
    let mut reader = server.connect();
    reader.batch_execute("BEGIN; SELECT FROM people, marks").unwrap();
    let mut user = server.connect();
    for (ahead, (table, uses)) in
        [("rest", "SELECT FROM rest"), ("people", "DELETE FROM people"), ("marks", "DELETE FROM marks")]
            .into_iter()
            .enumerate()
    {
        user.batch_execute(&format!("BEGIN; {uses}")).unwrap();
        let arguments = format!("'events', 'month', {ahead}");
        let refusal = refuse(&mut session, &arguments);
        assert_eq!(refusal.sqlstate, "55P03");
        let last = format!("The last to lock public.{table} was process {}.", user.pid());
        assert_eq!(refusal.detail.unwrap(), format!("{last} What the call did before stays."));
        let mut patient = server.connect();
        patient.batch_execute("SET lock_timeout = '5min'").unwrap();
        let pid = patient.pid();
        thread::scope(|scope| {
            let thread = scope.spawn(move || call(&mut patient, &arguments));
            server.wait_until_locked(pid);
            // The limit is for the test's failure.
            let passes = session.batch_execute(&format!("SET lock_timeout = '30s'; {uses}; RESET lock_timeout"));
            user.batch_execute("COMMIT").unwrap();
            passes.unwrap();
            assert_eq!(thread.join().unwrap().len(), 2);
        });
    }
}

/// Another session's change while the call waits for its lock.
#[test]
fn what_changes_while_a_call_waits_is_seen() {
    let (server, mut session) = events("SELECT make('old', 15, 14), make('rest', 14, 0)");
    call(&mut session, "'events', 'month', 0");
    let mut other = server.connect();
    other.batch_execute("BEGIN; ALTER TABLE events DETACH PARTITION old").unwrap();
    let mut patient = server.connect();
    patient.batch_execute("SET lock_timeout = '5min'").unwrap();
    let pid = patient.pid();
    let run = thread::scope(|scope| {
        let thread = scope.spawn(move || call(&mut patient, "'events', 'month', 0, '1 year'"));
        server.wait_until_locked(pid);
        other.batch_execute("COMMIT").unwrap();
        thread.join().unwrap()
    });
    assert_eq!(run, [""; 0]);
    assert_eq!(session.value("to_regclass('old')"), "old", "a table that was taken out is not dropped");
}

#[test]
fn a_new_partition_is_what_create_table_partition_of_would_make() {
    let (_server, mut session) = events(
        "CREATE TABLE people (id bigint PRIMARY KEY);
         CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE TABLE rich (gone int, id bigint DEFAULT snowflake_next(), person bigint REFERENCES people ON DELETE CASCADE,
             note text NOT NULL DEFAULT 'none' COLLATE \"C\" CHECK (note <> ''), twice bigint GENERATED ALWAYS AS (person * 2) STORED,
             big text COMPRESSION pglz, UNIQUE (id, person), CONSTRAINT small CHECK (person < 1000000) NOT VALID)
             PARTITION BY RANGE (id);
         ALTER TABLE rich DROP gone;
         ALTER TABLE rich ALTER big SET STORAGE EXTERNAL;
         CREATE INDEX ON rich (note, id DESC) WHERE person > 0;
         CREATE INDEX ON rich ((person + 1));
         CREATE TRIGGER watch BEFORE INSERT ON rich FOR EACH ROW EXECUTE FUNCTION nothing();
         CREATE TABLE tags (rich bigint, person bigint, FOREIGN KEY (rich, person) REFERENCES rich (id, person));
         DO $$BEGIN EXECUTE format('CREATE TABLE rich_by_hand PARTITION OF rich FOR VALUES FROM (%s) TO (%s)', month(1), month(0)); END$$",
    );
    call(&mut session, "'rich', 'month', 0");
    let made = session.value("SELECT max(relname) FROM pg_class WHERE relname ~ '^rich_20\\d\\d_\\d\\d$'");
    let mut describe = |table: &str| {
        let queries = [
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull, attstorage, attcompression, attgenerated, attcollation,
                    attislocal, attinhcount, pg_get_expr(adbin, adrelid)
             FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
             WHERE attrelid = 'T'::regclass AND attnum > 0 ORDER BY attnum",
            "SELECT contype, convalidated, conislocal, coninhcount, connoinherit, conparentid <> 0, pg_get_constraintdef(oid)
             FROM pg_constraint WHERE conrelid = 'T'::regclass OR confrelid = 'T'::regclass ORDER BY 1, 7",
            "SELECT indisunique, indisvalid, indoption, pg_get_expr(indpred, indrelid), pg_get_indexdef(indexrelid, 1, true)
             FROM pg_index WHERE indrelid = 'T'::regclass ORDER BY 1, 3, 5",
            "SELECT count(*), tgenabled, tgtype, tgparentid <> 0 FROM pg_trigger WHERE tgrelid = 'T'::regclass
             GROUP BY 2, 3, 4 ORDER BY 3",
            "SELECT relkind, relpersistence, relam, reltablespace, relowner, relacl, reloptions, relhastriggers, relispartition
             FROM pg_class WHERE oid = 'T'::regclass",
        ];
        queries.map(|query| {
            let found = rows(&mut session, &query.replace("'T'", &format!("'{table}'"))).unwrap();
            found.join("\n").replace(table, "...")
        })
    };
    let by_hand = describe("rich_by_hand");
    assert!(by_hand.iter().all(|rows| !rows.is_empty()), "{by_hand:#?}");
    assert_eq!(describe(&made), by_hand);
}

#[test]
fn a_new_partition_belongs_to_the_owner_of_its_table() {
    let (server, mut session) = events(
        "CREATE ROLE owner LOGIN; CREATE ROLE deputy LOGIN IN ROLE owner; CREATE ROLE stranger LOGIN;
         GRANT CREATE ON SCHEMA public TO owner; ALTER TABLE events OWNER TO owner;
         GRANT ALL ON events TO stranger",
    );
    let mut stranger = server.connect_as("stranger");
    for more in ["", ", dry_run => true"] {
        let refusal = refuse(&mut stranger, &format!("'events', 'month', 1{more}"));
        assert_eq!(
            (refusal.sqlstate.as_str(), refusal.message.as_str()),
            ("42501", "must be owner of table public.events")
        );
    }
    call(&mut server.connect_as("owner"), "'events', 'month', 0");
    call(&mut server.connect_as("deputy"), "'events', 'month', 1");
    call(&mut session, "'events', 'month', 2");
    let owners = "SELECT string_agg(DISTINCT relowner::regrole::text || ' ' || relkind::text, ' ') FROM pg_class
                  WHERE relname ~ '^events_' AND relkind = 'r'";
    assert_eq!(session.value(owners), "owner r");
    assert_eq!(names(&mut session, "events"), months(&mut session, 0, 2));
    // Without a right on the schema.
    session
        .batch_execute("REVOKE CREATE ON SCHEMA public FROM owner; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        .unwrap();
    let refusal = refuse(&mut server.connect_as("owner"), "'events', 'month', 4");
    assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), ("42501", "permission denied for schema public"));
    assert_eq!(names(&mut session, "events"), months(&mut session, 0, 2));
}

#[test]
fn no_role_can_lock_what_is_not_its_own() {
    let (server, mut session) = events(
        "SELECT make('old', 15, 14), make('rest', 14, 0); CREATE TABLE marks (event bigint REFERENCES events);
         CREATE ROLE owner LOGIN; CREATE ROLE stranger LOGIN; ALTER TABLE events OWNER TO owner; ALTER TABLE old OWNER TO owner",
    );
    let locked = "SELECT string_agg(relation::regclass::text, ' ' ORDER BY relation::regclass::text) FROM pg_locks
                  WHERE mode = 'AccessExclusiveLock'";
    for (role, partition, expected) in [
        ("stranger", "old", "NULL"),
        ("owner", "rest", "NULL"),
        ("owner", "marks", "NULL"),
        ("owner", "old", "events marks old"),
    ] {
        let mut other = server.connect_as(role);
        other.batch_execute("BEGIN").unwrap();
        other.batch_execute(&format!("SELECT snowflake_plan.lock_for_drop('events', '{partition}')")).unwrap();
        assert_eq!(session.value(locked), expected, "{role} {partition}");
        other.batch_execute("ROLLBACK").unwrap();
    }
    // The owner of the table alone cannot drop the partition.
    let mut owner = server.connect_as("owner");
    session
        .batch_execute("DROP TABLE marks; ALTER TABLE old OWNER TO stranger; GRANT CREATE ON SCHEMA public TO owner")
        .unwrap();
    call(&mut owner, "'events', 'month', 0");
    let refusal = refuse(&mut owner, "'events', 'month', 0, '1 year'");
    assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), ("42501", "must be owner of table old"));
    assert_eq!(session.value("SELECT count(*) FROM pg_inherits WHERE inhrelid = 'old'::regclass"), "1");
}

#[test]
fn whatever_the_callers_search_path_is_the_call_does_the_same() {
    let (server, mut session) = events(
        "CREATE SCHEMA trap;
         CREATE FUNCTION trap.never(text, text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE ''trap''; END';
         CREATE FUNCTION trap.format(text, VARIADIC \"any\") RETURNS text LANGUAGE internal AS 'text_format';
         CREATE FUNCTION trap.now() RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN RAISE ''trap''; END';
         CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.never);
         CREATE OPERATOR trap.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.never);
         CREATE FUNCTION trap.both(text, text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE ''trap''; END';
         CREATE OPERATOR trap.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.both);
         CREATE TABLE trap.pg_class (oid oid); CREATE TABLE trap.events (id bigint)",
    );
    let mut trapped = server.connect();
    trapped.batch_execute("SET search_path = trap, pg_catalog, public").unwrap();
    assert!(trapped.batch_execute("SELECT text 'a' = text 'b'").is_err(), "the trap works");
    let arguments = "'public.events', 'month', 1, '1 year'";
    let run = |session: &mut Client, arguments: &str| {
        session.batch_execute(&format!("CALL public.snowflake_partitions({arguments})")).unwrap();
    };
    run(&mut trapped, &format!("{arguments}, dry_run => true"));
    run(&mut trapped, arguments);
    assert_eq!(names(&mut session, "events"), months(&mut session, 0, 1));
    assert_eq!(
        rows(&mut trapped, "SHOW search_path").unwrap(),
        ["trap, pg_catalog, public"],
        "the session's settings are as before"
    );
}

#[test]
fn a_dump_of_the_result_is_restored_and_goes_on() {
    let (server, mut session) = events("SELECT make('rest', 14, 0)");
    call(&mut session, "'events', 'month', 2");
    session.batch_execute("INSERT INTO events DEFAULT VALUES").unwrap();
    session.batch_execute("CREATE DATABASE copy").unwrap();
    let dump = server.client("pg_dump").args(["--dbname=postgres"]).output().unwrap();
    assert!(dump.status.success(), "{dump:?}");
    let file = std::env::temp_dir().join(format!("partitions-dump-{}.sql", std::process::id()));
    std::fs::write(&file, &dump.stdout).unwrap();
    let restored = server.psql_file(&file, &["--set=ON_ERROR_STOP=1", "--quiet", "--dbname=copy"]);
    std::fs::remove_file(&file).unwrap();
    assert!(restored.status.success(), "{restored:?}");
    let mut copy = server.connect_to("copy");
    assert_eq!(names(&mut copy, "events"), names(&mut session, "events"));
    assert_eq!(call(&mut copy, "'events', 'month', 2"), [""; 0]);
    call(&mut copy, "'events', 'month', 3, '0'");
    assert_eq!(names(&mut copy, "events"), months(&mut copy, 0, 3));
    assert_eq!(copy.value("SELECT count(*) FROM events"), "1");
}

#[test]
fn a_detach_that_was_interrupted_is_ended() {
    let (server, mut session) =
        events("SELECT make('old', 15, 14), make('rest', 14, 0); INSERT INTO events VALUES (month(15))");
    call(&mut session, "'events', 'month', 0");
    let mut user = server.connect();
    user.batch_execute("BEGIN; SELECT * FROM events").unwrap();
    let waiting = Running::start(server.connect(), "ALTER TABLE events DETACH PARTITION old CONCURRENTLY");
    server.wait_until_locked(waiting.pid);
    session.batch_execute(&format!("SELECT pg_cancel_backend({})", waiting.pid)).unwrap();
    assert!(waiting.end().1.is_err());
    user.batch_execute("COMMIT").unwrap();
    assert_eq!(session.value("SELECT inhdetachpending FROM pg_inherits WHERE inhrelid = 'old'::regclass"), "true");
    assert_eq!(call(&mut session, "'events', 'month', 0"), [""; 0]);
    assert_eq!(
        call(&mut session, "'events', 'month', 0, '1 year'"),
        ["ALTER TABLE public.events DETACH PARTITION public.old FINALIZE;", "DROP TABLE public.old;"]
    );
}

#[test]
fn a_row_that_others_refer_to_keeps_its_partition() {
    let (_server, mut session) = events(
        "SELECT make('old', 15, 14), make('rest', 14, 0); INSERT INTO events VALUES (month(15));
         CREATE TABLE marks (event bigint REFERENCES events); INSERT INTO marks SELECT id FROM events",
    );
    let refusal = refuse(&mut session, "'events', 'month', 0, '1 year'");
    assert_eq!(refusal.sqlstate, "23503", "{refusal:?}");
    assert_eq!(session.value("SELECT count(*) FROM events JOIN marks ON event = id"), "1");
    session.batch_execute("DELETE FROM marks").unwrap();
    call(&mut session, "'events', 'month', 0, '1 year'");
    assert_eq!(session.value("SELECT count(*) FROM events"), "0");
    // It is still a foreign key.
    session.batch_execute("INSERT INTO events DEFAULT VALUES; INSERT INTO marks SELECT id FROM events").unwrap();
    assert_eq!(refused(session.batch_execute("DELETE FROM events")).sqlstate, "23503");
}

/// Partitions of other kinds: of several levels, foreign tables, a part of another table.
#[test]
fn partitions_of_any_kind_are_dropped_and_a_partition_can_have_partitions_of_its_own() {
    let (_server, mut session) = events(
        "DO $$BEGIN
             EXECUTE format('CREATE TABLE old PARTITION OF events FOR VALUES FROM (MINVALUE) TO (%s) PARTITION BY RANGE (id)', month(14));
         END$$;
         CREATE TABLE old_numbers PARTITION OF old FOR VALUES FROM (1) TO (2147483648);
         SELECT make('rest', 14, 0);
         INSERT INTO events VALUES (7);
         CREATE TABLE shops (shop integer, id bigint DEFAULT snowflake_next()) PARTITION BY LIST (shop);
         CREATE TABLE shop_1 PARTITION OF shops FOR VALUES IN (1) PARTITION BY RANGE (id)",
    );
    call(&mut session, "'events', 'month', 0, '1 year'");
    assert_eq!(session.value("SELECT count(*) FROM pg_class WHERE relname ~ '^old'"), "0");
    call(&mut session, "'shop_1', 'year', 0");
    session.batch_execute("INSERT INTO shops VALUES (1)").unwrap();
    assert_eq!(refused(session.batch_execute("INSERT INTO shops VALUES (2)")).sqlstate, "23514");
}

#[test]
fn a_call_that_cannot_commit_changes_nothing() {
    let (_server, mut session) = events(
        "CREATE FUNCTION inside() RETURNS void LANGUAGE plpgsql AS
             $$DECLARE s text; BEGIN CALL snowflake_partitions('events', 'month', statements => s); END$$",
    );
    let before = catalogs(&mut session);
    let refusal = refused(session.batch_execute("BEGIN; CALL snowflake_partitions('events', 'month')"));
    assert_eq!(
        (refusal.sqlstate.as_str(), refusal.message.as_str()),
        ("25001", "snowflake_partitions() cannot run inside a transaction block")
    );
    session.batch_execute("ROLLBACK").unwrap();
    assert_eq!(refused(session.batch_execute("SELECT inside()")).sqlstate, "2D000");
    session.batch_execute("SET default_transaction_isolation = 'repeatable read'").unwrap();
    let refusal = refuse(&mut session, "'events', 'month'");
    assert_eq!(refusal.sqlstate, "25001");
    session
        .batch_execute("SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = on")
        .unwrap();
    assert_eq!(refuse(&mut session, "'events', 'month'").sqlstate, "25006");
    session.batch_execute("RESET default_transaction_read_only").unwrap();
    assert_eq!(catalogs(&mut session), before);
    // Several tables in one statement.
    session.batch_execute("CREATE TABLE more (id bigint) PARTITION BY RANGE (id)").unwrap();
    session
        .batch_execute(
            "DO $$DECLARE t regclass; s text; BEGIN
                 FOREACH t IN ARRAY ARRAY['events', 'more']::regclass[] LOOP
                     CALL snowflake_partitions(t, 'month', statements => s);
                 END LOOP;
             END$$",
        )
        .unwrap();
    assert_eq!(
        session.value("SELECT count(*) FROM pg_inherits WHERE inhparent IN ('events'::regclass, 'more'::regclass)"),
        "8"
    );
}

/// Each with its SQLSTATE, the start of its message, and the arguments. None changes anything.
#[test]
fn a_refusal_says_what_is_wrong_and_changes_nothing() {
    let (_server, mut session) = events(
        "CREATE TABLE plain (id bigint);
         CREATE TABLE lists (id bigint) PARTITION BY LIST (id);
         CREATE TABLE two (id bigint, n bigint) PARTITION BY RANGE (id, n);
         CREATE TABLE short (id integer) PARTITION BY RANGE (id);
         CREATE TABLE computed (id bigint) PARTITION BY RANGE ((id + 1));
         CREATE TABLE counted (id bigserial) PARTITION BY RANGE (id);
         CREATE TABLE identity (id bigint) PARTITION BY RANGE (id);
         CREATE DOMAIN key AS bigint;
         CREATE TABLE keys (id key) PARTITION BY RANGE (id);
         CREATE TABLE numbered (id bigint) PARTITION BY RANGE (id);
         CREATE TABLE numbered_1 PARTITION OF numbered FOR VALUES FROM (1) TO (1000000);
         CREATE TABLE distant (id bigint) PARTITION BY RANGE (id);
         CREATE TABLE negative (id bigint) PARTITION BY RANGE (id);
         CREATE TABLE negative_1 PARTITION OF negative FOR VALUES FROM (-10) TO (-5);
         CREATE TABLE huge (id bigint) PARTITION BY RANGE (id);
         CREATE TABLE huge_1 PARTITION OF huge FOR VALUES FROM (0) TO (9223372036854775807);
         CREATE TABLE endless (id bigint) PARTITION BY RANGE (id);
         CREATE TABLE endless_1 PARTITION OF endless FOR VALUES FROM (0) TO (MAXVALUE);
         CREATE TABLE berlin (id bigint) PARTITION BY RANGE (id);
         CREATE TABLE berlin_1 PARTITION OF berlin FOR VALUES
             FROM (snowflake_min('2026-03-31 22:00Z', 'snowflake')) TO (snowflake_min('2026-04-30 22:00Z', 'snowflake'));
         CREATE TABLE taken (id bigint) PARTITION BY RANGE (id);
         DO $$BEGIN EXECUTE format('CREATE TABLE taken%s ()', to_char(now() AT TIME ZONE 'UTC', '_YYYY')); END$$;
         CREATE TABLE a_name_that_is_as_long_as_the_name_of_a_table_can_be_in_postgres (id bigint) PARTITION BY RANGE (id)",
    );
    if cluster::postgres_version() >= 17 {
        session
            .batch_execute("ALTER TABLE identity ALTER id SET NOT NULL, ALTER id ADD GENERATED ALWAYS AS IDENTITY")
            .unwrap();
    }
    call(&mut session, "'keys', 'month'");
    let mut cases = vec![
        ("22004", "argument \"unit\" must not be NULL", "'events', NULL"),
        ("22004", "argument \"relation\" must not be NULL", "NULL, 'month'"),
        ("22004", "argument \"ahead\" must not be NULL", "'events', 'month', NULL"),
        ("22023", "unrecognized unit \"fortnight\"", "'events', 'fortnight'"),
        ("22023", "unrecognized unit \"Month\"", "'events', 'Month'"),
        ("22023", "ahead -1 is outside the range 0..1000", "'events', 'month', -1"),
        ("22023", "ahead 1001 is outside the range 0..1000", "'events', 'month', 1001"),
        ("22023", "keep \"-1 days\" is negative", "'events', 'month', keep => '-1 day'"),
        ("22023", "unknown layout \"no\"", "'events', 'month', layout => 'no'"),
        (
            "22023",
            "ids of table public.events do not have layout \"twitter\"",
            "'events', 'month', layout => 'twitter'",
        ),
        ("42P01", "relation with OID 0 does not exist", "'0', 'month'"),
        ("42809", "public.plain is not a partitioned table", "'plain', 'month'"),
        ("42P16", "table public.lists is not partitioned by range of one bigint column", "'lists', 'month'"),
        ("42P16", "table public.two is not partitioned by range of one bigint column", "'two', 'month'"),
        ("42P16", "table public.short is not partitioned by range of one bigint column", "'short', 'month'"),
        ("42P16", "table public.computed is not partitioned by range of one bigint column", "'computed', 'month'"),
        ("42P16", "column \"id\" of table public.counted does not hold ids that tell the time", "'counted', 'month'"),
        ("42P16", "partition public.numbered_1 does not begin and end with a month of UTC", "'numbered', 'month'"),
        ("42P16", "partition public.negative_1 does not begin and end with a month of UTC", "'negative', 'month'"),
        ("42P16", "partition public.huge_1 does not begin and end with a month of UTC", "'huge', 'month'"),
        ("42P16", "partition public.endless_1 has no end", "'endless', 'month'"),
        ("42P16", "partition public.berlin_1 does not begin and end with a month of UTC", "'berlin', 'month'"),
        ("42P07", "relation public.taken_", "'taken', 'year'"),
        ("42622", "name \"a_name_that_", "'a_name_that_is_as_long_as_the_name_of_a_table_can_be_in_postgres', 'month'"),
        ("22008", "layout \"snowflake\" has no ids for the whole year", "'distant', 'year', 1000"),
    ];
    if cluster::postgres_version() >= 17 {
        cases.push((
            "42P16",
            "column \"id\" of table public.identity does not hold ids that tell the time",
            "'identity', 'month'",
        ));
    }
    for (sqlstate, message, arguments) in cases {
        let before = catalogs(&mut session);
        let dry = refuse(&mut session, &format!("{arguments}, dry_run => true"));
        assert!(dry.sqlstate == sqlstate && dry.message.starts_with(message), "{arguments}: {dry:?}");
        assert_eq!(catalogs(&mut session), before, "{arguments}");
        if sqlstate != "22008" {
            assert_eq!(refuse(&mut session, arguments), dry);
            assert_eq!(catalogs(&mut session), before, "{arguments}");
        }
        if sqlstate != "22004" && sqlstate != "42P01" && sqlstate != "22023" {
            assert!(dry.hint.is_some(), "{dry:?}");
        }
    }
}

/// A default partition has rows for which there was no other.
#[test]
fn rows_in_the_default_partition_are_not_passed_over() {
    let (_server, mut session) =
        events("CREATE TABLE others PARTITION OF events DEFAULT; INSERT INTO events DEFAULT VALUES");
    let refusal = refuse(&mut session, "'events', 'month', 0");
    assert_eq!(refusal.sqlstate, "23514");
    assert!(refusal.detail.is_some() && refusal.hint.is_some(), "{refusal:?}");
    // As the hint says.
    session.batch_execute("ALTER TABLE events DETACH PARTITION others").unwrap();
    call(&mut session, "'events', 'month', 0");
    session
        .batch_execute(
            "INSERT INTO events TABLE others; TRUNCATE others; ALTER TABLE events ATTACH PARTITION others DEFAULT",
        )
        .unwrap();
    call(&mut session, "'events', 'month', 1");
    assert_eq!(session.value("SELECT count(*) FROM events"), "1");
    assert_eq!(session.value("SELECT count(*) FROM others"), "0");
}
