//! The rows of one day in ninety: by the id's time, and by a separate indexed column.

use postgres::{Client, Error};

use crate::figure::{Bar, Figure};
use crate::series::{Series, in_turn};
use crate::servers;
use crate::session::Measure;

/// Five million rows, spread evenly over the ninety days before today.
const TABLE: &str = "
    CREATE TABLE readings (id bigint NOT NULL, created_at timestamptz NOT NULL, n int);
    INSERT INTO readings
    SELECT snowflake_compose(t, 5, n % 4096), t, n
    FROM (SELECT n, date_trunc('day', now()) - interval '90 days'
                    + n * 1.5552 * interval '1 millisecond' * 1000 AS at
          FROM generate_series(0, 4999999) n) s, date_trunc('milliseconds', at) t;
    ALTER TABLE readings ADD PRIMARY KEY (id);
    CREATE INDEX ON readings (created_at);
    VACUUM (ANALYZE) readings";

/// Measures a day that is named in the statement, and one that depends on the clock.
pub fn measure(runs: usize) -> Result<Vec<Figure>, Error> {
    let server = servers::drawing().start_with_extension();
    let mut session = server.connect();
    for statement in TABLE.split(';') {
        session.batch_execute(statement)?;
    }
    let mut literal = |days: u32| {
        let sql = format!("SELECT (date_trunc('day', now()) - interval '{days} days')::text");
        Ok::<_, Error>(format!("timestamptz '{}'", session.query_one(&sql, &[])?.get::<_, String>(0)))
    };
    let (from, to) = (literal(41)?, literal(40)?);
    let mut figures = compare(&mut session, runs, "one day", &from, &to)?;
    let (from, to) = ("now() - interval '41 days'", "now() - interval '40 days'");
    figures.extend(compare(&mut session, runs, "one day before now()", from, to)?);
    Ok(figures)
}

/// Counts the rows of an interval both ways.
fn compare(session: &mut Client, runs: usize, what: &str, from: &str, to: &str) -> Result<Vec<Figure>, Error> {
    let statement = |time: &str| format!("SELECT count(*) FROM readings WHERE {time} >= {from} AND {time} < {to}");
    let statements = [statement("snowflake_timestamp(id)"), statement("created_at")];
    let mut values = in_turn(runs, 2, |number| session.execution_ms(&statements[number]))?.into_iter();
    let mut series = |what: String| Series::new(what, "ms", values.next().expect("one for each statement"));
    let by_id = series(format!("{what} by snowflake_timestamp(id)"));
    let by_column = series("by created_at".to_owned());

    let (estimated, actual) = session.estimated_and_actual_rows(&statements[0])?;
    let estimated = Series::new(format!("{what} by snowflake_timestamp(id): estimated"), "rows", vec![estimated]);
    let actual = Series::new("actual rows", "rows", vec![actual]);
    Ok(vec![Figure::ratio(&by_id, &by_column, Bar::AtMost(1.1)), Figure::ratio(&estimated, &actual, Bar::Factor(1.5))])
}
