//! One life of shared memory as the holder of leases: what it keeps, and what it does next.
//!
//! A [`Holder`] decides, and does nothing. [`Holder::step`] takes an [`Event`], such as what was
//! read, and returns [`Effect`]s, such as a swap that is to be sent. The server performs them in
//! their order (`driver.rs`), and answers the last one with the next event. So what happens is data:
//! it can be compared, printed, and told again (`tests/stories`).
//!
//! The holder lies in shared memory, beside the words that it guards. One process at a time uses
//! it, which may end between any two effects. So a step changes the holder before its effects are
//! performed: what is to be sent is kept before it is sent, and the words are [`Drawing::Entering`]
//! or [`Drawing::Leaving`] before they change. A process keeps only its [`Turn`], and the next
//! process begins with another one. A number whose lease was cut off so may stay leased up to its
//! end.

use std::convert::Infallible;

use super::decisions::{Basis, Clocks, FoundLease, RENEWED_EVERY_MS, given_back};
use super::{Failure, Gap, Lease, LeaseNotice, LeaseTerms, least_ms, member};
use crate::identity::Identity;
use crate::layout::{Field, Layout};
use crate::membership::{FleetWrite, Membership};
use crate::numbers::Span;
use crate::pace::MOST_ROUNDS;
use crate::registry::{
    Change, DEFAULT_LEASE_MS, Fleet, Incarnation, NumberKey, NumberRecord, Reading, SinceIncarnation, Swap, SwapAnswer,
    Wanted,
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
    proposal: Option<Proposal>,
    /// The changes that give back what was held, what was to be held next, and what was asked for
    /// without an answer.
    returned: [Option<Proposal>; 3],
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
}

/// What a process is asked to do with its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Begin to draw with the next lease, if the clock has reached it. Needs no registry.
    Enter,
    /// Renew what is held, or acquire a number, as far as that can be done now.
    Keep,
    /// Give back all that is held, will be held, or was asked for without an answer.
    GiveBack,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Event {
    /// The turn begins.
    Begin,
    /// The words show the numbers that were entered.
    Entered,
    /// The words show no numbers. Holds where the latest tick ends that can have been drawn, if any
    /// can ([`Numbers::leave`](crate::numbers::Numbers::leave)).
    Left(Option<i64>),
    /// The registry has answered a [`Effect::Read`].
    Read {
        /// What it holds.
        reading: Reading,
        /// The server's clock before the call.
        before_ms: i64,
    },
    /// The registry has answered a [`Effect::Swap`].
    Swapped(SwapAnswer),
}

/// What a server is to do. The last effect of a step is answered by an event, or ends the turn; the
/// others are not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Tell the operator.
    Report(LeaseNotice),
    /// Let the words be drawn up to this instant. Not answered.
    Extend(i64),
    /// Change the words to these numbers. Answered by [`Event::Entered`].
    Enter(Span),
    /// Change the words to no numbers. Answered by [`Event::Left`].
    Leave,
    /// Read the registry. Answered by [`Event::Read`], or the turn is over, without an answer.
    Read(Wanted),
    /// Compare and swap. Answered by [`Event::Swapped`], or the turn is over, without an answer.
    Swap(Swap),
    /// The turn is over.
    Done(Result<(), Failure<Infallible>>),
}

/// What a step knows of its server, beside the event.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The layout of the server's ids.
    pub layout: &'a Layout,
    /// The datacenter of the server's ids, if the layout has that field.
    pub datacenter: Option<i64>,
    /// Whether the server has a backup number.
    pub has_backup: bool,
    /// The server's settings.
    pub terms: LeaseTerms,
    /// The server's clock, in milliseconds since 1970.
    pub now_ms: i64,
    /// Random numbers that no other step has, on no server.
    pub nonces: Nonces,
}

/// Random numbers for one step, one for each use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Nonces {
    /// For the version of the fleet's record.
    pub version: u64,
    /// For the changes that are proposed: one, or up to two that give back.
    pub proposals: [u64; 2],
    /// For the name of a lease.
    pub name: [u64; 2],
    /// To choose a number.
    pub choice: u64,
}

/// One turn of one process with its holder: from a request to [`Effect::Done`].
#[derive(Debug)]
pub struct Turn {
    request: Request,
    /// How often the registry was read.
    rounds: u32,
    awaits: Awaits,
}

/// What the last effect was for.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum Awaits {
    Begin,
    /// Numbers were entered: first, or last.
    Entered {
        is_last: bool,
    },
    /// What a process was entering that has ended.
    Reentered,
    /// What a process was leaving that has ended.
    Repaired,
    /// All is given back.
    GaveUp,
    /// Another memory draws with the lease, or its number. If the registry has forgotten this
    /// lease, a generation begins.
    Stopped {
        notice: LeaseNotice,
        forgot: Option<(Reading, Lease)>,
    },
    Reading {
        wanted: Wanted,
        acquires: bool,
    },
    FleetSwap(FleetWrite),
    NumberSwap {
        incarnation: Incarnation,
        freeze_ms: i64,
        proposal: Proposal,
        record: NumberRecord,
    },
}

impl Turn {
    /// Makes a turn, which begins with [`Event::Begin`].
    pub fn new(request: Request) -> Self {
        Self { request, rounds: 0, awaits: Awaits::Begin }
    }

    /// Ends a step with an effect that is answered.
    fn asks(&mut self, mut effects: Vec<Effect>, effect: Effect, awaits: Awaits) -> Vec<Effect> {
        self.awaits = awaits;
        effects.push(effect);
        effects
    }
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
        }
    }

    /// Returns the lease that the server draws with.
    pub fn held(&self) -> Option<Lease> {
        match self.drawing {
            Drawing::Held(lease) => Some(lease),
            // A process has ended meanwhile, perhaps before it has left the lease.
            Drawing::Leaving(lease) => lease,
            Drawing::Free | Drawing::Entering(_) => None,
        }
    }

    /// Returns the lease that it draws with later.
    pub fn next(&self) -> Option<Lease> {
        match self.drawing {
            // A process has ended meanwhile. The next one enters it again.
            Drawing::Entering(lease) => Some(lease),
            Drawing::Free | Drawing::Held(_) | Drawing::Leaving(_) => self.next,
        }
    }

    /// Returns the time in which the server will draw nothing, or draws nothing now, as far as is
    /// known: what is held is not renewed, and ends before anything else begins. That
    /// [`keep`](Self::keep) succeeds does not exclude it, because it may have renewed the next
    /// lease only.
    pub fn gap(&self) -> Option<Gap> {
        let until_ms = self.next().map(|next| next.from_ms).or(self.frozen_ms)?;
        let from_ms = self.held().map(|held| held.until_ms);
        from_ms.is_none_or(|from_ms| from_ms < until_ms).then_some(Gap { from_ms, until_ms })
    }

    /// Returns how long to wait until the next call of [`keep`](Self::keep), in milliseconds. The
    /// caller varies it by a fifth, so that servers that have started together do not renew
    /// together. It waits no longer than [`enters_in_ms`](Self::enters_in_ms) says.
    pub fn interval_ms(&self, terms: &LeaseTerms, layout: &Layout) -> i64 {
        (self.length(terms, layout) / 10).min(RENEWED_EVERY_MS)
    }

    /// Returns in how many milliseconds a turn will begin to draw with the next lease, if there is
    /// one; 0 for now. The caller must not vary this.
    pub fn begins_in_ms(&self, facts: &Facts<'_>) -> Option<i64> {
        let next = self.next()?;
        facts.identity(next.worker)?;
        let begins_in_ms = next.from_ms.saturating_sub(facts.now_ms).max(0);
        // A lane that was left at the end of its tick is in the next one, which would look like a
        // clock that was set back.
        let left_in_ms = self.left_ms.saturating_sub(facts.now_ms).saturating_sub(facts.terms.max_borrow_ms);
        let is_near = (1..=facts.layout.unit().ms()).contains(&left_in_ms);
        Some(if is_near { begins_in_ms.max(left_in_ms) } else { begins_in_ms })
    }

    fn length(&self, terms: &LeaseTerms, layout: &Layout) -> i64 {
        self.length_ms.max(terms.first_ms(self.lease_ms, layout)).min(self.lease_ms)
    }

    /// Takes what has happened, and returns what the server is to do. `event` is
    /// [`Event::Begin`], or the answer to the last effect.
    pub fn step(&mut self, turn: &mut Turn, facts: &Facts<'_>, event: Event) -> Vec<Effect> {
        match (std::mem::replace(&mut turn.awaits, Awaits::Begin), event) {
            (Awaits::Begin, Event::Begin) => self.begin(turn, facts),
            (Awaits::Repaired, Event::Left(reached_ms)) => {
                // What the lanes have reached may be unknown. So the lease stays leased to its end:
                // it is neither given back, nor entered again by a renewal that is proposed.
                if let Drawing::Leaving(Some(left)) = self.drawing {
                    self.proposal = self.proposal.filter(|proposal| proposal.holder != left.holder);
                }
                self.leaves(reached_ms);
                self.begin(turn, facts)
            }
            (Awaits::GaveUp, Event::Left(reached_ms)) => {
                let held = match self.drawing {
                    Drawing::Leaving(held) => held,
                    _ => None,
                };
                self.leaves(reached_ms);
                self.plan_return(facts, held, reached_ms.unwrap_or(i64::MIN));
                (self.next, self.proposal) = (None, None);
                self.round(turn, facts, Vec::new())
            }
            (Awaits::Stopped { notice, forgot }, Event::Left(reached_ms)) => {
                self.leaves(reached_ms);
                let effects = vec![Effect::Report(notice)];
                match forgot {
                    Some((reading, lease)) => self.begin_generation(turn, facts, &reading, lease, effects),
                    None => Err(effects),
                }
                .unwrap_or_else(|effects| self.round(turn, facts, effects))
            }
            (Awaits::Reentered, Event::Entered) => {
                let effects = self.entered();
                let mut all = self.begin(turn, facts);
                all.splice(0..0, effects);
                all
            }
            (Awaits::Entered { is_last }, Event::Entered) => {
                let effects = self.entered();
                if is_last { self.done(turn, effects, Ok(())) } else { self.round(turn, facts, effects) }
            }
            (Awaits::Reading { wanted, acquires }, Event::Read { reading, before_ms }) => {
                let clocks = Clocks::new(before_ms, facts.now_ms, reading.now_ms);
                self.read(turn, facts, reading, clocks, &wanted, acquires)
            }
            (Awaits::FleetSwap(write), Event::Swapped(answer)) => {
                let effects = write.notices(answer).map(|notice| Effect::Report(notice.into())).collect();
                self.round(turn, facts, effects)
            }
            (Awaits::NumberSwap { incarnation, freeze_ms, proposal, record }, Event::Swapped(answer)) => {
                match answer {
                    SwapAnswer::Done(after) if after.since(&incarnation) == SinceIncarnation::Same => {
                        self.written(turn, facts, proposal, &record, freeze_ms)
                    }
                    // It was refused, or written into a store that has forgotten something since it
                    // was read.
                    SwapAnswer::Done(_) | SwapAnswer::Refused => self.round(turn, facts, Vec::new()),
                }
            }
            (awaits, event) => unreachable!("{event:?} is not an answer to {awaits:?}"),
        }
    }

    fn begin(&mut self, turn: &mut Turn, facts: &Facts<'_>) -> Vec<Effect> {
        let is_last = turn.request == Request::Enter;
        // First what a process has begun that has ended. It is done again, whatever the clock says
        // now: the words may have changed already.
        match self.drawing {
            Drawing::Entering(lease) => {
                if let Some(span) = self.span(facts, lease) {
                    return turn.asks(Vec::new(), Effect::Enter(span), Awaits::Reentered);
                }
            }
            Drawing::Leaving(_) => return turn.asks(Vec::new(), Effect::Leave, Awaits::Repaired),
            Drawing::Free | Drawing::Held(_) => {}
        }
        match turn.request {
            Request::GiveBack => {
                self.drawing = Drawing::Leaving(self.held());
                turn.asks(Vec::new(), Effect::Leave, Awaits::GaveUp)
            }
            Request::Enter | Request::Keep => match self.enters(turn, facts, Vec::new(), is_last) {
                Ok(effects) => effects,
                Err(effects) if is_last => self.done(turn, effects, Ok(())),
                Err(effects) => self.round(turn, facts, effects),
            },
        }
    }

    /// Begins to draw with the next lease, if the clock has reached it; otherwise returns the
    /// effects so far.
    fn enters(
        &mut self,
        turn: &mut Turn,
        facts: &Facts<'_>,
        effects: Vec<Effect>,
        is_last: bool,
    ) -> Result<Vec<Effect>, Vec<Effect>> {
        let Some((next, span)) = self.next.and_then(|next| Some((next, self.span(facts, next)?))) else {
            return Err(effects);
        };
        if self.begins_in_ms(facts) != Some(0) {
            return Err(effects);
        }
        (self.drawing, self.next) = (Drawing::Entering(next), None);
        Ok(turn.asks(effects, Effect::Enter(span), Awaits::Entered { is_last }))
    }

    fn entered(&mut self) -> Vec<Effect> {
        let Drawing::Entering(lease) = self.drawing else { return Vec::new() };
        self.drawing = Drawing::Held(lease);
        vec![Effect::Report(LeaseNotice::Entered(lease))]
    }

    /// Returns what the words show of a lease.
    fn span(&self, facts: &Facts<'_>, lease: Lease) -> Option<Span> {
        let Lease { from_ms, until_ms, .. } = lease;
        Some(Span {
            identity: facts.identity(lease.worker)?,
            from_ms,
            until_ms,
            fleet: Fleet::code(self.membership.fleet()?),
        })
    }

    /// Reads the registry, or ends the turn.
    fn round(&mut self, turn: &mut Turn, facts: &Facts<'_>, effects: Vec<Effect>) -> Vec<Effect> {
        let proposal = self.first_proposal();
        if turn.request == Request::GiveBack && proposal.is_none() {
            return self.done(turn, effects, Ok(()));
        }
        if turn.rounds == MOST_ROUNDS {
            return self.done(turn, effects, Err(Failure::Contended));
        }
        turn.rounds += 1;
        let worker = proposal.map(|proposal| proposal.worker).or(self.kept().map(|lease| lease.worker));
        let wanted = worker.map_or_else(|| facts.all(), |worker| facts.one(worker));
        turn.asks(effects, Effect::Read(wanted.clone()), Awaits::Reading { wanted, acquires: false })
    }

    fn done(&mut self, turn: &Turn, mut effects: Vec<Effect>, result: Result<(), Failure<Infallible>>) -> Vec<Effect> {
        if turn.request == Request::Keep {
            self.frozen_ms = match &result {
                Err(Failure::Frozen { until_ms }) => Some(*until_ms),
                Ok(()) | Err(Failure::OtherFleet { .. }) => None,
                // What it has said last is still true.
                Err(_) => self.frozen_ms,
            };
        }
        effects.push(Effect::Done(result));
        effects
    }

    /// Decides by a reading.
    fn read(
        &mut self,
        turn: &mut Turn,
        facts: &Facts<'_>,
        reading: Reading,
        clocks: Clocks,
        wanted: &Wanted,
        acquires: bool,
    ) -> Vec<Effect> {
        let effects = Vec::new();
        if let Err(other) = self.membership.read(&reading.fleet) {
            return self.done(turn, effects, Err(other.into()));
        }
        if turn.request == Request::GiveBack {
            if reading.fleet.closed {
                return self.done(turn, effects, Err(Failure::Closed));
            }
            let Some(proposal) = self.first_proposal() else { return self.round(turn, facts, effects) };
            return match self.answered(facts, &self.basis(facts, &reading, clocks), proposal) {
                Some((proposal, record)) => self.propose(turn, facts, &reading, proposal, record, effects),
                None => self.round(turn, facts, effects),
            };
        }
        match self.amend(facts, &reading) {
            Ok(None) => {}
            Ok(Some(write)) => return write_fleet(turn, &reading, write, effects),
            Err(failure) => return self.done(turn, effects, Err(failure)),
        }
        let basis = self.basis(facts, &reading, clocks);
        if acquires {
            return self.acquire(turn, facts, &basis, effects);
        }
        let again = self.first_proposal().and_then(|proposal| self.answered(facts, &basis, proposal));
        if let Some((proposal, record)) = again {
            return self.propose(turn, facts, &reading, proposal, record, effects);
        }
        if self.first_proposal().is_some() {
            return self.round(turn, facts, effects);
        }
        // By the same reading: what is read next may have forgotten why the proposal was dropped,
        // and show it.
        match self.kept() {
            None if *wanted == facts.all() => self.acquire(turn, facts, &basis, effects),
            None => read_all(turn, facts, effects),
            Some(lease) if *wanted == facts.one(lease.worker) => self.renew(turn, facts, reading, clocks, lease),
            Some(_) => self.round(turn, facts, effects),
        }
    }

    fn acquire(&mut self, turn: &mut Turn, facts: &Facts<'_>, basis: &Basis<'_>, effects: Vec<Effect>) -> Vec<Effect> {
        let (worker, record, new) = match basis.choose(facts.nonces.choice) {
            Ok(chosen) => chosen,
            Err(failure) => return self.done(turn, effects, Err(failure)),
        };
        let replaced = record.map(|record| (record.nonce, record.count));
        let [high, low] = facts.nonces.name;
        let name = u128::from(high) << 64 | u128::from(low);
        let proposal = self.new_proposal(facts.nonces.proposals[0], worker, name, replaced, None);
        self.propose(turn, facts, basis.reading, proposal, signed(new, proposal, basis), effects)
    }

    /// Notes what is to be given back, before it is dropped. Ids may have been drawn with all
    /// leases up to `reached_ms`: the next one may have been entered just before.
    fn plan_return(&mut self, facts: &Facts<'_>, held: Option<Lease>, reached_ms: i64) {
        // If both are of one number, the next one has replaced the record of the one before.
        let held = held.filter(|held| self.next.is_none_or(|next| next.worker != held.worker));
        for (lease, nonce) in [held, self.next].into_iter().zip(facts.nonces.proposals) {
            let Some(lease) = lease else { continue };
            let ends_ms = Some(reached_ms.min(lease.until_ms).max(lease.from_ms));
            let proposal = match self.proposal.filter(|proposal| proposal.worker == lease.worker) {
                // A renewal may still arrive. With the same nonce, one of the two does.
                Some(renewal) => Proposal { ends_ms, ..renewal },
                None => {
                    let replaced = Some((lease.nonce, lease.count));
                    self.new_proposal(nonce, lease.worker, lease.holder, replaced, ends_ms)
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

    /// Notes that the words show no numbers.
    fn leaves(&mut self, reached_ms: Option<i64>) {
        self.drawing = Drawing::Free;
        self.left_ms = reached_ms.unwrap_or(i64::MIN);
    }

    /// Returns the lease that is to be renewed.
    fn kept(&self) -> Option<Lease> {
        self.next.or(self.held())
    }

    /// Returns what is known of leases of a number.
    fn known(&self, worker: i64) -> impl Iterator<Item = Lease> {
        [self.held(), self.next].into_iter().flatten().filter(move |lease| lease.worker == worker)
    }

    fn basis<'a>(&self, facts: &Facts<'a>, reading: &'a Reading, clocks: Clocks) -> Basis<'a> {
        let skew_ms = reading.fleet.used_skew_ms();
        let Facts { layout, datacenter, .. } = *facts;
        Basis { layout, datacenter, server: self.server, length_ms: self.length_ms, skew_ms, reading, clocks }
    }

    /// Returns the change of the fleet's record that has to be written first, if there is one.
    /// Otherwise keeps to what the record says of leases.
    fn amend(&mut self, facts: &Facts<'_>, reading: &Reading) -> Result<Option<FleetWrite>, Failure<Infallible>> {
        let fleet = &reading.fleet;
        let member = member(facts.layout, facts.has_backup);
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
        if let Some(write) = self.membership.amends(reading, &member, facts.nonces.version) {
            return Ok(Some(write));
        }
        let (lease_ms, least_ms) = (fleet.used_lease_ms(), least_ms(facts.layout));
        if lease_ms < least_ms {
            return Err(Failure::TooShort { lease_ms, least_ms });
        }
        self.lease_ms = lease_ms;
        self.length_ms = self.length(&facts.terms, facts.layout);
        Ok(None)
    }

    /// Looks what has become of a proposal. Returns what is to be sent now; `None` to read again.
    fn answered(
        &mut self,
        facts: &Facts<'_>,
        basis: &Basis<'_>,
        proposal: Proposal,
    ) -> Option<(Proposal, NumberRecord)> {
        let Proposal { worker, was, nonce, ends_ms, .. } = proposal;
        let record = basis.reading.numbers.get(&facts.number(worker)).copied();
        if record.map(|record| record.nonce) == was {
            // It has not arrived. With the same nonce, it arrives once at most.
            let again = match (record.filter(|record| record.holder == proposal.holder), ends_ms) {
                (Some(record), Some(ends_ms)) => given_back(record, ends_ms),
                (Some(record), None) => basis.renewed(record, self.known(worker)),
                (None, _) if basis.may_acquire().is_err() => None,
                (None, None) => basis.free(record).filter(|new| new.until_ms > new.from_ms),
                // A lease that is empty, so that the one that was asked for does not arrive later.
                (None, Some(_)) => basis.free(record).map(|new| NumberRecord { until_ms: new.from_ms, ..new }),
            };
            if let Some(record) = again {
                return Some((proposal, signed(record, proposal, basis)));
            }
            self.replace(proposal, None);
            return None;
        }
        let Some(record) = record.filter(|record| record.nonce == nonce) else {
            self.replace(proposal, None);
            return None;
        };
        // It has arrived. That need not be durable, so it only shows what to compare next.
        let held = match &mut self.drawing {
            Drawing::Held(lease) => Some(lease),
            _ => None,
        };
        for lease in held.into_iter().chain(&mut self.next) {
            if (lease.worker, lease.holder) == (worker, record.holder) {
                (lease.nonce, lease.count) = (record.nonce, record.count);
            }
        }
        let new = match ends_ms {
            Some(ends_ms) => given_back(record, ends_ms),
            None => basis.renewed(record, self.known(worker)),
        };
        let next = new.map(|new| {
            let replaced = Some((nonce, record.count));
            let next = self.new_proposal(facts.nonces.proposals[0], worker, record.holder, replaced, ends_ms);
            (next, signed(new, next, basis))
        });
        self.replace(proposal, next.map(|(next, _)| next));
        next
    }

    /// Proposes to renew a lease, unless the record shows that this cannot or must not be done.
    fn renew(
        &mut self,
        turn: &mut Turn,
        facts: &Facts<'_>,
        reading: Reading,
        clocks: Clocks,
        lease: Lease,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        let record = reading.numbers.get(&facts.number(lease.worker));
        if record.is_none() && reading.fleet.may_lack(lease.until_ms, reading.now_ms) {
            // It was over, and an operator has deleted the record.
            self.let_go(lease);
            return self.round(turn, facts, effects);
        }
        let record = match lease.find(record) {
            FoundLease::Known(record) => Some(record),
            FoundLease::Older(record) => {
                effects.push(Effect::Report(LeaseNotice::Older(lease)));
                match self.begin_generation(turn, facts, &reading, lease, effects) {
                    Ok(asks) => return asks,
                    Err(so_far) => effects = so_far,
                }
                record
            }
            FoundLease::Taken => {
                effects.push(Effect::Report(LeaseNotice::Lost(lease)));
                self.let_go(lease);
                return self.round(turn, facts, effects);
            }
            found @ (FoundLease::Copied | FoundLease::Overlapped) => {
                (self.drawing, self.next) = (Drawing::Leaving(None), None);
                let (notice, forgot) = match found {
                    FoundLease::Copied => (LeaseNotice::Copied(lease), None),
                    _ => (LeaseNotice::Overlapped(lease), Some((reading, lease))),
                };
                return turn.asks(effects, Effect::Leave, Awaits::Stopped { notice, forgot });
            }
        };
        let basis = self.basis(facts, &reading, clocks);
        if clocks.are_off(basis.skew_ms) {
            effects.push(Effect::Report(LeaseNotice::ClockOff { offset_ms: clocks.offset_ms }));
        }
        let renewed = record.and_then(|record| Some((record, basis.renewed(record, self.known(lease.worker))?)));
        let Some((record, new)) = renewed else {
            // Another number comes next. What is held is drawn with up to its end.
            self.next = None;
            return read_all(turn, facts, effects);
        };
        let replaced = Some((record.nonce, record.count));
        let proposal = self.new_proposal(facts.nonces.proposals[0], lease.worker, record.holder, replaced, None);
        self.propose(turn, facts, &reading, proposal, signed(new, proposal, &basis), effects)
    }

    /// Takes a lease for over.
    fn let_go(&mut self, lease: Lease) {
        self.next = self.next.filter(|next| *next != lease);
        if self.held() == Some(lease) {
            self.drawing = Drawing::Free;
        }
    }

    /// Begins a generation, because the registry has forgotten `lease`, unless one has begun since
    /// that was written; then it returns the effects so far.
    fn begin_generation(
        &self,
        turn: &mut Turn,
        facts: &Facts<'_>,
        reading: &Reading,
        lease: Lease,
        effects: Vec<Effect>,
    ) -> Result<Vec<Effect>, Vec<Effect>> {
        let fleet = &reading.fleet;
        // Two generations may have one number: the one in which the lease was written, and one that
        // an operator has begun after a restore that lacks that one. The later one has the later
        // freeze, which also covers the lease, unless a shorter one was begun wrongly.
        let is_covered = fleet.freeze_ms > lease.freeze_ms && fleet.freeze_ms >= lease.until_ms;
        if fleet.generation > lease.generation || is_covered {
            return Err(effects);
        }
        let write = self.membership.begins_generation(reading, facts.nonces.version);
        Ok(write_fleet(turn, reading, write, effects))
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
    ) -> Proposal {
        self.count = self.count.max(replaced.map_or(0, |(_, count)| count)).saturating_add(1);
        let was = replaced.map(|(nonce, _)| nonce);
        Proposal { worker, holder, was, nonce, count: self.count, ends_ms }
    }

    /// Sends a proposal.
    fn propose(
        &mut self,
        turn: &mut Turn,
        facts: &Facts<'_>,
        reading: &Reading,
        proposal: Proposal,
        record: NumberRecord,
        effects: Vec<Effect>,
    ) -> Vec<Effect> {
        // Before it is sent: the process may end before the answer comes. What is given back is
        // noted already.
        if proposal.ends_ms.is_none() {
            self.proposal = Some(proposal);
        }
        let change = Change::Number { number: facts.number(proposal.worker), was: proposal.was, record };
        let incarnation = reading.incarnation;
        let swap = Swap::after(reading, vec![change]);
        let freeze_ms = reading.fleet.freeze_ms;
        turn.asks(effects, Effect::Swap(swap), Awaits::NumberSwap { incarnation, freeze_ms, proposal, record })
    }

    /// Takes that a proposal is written. What is learnt is kept before the proposal is dropped.
    fn written(
        &mut self,
        turn: &mut Turn,
        facts: &Facts<'_>,
        proposal: Proposal,
        record: &NumberRecord,
        freeze_ms: i64,
    ) -> Vec<Effect> {
        let Proposal { worker, holder, nonce, count, ends_ms, .. } = proposal;
        let NumberRecord { from_ms, until_ms, generation, .. } = *record;
        let lease = Lease { worker, from_ms, until_ms, holder, nonce, count, generation, freeze_ms };
        if ends_ms.is_some() {
            self.replace(proposal, None);
            return self.round(turn, facts, vec![Effect::Report(LeaseNotice::GivenBack(lease))]);
        }
        let is_same = |kept: &Lease| (kept.worker, kept.from_ms) == (worker, from_ms);
        self.length_ms = self.length_ms.saturating_mul(2);
        self.proposal = None;
        let mut effects = Vec::new();
        if self.held().as_ref().is_some_and(is_same) {
            self.drawing = Drawing::Held(lease);
            effects.push(Effect::Extend(until_ms));
        } else {
            let is_new = !self.next.as_ref().is_some_and(is_same);
            self.next = Some(lease);
            if is_new {
                effects.push(Effect::Report(LeaseNotice::Acquired(lease)));
            }
        }
        self.enters(turn, facts, effects, true).unwrap_or_else(|effects| self.done(turn, effects, Ok(())))
    }
}

impl Facts<'_> {
    fn number(&self, worker: i64) -> NumberKey {
        NumberKey::new(self.datacenter, worker)
    }

    /// What is read of one number.
    fn one(&self, worker: i64) -> Wanted {
        Wanted::number(self.number(worker))
    }

    /// What is read to choose a number.
    fn all(&self) -> Wanted {
        Wanted::numbers_of(self.datacenter)
    }

    fn identity(&self, worker: i64) -> Option<Identity> {
        let worker = self.layout.max_of(Field::Worker).map(|_| worker);
        Identity::new(self.layout, worker, self.datacenter, self.has_backup).ok()
    }
}

/// Writes the fleet's record, if nothing has changed since it was read.
fn write_fleet(turn: &mut Turn, reading: &Reading, write: FleetWrite, effects: Vec<Effect>) -> Vec<Effect> {
    turn.asks(effects, Effect::Swap(write.swap(reading)), Awaits::FleetSwap(write))
}

/// Reads all numbers, to choose one.
fn read_all(turn: &mut Turn, facts: &Facts<'_>, effects: Vec<Effect>) -> Vec<Effect> {
    let wanted = facts.all();
    turn.asks(effects, Effect::Read(wanted.clone()), Awaits::Reading { wanted, acquires: true })
}

/// Returns a record as it is to be written.
fn signed(record: NumberRecord, proposal: Proposal, basis: &Basis<'_>) -> NumberRecord {
    let Proposal { holder, nonce, count, ends_ms, .. } = proposal;
    // What is given back keeps its generation: in a newer one it would not be frozen.
    let generation = if ends_ms.is_some() { record.generation } else { basis.reading.fleet.generation };
    let (renewed_ms, offset_ms) = (basis.reading.now_ms, basis.clocks.offset_ms);
    NumberRecord { holder, nonce, count, generation, renewed_ms, offset_ms, server: basis.server, ..record }
}
