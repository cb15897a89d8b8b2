//! The library is loaded by a session instead of at server start: reading works, and drawing
//! reports what is missing.

use cluster::{Builder, Draw, Refusal, Server, refused, wait_until};
use postgres::{Client, NoTls};
use snowflake_core::id::layout::BUILT_IN;

/// A tweet's id, and how the layouts read it.
const ID: &str = "1541815603606036480";
const AS_TWITTER: &str = "2022-06-28T16:07:40.105Z #0 @(11,26)";
const AS_SNOWFLAKE: &str = "2036-08-25T14:24:45.448Z #0 @(378)";

/// A server without preload, with the extension and an ordinary role.
fn start(builder: Builder) -> Server {
    let server = builder.without_preload().start_with_extension();
    server.connect().batch_execute("CREATE ROLE ordinary LOGIN").unwrap();
    server
}

fn read(session: &mut Client) -> String {
    session.value(&format!("snowflake_format({ID})"))
}

fn assert_not_preloaded(refusal: &Refusal) {
    let message = "snowflake_id must be loaded via \"shared_preload_libraries\"";
    assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), ("55000", message));
    let hint = "Add snowflake_id to \"shared_preload_libraries\" in postgresql.conf and restart the server. \
                See \"The extension is not ready\" in docs/runbook.md.";
    assert_eq!((refusal.detail.as_deref(), refusal.hint.as_deref()), (None, Some(hint)));
}

/// Asserts that a session reads but does not draw, and survives the refusals.
fn assert_reads_only(session: &mut Client) {
    for draw in [
        "SELECT snowflake_next()",
        "SELECT snowflake_batch(1)",
        "SELECT * FROM snowflake_batch(0)",
        "SELECT snowflake_batch(-1)",
        "SELECT snowflake_last()",
    ] {
        assert_not_preloaded(&refused(session.ids(draw)));
        assert_eq!(read(session), AS_SNOWFLAKE, "after {draw}");
    }
    let settings = "SELECT array_agg(name || ' ' || context) FROM pg_settings WHERE name LIKE 'snowflake\\_id.%'";
    assert_eq!(session.value(settings), "{\"snowflake_id.layout sighup\"}");
}

#[test]
fn decoding_works_without_preload() {
    let server = start(Server::builder());
    for user in ["postgres", "ordinary"] {
        let mut session = server.connect_as(user);
        assert_eq!(read(&mut session), AS_SNOWFLAKE);
        assert_eq!(session.value(&format!("snowflake_format({ID}, 'twitter')")), AS_TWITTER);
        assert_eq!(session.value(&format!("snowflake_timestamp({ID}, 'twitter')")), "2022-06-28 16:07:40.105+00");
        let parsed = session.value(&format!("snowflake_parse({ID}, 'twitter')"));
        assert_eq!(parsed, "(\"2022-06-28 16:07:40.105+00\",11,26,0,367597485448)");
        let composed = "snowflake_compose('2022-06-28 16:07:40.105+00', 26, 0, 11, 'twitter')";
        assert_eq!(session.value(composed), ID);
        // And the current layout.
        assert_eq!(session.value("SELECT count(*) FROM snowflake_layouts"), (BUILT_IN.len() + 1).to_string());
        assert_eq!(session.value("SELECT max_worker_id FROM snowflake_layouts WHERE name = 'current'"), "1023");
    }
}

#[test]
fn nothing_is_drawn_by_a_library_that_a_call_has_loaded() {
    let server = start(Server::builder());
    for user in ["postgres", "ordinary"] {
        assert_reads_only(&mut server.connect_as(user));
    }
}

#[test]
fn nothing_is_drawn_by_a_library_that_load_has_loaded() {
    let server = start(Server::builder());
    let mut session = server.connect();
    session.batch_execute("LOAD 'snowflake_id'").unwrap();
    assert_reads_only(&mut session);
    let mut session = server.connect_as("ordinary");
    assert_eq!(refused(session.batch_execute("LOAD 'snowflake_id'")).sqlstate, "42501");
    assert_reads_only(&mut session);
}

#[test]
fn nothing_is_drawn_by_a_library_that_each_session_loads() {
    let server = start(Server::builder().config("session_preload_libraries", "snowflake_id"));
    for user in ["postgres", "ordinary"] {
        assert_reads_only(&mut server.connect_as(user));
    }
}

#[test]
fn settings_for_drawing_are_no_reason_to_refuse_a_session() {
    let settings = Server::builder().set("worker_id", "5").set("max_borrow", "1s").set("on_rollback", "nonsense");
    let server = start(settings);
    for user in ["postgres", "ordinary"] {
        assert_reads_only(&mut server.connect_as(user));
    }
}

#[test]
fn the_configured_layout_is_used_without_preload() {
    let server = start(Server::builder().set("layout", "twitter"));
    let mut open = server.connect_as("ordinary");
    assert_eq!(read(&mut open), AS_TWITTER);
    assert_eq!(open.value("current_setting('snowflake_id.layout')"), "twitter");
    server.set_config("snowflake_id.layout", "snowflake");
    server.reload();
    assert_eq!(read(&mut server.connect_as("ordinary")), AS_SNOWFLAKE);
    wait_until("the open session to read the new configuration", || read(&mut open) == AS_SNOWFLAKE);
}

#[test]
fn a_parallel_worker_reads_with_the_configured_layout() {
    let server = start(Server::builder().set("layout", "twitter"));
    let mut session = server.connect();
    session
        .batch_execute(&format!(
            "CREATE TABLE t AS SELECT {ID} AS id FROM generate_series(1, 10000);
             SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
             SET parallel_leader_participation = off"
        ))
        .unwrap();
    let query = "SELECT count(*) || ' ' || max(snowflake_format(id)) || ' ' || min(snowflake_format(id)) FROM t";
    assert_eq!(session.value(query), format!("10000 {AS_TWITTER} {AS_TWITTER}"));
    let plan = session.query(&format!("EXPLAIN (ANALYZE, COSTS off, TIMING off) {query}"), &[]).unwrap();
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    let launched = |line: &String| line.contains("Workers Launched:") && !line.ends_with(" 0");
    assert!(plan.iter().any(launched), "{plan:#?}");
}

#[test]
fn a_wrong_layout_in_the_configuration_file_is_not_replaced_by_the_default() {
    let server = start(Server::builder().set("layout", "twiter"));
    for user in ["postgres", "ordinary"] {
        let mut session = server.connect_as(user);
        for call in ["snowflake_format(1)", "snowflake_timestamp(1)", "snowflake_compose(now(), 1, 1)"] {
            let refusal = refused(session.query(&format!("SELECT {call}"), &[]));
            assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), ("22023", "unknown layout \"twiter\""));
            assert!(refusal.hint.is_some_and(|hint| hint.starts_with("The built-in layouts are snowflake, ")));
        }
        assert_eq!(session.value(&format!("snowflake_format({ID}, 'twitter')")), AS_TWITTER);
    }
    server.set_config("snowflake_id.layout", "twitter");
    server.reload();
    assert_eq!(read(&mut server.connect_as("ordinary")), AS_TWITTER);
}

#[test]
fn an_open_session_follows_a_configuration_file_that_was_put_right() {
    let server = start(Server::builder().set("layout", "twiter"));
    let mut session = server.connect();
    assert_eq!(refused(session.query("SELECT snowflake_format(1)", &[])).sqlstate, "22023");
    server.set_config("snowflake_id.layout", "twitter");
    server.reload();
    let shown = "current_setting('snowflake_id.layout')";
    wait_until("the open session to read the new configuration", || session.value(shown) == "twitter");
    assert_eq!(read(&mut session), AS_TWITTER);
}

#[test]
fn no_session_can_change_the_layout_once_the_library_is_loaded() {
    let server = start(Server::builder().set("layout", "twitter"));
    for user in ["postgres", "ordinary"] {
        let mut session = server.connect_as(user);
        assert_eq!(read(&mut session), AS_TWITTER);
        for attempt in [
            "SET snowflake_id.layout = 'leaf'",
            "SET LOCAL snowflake_id.layout = 'leaf'",
            "SELECT set_config('snowflake_id.layout', 'leaf', false)",
            "CREATE FUNCTION pg_temp.f() RETURNS text LANGUAGE sql SET snowflake_id.layout = 'leaf' AS 'SELECT 1'",
        ] {
            let refusal = refused(session.batch_execute(attempt));
            assert_eq!(refusal.sqlstate, "55P02", "{user}: {attempt}: {refusal:?}");
        }
        assert_eq!(read(&mut session), AS_TWITTER);
    }
}

/// Before a session loads the library, PostgreSQL does not know the setting's name and accepts any
/// value for it.
#[test]
fn no_session_can_change_the_layout_before_the_library_is_loaded() {
    let server = start(Server::builder().set("layout", "twitter"));
    for user in ["postgres", "ordinary"] {
        for layout in ["snowflake", "nonsense"] {
            let set = format!("SET snowflake_id.layout = '{layout}'");
            let mut session = server.connect_as(user);
            session.batch_execute(&set).unwrap();
            assert_eq!(read(&mut session), AS_TWITTER, "{user}: {set}");

            let mut session = server.connect_as(user);
            session.batch_execute(&format!("BEGIN; {set}")).unwrap();
            assert_eq!(read(&mut session), AS_TWITTER, "{user}: in a transaction, {set}");
            session.batch_execute("ROLLBACK").unwrap();
            assert_eq!(read(&mut session), AS_TWITTER, "{user}: after its rollback, {set}");
        }
    }
}

fn assert_unknown_layout(refusal: &Refusal, case: &str) {
    assert!(["22023", "55000"].contains(&refusal.sqlstate.as_str()), "{case}: {refusal:?}");
}

/// PostgreSQL loses the configuration file's value of an unknown setting when another source sets
/// it as well. If PostgreSQL later refuses that value, too, only the default is left. Reading must
/// not use the default then.
#[test]
fn a_layout_from_elsewhere_than_the_configuration_file_never_leads_to_the_default() {
    let server = start(Server::builder().set("layout", "twitter"));
    let read_or_refuse = |session: &mut Client, case: &str| match session.query_one("SELECT snowflake_format(1)", &[]) {
        Ok(row) => assert_eq!(row.get::<_, &str>(0), "2010-11-04T01:42:54.657Z #1 @(0,0)", "{case}"),
        Err(error) => assert_unknown_layout(&refused::<()>(Err(error)), case),
    };
    for user in ["postgres", "ordinary"] {
        for layout in ["snowflake", "leaf", "nonsense"] {
            let options = format!("-c snowflake_id.layout={layout}");
            let mut session = server.connection().user(user).options(&options).connect(NoTls).unwrap();
            read_or_refuse(&mut session, &format!("{user}: PGOPTIONS=\"{options}\""));
        }
        server.connect().batch_execute(&format!("ALTER ROLE {user} SET snowflake_id.layout = 'leaf'")).unwrap();
        read_or_refuse(&mut server.connect_as(user), &format!("{user}: ALTER ROLE"));
    }
}

#[test]
fn a_session_cannot_hide_a_wrong_layout_in_the_configuration_file() {
    let server = start(Server::builder().set("layout", "twiter"));
    let mut session = server.connect_as("ordinary");
    session.batch_execute("SET snowflake_id.layout = 'twitter'").unwrap();
    assert_unknown_layout(&refused(session.query("SELECT snowflake_format(1)", &[])), "SET");
}
