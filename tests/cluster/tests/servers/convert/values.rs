//! The values of a column must be below the ids that it will draw, or one day an id comes twice.
//! Which rows are checked must not depend on the role that asks, nor on the moment.

use cluster::drawing::noon;
use cluster::{Draw, Refusal, Running, Server, refused};

use super::database::{Database, convert, converted};

/// Asserts that a value is the reason for a refusal.
#[track_caller]
fn assert_names(refusal: &Refusal, value: i64) {
    let text = format!("{} {}", refusal.message, refusal.detail.as_deref().unwrap_or_default());
    assert!(text.contains(&value.to_string()) && refusal.hint.is_some(), "{refusal:?}");
}

#[test]
fn the_last_id_drawn_may_be_stored_already_and_the_next_one_not() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.batch_execute("CREATE TABLE t (id bigint)").unwrap();
    // Ahead of the clock, which stands still.
    session.batch_execute("INSERT INTO t SELECT snowflake_batch(20000)").unwrap();
    converted(&mut session, "'t', 'id'");
    // The conversion draws ids itself, so fewer ids are still to come when it is done.
    let mut refusals = 0;
    for ahead in [1, 2, 3, 5, 10, 1000, 10_000] {
        let id = session.draw() + ahead;
        session.batch_execute(&format!("CREATE TABLE u (id bigint); INSERT INTO u VALUES ({id})")).unwrap();
        match convert(&mut session, "'u', 'id'") {
            Ok(_) => assert!(session.draw() > id),
            refusal => {
                assert_names(&refused(refusal), id);
                refusals += 1;
            }
        }
        session.batch_execute("DROP TABLE u").unwrap();
    }
    assert!(refusals >= 3, "{refusals}");
}

#[test]
fn a_value_from_the_future_is_refused_and_any_other_is_not() {
    for value in ["NULL", "0", "-1", "-9223372036854775808", "2147483648", "snowflake_min(now() - interval '1 second')"]
    {
        let database = Database::with(&format!("CREATE TABLE t (id bigint); INSERT INTO t VALUES (1), ({value})"));
        converted(&mut database.connect(), "'t', 'id'");
    }
    let database = Database::with("CREATE TABLE t (id bigint)");
    let mut session = database.connect();
    for value in ["snowflake_min(now() + interval '1 hour')", "9223372036854775807"] {
        session.batch_execute(&format!("TRUNCATE t; INSERT INTO t VALUES (1), ({value}), (NULL), (-7)")).unwrap();
        let refusal = database.refusal(&mut session, "'t', 'id'");
        let stored = session.value("SELECT max(id) FROM t").parse().unwrap();
        assert_names(&refusal, stored);
    }
    // Deleted rows do not matter.
    session.batch_execute("DELETE FROM t WHERE id > 1").unwrap();
    converted(&mut session, "'t', 'id'");
}

#[test]
fn a_value_from_the_future_is_found_wherever_it_is() {
    let future = i64::MAX;
    for (table, row) in [
        ("CREATE TABLE t (id bigint, day date) PARTITION BY LIST (day); CREATE TABLE t1 PARTITION OF t DEFAULT", "t"),
        ("CREATE TABLE t (id bigint); CREATE TABLE child () INHERITS (t)", "child"),
        ("CREATE TABLE t (id bigint); CREATE INDEX ON t (id) WHERE id < 1000", "t"),
        (
            "CREATE TABLE t (id bigint); ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY low ON t USING (id < 9)",
            "t",
        ),
    ] {
        let database = Database::with(table);
        let owner = database.role("owner");
        database.run(&format!(
            "INSERT INTO {row} VALUES ({future});
             DO $$BEGIN EXECUTE (SELECT string_agg(format('ALTER TABLE %s OWNER TO {owner}', oid::regclass), ';')
                                 FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'app'::regnamespace); END$$"
        ));
        let mut session = database.connect_as(&owner);
        let refusal = database.refusal(&mut session, "'t', 'id'");
        assert_names(&refusal, future);
        database.run("UPDATE t SET id = 1");
        converted(&mut session, "'t', 'id'");
    }
}

/// A policy that hides rows from the table's owner would also hide them from the check of the
/// values.
#[test]
fn where_the_owner_may_not_see_all_rows_nothing_is_converted() {
    let database = Database::with(
        "CREATE TABLE t (id bigint, day date) PARTITION BY LIST (day); CREATE TABLE t1 PARTITION OF t DEFAULT;
         INSERT INTO t VALUES (9223372036854775807);
         ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
         CREATE POLICY low ON t USING (id < 1000)",
    );
    let owner = database.role("owner");
    database.run(&format!("ALTER TABLE t OWNER TO {owner}; ALTER TABLE t1 OWNER TO {owner}"));
    let mut session = database.connect_as(&owner);
    assert_eq!(session.value("SELECT count(*) FROM t"), "0");
    assert!(database.refusal(&mut session, "'t', 'id'").hint.is_some());
    session.batch_execute("ALTER TABLE t NO FORCE ROW LEVEL SECURITY").unwrap();
    assert_names(&database.refusal(&mut session, "'t', 'id'"), i64::MAX);
}

#[test]
fn a_value_of_ones_own_transaction_counts() {
    let database = Database::with("CREATE TABLE t (id bigint)");
    let mut session = database.connect();
    session.batch_execute("BEGIN; INSERT INTO t VALUES (9223372036854775807)").unwrap();
    assert_names(&refused(convert(&mut session, "'t', 'id'")), i64::MAX);
    session.batch_execute("ROLLBACK; BEGIN; INSERT INTO t VALUES (1)").unwrap();
    converted(&mut session, "'t', 'id'");
    session.batch_execute("COMMIT").unwrap();
}

#[test]
fn a_value_that_is_committed_while_the_call_waits_counts() {
    let database = Database::with("CREATE TABLE t (id bigserial PRIMARY KEY)");
    let mut writer = database.connect();
    writer.batch_execute("BEGIN; INSERT INTO t VALUES (9223372036854775807)").unwrap();
    let call = "SELECT length(s)::bigint FROM snowflake_convert('t', 'id', true) s";
    let waiting = Running::start(database.connect(), call);
    database.wait_until_locked(waiting.pid);
    writer.batch_execute("COMMIT").unwrap();
    assert_names(&refused(waiting.end().1), i64::MAX);
    assert_eq!(database.connect().ids("INSERT INTO t DEFAULT VALUES RETURNING id").unwrap(), [1]);
}

/// The backup worker borrows from ticks whose primary ids are still to come, and those are lower.
#[test]
fn an_id_that_the_other_lane_has_still_to_draw_is_refused() {
    let Some(server) = Server::drawing().set("backup_worker", "on").start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.batch_execute("CREATE TABLE t (id bigint)").unwrap();
    // All ids of this tick in both lanes, and then ids of later ticks, with the backup worker
    // number.
    session.batch_execute("SELECT count(snowflake_next()) FROM generate_series(1, 40000)").unwrap();
    let own = "snowflake_compose('2026-06-01 12:00:00.002Z', 5, 100)";
    let last = session.value("snowflake_format(snowflake_last())");
    assert_eq!(session.value(&format!("SELECT snowflake_last() > {own}")), "true", "{last}");
    session.batch_execute(&format!("INSERT INTO t VALUES ({own})")).unwrap();
    let value = session.value("SELECT id FROM t").parse().unwrap();
    assert_names(&refused(convert(&mut session, "'t', 'id'")), value);
}
