//! The events that happen to the servers, and what must hold whatever happens.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use snowflake_core::generator::{Generator, Run};
use snowflake_core::identity::LaneName;
use snowflake_core::layout::{Field, Layout};
use snowflake_core::lease::Holder;
use snowflake_core::mark;
use snowflake_core::published::{MARK_AHEAD_MS, Marks, UNCLAIMED};

use crate::fleet::{Beyond, Registered, bits};
use crate::log::{Contents, Id, Log, Record};
use crate::random::Random;
use crate::server::{Config, DATACENTER, MOST_DATABASES, Server, Shared};
use crate::session::{Failure, Session};

/// A promise of the extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// One running server never issues an id twice. Nor do its successors on the same data
    /// directory, if their clock is never set back.
    G0,
    /// No id is drawn that the copy holds. In every prefix of the log, the mark covers every row.
    G1,
    /// After a crash, no id is drawn that a client has seen. A copy draws none that its mark has
    /// covered.
    G2,
    /// A standby that is promoted after its primary has died, with a clock that is not behind,
    /// draws no id that the primary has drawn. This holds for every database, whatever the standby
    /// had received.
    Failover,
    /// When an id is drawn with a typed number, a mark at or after the end of its tick has been
    /// flushed (I3).
    Flushed,
    /// An id is greater than all ids with the same numbers that must not come again.
    Order,
    /// No id is drawn at or below one that was passed to `snowflake_advance`.
    Advance,
    /// An id that is passed to `snowflake_advance` lies no further ahead of the clock than the
    /// clock may jump, unless it is forced.
    Ahead,
    /// The mark is reset only with another number or a leased one, and before it is in use.
    Reset,
    /// No id is drawn with another layout than before.
    Layout,
    /// With a right clock, no session is refused or waits longer than the mark runs ahead, and the
    /// mark does not run away.
    Bounded,
    /// No two servers of a fleet draw the same id, nor does one draw it twice.
    G3,
    /// No two holders know of leases of one number that overlap.
    R1,
    /// An id's tick lies wholly within the lease that its server holds.
    R2,
    /// No server stops to draw because of another one that has its number, unless its memory was
    /// copied.
    Alone,
    /// With right clocks and a registry that answers, every server has a number after a freeze.
    Live,
}

/// What a simulation does wrong on purpose, to show that the checks notice it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// A flush makes nothing durable.
    NoFlush,
    /// A written mark reaches the log after it is published.
    LateLog,
    /// A draw does not look at the mark.
    NoLimit,
    /// A written mark does not run ahead.
    NoLookAhead,
    /// The first read after a start finds no marks.
    NothingStored,
    /// The stored numbers always equal the server's own; for a reset, there are none.
    NoIdentity,
    /// The stored layout always equals the server's own.
    NoLayout,
    /// Each backend has its own generator.
    OwnGenerator,
    /// The lock keeps no session out.
    NoLock,
    /// No session checks what a restored dump has written.
    NoRecheck,
    /// What copies another server's sequences does not remember what they held before.
    NothingRemembered,
    /// Published marks survive a crash.
    MarksSurvive,
    /// A generator starts from nothing, and does not follow its predecessor.
    NothingFollows,
    /// A generator follows its predecessor when shared memory is created, which may be long before
    /// a promotion.
    FollowsAtStart,
    /// A written mark runs too far ahead.
    TooFarAhead,
    /// Each advance is forced.
    AlwaysForced,
    /// The registry compares, and writes later.
    NotAtomic,
    /// A swap compares the number's record alone.
    NumberAlone,
    /// The registry's clock says that a number is free, and the lease begins at the server's clock.
    FromClock,
    /// Published marks do not end with the lease.
    NotFolded,
    /// A lease may end at any distance from the registry's clock.
    NoCap,
    /// Records of an older generation are renewed, wherever they end.
    NoHorizon,
    /// A freeze lasts as long as a lease, and no skew longer.
    FreezeOfLength,
    /// Freeze and horizon allow for one skew, although the registry's clock may change with its
    /// machine.
    OneSkew,
    /// A lost answer is taken for a no.
    LostIsNo,
    /// A lost answer is taken for a yes.
    LostIsYes,
    /// What can be read, but is not durable, is taken for an answer.
    ReadIsYes,
    /// Numbers change, and published marks stay.
    TornNumbers,
    /// What is given back ends with the primary lane's tick.
    OneLane,
    /// The holder survives a crash, which loses the marks that were not flushed. Its lanes follow
    /// the clock.
    SameHolder,
    /// A registry that is made anew freezes nothing.
    AnewUnfrozen,
    /// Settings ask for longer leases as soon as the fleet's limit is raised.
    ReloadsAtOnce,
    /// A lease is as long as its server's settings say, whatever the fleet's limit is.
    OwnLength,
}

/// Several servers, and everything about them that is random.
pub struct World {
    pub random: Random,
    pub lie: Option<Lie>,
    /// Whether all clocks are always right.
    pub right_clock: bool,
    pub max_borrow_ms: i64,
    pub max_clock_jump_ms: i64,
    /// The promises that were found broken.
    pub broken: RefCell<Vec<(Guarantee, String)>>,
    /// How often each event happened.
    pub counts: RefCell<BTreeMap<&'static str, u64>>,
    /// The fleet, where the servers may lease their numbers.
    pub fleet: Option<Registered>,
    /// Whether the registry answers everything.
    pub settles: Cell<bool>,
    tells: bool,
    /// The servers' layout, and the one that they get by mistake.
    layouts: [Layout; 2],
    servers: RefCell<Vec<Rc<Server>>>,
    /// The base of the servers' worker numbers. They change when a mark is reset, and are never
    /// used again.
    first_worker: Cell<i64>,
    dump: RefCell<Option<Rc<Contents>>>,
    /// The server and database into which a dump is being restored: no session draws there, and
    /// nothing crashes.
    restoring: Cell<Option<(usize, usize)>>,
    /// The right time, in milliseconds since 1970, which also serves as the time since boot.
    time_ms: Cell<i64>,
    events: Cell<u64>,
    depth: Cell<u32>,
}

const LAYOUTS: [&str; 7] = [
    "snowflake",
    "js53",
    "mastodon",
    "time:41 worker:5 sequence:1 unit:1ms epoch:2025-01-01T00:00:00Z",
    "time:39 sequence:2 worker:5 unit:10ms epoch:2025-01-01T00:00:00Z",
    "time:36 datacenter:2 worker:5 sequence:4 unit:100ms epoch:2025-01-01T00:00:00Z",
    "time:33 worker:5 sequence:2 unit:1s epoch:1970-01-01T00:00:00Z",
];

/// Layouts of fleets that lease their numbers.
const LEASED_LAYOUTS: [&str; 5] = [
    "js53",
    "time:41 worker:5 sequence:1 unit:1ms epoch:2025-01-01T00:00:00Z",
    "time:39 sequence:2 worker:5 unit:10ms epoch:2025-01-01T00:00:00Z",
    "time:36 datacenter:2 worker:5 sequence:4 unit:100ms epoch:2025-01-01T00:00:00Z",
    "time:33 worker:5 sequence:2 unit:1s epoch:1970-01-01T00:00:00Z",
];

/// What a history is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Story {
    /// Servers whose numbers are typed.
    Typed,
    /// A fleet that leases its numbers, perhaps from a registry that does what no promise covers.
    Fleet(Option<Beyond>),
}

const DAY_MS: i64 = 86_400_000;

impl World {
    /// Returns the world of a seed. With `tells`, it reports what happens.
    pub fn new(seed: u64, story: Story, lie: Option<Lie>, tells: bool) -> Self {
        let random = Random::new(seed);
        let mut layouts = [(); 2].map(|()| Layout::parse(random.pick(&LAYOUTS)).unwrap());
        let right_clock = random.one_in(4);
        let mut max_borrow_ms = random.pick(&[0, 5, 100, 2500]);
        let mut fleet = None;
        if let Story::Fleet(beyond) = story {
            layouts = [Layout::parse(random.pick(&LEASED_LAYOUTS)).unwrap(); 2];
            max_borrow_ms = random.pick(&[0, 5, 100, 2500, 3_600_000]);
            fleet = Some(Registered::new(&random, layouts[0], right_clock, max_borrow_ms, beyond));
        }
        Self {
            lie,
            right_clock,
            max_borrow_ms,
            fleet,
            settles: Cell::new(false),
            max_clock_jump_ms: random.pick(&[0, DAY_MS, DAY_MS, 60_000]),
            broken: RefCell::default(),
            counts: RefCell::default(),
            tells,
            layouts,
            servers: RefCell::default(),
            first_worker: Cell::new(1),
            dump: RefCell::default(),
            restoring: Cell::new(None),
            time_ms: Cell::new(1_780_000_000_000 + random.of(0..=2000)),
            events: Cell::new(1),
            depth: Cell::new(0),
            random,
        }
    }

    /// Runs the history.
    pub fn run(&self) {
        self.tell(|| {
            let Self { layouts, right_clock, max_borrow_ms, .. } = self;
            format!("layout {}, max_borrow {max_borrow_ms} ms, right clock: {right_clock}", layouts[0])
        });
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
        for _ in 0..self.random.of(20..=70) {
            self.pass(self.random.weighed(&[(4, 0), (4, 1), (2, 7), (2, 120), (2, 450), (1, 1300), (1, 4000)]));
            if let Some(length_ms) = self.fleet.as_ref().map(Registered::length_ms).filter(|_| self.random.one_in(4)) {
                self.pass(self.random.pick(&[length_ms / 10, length_ms / 4, length_ms, length_ms * 2]));
            }
            self.step();
            self.hunt();
        }
        self.settle();
    }

    /// Reports what happens, in a replay.
    pub fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            println!("{:>7} {}{}", self.events.get(), "  ".repeat(self.depth.get() as usize), what());
        }
    }

    pub fn lies(&self, lie: Lie) -> bool {
        self.lie == Some(lie)
    }

    /// Notes that a promise is broken.
    pub fn broken(&self, guarantee: Guarantee, what: impl FnOnce() -> String) {
        let what = what();
        self.tell(|| format!("BROKEN: {guarantee:?}: {what}"));
        self.broken.borrow_mut().push((guarantee, what));
    }

    pub fn count(&self, what: &'static str) {
        *self.counts.borrow_mut().entry(what).or_default() += 1;
    }

    /// Returns the next event's number.
    pub fn event(&self) -> u64 {
        self.events.set(self.events.get() + 1);
        self.events.get()
    }

    pub fn time_ms(&self) -> i64 {
        self.time_ms.get()
    }

    pub fn pass(&self, ms: i64) {
        self.time_ms.set(self.time_ms.get() + ms);
    }

    /// Lets other sessions of a server run, sometimes.
    pub fn meanwhile(&self, server: &Rc<Server>) {
        if self.settles.get() || self.depth.get() >= 2 || !self.random.one_in(12) || !self.has(server) {
            return;
        }
        self.depth.set(self.depth.get() + 1);
        let crash = if self.restoring.get().is_some() { 0 } else { 2 };
        type Action = fn(&World, &Rc<Server>);
        let (fleet, writes) = (usize::from(self.fleet.is_some()), usize::from(!server.is_standby()));
        let actions: [(usize, Action); 12] = [
            (fleet, Self::give_back),
            (4 * fleet, Self::keep),
            (8 * fleet, Self::another_acts),
            (2 * fleet, Self::shake),
            (10 * writes, Self::draw),
            (4 * writes, Self::commit),
            (2 * writes, Self::flush_some),
            (3, |world, _| world.pass(world.random.of(0..=600))),
            (1, Self::set_clock),
            (writes, Self::advance),
            (crash * writes, Self::crash),
            (crash / 2 * writes, Self::fail_over),
        ];
        self.random.weighed(&actions)(self, server);
        self.depth.set(self.depth.get() - 1);
    }

    /// Lets other servers and the registry act while a message to the registry is on its way.
    pub fn message_takes_time(&self, server: &Rc<Server>) {
        if self.settles.get() || self.depth.get() >= 1 || !self.random.one_in(8) {
            return;
        }
        self.depth.set(self.depth.get() + 1);
        for _ in 0..self.random.below(4) {
            self.another_acts(server);
        }
        if self.random.one_in(2) {
            self.shake(server);
        }
        self.depth.set(self.depth.get() - 1);
    }

    fn step(&self) {
        let server = {
            let servers = self.servers.borrow();
            servers[self.random.below(servers.len())].clone()
        };
        type Action = fn(&World, &Rc<Server>);
        let fleet = usize::from(self.fleet.is_some());
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
            (20 * fleet, Self::shake),
            (2 * fleet, Self::copy_memory),
            (5 * fleet, Self::hand_over),
            (60, Self::draw),
            (15, Self::commit),
            (4, Self::flush_some),
            (6, Self::set_clock),
            (4, Self::advance),
            (5, Self::crash),
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
        self.random.weighed(&actions)(self, &server);
    }

    /// Returns whether a server is still part of the history: neither dead for good nor dropped
    /// from it.
    fn has(&self, server: &Rc<Server>) -> bool {
        self.servers.borrow().iter().any(|one| Rc::ptr_eq(one, server))
    }

    fn any_database(&self, server: &Server) -> usize {
        self.random.below(server.databases())
    }

    fn is_restoring(&self, server: &Server, database: usize) -> bool {
        self.restoring.get() == Some((server.number, database))
    }

    /// Draws ids, and checks them.
    pub fn draw(&self, server: &Rc<Server>) {
        let database = self.any_database(server);
        if self.is_restoring(server, database) {
            return;
        }
        let session = Session::new(self, server, database);
        let longest = snowflake_core::generator::longest_run(&session.config.layout).min(3);
        let count = if self.random.one_in(4) { longest } else { 1 };
        match session.draw(count) {
            Ok(run) => self.check(&session, run),
            Err(failure) => {
                self.tell(|| format!("server {} database {database}: {failure:?}", server.number));
                self.count(match failure {
                    Failure::Crashed => "crashed",
                    Failure::Cancelled => "cancelled",
                    Failure::Blocked => "blocked",
                    Failure::Refused(mark::Refusal::Behind { .. }) => "behind",
                    Failure::Refused(mark::Refusal::Jumped { .. }) => "jumped",
                    Failure::Refused(mark::Refusal::OtherLayout { .. }) => "other layout",
                    Failure::Refused(_) => unreachable!("only a reset or an advance is refused so"),
                    Failure::Rollback => "rollback",
                    Failure::OutsideLayout => "outside the layout",
                    Failure::NoLease => "no lease",
                });
                let excused = [Failure::Crashed, Failure::Blocked, Failure::NoLease].contains(&failure)
                    || matches!(failure, Failure::Refused(mark::Refusal::OtherLayout { .. }));
                let is_copy = session.shared.was_copied.get() && failure == Failure::Rollback;
                if self.right_clock && !excused && !is_copy {
                    self.broken(Guarantee::Bounded, || {
                        format!("a session ends with {failure:?} though the clock is right")
                    });
                }
            }
        }
    }

    fn check(&self, session: &Session<'_>, run: Run) {
        let Session { server, shared, database, config, .. } = session;
        let (database, layout) = (*database, &config.layout);
        let drawing = config.drawing();
        for id in run.ids() {
            let parts = layout.parts(id).unwrap();
            let end_ms = parts.created_at_ms + layout.unit().ms();
            let code = match &self.fleet {
                Some(fleet) if shared.leases => {
                    let half = config.half() * i64::from(run.lane() == LaneName::Backup);
                    let worker = parts.worker.map_or(0, i64::from) - half;
                    Config { worker, backup: fleet.backup, ..*config }.drawing().code()
                }
                _ => drawing.code(),
            };
            let id = Id {
                id,
                lane: run.lane(),
                numbers: (parts.datacenter, parts.worker),
                layout: layout.fingerprint(),
                identity: code,
                end_ms,
            };
            self.tell(|| format!("server {} database {database} draws {id:?}", server.number));
            self.count("drawn");
            self.check_fleet(shared, id.id, parts.worker, parts.created_at_ms, end_ms);
            let log = server.log.borrow();
            let contents = &log.present[database];
            let broken = |guarantee, what: &str| {
                self.broken(guarantee, || {
                    format!("{id:?} is drawn in database {database} of server {}, {what}", server.number)
                });
            };
            if shared.issued.borrow().contains(&id.id) {
                broken(Guarantee::G0, "which has drawn it since its start");
            } else if !server.went_back.get() && server.ever_issued.borrow().contains(&id.id) {
                broken(Guarantee::G0, "which has drawn it before its start, and its clock was not set back");
            }
            if !server.went_back.get() && server.predecessors_issued.borrow().contains(&id.id) {
                broken(Guarantee::Failover, "which has taken over from a server that has drawn it");
            }
            if contents.rows.iter().any(|row| row.id == id.id) {
                broken(Guarantee::G1, "which holds it");
            }
            if server.seen.borrow()[database].iter().any(|seen| seen.id == id.id) {
                broken(Guarantee::G2, "which a client has seen");
            }
            if !shared.leases && log.durable[database].stored.marks_ms[run.lane() as usize] < end_ms {
                broken(Guarantee::Flushed, "above the mark that is flushed");
            }
            if contents.stored.layout != Some(layout.fingerprint()) {
                broken(Guarantee::Layout, "with another layout");
            }
            let above = |held: &[Id]| {
                held.iter().all(|held| (held.numbers, held.layout) != (id.numbers, id.layout) || held.id < id.id)
            };
            if !above(&contents.rows) || !above(&server.seen.borrow()[database]) {
                broken(Guarantee::Order, "though a greater one of the same numbers was drawn before");
            }
            let (advanced_ms, when) = contents.advanced;
            if end_ms <= advanced_ms && session.began > when {
                broken(Guarantee::Advance, "at or below what was given to snowflake_advance()");
            }
            shared.issued.borrow_mut().push(id.id);
            server.ever_issued.borrow_mut().push(id.id);
            server.seen.borrow_mut()[database].push(id);
            if !self.random.one_in(4) {
                shared.uncommitted.borrow_mut().push((database, id));
            }
        }
    }

    /// Checks that the log up to here has a mark for every row in it, because a copy may end here.
    pub fn check_prefix(&self, server: &Server, database: usize) {
        let log = server.log.borrow();
        let contents = &log.present[database];
        for lane in LaneName::ALL {
            let mark_ms = contents.stored.marks_ms[lane as usize];
            let rows_ms = contents.rows_end_ms[lane as usize];
            if mark_ms < rows_ms {
                self.broken(Guarantee::G1, || {
                    format!("in a prefix of the log, the {lane:?} mark {mark_ms} of database {database} is below the row {rows_ms}")
                });
            }
            if mark_ms < contents.advanced.0 {
                self.broken(Guarantee::Advance, || {
                    format!("in a prefix of the log, the {lane:?} mark {mark_ms} is below it")
                });
            }
        }
    }

    /// Checks that a written mark does not run away from the clock.
    pub fn check_bounded(&self, session: &Session<'_>, mark_ms: i64) {
        let now_ms = session.server.now_ms(self.time_ms());
        // A server that has the wrong layout by mistake may write what a server with the right
        // layout has stored.
        let unit_ms = self.layouts[0].unit().ms().max(self.layouts[1].unit().ms());
        let bound_ms = MARK_AHEAD_MS + self.max_borrow_ms + unit_ms;
        if self.right_clock && mark_ms - now_ms > bound_ms {
            self.broken(Guarantee::Bounded, || {
                format!("the mark is {} ms ahead, more than {bound_ms}", mark_ms - now_ms)
            });
        }
    }

    /// Commits a row. The client chooses whether it is flushed (`synchronous_commit`).
    fn commit(&self, server: &Rc<Server>) {
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

    fn flush_all(&self, server: &Server) {
        let mut log = server.log.borrow_mut();
        let end = log.inserted();
        log.flush(end);
    }

    /// Flushes some of the log, like the log writer.
    fn flush_some(&self, server: &Rc<Server>) {
        let mut log = server.log.borrow_mut();
        let end = self.random.of(log.flushed() as i64..=log.inserted() as i64);
        log.flush(end as usize);
    }

    fn set_clock(&self, server: &Rc<Server>) {
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

    fn advance(&self, server: &Rc<Server>) {
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
        if let Err(Failure::Refused(mark::Refusal::FarAhead { .. })) = advanced {
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
    fn any_config(&self, before: Config) -> Config {
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

    fn start(&self, server: &Server) {
        let layout = server.config.get().layout;
        let now_ms = server.now_ms(self.time_ms());
        let shared = self.new_memory(server);
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
        self.tell(|| {
            format!("server {} starts at {now_ms}: {:?}, leases: {leases}", server.number, server.config.get())
        });
    }

    /// Crashes the server, or one of its backends; it recovers from its log.
    pub fn crash(&self, server: &Rc<Server>) {
        let depth = self.depth.get();
        self.count(if depth > 0 { "crash within a statement" } else { "crash" });
        server.shared().gone.set(true);
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
        self.start(server);
    }

    fn restart(&self, server: &Rc<Server>) {
        self.give_back(server);
        if !self.has(server) {
            return; // It has died meanwhile.
        }
        server.leases.set(self.fleet.is_some() && !self.random.one_in(8));
        server.shared().gone.set(true);
        self.flush_all(server);
        server.config.set(self.any_config(server.config.get()));
        if self.random.one_in(4) {
            self.set_clock(server);
        }
        self.start(server);
    }

    /// Makes the shared memory of a server.
    fn new_memory(&self, server: &Server) -> Shared {
        let memory = if self.fleet.is_some() { bits(&self.random) } else { 0 };
        Shared::new(Generator::new(), server.leases.get(), Holder::new(server.name), memory)
    }

    /// Another server of the fleet does something.
    fn another_acts(&self, server: &Rc<Server>) {
        let another = {
            let servers = self.servers.borrow();
            servers[self.random.below(servers.len())].clone()
        };
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

    /// Makes a server with the same disk and settings, whose memory is new.
    pub fn clone_server(&self, original: &Rc<Server>) -> Rc<Server> {
        let (log, seen) = {
            let log = original.log.borrow();
            (log.copy(log.inserted()), original.seen.borrow().clone())
        };
        self.add_server(log, original.config.get(), original.offset_ms.get(), seen, None);
        let copy = self.servers.borrow().last().expect("it was added").clone();
        copy.leases.set(true);
        *copy.shared.borrow_mut() = Rc::new(self.new_memory(&copy));
        copy
    }

    fn add_server(&self, log: Log, config: Config, offset_ms: i64, seen: Vec<Vec<Id>>, standby_of: Option<Rc<Server>>) {
        let number = self.event();
        let leases = self.fleet.is_some() && !self.random.one_in(8);
        let name = if self.fleet.is_some() && self.random.one_in(4) { 1 } else { number };
        let server = Rc::new(Server {
            leases: Cell::new(leases),
            name,
            number: number as usize,
            standby_of: RefCell::new(standby_of),
            config: Cell::new(config),
            log: RefCell::new(log),
            seen: RefCell::new(seen),
            shared: RefCell::new(Rc::new(Shared::new(Generator::new(), false, Holder::new(0), 0))),
            cut_off_until_ms: Cell::new(i64::MIN),
            offset_ms: Cell::new(offset_ms),
            stands_at_ms: Cell::new(None),
            latest_ms: Cell::new(i64::MIN),
            went_back: Cell::new(false),
            ever_issued: RefCell::default(),
            predecessors_issued: RefCell::default(),
        });
        self.flush_all(&server);
        self.start(&server);
        let mut servers = self.servers.borrow_mut();
        if servers.len() == 3 {
            servers.swap_remove(self.random.below(3));
        }
        servers.push(server);
    }

    /// Returns a prefix of a server's log, and the ids that its marks cover.
    fn any_prefix(&self, original: &Server) -> (Log, Vec<Vec<Id>>) {
        let log = original.log.borrow();
        let first = log.flushed().min(2);
        let from = if self.random.one_in(2) { log.flushed().saturating_sub(6).max(first) } else { first };
        let copy = log.copy(self.random.of(from as i64..=log.flushed() as i64) as usize);
        let covered = |(contents, seen): (&Contents, &Vec<Id>)| covered(contents, seen);
        let seen = copy.present.iter().zip(&*original.seen.borrow()).map(covered).collect();
        (copy, seen)
    }

    /// Returns the settings and the clock of a copy: those of the original, or others.
    fn of_a_copy(&self, original: &Server) -> (Config, i64) {
        let offset_ms = match &self.fleet {
            _ if self.right_clock => 0,
            Some(fleet) if !self.random.one_in(6) => fleet.any_offset_ms(&self.random),
            _ => self.random.pick(&[0, 0, -5, -800, -3_600_000, 3_600_000]),
        };
        let config = if self.random.one_in(2) { original.config.get() } else { self.any_config(original.config.get()) };
        (config, offset_ms)
    }

    /// Makes a base backup, or recovers to a point in time: the copy holds a prefix of the log. The
    /// original may go on, but nothing is promised between the two.
    fn copy(&self, original: &Rc<Server>) {
        let (copy, seen) = self.any_prefix(original);
        self.tell(|| format!("server {} is copied, {} records of its log", original.number, copy.inserted()));
        self.count("copy");
        let (config, offset_ms) = self.of_a_copy(original);
        self.add_server(copy, config, offset_ms, seen, None);
    }

    /// Starts a standby, perhaps long before its promotion. Its shared memory is as old as that.
    fn add_standby(&self, original: &Rc<Server>) {
        let (copy, seen) = self.any_prefix(original);
        self.tell(|| format!("server {} gets a standby", original.number));
        self.count("standby");
        let (config, offset_ms) = self.of_a_copy(original);
        self.add_server(copy, config, offset_ms, seen, Some(original.clone()));
    }

    /// Promotes a standby to a primary of its own, beside its original. Its log may end anywhere.
    fn promote(&self, standby: &Rc<Server>) {
        let Some(original) = standby.standby_of.take() else { return };
        let (log, seen) = self.any_prefix(&original);
        self.tell(|| format!("server {} is promoted, {} records of its log", standby.number, log.inserted()));
        standby.log.replace(log);
        standby.seen.replace(seen);
        self.flush_all(standby);
    }

    /// Ends a server for good, and promotes its standby, if it has one: at once, while the load
    /// goes on.
    fn fail_over(&self, original: &Rc<Server>) {
        let is_standby =
            |server: &&Rc<Server>| server.standby_of.borrow().as_ref().is_some_and(|of| Rc::ptr_eq(of, original));
        let Some(standby) = self.servers.borrow().iter().find(is_standby).cloned() else { return };
        for _ in 0..self.random.below(4) {
            self.draw(original);
        }
        if !self.has(original) {
            return; // It has died meanwhile.
        }
        self.count("failover");
        original.shared().gone.set(true);
        self.servers.borrow_mut().retain(|server| !Rc::ptr_eq(server, original));
        self.tell(|| format!("server {} dies", original.number));
        self.promote(&standby);
        let mut issued = standby.predecessors_issued.borrow_mut();
        issued.extend(&*original.predecessors_issued.borrow());
        issued.extend(&*original.ever_issued.borrow());
        drop(issued);
        // From here on, its clock is compared with that of the dead server.
        standby.latest_ms.set(original.latest_ms.get());
        standby.went_back.set(false);
        self.pass(self.random.weighed(&[(4, 0), (2, 1), (2, 30), (2, 400), (1, 2000)]));
        for _ in 0..self.random.below(4) {
            self.draw(&standby);
        }
    }

    fn create_database(&self, server: &Rc<Server>) {
        if server.databases() == MOST_DATABASES {
            return;
        }
        let template = Some(self.any_database(server)).filter(|_| !self.random.one_in(4));
        self.tell(|| format!("server {}: CREATE DATABASE from {template:?}", server.number));
        server.log.borrow_mut().insert(Record::NewDatabase(template));
        self.flush_all(server);
        let mut seen = server.seen.borrow_mut();
        let log = server.log.borrow();
        let of_template = template.map(|template| covered(&log.present[template], &seen[template]));
        seen.push(of_template.unwrap_or_default());
    }

    /// Runs DROP EXTENSION and CREATE EXTENSION: promises about earlier ids end.
    fn create_extension(&self, server: &Rc<Server>) {
        let database = self.any_database(server);
        self.tell(|| format!("server {} database {database}: DROP EXTENSION, CREATE EXTENSION", server.number));
        server.log.borrow_mut().insert(Record::NewExtension(database));
        self.flush_all(server);
        server.seen.borrow_mut()[database].clear();
        server.shared().uncommitted.borrow_mut().retain(|(of, _)| *of != database);
    }

    fn dump(&self, server: &Rc<Server>) {
        let database = self.any_database(server);
        self.tell(|| format!("server {} database {database} is dumped", server.number));
        *self.dump.borrow_mut() = Some(Rc::new(server.log.borrow().present[database].clone()));
    }

    /// Restores a dump into a new database, or into one that has drawn.
    fn restore(&self, server: &Rc<Server>) {
        let Some(dump) = self.dump.borrow().clone() else { return };
        let database = if self.random.one_in(2) && server.databases() < MOST_DATABASES {
            server.log.borrow_mut().insert(Record::NewDatabase(None));
            server.seen.borrow_mut().push(Vec::new());
            server.databases() - 1
        } else {
            let database = self.any_database(server);
            let stored = server.log.borrow().present[database].stored;
            // A value that is set to what it was looks as if it was not set.
            let told = |lane| dump.stored.marks_ms[lane as usize] != stored.marks_ms[lane as usize];
            let holds = LaneName::ALL.into_iter().all(told);
            if !holds || dump.stored.layout.is_some_and(|layout| stored.layout != Some(layout)) {
                return;
            }
            database
        };
        self.tell(|| format!("server {} database {database}: {:?} is restored", server.number, dump.stored));
        self.count("restore");
        self.restoring.set(Some((server.number, database)));
        let begin = server.log.borrow().inserted();
        Session::new(self, server, database)
            .restore(&dump.stored, self.random.one_in(2))
            .expect("nothing ends a restore");
        {
            let mut log = server.log.borrow_mut();
            log.insert(Record::Restored(database, dump));
            log.restored(begin);
        }
        self.flush_all(server);
        self.restoring.set(None);
        self.check_prefix(server, database);
    }

    /// Copies the sequences of another database, perhaps of another server, over those of one that
    /// has drawn. (While no session draws there and nothing crashes. The copy is not atomic.) With
    /// another layout, the other mark may be further ahead than this layout's ticks let it be: a
    /// right clock is then behind, too.
    fn copy_sequences(&self, server: &Rc<Server>) {
        let Some(other) = self.dump.borrow().clone() else { return };
        let database = self.any_database(server);
        if self.right_clock && other.stored.layout != server.log.borrow().present[database].stored.layout {
            return;
        }
        self.tell(|| format!("server {} database {database}: {:?} is copied", server.number, other.stored));
        self.count("sequences copied");
        self.restoring.set(Some((server.number, database)));
        let begin = server.log.borrow().inserted();
        Session::new(self, server, database)
            .copy_sequences(&other.stored, self.random.one_in(2))
            .expect("nothing ends a copy");
        server.log.borrow_mut().restored(begin);
        self.flush_all(server);
        self.restoring.set(None);
        self.check_prefix(server, database);
    }

    /// Runs `snowflake_reset_mark` on a server that leases its number, which may be the same as
    /// before. No transaction that has drawn is open: after the reset, no mark covers its ids.
    fn reset_leased(&self, server: &Rc<Server>) {
        let database = self.any_database(server);
        if !server.shared().leases || self.is_restoring(server, database) {
            return;
        }
        server.shared().uncommitted.borrow_mut().retain(|(of, _)| *of != database);
        self.restoring.set(Some((server.number, database)));
        let reset = Session::new(self, server, database).reset();
        self.restoring.set(None);
        self.tell(|| format!("server {} database {database}: reset: {reset:?}", server.number));
        self.count(if reset.is_ok() { "reset" } else { "reset refused" });
    }

    /// Runs `snowflake_reset_mark`, as the README says, or wrongly.
    fn reset(&self, server: &Rc<Server>) {
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
            server.shared().gone.set(true);
            self.flush_all(server);
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

/// Returns the ids that a copy's marks cover.
fn covered(contents: &Contents, seen: &[Id]) -> Vec<Id> {
    let marks_ms = contents.stored.marks_ms;
    let covers = |id: &&Id| {
        // A mark with other numbers is about other ids.
        let same = contents.stored.identity == Some(id.identity);
        let mark_ms = if same { marks_ms[id.lane as usize] } else { marks_ms[0].min(marks_ms[1]) };
        id.end_ms <= mark_ms
    };
    seen.iter().filter(covers).copied().collect()
}
