//! The steps of every exchange with the registry: read as a member of the fleet, and swap.
//!
//! A lease (`lease/holder.rs`), the supply of blocks (`segment/supply.rs`) and an operation
//! (`operate/turn.rs`) each have a loop of their own: read, decide, swap, look again. They share
//! these steps, and how they fail.
//!
//! # Where a process may end
//!
//! A process may end at any call: of the registry, of the words that sessions draw from, or of what
//! tells operators. For the protocols such a call has an error, and the turn is over: after an
//! error nothing is changed any more. On a server only the registry's calls have one, and the
//! process goes on. A simulation lets a process end anywhere.

use crate::fleet::membership::{FleetNotice, Membership, OtherFleet};
use crate::fleet::registry::{
    Fleet, MemberTerms, Reading, RecordChange, SinceIncarnation, Store, Swap, SwapAnswer, Wanted,
};

/// A server as a member of its fleet, with its connection to the registry.
pub trait Member: Store {
    /// The end of the process at a call that is not the registry's; none on a server.
    type End: Into<Self::Error>;

    /// Returns what the server brings to its fleet.
    fn member(&self) -> MemberTerms;

    /// Returns a random number that no other call returns, on no server. Two copies of one memory
    /// have the same random generator. So it also depends on the connection to the registry and on
    /// the time since boot.
    fn nonce(&self) -> u64;

    /// Reports to the operator what has become of the fleet's record.
    ///
    /// # Errors
    /// The end of the process.
    fn report_fleet(&self, notice: FleetNotice) -> Result<(), Self::End>;
}

/// Why there is no lease, or no block, or no longer one. The server draws on while it has one.
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
    /// The fleet's range has numbers that the layout has not, or none at all.
    OutsideLayout {
        /// The first and the last number of the range.
        range: (i64, i64),
        /// How many numbers the layout has for servers, from 0.
        numbers: i64,
    },
    /// The fleet's leases are too short for the layout. An operator has to make them longer.
    TooShort {
        /// How long a lease is ([`Fleet::used_lease_ms`]), in milliseconds.
        lease_ms: i64,
        /// How long it must be: ten ticks and a second, in milliseconds.
        least_ms: i64,
    },
    /// It is another fleet than the one that this life of shared memory belongs to.
    OtherFleet {
        /// This life's fleet.
        known: u128,
        /// The fleet in the registry.
        found: u128,
    },
    /// The fleet is being moved to another registry.
    Closed,
    /// The clocks are too far apart to acquire a number.
    ClockOff {
        /// What this server's clock says.
        now_ms: i64,
        /// What the registry's clock says.
        registry_ms: i64,
        /// How far apart they may be, in milliseconds. Half of the time that the call has taken
        /// does not count.
        skew_ms: i64,
    },
    /// All numbers are leased.
    NoneFree {
        /// How many there are.
        numbers: i64,
        /// How many of them a server holds that has renewed its lease lately.
        living: i64,
        /// Of the others, the number that becomes free first, and when its lease ends.
        first: Option<(i64, i64)>,
    },
    /// The registry has forgotten something, so that no number can be used before this instant.
    Frozen {
        /// The first instant at which a number can be used.
        until_ms: i64,
    },
    /// Other servers have changed the records at each try. The next call tries again.
    Contended,
}

impl<E> From<OtherFleet> for Failure<E> {
    fn from(OtherFleet { known, found }: OtherFleet) -> Self {
        Self::OtherFleet { known, found }
    }
}

/// What has become of a swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swapped {
    /// It is written, and durable, into a registry that has forgotten nothing since it was read.
    Written,
    /// Something was not as it was read, so nothing is written.
    Refused,
    /// It is written into a registry that has forgotten something since it was read.
    Forgotten,
}

/// Reads the registry. Refuses another fleet than the one that this life of the server's memory has
/// first read.
pub(crate) fn read<M: Member>(
    member: &M,
    membership: &mut Membership,
    wanted: &Wanted,
) -> Result<Reading, Failure<M::Error>> {
    let reading = member.read(wanted).map_err(Failure::Away)?;
    membership.read(&reading.fleet)?;
    Ok(reading)
}

/// Changes what was read.
pub(crate) fn swap<S: Store>(store: &S, reading: &Reading, changes: Vec<RecordChange>) -> Result<Swapped, S::Error> {
    Ok(match store.swap(&Swap::after(reading, changes))? {
        SwapAnswer::Done(after) if after.since(&reading.incarnation) == SinceIncarnation::Same => Swapped::Written,
        SwapAnswer::Done(_) => Swapped::Forgotten,
        SwapAnswer::Refused => Swapped::Refused,
    })
}

/// Writes the fleet's record, as a member that has found something out. Whatever the answer, the
/// member reads again.
pub(crate) fn write_fleet<M: Member>(member: &M, reading: &Reading, new: Fleet) -> Result<(), Failure<M::Error>> {
    let swapped = swap(member, reading, vec![RecordChange::Fleet(new)]).map_err(Failure::Away)?;
    if swapped == Swapped::Refused {
        return Ok(());
    }
    FleetNotice::of(&reading.fleet, &new).try_for_each(|notice| member.report_fleet(notice)).map_err(ended::<M>)
}

/// Returns the failure of a turn whose process has ended.
pub(crate) fn ended<M: Member>(end: M::End) -> Failure<M::Error> {
    Failure::Away(end.into())
}
