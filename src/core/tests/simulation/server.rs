//! A simulated server: a data directory (log, databases, settings), its clock, and the shared
//! memory of one run of it. Which events it meets: `world.rs`.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use snowflake_core::clock::ClockReference;
use snowflake_core::draw::generator::Generator;
use snowflake_core::draw::numbers::Numbers;
use snowflake_core::draw::published::PublishedMarks;
use snowflake_core::draw::stamp::IdStamp;
use snowflake_core::fleet::lease::Holder;
use snowflake_core::fleet::page::{PAGE_BYTES, PageStore};
use snowflake_core::id::layout::{Field, Layout};

use crate::log::{Id, Log, Settled};
use crate::tags::Tagged;

/// The most databases that a server can have.
pub const MOST_DATABASES: usize = 4;

/// The datacenter of all servers, if the layout has one.
pub const DATACENTER: i64 = 1;

/// The settings that need a restart.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub layout: Layout,
    pub worker: i64,
    pub backup: bool,
}

impl Config {
    pub fn drawing(&self) -> IdStamp {
        let given = |field, number| self.layout.max_of(field).map(|_| number);
        let worker = given(Field::Worker, self.worker);
        IdStamp::new(self.layout, worker, given(Field::Datacenter, DATACENTER), self.backup).unwrap()
    }

    /// Returns half of the layout's worker numbers.
    pub fn half(&self) -> i64 {
        self.layout.max_of(Field::Worker).map_or(0, |max| (max as i64 + 1) / 2)
    }

    /// Returns the worker numbers that the server's ids carry, computed without the library.
    pub fn workers(&self) -> Vec<i64> {
        let half = self.half();
        if self.backup { vec![self.worker, self.worker + half] } else { vec![self.worker] }
    }
}

/// What a server's backends share from a start until the next one, or until one of them crashes.
#[derive(Debug)]
pub struct Shared {
    pub generator: Generator,
    pub clocks: ClockReference,
    pub numbers: Numbers,
    /// Whether its numbers are leased, and not configured.
    pub leases: bool,
    /// Whether its registry is the other fleet's.
    pub elsewhere: bool,
    pub holder: RefCell<Holder>,
    /// Which memory this is; two copies of one memory differ. A life that goes on after a crash has
    /// the number of the one before.
    pub memory: u64,
    /// Which life this is, as its page knows it.
    pub life: u64,
    /// What proves that the holder's records are its own.
    pub secret: Cell<u128>,
    /// Whether this memory was copied, or is a copy, and how often the registry has answered since.
    pub was_copied: Cell<bool>,
    pub answers_since_copy: Cell<u32>,
    /// Under which names it has held leases.
    pub holders: RefCell<BTreeSet<u128>>,
    /// For each worker number, where the latest tick ends in which this memory has drawn.
    pub reached_ms: RefCell<BTreeMap<i64, i64>>,
    /// The end of the lease that both copies held.
    pub copied_until_ms: Cell<i64>,
    pub marks: [PublishedMarks; MOST_DATABASES],
    /// For each database, whether a reader has raised the lane to its mark, and what the mark
    /// covered when a reader looked last.
    pub reached: [Cell<bool>; MOST_DATABASES],
    pub covered: [Cell<i64>; MOST_DATABASES],
    /// For each database, the session that holds the lock on its mark, known by when it began.
    pub locks: [Cell<Option<u64>>; MOST_DATABASES],
    /// When `snowflake_advance` was last called, in events. The marks are then loaded anew.
    pub advanced: Cell<u64>,
    /// Whether this memory is gone, and with it all backends.
    pub gone: Cell<bool>,
    /// All ids that were drawn.
    pub issued: RefCell<Vec<i64>>,
    /// The greatest id after each draw, and when that draw returned, in events.
    pub greatest: RefCell<Vec<(u64, i64)>>,
    /// Ids that are not yet committed, each in its database.
    pub uncommitted: RefCell<Vec<(usize, Id)>>,
    pub tags: OnceCell<Box<Tagged>>,
}

impl Shared {
    pub fn new(generator: Generator, leases: bool, elsewhere: bool, holder: Holder, memory: u64) -> Self {
        Self {
            leases,
            elsewhere,
            holder: RefCell::new(holder),
            memory,
            life: 0,
            secret: Cell::new(memory.into()),
            was_copied: Cell::new(false),
            answers_since_copy: Cell::new(0),
            holders: RefCell::default(),
            reached_ms: RefCell::default(),
            copied_until_ms: Cell::new(i64::MIN),
            generator,
            clocks: ClockReference::new(),
            numbers: Numbers::new(),
            marks: std::array::from_fn(|_| PublishedMarks::new()),
            reached: std::array::from_fn(|_| Cell::new(false)),
            covered: std::array::from_fn(|_| Cell::new(0)),
            locks: std::array::from_fn(|_| Cell::new(None)),
            advanced: Cell::new(0),
            gone: Cell::new(false),
            issued: RefCell::default(),
            greatest: RefCell::default(),
            uncommitted: RefCell::default(),
            tags: OnceCell::new(),
        }
    }

    /// Returns what its sessions and its worker have of tags.
    pub fn tags(&self) -> &Tagged {
        self.tags.get_or_init(Box::default)
    }
}

/// What no crash of a server loses, if the server has one: its page.
#[derive(Debug, Default)]
pub struct OwnPage {
    pub bytes: Cell<Option<[u8; PAGE_BYTES]>>,
    /// The life that began with it last. Others of its server may have had configured numbers.
    pub life: RefCell<Option<Rc<Shared>>>,
}

/// A page, as one of a server's processes reaches it.
pub struct ReachedPage {
    pub page: Rc<OwnPage>,
    /// Whether the process takes its postmaster for alive.
    pub is_own: bool,
    /// What it has read before other processes have written, for the lie that there is no lock.
    pub stale: Option<[u8; PAGE_BYTES]>,
}

/// There is no page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPage;

impl PageStore for ReachedPage {
    type Error = NoPage;

    fn is_own(&self) -> Result<bool, NoPage> {
        Ok(self.is_own)
    }

    fn read(&self) -> Result<[u8; PAGE_BYTES], NoPage> {
        let bytes = self.page.bytes.get().ok_or(NoPage)?;
        Ok(self.stale.unwrap_or(bytes))
    }

    fn write(&self, bytes: &[u8; PAGE_BYTES]) -> Result<(), NoPage> {
        self.page.bytes.set(Some(*bytes));
        Ok(())
    }
}

/// A server.
#[derive(Debug)]
pub struct Server {
    pub number: usize,
    /// The server that a standby gets its log from, until it is promoted.
    pub standby_of: RefCell<Option<Rc<Server>>>,
    pub config: Cell<Config>,
    /// Whether its number is leased from the next start on.
    pub leases: Cell<bool>,
    /// Whether its registry is the other fleet's, from the next start on.
    pub elsewhere: Cell<bool>,
    /// A fingerprint of its host and port. A copy may have the same.
    pub name: u64,
    pub log: RefCell<Log>,
    /// For each database, the ids that clients have seen and that must not come again: those drawn
    /// in this data directory, and those that the mark had covered when the directory was copied.
    pub seen: RefCell<Vec<Vec<Id>>>,
    /// For each database, the greatest settled id that clients have got from this data directory,
    /// or that the directory held when it was copied.
    pub settled: [Cell<Settled>; MOST_DATABASES],
    pub shared: RefCell<Rc<Shared>>,
    /// Its page, which it shares with the orphans that the postmaster before has left.
    pub page: RefCell<Rc<OwnPage>>,
    /// Whether its postmaster was killed, and another one runs on its directory: another server
    /// here.
    pub is_orphan: Cell<bool>,
    /// Until when it does not reach the registry, by the right time.
    pub cut_off_until_ms: Cell<i64>,
    /// How far its clock is from the right time.
    pub offset_ms: Cell<i64>,
    /// The reading at which its clock stands still, if it does.
    pub stands_at_ms: Cell<Option<i64>>,
    /// The greatest reading of its clock, and whether a later reading was smaller.
    pub latest_ms: Cell<i64>,
    pub went_back: Cell<bool>,
    /// All ids that were drawn in all its runs, each with the fleet of its database.
    pub ever_issued: RefCell<Vec<(i64, i64)>>,
    /// All ids that were drawn by the servers that it has taken over from, which were dead by then.
    pub predecessors_issued: RefCell<Vec<(i64, i64)>>,
}

impl Server {
    /// Reads the clock when the right time is `time_ms`.
    pub fn now_ms(&self, time_ms: i64) -> i64 {
        let now_ms = self.stands_at_ms.get().unwrap_or(time_ms + self.offset_ms.get());
        if now_ms < self.latest_ms.get() {
            self.went_back.set(true);
        }
        self.latest_ms.set(now_ms.max(self.latest_ms.get()));
        now_ms
    }

    pub fn shared(&self) -> Rc<Shared> {
        self.shared.borrow().clone()
    }

    pub fn page(&self) -> Rc<OwnPage> {
        self.page.borrow().clone()
    }

    pub fn is_standby(&self) -> bool {
        self.standby_of.borrow().is_some()
    }

    /// Forgets the settled ids that clients have got: this is another data directory than theirs.
    pub fn settled_is_what_it_holds(&self) {
        let log = self.log.borrow();
        for (database, settled) in self.settled.iter().enumerate() {
            // One that it does not hold may be created later.
            settled.set(log.present.get(database).map(|contents| contents.settled).unwrap_or_default());
        }
    }

    /// A new count begins in a database, and readers begin anew.
    pub fn begins_anew(&self, database: usize) {
        self.settled[database].take();
        self.shared().covered[database].set(0);
    }

    pub fn databases(&self) -> usize {
        self.log.borrow().present.len()
    }
}
