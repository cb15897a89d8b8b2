//! A history: several servers, the time, and the events that happen to them.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::LazyLock;

use snowflake_core::clock::DAY_MS;
use snowflake_core::draw::generator::Generator;
use snowflake_core::draw::mark;
use snowflake_core::draw::published::{Marks, UNCLAIMED};
use snowflake_core::fleet::lease::Holder;
use snowflake_core::id::identity::LaneName;
use snowflake_core::id::layout::{Field, Layout};

use crate::course::Course;
use crate::fleet::{Beyond, Registered};
use crate::kit::random::Random;
use crate::log::{Contents, Log, Record};
use crate::promises::{Guarantee, Lie};
use crate::server::{Config, DATACENTER, Server, Shared};
use crate::session::{Failure, Session};
use crate::swarm::{Chance, Choice};
use crate::told::Words;

/// When histories begin, in milliseconds since 1970.
const START_MS: i64 = 1_780_000_000_000;

/// Several servers, and everything about them that is random.
pub struct World {
    pub course: Course,
    /// Whether readers ask for the settled id, and what they do. It is separate, so that they
    /// change no history in which there are none.
    pub reads: bool,
    pub readers: Random,
    /// Whether servers that lease their numbers crash again and again, mostly with their pages. It
    /// is drawn separately, too.
    pub crashes: bool,
    /// Whether servers draw values of tags.
    pub has_tags: bool,
    /// Whether all clocks of servers are always right.
    pub right_clock: bool,
    pub max_borrow_ms: i64,
    pub max_clock_jump_ms: i64,
    /// The fleet, where the servers may lease their numbers.
    pub fleet: Option<Registered>,
    pub words: Words,
    /// The servers' layout, and the one that they get by mistake.
    pub layouts: [Layout; 2],
    pub servers: RefCell<Vec<Rc<Server>>>,
    /// The base of the servers' worker numbers. They change when a mark is reset, and are never
    /// used again.
    first_worker: Cell<i64>,
    pub dump: RefCell<Option<Rc<Contents>>>,
    /// The server and database into which a dump is being restored: no session draws there, and
    /// nothing crashes.
    pub restoring: Cell<Option<(usize, usize)>>,
}

impl Deref for World {
    type Target = Course;

    fn deref(&self) -> &Course {
        &self.course
    }
}

/// Read once: to read them for each history would take a fifth of its time.
static LAYOUTS: LazyLock<[Layout; 7]> = LazyLock::new(|| LAYOUT_TEXTS.map(|text| Layout::parse(text).unwrap()));
static LEASED_LAYOUTS: LazyLock<[Layout; 5]> =
    LazyLock::new(|| LEASED_LAYOUT_TEXTS.map(|text| Layout::parse(text).unwrap()));

const LAYOUT_TEXTS: [&str; 7] = [
    "snowflake",
    "js53",
    "mastodon",
    "time:41 worker:5 sequence:1 unit:1ms epoch:2025-01-01T00:00:00Z",
    "time:39 sequence:2 worker:5 unit:10ms epoch:2025-01-01T00:00:00Z",
    "time:36 datacenter:2 worker:5 sequence:4 unit:100ms epoch:2025-01-01T00:00:00Z",
    "time:33 worker:5 sequence:2 unit:1s epoch:1970-01-01T00:00:00Z",
];

/// Layouts of fleets that lease their numbers.
const LEASED_LAYOUT_TEXTS: [&str; 5] = [
    "js53",
    "time:41 worker:5 sequence:1 unit:1ms epoch:2025-01-01T00:00:00Z",
    "time:39 sequence:2 worker:5 unit:10ms epoch:2025-01-01T00:00:00Z",
    "time:36 datacenter:2 worker:5 sequence:4 unit:100ms epoch:2025-01-01T00:00:00Z",
    "time:33 worker:5 sequence:2 unit:1s epoch:1970-01-01T00:00:00Z",
];

/// The lies that only readers notice.
const READERS: [Lie; 5] =
    [Lie::Uncovered, Lie::CoveredUnflushed, Lie::CoveredByOneCopy, Lie::CoveredByEitherLane, Lie::OwnWithoutNumbers];

/// The lies about a page, which only crashes show.
const PAGES: [Lie; 14] = [
    Lie::PublishedFirst,
    Lie::NoCeiling,
    Lie::ReturnsUnnoted,
    Lie::OlderHolder,
    Lie::OtherSecret,
    Lie::CallsFirst,
    Lie::NoFence,
    Lie::LanesNotRaised,
    Lie::EntersEarly,
    Lie::OrphansPublish,
    Lie::NoWriterLock,
    Lie::NoPostmasterLock,
    Lie::CopiedPage,
    Lie::BrokenIsOwn,
];

/// What a history is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Story {
    /// Servers whose numbers are configured.
    Configured,
    /// A fleet that leases its numbers, perhaps from a registry that does what no promise covers.
    Fleet(Option<Beyond>),
    /// A fleet whose servers are started with another fleet's registry now and then.
    TwoFleets,
    /// Servers that share tags.
    Tags,
    /// The same, where no restore of the registry shows. It may repeat what other servers have
    /// drawn. On one server values ascend all the same.
    SilentTags,
}

impl Story {
    pub fn has_tags(self) -> bool {
        matches!(self, Self::Tags | Self::SilentTags)
    }

    pub fn beyond(self) -> Option<Beyond> {
        match self {
            Self::Fleet(beyond) => beyond,
            Self::SilentTags => Some(Beyond::RestoredSilently),
            Self::Configured | Self::TwoFleets | Self::Tags => None,
        }
    }

    /// Whether a guarantee holds in these histories.
    pub fn promises(self, guarantee: Guarantee) -> bool {
        let needs_no_registry =
            [Guarantee::Granted, Guarantee::Ascending, Guarantee::TwoBlocks, Guarantee::Steps, Guarantee::Live];
        self != Self::SilentTags || needs_no_registry.contains(&guarantee)
    }
}

impl World {
    /// Returns the world of a seed. With `tells`, it reports what happens.
    pub fn new(seed: u64, story: Story, lie: Option<Lie>, tells: bool) -> Self {
        let course = Course::new(seed, lie, tells, START_MS);
        let Course { random, .. } = &course;
        let mut layouts = [(); 2].map(|()| random.pick(&*LAYOUTS));
        let has_tags = story.has_tags();
        let right_clock = has_tags || random.one_in(4);
        let mut max_borrow_ms = random.pick(&[0, 5, 100, 2500]);
        let mut fleet = None;
        if story != Story::Configured {
            layouts = [random.pick(&*LEASED_LAYOUTS); 2];
            max_borrow_ms = if has_tags { 100 } else { random.pick(&[0, 5, 100, 2500, 3_600_000]) };
            fleet = Some(Registered::new(random, layouts[0], right_clock, max_borrow_ms, story, lie));
        }
        let readers = Random::new(!seed);
        let crashes = match lie {
            Some(lie) => PAGES.contains(&lie),
            None => fleet.is_some() && !has_tags && Random::new(seed.rotate_left(32)).one_in(4),
        };
        let max_clock_jump_ms = random.pick(&[0, DAY_MS, DAY_MS, 60_000]);
        course.pass(random.of(0..=2000));
        Self {
            // Some of the other lies are so rare that each history counts.
            reads: lie.is_none_or(|lie| READERS.contains(&lie)) && readers.one_in(2),
            readers,
            crashes,
            has_tags,
            right_clock,
            max_borrow_ms,
            fleet,
            max_clock_jump_ms,
            words: Words::new(START_MS),
            layouts,
            servers: RefCell::default(),
            first_worker: Cell::new(1),
            dump: RefCell::default(),
            restoring: Cell::new(None),
            course,
        }
    }

    /// Runs the history.
    pub fn run(&self) {
        self.tell(|| {
            let (Self { layouts, right_clock, max_borrow_ms, .. }, swarm) = (self, &self.swarm);
            format!("layout {}, max_borrow {max_borrow_ms} ms, right clock: {right_clock}, {swarm:?}", layouts[0])
        });
        if self.has_tags {
            return self.run_tags();
        }
        let mut log = Log::default();
        log.insert(Record::NewDatabase(None));
        log.insert(Record::NewDatabase(None));
        let config = self.any_config(Config { layout: self.layouts[0], worker: 1, backup: false });
        self.add_server(log, config, 0, vec![Vec::new(); 2], None);
        if self.fleet.is_some() {
            let first = self.servers.borrow()[0].clone();
            self.copy(&first);
            self.copy(&first);
        }
        for _ in 0..self.random.of(20..=80) {
            self.pass(self.random.weighed(&[(4, 0), (4, 1), (2, 7), (2, 120), (2, 450), (1, 1300), (1, 4000)]));
            if let Some(length_ms) = self.fleet.as_ref().map(Registered::length_ms).filter(|_| self.random.one_in(4)) {
                self.pass(self.random.pick(&[length_ms / 10, length_ms / 4, length_ms, length_ms * 2]));
            }
            self.step();
            let primaries: Vec<_> = self.servers.borrow().iter().filter(|one| !one.is_standby()).cloned().collect();
            primaries.iter().for_each(|server| self.read_settled(server));
            self.draw_where_leases_overlap();
        }
        self.settle();
    }

    /// Lets other sessions of a server run, sometimes.
    pub fn meanwhile(&self, server: &Rc<Server>) {
        if self.has_tags {
            return self.meanwhile_tags(Chance::Meanwhile, 12);
        }
        if !self.is_disturbed(2, Chance::Meanwhile, 12) || !self.has(server) {
            return;
        }
        let crash = match self.restoring.get() {
            Some(_) => 0,
            None => 2 * self.crash_weight(),
        };
        type Action = fn(&World, &Rc<Server>);
        let (fleet, writes) = (usize::from(self.fleet.is_some()), usize::from(!server.is_standby()));
        let actions: [(usize, Action); 12] = [
            (fleet, Self::give_back),
            (4 * fleet, Self::keep),
            (8 * fleet, Self::another_acts),
            (2 * fleet, Self::disturb_registry),
            (10 * writes, Self::draw),
            (4 * writes, Self::commit),
            (2 * writes, Self::flush_some),
            (3, |world, _| world.pass(world.random.of(0..=600))),
            (1, Self::set_clock),
            (writes, Self::advance),
            (crash * writes, Self::crash),
            (crash.min(2) / 2 * writes, Self::fail_over),
        ];
        self.during(|| self.chooses(Choice::Meanwhile, &actions)(self, server));
    }

    /// Lets other servers and the registry act while a message to the registry is on its way.
    pub fn message_takes_time(&self, server: &Rc<Server>) {
        if self.has_tags {
            return self.meanwhile_tags(Chance::WhileSent, 8);
        }
        if !self.is_disturbed(1, Chance::WhileSent, 8) {
            return;
        }
        self.during(|| {
            for _ in 0..self.random.below(4) {
                self.another_acts(server);
            }
            if self.random.one_in(2) {
                self.disturb_registry(server);
            }
        });
    }

    pub fn step(&self) {
        let server = self.any_server();
        type Action = fn(&World, &Rc<Server>);
        let fleet = usize::from(self.fleet.is_some());
        if self.two_fleets() && self.random.one_in(6) {
            return self.go_elsewhere(&server);
        }
        if self.operates() {
            return self.operate(&server);
        }
        if fleet == 1 && self.random.one_in(2) {
            return self.keep(&server);
        }
        if server.is_standby() {
            // A standby cannot write, so it draws nothing.
            let lose_primary: Action = |world, standby| {
                let original = standby.standby_of.borrow().clone();
                original.iter().for_each(|original| world.fail_over(original));
            };
            let actions: [(usize, Action); 4] =
                [(2, Self::set_clock), (1, Self::restart), (2, Self::promote), (4, lose_primary)];
            return self.random.weighed(&actions)(self, &server);
        }
        let actions: [(usize, Action); 20] = [
            (40 * fleet, Self::all_draw),
            (20 * fleet, Self::disturb_registry),
            (2 * fleet, Self::copy_memory),
            (5 * fleet, Self::hand_over),
            (60, Self::draw),
            (15, Self::commit),
            (4, Self::flush_some),
            (6, Self::set_clock),
            (4, Self::advance),
            (5 * self.crash_weight(), Self::crash),
            (3, Self::restart),
            (4, Self::copy),
            (3, Self::add_standby),
            (3, Self::fail_over),
            (2, Self::create_database),
            (1, Self::create_extension),
            (2, Self::dump),
            (2, Self::restore),
            (2, Self::copy_sequences),
            (2, Self::reset),
        ];
        self.chooses(Choice::Step, &actions)(self, &server);
    }

    /// How many times as often as elsewhere servers crash in this history.
    fn crash_weight(&self) -> usize {
        if self.crashes { 6 } else { 1 }
    }

    /// Returns whether a server is still part of the history: neither dead for good nor dropped
    /// from it.
    pub fn has(&self, server: &Rc<Server>) -> bool {
        self.servers.borrow().iter().any(|one| Rc::ptr_eq(one, server))
    }

    pub fn any_server(&self) -> Rc<Server> {
        let servers = self.servers.borrow();
        servers[self.random.below(servers.len())].clone()
    }

    /// Whether a server leases its number from the next start on.
    pub fn any_leases(&self) -> bool {
        self.fleet.is_some() && (self.has_tags || !self.random.one_in(8))
    }

    pub fn any_database(&self, server: &Server) -> usize {
        self.random.below(server.databases())
    }

    pub fn is_restoring(&self, server: &Server, database: usize) -> bool {
        self.restoring.get() == Some((server.number, database))
    }

    /// Draws ids in any database.
    pub fn draw(&self, server: &Rc<Server>) {
        let database = self.any_database(server);
        if !self.is_restoring(server, database) {
            self.draw_in(server, database);
        }
    }

    /// Draws ids in a database, and checks them.
    pub fn draw_in(&self, server: &Rc<Server>, database: usize) {
        let session = Session::new(self, server, database);
        let longest = snowflake_core::draw::generator::longest_run(&session.config.layout).min(3);
        let count = if self.random.one_in(4) { longest } else { 1 };
        match session.draw(count) {
            Ok(run) => {
                self.check(&session, run);
                self.draw_on(&session);
            }
            Err(failure) => {
                self.tell(|| format!("server {} database {database}: {failure:?}", server.number));
                self.count(match failure {
                    Failure::Crashed => "crashed",
                    Failure::Cancelled => "cancelled",
                    Failure::Blocked => "blocked",
                    Failure::Refused(mark::MarkRefusal::Behind { .. }) => "behind",
                    Failure::Refused(mark::MarkRefusal::Jumped { .. }) => "jumped",
                    Failure::Refused(mark::MarkRefusal::OtherLayout { .. }) => "other layout",
                    Failure::Refused(mark::MarkRefusal::OtherFleet { .. }) => "other fleet",
                    Failure::Refused(_) => unreachable!("only a reset or an advance is refused so"),
                    Failure::ClockStepBack => "rollback",
                    Failure::OutsideLayout => "outside the layout",
                    Failure::NoLease => "no lease",
                });
                let excused = [Failure::Crashed, Failure::Blocked, Failure::NoLease].contains(&failure)
                    || matches!(
                        failure,
                        Failure::Refused(mark::MarkRefusal::OtherLayout { .. } | mark::MarkRefusal::OtherFleet { .. })
                    );
                let is_copy = session.shared.was_copied.get() && failure == Failure::ClockStepBack;
                if self.right_clock && !excused && !is_copy {
                    self.broken(Guarantee::Bounded, || {
                        format!("a session ends with {failure:?} though the clock is right")
                    });
                }
            }
        }
    }

    /// Lets a session draw one id after the other, from the tick that it knows, while others run.
    fn draw_on(&self, session: &Session<'_>) {
        let Session { server, shared, database, .. } = session;
        // Where events are chosen, a draw is one id or run.
        if self.settles.get() || self.random.one_in(2) {
            return;
        }
        let Some((run, tick)) = session.learn() else { return };
        self.check(session, run);
        for _ in 0..self.random.below(4) {
            self.meanwhile(server);
            if shared.gone.get() {
                return;
            }
            let again = Session::new(self, server, *database);
            if let Some(id) = tick.and_then(|tick| again.draw_known(tick)) {
                self.count("drawn from a known tick");
                self.check_ids(&again, LaneName::Primary, [id].into_iter());
            }
        }
    }

    /// Commits a row. The client chooses whether it is flushed (`synchronous_commit`).
    pub fn commit(&self, server: &Rc<Server>) {
        let shared = server.shared();
        let (database, id) = {
            let mut uncommitted = shared.uncommitted.borrow_mut();
            if uncommitted.is_empty() {
                return;
            }
            let at = self.random.below(uncommitted.len());
            if self.is_restoring(server, uncommitted[at].0) {
                return;
            }
            uncommitted.swap_remove(at)
        };
        self.tell(|| format!("server {} database {database} stores {}", server.number, id.id));
        self.count("stored");
        server.log.borrow_mut().insert(Record::Row(database, id));
        self.check_prefix(server, database);
        if !self.random.one_in(3) {
            self.flush_all(server);
        }
    }

    pub fn flush_all(&self, server: &Server) {
        let mut log = server.log.borrow_mut();
        let end = log.inserted();
        log.flush(end);
    }

    /// Flushes some of the log, like the log writer.
    pub fn flush_some(&self, server: &Rc<Server>) {
        let mut log = server.log.borrow_mut();
        let end = self.random.of(log.flushed() as i64..=log.inserted() as i64);
        log.flush(end as usize);
    }

    pub fn set_clock(&self, server: &Rc<Server>) {
        if self.right_clock {
            return;
        }
        let now_ms = server.now_ms(self.time_ms());
        if self.random.one_in(5) {
            server.stands_at_ms.set(Some(now_ms));
        } else {
            server.stands_at_ms.set(None);
            let steps = [
                (4, -1),
                (4, -30),
                (4, -700),
                (4, -1500),
                (3, -3500),
                (3, -3_600_000),
                (1, -30 * DAY_MS),
                (3, 40),
                (3, 1500),
                (2, 3_600_000),
                (1, 2 * DAY_MS),
                (1, 3650 * DAY_MS),
            ];
            let seen = server.seen.borrow();
            let drawn = &seen[self.random.below(seen.len())];
            let near = self.fleet.as_ref().filter(|_| !self.random.one_in(4));
            let offset_ms = match self.random.below(4) {
                _ if near.is_some() => near.map_or(0, |fleet| fleet.any_offset_ms(&self.random)),
                // The clock becomes right again, or goes to where ids were drawn.
                0 => 0,
                1 if !drawn.is_empty() => drawn[self.random.below(drawn.len())].end_ms - 1 - self.time_ms(),
                _ => server.offset_ms.get() + self.random.weighed(&steps),
            };
            server.offset_ms.set(offset_ms);
        }
        self.tell(|| format!("server {}: the clock is set to {}", server.number, server.now_ms(self.time_ms())));
    }

    pub fn advance(&self, server: &Rc<Server>) {
        let database = self.any_database(server);
        if self.is_restoring(server, database) {
            return;
        }
        let session = Session::new(self, server, database);
        let layout = session.config.layout;
        let now_ms = server.now_ms(self.time_ms());
        // As far ahead as is permitted, or a little further: by one tick.
        let most_ms = if self.max_clock_jump_ms > 0 { self.max_clock_jump_ms } else { DAY_MS };
        let beyond_ms = most_ms + layout.unit().ms();
        let ahead_ms =
            self.random.pick(&[-4000, -1000, -300, 0, 300, 900, 1500, 3_600_000, most_ms, beyond_ms, 100 * DAY_MS]);
        let force = self.random.one_in(4);
        let at_ms = now_ms + if self.right_clock { ahead_ms.min(-layout.unit().ms()) } else { ahead_ms };
        let Ok(tick) = u64::try_from(layout.tick_at(at_ms)) else { return };
        if tick > layout.last_tick() {
            return;
        }
        let start_ms = layout.start_of_ms(tick);
        let end_ms = start_ms + layout.unit().ms();
        session.shared.advanced.set(self.event());
        let advanced = session.advance(end_ms, force);
        self.tell(|| {
            let how = if force { " by force" } else { "" };
            format!("server {} database {database}: advance to {end_ms}{how}: {advanced:?}", server.number)
        });
        if let Err(Failure::Refused(mark::MarkRefusal::FarAhead { .. })) = advanced {
            self.count("advance refused");
            if self.right_clock {
                self.broken(Guarantee::Bounded, || "an advance to the past is refused".to_owned());
            }
        }
        if advanced.is_ok() {
            let is_ahead = start_ms - session.clock_read_ms.get() > most_ms;
            self.count(if is_ahead { "advanced far ahead" } else { "advanced" });
            if is_ahead && !force {
                self.broken(Guarantee::Ahead, || {
                    format!("it is advanced to {end_ms}, which is further ahead of the clock than {most_ms} ms")
                });
            }
            // The statement has flushed what it promises.
            server.log.borrow_mut().insert(Record::Advanced(database, (end_ms, self.event())));
            self.check_prefix(server, database);
            self.flush_all(server);
        }
    }

    /// Returns the configuration as before, or another one.
    pub fn any_config(&self, before: Config) -> Config {
        let layout = if self.random.one_in(12) { self.layouts[1] } else { self.layouts[0] };
        let first = self.first_worker.get();
        let Some(max) = layout.max_of(Field::Worker) else { return Config { layout, worker: first, backup: false } };
        let half = (max as i64 + 1) / 2;
        if before.layout == layout && self.random.one_in(2) {
            return before;
        }
        // Mostly alternates between a backup worker and a worker with the same number.
        let (worker, backup) = self.random.weighed(&[
            (1, (first, false)),
            (3, (first, true)),
            (1, (first + 1, true)),
            (3, (first + half, false)),
        ]);
        Config { layout, worker, backup }
    }

    pub fn start(&self, server: &Server) {
        let layout = server.config.get().layout;
        let now_ms = server.now_ms(self.time_ms());
        let mut shared = self.new_memory(server);
        self.goes_on(server, &mut shared);
        match self.lie {
            // Following counts as done, although no lane is raised.
            Some(Lie::NothingFollows) => shared.generator.follow(&layout, i64::MIN, 0),
            Some(Lie::FollowsAtStart) => shared.generator.follow(&layout, now_ms, self.max_borrow_ms),
            _ => {}
        }
        if self.lies(Lie::MarksSurvive) {
            for (before, after) in server.shared().marks.iter().zip(&shared.marks) {
                let owner = before.owner();
                after.claim(UNCLAIMED, owner);
                let survive = |before: Marks<'_>, after: Marks<'_>| {
                    for lane in LaneName::ALL {
                        if let Some(mark_ms) = before.mark_ms(lane) {
                            after.publish(after.find(lane), mark_ms);
                        }
                    }
                };
                if let Some((before, after)) = before.of(owner).zip(after.of(owner)) {
                    survive(before, after);
                }
            }
        }
        if self.lies(Lie::SameHolder) {
            self.survive(&server.shared(), &shared, now_ms);
        }
        let leases = shared.leases;
        *server.shared.borrow_mut() = Rc::new(shared);
        self.has_begun(server);
        self.tell(|| {
            format!("server {} starts at {now_ms}: {:?}, leases: {leases}", server.number, server.config.get())
        });
    }

    /// Crashes the server, or one of its backends; it recovers from its log.
    pub fn crash(&self, server: &Rc<Server>) {
        if self.ends_as_orphan(server) || self.leaves_orphans(server) {
            return;
        }
        self.count(if self.is_during_a_call() { "crash within a statement" } else { "crash" });
        let before = server.shared();
        before.gone.set(true);
        self.check_crash(&before);
        let end = {
            let log = server.log.borrow();
            let (flushed, inserted) = (log.flushed(), log.inserted());
            // Often everything that is not flushed is lost.
            if self.random.one_in(2) { flushed } else { self.random.of(flushed as i64..=inserted as i64) as usize }
        };
        server.log.borrow_mut().crash(end);
        self.tell(|| format!("server {} crashes, and keeps {end} records of its log", server.number));
        // After a backend's crash, the postmaster keeps its settings.
        if self.random.one_in(4) {
            server.config.set(self.any_config(server.config.get()));
        }
        if self.random.one_in(2) {
            self.set_clock(server);
        }
        self.page_at_start(server, "crash with page");
        self.start(server);
        if self.lies(Lie::BlocksSurvive) {
            self.blocks_survive(&before, server);
        }
        if self.crashes {
            // Where the life before ended, before the clock has gone on.
            self.keep(server);
            if !server.is_standby() {
                self.draw(server);
            }
        }
    }

    /// Shuts the server down.
    pub fn stop(&self, server: &Rc<Server>) {
        server.shared().gone.set(true);
        self.flush_all(server);
    }

    pub fn restart(&self, server: &Rc<Server>) {
        self.give_back(server);
        if !self.has(server) {
            return; // It has died meanwhile.
        }
        if self.ends_as_orphan(server) {
            return;
        }
        server.leases.set(self.any_leases());
        if self.two_fleets() {
            server.elsewhere.set(self.random.one_in(3));
        }
        self.stop(server);
        server.config.set(self.any_config(server.config.get()));
        if self.random.one_in(4) {
            self.set_clock(server);
        }
        self.page_at_start(server, "restart with page");
        self.start(server);
    }

    /// Makes the shared memory of a server.
    pub fn new_memory(&self, server: &Server) -> Shared {
        let memory = if self.fleet.is_some() { self.random.bits() } else { 0 };
        Shared::new(Generator::new(), server.leases.get(), server.elsewhere.get(), Holder::new(server.name), memory)
    }

    /// Another server of the fleet does something.
    pub fn another_acts(&self, server: &Rc<Server>) {
        let another = self.any_server();
        if Rc::ptr_eq(&another, server) || self.random.one_in(2) {
            self.keep(&another);
        } else if !another.is_standby() {
            self.draw(&another);
        }
    }

    /// All servers draw, at the same moment. Before, they may all turn to the registry.
    pub fn all_draw(&self, _: &Rc<Server>) {
        if self.random.one_in(2) {
            self.leasing().iter().filter(|server| self.has(server)).for_each(|server| self.keep(server));
        }
        for server in self.leasing().iter().filter(|server| !server.is_standby()) {
            if self.has(server) {
                self.draw(server);
            }
        }
    }

    /// Returns the servers that lease their numbers.
    pub fn leasing(&self) -> Vec<Rc<Server>> {
        self.servers.borrow().iter().filter(|server| server.shared().leases).cloned().collect()
    }

    pub fn is_restoring_any(&self) -> bool {
        self.restoring.get().is_some()
    }

    /// Whether ids of configured numbers are in a database, or were seen by its clients.
    fn has_configured_ids(&self, server: &Server, database: usize) -> bool {
        let (seen, log) = (server.seen.borrow(), server.log.borrow());
        let mut ids = seen[database].iter().chain(&log.present[database].rows);
        self.fleet.as_ref().is_some_and(|fleet| ids.any(|id| fleet.configured.borrow().contains(&id.id)))
    }

    /// Runs `snowflake_reset_mark` on a server that leases its number, which may be the same as
    /// before. No transaction that has drawn is open: after the reset, no mark covers its ids.
    pub fn reset_leased(&self, server: &Rc<Server>) {
        let database = self.any_database(server);
        // After a reset, no server may have the old configured number again
        // (`docs/guarantees.md`). Here one may.
        if !server.shared().leases || self.is_restoring(server, database) || self.has_configured_ids(server, database) {
            return;
        }
        server.shared().uncommitted.borrow_mut().retain(|(of, _)| *of != database);
        self.restoring.set(Some((server.number, database)));
        server.begins_anew(database);
        let reset = Session::new(self, server, database).reset();
        self.restoring.set(None);
        self.tell(|| format!("server {} database {database}: reset: {reset:?}", server.number));
        self.count(if reset.is_ok() { "reset" } else { "reset refused" });
    }

    /// Runs `snowflake_reset_mark`, as the README says, or wrongly.
    pub fn reset(&self, server: &Rc<Server>) {
        let config = server.config.get();
        if self.fleet.is_some() {
            return self.reset_leased(server);
        }
        if self.layouts.iter().any(|layout| layout.max_of(Field::Worker).is_none()) {
            return;
        }
        let properly = self.random.one_in(3) && self.first_worker.get() < 10;
        if properly {
            // No server has used this number before, and only this one will.
            self.first_worker.set(self.first_worker.get() + 3);
            *self.servers.borrow_mut() = vec![server.clone()];
            *self.dump.borrow_mut() = None;
            self.stop(server);
            let backup = self.random.one_in(2);
            server.config.set(Config { worker: self.first_worker.get(), backup, ..config });
            self.start(server);
        }
        let database = self.any_database(server);
        let before = server.log.borrow().present[database].stored.identity;
        // Among other numbers, only those that were never used are safe.
        if !properly && !before.is_some_and(|code| overlaps(code, &server.config.get())) {
            return;
        }
        let session = Session::new(self, server, database);
        let loaded = session.loaded();
        let (config, identity) = (session.config, session.identity_read.clone());
        server.begins_anew(database);
        let reset = session.reset();
        self.tell(|| format!("server {} database {database}: reset: {reset:?}", server.number));
        if reset.is_ok() {
            self.count("reset");
            if loaded != [false; 2] || identity.get().is_some_and(|code| overlaps(code, &config)) {
                self.broken(Guarantee::Reset, || format!("it is reset: loaded {loaded:?}, numbers {identity:?}"));
            }
        } else {
            self.count("reset refused");
        }
    }
}

/// Returns whether a server draws with one of the stored numbers.
fn overlaps(code: i64, config: &Config) -> bool {
    let stored = Config { worker: code >> 32, backup: code & 1 == 1, ..*config };
    let datacenter = config.layout.max_of(Field::Datacenter).map_or(0, |_| DATACENTER);
    code >> 1 & i64::from(i32::MAX) == datacenter
        && stored.workers().into_iter().any(|worker| config.workers().contains(&worker))
}
