//! The SQL surface with its exact output: PostgreSQL's own `pg_regress` over `tests/pg_regress`.
//!
//! After an intended change, read the difference that the failing test prints, and copy the result
//! over the expected file. The first line of the difference has its path.

use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::Server;
use postgres::config::Host;

/// The order matters: the first file creates the extension.
const FILES: [&str; 11] = [
    "surface",
    "decode",
    "compose",
    "encoding",
    "bounds",
    "partitions",
    "layouts",
    "draw",
    "mark",
    "convert",
    "errors",
];

#[test]
fn the_sql_surface_is_exactly_as_expected() {
    let server = Server::builder().config("snowflake_id.worker_id", "5").start();
    let pg_config = |what: &str| {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        let output = Command::new(pg_config).arg(what).output().expect("pg_config runs");
        String::from_utf8(output.stdout).expect("a path in UTF-8").trim().to_owned()
    };
    let pgxs = pg_config("--pgxs");
    let regress = Path::new(&pgxs).parent().and_then(Path::parent).expect("pgxs.mk lies deeper").join("test/regress");
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pg_regress");
    let output = std::env::var_os("TEST_OUTPUT").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    let output = output.join("pg_regress");

    let run = Command::new(regress.join("pg_regress"))
        .arg(format!("--bindir={}", pg_config("--bindir")))
        .arg(format!("--inputdir={}", input.display()))
        .arg(format!("--outputdir={}", output.display()))
        .arg(format!("--host={}", socket_directory(&server).display()))
        .args(["--port=5432", "--user=postgres", "--dbname=regress"])
        .args(FILES)
        .output()
        .expect("pg_regress runs: the package postgresql-server-dev is there");

    let differences = std::fs::read_to_string(output.join("regression.diffs")).unwrap_or_default();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(run.status.success(), "{}{}\n{differences}", text(&run.stdout), text(&run.stderr));
}

fn socket_directory(server: &Server) -> PathBuf {
    match server.connection().get_hosts() {
        [Host::Unix(directory)] => directory.clone(),
        hosts => panic!("a test's server has one socket, not {hosts:?}"),
    }
}
