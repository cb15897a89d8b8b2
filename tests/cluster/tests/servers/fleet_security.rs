//! Who may see and do what: ordinary roles on a member here, and a thief of the password of the
//! servers' role in the registry in `fleet_security/thief.rs`.

mod thief;

use std::sync::{Arc, Mutex};

use cluster::{Builder, Draw, Fleet, Leases, Server, refused, wait_until};
use postgres::{Client, NoTls};

/// A password that belongs in a file, and stands in the string all the same.
const SECRET: &str = "secret-of-the-fleet";

fn execute(server: &Server, sql: &str) {
    server.connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

#[track_caller]
fn assert_refused(session: &mut Client, sql: &str, sqlstates: &[&str]) {
    let refusal = refused(session.simple_query(sql));
    assert!(sqlstates.contains(&refusal.sqlstate.as_str()), "{sql}: {refusal:?}");
}

#[test]
fn an_ordinary_role_sees_neither_the_registrys_string_nor_a_lease() {
    let fleet = Fleet::start();
    let registry = format!("{} password={SECRET}", fleet.conninfo());
    let server = fleet.member().set("registry", &registry).start_with_extension();
    server.connect().wait_for_lease();
    execute(&server, "CREATE ROLE app LOGIN; CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher");
    let mut app = server.connect_as("app");
    app.draw();
    for sql in [
        "SHOW snowflake_id.registry",
        "SELECT current_setting('snowflake_id.registry', true)",
        "SELECT * FROM snowflake_lease",
        "SELECT * FROM snowflake_plan.lease()",
        "SELECT * FROM pg_file_settings",
        "SELECT pg_read_file('postgresql.conf')",
    ] {
        assert_refused(&mut app, sql, &["42501"]);
    }
    assert_eq!(app.value("SELECT count(*) FROM pg_settings WHERE name = 'snowflake_id.registry'"), "0");

    // A monitor sees the string without the password in the view, and all of it as a setting.
    let mut watcher = server.connect_as("watcher");
    assert_eq!(watcher.lease("registry LIKE '%host=%' AND registry NOT LIKE '%secret%'"), "true");
    assert!(watcher.value("current_setting('snowflake_id.registry')").contains(SECRET));
    // Nobody sees the name of a lease, by which it could be ended.
    let columns = "SELECT count(*) FROM information_schema.columns \
                   WHERE table_name = 'snowflake_lease' AND (column_name ~ 'nonce' OR column_name ~ 'holder')";
    assert_eq!(server.connect().value(columns), "0");
}

#[test]
fn no_error_and_no_log_line_of_the_extension_has_the_registrys_password() {
    let fleet = Fleet::start();
    // libpq's words name the host and the role.
    let registry = format!("{} user=stranger password={SECRET}", fleet.conninfo());
    let server = fleet.member().set("registry", &registry).start_with_extension();
    let mut session = server.connect();
    wait_until("the refusal", || session.lease("last_error").contains("role \"stranger\" does not exist"));
    assert!(!session.lease("row_to_json(snowflake_lease)").contains(SECRET));
    execute(&server, "CREATE ROLE app LOGIN");
    let refusal = refused(server.connect_as("app").try_draw());
    assert_eq!(refusal.sqlstate, "58000");
    assert!(!format!("{refusal:?}").contains(SECRET), "{refusal:?}");
    assert!(!server.log().contains(SECRET));
    // PostgreSQL shows it itself, as the page says.
    server.set_config("snowflake_id.registry", &format!("{registry} connect_timeout=5"));
    server.reload();
    let changed = "parameter \"snowflake_id.registry\" changed to ";
    let log = server.log();
    assert!(log.lines().filter(|line| line.contains(SECRET)).all(|line| line.contains(changed)), "{log}");
    assert!(log.contains(SECRET), "{log}");
    // Nor does what libpq does not understand: it would repeat words of a password with a space.
    for wrong in ["pasword=", "password=my ", "postgresql://u:%"].map(|start| format!("{start}{SECRET}")) {
        let failure = fleet.member().set("registry", &wrong).try_start().unwrap_err();
        assert!(failure.log.contains("is wrong: not a connection string of libpq\n"), "{failure:?}");
        assert!(!failure.log.contains(SECRET), "{failure:?}");
    }
}

/// Where the registry is, and how it is reached, is for operators.
#[test]
fn an_ordinary_role_does_not_see_how_to_reach_the_registry() {
    let fleet = Fleet::start_with(Builder::tcp);
    let port = fleet.registry.port().to_string();
    let passfile = fleet.registry.connect().value("SELECT current_setting('data_directory') || '/pgpass'");
    // libpq names the host, the port, the role and this file.
    let write = format!("COPY (SELECT '*:*:*:*:wrong') TO PROGRAM 'umask 077; cat > {passfile}'");
    execute(&fleet.registry, &write);
    let registry = format!("host=127.0.0.1 port={port} user=stranger dbname=postgres passfile={passfile}");
    let server = fleet.member().set("registry", &registry).start_with_extension();
    execute(
        &server,
        "CREATE ROLE app LOGIN NOINHERIT; CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher; GRANT watcher TO app;
         CREATE FUNCTION definer() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT snowflake_next()';
         ALTER FUNCTION definer() OWNER TO watcher",
    );
    let secrets = ["127.0.0.1", &*port, "stranger", &*passfile];
    let has = |said: &str| secrets.map(|secret| said.contains(secret));
    let mut session = server.connect();
    let ways = ["SELECT snowflake_next()", "SELECT snowflake_segment_next('invoices')"];
    let refusal = |session: &mut Client, sql: &str| {
        let refusal = refused(session.simple_query(sql));
        assert_eq!(refusal.sqlstate, "58000", "{refusal:?}");
        format!("{refusal:?}")
    };
    for sql in ways {
        // The superuser sees all of it, once both the lease and the blocks are known to fail.
        wait_until("the reason", || has(&refusal(&mut session, sql)) == [true; 4]);
    }
    assert_eq!(has(&refusal(&mut server.connect_as("watcher"), ways[0])), [true; 4]);
    assert_eq!(has(&session.lease("last_error")), [true; 4]);

    // A role that asks for the server's log lines does not get them.
    let heard = Arc::new(Mutex::new(String::new()));
    let ear = Arc::clone(&heard);
    let mut connection = server.connection();
    connection.user("app").notice_callback(move |notice| *ear.lock().unwrap() += &format!("{notice:?}\n"));
    let mut app = connection.connect(NoTls).unwrap();
    app.batch_execute("SET client_min_messages = debug5").unwrap();
    for sql in ways.into_iter().chain(["SELECT definer()"]) {
        let said = refusal(&mut app, sql);
        assert_eq!(has(&said), [false; 4], "{said}");
        assert!(said.contains("could not connect to the registry"), "{said}");
    }
    let heard = heard.lock().unwrap().clone();
    assert_eq!(has(&heard), [false; 4], "{heard}");
    // In the role of a monitor, it is one.
    app.batch_execute("SET ROLE watcher").unwrap();
    assert_eq!(has(&refusal(&mut app, ways[0])), [true; 4]);
    // A superuser in the role is not.
    session.batch_execute("ALTER ROLE app INHERIT; REVOKE watcher FROM app; SET ROLE app").unwrap();
    assert_eq!(has(&refusal(&mut session, ways[0])), [false; 4]);
    // The log has all of it, for each kind of draw.
    for line in ["the server draws no ids: could not connect", "no blocks of values are reserved"] {
        let log = server.log();
        let at = log.find(line).unwrap_or_else(|| panic!("no \"{line}\" in\n{log}"));
        assert_eq!(has(&log[at..]), [true; 4]);
    }
}

/// A session's own line about a refusal says to the log what it keeps from an ordinary role.
#[test]
fn the_log_line_of_a_refused_draw_has_the_whole_reason() {
    let fleet = Fleet::start();
    let registry = format!("{} user=stranger", fleet.conninfo());
    let server = fleet.member().set("registry", &registry).start_with_extension();
    let mut session = server.connect();
    wait_until("the refusal", || session.lease("last_error").contains("stranger"));
    execute(&server, "CREATE ROLE app LOGIN");
    // It is the first refusal, which is logged, and the session asks for log lines.
    let heard = Arc::new(Mutex::new(String::new()));
    let ear = Arc::clone(&heard);
    let mut connection = server.connection();
    connection.user("app").notice_callback(move |notice| *ear.lock().unwrap() += &format!("{notice:?}\n"));
    let mut app = connection.connect(NoTls).unwrap();
    app.batch_execute("SET client_min_messages = log").unwrap();
    let refusal = refused(app.try_draw());
    assert!(!format!("{refusal:?}").contains("stranger"), "{refusal:?}");
    drop(app);
    let heard = heard.lock().unwrap().clone();
    assert!(!heard.contains("stranger"), "{heard}");
    let log = server.log();
    let line = log.split("draws are refused: ").nth(1).unwrap_or_else(|| panic!("{log}"));
    let detail = line.lines().nth(1).unwrap_or_default();
    assert!(detail.contains("DETAIL:") && detail.contains("role \"stranger\" does not exist"), "{line}");
}

#[test]
fn an_ordinary_role_neither_stops_the_worker_nor_makes_it_write() {
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    let mut observer = server.connect();
    observer.wait_for_lease();
    let worker = observer.lease("pid");
    execute(&server, "CREATE ROLE app LOGIN; CREATE ROLE sender LOGIN; GRANT pg_signal_backend TO sender");
    let written = "SELECT sum(count) FROM snowflake_registry.numbers";
    let before = fleet.registry.connect().value(written);
    let (mut app, mut sender) = (server.connect_as("app"), server.connect_as("sender"));
    for session in [&mut app, &mut sender] {
        // PostgreSQL does not take it for a session.
        for function in ["pg_terminate_backend", "pg_cancel_backend"] {
            assert_eq!(session.value(&format!("SELECT {function}({worker})")), "false");
        }
        for (sql, sqlstate) in [
            ("SET snowflake_id.registry = 'host=elsewhere'", "55P02"),
            ("SET snowflake_id.fleet = 'other'", "55P02"),
            ("SET snowflake_id.max_borrow = '1s'", "55P02"),
            ("ALTER SYSTEM SET snowflake_id.max_borrow = '1s'", "42501"),
            ("SELECT pg_reload_conf()", "42501"),
            ("SELECT snowflake_reset_mark()", "42501"),
            ("SELECT snowflake_stat_reset()", "42501"),
            ("CREATE FUNCTION run() RETURNS void LANGUAGE c AS 'snowflake_id', 'snowflake_lease_main'", "42501"),
        ] {
            assert_refused(session, sql, &[sqlstate]);
        }
    }
    assert_eq!(observer.lease("pid"), worker);
    assert_eq!(observer.lease("failures"), "0");
    // Nothing was written but by the clock: draws write nothing at all.
    app.draw_batch(1000);
    let renewals: i64 = observer.lease("renewals").parse().unwrap();
    let after: i64 = fleet.registry.connect().value(written).parse().unwrap();
    assert!(after <= renewals.max(before.parse().unwrap()) + 1, "{before}, then {after}, in {renewals} renewals");
}
