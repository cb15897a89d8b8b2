//! The store in a real etcd (`src/registry/etcd.rs`), as servers and operators use it: what a swap
//! compares, and what only operators do.

use std::collections::{BTreeMap, BTreeSet};

use cluster::registry::{Poll, config, now_ms, number};
use cluster::{Etcd as Servers, has_etcd, skip, wait_until};
use serde_json::json;
use snowflake_core::operate::new_fleet;
use snowflake_core::registry::{
    Change, Fleet, FleetLimits, Incarnation, MOST_CHANGES, MemberTerms, NumberKey, NumberRecord, Reading,
    SinceIncarnation, Store, Swap, SwapAnswer, TagRecord, Wanted, WantedNumbers, WantedTags,
};
use snowflake_core::segment::END;
use snowflake_core::tag::Tag;
use snowflake_registry::{Config, Etcd, MemberName, Registry};

const NO_ETCD: &str = "etcd and etcdctl are not installed";

fn server(etcd: &Servers) -> Etcd<Poll> {
    Etcd::new(config(&etcd.address()), Poll)
}

fn operator(etcd: &Servers) -> Etcd<Poll> {
    Etcd::new(Config { operator: true, ..config(&etcd.address()) }, Poll)
}

/// A fleet as no server has used it.
fn unused_fleet(version: u64) -> Fleet {
    new_fleet(0x1b4e_28ba_2fa1_41d2_883f_0016_d3cc_a427, Incarnation { store: 0, timeline: 0, counts: [0; 2] }, version)
}

fn lease(holder: u128, nonce: u64, (from_ms, until_ms): (i64, i64)) -> NumberRecord {
    NumberRecord {
        holder,
        nonce,
        count: nonce,
        server: 5,
        from_ms,
        until_ms,
        generation: 1,
        renewed_ms: from_ms,
        offset_ms: 0,
    }
}

fn tag(name: &str) -> Tag {
    Tag::new(name).unwrap()
}

fn tag_record(next: i64, nonce: u64) -> TagRecord {
    TagRecord { id: 1, next, steps: (5, 50), jumps: false, nonce, generation: 1, written_ms: 2, returnable: END }
}

fn of_number(worker: i64, was: Option<u64>, record: NumberRecord) -> Change {
    Change::Number { number: number(worker), was, record }
}

fn of_tag(name: &str, was: Option<u64>, record: Option<TagRecord>) -> Change {
    Change::Tag { tag: tag(name), was, record }
}

/// Swaps after a reading. Returns whether it was done.
#[track_caller]
fn swaps(store: &Etcd<Poll>, reading: &Reading, changes: Vec<Change>) -> bool {
    match store.swap(&Swap::after(reading, changes)).expect("etcd answers") {
        SwapAnswer::Done(after) => {
            assert_eq!(after.since(&reading.incarnation), SinceIncarnation::Same);
            true
        }
        SwapAnswer::Refused => false,
    }
}

/// Reads the registry, again as long as not all members have started again.
fn read_patiently(store: &Etcd<Poll>) -> Reading {
    let mut reading = None;
    wait_until("an answer", || {
        reading = store.read(&Wanted::all()).ok();
        reading.is_some()
    });
    reading.expect("it was read")
}

/// Makes a fleet, number 7 and the tag `orders`.
#[track_caller]
fn make(etcd: &Servers) -> Etcd<Poll> {
    let operator = operator(etcd);
    assert!(operator.create_fleet(&unused_fleet(1)).unwrap());
    let reading = operator.read(&Wanted::all()).unwrap();
    let changes = vec![of_number(7, None, lease(1, 1, (10, 20))), of_tag("orders", None, Some(tag_record(1, 1)))];
    assert!(swaps(&operator, &reading, changes));
    operator
}

#[test]
fn only_what_is_wanted_is_read() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = Servers::start(1);
    let operator = make(&etcd);
    let reading = operator.read(&Wanted::all()).unwrap();
    let elsewhere = NumberKey::new(Some(3), 7);
    let changes = vec![
        Change::Number { number: elsewhere, was: None, record: lease(2, 2, (10, 20)) },
        of_tag("../fleet \"ä\"", None, Some(tag_record(END, 3))),
    ];
    assert!(swaps(&operator, &reading, changes));
    let server = server(&etcd);
    let read = |numbers, tags| {
        let reading = server.read(&Wanted { numbers, tags }).unwrap();
        assert_eq!(reading.fleet.version, 1);
        assert!((now_ms() - reading.now_ms).abs() < 3_600_000);
        (Vec::from_iter(reading.numbers.into_keys()), Vec::from_iter(reading.tags.into_keys()))
    };
    let named = |name: &str| WantedTags::Named(vec![tag(name), tag("missing")]);
    assert_eq!(read(WantedNumbers::None, WantedTags::None), (vec![], vec![]));
    assert_eq!(read(WantedNumbers::One(number(7)), named("orders")), (vec![number(7)], vec![tag("orders")]));
    assert_eq!(read(WantedNumbers::One(number(8)), named("../fleet \"ä\"")), (vec![], vec![tag("../fleet \"ä\"")]));
    assert_eq!(read(WantedNumbers::Of(None), WantedTags::None), (vec![number(7)], vec![]));
    assert_eq!(read(WantedNumbers::Of(Some(3)), WantedTags::None), (vec![elsewhere], vec![]));
    assert_eq!(read(WantedNumbers::Of(Some(4)), WantedTags::None), (vec![], vec![]));
    let all = (vec![number(7), elsewhere], vec![tag("../fleet \"ä\""), tag("orders")]);
    assert_eq!(read(WantedNumbers::All, WantedTags::All), all);
}

/// Returns all records, as texts.
fn records(etcd: &Servers) -> String {
    etcd.ctl(&["get", "--prefix", "/snowflake_id/"])
}

#[test]
fn a_swap_is_done_whole_or_not_at_all() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = Servers::start(1);
    let _ = make(&etcd);
    let (one, other) = (server(&etcd), server(&etcd));
    let all = |reading: &Reading, nonce| {
        vec![
            Change::Fleet(Fleet { version: nonce, ..reading.fleet }),
            of_number(7, Some(reading.numbers[&number(7)].nonce), lease(1, nonce, (10, 90))),
            of_tag("orders", Some(reading.tags[&tag("orders")].nonce), Some(tag_record(90, nonce))),
        ]
    };
    // Whichever of the three has changed since.
    for changed in 0..3 {
        let reading = one.read(&Wanted::all()).unwrap();
        let change = all(&reading, 10 + changed as u64).swap_remove(changed);
        assert!(swaps(&other, &other.read(&Wanted::all()).unwrap(), vec![change]));
        let before = records(&etcd);
        assert!(!swaps(&one, &reading, all(&reading, 20)), "{changed}");
        assert_eq!(records(&etcd), before);
    }
    let reading = one.read(&Wanted::all()).unwrap();
    assert!(swaps(&one, &reading, all(&reading, 30)));
    assert!(!swaps(&one, &reading, all(&reading, 30)), "what was written is known without a reading");
    let reading = other.read(&Wanted::all()).unwrap();
    let nonces = (reading.fleet.version, reading.numbers[&number(7)].nonce, reading.tags[&tag("orders")].nonce);
    assert_eq!(nonces, (30, 30, 30));
    // A record that is made must not exist.
    assert!(!swaps(&one, &reading, vec![of_tag("orders", None, Some(tag_record(1, 1)))]));
    assert!(!swaps(&server(&etcd), &reading, vec![of_number(7, None, lease(2, 1, (90, 99)))]));
}

/// An edit with etcdctl leaves version and nonces as they are.
#[test]
fn an_edit_by_hand_is_not_overwritten() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = Servers::start(1);
    let _ = make(&etcd);
    let server = server(&etcd);
    let edit = |key: &str| {
        etcd.edit(key, &[("note", json!("by hand"))]);
    };
    let change = |nonce| {
        vec![
            of_number(7, Some(nonce - 1), lease(1, nonce, (10, 30))),
            of_tag("orders", Some(nonce - 1), Some(tag_record(nonce as i64, nonce))),
        ]
    };
    for (nonce, key) in [(2, "fleet"), (3, "numbers/-/7"), (4, "tags/orders")] {
        let reading = server.read(&Wanted::all()).unwrap();
        edit(key);
        assert!(!swaps(&server, &reading, change(nonce)), "{key}");
        let reading = server.read(&Wanted::all()).unwrap();
        assert!(swaps(&server, &reading, change(nonce)), "{key}");
    }
    let reading = server.read(&Wanted::default()).unwrap();
    assert!(swaps(&server, &reading, vec![Change::Fleet(Fleet { version: 2, ..reading.fleet })]));
    assert_eq!(records(&etcd).matches(r#""note":"by hand""#).count(), 3, "{}", records(&etcd));
}

#[test]
fn what_is_not_known_of_a_swap_is_read() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = Servers::start(1);
    let operator = make(&etcd);
    let server = server(&etcd);
    let reading = server.read(&Wanted::all()).unwrap();
    server.read(&Wanted::default()).unwrap();
    let renewed = |nonce| vec![of_number(7, Some(nonce - 1), lease(1, nonce, (10, 30)))];
    assert!(swaps(&server, &reading, renewed(2)));
    // The edit is not among what the swap was decided by.
    server.read(&Wanted::default()).unwrap();
    etcd.edit_fleet(&[("lease_ms", json!(5000))]);
    assert!(!swaps(&server, &reading, renewed(3)));
    // Nor is anything else.
    server.disconnect();
    assert!(!swaps(&Etcd::new(config(&etcd.address()), Poll), &reading, renewed(3)));
    assert_eq!(operator.read(&Wanted::number(number(7))).unwrap().numbers[&number(7)].nonce, 2);
}

#[test]
fn a_closed_fleet_is_changed_by_an_operator_alone() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = Servers::start(1);
    let operator = make(&etcd);
    let (server, renewed) = (server(&etcd), lease(1, 2, (10, 30)));
    let before = server.read(&Wanted::all()).unwrap();
    let reading = operator.read(&Wanted::all()).unwrap();
    assert!(swaps(&operator, &reading, vec![Change::Fleet(Fleet { closed: true, version: 2, ..reading.fleet })]));
    assert!(!swaps(&server, &before, vec![of_number(7, Some(1), renewed)]));
    let closed = server.read(&Wanted::all()).unwrap();
    for change in [
        Change::Fleet(Fleet { closed: false, version: 3, ..closed.fleet }),
        of_number(7, Some(1), renewed),
        of_tag("orders", Some(1), Some(tag_record(6, 2))),
    ] {
        assert!(!swaps(&server, &closed, vec![change]));
    }
    let reading = operator.read(&Wanted::all()).unwrap();
    assert!(swaps(&operator, &reading, vec![of_number(7, Some(1), renewed), of_tag("orders", Some(1), None)]));
    let open = Fleet {
        uuid: 9,
        layout: None,
        range: Some((7, 9)),
        closed: false,
        longest_ms: 700_000,
        skew_ms: 1000,
        lease_ms: 5000,
        clock_skew_ms: 20,
        generation: u64::MAX,
        horizon_ms: i64::MAX,
        freeze_ms: -1,
        version: 3,
        ..reading.fleet
    };
    assert!(swaps(&operator, &reading, vec![Change::Fleet(open)]));
    let reading = server.read(&Wanted::all()).unwrap();
    assert_eq!((reading.fleet, reading.numbers[&number(7)], reading.tags.len()), (open, renewed, 0));
}

#[test]
fn an_operator_finds_fleets_names_and_descriptions() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = Servers::start(1);
    let of_fleet = |fleet: &str| {
        let fleet = fleet.to_owned();
        Etcd::new(Config { operator: true, fleet, ..config(&etcd.address()) }, Poll)
    };
    assert!(of_fleet("none").fleets().unwrap().is_empty());
    let names = ["a", "a-b", "a/b", "default", "ä"];
    for fleet in names {
        assert!(of_fleet(fleet).create_fleet(&unused_fleet(1)).unwrap(), "{fleet}");
        assert!(!of_fleet(fleet).create_fleet(&unused_fleet(2)).unwrap(), "{fleet}");
    }
    // Not fleets: another program's key, and what is left of one.
    for key in ["/snowflake_id/a", "/snowflake_id/lost/numbers/-/7", "/snowflake_idx/x/fleet", "/z/fleet"] {
        etcd.ctl(&["put", key, "x"]);
    }
    let found = of_fleet("none").fleets().unwrap();
    assert_eq!(BTreeSet::from_iter(found.iter().map(String::as_str)), names.into());
    assert_eq!(found.len(), names.len());
    let bare = Etcd::new(config(&(etcd.address() + "?prefix=")), Poll);
    assert!(bare.fleets().unwrap().is_empty());
    assert!(bare.create_fleet(&unused_fleet(1)).unwrap());
    assert_eq!(bare.fleets().unwrap(), ["default"]);

    let operator = of_fleet("default");
    assert_eq!((operator.names(), operator.descriptions()), (Ok(BTreeMap::new()), Ok(BTreeMap::new())));
    assert_eq!(operator.read(&Wanted::default()).unwrap().fleet.version, 1);
    let server = server(&etcd);
    let reading = server.read(&Wanted::all()).unwrap();
    assert!(swaps(&server, &reading, vec![of_number(7, None, lease(1, 1, (10, 20)))]));
    let reading = operator.read(&Wanted::all()).unwrap();
    let kept = NumberRecord { server: 0, ..lease(2, 1, (10, 20)) };
    let cut = NumberRecord { until_ms: 15, ..reading.numbers[&number(7)] };
    let changes =
        [of_number(8, None, kept), of_number(7, Some(1), cut), of_tag("orders", None, Some(tag_record(1, 1)))];
    assert!(swaps(&operator, &reading, changes.to_vec()));
    let expected = [(number(7), config("").member), (number(8), MemberName::default())];
    assert_eq!(operator.names().unwrap(), expected.into());

    assert!(!operator.describe_tag(tag("invoices"), "x").unwrap());
    assert!(operator.descriptions().unwrap().is_empty());
    for description in ["of the \"shop\"\n = ä%", ""] {
        assert!(operator.describe_tag(tag("orders"), description).unwrap());
        let found = operator.descriptions().unwrap().remove(&tag("orders"));
        assert_eq!(found.unwrap_or_default(), description);
        let reading = operator.read(&Wanted::all()).unwrap();
        assert_eq!(reading.tags[&tag("orders")], tag_record(1, 1));
        // A server's change keeps it.
        assert!(swaps(&operator, &reading, vec![of_tag("orders", Some(1), Some(tag_record(1, 1)))]));
        assert_eq!(operator.descriptions().unwrap().remove(&tag("orders")).unwrap_or_default(), description);
    }
}

#[test]
fn the_history_is_pruned_but_for_the_last_lease_of_each_number() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = Servers::start(1);
    let operator = make(&etcd);
    const NUMBERS: i64 = 40;
    // The lease of number n in round r is [100 r, 100 r + 50), and of holder 1000 r + n.
    for round in 1..=5 {
        let reading = operator.read(&Wanted::all()).unwrap();
        let change = |worker| {
            let was = reading.numbers.get(&number(worker)).map(|record| record.nonce);
            let record =
                lease(1000 * round as u128 + worker as u128, 10 + round, (100 * round as i64, 100 * round as i64 + 50));
            of_number(worker, was, record)
        };
        assert!(swaps(&operator, &reading, (100..100 + NUMBERS).map(change).collect()));
    }
    let history = || {
        etcd.ctl(&["get", "--prefix", "--keys-only", "/snowflake_id/default/history/"]).split_whitespace().count()
            as i64
    };
    // And the one of number 7.
    assert_eq!(history(), 5 * NUMBERS + 1);
    etcd.ctl(&["put", "/snowflake_id/default/history/-/100/x", r#"{"note": "x"}"#]);
    assert_eq!(operator.prune(150), Ok(0));
    assert_eq!(operator.prune(151), Ok(NUMBERS as u64));
    // More than one transaction can have.
    assert!(3 * NUMBERS as usize > MOST_CHANGES);
    assert_eq!(operator.prune(i64::MAX), Ok(3 * NUMBERS as u64));
    assert_eq!((operator.prune(i64::MAX), history()), (Ok(0), NUMBERS + 2));
}

/// As many as a swap can have. All must be within what etcd takes.
#[test]
fn a_hundred_records_are_changed_in_one_swap() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = Servers::start(1);
    let operator = make(&etcd);
    let workers = 100..100 + MOST_CHANGES as i64;
    let changes = |nonce: u64, from_ms: i64| {
        let change = |worker| {
            let was = (nonce > 1).then_some(nonce - 1);
            of_number(worker, was, lease(1000 * nonce as u128 + worker as u128, nonce, (from_ms, from_ms + 50)))
        };
        workers.clone().map(change).collect::<Vec<_>>()
    };
    for nonce in 1..=2 {
        let reading = operator.read(&Wanted::all()).unwrap();
        assert!(swaps(&operator, &reading, changes(nonce, 100 * nonce as i64)));
    }
    let names: Vec<_> = (0..MOST_CHANGES).map(|name| format!("tag{name}")).collect();
    let tags = |nonce: u64| {
        let change = |name: &String| of_tag(name, (nonce > 1).then_some(nonce - 1), Some(tag_record(1, nonce)));
        names.iter().map(change).collect::<Vec<_>>()
    };
    let wanted = Wanted::tags(names.iter().map(|name| tag(name)).collect());
    for nonce in 1..=2 {
        let reading = operator.read(&wanted).unwrap();
        assert!(swaps(&operator, &reading, tags(nonce)));
        assert_eq!(operator.read(&wanted).unwrap().tags.len(), MOST_CHANGES);
    }
    assert_eq!(operator.read(&Wanted::all()).unwrap().numbers.len(), MOST_CHANGES + 1);
}

#[test]
fn a_lease_that_an_operator_cuts_moves_in_the_history() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = Servers::start(1);
    let operator = make(&etcd);
    let reading = operator.read(&Wanted::all()).unwrap();
    let cut = NumberRecord { from_ms: 5, until_ms: 5, ..reading.numbers[&number(7)] };
    assert!(swaps(&operator, &reading, vec![of_number(7, Some(1), cut)]));
    let history = etcd.ctl(&["get", "--prefix", "--keys-only", "/snowflake_id/default/history/"]);
    assert_eq!(history.trim(), "/snowflake_id/default/history/-/7/5");
    let reading = server(&etcd).read(&Wanted::all()).unwrap();
    assert_eq!(reading.numbers[&number(7)], cut);
}

/// Nothing but the operator's own reading tells it.
#[test]
fn an_operator_who_reads_a_restored_snapshot_first_begins_one_generation() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    // Another cluster, and the same one.
    for token in ["two", "one"] {
        let mut etcd = Servers::start(3);
        etcd.write_elsewhere();
        let _ = make(&etcd);
        etcd.save("snapshot");
        etcd.write_elsewhere();
        etcd.restore("snapshot", token);
        let operator = operator(&etcd);
        let reading = read_patiently(&operator);
        assert_eq!(reading.incarnation.since(&reading.fleet.incarnation), SinceIncarnation::Other);
        assert_eq!(reading.incarnation.store == reading.fleet.incarnation.store, token == "one");
        let limits = FleetLimits { longest_ms: 600_000, skew_ms: 60_000 };
        let new = reading.fleet.begin_generation(reading.incarnation, reading.now_ms, limits, 2);
        assert!(swaps(&operator, &reading, vec![Change::Fleet(new)]));
        let Incarnation { store, counts: [term, unseen], .. } = reading.incarnation;
        assert!(
            [
                format!("\"store\":\"{}\",\"term\":{term},", store.cast_signed()),
                format!("\"unseen\":{unseen},"),
                "\"generation\":2,".to_owned(),
            ]
            .iter()
            .all(|value| etcd.fleet().contains(value)),
            "{}",
            etcd.fleet()
        );
        // No server begins another one.
        let reading = read_patiently(&server(&etcd));
        assert_eq!((reading.fleet, reading.incarnation.since(&new.incarnation)), (new, SinceIncarnation::Same));
        let member = MemberTerms { layout: (1, false), range: (0, 1023) };
        let amended = reading.fleet.amended(&reading, &member, limits, 3).expect("the layout is new");
        assert_eq!((amended.generation, amended.freeze_ms), (2, new.freeze_ms));
    }
}

/// The first server has brought the limits, and has leased numbers. The snapshot has neither.
#[test]
fn a_snapshot_of_a_fleet_that_no_server_had_used_shows() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let mut etcd = Servers::start(1);
    etcd.write_elsewhere();
    let (before, at_ms) = operator(&etcd).now().unwrap();
    assert!((now_ms() - at_ms).abs() < 3_600_000);
    assert!(operator(&etcd).create_fleet(&unused_fleet(1)).unwrap());
    // etcd may have written something of its own since.
    let reading = operator(&etcd).read(&Wanted::default()).unwrap();
    assert_eq!(reading.fleet.incarnation.since(&before), SinceIncarnation::Same);
    assert_eq!(reading.incarnation.since(&reading.fleet.incarnation), SinceIncarnation::Same);
    etcd.save("snapshot");
    etcd.restore("snapshot", "one");
    let reading = read_patiently(&server(&etcd));
    assert_eq!(reading.incarnation.since(&reading.fleet.incarnation), SinceIncarnation::Other);
}
