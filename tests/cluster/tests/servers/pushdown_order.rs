//! Rows in the order of their ids' times come from an index on the ids, with the ties, places of
//! NULL and errors that a sort by the time gives.

use cluster::plans::{IMMUTABLE_TIMES, Minutes, TIMES, plan, rows, without_pushdown};
use cluster::refused;
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
    let database = Minutes::new();
    let mut session = database.connect();
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
    let database = Minutes::new();
    let mut session = database.connect();
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
    // Without NULLs, it does not matter where they would be.
    session.batch_execute("DELETE FROM s WHERE id IS NULL; ALTER TABLE s ALTER id SET NOT NULL").unwrap();
    for key in ["", "DESC", "DESC NULLS LAST", "NULLS FIRST"] {
        ordered(&mut session, &format!("SELECT id, n FROM s ORDER BY {time} {key}, n LIMIT 17"));
    }
    let outer = format!("SELECT t.n, s.id FROM t LEFT JOIN s ON s.n = t.n ORDER BY {time} DESC NULLS LAST, 1 LIMIT 17");
    assert_same_order(&mut session, &outer.replace("(id)", "(s.id)"));
}

#[test]
fn an_index_that_does_not_have_all_rows_or_not_their_order_is_left_alone() {
    let database = Minutes::new();
    let mut session = database.connect();
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
    let database = Minutes::new();
    let mut session = database.connect();
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
    let database = Minutes::new();
    let mut session = database.connect();
    session
        .batch_execute(
            "CREATE ROLE row_reader; GRANT SELECT ON t TO row_reader; ALTER TABLE t ENABLE ROW LEVEL SECURITY;
             CREATE POLICY few ON t USING (n < 100); SET ROLE row_reader",
        )
        .unwrap();
    for condition in ["", " WHERE snowflake_timestamp(id) >= '2026-01-01 00:10Z'", " WHERE id > 5"] {
        let plan =
            ordered(&mut session, &format!("SELECT n FROM t{condition} ORDER BY snowflake_timestamp(id) LIMIT 5"));
        assert!(plan.contains("Filter: "), "{plan}");
    }
}

/// Settings with which the planner takes any path that is in order, whatever another one costs.
const UNSORTED: [&str; 3] = [
    "SET enable_sort = off",
    "SET enable_sort = off; SET constraint_exclusion = on",
    "SET constraint_exclusion = on; SET seq_page_cost = 0; SET random_page_cost = 0; SET cpu_tuple_cost = 0;
     SET cpu_index_tuple_cost = 0; SET cpu_operator_cost = 0",
];

/// Conditions that no row of a family's tables fulfils. The planner proves the first without any
/// setting, the others with `constraint_exclusion`, or from a later version on.
const NEVER: [&str; 13] = [
    "NULL",
    "false",
    "1 = 2",
    "NULL AND n > 5",
    "id = NULL",
    "id IN (NULL, NULL)",
    "id IS NULL",
    "id IS NULL AND n > 5",
    "id < 0",
    "n > 5 AND n < 3",
    "snowflake_timestamp(id) > NULL",
    "snowflake_timestamp(id) IS NULL AND id IS NULL",
    "n IS NULL AND n = 7",
];

/// Statements that create relations of all kinds with the rows of `t`.
const FAMILIES: &str = "
    CREATE TABLE checked (id bigint PRIMARY KEY CHECK (id >= 0), n integer NOT NULL);
    CREATE TABLE parts (LIKE checked INCLUDING ALL) PARTITION BY HASH (id);
    CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
    CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1) PARTITION BY RANGE (id);
    CREATE TABLE parts_2 PARTITION OF parts_1 DEFAULT;
    CREATE TABLE parent (LIKE checked INCLUDING ALL);
    CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent);
    CREATE TABLE partial (LIKE checked INCLUDING CONSTRAINTS); CREATE INDEX ON partial (id) WHERE n >= 0;
    INSERT INTO checked TABLE t; INSERT INTO parts TABLE t; INSERT INTO child TABLE t; INSERT INTO partial TABLE t;
    CREATE MATERIALIZED VIEW kept AS TABLE t; CREATE INDEX ON kept (id);
    CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM checked WHERE n < 9000;
    CREATE VIEW all_of_them AS SELECT * FROM checked UNION ALL SELECT * FROM parts UNION ALL SELECT * FROM barrier;
    ANALYZE";

/// No row may come from a relation that is proved empty. PostgreSQL calls the hook for it, but has
/// not prepared what a scan of its indexes must check.
#[test]
fn nothing_is_read_where_no_row_can_fulfil_the_condition() {
    let database = Minutes::new();
    database.connect().batch_execute(FAMILIES).unwrap();
    for settings in UNSORTED {
        let mut session = database.connect();
        session.batch_execute(settings).unwrap();
        for table in ["t", "checked", "parts", "parent", "partial", "kept", "barrier", "all_of_them"] {
            for condition in NEVER {
                let time = TIMES[condition.len() % TIMES.len()];
                for query in [
                    "SELECT n FROM {from} ORDER BY {t}",
                    "SELECT n FROM {from} ORDER BY {t} DESC LIMIT 5",
                    "SELECT n FROM (SELECT * FROM {from} ORDER BY {t} LIMIT 5) s JOIN t USING (n)",
                    "SELECT n, row_number() OVER (ORDER BY {t}) FROM {from}",
                    "SELECT DISTINCT ON ({t}) n FROM {from}",
                    "SELECT n FROM (SELECT id, n FROM t WHERE n < 5) one JOIN LATERAL
                     (SELECT n AS other FROM {from} AND n <> one.n ORDER BY {t} LIMIT 5) two ON true",
                    "SELECT n FROM t LEFT JOIN (SELECT n AS other FROM {from} ORDER BY {t} LIMIT 5) s ON n = other
                     WHERE other IS NOT NULL",
                ] {
                    let query = query.replace("{t}", time).replace("{from}", &format!("{table} WHERE ({condition})"));
                    assert_eq!(rows(&mut session, &query).unwrap(), [""; 0], "{settings}: {query}");
                }
                for time in IMMUTABLE_TIMES {
                    let query = format!("SELECT min({time}), max({time}) FROM {table} WHERE {condition}");
                    assert_eq!(rows(&mut session, &query).unwrap(), ["NULL|NULL"], "{settings}: {query}");
                }
                let is_table = !["kept", "barrier", "all_of_them"].contains(&table);
                for change in ["DELETE FROM {table}", "UPDATE {table} SET n = n + 1"].iter().filter(|_| is_table) {
                    let first = format!("SELECT id FROM {table} WHERE {condition} ORDER BY {time} LIMIT 10");
                    let statement = format!("{} WHERE id IN ({first})", change.replace("{table}", table));
                    assert_eq!(session.execute(&statement, &[]).unwrap(), 0, "{settings}: {statement}");
                }
            }
        }
        // The settings do what they are for.
        ordered(&mut session, "SELECT n FROM checked ORDER BY snowflake_timestamp(id)");
    }
}

/// A plan for all values of a parameter checks it when it runs; one for a value that no row fulfils
/// reads nothing.
#[test]
fn a_parameter_that_excludes_all_rows_excludes_them_in_every_plan() {
    let database = Minutes::new();
    let mut session = database.connect();
    session.batch_execute("SET enable_sort = off").unwrap();
    for query in [
        "SELECT n FROM t WHERE $1 ORDER BY snowflake_timestamp(id)",
        "SELECT n FROM t WHERE $1 AND snowflake_timestamp(id) < '2026-01-02Z' ORDER BY snowflake_timestamp(id) LIMIT 7",
    ] {
        session.batch_execute(&format!("PREPARE q(boolean) AS {query}")).unwrap();
        for mode in ["force_custom_plan", "force_generic_plan"] {
            session.batch_execute(&format!("SET plan_cache_mode = {mode}")).unwrap();
            for value in ["NULL", "false"] {
                assert_eq!(rows(&mut session, &format!("EXECUTE q({value})")).unwrap(), [""; 0], "{mode}: {query}");
            }
            assert!(rows(&mut session, "EXECUTE q(true)").unwrap().len() >= 7, "{mode}: {query}");
        }
        session.batch_execute("DEALLOCATE q; RESET plan_cache_mode").unwrap();
    }
}

/// From PostgreSQL 16 on, the planner lists a partitioned table's own indexes, which have no rows
/// and no order.
#[test]
fn a_partitioned_table_without_its_partitions_has_no_rows() {
    let database = Minutes::new();
    let mut session = database.connect();
    session.batch_execute(FAMILIES).unwrap();
    session.batch_execute("CREATE TABLE bare (id bigint PRIMARY KEY, n integer) PARTITION BY RANGE (id)").unwrap();
    for settings in UNSORTED {
        session.batch_execute(settings).unwrap();
        for from in ["ONLY parts", "ONLY parts_1", "ONLY parts WHERE n > 5", "bare", "bare WHERE id > 5", "ONLY parent"]
        {
            for order in ["", " DESC LIMIT 5"] {
                let query = format!("SELECT n FROM {from} ORDER BY snowflake_timestamp(id){order}");
                assert_eq!(rows(&mut session, &query).unwrap(), [""; 0], "{settings}: {query}");
            }
        }
    }
}

/// TABLESAMPLE leaves out rows that an index has.
#[test]
fn a_sample_and_a_lateral_subquery_have_the_rows_that_they_have_without_pushdown() {
    let database = Minutes::new();
    let mut session = database.connect();
    session.batch_execute(FAMILIES).unwrap();
    for settings in UNSORTED {
        session.batch_execute(settings).unwrap();
        for table in ["t", "parts", "parent", "kept"] {
            for query in [
                "SELECT n FROM {table} TABLESAMPLE BERNOULLI (10) REPEATABLE (7) ORDER BY {t}",
                "SELECT one.n, two.n FROM checked one, LATERAL
                 (SELECT * FROM {table} WHERE n < one.n ORDER BY {t} DESC LIMIT 3) two WHERE one.n < 20 ORDER BY 1, 2",
                "SELECT a.n FROM {table} a, LATERAL (SELECT a.n AS m OFFSET 0) b WHERE m < 50 ORDER BY {t}",
                "SELECT n FROM {table} WHERE n % 7 = 3 AND id > 5 ORDER BY {t} FOR UPDATE",
            ] {
                if table == "kept" && query.contains("FOR UPDATE") {
                    continue;
                }
                let id = if query.contains(" a,") { "(a.id" } else { "(id" };
                assert_same_order(
                    &mut session,
                    &query.replace("{table}", table).replace("{t}", &TIMES[0].replace("(id", id)),
                );
            }
        }
    }
}
