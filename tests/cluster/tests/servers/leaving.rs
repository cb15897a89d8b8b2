//! Leaving the extension as docs/migrate.md describes it: back to a sequence, what `DROP EXTENSION`
//! reports and removes, and how to decode ids without the extension.

use std::fs;
use std::io::Write;
use std::panic::catch_unwind;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cluster::drawing::{at_once, noon};
use cluster::pages::{block, is_shown, page, psql};
use cluster::{Draw, Server, assert_ascending, assert_unique, refused, wait_until};
use postgres::Client;
use snowflake_core::id::layout::{BUILT_IN, Layout};

/// The recipes, by their names.
const SEQUENCE: &str = "to-sequence";
const GENERATED: &str = "keep-generated";
const PARSE: &str = "parse-by-arithmetic";
const MIN: &str = "min-by-arithmetic";
const LAYOUTS: &str = "other-layouts";

/// For how long after the layout's epoch ids are decoded exactly, in milliseconds: 2283 years. Only
/// the time of `mastodon` goes on after that.
const EXACT_MS: i64 = 72_057_594_037_927;

#[track_caller]
fn recipe(name: &str) -> &'static str {
    block(name)
}

/// The part of a recipe between two others.
#[track_caller]
fn part(recipe: &'static str, from: &str, to: &str) -> &'static str {
    let (_, rest) = recipe.split_once(from).unwrap_or_else(|| panic!("no {from:?} in {recipe}"));
    rest.split_once(to).unwrap_or_else(|| panic!("no {to:?} in {recipe}")).0
}

#[test]
fn a_table_goes_back_to_a_sequence_while_sessions_insert() {
    let nested = "PARTITION BY RANGE (id); CREATE TABLE half PARTITION OF tickets DEFAULT PARTITION BY RANGE (id);
        CREATE TABLE part PARTITION OF half DEFAULT";
    let kinds = ["", "PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF tickets DEFAULT", nested];
    let call = "SELECT snowflake_convert_back('tickets', 'id')";
    for (way, partitions) in [recipe(SEQUENCE), call].into_iter().flat_map(|way| kinds.map(|kind| (way, kind))) {
        let server = Server::drawing().time_limit().start_with_extension();
        let table = "CREATE TABLE tickets (id bigint PRIMARY KEY DEFAULT snowflake_next(), title text)";
        server.connect().batch_execute(&format!("{table} {partitions}")).unwrap();
        // Relaxed: nothing else depends on it.
        let left = AtomicBool::new(false);
        let insert = |into: &str| format!("INSERT INTO {into} (title) VALUES ('tea'), ('coffee') RETURNING id");
        let into_part = if partitions.is_empty() { "tickets" } else { "part" };
        let ids = at_once(&server, 4, |session, mut client| {
            if session == 0 {
                wait_until("the others", || client.value("SELECT count(*) > 200 FROM tickets") == "true");
                // In psql each statement would be a separate transaction without the recipe's
                // BEGIN.
                psql(&server, &[], way);
                left.store(true, Ordering::Relaxed);
                return Vec::new();
            }
            // Rows may also be inserted into a partition directly.
            let insert = insert(if session == 1 { into_part } else { "tickets" });
            let mut ids = Vec::new();
            while !left.load(Ordering::Relaxed) {
                ids.extend(client.ids(&insert).unwrap());
            }
            (0..50).for_each(|_| ids.extend(client.ids(&insert).unwrap()));
            ids
        });
        ids.iter().for_each(|ids| assert_ascending(ids));
        let mut all = ids.concat();
        assert_unique(&all);

        // The last ids are consecutive.
        all.sort_unstable();
        let counted = &all[all.len() - 300..];
        assert_eq!(counted[299] - counted[0], 299);
        assert_eq!(server.connect().ids("SELECT id FROM tickets ORDER BY id").unwrap(), all);
    }
}

/// Before PostgreSQL 17, the recipe's last statement also serves new partitions. It changes nothing
/// where it was run before. Later, a new partition inherits the identity.
#[test]
fn a_new_partition_gets_a_default_from_the_recipes_last_statement() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    let table =
        "CREATE TABLE tickets (id bigint PRIMARY KEY DEFAULT snowflake_next(), title text) PARTITION BY RANGE (id);
         CREATE TABLE part PARTITION OF tickets FOR VALUES FROM (0) TO (9000000000000000000)";
    session.batch_execute(table).unwrap();
    session.batch_execute(recipe(SEQUENCE)).unwrap();
    let last = session.ids("INSERT INTO part (title) VALUES ('tea') RETURNING id").unwrap();
    let defaults =
        "SELECT coalesce(string_agg(concat_ws(' ', adrelid::regclass, pg_get_expr(adbin, adrelid)), ', ' ORDER BY adrelid), '')
                    FROM pg_attrdef";
    let before = session.value(defaults);
    let last_statement = format!("DO {}", part(recipe(SEQUENCE), "\nDO ", "\nCOMMIT;"));
    session.batch_execute(&last_statement).unwrap();
    assert_eq!(session.value(defaults), before);
    session.batch_execute("ALTER TABLE tickets DETACH PARTITION part; DROP TABLE part").unwrap();
    session.batch_execute("CREATE TABLE other PARTITION OF tickets DEFAULT").unwrap();
    session.batch_execute(&last_statement).unwrap();
    let next = session.ids("INSERT INTO other (title) VALUES ('tea') RETURNING id").unwrap();
    assert_eq!(next, [last[0] + 1]);
}

/// A server with the page's table.
fn with_tickets() -> Server {
    let server = Server::drawing().start_with_extension();
    let table = "CREATE TABLE tickets (id bigint PRIMARY KEY DEFAULT snowflake_next(), title text)";
    server.connect().batch_execute(table).unwrap();
    server
}

/// Inserts a row without an id.
fn insert(session: &mut Client) -> i64 {
    session.ids("INSERT INTO tickets DEFAULT VALUES RETURNING id").unwrap()[0]
}

#[test]
fn ids_that_a_client_drew_before_and_stores_later_are_below_the_sequence() {
    for rows in [0, 1] {
        let server = with_tickets();
        let mut session = server.connect();
        for _ in 0..rows {
            insert(&mut session);
        }
        let drawn = server.connect().draw_batch(1000);
        session.batch_execute(recipe(SEQUENCE)).unwrap();
        let next = insert(&mut session);
        assert!(next > drawn[999], "{next} was drawn after {}", drawn[999]);
        let stored = session.execute("INSERT INTO tickets SELECT unnest($1::bigint[])", &[&drawn]).unwrap();
        assert_eq!(stored, 1000);
    }
}

/// One id of this server, and one of a server whose clock is ahead. The sequence begins above both,
/// whatever the default isolation level is.
#[test]
fn an_id_that_is_committed_while_the_recipe_waits_is_below_the_sequence() {
    for ahead in [false, true] {
        let server = with_tickets();
        let (mut writing, mut leaving) = (server.connect(), server.connect());
        insert(&mut writing);
        writing.batch_execute("BEGIN").unwrap();
        let mut stored = insert(&mut writing);
        if ahead {
            let insert = "INSERT INTO tickets SELECT snowflake_min(now() + interval '1 day') RETURNING id";
            stored = writing.ids(insert).unwrap()[0];
        }
        leaving.batch_execute("SET default_transaction_isolation = 'repeatable read'").unwrap();
        let pid = leaving.pid();
        let mut leaving = thread::scope(|scope| {
            let left = scope.spawn(|| {
                leaving.batch_execute(recipe(SEQUENCE)).unwrap();
                leaving
            });
            let waits = format!("SELECT cardinality(pg_blocking_pids({pid})) > 0");
            let mut watching = server.connect();
            wait_until("the recipe to wait for the lock", || watching.value(&waits) == "true");
            writing.batch_execute("COMMIT").unwrap();
            left.join().expect("nothing is refused")
        });
        let next = insert(&mut leaving);
        assert!(next > stored, "{next} comes after {stored}");
    }
}

/// Everything that can depend on the extension, in a new database.
fn dependent(server: &Server, database: &str) -> Client {
    server.connect().batch_execute(&format!("CREATE DATABASE {database}")).unwrap();
    let mut session = server.connect_to(database);
    session
        .batch_execute(
            "CREATE EXTENSION snowflake_id;
             CREATE TABLE orders (
                 id bigint PRIMARY KEY DEFAULT snowflake_next(),
                 item text,
                 CONSTRAINT since_2025 CHECK (snowflake_timestamp(id, 'snowflake') >= '2025-01-01Z')
             );
             CREATE INDEX orders_by_time ON orders (snowflake_timestamp(id, 'snowflake'));
             CREATE VIEW timed_orders AS SELECT *, snowflake_timestamp(id) AS created_at FROM orders;
             INSERT INTO orders (item) SELECT 'tea' FROM generate_series(1, 100);
             CREATE TABLE events (
                 id bigint PRIMARY KEY DEFAULT snowflake_next(),
                 created_at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, 'snowflake')) STORED
             );
             INSERT INTO events SELECT FROM generate_series(1, 100);
             CREATE TABLE measurements (id bigint PRIMARY KEY, value int) PARTITION BY RANGE (id);
             CREATE TABLE measurements_2026 PARTITION OF measurements
                 FOR VALUES FROM (snowflake_min('2026-01-01Z', 'snowflake')) TO (snowflake_min('2027-01-01Z', 'snowflake'));
             INSERT INTO measurements VALUES (snowflake_compose('2026-06-01Z', 1, 1), 1);
             CREATE FUNCTION draws() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN snowflake_next(); END'",
        )
        .unwrap();
    session
}

/// The rows of the tables, with whatever columns they have now.
fn rows(session: &mut Client) -> String {
    let mut held = |table: &str, column: &str| {
        session.value(&format!("SELECT md5(string_agg({column}, ',' ORDER BY id)) FROM {table}"))
    };
    [("orders", "id || item"), ("events", "id::text"), ("measurements_2026", "id || ' ' || value")]
        .map(|(table, column)| held(table, column))
        .join(" ")
}

#[test]
fn drop_extension_says_what_depends_on_it_and_keeps_the_rows() {
    let server = Server::drawing().start_with_extension();
    let mut session = dependent(&server, "refused");
    let held = rows(&mut session);
    let times = "SELECT md5(string_agg(concat_ws(' ', id, created_at), ',' ORDER BY id)) FROM ";
    let [of_orders, of_events] = ["timed_orders", "events"].map(|table| session.value(&format!("{times}{table}")));
    let refusal = refused(session.batch_execute("DROP EXTENSION snowflake_id"));
    assert_eq!(refusal.sqlstate, "2BP01");
    let detail = refusal.detail.expect("it lists what depends on it");
    let mut lines: Vec<_> = detail.lines().map(|line| line.split_once(" depends on ").expect("so it says").0).collect();
    lines.sort_unstable();
    let expected = [
        "column created_at of table events",
        "constraint since_2025 on table orders",
        "default value for column id of table events",
        "default value for column id of table orders",
        "index orders_by_time",
        "view timed_orders",
    ];
    assert_eq!(lines, expected);

    // The page's advice for each object. A view keeps its columns and their privileges.
    let created_at = part(recipe(PARSE), "SELECT ", " AS created_at");
    session.batch_execute(recipe(GENERATED)).unwrap();
    session
        .batch_execute(&format!(
            "CREATE OR REPLACE VIEW timed_orders AS SELECT *, {created_at} AS created_at FROM orders;
             ALTER TABLE orders ALTER COLUMN id DROP DEFAULT, DROP CONSTRAINT since_2025;
             ALTER TABLE events ALTER COLUMN id DROP DEFAULT;
             DROP INDEX orders_by_time;
             DROP EXTENSION snowflake_id"
        ))
        .unwrap();
    assert_eq!(rows(&mut session), held);
    assert_eq!(session.value(&format!("{times}timed_orders")), of_orders);
    assert_eq!(session.value(&format!("{times}events")), of_events);
    session.batch_execute("INSERT INTO events (id) VALUES (1)").unwrap();
    assert_eq!(session.value("SELECT created_at <= now() FROM events WHERE id = 1"), "true");
    // PostgreSQL does not look into a function's body.
    assert_eq!(refused(session.ids("SELECT draws()")).sqlstate, "42883");
}

#[test]
fn drop_extension_with_cascade_takes_a_generated_column_and_leaves_the_others() {
    let server = Server::drawing().start_with_extension();
    let mut session = dependent(&server, "cascade");
    let held = rows(&mut session);
    session.batch_execute("DROP EXTENSION snowflake_id CASCADE").unwrap();
    assert_eq!(rows(&mut session), held);
    let columns = "SELECT string_agg(concat_ws(' ', table_name, column_name, column_default), ', '
                          ORDER BY table_name, ordinal_position)
                   FROM information_schema.columns WHERE table_name IN ('orders', 'events')";
    assert_eq!(session.value(columns), "events id, orders id, orders item");
    assert_eq!(session.value("to_regclass('timed_orders') IS NULL AND to_regclass('orders_by_time') IS NULL"), "true");
    // Partitions are where they were.
    session.batch_execute("INSERT INTO measurements SELECT id + 1, 2 FROM measurements").unwrap();
    assert_eq!(session.value("SELECT count(*) FROM measurements_2026"), "2");
}

#[test]
fn who_comes_back_draws_above_what_is_stored_only_after_an_advance() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.batch_execute("CREATE TABLE tickets (id bigint PRIMARY KEY DEFAULT snowflake_next())").unwrap();
    session.batch_execute("INSERT INTO tickets SELECT FROM generate_series(1, 100)").unwrap();
    session.batch_execute("ALTER TABLE tickets ALTER COLUMN id DROP DEFAULT; DROP EXTENSION snowflake_id").unwrap();
    drop(session);
    server.restart_at(noon() - 60_000);
    let mut session = server.connect();
    session.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    // The control: there is no mark.
    assert_eq!(session.value("SELECT snowflake_next() < min(id) FROM tickets"), "true");

    session.batch_execute("SELECT snowflake_advance(max(id)) FROM tickets").unwrap();
    assert_eq!(refused(session.try_draw()).sqlstate, "58000");
    server.freeze_clock(noon() + 2000);
    let next = server.connect().draw();
    assert_eq!(session.value(&format!("SELECT {next} > max(id) FROM tickets")), "true");
}

/// Ids of a layout: the first and the last, those beside each power of two, and some in between.
/// None is later than the limit.
pub(crate) fn ids_until(layout: &Layout, last_ms: i64) -> Vec<i64> {
    let last = last_ms.min(layout.last_instant_ms());
    let last = (0..63).rev().fold(0, |id, bit| {
        let more = id | 1_i64 << bit;
        if more <= layout.max_id() && layout.created_at_ms(more).unwrap() <= last { more } else { id }
    });
    let powers = (0..63).map(|bit| 1_i64 << bit).flat_map(|power| [power - 1, power, power + 1]);
    // Steps without a pattern, so that every digit of a time occurs.
    let between = (1..1000_u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1).cast_signed() % last);
    powers.chain(between).chain([0, last]).filter(|id| *id <= last).collect()
}

/// The same, up to the page's limit.
fn ids_of(layout: &Layout) -> Vec<i64> {
    ids_until(layout, layout.epoch_ms() + EXACT_MS)
}

/// The result of an expression over ids, which it finds in the table `ids`.
fn decoded(session: &mut Client, ids: &[i64], columns: &str, from: &str) -> Vec<String> {
    let sql = format!("SELECT concat_ws(' ', id, {columns}) FROM unnest($1::bigint[]) ids (id) {from}");
    session.query(&sql, &[&ids]).unwrap().iter().map(|row| row.get(0)).collect()
}

#[test]
fn without_the_extension_ids_are_decoded_as_snowflake_parse_does() {
    let server = Server::drawing().start_with_extension();
    let plain = Server::builder().without_preload().start();
    let (mut session, mut plain) = (server.connect(), plain.connect());
    for session in [&mut session, &mut plain] {
        session.batch_execute("SET timezone = 'UTC'").unwrap();
    }

    // The page's expression.
    let columns = part(recipe(PARSE), "SELECT ", "\nFROM");
    let [created_at, worker, sequence] = columns.split(", ").collect::<Vec<_>>()[..] else { panic!("{columns}") };
    let columns = [(created_at, " AS created_at"), (worker, " AS worker_id"), (sequence, " AS sequence")];
    let columns = columns.map(|(column, name)| column.strip_suffix(name).expect("they have these names")).join(", ");
    let ids = ids_of(&Layout::parse("snowflake").unwrap());
    assert!(ids.len() > 1100);
    let parsed = decoded(&mut session, &ids, "p.created_at, p.worker_id, p.sequence", ", snowflake_parse(id) p");
    assert_eq!(decoded(&mut plain, &ids, &columns, ""), parsed);
    // The usual expression, and why the page warns of it: it is right only until 2242.
    let since_1970_ms = "(id >> 22) + 1735689600000";
    assert!(is_shown(&format!("`{since_1970_ms}`")));
    let shorter = columns.replace(
        "timestamptz '2025-01-01Z' + (id >> 22) * interval '1ms'",
        &format!("to_timestamp(({since_1970_ms}) / 1000.0)"),
    );
    assert_ne!(shorter, columns);
    assert_eq!(decoded(&mut plain, &ids, &shorter, ""), parsed);
    assert_eq!(plain.value("SELECT to_timestamp(8589934592669 / 1000.0) = '2242-03-16 12:56:32.669Z'"), "false");

    for (name, specification) in BUILT_IN {
        assert_decoded_as_asked(&mut session, &mut plain, name, specification);
    }
    for specification in [
        "time:39 datacenter:4 worker:8 sequence:12 unit:10ms epoch:2025-01-01T00:00:00Z",
        "time:40 sequence:20 unit:100ms epoch:1999-12-31T23:59:59.999Z",
    ] {
        let server = Server::builder().set("layout", specification).start_with_extension();
        let mut session = server.connect();
        session.batch_execute("SET timezone = 'UTC'").unwrap();
        assert_decoded_as_asked(&mut session, &mut plain, "current", specification);
    }
}

/// Gets a layout's expressions as the page shows, and decodes by them without the extension.
#[track_caller]
fn assert_decoded_as_asked(session: &mut Client, plain: &mut Client, name: &str, specification: &str) {
    let (times, numbers) = recipe(LAYOUTS).split_once("\n\n").expect("two statements");
    let (times, _) = times.split_once(" AND name IN").expect("the page shows some");
    let created_at: String = session.query_one(&format!("{times} AND name = '{name}'"), &[]).unwrap().get(1);
    let (mut columns, mut parsed) = (vec![created_at], vec!["p.created_at"]);
    let numbers = numbers.trim_end().trim_end_matches(';').replace("'sonyflake'", &format!("'{specification}'"));
    let fields = session.query(&numbers, &[]).unwrap();
    for field in &fields {
        columns.push(field.get(1));
        parsed.push(match field.get(0) {
            "datacenter" => "p.datacenter_id",
            "worker" => "p.worker_id",
            "sequence" => "p.sequence",
            other => panic!("{other} is not a number"),
        });
    }
    let ids = ids_of(&Layout::parse(specification).unwrap());
    let from = format!(", snowflake_parse(id, '{specification}') p");
    let expected = decoded(session, &ids, &parsed.join(", "), &from);
    assert_eq!(decoded(plain, &ids, &columns.join(", "), ""), expected, "{name}");
}

#[test]
fn without_the_extension_the_first_id_of_a_time_is_the_one_of_snowflake_min() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    session.batch_execute("SET timezone = 'America/New_York'").unwrap();
    let first_id = part(recipe(MIN), "SELECT ", " AS first_id").replace("timestamptz '2026-11-20Z'", "ts");
    let sql = format!(
        "SELECT count(*)
         FROM (SELECT '2025-06-01Z'::timestamptz + n * n * interval '1.234567 seconds' FROM generate_series(1, 10000) n
               UNION ALL VALUES (timestamptz '2025-01-01Z'), ('2025-03-09 01:59:59.999999-05'), ('2025-03-09 03:00:00.000001-04'),
                                ('2026-11-20Z'), ('2026-11-20 11:37:04.6685Z'), ('2094-09-07 15:47:35.551Z')) times (ts)
         WHERE {first_id} = snowflake_min(ts)"
    );
    assert_eq!(session.value(&sql), "10006");
}

/// An ordinary table, a tree of partitions, a table with a child, and one that draws otherwise.
#[test]
fn all_tables_of_a_schema_go_back_to_sequences_while_sessions_insert() {
    let server = Server::drawing().start_with_extension();
    psql(&server, &[], block("schema-example"));
    let mut session = server.connect();
    session
        .batch_execute(
            r#"CREATE TABLE office."The Rooms" ("No" bigint PRIMARY KEY DEFAULT snowflake_next()) PARTITION BY HASH ("No");
               CREATE TABLE office.half PARTITION OF office."The Rooms" FOR VALUES WITH (MODULUS 1, REMAINDER 0) PARTITION BY RANGE ("No");
               CREATE TABLE office.part PARTITION OF office.half DEFAULT;
               CREATE TABLE office.people (id bigint PRIMARY KEY DEFAULT snowflake_next());
               CREATE TABLE office.guests () INHERITS (office.people);
               CREATE TABLE office.notes (id text PRIMARY KEY DEFAULT 'n' || snowflake_next());
               CREATE TABLE public.others (id bigint PRIMARY KEY DEFAULT snowflake_next())"#,
        )
        .unwrap();
    let drawn = session.draw_batch(100)[99];
    // Each transaction uses two tables, in either order.
    let tables = ["desks (room) VALUES ('busy')", "keys DEFAULT VALUES", "people DEFAULT VALUES"];
    // Relaxed: nothing else depends on it.
    let left = AtomicBool::new(false);
    let stored = at_once(&server, 4, |number, mut client| {
        if number == 0 {
            wait_until("the others", || client.value("SELECT count(*) > 200 FROM office.people") == "true");
            let run = catch_unwind(|| psql(&server, &[], block("schema-to-sequences")));
            // Before any assertion can fail, because the others would go on.
            left.store(true, Ordering::Relaxed);
            run.unwrap();
            return Vec::new();
        }
        let mut rows = 0;
        for turn in number.. {
            let [first, second] = [tables[turn % 3], tables[(turn + number) % 3]];
            let insert = format!("BEGIN; INSERT INTO office.{first}; INSERT INTO office.{second}; COMMIT");
            client.batch_execute(&insert).unwrap();
            rows += 2;
            if left.load(Ordering::Relaxed) {
                break;
            }
        }
        vec![rows]
    });
    let count = tables.map(|table| format!("(SELECT count(*) FROM office.{})", table.split(' ').next().unwrap()));
    let rows = session.value(&format!("SELECT {}", count.join(" + ")));
    // One row is the page's.
    assert_eq!(rows, (stored.concat().iter().sum::<i64>() + 1).to_string());
    for (root, tables) in [
        ("desks", &["desks"][..]),
        ("keys", &["keys", "keys_all"]),
        ("\"The Rooms\"", &["\"The Rooms\"", "part"]),
        ("people", &["people", "guests"]),
    ] {
        let column = session.value(&format!(
            "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = 'office.{root}'::regclass AND attnum = 1"
        ));
        let insert = |table: &&str| format!("INSERT INTO office.{table} DEFAULT VALUES RETURNING {column}");
        let ids: Vec<_> = tables.iter().cycle().take(6).map(|table| session.ids(&insert(table)).unwrap()[0]).collect();
        assert!(ids[0] > drawn);
        assert!(ids.windows(2).all(|pair| pair[1] == pair[0] + 1), "{root}: {ids:?}");
    }
    // What the block leaves alone.
    let detail =
        refused(session.batch_execute("DROP EXTENSION snowflake_id")).detail.expect("it lists what depends on it");
    let mut lines: Vec<_> = detail.lines().map(|line| line.split_once(" depends on ").expect("so it says").0).collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["default value for column id of table office.notes", "default value for column id of table others"]
    );
}

/// The restore of docs/migrate.md into a database that has no extension.
#[test]
fn a_dump_arrives_without_the_extension_if_stubs_stand_in() {
    let server = Server::drawing().start_with_extension();
    let mut session = dependent(&server, "app");
    session.batch_execute("CREATE TABLE tickets (id bigint PRIMARY KEY DEFAULT snowflake_next(), title text); INSERT INTO tickets (title) VALUES ('before')").unwrap();
    let held = rows(&mut session);
    let times = "SELECT md5(string_agg(concat_ws(' ', id, created_at), ',' ORDER BY id)) FROM ";
    let [of_orders, of_events] = ["timed_orders", "events"].map(|table| session.value(&format!("{times}{table}")));
    assert!(is_shown("pg_dump --format=custom --file=app.dump app") && is_shown("pg_restore --list app.dump | "));
    assert!(is_shown("pg_restore --exit-on-error --use-list=app.list --dbname=copy app.dump"));
    let dump = server.dump("app", "postgres", &["--format=custom"]);
    let pg_restore = |arguments: &[&str]| server.client("pg_restore").args(arguments).arg(&dump).output().unwrap();

    // The page's filter, word for word.
    let console = page("docs/migrate.md").blocks.iter().find(|block| block.text.contains("pg_restore --list"));
    let filter = part(&console.expect("the page shows it").text, "--list app.dump | ", " > app.list");
    let list = String::from_utf8(pg_restore(&["--list"]).stdout).unwrap();
    assert!(list.contains("EXTENSION - snowflake_id") && list.contains(" snowflake_mark "), "{list}");
    let mut grep = Command::new("sh");
    let mut grep = grep.args(["-c", filter]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    grep.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    let list = dump.with_extension("list");
    fs::write(&list, grep.wait_with_output().unwrap().stdout).unwrap();
    let use_list = format!("--use-list={}", list.display());

    for name in ["control", "copy"] {
        session.batch_execute(&format!("CREATE DATABASE {name}")).unwrap();
    }
    // The control: without stubs, tables are missing.
    let control = pg_restore(&[&use_list, "--dbname=control"]);
    assert!(!control.status.success());
    assert_eq!(server.connect_to("control").value("to_regclass('tickets') IS NULL"), "true");

    let mut copy = server.connect_to("copy");
    copy.batch_execute(block("stubs")).unwrap();
    let restored = pg_restore(&["--exit-on-error", &use_list, "--dbname=copy"]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    assert_eq!(rows(&mut copy), held);
    assert_eq!(copy.value(&format!("{times}timed_orders")), of_orders);
    assert_eq!(copy.value(&format!("{times}events")), of_events);
    assert_eq!(refused(insert_ticket(&mut copy)).sqlstate, "P0001");
    copy.batch_execute(block("stub-sequence")).unwrap();
    let last = copy.value("SELECT max(id) FROM tickets");
    assert_eq!(insert_ticket(&mut copy).unwrap()[0] - 1, last.parse::<i64>().unwrap());
}

fn insert_ticket(session: &mut Client) -> Result<Vec<i64>, postgres::Error> {
    session.ids("INSERT INTO tickets (title) VALUES ('after') RETURNING id")
}
