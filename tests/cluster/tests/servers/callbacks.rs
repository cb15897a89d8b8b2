//! A process has few places for callbacks, which PostgreSQL and all libraries share; one callback
//! too many ends the process. These tests measure how many places are left for others in a process
//! that draws, plans, converts or replicates.
//!
//! A library (`libraries/taker.c`) takes as many places as it is told to. It must be able to take
//! as many as in a process without snowflake_id.

use std::path::{Path, PathBuf};

use cluster::{Draw, Server, wait_until};
use postgres::{Client, NoTls};

/// The kinds of places: the taker's setting, and how many there are.
const RELCACHE: (&str, usize) = ("taker.relcache", 10);
const SYSCACHE: (&str, usize) = ("taker.syscache", 64);
const PROCESS_END: (&str, usize) = ("taker.process_end", 20);

/// How a connection is to begin, so that the taker takes so many places of a kind.
fn options(taker: &Path, (setting, _): (&str, usize), places: usize) -> String {
    format!("-c session_preload_libraries={} -c {setting}={places}", taker.display())
}

/// The most places of a kind that can be taken so that `work` succeeds.
#[track_caller]
fn most(kind: (&str, usize), mut work: impl FnMut(usize) -> bool) -> usize {
    let most = (0..=kind.1).rev().find(|places| work(*places)).expect("it works while nothing is taken");
    assert!(most < kind.1, "PostgreSQL itself takes none of {}", kind.0);
    most
}

/// The most places of a kind that the taker can take from sessions so that these statements still
/// run.
#[track_caller]
fn most_in_session(server: &Server, taker: &Path, kind: (&str, usize), statements: &[&str]) -> usize {
    most(kind, |places| {
        let session = server.connection().options(&options(taker, kind, places)).connect(NoTls);
        let run = |session: &mut Client| statements.iter().all(|sql| session.simple_query(sql).is_ok());
        // No attempt leaves anything behind, whether it fails or not.
        session.is_ok_and(|mut session| session.batch_execute("BEGIN").is_ok() && run(&mut session))
    })
}

/// A server with a table whose ids are drawn, one whose ids are numbered, and the taker.
fn server_with_tables() -> Option<(Server, PathBuf)> {
    let server = Server::drawing().config("wal_level", "logical").start_with_extension();
    let taker = server.compile_library("taker")?;
    server
        .connect()
        .batch_execute(
            "CREATE TABLE drawn (id bigint PRIMARY KEY DEFAULT snowflake_next());
             CREATE TABLE numbered (id bigserial PRIMARY KEY, at timestamptz);
             CREATE TABLE to_convert (id bigserial PRIMARY KEY);
             INSERT INTO drawn SELECT FROM generate_series(1, 10);
             CREATE PUBLICATION drawn FOR TABLE drawn; CREATE PUBLICATION numbered FOR TABLE numbered",
        )
        .unwrap();
    Some((server, taker))
}

/// What a session does with ids.
const WITH_IDS: [&str; 9] = [
    "SELECT snowflake_next()",
    "SELECT count(*), max(id) FROM snowflake_batch(300) id",
    "SELECT snowflake_last()",
    "INSERT INTO drawn DEFAULT VALUES RETURNING id",
    "SELECT snowflake_timestamp(id), (snowflake_parse(id)).*, snowflake_format(id) FROM drawn ORDER BY id",
    "SELECT * FROM snowflake_stat_backend",
    "SELECT snowflake_advance(0)",
    "SELECT count(*) FROM drawn WHERE snowflake_timestamp(id) > now() - interval '1 day'",
    "SELECT snowflake_convert('to_convert', 'id')",
];

/// The same with PostgreSQL's own features, for which PostgreSQL takes the same places for itself.
const WITHOUT_IDS: [&str; 9] = [
    "SELECT nextval('numbered_id_seq')",
    "SELECT count(*), max(id) FROM generate_series(1, 300) id",
    "SELECT lastval()",
    "INSERT INTO numbered DEFAULT VALUES RETURNING id",
    "SELECT at, (json_each(json_build_object('id', id))).*, id::text FROM numbered ORDER BY id",
    "SELECT * FROM pg_stat_activity",
    "SELECT setval('numbered_id_seq', 1000)",
    "SELECT count(*) FROM numbered WHERE at > now() - interval '1 day'",
    "DO $$ BEGIN EXECUTE 'ALTER TABLE to_convert ALTER id SET DEFAULT 1'; END $$",
];

#[test]
fn a_session_that_draws_plans_and_converts_takes_no_place_for_changes_of_relations_or_its_end() {
    let Some((server, taker)) = server_with_tables() else { return };
    for kind in [RELCACHE, PROCESS_END] {
        let without = most_in_session(&server, &taker, kind, &WITHOUT_IDS);
        assert_eq!(most_in_session(&server, &taker, kind, &WITH_IDS), without, "{}", kind.0);
        // Whether the library is preloaded or not.
        let plain = Server::builder().without_preload().start();
        let taker = plain.compile_library("taker").unwrap();
        let tables = "CREATE TABLE numbered (id bigserial PRIMARY KEY, at timestamptz);
                      CREATE TABLE to_convert (id bigserial PRIMARY KEY)";
        plain.connect().batch_execute(tables).unwrap();
        assert_eq!(most_in_session(&plain, &taker, kind, &WITHOUT_IDS), without, "{}", kind.0);
    }
}

#[test]
fn only_a_session_that_plans_a_condition_on_the_time_takes_places_for_changes_of_catalogs() {
    let Some((server, taker)) = server_with_tables() else { return };
    let of = |statements: &[&str]| most_in_session(&server, &taker, SYSCACHE, statements);
    let planned = of(&["SELECT count(*) FROM drawn WHERE id > 0"]);
    let pushed_down = of(&["SELECT count(*) FROM drawn WHERE snowflake_timestamp(id) > '2026-01-01'"]);
    assert_eq!(pushed_down, planned - 2);
    assert_eq!(of(&["SELECT nextval('numbered_id_seq')"]), of(&["SELECT snowflake_next()"]));
}

/// The most places for relation changes that the taker can take from a walsender which still sends
/// changes of a table and of its definition.
#[track_caller]
fn most_in_walsender(server: &Server, taker: &Path, table: &str) -> usize {
    let mut session = server.connect();
    // The walsender loads the taker as its output plugin. Late minor versions ask for permission.
    let plugin = taker.with_extension("");
    if session.value("SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'") == "1" {
        server.set_config("output_plugin_libraries", &plugin.display().to_string());
        server.reload();
    }
    let mut session = server.connect();
    most(RELCACHE, |places| {
        let create = format!("pg_create_logical_replication_slot('taken', '{}')", plugin.display());
        session.batch_execute(&format!("SELECT {create}")).unwrap();
        let insert = format!("INSERT INTO {table} DEFAULT VALUES");
        let change = format!("ALTER TABLE {table} ADD c int; {insert}; ALTER TABLE {table} DROP c");
        for sql in [&insert, &change, &insert] {
            session.batch_execute(sql).unwrap();
        }
        let end = session.value("pg_current_wal_insert_lsn()");
        let start = server.log_length();
        let mut receiver = server.client("pg_recvlogical");
        receiver
            .args(["--dbname=postgres", "--slot=taken", "--start", "--no-loop", "--file=-"])
            .arg(format!("--endpos={end}"))
            .args(["--option=proto_version=1", &format!("--option=publication_names={table}")])
            .env("PGOPTIONS", format!("-c {}={places}", RELCACHE.0));
        let output = receiver.output().expect("pg_recvlogical runs");
        let is_full = || server.log_since(start).contains("out of relcache_callback_list slots");
        assert!(output.status.success() || is_full(), "{}", String::from_utf8_lossy(&output.stderr));
        let drop = "SELECT pg_drop_replication_slot('taken')";
        wait_until("the end of the walsender", || session.batch_execute(drop).is_ok());
        output.status.success()
    })
}

/// With two places fewer, each split of a shard under writes failed with Citus, whose walsenders
/// take most of the places.
#[test]
fn a_walsender_that_sends_ids_takes_no_place_for_changes_of_relations() {
    let Some((server, taker)) = server_with_tables() else { return };
    let numbered = most_in_walsender(&server, &taker, "numbered");
    assert_eq!(most_in_walsender(&server, &taker, "drawn"), numbered);
    let plain = Server::builder().without_preload().config("wal_level", "logical").start();
    let taker = plain.compile_library("taker").unwrap();
    let table = "CREATE TABLE numbered (id bigserial PRIMARY KEY); CREATE PUBLICATION numbered FOR TABLE numbered";
    plain.connect().batch_execute(table).unwrap();
    assert_eq!(most_in_walsender(&plain, &taker, "numbered"), numbered);
}
