//! Several servers that write: two that replicate to each other, one that writes through
//! postgres_fdw into another, and a logical replica that takes over its publisher's number. They
//! run the SQL of docs/several-writers.md and docs/logical-replicas.md, word for word.

use std::collections::BTreeSet;
use std::env;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use cluster::drawing::{WORKER, at_once, noon};
use cluster::marks::{behind_the_mark_ms, start_ms, worker};
use cluster::pages::{block, psql};
use cluster::{Builder, Draw, Ends, Server, Shutdown, assert_unique, postgres_version, refused, skip, wait_until};
use postgres::config::Host;
use postgres::{Client, NoTls};

/// The recipes, by their names.
const BOTH: &str = "own-rows";
const OLDER: &str = "older-ids";
const ANOTHER: &str = "another-table";
const EACH: &str = "subscribe";
const NEW_PRIMARY: &str = "new-primary";
const ANEW: &str = "subscribe-anew";
const SURVIVING: &str = "surviving-subscription";
const SURVIVORS: &str = "surviving-slots";
const WITHOUT_STANDBY: &str = "without-standby";
const GOES_ON: &str = "go-on";
const WITHOUT_TABLE: &str = "foreign-tables";
const WITH_TABLE: &str = "draw-id";
const REPLICA: &str = "replica-takes-over";
const PUBLISH: &str = "cutover-publish";
const SUBSCRIBE: &str = "cutover-subscribe";
const STOP: &str = "cutover-stop";
const TURN: &str = "cutover-turn";
const FOLLOW: &str = "cutover-follow";
const OPEN: &str = "cutover-open";

/// The page's table.
const ORDERS: &str = "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_next(), item text)";

/// How many rows a session of the load inserts at a time, and how many it leaves. A server's
/// sessions leave 100,000 rows in all.
const INSERTED: usize = 210;
const LEFT: usize = 200;
const TURNS: usize = 125;
const SESSIONS: usize = 4;

#[track_caller]
fn recipe(name: &str) -> &'static str {
    block(name)
}

/// Runs a recipe in one session of psql, and returns what is printed.
#[track_caller]
fn follow(server: &Server, recipe: &str) -> String {
    psql(server, &["--tuples-only", "--no-align"], recipe)
}

/// Runs a recipe that names the other server.
fn follow_with(server: &Server, recipe: &str, other: &Server) -> String {
    let config = other.connection();
    let [Host::Unix(directory)] = config.get_hosts() else { panic!("a server is reached through its socket") };
    let host = ["other.example", "old.example", "new.example"].into_iter().find(|host| recipe.contains(host));
    let host = host.unwrap_or_else(|| panic!("it names no server: {recipe}"));
    follow(server, &recipe.replace(host, &directory.display().to_string()))
}

/// A server that others can replicate from, and its table.
fn publishing(server: Builder) -> Builder {
    server.config("wal_level", "logical")
}

fn add_table(server: &Server) {
    let roles = "CREATE ROLE replicator LOGIN REPLICATION; GRANT SELECT ON orders TO replicator";
    server.connect().batch_execute(&format!("{ORDERS}; {roles}")).unwrap();
}

/// A server as on the page, with a row, before anything is replicated.
fn writer(number: u32) -> Server {
    let server = publishing(Server::builder().set("worker_id", &number.to_string())).start_with_extension();
    add_table(&server);
    server.connect().batch_execute("INSERT INTO orders (item) VALUES ('before')").unwrap();
    server
}

fn two_writers() -> [Server; 2] {
    [1, 2].map(writer)
}

/// Lets two servers replicate to each other as on the page.
fn join(servers: &[Server; 2]) {
    for (server, number) in servers.iter().zip(1..) {
        assert_eq!(follow(server, recipe(BOTH)), format!("(id >> 12 & 1023) = {number}"));
    }
    let [one, two] = servers;
    follow_with(one, recipe(EACH), two);
    follow_with(two, recipe(EACH), one);
    servers.iter().for_each(wait_until_copied);
}

/// Waits until the rows from before the subscription have arrived, too.
#[track_caller]
fn wait_until_copied(subscriber: &Server) {
    let mut session = subscriber.connect();
    let copied = "SELECT count(*) > 0 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel";
    wait_until("the first copy", || session.value(copied) == "true");
}

/// Waits until a server's subscribers have all that it has written by now, as long as they make
/// progress.
#[track_caller]
fn wait_until_sent(publisher: &Server) {
    let mut session = publisher.connect();
    let missing = format!(
        "SELECT coalesce(max(greatest('{}' - confirmed_flush_lsn, 0)), 1) FROM pg_replication_slots",
        publisher.flushed()
    );
    let mut last = session.value(&missing);
    while last != "0" {
        let mut now = String::new();
        wait_until("a subscriber to get on", || {
            now = session.value(&missing);
            now != last
        });
        last = now;
    }
}

#[track_caller]
fn wait_until_equal(servers: &[Server]) {
    wait_until_equal_in(servers, "orders");
}

#[track_caller]
fn wait_until_equal_in(servers: &[Server], table: &str) {
    servers.iter().for_each(wait_until_sent);
    // How many rows a server has, and what they hold.
    let content = format!("SELECT count(*) || ' ' || md5(string_agg(t::text, ',' ORDER BY id)) FROM {table} t");
    let contents: Vec<_> = servers.iter().map(|server| server.connect().value(&content)).collect();
    assert!(contents.windows(2).all(|pair| pair[0] == pair[1]), "{contents:?}");
}

fn rows(server: &Server) -> Vec<i64> {
    server.connect().ids("SELECT id FROM orders ORDER BY id").unwrap()
}

#[track_caller]
fn assert_without_conflict(server: &Server) {
    for line in server.log().lines() {
        assert!(!line.contains("ERROR:") && !line.contains("conflict"), "{line}");
    }
}

#[track_caller]
fn wait_until_conflict(server: &Server) {
    // PostgreSQL 18 names the conflict.
    let words =
        if postgres_version() < 18 { "duplicate key value violates unique constraint" } else { "insert_exists" };
    wait_until("the conflict", || server.log().contains(words));
}

/// One session of the load. It inserts rows, and changes and deletes its own rows, sometimes in
/// transactions. Returns the ids that it has drawn.
fn work(session: usize, mut client: Client) -> Vec<i64> {
    let mut drawn = Vec::new();
    for turn in 0..TURNS {
        let insert = format!(
            "INSERT INTO orders (item) SELECT '{session}, {turn}' FROM generate_series(1, {INSERTED}) RETURNING id"
        );
        let in_transaction = turn % 3 != 0;
        if in_transaction {
            client.batch_execute("BEGIN").unwrap();
        }
        let ids = client.ids(&insert).unwrap();
        client.execute("UPDATE orders SET item = item || ', changed' WHERE id = ANY($1)", &[&&ids[..20]]).unwrap();
        client.execute("DELETE FROM orders WHERE id = ANY($1)", &[&&ids[LEFT..]]).unwrap();
        drawn.extend(ids);
        if in_transaction {
            client.batch_execute("COMMIT").unwrap();
        }
        if turn % 10 == 0 {
            client.batch_execute("BEGIN").unwrap();
            drawn.extend(client.ids(&insert).unwrap());
            client.batch_execute("ROLLBACK").unwrap();
        }
    }
    drawn
}

#[test]
fn two_servers_that_write_at_the_same_time_and_replicate_to_each_other_end_equal() {
    let servers = two_writers();
    join(&servers);

    let drawn: Vec<i64> = thread::scope(|scope| {
        let load = servers.each_ref().map(|server| scope.spawn(|| at_once(server, SESSIONS, work)));
        load.map(|load| load.join().expect("nothing is refused")).into_iter().flatten().flatten().collect()
    });
    assert_unique(&drawn);

    wait_until_equal(&servers);
    for server in &servers {
        assert_without_conflict(server);
        let mut session = server.connect();
        for number in [1, 2] {
            let own = format!("FROM orders o, snowflake_parse(o.id) p WHERE p.worker_id = {number}");
            let expected = SESSIONS * TURNS * LEFT + 1;
            assert_eq!(session.value(&format!("SELECT count(*) {own}")), expected.to_string());
            let changed = session.value(&format!("SELECT count(*) {own} AND item LIKE '%, changed'"));
            assert_eq!(changed, (SESSIONS * TURNS * 20).to_string());
        }
    }
}

#[test]
fn a_row_is_written_only_where_it_was_drawn_and_a_truncate_stays_where_it_was_said() {
    let servers = two_writers();
    join(&servers);
    wait_until_equal(&servers);
    let [one, two] = &servers;
    let (of_one, of_two) = (rows(one)[0], rows(one)[1]);
    assert_eq!((worker("snowflake", of_one), worker("snowflake", of_two)), (1, 2));

    let mut session = one.connect();
    // An id of the same server: the lowest bit belongs to the sequence.
    let beside = |id: i64| id ^ 1;
    let refusals = [
        (format!("UPDATE orders SET item = 'changed' WHERE id = {of_two}"), of_two),
        (format!("DELETE FROM orders WHERE id = {of_two}"), of_two),
        (format!("INSERT INTO orders VALUES ({})", beside(of_two)), beside(of_two)),
        (format!("INSERT INTO orders VALUES ({of_two}) ON CONFLICT (id) DO NOTHING"), of_two),
        (format!("UPDATE orders SET id = {} WHERE id = {of_one}", beside(of_two)), beside(of_two)),
        (format!("UPDATE orders SET id = {} WHERE id = {of_two}", beside(of_one)), of_two),
    ];
    for (change, id) in refusals {
        let refusal = refused(session.execute(&change, &[]));
        let expected = format!("row {id} belongs to another server");
        assert_eq!((refusal.sqlstate.as_str(), refusal.message), ("P0001", expected), "{change}");
    }
    for change in [
        format!("UPDATE orders SET item = 'changed' WHERE id = {of_one}"),
        format!("UPDATE orders SET id = {} WHERE id = {of_one}", beside(of_one)),
        format!("INSERT INTO orders VALUES ({of_one}, 'again')"),
        "DELETE FROM orders WHERE item IN ('changed', 'again')".to_owned(),
    ] {
        assert_ne!(session.execute(&change, &[]).unwrap(), 0, "{change}");
        wait_until_equal(&servers);
    }
    assert_eq!(rows(two), [of_two]);

    session.batch_execute("TRUNCATE orders; INSERT INTO orders (item) VALUES ('after')").unwrap();
    // The row is replicated, and does not come back.
    servers.iter().for_each(wait_until_sent);
    assert_eq!(rows(one).len(), 1);
    assert_eq!(rows(two), [of_two, rows(one)[0]]);
}

/// Two servers that replicate to each other. In a later session they get a second table, whose rows
/// refer to the first table.
fn two_writers_of_two_tables() -> [Server; 2] {
    let servers = two_writers();
    join(&servers);
    // On the page these settings end in \gset.
    let (settings, _) = recipe(BOTH).rsplit_once("\\gset").expect("it has some");
    let settings = settings.split("\\gset").map(|before| &before[before.rfind("SELECT ").expect("one precedes it")..]);
    let settings: String = settings.map(|statement| format!("{statement}\\gset\n")).collect();
    for server in &servers {
        let lines = "CREATE TABLE lines (
                         id bigint PRIMARY KEY DEFAULT snowflake_next(),
                         of_order bigint REFERENCES orders ON DELETE CASCADE,
                         code text UNIQUE
                     );
                     INSERT INTO lines DEFAULT VALUES;
                     GRANT SELECT ON lines TO replicator";
        server.connect().batch_execute(lines).unwrap();
        follow(server, &format!("{settings}{}", recipe(ANOTHER)));
    }
    for server in &servers {
        server.connect().batch_execute("ALTER SUBSCRIPTION other_orders REFRESH PUBLICATION").unwrap();
    }
    servers.iter().for_each(wait_until_copied);
    servers
}

#[test]
fn another_table_joins_two_servers_that_replicate_to_each_other_already() {
    let servers = two_writers_of_two_tables();
    let [one, two] = &servers;
    let insert = "INSERT INTO lines SELECT FROM generate_series(1, 500)";
    for server in &servers {
        server.connect().batch_execute(insert).unwrap();
    }
    wait_until_equal_in(&servers, "lines");
    assert_eq!(two.connect().value("SELECT count(*) FROM lines"), "1002");
    servers.iter().for_each(assert_without_conflict);

    let of_two = one.connect().ids("SELECT max(id) FROM lines WHERE id >> 12 & 1023 = 2").unwrap()[0];
    for change in [
        format!("INSERT INTO lines VALUES ({of_two})"),
        format!("UPDATE lines SET id = {of_two} WHERE id = (SELECT min(id) FROM lines WHERE id >> 12 & 1023 = 1)"),
        format!("UPDATE lines SET code = 'changed' WHERE id = {of_two}"),
        format!("DELETE FROM lines WHERE id = {of_two}"),
    ] {
        let refusal = refused(one.connect().execute(&change, &[]));
        assert_eq!(refusal.message, format!("row {of_two} belongs to another server"), "{change}");
    }
}

/// The conflict that the page warns of.
#[test]
fn between_rows_of_different_servers_neither_foreign_keys_nor_other_unique_columns_hold() {
    let servers = two_writers_of_two_tables();
    let [one, two] = &servers;
    let (mut first, mut second) = (one.connect(), two.connect());
    let insert = "INSERT INTO orders (item) VALUES ('kept'), ('deleted') RETURNING id";
    let [kept, deleted] = first.ids(insert).unwrap()[..] else { panic!("two rows") };
    wait_until_equal(&servers);

    let of_kept = second.ids(&format!("INSERT INTO lines (of_order) VALUES ({kept}) RETURNING id")).unwrap()[0];
    wait_until_equal_in(&servers, "lines");
    let refusal = refused(first.batch_execute(&format!("DELETE FROM orders WHERE id = {kept}")));
    let expected = format!("row {of_kept} belongs to another server");
    assert_eq!((refusal.sqlstate.as_str(), refusal.message), ("P0001", expected));

    // Each server writes before it receives the other's change.
    let hear = |what: &str| {
        for server in &servers {
            server.connect().batch_execute(&format!("ALTER SUBSCRIPTION other_orders {what}")).unwrap();
        }
        // Not for the start: a process that finds a conflict ends at once.
        for server in servers.iter().filter(|_| what == "DISABLE") {
            let mut session = server.connect();
            let runs = "SELECT bool_or(pid IS NOT NULL) FROM pg_stat_subscription";
            wait_until("the end of what hears", || session.value(runs) == "false");
        }
    };
    hear("DISABLE");
    first.batch_execute(&format!("DELETE FROM orders WHERE id = {deleted}")).unwrap();
    second.batch_execute(&format!("INSERT INTO lines (of_order) VALUES ({deleted})")).unwrap();
    hear("ENABLE");
    for table in ["orders", "lines"] {
        wait_until_equal_in(&servers, table);
    }
    let left = "SELECT count(*) FROM lines WHERE of_order NOT IN (SELECT id FROM orders)";
    assert_eq!([first.value(left), second.value(left)], ["1", "1"]);

    hear("DISABLE");
    for session in [&mut first, &mut second] {
        session.batch_execute("INSERT INTO lines (code) VALUES ('same')").unwrap();
    }
    hear("ENABLE");
    servers.iter().for_each(wait_until_conflict);
    for (session, code) in [(&mut first, "first"), (&mut second, "second")] {
        session.batch_execute(&format!("UPDATE lines SET code = '{code}' WHERE code = 'same'")).unwrap();
    }
    wait_until_equal_in(&servers, "lines");
    assert_eq!(first.value("SELECT string_agg(code, ' ' ORDER BY code) FROM lines"), "first second");
}

/// After a conversion of `bigserial`, the old ids have arbitrary values in the worker's bits.
#[test]
fn ids_that_nobody_drew_are_owned_by_one_server_and_copied_from_there() {
    let [one, two] = two_writers();
    let old = "INSERT INTO orders SELECT n, 'old' FROM generate_series(1, 20000) n";
    one.connect().batch_execute(old).unwrap();
    let of_the_others = recipe(OLDER).replace("id < %s OR %s", "id >= %s AND %s");
    for (server, older) in [(&one, recipe(OLDER)), (&two, &of_the_others)] {
        let (before, after) = recipe(BOTH).split_once("CREATE PUBLICATION").expect("the recipe makes one");
        follow(server, &format!("{before}{older}\nCREATE PUBLICATION{after}"));
    }
    follow_with(&one, recipe(EACH), &two);
    follow_with(&two, recipe(EACH), &one);
    let servers = [one, two];
    servers.iter().for_each(wait_until_copied);
    let [one, two] = &servers;
    for server in &servers {
        server.connect().batch_execute("INSERT INTO orders (item) SELECT 'new' FROM generate_series(1, 500)").unwrap();
    }
    let change = "UPDATE orders SET item = 'changed' WHERE item = 'old'";
    one.connect().batch_execute(change).unwrap();
    wait_until_equal(&servers);
    assert_eq!(two.connect().value("SELECT count(*) FROM orders WHERE item = 'changed'"), "20000");
    servers.iter().for_each(assert_without_conflict);
    for change in ["DELETE FROM orders WHERE id = 1", "INSERT INTO orders VALUES (30000)"] {
        assert_eq!(refused(two.connect().batch_execute(change)).sqlstate, "P0001", "{change}");
        one.connect().batch_execute(change).unwrap();
    }
    wait_until_equal(&servers);
}

#[test]
fn three_servers_replicate_to_each_other_by_subscriptions_with_names_of_their_own() {
    let servers = [1, 2, 3].map(writer);
    for server in &servers {
        follow(server, recipe(BOTH));
    }
    for (to, subscriber) in servers.iter().enumerate() {
        for (from, publisher) in servers.iter().enumerate().filter(|(from, _)| *from != to) {
            let name = format!("from_{from}_to_{to}");
            follow_with(subscriber, &recipe(EACH).replace("other_orders", &name), publisher);
            // One after the other: these servers have the same system identifier, which is part of
            // the names of the slots for initial copies.
            wait_until_copied(subscriber);
        }
    }
    for server in &servers {
        server.connect().batch_execute("INSERT INTO orders (item) SELECT 'new' FROM generate_series(1, 500)").unwrap();
    }
    wait_until_equal(&servers);
    assert_eq!(servers[0].connect().value("SELECT count(*) FROM orders"), "1503");
    servers.iter().for_each(assert_without_conflict);
}

/// An asynchronous standby takes over. It lacks rows that the other server has already.
#[test]
fn after_a_failover_each_gets_what_the_other_writes_from_then_on() {
    let servers = two_writers();
    join(&servers);
    let [one, two] = &servers;
    let standby = one.standby().start();
    let received = standby.cut_off();
    let lost = "INSERT INTO orders (item) SELECT 'lost' FROM generate_series(1, 5000)";
    one.connect().batch_execute(lost).unwrap();
    wait_until_equal(&servers);
    one.crash();
    standby.wait_until_replayed(&received);
    standby.promote();

    follow(&standby, recipe(NEW_PRIMARY));
    follow_with(two, recipe(ANEW), &standby);
    for server in [&standby, two] {
        server.connect().batch_execute("INSERT INTO orders (item) VALUES ('after')").unwrap();
    }
    for server in [&standby, two] {
        let mut session = server.connect();
        wait_until("the other's row", || session.value("SELECT count(*) FROM orders WHERE item = 'after'") == "2");
    }
    // These rows have to be carried over by hand.
    let held = "SELECT count(*) FROM orders WHERE item = 'lost'";
    assert_eq!([&standby, two].map(|server| server.connect().value(held)), ["0", "5000"]);
}

/// Two servers that replicate to each other, and the first one's standby, which keeps a copy of the
/// slot that the second one reads. `None` before PostgreSQL 17, where no slot survives a failover.
fn two_writers_with_a_standby() -> Option<([Server; 2], Server)> {
    if postgres_version() < 17 {
        return None;
    }
    let servers = two_writers();
    let [one, two] = &servers;
    one.connect().batch_execute("SELECT pg_create_physical_replication_slot('of_standby')").unwrap();
    one.set_config("synchronized_standby_slots", "of_standby");
    one.reload();
    let standby = one.standby().config("primary_slot_name", "of_standby").config("hot_standby_feedback", "on");
    let standby = standby.config("sync_replication_slots", "on").start();

    for server in &servers {
        follow(server, recipe(BOTH));
    }
    follow_with(one, recipe(EACH), two);
    follow_with(two, recipe(SURVIVING), one);
    servers.iter().for_each(wait_until_copied);
    let mut session = one.connect();
    wait_until("the copy of the slot", || {
        // The copy is complete once the slot has moved on. An idle primary would let it rest.
        session.batch_execute("SELECT pg_log_standby_snapshot()").unwrap();
        follow(&standby, recipe(SURVIVORS)) == "other_orders"
    });
    wait_until_copied(&standby);
    Some((servers, standby))
}

#[test]
fn a_subscription_that_survives_the_failover_is_never_ahead_of_the_standby() {
    let Some(([one, two], standby)) = two_writers_with_a_standby() else { return };
    // This may be within a record, so the standby need not replay up to there.
    let _received = standby.cut_off();
    let lost = "INSERT INTO orders (item) SELECT 'lost' FROM generate_series(1, 500)";
    one.connect().batch_execute(lost).unwrap();
    let held_back = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'WaitForStandbyConfirmation'";
    let mut session = one.connect();
    wait_until("the standby to be waited for", || session.value(held_back) == "1");
    drop(session);
    one.crash();
    standby.promote();

    follow(&standby, recipe(WITHOUT_STANDBY));
    follow_with(&two, recipe(GOES_ON), &standby);
    for server in [&standby, &two] {
        server.connect().batch_execute("INSERT INTO orders (item) VALUES ('after')").unwrap();
    }
    let servers = [standby, two];
    wait_until_equal(&servers);
    assert_eq!(servers[1].connect().value("SELECT count(*) FROM orders WHERE item = 'lost'"), "0");
}

/// Unlike with a subscription that is made anew
/// (`after_a_failover_each_gets_what_the_other_writes_from_then_on`).
#[test]
fn a_subscription_that_survives_the_failover_gets_what_only_the_standby_had_received() {
    let Some(([one, two], standby)) = two_writers_with_a_standby() else { return };
    two.connect().batch_execute("ALTER SUBSCRIPTION other_orders DISABLE").unwrap();
    one.connect().batch_execute("INSERT INTO orders (item) SELECT 'late' FROM generate_series(1, 500)").unwrap();
    let late = "SELECT count(*) FROM orders WHERE item = 'late'";
    let mut session = standby.connect();
    wait_until("the standby's rows", || session.value(late) == "500");
    one.crash();
    standby.promote();

    follow(&standby, recipe(WITHOUT_STANDBY));
    follow_with(&two, recipe(GOES_ON), &standby);
    two.connect().batch_execute("ALTER SUBSCRIPTION other_orders ENABLE").unwrap();
    let servers = [standby, two];
    wait_until_equal(&servers);
    assert_eq!(servers[1].connect().value(late), "500");
}

/// The control shows why the filter is needed.
#[test]
fn without_the_filter_a_row_comes_back_and_is_in_conflict() {
    let servers = two_writers();
    let [one, two] = &servers;
    for server in &servers {
        server.connect().batch_execute("CREATE PUBLICATION own_orders FOR TABLE orders").unwrap();
    }
    let without_copy =
        recipe(EACH).replace("PUBLICATION own_orders", "PUBLICATION own_orders WITH (copy_data = false)");
    follow_with(one, &without_copy, two);
    follow_with(two, &without_copy, one);
    servers.iter().for_each(wait_until_copied);
    one.connect().batch_execute("INSERT INTO orders (item) VALUES ('once')").unwrap();
    wait_until_conflict(one);
}

/// The page's advice for PostgreSQL 16 and later.
#[test]
fn with_origin_none_no_filter_is_needed_and_rows_may_be_changed_on_both_sides() {
    if postgres_version() < 16 {
        return;
    }
    let servers = two_writers();
    let [one, two] = &servers;
    for server in &servers {
        server.connect().batch_execute("DELETE FROM orders; CREATE PUBLICATION own_orders FOR TABLE orders").unwrap();
    }
    let origin_none = recipe(EACH).replace("PUBLICATION own_orders", "PUBLICATION own_orders WITH (origin = none)");
    follow_with(one, &origin_none, two);
    follow_with(two, &origin_none, one);
    servers.iter().for_each(wait_until_copied);
    for server in &servers {
        server.connect().batch_execute("INSERT INTO orders (item) SELECT 'new' FROM generate_series(1, 500)").unwrap();
    }
    wait_until_equal(&servers);
    for (server, item) in servers.iter().zip(["first", "second"]) {
        server.connect().batch_execute(&format!("UPDATE orders SET item = '{item}'")).unwrap();
        wait_until_equal(&servers);
        assert_eq!(server.connect().value("SELECT count(*) || ' ' || min(item) FROM orders"), format!("1000 {item}"));
    }
    servers.iter().for_each(assert_without_conflict);
}

#[test]
fn the_filter_holds_for_backup_workers_and_datacenters_too() {
    let [.., two] = two_writers();
    let one = publishing(Server::builder().set("worker_id", "1").set("backup_worker", "on")).start_with_extension();
    add_table(&one);
    assert_eq!(follow(&one, recipe(BOTH)), "(id >> 12 & 511) = 1");
    let insert = |numbers: &str| {
        let ids = format!("SELECT snowflake_compose('2026-06-01Z', n, 7) FROM unnest('{numbers}'::int[]) n");
        one.connect().ids(&format!("INSERT INTO orders (id) {ids} RETURNING id"))
    };
    let own = insert("{1, 513}").unwrap();
    for other in [0, 2, 512, 514, 1023] {
        assert_eq!(refused(insert(&format!("{{{other}}}"))).sqlstate, "P0001", "{other}");
    }
    // Insert the rows as if they had arrived by replication.
    one.connect().batch_execute("ALTER TABLE orders DISABLE TRIGGER refuse_new").unwrap();
    insert("{0, 2, 512, 514, 1023}").unwrap();
    let before = rows(&two);
    follow_with(&two, recipe(EACH), &one);
    wait_until_copied(&two);
    one.connect().batch_execute("UPDATE orders SET item = 'changed' WHERE id >> 12 & 511 = 1").unwrap();
    wait_until_sent(&one);
    assert_eq!(rows(&two), [own, before].concat());
    assert_eq!(two.connect().value("SELECT count(*) FROM orders WHERE item = 'changed'"), "2");

    for (backup, bits) in [("off", 31), ("on", 15)] {
        let numbers = Server::builder().set("layout", "twitter").set("datacenter_id", "3").set("worker_id", "1");
        let server = publishing(numbers.set("backup_worker", backup)).start_with_extension();
        add_table(&server);
        let own = format!("(id >> 17 & 31) = 3 AND (id >> 12 & {bits}) = 1");
        assert_eq!(follow(&server, recipe(BOTH)), own);
        let mut session = server.connect();
        let id = session.ids("INSERT INTO orders DEFAULT VALUES RETURNING id").unwrap()[0];
        assert_eq!(session.ids(&format!("SELECT id FROM orders WHERE {own}")).unwrap(), [id]);

        // Another worker number needs another filter, and the error says so.
        drop(session);
        server.set_config("snowflake_id.worker_id", "2");
        server.restart();
        assert_eq!(refused(server.connect().batch_execute("INSERT INTO orders DEFAULT VALUES")).sqlstate, "P0001");
    }
}

/// The ids of a statement's rows, each drawn by this worker.
#[track_caller]
fn drawn_by(number: u32, session: &mut Client, sql: &str) -> Vec<i64> {
    let ids = session.ids(sql).unwrap();
    for id in &ids {
        assert_eq!(worker("snowflake", *id), number, "{sql}");
    }
    ids
}

/// Two servers. The first one has foreign tables for the second one's table, as on the page.
/// `None` if postgres_fdw is not installed.
fn linked() -> Option<[Server; 2]> {
    let servers = [1, 2].map(|number| Server::builder().set("worker_id", &number.to_string()).start_with_extension());
    let [one, two] = &servers;
    if !one.has_extension("postgres_fdw") {
        skip("postgres_fdw is not installed");
        return None;
    }
    let app = "CREATE ROLE app LOGIN; GRANT SELECT, INSERT ON orders TO app";
    two.connect().batch_execute(&format!("{ORDERS}; {app}")).unwrap();
    follow_with(one, recipe(WITHOUT_TABLE), two);
    Some(servers)
}

#[test]
fn through_postgres_fdw_the_remote_server_draws_where_the_foreign_table_has_no_id() {
    let Some([one, two]) = linked() else { return };
    let (mut session, mut remote) = (one.connect(), two.connect());
    let mut stored = drawn_by(2, &mut remote, "SELECT id FROM orders WHERE item = 'tea'");
    assert_eq!(stored.len(), 1);
    let returning = "INSERT INTO new_orders (item) VALUES ('tea') RETURNING id";
    assert_eq!(refused(session.ids(returning)).sqlstate, "42703");

    // A column that is not named is sent as NULL. Its value is returned once the remote server has
    // drawn it.
    let insert = "INSERT INTO orders (item) VALUES ('tea'), ('coffee') RETURNING id";
    assert_eq!(refused(session.ids(insert)).sqlstate, "23502");
    follow(&two, recipe(WITH_TABLE));
    stored.extend(drawn_by(2, &mut session, insert));
    stored.extend(session.ids("INSERT INTO orders VALUES (1, 'its own') RETURNING id").unwrap());

    // A local default draws here, however it was declared.
    session
        .batch_execute(
            "CREATE SCHEMA imported;
             IMPORT FOREIGN SCHEMA public LIMIT TO (orders) FROM SERVER other INTO imported OPTIONS (import_default 'true');
             CREATE TABLE parted (id bigint DEFAULT snowflake_next(), item text) PARTITION BY LIST (item);
             CREATE FOREIGN TABLE elsewhere PARTITION OF parted DEFAULT SERVER other OPTIONS (table_name 'orders')",
        )
        .unwrap();
    for table in ["imported.orders", "parted"] {
        stored.extend(drawn_by(1, &mut session, &format!("INSERT INTO {table} (item) VALUES ('tea') RETURNING id")));
    }

    stored.sort_unstable();
    assert_eq!(rows(&two), stored);
    assert_eq!(session.ids("SELECT id FROM orders ORDER BY id").unwrap(), stored);
}

#[test]
fn a_condition_on_the_time_reaches_the_remote_server_if_it_is_constant() {
    let Some([one, _two]) = linked() else { return };
    let mut session = one.connect();
    let mut remote_sql = |time: &str| {
        let sql = format!("EXPLAIN (VERBOSE, COSTS OFF) SELECT * FROM orders WHERE snowflake_timestamp(id) >= {time}");
        let rows = session.query(&sql, &[]).unwrap();
        let lines = rows.iter().map(|row| row.get::<_, String>(0).trim().to_owned());
        lines.into_iter().find(|line| line.starts_with("Remote SQL")).expect("it is a foreign table")
    };
    let all = "Remote SQL: SELECT id, item FROM public.orders";
    assert_eq!(remote_sql("'2026-11-20Z'"), format!("{all} WHERE ((id >= 249322851532800000::bigint))"));
    assert_eq!(remote_sql("now()"), all);
    assert_eq!(
        session.value("SELECT count(*) FROM orders WHERE snowflake_timestamp(id) >= now() - interval '1 day'"),
        "1"
    );
}

/// A subscriber with the worker number of its publisher, which is down, and with its rows. The
/// publisher drew at noon, and some ticks later. The subscriber's clock is years behind until the
/// test sets it. `None` if libfaketime is not installed.
fn replica() -> Option<(Server, Vec<i64>)> {
    let publisher = publishing(Server::drawing()).start_frozen(noon())?;
    add_table(&publisher);
    let mut ids = Vec::new();
    for instant_ms in [noon(), noon() + 50] {
        publisher.freeze_clock(instant_ms);
        let insert = "INSERT INTO orders (item) SELECT 'tea' FROM generate_series(1, 150) RETURNING id";
        let drawn = publisher.connect().ids(insert).unwrap();
        assert!(drawn.iter().all(|id| start_ms("snowflake", *id) == instant_ms && worker("snowflake", *id) == WORKER));
        ids.extend(drawn);
    }
    publisher.connect().batch_execute("CREATE PUBLICATION orders FOR TABLE orders").unwrap();

    let replica = Server::drawing().faketime_from("-20y").start_with_extension();
    replica.connect().batch_execute(ORDERS).unwrap();
    let subscribe = recipe(EACH).replace("SUBSCRIPTION other_orders", "SUBSCRIPTION orders");
    follow_with(&replica, &subscribe.replace("PUBLICATION own_orders", "PUBLICATION orders"), &publisher);
    wait_until_copied(&replica);
    assert_eq!(rows(&replica), ids);
    publisher.stop(Shutdown::Fast);
    Some((replica, ids))
}

#[test]
fn a_logical_replica_that_takes_over_the_number_draws_above_what_it_holds_only_after_an_advance() {
    let Some((replica, ids)) = replica() else { return };
    let (farewell, advance) = recipe(REPLICA).split_once("\n\n").expect("first it leaves, then it advances");
    assert!(farewell.contains("DROP SUBSCRIPTION") && advance.contains("snowflake_advance"));
    follow(&replica, farewell);
    replica.freeze_clock_after_first_load(noon());
    let insert = "INSERT INTO orders (item) VALUES ('tea') RETURNING id";
    let mut session = replica.connect();
    // The control: the repetition that the page warns of.
    let refusal = refused(session.ids(insert));
    assert_eq!(refusal.sqlstate, "23505", "{refusal:?}");

    follow(&replica, advance);
    let next = session.ids(insert).unwrap()[0];
    assert!(next > ids[299], "{next} was drawn after an advance to {}", ids[299]);
    assert_eq!(worker("snowflake", next), WORKER);
}

#[test]
fn a_logical_replica_whose_clock_is_behind_refuses_after_the_advance_until_it_has_passed() {
    let Some((replica, ids)) = replica() else { return };
    let (farewell, advance) = recipe(REPLICA).split_once("\n\n").expect("first it leaves, then it advances");
    follow(&replica, farewell);
    // By this clock every id is in the far future.
    let refusal = refused(replica.connect().batch_execute(advance));
    assert_eq!(refusal.sqlstate, "22023", "{refusal:?}");
    replica.freeze_clock(noon() - 3_600_000);
    follow(&replica, advance);
    for behind_ms in [3_600_000, 60_000] {
        replica.freeze_clock(noon() - behind_ms);
        let behind = behind_the_mark_ms(&replica.refused_draw("SELECT snowflake_next()"));
        assert!((behind_ms..behind_ms + 5000).contains(&behind), "{behind} ms");
    }
    // Beyond the mark, which runs ahead of the greatest id by a second.
    replica.freeze_clock_after_first_load(noon() + 2000);
    let next = replica.connect().draw();
    assert!(next > ids[299], "{next} was drawn after an advance to {}", ids[299]);
}

/// Lets the application move from one server to the other, as on the page.
fn cut_over(from: &Server, to: &Server) {
    let (stop, repeated) = recipe(STOP).split_once("\n\n").expect("it ends in what is repeated");
    follow(from, stop);
    wait_until("the other server to have all", || follow(from, repeated).ends_with("\nt"));
    follow(to, recipe(TURN));
    follow_with(from, recipe(FOLLOW), to);
    follow(to, recipe(OPEN));
}

#[test]
fn a_cutover_to_another_server_and_back_under_load_loses_no_row_and_repeats_no_id() {
    let [mut older, newer] = ["1", "2"].map(|number| publishing(Server::builder().set("worker_id", number)));
    if let Some(pg_config) = env::var_os("OLD_PG_CONFIG") {
        older = older.installation(pg_config);
    }
    let servers = [older.start_with_extension(), newer.start()];
    let [old, new] = &servers;
    add_table(old);
    let role = "CREATE ROLE app LOGIN; GRANT ALL ON orders TO app";
    let earlier = "INSERT INTO orders (item) SELECT 'before' FROM generate_series(1, 1000)";
    old.connect().batch_execute(&format!("{role}; {earlier}")).unwrap();
    for (program, argument) in [("pg_dumpall", "--roles-only"), ("pg_dump", "--schema-only")] {
        let dump = old.client(program).arg(argument).output().unwrap();
        assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
        // Each server has its superuser already.
        follow(new, &String::from_utf8(dump.stdout).unwrap().replace("CREATE ROLE postgres;", ""));
    }

    // Where the application finds its server. Relaxed, here and below: nothing else depends on it.
    let (at, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let acknowledged = AtomicUsize::new(0);
    let application = || {
        let mut ids = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let Ok(mut session) = servers[at.load(Ordering::Relaxed)].connection().user("app").connect(NoTls) else {
                thread::yield_now();
                continue;
            };
            while let Ok(drawn) = session.ids("INSERT INTO orders (item) VALUES ('tea'), ('coffee') RETURNING id") {
                acknowledged.fetch_add(1, Ordering::Relaxed);
                ids.extend(drawn);
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        ids
    };
    let wait_for_writes = || {
        let before = acknowledged.load(Ordering::Relaxed);
        wait_until("writes", || acknowledged.load(Ordering::Relaxed) > before + 500);
    };
    let drawn: Vec<i64> = thread::scope(|scope| {
        let ends = Ends(&is_over);
        let sessions: Vec<_> = (0..SESSIONS).map(|_| scope.spawn(application)).collect();
        wait_for_writes();
        follow(old, recipe(PUBLISH));
        follow_with(new, recipe(SUBSCRIBE), old);
        wait_until_copied(new);
        for (from, to, place) in [(old, new, 1), (new, old, 0)] {
            wait_for_writes();
            cut_over(from, to);
            at.store(place, Ordering::Relaxed);
        }
        wait_for_writes();
        drop(ends);
        sessions.into_iter().flat_map(|session| session.join().expect("a session ends")).collect()
    });
    assert_unique(&drawn);
    wait_until_sent(old);
    assert_eq!(rows(old), rows(new));
    let stored: BTreeSet<_> = rows(new).into_iter().collect();
    assert_eq!(drawn.iter().filter(|id| !stored.contains(id)).count(), 0, "acknowledged rows are lost");
    servers.iter().for_each(assert_without_conflict);
    for (number, server) in (1..).zip(&servers) {
        let of_other = format!("SELECT count(*) > 500 FROM orders WHERE id >> 12 & 1023 = {}", 3 - number);
        assert_eq!(server.connect().value(&of_other), "true");
    }
}

#[test]
fn an_id_that_a_shard_draws_hashes_to_its_partition() {
    let server = Server::drawing().start_with_extension();
    server.connect().batch_execute(block("shard-id")).unwrap();
    let partitions = (0..4)
        .map(|n| format!("CREATE TABLE part_{n} PARTITION OF orders FOR VALUES WITH (MODULUS 4, REMAINDER {n});"));
    let table = "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT shard_id(), item text) PARTITION BY HASH (id);";
    server.connect().batch_execute(&format!("{table} {}", partitions.collect::<String>())).unwrap();
    let insert = "INSERT INTO orders (item) SELECT 'tea' FROM generate_series(1, 1000) RETURNING id";
    let drawn = at_once(&server, SESSIONS, |_, mut client| client.ids(insert).unwrap());
    assert_unique(drawn.iter().flatten());
    let mut session = server.connect();
    let places = "SELECT string_agg(DISTINCT tableoid::regclass::text, ' ') FROM orders";
    assert_eq!(session.value(places), "part_2");
    // The control: ids that are taken as they come.
    session.batch_execute("INSERT INTO orders SELECT snowflake_next() FROM generate_series(1, 1000)").unwrap();
    assert_eq!(session.value(places), "part_0 part_1 part_2 part_3");
}
