//! The lives of a member's memory: a process of the server is killed, PostgreSQL starts all others
//! anew, and the member goes on with its lease, whether the registry is there or not. Real servers,
//! a real registry, and real kills.
//!
//! What no crash may lose lies in a file, which these tests find in `/proc`. What a restart keeps
//! is in `restarts.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use cluster::refusal::assert_refused_as;
use cluster::{Draw, Fleet, Leases, Operated, Refusal, Server, Shutdown, assert_unique, refused, wait_until};
use postgres::Client;
use snowflake_core::id::layout::Layout;

/// Few ids in a millisecond, so that a session is soon ahead of the clock.
const FEW: &str = "time:41 worker:10 sequence:2 unit:1ms epoch:2025-01-01T00:00:00Z";

/// Two databases of a member, one of which draws much more than the other.
const DATABASES: [&str; 2] = ["postgres", "other"];

/// What the log says where a crash would need the registry, and after a crash that did.
const WARNING: &str =
    "WARNING:  snowflake_id: after a crash of a backend, this server will need its registry to draw ids";
const BROKEN: &str = "the lease from before the crash is not kept, because what was noted of it is broken";

/// Starts a member of the fleet, which draws in two databases. Its lease lasts for ten minutes.
fn member(fleet: &Fleet, settings: &[(&str, &str)]) -> Server {
    let member = settings.iter().fold(fleet.member(), |member, (name, value)| member.set(name, value));
    let server = member.start_with_extension();
    server.connect().wait_for_lease();
    server.connect().batch_execute("CREATE DATABASE other").unwrap();
    server.connect_to("other").batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    fleet.lengthen_the_lease(&server);
    server
}

fn number(server: &Server) -> i64 {
    server.connect().wait_for_lease()
}

/// Kills a process of the server, and returns when the server accepts connections again.
fn kill(server: &Server, pid: i32) {
    let postmaster = server.postmaster_pid();
    server.kill_backend(pid);
    server.wait_until_ready();
    assert_eq!(server.postmaster_pid(), postmaster);
}

/// Kills a session, as the system does that is out of memory.
fn crash(server: &Server) {
    let mut session = server.connect();
    kill(server, session.pid());
}

/// Draws so many ids in a database, once the server has a number.
fn draw(server: &Server, database: &str, count: u32) -> Vec<i64> {
    let mut session = server.connect_to(database);
    session.wait_for_lease();
    session.ids(&format!("SELECT snowflake_next() FROM generate_series(1, {count})")).expect("ids are drawn")
}

/// Returns the worker numbers in ids, each once.
fn workers(layout: &str, ids: &[i64]) -> BTreeSet<i64> {
    let layout = Layout::parse(layout).unwrap();
    ids.iter().map(|id| layout.parts(*id).unwrap().worker.unwrap().into()).collect()
}

/// The page of a process: its descriptor, and where another process can open it.
fn page_of(pid: i32) -> Option<(i32, PathBuf)> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs");
    let is_page = |file: &PathBuf| {
        let name = fs::read_link(file).unwrap_or_default().to_string_lossy().into_owned();
        // Not a file of a server, whose directory may be there, too.
        let has_name = name.strip_prefix("/dev/shm/snowflake_id.").is_some_and(|rest| !rest.contains('/'));
        has_name || name.starts_with("/memfd:snowflake_id lease")
    };
    let page = files.map(|file| file.unwrap().path()).find(is_page)?;
    Some((page.file_name().unwrap().to_str().unwrap().parse().unwrap(), page))
}

/// Sessions of all databases are above all that any has drawn, although one of them has drawn far
/// ahead of the clock, and the others hardly at all.
#[test]
fn a_member_whose_backend_is_killed_goes_on_without_its_registry() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[("layout", FEW), ("max_borrow", "30s")]);
    let worker = number(&server);
    fleet.hear(&server);
    let mut drawn = draw(&server, DATABASES[1], 1);
    fleet.registry.stop(Shutdown::Immediate);
    for victim in ["a session", "the worker", "the checkpointer"] {
        // Far ahead of the clock, for as long as the server takes to start again.
        let ahead = draw(&server, DATABASES[0], 20_000);
        let greatest = ahead.iter().copied().max().unwrap();
        drawn.extend(ahead);
        let length = server.log_length();
        let mut session = server.connect();
        let pid = match victim {
            "a session" => session.pid(),
            "the worker" => session.lease("pid").parse().unwrap(),
            _ => {
                session.value("(SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer')").parse().unwrap()
            }
        };
        kill(&server, pid);
        for database in [DATABASES[1], DATABASES[0]] {
            let ids = draw(&server, database, 1000);
            assert_eq!(workers(FEW, &ids), [worker].into(), "{victim}, {database}");
            assert!(ids.iter().all(|id| *id > greatest), "{victim}, {database}: {} after {greatest}", ids[0]);
            drawn.extend(ids);
        }
        let log = server.log_since(length);
        assert!(log.contains(&format!("after a crash, worker number {worker} is kept, and leased until ")), "{log}");
        // It was kept, and nothing was asked for yet.
        let mut session = server.connect();
        let shown = ["state", "worker_id", "renewals", "last_renewal"].map(|column| session.lease(column));
        assert_eq!(shown, ["held", &worker.to_string(), "0", ""], "{victim}");
        wait_until("a failure", || session.lease("last_error").contains("could not connect to the registry"));
        let before = drawn.len();
        // A session that was killed had drawn as well.
        assert_eq!(assert_unique(&drawn), before);
    }
    // The registry renews it as before.
    fleet.registry.start_again();
    server.reload();
    wait_until("a renewal", || server.connect().lease("renewals > 0") == "true");
    assert_eq!(number(&server), worker);
    assert_eq!(fleet.leased(), [worker]);
    fleet.hear(&server);
}

/// What a session has seen, and no other one stored. The mark was not flushed.
#[test]
fn an_id_that_only_a_killed_session_has_seen_is_not_drawn_again() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let mut all = Vec::new();
    for _ in 0..3 {
        let mut session = server.connect();
        session.batch_execute("BEGIN").unwrap();
        all.extend(session.draw_batch(1000));
        let pid = session.pid();
        kill(&server, pid);
        all.extend(draw(&server, DATABASES[1], 1000));
    }
    assert_unique(&all);
}

#[test]
fn twenty_crashes_in_a_row_hold_one_number() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let worker = number(&server);
    let mut last = 0;
    for crashes in 0..20 {
        crash(&server);
        let id = draw(&server, DATABASES[crashes % 2], 1)[0];
        assert!(id > last, "crash {crashes}: {id} after {last}");
        last = id;
        assert_eq!(number(&server), worker, "crash {crashes}");
    }
    assert_eq!(fleet.leased(), [worker]);
    // No crash has left a lease that nobody renews.
    wait_until("a renewal", || server.connect().lease("renewals > 0") == "true");
    let said = fleet.operate(&["check"]);
    assert!(said.contains("ok    leases      1 renewed\n"), "{said}");
    fleet.hear(&server);
}

/// A lease that was never drawn with is kept as well.
#[test]
fn a_standby_that_crashes_is_promoted_with_its_own_number_and_without_the_registry() {
    let fleet = Fleet::start();
    let primary = member(&fleet, &[]);
    let standby = primary.standby().start();
    let worker = number(&standby);
    assert_ne!(worker, number(&primary));
    fleet.lengthen_the_lease(&standby);
    fleet.registry.stop(Shutdown::Immediate);
    crash(&standby);
    assert_eq!(number(&standby), worker);
    let drawn = draw(&primary, DATABASES[0], 10);
    primary.crash();
    standby.promote();
    let layout = "snowflake";
    let ids = draw(&standby, DATABASES[0], 10);
    assert_eq!(workers(layout, &ids), [worker].into());
    assert_unique(drawn.iter().chain(&ids));
}

/// Both lanes begin at the ceiling, whichever of them has raised it. A tick lasts for a second, so
/// that its ids are used up, and the backup lane's are drawn.
#[test]
fn no_id_of_a_backup_lane_comes_twice_after_a_crash() {
    let layout = "time:33 worker:8 sequence:10 unit:1s epoch:2025-01-01T00:00:00Z";
    let fleet = Fleet::start();
    let server = member(&fleet, &[("layout", layout), ("backup_worker", "on"), ("max_borrow", "2s")]);
    fleet.registry.stop(Shutdown::Immediate);
    let mut all = Vec::new();
    for _ in 0..3 {
        all.extend(draw(&server, DATABASES[0], 3000));
        crash(&server);
        all.extend(draw(&server, DATABASES[1], 3000));
    }
    assert_unique(&all);
    assert_eq!(workers(layout, &all).len(), 2, "both lanes have drawn");
}

#[test]
fn a_member_whose_page_is_broken_leases_another_number_at_once() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let before = number(&server);
    let mut all = draw(&server, DATABASES[0], 100);
    let (_, page) = page_of(server.postmaster_pid()).expect("it has a page");
    let bytes = fs::read(&page).unwrap();
    fs::OpenOptions::new().write(true).open(page).unwrap().write_all_at(&[!bytes[20]], 20).unwrap();
    // The server goes on, and says that a crash would need the registry.
    wait_until("a warning", || {
        server.reload();
        server.log().contains(WARNING)
    });
    all.extend(draw(&server, DATABASES[0], 100));
    let length = server.log_length();
    crash(&server);
    all.extend(draw(&server, DATABASES[0], 100));
    let after = number(&server);
    assert_ne!(after, before);
    let log = server.log_since(length);
    assert!(log.contains(BROKEN), "{log}");
    assert_unique(&all);
    // The next life has a whole page again.
    fleet.registry.stop(Shutdown::Immediate);
    crash(&server);
    draw(&server, DATABASES[0], 1);
    assert_eq!(number(&server), after);
}

/// Another library has closed the file in one session. The session may not draw beyond what it may
/// have drawn before, and all others go on.
#[test]
fn a_session_that_has_lost_the_page_is_refused_and_no_other_one() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let mut session = server.connect();
    let Some(library) = server.compile_library("closer") else { return };
    let function = format!(
        "CREATE FUNCTION close_file(integer) RETURNS integer LANGUAGE c STRICT AS '{}', 'close_file'",
        library.display()
    );
    session.batch_execute(&function).unwrap();
    session.draw();
    let stored = "(SELECT last_value FROM snowflake_mark)";
    let waits = "(SELECT mark_waits FROM snowflake_stat)";
    let waited = session.value(waits);
    for is_taken_by_another in [false, true] {
        let mut session = server.connect();
        let (descriptor, _) = page_of(session.pid()).expect("it has inherited the page");
        assert_eq!(session.value(&format!("close_file({descriptor})")), "0");
        if is_taken_by_another {
            // The least one that is free: PostgreSQL opens a table's file.
            session.batch_execute("CREATE TABLE opened (n int); INSERT INTO opened VALUES (1)").unwrap();
        }
        // At the latest when the mark is reached.
        let before = session.value(stored);
        let refusal = draws_until_refused(&mut session);
        assert_refused_as(&refusal, "58030", "could not note up to which time ids may be drawn");
        assert!(refusal.hint.is_some() && refusal.detail.is_some(), "{refusal:?}");
        // The session lives, and has written no mark that others would have to wait for.
        assert_eq!(session.value(stored), before);
        draw(&server, DATABASES[0], 10);
        assert_eq!(session.value(waits), waited);
    }
}

/// A session that may write only a part of the page, or nothing of it, is refused. A page of which
/// a part was written counts as broken.
#[test]
fn a_page_that_is_written_in_part_is_not_gone_on_from() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let (before, mut all) = (number(&server), Vec::new());
    for (bytes, is_kept) in [(0, true), (100, false)] {
        let mut session = server.connect();
        session.draw();
        server.limit_files(session.pid(), bytes);
        let refusal = draws_until_refused(&mut session);
        assert_refused_as(&refusal, "58030", "could not note up to which time ids may be drawn");
        all.extend(draw(&server, DATABASES[0], 100));
        let length = server.log_length();
        crash(&server);
        all.extend(draw(&server, DATABASES[0], 100));
        assert_eq!(number(&server) == before, is_kept, "{bytes} bytes");
        assert_eq!(server.log_since(length).contains(BROKEN), !is_kept, "{bytes} bytes");
    }
    assert_unique(&all);
}

/// Draws, until a draw is refused.
fn draws_until_refused(session: &mut Client) -> Refusal {
    loop {
        let drawn = session.ids("SELECT snowflake_next()");
        if drawn.is_err() {
            return refused(drawn);
        }
    }
}

/// A container's profile may forbid the call that makes the page. The server starts, says once what
/// that means, and leases another number after a crash.
#[test]
fn a_server_that_may_make_no_page_starts_and_leases_another_number_after_a_crash() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let Some(library) = server.compile_library("refuser") else { return };
    server.set_config("shared_preload_libraries", &format!("{}, snowflake_id", library.display()));
    let (length, page) = (server.log_length(), server.page().expect("it has one"));
    server.stop(Shutdown::Fast);
    // Nor can there be a file.
    fs::create_dir(&page).unwrap();
    server.start_again();
    fs::remove_dir(page).unwrap();
    let before = number(&server);
    assert!(page_of(server.postmaster_pid()).is_none());
    let mut all = draw(&server, DATABASES[0], 100);
    crash(&server);
    all.extend(draw(&server, DATABASES[1], 100));
    assert_ne!(number(&server), before);
    assert_unique(&all);
    let log = server.log_since(length);
    assert_eq!(log.matches(WARNING).count(), 1, "{log}");
    assert!(log.contains("Operation not permitted"), "{log}");
    fleet.registry.stop(Shutdown::Immediate);
    crash(&server);
    assert_refused_as(
        &refused(server.connect().ids("SELECT snowflake_next()")),
        "58000",
        "this server has no worker number yet",
    );
}

/// Another registry knows nothing of the lease. Where the process that leases the number has taken
/// the setting over, it has kept its lease, as without a crash. Here both strings lead to one
/// registry.
#[test]
fn a_life_goes_on_only_if_its_settings_name_the_registry_of_the_lease() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let (before, mut all) = (number(&server), draw(&server, DATABASES[0], 100));
    let sets = |name: &str| {
        server.set_config("snowflake_id.registry", &format!("{} application_name={name}", fleet.conninfo()));
        server.reload();
    };
    let renewals: i64 = server.connect().lease("renewals").parse().unwrap();
    sets("taken_over");
    wait_until("a renewal", || server.connect().lease(&format!("renewals > {renewals}")) == "true");
    crash(&server);
    all.extend(draw(&server, DATABASES[1], 100));
    assert_eq!(number(&server), before);
    // The postmaster has taken it over, and the process that leases the number has not.
    let pid = server.connect().lease("pid").parse().unwrap();
    let stopped = server.pause_process(pid);
    sets("not_taken_over");
    let length = server.log_length();
    kill(&server, pid);
    drop(stopped);
    all.extend(draw(&server, DATABASES[1], 100));
    assert_ne!(number(&server), before);
    let log = server.log_since(length);
    let told = "is not kept, because one of \"snowflake_id.registry\", \"snowflake_id.fleet\", ";
    assert!(log.contains(told), "{log}");
    assert_unique(&all);
}

/// The file would outlive the server in a program that it has started.
#[test]
fn programs_that_the_server_starts_do_not_inherit_the_page() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let mut session = server.connect();
    assert!(page_of(session.pid()).is_some());
    session.batch_execute("CREATE TABLE files (file text); COPY files FROM PROGRAM 'ls -l /proc/self/fd'").unwrap();
    let has = "(SELECT count(*) FROM files WHERE file ~ 'memfd:|/dev/shm/snowflake_id[.0-9]+$')";
    assert_eq!(session.value(has), "0");
    // A server whose number is configured has none.
    let other = Server::drawing().start_with_extension();
    assert!(page_of(other.postmaster_pid()).is_none());
}

/// The worker alone is told to end while the registry does not answer. So it gives nothing back,
/// and the next one goes on.
#[test]
fn a_worker_that_ends_without_an_answer_leaves_the_lease_as_it_is() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let mut session = server.connect();
    let (worker, pid) = (number(&server), session.lease("pid"));
    fleet.registry.stop(Shutdown::Immediate);
    wait_until("a failure", || {
        server.reload();
        session.lease("last_error").contains("could not connect to the registry")
    });
    let before = draw(&server, DATABASES[0], 10);
    server.end_worker(pid.parse().unwrap());
    wait_until("another worker", || {
        // It is shown all the while, because sessions draw with it.
        assert_eq!(session.lease("state"), "held");
        !["", &pid].contains(&session.lease("pid").as_str())
    });
    assert_eq!(number(&server), worker);
    assert!(!server.log().contains("generates ids again"), "it had not stopped");
    let after = draw(&server, DATABASES[0], 10);
    assert!(after[0] > before[9]);
    crash(&server);
    assert!(draw(&server, DATABASES[1], 10)[0] > after[9]);
    assert_eq!(number(&server), worker);
}
