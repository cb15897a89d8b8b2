//! The registry of a fleet in a real etcd, through the extension's connection, used by the core's
//! holder as a server uses it, and by a server.
//!
//! Deadlines of a second are there to be missed. All others only keep a test from hanging.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown::Both;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use cluster::registry::config;
use cluster::{Draw, Etcd, Leases, Member, Operated, Oracle, Server, Shutdown, has_etcd, skip, wait_until};
use nix::sys::signal::Signal;
use serde_json::json;
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::lease::LeaseNotice;
use snowflake_core::fleet::registry::{DEFAULT_LEASE_MS, Wanted};
use snowflake_registry::{Config, Problem, RegistryError, RegistryStep};
use socket2::{Domain, Socket, Type};

const NO_ETCD: &str = "etcd and etcdctl are not installed";

fn registry(members: usize) -> Etcd {
    let etcd = Etcd::start(members);
    etcd.make_registry();
    etcd
}

fn problem(member: &Member<'_>) -> Problem {
    match member.unanswered() {
        RegistryError::Etcd(problem) => problem,
        other => panic!("{other:?}"),
    }
}

/// Renews, again as long as the registry is away.
fn keep_until_answered(member: &Member<'_>) {
    wait_until("an answer", || match member.keep() {
        Ok(()) => true,
        Err(Failure::Away(_) | Failure::Contended) => false,
        Err(other) => panic!("{other:?}"),
    });
}

#[test]
fn a_lease_is_acquired_renewed_and_given_back() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let (etcd, oracle) = (registry(1), Oracle::new());
    let member = Member::new(config(&etcd.address()), &oracle);
    let first = member.lease();
    let renewed = member.lease();
    assert_eq!((renewed.worker, renewed.from_ms, renewed.holder), (first.worker, first.from_ms, first.holder));
    assert!(renewed.until_ms > first.until_ms && member.draw().is_some());
    member.give_back();
    assert_eq!((member.held(), member.draw()), (None, None));
    let again = member.lease();
    assert_eq!(again.worker, first.worker);
    assert!(again.holder != first.holder);
    // Each lease is in the history.
    let history = etcd.ctl(&["get", "--prefix", "--keys-only", "/snowflake_id/default/history/"]);
    assert_eq!(history.split_ascii_whitespace().count(), 2, "{history}");
    assert!(etcd.fleet().contains(&format!("\"longest_ms\":{DEFAULT_LEASE_MS},")));
}

#[test]
fn many_that_start_at_once_get_different_numbers() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let (etcd, oracle, starters) = (registry(3), Oracle::new(), 12);
    let start = Barrier::new(starters);
    let numbers: BTreeSet<i64> = thread::scope(|scope| {
        let start_one = || {
            let member = Member::new(config(&etcd.address()), &oracle);
            member.registry().read(&Wanted::default()).unwrap();
            start.wait();
            member.lease().worker
        };
        let threads: Vec<_> = (0..starters).map(|_| scope.spawn(start_one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!((numbers.len(), oracle.count()), (starters, starters));
}

#[test]
fn a_missing_fleet_names_the_command_that_makes_it() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = Etcd::start(1);
    let oracle = Oracle::new();
    let member = Member::new(config(&etcd.address()), &oracle);
    let error = member.unanswered();
    assert_eq!(error.report().code, "42704");
    let hint = error.report().hint.unwrap();
    assert!(hint.contains("\"snowflake-registry create\" makes it"), "{hint}");
    let by_hand = r#"etcdctl put /snowflake_id/default/fleet '{"uuid": "'$(uuidgen)'"}'"#;
    assert!(hint.contains(by_hand), "{hint}");
    // The same connection serves once the fleet is there.
    etcd.make_registry();
    member.lease();
    etcd.edit_fleet(&[("first_worker", json!("many"))]);
    assert!(matches!(problem(&member), Problem::Record(..)));
}

#[test]
fn the_fleet_goes_on_when_the_leader_is_killed_and_not_without_a_majority() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let (mut etcd, oracle) = (registry(3), Oracle::new());
    let member = Member::new(config(&etcd.address()), &oracle);
    let first = member.lease();
    let before = member.registry().read(&Wanted::numbers_of(None)).unwrap();
    let leader = etcd.leader();
    etcd.kill_member(leader);
    keep_until_answered(&member);
    let renewed = member.held().unwrap();
    assert_eq!((renewed.worker, renewed.holder), (first.worker, first.holder));
    let after = member.registry().read(&Wanted::numbers_of(None)).unwrap();
    // An election loses nothing, and freezes nothing.
    assert_eq!(after.fleet.generation, before.fleet.generation);
    assert!(after.incarnation.counts[0] > before.incarnation.counts[0]);

    let other = etcd.leader();
    etcd.kill_member(other);
    let hasty = Config { timeout: Duration::from_secs(1), ..config(&etcd.address()) };
    let cut_off = Member::new(hasty, &oracle);
    assert!(matches!(problem(&cut_off), Problem::TimedOut { .. } | Problem::Refused(_) | Problem::Unreachable(_)));
    assert!(member.held().is_some(), "it draws on");
    etcd.start_member(leader);
    etcd.wait();
    keep_until_answered(&member);
    assert_eq!(member.held().unwrap().holder, first.holder);
    assert!(!member.has_begun_a_generation());
}

#[test]
fn a_compaction_changes_nothing() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let (etcd, oracle) = (registry(1), Oracle::new());
    let member = Member::new(config(&etcd.address()), &oracle);
    let first = member.lease();
    let status = etcd.ctl(&["endpoint", "status", "--write-out=fields"]);
    let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).unwrap();
    etcd.ctl(&["compact", revision]);
    etcd.ctl(&["defrag"]);
    assert_eq!(member.lease().holder, first.holder);
    assert_eq!(member.registry().read(&Wanted::default()).unwrap().fleet.generation, 1);
}

#[test]
fn certificates_and_passwords_are_asked_for() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let (mut etcd, oracle) = (Etcd::start_with_tls(3), Oracle::new());
    etcd.make_registry();
    let with_tls = etcd.address();
    let member = Member::new(config(&with_tls), &oracle);
    let first = member.lease();
    let without_certificate = with_tls.split("&cert=").next().unwrap();
    assert!(Member::new(config(without_certificate), &oracle).keep().is_err());
    let plain = without_certificate.replace("https", "http");
    assert!(Member::new(config(&plain), &oracle).keep().is_err());
    // The certificate does not take the place of the user.
    etcd.enable_passwords();
    let refused = problem(&member);
    assert!(matches!(refused, Problem::Login(_)), "{refused:?}");
    let mut member = member;
    member.set_config(config(&etcd.address()));
    assert_eq!(member.lease().holder, first.holder);
    // The gateway takes no certificate with a common name then.
    let named = etcd.address().replace("client.", "named.");
    assert_eq!(Member::new(config(&named), &oracle).unanswered().report().code, "28000");
    // Rights change the auth store's revision, and each token is older than that then.
    etcd.ctl(&["role", "add", "another"]);
    assert_eq!(member.lease().holder, first.holder);
    let wrong = etcd.address().replace("user=snowflake", "user=nobody");
    assert!(matches!(problem(&Member::new(config(&wrong), &oracle)), Problem::Login(_)));
    etcd.ctl(&["role", "revoke-permission", "snowflake", "--prefix=true", "/snowflake_id/"]);
    wait_until("the rights are gone", || {
        matches!(member.keep(), Err(Failure::Away(RegistryError::Etcd(Problem::NoRights(_)))))
    });
}

#[test]
fn a_restored_snapshot_begins_a_generation() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    // Another cluster, and the same one.
    for token in ["two", "one"] {
        let (mut etcd, oracle) = (registry(3), Oracle::new());
        etcd.write_elsewhere();
        let member = Member::new(config(&etcd.address()), &oracle);
        member.lease();
        etcd.save("snapshot");
        // Forgotten by the snapshot.
        let late = Member::new(config(&etcd.address()), &oracle);
        let lost = late.lease();
        let before = member.registry().read(&Wanted::numbers_of(None)).unwrap();
        etcd.restore("snapshot", token);
        let after = Member::new(config(&etcd.address()), &oracle);
        wait_until("the freeze", || match after.keep() {
            Err(Failure::Frozen { .. }) => true,
            Err(Failure::Away(_) | Failure::Contended) => false,
            other => panic!("{other:?}"),
        });
        let reading = after.registry().read(&Wanted::numbers_of(None)).unwrap();
        assert_eq!(reading.fleet.generation, before.fleet.generation + 1);
        assert_eq!(reading.incarnation.store == before.incarnation.store, token == "one");
        assert!(reading.fleet.freeze_ms > lost.until_ms);
        // Its holder draws on.
        assert!(late.draw().is_some());
        // A second restore shows, too, although it leaves cluster and term as the first one did.
        etcd.write_elsewhere();
        etcd.save("second");
        etcd.restore("second", token);
        wait_until("another generation", || {
            let _ = after.keep();
            after
                .registry()
                .read(&Wanted::default())
                .is_ok_and(|now| now.fleet.generation == reading.fleet.generation + 1)
        });
    }
}

/// Forwards connections to an etcd. When armed, it closes the connection of the next swap after
/// etcd has answered, and before the answer is passed on. It can tell another date.
struct Proxy {
    port: u16,
    is_armed: Arc<AtomicBool>,
    date: Arc<Mutex<Option<&'static str>>>,
}

impl Proxy {
    fn start(etcd: &Etcd) -> Self {
        let target = etcd.address().trim_start_matches("etcd:http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, is_armed) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let (armed, date) = (Arc::clone(&is_armed), Arc::new(Mutex::new(None)));
        let told = Arc::clone(&date);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&target) else { continue };
                let (mut from_client, mut from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (mut to_client, mut to_server) = (client, server);
                let (armed, cuts) = (Arc::clone(&armed), Arc::new(AtomicBool::new(false)));
                let (is_cut, told) = (Arc::clone(&cuts), Arc::clone(&told));
                thread::spawn(move || {
                    let mut part = [0; 65536];
                    while let Ok(length @ 1..) = from_client.read(&mut part) {
                        let is_swap = String::from_utf8_lossy(&part[..length]).contains("\"compare\"");
                        // SeqCst: the threads' only common words, and speed does not matter.
                        if is_swap && armed.swap(false, Ordering::SeqCst) {
                            cuts.store(true, Ordering::SeqCst);
                        }
                        if to_server.write_all(&part[..length]).is_err() {
                            break;
                        }
                    }
                    let _ = to_server.shutdown(Both);
                });
                thread::spawn(move || {
                    let mut part = [0; 65536];
                    while let Ok(length @ 1..) = from_server.read(&mut part) {
                        let mut text = String::from_utf8_lossy(&part[..length]).into_owned();
                        if let Some(date) = *told.lock().unwrap() {
                            text = text.replace("\r\nDate: ", &format!("\r\nDate: {date}\r\nX-Date: "));
                        }
                        if is_cut.load(Ordering::SeqCst) || to_client.write_all(text.as_bytes()).is_err() {
                            break;
                        }
                    }
                    let _ = to_client.shutdown(Both);
                });
            }
        });
        Self { port, is_armed, date }
    }
}

#[test]
fn a_lost_answer_is_not_taken_for_a_no() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let (etcd, oracle) = (registry(1), Oracle::new());
    let proxy = Proxy::start(&etcd);
    let member = Member::new(config(&format!("etcd:http://127.0.0.1:{}", proxy.port)), &oracle);
    let written = || etcd.ctl(&["get", "--prefix", "--print-value-only", "/snowflake_id/default/numbers/"]);
    let first = member.lease();
    for _ in 0..3 {
        let (before, held) = (written(), member.held());
        proxy.is_armed.store(true, Ordering::SeqCst);
        let error = member.unanswered();
        assert!(matches!(error, RegistryError::Lost { .. }), "{error:?}");
        assert!(error.report().detail.unwrap().contains("may have been made"), "{error:?}");
        // It was written, and the member does not count on it.
        assert_ne!(written(), before);
        assert_eq!(member.held(), held);
        keep_until_answered(&member);
        let now = member.held().unwrap();
        assert_eq!((now.worker, now.holder), (first.worker, first.holder));
        assert!(now.until_ms > held.unwrap().until_ms && member.draw().is_some());
    }
    let is_alarm = |notice: &LeaseNotice| {
        matches!(notice, LeaseNotice::Copied(_) | LeaseNotice::Overlapped(_) | LeaseNotice::Older(_))
    };
    assert!(!member.has_reported(is_alarm) && !member.has_begun_a_generation());
}

/// A worker that panics is started again each second, and says each time where it was.
#[track_caller]
fn assert_no_panic(server: &Server) {
    let log = server.log();
    assert!(!log.contains("panicked") && !log.contains("overflow"), "{log}");
}

#[test]
fn an_invalid_date_is_refused_and_the_worker_stays() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = registry(1);
    let proxy = Proxy::start(&etcd);
    let address = format!("etcd:http://127.0.0.1:{}", proxy.port);
    let server = Server::builder().set("registry", &address).start_with_extension();
    let mut session = server.connect();
    session.wait_for_lease();
    let pid = session.lease("pid");
    for date in [
        "Sun, 06 Nov 9223372036854775807 08:49:37 GMT",
        "Sun, 06 Nov 1000000000000000000 08:49:37 GMT",
        "Sun, 9223372036854775807 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 9223372036854775807:9223372036854775807:9223372036854775807 GMT",
        "Sun, 06 Nov -9223372036854775808 08:49:37 GMT",
    ] {
        *proxy.date.lock().unwrap() = Some(date);
        server.reload();
        wait_until(date, || session.lease("last_error").contains(&format!("Date \"{date}\"")));
        assert_eq!((session.lease("state"), session.lease("pid")), ("held".to_owned(), pid.clone()));
    }
    *proxy.date.lock().unwrap() = None;
    wait_until("a renewal", || session.lease("failing_since").is_empty());
    assert_eq!(session.lease("pid"), pid);
    assert_no_panic(&server);
}

#[test]
fn numbers_in_etcd_that_are_out_of_range_are_refused_or_bounded_and_the_worker_stays() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = registry(1);
    let server = Server::builder().set("registry", &etcd.address()).start_with_extension();
    let mut session = server.connect();
    session.wait_for_lease();
    let pid = session.lease("pid");
    let usual = etcd.fleet();
    for (name, value) in [
        ("skew_ms", "-9223372036854775808"),
        ("skew_ms", "-1"),
        ("longest_ms", "9223372036854775807"),
        ("longest_ms", "-5"),
        ("lease_ms", "-1"),
        ("clock_skew_ms", "9223372036854775807"),
    ] {
        etcd.edit_fleet(&[(name, json!(value))]);
        server.reload();
        let words = format!("registry has a number out of range: {name} is {value}");
        wait_until(&words, || session.lease("last_error").contains(&words));
        etcd.ctl(&["put", "/snowflake_id/default/fleet", &usual]);
    }
    // The end of this server's own lease.
    server.reload();
    wait_until("a renewal", || session.lease("failing_since").is_empty());
    let record = format!("numbers/-/{}", session.lease("worker_id"));
    etcd.edit(&record, &[("until_ms", json!(i64::MAX.to_string()))]);
    server.reload();
    wait_until("a renewal", || {
        session.lease("failing_since").is_empty() && session.lease("lease_until").starts_with("9999-12-31")
    });
    for value in ["9223372036854775807", "-9223372036854775808"] {
        for name in ["generation", "horizon_ms", "freeze_ms", "term", "unseen"] {
            // These are not refused: the arithmetic takes any number, and the server draws on.
            etcd.edit_fleet(&[(name, json!(if name == "generation" { "18446744073709551615" } else { value }))]);
            server.reload();
            assert!(!session.ids("SELECT snowflake_next()").unwrap().is_empty());
            etcd.ctl(&["put", "/snowflake_id/default/fleet", &usual]);
        }
    }
    assert_eq!((session.lease("pid"), session.ids("SELECT snowflake_next()").unwrap().len()), (pid, 1));
    assert_no_panic(&server);
}

/// Takes connections on a port of 127.0.0.1, and sends the text to each, again and again, without a
/// pause.
fn endless(text: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = text.repeat(10_000);
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let text = text.clone();
            thread::spawn(move || while client.write_all(text.as_bytes()).is_ok() {});
        }
    });
    port
}

/// Without limits, the worker would never look at its deadline, nor at the signal that ends it.
#[test]
fn an_etcd_that_sends_without_a_pause_is_given_up_and_holds_up_no_stop() {
    for (text, why) in [
        ("HTTP/1.1 100 Continue\r\n\r\n", "more than 10 informational answers"),
        ("x", "invalid response from registry"),
        ("\r\n", "more than 65536 bytes in a head"),
    ] {
        let port = endless(text);
        let server = Server::builder().set("registry", &format!("etcd:http://127.0.0.1:{port}")).start_with_extension();
        let mut session = server.connect();
        wait_until(why, || session.lease("last_error").contains(why));
        assert_no_panic(&server);
        drop(session);
        server.stop(Shutdown::Fast);
    }
}

#[test]
fn a_server_leases_from_etcd_and_stops_while_it_is_silent() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = registry(3);
    let server =
        Server::builder().set("registry", &etcd.address()).config("dynamic_shared_memory_type", "mmap").start();
    let mut session = server.connect();
    session.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    session.wait_for_lease();
    assert!(!session.ids("SELECT snowflake_next()").unwrap().is_empty());
    assert!(session.lease("registry").starts_with("etcd:http://127.0.0.1:"));
    // Not one thread beside the process's own.
    let postmaster = server.postmaster_pid();
    let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).unwrap();
    let is_worker = |pid: &&str| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("snowflake_id lease")
    };
    let worker = children.split_ascii_whitespace().find(is_worker).expect("the worker runs");
    assert_eq!(fs::read_dir(format!("/proc/{worker}/task")).unwrap().count(), 1);
    drop(session);
    // The kernel takes connections for a process that is stopped, and nothing answers.
    etcd.signal(Signal::SIGSTOP);
    server.stop(Shutdown::Fast);
    etcd.signal(Signal::SIGCONT);
    assert!(server.log().contains("the worker number was not given back"), "{}", server.log());
}

#[test]
fn what_servers_tell_names_the_commands_of_the_program() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = registry(1);
    etcd.operate(&["set-range", "7", "7"]);
    let settings = || Server::builder().set("registry", &etcd.address()).config("dynamic_shared_memory_type", "mmap");
    etcd.operate(&["set-limits", "--lease", "3 min", "--skew", "1 min"]);
    let holder = settings().start_with_extension();
    holder.connect().wait_for_lease();
    assert!(holder.log().contains("after a restore of the registry, this server may draw no ids"), "{}", holder.log());
    assert!(holder.log().contains("run \"snowflake-registry set-lease\"."), "{}", holder.log());

    let other = settings().start_with_extension();
    // The first failure is logged at once, and later ones once a minute.
    let assert_told = |hint: &str| {
        other.restart();
        wait_until(hint, || other.log().contains(hint));
    };
    assert_told("\"snowflake-registry show\" tells which servers have them");
    etcd.operate(&["close"]);
    assert_told("run \"snowflake-registry open --not-moved\"");
    etcd.operate(&["open", "--not-moved"]);
    let refused = etcd.refuses(&["set-range", "0", "1024"]);
    assert!(refused.contains("has the numbers 0 to 1023"), "{refused}");
    let refused = etcd.refuses(&["reserve", "1024", "now"]);
    assert!(refused.contains("layout has no number 1024"), "{refused}");
    let refused = etcd.refuses(&["reset-settings"]);
    assert!(refused.contains("may still draw ids"), "{refused}");
    etcd.edit_fleet(&[("first_worker", json!(2000)), ("last_worker", json!(3000))]);
    assert_told("Run \"snowflake-registry set-range\"");
    // In this order, or the server gets a number in between.
    etcd.operate(&["restored"]);
    etcd.operate(&["set-range", "7", "9"]);
    assert_told("do not restart them before then.");
    // No function of a registry in PostgreSQL.
    assert!(!holder.log().contains("snowflake_registry.") && !other.log().contains("snowflake_registry."));
}

/// A port to which packets are lost: nobody takes connections, and the queue for them is full.
struct BlackHole {
    port: u16,
    /// What fills the queue.
    _waiting: Vec<Socket>,
    _listener: Socket,
}

impl BlackHole {
    fn new() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        listener.bind(&any.into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let port = address.as_socket().unwrap().port();
        let mut waiting = Vec::new();
        // Until one is not taken.
        loop {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let taken = socket.connect_timeout(&address, Duration::from_millis(200));
            waiting.push(socket);
            if taken.is_err() {
                return Self { port, _waiting: waiting, _listener: listener };
            }
        }
    }
}

#[test]
fn an_address_whose_packets_are_lost_costs_a_second_and_one_that_is_silent_a_step() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let (etcd, oracle) = (registry(1), Oracle::new());
    let hole = BlackHole::new();
    // The kernel takes connections, and nothing answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (hole, silent) = (hole.port, silent.local_addr().unwrap().port());
    let urls = etcd.address().trim_start_matches("etcd:").to_owned();
    let member = |addresses: String| {
        let hasty = Config { timeout: Duration::from_secs(1), ..config(&addresses) };
        Member::new(hasty, &oracle)
    };
    // No failure is seen: the next address is asked within the same call.
    let before = Member::new(config(&format!("etcd:http://127.0.0.1:{hole},{urls}")), &oracle);
    before.lease();
    let alone = member(format!("etcd:http://127.0.0.1:{hole}"));
    assert!(matches!(problem(&alone), Problem::TimedOut { step: RegistryStep::Connect, .. }));
    // What is silent may have done what it was asked for, so the call fails, and the next one goes
    // to the next address.
    let before = member(format!("etcd:http://127.0.0.1:{silent},{urls}"));
    assert!(matches!(problem(&before), Problem::TimedOut { step: RegistryStep::Read, .. }));
    before.lease();

    // A server stops while it waits for a connection.
    let address = format!("etcd:http://127.0.0.1:{hole}");
    let server = Server::builder().set("registry", &address).config("dynamic_shared_memory_type", "mmap").start();
    wait_until("the first failure", || server.log().contains("etcd did not answer"));
    server.stop(Shutdown::Fast);
}

#[test]
fn a_login_that_has_expired_is_renewed_before_anything_fails() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let (mut etcd, oracle) = (Etcd::start_with_short_logins(1), Oracle::new());
    etcd.make_registry();
    etcd.enable_passwords();
    let member = Member::new(config(&etcd.address()), &oracle);
    let first = member.lease();
    // Each renewal has an answer, also the one for which etcd refuses the login.
    wait_until("a login that has expired", || {
        member.lease();
        etcd.log(0).to_lowercase().contains("token is expired")
    });
    assert_eq!(member.lease().holder, first.holder);
}
