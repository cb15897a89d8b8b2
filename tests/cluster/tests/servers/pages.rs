//! The SQL examples of the README and of `docs`, run page by page in their order, each page on a
//! server of its own with the README's configuration lines.
//!
//! A block of SQL must run without an error. If a block of text follows it, that is exactly psql's
//! output. Numbers are masked only where the page shows new ids (`text numbers=vary`), because they
//! change. Blocks that need more than such a server (`needs`, `server`, `after`) are run by a test
//! that asks for them by their names: here or in `writers.rs`. Citus cannot be installed where the
//! tests run, so its SQL runs with stand-ins for its functions.

use std::fs;
use std::path::{Path, PathBuf};

use cluster::pages::{Block, block, configuration, configured, is_shown, page, pages, psql, settings};
use cluster::plans::{plan, without_pushdown};
use cluster::{Draw, Server, refused, skip};
use snowflake_core::id::layout::Layout;

/// Masks numbers, and the width of the columns that depends on them.
pub(crate) fn masked(text: &str) -> String {
    let mut masked = String::new();
    for c in text.trim_end().chars() {
        let c = if c.is_ascii_digit() { '0' } else { c };
        let fractional = c == '.' && masked.ends_with('0');
        let repeated = matches!(c, '0' | ' ' | '-') && masked.ends_with(c);
        if !fractional && !repeated {
            masked.push(c);
        }
    }
    masked
}

/// Runs the blocks of a page, and compares what they print with what the page says.
#[track_caller]
fn follow(path: &str) {
    let blocks = &page(path).blocks;
    let server = configured().start();
    let mut examples = 0;
    for (n, block) in blocks.iter().enumerate().filter(|(_, block)| block.runs_with_its_page()) {
        examples += 1;
        let printed = psql(&server, &[], &block.text);
        if let Some(output) = blocks.get(n + 1).filter(|next| next.language == "text") {
            let text = &output.text;
            if output.key("numbers") == Some("vary") {
                assert_eq!(masked(&printed), masked(text), "{path}\n{}\nprinted:\n{printed}", block.text);
            } else {
                assert_eq!(printed.trim_end(), text.trim_end(), "{path}\n{}\nprinted:\n{printed}", block.text);
            }
        }
    }
    assert!(examples > 0, "{path} has no examples");
}

#[test]
fn the_examples_of_the_readme_print_what_it_says() {
    follow("README.md");
}

#[test]
fn the_examples_of_the_page_about_installing_run() {
    follow("docs/install.md");
}

#[test]
fn the_examples_of_the_reference_run() {
    follow("docs/reference.md");
}

#[test]
fn the_examples_of_the_page_about_public_ids_run() {
    follow("docs/public-ids.md");
}

#[test]
fn the_examples_of_the_page_about_time_run() {
    follow("docs/time.md");
}

#[test]
fn the_examples_of_the_page_about_clients_run() {
    follow("docs/clients.md");
}

#[test]
fn the_examples_of_the_page_about_moving_in_and_leaving_run() {
    follow("docs/migrate.md");
}

#[test]
fn the_examples_of_the_page_about_operating_run() {
    follow("docs/operate.md");
}

#[test]
fn the_examples_of_the_page_about_several_writers_run() {
    follow("docs/several-writers.md");
}

#[test]
fn the_examples_of_the_questions_run() {
    follow("docs/faq.md");
}

#[test]
fn the_examples_of_the_page_about_json_run() {
    follow("docs/json.md");
}

#[test]
fn the_examples_of_the_page_about_drawing_ahead_run() {
    follow("docs/pool.md");
}

#[test]
fn the_examples_of_the_page_about_decoding_elsewhere_run() {
    follow("docs/decode.md");
}

#[test]
fn the_examples_of_the_page_about_reading_in_order_run() {
    follow("docs/stream.md");
}

#[test]
fn the_examples_of_the_page_for_agents_run() {
    follow("skills/snowflake-id/SKILL.md");
}

/// Without these layouts, a reader who follows the table would get an error, or no rows in the
/// order of time.
#[test]
fn the_layouts_of_other_libraries_are_such_as_functions_take() {
    let (_, section) = page("docs/reference.md").text.split_once("layouts are not built in.").expect("it is there");
    let (tables, _) = section.split_once("\n- **The 64th bit").expect("notes follow the tables");
    let code = tables.lines().filter(|line| line.starts_with("| ")).flat_map(|row| row.split('`').skip(1).step_by(2));
    let layouts: Vec<_> = code.filter(|code| code.starts_with("time:") || Layout::parse(code).is_ok()).collect();
    for layout in &layouts {
        Layout::parse(layout).unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(layouts.len() >= 10, "{layouts:?}");
}

/// The files of this package's sources and tests.
fn sources() -> Vec<PathBuf> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directories = ["src", "tests/servers"].map(|name| fs::read_dir(package.join(name)).expect("it is there"));
    directories.into_iter().flatten().map(|entry| entry.expect("it can be listed").path()).collect()
}

#[test]
fn a_test_runs_every_block_on_every_page() {
    let rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    let sources: String =
        sources().iter().filter(|path| rust(path)).map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut named = 0;
    for page in pages() {
        let runs = format!("follow(\"{}\");", page.path);
        if page.blocks.iter().any(Block::runs_with_its_page) {
            assert!(sources.contains(&runs), "no test has {runs}");
        }
        for lines in page.blocks.iter().filter(|block| block.language == "conf" && block.key("needs").is_none()) {
            assert_eq!(settings(&lines.text), configuration(), "{}", page.path);
        }
        for name in page.blocks.iter().filter_map(|block| block.key("name")) {
            named += 1;
            let asks = ["block(\"NAME\")", "follow(\"NAME\")", "= \"NAME\";"].map(|form| form.replace("NAME", name));
            let is_asked_for = asks.iter().any(|form| sources.contains(form));
            assert!(is_asked_for, "no test asks for the block {name} of {}: {asks:?}", page.path);
        }
    }
    assert!(named > 10, "found only {named} blocks with a name");
}

#[test]
fn the_recipe_for_pg_partman_runs_and_each_new_id_finds_its_partition() {
    let server = configured().start();
    psql(&server, &[], "CREATE EXTENSION snowflake_id");
    let mut session = server.connect();
    let version =
        "SELECT coalesce((SELECT default_version FROM pg_available_extensions WHERE name = 'pg_partman'), '')";
    let version = session.value(version);
    if version.is_empty() {
        return skip("pg_partman is not installed");
    }

    for block in [block("partman"), block("partman-daily")] {
        // The comment of that line tells the reader to do this.
        let is_for_this_version = |line: &&str| version.starts_with("4.") || !line.contains("only for pg_partman 4");
        psql(&server, &[], &block.lines().filter(is_for_this_version).collect::<Vec<_>>().join("\n"));
    }
    session.batch_execute("INSERT INTO readings (value) SELECT 1 FROM generate_series(1, 100)").unwrap();
    assert_eq!(session.value("SELECT count(*) FROM readings"), "100");
    assert_eq!(session.value("SELECT count(*) FROM readings_default"), "0");
}

#[test]
fn the_row_wise_form_and_the_form_beside_it_use_the_index() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    let table =
        "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_next(), item text); SET enable_seqscan = off";
    session.batch_execute(table).unwrap();
    let row_wise = block("row-wise").trim_end_matches(';');
    let row_wise = plan(&mut session, &format!("{row_wise} WHERE p.created_at >= now()"));
    assert!(row_wise.contains("Index Cond: (id >= "), "{row_wise}");
    let by_time = plan(&mut session, block("by-time"));
    assert!(by_time.contains("Index Cond: (id >= "), "{by_time}");
}

#[test]
fn the_extension_stays_in_the_schema_that_it_was_created_in() {
    let server = Server::drawing().start();
    let mut session = server.connect();
    let [creation, change] = ["CREATE EXTENSION snowflake_id SCHEMA ids", "ALTER EXTENSION snowflake_id SET SCHEMA"];
    assert!([creation, change].iter().all(|statement| is_shown(&format!("`{statement}`"))));
    session.batch_execute(&format!("CREATE SCHEMA ids; {creation}")).unwrap();
    let refusal = refused(session.batch_execute(&format!("{change} public")));
    assert_eq!(refusal.sqlstate, "0A000", "{refusal:?}");
    let default = "CREATE TABLE t (id bigint DEFAULT ids.snowflake_next()); SET search_path = public; INSERT INTO t DEFAULT VALUES";
    session.batch_execute(default).unwrap();
    assert_eq!(session.value("SELECT count(*) FROM t"), "1");
}

/// A cluster of one node: stand-ins for the functions of Citus that the page calls, with the
/// names and results of Citus 13.
const ONE_NODE: &str = "
    CREATE TABLE pg_dist_node (nodeid integer, nodename text, nodeport integer);
    INSERT INTO pg_dist_node VALUES (1, 'localhost', 5432);
    CREATE FUNCTION run_command_on_all_nodes(command text, parallel boolean DEFAULT true,
        give_warning_for_connection_errors boolean DEFAULT false, OUT nodeid integer, OUT success boolean, OUT result text)
    RETURNS SETOF record LANGUAGE plpgsql AS $$
    BEGIN
        nodeid := 1;
        success := true;
        EXECUTE command INTO result;
        RETURN NEXT;
    EXCEPTION WHEN OTHERS THEN
        success := false;
        result := SQLERRM;
        RETURN NEXT;
    END $$;
    CREATE TABLE distributed (relation regclass);
    CREATE FUNCTION undistribute_table(table_name regclass) RETURNS void
        BEGIN ATOMIC DELETE FROM distributed WHERE relation = table_name; END;
    CREATE FUNCTION create_distributed_table(table_name regclass, distribution_column text) RETURNS void
        BEGIN ATOMIC INSERT INTO distributed VALUES (table_name); END;";

#[test]
fn the_statements_for_citus_do_what_the_page_says_on_a_node() {
    let server = configured().start();
    let follow = |name: &str| psql(&server, &["--tuples-only", "--no-align"], block(name));
    psql(&server, &[], &format!("CREATE EXTENSION snowflake_id; {ONE_NODE}"));
    let mut session = server.connect();
    session
        .batch_execute(
            "ALTER DATABASE postgres SET timezone = 'UTC';
             CREATE TABLE orders (id serial PRIMARY KEY, item text);
             INSERT INTO distributed VALUES ('orders')",
        )
        .unwrap();

    assert_eq!(follow("citus-nodes"), "localhost|5432|5 snowflake UTC");
    assert_eq!(follow("citus-all-nodes"), "1|t|");
    let above = "citus-advance";
    assert!(follow(above).starts_with("1|f|"), "an empty table");

    follow("citus-convert");
    session.batch_execute("INSERT INTO orders (item) VALUES ('tea')").unwrap();
    let drawn = "SELECT snowflake_timestamp(max(id)) > now() - interval '1 hour' FROM orders";
    assert_eq!(session.value(drawn), "true");
    assert_eq!(session.value("SELECT count(*) FROM distributed WHERE relation = 'orders'::regclass"), "1");

    // A row that another node drew. Without the statement this node draws below it.
    session.batch_execute("INSERT INTO orders (id) VALUES (snowflake_min(now() + interval '1 hour'))").unwrap();
    let greatest: i64 = session.value("SELECT max(id) FROM orders").parse().unwrap();
    assert!(session.draw() < greatest);
    assert_eq!(follow(above), "1|t|");
    let refusal = refused(session.try_draw());
    assert_eq!(refusal.sqlstate, "58000", "{refusal:?}");
}

/// Citus refuses functions that are not IMMUTABLE in `RETURNING`. It also refuses them in `UPDATE`,
/// `DELETE` and `MERGE` if they depend on a column.
#[test]
fn the_forms_that_the_page_names_for_citus_are_such_as_it_accepts() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    session.batch_execute("CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_next(), item text)").unwrap();
    let named = "snowflake_timestamp(id, 'snowflake')";
    assert!(is_shown(&format!("name your own layout, as in `{named}`")));
    // PostgreSQL has the same rule for expressions in an index.
    session.batch_execute(&format!("CREATE INDEX ON orders ({named})")).unwrap();
    let refusal = refused(session.batch_execute("CREATE INDEX ON orders (snowflake_timestamp(id))"));
    assert_eq!(refusal.sqlstate, "42P17", "{refusal:?}");
}

/// The `DELETE` of the recipe, without its semicolon.
#[track_caller]
fn retention() -> &'static str {
    let (_, delete) = block("retention").split_once("-- Retention.\n").expect("it begins so");
    delete.trim_end_matches(';')
}

#[test]
fn the_recipe_for_retention_compares_the_bare_id_and_needs_no_pushdown() {
    let (_, condition) = retention().split_once(" WHERE ").expect("it has a condition");
    let (column, bound) = condition.split_once(" < ").expect("it is a comparison");
    assert_eq!(column, "id", "functions of a column are refused by Citus if they are not IMMUTABLE");
    assert!(bound.starts_with("snowflake_min(now() - interval '"), "{bound}");
    assert!(!bound.contains("id"), "{bound} depends on a column");

    let table = "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_next(), item text) PARTITION BY RANGE (id);
                 CREATE TABLE old PARTITION OF orders FOR VALUES FROM (MINVALUE) TO (snowflake_min('2025-07-01Z', 'snowflake'));
                 CREATE TABLE new PARTITION OF orders FOR VALUES FROM (snowflake_min('2025-07-01Z', 'snowflake')) TO (MAXVALUE);
                 INSERT INTO orders VALUES (1), (snowflake_min('2025-06-01Z', 'snowflake')),
                     (snowflake_min(now() - interval '89 days', 'snowflake')), (snowflake_min(now(), 'snowflake'))";
    // An instant before all rows: the plan reads only the old partition, by its index.
    let older = retention().replace("now()", "'2025-09-01Z'::timestamptz");
    for server in [Server::drawing(), Server::builder().without_preload()] {
        let server = server.start_with_extension();
        let mut session = server.connect();
        session.batch_execute(&format!("{table}; SET enable_seqscan = off")).unwrap();
        let is_preloaded = session.value("current_setting('snowflake_id.enable_time_pushdown', true)") == "on";
        let bare = |session: &mut _| plan(session, &older);
        let plans = if is_preloaded {
            vec![bare(&mut session), without_pushdown(&mut session, bare)]
        } else {
            vec![bare(&mut session)]
        };
        for plan in plans {
            assert!(plan.contains("Index Cond: (id < snowflake_min("), "{plan}");
            assert!(plan.contains("Subplans Removed: 1") && !plan.contains("Scan on new"), "{plan}");
        }
        assert_eq!(session.execute(retention(), &[]).unwrap(), 2);
        assert_eq!(session.value("SELECT count(*) FROM orders"), "2");
    }
}
