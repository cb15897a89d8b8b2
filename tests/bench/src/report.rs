//! The table, and the CSV file with the values of all runs.

use std::env;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::figure::{Bar, Figure, Verdict};
use crate::ids;
use crate::series::{Series, quantile};

/// Returns the table's head, so that a copy of it shows where it comes from.
pub fn machine() -> String {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown", |(_, model)| model);
    format!("{}, {processors} processors, {model}.", postgres())
}

/// The version of PostgreSQL from pg_config, without the distribution's addition in brackets.
fn postgres() -> String {
    let pg_config = env::var_os("PG_CONFIG").unwrap_or_else(|| "pg_config".into());
    let output = Command::new(pg_config).arg("--version").output();
    let version = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    version.split(" (").next().unwrap_or_default().to_owned()
}

/// Describes how busy the machine is, because other load is part of the figures.
pub fn load() -> String {
    let loadavg = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let minute = loadavg.split_ascii_whitespace().next().unwrap_or("unknown").to_owned();
    format!("Load of the last minute: {minute} processes.")
}

/// Formats the figures in columns.
pub fn table(figures: &[(&str, Figure)]) -> String {
    let head = ["", "figure", "bar", "measured", "single runs", "of each side", ""].map(str::to_owned);
    let rows: Vec<_> = [head].into_iter().chain(figures.iter().map(|(group, figure)| row(group, figure))).collect();
    let widths: [usize; 7] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut table = String::new();
    for row in &rows {
        let line: String = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}  ")).collect();
        table.push_str(line.trim_end());
        table.push('\n');
    }
    table
}

fn row(group: &str, figure: &Figure) -> [String; 7] {
    let unit = figure.unit();
    let side = |series: &Series| shown(figure.of_runs(series), series.unit);
    let sides = match &figure.yardstick {
        Some(yardstick) => format!("{}, {}", side(&figure.subject), side(yardstick)),
        None => side(&figure.subject),
    };
    let (least, greatest) = figure.spread();
    let verdict = match figure.verdict() {
        Verdict::Ok => "ok",
        Verdict::WithinSpread => "ok (in spread)",
        Verdict::Missed => "missed",
        Verdict::Reported => "",
    };
    let spread = format!("{} to {}", shown(least, ""), shown(greatest, unit));
    let value = shown(figure.value(), unit);
    [group.to_owned(), figure.name(), bar(figure), value, spread, sides, verdict.to_owned()]
}

/// Formats a figure's bar; nothing if there is none.
pub fn bar(figure: &Figure) -> String {
    let unit = figure.unit();
    match figure.bar {
        Bar::AtMost(bar) => format!("<= {}", shown(bar, unit)),
        Bar::AtMostOrSpread(bar) => format!("<= {} or in spread", shown(bar, unit)),
        Bar::AtLeast(bar) => format!(">= {}", shown(bar, unit)),
        Bar::Exactly(bar) => format!("= {}", shown(bar, unit)),
        Bar::Factor(bar) => format!("{} to {}", shown(1.0 / bar, unit), shown(bar, unit)),
        Bar::None => String::new(),
    }
}

/// Formats a number with three digits or more, and its unit: 0.0123, 1.230, 12.3, 1,230,000.
pub fn shown(value: f64, unit: &str) -> String {
    let size = value.abs();
    let decimals = match size {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 || size == 0.0 => 3,
        _ => 5,
    };
    let mut text = format!("{value:.decimals$}");
    if decimals == 0 {
        let digits = usize::from(value < 0.0);
        let mut comma = text.len();
        while comma > digits + 3 {
            comma -= 3;
            text.insert(comma, ',');
        }
    }
    if unit.is_empty() { text } else { format!("{text} {unit}") }
}

/// Returns the figures as tables of a page: the time per id, and the ratios.
pub fn markdown(machine: &str, figures: &[(&str, Figure)]) -> String {
    let mut page = format!("`make bench` measured this on {}. {machine}\n", today());
    let ids = ids::times(figures);
    if !ids.is_empty() {
        page.push_str("\n| one id | median | least run | greatest run |\n|---|---|---|---|\n");
    }
    for (what, values) in ids {
        let [least, middle, greatest] = [0.0, 0.5, 1.0].map(|share| ids::shown_time(quantile(&values, share)));
        page.push_str(&format!("| {what} | {middle} | {least} | {greatest} |\n"));
    }
    page.push_str("\n| figure | median | least run | greatest run | bar |\n|---|---|---|---|---|\n");
    for (_, figure) in figures {
        let (least, greatest) = figure.spread();
        let [middle, least, greatest] = [figure.value(), least, greatest].map(|value| shown(value, figure.unit()));
        page.push_str(&format!("| {} | {middle} | {least} | {greatest} | {} |\n", figure.name(), bar(figure)));
    }
    page
}

/// Returns the date in UTC.
pub fn today() -> String {
    let output = Command::new("date").args(["--utc", "+%F"]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Writes the values of all runs.
pub fn csv(figures: &[(&str, Figure)]) -> String {
    let mut csv = String::from("group,figure,role,what,unit,run,value\n");
    for (number, (group, figure)) in figures.iter().enumerate() {
        let series = [("measured", Some(&figure.subject)), ("yardstick", figure.yardstick.as_ref())];
        for (role, series) in series.into_iter().filter_map(|(role, series)| Some((role, series?))) {
            for (run, value) in series.values.iter().enumerate() {
                let (what, unit) = (series.what.replace('"', "\"\""), series.unit);
                writeln!(csv, "{group},{},{role},\"{what}\",{unit},{},{value}", number + 1, run + 1)
                    .expect("a string can be written to");
            }
        }
    }
    csv
}

/// Saves a text, and makes the directory for it.
///
/// # Errors
///
/// The file cannot be written.
pub fn save(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, text)
}
