//! The SQL edition, on a server that loads no library, without and with what its
//! `snowflake_settled()` needs, against `nextval()`, UUIDv7 where PostgreSQL has it, and two
//! functions of the kinds that are written by hand: one that puts the clock and a sequence
//! together, and one that keeps the last id in a row, which stays locked until the commit.

use cluster::{Edition, Server};
use postgres::Client;

use crate::Failure;
use crate::calls::{self, YARDSTICKS_NEED};
use crate::figure::{Bar, Figure, Measured};
use crate::pgbench;
use crate::series::{Series, in_turn};
use crate::servers;
use crate::session::Measure;

const CLIENTS: [usize; 2] = [8, 64];
const SECONDS: u32 = 3;

/// The function with a row: the time and a count, as the tables of such packages hold them.
const ROW_NEEDS: &str = "
    CREATE TABLE nodes (node int PRIMARY KEY, last_ms bigint, sequence int) WITH (fillfactor = 10);
    INSERT INTO nodes VALUES (5, 0, 0);
    CREATE FUNCTION next_by_row() RETURNS bigint LANGUAGE plpgsql AS $$
    DECLARE
        now_ms bigint := floor(extract(epoch FROM clock_timestamp()) * 1000) - 1735689600000;
        id bigint;
    BEGIN
        UPDATE nodes SET sequence = CASE WHEN last_ms >= now_ms THEN sequence + 1 ELSE 0 END, last_ms = greatest(last_ms, now_ms)
        WHERE node = 5 RETURNING last_ms << 22 | 5 << 12 | sequence % 4096 INTO id;
        RETURN id;
    END $$";

/// What is drawn: the words of the figures, and the call. The first is compared with the others.
const WAYS: [(&str, &str); 6] = [
    ("SQL edition", "edition.snowflake_next()"),
    ("SQL edition for readers in order", "for_readers.snowflake_next()"),
    ("nextval()", "nextval('cache_1')"),
    ("uuidv7()", "uuidv7()"),
    ("time, shard and nextval() in PL/pgSQL", "next_of_shard_5()"),
    ("a row with the last id", "next_by_row()"),
];

/// Measures one call, a million rows, and clients that insert one row each.
pub fn measure(runs: usize) -> Result<Measured, Failure> {
    let server = servers::without_library().start();
    let mut session = server.connect();
    session.install_edition("edition", "worker_id => 5");
    session.install_edition("for_readers", "worker_id => 6, settled => true");
    let mut session = server.connect();
    session.batch_execute(YARDSTICKS_NEED)?;
    session.batch_execute(ROW_NEEDS)?;
    let has_uuidv7 = session.has_uuidv7()?;
    let ways: Vec<_> = WAYS.into_iter().filter(|(_, call)| has_uuidv7 || *call != "uuidv7()").collect();
    let mut measured = Measured::default();
    if ways.len() < WAYS.len() {
        measured
            .left_out
            .push("the SQL edition / uuidv7(): PostgreSQL has that function from version 18 on".to_owned());
    }
    measured.figures.extend(one_call(&server, &ways, runs)?);
    measured.figures.extend(a_million_rows(&mut session, &ways, runs)?);
    if pgbench::is_there(&server) {
        measured.figures.extend(one_row_each(&server, &mut session, &ways, runs)?);
    } else {
        measured.left_out.push(format!("clients of the SQL edition: {}", pgbench::MISSING));
    }
    Ok(measured)
}

/// Without the row, because one transaction that updates it ten thousand times only measures its
/// dead versions.
fn one_call(server: &Server, ways: &[(&str, &str)], runs: usize) -> Result<Vec<Figure>, Failure> {
    let ways: Vec<_> = ways.iter().filter(|(_, call)| *call != "next_by_row()").collect();
    let calls: Vec<_> = ways.iter().map(|(_, call)| *call).collect();
    let series = calls::net(server, &calls, runs)?.into_iter().zip(&ways);
    Ok(against_the_first(series.map(|(series, (what, _))| Series { what: format!("one id, {what}"), ..series })))
}

fn a_million_rows(session: &mut Client, ways: &[(&str, &str)], runs: usize) -> Result<Vec<Figure>, Failure> {
    let ways: Vec<_> = ways.iter().filter(|(_, call)| *call != "next_by_row()").collect();
    let values = in_turn(runs, ways.len(), |number| {
        let (_, call) = ways[number];
        let kind = if *call == "uuidv7()" { "uuid" } else { "bigint" };
        session.batch_execute(&format!(
            "DROP TABLE IF EXISTS filled; CREATE TABLE filled (id {kind} PRIMARY KEY DEFAULT {call}, n int)"
        ))?;
        session.batch_execute("CHECKPOINT")?;
        session.execution_ms("INSERT INTO filled (n) SELECT n FROM generate_series(1, 1000000) n")
    })?;
    let series = values.into_iter().zip(&ways);
    Ok(against_the_first(series.map(|(values, (what, _))| Series::new(format!("1M rows, {what}"), "ms", values))))
}

/// Each statement is a transaction, whose commit waits for the disk.
fn one_row_each(
    server: &Server,
    session: &mut Client,
    ways: &[(&str, &str)],
    runs: usize,
) -> Result<Vec<Figure>, Failure> {
    for (number, (_, call)) in ways.iter().enumerate() {
        let kind = if *call == "uuidv7()" { "uuid" } else { "bigint" };
        session.batch_execute(&format!("CREATE TABLE rows_{number} (id {kind} DEFAULT {call}, n int)"))?;
    }
    let mut figures = Vec::new();
    for clients in CLIENTS {
        let values = in_turn(runs, ways.len(), |number| {
            session.batch_execute(&format!("TRUNCATE rows_{number}"))?;
            session.batch_execute("VACUUM nodes")?;
            pgbench::per_second(server, clients, SECONDS, &format!("INSERT INTO rows_{number} (n) VALUES (1)"))
        })?;
        let series = values.into_iter().zip(ways);
        let name = |what| format!("{clients} clients, one row each, {what}");
        figures.extend(against_the_first(series.map(|(values, (what, _))| Series::new(name(*what), "/s", values))));
    }
    Ok(figures)
}

fn against_the_first(mut series: impl Iterator<Item = Series>) -> Vec<Figure> {
    let first = series.next().expect("the edition comes first");
    series.map(|other| Figure::ratio(&first, &other, Bar::None)).collect()
}
