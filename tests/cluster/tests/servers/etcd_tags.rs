//! Tags in a fleet's registry in etcd: `sql/registry-etcd` and the extension's connection
//! (`src/registry/etcd/tags.rs`), used by the core's supply as a server uses it, and by servers.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;

use cluster::refusal::assert_refused_as;
use cluster::{Draw, Etcd, Leases, Server, Shutdown, TagMember, has_etcd, refused, skip, wait_until};
use snowflake_core::lease::Failure;
use snowflake_core::segment::{END, PlaceRefusal, State, SupplyNotice, ValueRun};
use snowflake_registry::{Problem, RegistryError};

const NO_ETCD: &str = "etcd and etcdctl are not installed";

fn registry(members: usize) -> Etcd {
    let etcd = Etcd::start(members);
    etcd.make_registry();
    etcd
}

/// Runs a command of an operator.
#[track_caller]
fn says(etcd: &Etcd, arguments: &[&str]) -> String {
    etcd.operate(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

/// Makes a tag with these steps.
fn create(etcd: &Etcd, tag: &str, steps: (&str, &str)) {
    says(etcd, &["create-tag", tag]);
    says(etcd, &["set-tag", tag, "least_step", steps.0]);
    says(etcd, &["set-tag", tag, "greatest_step", steps.1]);
}

/// Returns a value of a tag's record.
#[track_caller]
fn value(etcd: &Etcd, tag: &str, name: &str) -> i64 {
    let record = etcd.ctl(&["get", "--print-value-only", &format!("/snowflake_id/default/tags/{tag}")]);
    let found = record.split_ascii_whitespace().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    found.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {record}"))
}

fn next_value(etcd: &Etcd, tag: &str) -> i64 {
    value(etcd, tag, "next_value")
}

fn run(first: i64, count: u32) -> Result<ValueRun, PlaceRefusal> {
    Ok(ValueRun { first, count })
}

/// Draws, again as long as etcd does not answer.
fn draw_patiently(member: &TagMember, tag: &str) -> Vec<i64> {
    let mut drawn = None;
    wait_until("values", || {
        let answered = match member.supply() {
            Ok(()) => true,
            Err(Failure::Away(_) | Failure::Contended) => false,
            Err(other) => panic!("{other:?}"),
        };
        if answered {
            drawn = member.draw(tag, 1).ok();
        }
        drawn.is_some()
    });
    drawn.expect("it was drawn").values().collect()
}

#[test]
fn members_that_share_tags_draw_different_values_while_the_leader_is_killed() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    const VALUES: usize = 300;
    let mut etcd = registry(3);
    create(&etcd, "orders", ("5", "50"));
    create(&etcd, "invoices", ("5", "50"));
    let (address, half) = (etcd.address(), Barrier::new(4));
    let draw = || {
        let member = TagMember::new(&address);
        let mut drawn = Vec::new();
        while drawn.len() < VALUES {
            if drawn.len() == VALUES / 2 {
                half.wait();
            }
            drawn.extend(draw_patiently(&member, "orders"));
            let _ = draw_patiently(&member, "invoices");
        }
        assert!(drawn.is_sorted_by(|one, next| one < next));
        drawn
    };
    let all: Vec<i64> = thread::scope(|scope| {
        let members = [(); 3].map(|()| scope.spawn(draw));
        half.wait();
        let leader = etcd.leader();
        etcd.kill_member(leader);
        members.into_iter().flat_map(|member| member.join().expect("the member has drawn")).collect()
    });
    assert_eq!(BTreeSet::from_iter(&all).len(), 3 * VALUES);
    assert!(next_value(&etcd, "orders") > *all.iter().max().unwrap());
}

#[test]
fn what_is_left_is_given_back_unless_another_member_has_reserved_a_block_since() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = registry(1);
    create(&etcd, "orders", ("10", "10"));
    let (one, other) = (TagMember::new(&etcd.address()), TagMember::new(&etcd.address()));
    assert_eq!(one.draw("orders", 3), run(1, 3));
    // A tenth is used, so that the next block is reserved.
    one.supply().unwrap();
    assert_eq!(next_value(&etcd, "orders"), 21);
    one.give_back().unwrap();
    assert_eq!(next_value(&etcd, "orders"), 4);
    assert_eq!((other.draw("orders", 1), one.draw("orders", 1)), (run(4, 1), run(14, 1)));
    other.give_back().unwrap();
    assert_eq!(next_value(&etcd, "orders"), 24);
    one.give_back().unwrap();
    assert_eq!(next_value(&etcd, "orders"), 15);
}

#[test]
fn an_operator_makes_changes_and_deletes_tags_with_a_script() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = Etcd::start(1);
    let fails = |arguments: &[&str]| etcd.operate(arguments).expect_err("it is refused");
    assert!(fails(&["create-tag", "orders"]).contains("has no fleet"));
    etcd.make_registry();
    let member = TagMember::new(&etcd.address());
    let longest = "\u{e4}".repeat(31) + "x";
    for tag in ["we\"ird\\{},%41", " a 'b' ", "../fleet", &longest] {
        assert_eq!(member.draw(tag, 1), Err(PlaceRefusal::Empty(State::Unknown)), "{tag}");
        says(&etcd, &["create-tag", tag, "7"]);
        assert!(fails(&["create-tag", tag]).contains("exists already"));
        assert_eq!(member.draw(tag, 1), run(7, 1), "{tag}");
        says(&etcd, &["drop-tag", tag]);
        // What is left is drawn, until the registry is asked the next time.
        assert!(matches!(member.draw(tag, u32::MAX), Ok(ValueRun { first: 8, .. })));
        assert_eq!(member.draw(tag, 1), Err(PlaceRefusal::Empty(State::Unknown)), "{tag}");
    }
    assert!(fails(&["create-tag", ""]).contains("1 to 63 bytes"));
    let too_long = longest + "x";
    assert!(fails(&["create-tag", &too_long]).contains(" has 64"));
    assert!(fails(&["create-tag", "orders", "9223372036854775808"]).contains("is not a bigint"));
    says(&etcd, &["create-tag", "orders", "-5"]);
    for (name, value, why) in [
        ("next_value", "-6", "cannot be lowered from -5 to -6"),
        ("next_value", "x", "not a whole number"),
        ("least_step", "0", "steps are from 1"),
        ("least_step", "1000001", "the least is not above the greatest"),
        ("greatest_step", "10000001", "steps are from 1"),
        ("jump", "0", "jump is from 1"),
        ("price", "1", "and no price"),
    ] {
        let error = fails(&["set-tag", "orders", name, value]);
        assert!(error.contains(why), "{name} {value}: {error}");
    }
    says(&etcd, &["set-tag", "orders", "description", "of the \"shop\" = all"]);
    says(&etcd, &["set-tag", "orders", "next_value", "100"]);
    assert_eq!(member.draw("orders", 1), run(100, 1));
    let shown = says(&etcd, &["show"]);
    assert!(
        shown.contains("/tags/orders\n") && shown.contains("description=of%20the%20%22shop%22%20%3D%20all"),
        "{shown}"
    );
    // An edit without the script.
    etcd.ctl(&["put", "/snowflake_id/default/tags/orders", "id=1 next_value=many nonce=1 generation=1"]);
    let other = TagMember::new(&etcd.address());
    says(&etcd, &["create-tag", "invoices", &(END - 3).to_string()]);
    assert_eq!(other.draw("invoices", 5), run(END - 3, 3));
    assert_eq!(other.draw("invoices", 5), Err(PlaceRefusal::Empty(State::Ended)));
    let third = TagMember::new(&etcd.address());
    third.claim("orders");
    match third.supply() {
        Err(Failure::Away(RegistryError::Etcd(Problem::Record(key, why)))) => {
            assert_eq!((&*key, &*why), ("/snowflake_id/default/tags/orders", "next_value=many"));
        }
        other => panic!("{other:?}"),
    }
}

/// The snapshot lacks what was given since. It shows by itself, and tags jump for the generation.
/// When it is restored again, only the operator's word makes them jump beyond what they jumped to
/// before.
#[test]
fn a_restored_snapshot_moves_tags_beyond_what_was_given() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let mut etcd = registry(1);
    create(&etcd, "orders", ("10", "20"));
    create(&etcd, "invoices", ("10", "20"));
    assert!(etcd.operate(&["set-tag", "orders", "jump", "1000"]).unwrap().contains("has jump 1000"));
    let member = TagMember::new(&etcd.address());
    assert_eq!((member.draw("orders", 10), member.draw("invoices", 10)), (run(1, 10), run(1, 10)));
    etcd.save("snapshot");
    assert_eq!(TagMember::new(&etcd.address()).draw("orders", 10), run(21, 10));
    etcd.restore("snapshot", "one");
    let after = TagMember::new(&etcd.address());
    let first = draw_patiently(&after, "orders")[0];
    assert_eq!(first, 21 + 20_000);
    assert!(after.has_reported(|notice| matches!(notice, SupplyNotice::Forgot(_))));
    assert_eq!(after.draw("invoices", 1), Err(PlaceRefusal::Empty(State::NoJump)));
    assert!(etcd.operate(&["set-tag", "invoices", "jump", "5"]).unwrap_err().contains("needs a next value first"));
    says(&etcd, &["set-tag", "invoices", "next_value", "500"]);
    assert_eq!(TagMember::new(&etcd.address()).draw("invoices", 1), run(500, 1));

    etcd.restore("snapshot", "one");
    let shown = says(&etcd, &["show"]);
    let dry = says(&etcd, &["restored", "dry-run"]);
    assert!(
        dry.starts_with("Nothing was changed.\nThese tags jump ahead: orders from 21 to ")
            && dry.ends_with("These tags give no values until you set their next_value: invoices at 11.\n"),
        "{dry}"
    );
    assert_eq!(says(&etcd, &["show"]), shown);
    let said = says(&etcd, &["restored"]);
    let to = said.lines().find_map(|line| line.strip_prefix("These tags have jumped ahead: orders from 21 to "));
    let to: i64 = to.and_then(|to| to.strip_suffix('.')?.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    assert!(said.ends_with("give no values until you set their next_value: invoices at 11.\n"), "{said}");
    // Before the next server begins the generation. One word of the operator is enough.
    says(&etcd, &["set-tag", "invoices", "next_value", "600"]);
    let again = TagMember::new(&etcd.address());
    let second = draw_patiently(&again, "orders")[0];
    assert!(second == to && second > first + 20 && (second - 21) % 20_000 == 0, "{second} after {first}");
    assert_eq!(again.draw("invoices", 1), run(600, 1));
}

#[test]
fn a_server_draws_dense_values_from_etcd() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    let etcd = registry(1);
    let server = Server::builder()
        .set("registry", &etcd.address())
        .config("dynamic_shared_memory_type", "mmap")
        .start_with_extension();
    let mut session = server.connect();
    session.wait_for_lease();
    let refusal = refused(session.query("SELECT snowflake_segment_next('o''rders')", &[]));
    assert_refused_as(&refusal, "42704", "tag \"o'rders\" does not exist in the registry's fleet \"default\"");
    assert_eq!(refusal.hint.as_deref(), Some("Make it: registry-etcd -f default create-tag 'o'\\''rders'"));
    says(&etcd, &["create-tag", "o'rders"]);
    assert_eq!(session.ids("SELECT snowflake_segment_batch('o''rders', 3)").unwrap(), [1, 2, 3]);
    drop(session);
    server.stop(Shutdown::Fast);
    assert_eq!(next_value(&etcd, "o%27rders"), 4);
    server.start_again();
    assert_eq!(server.connect().ids("SELECT snowflake_segment_next('o''rders')").unwrap(), [4]);
}
