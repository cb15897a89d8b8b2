//! A million rows into a table: a snowflake id, a `bigserial` and a random UUID as the default of
//! the primary key.

use postgres::Error;

use crate::figure::{Bar, Figure};
use crate::series::{Series, in_turn};
use crate::servers;
use crate::session::Measure;

/// The tables, and the column that is their primary key.
const TABLES: [(&str, &str); 3] = [
    ("snowflake", "bigint DEFAULT snowflake_next()"),
    ("bigserial", "bigserial"),
    ("uuid", "uuid DEFAULT gen_random_uuid()"),
];

/// Fills the emptied tables in each run, each after a checkpoint, so that no table has to write
/// another's pages.
pub fn measure(runs: usize) -> Result<Vec<Figure>, Error> {
    let server = servers::drawing().start_with_extension();
    let mut session = server.connect();
    for (table, key) in TABLES {
        session.batch_execute(&format!("CREATE TABLE {table} (id {key} PRIMARY KEY, n int)"))?;
    }
    let values = in_turn(runs, TABLES.len(), |number| {
        let (table, _) = TABLES[number];
        session.batch_execute(&format!("TRUNCATE {table}"))?;
        session.batch_execute("CHECKPOINT")?;
        session.execution_ms(&format!("INSERT INTO {table} (n) SELECT n FROM generate_series(1, 1000000) n"))
    })?;
    let series = |number: usize, what: &str| Series::new(what, "ms", values[number].clone());
    let snowflake = series(0, "1M rows, snowflake id");

    let mut size = |table: &str, what: &str| {
        let sql = format!("SELECT pg_relation_size('{table}_pkey')::double precision");
        Ok::<_, Error>(Series::new(what, "bytes", vec![session.number(&sql)?]))
    };
    Ok(vec![
        Figure::ratio(&snowflake, &series(1, "bigserial"), Bar::AtMost(0.95)),
        Figure::ratio(&snowflake, &series(2, "random UUID"), Bar::AtMost(0.45)),
        Figure::ratio(
            &size("snowflake", "primary key of 1M snowflake ids")?,
            &size("bigserial", "bigserial")?,
            Bar::Exactly(1.0),
        ),
    ])
}
