//! Many columns at once: one plan, in which each table is rewritten at most once; and the script
//! that a dry run returns if views or similar objects depend on columns to be widened.

use cluster::plans::rows;
use cluster::{Draw, Running, postgres_version, refused};

use super::database::{Database, assert_becomes, assert_same, catalogs, convert, converted, side};

/// Three keys in a chain, a table between two of them, one that refers to itself, and one that only
/// refers.
const SIX: &str = "
    CREATE TABLE app.customers (id {serial -> bigint DEFAULT snowflake_next()} PRIMARY KEY, name text);
    CREATE TABLE app.orders (id {integer GENERATED ALWAYS AS IDENTITY -> bigint DEFAULT snowflake_next()} PRIMARY KEY,
        customer {integer -> bigint} NOT NULL REFERENCES app.customers, n integer);
    CREATE TABLE app.items (id {smallserial -> bigint DEFAULT snowflake_next()} PRIMARY KEY,
        \"order\" {integer -> bigint} REFERENCES app.orders, previous {integer -> bigint} REFERENCES app.items, n integer);
    CREATE TABLE app.labels (id {bigserial -> bigint DEFAULT snowflake_next()} PRIMARY KEY);
    CREATE TABLE app.labelled (label bigint REFERENCES app.labels, customer {integer -> bigint} REFERENCES app.customers,
        PRIMARY KEY (label, customer));
    CREATE TABLE app.notes (item {smallint -> bigint} REFERENCES app.items, customer {integer -> bigint} REFERENCES app.customers,
        line integer);
    INSERT INTO app.customers VALUES (1, 'Ada'), (2, 'Bo');
    INSERT INTO app.orders OVERRIDING SYSTEM VALUE VALUES (1, 1, 7), (2, 2, 8);
    INSERT INTO app.items VALUES (1, 1, NULL, 1), (2, 2, 1, 2);
    INSERT INTO app.labels VALUES (1); INSERT INTO app.labelled VALUES (1, 2); INSERT INTO app.notes VALUES (2, 1, 3);";

const KEYS: &str = "ARRAY['app.customers.id', 'app.orders.id', 'app.items.id', 'app.labels.id']";

const TABLES: [&str; 6] = ["customers", "orders", "items", "labels", "labelled", "notes"];

/// Everything under which PostgreSQL does not change a type, each with an owner, rights, a comment
/// and settings if it can have them, and what depends on it in turn. Roles belong to the whole
/// server, and another database may make them at the same moment.
const IN_THE_WAY: &str = r#"
    DO $$BEGIN CREATE ROLE keeper; EXCEPTION WHEN duplicate_object OR unique_violation THEN END$$;
    DO $$BEGIN CREATE ROLE reader; EXCEPTION WHEN duplicate_object OR unique_violation THEN END$$;
    DO $$BEGIN CREATE ROLE giver; EXCEPTION WHEN duplicate_object OR unique_violation THEN END$$;
    GRANT ALL ON SCHEMA app TO keeper, reader, giver;
    GRANT SELECT ON ALL TABLES IN SCHEMA app TO keeper, reader, giver;

    CREATE VIEW app.sales WITH (security_barrier, check_option = local) AS
        SELECT o.id, o.customer AS buyer, o.n FROM app.orders o WHERE o.customer > 0;
    ALTER VIEW app.sales OWNER TO keeper;
    ALTER VIEW app.sales ALTER n SET DEFAULT 7;
    COMMENT ON VIEW app.sales IS 'it''s a view'; COMMENT ON COLUMN app.sales.buyer IS 'who';
    GRANT SELECT, UPDATE (n) ON app.sales TO giver WITH GRANT OPTION;
    GRANT INSERT (id, n) ON app.sales TO PUBLIC;
    SET ROLE giver; GRANT SELECT ON app.sales TO reader; GRANT UPDATE (n) ON app.sales TO reader WITH GRANT OPTION; RESET ROLE;
    CREATE FUNCTION app.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
    CREATE TRIGGER written INSTEAD OF INSERT ON app.sales FOR EACH ROW EXECUTE FUNCTION app.nothing();
    COMMENT ON TRIGGER written ON app.sales IS 'instead';
    CREATE RULE kept AS ON DELETE TO app.sales DO INSTEAD NOTHING;

    -- Over two tables, and over a view. The second one's name is a statement if nobody quotes it.
    CREATE VIEW app.both AS SELECT c.name, s.id, s FROM app.customers c JOIN app.sales s ON s.buyer = c.id;
    REVOKE ALL ON app.both FROM postgres; GRANT SELECT ON app.both TO reader;
    CREATE VIEW app."x
DROP TABLE app.notes; --" AS SELECT id AS "an ""id""" FROM app.both UNION ALL SELECT label FROM app.labelled;
    CREATE FUNCTION app.whose() RETURNS text LANGUAGE sql STABLE AS 'SELECT current_user::text';
    CREATE MATERIALIZED VIEW app.summary WITH (fillfactor = 70, autovacuum_enabled = false, toast.autovacuum_enabled = false) AS
        SELECT buyer, count(*) AS n, min(app.whose()) AS whose FROM app.sales GROUP BY buyer;
    ALTER MATERIALIZED VIEW app.summary OWNER TO keeper;
    ALTER MATERIALIZED VIEW app.summary ALTER n SET STATISTICS 77;
    ALTER MATERIALIZED VIEW app.summary ALTER whose SET STORAGE external;
    ALTER MATERIALIZED VIEW app.summary ALTER buyer SET (n_distinct = 5);
    CREATE UNIQUE INDEX summary_key ON app.summary (buyer) WITH (fillfactor = 60);
    CREATE INDEX summary_next ON app.summary ((buyer + 1)) WHERE n > 0;
    ALTER INDEX app.summary_next ALTER COLUMN 1 SET STATISTICS 33;
    ALTER MATERIALIZED VIEW app.summary CLUSTER ON summary_key;
    CREATE STATISTICS app.summary_both ON buyer, n FROM app.summary;
    COMMENT ON MATERIALIZED VIEW app.summary IS 'all'; COMMENT ON COLUMN app.summary.n IS 'how many';
    COMMENT ON INDEX app.summary_key IS 'its key'; COMMENT ON STATISTICS app.summary_both IS 'both';
    GRANT SELECT (buyer) ON app.summary TO PUBLIC;
    CREATE MATERIALIZED VIEW app.empty AS SELECT id FROM app.items WITH NO DATA;
    ALTER MATERIALIZED VIEW app.empty DEPENDS ON EXTENSION snowflake_id;
    REFRESH MATERIALIZED VIEW app.summary;

    CREATE TRIGGER noted BEFORE UPDATE OF id, n ON app.items FOR EACH ROW WHEN (new.id <> old.id) EXECUTE FUNCTION app.nothing();
    COMMENT ON TRIGGER noted ON app.items IS 'noted'; ALTER TABLE app.items DISABLE TRIGGER noted;
    CREATE CONSTRAINT TRIGGER late AFTER UPDATE OF item ON app.notes DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION app.nothing();
    ALTER TABLE app.notes ENABLE ALWAYS TRIGGER late;
    CREATE RULE silent AS ON UPDATE TO app.notes WHERE new.item = 0 DO INSTEAD NOTHING;
    COMMENT ON RULE silent ON app.notes IS 'no'; ALTER TABLE app.notes ENABLE REPLICA RULE silent;
    CREATE POLICY few ON app.items AS RESTRICTIVE FOR UPDATE TO reader, keeper USING (id > 0) WITH CHECK (n < id);
    CREATE POLICY own ON app.notes USING (EXISTS (SELECT FROM app.sales WHERE buyer = customer)) WITH CHECK (customer > 0);
    CREATE POLICY added ON app.notes FOR INSERT WITH CHECK (customer > 0);
    COMMENT ON POLICY few ON app.items IS 'few';
    CREATE PUBLICATION columns FOR TABLE app.items (id, n), app.orders (id, customer) WHERE (id > 3), app.labels;
    CREATE PUBLICATION filtered FOR TABLE app.notes WHERE (line > 1 AND item IS NOT NULL);

    CREATE FUNCTION app.most(x integer DEFAULT 3) RETURNS bigint STABLE BEGIN ATOMIC SELECT max(id) FROM app.sales; END;
    ALTER FUNCTION app.most OWNER TO keeper; REVOKE ALL ON FUNCTION app.most FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION app.most TO reader; COMMENT ON FUNCTION app.most IS 'most';
    CREATE PROCEDURE app.note(line integer) BEGIN ATOMIC INSERT INTO app.notes (item, line) SELECT max(id), line FROM app.items; END;
    COMMENT ON PROCEDURE app.note IS 'note';
    CREATE VIEW app.last AS SELECT app.most() AS id;
    CREATE FUNCTION app.taking(o app.orders DEFAULT NULL) RETURNS integer LANGUAGE sql AS 'SELECT 1';
    CREATE FUNCTION app.giving(n integer) RETURNS app.orders[] BEGIN ATOMIC SELECT ARRAY[NULL::app.orders, NULL]; END;
    CREATE FUNCTION app.inside(n integer) RETURNS integer BEGIN ATOMIC SELECT (NULL::app.orders).n; END;
    COMMENT ON FUNCTION app.inside IS 'inside'; ALTER FUNCTION app.giving OWNER TO keeper;
    -- Their arguments and results alone keep nothing from changing.
    CREATE FUNCTION app.alone(o app.orders, p app.orders[]) RETURNS app.orders LANGUAGE sql AS 'SELECT o';
    CREATE FUNCTION app.aside(o app.orders) RETURNS integer BEGIN ATOMIC SELECT 1; END;

    -- It is the last column already.
    ALTER TABLE app.labelled ADD twice bigint GENERATED ALWAYS AS (customer * 2) STORED NOT NULL;
    ALTER TABLE app.labelled ALTER twice SET STATISTICS 200, ADD CONSTRAINT even CHECK (twice % 2 = 0),
        ADD CONSTRAINT once UNIQUE (twice);
    ALTER TABLE app.labelled CLUSTER ON once; ALTER TABLE app.labelled REPLICA IDENTITY USING INDEX once;
    CREATE INDEX half ON app.labelled ((twice / 2));
    CREATE STATISTICS app.pair ON label, twice FROM app.labelled; ALTER STATISTICS app.pair SET STATISTICS 55;
    ALTER STATISTICS app.pair OWNER TO keeper;
    CREATE TABLE app.doubled (twice bigint REFERENCES app.labelled (twice) ON DELETE CASCADE);
    COMMENT ON COLUMN app.labelled.twice IS 'double'; COMMENT ON CONSTRAINT even ON app.labelled IS 'even';
    COMMENT ON CONSTRAINT once ON app.labelled IS 'once'; COMMENT ON INDEX app.once IS 'its index'; COMMENT ON INDEX app.half IS 'half';
    GRANT SELECT (twice) ON app.labelled TO keeper;

    -- A dump would show what these do to objects that are made from now on.
    ALTER DEFAULT PRIVILEGES FOR ROLE postgres GRANT UPDATE ON TABLES TO reader;
    ALTER DEFAULT PRIVILEGES FOR ROLE postgres IN SCHEMA app GRANT SELECT ON TABLES TO giver WITH GRANT OPTION;
    ALTER DEFAULT PRIVILEGES FOR ROLE postgres REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;"#;

#[test]
fn a_schema_is_converted_at_once() {
    let database = assert_becomes(SIX, &[&format!("{KEYS}, rewrite => true")]);
    let mut session = database.connect();
    session
        .batch_execute("INSERT INTO items (previous) SELECT max(id) FROM items; INSERT INTO labels DEFAULT VALUES")
        .unwrap();
    assert_eq!(
        session.value("SELECT count(*) FROM pg_class WHERE relkind = 'S' AND relnamespace = 'app'::regnamespace"),
        "0"
    );
    assert_eq!(converted(&mut session, &format!("{KEYS}, rewrite => true")), [""; 0]);
}

/// The dependent objects are dropped in between, and are as before afterwards.
#[test]
fn the_script_of_a_dry_run_converts_a_schema_whatever_depends_on_its_columns() {
    let schema = format!("{SIX}{IN_THE_WAY}");
    let wanted = Database::with(&side(&schema, true)).dump();
    let database = Database::with(&side(&schema, false));
    let mut session = database.connect();
    let (refusal, script) = database.obstructed(&mut session, &format!("{KEYS}, rewrite => true"));
    let detail = refusal.detail.unwrap();
    for line in [
        "view app.sales depends on column id of table app.orders",
        "view app.\"both\" depends on column id of table app.customers",
        "materialized view app.empty depends on column id of table app.items",
        "trigger noted on table app.items depends on column id of table app.items",
        "trigger late on table app.notes depends on column item of table app.notes",
        "rule silent on table app.notes depends on column item of table app.notes",
        "policy few on table app.items depends on column id of table app.items",
        "publication of table app.orders in publication columns depends on column customer of table app.orders",
        "publication of table app.notes in publication filtered depends on column item of table app.notes",
        "function app.note(integer) depends on column item of table app.notes",
        "function app.taking(app.orders) depends on table app.orders",
        "function app.giving(integer) depends on table app.orders",
        "function app.inside(integer) depends on table app.orders",
        "default value for column twice of table app.labelled depends on column customer of table app.labelled",
    ] {
        assert!(detail.lines().any(|found| found == line), "{line}\n{detail}");
    }
    assert!(!detail.contains("function app.alone") && !detail.contains("function app.aside"), "{detail}");
    drop(session);
    database.by_hand(&script);
    assert_same(&database.dump(), &wanted, &script);
    let mut session = database.connect();
    // Filled by its owner, which is another role than the one that runs the script.
    assert_eq!(session.value("SELECT DISTINCT whose FROM summary"), "keeper");
    assert_eq!(session.value("SELECT relispopulated FROM pg_class WHERE relname = 'empty'"), "false");
    assert_eq!(session.value("SELECT count(*) FROM notes"), "1");
    session.batch_execute("INSERT INTO orders (customer) VALUES (1)").unwrap();
    assert_eq!(converted(&mut session, &format!("{KEYS}, rewrite => true")), [""; 0]);
}

/// PostgreSQL 18 brought virtual columns.
#[test]
fn the_script_of_a_dry_run_leaves_a_virtual_column_virtual() {
    if postgres_version() < 18 {
        return;
    }
    let schema = "CREATE TABLE app.t (id {serial -> bigint DEFAULT snowflake_next()} PRIMARY KEY, n integer,
             twice bigint GENERATED ALWAYS AS (id * 2) VIRTUAL NOT NULL CHECK (twice % 2 = 0));
         CREATE VIEW app.v AS SELECT twice FROM app.t;
         COMMENT ON COLUMN app.t.twice IS 'double'; GRANT SELECT (twice) ON app.t TO PUBLIC;
         INSERT INTO app.t (id) VALUES (21)";
    let database = Database::with(&side(schema, false));
    let (_, script) = database.obstructed(&mut database.connect(), "'t', 'id', true");
    database.by_hand(&script);
    assert_same(&database.dump(), &Database::with(&side(schema, true)).dump(), &script);
    assert_eq!(database.connect().value("SELECT twice FROM v"), "42");
}

/// As a file, because a user reads it first.
#[test]
fn the_script_of_a_dry_run_is_one_that_psql_reads() {
    let schema = format!("{SIX}{IN_THE_WAY}");
    let database = Database::with(&side(&schema, false));
    let script = converted(&mut database.connect(), &format!("{KEYS}, true, dry_run => true"));
    assert!(script.iter().all(|line| line.ends_with(';') || line.starts_with("-- suspect: ")), "{script:#?}");
    database.by_hand(&[script.join("\n")]);
    assert_same(&database.dump(), &Database::with(&side(&schema, true)).dump(), &script);
}

/// A second call checks rows and foreign keys once more.
#[test]
fn the_call_can_take_its_own_statements_place_in_the_script() {
    let schema = format!("{SIX}{IN_THE_WAY}");
    let database = Database::with(&side(&schema, false));
    let mut script = converted(&mut database.connect(), &format!("{KEYS}, true, dry_run => true"));
    let lock = script.iter().position(|statement| statement.starts_with("LOCK TABLE ")).unwrap();
    let last = script.iter().rposition(|statement| statement.starts_with("DROP SEQUENCE ")).unwrap();
    script.splice(lock..=last, [format!("SELECT snowflake_convert_columns({KEYS}, true)")]);
    database.by_hand(&script);
    assert_same(&database.dump(), &Database::with(&side(&schema, true)).dump(), &script);
}

/// Regression: a table with a key and referring columns was rewritten once for each of them.
#[test]
fn each_table_is_rewritten_at_most_once() {
    let count = "CREATE TABLE public.rewritten (relation regclass);
        CREATE FUNCTION public.note() RETURNS event_trigger LANGUAGE plpgsql
            AS 'BEGIN INSERT INTO public.rewritten VALUES (pg_event_trigger_table_rewrite_oid()); END';
        CREATE EVENT TRIGGER note ON table_rewrite EXECUTE FUNCTION public.note()";
    let database = Database::with(&format!("{}{count}", side(SIX, false)));
    let mut session = database.connect();
    let counted = "SELECT string_agg(relation || ' ' || n, ', ' ORDER BY relation::text)
         FROM (SELECT relation, count(*) AS n FROM rewritten GROUP BY relation) AS counted";
    session.batch_execute("BEGIN").unwrap();
    converted(&mut session, &format!("{KEYS}, true"));
    assert_eq!(session.value(counted), "customers 1, items 1, labelled 1, notes 1, orders 1");
    // The control.
    session.batch_execute("ROLLBACK").unwrap();
    for table in ["customers", "orders", "items"] {
        converted(&mut session, &format!("'{table}', 'id', true"));
    }
    assert_eq!(session.value(counted), "customers 1, items 2, labelled 1, notes 2, orders 2");
}

#[test]
fn a_schema_is_warned_about_once() {
    let database = Database::with(&side(SIX, false));
    let (mut session, heard) = database.connect_and_listen();
    for call in [format!("{KEYS}, true, dry_run => true"), format!("{KEYS}, true")] {
        converted(&mut session, &call);
        let said = [
            "WARNING: ids of layout \"snowflake\" exceed 2^53",
            "NOTICE: columns that were GENERATED ALWAYS will store the values that statements give",
        ];
        let mut heard = std::mem::take(&mut *heard.lock().unwrap());
        heard.retain(|line| !line.starts_with("NOTICE: rewriting"));
        assert_eq!(heard, said);
    }
    converted(&mut session, &format!("{KEYS}, true"));
    assert_eq!(*heard.lock().unwrap(), [""; 0]);
}

/// A name may hold what ends a comment of SQL.
#[test]
fn each_rewrite_is_announced_with_its_size_and_a_dry_run_lists_the_sizes() {
    let odd = "\"a\n;CREATE TABLE wrong ();\"";
    let database = Database::with(&format!(
        "CREATE TABLE {odd} (id serial PRIMARY KEY, n text);
         CREATE TABLE parts (odd integer REFERENCES {odd}, day integer) PARTITION BY LIST (day);
         CREATE TABLE part PARTITION OF parts DEFAULT;
         CREATE TABLE wide (id bigserial PRIMARY KEY, odd bigint REFERENCES {odd});
         INSERT INTO {odd} SELECT n, repeat('x', 1000) FROM generate_series(1, 100) n; INSERT INTO parts VALUES (1, 1)"
    ));
    let size = |table: &str| database.connect().value(&format!("pg_size_pretty(pg_total_relation_size('{table}'))"));
    let (of_odd, of_parts) = (size(odd), size("part"));
    let (mut session, heard) = database.connect_and_listen();
    let columns = format!("ARRAY['{odd}.id', 'wide.id']");
    let dry_run = format!("SELECT * FROM snowflake_convert_columns({columns}, true, true)");
    let script = rows(&mut session, &dry_run).unwrap();
    let odd_line = odd.replace('\n', " ");
    let sizes = [format!("-- size: app.{odd_line}, {of_odd}"), format!("-- size: app.parts, {of_parts}")];
    assert_eq!(script[..2], sizes);
    assert_eq!(*heard.lock().unwrap(), ["WARNING: ids of layout \"snowflake\" exceed 2^53"]);
    session.batch_execute("BEGIN").unwrap();
    converted(&mut session, &format!("{columns}, true"));
    session.batch_execute("ROLLBACK").unwrap();
    let notices = [(&odd_line[..], of_odd), ("parts", of_parts)]
        .map(|(table, size)| format!("NOTICE: rewriting table app.{table} ({size})"));
    assert_eq!(heard.lock().unwrap()[2..], notices);
    database.by_hand(&[script.join("\n")]);
    assert_eq!(session.value("to_regclass('wrong') IS NULL"), "true");
    assert_eq!(converted(&mut session, &format!("{columns}, true")), [""; 0]);
}

#[test]
fn tables_of_a_publication_are_warned_about_if_they_are_to_be_widened() {
    let tables = "CREATE TABLE t (id serial, day integer) PARTITION BY LIST (day);
        CREATE SCHEMA attic; CREATE TABLE attic.part PARTITION OF t DEFAULT;
        CREATE TABLE other (id serial); CREATE TABLE wide (id bigserial);
        CREATE UNLOGGED TABLE local (id serial)";
    for (publication, table, published) in [
        ("FOR TABLE t", "t", "app.t"),
        ("FOR TABLE t WITH (publish_via_partition_root)", "t", "app.t"),
        ("FOR TABLE attic.part", "t", "attic.part"),
        ("FOR TABLES IN SCHEMA attic", "t", "attic.part"),
        ("FOR TABLES IN SCHEMA app", "t", "app.t"),
        ("FOR ALL TABLES", "t", "app.t"),
        ("FOR ALL TABLES", "local", ""),
        ("FOR ALL TABLES", "wide", ""),
        ("FOR TABLE other", "t", ""),
    ] {
        let database = Database::with(&format!("{tables}; CREATE PUBLICATION p {publication}"));
        let (mut session, heard) = database.connect_and_listen_to_details();
        let warning = format!("columns to be widened are in published tables: table {published} of publication p");
        for call in ["true, true", "true"] {
            converted(&mut session, &format!("'{table}', 'id', {call}"));
            let mut heard = std::mem::take(&mut *heard.lock().unwrap());
            heard.retain(|line| line.contains("publi"));
            let wanted: Vec<_> = Some(warning.clone()).filter(|_| !published.is_empty()).into_iter().collect();
            assert_eq!(heard, wanted, "{publication}");
        }
    }
}

/// Otherwise the call would differ from the dry run.
#[test]
fn a_dry_run_warns_of_what_the_call_is_refused_for() {
    let database = Database::with("CREATE TABLE t (id serial); CREATE VIEW v AS SELECT id FROM t");
    let (mut session, heard) = database.connect_and_listen();
    converted(&mut session, "'t', 'id', true, true");
    assert!(heard.lock().unwrap().contains(&"WARNING: other objects depend on the columns to be widened".to_owned()));
}

/// While the call waits for one table, the others are free.
#[test]
fn the_tables_of_a_schema_are_locked_at_the_same_moment() {
    let database = Database::with(&side(SIX, false));
    for held in TABLES {
        let mut user = database.connect();
        user.batch_execute(&format!("BEGIN; LOCK TABLE {held} IN ACCESS SHARE MODE")).unwrap();
        let mut session = database.connect();
        session.batch_execute("BEGIN").unwrap();
        let call = format!("SELECT length(s)::bigint FROM snowflake_convert_columns({KEYS}, true) s");
        let waiting = Running::start(session, &call);
        database.wait_until_locked(waiting.pid);
        for table in TABLES {
            if table != held {
                let lock = format!("BEGIN; LOCK TABLE {table} IN ACCESS SHARE MODE NOWAIT; COMMIT");
                database.connect().batch_execute(&lock).unwrap_or_else(|error| panic!("{held}, {table}: {error:?}"));
            }
        }
        user.batch_execute("COMMIT").unwrap();
        let (mut session, result) = waiting.end();
        result.unwrap();
        session.batch_execute("ROLLBACK").unwrap();
    }
}

#[test]
fn columns_are_named_as_sql_names_them() {
    let database = Database::with(
        "CREATE SCHEMA \"a.b\"; CREATE TABLE \"a.b\".\"T.\"\"1\" (\"i.d\" bigserial);
         CREATE TABLE app.plain (id bigserial, \"ID\" bigint, other bigint); CREATE TABLE public.plain (id bigint)",
    );
    let mut session = database.connect();
    let calls = [
        (r#"ARRAY['"a.b"."T.""1"."i.d"']"#, r#"ALTER TABLE "a.b"."T.""1" ALTER COLUMN "i.d" SET DEFAULT"#),
        ("ARRAY['PLAIN.Id']", "ALTER TABLE app.plain ALTER COLUMN id SET DEFAULT"),
        ("ARRAY['plain.\"ID\"']", "ALTER TABLE app.plain ALTER COLUMN \"ID\" SET DEFAULT"),
        ("ARRAY[' app . plain . id ']", "ALTER TABLE app.plain ALTER COLUMN id SET DEFAULT"),
        ("ARRAY['public.plain.id']", "ALTER TABLE public.plain ALTER COLUMN id SET DEFAULT"),
    ];
    for (call, statement) in calls {
        let statements = converted(&mut session, &format!("{call}, dry_run => true"));
        assert!(statements[1].starts_with(statement), "{call}: {statements:?}");
    }
    // A column may be named twice, in two spellings, together with others of the same table.
    let both = converted(&mut session, "ARRAY['app.plain.id', 'plain.id', 'plain.other', 'plain.\"ID\"', 'plain.id']");
    let draws =
        |column: &str| format!("ALTER TABLE app.plain ALTER COLUMN {column} SET DEFAULT public.snowflake_next();");
    let wanted = [
        "LOCK TABLE app.plain IN ACCESS EXCLUSIVE MODE;".to_owned(),
        draws("id"),
        draws("other"),
        draws("\"ID\""),
        "DROP SEQUENCE app.plain_id_seq;".to_owned(),
    ];
    assert_eq!(both, wanted);
}

/// A table whose column draws already is not locked.
#[test]
fn without_a_column_nothing_happens() {
    let database =
        Database::with("CREATE TABLE t (id bigserial); CREATE TABLE done (id bigint DEFAULT snowflake_next())");
    let mut session = database.connect();
    let before = catalogs(&mut session);
    for call in ["ARRAY[]::text[]", "ARRAY['done.id']", "ARRAY['t.id'], NULL", "ARRAY['t.id'], true, NULL"] {
        assert_eq!(converted(&mut session, call), [""; 0], "{call}");
    }
    assert_eq!(session.value("SELECT count(*) FROM snowflake_convert_columns(NULL)"), "0");
    assert_eq!(before, catalogs(&mut session));
    let mut user = database.connect();
    user.batch_execute("BEGIN; LOCK TABLE done IN ACCESS SHARE MODE").unwrap();
    session.batch_execute("SET lock_timeout = '10s'").unwrap();
    assert_eq!(converted(&mut session, "ARRAY['done.id', 't.id']").len(), 3);
}

#[test]
fn what_names_no_column_of_a_table_is_refused() {
    let database = Database::with(
        "CREATE TABLE t (id bigserial, name text); CREATE VIEW v AS SELECT 1::bigint AS id;
         CREATE TABLE parent (id bigserial); CREATE TABLE child () INHERITS (parent)",
    );
    let mut session = database.connect();
    for (column, sqlstate) in [
        ("''", "22023"),
        ("'id'", "22023"),
        ("'a.b.c.d'", "22023"),
        ("'t..id'", "22023"),
        ("'t.id.'", "22023"),
        ("'t.\"id'", "22023"),
        ("'t.\"\"'", "22023"),
        ("'t.id, t.name'", "22023"),
        ("'t.id; DROP TABLE t'", "22023"),
        ("NULL", "22004"),
        ("'nowhere.id'", "42P01"),
        ("'nowhere.t.id'", "42P01"),
        ("'t.nothing'", "42703"),
        ("'t.name'", "42804"),
        ("'v.id'", "42809"),
        ("'child.id'", "42P16"),
        ("'pg_class.relpages'", "42501"),
    ] {
        // The other columns are not converted either.
        let refusal = database.refusal(&mut session, &format!("ARRAY['t.id', {column}, 'parent.id']::text[], true"));
        assert_eq!(refusal.sqlstate, sqlstate, "{column}: {refusal:?}");
    }
}

#[test]
fn who_does_not_own_each_table_is_refused_at_once() {
    let database = Database::with("");
    let (owner, other) = (database.role("owner"), database.role("other"));
    database.run(&format!(
        "CREATE TABLE app.mine (id serial PRIMARY KEY); CREATE TABLE app.theirs (id serial PRIMARY KEY);
         CREATE TABLE app.refers (mine integer REFERENCES app.mine, theirs integer REFERENCES app.theirs);
         ALTER TABLE app.mine OWNER TO {owner}; ALTER TABLE app.theirs OWNER TO {other}; ALTER TABLE app.refers OWNER TO {owner}"
    ));
    let mut session = database.connect_as(&owner);
    for (call, whose) in
        [("ARRAY['mine.id', 'theirs.id'], true", "theirs"), ("ARRAY['theirs.id', 'mine.id'], true", "theirs")]
    {
        let refusal = database.refusal(&mut session, call);
        assert_eq!(
            (refusal.sqlstate.as_str(), refusal.message),
            ("42501", format!("must be owner of table app.{whose}"))
        );
    }
    let mut session = database.connect_as(&other);
    let refusal = database.refusal(&mut session, "ARRAY['theirs.id'], true");
    assert_eq!(refusal.message, "must be owner of table app.refers");
}

#[test]
fn every_column_that_is_too_narrow_is_named() {
    let database = Database::with(&side(SIX, false));
    let refusal = database.refusal(&mut database.connect(), KEYS);
    assert_eq!(refusal.sqlstate, "55000", "{refusal:?}");
    for column in [
        "id of table app.customers",
        "id of table app.orders",
        "customer of table app.orders",
        "id of table app.items",
        "customer of table app.labelled",
        "item of table app.notes",
    ] {
        assert!(refusal.detail.as_deref().is_some_and(|detail| detail.contains(column)), "{refusal:?}");
    }
}

/// If one column owns a sequence and another draws from it, it is not needed once both are
/// converted, in any order. One call is enough for both, and so is one dry run.
#[test]
fn all_that_forbids_a_conversion_is_named_at_once() {
    let database = Database::with(
        "CREATE TABLE t (id integer PRIMARY KEY);
         CREATE TABLE u (id integer REFERENCES t, x numeric);
         CREATE TABLE w (id integer REFERENCES t);
         CREATE TABLE p (id integer) PARTITION BY RANGE (id);
         CREATE VIEW v AS SELECT id FROM t",
    );
    let mut session = database.connect();
    for dry_run in ["true", "false"] {
        let columns = "ARRAY['u.id', 'u.x', 'w.id', 'p.id', 't.id', 't.none']";
        let call = format!("SELECT snowflake_convert_columns({columns}, true, dry_run => {dry_run})");
        let refusal = refused(session.query(&call, &[]));
        // A dry run can write the view's statements; the call cannot.
        let mut expected = vec![
            "column \"x\" of table app.u is of type numeric",
            "column \"none\" of table app.t does not exist",
            "column \"id\" of table app.u refers to app.t: Its default would draw an id that no referenced row has.",
            "column \"id\" of table app.w refers to app.t: Its default would draw an id that no referenced row has.",
            "cannot widen column \"id\": table app.p is partitioned by it: Its type is integer, which is too narrow for ids.",
        ];
        if dry_run == "false" {
            expected.push(
                "cannot widen columns that other objects depend on: view app.v depends on column id of table app.t",
            );
        }
        assert_eq!(refusal.sqlstate, "42804", "{refusal:?}");
        assert_eq!(refusal.message, format!("cannot convert the columns for {} reasons", expected.len()));
        assert_eq!(refusal.detail.as_deref(), Some(expected.join("\n").as_str()));
        let hint = refusal.hint.unwrap();
        assert!(hint.contains("drop the foreign key") && hint.contains("Create a new table"), "{hint}");
    }
}

#[test]
fn a_sequence_of_two_columns_goes_with_both() {
    let schema = "CREATE TABLE app.a (id {serial -> bigint NOT NULL DEFAULT snowflake_next()});
        CREATE TABLE app.b (id bigint {DEFAULT nextval('app.a_id_seq') -> DEFAULT snowflake_next()});";
    assert_becomes(schema, &["ARRAY['a.id', 'b.id'], true"]);
    assert_becomes(schema, &["ARRAY['b.id', 'a.id'], true"]);
}

/// Values of one column, compared with the ids to come of another.
#[test]
fn a_value_from_the_future_is_found_in_each_column() {
    let database = Database::with(
        "CREATE TABLE t (id bigserial, other bigint); CREATE TABLE u (id bigserial); INSERT INTO u VALUES (9223372036854775807)",
    );
    let refusal = database.refusal(&mut database.connect(), "ARRAY['t.id', 't.other', 'u.id']");
    assert_eq!(refusal.sqlstate, "55000");
    assert!(refusal.message.contains("table app.u "), "{refusal:?}");
}

/// Only the user can decide what becomes of rows. An extension's objects are not dropped.
#[test]
fn what_cannot_be_made_again_by_a_statement_is_named_apart() {
    let database = Database::with(
        "CREATE TABLE t (id serial PRIMARY KEY, n bigint); CREATE VIEW easy AS SELECT id FROM t; CREATE TABLE hard (x t);
         CREATE TABLE harder (x easy); CREATE VIEW packed AS SELECT id + 1 AS id FROM t; ALTER EXTENSION snowflake_id ADD VIEW packed;
         CREATE TABLE parts (t integer REFERENCES t, g integer GENERATED ALWAYS AS (t + 1) STORED, n integer) PARTITION BY LIST (n);
         CREATE TABLE part PARTITION OF parts DEFAULT; CREATE INDEX by_g ON parts (g);
         CREATE VIEW round AS SELECT id FROM t; CREATE FUNCTION about() RETURNS integer BEGIN ATOMIC SELECT max(id) FROM round; END;
         CREATE OR REPLACE VIEW round AS SELECT id FROM t WHERE id < about();
         CREATE FUNCTION over_easy() RETURNS bigint BEGIN ATOMIC SELECT max(id) FROM easy; END;
         ALTER TABLE t ALTER n SET DEFAULT over_easy(); CREATE TABLE later (n bigint DEFAULT over_easy() CHECK (n < over_easy()))",
    );
    let mut session = database.connect();
    let refusal = database.refusal(&mut session, "ARRAY['t.id'], true");
    assert_eq!(refusal.sqlstate, "2BP01");
    let detail = refusal.detail.unwrap();
    let (objects, unwritten) =
        detail.split_once("\nThe function cannot write statements that create these again:\n").unwrap();
    assert!(objects.contains("view app.easy depends on column id of table app.t"), "{objects}");
    let mut unwritten: Vec<_> = unwritten.lines().collect();
    unwritten.sort_unstable();
    let wanted = [
        "column x of table app.hard",
        "column x of table app.harder",
        "default value for column n of table app.t",
        "function app.about()",
        "index app.by_g",
        "index app.part_g_idx",
        "view app.packed",
        "view app.round",
    ];
    assert_eq!(unwritten, wanted);
    let remove = "DROP TABLE hard, harder; ALTER EXTENSION snowflake_id DROP VIEW packed; DROP INDEX by_g;
        DROP VIEW round CASCADE; ALTER TABLE t ALTER n DROP DEFAULT";
    session.batch_execute(remove).unwrap();
    let script = converted(&mut session, "ARRAY['t.id'], true, true").join("\n");
    session.batch_execute(&format!("BEGIN; {script} COMMIT")).unwrap();
    assert_eq!(session.value("SELECT atttypid::regtype FROM pg_attribute WHERE attrelid = 'easy'::regclass"), "bigint");
    let default = "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'later'::regclass";
    assert_eq!(session.value(default), "over_easy()");
}

/// A trigger may have a different state in each part.
#[test]
fn a_partitioned_table_has_its_triggers_and_generated_columns_again() {
    let schema = "CREATE TABLE app.t (id {serial -> bigint DEFAULT snowflake_next()} NOT NULL, n integer NOT NULL, PRIMARY KEY (id, n),
            twice bigint GENERATED ALWAYS AS (id * 2) STORED) PARTITION BY LIST (n);
        CREATE TABLE app.t1 PARTITION OF app.t FOR VALUES IN (1);
        CREATE TABLE app.t2 PARTITION OF app.t DEFAULT PARTITION BY LIST (n);
        CREATE TABLE app.t3 PARTITION OF app.t2 DEFAULT;
        CREATE FUNCTION app.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
        CREATE TRIGGER a AFTER UPDATE OF id ON app.t FOR EACH ROW EXECUTE FUNCTION app.nothing();
        CREATE TRIGGER b AFTER UPDATE OF id ON app.t FOR EACH ROW EXECUTE FUNCTION app.nothing();
        ALTER TABLE app.t DISABLE TRIGGER a; ALTER TABLE app.t1 ENABLE TRIGGER a; ALTER TABLE app.t3 ENABLE ALWAYS TRIGGER b;
        CREATE TRIGGER c AFTER UPDATE OF id ON app.t1 FOR EACH ROW EXECUTE FUNCTION app.nothing();
        CREATE POLICY p ON app.t3 USING (id > 0);
        CREATE PUBLICATION parts FOR TABLE app.t1 (id, n), app.t (id, n) WITH (publish_via_partition_root);
        INSERT INTO app.t VALUES (1, 1), (2, 2);";
    let wanted = Database::with(&side(schema, true)).dump();
    let database = Database::with(&side(schema, false));
    let (_, script) = database.obstructed(&mut database.connect(), "'t', 'id', true");
    database.by_hand(&script);
    assert_same(&database.dump(), &wanted, &script);
}

/// A member of the owning role may do the same by hand.
#[test]
fn a_script_can_be_run_by_the_owner() {
    let database = Database::with("");
    let owner = database.role("owner");
    database.run(&format!(
        "SET ROLE {owner}; CREATE TABLE app.t (id serial PRIMARY KEY); CREATE VIEW app.v AS SELECT id FROM app.t;
         CREATE MATERIALIZED VIEW app.m AS SELECT id FROM app.v; GRANT SELECT ON app.v TO PUBLIC"
    ));
    let mut session = database.connect_as(&owner);
    let script = converted(&mut session, "'t', 'id', true, true").concat();
    session.batch_execute(&format!("BEGIN; {script} COMMIT")).unwrap();
    assert_eq!(refused(convert(&mut session, "'v', 'id'")).sqlstate, "42809");
    assert_eq!(session.value("SELECT relacl::text LIKE '%=r/%' FROM pg_class WHERE relname = 'v'"), "true");
    session.batch_execute("INSERT INTO t DEFAULT VALUES").unwrap();
}
