//! Tags in a fleet's registry: `sql/registry.sql` on real servers, through the extension's
//! connection (`src/registry`), used by the core's supply as a server uses it. None of these needs
//! the extension.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::thread;

use cluster::refusal::assert_refused_as;
use cluster::registry::{Poll, ROLE, config};
use cluster::{Draw, Server, TagMember as Member, refused, wait_until};
use postgres::Client;
use snowflake_core::registry::{Fleet, Incarnation, Registry, Wanted};
use snowflake_core::segment::{
    Ask, END, FARTHEST, GiveBack, Grant, PlaceRefusal, Reserve, Return, State, SupplyNotice, Tag, TagRecord,
    TagRegistry, ValueRun,
};
use snowflake_registry::Postgres;

fn registry() -> Server {
    let server = Server::builder().without_preload().durable().start();
    server.make_registry();
    server
}

fn execute(session: &mut Client, sql: &str) {
    session.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

fn insert(server: &Server, tag: &str, columns: &str, values: &str) {
    let tag = tag.replace('\'', "''");
    let sql = format!("INSERT INTO snowflake_registry.tags (tag{columns}) VALUES ('{tag}'{values})");
    execute(&mut server.connect(), &sql);
}

fn next_value(server: &Server, tag: &str) -> String {
    let tag = tag.replace('\'', "''");
    server.connect().value(&format!("SELECT next_value FROM snowflake_registry.tags WHERE tag = '{tag}'"))
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn run(first: i64, count: u32) -> Result<ValueRun, PlaceRefusal> {
    Ok(ValueRun { first, count })
}

#[test]
fn three_servers_that_share_tags_draw_different_values() {
    const VALUES: usize = 3000;
    let server = registry();
    for tag in ["orders", "invoices"] {
        insert(&server, tag, ", least_step, greatest_step", ", 5, 50");
    }
    let conninfo = server.registry_conninfo();
    let all: Vec<i64> = thread::scope(|scope| {
        let draw = || {
            let member = Member::new(&conninfo);
            let mut drawn = Vec::new();
            while drawn.len() < VALUES {
                drawn.extend(member.draw("orders", 1).expect("there are values").values());
                // Both tags in one call, in an order that would deadlock with the other members'.
                let _ = member.draw("invoices", 1);
            }
            assert!(drawn.is_sorted_by(|one, next| one < next));
            member.give_back().expect("the registry answers");
            drawn
        };
        let members = [(); 3].map(|()| scope.spawn(draw));
        members.into_iter().flat_map(|member| member.join().expect("the member has drawn")).collect()
    });
    let values: BTreeSet<i64> = all.iter().copied().collect();
    assert_eq!(values.len(), 3 * VALUES);
    let (first, last) = (values.first().unwrap(), values.last().unwrap());
    println!("{} values in a span of {}", values.len(), last - first + 1);
    // Every member leaves less than two blocks unused.
    assert!(*first == 1 && *last < 3 * (VALUES as i64 + 2 * 50), "{last}");
}

#[test]
fn what_is_left_is_given_back_unless_another_server_has_reserved_a_block_since() {
    let server = registry();
    insert(&server, "orders", ", least_step, greatest_step", ", 10, 10");
    let (one, other) = (Member::of(&server), Member::of(&server));
    assert_eq!(one.draw("orders", 3), run(1, 3));
    // A tenth is used, so that the next block is reserved.
    one.supply().unwrap();
    assert_eq!(next_value(&server, "orders"), "21");
    one.give_back().unwrap();
    assert_eq!(next_value(&server, "orders"), "4");
    assert_eq!(other.draw("orders", 1), run(4, 1));
    assert_eq!(one.draw("orders", 1), run(14, 1));
    other.give_back().unwrap();
    assert_eq!(next_value(&server, "orders"), "24");
    assert!(!other.has_reported(|notice| matches!(notice, SupplyNotice::GivenBack { .. })));
    one.give_back().unwrap();
    assert_eq!(next_value(&server, "orders"), "15");
}

#[test]
fn a_tag_may_have_any_name_and_one_that_is_deleted_frees_its_place() {
    let server = registry();
    let longest = "ä".repeat(31) + "x";
    for tag in ["we\"ird\\{},NULL", " a 'b' ", "NULL", "", &longest] {
        let Ok(_) = Tag::new(tag) else {
            let sql = "INSERT INTO snowflake_registry.tags (tag) VALUES ('')";
            assert_eq!(refused(server.connect().execute(sql, &[])).sqlstate, "23514");
            continue;
        };
        // Two places, and four tags.
        let member = Member::of(&server);
        assert_eq!(member.draw(tag, 1), Err(PlaceRefusal::Empty(State::Unknown)));
        insert(&server, tag, ", next_value", ", 7");
        assert_eq!(member.draw(tag, 1), run(7, 1));
        execute(&mut server.connect(), "DELETE FROM snowflake_registry.tags");
        insert(&server, tag, ", next_value", ", 7");
        // What is left is drawn, until the registry is asked the next time.
        assert!(matches!(member.draw(tag, u32::MAX), Ok(ValueRun { first: 8, .. })));
        assert_eq!(member.draw(tag, 1), Err(PlaceRefusal::Empty(State::Unknown)));
        assert!(member.has_reported(|notice| matches!(notice, SupplyNotice::Gone(_))));
        assert_eq!(member.draw(tag, 1), run(7, 1));
    }
}

#[test]
fn a_tag_jumps_in_a_new_generation_or_waits_for_an_operator() {
    let server = registry();
    insert(&server, "orders", ", least_step, greatest_step, jump", ", 10, 20, 100");
    insert(&server, "invoices", ", least_step, greatest_step, jump", ", 10, 20, NULL");
    let member = Member::of(&server);
    assert_eq!((member.draw("orders", 10), member.draw("invoices", 10)), (run(1, 10), run(1, 10)));
    let mut session = server.connect();
    let begin =
        "UPDATE snowflake_registry.fleets SET generation = generation + 2, version = snowflake_registry.new_version()";
    execute(&mut session, begin);
    // What the member has had is its own.
    assert_eq!(member.draw("orders", 10), run(11, 10));
    assert_eq!(member.draw("orders", 1), run(21 + 2 * 100 * 20, 1));
    assert_eq!(member.draw("invoices", 1), Err(PlaceRefusal::Empty(State::NoJump)));
    assert!(member.has_reported(|notice| matches!(notice, SupplyNotice::Jumped { skipped: 4000, .. })));
    assert!(member.has_reported(|notice| matches!(notice, SupplyNotice::NoJump(_))));
    // The registry lacks nothing here. If it did, it would know by now what this server has had.
    assert_eq!(next_value(&server, "invoices"), "11");
    // A jump alone does not say where the tag goes on.
    let jump = "UPDATE snowflake_registry.tags SET jump = 5 WHERE tag = 'invoices'";
    let refusal = refused(session.execute(jump, &[]));
    assert_refused_as(&refusal, "55000", "tag \"invoices\" needs a next value, too");
    execute(&mut session, "UPDATE snowflake_registry.tags SET next_value = 500 WHERE tag = 'invoices'");
    let other = Member::of(&server);
    assert_eq!(other.draw("invoices", 1), run(500, 1));
}

/// A backup lacks the failovers since, and its files have an old timeline.
#[test]
fn a_restore_moves_tags_beyond_what_was_given_after_a_failover() {
    let server = registry();
    insert(&server, "orders", ", least_step, greatest_step, jump", ", 10, 20, 1000");
    insert(&server, "invoices", ", least_step, greatest_step", ", 10, 20");
    assert_eq!(Member::of(&server).draw("orders", 10), run(1, 10));
    let (backup, standby) = (server.base_backup(), server.standby().start());
    server.crash();
    standby.promote();
    let after = Member::of(&standby);
    assert_eq!(after.draw("orders", 10), run(11 + 20_000, 10));
    standby.crash();
    let restored = backup.alone().start();
    let mut session = restored.connect();
    let age =
        "SELECT (snowflake_registry.now_ms() - written_ms) / 1000 FROM snowflake_registry.tags WHERE tag = 'orders'";
    // Generations may not follow each other faster than once a second.
    wait_until("a second since the tag was written", || session.value(age) != "0");
    let age: i64 = session.value(age).parse().unwrap();
    let records = "SELECT concat((SELECT f FROM snowflake_registry.fleets f), \
                   (SELECT string_agg(t::text, '') FROM snowflake_registry.tags t))";
    let before = session.value(records);
    let dry = session.value("SELECT snowflake_registry.restored(dry_run => true)");
    assert!(
        dry.starts_with("Nothing was changed.")
            && dry.contains(" These tags jump ahead: \"orders\" from 11 to ")
            && dry.ends_with(" These tags give no values until you set their next_value: \"invoices\" at 1."),
        "{dry}"
    );
    assert_eq!(session.value(records), before);
    let reply = session.value("SELECT snowflake_registry.restored()");
    let to = next_value(&restored, "orders");
    assert!(
        reply.ends_with(&format!(
            " These tags have jumped ahead: \"orders\" from 11 to {to}. \
             These tags give no values until you set their next_value: \"invoices\" at 1."
        )),
        "{reply}"
    );
    let ValueRun { first, .. } = Member::of(&restored).draw("orders", 10).unwrap();
    assert!(first >= 11 + 20_000 * (1 + age) && (first - 11) % 20_000 == 0, "{first} after {age} s");
    assert!(first > 11 + 20_000 + 10, "{first} is beyond what was given after the failover");
    assert_eq!(Member::of(&restored).draw("invoices", 1), Err(PlaceRefusal::Empty(State::NoJump)));
}

/// What `restored()` writes is what the core says.
#[test]
fn a_restored_tag_jumps_as_the_core_says() {
    let server = registry();
    insert(&server, "orders", "", "");
    let mut session = server.connect();
    let of = |choices: &[i64]| choices[(random() % choices.len() as u64) as usize];
    for _ in 0..100 {
        let (next, jump) = (of(&[-5, 1, END - 20, END]), of(&[1, 1000, i32::MAX.into()]));
        let (age_s, generation) = (of(&[0, 1, 3600, 40_000_000]), of(&[0, 1]));
        execute(
            &mut session,
            &format!(
                "SET session_replication_role = replica;
                 UPDATE snowflake_registry.tags SET next_value = {next}, jump = {jump}, generation = {generation},
                     written_ms = snowflake_registry.now_ms() - 1000::bigint * {age_s};
                 SET session_replication_role = origin;
                 UPDATE snowflake_registry.fleets SET generation = 1"
            ),
        );
        execute(&mut session, "SELECT snowflake_registry.restored(lease => '1 min', skew => '1 s')");
        let registry = Postgres::new(config(&server.registry_conninfo()), Poll);
        let fleet = registry.read(Wanted::Number(0)).unwrap().fleet;
        let generation = generation as u64;
        let jump = Some(jump * 1_000_000);
        let record = TagRecord { id: 1, next, steps: (1000, 1_000_000), jump, nonce: 5, generation, returnable: END };
        let stored: i64 = session.value("SELECT next_value FROM snowflake_registry.tags").parse().unwrap();
        // A second may pass between the two statements.
        let possible = [0, 1].map(|more| record.restored(&fleet, 1000 * (age_s + more), 5).unwrap().next);
        assert!(possible.contains(&stored), "{stored} is not in {possible:?}: {record:?}, {age_s} s");
    }
}

#[test]
fn a_failover_that_loses_the_last_changes_gives_no_value_twice() {
    let server = registry();
    insert(&server, "orders", ", least_step, greatest_step, jump", ", 10, 20, 1000");
    insert(&server, "invoices", ", least_step, greatest_step", ", 10, 20");
    let standby = server.standby().start();
    let (member, other) = (Member::of(&server), Member::of(&server));
    assert_eq!((member.draw("orders", 10), other.draw("invoices", 10)), (run(1, 10), run(1, 10)));
    standby.wait_until_replayed(&server.flushed());
    let received = standby.cut_off();
    assert_eq!((member.draw("orders", 10), other.draw("invoices", 10)), (run(11, 10), run(11, 10)));
    server.crash();
    standby.wait_until_replayed(&received);
    standby.promote();
    // The new primary does not know of the second block.
    let new = Member::of(&standby);
    assert_eq!(next_value(&standby, "orders"), "11");
    assert_eq!(new.draw("orders", 1), run(11 + 20_000, 1));
    assert!(new.has_reported(|notice| matches!(notice, SupplyNotice::Forgot(_))));
    // Without a jump, a tag gives nothing. The registry learns from the server what it has had.
    assert_eq!(new.draw("invoices", 1), Err(PlaceRefusal::Empty(State::NoJump)));
    assert_eq!(next_value(&standby, "invoices"), "11");
    let registry = Postgres::new(config(&standby.registry_conninfo()), Poll);
    let reading = registry.read(Wanted::Number(0)).unwrap();
    let id: i64 =
        standby.connect().value("SELECT id FROM snowflake_registry.tags WHERE tag = 'invoices'").parse().unwrap();
    let look = Ask {
        tag: Tag::new("invoices").unwrap(),
        id: Some(id as u64),
        step: None,
        above: 21,
        least: i64::MIN,
        generation: 1,
        was: None,
        nonce: random(),
    };
    let asks = Reserve { fleet: reading.fleet.version, incarnation: reading.incarnation, asks: vec![look] };
    assert_eq!(registry.reserve(&asks).unwrap().unwrap().answers, [Grant::NoJump]);
    let mut session = standby.connect();
    let lower = "UPDATE snowflake_registry.tags SET next_value = 15 WHERE tag = 'invoices'";
    assert_refused_as(
        &refused(session.execute(lower, &[])),
        "22023",
        "next value of tag \"invoices\" cannot be lowered from 21 to 15",
    );
    execute(&mut session, "UPDATE snowflake_registry.tags SET next_value = next_value + 1 WHERE tag = 'invoices'");
    assert_eq!(Member::of(&standby).draw("invoices", 1), run(22, 1));
}

#[test]
fn an_operator_cannot_lower_a_next_value_or_rename_a_tag() {
    let server = registry();
    insert(&server, "orders", "", "");
    let mut session = server.connect();
    let mut refuse =
        |change: &str| refused(session.execute(&format!("UPDATE snowflake_registry.tags SET {change}"), &[])).sqlstate;
    assert_eq!(refuse("next_value = 0"), "22023");
    assert_eq!(refuse("tag = 'other'"), "55000");
    assert_eq!(refuse("greatest_step = 999"), "23514");
    assert_eq!(refuse("greatest_step = 10000001"), "23514");
    execute(&mut server.connect(), "UPDATE snowflake_registry.tags SET description = 'x', next_value = 7");
    // Members may do no more than call the functions.
    let mut member = server.connect();
    execute(&mut member, &format!("SET ROLE {ROLE}"));
    assert_eq!(refused(member.execute("SELECT FROM snowflake_registry.tags", &[])).sqlstate, "42501");
}

/// Blocks of the greater step may be lost.
#[test]
fn a_smaller_step_does_not_shorten_a_jump() {
    let server = registry();
    insert(&server, "orders", ", greatest_step, jump", ", 1000000, 5");
    let set = |change: &str| {
        execute(&mut server.connect(), &format!("UPDATE snowflake_registry.tags SET {change}"));
        server.connect().value("SELECT jump FROM snowflake_registry.tags")
    };
    assert_eq!(set("greatest_step = 300000"), "17");
    assert_eq!(set("greatest_step = 600000"), "17");
    // What an operator says counts.
    assert_eq!(set("greatest_step = 300000, jump = 4"), "4");
    let refusal = refused(server.connect().batch_execute("UPDATE snowflake_registry.tags SET greatest_step = 0"));
    assert_eq!(refusal.sqlstate, "23514");
}

#[test]
fn the_registry_takes_back_no_more_than_a_server_can_have() {
    let server = registry();
    insert(&server, "orders", ", next_value, least_step, greatest_step", ", 1000, 10, 20");
    let registry = Postgres::new(config(&server.registry_conninfo()), Poll);
    let mut session = server.connect();
    let mut number = |column: &str| -> i64 {
        session.value(&format!("SELECT {column} FROM snowflake_registry.tags")).parse().unwrap()
    };
    let (id, was) = (number("id") as u64, number("nonce") as u64);
    let reading = registry.read(Wanted::Number(0)).unwrap();
    let give_back = |first, was, nonce| {
        let returns = vec![Return { tag: Tag::new("orders").unwrap(), id, was, first, nonce }];
        let give_back = GiveBack { fleet: reading.fleet.version, incarnation: reading.incarnation, returns };
        registry.give_back(&give_back).unwrap().unwrap().answers[0]
    };
    // What lies before a tag's first block is no server's.
    assert_eq!([999, 1000, i64::MIN].map(|first| give_back(first, was, 1)), [None; 3]);
    // A server's first block, and two that follow.
    let reserve = |above, was, nonce| {
        let tag = Tag::new("orders").unwrap();
        let (least, generation) = (i64::MIN, reading.fleet.generation);
        let ask = Ask { tag, id: Some(id), step: Some(20), above, least, generation, was, nonce };
        let reserve = Reserve { fleet: reading.fleet.version, incarnation: reading.incarnation, asks: vec![ask] };
        match registry.reserve(&reserve).unwrap().unwrap().answers[0] {
            Grant::Block { block, .. } => block.first,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([reserve(0, None, 11), reserve(1020, Some(11), 12), reserve(1040, Some(12), 13)], [1000, 1020, 1040]);
    // More than two blocks.
    assert_eq!([1019, i64::MIN].map(|first| give_back(first, 13, 1)), [None; 2]);
    assert_eq!((give_back(1025, 13, 14), number("next_value")), (Some(1025), 1025));
    // The same message comes again, and another one that knows an older block, or what it has given
    // back.
    assert_eq!([(1025, 13), (1020, 12), (1020, 14)].map(|(first, was)| give_back(first, was, 15)), [None; 3]);
    assert_eq!(number("next_value"), 1025);
}

/// The values 1 to 3 are drawn, and the thief of the servers' password sells them again.
#[test]
fn values_that_another_member_has_drawn_cannot_be_given_back() {
    let server = registry();
    insert(&server, "orders", ", least_step, greatest_step", ", 3, 10");
    let (one, other) = (Member::of(&server), Member::of(&server));
    assert_eq!(one.draw("orders", 3), run(1, 3));
    assert_eq!(next_value(&server, "orders"), "4");
    let registry = Postgres::new(config(&server.registry_conninfo()), Poll);
    let reading = registry.read(Wanted::Number(0)).unwrap();
    let (fleet, incarnation, generation) = (reading.fleet.version, reading.incarnation, reading.fleet.generation);
    let tag = Tag::new("orders").unwrap();
    let mut session = server.connect();
    // It reserves a block by itself, and says in each way that its own goes back further. It cannot
    // read the last nonce, so it guesses.
    for (nonce, was, above) in [(101, None, i64::MIN), (102, Some(101), 4), (103, Some(0), i64::MIN)] {
        let before: i64 = next_value(&server, "orders").parse().unwrap();
        let ask = Ask { tag, id: None, step: Some(3), above, least: i64::MIN, generation, was, nonce };
        let granted = registry.reserve(&Reserve { fleet, incarnation, asks: vec![ask] }).unwrap().unwrap();
        let Grant::Block { id, .. } = granted.answers[0] else { panic!("{granted:?}") };
        for first in [1, i64::MIN] {
            let returns = vec![Return { tag, id, was: nonce, first, nonce: nonce + 1000 }];
            let give_back = GiveBack { fleet, incarnation, returns };
            let answer = registry.give_back(&give_back).unwrap().unwrap().answers[0];
            assert!(answer.is_none_or(|first| first >= 4), "{answer:?}");
        }
        let after: i64 = next_value(&server, "orders").parse().unwrap();
        assert!((4..=before + 3).contains(&after), "{after} after {before}");
        // As if it went on from there.
        execute(&mut session, "UPDATE snowflake_registry.tags SET next_value = next_value + 3");
    }
    assert!(other.draw("orders", 3).is_ok_and(|run| run.first >= 4));
}

#[test]
fn one_call_with_the_servers_password_does_not_use_up_a_tag() {
    let server = registry();
    insert(&server, "orders", ", jump", ", NULL");
    let registry = Postgres::new(config(&server.registry_conninfo()), Poll);
    let reading = registry.read(Wanted::Number(0)).unwrap();
    let ask = |step, above, least, generation| {
        let tag = Tag::new("orders").unwrap();
        let asks = vec![Ask { tag, id: None, step: Some(step), above, least, generation, was: None, nonce: 1 }];
        let reserve = Reserve { fleet: reading.fleet.version, incarnation: reading.incarnation, asks };
        registry.reserve(&reserve).unwrap().unwrap().answers[0]
    };
    execute(&mut server.connect(), "UPDATE snowflake_registry.tags SET generation = 1");
    for far in [2 + FARTHEST, END - 1, END] {
        assert_eq!(ask(1, i64::MIN, far, 1), Grant::TooFar);
        assert_eq!(ask(1, far, i64::MIN, 0), Grant::TooFar);
    }
    assert_eq!(next_value(&server, "orders"), "1");
    assert!(matches!(ask(u32::MAX, i64::MIN, 1, 1), Grant::Block { block, .. } if block.first == 1));
    assert_eq!(next_value(&server, "orders"), "1000001");
}

/// A tag that waits for an operator is raised by no more, and only an operator lets it go on.
#[test]
fn with_the_servers_password_a_stopped_tag_is_neither_used_up_nor_opened() {
    let server = registry();
    insert(&server, "orders", "", "");
    let mut session = server.connect();
    execute(&mut session, "UPDATE snowflake_registry.fleets SET generation = generation + 1");
    let registry = Postgres::new(config(&server.registry_conninfo()), Poll);
    let reading = registry.read(Wanted::Number(0)).unwrap();
    let ask = |nonce| {
        let tag = Tag::new("orders").unwrap();
        let asks =
            vec![Ask { tag, id: None, step: Some(1), above: END, least: i64::MIN, generation: 1, was: None, nonce }];
        let reserve = Reserve { fleet: reading.fleet.version, incarnation: reading.incarnation, asks };
        registry.reserve(&reserve).unwrap().unwrap().answers[0]
    };
    assert_eq!((ask(7), next_value(&server, "orders")), (Grant::NoJump, (1 + FARTHEST).to_string()));
    let mut refuse = |tags: &str, nonces: &str| {
        let call = format!(
            "SELECT FROM snowflake_registry.fleets f, snowflake_registry.incarnation() i, \
                 snowflake_registry.reserve_blocks(f.name, 0, f.version, i.store, i.timeline, {tags}, '{{NULL,NULL}}', '{{1,1}}', \
                 '{{2,2}}', '{{1,1}}', '{{1,1}}', {nonces}, '{{NULL,NULL}}')"
        );
        let refusal = refused(session.query(&call, &[]));
        assert_eq!(refusal.sqlstate, "SF005", "{refusal:?}");
        refusal.message
    };
    // By these the trigger would take the call for an operator's UPDATE.
    assert_eq!(refuse("'{orders}'", "'{NULL}'"), "tag \"orders\" needs a new nonce");
    assert_eq!(refuse("'{orders}'", "'{7}'"), "tag \"orders\" needs a new nonce");
    assert!(refuse("'{orders,orders}'", "'{8,9}'").contains("for each of them once"));
    assert_eq!(ask(8), Grant::NoJump);
}

/// The registry decides as the core does, whatever is asked.
#[test]
fn the_registry_decides_as_the_core_does() {
    let server = registry();
    insert(&server, "orders", "", "");
    let mut session = server.connect();
    execute(&mut session, "ALTER TABLE snowflake_registry.tags DISABLE TRIGGER keep_tags");
    let registry = Postgres::new(config(&server.registry_conninfo()), Poll);
    let tag = Tag::new("orders").unwrap();
    let of = |choices: &[i64]| choices[(random() % choices.len() as u64) as usize];
    let (mut grants, mut returned) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..2000 {
        let least = of(&[1, 10, 5_000_000]);
        let greatest = least + of(&[0, 1, 5_000_000]);
        let jump = Some(of(&[1, 1000, i32::MAX.into()])).filter(|_| !random().is_multiple_of(4));
        let (fleet_generation, generation) = (of(&[3, 4, 9]), of(&[3, 4]));
        let next = of(&[i64::MIN, -5, 1, 1000, END - 20, END - 1, END]);
        let id = of(&[1, 2]);
        let returnable = of(&[i64::MIN, -5, 990, END]);
        execute(
            &mut session,
            &format!(
                "UPDATE snowflake_registry.fleets SET generation = {fleet_generation};
                 UPDATE snowflake_registry.tags SET next_value = {next}, least_step = {least},
                     greatest_step = {greatest}, jump = {}, id = {id}, nonce = 5, generation = {generation},
                     returnable_from = {returnable}",
                jump.map_or("NULL".to_owned(), |jump| jump.to_string()),
            ),
        );
        let fleet: Fleet = registry.read(Wanted::Number(0)).unwrap().fleet;
        let incarnation: Incarnation = fleet.incarnation;
        let record = TagRecord {
            id: id as u64,
            next,
            steps: (least as u32, greatest as u32),
            jump: jump.map(|jump| jump * greatest),
            nonce: 5,
            generation: generation as u64,
            returnable,
        };
        let ask = Ask {
            tag,
            id: [None, Some(1), Some(2)][(random() % 3) as usize],
            step: Some(of(&[0, 7, 12, 6_000_000, u32::MAX.into()]) as u32).filter(|_| !random().is_multiple_of(4)),
            above: of(&[i64::MIN, 1, 1001, END - 10, END]),
            least: of(&[i64::MIN, i64::MIN, 500, 2000, 9_000_000_000, END - 10, END]),
            generation: of(&[2, 3, 4]) as u64,
            was: [None, Some(5), Some(6)][(random() % 3) as usize],
            nonce: random(),
        };
        let granted =
            registry.reserve(&Reserve { fleet: fleet.version, incarnation, asks: vec![ask] }).unwrap().unwrap();
        let (grant, new) = record.answer(&ask, &fleet);
        assert_eq!(granted.answers, [grant], "{record:?} and {ask:?} in generation {fleet_generation}");
        let new = new.unwrap_or(record);
        let stored =
            session.value("SELECT (next_value, nonce, generation, returnable_from) FROM snowflake_registry.tags");
        let TagRecord { next, nonce, generation, returnable, .. } = new;
        assert_eq!(stored, format!("({next},{},{generation},{returnable})", nonce.cast_signed()), "{ask:?}");
        // What is given back then.
        let given = Return {
            tag,
            id: new.id,
            was: [nonce, 6][(random() % 2) as usize],
            first: next.saturating_sub(of(&[0, 1, 5, 12, 3_000_000, i64::MAX])),
            nonce: random(),
        };
        let give_back = GiveBack { fleet: fleet.version, incarnation, returns: vec![given] };
        let taken = registry.give_back(&give_back).unwrap().unwrap();
        let back = new.take_back(&given, &fleet);
        assert_eq!(taken.answers, [back.map(|back| back.next)], "{new:?} and {given:?}");
        let TagRecord { next, nonce, returnable, .. } = back.unwrap_or(new);
        let stored = session.value("SELECT (next_value, nonce, returnable_from) FROM snowflake_registry.tags");
        assert_eq!(stored, format!("({next},{},{returnable})", nonce.cast_signed()), "{given:?}");
        returned.insert(back.is_some());
        grants.insert(match grant {
            Grant::Block { skipped: 0, .. } => "block",
            Grant::Block { .. } => "block after a jump",
            Grant::Known => "known",
            Grant::Unknown => "unknown",
            Grant::Ended => "ended",
            Grant::NoJump => "no jump",
            Grant::Forgot => "forgot",
            Grant::TooFar => "too far",
        });
    }
    assert_eq!(grants.len(), 8, "only these were given: {grants:?}");
    assert_eq!(returned.len(), 2);
}
