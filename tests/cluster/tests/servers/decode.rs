//! Ids that other engines and languages decode by the expressions of docs/decode.md.
//!
//! The page's query prints them for a layout. Here it prints them for all, and each engine that can
//! be had evaluates its own. The programs are in `tests/clients`, in `engines` and `decode`.

use std::fmt::Write;

use cluster::pages::block;
use cluster::{Application, Draw, Language, Program, Server};
use postgres::Client;
use snowflake_core::clock::Utc;
use snowflake_core::id::layout::{BUILT_IN, Layout};

use crate::leaving::ids_until;

/// The page says so: not all engines have later times.
const LAST_MS: i64 = 7_258_118_400_000; // 2200-01-01

/// Layouts that are not built in: with a tick of 10 ms and with one of 100 ms that begins a
/// millisecond before midnight.
const OWN: [&str; 2] = [
    "time:39 datacenter:4 worker:8 sequence:12 unit:10ms epoch:2025-01-01T00:00:00Z",
    "time:40 sequence:20 unit:100ms epoch:1999-12-31T23:59:59.999Z",
];

/// An expression that the page's query prints.
struct Expression {
    layout: String,
    engine: String,
    wanted: String,
    text: String,
}

/// The results of expressions: each in a line with its layout, what it is, the id, and the value.
#[derive(Default)]
struct Results(Vec<String>);

impl Results {
    fn add(&mut self, layout: &str, wanted: &str, id: &str, value: &str) {
        self.0.push(format!("{layout}\t{wanted}\t{id}\t{value}"));
    }
}

/// All layouts with their lines.
fn layouts() -> impl Iterator<Item = (String, &'static str)> {
    let own = OWN.into_iter().enumerate().map(|(n, line)| (format!("own {n}"), line));
    BUILT_IN.into_iter().map(|(name, line)| (name.to_owned(), line)).chain(own)
}

/// Days that begin within the time of a layout.
fn days(layout: &Layout) -> impl Iterator<Item = &'static str> {
    let days =
        [("2017-02-28", 1_488_240_000_000), ("2024-02-29", 1_709_164_800_000), ("2026-11-20", 1_795_132_800_000)];
    let is_in_time = |ms| (layout.epoch_ms()..=layout.last_instant_ms()).contains(&ms);
    days.into_iter().filter(move |(_, ms)| is_in_time(*ms)).map(|(day, _)| day)
}

/// Gets the expressions of a layout by the page's query, with a first id for each of its days.
fn expressions(session: &mut Client, layout: &str, name: &str, line: &str) -> Vec<Expression> {
    let formulas = block("decode-formulas").trim_end_matches(';');
    let query = formulas.replace("name = 'snowflake'", &format!("name = '{name}'"));
    assert_eq!(query == formulas, name == "snowflake");
    let rows = session.query(&query, &[]).unwrap();
    let days: Vec<_> = days(&Layout::parse(line).unwrap()).collect();
    let printed = rows.iter().map(|row| [0, 1, 2].map(|column| row.get::<_, String>(column)));
    let each = printed.flat_map(|[engine, wanted, text]| {
        let of_days = |day: &&str| (format!("first id {day}"), text.replace("2026-11-20", day));
        let all = if wanted == "first id" { days.iter().map(of_days).collect() } else { vec![(wanted, text)] };
        let expression =
            |(wanted, text)| Expression { layout: layout.to_owned(), engine: engine.clone(), wanted, text };
        all.into_iter().map(expression).collect::<Vec<_>>()
    });
    each.collect()
}

/// A server, the expressions of all layouts for all engines, ids of each layout, and what these
/// expressions must result in.
struct World {
    application: Application,
    expressions: Vec<Expression>,
    ids: String,
    expected: Results,
}

impl World {
    fn new() -> Self {
        let application = Application::start(Server::drawing());
        let mut session = application.connect();
        let (mut all, mut ids_of_all, mut expected) = (Vec::new(), String::new(), Results::default());
        for (name, line) in layouts() {
            let of_layout = if BUILT_IN.iter().any(|(built_in, _)| *built_in == name) {
                expressions(&mut session, &name, &name, line)
            } else {
                let server = Server::builder().set("layout", line).start_with_extension();
                expressions(&mut server.connect(), &name, "current", line)
            };
            let layout = Layout::parse(line).unwrap();
            let ids = ids_until(&layout, LAST_MS);
            ids.iter().for_each(|id| writeln!(ids_of_all, "{name}\t{id}").unwrap());
            for Expression { wanted, .. } in of_layout.iter().filter(|expression| expression.engine == "Python") {
                if let Some(day) = wanted.strip_prefix("first id ") {
                    let first = session.value(&format!("SELECT snowflake_min('{day}Z', '{line}')"));
                    expected.add(&name, wanted, "", &first);
                    continue;
                }
                for id in &ids {
                    let parts = layout.parts(*id).unwrap();
                    let value = match wanted.as_str() {
                        "time" => Utc(parts.created_at_ms).to_string(),
                        "worker" => parts.worker.unwrap().to_string(),
                        "datacenter" => parts.datacenter.unwrap().to_string(),
                        other => panic!("{other}"),
                    };
                    expected.add(&name, wanted, &id.to_string(), &value);
                }
            }
            all.extend(of_layout);
        }
        assert!(expected.0.len() > 20_000, "{}", expected.0.len());
        Self { application, expressions: all, ids: ids_of_all, expected }
    }

    fn of(&self, engine: &str) -> impl Iterator<Item = &Expression> {
        self.expressions.iter().filter(move |expression| expression.engine == engine)
    }

    /// Gives a program the expressions of an engine, and the ids.
    fn give(&self, program: &Program, engine: &str) {
        let lines = self.of(engine).map(|of| format!("{}\t{}\t{}\n", of.layout, of.wanted, of.text));
        program.add("expressions.tsv", &lines.collect::<String>());
        program.add("ids.tsv", &self.ids);
    }

    #[track_caller]
    fn assert_decodes(&self, engine: &str, printed: &str) {
        let lines: Vec<_> = printed.lines().collect();
        let wrong = lines.iter().zip(&self.expected.0).find(|(line, expected)| **line != expected.as_str());
        assert!(wrong.is_none(), "{engine}: {wrong:?}");
        assert_eq!(lines.len(), self.expected.0.len(), "{engine}");
    }
}

#[test]
fn engines_in_python_decode_ids_by_the_expressions_of_the_page() {
    let Some(program) = Program::new(Language::Engines, "engines") else { return };
    let world = World::new();
    for engine in ["Python", "DuckDB", "ClickHouse", "pandas", "polars"] {
        world.give(&program, engine);
        world.assert_decodes(engine, &program.run(&world.application, &["decode.py", engine]));
    }
}

#[test]
fn javascript_decodes_ids_by_the_expressions_of_the_page() {
    let Some(program) = Program::new(Language::Node, "decode") else { return };
    let world = World::new();
    world.give(&program, "JavaScript");
    world.assert_decodes("JavaScript", &program.run(&world.application, &["decode.mjs"]));
}

#[test]
fn java_decodes_ids_by_the_expressions_of_the_page() {
    let Some(program) = Program::new(Language::Java, "decode") else { return };
    let world = World::new();
    world.give(&program, "Java");
    let puts = world
        .of("Java")
        .map(|of| format!("EXPRESSIONS.put(\"{}\\t{}\", id -> (Object) ({}));\n", of.layout, of.wanted, of.text));
    let source = include_str!("../../../clients/decode/Decode.java");
    let place = "// The test writes the expressions here.";
    assert!(source.contains(place));
    program.add("Decode.java", &source.replace(place, &puts.collect::<String>()));
    world.assert_decodes("Java", &program.run(&world.application, &["Decode.java"]));
}

/// A program in Go is compiled beforehand, so it has the expressions of the default layout alone.
#[test]
fn go_decodes_ids_of_the_default_layout_by_the_expressions_of_the_page() {
    let Some(program) = Program::new(Language::Go, "pgx") else { return };
    let application = Application::start(Server::drawing());
    let (name, line) = BUILT_IN[0];
    let source = include_str!("../../../clients/pgx/decode.go");
    for expression in expressions(&mut application.connect(), name, name, line) {
        if expression.engine == "Go" {
            assert!(source.contains(&expression.text), "the program does not have {}", expression.text);
        }
    }
    let layout = Layout::parse(name).unwrap();
    let ids = ids_until(&layout, LAST_MS);
    let texts: Vec<_> = ids.iter().map(i64::to_string).collect();
    let arguments: Vec<_> = ["pgx/decode"].into_iter().chain(texts.iter().map(String::as_str)).collect();
    let printed = program.run(&application, &arguments);
    let first = application.connect().value("SELECT snowflake_min('2026-11-20Z', 'snowflake')");
    let decoded = ids.iter().map(|id| {
        let parts = layout.parts(*id).unwrap();
        format!("{} {}", Utc(parts.created_at_ms), parts.worker.unwrap())
    });
    assert_eq!(
        printed.lines().map(str::to_owned).collect::<Vec<_>>(),
        [first].into_iter().chain(decoded).collect::<Vec<_>>()
    );
}

#[test]
fn engines_skip_rows_by_the_first_id_of_a_time() {
    let Some(program) = Program::new(Language::Engines, "engines") else { return };
    let application = Application::start(Server::drawing());
    for (engine, statement) in
        [("DuckDB", block("decode-duckdb")), ("ClickHouse", block("decode-clickhouse")), ("polars", "")]
    {
        program.add("statement.sql", statement);
        program.add("partitions.sql", block("decode-clickhouse-partitions"));
        program.run(&application, &["prune.py", engine]);
    }
}
