//! Measures a statement in a session: how long it ran, and how many rows it returned. The server
//! measures, so the figure includes neither the client nor the connection.

use postgres::{Client, Error, SimpleQueryMessage};

/// What a statement takes.
pub struct Use {
    /// The time, in milliseconds.
    pub ms: f64,
    /// The reads of blocks, in shared buffers or from the operating system.
    pub shared_blocks: f64,
}

/// A session that measures.
pub trait Measure {
    /// Runs a statement and returns how long that took, in milliseconds.
    fn execution_ms(&mut self, sql: &str) -> Result<f64, Error>;

    /// Runs a statement and returns how long that took, and what it read.
    fn execution(&mut self, sql: &str) -> Result<Use, Error>;

    /// Runs a statement and returns how many rows its scan was estimated to return, and how many it
    /// returned.
    fn estimated_and_actual_rows(&mut self, sql: &str) -> Result<(f64, f64), Error>;

    /// Returns the one value of a statement, which is of type `double precision`.
    fn number(&mut self, sql: &str) -> Result<f64, Error>;

    /// Whether this version of PostgreSQL makes UUIDs of version 7.
    fn has_uuidv7(&mut self) -> Result<bool, Error>;
}

impl Measure for Client {
    fn execution_ms(&mut self, sql: &str) -> Result<f64, Error> {
        Ok(property(&analyze(self, sql)?, "Execution Time"))
    }

    fn execution(&mut self, sql: &str) -> Result<Use, Error> {
        let plan = explained(self, "BUFFERS", sql)?;
        // The outermost node's, which include those of all others.
        let first =
            |name: &str| plan.find(&format!("\"{name}\": ")).map(|at| property(&plan[..end_of_line(&plan, at)], name));
        let blocks = ["Shared Hit Blocks", "Shared Read Blocks"].map(|name| first(name).expect("it counts blocks"));
        Ok(Use { ms: property(&plan, "Execution Time"), shared_blocks: blocks.iter().sum() })
    }

    fn estimated_and_actual_rows(&mut self, sql: &str) -> Result<(f64, f64), Error> {
        let plan = analyze(self, sql)?;
        Ok((property(&plan, "Plan Rows"), property(&plan, "Actual Rows")))
    }

    fn number(&mut self, sql: &str) -> Result<f64, Error> {
        Ok(self.query_one(sql, &[])?.get(0))
    }

    fn has_uuidv7(&mut self) -> Result<bool, Error> {
        Ok(self.query_one("SELECT to_regprocedure('uuidv7()') IS NOT NULL", &[])?.get(0))
    }
}

fn end_of_line(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |length| at + length)
}

fn analyze(client: &mut Client, sql: &str) -> Result<String, Error> {
    explained(client, "BUFFERS OFF", sql)
}

/// Without TIMING, which would read the clock for every row.
fn explained(client: &mut Client, option: &str, sql: &str) -> Result<String, Error> {
    let messages = client.simple_query(&format!("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON, {option}) {sql}"))?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(row.expect("EXPLAIN returns a plan").to_owned())
}

/// Reads the last number of that name from a plan, which belongs to the innermost node.
fn property(plan: &str, name: &str) -> f64 {
    let (_, rest) = plan.rsplit_once(&format!("\"{name}\": ")).expect("the plan has this property");
    let end = rest.find([',', '\n']).unwrap_or(rest.len());
    rest[..end].trim().parse().expect("this property is a number")
}
