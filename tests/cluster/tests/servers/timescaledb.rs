//! A hypertable of TimescaleDB by the recipe of docs/time.md, whose time is the id: its chunks are
//! days, and conditions on the time select chunks, whichever of the two libraries is loaded first.
//!
//! Needs the package postgresql-N-timescaledb, which Debian has for 17 and 18. It has the part of
//! TimescaleDB under the Apache license, which has no policies.

use cluster::pages::block;
use cluster::plans::{assert_same_rows, is_pushed, plan};
use cluster::{Draw, Server, postgres_version, skip};
use postgres::Client;
use postgres::error::SqlState;

/// Starts a server with both libraries in this order, and makes the page's hypertable. `None` if
/// TimescaleDB is not installed, which is no skip where Debian does not have it.
fn samples(libraries: &str) -> Option<(Server, Client)> {
    let server = Server::drawing().config("timescaledb.telemetry_level", "off").start();
    if !server.has_extension("timescaledb") {
        if [17, 18].contains(&postgres_version()) {
            skip("TimescaleDB is not installed");
        }
        return None;
    }
    server.set_config("shared_preload_libraries", libraries);
    server.restart();
    let mut session = server.connect();
    let extensions = "SET timezone = 'Asia/Kathmandu'; CREATE EXTENSION timescaledb; CREATE EXTENSION snowflake_id";
    session.batch_execute(extensions).expect("both are installed");
    session.batch_execute(block("timescaledb")).expect("the recipe runs");
    Some((server, session))
}

/// Stores a sample of each hour of these days.
fn sample_hourly(session: &mut Client, from: &str, to: &str) {
    session
        .batch_execute(&format!(
            "INSERT INTO samples SELECT snowflake_compose(hour, 1, 0), 1
             FROM generate_series('{from}Z'::timestamptz, '{to} 23:00Z', '1 hour') hour"
        ))
        .expect("each row finds its chunk");
}

/// The first and the last time of each chunk, in UTC.
fn days(session: &mut Client) -> String {
    session.value(
        "SELECT string_agg(concat_ws('..',
                    to_char(snowflake_timestamp(range_start_integer) AT TIME ZONE 'UTC', 'MM-DD HH24:MI:SS.MS'),
                    to_char(snowflake_timestamp(range_end_integer - 1) AT TIME ZONE 'UTC', 'MM-DD HH24:MI:SS.MS')),
                ', ' ORDER BY range_start_integer)
         FROM timescaledb_information.chunks WHERE hypertable_name = 'samples'",
    )
}

fn whole_days(of_november: std::ops::RangeInclusive<u32>) -> String {
    let day = |day| format!("11-{day} 00:00:00.000..11-{day} 23:59:59.999");
    of_november.map(day).collect::<Vec<_>>().join(", ")
}

#[test]
fn conditions_on_the_time_select_chunks_whichever_library_is_loaded_first() {
    for libraries in ["timescaledb, snowflake_id", "snowflake_id, timescaledb"] {
        let Some((_server, mut session)) = samples(libraries) else { return };
        sample_hourly(&mut session, "2026-11-20", "2026-11-24");
        session.batch_execute("ANALYZE samples").unwrap();
        assert_eq!(days(&mut session), whole_days(20..=24), "{libraries}");

        let one_day = "SELECT id FROM samples WHERE snowflake_timestamp(id) >= '2026-11-21Z'
                       AND snowflake_timestamp(id) < '2026-11-22Z'";
        // A time that is known only when the query starts.
        let from_a_setting = "SELECT id FROM samples
                              WHERE snowflake_timestamp(id) >= current_setting('test.time')::timestamptz";
        session.batch_execute("SET test.time = '2026-11-24Z'").unwrap();
        for (query, rows) in [(one_day, 24), (from_a_setting, 24)] {
            let plan = plan(&mut session, query);
            assert!(is_pushed(&plan), "{libraries}: {plan}");
            assert_eq!(plan.matches(" on _hyper_").count(), 1, "{libraries}: one day's chunk:\n{plan}");
            assert_same_rows(&mut session, query);
            assert_eq!(session.value(&format!("SELECT count(*) FROM ({query}) q")), rows.to_string(), "{libraries}");
        }
        // What TimescaleDB's planner adds still works.
        let ordered = plan(&mut session, "SELECT * FROM samples ORDER BY id DESC LIMIT 1");
        assert!(ordered.contains("ChunkAppend"), "{libraries}: {ordered}");
        let by_day = "SELECT string_agg(n::text, ' ') FROM (SELECT count(*) n FROM samples
                      WHERE snowflake_timestamp(id) < '2026-11-23Z'
                      GROUP BY time_bucket('1 day', snowflake_timestamp(id))) q";
        assert_eq!(session.value(by_day), "24 24 24", "{libraries}");
    }
}

#[test]
fn a_hypertable_draws_ids_and_old_chunks_are_dropped_by_the_clock() {
    let Some((_server, mut session)) = samples("timescaledb, snowflake_id") else { return };
    session.batch_execute("INSERT INTO samples (value) SELECT 1 FROM generate_series(1, 1000)").unwrap();
    assert_eq!(session.value("SELECT count(DISTINCT id) FROM samples"), "1000");
    session
        .batch_execute("INSERT INTO samples SELECT snowflake_compose(now() - interval '100 days', 1, 0), 1")
        .unwrap();
    let old = "SELECT count(*) FROM show_chunks('samples', older_than => snowflake_min(now() - interval '90 days'))";
    assert_eq!(session.value(old), "1");
    session.batch_execute(block("timescaledb-drop")).unwrap();
    assert_eq!(session.value(old), "0");
    assert_eq!(session.value("SELECT count(*) FROM samples"), "1000");
    // What a policy would ask for.
    assert_eq!(session.value("SELECT samples_now() = snowflake_min(now())"), "true");
    // Debian's package has the function's arguments, and no more.
    match session.batch_execute(block("timescaledb-policy")) {
        Ok(()) => {}
        Err(error) => assert_eq!(error.code(), Some(&SqlState::FEATURE_NOT_SUPPORTED), "{error:?}"),
    }
}
