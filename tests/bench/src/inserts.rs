//! Rows into a table, whose primary key is by default a snowflake id, a `bigserial`, a random UUID,
//! or a UUID of version 7 where PostgreSQL has one: a million in one statement, and one in each
//! statement of one, of 16 and of 64 clients.

use postgres::{Client, Error};

use crate::Failure;
use crate::figure::{Bar, Figure, Measured};
use crate::pgbench;
use crate::series::{Series, in_turn};
use crate::servers;
use crate::session::Measure;

/// The tables, the column that is their primary key, and what the figures call it. The first one is
/// compared with the others, each with the bars of a million rows and of its key's size.
const TABLES: [(&str, &str, &str, Bar, Bar); 4] = [
    ("snowflake", "bigint DEFAULT snowflake_next()", "snowflake id", Bar::None, Bar::None),
    ("bigserial", "bigserial", "bigserial", Bar::AtMost(0.95), Bar::Exactly(1.0)),
    ("random", "uuid DEFAULT gen_random_uuid()", "random UUID", Bar::AtMost(0.45), Bar::None),
    ("ordered", "uuid DEFAULT uuidv7()", "UUIDv7", Bar::None, Bar::None),
];

/// Clients that insert one row in each statement, and for how many seconds in a run.
const CLIENTS: [usize; 3] = [1, 16, 64];
const SECONDS: u32 = 3;

/// Creates the tables that this version of PostgreSQL can have, and returns them.
fn create(session: &mut Client) -> Result<Vec<(&'static str, &'static str, Bar, Bar)>, Error> {
    let has_uuidv7 = session.has_uuidv7()?;
    let mut tables = Vec::new();
    for (table, key, what, rows, size) in TABLES {
        if table != "ordered" || has_uuidv7 {
            session.batch_execute(&format!("CREATE TABLE {table} (id {key} PRIMARY KEY, n int)"))?;
            tables.push((table, what, rows, size));
        }
    }
    Ok(tables)
}

fn left_out(tables: usize) -> Vec<String> {
    let why = "inserts with UUIDv7: PostgreSQL has uuidv7() from version 18 on";
    if tables < TABLES.len() { vec![why.to_owned()] } else { Vec::new() }
}

/// Fills the emptied tables in each run, each after a checkpoint, so that no table has to write
/// another's pages.
pub fn measure(runs: usize) -> Result<Measured, Failure> {
    let server = servers::drawing().start_with_extension();
    let mut session = server.connect();
    let tables = create(&mut session)?;
    let values = in_turn(runs, tables.len(), |number| {
        let (table, ..) = tables[number];
        session.batch_execute(&format!("TRUNCATE {table}"))?;
        session.batch_execute("CHECKPOINT")?;
        session.execution_ms(&format!("INSERT INTO {table} (n) SELECT n FROM generate_series(1, 1000000) n"))
    })?;
    let mut size = |what: &str, relation: &str| {
        let sql = format!("SELECT pg_relation_size('{relation}')::double precision");
        Ok::<_, Error>(Series::new(what, "bytes", vec![session.number(&sql)?]))
    };
    let ours = Series::new("1M rows, snowflake id", "ms", values[0].clone());
    let key = size("primary key of 1M snowflake ids", "snowflake_pkey")?;
    let table_size = size("table of 1M rows with snowflake ids", "snowflake")?;
    let mut figures = Vec::new();
    for (values, (_, what, bar, _)) in values.into_iter().zip(&tables).skip(1) {
        figures.push(Figure::ratio(&ours, &Series::new(*what, "ms", values), *bar));
    }
    for (table, what, _, bar) in &tables[1..] {
        figures.push(Figure::ratio(&key, &size(what, &format!("{table}_pkey"))?, *bar));
        figures.push(Figure::ratio(&table_size, &size(what, table)?, Bar::None));
    }
    Ok(Measured { figures, left_out: left_out(tables.len()), ..Measured::default() })
}

/// Lets clients insert single rows. Their commits do not wait for the disk, because that wait would
/// hide what the keys cost.
pub fn measure_rows(runs: usize) -> Result<Measured, Failure> {
    let server = servers::drawing().config("synchronous_commit", "off").start_with_extension();
    if !pgbench::is_there(&server) {
        return Ok(Measured::left_out("clients that insert single rows", pgbench::MISSING));
    }
    let mut session = server.connect();
    let tables = create(&mut session)?;
    let mut figures = Vec::new();
    for clients in CLIENTS {
        let values = in_turn(runs, tables.len(), |number| {
            let (table, ..) = tables[number];
            session.batch_execute(&format!("TRUNCATE {table}"))?;
            session.batch_execute("CHECKPOINT")?;
            pgbench::per_second(&server, clients, SECONDS, &format!("INSERT INTO {table} (n) VALUES (1)"))
        })?;
        let name = format!("{clients} client{}, one row each, snowflake id", if clients == 1 { "" } else { "s" });
        let ours = Series::new(&name, "/s", values[0].clone());
        for (values, (_, what, ..)) in values.into_iter().zip(&tables).skip(1) {
            figures.push(Figure::ratio(&ours, &Series::new(*what, "/s", values), Bar::None));
        }
    }
    Ok(Measured { figures, left_out: left_out(tables.len()), ..Measured::default() })
}
