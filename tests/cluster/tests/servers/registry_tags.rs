//! Tags in a fleet's registry: `sql/registry.sql` on real servers, through the extension's
//! connection (`src/registry`), used by the core's supply as a server uses it. None of these needs
//! the extension.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::thread;

use cluster::refusal::assert_refused_as;
use cluster::registry::{Poll, ROLE, config};
use cluster::{Draw, Operated, Server, TagMember as Member, refused, wait_until};
use postgres::Client;
use snowflake_core::fleet::registry::{RecordChange, Store, Swap, SwapAnswer, TagRecord, Wanted};
use snowflake_core::fleet::segment::{Ask, END, Grant, JUMP, PlaceRefusal, Return, State, ValueRun};
use snowflake_core::fleet::tag::Tag;
use snowflake_registry::{Postgres, Registry};

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

/// A backup lacks the failovers since, and its files have an old timeline.
#[test]
fn a_restore_moves_tags_beyond_what_was_given_after_a_failover() {
    let server = registry();
    insert(&server, "orders", ", least_step, greatest_step, jumps", ", 10, 20, true");
    insert(&server, "invoices", ", least_step, greatest_step", ", 10, 20");
    assert_eq!(Member::of(&server).draw("orders", 10), run(1, 10));
    let (backup, standby) = (server.base_backup(), server.standby().start());
    server.crash();
    standby.promote();
    let after = Member::of(&standby);
    assert_eq!(after.draw("orders", 10), run(11 + JUMP, 10));
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
    let dry = restored.operate(&["restored", "--dry-run"]);
    let stopped = "These tags give no values until you set their next value \
                   (\"snowflake-registry set-tag TAG --next-value VALUE\"): \"invoices\" at 1.\n";
    assert!(
        dry.starts_with("Nothing was changed")
            && dry.contains("\nThese tags jump ahead: \"orders\" from 11 to ")
            && dry.ends_with(stopped),
        "{dry}"
    );
    assert_eq!(session.value(records), before);
    let reply = restored.operate(&["restored"]);
    let to = reply.split_once("\nThese tags jump ahead: \"orders\" from 11 to ");
    let to: i64 = to.and_then(|(_, to)| to.split_once(".\n")?.0.parse().ok()).unwrap_or_else(|| panic!("{reply}"));
    assert!(reply.ends_with(stopped), "{reply}");
    let ValueRun { first, .. } = Member::of(&restored).draw("orders", 10).unwrap();
    assert!(first >= 11 + JUMP * (1 + age) && (first - 11) % JUMP == 0, "{first} after {age} s");
    assert_eq!(first, to);
    assert!(first > 11 + JUMP + 10, "{first} is beyond what was given after the failover");
    assert_eq!(Member::of(&restored).draw("invoices", 1), Err(PlaceRefusal::Empty(State::NoJump)));
}

#[test]
fn a_failover_that_loses_the_last_changes_gives_no_value_twice() {
    let server = registry();
    insert(&server, "orders", ", least_step, greatest_step, jumps", ", 10, 20, true");
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
    assert_eq!(new.draw("orders", 1), run(11 + JUMP, 1));
    assert!(new.has_begun_a_generation());
    // A tag that does not jump gives nothing. The registry learns from the server what it has had.
    assert_eq!(new.draw("invoices", 1), Err(PlaceRefusal::Empty(State::NoJump)));
    assert_eq!(next_value(&standby, "invoices"), "11");
    let registry = Postgres::new(config(&standby.registry_conninfo()), Poll);
    let tag = Tag::new("invoices").unwrap();
    let reading = registry.read(&Wanted::tags(vec![tag])).unwrap();
    let look = Ask {
        tag,
        id: Some(reading.tags[&tag].id),
        step: None,
        above: 21,
        least: i64::MIN,
        generation: 1,
        was: None,
        nonce: random(),
    };
    let old = reading.tags[&look.tag];
    let (grant, new) = old.answer(&look, &reading.fleet, reading.now_ms);
    assert_eq!((grant, new.map(|new| new.next)), (Grant::NoJump, Some(21)));
    let told = RecordChange::Tag { tag: look.tag, was: Some(old.nonce), record: new };
    assert_eq!(registry.swap(&Swap::after(&reading, vec![told])), Ok(SwapAnswer::Done(reading.incarnation)));
    let mut session = standby.connect();
    // That it jumps does not say where the tag goes on.
    let jump = "UPDATE snowflake_registry.tags SET jumps = true WHERE tag = 'invoices'";
    let refusal = refused(session.execute(jump, &[]));
    assert_refused_as(&refusal, "55000", "tag \"invoices\" needs a next value, too");
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
    let unnamed = "INSERT INTO snowflake_registry.tags (tag) VALUES ('')";
    assert_eq!(refused(server.connect().execute(unnamed, &[])).sqlstate, "23514");
    // Members may do no more than call the functions.
    let mut member = server.connect();
    execute(&mut member, &format!("SET ROLE {ROLE}"));
    assert_eq!(refused(member.execute("SELECT FROM snowflake_registry.tags", &[])).sqlstate, "42501");
}

/// A swap that closes a fleet does not compare that there is no tag. "lost" rests on it.
#[test]
fn no_tag_is_inserted_while_a_fleet_is_closed_or_being_closed() {
    let server = registry();
    insert(&server, "orders", "", "");
    const INSERT: &str = "INSERT INTO snowflake_registry.tags (tag) VALUES ('invoices')";
    server.operate(&["close"]);
    assert_refused_as(&refused(server.connect().execute(INSERT, &[])), "55000", "fleet \"default\" is closed");
    // What is there may still be corrected, as before a restored registry is opened.
    execute(&mut server.connect(), "UPDATE snowflake_registry.tags SET next_value = 7");
    server.operate(&["open", "--not-moved"]);
    // One that is not committed yet holds the fleet open.
    let mut session = server.connect();
    execute(&mut session, "BEGIN");
    execute(&mut session, INSERT);
    let closes = "SET lock_timeout = 1; UPDATE snowflake_registry.fleets SET closed = true";
    assert_eq!(refused(server.connect().batch_execute(closes)).sqlstate, "55P03");
    execute(&mut session, "ROLLBACK");
    // One that comes while the fleet is being closed waits for that.
    execute(&mut session, "BEGIN; UPDATE snowflake_registry.fleets SET closed = true");
    let mut inserting = server.connect();
    let pid = inserting.pid();
    thread::scope(|scope| {
        let insert = scope.spawn(|| refused(inserting.execute(INSERT, &[])));
        server.wait_until_locked(pid);
        execute(&mut session, "COMMIT");
        assert_refused_as(&insert.join().unwrap(), "55000", "fleet \"default\" is closed");
    });
    // Members cannot make one at all.
    execute(&mut session, &format!("UPDATE snowflake_registry.fleets SET closed = false; SET ROLE {ROLE}"));
    assert_eq!(refused(session.execute(INSERT, &[])).sqlstate, "42501");
}

/// SQL sets what the program would set (`changed_tag` in the core).
#[test]
fn jumps_that_are_due_come_before_what_sql_sets() {
    let server = registry();
    insert(&server, "orders", ", least_step, greatest_step, jumps", ", 10, 20, true");
    let mut session = server.connect();
    let registry = Postgres::new(config(&server.registry_conninfo()), Poll);
    let tag = Tag::new("orders").unwrap();
    let read = || {
        let reading = registry.read(&Wanted::tags(vec![tag])).unwrap();
        (reading.tags[&tag], reading.fleet)
    };
    let set = |change: &str| format!("UPDATE snowflake_registry.tags SET {change}");
    let refuses = |session: &mut Client, next: i64, least: i64| {
        let message = format!("next value of tag \"orders\" cannot be lowered from {least} to {next}");
        assert_refused_as(&refused(session.execute(&set(&format!("next_value = {next}")), &[])), "22023", &message);
    };
    for (next, generations, changes) in [
        (11, 2, &["least_step = 7", "greatest_step = 15", "greatest_step = 30"][..]),
        (-5, i64::MAX - 1000, &["least_step = 7"]),
        (END - 5, 1, &["least_step = 7"]),
    ] {
        for change in changes {
            // As an operator's swap, so that no trigger changes what is set here.
            execute(
                &mut session,
                &format!(
                    "BEGIN; SET LOCAL snowflake_registry.writer = 'operator';
                     UPDATE snowflake_registry.fleets SET generation = 3 + {generations};
                     {}; COMMIT",
                    set(&format!(
                        "next_value = {next}, least_step = 10, greatest_step = 20, jumps = true, generation = 3"
                    )),
                ),
            );
            let (record, fleet) = read();
            let due = record.next_in(&fleet);
            assert!(due > next && record.generation == 3);
            // Otherwise values would come twice that the registry has forgotten.
            refuses(&mut session, next + 1, due);
            refuses(&mut session, due - 1, due);
            refuses(&mut session, next - 1, due);
            execute(&mut session, &set("description = 'what for'"));
            assert_eq!(read().0, record);
            execute(&mut session, &set(change));
            let (changed, _) = read();
            assert_eq!(
                (changed.next, changed.generation, changed.returnable),
                (due, fleet.generation, END),
                "{change}"
            );
            assert_ne!(changed.nonce, record.nonce);
            assert_eq!(changed.next_in(&fleet), due, "the jumps are no longer due");
        }
    }
    let stopped = set("next_value = 11, generation = 3, jumps = false");
    execute(
        &mut session,
        &format!(
            "BEGIN; SET LOCAL snowflake_registry.writer = 'operator'; {stopped}; COMMIT; {}",
            set("next_value = 12")
        ),
    );
    assert_eq!(read().0.next, 12, "no jump is due");
}

/// A server that has read a tag before must not write its old steps back.
#[test]
fn a_change_by_sql_is_one_for_servers_but_for_the_description() {
    let server = registry();
    insert(&server, "orders", "", "");
    let registry = Postgres::new(config(&server.registry_conninfo()), Poll);
    let nonce = || registry.read(&Wanted::tags(vec![Tag::new("orders").unwrap()])).unwrap().tags.into_values().next();
    let mut session = server.connect();
    for (change, is_one) in [
        ("description = 'what for'", false),
        ("least_step = 7", true),
        ("greatest_step = 2000000", true),
        ("jumps = true", true),
        ("jumps = false", true),
        ("next_value = 8", true),
        ("next_value = 8, jumps = false", false),
        // No person chooses these.
        ("nonce = 5, secret = gen_random_uuid(), returnable_from = 1, next_value = 9", true),
    ] {
        let before = nonce();
        execute(&mut session, &format!("UPDATE snowflake_registry.tags SET {change}"));
        let after = nonce();
        assert_eq!(before.map(|tag| tag.nonce) != after.map(|tag| tag.nonce), is_one, "{change}");
        assert!(after.is_some_and(|tag| tag.nonce != 5 && tag.returnable == END), "{after:?}");
    }
    assert_eq!(session.value("SELECT secret FROM snowflake_registry.tags"), "NULL");
}

/// Whatever stands in the registry, and whatever is asked.
#[test]
fn the_registry_takes_what_the_core_decides_for_a_server() {
    let server = registry();
    insert(&server, "orders", "", "");
    let mut session = server.connect();
    // As an operator's swap, so that no trigger changes what is set here.
    execute(&mut session, "SET snowflake_registry.writer = 'operator'");
    let registry = Postgres::new(config(&server.registry_conninfo()), Poll);
    let (tag, own) = (Tag::new("orders").unwrap(), format!("{:032x}", registry.config().secret));
    let of = |choices: &[i64]| choices[(random() % choices.len() as u64) as usize];
    let (mut grants, mut returned) = (BTreeSet::new(), 0);
    for _ in 0..500 {
        let least = of(&[1, 10, 5_000_000]);
        let greatest = least + of(&[0, 1, 5_000_000]);
        let jumps = !random().is_multiple_of(4);
        let (fleet_generation, generation) = (of(&[3, 4, 9]), of(&[3, 4]));
        let next = of(&[i64::MIN, -5, 1, 1000, END - 20, END - 1, END]);
        let returnable = of(&[i64::MIN, -5, 990, END]);
        // Only the server that has reserved the last block knows of it as its own.
        let is_own = random().is_multiple_of(2);
        let secret = if is_own { format!("'{own}'") } else { "gen_random_uuid()".to_owned() };
        execute(
            &mut session,
            &format!(
                "UPDATE snowflake_registry.fleets SET generation = {fleet_generation};
                 UPDATE snowflake_registry.tags SET next_value = {next}, least_step = {least},
                     greatest_step = {greatest}, jumps = {jumps}, id = 1, nonce = 5, generation = {generation},
                     returnable_from = {returnable}, secret = {secret}",
            ),
        );
        let read = || registry.read(&Wanted::tags(vec![tag])).unwrap();
        let swap = |was: u64, record: TagRecord| {
            let change = RecordChange::Tag { tag, was: Some(was), record: Some(record) };
            registry.swap(&Swap::after(&read(), vec![change]))
        };
        let (reading, record) = (read(), read().tags[&tag]);
        let ask = Ask {
            tag,
            id: Some(1),
            step: Some(of(&[0, 7, 12, 6_000_000, u32::MAX.into()]) as u32),
            above: of(&[i64::MIN, 1, 1001, END - 10, END]),
            least: of(&[i64::MIN, i64::MIN, 500, 2000, 9_000_000_000, END - 10, END]),
            generation: of(&[2, 3, 4]) as u64,
            was: is_own.then_some(5),
            nonce: random(),
        };
        let (grant, decided) = record.answer(&ask, &reading.fleet, reading.now_ms);
        if let Some(new) = decided {
            assert!(matches!(swap(5, new), Ok(SwapAnswer::Done(_))), "{record:?} and {ask:?} in {fleet_generation}");
            let written = read().tags[&tag];
            assert_eq!(TagRecord { written_ms: new.written_ms, ..written }, new);
        }
        grants.insert(match grant {
            Grant::Block { skipped: 0, .. } => "block",
            Grant::Block { .. } => "block after a jump",
            Grant::NoJump if decided.is_some() => "told",
            _ => "nothing",
        });
        // What is given back then, by the server that has it.
        let is_its = is_own || matches!(grant, Grant::Block { .. });
        let (reading, last) = (read(), read().tags[&tag]);
        let first = last.next.saturating_sub(of(&[0, 1, 5, 12, 3_000_000, i64::MAX]));
        let given = Return { tag, id: 1, was: last.nonce, first, nonce: random() };
        let back = last.take_back(&given, &reading.fleet, reading.now_ms).filter(|_| is_its);
        if let Some(back) = back {
            assert!(matches!(swap(last.nonce, back), Ok(SwapAnswer::Done(_))), "{last:?} and {given:?}");
            returned += 1;
        }
    }
    assert_eq!(grants.len(), 4, "only these were given: {grants:?}");
    assert!(returned > 20, "{returned}");
}
