//! Takes from the install script what Rust cannot declare, for the script of cargo-pgrx.
//!
//! It is the end of `sql/snowflake_id--VERSION.sql`. `src/lib.rs` includes what is written here. The
//! release profile leaves it out, so that an edit of the script does not compile the library again.
//! `tools/install-script`, which alone needs it, uses the profile `dev`.

use std::path::Path;
use std::{env, fs};

/// The beginning of that end.
const BEGINNING: &str = "-- What Rust cannot declare: ";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let directory = env::var_os("OUT_DIR").expect("cargo sets it");
    let surface = Path::new(&directory).join("surface.rs");
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        return fs::write(surface, "").expect("the directory is cargo's");
    }
    let script = concat!("sql/snowflake_id--", env!("CARGO_PKG_VERSION"), ".sql");
    println!("cargo::rerun-if-changed={script}");
    let text = fs::read_to_string(script).unwrap_or_else(|error| panic!("{script}: {error}"));
    let (_, end) = text.split_once(BEGINNING).unwrap_or_else(|| panic!("{script} has no line \"{BEGINNING}...\""));
    let declaration = format!("pgrx::extension_sql!({:?}, name = \"surface\", finalize);\n", [BEGINNING, end].concat());
    fs::write(surface, declaration).expect("the directory is cargo's");
}
