//! One life of shared memory as the holder of leases: which calls it makes, and what it keeps.
//!
//! A [`Holder`] lies in shared memory, beside the words that it guards. One process at a time uses
//! it, which may end between any two statements. So the order of the statements counts: what is to
//! be sent is kept before it is sent, and what is learnt is kept before the proposal is dropped.
//! The next process repairs the rest (`Holder::repair`). A number whose lease was cut off so may
//! stay leased up to its end.

use super::decisions::{Basis, Clocks, FoundLease, RENEWED_EVERY_MS, given_back};
use super::{Failure, Gap, Lease, LeaseNotice, LeaseTerms, LeasingServer, SharedWords, least_ms};
use crate::identity::Identity;
use crate::layout::{Field, Layout};
use crate::numbers::Span;
use crate::pace::MOST_ROUNDS;
use crate::registry::{
    Change, DEFAULT_LEASE_MS, Fleet, FleetLimits, MemberTerms, NumberRecord, Reading, Registry, SinceIncarnation, Swap,
    SwapAnswer, Wanted,
};

/// A change of a number's record for which there is no answer yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Proposal {
    worker: i64,
    holder: u128,
    /// The nonce of the record that is to be replaced.
    was: Option<u64>,
    nonce: u64,
    count: u64,
    /// Where the lease is to end that is given back, or where it begins if that is later; `None`
    /// for a lease that is wanted.
    ends_ms: Option<i64>,
}

/// One life of shared memory, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// A fingerprint of the server's host and port, to get the same number again.
    server: u64,
    /// What the server draws with.
    held: Option<Lease>,
    /// What it will draw with, because that begins later, or because what is held cannot be
    /// renewed.
    next: Option<Lease>,
    /// The change that would give a lease, or renew one.
    proposal: Option<Proposal>,
    /// The changes that give back what was held, what was to be held next, and what was asked for
    /// without an answer.
    returned: [Option<Proposal>; 3],
    /// Which fleet this life belongs to, once it has read a registry.
    fleet: Option<u128>,
    /// How many changes were proposed.
    count: u64,
    /// The length of the lease that is proposed next, in milliseconds; 0 for the first length.
    length_ms: i64,
    /// How long leases are, as the fleet's record said last, in milliseconds.
    lease_ms: i64,
    /// The greatest limits that the fleet's record has had.
    limits: FleetLimits,
    /// Where the last tick ended when a lease was last left. Both lanes lie before it.
    left_ms: i64,
    /// Before which instant no number can be used, if the registry has said so since the lease was
    /// renewed or acquired last.
    frozen_ms: Option<i64>,
}

/// What to do about a number.
enum NextStep {
    /// Propose a change.
    Propose(Proposal, NumberRecord),
    /// Read again.
    Again,
    /// Look for a number.
    Acquire,
}

impl Holder {
    /// Makes a holder that has nothing.
    pub fn new(server: u64) -> Self {
        Self {
            server,
            held: None,
            next: None,
            proposal: None,
            returned: [None; 3],
            fleet: None,
            count: 0,
            length_ms: 0,
            lease_ms: DEFAULT_LEASE_MS,
            limits: FleetLimits::default(),
            left_ms: i64::MIN,
            frozen_ms: None,
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

    /// Returns the time in which the server will draw nothing, or draws nothing now, as far as is
    /// known: what is held is not renewed, and ends before anything else begins. That
    /// [`keep`](Self::keep) succeeds does not exclude it, because it may have renewed the next
    /// lease only.
    pub fn gap(&self) -> Option<Gap> {
        let until_ms = self.next.map(|next| next.from_ms).or(self.frozen_ms)?;
        let from_ms = self.held.map(|held| held.until_ms);
        from_ms.is_none_or(|from_ms| from_ms < until_ms).then_some(Gap { from_ms, until_ms })
    }

    /// Returns how long to wait until the next call of [`keep`](Self::keep), in milliseconds. The
    /// caller varies it by a fifth, so that servers that have started together do not renew
    /// together. It waits no longer than [`enters_in_ms`](Self::enters_in_ms) says.
    pub fn interval_ms(&self, terms: &LeaseTerms, layout: &Layout) -> i64 {
        (self.length(terms, layout) / 10).min(RENEWED_EVERY_MS)
    }

    /// Returns in how many milliseconds [`enter`](Self::enter) will begin to draw with the next
    /// lease, if there is one; 0 for now. The caller must not vary this.
    pub fn enters_in_ms<S: LeasingServer>(&self, server: &S, terms: &LeaseTerms) -> Option<i64> {
        let next = self.next?;
        identity(server, next.worker)?;
        let now_ms = server.now_ms();
        let begins_in_ms = next.from_ms.saturating_sub(now_ms).max(0);
        // A lane that was left at the end of its tick is in the next one, which would look like a
        // clock that was set back.
        let left_in_ms = self.left_ms.saturating_sub(now_ms).saturating_sub(terms.max_borrow_ms);
        let is_near = (1..=server.layout().unit().ms()).contains(&left_in_ms);
        Some(if is_near { begins_in_ms.max(left_in_ms) } else { begins_in_ms })
    }

    fn length(&self, terms: &LeaseTerms, layout: &Layout) -> i64 {
        self.length_ms.max(terms.first_ms(self.lease_ms, layout)).min(self.lease_ms)
    }

    /// Begins to draw with the next lease, if the clock has reached it. Needs no registry.
    pub fn enter<S: LeasingServer>(&mut self, server: &S, terms: &LeaseTerms) {
        self.repair(server);
        if self.enters_in_ms(server, terms) != Some(0) {
            return;
        }
        let identity = |next: Lease| Some((next, identity(server, next.worker)?, self.fleet?));
        let Some((next, identity, uuid)) = self.next.and_then(identity) else { return };
        let span = Span { identity, from_ms: next.from_ms, until_ms: next.until_ms, fleet: Fleet::code(uuid) };
        // What is held and next at once is being entered.
        self.held = Some(next);
        let SharedWords { numbers, generator, marks } = server.words();
        numbers.enter(marks, generator, server.layout(), &span);
        self.next = None;
        server.report(LeaseNotice::Entered(next));
    }

    /// Renews what is held, or acquires a number, as far as that can be done now. What is acquired
    /// may begin later than what is held ends: [`gap`](Self::gap).
    ///
    /// # Errors
    /// [`Failure`]. What is held may be drawn with all the same.
    pub fn keep<R: Registry, S: LeasingServer>(
        &mut self,
        registry: &R,
        server: &S,
        terms: &LeaseTerms,
    ) -> Result<(), Failure<R::Error>> {
        let kept = self.renew_or_acquire(registry, server, terms);
        self.frozen_ms = match &kept {
            Err(Failure::Frozen { until_ms }) => Some(*until_ms),
            Ok(()) | Err(Failure::OtherFleet { .. }) => None,
            // What it has said last is still true.
            Err(_) => self.frozen_ms,
        };
        kept
    }

    fn renew_or_acquire<R: Registry, S: LeasingServer>(
        &mut self,
        registry: &R,
        server: &S,
        terms: &LeaseTerms,
    ) -> Result<(), Failure<R::Error>> {
        self.enter(server, terms);
        for _ in 0..MOST_ROUNDS {
            let proposal = self.first_proposal();
            let worker = proposal.map(|proposal| proposal.worker).or(self.kept().map(|lease| lease.worker));
            let wanted = worker.map_or(Wanted::All, Wanted::Number);
            let (mut reading, mut clocks) = read(registry, server, wanted)?;
            self.recognize(&reading)?;
            if self.amend(registry, server, terms, &reading)? {
                continue;
            }
            let basis = self.basis(server, &reading, clocks);
            let mut step = proposal.map_or(NextStep::Again, |proposal| self.answered(server, &basis, proposal));
            if matches!(step, NextStep::Again) && self.first_proposal().is_none() {
                // By the same reading: what is read next may have forgotten why the proposal was
                // dropped, and show it.
                step = match self.kept() {
                    None => NextStep::Acquire,
                    Some(lease) if worker == Some(lease.worker) => {
                        self.renew(registry, server, &reading, clocks, lease)?
                    }
                    Some(_) => NextStep::Again,
                };
            }
            if matches!(step, NextStep::Acquire) {
                if wanted != Wanted::All {
                    (reading, clocks) = read(registry, server, Wanted::All)?;
                    self.recognize(&reading)?;
                    if self.amend(registry, server, terms, &reading)? {
                        continue;
                    }
                }
                let basis = self.basis(server, &reading, clocks);
                let (worker, record, new) = basis.choose(server)?;
                let replaced = record.map(|record| (record.nonce, record.count));
                let proposal = self.new_proposal(server, worker, new_name(server), replaced, None);
                step = NextStep::Propose(proposal, signed(new, proposal, &basis));
            }
            let NextStep::Propose(proposal, record) = step else { continue };
            if self.propose(registry, server, &reading, proposal, record)? && proposal.ends_ms.is_none() {
                self.enter(server, terms);
                return Ok(());
            }
        }
        Err(Failure::Contended)
    }

    /// Gives back all that is held, will be held, or was asked for without an answer; what is held
    /// from the tick after the last one in which an id was drawn. Draws nothing from then on,
    /// whatever the registry answers; [`keep`](Self::keep) acquires a number again.
    ///
    /// # Errors
    /// [`Failure`]. Up to three numbers stay leased then, each up to its end or until the message
    /// arrives: what was held, what was to be held next, and what was asked for, if the request
    /// has arrived or will. The caller may call this again, and `keep` does the rest first.
    pub fn give_back<R: Registry, S: LeasingServer>(
        &mut self,
        registry: &R,
        server: &S,
    ) -> Result<(), Failure<R::Error>> {
        self.repair(server);
        let reached_ms = self.stop(server).unwrap_or(i64::MIN);
        self.plan_return(server, reached_ms);
        (self.held, self.next, self.proposal) = (None, None, None);
        for _ in 0..MOST_ROUNDS {
            let Some(proposal) = self.first_proposal() else { return Ok(()) };
            let (reading, clocks) = read(registry, server, Wanted::Number(proposal.worker))?;
            self.recognize(&reading)?;
            if reading.fleet.closed {
                return Err(Failure::Closed);
            }
            let basis = Basis { skew_ms: reading.fleet.skew_ms, ..self.basis(server, &reading, clocks) };
            if let NextStep::Propose(proposal, record) = self.answered(server, &basis, proposal) {
                self.propose(registry, server, &reading, proposal, record)?;
            }
        }
        if self.first_proposal().is_none() { Ok(()) } else { Err(Failure::Contended) }
    }

    /// Notes what is to be given back, before it is dropped. Ids may have been drawn with all
    /// leases up to `reached_ms`: the next one may have been entered just before.
    fn plan_return<S: LeasingServer>(&mut self, server: &S, reached_ms: i64) {
        // If both are of one number, the next one has replaced the record of the one before.
        let held = self.held.filter(|held| self.next.is_none_or(|next| next.worker != held.worker));
        for lease in [held, self.next].into_iter().flatten() {
            let ends_ms = Some(reached_ms.min(lease.until_ms).max(lease.from_ms));
            let proposal = match self.proposal.filter(|proposal| proposal.worker == lease.worker) {
                // A renewal may still arrive. With the same nonce, one of the two does.
                Some(renewal) => Proposal { ends_ms, ..renewal },
                None => {
                    self.new_proposal(server, lease.worker, lease.holder, Some((lease.nonce, lease.count)), ends_ms)
                }
            };
            self.add_return(proposal);
        }
        if let Some(asked) = self.proposal {
            self.add_return(Proposal { ends_ms: Some(i64::MIN), ..asked });
        }
    }

    /// Adds what is to be given back, unless that is noted for the number.
    fn add_return(&mut self, proposal: Proposal) {
        if self.returned.iter().flatten().all(|noted| noted.worker != proposal.worker)
            && let Some(place) = self.returned.iter_mut().find(|place| place.is_none())
        {
            *place = Some(proposal);
        }
    }

    /// Returns the proposal that is to be answered first. What is given back comes first, because
    /// its number may be the one that is free then.
    fn first_proposal(&self) -> Option<Proposal> {
        self.returned.iter().flatten().next().copied().or(self.proposal)
    }

    /// Replaces a proposal, which is known by its nonce, or drops it.
    fn replace(&mut self, old: Proposal, new: Option<Proposal>) {
        for place in self.returned.iter_mut().chain([&mut self.proposal]) {
            if place.is_some_and(|kept| (kept.worker, kept.nonce) == (old.worker, old.nonce)) {
                *place = new;
            }
        }
    }

    /// Puts right what a process has left that ended in the middle of a change.
    fn repair<S: LeasingServer>(&mut self, server: &S) {
        // What is held and next at once was being entered. Entering again does no harm.
        let name = |lease: Lease| (lease.worker, lease.holder);
        if self.held.map(name) == self.next.map(name) {
            self.held = None;
        }
        if self.held.is_some() && server.words().numbers.read(server.layout()).is_none() {
            // The numbers were being left. What the lanes have reached may be unknown, so the lease
            // is not entered again.
            self.stop(server);
            self.held = None;
        }
    }

    /// Stops to draw. Returns where the latest tick ends in which an id can have been drawn.
    fn stop<S: LeasingServer>(&mut self, server: &S) -> Option<i64> {
        let SharedWords { numbers, generator, marks } = server.words();
        let reached_ms = numbers.leave(marks, generator, server.layout());
        self.left_ms = reached_ms.unwrap_or(i64::MIN);
        reached_ms
    }

    /// Returns the lease that is to be renewed.
    fn kept(&self) -> Option<Lease> {
        self.next.or(self.held)
    }

    /// Returns what is known of leases of a number.
    fn known(&self, worker: i64) -> impl Iterator<Item = Lease> {
        [self.held, self.next].into_iter().flatten().filter(move |lease| lease.worker == worker)
    }

    fn basis<'a, S: LeasingServer>(&self, server: &'a S, reading: &'a Reading, clocks: Clocks) -> Basis<'a> {
        let skew_ms = reading.fleet.used_skew_ms();
        Basis { layout: server.layout(), server: self.server, length_ms: self.length_ms, skew_ms, reading, clocks }
    }

    /// Refuses another fleet than the one that this life has first read: its leases know nothing of
    /// this holder's. Changes nothing there.
    fn recognize<E>(&mut self, reading: &Reading) -> Result<(), Failure<E>> {
        let (known, found) = (*self.fleet.get_or_insert(reading.fleet.uuid), reading.fleet.uuid);
        if known == found { Ok(()) } else { Err(Failure::OtherFleet { known, found }) }
    }

    /// Writes the fleet's record first, where that is needed, and keeps to what it says of leases.
    /// Returns whether to read again.
    fn amend<R: Registry, S: LeasingServer>(
        &mut self,
        registry: &R,
        server: &S,
        terms: &LeaseTerms,
        reading: &Reading,
    ) -> Result<bool, Failure<R::Error>> {
        let fleet = &reading.fleet;
        let member = member(server, self.limits);
        if let Some((layout, backup)) = fleet.layout.filter(|layout| *layout != member.layout) {
            return Err(Failure::OtherLayout { layout, backup });
        }
        if fleet.closed {
            return Err(Failure::Closed);
        }
        let range = fleet.range.unwrap_or(member.range);
        if range.0 < 0 || range.1 > member.range.1 || range.0 > range.1 {
            return Err(Failure::OutsideLayout { range, numbers: member.range.1 + 1 });
        }
        if let Some(new) = fleet.amended(reading, &member, server.nonce()) {
            self.write_fleet(registry, server, reading, new)?;
            return Ok(true);
        }
        let (lease_ms, least_ms) = (fleet.used_lease_ms(), least_ms(server.layout()));
        if lease_ms < least_ms {
            return Err(Failure::TooShort { lease_ms, least_ms });
        }
        self.lease_ms = lease_ms;
        self.limits = self.limits.noting(fleet);
        self.length_ms = self.length(terms, server.layout());
        Ok(false)
    }

    fn write_fleet<R: Registry, S: LeasingServer>(
        &self,
        registry: &R,
        server: &S,
        reading: &Reading,
        new: Fleet,
    ) -> Result<(), Failure<R::Error>> {
        let old = &reading.fleet;
        let swap = Swap { fleet: old.version, incarnation: reading.incarnation, change: Change::Fleet(new) };
        if registry.swap(&swap).map_err(Failure::Away)? == SwapAnswer::Refused {
            return Ok(());
        }
        let brought = |fleet: &Fleet| (fleet.layout, fleet.range, fleet.longest_ms, fleet.skew_ms);
        if brought(&new) != brought(old) {
            server.report(LeaseNotice::Adopted(new));
        }
        if new.generation != old.generation {
            server.report(LeaseNotice::Forgot(new));
        }
        Ok(())
    }

    /// Looks what has become of a proposal.
    fn answered<S: LeasingServer>(&mut self, server: &S, basis: &Basis<'_>, proposal: Proposal) -> NextStep {
        let Proposal { worker, was, nonce, ends_ms, .. } = proposal;
        let record = basis.reading.records.get(&worker).copied();
        if record.map(|record| record.nonce) == was {
            // It has not arrived. With the same nonce, it arrives once at most.
            let again = match (record.filter(|record| record.holder == proposal.holder), ends_ms) {
                (Some(record), Some(ends_ms)) => given_back(record, ends_ms),
                (Some(record), None) => basis.renewed(record, self.known(worker)),
                (None, _) if basis.may_acquire::<()>().is_err() => None,
                (None, None) => basis.free(record).filter(|new| new.until_ms > new.from_ms),
                // A lease that is empty, so that the one that was asked for does not arrive later.
                (None, Some(_)) => basis.free(record).map(|new| NumberRecord { until_ms: new.from_ms, ..new }),
            };
            if let Some(record) = again {
                return NextStep::Propose(proposal, signed(record, proposal, basis));
            }
            self.replace(proposal, None);
            return NextStep::Again;
        }
        let Some(record) = record.filter(|record| record.nonce == nonce) else {
            self.replace(proposal, None);
            return NextStep::Again;
        };
        // It has arrived. That need not be durable, so it only shows what to compare next.
        for lease in [&mut self.held, &mut self.next].into_iter().flatten() {
            if (lease.worker, lease.holder) == (worker, record.holder) {
                (lease.nonce, lease.count) = (record.nonce, record.count);
            }
        }
        let new = match ends_ms {
            Some(ends_ms) => given_back(record, ends_ms),
            None => basis.renewed(record, self.known(worker)),
        };
        let next = new.map(|new| {
            let next = self.new_proposal(server, worker, record.holder, Some((nonce, record.count)), ends_ms);
            (next, signed(new, next, basis))
        });
        self.replace(proposal, next.map(|(next, _)| next));
        next.map_or(NextStep::Again, |(next, new)| NextStep::Propose(next, new))
    }

    /// Proposes to renew a lease, unless the record shows that this cannot or must not be done.
    fn renew<R: Registry, S: LeasingServer>(
        &mut self,
        registry: &R,
        server: &S,
        reading: &Reading,
        clocks: Clocks,
        lease: Lease,
    ) -> Result<NextStep, Failure<R::Error>> {
        let record = match lease.find(reading.records.get(&lease.worker)) {
            FoundLease::Known(record) => Some(record),
            FoundLease::Older(record) => {
                server.report(LeaseNotice::Older(lease));
                if self.begin_generation(registry, server, reading, lease)? {
                    return Ok(NextStep::Again);
                }
                record
            }
            FoundLease::Taken => {
                server.report(LeaseNotice::Lost(lease));
                for kept in [&mut self.held, &mut self.next] {
                    *kept = kept.filter(|kept| *kept != lease);
                }
                return Ok(NextStep::Again);
            }
            found @ (FoundLease::Copied | FoundLease::Overlapped) => {
                self.stop(server);
                (self.held, self.next) = (None, None);
                if found == FoundLease::Copied {
                    server.report(LeaseNotice::Copied(lease));
                } else {
                    server.report(LeaseNotice::Overlapped(lease));
                    self.begin_generation(registry, server, reading, lease)?;
                }
                return Ok(NextStep::Again);
            }
        };
        let basis = self.basis(server, reading, clocks);
        if clocks.are_off(basis.skew_ms) {
            server.report(LeaseNotice::ClockOff { offset_ms: clocks.offset_ms });
        }
        let renewed = record.and_then(|record| Some((record, basis.renewed(record, self.known(lease.worker))?)));
        let Some((record, new)) = renewed else {
            // Another number comes next. What is held is drawn with up to its end.
            self.next = None;
            return Ok(NextStep::Acquire);
        };
        let replaced = Some((record.nonce, record.count));
        let proposal = self.new_proposal(server, lease.worker, record.holder, replaced, None);
        Ok(NextStep::Propose(proposal, signed(new, proposal, &basis)))
    }

    /// Begins a generation, because the registry has forgotten `lease`, unless one has begun since
    /// that was written. Returns whether to read again.
    fn begin_generation<R: Registry, S: LeasingServer>(
        &self,
        registry: &R,
        server: &S,
        reading: &Reading,
        lease: Lease,
    ) -> Result<bool, Failure<R::Error>> {
        let Reading { fleet, incarnation, now_ms, .. } = reading;
        // Two generations may have one number: the one in which the lease was written, and one that
        // an operator has begun after a restore that lacks that one. The later one has the later
        // freeze, which also covers the lease, unless a shorter one was begun wrongly.
        let is_covered = fleet.freeze_ms > lease.freeze_ms && fleet.freeze_ms >= lease.until_ms;
        if fleet.generation > lease.generation || is_covered {
            return Ok(false);
        }
        let new = fleet.begin_generation(*incarnation, *now_ms, self.limits, server.nonce());
        self.write_fleet(registry, server, reading, new)?;
        Ok(true)
    }

    /// Makes a proposal to replace a record that has this nonce and this count. Its own count is
    /// greater than both this one and all before: a copy of this memory has counted for itself.
    fn new_proposal<S: LeasingServer>(
        &mut self,
        server: &S,
        worker: i64,
        holder: u128,
        replaced: Option<(u64, u64)>,
        ends_ms: Option<i64>,
    ) -> Proposal {
        self.count = self.count.max(replaced.map_or(0, |(_, count)| count)).saturating_add(1);
        let was = replaced.map(|(nonce, _)| nonce);
        Proposal { worker, holder, was, nonce: server.nonce(), count: self.count, ends_ms }
    }

    /// Sends a proposal. Returns whether it is known to be written.
    fn propose<R: Registry, S: LeasingServer>(
        &mut self,
        registry: &R,
        server: &S,
        reading: &Reading,
        proposal: Proposal,
        record: NumberRecord,
    ) -> Result<bool, Failure<R::Error>> {
        // Before it is sent: the process may end before the answer comes. What is given back is
        // noted already.
        if proposal.ends_ms.is_none() {
            self.proposal = Some(proposal);
        }
        let Proposal { worker, holder, was, nonce, count, ends_ms } = proposal;
        let change = Change::Number { worker, was, record };
        let swap = Swap { fleet: reading.fleet.version, incarnation: reading.incarnation, change };
        match registry.swap(&swap).map_err(Failure::Away)? {
            SwapAnswer::Done(incarnation) if incarnation.since(&reading.incarnation) == SinceIncarnation::Same => {}
            // It was written into a store that has forgotten something since it was read.
            SwapAnswer::Done(_) | SwapAnswer::Refused => return Ok(false),
        }
        let NumberRecord { from_ms, until_ms, generation, .. } = record;
        let freeze_ms = reading.fleet.freeze_ms;
        let lease = Lease { worker, from_ms, until_ms, holder, nonce, count, generation, freeze_ms };
        if ends_ms.is_some() {
            self.replace(proposal, None);
            server.report(LeaseNotice::GivenBack(lease));
            return Ok(true);
        }
        let is_same = |kept: &Lease| (kept.worker, kept.from_ms) == (worker, from_ms);
        self.length_ms = self.length_ms.saturating_mul(2);
        if self.held.as_ref().is_some_and(is_same) {
            self.held = Some(lease);
            server.words().numbers.extend(until_ms);
            self.proposal = None;
        } else {
            let is_new = !self.next.as_ref().is_some_and(is_same);
            self.next = Some(lease);
            self.proposal = None;
            if is_new {
                server.report(LeaseNotice::Acquired(lease));
            }
        }
        Ok(true)
    }
}

/// Returns a record as it is to be written.
fn signed(record: NumberRecord, proposal: Proposal, basis: &Basis<'_>) -> NumberRecord {
    let Proposal { holder, nonce, count, ends_ms, .. } = proposal;
    // What is given back keeps its generation: in a newer one it would not be frozen.
    let generation = if ends_ms.is_some() { record.generation } else { basis.reading.fleet.generation };
    let (renewed_ms, offset_ms) = (basis.reading.now_ms, basis.clocks.offset_ms);
    NumberRecord { holder, nonce, count, generation, renewed_ms, offset_ms, server: basis.server, ..record }
}

/// Reads the registry and both clocks.
fn read<R: Registry, S: LeasingServer>(
    registry: &R,
    server: &S,
    wanted: Wanted,
) -> Result<(Reading, Clocks), Failure<R::Error>> {
    let before_ms = server.now_ms();
    let reading = registry.read(wanted).map_err(Failure::Away)?;
    let clocks = Clocks::new(before_ms, server.now_ms(), reading.now_ms);
    Ok((reading, clocks))
}

/// Returns a random name for a lease.
fn new_name<S: LeasingServer>(server: &S) -> u128 {
    u128::from(server.nonce()) << 64 | u128::from(server.nonce())
}

/// Returns what the server brings to its fleet, and the greatest limits that it has read.
pub fn member<S: LeasingServer>(server: &S, limits: FleetLimits) -> MemberTerms {
    let (layout, backup) = (server.layout(), server.has_backup());
    MemberTerms {
        layout: (layout.fingerprint(), backup),
        range: (0, Identity::worker_numbers(layout, backup).unwrap_or(0) - 1),
        limits,
    }
}

fn identity<S: LeasingServer>(server: &S, worker: i64) -> Option<Identity> {
    let worker = server.layout().max_of(Field::Worker).map(|_| worker);
    Identity::new(server.layout(), worker, server.datacenter(), server.has_backup()).ok()
}
