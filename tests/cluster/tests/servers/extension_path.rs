//! From PostgreSQL 18 on an extension may be outside PostgreSQL's own directories, in those that
//! `extension_control_path` and `dynamic_library_path` name. Container images with extensions are
//! mounted beside a server in this way.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::slice;

use cluster::pages::{block, settings};
use cluster::server::Builder;
use cluster::{Draw, Server, postgres_version};

/// Starts a server that finds the extension only in a directory to which it is copied. Returns the
/// library's path there, too. Before version 18 there is no such setting, and so nothing to test.
fn with_the_extension_elsewhere(builder: Builder) -> Option<(Server, PathBuf)> {
    if postgres_version() < 18 {
        return None;
    }
    let server = builder.start();
    let elsewhere = server.data_dir().with_file_name("elsewhere");
    let mut session = server.connect();
    let mut place =
        |name: &str| PathBuf::from(session.value(&format!("SELECT setting FROM pg_config WHERE name = '{name}'")));
    for (from, to) in [(place("SHAREDIR").join("extension"), "extension"), (place("PKGLIBDIR"), "lib")] {
        let to = elsewhere.join(to);
        fs::create_dir_all(&to).unwrap();
        for file in fs::read_dir(from).unwrap().map(Result::unwrap) {
            // The directory of that name has what a registry needs, and the extension does not.
            if file.file_name().to_string_lossy().starts_with("snowflake_id") && file.path().is_file() {
                fs::copy(file.path(), to.join(file.file_name())).unwrap();
            }
        }
        // Readable for the server's user, whatever the test's umask is.
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o755)).unwrap();

    // As docs/install.md says, but without "$system", PostgreSQL's own directory. "$libdir" stays
    // for libraries such as plpgsql.
    let directory = elsewhere.display().to_string();
    for (name, value) in settings(block("elsewhere")) {
        server.set_config(name, &value.replace("DIRECTORY", &directory).replace(":$system", ""));
    }
    server.restart();
    Some((server, elsewhere.canonicalize().unwrap().join("lib/snowflake_id.so")))
}

/// Returns the extension's libraries that a process has loaded.
fn loaded(pid: i32) -> Vec<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut paths: Vec<PathBuf> =
        maps.lines().filter_map(|line| line.split_whitespace().nth(5)).map(PathBuf::from).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("snowflake_id")));
    paths.dedup();
    paths
}

#[test]
fn the_extension_works_from_a_directory_of_its_own() {
    let Some((server, library)) = with_the_extension_elsewhere(Server::drawing()) else { return };
    assert_eq!(loaded(server.postmaster_pid()), slice::from_ref(&library));

    let mut session = server.connect();
    session.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    let first = session.draw();
    assert!(session.draw() > first);
    // The functions name "$libdir/snowflake_id", and that file exists in PostgreSQL's own
    // directory, too. It must not be loaded beside this one.
    assert_eq!(loaded(session.pid()), [library]);

    server.crash();
    server.start_again();
    assert!(server.connect().draw() > first);
}

#[test]
fn without_preload_the_library_is_found_in_a_directory_of_its_own() {
    let Some((server, library)) = with_the_extension_elsewhere(Server::builder().without_preload()) else { return };
    let mut session = server.connect();
    session.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    assert_eq!(session.value("snowflake_format(249489561523081219, 'snowflake')"), "2026-11-20T11:02:26.759Z #3 @(5)");
    assert_eq!(loaded(session.pid()), [library]);
}
