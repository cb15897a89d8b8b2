//! The negative control: a build whose logged mark does not run ahead of the clock, whose published
//! mark does not end with the lease, and whose lives go on without a ceiling. It must fail the
//! crash tests and the fleet's. Otherwise those tests prove nothing.
//!
//! `tools/test` makes that build (`tools/build control`) and names its `pg_config` in the
//! environment variable `CONTROL_PG_CONFIG`. It is a separate test binary because a process knows
//! one installation.

use std::collections::BTreeSet;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cluster::Operated;
use cluster::drawing::noon;
use cluster::{
    Draw, Fleet, Leases, Load, Promise, Running, Server, Shutdown, faketime_library, skip, use_installation,
};

#[test]
fn without_a_mark_that_runs_ahead_ids_come_twice_and_the_tests_see_it() {
    let Some(pg_config) = env::var_os("CONTROL_PG_CONFIG") else {
        return skip("CONTROL_PG_CONFIG does not name the control's pg_config; make test builds it");
    };
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    use_installation(pg_config);
    ids_of_an_open_transaction_come_twice();
    a_ledger_finds_what_a_crash_under_load_has_lost();
    a_server_that_slept_draws_with_a_number_that_another_one_has();
    a_life_that_goes_on_draws_again_what_the_one_before_has_drawn();
}

/// Does what `a_member_whose_backend_is_killed_goes_on_without_its_registry` in `lives.rs` does,
/// and `a_member_that_is_killed_or_stopped_goes_on_without_its_registry` in `restarts.rs`.
fn a_life_that_goes_on_draws_again_what_the_one_before_has_drawn() {
    a_life_after(|server| {
        server.kill_backend(server.connect().pid());
        server.wait_until_ready();
    });
    a_life_after(|server| {
        server.crash();
        server.start_again();
    });
}

fn a_life_after(ends: fn(&Server)) {
    let fleet = Fleet::start();
    // Four ids a second, so that a session is soon ahead of the clock by more than a busy machine
    // needs to start a server.
    let layout = "time:33 worker:8 sequence:2 unit:1s epoch:2025-01-01T00:00:00Z";
    let server = fleet.member().set("layout", layout).set("max_borrow", "200s").start_with_extension();
    let worker = server.connect().wait_for_lease();
    server.connect().batch_execute("CREATE DATABASE other").unwrap();
    server.connect_to("other").batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    fleet.lengthen_the_lease(&server);
    fleet.registry.stop(Shutdown::Immediate);
    let draw = |database: &str| {
        let mut session = server.connect_to(database);
        session
            .ids("SELECT snowflake_next() FROM generate_series(1, 600)")
            .unwrap()
            .into_iter()
            .collect::<BTreeSet<_>>()
    };
    let before = draw("postgres");
    ends(&server);
    assert_eq!(server.connect().wait_for_lease(), worker);
    // With a ceiling, both databases would go on above all that was drawn.
    let after = draw("other");
    assert!(!before.is_disjoint(&after), "the control proves nothing: no id came twice after a kill");
}

/// Does what `a_server_that_slept_beyond_its_lease_draws_nothing_with_its_old_number` in `fleet.rs`
/// does.
fn a_server_that_slept_draws_with_a_number_that_another_one_has() {
    let fleet = Fleet::start().limited("3s", None);
    fleet.operate(&["set-range", "7", "7"]);
    let member = || fleet.member().start_with_extension();
    let sleeper = member();
    assert_eq!(sleeper.connect().wait_for_lease(), 7);
    let other = member();
    let load = Load::start(&sleeper, 8);
    load.wait_for(20);
    let paused = sleeper.pause();
    assert_eq!(other.connect().wait_for_lease(), 7);
    let of_other = Load::start(&other, 8);
    of_other.wait_for(20);
    drop(paused);
    load.wait_for(50);
    of_other.wait_for(50);
    let [one, two] = [load, of_other].map(|load| load.end_with_refusals().0.seen.into_iter().collect::<BTreeSet<_>>());
    assert!(!one.is_disjoint(&two), "the control proves nothing: no id came twice");
}

/// Does what `an_id_seen_in_an_open_transaction_is_not_drawn_again` in `mark.rs` does.
fn ids_of_an_open_transaction_come_twice() {
    let server = Server::drawing().start_frozen(noon()).expect("libfaketime is there");
    assert!(
        server.log().contains("test build of snowflake_id without crash protection"),
        "the control does not say what it is"
    );
    let mut session = server.connect();
    session.batch_execute("BEGIN").unwrap();
    session.draw();
    // Within the mark, so that nothing more is logged.
    server.freeze_clock(noon() + 400);
    let seen = session.draw_batch(300);
    server.stop(Shutdown::Immediate);
    server.start_again_at(noon() - 3_600_000);
    server.freeze_clock(noon() + 400);
    // With a mark that runs ahead, the server would wait for it.
    let again = Running::start(server.connect(), "SELECT * FROM snowflake_batch(300)");
    assert!(!server.waits_for_the_clock(&again), "the control proves nothing: the server knows that ids were drawn");
    let again: BTreeSet<_> = again.end().1.unwrap().into_iter().collect();
    assert!(seen.iter().any(|id| again.contains(id)), "the control proves nothing: no id came twice");
}

/// Does what `what_sessions_drew_under_load_is_not_drawn_again_after_a_crash` in `mark.rs` does.
fn a_ledger_finds_what_a_crash_under_load_has_lost() {
    let server = Server::drawing().time_limit().faketime().start_with_extension();
    let load = Load::start(&server, 4);
    load.wait_for(50);
    server.crash();
    let ledger = load.end();
    server.set_clock_offset(-3600.0);
    server.start_again();
    let check = catch_unwind(AssertUnwindSafe(|| ledger.check(&server, Promise::Seen)));
    let panic = check.expect_err("the control proves nothing: the ledger has found no error");
    let message = panic.downcast_ref::<String>().expect("an assertion's message");
    assert!(message.contains("is above the mark") || message.contains("was drawn"), "{message}");
}
