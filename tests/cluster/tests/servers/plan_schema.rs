//! The schema `snowflake_plan` has what only plans and views call, so that users see few functions.
//! It comes and goes with the extension. A schema of that name that is there before is refused. A
//! role needs no right on it to have its conditions planned.

use std::fs;
use std::path::Path;

use cluster::objects::{description, differences};
use cluster::plans::{LATE, MINUTES, assert_same_rows, left_alone, plan, pushed, rows};
use cluster::{Draw, Refusal, Server, refused};
use postgres::Client;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The extension's functions, as a table: schema, name and oid.
const FUNCTIONS: &str =
    "(SELECT pronamespace::regnamespace::text AS schema, proname::text AS name, p.oid FROM pg_proc p
     JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
     JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
     WHERE e.extname = 'snowflake_id') functions";

/// The most functions that users are to see.
const MOST: usize = 57;

fn functions(session: &mut Client, condition: &str) -> Vec<String> {
    rows(session, &format!("SELECT name FROM {FUNCTIONS} WHERE {condition} ORDER BY name")).unwrap()
}

#[test]
fn the_users_schema_has_few_functions_and_the_reference_has_each() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    let reference = fs::read_to_string(Path::new(ROOT).join("docs/reference.md")).unwrap();
    let (of_users, of_plans) = reference.split_once("\n## In plans\n").expect("the page has this section");
    let (of_plans, _) = of_plans.split_once("\n## ").expect("it is not the last one");
    let has_line = |page: &str, call: &str| page.lines().any(|line| line.starts_with('|') && line.contains(call));
    let users = functions(&mut session, "schema <> 'snowflake_plan'");
    assert!(!users.is_empty() && users.len() <= MOST, "{} functions: {users:?}", users.len());
    for name in &users {
        assert!(has_line(of_users, &format!("`{name}(")), "docs/reference.md has no line for {name}()");
    }
    for name in functions(&mut session, "schema = 'snowflake_plan'") {
        assert!(has_line(of_plans, &format!("`{name}(")), "docs/reference.md has no line for snowflake_plan.{name}()");
    }
    // What psql shows to users.
    let mut psql = server.client("psql");
    let listed = psql.args(["--no-psqlrc", "-At", "--command", r"\df snowflake*", "postgres"]).output().unwrap();
    assert_eq!(String::from_utf8(listed.stdout).unwrap().lines().count(), users.len());
}

#[test]
fn nothing_of_the_schema_is_reachable_without_its_name() {
    let server = Server::drawing().start_with_extension();
    server.connect().batch_execute("CREATE ROLE ordinary LOGIN").unwrap();
    for user in ["postgres", "ordinary"] {
        let mut session = server.connect_as(user);
        let visible = |session: &mut Client| functions(session, "pg_function_is_visible(oid)");
        let all = functions(&mut session, "schema = 'snowflake_plan'");
        let plain = visible(&mut session);
        assert!(all.len() > 20 && plain.iter().all(|name| name.starts_with("snowflake_")), "{user}: {plain:?}");
        let refusal = refused(session.batch_execute("SELECT ceil(timestamp '2026-01-01', 'day')"));
        assert_eq!(refusal.sqlstate, "42883", "{user}: {refusal:?}");
        // `lower` and the like stay PostgreSQL's own.
        assert_eq!(session.value("SELECT lower('ID') || lower(int4range(1, 2))"), "id1", "{user}");
        assert_eq!(
            session.value("SELECT snowflake_plan.ceil(timestamp '2026-01-02 03:00', 'day')::date"),
            "2026-01-03"
        );
        // The control: with the schema in the search_path, they are visible.
        session.batch_execute("SET search_path = public, snowflake_plan").unwrap();
        assert!(visible(&mut session).len() > plain.len(), "{user}");
    }
}

#[test]
fn the_schema_goes_with_the_extension() {
    let server = Server::drawing().start();
    let mut session = server.connect();
    session.batch_execute("CREATE SCHEMA ids").unwrap();
    let schema = "to_regnamespace('snowflake_plan')";
    for (place, drop) in [
        ("public", "DROP EXTENSION snowflake_id"),
        ("ids", "DROP EXTENSION snowflake_id"),
        ("ids", "DROP SCHEMA ids CASCADE"),
    ] {
        session.batch_execute(&format!("CREATE EXTENSION snowflake_id SCHEMA {place}")).unwrap();
        assert_eq!(session.value(schema), "snowflake_plan");
        let refusal = refused(session.batch_execute("DROP SCHEMA snowflake_plan CASCADE"));
        assert_eq!(refusal.sqlstate, "2BP01", "{refusal:?}");
        // What somebody has put there is not dropped unasked.
        session.batch_execute("CREATE TABLE snowflake_plan.mine ()").unwrap();
        let refusal = refused(session.batch_execute("DROP EXTENSION snowflake_id"));
        assert_eq!(refusal.sqlstate, "2BP01", "{refusal:?}");
        session.batch_execute("DROP TABLE snowflake_plan.mine").unwrap();
        session.batch_execute(&format!("BEGIN; {drop}; ROLLBACK")).unwrap();
        assert_eq!(session.value(schema), "snowflake_plan");
        session.batch_execute(drop).unwrap();
        assert_eq!(session.value(schema), "NULL", "{drop}");
        session.batch_execute("BEGIN; CREATE EXTENSION snowflake_id SCHEMA public; ROLLBACK").unwrap();
        assert_eq!(session.value(schema), "NULL", "{drop}");
    }
}

/// A schema of the name, of a role that could replace what is in it.
const OF_ANOTHER_ROLE: &str = "
    CREATE SCHEMA snowflake_plan AUTHORIZATION mallory;
    CREATE FUNCTION snowflake_plan.ceil(timestamp, text) RETURNS timestamp LANGUAGE sql AS 'SELECT $1';
    ALTER FUNCTION snowflake_plan.ceil(timestamp, text) OWNER TO mallory";

#[track_caller]
fn assert_says_what_to_do(refusal: &Refusal) {
    assert_eq!(refusal.sqlstate, "42P06", "{refusal:?}");
    assert_eq!(refusal.message, "schema \"snowflake_plan\" already exists");
    assert!(refusal.detail.as_ref().is_some_and(|detail| detail.contains("\"snowflake_id\"")), "{refusal:?}");
    assert!(refusal.hint.as_ref().is_some_and(|hint| hint.contains("Rename")), "{refusal:?}");
}

#[test]
fn a_schema_of_that_name_is_refused_and_nothing_is_left() {
    let server = Server::drawing().start();
    for create in ["ROLE mallory", "DATABASE older", "DATABASE inside"] {
        server.connect().batch_execute(&format!("CREATE {create}")).unwrap();
    }
    let all = "SELECT 'function', oid, proowner, pronamespace FROM pg_proc
               UNION ALL SELECT 'relation', oid, relowner, relnamespace FROM pg_class
               UNION ALL SELECT 'schema', oid, nspowner, 0 FROM pg_namespace
               UNION ALL SELECT 'extension', oid, extowner, extnamespace FROM pg_extension ORDER BY 1, 2";

    let mut session = server.connect();
    session.batch_execute(OF_ANOTHER_ROLE).unwrap();
    let before = rows(&mut session, all).unwrap();
    assert_says_what_to_do(&refused(session.batch_execute("CREATE EXTENSION snowflake_id")));
    assert_eq!(rows(&mut session, all).unwrap(), before);
    // As the hint says.
    session.batch_execute("ALTER SCHEMA snowflake_plan RENAME TO of_mallory").unwrap();
    session.batch_execute(&format!("CREATE EXTENSION snowflake_id; {MINUTES}; SET enable_seqscan = off")).unwrap();
    let query = "SELECT n FROM t WHERE date_trunc('day', snowflake_timestamp(id)) >= '2026-01-07Z'";
    assert!(plan(&mut session, query).contains("Index Cond: (id >= snowflake_from("));
    assert_eq!(session.value("SELECT of_mallory.ceil('2026-01-01', 'day')::date"), "2026-01-01");

    let mut session = server.connect_to("older");
    session.batch_execute("CREATE EXTENSION snowflake_id VERSION '0.2.0'").unwrap();
    session.batch_execute(OF_ANOTHER_ROLE).unwrap();
    let (before, was) = (rows(&mut session, all).unwrap(), description(&server, "older", &mut session));
    assert_says_what_to_do(&refused(session.batch_execute("ALTER EXTENSION snowflake_id UPDATE")));
    assert_eq!(rows(&mut session, all).unwrap(), before);
    assert_eq!(differences(&was, &description(&server, "older", &mut session)), [""; 0]);
    session.draw();
    // The functions of another role are not taken for the extension's, whatever their schema.
    session.batch_execute(&format!("{MINUTES}; SET enable_seqscan = off")).unwrap();
    left_alone(&mut session, query);
    session.batch_execute("ALTER SCHEMA snowflake_plan RENAME TO of_mallory").unwrap();
    session.batch_execute("ALTER EXTENSION snowflake_id UPDATE").unwrap();
    assert!(plan(&mut session, query).contains("Index Cond: (id >= snowflake_from("));

    // The extension itself is in a schema of that name.
    let mut session = server.connect_to("inside");
    session.batch_execute("CREATE SCHEMA snowflake_plan").unwrap();
    session.batch_execute("CREATE EXTENSION snowflake_id SCHEMA snowflake_plan VERSION '0.2.0'").unwrap();
    session.batch_execute("SET search_path = public, snowflake_plan; SET enable_seqscan = off").unwrap();
    session.batch_execute(MINUTES).unwrap();
    let by_time = format!("SELECT n FROM t WHERE snowflake_timestamp(id) >= {LATE}");
    pushed(&mut session, &by_time);
    assert_says_what_to_do(&refused(session.batch_execute("ALTER EXTENSION snowflake_id UPDATE")));
    pushed(&mut session, &by_time);
    session.batch_execute("ALTER SCHEMA snowflake_plan RENAME TO ids; SET search_path = public, ids").unwrap();
    session.batch_execute("ALTER EXTENSION snowflake_id UPDATE").unwrap();
    pushed(&mut session, &by_time);
    assert!(plan(&mut session, query).contains("Index Cond: (id >= snowflake_from("));
}

#[test]
fn a_dump_does_not_carry_the_schema_and_its_copy_has_it() {
    let server = Server::drawing().start_with_minutes();
    let mut session = server.connect();
    for create in [
        "VIEW by_day AS SELECT n, snowflake_timestamp(id)::date AS day FROM t",
        "DATABASE copy",
        "DATABASE revoked",
        "ROLE ordinary",
    ] {
        session.batch_execute(&format!("CREATE {create}")).unwrap();
    }
    let original = description(&server, "postgres", &mut session);
    let dump = server.dump("postgres", "postgres", &[]);
    let text = fs::read_to_string(&dump).unwrap();
    assert!(text.contains("CREATE EXTENSION") && !text.contains("snowflake_plan"), "{text}");
    server.restore(&dump, "copy", &[]);
    let mut copy = server.connect_to("copy");
    assert_eq!(differences(&original, &description(&server, "copy", &mut copy)), [""; 0]);
    let query = "SELECT n FROM by_day WHERE day > '2026-01-06'";
    copy.batch_execute("ANALYZE t").unwrap();
    assert!(plan(&mut copy, query).contains("snowflake_plan.instant("));
    assert_same_rows(&mut copy, query);
    // Rights that were changed are carried.
    session.batch_execute("REVOKE USAGE ON SCHEMA snowflake_plan FROM PUBLIC").unwrap();
    server.restore(&server.dump("postgres", "postgres", &[]), "revoked", &[]);
    let may_use = "SELECT has_schema_privilege('ordinary', 'snowflake_plan', 'USAGE')";
    assert_eq!([copy.value(may_use), server.connect_to("revoked").value(may_use)], ["true", "false"]);
}

/// Statements whose plans are kept.
const PREPARE: &str = "
    SET plan_cache_mode = force_generic_plan;
    PREPARE named (timestamptz) AS SELECT n FROM t WHERE id >= snowflake_after($1 - interval '1 us', 'snowflake');
    PREPARE rewritten (timestamptz) AS SELECT n FROM timed WHERE created_at >= $1";

/// Views, functions and plans that name functions of 0.2.0.
#[test]
fn what_an_earlier_version_stored_goes_on_after_an_update() {
    let server = Server::drawing().config("enable_seqscan", "off").start();
    for version in ["0.1.0", "0.2.0"] {
        goes_on_after_an_update(&server, version);
    }
}

fn goes_on_after_an_update(server: &Server, version: &str) {
    let database = format!("of_{}", version.replace('.', "_"));
    server.connect().batch_execute(&format!("CREATE DATABASE {database}")).unwrap();
    let mut session = server.connect_to(&database);
    session.batch_execute(&format!("CREATE EXTENSION snowflake_id VERSION '{version}'")).unwrap();
    session
        .batch_execute(&format!(
            "{MINUTES};
             CREATE TABLE indexed AS SELECT * FROM t;
             CREATE INDEX ON indexed (snowflake_timestamp(id, 'snowflake'));
             CREATE VIEW late AS SELECT n FROM t WHERE id >= snowflake_from({LATE}::timestamptz, 'snowflake')
                 AND id <= snowflake_until(date '2026-01-08', 'snowflake');
             CREATE FUNCTION late() RETURNS SETOF integer BEGIN ATOMIC
                 SELECT n FROM t WHERE id > snowflake_before(timestamp '2026-01-07 22:00', 'snowflake'); END;
             CREATE VIEW timed AS SELECT n, snowflake_timestamp(id) AS created_at FROM t;
             {PREPARE}"
        ))
        .unwrap();
    let statements = [
        "SELECT n FROM late".to_owned(),
        "SELECT late()".to_owned(),
        format!("SELECT n FROM timed WHERE created_at >= {LATE}"),
        format!("SELECT n FROM indexed WHERE snowflake_timestamp(id, 'snowflake') >= {LATE}"),
        format!("EXECUTE named({LATE})"),
        format!("EXECUTE rewritten({LATE})"),
    ];
    let state = |session: &mut Client| {
        let results =
            statements.each_ref().map(|statement| (plan(session, statement), rows(session, statement).unwrap()));
        let definitions = "SELECT pg_get_viewdef('late'), pg_get_viewdef('timed'), pg_get_functiondef('late'::regproc)";
        (results, rows(session, definitions).unwrap())
    };
    let functions = format!("SELECT oid, schema, oid::regprocedure::text FROM {FUNCTIONS} ORDER BY 1");
    let before = (state(&mut session), rows(&mut session, &functions).unwrap());
    assert!(before.0.0.iter().all(|(_, rows)| rows.len() == 40), "{:?}", before.0.0);
    assert!(before.1.len() > 30, "{version}: {:?}", before.1);
    server.connect_to(&database).batch_execute("ALTER EXTENSION snowflake_id UPDATE").unwrap();
    let mut fresh = server.connect_to(&database);
    fresh.batch_execute(PREPARE).unwrap();
    for session in [&mut session, &mut fresh] {
        assert_eq!(state(session), before.0);
    }
    let after = rows(&mut session, &functions).unwrap();
    assert!(before.1.iter().all(|function| after.contains(function)), "{after:#?}");
    assert!(after.len() > before.1.len());
}

/// Conditions of every form. Only the first is rewritten without a function of the schema. (From 17
/// on, PostgreSQL itself takes a constant range apart.)
const FORMS: [&str; 15] = [
    "snowflake_timestamp(id) >= '2026-01-07 22:00Z'",
    "now() - snowflake_timestamp(id) < now() - '2026-01-07 22:00Z'",
    "snowflake_timestamp(id) <@ tstzrange('2026-01-07 22:00Z'::timestamptz + (now() - now()), NULL)",
    "snowflake_timestamp(id) = ANY ((SELECT array_agg('2026-01-07 22:00Z'::timestamptz + n * interval '1 hour')
         FROM generate_series(0, 3) n)::timestamptz[])",
    "snowflake_timestamp(id)::date > '2026-01-06'",
    "snowflake_timestamp(id) AT TIME ZONE 'Europe/Berlin' >= '2026-01-07 23:00'",
    "date_trunc('hour', snowflake_timestamp(id)) >= '2026-01-07 22:00Z'",
    "snowflake_timestamp(id) + interval '1 day' >= '2026-01-08 22:00Z'",
    "extract(year FROM snowflake_timestamp(id)) = 2027",
    "snowflake_timestamp(id)::date IN ('2026-01-07', '2026-01-08')",
    "snowflake_timestamp(id)::date = ANY ((SELECT array_agg(date '2026-01-07' + n) FROM generate_series(0, 3) n)::date[])",
    "date_part('year', snowflake_timestamp(id)) = 2027",
    "extract(epoch FROM snowflake_timestamp(id)) >= extract(epoch FROM timestamptz '2026-01-07 22:00Z' + (now() - now()))",
    "date_bin('15 minutes', snowflake_timestamp(id), '2001-01-01') >= timestamptz '2026-01-07 22:00Z' + (now() - now())",
    "age(timestamptz '2026-01-08 22:00Z', snowflake_timestamp(id)) < interval '1 day'",
];

/// Asserts that an index finds the ids of each form, and that the rows are those without pushdown.
#[track_caller]
fn assert_served(session: &mut Client, case: &str) {
    for form in FORMS {
        let query = format!("SELECT n FROM t WHERE {form}");
        let plan = plan(session, &query);
        assert!(plan.contains("Index Cond: ("), "{case}: {query}:\n{plan}");
        assert_same_rows(session, &query);
    }
}

/// PostgreSQL asks for USAGE where a name is looked up, and for EXECUTE where a function is called.
#[test]
fn plans_need_the_right_to_execute_and_not_the_schema() {
    let server = Server::builder().start_with_minutes();
    let mut owner = server.connect();
    owner.batch_execute("CREATE ROLE reader LOGIN; GRANT SELECT ON t TO reader").unwrap();
    let mut open = server.connect_as("reader");
    assert_served(&mut open, "a role that may only read the table");

    owner.batch_execute("REVOKE USAGE ON SCHEMA snowflake_plan FROM PUBLIC").unwrap();
    for reader in [&mut open, &mut server.connect_as("reader")] {
        let by_name = refused(reader.batch_execute("SELECT snowflake_plan.ceil(timestamp '2026-01-01', 'day')"));
        assert_eq!(by_name.sqlstate, "42501", "{by_name:?}");
        assert_served(reader, "without USAGE");
    }

    owner.batch_execute("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA snowflake_plan FROM PUBLIC").unwrap();
    for reader in [&mut open, &mut server.connect_as("reader")] {
        pushed(reader, &format!("SELECT n FROM t WHERE {}", FORMS[0]));
        for form in &FORMS[1..] {
            left_alone(reader, &format!("SELECT n FROM t WHERE {form}"));
        }
    }
    assert_served(&mut owner, "the owner");

    owner.batch_execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA snowflake_plan TO reader").unwrap();
    assert_served(&mut open, "granted");
}

/// They are leakproof, so that they may not raise errors. The type `numeric` has no whole number
/// above its largest one.
#[test]
fn numbers_and_bins_have_limits_at_every_end() {
    let server = Server::builder().start_with_minutes();
    let mut session = server.connect();
    let largest = "(repeat('9', 131072) || '.5')::numeric";
    for year in [largest.to_owned(), format!("-{largest}"), "'NaN'".to_owned(), "1e6".to_owned(), "-1e-9".to_owned()] {
        for after in [true, false] {
            let call = format!("SELECT snowflake_plan.local({year}::numeric, {after}) IS NOT NULL");
            assert_eq!(session.value(&call), "true", "{call}");
        }
    }
    for number in
        [largest, "'NaN'", "'infinity'", "'-infinity'", "1e13", "-1e14", "'99999999999999.9999999999999'", "0.0000001"]
    {
        for after in [true, false] {
            let call = format!("SELECT snowflake_plan.instant({number}::numeric, {after}) IS NOT NULL");
            assert_eq!(session.value(&call), "true", "{call}");
        }
    }
    // Some versions of PostgreSQL return the bin before for the start of one before the origin. So
    // the upper limit is just after it there.
    for (origin, upper, limit) in [
        ("2100-01-01", false, "2026-01-05 12:00:00"),
        ("2100-01-01", true, "2026-01-05 12:00:00.000001"),
        ("2001-01-01", true, "2026-01-05 12:00:00"),
    ] {
        let call = format!(
            "SELECT snowflake_plan.ceil(timestamp '2026-01-05 11:50', interval '15 minutes', timestamp '{origin}', {upper})"
        );
        assert_eq!(session.value(&call), limit, "{call}");
    }
    for number in ["'NaN'", "'infinity'", "'-infinity'", "1e308", "-1e308", "1e-320", "0.5"] {
        for after in [true, false] {
            let call = format!(
                "SELECT snowflake_plan.instant({number}::float8, {after}) IS NOT NULL
                     AND snowflake_plan.local({number}::float8, {after}) IS NOT NULL"
            );
            assert_eq!(session.value(&call), "true", "{call}");
        }
    }
    for (year, after, start) in [
        ("2026", false, "2026-01-01 00:00:00"),
        ("2026", true, "2027-01-01 00:00:00"),
        ("2026.5", false, "2027-01-01 00:00:00"),
        ("2026.5", true, "2027-01-01 00:00:00"),
        ("-0.5", false, "0001-01-01 00:00:00"),
    ] {
        assert_eq!(session.value(&format!("SELECT snowflake_plan.local({year}::numeric, {after})")), start);
    }
}

/// A superuser can add functions to the extension. Their names do not make them the schema's.
#[test]
fn a_member_elsewhere_is_not_taken_for_one_of_the_schema() {
    let server = Server::builder().start_with_minutes();
    let mut session = server.connect();
    let range = format!("SELECT n FROM t WHERE {}", FORMS[2]);
    session
        .batch_execute(
            "CREATE FUNCTION public.lower(tstzrange) RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE STRICT AS
                 $$BEGIN RAISE 'the wrong limit'; END$$;
             ALTER EXTENSION snowflake_id ADD FUNCTION public.lower(tstzrange)",
        )
        .unwrap();
    for session in [&mut session, &mut server.connect()] {
        pushed(session, &range);
    }
    // One that is missing stops what needs the schema, and nothing else.
    session.batch_execute("ALTER FUNCTION snowflake_plan.lower(tstzrange) RENAME TO least").unwrap();
    left_alone(&mut session, &range);
    pushed(&mut session, &format!("SELECT n FROM t WHERE {}", FORMS[0]));
    session.batch_execute("ALTER FUNCTION snowflake_plan.least(tstzrange) RENAME TO lower").unwrap();
    pushed(&mut session, &range);
}
