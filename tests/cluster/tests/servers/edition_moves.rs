//! docs/edition.md, and what docs/migrate.md says of it: the page's examples, the way into the
//! extension and out of it under load, a dump that is restored with the edition in the extension's
//! place, and the statements for pg_tle.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use cluster::drawing::{WORKER, at_once};
use cluster::pages::{block, is_shown, page, psql};
use cluster::{
    Draw, EDITION, Edition, Load, PgBouncer, PoolMode, Promise, Refusal, Server, assert_ascending, assert_unique,
    has_pgbouncer, plan, program_path, refused, skip, wait_until,
};
use postgres::Client;
use snowflake_core::id::layout::Layout;

use crate::pages::masked;

/// Makes every session of the database find the page's schema.
const FIND: &str = "ALTER DATABASE postgres SET search_path = public, snowflake";

/// A server that loads no library.
fn plain() -> Server {
    Server::builder().without_preload().time_limit().start()
}

/// Runs a console block as a shell does, in a directory that has the edition's file.
#[track_caller]
fn run_console(server: &Server, console: &str) {
    let commands = console.replace("\n$ ", "\n");
    let commands = commands.strip_prefix("$ ").expect("a command");
    let directory = server.data_dir();
    fs::write(directory.join("snowflake_id-sql.sql"), EDITION).unwrap();
    let programs = program_path("");
    let mut shell = server.client("/bin/sh");
    shell.current_dir(&directory).env("PATH", format!("{}:{}", programs.display(), env::var("PATH").unwrap()));
    let output = shell.args(["-e", "-c", commands]).output().expect("a shell runs");
    assert!(output.status.success(), "{console}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// A server that loads no library, with the edition, installed as the page shows.
fn installed() -> Server {
    let server = plain();
    run_console(&server, block("edition-install"));
    server
}

/// Runs the blocks of the page, and compares what they print with what the page says.
#[track_caller]
fn follow(path: &str) {
    let server = installed();
    let blocks = &page(path).blocks;
    let mut examples = 0;
    for (n, block) in blocks.iter().enumerate().filter(|(_, block)| block.runs_with_its_page()) {
        examples += 1;
        let printed = psql(&server, &[], &block.text);
        let Some(output) = blocks.get(n + 1).filter(|next| next.language == "text") else { continue };
        if output.key("numbers") == Some("vary") {
            assert_eq!(masked(&printed), masked(&output.text), "{}\nprinted:\n{printed}", block.text);
        } else {
            assert_eq!(printed.trim_end(), output.text.trim_end(), "{}\nprinted:\n{printed}", block.text);
        }
    }
    assert!(examples > 5, "{path} has only {examples} examples");
    // What the page shows last, after all others.
    server.connect().batch_execute("DROP TABLE orders, customers; DROP PROCEDURE read_orders").unwrap();
    psql(&server, &[], block("edition-remove"));
    let left = "SELECT count(*) FROM pg_depend WHERE refclassid = 'pg_namespace'::regclass
                AND refobjid = 'snowflake'::regnamespace";
    assert_eq!(server.connect().value(left), "0");
}

#[test]
fn the_examples_of_the_page_about_the_edition_print_what_it_says() {
    follow("docs/edition.md");
}

#[test]
fn the_edition_is_installed_through_a_pooler_as_the_page_shows() {
    if !has_pgbouncer() {
        return skip("pgbouncer is not installed");
    }
    let server = plain();
    let pooler = PgBouncer::start(&server, PoolMode::Transaction);
    run_console(&server, &block("edition-install").replace("psql", &format!("psql -d \"{}\"", pooler.conninfo())));
    let mut session = pooler.connect();
    session.batch_execute("SELECT snowflake.snowflake_next()").unwrap();
    // The functions name their schema.
    let renamed = |name: &str, other: &str| format!("ALTER SCHEMA {name} RENAME TO {other}");
    session.batch_execute(&renamed("snowflake", "other")).unwrap();
    let missing = if cluster::postgres_version() >= 16 { "42P01" } else { "3F000" };
    assert_eq!(refused(session.batch_execute("SELECT other.snowflake_next()")).sqlstate, missing);
    session.batch_execute(&renamed("other", "snowflake")).unwrap();
    session.batch_execute("SELECT snowflake.snowflake_next()").unwrap();
}

#[test]
fn the_file_is_a_migration_as_the_page_shows() {
    let server = plain();
    let (before, after) =
        block("edition-migration").split_once("-- Here follows the text of snowflake_id-sql.sql.").unwrap();
    let mut session = server.connect();
    // A tool sends it as one text, in a transaction.
    session.batch_execute(&format!("BEGIN; {before}{EDITION}{after} COMMIT")).unwrap();
    session.batch_execute("SELECT snowflake.snowflake_next()").unwrap();
    assert_eq!(session.value("current_setting('search_path')"), "\"$user\", public");
    session.batch_execute("SELECT snowflake.snowflake_install(worker_id => 6)").unwrap();
}

#[test]
fn the_condition_of_the_page_uses_the_index_and_a_role_with_its_grant_draws() {
    let server = installed();
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake.snowflake_next(), item text);
             INSERT INTO orders SELECT FROM generate_series(1, 10000); ANALYZE orders; SET enable_seqscan = off",
        )
        .unwrap();
    let plan = plan(&mut session, block("edition-by-time").trim_end_matches(';'));
    assert!(plan.contains("Index Cond: (id >= "), "{plan}");
    psql(&server, &[], block("edition-grants"));
    session
        .batch_execute("GRANT INSERT ON orders TO writer; SET ROLE writer; INSERT INTO orders DEFAULT VALUES")
        .unwrap();
    let revoke =
        "REVOKE EXECUTE ON FUNCTION snowflake.snowflake_next(), snowflake.snowflake_batch(integer) FROM PUBLIC";
    assert!(is_shown(&format!("`{revoke}`")));
    session.batch_execute(&format!("RESET ROLE; {revoke}; SET ROLE writer")).unwrap();
    assert_eq!(refused(session.batch_execute("SELECT snowflake.snowflake_next()")).sqlstate, "42501");
}

/// Runs a block again as long as it does not get its locks.
#[track_caller]
fn insist(session: &mut Client, block: &str) {
    wait_until("the locks", || {
        let Err(error) = session.batch_execute(block) else { return true };
        let refusal = refused::<()>(Err(error));
        assert!(["55P03", "40P01"].contains(&refusal.sqlstate.as_str()), "{refusal:?}");
        session.batch_execute("ROLLBACK").unwrap();
        false
    });
}

/// What a call outside of a default may be told whose functions are replaced meanwhile.
fn is_of_a_replaced_function(refusal: &Refusal) -> bool {
    let missing = ["42883", "42P01", "3F000"].contains(&refusal.sqlstate.as_str());
    missing || ["could not open relation", "cache lookup failed"].iter().any(|part| refusal.message.starts_with(part))
}

/// What a call may be told, too, that began before the extension was dropped.
fn is_of_the_dropped_extension(refusal: &Refusal) -> bool {
    refusal.sqlstate == "55000" && refusal.message == "extension \"snowflake_id\" does not exist in this database"
}

/// Sessions insert by the default, and must not be refused. A load draws in all ways.
#[test]
fn a_database_moves_into_the_extension_and_back_while_sessions_draw() {
    let server = Server::drawing().time_limit().start();
    server.connect().batch_execute(FIND).unwrap();
    // The same layout and number as the server has.
    run_console(&server, &block("edition-install").replace("worker_id => 5", &format!("worker_id => {WORKER}")));
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE TABLE tickets (id bigint PRIMARY KEY DEFAULT snowflake_next(), title text);
             CREATE TABLE parts (id bigint DEFAULT snowflake_next(), code text DEFAULT 'n' || snowflake_next())
                 PARTITION BY RANGE (id);
             CREATE TABLE parts_all PARTITION OF parts DEFAULT",
        )
        .unwrap();
    let defaults = "SELECT string_agg(concat_ws(' ', adrelid::regclass, adnum, pg_get_expr(adbin, adrelid)), ', ' ORDER BY adrelid, adnum) FROM pg_attrdef
                    WHERE adrelid <> 'ledger'::regclass";
    let load = Load::start(&server, 4);
    load.wait_for(50);
    let before = session.value(defaults);
    let done = AtomicBool::new(false);
    let inserted = at_once(&server, 4, |number, mut client| {
        if number == 0 {
            wait_until("rows", || client.value("SELECT count(*) > 200 FROM tickets") == "true");
            insist(&mut client, block("edition-to-extension"));
            assert_eq!(client.value(defaults), before);
            load.wait_for(50);
            wait_until("rows", || client.value("SELECT count(*) > 400 FROM tickets") == "true");
            assert_eq!(client.value("SELECT extname FROM pg_extension WHERE extname <> 'plpgsql'"), "snowflake_id");
            // Relaxed: it only ends loops.
            done.store(true, Ordering::Relaxed);
            return Vec::new();
        }
        let insert =
            ["INSERT INTO tickets DEFAULT VALUES RETURNING id", "INSERT INTO parts DEFAULT VALUES RETURNING id"];
        let mut ids = Vec::new();
        while !done.load(Ordering::Relaxed) {
            ids.extend(client.ids(insert[number % 2]).expect("an insert waits, and is not refused"));
        }
        ids
    });
    let (mut ledger, refusals) = load.end_with_refusals();
    assert!(refusals.iter().all(is_of_a_replaced_function), "{refusals:?}");
    inserted.iter().for_each(|ids| assert_ascending(ids));
    ledger.seen.extend(inserted.concat());
    assert_unique(&ledger.seen);
    ledger.check(&server, Promise::Seen).drawn();

    // Out of it, with another number, and another schema, as the page says.
    let out = block("extension-to-edition").replace("snowflake.snowflake_", "edition.snowflake_");
    session.install_edition("edition", "worker_id => 6");
    server.connect().batch_execute("ALTER DATABASE postgres SET search_path = public, snowflake, edition").unwrap();
    let mut session = server.connect();
    let load = Load::start(&server, 4);
    load.wait_for(50);
    insist(&mut session, &out);
    assert_eq!(session.value(defaults), before);
    load.wait_for(50);
    let (later, refusals) = load.end_with_refusals();
    let are_expected = refusals.iter().all(|it| is_of_a_replaced_function(it) || is_of_the_dropped_extension(it));
    assert!(are_expected, "{refusals:?}");
    ledger.add(later);
    let next = ledger.check(&server, Promise::Held).drawn();
    assert!(ledger.stored.iter().all(|id| *id < next));
    assert_eq!(Layout::parse("snowflake").unwrap().parts(next).unwrap().worker, Some(6));
    assert_eq!(session.value("SELECT count(*) FROM pg_extension WHERE extname = 'snowflake_id'"), "0");
}

/// A superuser runs the blocks, perhaps with a search_path that has a schema of everyone.
#[test]
fn the_blocks_of_the_page_call_nothing_that_another_role_has_put_into_the_search_path() {
    let server = Server::drawing().start();
    server.connect().batch_execute("CREATE ROLE mallory LOGIN; GRANT CREATE ON SCHEMA public TO mallory").unwrap();
    server
        .connect_as("mallory")
        .batch_execute(
            "CREATE FUNCTION escalates(name, name) RETURNS boolean LANGUAGE plpgsql AS
                 'BEGIN ALTER ROLE mallory SUPERUSER; RETURN $1::text ~ $2::text; END';
             CREATE OPERATOR ~ (LEFTARG = name, RIGHTARG = name, FUNCTION = escalates);
             CREATE FUNCTION escalates(oid, regclass) RETURNS boolean LANGUAGE plpgsql AS
                 'BEGIN ALTER ROLE mallory SUPERUSER; RETURN $1::text = $2::oid::text; END';
             CREATE OPERATOR = (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = escalates)",
        )
        .unwrap();
    for name in ["edition-held", "edition-remove", "edition-to-extension"] {
        run_console(&server, block("edition-install"));
        let mut session = server.connect();
        session.batch_execute(block(name)).unwrap();
        assert_eq!(session.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"), "false", "{name}");
        session.batch_execute("DROP SCHEMA snowflake CASCADE").unwrap();
    }
}

/// The control: without the advance, the extension knows nothing of the edition's ids.
#[test]
fn the_reader_of_the_page_reads_on_after_the_move_in_and_nothing_of_it_is_left_after_the_move_out() {
    let server = Server::drawing().start();
    run_console(&server, block("edition-install"));
    let mut session = server.connect();
    session
        .batch_execute("CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake.snowflake_next(), item text)")
        .unwrap();
    psql(&server, &[], block("edition-reader"));
    let mut read = || {
        session.batch_execute("INSERT INTO orders (item) VALUES ('tea')").unwrap();
        session.batch_execute("CALL read_orders()").unwrap();
        session.value("SELECT last >= (SELECT max(id) FROM orders) FROM progress")
    };
    assert_eq!(read(), "true");
    psql(&server, &[], block("edition-to-extension"));
    assert_eq!(read(), "true");
    assert!(is_shown("`CALL snowflake.snowflake_settled(NULL)`"));
    session.batch_execute("CALL snowflake.snowflake_settled(NULL)").unwrap();
    session.install_edition("edition", "worker_id => 6");
    let out = block("extension-to-edition").replace("snowflake.snowflake_", "edition.snowflake_");
    let mut session = server.connect();
    session.batch_execute(&out).unwrap();
    session.batch_execute("INSERT INTO orders (item) VALUES ('coffee')").unwrap();
    assert_eq!(session.value("SELECT count(*) FROM pg_proc WHERE pronamespace = 'snowflake'::regnamespace"), "0");
}

/// The control: without the advance, the extension knows nothing of the edition's ids.
#[test]
fn without_its_advance_the_extension_would_draw_below_the_editions_ids() {
    let server = Server::drawing().start();
    run_console(&server, block("edition-install"));
    let mut session = server.connect();
    // The edition has drawn ahead of the clock.
    session.batch_execute("SELECT snowflake.snowflake_install(max_borrow => 3600000)").unwrap();
    session
        .batch_execute("SELECT snowflake.snowflake_advance(snowflake.snowflake_min(now() + interval '1 hour'))")
        .unwrap();
    let ahead = session.ids("SELECT snowflake.snowflake_next()").unwrap()[0];
    let advance = "PERFORM snowflake.snowflake_advance(last);";
    let block = block("edition-to-extension");
    assert!(block.contains(advance));
    session.batch_execute(&block.replace(advance, "").replace("COMMIT;", "")).unwrap();
    assert!(session.ids("SELECT snowflake.snowflake_next()").unwrap()[0] < ahead);
    session.batch_execute("ROLLBACK").unwrap();
    session.batch_execute(block).unwrap();
    let refusal = refused(session.ids("SELECT snowflake.snowflake_next()"));
    assert_eq!(refusal.sqlstate, "58000", "{refusal:?}");
}

/// The restore of docs/migrate.md into a database that has no extension.
#[test]
fn a_dump_arrives_without_the_extension_if_the_edition_takes_its_place() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_next(), item text,
                 created_at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, 'snowflake')) STORED,
                 CHECK (snowflake_timestamp(id, 'snowflake') >= '2025-01-01Z'));
             CREATE INDEX ON orders (snowflake_timestamp(id, 'snowflake'));
             CREATE VIEW times AS SELECT p.*, snowflake_encode(o.id, 'base62'), snowflake_format(o.id), snowflake_timestamp(o.id)
                 FROM orders o, snowflake_parse(o.id) p;
             CREATE TABLE measurements (id bigint PRIMARY KEY DEFAULT snowflake_next()) PARTITION BY RANGE (id);
             CREATE TABLE later PARTITION OF measurements FOR VALUES FROM (snowflake_min('2026-01-01Z', 'snowflake')) TO (MAXVALUE)",
        )
        .unwrap();
    let load = Load::start(&server, 4);
    session.batch_execute("INSERT INTO orders (item) SELECT 'tea' FROM generate_series(1, 1000)").unwrap();
    load.wait_for(100);
    let dump = server.dump("postgres", "postgres", &["--format=custom"]);
    load.wait_for(50);
    let mut ledger = load.end();
    let rows = "SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM times t";
    let rows_before = session.value(rows);

    let copy = plain();
    let console = block("edition-restore");
    let commands: Vec<_> = console.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(
        commands[1].starts_with("pg_dump") && commands[2].contains(" | grep ") && commands[3].starts_with("pg_restore")
    );
    let mut copied = copy.connect();
    copied.install_edition("public", "worker_id => 6");
    let pg_restore = |arguments: &[&str]| -> Output {
        copy.client("pg_restore").args(arguments).arg(&dump).output().expect("pg_restore runs")
    };
    let filter = commands[2].split_once(" | ").unwrap().1.split_once(" > ").unwrap().0;
    let listed = pg_restore(&["--list"]).stdout;
    let list = dump.with_extension("list");
    fs::write(dump.with_extension("all"), listed).unwrap();
    let filtered = Command::new("sh")
        .args(["-c", filter])
        .stdin(fs::File::open(dump.with_extension("all")).unwrap())
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    fs::write(&list, filtered.stdout).unwrap();
    let restored = pg_restore(&["--exit-on-error", &format!("--use-list={}", list.display()), "--dbname=postgres"]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));

    assert_eq!(copied.value(rows), rows_before);
    // What the page does for each table.
    let advance = block("edition-restored").trim_end_matches(';');
    copied.batch_execute(advance).unwrap();
    copied.batch_execute(&advance.replace("orders", "ledger")).unwrap();
    ledger.stored.clear();
    let next = ledger.check(&copy, Promise::Held).drawn();
    assert_eq!(Layout::parse("snowflake").unwrap().parts(next).unwrap().worker, Some(6));
    copied
        .batch_execute("INSERT INTO orders (item) VALUES ('coffee'); INSERT INTO measurements DEFAULT VALUES")
        .unwrap();
    assert_eq!(copied.value("SELECT created_at <= now() + interval '1 s' FROM orders WHERE item = 'coffee'"), "true");
}

/// Stand-ins with the signatures of pg_tle 1.5. They keep each text, from which the test makes the
/// files that PostgreSQL reads an extension from.
const PG_TLE: &str = "
    CREATE SCHEMA pgtle;
    CREATE TABLE pgtle.texts (name text, version text, ext text);
    CREATE TABLE pgtle.default_version (name text, version text);
    CREATE FUNCTION pgtle.install_extension(name text, version text, description text, ext text,
        requires text[] DEFAULT NULL, schema text DEFAULT NULL) RETURNS boolean LANGUAGE sql AS $$
        INSERT INTO pgtle.texts VALUES (name, version, ext);
        INSERT INTO pgtle.default_version VALUES (name, version) RETURNING true $$;
    CREATE FUNCTION pgtle.install_update_path(name text, fromvers text, tovers text, ext text) RETURNS boolean
    LANGUAGE sql AS $$
        INSERT INTO pgtle.texts VALUES (name, fromvers || '--' || tovers, ext) RETURNING true $$;
    CREATE FUNCTION pgtle.set_default_version(name text, version text) RETURNS boolean LANGUAGE sql AS $$
        UPDATE pgtle.default_version SET version = set_default_version.version RETURNING true $$";

/// Where PostgreSQL looks for extensions, if that is a private copy.
fn extension_directory(server: &Server) -> Option<PathBuf> {
    let sharedir = server.connect().value("SELECT setting FROM pg_config WHERE name = 'SHAREDIR'");
    let directory = Path::new(&sharedir).join("extension");
    (!directory.starts_with("/usr") && directory.exists()).then_some(directory)
}

/// What `tools/build` puts there is in every package.
#[test]
fn the_file_is_installed_beside_the_extension() {
    let server = plain();
    let Some(directory) = extension_directory(&server) else {
        return skip("PostgreSQL's directory of extensions is not a private copy");
    };
    let file = fs::read_to_string(directory.join("snowflake_id/snowflake_id-sql.sql")).expect("it is installed");
    assert!(file == EDITION);
}

fn tool(arguments: &[&str]) -> String {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/edition");
    let output = Command::new(tool).args(arguments).output().expect("the tool runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_statements_for_pg_tle_make_an_extension_and_update_it() {
    let server = plain();
    let Some(directory) = extension_directory(&server) else {
        return skip("PostgreSQL's directory of extensions is not a private copy");
    };
    let mut session = server.connect();
    session.batch_execute(PG_TLE).unwrap();
    let (install, update) = (tool(&["tle"]), tool(&["tle", "0.0.1"]));
    // The version before, under its own number.
    let cargo = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml")).unwrap();
    let version = cargo.lines().find_map(|line| line.strip_prefix("version = ")).unwrap().trim_matches('"');
    psql(&server, &[], &install.replace(&format!("'{version}'"), "'0.0.1'"));
    psql(&server, &[], &update);
    assert_eq!(session.value("SELECT version FROM pgtle.default_version"), version);
    // As pg_tle describes the extension to PostgreSQL.
    let name = "snowflake_id_sql";
    let mut files = vec![directory.join(format!("{name}.control"))];
    fs::write(&files[0], "default_version = '0.0.1'\nrelocatable = false\nsuperuser = false\n").unwrap();
    for row in session.query("SELECT version, ext FROM pgtle.texts", &[]).unwrap() {
        let file = directory.join(format!("{name}--{}.sql", row.get::<_, String>(0)));
        fs::write(&file, row.get::<_, String>(1)).unwrap();
        files.push(file);
    }
    let commands =
        ["CREATE EXTENSION snowflake_id_sql SCHEMA snowflake", "SELECT snowflake.snowflake_install(worker_id => 5)"];
    assert!(commands.iter().all(|command| is_shown(&format!("'{command}'"))));
    session.batch_execute("CREATE SCHEMA snowflake").unwrap();
    for command in commands {
        session.batch_execute(command).unwrap();
    }
    session
        .batch_execute("CREATE TABLE t (id bigint DEFAULT snowflake.snowflake_next()); INSERT INTO t DEFAULT VALUES")
        .unwrap();
    let update = format!("ALTER EXTENSION {name} UPDATE TO '{version}'");
    session.batch_execute(&format!("{update}; SELECT snowflake.snowflake_install()")).unwrap();
    session.batch_execute("INSERT INTO t DEFAULT VALUES").unwrap();
    assert_eq!(session.value("SELECT count(DISTINCT id) FROM t"), "2");

    // A dump has the extension, and what the installer has made with the last id.
    let last = session.value("SELECT last_id FROM snowflake.snowflake_stat");
    let dump = server.dump("postgres", "postgres", &["--exclude-schema=pgtle"]);
    session.batch_execute("CREATE DATABASE copy").unwrap();
    server.restore(&dump, "copy", &[]);
    let mut copy = server.connect_to("copy");
    assert_eq!(copy.value("SELECT last_id FROM snowflake.snowflake_stat"), last);
    copy.batch_execute("SELECT snowflake.snowflake_install(worker_id => 6); INSERT INTO t DEFAULT VALUES").unwrap();
    for file in files {
        fs::remove_file(file).unwrap();
    }
}
