//! Tables that are organized by the time itself: indexes, arbiters of upserts, partitions,
//! constraints of children. The time pushdown leaves a condition alone if these serve it. Plans
//! follow them as they come and go.

use cluster::Draw;
use cluster::plans::{
    IMMUTABLE_TIMES, LATE, Minutes, TIMES, assert_same_rows, is_pushed, left_alone, plan, pushed, rows,
    without_pushdown,
};
use postgres::Client;

#[test]
fn an_upsert_finds_its_index_by_a_condition_on_the_time() {
    let database = Minutes::new();
    let mut session = database.connect();
    for time in IMMUTABLE_TIMES {
        session
            .batch_execute(&format!(
                "DROP TABLE IF EXISTS c;
                 CREATE TABLE c (id bigint NOT NULL, k integer NOT NULL, hits integer NOT NULL DEFAULT 0);
                 CREATE UNIQUE INDEX c_k ON c (k) WHERE {time} >= {LATE}"
            ))
            .unwrap();
        // The condition of the SELECT is rewritten. The arbiter's condition is not.
        let upsert = format!(
            "INSERT INTO c SELECT id, n % 2, 0 FROM t WHERE {time} >= '2026-01-07 22:38Z'
             ON CONFLICT (k) WHERE {time} >= {LATE} DO UPDATE SET hits = c.hits + 1
             WHERE snowflake_timestamp(c.id) >= {LATE}"
        );
        let with = plan(&mut session, &upsert);
        assert!(with.contains("Conflict Arbiter Indexes: c_k"), "{with}");
        assert!(with.contains("Index Cond: (id >"), "{with}");
        let without = without_pushdown(&mut session, |session| plan(session, &upsert));
        assert!(without.contains("Conflict Arbiter Indexes: c_k") && !without.contains("Index Cond"), "{without}");
        for _ in 0..3 {
            session.batch_execute(&upsert).unwrap();
        }
        // These rows are not in the index, because its condition does not hold. So there is no
        // conflict.
        let early = format!(
            "INSERT INTO c SELECT id, 0, 100 FROM t WHERE n < 2 ON CONFLICT (k) WHERE {time} >= {LATE} DO NOTHING"
        );
        session.batch_execute(&early).unwrap();
        session.batch_execute("SET plan_cache_mode = force_generic_plan").unwrap();
        session
            .batch_execute(&format!("PREPARE again (integer) AS {}", upsert.replace("c.hits + 1", "c.hits + $1")))
            .unwrap();
        assert!(plan(&mut session, "EXECUTE again(10)").contains("Conflict Arbiter Indexes: c_k"));
        session.batch_execute("EXECUTE again(10); DEALLOCATE again; RESET plan_cache_mode").unwrap();
        assert_eq!(
            rows(&mut session, "SELECT k, hits FROM c ORDER BY k, hits").unwrap(),
            ["0|12", "0|100", "0|100", "1|12"]
        );
    }
}

#[test]
fn an_upsert_finds_its_index_by_the_time_itself() {
    let database = Minutes::new();
    let mut session = database.connect();
    session
        .batch_execute(
            "CREATE TABLE c (id bigint NOT NULL, hits integer NOT NULL DEFAULT 0);
             CREATE UNIQUE INDEX c_time ON c (snowflake_timestamp(id, 'snowflake'))",
        )
        .unwrap();
    let upsert = format!(
        "INSERT INTO c SELECT id FROM t WHERE snowflake_timestamp(id, 'snowflake') >= {LATE}
         ON CONFLICT (snowflake_timestamp(id, 'snowflake')) DO UPDATE SET hits = c.hits + 1
         WHERE snowflake_timestamp(c.id, 'snowflake') < '2026-01-07 22:30Z'"
    );
    let with = plan(&mut session, &upsert);
    assert!(with.contains("Conflict Arbiter Indexes: c_time") && with.contains("Index Cond: (id >"), "{with}");
    for _ in 0..2 {
        session.batch_execute(&upsert).unwrap();
    }
    assert_eq!(session.value("SELECT count(*) || ' ' || sum(hits) FROM c"), "40 30");
}

#[test]
fn an_index_by_the_time_is_used_as_without_pushdown() {
    let database = Minutes::new();
    let mut session = database.connect();
    for time in IMMUTABLE_TIMES {
        for index in [
            format!("i ON t (({time}))"),
            format!("i ON t (({time}) DESC) INCLUDE (id)"),
            format!("i ON t (n) WHERE {time} >= '2026-01-06Z'"),
            format!("i ON t (id) WHERE {time} >= '2026-01-06Z' AND n > 5"),
        ] {
            session.batch_execute(&format!("CREATE INDEX {index}; ANALYZE t")).unwrap();
            for condition in [
                format!("{time} >= '2026-01-07Z' AND n > 9990"),
                format!("'2026-01-07Z' <= {time} AND n > 9990"),
                format!("{time} BETWEEN '2026-01-07Z' AND {LATE} AND n IN (9900, 9950)"),
            ] {
                // Without the primary key the planner chooses between this index and the whole
                // table.
                let query = format!("SELECT n FROM t WHERE {condition}");
                session.batch_execute("BEGIN; ALTER TABLE t DROP CONSTRAINT t_pkey").unwrap();
                let plan = left_alone(&mut session, &query);
                assert!(plan.contains(" i on t"), "{index}: {query}:\n{plan}");
                session.batch_execute("ROLLBACK").unwrap();
                left_alone(&mut session, &query);
            }
            left_alone(&mut session, &format!("SELECT id FROM t WHERE {time} > '2026-01-07Z' ORDER BY {time} LIMIT 3"));
            session.batch_execute("DROP INDEX i").unwrap();
            pushed(&mut session, &format!("SELECT n FROM t WHERE {time} >= '2026-01-07Z'"));
        }
    }
}

/// PostgreSQL replaces such a function by its body, in a query and in an index. No catalog shows
/// that the index uses the extension's function.
#[test]
fn an_index_by_the_time_in_the_body_of_a_function_is_used_as_without_pushdown() {
    let database = Minutes::new();
    let mut session = database.connect();
    session
        .batch_execute(
            "CREATE FUNCTION time_of(bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS
                 $$SELECT public.snowflake_timestamp($1, 'snowflake')$$;
             CREATE TABLE p (id bigint NOT NULL, n integer NOT NULL) PARTITION BY RANGE (time_of(id));
             CREATE TABLE p_early PARTITION OF p FOR VALUES FROM (MINVALUE) TO ('2026-01-04Z');
             CREATE TABLE p_late PARTITION OF p FOR VALUES FROM ('2026-01-04Z') TO (MAXVALUE);
             CREATE INDEX ON p (id);
             INSERT INTO p SELECT * FROM t;
             CREATE TABLE q (id bigint NOT NULL, n integer NOT NULL) PARTITION BY RANGE (id);
             CREATE TABLE q_early PARTITION OF q FOR VALUES FROM (0) TO (snowflake_min('2026-01-04Z', 'snowflake'));
             CREATE TABLE q_late PARTITION OF q FOR VALUES FROM (snowflake_min('2026-01-04Z', 'snowflake')) TO (MAXVALUE);
             INSERT INTO q SELECT * FROM t;
             CREATE INDEX by_time ON q_late (time_of(id));
             ANALYZE p, q",
        )
        .unwrap();
    let query = |time: &str, table: &str| format!("SELECT n FROM {table} WHERE {time} >= {LATE}");
    pushed(&mut session, &query("time_of(id)", "t"));
    session.batch_execute("CREATE INDEX i ON t (time_of(id)); ALTER TABLE t DROP CONSTRAINT t_pkey").unwrap();
    for time in ["time_of(id)", "snowflake_timestamp(id, 'snowflake')"] {
        let on_t = left_alone(&mut session, &query(time, "t"));
        assert!(on_t.contains("Index Scan on i\n") || on_t.contains(" i on t"), "{on_t}");
        let on_p = left_alone(&mut session, &query(time, "p"));
        assert!(!on_p.contains("p_early"), "{on_p}");
        // The pushdown does not see an index of a single partition, but the rows are right.
        assert_same_rows(&mut session, &query(time, "q"));
    }
}

/// No index can hold the form without a layout, which is not immutable.
#[test]
fn the_form_without_a_layout_is_rewritten_beside_an_index_by_the_time() {
    let database = Minutes::new();
    let mut session = database.connect();
    session.batch_execute("CREATE INDEX i ON t (snowflake_timestamp(id, 'snowflake'))").unwrap();
    session
        .batch_execute("CREATE INDEX j ON t (n) WHERE (snowflake_parse(id, 'snowflake')).created_at > '2026-01-06Z'")
        .unwrap();
    for time in ["snowflake_timestamp(id)", "(snowflake_parse(id)).created_at"] {
        let plan = pushed(&mut session, &format!("SELECT n FROM t WHERE {time} >= {LATE}"));
        assert!(plan.contains("t_pkey"), "{plan}");
    }
}

/// PostgreSQL prunes the default partition where `IS NOT NULL` stands beside an OR of comparisons.
#[test]
fn rows_of_a_default_partition_are_found_beside_is_not_null() {
    let database = Minutes::new();
    let mut session = database.connect();
    session
        .batch_execute(
            "CREATE TABLE p (id bigint PRIMARY KEY, n integer) PARTITION BY RANGE (id);
             CREATE TABLE p_early PARTITION OF p FOR VALUES FROM (MINVALUE) TO (snowflake_min('2026-01-04Z'));
             CREATE TABLE p_rest PARTITION OF p DEFAULT;
             INSERT INTO p SELECT * FROM t;
             CREATE ROLE beside_not_null;
             CREATE TABLE guarded (LIKE p) PARTITION BY RANGE (id);
             CREATE TABLE guarded_rest PARTITION OF guarded DEFAULT;
             CREATE TABLE guarded_early PARTITION OF guarded FOR VALUES FROM (MINVALUE) TO (snowflake_min('2026-01-04Z'));
             INSERT INTO guarded SELECT * FROM t;
             CREATE POLICY p ON guarded USING (id IS NOT NULL);
             ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
             GRANT SELECT ON ALL TABLES IN SCHEMA public TO beside_not_null; SET ROLE beside_not_null",
        )
        .unwrap();
    for time in TIMES {
        for condition in [
            format!("({time} < '2026-01-01 01:00Z' OR {time} >= {LATE}) AND id IS NOT NULL"),
            format!("id IS NOT NULL AND {time} < '2026-01-01 01:00Z' OR id IS NOT NULL AND {time} >= {LATE}"),
            format!("{time} IN ('2026-01-01 01:00Z', {LATE}) AND id IS NOT NULL"),
        ] {
            for from in ["p", "guarded", "(SELECT * FROM p UNION ALL SELECT * FROM t) u"] {
                let query = format!("SELECT * FROM {from} WHERE {condition}");
                assert_ne!(rows(&mut session, &query).unwrap().len(), 0, "{query}");
                assert_same_rows(&mut session, &query);
            }
        }
    }
}

#[test]
fn partitions_by_the_time_are_pruned_as_without_pushdown() {
    let database = Minutes::new();
    let mut session = database.connect();
    for time in IMMUTABLE_TIMES {
        session
            .batch_execute(&format!(
                "DROP TABLE IF EXISTS p, q;
                 CREATE TABLE p (id bigint NOT NULL, n integer NOT NULL) PARTITION BY RANGE (({time}));
                 CREATE TABLE p_early PARTITION OF p FOR VALUES FROM (MINVALUE) TO ('2026-01-04Z');
                 CREATE TABLE p_late PARTITION OF p FOR VALUES FROM ('2026-01-04Z') TO (MAXVALUE);
                 CREATE INDEX ON p (id);
                 INSERT INTO p SELECT * FROM t;
                 -- A key of the partitions of a partition.
                 CREATE TABLE q (id bigint NOT NULL, n integer NOT NULL) PARTITION BY LIST (n);
                 CREATE TABLE q_even PARTITION OF q FOR VALUES IN (0) PARTITION BY RANGE (({time}));
                 CREATE TABLE q_even_early PARTITION OF q_even FOR VALUES FROM (MINVALUE) TO ('2026-01-04Z');
                 CREATE TABLE q_even_late PARTITION OF q_even FOR VALUES FROM ('2026-01-04Z') TO (MAXVALUE);
                 CREATE TABLE q_odd PARTITION OF q FOR VALUES IN (1);
                 CREATE INDEX ON q (id);
                 INSERT INTO q SELECT id, n % 2 FROM t;
                 ANALYZE p, q"
            ))
            .unwrap();
        for table in ["p", "q", "q_even"] {
            for (condition, pruned) in [
                (format!("{time} >= '2026-01-05Z'"), "early"),
                (format!("{time} < '2026-01-03Z'"), "late"),
                (format!("{time} BETWEEN '2026-01-05Z' AND '2026-01-06Z'"), "early"),
                (format!("'2026-01-05Z' < {time} AND n >= 0"), "early"),
            ] {
                let plan = left_alone(&mut session, &format!("SELECT * FROM {table} WHERE {condition}"));
                assert!(!plan.contains(pruned), "{table}: {condition}:\n{plan}");
            }
        }
        // Partitions are pruned at run time.
        session
            .batch_execute(&format!(
                "SET plan_cache_mode = force_generic_plan;
                 PREPARE s (timestamptz) AS SELECT * FROM q WHERE {time} >= $1"
            ))
            .unwrap();
        let plan = plan(&mut session, "EXECUTE s('2026-01-05Z')");
        assert!(plan.contains("Subplans Removed: 1") && !plan.contains("early"), "{plan}");
        assert_eq!(rows(&mut session, "EXECUTE s('2026-01-05Z')").unwrap().len(), 10_000 - 4 * 1440);
        session.batch_execute("DEALLOCATE s; RESET plan_cache_mode").unwrap();
        // A partition without such a key or index is like any table.
        pushed(&mut session, &format!("SELECT * FROM p_late WHERE {time} >= {LATE}"));
        pushed(&mut session, &format!("SELECT * FROM q_odd WHERE {time} >= {LATE}"));
        // No partition key can hold the form without a layout.
        pushed(&mut session, &format!("SELECT * FROM q WHERE snowflake_timestamp(id) >= {LATE}"));
    }
}

/// A family of tables, `early` and `late`, whose late child has an index by the time.
fn make_family(session: &mut Client, parent: &str, inherits: bool) {
    let children = ["early", "late"].map(|child| {
        let (from, to) =
            if child == "early" { ("'2026-01-01Z'", "'2026-01-04Z'") } else { ("'2026-01-04Z'", "'2026-02-01Z'") };
        let bound = |time| format!("snowflake_min({time}, 'snowflake')");
        if inherits {
            format!(
                "CREATE TABLE {parent}_{child} () INHERITS ({parent});
                     INSERT INTO {parent}_{child} SELECT * FROM t WHERE id >= {} AND id < {};
                     CREATE INDEX ON {parent}_{child} (id);",
                bound(from),
                bound(to)
            )
        } else {
            format!(
                "CREATE TABLE {parent}_{child} PARTITION OF {parent} FOR VALUES FROM ({}) TO ({});",
                bound(from),
                bound(to)
            )
        }
    });
    let (key, fill) =
        if inherits { ("", "") } else { ("PARTITION BY RANGE (id)", "INSERT INTO {parent} SELECT * FROM t;") };
    session
        .batch_execute(&format!(
            "CREATE TABLE {parent} (id bigint NOT NULL, n integer NOT NULL) {key};
             CREATE INDEX ON {parent} (id);
             {} {}
             CREATE INDEX {parent}_by_time ON {parent}_late (snowflake_timestamp(id, 'snowflake'));
             ANALYZE {parent}, {parent}_early, {parent}_late",
            children.concat(),
            fill.replace("{parent}", parent)
        ))
        .unwrap();
}

#[test]
fn an_index_by_the_time_on_one_child_is_used_as_without_pushdown() {
    let database = Minutes::new();
    let mut session = database.connect();
    for (parent, inherits) in [("partitioned", false), ("inherited", true)] {
        make_family(&mut session, parent, inherits);
        let query = |table: &str| format!("SELECT n FROM {table} WHERE snowflake_timestamp(id, 'snowflake') >= {LATE}");
        for table in [parent.to_owned(), format!("{parent}_late")] {
            let plan = left_alone(&mut session, &query(&table));
            assert!(plan.contains(&format!("{parent}_by_time")), "{plan}");
        }
        pushed(&mut session, &query(&format!("{parent}_early")));
        pushed(&mut session, &query(parent).replace(", 'snowflake')", ")"));
        session.batch_execute(&format!("DROP INDEX {parent}_by_time")).unwrap();
        pushed(&mut session, &query(parent));
    }
}

/// Prepares a statement with a generic plan, and one with custom plans.
fn prepare(session: &mut Client, query: &str) {
    session
        .batch_execute(&format!("PREPARE generic (timestamptz) AS {query}; PREPARE custom (timestamptz) AS {query}"))
        .unwrap();
}

/// Asserts that both plans are rewritten, or that both use the index of that name, and that their
/// rows are right.
#[track_caller]
fn assert_prepared(session: &mut Client, expected: Option<&str>, case: &str) {
    for (statement, mode) in [("generic", "force_generic_plan"), ("custom", "force_custom_plan")] {
        session.batch_execute(&format!("SET plan_cache_mode = {mode}")).unwrap();
        let execute = format!("EXECUTE {statement}({LATE})");
        // First the plan that the statement runs with, then the plan that EXPLAIN shows.
        assert_eq!(rows(session, &execute).unwrap().len(), 40, "{case}: {statement}");
        let plan = plan(session, &execute);
        match expected {
            None => assert!(is_pushed(&plan) && plan.contains("Index Cond: ("), "{case}: {statement}:\n{plan}"),
            Some(index) => assert!(!is_pushed(&plan) && plan.contains(index), "{case}: {statement}:\n{plan}"),
        }
    }
}

#[test]
fn a_prepared_statement_follows_indexes_that_come_and_go_in_another_session() {
    let database = Minutes::new();
    let (mut session, mut other) = (database.connect(), database.connect());
    prepare(&mut session, "SELECT n FROM t WHERE snowflake_timestamp(id, 'snowflake') >= $1");
    for round in 0..2 {
        assert_prepared(&mut session, None, &format!("round {round}, before"));
        other.batch_execute("CREATE INDEX by_time ON t (snowflake_timestamp(id, 'snowflake'))").unwrap();
        assert_prepared(&mut session, Some("by_time"), &format!("round {round}, with the index"));
        other.batch_execute("BEGIN; DROP INDEX by_time; ROLLBACK").unwrap();
        assert_prepared(&mut session, Some("by_time"), &format!("round {round}, dropped in vain"));
        other.batch_execute("DROP INDEX by_time").unwrap();
        assert_prepared(&mut session, None, &format!("round {round}, without the index"));
        other.batch_execute("CREATE INDEX CONCURRENTLY by_time ON t (snowflake_timestamp(id, 'snowflake'))").unwrap();
        assert_prepared(&mut session, Some("by_time"), &format!("round {round}, concurrently"));
        other.batch_execute("DROP INDEX CONCURRENTLY by_time").unwrap();
    }
}

/// The bounds of a family's late partition.
const FROM_THE_4TH: &str =
    "FOR VALUES FROM (snowflake_min('2026-01-04Z', 'snowflake')) TO (snowflake_min('2026-02-01Z', 'snowflake'))";

#[test]
fn a_prepared_statement_follows_children_that_come_and_go_in_another_session() {
    let database = Minutes::new();
    for (parent, inherits) in [("partitioned", false), ("inherited", true)] {
        let (mut session, mut other) = (database.connect(), database.connect());
        make_family(&mut other, parent, inherits);
        let (leave, join) = if inherits {
            (
                format!("ALTER TABLE {parent}_late NO INHERIT {parent}"),
                format!("ALTER TABLE {parent}_late INHERIT {parent}"),
            )
        } else {
            (
                format!("ALTER TABLE {parent} DETACH PARTITION {parent}_late"),
                format!("ALTER TABLE {parent} ATTACH PARTITION {parent}_late {FROM_THE_4TH}"),
            )
        };
        prepare(&mut session, &format!("SELECT n FROM {parent} WHERE snowflake_timestamp(id, 'snowflake') >= $1"));
        for _ in 0..2 {
            assert_prepared(&mut session, Some(&format!("{parent}_by_time")), parent);
            other.batch_execute(&leave).unwrap();
            // While the late child is detached, its rows are in another table.
            let replace = if inherits {
                format!("CREATE TABLE {parent}_copy () INHERITS ({parent})")
            } else {
                format!(
                    "CREATE TABLE {parent}_copy PARTITION OF {parent}
                     {FROM_THE_4TH}"
                )
            };
            other
                .batch_execute(&format!(
                    "{replace}; CREATE INDEX IF NOT EXISTS {parent}_copy_id ON {parent}_copy (id);
                     INSERT INTO {parent}_copy SELECT * FROM {parent}_late"
                ))
                .unwrap();
            assert_prepared(&mut session, None, parent);
            other.batch_execute(&format!("DROP TABLE {parent}_copy; {join}")).unwrap();
        }
    }
}

/// Before declarative partitioning, such constraints excluded children.
#[test]
fn tables_are_left_out_by_a_constraint_on_the_time_as_without_pushdown() {
    let database = Minutes::new();
    let mut session = database.connect();
    session
        .batch_execute(
            "CREATE TABLE parent (id bigint NOT NULL, n integer NOT NULL);
             CREATE TABLE early (CHECK (snowflake_timestamp(id, 'snowflake') < '2026-01-04Z')) INHERITS (parent);
             CREATE TABLE late (CHECK (snowflake_timestamp(id, 'snowflake') >= '2026-01-04Z')) INHERITS (parent);
             INSERT INTO early SELECT * FROM t WHERE id < snowflake_min('2026-01-04Z', 'snowflake');
             INSERT INTO late SELECT * FROM t WHERE id >= snowflake_min('2026-01-04Z', 'snowflake');
             CREATE INDEX ON parent (id); CREATE INDEX ON early (id); CREATE INDEX ON late (id);
             ANALYZE parent, early, late",
        )
        .unwrap();
    let query = "SELECT * FROM parent WHERE snowflake_timestamp(id, 'snowflake') >= '2026-01-05Z'";
    let without = without_pushdown(&mut session, |session| plan(session, query));
    assert!(!without.contains("early"), "{without}");
    let with = plan(&mut session, query);
    assert!(!with.contains("early"), "{with}");
    assert_same_rows(&mut session, query);
}

/// The bounds of declarative partitions decide which are left out. A constraint on the time only
/// guards the data.
#[test]
fn a_constraint_on_the_time_of_a_partition_leaves_the_pushdown_on() {
    let database = Minutes::new();
    let mut session = database.connect();
    make_family(&mut session, "whole", false);
    session.batch_execute("DROP INDEX whole_by_time").unwrap();
    let query = format!("SELECT n FROM whole WHERE snowflake_timestamp(id, 'snowflake') >= {LATE}");
    pushed(&mut session, &query);
    let constraint = "ADD CHECK (snowflake_timestamp(id, 'snowflake') < '2030-01-01Z')";
    session.batch_execute(&format!("ALTER TABLE whole {constraint}; ALTER TABLE t {constraint}")).unwrap();
    pushed(&mut session, &query);
    pushed(&mut session, &query.replace("whole", "t"));
}

#[test]
fn an_index_by_the_time_below_any_part_of_a_union_is_used_as_without_pushdown() {
    let database = Minutes::new();
    let mut session = database.connect();
    session
        .batch_execute(
            "CREATE TABLE u (id bigint PRIMARY KEY, n integer NOT NULL); INSERT INTO u SELECT * FROM t; ANALYZE u;
             CREATE VIEW both_of_them AS SELECT * FROM t UNION ALL SELECT * FROM u",
        )
        .unwrap();
    let query = format!("SELECT n FROM both_of_them WHERE snowflake_timestamp(id, 'snowflake') >= {LATE}");
    pushed(&mut session, &query);
    for table in ["t", "u"] {
        session.batch_execute(&format!("CREATE INDEX i ON {table} (snowflake_timestamp(id, 'snowflake'))")).unwrap();
        let plan = left_alone(&mut session, &query);
        assert!(plan.contains("Index Cond: (snowflake_timestamp(id, "), "{plan}");
        session.batch_execute("DROP INDEX i").unwrap();
        pushed(&mut session, &query);
    }
}

#[test]
fn a_partial_index_by_the_time_in_the_body_of_a_function_is_used_as_without_pushdown() {
    let database = Minutes::new();
    let mut session = database.connect();
    session
        .batch_execute(
            "CREATE FUNCTION time_of(bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS
                 $$SELECT public.snowflake_timestamp($1, 'snowflake')$$;
             CREATE INDEX i ON t (n) WHERE time_of(id) >= '2026-01-07 22:00Z';
             ALTER TABLE t DROP CONSTRAINT t_pkey",
        )
        .unwrap();
    let plan = left_alone(&mut session, &format!("SELECT n FROM t WHERE time_of(id) >= {LATE} AND n > 9990"));
    assert!(plan.contains(" i on t"), "{plan}");
}

#[test]
fn an_index_by_the_time_is_used_for_the_times_of_another_tables_ids() {
    let database = Minutes::new();
    let mut session = database.connect();
    session
        .batch_execute(
            "CREATE TABLE few AS SELECT * FROM t WHERE n < 5; ALTER TABLE few ADD PRIMARY KEY (id);
             CREATE INDEX i ON t (snowflake_timestamp(id, 'snowflake')); ANALYZE few, t",
        )
        .unwrap();
    for from in ["few JOIN t", "t JOIN few"] {
        for time in ["snowflake_timestamp(few.id)", "snowflake_timestamp(few.id, 'snowflake')"] {
            let of_t = "snowflake_timestamp(t.id, 'snowflake')";
            let on = format!("{of_t} >= {time} AND {of_t} <= {time} + interval '1 minute'");
            let plan = left_alone(&mut session, &format!("SELECT t.n FROM {from} ON {on}"));
            assert!(plan.contains("Index Cond: ((snowflake_timestamp(id, "), "{plan}");
        }
    }
}
