//! Reading rows in the order of their ids with the SQL edition: `CALL snowflake_settled()` before
//! the query. The writers and the control are those of `settled.rs`.

use cluster::{Draw, EDITION, Edition, Server, assert_ascending};
use postgres::{Client, Error};

use crate::settled::{Form, Page, TABLES, missed, read_while_writing};

/// Starts a server that loads no library, with a text of the edition's file.
fn start(file: &str) -> Server {
    let server = Server::builder()
        .without_preload()
        .config("max_prepared_transactions", "20")
        .config("max_connections", "60")
        .time_limit()
        .start();
    let mut session = server.connect();
    session
        .batch_execute(
            "ALTER DATABASE postgres SET search_path = public, edition; CREATE SCHEMA edition; SET search_path = edition",
        )
        .unwrap();
    session.batch_execute(file).unwrap();
    session.batch_execute("SELECT snowflake_install(worker_id => 5, settled => true)").unwrap();
    let procedure = "CREATE PROCEDURE reads(last bigint, INOUT settled bigint DEFAULT NULL) LANGUAGE plpgsql AS $$
         BEGIN
             CALL snowflake_settled(settled);
             INSERT INTO copied SELECT id FROM outbox WHERE id > last AND id <= settled;
         END $$";
    let mut session = server.connect();
    session.batch_execute(TABLES).unwrap();
    session.batch_execute(procedure).unwrap();
    server
}

fn settled(session: &mut Client) -> Result<i64, Error> {
    Ok(session.query_one("CALL snowflake_settled()", &[])?.get(0))
}

/// A draw holds the bound back to the begin of its tenth of a second, so that the bound can be
/// lower than the one before. A reader keeps the greater one.
fn up_to(session: &mut Client, last: i64, settled: i64) -> Result<Page, Error> {
    let ids = session.ids(&format!("SELECT id FROM outbox WHERE id > {last} AND id <= {settled} ORDER BY id"))?;
    Ok((ids, settled.max(last)))
}

fn in_two_statements(session: &mut Client, last: i64) -> Result<Page, Error> {
    let settled = settled(session)?;
    up_to(session, last, settled)
}

fn in_one_transaction(session: &mut Client, last: i64) -> Result<Page, Error> {
    session.batch_execute("BEGIN")?;
    let page = in_two_statements(session, last);
    session.batch_execute("COMMIT")?;
    page
}

/// Workers of a parallel query have the snapshot of its leader.
fn with_parallel_scans(session: &mut Client, last: i64) -> Result<Page, Error> {
    session.batch_execute(
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0",
    )?;
    in_two_statements(session, last)
}

fn in_a_procedure(session: &mut Client, last: i64) -> Result<Page, Error> {
    let settled: i64 = session.query_one(&format!("CALL reads({last})"), &[])?.get(0);
    let mut ids = session.ids("DELETE FROM copied RETURNING id")?;
    ids.sort_unstable();
    Ok((ids, settled.max(last)))
}

const FORMS: [Form; 4] = [in_two_statements, in_one_transaction, with_parallel_scans, in_a_procedure];

#[test]
fn a_reader_that_takes_the_settled_id_first_misses_nothing_and_one_without_misses_rows() {
    let server = start(EDITION);
    let (stored, readings, control) = read_while_writing(&server, 8, FORMS);
    for (form, reading) in readings.into_iter().enumerate() {
        assert_ascending(&reading);
        assert_eq!((missed(&stored, &reading), reading.len()), (0, stored.len()), "form {form}");
    }
    assert!(missed(&stored, &control) > 0, "without the settled id, nothing is missed among {} rows", stored.len());
    let left = server.connect().value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'");
    assert_eq!(left, "0");
}

/// Writers whose draws take no lock, as if the installer had forgotten it.
#[test]
fn without_the_lock_of_a_draw_readers_miss_rows() {
    let hold = "PERFORM pg_advisory_xact_lock_shared(";
    assert_eq!(EDITION.matches(hold).count(), 1);
    let server = start(&EDITION.replace(hold, "PERFORM coalesce("));
    let (stored, readings, _) = read_while_writing(&server, 8, [in_two_statements]);
    assert!(missed(&stored, &readings[0]) > 0, "nothing is missed among {} rows", stored.len());
}

/// The bound is not held back by other databases, nor by another installation in the same one.
#[test]
fn only_draws_of_the_same_installation_hold_the_settled_id_back() {
    let server = start(EDITION);
    let mut other = server.connect();
    other.install_edition("other", "worker_id => 6, settled => true");
    other.batch_execute("BEGIN; SELECT snowflake_next()").unwrap();
    let mut elsewhere = server.connect_to("template1");
    elsewhere.install_edition("edition", "worker_id => 5, settled => true");
    elsewhere.batch_execute("BEGIN; SELECT snowflake_next()").unwrap();
    let mut session = server.connect();
    let id = session.draw();
    assert!(settled(&mut session).unwrap() >= id);
    let mut open = server.connect();
    open.batch_execute("BEGIN").unwrap();
    let first = open.draw();
    let later = session.draw();
    let bound = settled(&mut session).unwrap();
    assert!(bound < first && bound < later);
    drop(open);
}
