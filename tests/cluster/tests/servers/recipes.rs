//! The recipes of docs/migrate.md and docs/time.md that take several steps: a large integer table,
//! ids for old rows and in place of UUIDs, partitions by month, and reading new rows.
//!
//! `pages.rs` runs their blocks once, in the page's order. Here sessions write meanwhile, and the
//! rows are such as the page warns of.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cluster::drawing::at_once;
use cluster::pages::{block, psql};
use cluster::{Draw, Server, assert_ascending, refused, skip, wait_until};
use postgres::Client;

/// The tables' columns, indexes, constraints and triggers, and the view's definition.
fn definitions(session: &mut Client) -> String {
    session.value(
        "SELECT string_agg(line, E'\\n' ORDER BY line) FROM (
             SELECT concat_ws(' ', attrelid::regclass, attname, atttypid::regtype, attnotnull, pg_get_expr(adbin, adrelid))
             FROM pg_attribute LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum)
             WHERE attrelid IN ('visits'::regclass, 'clicks'::regclass) AND attnum > 0 AND NOT attisdropped
             UNION ALL SELECT concat_ws(' ', pg_get_indexdef(indexrelid), indisvalid, indisprimary) FROM pg_index
             WHERE indrelid IN ('visits'::regclass, 'clicks'::regclass)
             UNION ALL SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid), convalidated)
             FROM pg_constraint WHERE conrelid IN ('visits'::regclass, 'clicks'::regclass) AND contype <> 'n'
             UNION ALL SELECT concat_ws(' ', tgrelid::regclass, tgname) FROM pg_trigger WHERE NOT tgisinternal
             UNION ALL SELECT pg_get_viewdef('home_visits'::regclass)
         ) lines (line)",
    )
}

#[test]
fn a_large_table_and_what_refers_to_it_are_widened_while_sessions_write() {
    let server = Server::drawing().time_limit().start_with_extension();
    psql(&server, &[], block("widen-example"));
    let mut session = server.connect();
    session.batch_execute("ALTER TABLE visits ADD seen integer").unwrap();
    // Relaxed, here and below: nothing else depends on it.
    let (is_done, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let ids = at_once(&server, 4, |number, mut client| {
        if number == 0 {
            let before = definitions(&mut client);
            wait_until("the others", || rounds.load(Ordering::Relaxed) > 20);
            let call =
                "SELECT statement FROM snowflake_widen('visits', 'id') WHERE phase IN ('prepare', 'fill', 'build')";
            for statement in client.query(call, &[]).unwrap() {
                client.batch_execute(statement.get(0)).unwrap();
            }
            psql(&server, &[], block("widen-progress"));
            psql(&server, &[], block("widen-back"));
            assert_eq!(definitions(&mut client), before);
            psql(&server, &[], block("widen-notes"));
            psql(&server, &[], block("widen"));
            let after = rounds.load(Ordering::Relaxed);
            wait_until("draws", || rounds.load(Ordering::Relaxed) > after + 50);
            is_done.store(true, Ordering::Relaxed);
            return Vec::new();
        }
        let mut ids = Vec::new();
        while !is_done.load(Ordering::Relaxed) {
            let id = client.ids("INSERT INTO visits (page) VALUES ('home') RETURNING id::bigint").unwrap()[0];
            ids.push(id);
            let own = (ids.len() % 1600) * 3 + number;
            client
                .batch_execute(&format!(
                    "INSERT INTO clicks (visit) VALUES ({id}), ({own}); UPDATE visits SET seen = {number} WHERE id = {own}"
                ))
                .unwrap();
            rounds.fetch_add(1, Ordering::Relaxed);
        }
        ids
    });
    ids.iter().for_each(|ids| assert_ascending(ids));

    let all: usize = ids.iter().map(Vec::len).sum();
    assert_eq!(session.value("SELECT count(*) FROM visits"), (5000 + all).to_string());
    assert_eq!(session.value("SELECT count(*) FROM clicks"), (5000 + 2 * all).to_string());
    assert_eq!(session.value("SELECT count(*) FROM home_visits"), (5000 + all).to_string());
    assert_eq!(session.value("SELECT count(*) FROM clicks LEFT JOIN visits ON id = visit WHERE id IS NULL"), "0");
    let definitions = definitions(&mut session);
    for expected in [
        "visits id bigint t snowflake_next()",
        "clicks visit bigint t",
        "CREATE UNIQUE INDEX visits_pkey ON public.visits USING btree (id) t t",
        "CREATE INDEX visits_page ON public.visits USING btree (page, id) t f",
        "CREATE INDEX clicks_visit ON public.clicks USING btree (visit) t f",
        "clicks clicks_visit_fkey FOREIGN KEY (visit) REFERENCES visits(id) t",
    ] {
        assert!(definitions.lines().any(|line| line == expected), "no {expected}:\n{definitions}");
    }
    assert!(!definitions.contains("wide"), "{definitions}");
    let refusal = refused(session.batch_execute("DELETE FROM visits WHERE id = (SELECT max(visit) FROM clicks)"));
    assert_eq!(refusal.sqlstate, "23503");
}

#[test]
fn old_rows_get_unique_ids_in_the_order_of_their_times() {
    let server = Server::drawing().start_with_extension();
    psql(&server, &[], block("old-rows-example"));
    let mut session = server.connect();
    // More rows than a tick has, just before rows of the next one. Rows whose order by id is not
    // that of their times. Rows from before the epoch. New rows.
    session
        .batch_execute(
            "INSERT INTO parcels (id, created_at)
                 SELECT 100000 + n, timestamptz '2026-04-01 00:00:00.0005Z' FROM generate_series(1, 10000) n
                 UNION ALL SELECT 90000 + n, '2026-04-01 00:00:00.001Z' FROM generate_series(1, 3) n
                 UNION ALL SELECT 80000 + n, timestamptz '2026-05-01Z' - n * interval '350 us' FROM generate_series(1, 5000) n
                 UNION ALL SELECT 70000 + n, timestamptz '2010-01-01Z' + n * interval '1 hour' FROM generate_series(1, 5000) n;
             INSERT INTO scans SELECT id, 'Bonn' FROM parcels WHERE id > 70000;
             INSERT INTO parcels (created_at) VALUES (now()), (now());
             CREATE TABLE before AS SELECT created_at, string_agg(place, '') AS places FROM parcels LEFT JOIN scans ON parcel = id
                 GROUP BY created_at",
        )
        .unwrap();
    let new = session.ids("SELECT id FROM parcels ORDER BY id DESC LIMIT 2").unwrap();
    psql(&server, &[], block("old-rows"));

    let ordered =
        "SELECT bool_and(id > before) FROM (SELECT id, lag(id) OVER (ORDER BY created_at, coalesce(old, id)) AS before
                   FROM parcels LEFT JOIN parcels_ids ON new = id) p";
    assert_eq!(session.value(ordered), "true");
    // 10,000 rows take two ticks and a half.
    let late = "SELECT max(abs(extract(epoch FROM snowflake_timestamp(id) - greatest(created_at, '2025-01-01Z'))))
                FROM parcels WHERE created_at >= '2025-01-01Z' AND created_at < '2026-11-01Z'";
    let late: f64 = session.value(late).parse().unwrap();
    assert!(late < 0.003, "{late}");
    let places =
        "SELECT count(*) FROM (SELECT created_at, string_agg(place, '') FROM parcels LEFT JOIN scans ON parcel = id
                  GROUP BY created_at EXCEPT TABLE before) x";
    assert_eq!(session.value(places), "0");
    assert_eq!(session.ids("SELECT id FROM parcels ORDER BY id DESC LIMIT 2").unwrap(), new);
    assert_eq!(session.value("SELECT count(*) FROM parcels_ids"), "20007");
    assert_eq!(session.value("SELECT convalidated FROM pg_constraint WHERE conname = 'scans_parcel_fkey'"), "true");
}

#[test]
fn ids_take_the_place_of_uuids_and_foreign_keys_follow() {
    let server = Server::drawing().start_with_extension();
    psql(&server, &[], block("uuid-example"));
    let mut session = server.connect();
    session
        .batch_execute(
            "INSERT INTO accounts (created_at) SELECT '2024-01-01Z'::timestamptz + n * interval '1 day' FROM generate_series(1, 1000) n
             UNION ALL SELECT '2026-06-01Z' FROM generate_series(1, 5000);
             INSERT INTO logins SELECT id, id::text FROM accounts",
        )
        .unwrap();
    psql(&server, &[], block("uuid"));
    // The two rows of the example say another place.
    assert_eq!(
        session.value("SELECT count(*) FROM logins JOIN accounts ON id = account WHERE place = uuid::text"),
        "6002"
    );
    let ordered = "SELECT bool_and(id > before) FROM
                   (SELECT id, lag(id) OVER (ORDER BY created_at, uuid) AS before FROM accounts) a";
    assert_eq!(session.value(ordered), "true");
    session.batch_execute("INSERT INTO accounts DEFAULT VALUES").unwrap();
    assert_eq!(session.value("SELECT max(id) > snowflake_min(now() - interval '1 hour') FROM accounts"), "true");
}

/// The names of the partitions of `samples`, in their order.
fn partitions(session: &mut Client) -> String {
    session.value(
        "SELECT string_agg(inhrelid::regclass::text, ' ' ORDER BY inhrelid::regclass::text) FROM pg_inherits
                   WHERE inhparent = 'samples'::regclass",
    )
}

#[test]
fn pg_cron_can_call_what_makes_and_drops_partitions() {
    let server = Server::drawing().start_with_extension();
    psql(&server, &[], block("partitions"));
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE SCHEMA cron;
             CREATE TABLE cron.jobs (command text);
             CREATE FUNCTION cron.schedule(job_name text, schedule text, command text) RETURNS bigint
                 BEGIN ATOMIC INSERT INTO cron.jobs VALUES (command) RETURNING 1; END",
        )
        .unwrap();
    session.batch_execute(block("partitions-daily")).unwrap();
    let call = session.value("SELECT command FROM cron.jobs");
    let count = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'measurements'::regclass";
    assert_eq!(session.value(count), "4");
    session.batch_execute(&call).unwrap();
    assert_eq!(session.value(count), "4");
}

#[test]
fn the_procedure_creates_months_ahead_and_drops_old_ones() {
    let server = Server::drawing().start_with_extension();
    // The months are those of UTC, whatever the session's time zone is.
    server.connect().batch_execute("ALTER DATABASE postgres SET timezone = 'Pacific/Kiritimati'").unwrap();
    psql(&server, &[], block("keep-months"));
    let mut session = server.connect();
    let call = "CALL keep_months('samples', ahead => 3, keep => '1 year')";

    let month = |ago: i32| format!("date_trunc('month', now() AT TIME ZONE 'UTC') - interval '{ago} months'");
    let ahead = "SELECT string_agg(to_char(date_trunc('month', now() AT TIME ZONE 'UTC') + n * interval '1 month', '\"samples_\"YYYY_MM'), ' ' ORDER BY n)
                 FROM generate_series(0, 3) n";
    let ahead = session.value(ahead);
    assert_eq!(partitions(&mut session), ahead);
    session.batch_execute("INSERT INTO samples (value) VALUES (1)").unwrap();

    // Months that ended a year ago or more, and one that did not, and one with a name of its own.
    let mut kept = String::new();
    for ago in [12, 13, 14] {
        let name = session.value(&format!("SELECT to_char({}, '\"samples_\"YYYY_MM')", month(ago)));
        let name = if ago == 14 { "samples_old".to_owned() } else { name };
        let [from, to] =
            [ago, ago - 1].map(|ago| session.value(&format!("snowflake_min(({}) AT TIME ZONE 'UTC')", month(ago))));
        session
            .batch_execute(&format!("CREATE TABLE {name} PARTITION OF samples FOR VALUES FROM ({from}) TO ({to})"))
            .unwrap();
        if ago == 12 {
            kept = name;
        }
    }
    // A reader of the table holds a lock: the call fails, and the next one succeeds.
    let mut reader = server.connect();
    reader.batch_execute("BEGIN; SELECT count(*) FROM samples").unwrap();
    assert_eq!(refused(session.batch_execute(call)).sqlstate, "55P03");
    reader.batch_execute("COMMIT").unwrap();
    session.batch_execute(call).unwrap();
    assert_eq!(partitions(&mut session), format!("{kept} {ahead} samples_old"));
    session.batch_execute(call).unwrap();
    // In a transaction block it cannot commit.
    session.batch_execute("DROP TABLE samples_old").unwrap();
    session.batch_execute(&format!("DROP TABLE {}", ahead.rsplit(' ').next().unwrap())).unwrap();
    assert_eq!(refused(session.batch_execute(&format!("BEGIN; {call}"))).sqlstate, "2D000");
}

/// A reader of new rows, as the page shows it: the rows after the last row that it has read.
struct Reader {
    last: (String, i64),
    read: BTreeMap<i64, u32>,
}

impl Reader {
    fn new() -> Self {
        Self { last: ("0".to_owned(), 0), read: BTreeMap::new() }
    }

    /// Reads what there is, and returns how many rows.
    fn read(&mut self, session: &mut Client) -> usize {
        let feed = block("feed");
        let (written_by, id) = &self.last;
        assert!(feed.contains("SELECT written_by, ") && feed.contains("('0', 0)"), "{feed}");
        let next = feed.replace("('0', 0)", &format!("('{written_by}', {id})"));
        let rows = session.query(&next.replace("SELECT written_by, ", "SELECT written_by::text, "), &[]).unwrap();
        for row in &rows {
            self.last = (row.get(0), row.get(1));
            *self.read.entry(self.last.1).or_default() += 1;
        }
        rows.len()
    }
}

/// A server whose table `orders` has the page's column.
fn fed() -> Server {
    let server = Server::drawing().config("max_prepared_transactions", "10").time_limit().start_with_extension();
    let table = "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_next(), item text);
                 INSERT INTO orders (item) VALUES ('tea'), ('coffee')";
    server.connect().batch_execute(table).unwrap();
    psql(&server, &[], block("feed-column"));
    server
}

#[test]
fn reading_above_the_last_id_misses_a_row_that_the_recipe_finds() {
    let server = fed();
    let (mut early, mut late, mut session) = (server.connect(), server.connect(), server.connect());
    let mut reader = Reader::new();
    assert_eq!(reader.read(&mut session), 2, "rows from before");

    let insert = "INSERT INTO orders (item) VALUES ('milk') RETURNING id";
    for end in ["COMMIT", "PREPARE TRANSACTION 'early'"] {
        early.batch_execute("BEGIN; SAVEPOINT s").unwrap();
        let first = early.ids(insert).unwrap()[0];
        let second = late.ids(insert).unwrap()[0];
        assert!(first < second);
        let visible = session.ids("SELECT max(id) FROM orders").unwrap();
        assert_eq!(visible, [second]);
        assert_eq!(reader.read(&mut session), 0, "an older transaction can still write");
        early.batch_execute(end).unwrap();
        if end != "COMMIT" {
            assert_eq!(reader.read(&mut session), 0, "a prepared transaction can still commit");
            early.batch_execute("COMMIT PREPARED 'early'").unwrap();
        }
        // The control.
        let missed = format!("SELECT count(*) FROM orders WHERE id > {second} AND id = {first}");
        assert_eq!(session.value(&missed), "0");
        assert_eq!(reader.read(&mut session), 2);
    }
}

#[test]
fn the_recipe_reads_each_row_once_while_sessions_write() {
    const ROUNDS: usize = 60;
    let server = fed();
    let writing = AtomicUsize::new(4);
    let read = at_once(&server, 5, |number, mut client| {
        if number < 4 {
            for round in 0..ROUNDS {
                client.batch_execute("BEGIN").unwrap();
                for _ in 0..=(round + number) % 4 {
                    client.ids("INSERT INTO orders (item) VALUES ('tea'), ('milk') RETURNING id").unwrap();
                }
                client.batch_execute(if (round + number) % 5 == 0 { "ROLLBACK" } else { "COMMIT" }).unwrap();
            }
            writing.fetch_sub(1, Ordering::SeqCst);
            return Vec::new();
        }
        let mut reader = Reader::new();
        loop {
            let is_over = writing.load(Ordering::SeqCst) == 0;
            if reader.read(&mut client) == 0 && is_over {
                break;
            }
        }
        assert!(reader.read.values().all(|times| *times == 1), "each row is read once");
        reader.read.into_keys().collect()
    });
    assert_eq!(server.connect().ids("SELECT id FROM orders ORDER BY id").unwrap(), read[4]);
}

/// The functions fit integer keys. Afterwards, one is called with a key that is too long.
#[test]
fn functions_that_a_conversion_breaks_are_found_before_commit() {
    let server = Server::drawing().start_with_extension();
    if !server.has_extension("plpgsql_check") {
        return skip("plpgsql_check is not installed");
    }
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE SCHEMA shop;
             CREATE TABLE shop.articles (id serial PRIMARY KEY);
             CREATE FUNCTION shop.count(article integer) RETURNS void LANGUAGE plpgsql AS 'BEGIN END';
             CREATE FUNCTION shop.counted() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN PERFORM shop.count(new.id); RETURN new; END';
             CREATE TRIGGER counted BEFORE INSERT ON shop.articles FOR EACH ROW EXECUTE FUNCTION shop.counted()",
        )
        .unwrap();
    let found = || {
        let printed = psql(&server, &["--tuples-only", "--no-align"], block("check-functions"));
        printed.lines().filter(|line| line.contains("|error|")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(found(), [] as [&str; 0]);
    session.batch_execute("SELECT snowflake_convert('shop.articles', 'id', rewrite => true)").unwrap();
    let broken = found();
    assert!(broken.len() == 1 && broken[0].starts_with("shop.counted()|1|error|"), "{broken:?}");
}

/// Without it, `OVERRIDING USER VALUE` would store the values of the source.
#[test]
fn a_trigger_keeps_what_generated_always_has_protected() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE TABLE invoices (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n integer);
             CREATE TABLE source AS SELECT 7::bigint AS id, 1 AS n;
             SELECT snowflake_convert('invoices', 'id')",
        )
        .unwrap();
    psql(&server, &[], block("keep-always"));
    // In a session that has not drawn, too.
    assert_eq!(refused(session.batch_execute("INSERT INTO invoices VALUES (7)")).sqlstate, "55000");
    session.batch_execute("INSERT INTO invoices (n) SELECT n FROM source, generate_series(1, 3)").unwrap();
    session.batch_execute("INSERT INTO invoices (n) VALUES (1), (2) ON CONFLICT DO NOTHING").unwrap();
    session.batch_execute("UPDATE invoices SET n = 3").unwrap();
    for statement in [
        "INSERT INTO invoices VALUES (7, 1)",
        "INSERT INTO invoices OVERRIDING USER VALUE SELECT * FROM source",
        "INSERT INTO invoices (id, n) VALUES (DEFAULT, 1), (7, 1)",
        "UPDATE invoices SET id = 7 WHERE n = 3",
    ] {
        assert_eq!(refused(session.batch_execute(statement)).sqlstate, "428C9", "{statement}");
    }
    assert_eq!(session.value("SELECT count(*) || ' ' || count(*) FILTER (WHERE id < 10000) FROM invoices"), "5 0");
}

/// Such as of JPA, of ora2pg, and of a schema that was made by hand.
#[test]
fn all_columns_of_a_schema_that_draw_from_any_sequence_are_converted_and_the_rest_is_named() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    session
        .batch_execute(
            "CREATE SCHEMA shop;
             CREATE SEQUENCE shop.hibernate_sequence; CREATE SEQUENCE shop.elsewhere; CREATE SEQUENCE public.other;
             CREATE TABLE shop.jpa_1 (id bigint PRIMARY KEY DEFAULT nextval('shop.hibernate_sequence'));
             CREATE TABLE shop.jpa_2 (id integer PRIMARY KEY DEFAULT nextval('shop.hibernate_sequence'),
                 jpa_1 bigint REFERENCES shop.jpa_1);
             CREATE TABLE shop.by_text (id bigint DEFAULT nextval('public.other'::text));
             CREATE TABLE shop.computed (id bigint DEFAULT nextval('public.other') * 2 + 1);
             CREATE TABLE shop.\"Always\" (\"Id\" integer GENERATED ALWAYS AS IDENTITY);
             CREATE TABLE shop.serial (id smallserial, day date) PARTITION BY LIST (day);
             CREATE TABLE shop.part PARTITION OF shop.serial DEFAULT;
             CREATE TABLE shop.parent (id serial); CREATE TABLE shop.child () INHERITS (shop.parent);
             CREATE TABLE shop.own (id bigserial); ALTER TABLE shop.own ALTER id DROP DEFAULT;
             CREATE DOMAIN shop.key AS bigint;
             CREATE TABLE shop.of_domain (id shop.key DEFAULT nextval('public.other'));
             CREATE TABLE shop.by_hand (id bigint PRIMARY KEY); CREATE TABLE shop.one (id bigint PRIMARY KEY REFERENCES shop.by_hand);
             CREATE TABLE shop.named (name text PRIMARY KEY DEFAULT 'N' || nextval('public.other'), n integer DEFAULT 1);
             CREATE TABLE public.not_this (id serial)",
        )
        .unwrap();
    let printed = psql(&server, &["--tuples-only", "--no-align"], block("whole-schema"));
    assert_eq!(
        printed.lines().collect::<Vec<_>>(),
        [
            "column shop.by_hand.id, key without a default",
            "column shop.named.name, ('N'::text || nextval('other'::regclass))",
            "sequence shop.elsewhere",
            "sequence shop.hibernate_sequence",
        ]
    );
    let draw = "SELECT string_agg(attrelid::regclass::text, ' ' ORDER BY attrelid)
        FROM pg_attrdef JOIN pg_attribute ON (attrelid, attnum) = (adrelid, adnum)
        WHERE pg_get_expr(adbin, adrelid) = 'snowflake_next()'";
    let all = "shop.jpa_1 shop.jpa_2 shop.by_text shop.computed shop.\"Always\" shop.serial shop.part shop.parent \
        shop.child shop.own shop.of_domain";
    assert_eq!(session.value(draw), all);
    assert_eq!(session.value("SELECT pg_get_serial_sequence('not_this', 'id')"), "public.not_this_id_seq");
}

/// The control is a sequence beside the counters, in the same transactions.
#[test]
fn documents_of_each_tenant_and_year_are_numbered_without_gaps_through_rollbacks_and_a_crash() {
    let server = Server::drawing().time_limit().start_with_extension();
    let (tables, document) =
        block("segment-gapless").split_once("-- The next document").expect("tables, then a document");
    let (_, document) = document.split_once('\n').expect("the statement follows its comment");
    let control = "CREATE SEQUENCE s; ALTER TABLE documents ADD control bigint DEFAULT nextval('s')";
    server.connect().batch_execute(&format!("{tables}; {control}")).unwrap();
    let issue = |server: &Server, sessions: usize, documents: usize| {
        at_once(server, sessions, |session, mut client| {
            for turn in 0..documents {
                let [tenant, year] = [(session + turn) % 3, 2025 + turn % 2];
                client.batch_execute("BEGIN").unwrap();
                client.batch_execute(&document.replace("7, 2026", &format!("{tenant}, {year}"))).unwrap();
                client.batch_execute(if turn % 3 == 0 { "ROLLBACK" } else { "COMMIT" }).unwrap();
            }
            Vec::new()
        });
    };
    issue(&server, 8, 60);
    let mut open = server.connect();
    open.batch_execute(&format!("BEGIN; {document}")).unwrap();
    server.crash();
    server.start_again();
    issue(&server, 4, 20);
    let mut session = server.connect();
    let each = "SELECT count(*), bool_and(n = greatest AND least = 1)
                FROM (SELECT count(*) AS n, min(number) AS least, max(number) AS greatest FROM documents GROUP BY tenant, year) d";
    let row = session.query_one(each, &[]).unwrap();
    assert_eq!((row.get(0), row.get(1)), (6_i64, true));
    assert_eq!(session.value("SELECT count(*) < max(control) FROM documents"), "true", "nothing was rolled back");
}
