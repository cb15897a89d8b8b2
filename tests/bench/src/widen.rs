//! Widening: a table and three that refer to it, from integer to bigint, while a session writes.
//! For each phase: how long it takes, what the session writes meanwhile, and for how long one of
//! its statements waits at most, which is the longest lock that a session notices.

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cluster::{Ends, Server};
use postgres::Error;

use crate::Failure;
use crate::figure::Measured;
use crate::report::{load, machine, shown, today};
use crate::servers;

/// How long the session writes before the first step.
const BEFORE: Duration = Duration::from_secs(30);

const PHASES: [&str; 6] = ["prepare", "fill", "build", "switch", "check", "clean up"];

/// What the session has written since it was last asked.
#[derive(Default)]
struct Written {
    rows: u32,
    longest: Duration,
}

/// Writes a row and one that refers to it, again and again.
fn write(server: &Server, written: &Mutex<Written>, is_over: &AtomicBool) -> Result<(), Error> {
    let mut session = server.connect();
    // Acquire: pairs with the store of `Ends`.
    while !is_over.load(Ordering::Acquire) {
        let begin = Instant::now();
        session.batch_execute(
            "INSERT INTO keys (note) VALUES ('new'); INSERT INTO refers_1 (key) VALUES (currval('keys_id_seq'))",
        )?;
        let mut written = written.lock().expect("no holder panics");
        written.rows += 2;
        written.longest = written.longest.max(begin.elapsed());
    }
    Ok(())
}

/// Measures one widening, with so many rows in the table that the others refer to, and a third of
/// them in each of the others.
pub fn measure(rows: u64) -> Result<Measured, Failure> {
    let server = servers::drawing().start_with_extension();
    let mut session = server.connect();
    session.batch_execute(&format!(
        "CREATE TABLE keys (id serial PRIMARY KEY, note text); INSERT INTO keys (note) SELECT 'a note' FROM generate_series(1, {rows})"
    ))?;
    for number in 1..=3 {
        session.batch_execute(&format!(
            "CREATE TABLE refers_{number} (id bigserial PRIMARY KEY, key integer NOT NULL);
             INSERT INTO refers_{number} (key) SELECT n * 3 FROM generate_series(1, {rows} / 3) n;
             CREATE INDEX ON refers_{number} (key);
             ALTER TABLE refers_{number} ADD FOREIGN KEY (key) REFERENCES keys ON DELETE CASCADE"
        ))?;
    }
    for statement in ["VACUUM ANALYZE", "CHECKPOINT"] {
        session.batch_execute(statement)?;
    }
    let (written, is_over) = (Mutex::new(Written::default()), AtomicBool::new(false));
    let mut table = format!(
        "Measured on {}. {} {} {rows} rows, and a third of them in each of three tables that refer to these.\n\n\
         | phase | time | rows a second of a session that writes | its longest wait |\n|---|---|---|---|\n",
        today(),
        machine(),
        load()
    );
    let mut line = |phase: &str, time: Duration| {
        let Written { rows, longest } = std::mem::take(&mut *written.lock().expect("no holder panics"));
        let per_second = f64::from(rows) / time.as_secs_f64();
        let [time, longest] = [time, longest].map(|time| shown(time.as_secs_f64() * 1e3, "ms"));
        writeln!(table, "| {phase} | {time} | {} | {longest} |", shown(per_second, ""))
    };
    thread::scope(|scope| {
        let ends = Ends(&is_over);
        let writer = scope.spawn(|| write(&server, &written, &is_over));
        thread::sleep(BEFORE);
        line("before", BEFORE)?;
        let call = "SELECT phase, statement FROM snowflake_widen('keys', 'id') WHERE statement IS NOT NULL";
        let steps = session.query(call, &[])?;
        for phase in PHASES {
            let begin = Instant::now();
            for step in steps.iter().filter(|step| step.get::<_, &str>(0) == phase) {
                session.batch_execute(step.get(1))?;
            }
            line(phase, begin.elapsed())?;
        }
        drop(ends);
        writer.join().expect("it does not panic")?;
        Ok::<_, Failure>(())
    })?;
    Ok(Measured { tables: vec![table], ..Measured::default() })
}
