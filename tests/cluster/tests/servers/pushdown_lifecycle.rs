//! The time pushdown rewrites only the functions of the extension in this database, in any schema,
//! whenever the extension was created. It leaves other functions of the same name alone. A
//! session's memory for this does not grow.

use cluster::plans::{LATE, TIMES, is_pushed, left_alone, plan, pushed, rows, without_pushdown};
use cluster::{Refusal, Server, refused, wait_until};
use postgres::Client;

/// Functions with the extension's names and arguments. They read an id as seconds since 2000. Those
/// that only the pushdown calls raise an error.
const IMPOSTORS: &str = "
    CREATE FUNCTION SCHEMA.snowflake_timestamp(bigint) RETURNS timestamptz LANGUAGE plpgsql STABLE STRICT AS
        $$BEGIN RETURN timestamptz '2000-01-01Z' + $1 * interval '1 second'; END$$;
    CREATE FUNCTION SCHEMA.snowflake_timestamp(bigint, text) RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE STRICT AS
        $$BEGIN RETURN timestamptz '2000-01-01Z' + $1 * interval '1 second'; END$$;
    CREATE FUNCTION SCHEMA.snowflake_parse(bigint, OUT created_at timestamptz, OUT n integer) LANGUAGE plpgsql STABLE AS
        $$BEGIN created_at := timestamptz '2000-01-01Z' + $1 * interval '1 second'; END$$;
    CREATE FUNCTION SCHEMA.snowflake_parse(bigint, text, OUT created_at timestamptz, OUT n integer)
        LANGUAGE plpgsql IMMUTABLE AS
        $$BEGIN created_at := timestamptz '2000-01-01Z' + $1 * interval '1 second'; END$$;
    CREATE FUNCTION SCHEMA.snowflake_from(timestamptz, text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT AS
        $$BEGIN RAISE 'the wrong bound'; END$$;
    CREATE FUNCTION SCHEMA.snowflake_after(timestamptz, text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT AS
        $$BEGIN RAISE 'the wrong bound'; END$$;
    CREATE FUNCTION SCHEMA.snowflake_before(timestamptz, text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT AS
        $$BEGIN RAISE 'the wrong bound'; END$$;
    CREATE FUNCTION SCHEMA.snowflake_until(timestamptz, text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT AS
        $$BEGIN RAISE 'the wrong bound'; END$$;";

#[test]
fn functions_of_the_same_name_are_left_alone_in_a_database_without_the_extension() {
    let server = Server::drawing().start_with_minutes();
    for database in ["other", "later"] {
        server.connect().batch_execute(&format!("CREATE DATABASE {database}")).unwrap();
    }
    let seconds = "CREATE TABLE t (id bigint PRIMARY KEY, n integer NOT NULL);
                   INSERT INTO t SELECT n, n FROM generate_series(1, 1000) n; ANALYZE t;";
    for database in ["other", "later", "template1"] {
        let mut session = server.connect_to(database);
        session.batch_execute(&format!("{seconds} {}", IMPOSTORS.replace("SCHEMA", "public"))).unwrap();
        for time in TIMES {
            let query = format!("SELECT n FROM t WHERE {time} > '2000-01-01 00:16:30Z'");
            left_alone(&mut session, &query);
            assert_eq!(rows(&mut session, &query).unwrap().len(), 10, "{query}");
        }
    }
    // The extension is created in its own schema, while a session knows only the impostors.
    let mut open = server.connect_to("later");
    left_alone(&mut open, "SELECT n FROM t WHERE snowflake_timestamp(id) > '2000-01-01 00:16:30Z'");
    server.connect_to("later").batch_execute("CREATE SCHEMA ids; CREATE EXTENSION snowflake_id SCHEMA ids").unwrap();
    for _ in 0..2 {
        left_alone(&mut open, "SELECT n FROM t WHERE snowflake_timestamp(id) > '2000-01-01 00:16:30Z'");
        pushed(&mut open, "SELECT n FROM t WHERE ids.snowflake_timestamp(id) < '2025-01-01 00:16:30Z'");
    }
}

#[test]
fn functions_that_come_first_in_the_search_path_are_left_alone() {
    let server = Server::drawing().start_with_minutes();
    let mut session = server.connect();
    session.batch_execute(&format!("CREATE SCHEMA mine; {}", IMPOSTORS.replace("SCHEMA", "mine"))).unwrap();
    session.batch_execute("SET search_path = mine, public").unwrap();
    let all =
        rows(&mut session, "SELECT n FROM t WHERE public.snowflake_timestamp(id) >= '2000-01-01Z'").unwrap().len();
    assert_eq!(all, 10_000);
    for time in TIMES {
        let wrong = format!("SELECT n FROM t WHERE n < 100 AND {} > '2026-01-01Z'", time.replace("id", "n::bigint"));
        assert_eq!(rows(&mut session, &wrong).unwrap().len(), 0);
        let mine = format!("SELECT n FROM t WHERE {} < '2026-01-01Z' AND n < 100", time.replace("id", "(id - id + n)"));
        left_alone(&mut session, &mine);
        // The extension's functions, and its bounds.
        for bound in [LATE, "now() - (now() - '2026-01-07 22:00Z')"] {
            let query = format!(
                "SELECT n FROM t WHERE {} >= {bound}",
                time.replace("snowflake_t", "public.snowflake_t").replace("snowflake_p", "public.snowflake_p")
            );
            pushed(&mut session, &query);
            assert_eq!(rows(&mut session, &query).unwrap().len(), 40);
        }
        // An index on an impostor is not an index on the time, although the column is the same.
        let column = format!("SELECT n FROM t WHERE {time} >= '2026-01-01Z'");
        let plan = plan(&mut session, &column);
        assert!(!is_pushed(&plan), "{plan}");
    }
}

/// `DEPENDS ON EXTENSION` drops a function with the extension, but does not make it a member.
#[test]
fn functions_that_depend_on_the_extension_are_not_its_own() {
    let server = Server::drawing().start_with_minutes();
    let mut session = server.connect();
    session.batch_execute(&format!("CREATE SCHEMA mine; {}", IMPOSTORS.replace("SCHEMA", "mine"))).unwrap();
    for function in [
        "timestamp(bigint)",
        "timestamp(bigint, text)",
        "parse(bigint)",
        "parse(bigint, text)",
        "from(timestamptz, text)",
        "before(timestamptz, text)",
    ] {
        let sql = format!("ALTER FUNCTION mine.snowflake_{function} DEPENDS ON EXTENSION snowflake_id");
        session.batch_execute(&sql).unwrap();
    }
    let mut session = server.connect();
    for time in TIMES {
        let mine = time.replace("snowflake_", "mine.snowflake_");
        let plan = plan(&mut session, &format!("SELECT n FROM t WHERE {mine} >= '2026-01-01Z'"));
        assert!(plan.contains("Seq Scan"), "{plan}");
        pushed(&mut session, &format!("SELECT n FROM t WHERE {time} >= {LATE}"));
        pushed(&mut session, &format!("SELECT n FROM t WHERE {time} < '2026-01-01 01:00Z'"));
    }
}

#[test]
fn an_extension_outside_the_search_path_is_found() {
    let server = Server::drawing().start_with_minutes();
    let mut session = server.connect();
    session
        .batch_execute(
            "DROP EXTENSION snowflake_id; CREATE SCHEMA ids; CREATE EXTENSION snowflake_id SCHEMA ids;
             SET search_path = pg_catalog",
        )
        .unwrap();
    for time in TIMES {
        for bound in
            [LATE, "now() - (now() - '2026-01-07 22:00Z')", "'2026-01-07'::date", "'2026-01-07 22:00'::timestamp"]
        {
            let query = format!("SELECT n FROM public.t WHERE ids.{time} >= {bound}").replace("ids.(", "(ids.");
            pushed(&mut session, &query);
        }
    }
    let refusal = refused(session.batch_execute("ALTER EXTENSION snowflake_id SET SCHEMA public"));
    assert_eq!(refusal.sqlstate, "0A000", "{refusal:?}");
    session.batch_execute("CREATE SCHEMA elsewhere").unwrap();
    // The extension's functions can be moved and renamed one by one. That may stop the pushdown,
    // but must never give a wrong row.
    session.batch_execute("ALTER FUNCTION ids.snowflake_from(timestamptz, text) SET SCHEMA elsewhere").unwrap();
    pushed(&mut session, &format!("SELECT n FROM public.t WHERE ids.snowflake_timestamp(id) >= {LATE}"));
    session.batch_execute("ALTER FUNCTION elsewhere.snowflake_from(timestamptz, text) RENAME TO at_or_after").unwrap();
    let query = format!("SELECT n FROM public.t WHERE ids.snowflake_timestamp(id) >= {LATE}");
    assert_eq!(rows(&mut session, &query).unwrap().len(), 40);
}

/// A statement with a generic plan, one with custom plans, and a function that keeps its own plan.
const PREPARE: &str = "
    PREPARE generic (timestamptz) AS SELECT n FROM t WHERE snowflake_timestamp(id) >= $1;
    PREPARE custom (timestamptz) AS SELECT n FROM t WHERE snowflake_timestamp(id, 'snowflake') >= $1;
    CREATE FUNCTION pg_temp.function(since timestamptz) RETURNS SETOF integer LANGUAGE plpgsql AS
        'BEGIN RETURN QUERY SELECT n FROM t WHERE snowflake_timestamp(id) >= since; END'";

/// The result of the three, each time: the number of rows, or the refusal.
fn run_all(session: &mut Client) -> Vec<Result<usize, Refusal>> {
    let mut results = Vec::new();
    for (statement, mode) in [
        (format!("EXECUTE generic({LATE})"), "force_generic_plan"),
        (format!("EXECUTE custom({LATE})"), "force_custom_plan"),
        (format!("SELECT pg_temp.function({LATE})"), "force_generic_plan"),
    ] {
        if session.batch_execute(&format!("SET plan_cache_mode = {mode}")).is_err() {
            continue;
        }
        results.push(rows(session, &statement).map(|rows| rows.len()).map_err(|error| refused::<()>(Err(error))));
    }
    results
}

#[track_caller]
fn assert_all_run(session: &mut Client, case: &str) {
    assert_eq!(run_all(session), vec![Ok(40); 3], "{case}");
    for (statement, mode) in [("generic", "force_generic_plan"), ("custom", "force_custom_plan")] {
        session.batch_execute(&format!("SET plan_cache_mode = {mode}")).unwrap();
        let plan = plan(session, &format!("EXECUTE {statement}({LATE})"));
        assert!(is_pushed(&plan) && plan.contains("Index Cond: (id >"), "{case}: {statement}:\n{plan}");
    }
}

#[track_caller]
fn assert_all_fail(session: &mut Client, case: &str) {
    for result in run_all(session) {
        assert_eq!(result.as_ref().unwrap_err().sqlstate, "42883", "{case}: {result:?}");
    }
}

#[test]
fn prepared_statements_follow_an_extension_that_goes_and_comes() {
    let server = Server::drawing().start_with_minutes();
    for is_own in [true, false] {
        let mut session = server.connect();
        let mut other = server.connect();
        session.batch_execute(PREPARE).unwrap();
        assert_all_run(&mut session, "at first");
        for round in 0..3 {
            let case = format!("in its own session {is_own}, round {round}");
            let mut act = |session: &mut Client, sql: &str| {
                if is_own { session } else { &mut other }.batch_execute(sql).unwrap();
            };
            act(&mut session, "DROP EXTENSION snowflake_id");
            assert_all_fail(&mut session, &case);
            act(&mut session, "CREATE EXTENSION snowflake_id");
            assert_all_run(&mut session, &format!("{case}, created"));
            act(&mut session, "DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id");
            assert_all_run(&mut session, &format!("{case}, dropped and created"));
            act(&mut session, "BEGIN; DROP EXTENSION snowflake_id; ROLLBACK");
            assert_all_run(&mut session, &format!("{case}, dropped in vain"));
            act(&mut session, "BEGIN; DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id; ROLLBACK");
            assert_all_run(&mut session, &format!("{case}, dropped and created in vain"));
            act(&mut session, "BEGIN; SAVEPOINT s; DROP EXTENSION snowflake_id; ROLLBACK TO s");
            assert_all_run(&mut session, &format!("{case}, in the transaction"));
            act(&mut session, "DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id");
            if is_own {
                assert_all_run(&mut session, &format!("{case}, in the transaction, anew"));
            }
            act(&mut session, "ROLLBACK");
            assert_all_run(&mut session, &format!("{case}, after the transaction"));
        }
    }
}

#[test]
fn an_extension_whose_creation_is_rolled_back_is_not_remembered() {
    let server = Server::drawing().start_with_minutes();
    let mut session = server.connect();
    session.batch_execute(PREPARE).unwrap();
    session.batch_execute("DROP EXTENSION snowflake_id").unwrap();
    for end in ["ROLLBACK", "ROLLBACK AND CHAIN; ROLLBACK"] {
        session.batch_execute("BEGIN; CREATE EXTENSION snowflake_id").unwrap();
        assert_all_run(&mut session, "in the transaction");
        session.batch_execute(end).unwrap();
        assert_all_fail(&mut session, end);
        session.batch_execute(&format!("{}; ", IMPOSTORS.replace("SCHEMA", "public"))).unwrap();
        let query = format!("SELECT n FROM t WHERE snowflake_timestamp(n) >= {LATE}");
        left_alone(&mut session, &query);
        session
            .batch_execute(
                "DROP FUNCTION snowflake_timestamp(bigint), snowflake_timestamp(bigint, text), snowflake_parse(bigint),
                     snowflake_parse(bigint, text), snowflake_from(timestamptz, text), snowflake_after(timestamptz, text),
                     snowflake_before(timestamptz, text), snowflake_until(timestamptz, text)",
            )
            .unwrap();
    }
    session.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    assert_all_run(&mut session, "at last");
}

#[test]
fn an_extension_that_has_lost_its_bounds_rewrites_nothing() {
    let server = Server::drawing().start_with_minutes();
    let (mut session, mut other) = (server.connect(), server.connect());
    let query = format!("SELECT n FROM t WHERE snowflake_timestamp(id) >= {LATE}");
    pushed(&mut session, &query);
    other
        .batch_execute(
            "ALTER EXTENSION snowflake_id DROP FUNCTION snowflake_from(timestamptz, text);
             DROP FUNCTION snowflake_from(timestamptz, text)",
        )
        .unwrap();
    left_alone(&mut session, &query);
    other.batch_execute("DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id").unwrap();
    pushed(&mut session, &query);
}

/// Sessions that plan while the extension is dropped and created see it or do not, and the server
/// goes on.
#[test]
fn sessions_that_plan_all_the_while_give_right_rows_or_miss_the_function() {
    let server = Server::drawing().start_with_minutes();
    let queries = TIMES.map(|time| format!("SELECT n FROM t WHERE {time} >= {LATE}"));
    std::thread::scope(|scope| {
        let planners: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut session = server.connect();
                    let (mut found, mut missed) = (0, 0);
                    // Missing a function is quick: hundreds of statements fit between its being
                    // dropped and being there again. So both outcomes are counted.
                    for round in 0.. {
                        if found >= 200 && missed >= 20 {
                            break;
                        }
                        assert!(round < 1_000_000, "{found} times the functions were found, {missed} times missed");
                        match rows(&mut session, &queries[round % queries.len()]) {
                            Ok(rows) => {
                                assert_eq!(rows.len(), 40);
                                found += 1;
                            }
                            Err(error) => {
                                let refusal = refused::<()>(Err(error));
                                // The function was dropped between the look-up of its name and the
                                // call: "cache lookup failed".
                                assert!(["42883", "XX000"].contains(&refusal.sqlstate.as_str()), "{refusal:?}");
                                if refusal.sqlstate == "XX000" {
                                    assert!(
                                        refusal.message.contains("cache lookup failed for function"),
                                        "{refusal:?}"
                                    );
                                }
                                missed += 1;
                            }
                        }
                    }
                })
            })
            .collect();
        let mut owner = server.connect();
        while planners.iter().any(|planner| !planner.is_finished()) {
            owner.batch_execute("DROP EXTENSION snowflake_id").unwrap();
            owner.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
        }
        planners.into_iter().for_each(|planner| planner.join().unwrap());
    });
    wait_until("the extension to be found again", || is_pushed(&plan(&mut server.connect(), &queries[0])));
    assert!(!server.log().contains("terminated by signal"));
}

/// How much memory a session uses in the contexts that live as long as the session.
fn memory(session: &mut Client) -> i64 {
    session
        .query_one(
            "SELECT sum(used_bytes)::bigint FROM pg_backend_memory_contexts WHERE name IN
                 ('TopMemoryContext', 'CacheMemoryContext', 'TopTransactionContext', 'MessageContext', 'PortalMemory')",
            &[],
        )
        .unwrap()
        .get(0)
}

#[test]
fn planning_leaves_nothing_behind_in_memory() {
    let server = Server::drawing().start_with_minutes();
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE TABLE p (id bigint NOT NULL, n integer NOT NULL) PARTITION BY RANGE (id);
             CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (snowflake_min('2026-01-04Z', 'snowflake'));
             CREATE TABLE p_2 PARTITION OF p DEFAULT;
             CREATE INDEX ON p_2 (snowflake_timestamp(id, 'snowflake'));
             CREATE TABLE victim (id bigint);
             CREATE VIEW v AS SELECT id, snowflake_timestamp(id) AS created_at FROM t UNION ALL
                 SELECT id, snowflake_timestamp(id) FROM p;
             CREATE PROCEDURE plan_some(times integer) LANGUAGE plpgsql AS $$
             DECLARE condition text; BEGIN
                 FOR i IN 1..times LOOP
                     FOREACH condition IN ARRAY ARRAY[
                         't WHERE snowflake_timestamp(id) >= %L', 'p WHERE snowflake_timestamp(id) < %L',
                         't WHERE (snowflake_parse(id, ''snowflake'')).created_at > %L', 'v WHERE created_at <= %L',
                         'p WHERE snowflake_timestamp(id, ''snowflake'') >= %L',
                         't WHERE snowflake_timestamp(id) > now() - interval %L'
                     ] LOOP
                         EXECUTE 'EXPLAIN SELECT * FROM ' || format(condition,
                             CASE WHEN condition LIKE '%interval%' THEN i || ' s' ELSE (timestamptz '2026-01-01Z' + i * interval '1 s')::text END);
                     END LOOP;
                     IF i % 100 = 0 THEN
                         -- What is remembered is lost, and found again.
                         EXECUTE 'DROP TABLE victim'; EXECUTE 'CREATE TABLE victim (id bigint)';
                         EXECUTE 'CREATE INDEX ON victim (snowflake_timestamp(id, ''snowflake''))';
                         COMMIT;
                     END IF;
                     BEGIN
                         EXECUTE format(
                             'EXPLAIN SELECT * FROM t WHERE snowflake_timestamp(id) >= now() AND n / %s = 1', i % 10);
                         EXECUTE 'EXPLAIN SELECT * FROM t WHERE snowflake_timestamp(id) >= now() AND n = 1 / 0';
                     EXCEPTION WHEN division_by_zero THEN NULL; END;
                 END LOOP; END$$",
        )
        .unwrap();
    session.batch_execute("CALL plan_some(300)").unwrap();
    let before = memory(&mut session);
    for _ in 0..2 {
        session.batch_execute("CALL plan_some(300)").unwrap();
    }
    let grown = memory(&mut session) - before;
    let without = without_pushdown(&mut session, |session| {
        session.batch_execute("CALL plan_some(300)").unwrap();
        let before = memory(session);
        for _ in 0..2 {
            session.batch_execute("CALL plan_some(300)").unwrap();
        }
        memory(session) - before
    });
    assert!(grown <= without.max(0) + 16_384, "grown by {grown} bytes, without pushdown {without}");
}
