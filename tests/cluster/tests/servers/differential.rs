//! Time pushdown changes no result: random statements on random relations return the same rows with
//! and without it.
//!
//! A round is a world of relations ([`world`]) and statements on it ([`queries`], [`moments`]), all
//! from one seed. Both runs of a statement share a transaction, and so `now()`. Every run of the
//! test takes new seeds; `DIFFERENTIAL_SEED=123 DIFFERENTIAL_ROUNDS=1` repeats a round, and a
//! failing statement says which.

mod computed;
mod moments;
mod queries;
mod world;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, panic, thread};

use cluster::Server;
use postgres::{Client, SimpleQueryMessage};

use crate::random::Random;
use queries::{Query, Spelling, Writer};
use world::World;

/// The layouts of the servers: one that fills 63 bits, a narrower one, and one that has no name.
const SERVERS: [&str; 3] = ["snowflake", "js53", "time:35 worker:10 sequence:5 unit:100ms epoch:2020-01-01T00:00:00Z"];

const STATEMENTS_PER_ROUND: u64 = 250;
const ROUNDS: u64 = 21;
const CONTROL_ROUNDS: u64 = 6;

/// Planner settings beside the `enable_...` of the server's version; each statement is planned with
/// some of them.
const SETTINGS: [&str; 10] = [
    "constraint_exclusion = on",
    "constraint_exclusion = on",
    "constraint_exclusion = off",
    "join_collapse_limit = 1",
    "from_collapse_limit = 1",
    "geqo_threshold = 2",
    "cursor_tuple_fraction = 1",
    "recursive_worktable_factor = 0.001",
    "ROLE reader",
    "ROLE reader",
];

/// What the planner reckons with. Where all of it is free, any two plans cost the same.
const COSTS: [&str; 5] =
    ["seq_page_cost", "random_page_cost", "cpu_tuple_cost", "cpu_index_tuple_cost", "cpu_operator_cost"];

const ZONES: [&str; 14] = [
    "UTC",
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Kiritimati",
    "America/Havana",
    "America/St_Johns",
    "Pacific/Apia",
    "<+13:30>-13:30",
    // From PostgreSQL 18 on, AT TIME ZONE 'UTC' means five hours off UTC in it.
    "UTC+5",
    // Summer time without an offset of its own is an hour more.
    "A-167:59:00B,J1,J365",
    "A167:59B,J60,J300",
];

/// What stands for the SQLSTATE of the error about a number that is not an id.
const NO_ID: &str = "no id";

/// The rows of each command of a run as text, after the plan of its first; or the SQLSTATE of its
/// error.
#[derive(Debug)]
struct Run {
    plan: String,
    rows: Result<Vec<Vec<String>>, String>,
}

/// One of the two sides of a comparison.
#[derive(Clone, Copy)]
struct Side {
    spelling: Spelling,
    pushdown: bool,
}

const ON: Side = Side { spelling: Spelling::Time, pushdown: true };
const OFF: Side = Side { spelling: Spelling::Time, pushdown: false };

/// What the statements of some rounds had in common.
#[derive(Debug, Default)]
struct Tally {
    statements: u64,
    /// Their plans differ.
    rewritten: u64,
    /// Only one of the two plans has an index condition on the id, or leaves partitions out.
    by_id: u64,
    with_rows: u64,
    /// How many raised the same error, by SQLSTATE.
    errors: BTreeMap<String, u64>,
    parallel: u64,
    /// Only the first side refused a number that is not an id.
    refused: u64,
    /// Their rows differ.
    different: u64,
    /// Reports on the first statements whose rows differ.
    reports: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.statements += other.statements;
        self.rewritten += other.rewritten;
        self.by_id += other.by_id;
        self.with_rows += other.with_rows;
        other.errors.into_iter().for_each(|(sqlstate, count)| *self.errors.entry(sqlstate).or_default() += count);
        self.parallel += other.parallel;
        self.refused += other.refused;
        self.different += other.different;
        self.reports.extend(other.reports);
    }

    /// Counts a statement, and returns whether its rows differ.
    fn count(&mut self, one: &Run, other: &Run) -> bool {
        self.statements += 1;
        self.rewritten += u64::from(one.plan != other.plan);
        self.by_id += u64::from(uses_of_ids(&one.plan) != uses_of_ids(&other.plan));
        self.parallel += u64::from(one.plan.contains("Workers Planned"));
        self.with_rows += u64::from(one.rows.iter().flatten().any(|rows| rows.len() > 1));
        if let Err(sqlstate) = &one.rows {
            *self.errors.entry(sqlstate.clone()).or_default() += 1;
        }
        let is_different = one.rows != other.rows;
        self.different += u64::from(is_different);
        is_different
    }

    fn percent(&self, part: u64) -> u64 {
        100 * part / self.statements
    }
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// New seeds, or those that the environment names.
fn seeds(rounds: u64) -> Range<u64> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_millis() as u64;
    let first = number("DIFFERENTIAL_SEED").unwrap_or_else(now);
    println!("DIFFERENTIAL_SEED={first} repeats this run");
    first..first + number("DIFFERENTIAL_ROUNDS").unwrap_or(rounds)
}

fn start(layout: &str, workers: &str) -> Server {
    let server = Server::drawing()
        .config("snowflake_id.layout", layout)
        .config("fsync", "off")
        // Ends only what would never end. On a busy machine a statement of a second takes a minute,
        // and one that is cancelled on one side counts as a difference.
        .config("statement_timeout", "20min")
        .config("max_parallel_workers", workers)
        .start();
    // The first id gives the database a layout.
    let setup = "CREATE EXTENSION snowflake_id; SELECT snowflake_next(); CREATE ROLE reader";
    server.connect().batch_execute(setup).expect("the server draws");
    server
}

/// Runs the rounds, each on the server that its seed selects, and compares one side of each
/// statement with the others. Parallel plans get at most so many workers.
fn compare<const N: usize>(seeds: &Range<u64>, workers: &str, one: Side, others: [Side; N]) -> [Tally; N] {
    let mut tallies = [(); N].map(|()| Tally::default());
    thread::scope(|scope| {
        let on_one_server = |at: usize| {
            let mut tallies = [(); N].map(|()| Tally::default());
            let mut seeds = seeds.clone().filter(|seed| (seed % SERVERS.len() as u64) as usize == at).peekable();
            if seeds.peek().is_some() {
                let server = start(SERVERS[at], workers);
                seeds.for_each(|seed| round(&server, SERVERS[at], seed, one, &others, &mut tallies));
            }
            tallies
        };
        let servers = (0..SERVERS.len()).map(|at| scope.spawn(move || on_one_server(at))).collect::<Vec<_>>();
        for server in servers {
            let its = server.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
            tallies.iter_mut().zip(its).for_each(|(tally, its)| tally.add(its));
        }
    });
    tallies
}

fn round(server: &Server, layout: &str, seed: u64, one: Side, others: &[Side], tallies: &mut [Tally]) {
    let world = World::new(layout, &Random::new(seed));
    let mut client = server.connect();
    let planner = Planner::of(&mut client);
    let before = "CREATE SCHEMA round; SET search_path = round, public";
    let after = "GRANT ALL ON SCHEMA round TO reader; GRANT ALL ON ALL TABLES IN SCHEMA round TO reader";
    let ddl = format!("{before}; {}; {after}", world.ddl());
    client.batch_execute(&ddl).unwrap_or_else(|error| panic!("seed {seed}: {error:?}\n{ddl}"));
    for statement in 0..STATEMENTS_PER_ROUND {
        let random = Random::new(seed.wrapping_mul(STATEMENTS_PER_ROUND).wrapping_add(statement));
        // First, so that a seed gives the same statements whatever settings the version has.
        let seed_of_statement = random.of(0..=i64::MAX - 1) as u64;
        let settings = planner.settings(&random);
        client.batch_execute(&format!("BEGIN; {settings}")).expect("the settings exist");
        let mut run = |side: Side| {
            let query = Writer::write(&world, seed_of_statement, side.spelling);
            let run = run(&mut client, &query, side.pushdown);
            (query, run)
        };
        let side = one;
        let one = run(one);
        for (other, tally) in others.iter().zip(&mut *tallies) {
            let is_spelt_differently = other.spelling != side.spelling;
            let other = run(*other);
            // How the other conditions are written decides whether a division by zero is reached.
            let divides = |(_, run): &(Query, Run)| run.rows.as_ref().is_err_and(|error| error == "22012");
            // From 17 on, PostgreSQL takes NULL <@ 'empty' for false where the planner knows the
            // range, and for NULL elsewhere.
            let negates_range = |(query, _): &(Query, Run)| {
                let sql = format!("{} {:?}", query.sql, query.parameters);
                sql.contains("NOT ") && sql.contains("tstzrange")
            };
            // Such a row is left out where its condition is one on the id, and an error elsewhere.
            // A plan may also reach a time that the other one does not, as of a view's column.
            let is_no_id = |(_, run): &(Query, Run)| run.rows.as_ref().is_err_and(|error| error == NO_ID);
            if is_no_id(&one) || is_no_id(&other) {
                tally.refused += u64::from(!is_no_id(&other));
                continue;
            }
            if is_spelt_differently && (divides(&one) || divides(&other) || negates_range(&other)) {
                continue;
            }
            if tally.count(&one.1, &other.1) && tally.reports.is_empty() {
                tally.reports.push(report(&world, seed, statement, &settings, [&one, &other]));
            }
        }
        client.batch_execute("ROLLBACK").expect("the session lives");
    }
    client.batch_execute("SET client_min_messages = warning; DROP SCHEMA round CASCADE").expect("the schema is ours");
}

/// The planner settings of a server's version.
struct Planner {
    /// The `enable_...`, each with the opposite of its default.
    flipped: Vec<(String, &'static str)>,
    parallel: &'static str,
}

impl Planner {
    fn of(client: &mut Client) -> Self {
        let names = "SELECT name, reset_val = 'on' FROM pg_settings WHERE name ^@ 'enable_' ORDER BY name";
        let rows = client.query(names, &[]).expect("it answers");
        let flipped = rows.iter().map(|row| (row.get(0), if row.get(1) { "off" } else { "on" })).collect();
        let version = "SELECT current_setting('server_version_num')::integer";
        let version = client.query_one(version, &[]).expect("it answers").get::<_, i32>(0);
        let parallel = if version < 160_000 { "force_parallel_mode" } else { "debug_parallel_query" };
        Self { flipped, parallel }
    }

    /// Random settings for one statement.
    fn settings(&self, random: &Random) -> String {
        let mut settings = format!("SET LOCAL TimeZone = '{}'", random.pick(&ZONES));
        let mut set = |setting: &str| write!(settings, "; SET LOCAL {setting}").expect("a string takes everything");
        for setting in SETTINGS.iter().filter(|_| random.one_in(6)) {
            set(setting);
        }
        for (name, value) in &self.flipped {
            // Without sequential scans and sorts, indexes serve conditions and orders even on the
            // smallest table.
            let often = ["enable_seqscan", "enable_sort"].contains(&name.as_str());
            if random.one_in(if often { 3 } else { 7 }) {
                set(&format!("{name} = {value}"));
            }
        }
        let cache = random.pick(&["auto", "force_generic_plan", "force_generic_plan", "force_custom_plan"]);
        set(&format!("plan_cache_mode = {cache}"));
        match random.below(16) {
            0 => COSTS.iter().for_each(|cost| set(&format!("{cost} = 0"))),
            1 => {
                for cost in COSTS.iter().filter(|_| random.one_in(2)) {
                    set(&format!("{cost} = {}", random.pick(&["0", "0.0001", "1000"])));
                }
            }
            _ => (),
        }
        if random.one_in(16) {
            let free = [
                "parallel_setup_cost",
                "parallel_tuple_cost",
                "min_parallel_table_scan_size",
                "min_parallel_index_scan_size",
            ];
            free.iter().for_each(|name| set(&format!("{name} = 0")));
            set(&format!("{} = {}", self.parallel, random.pick(&["on", "off"])));
        } else {
            set("max_parallel_workers_per_gather = 0");
        }
        settings
    }
}

/// The commands that run a statement, the first of which explains it.
fn commands(query: &Query) -> Vec<String> {
    let mut commands = Vec::new();
    let sql = &query.sql;
    if let Some(parameters) = &query.parameters {
        // Three values, and enough executions for a generic plan if the planner has the choice.
        let execute = |at: usize| {
            let values = parameters.iter().map(|(_, values)| values[at].clone()).collect::<Vec<_>>().join(", ");
            if values.is_empty() { "EXECUTE q".to_owned() } else { format!("EXECUTE q({values})") }
        };
        commands.push(format!("EXPLAIN (COSTS OFF) {}", execute(0)));
        let times = if query.changes.is_some() || parameters.is_empty() { 1 } else { 7 };
        for at in 0..times {
            commands.push(execute(at % 3));
            // A plan that was made in one time zone must also be right in another.
            commands.push(format!("SET LOCAL TimeZone = '{}'", ZONES[at % 2 * 3]));
        }
    } else {
        commands.push(format!("EXPLAIN (COSTS OFF) {sql}"));
        commands.push(sql.clone());
    }
    if let Some(table) = &query.changes {
        commands.extend(["SET LOCAL ROLE none".to_owned(), format!("TABLE {table}")]);
    }
    commands
}

fn run(client: &mut Client, query: &Query, pushdown: bool) -> Run {
    let mut setup =
        vec![format!("SET LOCAL snowflake_id.enable_time_pushdown = {pushdown}"), "DEALLOCATE ALL".to_owned()];
    if let Some(parameters) = &query.parameters {
        let types = parameters.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let types = if types.is_empty() { types } else { format!("({types})") };
        setup.push(format!("PREPARE q{types} AS {}", query.sql));
    }
    client.batch_execute("SAVEPOINT before").expect("the transaction goes on");
    let run = match explain_and_run(client, &setup, &commands(query)) {
        Ok((plan, mut rows)) => {
            if !query.ordered {
                rows.iter_mut().for_each(|rows| rows.sort());
            }
            Run { plan, rows: Ok(rows) }
        }
        Err(error) => {
            let refusal =
                error.as_db_error().unwrap_or_else(|| panic!("the server did not answer: {error}\n{}", query.sql));
            let is_no_id = refusal.message().contains("is outside the layout's range");
            let error = if is_no_id { NO_ID } else { refusal.code().code() };
            Run { plan: String::new(), rows: Err(error.to_owned()) }
        }
    };
    client.batch_execute("ROLLBACK TO before").expect("the transaction goes on");
    run
}

/// Returns the plan that the first of `commands` explains, and the rows of the others.
fn explain_and_run(
    client: &mut Client,
    setup: &[String],
    commands: &[String],
) -> Result<(String, Vec<Vec<String>>), postgres::Error> {
    let (explain, commands) = commands.split_first().expect("the first explains");
    let messages = client.simple_query(&format!("{}; {explain}", setup.join("; ")))?;
    let plan = rows_of(&messages).pop().expect("EXPLAIN has a result").join("\n");
    if starts_workers_again(&plan) {
        client.batch_execute("SET LOCAL max_parallel_workers = 0").expect("the transaction goes on");
    }
    let messages = client.simple_query(&commands.join("; "))?;
    Ok((plan, rows_of(&messages)))
}

/// Whether a plan may start its workers for each row of another node, which can be thousands of
/// processes.
fn starts_workers_again(plan: &str) -> bool {
    let mut above: Vec<(usize, bool)> = Vec::new();
    plan.lines().any(|line| {
        let name = line.trim_start().trim_start_matches("->").trim_start();
        let depth = line.len() - name.len();
        above.retain(|(other, _)| *other < depth);
        let repeats = ["Nested Loop", "Recursive Union", "SubPlan"].iter().any(|node| name.starts_with(node));
        above.push((depth, repeats));
        name.starts_with("Gather") && above.iter().any(|(_, repeats)| *repeats)
    })
}

/// The rows of each command, and last the count that the command reports.
fn rows_of(messages: &[SimpleQueryMessage]) -> Vec<Vec<String>> {
    let mut results = vec![Vec::new()];
    for message in messages {
        let rows = results.last_mut().expect("there is always one");
        match message {
            SimpleQueryMessage::Row(row) => {
                let values = (0..row.len()).map(|at| row.get(at).unwrap_or("NULL"));
                rows.push(values.collect::<Vec<_>>().join(" | "));
            }
            SimpleQueryMessage::CommandComplete(count) => {
                rows.push(format!("({count})"));
                results.push(Vec::new());
            }
            _ => {}
        }
    }
    results.pop();
    results
}

/// The lines of a plan that show how an index on the id, or partitions, are used.
fn uses_of_ids(plan: &str) -> Vec<&str> {
    let is_use = |line: &&str| line.contains("Cond: ") && line.contains("id ") || line.contains("Subplans Removed");
    plan.lines().filter(is_use).collect()
}

fn report(world: &World, seed: u64, statement: u64, settings: &str, sides: [&(Query, Run); 2]) -> String {
    let mut report = format!("DIFFERENTIAL_SEED={seed} DIFFERENTIAL_ROUNDS=1, statement {statement}\n{settings};\n");
    // The statement's relations, and before them those that they are made of.
    let mut named = sides.iter().map(|(query, _)| format!("{} ", query.sql)).collect::<String>();
    for relation in world.relations.iter().rev() {
        if named.contains(&format!(" {} ", relation.name)) {
            let lines = relation.ddl.lines().filter(|line| !line.starts_with("INSERT"));
            named += &lines.clone().map(|line| format!("{line} ")).collect::<String>();
            report += &lines.map(|line| format!("{line}\n")).collect::<String>();
        }
    }
    let [one, other] = sides.map(|(_, run)| run.rows.as_ref());
    // Only the first result that differs; if none does, all of them.
    // One of them may have fewer.
    let at = one
        .iter()
        .zip(&other)
        .find_map(|(one, other)| (0..one.len().max(other.len())).find(|&at| one.get(at) != other.get(at)));
    for (query, Run { plan, rows }) in sides {
        let parameters = query.parameters.as_ref().map(|parameters| format!("PREPAREd: {parameters:?}\n"));
        report += &format!("\n{};\n{}{plan}\n", query.sql, parameters.unwrap_or_default());
        report += &match (rows, at) {
            (Ok(results), Some(at)) => format!("Result {at}: {:#?}\n", results.get(at)),
            _ => format!("{rows:?}\n"),
        };
    }
    report
}

#[test]
fn every_statement_returns_the_same_rows_with_and_without_pushdown() {
    let [tally] = compare(&seeds(ROUNDS), "4", ON, [OFF]);
    println!("{tally:?}");
    assert_eq!(tally.different, 0, "{}", tally.reports.join("\n\n"));
    // Without enough rewritten statements, equal rows would prove nothing.
    assert!(tally.percent(tally.rewritten) >= 50, "{tally:?}");
    assert!(tally.percent(tally.by_id) >= 20, "{tally:?}");
    assert!(tally.percent(tally.with_rows) >= 50, "{tally:?}");
    assert!(tally.percent(tally.errors.values().sum()) <= 5, "{tally:?}");
    assert!(500 * tally.refused <= tally.statements, "{tally:?}");
}

#[test]
fn the_comparison_notices_a_bound_that_is_wrong() {
    let spellings = [
        Spelling::Bound,
        Spelling::BoundOneTickLate,
        Spelling::OtherBound,
        Spelling::BoundOfTheTimeItself,
        Spelling::BoundOfTheIdBeside,
        Spelling::OrderOfIds,
    ];
    let sides = spellings.map(|spelling| Side { spelling, pushdown: false });
    // Without workers, because only the test above is about what they return.
    let [right, wrong @ ..] = compare(&seeds(CONTROL_ROUNDS), "0", OFF, sides);
    assert_eq!(right.different, 0, "{}", right.reports.join("\n\n"));
    // The last three are of a few kinds of statements. Each bar is a fourth of what is usual or
    // less: in 40 runs, the third had 18 of 1,000 with a standard deviation of 3.
    for ((wrong, spelling), least) in wrong.iter().zip(&spellings[1..]).zip([40, 20, 4, 2, 2]) {
        println!("{spelling:?}: {} of {} differ", wrong.different, wrong.statements);
        assert!(
            1000 * wrong.different >= least * wrong.statements,
            "{spelling:?}: {} of {} differ",
            wrong.different,
            wrong.statements
        );
    }
}
