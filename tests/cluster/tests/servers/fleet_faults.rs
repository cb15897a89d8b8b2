//! What goes wrong between a server and its registry: each fault on a real member that holds a
//! lease, on one that starts meanwhile, and on a fast stop.
//!
//! Whatever the fault, the same holds ([`endures`]): the member draws as long as its lease lasts;
//! its log and `snowflake_lease` name the fault; a server that starts meanwhile is refused with
//! 58000; a fast stop gives the registry two seconds; and when the fault is gone, all draw again
//! without being told. No id comes twice.
//!
//! A standby, a slow registry and a missing password show that. The connection's tests show what
//! each fault is called.
//!
//! | fault | here, on a server | registry's connection (`registry.rs`) |
//! |---|---|---|
//! | not a connection string, another registry, at a reload | `fleet.rs` | |
//! | a standby | a member, a newcomer and a stop | `a_standby_is_refused` |
//! | read-only, `fsync` off, no rights, no schema, another version | | `what_a_registry_lacks_is_named` |
//! | another layout, another `backup_worker` | a server that starts | `the_first_server_brings_what_the_fleet_does_not_know_yet` |
//! | no number left | | `each_datacenter_has_its_own_numbers` |
//! | a minute per answer | a member, a newcomer and a stop | `a_server_that_never_answers_is_given_up` |
//! | a number that is out of range | `registry_etcd.rs` | `no_number_in_a_reading_is_beyond_its_range_or_panics` |
//! | garbage, in an answer and instead of one | | `a_server_that_answers_garbage_to_a_statement_is_not_believed` |
//! | ends in the middle of a commit | a server that starts | `a_swap_that_is_terminated_before_its_commit_is_not_done` |
//! | waits for a synchronous standby that is gone | | `a_synchronous_standby_that_is_gone_means_no_answer_and_leaves_one_session_behind` |
//! | a pooler in transaction mode, which is not a fault | two servers | `behind_a_pooler_that_keeps_a_session_for_a_transaction_only` |
//! | a password that is missing | a member, a newcomer and a stop | `a_server_that_cannot_be_reached_is_named_in_libpqs_words` |
//! | no free `max_worker_processes`; another server of the same name | here | |

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::thread;

use cluster::pooler::{PgBouncer, PoolMode, has_pgbouncer};
use cluster::refusal::assert_refused_as;
use cluster::registry::ROLE;
use cluster::{
    Builder, Draw, Fleet, Leases, Load, Refusal, Server, Shutdown, assert_unique, instant, refused, skip, wait_until,
};
use postgres::Client;

fn execute(server: &Server, sql: &str) {
    server.connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Waits until the server's last error has these words, and returns it.
#[track_caller]
fn fault_of(session: &mut Client, words: &str) -> String {
    wait_until(words, || session.lease("last_error").contains(words));
    session.lease("last_error")
}

/// Draws on a server that has no number, and returns the refusal.
#[track_caller]
fn refusal_of(server: &Server) -> Refusal {
    let refusal = refused(server.connect().ids("SELECT snowflake_next()"));
    assert_refused_as(&refusal, "58000", "this server has no worker number yet");
    refusal
}

/// Starts a server that gets no number, and asserts that a draw, the view and the log say why.
#[track_caller]
fn refused_newcomer(member: Builder, words: &str) -> Server {
    let server = member.start_with_extension();
    let mut session = server.connect();
    fault_of(&mut session, words);
    let refusal = refusal_of(&server);
    let detail = refusal.detail.clone().unwrap_or_default();
    assert!(detail.contains("the registry has not leased one: ") && detail.contains(words), "{refusal:?}");
    assert!(refusal.hint.is_some(), "{refusal:?}");
    assert_eq!((session.lease("state"), session.lease("worker_id")), ("none".to_owned(), String::new()));
    assert_ne!(session.lease("failing_since"), "");
    let log = server.log();
    let line = "WARNING:  snowflake_id: no worker number is leased, and the server draws no ids: ";
    assert!(log.contains(line) && log.contains(words), "{log}");
    server
}

/// Returns when a line with these words was written to a log, in milliseconds since 1970.
#[track_caller]
fn written_ms(log: &str, words: &str) -> i64 {
    let line = log.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("no \"{words}\" in\n{log}"));
    let (date, rest) = line.split_once(' ').expect("a line begins with its time");
    let (time, _) = rest.split_once(' ').expect("a line begins with its time");
    instant(&format!("{date}T{time}Z"))
}

/// Stops a server in fast mode, and asserts that it waits for the registry for two seconds, and not
/// for a step of five. The rest is room for a busy machine.
#[track_caller]
fn stop_in_time(server: &Server) {
    let length = server.log_length();
    server.stop(Shutdown::Fast);
    let log = server.log_since(length);
    let told_ms = written_ms(&log, "received fast shutdown request");
    let took_ms = written_ms(&log, "background worker \"snowflake_id lease\"") - told_ms;
    assert!(took_ms < 4500, "the worker took {took_ms} ms to end:\n{log}");
}

/// Breaks the registry for a fleet with a member that draws, and mends it. `breaks` returns the
/// string with which servers reach what is broken.
#[track_caller]
fn endures(fleet: &Fleet, words: &str, breaks: impl FnOnce() -> String, mend: impl FnOnce()) {
    let log_in_utc = |member: Builder| member.config("log_timezone", "UTC");
    let server = log_in_utc(fleet.member()).start_with_extension();
    let mut session = server.connect();
    let number = session.wait_for_lease();
    let load = Load::start(&server, 4);
    load.wait_for(20);
    fleet.hear(&server);

    let broken = breaks();
    let length = server.log_length();
    server.set_config("snowflake_id.registry", &broken);
    // It asks again at once.
    server.reload();
    fault_of(&mut session, words);
    load.wait_for(20);
    assert_eq!((session.lease("state"), session.lease("worker_id")), ("held".to_owned(), number.to_string()));
    assert_ne!(session.lease("failing_since"), "");
    let log = server.log_since(length);
    let line = format!(
        "WARNING:  snowflake_id: the lease of worker number {number} is not renewed, and the server draws ids until "
    );
    assert!(log.contains(&line) && log.contains(words), "{log}");
    // Above all, what makes it worse.
    assert!(log.contains("HINT:  Restart this server only if you must, because it may have no number then. "), "{log}");

    let newcomer = refused_newcomer(log_in_utc(fleet.member()).set("registry", &broken), words);
    stop_in_time(&server);
    let (ledger, refusals) = load.end_with_refusals();
    assert!(refusals.is_empty(), "{refusals:?}");
    assert!(server.log().contains("was not given back, and stays leased to its end"), "{}", server.log());

    mend();
    let mut ids = ledger.seen.clone();
    for (server, is_down) in [(&newcomer, false), (&server, true)] {
        server.set_config("snowflake_id.registry", &fleet.conninfo());
        if is_down {
            server.start_again();
        } else {
            server.reload();
        }
        let mut session = server.connect();
        session.wait_for_lease();
        ids.extend(session.ids("SELECT snowflake_next() FROM generate_series(1, 1000)").unwrap());
        fleet.hear(server);
        assert_eq!(session.lease("failing_since"), "");
    }
    assert_unique(&ids);
    ledger.check_held(&mut server.connect(), cluster::Promise::Seen);
    assert!(newcomer.log().contains("the registry leases this server's worker number again"));
}

/// Another reason is logged when it comes, and not with the line of the next minute.
#[test]
fn a_reason_that_changes_is_logged_at_its_first_failure() {
    let fleet = Fleet::start();
    let server = fleet.member().set("registry", "host=/nonexistent").start_with_extension();
    let mut session = server.connect();
    fault_of(&mut session, "No such file or directory");
    let length = server.log_length();
    server.set_config("snowflake_id.registry", &format!("{} user=stranger", fleet.conninfo()));
    server.reload();
    fault_of(&mut session, "role \"stranger\" does not exist");
    // The line of that failure comes before the next one is counted.
    let failures: i64 = session.lease("failures").parse().unwrap();
    wait_until("another failure", || {
        server.reload();
        session.lease("failures").parse::<i64>().unwrap() > failures
    });
    let log = server.log_since(length);
    assert!(log.contains("WARNING:") && log.contains("role \"stranger\" does not exist"), "{log}");
    // The same reason again is not worth a line.
    assert_eq!(log.matches("the server draws no ids").count(), 1, "{log}");
}

/// libpq writes a line into the log each time that it finds such a file.
#[test]
fn a_password_file_that_others_may_read_does_not_fill_the_log() {
    let fleet = Fleet::start_with(Builder::tcp);
    let passfile = fleet.registry.connect().value("SELECT current_setting('data_directory') || '/pgpass'");
    let write = format!("COPY (SELECT '*:*:*:*:wrong') TO PROGRAM 'umask 022; cat > {passfile}'");
    execute(&fleet.registry, &write);
    let port = fleet.registry.port();
    let registry = format!("host=127.0.0.1 port={port} dbname=postgres user={ROLE} passfile={passfile}");
    let server = fleet.member().set("registry", &registry).start_with_extension();
    let mut session = server.connect();
    fault_of(&mut session, "no password supplied");
    let error = fault_of(&mut session, "is not used, because its mode is 0644; run chmod 0600 on it.");
    assert!(error.contains(&passfile), "{error}");
    assert!(!server.log().contains("group or world access"), "{}", server.log());
}

/// As [`endures`], for a fault that is in the registry itself.
#[track_caller]
fn endures_in_place(words: &str, breaks: impl FnOnce(&Server), mend: impl FnOnce(&Server)) {
    let fleet = Fleet::start();
    let breaks = || {
        breaks(&fleet.registry);
        fleet.conninfo()
    };
    endures(&fleet, words, breaks, || mend(&fleet.registry));
}

// A registry that must not be used

#[test]
fn a_registry_that_is_a_standby_is_refused() {
    let restart = |registry: &Server, is_standby: bool| {
        let signal = registry.data_dir().join("standby.signal");
        registry.stop(Shutdown::Fast);
        if is_standby { fs::write(signal, "") } else { fs::remove_file(signal) }.unwrap();
        registry.start_again();
    };
    endures_in_place("registry is a standby", |registry| restart(registry, true), |registry| restart(registry, false));
}

// A registry of another fleet's kind

#[test]
fn a_server_of_another_kind_than_its_fleet_gets_no_number() {
    let fleet = Fleet::start();
    let first = fleet.member().start_with_extension();
    first.connect().wait_for_lease();
    for (name, value, words) in [
        ("layout", "js53", "the fleet has layout \"snowflake\" with \"backup_worker\" off"),
        ("backup_worker", "on", "This server has layout \"snowflake\" with \"backup_worker\" on"),
        ("fleet", "other", "registry has no fleet \"other\""),
    ] {
        let server = refused_newcomer(fleet.member().set(name, value).config("log_timezone", "UTC"), words);
        stop_in_time(&server);
    }
    assert_eq!(fleet.leased().len(), 1);
}

// A registry that answers late, or not at all

/// A server asks anew after five seconds. What it asked before must not stay behind in the registry
/// until a hundred sessions are taken.
#[test]
fn a_registry_that_takes_a_minute_for_an_answer_is_given_up() {
    let slow = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let now_ms = |registry: &Server, sleep: &str| {
        let body = format!("RETURNS bigint LANGUAGE sql VOLATILE AS $$ {sleep}; {slow} $$");
        execute(registry, &format!("CREATE OR REPLACE FUNCTION snowflake_registry.now_ms() {body}"));
    };
    endures_in_place(
        "registry did not answer within 5 s (reading its records)",
        |registry| now_ms(registry, "SELECT pg_sleep(60)"),
        |registry| {
            now_ms(registry, "SELECT 1");
            let late = "canceling statement due to statement timeout";
            wait_until("the end of a statement", || registry.log().contains(late));
        },
    );
}

/// The commit is in the log, and nobody was told.
#[test]
fn a_registry_that_is_killed_in_the_middle_of_a_commit_has_leased_one_number() {
    let fleet = Fleet::start();
    let first = fleet.member().start_with_extension();
    let mut ids = first.connect().draw_batch(100);
    fleet.registry.set_config("synchronous_standby_names", "gone");
    fleet.registry.reload();
    let server = fleet.member().start_with_extension();
    let waits =
        format!("SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = '{ROLE}' AND wait_event = 'SyncRep'");
    let mut observer = fleet.registry.connect();
    wait_until("a commit that waits", || observer.value(&waits) == "true");
    let mut session = server.connect();
    assert_eq!(session.lease("state"), "none", "it draws with what the registry may lose");
    fleet.registry.crash();
    fault_of(&mut session, "the registry");
    fleet.registry.unset_config("synchronous_standby_names");
    fleet.registry.start_again();
    session.wait_for_lease();
    ids.extend(session.draw_batch(100));
    [&first, &server].into_iter().for_each(|server| fleet.hear(server));
    assert_eq!(fleet.leased().len(), 2);
    assert_unique(&ids);
}

// The way to the registry

#[test]
fn a_password_that_is_missing_is_named_and_found_in_a_file() {
    let fleet = Fleet::start_with(Builder::tcp);
    execute(&fleet.registry, &format!("ALTER ROLE {ROLE} PASSWORD 'secret-of-the-fleet'"));
    let port = fleet.registry.port();
    let tcp = format!("host=127.0.0.1 port={port} dbname=postgres user={ROLE}");
    endures(&fleet, "no password supplied", || tcp.clone(), || {});

    // As the page says: a file of the user that runs the server.
    let passwords = fleet.registry.data_dir().join("passwords");
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&passwords).unwrap();
    writeln!(file, "127.0.0.1:{port}:postgres:{ROLE}:secret-of-the-fleet").unwrap();
    let owner = fs::metadata(fleet.registry.data_dir()).unwrap();
    chown(&passwords, Some(owner.uid()), Some(owner.gid())).unwrap();
    let registry = format!("{tcp} passfile='{}'", passwords.display());
    let server = fleet.member().set("registry", &registry).start_with_extension();
    server.connect().wait_for_lease();
}

#[test]
fn a_pooler_in_transaction_mode_may_lie_between() {
    if !has_pgbouncer() {
        return skip("PgBouncer is not installed");
    }
    let fleet = Fleet::start();
    let pooler = PgBouncer::start(&fleet.registry, PoolMode::Transaction);
    // They share one session of the registry.
    let servers = [(); 2].map(|()| fleet.member().set("registry", &pooler.conninfo()).start_with_extension());
    let mut ids = Vec::new();
    for server in &servers {
        let mut session = server.connect();
        session.wait_for_lease();
        let renewals = session.lease("renewals");
        server.reload();
        wait_until("a renewal", || session.lease("renewals") != renewals);
        ids.extend(session.draw_batch(100));
        fleet.hear(server);
    }
    assert_unique(&ids);
    for server in &servers {
        server.stop(Shutdown::Fast);
        assert!(server.log().contains("is given back, for ids from"), "{}", server.log());
    }
    assert_eq!(fleet.leased(), [] as [i64; 0]);
}

// The server itself

#[test]
fn a_server_without_a_free_worker_process_says_which_setting_is_too_small() {
    let fleet = Fleet::start();
    let server = fleet.member().config("max_worker_processes", "0").start_with_extension();
    let refusal = refusal_of(&server);
    let told = [refusal.detail.unwrap_or_default(), refusal.hint.unwrap_or_default()].join(" ");
    assert!(told.contains("does not run") && told.contains("max_worker_processes"), "{told}");
    let mut session = server.connect();
    assert_eq!((session.lease("state"), session.lease("pid")), ("none".to_owned(), String::new()));
    server.set_config("max_worker_processes", "8");
    server.restart();
    server.connect().wait_for_lease();
}

/// Each wants the number that a server of this name had last.
#[test]
fn two_servers_of_one_name_never_draw_with_one_number_at_a_time() {
    let fleet = Fleet::start();
    let servers = [(); 2].map(|()| fleet.member().config("cluster_name", "twin").start_with_extension());
    let mut ids = Vec::new();
    for _ in 0..3 {
        let loads = servers.each_ref().map(|server| Load::start(server, 4));
        loads.iter().for_each(|load| load.wait_for(20));
        let numbers = servers.each_ref().map(|server| server.connect().wait_for_lease());
        fleet.hear_history();
        assert_ne!(numbers[0], numbers[1]);
        // Both give back, and start at the same moment.
        thread::scope(|scope| servers.iter().for_each(|server| drop(scope.spawn(|| server.restart()))));
        for load in loads {
            ids.extend(load.end_with_refusals().0.seen);
        }
    }
    let shown = "SELECT count(DISTINCT (host, port, cluster_name)) FROM snowflake_registry.fleet";
    assert_eq!(fleet.registry.connect().value(shown), "1");
    assert_unique(&ids);
}
