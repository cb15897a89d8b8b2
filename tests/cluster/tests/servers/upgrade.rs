//! From one version of the extension to the next: `ALTER EXTENSION snowflake_id UPDATE` turns a
//! database at any released version into what a new installation would be. Ids and sessions are not
//! affected.
//!
//! The library is the present one from the start, as after an upgrade of the package and a restart.
//! A database stays at its version until it is updated. `sql/released` has the install scripts of
//! earlier versions, and `tests/stage` puts them where PostgreSQL finds them. `tools/released`
//! ensures that they are not edited, which is tested here as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cluster::drawing::{HOUR_MS, noon};
use cluster::marks::stored;
use cluster::objects::{description, differences};
use cluster::{Draw, Server, assert_ascending, plan, refused};
use postgres::Client;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The version that CREATE EXTENSION installs.
fn default_version(session: &mut Client) -> String {
    session.value("SELECT default_version FROM pg_available_extensions WHERE name = 'snowflake_id'")
}

/// The released versions before the present one.
fn earlier_versions(session: &mut Client) -> Vec<String> {
    let present = default_version(session);
    let scripts = fs::read_dir(Path::new(ROOT).join("sql/released")).expect("there is such a directory");
    let version = |name: &str| Some(name.strip_prefix("snowflake_id--")?.strip_suffix(".sql")?.to_owned());
    let versions = scripts.filter_map(|entry| version(entry.ok()?.file_name().to_str()?));
    let mut versions: Vec<_> = versions.filter(|version| *version != present).collect();
    versions.sort();
    assert!(!versions.is_empty(), "no version before {present} is released");
    for version in &versions {
        let available = format!(
            "SELECT count(*) FROM pg_available_extension_versions WHERE name = 'snowflake_id' AND version = '{version}'"
        );
        assert_eq!(session.value(&available), "1", "tests/stage has not put the script of {version} where it belongs");
    }
    versions
}

/// Makes a database with the extension at a version, in a schema, and returns a session in it.
fn database(server: &Server, name: &str, version: &str, schema: &str) -> Client {
    server.connect().batch_execute(&format!("CREATE DATABASE {name}")).unwrap();
    let mut session = server.connect_to(name);
    session
        .batch_execute(&format!(
            "CREATE SCHEMA IF NOT EXISTS {schema}; CREATE EXTENSION snowflake_id SCHEMA {schema} VERSION '{version}'"
        ))
        .unwrap();
    session
}

/// In a schema that is in the search_path, and in one that is not.
#[test]
fn a_released_version_that_is_updated_is_what_a_new_installation_is() {
    let server = Server::drawing().start();
    let present = default_version(&mut server.connect());
    for schema in ["public", "ids"] {
        let new = format!("new_in_{schema}");
        let mut session = database(&server, &new, &present, schema);
        let installed = description(&server, &new, &mut session);
        for kind in [
            "extension|",
            "carried by dumps|",
            "object|function|",
            "rights at first|",
            "schema|",
            "function|",
            "relation|",
            "column|",
        ] {
            assert!(installed.iter().any(|line| line.starts_with(kind)), "there is no {kind}");
        }
        for (number, version) in earlier_versions(&mut session).iter().enumerate() {
            let old = format!("old_{number}_in_{schema}");
            let mut session = database(&server, &old, version, schema);
            let before = description(&server, &old, &mut session);
            assert_ne!(differences(&before, &installed), [""; 0], "{version} is {present} by another name");
            session.batch_execute("ALTER EXTENSION snowflake_id UPDATE").unwrap();
            let updated = description(&server, &old, &mut session);
            let differences = differences(&updated, &installed);
            assert!(
                differences.is_empty(),
                "\"-\" is what {version} comes to after the update, \"+\" what {present} has when it is new, in {schema}:\n{}",
                differences.join("\n")
            );
        }
    }
}

/// The control: an upgrade script could lose whatever the comparison does not notice.
#[test]
fn the_comparison_notices_what_an_upgrade_script_can_forget() {
    let server = Server::drawing().start_with_extension();
    let mut session = server.connect();
    let before = description(&server, "postgres", &mut session);
    let changes = [
        "COMMENT ON FUNCTION snowflake_next() IS NULL",
        "COMMENT ON EXTENSION snowflake_id IS 'another'",
        "ALTER FUNCTION snowflake_next() PARALLEL SAFE",
        "ALTER FUNCTION snowflake_next() STABLE",
        "ALTER FUNCTION snowflake_next() CALLED ON NULL INPUT",
        "ALTER FUNCTION snowflake_next() COST 100000",
        "ALTER FUNCTION snowflake_batch(integer) ROWS 7",
        "ALTER FUNCTION snowflake_from(date, text) NOT LEAKPROOF",
        "ALTER FUNCTION snowflake_next() SET work_mem = '1MB'",
        "ALTER FUNCTION snowflake_next() OWNER TO other",
        "GRANT EXECUTE ON FUNCTION snowflake_advance(bigint) TO PUBLIC",
        "REVOKE EXECUTE ON FUNCTION snowflake_next() FROM PUBLIC",
        "REVOKE SELECT ON snowflake_mark FROM PUBLIC",
        "GRANT SELECT (name) ON snowflake_layouts TO other",
        "ALTER SEQUENCE snowflake_mark START 1",
        "ALTER SEQUENCE snowflake_mark CACHE 2",
        "ALTER SEQUENCE snowflake_mark OWNER TO other",
        "ALTER VIEW snowflake_layouts SET (security_barrier)",
        "ALTER VIEW snowflake_layouts RENAME COLUMN name TO another",
        "ALTER VIEW snowflake_layouts ALTER COLUMN name SET DEFAULT 'x'; COMMENT ON COLUMN snowflake_layouts.name IS 'x'",
        "CREATE OR REPLACE VIEW snowflake_layouts AS SELECT * FROM snowflake_layouts() WHERE name <> 'current'",
        "ALTER EXTENSION snowflake_id DROP FUNCTION snowflake_next()",
        "CREATE FUNCTION more() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER EXTENSION snowflake_id ADD FUNCTION more()",
        "UPDATE pg_extension SET extconfig = extconfig[2:], extcondition = extcondition[2:] WHERE extname = 'snowflake_id'",
        "DELETE FROM pg_init_privs WHERE objoid = 'snowflake_mark'::regclass",
        "REVOKE USAGE ON SCHEMA snowflake_plan FROM PUBLIC",
        "ALTER SCHEMA snowflake_plan OWNER TO other",
        "COMMENT ON SCHEMA snowflake_plan IS NULL",
        "ALTER FUNCTION snowflake_plan.ceil(timestamp, text) SET SCHEMA public",
    ];
    session.batch_execute("CREATE ROLE other").unwrap();
    for change in changes {
        session.batch_execute(change).unwrap_or_else(|error| panic!("{change}: {error:?}"));
        let after = description(&server, "postgres", &mut session);
        assert_ne!(differences(&before, &after), [""; 0], "unnoticed: {change}");
        session.batch_execute("DROP EXTENSION IF EXISTS snowflake_id; DROP FUNCTION IF EXISTS more()").unwrap();
        // The function that was taken out of the extension is still there.
        session.batch_execute("DROP FUNCTION IF EXISTS snowflake_next(); CREATE EXTENSION snowflake_id").unwrap();
        assert_eq!(differences(&before, &description(&server, "postgres", &mut session)), [""; 0], "after {change}");
    }
}

/// Makes a database with the extension at a version, and stores a thousand ids of an instant in its
/// table `t`. Returns a session in it, and the ids.
fn database_with_ids(server: &Server, name: &str, version: &str, now_ms: i64) -> (Client, Vec<i64>) {
    server.freeze_clock(now_ms);
    let mut session = database(server, name, version, "public");
    session.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_next(), n int)").unwrap();
    let ids = session.ids("INSERT INTO t SELECT FROM generate_series(1, 1000) RETURNING id").unwrap();
    (session, ids)
}

const BY_TIME: &str = "SELECT count(*) FROM t WHERE snowflake_timestamp(id) >= '2026-06-01'";

#[test]
fn sessions_draw_on_while_their_database_is_updated() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    for (number, version) in earlier_versions(&mut server.connect()).iter().enumerate() {
        // Later than all that the round before has drawn: the databases share the server's lanes.
        let now_ms = noon() + number as i64 * 2 * HOUR_MS;
        let name = format!("old_{number}");
        let (mut owner, mut ids) = database_with_ids(&server, &name, version, now_ms);
        owner.batch_execute("ANALYZE t").unwrap();

        // A session that has plans, one within a transaction, one that has done nothing yet.
        let mut open = server.connect_to(&name);
        let draw = open.prepare("SELECT snowflake_next()").unwrap();
        let by_time = open.prepare(BY_TIME).unwrap();
        ids.push(open.query_one(&draw, &[]).unwrap().get(0));
        let planned = plan(&mut open, BY_TIME);
        let mut within = server.connect_to(&name);
        within.batch_execute("BEGIN").unwrap();
        ids.extend(within.ids("INSERT INTO t VALUES (DEFAULT, 1) RETURNING id").unwrap());
        let mut fresh = server.connect_to(&name);

        // First an update that is rolled back.
        // The clock stands still, so no draw moves a mark. Only a lease sets the fleet, for which
        // the objects of 0.2.0 have no place.
        let stored = |owner: &mut Client| {
            let mut lines = stored(owner);
            lines.retain(|line| line != "snowflake_mark_fleet|NULL");
            lines
        };
        let before = stored(&mut owner);
        owner.batch_execute("BEGIN; ALTER EXTENSION snowflake_id UPDATE").unwrap();
        ids.push(owner.draw());
        owner.batch_execute("ROLLBACK").unwrap();
        ids.push(open.query_one(&draw, &[]).unwrap().get(0));
        assert_eq!(owner.value("SELECT extversion FROM pg_extension WHERE extname = 'snowflake_id'"), *version);
        owner.batch_execute("ALTER EXTENSION snowflake_id UPDATE").unwrap();
        assert_eq!(stored(&mut owner), before, "from {version}");

        ids.push(open.query_one(&draw, &[]).unwrap().get(0));
        ids.extend(within.draw_batch(100));
        ids.push(fresh.draw());
        ids.extend(owner.draw_batch(100));
        ids.extend(within.ids("INSERT INTO t VALUES (DEFAULT, 2) RETURNING id").unwrap());
        within.batch_execute("COMMIT").unwrap();
        assert_ascending(&ids);
        assert_eq!(open.query_one(&by_time, &[]).unwrap().get::<_, i64>(0), 1002);
        for session in [&mut open, &mut within, &mut fresh, &mut owner] {
            assert_eq!(plan(session, BY_TIME), planned, "from {version}");
        }
        assert_eq!(owner.value("SELECT (snowflake_parse(max(id))).worker_id FROM t"), "5");
        server.assert_remembers(&name, now_ms, *ids.last().unwrap());
    }
}

/// The package was upgraded and the server restarted, but the databases were not updated.
#[test]
fn a_database_that_nobody_has_updated_yet_draws_and_reads_with_the_new_library() {
    let Some(server) = Server::drawing().start_frozen(noon()) else { return };
    for (number, version) in earlier_versions(&mut server.connect()).iter().enumerate() {
        // Later than all that the round before has drawn: the databases share the server's lanes.
        let now_ms = noon() + number as i64 * 2 * HOUR_MS;
        let name = format!("old_{number}");
        let (_open, mut ids) = database_with_ids(&server, &name, version, now_ms);
        // At its start a server counts as drawn what an earlier one can have drawn, up to a second
        // and more ahead.
        server.restart_at(now_ms + HOUR_MS);
        let mut session = server.connect_to(&name);
        ids.push(session.draw());
        ids.extend(session.draw_batch(100));
        assert_ascending(&ids);
        let last = *ids.last().unwrap();
        assert_eq!(session.value("SELECT snowflake_last()"), last.to_string());
        assert_eq!(session.value(&format!("SELECT (snowflake_parse({last})).worker_id")), "5");
        assert_eq!(
            session.value("SELECT min(snowflake_timestamp(id)) >= '2026-06-01 12:00+00' FROM t"),
            "true",
            "at {version}"
        );
        assert_eq!(session.value("SELECT count(*) > 11 FROM snowflake_layouts"), "true");
        session.batch_execute("ANALYZE t").unwrap();
        let planned = plan(&mut session, BY_TIME);
        assert!(planned.contains("Index Cond") || !planned.contains("snowflake_timestamp"), "{planned}");
        session.batch_execute(&format!("SELECT snowflake_advance({last})")).unwrap();
        assert!(session.draw() > last);
        assert_eq!(session.value("SELECT extversion FROM pg_extension WHERE extname = 'snowflake_id'"), *version);
        server.assert_remembers(&name, now_ms + HOUR_MS, last);
    }
}

// The released scripts themselves

/// A copy of what `tools/released` looks at, removed at the end.
struct Release(PathBuf);

impl Release {
    /// A tree in which 0.1.0 is released, and 0.2.0 is in progress.
    fn new() -> Self {
        let directory = nix::unistd::mkdtemp(&std::env::temp_dir().join("snowflake_id-released.XXXXXX")).unwrap();
        let release = Self(directory);
        for directory in ["tools", "sql/released"] {
            fs::create_dir_all(release.0.join(directory)).unwrap();
        }
        fs::copy(Path::new(ROOT).join("tools/released"), release.0.join("tools/released")).unwrap();
        release.write("sql/snowflake_id--0.2.0.sql", "-- what the present version has\n");
        release.write("sql/released/snowflake_id--0.1.0.sql", "-- what 0.1.0 had\n");
        release.freeze(&["released/snowflake_id--0.1.0.sql"]);
        release.write("sql/snowflake_id--0.1.0--0.2.0.sql", "-- what is new in 0.2.0\n");
        release.write("Cargo.toml", "[package]\nversion = \"0.2.0\"\n");
        assert_eq!(release.complaint(), None);
        release
    }

    /// Goes on to 0.3.0, after the tool has released 0.2.0.
    fn next(self) -> Self {
        self.write("sql/released/snowflake_id--0.2.0.sql", "-- what the present version has\n");
        self.freeze(&["released/snowflake_id--0.2.0.sql", "snowflake_id--0.1.0--0.2.0.sql"]);
        assert_eq!(self.complaint(), None, "right after the release");
        self.write("Cargo.toml", "[package]\nversion = \"0.3.0\"\n");
        fs::rename(self.0.join("sql/snowflake_id--0.2.0.sql"), self.0.join("sql/snowflake_id--0.3.0.sql")).unwrap();
        self.write("sql/snowflake_id--0.2.0--0.3.0.sql", "-- what is new in 0.3.0\n");
        assert_eq!(self.complaint(), None, "on the way to the next one");
        self
    }

    fn write(&self, path: &str, content: &str) {
        fs::write(self.0.join(path), content).unwrap();
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.0.join(path)).unwrap();
    }

    fn freeze(&self, names: &[&str]) {
        let sums = Command::new("sha256sum").current_dir(self.0.join("sql")).args(names).output().unwrap();
        assert!(sums.status.success(), "{sums:?}");
        let path = self.0.join("sql/released/SHA256SUMS");
        let before = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, before + &String::from_utf8(sums.stdout).unwrap()).unwrap();
    }

    fn check(&self) -> Output {
        Command::new("bash").arg(self.0.join("tools/released")).output().expect("there is bash")
    }

    fn complaint(&self) -> Option<String> {
        let output = self.check();
        (!output.status.success()).then(|| String::from_utf8(output.stderr).unwrap())
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_edited_script_of_a_released_version_is_noticed() {
    type Edit = fn(&Release);
    let edits: [(&str, Edit); 12] = [
        ("0.1.0.sql", |release| release.write("sql/released/snowflake_id--0.1.0.sql", "-- what 0.1.0 had, or so\n")),
        ("0.1.0--0.2.0.sql", |release| release.write("sql/snowflake_id--0.1.0--0.2.0.sql", "-- mended afterwards\n")),
        ("0.1.0.sql", |release| release.remove("sql/released/snowflake_id--0.1.0.sql")),
        ("0.1.0--0.2.0.sql", |release| release.remove("sql/snowflake_id--0.1.0--0.2.0.sql")),
        ("SHA256SUMS", |release| release.remove("sql/released/SHA256SUMS")),
        ("SHA256SUMS", |release| release.write("sql/released/snowflake_id--0.1.1.sql", "-- nobody knows\n")),
        ("snowflake_id--0.3.0.sql", |release| {
            // Until Cargo.toml has the next version, the released script is also the present one.
            fs::copy(
                release.0.join("sql/snowflake_id--0.3.0.sql"),
                release.0.join("sql/released/snowflake_id--0.3.0.sql"),
            )
            .unwrap();
            release.freeze(&["released/snowflake_id--0.3.0.sql", "snowflake_id--0.2.0--0.3.0.sql"]);
            assert_eq!(release.complaint(), None, "right after the release");
            release.write("sql/snowflake_id--0.3.0.sql", "-- what 0.3.0 has, and more\n");
        }),
        ("snowflake_id--0.3.0.sql", |release| release.remove("sql/snowflake_id--0.3.0.sql")),
        ("sql/snowflake_id--0.2.0.sql", |release| release.write("sql/snowflake_id--0.2.0.sql", "-- left over\n")),
        ("0.1.0--0.3.0.sql", |release| {
            // An upgrade script that is added after its version's release was not tested with it.
            release.write("sql/released/snowflake_id--0.3.0.sql", "-- what the present version has\n");
            release.freeze(&["released/snowflake_id--0.3.0.sql", "snowflake_id--0.2.0--0.3.0.sql"]);
            release.write("sql/snowflake_id--0.1.0--0.3.0.sql", "-- a short cut\n");
        }),
        ("0.2.0--0.3.0.sql", |release| release.remove("sql/snowflake_id--0.2.0--0.3.0.sql")),
        ("0.2.0--0.4.0", |release| release.write("sql/snowflake_id--0.2.0--0.4.0.sql", "-- too far\n")),
    ];
    for (number, (named, edit)) in edits.iter().enumerate() {
        let release = Release::new().next();
        edit(&release);
        let complaint = release.complaint().unwrap_or_else(|| panic!("edit {number} went unnoticed"));
        assert!(complaint.contains(named), "edit {number}: {complaint}");
    }
    let release = Release::new();
    release.write("sql/snowflake_id--0.1.0--0.2.0.sql", "-- what is new in 0.2.0, and more\n");
    assert_eq!(release.complaint(), None, "what is not released may change");
}

/// What needs no number must not fail for want of one: neither an advance nor the check of what a
/// restore has set.
#[test]
fn a_server_without_a_number_serves_a_database_that_is_not_updated() {
    let server = Server::builder().start();
    let mut session = server.connect();
    session.batch_execute("CREATE EXTENSION snowflake_id VERSION '0.2.0'").unwrap();
    session.batch_execute("SELECT snowflake_advance(snowflake_compose(now(), 1, 0))").unwrap();
    session.batch_execute("SELECT setval('snowflake_mark', 1)").unwrap();
    assert_eq!(session.value("SELECT (last_value > 1)::text FROM snowflake_mark"), "true");
    assert_eq!(refused(session.query("SELECT snowflake_next()", &[])).sqlstate, "55000");
}
