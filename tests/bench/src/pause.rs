//! One INSERT every three seconds, for which the mark costs most. After a second without draws, the
//! next draw has to move the mark and wait until it is on disk. Then the commit waits for the disk
//! once more.

use std::thread;
use std::time::{Duration, Instant};

use cluster::Server;

use crate::Failure;
use crate::figure::{Bar, Figure};
use crate::series::Series;
use crate::servers;

/// The pause between an INSERT and the next one, into the other table.
const HALF_A_PAUSE: Duration = Duration::from_millis(1500);

/// The tables, and the default of their primary key.
const TABLES: [(&str, &str); 2] = [("snowflake", "bigint DEFAULT snowflake_next()"), ("bigserial", "bigserial")];

/// Inserts into both tables in turn, so that each waits three seconds, and neither has to flush the
/// other's WAL. The client measures, because the server's own figures end before the commit.
pub fn measure(runs: usize) -> Result<Vec<Figure>, Failure> {
    measure_on(&servers::drawing().start_with_extension(), "snowflake id", runs)
}

/// Does so on a server, whose number may be configured or leased.
pub fn measure_on(server: &Server, what: &str, runs: usize) -> Result<Vec<Figure>, Failure> {
    let mut sessions = Vec::new();
    for (table, key) in TABLES {
        let mut session = server.connect();
        session.batch_execute(&format!("CREATE TABLE {table} (id {key} PRIMARY KEY, n int)"))?;
        let insert = session.prepare(&format!("INSERT INTO {table} (n) VALUES (1)"))?;
        session.execute(&insert, &[])?;
        sessions.push((session, insert));
    }
    // Otherwise the first INSERT into each page after a checkpoint would log the whole page.
    sessions[0].0.batch_execute("CHECKPOINT")?;
    let mut values = [Vec::new(), Vec::new()];
    let mut next = Instant::now();
    // The result of a first round is discarded.
    for round in 0..=runs {
        for ((session, insert), values) in sessions.iter_mut().zip(&mut values) {
            next += HALF_A_PAUSE;
            thread::sleep(next.saturating_duration_since(Instant::now()));
            let start = Instant::now();
            session.execute(insert, &[])?;
            if round > 0 {
                values.push(start.elapsed().as_secs_f64() * 1000.0);
            }
        }
    }
    let [snowflake, bigserial] = values;
    let snowflake = Series::new(format!("an INSERT every 3 s, {what}"), "ms", snowflake);
    Ok(vec![Figure::ratio(&snowflake, &Series::new("bigserial", "ms", bigserial), Bar::None)])
}
