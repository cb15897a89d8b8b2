//! From PostgreSQL 18 on an extension need not lie in PostgreSQL's own directories:
//! `extension_control_path` and `dynamic_library_path` name others, which is how an image with an
//! extension is mounted beside a server's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::slice;

use cluster::server::Builder;
use cluster::{Draw, Server, postgres_version};

/// Starts a server that finds the extension only in a directory of its own, to where it is copied;
/// returns its library there, too. Before version 18 no setting names such a directory, and there
/// is nothing to test.
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
            if file.file_name().to_string_lossy().starts_with("snowflake_id") {
                fs::copy(file.path(), to.join(file.file_name())).unwrap();
            }
        }
        // For the server's user, whatever our umask.
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o755)).unwrap();

    // Without "$system", which is PostgreSQL's own directory. Its libraries stay: plpgsql is one.
    server.set_config("extension_control_path", &elsewhere.display().to_string());
    server.set_config("dynamic_library_path", &format!("{}/lib:$libdir", elsewhere.display()));
    server.restart();
    Some((server, elsewhere.canonicalize().unwrap().join("lib/snowflake_id.so")))
}

/// Returns the libraries of ours that a process has loaded.
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
    // The functions' file is "$libdir/snowflake_id", which PostgreSQL's own directory has, too: it
    // must not be loaded beside this one.
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
