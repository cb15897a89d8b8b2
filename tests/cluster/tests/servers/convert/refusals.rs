//! Which roles may convert which tables, and what prevents a conversion. A refusal says what to do,
//! and changes nothing.

use cluster::drawing::noon;
use cluster::pages::is_shown;
use cluster::{Draw, Refusal, Server, refused};

use super::database::{Database, catalogs, convert, converted};

fn all(refusal: &Refusal) -> String {
    let Refusal { sqlstate, message, detail, hint } = refusal;
    format!("{sqlstate}: {message}\n{}\n{}", detail.as_deref().unwrap_or_default(), hint.as_deref().unwrap_or_default())
}

/// Objects under which PostgreSQL does not change a column's type: how each is made, how it is
/// removed, and its name.
const OBSTACLES: [(&str, &str, &str); 31] = [
    ("CREATE VIEW app.obstacle AS SELECT id FROM app.t", "DROP VIEW app.obstacle", "obstacle"),
    ("CREATE VIEW app.obstacle AS SELECT 1 FROM app.t ORDER BY id", "DROP VIEW app.obstacle", "obstacle"),
    ("CREATE MATERIALIZED VIEW app.obstacle AS SELECT * FROM app.t", "DROP MATERIALIZED VIEW app.obstacle", "obstacle"),
    (
        "CREATE RULE obstacle AS ON UPDATE TO app.n WHERE EXISTS (SELECT FROM app.t WHERE id = 1) DO INSTEAD NOTHING",
        "DROP RULE obstacle ON app.n",
        "obstacle",
    ),
    ("CREATE POLICY obstacle ON app.t USING (id > 0)", "DROP POLICY obstacle ON app.t", "obstacle"),
    (
        "CREATE POLICY obstacle ON app.n USING (EXISTS (SELECT FROM app.t WHERE id = 1))",
        "DROP POLICY obstacle ON app.n",
        "obstacle",
    ),
    (
        "CREATE TRIGGER obstacle AFTER UPDATE OF id ON app.t EXECUTE FUNCTION app.nothing()",
        "DROP TRIGGER obstacle ON app.t",
        "obstacle",
    ),
    (
        "CREATE TRIGGER obstacle BEFORE UPDATE ON app.t FOR EACH ROW WHEN (new.id > 0) EXECUTE FUNCTION app.nothing()",
        "DROP TRIGGER obstacle ON app.t",
        "obstacle",
    ),
    (
        "ALTER TABLE app.t ADD obstacle bigint GENERATED ALWAYS AS (id * 2) STORED",
        "ALTER TABLE app.t DROP obstacle",
        "obstacle",
    ),
    (
        "CREATE FUNCTION app.obstacle() RETURNS bigint BEGIN ATOMIC SELECT max(id) FROM app.t; END",
        "DROP FUNCTION app.obstacle()",
        "obstacle",
    ),
    ("CREATE PUBLICATION obstacle FOR TABLE app.t (id, n)", "DROP PUBLICATION obstacle", "obstacle"),
    ("CREATE PUBLICATION obstacle FOR TABLE app.t WHERE (id > 0)", "DROP PUBLICATION obstacle", "obstacle"),
    ("CREATE TABLE app.obstacle (row app.t)", "DROP TABLE app.obstacle", "obstacle"),
    ("CREATE TABLE app.obstacle (rows app.t[])", "DROP TABLE app.obstacle", "obstacle"),
    (
        "CREATE DOMAIN app.d AS app.t; CREATE TABLE app.obstacle (x app.d)",
        "DROP TABLE app.obstacle; DROP DOMAIN app.d",
        "obstacle",
    ),
    (
        "CREATE TYPE app.r AS RANGE (subtype = app.t); CREATE TABLE app.obstacle (x app.r)",
        "DROP TABLE app.obstacle; DROP TYPE app.r",
        "obstacle",
    ),
    (
        "CREATE TYPE app.r AS RANGE (subtype = app.t, multirange_type_name = app.m); CREATE TABLE app.obstacle (x app.m)",
        "DROP TABLE app.obstacle; DROP TYPE app.r",
        "obstacle",
    ),
    (
        "CREATE TYPE app.c AS (x app.t[]); CREATE DOMAIN app.d AS app.c[]; CREATE TABLE app.obstacle (x app.d)
             PARTITION BY LIST ((x IS NULL))",
        "DROP TABLE app.obstacle; DROP DOMAIN app.d; DROP TYPE app.c",
        "obstacle",
    ),
    (
        "CREATE VIEW app.v AS SELECT t FROM app.t; CREATE TABLE app.obstacle (x app.v)",
        "DROP TABLE app.obstacle; DROP VIEW app.v",
        "obstacle",
    ),
    (
        "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE app.obstacle (x app.t) SERVER s",
        "DROP FOREIGN DATA WRAPPER w CASCADE",
        "obstacle",
    ),
    // Expressions that use the row type.
    ("CREATE VIEW app.obstacle AS SELECT NULL::app.t AS x", "DROP VIEW app.obstacle", "obstacle"),
    (
        "CREATE TYPE app.c AS (x app.t); CREATE VIEW app.obstacle AS SELECT ROW(t)::app.c AS x FROM app.t",
        "DROP VIEW app.obstacle; DROP TYPE app.c",
        "obstacle",
    ),
    ("CREATE INDEX obstacle ON app.n ((ROW(n, n)::app.t))", "DROP INDEX app.obstacle", "obstacle"),
    ("CREATE INDEX obstacle ON app.n (((ROW(n, n)::app.t).id))", "DROP INDEX app.obstacle", "obstacle"),
    (
        "ALTER TABLE app.n ADD CONSTRAINT obstacle CHECK (ROW(n, n)::app.t IS NOT NULL)",
        "ALTER TABLE app.n DROP CONSTRAINT obstacle",
        "obstacle",
    ),
    (
        "ALTER TABLE app.n ADD obstacle boolean DEFAULT (ROW(1, 1)::app.t IS NULL)",
        "ALTER TABLE app.n DROP obstacle",
        "obstacle",
    ),
    (
        "CREATE DOMAIN app.d AS integer CONSTRAINT obstacle CHECK (ROW(value, value)::app.t IS NOT NULL)",
        "DROP DOMAIN app.d",
        "obstacle",
    ),
    ("CREATE POLICY obstacle ON app.n USING (ROW(n, n)::app.t IS NULL)", "DROP POLICY obstacle ON app.n", "obstacle"),
    ("CREATE STATISTICS app.obstacle ON (ROW(n, n)::app.t), n FROM app.n", "DROP STATISTICS app.obstacle", "obstacle"),
    (
        "CREATE TABLE app.obstacle (n integer) PARTITION BY LIST ((ROW(n, n)::app.t))",
        "DROP TABLE app.obstacle",
        "obstacle",
    ),
    (
        "CREATE MATERIALIZED VIEW app.obstacle AS SELECT NULL::app.t AS x",
        "DROP MATERIALIZED VIEW app.obstacle",
        "obstacle",
    ),
];

/// On the column itself, on one that refers to it, and on one that inherits from it, which would be
/// widened with it.
#[test]
fn what_depends_on_the_columns_type_is_named_and_may_be_removed() {
    let tables = "CREATE TABLE app.n (n integer);
        CREATE FUNCTION app.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';";
    for (schema, table) in [
        ("CREATE TABLE app.t (id serial PRIMARY KEY, n integer)", "app.t"),
        (
            "CREATE TABLE app.root (id serial PRIMARY KEY);
             CREATE TABLE app.between (id integer PRIMARY KEY REFERENCES app.root);
             CREATE TABLE app.t (id integer PRIMARY KEY REFERENCES app.between, n integer)",
            "app.root",
        ),
        ("CREATE TABLE app.root (id serial); CREATE TABLE app.t (n integer) INHERITS (app.root)", "app.root"),
    ] {
        let database = Database::with(&format!("{tables}{schema}"));
        let mut session = database.connect();
        let call = format!("'{table}', 'id', rewrite => true");
        for (make, remove, name) in OBSTACLES {
            session.batch_execute(make).unwrap_or_else(|error| panic!("{make}: {error:?}"));
            // Dropping a table would drop its rows.
            let refusal = if make.contains("TABLE app.obstacle") {
                database.refusal(&mut session, &call)
            } else {
                let (refusal, script) = database.obstructed(&mut session, &call);
                let script = script.join("\n");
                session
                    .batch_execute(&format!("BEGIN; {script} {remove}; ROLLBACK"))
                    .unwrap_or_else(|error| panic!("{script}: {error:?}"));
                refusal
            };
            assert!(all(&refusal).contains(name) && refusal.hint.is_some(), "{make}: {refusal:?}");
            session.batch_execute(remove).unwrap();
        }
        converted(&mut session, &call);
    }
}

/// One refusal names everything.
#[test]
fn everything_that_stands_in_the_way_is_named_at_once() {
    let database = Database::with(
        "CREATE TABLE t (id serial PRIMARY KEY);
         CREATE TABLE child (t integer REFERENCES t);
         CREATE VIEW first_view AS SELECT id FROM t;
         CREATE VIEW second_view AS SELECT t FROM child;
         CREATE POLICY third_policy ON child USING (t > 0)",
    );
    let (refusal, _) = database.obstructed(&mut database.connect(), "'t', 'id', true");
    for name in ["first_view", "second_view", "third_policy"] {
        assert!(all(&refusal).contains(name), "{refusal:?}");
    }
}

/// The type of a partition key, or of an inherited column, cannot be changed.
#[test]
fn a_column_whose_type_is_fixed_is_refused_and_its_table_named() {
    for (schema, call, name) in [
        (
            "CREATE TABLE t (id serial PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE t1 PARTITION OF t DEFAULT",
            "'t', 'id', true",
            "table app.t ",
        ),
        ("CREATE TABLE t (id serial, n integer) PARTITION BY RANGE ((id + 1))", "'t', 'id', true", "table app.t "),
        (
            "CREATE TABLE t (id serial PRIMARY KEY); CREATE TABLE child (t integer REFERENCES t) PARTITION BY LIST (t)",
            "'t', 'id', true",
            "app.child",
        ),
        (
            "CREATE TABLE t (id serial PRIMARY KEY); CREATE TABLE a (t integer REFERENCES t); CREATE TABLE b (t integer);
             CREATE TABLE child () INHERITS (a, b)",
            "'t', 'id', true",
            "app.child",
        ),
        (
            "CREATE TABLE t (id serial PRIMARY KEY); CREATE TYPE of AS (t integer);
             CREATE TABLE child OF of; ALTER TABLE child ADD FOREIGN KEY (t) REFERENCES t",
            "'t', 'id', true",
            "app.child",
        ),
        (
            "CREATE TABLE t (id serial PRIMARY KEY); CREATE DOMAIN number AS integer CHECK (value > 0);
             CREATE TABLE child (t number REFERENCES t)",
            "'t', 'id', true",
            "app.child",
        ),
    ] {
        let database = Database::with(schema);
        let refusal = database.refusal(&mut database.connect(), call);
        assert!(all(&refusal).contains(name), "{schema}: {refusal:?}");
    }
}

/// With or without `rewrite`: no rewrite widens a partition key.
#[test]
fn a_partitioned_table_whose_key_is_too_narrow_is_refused_for_that_reason_alone() {
    for (partitions, key) in [
        ("PARTITION BY RANGE (id); CREATE TABLE t1 PARTITION OF t DEFAULT", "table app.t "),
        (
            "PARTITION BY LIST (id); CREATE TABLE t1 PARTITION OF t DEFAULT PARTITION BY LIST (id);
             CREATE TABLE t2 PARTITION OF t1 DEFAULT",
            "table app.t ",
        ),
        (
            "PARTITION BY LIST (id); CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1); CREATE TABLE t2 PARTITION OF t DEFAULT",
            "table app.t ",
        ),
    ] {
        let database = Database::with(&format!("CREATE TABLE t (id serial PRIMARY KEY) {partitions}"));
        let mut session = database.connect();
        for call in ["'t', 'id'", "'t', 'id', true"] {
            let refusal = database.refusal(&mut session, call);
            assert_eq!(refusal.sqlstate, "42P16", "{partitions} {call}: {refusal:?}");
            assert!(all(&refusal).contains(key), "{partitions} {call}: {refusal:?}");
            assert!(!all(&refusal).contains("To be widened"), "{partitions} {call}: {refusal:?}");
            let hint = refusal.hint.as_deref().unwrap_or_default();
            assert!(hint.starts_with("Create a new table"), "{partitions} {call}: {refusal:?}");
        }
    }
}

#[test]
fn only_a_table_of_ones_own_kind_can_be_converted() {
    let database = Database::with(
        "CREATE TABLE t (id bigserial PRIMARY KEY, day date) ;
         CREATE INDEX i ON t (id);
         CREATE VIEW v AS SELECT id FROM t;
         CREATE MATERIALIZED VIEW m AS SELECT id FROM t;
         CREATE TYPE c AS (id bigint);
         CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE f (id bigint) SERVER s",
    );
    let mut session = database.connect();
    for relation in ["i", "v", "m", "c", "f", "t_id_seq"] {
        let column = if relation == "t_id_seq" { "last_value" } else { "id" };
        let refusal = database.refusal(&mut session, &format!("'{relation}', '{column}'"));
        assert_eq!(refusal.sqlstate, "42809", "{relation}: {refusal:?}");
        assert!(refusal.message.contains(&format!("app.{relation} ")), "{refusal:?}");
    }
    let refusal = database.refusal(&mut session, "12345, 'id'");
    assert_eq!(refusal.sqlstate, "42P01", "{refusal:?}");
}

#[test]
fn a_catalog_of_postgresql_is_not_a_table_of_ones_own() {
    let database = Database::with("");
    let mut session = database.connect();
    for call in [
        "'pg_largeobject', 'pageno', true",
        "'pg_statistic', 'staattnum', true",
        "'pg_class', 'relpages', true",
        "'information_schema.sql_features', 'feature_id'",
        "(SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'pg_proc'), 'chunk_seq', true",
    ] {
        database.refusal(&mut session, call);
    }
}

/// The default of a column that refers to another could only draw values that do not exist there.
/// An integer column is widened together with the column that it refers to.
#[test]
fn a_column_that_refers_to_another_is_refused_and_that_table_is_named() {
    let database = Database::with(
        "CREATE TABLE t (id bigserial PRIMARY KEY, part integer DEFAULT 0, UNIQUE (id, part));
         CREATE TABLE one (id bigserial PRIMARY KEY REFERENCES t);
         CREATE TABLE two (part integer, id bigint, FOREIGN KEY (part, id) REFERENCES t (part, id));
         CREATE TABLE unchecked (id bigint); ALTER TABLE unchecked ADD FOREIGN KEY (id) REFERENCES t NOT VALID;
         CREATE TABLE narrow (id serial PRIMARY KEY REFERENCES t);
         CREATE TABLE whole (id bigint, part integer) PARTITION BY LIST (part);
         CREATE TABLE half PARTITION OF whole DEFAULT; ALTER TABLE half ADD FOREIGN KEY (id) REFERENCES t;
         CREATE TABLE parent (id bigint); CREATE TABLE child () INHERITS (parent); ALTER TABLE child ADD FOREIGN KEY (id) REFERENCES t;
         CREATE TABLE own (id bigserial PRIMARY KEY REFERENCES own, part integer, up bigint REFERENCES own)",
    );
    let mut session = database.connect();
    for (table, at) in [
        ("one", "one"),
        ("two", "two"),
        ("unchecked", "unchecked"),
        ("narrow", "narrow"),
        ("whole", "half"),
        ("parent", "child"),
    ] {
        for call in [format!("'{table}', 'id', true"), format!("ARRAY['t.id', '{table}.id'], true")] {
            let refusal = database.refusal(&mut session, &call);
            assert_eq!(refusal.sqlstate, "42P16", "{call}: {refusal:?}");
            assert_eq!(refusal.message, format!("column \"id\" of table app.{at} refers to app.t"));
            assert!(refusal.hint.is_some_and(|hint| hint.contains("app.t")));
        }
    }
    let refusal = database.refusal(&mut session, "'own', 'up'");
    assert_eq!(refusal.message, "column \"up\" of table app.own refers to app.own");
    // Each row refers to itself.
    converted(&mut session, "'own', 'id'");
    session.batch_execute("INSERT INTO own DEFAULT VALUES").unwrap();
}

/// Each in a table by itself: how it is made, and how it is removed.
const CONSTRAINTS: [(&str, &str); 9] = [
    ("CREATE TABLE t (id serial CONSTRAINT short CHECK (id < 2147483648))", "ALTER TABLE t DROP CONSTRAINT short"),
    (
        "CREATE TABLE t (id bigserial); ALTER TABLE t ADD CONSTRAINT short CHECK (id < 1000) NOT VALID",
        "ALTER TABLE t DROP CONSTRAINT short",
    ),
    (
        "CREATE TABLE t (id serial, CONSTRAINT short CHECK (id IN (1, 2)) NO INHERIT); CREATE TABLE child () INHERITS (t)",
        "ALTER TABLE t DROP CONSTRAINT short",
    ),
    // An error in place of an answer.
    ("CREATE TABLE t (id bigserial, CONSTRAINT short CHECK (id::integer > 0))", "ALTER TABLE t DROP CONSTRAINT short"),
    (
        "CREATE DOMAIN number AS bigint CONSTRAINT short CHECK (value < 1000);
         CREATE TABLE t (id number DEFAULT 3)",
        "ALTER DOMAIN number DROP CONSTRAINT short",
    ),
    (
        "CREATE TABLE t (id serial); CREATE TABLE child (CONSTRAINT short CHECK (id < 1000)) INHERITS (t)",
        "ALTER TABLE child DROP CONSTRAINT short",
    ),
    (
        "CREATE TABLE t (id serial, day date) PARTITION BY LIST (day);
         CREATE TABLE t1 PARTITION OF t (CONSTRAINT short CHECK (id < 1000)) DEFAULT",
        "ALTER TABLE t1 DROP CONSTRAINT short",
    ),
    (
        "CREATE TABLE t (id bigserial) PARTITION BY RANGE (id);
         CREATE TABLE t1 PARTITION OF t (CONSTRAINT fits CHECK (id < 1000)) FOR VALUES FROM (0) TO (1000);
         CREATE TABLE t2 PARTITION OF t (CONSTRAINT short CHECK (id < 2000)) FOR VALUES FROM (1000) TO (MAXVALUE)",
        "ALTER TABLE t2 DROP CONSTRAINT short",
    ),
    (
        "CREATE TABLE t (id bigserial, \"the id\" integer); ALTER TABLE t DROP id;
         ALTER TABLE t RENAME \"the id\" TO id; ALTER TABLE t ADD CONSTRAINT short CHECK (abs(id) % 7 = 8)",
        "ALTER TABLE t DROP CONSTRAINT short",
    ),
];

#[test]
fn a_check_constraint_that_no_id_satisfies_is_refused_and_named() {
    for (schema, remove) in CONSTRAINTS {
        let database = Database::with(schema);
        let mut session = database.connect();
        let refusal = database.refusal(&mut session, "'t', 'id', true");
        assert_eq!(refusal.sqlstate, "42P16", "{schema}: {refusal:?}");
        assert!(refusal.message.contains("would violate check constraint \"short\""), "{schema}: {refusal:?}");
        session.batch_execute(remove).unwrap();
        converted(&mut session, "'t', 'id', true");
        session.batch_execute("INSERT INTO t DEFAULT VALUES").unwrap_or_else(|error| panic!("{schema}: {error:?}"));
    }
}

/// Such a constraint may be right, for example in a table that refers to few of the keys.
#[test]
fn a_check_constraint_that_may_permit_ids_is_no_obstacle() {
    let database = Database::with(
        "CREATE FUNCTION elsewhere(id bigint) RETURNS boolean LANGUAGE plpgsql AS
             $$BEGIN IF id > 10000 THEN RETURN app.nowhere(id); END IF; RETURN true; END$$;
         CREATE TABLE t (id serial PRIMARY KEY, n integer, CONSTRAINT two CHECK (id <> n),
             CONSTRAINT failing CHECK (elsewhere(id)));
         CREATE TABLE silent (id serial PRIMARY KEY, n integer, CHECK (id > 0), CHECK (n > 0), CHECK (NULL OR id < 0));
         CREATE TABLE child (t integer REFERENCES t CONSTRAINT few CHECK (t < 1000), silent integer REFERENCES silent)",
    );
    let (mut session, heard) = database.connect_and_listen();
    for (table, warnings) in [("t", 1), ("silent", 0)] {
        converted(&mut session, &format!("'{table}', 'id', true"));
        let mut heard = heard.lock().unwrap();
        let count = heard.iter().filter(|said| *said == "WARNING: check constraints may not permit new values").count();
        assert_eq!(count, warnings, "{table}: {heard:?}");
        heard.clear();
    }
}

/// As PostgreSQL treats the functions of an index: these may be the owner's, and the caller a
/// superuser.
#[test]
fn a_check_constraint_is_evaluated_as_the_owner_who_gains_nothing() {
    let database = Database::with("");
    let owner = database.role("owner");
    database.run(&format!(
        "SET ROLE {owner}; SET search_path = app;
         CREATE TABLE seen (who text);
         CREATE FUNCTION spy(id bigint) RETURNS boolean LANGUAGE plpgsql AS $$
             BEGIN
                 INSERT INTO app.seen VALUES (current_user);
                 RAISE NOTICE 'runs as % in %', current_user, current_setting('search_path');
                 RESET ROLE;
                 RETURN true;
             EXCEPTION WHEN insufficient_privilege THEN
                 RAISE NOTICE '%', SQLERRM;
                 INSERT INTO app.seen VALUES (current_user);
                 RETURN true;
             END$$;
         CREATE TABLE t (id bigserial, CHECK (spy(id)))"
    ));
    let (mut session, heard) = database.connect_and_listen();
    for call in ["'t', 'id', dry_run => true", "'t', 'id'"] {
        converted(&mut session, call);
        let mut heard = heard.lock().unwrap();
        let mut said: Vec<_> = heard.drain(..).filter(|said| said.starts_with("NOTICE")).collect();
        said.dedup();
        assert_eq!(
            said[..2],
            [
                format!("NOTICE: runs as {owner} in pg_catalog, pg_temp"),
                "NOTICE: cannot set parameter \"role\" within security-restricted operation".to_owned(),
            ],
            "{call}"
        );
        assert_eq!(session.value("SELECT count(*) FROM seen"), "0", "{call}");
        assert_eq!(
            session.value("SELECT current_user || ' ' || current_setting('search_path')"),
            "postgres app,public"
        );
    }
}

/// That it is cancelled says nothing about the constraint.
#[test]
fn a_cancelled_check_of_a_constraint_ends_the_call() {
    let database = Database::with(
        "CREATE FUNCTION slow(id bigint) RETURNS boolean LANGUAGE sql AS 'SELECT pg_sleep(30) IS NOT NULL';
         CREATE TABLE t (id bigint, CHECK (slow(id)))",
    );
    let mut session = database.connect();
    session.batch_execute("SET statement_timeout = '200ms'").unwrap();
    let refusal = refused(convert(&mut session, "'t', 'id'"));
    assert_eq!(refusal.sqlstate, "57014", "{refusal:?}");
    assert_eq!(session.value("SELECT current_user"), "postgres");
}

/// A partition is converted with its table.
#[test]
fn a_part_is_refused_and_the_whole_is_named() {
    let database = Database::with(
        "CREATE TABLE whole (id bigserial, day date) PARTITION BY LIST (day);
         CREATE TABLE half PARTITION OF whole DEFAULT PARTITION BY LIST (day);
         CREATE TABLE quarter PARTITION OF half DEFAULT;
         CREATE TABLE parent (id serial); CREATE TABLE child () INHERITS (parent)",
    );
    let mut session = database.connect();
    for (call, whole) in [("'half', 'id'", "whole"), ("'quarter', 'id'", "whole"), ("'child', 'id', true", "parent")] {
        let refusal = database.refusal(&mut session, call);
        assert!(all(&refusal).contains(&format!("app.{whole}")), "{refusal:?}");
    }
}

#[test]
fn a_column_must_be_there_and_of_an_integer_type() {
    let database = Database::with(
        "CREATE DOMAIN number AS integer CHECK (value > 0);
         CREATE TABLE t (id bigserial, gone integer, n numeric, u uuid, x text, d number, a bigint[], o oid, f float8,
             g bigint GENERATED ALWAYS AS (7) STORED);
         ALTER TABLE t DROP gone",
    );
    let mut session = database.connect();
    for column in ["nothing", "", "ID", "gone", "........pg.dropped.2........"] {
        let refusal = database.refusal(&mut session, &format!("'t', '{column}', true"));
        assert_eq!(refusal.sqlstate, "42703", "{column}: {refusal:?}");
    }
    for column in ["n", "u", "x", "d", "a", "o", "f", "g", "ctid", "tableoid", "xmin"] {
        let refusal = database.refusal(&mut session, &format!("'t', '{column}', true"));
        assert!(refusal.message.contains(&format!("\"{column}\"")), "{refusal:?}");
    }
    let refusal = database.refusal(&mut session, "'t', 'd', true");
    assert!(refusal.hint.is_some(), "{refusal:?}");
}

/// Not even until the refusal: the tables are in use, and all other sessions would queue behind a
/// request for a lock.
#[test]
fn who_does_not_own_the_table_is_refused_at_once() {
    let database = Database::with("");
    let (owner, other) = (database.role("owner"), database.role("other"));
    database.run(&format!(
        "CREATE TABLE app.mine (id serial PRIMARY KEY);
         CREATE TABLE app.theirs (mine integer REFERENCES app.mine, id serial, wide bigserial);
         ALTER TABLE app.mine OWNER TO {owner}; ALTER TABLE app.theirs OWNER TO {other};
         GRANT ALL ON app.mine, app.theirs TO {owner}, {other}"
    ));
    let mut user = database.connect();
    user.batch_execute("BEGIN; SELECT FROM mine, theirs").unwrap();
    for (who, call, whose) in [
        (&other, "'mine', 'id', true", "mine"),
        (&owner, "'theirs', 'id', true", "theirs"),
        (&owner, "'theirs', 'wide', false", "theirs"),
    ] {
        let mut session = database.connect_as(who);
        session.batch_execute("SET lock_timeout = '10s'").unwrap();
        for dry_run in ["false", "true"] {
            let refusal = refused(convert(&mut session, &format!("{call}, {dry_run}")));
            assert_eq!(refusal.sqlstate, "42501", "{refusal:?}");
            assert_eq!(refusal.message, format!("must be owner of table app.{whose}"));
        }
    }
    user.batch_execute("COMMIT").unwrap();
    // Another role owns the table that refers to it.
    let mut session = database.connect_as(&owner);
    let refusal = database.refusal(&mut session, "'mine', 'id', true");
    assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), ("42501", "must be owner of table app.theirs"));
    database.run("ALTER TABLE theirs ALTER mine TYPE bigint");
    session.batch_execute("SET lock_timeout = 0").unwrap();
    converted(&mut session, "'mine', 'id', true");
}

/// This includes tables that are altered only because of another: its partitions, and tables whose
/// foreign key is made anew.
#[test]
fn who_does_not_own_all_that_changes_is_refused_at_once() {
    for schema in [
        "CREATE TABLE t (id bigserial, d integer) PARTITION BY LIST (d); CREATE TABLE theirs PARTITION OF t DEFAULT",
        "CREATE TABLE t (id bigserial, d integer) PARTITION BY LIST (d);
             CREATE TABLE half PARTITION OF t DEFAULT PARTITION BY LIST (d);
             CREATE TABLE theirs PARTITION OF half DEFAULT",
        "CREATE TABLE t (id bigserial); CREATE TABLE theirs () INHERITS (t)",
        "CREATE TABLE t (id serial); CREATE TABLE theirs () INHERITS (t)",
        "CREATE TABLE t (id serial, d integer, PRIMARY KEY (id, d)) PARTITION BY LIST (d);
             CREATE TABLE part PARTITION OF t DEFAULT;
             CREATE TABLE theirs (id bigint, d integer, FOREIGN KEY (id, d) REFERENCES part)",
    ] {
        let database = Database::with(schema);
        let (owner, other) = (database.role("owner"), database.role("other"));
        database.run(&format!(
            "DO $$BEGIN EXECUTE (SELECT string_agg(format('ALTER TABLE %s OWNER TO %I', oid::regclass,
                                                          CASE relname WHEN 'theirs' THEN '{other}' ELSE '{owner}' END), ';' ORDER BY oid)
                                 FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'app'::regnamespace);
             END$$;
             GRANT ALL ON ALL TABLES IN SCHEMA app TO {owner}"
        ));
        let mut session = database.connect_as(&owner);
        let mut user = database.connect();
        user.batch_execute("BEGIN; SELECT FROM t, theirs").unwrap();
        session.batch_execute("SET lock_timeout = '10s'").unwrap();
        let refusal = database.refusal(&mut session, "'t', 'id', true");
        assert_eq!(refusal.sqlstate, "42501", "{schema}: {refusal:?}");
        assert_eq!(refusal.message, "must be owner of table app.theirs", "{schema}");
        user.batch_execute("COMMIT").unwrap();
        database.run(&format!("GRANT {other} TO {owner}"));
        converted(&mut session, "'t', 'id', true");
    }
}

/// PostgreSQL makes the foreign key anew itself, and requires at most the right to refer.
#[test]
fn a_foreign_key_of_somebody_elses_bigint_column_is_no_obstacle() {
    let database = Database::with(
        "CREATE TABLE app.t (id serial PRIMARY KEY); CREATE TABLE app.theirs (t bigint REFERENCES app.t)",
    );
    let (owner, other) = (database.role("owner"), database.role("other"));
    database.run(&format!("ALTER TABLE app.t OWNER TO {owner}; ALTER TABLE app.theirs OWNER TO {other}"));
    converted(&mut database.connect_as(&owner), "'t', 'id', true");
}

/// Ownership counts as in PostgreSQL, through membership in the owning role.
#[test]
fn a_member_of_the_owning_role_may_convert() {
    let database = Database::with("CREATE TABLE app.t (id bigserial)");
    let [owner, member, passive] = ["owner", "member", "passive"].map(|name| database.role(name));
    database.run(&format!(
        "ALTER TABLE app.t OWNER TO {owner};
         GRANT {owner} TO {member}; ALTER ROLE {passive} NOINHERIT; GRANT {owner} TO {passive}"
    ));
    let mut session = database.connect_as(&passive);
    assert_eq!(database.refusal(&mut session, "'t', 'id'").message, "must be owner of table app.t");
    session.batch_execute(&format!("SET ROLE {owner}")).unwrap();
    converted(&mut session, "'t', 'id', dry_run => true");
    converted(&mut database.connect_as(&member), "'t', 'id'");
    // The roles that insert own nothing.
    database.run(&format!("GRANT INSERT ON t TO {passive}"));
    database.connect_as(&passive).batch_execute("INSERT INTO t DEFAULT VALUES").unwrap();
}

/// Where functions are not PUBLIC's, each role that inserts needs one right, which the page names.
#[test]
fn a_role_that_inserts_needs_only_the_right_to_execute_what_the_default_calls() {
    let database = Database::with(
        "CREATE TABLE app.t (id bigserial PRIMARY KEY, n integer);
         REVOKE ALL ON SCHEMA public, snowflake_plan FROM PUBLIC;
         REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public, snowflake_plan FROM PUBLIC;
         REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC; REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM PUBLIC",
    );
    let writer = database.role("writer");
    database.run(&format!("GRANT INSERT ON app.t TO {writer}; GRANT USAGE ON SEQUENCE app.t_id_seq TO {writer}"));
    let mut session = database.connect_as(&writer);
    let insert = "INSERT INTO app.t (n) VALUES (1)";
    session.batch_execute(insert).unwrap();
    converted(&mut database.connect(), "'app.t', 'id'");
    let refusal = refused(session.batch_execute(insert));
    let wanted = ("42501", "permission denied for function snowflake_next");
    assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), wanted);
    let grant = "GRANT EXECUTE ON FUNCTION snowflake_next() TO writer";
    assert!(is_shown(grant));
    database.run(&grant.replace("writer", &writer));
    session.batch_execute(insert).unwrap();
}

#[test]
fn what_is_in_use_by_the_same_session_is_refused() {
    let database = Database::with(
        "CREATE TABLE t (id serial PRIMARY KEY);
         CREATE TABLE child (t integer REFERENCES t DEFERRABLE INITIALLY DEFERRED);
         INSERT INTO t VALUES (1), (2)",
    );
    let mut session = database.connect();
    for (beginning, call) in [
        ("BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; FETCH c", "SELECT snowflake_convert('t', 'id', true)"),
        ("BEGIN; INSERT INTO child VALUES (1)", "SELECT snowflake_convert('t', 'id', true)"),
        ("BEGIN", "SELECT snowflake_convert('t', 'id', true) FROM t"),
    ] {
        session.batch_execute(beginning).unwrap();
        let refusal = refused(session.batch_execute(call));
        assert_eq!(refusal.sqlstate, "55006", "{beginning}; {call}: {refusal:?}");
        session.batch_execute("ROLLBACK").unwrap();
    }
    converted(&mut session, "'t', 'id', true");
}

#[test]
fn an_event_trigger_that_objects_is_heeded() {
    let database = Database::with(
        "CREATE TABLE t (id serial PRIMARY KEY); CREATE TABLE child (t integer REFERENCES t);
         CREATE FUNCTION object() RETURNS event_trigger LANGUAGE plpgsql AS
             $$BEGIN RAISE EXCEPTION 'not today'; END$$",
    );
    let mut session = database.connect();
    for event in ["ddl_command_start", "ddl_command_end", "table_rewrite", "sql_drop"] {
        session.batch_execute(&format!("CREATE EVENT TRIGGER e ON {event} EXECUTE FUNCTION object()")).unwrap();
        let before = catalogs(&mut session);
        // The SQLSTATE is not compared: pgrx turns one that it does not know into XX000.
        assert_eq!(refused(convert(&mut session, "'t', 'id', true")).message, "not today", "{event}");
        assert_eq!(before, catalogs(&mut session), "{event}");
        session.batch_execute("DROP EVENT TRIGGER e").unwrap();
    }
    converted(&mut session, "'t', 'id', true");
}

const TABLE: &str = "CREATE TABLE t (id bigserial PRIMARY KEY)";

/// Asserts that a server that cannot draw refuses to convert for the same reason.
#[track_caller]
fn assert_refused_as_drawing_is(server: &Server) {
    let mut session = server.connect();
    session.batch_execute(TABLE).unwrap();
    let reason = refused(session.try_draw());
    // The refused call holds no lock.
    let mut user = server.connect();
    user.batch_execute("BEGIN; SELECT FROM t").unwrap();
    session.batch_execute("SET lock_timeout = '10s'").unwrap();
    for call in ["'t', 'id'", "'t', 'id', dry_run => true"] {
        let refusal = refused(convert(&mut session, call));
        assert_eq!((&refusal.sqlstate, &refusal.hint), (&reason.sqlstate, &reason.hint), "{refusal:?}");
    }
    assert_eq!(session.ids("INSERT INTO t DEFAULT VALUES RETURNING id").unwrap(), [1]);
}

#[test]
fn a_server_without_a_number_converts_nothing() {
    assert_refused_as_drawing_is(&Server::builder().start_with_extension());
}

#[test]
fn a_server_without_preload_converts_nothing() {
    assert_refused_as_drawing_is(&Server::builder().without_preload().start_with_extension());
}

#[test]
fn a_server_whose_layout_is_used_up_converts_nothing() {
    assert_refused_as_drawing_is(&Server::drawing().set("layout", "baidu").start_with_extension());
}

#[test]
fn a_server_with_another_layout_than_the_databases_converts_nothing() {
    let server = Server::drawing().start_with_extension();
    server.connect().draw();
    server.set_config("snowflake_id.layout", "leaf");
    server.restart();
    assert_refused_as_drawing_is(&server);
}

#[test]
fn a_clock_that_was_set_back_converts_nothing() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    server.connect().draw();
    server.freeze_clock(noon() - 3_600_000);
    let mut session = server.connect();
    session.batch_execute(TABLE).unwrap();
    assert_eq!(refused(convert(&mut session, "'t', 'id'")).sqlstate, "58000");
    assert_eq!(session.ids("INSERT INTO t DEFAULT VALUES RETURNING id").unwrap(), [1]);
}

#[test]
fn nothing_is_converted_where_nothing_may_be_written() {
    let server = Server::drawing().start_with_extension();
    server.connect().batch_execute(TABLE).unwrap();
    let mut session = server.connect();
    session.batch_execute("BEGIN READ ONLY").unwrap();
    assert_eq!(refused(convert(&mut session, "'t', 'id'")).sqlstate, "25006");
    let standby = server.standby().start();
    assert_eq!(refused(convert(&mut standby.connect(), "'t', 'id'")).sqlstate, "25006");
}
