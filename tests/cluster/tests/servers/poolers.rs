//! What a session remembers when several clients share it. `snowflake_last()` loses where
//! `lastval()` does; and how this works with PgBouncer.

use std::collections::HashMap;

use cluster::{Draw, PgBouncer, PoolMode, Server, has_pgbouncer, refused, skip};
use postgres::{Client, SimpleQueryMessage};

/// Runs statements without preparing them, and returns the first column of their rows.
#[track_caller]
fn rows(client: &mut Client, sql: &str) -> Vec<String> {
    let messages = client.simple_query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
        _ => None,
    };
    messages.iter().filter_map(row).collect()
}

#[track_caller]
fn row(client: &mut Client, sql: &str) -> String {
    let rows = rows(client, sql);
    assert_eq!(rows.len(), 1, "{sql}");
    rows.into_iter().next().unwrap()
}

const LAST: &str = "SELECT snowflake_last()";

/// Whether a function that returns a session's last number returns one. If it does not, it must
/// raise the right error.
#[track_caller]
fn tells(client: &mut Client, function: &str) -> bool {
    match client.simple_query(&format!("SELECT {function}()")) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(refused::<()>(Err(error)).sqlstate, "55000", "{function}");
            false
        }
    }
}

#[test]
fn a_session_forgets_its_last_id_where_it_forgets_its_last_value() {
    let server = Server::drawing().config("max_prepared_transactions", "1").start_with_extension();
    server.connect().batch_execute("CREATE SEQUENCE s; CREATE TABLE t (n int)").unwrap();
    let draw = "SELECT snowflake_next(), nextval('s')";
    // Statements after a draw, and whether the session still remembers the id after them.
    let cases: [(&[&str], bool); 17] = [
        (&["DISCARD ALL"], false),
        (&["DISCARD SEQUENCES"], false),
        (&["DISCARD PLANS", "DISCARD TEMP", "DISCARD TEMPORARY", "RESET ALL", "DEALLOCATE ALL", "UNLISTEN *"], true),
        (&["DISCARD ALL", draw], true),
        (&["DISCARD SEQUENCES", draw, "DISCARD SEQUENCES"], false),
        (&["DISCARD SEQUENCES", "DISCARD ALL", "DISCARD SEQUENCES"], false),
        // The statement is refused, so nothing was discarded.
        (&["BEGIN", "DISCARD ALL", "ROLLBACK"], true),
        (&["SELECT 1; DISCARD ALL"], true),
        (&["BEGIN", "DISCARD SEQUENCES", "COMMIT"], false),
        // A rollback undoes neither the draw nor the forgetting.
        (&["BEGIN", "DISCARD SEQUENCES", "ROLLBACK"], false),
        (&["BEGIN", "DISCARD SEQUENCES", draw, "ROLLBACK"], true),
        (&["DISCARD ALL", "BEGIN", draw, "ROLLBACK"], true),
        (&["DISCARD ALL", "BEGIN", draw, "SAVEPOINT a", "DISCARD SEQUENCES", "ROLLBACK TO a", "COMMIT"], false),
        (&["BEGIN", draw, "INSERT INTO t VALUES (1)", "PREPARE TRANSACTION 'a'", "ROLLBACK PREPARED 'a'"], true),
        (&["BEGIN", draw, "DISCARD SEQUENCES", "PREPARE TRANSACTION 'a'", "COMMIT PREPARED 'a'"], false),
        (&["DO $$ BEGIN EXECUTE 'DISCARD SEQUENCES'; END $$"], false),
        (&["DO $$ BEGIN DISCARD SEQUENCES; RAISE EXCEPTION 'no'; EXCEPTION WHEN others THEN NULL; END $$"], false),
    ];
    for (statements, remembers) in cases {
        let mut session = server.connect();
        assert!(!tells(&mut session, "snowflake_last"), "a new session has drawn nothing");
        rows(&mut session, draw);
        for statement in statements {
            // One of them is refused.
            let _ = session.simple_query(statement);
        }
        let told = ["lastval", "snowflake_last"].map(|function| tells(&mut session, function));
        assert_eq!(told, [remembers; 2], "{statements:?}");
    }

    // For example, a client that prepares every statement.
    let mut session = server.connect();
    let id = session.draw();
    assert_eq!(session.value(LAST), id.to_string());
    session.execute("DISCARD SEQUENCES", &[]).unwrap();
    let refusal = refused(session.query(LAST, &[]));
    let expected = ("55000", "no id has been drawn in this session yet");
    assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), expected);
    // The session loses the id, but not that it has drawn.
    let of_session = "SELECT drawn || ' ' || last_id FROM snowflake_stat_backend WHERE pid = pg_backend_pid()";
    assert_eq!(session.value(of_session), format!("1 {id}"));
}

#[test]
fn what_is_fetched_from_a_batch_after_a_discard_is_the_last_id() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    rows(&mut session, "BEGIN; DECLARE c CURSOR FOR SELECT snowflake_batch(10); FETCH 3 FROM c; DISCARD SEQUENCES");
    let fetched = row(&mut session, "FETCH 1 FROM c");
    assert_eq!(row(&mut session, LAST), fetched);
}

#[test]
fn sessions_draw_and_forget_after_a_crash_too() {
    let server = Server::drawing().start_with_extension();
    let mut victim = server.connect();
    server.kill_backend(victim.value(PID).parse().unwrap());
    server.wait_until_ready();
    let mut session = server.connect();
    session.draw();
    session.batch_execute("DISCARD ALL").unwrap();
    assert!(!tells(&mut session, "snowflake_last"));
}

const PID: &str = "SELECT pg_backend_pid()";

/// A server with a table of ids and clients, and a PgBouncer in front of it.
fn start(mode: PoolMode) -> Option<(Server, PgBouncer)> {
    if !has_pgbouncer() {
        skip("PgBouncer is neither installed nor unpacked by \"make setup\"");
        return None;
    }
    let server = Server::drawing().start_with_extension();
    let table = "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_next(), client text)";
    server.connect().batch_execute(table).unwrap();
    let pooler = PgBouncer::start(&server, mode);
    Some((server, pooler))
}

#[test]
fn behind_a_pooler_in_session_mode_nobody_sees_the_predecessors_id() {
    let Some((_server, pooler)) = start(PoolMode::Session) else { return };
    let mut first = pooler.connect();
    let pid = row(&mut first, PID);
    let id = row(&mut first, "INSERT INTO orders (client) VALUES ('first') RETURNING id");
    assert_eq!(row(&mut first, LAST), id);
    first.close().unwrap();

    let mut second = pooler.connect();
    assert_eq!(row(&mut second, PID), pid, "it has its predecessor's session of the server");
    assert!(!tells(&mut second, "snowflake_last"), "the predecessor's id is lost");
    let id = row(&mut second, "INSERT INTO orders (client) VALUES ('second') RETURNING id");
    assert_eq!(row(&mut second, LAST), id);
}

/// The behaviour that docs/reference.md describes.
#[test]
fn behind_a_pooler_in_transaction_mode_only_returning_is_right() {
    let Some((server, pooler)) = start(PoolMode::Transaction) else { return };
    let mut clients: Vec<(String, Client)> = (0..6).map(|n| (format!("client {n}"), pooler.connect())).collect();
    let insert = |name: &str| format!("INSERT INTO orders (client) VALUES ('{name}') RETURNING id");
    let ids: HashMap<String, String> =
        clients.iter_mut().map(|(name, client)| (name.clone(), row(client, &insert(name)))).collect();
    // Each client was told its own row's id ...
    let mut session = server.connect();
    for (name, id) in &ids {
        assert_eq!(&session.value(&format!("SELECT id FROM orders WHERE client = '{name}'")), id);
    }
    // ... but the shared session tells each of them the last client's id.
    let last = &ids["client 5"];
    for (name, client) in &mut clients {
        assert_eq!(&row(client, LAST), last, "{name}");
    }
    // lastval() behaves in the same way.
    rows(&mut clients[0].1, "CREATE SEQUENCE s; SELECT nextval('s')");
    assert_eq!(row(&mut clients[1].1, "SELECT lastval()"), "1");
}
