//! The time pushdown in PostgreSQL's planner: errors that pass through it keep all their fields,
//! other libraries' hooks work before and after it, and foreign tables return the same rows.

use cluster::plans::{LATE, assert_same_rows, explain, is_pushed, left_alone, plan, pushed, rows};
use cluster::{Server, skip};
use postgres::error::DbError;
use postgres::{Client, Error};

/// What the statements of [`ERRORS`] need.
const CULPRITS: &str = r#"
    CREATE DOMAIN positive AS integer CONSTRAINT is_positive CHECK (VALUE > 0);
    CREATE FUNCTION inlined(integer) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1 / 0';
    CREATE FUNCTION inlined_twice(integer) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT inlined($1 + 1)';
    CREATE FUNCTION folded(integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 / 0; END';
    CREATE FUNCTION misspelt(integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS
        'BEGIN RETURN (SELECT nothing FROM t); END';
    CREATE FUNCTION cast_to_domain(integer) RETURNS positive LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN -$1; END';
    CREATE FUNCTION time_of_domain(integer) RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE AS
        'DECLARE p positive := -$1; BEGIN RETURN now(); END';
    CREATE FUNCTION every_field() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$BEGIN
        RAISE EXCEPTION USING MESSAGE = 'message', DETAIL = 'detail', HINT = 'hint', ERRCODE = 'P7777',
            COLUMN = 'a column', CONSTRAINT = 'a constraint', DATATYPE = 'a type', TABLE = 'a table', SCHEMA = 'a schema'; END$$;
    CREATE FUNCTION stable_time() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT now() + interval ''1s'' / 0';
    CREATE FUNCTION rows_of_late() RETURNS SETOF t LANGUAGE sql STABLE AS
        'SELECT * FROM t WHERE snowflake_timestamp(id) >= every_field()';
    CREATE FUNCTION static(integer) RETURNS bigint LANGUAGE plpgsql AS $$DECLARE result bigint; BEGIN
        SELECT count(*) INTO result FROM t WHERE snowflake_timestamp(id) >= time_of_domain(1) AND n = $1;
        RETURN result; END$$;
    CREATE FUNCTION dynamic(text) RETURNS bigint LANGUAGE plpgsql AS $$DECLARE result bigint; BEGIN
        EXECUTE 'SELECT count(*) FROM t WHERE snowflake_timestamp(id) >= ' || $1 INTO result;
        RETURN result; END$$;
    CREATE VIEW wrong AS SELECT * FROM t WHERE n = inlined(n);
    CREATE TABLE generated (id bigint PRIMARY KEY, p positive);
    CREATE TABLE parts (id bigint) PARTITION BY RANGE (id)"#;

/// Statements that fail, most of them while they are planned.
const ERRORS: [&str; 32] = [
    "SELECT * FROM t WHERE n = inlined(1)",
    "SELECT * FROM t WHERE n = inlined(n)",
    "SELECT * FROM t WHERE n = inlined_twice(n) AND snowflake_timestamp(id) >= now()",
    "SELECT * FROM t WHERE n = 1 / 0",
    "SELECT * FROM t WHERE n = folded(1)",
    "SELECT * FROM t WHERE n = misspelt(1) AND snowflake_timestamp(id) >= now()",
    "SELECT * FROM t WHERE n = cast_to_domain(1)",
    "SELECT * FROM t WHERE n = (-1)::positive",
    "SELECT * FROM wrong WHERE snowflake_timestamp(id) >= '2026-01-01Z'",
    "INSERT INTO generated SELECT id, -1 FROM t WHERE snowflake_timestamp(id) >= '2026-01-01Z'",
    "INSERT INTO generated SELECT id, 1 FROM t, generate_series(1, 2) WHERE snowflake_timestamp(id) >= '2026-01-01Z'",
    "INSERT INTO parts SELECT id FROM t WHERE snowflake_timestamp(id) >= '2026-01-01Z'",
    "SELECT * FROM t WHERE snowflake_timestamp(id) >= time_of_domain(1)",
    "SELECT * FROM t WHERE snowflake_timestamp(id) >= every_field()",
    "SELECT * FROM t WHERE every_field() >= (snowflake_parse(id)).created_at",
    "SELECT * FROM t WHERE snowflake_timestamp(id) >= stable_time()",
    "SELECT * FROM rows_of_late()",
    "SELECT * FROM rows_of_late() r WHERE snowflake_timestamp(r.id) >= now()",
    "SELECT static(1)",
    "SELECT dynamic('every_field()')",
    "SELECT dynamic('''2026-01-01Z'' AND n = inlined(n)')",
    "SELECT dynamic('''yesteryear''')",
    "SELECT dynamic('nothing')",
    "DO $$BEGIN PERFORM FROM t WHERE snowflake_timestamp(id, 'snowflake') >= now() AND n = inlined(n); END$$",
    "DO $$BEGIN PERFORM static(1); END$$",
    "SELECT * FROM t WHERE snowflake_timestamp(id, 'nonsense') >= '2026-01-01Z'",
    "SELECT * FROM t WHERE snowflake_timestamp(-1, 'snowflake') >= '2026-01-01Z'",
    "SELECT * FROM t WHERE snowflake_timestamp(id) >= 'no time at all'",
    "SELECT * FROM t a FULL JOIN t b ON snowflake_timestamp(a.id) >= now() AND a.n < b.n",
    "SELECT * FROM t WHERE snowflake_timestamp(id) >= ('2026-01-' || n)::timestamptz",
    "SELECT * FROM t WHERE snowflake_timestamp(id) >= '2026-01-01Z' FOR UPDATE OF nobody",
    "MERGE INTO generated g USING t ON g.id = t.id AND snowflake_timestamp(t.id) >= '2026-01-01Z'
     WHEN NOT MATCHED THEN INSERT VALUES (t.id, -1)",
];

#[track_caller]
fn error_of(session: &mut Client, statement: &str) -> DbError {
    let Err(error) = rows(session, statement) else { panic!("{statement}: there is no error") };
    error.as_db_error().unwrap_or_else(|| panic!("{statement}: the session has died: {error}")).clone()
}

/// Severity, code, message, detail, hint, position or query and internal position, context, schema,
/// table, column, type, constraint, file, line and routine.
#[test]
fn errors_have_the_fields_that_they_have_without_the_library() {
    let (with, without) =
        (Server::builder().start_with_minutes(), Server::builder().without_preload().start_with_minutes());
    for server in [&with, &without] {
        server.connect().batch_execute(CULPRITS).unwrap();
    }
    let (mut with, mut without) = (with.connect(), without.connect());
    for statement in ERRORS {
        let [left, right] = [&mut with, &mut without].map(|session| error_of(session, statement));
        assert_eq!(left, right, "{statement}");
        if statement.starts_with("DO") {
            continue;
        }
        // Only planned, so there may be no error.
        let explain = format!("EXPLAIN {statement}");
        let [left, right] = [&mut with, &mut without].map(|session| rows(session, &explain).err());
        assert_eq!(
            left.as_ref().and_then(Error::as_db_error),
            right.as_ref().and_then(Error::as_db_error),
            "{explain}"
        );
        // The generic plan is made when the statement runs. If that fails, it is made again at the
        // next run.
        let prepare = format!("SET plan_cache_mode = force_generic_plan; PREPARE p AS {statement}");
        let prepared = [&mut with, &mut without].map(|session| session.batch_execute(&prepare).is_ok());
        assert_eq!(prepared[0], prepared[1], "{prepare}");
        for _ in 0..2 {
            if prepared[0] {
                let [left, right] = [&mut with, &mut without].map(|session| error_of(session, "EXECUTE p"));
                assert_eq!(left, right, "{prepare}");
            }
        }
        if prepared[0] {
            for session in [&mut with, &mut without] {
                session.batch_execute("DEALLOCATE p").unwrap();
            }
        }
    }
    // The fields must exist, or equal errors prove nothing.
    let inlined = error_of(&mut with, "SELECT * FROM t WHERE n = inlined(n) AND snowflake_timestamp(id) < now()");
    assert_eq!(inlined.where_(), Some("SQL function \"inlined\" during inlining"));
    let domain = error_of(&mut with, "SELECT * FROM t WHERE n = cast_to_domain(1) AND snowflake_timestamp(id) < now()");
    assert_eq!((domain.constraint(), domain.datatype()), (Some("is_positive"), Some("positive")));
    let internal = error_of(&mut with, "SELECT dynamic('nothing')");
    assert!(format!("{:?}", internal.position()).contains("Internal"), "{internal:?}");
    let raised = error_of(&mut with, "SELECT * FROM t WHERE snowflake_timestamp(id) >= every_field()");
    assert_eq!((raised.column(), raised.hint()), (Some("a column"), Some("hint")));
}

#[test]
fn a_statement_is_logged_and_counted_as_it_was_written() {
    if !Server::builder().start().has_extension("pg_stat_statements") {
        return skip("pg_stat_statements and auto_explain are not installed");
    }
    for libraries in ["pg_stat_statements,auto_explain,snowflake_id", "snowflake_id,auto_explain,pg_stat_statements"] {
        let server = Server::builder()
            .config("shared_preload_libraries", libraries)
            .config("compute_query_id", "on")
            .config("pg_stat_statements.track", "all")
            .config("pg_stat_statements.track_planning", "on")
            .start_with_minutes();
        let mut session = server.connect();
        session
            .batch_execute(
                "CREATE EXTENSION pg_stat_statements;
                 CREATE FUNCTION count_late(since timestamptz) RETURNS bigint LANGUAGE plpgsql AS
                     'BEGIN RETURN (SELECT count(*) FROM t WHERE snowflake_timestamp(id) >= since); END';
                 SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;
                 SET auto_explain.log_analyze = on; SET auto_explain.log_timing = off",
            )
            .unwrap();
        let start = server.log_length();
        for setting in ["on", "off"] {
            session.batch_execute(&format!("SET snowflake_id.enable_time_pushdown = {setting}")).unwrap();
            for query in [
                format!("SELECT count(*) FROM t WHERE snowflake_timestamp(id, 'snowflake') >= {LATE}"),
                format!("SELECT count_late({LATE})"),
            ] {
                assert_eq!(rows(&mut session, &query).unwrap(), ["40"], "{libraries}");
            }
        }
        session.batch_execute("SET auto_explain.log_min_duration = -1").unwrap();
        // One entry for both, because they are the same query.
        let counted = rows(
            &mut session,
            "SELECT calls, plans > 0, rows, query FROM pg_stat_statements
             WHERE query LIKE '%count%snowflake_timestamp%' AND query NOT LIKE '%pg_stat_statements%'
                 AND query NOT LIKE '%CREATE FUNCTION%' ORDER BY query",
        )
        .unwrap();
        let written = "SELECT count(*) FROM t WHERE snowflake_timestamp(id, $1) >= $2";
        assert!(counted.contains(&format!("2|t|2|{written}")), "{libraries}: {counted:#?}");
        assert_eq!(counted.len(), 2, "{libraries}: {counted:#?}");
        let log = server.log_since(start);
        assert_eq!(log.matches("Index Cond: (id >").count(), 2, "{libraries}:\n{log}");
        assert_eq!(log.matches("Filter: (snowflake_timestamp(id").count(), 2, "{libraries}:\n{log}");
        assert!(log.contains(&format!(
            "Query Text: SELECT count(*) FROM t WHERE snowflake_timestamp(id, 'snowflake') >= {LATE}"
        )));
    }
}

/// hypopg hooks into the planner where the pushdown does.
#[test]
fn a_hypothetical_index_serves_a_rewritten_condition() {
    let server = Server::builder().start_with_minutes();
    if !server.has_extension("hypopg") {
        return skip("hypopg is not installed");
    }
    server
        .connect()
        .batch_execute("CREATE EXTENSION hypopg; CREATE TABLE bare AS SELECT * FROM t; ANALYZE bare")
        .unwrap();
    for libraries in ["hypopg,snowflake_id", "snowflake_id,hypopg", "snowflake_id"] {
        server.set_config("shared_preload_libraries", libraries);
        server.restart();
        let mut session = server.connect();
        // A session loads the library, so hypopg's hook is called later.
        session.batch_execute("LOAD 'hypopg'").unwrap();
        for query in [
            format!("SELECT n FROM bare WHERE snowflake_timestamp(id) >= {LATE}"),
            format!("SELECT n FROM bare WHERE snowflake_timestamp(id, 'snowflake') >= {LATE}"),
            format!("SELECT n FROM bare WHERE (snowflake_parse(id)).created_at > now() - (now() - {LATE})"),
        ] {
            let before = plan(&mut session, &query);
            assert!(is_pushed(&before) && before.contains("Seq Scan"), "{libraries}: {before}");
            session.batch_execute("SELECT hypopg_create_index('CREATE INDEX ON bare (id)')").unwrap();
            let hypothetical = plan(&mut session, &query);
            assert!(is_pushed(&hypothetical), "{libraries}: {hypothetical}");
            assert!(
                hypothetical.contains("btree_bare_id") && hypothetical.contains("Index Cond: (id >"),
                "{hypothetical}"
            );
            assert_eq!(rows(&mut session, &query).unwrap().len(), 40 - usize::from(query.contains("at > ")));
            session.batch_execute("SELECT hypopg_reset()").unwrap();
        }
        // The pushdown sees an index by the time if hypopg's hook has run before.
        session
            .batch_execute(
                "SELECT hypopg_create_index('CREATE INDEX ON bare (snowflake_timestamp(id, ''snowflake''))')",
            )
            .unwrap();
        let query = format!("SELECT n FROM bare WHERE snowflake_timestamp(id, 'snowflake') >= {LATE}");
        if libraries == "hypopg,snowflake_id" {
            assert!(left_alone(&mut session, &query).contains("btree_bare"), "{libraries}");
        }
        assert_eq!(rows(&mut session, &query).unwrap().len(), 40);
    }
}

#[test]
fn a_foreign_table_gives_the_same_rows() {
    let server = Server::builder().start_with_minutes();
    if !server.has_extension("postgres_fdw") {
        return skip("postgres_fdw is not installed");
    }
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE EXTENSION postgres_fdw;
             DO $$BEGIN EXECUTE format(
                 'CREATE SERVER loopback FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
                 current_setting('unix_socket_directories'), current_setting('port'), current_database()); END$$;
             CREATE USER MAPPING FOR postgres SERVER loopback OPTIONS (user 'postgres');
             CREATE FOREIGN TABLE f (id bigint NOT NULL, n integer NOT NULL) SERVER loopback OPTIONS (table_name 't');
             CREATE TABLE p (id bigint NOT NULL, n integer NOT NULL) PARTITION BY RANGE (id);
             CREATE TABLE p_early PARTITION OF p FOR VALUES FROM (0) TO (snowflake_min('2026-01-05Z', 'snowflake'));
             CREATE FOREIGN TABLE p_late PARTITION OF p
                 FOR VALUES FROM (snowflake_min('2026-01-05Z', 'snowflake')) TO (MAXVALUE)
                 SERVER loopback OPTIONS (table_name 'remote_late');
             CREATE TABLE remote_late (id bigint PRIMARY KEY, n integer NOT NULL);
             CREATE INDEX ON p_early (id)",
        )
        .unwrap();
    // The other session sees only committed rows.
    session.batch_execute("INSERT INTO p SELECT * FROM t").unwrap();
    session.batch_execute("ANALYZE p, f").unwrap();
    let remote = |session: &mut Client, query: &str| {
        let plan = explain(session, "VERBOSE, COSTS off", query);
        plan.lines().filter_map(|line| line.trim().strip_prefix("Remote SQL: ")).collect::<Vec<_>>().join("\n")
    };
    for options in [
        "",
        "ALTER SERVER loopback OPTIONS (ADD use_remote_estimate 'true')",
        "ALTER SERVER loopback OPTIONS (ADD extensions 'snowflake_id')",
    ] {
        session.batch_execute(options).unwrap();
        for time in
            ["snowflake_timestamp(id)", "snowflake_timestamp(id, 'snowflake')", "(snowflake_parse(id)).created_at"]
        {
            // The remote server checks all of a list, without the extension.
            let list = format!("SELECT n FROM f WHERE {time} IN ('2026-01-04Z', '2026-01-05Z', '2026-01-06Z')");
            let with = explain(&mut session, "VERBOSE, COSTS off", &list);
            assert!(with.contains(" OR ") && !with.contains("Filter: "), "{list}: {with}");
            assert_same_rows(&mut session, &list);
            for table in ["f", "p"] {
                // A constant bound is sent to the remote server; a computed one is applied here.
                let constant = format!("SELECT n FROM {table} WHERE {time} >= {LATE}");
                let sql = remote(&mut session, &constant);
                assert!(sql.contains("((id >"), "{constant}: {sql}");
                for condition in [
                    format!(">= {LATE}"),
                    format!("< '2026-01-05 00:10Z' AND {time} > '2026-01-04 23:50Z'"),
                    format!("BETWEEN {LATE} AND '2026-01-07 22:10Z'"),
                    format!(">= now() - (now() - {LATE})"),
                    "> '2026-01-07'::date".to_owned(),
                    "<= '-infinity'".to_owned(),
                ] {
                    assert_same_rows(&mut session, &format!("SELECT n FROM {table} WHERE {time} {condition}"));
                    assert_same_rows(&mut session, &format!("SELECT count(*) FROM {table} WHERE {time} {condition}"));
                }
            }
            let other = time.replace("(id", "(b.id");
            assert_same_rows(
                &mut session,
                &format!("SELECT a.n FROM f a LEFT JOIN p b USING (id) WHERE {other} >= {LATE}"),
            );
            assert_same_rows(
                &mut session,
                &format!("SELECT a.n, b.n FROM f a LEFT JOIN p b ON a.id = b.id AND {other} < {LATE}"),
            );
            let statement = format!("UPDATE f SET n = -n WHERE {time} >= {LATE}");
            session.batch_execute("BEGIN").unwrap();
            assert_eq!(session.execute(&statement, &[]).unwrap(), 40, "{statement}");
            session.batch_execute("ROLLBACK; BEGIN").unwrap();
            assert_eq!(session.execute(&format!("DELETE FROM p WHERE {time} >= {LATE}"), &[]).unwrap(), 40);
            session.batch_execute("ROLLBACK").unwrap();
        }
    }
    pushed(&mut session, &format!("SELECT t.n FROM t JOIN f USING (id) WHERE snowflake_timestamp(t.id) >= {LATE}"));
}
