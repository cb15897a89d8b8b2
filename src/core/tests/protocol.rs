//! The mark's protocol, step by step: what one session writes, flushes, waits for and publishes.
//!
//! A fake database of one session notes what is done to it, in order. `simulation.rs` tests what
//! several sessions and servers do to each other, with the same protocol.

// loom's atomics panic outside a loom model.
#![cfg(not(loom))]

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use snowflake_core::clock::{Clock, ClockReference, DAY_MS, Wait};
use snowflake_core::draw::generator::{DrawRefusal, Generator, Limits};
use snowflake_core::draw::mark::{
    self, Mark, MarkNotice, MarkTerms, MarkedDatabase, Stored, StoredNumber, WrittenNumbers,
};
use snowflake_core::draw::numbers::{NextNumbers, Numbers};
use snowflake_core::draw::published::{Marks, PublishedMarks, UNCLAIMED};
use snowflake_core::draw::session::{DrawingSession, draw};
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::id::bounds::Instant;
use snowflake_core::id::identity::LaneName;
use snowflake_core::id::layout::Layout;

/// What the protocol did. A mark is written twice, the local copy first, which counts as one
/// `Write`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Did {
    Write(StoredNumber, i64),
    WriteOnlyMark(LaneName, i64),
    Flush,
    FlushMarks,
    RaiseCeiling(i64),
    WaitFor(Wait),
    Report(MarkNotice),
}
use Did::{Flush, FlushMarks, RaiseCeiling, Report, WaitFor, Write, WriteOnlyMark};

#[derive(Debug, PartialEq, Eq)]
enum Failure {
    Refused(mark::MarkRefusal),
    DiskFull,
    NoPage,
    DrawRefused(DrawRefusal),
    LeaseIsOver,
}

impl From<mark::MarkRefusal> for Failure {
    fn from(refused: mark::MarkRefusal) -> Self {
        Self::Refused(refused)
    }
}

/// A database of one session, which notes what is done to it.
struct Fake {
    stored: Cell<Stored>,
    /// What another session had stored so far when this one reads for the first time.
    half_stored: Cell<Option<Stored>>,
    now_ms: Cell<i64>,
    boot_ms: Cell<i64>,
    published: PublishedMarks,
    locked: Cell<bool>,
    disk_full: Cell<bool>,
    no_page: Cell<bool>,
    /// Called after each write, and at each flush.
    at_write: RefCell<Option<Box<dyn Fn()>>>,
    did: RefCell<Vec<Did>>,
}

const NOW_MS: i64 = 1_800_000_000_000;
const OWNER: u64 = 7;
const FLEET: i64 = 8;

impl Fake {
    fn holding(marks_ms: [i64; 2], layout: &Layout, drawing: Option<&IdStamp>) -> Self {
        let identity = drawing.map(IdStamp::code);
        let stored = Stored {
            marks_ms,
            local_ms: marks_ms,
            layout: identity.map(|_| layout.fingerprint()),
            identity,
            fleet: None,
        };
        let published = PublishedMarks::new();
        assert!(published.claim(UNCLAIMED, OWNER));
        let [now_ms, boot_ms] = [NOW_MS, 5000].map(Cell::new);
        let [locked, disk_full, no_page] = [false; 3].map(Cell::new);
        Self {
            stored: Cell::new(stored),
            half_stored: Cell::new(None),
            now_ms,
            boot_ms,
            published,
            locked,
            disk_full,
            no_page,
            at_write: RefCell::default(),
            did: RefCell::default(),
        }
    }

    fn marks(&self) -> Marks<'_> {
        self.published.of(OWNER).unwrap()
    }

    /// Returns the marks that are published.
    fn published_ms(&self) -> [Option<i64>; 2] {
        LaneName::ALL.map(|lane| self.marks().mark_ms(lane))
    }

    fn did(&self) -> Vec<Did> {
        assert!(!self.locked.get(), "the lock was not given back");
        self.did.take()
    }
}

impl MarkedDatabase for &Fake {
    type Error = Failure;

    fn read(&self) -> Result<Stored, Failure> {
        Ok(self.half_stored.take().unwrap_or(self.stored.get()))
    }

    fn marks(&self) -> Result<Option<Marks<'_>>, Failure> {
        Ok(self.published.of(OWNER))
    }

    fn lock(&self, wait: bool) -> Result<Option<Marks<'_>>, Failure> {
        if self.locked.replace(true) {
            assert!(!wait, "it would wait for itself");
            return Ok(None);
        }
        Ok(self.published.of(OWNER))
    }

    fn claim(&self) -> Result<Marks<'_>, Failure> {
        assert!(self.locked.get());
        Ok(Fake::marks(self))
    }

    fn unlock(&self) {
        assert!(self.locked.replace(false));
    }

    fn write(&self, value: StoredNumber, number: i64) -> Result<(), Failure> {
        assert!(self.locked.get());
        let mut stored = self.stored.get();
        match value {
            StoredNumber::Mark(lane) => stored.marks_ms[lane as usize] = number,
            StoredNumber::Local(lane) => stored.local_ms[lane as usize] = number,
            StoredNumber::Layout => stored.layout = Some(number),
            StoredNumber::Identity => stored.identity = Some(number),
            StoredNumber::Fleet => stored.fleet = Some(number),
        }
        self.stored.set(stored);
        self.at_write.borrow().iter().for_each(|look| look());
        let mut did = self.did.borrow_mut();
        match value {
            StoredNumber::Mark(lane) if did.last() == Some(&Write(StoredNumber::Local(lane), number)) => _ = did.pop(),
            StoredNumber::Mark(lane) => {
                did.push(WriteOnlyMark(lane, number));
                return Ok(());
            }
            _ => {}
        }
        did.push(Write(value, number));
        Ok(())
    }

    fn flush(&self) -> Result<(), Failure> {
        assert!(self.locked.get());
        self.did.borrow_mut().push(Flush);
        self.at_write.borrow().iter().for_each(|look| look());
        if self.disk_full.get() { Err(Failure::DiskFull) } else { Ok(()) }
    }

    fn flush_marks(&self) -> Result<(), Failure> {
        self.did.borrow_mut().push(FlushMarks);
        Ok(())
    }

    fn raise_ceiling(&self, mark_ms: i64) -> Result<(), Failure> {
        assert!(self.locked.get());
        self.did.borrow_mut().push(RaiseCeiling(mark_ms));
        if self.no_page.get() { Err(Failure::NoPage) } else { Ok(()) }
    }

    fn now_ms(&self) -> i64 {
        self.now_ms.get()
    }

    fn boot_ms(&self) -> i64 {
        self.boot_ms.get()
    }

    fn wait(&self, wait: Wait) -> Result<(), Failure> {
        assert!(!self.locked.get(), "it waits with the lock held");
        self.did.borrow_mut().push(WaitFor(wait));
        // A little shorter, as a wait may be.
        let wait_ms = 1.max(wait.ms() * 2 / 3);
        self.now_ms.set(self.now_ms.get() + wait_ms);
        self.boot_ms.set(self.boot_ms.get() + wait_ms);
        Ok(())
    }

    fn report(&self, notice: MarkNotice) {
        self.did.borrow_mut().push(Report(notice));
    }
}

/// A server: what its sessions share, and its settings.
struct Server {
    generator: Rc<Generator>,
    clocks: ClockReference,
    numbers: Numbers,
    layout: Layout,
    drawing: IdStamp,
    terms: MarkTerms,
}

/// Makes a generator whose first load was long ago, in another database, so that it waits for no
/// predecessor.
fn generator_that_has_followed(layout: &Layout) -> Rc<Generator> {
    let generator = Generator::new();
    generator.follow(layout, NOW_MS - DAY_MS, 0);
    Rc::new(generator)
}

const PRIMARY: StoredNumber = StoredNumber::Mark(LaneName::Primary);
const BACKUP: StoredNumber = StoredNumber::Mark(LaneName::Backup);

impl Server {
    fn new(layout: &str, worker: i64, backup: bool) -> Self {
        let layout = Layout::parse(layout).unwrap();
        let drawing = IdStamp::new(layout, Some(worker), None, backup).unwrap();
        let terms = MarkTerms { max_borrow_ms: 100, max_clock_jump_ms: 60_000, wait_for_clock: false };
        let generator = generator_that_has_followed(&layout);
        Self { generator, clocks: ClockReference::new(), numbers: Numbers::new(), layout, drawing, terms }
    }

    /// Returns the same server immediately after a start.
    fn started_again(&self) -> Self {
        let generator = Rc::new(Generator::new());
        Self { generator, clocks: ClockReference::new(), numbers: Numbers::new(), ..*self }
    }

    fn mark<'a>(&'a self, fake: &'a Fake) -> Mark<'a, &'a Fake> {
        Mark { database: fake, generator: &self.generator, clocks: &self.clocks, numbers: &self.numbers }
    }

    fn make_way(&self, fake: &Fake, lane: LaneName, end_ms: i64) -> Result<(), Failure> {
        self.mark(fake).make_way(&self.drawing, &self.terms, fake.marks(), lane, end_ms)
    }

    /// Loads both lanes of a database that holds nothing.
    fn fresh(&self) -> Fake {
        let fake = Fake::holding([0; 2], &self.layout, None);
        for lane in LaneName::ALL {
            self.make_way(&fake, lane, NOW_MS + 1).unwrap();
        }
        fake.did();
        fake
    }

    fn code(&self) -> i64 {
        self.drawing.code()
    }

    /// Returns the end of the tick of the next id that the primary lane would draw, or why there is
    /// none.
    fn next_end_ms(&self, fake: &Fake) -> Result<i64, DrawRefusal> {
        let drawing = IdStamp::new(self.layout, Some(0), None, false).unwrap();
        let limits = Limits { max_borrow_ms: self.terms.max_borrow_ms, marks_ms: fake.marks().both_lanes() };
        let run = self.generator.draw(&drawing, &|| fake.now_ms.get(), &limits, 1)?;
        Ok(self.layout.created_at_ms(run.last_id()).unwrap() + self.layout.unit().ms())
    }
}

#[test]
fn the_first_draw_stores_the_numbers_the_layout_and_the_mark() {
    let server = Server::new("snowflake", 5, false);
    let fake = Fake::holding([0; 2], &server.layout, None);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
    let [identity, layout] =
        [(StoredNumber::Identity, server.code()), (StoredNumber::Layout, server.layout.fingerprint())];
    let mark = (PRIMARY, NOW_MS + 1000);
    assert_eq!(fake.did(), [Write(mark.0, mark.1), Write(identity.0, identity.1), Write(layout.0, layout.1), Flush]);
    assert_eq!(fake.published_ms(), [Some(NOW_MS + 1000), None]);
    assert_eq!(server.next_end_ms(&fake), Ok(NOW_MS + 1));
    // The second lane has only its mark to store.
    server.make_way(&fake, LaneName::Backup, NOW_MS + 1).unwrap();
    assert_eq!(fake.did(), [Write(BACKUP, NOW_MS + 1000), Flush]);
    assert_eq!(fake.published_ms(), [Some(NOW_MS + 1000); 2]);
}

#[test]
fn the_mark_moves_when_half_of_it_is_used_and_no_sooner() {
    let server = Server::new("snowflake", 5, false);
    let fake = server.fresh();
    let marks_ms = [Some(NOW_MS + 1000); 2];
    fake.now_ms.set(NOW_MS + 600);
    fake.boot_ms.set(fake.boot_ms.get() + 600);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 500).unwrap();
    assert_eq!((fake.did(), fake.published_ms()), (vec![], marks_ms));
    server.make_way(&fake, LaneName::Primary, NOW_MS + 501).unwrap();
    assert_eq!(fake.did(), [Write(PRIMARY, NOW_MS + 1501), Flush]);
    assert_eq!(fake.published_ms(), [Some(NOW_MS + 1501), marks_ms[1]]);
    // While another session holds the lock, a session waits for it only if it must.
    fake.locked.set(true);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1501).unwrap();
    fake.locked.set(false);
    assert_eq!((fake.did(), fake.published_ms()), (vec![], [Some(NOW_MS + 1501), marks_ms[1]]));
    fake.now_ms.set(NOW_MS + 1502);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1502).unwrap();
    assert_eq!(fake.published_ms()[0], Some(NOW_MS + 2502));
}

#[test]
#[should_panic(expected = "it would wait for itself")]
fn a_session_that_must_move_the_mark_waits_for_the_lock() {
    let server = Server::new("snowflake", 5, false);
    let fake = server.fresh();
    fake.locked.set(true);
    let _ = server.make_way(&fake, LaneName::Primary, NOW_MS + 1001);
}

#[test]
fn a_session_that_knows_no_marks_does_not_load_what_is_loaded() {
    let server = Server::new("snowflake", 5, false);
    let fake = server.fresh();
    let unclaimed = PublishedMarks::new();
    fake.now_ms.set(NOW_MS + 700);
    let marks = unclaimed.of(UNCLAIMED).unwrap();
    server.mark(&fake).make_way(&server.drawing, &server.terms, marks, LaneName::Primary, NOW_MS + 701).unwrap();
    assert_eq!(fake.did(), [Write(PRIMARY, NOW_MS + 1701), Flush]);
}

#[test]
fn a_reading_that_was_wrong_for_a_moment_does_not_move_the_mark_far() {
    let server = Server::new("snowflake", 5, false);
    let fake = server.fresh();
    fake.now_ms.set(NOW_MS + 2000);
    server.make_way(&fake, LaneName::Primary, NOW_MS + DAY_MS).unwrap();
    assert_eq!(fake.published_ms()[0], Some(NOW_MS + 2000 + 100 + 1 + 1000));
    // Nor does a clock that was set back move the mark back.
    fake.now_ms.set(NOW_MS - DAY_MS);
    server.make_way(&fake, LaneName::Primary, NOW_MS + DAY_MS).unwrap();
    assert_eq!(fake.published_ms()[0], Some(NOW_MS + 2000 + 100 + 1 + 1000));
}

#[test]
fn a_mark_that_is_not_durable_is_not_published() {
    let server = Server::new("snowflake", 5, false);
    let fake = server.fresh();
    let published_ms = fake.published_ms();
    fake.disk_full.set(true);
    assert_eq!(server.make_way(&fake, LaneName::Primary, NOW_MS + 1001), Err(Failure::DiskFull));
    assert_eq!((fake.did().len(), fake.published_ms()), (2, published_ms));
    // The stored mark is further now. The next session loads it, and draws nothing before it.
    fake.disk_full.set(false);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1001).unwrap();
    assert_eq!((fake.did(), fake.published_ms()), (vec![], [None; 2]));
    fake.now_ms.set(NOW_MS + 2001);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 2002).unwrap();
    assert_eq!(fake.published_ms(), [Some(NOW_MS + 3001), None]);
    assert!(server.next_end_ms(&fake).unwrap() > NOW_MS + 2001);

    let fresh = Fake::holding([0; 2], &server.layout, None);
    fresh.disk_full.set(true);
    assert_eq!(server.make_way(&fresh, LaneName::Primary, NOW_MS + 1), Err(Failure::DiskFull));
    assert_eq!((fresh.did().len(), fresh.published_ms()), (4, [None; 2]));
}

#[test]
fn after_a_start_a_lane_begins_above_its_mark() {
    let server = Server::new("snowflake", 5, false);
    for ahead_ms in [-DAY_MS, 0, 100, 101, 500, 1101] {
        let generator = generator_that_has_followed(&server.layout);
        let server = Server { generator, clocks: ClockReference::new(), numbers: Numbers::new(), ..server };
        let fake = Fake::holding([NOW_MS + ahead_ms, 0], &server.layout, Some(&server.drawing));
        server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
        let did = fake.did();
        let waits = did.iter().filter(|did| matches!(did, WaitFor(_))).count();
        assert_eq!(waits > 0, ahead_ms > 100, "{did:?}");
        assert!(waits == 0 || did[0] == WaitFor(Wait::Start { wait_ms: ahead_ms - 100 }), "{did:?}");
        assert!(fake.now_ms.get() <= NOW_MS + (ahead_ms - 100).max(0));
        let mark_ms = fake.now_ms.get() + 1000;
        assert_eq!(did[waits..], [Write(PRIMARY, mark_ms), Flush]);
        assert_eq!(fake.published_ms(), [Some(mark_ms), None]);
        let end_ms = server.next_end_ms(&fake).unwrap();
        assert!(end_ms > NOW_MS + ahead_ms, "{ahead_ms}: {end_ms}");
    }
}

#[test]
fn the_first_load_of_a_start_begins_after_all_that_a_predecessor_can_have_drawn() {
    let draw = |server: &Server, now_ms: i64, max_borrow_ms| {
        let Server { layout, drawing, generator, .. } = server;
        let limits = Limits { max_borrow_ms, marks_ms: [i64::MAX; 2] };
        let run = generator.draw(drawing, &|| now_ms, &limits, 1)?;
        Ok::<_, DrawRefusal>((run.lane(), layout.created_at_ms(run.last_id()).unwrap()))
    };
    let server = Server::new("js53", 3, true).started_again();
    // A load that is refused, because its clock cannot be right, settles nothing.
    let behind = Fake::holding([NOW_MS + 3_600_000; 2], &server.layout, Some(&server.drawing));
    server.make_way(&behind, LaneName::Primary, NOW_MS + 1000).unwrap_err();
    assert_eq!(draw(&server, NOW_MS, 0), Ok((LaneName::Primary, NOW_MS)));
    // What this database holds does not matter, because the marks of the others may be as far ahead
    // as ids can have run.
    let server = server.started_again();
    let fake = Fake::holding([0; 2], &server.layout, None);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1000).unwrap();
    assert!(matches!(draw(&server, NOW_MS + 899, 100), Err(DrawRefusal::UsedUp { .. })));
    // Both lanes begin there, but only once: the next database begins where this one is.
    assert_eq!(draw(&server, NOW_MS + 1000, 0), Ok((LaneName::Primary, NOW_MS + 1000)));
    assert_eq!(draw(&server, NOW_MS, 1000), Ok((LaneName::Backup, NOW_MS + 1000)));
    let next = Fake::holding([0; 2], &server.layout, None);
    next.now_ms.set(NOW_MS + 1000);
    server.make_way(&next, LaneName::Primary, NOW_MS + 2000).unwrap();
    assert_eq!(draw(&server, NOW_MS + 1000, 0), Ok((LaneName::Primary, NOW_MS + 1000)));
}

/// As soon as the mark is published, other sessions draw.
#[test]
fn lanes_are_raised_before_the_mark_is_published() {
    let server = Server::new("js53", 3, true).started_again();
    let fake = Fake::holding([NOW_MS + 2000, 0], &server.layout, Some(&server.drawing));
    let reached = Rc::new(Cell::new(None));
    let look = {
        let (generator, layout, reached) = (server.generator.clone(), server.layout, reached.clone());
        move || reached.set(Some(LaneName::ALL.map(|lane| generator.reached_ms(lane, &layout))))
    };
    fake.at_write.replace(Some(Box::new(look)));
    let server = Server { terms: MarkTerms { max_borrow_ms: 1500, ..server.terms }, ..server };
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1000).unwrap();
    // The last flush comes before: the primary lane is then above its mark, and the other one above
    // what may have been borrowed.
    let [primary_ms, backup_ms] = reached.get().expect("it has flushed").map(Option::unwrap);
    assert!(primary_ms + 1000 >= NOW_MS + 2000, "{primary_ms}");
    assert_eq!(backup_ms, server.layout.start_of_ms(server.layout.tick_at(fake.now_ms.get() + 1500) as u64));
}

#[test]
fn a_clock_that_was_set_back_is_refused_or_waited_for() {
    let mut server = Server::new("snowflake", 5, false);
    let mark_ms = NOW_MS + 1102;
    let fake = Fake::holding([mark_ms, 0], &server.layout, Some(&server.drawing));
    let behind = mark::MarkRefusal::Behind { behind_ms: 1102, mark_ms };
    assert_eq!(server.make_way(&fake, LaneName::Primary, NOW_MS + 1), Err(Failure::Refused(behind)));
    assert_eq!((fake.did(), fake.published_ms()), (vec![], [None; 2]));
    // The lane is where it was, because the server's other databases use it too.
    assert_eq!(server.next_end_ms(&server.fresh()), Ok(NOW_MS + 1));
    server.terms.wait_for_clock = true;
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
    assert_eq!(fake.did()[0], WaitFor(Wait::ClockStepBack { wait_ms: 1002, behind_ms: 1102 }));
    assert!(server.next_end_ms(&fake).unwrap() > mark_ms);
}

/// A lane that has borrowed all it may is behind the smallest step back.
#[test]
fn a_clock_that_is_behind_by_what_may_be_borrowed_is_waited_for_and_not_a_rollback() {
    let mut server = Server::new("snowflake", 5, false);
    server.terms.max_borrow_ms = 100;
    let fake = server.fresh();
    let draw_at = |now_ms| {
        fake.now_ms.set(now_ms);
        Session::new(&server, &fake).draw().map(|id| server.layout.created_at_ms(id).unwrap())
    };
    let drawn_ms = NOW_MS + 400;
    assert_eq!(draw_at(drawn_ms), Ok(drawn_ms));
    fake.did();
    // It has to wait until it may borrow the tick again.
    assert_eq!(draw_at(drawn_ms - 200), Ok(drawn_ms));
    assert_eq!(fake.did()[0], WaitFor(Wait::Borrowed { wait_ms: 100 }));
    let rollback = DrawRefusal::Behind { behind_ms: 201, wait_ms: 101 };
    assert_eq!(draw_at(drawn_ms - 201), Err(Failure::DrawRefused(rollback)));
}

/// A reader of the settled id needs the lane above all that can have been drawn, and nothing else.
#[test]
fn a_reader_raises_the_lane_to_its_mark_and_writes_nothing() {
    let reach = |server: &Server, fake: &Fake| server.mark(fake).reach(&server.layout, &server.terms);
    for (name, ahead_ms) in ["snowflake", "js53"].into_iter().flat_map(|name| [-DAY_MS, 0, 1100].map(|ms| (name, ms))) {
        let mut server = Server::new(name, 5, false).started_again();
        // The ids may have been drawn with any numbers, from either lane, and a dump may have set
        // them.
        let fake = Fake::holding([0, NOW_MS], &server.layout, None);
        fake.stored.set(Stored { local_ms: [NOW_MS + ahead_ms, 0], ..fake.stored.get() });
        let mark_ms = NOW_MS + ahead_ms.max(0);
        reach(&server, &fake).unwrap();
        assert!(fake.did().iter().all(|did| matches!(did, WaitFor(Wait::Start { .. }))));
        assert_eq!(fake.published_ms(), [None; 2]);
        let last = server.generator.last_id(&server.layout, None);
        let covered = server.layout.last_id_before(Instant { ms: mark_ms, later: false });
        // All ids of the ticks that end at or before the mark.
        let is_whole = mark_ms % server.layout.unit().ms() == 0;
        assert!(last == covered || last < covered && !is_whole, "{name}: {last}, {covered}");
        // Once the mark is loaded, it says nothing more about ids of before.
        server.generator = Rc::new(Generator::new());
        server.make_way(&fake, LaneName::Primary, fake.now_ms.get() + 1).unwrap();
        fake.stored.set(Stored { marks_ms: [NOW_MS + DAY_MS; 2], ..fake.stored.get() });
        fake.did();
        reach(&server, &fake).unwrap();
        assert_eq!(fake.did(), []);
    }
    // A clock that was set back is refused or waited for, as for a draw.
    let mut server = Server::new("snowflake", 5, false).started_again();
    let mark_ms = NOW_MS + 60_000;
    let fake = Fake::holding([mark_ms, 0], &server.layout, Some(&server.drawing));
    let behind = mark::MarkRefusal::Behind { behind_ms: 60_000, mark_ms };
    assert_eq!(reach(&server, &fake), Err(Failure::Refused(behind)));
    assert_eq!(server.generator.reached_ms(LaneName::Primary, &server.layout), None);
    server.terms.wait_for_clock = true;
    reach(&server, &fake).unwrap();
    assert_eq!(fake.did()[0], WaitFor(Wait::ClockStepBack { wait_ms: 59_900, behind_ms: 60_000 }));
    let other = Server::new("js53", 5, false);
    let stored = server.layout.fingerprint();
    assert_eq!(reach(&other, &fake), Err(Failure::Refused(mark::MarkRefusal::OtherLayout { stored })));
}

#[test]
fn a_reader_flushes_a_mark_once_and_looks_again_when_the_lane_is_beyond_it() {
    for name in ["snowflake", "js53"] {
        let server = Server::new(name, 5, false);
        let unit_ms = server.layout.unit().ms();
        let covered = |fake: &Fake, known| server.mark(fake).covered(&server.layout, known).unwrap();
        let until = |ms: i64| server.layout.last_id_before(Instant { ms: ms - ms.rem_euclid(unit_ms), later: false });
        // What is stored counts: the higher mark, as far as both copies have it.
        let fake = Fake::holding([NOW_MS, NOW_MS + 2500], &server.layout, None);
        fake.stored.set(Stored { local_ms: [NOW_MS + 5000, NOW_MS + 2500], ..fake.stored.get() });
        let stored = covered(&fake, 0);
        assert_eq!((stored, fake.did()), (until(NOW_MS + 2500), vec![FlushMarks]), "{name}");
        // While the lane is within it, nobody looks.
        let moved = Stored { marks_ms: [NOW_MS + 9000; 2], local_ms: [NOW_MS + 9000; 2], ..fake.stored.get() };
        fake.stored.set(moved);
        assert_eq!((covered(&fake, stored), fake.did()), (stored, vec![]));
        server.generator.raise(LaneName::Primary, &server.layout, NOW_MS + 2500);
        assert_eq!((covered(&fake, stored), fake.did()), (stored, vec![]));
        server.generator.raise(LaneName::Primary, &server.layout, NOW_MS + 2500 + unit_ms);
        let later = covered(&fake, stored);
        assert_eq!((later, fake.did()), (until(NOW_MS + 9000), vec![FlushMarks]));
        // Another database may have drawn far ahead. This one's mark has been flushed.
        server.generator.raise(LaneName::Primary, &server.layout, NOW_MS + 60_000);
        assert_eq!((covered(&fake, later), fake.did()), (later, vec![]));
        let empty = Fake::holding([0; 2], &server.layout, None);
        assert_eq!(covered(&empty, 0), 0);
        // With the stored numbers, the next life begins above its own lane's mark; with others,
        // above the higher one.
        for (backup, ms) in [(false, NOW_MS), (true, NOW_MS + 2500)] {
            let before = Server::new(name, 4, backup);
            let fake = Fake::holding([NOW_MS, NOW_MS + 2500], &server.layout, Some(&before.drawing));
            assert_eq!(covered(&fake, 0), until(ms), "{name} {backup}");
        }
    }
}

#[test]
fn while_one_lane_is_far_behind_the_other_serves() {
    let server = Server::new("snowflake", 5, true);
    let far_ms = NOW_MS + 3_600_000;
    let fake = Fake::holding([far_ms, NOW_MS], &server.layout, Some(&server.drawing));
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
    assert_eq!((fake.did(), fake.published_ms()), (vec![Write(PRIMARY, far_ms), Flush], [Some(far_ms), None]));
    server.make_way(&fake, LaneName::Backup, NOW_MS + 1).unwrap();
    let limits = Limits { max_borrow_ms: 0, marks_ms: fake.marks().both_lanes() };
    let run = server.generator.draw(&server.drawing, &|| NOW_MS, &limits, 1).unwrap();
    assert_eq!(run.lane(), LaneName::Backup);
    // If both lanes are far behind, the refusal names the one that serves first.
    let fake = Fake::holding([far_ms, far_ms - 1000], &server.layout, Some(&server.drawing));
    for lane in LaneName::ALL {
        let behind = mark::MarkRefusal::Behind { behind_ms: 3_599_000, mark_ms: far_ms - 1000 };
        assert_eq!(server.make_way(&fake, lane, NOW_MS + 1), Err(Failure::Refused(behind)));
    }
    // Without a backup lane there is no other lane.
    let server = Server::new("snowflake", 5, false);
    let fake = Fake::holding([far_ms, 0], &server.layout, Some(&server.drawing));
    let behind = mark::MarkRefusal::Behind { behind_ms: 3_600_000, mark_ms: far_ms };
    assert_eq!(server.make_way(&fake, LaneName::Primary, NOW_MS + 1), Err(Failure::Refused(behind)));
}

#[test]
fn with_other_numbers_every_lane_begins_above_the_highest_mark() {
    let (before, server) = (Server::new("js53", 19, false), Server::new("js53", 3, true));
    let marks_ms = [NOW_MS - 5000, NOW_MS - 300];
    let fake = Fake::holding(marks_ms, &server.layout, Some(&before.drawing));
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1000).unwrap();
    let begin_ms = marks_ms[1];
    let other = MarkNotice::OtherIdentity { stored: before.code(), mark_ms: begin_ms };
    // The marks are written first: whatever part of this survives a crash, no id comes again.
    let mut expected = vec![Report(other), Write(BACKUP, begin_ms), Write(PRIMARY, NOW_MS + 1000)];
    expected.extend([Write(StoredNumber::Identity, server.code()), Flush]);
    assert_eq!((fake.did(), fake.published_ms()), (expected, [Some(NOW_MS + 1000), None]));
    assert!(server.next_end_ms(&fake).unwrap() > begin_ms);
}

#[test]
fn without_numbers_every_lane_begins_above_the_highest_mark() {
    // The log has lost the end of the first draw, which was from the backup lane.
    let server = Server::new("js53", 3, false);
    let mark_ms = NOW_MS - 300;
    let fake = Fake::holding([0, mark_ms], &server.layout, None);
    let covered = server.mark(&fake).covered(&server.layout, 0).unwrap();
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1000).unwrap();
    let [identity, layout] =
        [(StoredNumber::Identity, server.code()), (StoredNumber::Layout, server.layout.fingerprint())];
    let expected = [
        FlushMarks,
        Write(BACKUP, mark_ms),
        Write(PRIMARY, NOW_MS + 1000),
        Write(identity.0, identity.1),
        Write(layout.0, layout.1),
        Flush,
    ];
    assert_eq!(fake.did(), expected);
    // What a reader has gone up to lies below, whatever the clock.
    assert!(server.layout.created_at_ms(covered).unwrap() < mark_ms);
    assert!(server.next_end_ms(&fake).unwrap() > mark_ms);
}

#[test]
fn both_lanes_begin_above_a_mark_that_a_dump_has_set() {
    // The commit that set it was not rechecked, because this server was not running with the
    // library.
    let server = Server::new("js53", 3, true);
    for lane in LaneName::ALL {
        let fake = Fake::holding([NOW_MS - 5000, NOW_MS - 3000], &server.layout, Some(&server.drawing));
        fake.stored.set(Stored { marks_ms: [NOW_MS - 2000, 0], ..fake.stored.get() });
        server.make_way(&fake, lane, NOW_MS + 1000).unwrap();
        let writes = [(lane.other(), NOW_MS - 2000), (lane, NOW_MS + 1000)];
        let writes = writes.map(|(lane, mark_ms)| Write(StoredNumber::Mark(lane), mark_ms));
        assert_eq!(fake.did(), [writes[0], writes[1], Flush]);
    }
}

#[test]
fn another_layout_is_refused_until_it_is_accepted() {
    let (before, server) = (Server::new("js53", 3, false), Server::new("snowflake", 3, false));
    let fake = Fake::holding([NOW_MS, 0], &before.layout, Some(&before.drawing));
    let refused = || Err(Failure::Refused(mark::MarkRefusal::OtherLayout { stored: before.layout.fingerprint() }));
    assert_eq!(server.make_way(&fake, LaneName::Primary, NOW_MS + 1), refused());
    assert_eq!(server.mark(&fake).advance(&server.layout, &server.terms, NOW_MS, false), refused());
    assert_eq!(server.mark(&fake).reset(&server.drawing), refused());
    assert_eq!(fake.did(), []);
    before.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
    fake.did();
    server.mark(&fake).accept_layout(&server.layout).unwrap();
    assert_eq!(fake.did(), [Write(StoredNumber::Layout, server.layout.fingerprint()), Flush]);
    assert_eq!(fake.published_ms(), [None; 2]);
    // Nothing is left to accept.
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
    fake.did();
    server.mark(&fake).accept_layout(&server.layout).unwrap();
    assert_eq!((fake.did(), fake.published_ms()[0].is_some()), (vec![], true));
}

#[test]
fn another_fleet_is_refused_until_it_is_accepted() {
    const OTHER: i64 = FLEET + 1;
    let mut server = Server::new("snowflake", 3, false);
    let fake = server.fresh();
    // The first fleet is stored durably, and once.
    lease(&mut server, &fake, NOW_MS + 60_000);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
    assert_eq!(fake.stored.get().fleet, Some(FLEET));
    assert_eq!(fake.did().last_chunk(), Some(&[Write(StoredNumber::Fleet, FLEET), Flush]));
    // Another one may neither draw nor reset.
    lease_in(OTHER, &mut server, &fake, NOW_MS + 60_000);
    let refused = || Err(Failure::Refused(mark::MarkRefusal::OtherFleet { stored: FLEET, fleet: OTHER }));
    assert_eq!(server.make_way(&fake, LaneName::Primary, NOW_MS + 1), refused());
    assert_eq!(server.mark(&fake).reset(&server.drawing), refused());
    assert_eq!((fake.did(), fake.published_ms()), (vec![], [None; 2]));
    // A configured number belongs to none.
    let configured = Server::new("snowflake", 3, false);
    configured.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
    configured.mark(&fake).accept_fleet(&configured.drawing, &configured.terms).unwrap();
    assert_eq!(fake.stored.get().fleet, Some(FLEET));
    fake.published.forget();
    fake.did();
    // It begins above all that can have been drawn by the clock: a crash may have lost a mark.
    let now_ms = fake.now_ms.get() + 5000;
    fake.now_ms.set(now_ms);
    let reached_ms = now_ms + server.terms.max_borrow_ms + 1;
    server.mark(&fake).accept_fleet(&server.drawing, &server.terms).unwrap();
    let marks = [Write(PRIMARY, reached_ms), Write(BACKUP, reached_ms)];
    assert_eq!(fake.did(), [&marks[..], &[Write(StoredNumber::Fleet, OTHER), Flush]].concat());
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
    // Nothing is left to accept.
    fake.did();
    server.mark(&fake).accept_fleet(&server.drawing, &server.terms).unwrap();
    assert_eq!((fake.did(), fake.published_ms()[0].is_some()), (vec![], true));
}

#[test]
fn a_database_adopts_the_fleet_of_its_first_dense_value_and_refuses_another() {
    const OTHER: i64 = FLEET + 1;
    let server = Server::new("snowflake", 3, false);
    let fake = server.fresh();
    server.mark(&fake).adopt_fleet(FLEET).unwrap();
    assert_eq!(fake.did(), [Write(StoredNumber::Fleet, FLEET), Flush]);
    server.mark(&fake).adopt_fleet(FLEET).unwrap();
    let refused = Failure::Refused(mark::MarkRefusal::OtherFleet { stored: FLEET, fleet: OTHER });
    assert_eq!(server.mark(&fake).adopt_fleet(OTHER), Err(refused));
    assert_eq!(fake.did(), []);
}

#[test]
fn marks_are_loaded_again_where_another_fleet_was_accepted() {
    let mut server = Server::new("snowflake", 3, false);
    let fake = server.fresh();
    lease(&mut server, &fake, NOW_MS + 60_000);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
    // As a superuser may do it, or another copy of the database's sequences.
    fake.stored.set(Stored { fleet: Some(FLEET + 1), ..fake.stored.get() });
    let end_ms = fake.published_ms()[0].unwrap() + 1;
    server.make_way(&fake, LaneName::Primary, end_ms).unwrap();
    assert_eq!(fake.published_ms(), [None; 2]);
    let refused = Failure::Refused(mark::MarkRefusal::OtherFleet { stored: FLEET + 1, fleet: FLEET });
    assert_eq!(server.make_way(&fake, LaneName::Primary, end_ms), Err(refused));
}

#[test]
fn a_copy_of_sequences_does_not_change_the_fleet() {
    let mut server = Server::new("snowflake", 3, false);
    let fake = server.fresh();
    lease(&mut server, &fake, NOW_MS + 60_000);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
    let before = fake.stored.get();
    fake.stored.set(Stored { fleet: Some(FLEET + 1), ..before });
    let written = WrittenNumbers { copied_over: Some(before), ..WrittenNumbers::default() };
    server.mark(&fake).recheck(&server.layout, Some(server.drawing.identity()), &written).unwrap();
    assert_eq!(fake.stored.get().fleet, Some(FLEET));
}

#[test]
fn a_clock_that_jumps_ahead_moves_no_mark() {
    let mut server = Server::new("snowflake", 5, false);
    let fake = server.fresh();
    let refused = Err(Failure::Refused(mark::MarkRefusal::Jumped { jump_ms: 60_001 }));
    fake.now_ms.set(NOW_MS + 60_001);
    assert_eq!(server.make_way(&fake, LaneName::Primary, NOW_MS + 60_002), refused);
    // Nor does it move one in another database of the server.
    let other = Fake::holding([0; 2], &server.layout, None);
    other.now_ms.set(NOW_MS + 60_001);
    assert_eq!(server.make_way(&other, LaneName::Primary, NOW_MS + 60_002), refused);
    assert_eq!((fake.did(), other.did()), (vec![], vec![]));
    // It may jump as far as is permitted, in addition to the time that has passed.
    fake.boot_ms.set(fake.boot_ms.get() + 1);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 60_002).unwrap();
    assert_eq!(fake.published_ms()[0], Some(NOW_MS + 61_002));
    // That jump has been noted, so it may jump as far again.
    fake.now_ms.set(NOW_MS + 120_001);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 120_002).unwrap();
    fake.now_ms.set(NOW_MS + 180_002);
    assert_eq!(server.make_way(&fake, LaneName::Primary, NOW_MS + 180_003), refused);
    // 0 permits any jump, also at the load, and that jump is noted too.
    server.terms.max_clock_jump_ms = 0;
    server.make_way(&fake, LaneName::Primary, NOW_MS + 180_003).unwrap();
    other.now_ms.set(NOW_MS + 900_000);
    server.make_way(&other, LaneName::Primary, NOW_MS + 900_001).unwrap();
    server.terms.max_clock_jump_ms = 60_000;
    fake.now_ms.set(NOW_MS + 900_000);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 900_001).unwrap();
}

#[test]
fn what_another_writer_has_stored_is_noticed_when_the_mark_moves() {
    let server = Server::new("snowflake", 5, false);
    let other = Server::new("snowflake", 6, false);
    let due_ms = NOW_MS + 900;
    let extended = |change: &dyn Fn(&mut Stored)| {
        let fake = server.fresh();
        let mut stored = fake.stored.get();
        change(&mut stored);
        fake.stored.set(stored);
        server.make_way(&fake, LaneName::Primary, due_ms).unwrap();
        (fake.did(), fake.published_ms()[0])
    };
    let moved = vec![Write(PRIMARY, NOW_MS + 101 + 1000), Flush];
    assert_eq!(extended(&|_| ()), (moved.clone(), Some(NOW_MS + 1101)));
    // Other numbers, another layout, or a mark that was not stored twice: the marks are to be
    // loaded.
    for lane in [0, 1] {
        assert_eq!(extended(&|stored| stored.marks_ms[lane] += 1), (vec![], None));
        assert_eq!(extended(&|stored| stored.marks_ms[lane] -= 1), (vec![], None));
    }
    assert_eq!(extended(&|stored| stored.identity = Some(other.code())), (vec![], None));
    assert_eq!(extended(&|stored| stored.layout = Some(1)), (vec![], None));
    assert_eq!(extended(&|stored| stored.layout = None), (vec![], None));
    // The same holds for a stored mark that is further than the published one.
    let both = |stored: &mut Stored, by_ms| [&mut stored.marks_ms, &mut stored.local_ms].map(|ms| ms[0] += by_ms);
    assert_eq!(extended(&|stored| _ = both(stored, 1)), (vec![], None));
    // A mark that was set back is raised again.
    let notice = MarkNotice::SetBack { stored_ms: NOW_MS + 999, mark_ms: NOW_MS + 1000 };
    let expected = [vec![Report(notice)], moved].concat();
    assert_eq!(extended(&|stored| _ = both(stored, -1)), (expected, Some(NOW_MS + 1101)));
}

#[test]
fn what_a_dump_has_stored_is_noticed_when_it_commits() {
    let server = Server::new("snowflake", 5, true);
    let other = Server::new("snowflake", 6, true);
    let mark_ms = NOW_MS + 1000;
    const ALL: WrittenNumbers = WrittenNumbers { copied_over: None, marks: [true; 2], layout: true, identity: true };
    let rechecked = |fake: &Fake, change: &dyn Fn(&mut Stored)| {
        let mut stored = fake.stored.get();
        change(&mut stored);
        fake.stored.set(stored);
        server.mark(fake).recheck(&server.layout, Some(server.drawing.identity()), &ALL).unwrap();
        (fake.did(), fake.published_ms())
    };
    assert_eq!(rechecked(&server.fresh(), &|_| ()), (vec![], [Some(mark_ms); 2]));
    // Another session is between the two writes of a move, which is not the work of another writer.
    let fake = server.fresh();
    fake.half_stored.set(Some(Stored { local_ms: [mark_ms + 500, mark_ms], ..fake.stored.get() }));
    assert_eq!(rechecked(&fake, &|_| ()), (vec![], [Some(mark_ms); 2]));
    // If anything differs, both lanes are stored up to the highest mark, and are to be loaded.
    let [primary, backup] = [PRIMARY, BACKUP].map(|value| move |mark_ms| Write(value, mark_ms));
    let local = |lane| move |mark_ms| Write(StoredNumber::Local(lane), mark_ms);
    let [local_primary, local_backup] = LaneName::ALL.map(local);
    let ahead = |fake: &Fake| rechecked(fake, &|stored| stored.marks_ms[1] += 5);
    let expected = vec![primary(mark_ms + 5), local_backup(mark_ms + 5), Flush];
    assert_eq!(ahead(&server.fresh()), (expected, [None; 2]));
    let changed = rechecked(&server.fresh(), &|stored| stored.identity = Some(other.code()));
    assert_eq!(changed, (vec![Flush], [None; 2]));
    // After the dump of a database in which nothing was drawn, this database still knows what its
    // ids were drawn with.
    let changed = rechecked(&server.fresh(), &|stored| (stored.layout, stored.identity) = (None, None));
    let (layout, identity) = (server.layout.fingerprint(), server.code());
    assert_eq!(
        changed,
        (vec![Write(StoredNumber::Layout, layout), Write(StoredNumber::Identity, identity), Flush], [None; 2])
    );
    let fake = Fake::holding([0; 2], &server.layout, None);
    assert_eq!(rechecked(&fake, &|_| ()), (vec![Flush], [None; 2]));
    let fake = server.fresh();
    fake.stored.set(Stored { layout: None, ..fake.stored.get() });
    server
        .mark(&fake)
        .recheck(&server.layout, Some(server.drawing.identity()), &WrittenNumbers { layout: false, ..ALL })
        .unwrap();
    assert_eq!(fake.did(), [Flush]);
    let fake = server.fresh();
    fake.stored.set(Stored { identity: None, ..fake.stored.get() });
    server
        .mark(&fake)
        .recheck(&server.layout, Some(server.drawing.identity()), &WrittenNumbers { identity: false, ..ALL })
        .unwrap();
    assert_eq!(fake.did(), [Flush]);
    // If a mark was set back, the operator is told.
    let notice = MarkNotice::SetBack { stored_ms: mark_ms - 1, mark_ms };
    let expected = vec![Report(notice), WriteOnlyMark(LaneName::Primary, mark_ms), Flush];
    assert_eq!(rechecked(&server.fresh(), &|stored| stored.marks_ms[0] -= 1), (expected, [None; 2]));
    // Before anything is loaded, it is raised without a report. A second dump does not undo what
    // the first one has set.
    let fake = Fake::holding([3000, 5000], &server.layout, Some(&server.drawing));
    let expected = vec![local_primary(7000), backup(7000), Flush];
    assert_eq!(rechecked(&fake, &|stored| stored.marks_ms[0] = 7000), (expected, [None; 2]));
    let expected = LaneName::ALL.map(|lane| WriteOnlyMark(lane, 7000));
    let expected = vec![expected[0], expected[1], Flush];
    assert_eq!(rechecked(&fake, &|stored| stored.marks_ms = [1000, 2000]), (expected, [None; 2]));
    // A mark that this transaction has not set is left to the transaction that sets it.
    let mut stored = fake.stored.get();
    stored.marks_ms = [1000, 2000];
    fake.stored.set(stored);
    server
        .mark(&fake)
        .recheck(&server.layout, Some(server.drawing.identity()), &WrittenNumbers { marks: [false, true], ..ALL })
        .unwrap();
    assert_eq!(fake.did(), [WriteOnlyMark(LaneName::Backup, 7000), Flush]);
    assert_eq!(fake.stored.get().marks_ms, [1000, 7000]);
    // The same holds on a server without a number.
    server.mark(&fake).recheck(&server.layout, None, &ALL).unwrap();
    assert_eq!(fake.did(), [WriteOnlyMark(LaneName::Primary, 7000), Flush]);
    server.mark(&fake).recheck(&server.layout, None, &ALL).unwrap();
    assert_eq!(fake.did(), []);
}

/// Logical replication copies all sequences of another server, the local marks among them.
#[test]
fn what_was_copied_over_is_put_back() {
    let server = Server::new("snowflake", 5, true);
    let (other, elsewhere) = (Server::new("snowflake", 6, true), Server::new("js53", 5, true));
    let (mark_ms, other_ms) = (NOW_MS + 1000, NOW_MS - 5000);
    let copied = |fake: &Fake, other: &Server, to_ms: i64| {
        let before = fake.stored.get();
        let (layout, identity) = (Some(other.layout.fingerprint()), Some(other.code()));
        fake.stored.set(Stored { marks_ms: [to_ms; 2], local_ms: [to_ms; 2], layout, identity, fleet: None });
        let written = WrittenNumbers { copied_over: Some(before), marks: [true; 2], layout: true, identity: true };
        server.mark(fake).recheck(&server.layout, Some(server.drawing.identity()), &written).unwrap();
        (fake.stored.get(), fake.published_ms(), before)
    };
    for (other, to_ms) in [(&other, other_ms), (&server, other_ms), (&elsewhere, other_ms), (&server, 0)] {
        let (stored, published, before) = copied(&server.fresh(), other, to_ms);
        assert_eq!((stored, published), (before, [None; 2]));
    }
    // The other server's mark counts if it is higher. The number is still this server's.
    let (stored, _, before) = copied(&server.fresh(), &other, mark_ms + 7);
    assert_eq!(stored, Stored { marks_ms: [mark_ms + 7; 2], local_ms: [mark_ms + 7; 2], ..before });
    // A mark that was moved since counts, too.
    let fake = server.fresh();
    fake.stored.set(Stored { marks_ms: [3; 2], local_ms: [3; 2], ..fake.stored.get() });
    let (stored, _, before) = copied(&fake, &other, 2);
    assert_eq!(stored, Stored { marks_ms: [mark_ms; 2], local_ms: [mark_ms; 2], ..before });
    // A database in which nothing was drawn takes all over, as a successor does.
    let fake = Fake::holding([0; 2], &server.layout, None);
    fake.stored.set(Stored { layout: None, ..fake.stored.get() });
    let (stored, ..) = copied(&fake, &elsewhere, other_ms);
    let taken = Stored { layout: Some(elsewhere.layout.fingerprint()), identity: Some(elsewhere.code()), ..stored };
    assert_eq!((stored, stored.marks_ms, stored.local_ms), (taken, [other_ms; 2], [other_ms; 2]));
}

#[test]
fn no_id_at_or_below_one_that_was_advanced_to_is_drawn() {
    let server = Server::new("snowflake", 5, true);
    let mark_ms = NOW_MS + 1000;
    let advanced = |fake: &Fake, end_ms| {
        server.mark(fake).advance(&server.layout, &server.terms, end_ms, false).unwrap();
        (fake.did(), fake.published_ms())
    };
    let writes = |marks_ms: [i64; 2]| vec![Write(PRIMARY, marks_ms[0]), Write(BACKUP, marks_ms[1]), Flush];
    // Within the mark and the clock's reach, the lanes are raised at once.
    let fake = server.fresh();
    assert_eq!(advanced(&fake, NOW_MS - 5000), (writes([mark_ms; 2]), [Some(mark_ms); 2]));
    assert_eq!(server.next_end_ms(&fake), Ok(NOW_MS + 1));
    assert_eq!(advanced(&fake, NOW_MS + 100), (writes([mark_ms; 2]), [Some(mark_ms); 2]));
    assert_eq!(server.next_end_ms(&fake), Ok(NOW_MS + 101));
    // Beyond the clock's reach, or beyond the mark, the marks are to be loaded.
    assert_eq!(advanced(&fake, NOW_MS + 101), (writes([mark_ms; 2]), [None; 2]));
    let fake = server.fresh();
    assert_eq!(advanced(&fake, mark_ms + 1), (writes([mark_ms + 1; 2]), [None; 2]));
    let fake = server.fresh();
    fake.now_ms.set(NOW_MS + 1100);
    assert_eq!(advanced(&fake, mark_ms + 1), (writes([mark_ms + 1; 2]), [None; 2]));
    // Nothing is ever lowered, neither what is stored nor what is published.
    let fake = server.fresh();
    let stored = Stored { marks_ms: [mark_ms + 7, 3], ..fake.stored.get() };
    fake.stored.set(stored);
    assert_eq!(advanced(&fake, NOW_MS), (writes([mark_ms + 7; 2]), [None; 2]));
    let fake = server.fresh();
    fake.stored.set(Stored { marks_ms: [3; 2], local_ms: [3; 2], ..fake.stored.get() });
    assert_eq!(advanced(&fake, NOW_MS), (writes([mark_ms; 2]), [Some(mark_ms); 2]));
    let fake = Fake::holding([0; 2], &server.layout, None);
    let layout = Write(StoredNumber::Layout, server.layout.fingerprint());
    assert_eq!(advanced(&fake, NOW_MS), ([vec![layout], writes([NOW_MS; 2])].concat(), [None; 2]));
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
    // One lane is loaded. The other one is stored as far as was asked for, and read when it is
    // loaded.
    let expected = (writes([mark_ms, NOW_MS + 1]), [Some(mark_ms), None]);
    fake.did();
    assert_eq!(advanced(&fake, NOW_MS + 1), expected);
}

#[test]
fn an_advance_further_ahead_than_the_clock_may_jump_is_refused_unless_it_is_forced() {
    for (layout, unit_ms) in [("snowflake", 1), ("js53", 1000)] {
        for (max_clock_jump_ms, most_ms) in [(60_000, 60_000), (0, DAY_MS), (10 * DAY_MS, 10 * DAY_MS)] {
            let mut server = Server::new(layout, 5, true);
            server.terms.max_clock_jump_ms = max_clock_jump_ms;
            let fake = server.fresh();
            let before = (fake.stored.get(), fake.published_ms());
            let advance = |end_ms, force| server.mark(&fake).advance(&server.layout, &server.terms, end_ms, force);
            // What counts is the start of the id's tick: its time, as every other function reads
            // it.
            let last_ms = NOW_MS + most_ms + unit_ms;
            for end_ms in [last_ms + unit_ms, i64::MAX] {
                let id_ms = end_ms - unit_ms;
                let refused = mark::MarkRefusal::FarAhead { id_ms, now_ms: NOW_MS, most_ms };
                assert_eq!(advance(end_ms, false), Err(Failure::Refused(refused)));
            }
            assert_eq!((fake.did(), (fake.stored.get(), fake.published_ms())), (vec![], before));
            advance(last_ms, false).unwrap();
            assert_eq!(fake.did(), [Write(PRIMARY, last_ms), Write(BACKUP, last_ms), Flush]);
            advance(last_ms + unit_ms, true).unwrap();
            let forced_ms = last_ms + unit_ms;
            assert_eq!(fake.did(), [Write(PRIMARY, forced_ms), Write(BACKUP, forced_ms), Flush]);
            // The distance counts from the clock, not from the mark, so a forced advance does not
            // permit a further one.
            let refused = mark::MarkRefusal::FarAhead { id_ms: forced_ms, now_ms: NOW_MS, most_ms };
            assert_eq!(advance(forced_ms + unit_ms, false), Err(Failure::Refused(refused)));
            assert_eq!(fake.did(), []);
        }
    }
}

#[test]
fn a_mark_is_reset_only_by_a_server_with_other_numbers_that_has_not_drawn() {
    let far_ms = NOW_MS + 3_600_000;
    let before = Server::new("js53", 19, false);
    let reset = |server: &Server, fake: &Fake| server.mark(fake).reset(&server.drawing);
    let refused = |refused| Err(Failure::Refused(refused));
    let holding = |of: &Server| Fake::holding([far_ms, far_ms], &of.layout, Some(&of.drawing));
    // Worker 3 with backup workers draws with 19 too.
    for same in [Server::new("js53", 19, false), Server::new("js53", 3, true)] {
        let fake = holding(&before);
        assert_eq!((reset(&same, &fake), fake.did()), (refused(mark::MarkRefusal::SameNumber), vec![]));
    }
    for other in [Server::new("js53", 3, false), Server::new("js53", 4, true)] {
        let fake = holding(&before);
        reset(&other, &fake).unwrap();
        let expected = [Write(StoredNumber::Identity, other.code()), Write(PRIMARY, 0), Write(BACKUP, 0), Flush];
        assert_eq!(fake.did(), expected);
        other.make_way(&fake, LaneName::Primary, NOW_MS + 1000).unwrap();
        assert!(other.next_end_ms(&fake).unwrap() < far_ms);
        assert_eq!(reset(&before, &fake), refused(mark::MarkRefusal::InUse));
    }
    // One lane in use is enough to refuse a reset. A database in which nothing was drawn has
    // nothing to protect.
    let fake = Fake::holding([far_ms, 0], &before.layout, Some(&before.drawing));
    before.make_way(&fake, LaneName::Backup, NOW_MS + 1000).unwrap();
    assert_eq!(reset(&Server::new("js53", 4, true), &fake), refused(mark::MarkRefusal::InUse));
    reset(&before, &Fake::holding([far_ms; 2], &before.layout, None)).unwrap();
}

#[test]
fn a_layout_without_numbers_leaves_a_reset_to_the_operator() {
    let layout = Layout::parse("mastodon").unwrap();
    let drawing = IdStamp::new(layout, None, None, false).unwrap();
    let server = Server { layout, drawing, ..Server::new("snowflake", 5, false) };
    let fake = Fake::holding([NOW_MS + 3_600_000, 0], &layout, Some(&drawing));
    server.mark(&fake).reset(&drawing).unwrap();
    assert_eq!(fake.stored.get().marks_ms, [0; 2]);
}

/// Makes the server lease its numbers up to `until_ms`.
fn lease(server: &mut Server, fake: &Fake, until_ms: i64) {
    lease_in(FLEET, server, fake, until_ms);
}

fn lease_in(fleet: i64, server: &mut Server, fake: &Fake, until_ms: i64) {
    let span = NextNumbers { identity: *server.drawing.identity(), from_ms: NOW_MS, until_ms, fleet };
    let marks = std::slice::from_ref(&fake.published);
    server.numbers.enter(marks, &server.generator, &server.layout, &span);
    server.drawing = server.numbers.read(&server.layout).unwrap();
}

#[test]
fn a_mark_ends_with_the_lease() {
    const UNTIL_MS: i64 = NOW_MS + 10_000;
    let mut server = Server::new("snowflake", 5, false);
    let fake = server.fresh();
    lease(&mut server, &fake, UNTIL_MS);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
    assert_eq!(fake.published_ms()[0], Some(fake.now_ms.get() + 1000));
    // It moves as far as the lease goes, and is stored so.
    fake.now_ms.set(UNTIL_MS - 800);
    fake.did();
    server.make_way(&fake, LaneName::Primary, UNTIL_MS - 799).unwrap();
    assert_eq!(fake.did(), [RaiseCeiling(UNTIL_MS), Write(PRIMARY, UNTIL_MS)]);
    assert_eq!(fake.published_ms()[0], Some(UNTIL_MS));
    // At its end nothing is written. A longer lease of the same number needs no load.
    fake.now_ms.set(UNTIL_MS - 100);
    server.make_way(&fake, LaneName::Primary, UNTIL_MS - 99).unwrap();
    assert_eq!(fake.did(), []);
    server.numbers.extend(UNTIL_MS + 60_000);
    server.drawing = server.numbers.read(&server.layout).unwrap();
    server.make_way(&fake, LaneName::Primary, UNTIL_MS - 99).unwrap();
    assert_eq!(fake.did(), [RaiseCeiling(UNTIL_MS + 901), Write(PRIMARY, UNTIL_MS + 901)]);
    assert_eq!(fake.published_ms()[0], Some(UNTIL_MS + 901));
}

/// The next life begins at the ceiling. So it is raised to a mark before that is written and
/// published, whether the mark is loaded or moved, and to the end of the lease at most. A session
/// that cannot raise it changes nothing, so that the others draw on.
#[test]
fn a_mark_of_leased_numbers_is_written_and_published_only_after_the_ceiling_was_raised_to_it() {
    let mut server = Server::new("snowflake", 5, false);
    let fake = server.fresh();
    lease(&mut server, &fake, NOW_MS + 1500);
    for (end_ms, until_ms) in [(NOW_MS + 1, NOW_MS + 1500), (NOW_MS + 1501, NOW_MS + 10_000)] {
        server.numbers.extend(until_ms);
        server.drawing = server.numbers.read(&server.layout).unwrap();
        let reached_ms = || server.generator.reached_ms(LaneName::Primary, &server.layout);
        let before = (fake.published_ms(), fake.stored.get(), reached_ms());
        fake.no_page.set(true);
        fake.did();
        assert_eq!(server.make_way(&fake, LaneName::Primary, end_ms), Err(Failure::NoPage));
        assert!(matches!(fake.did()[..], [.., RaiseCeiling(_)]));
        assert_eq!((fake.published_ms(), fake.stored.get(), reached_ms()), before);
        fake.no_page.set(false);
        server.make_way(&fake, LaneName::Primary, end_ms).unwrap();
        let published_ms = fake.published_ms()[0].unwrap();
        assert!(published_ms <= until_ms && Some(published_ms) > before.0[0]);
        assert_eq!(fake.did()[0], RaiseCeiling(published_ms));
    }
    // A configured number has no page.
    let server = Server::new("snowflake", 5, false);
    let fake = server.fresh();
    fake.no_page.set(true);
    server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
    assert!(fake.published_ms()[0].is_some());
}

/// A session that draws, and does not wait for a longer lease.
struct Session<'a> {
    server: &'a Server,
    fake: &'a Fake,
    /// What another session does when this one has read the clock for the first time.
    meanwhile: Cell<Option<&'a dyn Fn()>>,
}

impl<'a> Session<'a> {
    fn new(server: &'a Server, fake: &'a Fake) -> Self {
        Self { server, fake, meanwhile: Cell::new(None) }
    }

    fn draw(&self) -> Result<i64, Failure> {
        draw(self, &self.server.generator, 1).map(|run| run.last_id())
    }
}

impl Clock for Session<'_> {
    fn now_ms(&self) -> i64 {
        let now_ms = self.fake.now_ms.get();
        if let Some(meanwhile) = self.meanwhile.take() {
            meanwhile();
        }
        now_ms
    }
}

impl DrawingSession for Session<'_> {
    type Error = Failure;

    fn last_seen(&self) -> Result<Marks<'_>, Failure> {
        Ok(self.fake.marks())
    }

    fn drawing(&self) -> Result<IdStamp, Failure> {
        Ok(self.server.drawing)
    }

    fn lease(&self, _: &IdStamp) -> Result<(), Failure> {
        Err(Failure::LeaseIsOver)
    }

    fn terms(&self) -> MarkTerms {
        self.server.terms
    }

    fn make_way(
        &self,
        drawing: &IdStamp,
        terms: &MarkTerms,
        known: Marks<'_>,
        lane: LaneName,
        end_ms: i64,
    ) -> Result<(), Failure> {
        self.server.mark(self.fake).make_way(drawing, terms, known, lane, end_ms)
    }

    fn wait(&self, wait: Wait) -> Result<(), Failure> {
        self.fake.wait(wait)
    }

    fn refused(&self, _: &IdStamp, refusal: DrawRefusal) -> Failure {
        Failure::DrawRefused(refusal)
    }
}

#[test]
fn the_last_tick_of_a_lease_is_drawn_and_none_after_it() {
    const UNTIL_MS: i64 = NOW_MS + 10_000;
    let mut server = Server::new("snowflake", 5, false);
    let fake = server.fresh();
    lease(&mut server, &fake, UNTIL_MS);
    let draw = |now_ms| {
        fake.now_ms.set(now_ms);
        let id = Session::new(&server, &fake).draw()?;
        Ok(server.layout.created_at_ms(id).unwrap())
    };
    assert_eq!(draw(UNTIL_MS - 1), Ok(UNTIL_MS - 1));
    assert_eq!(draw(UNTIL_MS), Err(Failure::LeaseIsOver));
}

#[test]
fn only_what_an_operator_asks_for_is_flushed_with_leased_numbers() {
    let flushes = |fake: &Fake| fake.did().into_iter().filter(|did| *did == Flush).count();
    for is_leased in [false, true] {
        let mut server = Server::new("snowflake", 5, true);
        let fake = Fake::holding([0; 2], &server.layout, None);
        if is_leased {
            fake.stored.set(Stored { fleet: Some(FLEET), ..fake.stored.get() });
            lease(&mut server, &fake, NOW_MS + 60_000);
        }
        // The first draw loads the mark, and a later one moves it.
        for (now_ms, published_ms) in [(NOW_MS, NOW_MS + 1000), (NOW_MS + 600, NOW_MS + 1601)] {
            fake.now_ms.set(now_ms);
            server.make_way(&fake, LaneName::Primary, now_ms + 1).unwrap();
            assert_eq!(fake.published_ms()[0], Some(published_ms));
            assert_eq!(flushes(&fake), usize::from(!is_leased));
        }
        let mark = server.mark(&fake);
        mark.advance(&server.layout, &server.terms, NOW_MS + 5000, false).unwrap();
        assert_eq!(flushes(&fake), 1);
        mark.accept_layout(&Layout::parse("js53").unwrap()).unwrap();
        assert_eq!(flushes(&fake), 1);
        mark.accept_layout(&server.layout).unwrap();
        fake.published.forget();
        let reset = mark.reset(&server.drawing);
        // A lease begins where the one before has ended, whatever the mark.
        let refused = Err(Failure::Refused(mark::MarkRefusal::SameNumber));
        assert_eq!(reset, if is_leased { Ok(()) } else { refused });
        let stored_ms = fake.stored.get().marks_ms;
        assert_eq!(stored_ms, if is_leased { [0; 2] } else { [NOW_MS + 5000; 2] });
        assert_eq!(fake.did().last(), Some(&Flush));
    }
}

#[test]
fn a_mark_is_not_published_for_numbers_that_have_changed_meanwhile() {
    let mut server = Server::new("snowflake", 5, false);
    let fake = Rc::new(server.fresh());
    lease(&mut server, &fake, NOW_MS + 60_000);
    let (generator, layout) = (server.generator.clone(), server.layout);
    // Once while it is loaded, and once while it is extended.
    for ahead_ms in [1, 600] {
        let end_ms = fake.now_ms.get() + ahead_ms;
        let numbers = Rc::new(std::mem::replace(&mut server.numbers, Numbers::new()));
        let mark = Mark { database: &*fake, generator: &generator, clocks: &server.clocks, numbers: &numbers };
        let known = fake.marks();
        *fake.at_write.borrow_mut() = Some(Box::new({
            let (numbers, fake, generator) = (numbers.clone(), Rc::downgrade(&fake), generator.clone());
            move || {
                let fake = fake.upgrade().unwrap();
                numbers.leave(std::slice::from_ref(&fake.published), &generator, &layout);
            }
        }));
        mark.make_way(&server.drawing, &server.terms, known, LaneName::Primary, end_ms).unwrap();
        assert_eq!(fake.published_ms(), [None; 2]);
        // The next one has other numbers, and what the old ones were to draw with is not written.
        *fake.at_write.borrow_mut() = None;
        fake.did();
        mark.make_way(&server.drawing, &server.terms, fake.marks(), LaneName::Primary, end_ms).unwrap();
        assert_eq!((fake.did(), fake.published_ms()), (vec![], [None; 2]));
        lease(&mut server, &fake, NOW_MS + 60_000);
        server.make_way(&fake, LaneName::Primary, NOW_MS + 1).unwrap();
    }
}

/// Draws ids of both lanes in a database until all that the clock and `max_borrow` permit are
/// drawn, or just `count`. Returns the greatest id of each lane; -1 if it has drawn none.
fn draw_up(server: &Server, fake: &Fake, count: u32) -> [i64; 2] {
    let mut greatest = [-1; 2];
    let mut left = count;
    while left > 0 {
        let limits = Limits { max_borrow_ms: server.terms.max_borrow_ms, marks_ms: fake.marks().both_lanes() };
        match server.generator.draw(&server.drawing, &|| fake.now_ms.get(), &limits, 1) {
            Ok(run) => {
                greatest[run.lane() as usize] = run.last_id();
                left -= 1;
            }
            Err(DrawRefusal::MarkReached { lane, end_ms }) => server.make_way(fake, lane, end_ms).unwrap(),
            Err(DrawRefusal::UsedUp { .. }) => break,
            Err(refusal) => panic!("{refusal:?}"),
        }
    }
    greatest
}

/// The mark keeps the ids of one database ascending. Those of all databases of a server do, too.
#[test]
fn ids_of_another_database_ascend_through_a_change_to_a_lower_number_within_a_tick() {
    const UNTIL_MS: i64 = NOW_MS + 60_000;
    for (layout, backup) in [
        ("time:32 worker:5 sequence:5 unit:1s epoch:2019-01-01T00:00:00Z", false),
        ("time:32 worker:5 sequence:5 unit:1s epoch:2019-01-01T00:00:00Z", true),
        ("time:39 worker:5 sequence:4 unit:10ms epoch:2025-01-01T00:00:00Z", false),
        ("time:41 worker:5 sequence:1 unit:1ms epoch:2025-01-01T00:00:00Z", false),
        ("js53", false),
        ("js53", true),
    ] {
        for (max_borrow_ms, count) in
            [0, 5, 100, 2500].into_iter().flat_map(|borrow| [1, u32::MAX].map(|n| (borrow, n)))
        {
            let what = format!("{layout}, backup: {backup}, max_borrow {max_borrow_ms} ms, {count} ids");
            let mut server = Server::new(layout, 9, backup);
            server.terms.max_borrow_ms = max_borrow_ms;
            let [one, other] = [(); 2].map(|()| Fake::holding([0; 2], &server.layout, None));
            lease(&mut server, &one, UNTIL_MS);
            for fake in [&one, &other] {
                fake.now_ms.set(NOW_MS + 300);
            }
            let before = draw_up(&server, &one, count);
            let lower = Server::new(layout, 3, backup).drawing;
            server.drawing = lower;
            lease(&mut server, &one, UNTIL_MS);
            // The other database holds nothing, so no mark raises its lanes.
            let session = Session::new(&server, &other);
            let mut after = [None; 2];
            for _ in 0..40 {
                let run = draw(&session, &server.generator, 1).unwrap_or_else(|why| panic!("{what}: {why:?}"));
                after[run.lane() as usize].get_or_insert(run.last_id());
            }
            for (before, after) in before.into_iter().zip(after) {
                assert!(after.is_none_or(|after| after > before), "{what}: {before}, {after:?}");
            }
            assert!(after[0].is_some() || backup, "{what}");
            let waits = other.did();
            let is_expected = |did: &Did| !matches!(did, WaitFor(Wait::ClockStepBack { .. }));
            assert!(waits.iter().all(is_expected), "{what}: {waits:?}");
        }
    }
}

/// A lane whose tick was used up lies in the next one when numbers are entered: other ones, or the
/// same ones again, because a process has ended meanwhile. A session reads the clock before that
/// tick. Then another one waits for the tick, and loads the mark, before the first one goes on.
#[test]
fn a_session_that_is_overtaken_at_the_first_draw_with_entered_numbers_finds_no_rollback() {
    for (worker, backup) in [(3, false), (9, false), (3, true), (9, true)] {
        let layout = "time:32 worker:5 sequence:5 unit:1s epoch:2019-01-01T00:00:00Z";
        let mut server = Server::new(layout, 9, backup);
        server.terms.max_borrow_ms = 0;
        let fake = Fake::holding([0; 2], &server.layout, None);
        lease(&mut server, &fake, NOW_MS + 60_000);
        fake.now_ms.set(NOW_MS + 300);
        draw_up(&server, &fake, u32::MAX);
        server.drawing = Server::new(layout, worker, backup).drawing;
        lease(&mut server, &fake, NOW_MS + 60_000);
        fake.did();
        let overtaking = Cell::new(None);
        let overtakes = || overtaking.set(Some(Session::new(&server, &fake).draw()));
        let session = Session::new(&server, &fake);
        session.meanwhile.set(Some(&overtakes));
        let id = session.draw().unwrap_or_else(|why| panic!("{worker} {backup}: {why:?}"));
        assert!(overtaking.take().expect("it has read the clock").unwrap() < id);
        let is_rollback = |did: &Did| matches!(did, WaitFor(Wait::ClockStepBack { .. }));
        assert!(!fake.did().iter().any(is_rollback), "{worker} {backup}");
    }
}

/// A server that returns its numbers tries again if the answer is lost. Each try leaves them.
#[test]
fn numbers_that_are_left_again_and_again_leave_the_lanes_where_they_are() {
    let layout = "time:41 worker:10 sequence:2 unit:1ms epoch:2025-01-01T00:00:00Z";
    for backup in [false, true] {
        let mut server = Server::new(layout, 9, backup);
        server.terms.max_borrow_ms = 0;
        let fake = Fake::holding([0; 2], &server.layout, None);
        lease(&mut server, &fake, NOW_MS + 60_000);
        let before = Session::new(&server, &fake).draw().unwrap();
        let marks = std::slice::from_ref(&fake.published);
        let left = server.numbers.leave(marks, &server.generator, &server.layout);
        assert_eq!(left, Some(fake.now_ms.get() + 1), "{backup}");
        for _ in 0..20 {
            assert_eq!(server.numbers.leave(marks, &server.generator, &server.layout), left, "{backup}");
        }
        lease(&mut server, &fake, NOW_MS + 60_000);
        fake.did();
        let after = Session::new(&server, &fake).draw().unwrap_or_else(|why| panic!("{backup}: {why:?}"));
        assert!(before < after);
        let is_rollback = |did: &Did| matches!(did, WaitFor(Wait::ClockStepBack { .. }));
        assert!(!fake.did().iter().any(is_rollback), "{backup}");
    }
}
