//! Reading in order: what a poll costs beside many sessions, and how soon a reader gets what
//! sixteen sessions write, with the settled id and in the ways that people use without it. Each way
//! is measured twice: alone, and while an unrelated transaction of the same database stays open
//! that has written.
//!
//! The reader polls every few milliseconds, and the server's clock measures from the insert to the
//! read.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cluster::Server;
use postgres::{Client, Error};

use crate::Failure;
use crate::figure::{Bar, Figure, Measured};
use crate::report::{load, machine, shown, today};
use crate::series::{Series, in_turn, median, quantile};
use crate::servers;

/// Beside how many sessions a poll is measured.
const SESSIONS: [usize; 2] = [100, 1000];

/// How many polls a session makes in a run, one after the other.
const POLLS: u32 = 500;

const WRITERS: usize = 16;

/// How long they write in a run.
const WRITING: Duration = Duration::from_secs(8);

/// How long the reader waits for the rest then. It is longer than the longest delay of a way that
/// is not held up.
const PATIENCE: Duration = Duration::from_secs(8);

/// How long the reader rests between two polls.
const REST: Duration = Duration::from_millis(5);

/// A way to read in order.
struct Way {
    name: &'static str,
    /// The columns of the table of events before the time of the insert.
    columns: &'static str,
    /// The column of the index that the way needs beside the primary key.
    index: Option<&'static str>,
    /// What a writer runs. Other than the insert itself, it is in one transaction with it.
    insert: &'static str,
    /// The condition on the rows after `$1`, and in which order they come.
    condition: &'static str,
    order: &'static str,
    /// What the reader keeps of the last row, of type bigint.
    last: &'static str,
}

const INSERT: &str = "INSERT INTO events DEFAULT VALUES";

const WAYS: [Way; 4] = [
    Way {
        name: "up to `snowflake_settled()`",
        columns: "id bigint PRIMARY KEY DEFAULT snowflake_next()",
        index: None,
        insert: INSERT,
        condition: "id > $1 AND id <= snowflake_settled()",
        order: "id",
        last: "id",
    },
    // All rows of a transaction have one xid, and the reader gets them together.
    Way {
        name: "a column `xid8`, up to `pg_snapshot_xmin`",
        columns: "id bigserial PRIMARY KEY, xid xid8 DEFAULT pg_current_xact_id()",
        index: Some("xid"),
        insert: INSERT,
        condition: "xid > $1::bigint::text::xid8 AND xid < pg_snapshot_xmin(pg_current_snapshot())",
        order: "xid",
        last: "xid::text::bigint",
    },
    Way {
        name: "an advisory lock for each insert",
        columns: "id bigserial PRIMARY KEY",
        index: None,
        insert: "WITH lock AS MATERIALIZED (SELECT pg_advisory_xact_lock(1)) INSERT INTO events (id)
                 SELECT nextval('events_id_seq') FROM lock",
        condition: "id > $1",
        order: "id",
        last: "id",
    },
    // Up to the last id that is old enough. If each row had to be old enough, rows would be missed
    // without any long transaction: the session with the lower id may have read the clock later.
    // Not clock_timestamp(), for which PostgreSQL would read all rows since.
    Way {
        name: "a delay of 5 s",
        columns: "id bigserial PRIMARY KEY",
        index: Some("inserted_at"),
        insert: INSERT,
        condition: "id > $1 AND id <= (SELECT id FROM events WHERE inserted_at < now() - interval '5 s'
                    ORDER BY inserted_at DESC LIMIT 1)",
        order: "id",
        last: "id",
    },
];

/// What a way has achieved in one run. The lag is in milliseconds.
struct Achieved {
    per_second: f64,
    lag: Vec<f64>,
    missing: usize,
}

/// Measures all of it.
pub fn measure(runs: usize) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    for sessions in SESSIONS {
        measured.figures.push(poll(sessions, runs)?);
    }
    measured.tables = vec![format!("Measured on {}. {} {}\n", today(), machine(), load()), table(runs)?];
    Ok(measured)
}

/// Measures how long a call takes beside so many sessions that have inserted rows, less one of the
/// cheapest function that PostgreSQL has. As a reader does, the session rests between two polls, so
/// that what it reads has left its processor's caches.
fn poll(sessions: usize, runs: usize) -> Result<Figure, Failure> {
    let server = servers::drawing().config("max_connections", &(sessions + 10).to_string()).start_with_extension();
    let mut session = server.connect();
    session.batch_execute("CREATE TABLE events (id bigint DEFAULT snowflake_next())")?;
    let idle = (0..sessions).map(|_| {
        let mut session = server.connect();
        for _ in 0..3 {
            session.batch_execute(INSERT)?;
        }
        Ok(session)
    });
    let idle = idle.collect::<Result<Vec<_>, Error>>()?;
    let calls = ["snowflake_settled()", "pg_backend_pid()"];
    for (number, call) in calls.iter().enumerate() {
        // Each call in a transaction of its own, because a statement gets one settled id.
        session.batch_execute(&format!(
            "CREATE PROCEDURE poll_{number}(INOUT micros double precision[]) LANGUAGE plpgsql AS $$
             DECLARE polled bigint; began timestamptz;
             BEGIN
                 FOR n IN 1 .. {POLLS} LOOP
                     began := clock_timestamp();
                     SELECT {call} INTO polled;
                     micros := micros || extract(epoch FROM clock_timestamp() - began)::double precision * 1e6;
                     COMMIT;
                     PERFORM pg_sleep(0.005);
                 END LOOP;
             END $$"
        ))?;
    }
    let micros = in_turn(runs, calls.len(), |number| {
        let row = session.query_one(&format!("CALL poll_{number}('{{}}')"), &[])?;
        Ok::<_, Failure>(median(&row.get::<_, Vec<f64>>(0)))
    })?;
    drop(idle);
    let mut series = micros
        .into_iter()
        .zip(calls)
        .map(|(values, call)| Series::new(format!("{call}, {sessions} sessions"), "us", values));
    let (poll, yardstick) = (series.next().expect("two calls"), series.next().expect("two calls"));
    Ok(Figure::difference(&poll, &yardstick, Bar::None))
}

/// Measures the ways in turn, and formats the medians of the runs.
fn table(runs: usize) -> Result<String, Failure> {
    let mut achieved = [const { [const { Vec::new() }; 2] }; WAYS.len()];
    for _ in 0..runs {
        for (way, achieved) in WAYS.iter().zip(&mut achieved) {
            for (beside, achieved) in [false, true].into_iter().zip(achieved) {
                achieved.push(way.run(beside)?);
            }
        }
    }
    let mut table = String::from(
        "| way | events per second | single runs | lag, p50 | p99 | beside an open transaction: p50 | p99 |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (way, achieved) in WAYS.iter().zip(&achieved) {
        let missing: usize = achieved[0].iter().map(|achieved| achieved.missing).sum();
        if missing > 0 {
            return Err(format!("{}: {missing} events do not come", way.name).into());
        }
        let mut rates: Vec<_> = achieved[0].iter().map(|achieved| achieved.per_second).collect();
        rates.sort_by(f64::total_cmp);
        let range = format!("{} to {}", shown(rates[0], ""), shown(rates[rates.len() - 1], ""));
        write!(table, "| {} | {} | {range} |", way.name, shown(median(&rates), ""))?;
        for achieved in achieved {
            let waits = achieved.iter().any(|achieved| achieved.missing > 0);
            for share in [0.5, 0.99] {
                let cell = if waits {
                    "waits for its end".to_owned()
                } else {
                    let lags: Vec<_> = achieved.iter().map(|achieved| quantile(&achieved.lag, share)).collect();
                    shown(median(&lags), "ms")
                };
                write!(table, " {cell} |")?;
            }
        }
        table.push('\n');
    }
    Ok(table)
}

impl Way {
    /// Lets the writers write and the reader read.
    fn run(&self, beside: bool) -> Result<Achieved, Failure> {
        let server = servers::drawing().start_with_extension();
        let mut session = server.connect();
        session.batch_execute(&format!(
            "CREATE TABLE events ({}, inserted_at timestamptz DEFAULT clock_timestamp()); CREATE TABLE unrelated (n int)",
            self.columns
        ))?;
        if let Some(column) = self.index {
            session.batch_execute(&format!("CREATE INDEX ON events ({column})"))?;
        }
        let mut unrelated = server.connect();
        if beside {
            unrelated.batch_execute("BEGIN; INSERT INTO unrelated VALUES (1)")?;
        }
        let end = AtomicBool::new(false);
        let (written, lag) = thread::scope(|scope| {
            let end = &end;
            let writers: Vec<_> = (0..WRITERS)
                .map(|_| {
                    let mut session = server.connect();
                    scope.spawn(move || self.write(&mut session, end))
                })
                .collect();
            let reader = scope.spawn(|| self.read(&server, end));
            thread::sleep(WRITING);
            // Relaxed: it only ends loops.
            end.store(true, Ordering::Relaxed);
            let written = writers.into_iter().map(|writer| writer.join().expect("a writer does not panic"));
            let written = written.sum::<Result<usize, Error>>();
            (written, reader.join().expect("the reader does not panic"))
        });
        let (written, lag) = (written?, lag?);
        Ok(Achieved { per_second: written as f64 / WRITING.as_secs_f64(), missing: written - lag.len(), lag })
    }

    fn write(&self, session: &mut Client, end: &AtomicBool) -> Result<usize, Error> {
        let insert = session.prepare(self.insert)?;
        let mut written = 0;
        while !end.load(Ordering::Relaxed) {
            session.execute(&insert, &[])?;
            written += 1;
        }
        Ok(written)
    }

    /// Reads until nothing more comes for a while, and returns how late each event was.
    fn read(&self, server: &Server, end: &AtomicBool) -> Result<Vec<f64>, Error> {
        let Self { condition, order, last: kept, .. } = self;
        let mut session = server.connect();
        let page = session.prepare(&format!(
            "SELECT {kept}, extract(epoch FROM clock_timestamp() - inserted_at)::double precision * 1000
             FROM events WHERE {condition} ORDER BY {order} LIMIT 10000"
        ))?;
        let (mut lag, mut last, mut idle_since) = (Vec::new(), 0_i64, Instant::now());
        loop {
            let is_last = end.load(Ordering::Relaxed);
            let rows = session.query(&page, &[&last])?;
            if let Some(row) = rows.last() {
                (last, idle_since) = (row.get(0), Instant::now());
            }
            lag.extend(rows.iter().map(|row| row.get::<_, f64>(1)));
            if !is_last {
                idle_since = Instant::now();
            } else if idle_since.elapsed() > PATIENCE {
                return Ok(lag);
            }
            thread::sleep(REST);
        }
    }
}
