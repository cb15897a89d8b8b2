//! Other sessions, which insert into, lock, change or convert the same tables at the same time; and transactions that come to
//! nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cluster::{Draw, Running, assert_unique, refused, wait_until};
use postgres::Client;

use crate::database::{Database, catalogs, convert, converted};

const FAMILY: &str = "CREATE TABLE parent (id serial PRIMARY KEY, n integer);
    CREATE TABLE child (id serial PRIMARY KEY, parent integer NOT NULL REFERENCES parent);
    INSERT INTO parent VALUES (0, 0)";

/// Starts a call in a session of its own, and waits until it waits for a lock.
#[track_caller]
fn wait_in(database: &Database, session: Client, call: &str) -> Running {
    let waiting = Running::start(session, &format!("SELECT length(s)::bigint FROM snowflake_convert({call}) s"));
    database.wait_until_locked(waiting.pid);
    waiting
}

/// With plans that were made before, and in every way of inserting. A row of the child locks the child first, then the parent.
#[test]
fn sessions_that_insert_meanwhile_lose_nothing() {
    let database = Database::with(FAMILY);
    let over = AtomicBool::new(false);
    let insert = |number: usize| {
        let mut session = database.connect();
        let prepared = session.prepare("INSERT INTO parent (n) VALUES ($1) RETURNING id::bigint").unwrap();
        let mut ids = Vec::new();
        // Relaxed: it only ends the loop. And then twice more.
        let mut left = 2;
        while left > 0 {
            left -= usize::from(over.load(Ordering::Relaxed));
            let n = i32::try_from(number).unwrap();
            let id: i64 = match number % 4 {
                0 => session.query_one(&prepared, &[&n]).unwrap().get(0),
                1 => session.ids(&format!("INSERT INTO parent (n) VALUES ({n}) RETURNING id::bigint")).unwrap()[0],
                2 => {
                    session.batch_execute("INSERT INTO child (parent) VALUES (0)").unwrap();
                    continue;
                }
                _ => {
                    let mut transaction = session.transaction().unwrap();
                    let insert = "INSERT INTO parent (n) VALUES ($1) RETURNING id::bigint";
                    let id: i64 = transaction.query_one(insert, &[&n]).unwrap().get(0);
                    transaction.batch_execute("INSERT INTO parent (n) VALUES (-1)").unwrap();
                    transaction.commit().unwrap();
                    id
                }
            };
            ids.push(id);
        }
        ids
    };
    let ids = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || insert(number))).collect();
        let mut session = database.connect();
        let count = "SELECT count(*) >= 200 FROM parent";
        wait_until("some rows", || session.value(count) == "true");
        let result = convert(&mut session, "'parent', 'id', true");
        // Before anything can fail: else the threads go on.
        over.store(true, Ordering::Relaxed);
        result.unwrap();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let mut session = database.connect();
    let mut stored = session.ids("SELECT id FROM parent WHERE n >= 0").unwrap();
    assert_eq!(assert_unique(&ids), ids.len());
    stored.retain(|id| *id != 0);
    let mut told = ids;
    told.sort_unstable();
    stored.sort_unstable();
    assert_eq!(stored, told);
    assert!(told[0] < 1000 && *told.last().unwrap() > 1000);
}

/// Who stores it has the child first and then looks at the parent. The call must not hold that one by then.
#[test]
fn a_row_that_is_being_stored_in_a_child_is_waited_for() {
    let database = Database::with(FAMILY);
    let mut user = database.connect();
    user.batch_execute("BEGIN; LOCK TABLE child IN ROW EXCLUSIVE MODE").unwrap();
    let waiting = wait_in(&database, database.connect(), "'parent', 'id', true");
    user.batch_execute("INSERT INTO child (parent) VALUES (0); COMMIT").unwrap();
    waiting.end().1.unwrap();
    assert_eq!(user.value("SELECT count(*) FROM child"), "1");
}

/// Each of them has to lock both tables.
#[test]
fn two_conversions_of_related_tables_do_not_block_each_other() {
    for kind in ["integer", "bigint", "integer", "bigint"] {
        let database = Database::with(&format!(
            "CREATE TABLE a (id serial PRIMARY KEY, b {kind});
             CREATE TABLE b (id serial PRIMARY KEY, a {kind} REFERENCES a);
             ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b;
             INSERT INTO a VALUES (1); INSERT INTO b VALUES (1, 1)"
        ));
        // Both wait for the same lock, and go on at the same time.
        let mut first = database.connect();
        first.batch_execute("BEGIN; LOCK TABLE a, b IN ACCESS SHARE MODE").unwrap();
        let waiting: Vec<_> =
            ["'a', 'id', true", "'b', 'id', true"].map(|call| wait_in(&database, database.connect(), call)).into();
        first.batch_execute("COMMIT").unwrap();
        for waiting in waiting {
            waiting.end().1.unwrap();
        }
        let mut session = database.connect();
        session.batch_execute("INSERT INTO a (b) VALUES (1); INSERT INTO b (a) SELECT max(id) FROM a").unwrap();
        assert_eq!(session.value("SELECT count(*) FROM pg_class WHERE relkind = 'S' AND relname LIKE '_\\__%'"), "0");
    }
}

#[test]
fn of_two_conversions_of_one_table_the_second_has_nothing_to_do() {
    let database = Database::with(FAMILY);
    let mut first = database.connect();
    first.batch_execute("BEGIN").unwrap();
    converted(&mut first, "'parent', 'id', true");
    let second = wait_in(&database, database.connect(), "'parent', 'id', true");
    first.batch_execute("COMMIT").unwrap();
    let before = catalogs(&mut first);
    second.end().1.unwrap();
    assert_eq!(before, catalogs(&mut first));
}

/// What was true when the call began may not be when it has its locks.
#[test]
fn a_change_that_is_committed_while_the_call_waits_is_seen() {
    for (change, column) in [
        ("CREATE TABLE late (parent integer REFERENCES parent)", "late.parent"),
        ("ALTER TABLE parent ADD up integer REFERENCES parent", "parent.up"),
        (
            "ALTER TABLE child DROP CONSTRAINT child_parent_fkey; CREATE TABLE late (parent integer REFERENCES parent)",
            "late.parent",
        ),
        (
            "CREATE TABLE late (child integer REFERENCES child); ALTER TABLE child ADD FOREIGN KEY (id) REFERENCES parent",
            "late.child",
        ),
        ("ALTER TABLE parent RENAME TO renamed", "renamed.id"),
        ("CREATE SCHEMA later; ALTER TABLE parent SET SCHEMA later", "later.parent.id"),
        ("ALTER SEQUENCE parent_id_seq RENAME TO renamed", "parent.id"),
        ("ALTER TABLE parent ALTER id DROP DEFAULT; DROP SEQUENCE parent_id_seq", "parent.id"),
        ("ALTER TABLE parent ALTER id TYPE bigint", "parent.id"),
    ] {
        let database = Database::with(FAMILY);
        let mut other = database.connect();
        other.batch_execute(&format!("BEGIN; {change}; LOCK TABLE child")).unwrap();
        let waiting = wait_in(&database, database.connect(), "'app.parent', 'id', true");
        other.batch_execute("COMMIT").unwrap();
        waiting.end().1.unwrap_or_else(|error| panic!("{change}: {error:?}"));
        let mut session = database.connect();
        let (table, column) = column.rsplit_once('.').unwrap();
        let kind = format!(
            "SELECT atttypid::regtype FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attname = '{column}'"
        );
        assert_eq!(session.value(&kind), "bigint", "{change}");
        let draws = "SELECT count(*) FROM pg_attrdef WHERE pg_get_expr(adbin, adrelid) LIKE '%snowflake_next()'";
        assert_eq!(session.value(draws), "1", "{change}");
        assert_eq!(
            session.value("SELECT count(*) FROM pg_class WHERE relkind = 'S' AND relnamespace = 'app'::regnamespace"),
            "1"
        );
    }
}

#[test]
fn a_change_that_takes_the_ground_from_under_the_call_is_an_error() {
    for (change, sqlstates) in [
        ("DROP TABLE child, parent", vec!["42P01", "XX000"]),
        ("ALTER TABLE parent DROP id CASCADE", vec!["42703"]),
        ("ALTER TABLE parent RENAME id TO number", vec!["42703"]),
        (
            "ALTER TABLE child DROP CONSTRAINT child_parent_fkey; ALTER TABLE parent ALTER id TYPE text",
            vec!["42804", "42809", "0A000", "55000", "22023"],
        ),
        ("CREATE VIEW v AS SELECT id FROM parent", vec!["0A000", "2BP01", "55000"]),
        ("INSERT INTO parent VALUES (7)", vec![]),
    ] {
        let database = Database::with(FAMILY);
        let mut other = database.connect();
        other.batch_execute(&format!("BEGIN; LOCK TABLE parent, child; {change}")).unwrap();
        let waiting = wait_in(&database, database.connect(), "'parent', 'id', true");
        other.batch_execute("COMMIT").unwrap();
        let result = waiting.end().1;
        if sqlstates.is_empty() {
            result.unwrap();
        } else {
            let refusal = refused(result);
            assert!(sqlstates.contains(&refusal.sqlstate.as_str()), "{change}: {refusal:?}");
            assert!(refusal.sqlstate != "XX000" || !refusal.message.contains("cache lookup"), "{change}: {refusal:?}");
        }
    }
}

/// A transaction that still sees the catalogs of before.
#[test]
fn a_reference_that_an_old_snapshot_does_not_show_is_not_overlooked() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let database = Database::with(FAMILY);
        let mut session = database.connect();
        session.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT FROM child")).unwrap();
        database.run("CREATE TABLE late (parent integer REFERENCES parent); INSERT INTO late VALUES (0)");
        if convert(&mut session, "'parent', 'id', true").is_ok() {
            session.batch_execute("COMMIT").unwrap();
            let kind =
                "SELECT atttypid::regtype FROM pg_attribute WHERE attrelid = 'late'::regclass AND attname = 'parent'";
            assert_eq!(session.value(kind), "bigint", "{level}");
        }
    }
}

#[test]
fn what_is_rolled_back_has_not_been() {
    let database = Database::with(FAMILY);
    let mut session = database.connect();
    let before = catalogs(&mut session);
    for (begin, end) in [("BEGIN", "ROLLBACK"), ("BEGIN; SAVEPOINT s", "ROLLBACK TO s; COMMIT")] {
        session.batch_execute(begin).unwrap();
        converted(&mut session, "'parent', 'id', true");
        converted(&mut session, "'child', 'id', true");
        session
            .batch_execute("INSERT INTO parent DEFAULT VALUES; INSERT INTO child (parent) SELECT max(id) FROM parent")
            .unwrap();
        session.batch_execute(end).unwrap();
        assert_eq!(before, catalogs(&mut session), "{end}");
    }
    assert_eq!(session.ids("INSERT INTO parent DEFAULT VALUES RETURNING id::bigint").unwrap(), [1]);
}

#[test]
fn a_call_that_is_interrupted_while_it_waits_has_changed_nothing() {
    let database = Database::with(FAMILY);
    let before = catalogs(&mut database.connect());
    let mut user = database.connect();
    user.batch_execute("BEGIN; SELECT FROM child").unwrap();
    let mut impatient = database.connect();
    impatient.batch_execute("SET lock_timeout = '50ms'").unwrap();
    assert_eq!(refused(convert(&mut impatient, "'parent', 'id', true")).sqlstate, "55P03");
    let waiting = wait_in(&database, database.connect(), "'parent', 'id', true");
    user.query("SELECT pg_cancel_backend($1)", &[&waiting.pid]).unwrap();
    assert_eq!(refused(waiting.end().1).sqlstate, "57014");
    user.batch_execute("ROLLBACK").unwrap();
    assert_eq!(before, catalogs(&mut database.connect()));
}
