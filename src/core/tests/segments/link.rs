//! The way from a server to the registry. Other servers and sessions go on during a call. A call
//! may never arrive, arrive late, or lose its answer.

use std::collections::BTreeMap;
use std::rc::Rc;

use snowflake_core::clock::Clock;
use snowflake_core::layout::Layout;
use snowflake_core::lease::{self, LeaseTerms, SharedWords};
use snowflake_core::registry::{
    Fleet, FleetLimits, Incarnation, MemberTerms, Reading, Registry, SinceIncarnation, Swap, SwapAnswer, Wanted,
};
use snowflake_core::segment::{
    Block, Claimed, GiveBack, Grant, Granted, Place, Reserve, Return, State, SuppliedServer, SupplyNotice, Tag,
    TagRecord, TagRegistry,
};

use crate::ledger::{Fate, Given};
use crate::store::Kind;
use crate::swarm::Choice;
use crate::world::{Life, World};
use crate::{Guarantee, Lie};

/// What may happen to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Through,
    AnswerLost,
    Late,
    Lost,
}

/// A message that arrives late.
#[derive(Debug, Clone)]
pub enum Message {
    Reserve(Rc<Life>, Reserve),
    GiveBack(Rc<Life>, GiveBack, Vec<i64>),
}

/// There is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoAnswer;

pub struct Link<'a> {
    pub world: &'a World,
    pub life: &'a Rc<Life>,
}

impl Link<'_> {
    /// Something happens while the message is under way.
    fn way(&self) -> Result<Way, NoAnswer> {
        self.world.meanwhile();
        let Self { world, life } = self;
        let is_cut_off = world.now_ms.get() < world.away_until_ms.get().max(life.cut_off_until_ms.get());
        if life.is_over.get() || is_cut_off {
            world.count("no answer");
            return Err(NoAnswer);
        }
        let ways = [(16, Way::Through), (1, Way::AnswerLost), (1, Way::Late), (1, Way::Lost)];
        Ok(if world.settles.get() { Way::Through } else { world.swarm.weighed(&world.random, Choice::Way, &ways) })
    }

    fn answer_lost<T>(&self) -> Result<T, NoAnswer> {
        self.world.count("answer lost");
        Err(NoAnswer)
    }

    fn incarnation(&self, compared: Incarnation, now: Incarnation) -> Incarnation {
        if self.world.lies(Lie::AnyIncarnation) { compared } else { now }
    }

    /// The answer arrives: what is written is durable.
    fn answered(&self) {
        let mut store = self.world.store.borrow_mut();
        if store.kind == Kind::Synchronous && !self.world.lies(Lie::NotDurable) {
            store.synced = store.changes();
        }
    }
}

impl World {
    /// The registry reserves, by the records that it has seen before if it lies.
    pub fn arrive(
        &self,
        life: &Rc<Life>,
        reserve: &Reserve,
        fate: Fate,
        before: Option<&BTreeMap<Tag, TagRecord>>,
    ) -> Option<Granted<Grant>> {
        let mut store = self.store.borrow_mut();
        let now = store.tags.clone();
        let granted = store.reserve(reserve, before.unwrap_or(&now), self.lie)?;
        for (ask, grant) in reserve.asks.iter().zip(&granted.answers) {
            let Grant::Block { id, block, generation, .. } = *grant else { continue };
            let given = Given {
                life: life.number,
                id,
                block,
                generation,
                restores: self.restores.get(),
                nonce: ask.nonce,
                fate,
            };
            self.check(self.ledger.borrow_mut().give(given));
            if fate == Fate::Had {
                life.ids.borrow_mut().insert(ask.tag, id);
                life.ends.borrow_mut().entry(id).and_modify(|end| *end = block.end().max(*end)).or_insert(block.end());
            }
            let (_, greatest) = store.tags[&ask.tag].steps;
            if block.count > greatest {
                self.broken(Guarantee::Steps, || format!("{block:?} for {ask:?}"));
            }
        }
        Some(granted)
    }

    pub fn arrive_back(&self, life: &Rc<Life>, give_back: &GiveBack, ends: &[i64]) -> Option<Granted<Option<i64>>> {
        let granted = self.store.borrow_mut().give_back(give_back, ends, self.lie)?;
        for (given, taken) in give_back.returns.iter().zip(&granted.answers) {
            if let Some(first) = *taken {
                self.ledger.borrow_mut().take_back(life.number, &Return { first, ..*given });
            } else {
                self.count("not given back");
            }
        }
        Some(granted)
    }
}

impl Registry for Link<'_> {
    type Error = NoAnswer;

    fn read(&self, wanted: Wanted) -> Result<Reading, NoAnswer> {
        if self.way()? != Way::Through {
            return self.answer_lost();
        }
        let store = self.world.store.borrow();
        // All begin at the same time.
        let freeze_ms = if self.world.lies(Lie::ByNumber) { i64::MIN } else { store.fleet.freeze_ms };
        Ok(Reading {
            fleet: Fleet { freeze_ms, ..store.fleet },
            records: match wanted {
                Wanted::Number(worker) => store.numbers.range(worker..=worker),
                Wanted::All => store.numbers.range(..),
            }
            .map(|(worker, record)| (*worker, *record))
            .collect(),
            incarnation: store.incarnation,
            now_ms: self.world.now_ms.get(),
            up_ms: None,
        })
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, NoAnswer> {
        let way = self.way()?;
        if matches!(way, Way::Lost | Way::Late) {
            return self.answer_lost();
        }
        let answer = self.world.store.borrow_mut().swap(swap, self.world.lie);
        if way == Way::AnswerLost {
            return self.answer_lost();
        }
        self.answered();
        Ok(answer)
    }
}

impl TagRegistry for Link<'_> {
    fn reserve(&self, reserve: &Reserve) -> Result<Option<Granted<Grant>>, NoAnswer> {
        let Self { world, life } = self;
        let mut reserve = reserve.clone();
        if world.lies(Lie::ReturnsCount) {
            let ends = life.ends.borrow();
            for ask in &mut reserve.asks {
                ask.above = ask.id.and_then(|id| ends.get(&id).copied()).unwrap_or(ask.above);
            }
        }
        let reserve = &reserve;
        let before = world.store.borrow().tags.clone();
        let before = Some(&before).filter(|_| world.lies(Lie::NotAtomic));
        let way = self.way()?;
        match way {
            Way::Lost if world.lies(Lie::LostIsYes) => {
                let mut store = world.store.borrow().clone();
                let now = store.tags.clone();
                let granted = store.reserve(reserve, &now, None);
                for (ask, grant) in reserve.asks.iter().zip(granted.iter().flat_map(|granted| &granted.answers)) {
                    let Grant::Block { id, block, generation, .. } = *grant else { continue };
                    let nonce = ask.nonce;
                    let given = Given {
                        life: life.number,
                        id,
                        block,
                        generation,
                        restores: world.restores.get(),
                        nonce,
                        fate: Fate::Had,
                    };
                    world.check(world.ledger.borrow_mut().give(given));
                    life.ids.borrow_mut().insert(ask.tag, id);
                }
                return Ok(granted);
            }
            Way::Lost => return self.answer_lost(),
            Way::Late => {
                world.late.borrow_mut().push(Message::Reserve((*life).clone(), reserve.clone()));
                return self.answer_lost();
            }
            Way::AnswerLost => {
                world.arrive(life, reserve, Fate::Lost, before);
                return self.answer_lost();
            }
            Way::Through => {}
        }
        if world.lies(Lie::Wasted) {
            (0..3).for_each(|_| _ = world.arrive(life, reserve, Fate::Had, before));
        }
        // An answer of another incarnation is none.
        let now = world.store.borrow().incarnation;
        let is_same = now.since(&reserve.incarnation) == SinceIncarnation::Same || world.lies(Lie::AnyIncarnation);
        let fate = if is_same { Fate::Had } else { Fate::Lost };
        let granted = world.arrive(life, reserve, fate, before);
        self.answered();
        Ok(granted.map(|granted| Granted {
            incarnation: self.incarnation(reserve.incarnation, granted.incarnation),
            ..granted
        }))
    }

    fn give_back(&self, give_back: &GiveBack) -> Result<Option<Granted<Option<i64>>>, NoAnswer> {
        let Self { world, life } = self;
        let ends: Vec<_> = {
            let ledger = world.ledger.borrow();
            give_back.returns.iter().map(|given| ledger.end(life.number, given.id).unwrap_or(i64::MIN)).collect()
        };
        if world.lies(Lie::NotTakenOut) {
            self.put_back(give_back, &ends);
        }
        let way = self.way()?;
        match way {
            Way::Lost => return self.answer_lost(),
            Way::Late => {
                world.late.borrow_mut().push(Message::GiveBack((*life).clone(), give_back.clone(), ends));
                return self.answer_lost();
            }
            Way::AnswerLost => {
                world.arrive_back(life, give_back, &ends);
                // The server may send it once more.
                if world.random.one_in(2) {
                    world.late.borrow_mut().push(Message::GiveBack((*life).clone(), give_back.clone(), ends));
                }
                return self.answer_lost();
            }
            Way::Through => {}
        }
        let granted = world.arrive_back(life, give_back, &ends);
        self.answered();
        Ok(granted)
    }
}

impl Link<'_> {
    /// For the lie that nothing was taken out: sessions draw what is given back.
    fn put_back(&self, give_back: &GiveBack, ends: &[i64]) {
        for (given, end) in give_back.returns.iter().zip(ends) {
            let at = self.claimed().into_iter().find(|claimed| claimed.tag == given.tag);
            let Some(place) = at.map(|at| &self.life.places[at.place]) else { continue };
            let count = end.saturating_sub(given.first) as u32;
            if let Some(room) = place.room().filter(|_| count > 0) {
                place.fill(room, Block { first: given.first, count });
                self.world.draw(self.life, given.tag, 2);
            }
        }
    }
}

/// The settings for leases.
pub const TERMS: LeaseTerms = LeaseTerms { max_borrow_ms: 100 };

/// The same server, which also leases its worker number.
pub struct Keeper<'a>(pub &'a Link<'a>);

impl Clock for Keeper<'_> {
    fn now_ms(&self) -> i64 {
        self.0.world.now_ms.get()
    }
}

impl lease::LeasingServer for Keeper<'_> {
    fn layout(&self) -> &Layout {
        &self.0.world.layout
    }

    fn datacenter(&self) -> Option<i64> {
        None
    }

    fn has_backup(&self) -> bool {
        false
    }

    fn words(&self) -> SharedWords<'_> {
        let Life { numbers, generator, .. } = &**self.0.life;
        SharedWords { numbers, generator, marks: &[] }
    }

    fn nonce(&self) -> u64 {
        self.0.world.bits()
    }

    fn report(&self, notice: lease::LeaseNotice) {
        let Link { world, life } = self.0;
        world.tell(|| format!("  life {} reports {notice:?}", life.number));
        match notice {
            lease::LeaseNotice::Acquired(_) => world.count("leased"),
            lease::LeaseNotice::Older(_) => world.count("lease forgotten"),
            _ => {}
        }
    }
}

impl SuppliedServer for Link<'_> {
    fn places(&self) -> &[Place] {
        &self.life.places
    }

    fn claimed(&self) -> Vec<Claimed> {
        let mut claimed = self.life.directory.borrow().claimed(&self.life.places);
        if self.world.lies(Lie::NeverAgain) {
            claimed.retain(|claimed| self.life.places[claimed.place].state() != State::NoJump);
        }
        claimed
    }

    fn unwish(&self, place: usize, claim: u64, least: i64) {
        self.life.directory.borrow_mut().unwish(&self.life.places, place, claim, least);
    }

    fn member(&self) -> MemberTerms {
        lease::member(
            lease::LeasingServer::layout(&Keeper(self)),
            lease::LeasingServer::has_backup(&Keeper(self)),
            FleetLimits::default(),
        )
    }

    fn running_ms(&self) -> i64 {
        self.world.now_ms.get()
    }

    fn nonce(&self) -> u64 {
        self.world.bits()
    }

    fn report(&self, notice: SupplyNotice) {
        let Self { world, life } = self;
        world.tell(|| format!("  life {} reports {notice:?}", life.number));
        world.count(match notice {
            SupplyNotice::Jumped { .. } => "jumped",
            SupplyNotice::Gone(tag) => {
                let id = life.ids.borrow_mut().remove(&tag);
                world.ledger.borrow_mut().write_off(life.number, id);
                "gone"
            }
            SupplyNotice::Ended(_) => "ended",
            SupplyNotice::NoJump(tag) => {
                world.stopped(tag);
                "no jump"
            }
            SupplyNotice::TooFar { .. } => "too far",
            SupplyNotice::Below { .. } => {
                if !world.is_silent {
                    world.broken(Guarantee::Calm, || format!("life {} reports {notice:?}", life.number));
                }
                "below"
            }
            SupplyNotice::Unusable { .. } => "unusable",
            SupplyNotice::Adopted(_) => "adopted",
            SupplyNotice::Forgot(_) => "forgot",
            SupplyNotice::GivenBack { .. } => "given back",
        });
    }
}
