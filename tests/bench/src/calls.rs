//! One call: `snowflake_next()` against `nextval()`, the clock, UUIDs, and a typical hand-written
//! function.
//!
//! The times are net: the time of the same statement with constants instead of the calls is
//! subtracted. The layout has 22 bits of sequence, which no session uses up in a millisecond. So
//! the figure is the call, not the wait for the clock.

use cluster::Server;

use crate::Failure;
use crate::figure::{Bar, Figure, Measured};
use crate::series::{Series, in_turn, least};
use crate::servers;
use crate::session::Measure;

const LAYOUT: &str = "time:41 sequence:22 unit:1ms epoch:2025-01-01T00:00:00Z";

/// Calls per row. A row from generate_series() takes as long as three calls of the fastest
/// function, and varies by as much as a call takes. Ten calls share that time and its variation.
const CALLS: u32 = 10;

/// Rows per statement, so few that most statements end before anything interrupts them.
const ROWS: u32 = 1000;

/// How often a run executes each statement. A run's value is the fastest execution, because other
/// load on the machine only adds time, and adds more to one statement than to another.
const REPEATS: usize = 25;

/// The objects that the yardsticks need. The function puts milliseconds (41 bits), a shard's number
/// (13) and a sequence (10) into 64 bits, as in Instagram's description of its ids.
pub const YARDSTICKS_NEED: &str = "
    CREATE SEQUENCE cache_1;
    CREATE SEQUENCE cache_100 CACHE 100;
    CREATE SEQUENCE shard_5_ids;
    CREATE FUNCTION next_of_shard_5() RETURNS bigint LANGUAGE plpgsql AS $$
    DECLARE
        since_2025 CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000) - 1735689600000;
    BEGIN
        RETURN since_2025 << 23 | 5 << 10 | nextval('shard_5_ids') % 1024;
    END $$";

/// The yardsticks, and how long a call of `snowflake_next()` may take compared with each.
const YARDSTICKS: [(&str, &str, Bar); 5] = [
    ("nextval(), cache 1", "nextval('cache_1')", Bar::AtMost(0.30)),
    ("nextval(), cache 100", "nextval('cache_100')", Bar::AtMost(0.70)),
    ("gen_random_uuid()", "gen_random_uuid()", Bar::AtMost(0.10)),
    ("uuidv7()", "uuidv7()", Bar::AtMost(0.10)),
    ("time, shard and nextval() in PL/pgSQL", "next_of_shard_5()", Bar::None),
];

/// The clock, which each call of `snowflake_next()` reads, and how many nanoseconds a call may take
/// longer. A ratio would depend on the machine, because some read their clocks much faster.
const CLOCK: (&str, Bar) = ("clock_timestamp()", Bar::AtMost(8.0));

/// Measures every call in each run.
pub fn measure(runs: usize) -> Result<Measured, Failure> {
    let server = servers::with_layout(LAYOUT).start_with_extension();
    let mut session = server.connect();
    session.batch_execute(YARDSTICKS_NEED)?;
    let mut measured = Measured::default();
    let mut yardsticks = YARDSTICKS.to_vec();
    if !session.has_uuidv7()? {
        yardsticks.retain(|(_, call, _)| *call != "uuidv7()");
        measured
            .left_out
            .push("snowflake_next() / uuidv7(): PostgreSQL has that function from version 18 on".to_owned());
    }

    let (clock, clock_bar) = CLOCK;
    let calls = yardsticks.iter().map(|(_, call, _)| *call);
    let calls: Vec<_> = ["snowflake_next()", clock].into_iter().chain(calls).collect();
    let times = Times::measure(&server, &calls, runs)?;
    let mut series = times.net().into_iter();
    let mut next_series = |what: &str| Series { what: what.to_owned(), ..series.next().expect("one for each call") };
    let (next, _) = (next_series("snowflake_next()"), next_series(clock));
    for (what, _, bar) in yardsticks {
        measured.figures.push(Figure::ratio(&next, &next_series(what), bar));
    }
    let [next, clock] = [(0, "snowflake_next()"), (1, clock)].map(|(call, what)| times.net_of_least(call, what));
    measured.figures.push(Figure::least_difference(&next, &clock, clock_bar));
    Ok(measured)
}

/// Measures calls, each net, in nanoseconds.
pub fn net(server: &Server, calls: &[&str], runs: usize) -> Result<Vec<Series>, Failure> {
    Ok(Times::measure(server, calls, runs)?.net())
}

/// How long statements take per call, in nanoseconds.
struct Times {
    /// The statement with constants.
    constant: Series,
    /// The statement of each call.
    calls: Vec<Series>,
}

impl Times {
    /// Measures the statements in turn. Each run has a new session, because the location of a
    /// backend's memory makes it a little faster or slower for its whole life.
    fn measure(server: &Server, calls: &[&str], runs: usize) -> Result<Self, Failure> {
        // Equal aggregates are computed once unless they are volatile, so the constants are not
        // equal.
        let constants: Vec<_> = (1..=CALLS).map(|number| number.to_string()).collect();
        let called = calls.iter().map(|call| vec![(*call).to_owned(); CALLS as usize]);
        let statement = |called: Vec<String>| {
            let counts: Vec<_> = called.iter().map(|call| format!("count({call})")).collect();
            format!("SELECT {} FROM generate_series(1, {ROWS})", counts.join(", "))
        };
        let statements: Vec<_> = [constants].into_iter().chain(called).map(statement).collect();

        let mut values = vec![Vec::with_capacity(runs); statements.len()];
        for _ in 0..runs {
            let mut session = server.connect();
            let times = in_turn(REPEATS, statements.len(), |number| session.execution_ms(&statements[number]))?;
            for (values, times) in values.iter_mut().zip(times) {
                values.push(least(&times) * 1e6 / f64::from(ROWS * CALLS));
            }
        }
        let mut series = values.into_iter().map(|values| Series::new("", "ns net", values));
        let constant = series.next().expect("the constants come first");
        Ok(Self { constant, calls: series.collect() })
    }

    /// Subtracts the constants run by run.
    fn net(&self) -> Vec<Series> {
        self.calls.iter().map(|call| call.less(&self.constant)).collect()
    }

    /// Subtracts the least run of the constants from each run of a call. So the least run is the
    /// one in which the call was fastest, and not one in which the constants were slow.
    fn net_of_least(&self, call: usize, what: &str) -> Series {
        let Series { unit, ref values, .. } = self.calls[call];
        let constant = Series::constant("", unit, least(&self.constant.values), values.len());
        Series { what: what.to_owned(), ..self.calls[call].less(&constant) }
    }
}
