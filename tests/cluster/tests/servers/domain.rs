//! The domain of docs/json.md: what PostgREST does with its casts, and that a column of it behaves
//! as a `bigint` does.

use cluster::pages::{block, is_shown, psql};
use cluster::plans::plan;
use cluster::{Draw, Server, refused};
use postgres::Client;

/// A server with the page's domain and tables.
fn with_domain() -> Server {
    let server = Server::drawing().start_with_extension();
    for name in [block("domain"), block("domain-tables")] {
        psql(&server, &[], name);
    }
    server
}

/// A plan without the casts that PostgreSQL shows for a column of the domain, if the plan does not
/// read it from an index alone.
fn plain_plan(session: &mut Client, statement: &str) -> String {
    plan(session, statement).replace("(id)::bigint", "id")
}

/// The functions as PostgREST finds them: implicit casts between a domain and json or text.
fn casts(session: &mut Client) -> Vec<String> {
    let sql =
        "SELECT format('%s %s %s', format_type(castsource, NULL), format_type(casttarget, NULL), castfunc::regproc)
               FROM pg_cast JOIN pg_type d ON d.oid IN (castsource, casttarget) AND d.typtype = 'd'
               WHERE castcontext = 'i' AND castfunc <> 0 ORDER BY 1";
    session.query(sql, &[]).unwrap().iter().map(|row| row.get(0)).collect()
}

#[test]
fn the_casts_of_the_domain_are_found_and_write_and_read_ids_as_strings() {
    let server = with_domain();
    let mut session = server.connect();
    assert_eq!(
        casts(&mut session),
        ["json snowflake id_from_json", "snowflake json id_to_json", "text snowflake id_from_text"]
    );

    // A POST, with a string and with a number, and a GET of what it has stored.
    let customer = session.ids("INSERT INTO customers (name) VALUES ('Ada') RETURNING id::bigint").unwrap()[0];
    for number in [format!("\"{customer}\""), customer.to_string()] {
        let body = format!("{{\"customer\": {number}, \"item\": \"tea\"}}");
        let insert = format!(
            "INSERT INTO orders (customer, item)
             SELECT id_from_json(customer), item FROM json_to_record('{body}') AS _ (customer json, item text)
             RETURNING id::bigint"
        );
        let id = session.ids(&insert).unwrap()[0];
        assert!(is_shown("SELECT id_to_json(id) AS id, item FROM orders"));
        let get = format!(
            "SELECT coalesce(json_agg(r), '[]')::text FROM (
                 SELECT id_to_json(id) AS id, id_to_json(customer) AS customer, item FROM orders WHERE id = id_from_text('{id}')
             ) r"
        );
        let expected = format!("[{{\"id\":\"{id}\",\"customer\":\"{customer}\",\"item\":\"tea\"}}]");
        assert_eq!(session.value(&get), expected);
    }
    // A foreign key is checked as before, and so is a text that is not a number.
    let strange = "INSERT INTO orders (customer) VALUES (id_from_json('\"1\"'))";
    assert_eq!(refused(session.batch_execute(strange)).sqlstate, "23503");
    assert_eq!(refused(session.batch_execute("SELECT id_from_text('tea')")).sqlstate, "22P02");
    assert_eq!(session.value("SELECT id_to_json(NULL) IS NULL AND id_from_json('null') IS NULL"), "true");
}

#[test]
fn filters_of_postgrest_use_the_key_of_a_column_of_the_domain() {
    let server = with_domain();
    let mut session = server.connect();
    session.batch_execute("SET enable_seqscan = off; SET enable_bitmapscan = off").unwrap();
    for (filter, condition) in [
        ("id = id_from_text('249498276909305861')", "Index Cond: (id = "),
        ("id = ANY (ARRAY(SELECT id_from_text(unnest('{249498276909305861,7}'::text[]))))", "Index Cond: (id = ANY "),
        ("id > id_from_text('249498276909305861')", "Index Cond: (id > "),
    ] {
        let plan = plain_plan(&mut session, &format!("SELECT id_to_json(id), item FROM orders WHERE {filter}"));
        assert!(plan.contains(condition), "{plan}");
    }
    assert!(is_shown("WHERE id = ANY (ARRAY(SELECT id_from_text(unnest('{...}'::text[]))))"));
}

#[test]
fn conditions_on_the_time_look_through_the_domain() {
    let server = with_domain();
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE TABLE visits (id snowflake PRIMARY KEY DEFAULT snowflake_next(), page text) PARTITION BY RANGE (id);
             CREATE TABLE old PARTITION OF visits FOR VALUES FROM (MINVALUE) TO (snowflake_min('2026-01-01Z', 'snowflake'));
             CREATE TABLE new PARTITION OF visits FOR VALUES FROM (snowflake_min('2026-01-01Z', 'snowflake')) TO (MAXVALUE);
             INSERT INTO visits SELECT snowflake_min('2025-06-01Z', 'snowflake') + n FROM generate_series(1, 3) n;
             INSERT INTO visits DEFAULT VALUES;
             SET enable_seqscan = off; SET enable_bitmapscan = off",
        )
        .unwrap();
    for time in ["snowflake_timestamp(id)", "snowflake_timestamp(id, 'snowflake')", "(snowflake_parse(id)).created_at"]
    {
        for (condition, part) in [(" < '2025-07-01Z'", "old"), (" >= '2026-02-01Z'", "new")] {
            let plan = plain_plan(&mut session, &format!("SELECT id, page FROM visits WHERE {time}{condition}"));
            let index = ["Index Cond: (id ", "Index Cond: ((id "];
            assert!(index.iter().any(|index| plan.contains(index)), "{time}{condition}\n{plan}");
            assert!(plan.contains(&format!(" on {part} ")), "{time}{condition} prunes\n{plan}");
            assert!(!plan.contains("snowflake_timestamp") && !plan.contains("Append"), "{time}{condition}\n{plan}");
        }
    }
    assert_eq!(session.value("SELECT count(*) FROM visits WHERE snowflake_timestamp(id) < '2025-07-01Z'"), "3");
    assert_eq!(
        session.value("SELECT count(*) FROM visits WHERE snowflake_timestamp(id) >= now() - interval '1 day'"),
        "1"
    );
}

#[test]
fn a_column_becomes_one_of_the_domain_without_a_rewrite_and_is_sent_as_a_bigint() {
    let server = Server::drawing().start_with_extension();
    psql(&server, &[], block("domain"));
    let mut session = server.connect();
    let (tables, change) = block("domain-tables").split_once("\n\n").unwrap();
    session.batch_execute(tables).unwrap();
    let files = "SELECT string_agg(concat_ws(' ', relname, relfilenode), ', ' ORDER BY relname) FROM pg_class
                 WHERE relname IN ('orders', 'orders_pkey')";
    let before = session.value(files);
    session.batch_execute(change).unwrap();
    assert_eq!(session.value(files), before);
    let row = session.query_one("INSERT INTO orders (item) VALUES ('tea') RETURNING id", &[]).unwrap();
    assert_eq!(row.columns()[0].type_().name(), "int8");
    assert!(row.get::<_, i64>(0) > 1 << 53);
}

#[test]
fn a_sequence_of_a_column_of_the_domain_is_converted() {
    let server = Server::drawing().start_with_extension();
    psql(&server, &[], block("domain"));
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE SEQUENCE counted;
             CREATE TABLE t (id snowflake PRIMARY KEY DEFAULT nextval('counted'), other snowflake REFERENCES t);
             ALTER SEQUENCE counted OWNED BY t.id;
             INSERT INTO t DEFAULT VALUES;
             SELECT snowflake_convert('t', 'id')",
        )
        .unwrap();
    assert!(session.ids("INSERT INTO t (other) VALUES (1) RETURNING id::bigint").unwrap()[0] > 1 << 53);
    assert_eq!(
        session.value(
            "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'id'"
        ),
        "snowflake"
    );
}

#[test]
fn the_function_of_the_page_makes_every_number_beyond_2_to_the_53_a_string() {
    let server = with_domain();
    psql(&server, &[], block("exact-json"));
    let mut session = server.connect();
    let exact = |session: &mut Client, document: &str| session.value(&format!("SELECT exact_json('{document}')::text"));
    for (document, expected) in [
        (
            r#"{"a": 9007199254740991, "b": 9007199254740992, "c": -9007199254740992}"#,
            r#"{"a": 9007199254740991, "b": "9007199254740992", "c": "-9007199254740992"}"#,
        ),
        (
            r#"[1, [249498276909305861], {}, [], null, true, "x", 0.5]"#,
            r#"[1, ["249498276909305861"], {}, [], null, true, "x", 0.5]"#,
        ),
        ("9223372036854775807", "\"9223372036854775807\""),
    ] {
        assert_eq!(exact(&mut session, document), expected);
    }
}
