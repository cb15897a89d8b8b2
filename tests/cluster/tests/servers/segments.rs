//! Dense values on real servers: what is drawn, what is refused, and what is left after a stop. The
//! values of a fleet under load are in `segments_fleet.rs`.

use cluster::operator::commands;
use cluster::pages::{block, page, psql};
use cluster::refusal::assert_refused_as;
use cluster::{
    Draw, Fleet, Leases, Operated, Running, Server, Shutdown, assert_unique, postgres_version, refused, wait_until,
};
use postgres::Client;

/// Inserts a tag into the registry.
fn insert(fleet: &Fleet, tag: &str, columns: &str, values: &str) {
    at_registry(fleet, &format!("INSERT INTO snowflake_registry.tags (tag{columns}) VALUES ('{tag}'{values})"));
}

fn at_registry(fleet: &Fleet, sql: &str) {
    fleet.registry.connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

fn next_value(fleet: &Fleet, tag: &str) -> i64 {
    let sql = format!("SELECT next_value FROM snowflake_registry.tags WHERE tag = '{tag}'");
    fleet.registry.connect().ids(&sql).expect("the registry has tags")[0]
}

/// A fleet with a tag `t`, and its first server.
fn start() -> (Fleet, Server) {
    let fleet = Fleet::start();
    insert(&fleet, "t", "", "");
    let server = fleet.member().start_with_extension();
    (fleet, server)
}

fn draw(session: &mut Client, tag: &str, count: u32) -> Vec<i64> {
    let sql = format!("SELECT snowflake_segment_next('{tag}') FROM generate_series(1, {count})");
    session.ids(&sql).expect("values are drawn")
}

/// Returns a column of `snowflake_segment_stat`, as text.
fn stat(session: &mut Client, tag: &str, column: &str) -> String {
    session.value(&format!("SELECT coalesce(({column})::text, '') FROM snowflake_segment_stat WHERE tag = '{tag}'"))
}

#[test]
fn values_are_dense_and_ascend_on_one_server() {
    let (_fleet, server) = start();
    let mut session = server.connect();
    // The first block has 1,000 values.
    assert_eq!(draw(&mut session, "t", 2500), (1..=2500).collect::<Vec<_>>());
    assert_eq!(draw(&mut server.connect(), "t", 1), [2501]);
    assert_eq!(session.ids("SELECT snowflake_segment_next('t')").unwrap(), [2502]);
    let batch = session.ids("SELECT * FROM snowflake_segment_batch('t', 10000)").unwrap();
    assert_eq!(batch, (2503..=12502).collect::<Vec<_>>());
    assert_eq!(session.ids("SELECT * FROM snowflake_segment_batch('t', 0)").unwrap(), [] as [i64; 0]);
    session.batch_execute("BEGIN; SELECT snowflake_segment_next('t'); ROLLBACK").unwrap();
    assert_eq!(draw(&mut session, "t", 1), [12504], "a rollback gives nothing back");
    session
        .batch_execute(
            "CREATE TABLE invoices (number bigint PRIMARY KEY DEFAULT snowflake_segment_next('t'), line integer); \
             INSERT INTO invoices (line) SELECT generate_series(1, 3)",
        )
        .unwrap();
    assert_eq!(session.ids("SELECT number FROM invoices ORDER BY line").unwrap(), [12505, 12506, 12507]);
    assert_eq!(session.value("SELECT snowflake_segment_next(NULL) IS NULL"), "true");
}

/// One call is evaluated with different tags, and each gets its own values.
#[test]
fn a_call_with_different_tags_draws_from_each() {
    let (fleet, server) = start();
    insert(&fleet, "u", ", next_value", ", 1000000");
    let mut session = server.connect();
    let tags = "(VALUES ('t'), ('u'), ('t'), ('u'), ('u')) AS tags (tag)";
    let values = session.ids(&format!("SELECT snowflake_segment_next(tag) FROM {tags}")).unwrap();
    assert_eq!(values, [1, 1_000_000, 2, 1_000_001, 1_000_002]);
    // PL/pgSQL evaluates the same expression again and again, with another value of its variable.
    session
        .batch_execute(
            "CREATE FUNCTION draw_of(tags text[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
             DECLARE tag text; value bigint;
             BEGIN
                 FOREACH tag IN ARRAY tags LOOP
                     value := snowflake_segment_next(tag);
                     RETURN NEXT value;
                 END LOOP;
             END $$",
        )
        .unwrap();
    let values = session.ids("SELECT draw_of(ARRAY['t', 'u', 't', 'u'])").unwrap();
    assert_eq!(values, [3, 1_000_003, 4, 1_000_004]);
    let statement = session.prepare("SELECT snowflake_segment_next($1)").unwrap();
    for (tag, value) in [("t", 5), ("u", 1_000_005), ("t", 6)] {
        assert_eq!(session.query_one(&statement, &[&tag]).unwrap().get::<_, i64>(0), value);
    }
}

/// A call keeps where its values are as a number in `fn_extra` (`src/entry.rs`). In a new server it
/// is below every address that a process can map, so the server would end if anything took it for a
/// pointer. The library asserts, as tests load it, that pgrx's wrapper leaves it as it is.
#[test]
fn a_call_that_waits_keeps_the_number_of_its_place() {
    let fleet = Fleet::start();
    insert(&fleet, "t", ", least_step, greatest_step", ", 1, 1");
    let server = fleet.member().start_with_extension();
    let mut session = server.connect();
    // Each block has one value, so the guarded function waits for most values. The first call of
    // the session keeps nothing yet.
    assert_eq!(draw(&mut session, "t", 300), (1..=300).collect::<Vec<_>>());
    let waits = |session: &mut Client| stat(session, "t", "waits").parse::<u64>().expect("a number");
    let before = waits(&mut session);
    assert!(before >= 2, "{before}");
    // PostgreSQL keeps what it needs for such a function in a description of its own.
    session.batch_execute("ALTER FUNCTION snowflake_segment_next(text) SECURITY DEFINER SET work_mem = '1MB'").unwrap();
    assert_eq!(draw(&mut session, "t", 300), (301..=600).collect::<Vec<_>>());
    assert!(waits(&mut session) >= before + 2);
}

#[test]
fn wrong_calls_are_refused() {
    let (fleet, server) = start();
    let mut session = server.connect();
    let longest = "x".repeat(63);
    let too_long = format!("SELECT snowflake_segment_next('{longest}x')");
    for (sql, sqlstate, message) in [
        ("SELECT snowflake_segment_next('')", "22023", "tag is empty"),
        (&too_long, "22023", "tag has 64 bytes, but can have 63 at most"),
        ("SELECT * FROM snowflake_segment_batch('t', -1)", "22023", "count -1 is outside the range 0..2147483647"),
        (
            "SELECT snowflake_segment_next('no such tag')",
            "42704",
            "tag \"no such tag\" does not exist in the registry's fleet \"default\"",
        ),
        (
            "SELECT snowflake_segment_next('t')",
            "25006",
            "cannot execute snowflake_segment_next() in a read-only transaction",
        ),
        (
            "SELECT * FROM snowflake_segment_batch('t', 1)",
            "25006",
            "cannot execute snowflake_segment_batch() in a read-only transaction",
        ),
    ] {
        session.batch_execute(&format!("SET default_transaction_read_only = {}", sqlstate == "25006")).unwrap();
        assert_refused_as(&refused(session.batch_execute(sql)), sqlstate, message);
    }
    // The hint of the unknown tag is what has to be done.
    let mut session = server.connect();
    let refusal = refused(session.batch_execute(&format!("SELECT snowflake_segment_next('{longest}')")));
    let hint = refusal.hint.expect("it has a hint");
    fleet.enter(hint.strip_prefix("Make it: ").expect("it begins so"));
    assert_eq!(draw(&mut session, &longest, 2), [1, 2]);
    // A standby draws nothing, and its claims nothing.
    let standby = server.standby().start();
    let refusal = refused(standby.connect().batch_execute("SELECT snowflake_segment_next('t')"));
    assert_refused_as(&refusal, "25006", "cannot execute snowflake_segment_next() during recovery");
}

#[test]
fn a_server_without_a_registry_refuses() {
    let server = Server::drawing().start_with_extension();
    let refusal = refused(server.connect().batch_execute("SELECT snowflake_segment_next('t')"));
    assert_refused_as(&refusal, "55000", "this server has no registry, from which the values of a tag come");
    assert_eq!(server.connect().value("SELECT count(*) FROM snowflake_segment_stat"), "0");
}

#[test]
fn a_role_without_rights_draws_and_does_not_look() {
    let (_fleet, server) = start();
    server.connect().batch_execute("CREATE ROLE app LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor").unwrap();
    let mut app = server.connect_as("app");
    assert_eq!(draw(&mut app, "t", 1), [1]);
    let refusal = refused(app.batch_execute("SELECT * FROM snowflake_segment_stat"));
    assert_refused_as(&refusal, "42501", "permission denied for view snowflake_segment_stat");
    assert_eq!(stat(&mut server.connect_as("watcher"), "t", "state"), "open");
}

#[test]
fn the_view_shows_what_is_left() {
    let (_fleet, server) = start();
    let mut session = server.connect();
    draw(&mut session, "t", 50);
    assert_eq!(
        stat(&mut session, "t", "(state, current_from, current_left, next_from, next_left)"),
        "(open,51,950,,0)"
    );
    // The worker notes this once the block is in place, from which the session has drawn.
    wait_until("the worker's note", || stat(&mut session, "t", "(step, blocks, last_block_lasted)") == "(1000,1,)");
    // A tenth is drawn, and the next block is reserved.
    draw(&mut session, "t", 50);
    wait_until("the next block", || stat(&mut session, "t", "next_left") == "1000");
    assert_eq!(stat(&mut session, "t", "(current_from, current_left, next_from)"), "(101,900,1001)");
    // The first draw has waited for its block.
    assert_eq!(stat(&mut session, "t", "(waits, refused)"), "(1,0)");
    assert_eq!(stat(&mut session, "t", "wait_time > 0"), "true");
    // Blocks that are soon used up become larger (a second's draws, not 15 minutes').
    draw(&mut session, "t", 20_000);
    wait_until("a larger step", || stat(&mut session, "t", "step > 2000") == "true");
}

/// A restart goes on where the server has stopped, without a gap.
#[test]
fn a_clean_stop_gives_the_rest_back() {
    let (fleet, server) = start();
    let mut drawn = draw(&mut server.connect(), "t", 150);
    wait_until("the next block", || stat(&mut server.connect(), "t", "next_left") != "0");
    server.stop(Shutdown::Fast);
    assert_eq!(next_value(&fleet, "t"), 151);
    assert!(server.log().contains("the values of tag \"t\" from 151 on are given back"));
    server.start_again();
    drawn.extend(draw(&mut server.connect(), "t", 10));
    // The worker alone ends, and another one goes on.
    let pid = server.connect().value("SELECT pid FROM snowflake_lease").parse().unwrap();
    server.end_worker(pid);
    wait_until("another worker", || {
        let found = server.connect().value("SELECT coalesce(pid, 0) FROM snowflake_lease");
        found != "0" && found != pid.to_string()
    });
    drawn.extend(draw(&mut server.connect(), "t", 10));
    assert_eq!(drawn, (1..=170).collect::<Vec<_>>());
    // What another server has taken since stays as it is.
    let other = fleet.member().start_with_extension();
    assert_eq!(draw(&mut other.connect(), "t", 1), [1161]);
    server.stop(Shutdown::Fast);
    assert_eq!(next_value(&fleet, "t"), 2161);
}

#[test]
fn a_crash_loses_two_blocks_at_most() {
    let (fleet, server) = start();
    let mut drawn = Vec::new();
    for crash in ["server", "backend"] {
        drawn.extend(draw(&mut server.connect(), "t", 150));
        wait_until("the next block", || stat(&mut server.connect(), "t", "next_left") != "0");
        let next = next_value(&fleet, "t");
        if crash == "server" {
            server.crash();
            server.start_again();
        } else {
            let mut session = server.connect();
            server.kill_backend(session.value("pg_backend_pid()").parse().unwrap());
            wait_until("the end of the session", || session.batch_execute("SELECT 1").is_err());
            server.wait_until_ready();
        }
        let first = draw(&mut server.connect(), "t", 1);
        assert_eq!(first, [next], "{crash}");
        drawn.extend(first);
    }
    assert_unique(&drawn);
    cluster::assert_ascending(&drawn);
}

#[test]
fn a_server_draws_without_its_registry_until_its_blocks_end() {
    let (fleet, server) = start();
    let mut session = server.connect();
    let mut drawn = draw(&mut session, "t", 150);
    wait_until("the next block", || stat(&mut session, "t", "next_left") == "1000");
    fleet.registry.crash();
    drawn.extend(draw(&mut session, "t", 1850));
    let refusal = refused(session.batch_execute("SELECT snowflake_segment_next('t')"));
    assert_refused_as(&refusal, "58000", "no values of tag \"t\" are left on this server");
    assert!(refusal.detail.unwrap().contains("could not connect to the registry"));
    assert_eq!(stat(&mut session, "t", "(current_left, next_left, refused)"), "(0,0,1)");
    assert!(stat(&mut session, "t", "last_error").starts_with("could not connect to the registry"));
    // The alarm does not wait for a minute.
    let alarm = || psql(&server, &[], block("segment-alarm"));
    assert!(alarm().contains("(1 row)"), "{}", alarm());
    // A tag that was never drawn here is refused alike.
    let refusal = refused(session.batch_execute("SELECT snowflake_segment_next('another')"));
    assert_refused_as(&refusal, "58000", "no values of tag \"another\" are left on this server");
    // Sessions go on when the registry is there again.
    let waiting = Running::start(server.connect(), "SELECT snowflake_segment_next('t')");
    fleet.registry.start_again();
    let (_, values) = waiting.end();
    // On a slow machine it is not there within five seconds.
    drawn.extend(values.unwrap_or_default());
    wait_until("another value", || {
        let more = session.ids("SELECT snowflake_segment_next('t')").unwrap_or_default();
        drawn.extend(&more);
        !more.is_empty()
    });
    assert_eq!(drawn, (1..=drawn.len() as i64).collect::<Vec<_>>());
    wait_until("no error", || stat(&mut session, "t", "last_error").is_empty());
    assert!(server.log().contains("the registry gives blocks of values again"));
    session.batch_execute("SELECT snowflake_stat_reset()").unwrap();
    assert!(alarm().contains("(0 rows)"), "{}", alarm());
}

#[test]
fn a_waiting_session_can_be_cancelled_and_shows_why_it_waits() {
    let (fleet, server) = start();
    fleet.registry.crash();
    let mut observer = server.connect();
    let wanted = if postgres_version() < 17 { "Extension" } else { "SnowflakeSegment" };
    // On a slow machine, the wait may be over before it is cancelled.
    wait_until("a wait that is cancelled", || {
        let waiting = Running::start(server.connect(), "SELECT snowflake_segment_next('t')");
        server.wait_until_waiting(waiting.pid);
        let event = observer.value(&format!("SELECT wait_event FROM pg_stat_activity WHERE pid = {}", waiting.pid));
        observer.execute("SELECT pg_cancel_backend($1)", &[&waiting.pid]).unwrap();
        event == wanted && refused(waiting.end().1).sqlstate == "57014"
    });
}

#[test]
fn a_deleted_tag_is_refused_and_its_place_is_free() {
    let (fleet, server) = start();
    let mut session = server.connect();
    at_registry(
        &fleet,
        "INSERT INTO snowflake_registry.tags (tag) SELECT 'tag ' || n FROM generate_series(1, 256) AS n",
    );
    for number in 1..=256 {
        assert_eq!(draw(&mut session, &format!("tag {number}"), 1), [1]);
    }
    let refusal = refused(session.batch_execute("SELECT snowflake_segment_next('t')"));
    assert_refused_as(&refusal, "54000", "256 tags are in use on this server, which is the limit");
    at_registry(&fleet, "DELETE FROM snowflake_registry.tags WHERE tag = 'tag 7'");
    // The worker asks every ten seconds whether its tags are still there.
    wait_until("a free place", || session.value("SELECT count(*) FROM snowflake_segment_stat") == "255");
    let refusal = refused(session.batch_execute("SELECT snowflake_segment_next('tag 7')"));
    assert_refused_as(&refusal, "42704", "tag \"tag 7\" does not exist in the registry's fleet \"default\"");
    assert_eq!(draw(&mut session, "t", 2), [1, 2]);
    assert!(server.log().contains("the registry does not have tag \"tag 7\" any more"));
}

/// A name is the same in databases of all encodings. Its bytes in one can be another name in UTF-8.
#[test]
fn a_name_means_the_same_tag_in_every_encoding() {
    let (fleet, server) = start();
    for (tag, first) in [("ä", 1000), ("Ã¤", 2000), ("?", 3000)] {
        insert(&fleet, tag, ", next_value", &format!(", {first}"));
    }
    let make = |name: &str, encoding: &str| {
        let sql = format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'");
        server.connect().batch_execute(&sql).unwrap();
        let mut session = server.connect_to(name);
        session.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
        session
    };
    let mut latin1 = make("latin1", "LATIN1");
    let mut utf8 = server.connect();
    for (tag, first) in [("ä", 1000), ("Ã¤", 2000), ("ä", 1003), ("Ã¤", 2003)] {
        assert_eq!(draw(&mut latin1, tag, 1), [first], "{tag}");
        assert_eq!(latin1.ids(&format!("SELECT snowflake_segment_batch('{tag}', 1)")).unwrap(), [first + 1], "{tag}");
        assert_eq!(draw(&mut utf8, tag, 1), [first + 2], "{tag}");
    }
    let refusal = refused(latin1.batch_execute("SELECT snowflake_segment_next('é')"));
    assert_refused_as(&refusal, "42704", "tag \"?\" does not exist in the registry's fleet \"default\"");
    let hint = refusal.hint.expect("it has a hint");
    fleet.enter(hint.strip_prefix("Make it: ").expect("it begins so"));
    assert_eq!((draw(&mut latin1, "é", 1), draw(&mut utf8, "é", 1)), (vec![1], vec![2]));
    let mut ascii = make("sql_ascii", "SQL_ASCII");
    ascii.batch_execute("SET client_encoding = 'SQL_ASCII'").unwrap();
    let wrong = "SELECT snowflake_segment_next(convert_from('\\xe4'::bytea, 'SQL_ASCII'))";
    assert_refused_as(
        &refused(ascii.batch_execute(wrong)),
        "22021",
        "invalid byte sequence for encoding \"UTF8\": 0xe4",
    );
}

/// A database whose extension was made again does not know its fleet any more, and learns it anew.
#[test]
fn a_session_checks_the_fleet_again_where_the_extension_was_made_again() {
    let (_fleet, server) = start();
    let mut session = server.connect();
    let knows = |session: &mut Client| session.value("SELECT is_called FROM snowflake_mark_fleet") == "true";
    draw(&mut session, "t", 2);
    assert!(knows(&mut session));
    session.batch_execute("DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id").unwrap();
    assert!(!knows(&mut session));
    draw(&mut session, "t", 1);
    assert!(knows(&mut session));
    session.batch_execute("DROP EXTENSION snowflake_id").unwrap();
    session.batch_execute("BEGIN; CREATE EXTENSION snowflake_id").unwrap();
    draw(&mut session, "t", 1);
    session.batch_execute("ROLLBACK").unwrap();
    session.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    session.ids("SELECT snowflake_segment_batch('t', 2)").unwrap();
    assert!(knows(&mut session));
}

/// A tag that is deleted and made again is another one, and begins anew.
#[test]
fn a_tag_that_is_made_again_begins_anew() {
    let (fleet, server) = start();
    let mut session = server.connect();
    draw(&mut session, "t", 10);
    at_registry(
        &fleet,
        "DELETE FROM snowflake_registry.tags; INSERT INTO snowflake_registry.tags (tag, next_value) VALUES ('t', 70001)",
    );
    wait_until("the other tag", || draw(&mut session, "t", 1)[0] >= 70001);
}

#[test]
fn values_end_with_bigint() {
    let (fleet, server) = start();
    insert(&fleet, "last", ", next_value", ", 9223372036854775805");
    let mut session = server.connect();
    assert_eq!(draw(&mut session, "last", 2), [i64::MAX - 2, i64::MAX - 1]);
    let refusal = refused(session.batch_execute("SELECT snowflake_segment_next('last')"));
    assert_refused_as(&refusal, "2200H", "tag \"last\" has no values left");
    assert_eq!(stat(&mut session, "last", "state"), "ended");
    assert_eq!(draw(&mut session, "t", 1), [1], "other tags go on");
}

/// A tag that does not jump waits for an operator after the registry may have lost something.
#[test]
fn a_tag_without_a_jump_stops_when_the_registry_forgets() {
    let (fleet, server) = start();
    insert(&fleet, "u", "", "");
    at_registry(&fleet, "UPDATE snowflake_registry.tags SET jumps = true WHERE tag = 't'");
    let mut session = server.connect();
    draw(&mut session, "t", 150);
    draw(&mut session, "u", 1);
    wait_until("the next block", || stat(&mut session, "t", "next_left") == "1000");
    fleet.operate(&["restored"]);
    // An operator knows before the values are used up.
    wait_until("the alarm", || stat(&mut session, "u", "state") == "stopped");
    assert_eq!(stat(&mut session, "u", "current_left"), "999");
    // What the server has it may draw.
    assert_eq!(draw(&mut session, "t", 1850).last(), Some(&2000));
    let refusal = loop {
        match session.ids("SELECT snowflake_segment_next('u')") {
            Ok(_) => {}
            Err(error) => break refused::<()>(Err(error)),
        }
    };
    let message = "tag \"u\" gives no values until an operator has said where they go on";
    assert_refused_as(&refusal, "55000", message);
    assert_eq!(stat(&mut session, "u", "state"), "stopped");
    // 1,000 times the greatest step, which is a million, and as much for each second.
    let value = draw(&mut session, "t", 1)[0];
    assert!(value > 1_000_000_000 && value % 1_000_000_000 == 2001, "{value}");
    fleet.operate(&["set-tag", "u", "--next-value", "5000"]);
    wait_until("the tag", || session.ids("SELECT snowflake_segment_next('u')").is_ok_and(|values| values[0] == 5000));
}

/// Two registries give the same values. So a database draws from one fleet only.
#[test]
fn a_database_refuses_another_fleet() {
    let (_fleet, server) = start();
    let mut drawn = draw(&mut server.connect(), "t", 10);
    server.stop(Shutdown::Fast);
    let other = Fleet::start();
    insert(&other, "t", "", "");
    server.set_config("snowflake_id.registry", &other.conninfo());
    server.start_again();
    let mut session = server.connect();
    let refusal = refused(session.batch_execute("SELECT snowflake_segment_next('t')"));
    let message = "this database belongs to another fleet than the one that leases the server's number";
    assert_refused_as(&refusal, "55000", message);
    session.batch_execute("SELECT snowflake_accept_fleet()").unwrap();
    drawn.extend(draw(&mut session, "t", 1));
    assert_eq!(drawn.last(), Some(&1), "the operator has accepted it");
}

/// A server whose registry is its own database.
#[test]
fn one_server_is_its_own_registry() {
    let server = Server::builder().without_preload().durable().start();
    server.make_registry();
    server.connect().batch_execute("INSERT INTO snowflake_registry.tags (tag) VALUES ('t')").unwrap();
    let registry = server.registry_conninfo();
    server.set_config("shared_preload_libraries", "snowflake_id");
    server.set_config("snowflake_id.registry", &registry);
    server.restart();
    let mut session = server.connect();
    session.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    let number = session.wait_for_lease();
    let mut drawn = draw(&mut session, "t", 2000);
    assert_eq!(drawn, (1..=2000).collect::<Vec<_>>());
    server.restart();
    // It cannot give back at its own stop, and goes on with its lease.
    drawn.extend(draw(&mut server.connect(), "t", 10));
    assert_eq!(server.connect().wait_for_lease(), number);
    assert_unique(&drawn);
    cluster::assert_ascending(&drawn);
    server.crash();
    server.start_again();
    drawn.extend(draw(&mut server.connect(), "t", 10));
    assert_eq!(server.connect().wait_for_lease(), number);
    assert_unique(&drawn);
    cluster::assert_ascending(&drawn);
}

/// Parallel workers draw nothing, as for `nextval`.
#[test]
fn a_parallel_query_draws_in_its_leader() {
    let (_fleet, server) = start();
    let mut session = server.connect();
    let setting = if postgres_version() < 16 { "force_parallel_mode" } else { "debug_parallel_query" };
    session
        .batch_execute(&format!("SET {setting} = on; CREATE TABLE many AS SELECT generate_series(1, 1000) AS n"))
        .unwrap();
    let values = session.ids("SELECT snowflake_segment_next('t') FROM many").unwrap();
    assert_eq!(assert_unique(&values), 1000);
}

/// The statements of the page, in its order.
#[test]
fn the_page_about_segments_prints_what_it_says() {
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    let at_registry = |block: &str| match block.starts_with("$ ") {
        true => fleet.enter(&commands(block)),
        false => psql(&fleet.registry, &[], block),
    };
    let at_server = |sql: &str| psql(&server, &[], sql);
    at_registry(block("segment-tag"));
    let printed = at_server(block("segment-draw"));
    let page = page("docs/segments.md");
    let place = page.blocks.iter().position(|block| block.key("name") == Some("segment-draw")).unwrap();
    let rows = printed.lines().skip_while(|line| !line.contains("number")).collect::<Vec<_>>().join("\n");
    assert_eq!(rows.trim_end(), page.blocks[place + 1].text.trim_end());
    assert!(at_server(block("segment-gapless")).contains("    1"));
    assert!(at_server(block("segment-alarm")).contains("(0 rows)"));
    at_registry(block("segment-steps"));
    at_registry(block("segment-stopped"));
    assert_eq!(next_value(&fleet, "invoices"), 250_001);
    at_registry(block("segment-jump"));
    let dry = at_registry(block("segment-dry-run"));
    assert!(dry.contains("give no values until you set their next value") && dry.contains("\"invoices\" at 250001."));
}
