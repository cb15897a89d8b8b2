//! Each form of a condition on a time, on three tables of many rows: by the id, by a separate
//! indexed column, and by a UUID of version 7 with and without an index on its time.
//!
//! The result is a table of its own, in Markdown, because a form has four values of two kinds. The
//! command line must name this group: with 50 million rows it takes half an hour and 14 GB.

use std::fmt::Write;

use postgres::{Client, Error};

use crate::Failure;
use crate::figure::Measured;
use crate::report::{machine, shown, today};
use crate::series::{in_turn, median};
use crate::servers;
use crate::session::{Measure, Use};

/// The last moment of the rows' year. Constants, so that each run measures the same rows.
const END: &str = "'2026-11-22Z'::timestamptz";

/// Rows of the times of one year, evenly. Every table is loaded, indexed and cleaned up alone.
fn tables(rows: u64) -> Vec<String> {
    // The part of the year at which a row is, in whole milliseconds, as ids have them.
    let fill = |table: &str, columns: &str, values: &str| {
        format!(
            "CREATE TABLE {table} ({columns}, n int);
             INSERT INTO {table} SELECT {values}, n FROM (
                 SELECT n, {END} - interval '1 year' + (n * 31536000000 / {rows}) * interval '1 millisecond' AS t
                 FROM generate_series(0, {rows}::bigint - 1) n) s"
        )
    };
    let id = "snowflake_compose(t, 5, (n % 4096)::int)";
    // Its first 48 bits are the milliseconds, the rest is random except for version and variant.
    let uuid = "encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
                PLACING substring(int8send((extract(epoch FROM t) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid";
    let mut statements = Vec::new();
    for (table, columns, values) in [
        ("by_id", "id bigint", id),
        ("by_column", "id bigint, created_at timestamptz", &*format!("{id}, t")),
        ("by_uuid", "id uuid", uuid),
    ] {
        statements.push(fill(table, columns, values));
        statements.push(format!("ALTER TABLE {table} ADD PRIMARY KEY (id)"));
        if table == "by_column" {
            statements.push("CREATE INDEX by_column_time ON by_column (created_at)".to_owned());
        }
        statements.push(format!("VACUUM (ANALYZE) {table}"));
    }
    statements
}

const UUID_INDEX: [&str; 2] =
    ["CREATE INDEX by_uuid_time ON by_uuid (uuid_extract_timestamp(id))", "VACUUM (ANALYZE) by_uuid"];

/// The forms of docs/time.md, in its order: how the page calls it, and a query. `{t}` is the time,
/// `{from}` is the table with what reads the time beside it. `{day}` is a condition on what the
/// table has an index on: it bounds it by the first of each of two days, as users of a key write.
const FORMS: [(&str, &str); 16] = [
    ("`key >= bound AND key < bound`, a day", "SELECT count(*) FROM {from} WHERE {day}"),
    ("`t >= x AND t < y`, a day", "SELECT count(*) FROM {from} WHERE {t} >= '2026-06-01Z' AND {t} < '2026-06-02Z'"),
    ("`t = x`", "SELECT count(*) FROM {from} WHERE {t} = '2026-06-01Z'"),
    ("`t IN (x, y, z)`", "SELECT count(*) FROM {from} WHERE {t} IN ('2026-02-01Z', '2026-06-01Z', '2026-09-01Z')"),
    (
        "`t = ANY (array)`, 200 values of a day",
        "SELECT count(*) FROM {from} WHERE {t} = ANY (ARRAY(SELECT '2026-06-01Z'::timestamptz + n * interval '6 minutes'
         FROM generate_series(0, 199) n))",
    ),
    (
        "`t <@ range`, a day",
        "SELECT count(*) FROM {from} WHERE {t} <@ tstzrange('2026-06-01Z', '2026-06-02Z')",
    ),
    (
        "`x - t < interval '1 day'`",
        "SELECT count(*) FROM {from} WHERE timestamptz '2026-11-22Z' - {t} < interval '1 day'",
    ),
    (
        "`p.created_at` of `snowflake_parse(o.id)`, a day",
        "SELECT count(*) FROM {joined} WHERE {p} >= '2026-06-01Z' AND {p} < '2026-06-02Z'",
    ),
    ("`t::date = x`", "SELECT count(*) FROM {from} WHERE {t}::date = '2026-06-01'"),
    (
        "`(t AT TIME ZONE 'Europe/Berlin')::date = x`",
        "SELECT count(*) FROM {from} WHERE ({t} AT TIME ZONE 'Europe/Berlin')::date = '2026-06-01'",
    ),
    (
        "`t AT TIME ZONE interval '2 hours' >= x AND ... < y`, a day",
        "SELECT count(*) FROM {from} WHERE {t} AT TIME ZONE interval '2 hours' >= '2026-06-01'
         AND {t} AT TIME ZONE interval '2 hours' < '2026-06-02'",
    ),
    ("`date_trunc('day', t) = x`", "SELECT count(*) FROM {from} WHERE date_trunc('day', {t}) = '2026-06-01Z'"),
    (
        "`extract(year FROM t) = 2025`, 39 days",
        "SELECT count(*) FROM {from} WHERE extract(year FROM {t}) = 2025",
    ),
    (
        "`t + interval '1 month' >= x AND ... < y`, a day",
        "SELECT count(*) FROM {from} WHERE {t} + interval '1 month' >= '2026-06-01Z' AND {t} + interval '1 month' < '2026-06-02Z'",
    ),
    ("`ORDER BY t DESC LIMIT 20`", "SELECT * FROM {from} ORDER BY {t} DESC LIMIT 20"),
    (
        "a join on `t BETWEEN e.at AND e.at + interval '1 minute'`, 10 rows of `e`",
        "SELECT count(*) FROM events e JOIN {from} ON {t} BETWEEN e.at AND e.at + interval '1 minute'",
    ),
];

/// What a time is read from.
#[derive(Clone, Copy)]
struct Way {
    /// The table, and the time.
    from: &'static str,
    t: &'static str,
    /// The same with a function in FROM.
    joined: &'static str,
    p: &'static str,
    /// See [`FORMS`].
    day: &'static str,
}

const WAYS: [Way; 3] = [
    Way {
        from: "by_id o",
        t: "snowflake_timestamp(o.id)",
        joined: "by_id o, snowflake_parse(o.id) p",
        p: "p.created_at",
        day: "o.id >= snowflake_min('2026-06-01Z') AND o.id < snowflake_min('2026-06-02Z')",
    },
    Way {
        from: "by_column o",
        t: "o.created_at",
        joined: "by_column o",
        p: "o.created_at",
        day: "o.created_at >= '2026-06-01Z' AND o.created_at < '2026-06-02Z'",
    },
    Way {
        from: "by_uuid o",
        t: "uuid_extract_timestamp(o.id)",
        joined: "by_uuid o, LATERAL (SELECT uuid_extract_timestamp(o.id)) p(created_at)",
        p: "p.created_at",
        // The least UUIDs of these milliseconds.
        day: "o.id >= '019e807a-ec00-0000-0000-000000000000' AND o.id < '019e85a1-4800-0000-0000-000000000000'",
    },
];

fn query(form: &str, Way { from, t, joined, p, day }: Way) -> String {
    let form = form.replace("{from}", from).replace("{t}", t).replace("{joined}", joined);
    form.replace("{p}", p).replace("{day}", day)
}

/// How one way answers one form.
struct Answer {
    ms: f64,
    blocks: f64,
}

/// Measures ways in turn, with warm caches: the first run of each is discarded.
fn answers(session: &mut Client, runs: usize, form: &str, ways: &[Way]) -> Result<Vec<Answer>, Error> {
    let mut blocks = vec![0.0; ways.len()];
    let values = in_turn(runs, ways.len(), |way| {
        let Use { ms, shared_blocks } = session.execution(&query(form, ways[way]))?;
        blocks[way] = shared_blocks;
        Ok::<_, Error>(ms)
    })?;
    Ok(values.iter().zip(blocks).map(|(values, blocks)| Answer { ms: median(values), blocks }).collect())
}

/// Refuses to compare what counts different rows.
fn check(session: &mut Client, form: &str, ways: &[Way]) -> Result<(), Failure> {
    let mut counts = Vec::new();
    for way in ways {
        let sql = format!("SELECT json_agg(q)->0->>'count' FROM ({}) q", query(form, *way));
        counts.push(session.query_one(&sql, &[])?.get::<_, Option<String>>(0));
    }
    let is_same = counts.windows(2).all(|pair| pair[0] == pair[1]);
    if is_same { Ok(()) } else { Err(format!("they count different rows: {counts:?}\n{form}").into()) }
}

/// Formats a time with a precision that another run would have.
fn shown_ms(ms: f64) -> String {
    match ms {
        ms if ms >= 100.0 => shown(ms, "ms"),
        ms if ms >= 10.0 => format!("{ms:.1} ms"),
        ms if ms >= 1.0 => format!("{ms:.2} ms"),
        _ => format!("{ms:.3} ms"),
    }
}

fn shown_blocks(blocks: f64) -> String {
    if blocks >= 100.0 { shown(blocks, "") } else { format!("{blocks}") }
}

/// Measures all forms on tables of so many rows.
pub fn measure(rows: u64, runs: usize) -> Result<Measured, Failure> {
    let server = servers::drawing()
        // Loads write no log, for which there may be no room beside the tables.
        .config("wal_level", "minimal")
        .config("max_wal_senders", "0")
        .config("max_wal_size", "256MB")
        .start_with_extension();
    let mut session = server.connect();
    let version: i32 = session.query_one("SELECT current_setting('server_version_num')::int", &[])?.get(0);
    if version < 180_000 {
        return Ok(Measured::left_out(
            "forms of conditions on a time",
            "uuid_extract_timestamp() reads version 7 from PostgreSQL 18 on",
        ));
    }
    session.batch_execute("SET timezone = 'UTC'")?;
    for statement in tables(rows) {
        session.batch_execute(&statement)?;
    }
    eprint!("loaded ... ");
    session.batch_execute(&format!(
        "CREATE TABLE events AS SELECT {END} - n * interval '36 days' AS at FROM generate_series(1, 10) n; ANALYZE events"
    ))?;

    // First what the key of a UUID does by itself. It reads all rows, so one run has to be enough.
    let mut keys_alone = Vec::new();
    for (_, form) in FORMS {
        keys_alone.extend(answers(&mut session, 1, form, &WAYS[2..])?);
    }
    for statement in UUID_INDEX {
        session.batch_execute(statement)?;
    }
    let mut table = format!(
        "Measured on {} with {} rows, evenly over a year. {} Caches are warm, and no query is parallel. Each cell has the median \
         of {runs} runs (one run for the last column), and the blocks that it reads in shared buffers or from the operating system.\n\n\
         | form | `bigint` id, its key alone | `created_at`, its own index | `uuidv7`, an index on its time | `uuidv7`, its key alone |\n\
         |---|---|---|---|---|\n",
        today(),
        shown(rows as f64, ""),
        machine(),
    );
    for ((name, form), key_alone) in FORMS.into_iter().zip(keys_alone) {
        check(&mut session, form, &WAYS)?;
        let mut cells = String::new();
        for Answer { ms, blocks } in answers(&mut session, runs, form, &WAYS)?.into_iter().chain([key_alone]) {
            write!(cells, " {}, {} |", shown_ms(ms), shown_blocks(blocks))?;
        }
        writeln!(table, "| {name} |{cells}")?;
    }
    let mut gigabytes = |what: &str| {
        let bytes = session.number(&format!("SELECT ({what})::double precision"))?;
        Ok::<_, Error>(format!("{:.2} GB", bytes / 1e9))
    };
    let [id, column, uuid] = ["by_id", "by_column", "by_uuid"];
    let mut sizes = |what: &str, of: [String; 4]| {
        let cells = of.into_iter().map(|sql| gigabytes(&sql)).collect::<Result<Vec<_>, _>>()?;
        Ok::<_, Failure>(writeln!(table, "| {what} | {} |", cells.join(" | "))?)
    };
    let indexes = |table: &str| format!("pg_indexes_size('{table}')");
    let key = |table: &str| format!("pg_relation_size('{table}_pkey')");
    sizes("size of the indexes", [indexes(id), indexes(column), indexes(uuid), key(uuid)])?;
    sizes("size of the table", [id, column, uuid, uuid].map(|table| format!("pg_table_size('{table}')")))?;
    Ok(Measured { tables: vec![table], ..Measured::default() })
}
