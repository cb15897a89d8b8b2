//! A session that gets no more memory: it has an error, or ends, and the server goes on.
//!
//! `Server::limit_memory` gives a session's process an end of its memory, as `ulimit -v` or
//! `vm.overcommit_memory = 2` does for all.

use cluster::{Draw, Server, refused};
use postgres::Client;

/// The length of a text that no function reads, in bytes.
const LONG: usize = 10_000_000;

fn pid(session: &mut Client) -> i32 {
    session.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0)
}

/// Every argument of type text, with the SQLSTATE that a text of any length gets; empty for NULL.
const CALLS: [(&str, &str); 16] = [
    ("snowflake_min(now(), t)", "22023"),
    ("snowflake_parse(1, t)", "22023"),
    ("snowflake_timestamp(1, t)", "22023"),
    ("snowflake_format(1, t)", "22023"),
    ("snowflake_compose(now(), 1, 1, 0, t)", "22023"),
    ("(SELECT count(*) FROM snowflake_layout_fields(t))", "22023"),
    ("snowflake_encode(1, t)", "22023"),
    ("snowflake_decode(t, 'base32')", "22023"),
    ("snowflake_decode('1', t)", "22023"),
    ("snowflake_from(now(), t)", ""),
    ("snowflake_plan.instant(timestamp '2026-01-01', t, true)", ""),
    ("snowflake_plan.local(now(), t, true)", ""),
    ("snowflake_plan.ceil(timestamp '2026-01-01', t)", ""),
    ("snowflake_segment_next(t)", "22023"),
    ("(SELECT count(*) FROM snowflake_segment_batch(t, 1))", "22023"),
    ("(SELECT count(*) FROM snowflake_segment_convert('x', 'id', t))", "22023"),
];

/// Converting is not a part of an expression that reads a table.
const CONVERT: (&str, &str) = ("(SELECT count(*) FROM snowflake_convert_columns(ARRAY[t]))", "22023");

/// In LATIN1, a text beyond ASCII is copied to be read.
#[test]
fn a_text_of_any_length_is_refused_before_it_is_copied() {
    // By default, glibc keeps pieces of up to 32 MB of what a text has had. A limit would miss what
    // is copied into these.
    let server = Server::builder()
        .set("registry", "host=127.0.0.1 port=1")
        .environment("MALLOC_MMAP_THRESHOLD_", "131072")
        .start_with_extension();
    server
        .connect()
        .batch_execute("CREATE DATABASE latin ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        .unwrap();
    let no_limit = 1 << 40;
    // As much as PostgreSQL needs for the text, a little at a time.
    let steps: Vec<_> = (0..6).map(|step| step * LONG * 2 / 3).collect();
    for (database, steps) in [("postgres", &[][..]), ("latin", &steps)] {
        let mut session = server.connect_to(database);
        session.batch_execute("CREATE EXTENSION IF NOT EXISTS snowflake_id; CREATE TABLE x (id bigint)").unwrap();
        for (call, sqlstate) in CALLS.into_iter().chain([CONVERT]) {
            let sql = format!("SELECT {call} IS NULL FROM (VALUES (repeat('\u{e4}', {LONG}))) AS v (t)");
            for more in steps.iter().copied().chain([no_limit]) {
                server.limit_memory(pid(&mut session), more);
                match session.query(&sql, &[]) {
                    Ok(_) => assert_eq!(sqlstate, "", "{call}"),
                    result @ Err(_) => {
                        let refusal = refused(result);
                        let is_right = refusal.sqlstate == sqlstate || refusal.sqlstate == "53200" && more < no_limit;
                        assert!(is_right, "{call} with {more}: {refusal:?}");
                        // No message repeats all of a text.
                        assert!(refusal.message.len() < 4200, "{call}: {}", refusal.message.len());
                    }
                }
            }
        }
    }
    assert!(!server.log().contains("was terminated by signal"), "{}", server.log());
}

/// Of what a superuser has set, Rust makes a copy of any length.
#[test]
fn a_session_that_gets_no_memory_in_rust_ends_and_the_server_goes_on() {
    let long = format!("host=127.0.0.1 port=1 application_name={}", "x".repeat(400_000));
    let server = Server::builder().set("registry", &long).start_with_extension();
    let mut other = server.connect();
    let began = other.value("SELECT pg_postmaster_start_time()::text");
    // PostgreSQL needs some for the statement, too, and gets an ERROR.
    for step in 0..50 {
        let mut session = server.connect();
        server.limit_memory(pid(&mut session), step * 100_000);
        let Err(error) = session.query("SELECT length(registry) FROM snowflake_lease", &[]) else { continue };
        // A session that ends may have no memory to tell why, except in the log.
        match error.as_db_error() {
            Some(error) => assert_eq!((error.code().code(), error.message()), ("53200", "out of memory")),
            None => assert!(error.is_closed(), "{error:?}"),
        }
    }
    let log = server.log();
    let mut lines = log.lines().skip_while(|line| !line.contains("FATAL:  out of memory")).skip(1);
    let detail = lines.next().expect("a limit hit Rust");
    assert!(detail.contains("snowflake_id failed on a request of "), "{detail}");
    // No other session has ended.
    assert_eq!(other.value("SELECT pg_postmaster_start_time()::text"), began);
    assert!(!log.contains("was terminated by signal"), "{log}");
}
