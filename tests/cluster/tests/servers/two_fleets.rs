//! Servers that are started with the registry of another fleet: each database stores which fleet
//! leases numbers for its ids, and refuses another one until an operator accepts it.

use cluster::operator::commands;
use cluster::pages::{block, psql};
use cluster::refusal::assert_refused_as;
use cluster::{Draw, Fleet, Leases, Operated, Server, Shutdown, assert_unique, refused, wait_until};

const DRAW: &str = "SELECT snowflake_next()";
const ANOTHER: &str = "this database belongs to another fleet than the one that leases the server's number";

/// Returns how the fleet's uuid begins, as the error says it.
fn beginning(fleet: &Fleet) -> String {
    fleet.registry.connect().value("SELECT left(uuid::text, 13) FROM snowflake_registry.fleets")
}

/// Restarts the server with another fleet's registry.
fn join(server: &Server, fleet: &Fleet) {
    server.set_config("snowflake_id.registry", &fleet.conninfo());
    server.restart();
    server.connect().wait_for_lease();
}

#[test]
fn a_database_refuses_another_fleet_until_it_is_accepted() {
    let [home, elsewhere] = [(); 2].map(|()| Fleet::start());
    let server = home.member().start_with_extension();
    server.connect().batch_execute("CREATE DATABASE unused").unwrap();
    let mut ids = server.connect().ids(DRAW).unwrap();
    join(&server, &elsewhere);
    let mut session = server.connect();
    let refusal = refused(session.query(DRAW, &[]));
    assert_refused_as(&refusal, "55000", ANOTHER);
    let [own, other] = [&home, &elsewhere].map(beginning);
    let expected = format!(
        "The uuid of the database's fleet begins with {own}, and that of the server's with {other}. Servers of two \
         fleets can draw the same ids."
    );
    assert_eq!(refusal.detail.as_deref(), Some(expected.as_str()));
    let entry = "for good, call snowflake_accept_fleet(). See \"Another fleet\" in docs/runbook.md.";
    assert!(refusal.hint.unwrap().ends_with(entry));
    assert_refused_as(&refused(session.batch_execute("SELECT snowflake_reset_mark()")), "55000", ANOTHER);
    // Each refused draw is counted, and the first one is logged.
    assert_eq!(session.lease("fleet_refused || ' ' || refused"), "1 0");
    assert!(server.log().contains(&format!("draws are refused: {ANOTHER}")), "{}", server.log());
    assert_eq!(psql(&server, &["--tuples-only"], block("lease-alarm")).lines().count(), 1);
    // A database in which no lease was used yet takes the server's.
    let mut unused = server.connect_to("unused");
    unused.batch_execute("CREATE EXTENSION snowflake_id").unwrap();
    assert_eq!(unused.ids(DRAW).unwrap().len(), 1);
    // At home again, it is the other way round.
    join(&server, &home);
    ids.extend(server.connect().ids(DRAW).unwrap());
    assert_refused_as(&refused(server.connect_to("unused").query(DRAW, &[])), "55000", ANOTHER);
    // What is accepted survives a crash, and home is now the other fleet.
    join(&server, &elsewhere);
    server.connect().batch_execute("SELECT snowflake_accept_fleet()").unwrap();
    ids.extend(server.connect().ids(DRAW).unwrap());
    server.crash();
    server.start_again();
    ids.extend(server.connect().ids(DRAW).unwrap());
    join(&server, &home);
    assert_refused_as(&refused(server.connect().query(DRAW, &[])), "55000", ANOTHER);
    assert_unique(&ids);
}

/// The servers of a fleet share its databases' ids through replication and backups, and go on.
#[test]
fn a_standby_and_a_copy_belong_to_the_fleet_and_so_does_a_registry_made_again_with_its_uuid() {
    let mut fleet = Fleet::start().limited("3s", "1s");
    let server = fleet.member().start_with_extension();
    let mut ids = server.connect().ids(DRAW).unwrap();
    let standby = server.standby().start();
    let copy = server.base_backup().alone().start();
    standby.promote();
    for other in [&standby, &copy] {
        ids.extend(other.connect().ids(DRAW).unwrap());
    }
    let uuid = server.connect().lease("fleet");
    assert_eq!(uuid, fleet.registry.connect().value("SELECT uuid::text FROM snowflake_registry.fleets"));
    // The registry is lost, and made again with the uuid that every server shows.
    let again = Fleet::start();
    let mut command = commands(block("fleet-again"));
    for (shown, used) in [("1b4e28ba-2fa1-41d2-883f-0016d3cca427", uuid.as_str()), ("10 min", "3 s"), ("1 min", "1 s")]
    {
        assert!(command.contains(shown), "{command}");
        command = command.replace(shown, used);
    }
    again.enter(&command);
    drop(fleet.replace(again.registry));
    server.set_config("snowflake_id.registry", &fleet.conninfo());
    server.reload();
    let mut session = server.connect();
    wait_until("a lease from the new registry", || !fleet.leased().is_empty());
    ids.extend(session.ids(DRAW).unwrap());
    assert_unique(&ids);
}

#[test]
fn a_configured_number_belongs_to_no_fleet() {
    let fleet = Fleet::start();
    let server = fleet.member().start_with_extension();
    let mut ids = server.connect().ids(DRAW).unwrap();
    server.stop(Shutdown::Fast);
    server.unset_config("snowflake_id.registry");
    server.set_config("snowflake_id.worker_id", "7");
    server.start_again();
    let mut session = server.connect();
    ids.extend(session.ids(DRAW).unwrap());
    let refusal = refused(session.batch_execute("SELECT snowflake_accept_fleet()"));
    assert_refused_as(&refusal, "55000", "this server belongs to no fleet, because its worker number is set");
    // It is still remembered.
    server.unset_config("snowflake_id.worker_id");
    join(&server, &Fleet::start());
    assert_refused_as(&refused(server.connect().query(DRAW, &[])), "55000", ANOTHER);
    join(&server, &fleet);
    ids.extend(server.connect().ids(DRAW).unwrap());
    assert_unique(&ids);
}

/// A dump carries layout and marks into a database of any fleet, but not the fleet.
#[test]
fn a_dump_carries_no_fleet() {
    let [home, elsewhere] = [(); 2].map(|()| Fleet::start());
    let [from, to] = [&home, &elsewhere].map(|fleet| fleet.member().start_with_extension());
    let mut session = from.connect();
    session
        .batch_execute("CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_next()); INSERT INTO t DEFAULT VALUES")
        .unwrap();
    to.connect().batch_execute("CREATE DATABASE restored").unwrap();
    to.restore(&from.dump("postgres", "postgres", &[]), "restored", &[]);
    let mut restored = to.connect_to("restored");
    restored.batch_execute("INSERT INTO t DEFAULT VALUES").unwrap();
    assert_eq!(restored.value("SELECT count(*)::text FROM t"), "2");
}

/// The library may be newer than the objects of a database, for as long as an operator likes.
#[test]
fn a_database_that_is_not_updated_draws_as_before_and_keeps_its_fleet_once_it_is() {
    const KEPT: &str = "SELECT is_called::text FROM snowflake_mark_fleet";
    let fleet = Fleet::start();
    let server = fleet.member().start();
    let mut session = server.connect();
    session.batch_execute("CREATE EXTENSION snowflake_id VERSION '0.2.0'").unwrap();
    let mut ids = session.ids(DRAW).unwrap();
    // The mark moves several times, and no draw waits for it.
    let waits = |session: &mut postgres::Client| session.value("SELECT mark_waits::text FROM snowflake_stat");
    let before = waits(&mut session);
    let seconds = "SELECT extract(epoch FROM clock_timestamp())::bigint";
    let end = session.ids(seconds).unwrap()[0] + 4;
    while session.ids(seconds).unwrap()[0] < end {
        ids.extend(session.ids(DRAW).unwrap());
    }
    assert_eq!(waits(&mut session), before);
    let mut open = server.connect();
    ids.extend(open.ids(DRAW).unwrap());
    // An update that is rolled back leaves nothing behind in the session.
    session.batch_execute("BEGIN; ALTER EXTENSION snowflake_id UPDATE").unwrap();
    session.batch_execute("SELECT snowflake_accept_fleet()").unwrap();
    session.batch_execute("ROLLBACK").unwrap();
    ids.extend(session.ids(DRAW).unwrap());
    let before = waits(&mut session);
    session.batch_execute("ALTER EXTENSION snowflake_id UPDATE").unwrap();
    // Sessions that are open notice the update when the mark moves next.
    wait_until("the fleet", || {
        ids.extend(open.ids(DRAW).unwrap());
        session.value(KEPT) == "true"
    });
    assert_eq!(waits(&mut session), before);
    assert_unique(&ids);
}

#[test]
fn a_fleet_is_not_accepted_where_there_is_no_place_for_it() {
    let fleet = Fleet::start();
    let server = fleet.member().start();
    let mut session = server.connect();
    session.batch_execute("CREATE EXTENSION snowflake_id VERSION '0.2.0'").unwrap();
    session.ids(DRAW).unwrap();
    // As an operator may do it: the function is created by hand, the sequence is not.
    session
        .batch_execute(
            "CREATE FUNCTION accept() RETURNS void LANGUAGE c AS '$libdir/snowflake_id', 'snowflake_accept_fleet_wrapper'",
        )
        .unwrap();
    let refusal = refused(session.batch_execute("SELECT accept()"));
    assert_refused_as(
        &refusal,
        "55000",
        "the extension's objects in this database are older than the server's library",
    );
    session.batch_execute("ALTER EXTENSION snowflake_id UPDATE; SELECT snowflake_accept_fleet()").unwrap();
    assert_eq!(session.value("SELECT is_called::text FROM snowflake_mark_fleet"), "true");
}
