//! The settings: which values stop the start, which a running server refuses, which roles may
//! change them, and how they show in ids.

use std::collections::BTreeSet;
use std::fs;

use cluster::pages::{block, settings};
use cluster::{Draw, Refusal, Server, Shutdown, compile_library, plan, postgres_version, refused, skip};
use postgres::{Client, NoTls};
use snowflake_core::id::layout::Layout;

const TWITTER: &str = "time:41 datacenter:5 worker:5 sequence:12 unit:1ms epoch:2010-11-04T01:42:54.657Z";

/// Changes the extension's settings in the configuration file.
fn set(server: &Server, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        server.set_config(&format!("snowflake_id.{name}"), value);
    }
}

fn unset(server: &Server, settings: &[(&str, &str)]) {
    for (name, _) in settings {
        server.unset_config(&format!("snowflake_id.{name}"));
    }
}

/// The place of a setting in the configuration file, in the server's words.
fn place(server: &Server, name: &str) -> String {
    let path = server.data_dir().join("test.conf");
    let file = fs::read_to_string(&path).unwrap();
    let line = file.lines().position(|line| line.starts_with(&format!("snowflake_id.{name} ="))).unwrap() + 1;
    format!("line {line} of configuration file \"{}\"", path.display())
}

/// PostgreSQL's message about a number of milliseconds outside a setting's range. From version 17
/// on it repeats the unit.
fn outside_the_range(name: &str, value: &str, maximum: u32) -> String {
    let unit = if postgres_version() >= 17 { " ms" } else { "" };
    format!("{value} ms is outside the valid range for parameter \"snowflake_id.{name}\" (0{unit} .. {maximum}{unit})")
}

/// SQLSTATE, message, DETAIL and HINT, with "" for a missing one.
fn texts(refusal: &Refusal) -> [&str; 4] {
    let [detail, hint] = [&refusal.detail, &refusal.hint].map(|text| text.as_deref().unwrap_or_default());
    [&refusal.sqlstate, &refusal.message, detail, hint]
}

#[test]
fn a_wrong_value_stops_the_start_and_the_log_says_why() {
    let server = Server::drawing().config("log_line_prefix", "%e ").start();
    server.stop(Shutdown::Fast);

    // The settings in the file, the wrong one last; then SQLSTATE, message, DETAIL and the
    // beginning of the HINT of the FATAL error.
    type Case<'a> = (&'a [(&'a str, &'a str)], [&'a str; 4]);
    let cases: &[Case] = &[
        (
            &[("worker_id", "1024")],
            [
                "22023",
                "worker 1024 is outside the layout's range 0..1023",
                "The value is invalid for parameter \"snowflake_id.worker_id\".",
                "The layout is \"time:41 worker:10 sequence:12 unit:1ms epoch:2025-01-01T00:00:00Z\".",
            ],
        ),
        (&[("worker_id", "abc")], ["22023", "invalid value for parameter \"snowflake_id.worker_id\": \"abc\"", "", ""]),
        (
            &[("worker_id", "-2")],
            [
                "22023",
                "-2 is outside the valid range for parameter \"snowflake_id.worker_id\" (-1 .. 2147483647)",
                "",
                "",
            ],
        ),
        (
            &[("layout", "twitter"), ("datacenter_id", "32")],
            [
                "22023",
                "datacenter 32 is outside the layout's range 0..31",
                "The value is invalid for parameter \"snowflake_id.datacenter_id\".",
                &format!("The layout is \"{TWITTER}\"."),
            ],
        ),
        (
            &[("datacenter_id", "1")],
            [
                "22023",
                "datacenter 1 is given, but the layout has no datacenter field",
                "The value is invalid for parameter \"snowflake_id.datacenter_id\".",
                "Remove the setting, or choose another layout; the layout is",
            ],
        ),
        (
            &[("layout", "js53"), ("backup_worker", "on"), ("worker_id", "16")],
            [
                "22023",
                "worker 16 is outside the layout's range 0..15",
                "The value is invalid for parameter \"snowflake_id.worker_id\".",
                "The layout is \"time:32 worker:5 sequence:16 unit:1s epoch:2019-01-01T00:00:00Z\", and \
                 \"snowflake_id.backup_worker\" reserves the upper half of its worker numbers.",
            ],
        ),
        // Beyond the layout's whole range, not only its lower half.
        (
            &[("layout", "js53"), ("backup_worker", "on"), ("worker_id", "32")],
            ["22023", "worker 32 is outside the layout's range 0..15", "", ""],
        ),
        (
            &[("layout", "twiter")],
            [
                "22023",
                "unknown layout \"twiter\"",
                "The value is invalid for parameter \"snowflake_id.layout\".",
                "The built-in layouts are snowflake, twitter, js53, ",
            ],
        ),
        (
            &[("layout", "time:41 machine:10 sequence:12 unit:1ms epoch:2025-01-01T00:00:00Z")],
            [
                "22023",
                "unknown layout field \"machine:10\"",
                "The value is invalid for parameter \"snowflake_id.layout\".",
                "A layout is written like \"time:41 ",
            ],
        ),
        (
            &[("layuot", "twitter")],
            [
                "42704",
                "unrecognized configuration parameter \"snowflake_id.layuot\"",
                "",
                "Perhaps you meant \"snowflake_id.layout\".",
            ],
        ),
        (
            &[("Worker", "5")],
            [
                "42704",
                "unrecognized configuration parameter \"snowflake_id.Worker\"",
                "",
                "Perhaps you meant \"snowflake_id.worker_id\".",
            ],
        ),
        (
            &[("node", "5")],
            [
                "42704",
                "unrecognized configuration parameter \"snowflake_id.node\"",
                "",
                "The settings are snowflake_id.backup_worker, snowflake_id.datacenter_id, ",
            ],
        ),
        (
            &[("layout", "mastodon"), ("worker_id", "-1"), ("backup_worker", "on")],
            [
                "22023",
                "a layout without a worker field has no backup workers",
                "The value is invalid for parameter \"snowflake_id.backup_worker\".",
                "Turn off \"snowflake_id.backup_worker\", or choose another layout.",
            ],
        ),
        (
            &[("layout", "mastodon"), ("worker_id", "5")],
            [
                "22023",
                "worker 5 is given, but the layout has no worker field",
                "The value is invalid for parameter \"snowflake_id.worker_id\".",
                "Remove the setting, or choose another layout; the layout is",
            ],
        ),
        (
            &[("backup_worker", "perhaps")],
            ["22023", "parameter \"snowflake_id.backup_worker\" requires a Boolean value", "", ""],
        ),
        (
            &[("on_rollback", "waiit")],
            [
                "22023",
                "invalid value for parameter \"snowflake_id.on_rollback\": \"waiit\"",
                "",
                "Available values: error, wait.",
            ],
        ),
        (&[("max_borrow", "3600001")], ["22023", &outside_the_range("max_borrow", "3600001", 3_600_000), "", ""]),
        (&[("max_borrow", "-1")], ["22023", &outside_the_range("max_borrow", "-1", 3_600_000), "", ""]),
    ];
    for (settings, [sqlstate, message, detail, hint]) in cases {
        set(&server, settings);
        let failure = server.try_start_again().expect_err("a wrong value stops the start");
        let mut expected = format!("{sqlstate} FATAL:  {message}\n");
        for (name, text) in [("DETAIL", detail), ("HINT", hint)] {
            if !text.is_empty() {
                expected += &format!("{sqlstate} {name}:  {text}\n");
            }
        }
        // The HINT may be longer.
        assert!(failure.log.contains(expected.trim_end()), "{settings:?}: expected\n{expected}in {failure:?}");
        assert_eq!(failure.log.matches(message).count(), 1, "{settings:?}: reported once, in {failure:?}");
        let context = format!("{sqlstate} CONTEXT:  {}\n", place(&server, settings.last().unwrap().0));
        assert!(failure.log.contains(&context), "{settings:?}: expected\n{context}in {failure:?}");
        assert!(!failure.log.contains("ready to accept connections"), "{settings:?}: {failure:?}");
        unset(&server, settings);
        set(&server, &[("worker_id", "5")]);
    }
    server.start_again();
}

/// PostgreSQL rounds a setting's number before it calls any library.
#[test]
fn a_number_that_would_be_rounded_is_refused() {
    let server = Server::drawing().config("log_line_prefix", "%e ").start();
    let message = |name: &str, value: &str| format!("invalid value for parameter \"snowflake_id.{name}\": \"{value}\"");
    const HINT: &str = "The value must be a whole number.";
    server.stop(Shutdown::Fast);
    for (name, value) in [("worker_id", "5.5"), ("worker_id", "4.6"), ("worker_id", "0x5.8"), ("datacenter_id", ".5")] {
        set(&server, &[(name, value)]);
        let failure = server.try_start_again().expect_err("a number that would be rounded stops the start");
        let message = message(name, value);
        let context = place(&server, name);
        let expected = format!("22023 FATAL:  {message}\n22023 HINT:  {HINT}\n22023 CONTEXT:  {context}\n");
        assert!(failure.log.contains(&expected), "expected\n{expected}in {failure:?}");
        unset(&server, &[(name, "")]);
    }
    // These values lose nothing.
    for whole in ["6.0", "0x6", "60e-1"] {
        set(&server, &[("worker_id", whole)]);
        server.start_again();
        assert_eq!(server.connect().value("current_setting('snowflake_id.worker_id')"), "6", "{whole}");
        server.stop(Shutdown::Fast);
    }
}

#[test]
fn a_name_of_ours_behind_another_prefix_is_warned_of_at_the_start() {
    let server = Server::drawing().config("log_line_prefix", "%e ").start();
    // Settings of other libraries, such as pgEdge's, and names that are not like the extension's.
    let of_others = ["snowflake.node", "snowflake.laYuot", "plpgsql.layout", "app.worker_id", "app.layout"];
    for name in ["snowflake.layout", "Snowflake.Worker_Id", "snowflakeid.max_borrow", "snowfake_id.on_rollback"] {
        server.set_config(name, "7");
    }
    of_others.iter().for_each(|name| server.set_config(name, "7"));
    let start = server.log_length();
    server.restart();
    let log = server.log_since(start);
    let file = server.data_dir().join("test.conf");
    let text = fs::read_to_string(&file).unwrap();
    for (name, meant) in [
        ("snowflake.layout", "layout"),
        ("Snowflake.Worker_Id", "worker_id"),
        ("snowflakeid.max_borrow", "max_borrow"),
        ("snowfake_id.on_rollback", "on_rollback"),
    ] {
        let line = text.lines().position(|line| line.starts_with(name)).unwrap() + 1;
        let expected = format!(
            "01000 WARNING:  configuration parameter \"{name}\" has no effect\n\
             01000 HINT:  Perhaps you meant \"snowflake_id.{meant}\".\n\
             01000 CONTEXT:  line {line} of configuration file \"{}\"\n",
            file.display()
        );
        assert!(log.contains(&expected), "expected\n{expected}in\n{log}");
    }
    assert_eq!(log.matches("has no effect").count(), 4, "{log}");
    assert_eq!(server.connect().value("current_setting('snowflake_id.worker_id')"), "5");
}

#[test]
fn a_layout_whose_epoch_lies_ahead_is_warned_of_at_the_start() {
    let layout = "time:41 worker:10 sequence:12 unit:1ms epoch:2125-01-01T00:00:00Z";
    let server = Server::drawing().set("layout", layout).config("log_line_prefix", "%e ").start_with_extension();
    let log = server.log();
    let warning = "22008 WARNING:  clock is before the layout's epoch\n22008 DETAIL:  The clock says 20";
    assert!(log.contains(warning) && log.contains(", and the epoch is 2125-01-01T00:00:00.000Z.\n"), "{log}");
    assert_eq!(refused(server.connect().try_draw()).sqlstate, "22008");
}

/// A library of that name does what Citus does to other libraries (`libraries/citus.c`).
#[test]
fn a_citus_that_is_loaded_later_is_warned_of_at_the_start() {
    // The recipe for Citus has the same order as the HINT.
    assert_eq!(settings(block("citus-settings"))[0], ("shared_preload_libraries", "citus,snowflake_id"));
    let server = Server::drawing().config("log_line_prefix", "%e ").start_with_extension();
    let table = "CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_next())";
    server.connect().batch_execute(table).unwrap();
    let libraries = server.data_dir().join("libraries, and others");
    fs::create_dir(&libraries).unwrap();
    if !compile_library("citus", &libraries.join("citus.so")) {
        return skip("there are no server headers of this PostgreSQL");
    }
    fs::copy(libraries.join("citus.so"), libraries.join("citus_columnar.so")).unwrap();
    let directory = libraries.display();
    server.set_config("dynamic_library_path", &format!("{directory}:$libdir"));
    let warning = "01000 WARNING:  \"citus\" comes after \"snowflake_id\" in \"shared_preload_libraries\"\n\
                   01000 DETAIL:  Citus then removes the planner hook that lets conditions on an id's time use indexes and \
                   partitions on ids. The server still draws ids.\n\
                   01000 HINT:  In \"shared_preload_libraries\", put citus before snowflake_id, and restart the server.\n";
    for (list, warns) in [
        ("snowflake_id,citus", true),
        ("citus,snowflake_id", false),
        (" snowflake_id ,  citus ", true),
        ("\"citus\", \"snowflake_id\"", false),
        ("$libdir/snowflake_id, citus.so", true),
        (&format!("snowflake_id, \"{directory}/citus\""), true),
        (&format!("\"{directory}/citus.so\", snowflake_id.so"), false),
        ("citus_columnar, snowflake_id", false),
        ("snowflake_id", false),
    ] {
        server.set_config("shared_preload_libraries", list);
        let start = server.log_length();
        server.restart();
        let log = server.log_since(start);
        assert_eq!(log.contains(warning), warns, "{list}: {log}");
        assert_eq!(log.contains("citus"), warns, "{list}: {log}");
        // The warning is right: ids are drawn, and conditions on their time are not rewritten.
        let mut session = server.connect();
        session.draw();
        let plan = plan(&mut session, "SELECT FROM t WHERE snowflake_timestamp(id) > now()");
        assert_eq!(plan.contains("snowflake_timestamp"), warns, "{list}: {plan}");
        // The hook that is set after all libraries were loaded works in either order.
        session.batch_execute("DISCARD ALL").unwrap();
        assert_eq!(refused(session.query("SELECT snowflake_last()", &[])).sqlstate, "55000", "{list}");
    }
}

/// As PostgreSQL's own settings behave: only the start knows all values.
#[test]
fn a_pair_that_alter_system_and_a_reload_accept_stops_the_next_start_until_it_is_mended() {
    let server = Server::drawing().config("log_line_prefix", "%e ").start();
    let mut session = server.connect();
    // The running layout has no datacenters.
    session.batch_execute("ALTER SYSTEM SET snowflake_id.datacenter_id = 40").unwrap();
    session.batch_execute("ALTER SYSTEM SET snowflake_id.layout = twitter").unwrap();
    let start = server.log_length();
    server.reload();
    assert!(!server.log_since(start).contains("22023"), "{}", server.log_since(start));
    let pending = "SELECT string_agg(name, ' ' ORDER BY name) FROM pg_settings WHERE pending_restart";
    assert_eq!(server.connect().value(pending), "snowflake_id.datacenter_id snowflake_id.layout");
    server.stop(Shutdown::Fast);
    let failure = server.try_start_again().expect_err("the number does not fit the layout");
    let auto = server.data_dir().join("postgresql.auto.conf");
    let written = fs::read_to_string(&auto).unwrap();
    let line = written.lines().position(|line| line.starts_with("snowflake_id.datacenter_id")).unwrap() + 1;
    let expected = format!(
        "22023 FATAL:  datacenter 40 is outside the layout's range 0..31\n\
         22023 DETAIL:  The value is invalid for parameter \"snowflake_id.datacenter_id\".\n\
         22023 HINT:  The layout is \"{TWITTER}\".\n\
         22023 CONTEXT:  line {line} of configuration file \"{}\"\n",
        auto.display()
    );
    // PostgreSQL names this file from the data directory.
    let expected = expected.replace(&format!("{}/", server.data_dir().display()), "");
    let log = failure.log.replace(&format!("{}/", server.data_dir().display()), "");
    assert!(log.contains(&expected), "expected\n{expected}in {log}");
    fs::write(&auto, written.replace("'40'", "'11'")).unwrap();
    server.start_again();
    assert_eq!(server.connect().value("current_setting('snowflake_id.datacenter_id')"), "11");
}

/// The file may have the setting too, but its value does not count.
#[test]
fn the_command_line_stands_above_the_file() {
    let server = Server::drawing().config("log_line_prefix", "%e ").start();
    for in_file in [true, false] {
        if !in_file {
            unset(&server, &[("worker_id", "")]);
        }
        server.stop(Shutdown::Fast);
        let failure =
            server.try_start_again_with(&["-c", "snowflake_id.worker_id=5.5"]).expect_err("5.5 is not a worker number");
        assert!(failure.log.contains("22023 CONTEXT:  command line of the server\n"), "{in_file}: {failure:?}");
        server.try_start_again_with(&["-c", "snowflake_id.worker_id=40"]).unwrap();
        assert_eq!(server.connect().value("current_setting('snowflake_id.worker_id')"), "40", "{in_file}");
    }
}

#[test]
fn the_start_logs_what_will_be_drawn() {
    let server = Server::builder().config("log_line_prefix", "%e ").start();
    let log = server.log();
    let line = "00000 LOG:  snowflake_id: worker not set, layout \"snowflake\" (time:41 worker:10 sequence:12 unit:1ms \
                epoch:2025-01-01T00:00:00Z), time until 2094-09-07T15:47:35.551Z\n";
    assert!(log.contains(line), "{log}");
    let warning = "55000 WARNING:  parameter \"snowflake_id.worker_id\" is not set\n\
                   55000 HINT:  In postgresql.conf, set it to a number that no other primary of the fleet has, the same on this \
                   primary and its standbys, and restart the server. See \"No number is configured\" in docs/runbook.md.\n";
    assert!(log.contains(warning), "{log}");

    let log_of_start = |settings: &[(&str, &str)]| {
        set(&server, settings);
        let start = server.log_length();
        server.restart();
        server.log_since(start)
    };
    let log = log_of_start(&[("worker_id", "5")]);
    assert!(log.contains("LOG:  snowflake_id: worker 5, layout \"snowflake\" (") && !log.contains("WARNING"), "{log}");
    let log = log_of_start(&[("layout", "js53"), ("backup_worker", "on")]);
    assert!(log.contains("snowflake_id: worker 5, backup worker on, layout \"js53\" ("), "{log}");
    let log = log_of_start(&[("layout", TWITTER), ("backup_worker", "off")]);
    let line = format!("snowflake_id: datacenter not set, worker 5, layout \"twitter\" ({TWITTER}), time until 2080-");
    assert!(
        log.contains(&line) && log.contains("WARNING:  parameter \"snowflake_id.datacenter_id\" is not set"),
        "{log}"
    );
    let log =
        log_of_start(&[("layout", "time:40 sequence:20 unit:1ms epoch:2026-01-01T00:00:00Z"), ("worker_id", "0")]);
    assert!(log.contains("snowflake_id: layout \"custom\" (time:40 ") && !log.contains("WARNING"), "{log}");
}

const WORKER_HINT: &str = "In postgresql.conf, set it to a number that no other primary of the fleet has, the same on this primary \
                           and its standbys, and restart the server. See \"No number is configured\" in docs/runbook.md.";
const DATACENTER_HINT: &str = "In postgresql.conf, set it to the number of this server's datacenter, and restart the \
                               server. See \"No number is configured\" in docs/runbook.md.";

#[test]
fn without_a_number_that_the_layout_needs_nothing_is_drawn() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    for draw in ["SELECT snowflake_next()", "SELECT snowflake_batch(1)", "SELECT * FROM snowflake_batch(0)"] {
        let refusal = refused(session.ids(draw));
        let message = "parameter \"snowflake_id.worker_id\" is not set";
        assert_eq!(texts(&refusal), ["55000", message, "", WORKER_HINT], "{draw}");
    }
    // Reading needs no worker number.
    assert_eq!(session.value("snowflake_format(0)"), "2025-01-01T00:00:00.000Z #0 @(0)");

    set(&server, &[("layout", "twitter"), ("worker_id", "26")]);
    server.restart();
    let refusal = refused(server.connect().try_draw());
    let message = "parameter \"snowflake_id.datacenter_id\" is not set";
    assert_eq!(texts(&refusal), ["55000", message, "", DATACENTER_HINT]);

    set(&server, &[("layout", "mastodon")]);
    unset(&server, &[("worker_id", "")]);
    server.restart();
    let mut session = server.connect();
    for field in ["worker_id", "datacenter_id"] {
        assert_eq!(part(&mut session, field), "NULL");
    }
}

#[test]
fn the_servers_numbers_are_in_its_ids() {
    let server = Server::builder().start_with_extension();
    let cases = [
        ("snowflake", "1023", None),
        ("twitter", "26", Some("11")),
        ("discord", "31", Some("1")),
        ("discord", "0", Some("31")),
        ("sonyflake", "65535", None),
    ];
    for (layout, worker, datacenter) in cases {
        set(&server, &[("layout", layout), ("worker_id", worker), ("datacenter_id", datacenter.unwrap_or("-1"))]);
        server.restart();
        let mut session = server.connect();
        session.batch_execute("SELECT snowflake_accept_layout()").unwrap();
        // Three hundred ids, which include runs of a batch and ids at the end of a tick.
        let ids = [vec![session.draw()], session.draw_batch(300)].concat();
        let layout = Layout::parse(layout).unwrap();
        let numbers = ids.iter().map(|id| layout.parts(*id).unwrap()).map(|parts| (parts.worker, parts.datacenter));
        let expected = (worker.parse().ok(), datacenter.map(|number| number.parse().unwrap()));
        assert_eq!(numbers.collect::<BTreeSet<_>>(), BTreeSet::from([expected]), "{layout}");
    }
}

/// Draws an id, and returns one of its fields.
fn part(session: &mut Client, name: &str) -> String {
    session.value(&format!("SELECT {name} FROM snowflake_parse(snowflake_next())"))
}

#[test]
fn a_layout_whose_time_is_used_up_only_reads() {
    let server = Server::drawing().set("layout", "baidu").start_with_extension();
    let mut session = server.connect();
    for draw in ["SELECT snowflake_next()", "SELECT snowflake_batch(1)", "SELECT * FROM snowflake_batch(10)"] {
        let refusal = refused(session.ids(draw));
        let [sqlstate, message, detail, hint] = texts(&refusal);
        assert_eq!([sqlstate, message], ["2200H", "the time of layout \"baidu\" has run out"], "{draw}");
        assert_eq!(detail, "Its last instant was 2024-11-20T13:24:15.000Z.", "{draw}");
        assert!(hint.starts_with("Check the server's clock. If it is right, choose another layout"), "{hint}");
    }
    let composed = "snowflake_format(snowflake_compose('2020-02-29 12:00:00+00', 4194303, 17))";
    assert_eq!(session.value(composed), "2020-02-29T12:00:00.000Z #17 @(4194303)");
}

#[test]
fn alter_system_refuses_a_wrong_value_and_the_server_lives_on() {
    let server = Server::drawing().start_with_extension();
    let pid = server.postmaster_pid();
    let mut session = server.connect();
    let before = session.draw();
    let misspelt = if postgres_version() >= 17 {
        [
            "42602",
            "invalid configuration parameter name \"snowflake_id.layuot\"",
            "\"snowflake_id\" is a reserved prefix.",
            "",
        ]
    } else {
        ["42704", "unrecognized configuration parameter \"snowflake_id.layuot\"", "", ""]
    };
    let cases: [(&str, [&str; 4]); 3] = [
        ("worker_id = abc", ["22023", "invalid value for parameter \"snowflake_id.worker_id\": \"abc\"", "", ""]),
        (
            "layout = 'time:41 sequence:12 unit:1ms epoch:2025-01-01T00:00:00'",
            [
                "22023",
                "epoch in layout word \"epoch:2025-01-01T00:00:00\" has no time zone",
                "The value is invalid for parameter \"snowflake_id.layout\".",
                "A layout is written like \"time:41 worker:10 sequence:12 unit:1ms epoch:2025-01-01T00:00:00Z\".",
            ],
        ),
        ("layuot = twitter", misspelt),
    ];
    for (setting, expected) in cases {
        let refusal = refused(session.batch_execute(&format!("ALTER SYSTEM SET snowflake_id.{setting}")));
        assert_eq!(texts(&refusal), expected, "{setting}");
    }
    let saved = fs::read_to_string(server.data_dir().join("postgresql.auto.conf")).unwrap();
    assert!(!saved.contains("snowflake_id"), "{saved}");
    assert_eq!(server.postmaster_pid(), pid);
    assert!(session.draw() > before);
    server.restart();
}

#[test]
fn a_reload_refuses_wrong_values_and_takes_good_ones() {
    let server = Server::drawing().config("log_line_prefix", "%e ").start_with_extension();
    let pid = server.postmaster_pid();
    let mut session = server.connect();
    let mut before = session.draw();
    let wrong: [(&[(&str, &str)], &str); 6] = [
        (&[("worker_id", "abc")], "22023 LOG:  invalid value for parameter \"snowflake_id.worker_id\": \"abc\""),
        (&[("layout", "twiter")], "22023 LOG:  unknown layout \"twiter\""),
        (
            &[("on_rollback", "waiit")],
            "22023 LOG:  invalid value for parameter \"snowflake_id.on_rollback\": \"waiit\"",
        ),
        (&[("max_borrow", "2h")], "22023 LOG:  7200000 ms is outside the valid range for parameter"),
        (&[("max_clock_jump", "-1")], "22023 LOG:  -1 ms is outside the valid range for parameter"),
        (&[("layuot", "twitter")], "42602 LOG:  invalid configuration parameter name \"snowflake_id.layuot\""),
    ];
    for (settings, expected) in wrong {
        let start = server.log_length();
        set(&server, settings);
        server.reload();
        let log = server.log_since(start);
        assert!(log.contains(expected), "{settings:?}: expected\n{expected}\nin\n{log}");
        // The postmaster, an open session and a new one.
        assert_eq!(server.postmaster_pid(), pid);
        let [id, later] = [session.draw(), server.connect().draw()];
        assert!(before < id && id < later, "{settings:?}");
        before = later;
        unset(&server, settings);
        set(&server, &[("worker_id", "5")]);
    }
    let show = |name: &str| server.connect().value(&format!("SELECT current_setting('snowflake_id.{name}')"));
    assert_eq!([show("layout"), show("worker_id")], ["snowflake", "5"]);
    let shown = || ["on_rollback", "max_borrow", "max_clock_jump"].map(show);
    assert_eq!(shown(), ["error", "100ms", "1d"]);
    set(&server, &[("on_rollback", "wait"), ("max_borrow", "7s"), ("max_clock_jump", "2min")]);
    server.reload();
    assert_eq!(shown(), ["wait", "7s", "2min"]);
}

#[test]
fn pg_settings_describes_the_settings_and_what_waits_for_a_restart() {
    let server = Server::drawing().start_with_extension();
    let describe = |columns: &str| {
        let sql = format!(
            "SELECT string_agg(concat_ws(' ', {columns}), E'\\n' ORDER BY name)
             FROM pg_settings WHERE name LIKE 'snowflake\\_id.%'"
        );
        server.connect().value(&sql)
    };
    let expected = "snowflake_id.backup_worker bool postmaster off
snowflake_id.datacenter_id integer postmaster -1 -1 2147483647
snowflake_id.enable_time_pushdown bool user on
snowflake_id.fleet string postmaster default
snowflake_id.layout string postmaster snowflake
snowflake_id.max_borrow integer sighup 100 ms 0 3600000
snowflake_id.max_clock_jump integer sighup 86400000 ms 0 2147483647
snowflake_id.max_databases integer postmaster 128 1 65536
snowflake_id.on_rollback enum sighup error {error,wait}
snowflake_id.registry string sighup 
snowflake_id.worker_id integer postmaster -1 -1 2147483647";
    assert_eq!(describe("name, vartype, context, boot_val, unit, min_val, max_val, enumvals"), expected);
    let unlike_a_sentence = "SELECT count(*) FROM pg_settings WHERE name LIKE 'snowflake\\_id.%'
        AND NOT (short_desc ~ '^[A-Z][a-z]+s .*\\.$' AND extra_desc ~ '\\.$')";
    assert_eq!(server.connect().value(unlike_a_sentence), "0");

    let fixed = [("worker_id", "6"), ("layout", "twitter"), ("datacenter_id", "0"), ("backup_worker", "on")];
    set(&server, &fixed);
    set(&server, &[("max_borrow", "1s"), ("max_clock_jump", "1h")]);
    server.reload();
    let expected = "snowflake_id.backup_worker off t
snowflake_id.datacenter_id -1 t
snowflake_id.enable_time_pushdown on f
snowflake_id.fleet default f
snowflake_id.layout snowflake t
snowflake_id.max_borrow 1000 f
snowflake_id.max_clock_jump 3600000 f
snowflake_id.max_databases 128 f
snowflake_id.on_rollback error f
snowflake_id.registry  f
snowflake_id.worker_id 5 t";
    assert_eq!(describe("name, setting, pending_restart"), expected);
    assert_eq!(part(&mut server.connect(), "(worker_id, datacenter_id)"), "(5,)");
    server.restart();
    let expected = "snowflake_id.backup_worker on f
snowflake_id.datacenter_id 0 f
snowflake_id.enable_time_pushdown on f
snowflake_id.fleet default f
snowflake_id.layout twitter f
snowflake_id.max_borrow 1000 f
snowflake_id.max_clock_jump 3600000 f
snowflake_id.max_databases 128 f
snowflake_id.on_rollback error f
snowflake_id.registry  f
snowflake_id.worker_id 6 f";
    assert_eq!(describe("name, setting, pending_restart"), expected);
    // Both lanes begin above the mark, because the worker numbers have changed. Then either may
    // serve.
    let mut session = server.connect();
    session.batch_execute("SELECT snowflake_accept_layout()").unwrap();
    let worker = part(&mut session, "(worker_id, datacenter_id)");
    assert!(["(6,0)", "(22,0)"].contains(&worker.as_str()), "{worker}");
}

/// Every setting that affects uniqueness, with a valid value.
const VALID: [(&str, &str); 9] = [
    ("layout", "leaf"),
    ("worker_id", "6"),
    ("datacenter_id", "0"),
    ("backup_worker", "on"),
    ("on_rollback", "wait"),
    ("max_borrow", "1h"),
    ("max_clock_jump", "0"),
    ("registry", "service=other"),
    ("fleet", "other"),
];

#[test]
fn no_session_can_change_a_setting() {
    let server = Server::drawing().start_with_extension();
    let mut superuser = server.connect();
    superuser.batch_execute("CREATE ROLE ordinary LOGIN; GRANT CREATE ON SCHEMA public TO ordinary").unwrap();
    superuser
        .batch_execute(
            "GRANT SET ON PARAMETER snowflake_id.max_borrow, snowflake_id.max_clock_jump, snowflake_id.on_rollback
             TO ordinary",
        )
        .unwrap();
    superuser.batch_execute("CREATE DATABASE its_own OWNER ordinary").unwrap();
    // An ordinary role does not see how to reach the registry.
    let values = |session: &mut Client| {
        session.value(
            "SELECT array_agg(setting ORDER BY name) FROM pg_settings
             WHERE name LIKE 'snowflake\\_id.%' AND name <> 'snowflake_id.registry'",
        )
    };
    let before = values(&mut server.connect());

    for user in ["ordinary", "postgres"] {
        let mut session = server.connect_as(user);
        for (setting, value) in VALID {
            let name = format!("snowflake_id.{setting}");
            let reason = match setting {
                "on_rollback" | "max_borrow" | "max_clock_jump" | "registry" => "cannot be changed now",
                _ => "cannot be changed without restarting the server",
            };
            for attempt in [
                format!("SET {name} = '{value}'"),
                format!("BEGIN; SET LOCAL {name} = '{value}'"),
                format!("SET {name} TO DEFAULT"),
                format!("SELECT set_config('{name}', '{value}', false)"),
                format!("SELECT set_config('{name}', '{value}', true)"),
                format!("ALTER ROLE {user} SET {name} = '{value}'"),
                format!("ALTER ROLE {user} IN DATABASE its_own SET {name} = '{value}'"),
                format!("ALTER DATABASE its_own SET {name} = '{value}'"),
                format!("CREATE FUNCTION f() RETURNS bigint LANGUAGE sql SET {name} = '{value}' AS 'SELECT 1'"),
            ] {
                let refusal = refused(session.batch_execute(&attempt));
                session.batch_execute("ROLLBACK").unwrap();
                let expected = format!("parameter \"{name}\" {reason}");
                assert_eq!((refusal.sqlstate.as_str(), refusal.message), ("55P02", expected), "{user}: {attempt}");
            }
            let options = format!("-c {name}={value}");
            let refusal = refused(server.connection().user(user).options(&options).connect(NoTls));
            assert_eq!(refusal.sqlstate, "55P02", "{user}: PGOPTIONS=\"{options}\"");
            if user == "ordinary" {
                let refusal = refused(session.batch_execute(&format!("ALTER SYSTEM SET {name} = '{value}'")));
                assert_eq!(refusal.sqlstate, "42501", "{name}");
            }
        }
        session.batch_execute("RESET ALL").unwrap();
        assert_eq!(values(&mut session), before);
    }
    assert_eq!(values(&mut server.connect()), before);
    assert_eq!(part(&mut server.connect_as("ordinary"), "worker_id"), "5");
}

#[test]
fn no_session_can_make_up_a_setting_with_our_prefix() {
    let server = Server::drawing().start();
    let mut session = server.connect();
    for attempt in [
        "SET snowflake_id.foo = 1",
        "SET snowflake_id.layuot = 'twitter'",
        "SELECT set_config('snowflake_id.foo', '1', false)",
        "ALTER DATABASE postgres SET snowflake_id.foo = 1",
    ] {
        let refusal = refused(session.batch_execute(attempt));
        assert!(["42602", "42704"].contains(&refusal.sqlstate.as_str()), "{attempt}: {refusal:?}");
    }
    assert!(server.connection().options("-c snowflake_id.foo=1").connect(NoTls).is_err());
}

/// The documented behaviour of the log while clients retry.
#[test]
fn a_refused_draw_writes_as_many_lines_as_the_settings_of_the_log_let_pass() {
    let server = Server::drawing().set("layout", "baidu").config("log_line_prefix", "%u ").start_with_extension();
    server.connect().batch_execute("CREATE ROLE app LOGIN").unwrap();
    // The server notes the first refusal for a reason once more, and then none for a minute.
    let start = server.log_length();
    assert_eq!(refused(server.connect_as("app").try_draw()).sqlstate, "2200H");
    assert!(server.log_since(start).starts_with("app LOG:  snowflake_id: draws are refused: "));
    for (settings, expected) in [
        (&[][..], &["ERROR", "DETAIL", "HINT", "STATEMENT"][..]),
        (&["log_min_error_statement = fatal"], &["ERROR", "DETAIL", "HINT"]),
        (&["log_error_verbosity = terse"], &["ERROR", "STATEMENT"]),
        (&["log_error_verbosity = terse", "log_min_error_statement = fatal"], &["ERROR"]),
        (&["log_min_messages = fatal"], &[]),
    ] {
        let mut superuser = server.connect();
        superuser.batch_execute("ALTER ROLE app RESET ALL").unwrap();
        for setting in settings {
            superuser.batch_execute(&format!("ALTER ROLE app SET {setting}")).unwrap();
        }
        let start = server.log_length();
        assert_eq!(refused(server.connect_as("app").try_draw()).sqlstate, "2200H");
        let log = server.log_since(start);
        let kinds: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("app ")?.split(':').next()).collect();
        assert_eq!(kinds, expected, "{settings:?}: {log}");
    }
}

/// A broken invariant must have a backtrace. An error that PostgreSQL itself raises must not.
#[test]
fn no_error_of_postgresqls_own_carries_a_backtrace_of_rust() {
    let server = Server::drawing().environment("RUST_BACKTRACE", "1").start_with_extension();
    let mut session = server.connect();
    session.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t VALUES (1)").unwrap();
    let mut holder = server.connect();
    holder.batch_execute("BEGIN; COMMENT ON SEQUENCE snowflake_mark IS 'held'").unwrap();
    let cases = [
        (
            "BEGIN READ ONLY; SELECT snowflake_next()",
            "25006",
            "cannot execute snowflake_next() in a read-only transaction",
        ),
        (
            "BEGIN; SET LOCAL lock_timeout = 1; SELECT snowflake_next()",
            "55P03",
            "canceling statement due to lock timeout",
        ),
        (
            "BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; FETCH c; SELECT snowflake_convert('t', 'id')",
            "55006",
            "cannot ALTER TABLE \"t\" because it is being used by active queries in this session",
        ),
    ];
    for (statements, sqlstate, message) in cases {
        let refusal = refused(session.batch_execute(statements));
        session.batch_execute("ROLLBACK").unwrap();
        assert_eq!(texts(&refusal), [sqlstate, message, "", ""], "{statements}");
        if sqlstate == "55P03" {
            holder.batch_execute("ROLLBACK").unwrap();
        }
    }
}
