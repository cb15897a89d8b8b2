//! A fake server: the memory that its sessions share, and one of its processes. Each test says what
//! becomes of the process's calls ([`Process`]).

use std::cell::RefCell;

use snowflake_core::clock::Clock;
use snowflake_core::draw::generator::{Generator, Limits};
use snowflake_core::draw::numbers::Numbers;
use snowflake_core::draw::published::{PublishedMarks, UNCLAIMED};
use snowflake_core::fleet::exchange::Member;
use snowflake_core::fleet::lease::{self, Holder, LeaseNotice, LeasingServer, SharedWords};
use snowflake_core::fleet::membership::FleetNotice;
use snowflake_core::fleet::registry::{MemberTerms, Reading, Store, Swap, SwapAnswer, Wanted};
use snowflake_core::fleet::segment::{Claimed, Directory, Full, Place, PlaceView, SuppliedServer, SupplyNotice};
use snowflake_core::fleet::tag::Tag;
use snowflake_core::id::identity::LaneName;
use snowflake_core::id::layout::Layout;

/// What the sessions of one life share.
pub struct Memory {
    pub numbers: Numbers,
    pub generator: Generator,
    pub marks: [PublishedMarks; 1],
    pub tags: Places,
}

/// The places of tags that sessions share.
#[derive(Debug)]
pub struct Places {
    pub places: Vec<Place>,
    directory: RefCell<Directory>,
}

impl Places {
    pub fn new(count: usize) -> Self {
        Self { places: (0..count).map(|_| Place::new()).collect(), directory: RefCell::new(Directory::new()) }
    }

    pub fn find(&self, tag: Tag) -> Result<(usize, PlaceView<'_>), Full> {
        self.directory.borrow_mut().find(&self.places, tag)
    }

    pub fn raise_minimum(&self, place: usize, claim: u64, least: i64) {
        self.directory.borrow_mut().raise_minimum(&self.places, place, claim, least);
    }

    pub fn claimed(&self) -> Vec<Claimed> {
        self.directory.borrow().claimed(&self.places)
    }
}

impl Memory {
    pub fn new(places: usize) -> Self {
        let marks = [PublishedMarks::new()];
        assert!(marks[0].claim(UNCLAIMED, 1));
        Self { numbers: Numbers::new(), generator: Generator::new(), marks, tags: Places::new(places) }
    }

    pub fn words(&self) -> SharedWords<'_> {
        SharedWords { numbers: &self.numbers, generator: &self.generator, marks: &self.marks }
    }

    /// Draws an id. A mark at the lease's end permits it.
    pub fn draw(&self, layout: &Layout, clock: &impl Clock, max_borrow_ms: i64) -> Option<i64> {
        let drawing = self.numbers.read(layout)?;
        let marks = self.marks[0].of(1).unwrap();
        for lane in LaneName::ALL {
            assert!(marks.publish(marks.find(lane), drawing.until_ms()));
        }
        let limits = Limits { max_borrow_ms, marks_ms: marks.both_lanes() };
        self.generator.draw(&drawing, clock, &limits, 1).ok().map(|run| run.last_id())
    }
}

/// What operators should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    Fleet(FleetNotice),
    Lease(LeaseNotice),
    Supply(SupplyNotice),
}

/// One process of a server, and what becomes of its calls.
pub trait Process {
    /// There is no answer, or the process has ended.
    type NoAnswer;

    fn layout(&self) -> &Layout;
    fn now_ms(&self) -> i64;
    fn nonce(&self) -> u64;
    fn read(&self, wanted: &Wanted) -> Result<Reading, Self::NoAnswer>;
    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, Self::NoAnswer>;
    fn report(&self, notice: Notice) -> Result<(), Self::NoAnswer>;

    fn memory(&self) -> &Memory {
        unimplemented!("its sessions share something else")
    }

    fn tags(&self) -> &Places {
        &self.memory().tags
    }

    fn datacenter(&self) -> Option<i64> {
        None
    }

    fn has_backup(&self) -> bool {
        false
    }

    fn words(&self) -> SharedWords<'_> {
        self.memory().words()
    }

    fn saves(&self, _: &Holder) -> Result<(), Self::NoAnswer> {
        Ok(())
    }

    fn claimed(&self) -> Vec<Claimed> {
        self.tags().claimed()
    }

    fn running_ms(&self) -> i64 {
        self.now_ms()
    }
}

/// A server as its process is connected to it.
pub struct Connected<'a, P>(pub &'a P);

impl<P: Process> Clock for Connected<'_, P> {
    fn now_ms(&self) -> i64 {
        self.0.now_ms()
    }
}

impl<P: Process> Store for Connected<'_, P> {
    type Error = P::NoAnswer;

    fn read(&self, wanted: &Wanted) -> Result<Reading, P::NoAnswer> {
        self.0.read(wanted)
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, P::NoAnswer> {
        self.0.swap(swap)
    }
}

impl<P: Process> Member for Connected<'_, P> {
    type End = P::NoAnswer;

    fn member(&self) -> MemberTerms {
        lease::member(self.0.layout(), self.0.has_backup())
    }

    fn nonce(&self) -> u64 {
        self.0.nonce()
    }

    fn report_fleet(&self, notice: FleetNotice) -> Result<(), P::NoAnswer> {
        self.0.report(Notice::Fleet(notice))
    }
}

impl<P: Process> LeasingServer for Connected<'_, P> {
    fn layout(&self) -> &Layout {
        self.0.layout()
    }

    fn datacenter(&self) -> Option<i64> {
        self.0.datacenter()
    }

    fn has_backup(&self) -> bool {
        self.0.has_backup()
    }

    fn words(&self) -> SharedWords<'_> {
        self.0.words()
    }

    fn saves(&self, holder: &Holder) -> Result<(), P::NoAnswer> {
        self.0.saves(holder)
    }

    fn report(&self, notice: LeaseNotice) -> Result<(), P::NoAnswer> {
        self.0.report(Notice::Lease(notice))
    }
}

impl<P: Process> SuppliedServer for Connected<'_, P> {
    fn places(&self) -> &[Place] {
        &self.0.tags().places
    }

    fn claimed(&self) -> Vec<Claimed> {
        self.0.claimed()
    }

    fn drop_minimum(&self, place: usize, claim: u64, least: i64) {
        let Places { places, directory } = self.0.tags();
        directory.borrow_mut().drop_minimum(places, place, claim, least);
    }

    fn running_ms(&self) -> i64 {
        self.0.running_ms()
    }

    fn report(&self, notice: SupplyNotice) -> Result<(), P::NoAnswer> {
        self.0.report(Notice::Supply(notice))
    }
}
