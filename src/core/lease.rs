//! The lease: why no two servers of a fleet draw the same id, whatever happens to servers, disks,
//! copies, clocks and network.
//!
//! A registry (`registry.rs`) hands out **leases**: *a worker number belongs to a holder for ids
//! whose ticks lie wholly in `[from, until)`*. That is not a time to live, but a span of the ids'
//! own time, which every id carries.
//!
//! # Why it holds
//!
//! - **R1** In the registry, the leases of one number never overlap: each begins at or after the
//!   end of the one before. Every change is a compare-and-swap.
//! - **R2** A server draws an id only if the id's whole tick lies in a lease that it knows to be
//!   written. The lanes begin at `from`, and published marks end at `until` (`numbers.rs`).
//! - **R3** A **holder** never draws the same word twice (I1): it is one life of *shared memory*.
//!   It gives each of its leases a random name, which lies beside the words that it guards, and
//!   which no backup and no copy of a disk carries.
//!
//! Two equal ids would have the same number and tick, hence the same lease (R1, R2) and holder,
//! which contradicts R3. No clock, timeout or pause enters the argument: a server that sleeps for a
//! day draws at most what is left of its own span, which no other server ever gets.
//!
//! # The protocol
//!
//! ```text
//! acquire --> held --> renew, every tenth of its length; again, with the same nonce, until answered
//!               |--> refused, because the registry has forgotten --> draw on to `until`; renew what
//!               |                              ends beyond the horizon, or acquire another number
//!               |--> refused, because another server has it from `until` on --> acquire
//!               |--> refused, because a copy of this memory renews --> stop; become another holder
//!               '--> give back --> nothing held
//! ```
//!
//! **Only a yes extends what is drawn.** An answer that is lost may have been a yes, or may become
//! one when the message arrives late. So what is proposed is stored before it is sent. The same
//! record is always to be replaced with the same nonce, until it shows another one. A record that
//! shows the proposed nonce tells which nonce to compare next, and no more: what can be read may
//! not be durable.
//!
//! | rule | what it prevents |
//! |---|---|
//! | a lease begins at or after the `until` that the record shows | a clock that is behind, or two servers that start at once |
//! | a swap compares the number's record, the fleet's record and the registry's incarnation | a decision on what the registry has forgotten since, by a message that arrives late |
//! | no lease ends beyond the registry's clock + the longest lease + the skew | a forgotten lease that outlasts the freeze |
//! | in a new generation, leases of older records begin after the freeze | a lease that overlaps a forgotten one |
//! | a record of an older generation is renewed only beyond the horizon | a number that another server has taken in what was forgotten |
//! | a renewal never lowers `until` | ids that were drawn up to the old one |
//! | what is given back ends with the later lane's tick | ids that the other lane has drawn |
//! | a life of shared memory is a holder | a crash, which loses the lanes' words |
//! | each lease has a name of its own | two copies of a memory that hold different numbers, and take each other's for their own once the registry has forgotten |
//! | a record's count is greater than that of the record it replaces | a restored registry that is taken for a copy of this memory, or the reverse |
//!
//! A registry that forgets without another incarnation is noticed at the next renewal, which begins
//! a generation. Two registries that both take writes are not noticed. Of two standbys of the
//! registry that are promoted one after the other, the first must have had at least what the second
//! has: it may have leased a number anew that the second lets its old holder renew.

use crate::clock::Clock;
use crate::generator::Generator;
use crate::identity::Identity;
use crate::layout::{Field, Layout};
use crate::numbers::{Numbers, Span};
use crate::published::PublishedMarks;
use crate::registry::{Answer, Change, Fleet, Reading, Record, Registry, Since, Swap, Wanted};

/// The length of a life's first lease, in milliseconds. It is short, so that a server that crashes
/// again and again does not lock all numbers of a small layout.
pub const FIRST_LEASE_MS: i64 = 30_000;

/// The longest time between two renewals, in milliseconds.
const RENEWED_EVERY_MS: i64 = 10_000;

/// How often one call asks the registry again after a refusal, before it leaves the rest to the
/// next call.
const MOST_ROUNDS: u32 = 8;

/// How many proposals are remembered that were given up. One that arrives later, and is forgotten
/// here, would be taken for a copy's.
const WITHDRAWN: usize = 8;

/// The settings that bear on leases, the same on all servers of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long a lease is, in milliseconds; at least [`least_ms`](Self::least_ms) is used.
    pub lease_ms: i64,
    /// How far two clocks of the fleet may be apart, in milliseconds.
    pub skew_ms: i64,
    /// How far ids may run ahead of the clock, in milliseconds.
    pub max_borrow_ms: i64,
}

impl Terms {
    /// Returns the shortest lease that can be used: ten ticks, a second, and what is borrowed.
    pub fn least_ms(&self, layout: &Layout) -> i64 {
        10 * layout.unit().ms() + 1000 + self.max_borrow_ms
    }

    /// Returns the length of a lease that was renewed often enough.
    pub fn longest_ms(&self, layout: &Layout) -> i64 {
        self.lease_ms.max(self.least_ms(layout))
    }

    /// Returns the length of the first lease of a life.
    pub fn first_ms(&self, layout: &Layout) -> i64 {
        FIRST_LEASE_MS.min(self.lease_ms).max(self.least_ms(layout))
    }
}

/// What a lease takes effect on: the words that a server's sessions share.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    /// The numbers.
    pub numbers: &'a Numbers,
    /// The lanes.
    pub generator: &'a Generator,
    /// The published marks of all databases.
    pub marks: &'a [PublishedMarks],
}

/// The server that leases a number.
pub trait Server: Clock {
    /// Returns the layout of the server's ids.
    fn layout(&self) -> &Layout;

    /// Returns the datacenter of the server's ids, if the layout has that field.
    fn datacenter(&self) -> Option<i64>;

    /// Whether the server has a backup number.
    fn has_backup(&self) -> bool;

    /// Returns the words that its sessions share.
    fn words(&self) -> Words<'_>;

    /// Returns a random number that no other call returns, on no server. Two copies of one memory
    /// have the same random generator, so it also depends on the connection to the registry and on
    /// the time since boot.
    fn nonce(&self) -> u64;

    /// Reports what has happened to the operator.
    fn report(&self, notice: Notice);
}

/// What the operator should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A number was acquired.
    Acquired(Lease),
    /// The server draws with a number from now on.
    Entered(Lease),
    /// The number was given back, up to this instant.
    GivenBack(Lease),
    /// The registry has forgotten something, and a generation has begun.
    Forgot(Fleet),
    /// The registry's record is not the one that was written last.
    Older(Lease),
    /// Another server has the number, after its end here.
    Lost(Lease),
    /// A copy of this memory has renewed the lease. This server draws nothing more with it.
    Copied(Lease),
    /// Another server has a lease that overlaps this one. This server draws nothing more with it.
    Overlapped(Lease),
    /// The clocks are further apart than is allowed for; the lease is renewed all the same.
    ClockOff {
        /// How far this server's clock is ahead of the registry's, in milliseconds.
        offset_ms: i64,
    },
}

/// Why there is no lease, or no longer one. The server draws on while it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure<E> {
    /// The registry does not answer.
    Away(E),
    /// It is the registry of another layout.
    OtherLayout {
        /// That layout's fingerprint.
        layout: i64,
        /// Whether its servers have backup numbers.
        backup: bool,
    },
    /// The fleet's range has numbers that the layout has not.
    OutsideLayout {
        /// The first and the last number of the range.
        range: (i64, i64),
        /// How many numbers the layout has for servers, from 0.
        numbers: i64,
    },
    /// The fleet is being moved to another registry.
    Closed,
    /// The clocks are too far apart to acquire a number.
    ClockOff {
        /// What this server's clock says.
        now_ms: i64,
        /// What the registry's clock says.
        registry_ms: i64,
        /// How far apart they may be, in milliseconds.
        skew_ms: i64,
    },
    /// All numbers are leased.
    NoneFree {
        /// How many there are.
        numbers: i64,
        /// The number that becomes free first.
        first: i64,
        /// When its lease ends.
        at_ms: i64,
    },
    /// The registry has forgotten something, so that no number can be used before this instant.
    Frozen {
        /// The first instant at which a number can be used.
        until_ms: i64,
    },
    /// The registry has started so lately that holders may not have shown yet what it has
    /// forgotten.
    Grace {
        /// For how long this lasts, in milliseconds.
        left_ms: i64,
    },
    /// Other servers have changed the records at each try. The next call tries again.
    Contended,
}

/// A lease that this holder knows to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The worker number.
    pub worker: i64,
    /// The start of the first tick.
    pub from_ms: i64,
    /// The end of the last tick.
    pub until_ms: i64,
    /// Its random name.
    pub holder: u128,
    /// The nonce of its record.
    nonce: u64,
    /// The count in its record.
    count: u64,
    /// The generation in which it was written last.
    generation: u64,
}

/// A change of a number's record for which there is no answer yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Proposal {
    worker: i64,
    holder: u128,
    /// The nonce of the record that is to be replaced.
    was: Option<u64>,
    nonce: u64,
    count: u64,
    /// Where the lease is to end that is given back; `None` for a lease that is wanted.
    ends_ms: Option<i64>,
}

/// One life of shared memory, and what it holds. It lies in that memory, beside the words that it
/// guards, and one process at a time uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// A fingerprint of the server's host and port, to get the same number again.
    server: u64,
    /// What the server draws with.
    held: Option<Lease>,
    /// What it will draw with, because that begins later, or because what is held cannot be
    /// renewed.
    next: Option<Lease>,
    proposal: Option<Proposal>,
    /// The last changes of what is kept that were given up, but may still arrive.
    withdrawn: [Option<Proposal>; WITHDRAWN],
    /// How many changes were proposed.
    count: u64,
    /// The length of the lease that is proposed next, in milliseconds; 0 for the first length.
    length_ms: i64,
    /// Where the last tick ended when a lease was last left. Both lanes lie before it.
    left_ms: i64,
}

/// What a reading of a number's record means to the holder of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// It shows the lease, or the change that was proposed.
    Known(Record),
    /// It is older than the lease: the registry has forgotten. Holds the record if it is this
    /// holder's.
    Older(Option<Record>),
    /// Another holder has the number after the lease.
    Taken,
    /// A copy of this holder has changed it.
    Copied,
    /// Another holder's lease overlaps.
    Overlapped,
}

/// What to do about a lease.
enum Step {
    /// Propose a change.
    Propose(Proposal, Record),
    /// Read again.
    Again,
    /// Look for a number.
    Acquire,
}

/// The clocks of the server and of the registry at a reading.
#[derive(Clone, Copy)]
struct Clocks {
    /// The server's clock after the answer.
    now_ms: i64,
    /// How far it was ahead of the registry's, in the middle of the call.
    offset_ms: i64,
}

impl Holder {
    /// Makes a holder that has nothing.
    pub fn new(server: u64) -> Self {
        Self {
            server,
            held: None,
            next: None,
            proposal: None,
            withdrawn: [None; WITHDRAWN],
            count: 0,
            length_ms: 0,
            left_ms: i64::MIN,
        }
    }

    /// Returns the lease that the server draws with.
    pub fn held(&self) -> Option<Lease> {
        self.held
    }

    /// Returns the lease that it draws with later.
    pub fn next(&self) -> Option<Lease> {
        self.next
    }

    /// Returns how long to wait until the next call of [`keep`](Self::keep), in milliseconds. The
    /// caller varies it by a fifth, so that servers that have started together do not renew
    /// together.
    pub fn interval_ms(&self, terms: &Terms, layout: &Layout) -> i64 {
        (self.length(terms, layout) / 10).min(RENEWED_EVERY_MS)
    }

    fn length(&self, terms: &Terms, layout: &Layout) -> i64 {
        self.length_ms.max(terms.first_ms(layout)).min(terms.longest_ms(layout))
    }

    /// Begins to draw with the next lease, if the clock has reached it. Needs no registry.
    pub fn enter<S: Server>(&mut self, server: &S, terms: &Terms) {
        let now_ms = server.now_ms();
        let Some(next) = self.next.filter(|next| next.from_ms <= now_ms) else { return };
        // A lane that was left at the end of its tick is in the next one, which would look like a
        // clock that was set back.
        let soon_ms = self.left_ms.saturating_sub(now_ms).saturating_sub(terms.max_borrow_ms);
        if (1..=server.layout().unit().ms()).contains(&soon_ms) {
            return;
        }
        let Ok(identity) = identity(server, next.worker) else { return };
        let span = Span { identity, from_ms: next.from_ms, until_ms: next.until_ms };
        let Words { numbers, generator, marks } = server.words();
        numbers.enter(marks, generator, server.layout(), &span);
        (self.held, self.next) = (Some(next), None);
        server.report(Notice::Entered(next));
    }

    /// Renews what is held, or acquires a number, as far as that can be done now.
    ///
    /// # Errors
    /// [`Failure`]. What is held may be drawn with all the same.
    pub fn keep<R: Registry, S: Server>(
        &mut self,
        registry: &R,
        server: &S,
        terms: &Terms,
    ) -> Result<(), Failure<R::Error>> {
        self.enter(server, terms);
        self.length_ms = self.length(terms, server.layout());
        for _ in 0..MOST_ROUNDS {
            let worker = self.proposal.map(|proposal| proposal.worker).or(self.kept().map(|lease| lease.worker));
            let wanted = worker.map_or(Wanted::All, Wanted::Number);
            let (mut reading, mut clocks) = read(registry, server, wanted)?;
            if self.amend(registry, server, terms, &reading)? {
                continue;
            }
            let mut step = match (self.proposal, self.kept()) {
                (Some(proposal), _) => self.answered(server, &reading, proposal, clocks),
                (None, Some(lease)) => self.renew(registry, server, &reading, lease, clocks)?,
                (None, None) => Step::Acquire,
            };
            if matches!(step, Step::Acquire) {
                if wanted != Wanted::All {
                    (reading, clocks) = read(registry, server, Wanted::All)?;
                    if self.amend(registry, server, terms, &reading)? {
                        continue;
                    }
                }
                step = self.acquire(server, &reading, clocks)?;
            }
            let Step::Propose(proposal, record) = step else { continue };
            if self.propose(registry, server, &reading, proposal, record)? && proposal.ends_ms.is_none() {
                self.enter(server, terms);
                return Ok(());
            }
        }
        Err(Failure::Contended)
    }

    /// Gives back what is held, from the tick after the last one in which an id was drawn. Draws
    /// nothing from then on, whatever the registry answers; [`keep`](Self::keep) acquires a number
    /// again.
    ///
    /// # Errors
    /// [`Failure`]. The number stays leased then, up to its end or until the message arrives. The
    /// caller may call this again.
    pub fn give_back<R: Registry, S: Server>(&mut self, registry: &R, server: &S) -> Result<(), Failure<R::Error>> {
        let reached_ms = self.stop(server);
        self.next = None;
        if let Some(lease) = self.held.take() {
            let ends_ms = Some(reached_ms.unwrap_or(lease.from_ms).clamp(lease.from_ms, lease.until_ms));
            self.proposal = Some(match self.proposal.filter(|proposal| proposal.worker == lease.worker) {
                // A renewal may still arrive. With the same nonce, one of the two does.
                Some(renewal) => Proposal { ends_ms, ..renewal },
                None => {
                    self.new_proposal(server, lease.worker, lease.holder, Some((lease.nonce, lease.count)), ends_ms)
                }
            });
        }
        for _ in 0..MOST_ROUNDS {
            // What was given back before, without an answer, is proposed again.
            let Some(proposal) = self.proposal.filter(|proposal| proposal.ends_ms.is_some()) else { return Ok(()) };
            let (reading, clocks) = read(registry, server, Wanted::Number(proposal.worker))?;
            if reading.fleet.closed {
                return Err(Failure::Closed);
            }
            if let Step::Propose(proposal, record) = self.answered(server, &reading, proposal, clocks) {
                self.propose(registry, server, &reading, proposal, record)?;
            }
        }
        Err(Failure::Contended)
    }

    /// Stops to draw. Returns where the latest tick ends in which an id can have been drawn.
    fn stop<S: Server>(&mut self, server: &S) -> Option<i64> {
        let Words { numbers, generator, marks } = server.words();
        let reached_ms = numbers.leave(marks, generator, server.layout());
        self.left_ms = reached_ms.unwrap_or(i64::MIN);
        reached_ms
    }

    /// Returns the lease that is to be renewed.
    fn kept(&self) -> Option<Lease> {
        self.next.or(self.held)
    }

    /// Writes the fleet's record first, where that is needed. Returns whether to read again.
    fn amend<R: Registry, S: Server>(
        &self,
        registry: &R,
        server: &S,
        terms: &Terms,
        reading: &Reading,
    ) -> Result<bool, Failure<R::Error>> {
        let fleet = &reading.fleet;
        if (fleet.layout, fleet.backup) != (server.layout().fingerprint(), server.has_backup()) {
            return Err(Failure::OtherLayout { layout: fleet.layout, backup: fleet.backup });
        }
        if fleet.closed {
            return Err(Failure::Closed);
        }
        let numbers = Identity::worker_numbers(server.layout(), server.has_backup()).unwrap_or(0);
        if fleet.range.0 < 0 || fleet.range.1 >= numbers {
            return Err(Failure::OutsideLayout { range: fleet.range, numbers });
        }
        let longest_ms = terms.longest_ms(server.layout());
        let Some(new) = fleet.amended(reading, longest_ms, terms.skew_ms, server.nonce()) else { return Ok(false) };
        self.write_fleet(registry, server, reading, new)?;
        Ok(true)
    }

    fn write_fleet<R: Registry, S: Server>(
        &self,
        registry: &R,
        server: &S,
        reading: &Reading,
        new: Fleet,
    ) -> Result<(), Failure<R::Error>> {
        let swap = Swap { fleet: reading.fleet.version, incarnation: reading.incarnation, change: Change::Fleet(new) };
        let answer = registry.swap(&swap).map_err(Failure::Away)?;
        if answer != Answer::Refused && new.generation != reading.fleet.generation {
            server.report(Notice::Forgot(new));
        }
        Ok(())
    }

    /// Looks what has become of a proposal.
    fn answered<S: Server>(&mut self, server: &S, reading: &Reading, proposal: Proposal, clocks: Clocks) -> Step {
        let Proposal { worker, was, nonce, ends_ms, .. } = proposal;
        let record = reading.records.get(&worker).copied();
        if record.map(|record| record.nonce) == was {
            // It has not arrived. With the same nonce, it arrives once at most.
            let again = match (record, ends_ms) {
                (Some(record), Some(ends_ms)) => given_back(record, ends_ms),
                (Some(record), None) if record.holder == proposal.holder => {
                    self.renewed(server, reading, worker, record, clocks)
                }
                (record, None) if may_acquire::<()>(reading, clocks).is_ok() => {
                    self.free(server, reading, record, clocks).filter(|new| new.until_ms > new.from_ms)
                }
                _ => None,
            };
            return match again {
                Some(record) => Step::Propose(proposal, self.signed(reading, record, proposal, clocks)),
                None => self.withdraw(proposal),
            };
        }
        let Some(record) = record.filter(|record| record.nonce == nonce) else { return self.withdraw(proposal) };
        self.proposal = None;
        // It has arrived. That need not be durable, so it only shows what to compare next.
        for lease in [&mut self.held, &mut self.next].into_iter().flatten() {
            if (lease.worker, lease.holder) == (worker, record.holder) {
                (lease.nonce, lease.count) = (record.nonce, record.count);
            }
        }
        let new = match ends_ms {
            Some(ends_ms) => given_back(record, ends_ms),
            None => self.renewed(server, reading, worker, record, clocks),
        };
        let Some(new) = new else { return Step::Again };
        let proposal = self.new_proposal(server, worker, record.holder, Some((nonce, record.count)), ends_ms);
        Step::Propose(proposal, self.signed(reading, new, proposal, clocks))
    }

    /// Withdraws a proposal. It may still arrive, or come back when the registry forgets.
    fn withdraw(&mut self, proposal: Proposal) -> Step {
        self.proposal = None;
        if [self.held, self.next].into_iter().flatten().any(|lease| lease.worker == proposal.worker) {
            self.withdrawn.rotate_right(1);
            self.withdrawn[0] = Some(proposal);
        }
        Step::Again
    }

    /// Proposes to renew a lease, unless the record shows that this cannot or must not be done.
    fn renew<R: Registry, S: Server>(
        &mut self,
        registry: &R,
        server: &S,
        reading: &Reading,
        lease: Lease,
        clocks: Clocks,
    ) -> Result<Step, Failure<R::Error>> {
        let fleet = &reading.fleet;
        let record = reading.records.get(&lease.worker);
        let has_arrived = |record: &&Record| {
            self.withdrawn.iter().flatten().any(|old| (old.worker, old.nonce) == (lease.worker, record.nonce))
        };
        let found = record.filter(has_arrived).map_or_else(|| lease.find(record), |record| Found::Known(*record));
        let record = match found {
            Found::Known(record) => Some(record),
            Found::Older(record) => {
                server.report(Notice::Older(lease));
                if fleet.generation <= lease.generation {
                    let new = fleet.begin_generation(reading.incarnation, reading.now_ms, server.nonce());
                    self.write_fleet(registry, server, reading, new)?;
                    return Ok(Step::Again);
                }
                record
            }
            Found::Taken => {
                server.report(Notice::Lost(lease));
                self.drop_lease(lease);
                return Ok(Step::Again);
            }
            found @ (Found::Copied | Found::Overlapped) => {
                self.stop(server);
                (self.held, self.next, self.withdrawn) = (None, None, [None; WITHDRAWN]);
                if found == Found::Copied {
                    server.report(Notice::Copied(lease));
                } else {
                    server.report(Notice::Overlapped(lease));
                    if fleet.generation <= lease.generation {
                        let new = fleet.begin_generation(reading.incarnation, reading.now_ms, server.nonce());
                        self.write_fleet(registry, server, reading, new)?;
                    }
                }
                return Ok(Step::Again);
            }
        };
        if clocks.offset_ms.unsigned_abs() > fleet.skew_ms as u64 {
            server.report(Notice::ClockOff { offset_ms: clocks.offset_ms });
        }
        let renewed =
            record.and_then(|record| Some((record, self.renewed(server, reading, lease.worker, record, clocks)?)));
        Ok(match renewed {
            Some((record, new)) => {
                let proposal =
                    self.new_proposal(server, lease.worker, record.holder, Some((record.nonce, record.count)), None);
                Step::Propose(proposal, self.signed(reading, new, proposal, clocks))
            }
            None => {
                // Another number comes next. What is held is drawn with up to its end.
                self.next = None;
                Step::Acquire
            }
        })
    }

    fn drop_lease(&mut self, lease: Lease) {
        for kept in [&mut self.held, &mut self.next] {
            if *kept == Some(lease) {
                *kept = None;
            }
        }
    }

    /// Returns a record of this holder as it is to be renewed; `None` if it may have changed hands
    /// in what the registry has forgotten. It never ends before what is known of the lease.
    fn renewed<S: Server>(
        &self,
        server: &S,
        reading: &Reading,
        worker: i64,
        record: Record,
        clocks: Clocks,
    ) -> Option<Record> {
        let fleet = &reading.fleet;
        if record.generation != fleet.generation && record.until_ms <= fleet.horizon_ms {
            return None;
        }
        let is_known = |lease: &Lease| (lease.worker, lease.from_ms) == (worker, record.from_ms);
        let known_ms = [self.held, self.next].into_iter().flatten().filter(is_known).map(|lease| lease.until_ms).max();
        let until_ms = record.until_ms.max(self.end_ms(server, reading, clocks)).max(known_ms.unwrap_or(i64::MIN));
        Some(Record { until_ms, ..record })
    }

    /// Returns where a lease ends that is written now.
    fn end_ms<S: Server>(&self, server: &S, reading: &Reading, clocks: Clocks) -> i64 {
        let wanted_ms = clocks.now_ms.saturating_add(self.length_ms);
        start_of_tick(server.layout(), wanted_ms.min(reading.fleet.cap_ms(reading.now_ms)))
    }

    /// Returns the record of a lease of a number that is free, perhaps from a later instant on;
    /// `None` if it is not free.
    fn free<S: Server>(&self, server: &S, reading: &Reading, record: Option<Record>, clocks: Clocks) -> Option<Record> {
        let (fleet, layout) = (&reading.fleet, server.layout());
        if record.is_some_and(|record| record.until_ms > clocks.now_ms) {
            return None;
        }
        let is_older = record.is_none_or(|record| record.generation < fleet.generation);
        let freeze_ms =
            if is_older { start_of_tick(layout, fleet.freeze_ms + layout.unit().ms() - 1) } else { i64::MIN };
        let from_ms =
            start_of_tick(layout, clocks.now_ms).max(record.map_or(i64::MIN, |record| record.until_ms)).max(freeze_ms);
        Some(Record {
            holder: 0,
            nonce: 0,
            count: 0,
            server: self.server,
            from_ms,
            until_ms: self.end_ms(server, reading, clocks),
            generation: fleet.generation,
            renewed_ms: 0,
            offset_ms: 0,
        })
    }

    /// Proposes to lease a number that is free: one that can be used soonest; among these the one
    /// that this server had last, else any that was never used, else the one that is free for the
    /// longest time.
    fn acquire<S: Server, E>(&mut self, server: &S, reading: &Reading, clocks: Clocks) -> Result<Step, Failure<E>> {
        let fleet = &reading.fleet;
        may_acquire(reading, clocks)?;
        let (first, last) = fleet.range;
        let used = || reading.records.range(first..=last).map(|(worker, record)| (*worker, *record));
        let of_used = used().filter_map(|(worker, record)| {
            let rank = if record.server == self.server { i64::MIN } else { record.until_ms };
            Some((worker, Some(record), rank, self.free(server, reading, Some(record), clocks)?))
        });
        let of_unused = self
            .any_unused(server, reading)
            .and_then(|worker| Some((worker, None, i64::MIN + 1, self.free(server, reading, None, clocks)?)));
        let Some((worker, record, _, new)) =
            of_used.chain(of_unused).min_by_key(|(_, _, rank, new)| (new.from_ms, *rank))
        else {
            let numbers = last - first + 1;
            let soonest = used().min_by_key(|(_, record)| record.until_ms);
            let (first, at_ms) = soonest.map_or((first, i64::MAX), |(worker, record)| (worker, record.until_ms));
            return Err(Failure::NoneFree { numbers, first, at_ms });
        };
        if new.until_ms <= new.from_ms {
            return Err(Failure::Frozen { until_ms: new.from_ms });
        }
        let proposal =
            self.new_proposal(server, worker, new_id(server), record.map(|record| (record.nonce, record.count)), None);
        Ok(Step::Propose(proposal, self.signed(reading, new, proposal, clocks)))
    }

    /// Returns any number that has no record. (If all starters wanted the same one, a thousand of
    /// them would take a thousand rounds.)
    fn any_unused<S: Server>(&self, server: &S, reading: &Reading) -> Option<i64> {
        let (first, last) = reading.fleet.range;
        let used = reading.records.range(first..=last);
        let unused = last - first + 1 - used.clone().count() as i64;
        if unused <= 0 {
            return None;
        }
        let nth = (server.nonce() % unused as u64) as i64;
        // Each used number at or below the candidate moves it one up.
        Some(used.fold(first + nth, |candidate, (worker, _)| candidate + i64::from(*worker <= candidate)))
    }

    /// Makes a proposal to replace a record that has this nonce and this count. Its own count is
    /// greater than both this one and all before: a copy of this memory has counted for itself.
    fn new_proposal<S: Server>(
        &mut self,
        server: &S,
        worker: i64,
        holder: u128,
        replaced: Option<(u64, u64)>,
        ends_ms: Option<i64>,
    ) -> Proposal {
        let was = replaced.map(|(nonce, _)| nonce);
        if let Some(old) = self.withdrawn.iter().flatten().find(|old| (old.worker, old.was) == (worker, was)) {
            return Proposal { holder, ends_ms, ..*old };
        }
        self.count = self.count.max(replaced.map_or(0, |(_, count)| count)) + 1;
        Proposal { worker, holder, was, nonce: server.nonce(), count: self.count, ends_ms }
    }

    /// Returns a record as it is to be written.
    fn signed(&self, reading: &Reading, record: Record, proposal: Proposal, clocks: Clocks) -> Record {
        let Proposal { nonce, count, .. } = proposal;
        // What is given back keeps its generation: in a newer one it would not be frozen.
        let (holder, generation) = match proposal.ends_ms {
            Some(_) => (record.holder, record.generation),
            None => (proposal.holder, reading.fleet.generation),
        };
        let (renewed_ms, offset_ms) = (reading.now_ms, clocks.offset_ms);
        Record { holder, nonce, count, generation, renewed_ms, offset_ms, server: self.server, ..record }
    }

    /// Sends a proposal. Returns whether it is known to be written.
    fn propose<R: Registry, S: Server>(
        &mut self,
        registry: &R,
        server: &S,
        reading: &Reading,
        proposal: Proposal,
        record: Record,
    ) -> Result<bool, Failure<R::Error>> {
        // Before it is sent: the process may end before the answer comes.
        self.proposal = Some(proposal);
        let Proposal { worker, holder, was, nonce, count, ends_ms } = proposal;
        let change = Change::Number { worker, was, record };
        let swap = Swap { fleet: reading.fleet.version, incarnation: reading.incarnation, change };
        match registry.swap(&swap).map_err(Failure::Away)? {
            Answer::Done(incarnation) if incarnation.since(&reading.incarnation) == Since::Same => {}
            // It was written into a store that has forgotten something since it was read.
            Answer::Done(_) | Answer::Refused => return Ok(false),
        }
        self.proposal = None;
        let Record { from_ms, until_ms, generation, .. } = record;
        let lease = Lease { worker, from_ms, until_ms, holder, nonce, count, generation };
        if ends_ms.is_some() {
            server.report(Notice::GivenBack(lease));
            return Ok(true);
        }
        let is_same = |kept: &Lease| (kept.worker, kept.from_ms) == (worker, from_ms);
        self.length_ms = self.length_ms.saturating_mul(2);
        if self.held.as_ref().is_some_and(is_same) {
            self.held = Some(lease);
            server.words().numbers.extend(until_ms);
        } else {
            if !self.next.as_ref().is_some_and(is_same) {
                server.report(Notice::Acquired(lease));
            }
            self.next = Some(lease);
        }
        Ok(true)
    }
}

impl Lease {
    /// Compares what its holder knows of a lease with the number's record.
    fn find(&self, record: Option<&Record>) -> Found {
        match record {
            None => Found::Older(None),
            Some(record) if record.nonce == self.nonce => Found::Known(*record),
            Some(record) if record.holder == self.holder && record.count < self.count => Found::Older(Some(*record)),
            Some(record) if record.holder == self.holder => Found::Copied,
            // It ended before this lease began, or it is this number's lease before this one, as it
            // was before it was given back.
            Some(record)
                if record.until_ms <= self.from_ms || record.from_ms < self.from_ms && record.count < self.count =>
            {
                Found::Older(None)
            }
            Some(record) if record.from_ms >= self.until_ms => Found::Taken,
            Some(_) => Found::Overlapped,
        }
    }
}

/// Checks whether a number may be acquired now.
fn may_acquire<E>(reading: &Reading, clocks: Clocks) -> Result<(), Failure<E>> {
    let fleet = &reading.fleet;
    let (now_ms, registry_ms, skew_ms) = (clocks.now_ms, reading.now_ms, fleet.skew_ms);
    if now_ms.abs_diff(registry_ms) > skew_ms as u64 {
        return Err(Failure::ClockOff { now_ms, registry_ms, skew_ms });
    }
    match reading.up_ms.map(|up_ms| fleet.grace_ms - up_ms).filter(|left_ms| *left_ms > 0) {
        Some(left_ms) => Err(Failure::Grace { left_ms }),
        None => Ok(()),
    }
}

/// Returns a record as it is to be given back; `None` if it ends no later anyway.
fn given_back(record: Record, ends_ms: i64) -> Option<Record> {
    let until_ms = ends_ms.max(record.from_ms);
    (until_ms < record.until_ms).then_some(Record { until_ms, ..record })
}

/// Reads the registry and both clocks.
fn read<R: Registry, S: Server>(
    registry: &R,
    server: &S,
    wanted: Wanted,
) -> Result<(Reading, Clocks), Failure<R::Error>> {
    let before_ms = server.now_ms();
    let reading = registry.read(wanted).map_err(Failure::Away)?;
    let now_ms = server.now_ms();
    let offset_ms = before_ms.midpoint(now_ms).saturating_sub(reading.now_ms);
    Ok((reading, Clocks { now_ms, offset_ms }))
}

fn new_id<S: Server>(server: &S) -> u128 {
    u128::from(server.nonce()) << 64 | u128::from(server.nonce())
}

fn identity<S: Server>(server: &S, worker: i64) -> Result<Identity, crate::id::IdError> {
    let worker = server.layout().max_of(Field::Worker).map(|_| worker);
    Identity::new(server.layout(), worker, server.datacenter(), server.has_backup())
}

/// Returns the start of the tick that holds `ms`; the epoch for an earlier instant.
fn start_of_tick(layout: &Layout, ms: i64) -> i64 {
    let tick = u64::try_from(layout.tick_at(ms)).unwrap_or(0);
    layout.start_of_ms(tick.min(layout.last_tick() + 1))
}
