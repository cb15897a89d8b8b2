//! The lease: why no two servers of a fleet draw the same id, whatever happens to servers, disks,
//! copies, clocks and network.
//!
//! A registry (`registry.rs`) hands out **leases**: *a worker number belongs to a holder for ids
//! whose ticks lie wholly in `[from, until)`*. That is not a time to live, but a span of the ids'
//! own time, which every id carries.
//!
//! This file has the reasons, and what the protocol shares with its server: settings, words,
//! notices. `lease/decisions.rs` decides what a record is to become. `lease/holder.rs` is the life
//! of one holder: what it keeps, and what a process does with it.
//!
//! # Why it holds
//!
//! - **R1** In the registry, the leases of one number never overlap: each begins at or after the
//!   end of the one before. Every change is a compare-and-swap.
//! - **R2** A server draws an id only if the id's whole tick lies in a lease that it knows to be
//!   written. The lanes begin at `from`, and published marks end at `until` (`numbers.rs`).
//! - **R3** A **holder** never draws the same word twice (I1): it is one life of *shared memory*,
//!   or several, one after the other, of which each begins where the one before may have ended
//!   (`page.rs`). It gives each of its leases a random name. The name lies beside the words that it
//!   guards, and in this machine's memory alone, so no backup and no copy of a disk carries it.
//!
//! Two equal ids would have the same number and tick, so the same lease (R1, R2) and holder,
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
//! **A server draws longer only after the registry has answered that this is written.** An answer
//! that is lost may have said so, or the message may arrive late. So what is proposed is stored
//! before it is sent. The same record is always to be replaced with the same nonce, until it shows
//! another one. A record that shows the proposed nonce tells which nonce to compare next, and no
//! more: what can be read may not be durable.
//!
//! | rule | what it prevents |
//! |---|---|
//! | a lease begins at or after the `until` that the record shows | a clock that is behind, or two servers that start at once |
//! | a swap compares the number's record, the fleet's record and the registry's incarnation | a decision on what the registry has forgotten since, by a message that arrives late |
//! | a lease is at most as long from the server's clock as the limit in the fleet's record, and this clock counts as at most the skew ahead of the registry's | a forgotten lease that outlasts the freeze |
//! | an operator raises a limit first, and uses it when no failover can forget the raise | a longer lease that is forgotten together with the raise, so that the freeze is too short |
//! | a number is free if its record ends before that clock | a taker that the horizon does not allow for |
//! | in a new generation, leases of older records begin after the freeze | a lease that overlaps a forgotten one |
//! | a record of an older generation is renewed only beyond the horizon | a number that another server has taken in what was forgotten |
//! | a renewal never lowers `until` | ids that were drawn up to the old one |
//! | what is given back ends with the later lane's tick | ids that the other lane has drawn |
//! | a life of shared memory is a holder, or goes on with one above every mark that was published | a crash, which loses the lanes' words |
//! | a lease is left, and given back, only after the registry was read | a return without an answer, after which a server has no number |
//! | each lease has a name of its own | two copies of a memory that hold different numbers, and take each other's for their own once the registry has forgotten |
//! | a record's count is greater than that of the record it replaces | a restored registry that is taken for a copy of this memory, or the reverse |
//!
//! # What is not noticed
//!
//! - A registry that forgets and shows the same incarnation, until the next renewal, which begins a
//!   generation. A restored snapshot of etcd shows another one only while its counts are less than
//!   those noted in the fleet's record in it. So one that is restored twice, or goes through
//!   elections and changes of members before a server reads it, may not show it.
//! - Two registries that both take writes.
//! - Of two standbys of the registry that are promoted one after the other, the first must have had
//!   at least what the second has. It may have leased a number again that the second lets its old
//!   holder renew. Both may have the same timeline, so a message that was sent to the first must
//!   not reach the second.
//! - A copy of a running server's memory, until one of the two renews the lease that both hold. If
//!   the registry has forgotten that lease by then, neither notices, and both draw up to its end.
//!   What one of the two gives back, the other draws with until it asks the registry, and longer if
//!   the registry has forgotten that. Meanwhile another holder may lease the number.
//! - That an operator has deleted a number's record, if the registry forgets that. The record may
//!   have a greater count than a lease of the number that was written since, or than its own holder
//!   remembers. A holder that finds it takes it for another server's, or for a copy's, and becomes
//!   another holder.
//! - That a database changes its fleet, which an operator accepts: leases of two fleets overlap.
//!   The mark keeps the ids of that database apart (`mark.rs`).

mod decisions;
mod holder;

pub use holder::Holder;

use crate::clock::Clock;
use crate::draw::generator::Generator;
use crate::draw::numbers::{NextNumbers, Numbers};
use crate::draw::published::PublishedMarks;
use crate::fleet::bytes::bytes;
use crate::fleet::exchange::Member;
use crate::fleet::registry::MemberTerms;
use crate::id::identity::Identity;
use crate::id::layout::Layout;

/// The length of a life's first lease, in milliseconds. It is short, so that a server that crashes
/// again and again does not lock all numbers of a small layout.
pub const FIRST_LEASE_MS: i64 = 30_000;

/// The settings of a server that bear on its leases. How long these are, and how far clocks may be
/// apart, is the fleet's (`registry.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTerms {
    /// How far ids may run ahead of the clock, in milliseconds.
    pub max_borrow_ms: i64,
}

impl LeaseTerms {
    /// Returns the shortest lease with which all of that can be borrowed: ten ticks, a second, and
    /// what is borrowed.
    pub fn least_ms(&self, layout: &Layout) -> i64 {
        least_ms(layout).saturating_add(self.max_borrow_ms)
    }

    /// Returns the length of the first lease of a life, where the fleet's leases are `lease_ms`
    /// long. Never more than that, however far ids may run ahead: a limit that was raised would be
    /// used at once.
    pub fn first_ms(&self, lease_ms: i64, layout: &Layout) -> i64 {
        FIRST_LEASE_MS.max(self.least_ms(layout)).min(lease_ms)
    }
}

/// Returns the shortest lease that is of any use: ten ticks, and a second.
fn least_ms(layout: &Layout) -> i64 {
    10 * layout.unit().ms() + 1000
}

/// What a lease takes effect on: the words that a server's sessions share.
#[derive(Debug, Clone, Copy)]
pub struct SharedWords<'a> {
    /// The numbers.
    pub numbers: &'a Numbers,
    /// The lanes.
    pub generator: &'a Generator,
    /// The published marks of all databases.
    pub marks: &'a [PublishedMarks],
}

/// The server that leases a number.
pub trait LeasingServer: Clock + Member {
    /// Returns the layout of the server's ids.
    fn layout(&self) -> &Layout;

    /// Returns the datacenter of the server's ids, if the layout has that field.
    fn datacenter(&self) -> Option<i64>;

    /// Whether the server has a backup number.
    fn has_backup(&self) -> bool;

    /// Returns the words that its sessions share.
    fn words(&self) -> SharedWords<'_>;

    /// Takes what the holder has become, before each call at which the process may end. The next
    /// process goes on with that. By default nothing is done: the holder lies in shared memory.
    ///
    /// # Errors
    /// The end of the process.
    fn saves(&self, _: &Holder) -> Result<(), Self::End> {
        Ok(())
    }

    /// Lets sessions draw with the same numbers up to `until_ms` ([`Numbers::extend`]).
    ///
    /// # Errors
    /// The end of the process.
    fn extend(&self, until_ms: i64) -> Result<(), Self::End> {
        self.words().numbers.extend(until_ms);
        Ok(())
    }

    /// Lets sessions draw with these numbers ([`Numbers::enter`]).
    ///
    /// # Errors
    /// The end of the process.
    fn enter(&self, span: &NextNumbers) -> Result<(), Self::End> {
        let SharedWords { numbers, generator, marks } = self.words();
        numbers.enter(marks, generator, self.layout(), span);
        Ok(())
    }

    /// Lets sessions draw with no numbers ([`Numbers::leave`]).
    ///
    /// # Errors
    /// The end of the process.
    fn leave(&self) -> Result<Option<i64>, Self::End> {
        let SharedWords { numbers, generator, marks } = self.words();
        Ok(numbers.leave(marks, generator, self.layout()))
    }

    /// Reports what has happened to the operator.
    ///
    /// # Errors
    /// The end of the process.
    fn report(&self, notice: LeaseNotice) -> Result<(), Self::End>;
}

/// What the operator should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseNotice {
    /// A number was acquired.
    Acquired(Lease),
    /// The server draws with a number from now on.
    Entered(Lease),
    /// The number was given back, up to this instant.
    GivenBack(Lease),
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

/// A time in which a server draws nothing, because its lease ends before it can use another number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Where the lease ends; `None` if there is none, or none any more.
    pub from_ms: Option<i64>,
    /// The first instant at which a number can be used.
    pub until_ms: i64,
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
    /// Where that generation's freeze ends.
    freeze_ms: i64,
}

bytes!(Lease {
    worker: i64,
    from_ms: i64,
    until_ms: i64,
    holder: u128,
    nonce: u64,
    count: u64,
    generation: u64,
    freeze_ms: i64,
});

/// Returns what a server brings to its fleet.
pub fn member(layout: &Layout, has_backup: bool) -> MemberTerms {
    MemberTerms {
        layout: (layout.fingerprint(), has_backup),
        range: (0, Identity::worker_numbers(layout, has_backup).unwrap_or(0) - 1),
    }
}
