//! Checks the form of the project's pages, and prints each fault with its place.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let faults = pages::form::faults(&pages::root(), pages::pages());
    for fault in &faults {
        eprintln!("{fault}");
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
