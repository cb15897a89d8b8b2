//! Histories whose events are chosen, in which nothing else happens: for rules that random ones
//! hardly ever need, because several rare things must come together.

use std::cell::RefCell;
use std::rc::Rc;

use snowflake_core::fleet::lease::LeaseTerms;
use snowflake_core::fleet::operate::{Operation, new_fleet};
use snowflake_core::fleet::registry::{Fleet, Incarnation, NumberKey};
use snowflake_core::id::identity::LaneName;
use snowflake_core::id::layout::Layout;

use crate::course::Course;
use crate::fleet::{ELSEWHERE, HOME, Registered};
use crate::kit::operator::Went;
use crate::kit::registry::{Kind, Store};
use crate::log::{Log, Record};
use crate::promises::Lie;
use crate::server::{Config, Server};
use crate::session::Session;
use crate::world::{Story, World};

const SKEW_MS: i64 = 5000;
const LEASE_MS: i64 = 10_000;

/// How much time passes between two draws.
const STEP_MS: i64 = 100;

/// The only number that servers lease here.
const NUMBER: i64 = 12;

/// A fleet with one number. Nothing is lost on the way, and no process ends.
struct Directed(World);

impl Directed {
    fn new(lie: Option<Lie>) -> Self {
        let layout = Layout::parse("time:41 worker:5 sequence:1 unit:1ms epoch:2025-01-01T00:00:00Z").unwrap();
        let mut world = World::new(1, Story::Fleet(None), lie, crate::number("SEED").is_some());
        let fleet = Fleet {
            range: Some((NUMBER, NUMBER)),
            longest_ms: LEASE_MS,
            skew_ms: SKEW_MS,
            ..new_fleet(HOME, Incarnation { store: 1, timeline: 1, counts: [0; 2] }, 1)
        };
        let registered = Registered::new(&world.random, layout, false, 0, Story::Fleet(None), None);
        registered.store.replace(Store::new(Kind::Postgres, fleet, 0));
        let terms = LeaseTerms { max_borrow_ms: 0 };
        world.fleet = Some(Registered { terms, layout, backup: false, skew_ms: SKEW_MS, ..registered });
        (world.layouts, world.max_borrow_ms, world.max_clock_jump_ms) = ([layout; 2], 0, 0);
        world.settles.set(true);
        Self(world)
    }

    fn fleet(&self) -> &Registered {
        self.0.fleet.as_ref().expect("it has one")
    }

    /// Adds a server whose clock is off by so much.
    fn server(&self, offset_ms: i64) -> Rc<Server> {
        let Self(world) = self;
        let mut log = Log::default();
        log.insert(Record::NewDatabase(None));
        let config = Config { layout: world.layouts[0], worker: 1, backup: false };
        world.add_server(log, config, offset_ms, vec![Vec::new()], None);
        let server = world.servers.borrow().last().expect("it was added").clone();
        server.leases.set(true);
        world.start(&server);
        server
    }

    /// The registry shows what the first `changes` of it are, by a clock that is off by so much.
    fn show(&self, changes: usize, timelines: u64, offset_ms: i64) {
        let mut store = self.fleet().store.borrow_mut();
        let mut next = store.prefix(changes);
        next.incarnation.timeline += timelines;
        next.offset_ms = offset_ms;
        *store = next;
    }

    fn changes(&self) -> usize {
        self.fleet().store.borrow().changes()
    }

    fn operate(&self, operation: Operation) {
        self.0.perform(operation, true);
    }

    /// A server draws for some time, and keeps its lease meanwhile.
    fn draw_as_leased(&self, server: &Rc<Server>) {
        for _ in 0..4 {
            self.0.keep(server);
            self.draw_until(server, self.0.time_ms() + SKEW_MS);
        }
    }

    /// The settings are reset. A server brings new ones and leases the number, and the registry
    /// fails over to what it was at first. A server that knows nothing of all this comes next.
    fn fail_over_after_a_reset(self) -> Course {
        let Self(world) = &self;
        self.operate(Operation::ResetSettings);
        let (start_ms, holder) = (world.time_ms(), self.server(0));
        world.keep(&holder);
        self.show(1, 1, 0);
        let other = self.server(-SKEW_MS);
        world.keep(&other);
        self.draw_until(&holder, start_ms + LEASE_MS + 4 * SKEW_MS);
        self.draw_as_leased(&other);
        self.0.course
    }

    /// A server draws in each step until the right time is `until_ms`.
    fn draw_until(&self, server: &Rc<Server>, until_ms: i64) {
        while self.0.time_ms() < until_ms {
            self.0.draw(server);
            self.0.draw(server);
            self.0.pass(STEP_MS);
        }
    }
}

/// An operator keeps a number in the moment in which a freeze ends, up to a mark that is long
/// past. A server whose clock is behind would begin before the end of a lease that the registry has
/// forgotten.
pub fn a_number_is_kept_when_a_freeze_ends(lie: Option<Lie>) -> Course {
    let directed = Directed::new(lie);
    let Directed(world) = &directed;
    let start_ms = world.time_ms();
    directed.show(1, 0, SKEW_MS / 2);
    // As far ahead of this registry as clocks may be.
    let ahead = directed.server(3 * SKEW_MS / 2);
    world.keep(&ahead);
    // Another one is promoted, whose clock is as far behind. It has nothing of that lease.
    directed.show(1, 1, -SKEW_MS / 2);
    let behind = directed.server(-3 * SKEW_MS / 2);
    world.keep(&behind);
    directed.draw_until(&ahead, start_ms + LEASE_MS);
    let freeze_ms = directed.fleet().store.borrow().fleet.freeze_ms;
    world.pass(freeze_ms - (world.time_ms() - SKEW_MS / 2));
    let number = NumberKey::new(None, NUMBER);
    directed.operate(Operation::Reserve { number, until_ms: start_ms, force: false });
    world.keep(&behind);
    directed.draw_until(&behind, world.time_ms() + 2 * SKEW_MS);
    world.keep(&behind);
    directed.draw_until(&behind, world.time_ms() + STEP_MS);
    directed.0.course
}

/// A number was configured on a server whose ids were far ahead. An operator keeps it up to there,
/// the registry fails over, and the operator widens the range to it.
pub fn a_registry_fails_over_before_a_range_is_widened_to_what_is_kept(lie: Option<Lie>) -> Course {
    let directed = Directed::new(lie);
    let Directed(world) = &directed;
    let (configured, until_ms) = (NUMBER - 1, world.time_ms() + 3_600_000);
    directed.fleet().operators.marks.borrow_mut().insert(configured, until_ms);
    let before = directed.changes();
    directed.operate(Operation::Reserve { number: NumberKey::new(None, configured), until_ms, force: false });
    directed.show(if world.lies(Lie::WidensEarly) { before } else { directed.changes() }, 1, 0);
    directed.operate(Operation::SetRange { first: configured, last: configured });
    let server = directed.server(0);
    world.keep(&server);
    // A freeze passes, and then the rest.
    for until_ms in [world.time_ms() + LEASE_MS + 2 * SKEW_MS, until_ms] {
        world.pass(until_ms - world.time_ms());
        world.keep(&server);
        directed.draw_until(&server, world.time_ms() + SKEW_MS);
    }
    directed.0.course
}

/// A backup is older than a raise of the limit, which the operator knows. A failover follows, and a
/// server that knows nothing of all this.
pub fn a_registry_fails_over_after_a_restore_that_has_forgotten_a_raise(lie: Option<Lie>) -> Course {
    let directed = Directed::new(lie);
    let Directed(world) = &directed;
    // More than a freeze that does not know of it.
    let longer_ms = LEASE_MS + 4 * SKEW_MS;
    let (lease_ms, skew_ms) = (Some(longer_ms), Some(SKEW_MS));
    directed.operate(Operation::SetLimits { lease_ms, skew_ms });
    directed.operate(Operation::SetLease { lease_ms, skew_ms: None });
    let (start_ms, holder) = (world.time_ms(), directed.server(0));
    world.keep(&holder);
    directed.show(1, 0, 0);
    directed.operate(Operation::Restored { lease_ms, skew_ms });
    // It loses nothing.
    directed.show(directed.changes(), 1, 0);
    let other = directed.server(-SKEW_MS);
    world.keep(&other);
    directed.draw_until(&holder, start_ms + longer_ms);
    directed.draw_as_leased(&other);
    directed.0.course
}

/// The limit was raised, and the settings are reset. A server brings limits, and leases a number. A
/// failover forgets all of that.
pub fn settings_are_reset_after_a_raise(lie: Option<Lie>) -> Course {
    let directed = Directed::new(lie);
    let (lease_ms, skew_ms) = (Some(LEASE_MS + 4 * SKEW_MS), Some(SKEW_MS));
    directed.operate(Operation::SetLimits { lease_ms, skew_ms });
    directed.fail_over_after_a_reset()
}

/// As before, where no server has come between two resets.
pub fn settings_are_reset_twice(lie: Option<Lie>) -> Course {
    let directed = Directed::new(lie);
    directed.operate(Operation::ResetSettings);
    directed.fail_over_after_a_reset()
}

/// The registry's clock is ahead when a number is leased, and behind when the registry is restored
/// without the lease.
pub fn a_registry_is_restored_on_a_machine_whose_clock_is_behind(lie: Option<Lie>) -> Course {
    let directed = Directed::new(lie);
    let Directed(world) = &directed;
    let start_ms = world.time_ms();
    directed.show(1, 0, SKEW_MS / 2);
    let holder = directed.server(0);
    world.keep(&holder);
    directed.show(1, 0, -SKEW_MS / 2);
    directed.operate(Operation::Restored { lease_ms: Some(LEASE_MS), skew_ms: Some(SKEW_MS) });
    let other = directed.server(-3 * SKEW_MS / 2);
    world.keep(&other);
    directed.draw_until(&holder, start_ms + LEASE_MS);
    directed.draw_as_leased(&other);
    directed.0.course
}

/// A registry is moved without being closed, and has leased a number since it was copied. In the
/// copy an operator begins to make the fleet anew, and is interrupted. Another one opens it then as
/// moved.
pub fn a_fleet_is_made_anew_that_was_moved_open(lie: Option<Lie>) -> Course {
    let directed = Directed::new(lie);
    let Directed(world) = &directed;
    let (start_ms, holder) = (world.time_ms(), directed.server(0));
    let mut copy = directed.fleet().store.borrow().clone();
    copy.incarnation.store += 1;
    world.keep(&holder);
    world.adopt_moved(copy);
    let mut lost = world.begin(Operation::Lost { lease_ms: LEASE_MS, skew_ms: SKEW_MS, uuid: None }, false);
    assert!(matches!(world.go_on(&mut lost), Went::On), "it reads");
    world.go_on(&mut lost);
    world.perform(Operation::Open { moved: Some(true) }, false);
    let other = directed.server(0);
    while world.time_ms() < start_ms + 2 * LEASE_MS + 4 * SKEW_MS {
        world.keep(&other);
        world.draw(&holder);
        world.draw(&other);
        world.pass(STEP_MS);
    }
    directed.0.course
}

/// A server crashes, and loses a mark that was not flushed. It is started with another fleet's
/// registry, which leases the same number for the same time, and an operator accepts that fleet.
pub fn another_fleet_is_accepted_after_a_crash(lie: Option<Lie>) -> Course {
    let mut directed = Directed::new(lie);
    let home = directed.fleet().store.borrow().fleet;
    let incarnation = Incarnation { store: 2, ..home.incarnation };
    let elsewhere = Store::new(Kind::Postgres, Fleet { uuid: ELSEWHERE, incarnation, ..home }, 0);
    directed.0.fleet.as_mut().expect("it has one").other = Some(RefCell::new(elsewhere));
    let Directed(world) = &directed;
    let server = directed.server(0);
    world.keep(&server);
    // The first mark is flushed with the fleet, and the next one is not.
    world.draw(&server);
    world.pass(1500);
    world.draw(&server);
    server.shared().gone.set(true);
    let flushed = server.log.borrow().flushed();
    server.log.borrow_mut().crash(flushed);
    server.elsewhere.set(true);
    world.start(&server);
    world.keep(&server);
    Session::new(world, &server, 0).accept_fleet().expect("it has a lease");
    world.draw(&server);
    directed.0.course
}

/// Servers with configured numbers, and a layout with few ids in a second.
fn configured(lie: Option<Lie>) -> World {
    let layout = Layout::parse("time:33 worker:5 sequence:2 unit:1s epoch:1970-01-01T00:00:00Z").unwrap();
    let mut world = World::new(1, Story::Configured, lie, crate::number("SEED").is_some());
    (world.layouts, world.max_borrow_ms, world.max_clock_jump_ms) = ([layout; 2], 0, 0);
    world.right_clock = false;
    world.settles.set(true);
    world
}

/// Adds a server of which nothing is known but its log.
fn add(world: &World, log: Log, backup: bool, standby_of: Option<Rc<Server>>) -> Rc<Server> {
    let config = Config { layout: world.layouts[0], worker: 1, backup };
    let seen = vec![Vec::new(); log.present.len()];
    world.add_server(log, config, 0, seen, standby_of);
    world.servers.borrow().last().expect("it was added").clone()
}

fn log_of_databases(count: usize) -> Log {
    let mut log = Log::default();
    (0..count).for_each(|_| log.insert(Record::NewDatabase(None)));
    log
}

/// The log of a copy ends within the first draw of a database, which was from the backup lane. So
/// there is a mark, and nothing says with which numbers. The copy has no backup lane. A reader goes
/// up to that mark, and then the clock is set back.
pub fn a_copy_has_a_mark_without_numbers(lie: Option<Lie>) -> Course {
    let world = configured(lie);
    let original = add(&world, log_of_databases(2), true, None);
    // The other database uses up the primary lane's ids of this second.
    while world.counts.borrow().get("drawn").is_none_or(|drawn| *drawn < 5) {
        world.draw_in(&original, 1);
    }
    let begin = original.log.borrow().inserted();
    world.draw_in(&original, 0);
    let log = {
        let log = original.log.borrow();
        let mut copies = (begin..=log.inserted()).map(|end| log.copy(end));
        copies.find(|copy| copy.present[0].stored.marks_ms != [0; 2]).expect("it has drawn")
    };
    let stored = log.present[0].stored;
    assert_eq!((stored.identity, stored.marks_ms[LaneName::Primary as usize]), (None, 0));
    let copy = add(&world, log, false, None);
    read_and_set_back(&world, &copy);
    world.course
}

/// A reader goes as far as it may, and the clock is set back while the server is down.
fn read_and_set_back(world: &World, server: &Rc<Server>) {
    world.pass(5000);
    world.read_settled_in(server, 0);
    world.stop(server);
    server.offset_ms.set(-3_600_000);
    world.start(server);
    world.draw_in(server, 0);
    server.offset_ms.set(0);
    world.draw_in(server, 0);
    world.read_settled_in(server, 0);
}

/// A server without a backup lane resets the mark of a database that was drawn in with one. The log
/// of a copy ends when the primary lane's mark is gone, and the backup lane's is not. A reader goes
/// as far as it may, and then the clock is set back.
pub fn a_copy_has_half_a_reset(lie: Option<Lie>) -> Course {
    let world = configured(lie);
    let original = add(&world, log_of_databases(1), true, None);
    // The primary lane's ids of this second are used up, and then the backup lane's are drawn.
    while world.counts.borrow().get("drawn").is_none_or(|drawn| *drawn < 5) {
        world.draw_in(&original, 0);
    }
    world.stop(&original);
    let layout = world.layouts[0];
    original.config.set(Config { layout, worker: 4, backup: false });
    world.start(&original);
    let begin = original.log.borrow().inserted();
    Session::new(&world, &original, 0).reset().expect("the number is a new one");
    let log = {
        let log = original.log.borrow();
        let mut copies = (begin..=log.inserted()).map(|end| log.copy(end));
        copies.find(|copy| copy.present[0].stored.marks_ms[LaneName::Primary as usize] == 0).expect("it is reset")
    };
    let stored = log.present[0].stored;
    assert_eq!(stored.identity, Some(original.config.get().drawing().code()));
    assert_ne!(stored.marks_ms[LaneName::Backup as usize], 0);
    let copy = add(&world, log, false, None);
    copy.config.set(original.config.get());
    world.start(&copy);
    read_and_set_back(&world, &copy);
    world.course
}

/// A standby is promoted whose log no longer has a database that it had when the standby was made.
/// A new database there owes nothing to the readers of that one.
pub fn a_promoted_standby_lacks_a_database(lie: Option<Lie>) -> Course {
    let world = configured(lie);
    let original = add(&world, log_of_databases(2), false, None);
    world.draw_in(&original, 1);
    while original.log.borrow().present[1].settled.id_in(world.layouts[0].fingerprint()) == 0 {
        world.read_settled_in(&original, 1);
    }
    world.flush_all(&original);
    let log = original.log.borrow();
    let standby = add(&world, log.copy(log.inserted()), false, Some(original.clone()));
    standby.offset_ms.set(-3_600_000);
    world.promote_with(&standby, log.copy(1), vec![Vec::new()]);
    drop(log);
    world.create_database(&standby);
    world.draw_in(&standby, 1);
    world.read_settled_in(&standby, 1);
    world.course
}
