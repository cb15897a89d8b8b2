//! The disk is full while the mark must move. Sessions are refused, or the server stops, but no
//! client sees an id above the mark on the disk. Once there is space again, everything works.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cluster::disk::can_mount;
use cluster::{Draw, Ledger, Load, Promise, Server, Shutdown, faketime_library, refused, skip, wait_until};

/// A server on a disk that holds little more than an empty cluster. `None` if no disk can be
/// mounted.
fn on_a_small_disk() -> Option<Server> {
    if !can_mount() || faketime_library().is_none() {
        skip("a disk needs root and the right to mount, and its server libfaketime");
        return None;
    }
    let settings = Server::drawing().small_disk(80).faketime();
    // No checkpoint recycles WAL while the disk is full, so the server soon needs a new segment and
    // cannot get it.
    let settings =
        settings.config("checkpoint_timeout", "1d").config("max_wal_size", "60MB").config("min_wal_size", "2MB");
    Some(settings.start_with_extension())
}

/// Checks the server after the disaster, when it has only what is on the disk. Its clock, which was
/// `clock` seconds off the real one, is an hour behind.
fn check_after_the_disaster(server: &Server, ledger: &Ledger, clock: f64) {
    assert!(server.log().contains("No space left on device"), "{}", server.log());
    if server.is_running() {
        server.stop(Shutdown::Immediate);
    }
    server.free_disk();
    server.set_clock_offset(clock - 3600.0);
    server.start_again();
    let behind_ms = ledger.check(server, Promise::Seen).refused();
    // The difference is less than an hour by the time that the shutdown took on a clock that
    // jumped.
    assert!(behind_ms <= 3_601_101, "{behind_ms}");
    server.set_clock_offset(clock);
    ledger.check(server, Promise::Seen).drawn();
    let load = Load::start(server, 2);
    load.wait_for(100);
    let mut ledger = ledger.clone();
    ledger.add(load.end());
    ledger.check(server, Promise::Seen).drawn();
}

/// The load's own WAL takes the last segment.
#[test]
fn when_the_disk_is_full_no_id_is_drawn_above_the_mark() {
    let Some(server) = on_a_small_disk() else { return };
    let load = Load::start(&server, 3);
    load.wait_for(50);
    server.fill_disk();
    // Moves the mark again and again, until the server refuses.
    let mut clock = 0.0;
    wait_until("the disk to stop the server", || {
        clock += 2.0;
        server.set_clock_offset(clock);
        load.is_over()
    });
    let (ledger, refusals) = load.end_with_refusals();
    assert!(refusals.iter().all(|refusal| refusal.sqlstate == "53100"), "{refusals:?}");
    check_after_the_disaster(&server, &ledger, clock);
}

/// Only marks are written, so the mark's own record finds no space.
#[test]
fn when_the_mark_itself_finds_no_place_no_id_is_drawn_above_it() {
    let Some(server) = on_a_small_disk() else { return };
    let load = Load::start(&server, 1);
    load.wait_for(50);
    let mut ledger = load.end();
    let mut session = server.connect();
    // The WAL is just before the end of a segment when the disk becomes full.
    let to_the_end = "SELECT pg_logical_emit_message(false, '', repeat('x', (1024 * 1024
        - ('x' || lpad(split_part(pg_current_wal_insert_lsn()::text, '/', 2), 8, '0'))::bit(32)::bigint % (1024 * 1024)
        - 20000)::int))";
    session.batch_execute("SELECT pg_switch_wal()").unwrap();
    session.batch_execute(to_the_end).unwrap();
    server.fill_disk();
    let mut clock = 0.0;
    wait_until("the disk to stop the server", || {
        clock += 2.0;
        server.set_clock_offset(clock);
        match session.try_draw() {
            Ok(id) => ledger.seen.push(id),
            Err(error) => assert!(session.is_closed() || error.code().is_none_or(|code| code.code() == "53100")),
        }
        session.is_closed()
    });
    check_after_the_disaster(&server, &ledger, clock);
}

/// Tests the harness: a full disk is also full for the server, and a failed test leaves no disk
/// mounted.
#[test]
fn a_small_disk_fills_up_and_goes_with_its_server() {
    if !can_mount() {
        return skip("a disk needs root and the right to mount");
    }
    let is_mounted = |path: &str| fs::read_to_string("/proc/self/mounts").unwrap().contains(path);
    let mut data_dir = String::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let server = Server::builder().without_preload().small_disk(80).start();
        data_dir = server.data_dir().display().to_string();
        assert!(is_mounted(&data_dir));
        let mut session = server.connect();
        assert_eq!(session.value("current_setting('wal_segment_size')"), "1MB");
        session.batch_execute("CREATE TABLE t (x int)").unwrap();
        let insert = "INSERT INTO t SELECT generate_series(1, 50000)";
        server.fill_disk();
        assert_eq!(refused(session.execute(insert, &[])).sqlstate, "53100");
        server.free_disk();
        assert_eq!(session.execute(insert, &[]).unwrap(), 50_000);
        panic!("as a failing assertion would");
    }));
    assert!(outcome.is_err());
    assert!(!data_dir.is_empty() && !is_mounted(&data_dir) && !fs::exists(&data_dir).unwrap());
}
