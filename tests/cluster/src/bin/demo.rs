//! `make demo`: snowflake_id on a throwaway server, as a user would see it in psql.
//!
//! Every statement is shown as psql ran it, and all output as psql printed it. With `KEEP` in the
//! environment the server keeps running. Without it nothing is left behind, even after Ctrl-C (see
//! the harness's `scratch`).

#![forbid(unsafe_code)]

use std::env;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use cluster::{Fleet, Server, Shutdown, StartFailure, faketime_library};
use postgres::NoTls;

const SESSIONS: usize = 4;
const ORDERS_PER_SESSION: usize = 500;

fn main() -> ExitCode {
    match demo() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("\nThe demo stopped: {reason}");
            eprintln!("If the messages above do not say what to do, run \"make test\" and report what it prints.");
            ExitCode::FAILURE
        }
    }
}

fn demo() -> Result<(), String> {
    let start = Instant::now();
    let mut step = Step(0);

    step.begin("Start a server of its own, in a directory of its own");
    println!("postgresql.conf:");
    println!("  shared_preload_libraries = 'snowflake_id'\n  snowflake_id.worker_id = 7\n");
    let server =
        Server::builder().like_outside_of_tests().config("snowflake_id.worker_id", "7").try_start().map_err(why)?;

    step.begin("Create the extension, and a table whose key is a snowflake id");
    show(&server, "CREATE EXTENSION snowflake_id;")?;
    show(&server, "CREATE TABLE orders (\n    id bigint PRIMARY KEY DEFAULT snowflake_next(),\n    item text\n);")?;

    step.begin(&format!("{SESSIONS} sessions insert {ORDERS_PER_SESSION} orders each, all at the same time"));
    println!("each, {ORDERS_PER_SESSION} times:\n  INSERT INTO orders (item) VALUES ('from session ...');\n");
    insert(&server)?;

    step.begin("No id came twice");
    show(&server, "SELECT count(*) AS orders, count(DISTINCT id) AS ids FROM orders;")?;

    step.begin("An id tells when and where it was drawn");
    show(
        &server,
        "SELECT o.id, o.item, p.created_at, p.worker_id, p.sequence\n\
         FROM orders o, snowflake_parse(o.id) p\nORDER BY o.id DESC LIMIT 6;",
    )?;
    show(&server, "SELECT snowflake_format(id) FROM orders ORDER BY id DESC LIMIT 1;")?;

    step.begin("Without a worker number the server starts, but draws no id: two servers might share a number");
    server.unset_config("snowflake_id.worker_id");
    restart(&server)?;
    show_error(&server, "INSERT INTO orders (item) VALUES ('nowhere');", "55000")?;
    server.set_config("snowflake_id.worker_id", "7");

    step.begin("A clock that is set back draws no id twice");
    if faketime_library().is_some() {
        server.use_faketime(true);
        restart(&server)?;
        show(&server, "INSERT INTO orders (item) VALUES ('in time') RETURNING id, clock_timestamp();")?;
        println!("Now the server's clock goes back by an hour:\n");
        server.set_clock_offset(-3600.0);
        show_error(&server, "INSERT INTO orders (item) VALUES ('an hour ago');", "58000")?;
        println!("And now it is right again:\n");
        server.set_clock_offset(0.0);
        show(&server, "INSERT INTO orders (item) VALUES ('in time again') RETURNING id, clock_timestamp();")?;
        server.use_faketime(false);
    } else {
        println!("Left out: it needs libfaketime, which is not installed here.\n");
    }

    fleet(&mut step)?;

    println!("That took {:.0} seconds.", start.elapsed().as_secs_f64());
    if env::var_os("KEEP").is_some_and(|keep| !keep.is_empty()) {
        restart(&server)?;
        println!("\nThe server runs on. To connect:\n  {}", server.psql_command_line());
        println!("To watch it with Prometheus (docs/monitor.md), start PostgreSQL's exporter with:");
        println!("  DATA_SOURCE_NAME=\"{}\" \\", server.conninfo());
        println!("    prometheus-postgres-exporter --extend.query-path=monitoring/queries.yaml");
        println!("What it says of the ids:\n  curl --silent http://127.0.0.1:9187/metrics | grep ^snowflake");
        println!("Prometheus reads monitoring/alerts.yaml, and Grafana imports monitoring/dashboard.json.");
        println!("To stop and remove it:\n  {}", server.keep());
    } else {
        println!("The server is stopped and removed. \"make demo KEEP=1\" keeps it, and tells how to connect.");
    }
    Ok(())
}

/// The second part: nobody types a number.
fn fleet(step: &mut Step) -> Result<(), String> {
    step.begin("A fleet: a registry leases the worker numbers, and two servers have the same configuration");
    println!("once, in any PostgreSQL that all servers reach:\n  snowflake-registry create\n");
    let fleet = Fleet::start();
    println!("postgresql.conf of every server:");
    println!("  shared_preload_libraries = 'snowflake_id'\n  snowflake_id.registry = 'service=fleet'\n");
    let member = |name: &str| fleet.member().config("cluster_name", name).try_start().map_err(why);
    let [one, other] = [member("one")?, member("other")?];
    let next = "SELECT id, worker_id FROM snowflake_next() AS id, snowflake_parse(id);";
    for (name, server) in [("one", &one), ("other", &other)] {
        println!("On server \"{name}\":\n");
        show(server, "CREATE EXTENSION snowflake_id;")?;
        show(server, next)?;
    }

    step.begin("A copy of a running server, started beside it with the same configuration, draws other ids");
    let copy = one.base_backup().alone().config("cluster_name", "a copy of one").try_start().map_err(why)?;
    println!("On the copy:\n");
    show(&copy, next)?;
    println!("On server \"one\", which runs on:\n");
    show(&one, next)?;
    println!("In the registry:\n");
    show(&fleet.registry, "SELECT worker, cluster_name, state, ends FROM snowflake_registry.fleet;")
}

/// Numbers the headings.
struct Step(u32);

impl Step {
    fn begin(&mut self, heading: &str) {
        self.0 += 1;
        println!("== {}. {heading}\n", self.0);
    }
}

/// Inserts through real connections, one statement per order, so that the sessions compete for ids.
fn insert(server: &Server) -> Result<(), String> {
    let insert = |session: usize| -> Result<(), postgres::Error> {
        let mut client = server.connection().connect(NoTls)?;
        let statement = client.prepare("INSERT INTO orders (item) VALUES ($1)")?;
        let item = format!("from session {session}");
        (0..ORDERS_PER_SESSION).try_for_each(|_| client.execute(&statement, &[&item]).map(drop))
    };
    thread::scope(|scope| {
        let sessions: Vec<_> = (1..=SESSIONS).map(|session| scope.spawn(move || insert(session))).collect();
        sessions
            .into_iter()
            .try_for_each(|session| session.join().expect("a session does not panic"))
            .map_err(|error| error.to_string())
    })
}

fn restart(server: &Server) -> Result<(), String> {
    server.stop(Shutdown::Fast);
    server.try_start_again().map_err(why)
}

fn why(failure: StartFailure) -> String {
    format!("the server did not start:\n{}", failure.log)
}

/// Runs a statement that must succeed.
fn show(server: &Server, sql: &str) -> Result<(), String> {
    let (output, errors) = psql(server, &[sql]);
    println!("{}{}\n", prompt(sql), format!("{output}{errors}").trim_end());
    if errors.is_empty() { Ok(()) } else { Err("this statement must succeed".to_owned()) }
}

/// Runs a statement that must fail with this SQLSTATE.
fn show_error(server: &Server, sql: &str, sqlstate: &str) -> Result<(), String> {
    let ask = r"\echo :LAST_ERROR_SQLSTATE";
    let (output, errors) = psql(server, &[sql, ask]);
    println!("{}{errors}{}{}\n", prompt(sql), prompt(ask), output.trim_end());
    if output.trim_end() == sqlstate { Ok(()) } else { Err(format!("this statement must fail with {sqlstate}")) }
}

fn prompt(sql: &str) -> String {
    format!("postgres=# {}\n", sql.replace('\n', "\npostgres-# "))
}

/// Runs commands in one session of psql, and returns what it printed: output and errors.
fn psql(server: &Server, commands: &[&str]) -> (String, String) {
    let mut psql = server.client("psql");
    psql.arg("--no-psqlrc").args(commands.iter().flat_map(|command| ["--command", command]));
    let output = psql.output().expect("psql runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}
