//! The program with which operators use a fleet's registry, on a registry in a real PostgreSQL and
//! in a real etcd: what it prints, what it changes, what it refuses, and its exit status.
//!
//! What an operation does to a fleet, `fleet_operate.rs` shows.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use cluster::operator::PROGRAM;
use cluster::pages::block;
use cluster::registry::{ROLE, config, role_sql};
use cluster::{
    Draw, Etcd, Fleet, Leases, Member, Operated, Oracle, Server, Shutdown, has_etcd, program_path, refused, skip,
    wait_until,
};
use serde_json::Value;
use snowflake_registry::RegistryError;

use crate::pages::masked;

const NO_ETCD: &str = "etcd and etcdctl are not installed";

/// A registry of either kind, with a fleet that no server has used.
struct Registry {
    operated: Box<dyn Operated>,
    /// How members reach it.
    conninfo: String,
}

impl Registry {
    /// Runs a command, and returns its exit status, and what it says.
    #[track_caller]
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        told(&self.operated.operator().args(arguments).output().expect("the program is installed"))
    }

    /// Runs a command that succeeds, and returns what it says.
    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let (status, stdout, stderr) = self.run(arguments);
        assert_eq!((status, stderr.as_str()), (0, ""), "{arguments:?}: {stdout}");
        stdout
    }

    /// Runs a command that fails with this exit status, and returns what it says of that.
    #[track_caller]
    fn fails(&self, status: i32, arguments: &[&str]) -> String {
        let (found, stdout, stderr) = self.run(arguments);
        assert_eq!((found, stdout.as_str()), (status, ""), "{arguments:?}: {stderr}");
        stderr
    }

    /// Returns what the registry holds.
    #[track_caller]
    fn shown(&self) -> Value {
        serde_json::from_str(&self.ok(&["show", "--json"])).expect("it is JSON")
    }

    /// Returns what the registry holds, without what its clock says of that.
    #[track_caller]
    fn held(&self) -> Value {
        let mut shown = self.shown();
        shown["registry"].take();
        for number in shown["numbers"].as_array_mut().expect("there is a list") {
            number["state"].take();
        }
        shown
    }

    /// Returns a member of the fleet that has a lease of full length, which is not late soon.
    #[track_caller]
    fn member<'a>(&self, oracle: &'a Oracle) -> Member<'a> {
        let member = Member::new(config(&self.conninfo), oracle);
        // The first one lasts half a minute, and each renewal doubles that.
        for _ in 0..6 {
            member.lease();
        }
        member
    }
}

fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the program writes UTF-8");
    (output.status.code().expect("no signal ends it"), text(&output.stdout), text(&output.stderr))
}

fn postgres() -> Registry {
    let server = Server::builder().durable().without_preload().start();
    server.make_registry();
    let conninfo = server.registry_conninfo();
    Registry { operated: Box::new(server), conninfo }
}

fn etcd() -> Registry {
    let etcd = Etcd::start(1);
    etcd.operate(&["create"]);
    let conninfo = etcd.address();
    Registry { operated: Box::new(etcd), conninfo }
}

for_each_kind! {
    a_fleet_is_shown
    what_programs_read_has_stable_names
    every_command_keeps_to_the_schema_of_the_page
    a_range_is_set_or_refused
    limits_are_raised_and_leases_set
    a_dry_run_writes_nothing
    a_restore_is_shown_before_it_is_said
    a_fleet_is_closed_and_opened
    a_number_is_kept
    tags_are_made_changed_and_deleted
    history_is_pruned
    records_of_numbers_are_deleted_when_they_are_over
    a_check_grades_what_it_finds
    a_dangerous_change_needs_a_person_or_yes
    a_person_is_asked
    another_fleet_is_added
}

/// Replaces what differs from run to run: numbers, and the uuid, which may have letters.
fn drawn(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once("\", ") {
        Some((begin, _)) if line.starts_with("fleet ") => format!("{begin}\", UUID"),
        _ if line.starts_with("registry ") => "registry ...".to_owned(),
        _ if line.starts_with("generation ") => "generation ...".to_owned(),
        // How long it is until then, how long ago it was, and what the clock shows.
        _ if line.contains("  held  ") => line.split_whitespace().take(4).collect::<Vec<_>>().join(" "),
        _ => line.trim_end().replace(" sec ago", " secs ago"),
    });
    masked(&lines.collect::<Vec<_>>().join("\n"))
}

fn a_fleet_is_shown(registry: &Registry) {
    let unused = "\
fleet \"default\", UUID
layout none yet: the first server brings it
range none yet: the first server brings all numbers of its layout
leases limits are not set yet: the first server sets the defaults
generation ...
registry ...";
    assert_eq!(drawn(&registry.ok(&["show"])), unused);
    let oracle = Oracle::new();
    let member = registry.member(&oracle);
    registry.ok(&["create-tag", "invoices", "--description", "invoice numbers"]);
    let number = member.held().expect("it has a lease").worker;
    // etcd's clock is known to half a second.
    wait_until("the begin of the lease", || registry.shown()["numbers"][0]["state"] == "held");
    let shown = registry.ok(&["show"]);
    let used = "\
fleet \"default\", UUID
layout snowflake, backup_worker off
range 0 to 0: 0 numbers, 0 leased
leases 0 mins, limit 0 mins; clock skew 0 min, limit 0 min; a freeze lasts 0 mins
generation ...
registry ...

NUMBER STATE SERVER VERSION ENDS IN RENEWED CLOCK
0 held member:0 0

TAG NEXT VALUE STEPS JUMPS STATE WRITTEN DESCRIPTION
invoices 0 0 to 0 no open 0 secs ago invoice numbers";
    assert_eq!(drawn(&shown), used, "{shown}");
    assert!(shown.lines().any(|line| line.trim_start().starts_with(&format!("{number}  held"))), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 120), "{shown}");
    member.give_back();
    let shown = registry.ok(&["show"]);
    assert!(shown.contains("1 more number was leased before, and is not now (--all)."), "{shown}");
    assert!(registry.ok(&["show", "--all"]).contains("  free  "));
}

fn what_programs_read_has_stable_names(registry: &Registry) {
    let oracle = Oracle::new();
    let member = registry.member(&oracle);
    let shown = registry.shown();
    let names = |value: &Value| value.as_object().expect("it is an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&shown), ["command", "error", "fleet", "numbers", "registry", "settings", "tags"]);
    assert_eq!(shown["numbers"][0]["worker"], member.held().expect("it has a lease").worker);
    assert_eq!(shown["numbers"][0]["host"], "member");
    assert_eq!(shown["settings"]["layout_name"], "snowflake");
    assert_eq!(shown["settings"]["longest_ms"], 600_000);
    let set: Value = serde_json::from_str(&registry.ok(&["set-range", "0", "9", "--json"])).expect("it is JSON");
    assert_eq!(names(&set), ["changes", "command", "done", "dry_run", "error", "fleet", "said"]);
    let changed = &set["changes"][0];
    assert_eq!((&changed["field"], &changed["old"], &changed["new"]), (&"last_worker".into(), &1023.into(), &9.into()));
    let (status, stdout, stderr) = registry.run(&["set-range", "9", "0", "--json"]);
    assert_eq!((status, stderr.as_str()), (1, ""));
    let refused: Value = serde_json::from_str(&stdout).expect("it is JSON");
    assert_eq!(refused["error"]["message"], "range 9 to 0 has no numbers");
    assert_eq!(refused["error"]["exit_status"], 1);
    let (status, stdout, stderr) = registry.run(&["set-range", "--json"]);
    assert_eq!((status, stderr.as_str()), (2, ""));
    let wrong: Value = serde_json::from_str(&stdout).expect("it is JSON");
    assert_eq!(
        (names(&wrong), &wrong["error"]["exit_status"]),
        (vec!["command".into(), "error".into(), "fleet".into()], &2.into())
    );
}

fn every_command_keeps_to_the_schema_of_the_page(registry: &Registry) {
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("page.json", serde_json::from_str(block("operator-json")).expect("it is JSON")).unwrap();
    let schema = compiler.compile("page.json", &mut schemas).expect("it is a schema");
    let oracle = Oracle::new();
    let member = registry.member(&oracle);
    let free = if member.held().expect("it has a lease").worker == 9 { "8" } else { "9" };
    let mut run = BTreeSet::new();
    // Whether it succeeds depends on the kind of registry where it is None.
    for (status, command) in [
        (Some(0), "create"),
        (Some(0), "add-fleet shop"),
        (Some(0), "create-tag orders --description x"),
        (Some(0), "set-tag orders --jumps true"),
        (Some(0), "create-tag last --next-value 9223372036854775806"),
        (Some(0), "set-range 0 1000"),
        (Some(0), &format!("reserve {free} in_2_hours")),
        (Some(0), "set-limits --lease 20_min --yes"),
        (Some(0), "set-lease --lease 5_min --skew 30_s"),
        (None, "set-loses-nothing true --yes"),
        (Some(0), "show --all"),
        (None, "check"),
        (Some(0), "prune 400_d_ago --yes"),
        (Some(0), "drop-numbers --dry-run"),
        (Some(0), "drop-tag orders --dry-run"),
        (Some(0), "restored --dry-run"),
        (None, "lost --lease 10_min --skew 1_min --dry-run"),
        (None, "reset-settings --dry-run"),
        (Some(0), "close"),
        (Some(0), "open --not-moved --yes"),
        (Some(0), "restored --yes"),
        (Some(0), "lost --lease 10_min --skew 1_min --fleet third --yes"),
        (Some(1), "set-range 9 0"),
        (Some(2), "set-range"),
    ] {
        let words: Vec<_> = command.split(' ').map(|word| word.replace('_', " ")).collect();
        let arguments: Vec<_> = words.iter().map(String::as_str).chain(["--json"]).collect();
        let (found, stdout, stderr) = registry.run(&arguments);
        assert!(status.is_none_or(|status| status == found), "{command}: {found}: {stdout}");
        assert_eq!(stderr, "", "{command}");
        let object: Value =
            serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{command}: {error}: {stdout}"));
        schemas.validate(&object, schema).unwrap_or_else(|error| panic!("{command}: {error:#}: {object}"));
        run.insert(words[0].clone());
        if words[0] == "show" {
            let of = |what: &str| object[what].as_array().map_or(0, Vec::len);
            assert!(of("numbers") >= 2 && of("tags") == 2, "{object}");
            let last = object["tags"].as_array().unwrap().iter().find(|tag| tag["tag"] == "last").unwrap();
            assert_eq!(last["next_value"], "9223372036854775806");
        }
    }
    let help = registry.ok(&["--help"]);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: BTreeSet<_> = commands.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert_eq!(run, commands);
}

/// Each command names the format of the registry, and the one that it needs, and changes nothing.
fn refuses_another_format(operated: impl Operated + 'static) {
    let registry = Registry { operated: Box::new(operated), conninfo: String::new() };
    let lost = ["lost", "--lease", "10 min", "--skew", "1 min"];
    for command in [
        &["show"][..],
        &["create"],
        &["create", "--dry-run"],
        &["create", "--range", "0", "9"],
        &["add-fleet", "default"],
        &[&lost[..], &["--yes"]].concat(),
        &[&lost[..], &["--dry-run"]].concat(),
        &["set-range", "0", "9"],
        &["create-tag", "orders"],
    ] {
        let said = registry.fails(1, command);
        assert!(said.contains("version 1") && said.contains("version 2"), "{command:?}: {said}");
    }
    let (status, said, _) = registry.run(&["check"]);
    assert!(status == 4 && said.contains("registry has version 1, but this program needs version 2"), "{said}");
}

#[test]
fn a_postgresql_of_another_format_is_refused_with_both_numbers() {
    let server = Server::builder().durable().without_preload().start();
    server.make_registry();
    let version = "CREATE OR REPLACE FUNCTION snowflake_registry.version() RETURNS integer";
    let old = format!("{version} LANGUAGE sql STABLE AS 'SELECT 1'");
    server.connect().batch_execute(&old).expect("a superuser may");
    refuses_another_format(server);
}

#[test]
fn an_etcd_of_another_format_is_refused_with_both_numbers() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = Etcd::start(1);
    // As builds before the release have written it.
    etcd.ctl(&["put", "/snowflake_id/default/fleet", "format=1 uuid=1b4e28ba2fa141d2883f0016d3cca427 closed=false"]);
    refuses_another_format(etcd);
}

fn a_range_is_set_or_refused(registry: &Registry) {
    let oracle = Oracle::new();
    let member = registry.member(&oracle);
    let number = member.held().expect("it has a lease").worker;
    let said = registry.fails(1, &["set-range", "0", "1024"]);
    assert_eq!(
        said,
        "error: range 0 to 1024 has numbers that the layout does not have\n\
         detail: The fleet's layout has the numbers 0 to 1023. Servers would renew nothing, and stop drawing when \
         their leases end.\n\
         hint: Give numbers of the layout.\n"
    );
    let (first, last) = if number < 512 { ("512", "1023") } else { ("0", "511") };
    let said = registry.ok(&["set-range", first, last]);
    let changed = if first == "0" { "last_worker: 1023 -> 511" } else { "first_worker: 0 -> 512" };
    assert_eq!(said, format!("fleet \"default\" {changed}\n"));
    assert_eq!(registry.shown()["numbers"][0]["outside"], true);
    // It renews its number for as long as it runs.
    member.keep().expect("the registry answers");
}

fn limits_are_raised_and_leases_set(registry: &Registry) {
    let oracle = Oracle::new();
    let _member = registry.member(&oracle);
    assert!(
        registry
            .fails(1, &["set-limits", "--lease", "9min", "--yes"])
            .contains("cannot be lowered: longest lease from 10 mins to 9 mins")
    );
    assert!(registry.fails(1, &["set-lease", "--lease", "1h"]).contains("lease of 1 hr is beyond the limits"));
    // Nothing changes, so nothing is asked.
    registry.ok(&["set-limits", "--lease", "10min"]);
    assert_eq!(registry.ok(&["set-limits", "--lease", "10min"]), "No value has changed.\n");
    let said = registry.ok(&["set-limits", "--lease", "1 hour", "--skew", "2 min", "--yes"]);
    for line in [
        "fleet \"default\" longest_ms: 10 mins -> 1 hr\n",
        "fleet \"default\" skew_ms: 1 min -> 2 mins\n",
        "\nEach freeze lasts 1 hr 4 mins from now on",
        "\nLimits cannot be lowered",
    ] {
        assert!(said.contains(line), "{said}");
    }
    // What is used stays until it is set.
    let settings = |registry: &Registry| {
        let settings = registry.shown()["settings"].clone();
        ["longest_ms", "skew_ms", "used_lease_ms", "used_skew_ms"]
            .map(|name| settings[name].as_i64().expect("it is set"))
    };
    assert_eq!(settings(registry), [3_600_000, 120_000, 600_000, 60_000]);
    registry.ok(&["set-lease", "--lease", "30 min"]);
    assert_eq!(settings(registry), [3_600_000, 120_000, 1_800_000, 60_000]);
}

fn a_dry_run_writes_nothing(registry: &Registry) {
    let oracle = Oracle::new();
    let member = registry.member(&oracle);
    let other = ((member.held().expect("it has a lease").worker + 1) % 1024).to_string();
    registry.ok(&["create-tag", "invoices"]);
    let before = registry.held();
    for arguments in [
        &["set-range", "5", "9"][..],
        &["set-limits", "--lease", "2h"],
        &["set-lease", "--skew", "30s"],
        &["restored"],
        &["close"],
        &["create-tag", "parcels"],
        &["set-tag", "invoices", "--next-value", "500", "--description", "numbers"],
        &["set-tag", "invoices", "--description", "numbers"],
        &["drop-tag", "invoices"],
        &["reserve", &other, "in 1 hour"],
        &["prune", "730 days ago"],
        &["create"],
        &["lost", "--lease", "10min", "--skew", "1min", "--fleet", "other"],
        &["add-fleet", "other"],
    ] {
        let arguments = [arguments, &["--dry-run"]].concat();
        let said = registry.ok(&arguments);
        assert!(said.starts_with("Nothing was changed, because of --dry-run.\n"), "{arguments:?}: {said}");
    }
    assert_eq!(registry.held(), before);
    assert!(registry.fails(1, &["show", "--fleet", "other"]).contains("other"));
    // It shows each value, old and new.
    let said = registry.ok(&["lost", "--lease", "10min", "--skew", "1min", "--fleet", "other", "--dry-run"]);
    assert!(said.contains("\nfleet \"other\" longest_ms: none -> 10 mins\n"), "{said}");
    assert!(said.contains("\nNo number is leased for ids before "), "{said}");
    let said = registry.ok(&["set-tag", "invoices", "--next-value", "500", "--description", "numbers", "--dry-run"]);
    for line in ["tag \"invoices\" next_value: 1 -> 500\n", "tag \"invoices\" description: none -> numbers\n"] {
        assert!(said.contains(line), "{said}");
    }
    // What is refused is refused in a dry run, too.
    registry.fails(1, &["set-range", "0", "1024", "--dry-run"]);
}

fn a_restore_is_shown_before_it_is_said(registry: &Registry) {
    let oracle = Oracle::new();
    let _member = registry.member(&oracle);
    registry.ok(&["create-tag", "invoices"]);
    registry.ok(&["create-tag", "parcels", "--jumps", "true", "--next-value", "7"]);
    let generation = |registry: &Registry| registry.shown()["settings"]["generation"].as_i64().expect("it has one");
    let was = generation(registry);
    let said = registry.ok(&["restored", "--dry-run"]);
    for text in [
        format!("fleet \"default\" generation: {was} -> {}\n", was + 1),
        "\nA freeze begins: until ".to_owned(),
        "\nThese tags jump ahead: \"parcels\" from 7 to ".to_owned(),
        "These tags give no values until you set their next value".to_owned(),
        "\"invoices\" at 1.".to_owned(),
    ] {
        assert!(said.contains(&text), "{said}");
    }
    assert_eq!(generation(registry), was);
    let said = registry.ok(&["restored", "--yes"]);
    assert!(said.contains(&format!("fleet \"default\" generation: {was} -> {}\n", was + 1)), "{said}");
    assert_eq!(generation(registry), was + 1);
    let shown = registry.ok(&["show"]);
    assert!(shown.contains("\nFROZEN      for 1") && shown.contains("  STOPPED  "), "{shown}");
    registry.ok(&["set-tag", "invoices", "--next-value", "1000", "--yes"]);
    assert!(!registry.ok(&["show"]).contains("STOPPED"));
}

fn a_fleet_is_closed_and_opened(registry: &Registry) {
    let said = registry.ok(&["close"]);
    assert!(said.starts_with("fleet \"default\" closed: no -> yes\nNothing is leased or renewed"), "{said}");
    let (status, stdout, _) = registry.run(&["check"]);
    assert_eq!(status, 4);
    assert!(stdout.contains("BAD   fleet       is closed"), "{stdout}");
    let said = registry.fails(1, &["open"]);
    assert!(said.contains("is closed for a move") && said.contains("snowflake-registry open --not-moved"), "{said}");
    registry.ok(&["open", "--not-moved", "--yes"]);
    assert!(registry.fails(1, &["open", "--moved", "--yes"]).contains("is not closed"));
    registry.ok(&["close"]);
    registry.ok(&["open", "--moved", "--yes"]);
    assert_eq!(registry.shown()["settings"]["closed"], false);
}

fn a_number_is_kept(registry: &Registry) {
    let oracle = Oracle::new();
    let member = registry.member(&oracle);
    let number = member.held().expect("it has a lease").worker;
    let other = ((number + 1) % 1024).to_string();
    let said = registry.ok(&["reserve", &other, "2020-11-24 12:00+00"]);
    assert!(said.contains(&format!("number {other} until_ms: none -> 2020-11-24 12:00:00Z\n")), "{said}");
    assert!(said.ends_with(" is not leased for ids before 2020-11-24 12:00:00Z. This cannot be undone.\n"), "{said}");
    registry.ok(&["reserve", &other, "in 2 hours"]);
    let shown = registry.shown();
    let kept = shown["numbers"]
        .as_array()
        .expect("there are numbers")
        .iter()
        .find(|kept| kept["worker"].as_i64() == other.parse().ok());
    assert_eq!(kept.map(|kept| (&kept["state"], &kept["host"])), Some((&"reserved".into(), &Value::Null)));
    assert!(registry.fails(1, &["reserve", &number.to_string(), "in 2 hours"]).contains("is leased"));
    assert!(registry.fails(1, &["reserve", &other, "in 31 days"]).contains("more than 30 days from now"));
    assert!(
        registry.fails(1, &["reserve", "5", "now", "--datacenter", "1"]).contains("layout has no datacenter field")
    );
    assert!(registry.fails(2, &["reserve", &other, "in 31 days", "--force"]).contains("must be confirmed"));
}

fn tags_are_made_changed_and_deleted(registry: &Registry) {
    assert!(registry.fails(1, &["set-tag", "invoices", "--jumps", "true"]).contains("tag \"invoices\" does not exist"));
    assert!(registry.fails(1, &["set-tag", "invoices", "--description", "x"]).contains("does not exist"));
    registry.ok(&["create-tag", "invoices", "--next-value", "-5", "--least-step", "10", "--greatest-step", "100"]);
    assert!(registry.fails(1, &["create-tag", "invoices"]).contains("exists already"));
    registry.ok(&["set-tag", "invoices", "--next-value", "250000", "--jumps", "true", "--yes"]);
    assert!(
        registry
            .fails(1, &["set-tag", "invoices", "--next-value", "249999", "--yes"])
            .contains("cannot be lowered from 250000 to 249999")
    );
    assert!(registry.fails(1, &["set-tag", "invoices", "--least-step", "101"]).contains("101 to 100 values"));
    let said = registry.ok(&["set-tag", "invoices", "--greatest-step", "50", "--description", "Gr\u{f6}\u{df}e"]);
    assert!(said.contains("tag \"invoices\" greatest_step: 100 -> 50\n"), "{said}");
    let tag = registry.shown()["tags"][0].clone();
    let expected = [("next_value", 250_000), ("least_step", 10), ("greatest_step", 50)];
    assert_eq!(expected.map(|(name, _)| tag[name].as_i64()), expected.map(|(_, value)| Some(value)));
    assert_eq!(
        (&tag["description"], &tag["jumps"], &tag["state"]),
        (&"Gr\u{f6}\u{df}e".into(), &true.into(), &"open".into())
    );
    let said = registry.ok(&["set-tag", "invoices", "--description", "", "--json"]);
    assert!(said.contains("\"new\":null,\"old\":\"Gr\u{f6}\u{df}e\""), "{said}");
    assert_eq!(registry.shown()["tags"][0]["description"], Value::Null);
    let said = registry.ok(&["drop-tag", "invoices", "--yes"]);
    assert!(said.contains("tag \"invoices\" next_value: 250000 -> none\n"), "{said}");
    assert_eq!(registry.shown()["tags"], Value::Array(Vec::new()));
}

fn history_is_pruned(registry: &Registry) {
    assert!(registry.fails(1, &["prune", "now", "--yes"]).contains("cannot be pruned"));
    let said = registry.ok(&["prune", "730 days ago", "--yes"]);
    assert!(said.starts_with("Leases that were pruned: 0.\n"), "{said}");
}

fn records_of_numbers_are_deleted_when_they_are_over(registry: &Registry) {
    registry.ok(&["set-limits", "--lease", "2s", "--skew", "1s", "--yes"]);
    let oracle = Oracle::new();
    let [member, other] = [(); 2].map(|()| Member::new(config(&registry.conninfo), &oracle));
    member.lease();
    assert_eq!(registry.ok(&["drop-numbers"]), "No value has changed.\n");
    // It does not renew.
    let would = ["drop-numbers", "--dry-run"];
    wait_until("two skews after its lease", || registry.ok(&would).contains("records of 1 number are deleted"));
    assert!(registry.ok(&["drop-numbers"]).contains("records of 1 number are deleted"));
    assert_eq!(registry.shown()["numbers"], Value::Array(Vec::new()));
    // Nothing is taken for lost.
    other.lease();
    member.lease();
    assert_eq!(registry.shown()["settings"]["generation"], 1);
}

fn a_check_grades_what_it_finds(registry: &Registry) {
    let oracle = Oracle::new();
    let _member = registry.member(&oracle);
    let said = registry.ok(&["check"]);
    assert!(said.starts_with("ok    registry    answers: "), "{said}");
    // A registry in PostgreSQL has no standby here.
    let is_alone = said.contains("\nWARN  replication no standby is connected");
    let end = if is_alone { "1 WARN, nothing BAD.\n" } else { "All is well.\n" };
    assert!(said.ends_with(end) && is_alone != said.contains("\nok    alarms "), "{said}");
    assert_eq!(registry.run(&["check", "--strict"]).0, if is_alone { 4 } else { 0 });
    registry.ok(&["restored", "--yes"]);
    let said = registry.ok(&["check"]);
    let end = if is_alone { "2 WARN, nothing BAD.\n" } else { "1 WARN, nothing BAD.\n" };
    assert!(said.contains("\nWARN  freeze ") && said.ends_with(end), "{said}");
    let (status, ..) = registry.run(&["check", "--strict"]);
    assert_eq!(status, 4);
    let (status, stdout, _) = registry.run(&["check", "--fleet", "other", "--json"]);
    let found: Value = serde_json::from_str(&stdout).expect("it is JSON");
    assert_eq!((status, &found["worst"], &found["findings"][0]["subject"]), (4, &"bad".into(), &"registry".into()));
}

fn a_dangerous_change_needs_a_person_or_yes(registry: &Registry) {
    registry.ok(&["create-tag", "invoices"]);
    // No server has brought a range yet, so this one gains no number.
    registry.ok(&["set-range", "100", "1023"]);
    let before = registry.held();
    for arguments in [
        &["restored", "--lease", "10min", "--skew", "1min"][..],
        &["lost", "--lease", "10min", "--skew", "1min"],
        &["open", "--not-moved"],
        &["reset-settings"],
        &["set-loses-nothing", "true"],
        &["set-limits", "--lease", "1h"],
        &["set-tag", "invoices", "--next-value", "9223372036854775807"],
        &["set-range", "0", "1023"],
        &["drop-tag", "invoices"],
        &["reserve", "5", "now", "--force"],
        &["prune", "730 days ago"],
    ] {
        let said = registry.fails(2, arguments);
        assert!(said.contains("must be confirmed, and there is no terminal to ask on"), "{arguments:?}: {said}");
    }
    assert_eq!(registry.held(), before);
    // A narrower range gains no number.
    registry.ok(&["set-range", "200", "1023"]);
    registry.ok(&["set-range", "0", "1023", "--yes"]);
}

/// Runs a command on a terminal, where a person types.
#[track_caller]
fn on_a_terminal(registry: &Registry, arguments: &[&str], typed: &str) -> (i32, String) {
    let program = registry.operated.operator();
    let words = arguments.iter().map(|argument| format!("'{argument}'")).collect::<Vec<_>>().join(" ");
    let mut script = Command::new("script");
    script.env_clear().envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let path = program_path(PROGRAM);
    script.args(["--quiet", "--return", "--command"]).arg(format!("{} {words}", path.display())).arg("/dev/null");
    script.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = script.spawn().expect("bsdutils, which Debian always has, has it");
    child.stdin.take().expect("it is piped").write_all(typed.as_bytes()).expect("the program reads");
    let (status, stdout, _) = told(&child.wait_with_output().expect("it ends"));
    (status, stdout.replace('\r', ""))
}

fn a_person_is_asked(registry: &Registry) {
    registry.ok(&["create-tag", "invoices", "--next-value", "77"]);
    for no in ["no\n", "y\n", "\n"] {
        let (status, said) = on_a_terminal(registry, &["drop-tag", "invoices"], no);
        assert_eq!(status, 1, "{said}");
        for text in [
            "This would change:\n",
            "tag \"invoices\" next_value: 77 -> none\n",
            "Draws of tag \"invoices\" fail within 20 seconds.",
            "Continue? Type \"yes\": ",
            "error: nothing was changed, because the answer was not \"yes\"",
        ] {
            assert!(said.contains(text), "{said}");
        }
    }
    let (status, said) = on_a_terminal(registry, &["drop-tag", "invoices"], "yes\n");
    assert_eq!(status, 0, "{said}");
    assert_eq!(registry.shown()["tags"], Value::Array(Vec::new()));
    // What is not dangerous is done.
    let (status, said) = on_a_terminal(registry, &["set-range", "0", "9"], "");
    assert!(status == 0 && said.contains("fleet \"default\" last_worker: none -> 9\n"), "{said}");
}

fn another_fleet_is_added(registry: &Registry) {
    let said = registry.ok(&["add-fleet", "other"]);
    assert_eq!(said, "Fleet \"other\" is there. Its first server brings layout and range.\n");
    assert!(registry.fails(1, &["add-fleet", "other"]).contains("fleet \"other\" exists already"));
    let uuid = |registry: &Registry, fleet| {
        let shown: Value =
            serde_json::from_str(&registry.ok(&["show", "--json", "--fleet", fleet])).expect("it is JSON");
        shown["settings"]["uuid"].as_str().expect("it has one").to_owned()
    };
    assert_ne!(uuid(registry, "other"), uuid(registry, "default"));
    let said = registry.fails(1, &["close", "--fleet", "shop"]);
    assert!(said.contains("\ndetail: The registry has the fleets \"default\", \"other\".\n"), "{said}");
    // A registry is moved as a whole.
    let said = registry.ok(&["close"]);
    assert!(said.ends_with("\nThis registry also has \"other\": run this for it, too (--fleet).\n"), "{said}");
    registry.ok(&["open", "--not-moved", "--yes"]);
    let opened: Value = serde_json::from_str(&registry.ok(&["open", "--json"])).expect("it is JSON");
    assert_eq!(opened["other_fleets"], serde_json::json!(["other"]));
    assert!(registry.fails(2, &["add-fleet", ""]).contains("a fleet needs a name"));
    // One that is made as lost begins with a freeze.
    let lost = "1b4e28ba-2fa1-41d2-883f-0016d3cca427";
    let arguments = ["lost", "--lease", "10min", "--skew", "1min", "--uuid", lost, "--fleet", "third", "--yes"];
    let said = registry.ok(&arguments);
    assert!(said.contains(lost) && said.contains("\nNo number is leased for ids before "), "{said}");
    assert!(registry.ok(&["show", "--fleet", "third"]).contains("\nFROZEN      for 1"));
    assert_eq!(uuid(registry, "third"), lost);
}

/// Expects that `check` finds something BAD, and returns what it says.
#[track_caller]
fn found_bad(registry: &dyn Operated) -> String {
    let (status, stdout, stderr) = told(&registry.operator().arg("check").output().expect("it runs"));
    assert_eq!((status, stderr.as_str()), (4, ""), "{stdout}");
    stdout
}

#[test]
fn a_check_names_a_server_that_has_come_back_without_a_number() {
    let fleet = Fleet::start().limited("5s", "1s");
    let server = fleet.member().start_with_extension();
    let number = server.connect().wait_for_lease();
    // It cannot give its number back, and gets none when it starts again.
    server.stop(Shutdown::Immediate);
    server.set_config("snowflake_id.registry", &fleet.conninfo().replace("user=", "user=no_"));
    server.start_again();
    let mut session = server.connect();
    wait_until("the end of its lease", || fleet.leased().is_empty());
    assert_eq!(refused(session.query_one("SELECT snowflake_next()", &[])).sqlstate, "58000");
    let said = found_bad(&fleet);
    assert!(said.contains("\nBAD   leases      1 server has let its lease end, and has no other number: "), "{said}");
    assert!(said.contains(&format!(":{} (number {number}, until ", server.port())), "{said}");
    // On the server itself, as on a clone, which has no record.
    assert_eq!(session.lease("state"), "none");
    assert!(session.lease("last_error").starts_with("could not connect to the registry"));
    // When it gets one, its log says so.
    server.set_config("snowflake_id.registry", &fleet.conninfo());
    server.reload();
    session.wait_for_lease();
    assert!(server.log().contains("this server generates ids again, with worker number "), "{}", server.log());
    fleet.operate(&["check"]);
    server.stop(Shutdown::Immediate);
    wait_until("the end of its lease", || fleet.leased().is_empty());
    let number: i64 = fleet
        .registry
        .connect()
        .value("SELECT worker FROM snowflake_registry.numbers ORDER BY renewed_ms DESC LIMIT 1")
        .parse()
        .expect("it is a number");
    found_bad(&fleet);
    // The number is taken from it.
    wait_until("the skew", || fleet.try_operate(&["reserve", &number.to_string(), "now"]).is_ok());
    fleet.operate(&["check"]);
}

#[test]
fn a_check_finds_that_a_synchronous_standby_is_gone_also_when_no_lease_is_left() {
    let registry = postgres();
    registry.ok(&["set-limits", "--lease", "2s", "--skew", "1s", "--yes"]);
    let oracle = Oracle::new();
    let member = Member::new(config(&registry.conninfo), &oracle);
    member.lease();
    let mut session =
        postgres::Client::connect(&registry.conninfo.replace("user=snowflake", "user=postgres"), postgres::NoTls)
            .expect("the registry accepts a connection");
    session.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'gone'").expect("a superuser may");
    session.query_one("SELECT pg_reload_conf()", &[]).expect("a superuser may");
    let mut is_over = false;
    while !is_over {
        is_over = session
            .query_one("SELECT max(until_ms) < snowflake_registry.now_ms() FROM snowflake_registry.numbers", &[])
            .expect("there is one")
            .get(0);
        let (status, stdout, _) = registry.run(&["check"]);
        assert_eq!(status, 4, "{stdout}");
        assert!(stdout.contains("\nBAD   replication 0 of 1 synchronous standbys connected (gone)"), "{stdout}");
    }
    assert!(found_bad(&*registry.operated).contains("\nBAD   leases      1 server has let its lease end"));
}

#[test]
fn a_check_finds_an_etcd_without_space_and_a_change_is_refused() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = Etcd::start_with_quota(1 << 20);
    etcd.operate(&["create"]);
    let text = "x".repeat(100_000);
    let filled = (0..100).any(|key| etcd.try_ctl(&["put", &format!("fill{key}"), &text]).is_err());
    assert!(filled, "the quota is reached");
    let said = found_bad(&etcd);
    assert!(said.contains("\nBAD   alarms      NOSPACE: etcd has no space left, and refuses every write"), "{said}");
    let said = etcd.refuses(&["set-range", "0", "9"]);
    assert!(said.starts_with("error: etcd has no space left, and refuses every write\n"), "{said}");
    for command in ["etcdctl compact", "etcdctl defrag", "etcdctl alarm disarm"] {
        assert!(said.contains(command), "{said}");
    }
    // It helps.
    etcd.ctl(&["del", "--prefix", "fill"]);
    let status: Value =
        serde_json::from_str(&etcd.ctl(&["endpoint", "status", "--write-out=json"])).expect("it is JSON");
    etcd.ctl(&["compact", &status[0]["Status"]["header"]["revision"].to_string()]);
    etcd.ctl(&["defrag", "--cluster"]);
    etcd.ctl(&["alarm", "disarm"]);
    etcd.operate(&["set-range", "0", "9"]);
    assert!(etcd.operate(&["check"]).ends_with("All is well.\n"));
}

#[test]
fn a_check_finds_an_old_primary_that_has_come_back() {
    let server = Server::builder().durable().without_preload().start();
    server.make_registry();
    let standby = server.standby().start();
    let sockets =
        [&server, &standby].map(|server| server.data_dir().parent().expect("it has one").display().to_string());
    let both = format!("host='{}' user=postgres dbname=postgres target_session_attrs=read-write", sockets.join(","));
    let check = || told(&server.operator().args(["check", "--registry", &both]).output().expect("it runs"));
    let (status, stdout, _) = check();
    assert!(status == 0 && stdout.contains("\nok    hosts       1 of 2 takes writes ("), "{stdout}");
    server.crash();
    standby.promote();
    let (status, stdout, _) = check();
    assert!(status == 0 && stdout.contains(", no answer"), "{stdout}");
    server.start_again();
    let (status, stdout, _) = check();
    assert!(status == 4 && stdout.contains("\nBAD   hosts "), "{stdout}");
}

/// What the servers' role can do, a thief of its password can.
#[test]
fn what_the_servers_role_leaves_behind_is_found_and_removed() {
    let server = Server::builder().durable().without_preload().config("max_prepared_transactions", "2").start();
    server.make_registry();
    let mut thief = server.connect_as(ROLE);
    assert!(!server.operate(&["check"]).contains("role"));
    thief
        .batch_execute("ALTER ROLE CURRENT_USER IN DATABASE postgres SET default_transaction_read_only = on")
        .expect("each role may");
    let oracle = Oracle::new();
    let member = Member::new(config(&server.registry_conninfo()), &oracle);
    assert_eq!(member.unanswered(), RegistryError::ReadOnly);
    let said = server.operate(&["check"]);
    let found =
        format!("\nWARN  role        the servers' role has settings of its own: {ROLE} IN DATABASE postgres:\n");
    assert!(said.contains(&found), "{said}");
    // As the runbook has it.
    let reset = format!(
        "ALTER ROLE {ROLE} RESET ALL; ALTER ROLE {ROLE} IN DATABASE postgres RESET ALL;
         ALTER ROLE {ROLE} SET statement_timeout = '10s'"
    );
    server.connect().batch_execute(&reset).expect("a superuser may");
    assert!(!server.operate(&["check"]).contains("role"));

    // No session holds these locks.
    let swap = "BEGIN; SELECT snowflake_registry.swap('default', 0, 0, 0, 0, false, NULL, \
                '[{\"datacenter\": -1, \"worker\": 5}]', NULL); PREPARE TRANSACTION 'left'";
    server.connect_as(ROLE).batch_execute(swap).expect("the role may");
    let said = found_bad(&server).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("a transaction does not end: prepared transaction \"left\""), "{said}");
    let said = server.refuses(&["set-range", "0", "9", "--timeout", "2s"]);
    assert!(said.contains("holds a lock in the registry") && said.contains("pg_prepared_xacts shows"), "{said}");
    server.connect().batch_execute("ROLLBACK PREPARED 'left'").expect("a superuser may");
    member.lease();
}

#[test]
fn a_registry_is_made_in_postgresql() {
    let server = Server::builder().durable().without_preload().start();
    let registry = Registry { operated: Box::new(server), conninfo: String::new() };
    assert!(registry.fails(1, &["show"]).contains("has no schema \"snowflake_registry\""));
    assert!(registry.fails(1, &["create", "--range", "9", "0"]).contains("range 9 to 0 has no numbers"));
    assert!(registry.fails(1, &["show"]).contains("has no schema"));
    let said = registry.ok(&["create", "--dry-run"]);
    assert!(said.contains("The schema \"snowflake_registry\" would be made for the role that connects"), "{said}");
    assert!(registry.fails(1, &["show"]).contains("has no schema"));
    let said = registry.ok(&["create"]);
    assert!(said.starts_with("Registry is made: fleet \"default\" is there"), "{said}");
    // What it says is left to do is what the file says.
    let commands: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let file = role_sql();
    let file: Vec<_> = file.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(commands.iter().map(|line| line.trim()).collect::<Vec<_>>(), file);
    let said = registry.ok(&["create"]);
    assert!(said.contains("Nothing has changed.") && !said.contains("CREATE ROLE"), "{said}");
    let said = registry.ok(&["create", "--fleet", "shop"]);
    assert!(said.contains("Fleet \"shop\" is there."), "{said}");
}

#[test]
fn a_registry_is_made_with_a_range() {
    let registry =
        Registry { operated: Box::new(Server::builder().durable().without_preload().start()), conninfo: String::new() };
    let dry = ["create", "--range", "100", "1023", "--dry-run"];
    let changed = "fleet \"default\" first_worker: none -> 100\nfleet \"default\" last_worker: none -> 1023\n";
    assert!(registry.ok(&dry).contains(changed));
    let json = |arguments: &[&str]| {
        serde_json::from_str::<Value>(&registry.ok(&[arguments, &["--json"]].concat())).expect("it is JSON")
    };
    let of_range = |said: &Value| said["changes"].to_string().contains("1023");
    let said = json(&dry);
    assert!(of_range(&said) && said["done"] == false, "{said}");
    let said = json(&dry[..4]);
    assert!(of_range(&said) && said["done"] == true, "{said}");
    assert!(json(&["create", "--range", "0", "9", "--dry-run"])["changes"].to_string().contains("1023"));
    assert!(registry.ok(&["create", "--range", "100", "1023"]).ends_with("No value has changed.\n"));
    assert!(registry.ok(&["show"]).contains("\nrange       100 to 1023: "));
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    let registry = postgres();
    for arguments in [&["show"][..], &["check", "--json"], &["--help"]] {
        let full = std::fs::File::create("/dev/full").expect("it is there");
        let output = registry.operated.operator().args(arguments).stdout(full).output().expect("it is installed");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.starts_with("error: could not write to standard output: No space left on device"), "{stderr}");
    }
}

#[test]
fn a_registry_belongs_to_its_owner() {
    let server = Server::builder().durable().without_preload().start();
    server.connect().batch_execute("CREATE ROLE \"d'ba\"; CREATE ROLE other").expect("they are new");
    server.operate(&["create", "--owner", "d'ba"]);
    let owner = "SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'snowflake_registry'";
    let owner: String = server.connect().query_one(owner, &[]).expect("there is one").get(0);
    assert_eq!(owner, "\"d'ba\"");
    // Another role may have made it as a trap.
    assert!(server.refuses(&["create"]).contains("schema \"snowflake_registry\" belongs to role \"d'ba\""));
    assert!(server.refuses(&["create", "--owner", "other"]).contains("belongs to role"));
    server.operate(&["create", "--owner", "d'ba"]);
}

#[test]
fn a_registry_that_was_lost_is_made_with_a_freeze() {
    let registry =
        Registry { operated: Box::new(Server::builder().durable().without_preload().start()), conninfo: String::new() };
    let uuid = "1b4e28ba-2fa1-41d2-883f-0016d3cca427";
    let arguments = ["lost", "--lease", "20min", "--skew", "2min", "--uuid", uuid, "--yes"];
    assert!(
        registry
            .fails(1, &["lost", "--lease", "31 days", "--skew", "1 min", "--yes"])
            .contains("lease cannot be 31 days")
    );
    let said = registry.ok(&arguments);
    assert!(said.starts_with("The schema \"snowflake_registry\" is made.\n") && said.contains("CREATE ROLE"), "{said}");
    let shown = registry.ok(&["show"]);
    assert!(shown.contains(uuid) && shown.contains("\nFROZEN      for 2"), "{shown}");
    // Again, as long as it has no leases.
    registry.ok(&arguments);
}

#[test]
fn a_registry_that_does_not_answer_is_told_from_one_that_refuses() {
    let server = Server::builder().durable().without_preload().start();
    let run = |arguments: &[&str]| {
        let mut program = server.operator();
        program.env_remove("SNOWFLAKE_REGISTRY");
        told(&program.args(arguments).output().expect("the program is installed"))
    };
    let away = "host=127.0.0.1 port=1 user=x";
    let (status, _, stderr) = run(&["set-range", "0", "9", "--registry", away]);
    assert_eq!(status, 3);
    assert!(stderr.starts_with("error: could not connect to the registry\n"), "{stderr}");
    assert!(stderr.contains("Nothing was changed.") && stderr.contains("--registry"), "{stderr}");
    let (status, stdout, _) = run(&["check", "--registry", away]);
    assert!(status == 3 && stdout.starts_with("BAD   registry    could not connect"), "{stdout}");
    let (status, _, stderr) = run(&["show", "--registry", "etcd:http://127.0.0.1:1"]);
    assert!(status == 3 && stderr.starts_with("error: could not connect to etcd\n"), "{stderr}");
    let (status, _, stderr) = run(&["show"]);
    assert!(status == 2 && stderr.starts_with("error: no registry is given\n"), "{stderr}");
    // An empty string takes all from libpq's environment.
    let (status, _, stderr) = run(&["show", "--registry", ""]);
    assert!(status == 1 && stderr.contains("has no schema"), "{stderr}");
    let (status, _, stderr) = run(&["show", "--registry", "etcd:https://127.0.0.1:1?cacert=/nowhere"]);
    assert!(status == 2 && stderr.contains("could not use etcd"), "{stderr}");
    for command in ["show", "check"] {
        let (status, _, stderr) = run(&[command, "--registry", "service=nosuch"]);
        assert!(status == 2 && stderr.contains("pg_service.conf"), "{stderr}");
    }
    // What waits for a lock is rolled back.
    server.make_registry();
    let mut other = server.connect();
    other.batch_execute("BEGIN; SELECT FROM snowflake_registry.fleets FOR UPDATE").expect("there is a fleet");
    let (status, _, stderr) = run(&["set-range", "0", "9", "--timeout", "5s", "--registry", &server.conninfo()]);
    let said = "error: another session holds a lock in the registry\ndetail: Nothing was changed.\n";
    assert!(status == 1 && stderr.starts_with(said), "{stderr}");
}

#[test]
fn no_argument_may_have_a_password() {
    let server = Server::builder().durable().without_preload().start();
    for address in ["host=a password=s3cret", "postgresql://me:s3cret@a/ids"] {
        let output = server.operator().args(["show", "--registry", address]).output().expect("it is installed");
        let (status, stdout, stderr) = told(&output);
        assert_eq!((status, stdout.as_str()), (2, ""));
        assert!(stderr.contains("--registry has a password") && !stderr.contains("s3cret"), "{stderr}");
    }
    // libpq's own way.
    let server = Server::builder().durable().without_preload().tcp().start();
    let mut admin = server.connect();
    admin.batch_execute("CREATE ROLE dba LOGIN SUPERUSER PASSWORD 's3cret'").expect("it is new");
    let address = format!("host=127.0.0.1 port={} user=dba dbname=postgres", server.port());
    let run = |password: &str| {
        let mut program = server.operator();
        program.env("PGPASSWORD", password).args(["create", "--registry", &address]);
        told(&program.output().expect("it is installed"))
    };
    let (status, _, stderr) = run("wrong");
    assert!(status == 3 && stderr.contains("password authentication failed"), "{stderr}");
    let (status, stdout, stderr) = run("s3cret");
    assert_eq!(status, 0, "{stdout}{stderr}");
}

#[test]
fn help_tells_of_each_command() {
    let server = Server::builder().durable().without_preload().start();
    let help = |arguments: &[&str]| {
        let (status, stdout, _) = told(&server.operator().args(arguments).output().expect("it is installed"));
        assert_eq!(status, 0, "{arguments:?}");
        stdout
    };
    let whole = help(&["--help"]);
    let commands =
        whole.split("Commands:\n").nth(1).expect("it lists them").lines().take_while(|line| !line.is_empty());
    for line in commands {
        let command = line.split_whitespace().next().expect("a line begins with a name");
        assert!(help(&[command, "--help"]).contains(&format!("Usage: {PROGRAM} {command}")), "{command}");
    }
    assert!(whole.contains("Exit status:"));
    assert_eq!(help(&["--version"]).split(' ').next(), Some(PROGRAM));
}
