//! Sixty-four clients that only draw, against as many that select a constant: whether drawing makes
//! sessions wait for each other.
//!
//! The draw does not cause the whole difference. For any function instead of the constant, the
//! server looks up which roles may execute it.

use crate::Failure;
use crate::figure::{Bar, Figure, Measured};
use crate::pgbench;
use crate::series::{Series, in_turn};
use crate::servers;

const CLIENTS: usize = 64;

/// How long each of them runs in a run: so long that the work of each session's first statement
/// does not count.
const SECONDS: u32 = 3;

/// The statement that is measured, and the one that it is compared with.
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
