//! The time pushdown must not show a row that a policy or a security barrier hides, and must not
//! bypass the right to execute a function. It must not take anything away either: a role that may
//! not execute the bound reads as without pushdown.

use std::sync::{Arc, Mutex};

use cluster::plans::{LATE, TIMES, is_pushed, left_alone, plan, pushed, rows, without_pushdown};
use cluster::{Server, refused};
use postgres::{Client, NoTls};

/// The functions that a rewritten condition calls.
const BOUNDS: &str = "
    snowflake_from(timestamptz, text), snowflake_from(timestamp, text), snowflake_from(date, text),
    snowflake_after(timestamptz, text), snowflake_after(timestamp, text), snowflake_after(date, text),
    snowflake_before(timestamptz, text), snowflake_before(timestamp, text), snowflake_before(date, text),
    snowflake_until(timestamptz, text), snowflake_until(timestamp, text), snowflake_until(date, text)";

/// A server with the table `t`, which all roles may read and write, and two ordinary roles.
fn start() -> Server {
    let server = Server::builder().start_with_minutes();
    let mut owner = server.connect();
    owner.batch_execute("CREATE ROLE ordinary LOGIN; CREATE ROLE other LOGIN; GRANT ALL ON t TO PUBLIC").unwrap();
    server
}

/// A session whose notices are collected.
fn connect_and_listen(server: &Server, user: &str) -> (Client, Arc<Mutex<Vec<String>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    let mut connection = server.connection();
    connection.user(user).notice_callback(move |notice| ear.lock().unwrap().push(notice.message().to_owned()));
    (connection.connect(NoTls).expect("the server accepts a connection"), heard)
}

/// Functions that report their arguments, and cost less than anything else in a condition.
const PEEK: &str = "
    CREATE FUNCTION peek(n integer) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS
        $$BEGIN RAISE NOTICE 'saw %', n; RETURN true; END$$;
    CREATE FUNCTION peek_time(n integer) RETURNS timestamptz LANGUAGE plpgsql STABLE COST 0.0001 AS
        $$BEGIN RAISE NOTICE 'saw %', n; RETURN '2026-01-07 22:00Z'; END$$";

/// Asserts that no reported argument comes from a hidden row. Rows whose number is a multiple of 10
/// are visible. Returns how many were reported.
#[track_caller]
fn assert_nothing_hidden_was_seen(heard: &Mutex<Vec<String>>, case: &str) -> usize {
    let heard: Vec<String> = heard.lock().unwrap().drain(..).collect();
    for notice in &heard {
        let number: i32 = notice.strip_prefix("saw ").unwrap_or_else(|| panic!("{case}: {notice}")).parse().unwrap();
        assert_eq!(number % 10, 0, "{case}: a hidden row was seen");
    }
    heard.len()
}

#[test]
fn a_policy_hides_rows_from_a_leaky_function() {
    let server = start();
    server
        .connect()
        .batch_execute(&format!(
            "{PEEK};
             ALTER TABLE t ENABLE ROW LEVEL SECURITY;
             CREATE POLICY tens ON t USING (n % 10 = 0);
             CREATE TABLE u AS SELECT * FROM t; GRANT ALL ON u TO PUBLIC;
             ALTER TABLE u ENABLE ROW LEVEL SECURITY;
             CREATE POLICY tens ON u USING (n % 10 = 0);
             CREATE INDEX ON u (id); ANALYZE u"
        ))
        .unwrap();
    let (mut session, heard) = connect_and_listen(&server, "ordinary");
    for time in TIMES {
        for condition in [
            format!("{time} >= {LATE}"),
            format!("{time} >= {LATE} AND {time} < '2026-01-07 22:30Z'"),
            format!("{time} >= '2026-01-07 22:00'::date + interval '22 hours'"),
            format!("{time} > now() - (now() - {LATE})"),
        ] {
            for query in [
                format!("SELECT n FROM t WHERE peek(n) AND {condition}"),
                format!("SELECT n FROM (SELECT * FROM t WHERE {condition}) t WHERE peek(n)"),
            ] {
                let plan = plan(&mut session, &query);
                assert!(is_pushed(&plan) && plan.contains("Index Cond: ("), "{query}:\n{plan}");
                let with = rows(&mut session, &query).unwrap();
                assert!(assert_nothing_hidden_was_seen(&heard, &query) > 0, "{query}: the function was not called");
                let without = without_pushdown(&mut session, |session| rows(session, &query).unwrap());
                assert_nothing_hidden_was_seen(&heard, &query);
                assert_eq!(with, without, "{query}");
                assert!(!with.is_empty());
            }
        }
        // Each part of a UNION ALL has its own policy.
        for query in [
            format!(
                "SELECT n FROM (SELECT id, n FROM t UNION ALL SELECT id, n FROM u) v WHERE peek(n) AND {time} >= {LATE}"
            ),
            format!(
                "SELECT n FROM (SELECT id, n, {time} AS created_at FROM t UNION ALL SELECT id, n, {time} FROM u) v
                 WHERE peek(n) AND created_at >= {LATE}"
            ),
        ] {
            let with = plan(&mut session, &query);
            assert!(is_pushed(&with) && with.contains("Index Cond: ("), "{query}:\n{with}");
            assert_eq!(rows(&mut session, &query).unwrap().len(), 8, "{query}");
            assert_eq!(assert_nothing_hidden_was_seen(&heard, &query), 8, "{query}");
        }
        for statement in [
            format!("UPDATE t SET n = n WHERE peek(n) AND {time} >= {LATE}"),
            format!("DELETE FROM t WHERE peek(n) AND {time} >= {LATE}"),
        ] {
            session.batch_execute("BEGIN").unwrap();
            assert_eq!(session.execute(&statement, &[]).unwrap(), 4, "{statement}");
            session.batch_execute("ROLLBACK").unwrap();
            assert_eq!(assert_nothing_hidden_was_seen(&heard, &statement), 4);
        }
        // A bound that reports its argument, from the same row or from a row of another table.
        let time = time.replace("(id", "(t.id");
        for query in [
            format!("SELECT t.n FROM t WHERE {time} >= peek_time(t.n)"),
            format!("SELECT t.n FROM t, u WHERE {time} >= peek_time(u.n) AND u.n > 9900"),
            format!("SELECT t.n FROM t LEFT JOIN u ON {time} >= peek_time(u.n) AND t.n = u.n WHERE t.n > 9900"),
            format!("SELECT t.n FROM u LEFT JOIN t ON {time} >= peek_time(u.n) AND t.n > 9900 WHERE u.n > 9900"),
            format!("SELECT t.n FROM t WHERE {time} >= ALL (SELECT peek_time(u.n) FROM u WHERE u.n > 9900)"),
            format!("SELECT t.n FROM t WHERE {time} >= (SELECT max(peek_time(u.n)) FROM u WHERE u.n > 9900)"),
        ] {
            for setting in ["SET enable_nestloop = on", "SET enable_nestloop = off"] {
                session.batch_execute(setting).unwrap();
                rows(&mut session, &query).unwrap();
                assert!(assert_nothing_hidden_was_seen(&heard, &query) > 0, "{query}: the function was not called");
            }
        }
        session.batch_execute("RESET enable_nestloop").unwrap();
    }
    // The negative control: a role that bypasses the policy sees everything, and the test notices.
    let (mut owner, heard) = connect_and_listen(&server, "postgres");
    rows(&mut owner, &format!("SELECT n FROM t WHERE peek(n) AND snowflake_timestamp(id) >= {LATE}")).unwrap();
    assert!(heard.lock().unwrap().iter().any(|notice| notice == "saw 9999"));
}

#[test]
fn a_security_barrier_hides_rows_from_a_leaky_function() {
    let server = start();
    server
        .connect()
        .batch_execute(&format!(
            "{PEEK};
             CREATE VIEW tens WITH (security_barrier) AS SELECT * FROM t WHERE n % 10 = 0;
             CREATE VIEW late WITH (security_barrier) AS
                 SELECT *, snowflake_timestamp(id) AS created_at FROM t
                 WHERE n % 10 = 0 AND snowflake_timestamp(id, 'snowflake') >= '2026-01-07Z';
             REVOKE ALL ON t FROM PUBLIC; GRANT SELECT, UPDATE ON tens, late TO ordinary"
        ))
        .unwrap();
    let (mut session, heard) = connect_and_listen(&server, "ordinary");
    let condition = format!("snowflake_timestamp(id, 'snowflake') >= {LATE}");
    for query in [
        format!("SELECT n FROM tens WHERE peek(n) AND {condition}"),
        format!("SELECT n FROM late WHERE peek(n) AND created_at >= {LATE}"),
        format!("SELECT n FROM late WHERE peek(n) AND {condition}"),
        format!("SELECT tens.n FROM tens JOIN late USING (id) WHERE peek(tens.n) AND created_at >= {LATE}"),
        format!("UPDATE tens SET n = n WHERE peek(n) AND {condition} RETURNING n"),
    ] {
        let with = rows(&mut session, &query).unwrap();
        assert_eq!(with.len(), 4, "{query}");
        assert!(assert_nothing_hidden_was_seen(&heard, &query) >= 4, "{query}: the function was not called");
        let mut without = without_pushdown(&mut session, |session| rows(session, &query).unwrap());
        assert_nothing_hidden_was_seen(&heard, &query);
        without.sort();
        assert_eq!(sorted(with), without, "{query}");
    }
    let plan = plan(&mut session, "SELECT n FROM late");
    assert!(is_pushed(&plan) && plan.contains("Index Cond: (id >"), "the view's own condition:\n{plan}");
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

#[test]
fn a_policy_by_the_time_holds() {
    let server = start();
    server
        .connect()
        .batch_execute(&format!(
            "{PEEK};
             ALTER TABLE t ENABLE ROW LEVEL SECURITY;
             CREATE POLICY few ON t FOR SELECT
                 USING (snowflake_timestamp(id, 'snowflake') >= '2026-01-07 22:20Z' AND n % 10 = 0);
             CREATE POLICY fewer ON t FOR DELETE USING (snowflake_timestamp(id) >= '2026-01-07 22:30Z' AND n % 10 = 0);
             CREATE POLICY all_of_them ON t FOR INSERT WITH CHECK ((snowflake_parse(id)).created_at < '2026-02-01Z')"
        ))
        .unwrap();
    let (mut session, heard) = connect_and_listen(&server, "ordinary");
    // The policy's own condition is rewritten, too.
    let by_the_policy = plan(&mut session, "SELECT n FROM t");
    assert!(is_pushed(&by_the_policy) && by_the_policy.contains("Index Cond: (id >= "), "{by_the_policy}");
    for condition in [
        "true".to_owned(),
        format!("snowflake_timestamp(id) >= {LATE}"),
        "snowflake_timestamp(id) < 'infinity'".to_owned(),
    ] {
        let query = format!("SELECT n FROM t WHERE peek(n) AND {condition} ORDER BY n");
        assert_eq!(rows(&mut session, &query).unwrap(), ["9980", "9990"], "{query}");
        assert_nothing_hidden_was_seen(&heard, &query);
    }
    let gone = "DELETE FROM t WHERE peek(n) AND snowflake_timestamp(id) >= '2026-01-01Z' RETURNING n";
    assert_eq!(rows(&mut session, gone).unwrap(), ["9990"]);
    assert_nothing_hidden_was_seen(&heard, gone);
    session.batch_execute("INSERT INTO t SELECT snowflake_min('2026-01-31Z', 'snowflake'), 0").unwrap();
    let refusal = refused(session.batch_execute("INSERT INTO t SELECT snowflake_min('2026-02-01Z', 'snowflake'), 0"));
    assert_eq!(refusal.sqlstate, "42501", "{refusal:?}");
}

/// Conditions whose bound is known at planning, and conditions whose bound is not.
fn queries() -> Vec<String> {
    let bounds = [LATE, "now() - (now() - '2026-01-07 22:00Z')", "'2026-01-07'::date", "'2026-01-07 22:00'::timestamp"];
    let query = |time: &str, operator: &str, bound: &str| format!("SELECT n FROM t WHERE {time} {operator} {bound}");
    TIMES
        .iter()
        .flat_map(|time| bounds.map(|bound| [query(time, ">=", bound), query(time, ">", bound)]))
        .flatten()
        .collect()
}

#[test]
fn a_condition_is_left_alone_for_those_who_may_not_execute_the_bound() {
    let server = start();
    let mut owner = server.connect();
    let (mut ordinary, mut other) = (server.connect_as("ordinary"), server.connect_as("other"));
    let each = |session: &mut Client, assertion: fn(&mut Client, &str) -> String| {
        for query in queries() {
            assertion(session, &query);
        }
    };
    each(&mut ordinary, pushed);
    owner.batch_execute(&format!("REVOKE EXECUTE ON FUNCTION {BOUNDS} FROM PUBLIC")).unwrap();
    each(&mut ordinary, left_alone);
    each(&mut other, left_alone);
    each(&mut owner, pushed);
    owner.batch_execute(&format!("GRANT EXECUTE ON FUNCTION {BOUNDS} TO ordinary")).unwrap();
    each(&mut ordinary, pushed);
    each(&mut other, left_alone);
    // The right comes through another role.
    owner.batch_execute("GRANT ordinary TO other").unwrap();
    each(&mut other, pushed);
    // The right to one function only: `>=` needs snowflake_from, `>` needs snowflake_after.
    owner.batch_execute("REVOKE ordinary FROM other").unwrap();
    owner.batch_execute("GRANT EXECUTE ON FUNCTION snowflake_from(timestamptz, text) TO other").unwrap();
    pushed(&mut other, &format!("SELECT n FROM t WHERE snowflake_timestamp(id) >= {LATE}"));
    left_alone(&mut other, &format!("SELECT n FROM t WHERE snowflake_timestamp(id) > {LATE}"));
    left_alone(&mut other, "SELECT n FROM t WHERE snowflake_timestamp(id) >= '2026-01-07'::date");
}

/// Asserts that a statement without arguments returns 40 rows, and whether it is rewritten.
#[track_caller]
fn assert_runs(session: &mut Client, statement: &str, is_rewritten: bool, case: &str) {
    assert_eq!(rows(session, statement).unwrap_or_else(|error| panic!("{case}: {error:?}")).len(), 40, "{case}");
    let plan = plan(session, statement);
    assert_eq!(is_pushed(&plan), is_rewritten, "{case}:\n{plan}");
}

/// A statement with a generic plan, whose bound is computed at each run.
const PREPARE: &str = "SET plan_cache_mode = force_generic_plan;
     PREPARE s AS SELECT n FROM t WHERE snowflake_timestamp(id) >= now() - (now() - '2026-01-07 22:00Z')";

#[test]
fn a_plan_that_is_kept_follows_a_right_that_is_revoked_and_granted() {
    let server = start();
    let mut owner = server.connect();
    let mut session = server.connect_as("ordinary");
    session.batch_execute(PREPARE).unwrap();
    for round in 0..2 {
        assert_runs(&mut session, "EXECUTE s", true, &format!("round {round}, before"));
        owner.batch_execute(&format!("REVOKE EXECUTE ON FUNCTION {BOUNDS} FROM PUBLIC, ordinary")).unwrap();
        assert_runs(&mut session, "EXECUTE s", false, &format!("round {round}, revoked"));
        owner.batch_execute(&format!("GRANT EXECUTE ON FUNCTION {BOUNDS} TO ordinary")).unwrap();
        // The plan that was left alone is right and may be kept. A new plan is rewritten.
        session.batch_execute("DEALLOCATE s").unwrap();
        session.batch_execute(PREPARE).unwrap();
    }
}

#[test]
fn a_plan_made_for_one_role_runs_for_another() {
    let server = start();
    let mut owner = server.connect();
    owner.batch_execute(&format!("REVOKE EXECUTE ON FUNCTION {BOUNDS} FROM PUBLIC")).unwrap();
    for (become_ordinary, become_owner) in [
        ("SET ROLE ordinary", "RESET ROLE"),
        ("SET SESSION AUTHORIZATION ordinary", "RESET SESSION AUTHORIZATION"),
        ("BEGIN; SET LOCAL ROLE ordinary", "COMMIT"),
    ] {
        let mut session = server.connect();
        session.batch_execute(PREPARE).unwrap();
        for round in 0..2 {
            assert_runs(&mut session, "EXECUTE s", true, &format!("{become_owner}, round {round}"));
            session.batch_execute(become_ordinary).unwrap();
            assert_runs(&mut session, "EXECUTE s", false, &format!("{become_ordinary}, round {round}"));
            session.batch_execute(become_owner).unwrap();
        }
    }
}

#[test]
fn functions_with_plans_of_their_own_run_for_every_role() {
    let server = start();
    let mut owner = server.connect();
    let body = |security: &str, owner: &str| {
        format!(
            "CREATE FUNCTION {owner}_{security}() RETURNS SETOF integer LANGUAGE plpgsql SECURITY {security}
                 SET plan_cache_mode = force_generic_plan AS
                 $$BEGIN RETURN QUERY SELECT n FROM t
                 WHERE snowflake_timestamp(id) >= now() - (now() - '2026-01-07 22:00Z'); END$$;
             ALTER FUNCTION {owner}_{security}() OWNER TO {owner};
             CREATE FUNCTION {owner}_{security}_sql() RETURNS SETOF integer LANGUAGE sql STABLE SECURITY {security} AS
                 $$SELECT n FROM t WHERE snowflake_timestamp(id) >= now() - (now() - '2026-01-07 22:00Z')$$;
             ALTER FUNCTION {owner}_{security}_sql() OWNER TO {owner};"
        )
    };
    owner
        .batch_execute(&format!(
            "REVOKE EXECUTE ON FUNCTION {BOUNDS} FROM PUBLIC;
             {} {} {} {}",
            body("INVOKER", "postgres"),
            body("DEFINER", "postgres"),
            body("INVOKER", "ordinary"),
            body("DEFINER", "ordinary")
        ))
        .unwrap();
    let names = ["postgres_INVOKER", "postgres_DEFINER", "ordinary_INVOKER", "ordinary_DEFINER"];
    let mut session = server.connect();
    for round in 0..3 {
        for role in ["postgres", "ordinary", "other"] {
            session.batch_execute(&format!("SET ROLE {role}")).unwrap();
            for name in names {
                for function in [name.to_owned(), format!("{name}_sql")] {
                    let result = rows(&mut session, &format!("SELECT {function}()"));
                    let case = format!("{function} as {role}, round {round}");
                    assert_eq!(result.unwrap_or_else(|error| panic!("{case}: {error:?}")).len(), 40, "{case}");
                }
            }
        }
    }
}

#[test]
fn a_view_is_planned_with_the_rights_of_those_who_query_it() {
    let server = start();
    server
        .connect()
        .batch_execute(&format!(
            "REVOKE EXECUTE ON FUNCTION {BOUNDS} FROM PUBLIC;
             CREATE VIEW of_owner AS SELECT n, snowflake_timestamp(id) AS created_at FROM t;
             CREATE VIEW of_invoker WITH (security_invoker) AS SELECT n, snowflake_timestamp(id) AS created_at FROM t;
             CREATE VIEW of_ordinary AS SELECT n, snowflake_timestamp(id) AS created_at FROM t;
             ALTER VIEW of_ordinary OWNER TO ordinary;
             GRANT SELECT ON of_owner, of_invoker, of_ordinary TO PUBLIC"
        ))
        .unwrap();
    let (mut owner, mut ordinary) = (server.connect(), server.connect_as("ordinary"));
    for view in ["of_owner", "of_invoker", "of_ordinary"] {
        let query = format!("SELECT n FROM {view} WHERE created_at >= {LATE}");
        pushed(&mut owner, &query);
        left_alone(&mut ordinary, &query);
    }
}

#[test]
fn who_may_not_read_the_time_may_not_ask_for_it_in_a_condition() {
    let server = start();
    let mut owner = server.connect();
    owner
        .batch_execute(
            "CREATE TABLE empty (LIKE t INCLUDING ALL); GRANT ALL ON empty TO PUBLIC;
             CREATE VIEW v AS SELECT n, snowflake_timestamp(id) AS created_at FROM t; GRANT SELECT ON v TO PUBLIC;
             REVOKE EXECUTE ON FUNCTION snowflake_timestamp(bigint), snowflake_timestamp(bigint, text),
                 snowflake_parse(bigint), snowflake_parse(bigint, text) FROM PUBLIC",
        )
        .unwrap();
    let mut session = server.connect_as("ordinary");
    let mut cases: Vec<String> = queries();
    cases.extend(queries().iter().map(|query| query.replace("FROM t", "FROM empty")));
    cases.push(format!("SELECT n FROM v WHERE created_at >= {LATE}"));
    cases.push(format!("DELETE FROM t WHERE snowflake_timestamp(id) >= {LATE}"));
    for query in &cases {
        let without = without_pushdown(&mut session, |session| refused(rows(session, query)));
        assert_eq!(without.sqlstate, "42501", "{query}: {without:?}");
        assert_eq!(refused(rows(&mut session, query)), without, "{query}");
    }
    // A plan that was made before, or for another role.
    let mut session = server.connect();
    session.batch_execute(PREPARE).unwrap();
    assert_runs(&mut session, "EXECUTE s", true, "as the owner");
    session.batch_execute("SET ROLE ordinary").unwrap();
    assert_eq!(refused(rows(&mut session, "EXECUTE s")).sqlstate, "42501");
    owner.batch_execute("GRANT EXECUTE ON FUNCTION snowflake_timestamp(bigint) TO ordinary").unwrap();
    assert_runs(&mut session, "EXECUTE s", true, "granted");
    owner.batch_execute("REVOKE EXECUTE ON FUNCTION snowflake_timestamp(bigint) FROM ordinary").unwrap();
    assert_eq!(refused(rows(&mut session, "EXECUTE s")).sqlstate, "42501");
    // A role that may read only another column is refused, too.
    owner
        .batch_execute(
            "GRANT EXECUTE ON FUNCTION snowflake_timestamp(bigint) TO ordinary;
             REVOKE ALL ON t FROM PUBLIC; GRANT SELECT (n) ON t TO ordinary",
        )
        .unwrap();
    assert_eq!(refused(rows(&mut session, "EXECUTE s")).sqlstate, "42501");
    assert_eq!(rows(&mut session, "SELECT n FROM t").unwrap().len(), 10_000);
}

/// This is the case if default privileges grant no right to execute new functions.
#[test]
fn who_was_granted_the_time_but_not_the_bound_reads_as_without_pushdown() {
    let server = start();
    server
        .connect()
        .batch_execute(
            "DROP EXTENSION snowflake_id;
             ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
             CREATE EXTENSION snowflake_id;
             GRANT EXECUTE ON FUNCTION snowflake_timestamp(bigint), snowflake_timestamp(bigint, text),
                 snowflake_parse(bigint), snowflake_parse(bigint, text) TO ordinary",
        )
        .unwrap();
    let (mut ordinary, mut other, mut owner) =
        (server.connect_as("ordinary"), server.connect_as("other"), server.connect());
    for query in queries() {
        left_alone(&mut ordinary, &query);
        assert_eq!(refused(rows(&mut other, &query)).sqlstate, "42501", "{query}");
        pushed(&mut owner, &query);
    }
}

#[test]
fn everybody_may_switch_the_pushdown_off_for_themselves() {
    let server = start();
    server
        .connect()
        .batch_execute(
            "ALTER ROLE other SET snowflake_id.enable_time_pushdown = off;
             CREATE FUNCTION explained() RETURNS SETOF text LANGUAGE plpgsql
                 SET snowflake_id.enable_time_pushdown = off AS
                 $$BEGIN RETURN QUERY
                     EXECUTE 'EXPLAIN (COSTS off) SELECT n FROM t WHERE snowflake_timestamp(id) >= now()'; END$$",
        )
        .unwrap();
    let query = format!("SELECT n FROM t WHERE snowflake_timestamp(id) >= {LATE}");
    let (mut ordinary, mut other) = (server.connect_as("ordinary"), server.connect_as("other"));
    assert!(!is_pushed(&plan(&mut other, &query)));
    assert!(is_pushed(&plan(&mut ordinary, &query)));
    assert!(!is_pushed(&rows(&mut ordinary, "SELECT explained()").unwrap().join("\n")));
    ordinary.batch_execute("BEGIN; SET LOCAL snowflake_id.enable_time_pushdown = off").unwrap();
    assert!(!is_pushed(&plan(&mut ordinary, &query)));
    ordinary.batch_execute("COMMIT").unwrap();
    assert!(is_pushed(&plan(&mut ordinary, &query)));
}

/// Settings with which a role gets any plan without a sort.
const UNSORTED: [&str; 2] = [
    "SET enable_sort = off; SET constraint_exclusion = on",
    "SET seq_page_cost = 0; SET random_page_cost = 0; SET cpu_tuple_cost = 0; SET cpu_index_tuple_cost = 0;
     SET cpu_operator_cost = 0; SET constraint_exclusion = on",
];

/// The order of time must not bring a scan that skips a policy or the condition of a view: not
/// where the planner has proved that no row fulfils the conditions, nor elsewhere.
#[test]
fn a_role_sees_no_hidden_row_in_the_order_of_time() {
    let server = start();
    server
        .connect()
        .batch_execute(
            "CREATE TABLE parts (id bigint PRIMARY KEY, n integer NOT NULL) PARTITION BY HASH (id);
             CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
             CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
             CREATE TABLE parent (LIKE t); CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent);
             CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM t WHERE n % 10 = 0;
             CREATE VIEW seen WITH (security_barrier, security_invoker) AS SELECT * FROM parts WHERE n % 3 = 0;
             CREATE VIEW both_of_them WITH (security_invoker) AS SELECT * FROM t UNION ALL SELECT * FROM parts;
             INSERT INTO parts TABLE t; INSERT INTO child TABLE t;
             ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY tens ON t USING (n % 10 = 0);
             ALTER TABLE parts ENABLE ROW LEVEL SECURITY; CREATE POLICY tens ON parts USING (n % 10 = 0);
             ALTER TABLE parent ENABLE ROW LEVEL SECURITY; CREATE POLICY tens ON parent USING (n % 10 = 0);
             GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC; ANALYZE",
        )
        .unwrap();
    let mut session = server.connect_as("ordinary");
    for settings in UNSORTED {
        session.batch_execute(settings).unwrap();
        for table in ["t", "parts", "parent", "barrier", "seen", "both_of_them"] {
            for condition in ["id IS NULL", "NULL", "false", "n > 7 AND n < 3", "n > 50", "true"] {
                for time in TIMES {
                    let from = format!("{table} WHERE {condition} ORDER BY {time}");
                    let case = format!("{settings}: {from}");
                    let sees_rows = ["n > 50", "true"].contains(&condition);
                    for order in ["", " DESC", " LIMIT 10"] {
                        let seen = rows(&mut session, &format!("SELECT n FROM {from}{order}")).unwrap();
                        assert!(seen.iter().all(|n| n.ends_with('0')), "{case}: a hidden row was seen");
                        assert_eq!(!seen.is_empty(), sees_rows, "{case}: {} rows", seen.len());
                    }
                }
            }
        }
        for change in ["DELETE FROM t", "UPDATE t SET n = n"] {
            for condition in ["id IS NULL", "NULL", "false"] {
                let first = format!("SELECT id FROM t WHERE {condition} ORDER BY snowflake_timestamp(id) LIMIT 10");
                let statement = format!("{change} WHERE id IN ({first})");
                assert_eq!(session.execute(&statement, &[]).unwrap(), 0, "{settings}: {statement}");
            }
        }
    }
    // The negative control: who owns the tables sees every row.
    let all = rows(&mut server.connect(), "SELECT n FROM t ORDER BY snowflake_timestamp(id) LIMIT 10").unwrap();
    assert!(!all.iter().all(|n| n.ends_with('0')));
}
