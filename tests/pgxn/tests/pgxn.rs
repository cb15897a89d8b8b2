//! PGXN's `META.json` is valid by PGXN's own check, and says what the repository holds.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn meta() -> Value {
    let file = fs::read_to_string(root().join("META.json")).expect("it is there");
    serde_json::from_str(&file).expect("it is JSON")
}

fn is_valid(meta: &Value) -> bool {
    pgxn_meta::Validator::new().validate(meta).is_ok()
}

#[test]
fn it_is_valid() {
    let mut meta = meta();
    assert!(is_valid(&meta));
    meta["license"] = json!("none");
    assert!(!is_valid(&meta), "the check finds nothing wrong");
}

#[test]
fn it_names_the_version_and_files_of_the_repository() {
    let meta = meta();
    let cargo = fs::read_to_string(root().join("Cargo.toml")).expect("it is there");
    let version = cargo.lines().find_map(|line| line.strip_prefix("version = ")).expect("it has a version");
    let provided = meta["provides"].as_object().expect("it is a table");
    // PGXN's client runs CREATE EXTENSION for each, so the SQL edition is not among them.
    assert_eq!(provided.keys().collect::<Vec<_>>(), ["snowflake_id"]);
    let extension = &provided["snowflake_id"];
    for stated in [&meta["version"], &extension["version"]] {
        assert_eq!(stated.to_string(), version);
    }
    for file in ["file", "docfile"] {
        let path = extension[file].as_str().expect("it is a path");
        assert!(root().join(path).exists(), "there is no {path}");
    }
    assert!(extension["file"].as_str().expect("it is a path").contains(version.trim_matches('"')));
}
