//! A session: one statement on a simulated server, and what the protocol sees of the database
//! there.
//!
//! Each call of [`MarkedDatabase`], and each reading of the clock, is a point where
//! [`World::meanwhile`] lets other sessions run. They run to their end within the call. They give
//! up where they would wait for a session that they have interrupted.

use std::cell::Cell;
use std::rc::Rc;

use snowflake_core::clock::{Clock, Wait};
use snowflake_core::draw::generator::{DrawRefusal, Generator, IdRun, Limits, MarkLimits, NO_MARK};
use snowflake_core::draw::known_tick::{self, KnownTick};
use snowflake_core::draw::mark::{
    self, Mark, MarkNotice, MarkTerms, MarkedDatabase, Stored, StoredNumber, WrittenNumbers,
};
use snowflake_core::draw::published::{MARK_AHEAD_MS, Marks, PublishedMarks, UNCLAIMED};
use snowflake_core::draw::session::{DrawingSession, draw};
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::fleet::page::{self, PageFailure};
use snowflake_core::id::identity::LaneName;
use snowflake_core::id::layout::Layout;

use crate::log::Record;
use crate::promises::{Guarantee, Lie};
use crate::server::{Config, NoPage, Server, Shared};
use crate::world::World;

/// Why a statement ends without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The server is gone.
    Crashed,
    /// The statement was cancelled, or its time is over.
    Cancelled,
    /// The statement would wait for a session that it has interrupted.
    Blocked,
    /// The mark does not permit the statement.
    Refused(mark::MarkRefusal),
    /// The clock is behind the last id.
    ClockStepBack,
    /// The clock is outside the layout's time.
    OutsideLayout,
    /// The server has no number, or its lease is over.
    NoLease,
}

impl From<mark::MarkRefusal> for Failure {
    fn from(refused: mark::MarkRefusal) -> Self {
        Self::Refused(refused)
    }
}

/// More looks at its marks than any draw takes: up to two in each round.
const MOST_LOOKS: u32 = 2000;

/// A session, for one statement.
pub struct Session<'a> {
    pub world: &'a World,
    pub server: Rc<Server>,
    pub shared: Rc<Shared>,
    pub database: usize,
    /// When it began, in events, and in changes of its server's numbers.
    pub began: u64,
    version: Option<u64>,
    pub config: Config,
    /// The session's own generator, for the lie that each backend has one.
    own_generator: Option<Generator>,
    /// Marks that are never claimed, for a session whose database has none.
    unclaimed: PublishedMarks,
    /// Marks that permit everything, for the lie that a session does not look at those of its tick.
    unlimited: PublishedMarks,
    resetting: bool,
    accepting: bool,
    restoring: bool,
    reads: Cell<bool>,
    wait_for_clock: bool,
    /// The end of the log that it has to flush.
    written: Cell<usize>,
    /// What it has written, for the lie that writes reach the log late.
    late: Cell<Vec<Record>>,
    /// The ceiling that it raises, for the lie that it does so late.
    late_ceiling_ms: Cell<Option<i64>>,
    /// The numbers that it read last.
    pub identity_read: Rc<Cell<Option<i64>>>,
    /// How often it has looked for its marks.
    rounds: Cell<u32>,
    /// How often it has waited, and how long it has waited for the mark.
    waits: Cell<u32>,
    waited_ms: Cell<i64>,
    /// The latest reading of its clock.
    pub clock_read_ms: Cell<i64>,
}

impl<'a> Session<'a> {
    pub fn new(world: &'a World, server: &Rc<Server>, database: usize) -> Self {
        let config = server.config.get();
        Self {
            world,
            server: server.clone(),
            shared: server.shared(),
            database,
            began: world.event(),
            version: server.shared().numbers.version(),
            config,
            own_generator: world.lies(Lie::OwnGenerator).then(Generator::new),
            unclaimed: PublishedMarks::new(),
            unlimited: PublishedMarks::new(),
            resetting: false,
            accepting: false,
            restoring: false,
            reads: Cell::new(false),
            wait_for_clock: !world.right_clock && world.random.one_in(4),
            written: Cell::new(0),
            late: Cell::default(),
            late_ceiling_ms: Cell::default(),
            identity_read: Rc::default(),
            rounds: Cell::new(0),
            waits: Cell::new(0),
            waited_ms: Cell::new(0),
            clock_read_ms: Cell::new(i64::MIN),
        }
    }

    /// Returns the protocol over this session.
    fn mark(&self) -> Mark<'_, &Self> {
        let Self { shared, .. } = self;
        let generator = self.own_generator.as_ref().unwrap_or(&shared.generator);
        Mark { database: self, generator, clocks: &shared.clocks, numbers: &shared.numbers }
    }

    fn terms(&self) -> MarkTerms {
        let World { max_borrow_ms, max_clock_jump_ms, .. } = *self.world;
        MarkTerms { max_borrow_ms, max_clock_jump_ms, wait_for_clock: self.wait_for_clock }
    }

    fn layout(&self) -> &Layout {
        &self.config.layout
    }

    /// Returns the owner of the database's marks. It is never 0, which is [`UNCLAIMED`].
    fn owner(&self) -> u64 {
        let generation = self.server.log.borrow().present[self.database].generation;
        (self.database as u64) << 32 | u64::from(generation + 1)
    }

    fn known_marks(&self) -> Marks<'_> {
        self.shared.marks[self.database].of(self.owner()).or_else(|| self.unclaimed.of(0)).unwrap()
    }

    /// Draws a run.
    pub fn draw(&self, count: u32) -> Result<IdRun, Failure> {
        let generator = self.own_generator.as_ref().unwrap_or(&self.shared.generator);
        let drawn = draw(self, generator, count);
        // If the server crashes during a draw, what is drawn reaches no client.
        if self.shared.gone.get() { Err(Failure::Crashed) } else { drawn }
    }

    /// Draws an id at once, if the marks permit that, and learns its tick.
    pub fn learn(&self) -> Option<(IdRun, Option<KnownTick<'_>>)> {
        let generator = self.own_generator.as_ref().unwrap_or(&self.shared.generator);
        let known = self.known_marks();
        let drawing = DrawingSession::drawing(self).ok()?;
        let limits =
            Limits { max_borrow_ms: self.world.max_borrow_ms, marks_ms: Watched { session: self, limits: known } };
        let run = generator.draw(&drawing, self, &limits, 1).ok()?;
        let marks = if self.world.lies(Lie::KeptTick) {
            let unlimited = self.unlimited.of(UNCLAIMED)?;
            unlimited.set(LaneName::Primary as usize, unlimited.get(LaneName::Primary as usize), NO_MARK);
            unlimited
        } else {
            known
        };
        (!self.shared.gone.get()).then(|| (run, KnownTick::of(&run, marks)))
    }

    /// Draws an id of a tick that was learned in the same life of shared memory.
    pub fn draw_known(&self, tick: KnownTick<'_>) -> Option<i64> {
        let generator = self.own_generator.as_ref().unwrap_or(&self.shared.generator);
        let id = known_tick::draw_one(generator, self, || Some(tick), || true)?;
        (!self.shared.gone.get()).then_some(id)
    }

    /// `snowflake_settled`, where no transaction is open.
    pub fn settled(&self) -> Result<i64, Failure> {
        let Self { shared, database, .. } = self;
        self.reads.set(true);
        if !shared.reached[*database].get() {
            self.mark().reach(self.layout(), &self.terms())?;
            shared.reached[*database].set(true);
        }
        let covered = &shared.covered[*database];
        covered.set(self.mark().covered(self.layout(), covered.get())?);
        if shared.gone.get() {
            return Err(Failure::Crashed);
        }
        let drawing = if shared.leases { shared.numbers.read(self.layout()) } else { Some(self.config.drawing()) };
        let last = shared.generator.last_id(self.layout(), drawing.as_ref());
        Ok(if self.world.lies(Lie::Uncovered) { last } else { last.min(covered.get()) })
    }

    /// `snowflake_advance`.
    pub fn advance(&self, end_ms: i64, force: bool) -> Result<(), Failure> {
        self.mark().advance(self.layout(), &self.terms(), end_ms, force || self.world.lies(Lie::AlwaysForced))
    }

    /// `snowflake_accept_fleet`.
    pub fn accept_fleet(mut self) -> Result<(), Failure> {
        self.accepting = true;
        self.mark().accept_fleet(&DrawingSession::drawing(&self)?, &self.terms())
    }

    /// `snowflake_reset_mark`.
    pub fn reset(mut self) -> Result<(), Failure> {
        self.resetting = true;
        let drawing = DrawingSession::drawing(&self)?;
        self.mark().reset(&drawing)
    }

    /// Sets the sequences as a dump does, all in one transaction or each in its own. At each
    /// commit, the protocol looks at them.
    pub fn restore(self, stored: &Stored, transactions: bool) -> Result<(), Failure> {
        self.set_all(stored, None, transactions)
    }

    /// Copies another server's sequences, the local marks among them, as logical replication does.
    pub fn copy_sequences(self, stored: &Stored, transactions: bool) -> Result<(), Failure> {
        let before = self.server.log.borrow().present[self.database].stored;
        self.set_all(stored, Some(before), transactions)
    }

    fn set_all(mut self, stored: &Stored, before: Option<Stored>, transactions: bool) -> Result<(), Failure> {
        self.restoring = true;
        let copied_over = before.filter(|_| !self.world.lies(Lie::NothingRemembered));
        let marks = LaneName::ALL.map(|lane| (StoredNumber::Mark(lane), Some(stored.marks_ms[lane as usize])));
        let local = LaneName::ALL.map(|lane| (StoredNumber::Local(lane), Some(stored.local_ms[lane as usize])));
        let local = local.into_iter().filter(|_| before.is_some());
        let values = marks.into_iter().chain(local);
        let fleet = stored.fleet.filter(|_| before.is_some());
        let values = values.chain([
            (StoredNumber::Identity, stored.identity),
            (StoredNumber::Layout, stored.layout),
            (StoredNumber::Fleet, fleet),
        ]);
        for (value, number) in values.filter_map(|(value, number)| Some((value, number?))) {
            let write = Record::Write { database: self.database, value, number, resets: false };
            self.server.log.borrow_mut().insert(write);
            if transactions {
                let marks = LaneName::ALL.map(|lane| value == StoredNumber::Mark(lane));
                let (layout, identity) = (value == StoredNumber::Layout, value == StoredNumber::Identity);
                self.commit(&WrittenNumbers { copied_over, marks, layout, identity })?;
            }
        }
        if transactions {
            return Ok(());
        }
        self.commit(&WrittenNumbers { copied_over, marks: [true; 2], layout: true, identity: true })
    }

    fn commit(&self, written: &WrittenNumbers) -> Result<(), Failure> {
        if self.world.lies(Lie::NoRecheck) {
            return Ok(());
        }
        let drawing = DrawingSession::drawing(self).ok();
        self.mark().recheck(self.layout(), drawing.as_ref().map(IdStamp::identity), written)
    }

    /// Whether marks of the database are loaded, for each lane.
    pub fn loaded(&self) -> [bool; 2] {
        LaneName::ALL.map(|lane| self.known_marks().mark_ms(lane).is_some())
    }

    /// Lets other sessions run; they may end this one.
    fn meanwhile(&self) -> Result<(), Failure> {
        self.world.meanwhile(&self.server);
        if self.shared.gone.get() {
            return Err(Failure::Crashed);
        }
        // With a right clock everything must be in time, and a cancelled statement could hide that
        // it is not.
        if !self.world.right_clock && !self.restoring && self.world.random.one_in(150) {
            return Err(Failure::Cancelled);
        }
        Ok(())
    }

    /// Waits for `wait_ms`, or less.
    fn sleep(&self, wait_ms: i64) -> Result<(), Failure> {
        let (random, right_clock) = (&self.world.random, self.world.right_clock);
        self.waits.set(self.waits.get() + 1);
        if self.waits.get() > if right_clock { 1000 } else { 8 } {
            return Err(Failure::Cancelled);
        }
        self.meanwhile()?;
        let shorter = !right_clock && random.one_in(4);
        self.world.pass(if shorter { random.of(0..=wait_ms.min(1000)) } else { wait_ms });
        self.meanwhile()
    }

    fn raise_ceiling_now(&self, mark_ms: i64) -> Result<(), Failure> {
        let page = self.world.reaches_page(&self.server);
        match page::raise_ceiling(&page, self.shared.life, mark_ms) {
            Ok(_) | Err(PageFailure::Store(NoPage)) => Ok(()),
            // A later life has it.
            Err(PageFailure::Fenced) => {
                self.world.is_fenced(&self.server, &self.shared);
                if self.world.lies(Lie::OrphansPublish) { Ok(()) } else { Err(Failure::Crashed) }
            }
        }
    }

    fn insert(&self, record: Record) {
        let end = {
            let mut log = self.server.log.borrow_mut();
            log.insert(record);
            log.inserted()
        };
        self.written.set(end);
        if !self.restoring {
            self.world.check_prefix(&self.server, self.database);
        }
    }
}

/// Marks that other sessions may change just before they are read.
#[derive(Clone, Copy)]
struct Watched<'a, M> {
    session: &'a Session<'a>,
    limits: M,
}

impl<M: MarkLimits> MarkLimits for Watched<'_, M> {
    fn limit_ms(&self, lane: LaneName) -> i64 {
        self.session.world.meanwhile(&self.session.server);
        if self.session.world.lies(Lie::NoLimit) { NO_MARK } else { self.limits.limit_ms(lane) }
    }
}

impl DrawingSession for Session<'_> {
    type Error = Failure;

    fn last_seen(&self) -> Result<Marks<'_>, Failure> {
        if self.shared.gone.get() {
            return Err(Failure::Crashed);
        }
        self.rounds.set(self.rounds.get() + 1);
        if self.rounds.get() > MOST_LOOKS {
            self.world.broken(Guarantee::Bounded, || "a session goes round in circles".to_owned());
            return Err(Failure::Cancelled);
        }
        Ok(self.known_marks())
    }

    fn drawing(&self) -> Result<IdStamp, Failure> {
        if !self.shared.leases {
            return Ok(self.config.drawing());
        }
        self.shared.numbers.read(self.layout()).ok_or(Failure::NoLease)
    }

    fn lease(&self, drawing: &IdStamp) -> Result<(), Failure> {
        assert!(drawing.is_leased(), "configured numbers have no end");
        self.meanwhile()?;
        // The process that leases the number is told, and may renew.
        if self.world.random.one_in(2) {
            self.world.keep(&self.server);
        }
        if self.shared.gone.get() {
            return Err(Failure::Crashed);
        }
        match self.shared.numbers.read(self.layout()) {
            Some(now) if now.version() != drawing.version() || now.until_ms() > drawing.until_ms() => {
                self.world.count("draws on");
                Ok(())
            }
            _ => Err(Failure::NoLease),
        }
    }

    fn terms(&self) -> MarkTerms {
        Session::terms(self)
    }

    fn marks<'a>(&'a self, limits: impl MarkLimits + 'a) -> impl MarkLimits + 'a {
        Watched { session: self, limits }
    }

    fn make_way(
        &self,
        drawing: &IdStamp,
        terms: &MarkTerms,
        known: Marks<'_>,
        lane: LaneName,
        end_ms: i64,
    ) -> Result<(), Failure> {
        self.mark().make_way(drawing, terms, known, lane, end_ms)
    }

    fn wait(&self, wait: Wait) -> Result<(), Failure> {
        self.sleep(wait.ms())
    }

    fn refused(&self, _: &IdStamp, refusal: DrawRefusal) -> Failure {
        match refusal {
            DrawRefusal::Behind { .. } => {
                assert!(!self.wait_for_clock, "a draw is refused although it is to wait for the clock");
                Failure::ClockStepBack
            }
            DrawRefusal::BeforeEpoch { .. } | DrawRefusal::TimeUsedUp => Failure::OutsideLayout,
            DrawRefusal::UsedUp { .. } | DrawRefusal::MarkReached { .. } => panic!("a draw ends with {refusal:?}"),
        }
    }
}

impl Clock for Session<'_> {
    fn now_ms(&self) -> i64 {
        self.world.meanwhile(&self.server);
        let now_ms = self.server.now_ms(self.world.time_ms());
        self.clock_read_ms.set(now_ms.max(self.clock_read_ms.get()));
        now_ms
    }
}

impl MarkedDatabase for &Session<'_> {
    type Error = Failure;

    fn read(&self) -> Result<Stored, Failure> {
        self.meanwhile()?;
        let stored = self.server.log.borrow().present[self.database].stored;
        self.identity_read.set(stored.identity);
        Ok(match self.world.lie {
            Some(Lie::NothingStored) if self.loaded() == [false; 2] => {
                Stored { marks_ms: [0; 2], local_ms: [0; 2], ..stored }
            }
            Some(Lie::NoIdentity) => {
                let own = self.config.drawing().code();
                Stored { identity: (!self.resetting).then_some(own), ..stored }
            }
            Some(Lie::CoveredByOneCopy) if self.reads.get() => {
                let greater =
                    LaneName::ALL.map(|lane| stored.marks_ms[lane as usize].max(stored.local_ms[lane as usize]));
                Stored { marks_ms: greater, local_ms: greater, ..stored }
            }
            // The higher mark counts where the numbers are not known.
            Some(Lie::CoveredByEitherLane) if self.reads.get() => Stored { identity: None, ..stored },
            Some(Lie::OwnWithoutNumbers) if stored.marks_ms != [0; 2] && !self.reads.get() => {
                Stored { identity: stored.identity.or(Some(self.config.drawing().code())), ..stored }
            }
            // Nothing is taken for another fleet. What is stored stays the first one.
            Some(Lie::AnyFleet) => {
                let own = self.shared.numbers.read(self.layout()).and_then(|drawing| drawing.fleet());
                Stored { fleet: stored.fleet.and(own), ..stored }
            }
            Some(Lie::NoLayout) => Stored { layout: Some(self.layout().fingerprint()), ..stored },
            _ => stored,
        })
    }

    fn marks(&self) -> Result<Option<Marks<'_>>, Failure> {
        Ok(self.shared.marks[self.database].of(self.owner()))
    }

    fn lock(&self, wait: bool) -> Result<Option<Marks<'_>>, Failure> {
        self.meanwhile()?;
        let lock = &self.shared.locks[self.database];
        if lock.get().is_some() && !self.world.lies(Lie::NoLock) {
            return if wait { Err(Failure::Blocked) } else { Ok(None) };
        }
        lock.set(Some(self.began));
        if let Err(failure) = self.meanwhile() {
            self.unlock();
            return Err(failure);
        }
        Ok(self.shared.marks[self.database].of(self.owner()).or_else(|| self.unclaimed.of(UNCLAIMED)))
    }

    fn claim(&self) -> Result<Marks<'_>, Failure> {
        self.meanwhile()?;
        let published = &self.shared.marks[self.database];
        if published.owner() != self.owner() {
            assert!(published.claim(published.owner(), self.owner()), "another session has claimed without the lock");
        }
        Ok(self.known_marks())
    }

    fn unlock(&self) {
        if self.world.lies(Lie::LateLog) {
            self.world.meanwhile(&self.server);
        }
        for record in self.late.take() {
            self.insert(record);
        }
        if let Some(mark_ms) = self.late_ceiling_ms.take() {
            (0..3).for_each(|_| self.world.meanwhile(&self.server));
            // It comes too late after a crash.
            let _ = self.raise_ceiling_now(mark_ms);
        }
        let lock = &self.shared.locks[self.database];
        if lock.get() == Some(self.began) {
            lock.set(None);
        }
    }

    fn write(&self, value: StoredNumber, number: i64) -> Result<(), Failure> {
        self.meanwhile()?;
        let number = match value {
            StoredNumber::Mark(_) | StoredNumber::Local(_) if self.world.lies(Lie::NoLookAhead) => {
                number - MARK_AHEAD_MS
            }
            StoredNumber::Mark(_) | StoredNumber::Local(_) if self.world.lies(Lie::TooFarAhead) => {
                number + MARK_AHEAD_MS / 2
            }
            _ => number,
        };
        let is_mark = matches!(value, StoredNumber::Mark(_) | StoredNumber::Local(_));
        if self.accepting && is_mark && self.world.lies(Lie::AcceptsUnraised) {
            return Ok(());
        }
        if matches!(value, StoredNumber::Mark(_)) {
            self.world.check_bounded(self, number);
        }
        self.world.tell(|| format!("  writes {value:?} {number}"));
        let resets = self.resetting;
        let record = Record::Write { database: self.database, value, number, resets };
        if self.world.lies(Lie::LateLog) {
            let mut late = self.late.take();
            late.push(record);
            self.late.set(late);
        } else {
            self.insert(record);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Failure> {
        self.meanwhile()?;
        if !self.world.lies(Lie::NoFlush) {
            let inserted = self.server.log.borrow().inserted();
            let end = self.world.random.of(self.written.get().min(inserted) as i64..=inserted as i64);
            self.server.log.borrow_mut().flush(end as usize);
        }
        self.meanwhile()
    }

    fn flush_marks(&self) -> Result<(), Failure> {
        self.meanwhile()?;
        if !self.world.lies(Lie::CoveredUnflushed) {
            self.world.flush_all(&self.server);
        }
        self.meanwhile()
    }

    fn raise_ceiling(&self, mark_ms: i64) -> Result<(), Failure> {
        self.meanwhile()?;
        match self.world.lie {
            Some(Lie::PublishedFirst) => self.late_ceiling_ms.set(Some(mark_ms)),
            Some(Lie::NoCeiling) => {}
            _ => self.raise_ceiling_now(mark_ms)?,
        }
        self.meanwhile()
    }

    fn now_ms(&self) -> i64 {
        Clock::now_ms(*self)
    }

    fn boot_ms(&self) -> i64 {
        self.world.time_ms()
    }

    fn wait(&self, wait: Wait) -> Result<(), Failure> {
        let wait_ms = wait.ms();
        assert!(self.shared.locks[self.database].get() != Some(self.began), "it waits with the lock held");
        self.waited_ms.set(self.waited_ms.get() + wait_ms);
        self.world.tell(|| format!("  waits {wait_ms} ms for the mark"));
        let bound_ms = MARK_AHEAD_MS + self.layout().unit().ms();
        // After an advance, or with other numbers, it may have to wait once more, for the mark that
        // this server itself has moved.
        // So may a reader, which takes no lock: another session may be about to publish the mark.
        let is_first = !self.reads.get()
            && self.shared.advanced.get() < self.began
            && self.shared.numbers.version() == self.version;
        if self.world.right_clock && is_first && self.waited_ms.get() > bound_ms {
            let waited_ms = self.waited_ms.get();
            self.world.broken(Guarantee::Bounded, || {
                format!("a session waits {waited_ms} ms for the mark, more than {bound_ms}")
            });
        }
        self.sleep(wait_ms)
    }

    fn report(&self, notice: MarkNotice) {
        self.world.tell(|| format!("  reports {notice:?}"));
    }
}
