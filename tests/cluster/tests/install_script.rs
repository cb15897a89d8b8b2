//! The install script, `sql/snowflake_id--VERSION.sql`, is written by hand. It must create the same
//! objects as the script that cargo-pgrx generates from the Rust code.
//!
//! `tools/install-script` puts the generated script into a private copy of PostgreSQL, as the
//! version `generated`, and names it in the environment variable `GENERATED_SCRIPT`. `make lint`
//! calls it. `cargo test` and `make test` leave this file out (`Cargo.toml`), because most machines
//! have no cargo-pgrx.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cluster::objects::{description, differences};
use cluster::{Draw, Server, skip};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A server of a private copy of PostgreSQL, to which a test may add versions of the extension.
struct Scripts {
    server: Server,
    directory: PathBuf,
    generated: String,
    /// The install script in the repository.
    written: String,
}

impl Scripts {
    /// Returns `None`, and reports the test as skipped, without a generated script.
    fn new() -> Option<Self> {
        let Some(path) = env::var_os("GENERATED_SCRIPT").map(PathBuf::from) else {
            skip("GENERATED_SCRIPT does not name the generated script; tools/install-script generates it");
            return None;
        };
        let server = Server::drawing().start();
        let mut session = server.connect();
        let shared = session.value("SELECT setting FROM pg_config WHERE name = 'SHAREDIR'");
        let directory = Path::new(&shared).join("extension");
        // Otherwise this test could change an installation that somebody uses.
        assert_eq!(path.parent(), Some(&*directory), "the generated script is not in the servers' private copy");
        let version = session.value("SELECT default_version FROM pg_available_extensions WHERE name = 'snowflake_id'");
        let written = Path::new(ROOT).join(format!("sql/snowflake_id--{version}.sql"));
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        Some(Self { server, directory, generated: read(&path), written: read(&written) })
    }

    /// Describes what a script creates in a new database.
    fn create(&self, name: &str, script: &str) -> Vec<String> {
        let path = self.directory.join(format!("snowflake_id--{name}.sql"));
        fs::write(&path, script).expect("the private copy is writable");
        // For the server's user, whatever the test's umask is.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it was just written");
        self.server.connect().batch_execute(&format!("CREATE DATABASE {name}")).expect("the name is new");
        let mut session = self.server.connect_to(name);
        let create = format!("CREATE EXTENSION snowflake_id VERSION '{name}'");
        session.batch_execute(&create).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        // The name of the version is the one difference that is meant.
        session.batch_execute("UPDATE pg_extension SET extversion = 'x' WHERE extname = 'snowflake_id'").unwrap();
        description(&self.server, name, &mut session)
    }
}

#[test]
fn the_install_script_creates_what_the_code_declares() {
    let Some(scripts) = Scripts::new() else { return };
    let written = scripts.create("as_written", &scripts.written);
    let generated = scripts.create("as_generated", &scripts.generated);
    assert!(written.iter().filter(|line| line.starts_with("function|")).count() >= 40, "{written:#?}");
    let differences = differences(&generated, &written);
    assert!(
        differences.is_empty(),
        "\"-\" is what the code in src declares, \"+\" what the install script in sql creates:\n{}",
        differences.join("\n")
    );
}

/// The control: the install script could get wrong whatever the comparison does not notice.
#[test]
fn the_comparison_notices_what_an_install_script_can_get_wrong() {
    let Some(scripts) = Scripts::new() else { return };
    let batch = "CREATE FUNCTION snowflake_batch(count integer) RETURNS SETOF bigint\n\
                 VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_batch_wrapper';";
    let batch_with = |from: &str, to: &str| batch.replace(from, to);
    let edits = [
        (batch, batch_with("count", "number")),
        (batch, batch_with("VOLATILE", "STABLE")),
        (batch, batch_with("STRICT", "")),
        (batch, batch_with("UNSAFE", "RESTRICTED")),
        (batch, batch_with("snowflake_batch_wrapper", "snowflake_last_wrapper")),
        (batch, format!("{batch}\nCREATE FUNCTION more() RETURNS int LANGUAGE sql AS 'SELECT 1';")),
        ("dry_run boolean DEFAULT false", "dry_run boolean DEFAULT true".to_owned()),
        ("    below_2_53 boolean\n", "    below_53 boolean\n".to_owned()),
        ("ALTER FUNCTION snowflake_from(date, text) LEAKPROOF;\n", String::new()),
        ("COMMENT ON FUNCTION snowflake_batch(integer) IS\n    'draw a number of ids, ascending';\n", String::new()),
        ("COMMENT ON SEQUENCE snowflake_mark IS\n", "COMMENT ON SEQUENCE snowflake_mark_local IS\n".to_owned()),
        ("'draw a number of ids, ascending'", "'draw ids'".to_owned()),
        ("REVOKE ALL ON FUNCTION snowflake_advance(bigint), ", "REVOKE ALL ON FUNCTION ".to_owned()),
        ("GRANT SELECT ON snowflake_layouts TO PUBLIC;\n", String::new()),
        ("GRANT USAGE ON SCHEMA snowflake_plan TO PUBLIC;\n", String::new()),
        ("SELECT pg_catalog.pg_extension_config_dump('snowflake_mark', '');\n", String::new()),
        (
            "CREATE SEQUENCE snowflake_mark_local MINVALUE 0",
            "CREATE SEQUENCE snowflake_mark_local MINVALUE -1".to_owned(),
        ),
        ("CREATE VIEW snowflake_layouts AS SELECT *", "CREATE VIEW snowflake_layouts AS SELECT name".to_owned()),
    ];
    let written = scripts.create("unedited", &scripts.written);
    for (number, (from, to)) in edits.iter().enumerate() {
        assert!(scripts.written.contains(from), "the install script does not have: {from}");
        let edited = scripts.create(&format!("edited_{number}"), &scripts.written.replacen(from, to, 1));
        assert_ne!(differences(&written, &edited), [""; 0], "unnoticed: {to:?} instead of {from:?}");
    }
}
