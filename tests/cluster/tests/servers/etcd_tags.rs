//! Tags in a fleet's registry in etcd: the extension's connection (`src/registry/etcd.rs`), used by
//! the core's supply as a server uses it, and by servers.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Barrier;
use std::thread;

use cluster::pages::block;
use cluster::refusal::assert_refused_as;
use cluster::{Draw, Etcd, Leases, Operated, Server, Shutdown, TagMember, has_etcd, refused, skip, wait_until};
use serde_json::{Value, json};
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::segment::{JUMP, PlaceRefusal, State, ValueRun};

const NO_ETCD: &str = "etcd and etcdctl are not installed";

fn registry(members: usize) -> Etcd {
    let etcd = Etcd::start(members);
    etcd.make_registry();
    etcd
}

/// Makes a tag with these steps.
fn create(etcd: &Etcd, tag: &str, steps: (&str, &str)) {
    etcd.operate(&["create-tag", tag, "--least-step", steps.0, "--greatest-step", steps.1]);
}

/// Returns a value of a tag's record.
#[track_caller]
fn value(etcd: &Etcd, tag: &str, name: &str) -> i64 {
    let record = etcd.ctl(&["get", "--print-value-only", &format!("/snowflake_id/default/tags/{tag}")]);
    let record: Value = serde_json::from_str(&record).unwrap();
    let value = record[name].as_i64().or_else(|| record[name].as_str()?.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {record}"))
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
    assert!(etcd.operate(&["set-tag", "orders", "--jumps", "true"]).contains("jumps ahead by 1000000000 values"));
    let member = TagMember::new(&etcd.address());
    assert_eq!((member.draw("orders", 10), member.draw("invoices", 10)), (run(1, 10), run(1, 10)));
    etcd.save("snapshot");
    assert_eq!(TagMember::new(&etcd.address()).draw("orders", 10), run(21, 10));
    etcd.restore("snapshot", "one");
    let after = TagMember::new(&etcd.address());
    let first = draw_patiently(&after, "orders")[0];
    assert_eq!(first, 21 + JUMP);
    assert!(after.has_begun_a_generation());
    assert_eq!(after.draw("invoices", 1), Err(PlaceRefusal::Empty(State::NoJump)));
    assert!(etcd.refuses(&["set-tag", "invoices", "--jumps", "true"]).contains("needs a next value, too"));
    etcd.operate(&["set-tag", "invoices", "--next-value", "500"]);
    assert_eq!(TagMember::new(&etcd.address()).draw("invoices", 1), run(500, 1));

    etcd.restore("snapshot", "one");
    let records = || etcd.ctl(&["get", "--prefix", "/snowflake_id/"]);
    let before = records();
    let dry = etcd.operate(&["restored", "--dry-run"]);
    let stopped = "These tags give no values until you set their next value \
                   (\"snowflake-registry set-tag TAG --next-value VALUE\"): \"invoices\" at 11.\n";
    assert!(
        dry.starts_with("Nothing was changed")
            && dry.contains("\nThese tags jump ahead: \"orders\" from 21 to ")
            && dry.ends_with(stopped),
        "{dry}"
    );
    assert_eq!(records(), before);
    let said = etcd.operate(&["restored"]);
    let to = said.lines().find_map(|line| line.strip_prefix("These tags jump ahead: \"orders\" from 21 to "));
    let to: i64 = to.and_then(|to| to.strip_suffix('.')?.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    assert!(said.ends_with(stopped), "{said}");
    // One word of the operator is enough.
    etcd.operate(&["set-tag", "invoices", "--next-value", "600"]);
    let again = TagMember::new(&etcd.address());
    let second = draw_patiently(&again, "orders")[0];
    assert!(second == to && second > first + 20 && (second - 21) % JUMP == 0, "{second} after {first}");
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
    // The hint is what has to be done.
    etcd.enter(refusal.hint.as_deref().and_then(|hint| hint.strip_prefix("Make it: ")).expect("it begins so"));
    assert_eq!(session.ids("SELECT snowflake_segment_batch('o''rders', 3)").unwrap(), [1, 2, 3]);
    drop(session);
    server.stop(Shutdown::Fast);
    assert_eq!(next_value(&etcd, "o%27rders"), 4);
    server.start_again();
    assert_eq!(server.connect().ids("SELECT snowflake_segment_next('o''rders')").unwrap(), [4]);
}

/// The block of the page.
#[test]
fn a_record_is_changed_with_etcdctl_and_jq_and_servers_keep_the_change() {
    if !has_etcd() {
        return skip(NO_ETCD);
    }
    if Command::new("jq").arg("--version").output().is_err() {
        return skip("jq is not installed (make setup)");
    }
    let etcd = registry(1);
    create(&etcd, "orders", ("10", "20"));
    etcd.operate(&["set-tag", "orders", "--description", "order numbers"]);
    let record = || -> Value {
        let record = etcd.ctl(&["get", "--print-value-only", "/snowflake_id/default/tags/orders"]);
        serde_json::from_str(&record).unwrap()
    };
    let commands = block("etcd-edit").replace("$ ", "");
    // A server that reserves a block after the record was read.
    let (read, write) = commands.split_once("new=").expect("a line makes the new record");
    let meanwhile = r#"etcdctl put "$key" "$(jq -c '.next_value = 41' <<<"$old")""#;
    assert_eq!(etcd.shell(&format!("{read}{meanwhile}\nnew={write}")), "OK\nFAILURE\n");
    assert_eq!((&record()["next_value"], &record()["note"]), (&json!(41), &Value::Null));
    assert_eq!(etcd.shell(&commands), "SUCCESS\n\nOK\n");
    assert_eq!(TagMember::new(&etcd.address()).draw("orders", 10), run(41, 10));
    let record = record();
    assert_eq!((&record["note"], &record["description"]), (&json!("asked by the shop"), &json!("order numbers")));
    assert!(record["next_value"].as_i64() > Some(50), "{record}");
}
