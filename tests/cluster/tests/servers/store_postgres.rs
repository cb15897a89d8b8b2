//! The store in a real PostgreSQL (`src/registry/postgres.rs`), as servers and operators use it:
//! what is read, what a swap compares, and what only operators do. None of these needs the
//! extension. `fleet_security/thief.rs` shows what the registry refuses.

use std::collections::BTreeMap;
use std::thread;

use cluster::registry::{Poll, ROLE, config, now_ms, number, operator_config};
use cluster::{Draw, Server, wait_until};
use snowflake_core::registry::{
    Change, Fleet, Incarnation, MOST_CHANGES, NumberKey, NumberRecord, Reading, Store, Swap, SwapAnswer, TagRecord,
    Wanted, WantedNumbers, WantedTags,
};
use snowflake_core::segment::END;
use snowflake_core::tag::Tag;
use snowflake_registry::{Config, MemberName, Postgres, Registry, RegistryError};

/// A registry whose fleet has the numbers 7 to 9, with an operator.
fn registry() -> (Server, Postgres<Poll>) {
    let server = Server::builder().without_preload().durable().start();
    server.make_registry();
    let operator = operator(&server);
    let reading = operator.read(&Wanted::default()).unwrap();
    let fleet = Fleet {
        layout: Some((5, false)),
        range: Some((7, 9)),
        longest_ms: 600_000,
        skew_ms: 60_000,
        version: 1,
        ..reading.fleet
    };
    assert!(swaps(&operator, &reading, vec![Change::Fleet(fleet)]));
    (server, operator)
}

fn operator(server: &Server) -> Postgres<Poll> {
    Postgres::new(operator_config(&server.conninfo()), Poll)
}

fn member(server: &Server) -> Postgres<Poll> {
    Postgres::new(config(&server.registry_conninfo()), Poll)
}

fn lease(holder: u128, nonce: u64, until_ms: i64) -> NumberRecord {
    NumberRecord {
        holder,
        nonce,
        count: nonce,
        server: 5,
        from_ms: now_ms() - 1000,
        until_ms,
        generation: 1,
        renewed_ms: 0,
        offset_ms: 0,
    }
}

fn tag(name: &str) -> Tag {
    Tag::new(name).unwrap()
}

fn tag_record(next: i64, nonce: u64) -> TagRecord {
    TagRecord { id: 1, next, steps: (5, 50), jumps: false, nonce, generation: 1, written_ms: 2, returnable: END }
}

fn of_number(worker: i64, was: Option<u64>, record: NumberRecord) -> Change {
    Change::Number { number: number(worker), was, record }
}

fn of_tag(name: &str, was: Option<u64>, record: Option<TagRecord>) -> Change {
    Change::Tag { tag: tag(name), was, record }
}

/// Swaps after a reading. Returns whether it was done.
#[track_caller]
fn swaps(store: &Postgres<Poll>, reading: &Reading, changes: Vec<Change>) -> bool {
    match store.swap(&Swap::after(reading, changes)).expect("the registry answers") {
        SwapAnswer::Done(after) => {
            assert_eq!(after, reading.incarnation);
            true
        }
        SwapAnswer::Refused => false,
    }
}

#[test]
fn only_what_is_wanted_is_read() {
    let (server, operator) = registry();
    let reading = operator.read(&Wanted::all()).unwrap();
    let far = now_ms() + 60_000;
    let of = |datacenter, worker, nonce| {
        let number = NumberKey::new(datacenter, worker);
        Change::Number { number, was: None, record: lease(1, nonce, far) }
    };
    let longest = "ä".repeat(31) + "x";
    let odd = ["we\"ird\\{},NULL", " a 'b' ", "NULL", "\u{1}", &longest];
    let mut changes = vec![of(None, 7, 1), of(None, 8, 2), of(Some(0), 7, 3), of(Some(31), 9, 4)];
    changes.extend(odd.iter().map(|name| of_tag(name, None, Some(tag_record(1, 1)))));
    assert!(swaps(&operator, &reading, changes));

    let wanted = |numbers, tags| {
        let Reading { numbers, tags, .. } = operator.read(&Wanted { numbers, tags }).unwrap();
        (numbers.values().map(|record| record.nonce).collect::<Vec<_>>(), tags.into_keys().collect::<Vec<_>>())
    };
    for (numbers, nonces) in [
        (WantedNumbers::None, vec![]),
        (WantedNumbers::One(NumberKey::new(None, 7)), vec![1]),
        (WantedNumbers::One(NumberKey::new(Some(0), 7)), vec![3]),
        (WantedNumbers::One(NumberKey::new(Some(1), 7)), vec![]),
        (WantedNumbers::Of(None), vec![1, 2]),
        (WantedNumbers::Of(Some(31)), vec![4]),
        (WantedNumbers::All, vec![1, 2, 3, 4]),
    ] {
        assert_eq!(wanted(numbers, WantedTags::None), (nonces, vec![]), "{numbers:?}");
    }
    let mut all: Vec<_> = odd.iter().map(|name| tag(name)).collect();
    all.sort_unstable();
    assert_eq!(wanted(WantedNumbers::None, WantedTags::All), (vec![], all.clone()));
    for name in all {
        let named = WantedTags::Named(vec![name, tag("unknown")]);
        assert_eq!(wanted(WantedNumbers::None, named), (vec![], vec![name]));
    }
    // Of another fleet, nothing.
    let other = Postgres::new(Config { fleet: "other".to_owned(), ..operator.config().clone() }, Poll);
    assert!(other.create_fleet(&Fleet { uuid: 7, ..reading.fleet }).unwrap());
    let read = other.read(&Wanted::all()).unwrap();
    assert_eq!((read.numbers, read.tags), (BTreeMap::new(), BTreeMap::new()));
    drop(server);
}

#[test]
fn a_swap_is_done_whole_or_not_at_all() {
    let (_server, operator) = registry();
    let reading = operator.read(&Wanted::all()).unwrap();
    let far = now_ms() + 60_000;
    let made = vec![of_number(7, None, lease(1, 1, far)), of_tag("orders", None, Some(tag_record(1, 1)))];
    assert!(swaps(&operator, &reading, made.clone()));
    let before = operator.read(&Wanted::all()).unwrap();
    let fleet = |version| Change::Fleet(Fleet { clock_skew_ms: 7, version, ..before.fleet });
    let renewed = |was| of_number(7, was, lease(1, 2, far + 1));
    let raised = |was| of_tag("orders", was, Some(tag_record(9, 2)));
    for wrong in [
        made,
        vec![fleet(2), renewed(Some(1)), raised(Some(3))],
        vec![fleet(2), renewed(Some(3)), raised(Some(1))],
        vec![fleet(2), renewed(Some(1)), raised(None)],
        vec![renewed(None), raised(Some(1))],
        vec![of_number(8, Some(1), lease(1, 2, far)), raised(Some(1))],
        vec![renewed(Some(1)), of_tag("invoices", Some(1), Some(tag_record(1, 2)))],
        vec![renewed(Some(1)), of_tag("orders", Some(3), None)],
        vec![renewed(Some(3))],
        vec![raised(Some(3))],
        vec![of_tag("orders", Some(3), None)],
        vec![of_number(7, None, lease(1, 2, far))],
    ] {
        assert!(!swaps(&operator, &before, wrong.clone()), "{wrong:?}");
        let after = operator.read(&Wanted::all()).unwrap();
        let same = |reading: &Reading| (reading.fleet, reading.numbers.clone(), reading.tags.clone());
        assert_eq!(same(&after), same(&before), "{wrong:?}");
    }
    // What no table has, whoever writes.
    for wrong in [
        of_number(8, None, NumberRecord { from_ms: far, ..lease(1, 1, far - 1) }),
        of_number(-1, None, lease(1, 1, far)),
        of_tag("invoices", None, Some(TagRecord { steps: (50, 5), ..tag_record(1, 1) })),
        Change::Fleet(Fleet { longest_ms: 2_592_000_001, ..before.fleet }),
        Change::Fleet(Fleet { skew_ms: 3_600_001, ..before.fleet }),
        Change::Fleet(Fleet { range: Some((9, 7)), ..before.fleet }),
    ] {
        let error = operator.swap(&Swap::after(&before, vec![renewed(Some(1)), wrong.clone()])).unwrap_err();
        assert!(matches!(&error, RegistryError::Refused(said) if said.sqlstate == "23514"), "{wrong:?}: {error:?}");
    }
    assert!(swaps(&operator, &before, vec![fleet(2), renewed(Some(1)), raised(Some(1))]));
    let after = operator.read(&Wanted::all()).unwrap();
    assert_eq!((after.fleet.clock_skew_ms, after.tags[&tag("orders")].next), (7, 9));
    assert_eq!(after.numbers[&number(7)].until_ms, far + 1);
    assert!(swaps(&operator, &after, vec![of_tag("orders", Some(2), None)]));
    assert!(operator.read(&Wanted::all()).unwrap().tags.is_empty());
}

/// As in a registry of a later version, or one to which an operator has added columns.
#[test]
fn columns_that_are_not_known_are_kept() {
    let (server, operator) = registry();
    let far = now_ms() + 60_000;
    let reading = operator.read(&Wanted::default()).unwrap();
    let made = vec![of_number(7, None, lease(1, 1, far)), of_tag("orders", None, Some(tag_record(1, 1)))];
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
        Change::Fleet(Fleet { closed: true, version: 2, ..reading.fleet }),
        of_number(7, Some(1), lease(1, 2, far)),
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

#[test]
fn a_hundred_records_are_changed_in_one_swap() {
    let (_server, operator) = registry();
    let reading = operator.read(&Wanted::all()).unwrap();
    let names: Vec<_> = (0..=MOST_CHANGES).map(|at| format!("tag {at}")).collect();
    let mut made: Vec<_> = names.iter().map(|name| of_tag(name, None, Some(tag_record(1, 1)))).collect();
    let error = operator.swap(&Swap::after(&reading, made.clone())).unwrap_err();
    assert!(matches!(&error, RegistryError::Refused(said) if said.sqlstate == "SF005"), "{error:?}");
    made.pop();
    assert!(swaps(&operator, &reading, made));
    let reading = operator.read(&Wanted::all()).unwrap();
    assert_eq!(reading.tags.len(), MOST_CHANGES);
    let raised = |name: &String| of_tag(name, Some(1), Some(tag_record(2, 2)));
    assert!(swaps(&operator, &reading, names.iter().take(MOST_CHANGES).map(raised).collect()));
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
        let mut changes = vec![of_number(worker, None, lease(1, 1, now_ms() + 60_000))];
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

/// The holder goes on with it, and people still see whose it is.
#[test]
fn a_lease_that_an_operator_cuts_is_still_its_holders() {
    let (server, operator) = registry();
    let holder = member(&server);
    let reading = holder.read(&Wanted::numbers_of(None)).unwrap();
    let first = lease(1, 1, now_ms() + 500_000);
    assert!(swaps(&holder, &reading, vec![of_number(7, None, first)]));
    let cut = NumberRecord { from_ms: first.from_ms - 500, until_ms: first.until_ms - 100_000, nonce: 2, ..first };
    assert!(swaps(&operator, &reading, vec![of_number(7, Some(1), cut)]));
    let name = &holder.config().member;
    assert_eq!(operator.names().unwrap(), [(number(7), name.clone())].into());
    let history = "SELECT (from_ms, until_ms, host)::text FROM snowflake_registry.history";
    assert_eq!(server.connect().value(history), format!("({},,{})", cut.from_ms, name.host));
    let renewed = NumberRecord { nonce: 3, count: 3, until_ms: first.until_ms, ..cut };
    assert!(swaps(&holder, &reading, vec![of_number(7, Some(2), renewed)]));
    // A number that an operator keeps is no server's.
    let kept = NumberRecord { holder: 9, nonce: 4, server: 0, count: 4, from_ms: renewed.until_ms, ..renewed };
    assert!(swaps(&operator, &reading, vec![of_number(7, Some(3), kept)]));
    assert_eq!(operator.names().unwrap(), [(number(7), MemberName::default())].into());
    assert_eq!(server.connect().value("SELECT secret FROM snowflake_registry.numbers"), "NULL");
    assert_eq!(server.connect().value("SELECT state FROM snowflake_registry.fleet"), "reserved");
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
    assert!(swaps(&alice, &reading, vec![Change::Fleet(Fleet { version: 2, ..reading.fleet })]));
}

#[test]
fn an_operator_makes_fleets_and_describes_tags() {
    let (server, operator) = registry();
    let other = Postgres::new(Config { fleet: "the 'other' \"fleet\"".to_owned(), ..operator.config().clone() }, Poll);
    let fleet = Fleet {
        uuid: 7,
        incarnation: Incarnation { store: 0, timeline: 0, counts: [0; 2] },
        ..operator.read(&Wanted::default()).unwrap().fleet
    };
    assert_eq!((other.create_fleet(&fleet), other.create_fleet(&fleet)), (Ok(true), Ok(false)));
    let reading = other.read(&Wanted::all()).unwrap();
    let (now, clock_ms) = operator.now().unwrap();
    assert_eq!(reading.fleet, Fleet { incarnation: now, ..fleet });
    assert!((reading.now_ms..reading.now_ms + 60_000).contains(&clock_ms));
    assert_eq!(operator.fleets().unwrap(), ["default", "the 'other' \"fleet\""]);

    assert!(swaps(&other, &reading, vec![of_tag("orders", None, Some(tag_record(1, 1)))]));
    assert_eq!(
        (other.describe_tag(tag("orders"), "what for\n"), operator.describe_tag(tag("orders"), "x")),
        (Ok(true), Ok(false))
    );
    assert_eq!(other.descriptions().unwrap(), [(tag("orders"), "what for\n".to_owned())].into());
    // It is no change for servers, and theirs keeps it.
    let reading = other.read(&Wanted::all()).unwrap();
    assert_eq!(reading.tags[&tag("orders")], tag_record(1, 1));
    let server_of_other =
        Postgres::new(Config { fleet: other.config().fleet.clone(), ..config(&server.registry_conninfo()) }, Poll);
    let block = TagRecord { returnable: 1, ..tag_record(11, 2) };
    assert!(swaps(&server_of_other, &reading, vec![of_tag("orders", Some(1), Some(block))]));
    assert_eq!(other.descriptions().unwrap().len(), 1);
    assert_eq!((other.describe_tag(tag("orders"), ""), other.descriptions().unwrap().len()), (Ok(true), 0));
}

#[test]
fn the_history_is_pruned_but_for_the_last_lease_of_each_number() {
    let (server, operator) = registry();
    let reading = operator.read(&Wanted::all()).unwrap();
    let mut was = None;
    for (nonce, from_ms) in [(1, 1000), (2, 2000), (3, 3000)] {
        let record = NumberRecord { from_ms, ..lease(nonce.into(), nonce, from_ms + 1000) };
        assert!(swaps(&operator, &reading, vec![of_number(7, was, record)]));
        was = Some(nonce);
    }
    let mut session = server.connect();
    let mut left =
        || session.value("SELECT string_agg(from_ms::text, ' ' ORDER BY from_ms) FROM snowflake_registry.history");
    for (before_ms, pruned, kept) in
        [(i64::MIN, 0, "1000 2000 3000"), (2000, 0, "1000 2000 3000"), (2001, 1, "2000 3000"), (i64::MAX, 1, "3000")]
    {
        assert_eq!((operator.prune(before_ms), left().as_str()), (Ok(pruned), kept), "{before_ms}");
    }
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
