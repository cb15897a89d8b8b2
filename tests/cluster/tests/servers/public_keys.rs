//! How the keys of public ids get into copies of a database, and where they do not: dumps by every
//! kind of role, restored dumps, templates, standbys, subscriptions, a fleet. `pg_upgrade.rs` has
//! them, too.

use std::path::{Path, PathBuf};

use cluster::{Builder, Draw, Server, faketime_library, refused, skip, wait_until};
use postgres::Client;

use crate::public::{KEY, TOKEN_OF_1, conceal, execute, new_key, reveal};

const KEYS: &str = "SELECT string_agg(concat_ws(' ', fingerprint, first_id, encode(key, 'hex'), created_at), ', ' \
                    ORDER BY first_id) FROM snowflake_public_keys";

/// All that a copy needs to have to give the same tokens.
fn keys(session: &mut Client) -> String {
    session.value(KEYS)
}

/// A server with a database `d` that a role `owner` owns, in which the superuser has made the
/// extension.
fn server() -> Server {
    let server = Server::drawing().start_with_extension();
    execute(
        &mut server.connect(),
        "CREATE ROLE owner LOGIN; CREATE ROLE reader LOGIN IN ROLE pg_read_all_data; CREATE ROLE other LOGIN",
    );
    execute(&mut server.connect(), "CREATE DATABASE d OWNER owner");
    execute(&mut server.connect_to("d"), "CREATE EXTENSION snowflake_id");
    server
}

/// Runs `pg_dump` of the database `d`, and returns the dump or what it said.
fn try_dump(server: &Server, user: &str, options: &[&str]) -> Result<PathBuf, String> {
    let file = server.data_dir().with_file_name(format!("by_{user}.sql"));
    let mut pg_dump = server.client("pg_dump");
    let output = pg_dump.args(["--username", user]).args(options).arg("--file").arg(&file).arg("d").output().unwrap();
    if output.status.success() { Ok(file) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Restores a dump into a new database, and connects to it.
fn restored(server: &Server, dump: &Path) -> Client {
    execute(&mut server.connect(), "DROP DATABASE IF EXISTS copy WITH (FORCE)");
    execute(&mut server.connect(), "CREATE DATABASE copy");
    server.restore(dump, "copy", &[]);
    server.connect_to("copy")
}

const ROLES: [&str; 4] = ["postgres", "owner", "reader", "other"];

#[test]
fn a_database_without_a_key_is_dumped_by_every_role_and_has_no_table_for_keys() {
    let server = server();
    for role in ROLES {
        let dump = try_dump(&server, role, &[]).unwrap();
        let mut copy = restored(&server, &dump);
        assert_eq!(copy.value("SELECT to_regclass('snowflake_public_keys') IS NULL"), "true");
        new_key(&mut copy, KEY);
        assert_eq!(conceal(&mut copy, 1), TOKEN_OF_1);
    }
}

#[test]
fn a_dump_by_a_role_that_may_read_the_keys_has_them_and_others_must_leave_them_out() {
    let server = server();
    let mut session = server.connect_to("d");
    new_key(&mut session, KEY);
    new_key(&mut session, "");
    let made = keys(&mut session);
    for role in &ROLES[..3] {
        for options in [&[][..], &["--no-owner"], &["--no-privileges"], &["--no-owner", "--no-privileges", "--inserts"]]
        {
            let dump = try_dump(&server, role, options).unwrap();
            let mut copy = restored(&server, &dump);
            assert_eq!(keys(&mut copy), made, "{role}, {options:?}");
            assert_eq!(reveal(&mut copy, TOKEN_OF_1), Some(1));
            // No role that may not read the keys here may read them there.
            let readers = "SELECT string_agg(r.rolname, ' ' ORDER BY 1) FROM pg_roles r WHERE r.rolname !~ '^pg_' \
                           AND has_table_privilege(r.oid, 'snowflake_public_keys', 'SELECT')";
            assert_eq!(copy.value(readers), "postgres reader", "{role}, {options:?}");
            // The copy goes on, and the trigger is there.
            new_key(&mut copy, "");
            execute(&mut copy, "INSERT INTO snowflake_public_keys TABLE snowflake_public_keys");
            assert_eq!(copy.value("SELECT count(*) FROM snowflake_public_keys"), "3");
        }
    }
    let said = try_dump(&server, "other", &[]).unwrap_err();
    assert!(said.contains("permission denied for table snowflake_public_keys"), "{said}");
    let said = try_dump(&server, "other", &["--exclude-table-data=snowflake_public_keys"]).unwrap_err();
    assert!(said.contains("permission denied for table snowflake_public_keys"), "{said}");
    let dump = try_dump(&server, "other", &["--exclude-table=snowflake_public_keys"]).unwrap();
    assert_eq!(reveal(&mut restored(&server, &dump), TOKEN_OF_1), None);

    // What developers get, and what a dump of one table is.
    let without = try_dump(&server, "postgres", &["--exclude-table-data=snowflake_public_keys"]).unwrap();
    let mut copy = restored(&server, &without);
    assert_eq!(reveal(&mut copy, TOKEN_OF_1), None);
    new_key(&mut copy, "");
    assert_ne!(conceal(&mut copy, 1), TOKEN_OF_1);
}

#[test]
fn a_dump_of_the_data_goes_over_the_same_keys_and_not_over_others() {
    let server = server();
    let mut session = server.connect_to("d");
    new_key(&mut session, KEY);
    new_key(&mut session, "");
    let made = keys(&mut session);
    let dump = server.dump("d", "postgres", &["--data-only", "--table=snowflake_public_keys"]);
    server.restore(&dump, "d", &[]);
    assert_eq!(keys(&mut session), made);
    // A key that was lost comes back.
    execute(&mut session, "DELETE FROM snowflake_public_keys WHERE first_id < 0");
    server.restore(&dump, "d", &[]);
    assert_eq!(keys(&mut session), made);
    // Those that are left stop it, because they are others.
    new_key(&mut session, "for_all => true");
    let mut psql = server.client("psql");
    let output = psql.args(["--set=ON_ERROR_STOP=1", "--file"]).arg(&dump).arg("d").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("there is another key for public ids"), "{said}");
    // PostgreSQL shows the beginning of the line, but not the whole key.
    assert!(!said.contains("1d1e1f"), "{said}");
}

#[test]
fn the_keys_outlive_the_extension() {
    let server = server();
    let mut session = server.connect_to("d");
    new_key(&mut session, KEY);
    assert_eq!(refused(session.batch_execute("DROP EXTENSION snowflake_id")).sqlstate, "2BP01");
    execute(&mut session, "DROP EXTENSION snowflake_id CASCADE; CREATE EXTENSION snowflake_id");
    assert_eq!(conceal(&mut session, 1), TOKEN_OF_1);
    // The trigger is made again.
    new_key(&mut session, "");
    execute(&mut session, "INSERT INTO snowflake_public_keys TABLE snowflake_public_keys");
    assert_eq!(session.value("SELECT count(*) FROM snowflake_public_keys"), "2");
}

#[test]
fn a_copy_by_template_and_a_standby_have_the_keys() {
    let primary = server();
    let mut session = primary.connect_to("d");
    new_key(&mut session, KEY);
    drop(session);
    execute(&mut primary.connect(), "CREATE DATABASE copy TEMPLATE d");
    let mut copy = primary.connect_to("copy");
    assert_eq!(reveal(&mut copy, TOKEN_OF_1), Some(1));
    new_key(&mut copy, "for_all => true");
    let mut session = primary.connect_to("d");
    assert_eq!(conceal(&mut session, 1), TOKEN_OF_1);

    // Without feedback, a snapshot that is kept would end when the primary cleans up.
    let standby = primary.standby().config("hot_standby_feedback", "on").start();
    let mut reader = standby.connect_to("d");
    // One transaction sees each new key, by its ids as well as by its tokens.
    execute(&mut reader, "BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(conceal(&mut reader, 1), TOKEN_OF_1);
    for _ in 0..2 {
        new_key(&mut session, "");
        standby.wait_until_replayed(&primary.flushed());
        let first: i64 = session.value("SELECT max(first_id) FROM snowflake_public_keys").parse().unwrap();
        assert_eq!(conceal(&mut reader, first), conceal(&mut session, first));
        new_key(&mut session, &format!("first_id => {first} + 1000000000000"));
        standby.wait_until_replayed(&primary.flushed());
        let token = conceal(&mut session, first + 1_000_000_000_000);
        assert_eq!(reveal(&mut reader, &token), Some(first + 1_000_000_000_000));
    }
    execute(&mut reader, "COMMIT");
    assert_eq!(refused(reader.query("SELECT snowflake_new_public_key()", &[])).sqlstate, "25006");
    standby.promote();
    assert_eq!(conceal(&mut reader, 1), TOKEN_OF_1);
}

/// What a standby has not replayed yet, it cannot know, whatever its clock says. A clock that is an
/// hour ahead is as good as an hour of lag.
#[test]
fn a_standby_trusts_what_it_has_read_by_the_time_of_the_last_transaction_replayed() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let primary = server();
    let mut session = primary.connect_to("d");
    new_key(&mut session, KEY);
    let standby = primary.standby().faketime_from("+1h").start();
    standby.wait_until_replayed(&primary.flushed());
    let mut reader = standby.connect_to("d");
    execute(&mut reader, "BEGIN");
    assert_eq!(conceal(&mut reader, 1), TOKEN_OF_1);
    new_key(&mut session, "");
    standby.wait_until_replayed(&primary.flushed());
    let first: i64 = session.value("SELECT max(first_id) FROM snowflake_public_keys").parse().unwrap();
    assert_eq!(conceal(&mut reader, first), conceal(&mut session, first));
}

fn publisher() -> Builder {
    Server::drawing().config("wal_level", "logical")
}

fn subscribe(subscriber: &Server, publisher: &Server) {
    let conninfo = publisher.conninfo().replace('\'', "''");
    let sql = format!("CREATE SUBSCRIPTION s CONNECTION '{conninfo}' PUBLICATION p");
    execute(&mut subscriber.connect(), &sql);
}

/// The table is one of ALL TABLES from the first key on. Who has the keys before goes on.
#[test]
fn a_subscription_to_all_tables_gets_the_keys() {
    let [publisher, subscriber] =
        [1, 2].map(|number| publisher().set("worker_id", &number.to_string()).start_with_extension());
    let mut session = publisher.connect();
    execute(&mut session, "CREATE PUBLICATION p FOR ALL TABLES");
    // Without keys there is nothing to publish.
    let mut there = subscriber.connect();
    for session in [&mut session, &mut there] {
        execute(session, "CREATE TABLE t (id bigint PRIMARY KEY)");
    }
    subscribe(&subscriber, &publisher);
    let arrives = |there: &mut Client, session: &mut Client, id: i64| {
        execute(session, &format!("INSERT INTO t VALUES ({id})"));
        wait_until("a row", || there.value(&format!("SELECT count(*) FROM t WHERE id = {id}")) == "1");
    };
    arrives(&mut there, &mut session, 1);

    // The statement runs at the subscriber first, because a subscriber without the table stops.
    new_key(&mut there, &format!("{KEY}, first_id => -9223372036854775808"));
    new_key(&mut session, KEY);
    arrives(&mut there, &mut session, 2);
    assert_eq!(reveal(&mut there, TOKEN_OF_1), Some(1));
    execute(&mut there, "ALTER SUBSCRIPTION s REFRESH PUBLICATION");
    wait_until("the table to be copied", || {
        there.value("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'") == "0"
    });

    // From then on, keys come by themselves.
    new_key(&mut session, "");
    arrives(&mut there, &mut session, 3);
    assert_eq!(there.value(&KEYS.replace(", created_at", "")), session.value(&KEYS.replace(", created_at", "")));
    new_key(&mut session, "for_all => true");
    arrives(&mut there, &mut session, 4);
    assert_eq!(conceal(&mut there, 1), conceal(&mut session, 1));
    assert_eq!(reveal(&mut there, TOKEN_OF_1), None);
    // Not even a key that was there before, or one that goes, is in conflict (PostgreSQL 18).
    assert!(!subscriber.log().contains("\\x0001020304"), "{}", subscriber.log());
}

/// The same, in the other order: replication stops, and goes on by itself.
#[test]
fn a_subscriber_without_the_table_goes_on_when_it_has_the_key() {
    let [publisher, subscriber] =
        [1, 2].map(|number| publisher().set("worker_id", &number.to_string()).start_with_extension());
    let mut session = publisher.connect();
    let mut there = subscriber.connect();
    execute(&mut session, "CREATE PUBLICATION p FOR ALL TABLES");
    for session in [&mut session, &mut there] {
        execute(session, "CREATE TABLE t (id bigint PRIMARY KEY)");
    }
    subscribe(&subscriber, &publisher);
    new_key(&mut session, KEY);
    wait_until("the error", || subscriber.log().contains("\"public.snowflake_public_keys\" does not exist"));
    execute(&mut session, "INSERT INTO t VALUES (1)");
    new_key(&mut there, KEY);
    wait_until("the row", || there.value("SELECT count(*) FROM t") == "1");
    assert_eq!(reveal(&mut there, TOKEN_OF_1), Some(1));
}

#[test]
fn a_fleet_gives_the_same_tokens_after_the_statements_ran_on_each_member() {
    let members =
        [1, 2, 3].map(|number| Server::drawing().set("worker_id", &number.to_string()).start_with_extension());
    let mut sessions: Vec<Client> = members.iter().map(Server::connect).collect();
    new_key(&mut sessions[0], "");
    let ahead = sessions[0].value("SELECT snowflake_min(now() + '1 hour')");
    new_key(&mut sessions[0], &format!("first_id => {ahead}"));
    let statements = sessions[0].value("SELECT string_agg(s, E'\\n') FROM snowflake_public_keys() s");
    assert!(statements.contains(&format!("first_id => {ahead});")), "{statements}");
    for session in &mut sessions[1..] {
        execute(session, &statements);
        // By mistake, again.
        execute(session, &statements);
    }
    let later: i64 = ahead.parse::<i64>().unwrap() + 1;
    for id in [1, later] {
        let token = conceal(&mut sessions[0], id);
        for session in &mut sessions {
            assert_eq!(conceal(session, id), token);
            assert_eq!(reveal(session, &token), Some(id));
        }
    }
}
