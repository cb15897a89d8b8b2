//! What bounds a fleet: numbers that are free of all, background workers, leases that are too short
//! beside the clock skew, and servers that cannot run a background worker at all.

use cluster::refusal::assert_refused_as;
use cluster::{Draw, Fleet, Leases, Operated, Server, Shutdown, refused, wait_until};

const DRAW: &str = "SELECT snowflake_next()";

#[test]
fn the_view_counts_the_numbers_that_are_free() {
    let fleet = Fleet::start();
    fleet.operate(&["set-range", "5", "9"]);
    let one = fleet.member().start_with_extension();
    one.connect().wait_for_lease();
    wait_until("the count", || one.connect().lease("free_numbers") == "4");
    assert_eq!(one.connect().lease("numbers || ' ' || free_numbers || ' ' || fleet"), {
        let uuid = fleet.registry.connect().value("SELECT uuid::text FROM snowflake_registry.fleets");
        format!("5 4 {uuid}")
    });
    let other = fleet.member().start_with_extension();
    other.connect().wait_for_lease();
    wait_until("the count", || other.connect().lease("free_numbers") == "3");
    assert_eq!(other.connect().lease("numbers || ' ' || free_numbers"), "5 3");
    // A reload has them counted again.
    one.reload();
    wait_until("another count", || one.connect().lease("free_numbers") == "3");
    // A configured number belongs to no fleet.
    let configured = Server::drawing().start_with_extension();
    assert_eq!(configured.connect().lease("num_nulls(numbers, free_numbers, fleet)"), "3");
}

#[test]
fn a_server_without_a_place_for_the_worker_warns_at_its_start() {
    let fleet = Fleet::start();
    let server = fleet.member().config("max_worker_processes", "0").start_with_extension();
    let expected = "WARNING:  snowflake_id: the server will draw no ids, because no background worker can lease its \
                    worker number";
    assert!(server.log().contains(expected), "{}", server.log());
    assert!(server.log().contains("HINT:  Raise \"max_worker_processes\" by one, and restart the server."));
    let refusal = refused(server.connect().query(DRAW, &[]));
    assert_refused_as(&refusal, "58000", "this server has no worker number yet");
    assert_eq!(refusal.detail.as_deref(), Some("The background worker that leases one does not run."));
    server.unset_config("max_worker_processes");
    let length = server.log_length();
    server.restart();
    assert_eq!(server.connect().ids(DRAW).unwrap().len(), 1);
    assert!(!server.log_since(length).contains("no background worker"));
}

#[test]
fn a_lease_that_is_short_beside_the_clock_skew_is_warned_of() {
    const WARNING: &str = "after a failover of the registry, this server may draw no ids for";
    let fleet = Fleet::start().limited("3min", None);
    let server = fleet.member().start_with_extension();
    server.connect().wait_for_lease();
    assert!(server.log().contains("this server may draw no ids for 300000 ms"), "{}", server.log());
    assert!(server.log().contains("A lease of 180000 ms is not several times as long as two clock skews of 60000 ms"));
    // Once, and not at each renewal.
    assert_eq!(server.log().matches(WARNING).count(), 1);
    // Not where the skew is small, and not where the operator says that a failover loses nothing.
    let length = server.log_length();
    fleet.operate(&["set-lease", "--skew", "10s"]);
    server.reload();
    let renewals = server.connect().lease("renewals");
    wait_until("a renewal", || server.connect().lease("renewals") != renewals);
    assert!(!server.log_since(length).contains(WARNING));
    fleet.operate(&["set-loses-nothing", "true"]);
    fleet.operate(&["set-lease", "--skew", "1min"]);
    let other = fleet.member().start_with_extension();
    other.connect().wait_for_lease();
    assert!(!other.log().contains(WARNING), "{}", other.log());
}

#[test]
fn single_user_mode_refuses_a_draw_at_once_and_says_why() {
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    server.connect().wait_for_lease();
    server.stop(Shutdown::Fast);
    let printed = server.single_user("SELECT snowflake_next();\n");
    assert!(printed.contains("ERROR:  this server has no worker number yet"), "{printed}");
    assert!(
        printed.contains("DETAIL:  In single-user mode, and under pg_upgrade, no background worker leases one."),
        "{printed}"
    );
    server.start_again();
    assert_eq!(server.connect().ids(DRAW).unwrap().len(), 1);
}
