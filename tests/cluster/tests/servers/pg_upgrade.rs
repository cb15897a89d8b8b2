//! `pg_upgrade` carries the marks, the layout and the worker numbers. A server of a newer
//! PostgreSQL that starts with its clock an hour behind draws no id that the old one can have
//! drawn.
//!
//! `OLD_PG_CONFIG` names the `pg_config` of an older PostgreSQL with the extension;
//! `make test-matrix` has one (`tests/old-server`). Without it PostgreSQL is upgraded to the same
//! version, which takes the same steps.
//!
//! A process knows one installation. So the old server runs in another process
//! ([`the_old_server`]), which leaves its data directory behind.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::drawing::{HOUR_MS, noon};
use cluster::marks::{behind_the_mark_ms, end_ms, stored};
use cluster::{
    Builder, Draw, Marks, Server, Shutdown, assert_ascending, assert_unique, faketime_library, postgres_version,
    refused, skip,
};

use crate::public::{KEY, TOKEN_OF_1, new_key, reveal};

/// Where the old server is to leave its data directory.
const OLD_DIRECTORY: &str = "OLD_DIRECTORY";

/// Whether its pages are to have checksums like the new server's. PostgreSQL 18 has them by
/// default, older versions do not.
const OLD_CHECKSUMS: &str = "OLD_CHECKSUMS";

/// A server with a layout other than the default, and two lanes.
fn settings() -> Builder {
    let numbered = Server::drawing().set("layout", "twitter").set("datacenter_id", "3");
    numbered.set("backup_worker", "on").set("max_borrow", "0")
}

/// The released version that a database is left at.
fn earliest_version() -> String {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sql/released");
    let names = fs::read_dir(scripts).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let version = |name: String| Some(name.strip_prefix("snowflake_id--")?.strip_suffix(".sql")?.to_owned());
    names.filter_map(version).min().expect("there is a released version")
}

#[test]
#[ignore = "a part of a_server_after_pg_upgrade_continues_above_what_it_holds, in a process of its own"]
fn the_old_server() {
    let directory = PathBuf::from(env::var_os(OLD_DIRECTORY).expect("only the other test calls this one"));
    let server = settings().start_frozen(noon()).expect("libfaketime is there");
    let mut session = server.connect();
    session.batch_execute("CREATE DATABASE untouched").unwrap();
    session.batch_execute("CREATE DATABASE earlier").unwrap();
    session
        .batch_execute(&format!(
            "CREATE TABLE t (n serial, id bigint PRIMARY KEY DEFAULT snowflake_next());
             CREATE TABLE by_day (id bigint DEFAULT snowflake_next()) PARTITION BY RANGE (id);
             CREATE TABLE by_day_1 PARTITION OF by_day FOR VALUES FROM (0) TO ({});",
            i64::MAX
        ))
        .unwrap();
    // A tick has 4096 ids in each lane.
    session.batch_execute("INSERT INTO t SELECT FROM generate_series(1, 6000)").unwrap();
    server.freeze_clock(noon() + 5000);
    session.batch_execute("INSERT INTO t SELECT FROM generate_series(1, 6000)").unwrap();
    session.batch_execute("INSERT INTO by_day SELECT FROM generate_series(1, 10)").unwrap();
    assert!(session.mark_ms() >= Some(noon() + 5000) && session.backup_mark_ms() >= Some(noon() + 5000));

    new_key(&mut session, KEY);
    server.connect_to("untouched").batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    let mut earlier = server.connect_to("earlier");
    let version = earliest_version();
    earlier
        .batch_execute(&format!(
            "CREATE EXTENSION snowflake_id VERSION '{version}';
             CREATE TABLE t (n serial, id bigint PRIMARY KEY DEFAULT snowflake_next())"
        ))
        .unwrap();
    server.freeze_clock(noon() + 10_000);
    earlier.batch_execute("INSERT INTO t SELECT FROM generate_series(1, 6000)").unwrap();

    for database in ["postgres", "untouched", "earlier"] {
        let mut session = server.connect_to(database);
        let stored = stored(&mut session).join("\n");
        session.execute("CREATE TABLE facts AS SELECT $1::text AS stored", &[&stored]).unwrap();
    }
    server.stop(Shutdown::Fast);
    if env::var_os(OLD_CHECKSUMS).is_some_and(|on| on == "on") {
        let mut checksums = server.client("pg_checksums");
        let output = checksums.arg("--enable").arg("--pgdata").arg(server.data_dir()).output().unwrap();
        // Checksums may be on already.
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() || said.contains("already enabled"), "{said}");
    }
    let copied = Command::new("cp").arg("-a").arg(server.data_dir()).arg(&directory).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
}

/// The directory of an installation's programs.
fn programs(pg_config: &OsString) -> String {
    let output = Command::new(pg_config).arg("--bindir").output().expect("there is such a pg_config");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// What `pg_upgrade` has left behind in a directory when it failed.
fn logs(directory: &Path) -> String {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let read = |path: PathBuf| if path.is_dir() { logs(&path) } else { fs::read_to_string(&path).unwrap_or_default() };
    entries.map(read).collect()
}

/// Makes a cluster with the old installation, and upgrades it to a server of the new one, which is
/// not running.
///
/// It makes no difference whether the new server preloads the library while `pg_upgrade` runs.
/// Users copy the configuration before or after it.
fn upgraded(options: &[&str], preloaded: bool) -> Server {
    let new = env::var_os("PG_CONFIG").unwrap_or_else(|| "pg_config".into());
    // 18.6, the newest of Debian testing, cannot read the catalogs of Debian 12's 15.20. (Its
    // pg_upgrade fails for any table, even without the extension.)
    let old = env::var_os("OLD_PG_CONFIG").filter(|_| postgres_version() != 18).unwrap_or_else(|| new.clone());
    // Its clock is far back until the test sets it, because at its start a server counts as drawn
    // what an earlier one can have drawn.
    let server = settings().faketime_from("-20y").start();
    let checksums = server.connect().value("current_setting('data_checksums')");
    server.stop(Shutdown::Fast);
    if !preloaded {
        server.set_config("shared_preload_libraries", "");
    }

    let old_directory = server.data_dir().with_file_name("old");
    let mut child = Command::new(env::current_exe().expect("it is running"));
    child.args(["--exact", "pg_upgrade::the_old_server", "--ignored", "--nocapture"]).env("PG_CONFIG", &old);
    let child = child.env(OLD_DIRECTORY, &old_directory).env(OLD_CHECKSUMS, checksums).output().unwrap();
    let said = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && old_directory.exists(), "{said}");

    let mut pg_upgrade = server.client("pg_upgrade");
    pg_upgrade
        .args(["--username=postgres", "--no-sync"])
        .args(["--old-bindir", &programs(&old), "--new-bindir", &programs(&new)])
        .arg("--old-datadir")
        .arg(&old_directory)
        .arg("--new-datadir")
        .arg(server.data_dir())
        .args(options);
    let output = pg_upgrade.output().expect("pg_upgrade runs");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", logs(&server.data_dir().join("pg_upgrade_output.d")));
    fs::remove_dir_all(old_directory).unwrap();
    server.set_config("shared_preload_libraries", "snowflake_id");
    server
}

#[test]
fn a_server_after_pg_upgrade_continues_above_what_it_holds() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    for (options, preloaded) in [(&[][..], true), (&["--link"], false)] {
        let server = upgraded(options, preloaded);
        server.start_again_at(noon() - HOUR_MS);
        for database in ["postgres", "untouched", "earlier"] {
            let mut session = server.connect_to(database);
            let facts = session.value("SELECT stored FROM facts");
            assert_eq!(stored(&mut session).join("\n"), facts, "in database {database}, {options:?}");
            let used = database != "untouched";
            let marks = [session.mark_ms(), session.backup_mark_ms()];
            assert_eq!(marks.map(|mark| mark.is_some()), [used; 2]);
            if used {
                let mark = marks.into_iter().min().unwrap();
                let held = session.ids("SELECT id FROM t").unwrap();
                assert!(held.iter().all(|id| Some(end_ms("twitter", *id)) <= mark));
                behind_the_mark_ms(&refused(session.try_draw()));
                behind_the_mark_ms(&refused(session.ids("SELECT * FROM snowflake_batch(10)")));
            }
        }

        assert_eq!(reveal(&mut server.connect(), TOKEN_OF_1), Some(1));

        // The layout and the worker numbers are carried, too.
        server.stop(Shutdown::Fast);
        server.set_config("snowflake_id.layout", "leaf");
        server.unset_config("snowflake_id.datacenter_id");
        server.start_again_at(noon() + HOUR_MS);
        let refusal = refused(server.connect().try_draw());
        assert_eq!(refusal.sqlstate, "55000", "{refusal:?}");
        assert!(refusal.detail.as_deref().is_some_and(|detail| detail.contains("\"twitter\"")), "{refusal:?}");
        server.stop(Shutdown::Fast);
        server.set_config("snowflake_id.layout", "twitter");
        server.set_config("snowflake_id.datacenter_id", "4");

        // The clock is right again, and the mark still ahead of it.
        let mark = {
            server.start_again_at(noon());
            let mut session = server.connect_to("earlier");
            session.mark_ms().max(session.backup_mark_ms()).unwrap()
        };
        server.freeze_clock(mark);
        for database in ["postgres", "earlier"] {
            let mut session = server.connect_to(database);
            let before = server.log_length();
            let mut ids = session.ids("SELECT id FROM t").unwrap();
            let greatest = *ids.iter().max().unwrap();
            let drawn: Vec<i64> = (0..300).map(|_| session.draw()).collect();
            assert_ascending(&drawn);
            assert!(drawn[0] > greatest, "{} was drawn although there is {greatest}", drawn[0]);
            ids.extend(drawn);
            assert_unique(&ids);
            let log = server.log_since(before);
            let noted = "this database's ids were drawn with datacenter 3, worker 5, backup worker on";
            assert!(log.contains(noted), "{log}");

            session.batch_execute("ALTER EXTENSION snowflake_id UPDATE").unwrap();
            let present = "SELECT default_version FROM pg_available_extensions WHERE name = 'snowflake_id'";
            let version = "SELECT extversion FROM pg_extension WHERE extname = 'snowflake_id'";
            assert_eq!(session.value(version), session.value(present));
            assert!(session.draw() > *ids.last().unwrap());
        }
        let mut session = server.connect_to("untouched");
        session.draw();
        let mut session = server.connect();
        session.batch_execute("INSERT INTO by_day SELECT FROM generate_series(1, 10)").unwrap();
        assert_eq!(session.value("SELECT count(DISTINCT id) FROM by_day_1"), "20");
    }
}
