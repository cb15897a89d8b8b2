//! Sixty-four clients that do nothing but draw, against as many that ask for a constant: whether
//! drawing is in anybody's way.
//!
//! Not all of the difference is the draw's: any function in the place of the constant has the
//! server look up who may execute it.

use crate::Failure;
use crate::figure::{Bar, Figure, Measured};
use crate::pgbench;
use crate::series::{Series, in_turn};
use crate::servers;

const CLIENTS: usize = 64;

/// How long a run lets each of them run: long enough for what each session does at its first
/// statement not to count.
const SECONDS: u32 = 3;

/// What is measured, and what it is compared with.
const DRAW: &str = "SELECT snowflake_next()";
const YARDSTICKS: [(&str, Bar); 2] = [("SELECT 1", Bar::AtLeast(0.97)), ("SELECT nextval('ids')", Bar::None)];

/// Measures statements per second, each in every run.
pub fn measure(runs: usize) -> Result<Measured, Failure> {
    let server = servers::drawing().start_with_extension();
    let what = format!("{CLIENTS} clients, {DRAW}");
    if !pgbench::is_there(&server) {
        return Ok(Measured::left_out(&what, pgbench::MISSING));
    }
    server.connect().batch_execute("CREATE SEQUENCE ids")?;
    let statements: Vec<_> = [DRAW].into_iter().chain(YARDSTICKS.iter().map(|(statement, _)| *statement)).collect();
    let values =
        in_turn(runs, statements.len(), |number| pgbench::per_second(&server, CLIENTS, SECONDS, statements[number]))?;
    let mut series = values.into_iter().map(|values| Series::new("", "/s", values));
    let mut next_series =
        |what: &str| Series { what: what.to_owned(), ..series.next().expect("one for each statement") };
    let draw = next_series(&what);
    let compare = |(what, bar): (&str, Bar)| Figure::ratio(&draw, &next_series(what), bar);
    Ok(YARDSTICKS.map(compare).into_iter().collect::<Vec<_>>().into())
}
