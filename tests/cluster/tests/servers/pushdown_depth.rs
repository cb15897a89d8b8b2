//! Queries nested so deeply that PostgreSQL's stack runs out, or nearly. With the time pushdown
//! they end as without the library, in rows or in an error, and the server goes on.

use std::fmt::Write;

use cluster::plans::rows;
use cluster::{Draw, Server, refused};
use postgres::Client;

/// The conditions at the bottom of the nesting: without the extension, or on an id's time.
const LEAVES: [&str; 3] = [
    "n > 0",
    "snowflake_timestamp(id) >= '2026-01-01 00:05Z'",
    "now() > (snowflake_parse(id, 'snowflake')).created_at",
];

/// Nests `middle` between `depth` repetitions of the text before and after it.
fn nested(before: &str, middle: &str, after: &str, depth: usize) -> String {
    format!("{}{middle}{}", before.repeat(depth), after.repeat(depth))
}

/// A join of `depth` tables, with the condition on the first, on the last, or on each.
fn chain(join: &str, tables: usize, condition: &str, is_on: fn(usize, usize) -> bool) -> String {
    let mut query = "SELECT count(*) FROM t t0".to_owned();
    let mut conditions = "true".to_owned();
    for table in 1..tables {
        write!(query, " {join} t t{table} ON t{table}.id = t{}.id", table - 1).unwrap();
    }
    for table in (0..tables).filter(|&table| is_on(table, tables)) {
        write!(
            conditions,
            " AND {}",
            condition.replace("(id", &format!("(t{table}.id")).replace("n >", &format!("t{table}.n >"))
        )
        .unwrap();
    }
    format!("{query} WHERE {conditions}")
}

/// Queries of one depth around one condition. Queries that grow faster than the depth are nested
/// less deeply.
fn queries(depth: usize, leaf: &str) -> Vec<String> {
    let select = |condition: String| format!("SELECT count(*) FROM t WHERE {condition}");
    let both = |condition: String| format!("SELECT count(*) FROM t WHERE {leaf} AND {condition}");
    let late = |bound: String| format!("SELECT count(*) FROM t WHERE snowflake_timestamp(id) >= {bound}");
    let (some, few) = (depth.min(3000), depth.min(3000) / 20);
    vec![
        both(format!("{} > 0", nested("(", "id", " + 1)", depth))),
        both(format!("{} > 0", nested("(1 + ", "id", ")", depth))),
        both(format!("{} > 0", nested("abs(", "id", ")", depth))),
        both(format!("{} > 0", nested("CASE WHEN n > 3 THEN ", "id", " ELSE 1 END", depth))),
        select(nested("(", leaf, ")", depth)),
        select(nested("NOT (", leaf, ")", depth)),
        select(nested("(n < 5 OR (n > 2 AND ", leaf, "))", depth / 2)),
        select(nested(&format!("({leaf} OR ({leaf} AND "), leaf, "))", depth / 2)),
        select(nested("", leaf, &format!(" AND {leaf}"), some)),
        select(nested("", leaf, &format!(" OR {leaf}"), some)),
        select(nested("coalesce(", leaf, ", true)", depth)),
        late(nested("(", "'2026-01-01 00:05Z'::timestamptz", " + interval '1us')", depth)),
        late(nested("(", "now()", " - interval '1 day')", depth)),
        late(nested("coalesce(NULL, ", "now() - interval '1 year'", ")", depth)),
        late(nested("(SELECT ", "now() - interval '1 year'", ")", few)),
        select(nested("n >= (SELECT min(n) FROM t WHERE ", leaf, ")", few)),
        select(nested("id IN (SELECT id FROM t WHERE ", leaf, " OFFSET 0)", few)),
        select(nested("EXISTS (SELECT FROM t WHERE ", leaf, ")", few / 10)),
        format!("SELECT count(*) FROM {} WHERE {leaf}", nested("(SELECT * FROM ", "t", " WHERE n >= 0) s", few)),
        format!("SELECT count(*) FROM {}", nested("(SELECT * FROM ", "t", &format!(" WHERE {leaf}) s"), few)),
        format!("SELECT count(*) FROM {} WHERE {leaf}", nested("(SELECT * FROM ", "t", " OFFSET 0) s", few)),
        nested("", &select(leaf.to_owned()), &format!(" UNION ALL {}", select(leaf.to_owned())), few),
        format!(
            "WITH RECURSIVE r AS (SELECT * FROM t WHERE {leaf} UNION {}) SELECT count(*) FROM r",
            nested("(", &format!("SELECT * FROM t WHERE {leaf}"), ")", depth)
        ),
    ]
}

/// A server with ten rows, with the library preloaded or not.
fn start(is_preloaded: bool) -> Server {
    let builder = if is_preloaded { Server::builder() } else { Server::builder().without_preload() };
    let server = builder.start_with_extension();
    server
        .connect()
        .batch_execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, n integer NOT NULL);
             INSERT INTO t
             SELECT snowflake_compose('2026-01-01Z'::timestamptz + n * interval '1 minute', 1, 0, 0, 'snowflake'), n
             FROM generate_series(0, 9) n;
             ANALYZE t",
        )
        .unwrap();
    server
}

/// A server with the library and one without, and how many queries returned rows or errors.
struct Both {
    with: Server,
    without: Server,
    sessions: [Client; 2],
    /// Whether the stack may be just large enough.
    is_at_the_limit: bool,
    /// How often the server with the library returned rows, while the other ran out of stack.
    saved: usize,
    rows: usize,
    errors: usize,
}

impl Both {
    fn start() -> Self {
        let (with, without) = (start(true), start(false));
        let sessions = [with.connect(), without.connect()];
        Self { with, without, sessions, is_at_the_limit: false, saved: 0, rows: 0, errors: 0 }
    }

    fn set(&mut self, setting: &str) {
        self.sessions.iter_mut().for_each(|session| session.batch_execute(setting).unwrap());
    }

    /// Asserts that both servers return the same.
    #[track_caller]
    fn compare(&mut self, query: &str, case: &str) {
        let outcome = |session: &mut Client| match rows(session, query) {
            Ok(rows) => Ok(rows),
            Err(error) => Err(refused::<()>(Err(error))),
        };
        let [with, without] = self.sessions.each_mut().map(outcome);
        // Rewritten conditions are shorter and need less stack, never more.
        if with.is_ok() && self.is_at_the_limit && without.as_ref().is_err_and(|refusal| refusal.sqlstate == "54001") {
            assert!(query.contains("snowflake_"), "{case}: not an error, without a time in the query");
            self.saved += 1;
            return;
        }
        assert_eq!(with, without, "{case}: {}", &query[..query.len().min(200)]);
        match with {
            Ok(_) => self.rows += 1,
            Err(_) => self.errors += 1,
        }
    }

    /// Asserts that no process of either server has died.
    fn assert_alive(mut self) {
        for (server, session) in [&self.with, &self.without].into_iter().zip(&mut self.sessions) {
            assert_eq!(
                session.value("SELECT count(*) FROM t WHERE snowflake_timestamp(id) >= '2026-01-01 00:05Z'"),
                "5"
            );
            assert!(!server.log().contains("terminated by signal"), "{}", server.log());
        }
    }
}

#[test]
fn deep_queries_end_as_without_the_library() {
    let mut both = Both::start();
    for depth in [300, 3000, 20_000] {
        for leaf in LEAVES {
            for (number, query) in queries(depth, leaf).iter().enumerate() {
                both.compare(query, &format!("query {number}, {depth} deep, around {leaf}"));
            }
        }
    }
    assert!(both.rows > 100 && both.errors > 20, "{} gave rows, {} errors", both.rows, both.errors);
    both.assert_alive();
}

#[test]
fn long_chains_of_joins_end_as_without_the_library() {
    let mut both = Both::start();
    both.set("SET join_collapse_limit = 1; SET from_collapse_limit = 1; SET geqo = off");
    for tables in [10, 100] {
        for leaf in LEAVES {
            for (join, is_on) in [
                ("JOIN", (|table, _| table == 0) as fn(usize, usize) -> bool),
                ("JOIN", |table, tables| table == tables - 1),
                ("LEFT JOIN", |_, _| true),
                ("FULL JOIN", |table, _| table % 2 == 1),
            ] {
                let query = chain(join, tables, leaf, is_on);
                both.compare(&query, &format!("{tables} tables, {join}, {leaf}"));
            }
        }
    }
    both.assert_alive();
}

#[test]
fn with_the_smallest_stack_queries_end_as_without_the_library() {
    let mut both = Both::start();
    both.set("SET max_stack_depth = '100kB'");
    both.is_at_the_limit = true;
    for depth in (20..=600).step_by(20) {
        for leaf in LEAVES {
            for (number, query) in queries(depth, leaf).iter().enumerate() {
                both.compare(query, &format!("query {number}, {depth} deep, around {leaf}"));
            }
        }
        both.compare(&chain("JOIN", depth / 20, LEAVES[1], |_, _| true), "a join");
    }
    assert!(both.rows > 100 && both.errors > 100, "{} gave rows, {} errors", both.rows, both.errors);
    assert!(both.saved < 50, "{} were saved", both.saved);
    both.set("RESET max_stack_depth");
    both.assert_alive();
}
