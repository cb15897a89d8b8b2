//! A registry may say anything: a person has edited it, or its clock is wrong. Whatever numbers it
//! has, a server neither panics nor overflows, and goes on when they are right again.

use std::cell::{Cell, RefCell};

use proptest::collection::vec;
use proptest::prelude::*;
use snowflake_core::clock::Utc;
use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::lease::{Holder, LeaseNotice, LeaseTerms};
use snowflake_core::fleet::registry::{Fleet, Reading, Swap, SwapAnswer, TagRecord, Wanted};
use snowflake_core::fleet::segment::{self, Supply};
use snowflake_core::fleet::tag::Tag;
use snowflake_core::id::layout::Layout;

use super::for_all;
use super::kit::registry::{Kind, Store, used_fleet};
use super::kit::server::{Connected, Memory, Notice, Process};

const NOW_MS: i64 = 1_800_000_000_000;
const TERMS: LeaseTerms = LeaseTerms { max_borrow_ms: 100 };

const TAG_RECORD: TagRecord = TagRecord {
    id: 1,
    next: 1,
    steps: (10, 100),
    jumps: true,
    nonce: 1,
    generation: 1,
    written_ms: NOW_MS,
    returnable: segment::END,
};

fn tag() -> Tag {
    Tag::new("orders").unwrap()
}

/// A server and its registry, which answers at once.
struct World {
    layout: Layout,
    now_ms: Cell<i64>,
    registry_ms: Cell<i64>,
    store: RefCell<Store>,
    nonces: Cell<u64>,
    memory: Memory,
}

impl World {
    fn new(layout: &str) -> Self {
        let layout = Layout::parse(layout).unwrap();
        let mut store = Store::new(Kind::Postgres, used_fleet(Kind::Postgres, &layout, false, 4), 0);
        store.tags.insert(tag(), TAG_RECORD);
        Self {
            layout,
            now_ms: Cell::new(NOW_MS),
            registry_ms: Cell::new(NOW_MS),
            store: RefCell::new(store),
            nonces: Cell::new(100),
            memory: Memory::new(segment::PLACES),
        }
    }

    fn next(&self) -> u64 {
        self.nonces.set(self.nonces.get() + 1);
        self.nonces.get()
    }

    /// Makes all numbers of the registry right again, but what is in a number's record.
    fn is_mended(&self) {
        let right = Self::new("snowflake").store.into_inner();
        let mut store = self.store.borrow_mut();
        let generation = store.fleet.generation;
        let layout = Some((self.layout.fingerprint(), false));
        store.fleet = Fleet { layout, version: self.next(), ..right.fleet };
        store.tags.insert(tag(), TagRecord { generation, ..TAG_RECORD });
        store.incarnation = right.incarnation;
        self.registry_ms.set(NOW_MS);
    }

    /// Gives one of all numbers this value.
    fn edit(&self, which: usize, value: i64) {
        let mut store = self.store.borrow_mut();
        let Store { fleet, tags, numbers, incarnation, .. } = &mut *store;
        let tag = tags.get_mut(&tag()).unwrap();
        let nth = value.unsigned_abs() as usize % numbers.len().max(1);
        let mut record = numbers.values_mut().nth(nth);
        match (which, &mut record) {
            (0, _) => self.registry_ms.set(value),
            (1, _) => tag.returnable = value,
            (2, _) => fleet.longest_ms = value,
            (3, _) => fleet.skew_ms = value,
            (4, _) => tag.written_ms = value,
            (5, _) => fleet.horizon_ms = value,
            (6, _) => fleet.freeze_ms = value,
            (7, _) => fleet.generation = value as u64,
            (8, _) => fleet.range = Some((value, fleet.range.map_or(0, |(_, last)| last))),
            (9, _) => fleet.range = Some((fleet.range.map_or(0, |(first, _)| first), value)),
            (10, _) => fleet.incarnation.timeline = value as u64,
            (11, _) => fleet.incarnation.counts = [value, !value],
            (12, _) => incarnation.timeline = value as u64,
            (13, _) => incarnation.counts = [!value, value],
            (14, _) => tag.next = value,
            (15, _) => tag.jumps = value < 0,
            (16, _) => tag.generation = value as u64,
            (27, _) => fleet.lease_ms = value,
            (26, _) => fleet.clock_skew_ms = value,
            (17, _) => tag.steps = (value as u32, (value >> 32) as u32),
            (18, Some(record)) => record.from_ms = value,
            (19, Some(record)) => record.until_ms = value,
            (20, Some(record)) => record.count = value as u64,
            (21, Some(record)) => record.generation = value as u64,
            (22, Some(record)) => (record.renewed_ms, record.offset_ms) = (value, value),
            (23, _) => self.now_ms.set(NOW_MS.saturating_add(value)),
            (24, _) => fleet.layout = None,
            (25, _) => fleet.range = None,
            _ => {}
        }
        fleet.version = self.next();
    }
}

impl Process for World {
    type NoAnswer = ();

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn now_ms(&self) -> i64 {
        self.now_ms.get()
    }

    fn nonce(&self) -> u64 {
        self.next()
    }

    fn report(&self, notice: Notice) -> Result<(), ()> {
        if let Notice::Lease(
            LeaseNotice::Acquired(lease)
            | LeaseNotice::Older(lease)
            | LeaseNotice::Lost(lease)
            | LeaseNotice::GivenBack(lease),
        ) = notice
        {
            let _ = (Utc(lease.from_ms).to_string(), Utc(lease.until_ms).to_string());
        }
        Ok(())
    }

    fn read(&self, wanted: &Wanted) -> Result<Reading, ()> {
        let reading = self.store.borrow().read(wanted, 0);
        Ok(Reading { now_ms: self.registry_ms.get(), ..reading })
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, ()> {
        Ok(self.store.borrow_mut().swap(swap))
    }
}

/// Numbers at the ends of all types, around zero, and around now.
pub(super) fn extreme() -> impl Strategy<Value = i64> {
    let ends =
        [i64::MIN, i64::MIN + 1, i64::MAX, i64::MAX - 1, i64::MAX / 2, i32::MAX.into(), u32::MAX.into(), -1, 0, 1];
    prop_oneof![
        proptest::sample::select(ends.to_vec()),
        NOW_MS - 1_000_000..NOW_MS + 1_000_000,
        any::<i64>(),
        (0..63_u32, -1..=1_i64).prop_map(|(bits, off)| (1 << bits) + off),
    ]
}

#[test]
fn no_number_in_a_registry_makes_a_server_panic() {
    let edits = vec((0..28_usize, extreme(), 0..8_u8), 1..20);
    let layouts = proptest::sample::select(vec!["snowflake", "js53", "sonyflake", "baidu"]);
    for_all(2000, (layouts, edits), |(layout, edits)| {
        let world = World::new(layout);
        let (server, places) = (Connected(&world), &world.memory.tags);
        let (mut holder, mut supply) = (Holder::new(7), Supply::new());
        let _ = holder.renew_or_acquire(&server, &TERMS);
        for (which, value, then) in edits {
            world.edit(which, value);
            let failure = match then {
                0 => holder.give_back(&server).err(),
                1 => supply.give_back(&server, &mut holder.membership).err(),
                2..=4 => {
                    let (place, view) = places.find(tag()).unwrap();
                    places.raise_minimum(place, view.claim(), value);
                    let kept = supply.supply(&server, &mut holder.membership).err();
                    let _ = (view.draw(1), view.draw(u32::MAX), supply.looks_in_ms(&server));
                    kept
                }
                _ => holder.renew_or_acquire(&server, &TERMS).err(),
            };
            if let Some(Failure::NoneFree { first: Some((_, at_ms)), .. } | Failure::Frozen { until_ms: at_ms }) =
                failure
            {
                let _ = Utc(at_ms).to_string();
            }
            holder.enter(&server, &TERMS).unwrap();
            let _ =
                (holder.enters_in_ms(&server, &TERMS), world.memory.draw(&world.layout, &server, TERMS.max_borrow_ms));
            prop_assert!(holder.interval_ms(&TERMS, &world.layout) >= 0);
        }
        // A generation beyond all others stays: a person has to put that right, too.
        world.is_mended();
        world.now_ms.set(NOW_MS);
        for _ in 0..3 {
            let _ = holder.renew_or_acquire(&server, &TERMS);
            let _ = supply.supply(&server, &mut holder.membership);
        }
        Ok(())
    });
}
