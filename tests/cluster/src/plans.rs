//! Plans and rows of a statement, with the time pushdown and without it.
//!
//! A plan is text as `EXPLAIN (COSTS off)` prints it. A rewritten condition no longer names the
//! function that reads the time ([`is_pushed`]). A condition that was left alone gives the same
//! plan as without pushdown ([`left_alone`]).

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use postgres::{Client, Error, SimpleQueryMessage};

use crate::server::{Builder, Server};

/// Returns the plan of a statement, line by line.
///
/// # Panics
///
/// Panics if the server refuses to plan it.
#[must_use]
#[track_caller]
pub fn plan(session: &mut Client, statement: &str) -> String {
    explain(session, "COSTS off", statement)
}

/// Returns what `EXPLAIN` prints with these options.
///
/// # Panics
///
/// Panics if the server refuses.
#[must_use]
#[track_caller]
pub fn explain(session: &mut Client, options: &str, statement: &str) -> String {
    match rows(session, &format!("EXPLAIN ({options}) {statement}")) {
        Ok(lines) => lines.join("\n"),
        Err(error) => panic!("{statement}: {error:?}"),
    }
}

/// Returns the rows of a statement in the order in which they come, each as the text of its
/// columns.
///
/// It uses the simple protocol, so that any statement can run, also `EXECUTE`, and is planned as it
/// is.
///
/// # Errors
///
/// Whatever the server says.
pub fn rows(session: &mut Client, statement: &str) -> Result<Vec<String>, Error> {
    let messages = session.simple_query(statement)?;
    let texts = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let columns: Vec<&str> = (0..row.len()).map(|column| row.get(column).unwrap_or("NULL")).collect();
            Some(columns.join("|"))
        }
        _ => None,
    });
    Ok(texts.collect())
}

/// Runs `action` without pushdown, and then switches it on again.
///
/// # Panics
///
/// Panics if the library is not preloaded.
#[track_caller]
pub fn without_pushdown<T>(session: &mut Client, action: impl FnOnce(&mut Client) -> T) -> T {
    session.batch_execute("SET snowflake_id.enable_time_pushdown = off").expect("the setting is there");
    let result = action(session);
    session.batch_execute("SET snowflake_id.enable_time_pushdown = on").expect("the transaction goes on");
    result
}

/// Returns whether nothing in a plan reads the time of an id any more.
#[must_use]
pub fn is_pushed(plan: &str) -> bool {
    !plan.contains("snowflake_timestamp(") && !plan.contains("snowflake_parse(")
}

/// Asserts that a query is rewritten, that an index finds its ids, and that its rows are the same
/// as without pushdown. Returns the plan.
///
/// # Panics
///
/// Panics if not.
#[track_caller]
pub fn pushed(session: &mut Client, query: &str) -> String {
    let without = without_pushdown(session, |session| plan(session, query));
    assert!(!is_pushed(&without), "{query}: nothing to be rewritten in\n{without}");
    let with = plan(session, query);
    assert!(is_pushed(&with) && with.contains("Index Cond: ("), "{query}: not rewritten:\n{with}");
    assert_same_rows(session, query);
    with
}

/// Asserts that a query is planned as without pushdown, and gives the same rows. Returns the plan.
///
/// # Panics
///
/// Panics if not.
#[track_caller]
pub fn left_alone(session: &mut Client, query: &str) -> String {
    let without = without_pushdown(session, |session| plan(session, query));
    let with = plan(session, query);
    assert_eq!(with, without, "{query}: rewritten");
    assert_same_rows(session, query);
    with
}

/// Asserts that a query gives the same rows with pushdown and without, in any order.
///
/// # Panics
///
/// Panics if not, or if the server refuses.
#[track_caller]
pub fn assert_same_rows(session: &mut Client, query: &str) {
    let sorted = |session: &mut Client| {
        rows(session, query).map(|mut rows| {
            rows.sort();
            rows
        })
    };
    let with = sorted(session).unwrap_or_else(|error| panic!("{query}: {error:?}"));
    let without = without_pushdown(session, sorted).unwrap_or_else(|error| panic!("{query}, without: {error:?}"));
    assert_eq!(with, without, "{query}");
}

/// Statements that create a table `t` with an id of the layout `snowflake` for each minute from
/// 2026-01-01 on. It has 10,000 rows, numbered in column `n`.
pub const MINUTES: &str = "
    CREATE TABLE t (id bigint PRIMARY KEY, n integer NOT NULL);
    INSERT INTO t SELECT snowflake_compose('2026-01-01Z'::timestamptz + n * interval '1 minute', 1, 0, 0, 'snowflake'), n
    FROM generate_series(0, 9999) n;
    ANALYZE t";

/// The last 40 minutes of [`MINUTES`], as a literal.
pub const LATE: &str = "'2026-01-07 22:00Z'";

/// The ways to read the time of an id of [`MINUTES`].
pub const TIMES: [&str; 4] =
    ["snowflake_timestamp(id)", IMMUTABLE_TIMES[0], "(snowflake_parse(id)).created_at", IMMUTABLE_TIMES[1]];

/// Those of [`TIMES`] that an index or a partition key can use, because they are immutable with a
/// layout.
pub const IMMUTABLE_TIMES: [&str; 2] =
    ["snowflake_timestamp(id, 'snowflake')", "(snowflake_parse(id, 'snowflake')).created_at"];

impl Builder {
    /// Starts a server with the extension and the table of [`MINUTES`]. Its planner takes an index
    /// wherever there is one.
    #[must_use]
    #[track_caller]
    pub fn start_with_minutes(self) -> Server {
        let server = self.config("enable_seqscan", "off").start_with_extension();
        server.connect().batch_execute(MINUTES).expect("the database is new");
        server
    }
}

/// A database with the table of [`MINUTES`], on a server that all tests of these share, because a
/// start takes longer than most of them.
///
/// A role belongs to the whole server, so each test names its own.
pub struct Minutes {
    server: &'static Server,
    name: String,
}

impl Minutes {
    /// Makes a database.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start or refuses.
    #[must_use]
    #[track_caller]
    #[expect(clippy::new_without_default, reason = "it makes a database")]
    pub fn new() -> Self {
        // A static is never dropped; the harness's reaper stops the server when the process has
        // ended.
        static SERVER: LazyLock<Server> = LazyLock::new(|| {
            let server = Server::builder().config("enable_seqscan", "off").start();
            server.connect().batch_execute("CREATE DATABASE minutes").expect("the server is new");
            let sql = format!("CREATE EXTENSION snowflake_id; {MINUTES}");
            server.connect_to("minutes").batch_execute(&sql).expect("the database is new");
            server
        });
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: only the number itself matters.
        let name = format!("minutes_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let make = format!("CREATE DATABASE {name} TEMPLATE minutes");
        SERVER.connect().batch_execute(&make).expect("nobody uses the template");
        Self { server: &SERVER, name }
    }

    /// Connects as the superuser.
    #[must_use]
    #[track_caller]
    pub fn connect(&self) -> Client {
        self.server.connect_to(&self.name)
    }
}
