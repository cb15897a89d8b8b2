//! A fleet in use: the statements and commands of the page about operating one, run as a reader
//! would, with sessions that draw all the while. No id comes twice.

use std::process::{Command, Stdio};

use cluster::operator::commands;
use cluster::pages::{block, psql, settings};
use cluster::registry::ROLE;
use cluster::{Draw, Fleet, Leases, Ledger, Load, Operated, Server, Shutdown, assert_unique, refused, wait_until};
use snowflake_core::id::layout::Layout;

fn execute(server: &Server, sql: &str) {
    server.connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Runs the SQL of a block of the page, and returns what it prints, without headings.
#[track_caller]
fn query(server: &Server, sql: &str) -> String {
    psql(server, &["--tuples-only", "--no-align"], sql)
}

/// Enters the commands of a block of the page.
#[track_caller]
fn follow(registry: &Server, console: &str) {
    registry.enter(&commands(console));
}

/// Returns the worker numbers of what a load has seen, each once.
fn workers(ledger: &Ledger) -> Vec<u32> {
    let layout = Layout::parse("snowflake").unwrap();
    let mut workers: Vec<_> = ledger.seen.iter().map(|id| layout.parts(*id).unwrap().worker.unwrap()).collect();
    workers.sort_unstable();
    workers.dedup();
    workers
}

/// Restarts one server after the other with other settings, while all others draw.
fn in_turn(servers: &[Server], loads: &mut Vec<Load>, ledger: &mut Ledger, change: impl Fn(&Server, usize)) {
    for (turn, server) in servers.iter().enumerate() {
        let length = server.log_length();
        server.stop(Shutdown::Fast);
        let own = loads.remove(turn);
        loads.iter().for_each(|load| load.wait_for(20));
        change(server, turn);
        server.start_again();
        let (seen, refusals) = own.end_with_refusals();
        assert!(refusals.is_empty(), "{refusals:?}");
        ledger.add(seen);
        let load = Load::start(server, 4);
        load.wait_for(20);
        loads.insert(turn, load);
        assert!(!server.log_since(length).contains("WARNING"), "{}", server.log_since(length));
    }
}

#[test]
fn a_fleet_moves_from_configured_numbers_to_leases_and_back_without_a_moment_without_ids() {
    let fleet = Fleet::start();
    let servers =
        [1, 2, 3].map(|number: u32| Server::builder().set("worker_id", &number.to_string()).start_with_extension());
    let mut loads: Vec<_> = servers.iter().map(|server| Load::start(server, 4)).collect();
    loads.iter().for_each(|load| load.wait_for(20));
    let mut ledger = Ledger::default();

    // First the range, then the servers.
    follow(&fleet.registry, block("fleet-range"));
    let lines = settings(block("fleet-member"));
    in_turn(&servers, &mut loads, &mut ledger, |server, _| {
        server.unset_config("snowflake_id.worker_id");
        for (name, value) in &lines {
            // The lines name a host that does not exist.
            let own = fleet.conninfo();
            server.set_config(name, if *name == "snowflake_id.registry" { &own } else { value });
        }
    });
    assert!(fleet.leased().iter().all(|number| (100..=1023).contains(number)), "{:?}", fleet.leased());
    assert_eq!(workers(&ledger), [1, 2, 3]);

    // Then the configured numbers, each with the highest mark of all that had it.
    let mut latest = Vec::new();
    for (number, server) in (1..).zip(&servers) {
        let mark = query(server, block("fleet-mark"));
        let reserve = block("fleet-reserve");
        assert!(reserve.contains("5 '2026-11-22 12:00:01+00'"), "{reserve}");
        follow(&fleet.registry, &reserve.replace("5 '2026-11-22 12:00:01+00'", &format!("{number} '{mark}'")));
        latest.push((number, mark));
    }
    follow(&fleet.registry, block("fleet-all"));
    for (number, mark) in latest {
        let until = format!("SELECT ends >= '{mark}' FROM snowflake_registry.fleet WHERE worker = {number}");
        assert_eq!(fleet.registry.connect().value(&until), "true");
    }
    // One of them is leased again, from its mark on.
    fleet.operate(&["set-range", "1", "1"]);
    let late = fleet.member().start_with_extension();
    assert_eq!(late.connect().wait_for_lease(), 1);
    let of_late = Load::start(&late, 4);
    of_late.wait_for(20);
    late.stop(Shutdown::Fast);
    ledger.add(of_late.end_with_refusals().0);
    follow(&fleet.registry, block("fleet-all"));

    // And back: a range without the numbers that are to be configured, until no lease has one of
    // them.
    follow(&fleet.registry, block("fleet-leave"));
    let leased = block("fleet-left");
    fleet.hear_history();
    // 1 to 3 were drawn with until now. 4 to 6 are configured now, and never were leased.
    for row in query(&fleet.registry, leased).lines() {
        assert!(["1|", "2|", "3|"].iter().any(|number| row.starts_with(number)), "{row}");
    }
    in_turn(&servers, &mut loads, &mut ledger, |server, turn| {
        for (name, _) in &lines {
            if name.starts_with("snowflake_id") {
                server.unset_config(name);
            }
        }
        server.set_config("snowflake_id.worker_id", &(turn + 4).to_string());
    });
    assert_eq!(fleet.leased(), [] as [i64; 0]);
    for load in loads {
        ledger.add(load.end());
    }
    assert_unique(&ledger.seen);
    let configured: Vec<_> = workers(&ledger).into_iter().filter(|number| *number < 100).collect();
    assert_eq!(configured, [1, 2, 3, 4, 5, 6]);
}

/// Runs one of PostgreSQL's client programs against a server.
#[track_caller]
fn run(server: &Server, program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = server.client(program).args(arguments).stderr(Stdio::piped()).output().expect("it runs");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Opens the fleet in a registry that was moved, and asserts that nothing is frozen.
#[track_caller]
fn open_moved(registry: &Server) {
    // All servers of a test process have one system identifier. This one is another in life.
    execute(registry, "UPDATE snowflake_registry.fleets SET store = store + 1");
    follow(registry, block("fleet-open"));
    let record = "SELECT generation || ' ' || (f.store = i.system_identifier)::text FROM snowflake_registry.fleets f, \
                  pg_control_system() i";
    assert_eq!(registry.connect().value(record), "1 true");
}

#[test]
fn a_registry_moves_to_another_server_while_the_fleet_draws() {
    let mut fleet = Fleet::start();
    let servers = [(); 2].map(|()| fleet.member().start_with_extension());
    let loads = servers.each_ref().map(|server| Load::start(server, 4));
    loads.iter().for_each(|load| load.wait_for(20));
    // The move may take longer than a life's first lease.
    servers.iter().for_each(|server| fleet.lengthen_the_lease(server));
    let numbers = servers.each_ref().map(|server| server.connect().lease("worker_id"));
    follow(&fleet.registry, block("fleet-close"));
    servers.iter().for_each(Server::reload);
    for server in &servers {
        let mut session = server.connect();
        wait_until("the fleet's end", || session.lease("last_error").starts_with("the fleet is closed"));
        // What a server needs that is left behind, before anything that makes it worse.
        let hint = "HINT:  If the fleet has moved, correct this server's \"snowflake_id.registry\", and reload; do not \
                    restart it. ";
        wait_until(hint, || server.log().contains(hint));
    }
    let dump = run(&fleet.registry, "pg_dump", &["--schema=snowflake_registry"]);
    // The page's pipe, in two steps.
    let target = Server::builder().without_preload().durable().start();
    execute(&target, &format!("CREATE ROLE {ROLE} LOGIN"));
    psql(&target, &[], std::str::from_utf8(&dump).unwrap());
    let old = fleet.replace(target);
    open_moved(&fleet.registry);
    for server in &servers {
        server.set_config("snowflake_id.registry", &fleet.conninfo());
        server.reload();
        let mut session = server.connect();
        wait_until("a renewal", || session.lease("failing_since").is_empty());
    }
    // The old one stays closed.
    drop(old);
    // Nothing is frozen.
    let newcomer = fleet.member().start_with_extension();
    newcomer.connect().wait_for_lease();
    let mut ledger = Ledger::default();
    for (load, (server, number)) in loads.into_iter().zip(servers.iter().zip(numbers)) {
        load.wait_for(20);
        ledger.add(load.end());
        assert_eq!(server.connect().lease("worker_id"), number);
    }
    assert_eq!(fleet.registry.connect().value("SELECT generation FROM snowflake_registry.fleets"), "1");
    fleet.hear_history();
}

/// The way of a server whose restart would be missed: its standby first, and then a switchover.
#[test]
fn a_server_moves_in_by_way_of_its_standby() {
    let fleet = Fleet::start();
    follow(&fleet.registry, block("fleet-range"));
    let primary = Server::drawing().start_with_extension();
    let load = Load::start(&primary, 4);
    load.wait_for(20);
    let standby = primary.standby().start();
    standby.unset_config("snowflake_id.worker_id");
    standby.set_config("snowflake_id.registry", &fleet.conninfo());
    standby.restart();
    let reserved = standby.connect().wait_for_lease();
    load.wait_for(20);
    primary.stop(Shutdown::Fast);
    let (mut ledger, _) = load.end_with_refusals();
    standby.promote();
    let load = Load::start(&standby, 4);
    load.wait_for(20);
    let of_standby = load.end();
    assert_eq!(workers(&of_standby), [u32::try_from(reserved).unwrap()]);
    // What clients were told is there, and what is drawn now lies above it.
    let held = standby.connect().ids("SELECT id FROM ledger").unwrap();
    assert!(ledger.stored.iter().all(|id| held.contains(id)));
    ledger.add(of_standby);
}

/// `pg_upgrade` makes another system identifier, as a move does.
#[test]
fn a_registry_goes_through_pg_upgrade_while_the_fleet_draws() {
    let mut fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    let load = Load::start(&server, 4);
    load.wait_for(20);
    // pg_upgrade may take longer than a life's first lease.
    fleet.lengthen_the_lease(&server);
    let number = server.connect().lease("worker_id");
    follow(&fleet.registry, block("fleet-close"));
    let upgraded = Server::builder().without_preload().durable().start();
    fleet.registry.stop(Shutdown::Fast);
    upgraded.stop(Shutdown::Fast);
    let pg_config = std::env::var_os("PG_CONFIG").unwrap_or_else(|| "pg_config".into());
    let programs = Command::new(pg_config).arg("--bindir").output().expect("there is a pg_config").stdout;
    let programs = std::str::from_utf8(&programs).unwrap().trim_end();
    let mut pg_upgrade = upgraded.client("pg_upgrade");
    pg_upgrade.args(["--username=postgres", "--no-sync", "--old-bindir", programs, "--new-bindir", programs]);
    pg_upgrade.arg("--old-datadir").arg(fleet.registry.data_dir()).arg("--new-datadir").arg(upgraded.data_dir());
    let output = pg_upgrade.output().expect("pg_upgrade runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    upgraded.start_again();
    let _old = fleet.replace(upgraded);
    open_moved(&fleet.registry);
    server.set_config("snowflake_id.registry", &fleet.conninfo());
    server.reload();
    let mut session = server.connect();
    wait_until("a renewal", || session.lease("failing_since").is_empty());
    load.wait_for(20);
    let _ = load.end();
    assert_eq!(session.lease("worker_id"), number);
    fleet.member().start_with_extension().connect().wait_for_lease();
    assert_eq!(fleet.registry.connect().value("SELECT generation FROM snowflake_registry.fleets"), "1");
    fleet.hear_history();
}

#[test]
fn the_alarms_of_the_registry_name_what_is_short() {
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    server.connect().wait_for_lease();
    assert_eq!(query(&fleet.registry, block("fleet-alarm")), "");
    fleet.operate(&["set-range", "0", "1"]);
    fleet.operate(&["close"]);
    let alarm = query(&fleet.registry, block("fleet-alarm"));
    assert!(alarm.starts_with("default|") && alarm.contains("|t|"), "{alarm}");
    // A number that is held, and that the range has left out since.
    fleet.operate(&["open", "--not-moved"]);
    fleet.operate(&["set-range", "0", "1023"]);
    assert_eq!(query(&fleet.registry, block("fleet-alarm")), "");
    let number = server.connect().lease("worker_id");
    // A hundred others of the layout's.
    let first = number.parse::<i64>().map(|number| if number < 900 { number + 1 } else { number - 100 }).unwrap();
    fleet.operate(&["set-range", &first.to_string(), &(first + 99).to_string()]);
    let alarm = query(&fleet.registry, block("fleet-alarm"));
    assert!(alarm.contains("|100|0|1|"), "{alarm}");
    follow(&fleet.registry, block("fleet-prune"));
}

/// Returns the page's string with which members reach a registry that is on one of two servers.
fn either(servers: [&Server; 2]) -> String {
    let hosts = servers.map(|server| server.data_dir().parent().unwrap().display().to_string());
    let (name, string) = settings(block("fleet-own"))[1];
    assert!(name == "snowflake_id.registry" && string.starts_with("host=a.example,b.example dbname=ids "), "{string}");
    string.replace("a.example,b.example dbname=ids", &format!("'{}' dbname=postgres", hosts.join(",")))
}

/// A primary that is also the registry fails over to its standby, with and without a lease there.
#[test]
fn a_registry_on_a_members_own_server_fails_over_with_it() {
    for standby_has_lease in [true, false] {
        // The registry is made when the server is there.
        let primary = Server::builder().durable().set("registry", "host=/nonexistent").start_with_extension();
        primary.make_registry();
        primary.limit_leases("20s", "500ms");
        if !standby_has_lease {
            // More than half are taken, so that the standby leaves the rest alone.
            primary.operate(&["set-range", "7", "10"]);
            for number in ["8", "9"] {
                primary.operate(&["reserve", number, "in 1 hour"]);
            }
        }
        primary.set_config("snowflake_id.registry", &primary.registry_conninfo());
        primary.reload();
        primary.connect().wait_for_lease();
        let mut ids = primary.connect().draw_batch(100);
        if standby_has_lease {
            // It asks when it can be answered, or once before.
            let length = primary.log_length();
            primary.restart();
            ids.extend(primary.connect().draw_batch(100));
            let log = primary.log_since(length);
            assert!(log.matches("no worker number is leased, and the server draws no ids").count() <= 1, "{log}");
        }

        let standby = primary.standby().start();
        let registry = either([&primary, &standby]);
        for server in [&primary, &standby] {
            server.set_config("snowflake_id.registry", &registry);
            server.reload();
        }
        let mut session = standby.connect();
        if standby_has_lease {
            session.wait_for_lease();
        } else {
            wait_until("an answer of the registry", || !session.lease("incarnation").is_empty());
            assert_eq!(session.lease("state"), "none");
        }
        standby.wait_until_replayed(&primary.flushed());
        primary.crash();
        standby.promote();
        let mut session = standby.connect();
        if standby_has_lease {
            ids.extend(session.draw_batch(100));
        } else {
            wait_until("the freeze", || session.lease("last_error").starts_with("no number can be used before"));
            assert_eq!(refused(session.ids("SELECT snowflake_next()")).sqlstate, "58000");
            session.wait_for_lease();
            ids.extend(session.draw_batch(100));
        }
        let frozen = "SELECT generation > 1 FROM snowflake_registry.fleets";
        wait_until("another generation", || session.value(frozen) == "true");
        assert_unique(&ids);
    }
}
