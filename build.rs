//! Takes from the install script what Rust cannot declare, for the script of cargo-pgrx.
//!
//! It is the end of `sql/snowflake_id--VERSION.sql`. `src/lib.rs` includes what is written here.

use std::path::Path;
use std::{env, fs};

/// The beginning of that end.
const BEGINNING: &str = "-- What Rust cannot declare: ";

fn main() {
    let script = concat!("sql/snowflake_id--", env!("CARGO_PKG_VERSION"), ".sql");
    println!("cargo::rerun-if-changed={script}");
    let text = fs::read_to_string(script).unwrap_or_else(|error| panic!("{script}: {error}"));
    let (_, end) = text.split_once(BEGINNING).unwrap_or_else(|| panic!("{script} has no line \"{BEGINNING}...\""));
    let declaration = format!("pgrx::extension_sql!({:?}, name = \"surface\", finalize);\n", [BEGINNING, end].concat());
    let directory = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&directory).join("surface.rs"), declaration).expect("the directory is cargo's");
}
