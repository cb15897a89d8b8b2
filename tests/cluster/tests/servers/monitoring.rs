//! The files of `monitoring`: each alert fires in the situation it is for, by the figures that its
//! queries give on a real server, and no other alert does. Once, a real exporter and a real
//! Prometheus watch a real server, and each query of the dashboard gives something.
//!
//! Situations are asserted with all alerts that they raise. Clocks are frozen where a figure would
//! change by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use cluster::Operated;
use cluster::drawing::{DAY_MS, HOUR_MS, noon};
use cluster::monitoring::{
    Prometheus, Watch, export, has_prometheus, promtool, read_figures, read_monitoring_file, value,
};
use cluster::pages::{block, page, pages};
use cluster::{
    Builder, Draw, Fleet, Leases, Running, Server, Shutdown, compile_library, faketime_library, refused, skip,
    wait_until,
};
use serde_json::Value;

const DRAW: &str = "SELECT snowflake_next()";

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

fn execute(server: &Server, sql: &str) {
    server.connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Draws in vain.
#[track_caller]
fn assert_refused(server: &Server, sqlstate: &str) {
    assert_eq!(refused(server.connect().try_draw()).sqlstate, sqlstate);
}

/// Changes a setting of a server that is not a standby, and restarts it.
fn restart_with(server: &Server, setting: &str, value: &str) {
    server.set_config(&format!("snowflake_id.{setting}"), value);
    server.restart();
}

/// Lets a session draw that has to wait, until a time.
fn draw_through(server: &Server, database: &str, until_ms: i64) {
    let waiting = Running::start(server.connect_to(database), DRAW);
    server.wait_until_waiting(waiting.pid);
    server.freeze_clock_and_wake(until_ms, &waiting);
    waiting.end().1.unwrap();
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
    promtool(&["check", "rules", "alerts.yaml"], &files).unwrap();
    promtool(&["test", "rules", "alerts.test.yaml"], &files).unwrap();
}

#[test]
fn clocks_that_are_wrong_raise_alerts() {
    if cannot_watch() {
        return;
    }
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    server.connect_to("template1").batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    let mut session = server.connect();
    session.draw();

    session.batch_execute("BEGIN; SELECT snowflake_next()").unwrap();
    server.freeze_clock(noon() + HOUR_MS);
    let watch = Watch::start_silent(&[&server], None); // Nobody reads.
    execute(&server, "SELECT snowflake_settled()");
    watch.assert_fires(&["SnowflakeReadersHeldBack"]);
    session.batch_execute("ROLLBACK").unwrap();

    let watch = Watch::start_silent(&[&server], None);
    server.freeze_clock(noon() + 2 * DAY_MS);
    assert_refused(&server, "58000");
    watch.assert_fires(&["SnowflakeRefusedAfterJump"]);

    // The clock's start is long ago, but the mark is not, and a copy of the database has it.
    server.freeze_clock(noon() + HOUR_MS);
    server.connect_to("template1").draw();
    let watch = Watch::start_silent(&[&server], None);
    execute(&server, "CREATE DATABASE copy");
    draw_through(&server, "copy", noon() + HOUR_MS + 10_000);
    watch.assert_fires(&["SnowflakeWaitsForMark"]);

    // By less than a rollback, and no further ahead of the clock than permitted once it is right.
    server.set_config("snowflake_id.on_rollback", "wait");
    server.reload();
    server.connect().draw();
    let watch = Watch::start_silent(&[&server], None);
    server.freeze_clock(noon() + HOUR_MS + 10_000 - 150);
    draw_through(&server, "postgres", noon() + HOUR_MS + 10_000);
    watch.assert_fires(&["SnowflakeWaitsForClock"]);

    server.set_config("snowflake_id.on_rollback", "error");
    server.reload();
    let watch = Watch::start_silent(&[&server], None);
    server.freeze_clock(noon());
    assert_refused(&server, "58000");
    let ahead = ["SnowflakeAheadOfClock", "SnowflakeMarkAhead"];
    let set_back = ["SnowflakeClockSetBack", "SnowflakeRefusedBehindClock"];
    watch.assert_fires(&[set_back, ahead].concat());

    server.freeze_clock(noon() + 2 * HOUR_MS);
    let id = server.connect().draw();
    let watch = Watch::start_silent(&[&server], None);
    execute(&server, &format!("SELECT snowflake_advance({})", id + (HOUR_MS << 22)));
    watch.assert_fires(&["SnowflakeMarkAhead"]);
    assert_refused(&server, "58000");
    watch.assert_fires(&["SnowflakeMarkAhead", "SnowflakeClockSetBack", "SnowflakeRefusedBehindMark"]);
}

#[test]
fn settings_that_do_not_suffice_raise_alerts() {
    if cannot_watch() {
        return;
    }
    let server = Server::builder().start_with_extension();
    let watch = Watch::start(&[&server], None);
    watch.assert_fires(&["SnowflakeNumberMissing"]);
    assert_refused(&server, "55000");
    watch.assert_fires(&["SnowflakeNumberMissing", "SnowflakeRefusedNumber"]);

    server.set_config("snowflake_id.worker_id", "5");
    restart_with(&server, "layout", "baidu");
    let watch = Watch::start(&[&server], None);
    watch.assert_fires(&["SnowflakeLastYear"]);
    assert_refused(&server, "2200H");
    watch.assert_fires(&["SnowflakeLastYear", "SnowflakeRefusedTimeUsedUp"]);

    server.set_config("snowflake_id.layout", "snowflake");
    restart_with(&server, "max_databases", "1");
    execute(&server, "CREATE DATABASE other");
    server.connect_to("other").batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    let watch = Watch::start_silent(&[&server], None);
    server.connect().draw();
    watch.assert_fires(&["SnowflakeDatabasesNearlyUsedUp"]);
    assert_eq!(refused(server.connect_to("other").try_draw()).sqlstate, "53400");
    watch.assert_fires(&["SnowflakeDatabasesNearlyUsedUp", "SnowflakeRefusedDatabases"]);

    server.set_config("snowflake_id.max_databases", "128");
    restart_with(&server, "layout", "time:41 worker:10 sequence:2 unit:1ms epoch:2025-01-01T00:00:00Z");
    let watch = Watch::start_silent(&[&server], None);
    assert_refused(&server, "55000");
    watch.assert_fires(&["SnowflakeRefusedLayout"]);

    // 4000 ids a second: these wait for more than 3 seconds.
    execute(&server, "SELECT snowflake_accept_layout()");
    server.connect().draw();
    let watch = Watch::start_silent(&[&server], None);
    server.connect().draw_batch(20_000);
    watch.assert_fires(&["SnowflakeAtCeiling", "SnowflakeNearCeiling"]);

    server.set_config("snowflake_id.max_borrow", "0");
    restart_with(&server, "backup_worker", "on");
    server.connect().draw();
    let watch = Watch::start(&[&server], None);
    server.connect().draw_batch(900);
    watch.assert_fires(&["SnowflakeBackupWorkerDraws"]);
}

#[test]
fn two_primaries_with_one_number_raise_an_alert() {
    if cannot_watch() {
        return;
    }
    let [one, other] = ["1", "2"].map(|number| Server::builder().set("worker_id", number).start_with_extension());
    // A standby has its primary's number.
    let standby = one.standby().start();
    let watch = Watch::start_silent(&[&one, &other, &standby], None);
    restart_with(&other, "worker_id", "1");
    watch.assert_fires(&["SnowflakeNumberTwice"]);
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
    let watch = Watch::start_silent(&[&server], None);
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

/// What the exporter says of itself when its role lacks a privilege, when the server is down, and
/// when its file of queries is wrong. Each raises "SnowflakeNotMeasured" by `alerts.test.yaml`.
#[test]
fn a_server_that_cannot_be_measured_is_known_by_its_exporter() {
    if cannot_watch() {
        return;
    }
    let server = Server::drawing().start_with_extension();
    let says = |exporter: &cluster::monitoring::Service, line: &str| {
        wait_until(line, || exporter.get("/metrics").is_some_and(|said| said.lines().any(|said| said == line)));
    };
    let exporter = export(&server, "queries.yaml", &read_monitoring_file("queries.yaml"));
    says(&exporter, "pg_exporter_last_scrape_error 0");
    execute(&server, "REVOKE pg_monitor FROM prometheus");
    says(&exporter, "pg_exporter_last_scrape_error 1");
    server.stop(Shutdown::Fast);
    says(&exporter, "pg_up 0");
    server.start_again();
    let exporter = export(&server, "queries.yaml", "snowflake_stat: [");
    let failed = |line: &str| line.starts_with("pg_exporter_user_queries_load_error{") && line.ends_with(" 1");
    wait_until("the error", || exporter.get("/metrics").is_some_and(|said| said.lines().any(failed)));
}

#[test]
fn a_registry_that_goes_away_raises_alerts_until_no_ids_are_drawn() {
    if cannot_watch() {
        return;
    }
    let fleet = Fleet::start().limited("40s", "500ms");
    let server = fleet.member().start_with_extension();
    server.connect().wait_for_lease();
    server.connect().draw();
    let watch = Watch::start_silent(&[&server], None);
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
    let watch = Watch::start_silent(&[&server], None);
    fleet.registry.crash();
    standby.promote();
    let _old = fleet.replace(standby);
    server.set_config("snowflake_id.registry", &fleet.conninfo());
    server.reload();
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
    let watch = Watch::start(&[&late], Some(&fleet.registry));
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
    let watch = Watch::start(&[&server], Some(&fleet.registry));
    watch.assert_fires(&["SnowflakeFleetFrozen", "SnowflakeGap"]);
}

#[test]
fn a_fleet_that_is_short_of_numbers_or_values_raises_alerts() {
    if cannot_watch() {
        return;
    }
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let fleet = Fleet::start().limited("10min", "5s");
    let tags = "('open', 1), ('last', 9223372036854775805)";
    execute(&fleet.registry, &format!("INSERT INTO snowflake_registry.tags (tag, next_value) VALUES {tags}"));
    let server = fleet.member().faketime().start_with_extension();
    let number = server.connect().wait_for_lease();
    fleet.lengthen_the_lease(&server);
    execute(&server, "SELECT snowflake_next(), snowflake_segment_next('open')");
    let watch = Watch::start_silent(&[&server], Some(&fleet.registry));

    // A number that is held, and that the range has left out since.
    let (first, last) = if number < 500 { (number + 1, number + 100) } else { (number - 100, number - 1) };
    fleet.operate(&["set-range", &first.to_string(), &last.to_string()]);
    watch.assert_fires(&["SnowflakeFleetOutsideRange"]);
    fleet.operate(&["set-range", &number.to_string(), &number.to_string()]);
    server.reload();
    watch.assert_fires(&["SnowflakeFleetNumbersShort", "SnowflakeFewNumbersFree"]);

    // Half of two numbers is not free, so that a standby takes none.
    let standby = server.standby().start();
    Watch::start(&[&standby], None).assert_fires(&["SnowflakeFewNumbersFree", "SnowflakeStandbyWithoutLease"]);
    drop(standby);
    fleet.operate(&["set-range", "0", "1023"]);
    server.reload();
    watch.assert_fires(&[]);

    server.set_clock_offset(2.0);
    server.reload();
    watch.assert_fires(&["SnowflakeClockOffset", "SnowflakeFleetClockOffset"]);
    server.set_clock_offset(0.0);
    server.reload();
    watch.assert_fires(&[]);

    // Leases are renewed as before. At a tenth of a block, the server wants another one.
    execute(
        &fleet.registry,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no blocks''; END';
         CREATE TRIGGER refuse BEFORE UPDATE ON snowflake_registry.tags EXECUTE FUNCTION refuse()",
    );
    execute(&server, "SELECT snowflake_segment_batch('open', 900)");
    watch.assert_fires(&["SnowflakeSegmentRegistryAway"]);
    execute(&fleet.registry, "DROP TRIGGER refuse ON snowflake_registry.tags");
    watch.assert_fires(&[]);

    // The registry has no further block of it.
    execute(&server, "SELECT snowflake_segment_next('last')");
    watch.assert_fires(&["SnowflakeSegmentClosed"]);
    execute(&server, "SELECT snowflake_segment_next('last')");
    assert_eq!(refused(server.connect().ids("SELECT snowflake_segment_next('last')")).sqlstate, "2200H");
    watch.assert_fires(&["SnowflakeSegmentClosed", "SnowflakeSegmentRefused"]);
}

#[test]
fn a_server_without_a_place_for_the_worker_raises_alerts() {
    if cannot_watch() {
        return;
    }
    let fleet = Fleet::start();
    let server = fleet.member().config("max_worker_processes", "0").start_with_extension();
    Watch::start(&[&server], None).assert_fires(&["SnowflakeNoLease", "SnowflakeLeaseWorkerMissing"]);
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
    restart_with(&server, "registry", &elsewhere.conninfo());
    server.connect().wait_for_lease();
    let watch = Watch::start_silent(&[&server], None);
    assert_refused(&server, "55000");
    watch.assert_fires(&["SnowflakeRefusedOtherFleet"]);
}

#[test]
fn the_queries_find_an_extension_in_a_schema_of_its_own() {
    let server = Server::drawing().start();
    execute(&server, "CREATE SCHEMA ids; CREATE EXTENSION snowflake_id SCHEMA ids");
    execute(&server, block("monitor-role"));
    assert_eq!(refused(read_figures(&server, "queries.yaml")).sqlstate, "42P01");
    execute(&server, block("monitor-schema"));
    read_figures(&server, "queries.yaml").unwrap();
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

/// The one test with a real Prometheus, which gets from real exporters what the queries give.
#[test]
fn prometheus_gets_the_figures_and_each_query_of_the_dashboard_gives_something() {
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
    let prometheus = Prometheus::start(&server, &fleet.registry);
    server.connect().draw_batch(1000);
    // So that an alert fires.
    fleet.operate(&["close"]);
    server.reload();
    // Another block is due, which does not come.
    execute(&server, "SELECT snowflake_segment_batch('t', 900)");
    let expected = ["SnowflakeFleetClosed", "SnowflakeRegistryAway", "SnowflakeSegmentRegistryAway"];
    wait_until("the alerts", || prometheus.firing().len() == expected.len());
    let firing = prometheus.firing();
    assert!(firing.keys().eq(expected), "{firing:?}");
    // The page's target is of the fleet "shop" by its own label.
    assert_eq!(firing["SnowflakeFleetClosed"], "Fleet default is closed");

    // Labels and values. What has another value each time is there all the same.
    let read = || -> BTreeMap<_, _> {
        let files = [(&server, "queries.yaml"), (&fleet.registry, "registry-queries.yaml")];
        let all = files.iter().flat_map(|(server, file)| read_figures(server, file).unwrap());
        all.map(|(labels, value)| (without_place(labels), value.to_string())).collect()
    };
    wait_until("the same figures", || {
        let before = read();
        let scraped = prometheus.query("{__name__=~\"snowflake_.+\"}");
        let after = read();
        let labels = |series: &Value| without_place(serde_json::from_value(series["metric"].clone()).unwrap());
        let scraped: BTreeMap<_, _> =
            scraped.iter().map(|series| (labels(series), value(series).to_string())).collect();
        assert!(scraped.keys().eq(before.keys()), "{scraped:?}, but {before:?}");
        before.iter().all(|(series, value)| *value != after[series] || *value == scraped[series])
    });

    // The shares of what is drawn have no value until two samples differ.
    wait_until("a rate of draws", || {
        server.connect().draw_batch(10);
        prometheus.query("rate(snowflake_stat_drawn[1m])").iter().any(|series| value(series) > 0.0)
    });
    let queries = queries();
    assert!(queries.len() > 30, "{queries:?}");
    for (panel, query) in queries {
        let found = prometheus.query(&query);
        assert!(!found.is_empty(), "{panel}: {query} gives nothing");
        assert!(found.iter().all(|series| !value(series).is_nan()), "{panel}: {query} gives {found:?}");
    }
}

/// Leaves out the labels that say where figures come from, and those without a value.
fn without_place(mut labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels.retain(|label, value| !["instance", "server"].contains(&label.as_str()) && !value.is_empty());
    labels
}
