//! Tests of the harness, which the other tests rely on. None of these needs the extension.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cluster::{Builder, Server, Shutdown, faketime_library, refused, skip, wait_until};

fn plain() -> Builder {
    Server::builder().without_preload()
}

fn process_exists(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn setting(server: &Server, name: &str) -> String {
    server.connect().query_one(&format!("SHOW {name}"), &[]).unwrap().get(0)
}

#[test]
fn a_server_starts_and_leaves_nothing_behind() {
    let server = plain().start();
    let (pid, data_dir) = (server.postmaster_pid(), server.data_dir());
    assert_eq!(setting(&server, "fsync"), "off");
    assert!(process_exists(pid) && data_dir.exists());
    drop(server);
    assert!(!process_exists(pid) && !data_dir.exists());
}

#[test]
fn nothing_is_left_behind_when_a_test_panics() {
    let mut left = None;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let server = plain().start();
        left = Some((server.postmaster_pid(), server.data_dir()));
        panic!("as a failing assertion would");
    }));
    assert!(outcome.is_err());
    let (pid, data_dir) = left.expect("the server started");
    assert!(!process_exists(pid) && !data_dir.exists());
}

#[test]
fn nothing_is_left_behind_when_the_test_process_is_killed() {
    const CHILD: &str = "HARNESS_CHILD";
    if env::var_os(CHILD).is_some() {
        let server = plain().start();
        println!("\n{} {}", server.postmaster_pid(), server.data_dir().display());
        thread::sleep(Duration::from_secs(600));
    }
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "harness::nothing_is_left_behind_when_the_test_process_is_killed"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (pid, data_dir) = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once(' ').and_then(|(pid, data_dir)| Some((pid.parse().ok()?, data_dir.into()))))
        .expect("the child reports its server");
    let data_dir: PathBuf = data_dir;
    assert!(process_exists(pid) && data_dir.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let scratch = data_dir.ancestors().nth(2).unwrap();
    wait_until("the reaper", || !process_exists(pid) && !scratch.exists());
}

#[test]
fn servers_run_side_by_side() {
    let addresses = thread::scope(|scope| {
        let start = |number: u32| {
            let server = plain().config("cluster_name", &format!("number {number}")).start();
            assert_eq!(setting(&server, "cluster_name"), format!("number {number}"));
            server
        };
        let servers: Vec<_> = (0..4).map(|number| scope.spawn(move || start(number))).collect();
        let servers: Vec<_> = servers.into_iter().map(|server| server.join().unwrap()).collect();
        servers.iter().map(Server::data_dir).collect::<BTreeSet<_>>()
    });
    assert_eq!(addresses.len(), 4);
}

#[test]
fn a_server_that_does_not_start_says_why_and_is_removed() {
    let failure = plain().config("max_connections", "many").try_start().unwrap_err();
    assert!(failure.log.contains("invalid value for parameter \"max_connections\": \"many\""), "{failure:?}");
    assert!(failure.status.is_some_and(|status| !status.success()));

    let server = plain().start();
    server.stop(Shutdown::Fast);
    server.set_config("max_connections", "few");
    let failure = server.try_start_again().unwrap_err();
    assert!(failure.log.contains("\"few\"") && !failure.log.contains("ready to accept"), "{failure:?}");
    server.unset_config("max_connections");
    server.start_again();
    drop(server.connect());
}

#[test]
fn settings_change_at_a_reload_and_at_a_restart() {
    let server = plain().config("application_name", "it's one").start();
    assert_eq!(setting(&server, "application_name"), "it's one");
    server.set_config("work_mem", "7MB");
    server.set_config("max_connections", "7");
    server.reload();
    assert_eq!(setting(&server, "work_mem"), "7MB");
    assert_eq!(setting(&server, "max_connections"), "100");
    server.restart();
    assert_eq!(setting(&server, "max_connections"), "7");
    server.unset_config("work_mem");
    server.reload();
    assert_eq!(setting(&server, "work_mem"), "4MB");
}

#[test]
fn a_crash_keeps_what_was_committed() {
    let server = plain().start();
    let mut session = server.connect();
    session.batch_execute("CREATE TABLE t AS SELECT 1 AS committed").unwrap();
    session.batch_execute("BEGIN; INSERT INTO t VALUES (2)").unwrap();
    let pid = server.postmaster_pid();
    server.crash();
    assert!(!process_exists(pid));
    assert!(session.query("SELECT 1", &[]).is_err());
    let log_start = server.log_length();
    server.start_again();
    assert!(server.log_since(log_start).contains("automatic recovery in progress"));
    assert_eq!(server.connect().query_one("SELECT sum(committed) FROM t", &[]).unwrap().get::<_, i64>(0), 1);
}

#[test]
fn the_server_recovers_when_a_backend_is_killed() {
    let server = plain().start();
    let mut session = server.connect();
    let postmaster = server.postmaster_pid();
    server.kill_backend(session.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0));
    assert!(session.query("SELECT 1", &[]).is_err());
    server.wait_until_ready();
    assert_eq!(server.postmaster_pid(), postmaster);
    let pid_of_another = i32::try_from(std::process::id()).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| server.kill_backend(pid_of_another))).is_err());
}

#[test]
fn the_clock_of_a_running_server_steps() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let server = plain().faketime().start();
    let mut session = server.connect();
    let mut ahead_of_real = || {
        let now: f64 = session.query_one("SELECT extract(epoch FROM clock_timestamp())::float8", &[]).unwrap().get(0);
        now - SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
    };
    for offset in [0.0, -3600.0, 0.25, 3650.0 * 86_400.0, -0.5] {
        server.set_clock_offset(offset);
        let seen = ahead_of_real();
        assert!((seen - offset).abs() < 0.2, "set to {offset}, seen {seen}");
    }
    server.set_clock("2024-06-01 12:00:00");
    let frozen: String = session.query_one("SELECT clock_timestamp()::text", &[]).unwrap().get(0);
    assert_eq!(frozen, "2024-06-01 12:00:00+00");

    server.use_faketime(false);
    server.restart();
    let sql = "SELECT clock_timestamp() > '2025-01-01'";
    assert!(server.connect().query_one(sql, &[]).unwrap().get::<_, bool>(0));
}

#[test]
fn an_error_of_the_server_can_be_taken_apart() {
    let server = plain().start();
    let raise = "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '55000', DETAIL = 'd', HINT = 'h'; END $$";
    let error = refused(server.connect().batch_execute(raise));
    assert_eq!((error.sqlstate.as_str(), error.message.as_str()), ("55000", "no"));
    assert_eq!((error.detail.as_deref(), error.hint.as_deref()), (Some("d"), Some("h")));

    let nobody = refused(server.connection().user("nobody").connect(postgres::NoTls));
    assert_eq!((nobody.sqlstate.as_str(), nobody.hint), ("28000", None));
    assert!(catch_unwind(|| refused(Ok(()))).is_err());
}

#[test]
fn psql_stops_at_the_first_error() {
    let server = plain().start();
    let good = server.psql("SELECT 'über' AS word");
    assert!(good.status.success() && String::from_utf8(good.stdout).unwrap().contains("über"));
    let bad = server.psql("SELECT 1/0; SELECT 'not reached'");
    assert!(!bad.status.success());
    assert!(String::from_utf8(bad.stderr).unwrap().contains("division by zero"));
}

#[test]
fn the_programs_belong_to_the_installation_under_test() {
    let server = plain().start();
    let pg_config = env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
    let output = Command::new(pg_config).arg("--pkglibdir").output().unwrap();
    let expected = String::from_utf8(output.stdout).unwrap();
    let sql = "SELECT setting FROM pg_config WHERE name = 'PKGLIBDIR'";
    let row = server.connect().query_one(sql, &[]).unwrap();
    assert_eq!(row.get::<_, &str>(0), expected.trim_end());
    assert!(fs::metadata(expected.trim_end()).unwrap().is_dir());
}
