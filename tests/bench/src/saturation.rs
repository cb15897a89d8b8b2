//! Ids per second: of a generator whose milliseconds are used up, so that sessions wait for the
//! clock; and of batches that may borrow the ids of ten seconds from the future.

use std::sync::Barrier;
use std::thread;

use cluster::Server;
use postgres::{Client, Error};

use crate::figure::{Bar, Figure};
use crate::series::Series;
use crate::servers;
use crate::session::Measure;

/// The limit of the default layout: 4096 ids in each of a thousand milliseconds.
const IDS_PER_SECOND: f64 = 4_096_000.0;

/// Draws for some seconds, and returns for each the ids per second of elapsed time. It is one
/// statement, so that no round trip lets the generator rest.
const DRAW: &str = "
    CREATE FUNCTION draw_for(seconds int) RETURNS SETOF double precision LANGUAGE plpgsql AS $$
    DECLARE
        start timestamptz := clock_timestamp();
        drawn bigint;
    BEGIN
        FOR second IN 1..seconds LOOP
            drawn := 0;
            WHILE clock_timestamp() < start + interval '1 s' LOOP
                PERFORM count(snowflake_next()) FROM generate_series(1, 20000);
                drawn := drawn + 20000;
            END LOOP;
            RETURN NEXT drawn / extract(epoch FROM clock_timestamp() - start);
            start := clock_timestamp();
        END LOOP;
    END $$";

/// Measures one session, one session per processor, and batches.
pub fn measure(runs: usize) -> Result<Vec<Figure>, Error> {
    let mut figures = Vec::new();
    {
        let server = servers::drawing().start_with_extension();
        server.connect().batch_execute(DRAW)?;
        let processors = thread::available_parallelism().map_or(1, usize::from);
        for sessions in [1, processors.max(2)] {
            let drawn = draw(&server, sessions, runs)?;
            let what = format!("snowflake_next(), {sessions} session{}", if sessions == 1 { "" } else { "s" });
            let held = Series::constant("what the layout holds", "ids/s", IDS_PER_SECOND, runs);
            figures.push(Figure::ratio(&Series::new(what, "ids/s", drawn), &held, Bar::AtLeast(0.98)));
        }
    }
    figures.push(Figure::alone(&batches(runs)?, Bar::AtLeast(6e6)));
    Ok(figures)
}

/// Lets sessions draw at once, and returns the ids per second of all of them.
fn draw(server: &Server, sessions: usize, seconds: usize) -> Result<Vec<f64>, Error> {
    let start = Barrier::new(sessions);
    let session = |mut client: Client| {
        start.wait();
        // In the first second the generator still draws what it could borrow.
        let rows = client.query(&format!("SELECT draw_for({})", seconds + 1), &[])?;
        Ok(rows.iter().skip(1).map(|row| row.get::<_, f64>(0)).collect::<Vec<_>>())
    };
    let clients: Vec<_> = (0..sessions).map(|_| server.connect()).collect();
    let drawn = thread::scope(|scope| {
        let threads: Vec<_> = clients.into_iter().map(|client| scope.spawn(|| session(client))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("a session does not panic");
        threads.into_iter().map(join).collect::<Result<Vec<_>, Error>>()
    })?;
    Ok((0..seconds).map(|second| drawn.iter().map(|rates| rates[second]).sum()).collect())
}

/// Draws four million ids a run, in batches of a million, after the clock has caught up with what
/// was borrowed before.
fn batches(runs: usize) -> Result<Series, Error> {
    const BATCHES: u32 = 4;
    const IDS: u32 = 1_000_000;
    let server = servers::drawing().set("max_borrow", "10s").start_with_extension();
    let mut session = server.connect();
    let mut rates = Vec::new();
    let sql = format!(
        "SELECT count(id) FROM (SELECT snowflake_batch({IDS}) AS id FROM generate_series(1, {BATCHES}) OFFSET 0) s"
    );
    for _ in 0..runs {
        let ahead = session.number(
            "SELECT extract(epoch FROM snowflake_timestamp(snowflake_next()) - clock_timestamp())::double precision",
        )?;
        session.query("SELECT pg_sleep($1)", &[&ahead.max(0.0)])?;
        rates.push(f64::from(BATCHES * IDS) / (session.execution_ms(&sql)? / 1000.0));
    }
    Ok(Series::new("snowflake_batch(), max_borrow 10 s", "ids/s", rates))
}
