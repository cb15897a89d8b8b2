//! Checks the form of the project's pages, and prints each fault with its place.

#![forbid(unsafe_code)]

use std::fs;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut faults = pages::form::faults(&pages::root(), pages::pages());
    let cargo_toml = fs::read_to_string(pages::root().join("Cargo.toml")).expect("it is there");
    for path in ["README.md", "docs/install.md"] {
        let missing = pages::form::missing_versions(&cargo_toml, &pages::page(path).text);
        faults.extend(missing.iter().map(|sentence| format!("{path}: it does not say \"{sentence}\"")));
    }
    let alerts = fs::read_to_string(pages::root().join("monitoring/alerts.yaml")).expect("it is there");
    let [monitor, runbook] = ["docs/monitor.md", "docs/runbook.md"].map(|path| &pages::page(path).text);
    faults.extend(pages::alerts::faults(&alerts, monitor, runbook));
    faults.extend(pages::messages::faults(&pages::root(), &pages::page("docs/reference.md").text, runbook));
    for fault in &faults {
        eprintln!("{fault}");
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
