//! What sessions and workers do with tags, and their histories.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use snowflake_core::fleet::exchange::Failure;
use snowflake_core::fleet::segment::{END, JUMP, LastSeenTag, PlaceRefusal, PlaceView, State, Supply};
use snowflake_core::fleet::tag::Tag;

use super::TAGS;
use super::ledger::{Broken, Given};
use crate::keeper::{Keeper, NoAnswer};
use crate::kit::server::{Connected, Places};
use crate::log::{Log, Record};
use crate::promises::{Guarantee, Lie};
use crate::server::{Config, Server, Shared};
use crate::swarm::{Chance, Choice};
use crate::world::World;

/// How many places a server has. There are more tags.
const FEW_PLACES: usize = 3;

/// What the sessions and the worker of one shared memory have of tags.
#[derive(Debug)]
pub struct Tagged {
    pub places: Places,
    supply: RefCell<Supply>,
    /// The place and claim that sessions remember for each tag.
    views: RefCell<BTreeMap<Tag, (usize, u64)>>,
    /// Which tag has which id, as the registry has answered last.
    pub ids: RefCell<BTreeMap<Tag, u64>>,
    /// What was left of the blocks a while before, for a lie.
    remembered: RefCell<Vec<Given>>,
}

impl Default for Tagged {
    fn default() -> Self {
        let (views, ids, remembered) = Default::default();
        Self { places: Places::new(FEW_PLACES), supply: RefCell::new(Supply::new()), views, ids, remembered }
    }
}

impl World {
    /// Runs a history of tags.
    pub fn run_tags(&self) {
        let tags = self.random.of(1..=TAGS.len() as i64) as usize;
        TAGS[..tags].iter().for_each(|tag| self.insert(Tag::new(tag).unwrap()));
        // A backup has the tags.
        let fleet = self.registered();
        fleet.keep_all();
        fleet.operators.oldest_backup.set(TAGS.len() + 1);
        for _ in 0..self.random.of(1..=3) {
            self.add_tagged();
        }
        for _ in 0..self.random.of(20..=90) {
            if self.lie.is_some() && !self.broken.borrow().is_empty() {
                return;
            }
            self.step_tags();
        }
        self.settle_tags();
    }

    /// Adds a server.
    pub fn add_tagged(&self) -> Rc<Server> {
        let mut log = Log::default();
        log.insert(Record::NewDatabase(None));
        let config = Config { layout: self.layouts[0], worker: 1, backup: false };
        self.add_server(log, config, 0, vec![Vec::new()], None);
        self.servers.borrow().last().expect("it was added").clone()
    }

    fn step_tags(&self) {
        type Action = fn(&World, &Rc<Server>);
        let actions: [(usize, Action); 18] = [
            (30, Self::some_session),
            (14, Self::supply),
            (4, Self::draw),
            (6, Self::keep),
            (8, |world, _| world.pass(world.random.pick(&[1, 1000, 11_000, 11_000, 20 * 60_000, 40 * 60_000]))),
            (2, Self::crash),
            (2, Self::stop_tagged),
            (1, Self::stop_worker),
            (3, |world, _| world.deliver(world.registered())),
            (1, |world, _| world.cut_registry_off(world.registered())),
            (1, |world, _| world.cut_server_off(world.registered())),
            (2, |world, _| world.fail_registry_over(world.registered())),
            (1, |world, _| world.restore_registry(world.registered())),
            (1, |world, _| world.lose_registry(world.registered())),
            (8, Self::operate),
            (1, Self::hand_tags_over),
            (1, Self::take_over),
            (1, Self::remember),
        ];
        // Servers wait until an operator has said what has happened to the registry.
        let waits = self.registered().operators.is_sealed() && self.random.one_in(2);
        let action = if waits { Self::operate } else { self.chooses(Choice::Step, &actions) };
        action(self, &self.any_server());
    }

    /// Something happens while a message to the registry is under way.
    pub fn meanwhile_tags(&self, chance: Chance, times: usize) {
        if self.is_disturbed(2, chance, times) {
            self.during(|| (0..self.random.of(1..=4)).for_each(|_| self.step_tags()));
        }
    }

    pub fn check_broken(&self, broken: impl IntoIterator<Item = Broken>) {
        broken.into_iter().for_each(|(guarantee, what)| self.broken(guarantee, || what));
    }

    pub fn any_tag(&self) -> Tag {
        // The first tags are used more than the others.
        let first = self.random.below(TAGS.len());
        Tag::new(TAGS[self.random.below(first + 1)]).unwrap()
    }

    fn some_session(&self, server: &Rc<Server>) {
        let tag = self.any_tag();
        for _ in 0..self.random.of(1..=6) {
            if self.random.one_in(8) {
                self.count("batch");
                self.draw_tag(server, tag, self.random.of(2..=20) as u32);
            } else {
                self.draw_tag(server, tag, 1);
            }
        }
    }

    /// Returns a session's view of its tag's place.
    fn view<'a>(&self, shared: &'a Shared, tag: Tag) -> Option<PlaceView<'a>> {
        let Tagged { places, views, .. } = shared.tags();
        let remembered = views.borrow().get(&tag).copied();
        let view = match remembered {
            Some((at, _)) if self.lies(Lie::NoClaim) => places.places[at].view(),
            Some((at, claim)) => PlaceView::new(&places.places[at], claim),
            None => {
                let Ok((at, view)) = places.find(tag) else {
                    self.count("full");
                    return None;
                };
                views.borrow_mut().insert(tag, (at, view.claim()));
                view
            }
        };
        Some(view)
    }

    /// Draws up to `count` values of a tag, as a session does. Returns whether there was one.
    pub fn draw_tag(&self, server: &Rc<Server>, tag: Tag, count: u32) -> bool {
        let shared = server.shared();
        if shared.gone.get() {
            return false;
        }
        let Some(view) = self.view(&shared, tag) else { return false };
        match view.draw(count) {
            Ok(drawn) => {
                let id = shared.tags().ids.borrow().get(&tag).copied().unwrap_or_default();
                self.tell(|| format!("server {} draws {:?} of {tag}", server.number, drawn.run));
                for value in drawn.run.values() {
                    self.count("value drawn");
                    let broken = self.registered().tags.ledger.borrow_mut().draw(shared.memory, id, value);
                    self.check_broken(broken);
                }
                if drawn.needs_refill && self.random.one_in(2) {
                    self.supply(server);
                }
                true
            }
            Err(PlaceRefusal::Void | PlaceRefusal::Empty(State::Unknown)) => {
                self.count("void");
                shared.tags().views.borrow_mut().remove(&tag);
                false
            }
            Err(PlaceRefusal::Empty(_)) => {
                if self.random.one_in(2) {
                    self.supply(server);
                }
                false
            }
        }
    }

    /// Runs a server's worker.
    pub fn supply(&self, server: &Rc<Server>) {
        let shared = server.shared();
        // One process does both.
        let (Ok(mut supply), Ok(mut holder)) = (shared.tags().supply.try_borrow_mut(), shared.holder.try_borrow_mut())
        else {
            return;
        };
        if shared.gone.get() {
            return;
        }
        if self.lies(Lie::NothingAbove) {
            *supply = Supply::new();
        }
        let supplied =
            self.work_for(server, &shared, |keeper| supply.supply(&Connected(keeper), &mut holder.membership));
        self.tell(|| format!("server {} reserves: {supplied:?}", server.number));
    }

    /// Runs a worker up to its end, or to the end of its process.
    fn work_for(
        &self,
        server: &Rc<Server>,
        shared: &Rc<Shared>,
        work: impl FnOnce(&Keeper<'_>) -> Result<(), Failure<NoAnswer>>,
    ) -> Option<Result<(), Failure<NoAnswer>>> {
        let keeper = Keeper::new(self, self.registered(), server, shared);
        let result = work(&keeper);
        self.write_off_gone(shared);
        if keeper.has_ended() {
            self.process_ends(server);
            return None;
        }
        Some(result)
    }

    /// What was left of a tag that the registry does not have any more is lost.
    pub fn write_off_gone(&self, shared: &Shared) {
        if !self.has_tags {
            return;
        }
        let claimed = shared.tags().places.claimed();
        shared.tags().ids.borrow_mut().retain(|tag, id| {
            let is_there = claimed.iter().any(|claimed| claimed.tag == *tag);
            if !is_there {
                self.registered().tags.ledger.borrow_mut().write_off(shared.memory, Some(*id));
            }
            is_there
        });
    }

    /// Checks how much a crash loses.
    pub fn check_crash(&self, shared: &Shared) {
        if self.has_tags {
            let broken = self.registered().tags.ledger.borrow().crash(shared.memory);
            self.check_broken(broken);
        }
    }

    fn remember(&self, server: &Rc<Server>) {
        let shared = server.shared();
        let left = self.registered().tags.ledger.borrow().left(shared.memory);
        shared.tags().remembered.replace(left.into_iter().map(|(_, given)| given).collect());
    }

    /// For the lie that blocks survive a crash.
    pub fn blocks_survive(&self, before: &Shared, server: &Rc<Server>) {
        let (before, shared) = (before.tags(), server.shared());
        let after = shared.tags();
        for given in before.remembered.borrow().iter() {
            let ids = before.ids.borrow();
            let Some(tag) = ids.iter().find(|(_, id)| **id == given.id).map(|(tag, _)| *tag) else { continue };
            let Ok((at, _)) = after.places.find(tag) else { continue };
            let place = &after.places.places[at];
            if let Some(room) = place.room() {
                place.fill(room, given.block);
                after.ids.borrow_mut().insert(tag, given.id);
                for _ in 0..given.block.count {
                    self.draw_tag(server, tag, 1);
                }
            }
        }
    }

    /// A server stops cleanly, and is started again.
    fn stop_tagged(&self, server: &Rc<Server>) {
        if self.give_tags_back(server) {
            self.count("stop");
            self.restart(server);
        }
    }

    /// The worker alone is ended and started again.
    fn stop_worker(&self, server: &Rc<Server>) {
        if self.give_tags_back(server) {
            self.count("worker stops");
        }
    }

    /// Gives back what a server has left. Returns whether its worker could be stopped.
    fn give_tags_back(&self, server: &Rc<Server>) -> bool {
        let shared = server.shared();
        let (Ok(mut supply), Ok(mut holder)) = (shared.tags().supply.try_borrow_mut(), shared.holder.try_borrow_mut())
        else {
            return false;
        };
        let fleet = self.registered();
        let (before, losses) = (*supply, fleet.tags.losses.get());
        let given = match self.lies(Lie::NothingBack) {
            true => Some(Ok(())),
            false => {
                self.work_for(server, &shared, |keeper| supply.give_back(&Connected(keeper), &mut holder.membership))
            }
        };
        if self.lies(Lie::ReturnsCount) {
            *supply = before;
        }
        self.tell(|| format!("server {} gives back: {given:?}", server.number));
        // It may have been given back to a registry that has lost that since, and the generation.
        let is_lost = losses != fleet.tags.losses.get();
        let (ledger, store) = (fleet.tags.ledger.borrow(), fleet.store.borrow());
        for (at, left) in ledger.left(shared.memory) {
            let is_there = store.tags.values().any(|record| record.id == left.id);
            let is_another = |generation| (generation, fleet.tags.restores.get()) != (left.generation, left.restores);
            let has_begun = is_another(store.fleet.generation) || is_lost && is_another(fleet.tags.newest.get());
            if given != Some(Ok(())) || !is_there {
                continue;
            }
            self.count("not given back");
            if !has_begun && !ledger.is_followed(at) && !fleet.tags.has_changed(left.id, ledger.before(at)) {
                self.broken(Guarantee::GivenBack, || format!("server {} stops with {left:?}", server.number));
            }
        }
        drop((ledger, store));
        fleet.tags.ledger.borrow_mut().write_off(shared.memory, None);
        true
    }

    /// A server stops, and another one draws the same tag at once.
    fn hand_tags_over(&self, server: &Rc<Server>) {
        let tag = self.any_tag();
        (0..3).for_each(|_| _ = self.draw_tag(server, tag, 1));
        self.supply(server);
        (0..3).for_each(|_| _ = self.draw_tag(server, tag, 1));
        if self.give_tags_back(server) {
            self.count("joined");
            let other = self.any_server();
            for _ in 0..6 {
                self.draw_tag(&other, tag, 4);
                self.supply(&other);
            }
            self.deliver(self.registered());
            for _ in 0..6 {
                self.draw_tag(server, tag, 4);
                self.supply(server);
            }
        }
    }

    /// A session takes over values that were drawn elsewhere, and wants only greater ones. These
    /// lie a few blocks above, because a registry may forget them like blocks; or below. Of a tag
    /// that its server knows by its id: a wish for one tag would be far above another of its name.
    fn take_over(&self, server: &Rc<Server>) {
        let (shared, tag) = (server.shared(), self.any_tag());
        let Some(record) = self.registered().store.borrow().tags.get(&tag).copied() else { return };
        let Tagged { supply, views, .. } = shared.tags();
        let knows = |(at, claim): &(usize, u64)| {
            let supply = supply.try_borrow();
            supply.is_ok_and(|supply| supply.last_seen(*at, *claim).and_then(LastSeenTag::id) == Some(record.id))
        };
        if !views.borrow().get(&tag).is_some_and(knows) {
            return;
        }
        let above = self.random.of(-20..=3 * i64::from(record.steps.1));
        let least = record.next.saturating_add(above).min(END - 40);
        self.raise(server, tag, least, 3);
    }

    /// A session draws, and throws away, until there is a value that is not below `least`. Returns
    /// whether there was one.
    fn raise(&self, server: &Rc<Server>, tag: Tag, least: i64, most_draws: u32) -> bool {
        let shared = server.shared();
        let Some(first) = self.view(&shared, tag) else { return false };
        for _ in 0..most_draws {
            let Some(view) = self.view(&shared, tag).filter(|view| view.claim() == first.claim()) else {
                return false;
            };
            let Tagged { places, views, .. } = shared.tags();
            let at = views.borrow()[&tag].0;
            places.raise_minimum(at, view.claim(), least);
            let below = view.find(1).map_or(1, |found| least.saturating_sub(found.run().first));
            if below <= 0 {
                self.count("taken over");
                return true;
            }
            if !self.draw_tag(server, tag, below as u32) {
                self.pass(1000);
                self.supply(server);
            }
        }
        false
    }

    /// In the end the registry answers, and every server draws from every tag that has values.
    fn settle_tags(&self) {
        self.settles.set(true);
        let fleet = self.registered();
        fleet.late.borrow_mut().clear();
        self.settle_operators(fleet);
        let servers = self.servers.borrow().clone();
        // A server notes first what the registry may have forgotten.
        self.keep(&servers[0]);
        self.settle_jumps();
        // Time for every server to look at its tags, and for what could give nothing.
        for _ in 0..3 {
            self.pass(11_000);
            servers.iter().for_each(|server| self.keep(server));
            servers.iter().for_each(|server| self.supply(server));
        }
        let tags: Vec<_> = fleet.store.borrow().tags.keys().copied().collect();
        for server in &servers {
            for tag in &tags {
                self.settle_tag(server, *tag);
            }
        }
    }

    /// A session draws, and waits for the worker up to four times: the tag's place may be another
    /// tag's by now, and the registry may have forgotten something.
    fn settle_tag(&self, server: &Rc<Server>, tag: Tag) {
        for _ in 0..5 {
            if self.draw_tag(server, tag, 1) {
                self.count("settled");
                return self.settle_wish(server, tag);
            }
            self.pass(1000);
            self.supply(server);
        }
        let is_full = self.view(&server.shared(), tag).is_none();
        if !self.is_ended(server, tag) && !is_full {
            self.broken(Guarantee::Live, || format!("server {} draws nothing of {tag}", server.number));
        }
    }

    /// A session wishes for more than a few blocks.
    fn settle_wish(&self, server: &Rc<Server>, tag: Tag) {
        let least = self.registered().store.borrow().tags[&tag].next.saturating_add(200);
        if !self.raise(server, tag, least, 8) && !self.is_ended(server, tag) {
            let number = server.number;
            self.broken(Guarantee::Live, || format!("server {number} draws nothing of {tag} from {least} on"));
        }
    }

    /// Whether the tag has hardly any value left, or an operator has to set its next value, because
    /// a silent restore has forgotten so many jumps, or the registry what an operator has said.
    fn is_ended(&self, server: &Server, tag: Tag) -> bool {
        let fleet = self.registered();
        let record = fleet.store.borrow().tags[&tag];
        let has_forgotten =
            fleet.beyond == Some(crate::fleet::Beyond::RestoredSilently) || fleet.tags.may_have_unsaid(record.id);
        let shared = server.shared();
        let is_too_far = shared.tags().places.places.iter().any(|place| place.state() == State::TooFar);
        has_forgotten && is_too_far || record.next >= END - 2 * JUMP
    }
}
