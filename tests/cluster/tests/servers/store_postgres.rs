//! The store in a real PostgreSQL (`src/registry/postgres.rs`): what `store.rs` shows of both, and
//! what only PostgreSQL has, which are constraints, columns that are added and roles. None of these
//! needs the extension. `fleet_security/thief.rs` shows what the registry refuses.

use std::thread;

use cluster::registry::{
    Poll, ROLE, lease, now_ms, number, of_number, of_tag, operator_config, swaps, tag, tag_record,
};
use cluster::{Draw, Server, wait_until};
use snowflake_core::fleet::registry::{Fleet, MOST_CHANGES, RecordChange, Store, Swap, TagRecord, Wanted};
use snowflake_registry::{Postgres, Registry, RegistryError};

/// A registry with an operator.
fn registry() -> (Server, Postgres<Poll>) {
    let server = Server::builder().without_preload().durable().start();
    server.make_registry();
    let operator = operator(&server);
    (server, operator)
}

fn operator(server: &Server) -> Postgres<Poll> {
    Postgres::new(operator_config(&server.conninfo()), Poll)
}

#[test]
fn what_no_table_has_is_refused_whoever_writes() {
    let (_server, operator) = registry();
    let before = operator.read(&Wanted::all()).unwrap();
    let far = now_ms() + 60_000;
    let made = of_number(7, None, lease(1, 1, (10, far)));
    let refused = |changes| match operator.swap(&Swap::after(&before, changes)) {
        Err(RegistryError::Refused(said)) => said.sqlstate,
        other => panic!("{other:?}"),
    };
    for wrong in [
        of_number(8, None, lease(1, 1, (far, far - 1))),
        of_number(-1, None, lease(1, 1, (10, far))),
        of_tag("invoices", None, Some(TagRecord { steps: (50, 5), ..tag_record(1, 1) })),
        RecordChange::Fleet(Fleet { longest_ms: 2_592_000_001, ..before.fleet }),
        RecordChange::Fleet(Fleet { skew_ms: 3_600_001, ..before.fleet }),
        RecordChange::Fleet(Fleet { range: Some((9, 7)), ..before.fleet }),
    ] {
        assert_eq!(refused(vec![made.clone(), wrong.clone()]), "23514", "{wrong:?}");
    }
    let tags = (0..=MOST_CHANGES).map(|at| of_tag(&format!("tag {at}"), None, Some(tag_record(1, 1))));
    assert_eq!(refused(tags.collect()), "SF005");
    assert!(operator.read(&Wanted::all()).unwrap().numbers.is_empty());
}

/// As in a registry of a later version, or one to which an operator has added columns.
#[test]
fn columns_that_are_not_known_are_kept() {
    let (server, operator) = registry();
    let far = now_ms() + 60_000;
    let reading = operator.read(&Wanted::default()).unwrap();
    let made = vec![of_number(7, None, lease(1, 1, (10, far))), of_tag("orders", None, Some(tag_record(1, 1)))];
    assert!(swaps(&operator, &reading, made));
    let tables = ["fleets", "numbers", "tags"];
    let add = |table| {
        format!(
            "ALTER TABLE snowflake_registry.{table} ADD COLUMN note text, ADD COLUMN big numeric; \
             UPDATE snowflake_registry.{table} SET note = 'by hand', big = 1e40;"
        )
    };
    let mut session = server.connect();
    session.batch_execute(&tables.map(add).concat()).unwrap();
    let reading = operator.read(&Wanted::all()).unwrap();
    let changed = vec![
        RecordChange::Fleet(Fleet { closed: true, version: 2, ..reading.fleet }),
        of_number(7, Some(1), lease(1, 2, (10, far))),
        of_tag("orders", Some(reading.tags[&tag("orders")].nonce), Some(tag_record(9, 2))),
    ];
    assert!(swaps(&operator, &reading, changed));
    let after = operator.read(&Wanted::all()).unwrap();
    let nonces = (after.fleet.version, after.numbers[&number(7)].nonce, after.tags[&tag("orders")].nonce);
    assert_eq!(nonces, (2, 2, 2));
    for table in tables {
        let kept = session.query(&format!("SELECT note, big::text FROM snowflake_registry.{table}"), &[]).unwrap();
        let kept: Vec<(&str, &str)> = kept.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(kept, [("by hand", &*format!("1{}", "0".repeat(40)))], "{table}");
    }
}

/// The number's row is not there yet when the swap looks for it.
#[test]
fn a_record_that_two_make_at_a_time_is_made_once() {
    let (server, operator) = registry();
    let reading = operator.read(&Wanted::all()).unwrap();
    assert!(swaps(&operator, &reading, vec![of_tag("orders", None, Some(tag_record(1, 1)))]));
    let mut other = server.connect();
    let mut observer = server.connect();
    for (worker, is_alone) in [(7, true), (8, false)] {
        let reading = operator.read(&Wanted::all()).unwrap();
        let mut transaction = other.transaction().unwrap();
        let insert = format!(
            "INSERT INTO snowflake_registry.numbers SELECT 'default', -1, {worker}, gen_random_uuid(), 99, 1, 5, 0, 1, \
             1, 0, 0, 'other', 1, '', ''"
        );
        transaction.batch_execute(&insert).unwrap();
        let mut changes = vec![of_number(worker, None, lease(1, 1, (10, 20)))];
        if !is_alone {
            changes.push(of_tag("orders", Some(1), Some(tag_record(9, 2))));
        }
        thread::scope(|scope| {
            let swap = scope.spawn(|| swaps(&self::operator(&server), &reading, changes));
            wait_until("its wait", || {
                let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid'";
                observer.value(waits) == "1"
            });
            transaction.commit().unwrap();
            assert!(!swap.join().unwrap());
        });
        let after = operator.read(&Wanted::all()).unwrap();
        assert_eq!((after.numbers[&number(worker)].nonce, after.tags[&tag("orders")].next), (99, 1));
    }
}

#[test]
fn a_server_is_no_operator() {
    let (server, _operator) = registry();
    let conninfo = server.registry_conninfo();
    let thief = Postgres::new(operator_config(&conninfo), Poll);
    let reading = thief.read(&Wanted::default()).unwrap();
    let said = "role \"snowflake\" is not an operator of the registry".to_owned();
    assert_eq!(thief.read(&Wanted::all()), Err(RegistryError::NoOperator(said.clone())));
    assert_eq!(thief.swap(&Swap::after(&reading, vec![])), Err(RegistryError::NoOperator(said)));
    let is_refused = |error: RegistryError| assert!(matches!(error, RegistryError::NoOperator(_)), "{error:?}");
    is_refused(thief.now().unwrap_err());
    is_refused(thief.create_fleet(&reading.fleet).unwrap_err());
    is_refused(thief.fleets().unwrap_err());
    is_refused(thief.names().unwrap_err());
    is_refused(thief.descriptions().unwrap_err());
    is_refused(thief.describe_tag(tag("orders"), "mine").unwrap_err());
    is_refused(thief.prune(now_ms()).unwrap_err());
    is_refused(thief.create(None).unwrap_err());
    // A member of the owner's role is one.
    let owner = "CREATE ROLE alice LOGIN; GRANT postgres TO alice";
    server.connect().batch_execute(owner).unwrap();
    let alice = Postgres::new(operator_config(&conninfo.replace(&format!("user={ROLE}"), "user=alice")), Poll);
    assert!(swaps(&alice, &reading, vec![RecordChange::Fleet(Fleet { version: 2, ..reading.fleet })]));
}

/// The program runs the file over its connection.
#[test]
fn an_operator_makes_the_registry_over_one_connection() {
    let server = Server::builder().without_preload().durable().start();
    let said = |owner: Option<&str>| -> Vec<String> {
        let notices = operator(&server).create(owner).unwrap();
        notices.into_iter().map(|notice| notice.message).collect()
    };
    server
        .connect()
        .batch_execute("CREATE ROLE \"the 'dba'\"; GRANT CREATE ON DATABASE postgres TO \"the 'dba'\"")
        .unwrap();
    let made = said(Some("the 'dba'"));
    assert!(
        matches!(&made[..], [only] if only.starts_with("registry is made: fleet \"default\" is there")),
        "{made:?}"
    );
    let operator = operator(&server);
    let error = operator.create(None).unwrap_err();
    let refusal = "schema \"snowflake_registry\" belongs to role \"the 'dba'\", and not to \"postgres\"";
    assert_eq!(error, RegistryError::NoOperator(refusal.to_owned()));
    // The connection is not left in a transaction that has failed, nor in the owner's role.
    let same = said(Some("the 'dba'"));
    assert_eq!(
        same,
        ["this database had a registry already: records and rights are as they were", "nothing has changed"]
    );
    assert_eq!(operator.fleets().unwrap(), ["default"]);
    assert!(operator.create(Some("the 'dba'")).is_ok() && operator.create(None).is_err());
    // One that has no schema yet.
    server.connect().batch_execute("DROP SCHEMA snowflake_registry CASCADE; CREATE ROLE poor LOGIN").unwrap();
    let poor = Postgres::new(operator_config(&server.conninfo().replace("user=postgres", "user=poor")), Poll);
    assert!(matches!(poor.create(None), Err(RegistryError::NoOperator(said)) if said.contains("permission denied")));
}
