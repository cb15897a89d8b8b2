//! Public ids: a call of `snowflake_conceal()` and one of `snowflake_reveal()`, beside an id as a
//! short text and a random UUID.
//!
//! The times are net: the time of the same statement that only reads the rows is subtracted. Each
//! row has another id, and the texts that are read were written before.

use crate::Failure;
use crate::figure::{Bar, Figure, Measured};
use crate::series::{Series, in_turn, least};
use crate::servers;
use crate::session::Measure;

/// How often a run executes each statement, of which the fastest counts.
const REPEATS: usize = 10;

const ROWS: u32 = 25_000;

/// The most nanoseconds that a call may take.
const BAR: Bar = Bar::AtMost(150.0);

const CALLS: [(&str, &str); 5] = [
    ("a row", "count(id), count(token), count(short)"),
    ("snowflake_conceal()", "count(snowflake_conceal(id, 'ord')), count(token), count(short)"),
    ("snowflake_reveal()", "count(id), count(snowflake_reveal(token, 'ord')), count(short)"),
    ("snowflake_encode()", "count(snowflake_encode(id, 'base32')), count(token), count(short)"),
    ("gen_random_uuid()", "count(gen_random_uuid()), count(token), count(short)"),
];

/// Measures all of them in each run.
pub fn measure(runs: usize) -> Result<Measured, Failure> {
    let server = servers::drawing().start_with_extension();
    let mut session = server.connect();
    session.batch_execute(&format!(
        "SELECT snowflake_new_public_key();
         CREATE TABLE ids AS SELECT id, snowflake_conceal(id, 'ord') AS token, snowflake_encode(id, 'base32') AS short
             FROM (SELECT snowflake_next() AS id FROM generate_series(1, {ROWS})) n"
    ))?;
    session.batch_execute("VACUUM ANALYZE ids")?;
    let mut values = vec![Vec::with_capacity(runs); CALLS.len()];
    for _ in 0..runs {
        let mut session = server.connect();
        let times = in_turn(REPEATS, CALLS.len(), |number| {
            session.execution_ms(&format!("SELECT {} FROM ids", CALLS[number].1))
        })?;
        for (values, times) in values.iter_mut().zip(times) {
            values.push(least(&times) * 1e6 / f64::from(ROWS));
        }
    }
    let series: Vec<_> =
        CALLS.iter().zip(values).map(|((what, _), values)| Series::new(*what, "ns net", values)).collect();
    let net = |number: usize| Series { what: CALLS[number].0.to_owned(), ..series[number].less(&series[0]) };
    let mut measured = Measured::default();
    for number in [1, 2] {
        measured.figures.push(Figure::alone(&net(number), BAR));
        for other in [3, 4] {
            measured.figures.push(Figure::ratio(&net(number), &net(other), Bar::None));
        }
    }
    Ok(measured)
}
