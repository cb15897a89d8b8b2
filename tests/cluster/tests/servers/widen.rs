//! `snowflake_widen`: an integer column, and all that refer to it, become bigint while sessions use
//! the tables. The database is afterwards what it would be if it had been written so, but for the
//! places of the widened columns.
//!
//! A schema is written once, with each change in braces, as in `convert.rs`.

use std::cell::Cell;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use cluster::{Draw, Ends, Server, postgres_version, refused, wait_until};
use postgres::Client;

use crate::convert::any_schema;
use crate::convert::database::{Database, assert_same, catalogs, side};
use crate::random::Random;

/// The place of each object that a widened column can have.
const EVERYTHING: &str = r#"
    CREATE TABLE app.visits ({id serial PRIMARY KEY, -> }page text NOT NULL, part integer DEFAULT 1, wide bigint
        {-> , id bigserial PRIMARY KEY});
    ALTER TABLE app.visits ADD UNIQUE (part, id);
    CREATE INDEX visits_page ON app.visits (page, id DESC) INCLUDE (part) WITH (fillfactor = 70) WHERE id > 5 AND page <> 'id';
    CREATE INDEX visits_expression ON app.visits ((id % 10), page text_pattern_ops);
    CREATE INDEX visits_brin ON app.visits USING brin (id {int4_minmax_multi_ops -> int8_minmax_multi_ops} (values_per_range = 8));
    CREATE INDEX visits_hash ON app.visits USING hash (id);
    ALTER TABLE app.visits ADD CONSTRAINT positive CHECK (id > 0 AND page <> '"id"');
    ALTER TABLE app.visits ADD CONSTRAINT unchecked CHECK (id <> 7777) NO INHERIT NOT VALID;
    COMMENT ON COLUMN app.visits.id IS 'the key';
    COMMENT ON INDEX app.visits_page IS 'of pages';
    COMMENT ON CONSTRAINT positive ON app.visits IS 'not negative';
    COMMENT ON CONSTRAINT visits_pkey ON app.visits IS 'the constraint';
    ALTER TABLE app.visits ADD CONSTRAINT apart EXCLUDE USING hash (id WITH =) WHERE (id > 3) DEFERRABLE;
    COMMENT ON CONSTRAINT apart ON app.visits IS 'excludes';
    ALTER TABLE app.visits ADD CONSTRAINT placed UNIQUE (id, wide) DEFERRABLE INITIALLY DEFERRED;
    COMMENT ON CONSTRAINT placed ON app.visits IS 'later';
    CREATE STATISTICS app.related (ndistinct) ON id, page FROM app.visits;
    COMMENT ON STATISTICS app.related IS 'both';
    ALTER TABLE app.visits CLUSTER ON visits_part_id_key;
    ALTER TABLE app.visits REPLICA IDENTITY USING INDEX visits_pkey;
    ALTER TABLE app.visits ALTER id SET STATISTICS 500, ALTER id SET (n_distinct = -1);
    ALTER INDEX app.visits_expression ALTER COLUMN 1 SET STATISTICS 300;

    CREATE TABLE app.clicks (number bigserial PRIMARY KEY, {visit integer NOT NULL, -> }{"Other" integer DEFAULT 3, -> }part integer
        {-> , visit bigint NOT NULL}{-> , "Other" bigint DEFAULT 3});
    ALTER TABLE app.clicks ADD FOREIGN KEY (visit) REFERENCES app.visits ON DELETE CASCADE;
    ALTER TABLE app.clicks ADD FOREIGN KEY ("Other") REFERENCES app.visits ON DELETE SET DEFAULT DEFERRABLE INITIALLY DEFERRED;
    ALTER TABLE app.clicks ADD CONSTRAINT both_of_them FOREIGN KEY (part, "Other") REFERENCES app.visits (part, id)
        MATCH FULL ON UPDATE CASCADE ON DELETE SET NULL NOT VALID;
    COMMENT ON CONSTRAINT both_of_them ON app.clicks IS 'two columns';
    CREATE UNIQUE INDEX clicks_once ON app.clicks (visit, number) NULLS NOT DISTINCT;
    CREATE TABLE app.same (id {integer -> bigint} PRIMARY KEY);
    ALTER TABLE app.same ADD FOREIGN KEY (id) REFERENCES app.visits;
    CREATE TABLE app.broad (visit bigint REFERENCES app.visits ON DELETE SET NULL, note text);

    CREATE TABLE app.tree ({id integer GENERATED ALWAYS AS IDENTITY (START 5 INCREMENT 2 CACHE 3) PRIMARY KEY, -> }
        {up smallint, -> }label text
        {-> , id bigint GENERATED ALWAYS AS IDENTITY (START 5 INCREMENT 2 CACHE 3) PRIMARY KEY}{-> , up bigint});
    ALTER TABLE app.tree ADD FOREIGN KEY (up) REFERENCES app.tree ON UPDATE CASCADE ON DELETE SET NULL;
    COMMENT ON SEQUENCE app.tree_id_seq IS 'counts';
    CREATE TABLE app.drawn (id bigint DEFAULT nextval('app.tree_id_seq'));
    CREATE VIEW app.counted AS SELECT last_value FROM app.tree_id_seq;
    CREATE TABLE app.deferring (tree {integer -> bigint});
    ALTER TABLE app.deferring ADD FOREIGN KEY (tree) REFERENCES app.tree DEFERRABLE;

    CREATE VIEW app.home AS SELECT id FROM app.visits WHERE page = 'home';
    CREATE VIEW app.homes WITH (security_barrier) AS SELECT id, count(*) FROM app.home GROUP BY id;
    COMMENT ON VIEW app.homes IS 'how many';
    CREATE MATERIALIZED VIEW app.kept AS SELECT id + 1 AS next, page FROM app.visits;
    CREATE UNIQUE INDEX kept_next ON app.kept (next);
    CREATE RULE quiet AS ON DELETE TO app.visits WHERE OLD.id = 4444 DO ALSO NOTHING;
    ALTER TABLE app.visits ENABLE ROW LEVEL SECURITY;
    CREATE POLICY only_some ON app.visits FOR SELECT USING (id > 0);
    CREATE FUNCTION app.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
    CREATE TRIGGER on_id BEFORE UPDATE OF id ON app.visits FOR EACH ROW WHEN (NEW.id > 3) EXECUTE FUNCTION app.nothing();
    CREATE TRIGGER "~~" BEFORE UPDATE OF page ON app.visits FOR EACH ROW EXECUTE FUNCTION app.nothing();
    CREATE TRIGGER on_insert BEFORE INSERT ON app.visits FOR EACH ROW EXECUTE FUNCTION app.nothing();
    CREATE PUBLICATION sent FOR TABLE app.visits (id, page) WHERE (id > 2);
    GRANT SELECT (id), UPDATE (id) ON app.visits TO pg_monitor WITH GRANT OPTION;
    GRANT SELECT ON app.home TO pg_monitor;
    GRANT USAGE ON SEQUENCE app.tree_id_seq TO pg_monitor;

    INSERT INTO app.visits (page, wide) SELECT CASE n % 3 WHEN 0 THEN 'home' ELSE 'id' END, n FROM generate_series(1, 3000) n;
    INSERT INTO app.clicks (visit, "Other", part) SELECT n, n, 1 FROM generate_series(1, 3000) n;
    INSERT INTO app.same SELECT generate_series(2000, 2100);
    INSERT INTO app.broad SELECT generate_series(2000, 2100);
    INSERT INTO app.tree (up, label) VALUES (NULL, 'a'), (5, 'b'), (5, 'c'), (9, 'd');
    REFRESH MATERIALIZED VIEW app.kept;
"#;

/// What PostgreSQL has since version 18. The first row is older than its NOT NULL.
const SINCE_18: &str = "
    CREATE TABLE app.named (id {integer -> bigint} CONSTRAINT present NOT NULL NO INHERIT REFERENCES app.visits);
    COMMENT ON CONSTRAINT present ON app.named IS 'by its name';
    CREATE TABLE app.partly ({id integer -> id bigint}, twice bigint GENERATED ALWAYS AS (id * 2) VIRTUAL);
    INSERT INTO app.named VALUES (3); INSERT INTO app.partly VALUES (NULL), (3);
    ALTER TABLE app.partly ADD CONSTRAINT later NOT NULL id NOT VALID;
    ALTER TABLE app.partly ADD CONSTRAINT loose CHECK (id > 5) NOT ENFORCED, ADD FOREIGN KEY (id) REFERENCES app.visits NOT ENFORCED;
    COMMENT ON CONSTRAINT later ON app.partly IS 'not of the first row';
";

struct Step {
    phase: String,
    statement: String,
}

thread_local! {
    /// What a lie writes in place of what into each statement, and whether it has.
    static LIE: Cell<Option<(&'static str, &'static str)>> = const { Cell::new(None) };
    static HAS_LIED: Cell<bool> = const { Cell::new(false) };
}

/// Calls `snowflake_widen` or `snowflake_widen_back`; the steps without the notes.
#[track_caller]
fn steps(session: &mut Client, call: &str) -> Vec<Step> {
    let rows = session.query(&format!("SELECT phase, statement FROM {call} WHERE statement IS NOT NULL"), &[]);
    let rows = rows.unwrap_or_else(|error| panic!("{call}: {error:?}"));
    let told = |statement: String| match LIE.get() {
        Some((truth, lie)) if statement.contains(truth) => {
            HAS_LIED.set(true);
            statement.replace(truth, lie)
        }
        _ => statement,
    };
    rows.iter().map(|row| Step { phase: row.get(0), statement: told(row.get(1)) }).collect()
}

/// Runs statements, each by itself.
#[track_caller]
fn run(session: &mut Client, steps: &[Step]) {
    for Step { phase, statement } in steps {
        assert!(statement.ends_with(';'), "{statement}");
        if let Err(error) = session.batch_execute(statement) {
            panic!("{phase}: {statement}\n{error:?}");
        }
    }
}

/// The column beside a table's column of that number, as the first call names it.
#[track_caller]
fn beside(session: &mut Client, table: &str, number: usize) -> String {
    session.value(&format!("SELECT concat('snowflake_widen_', '{table}'::regclass::oid, '_', {number})"))
}

fn in_phases<'a>(steps: &'a [Step], phases: &'a [&str]) -> impl Iterator<Item = &'a Step> {
    steps.iter().filter(|step| phases.contains(&step.phase.as_str()))
}

/// Runs the statements of some phases.
#[track_caller]
fn run_phases(session: &mut Client, steps: &[Step], phases: &[&str]) {
    for step in in_phases(steps, phases) {
        run(session, std::slice::from_ref(step));
    }
}

/// A dump with the rows of each table in order, because the fill moves them.
fn in_order(dump: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut first_row = None;
    for line in dump.lines() {
        if line == "\\." {
            lines[first_row.take().expect("rows follow COPY")..].sort_unstable();
        }
        lines.push(line);
        if line.starts_with("COPY ") {
            first_row = Some(lines.len());
        }
    }
    lines.join("\n")
}

/// Partitioned tables that refer, and are referred to. One partition has its columns in another
/// order, objects of its own, and partitions of its own.
const PARTITIONS: &str = "
    CREATE TABLE app.parts (part integer, {id serial, -> }gone integer, page text{-> , id bigserial}) PARTITION BY LIST (part);
    CREATE TABLE app.parts_0 PARTITION OF app.parts FOR VALUES IN (0);
    CREATE TABLE app.parts_1 (was integer, {id integer NOT NULL DEFAULT nextval('app.parts_id_seq'), -> }page text, gone integer, part integer
        {-> , id bigint NOT NULL DEFAULT nextval('app.parts_id_seq')});
    ALTER TABLE app.parts_1 DROP COLUMN was;
    ALTER TABLE app.parts ATTACH PARTITION app.parts_1 FOR VALUES IN (1);
    CREATE TABLE app.parts_2 PARTITION OF app.parts DEFAULT PARTITION BY LIST (part);
    CREATE TABLE app.parts_2a PARTITION OF app.parts_2 FOR VALUES IN (2);
    CREATE TABLE app.parts_2b PARTITION OF app.parts_2 DEFAULT;
    ALTER TABLE app.parts_2b ALTER id SET DEFAULT 7000;
    ALTER TABLE app.parts ADD PRIMARY KEY (id, part);
    ALTER TABLE app.parts ADD UNIQUE (part, id) DEFERRABLE;
    CREATE INDEX parts_page ON app.parts (page, id);
    CREATE INDEX parts_tenth ON app.parts_1 ((id % 10)) WHERE id > 5;
    ALTER TABLE app.parts ADD CONSTRAINT positive CHECK (id > 0);
    ALTER TABLE app.parts_1 ADD CONSTRAINT of_one CHECK (id <> 77777);
    COMMENT ON COLUMN app.parts.id IS 'of all';
    COMMENT ON INDEX app.parts_page IS 'of pages';
    ALTER TABLE app.parts_1 ALTER id SET STATISTICS 300;
    GRANT SELECT (id) ON app.parts_1 TO pg_monitor;
    CREATE STATISTICS app.related ON id, page FROM app.parts_1;
    CREATE FUNCTION app.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
    CREATE TRIGGER on_id BEFORE UPDATE OF id ON app.parts FOR EACH ROW WHEN (NEW.id > 3) EXECUTE FUNCTION app.nothing();
    CREATE TRIGGER \"~~\" BEFORE INSERT ON app.parts_2a FOR EACH ROW EXECUTE FUNCTION app.nothing();
    CREATE TABLE app.plain (part integer, {id integer, -> }number serial PRIMARY KEY{-> , id bigint});
    ALTER TABLE app.plain ADD FOREIGN KEY (part, id) REFERENCES app.parts (part, id) ON DELETE CASCADE ON UPDATE CASCADE;
    COMMENT ON CONSTRAINT plain_part_id_fkey ON app.plain IS 'of plain';
    CREATE TABLE app.once ({id integer -> id bigint} UNIQUE);
    CREATE TABLE app.refers (part integer, {id integer, -> }{once integer, -> }note text{-> , id bigint}{-> , once bigint}) PARTITION BY LIST (part);
    CREATE TABLE app.refers_0 PARTITION OF app.refers FOR VALUES IN (0);
    CREATE TABLE app.refers_1 PARTITION OF app.refers DEFAULT;
    ALTER TABLE app.refers ADD CONSTRAINT refers_parts FOREIGN KEY (id, part) REFERENCES app.parts DEFERRABLE;
    COMMENT ON CONSTRAINT refers_parts ON app.refers IS 'of refers';
    ALTER TABLE app.refers ADD CONSTRAINT refers_once FOREIGN KEY (once) REFERENCES app.once (id) ON DELETE SET NULL;
    CREATE TABLE app.of_a_part ({id integer, -> }part integer{-> , id bigint}, FOREIGN KEY (part, id) REFERENCES app.parts_0 (part, id));
    CREATE VIEW app.seen AS SELECT id FROM app.parts WHERE id > 3;

    INSERT INTO app.parts (id, part, page) SELECT n, n % 5, 'x' || n FROM generate_series(1, 200) n;
    SELECT setval('app.parts_id_seq', 200);
    INSERT INTO app.plain (part, id) SELECT part, id FROM app.parts;
    INSERT INTO app.once SELECT id FROM app.parts;
    INSERT INTO app.refers (part, id, once) SELECT part, id, id FROM app.parts WHERE id % 2 = 0;
    INSERT INTO app.of_a_part (part, id) SELECT part, id FROM app.parts WHERE part = 0;
";

const TO_SWITCH: [&str; 4] = ["prepare", "fill", "build", "switch"];
const VISITS: &str = "snowflake_widen('app.visits', 'id')";
const TREE: &str = "snowflake_widen('app.tree', 'id')";
const PARTS: &str = "snowflake_widen('app.parts', 'id')";

#[test]
fn a_schema_with_every_kind_of_object_is_what_it_would_be_if_it_had_been_written_so() {
    let since_18 = if postgres_version() < 18 { "" } else { SINCE_18 };
    let [database, wanted] = [false, true].map(|is_wide| {
        let schema = [EVERYTHING, since_18].map(|schema| side(schema, is_wide)).concat();
        Database::with(&schema)
    });
    let wanted = wanted.dump();
    let mut session = database.connect();
    for call in [VISITS, TREE] {
        let before = catalogs(&mut session);
        let all = steps(&mut session, call);
        assert_eq!(before, catalogs(&mut session), "the call itself changes nothing");
        let order: Vec<_> = all.iter().map(|step| step.phase.as_str()).collect();
        let phases = ["prepare", "fill", "build", "switch", "check", "clean up"];
        let place = |phase| phases.iter().position(|p| *p == phase).unwrap();
        assert!(order.is_sorted_by_key(|phase| place(*phase)), "{order:?}");
        run(&mut session, &all);
        assert_eq!(in_phases(&steps(&mut session, call), &TO_SWITCH).count(), 0, "nothing is left to do");
    }
    assert_same(&in_order(&database.dump()), &in_order(&wanted), &[]);
    // The identity goes on, and so does the sequence.
    session
        .batch_execute("INSERT INTO app.tree (up) VALUES (7); INSERT INTO app.visits (page) VALUES ('new')")
        .unwrap();
    assert_eq!(session.value("SELECT max(id) > 11 FROM app.tree"), "true");
    assert_eq!(session.value("SELECT max(id) FROM app.visits"), "3001");
    session.batch_execute("INSERT INTO app.visits (id, page) VALUES (3000000000, 'far')").unwrap();
    let reference = r#"INSERT INTO app.clicks ("Other", visit) VALUES (NULL, "#;
    session.batch_execute(&format!("{reference} 3000000000)")).unwrap();
    assert_eq!(refused(session.batch_execute(&format!("{reference} 3000000001)"))).sqlstate, "23503");
}

#[test]
fn a_table_goes_to_ids_in_one_go() {
    let database = Database::with(
        "CREATE TABLE app.t (id serial PRIMARY KEY); CREATE TABLE app.u (t integer REFERENCES app.t);
        INSERT INTO app.t SELECT FROM generate_series(1, 10); INSERT INTO app.u SELECT 3",
    );
    let mut session = database.connect();
    let all = steps(&mut session, "snowflake_widen('app.t', 'id', true)");
    run(&mut session, &all);
    assert!(session.ids("INSERT INTO app.t DEFAULT VALUES RETURNING id").unwrap()[0] > 1 << 40);
}

/// Three sessions write in every way. Each knows what its rows are, and none sees an error.
#[test]
fn sessions_that_write_meanwhile_lose_nothing() {
    let database = Database::with(
        "CREATE TABLE app.visits (id serial PRIMARY KEY, page text NOT NULL, n integer NOT NULL DEFAULT 0);
         CREATE TABLE app.clicks (number bigserial PRIMARY KEY, visit integer NOT NULL REFERENCES app.visits ON DELETE CASCADE,
             former integer REFERENCES app.visits ON DELETE SET NULL ON UPDATE CASCADE);
         CREATE INDEX ON app.clicks (visit); CREATE INDEX ON app.clicks (former); CREATE INDEX ON app.visits (page, id);
         INSERT INTO app.visits (page) SELECT 'old' FROM generate_series(1, 5000);
         INSERT INTO app.clicks (visit, former) SELECT n, n FROM generate_series(1, 5000) n",
    );
    let over = AtomicBool::new(false);
    let turns = [const { AtomicU64::new(0) }; 3];
    let write = |number: usize| {
        let mut session = database.connect();
        let random = Random::new(number as u64);
        // What this session knows of its rows: how often it has counted each, by the page's name.
        let mut known: Vec<(String, i32)> = Vec::new();
        // Relaxed: the flag only ends the loop, and the numbers only grow.
        while !over.load(Ordering::Relaxed) {
            let turn = turns[number].fetch_add(1, Ordering::Relaxed);
            let chosen = (!known.is_empty()).then(|| random.below(known.len()));
            let result = match (random.below(6), chosen) {
                (0, Some(place)) => {
                    let (page, _) = known.swap_remove(place);
                    session.batch_execute(&format!("DELETE FROM app.visits WHERE page = '{page}'"))
                }
                (1, Some(place)) => {
                    known[place].1 += 1;
                    let page = &known[place].0;
                    session.batch_execute(&format!("UPDATE app.visits SET n = n + 1 WHERE page = '{page}'"))
                }
                (2, Some(place)) => {
                    let page = &known[place].0;
                    session.batch_execute(&format!(
                        "UPDATE app.visits SET id = nextval('app.visits_id_seq') WHERE page = '{page}'
                         AND NOT EXISTS (SELECT FROM app.clicks WHERE visit = id)"
                    ))
                }
                (3, _) => session.batch_execute(&format!(
                    "UPDATE app.clicks SET former = visit WHERE number = {}",
                    1 + random.below(5000)
                )),
                _ => {
                    let page = format!("{number} {turn}");
                    let sql = format!(
                        "BEGIN; INSERT INTO app.visits (page) VALUES ('{page}');
                         INSERT INTO app.clicks (visit, former) SELECT id, CASE {turn} % 2 WHEN 0 THEN id END FROM app.visits
                         WHERE page = '{page}' AND {turn} % 3 <> 0; COMMIT"
                    );
                    known.push((page, 0));
                    session.batch_execute(&sql)
                }
            };
            if let Err(error) = result {
                return Err(format!("{error:?}"));
            }
        }
        known.sort();
        Ok(known)
    };
    let known = thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|number| scope.spawn(move || write(number))).collect();
        let mut session = database.connect();
        let go_on = || {
            let before: Vec<_> = turns.iter().map(|turn| turn.load(Ordering::Relaxed)).collect();
            wait_until("each session writes", || {
                threads.iter().any(|thread| thread.is_finished())
                    || turns.iter().zip(&before).all(|(turn, before)| turn.load(Ordering::Relaxed) > before + 3)
            });
        };
        let result = (|| {
            go_on();
            for step in steps(&mut session, VISITS) {
                session.batch_execute(&step.statement).map_err(|error| format!("{}: {error:?}", step.statement))?;
                go_on();
            }
            Ok::<_, String>(())
        })();
        // Before any assertion can fail, because the threads would go on.
        over.store(true, Ordering::Relaxed);
        let known: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        result.unwrap();
        known
    });
    let mut session = database.connect();
    for (number, known) in known.into_iter().enumerate() {
        let rows = session.query(&format!("SELECT page, n FROM app.visits WHERE page LIKE '{number} %'"), &[]).unwrap();
        let mut stored: Vec<(String, i32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        stored.sort();
        assert_eq!(stored, known.unwrap());
    }
    assert_eq!(session.value("SELECT count(*) FROM app.visits WHERE page = 'old'"), "5000");
    assert_eq!(
        session.value("SELECT count(*) FROM app.clicks c LEFT JOIN app.visits v ON v.id = visit WHERE v.id IS NULL"),
        "0"
    );
    assert_eq!(session.value("SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND conrelid = 'app.clicks'::regclass AND convalidated"), "2");
}

/// Each statement is ended while it waits for another session, and run again.
#[test]
fn each_step_can_be_killed_and_taken_up_again() {
    let tables = "app.visits, app.clicks, app.tree, app.same";
    let killed = killed_and_taken_up(EVERYTHING, &[VISITS, TREE], tables);
    for phase in TO_SWITCH {
        assert!(killed.iter().any(|killed| killed == phase), "{phase} is not among {killed:?}");
    }
}

#[test]
fn each_step_for_partitions_can_be_killed_and_taken_up_again() {
    let tables = "app.parts, app.plain, app.refers, app.of_a_part, app.once";
    let killed = killed_and_taken_up(PARTITIONS, &[PARTS, "snowflake_widen('app.once', 'id')"], tables);
    for phase in ["prepare", "fill", "build", "switch", "check", "clean up"] {
        assert!(killed.iter().any(|killed| killed == phase), "{phase} is not among {killed:?}");
    }
}

/// Widens tables, and ends each statement while it waits for a session that has locked the tables,
/// or their rows. Returns the phases in which it has.
fn killed_and_taken_up(schema: &str, calls: &[&str], tables: &str) -> Vec<String> {
    let wanted = Database::with(&side(schema, true)).dump();
    let database = Database::with(&side(schema, false));
    let mut session = database.connect();
    let mut killed = Vec::new();
    let locked_rows: String = tables.split(", ").map(|table| format!("SELECT FROM {table} FOR UPDATE;")).collect();
    for &call in calls {
        let count = steps(&mut session, call).len();
        for number in 0..count {
            let all = steps(&mut session, call);
            // After the switch, only what follows it is left.
            let Some(place) = (number + all.len()).checked_sub(count) else { continue };
            let step = &all[place];
            let mut blocker = database.connect();
            let block = match step.phase.as_str() {
                // Its locks are free, but not a view of a view, which is dropped under them.
                "switch" if call == VISITS => "BEGIN; COMMENT ON VIEW app.homes IS 'other'",
                "fill" => &format!("BEGIN; {locked_rows}"),
                _ => &format!("BEGIN; LOCK TABLE {tables} IN ROW EXCLUSIVE MODE; CREATE TABLE app.xid ()"),
            };
            blocker.batch_execute(block).unwrap();
            let mut victim = database.connect();
            let pid: i32 = victim.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
            let was_killed = thread::scope(|scope| {
                let running = scope.spawn(move || victim.batch_execute(&step.statement).is_err());
                wait_until("the statement waits, or ends", || {
                    running.is_finished()
                        || session.value(&format!(
                            "SELECT coalesce(bool_or(wait_event_type IN ('Lock', 'Extension', 'Timeout')), false) FROM pg_stat_activity WHERE pid = {pid}"
                        )) == "true"
                });
                database.terminate(pid);
                running.join().unwrap()
            });
            if was_killed {
                killed.push(step.phase.clone());
            }
            blocker.batch_execute("ROLLBACK").unwrap();
            wait_until("the session has ended", || {
                session.value(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}")) == "0"
            });
            let again = steps(&mut session, call);
            let same = again.iter().find(|again| again.statement == step.statement);
            assert!(same.is_some() || ["switch", "clean up"].contains(&step.phase.as_str()), "{}", step.statement);
            // An index that is invalid by now is dropped by the statement before.
            run(&mut session, &all[place.saturating_sub(1)..=place]);
        }
        assert_eq!(in_phases(&steps(&mut session, call), &TO_SWITCH).count(), 0, "nothing is left to do");
    }
    assert_same(&in_order(&database.dump()), &in_order(&wanted), &[]);
    killed
}

#[test]
fn partitioned_tables_are_what_they_would_be_if_they_had_been_written_so() {
    let wanted = Database::with(&side(PARTITIONS, true)).dump();
    let database = Database::with(&side(PARTITIONS, false));
    let mut session = database.connect();
    // Rows that move from partition to partition while both columns are there.
    let moved = "INSERT INTO app.parts (id, part) VALUES (901, 1), (902, 2); UPDATE app.parts SET part = 0 WHERE id > 900;
        INSERT INTO app.refers (part, id) VALUES (0, 901); DELETE FROM app.refers WHERE id = 901; UPDATE app.parts SET id = 903, part = 3 WHERE id = 901;
        DELETE FROM app.parts WHERE id > 900";
    for call in [PARTS, "snowflake_widen('app.once', 'id')"] {
        let all = steps(&mut session, call);
        for step in &all {
            run(&mut session, std::slice::from_ref(step));
            session.batch_execute(moved).unwrap();
        }
        assert_eq!(in_phases(&steps(&mut session, call), &TO_SWITCH).count(), 0, "nothing is left to do");
    }
    assert_same(&in_order(&database.dump()), &in_order(&wanted), &[]);
    session.batch_execute("INSERT INTO app.parts (id, part) VALUES (3000000000, 1)").unwrap();
    session.batch_execute("INSERT INTO app.refers (id, part) VALUES (3000000000, 1)").unwrap();
    let refusal = refused(session.batch_execute("INSERT INTO app.refers (id, part) VALUES (3000000001, 1)"));
    assert_eq!(refusal.sqlstate, "23503");
    // A partition that comes later is like the others.
    session.batch_execute("CREATE TABLE app.parts_9 PARTITION OF app.parts_2 FOR VALUES IN (9)").unwrap();
    session.batch_execute("INSERT INTO app.parts (id, part) VALUES (3000000001, 9)").unwrap();
}

/// Between the switch and the clean up, the old columns are there, and hold what fits.
#[test]
fn there_is_a_way_back_after_the_switch_while_the_old_column_is_there() {
    let plain = "CREATE TABLE app.parts (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, up smallint REFERENCES app.parts, note text);
        CREATE INDEX hash ON app.parts USING hash (id); CREATE INDEX brin ON app.parts USING brin (id int4_minmax_multi_ops);
        ALTER TABLE app.parts ADD CHECK (id > 0); CREATE VIEW app.seen AS SELECT id FROM app.parts;
        COMMENT ON COLUMN app.parts.id IS 'the key'; INSERT INTO app.parts (note) SELECT 'x' FROM generate_series(1, 50)";
    // PostgreSQL writes such an expression with ::bigint afterwards.
    let partitioned = side(PARTITIONS, false).replace("((id % 10))", "(id, part)");
    for (schema, insert) in [
        (plain, "INSERT INTO app.parts (id, up) OVERRIDING SYSTEM VALUE VALUES"),
        (&partitioned, "INSERT INTO app.parts (id, part) VALUES"),
    ] {
        let database = Database::with(schema);
        let wanted = in_order(&database.dump());
        let mut session = database.connect();
        let back = "snowflake_widen_back('app.parts', 'id')";
        for _ in 0..2 {
            let all = steps(&mut session, PARTS);
            run_phases(&mut session, &all, &TO_SWITCH);
            run_phases(&mut session, &all, &["check"]);
            session.batch_execute(&format!("{insert} (901, 1)")).unwrap();
            let all = steps(&mut session, back);
            run(&mut session, &all);
            assert_eq!(session.value("SELECT count(*) FROM app.parts WHERE id = 901"), "1");
            session.batch_execute("DELETE FROM app.parts WHERE id = 901").unwrap();
            assert_same(&in_order(&database.dump()), &wanted, &[]);
            assert!(steps(&mut session, back).is_empty());
        }
        // With a value that does not fit, sessions go on, and the way back is refused.
        let all = steps(&mut session, PARTS);
        run_phases(&mut session, &all, &TO_SWITCH);
        session.batch_execute(&format!("{insert} (3000000000, 1)")).unwrap();
        let refusal = || {
            let mut session = database.connect();
            let all = steps(&mut session, back);
            all.iter()
                .find_map(|step| session.batch_execute(&step.statement).err())
                .map(|error| refused::<()>(Err(error)))
        };
        if insert.contains("part)") {
            let unchecked = refusal().expect("a foreign key is not checked yet");
            assert_eq!(unchecked.sqlstate, "55006", "{unchecked:?}");
            // Nor does anything else of what follows go ahead of it.
            for part in ["widen_join(", "''app.parts'', ''column'', "] {
                let early = all.iter().find(|step| step.phase != "switch" && step.statement.contains(part)).unwrap();
                assert_eq!(refused(session.batch_execute(&early.statement)).sqlstate, "55006", "{}", early.statement);
            }
            run_phases(&mut session, &all, &["check"]);
        }
        let misfit = refusal().expect("a value does not fit");
        assert!(misfit.sqlstate == "22003" && misfit.message.contains("3000000000"), "{misfit:?}");
        session.batch_execute("DELETE FROM app.parts WHERE id = 3000000000").unwrap();
        assert!(refusal().is_none());
        // From the clean up on there is no way back.
        let all = steps(&mut session, PARTS);
        run(&mut session, &all);
        assert!(steps(&mut session, back).is_empty());
    }
}

#[test]
fn there_is_a_way_back_from_each_phase_before_the_switch() {
    let database = Database::with(&side(EVERYTHING, false));
    let wanted = database.dump();
    let mut session = database.connect();
    for last in 1..=3 {
        let all = steps(&mut session, VISITS);
        run_phases(&mut session, &all, &TO_SWITCH[..last]);
        assert_ne!(database.dump(), wanted);
        let back = steps(&mut session, "snowflake_widen_back('app.visits', 'id')");
        run(&mut session, &back);
        // Each can be repeated.
        run(&mut session, &back);
        assert_same(&in_order(&database.dump()), &in_order(&wanted), &[]);
        assert!(steps(&mut session, "snowflake_widen_back('app.visits', 'id')").is_empty());
    }
    // And forward again.
    let all = steps(&mut session, VISITS);
    run(&mut session, &all);
}

/// What the switch would lose or keep wrong, if it did not look.
#[test]
fn what_was_left_out_or_changed_meanwhile_is_refused() {
    let schema =
        "CREATE TABLE app.t (id serial PRIMARY KEY, note text); CREATE TABLE app.u (t integer REFERENCES app.t);
        INSERT INTO app.t (note) SELECT 'x' FROM generate_series(1, 1000); INSERT INTO app.u SELECT 3;
        CREATE VIEW app.v AS SELECT id FROM app.t";
    let call = "snowflake_widen('app.t', 'id')";
    let validate = |all: &[Step]| {
        all.iter().find(|step| step.statement.starts_with("ALTER TABLE app.t VALIDATE")).unwrap().statement.clone()
    };
    // Rows that are not filled.
    let database = Database::with(schema);
    let mut session = database.connect();
    let all = steps(&mut session, call);
    run_phases(&mut session, &all, &["prepare"]);
    run(
        &mut session,
        &all.iter()
            .filter(|step| {
                step.statement.contains("ADD CONSTRAINT") && step.phase == "build" && step.statement.contains("CHECK")
            })
            .map(|step| Step { phase: step.phase.clone(), statement: step.statement.clone() })
            .collect::<Vec<_>>(),
    );
    assert_eq!(refused(session.batch_execute(&validate(&all))).sqlstate, "23514");
    // A row that was written while the trigger was disabled.
    run_phases(&mut session, &all, &["fill"]);
    let not_null = beside(&mut session, "app.t", 1).replace("widen_", "widen_not_null_");
    session
        .batch_execute(&format!(
            "ALTER TABLE app.t DROP CONSTRAINT {not_null}, DISABLE TRIGGER ALL; UPDATE app.t SET note = 'y'; ALTER TABLE app.t ENABLE TRIGGER ALL"
        ))
        .unwrap();
    run_phases(&mut session, &all, &["fill"]);
    run(&mut session, &steps(&mut database.connect(), "snowflake_widen_back('app.t', 'id')"));

    // An index that was not built, and a constraint that was not validated.
    for skipped in ["CREATE INDEX", "VALIDATE"] {
        let database = Database::with(&format!("{schema}; CREATE INDEX ON app.t (note, id)"));
        let mut session = database.connect();
        let all = steps(&mut session, call);
        run(
            &mut session,
            &all.into_iter()
                .filter(|step| TO_SWITCH[..3].contains(&step.phase.as_str()) && !step.statement.contains(skipped))
                .collect::<Vec<_>>(),
        );
        let all = steps(&mut session, call);
        let refusal = refused(session.batch_execute(&in_phases(&all, &["switch"]).next().unwrap().statement));
        assert_eq!(refusal.sqlstate, "55006", "{refusal:?}");
        assert!(refusal.message.contains("not ready"), "{refusal:?}");
        run(&mut session, &all);
    }

    // Objects that came after the call. An index or a foreign key would go with the old column.
    for (number, change) in [
        "CREATE INDEX late ON app.t (id, note)",
        "CREATE TABLE app.late (t integer REFERENCES app.t)",
        "ALTER TABLE app.t ADD CHECK (id <> 0)",
        "CREATE OR REPLACE VIEW app.v AS SELECT id FROM app.t WHERE id > 4",
        "GRANT SELECT (id) ON app.t TO pg_monitor",
        "ALTER TABLE app.t ALTER id SET DEFAULT 7",
    ]
    .into_iter()
    .enumerate()
    {
        let database = Database::with(schema);
        let mut session = database.connect();
        let all = steps(&mut session, call);
        run_phases(&mut session, &all, &TO_SWITCH[..3]);
        session.batch_execute(change).unwrap();
        let before = database.dump();
        let switch = &in_phases(&all, &["switch"]).next().unwrap().statement;
        let refusal = refused(session.batch_execute(switch));
        assert_eq!(refusal.sqlstate, "55006", "{number} {change}: {refusal:?}");
        assert_same(&database.dump(), &before, &[]);
        // A new call knows it.
        let all = steps(&mut session, call);
        run(&mut session, &all);
    }
}

/// A reader has locked a view that the switch drops, and then reads a table that the switch has
/// locked. The switch gives way before PostgreSQL sees a deadlock.
#[test]
fn a_session_that_has_what_the_switch_needs_goes_on() {
    let database = Database::with(
        "CREATE TABLE app.t (id serial PRIMARY KEY); CREATE VIEW app.v AS SELECT id FROM app.t;
         CREATE VIEW app.w AS SELECT id FROM app.v; INSERT INTO app.t DEFAULT VALUES",
    );
    let mut session = database.connect();
    let all = steps(&mut session, "snowflake_widen('app.t', 'id')");
    run_phases(&mut session, &all, &TO_SWITCH[..3]);
    let switch = in_phases(&all, &["switch"]).next().unwrap();
    let mut other = database.connect();
    other.batch_execute("BEGIN; COMMENT ON VIEW app.w IS 'used'").unwrap();
    let pid: i32 = session.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    thread::scope(|scope| {
        let switching = scope.spawn(move || session.batch_execute(&switch.statement));
        database.wait_until_locked(pid);
        let read = other.batch_execute("SELECT FROM app.t");
        other.batch_execute("ROLLBACK").unwrap();
        switching.join().unwrap().unwrap();
        read.unwrap();
    });
}

#[test]
fn a_fill_refuses_to_fire_what_is_not_its_own() {
    let database = Database::with(
        "CREATE TABLE app.t (id serial PRIMARY KEY, at timestamptz); INSERT INTO app.t (at) SELECT now() FROM generate_series(1, 1000);
         CREATE FUNCTION app.touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.at := NULL; RETURN NEW; END';
         CREATE TRIGGER touch BEFORE UPDATE ON app.t FOR EACH ROW EXECUTE FUNCTION app.touch()",
    );
    let mut session = database.connect();
    let notes = session.query("SELECT step FROM snowflake_widen('app.t', 'id') WHERE phase = 'notes'", &[]).unwrap();
    assert!(notes.iter().any(|note| note.get::<_, &str>(0).contains("trigger touch on table app.t")));
    let all = steps(&mut session, "snowflake_widen('app.t', 'id')");
    run_phases(&mut session, &all, &["prepare"]);
    let fill = &in_phases(&all, &["fill"]).next().unwrap().statement;
    let refusal = refused(session.batch_execute(fill));
    assert_eq!(refusal.sqlstate, "09000", "{refusal:?}");
    assert!(refusal.detail.unwrap().contains("trigger touch on table app.t"));
    session.batch_execute("SET session_replication_role = replica").unwrap();
    session.batch_execute(fill).unwrap();
    session.batch_execute("RESET session_replication_role").unwrap();
    run_phases(&mut session, &all, &["build", "switch", "clean up"]);
    assert_eq!(session.value("SELECT count(at) FROM app.t"), "1000");
}

#[test]
fn two_widenings_share_tables() {
    let database = Database::with(
        "CREATE TABLE app.a (id serial PRIMARY KEY, b integer); CREATE TABLE app.b (id serial PRIMARY KEY, a integer REFERENCES app.a);
         ALTER TABLE app.a ADD FOREIGN KEY (b) REFERENCES app.b;
         CREATE TABLE app.c (a integer REFERENCES app.a, b integer REFERENCES app.b, PRIMARY KEY (a, b));
         INSERT INTO app.a DEFAULT VALUES; INSERT INTO app.b (a) VALUES (1); UPDATE app.a SET b = 1; INSERT INTO app.c VALUES (1, 1)",
    );
    let [mut one, mut other] = [database.connect(), database.connect()];
    let calls = ["snowflake_widen('app.a', 'id')", "snowflake_widen('app.b', 'id')"];
    // One keeps its old columns, and has a way back, whatever becomes of the other.
    for call in calls {
        let all = steps(&mut one, call);
        run_phases(&mut one, &all, &TO_SWITCH);
    }
    for call in ["snowflake_widen_back('app.b', 'id')", "snowflake_widen_back('app.a', 'id')"] {
        let all = steps(&mut one, call);
        run(&mut one, &all);
    }
    let wide =
        "SELECT count(*) FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE relnamespace = 'app'::regnamespace
        AND atttypid = 'bigint'::regtype AND relkind = 'r' AND attnum > 0 AND NOT attisdropped";
    assert_eq!(one.value(wide), "0");
    let first = steps(&mut one, calls[0]);
    let second = steps(&mut other, calls[1]);
    run_phases(&mut one, &first, &["prepare", "fill"]);
    run_phases(&mut other, &second, &["prepare", "fill", "build"]);
    run_phases(&mut one, &first, &["build"]);
    // Each has changed what the other one has to widen, and says so or goes on.
    for call in calls {
        let all = steps(&mut one, call);
        run(&mut one, &all);
    }
    assert_eq!(one.value("SELECT count(*) FROM pg_attribute WHERE attrelid IN ('app.a'::regclass, 'app.b'::regclass, 'app.c'::regclass)
        AND attnum > 0 AND NOT attisdropped AND atttypid <> 'bigint'::regtype"), "0");
    assert_eq!(one.value("SELECT count(*) FROM pg_class WHERE relname LIKE 'snowflake\\_widen\\_%' AND relnamespace = 'app'::regnamespace"), "0");
    assert_eq!(one.value("SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND convalidated AND connamespace = 'app'::regnamespace"), "4");
}

/// Names that look like the end of a literal, like other columns, or like nothing that a statement
/// could take for a name.
#[test]
fn any_names_are_written_as_they_are() {
    // Since 19, "off" is refused.
    for strings in if postgres_version() < 19 { &["on", "off"][..] } else { &["on"] } {
        let database = Database::with(
            r#"CREATE TABLE app."new
line\" ("it's" integer);
           CREATE TABLE app.page$w ("it's" serial PRIMARY KEY, a$w integer DEFAULT 1, "Quote""d" text);
           CREATE TABLE app."$w$" (page$w integer REFERENCES app.page$w, name integer CHECK (name <> 3), year integer);
           CREATE INDEX name ON app."$w$" (page$w, name, (page$w || 'page$w'::name::text)) WHERE page$w > 0 AND 'E''page$w\' <> 'x';
           CREATE VIEW app."view$w" AS SELECT "it's" AS "$ww$" FROM app.page$w;
           COMMENT ON COLUMN app.page$w."it's" IS 'ends with $w';
           INSERT INTO app.page$w ("Quote""d") SELECT 'x' FROM generate_series(1, 10); INSERT INTO app."$w$" SELECT 3;
           ALTER TABLE app."new
line\" ADD FOREIGN KEY ("it's") REFERENCES app.page$w"#,
        );
        let mut session = database.connect();
        // A session that reads strings otherwise gets the same, also for other sessions.
        session.batch_execute(&format!("SET standard_conforming_strings = {strings}")).unwrap();
        let taken = beside(&mut session, "app.page$w", 1);
        session.batch_execute(&format!("ALTER TABLE app.page$w ADD {taken} integer")).unwrap();
        let all = steps(&mut session, "snowflake_widen('app.page$w', 'it''s')");
        run_phases(&mut session, &all, &["prepare"]);
        let mut session = database.connect();
        run(&mut session, &all);
        assert_eq!(session.value("SELECT pg_typeof(\"$ww$\") FROM app.view$w LIMIT 1"), "bigint");
        assert_eq!(session.value("SELECT pg_typeof(page$w) FROM app.\"$w$\""), "bigint");
        let definition = session.value("SELECT pg_get_indexdef('app.name'::regclass)");
        let columns = r#"("page$w", name, (("page$w" || ('page$w'::name)::text)))"#;
        assert!(definition.contains(columns) && definition.contains(r"page$w\'::text"), "{definition}");
    }
}

/// A NATURAL JOIN compares all columns of two tables whose names are equal.
#[test]
fn a_natural_join_of_widened_tables_finds_all_rows_in_each_phase() {
    let database = Database::with(
        "CREATE TABLE app.t (id serial PRIMARY KEY, part integer DEFAULT 1);
         CREATE TABLE app.u (id integer PRIMARY KEY REFERENCES app.t, note text);
         INSERT INTO app.t SELECT FROM generate_series(1, 9); INSERT INTO app.u SELECT generate_series(1, 9)",
    );
    let mut session = database.connect();
    let joined = "SELECT count(*) FROM app.t NATURAL JOIN app.u";
    for step in steps(&mut session, "snowflake_widen('app.t', 'id')") {
        run(&mut session, std::slice::from_ref(&step));
        assert_eq!(session.value(joined), "9", "{}", step.phase);
        session.batch_execute("UPDATE app.t SET part = 2 WHERE id = 3").unwrap();
    }
}

/// PostgreSQL stores columns of ON DELETE SET NULL in a partition's key by the numbers of the whole
/// table. Its own actions do not read them there.
#[test]
fn a_key_sets_the_columns_of_its_list_in_partitions_with_other_numbers() {
    let database = Database::with(
        "CREATE TABLE app.p (a integer, id integer, PRIMARY KEY (a, id));
         CREATE TABLE app.r (gone integer, a integer NOT NULL, part integer, p integer, up integer,
             FOREIGN KEY (a, p) REFERENCES app.p ON DELETE SET NULL (p)) PARTITION BY LIST (part);
         ALTER TABLE app.r DROP gone; ALTER TABLE app.r ADD PRIMARY KEY (a, part);
         ALTER TABLE app.r ADD FOREIGN KEY (up, part) REFERENCES app.r (a, part) ON DELETE SET NULL (up);
         CREATE TABLE app.r_0 PARTITION OF app.r FOR VALUES IN (0); CREATE TABLE app.r_1 PARTITION OF app.r FOR VALUES IN (1);
         INSERT INTO app.p SELECT n, n FROM generate_series(1, 200) n; INSERT INTO app.r SELECT n, n % 2, n FROM generate_series(1, 200) n;
         UPDATE app.r SET up = 1 WHERE a = 3",
    );
    let mut session = database.connect();
    let mut deleted = 0;
    for call in ["snowflake_widen('app.p', 'id')", "snowflake_widen('app.r', 'a')"] {
        for step in steps(&mut session, call) {
            run(&mut session, std::slice::from_ref(&step));
            deleted += 1;
            session.batch_execute(&format!("DELETE FROM app.p WHERE id = 201 - {deleted}")).unwrap();
            let nulls =
                session.value("SELECT count(*) FROM app.r WHERE p IS NULL AND a IS NOT NULL AND part IS NOT NULL");
            assert_eq!(nulls, deleted.to_string(), "{}", step.statement);
        }
    }
    session.batch_execute("DELETE FROM app.r WHERE a = 1").unwrap();
    assert_eq!(session.value("SELECT up IS NULL AND part = 1 FROM app.r WHERE a = 3"), "true");
}

/// Keys change as they did before, in whichever order PostgreSQL would run the actions of two
/// foreign keys.
#[test]
fn what_a_session_may_write_and_what_becomes_of_it_stays_as_it_was() {
    const SCHEMA: &str = r#"
        CREATE TABLE app.p (a integer, {id integer -> id bigint}, PRIMARY KEY (a, id));
        CREATE TABLE app.nulls (a integer, p {integer -> bigint}, FOREIGN KEY (a, p) REFERENCES app.p ON DELETE SET NULL ON UPDATE CASCADE);
        CREATE TABLE app.defaults (a integer DEFAULT 1, p {integer -> bigint} DEFAULT 1,
            FOREIGN KEY (a, p) REFERENCES app.p ON DELETE SET DEFAULT ON UPDATE SET DEFAULT);
        CREATE TABLE app.late (a integer, p {integer -> bigint}, CONSTRAINT late FOREIGN KEY (a, p) REFERENCES app.p DEFERRABLE);
        CREATE TABLE app.places (a integer, p {integer -> bigint}, place integer, UNIQUE (p, place) DEFERRABLE,
            FOREIGN KEY (a, p) REFERENCES app.p);
        INSERT INTO app.p SELECT 1, n FROM generate_series(1, 9) n;
        INSERT INTO app.nulls SELECT 1, n FROM generate_series(2, 4) n;
        INSERT INTO app.defaults SELECT 1, n FROM generate_series(5, 6) n;
        INSERT INTO app.places SELECT 1, 7, n FROM generate_series(1, 9) n;
        CREATE TABLE app.tree (id {integer -> bigint} PRIMARY KEY, up {integer -> bigint} REFERENCES app.tree ON DELETE CASCADE ON UPDATE CASCADE);
        INSERT INTO app.tree VALUES (1, NULL), (2, 1), (3, 2), (4, 4);
        -- As if their numbers had the greater texts: 99999 and 100000.
        DO $$ DECLARE statement text; BEGIN FOR statement IN
            SELECT format('ALTER TRIGGER %I ON %s RENAME TO "RI_ConstraintTrigger_a_99999%s"', tgname, tgrelid::regclass, t.oid)
            FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace = 'app'::regnamespace AND tgname LIKE 'RI\_ConstraintTrigger\_a\_%'
        LOOP EXECUTE statement; END LOOP; END $$"#;
    const WRITES: [&str; 17] = [
        "DELETE FROM app.p WHERE id = 2",
        "UPDATE app.p SET a = 2, id = 33 WHERE id = 3",
        "DELETE FROM app.p WHERE id = 5",
        "UPDATE app.p SET a = 2, id = 66 WHERE id = 6",
        "BEGIN; SET CONSTRAINTS app.late DEFERRED; INSERT INTO app.late VALUES (1, 70); INSERT INTO app.p VALUES (1, 70); COMMIT",
        "INSERT INTO app.late VALUES (1, 71)",
        "ROLLBACK",
        "DELETE FROM app.p WHERE id = 70",
        "UPDATE app.places SET place = place + 1",
        "INSERT INTO app.places VALUES (1, 7, 5)",
        "INSERT INTO app.places VALUES (1, NULL, 5), (NULL, NULL, NULL)",
        "INSERT INTO app.nulls (a) VALUES (1); UPDATE app.nulls SET p = 4 WHERE p IS NULL AND a = 1",
        "INSERT INTO app.p VALUES (1, NULL)",
        "INSERT INTO app.p VALUES (1, 4) ON CONFLICT (a, id) DO UPDATE SET id = 44",
        "UPDATE app.tree SET id = id + 10",
        "DELETE FROM app.tree WHERE id = 12",
        "UPDATE app.tree SET up = 12345 WHERE id = 14",
    ];
    let writing = |database: &Database| {
        let mut session = database.connect();
        WRITES.map(|write| session.batch_execute(write).err().map(|error| refused::<()>(Err(error)).sqlstate))
    };
    let written = Database::with(&side(SCHEMA, true));
    let results = writing(&written);
    assert_eq!(results.iter().flatten().count(), 5, "{results:?}");
    let database = Database::with(&side(SCHEMA, false));
    let mut session = database.connect();
    for call in ["snowflake_widen('app.p', 'id')", TREE] {
        let all = steps(&mut session, call);
        run_phases(&mut session, &all, &TO_SWITCH[..3]);
    }
    assert_eq!(writing(&database), results);
    for call in ["snowflake_widen('app.p', 'id')", TREE] {
        let all = steps(&mut session, call);
        run(&mut session, &all);
    }
    assert_eq!(described(&database), described(&written));
}

/// What other roles have made changes neither the statements nor what they mean.
#[test]
fn other_roles_change_no_call_and_no_meaning() {
    let database = Database::with(
        "CREATE TABLE app.t (id serial PRIMARY KEY, CHECK (id % 10 >= 0)); INSERT INTO app.t SELECT FROM generate_series(1, 100);
         CREATE INDEX tenth ON app.t ((id % 10)); CREATE VIEW app.tenths AS SELECT id % 10 AS tenth FROM app.t",
    );
    let role = database.role("other");
    database.connect_as(&role).batch_execute(
        "CREATE TABLE app.other (a integer, b bigint);
         CREATE TRIGGER one BEFORE INSERT ON app.other FOR EACH ROW EXECUTE FUNCTION snowflake_plan.widen_keep('x', 'y', 'b', 'a');
         CREATE FUNCTION app.rest(bigint, integer) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 42; END';
         CREATE OPERATOR app.% (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = app.rest);
         CREATE FUNCTION app.same(bigint, integer) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN true; END';
         CREATE OPERATOR app.= (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = app.same)",
    ).unwrap();
    // Its operators come before PostgreSQL's.
    let mut session = database.connect();
    session.batch_execute("SET search_path = app, pg_catalog, public").unwrap();
    let call = "snowflake_widen('app.t', 'id')";
    let all = steps(&mut session, call);
    run_phases(&mut session, &all, &TO_SWITCH[..3]);
    let switch = &in_phases(&all, &["switch"]).next().unwrap().statement;
    let refusal = refused(session.batch_execute(switch));
    assert_eq!(refusal.sqlstate, "55006", "{refusal:?}");
    assert!(refusal.detail.as_ref().unwrap().contains("operator app.%(bigint,integer)"), "{refusal:?}");
    let helper = session.value(
        "SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'app.t'::regclass AND indexprs IS NOT NULL
         AND indexrelid <> 'app.tenth'::regclass",
    );
    session.batch_execute(&format!("DROP INDEX {helper}; SET search_path = public")).unwrap();
    let all = steps(&mut session, call);
    run(&mut session, &all);
    let meaning = "SELECT concat(pg_get_indexdef('app.tenth'::regclass), pg_get_viewdef('app.tenths'::regclass), string_agg(pg_get_constraintdef(oid), ''))
        FROM pg_constraint WHERE conrelid = 'app.t'::regclass";
    let meaning = session.value(meaning);
    assert!(meaning.contains(" % ") && !meaning.contains("app.%"), "{meaning}");
    // A trigger that has arguments of nothing is an error of its own table.
    let refusal = refused(session.batch_execute("INSERT INTO app.other VALUES (1)"));
    assert_eq!(refusal.sqlstate, "27000", "{refusal:?}");
}

/// The new column has what a trigger of any name has made of the key.
#[test]
fn a_trigger_that_fires_last_changes_the_key_of_both_columns() {
    let database = Database::with(
        r#"CREATE TABLE app.t (id serial PRIMARY KEY, up integer REFERENCES app.t);
           CREATE FUNCTION app.add() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.id := NEW.id + 100; NEW.up := NEW.id; RETURN NEW; END';
           CREATE TRIGGER "~été" BEFORE INSERT ON app.t FOR EACH ROW EXECUTE FUNCTION app.add(); INSERT INTO app.t DEFAULT VALUES"#,
    );
    let mut session = database.connect();
    let call = "snowflake_widen('app.t', 'id')";
    let [id, up] = [1, 2].map(|number| beside(&mut session, "app.t", number));
    let differs = &format!("SELECT count(*) FROM app.t WHERE (id, up) IS DISTINCT FROM ({id}, {up})");
    let all = steps(&mut session, call);
    run_phases(&mut session, &all, &["prepare", "fill"]);
    session.batch_execute("INSERT INTO app.t DEFAULT VALUES").unwrap();
    assert_eq!(session.value(differs), "0");
    // One that comes later, and a new call.
    session
        .batch_execute(r#"ALTER TRIGGER "~été" ON app.t RENAME TO "~œuvre"; INSERT INTO app.t DEFAULT VALUES"#)
        .unwrap();
    assert_eq!(session.value(differs), "1");
    let all = steps(&mut session, call);
    run_phases(&mut session, &all, &TO_SWITCH[..3]);
    session.batch_execute("INSERT INTO app.t DEFAULT VALUES").unwrap();
    run_phases(&mut session, &all, &["switch", "clean up"]);
    assert_eq!(
        session.value("SELECT string_agg(concat_ws(' ', id, up), ', ' ORDER BY id) FROM app.t"),
        "101 101, 102 102, 103 103, 104 104"
    );
    assert_eq!(
        session.value("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'app.t'::regclass AND NOT tgisinternal"),
        "1"
    );
}

/// Rights on the column, whoever has granted them, and its labels.
#[test]
fn rights_and_labels_of_the_column_stay() {
    let database = Database::with("");
    let [owner, one, other] = ["owner", "one", "other"].map(|name| database.role(name));
    let mut session = database.connect();
    session
        .batch_execute(&format!(
            "GRANT {owner} TO {one}; SET ROLE {owner}; CREATE TABLE app.t (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
             CREATE VIEW app.v AS SELECT id FROM app.t;
             GRANT SELECT (id) ON app.t TO {one} WITH GRANT OPTION; GRANT SELECT ON app.v TO {one} WITH GRANT OPTION;
             SET ROLE {one}; GRANT SELECT (id) ON app.t TO {other}; GRANT SELECT ON app.v TO {other}; SET ROLE {owner}"
        ))
        .unwrap();
    let rights = "SELECT concat(attacl, relacl, relowner::regrole) FROM pg_attribute, pg_class c WHERE attrelid = 'app.t'::regclass AND attname = 'id'
        AND c.oid = 'app.v'::regclass";
    let before = session.value(rights);
    let all = steps(&mut session, "snowflake_widen('app.t', 'id')");
    run(&mut session, &all);
    assert_eq!(session.value(rights), before);
    assert_eq!(session.value("SELECT current_user"), owner);
    // No provider is loaded, so a label can only be read.
    let mut session = database.connect();
    session
        .batch_execute(
            "CREATE TABLE app.labelled (id integer);
             INSERT INTO pg_seclabel VALUES ('app.labelled'::regclass, 'pg_class'::regclass, 1, 'anon', 'MASKED')",
        )
        .unwrap();
    let all = steps(&mut session, "snowflake_widen('app.labelled', 'id')");
    let switch = in_phases(&all, &["switch"]).next().unwrap();
    assert!(switch.statement.contains("SECURITY LABEL FOR anon ON COLUMN app.labelled.id IS 'MASKED'"));
}

#[test]
fn a_temporary_table_is_widened() {
    let database = Database::with("");
    let mut session = database.connect();
    session.batch_execute("CREATE TEMPORARY TABLE t (id serial PRIMARY KEY, n integer); CREATE INDEX ON t (n, id); INSERT INTO t VALUES (7)").unwrap();
    let all = steps(&mut session, "snowflake_widen('t', 'id')");
    run(&mut session, &all);
    assert_eq!(session.value("SELECT pg_typeof(id) FROM t"), "bigint");
}

#[test]
fn hundreds_of_tables_that_refer_to_one_are_switched_in_one_transaction() {
    let database = Database::with(
        "CREATE TABLE app.t (id serial PRIMARY KEY); INSERT INTO app.t SELECT FROM generate_series(1, 10);
         DO $$ BEGIN FOR n IN 1 .. 200 LOOP
             EXECUTE format('CREATE TABLE app.u%s (t integer NOT NULL REFERENCES app.t ON DELETE CASCADE); INSERT INTO app.u%1$s SELECT generate_series(1, 10)', n);
         END LOOP; END $$",
    );
    let mut session = database.connect();
    let all = steps(&mut session, "snowflake_widen('app.t', 'id')");
    assert_eq!(in_phases(&all, &["switch"]).count(), 1);
    run_phases(&mut session, &all, &TO_SWITCH[..3]);
    let narrow = "SELECT count(*) FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE relnamespace = 'app'::regnamespace AND relkind = 'r'
        AND attname IN ('id', 't') AND atttypid = 'integer'::regtype AND NOT attisdropped";
    assert_eq!(session.value(narrow), "201");
    let started = std::time::Instant::now();
    run_phases(&mut session, &all, &["switch"]);
    println!("the switch of 201 tables took {:?}", started.elapsed());
    assert_eq!(session.value(narrow), "0");
    session.batch_execute("DELETE FROM app.t WHERE id = 3").unwrap();
    assert_eq!(session.value("SELECT count(*) FROM app.u200"), "9");
}

/// A rename, and a restored dump in which columns have other numbers.
#[test]
fn writers_go_on_after_a_rename_and_a_restore() {
    let database = Database::with(
        "CREATE TABLE app.t (gone integer, id serial PRIMARY KEY, note text); ALTER TABLE app.t DROP COLUMN gone;
         INSERT INTO app.t (note) SELECT 'x' FROM generate_series(1, 100)",
    );
    let mut session = database.connect();
    let all = steps(&mut session, "snowflake_widen('app.t', 'id')");
    run_phases(&mut session, &all, &["prepare"]);
    let restored = || {
        let restored = Database::with("DROP SCHEMA app; DROP EXTENSION snowflake_id");
        restored.psql(&database.dump()).unwrap();
        restored
    };
    let plain = restored();
    database.run("ALTER TABLE app.t RENAME id TO key");
    let renamed = restored();
    database.run("ALTER TABLE app.t RENAME key TO id");
    let widened = &format!("SELECT count(*) FROM app.t WHERE {} = id", beside(&mut session, "app.t", 2));
    // As a client writes, and as a subscription does.
    let write = "INSERT INTO app.t (note) VALUES ('new'); SET session_replication_role = replica;
        INSERT INTO app.t (note) VALUES ('sent'); RESET session_replication_role";
    for (database, before, after) in [
        (&database, "ALTER TABLE app.t RENAME id TO key", "ALTER TABLE app.t RENAME key TO id"),
        (&plain, "", ""),
        (&renamed, "", "ALTER TABLE app.t RENAME key TO id"),
    ] {
        let mut session = database.connect();
        session.batch_execute(before).unwrap();
        session.batch_execute(write).unwrap();
        session.batch_execute(after).unwrap();
        assert_eq!(session.value(widened), "2");
        let all = steps(&mut session, "snowflake_widen('app.t', 'id')");
        run(&mut session, &all);
        assert_eq!(session.value("SELECT format('%s %s', count(*), count(DISTINCT id)) FROM app.t"), "102 102");
    }
}

/// There, the indexes and constraints have the numbers of other objects in their names.
#[test]
fn a_dump_of_a_finished_build_is_widened_where_it_is_restored() {
    let database = Database::with(
        "CREATE TABLE app.t (id serial PRIMARY KEY, note text CHECK (id > 0)); CREATE TABLE app.u (t integer REFERENCES app.t ON DELETE CASCADE);
         CREATE INDEX on_u ON app.u (t); INSERT INTO app.t SELECT FROM generate_series(1, 9); INSERT INTO app.u SELECT generate_series(1, 9)",
    );
    let call = "snowflake_widen('app.t', 'id')";
    let mut session = database.connect();
    let all = steps(&mut session, call);
    run_phases(&mut session, &all, &["prepare", "fill", "build"]);
    let restored = Database::with("DROP SCHEMA app; DROP EXTENSION snowflake_id");
    restored.psql(&database.dump()).unwrap();
    run_phases(&mut session, &all, &["switch", "check", "clean up"]);
    let mut session = restored.connect();
    let all = steps(&mut session, call);
    run(&mut session, &all);
    assert_eq!(described(&restored), described(&database));
}

#[test]
fn what_cannot_be_widened_is_refused_before_the_first_step() {
    let database = Database::with(
        "CREATE TABLE app.by_id (id serial PRIMARY KEY) PARTITION BY RANGE (id);
         CREATE FOREIGN DATA WRAPPER none; CREATE SERVER elsewhere FOREIGN DATA WRAPPER none; CREATE FOREIGN TABLE app.far (id integer) SERVER elsewhere;
         CREATE TABLE app.parts (id integer, part integer) PARTITION BY LIST (part);
         CREATE FOREIGN TABLE app.far_part PARTITION OF app.parts DEFAULT SERVER elsewhere; CREATE TABLE app.part PARTITION OF app.parts FOR VALUES IN (1);
         CREATE FUNCTION app.narrow(integer) RETURNS integer IMMUTABLE LANGUAGE sql AS 'SELECT $1';
         CREATE TABLE app.checked (id integer CHECK (app.narrow(id) > 0), note text); CREATE INDEX on_narrow ON app.checked (note) WHERE app.narrow(id) > 5;
         CREATE TABLE app.parent (id serial PRIMARY KEY); CREATE TABLE app.child () INHERITS (app.parent);
         CREATE TYPE app.kind AS (id integer); CREATE TABLE app.typed OF app.kind;
         CREATE TABLE app.stored (id integer); CREATE DOMAIN app.rows AS app.stored[]; CREATE TYPE app.nest AS (rows app.rows);
         CREATE TABLE app.store (nest app.nest);
         CREATE DOMAIN app.number AS integer; CREATE TABLE app.domain (id app.number);
         CREATE FUNCTION app.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE TABLE app.late (id integer); CREATE TRIGGER \"~zz34567890123456789012345678901234567890123456789012345678901\" BEFORE INSERT ON app.late FOR EACH ROW EXECUTE FUNCTION app.f();
         CREATE VIEW app.view AS SELECT 1 AS id; CREATE TABLE app.plain (id integer, other text, g integer GENERATED ALWAYS AS (1) STORED);
         CREATE TABLE app.ranged (id integer, EXCLUDE USING gist (int4range(id, id, '[]') WITH &&));
         CREATE TABLE app.generated (id integer, range int4range GENERATED ALWAYS AS (int4range(id, id + 1)) STORED);
         CREATE TABLE app.odd (id integer); CREATE TEXT SEARCH CONFIGURATION app.unknown (COPY = simple);
         CREATE TABLE app.key (id integer PRIMARY KEY); CREATE TABLE app.foreigner (key integer REFERENCES app.key);
         CREATE TABLE app.own (id integer PRIMARY KEY); CREATE TABLE app.broad (id bigint REFERENCES app.own);
         CREATE VIEW app.view_of AS SELECT id FROM app.own; CREATE VIEW app.view_of_view AS SELECT id FROM app.view_of;
         CREATE PUBLICATION sent FOR TABLE app.own (id);
         CREATE TABLE app.hidden (id integer); CREATE POLICY of_own ON app.hidden USING (EXISTS (SELECT FROM app.own WHERE own.id = hidden.id));
         CREATE TABLE app.returned (id integer, note text); CREATE TABLE app.whole (id integer, note text);
         CREATE FUNCTION app.picks(key integer) RETURNS SETOF app.returned LANGUAGE sql BEGIN ATOMIC SELECT * FROM app.returned WHERE id = key; END;
         CREATE FUNCTION app.as_whole(key integer) RETURNS app.whole LANGUAGE sql BEGIN ATOMIC SELECT w FROM app.whole w WHERE id = key; END;
         -- A kind of object that a later version may have.
         INSERT INTO pg_depend SELECT 'pg_ts_config'::regclass, oid, 0, 'pg_class'::regclass, 'app.odd'::regclass, 1, 'n' FROM pg_ts_config WHERE cfgname = 'unknown'",
    );
    let role = database.role("owner");
    database.run(&format!("ALTER TABLE app.key OWNER TO {role}; ALTER TABLE app.own OWNER TO {role}"));
    let mut session = database.connect();
    let before = catalogs(&mut session);
    for (table, column, sqlstate, words) in [
        ("by_id", "id", "42P16", "is partitioned by it"),
        ("far", "id", "42809", "far"),
        ("far_part", "id", "42809", "far_part"),
        ("part", "id", "42P16", "inherited from app.parts"),
        ("parts", "id", "42P16", "app.far_part"),
        ("checked", "id", "42883", "app.narrow(bigint) does not exist"),
        ("ranged", "id", "42883", "int4range(bigint, bigint"),
        ("generated", "id", "42883", "int4range(bigint, bigint) does not exist"),
        ("odd", "id", "2BP01", "text search configuration app.unknown"),
        ("parent", "id", "42P16", "inherit"),
        ("child", "id", "42P16", "inherit"),
        ("typed", "id", "42P16", "typed table"),
        ("stored", "id", "42P16", "nest of app.store"),
        ("domain", "id", "42804", "app.number"),
        ("returned", "id", "42P16", "row type function app.picks(integer) returns"),
        ("late", "id", "42P16", "~zz"),
        ("view", "id", "42809", "view"),
        ("plain", "none", "42703", "none"),
        ("plain", "other", "42804", "text"),
        ("plain", "g", "42P16", "generated"),
    ] {
        let refusal = refused(session.query(&format!("SELECT * FROM snowflake_widen('app.{table}', '{column}')"), &[]));
        assert_eq!(refusal.sqlstate, sqlstate, "{table}: {refusal:?}");
        assert!(format!("{refusal:?}").contains(words), "{table}: {refusal:?}");
    }
    assert_eq!(before, catalogs(&mut session));
    let all = steps(&mut session, "snowflake_widen('app.whole', 'id')");
    run(&mut session, &all);
    let mut owner = database.connect_as(&role);
    let refusal = refused(owner.query("SELECT * FROM snowflake_widen('app.key', 'id')", &[]));
    assert_eq!(
        (refusal.sqlstate.as_str(), refusal.message.as_str()),
        ("42501", "must be owner of table app.foreigner")
    );
    let refusal = refused(owner.query("SELECT * FROM snowflake_widen('app.own', 'id')", &[]));
    assert_eq!(refusal.sqlstate, "42501", "{refusal:?}");
    let objects =
        ["publication sent", "table app.broad", "table app.hidden", "view app.view_of", "view app.view_of_view"];
    assert_eq!(refusal.detail.unwrap(), objects.map(|object| format!("must be owner of {object}")).join("\n"));
    let maker = database.role("maker");
    session
        .batch_execute(&format!(
            "CREATE SCHEMA closed; CREATE TABLE closed.t (id integer PRIMARY KEY); ALTER TABLE closed.t OWNER TO {maker};
             GRANT USAGE ON SCHEMA closed TO {maker}"
        ))
        .unwrap();
    let call = "SELECT * FROM snowflake_widen('closed.t', 'id')";
    let refusal = refused(database.connect_as(&maker).query(call, &[]));
    assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), ("42501", "permission denied for schema closed"));
    session.batch_execute("BEGIN; INSERT INTO app.plain VALUES (1)").unwrap();
    assert_eq!(refused(session.query("SELECT * FROM snowflake_widen('app.plain', 'id')", &[])).sqlstate, "25001");
    session.batch_execute("ROLLBACK; BEGIN READ ONLY").unwrap();
    assert_eq!(refused(session.query("SELECT * FROM snowflake_widen('app.plain', 'id')", &[])).sqlstate, "25006");
}

/// A publication of all columns, whose subscriber has the new column by then, as the notes say, and
/// one of a list of columns.
#[test]
fn a_subscriber_gets_each_row_of_tables_that_are_widened() {
    let publisher = Server::drawing().config("wal_level", "logical").start_with_extension();
    let subscriber = Server::builder().set("worker_id", "6").start_with_extension();
    let mut session = publisher.connect();
    session
        .batch_execute(
            "CREATE TABLE t (id serial PRIMARY KEY, note text); CREATE TABLE u (id serial PRIMARY KEY, t integer REFERENCES t);
             CREATE PUBLICATION p FOR TABLE t, u (id, t)",
        )
        .unwrap();
    let mut there = subscriber.connect();
    let conninfo = publisher.conninfo().replace('\'', "''");
    let tables = "CREATE TABLE t (id bigint PRIMARY KEY, note text); CREATE TABLE u (id integer PRIMARY KEY, t bigint)";
    there.batch_execute(tables).unwrap();
    there.batch_execute(&format!("CREATE SUBSCRIPTION s CONNECTION '{conninfo}' PUBLICATION p")).unwrap();
    let all = steps(&mut session, "snowflake_widen('t', 'id')");
    let notes = session.value("SELECT string_agg(step, ' ') FROM snowflake_widen('t', 'id') WHERE phase = 'notes'");
    let added = beside(&mut session, "t", 1);
    assert!(notes.contains(&format!("publication p sends all columns, so add column {added} bigint")), "{notes}");
    assert!(!notes.contains("public.u: publication"), "{notes}");
    there.batch_execute(&format!("ALTER TABLE t ADD {added} bigint")).unwrap();
    for phase in TO_SWITCH {
        session
            .batch_execute(
                "INSERT INTO t (note) VALUES ('a'), ('b'), ('c'); INSERT INTO u (t) SELECT max(id) FROM t;
                 UPDATE t SET note = 'd' WHERE id % 3 = 0; UPDATE t SET id = -id WHERE id % 3 = 2; DELETE FROM t WHERE id % 3 = 1",
            )
            .unwrap();
        run_phases(&mut session, &all, &[phase]);
    }
    session
        .batch_execute("INSERT INTO t (note, id) VALUES ('far', 3000000000); INSERT INTO u (t) VALUES (3000000000)")
        .unwrap();
    let rows = "SELECT concat((SELECT string_agg(concat(id, note), ' ' ORDER BY id) FROM t), (SELECT string_agg(concat(id, '-', t), ' ' ORDER BY id) FROM u))";
    let sent = session.value(rows);
    assert!(sent.contains("3000000000far"), "{sent}");
    wait_until("all rows to arrive", || there.value(rows) == sent);
}

/// Partitions that a publication sends as one table or as their own, with and without a list of
/// columns and a condition, of the partitioned table and of single partitions.
#[test]
fn a_subscriber_gets_each_row_of_partitioned_tables_that_are_widened() {
    let publisher = Server::drawing().config("wal_level", "logical").start_with_extension();
    let subscriber = Server::builder().set("worker_id", "6").start_with_extension();
    let mut session = publisher.connect();
    session
        .batch_execute(
            "CREATE TABLE root (id serial, part integer, note text, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
             CREATE TABLE leaf (LIKE root INCLUDING ALL) PARTITION BY LIST (part);
             CREATE TABLE each (LIKE root INCLUDING ALL) PARTITION BY LIST (part);
             CREATE TABLE silent (id integer, part integer) PARTITION BY LIST (part);
             CREATE TABLE root_0 PARTITION OF root FOR VALUES IN (0); CREATE TABLE root_1 (note text, part integer NOT NULL, id integer NOT NULL);
             ALTER TABLE root ATTACH PARTITION root_1 FOR VALUES IN (1);
             CREATE TABLE leaf_0 PARTITION OF leaf FOR VALUES IN (0); CREATE TABLE leaf_1 PARTITION OF leaf DEFAULT PARTITION BY LIST (part);
             CREATE TABLE leaf_1a PARTITION OF leaf_1 FOR VALUES IN (1);
             CREATE TABLE each_0 PARTITION OF each FOR VALUES IN (0); CREATE TABLE each_1 PARTITION OF each FOR VALUES IN (1);
             CREATE TABLE silent_0 PARTITION OF silent DEFAULT;
             CREATE TABLE refers (id serial PRIMARY KEY, root integer, part integer, FOREIGN KEY (root, part) REFERENCES root ON UPDATE CASCADE ON DELETE CASCADE);
             CREATE PUBLICATION as_one FOR TABLE root (id, part) WHERE (id <> 4), refers WITH (publish_via_partition_root);
             CREATE PUBLICATION as_leaves FOR TABLE leaf; CREATE PUBLICATION of_parts FOR TABLE each_0 (part, id) WHERE (id <> 4), each_1;
             CREATE PUBLICATION unsent FOR TABLE silent WITH (publish_via_partition_root)",
        )
        .unwrap();
    let notes = |session: &mut Client, table: &str| {
        session.value(&format!("SELECT coalesce(string_agg(step, ' '), '') FROM snowflake_widen('{table}', 'id') WHERE step ~ 'publication'"))
    };
    let advice = "sends all columns, so add column";
    for (table, sent, unsent) in [
        ("root", &["refers: publication as_one"][..], &["root: publication", "root_0"][..]),
        ("leaf", &["leaf_0: publication as_leaves", "leaf_1a: publication as_leaves"], &["leaf: ", "leaf_1: "]),
        ("each", &["each_1: publication of_parts"], &["each_0: "]),
        ("silent", &["silent: publication unsent"], &["silent_0: publication unsent sends all columns"]),
    ] {
        let found = notes(&mut session, table);
        assert!(sent.iter().all(|words| found.contains(&format!("public.{words} {advice}"))), "{found}");
        assert!(!unsent.iter().any(|words| found.contains(&format!("public.{words}"))), "{found}");
    }
    // Rows that no session could update stay so until the table has a replica identity.
    let found = notes(&mut session, "silent");
    assert!(
        found.contains("public.silent_0: publication unsent sends updates, but the table has no replica identity"),
        "{found}"
    );
    session.batch_execute("INSERT INTO silent VALUES (1, 1)").unwrap();
    let all = steps(&mut session, "snowflake_widen('silent', 'id')");
    run_phases(&mut session, &all, &["prepare"]);
    let refusal = refused(session.batch_execute("CALL snowflake_widen_fill('silent_0')"));
    assert_eq!(refusal.sqlstate, "55000", "{refusal:?}");
    session.batch_execute("ALTER TABLE silent_0 REPLICA IDENTITY FULL").unwrap();
    assert!(!notes(&mut session, "silent").contains("no replica identity"));
    run(&mut session, &all);

    let mut there = subscriber.connect();
    let key = "bigint, part integer, note text, PRIMARY KEY (id, part)";
    for (table, whole) in [("root", ""), ("leaf_0", "leaf"), ("leaf_1a", "leaf"), ("each_0", ""), ("each_1", "each")] {
        there.batch_execute(&format!("CREATE TABLE {table} (id {key})")).unwrap();
        if !whole.is_empty() {
            let added = beside(&mut session, whole, 1);
            there.batch_execute(&format!("ALTER TABLE {table} ADD {added} bigint")).unwrap();
        }
    }
    let added = beside(&mut session, "refers", 2);
    let refers = format!("CREATE TABLE refers (id integer PRIMARY KEY, root bigint, part integer, {added} bigint)");
    there.batch_execute(&refers).unwrap();
    let conninfo = publisher.conninfo().replace('\'', "''");
    let subscribe = format!("CREATE SUBSCRIPTION s CONNECTION '{conninfo}' PUBLICATION as_one, as_leaves, of_parts");
    there.batch_execute(&subscribe).unwrap();
    // What is written from now on is sent row by row.
    wait_until("the subscription has copied all tables", || {
        there.value("SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel") == "true"
    });
    let written = |session: &mut Client| {
        for table in ["root", "leaf", "each"] {
            session
                .batch_execute(&format!(
                    "INSERT INTO {table} (part, note) VALUES (0, 'a'), (1, 'b'), (0, 'c'), (1, 'd');
                     UPDATE {table} SET note = 'e', part = 1 - part WHERE id % 5 = 0; UPDATE {table} SET id = -id WHERE id % 4 = 3;
                     DELETE FROM {table} WHERE id % 6 = 1"
                ))
                .unwrap();
        }
        session
            .batch_execute("DELETE FROM refers WHERE id % 3 = 0; INSERT INTO refers (root, part) SELECT id, part FROM root ORDER BY abs(id) DESC LIMIT 2")
            .unwrap();
    };
    for phase in ["prepare", "fill", "build", "switch", "check", "clean up"] {
        written(&mut session);
        for table in ["root", "leaf", "each"] {
            let all = steps(&mut session, &format!("snowflake_widen('{table}', 'id')"));
            run_phases(&mut session, &all, &[phase]);
        }
    }
    written(&mut session);
    let far = "INSERT INTO root (id, part) VALUES (3000000000, 0); INSERT INTO leaf (id, part) VALUES (3000000000, 1);
        INSERT INTO each (id, part) VALUES (3000000000, 0), (3000000000, 1); INSERT INTO refers (root, part) VALUES (3000000000, 0)";
    session.batch_execute(far).unwrap();
    for (table, columns, condition) in [
        ("root", "id, part", "id <> 4"),
        ("refers", "id, root, part", "true"),
        ("leaf_0", "id, part, note", "true"),
        ("leaf_1a", "id, part, note", "true"),
        ("each_0", "id, part", "id <> 4"),
        ("each_1", "id, part, note", "true"),
    ] {
        let rows = format!(
            "SELECT string_agg(concat_ws(' ', {columns}), ', ' ORDER BY concat_ws(' ', {columns})) FROM {table} WHERE {condition}"
        );
        let sent = session.value(&rows);
        assert!(sent.contains("3000000000") || table == "leaf_0", "{sent}");
        let condition_free = rows.replace(condition, "true");
        wait_until("all rows to arrive", || there.value(&condition_free) == sent);
    }
    // The lists and conditions are those of before.
    let published = "SELECT string_agg(concat_ws(' ', prrelid::regclass, (SELECT string_agg(attname, ' ' ORDER BY attname) FROM pg_attribute
            WHERE attrelid = prrelid AND attnum = ANY (prattrs::int2[])), pg_get_expr(prqual, prrelid)), ', ' ORDER BY prrelid::regclass::text)
        FROM pg_publication_rel WHERE prqual IS NOT NULL";
    assert_eq!(session.value(published), "each_0 id part (id <> 4), root id part (id <> 4)");
}

/// After the switch, the same text would mean other columns.
#[test]
fn a_definition_that_lists_columns_by_their_places_is_refused() {
    let database = Database::with(
        "CREATE TABLE app.t (id integer PRIMARY KEY, n integer); CREATE TABLE app.u (id integer PRIMARY KEY, n integer); CREATE TABLE app.o (id integer);
         INSERT INTO app.t VALUES (1, 2); INSERT INTO app.u VALUES (1, 3); INSERT INTO app.o VALUES (1)",
    );
    let mut session = database.connect();
    let call = "snowflake_widen('app.t', 'id')";
    for definition in [
        "VIEW app.v AS SELECT key, n FROM app.t AS x(key)",
        "VIEW app.v AS SELECT m FROM (app.t JOIN app.u USING (id)) AS q(id, n, m)",
        "MATERIALIZED VIEW app.v AS SELECT key FROM app.o, ONLY app.t AS \"X\"(key)",
        "FUNCTION app.v(one integer) RETURNS integer LANGUAGE sql BEGIN ATOMIC SELECT n FROM app.t AS x(key) WHERE key = one; END",
    ] {
        session.batch_execute(&format!("CREATE {definition}")).unwrap();
        let refusal = refused(session.query(&format!("SELECT * FROM {call}"), &[]));
        assert_eq!(refusal.sqlstate, "2BP01", "{definition}: {refusal:?}");
        let detail = refusal.detail.unwrap();
        assert!(detail.contains("app.v") && detail.ends_with(": it lists columns by their places"), "{detail}");
        session.batch_execute(&format!("DROP {} app.v", definition.split(" app.v").next().unwrap())).unwrap();
    }
    // Lists of what keeps its columns, and calls.
    session
        .batch_execute(
            "CREATE VIEW app.v AS SELECT a, i, g, j.n, coalesce(t.n, abs(t.id)) AS c FROM app.t JOIN app.u j USING (id), app.o AS o(i),
                 (SELECT id FROM app.t) AS s(a), (VALUES (1)) AS w(v), generate_series(1, abs((SELECT max(id) FROM app.t))) AS g(g)
             WHERE (t.n + 1) IN (SELECT abs(id) + 2 FROM app.t)",
        )
        .unwrap();
    let rows = "SELECT string_agg(v::text, ' ') FROM app.v";
    let before = session.value(rows);
    let all = steps(&mut session, call);
    run(&mut session, &all);
    assert_eq!(session.value(rows), before);
    // One that comes later.
    session.batch_execute("CREATE VIEW app.late AS SELECT a FROM app.u AS x(a)").unwrap();
    assert_eq!(refused(session.query("SELECT * FROM snowflake_widen('app.u', 'id')", &[])).sqlstate, "2BP01");
}

/// A session that lists no columns would lose the value that it means for the key.
#[test]
fn a_row_without_a_list_of_columns_is_refused_while_both_columns_are_there() {
    let database = Database::with(
        "CREATE TABLE app.t (id integer PRIMARY KEY); INSERT INTO app.t SELECT generate_series(1, 9);
         CREATE TABLE app.u (t smallint REFERENCES app.t, part integer, note integer) PARTITION BY LIST (part);
         CREATE TABLE app.u_0 PARTITION OF app.u FOR VALUES IN (0); CREATE TABLE app.u_1 PARTITION OF app.u FOR VALUES IN (1)",
    );
    let mut session = database.connect();
    let all = steps(&mut session, "snowflake_widen('app.t', 'id')");
    let positional = "INSERT INTO app.u VALUES (5, 0, 7)";
    for phase in ["prepare", "fill", "build"] {
        session.batch_execute(positional).unwrap();
        run_phases(&mut session, &all, &[phase]);
    }
    run_phases(&mut session, &all, &["switch", "check"]);
    let refusal = refused(session.batch_execute(positional));
    assert_eq!(refusal.sqlstate, "27000", "{refusal:?}");
    let former = beside(&mut session, "app.u", 1);
    assert_eq!(refusal.message, format!(r#"INSERT gives value 5 to the former column "{former}" of table "u_0""#));
    // All others go on: rows that get another value, or NULL, or one that does not fit, and another
    // partition.
    session
        .batch_execute(
            "INSERT INTO app.t (id) VALUES (100000); INSERT INTO app.u (t, part, note) VALUES (5, 0, 8), (NULL, 0, 9), (100000, 1, 10);
             UPDATE app.u SET part = 1, t = 6 WHERE note = 8; UPDATE app.u SET part = 1, t = 4 WHERE note = 9;
             UPDATE app.u SET part = 0, t = NULL WHERE note = 10; UPDATE app.u SET t = NULL WHERE note = 8; UPDATE app.u SET part = 0 WHERE note = 8",
        )
        .unwrap();
    let rows = "SELECT string_agg(concat_ws(' ', t, part, note), ', ' ORDER BY note, part) FROM app.u WHERE note > 7";
    assert_eq!(session.value(rows), "0 8, 4 1 9, 0 10");
    // A dump brings both.
    let restored = Database::with("DROP SCHEMA app; DROP EXTENSION snowflake_id");
    restored.psql(&database.dump()).unwrap();
    assert_eq!(restored.connect().value(rows), "0 8, 4 1 9, 0 10");
    session.batch_execute("CREATE TABLE app.copy AS TABLE app.u; INSERT INTO app.u SELECT * FROM app.copy").unwrap();
    run_phases(&mut session, &all, &["clean up"]);
    assert_eq!(session.value("SELECT count(*) FROM app.u WHERE t = 5 AND note = 7"), "6");
}

#[test]
fn nothing_is_widened_on_a_standby() {
    let server = Server::drawing().start_with_extension();
    server.connect().batch_execute("CREATE TABLE t (id serial PRIMARY KEY)").unwrap();
    let standby = server.standby().start();
    for call in ["snowflake_widen('t', 'id')", "snowflake_widen_back('t', 'id')"] {
        let refusal = refused(standby.connect().query(&format!("SELECT * FROM {call}"), &[]));
        assert_eq!(refusal.sqlstate, "25006", "{refusal:?}");
    }
}

/// An owner without other rights widens a table, and sees how far the fill has come.
#[test]
fn an_owner_needs_no_other_rights() {
    let database = Database::with("");
    let role = database.role("owner");
    let mut owner = database.connect_as(&role);
    owner
        .batch_execute(
            "CREATE TABLE app.t (id serial PRIMARY KEY); INSERT INTO app.t SELECT FROM generate_series(1, 5000)",
        )
        .unwrap();
    let all = steps(&mut owner, "snowflake_widen('app.t', 'id')");
    run_phases(&mut owner, &all, &["prepare", "fill"]);
    let progress = "SELECT format('%s %s %s', rows, blocks_done = blocks, time_left) FROM snowflake_widen_progress";
    assert_eq!(owner.value(progress), "5000 t 00:00:00");
    let mut other = database.connect_as(&database.role("other"));
    assert_eq!(other.value("SELECT count(*) FROM snowflake_widen_progress"), "0");
    let refusal = refused(other.batch_execute("SELECT snowflake_plan.widen_take_up('app.t')"));
    assert_eq!(refusal.sqlstate, "42501");
    other
        .batch_execute(
            "SELECT snowflake_plan.widen_note('app.t', 'mine'), snowflake_plan.lock_for_widen('{app.t}', true)",
        )
        .unwrap();
    run_phases(&mut owner, &all, &["build", "switch", "clean up"]);
    assert_eq!(owner.value("SELECT pg_typeof(id) FROM app.t LIMIT 1"), "bigint");
}

#[test]
fn a_fill_takes_any_number_of_blocks() {
    let database = Database::with(
        "CREATE TABLE app.t (id serial PRIMARY KEY); INSERT INTO app.t SELECT FROM generate_series(1, 1000)",
    );
    let mut session = database.connect();
    let all = steps(&mut session, "snowflake_widen('app.t', 'id')");
    run_phases(&mut session, &all, &["prepare"]);
    session.batch_execute("CALL snowflake_widen_fill('app.t', 2147483647)").unwrap();
    for (arguments, sqlstate) in [("'app.t', 0", "22023"), ("NULL", "22004"), ("'app.t', pause => NULL", "22004")] {
        let refusal = refused(session.batch_execute(&format!("CALL snowflake_widen_fill({arguments})")));
        assert_eq!(refusal.sqlstate, sqlstate, "{arguments}: {refusal:?}");
    }
    run(&mut session, &all);
    // A call for a table that has no new column leaves nothing.
    session.batch_execute("CALL snowflake_widen_fill('app.t')").unwrap();
    assert_eq!(session.value("SELECT count(*) FROM snowflake_widen_progress"), "0");
}

/// A fill that policies would hide rows from.
#[test]
fn a_fill_that_would_miss_rows_is_refused() {
    let database = Database::with("");
    let role = database.role("owner");
    let mut owner = database.connect_as(&role);
    owner
        .batch_execute(
            "CREATE TABLE app.t (id integer); INSERT INTO app.t VALUES (1), (2); CREATE POLICY one ON app.t USING (id = 1);
             ALTER TABLE app.t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        )
        .unwrap();
    let notes = owner.value("SELECT string_agg(step, ' ') FROM snowflake_widen('app.t', 'id') WHERE phase = 'notes'");
    assert!(notes.contains("BYPASSRLS"), "{notes}");
    let all = steps(&mut owner, "snowflake_widen('app.t', 'id')");
    run_phases(&mut owner, &all, &["prepare"]);
    assert_eq!(refused(owner.batch_execute("CALL snowflake_widen_fill('app.t')")).sqlstate, "42501");
    run_phases(&mut database.connect(), &all, &["fill"]);
    run_phases(&mut owner, &all, &["build", "switch"]);
}

/// A fill that is ended goes on where it stopped, also when the whole server crashes with it.
#[test]
fn a_fill_goes_on_where_it_stopped() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    session
        .batch_execute("CREATE TABLE t (id serial PRIMARY KEY, note text); INSERT INTO t (note) SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
        .unwrap();
    let all = steps(&mut session, "snowflake_widen('t', 'id')");
    run_phases(&mut session, &all, &["prepare"]);
    for least in [5, 50] {
        let mut victim = server.connect();
        let pid = victim.pid();
        let running = thread::spawn(move || victim.batch_execute("CALL snowflake_widen_fill('t', 1, '20 ms')"));
        wait_until("some blocks are filled", || {
            session.value(&format!("SELECT coalesce(max(blocks_done), 0) > {least} FROM snowflake_widen_progress"))
                == "true"
        });
        if least == 5 {
            session.batch_execute(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
        } else {
            server.kill_backend(pid);
        }
        running.join().unwrap().unwrap_err();
        server.wait_until_ready();
        session = server.connect();
    }
    let done: i64 = session.value("SELECT blocks_done FROM snowflake_widen_progress").parse().unwrap();
    let column = beside(&mut session, "t", 1);
    let filled: i64 = session.value(&format!("SELECT count({column}) FROM t")).parse().unwrap();
    assert!(done > 50 && filled > 0 && filled < 2000, "{done} blocks, {filled} rows");
    session.batch_execute("CALL snowflake_widen_fill('t')").unwrap();
    assert_eq!(session.value("SELECT rows FROM snowflake_widen_progress"), (2000 - filled).to_string());
    run_phases(&mut session, &all, &["build", "switch", "clean up"]);
}

/// A database without the order of columns: the lines of its schema, and its rows as JSON.
fn described(database: &Database) -> Vec<String> {
    let dump = database.dump();
    let mut is_data = false;
    let mut lines: Vec<String> = Vec::new();
    for line in dump.lines() {
        is_data = (is_data || line.starts_with("COPY ")) && line != "\\.";
        // A sequence of bigint does not say so.
        if !is_data && !line.starts_with("--") {
            lines.push(line.trim().trim_end_matches(',').to_owned());
        }
    }
    let mut session = database.connect();
    let tables = session
        .query(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'app'::regnamespace",
            &[],
        )
        .unwrap();
    for table in tables {
        let table: String = table.get(0);
        let rows = session.query(&format!("SELECT to_jsonb(t)::text FROM {table} t"), &[]).unwrap();
        lines.extend(rows.iter().map(|row| format!("{table} {}", row.get::<_, &str>(0))));
    }
    lines.sort();
    lines
}

/// Writes rows of its own into any table, moves them from partition to partition, and takes them
/// back in the end.
fn write_for_a_while(database: &Database, tables: &[String], number: usize, is_over: &AtomicBool, turns: &AtomicU64) {
    let mut session = database.connect();
    let random = Random::new(number as u64);
    let mut known: Vec<(&String, usize)> = Vec::new();
    // Relaxed: the number only grows. Acquire: pairs with the store of `Ends`.
    while !(is_over.load(Ordering::Acquire) && known.is_empty()) {
        turns.fetch_add(1, Ordering::Relaxed);
        let chosen = (!known.is_empty()).then(|| random.below(known.len()));
        let statement = match (random.below(3), chosen) {
            (1, Some(place)) if !is_over.load(Ordering::Acquire) => {
                let (table, id) = known[place];
                format!("UPDATE {table} SET part = 1 - part WHERE id = {id}")
            }
            (2, Some(place)) => {
                let (table, id) = known.swap_remove(place);
                format!("DELETE FROM {table} WHERE id = {id}")
            }
            _ if known.len() > 20 || is_over.load(Ordering::Acquire) => continue,
            _ => {
                let table = &tables[random.below(tables.len())];
                // It fits into a smallint.
                let id = 8000 * (number + 1) + random.below(4000);
                if known.contains(&(table, id)) {
                    continue;
                }
                known.push((table, id));
                format!("INSERT INTO {table} (id, part) OVERRIDING SYSTEM VALUE VALUES ({id}, {})", id % 2)
            }
        };
        match session.execute(&statement, &[]) {
            Ok(count) => assert_eq!(count, 1, "{statement}"),
            Err(error) => panic!("{statement}: {error:?}"),
        }
    }
}

/// Ends a statement as soon as it has begun, or later.
fn kill(database: &Database, statement: &str) {
    let mut victim = database.connect();
    let pid: i32 = victim.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    thread::scope(|scope| {
        scope.spawn(move || victim.batch_execute(statement).is_err());
        database.terminate(pid);
    });
    let mut session = database.connect();
    wait_until("the session has ended", || {
        session.value(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}")) == "0"
    });
}

/// Three sessions write meanwhile, and in each phase a statement is killed.
#[test]
fn any_tables_become_what_they_would_be_if_they_had_been_written_so() {
    for seed in 1..=12 {
        let random = Random::new(seed);
        let tables = any_schema::tables(&random);
        let schema = any_schema::schema(&tables, &random);
        println!("seed {seed}\n{schema}");
        let wanted = described(&Database::with(&side(&schema, true)));
        let database = Database::with(&side(&schema, false));
        let named = |table: &any_schema::Table| format!("app.\"{}\"", table.name);
        let targets: Vec<_> = tables.iter().filter(|table| table.takes_rows()).map(named).collect();
        let is_over = AtomicBool::new(false);
        let turns = [const { AtomicU64::new(0) }; 3];
        thread::scope(|scope| {
            // Also when an assertion fails.
            let _ends = Ends(&is_over);
            let writers: Vec<_> = turns
                .iter()
                .enumerate()
                .filter(|_| !targets.is_empty())
                .map(|(number, turns)| {
                    let (database, targets, is_over) = (&database, &targets, &is_over);
                    scope.spawn(move || write_for_a_while(database, targets, number, is_over, turns))
                })
                .collect();
            let mut session = database.connect();
            let go_on = || {
                let before: Vec<_> = turns.iter().map(|turns| turns.load(Ordering::Relaxed)).collect();
                wait_until("each session writes", || {
                    writers.iter().any(|writer| writer.is_finished())
                        || writers.is_empty()
                        || turns.iter().zip(&before).all(|(turns, before)| turns.load(Ordering::Relaxed) > *before)
                });
            };
            for table in tables.iter().filter(|table| table.converted) {
                let call = format!("snowflake_widen('{}', 'id', true)", named(table));
                for phase in ["prepare", "fill", "build", "switch", "check", "clean up"] {
                    go_on();
                    let all = steps(&mut session, &call);
                    let of_phase: Vec<_> = all.iter().filter(|step| step.phase == phase).collect();
                    if !of_phase.is_empty() {
                        let step = of_phase[random.below(of_phase.len())];
                        if !step.statement.contains("snowflake_convert(") {
                            kill(&database, &step.statement);
                        }
                    }
                    let all = steps(&mut session, &call);
                    run_phases(&mut session, &all, &[phase]);
                }
            }
        });
        let found = described(&database);
        let only = |these: &[String], those: &[String]| -> Vec<String> {
            these.iter().filter(|line| !those.contains(line)).cloned().collect()
        };
        assert_eq!((only(&wanted, &found), only(&found, &wanted)), (Vec::new(), Vec::new()), "seed {seed}");
    }
}

/// A stored row of the table's type, which a column came to hold after the call.
#[test]
fn a_switch_refuses_to_take_a_value_from_stored_rows() {
    let database = Database::with("CREATE TABLE app.t (id serial PRIMARY KEY); INSERT INTO app.t DEFAULT VALUES");
    let mut session = database.connect();
    let all = steps(&mut session, "snowflake_widen('app.t', 'id')");
    run_phases(&mut session, &all, &TO_SWITCH[..3]);
    session.batch_execute("CREATE TABLE app.held (row app.t)").unwrap();
    let switch = in_phases(&all, &["switch"]).next().unwrap();
    assert_eq!(refused(session.batch_execute(&switch.statement)).sqlstate, "42P16");
}

#[test]
fn each_rule_is_needed() {
    // What a statement says, what it says instead, and the test that finds it.
    type Lie = (&'static str, &'static str, fn());
    let lies: [Lie; 13] = [
        (
            " DEFERRABLE INITIALLY DEFERRED",
            " NOT DEFERRABLE",
            what_a_session_may_write_and_what_becomes_of_it_stays_as_it_was,
        ),
        (
            "SELECT snowflake_plan.widen_follow(",
            "SELECT concat(",
            what_a_session_may_write_and_what_becomes_of_it_stays_as_it_was,
        ),
        ("~été~", "~snowflake_", a_trigger_that_fires_last_changes_the_key_of_both_columns),
        ("SELECT snowflake_plan.widen_expect(", "SELECT concat(", what_was_left_out_or_changed_meanwhile_is_refused),
        ("SELECT snowflake_plan.widen_expect(", "SELECT concat(", a_switch_refuses_to_take_a_value_from_stored_rows),
        ("SELECT snowflake_plan.widen_require(", "SELECT concat(", what_was_left_out_or_changed_meanwhile_is_refused),
        // The rules of partitions: a default of its own, all trees alike, what is left to check.
        (
            "ALTER TABLE ONLY app.parts_2b ALTER COLUMN id SET DEFAULT",
            "SELECT",
            partitioned_tables_are_what_they_would_be_if_they_had_been_written_so,
        ),
        (
            "ALTER INDEX app.parts_page ATTACH PARTITION app.parts_0_page_id_idx",
            "SELECT",
            partitioned_tables_are_what_they_would_be_if_they_had_been_written_so,
        ),
        ("_2 IS '[[", "_2 IS '[]'; SELECT '[[", each_step_for_partitions_can_be_killed_and_taken_up_again),
        (
            "app.parts_0 ALTER COLUMN id DROP NOT NULL",
            "app.parts_0 ALTER COLUMN id SET STATISTICS -1",
            there_is_a_way_back_after_the_switch_while_the_old_column_is_there,
        ),
        (
            "SELECT snowflake_plan.widen_checked(",
            "SELECT concat(",
            there_is_a_way_back_after_the_switch_while_the_old_column_is_there,
        ),
        // The rules of the way back: the old column is kept equal, and holds all values.
        (
            "$SELECT snowflake_plan.widen_begin(",
            "$SELECT concat(",
            there_is_a_way_back_after_the_switch_while_the_old_column_is_there,
        ),
        (
            "SELECT snowflake_plan.widen_fits(",
            "SELECT concat(",
            there_is_a_way_back_after_the_switch_while_the_old_column_is_there,
        ),
    ];
    for (truth, lie, finds) in lies {
        // Before 18 it goes with that of the whole.
        if truth.ends_with("DROP NOT NULL") && postgres_version() < 18 {
            continue;
        }
        println!("{truth} -> {lie}");
        LIE.set(Some((truth, lie)));
        HAS_LIED.set(false);
        let found = panic::catch_unwind(finds);
        LIE.set(None);
        assert!(HAS_LIED.get(), "no statement has {truth}");
        assert!(found.is_err(), "{truth} -> {lie} is not found");
    }
}
