//! One history: what its servers, sessions and operator do, and what happens to the registry.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use snowflake_core::exchange::Failure;
use snowflake_core::layout::Layout;
use snowflake_core::lease::Holder;
use snowflake_core::registry::{SinceIncarnation, TagRecord};
use snowflake_core::segment::{Block, END, JUMP, KnownTag, PlaceRefusal, PlaceView, State, Supply};
use snowflake_core::tag::Tag;

use super::ledger::{Broken, Fate, Given, Ids, Ledger};
use super::link::{Link, Message, NoAnswer, TERMS, Way};
use super::operators::{FLEET, Operators, Step};
use crate::course::Course;
use crate::kit::registry::{Kind, Store, unused_fleet};
use crate::kit::server::{Connected, Memory};
use crate::office::Operated;
use crate::promises::{Guarantee, Lie};
use crate::swarm::{Chance, Choice};

/// How many places a server has. There are more tags.
const FEW_PLACES: usize = 3;
pub const TAGS: [&str; 5] = ["orders", "invoices", "tickets", "parcels", "refunds"];

/// One more than the most changes that a failover forgets.
const MOST_LOST: usize = 6;

/// How deep calls of the registry may happen during others.
const DEEPEST: u32 = 2;

/// One life of a server's shared memory.
pub struct Life {
    pub number: u64,
    pub memory: Memory,
    supply: RefCell<Box<Supply>>,
    holder: RefCell<Holder>,
    /// The place and claim that sessions remember for each tag.
    views: RefCell<BTreeMap<Tag, (usize, u64)>>,
    pub ids: RefCell<Ids>,
    pub is_over: Cell<bool>,
    pub cut_off_until_ms: Cell<i64>,
    /// What was left of the blocks a while before, for a lie.
    remembered: RefCell<Vec<Given>>,
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "life {}", self.number)
    }
}

impl Life {
    fn new(number: u64) -> Rc<Self> {
        Rc::new(Self {
            number,
            memory: Memory::new(FEW_PLACES),
            supply: RefCell::new(Box::new(Supply::new())),
            holder: RefCell::new(Holder::new(number)),
            views: RefCell::default(),
            ids: RefCell::default(),
            is_over: Cell::new(false),
            cut_off_until_ms: Cell::new(i64::MIN),
            remembered: RefCell::default(),
        })
    }
}

pub struct World {
    pub course: Course,
    /// Whether a restore does not show.
    pub is_silent: bool,
    pub layout: Layout,
    pub store: RefCell<Store>,
    /// The registry before the last failover, of which another standby may be promoted.
    pub failed: RefCell<Option<Store>>,
    /// How many of the registry's changes no failover forgets.
    kept: Cell<usize>,
    /// The greatest generation that any registry of the history has had.
    newest: Cell<u64>,
    /// How often the registry was restored.
    pub restores: Cell<u64>,
    /// How often the registry may have forgotten something.
    losses: Cell<u64>,
    /// How often it had when an operator said last where a tag goes on, and where that is.
    said: RefCell<BTreeMap<u64, (u64, i64)>>,
    /// The versions of the fleet's record, and the nonces of tags', that an operator has written
    /// after a restore.
    restored: RefCell<Vec<u64>>,
    /// How many of them the present registry has had, or one before it.
    most_restored: Cell<usize>,
    pub operators: Operators,
    pub away_until_ms: Cell<i64>,
    pub late: RefCell<Vec<Message>>,
    servers: RefCell<Vec<Rc<Life>>>,
    lives: Cell<u64>,
    pub ledger: RefCell<Ledger>,
}

impl Deref for World {
    type Target = Course;

    fn deref(&self) -> &Course {
        &self.course
    }
}

impl World {
    /// Returns a world in which there is nothing yet.
    pub fn new(seed: u64, is_silent: bool, lie: Option<Lie>, tells: bool) -> Self {
        let course = Course::new(seed, lie, tells, 1_000_000);
        let Course { random, .. } = &course;
        let kind = random.pick(&[Kind::Postgres, Kind::Postgres, Kind::Synchronous, Kind::Etcd]);
        let kind = if is_silent { Kind::Postgres } else { kind };
        let fleet = unused_fleet(kind, FLEET, random.below(usize::MAX) as u64);
        Self {
            is_silent,
            layout: Layout::parse("time:41 worker:10 sequence:12 unit:1ms epoch:1970-01-01T00:00:00Z")
                .expect("a layout"),
            store: RefCell::new(Store::new(kind, fleet, 0)),
            course,
            failed: RefCell::default(),
            kept: Cell::new(1),
            newest: Cell::new(1),
            restores: Cell::new(0),
            losses: Cell::new(0),
            said: RefCell::default(),
            restored: RefCell::default(),
            most_restored: Cell::new(0),
            operators: Operators::default(),
            away_until_ms: Cell::new(i64::MIN),
            late: RefCell::default(),
            servers: RefCell::default(),
            lives: Cell::new(0),
            ledger: RefCell::default(),
        }
    }

    /// Returns the world of a seed, with its tags and servers.
    pub fn any(seed: u64, is_silent: bool, lie: Option<Lie>, tells: bool) -> Self {
        let world = Self::new(seed, is_silent, lie, tells);
        let tags = world.random.of(1..=TAGS.len() as i64) as usize;
        TAGS[..tags].iter().for_each(|tag| world.insert(Tag::new(tag).unwrap()));
        // A backup has the tags.
        world.sync();
        for _ in 0..world.random.of(1..=3) {
            world.start();
        }
        world
    }

    /// A synchronous standby has what is written.
    pub fn sync(&self) {
        let mut store = self.store.borrow_mut();
        store.synced = store.changes();
    }

    pub fn check(&self, broken: impl IntoIterator<Item = Broken>) {
        broken.into_iter().for_each(|(guarantee, what)| self.broken(guarantee, || what));
    }

    pub fn run(&self) {
        self.tell(|| format!("{:?}", self.swarm));
        for _ in 0..self.random.of(20..=90) {
            if self.lie.is_some() && !self.broken.borrow().is_empty() {
                return;
            }
            self.step();
        }
        self.settle();
    }

    fn step(&self) {
        type Action = fn(&World);
        let actions: [(usize, Action); 16] = [
            (30, Self::some_session),
            (14, Self::some_worker),
            (6, Self::some_keeper),
            (8, Self::pass_some),
            (2, Self::crash),
            (2, Self::stop),
            (1, Self::stop_worker),
            (3, Self::deliver),
            (1, Self::cut_off),
            (2, Self::fail_over),
            (1, Self::restore),
            (1, Self::lose_registry),
            (8, Self::operate),
            (1, Self::hand_over),
            (1, Self::take_over),
            (1, Self::remember),
        ];
        // Servers wait until an operator has said what has happened to the registry.
        let waits = self.operators.is_sealed() && self.random.one_in(2);
        let action = if waits { Self::operate } else { self.chooses(Choice::Step, &actions) };
        action(self);
    }

    /// Something happens while a message to the registry is under way.
    pub fn meanwhile(&self) {
        if self.is_disturbed(DEEPEST, Chance::Meanwhile, 4) {
            self.during(|| (0..self.random.of(1..=4)).for_each(|_| self.step()));
        }
    }

    pub fn start(&self) -> Rc<Life> {
        self.lives.set(self.lives.get() + 1);
        let life = Life::new(self.lives.get());
        self.servers.borrow_mut().push(life.clone());
        life
    }

    fn any_server(&self) -> Rc<Life> {
        let servers = self.servers.borrow();
        servers[self.random.below(servers.len())].clone()
    }

    pub fn any_tag(&self) -> Tag {
        // The first tags are used more than the others.
        let first = self.random.below(TAGS.len());
        Tag::new(TAGS[self.random.below(first + 1)]).unwrap()
    }

    fn some_session(&self) {
        let (life, tag) = (self.any_server(), self.any_tag());
        for _ in 0..self.random.of(1..=6) {
            if self.random.one_in(8) {
                self.count("batch");
                self.draw(&life, tag, self.random.of(2..=20) as u32);
            } else {
                self.draw(&life, tag, 1);
            }
        }
    }

    fn some_worker(&self) {
        self.supply(&self.any_server());
    }

    fn some_keeper(&self) {
        self.keep(&self.any_server());
    }

    /// Renews a server's lease, or acquires one.
    pub fn keep(&self, life: &Rc<Life>) {
        let Ok(mut holder) = life.holder.try_borrow_mut() else { return };
        if life.is_over.get() {
            return;
        }
        let link = Link::new(self, life, false);
        let kept = holder.keep(&Connected(&link), &TERMS);
        self.tell(|| format!("life {} keeps its lease: {kept:?}", life.number));
    }

    /// Whether an operator has said where a tag that does not jump goes on, and the registry has
    /// forgotten nothing since.
    pub fn goes_on(&self, record: &TagRecord) -> bool {
        self.said.borrow().get(&record.id).is_some_and(|(losses, _)| *losses == self.losses.get())
    }

    /// Checks that a block lies where an operator has said that its tag goes on, unless the
    /// registry may have forgotten that.
    pub fn check_raised(&self, id: u64, block: Block) {
        let said = self.said.borrow().get(&id).copied();
        if let Some((_, next)) = said.filter(|(losses, next)| *losses == self.losses.get() && block.first < *next) {
            self.broken(Guarantee::Raised, || format!("{block:?} lies below {next}"));
        }
    }

    /// The registry may have forgotten something.
    pub fn lose(&self) {
        self.losses.set(self.losses.get() + 1);
    }

    pub fn losses(&self) -> u64 {
        self.losses.get()
    }

    /// An operator has said where a tag goes on, when the registry may have forgotten something so
    /// often.
    pub fn say(&self, id: u64, losses: u64, next: i64) {
        self.said.borrow_mut().insert(id, (losses, next));
    }

    /// An operator begins a generation, or raises a tag before that.
    pub fn begin_restored(&self, version: u64) {
        self.restored.borrow_mut().push(version);
    }

    pub fn note_restores(&self) {
        self.most_restored.set(self.most_restored.get().max(self.restores_of(&self.store.borrow())));
        self.note_generation();
    }

    /// The registry is lost, and with it all that an operator has said.
    pub fn forget_restores(&self) {
        self.restores.set(self.restores.get() + 1);
        self.restored.borrow_mut().clear();
        self.most_restored.set(0);
    }

    /// Whether the registry knows of all generations that an operator has begun.
    pub fn knows_restores(&self) -> bool {
        self.restores_of(&self.store.borrow()) == self.most_restored.get()
    }

    /// All standbys have what is written.
    pub fn keep_all(&self) {
        let mut store = self.store.borrow_mut();
        store.synced = store.changes();
        self.kept.set(store.changes());
        self.forget_failed();
    }

    /// Servers reach another registry.
    pub fn adopt(&self, store: Store) {
        self.kept.set(store.changes());
        self.forget_failed();
        *self.store.borrow_mut() = store;
    }

    /// Returns what becomes of a message.
    pub fn any_way(&self) -> Way {
        let ways = [(16, Way::Through), (1, Way::AnswerLost), (1, Way::Late), (1, Way::Lost)];
        if self.settles.get() { Way::Through } else { self.chooses(Choice::Way, &ways) }
    }

    /// Returns a session's view of its tag's place.
    fn view<'a>(&self, life: &'a Life, tag: Tag) -> Option<PlaceView<'a>> {
        let remembered = life.views.borrow().get(&tag).copied();
        let view = match remembered {
            Some((at, _)) if self.lies(Lie::NoClaim) => life.memory.places[at].view(),
            Some((at, claim)) => PlaceView::new(&life.memory.places[at], claim),
            None => {
                let Ok((at, view)) = life.memory.directory.borrow_mut().find(&life.memory.places, tag) else {
                    self.count("full");
                    return None;
                };
                life.views.borrow_mut().insert(tag, (at, view.claim()));
                view
            }
        };
        Some(view)
    }

    /// Draws up to `count` values of a tag, as a session does. Returns whether there was one.
    pub fn draw(&self, life: &Rc<Life>, tag: Tag, count: u32) -> bool {
        if life.is_over.get() {
            return false;
        }
        let Some(view) = self.view(life, tag) else { return false };
        match view.draw(count) {
            Ok(drawn) => {
                let id = life.ids.borrow().get(&tag).copied().unwrap_or_default();
                self.tell(|| format!("life {} draws {:?} of {tag}", life.number, drawn.run));
                for value in drawn.run.values() {
                    self.count("drawn");
                    self.check(self.ledger.borrow_mut().draw(life.number, id, value));
                }
                if drawn.is_due && self.random.one_in(2) {
                    self.supply(life);
                }
                true
            }
            Err(PlaceRefusal::Void | PlaceRefusal::Empty(State::Unknown)) => {
                self.count("void");
                life.views.borrow_mut().remove(&tag);
                false
            }
            Err(PlaceRefusal::Empty(_)) => {
                if self.random.one_in(2) {
                    self.supply(life);
                }
                false
            }
        }
    }

    /// Runs a server's worker.
    pub fn supply(&self, life: &Rc<Life>) {
        // One process does both.
        let (Ok(mut supply), Ok(mut holder)) = (life.supply.try_borrow_mut(), life.holder.try_borrow_mut()) else {
            return;
        };
        if life.is_over.get() {
            return;
        }
        if self.lies(Lie::NothingAbove) {
            **supply = Supply::new();
        }
        let supplied = self.work_for(life, |link| supply.supply(link, &mut holder.membership));
        self.tell(|| format!("life {} reserves: {supplied:?}", life.number));
    }

    /// Runs a worker up to its end, or to the end of its process.
    fn work_for(
        &self,
        life: &Rc<Life>,
        work: impl FnOnce(&Connected<'_, Link<'_>>) -> Result<(), Failure<NoAnswer>>,
    ) -> Option<Result<(), Failure<NoAnswer>>> {
        let link = Link::new(self, life, true);
        let result = work(&Connected(&link));
        self.write_off_gone(life);
        (!link.has_ended()).then_some(result)
    }

    /// What was left of a tag that the registry does not have any more is lost.
    pub fn write_off_gone(&self, life: &Life) {
        let claimed = life.memory.claimed();
        life.ids.borrow_mut().retain(|tag, id| {
            let is_there = claimed.iter().any(|claimed| claimed.tag == *tag);
            if !is_there {
                self.ledger.borrow_mut().write_off(life.number, Some(*id));
            }
            is_there
        });
    }

    fn pass_some(&self) {
        let ms = self.random.pick(&[1, 1000, 11_000, 11_000, 20 * 60_000, 40 * 60_000]);
        self.pass(ms);
    }

    fn end(&self, life: &Rc<Life>) {
        life.is_over.set(true);
        self.servers.borrow_mut().retain(|other| !Rc::ptr_eq(other, life));
    }

    /// A server is killed, and started again.
    fn crash(&self) {
        let life = self.any_server();
        self.tell(|| format!("life {} is killed", life.number));
        self.count("crash");
        self.check(self.ledger.borrow().crash(life.number));
        self.end(&life);
        let next = self.start();
        if self.lies(Lie::BlocksSurvive) {
            self.survive(&life, &next);
        }
    }

    fn remember(&self) {
        let life = self.any_server();
        let left = self.ledger.borrow().left(life.number);
        *life.remembered.borrow_mut() = left.into_iter().map(|(_, given)| given).collect();
    }

    /// For the lie that blocks survive a crash.
    fn survive(&self, before: &Life, after: &Rc<Life>) {
        for given in before.remembered.borrow().iter() {
            let ids = before.ids.borrow();
            let Some(tag) = ids.iter().find(|(_, id)| **id == given.id).map(|(tag, _)| *tag) else { continue };
            let Ok((at, _)) = after.memory.directory.borrow_mut().find(&after.memory.places, tag) else { continue };
            if let Some(room) = after.memory.places[at].room() {
                after.memory.places[at].fill(room, given.block);
                after.ids.borrow_mut().insert(tag, given.id);
                for _ in 0..given.block.count {
                    self.draw(after, tag, 1);
                }
            }
        }
    }

    /// A server stops cleanly, and is started again.
    fn stop(&self) {
        let life = self.any_server();
        if self.give_back(&life) {
            self.count("stop");
            self.end(&life);
            self.start();
        }
    }

    /// The worker alone is ended and started again.
    fn stop_worker(&self) {
        if self.give_back(&self.any_server()) {
            self.count("worker stops");
        }
    }

    /// Gives back what a server has left. Returns whether its worker could be stopped.
    fn give_back(&self, life: &Rc<Life>) -> bool {
        let (Ok(mut supply), Ok(mut holder)) = (life.supply.try_borrow_mut(), life.holder.try_borrow_mut()) else {
            return false;
        };
        let before = supply.clone();
        let given = match self.lies(Lie::NothingBack) {
            true => Some(Ok(())),
            false => self.work_for(life, |link| supply.give_back(link, &mut holder.membership)),
        };
        if self.lies(Lie::ReturnsCount) {
            *supply = before;
        }
        self.tell(|| format!("life {} gives back: {given:?}", life.number));
        let (ledger, store) = (self.ledger.borrow(), self.store.borrow());
        for (at, left) in ledger.left(life.number) {
            let is_there = store.tags.values().any(|record| record.id == left.id);
            let has_begun = (store.fleet.generation, self.restores.get()) != (left.generation, left.restores);
            if given != Some(Ok(())) || !is_there {
                continue;
            }
            self.count("not given back");
            if !has_begun && !ledger.is_followed(at) && !self.operators.has_changed(left.id, ledger.before(at)) {
                self.broken(Guarantee::GivenBack, || format!("life {} stops with {left:?}", life.number));
            }
        }
        drop((ledger, store));
        self.ledger.borrow_mut().write_off(life.number, None);
        true
    }

    /// A server stops, and another one draws the same tag at once.
    fn hand_over(&self) {
        let (life, tag) = (self.any_server(), self.any_tag());
        (0..3).for_each(|_| _ = self.draw(&life, tag, 1));
        self.supply(&life);
        (0..3).for_each(|_| _ = self.draw(&life, tag, 1));
        if self.give_back(&life) {
            self.count("joined");
            let other = self.any_server();
            for _ in 0..6 {
                self.draw(&other, tag, 4);
                self.supply(&other);
            }
            self.deliver();
            for _ in 0..6 {
                self.draw(&life, tag, 4);
                self.supply(&life);
            }
        }
    }

    /// While a message about a tag is under way, another server reserves and draws, and the
    /// registry forgets just that.
    pub fn overtake(&self, tag: Tag) {
        if !self.is_disturbed(DEEPEST, Chance::Meanwhile, 30) {
            return;
        }
        self.during(|| {
            let (life, changes) = (self.any_server(), self.store.borrow().changes());
            (0..3).for_each(|_| _ = self.draw(&life, tag, 4));
            self.supply(&life);
            (0..3).for_each(|_| _ = self.draw(&life, tag, 4));
            if changes > TAGS.len() && self.store.borrow().changes() > changes {
                self.restore_to(changes);
            }
        });
    }

    /// A session takes over values that were drawn elsewhere, and wants only greater ones. These
    /// lie a few blocks above, because a registry may forget them like blocks; or below. Of a tag
    /// that its server knows by its id: a wish for one tag would be far above another of its name.
    fn take_over(&self) {
        let (life, tag) = (self.any_server(), self.any_tag());
        let Some(record) = self.store.borrow().tags.get(&tag).copied() else { return };
        let knows = |(at, claim): &(usize, u64)| {
            let supply = life.supply.try_borrow();
            supply.is_ok_and(|supply| supply.known(*at, *claim).and_then(KnownTag::id) == Some(record.id))
        };
        if !life.views.borrow().get(&tag).is_some_and(knows) {
            return;
        }
        let above = self.random.of(-20..=3 * i64::from(record.steps.1));
        let least = record.next.saturating_add(above).min(END - 40);
        self.raise(&life, tag, least, 3);
    }

    /// A session draws, and throws away, until there is a value that is not below `least`. Returns
    /// whether there was one.
    fn raise(&self, life: &Rc<Life>, tag: Tag, least: i64, most_draws: u32) -> bool {
        let Some(first) = self.view(life, tag) else { return false };
        for _ in 0..most_draws {
            let Some(view) = self.view(life, tag).filter(|view| view.claim() == first.claim()) else { return false };
            let at = life.views.borrow()[&tag].0;
            life.memory.directory.borrow_mut().wish(&life.memory.places, at, view.claim(), least);
            let below = view.find(1).map_or(1, |found| least.saturating_sub(found.run().first));
            if below <= 0 {
                self.count("taken over");
                return true;
            }
            if !self.draw(life, tag, below as u32) {
                self.pass(1000);
                self.supply(life);
            }
        }
        false
    }

    /// A late message arrives.
    fn deliver(&self) {
        if self.time_ms() < self.away_until_ms.get() || self.operators.is_sealed() {
            return;
        }
        let (of_servers, of_operators) = (self.late.borrow().len(), self.operators.late.borrow().len());
        if of_operators > 0 && self.random.below(of_servers + of_operators) < of_operators {
            let sent = self.operators.late.borrow_mut().swap_remove(self.random.below(of_operators));
            self.count("an operator's is late");
            self.arrive_from_operator(&sent);
        } else if of_servers > 0 {
            let message = self.late.borrow_mut().swap_remove(self.random.below(of_servers));
            self.count("late");
            self.tell(|| format!("arrives late: {message:?}"));
            self.arrive(&message, Fate::Lost);
        }
    }

    fn cut_off(&self) {
        let until_ms = self.time_ms() + self.random.pick(&[1, 1000, 15_000, 3_600_000]);
        self.count("cut off");
        if self.random.one_in(2) {
            self.away_until_ms.set(until_ms);
        } else {
            self.any_server().cut_off_until_ms.set(until_ms);
        }
    }

    /// Returns how often an operator has said that a registry was restored, as far as it knows.
    fn restores_of(&self, store: &Store) -> usize {
        let restored = self.restored.borrow();
        let generations = store.fleets().filter(|(_, fleet)| restored.contains(&fleet.version)).count();
        generations + store.tag_nonces().filter(|nonce| restored.contains(nonce)).count()
    }

    fn note_generation(&self) {
        self.newest.set(self.newest.get().max(self.store.borrow().fleet.generation));
    }

    /// A promotion and a restore take some seconds, so that generations do not follow each other
    /// faster than tags jump ([`TagRecord::restored`]).
    fn pass_some_seconds(&self) {
        self.pass(3000);
    }

    /// A standby is promoted that has so many changes.
    pub fn promote(&self, changes: usize) {
        let mut next = self.store.borrow().prefix(changes);
        next.incarnation.timeline += 1;
        self.store.replace(next);
        self.lose();
    }

    /// A standby of the registry is promoted: of the one there is, or of the one before.
    fn fail_over(&self) {
        self.note_generation();
        self.pass_some_seconds();
        if self.is_silent || self.operators.is_sealed() {
            return;
        }
        let mut store = self.store.borrow_mut();
        let again = self.failed.take().filter(|_| self.random.one_in(2));
        let is_again = again.is_some();
        let failed = again.unwrap_or_else(|| store.clone());
        let changes = failed.changes();
        let least = match failed.kind {
            Kind::Postgres => changes.saturating_sub(self.random.below(MOST_LOST)).max(1),
            Kind::Synchronous => failed.synced,
            Kind::Etcd => changes,
        };
        // Of a registry that was just restored there is no standby yet.
        let is_new = store.incarnation.store != store.fleet.incarnation.store
            || store.incarnation.since(&store.fleet.incarnation) == SinceIncarnation::Other;
        if is_new || is_again && failed.kind != Kind::Postgres {
            return;
        }
        let least = least.max(self.kept.get()).max(of_this_store(&failed));
        let end = self.random.of(least as i64..=changes as i64) as usize;
        let mut next = failed.prefix(end);
        next.incarnation = store.incarnation;
        match failed.kind {
            Kind::Etcd => next.incarnation.counts = next.incarnation.counts.map(|count| count + 1),
            // The standby knows the timelines of the others that were promoted.
            _ => next.incarnation.timeline += 1,
        }
        next.offset_ms = self.any_offset();
        self.operators.failovers.set(self.operators.failovers.get() + 1);
        self.count(if is_again { "fails over again" } else { "fails over" });
        self.tell(|| format!("the registry fails over, and loses {} of {changes} changes", changes - end));
        self.failed.replace(Some(failed));
        *store = next;
        self.lose();
    }

    /// A backup is restored: into another store, to a point in time on another timeline, as files
    /// after which an operator begins a generation, or silently.
    fn restore(&self) {
        let changes = self.store.borrow().changes();
        // Not from before the tags were made.
        self.restore_to(self.random.of((TAGS.len() as i64 + 1).min(changes as i64)..=changes as i64) as usize);
    }

    fn restore_to(&self, end: usize) {
        if self.operators.is_sealed() {
            return;
        }
        self.note_generation();
        self.pass_some_seconds();
        let mut store = self.store.borrow_mut();
        let (changes, mut next) = (store.changes(), store.prefix(end));
        self.tell(|| format!("the registry is restored, with {} of {changes} changes", next.changes()));
        self.failed.take();
        self.lose();
        if self.is_silent {
            self.count("restored silently");
            *store = next;
            return;
        }
        self.count("restored");
        self.restores.set(self.restores.get() + 1);
        // What an operator has said shows in no timeline.
        let known_restores = self.restores_of(&next) == self.most_restored.get();
        let known = next.fleet.generation == self.newest.get() && known_restores;
        let way = self.random.below(3);
        // Whether each generation that is forgotten has a timeline that tells of it.
        let (forgotten, then) = (self.newest.get().saturating_sub(next.fleet.generation), next.fleet.incarnation);
        let is_same = store.incarnation.store == then.store;
        let mut plan = Vec::new();
        let timelines = if is_same { store.incarnation.timeline.saturating_sub(then.timeline) } else { 0 };
        if way == 0 && next.kind == Kind::Postgres && forgotten <= timelines && known_restores {
            next.incarnation.timeline += 1;
        } else if way == 1 && known && next.kind != Kind::Etcd {
            next.incarnation.store += 1;
        } else if way == 1 && known {
            next.incarnation.counts[1] = next.fleet.incarnation.counts[1] - 1;
        } else {
            // The operator does not know how many generations there have been.
            plan.push(Step::Restored);
            plan.extend(next.fleet.closed.then_some(Step::Open));
            // If another restore is forgotten, the operator has to say where tags go on.
            let jumping = next.tags.iter().filter(|(_, record)| record.jumps && !known_restores);
            plan.extend(jumping.map(|(tag, _)| Step::Raise(*tag)));
        }
        next.offset_ms = self.any_offset();
        next.synced = next.changes();
        self.operators.plan(plan);
        self.kept.set(next.changes());
        *store = next;
        drop(store);
        self.note_restores();
    }

    /// In the end the registry answers, and every server draws from every tag that has values.
    fn settle(&self) {
        self.settles.set(true);
        self.away_until_ms.set(i64::MIN);
        self.late.borrow_mut().clear();
        self.settle_operators();
        let servers = self.servers.borrow().clone();
        for life in &servers {
            life.cut_off_until_ms.set(i64::MIN);
        }
        // A server notes first what the registry may have forgotten.
        servers.first().into_iter().for_each(|life| self.keep(life));
        self.settle_tags();
        // Time for every server to look at its tags, and for what could give nothing.
        for _ in 0..3 {
            self.pass(11_000);
            servers.iter().for_each(|life| self.keep(life));
            servers.iter().for_each(|life| self.supply(life));
        }
        let tags: Vec<_> = self.store.borrow().tags.keys().copied().collect();
        for life in &servers {
            for tag in &tags {
                self.settle_tag(life, *tag);
            }
        }
    }

    /// A session draws, and waits for the worker up to four times: the tag's place may be another
    /// tag's by now, and the registry may have forgotten something.
    fn settle_tag(&self, life: &Rc<Life>, tag: Tag) {
        for _ in 0..5 {
            if self.draw(life, tag, 1) {
                self.count("settled");
                return self.settle_wish(life, tag);
            }
            self.pass(1000);
            self.supply(life);
        }
        let is_full = self.view(life, tag).is_none();
        // The registry has forgotten so many jumps that an operator has to set the next value.
        let is_too_far = self.is_silent && life.memory.places.iter().any(|place| place.state() == State::TooFar);
        if !self.is_ended(tag) && !is_full && !is_too_far {
            self.broken(Guarantee::Live, || format!("life {} draws nothing of {tag}", life.number));
        }
    }

    /// A session wishes for more than a few blocks.
    fn settle_wish(&self, life: &Rc<Life>, tag: Tag) {
        let least = self.store.borrow().tags[&tag].next.saturating_add(200);
        if !self.is_ended(tag) && !self.raise(life, tag, least, 8) {
            self.broken(Guarantee::Live, || format!("life {} draws nothing of {tag} from {least} on", life.number));
        }
    }

    /// Whether the tag has hardly any value left.
    fn is_ended(&self, tag: Tag) -> bool {
        self.store.borrow().tags[&tag].next >= END - 2 * JUMP
    }
}

/// Returns how many changes there were when the fleet's record first told of this store. Its
/// standbys are made after that.
fn of_this_store(store: &Store) -> usize {
    let mut its = store.fleets().filter(|(_, fleet)| fleet.incarnation.store == store.incarnation.store);
    its.next().map_or(store.changes(), |(at, _)| at + 1)
}
