//! Public ids on a server: the same tokens as elsewhere, plans, refusals, and which key conceals
//! which id while keys come and go. How keys get into copies is in `public_keys.rs`.

use cluster::drawing::noon;
use cluster::plans::explain;
use cluster::refusal::assert_refused_as;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cluster::{Draw, Running, Server, assert_unique, faketime_library, plan, refused, skip, wait_until};
use postgres::{Client, NoTls};

/// Key in hexadecimal digits, id, prefix, token.
const VECTORS: &str = include_str!("../../../../src/core/tests/public-ids.tsv");

/// The key of some vectors, and two tokens that it makes.
pub(crate) const KEY: &str = "decode('000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f', 'hex')";
pub(crate) const TOKEN_OF_1: &str = "ord_27xhgkv8783g9brj0n2t3mdpe8";

pub(crate) fn execute(session: &mut Client, sql: &str) {
    session.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Evaluates an expression, NULL as `None`.
pub(crate) fn found(session: &mut Client, expression: &str) -> Option<String> {
    let row = session.query_one(&format!("SELECT ({expression})::text"), &[]);
    row.unwrap_or_else(|error| panic!("{expression}: {error}")).get(0)
}

pub(crate) fn conceal(session: &mut Client, id: i64) -> String {
    session.value(&format!("SELECT snowflake_conceal({id}, 'ord')"))
}

pub(crate) fn reveal(session: &mut Client, token: &str) -> Option<i64> {
    session.query_one("SELECT snowflake_reveal($1, 'ord')", &[&token]).unwrap().get(0)
}

/// The fingerprint that a call of `snowflake_new_public_key` returns.
pub(crate) fn new_key(session: &mut Client, arguments: &str) -> String {
    session.value(&format!("SELECT snowflake_new_public_key({arguments})"))
}

/// What is changed in the text of the extension's functions.
type Changes = &'static [(&'static str, &'static str)];

/// Connects to a server whose functions in PL/pgSQL are changed.
fn changed(server: &Server, changes: Changes) -> Client {
    let mut session = server.connect();
    for (from, to) in changes {
        let functions = "SELECT pg_get_functiondef(p.oid) FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
                         JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'snowflake_id'
                         WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND p.prokind = 'f'
                             AND strpos(pg_get_functiondef(p.oid), $1) > 0";
        let functions = session.query(functions, &[from]).unwrap();
        assert!(!functions.is_empty(), "no function has {from}");
        for function in functions {
            execute(&mut session, &function.get::<_, String>(0).replace(from, to));
        }
    }
    session
}

/// The first id that the newest key conceals.
fn newest_first_id(session: &mut Client) -> i64 {
    session.value("SELECT max(first_id) FROM snowflake_public_keys").parse().unwrap()
}

#[test]
fn tokens_are_those_of_two_other_programs() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    let mut rows = 0;
    for row in VECTORS.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = row.split('\t').collect();
        let [key, id, prefix, token] = cells[..] else { panic!("{row}") };
        new_key(&mut session, &format!("decode('{key}', 'hex'), for_all => true"));
        assert_eq!(session.value(&format!("SELECT snowflake_conceal('{id}', '{prefix}')")), token);
        assert_eq!(session.value(&format!("SELECT snowflake_reveal('{token}', '{prefix}', true)")), id);
        rows += 1;
    }
    assert!(rows >= 10, "{rows} rows");
    // Each was removed by the next.
    assert_eq!(session.value("SELECT count(*) FROM snowflake_public_keys"), "1");
}

#[test]
fn a_condition_on_a_token_uses_the_primary_key_and_no_plan_shows_the_id() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    execute(
        &mut session,
        "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_next(), item text, owner text DEFAULT 'reader');
         INSERT INTO orders (item) SELECT n::text FROM generate_series(1, 10000) n;
         ANALYZE orders;
         CREATE VIEW shown AS SELECT snowflake_conceal(id, 'ord') AS token, * FROM orders;
         CREATE ROLE reader LOGIN;
         GRANT SELECT ON orders, shown TO reader;
         ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
         CREATE POLICY own ON orders USING (owner = current_user)",
    );
    new_key(&mut session, "");
    let id: i64 = session.value("SELECT id FROM orders WHERE item = '5000'").parse().unwrap();
    let token = conceal(&mut session, id);
    for user in ["postgres", "reader"] {
        let mut session = server.connect_as(user);
        for table in ["orders", "shown"] {
            for condition in [
                format!("id = snowflake_reveal('{token}', 'ord')"),
                format!("id = ANY (snowflake_reveal(ARRAY['{token}', 'x'], 'ord'))"),
            ] {
                let query = format!("SELECT item FROM {table} WHERE {condition}");
                let plan = explain(&mut session, "ANALYZE, VERBOSE, TIMING OFF, SUMMARY OFF", &query);
                let is_indexed = plan.contains("Index Cond") || plan.contains("Bitmap Index Scan");
                assert!(is_indexed && plan.contains("snowflake_reveal"), "{plan}");
                assert!(!plan.contains(&id.to_string()), "{plan}");
                assert_eq!(session.value(&query), "5000");
            }
        }
        execute(&mut session, "SET plan_cache_mode = force_generic_plan");
        execute(&mut session, "PREPARE by_token AS SELECT item FROM shown WHERE id = snowflake_reveal($1, 'ord')");
        let plan = plan(&mut session, &format!("EXECUTE by_token('{token}')"));
        assert!(plan.contains("Index Cond: (") && plan.contains("snowflake_reveal($1"), "{plan}");
        let rows = session.query(&format!("EXECUTE by_token('{token}')"), &[]).unwrap();
        assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<String>>(), ["5000"]);
    }
}

#[test]
fn what_is_not_a_token_is_null_or_refused_without_being_shown() {
    wrong_calls_are_refused(&[]);
}

fn wrong_calls_are_refused(changes: Changes) {
    let server = Server::drawing().config("log_statement", "none").start_with_extension();
    let mut session = changed(&server, changes);
    let refusal = refused(session.simple_query("SELECT snowflake_conceal(1, 'ord')"));
    assert_refused_as(&refusal, "55000", "this database has no key for public ids");
    assert!(refusal.hint.unwrap().contains("snowflake_new_public_key()"));
    assert_eq!(reveal(&mut session, TOKEN_OF_1), None);

    new_key(&mut session, KEY);
    let wrong = [
        "",
        "ord",
        "ord_",
        "ord_27xhgkv8783g9brj0n2t3mdpe9",
        "ord_27xhgkv8783g9brj0n2t3mdpe",
        "ord_27xhgkv8783g9brj0n2t3mdpe88",
        // 2 + 8, the same number modulo 2^128.
        "ord_a7xhgkv8783g9brj0n2t3mdpe8",
        "ORD_27XHGKV8783G9BRJ0N2T3MDPE8",
        "ord_27XHGKV8783G9BRJ0N2T3MDPE8",
        "usr_27xhgkv8783g9brj0n2t3mdpe8",
        " ord_27xhgkv8783g9brj0n2t3mdpe8",
        "ord_27xhgkv8783g9brj0n2t3mdpe\u{e9}",
    ];
    let start = server.log_length();
    for text in wrong {
        assert_eq!(reveal(&mut session, text), None, "{text:?}");
        let refusal = refused(session.query("SELECT snowflake_reveal($1, 'ord', true)", &[&text]));
        let message = "the text is not a public id of this database with the prefix \"ord\"";
        assert_refused_as(&refusal, "22023", message);
        assert_eq!(refusal.detail, None);
        let refusal = refused(session.query("SELECT snowflake_reveal(ARRAY[$1::text], 'ord', true)", &[&text]));
        assert_refused_as(&refusal, "22023", message);
    }
    // One dimension, whatever the argument has.
    let all = "snowflake_reveal(ARRAY[[NULL, 'x'], [snowflake_conceal(7, 'ord'), snowflake_conceal(8, 'ord')]], 'ord')";
    assert_eq!(found(&mut session, all).as_deref(), Some("{NULL,NULL,7,8}"));
    let all: Vec<Option<i64>> = session
        .query_one("SELECT snowflake_reveal($1::text[], 'ord')", &[&[Some(TOKEN_OF_1), None, Some("x")].as_slice()])
        .unwrap()
        .get(0);
    assert_eq!(all, [Some(1), None, None]);
    assert_eq!(found(&mut session, "snowflake_reveal('{}'::text[], 'ord')"), Some("{}".to_owned()));

    for prefix in ["", "Ord", "ord_", "_ord", "o-d", "abcdefghijklmnopq", "\u{f6}rd"] {
        for call in ["conceal(1, $1)", "reveal('x', $1)", "reveal(ARRAY['x'], $1)", "reveal('{}'::text[], $1)"] {
            let refusal = refused(session.query(&format!("SELECT snowflake_{call}"), &[&prefix]));
            assert_refused_as(&refusal, "22023", &format!("\"{prefix}\" is not a prefix of public ids"));
        }
    }
    for call in [
        "conceal(NULL, 'ord')",
        "conceal(1, NULL)",
        "reveal(NULL::text, 'ord', true)",
        "reveal('x', NULL, true)",
        "reveal(NULL::text[], 'ord')",
    ] {
        assert_eq!(found(&mut session, &format!("snowflake_{call}")), None, "{call}");
    }
    for (call, sqlstate, message) in [
        ("'\\x00'", "22023", "key of 1 bytes is outside the range 16..64".to_owned()),
        ("decode(repeat('00', 65), 'hex')", "22023", "key of 65 bytes is outside the range 16..64".to_owned()),
        ("first_id => 7, for_all => true", "22023", "first_id 7 cannot be given for a key for all ids".to_owned()),
        ("first_id => 7", "55000", "ids from first_id 7 on may have been concealed already".to_owned()),
        (
            "first_id => -9223372036854775808, force => true",
            "23505",
            "there is another key for public ids from first_id -9223372036854775808 on, or this key with another \
             first_id"
                .to_owned(),
        ),
    ] {
        let refusal = refused(session.simple_query(&format!("SELECT snowflake_new_public_key({call})")));
        assert_refused_as(&refusal, sqlstate, &message);
        assert!(!format!("{refusal:?}").contains("\\x"), "{refusal:?}");
    }
    for (level, is_refused) in [("READ UNCOMMITTED", false), ("REPEATABLE READ", true), ("SERIALIZABLE", true)] {
        execute(&mut session, &format!("BEGIN ISOLATION LEVEL {level}"));
        let made = session.simple_query("SELECT snowflake_new_public_key()");
        assert_eq!(made.err().map(|error| refused::<()>(Err(error)).sqlstate), is_refused.then(|| "25001".to_owned()));
        execute(&mut session, "ROLLBACK");
    }

    let any = ["-9223372036854775808", "-1", "0", "9223372036854775807"];
    for id in any {
        let token = session.value(&format!("SELECT snowflake_conceal('{id}', 'ord')"));
        assert_eq!(reveal(&mut session, &token), Some(id.parse().unwrap()));
    }
    // Parameters and keys are in statements alone, which only the client's settings log.
    let log = server.log_since(start);
    assert!(log.contains("is not a public id") && !log.contains("000102030405"), "{log}");
}

#[test]
fn an_index_and_a_generated_column_are_refused() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    new_key(&mut session, "");
    execute(&mut session, "CREATE TABLE t (id bigint)");
    for statement in [
        "CREATE INDEX ON t (snowflake_conceal(id, 'ord'))",
        "ALTER TABLE t ADD COLUMN token text GENERATED ALWAYS AS (snowflake_conceal(id, 'ord')) STORED",
    ] {
        assert_eq!(refused(session.batch_execute(statement)).sqlstate, "42P17");
    }
}

#[test]
fn each_id_keeps_its_token_when_new_keys_are_made() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    let old = new_key(&mut session, KEY);
    let first = session.draw();
    let token = conceal(&mut session, first);
    let mut tokens = vec![(first, token)];
    for turn in 1..=3 {
        new_key(&mut session, "");
        let begins = newest_first_id(&mut session);
        // The id before the new key's first one still has the former key's token.
        tokens.push((begins - 1, conceal(&mut session, begins - 1)));
        server.freeze_clock(noon() + turn * 12_000);
        let id = session.draw();
        assert!(id >= begins);
        tokens.push((id, conceal(&mut session, id)));
    }
    for (id, token) in &tokens {
        assert_eq!(conceal(&mut session, *id), *token);
        assert_eq!(reveal(&mut session, token), Some(*id));
    }
    // A leaked key forges old ids only: its token of a later id is none.
    let (last, _) = tokens.last().unwrap();
    let mut other = server.connect_to("template1");
    execute(&mut other, "CREATE EXTENSION snowflake_id");
    assert_eq!(new_key(&mut other, KEY), old);
    let forged = conceal(&mut other, *last);
    assert_eq!(reveal(&mut other, &forged), Some(*last));
    assert_eq!(reveal(&mut session, &forged), None);
    let forged = conceal(&mut other, tokens[1].0);
    assert_eq!(reveal(&mut session, &forged), Some(tokens[1].0));
    // And the newest one forges none of an earlier id.
    let newest = session.value("SELECT encode(key, 'hex') FROM snowflake_public_keys ORDER BY first_id DESC LIMIT 1");
    new_key(&mut other, &format!("decode('{newest}', 'hex'), for_all => true"));
    let forged = conceal(&mut other, first);
    assert_eq!(reveal(&mut other, &forged), Some(first));
    assert_eq!(reveal(&mut session, &forged), None);

    // A key that is deleted takes its tokens along, and so does one for all ids.
    execute(&mut session, &format!("DELETE FROM snowflake_public_keys WHERE fingerprint = '{old}'"));
    assert_eq!(reveal(&mut session, &tokens[0].1), None);
    assert_eq!(reveal(&mut session, &tokens[2].1), Some(tokens[2].0));
    let refusal = refused(session.query("SELECT snowflake_conceal(0, 'ord')", &[]));
    assert_refused_as(&refusal, "55000", "no key conceals ids before the first key's");
    new_key(&mut session, "for_all => true");
    for (id, token) in &tokens {
        assert_eq!(reveal(&mut session, token), None);
        let token = conceal(&mut session, *id);
        assert_eq!(reveal(&mut session, &token), Some(*id));
    }
}

/// The transactions have begun, and have used keys, before another session makes one. They see it
/// before it begins, whatever their snapshot is.
#[test]
fn a_transaction_sees_a_new_key_before_it_begins() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut maker = server.connect();
    new_key(&mut maker, KEY);
    let mut levels = Vec::new();
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let mut session = server.connect();
        execute(&mut session, &format!("BEGIN ISOLATION LEVEL {level}"));
        let id = session.draw();
        let token = conceal(&mut session, id);
        levels.push((session, id, token));
    }
    new_key(&mut maker, "");
    let begins = newest_first_id(&mut maker);
    server.freeze_clock(noon() + 12_000);
    let id = maker.draw();
    assert!(id >= begins);
    let token = conceal(&mut maker, id);
    for (session, old_id, old_token) in &mut levels {
        // A token of a key that the session does not know yet is tried again.
        assert_eq!(reveal(session, &token), Some(id));
        assert_eq!(conceal(session, id), token);
        assert_eq!(conceal(session, *old_id), *old_token);
        assert_eq!(reveal(session, old_token), Some(*old_id));
        execute(session, "COMMIT");
    }
}

/// As above, without a call of reveal in between, which reads the keys as well.
#[test]
fn a_transaction_conceals_a_new_id_with_the_new_key() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut maker = server.connect();
    new_key(&mut maker, KEY);
    let mut session = server.connect();
    execute(&mut session, "BEGIN ISOLATION LEVEL REPEATABLE READ");
    let id = session.draw();
    conceal(&mut session, id);
    new_key(&mut maker, "");
    let begins = newest_first_id(&mut maker);
    server.freeze_clock(noon() + 12_000);
    for id in [begins, begins + 1, session.draw()] {
        assert_eq!(conceal(&mut session, id), conceal(&mut maker, id));
    }
}

#[test]
fn a_key_that_is_rolled_back_is_forgotten() {
    a_session_sees_the_keys_that_it_has_made(&[]);
}

fn a_session_sees_the_keys_that_it_has_made(changes: Changes) {
    let server = Server::drawing().start_with_extension();
    let mut session = changed(&server, changes);
    // The first one, with its table.
    execute(&mut session, "BEGIN");
    new_key(&mut session, KEY);
    assert_eq!(conceal(&mut session, 1), TOKEN_OF_1);
    execute(&mut session, "ROLLBACK");
    assert_eq!(refused(session.query("SELECT snowflake_conceal(1, 'ord')", &[])).sqlstate, "55000");
    execute(&mut session, "BEGIN; SAVEPOINT s");
    new_key(&mut session, KEY);
    assert_eq!(reveal(&mut session, TOKEN_OF_1), Some(1));
    execute(&mut session, "ROLLBACK TO s");
    assert_eq!(reveal(&mut session, TOKEN_OF_1), None);
    execute(&mut session, "COMMIT");

    new_key(&mut session, KEY);
    execute(&mut session, "BEGIN");
    assert_eq!(conceal(&mut session, 1), TOKEN_OF_1);
    execute(&mut session, "SAVEPOINT s");
    new_key(&mut session, "for_all => true");
    let token = conceal(&mut session, 1);
    assert_ne!(token, TOKEN_OF_1);
    assert_eq!(reveal(&mut session, &token), Some(1));
    execute(&mut session, "ROLLBACK TO s");
    assert_eq!(conceal(&mut session, 1), TOKEN_OF_1);
    assert_eq!(reveal(&mut session, &token), None);
    execute(&mut session, "COMMIT");
    assert_eq!(conceal(&mut session, 1), TOKEN_OF_1);
}

#[test]
fn a_transaction_that_keeps_a_new_key_for_too_long_is_refused() {
    a_late_commit_is_refused(&[]);
}

fn a_late_commit_is_refused(changes: Changes) {
    let Some(server) = Server::drawing().config("max_prepared_transactions", "2").start_frozen(noon()) else { return };
    let mut session = changed(&server, changes);
    // The first key conceals all ids, so it cannot come too late.
    execute(&mut session, "BEGIN");
    new_key(&mut session, KEY);
    server.freeze_clock(noon() + 60_000);
    execute(&mut session, "COMMIT");

    execute(&mut session, "BEGIN");
    new_key(&mut session, "");
    server.freeze_clock(noon() + 64_000);
    execute(&mut session, "COMMIT");
    assert_eq!(session.value("SELECT count(*) FROM snowflake_public_keys"), "2");

    execute(&mut session, "BEGIN");
    new_key(&mut session, "");
    server.freeze_clock(noon() + 70_000);
    let refusal = refused(session.batch_execute("COMMIT"));
    assert_refused_as(&refusal, "55000", "the transaction has kept a new key for too long");
    assert_eq!(session.value("SELECT count(*) FROM snowflake_public_keys"), "2");

    // One that was rolled back to a savepoint does not count.
    execute(&mut session, "BEGIN; SAVEPOINT s");
    new_key(&mut session, "");
    execute(&mut session, "ROLLBACK TO s");
    server.freeze_clock(noon() + 80_000);
    execute(&mut session, "COMMIT");

    execute(&mut session, "BEGIN");
    new_key(&mut session, "");
    let refusal = refused(session.batch_execute("PREPARE TRANSACTION 'key'"));
    assert_refused_as(&refusal, "0A000", "cannot PREPARE a transaction that has made a key for public ids");
    execute(&mut session, "ROLLBACK");
}

/// Neither after an advance nor after a restart has this server drawn an id that is ahead.
#[test]
fn a_new_key_begins_after_ids_that_are_ahead_of_the_clock() {
    ids_ahead_of_the_clock_keep_their_tokens(&[]);
}

fn ids_ahead_of_the_clock_keep_their_tokens(changes: Changes) {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = changed(&server, changes);
    new_key(&mut session, KEY);
    let in_an_hour: i64 = session.value("SELECT snowflake_min(now() + '1 hour')").parse().unwrap();
    let token = conceal(&mut session, in_an_hour);
    execute(&mut session, "BEGIN");
    new_key(&mut session, "");
    assert!(newest_first_id(&mut session) < in_an_hour);
    execute(&mut server.connect(), &format!("SELECT snowflake_advance({in_an_hour})"));
    let refusal = refused(session.batch_execute("COMMIT"));
    assert_refused_as(&refusal, "55000", "the transaction has kept a new key for too long");

    for _ in 0..2 {
        let refusal =
            refused(session.simple_query(&format!("SELECT snowflake_new_public_key(first_id => {in_an_hour})")));
        assert_refused_as(
            &refusal,
            "55000",
            &format!("ids from first_id {in_an_hour} on may have been concealed already"),
        );
        execute(&mut session, "BEGIN");
        new_key(&mut session, "");
        assert!(newest_first_id(&mut session) > in_an_hour);
        assert_eq!(conceal(&mut session, in_an_hour), token);
        execute(&mut session, "ROLLBACK");
        server.restart_at(noon());
        session = server.connect();
    }
}

/// A layout with 16 ids a millisecond lets one statement draw 12 seconds of ids.
#[test]
fn a_burst_of_ids_that_run_ahead_of_the_clock_gets_no_key_that_is_being_committed() {
    let server = Server::drawing()
        .set("layout", "time:41 worker:10 sequence:4 unit:1ms epoch:2025-01-01T00:00:00Z")
        .set("max_borrow", "1min")
        .config("synchronous_commit", "local")
        .config("synchronous_standby_names", "none");
    let Some(server) = server.start_frozen(noon()) else { return };
    let mut session = server.connect();
    new_key(&mut session, KEY);
    let too_soon = "SELECT snowflake_new_public_key(first_id => snowflake_min(now() + '1 min'))";
    assert_eq!(refused(session.simple_query(too_soon)).sqlstate, "55000");

    // Its commit waits for a standby that does not come.
    let mut maker = server.connect();
    execute(&mut maker, "SET synchronous_commit = on");
    let maker = Running::start(maker, "SELECT 1::bigint FROM snowflake_new_public_key()");
    let waits = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {} AND wait_event = 'SyncRep'", maker.pid);
    wait_until("the commit to wait", || session.value(&waits) == "1");
    let drawn = session.ids("SELECT snowflake_next() FROM generate_series(1, 12000 * 16)").unwrap();
    let last = *drawn.last().unwrap();
    let token = conceal(&mut session, last);
    execute(&mut session, &format!("SELECT pg_cancel_backend({})", maker.pid));
    maker.end().1.unwrap();
    assert_eq!(session.value("SELECT count(*) FROM snowflake_public_keys"), "2");
    assert_eq!(conceal(&mut session, last), token);
}

/// The second one would begin with the same id, 10 seconds ahead of the last one.
#[test]
fn keys_that_are_made_within_a_moment_begin_one_after_the_other() {
    keys_begin_one_after_the_other(&[]);
}

fn keys_begin_one_after_the_other(changes: Changes) {
    let server = Server::drawing().start_with_extension();
    let mut session = changed(&server, changes);
    new_key(&mut session, KEY);
    execute(&mut session, "SELECT snowflake_advance(snowflake_min(now() + '1 hour'))");
    let first_ids = [(); 3].map(|()| {
        new_key(&mut session, "");
        newest_first_id(&mut session)
    });
    assert_eq!(first_ids, [0, 1, 2].map(|more| first_ids[0] + more));
    for id in first_ids {
        let token = conceal(&mut session, id);
        assert_eq!(reveal(&mut session, &token), Some(id));
    }
    assert_eq!(session.value("SELECT count(*) FROM snowflake_public_keys"), "4");
}

#[test]
fn a_parallel_query_conceals_and_reveals() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    new_key(&mut session, "");
    execute(
        &mut session,
        "CREATE TABLE orders AS SELECT snowflake_next() AS id FROM generate_series(1, 20000);
         ANALYZE orders;
         SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
         SET max_parallel_workers_per_gather = 2",
    );
    let query = "SELECT count(*), count(DISTINCT snowflake_conceal(id, 'ord')) FROM orders \
                 WHERE snowflake_reveal(snowflake_conceal(id, 'ord'), 'ord', true) = id";
    let plan = explain(&mut session, "ANALYZE, TIMING OFF", query);
    assert!(plan.contains("Workers Launched: 2"), "{plan}");
    let row = session.query_one(query, &[]).unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (20_000, 20_000));
}

#[test]
fn more_prefixes_than_are_kept_have_tokens_of_their_own() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    new_key(&mut session, "");
    let prefixes = "(SELECT 'p' || chr(97 + n / 10) || chr(97 + n % 10) AS prefix FROM generate_series(0, 199) n) p";
    for _ in 0..2 {
        let sql = format!("SELECT count(DISTINCT substr(snowflake_conceal(1, prefix), 5)) FROM {prefixes}");
        assert_eq!(session.value(&sql), "200");
        let sql =
            format!("SELECT bool_and(snowflake_reveal(snowflake_conceal(1, prefix), prefix) = 1) FROM {prefixes}");
        assert_eq!(session.value(&sql), "true");
    }
}

#[test]
fn only_the_owner_reads_and_makes_keys_whatever_the_default_privileges_are() {
    keys_are_the_owners_alone(&[]);
}

fn keys_are_the_owners_alone(changes: Changes) {
    let server = Server::drawing().start_with_extension();
    let mut session = changed(&server, changes);
    execute(
        &mut session,
        "CREATE ROLE \"any one\" LOGIN; CREATE ROLE maker LOGIN;
         GRANT EXECUTE ON FUNCTION snowflake_new_public_key, snowflake_public_keys TO maker;
         ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO \"any one\", PUBLIC",
    );
    let mut any_one = server.connect_as("any one");
    for call in ["snowflake_new_public_key()", "snowflake_public_keys()"] {
        assert_eq!(refused(any_one.query(&format!("SELECT {call}"), &[])).sqlstate, "42501");
    }
    let mut maker = server.connect_as("maker");
    new_key(&mut maker, KEY);
    for session in [&mut any_one, &mut maker] {
        assert_eq!(conceal(session, 1), TOKEN_OF_1);
        assert_eq!(reveal(session, TOKEN_OF_1), Some(1));
        for statement in ["TABLE snowflake_public_keys", "DELETE FROM snowflake_public_keys"] {
            assert_eq!(refused(session.batch_execute(statement)).sqlstate, "42501");
        }
    }
    // What one who may run the function gets makes the same keys elsewhere. Only those that have
    // begun are forced.
    let later = session.value("SELECT snowflake_min(now() + '1 hour')");
    new_key(&mut maker, &format!("first_id => {later}"));
    let statements: Vec<String> =
        maker.query("SELECT snowflake_public_keys()", &[]).unwrap().iter().map(|row| row.get(0)).collect();
    let keys = "SELECT string_agg(concat_ws(' ', fingerprint, first_id, key), ',' ORDER BY first_id) \
                FROM snowflake_public_keys";
    let mut other = server.connect_to("template1");
    execute(&mut other, "CREATE EXTENSION snowflake_id");
    for _ in 0..2 {
        execute(&mut other, &statements.join("\n"));
        assert_eq!(other.value(keys), session.value(keys));
    }
    let forced: Vec<bool> = statements.iter().map(|statement| statement.contains("force => true")).collect();
    assert_eq!(forced, [true, false]);

    // Statistics hold no key either, which a dump may have without the table's rows.
    execute(&mut session, "ANALYZE snowflake_public_keys");
    let described = "SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_statistic, pg_attribute
                     WHERE starelid = 'snowflake_public_keys'::regclass AND attrelid = starelid AND attnum = staattnum";
    assert_eq!(session.value(described), "fingerprint first_id created_at");
}

/// A subscriber may have the key already. Another one is refused by the trigger, because a
/// constraint's words may come with the row, in the log of a subscription (PostgreSQL 18).
#[test]
fn a_key_that_is_there_is_skipped_and_another_one_is_refused_also_in_a_subscription() {
    the_trigger_skips_or_refuses(&[]);
}

fn the_trigger_skips_or_refuses(changes: Changes) {
    let server = Server::drawing().start_with_extension();
    let mut session = changed(&server, changes);
    new_key(&mut session, KEY);
    new_key(&mut session, "");
    for role in ["origin", "replica"] {
        execute(&mut session, &format!("SET session_replication_role = {role}"));
        let into = "INSERT INTO snowflake_public_keys (fingerprint, first_id, key)";
        let again = "INSERT INTO snowflake_public_keys TABLE snowflake_public_keys";
        assert_eq!(session.execute(again, &[]).unwrap(), 0);
        for other in [
            "SELECT 'other', first_id, decode(repeat('03', 32), 'hex') FROM snowflake_public_keys",
            "SELECT fingerprint, first_id + 1, key FROM snowflake_public_keys WHERE first_id < 0",
        ] {
            let refusal = refused(session.batch_execute(&format!("{into} {other}")));
            assert_eq!(refusal.sqlstate, "23505");
            assert!(refusal.message.starts_with("there is another key for public ids"), "{refusal:?}");
        }
    }
    assert_eq!(session.value("SELECT count(*) FROM snowflake_public_keys"), "2");
}

/// By default, a server logs the statement that has failed. One of the vault's has a key.
#[test]
fn a_statement_that_adds_a_key_is_not_logged_when_it_is_refused() {
    a_refused_statement_is_not_logged(&[]);
}

fn a_refused_statement_is_not_logged(changes: Changes) {
    let server = Server::drawing().start_with_extension();
    let mut session = changed(&server, changes);
    new_key(&mut session, "");
    let start = server.log_length();
    // A member of a fleet that is late, and one that has another first key.
    for first_id in ["7", "-9223372036854775808, force => true"] {
        refused(session.simple_query(&format!("SELECT snowflake_new_public_key({KEY}, {first_id})")));
    }
    refused(session.simple_query("SELECT 'is logged'::int"));
    let log = server.log_since(start);
    assert!(log.contains("may have been concealed") && log.contains("is logged"), "{log}");
    assert!(!log.contains("0001020304"), "{log}");
}

/// As after REASSIGN OWNED of the superuser who has made the extension. Only a superuser may keep a
/// statement out of the log, unless it is granted.
#[test]
fn an_owner_that_is_not_a_superuser_makes_keys_if_it_may_set_what_is_logged() {
    let server = Server::drawing().start();
    let mut session = server.connect();
    execute(
        &mut session,
        "CREATE ROLE maker SUPERUSER; CREATE ROLE owner; GRANT CREATE ON SCHEMA public TO owner;
         SET ROLE maker; CREATE EXTENSION snowflake_id; RESET ROLE; REASSIGN OWNED BY maker TO owner",
    );
    let refusal = refused(session.query("SELECT snowflake_new_public_key()", &[]));
    assert_refused_as(&refusal, "42501", "permission denied to set parameter \"log_min_error_statement\"");
    execute(&mut session, "GRANT SET ON PARAMETER log_min_error_statement TO owner");
    new_key(&mut session, KEY);
    assert_eq!(conceal(&mut session, 1), TOKEN_OF_1);
    let owner = "SELECT relowner::regrole FROM pg_class WHERE oid = 'snowflake_public_keys'::regclass";
    assert_eq!(session.value(owner), "owner");
}

/// Whoever makes the table first would know the keys.
#[test]
fn a_table_that_another_role_has_made_is_not_read() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    execute(&mut session, "CREATE ROLE other LOGIN; GRANT CREATE ON SCHEMA public TO other");
    let mut other = server.connect_as("other");
    execute(
        &mut other,
        &format!(
            "CREATE TABLE snowflake_public_keys (fingerprint text, first_id bigint, created_at timestamptz, key bytea);
             INSERT INTO snowflake_public_keys VALUES ('', -9223372036854775808, now(), {KEY})"
        ),
    );
    for call in ["conceal(1, 'ord')", "reveal('x', 'ord')", "new_public_key()", "public_keys()"] {
        let refusal = refused(session.query(&format!("SELECT snowflake_{call}"), &[]));
        assert_refused_as(&refusal, "55000", "table \"snowflake_public_keys\" was not made by the extension");
    }
    execute(&mut session, "ALTER TABLE snowflake_public_keys OWNER TO CURRENT_USER");
    execute(&mut session, "ALTER TABLE snowflake_public_keys ADD COLUMN note text, DROP COLUMN fingerprint");
    assert_eq!(conceal(&mut session, 1), TOKEN_OF_1);
    for change in ["ALTER COLUMN first_id TYPE numeric", "DROP COLUMN key", "RENAME COLUMN key TO secret"] {
        execute(&mut session, &format!("BEGIN; ALTER TABLE snowflake_public_keys {change}"));
        let refusal = refused(session.query("SELECT snowflake_conceal(1, 'ord')", &[]));
        assert_refused_as(&refusal, "55000", "table \"snowflake_public_keys\" was not made by the extension");
        execute(&mut session, "ROLLBACK");
    }
    // Nor is a view, whose rows are what it computes.
    execute(
        &mut session,
        "ALTER TABLE snowflake_public_keys RENAME TO kept; CREATE VIEW snowflake_public_keys AS TABLE kept",
    );
    assert_eq!(refused(session.query("SELECT snowflake_conceal(1, 'ord')", &[])).sqlstate, "55000");
}

#[test]
fn of_two_sessions_that_make_the_first_key_one_succeeds() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    execute(&mut session, "BEGIN");
    new_key(&mut session, KEY);
    let other = Running::start(server.connect(), "SELECT 1::bigint FROM snowflake_new_public_key()");
    server.wait_until_locked(other.pid);
    execute(&mut session, "COMMIT");
    assert_eq!(refused(other.end().1).sqlstate, "23505");
    assert_eq!(session.value("SELECT count(*) FROM snowflake_public_keys"), "1");

    // Later ones wait for each other, and the second one begins after the first.
    execute(&mut session, "BEGIN");
    new_key(&mut session, "");
    let other =
        Running::start(server.connect(), "SELECT 1::bigint FROM snowflake_new_public_key(first_id => 9e18::bigint)");
    server.wait_until_locked(other.pid);
    execute(&mut session, "COMMIT");
    other.end().1.unwrap();
    assert_unique(&session.ids("SELECT first_id FROM snowflake_public_keys").unwrap());
    assert_eq!(session.value("SELECT count(*) FROM snowflake_public_keys"), "3");
}

#[test]
fn postgrests_domain_shows_and_reads_tokens() {
    a_domain_is_made(&[]);
}

fn a_domain_is_made(changes: Changes) {
    let server = Server::drawing().start_with_extension();
    let mut session = changed(&server, changes);
    new_key(&mut session, KEY);
    the_domain_shows_and_reads_tokens(&mut session);
}

/// Calls the functions of the casts as PostgREST does, which looks them up in `pg_cast`.
pub(crate) fn the_domain_shows_and_reads_tokens(session: &mut Client) {
    execute(
        session,
        "CREATE SCHEMA \"an api\";
         SELECT snowflake_public_domain('\"an api\".order_id', 'ord');
         SET search_path = public, edition;
         SELECT snowflake_public_domain('order_id', 'ord')",
    );
    let functions = session.value("SELECT pronamespace::regnamespace FROM pg_proc WHERE proname = 'snowflake_conceal'");
    for schema in ["\"an api\"", "public"] {
        let (domain, reader) = (format!("{schema}.order_id"), format!("{schema}.read_order_id"));
        // A role that can create objects beside the functions can make one for the domain itself.
        let trap = format!("CREATE FUNCTION {functions}.snowflake_conceal({domain}, text) RETURNS text");
        execute(session, &format!("{trap} LANGUAGE sql AS 'SELECT ''trap''::text'"));
        let shown = session.value(&format!("SELECT {schema}.json(1::{domain})"));
        assert_eq!(shown, format!("\"{TOKEN_OF_1}\""));
        for of in ["text", "json"] {
            let quote = if of == "json" { "\"" } else { "" };
            let call = format!("{reader}('{quote}{TOKEN_OF_1}{quote}'::{of})");
            assert_eq!(found(session, &call).as_deref(), Some("1"));
        }
        assert_eq!(found(session, &format!("{reader}('x'::text)")), None);
        assert_eq!(refused(session.query(&format!("SELECT {reader}('\"x\"'::json)"), &[])).sqlstate, "22023");
        let casts =
            "SELECT count(*) FROM pg_cast WHERE 'DOMAIN'::regtype IN (castsource, casttarget) AND castcontext = 'i'";
        assert_eq!(session.value(&casts.replace("DOMAIN", &domain)), "3");

        // A row is shown, filters find it by the primary key, and a body makes another one.
        execute(
            session,
            &format!(
                "CREATE TABLE {schema}.orders (id {domain} PRIMARY KEY, item text);
                 INSERT INTO {schema}.orders SELECT n, n::text FROM generate_series(1, 1000) n;
                 ANALYZE {schema}.orders"
            ),
        );
        let query =
            |filter: &str| format!("SELECT {schema}.json(id) #>> '{{}}' || item FROM {schema}.orders WHERE {filter}");
        // The texts are of unknown type.
        let equals = query(&format!("id = {reader}('{TOKEN_OF_1}')"));
        let is_in = query(&format!("id = ANY ((SELECT {reader}(unnest('{{x,{TOKEN_OF_1}}}'::text[]))))"));
        for query in [&equals, &is_in] {
            assert_eq!(session.value(query), format!("{TOKEN_OF_1}1"));
        }
        let plan = plan(session, &equals);
        assert!(plan.contains("Index Cond"), "{plan}");
        let body = |token: &str| {
            format!(
                "WITH body AS (SELECT '[{{\"id\": \"{token}\", \"item\": \"new\"}}]'::json AS sent)
                 INSERT INTO {schema}.orders SELECT {reader}(r.id), r.item
                 FROM body, json_to_recordset(body.sent) AS r (id json, item text) RETURNING id"
            )
        };
        let new = session.value("SELECT snowflake_conceal(-7::bigint, 'ord')");
        assert_eq!(session.ids(&body(&new)).unwrap(), [-7]);
        assert_eq!(refused(session.query(&body("ord_x"), &[])).sqlstate, "22023");
    }
    let refusal = refused(session.query("SELECT snowflake_public_domain('other', 'Ord')", &[]));
    assert_refused_as(&refusal, "22023", "\"Ord\" is not a prefix of public ids");
    // The schema is the last part but one.
    let refusal = refused(session.query("SELECT snowflake_public_domain('public.none.other', 'ord')", &[]));
    assert_eq!(refusal.sqlstate, "3F000");
}

/// Statistics of statements and the text of functions show neither keys nor ids.
#[test]
fn a_session_whose_parameters_are_logged_logs_the_token_and_not_the_id() {
    let server = Server::drawing().config("log_min_duration_statement", "0").start_with_extension();
    let mut session = server.connect();
    new_key(&mut session, KEY);
    let id = session.draw();
    let token = conceal(&mut session, id);
    let start = server.log_length();
    let mut client = server.connection().connect(NoTls).unwrap();
    client.query("SELECT snowflake_reveal($1, 'ord', true) IS NULL", &[&token]).unwrap();
    let log = server.log_since(start);
    assert!(log.contains(&token) && !log.contains(&id.to_string()), "{log}");
}

/// What the functions do wrong, the changes of their text, and the check that finds it.
struct Lie {
    what: &'static str,
    changes: Changes,
    found_by: fn(Changes),
}

const LIES: [Lie; 15] = [
    Lie {
        what: "the trigger is not ALWAYS",
        changes: &[("ENABLE ALWAYS TRIGGER", "ENABLE TRIGGER")],
        found_by: the_trigger_skips_or_refuses,
    },
    Lie {
        what: "another key with the same first id is skipped",
        changes: &[("bool_and(k.first_id = $1 AND k.key = $2)", "bool_and(k.first_id = $1)")],
        found_by: the_trigger_skips_or_refuses,
    },
    Lie {
        what: "another key is left to the constraint",
        changes: &[("IF NOT is_known THEN", "IF false THEN")],
        found_by: the_trigger_skips_or_refuses,
    },
    Lie {
        what: "no force is needed",
        changes: &[("AND snowflake_plan.begins_too_soon(first_id) THEN", "AND false THEN")],
        found_by: wrong_calls_are_refused,
    },
    Lie {
        what: "a key is made with an old snapshot",
        changes: &[("NOT IN ('read committed', 'read uncommitted')", "IS NULL")],
        found_by: wrong_calls_are_refused,
    },
    Lie {
        what: "a key of any length is taken",
        changes: &[
            ("snowflake_plan.public_key_fingerprint(new_key)", "md5(new_key)"),
            ("CHECK (octet_length(key) BETWEEN 16 AND 64)", ""),
        ],
        found_by: wrong_calls_are_refused,
    },
    Lie {
        what: "a session goes on with the keys from before it made one",
        changes: &[("PERFORM snowflake_plan.public_key_made(", "PERFORM concat(")],
        found_by: a_session_sees_the_keys_that_it_has_made,
    },
    Lie {
        what: "a late commit is not refused",
        changes: &[("has_keys AND NOT is_for_all AND NOT coalesce(force, false));", "false);")],
        found_by: a_late_commit_is_refused,
    },
    Lie {
        what: "a new key may begin before the last id",
        changes: &[(
            "snowflake_plan.first_id_of_new_key()",
            "public.snowflake_min(clock_timestamp() + interval '10 s')",
        )],
        found_by: ids_ahead_of_the_clock_keep_their_tokens,
    },
    Lie {
        what: "keys that are made within a moment begin with the same id",
        changes: &[("EXIT WHEN NOT is_taken;", "EXIT;")],
        found_by: keys_begin_one_after_the_other,
    },
    Lie {
        what: "default privileges stay",
        changes: &[("AND a.grantee <> c.relowner", "AND false")],
        found_by: keys_are_the_owners_alone,
    },
    Lie {
        what: "the statements for the vault force all keys",
        changes: &[("CASE WHEN snowflake_plan.begins_too_soon(k.first_id) THEN", "CASE WHEN true THEN")],
        found_by: keys_are_the_owners_alone,
    },
    Lie {
        what: "statistics hold the keys",
        changes: &[("ALTER COLUMN key SET STATISTICS 0", "ALTER COLUMN key SET STATISTICS 100")],
        found_by: keys_are_the_owners_alone,
    },
    Lie {
        what: "the domain's functions call any function of that name",
        changes: &[("$1::pg_catalog.int8", "$1")],
        found_by: a_domain_is_made,
    },
    Lie {
        what: "a statement that is refused is logged with its key",
        changes: &[(" SET log_min_error_statement TO 'panic'\n", "")],
        found_by: a_refused_statement_is_not_logged,
    },
];

/// The rules of the library itself have theirs in the core's tests.
#[test]
fn each_lie_of_the_functions_is_found() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    for Lie { what, changes, found_by } in LIES {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| found_by(changes))) else {
            panic!("no check finds that {what}")
        };
        // Not because there is no such text.
        let message = panic.downcast_ref::<String>().map_or("", String::as_str);
        assert!(!message.starts_with("no function has"), "{what}: {message}");
        println!("{what}: {message}");
    }
}
