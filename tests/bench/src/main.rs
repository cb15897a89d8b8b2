//! `make bench`: how fast `snowflake_id` is, against what PostgreSQL itself offers, in one run and one table.
//!
//! What is compared is measured in turn, run by run, by the same server on the same machine, and the server itself takes the
//! time: neither the machine's speed nor the client is in a ratio. A figure that is missed is no failure of the command, since
//! a machine that does something else meanwhile can miss any: look at the spread, and repeat it.
//!
//! One file per group of figures; `figure` is what they return, `session` how they ask the server, `report` what is printed.
//!
//! Not here yet: pgbench with 64 clients, one INSERT every three seconds, Redis, a chart, and the core by itself (criterion).

#![forbid(unsafe_code)]

mod arguments;
mod calls;
mod figure;
mod inserts;
mod planning;
mod report;
mod saturation;
mod series;
mod servers;
mod session;
mod time;
mod wal;

use std::process::ExitCode;
use std::time::Instant;

use arguments::Arguments;
use figure::Figure;

/// Figures that share a server, and are picked by one name.
struct Group {
    name: &'static str,
    about: &'static str,
    /// How many runs a full measurement has.
    runs: usize,
    measure: fn(runs: usize) -> Result<Vec<Figure>, postgres::Error>,
}

const GROUPS: [Group; 6] = [
    Group {
        name: "calls",
        about: "snowflake_next() against nextval(), the clock and UUIDs, half a million calls of each a run",
        runs: 21,
        measure: calls::measure,
    },
    Group {
        name: "saturation",
        about: "ids per second of a generator that is used up, a second a run; and of batches",
        runs: 10,
        measure: saturation::measure,
    },
    Group {
        name: "inserts",
        about: "a million rows into a table, by default of its primary key",
        runs: 7,
        measure: inserts::measure,
    },
    Group {
        name: "wal",
        about: "WAL per id at 100,000 ids per second, two seconds a run",
        runs: 5,
        measure: wal::measure,
    },
    Group { name: "time", about: "a day's rows of 5 million in 90 days", runs: 41, measure: time::measure },
    Group {
        name: "planning",
        about: "planning with and without the library, and the pushdown, in ten sessions each a run",
        runs: 21,
        measure: planning::measure,
    },
];

fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("bench: {message}");
            return ExitCode::FAILURE;
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the groups that were picked, one after the other.
fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    println!("{}\n", report::machine());
    let mut figures = Vec::new();
    for group in arguments.groups() {
        let (runs, group_start) = (arguments.runs.unwrap_or(group.runs), Instant::now());
        eprint!("measuring {}: {}, runs: {runs} ... ", group.name, group.about);
        figures.extend((group.measure)(runs)?.into_iter().map(|figure| (group.name, figure)));
        eprintln!("{:.0} s", group_start.elapsed().as_secs_f64());
    }
    println!("\n{}", report::table(&figures));
    println!("Measured in {:.0} s. {}", start.elapsed().as_secs_f64(), report::load());
    if let Some(path) = &arguments.csv {
        report::save(path, &figures)?;
        println!("The runs one by one: {}", path.display());
    }
    Ok(())
}
