//! The supply of blocks: when a block is reserved, how large it is, and what is given back.
//!
//! A [`Supply`] decides, as a [`Holder`](crate::lease::Holder) does. [`Supply::step`] takes a
//! [`SupplyEvent`], such as what was read, and returns [`SupplyEffect`]s, such as a swap that is to
//! be sent. The worker performs them in their order (`driver.rs`), and answers the last one with
//! the next event. A step itself changes only the supply and the places.
//!
//! The supply lies in shared memory, beside the places. One process at a time uses it, which may
//! end between any two effects. So a step notes a block before it puts it in place, and notes what
//! it takes out before that is given back. A process keeps only its [`SupplyTurn`]. If it ends, an
//! answer that it has not noted is lost, and so is what it was to give back.

use std::convert::Infallible;

use super::{Ask, Block, Claimed, Grant, PLACES, Place, Return, State};
use crate::lease::Failure;
use crate::membership::{FleetNotice, FleetWrite, Membership};
use crate::pace::{AGAIN_AFTER_MS, MOST_LOST, MOST_ROUNDS};
use crate::registry::{
    Change, Fleet, Incarnation, MOST_CHANGES, MemberTerms, Reading, SinceIncarnation, Swap, SwapAnswer, Wanted,
};
use crate::tag::Tag;

/// How long a block should last, in milliseconds (Leaf). A tag's step doubles if a block lasted
/// less than the first, and halves if it lasted longer than the second.
const LASTS_MS: (i64, i64) = (15 * 60_000, 30 * 60_000);

/// How often the registry is asked whether a tag is still there, and still above what this server
/// has had, in milliseconds.
const LOOKED_AT_EVERY_MS: i64 = 10_000;

/// The server that draws from blocks.
pub trait SuppliedServer {
    /// Returns the places, at most [`PLACES`] of them.
    fn places(&self) -> &[Place];

    /// Returns the places that are claimed ([`Directory::claimed`](super::Directory::claimed)). It
    /// takes the directory's lock, and gives it back.
    fn claimed(&self) -> Vec<Claimed>;

    /// Forgets a wish ([`Directory::unwish`](super::Directory::unwish)).
    fn unwish(&self, place: usize, claim: u64, least: i64);

    /// Returns what the server brings to its fleet.
    fn member(&self) -> MemberTerms;

    /// Returns the time since some instant, in milliseconds. It is never set back while the server
    /// runs. Steps depend on it, and nothing else.
    fn running_ms(&self) -> i64;

    /// Returns a random number that no other call returns, on no server; see
    /// [`lease::LeasingServer::nonce`](crate::lease::LeasingServer::nonce).
    fn nonce(&self) -> u64;

    /// Reports what has happened to the operator.
    fn report(&self, notice: SupplyNotice);
}

/// What the operator should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SupplyNotice {
    /// The tag has jumped ahead, because the registry may have forgotten something.
    Jumped {
        /// The tag.
        tag: Tag,
        /// How many values were skipped.
        skipped: i64,
        /// The first value after the jump.
        to: i64,
    },
    /// The registry no longer has a tag that this server uses.
    Gone(Tag),
    /// The tag's values end with the last one of a `bigint`. Reported once.
    Ended(Tag),
    /// The registry may have forgotten something, and the tag has no jump. Reported once.
    NoJump(Tag),
    /// What this server has had, or a session wishes, lies too far above the tag's next value.
    /// Reported once.
    TooFar {
        /// The tag.
        tag: Tag,
        /// The value from which on the server wants values.
        from: i64,
    },
    /// The registry gives values below those that the server has had.
    Below {
        /// The tag.
        tag: Tag,
        /// Up to where the server has had values.
        above: i64,
    },
    /// The registry has given a block that cannot be used, so it is lost.
    Unusable {
        /// The tag.
        tag: Tag,
        /// The block.
        block: Block,
    },
    /// The fleet's record now holds what this server has brought as the fleet's first.
    Adopted(Fleet),
    /// The registry has forgotten something, and a generation has begun.
    Forgot(Fleet),
    /// What was left of a tag's blocks is given back.
    GivenBack {
        /// The tag.
        tag: Tag,
        /// The first value of the rest.
        first: i64,
    },
}

impl From<FleetNotice> for SupplyNotice {
    fn from(notice: FleetNotice) -> Self {
        match notice {
            FleetNotice::Adopted(fleet) => Self::Adopted(fleet),
            FleetNotice::Forgot(fleet) => Self::Forgot(fleet),
        }
    }
}

/// What the worker knows of a place's tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownTag {
    /// Which claim of the place this is about.
    claim: u64,
    /// What the server has had, once a block was reserved.
    had: Option<HadBlocks>,
    /// Since when the next block is wanted.
    wanted_ms: Option<i64>,
    /// When the registry has answered last.
    answered_ms: i64,
}

/// What a server has had of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HadBlocks {
    /// The tag's id in the registry.
    id: u64,
    /// Up to where values were had: after the last one. Those that were given back do not count.
    above: i64,
    /// The same before the last block.
    before: i64,
    /// The fleet's generation when they were had.
    generation: u64,
    /// The nonce of the last block; `None` if there is nothing to give back.
    nonce: Option<u64>,
    /// How many values the next block should have.
    step: u32,
    /// How many blocks there were.
    blocks: u64,
    /// When the last one was wanted.
    was_wanted_ms: i64,
    /// How long the last but one has lasted.
    lasted_ms: Option<i64>,
}

impl KnownTag {
    fn new(claim: u64) -> Self {
        Self { claim, had: None, wanted_ms: None, answered_ms: i64::MIN }
    }

    /// Returns the tag's id in the registry, if a block was reserved.
    pub fn id(&self) -> Option<u64> {
        self.had.map(|had| had.id)
    }

    /// Returns how many values the next block should have, within the tag's steps; 0 for the least.
    pub fn step(&self) -> u32 {
        self.had.map_or(0, |had| had.step)
    }

    /// Returns how many blocks this server has had.
    pub fn blocks(&self) -> u64 {
        self.had.map_or(0, |had| had.blocks)
    }

    /// Returns how long a block has lasted, in milliseconds, as far as one was used up.
    pub fn lasted_ms(&self) -> Option<i64> {
        self.had?.lasted_ms
    }

    /// Returns up to where values were had; [`i64::MIN`] if none were.
    fn above(&self) -> i64 {
        self.had.map_or(i64::MIN, |had| had.above)
    }

    /// Notes a block, before it is put in place.
    fn note(&mut self, id: u64, block: Block, steps: (u32, u32), generation: u64, nonce: u64) {
        let was_wanted_ms = self.had.map_or(0, |had| had.was_wanted_ms);
        let wanted_ms = self.wanted_ms.take().unwrap_or(was_wanted_ms);
        // Between the first two blocks lies only a tenth of one.
        let lasted_ms = (self.blocks() > 1).then(|| wanted_ms.saturating_sub(was_wanted_ms));
        self.had = Some(HadBlocks {
            id,
            above: block.end(),
            before: self.above(),
            generation,
            nonce: Some(nonce),
            step: next_step(block.count, lasted_ms, steps),
            blocks: self.blocks() + 1,
            was_wanted_ms: wanted_ms,
            lasted_ms,
        });
    }
}

/// Returns how many values the next block should have, if this one has `step`, and one before has
/// lasted so long. It is at least 1.
fn next_step(step: u32, lasted_ms: Option<i64>, (least, greatest): (u32, u32)) -> u32 {
    let (soon_ms, late_ms) = LASTS_MS;
    let next = match lasted_ms {
        Some(ms) if ms < soon_ms => step.saturating_mul(2),
        Some(ms) if ms > late_ms => step / 2,
        _ => step,
    };
    next.max(least).min(greatest).max(1)
}

/// What the worker of one life of shared memory knows of its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supply {
    known: [KnownTag; PLACES],
}

/// What a process is asked to do with its supply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SupplyRequest {
    /// Reserve the blocks that are due. From time to time, look whether the tags are still there.
    Supply,
    /// Take out what is left in all places, and give it back.
    GiveBack,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum SupplyEvent {
    /// The turn begins.
    Begin,
    /// The registry has answered a [`SupplyEffect::Read`].
    Read(Reading),
    /// The registry has answered a [`SupplyEffect::Swap`].
    Swapped(SwapAnswer),
}

/// What a server is to do. The last effect of a step is answered by an event, or ends the turn; the
/// others are not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SupplyEffect {
    /// Tell the operator.
    Report(SupplyNotice),
    /// Forget a wish, which the registry cannot fulfil.
    Unwish {
        /// The place.
        place: usize,
        /// The claim under which it was made.
        claim: u64,
        /// The wish.
        least: i64,
    },
    /// Read the registry. Answered by [`SupplyEvent::Read`], or the turn is over, without an
    /// answer.
    Read(Wanted),
    /// Compare and swap. Answered by [`SupplyEvent::Swapped`], or the turn is over, without an
    /// answer.
    Swap(Swap),
    /// The turn is over.
    Done(Result<(), Failure<Infallible>>),
}

/// One turn of one process with its supply: from a request to [`SupplyEffect::Done`].
#[derive(Debug)]
pub struct SupplyTurn {
    request: SupplyRequest,
    /// How often the registry was read since it has answered last.
    rounds: u32,
    /// How often others were first at a tag since then.
    lost: u32,
    /// The first place that was not asked for yet.
    from: usize,
    /// What is still to be given back.
    returns: Vec<Return>,
    awaits: Awaits,
}

/// What the last effect was for.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum Awaits {
    Begin,
    Reading(Vec<Want>),
    FleetSwap(FleetWrite),
    TagSwap { incarnation: Incarnation, answers: Vec<Answer> },
}

/// What is wanted of one tag.
#[derive(Debug, Clone, Copy)]
enum Want {
    /// A block for a place, or to know whether the tag is there.
    Ask(usize, Ask),
    Return(Return),
}

/// What the registry answers to it, once it is written.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Grant(usize, Ask, Grant),
    /// Values are back from this one on.
    Returned(Tag, Option<i64>),
}

impl Want {
    fn tag(&self) -> Tag {
        match self {
            Self::Ask(_, ask) => ask.tag,
            Self::Return(given) => given.tag,
        }
    }

    /// Decides by a reading. Returns what is answered, and the tag's change if there is one.
    fn decide(self, reading: &Reading) -> (Answer, Option<Change>) {
        let tag = self.tag();
        let Reading { fleet, now_ms, .. } = reading;
        let record = reading.tags.get(&tag);
        let (answer, new) = match self {
            Self::Ask(place, ask) => {
                let unknown = (Grant::Unknown, None);
                let (grant, new) = record.map_or(unknown, |record| record.answer(&ask, fleet, *now_ms));
                (Answer::Grant(place, ask, grant), new)
            }
            Self::Return(given) => {
                let new = record.and_then(|record| record.take_back(&given, fleet, *now_ms));
                (Answer::Returned(tag, new.map(|new| new.next)), new)
            }
        };
        let was = record.map(|record| record.nonce);
        (answer, new.map(|new| Change::Tag { tag, was, record: Some(new) }))
    }
}

impl SupplyTurn {
    /// Makes a turn, which begins with [`SupplyEvent::Begin`].
    pub fn new(request: SupplyRequest) -> Self {
        Self { request, rounds: 0, lost: 0, from: 0, returns: Vec::new(), awaits: Awaits::Begin }
    }

    /// Ends a step with an effect that is answered.
    fn asks(&mut self, mut effects: Vec<SupplyEffect>, effect: SupplyEffect, awaits: Awaits) -> Vec<SupplyEffect> {
        self.awaits = awaits;
        effects.push(effect);
        effects
    }

    /// Writes the fleet's record, if nothing has changed since it was read.
    fn write_fleet(&mut self, reading: &Reading, write: FleetWrite, effects: Vec<SupplyEffect>) -> Vec<SupplyEffect> {
        self.asks(effects, SupplyEffect::Swap(write.swap(reading)), Awaits::FleetSwap(write))
    }
}

fn done(mut effects: Vec<SupplyEffect>, result: Result<(), Failure<Infallible>>) -> Vec<SupplyEffect> {
    effects.push(SupplyEffect::Done(result));
    effects
}

impl Supply {
    /// Makes what is known at the start: nothing.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        Self { known: [KnownTag::new(0); PLACES] }
    }

    /// Returns what is known of a place's tag under a claim.
    pub fn known(&self, place: usize, claim: u64) -> Option<&KnownTag> {
        self.known.get(place).filter(|known| known.claim == claim)
    }

    /// Returns when the registry is next asked whether the tags are still there, in milliseconds
    /// from now; `None` if no tag is in use. The caller calls [`supply`](Self::supply) then.
    pub fn looks_in_ms<S: SuppliedServer>(&self, server: &S) -> Option<i64> {
        let claimed = server.claimed().into_iter();
        let known = claimed.filter_map(|claimed| self.known(claimed.place, claimed.claim));
        let looks_ms = |known: &KnownTag| known.answered_ms.saturating_add(LOOKED_AT_EVERY_MS);
        let first_ms = known.filter(|known| known.had.is_some()).map(looks_ms).min()?;
        Some(first_ms.saturating_sub(server.running_ms()).max(0))
    }

    /// Takes what has happened, and returns what the server is to do. `event` is
    /// [`SupplyEvent::Begin`], or the answer to the last effect. It asks `server`, and does nothing
    /// to it but to its places.
    pub fn step<S: SuppliedServer>(
        &mut self,
        turn: &mut SupplyTurn,
        server: &S,
        membership: &mut Membership,
        event: SupplyEvent,
    ) -> Vec<SupplyEffect> {
        match (std::mem::replace(&mut turn.awaits, Awaits::Begin), event) {
            (Awaits::Begin, SupplyEvent::Begin) => {
                if turn.request == SupplyRequest::GiveBack {
                    turn.returns = self.take_out(server);
                }
                self.round(turn, server, Vec::new())
            }
            (Awaits::Reading(wants), SupplyEvent::Read(reading)) => {
                self.read(turn, server, membership, wants, &reading)
            }
            (Awaits::FleetSwap(write), SupplyEvent::Swapped(answer)) => {
                let effects = write.notices(answer).map(|notice| SupplyEffect::Report(notice.into())).collect();
                self.round(turn, server, effects)
            }
            (Awaits::TagSwap { incarnation, answers }, SupplyEvent::Swapped(answer)) => match answer {
                SwapAnswer::Done(after) if after.since(&incarnation) == SinceIncarnation::Same => {
                    self.written(turn, server, answers)
                }
                SwapAnswer::Refused => {
                    turn.lost += 1;
                    self.round(turn, server, Vec::new())
                }
                // It was written into a store that has forgotten something since it was read.
                SwapAnswer::Done(_) => self.round(turn, server, Vec::new()),
            },
            (awaits, event) => unreachable!("{event:?} is not an answer to {awaits:?}"),
        }
    }

    /// Reads the tags of which something is wanted, or ends the turn.
    fn round<S: SuppliedServer>(
        &mut self,
        turn: &mut SupplyTurn,
        server: &S,
        effects: Vec<SupplyEffect>,
    ) -> Vec<SupplyEffect> {
        let mut wants: Vec<_> = match turn.request {
            SupplyRequest::Supply => self.asks(server, turn.from),
            SupplyRequest::GiveBack => turn.returns.iter().copied().map(Want::Return).collect(),
        };
        if wants.is_empty() {
            return done(effects, Ok(()));
        }
        // A tag falls out of what is given back once another server was first at it, so that ends
        // by itself.
        let has_lost = turn.request == SupplyRequest::Supply && turn.lost == MOST_LOST;
        if has_lost || turn.rounds == MOST_ROUNDS {
            return done(effects, Err(Failure::Contended));
        }
        turn.rounds += 1;
        wants.truncate(MOST_CHANGES);
        let wanted = Wanted::tags(wants.iter().map(Want::tag).collect());
        turn.asks(effects, SupplyEffect::Read(wanted), Awaits::Reading(wants))
    }

    /// Decides by a reading. Refuses another fleet than the one that this life has first read, and
    /// one that is closed.
    fn read<S: SuppliedServer>(
        &mut self,
        turn: &mut SupplyTurn,
        server: &S,
        membership: &mut Membership,
        wants: Vec<Want>,
        reading: &Reading,
    ) -> Vec<SupplyEffect> {
        if let Err(other) = membership.read(&reading.fleet) {
            return done(Vec::new(), Err(other.into()));
        }
        if reading.fleet.closed {
            return done(Vec::new(), Err(Failure::Closed));
        }
        if let Some(write) = membership.amends(reading, &server.member(), server.nonce()) {
            return turn.write_fleet(reading, write, Vec::new());
        }
        let (answers, changes): (Vec<_>, Vec<_>) = wants.into_iter().map(|want| want.decide(reading)).unzip();
        let below = |answer: &Answer| match answer {
            Answer::Grant(_, Ask { tag, above, .. }, Grant::Forgot) => {
                Some(SupplyEffect::Report(SupplyNotice::Below { tag: *tag, above: *above }))
            }
            _ => None,
        };
        let below: Vec<_> = answers.iter().filter_map(below).collect();
        if !below.is_empty() {
            // No generation has begun since the values were had, or the tag would jump.
            let write = membership.begins_generation(reading, server.nonce());
            return turn.write_fleet(reading, write, below);
        }
        let changes: Vec<_> = changes.into_iter().flatten().collect();
        if changes.is_empty() {
            return self.written(turn, server, answers);
        }
        let swap = SupplyEffect::Swap(Swap::after(reading, changes));
        turn.asks(Vec::new(), swap, Awaits::TagSwap { incarnation: reading.incarnation, answers })
    }

    /// Takes the answers, when all that they say is written.
    fn written<S: SuppliedServer>(
        &mut self,
        turn: &mut SupplyTurn,
        server: &S,
        answers: Vec<Answer>,
    ) -> Vec<SupplyEffect> {
        let mut effects = Vec::new();
        for answer in answers {
            match answer {
                Answer::Grant(place, ask, grant) => {
                    turn.from = place + 1;
                    self.receive(server, place, &ask, grant, &mut effects);
                }
                Answer::Returned(tag, first) => {
                    turn.returns.retain(|given| given.tag != tag);
                    effects.extend(first.map(|first| SupplyEffect::Report(SupplyNotice::GivenBack { tag, first })));
                }
            }
        }
        (turn.rounds, turn.lost) = (0, 0);
        self.round(turn, server, effects)
    }

    /// Returns what is to be asked for places from this one on.
    fn asks<S: SuppliedServer>(&mut self, server: &S, from: usize) -> Vec<Want> {
        let now_ms = server.running_ms();
        let claimed = server.claimed().into_iter().filter(|claimed| (from..PLACES).contains(&claimed.place));
        claimed.filter_map(|claimed| Some(Want::Ask(claimed.place, self.ask(server, claimed, now_ms)?))).collect()
    }

    fn ask<S: SuppliedServer>(&mut self, server: &S, claimed: Claimed, now_ms: i64) -> Option<Ask> {
        let Claimed { place: at, claim, tag, least } = claimed;
        let (place, known) = (server.places().get(at)?, &mut self.known[at]);
        if known.claim != claim {
            *known = KnownTag::new(claim);
        }
        let since_ms = now_ms.saturating_sub(known.answered_ms);
        let is_due = place.room().is_some() && place.is_due();
        if is_due {
            known.wanted_ms.get_or_insert(now_ms);
        }
        let asks = match place.state() {
            State::Ended | State::NoJump | State::TooFar => is_due && since_ms >= AGAIN_AFTER_MS,
            _ => is_due,
        };
        let looks = known.had.is_some() && since_ms >= LOOKED_AT_EVERY_MS;
        let had = known.had.as_ref();
        (asks || looks).then(|| Ask {
            tag,
            id: known.id(),
            step: asks.then(|| known.step()),
            above: known.above(),
            least,
            generation: had.map_or(0, |had| had.generation),
            was: had.and_then(|had| had.nonce),
            nonce: server.nonce(),
        })
    }

    /// Takes the registry's answer for a place.
    fn receive<S: SuppliedServer>(
        &mut self,
        server: &S,
        at: usize,
        ask: &Ask,
        grant: Grant,
        effects: &mut Vec<SupplyEffect>,
    ) {
        let Some(place) = server.places().get(at) else { return };
        let (known, tag) = (&mut self.known[at], ask.tag);
        known.answered_ms = server.running_ms();
        let mut report = |notice| effects.push(SupplyEffect::Report(notice));
        let mut tell = |state, notice| {
            if place.state() != state {
                place.tell(state);
                report(notice);
            }
        };
        match grant {
            Grant::Block { id, steps, block, generation, skipped } => {
                let is_same = known.id().is_none_or(|known| known == id);
                let is_right = is_same && block.is_possible() && block.first >= known.above();
                // No claim ends while a block is reserved: only this process frees a place.
                let room = place.room().filter(|_| is_right && place.claimed() == known.claim);
                let Some(room) = room else { return report(SupplyNotice::Unusable { tag, block }) };
                known.note(id, block, steps, generation, ask.nonce);
                place.fill(room, block);
                if skipped > 0 {
                    report(SupplyNotice::Jumped { tag, skipped, to: block.first });
                }
            }
            // An operator has said where it goes on.
            Grant::Known if place.state() == State::NoJump => place.tell(State::Open),
            Grant::Known | Grant::Forgot => {}
            Grant::Unknown => {
                place.free();
                if known.had.is_some() {
                    report(SupplyNotice::Gone(tag));
                }
            }
            Grant::Ended => tell(State::Ended, SupplyNotice::Ended(tag)),
            Grant::NoJump => tell(State::NoJump, SupplyNotice::NoJump(tag)),
            Grant::TooFar => {
                tell(State::TooFar, SupplyNotice::TooFar { tag, from: ask.least.max(ask.above) });
                effects.push(SupplyEffect::Unwish { place: at, claim: known.claim, least: ask.least });
            }
        }
    }

    /// Takes out what is left in all places. Returns what can be given back.
    fn take_out<S: SuppliedServer>(&mut self, server: &S) -> Vec<Return> {
        let mut returns = Vec::new();
        for Claimed { place: at, claim, tag, .. } in server.claimed() {
            let Some((place, known)) = server.places().get(at).zip(self.known.get_mut(at)) else { continue };
            let rest = place.take_out();
            let Some(had) = known.had.as_mut().filter(|_| known.claim == claim) else { continue };
            // What is given back, and up to where values were had without it. Two blocks without
            // another server's values between them are one.
            let given = match (rest.current, rest.next) {
                (Some(current), Some(next)) if current.end() == next.first => Some((current.first, current.first)),
                // No value of the next block is drawn. So other servers may also give back what
                // lies immediately before it.
                (_, Some(next)) => Some((next.first, had.before)),
                (current, None) => current.map(|current| (current.first, current.first)),
            };
            let is_last = rest.next.or(rest.current).is_some_and(|last| last.end() == had.above);
            // Before it is sent: whatever the answer, these values do not count any more.
            let nonce = had.nonce.take();
            let (Some((first, above)), Some(was), true) = (given, nonce, is_last) else { continue };
            had.above = above;
            returns.push(Return { tag, id: had.id, was, first, nonce: server.nonce() });
        }
        returns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leaf's rule.
    #[test]
    fn a_step_doubles_if_a_block_lasts_under_15_minutes_and_halves_over_30() {
        let minutes = |minutes: i64| Some(minutes * 60_000);
        let steps = (10, 1000);
        for (step, lasted_ms, next) in [
            (100, None, 100),
            (100, minutes(14), 200),
            (100, minutes(15), 100),
            (100, minutes(30), 100),
            (100, minutes(31), 50),
            (600, minutes(0), 1000),
            (15, minutes(40), 10),
            (5, None, 10),
            (u32::MAX, minutes(1), 1000),
            (100, Some(i64::MIN), 200),
        ] {
            assert_eq!(next_step(step, lasted_ms, steps), next, "{step} after {lasted_ms:?}");
        }
        assert_eq!(next_step(1, minutes(40), (0, 0)), 1);
    }
}
