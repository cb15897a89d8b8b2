//! The fleet as a table for people, and as an object for programs.

use serde_json::{Value as Json, json};
use snowflake_core::fleet::registry::{Fleet, NumberKey, Reading, TagRecord};
use snowflake_core::fleet::tag::Tag;
use snowflake_registry::{Kind, record};

use crate::changes::layout_name;
use crate::instant::Shown;
use crate::output::Said;
use crate::span::Span;
use crate::table::{Column, WIDTH, cut, lines, printable};
use crate::view::{NumberState, NumberView, TagState, View};
use crate::words;

/// How far from now an instant may be that is shown as a length of time, in milliseconds: a hundred
/// years.
const FAR_MS: i64 = 100 * 365 * 86_400_000;

/// Shows a fleet. Numbers that are free are only counted, unless `all` are to be shown.
pub fn show(view: &View, all: bool) -> Said {
    let numbers = view.numbers();
    let mut said = head(view, &numbers);
    let (free, shown): (Vec<_>, Vec<_>) =
        numbers.iter().partition(|number| !all && matches!(number.state, NumberState::Free | NumberState::Frozen));
    if !shown.is_empty() {
        said.push(String::new());
        said.extend(lines(&NUMBER_COLUMNS, &shown.iter().map(|number| number_row(number, view)).collect::<Vec<_>>()));
    }
    if !free.is_empty() {
        said.push(String::new());
        said.push(match free.len() {
            1 => "1 more number was leased before, and is not now (--all).".to_owned(),
            count => format!("{count} more numbers were leased before, and are not now (--all)."),
        });
    }
    if !view.reading.tags.is_empty() {
        said.push(String::new());
        let rows: Vec<_> = view.reading.tags.iter().map(|(tag, record)| tag_row(*tag, record, view)).collect();
        said.extend(lines(&TAG_COLUMNS, &rows));
    }
    Said::new(said, json(view, &numbers))
}

/// Returns the lines about the fleet as a whole.
fn head(view: &View, numbers: &[NumberView]) -> Vec<String> {
    let Reading { fleet, incarnation, now_ms, .. } = &view.reading;
    let mut rows = vec![("fleet", format!("\"{}\", {}", printable(&view.fleet), words::uuid(fleet.uuid)))];
    if fleet.closed {
        rows.push(("CLOSED", "nothing is leased or renewed; servers draw ids until their leases end".to_owned()));
    }
    if view.is_unnoted() {
        rows.push(("UNNOTED", "it has failed over or was restored, and no server has noted that yet".to_owned()));
    }
    if let Some(left_ms) = view.frozen_ms() {
        let until = Shown(fleet.freeze_ms);
        rows.push(("FROZEN", format!("for {}, until {until}: restart no server before then", Span(left_ms).short())));
    }
    rows.push((
        "layout",
        match fleet.layout {
            Some((layout, backup)) => {
                format!("{}, backup_worker {}", layout_name(layout), if backup { "on" } else { "off" })
            }
            None => "none yet: the first server brings it".to_owned(),
        },
    ));
    rows.push(("range", range(view, numbers)));
    let (longest, skew) = (Span(fleet.longest_ms), Span(fleet.skew_ms));
    rows.push((
        "leases",
        match fleet.longest_ms > 0 && fleet.skew_ms > 0 {
            true => format!(
                "{}, limit {longest}; clock skew {}, limit {skew}; a freeze lasts {}",
                Span(fleet.used_lease_ms()),
                Span(fleet.used_skew_ms()),
                Span(fleet.longest_ms.saturating_add(2 * fleet.skew_ms))
            ),
            false => "limits are not set yet: the first server sets the defaults".to_owned(),
        },
    ));
    let store = match view.kind {
        Kind::Postgres => {
            let loses = if fleet.loses_nothing { ", a failover loses nothing (declared)" } else { "" };
            format!("system {}, timeline {}{loses}", incarnation.store, incarnation.timeline)
        }
        Kind::Etcd => format!("cluster {:x}", incarnation.store),
    };
    rows.push(("generation", format!("{}; {store}", fleet.generation)));
    rows.push(("registry", format!("{}, {}", Shown(*now_ms), printable(&view.address))));
    rows.into_iter().map(|(name, text)| cut(&format!("{name:<12}{text}"), WIDTH)).collect()
}

/// Says which numbers may be leased, and how many of them are.
fn range(view: &View, numbers: &[NumberView]) -> String {
    let Some((first, last)) = view.reading.fleet.range else {
        return "none yet: the first server brings all numbers of its layout".to_owned();
    };
    let count = |is: fn(&NumberView) -> bool| numbers.iter().filter(|number| is(number)).count();
    let in_range = view.in_range().unwrap_or(0);
    let each = if view.has_datacenters() { " in each datacenter" } else { "" };
    let mut parts = vec![format!("{first} to {last}: {in_range} numbers{each}")];
    parts.push(format!("{} leased", count(|number| number.state.is_leased())));
    let rest = [
        (count(|number| number.is_late && !number.is_left_behind), "LATE"),
        (count(|number| number.is_left_behind), "LEFT"),
        (count(|number| number.is_outside), "OUTSIDE"),
        (count(|number| number.state == NumberState::Reserved), "reserved"),
        (count(|number| number.state == NumberState::Frozen), "frozen"),
    ];
    parts.extend(rest.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    parts.join(", ")
}

const NUMBER_COLUMNS: [Column; 10] = [
    Column::Number("DC"),
    Column::Number("NUMBER"),
    Column::Text("STATE"),
    Column::Cut("SERVER", 10),
    Column::Cut("CLUSTER", 7),
    Column::Cut("VERSION", 7),
    Column::Text("BEGINS IN"),
    Column::Text("ENDS IN"),
    Column::Text("RENEWED"),
    Column::Number("CLOCK"),
];

fn number_row(number: &NumberView, view: &View) -> Vec<String> {
    let now_ms = view.reading.now_ms;
    let NumberView { key, record, name, state, .. } = number;
    let mut shown = state.name().to_owned();
    if number.is_late {
        shown += if number.is_left_behind { ", LEFT" } else { ", LATE" };
    }
    if number.is_outside {
        shown += ", OUTSIDE";
    }
    let is_now = !matches!(state, NumberState::Free | NumberState::Frozen);
    let from_now = |ms: i64| match ms.saturating_sub(now_ms) {
        left_ms if left_ms > FAR_MS => "a century".to_owned(),
        left_ms => Span(left_ms).short(),
    };
    let is_servers = state.is_leased();
    let when = |is_shown: bool, text: &dyn Fn() -> String| if is_shown { text() } else { String::new() };
    vec![
        key.datacenter.map(|datacenter| datacenter.to_string()).unwrap_or_default(),
        key.worker.to_string(),
        shown,
        number.server(),
        name.cluster_name.clone(),
        name.version.clone(),
        when(*state == NumberState::Ahead, &|| from_now(record.from_ms)),
        when(is_now, &|| from_now(record.until_ms)),
        when(is_servers, &|| ago(now_ms, record.renewed_ms)),
        when(is_servers, &|| clock(record.offset_ms)),
    ]
}

/// Says how long ago something was.
fn ago(now_ms: i64, then_ms: i64) -> String {
    match now_ms.saturating_sub(then_ms) {
        ms if ms < -FAR_MS => "far ahead".to_owned(),
        // The registry's clock was set back.
        ms if ms < 0 => format!("in {}", Span(ms.saturating_neg()).short()),
        ms if ms > FAR_MS => "long ago".to_owned(),
        ms => format!("{} ago", Span(ms - ms % 1000).short()),
    }
}

/// Says how far a server's clock is ahead of the registry's.
pub fn clock(offset_ms: i64) -> String {
    match offset_ms {
        ms if ms < -FAR_MS => "far behind".to_owned(),
        ms if ms > FAR_MS => "far ahead".to_owned(),
        ms => format!("{}{}", if ms < 0 { "" } else { "+" }, Span(ms).short()),
    }
}

const TAG_COLUMNS: [Column; 7] = [
    Column::Cut("TAG", 16),
    Column::Number("NEXT VALUE"),
    Column::Text("STEPS"),
    Column::Text("JUMPS"),
    Column::Text("STATE"),
    Column::Text("WRITTEN"),
    Column::Cut("DESCRIPTION", 12),
];

fn tag_row(tag: Tag, record: &TagRecord, view: &View) -> Vec<String> {
    let state = view.tag_state(record);
    let is_well = state == TagState::Open;
    vec![
        tag.to_string(),
        record.next.to_string(),
        format!("{} to {}", record.steps.0, record.steps.1),
        if record.jumps { "yes" } else { "no" }.to_owned(),
        if is_well { state.name().to_owned() } else { state.name().to_uppercase() },
        ago(view.reading.now_ms, record.written_ms),
        view.descriptions.get(&tag).cloned().unwrap_or_default(),
    ]
}

/// Returns the fleet for programs: each record as it is, and what follows from it.
fn json(view: &View, numbers: &[NumberView]) -> Json {
    let Reading { fleet, incarnation, now_ms, tags, .. } = &view.reading;
    let with = |fields: record::Fields, more: Json| {
        let mut object = Json::Object(fields);
        for (field, value) in more.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        object
    };
    let settings = json!({
        "layout_name": fleet.layout.map(|(layout, _)| layout_name(layout)),
        "used_lease_ms": fleet.used_lease_ms(),
        "used_skew_ms": fleet.used_skew_ms(),
        "frozen": view.frozen_ms().is_some(),
        "unnoted": view.is_unnoted(),
    });
    let mut registry = json!({
        "kind": match view.kind { Kind::Postgres => "postgresql", Kind::Etcd => "etcd" },
        "address": view.address,
        "now_ms": now_ms,
    });
    let now = record::fleet(&Fleet { incarnation: *incarnation, ..*fleet });
    for field in ["store", "timeline", "term", "unseen"] {
        registry[field] = now[field].clone();
    }
    let number = |number: &NumberView| {
        let NumberView { key: NumberKey { datacenter, worker }, record, name, state, .. } = number;
        let maybe = |text: &str| if text.is_empty() { Json::Null } else { json!(text) };
        let more = json!({
            "datacenter": datacenter,
            "worker": worker,
            "state": state.name(),
            "late": number.is_late,
            "restarted": number.is_left_behind,
            "outside": number.is_outside,
            "host": maybe(&name.host),
            "port": if name.host.is_empty() { Json::Null } else { json!(name.port) },
            "cluster_name": maybe(&name.cluster_name),
            "version": maybe(&name.version),
        });
        with(record::number(record), more)
    };
    let tag = |(tag, record): (&Tag, &TagRecord)| {
        let (state, description) = (view.tag_state(record).name(), view.descriptions.get(tag));
        with(record::tag(record), json!({"tag": tag.as_str(), "state": state, "description": description}))
    };
    json!({
        "settings": with(record::fleet(fleet), settings),
        "registry": registry,
        "numbers": numbers.iter().map(number).collect::<Vec<_>>(),
        "tags": tags.iter().map(tag).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{NOW_MS, TAG, number, view};
    use snowflake_core::fleet::registry::{Incarnation, NumberRecord};
    use snowflake_registry::MemberName;

    #[test]
    fn a_fleet_is_drawn() {
        let drawn = show(&view(), false).text();
        let expected = "\
fleet       \"default\", 1b4e28ba-2fa1-41d2-883f-0016d3cca427
layout      snowflake, backup_worker off
range       0 to 1023: 1024 numbers, 2 leased
leases      10 mins, limit 10 mins; clock skew 1 min, limit 1 min; a freeze lasts 12 mins
generation  3; system 7312000000000000000, timeline 3
registry    2026-11-24 12:00:00Z, host=r.example dbname=ids user=dba

NUMBER  STATE  SERVER          CLUSTER  VERSION  ENDS IN         RENEWED         CLOCK
     4  held   a.example:5432  shop     0.3.0    9 mins 57 secs  3 secs ago  +12 msecs
     5  held   b.example:5432  shop     0.3.0    9 mins 57 secs  3 secs ago   -7 msecs

1 more number was leased before, and is not now (--all).

TAG       NEXT VALUE  STEPS            JUMPS  STATE  WRITTEN    DESCRIPTION
invoices        4001  1000 to 1000000  no     open   1 min ago  invoice numbers
parcels            1  1000 to 1000000  yes    open   1 min ago
";
        assert_eq!(drawn, expected);
        assert!(show(&view(), true).text().contains("     6  free   c.example:5432"));
    }

    #[test]
    fn what_is_not_well_is_in_capitals() {
        let mut view = view();
        view.reading.fleet = Fleet {
            closed: true,
            freeze_ms: NOW_MS + 543_000,
            generation: 4,
            range: Some((5, 9)),
            ..view.reading.fleet
        };
        view.reading.incarnation = Incarnation { timeline: 4, ..view.reading.incarnation };
        let late = NumberRecord { renewed_ms: NOW_MS - 120_000, ..number(NOW_MS - 86_400_000, NOW_MS + 480_000) };
        view.reading.numbers.insert(NumberKey::new(None, 7), NumberRecord { server: 7, ..late });
        let drawn = show(&view, false).text();
        for line in [
            "CLOSED      nothing is leased or renewed; servers draw ids until their leases end",
            "UNNOTED     it has failed over or was restored, and no server has noted that yet",
            "FROZEN      for 9 mins 3 secs, until 2026-11-24 12:09:03Z: restart no server before then",
            "range       5 to 9: 5 numbers, 3 leased, 1 LATE, 1 OUTSIDE, 1 frozen",
        ] {
            assert!(drawn.contains(line), "{drawn}");
        }
        assert!(drawn.contains("  held, OUTSIDE  ") && drawn.contains("  held, LATE "), "{drawn}");
        assert!(drawn.contains("  STOPPED  ") && drawn.contains("  JUMPS    "), "{drawn}");
    }

    #[test]
    fn a_time_beyond_a_century_has_no_figure() {
        let told = [i64::MAX, NOW_MS + 5000, NOW_MS - 5000, i64::MIN].map(|then_ms| ago(NOW_MS, then_ms));
        assert_eq!(told, ["far ahead", "in 5 secs", "5 secs ago", "long ago"]);
    }

    #[test]
    fn a_fleet_that_no_server_has_used_is_drawn() {
        let mut view = view();
        view.reading.numbers.clear();
        view.reading.tags.clear();
        let fleet = view.reading.fleet;
        view.reading.fleet = Fleet { layout: None, range: None, longest_ms: 0, skew_ms: 0, ..fleet };
        let drawn = show(&view, false).text();
        assert_eq!(drawn.matches("none yet: the first server brings").count(), 2, "{drawn}");
        assert!(drawn.contains("limits are not set yet") && !drawn.contains("NUMBER"), "{drawn}");
    }

    #[test]
    fn no_line_is_longer_than_a_screen_and_no_name_moves_the_cursor() {
        let mut view = view();
        let long = |text: &str| text.repeat(40);
        for name in view.names.values_mut() {
            let (host, cluster_name) = (long("h\u{1b}[1m."), long("cluster"));
            *name = MemberName { host, port: 65535, cluster_name, version: long("0.3") };
        }
        let far = NumberRecord {
            until_ms: i64::MAX,
            from_ms: i64::MIN,
            renewed_ms: i64::MIN,
            offset_ms: i64::MIN,
            server: 1,
            ..number(0, 0)
        };
        view.reading.numbers.insert(NumberKey::new(Some(31), (1 << 31) - 1), far);
        let tag = Tag::new(&"t".repeat(63)).unwrap();
        view.reading
            .tags
            .insert(tag, TagRecord { next: i64::MIN, jumps: true, steps: (10_000_000, 10_000_000), ..TAG });
        view.descriptions.insert(tag, long("what for\n"));
        (view.address, view.fleet) = (long("host"), long("shop"));
        let said = show(&view, true);
        for line in &said.lines {
            assert!(line.chars().count() <= WIDTH && !line.contains(['\u{1b}', '\n']), "{line}");
        }
        // For programs, nothing is cut.
        assert_eq!(said.json["tags"][2]["description"], json!(long("what for\n")));
    }

    #[test]
    fn programs_read_what_people_see() {
        let object = Json::Object(show(&view(), false).json);
        let has = |object: &Json, expected: Json| {
            for (field, value) in expected.as_object().unwrap() {
                assert_eq!(&object[field], value, "{field} of {object}");
            }
        };
        has(
            &object["numbers"][0],
            json!({
                "datacenter": null, "worker": 4, "state": "held", "late": false, "restarted": false, "outside": false,
                "host": "a.example", "port": 5432, "cluster_name": "shop", "version": "0.3.0",
                "from_ms": NOW_MS - 86_400_000, "until_ms": NOW_MS + 597_000, "renewed_ms": NOW_MS - 3000,
                "offset_ms": 12, "generation": 3, "server": "4",
            }),
        );
        has(
            &object["tags"][0],
            json!({
                "tag": "invoices", "next_value": 4001, "least_step": 1000, "greatest_step": 1_000_000, "jumps": false,
                "state": "open", "generation": 3, "written_ms": NOW_MS - 60_000, "returnable_from": i64::MAX.to_string(),
                "description": "invoice numbers",
            }),
        );
        has(
            &object["settings"],
            json!({
                "layout_name": "snowflake", "longest_ms": 600_000, "lease_ms": 0, "used_lease_ms": 600_000,
                "store": "7312000000000000000", "frozen": false, "unnoted": false,
            }),
        );
        assert_eq!(object["registry"]["kind"], "postgresql");
        // Free numbers, too.
        assert_eq!(object["numbers"].as_array().unwrap().len(), 3);
    }
}
