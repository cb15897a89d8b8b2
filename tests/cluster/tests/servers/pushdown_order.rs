//! Rows in the order of their ids' times come from an index on the ids, with the ties, places of
//! NULL and errors that a sort by the time gives.

use cluster::plans::{IMMUTABLE_TIMES, TIMES, plan, rows, without_pushdown};
use cluster::{Server, refused};
use postgres::Client;

/// Asserts that nothing is sorted from scratch for a query, and that its rows come in the order in
/// which they come without pushdown.
#[track_caller]
fn ordered(session: &mut Client, query: &str) -> String {
    let with = plan(session, query);
    let is_sorted = with.lines().any(|line| line.trim_start().trim_start_matches("->  ") == "Sort");
    let has_index = with.contains("Index Scan");
    assert!(has_index && !is_sorted, "{query}: sorted:\n{with}");
    assert_same_order(session, query);
    with
}

#[track_caller]
fn assert_same_order(session: &mut Client, query: &str) {
    let with = rows(session, query).unwrap();
    let without = without_pushdown(session, |session| rows(session, query)).unwrap();
    assert_eq!(with, without, "{query}");
}

/// Asserts that a query is planned as without pushdown.
#[track_caller]
fn left_alone(session: &mut Client, query: &str) {
    let without = without_pushdown(session, |session| plan(session, query));
    assert_eq!(plan(session, query), without, "{query}");
    assert_same_order(session, query);
}

#[test]
fn the_first_rows_by_time_come_from_the_key() {
    let server = Server::builder().start_with_minutes();
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE VIEW v AS SELECT *, snowflake_timestamp(id) AS created_at FROM t;
             CREATE TABLE parts (id bigint PRIMARY KEY, n integer) PARTITION BY HASH (id);
             CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
             CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
             INSERT INTO parts TABLE t;
             CREATE VIEW both_of_them AS SELECT * FROM v UNION ALL SELECT *, snowflake_timestamp(id) FROM parts;
             ANALYZE parts",
        )
        .unwrap();
    for time in TIMES {
        for query in [
            "SELECT n FROM t ORDER BY {t} LIMIT 5",
            "SELECT n FROM t ORDER BY {t} DESC LIMIT 5",
            "SELECT n, {t} FROM t ORDER BY {t} DESC, n LIMIT 5 OFFSET 3",
            "SELECT n FROM t ORDER BY {t} FETCH FIRST 3 ROWS WITH TIES",
            "SELECT n FROM t WHERE {t} < '2026-01-05Z' AND n % 2 = 0 ORDER BY {t} DESC LIMIT 5",
            "SELECT n FROM t WHERE date_trunc('day', {t}) = '2026-01-05Z' ORDER BY {t} LIMIT 5",
            "SELECT n FROM parts ORDER BY {t} DESC LIMIT 5",
            "SELECT n FROM parts WHERE {t} > '2026-01-05Z' ORDER BY {t} LIMIT 5",
            "SELECT n, row_number() OVER (ORDER BY {t}) FROM t LIMIT 5",
        ] {
            ordered(&mut session, &query.replace("{t}", time));
        }
        let distinct = format!("SELECT DISTINCT ON ({time}) n FROM t ORDER BY {time}, n DESC LIMIT 5");
        assert_same_order(&mut session, &distinct);
    }
    for query in [
        "SELECT n FROM v ORDER BY created_at DESC LIMIT 5",
        "SELECT n, created_at FROM both_of_them ORDER BY created_at DESC, n LIMIT 5",
        "SELECT v.n FROM v LEFT JOIN t USING (id) ORDER BY v.created_at LIMIT 5",
    ] {
        ordered(&mut session, query);
    }
    for time in IMMUTABLE_TIMES {
        for aggregate in ["max", "min"] {
            ordered(&mut session, &format!("SELECT {aggregate}({time}) FROM t"));
        }
    }
    left_alone(&mut session, "SELECT max(snowflake_timestamp(id)) FROM t");
    left_alone(&mut session, "SELECT n FROM t ORDER BY date_trunc('day', snowflake_timestamp(id)), n LIMIT 5");
    left_alone(&mut session, "SELECT n FROM t ORDER BY n, snowflake_timestamp(id) LIMIT 5");
}

/// Ten ids have each time, and some rows have none.
#[test]
fn ties_and_rows_without_an_id_are_where_a_sort_puts_them() {
    let server = Server::builder().start_with_minutes();
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE TABLE s (id bigint, n integer);
             INSERT INTO s SELECT snowflake_compose('2026-01-01Z'::timestamptz + n / 10 * interval '1 minute', 1, n % 10, 0, 'snowflake'), -n
             FROM generate_series(0, 999) n;
             INSERT INTO s SELECT NULL, n FROM generate_series(1, 5) n;
             CREATE INDEX ascending ON s (id, n);
             ANALYZE s",
        )
        .unwrap();
    let time = "snowflake_timestamp(id)";
    for key in ["", "DESC"] {
        for limit in ["LIMIT 17", "FETCH FIRST 17 ROWS WITH TIES"] {
            ordered(&mut session, &format!("SELECT id, n FROM s ORDER BY {time} {key}, n {limit}"));
            ordered(&mut session, &format!("SELECT id, n FROM s WHERE n < 0 ORDER BY {time} {key}, n DESC {limit}"));
        }
    }
    for key in ["", "DESC"] {
        assert_same_order(&mut session, &format!("SELECT id, n FROM s ORDER BY {time} {key}, n LIMIT 10 OFFSET 995"));
    }
    // The index has NULL at the other end.
    for key in ["DESC NULLS LAST", "NULLS FIRST"] {
        left_alone(&mut session, &format!("SELECT id, n FROM s ORDER BY {time} {key}, n LIMIT 17"));
    }
    session.batch_execute("DROP INDEX ascending; CREATE INDEX ON s (id DESC NULLS LAST)").unwrap();
    for key in ["DESC NULLS LAST", "NULLS FIRST"] {
        ordered(&mut session, &format!("SELECT id, n FROM s ORDER BY {time} {key}, n LIMIT 17"));
    }
    left_alone(&mut session, &format!("SELECT id, n FROM s ORDER BY {time}, n LIMIT 17"));
}

#[test]
fn an_index_that_does_not_have_all_rows_or_not_their_order_is_left_alone() {
    let server = Server::builder().start_with_minutes();
    let mut session = server.connect();
    for index in ["(n, id)", "((id + 1))", "(id) WHERE n > 5", "USING hash (id)", "USING brin (id)"] {
        session
            .batch_execute(&format!(
                "CREATE TABLE i (LIKE t); INSERT INTO i TABLE t; CREATE INDEX ON i {index}; ANALYZE i"
            ))
            .unwrap();
        left_alone(&mut session, "SELECT id FROM i ORDER BY snowflake_timestamp(id) LIMIT 5");
        if index.contains("WHERE") {
            ordered(&mut session, "SELECT id FROM i WHERE n > 5 ORDER BY snowflake_timestamp(id) LIMIT 5");
        }
        session.batch_execute("DROP TABLE i").unwrap();
    }
    left_alone(
        &mut session,
        "SELECT n FROM t ORDER BY snowflake_timestamp(id, CASE WHEN n < 0 THEN '' ELSE 'snowflake' END) LIMIT 5",
    );
    session.batch_execute("CREATE TABLE i (LIKE t); CREATE INDEX ON i (id)").unwrap();
    session.batch_execute("INSERT INTO i TABLE t; ANALYZE i; SET snowflake_id.enable_time_pushdown = off").unwrap();
    assert!(plan(&mut session, "SELECT n FROM i ORDER BY snowflake_timestamp(id) LIMIT 5").contains("Sort"));
}

/// A row that is read raises its error. A LIMIT may be reached before that.
#[test]
fn a_number_that_is_not_an_id_is_refused_when_it_is_read() {
    let server = Server::builder().start_with_minutes();
    let mut session = server.connect();
    session.batch_execute("INSERT INTO t VALUES (-1, -1)").unwrap();
    let first = "SELECT n FROM t ORDER BY snowflake_timestamp(id) LIMIT 1";
    let last = "SELECT n FROM t ORDER BY snowflake_timestamp(id) DESC";
    assert_eq!(refused(session.simple_query(first)).sqlstate, "22023");
    assert_eq!(refused(session.simple_query(last)).sqlstate, "22023");
    assert_eq!(rows(&mut session, &format!("{last} LIMIT 2")).unwrap(), ["9999", "9998"]);
    let without = without_pushdown(&mut session, |session| refused(session.simple_query(&format!("{last} LIMIT 2"))));
    assert_eq!(without.sqlstate, "22023");
    let since =
        "SELECT n FROM t WHERE snowflake_timestamp(id) < '2026-01-02Z' ORDER BY snowflake_timestamp(id) LIMIT 2";
    assert_eq!(rows(&mut session, since).unwrap(), ["0", "1"]);
}

/// Conditions of a view's user must not see rows that the view hides.
#[test]
fn a_condition_that_leaks_does_not_run_before_a_policy() {
    let server = Server::builder().start_with_minutes();
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE ROLE reader; GRANT SELECT ON t TO reader; ALTER TABLE t ENABLE ROW LEVEL SECURITY;
             CREATE POLICY few ON t USING (n < 100); SET ROLE reader",
        )
        .unwrap();
    for condition in ["", " WHERE snowflake_timestamp(id) >= '2026-01-01 00:10Z'", " WHERE id > 5"] {
        let plan =
            ordered(&mut session, &format!("SELECT n FROM t{condition} ORDER BY snowflake_timestamp(id) LIMIT 5"));
        assert!(plan.contains("Filter: "), "{plan}");
    }
}
