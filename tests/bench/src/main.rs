//! `make bench`: how fast `snowflake_id` is, compared with PostgreSQL's own features, in one run
//! and one table.
//!
//! Both sides of a comparison are measured in turn, run by run, by the same server on the same
//! machine. The server itself takes the time wherever it can. So a ratio depends neither on the
//! machine's speed nor on the client. A missed bar does not make the command fail, because a busy
//! machine can miss any bar: look at the spread, and repeat the run.
//!
//! There is one file per group of figures. They return `figure`s, ask the server through `session`
//! and `pgbench`, and are shown by `report`, `ratios` and `ids`. `benches` in `src/core` measures
//! the core by itself.

#![forbid(unsafe_code)]

mod arguments;
mod calls;
mod chart;
mod clients;
mod edition;
mod figure;
mod fleet;
mod forms;
mod ids;
mod inserts;
mod pause;
mod pgbench;
mod planning;
mod public;
mod ratios;
mod redis;
mod report;
mod saturation;
mod scale;
mod segments;
mod series;
mod servers;
mod session;
mod settled;
mod time;
mod wal;
mod widen;

use std::process::ExitCode;
use std::time::Instant;

use arguments::Arguments;
use figure::Measured;

/// Why there are no figures.
pub type Failure = Box<dyn std::error::Error>;

/// Figures that share a server and a name on the command line.
struct Group {
    name: &'static str,
    about: &'static str,
    /// The number of runs of a full measurement.
    runs: usize,
    /// Whether it is measured only if the command line names it.
    is_on_request: bool,
    measure: fn(&Arguments, usize) -> Result<Measured, Failure>,
}

const GROUPS: [Group; 19] = [
    Group {
        name: "calls",
        about: "snowflake_next() against nextval(), the clock, UUIDs and PL/pgSQL, 250,000 calls of each a run",
        runs: 21,
        is_on_request: false,
        measure: |_, runs| calls::measure(runs),
    },
    Group {
        name: "clients",
        about: "64 clients of pgbench that draw, against as many that ask for a constant or nextval(), three seconds of each a run",
        runs: 15,
        is_on_request: false,
        measure: |_, runs| clients::measure(runs),
    },
    Group {
        name: "saturation",
        about: "ids per second of a generator that is used up, a second a run; and of batches",
        runs: 10,
        is_on_request: false,
        measure: |_, runs| Ok(saturation::measure(runs)?.into()),
    },
    Group {
        name: "inserts",
        about: "a million rows into a table, by default of its primary key",
        runs: 7,
        is_on_request: false,
        measure: |_, runs| inserts::measure(runs),
    },
    Group {
        name: "rows",
        about: "clients that insert one row in each statement, three seconds of each a run",
        runs: 5,
        is_on_request: false,
        measure: |_, runs| inserts::measure_rows(runs),
    },
    Group {
        name: "pause",
        about: "one INSERT every three seconds",
        runs: 20,
        is_on_request: false,
        measure: |_, runs| Ok(pause::measure(runs)?.into()),
    },
    Group {
        name: "fleet",
        about: "leases: a failover to the first id, renewals that a registry serves, and one INSERT every three seconds",
        runs: 9,
        is_on_request: false,
        measure: |_, runs| Ok(fleet::measure(runs)?.into()),
    },
    Group {
        name: "segments",
        about: "snowflake_segment_next() against nextval(), and eight clients that draw against as many that ask for a constant",
        runs: 15,
        is_on_request: false,
        measure: |_, runs| segments::measure(runs),
    },
    Group {
        name: "redis",
        about: "a round trip to Redis INCR against one to snowflake_next(), two seconds of each a run",
        runs: 9,
        is_on_request: false,
        measure: |arguments, runs| redis::measure(arguments.redis.as_deref(), runs),
    },
    Group {
        name: "wal",
        about: "WAL per id at 100,000 ids per second, two seconds a run",
        runs: 5,
        is_on_request: false,
        measure: |_, runs| Ok(wal::measure(runs)?.into()),
    },
    Group {
        name: "time",
        about: "a day's rows of 5 million in 90 days",
        runs: 41,
        is_on_request: false,
        measure: |_, runs| Ok(time::measure(runs)?.into()),
    },
    Group {
        name: "planning",
        about: "planning with and without the library, and the pushdown, in ten sessions each a run",
        runs: 21,
        is_on_request: false,
        measure: |_, runs| Ok(planning::measure(runs)?.into()),
    },
    Group {
        name: "edition",
        about: "the SQL edition against nextval(), UUIDv7 and functions in PL/pgSQL: one id, a million rows, 8 and 64 clients",
        runs: 7,
        is_on_request: true,
        measure: |_, runs| edition::measure(runs),
    },
    Group {
        name: "forms",
        about: "each form of a condition on a time, by an id, a column and a UUID",
        runs: 5,
        is_on_request: true,
        measure: |arguments, runs| forms::measure(arguments.rows.unwrap_or(50_000_000), runs),
    },
    Group {
        name: "public",
        about: "snowflake_conceal() and snowflake_reveal(), against snowflake_encode() and gen_random_uuid(), 250,000 calls of each a run",
        runs: 21,
        is_on_request: true,
        measure: |_, runs| public::measure(runs),
    },
    Group {
        name: "settled",
        about: "a poll beside 100 and 1,000 sessions; 16 writers and a reader in order, in four ways, 8 seconds of each a run",
        runs: 5,
        is_on_request: true,
        measure: |_, runs| settled::measure(runs),
    },
    Group {
        name: "widen",
        about: "from integer to bigint: 10 million rows with three foreign keys, while a session writes",
        runs: 1,
        is_on_request: true,
        measure: |arguments, _| widen::measure(arguments.rows.unwrap_or(10_000_000)),
    },
    Group {
        name: "scale",
        about: "a PostgreSQL that serves 10, 100 and 1,000 members, which start, renew, and come back at once",
        runs: 1,
        is_on_request: true,
        measure: |_, runs| scale::measure_postgres(runs),
    },
    Group {
        name: "scale-etcd",
        about: "an etcd that serves 10, 100 and 1,000 members, which start, renew, and come back at once",
        runs: 1,
        is_on_request: true,
        measure: |_, runs| scale::measure_etcd(runs),
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

/// Measures the selected groups, one after the other.
fn run(arguments: &Arguments) -> Result<(), Failure> {
    let start = Instant::now();
    let machine = report::machine();
    println!("{machine} {}\n", report::load());
    let (mut figures, mut left_out, mut tables) = (Vec::new(), Vec::new(), Vec::new());
    for group in arguments.groups() {
        let (runs, group_start) = (arguments.runs.unwrap_or(group.runs), Instant::now());
        eprint!("measuring {}: {}, runs: {runs} ... ", group.name, group.about);
        let measured = (group.measure)(arguments, runs)?;
        figures.extend(measured.figures.into_iter().map(|figure| (group.name, figure)));
        left_out.extend(measured.left_out);
        tables.extend(measured.tables);
        eprintln!("{:.0} s", group_start.elapsed().as_secs_f64());
    }
    if !figures.is_empty() {
        println!("\n{}", report::table(&figures));
    }
    for table in &tables {
        println!("{table}");
    }
    for reason in &left_out {
        println!("Left out: {reason}.");
    }
    println!("Measured in {:.0} s. {}", start.elapsed().as_secs_f64(), report::load());
    if let Some(path) = &arguments.csv {
        report::save(path, &report::csv(&figures))?;
        println!("The runs one by one: {}", path.display());
    }
    if let Some(directory) = &arguments.charts {
        let foot = format!("{machine} {}.", report::today());
        report::save(&directory.join("figures.svg"), &ratios::svg(&foot, &figures)?)?;
        if let Some(ids) = ids::svg(&foot, &figures)? {
            report::save(&directory.join("ids.svg"), &ids)?;
        }
        report::save(&directory.join("figures.md"), &report::markdown(&machine, &figures))?;
        println!("The charts, and the table in Markdown: {}", directory.display());
    }
    Ok(())
}
