//! The files of `monitoring`: each alert fires in the situation it is for, on a real server that a
//! real exporter and a real Prometheus watch, and no other alert does. Each query of the dashboard
//! gives something.
//!
//! Situations are asserted with all alerts that they raise. Clocks are frozen where a figure would
//! change by itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use cluster::Operated;
use cluster::drawing::{DAY_MS, HOUR_MS, noon};
use cluster::monitoring::{Watch, has_prometheus, promtool, read_monitoring_file, value};
use cluster::pages::{block, page, pages};
use cluster::{
    Builder, Draw, Fleet, Leases, Running, Server, Shutdown, compile_library, faketime_library, refused, skip,
    wait_until,
};
use serde_json::Value;

const DRAW: &str = "SELECT snowflake_next()";

/// A layout with 16 ids a second and a second worker number.
const SPARSE: &str = "time:32 worker:5 sequence:4 unit:1s epoch:2019-01-01T00:00:00Z";

/// Reports the test as skipped if Prometheus is not here.
fn cannot_watch() -> bool {
    let missing = !has_prometheus();
    if missing {
        skip("Prometheus and its exporter for PostgreSQL are not installed; \"make setup\" unpacks them");
    }
    missing
}

/// The names of the alerts in `alerts.yaml`.
fn alerts() -> Vec<String> {
    let rules = read_monitoring_file("alerts.yaml");
    rules.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: ")).map(str::to_owned).collect()
}

/// A fleet whose leases soon have their full length, and are long enough to look at.
fn short_fleet() -> Fleet {
    Fleet::start().limited("40s", "500ms")
}

fn execute(server: &Server, sql: &str) {
    server.connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Draws in vain.
#[track_caller]
fn assert_refused(server: &Server, sqlstate: &str) {
    assert_eq!(refused(server.connect().try_draw()).sqlstate, sqlstate);
}

#[test]
fn a_test_raises_each_alert() {
    let tests = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/monitoring.rs")).unwrap();
    let series = read_monitoring_file("alerts.test.yaml");
    let alerts = alerts();
    assert_eq!(alerts.iter().collect::<BTreeSet<_>>().len(), alerts.len(), "two alerts have one name");
    for alert in alerts {
        assert!(tests.contains(&format!("\"{alert}\"")), "no situation raises {alert}");
        let is_silent = format!("alertname: {alert}\n        exp_alerts: []");
        let fires = format!("alertname: {alert}\n        exp_alerts:\n");
        assert!(series.contains(&fires) && series.contains(&is_silent), "alerts.test.yaml does not test {alert}");
    }
}

#[test]
fn each_alert_has_a_severity_and_leads_to_a_section_of_the_pages() {
    let rules = read_monitoring_file("alerts.yaml");
    let count = |text: &str| rules.matches(text).count();
    let alerts = alerts().len();
    assert_eq!([count("\n        for: "), count("\n        labels: {severity: ")], [alerts; 2]);
    let runbooks: Vec<_> = rules.lines().filter_map(|line| line.trim_start().strip_prefix("runbook: ")).collect();
    assert_eq!(runbooks.len(), alerts);
    for runbook in runbooks {
        let (path, anchor) = runbook.split_once('#').expect("it names a section");
        let headings = page(path).text.lines().filter(|line| line.starts_with('#'));
        let mut anchors = headings.map(|line| line.trim_start_matches(['#', ' ']).to_lowercase().replace(' ', "-"));
        assert!(anchors.any(|known| known == anchor), "{path} has no section #{anchor}");
    }
    assert!(pages().iter().any(|page| page.path == "docs/monitor.md"));
}

#[test]
fn the_rules_are_right_for_made_series() {
    if cannot_watch() {
        return;
    }
    let files = ["alerts.yaml", "alerts.test.yaml"].map(|name| (name, read_monitoring_file(name)));
    promtool(&["check", "rules", "alerts.yaml"], &files);
    promtool(&["test", "rules", "alerts.test.yaml"], &files);
}

#[test]
fn a_clock_that_is_set_back_raises_alerts() {
    if cannot_watch() {
        return;
    }
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    server.connect().draw();
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    server.freeze_clock(noon() - HOUR_MS);
    assert_refused(&server, "58000");
    let ahead = ["SnowflakeAheadOfClock", "SnowflakeMarkAhead"];
    let set_back = ["SnowflakeClockSetBack", "SnowflakeRefusedBehindClock"];
    watch.assert_fires(&[set_back, ahead].concat());
}

#[test]
fn a_transaction_that_holds_readers_back_raises_an_alert() {
    if cannot_watch() {
        return;
    }
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let mut session = server.connect();
    session.draw();
    session.batch_execute("BEGIN; SELECT snowflake_next()").unwrap();
    let watch = Watch::start(&[&server]);
    server.freeze_clock(noon() + HOUR_MS);
    // Nobody reads.
    watch.assert_silent();
    execute(&server, "SELECT snowflake_settled()");
    watch.assert_fires(&["SnowflakeReadersHeldBack"]);
}

#[test]
fn a_clock_that_waits_are_for_raises_alerts() {
    if cannot_watch() {
        return;
    }
    let Some(server) = Server::drawing().set("on_rollback", "wait").start_frozen(noon()) else { return };
    server.connect().draw();
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    // By less than a rollback, and no further ahead of the clock than permitted once it is right.
    server.freeze_clock(noon() - 150);
    let waiting = Running::start(server.connect(), DRAW);
    server.wait_until_waiting(waiting.pid);
    server.freeze_clock(noon());
    waiting.end().1.unwrap();
    watch.assert_fires(&["SnowflakeWaitsForClock"]);
}

#[test]
fn a_clock_that_jumps_ahead_raises_an_alert() {
    if cannot_watch() {
        return;
    }
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    server.connect().draw();
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    server.freeze_clock(noon() + 2 * DAY_MS);
    assert_refused(&server, "58000");
    watch.assert_fires(&["SnowflakeRefusedAfterJump"]);
}

#[test]
fn an_advance_that_went_too_far_raises_alerts() {
    if cannot_watch() {
        return;
    }
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    let id = server.connect().draw();
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    execute(&server, &format!("SELECT snowflake_advance({})", id + (HOUR_MS << 22)));
    watch.assert_fires(&["SnowflakeMarkAhead"]);
    assert_refused(&server, "58000");
    watch.assert_fires(&["SnowflakeMarkAhead", "SnowflakeClockSetBack", "SnowflakeRefusedBehindMark"]);
}

#[test]
fn a_database_with_another_layout_raises_an_alert() {
    if cannot_watch() {
        return;
    }
    let server = Server::drawing().start_with_extension();
    server.connect().draw();
    server.stop(Shutdown::Fast);
    server.set_config("snowflake_id.layout", "js53");
    server.start_again();
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    assert_refused(&server, "55000");
    watch.assert_fires(&["SnowflakeRefusedLayout"]);
}

#[test]
fn a_server_without_a_number_raises_alerts() {
    if cannot_watch() {
        return;
    }
    let server = Server::builder().start_with_extension();
    let watch = Watch::start(&[&server]);
    watch.assert_fires(&["SnowflakeNumberMissing"]);
    assert_refused(&server, "55000");
    watch.assert_fires(&["SnowflakeNumberMissing", "SnowflakeRefusedNumber"]);
}

#[test]
fn two_primaries_with_one_number_raise_an_alert() {
    if cannot_watch() {
        return;
    }
    let [one, other] = ["1", "2"].map(|number| Server::builder().set("worker_id", number).start_with_extension());
    // A standby has its primary's number.
    let standby = one.standby().start();
    let watch = Watch::start(&[&one, &other, &standby]);
    watch.assert_silent();
    other.set_config("snowflake_id.worker_id", "1");
    other.restart();
    watch.assert_fires(&["SnowflakeNumberTwice"]);
}

#[test]
fn a_layout_whose_time_is_used_up_raises_alerts() {
    if cannot_watch() {
        return;
    }
    let server = Server::drawing().set("layout", "baidu").start_with_extension();
    let watch = Watch::start(&[&server]);
    watch.assert_fires(&["SnowflakeLastYear"]);
    assert_refused(&server, "2200H");
    watch.assert_fires(&["SnowflakeLastYear", "SnowflakeRefusedTimeUsedUp"]);
}

#[test]
fn databases_beyond_the_limit_raise_alerts() {
    if cannot_watch() {
        return;
    }
    let server = Server::drawing().set("max_databases", "1").start_with_extension();
    execute(&server, "CREATE DATABASE other");
    server.connect_to("other").batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    server.connect().draw();
    watch.assert_fires(&["SnowflakeDatabasesNearlyUsedUp"]);
    assert_eq!(refused(server.connect_to("other").try_draw()).sqlstate, "53400");
    watch.assert_fires(&["SnowflakeDatabasesNearlyUsedUp", "SnowflakeRefusedDatabases"]);
}

#[test]
fn a_server_at_its_ceiling_raises_alerts() {
    if cannot_watch() {
        return;
    }
    let layout = "time:41 worker:10 sequence:2 unit:1ms epoch:2025-01-01T00:00:00Z";
    let server = Server::drawing().set("layout", layout).time_limit().start_with_extension();
    server.load_first();
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    // 4000 ids a second: these wait for more than 3 seconds.
    server.connect().draw_batch(20_000);
    watch.assert_fires(&["SnowflakeAtCeiling", "SnowflakeNearCeiling"]);
}

#[test]
fn a_backup_worker_that_draws_raises_an_alert() {
    if cannot_watch() {
        return;
    }
    let sparse = Server::drawing().set("layout", SPARSE).set("backup_worker", "on");
    let Some(server) = sparse.start_frozen(noon()) else { return };
    server.connect().draw();
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    server.connect().draw_batch(20);
    watch.assert_fires(&["SnowflakeBackupWorkerDraws"]);
}

#[test]
fn a_wait_for_the_mark_long_after_the_start_raises_an_alert() {
    if cannot_watch() {
        return;
    }
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    // So that the clock's start is long ago, but the mark is not.
    server.freeze_clock(noon() + HOUR_MS);
    server.connect_to("template1").batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    server.connect_to("template1").draw();
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    // A copy of the database has its mark.
    execute(&server, "CREATE DATABASE copy");
    let waiting = Running::start(server.connect_to("copy"), DRAW);
    server.wait_until_waiting(waiting.pid);
    server.freeze_clock(noon() + HOUR_MS + 10_000);
    waiting.end().1.unwrap();
    watch.assert_fires(&["SnowflakeWaitsForMark"]);
}

#[test]
fn a_slow_disk_of_the_log_raises_an_alert() {
    if cannot_watch() {
        return;
    }
    let directory = tempdir();
    let (library, switch) = (directory.join("slow_sync.so"), directory.join("slow"));
    if !compile_library("slow_sync", &library) {
        return skip("PostgreSQL's header files are not installed");
    }
    let leak = |path: &Path| -> &'static str { Box::leak(path.display().to_string().into_boxed_str()) };
    let environment =
        |builder: Builder| builder.environment("LD_PRELOAD", leak(&library)).environment("SLOW_SYNC", leak(&switch));
    let server = environment(Server::drawing().durable()).start_with_extension();
    server.connect().draw();
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    fs::write(&switch, "").unwrap();
    // Marks are moved as often as time goes on, about once a second.
    let mut session = server.connect();
    let moved = |session: &mut postgres::Client| -> i64 {
        session.draw();
        session.value("SELECT marks_moved FROM snowflake_stat").parse().unwrap()
    };
    let before = moved(&mut session);
    wait_until("marks", || moved(&mut session) > before + 2);
    watch.assert_fires(&["SnowflakeSlowMarks"]);
    fs::remove_dir_all(&directory).unwrap();
}

/// Makes a directory that the servers' user can read.
fn tempdir() -> std::path::PathBuf {
    let output = Command::new("mktemp").args(["-d", "-t", "snowflake_id-slow.XXXXXX"]).output().expect("mktemp runs");
    let path = std::path::PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end());
    assert!(Command::new("chmod").arg("755").arg(&path).status().unwrap().success());
    path
}

#[test]
fn a_server_that_cannot_be_measured_raises_an_alert() {
    if cannot_watch() {
        return;
    }
    let server = Server::drawing().start_with_extension();
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    execute(&server, "REVOKE pg_monitor FROM prometheus");
    watch.assert_fires(&["SnowflakeNotMeasured"]);
    drop(watch);
    execute(&server, "GRANT pg_monitor TO prometheus");
    let watch = Watch::start_patiently(&server);
    watch.assert_silent();
    server.stop(Shutdown::Fast);
    watch.assert_fires(&["SnowflakeNotMeasured"]);
}

#[test]
fn an_exporter_that_is_dead_or_without_queries_raises_an_alert() {
    if cannot_watch() {
        return;
    }
    let server = Server::drawing().start_with_extension();
    let mut watch = Watch::start(&[&server]);
    watch.assert_silent();
    watch.end_exporter(0);
    watch.assert_fires(&["SnowflakeNotMeasured"]);
    drop(watch);
    Watch::start_with_wrong_queries(&server).assert_fires(&["SnowflakeNotMeasured"]);
}

#[test]
fn a_registry_that_goes_away_raises_alerts_until_no_ids_are_drawn() {
    if cannot_watch() {
        return;
    }
    let fleet = short_fleet();
    let server = fleet.member().start_with_extension();
    server.connect().wait_for_lease();
    server.connect().draw();
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    fleet.registry.stop(Shutdown::Fast);
    watch.assert_fires(&["SnowflakeRegistryAway"]);
    wait_until("the end of the lease", || server.connect().lease("state") == "over");
    assert_refused(&server, "58000");
    let without = ["SnowflakeRegistryAway", "SnowflakeNoLease", "SnowflakeRefusedWithoutLease"];
    watch.assert_fires(&[&without[..], &["SnowflakeLeaseEnds"]].concat());
}

#[test]
fn a_registry_that_fails_over_raises_an_alert() {
    if cannot_watch() {
        return;
    }
    let mut fleet = Fleet::start();
    let standby = fleet.registry.standby().start();
    let server = fleet.member().start_with_extension();
    server.connect().wait_for_lease();
    fleet.lengthen_the_lease(&server);
    standby.wait_until_replayed(&fleet.registry.flushed());
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    fleet.registry.crash();
    standby.promote();
    let _old = fleet.replace(standby);
    server.set_config("snowflake_id.registry", &fleet.conninfo());
    server.reload();
    wait_until("a renewal", || server.connect().lease("failing_since").is_empty());
    watch.assert_fires(&["SnowflakeRegistryChanged"]);
}

#[test]
fn a_freeze_raises_alerts_on_a_server_that_waits_for_its_end() {
    if cannot_watch() {
        return;
    }
    // A server leases a number for the time after a freeze of 31 seconds, as soon as a first lease
    // of 30 seconds would end after it.
    let fleet = Fleet::start().limited("30s", "500ms");
    let member = || fleet.member().start_with_extension();
    member().connect().wait_for_lease();
    fleet.operate(&["restored"]);
    let late = member();
    let watch = Watch::start_with_registry(&[&late], &fleet.registry);
    watch.assert_fires(&["SnowflakeFleetFrozen", "SnowflakeGap", "SnowflakeNoLease", "SnowflakeWaitsForFreeze"]);
}

#[test]
fn a_lease_that_ends_before_the_next_one_begins_raises_an_alert_before() {
    if cannot_watch() {
        return;
    }
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    server.connect().wait_for_lease();
    fleet.lengthen_the_lease(&server);
    fleet.forget_leases();
    wait_until("the gap", || !server.connect().lease("gap_until").is_empty());
    let watch = Watch::start_with_registry(&[&server], &fleet.registry);
    watch.assert_fires(&["SnowflakeFleetFrozen", "SnowflakeGap"]);
}

#[test]
fn a_registry_that_is_closed_or_short_of_numbers_raises_alerts() {
    if cannot_watch() {
        return;
    }
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    let number = server.connect().wait_for_lease();
    fleet.lengthen_the_lease(&server);
    server.connect().draw();
    let watch = Watch::start_with_registry(&[&server], &fleet.registry);
    watch.assert_silent();
    // A number that is held, and that the range has left out since.
    let (first, last) = if number < 500 { (number + 1, number + 100) } else { (number - 100, number - 1) };
    fleet.operate(&["set-range", &first.to_string(), &last.to_string()]);
    watch.assert_fires(&["SnowflakeFleetOutsideRange"]);
    fleet.operate(&["set-range", &number.to_string(), &number.to_string()]);
    server.reload();
    watch.assert_fires(&["SnowflakeFleetNumbersShort", "SnowflakeFewNumbersFree"]);
    fleet.operate(&["set-range", "0", "1023"]);
    server.reload();
    watch.assert_silent();
    fleet.operate(&["close"]);
    server.reload();
    watch.assert_fires(&["SnowflakeFleetClosed", "SnowflakeRegistryAway"]);
    // The page's target is of the fleet "shop" by its own label.
    assert_eq!(watch.summaries("SnowflakeFleetClosed"), ["Fleet default is closed"]);
}

#[test]
fn a_clock_off_the_registrys_raises_alerts() {
    if cannot_watch() {
        return;
    }
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let fleet = Fleet::start().limited("40s", "5s");
    let server = fleet.member().faketime().start_with_extension();
    server.connect().wait_for_lease();
    server.connect().draw();
    let watch = Watch::start_with_registry(&[&server], &fleet.registry);
    watch.assert_silent();
    server.set_clock_offset(2.0);
    server.reload();
    watch.assert_fires(&["SnowflakeClockOffset", "SnowflakeFleetClockOffset"]);
}

#[test]
fn a_server_without_a_place_for_the_worker_raises_alerts() {
    if cannot_watch() {
        return;
    }
    let fleet = Fleet::start();
    let server = fleet.member().config("max_worker_processes", "0").start_with_extension();
    let watch = Watch::start(&[&server]);
    watch.assert_fires(&["SnowflakeNoLease", "SnowflakeLeaseWorkerMissing"]);
}

#[test]
fn a_server_with_the_registry_of_another_fleet_raises_an_alert() {
    if cannot_watch() {
        return;
    }
    let [home, elsewhere] = [(); 2].map(|()| Fleet::start());
    let server = home.member().start_with_extension();
    server.connect().wait_for_lease();
    server.connect().draw();
    server.set_config("snowflake_id.registry", &elsewhere.conninfo());
    server.restart();
    server.connect().wait_for_lease();
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    assert_refused(&server, "55000");
    watch.assert_fires(&["SnowflakeRefusedOtherFleet"]);
}

#[test]
fn a_standby_without_a_lease_raises_an_alert() {
    if cannot_watch() {
        return;
    }
    let fleet = Fleet::start();
    fleet.operate(&["set-range", "5", "6"]);
    let primary = fleet.member().start_with_extension();
    primary.connect().wait_for_lease();
    let watch = Watch::start(&[&primary]);
    watch.assert_silent();
    // Less than half of the numbers is free once another server has one.
    let other = fleet.member().start_with_extension();
    other.connect().wait_for_lease();
    let standby = primary.standby().start();
    let watch = Watch::start(&[&standby]);
    watch.assert_fires(&["SnowflakeFewNumbersFree", "SnowflakeStandbyWithoutLease"]);
}

#[test]
fn a_tag_that_gives_no_values_raises_alerts() {
    if cannot_watch() {
        return;
    }
    let fleet = Fleet::start();
    let tags = "('open', 1), ('last', 9223372036854775805)";
    execute(&fleet.registry, &format!("INSERT INTO snowflake_registry.tags (tag, next_value) VALUES {tags}"));
    let server = fleet.member().start_with_extension();
    server.connect().wait_for_lease();
    execute(&server, "SELECT snowflake_segment_next('open')");
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    // The registry has no further block of it.
    execute(&server, "SELECT snowflake_segment_next('last')");
    watch.assert_fires(&["SnowflakeSegmentClosed"]);
    execute(&server, "SELECT snowflake_segment_next('last')");
    assert_eq!(refused(server.connect().ids("SELECT snowflake_segment_next('last')")).sqlstate, "2200H");
    watch.assert_fires(&["SnowflakeSegmentClosed", "SnowflakeSegmentRefused"]);
}

#[test]
fn a_registry_that_gives_no_blocks_raises_alerts() {
    if cannot_watch() {
        return;
    }
    let fleet = Fleet::start();
    execute(&fleet.registry, "INSERT INTO snowflake_registry.tags (tag) VALUES ('t')");
    let server = fleet.member().start_with_extension();
    server.connect().wait_for_lease();
    execute(&server, "SELECT snowflake_segment_next('t')");
    let watch = Watch::start(&[&server]);
    watch.assert_silent();
    // Leases are renewed as before.
    execute(
        &fleet.registry,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no blocks''; END';
         CREATE TRIGGER refuse BEFORE UPDATE ON snowflake_registry.tags EXECUTE FUNCTION refuse()",
    );
    // At a tenth of a block, the server wants another one.
    execute(&server, "SELECT snowflake_segment_batch('t', 900)");
    watch.assert_fires(&["SnowflakeSegmentRegistryAway"]);
}

/// The exporter's role finds the extension in a schema of its own.
#[test]
fn the_queries_find_an_extension_in_a_schema_of_its_own() {
    if cannot_watch() {
        return;
    }
    let server = Server::drawing().start();
    execute(&server, "CREATE SCHEMA ids; CREATE EXTENSION snowflake_id SCHEMA ids");
    execute(&server, block("monitor-role"));
    let watch = Watch::start(&[&server]);
    watch.assert_fires(&["SnowflakeNotMeasured"]);
    execute(&server, block("monitor-schema"));
    let watch = Watch::start(&[&server]);
    watch.assert_fires(&[]);
}

/// The dashboard's queries, as Grafana sends them for all servers.
fn queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&read_monitoring_file("dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut queries = Vec::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "1m").replace("$instance", ".*");
            assert!(!query.contains('$'), "{title}: {query} has another variable");
            queries.push((title.to_owned(), query));
        }
    }
    queries
}

#[test]
fn each_query_of_the_dashboard_gives_something() {
    if cannot_watch() {
        return;
    }
    let fleet = Fleet::start();
    execute(&fleet.registry, "INSERT INTO snowflake_registry.tags (tag) VALUES ('t')");
    let server = fleet.member().start_with_extension();
    server.connect().wait_for_lease();
    // Both blocks are there before the fleet is closed.
    execute(&server, "SELECT snowflake_segment_next('t'), snowflake_segment_batch('t', 200)");
    let next_left = "SELECT coalesce(sum(next_left), 0)::bigint FROM snowflake_segment_stat";
    wait_until("the next block", || server.connect().ids(next_left).unwrap()[0] > 0);
    // Its end, and what follows from that, is another story.
    fleet.lengthen_the_lease(&server);
    let watch = Watch::start_with_registry(&[&server], &fleet.registry);
    watch.evaluate();
    server.connect().draw_batch(1000);
    // So that an alert fires.
    fleet.operate(&["close"]);
    server.reload();
    // Another block is due, which does not come.
    execute(&server, "SELECT snowflake_segment_batch('t', 900)");
    watch.assert_fires(&["SnowflakeFleetClosed", "SnowflakeRegistryAway", "SnowflakeSegmentRegistryAway"]);
    // The shares of what is drawn have no value until two samples differ.
    wait_until("a rate of draws", || {
        server.connect().draw_batch(10);
        watch.query("rate(snowflake_stat_drawn[1m])").iter().any(|series| value(series) > 0.0)
    });
    let queries = queries();
    assert!(queries.len() > 30, "{queries:?}");
    for (panel, query) in queries {
        let found = watch.query(&query);
        assert!(!found.is_empty(), "{panel}: {query} gives nothing");
        assert!(found.iter().all(|series| !value(series).is_nan()), "{panel}: {query} gives {found:?}");
    }
}
