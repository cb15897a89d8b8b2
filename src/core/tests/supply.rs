//! The supply of blocks, step by step, over a registry that does what it is told. `simulation.rs`
//! tests what servers, registry and network do to each other.
//!
//! Each test of liveness says how many calls of the registry are needed.

// loom's atomics panic outside a loom model.
#![cfg(not(loom))]

mod kit;

use std::cell::{Cell, RefCell};

use kit::registry::{Kind, Store, used_fleet};
use kit::server::{Connected, Memory, Notice, Process};
use kit::stepped::Stepped;
use snowflake_core::exchange::Failure;
use snowflake_core::layout::Layout;
use snowflake_core::membership::{FleetNotice, Membership};
use snowflake_core::pace::{AttemptFailure, Pace};
use snowflake_core::registry::{Change, Fleet, MOST_CHANGES, Reading, Swap, SwapAnswer, TagRecord, Wanted};
use snowflake_core::segment::{END, PLACES, Supply};
use snowflake_core::tag::Tag;

const START_MS: i64 = 1_800_000_000_000;

/// A registry that has tags, and the time.
struct World {
    layout: Layout,
    store: RefCell<Store>,
    now_ms: Cell<i64>,
    nonces: Cell<u64>,
}

fn tag(number: usize) -> Tag {
    Tag::new(&format!("tag {number}")).unwrap()
}

impl World {
    fn new(tags: usize) -> Self {
        let layout = Layout::parse("js53").unwrap();
        let mut store = Store::new(Kind::Postgres, used_fleet(Kind::Postgres, &layout, false, 2), 0);
        let record = TagRecord {
            id: 1,
            next: 1,
            steps: (10, 100),
            jumps: true,
            nonce: 1,
            generation: 1,
            written_ms: START_MS,
            returnable: END,
        };
        let change = |number| Change::Tag { tag: tag(number), was: None, record: Some(record) };
        store.write((0..tags).map(change).collect());
        Self { layout, store: RefCell::new(store), now_ms: Cell::new(START_MS), nonces: Cell::new(100) }
    }

    fn server(&self) -> Server<'_> {
        Server {
            world: self,
            memory: Memory::new(PLACES),
            membership: RefCell::new(Membership::new()),
            stepped: None,
            calls: Cell::new(0),
            dies_in: Cell::new(u32::MAX),
            fleet_notices: RefCell::default(),
        }
    }

    fn nonce(&self) -> u64 {
        self.nonces.set(self.nonces.get() + 1);
        self.nonces.get()
    }

    fn next_of(&self, number: usize) -> i64 {
        self.store.borrow().tags[&tag(number)].next
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoAnswer {
    /// The process has ended.
    Ended,
    /// It is stopped after this call.
    Stopped,
}

/// A server, with its connection.
struct Server<'a> {
    world: &'a World,
    memory: Memory,
    membership: RefCell<Membership>,
    /// Whether it stops after each call.
    stepped: Option<Stepped>,
    calls: Cell<u32>,
    /// How often the process goes on before and after a call.
    dies_in: Cell<u32>,
    fleet_notices: RefCell<Vec<FleetNotice>>,
}

impl Process for Server<'_> {
    type NoAnswer = NoAnswer;

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn layout(&self) -> &Layout {
        &self.world.layout
    }

    fn now_ms(&self) -> i64 {
        self.world.now_ms.get()
    }

    fn nonce(&self) -> u64 {
        self.stepped.as_ref().map_or_else(|| self.world.nonce(), |stepped| stepped.random(|| self.world.nonce()))
    }

    fn report(&self, notice: Notice) -> Result<(), NoAnswer> {
        if let Notice::Fleet(notice) = notice {
            self.fleet_notices.borrow_mut().push(notice);
            return Ok(());
        }
        self.lives()?;
        self.lives()
    }

    fn read(&self, wanted: &Wanted) -> Result<Reading, NoAnswer> {
        let read = || {
            self.calls.set(self.calls.get() + 1);
            self.lives()?;
            let reading = self.world.store.borrow().read(wanted, self.world.now_ms.get());
            self.lives().map(|()| reading)
        };
        match &self.stepped {
            Some(stepped) => stepped.read(read).map_err(|error| error.unwrap_or(NoAnswer::Stopped)),
            None => read(),
        }
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, NoAnswer> {
        assert!((1..=MOST_CHANGES).contains(&swap.changes.len()));
        let swap = || {
            self.calls.set(self.calls.get() + 1);
            self.lives()?;
            let answer = self.world.store.borrow_mut().swap(swap);
            self.lives().map(|()| answer)
        };
        match &self.stepped {
            Some(stepped) => stepped.swap(swap).map_err(|error| error.unwrap_or(NoAnswer::Stopped)),
            None => swap(),
        }
    }
}

impl Server<'_> {
    fn lives(&self) -> Result<(), NoAnswer> {
        let left = self.dies_in.get().checked_sub(1).ok_or(NoAnswer::Ended)?;
        self.dies_in.set(left);
        Ok(())
    }

    fn process(&self) -> Connected<'_, Self> {
        Connected(self)
    }

    fn supply(&self, supply: &mut Supply) -> u32 {
        self.calls.set(0);
        assert_eq!(supply.supply(&self.process(), &mut self.membership.borrow_mut()), Ok(()));
        self.calls.get()
    }

    /// Goes on up to the answer of the next call. Returns what came of it all in the end.
    fn step(&mut self, supply: &mut Supply) -> Option<Result<(), Failure<NoAnswer>>> {
        self.stepped.get_or_insert_default().runs_again();
        let (mut tried, mut membership) = (*supply, *self.membership.borrow());
        let result = tried.supply(&self.process(), &mut membership);
        if result == Err(Failure::Away(NoAnswer::Stopped)) {
            return None;
        }
        (*supply, self.stepped) = (tried, None);
        self.membership.replace(membership);
        Some(result)
    }

    /// Draws one value, as a session does.
    fn draw(&self, number: usize) -> Option<i64> {
        let (_, view) = self.memory.directory.borrow_mut().find(&self.memory.places, tag(number)).unwrap();
        view.draw(1).ok().map(|drawn| drawn.run.first)
    }
}

#[test]
fn a_first_block_takes_two_calls_and_a_look_one() {
    let (world, mut supply) = (World::new(1), Supply::new());
    let server = world.server();
    assert_eq!((server.draw(0), server.supply(&mut supply)), (None, 2));
    assert_eq!(server.draw(0), Some(1));
    // A tenth is drawn.
    assert_eq!((server.supply(&mut supply), world.next_of(0)), (2, 21));
    assert_eq!((server.supply(&mut supply), supply.looks_in_ms(&server.process())), (0, Some(10_000)));
    world.now_ms.set(START_MS + 10_000);
    assert_eq!((server.supply(&mut supply), world.next_of(0)), (1, 21));
}

#[test]
fn as_many_tags_as_a_server_can_use_take_three_swaps() {
    let (world, mut supply) = (World::new(PLACES), Supply::new());
    let server = world.server();
    assert!((0..PLACES).all(|number| server.draw(number).is_none()));
    assert_eq!(server.supply(&mut supply), 6);
    assert!((0..PLACES).all(|number| server.draw(number) == Some(1)));
    server.calls.set(0);
    assert_eq!(
        (supply.give_back(&server.process(), &mut server.membership.borrow_mut()), server.calls.get()),
        (Ok(()), 6)
    );
    assert!((0..PLACES).all(|number| world.next_of(number) == 2));
}

/// Nothing of the swap is written then.
#[test]
fn a_tag_that_another_server_changes_meanwhile_costs_two_calls_more() {
    let world = World::new(2);
    let [mut one, other] = [world.server(), world.server()];
    let (mut supply, mut others) = (Supply::new(), Supply::new());
    assert!((0..2).all(|number| one.draw(number).is_none()) && other.draw(1).is_none());
    assert_eq!(one.step(&mut supply), None);
    other.supply(&mut others);
    let mut calls = 1;
    while one.step(&mut supply).is_none() {
        calls += 1;
    }
    assert_eq!((calls, one.calls.get()), (4, 4));
    assert_eq!((one.draw(0), one.draw(1), other.draw(1)), (Some(1), Some(11), Some(1)));
}

/// The worst case: all read before one swaps. Each refusal is another server's block, so that all
/// have theirs after as many rounds as there are servers.
#[test]
fn of_servers_that_ask_at_once_one_gets_a_block_in_each_round() {
    const SERVERS: usize = 50;
    let Rounds { rounds, contended, mut drawn, .. } = rounds(SERVERS, |_, _| 0);
    assert_eq!(rounds, SERVERS);
    assert!(contended > 0, "no server has had to come again");
    drawn.sort_unstable();
    assert!(drawn.into_iter().eq((0..SERVERS as i64).map(|nth| 1 + 10 * nth)));
}

/// How servers that want one tag in the same moment get their blocks. In a round, all that ask read
/// before one of them swaps.
struct Rounds {
    rounds: usize,
    /// How often a server has lost again and again.
    contended: u32,
    /// How often each server has called the registry.
    calls: Vec<u32>,
    /// The first value that each server draws.
    drawn: Vec<i64>,
}

/// `waits` says for how many rounds a server waits that has lost again and again; 0 for not at all.
fn rounds(servers: usize, mut waits: impl FnMut(usize, usize) -> usize) -> Rounds {
    let world = World::new(1);
    let mut servers: Vec<_> = (0..servers).map(|_| (world.server(), Box::new(Supply::new()))).collect();
    servers.iter().for_each(|(server, _)| assert_eq!(server.draw(0), None));
    // When each server asks next.
    let mut due = vec![0; servers.len()];
    let mut contended = 0;
    for round in 0.. {
        for (nth, (server, supply)) in servers.iter_mut().enumerate() {
            while due[nth] <= round {
                match server.step(supply) {
                    // It has read.
                    None => break,
                    Some(Err(Failure::Contended)) => {
                        contended += 1;
                        due[nth] = round + waits(nth, round);
                    }
                    Some(Ok(())) => due[nth] = usize::MAX,
                    result => panic!("{result:?} in round {round}"),
                }
            }
        }
        if due.iter().all(|due| *due == usize::MAX) {
            let calls = servers.iter().map(|(server, _)| server.calls.get()).collect();
            let drawn = servers.iter().map(|(server, _)| server.draw(0).expect("it has a block")).collect();
            return Rounds { rounds: round, contended, calls, drawn };
        }
        for ((server, supply), _) in servers.iter_mut().zip(&due).filter(|(_, due)| **due <= round) {
            assert_eq!(server.step(supply), None, "it has swapped");
        }
    }
    unreachable!("it returns")
}

#[test]
fn of_a_thousand_servers_that_want_one_tag_at_once_none_asks_for_it_often() {
    const SERVERS: usize = 1000;
    /// How long a read and a swap take.
    const ROUND_MS: i64 = 5;
    let (mut paces, mut bits) = (vec![Pace::default(); SERVERS], 0_u64);
    let Rounds { rounds, calls, .. } = rounds(SERVERS, |nth, round| {
        bits = bits.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let wait_ms = paces[nth].failed(AttemptFailure::Contended, round as i64 * ROUND_MS, bits >> 33);
        1 + (wait_ms / ROUND_MS) as usize
    });
    let (all, most) = (calls.iter().sum::<u32>(), calls.iter().max().unwrap());
    println!("{rounds} rounds, {all} calls, {most} by one server");
    // No fewer rounds are possible than there are servers.
    assert!(rounds < 3 * SERVERS && all < 60 * SERVERS as u32 && *most < 150, "{rounds} rounds, {all} calls, {most}");
}

/// The negative control: each server asks in each round, up to its block.
#[test]
fn servers_that_do_not_wait_ask_as_often_as_there_are_servers() {
    const SERVERS: usize = 200;
    let Rounds { calls, .. } = rounds(SERVERS, |_, _| 0);
    assert!(calls.iter().sum::<u32>() > 150 * SERVERS as u32, "{calls:?}");
}

/// What the holder of the server's lease has read counts, too: the registry may have forgotten it.
#[test]
fn a_generation_that_a_supply_begins_counts_with_the_limits_that_the_holder_has_read() {
    let (world, mut supply) = (World::new(1), Supply::new());
    let server = world.server();
    server.draw(0);
    server.supply(&mut supply);
    let fleet = world.store.borrow().fleet;
    let raised = Fleet { longest_ms: 3 * fleet.longest_ms, skew_ms: 2 * fleet.skew_ms, ..fleet };
    server.membership.borrow_mut().read(&raised).unwrap();
    // A backup from before the raise, and from before the block.
    let Some(record) = world.store.borrow().tags.get(&tag(0)).copied() else { panic!("the tag is there") };
    let older = Change::Tag { tag: tag(0), was: None, record: Some(TagRecord { next: 1, ..record }) };
    world.store.borrow_mut().write(vec![older]);
    world.now_ms.set(START_MS + 10_000);
    server.supply(&mut supply);
    let begun = world.store.borrow().fleet;
    let now_ms = world.now_ms.get();
    assert_eq!(begun.generation, fleet.generation + 1);
    assert_eq!(begun.freeze_ms, now_ms + raised.longest_ms + 2 * raised.skew_ms);
    assert_eq!(*server.fleet_notices.borrow(), [FleetNotice::Forgot(begun)]);
}

/// Wherever a process ends, the next one supplies its server, and one block at most is lost.
#[test]
fn a_supply_survives_the_end_of_its_process_at_any_call() {
    for gives_back in [false, true] {
        let mut goes_on = 0;
        loop {
            let (world, mut supply) = (World::new(1), Supply::new());
            let server = world.server();
            server.draw(0);
            server.supply(&mut supply);
            assert_eq!(server.draw(0), Some(1));
            server.dies_in.set(goes_on);
            let result = match gives_back {
                true => supply.give_back(&server.process(), &mut server.membership.borrow_mut()),
                false => supply.supply(&server.process(), &mut server.membership.borrow_mut()),
            };
            server.dies_in.set(u32::MAX);
            server.supply(&mut supply);
            let drawn = server.draw(0).expect("it has a block");
            let most = if gives_back { 11 } else { 2 };
            assert!((2..=most).contains(&drawn), "{drawn} after {goes_on}");
            assert!(world.next_of(0) <= 31);
            if result == Ok(()) {
                break;
            }
            assert_eq!(result, Err(Failure::Away(NoAnswer::Ended)));
            goes_on += 1;
        }
        assert!(goes_on >= 4, "gives back: {gives_back}");
    }
}
