//! What a store does for servers and operators, in a real PostgreSQL and in a real etcd: what is
//! read, what a swap compares, and what only operators do. None of these needs the extension.
//!
//! `store_postgres.rs` and `store_etcd.rs` show what only one of them has.

use std::collections::{BTreeMap, BTreeSet};

use cluster::registry::{
    Poll, config, lease, now_ms, number, of_number, of_tag, operator_config, swaps, tag, tag_record,
};
use cluster::{Draw, Etcd, Server};
use snowflake_core::fleet::registry::{
    Fleet, MOST_CHANGES, NumberKey, NumberRecord, Reading, RecordChange, SinceIncarnation, TagRecord, Wanted,
    WantedNumbers, WantedTags,
};
use snowflake_core::fleet::segment::END;
use snowflake_registry::{Config, MemberName, Registry, open};

/// A registry, whose fleet `default` has the numbers 7 to 9.
enum Kept {
    Postgres(Server),
    Etcd(Etcd),
}

impl Kept {
    fn open(&self, fleet: &str, is_operator: bool) -> Box<dyn Registry> {
        let conninfo = match self {
            Self::Postgres(server) if is_operator => server.conninfo(),
            Self::Postgres(server) => server.registry_conninfo(),
            Self::Etcd(etcd) => etcd.address(),
        };
        let config = if is_operator { operator_config(&conninfo) } else { config(&conninfo) };
        open(Config { fleet: fleet.to_owned(), ..config }, Poll)
    }

    fn operator(&self) -> Box<dyn Registry> {
        self.open("default", true)
    }

    fn member(&self) -> Box<dyn Registry> {
        self.open("default", false)
    }

    fn limited(self) -> Self {
        let operator = self.operator();
        let reading = operator.read(&Wanted::default()).unwrap();
        let (layout, range) = (Some((5, false)), Some((7, 9)));
        let fleet = Fleet { layout, range, longest_ms: 600_000, skew_ms: 60_000, version: 1, ..reading.fleet };
        assert!(swaps(&*operator, &reading, vec![RecordChange::Fleet(fleet)]));
        self
    }

    /// Returns number and beginning of each lease in the history.
    fn history(&self) -> BTreeSet<(i64, i64)> {
        match self {
            Self::Postgres(server) => {
                let rows = server.connect().query("SELECT worker, from_ms FROM snowflake_registry.history", &[]);
                rows.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
            }
            Self::Etcd(etcd) => {
                let keys = etcd.ctl(&["get", "--prefix", "--keys-only", "/snowflake_id/default/history/-/"]);
                let of = |key: &str| {
                    let (worker, from_ms) = key.strip_prefix("/snowflake_id/default/history/-/")?.split_once('/')?;
                    Some((worker.parse().ok()?, from_ms.parse().ok()?))
                };
                keys.split_whitespace().filter_map(of).collect()
            }
        }
    }
}

fn postgres() -> Kept {
    let server = Server::builder().without_preload().durable().start();
    server.make_registry();
    Kept::Postgres(server).limited()
}

fn etcd() -> Kept {
    let etcd = Etcd::start(1);
    etcd.make_registry();
    Kept::Etcd(etcd).limited()
}

for_each_kind! {
    only_what_is_wanted_is_read
    a_swap_is_done_whole_or_not_at_all
    a_hundred_records_are_changed_in_one_swap
    a_closed_fleet_is_changed_by_an_operator_alone
    a_lease_that_an_operator_cuts_is_still_its_holders
    the_history_is_pruned_but_for_the_last_lease_of_each_number
    an_operator_makes_fleets
    an_operator_describes_tags
}

fn only_what_is_wanted_is_read(kept: &Kept) {
    let operator = kept.operator();
    let reading = operator.read(&Wanted::all()).unwrap();
    assert!((now_ms() - reading.now_ms).abs() < 3_600_000);
    let of = |datacenter, worker, nonce| {
        let number = NumberKey::new(datacenter, worker);
        RecordChange::Number { number, was: None, record: lease(1, nonce, (10, 20)) }
    };
    let longest = "ä".repeat(31) + "x";
    let odd = ["we\"ird\\{},NULL", " a 'b' ", "NULL", "\u{1}", "../fleet \"ä\"", "%41", &longest];
    let mut changes = vec![of(None, 7, 1), of(None, 8, 2), of(Some(0), 7, 3), of(Some(31), 9, 4)];
    changes.extend(odd.iter().map(|name| of_tag(name, None, Some(tag_record(END, 1)))));
    assert!(swaps(&*operator, &reading, changes));

    let wanted = |numbers, tags| {
        let Reading { numbers, tags, .. } = operator.read(&Wanted { numbers, tags }).unwrap();
        (numbers.values().map(|record| record.nonce).collect::<Vec<_>>(), tags.into_keys().collect::<Vec<_>>())
    };
    for (numbers, nonces) in [
        (WantedNumbers::None, vec![]),
        (WantedNumbers::One(number(7)), vec![1]),
        (WantedNumbers::One(number(9)), vec![]),
        (WantedNumbers::One(NumberKey::new(Some(0), 7)), vec![3]),
        (WantedNumbers::One(NumberKey::new(Some(1), 7)), vec![]),
        (WantedNumbers::Of(None), vec![1, 2]),
        (WantedNumbers::Of(Some(31)), vec![4]),
        (WantedNumbers::Of(Some(4)), vec![]),
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
    let other = kept.open("other", true);
    assert!(other.create_fleet(&Fleet { uuid: 7, ..reading.fleet }).unwrap());
    let read = other.read(&Wanted::all()).unwrap();
    assert_eq!((read.numbers, read.tags), (BTreeMap::new(), BTreeMap::new()));
}

fn a_swap_is_done_whole_or_not_at_all(kept: &Kept) {
    let (operator, other) = (kept.operator(), kept.operator());
    let reading = operator.read(&Wanted::all()).unwrap();
    let made = vec![of_number(7, None, lease(1, 1, (10, 20))), of_tag("orders", None, Some(tag_record(1, 1)))];
    assert!(swaps(&*operator, &reading, made.clone()));
    let before = operator.read(&Wanted::all()).unwrap();
    let fleet = |version| RecordChange::Fleet(Fleet { clock_skew_ms: 7, version, ..before.fleet });
    let renewed = |was| of_number(7, was, lease(1, 2, (10, 21)));
    let raised = |was| of_tag("orders", was, Some(tag_record(9, 2)));
    for wrong in [
        made,
        vec![fleet(2), renewed(Some(1)), raised(Some(3))],
        vec![fleet(2), renewed(Some(3)), raised(Some(1))],
        vec![fleet(2), renewed(Some(1)), raised(None)],
        vec![renewed(None), raised(Some(1))],
        vec![of_number(8, Some(1), lease(1, 2, (10, 20))), raised(Some(1))],
        vec![renewed(Some(1)), of_tag("invoices", Some(1), Some(tag_record(1, 2)))],
        vec![renewed(Some(1)), of_tag("orders", Some(3), None)],
        vec![renewed(Some(3))],
        vec![raised(Some(3))],
        vec![raised(None)],
        vec![of_tag("orders", Some(3), None)],
        vec![of_number(7, None, lease(1, 2, (10, 20)))],
    ] {
        assert!(!swaps(&*operator, &before, wrong.clone()), "{wrong:?}");
        let after = operator.read(&Wanted::all()).unwrap();
        let same = |reading: &Reading| (reading.fleet, reading.numbers.clone(), reading.tags.clone());
        assert_eq!(same(&after), same(&before), "{wrong:?}");
    }
    let whole = vec![fleet(2), renewed(Some(1)), raised(Some(1))];
    assert!(swaps(&*operator, &before, whole.clone()));
    let after = other.read(&Wanted::all()).unwrap();
    assert_eq!((after.fleet.clock_skew_ms, after.tags[&tag("orders")].next), (7, 9));
    assert_eq!(after.numbers[&number(7)].until_ms, 21);
    // Of what was read, each record has changed since.
    for change in whole {
        assert!(!swaps(&*operator, &before, vec![change]));
    }
    // Of the next reading, the fleet alone.
    assert!(swaps(&*other, &after, vec![fleet(3)]));
    let delete = || vec![of_tag("orders", Some(2), None)];
    assert!(!swaps(&*operator, &after, delete()));
    assert!(swaps(&*operator, &operator.read(&Wanted::default()).unwrap(), delete()));
    assert!(other.read(&Wanted::all()).unwrap().tags.is_empty());
}

/// As many as a swap can have.
fn a_hundred_records_are_changed_in_one_swap(kept: &Kept) {
    let operator = kept.operator();
    let most = MOST_CHANGES as i64;
    for nonce in 1..=2 {
        let was = (nonce > 1).then_some(nonce - 1);
        let from_ms = 100 * nonce as i64;
        let leased = |worker| of_number(worker, was, lease(u128::from(nonce), nonce, (from_ms, from_ms + 50)));
        let reading = operator.read(&Wanted::default()).unwrap();
        assert!(swaps(&*operator, &reading, (100..100 + most).map(leased).collect()));
        let given = |at| of_tag(&format!("tag{at}"), was, Some(tag_record(1, nonce)));
        assert!(swaps(&*operator, &reading, (0..most).map(given).collect()));
        let after = operator.read(&Wanted::all()).unwrap();
        assert_eq!((after.numbers.len(), after.tags.len()), (MOST_CHANGES, MOST_CHANGES));
        let (mut numbers, mut tags) = (after.numbers.values(), after.tags.values());
        assert!(numbers.all(|record| record.nonce == nonce) && tags.all(|record| record.nonce == nonce));
    }
}

fn a_closed_fleet_is_changed_by_an_operator_alone(kept: &Kept) {
    let (operator, member) = (kept.operator(), kept.member());
    let reading = operator.read(&Wanted::all()).unwrap();
    let (first, renewed) = (lease(1, 1, (10, 20)), lease(1, 2, (10, 30)));
    let made = vec![of_number(7, None, first), of_tag("orders", None, Some(tag_record(1, 1)))];
    assert!(swaps(&*operator, &reading, made));
    let wanted = Wanted { numbers: WantedNumbers::Of(None), tags: WantedTags::Named(vec![tag("orders")]) };
    let before = member.read(&wanted).unwrap();
    assert!(swaps(
        &*operator,
        &reading,
        vec![RecordChange::Fleet(Fleet { closed: true, version: 2, ..reading.fleet })]
    ));
    assert!(!swaps(&*member, &before, vec![of_number(7, Some(1), renewed)]));
    let closed = member.read(&wanted).unwrap();
    for change in [
        RecordChange::Fleet(Fleet { closed: false, version: 3, ..closed.fleet }),
        of_number(7, Some(1), renewed),
        of_tag("orders", Some(1), Some(tag_record(6, 2))),
    ] {
        assert!(!swaps(&*member, &closed, vec![change]));
    }
    let reading = operator.read(&Wanted::all()).unwrap();
    assert!(swaps(&*operator, &reading, vec![of_number(7, Some(1), renewed), of_tag("orders", Some(1), None)]));
    let open = Fleet {
        uuid: 9,
        layout: None,
        range: Some((70, 90)),
        loses_nothing: matches!(kept, Kept::Postgres(_)),
        closed: false,
        longest_ms: 700_000,
        skew_ms: 1000,
        lease_ms: 5000,
        clock_skew_ms: 20,
        incarnation: reading.fleet.incarnation,
        generation: i64::MAX as u64,
        horizon_ms: 8,
        freeze_ms: -1,
        version: u64::MAX,
    };
    assert!(swaps(&*operator, &reading, vec![RecordChange::Fleet(open)]));
    let reading = kept.operator().read(&Wanted::all()).unwrap();
    assert_eq!((reading.fleet, reading.numbers[&number(7)], reading.tags.len()), (open, renewed, 0));
}

/// The holder goes on with it, and people still see whose it is.
fn a_lease_that_an_operator_cuts_is_still_its_holders(kept: &Kept) {
    let (operator, holder) = (kept.operator(), kept.member());
    let reading = holder.read(&Wanted::numbers_of(None)).unwrap();
    let begins_ms = reading.now_ms - 1000;
    let first = lease(1, 1, (begins_ms, begins_ms + 500_000));
    assert!(swaps(&*holder, &reading, vec![of_number(7, None, first)]));
    let reading = operator.read(&Wanted::all()).unwrap();
    let cut = NumberRecord { from_ms: begins_ms - 500, until_ms: first.until_ms - 100_000, nonce: 2, ..first };
    assert!(swaps(&*operator, &reading, vec![of_number(7, Some(1), cut)]));
    let name = &holder.config().member;
    assert_eq!(operator.names().unwrap(), [(number(7), name.clone())].into());
    assert_eq!(kept.history(), [(7, cut.from_ms)].into());
    let renewed = NumberRecord { nonce: 3, count: 3, until_ms: first.until_ms, ..cut };
    let reading = holder.read(&Wanted::numbers_of(None)).unwrap();
    assert_eq!(reading.numbers[&number(7)], cut);
    assert!(swaps(&*holder, &reading, vec![of_number(7, Some(2), renewed)]));
    // A number that an operator keeps is no server's.
    let keeps = NumberRecord { holder: 9, nonce: 4, server: 0, count: 4, from_ms: renewed.until_ms, ..renewed };
    let reading = operator.read(&Wanted::all()).unwrap();
    assert!(swaps(&*operator, &reading, vec![of_number(7, Some(3), keeps)]));
    assert_eq!(operator.names().unwrap(), [(number(7), MemberName::default())].into());
    assert_eq!(kept.history(), [(7, cut.from_ms), (7, keeps.from_ms)].into());
    if let Kept::Postgres(server) = kept {
        assert_eq!(server.connect().value("SELECT secret FROM snowflake_registry.numbers"), "NULL");
        assert_eq!(server.connect().value("SELECT state FROM snowflake_registry.fleet"), "reserved");
    }
}

fn the_history_is_pruned_but_for_the_last_lease_of_each_number(kept: &Kept) {
    const NUMBERS: u64 = 40;
    let operator = kept.operator();
    // The lease of a number in round r is [100 r, 100 r + 50).
    for round in 1..=5 {
        let reading = operator.read(&Wanted::all()).unwrap();
        let was = (round > 1).then_some(round - 1);
        let from_ms = 100 * round as i64;
        let leased = |worker| {
            let holder = u128::from(1000 * round) + worker as u128;
            of_number(worker, was, lease(holder, round, (from_ms, from_ms + 50)))
        };
        assert!(swaps(&*operator, &reading, (100..100 + NUMBERS as i64).map(leased).collect()));
    }
    if let Kept::Etcd(etcd) = kept {
        etcd.ctl(&["put", "/snowflake_id/default/history/-/100/x", r#"{"note": "x"}"#]);
    }
    // More than one transaction of etcd can have.
    assert!(3 * NUMBERS as usize > MOST_CHANGES);
    for (before_ms, pruned, left) in
        [(i64::MIN, 0, 5), (150, 0, 5), (151, NUMBERS, 4), (i64::MAX, 3 * NUMBERS, 1), (i64::MAX, 0, 1)]
    {
        assert_eq!(operator.prune(before_ms), Ok(pruned), "{before_ms}");
        assert_eq!(kept.history().len() as u64, left * NUMBERS, "{before_ms}");
    }
    assert!(kept.history().iter().all(|(_, from_ms)| *from_ms == 500));
}

fn an_operator_makes_fleets(kept: &Kept) {
    let names = ["a", "a-b", "a/b", "the 'other' \"fleet\"", "ä"];
    let operator = kept.operator();
    let fleet =
        Fleet { loses_nothing: matches!(kept, Kept::Postgres(_)), ..operator.read(&Wanted::all()).unwrap().fleet };
    for (uuid, name) in (7..).zip(names) {
        let other = kept.open(name, true);
        assert!(other.read(&Wanted::default()).is_err(), "{name}");
        let new = Fleet { uuid, ..fleet };
        assert_eq!((other.create_fleet(&new), other.create_fleet(&fleet)), (Ok(true), Ok(false)), "{name}");
        let reading = other.read(&Wanted::all()).unwrap();
        let (now, clock_ms) = other.now().unwrap();
        assert_eq!(now.since(&reading.fleet.incarnation), SinceIncarnation::Same);
        assert_eq!(reading.fleet, Fleet { incarnation: reading.fleet.incarnation, ..new });
        assert!((reading.now_ms - 60_000..reading.now_ms + 60_000).contains(&clock_ms));
    }
    let found = operator.fleets().unwrap();
    assert_eq!(
        BTreeSet::from_iter(found.iter().map(String::as_str)),
        [&names[..], &["default"]].concat().into_iter().collect()
    );
    assert_eq!(found.len(), names.len() + 1);
}

fn an_operator_describes_tags(kept: &Kept) {
    let (operator, member) = (kept.operator(), kept.member());
    let reading = operator.read(&Wanted::all()).unwrap();
    assert!(swaps(&*operator, &reading, vec![of_tag("orders", None, Some(tag_record(1, 1)))]));
    assert_eq!(operator.describe_tag(tag("invoices"), "x"), Ok(false));
    assert_eq!(operator.descriptions(), Ok(BTreeMap::new()));
    let wanted = Wanted::tags(vec![tag("orders")]);
    for (nonce, description) in [(1, "of the \"shop\"\n = ä%"), (2, "what for\n"), (3, "")] {
        assert_eq!(operator.describe_tag(tag("orders"), description), Ok(true));
        let described = || operator.descriptions().unwrap().remove(&tag("orders"));
        assert_eq!(described().as_deref(), Some(description).filter(|text| !text.is_empty()));
        // It is no change for servers, and theirs keeps it.
        let reading = member.read(&wanted).unwrap();
        let was = reading.tags[&tag("orders")];
        assert_eq!(was.nonce, nonce);
        let block = TagRecord { next: was.next + 10, nonce: nonce + 1, returnable: was.next, ..was };
        assert!(swaps(&*member, &reading, vec![of_tag("orders", Some(nonce), Some(block))]));
        assert_eq!(described().as_deref(), Some(description).filter(|text| !text.is_empty()));
    }
}
