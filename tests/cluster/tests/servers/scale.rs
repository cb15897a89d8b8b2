//! A hundred members of a fleet that start, stop and come back at once, with a real registry.
//!
//! Each is the core's holder with a connection of its own ([`Crowd`]). `tools/bench scale` measures
//! up to a thousand; here no time counts.

use std::thread;
use std::time::Duration;

use cluster::registry::config;
use cluster::{Crowd, Etcd, Fleet, Member, Order, Shutdown, has_etcd, skip, wait_until};
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::registry::{Incarnation, SinceIncarnation, Wanted};
use snowflake_registry::Config;

const MEMBERS: usize = 100;

/// Only keeps a test from hanging.
const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until all members have done what was ordered.
#[track_caller]
fn wait(crowd: &Crowd) {
    assert!(crowd.wait(PATIENCE).is_some(), "{:?} {:?}", crowd.tally(), crowd.failures());
}

/// Starts a hundred at once, stops them, starts them again, and lets the registry be away until all
/// have noticed. `outage` takes it away, calls its argument, and brings it back.
#[track_caller]
fn come_and_go(address: &str, outage: impl FnOnce(&dyn Fn())) {
    // A busy machine may answer late. What is given up then is not what this is about.
    let crowd = Crowd::new(MEMBERS, "snowflake", |_| Config { timeout: PATIENCE, ..config(address) });
    crowd.order(Order::Keep);
    wait(&crowd);
    let (numbers, started) = (crowd.numbers(), crowd.tally());
    assert_eq!(numbers.len(), MEMBERS, "{started:?}");
    // Each within eight rounds. If all chose the same number, the last one would need a hundred.
    assert_eq!((started.contended, started.none_free), (0, 0), "{started:?}");

    crowd.order(Order::Stop);
    wait(&crowd);
    assert!(crowd.numbers().is_empty());
    assert_eq!(crowd.tally().kept, MEMBERS as u64, "all have given back: {:?}", crowd.tally());
    crowd.order(Order::Keep);
    wait(&crowd);
    assert_eq!(crowd.numbers(), numbers, "each has its own number again");

    outage(&|| {
        crowd.order(Order::Keep);
        wait_until("a failure of each", || crowd.tally().failed >= MEMBERS as u64);
        crowd.begin();
    });
    wait(&crowd);
    assert_eq!(crowd.numbers(), numbers);
}

#[test]
fn a_hundred_start_stop_and_come_back_at_once_with_postgresql() {
    let fleet = Fleet::start_with(|registry| registry.config("max_connections", "120"));
    come_and_go(&fleet.conninfo(), |wait| {
        fleet.registry.stop(Shutdown::Immediate);
        wait();
        fleet.registry.start_again();
    });
    // No two leases of a number overlap.
    fleet.hear_history();
}

#[test]
fn a_hundred_start_stop_and_come_back_at_once_with_etcd() {
    if !has_etcd() {
        return skip("etcd and etcdctl are not installed");
    }
    let mut etcd = Etcd::start(1);
    etcd.make_registry();
    come_and_go(&etcd.address(), |wait| {
        etcd.kill_member(0);
        wait();
        etcd.start_member(0);
        etcd.wait();
    });
}

/// A false fall would freeze the fleet.
#[test]
fn the_counts_of_a_busy_etcd_never_fall() {
    if !has_etcd() {
        return skip("etcd and etcdctl are not installed");
    }
    let etcd = Etcd::start(1);
    etcd.make_registry();
    let renew = || {
        let member = Member::new(config(&etcd.address()), None);
        let mut seen: Option<Incarnation> = None;
        for _ in 0..30 {
            match member.keep() {
                Ok(()) | Err(Failure::Contended | Failure::Away(_)) => {}
                Err(failure) => panic!("{failure:?}"),
            }
            let Ok(reading) = member.registry().read(&Wanted::default()) else { continue };
            if let Some(seen) = seen {
                assert_eq!(
                    reading.incarnation.since(&seen),
                    SinceIncarnation::Same,
                    "{seen:?}, then {:?}",
                    reading.incarnation
                );
            }
            seen = Some(reading.incarnation);
        }
        assert!(seen.is_some(), "etcd has answered");
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..30).map(|_| scope.spawn(renew)).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("its registry has not lost"));
    });
    assert!(etcd.fleet().contains("\"generation\":1,"), "no generation has begun: {}", etcd.fleet());
}
