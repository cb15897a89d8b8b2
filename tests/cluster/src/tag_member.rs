//! A member of a fleet without PostgreSQL that draws dense values: the core's supply over the
//! extension's connection, with a registry of either kind.

use std::cell::RefCell;
use std::convert::Infallible;
use std::time::Instant;

use snowflake_core::fleet::exchange::{Failure, Member};
use snowflake_core::fleet::membership::{FleetNotice, Membership};
use snowflake_core::fleet::registry::{MemberTerms as Brought, Reading, Store, Swap, SwapAnswer, Wanted};
use snowflake_core::fleet::segment::{
    Claimed, Directory, Place, PlaceRefusal, SuppliedServer as Draws, Supply, SupplyNotice, ValueRun,
};
use snowflake_core::fleet::tag::Tag;
use snowflake_registry::{Registry, RegistryError, open};

use crate::registry::{Poll, config, random};
use crate::server::Server;

/// A server without PostgreSQL, whose one session draws from tags.
pub struct TagMember {
    registry: Box<dyn Registry>,
    places: [Place; 2],
    directory: RefCell<Directory>,
    supply: RefCell<Box<Supply>>,
    membership: RefCell<Membership>,
    notices: RefCell<Vec<SupplyNotice>>,
    fleet_notices: RefCell<Vec<FleetNotice>>,
    started: Instant,
}

impl TagMember {
    /// Makes a member whose registry is at an address.
    #[must_use]
    pub fn new(address: &str) -> Self {
        Self {
            registry: open(config(address), Poll),
            places: [Place::new(), Place::new()],
            directory: RefCell::new(Directory::new()),
            supply: RefCell::new(Box::new(Supply::new())),
            membership: RefCell::new(Membership::new()),
            notices: RefCell::default(),
            fleet_notices: RefCell::default(),
            started: Instant::now(),
        }
    }

    /// Makes a member whose registry is in a server.
    #[must_use]
    pub fn of(server: &Server) -> Self {
        Self::new(&server.registry_conninfo())
    }

    /// Does once what the worker does.
    ///
    /// # Errors
    ///
    /// Why not everything was reserved that is due.
    pub fn supply(&self) -> Result<(), Failure<RegistryError>> {
        self.supply.borrow_mut().supply(self, &mut self.membership.borrow_mut())
    }

    /// Gives back what is left, as the worker does at its end.
    ///
    /// # Errors
    ///
    /// Why it was not given back.
    pub fn give_back(&self) -> Result<(), Failure<RegistryError>> {
        self.supply.borrow_mut().give_back(self, &mut self.membership.borrow_mut())
    }

    /// Draws up to `count` values, after the worker has run if there is none.
    ///
    /// # Errors
    ///
    /// Why there is none.
    ///
    /// # Panics
    ///
    /// Panics if the registry does not answer.
    pub fn draw(&self, tag: &str, count: u32) -> Result<ValueRun, PlaceRefusal> {
        let tag = Tag::new(tag).expect("it is a name");
        let (_, view) = self.directory.borrow_mut().find(&self.places, tag).expect("there is a place");
        let drawn = view.draw(count).or_else(|_| {
            while let Err(failure) = self.supply() {
                // The worker comes again.
                assert_eq!(failure, Failure::Contended, "the registry answers");
            }
            view.draw(count)
        });
        drawn.map(|drawn| drawn.run)
    }

    /// Has a tag supplied from now on.
    ///
    /// # Panics
    ///
    /// Panics if it has no place left.
    pub fn claim(&self, tag: &str) {
        let tag = Tag::new(tag).expect("it is a name");
        self.directory.borrow_mut().find(&self.places, tag).expect("there is a place");
    }

    /// Whether it has begun a generation.
    pub fn has_begun_a_generation(&self) -> bool {
        self.fleet_notices.borrow().iter().any(|notice| matches!(notice, FleetNotice::Forgot(_)))
    }

    /// Whether such a notice was reported.
    pub fn has_reported(&self, is_wanted: impl Fn(&SupplyNotice) -> bool) -> bool {
        self.notices.borrow().iter().any(is_wanted)
    }
}

impl Draws for TagMember {
    fn places(&self) -> &[Place] {
        &self.places
    }

    fn claimed(&self) -> Vec<Claimed> {
        self.directory.borrow().claimed(&self.places)
    }

    fn drop_minimum(&self, place: usize, claim: u64, least: i64) {
        self.directory.borrow_mut().drop_minimum(&self.places, place, claim, least);
    }

    fn running_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).expect("a test is not that long")
    }

    fn report(&self, notice: SupplyNotice) -> Result<(), Infallible> {
        self.notices.borrow_mut().push(notice);
        Ok(())
    }
}

impl Member for TagMember {
    type End = Infallible;

    fn member(&self) -> Brought {
        Brought { layout: (1, false), range: (0, 1023) }
    }

    fn nonce(&self) -> u64 {
        random()
    }

    fn report_fleet(&self, notice: FleetNotice) -> Result<(), Infallible> {
        self.fleet_notices.borrow_mut().push(notice);
        Ok(())
    }
}

impl Store for TagMember {
    type Error = RegistryError;

    fn read(&self, wanted: &Wanted) -> Result<Reading, RegistryError> {
        self.registry.read(wanted)
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, RegistryError> {
        self.registry.swap(swap)
    }
}
