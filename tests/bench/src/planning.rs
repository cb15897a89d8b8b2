//! The cost of the planner hook: nothing for statements without the extension's functions, a little
//! for those that use an id's time.

use postgres::{Client, Error};

use crate::figure::{Bar, Figure};
use crate::series::{Series, in_turn, least};
use crate::servers;

/// How often a run plans a statement, in one call to the server, because caches cool down at random
/// between two messages of a client. A run's value is the mean, because the server reports whole
/// microseconds.
const PLAN: &str = "
    CREATE FUNCTION planning_us(statement text, times integer) RETURNS double precision LANGUAGE plpgsql AS $$
    DECLARE
        plan json;
        sum_ms double precision := 0;
    BEGIN
        FOR n IN 1..times LOOP
            EXECUTE 'EXPLAIN (SUMMARY, FORMAT JSON) ' || statement INTO plan;
            sum_ms := sum_ms + (plan->0->>'Planning Time')::double precision;
        END LOOP;
        RETURN sum_ms * 1000 / times;
    END $$";

const TABLE: &str = "
    CREATE TABLE readings (id bigint PRIMARY KEY, n int, name text);
    INSERT INTO readings SELECT n::bigint << 22, n % 100, 'x' FROM generate_series(1, 20000) n;
    ANALYZE readings";

/// Statements without any function of the extension.
const OTHERS: [(&str, &str); 2] = [
    ("planning a scan", "SELECT * FROM readings WHERE n = 1 AND id > 500 AND name = 'x'"),
    (
        "planning three joined",
        "SELECT a.* FROM readings a JOIN readings b USING (id) LEFT JOIN readings c ON c.id = a.id AND c.n > 3
         WHERE a.n = 1 AND b.id > 500 AND (b.n = 3 OR b.n = 4 OR c.name = 'x') AND a.id BETWEEN 5 AND 500000",
    ),
];

/// Statements with conditions on an id's time.
const PUSHED: [(&str, &str); 2] = [
    ("planning with a time", "SELECT * FROM readings WHERE snowflake_timestamp(id) >= '2025-01-01 00:00:01Z'"),
    (
        "planning with now()",
        "SELECT * FROM readings WHERE snowflake_timestamp(id) BETWEEN now() - interval '1 day' AND now()",
    ),
];

/// How many conditions on the time are planned, and as many on the id.
const MANY: [usize; 2] = [400, 4000];

/// Statements with many conditions on an id's time, and those with the same on the id.
fn many_pushed(count: usize) -> [(String, [String; 2]); 3] {
    let many = |word: &str, condition: &dyn Fn(usize) -> String| {
        let conditions = (0..count).map(condition).collect::<Vec<_>>().join(word);
        format!("SELECT * FROM readings WHERE {conditions}")
    };
    // The same instants, among those of the table's ids.
    let time = |n: usize| format!("'2025-01-01 00:00:{:02}.{:03}Z'", n / 1000, n % 1000);
    let ids = |n: usize| (n as i64) << 22;
    let side = |n: usize| [">=", "<="][n % 2];
    let bound = |n: usize| format!("id {} {}", side(n), ids(n) + [0, 4_194_303][n % 2]);
    [
        (
            format!("planning {count} times with AND"),
            [many(" AND ", &|n| format!("snowflake_timestamp(id) {} {}", side(n), time(n))), many(" AND ", &bound)],
        ),
        (
            format!("planning {count} equal times with OR"),
            [
                many(" OR ", &|n| format!("snowflake_timestamp(id) = {}", time(n))),
                many(" OR ", &|n| format!("(id >= {} AND id <= {})", ids(n), ids(n) + 4_194_303)),
            ],
        ),
        (
            format!("planning {count} times with OR"),
            [many(" OR ", &|n| format!("snowflake_timestamp(id) {} {}", side(n), time(n))), many(" OR ", &bound)],
        ),
    ]
}

/// Compares a server with the library and one without it, then the pushdown switched on and off,
/// and then many conditions on the time with as many on the id.
pub fn measure(runs: usize) -> Result<Vec<Figure>, Error> {
    let servers = [servers::drawing().start_with_extension(), servers::without_library().start()];
    for server in &servers {
        let mut session = server.connect();
        session.batch_execute(TABLE)?;
        session.batch_execute(PLAN)?;
    }
    let mut figures = Vec::new();
    for (what, sql) in OTHERS {
        let [with, without] = plans(runs, |number| Ok(servers[number].connect()), sql)?;
        let with = Series::new(format!("{what}, with the library"), "us", with);
        figures.push(Figure::ratio(&with, &Series::new("without", "us", without), Bar::AtMostOrSpread(1.02)));
    }
    for (what, sql) in PUSHED {
        let connect = |number: usize| {
            let mut session = servers[0].connect();
            session.batch_execute(&format!("SET snowflake_id.enable_time_pushdown = {}", number == 0))?;
            Ok(session)
        };
        let [on, off] = plans(runs, connect, sql)?;
        let on = Series::new(format!("{what}, pushdown on"), "us", on);
        figures.push(Figure::difference(&on, &Series::new("off", "us", off), Bar::AtMost(30.0)));
    }
    for (what, [time, id]) in MANY.into_iter().flat_map(many_pushed) {
        let [times, ids] = plans_of(runs, |_| Ok(servers[0].connect()), [&time, &id])?;
        let times = Series::new(what, "us", times);
        figures.push(Figure::ratio(&times, &Series::new("of the id", "us", ids), Bar::AtMost(1.2)));
    }
    Ok(figures)
}

/// The number of sessions of each kind in a run, whose value is that of the fastest. The location
/// of a backend's memory and code can make it slower by a third and more for its whole life.
const SESSIONS: usize = 10;

/// Plans a statement in two kinds of sessions in turn.
fn plans(runs: usize, connect: impl Fn(usize) -> Result<Client, Error>, sql: &str) -> Result<[Vec<f64>; 2], Error> {
    plans_of(runs, connect, [sql; 2])
}

/// Plans a statement of each kind of session.
fn plans_of(
    runs: usize,
    connect: impl Fn(usize) -> Result<Client, Error>,
    statements: [&str; 2],
) -> Result<[Vec<f64>; 2], Error> {
    // About as long with a long statement as with a short one. A session's memory is warm after a
    // few: 4,000 conditions take 8,200 page faults the second time, and 1,700 from the fourth on.
    let times = (400_000 / statements[0].len() as i32).clamp(5, 50);
    let values = in_turn(runs * SESSIONS, 2, |number| {
        let mut session = connect(number)?;
        let mut plan = || {
            session
                .query_one("SELECT planning_us($1, $2)", &[&statements[number], &times])
                .map(|row| row.get::<_, f64>(0))
        };
        // Fills the session's caches.
        plan()?;
        plan()
    })?;
    Ok([0, 1].map(|number: usize| values[number].chunks(SESSIONS).map(least).collect()))
}
