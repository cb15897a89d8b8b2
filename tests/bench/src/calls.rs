//! One call: `snowflake_next()` against `nextval()`, the clock and UUIDs.
//!
//! Net, that is less what the same statement takes with a constant in the place of the call. With 22 bits of sequence, of which
//! no session uses up a millisecond's: what is measured is the call, not the wait for the clock.

use postgres::Error;

use crate::figure::{Bar, Figure};
use crate::series::{Series, in_turn, median};
use crate::servers;
use crate::session::Measure;

const LAYOUT: &str = "time:41 sequence:22 unit:1ms epoch:2025-01-01T00:00:00Z";

/// Calls per statement: few enough for a statement to stay in memory that the server has already.
const CALLS: u32 = 100_000;

/// How often a run executes each statement; its value is their median.
const REPEATS: usize = 5;

/// The yardsticks, and what a call of `snowflake_next()` may take in their terms.
const YARDSTICKS: [(&str, &str, f64); 5] = [
    ("clock_timestamp()", "clock_timestamp()", 1.6),
    ("nextval(), cache 1", "nextval('cache_1')", 0.30),
    ("nextval(), cache 100", "nextval('cache_100')", 0.70),
    ("gen_random_uuid()", "gen_random_uuid()", 0.10),
    ("uuidv7()", "uuidv7()", 0.10),
];

/// Measures every call in each run.
pub fn measure(runs: usize) -> Result<Vec<Figure>, Error> {
    let server = servers::with_layout(LAYOUT).start_with_extension();
    let mut session = server.connect();
    session.batch_execute("CREATE SEQUENCE cache_1; CREATE SEQUENCE cache_100 CACHE 100")?;
    let has_uuidv7: bool = session.query_one("SELECT to_regprocedure('uuidv7()') IS NOT NULL", &[])?.get(0);

    let mut yardsticks = YARDSTICKS.to_vec();
    yardsticks.retain(|(_, call, _)| has_uuidv7 || *call != "uuidv7()");
    let called: Vec<_> =
        ["1", "snowflake_next()"].into_iter().chain(yardsticks.iter().map(|(_, call, _)| *call)).collect();

    let values = in_turn(runs * REPEATS, called.len(), |number| {
        let sql = format!("SELECT count({}) FROM generate_series(1, {CALLS})", called[number]);
        Ok::<_, Error>(session.execution_ms(&sql)? * 1e6 / f64::from(CALLS))
    })?;
    let mut series =
        values.iter().map(|values| Series::new("", "ns net", values.chunks(REPEATS).map(median).collect()));
    let mut next_series = |what: &str| Series { what: what.to_owned(), ..series.next().expect("one for each call") };
    let constant = next_series("1");
    let next = next_series("snowflake_next()").less(&constant);
    let compare =
        |(what, _, bar): &(&str, _, f64)| Figure::ratio(&next, &next_series(what).less(&constant), Bar::AtMost(*bar));
    Ok(yardsticks.iter().map(compare).collect())
}
