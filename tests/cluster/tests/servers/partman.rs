//! Partitions that pg_partman manages by the recipe of docs/time.md (which `pages.rs` runs word for
//! word): where their bounds are, and when they are created and dropped.
//!
//! Needs the package postgresql-N-partman. The recipe differs between pg_partman 4 and 5 in one
//! argument only.

use cluster::plans::{assert_same_rows, plan};
use cluster::{Draw, Server, skip};
use postgres::Client;

/// A database with the table `readings`, partitioned by days from 20 November 2026 on, three days
/// ahead. The session's days are not those of UTC. `None` if pg_partman is not installed.
fn readings(server: &Server) -> Option<Client> {
    let mut session = server.connect();
    if session.value("SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_partman'") == "0" {
        skip("pg_partman is not installed");
        return None;
    }
    session
        .batch_execute(
            "SET timezone = 'Asia/Kathmandu';
             CREATE SCHEMA partman;
             CREATE EXTENSION pg_partman SCHEMA partman;
             CREATE TABLE readings (id bigint PRIMARY KEY, value integer) PARTITION BY RANGE (id)",
        )
        .unwrap();
    let is_old = session.value("SELECT extversion LIKE '4.%' FROM pg_extension WHERE extname = 'pg_partman'") == "true";
    let native = if is_old { "p_type => 'native'," } else { "" };
    session
        .batch_execute(&format!(
            "SELECT partman.create_parent('public.readings', 'id', {native} p_premake => 3,
                 p_interval => (snowflake_min('2025-01-02Z', 'snowflake') - snowflake_min('2025-01-01Z', 'snowflake'))::text,
                 p_start_partition => snowflake_min('2026-11-20 15:00Z', 'snowflake')::text)"
        ))
        .unwrap();
    Some(session)
}

/// Stores a reading of each hour between two times, and runs pg_partman's maintenance.
fn read_hourly(session: &mut Client, from: &str, to: &str) {
    session
        .batch_execute(&format!(
            "INSERT INTO readings SELECT snowflake_compose(hour, 1, 0), 1
                 FROM generate_series('{from}Z'::timestamptz, '{to}Z', '1 hour') hour;
             SELECT partman.run_maintenance('public.readings')"
        ))
        .unwrap();
}

/// The first and the last time of each partition but the default one, in UTC.
fn days(session: &mut Client) -> String {
    session.value(
        r"SELECT string_agg(concat_ws('..', to_char(snowflake_timestamp(bounds[1]::bigint) AT TIME ZONE 'UTC', 'MM-DD HH24:MI:SS.MS'),
                            to_char(snowflake_timestamp(bounds[2]::bigint - 1) AT TIME ZONE 'UTC', 'MM-DD HH24:MI:SS.MS')), ', '
                            ORDER BY bounds[1]::bigint)
          FROM pg_inherits JOIN pg_class p ON p.oid = inhrelid,
               regexp_match(pg_get_expr(p.relpartbound, p.oid), $$FROM \('(\d+)'\) TO \('(\d+)'\)$$) bounds
          WHERE inhparent = 'readings'::regclass AND bounds IS NOT NULL",
    )
}

fn whole_days(of_november: std::ops::RangeInclusive<u32>) -> String {
    let day = |day| format!("11-{day} 00:00:00.000..11-{day} 23:59:59.999");
    of_november.map(day).collect::<Vec<_>>().join(", ")
}

fn count(session: &mut Client, table: &str) -> String {
    session.value(&format!("SELECT count(*) FROM {table}"))
}

#[test]
fn partitions_are_whole_days_and_come_and_go_with_the_ids() {
    let server = Server::drawing().start_with_extension();
    let Some(mut session) = readings(&server) else { return };
    assert_eq!(days(&mut session), whole_days(20..=23), "the start is rounded down to the day that holds it");

    read_hourly(&mut session, "2026-11-20 00:00", "2026-11-20 23:00");
    assert_eq!(days(&mut session), whole_days(20..=23), "there are three ahead of the last id's");
    read_hourly(&mut session, "2026-11-21 00:00", "2026-11-22 23:00");
    assert_eq!(days(&mut session), whole_days(20..=25));

    session
        .batch_execute(
            "UPDATE partman.part_config SET retention = 2 * partition_interval::bigint, retention_keep_table = false
             WHERE parent_table = 'public.readings'",
        )
        .unwrap();
    read_hourly(&mut session, "2026-11-23 00:00", "2026-11-24 05:00");
    assert_eq!(days(&mut session), whole_days(22..=27), "what has ended two days before the last id is gone");
    assert_eq!(count(&mut session, "readings"), "54");
    assert_eq!(count(&mut session, "readings_default"), "0", "each row has its day");
}

#[test]
fn conditions_on_the_time_pick_the_partitions() {
    let server = Server::drawing().start_with_extension();
    let Some(mut session) = readings(&server) else { return };
    read_hourly(&mut session, "2026-11-20 00:00", "2026-11-22 23:00");
    let query = "SELECT * FROM readings WHERE snowflake_timestamp(id) >= '2026-11-21Z' AND snowflake_timestamp(id) < '2026-11-22Z'";
    let plan = plan(&mut session, query);
    assert!(plan.contains("on readings_p249685239398400000 ") && plan.matches(" on readings_").count() <= 2, "{plan}");
    assert!(!plan.contains("readings_default") && !plan.contains("Append"), "one day's partition:\n{plan}");
    assert_same_rows(&mut session, query);
}

#[test]
fn after_a_pause_the_partitions_that_were_created_ahead_of_the_clock_are_there() {
    let server = Server::drawing().start_with_extension();
    let Some(mut session) = readings(&server) else { return };
    read_hourly(&mut session, "2026-11-20 00:00", "2026-11-20 23:00");
    // As if it were the 25th. Nothing has been stored since the 20th, so pg_partman would end on
    // the 23rd.
    let ahead = "SELECT partman.create_partition_id('public.readings', array_agg(snowflake_min(day, 'snowflake')))
                 FROM generate_series(date_trunc('day', '2026-11-20 21:00Z'::timestamptz, 'UTC'), '2026-11-27 12:00Z', interval '24 hours') day";
    session.batch_execute(ahead).unwrap();
    session.batch_execute(ahead).expect("what is there stays as it is");
    assert_eq!(days(&mut session), whole_days(20..=27));
    read_hourly(&mut session, "2026-11-25 00:00", "2026-11-25 23:00");
    assert_eq!(days(&mut session), whole_days(20..=28), "pg_partman goes on from there");
    assert_eq!(count(&mut session, "readings_default"), "0");
}

#[test]
fn rows_that_no_partition_was_there_for_are_moved_out_of_the_default_one() {
    let server = Server::drawing().start_with_extension();
    let Some(mut session) = readings(&server) else { return };
    session.batch_execute("INSERT INTO readings SELECT snowflake_compose('2026-11-26 12:00Z', 1, 0), 1").unwrap();
    assert_eq!(count(&mut session, "readings_default"), "1");
    session.batch_execute("CALL partman.partition_data_proc('public.readings')").unwrap();
    assert_eq!(count(&mut session, "readings_default"), "0");
    assert!(days(&mut session).ends_with(&whole_days(26..=26)));
}
