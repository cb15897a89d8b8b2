//! Whether all is well with a fleet, and what to do if not.

mod fleet;
mod registry;
mod servers;

use serde_json::{Value as Json, json};
use snowflake_registry::{HostSeen, Standbys};

use crate::output::Said;
use crate::report::Report;
use crate::show::clock;
use crate::table::{WIDTH, printable};
use crate::view::View;

/// How far clocks may be apart until somebody should look, in milliseconds.
const CLOCKS_APART_MS: i64 = 1000;

/// How many names a line lists.
const MOST_NAMES: usize = 4;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// All is well.
    Ok,
    /// Somebody should look at it.
    Warn,
    /// A server generates no ids, or soon will, or ids can be equal.
    Bad,
}

impl Grade {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "WARN",
            Self::Bad => "BAD",
        }
    }
}

/// What was found of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub subject: &'static str,
    /// How it is.
    pub grade: Grade,
    /// What was found.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Finding {
    fn ok(subject: &'static str, message: impl Into<String>) -> Self {
        Self { subject, grade: Grade::Ok, message: message.into(), hint: None }
    }

    fn warn(subject: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { subject, grade: Grade::Warn, message: message.into(), hint: Some(hint.into()) }
    }

    fn bad(subject: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { grade: Grade::Bad, ..Self::warn(subject, message, hint) }
    }

    /// What is found if the registry cannot be read.
    pub fn unread(report: &Report) -> Self {
        let Report { message, detail, hint, .. } = report;
        let message = detail.iter().fold(message.clone(), |message, detail| format!("{message}: {detail}"));
        Self { subject: "registry", grade: Grade::Bad, message, hint: hint.clone() }
    }
}

/// How far this machine's clock is ahead of the registry's.
#[derive(Debug, Clone, Copy)]
pub struct ClockHere {
    /// In milliseconds.
    pub offset_ms: i64,
    /// How wrong that may be, in milliseconds.
    pub error_ms: i64,
}

/// What is seen beside the records.
#[derive(Debug)]
pub struct Seen {
    /// This machine's clock.
    pub here: ClockHere,
    /// The registry's standbys; `None` for etcd, and if the role may not look.
    pub standbys: Option<Standbys>,
    /// etcd's alarms; `None` if the user may not look.
    pub alarms: Option<Vec<String>>,
    /// The hosts that the connection string names, if there are several.
    pub hosts: Vec<HostSeen>,
    /// How many of 64 parts of the new numbers are held up, and the transactions that may do that,
    /// the oldest first.
    pub held_up: Option<(usize, Vec<String>)>,
    /// Settings of the servers' roles.
    pub role_settings: Vec<String>,
}

/// Looks at everything.
pub fn findings(view: &View, seen: &Seen) -> Vec<Finding> {
    let numbers = view.numbers();
    let mut found = vec![registry::registry(view)];
    found.extend(registry::hosts(&seen.hosts));
    found.extend(registry::alarms(view, seen));
    found.extend(registry::role_settings(&seen.role_settings));
    found.push(registry::clocks_here(view, seen.here));
    found.extend(fleet::state(view));
    found.push(fleet::limits(view));
    found.extend(fleet::range(view));
    found.extend(registry::held_up(seen));
    found.push(servers::leases(view, &numbers));
    found.extend(servers::dropped(view, &numbers));
    found.extend(servers::outside(&numbers));
    found.push(servers::clocks(view, &numbers));
    found.extend(servers::versions(&numbers));
    found.extend(fleet::tags(view));
    found.extend(seen.standbys.as_ref().map(|standbys| registry::replication(view, standbys)));
    found
}

/// Says how far a clock is off the registry's.
fn off(offset_ms: i64) -> String {
    let off = clock(offset_ms);
    match off.as_str() {
        "far ahead" => "far ahead of the registry's".to_owned(),
        "far behind" => "far behind the registry's".to_owned(),
        off => format!("{off} off the registry's"),
    }
}

/// Joins the first names.
fn named(names: impl Iterator<Item = String>) -> String {
    let names: Vec<_> = names.collect();
    let more = names.len().saturating_sub(MOST_NAMES);
    let shown = names[..names.len() - more].join("; ");
    if more > 0 { format!("{shown}; and {more} more") } else { shown }
}

/// Returns the worst grade.
pub fn worst(findings: &[Finding]) -> Grade {
    findings.iter().map(|finding| finding.grade).max().unwrap_or(Grade::Ok)
}

/// Draws the findings: a line for each, and what to do below it.
pub fn said(findings: &[Finding]) -> Said {
    let mut lines = Vec::new();
    for Finding { subject, grade, message, hint } in findings {
        let begin = format!("{:<6}{subject:<12}", grade.name());
        lines.extend(wrapped(&begin, message));
        lines.extend(hint.iter().flat_map(|hint| wrapped(&" ".repeat(begin.len()), hint)));
    }
    let count = |grade: Grade| findings.iter().filter(|finding| finding.grade == grade).count();
    let (bad, warn) = (count(Grade::Bad), count(Grade::Warn));
    lines.push(match (bad, warn) {
        (0, 0) => "All is well.".to_owned(),
        (0, warn) => format!("{warn} WARN, nothing BAD."),
        (bad, warn) => format!("{bad} BAD, {warn} WARN."),
    });
    let json = |finding: &Finding| {
        let Finding { subject, grade, message, hint } = finding;
        json!({"subject": subject, "result": grade.name().to_lowercase(), "message": message, "hint": hint})
    };
    let list: Vec<Json> = findings.iter().map(json).collect();
    Said::new(lines, json!({"findings": list, "worst": worst(findings).name().to_lowercase()}))
}

/// Breaks a text into lines of a screen, below each other.
fn wrapped(begin: &str, text: &str) -> Vec<String> {
    let mut lines = vec![begin.to_owned()];
    for word in printable(text).split(' ') {
        let last = lines.last_mut().expect("there is a line");
        let is_first = last.chars().count() == begin.chars().count();
        if !is_first && last.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(" ".repeat(begin.chars().count()) + word);
        } else {
            *last += if is_first { "" } else { " " };
            *last += word;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::registry::{clocks_here, role_settings};
    use super::servers::clocks;
    use super::*;
    use crate::report::refused;
    use crate::samples::{NOW_MS, TAG, number, view};
    use snowflake_core::fleet::registry::{Fleet, Incarnation, NumberKey, NumberRecord, TagRecord};
    use snowflake_core::fleet::segment::END;
    use snowflake_core::fleet::tag::Tag;
    use snowflake_registry::Kind;

    fn seen() -> Seen {
        let here = ClockHere { offset_ms: 3, error_ms: 1 };
        let standbys = Some(Standbys { names: String::new(), connected: Some((1, 0)) });
        Seen { here, standbys, alarms: None, hosts: Vec::new(), held_up: None, role_settings: Vec::new() }
    }

    fn host(host: &str, writable: Option<&str>) -> HostSeen {
        HostSeen { host: host.to_owned(), writable: Ok(writable.map(str::to_owned)) }
    }

    fn of(view: &View, subject: &str) -> Vec<(Grade, String)> {
        let found = findings(view, &seen()).into_iter().filter(|finding| finding.subject == subject);
        found.map(|finding| (finding.grade, finding.message)).collect()
    }

    fn grades(view: &View, subject: &str) -> Vec<Grade> {
        of(view, subject).into_iter().map(|(grade, _)| grade).collect()
    }

    #[test]
    fn a_fleet_that_is_well_has_a_line_for_each_thing() {
        let said = said(&findings(&view(), &seen()));
        assert_eq!(
            said.text(),
            "\
ok    registry    answers: PostgreSQL, a primary, \"fsync\" on, version 2, host=r.example dbname=ids user=dba
ok    this clock  this machine's clock is +3 msecs off the registry's
ok    history     generation 3, timeline 3, noted
ok    limits      leases 10 mins of 10 mins, clock skew 1 min of 1 min; a freeze lasts 12 mins
ok    numbers     1022 of 1024 can be leased (0 to 1023)
ok    leases      2 renewed
ok    clocks      clock of a.example:5432 is +12 msecs off the registry's, the most of all; 1 min is allowed
ok    versions    all servers have snowflake_id 0.3.0
ok    tags        2 open
ok    replication is not synchronous, and a failover freezes what may be lost
All is well.
"
        );
        assert_eq!(said.json["worst"], "ok");
    }

    #[test]
    fn what_keeps_servers_from_leasing_is_found() {
        let mut view = view();
        view.reading.fleet = Fleet { closed: true, freeze_ms: NOW_MS + 1, ..view.reading.fleet };
        view.reading.incarnation = Incarnation { timeline: 4, ..view.reading.incarnation };
        assert_eq!(grades(&view, "fleet"), [Grade::Bad]);
        assert_eq!(grades(&view, "history"), [Grade::Warn]);
        assert_eq!(grades(&view, "freeze"), [Grade::Warn]);
        assert_eq!(worst(&findings(&view, &seen())), Grade::Bad);
    }

    #[test]
    fn clocks_are_compared_with_what_is_allowed() {
        let mut view = view();
        let here = |view: &View, offset_ms, error_ms| clocks_here(view, ClockHere { offset_ms, error_ms }).grade;
        assert_eq!(here(&view, 1001, 1), Grade::Ok);
        assert_eq!(here(&view, -1002, 1), Grade::Warn);
        assert_eq!(here(&view, 60_002, 1), Grade::Bad);
        assert_eq!(here(&view, i64::MIN, 1), Grade::Bad);
        view.kind = Kind::Etcd;
        assert_eq!(here(&view, 1501, 1), Grade::Ok);
        for (offset_ms, grade) in [(-1000, Grade::Ok), (1001, Grade::Warn), (-60_001, Grade::Bad)] {
            let key = NumberKey::new(None, 4);
            let record = view.reading.numbers[&key];
            view.reading.numbers.insert(key, NumberRecord { offset_ms, ..record });
            assert_eq!(grades(&view, "clocks"), [grade]);
        }
        // A thief has written no host, and any offset.
        let key = NumberKey::new(None, 4);
        view.names.clear();
        view.reading.numbers.get_mut(&key).unwrap().offset_ms = i64::MIN;
        let said = clocks(&view, &view.numbers()).message;
        assert_eq!(said, "clock of number 4 is far behind the registry's, the most of all; 1 min is allowed");
        // A time that is still to come shows no server that lives.
        view.reading.numbers.get_mut(&key).unwrap().renewed_ms = i64::MAX;
        let said = clocks(&view, &view.numbers()).message;
        assert_eq!(said, "clock of number 5 is -7 msecs off the registry's, the most of all; 1 min is allowed");
    }

    #[test]
    fn a_lease_that_is_not_renewed_is_bad_when_half_of_it_is_over() {
        let mut view = view();
        let mut leases = |until_ms| {
            let late = NumberRecord { server: 9, renewed_ms: NOW_MS - 50_000, ..number(0, NOW_MS + until_ms) };
            view.reading.numbers.insert(NumberKey::new(None, 9), late);
            of(&view, "leases")
        };
        assert_eq!(leases(300_000)[0].0, Grade::Warn);
        let (grade, message) = leases(299_999).remove(0);
        assert_eq!(grade, Grade::Bad);
        assert_eq!(message, "1 of 3 not renewed: number 9 () since 50 secs, ends in 4 mins 59 secs");
        // Its server has started again, as number 4.
        let key = NumberKey::new(None, 9);
        let record = view.reading.numbers[&key];
        view.reading.numbers.insert(key, NumberRecord { server: 4, ..record });
        assert_eq!(
            of(&view, "leases"),
            [(Grade::Ok, "2 renewed, and 1 left by servers that have started again with another number".to_owned())]
        );
    }

    #[test]
    fn numbers_run_out() {
        let mut view = view();
        view.reading.numbers = (0..19).map(|worker| (NumberKey::new(None, worker), number(0, NOW_MS + 1))).collect();
        let mut range = |first, last, subject| {
            view.reading.fleet.range = Some((first, last));
            grades(&view, subject)
        };
        assert_eq!(range(0, 18, "numbers"), [Grade::Bad]);
        assert_eq!(range(0, 19, "numbers"), [Grade::Warn]);
        assert_eq!(range(0, 21, "numbers"), [Grade::Ok]);
        assert_eq!(range(0, 21, "range"), []);
        // Somebody has configured the others.
        assert_eq!(range(1, 21, "range"), [Grade::Warn]);
        assert_eq!(range(0, 1024, "range"), [Grade::Bad]);
    }

    #[test]
    fn tags_that_give_nothing_are_named() {
        let mut view = view();
        view.reading.fleet.generation = 4;
        view.reading.tags.insert(Tag::new("used").unwrap(), TagRecord { next: END, ..TAG });
        let found = of(&view, "tags");
        assert_eq!(found[0], (Grade::Bad, "1 of 3 stopped: \"invoices\" at 4001".to_owned()));
        assert_eq!(found[1], (Grade::Bad, format!("1 of 3 ended, without values left: \"used\" at {END}")));
    }

    /// Each state of a fleet, and what is found that is not well.
    #[test]
    fn each_state_is_graded() {
        /// How it is called, what makes it, and what is found.
        type State = (&'static str, fn(&mut View, &mut Seen), &'static [(Grade, &'static str)]);
        fn standbys(seen: &mut Seen, names: &str, connected: Option<(i64, i64)>) {
            seen.standbys = Some(Standbys { names: names.to_owned(), connected });
        }
        fn lease(view: &mut View, worker: i64, change: impl FnOnce(&mut NumberRecord)) {
            change(view.reading.numbers.get_mut(&NumberKey::new(None, worker)).unwrap());
        }
        /// A lease that was renewed until it ended, so many milliseconds ago.
        fn ended(view: &mut View, worker: i64, ago_ms: i64) {
            let until_ms = NOW_MS - ago_ms;
            lease(view, worker, |record| (record.until_ms, record.renewed_ms) = (until_ms, until_ms - 600_000));
        }
        fn in_etcd(view: &mut View, seen: &mut Seen, alarms: &[&str]) {
            view.kind = Kind::Etcd;
            *seen =
                Seen { standbys: None, alarms: Some(alarms.iter().map(ToString::to_string).collect()), ..self::seen() };
        }
        const WELL: &[(Grade, &str)] = &[];
        const fn bad(subject: &str) -> (Grade, &str) {
            (Grade::Bad, subject)
        }
        const fn warn(subject: &str) -> (Grade, &str) {
            (Grade::Warn, subject)
        }
        let states: &[State] = &[
            ("all is well", |_, _| {}, WELL),
            ("a number was given back", |view, _| lease(view, 6, |record| record.until_ms = NOW_MS), WELL),
            (
                "a number was given back before it began",
                |view, _| {
                    lease(view, 6, |record| (record.from_ms, record.until_ms) = (NOW_MS - 9, NOW_MS - 9));
                },
                WELL,
            ),
            ("a lease has ended a moment ago", |view, _| ended(view, 4, 0), const { &[bad("leases")] }),
            ("a lease has ended an hour ago", |view, _| ended(view, 4, 3_600_000), const { &[bad("leases")] }),
            ("a lease has ended longer ago", |view, _| ended(view, 4, 3_600_001), const { &[warn("leases")] }),
            (
                "two leases have ended, one of them long ago",
                |view, _| {
                    ended(view, 4, 5);
                    ended(view, 5, 80_000_000);
                },
                const { &[bad("leases"), warn("leases")] },
            ),
            (
                "its server has another number",
                |view, _| {
                    ended(view, 4, 5);
                    lease(view, 5, |record| record.server = 4);
                },
                WELL,
            ),
            (
                "its server has given another number back since",
                |view, _| {
                    ended(view, 4, 5);
                    lease(view, 6, |record| record.server = 4);
                },
                WELL,
            ),
            (
                "its server has given another number back before",
                |view, _| {
                    ended(view, 4, 5);
                    lease(view, 6, |record| {
                        (record.server, record.until_ms) = (4, NOW_MS - 700_000);
                        record.renewed_ms = NOW_MS - 701_000;
                    });
                },
                const { &[bad("leases")] },
            ),
            (
                "its server holds another, written before",
                |view, _| {
                    lease(view, 4, |record| (record.until_ms, record.renewed_ms) = (NOW_MS - 1, NOW_MS - 30_001));
                    lease(view, 5, |record| (record.server, record.renewed_ms) = (4, NOW_MS - 30_002));
                },
                WELL,
            ),
            (
                "an operator has reserved the number since",
                |view, _| {
                    ended(view, 4, 5);
                    lease(view, 4, |record| record.server = 0);
                },
                WELL,
            ),
            (
                "a short first lease has ended",
                |view, _| {
                    lease(view, 4, |record| (record.until_ms, record.renewed_ms) = (NOW_MS - 1, NOW_MS - 30_001));
                },
                const { &[bad("leases")] },
            ),
            (
                "a lease of a frozen number has ended",
                |view, _| {
                    view.reading.fleet.freeze_ms = NOW_MS + 5;
                    ended(view, 4, 5);
                    lease(view, 4, |record| record.generation = 2);
                },
                const { &[warn("freeze"), bad("leases")] },
            ),
            (
                "a lease is late",
                |view, _| {
                    lease(view, 4, |record| {
                        (record.until_ms, record.renewed_ms) = (NOW_MS + 400_000, NOW_MS - 200_000)
                    });
                },
                const { &[warn("leases")] },
            ),
            (
                "a lease is half over",
                |view, _| {
                    lease(view, 4, |record| (record.until_ms, record.renewed_ms) = (NOW_MS + 1, NOW_MS - 599_999));
                },
                const { &[bad("leases")] },
            ),
            ("no standby", |_, seen| standbys(seen, "", Some((0, 0))), const { &[warn("replication")] }),
            ("standbys that cannot be seen", |_, seen| standbys(seen, "", None), WELL),
            ("a synchronous standby, and nothing declared", |_, seen| standbys(seen, "s", Some((2, 1))), WELL),
            (
                "no synchronous standby, and nothing declared",
                |_, seen| {
                    standbys(seen, "s", Some((1, 0)));
                },
                const { &[bad("replication")] },
            ),
            (
                "one of two synchronous standbys",
                |_, seen| {
                    standbys(seen, "FIRST 2 (a, b)", Some((3, 1)));
                },
                const { &[bad("replication")] },
            ),
            ("both synchronous standbys", |_, seen| standbys(seen, "ANY 2 (a, b)", Some((3, 2))), WELL),
            (
                "declared, with a synchronous standby",
                |view, seen| {
                    view.reading.fleet.loses_nothing = true;
                    standbys(seen, "s", Some((1, 1)));
                },
                WELL,
            ),
            (
                "declared, with standbys that cannot be seen",
                |view, seen| {
                    view.reading.fleet.loses_nothing = true;
                    standbys(seen, "s", None);
                },
                WELL,
            ),
            (
                "declared, and the synchronous standby is gone",
                |view, seen| {
                    view.reading.fleet.loses_nothing = true;
                    standbys(seen, "s", Some((2, 0)));
                },
                const { &[bad("replication")] },
            ),
            (
                "declared, and not synchronous",
                |view, seen| {
                    view.reading.fleet.loses_nothing = true;
                    standbys(seen, "", Some((2, 0)));
                },
                const { &[bad("replication")] },
            ),
            (
                "one host takes writes",
                |_, seen| {
                    seen.hosts = vec![host("a:5432", Some("7 1.5")), host("b:5432", None)];
                },
                WELL,
            ),
            (
                "two names of one server",
                |_, seen| {
                    seen.hosts = vec![host("a:5432", Some("7 1.5")), host("vip:5432", Some("7 1.5"))];
                },
                WELL,
            ),
            (
                "two hosts take writes",
                |_, seen| {
                    seen.hosts = vec![host("a:5432", Some("7 1.5")), host("b:5432", Some("7 2.5"))];
                },
                const { &[bad("hosts")] },
            ),
            (
                "the servers' role has a setting",
                |_, seen| seen.role_settings.push("snowflake IN DATABASE ids: lock_timeout=1ms".to_owned()),
                const { &[warn("role")] },
            ),
            (
                "a transaction that makes a number does not end",
                |_, seen| seen.held_up = Some((1, vec!["process 4711 (transaction 3/14)".to_owned()])),
                const { &[bad("numbers")] },
            ),
            ("an etcd without alarms", |view, seen| in_etcd(view, seen, &[]), WELL),
            ("an etcd at its quota", |view, seen| in_etcd(view, seen, &["NOSPACE"]), const { &[bad("alarms")] }),
            (
                "a broken member of etcd",
                |view, seen| in_etcd(view, seen, &["CORRUPT", "NOSPACE"]),
                const { &[bad("alarms")] },
            ),
        ];
        for (state, change, expected) in states {
            let (mut view, mut seen) = (view(), seen());
            change(&mut view, &mut seen);
            let found = findings(&view, &seen);
            let not_well: Vec<_> = found
                .iter()
                .filter(|finding| finding.grade > Grade::Ok)
                .map(|finding| (finding.grade, finding.subject))
                .collect();
            assert_eq!(not_well, *expected, "{state}: {found:#?}");
        }
    }

    #[test]
    fn a_timeout_that_servers_can_live_with_is_not_warned_of() {
        for (line, is_ok) in [
            ("statement_timeout=10s", true),
            ("statement_timeout=5000", true),
            ("statement_timeout=5000 ms", true),
            ("statement_timeout=1min", true),
            ("statement_timeout=4999", false),
            ("statement_timeout=4s", false),
            ("statement_timeout=0", false),
            ("statement_timeout=1e9", false),
            ("search_path=a: statement_timeout=10s", false),
        ] {
            let said = role_settings(&[format!("snowflake: {line}")]);
            assert_eq!(said.is_none(), is_ok, "{line}");
        }
    }

    #[test]
    fn a_server_without_a_number_is_named_with_the_end_of_its_lease() {
        let mut view = view();
        let four = view.reading.numbers.get_mut(&NumberKey::new(None, 4)).unwrap();
        (four.until_ms, four.renewed_ms) = (NOW_MS - 60_000, NOW_MS - 660_000);
        assert_eq!(
            of(&view, "leases")[1],
            (
                Grade::Bad,
                "1 server has let its lease end, and has no other number: a.example:5432 (number 4, until \
                 2026-11-24 11:59:00Z)"
                    .to_owned()
            )
        );
    }

    #[test]
    fn leases_that_a_failover_ends_are_found() {
        let mut view = view();
        view.reading.fleet.lease_ms = 240_000;
        assert_eq!(grades(&view, "limits"), [Grade::Ok]);
        view.reading.fleet.lease_ms = 239_999;
        assert_eq!(grades(&view, "limits"), [Grade::Warn]);
        view.reading.fleet.loses_nothing = true;
        assert_eq!(grades(&view, "limits"), [Grade::Ok]);
    }

    #[test]
    fn versions_are_compared() {
        let mut view = view();
        view.names.get_mut(&NumberKey::new(None, 5)).unwrap().version = "0.4.0".to_owned();
        let expected = "servers have different versions of snowflake_id: 0.3.0; 0.4.0";
        assert_eq!(of(&view, "versions"), [(Grade::Warn, expected.to_owned())]);
    }

    #[test]
    fn long_findings_are_wrapped() {
        let finding = Finding::bad("registry", "word ".repeat(60), "x".repeat(200));
        let said = said(&[finding]);
        for line in &said.lines[..3] {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        assert!(said.lines[1].starts_with(&" ".repeat(18)), "{:?}", said.lines);
        assert_eq!(named((0..6).map(|n| n.to_string())), "0; 1; 2; 3; and 2 more");
    }

    #[test]
    fn a_registry_that_cannot_be_read_is_bad() {
        let report = refused("could not connect to the registry").detail("Refused.").hint("Check it.");
        let said = said(&[Finding::unread(&report)]);
        assert_eq!(said.lines[0], "BAD   registry    could not connect to the registry: Refused.");
        assert_eq!(said.json["findings"][0]["hint"], "Check it.");
    }
}
