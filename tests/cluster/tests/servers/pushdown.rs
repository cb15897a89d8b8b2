//! Where the time pushdown must change nothing, and where it must work as usual: generated columns,
//! statements that write, parallel queries and cursors, no preload, other layouts, numbers that are
//! not ids, standbys.
//!
//! `pushdown_forms.rs` shows which conditions use the key. `differential.rs` shows that none
//! changes a result.

use std::io::Read;

use cluster::plans::{LATE, explain, is_pushed, left_alone, plan, pushed, rows, without_pushdown};
use cluster::{Draw, Running, Server, assert_ascending, refused};
use postgres::Client;

#[test]
fn generated_columns_and_constraints_read_the_time_as_ever() {
    let server = Server::builder().start_with_minutes();
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE TABLE g (
                 id bigint PRIMARY KEY,
                 created_at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, 'snowflake')) STORED,
                 is_late boolean GENERATED ALWAYS AS (snowflake_timestamp(id, 'snowflake') >= '2026-01-05Z') STORED,
                 CONSTRAINT in_january CHECK (snowflake_timestamp(id, 'snowflake') < '2026-02-01Z')
             );
             CREATE TABLE moved (id bigint);
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN INSERT INTO moved VALUES (NEW.id); RETURN NEW; END';
             CREATE TRIGGER late AFTER UPDATE ON g FOR EACH ROW
                 WHEN (snowflake_timestamp(NEW.id, 'snowflake') >= '2026-01-06Z') EXECUTE FUNCTION note();
             INSERT INTO g SELECT id FROM t;
             ANALYZE g",
        )
        .unwrap();
    let wrong = "SELECT count(*) FROM g WHERE created_at <> snowflake_timestamp(id, 'snowflake')
                 OR is_late <> (created_at >= '2026-01-05Z')";
    assert_eq!(session.value(wrong), "0");
    assert_eq!(session.value("SELECT count(*) FROM g WHERE is_late"), (10_000 - 4 * 1440).to_string());
    let shift = format!("UPDATE g SET id = id + 1 WHERE snowflake_timestamp(id, 'snowflake') >= {LATE}");
    assert!(is_pushed(&plan(&mut session, &shift)));
    assert_eq!(session.execute(&shift, &[]).unwrap(), 40);
    assert_eq!(session.value(wrong), "0");
    assert_eq!(session.value("SELECT count(*) FROM moved"), "40");
    let refusal = refused(session.batch_execute("INSERT INTO g VALUES (snowflake_min('2026-02-01Z', 'snowflake'))"));
    assert_eq!(refusal.sqlstate, "23514", "{refusal:?}");
    pushed(&mut session, &format!("SELECT created_at FROM g WHERE snowflake_timestamp(id, 'snowflake') >= {LATE}"));
    // A condition on the stored column is not rewritten.
    left_alone(&mut session, &format!("SELECT id FROM g WHERE created_at >= {LATE}"));
}

/// Other tests run without `jit`.
#[test]
fn what_is_compiled_draws_ids_and_gives_the_same_rows() {
    let always = ["jit_above_cost", "jit_inline_above_cost", "jit_optimize_above_cost"];
    let server = always.iter().fold(Server::drawing().config("jit", "on"), |server, cost| server.config(cost, "0"));
    let server = server.start_with_minutes();
    let mut session = server.connect();
    let query = format!(
        "SELECT n, snowflake_timestamp(id, 'snowflake') FROM t WHERE (snowflake_parse(id)).created_at >= {LATE}"
    );
    let explained = explain(&mut session, "ANALYZE", &query);
    assert_eq!(explained.contains("JIT:"), session.value("pg_jit_available()") == "true", "{explained}");
    pushed(&mut session, &query);
    let compiled = rows(&mut session, &query).unwrap();
    session.batch_execute("SET jit = off").unwrap();
    assert_eq!(rows(&mut session, &query).unwrap(), compiled);
    session.batch_execute("SET jit = on").unwrap();
    let ids = session.ids("SELECT snowflake_next() FROM t").unwrap();
    assert_eq!(ids.len(), 10_000);
    assert_ascending(&ids);
}

#[test]
fn nothing_is_rewritten_without_preload() {
    let server = Server::builder().without_preload().start_with_minutes();
    let assert_not_rewritten = |session: &mut Client, case: &str| {
        for time in
            ["snowflake_timestamp(id)", "snowflake_timestamp(id, 'snowflake')", "(snowflake_parse(id)).created_at"]
        {
            let query = format!("SELECT n FROM t WHERE {time} >= {LATE}");
            // Before the function has made the session load the library, and after.
            for _ in 0..2 {
                let plan = plan(session, &query);
                assert!(plan.contains("Filter: (") && !is_pushed(&plan), "{case}: {plan}");
                assert_eq!(rows(session, &query).unwrap().len(), 40);
            }
        }
    };
    assert_not_rewritten(&mut server.connect(), "loaded by a function");
    let mut session = server.connect();
    session.batch_execute("LOAD 'snowflake_id'").unwrap();
    assert_not_rewritten(&mut session, "loaded by LOAD");
    server.set_config("session_preload_libraries", "snowflake_id");
    server.reload();
    assert_not_rewritten(&mut server.connect(), "loaded by each session");
    // The bounds themselves are there.
    let count = format!("SELECT count(*) FROM t WHERE id >= snowflake_from({LATE}::timestamptz, 'snowflake')");
    assert_eq!(session.value(&count), "40");
}

/// A query's result, or the SQLSTATE with which it is refused.
fn outcome(session: &mut Client, query: &str) -> Result<Vec<String>, String> {
    rows(session, query).map_err(|error| refused::<()>(Err(error)).sqlstate)
}

#[test]
fn another_layout_than_the_ids_were_drawn_with_is_refused_as_without_pushdown() {
    let server = Server::drawing().start_with_minutes();
    server
        .connect()
        .batch_execute(
            "CREATE TABLE drawn (id bigint PRIMARY KEY); INSERT INTO drawn SELECT snowflake_batch(100);
             CREATE TABLE empty (id bigint PRIMARY KEY)",
        )
        .unwrap();
    server.set_config("snowflake_id.layout", "leaf");
    server.restart();
    let mut session = server.connect();
    session.batch_execute("SET plan_cache_mode = force_generic_plan").unwrap();
    session
        .batch_execute("PREPARE s (timestamptz) AS SELECT count(*) FROM drawn WHERE snowflake_timestamp(id) >= $1")
        .unwrap();
    for time in ["snowflake_timestamp(id)", "(snowflake_parse(id)).created_at"] {
        for condition in
            [">= '2026-01-01Z'", "< '2026-01-01Z'", ">= 'infinity'", "< '-infinity'", ">= now()", "> current_date"]
        {
            let query = format!("SELECT count(*) FROM drawn WHERE {time} {condition}");
            let with = outcome(&mut session, &query);
            assert_eq!(with, Err("55000".to_owned()), "{query}");
            assert_eq!(without_pushdown(&mut session, |session| outcome(session, &query)), with, "{query}");
            // No function reads the time of an id, so nothing is refused.
            let query = query.replace("drawn", "empty");
            let with = outcome(&mut session, &query);
            assert_eq!(without_pushdown(&mut session, |session| outcome(session, &query)), with, "{query}");
        }
        let explicit = time.replace("(id)", "(id, 'snowflake')");
        pushed(&mut session, &format!("SELECT count(*) FROM drawn WHERE {explicit} >= '2026-01-01Z'"));
        pushed(&mut session, &format!("SELECT count(*) FROM drawn WHERE {explicit} < now() - interval '1 year'"));
    }
    assert_eq!(outcome(&mut session, "EXECUTE s('infinity')"), Err("55000".to_owned()));

    // When another session accepts the layout, it counts at once.
    server.connect().batch_execute("SELECT snowflake_accept_layout()").unwrap();
    let plan = pushed(&mut session, "SELECT count(*) FROM drawn WHERE snowflake_timestamp(id) >= now()");
    assert!(plan.contains("'leaf'"), "{plan}");
    assert_eq!(outcome(&mut session, "EXECUTE s('infinity')"), Ok(vec!["0".to_owned()]));
}

/// A hundred ids of the layout `js53`, of the first seconds of 2026, are valid. The other numbers
/// are outside its 53 bits.
#[test]
fn a_number_that_is_no_id_of_the_layout_is_neither_returned_nor_deleted() {
    let server = Server::builder().set("layout", "js53").start_with_minutes();
    let mut session = server.connect();
    let reset = "DROP TABLE IF EXISTS mixed;
         CREATE TABLE mixed (id bigint PRIMARY KEY, valid boolean NOT NULL);
         INSERT INTO mixed
         SELECT snowflake_compose('2026-01-01Z'::timestamptz + n * interval '1 second', 1, 0, 0, 'js53'), true
         FROM generate_series(0, 99) n;
         INSERT INTO mixed SELECT id, false
         FROM unnest('{-9223372036854775808,-1,9007199254740992,9223372036854775807}'::bigint[]) id";
    session.batch_execute(reset).unwrap();
    for time in
        ["snowflake_timestamp(id)", "snowflake_timestamp(id, 'js53')", "(snowflake_parse(id, 'js53')).created_at"]
    {
        for (condition, count) in [
            (">= '2026-01-01 00:00:50Z'", "50"),
            ("> '2026-01-01 00:00:50Z'", "49"),
            ("<= '2026-01-01 00:00:50Z'", "51"),
            ("< '2026-01-01 00:00:50Z'", "50"),
            ("BETWEEN '2026-01-01 00:00:10Z' AND '2026-01-01 00:00:19Z'", "10"),
            (">= '-infinity'", "100"),
            ("< 'infinity'", "100"),
            (">= '1900-01-01'::date", "100"),
            ("> 'infinity'", "0"),
            ("= '2026-01-01 00:00:50Z'", "1"),
            ("IN ('2026-01-01 00:00:50Z', '2026-01-01 00:00:10Z')", "2"),
            ("<@ tstzrange('2026-01-01 00:00:10Z', '2026-01-01 00:00:20Z')", "10"),
            ("<@ tstzrange(NULL, '2026-01-01 00:00:20Z')", "20"),
            ("AT TIME ZONE 'UTC' < '2026-01-01 00:00:50'", "50"),
            ("AT TIME ZONE 'UTC' >= '2026-01-01 00:00:50'", "50"),
            ("- interval '0' >= '2026-01-01Z' AND {time} AT TIME ZONE 'UTC' <= '2026-01-01 00:00:50'", "51"),
            ("<= '2018-12-31Z'", "0"),
            // With two conditions, each of which guards the other; and by a layout of 63 bits,
            // where they do not.
            ("< '2026-01-01 00:00:50Z' AND {time} >= '2026-01-01Z'", "50"),
            (">= '2026-01-01 00:00:50Z' AND snowflake_timestamp(id, 'snowflake') < '2030-01-01Z'", "50"),
            (">= '2026-01-01 00:00:50Z' AND snowflake_timestamp(id, 'snowflake') >= '2025-01-01Z'", "50"),
            ("> '2026-01-01 00:00:50Z' AND (snowflake_parse(id, 'snowflake')).created_at <= 'infinity'", "49"),
            ("< '2026-01-01 00:00:10Z' OR {time} >= '2026-01-01 00:00:50Z'", "60"),
            ("< '2026-01-01 00:00:10Z' OR {time} >= '2026-01-01 00:00:50Z' AND {time} < '2026-01-01 00:00:60Z'", "20"),
            ("< '2026-01-01 00:00:10Z' AND ({time} >= '2026-01-01 00:00:05Z' OR valid)", "10"),
            ("< '2026-01-01 00:00:10Z' AND ({time} >= '2026-01-01 00:00:05Z' OR NOT valid)", "5"),
        ] {
            let condition = format!("{time} {}", condition.replace("{time}", time));
            let query = format!("SELECT count(*) || ' ' || count(*) FILTER (WHERE valid) FROM mixed WHERE {condition}");
            assert_eq!(outcome(&mut session, &query), Ok(vec![format!("{count} {count}")]), "{query}");
            assert_eq!(
                without_pushdown(&mut session, |session| outcome(session, &query)),
                Err("22023".to_owned()),
                "{query}"
            );
            let delete = format!("DELETE FROM mixed WHERE {condition}");
            assert_eq!(session.execute(&delete, &[]).unwrap().to_string(), count, "{delete}");
            assert_eq!(session.value("SELECT count(*) FROM mixed WHERE NOT valid"), "4", "{delete}");
            session.batch_execute(reset).unwrap();
        }
    }
}

#[test]
fn statements_that_write_change_the_same_rows() {
    let server = Server::builder().start_with_minutes();
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE TABLE s (id bigint PRIMARY KEY, m integer NOT NULL);
             INSERT INTO s SELECT id + n % 2, n FROM t;
             ANALYZE s",
        )
        .unwrap();
    let all_rows = "SELECT 't', * FROM t UNION ALL SELECT 's', * FROM s ORDER BY 1, 2";
    let before = rows(&mut session, all_rows).unwrap();
    for statement in [
        "UPDATE t SET n = -n WHERE snowflake_timestamp(id) >= {LATE}",
        "UPDATE t SET n = -m FROM s WHERE s.id = t.id AND snowflake_timestamp(s.id) >= {LATE}",
        "UPDATE t SET id = id + 1 WHERE (snowflake_parse(id)).created_at BETWEEN '2026-01-02Z' AND '2026-01-02 01:00Z'",
        "DELETE FROM t WHERE snowflake_timestamp(id, 'snowflake') < '2026-01-01 01:00Z'",
        "DELETE FROM t USING s WHERE s.id = t.id AND snowflake_timestamp(t.id) > {LATE}",
        "WITH gone AS (DELETE FROM t WHERE snowflake_timestamp(id) >= {LATE} RETURNING *)
         INSERT INTO s SELECT id + 2, n FROM gone",
        "INSERT INTO t SELECT id + 3, m FROM s WHERE snowflake_timestamp(id) >= {LATE}",
        "MERGE INTO t USING (SELECT * FROM s WHERE snowflake_timestamp(id) >= {LATE}) s ON t.id = s.id
         WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (s.id, -s.m)",
        "MERGE INTO t USING s
         ON t.id = s.id AND snowflake_timestamp(s.id) >= {LATE} AND snowflake_timestamp(t.id) >= {LATE}
         WHEN MATCHED AND snowflake_timestamp(t.id) > '2026-01-07 22:30Z' THEN UPDATE SET n = -n
         WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND s.m > 9990 THEN INSERT VALUES (s.id, -s.m)",
    ] {
        let statement = statement.replace("{LATE}", LATE);
        let both_tables = |session: &mut Client| {
            session.batch_execute("BEGIN").unwrap();
            session.batch_execute(&statement).unwrap();
            let after = rows(session, all_rows).unwrap();
            session.batch_execute("ROLLBACK").unwrap();
            after
        };
        let with = both_tables(&mut session);
        assert!(with == without_pushdown(&mut session, both_tables), "{statement}: other rows");
        assert!(with != before, "{statement}: nothing was changed");
        let plan = plan(&mut session, &statement);
        assert!(plan.contains("Index Cond: ("), "{statement}:\n{plan}");
    }
}

/// PostgreSQL checks a row that another session has changed meanwhile again, by the rewritten
/// condition.
#[test]
fn a_row_that_was_moved_meanwhile_is_judged_by_its_new_time() {
    let server = Server::builder().start_with_minutes();
    for is_on in ["on", "off"] {
        for statement in [
            "WITH changed AS (UPDATE t SET n = -1 WHERE snowflake_timestamp(id) >= {LATE} RETURNING id)
             SELECT count(*) FROM changed",
            "WITH locked AS (SELECT id FROM t WHERE (snowflake_parse(id)).created_at >= {LATE} FOR UPDATE)
             SELECT count(*) FROM locked",
            "WITH gone AS (DELETE FROM t WHERE snowflake_timestamp(id, 'snowflake') >= {LATE} RETURNING id)
             SELECT count(*) FROM gone",
        ] {
            let (mut first, mut session) = (server.connect(), server.connect());
            first
                .batch_execute("BEGIN; UPDATE t SET id = 0 WHERE n = 9990; UPDATE t SET id = id + 1 WHERE n = 9991")
                .unwrap();
            session.batch_execute(&format!("SET snowflake_id.enable_time_pushdown = {is_on}; BEGIN")).unwrap();
            let waiting = Running::start(session, &statement.replace("{LATE}", LATE));
            server.wait_until_locked(waiting.pid);
            first.batch_execute("COMMIT").unwrap();
            let (mut session, count) = waiting.end();
            assert_eq!(count.unwrap(), [39], "{statement}, pushdown {is_on}");
            session.batch_execute("ROLLBACK").unwrap();
            first
                .batch_execute(
                    "UPDATE t SET id = snowflake_min('2026-01-01Z'::timestamptz + n * interval '1 minute', 'snowflake')
                 WHERE n IN (9990, 9991)",
                )
                .unwrap();
        }
    }
}

#[test]
fn views_and_rules_that_write_hold_to_their_conditions() {
    let server = Server::builder().start_with_minutes();
    let mut session = server.connect();
    session
        .batch_execute(&format!(
            "CREATE VIEW late AS SELECT * FROM t WHERE snowflake_timestamp(id, 'snowflake') >= {LATE} WITH CHECK OPTION;
             CREATE TABLE r (LIKE t INCLUDING ALL); INSERT INTO r SELECT * FROM t; ANALYZE r;
             CREATE TABLE protocol (id bigint);
             CREATE RULE keep AS ON DELETE TO r WHERE snowflake_timestamp(OLD.id) >= {LATE} DO INSTEAD NOTHING;
             CREATE RULE note AS ON UPDATE TO r WHERE snowflake_timestamp(NEW.id) >= {LATE} DO ALSO
                 INSERT INTO protocol VALUES (NEW.id)"
        ))
        .unwrap();
    assert!(is_pushed(&plan(&mut session, "UPDATE late SET n = -n")));
    assert_eq!(session.execute("UPDATE late SET n = -n", &[]).unwrap(), 40);
    for out in [
        "UPDATE late SET id = snowflake_min('2026-01-01 00:00:01Z', 'snowflake') WHERE n = -9999",
        "INSERT INTO late VALUES (snowflake_min('2026-01-01 00:00:01Z', 'snowflake'), 0)",
    ] {
        assert_eq!(refused(session.batch_execute(out)).sqlstate, "44000", "{out}");
    }
    for setting in ["on", "off"] {
        session.batch_execute(&format!("BEGIN; SET LOCAL snowflake_id.enable_time_pushdown = {setting}")).unwrap();
        let changed = "UPDATE r SET n = n + 1 WHERE snowflake_timestamp(id, 'snowflake') >= '2026-01-07 21:00Z'";
        assert_eq!(session.execute(changed, &[]).unwrap(), 100);
        assert_eq!(session.value("SELECT count(*) FROM protocol"), "40");
        assert_eq!(
            session
                .execute("DELETE FROM r WHERE (snowflake_parse(id)).created_at >= '2026-01-07 21:00Z'", &[])
                .unwrap(),
            60
        );
        assert_eq!(session.value("SELECT count(*) FROM r"), "9940");
        session.batch_execute("ROLLBACK").unwrap();
    }
}

/// Some of these statements plan with an incomplete query.
#[test]
fn utility_statements_run() {
    let server = Server::builder().start_with_minutes();
    let mut session = server.connect();
    for statement in [
        "SET min_parallel_table_scan_size = 0",
        "CREATE INDEX by_time ON t (snowflake_timestamp(id, 'snowflake'))",
        "CREATE INDEX part ON t (n) WHERE snowflake_timestamp(id, 'snowflake') >= '2026-01-05Z'",
        "CREATE STATISTICS s ON snowflake_timestamp(id, 'snowflake'), n FROM t",
        "CLUSTER t USING by_time",
        "CLUSTER t USING t_pkey",
        "REINDEX TABLE t",
        "VACUUM FULL t",
        "VACUUM ANALYZE t",
        "CREATE TABLE copy AS SELECT * FROM t WHERE snowflake_timestamp(id) >= '2026-01-07 22:00Z'",
        "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE snowflake_timestamp(id) >= '2026-01-07 22:00Z'",
        "REFRESH MATERIALIZED VIEW m",
        "ALTER TABLE copy ADD CHECK (snowflake_timestamp(id, 'snowflake') >= '2026-01-07 22:00Z')",
        "ALTER TABLE copy ADD COLUMN at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, 'snowflake')) STORED",
    ] {
        session.batch_execute(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
    for table in ["copy", "m"] {
        assert_eq!(session.value(&format!("SELECT count(*) FROM {table}")), "40");
    }
    let mut copied = String::new();
    let copy = "COPY (SELECT n FROM t WHERE snowflake_timestamp(id) >= '2026-01-07 22:38Z' ORDER BY n) TO STDOUT";
    session.copy_out(copy).unwrap().read_to_string(&mut copied).unwrap();
    assert_eq!(copied, "9998\n9999\n");
}

#[test]
fn a_parallel_query_gives_the_same_rows() {
    let server = Server::builder().start_with_minutes();
    let mut session = server.connect();
    let debug = if session.value("current_setting('server_version_num')::integer >= 160000") == "true" {
        "debug_parallel_query"
    } else {
        "force_parallel_mode"
    };
    session
        .batch_execute(&format!(
            "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
             SET min_parallel_index_scan_size = 0; SET max_parallel_workers_per_gather = 2; SET {debug} = on"
        ))
        .unwrap();
    for query in [
        "SELECT count(*), sum(n) FROM t WHERE snowflake_timestamp(id) >= '2026-01-03Z'",
        "SELECT count(*), sum(n) FROM t
         WHERE snowflake_timestamp(id) >= '2026-01-08Z'::timestamptz - (SELECT interval '5 days')",
        "SELECT count(*), sum(n) FROM t
         WHERE snowflake_timestamp(id) < now() AND (snowflake_parse(id, 'snowflake')).created_at > '2026-01-03'::date",
        "SELECT count(*), sum(a.n) FROM t a JOIN t b USING (id) WHERE snowflake_timestamp(b.id) >= '2026-01-03Z'",
    ] {
        let plan = pushed(&mut session, query);
        assert!(plan.contains("Workers Planned") || plan.contains("Single Copy"), "{query}:\n{plan}");
    }
}

#[test]
fn cursors_run_over_the_same_rows() {
    let server = Server::builder().start_with_minutes();
    let mut session = server.connect();
    let query = format!("SELECT n FROM t WHERE snowflake_timestamp(id) >= {LATE} ORDER BY id");
    let expected = without_pushdown(&mut session, |session| rows(session, &query).unwrap());
    for kind in ["CURSOR", "SCROLL CURSOR", "NO SCROLL CURSOR", "CURSOR WITH HOLD"] {
        let declare = format!("DECLARE c {kind} FOR {query}");
        assert!(is_pushed(&plan(&mut session, &declare)));
        session.batch_execute(&format!("BEGIN; {declare}")).unwrap();
        if kind.ends_with("HOLD") {
            session.batch_execute("COMMIT; BEGIN").unwrap();
        }
        let mut fetched = rows(&mut session, "FETCH 7 FROM c").unwrap();
        fetched.extend(rows(&mut session, "FETCH ALL FROM c").unwrap());
        assert_eq!(fetched, expected, "{kind}");
        if kind == "SCROLL CURSOR" {
            assert_eq!(rows(&mut session, "FETCH FIRST FROM c").unwrap(), expected[..1]);
            session.batch_execute("UPDATE t SET n = -1 WHERE CURRENT OF c").unwrap();
            assert_eq!(session.value("SELECT count(*) FROM t WHERE n = -1"), "1");
        }
        session.batch_execute("CLOSE c; ROLLBACK").unwrap();
    }
}

#[test]
fn explain_analyze_shows_how_few_rows_were_read() {
    let server = Server::builder().start_with_minutes();
    let mut session = server.connect();
    let query = format!("SELECT n FROM t WHERE snowflake_timestamp(id) >= {LATE}");
    let analyze = explain(&mut session, "ANALYZE, VERBOSE, BUFFERS, COSTS off, TIMING off, SUMMARY off", &query);
    assert!(analyze.contains("Index Cond: (t.id >") && analyze.contains("actual rows=40"), "{analyze}");
    assert!(!analyze.contains("Rows Removed by"), "{analyze}");
    let without = without_pushdown(&mut session, |session| explain(session, "ANALYZE, COSTS off, TIMING off", &query));
    assert!(without.contains("Rows Removed by Filter: 9960"), "{without}");
}

#[test]
fn a_standby_rewrites_too() {
    let primary = Server::drawing().start_with_minutes();
    primary
        .connect()
        .batch_execute("CREATE TABLE drawn (id bigint PRIMARY KEY); INSERT INTO drawn SELECT snowflake_batch(100)")
        .unwrap();
    let standby = primary.standby().start();
    standby.wait_until_replayed(&primary.flushed());
    let mut session = standby.connect();
    assert_eq!(session.value("pg_is_in_recovery()"), "true");
    for time in ["snowflake_timestamp(id)", "snowflake_timestamp(id, 'snowflake')", "(snowflake_parse(id)).created_at"]
    {
        pushed(&mut session, &format!("SELECT n FROM t WHERE {time} >= {LATE}"));
        pushed(&mut session, &format!("SELECT id FROM drawn WHERE {time} >= now() - interval '1 hour'"));
    }
    // An index that was created on the primary counts on the standby, too.
    primary.connect().batch_execute("CREATE INDEX by_time ON t (snowflake_timestamp(id, 'snowflake'))").unwrap();
    standby.wait_until_replayed(&primary.flushed());
    let plan =
        left_alone(&mut session, &format!("SELECT n FROM t WHERE snowflake_timestamp(id, 'snowflake') >= {LATE}"));
    assert!(plan.contains("by_time"), "{plan}");
    standby.promote();
    pushed(&mut session, &format!("SELECT n FROM t WHERE snowflake_timestamp(id) >= {LATE}"));
}
