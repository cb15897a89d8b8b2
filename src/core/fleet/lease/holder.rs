//! One life of shared memory as the holder of leases: what it keeps, and what a process does with
//! it.
//!
//! The holder lies in shared memory, beside the words that it guards. One process at a time uses
//! it, which may end at any call (`exchange.rs`). So what a call is to do stands in the holder
//! before the call: what is to be sent is kept before it is sent, and the words are
//! [`Drawing::Entering`] or [`Drawing::Leaving`] before they change. A process keeps only its
//! [`Leasing`], and the next process begins with another one. A number whose lease was cut off so
//! may stay leased up to its end.

use super::decisions::{Clocks, FoundLease, Inputs, RENEWED_EVERY_MS, given_back};
use super::{Gap, Lease, LeaseNotice, LeaseTerms, LeasingServer, least_ms};
use crate::draw::numbers::NextNumbers;
use crate::fleet::bytes::{Bytes, bytes};
use crate::fleet::exchange::{self, Failure, Swapped, ended};
use crate::fleet::membership::Membership;
use crate::fleet::pace::MOST_ROUNDS;
use crate::fleet::registry::{DEFAULT_LEASE_MS, Fleet, NumberKey, NumberRecord, Reading, RecordChange, Wanted};
use crate::id::identity::Identity;
use crate::id::layout::{Field, Layout};

/// A change of a number's record for which there is no answer yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LeaseProposal {
    worker: i64,
    holder: u128,
    /// The nonce of the record that is to be replaced.
    was: Option<u64>,
    nonce: u64,
    count: u64,
    /// The end to write when a lease is given back, never before its start; `None` for a lease that
    /// is wanted.
    ends_ms: Option<i64>,
}

bytes!(LeaseProposal { worker: i64, holder: u128, was: Option<u64>, nonce: u64, count: u64, ends_ms: Option<i64> });

/// What the words of a life show, from which its sessions draw (`numbers.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drawing {
    /// Nothing that is kept: no numbers, or those of a lease that another server has after its
    /// end.
    Free,
    /// The numbers of this lease.
    Held(Lease),
    /// They are being changed to the numbers of this lease. They may still show others.
    Entering(Lease),
    /// They are being changed to no numbers. They may still show those of this lease.
    Leaving(Option<Lease>),
    /// No numbers yet. An earlier life has drawn with this lease, and this one begins where that
    /// may have ended, once the clock is there.
    Kept(Lease),
}

/// A number for each, and the lease.
impl Bytes for Drawing {
    const LENGTH: usize = 1 + Option::<Lease>::LENGTH;

    fn put(&self, to: &mut &mut [u8]) {
        let (form, lease): (u8, _) = match *self {
            Self::Free => (0, None),
            Self::Held(lease) => (1, Some(lease)),
            Self::Entering(lease) => (2, Some(lease)),
            Self::Leaving(lease) => (3, lease),
            Self::Kept(lease) => (4, Some(lease)),
        };
        form.put(to);
        lease.put(to);
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        match (u8::read(from)?, Option::<Lease>::read(from)?) {
            (0, None) => Some(Self::Free),
            (1, Some(lease)) => Some(Self::Held(lease)),
            (2, Some(lease)) => Some(Self::Entering(lease)),
            (3, lease) => Some(Self::Leaving(lease)),
            (4, Some(lease)) => Some(Self::Kept(lease)),
            _ => None,
        }
    }
}

/// One life of shared memory, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// What this life knows of its fleet. Its supply of blocks shares it.
    pub membership: Membership,
    /// A fingerprint of the server's host and port, to get the same number again.
    server: u64,
    /// What the server draws with.
    drawing: Drawing,
    /// What it will draw with, because that begins later, or because what is held cannot be
    /// renewed.
    next: Option<Lease>,
    /// The change that would give a lease, or renew one.
    proposal: Option<LeaseProposal>,
    /// The changes that give back what was held, what was to be held next, and what was asked for
    /// without an answer.
    returned: [Option<LeaseProposal>; 3],
    /// How many changes were proposed.
    count: u64,
    /// The length of the lease that is proposed next, in milliseconds; 0 for the first length.
    length_ms: i64,
    /// How long leases are, as the fleet's record said last, in milliseconds.
    lease_ms: i64,
    /// Where the last tick ended when a lease was last left. Both lanes lie before it.
    left_ms: i64,
    /// Before which instant no number can be used, if the registry has said so since the lease was
    /// renewed or acquired last.
    frozen_ms: Option<i64>,
    /// Where this life begins: an earlier one may have drawn up to here. Both lanes lie at or after
    /// it.
    begins_ms: i64,
}

bytes!(Holder {
    membership: Membership,
    server: u64,
    drawing: Drawing,
    next: Option<Lease>,
    proposal: Option<LeaseProposal>,
    returned: [Option<LeaseProposal>; 3],
    count: u64,
    length_ms: i64,
    lease_ms: i64,
    left_ms: i64,
    frozen_ms: Option<i64>,
    begins_ms: i64,
});

/// One turn of one process with its holder.
struct Leasing<'a, S> {
    holder: &'a mut Holder,
    server: &'a S,
    terms: &'a LeaseTerms,
}

impl Holder {
    /// Makes a holder that has nothing.
    pub fn new(server: u64) -> Self {
        Self {
            membership: Membership::new(),
            server,
            drawing: Drawing::Free,
            next: None,
            proposal: None,
            returned: [None; 3],
            count: 0,
            length_ms: 0,
            lease_ms: DEFAULT_LEASE_MS,
            left_ms: i64::MIN,
            frozen_ms: None,
            begins_ms: i64::MIN,
        }
    }

    /// Returns the holder that the next life of the server's memory goes on with, which begins at
    /// `begins_ms`, and where its last lease ends. The words and the lanes of this life are lost.
    /// Returns `None` if there is no lease to go on with.
    pub(crate) fn goes_on(&self, begins_ms: i64) -> Option<(Self, i64)> {
        let drawing = match self.drawing {
            Drawing::Held(lease) | Drawing::Entering(lease) | Drawing::Kept(lease) => Drawing::Kept(lease),
            // What was left stays leased to its end, as where a process ends.
            Drawing::Free | Drawing::Leaving(_) => Drawing::Free,
        };
        let (proposal, begins_ms) = (self.unless_left(), self.begins_ms.max(begins_ms));
        let next = Self { drawing, proposal, left_ms: i64::MIN, begins_ms, ..*self };
        let until_ms = next.kept().into_iter().chain(next.next).map(|lease| lease.until_ms).max()?;
        Some((next, until_ms))
    }

    /// Returns the lease that the server draws with.
    pub fn held(&self) -> Option<Lease> {
        match self.drawing {
            Drawing::Held(lease) => Some(lease),
            // A process has ended meanwhile, perhaps before it has left the lease.
            Drawing::Leaving(lease) => lease,
            Drawing::Free | Drawing::Entering(_) | Drawing::Kept(_) => None,
        }
    }

    /// Returns the lease that an earlier life has drawn with, until this one does.
    pub fn kept(&self) -> Option<Lease> {
        match self.drawing {
            Drawing::Kept(lease) => Some(lease),
            _ => None,
        }
    }

    /// Returns the lease that the server draws with, or goes on to draw with.
    fn own(&self) -> Option<Lease> {
        self.held().or(self.kept())
    }

    /// Returns the proposal, unless it is for a lease that is being left.
    fn unless_left(&self) -> Option<LeaseProposal> {
        let is_left = |proposal: &LeaseProposal| matches!(self.drawing, Drawing::Leaving(Some(left)) if left.holder == proposal.holder);
        self.proposal.filter(|proposal| !is_left(proposal))
    }

    /// Returns the lease that it draws with later.
    pub fn next(&self) -> Option<Lease> {
        match self.drawing {
            // A process has ended meanwhile. The next one enters it again.
            Drawing::Entering(lease) => Some(lease),
            Drawing::Free | Drawing::Held(_) | Drawing::Leaving(_) | Drawing::Kept(_) => self.next,
        }
    }

    /// Returns the time in which the server will draw nothing, or draws nothing now, as far as is
    /// known: what is held is not renewed, and ends before anything else begins. That
    /// [`renew_or_acquire`](Self::renew_or_acquire) succeeds does not exclude it, because it may
    /// have renewed the next lease only.
    pub fn gap(&self) -> Option<Gap> {
        let until_ms = self.next().map(|next| next.from_ms).or(self.frozen_ms)?;
        let from_ms = self.own().map(|own| own.until_ms);
        from_ms.is_none_or(|from_ms| from_ms < until_ms).then_some(Gap { from_ms, until_ms })
    }

    /// Returns how long to wait until the next call of
    /// [`renew_or_acquire`](Self::renew_or_acquire), in milliseconds. The caller varies it by a
    /// fifth, so that servers that have started together do not renew together. It waits no longer
    /// than [`enters_in_ms`](Self::enters_in_ms) says.
    pub fn interval_ms(&self, terms: &LeaseTerms, layout: &Layout) -> i64 {
        (self.length(terms, layout) / 10).min(RENEWED_EVERY_MS)
    }

    /// Returns in how many milliseconds [`enter`](Self::enter) will begin to draw with the lease
    /// that is kept, or with the next one, if there is one; 0 for now. The caller must not vary
    /// this.
    pub fn enters_in_ms<S: LeasingServer>(&self, server: &S, terms: &LeaseTerms) -> Option<i64> {
        let (next, now_ms) = (self.kept().or(self.next())?, server.now_ms());
        identity(server, next.worker)?;
        // The lanes are there already. Until the clock is, too, as far as ids may borrow, a draw
        // would report a clock that was set back.
        let begins_ms = next.from_ms.max(self.begins_ms.saturating_sub(terms.max_borrow_ms));
        let begins_in_ms = begins_ms.saturating_sub(now_ms).max(0);
        // A lane that was left at the end of its tick is in the next one, which would look like a
        // clock that was set back.
        let left_in_ms = self.left_ms.saturating_sub(now_ms).saturating_sub(terms.max_borrow_ms);
        let is_near = (1..=server.layout().unit().ms()).contains(&left_in_ms);
        Some(if is_near { begins_in_ms.max(left_in_ms) } else { begins_in_ms })
    }

    /// Begins to draw with the next lease, if the clock has reached it. Needs no registry.
    ///
    /// # Errors
    /// The end of the process.
    pub fn enter<S: LeasingServer>(&mut self, server: &S, terms: &LeaseTerms) -> Result<(), S::End> {
        let mut turn = Leasing { holder: self, server, terms };
        turn.resumes()?;
        turn.enters()
    }

    /// Renews what is held, or acquires a number, as far as that can be done now. What is acquired
    /// may begin later than what is held ends: [`gap`](Self::gap).
    ///
    /// # Errors
    /// [`Failure`]. What is held may be drawn with all the same.
    pub fn renew_or_acquire<S: LeasingServer>(
        &mut self,
        server: &S,
        terms: &LeaseTerms,
    ) -> Result<(), Failure<S::Error>> {
        let kept = Leasing { holder: self, server, terms }.renew_or_acquire();
        self.frozen_ms = match &kept {
            Err(Failure::Frozen { until_ms }) => Some(*until_ms),
            Ok(()) | Err(Failure::OtherFleet { .. }) => None,
            // What the registry has said last is still true.
            Err(_) => self.frozen_ms,
        };
        kept
    }

    /// Gives back all that is held, will be held, or was asked for without an answer; what is held
    /// from the tick after the last one in which an id was drawn. If the registry cannot be read,
    /// nothing is changed. Otherwise it draws nothing from then on, whatever the registry answers;
    /// [`renew_or_acquire`](Self::renew_or_acquire) acquires a number again.
    ///
    /// # Errors
    /// [`Failure`]. Up to three numbers stay leased then, each up to its end or until the message
    /// arrives: what was held, what was to be held next, and what was asked for, if the request
    /// has arrived or will. The caller may call this again, and `keep` does the rest first.
    pub fn give_back<S: LeasingServer>(&mut self, server: &S) -> Result<(), Failure<S::Error>> {
        // What ids may borrow does not matter to what is given back.
        Leasing { holder: self, server, terms: &LeaseTerms { max_borrow_ms: 0 } }.give_back()
    }

    fn length(&self, terms: &LeaseTerms, layout: &Layout) -> i64 {
        self.length_ms.max(terms.first_ms(self.lease_ms, layout)).min(self.lease_ms)
    }

    /// Adds what is to be given back, unless that is noted for the number.
    fn add_return(&mut self, proposal: LeaseProposal) {
        if self.returned.iter().flatten().all(|noted| noted.worker != proposal.worker)
            && let Some(place) = self.returned.iter_mut().find(|place| place.is_none())
        {
            *place = Some(proposal);
        }
    }

    /// Returns the proposal that is to be answered first. What is given back comes first, because
    /// its number may be the one that is free then.
    fn first_proposal(&self) -> Option<LeaseProposal> {
        self.returned.iter().flatten().next().copied().or(self.proposal)
    }

    /// Replaces a proposal, which is known by its nonce, or drops it.
    fn replace(&mut self, old: LeaseProposal, new: Option<LeaseProposal>) {
        for place in self.returned.iter_mut().chain([&mut self.proposal]) {
            if place.is_some_and(|kept| (kept.worker, kept.nonce) == (old.worker, old.nonce)) {
                *place = new;
            }
        }
    }

    /// Returns the lease that is to be renewed.
    fn lease_to_renew(&self) -> Option<Lease> {
        self.next.or(self.own())
    }

    /// Returns the number that is given back first, if there is something to give back.
    fn returned_first(&self) -> Option<i64> {
        let noted = self.returned.iter().flatten().map(|noted| noted.worker);
        let leases = [self.own(), self.next].into_iter().flatten().map(|lease| lease.worker);
        noted.chain(leases).chain(self.proposal.map(|asked| asked.worker)).next()
    }

    /// Returns what is known of leases of a number.
    fn leases_of(&self, worker: i64) -> impl Iterator<Item = Lease> {
        [self.own(), self.next].into_iter().flatten().filter(move |lease| lease.worker == worker)
    }

    /// Takes a lease for over.
    fn let_go(&mut self, lease: Lease) {
        self.next = self.next.filter(|next| *next != lease);
        if self.own() == Some(lease) {
            self.drawing = Drawing::Free;
        }
    }

    /// Makes a proposal to replace a record that has this nonce and this count. Its own count is
    /// greater than both this one and all before: a copy of this memory has counted for itself.
    fn new_proposal(
        &mut self,
        nonce: u64,
        worker: i64,
        holder: u128,
        replaced: Option<(u64, u64)>,
        ends_ms: Option<i64>,
    ) -> LeaseProposal {
        self.count = self.count.max(replaced.map_or(0, |(_, count)| count)).saturating_add(1);
        let was = replaced.map(|(nonce, _)| nonce);
        LeaseProposal { worker, holder, was, nonce, count: self.count, ends_ms }
    }
}

impl<'a, S: LeasingServer> Leasing<'a, S> {
    /// Returns the server for a call, which may be the process's last one: the holder is kept.
    fn call(&self) -> Result<&'a S, S::End> {
        self.server.saves(self.holder)?;
        Ok(self.server)
    }

    fn report(&self, notice: LeaseNotice) -> Result<(), Failure<S::Error>> {
        self.call().and_then(|server| server.report(notice)).map_err(ended::<S>)
    }

    /// Does again what a process has begun that has ended, whatever the clock says now: the words
    /// may have changed already.
    fn resumes(&mut self) -> Result<(), S::End> {
        match self.holder.drawing {
            Drawing::Entering(lease) => self.span(lease).map_or(Ok(()), |span| self.show(lease, &span)),
            Drawing::Leaving(left) => {
                // What the lanes have reached may be unknown. So the lease stays leased to its end:
                // it is neither given back, nor entered again by a renewal that is proposed.
                self.holder.proposal = self.holder.unless_left();
                self.leave(left).map(drop)
            }
            Drawing::Free | Drawing::Held(_) | Drawing::Kept(_) => Ok(()),
        }
    }

    /// Begins to draw with the lease that is kept, and with the next one, if the clock has reached
    /// it.
    fn enters(&mut self) -> Result<(), S::End> {
        if let Some((kept, span)) = self.holder.kept().and_then(|kept| Some((kept, self.span(kept)?))) {
            if self.holder.enters_in_ms(self.server, self.terms) != Some(0) {
                return Ok(());
            }
            self.show(kept, &span)?;
        }
        match self.holder.next.and_then(|next| Some((next, self.span(next)?))) {
            Some((next, span)) if self.holder.enters_in_ms(self.server, self.terms) == Some(0) => {
                self.holder.next = None;
                self.show(next, &span)
            }
            _ => Ok(()),
        }
    }

    /// Changes the words to the numbers of a lease.
    fn show(&mut self, lease: Lease, span: &NextNumbers) -> Result<(), S::End> {
        self.holder.drawing = Drawing::Entering(lease);
        self.call()?.enter(span)?;
        self.holder.drawing = Drawing::Held(lease);
        self.call()?.report(LeaseNotice::Entered(lease))
    }

    /// Changes the words to no numbers. They may show those of this lease. Returns where the latest
    /// tick ends that can have been drawn.
    fn leave(&mut self, lease: Option<Lease>) -> Result<i64, S::End> {
        self.holder.drawing = Drawing::Leaving(lease);
        let reached_ms = self.call()?.leave()?.unwrap_or(i64::MIN);
        (self.holder.drawing, self.holder.left_ms) = (Drawing::Free, reached_ms);
        Ok(reached_ms)
    }

    /// Returns what the words show of a lease.
    fn span(&self, lease: Lease) -> Option<NextNumbers> {
        let Lease { until_ms, worker, .. } = lease;
        let from_ms = lease.from_ms.max(self.holder.begins_ms);
        let fleet = Fleet::code(self.holder.membership.fleet()?);
        Some(NextNumbers { identity: identity(self.server, worker)?, from_ms, until_ms, fleet })
    }

    fn renew_or_acquire(&mut self) -> Result<(), Failure<S::Error>> {
        self.resumes().and_then(|()| self.enters()).map_err(ended::<S>)?;
        for _ in 0..MOST_ROUNDS {
            if self.round()? {
                return Ok(());
            }
        }
        Err(Failure::Contended)
    }

    fn give_back(&mut self) -> Result<(), Failure<S::Error>> {
        self.resumes().map_err(ended::<S>)?;
        // Without an answer, nothing is given back, and nothing is left.
        let mut first = match self.holder.returned_first() {
            Some(worker) => Some((worker, self.read(&self.one(worker))?)),
            None => None,
        };
        let own = self.holder.own();
        let reached_ms = self.leave(own).map_err(ended::<S>)?;
        self.plan_return(own, reached_ms);
        (self.holder.next, self.holder.proposal) = (None, None);
        // Even if nothing is sent, the next life must not go on with it.
        self.call().map_err(ended::<S>)?;
        let mut rounds = 0..MOST_ROUNDS;
        while let Some(asked) = self.holder.first_proposal() {
            rounds.next().ok_or(Failure::Contended)?;
            let (reading, clocks) = match first.take() {
                Some((worker, read)) if worker == asked.worker => read,
                _ => self.read(&self.one(asked.worker))?,
            };
            if reading.fleet.closed {
                return Err(Failure::Closed);
            }
            if let Some((proposal, record)) = self.answered(&self.inputs(&reading, clocks), asked) {
                self.propose(&reading, proposal, record)?;
            }
        }
        Ok(())
    }

    /// Notes what is to be given back, before it is dropped. Ids may have been drawn with all
    /// leases up to `reached_ms`: the next one may have been entered just before.
    fn plan_return(&mut self, held: Option<Lease>, reached_ms: i64) {
        let next = self.holder.next;
        // If both are of one number, the next one has replaced the record of the one before.
        let held = held.filter(|held| next.is_none_or(|next| next.worker != held.worker));
        for lease in [held, next].into_iter().flatten() {
            let ends_ms = Some(reached_ms.min(lease.until_ms).max(lease.from_ms));
            let proposal = match self.holder.proposal.filter(|proposal| proposal.worker == lease.worker) {
                // A renewal may still arrive. With the same nonce, one of the two does.
                Some(renewal) => LeaseProposal { ends_ms, ..renewal },
                None => {
                    let (nonce, replaced) = (self.server.nonce(), Some((lease.nonce, lease.count)));
                    self.holder.new_proposal(nonce, lease.worker, lease.holder, replaced, ends_ms)
                }
            };
            self.holder.add_return(proposal);
        }
        if let Some(asked) = self.holder.proposal {
            self.holder.add_return(LeaseProposal { ends_ms: Some(i64::MIN), ..asked });
        }
    }

    fn number(&self, worker: i64) -> NumberKey {
        NumberKey::new(self.server.datacenter(), worker)
    }

    /// What is read of one number.
    fn one(&self, worker: i64) -> Wanted {
        Wanted::number(self.number(worker))
    }

    /// What is read to choose a number.
    fn all(&self) -> Wanted {
        Wanted::numbers_of(self.server.datacenter())
    }

    /// Reads the registry, and both clocks.
    fn read(&mut self, wanted: &Wanted) -> Result<(Reading, Clocks), Failure<S::Error>> {
        let server = self.call().map_err(ended::<S>)?;
        let before_ms = server.now_ms();
        let reading = exchange::read(server, &mut self.holder.membership, wanted)?;
        let clocks = Clocks::new(before_ms, server.now_ms(), reading.now_ms);
        Ok((reading, clocks))
    }

    /// Reads, decides and sends once. Returns whether the turn is over.
    fn round(&mut self) -> Result<bool, Failure<S::Error>> {
        let asked = self.holder.first_proposal();
        let worker = asked.map(|asked| asked.worker).or(self.holder.lease_to_renew().map(|lease| lease.worker));
        let wanted = worker.map_or_else(|| self.all(), |worker| self.one(worker));
        let (reading, clocks) = self.read(&wanted)?;
        if self.amends(&reading)? {
            return Ok(false);
        }
        let inputs = self.inputs(&reading, clocks);
        if let Some((proposal, record)) = asked.and_then(|asked| self.answered(&inputs, asked)) {
            return self.propose(&reading, proposal, record);
        }
        if self.holder.first_proposal().is_some() {
            return Ok(false);
        }
        // By the same reading: what is read next may have forgotten why the proposal was dropped,
        // and show it.
        match self.holder.lease_to_renew() {
            None if wanted == self.all() => return self.acquire(&inputs),
            None => {}
            Some(lease) if wanted == self.one(lease.worker) => {
                if let Some(is_over) = self.renew(&inputs, lease)? {
                    return Ok(is_over);
                }
            }
            Some(_) => return Ok(false),
        }
        let (reading, clocks) = self.read(&self.all())?;
        if self.amends(&reading)? {
            return Ok(false);
        }
        self.acquire(&self.inputs(&reading, clocks))
    }

    fn inputs<'b>(&self, reading: &'b Reading, clocks: Clocks) -> Inputs<'b>
    where
        'a: 'b,
    {
        let (server, length_ms) = (self.server, self.holder.length_ms);
        let (layout, datacenter, skew_ms) = (server.layout(), server.datacenter(), reading.fleet.used_skew_ms());
        Inputs { layout, datacenter, server: self.holder.server, length_ms, skew_ms, reading, clocks }
    }

    /// Writes what has to be written of the fleet's record first. Returns whether it has to.
    /// Otherwise keeps to what the record says of leases.
    fn amends(&mut self, reading: &Reading) -> Result<bool, Failure<S::Error>> {
        let (fleet, member, own) = (&reading.fleet, self.server.member(), self.server.layout());
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
        if let Some(amended) = self.holder.membership.amends(reading, &member, self.server.nonce()) {
            return self.write_fleet(reading, amended);
        }
        let (lease_ms, least_ms) = (fleet.used_lease_ms(), least_ms(own));
        if lease_ms < least_ms {
            return Err(Failure::TooShort { lease_ms, least_ms });
        }
        self.holder.lease_ms = lease_ms;
        self.holder.length_ms = self.holder.length(self.terms, own);
        Ok(false)
    }

    fn write_fleet(&self, reading: &Reading, new: Fleet) -> Result<bool, Failure<S::Error>> {
        exchange::write_fleet(self.call().map_err(ended::<S>)?, reading, new)?;
        Ok(true)
    }

    /// Begins a generation, because the registry has forgotten `lease`, unless one has begun since
    /// that was written. Returns whether one begins.
    fn begins_generation(&self, reading: &Reading, lease: Lease) -> Result<bool, Failure<S::Error>> {
        let fleet = &reading.fleet;
        // Two generations may have one number: the one in which the lease was written, and one that
        // an operator has begun after a restore that lacks that one. The later one has the later
        // freeze, which also covers the lease, unless a shorter one was begun wrongly.
        let is_covered = fleet.freeze_ms > lease.freeze_ms && fleet.freeze_ms >= lease.until_ms;
        if fleet.generation > lease.generation || is_covered {
            return Ok(false);
        }
        self.write_fleet(reading, self.holder.membership.begins_generation(reading, self.server.nonce()))
    }

    /// Looks what has become of a proposal. Returns what is to be sent now; `None` to read again.
    fn answered(&mut self, inputs: &Inputs<'_>, proposal: LeaseProposal) -> Option<(LeaseProposal, NumberRecord)> {
        let LeaseProposal { worker, was, nonce, ends_ms, .. } = proposal;
        let holder = &mut *self.holder;
        let record = inputs.reading.numbers.get(&NumberKey::new(inputs.datacenter, worker)).copied();
        if record.map(|record| record.nonce) == was {
            // It has not arrived. With the same nonce, it arrives once at most.
            let again = match (record.filter(|record| record.holder == proposal.holder), ends_ms) {
                (Some(record), Some(ends_ms)) => given_back(record, ends_ms),
                (Some(record), None) => inputs.renewed(record, holder.leases_of(worker)),
                (None, _) if inputs.may_acquire::<()>().is_err() => None,
                (None, None) => inputs.free(record).filter(|new| new.until_ms > new.from_ms),
                // A lease that is empty, so that the one that was asked for does not arrive later.
                (None, Some(_)) => inputs.free(record).map(|new| NumberRecord { until_ms: new.from_ms, ..new }),
            };
            if let Some(record) = again {
                return Some((proposal, signed(record, proposal, inputs)));
            }
            holder.replace(proposal, None);
            return None;
        }
        let Some(record) = record.filter(|record| record.nonce == nonce) else {
            holder.replace(proposal, None);
            return None;
        };
        // It has arrived. That need not be durable, so it only shows what to compare next.
        let own = match &mut holder.drawing {
            Drawing::Held(lease) | Drawing::Kept(lease) => Some(lease),
            _ => None,
        };
        for lease in own.into_iter().chain(&mut holder.next) {
            if (lease.worker, lease.holder) == (worker, record.holder) {
                (lease.nonce, lease.count) = (record.nonce, record.count);
            }
        }
        let new = match ends_ms {
            Some(ends_ms) => given_back(record, ends_ms),
            None => inputs.renewed(record, holder.leases_of(worker)),
        };
        let next = new.map(|new| {
            let replaced = Some((nonce, record.count));
            let next = holder.new_proposal(self.server.nonce(), worker, record.holder, replaced, ends_ms);
            (next, signed(new, next, inputs))
        });
        holder.replace(proposal, next.map(|(next, _)| next));
        next
    }

    /// Proposes to renew a lease, unless the record shows that this cannot or must not be done.
    /// Returns whether the turn is over; `None` if another number comes next.
    fn renew(&mut self, inputs: &Inputs<'_>, lease: Lease) -> Result<Option<bool>, Failure<S::Error>> {
        let (reading, clocks) = (inputs.reading, inputs.clocks);
        let record = reading.numbers.get(&self.number(lease.worker));
        if record.is_none() && reading.fleet.may_lack(lease.until_ms, reading.now_ms) {
            // It was over, and an operator has deleted the record.
            self.holder.let_go(lease);
            return Ok(Some(false));
        }
        let record = match lease.find(record) {
            FoundLease::Known(record) => Some(record),
            FoundLease::Older(record) => {
                self.report(LeaseNotice::Older(lease))?;
                if self.begins_generation(reading, lease)? {
                    return Ok(Some(false));
                }
                record
            }
            FoundLease::Taken => {
                self.holder.let_go(lease);
                self.report(LeaseNotice::Lost(lease))?;
                return Ok(Some(false));
            }
            found @ (FoundLease::Copied | FoundLease::Overlapped) => {
                // Another memory draws with the lease, or its number.
                self.holder.next = None;
                self.leave(None).map_err(ended::<S>)?;
                if found == FoundLease::Copied {
                    self.report(LeaseNotice::Copied(lease))?;
                } else {
                    self.report(LeaseNotice::Overlapped(lease))?;
                    self.begins_generation(reading, lease)?;
                }
                return Ok(Some(false));
            }
        };
        if clocks.are_off(inputs.skew_ms) {
            self.report(LeaseNotice::ClockOff { offset_ms: clocks.offset_ms })?;
        }
        let renewed = record.and_then(|record| {
            let new = inputs.renewed(record, self.holder.leases_of(lease.worker))?;
            Some((record, new))
        });
        let Some((record, new)) = renewed else {
            // What is held is drawn with up to its end.
            self.holder.next = None;
            return Ok(None);
        };
        let (nonce, replaced) = (self.server.nonce(), Some((record.nonce, record.count)));
        let proposal = self.holder.new_proposal(nonce, lease.worker, record.holder, replaced, None);
        self.propose(reading, proposal, signed(new, proposal, inputs)).map(Some)
    }

    fn acquire(&mut self, inputs: &Inputs<'_>) -> Result<bool, Failure<S::Error>> {
        let nonce = || self.server.nonce();
        let (worker, record, new) = inputs.choose(nonce())?;
        let name = u128::from(nonce()) << 64 | u128::from(nonce());
        let replaced = record.map(|record| (record.nonce, record.count));
        let proposal = self.holder.new_proposal(nonce(), worker, name, replaced, None);
        self.propose(inputs.reading, proposal, signed(new, proposal, inputs))
    }

    /// Sends a proposal. Returns whether the turn is over: a lease is written. What is learnt is
    /// noted before the proposal is dropped.
    fn propose(
        &mut self,
        reading: &Reading,
        proposal: LeaseProposal,
        record: NumberRecord,
    ) -> Result<bool, Failure<S::Error>> {
        let LeaseProposal { worker, holder, was, nonce, count, ends_ms } = proposal;
        // Before it is sent: the process may end before the answer comes. What is given back is
        // noted already.
        if ends_ms.is_none() {
            self.holder.proposal = Some(proposal);
        }
        let change = RecordChange::Number { number: self.number(worker), was, record };
        let server = self.call().map_err(ended::<S>)?;
        if exchange::swap(server, reading, vec![change]).map_err(Failure::Away)? != Swapped::Written {
            return Ok(false);
        }
        let NumberRecord { from_ms, until_ms, generation, .. } = record;
        let freeze_ms = reading.fleet.freeze_ms;
        let lease = Lease { worker, from_ms, until_ms, holder, nonce, count, generation, freeze_ms };
        if ends_ms.is_some() {
            self.holder.replace(proposal, None);
            self.report(LeaseNotice::GivenBack(lease))?;
            return Ok(false);
        }
        let is_same = |kept: &Lease| (kept.worker, kept.from_ms) == (worker, from_ms);
        self.holder.length_ms = self.holder.length_ms.saturating_mul(2);
        self.holder.proposal = None;
        if self.holder.held().as_ref().is_some_and(is_same) {
            self.holder.drawing = Drawing::Held(lease);
            self.call().and_then(|server| server.extend(until_ms)).map_err(ended::<S>)?;
        } else if self.holder.kept().as_ref().is_some_and(is_same) {
            self.holder.drawing = Drawing::Kept(lease);
        } else {
            let is_new = !self.holder.next.as_ref().is_some_and(is_same);
            self.holder.next = Some(lease);
            if is_new {
                self.report(LeaseNotice::Acquired(lease))?;
            }
        }
        self.enters().map_err(ended::<S>)?;
        Ok(true)
    }
}

/// Returns the numbers that a server's ids carry with a leased one.
fn identity<S: LeasingServer>(server: &S, worker: i64) -> Option<Identity> {
    let worker = server.layout().max_of(Field::Worker).map(|_| worker);
    Identity::new(server.layout(), worker, server.datacenter(), server.has_backup()).ok()
}

/// Returns a record as it is to be written.
fn signed(record: NumberRecord, proposal: LeaseProposal, inputs: &Inputs<'_>) -> NumberRecord {
    let LeaseProposal { holder, nonce, count, ends_ms, .. } = proposal;
    // What is given back keeps its generation: in a newer one it would not be frozen.
    let generation = if ends_ms.is_some() { record.generation } else { inputs.reading.fleet.generation };
    let (renewed_ms, offset_ms) = (inputs.reading.now_ms, inputs.clocks.offset_ms);
    NumberRecord { holder, nonce, count, generation, renewed_ms, offset_ms, server: inputs.server, ..record }
}

#[cfg(test)]
impl Holder {
    /// Makes one that draws with a lease up to `until_ms`, for the tests of the page.
    pub(crate) fn drawing_until(until_ms: i64) -> Self {
        let lease = Lease {
            worker: 5,
            from_ms: until_ms - 30_000,
            until_ms,
            holder: 1 << 100,
            nonce: 11,
            count: 3,
            generation: 1,
            freeze_ms: i64::MIN,
        };
        Self { drawing: Drawing::Held(lease), ..Self::new(8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a holder whose fields all differ from those of a new one.
    fn full(drawing: Drawing) -> Holder {
        let proposal = |worker| {
            Some(LeaseProposal { worker, holder: 1 << 90, was: Some(4), nonce: 5, count: 6, ends_ms: Some(i64::MIN) })
        };
        let next = Holder::drawing_until(9_000).held();
        let (returned, frozen_ms) = ([proposal(1), None, proposal(2)], Some(7));
        let (count, length_ms, lease_ms, left_ms, begins_ms) = (21, 22, 23, 24, 25);
        let proposal = proposal(3);
        let (membership, server) = (Membership::new(), 8);
        Holder {
            membership,
            server,
            drawing,
            next,
            proposal,
            returned,
            count,
            length_ms,
            lease_ms,
            left_ms,
            frozen_ms,
            begins_ms,
        }
    }

    #[test]
    fn a_holder_is_read_back_in_each_of_its_states() {
        let lease = Holder::drawing_until(8_000).held().unwrap();
        let states = [
            Drawing::Free,
            Drawing::Held(lease),
            Drawing::Entering(lease),
            Drawing::Leaving(None),
            Drawing::Leaving(Some(lease)),
            Drawing::Kept(lease),
        ];
        for holder in states.map(full).into_iter().chain([Holder::new(1)]) {
            let mut bytes = [0; Holder::LENGTH];
            holder.put(&mut &mut bytes[..]);
            assert_eq!(Holder::read(&mut &bytes[..]), Some(holder));
        }
    }

    #[test]
    fn a_life_goes_on_with_what_was_drawn_with_and_not_with_what_was_left() {
        let lease = Holder::drawing_until(8_000).held().unwrap();
        for drawing in [Drawing::Held(lease), Drawing::Entering(lease), Drawing::Kept(lease)] {
            let (next, until_ms) = full(drawing).goes_on(30).unwrap();
            assert_eq!((next.kept(), next.held(), next.begins_ms, until_ms), (Some(lease), None, 30, 9_000));
            // An earlier life may have drawn further.
            assert_eq!(full(drawing).goes_on(10).unwrap().0.begins_ms, 25);
        }
        for drawing in [Drawing::Free, Drawing::Leaving(Some(lease))] {
            let alone = Holder { next: None, ..full(drawing) };
            assert_eq!(alone.goes_on(30), None);
            // What begins later was not left.
            let (next, _) = full(drawing).goes_on(30).unwrap();
            assert_eq!((next.drawing, next.next), (Drawing::Free, full(drawing).next));
        }
        // A renewal of what was left would enter it again.
        let renews = LeaseProposal { holder: lease.holder, ..full(Drawing::Free).proposal.unwrap() };
        let left = Holder { proposal: Some(renews), ..full(Drawing::Leaving(Some(lease))) };
        assert_eq!(left.goes_on(30).unwrap().0.proposal, None);
    }
}
