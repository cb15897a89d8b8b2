//! Dense values: one call of `snowflake_segment_next()` against `nextval()`, and eight clients that
//! draw against as many that select a constant, or call the cheapest function that PostgreSQL has.
//!
//! A statement that calls any function starts later than one with a constant: the executor looks up
//! the function, and its permission. So the bar is at that function.
//!
//! Leaf-segment serves about 50,000 values a second over RPC, with a 99.9th percentile of 1 ms
//! (Meituan, 2017: 4 cores, 8 GB).

use cluster::Fleet;
use cluster::Operated;

use crate::Failure;
use crate::calls;
use crate::figure::{Bar, Figure, Measured};
use crate::pgbench;
use crate::series::{Series, quantile};
use crate::servers;

const CLIENTS: usize = 8;

/// How long each of them runs in a run.
const SECONDS: u32 = 3;

/// The statement that is measured, and those that it is compared with.
const STATEMENTS: [&str; 3] = ["SELECT snowflake_segment_next('t')", "SELECT pg_backend_pid()", "SELECT 1"];

/// Measures all of it.
pub fn measure(runs: usize) -> Result<Measured, Failure> {
    let fleet = Fleet::start();
    fleet.operate(&["create-tag", "t"]);
    let server = servers::leasing(&fleet).start_with_extension();
    let mut session = server.connect();
    session.batch_execute("CREATE SEQUENCE cache_1")?;
    // Until the blocks are as large as they become.
    session.batch_execute("SELECT count(*) FROM snowflake_segment_batch('t', 20000000)")?;

    let mut measured = Measured::default();
    let called = ["snowflake_segment_next('t')", "nextval('cache_1')"];
    let series = calls::net(&server, &called, runs)?;
    let named = |number: usize, what: &str| Series { what: what.to_owned(), ..series[number].clone() };
    let (value, yardstick) = (named(0, "snowflake_segment_next()"), named(1, "nextval(), cache 1"));
    measured.figures.push(Figure::ratio(&value, &yardstick, Bar::AtMost(0.30)));
    if !pgbench::is_there(&server) {
        measured.left_out.push(format!("{CLIENTS} clients, {}: {}", STATEMENTS[0], pgbench::MISSING));
        return Ok(measured);
    }
    let (mut rates, mut times) = ([const { Vec::new() }; STATEMENTS.len()], [const { Vec::new() }; STATEMENTS.len()]);
    for run in 0..=runs {
        for turn in 0..STATEMENTS.len() {
            let statement = (run + turn) % STATEMENTS.len();
            let (rate, micros) = pgbench::rate_and_micros(&server, CLIENTS, SECONDS, STATEMENTS[statement])?;
            // An additional first run is discarded.
            if run > 0 {
                rates[statement].push(rate);
                times[statement].push(quantile(&micros, 0.999));
            }
        }
    }
    let mut compare = |unit: &'static str, values: &[Vec<f64>], what: &str, bar| {
        let series = |number: usize| {
            let name = format!("{CLIENTS} clients, {}{what}", STATEMENTS[number]);
            Series::new(name, unit, values[number].clone())
        };
        measured.figures.push(Figure::ratio(&series(0), &series(1), bar));
        measured.figures.push(Figure::ratio(&series(0), &series(2), Bar::None));
        measured.figures.push(Figure::ratio(&series(1), &series(2), Bar::None));
    };
    compare("/s", &rates, "", Bar::AtLeast(0.95));
    compare("us", &times, ", p99.9", Bar::AtMost(1.1));
    Ok(measured)
}
