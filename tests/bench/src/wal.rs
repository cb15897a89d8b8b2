//! WAL per id, at 100,000 ids per second: the marks that the extension logs, and nothing else.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Error;

use crate::figure::{Bar, Figure};
use crate::series::Series;
use crate::servers;
use crate::session::Measure;

/// Ids per statement, a hundred of which are sent per second.
const IDS: u32 = 1000;

/// Two seconds per run.
const STATEMENTS: u32 = 200;

/// Draws at that pace, one transaction per statement, and compares the positions in the WAL before
/// and after each run.
pub fn measure(runs: usize) -> Result<Vec<Figure>, Error> {
    const POSITION: &str = "SELECT (pg_current_wal_insert_lsn() - '0/0')::double precision";
    let server = servers::drawing().start_with_extension();
    let mut session = server.connect();
    let draw = session.prepare(&format!("SELECT count(snowflake_next()) FROM generate_series(1, {IDS})"))?;
    // The first draw after a checkpoint logs whole pages.
    session.execute(&draw, &[])?;
    let mut values = Vec::new();
    let mut position = session.number(POSITION)?;
    let start = Instant::now();
    for statement in 1..=STATEMENTS * runs as u32 {
        session.execute(&draw, &[])?;
        thread::sleep((start + Duration::from_millis(10) * statement).saturating_duration_since(Instant::now()));
        if statement % STATEMENTS == 0 {
            let now = session.number(POSITION)?;
            values.push((now - position) / f64::from(STATEMENTS * IDS));
            position = now;
        }
    }
    Ok(vec![Figure::alone(&Series::new("WAL per id at 100,000 ids/s", "bytes", values), Bar::AtMost(0.01))])
}
