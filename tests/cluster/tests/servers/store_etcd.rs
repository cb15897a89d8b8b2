//! The store in a real etcd (`src/registry/etcd.rs`): what `store.rs` shows of both, and what only
//! etcd has, which are edits by hand and snapshots.

use cluster::registry::{Poll, config, lease, now_ms, number, of_number, of_tag, swaps, tag_record};
use cluster::{Etcd as Servers, has_etcd, skip, wait_until};
use serde_json::json;
use snowflake_core::fleet::operate::new_fleet;
use snowflake_core::fleet::registry::{
    Fleet, FleetLimits, Incarnation, MemberTerms, Reading, RecordChange, SinceIncarnation, Store, Wanted,
};
use snowflake_registry::{Config, Etcd, Registry};

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

/// Returns all records, as texts.
fn records(etcd: &Servers) -> String {
    etcd.ctl(&["get", "--prefix", "/snowflake_id/"])
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
    assert!(swaps(&server, &reading, vec![RecordChange::Fleet(Fleet { version: 2, ..reading.fleet })]));
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
fn only_a_key_that_is_a_fleets_is_one() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = Servers::start(1);
    let operator = operator(&etcd);
    assert!(operator.fleets().unwrap().is_empty());
    assert!(operator.create_fleet(&unused_fleet(1)).unwrap());
    // Another program's, and what is left of a fleet.
    for key in ["/snowflake_id/a", "/snowflake_id/lost/numbers/-/7", "/snowflake_idx/x/fleet", "/z/fleet"] {
        etcd.ctl(&["put", key, "x"]);
    }
    assert_eq!(operator.fleets().unwrap(), ["default"]);
    let bare = Etcd::new(config(&(etcd.address() + "?prefix=")), Poll);
    assert!(bare.fleets().unwrap().is_empty());
    assert!(bare.create_fleet(&unused_fleet(1)).unwrap());
    assert_eq!(bare.fleets().unwrap(), ["default"]);
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
        assert!(swaps(&operator, &reading, vec![RecordChange::Fleet(new)]));
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
