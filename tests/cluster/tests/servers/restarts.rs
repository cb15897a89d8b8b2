//! What outlives a member's processes: they are killed or stopped, the registry is away, and the
//! next ones go on with the member's lease. Nothing that copies a disk takes it along, and two
//! servers that draw at the same time repeat nothing.
//!
//! What no restart may lose lies in a file of `/dev/shm` (`Server::page`). What a crash of a
//! backend keeps is in `lives.rs`.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::thread;

use cluster::refusal::assert_refused_as;
use cluster::{
    Container, Draw, Fleet, Leases, Memory, Server, Shutdown, Volume, assert_ascending, assert_unique, can_isolate,
    refused, skip, wait_until,
};
use nix::sys::signal::Signal;
use snowflake_core::id::layout::Layout;

use crate::kubernetes;

/// Few ids in a millisecond, so that a session is soon ahead of the clock.
const FEW: &str = "time:41 worker:10 sequence:2 unit:1ms epoch:2025-01-01T00:00:00Z";

/// What a start says that goes on with the lease from before, and one that does not.
const KEPT: &str = "after a restart, worker number ";
const NOT_KEPT: &str = "the lease from before the restart is not kept, because ";

/// What a start says once that finds no file to use.
const WARNING: &str = "WARNING:  snowflake_id: after a restart, this server will need its registry to draw ids";

/// Starts a member of the fleet, whose lease lasts for ten minutes.
fn member(fleet: &Fleet, settings: &[(&str, &str)]) -> Server {
    let member = settings.iter().fold(fleet.member(), |member, (name, value)| member.set(name, value));
    let server = member.start_with_extension();
    server.connect().wait_for_lease();
    fleet.lengthen_the_lease(&server);
    server
}

fn number(server: &Server) -> i64 {
    server.connect().wait_for_lease()
}

fn workers(ids: &[i64]) -> BTreeSet<u32> {
    let layout = Layout::parse("snowflake").unwrap();
    ids.iter().map(|id| layout.parts(*id).unwrap().worker.unwrap()).collect()
}

fn draw(server: &Server, count: u32) -> Vec<i64> {
    draw_in(server, "postgres", count)
}

fn draw_in(server: &Server, database: &str, count: u32) -> Vec<i64> {
    let sql = format!("SELECT snowflake_next() FROM generate_series(1, {count})");
    server.connect_to(database).ids(&sql).expect("ids are drawn")
}

/// Kills all processes of a server, and starts it.
fn kill(server: &Server) {
    server.crash();
    server.start_again();
}

#[track_caller]
fn assert_draws_nothing(server: &Server) {
    let refusal = refused(server.connect().ids("SELECT snowflake_next()"));
    assert_refused_as(&refusal, "58000", "this server has no worker number yet");
}

/// Ids of all databases are above all that were drawn, although one of them has drawn far ahead of
/// the clock.
#[test]
fn a_member_that_is_killed_or_stopped_goes_on_without_its_registry() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[("layout", FEW), ("max_borrow", "30s")]);
    server.connect().batch_execute("CREATE DATABASE other").unwrap();
    server.connect_to("other").batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    let worker = number(&server);
    fleet.hear(&server);
    let mut drawn = draw_in(&server, "other", 1);
    fleet.registry.stop(Shutdown::Immediate);
    let ends: [fn(&Server); 4] = [
        kill,
        |server| {
            server.kill_postmaster();
            server.start_again();
        },
        |server| {
            server.stop(Shutdown::Immediate);
            server.start_again();
        },
        Server::restart,
    ];
    for (number_of, ends) in ends.into_iter().enumerate() {
        drawn.extend(draw(&server, 20_000));
        let greatest = drawn.iter().copied().max().unwrap();
        let length = server.log_length();
        ends(&server);
        for database in ["other", "postgres"] {
            let ids = draw_in(&server, database, 1000);
            assert!(ids.iter().all(|id| *id > greatest), "{number_of}, {database}: {} after {greatest}", ids[0]);
            drawn.extend(ids);
        }
        let log = server.log_since(length);
        assert!(log.contains(&format!("{KEPT}{worker} is kept, and leased until ")), "{log}");
        assert_eq!(number(&server), worker);
        let before = drawn.len();
        // A session that was killed had drawn as well.
        assert_eq!(assert_unique(&drawn), before);
    }
    // The registry renews it as before.
    fleet.registry.start_again();
    server.reload();
    wait_until("a renewal", || server.connect().lease("renewals > 0") == "true");
    assert_eq!(fleet.leased(), [worker]);
    fleet.hear(&server);
}

/// The file is removed with the lease. A clean restart is a way to another number.
#[test]
fn a_member_that_is_stopped_while_its_registry_answers_leaves_nothing() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let mut ids = draw(&server, 10);
    assert!(server.page().is_some());
    server.stop(Shutdown::Fast);
    assert_eq!((server.page(), fleet.leased()), (None, vec![]));
    let length = server.log_length();
    server.start_again();
    ids.extend(draw(&server, 10));
    assert_ascending(&ids);
    let log = server.log_since(length);
    assert!(!log.contains(KEPT) && !log.contains(NOT_KEPT) && !log.contains(WARNING), "{log}");
}

/// The return was sent, and may have arrived. So it is the one stop after which the next life must
/// not go on.
#[test]
fn a_member_whose_return_was_not_answered_does_not_go_on() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let mut ids = draw(&server, 10);
    // It can be read, and not be written.
    let mut session = fleet.registry.connect();
    session.batch_execute("BEGIN; LOCK TABLE snowflake_registry.numbers IN EXCLUSIVE MODE").unwrap();
    let length = server.log_length();
    server.stop(Shutdown::Fast);
    let log = server.log_since(length);
    assert!(log.contains("the worker number was not given back"), "{log}");
    let length = server.log_length();
    server.start_again();
    assert!(!server.log_since(length).contains(KEPT));
    session.batch_execute("ROLLBACK").unwrap();
    ids.extend(draw(&server, 10));
    assert_unique(&ids);
}

/// Copies of the directory, of a server that runs and of one that was killed, and the directory
/// itself elsewhere and made again. The page stays with the directory that it was made for.
#[test]
fn no_copy_of_a_directory_takes_the_lease_along() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let (worker, mut ids) = (number(&server), draw(&server, 100));
    let running = server.copied_files();
    let backup = server.base_backup();
    server.crash();
    let killed = server.copied_files();
    fleet.registry.stop(Shutdown::Immediate);
    let copies = [running, killed].map(|copy| copy.start());
    let copies = copies.into_iter().chain([backup.alone().start()]).collect::<Vec<_>>();
    copies.iter().for_each(|copy| assert_draws_nothing(copy));
    // The copies have not taken it.
    server.start_again();
    ids.extend(draw(&server, 100));
    assert_eq!(number(&server), worker);
    // A directory that is moved is the same one, and one that is made again is another one.
    server.crash();
    let moved = server.data_dir().with_extension("moved");
    fs::rename(server.data_dir(), &moved).unwrap();
    cp(&moved, &server.data_dir());
    server.start_again();
    assert_draws_nothing(&server);
    server.crash();
    // Each has a page of its own, which nobody else would remove.
    fs::remove_file(server.page().expect("it has one")).unwrap();
    fs::remove_dir_all(server.data_dir()).unwrap();
    fs::rename(&moved, server.data_dir()).unwrap();
    server.start_again();
    ids.extend(draw(&server, 100));
    assert_eq!(number(&server), worker);
    // All draw at the same time.
    fleet.registry.start_again();
    copies.iter().for_each(Server::reload);
    let drawn: Vec<Vec<i64>> = thread::scope(|scope| {
        let all = copies.iter().chain([&server]).map(|one| scope.spawn(|| draw(one, 5000))).collect::<Vec<_>>();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    ids.extend(drawn.into_iter().flatten());
    assert_unique(&ids);
}

/// Its number is one of its datacenter's, and may be another server's in another datacenter.
#[test]
fn a_member_that_starts_in_another_datacenter_leases_another_number() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[("layout", "twitter"), ("datacenter_id", "1")]);
    draw(&server, 10);
    server.crash();
    server.set_config("snowflake_id.datacenter_id", "2");
    let length = server.log_length();
    server.start_again();
    number(&server);
    let id = draw(&server, 1)[0];
    assert_eq!(Layout::parse("twitter").unwrap().parts(id).unwrap().datacenter, Some(2));
    let log = server.log_since(length);
    assert!(log.contains(NOT_KEPT) && log.contains("\"snowflake_id.datacenter_id\""), "{log}");
}

/// What is given back begins after all that an earlier life has drawn, so far ahead of the clock
/// that the next life is stopped before it draws.
#[test]
fn a_stop_before_the_first_draw_gives_nothing_back_that_was_drawn_before() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[("layout", FEW), ("max_borrow", "60s")]);
    let worker = number(&server);
    let greatest = draw(&server, 200_000).into_iter().max().unwrap();
    server.crash();
    // So the next life waits for as long as this one was ahead.
    server.set_config("snowflake_id.max_borrow", "0");
    server.start_again();
    wait_until("a renewal", || server.connect().lease("renewals > 0") == "true");
    server.stop(Shutdown::Fast);
    let sql = format!("SELECT until_ms FROM snowflake_registry.numbers WHERE worker = {worker}");
    let until_ms = fleet.registry.connect().ids(&sql).unwrap()[0];
    let drawn_ms = Layout::parse(FEW).unwrap().parts(greatest).unwrap().created_at_ms;
    assert!(until_ms > drawn_ms, "given back from {until_ms} on, and drawn up to {drawn_ms}");
    // It was given back.
    assert!(until_ms < drawn_ms + 60_000, "{until_ms} and {drawn_ms}");
}

fn cp(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-a").args([from, to]).status();
    assert!(status.is_ok_and(|status| status.success()));
}

/// The old primary is rewound in its directory, so its page is its own, and it has another number
/// than the new one.
#[test]
fn a_rewound_server_goes_on_with_its_own_lease() {
    let fleet = Fleet::start();
    let primary = fleet.member().config("wal_log_hints", "on").config("wal_keep_size", "160MB").start_with_extension();
    primary.connect().wait_for_lease();
    fleet.lengthen_the_lease(&primary);
    let standby = primary.standby().start();
    fleet.lengthen_the_lease(&standby);
    let (worker, mut ids) = (number(&primary), draw(&primary, 100));
    standby.wait_until_replayed(&primary.flushed());
    fleet.registry.stop(Shutdown::Immediate);
    primary.crash();
    standby.promote();
    ids.extend(draw(&standby, 100));
    // pg_rewind wants a clean shutdown.
    primary.start_again();
    ids.extend(draw(&primary, 100));
    primary.stop(Shutdown::Fast);
    primary.rewind_to(&standby);
    primary.follow(&standby);
    primary.start_again();
    assert_eq!(number(&primary), worker);
    primary.wait_until_replayed(&standby.flushed());
    primary.promote();
    for server in [&primary, &standby, &primary] {
        ids.extend(draw(server, 100));
    }
    assert_unique(&ids);
}

/// What is in the place of the file, or has become of it, when the member starts. It starts in each
/// case, with another number, and a crash of a backend keeps that.
#[test]
fn a_file_that_is_not_the_members_own_is_not_used() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let other = fleet.member().start_with_extension();
    type Spoils = fn(&Path, &Path);
    let spoilt: [(&str, bool, Spoils); 10] = [
        ("lost", false, |page, _| fs::remove_file(page).unwrap()),
        ("truncated", false, |page, _| OpenOptions::new().write(true).open(page).unwrap().set_len(100).unwrap()),
        ("broken", false, |page, _| {
            let bytes = fs::read(page).unwrap();
            OpenOptions::new().write(true).open(page).unwrap().write_all_at(&[!bytes[40]], 40).unwrap();
        }),
        ("another server's", false, |page, other| {
            fs::write(page, fs::read(other).unwrap()).unwrap();
        }),
        ("a copy of it", false, |page, _| {
            let (bytes, owner) = (fs::read(page).unwrap(), fs::metadata(page).unwrap());
            fs::remove_file(page).unwrap();
            fs::write(page, bytes).unwrap();
            fs::set_permissions(page, owner.permissions()).unwrap();
            chown(page, Some(owner.uid()), Some(owner.gid())).unwrap();
        }),
        ("open to others", true, |page, _| fs::set_permissions(page, fs::Permissions::from_mode(0o666)).unwrap()),
        ("of two names", true, |page, _| fs::hard_link(page, page.with_extension("link")).unwrap()),
        ("a link to it", true, |page, _| {
            fs::rename(page, page.with_extension("link")).unwrap();
            symlink(page.with_extension("link"), page).unwrap();
        }),
        ("a directory", true, |page, _| {
            fs::remove_file(page).unwrap();
            fs::create_dir(page).unwrap();
        }),
        ("another user's", true, |page, _| chown(page, Some(4242), Some(4242)).unwrap()),
    ];
    let mut ids = draw(&server, 100);
    for (what, warns, spoils) in spoilt {
        if what == "another user's" && !nix::unistd::geteuid().is_root() {
            continue;
        }
        let (before, page) = (number(&server), server.page().expect("it has one"));
        server.crash();
        spoils(&page, &other.page().unwrap());
        let length = server.log_length();
        server.start_again();
        ids.extend(draw(&server, 100));
        let after = number(&server);
        assert_ne!(after, before, "{what}");
        server.kill_backend(server.connect().pid());
        server.wait_until_ready();
        ids.extend(draw(&server, 100));
        assert_eq!(number(&server), after, "{what}");
        let log = server.log_since(length);
        assert_eq!(log.matches(WARNING).count(), usize::from(warns), "{what}: {log}");
        assert_eq!(log.contains(NOT_KEPT), !warns && what != "lost", "{what}: {log}");
        // As before.
        let _ = (fs::remove_file(page.with_extension("link")), fs::remove_dir(&page), fs::remove_file(&page));
        server.restart();
    }
    assert_unique(&ids);
}

/// While the member runs, nobody needs its file's name, and it draws on when the file is cut off.
#[test]
fn a_member_whose_file_is_lost_while_it_runs_draws_on() {
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let mut numbers = vec![number(&server)];
    fs::remove_file(server.page().unwrap()).unwrap();
    let mut ids = draw(&server, 100);
    server.kill_backend(server.connect().pid());
    server.wait_until_ready();
    ids.extend(draw(&server, 100));
    assert_eq!(number(&server), numbers[0]);
    kill(&server);
    ids.extend(draw(&server, 100));
    numbers.push(number(&server));
    OpenOptions::new().write(true).open(server.page().unwrap()).unwrap().set_len(0).unwrap();
    wait_until("a warning", || {
        server.reload();
        server.log().contains("after a crash of a backend, this server will need its registry")
    });
    ids.extend(draw(&server, 100));
    kill(&server);
    ids.extend(draw(&server, 100));
    numbers.push(number(&server));
    assert_unique(&ids);
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 3);
}

/// Draws as long as it may. What a session sends may be the last thing that it does after its
/// postmaster has ended, so it sends nothing before.
const DRAW_ON: &str = "
    CREATE FUNCTION draw_on() RETURNS text LANGUAGE plpgsql AS $$
    DECLARE
        last bigint;
        why text;
    BEGIN
        LOOP
            last := snowflake_next();
        END LOOP;
    EXCEPTION WHEN io_error THEN
        GET STACKED DIAGNOSTICS why = PG_EXCEPTION_DETAIL;
        RETURN format('%s %s: %s', last, SQLERRM, why);
    END $$";

/// A session that was drawing when its postmaster was killed draws beside the next postmaster's. It
/// is refused before it is above where that one has begun.
#[test]
fn an_orphan_that_still_draws_is_fenced() {
    if !can_isolate() {
        return skip("only root may start a server beside another one's memory");
    }
    let fleet = Fleet::start();
    let server = member(&fleet, &[]);
    let worker = number(&server);
    let mut observer = server.connect();
    observer.batch_execute(DRAW_ON).unwrap();
    // A library would show only that the session has ended after its answer.
    let mut psql = server.client("psql");
    psql.args(["--no-psqlrc", "--no-align", "--tuples-only", "--command", "SELECT draw_on()"]);
    let drawing = thread::spawn(move || psql.output().unwrap());
    wait_until("ids", || observer.value("SELECT drawn > 10000 FROM snowflake_stat") == "true");
    let pid = observer.value("(SELECT pid FROM pg_stat_activity WHERE query = 'SELECT draw_on()')").parse().unwrap();
    fleet.registry.stop(Shutdown::Immediate);
    let orphan = server.leave_orphan(pid);
    server.start_beside_orphans();
    let first = draw(&server, 1)[0];
    drop(orphan);
    let answer = drawing.join().unwrap();
    let answer = String::from_utf8(answer.stdout).unwrap();
    let (last, refusal) = answer.trim_end().split_once(' ').expect("psql prints the answer");
    assert_eq!(
        refusal,
        "could not note up to which time ids may be drawn: Another life of this server goes on with its lease."
    );
    let last: i64 = last.parse().unwrap();
    assert!(last < first, "{last} and {first}");
    assert_eq!(workers(&[last]), workers(&draw(&server, 10_000)));
    assert_eq!(number(&server), worker);
}

/// A container whose processes are killed gets new ones, with the pod's `/dev/shm`, or with a new
/// one. Neither sees the process ids or the System V memory from before.
#[test]
fn the_next_container_of_a_pod_goes_on_without_the_registry() {
    if !kubernetes::can_run() {
        return;
    }
    let fleet = Fleet::start();
    let (volume, memory) = (Volume::new(), Memory::new());
    let mut container = Container::new("app-0", &[("SNOWFLAKE_REGISTRY", &fleet.conninfo())]);
    container.mounts.push(memory.mount());
    let pod = container.start(&volume);
    let worker = kubernetes::hold(&mut pod.connect());
    let mut ids = pod.connect().draw_batch(1000);
    fleet.registry.stop(Shutdown::Immediate);
    pod.stop(Signal::SIGKILL);
    let pod = container.start(&volume);
    ids.extend(pod.connect().draw_batch(1000));
    assert_eq!(pod.connect().wait_for_lease(), worker);
    assert_ascending(&ids);
    // A start in a pod of its own, and one after the machine has booted.
    let alone = Container::new("app-0", &[("SNOWFLAKE_REGISTRY", &fleet.conninfo())]);
    let mut booted = container.clone();
    booted.add_file("/proc/sys/kernel/random/boot_id", "1b4e28ba-2fa1-41d2-883f-0016d3cca427\n");
    let mut pod = pod;
    for other in [&alone, &booted] {
        pod.stop(Signal::SIGKILL);
        pod = other.start(&volume);
        let refusal = refused(pod.connect().ids("SELECT snowflake_next()"));
        assert_refused_as(&refusal, "58000", "this server has no worker number yet");
    }
    assert!(pod.log().contains(NOT_KEPT), "{}", pod.log());
}

/// They ruin the database, but not the ids: the second one leases another number.
#[test]
fn two_servers_on_one_directory_and_one_memory_draw_different_ids() {
    if !kubernetes::can_run() {
        return;
    }
    let fleet = Fleet::start();
    let (volume, memory) = (Volume::new(), Memory::new());
    let mut container = Container::new("app-0", &[("SNOWFLAKE_REGISTRY", &fleet.conninfo())]);
    container.mounts.push(memory.mount());
    let first = container.start(&volume);
    let mut sessions = vec![first.connect()];
    let mut ids = sessions[0].draw_batch(1000);
    let pods = [first, container.start(&volume)];
    sessions.push(pods[1].connect());
    let drawn: Vec<Vec<i64>> = thread::scope(|scope| {
        let all: Vec<_> = sessions.iter_mut().map(|session| scope.spawn(|| session.draw_batch(10_000))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    ids.extend(drawn.into_iter().flatten());
    assert_unique(&ids);
    assert!(!pods[0].log().contains(WARNING) && pods[1].log().matches(WARNING).count() == 1, "{}", pods[1].log());
    assert!(pods[1].log().contains("Another server uses it"), "{}", pods[1].log());
}

/// A standby's lease is kept as well, so that its promotion needs no registry.
#[test]
fn a_standby_that_was_killed_is_promoted_with_its_own_number_and_without_the_registry() {
    let fleet = Fleet::start();
    let primary = member(&fleet, &[]);
    let standby = primary.standby().start();
    let worker = number(&standby);
    fleet.lengthen_the_lease(&standby);
    fleet.registry.stop(Shutdown::Immediate);
    kill(&standby);
    let drawn = draw(&primary, 10);
    primary.crash();
    standby.promote();
    assert_eq!(number(&standby), worker);
    assert_unique(drawn.iter().chain(&draw(&standby, 10)));
}

/// The registry then leases the number to others.
#[test]
fn a_lease_that_has_ended_is_not_kept() {
    let fleet = Fleet::start().limited("3s", "1s");
    let server = fleet.member().start_with_extension();
    number(&server);
    let mut ids = draw(&server, 10);
    server.crash();
    wait_until("the end of the lease", || fleet.leased().is_empty());
    let length = server.log_length();
    server.start_again();
    ids.extend(draw(&server, 10));
    assert_ascending(&ids);
    let log = server.log_since(length);
    assert!(log.contains(&format!("{NOT_KEPT}it has ended, at ")), "{log}");
}
