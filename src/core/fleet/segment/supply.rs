//! The supply of blocks: when a block is reserved, how large it is, and what is given back.
//!
//! The supply lies in shared memory, beside the places. One process at a time uses it, which may
//! end at any call (`exchange.rs`). So a block is noted before it is put in place, and what is
//! taken out is noted before it is given back. A process keeps only what it has on its way. If it
//! ends, an answer that it has not noted is lost, and so is what it was to give back.

use super::{Ask, Block, Claimed, Grant, PLACES, Place, Return, State};
use crate::fleet::exchange::{self, Failure, Member, Swapped, ended};
use crate::fleet::membership::Membership;
use crate::fleet::pace::{AGAIN_AFTER_MS, MOST_LOST, MOST_ROUNDS};
use crate::fleet::registry::{MOST_CHANGES, Reading, RecordChange, TagRecord, Wanted};
use crate::fleet::tag::Tag;

/// How long a block should last, in milliseconds (Leaf). A tag's step doubles if a block lasted
/// less than the first, and halves if it lasted longer than the second.
const LASTS_MS: (i64, i64) = (15 * 60_000, 30 * 60_000);

/// How often the registry is asked whether a tag is still there, and still above what this server
/// has had, in milliseconds.
const LOOKED_AT_EVERY_MS: i64 = 10_000;

/// The server that draws from blocks.
pub trait SuppliedServer: Member {
    /// Returns the places, at most [`PLACES`] of them.
    fn places(&self) -> &[Place];

    /// Returns the places that are claimed ([`Directory::claimed`](super::Directory::claimed)). It
    /// takes the directory's lock, and gives it back.
    fn claimed(&self) -> Vec<Claimed>;

    /// Forgets a minimum ([`Directory::drop_minimum`](super::Directory::drop_minimum)).
    fn drop_minimum(&self, place: usize, claim: u64, least: i64);

    /// Returns the time since some instant, in milliseconds. It is never set back while the server
    /// runs. Steps depend on it, and nothing else.
    fn running_ms(&self) -> i64;

    /// Reports what has happened to the operator.
    ///
    /// # Errors
    /// The end of the process.
    fn report(&self, notice: SupplyNotice) -> Result<(), Self::End>;
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
    /// The registry may have forgotten something, and the tag does not jump. Reported once.
    NoJump(Tag),
    /// What this server has had, or a session's minimum, lies too far above the tag's next value.
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
    /// What was left of a tag's blocks is given back.
    GivenBack {
        /// The tag.
        tag: Tag,
        /// The first value of the rest.
        first: i64,
    },
}

/// What the worker knows of a place's tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastSeenTag {
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

impl LastSeenTag {
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
    known: [LastSeenTag; PLACES],
}

impl Supply {
    /// Makes what is known at the start: nothing.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        Self { known: [LastSeenTag::new(0); PLACES] }
    }

    /// Returns what is known of a place's tag under a claim.
    pub fn last_seen(&self, place: usize, claim: u64) -> Option<&LastSeenTag> {
        self.known.get(place).filter(|known| known.claim == claim)
    }

    /// Returns when the registry is next asked whether the tags are still there, in milliseconds
    /// from now; `None` if no tag is in use. The caller calls [`supply`](Self::supply) then.
    pub fn looks_in_ms<S: SuppliedServer>(&self, server: &S) -> Option<i64> {
        let claimed = server.claimed().into_iter();
        let known = claimed.filter_map(|claimed| self.last_seen(claimed.place, claimed.claim));
        let looks_ms = |known: &LastSeenTag| known.answered_ms.saturating_add(LOOKED_AT_EVERY_MS);
        let first_ms = known.filter(|known| known.had.is_some()).map(looks_ms).min()?;
        Some(first_ms.saturating_sub(server.running_ms()).max(0))
    }

    /// Reserves the blocks that are due, many in one swap, and puts them in place. From time to
    /// time, it looks whether the tags are still there.
    ///
    /// # Errors
    /// [`Failure`]. Sessions draw on from the blocks that they have. The caller calls this again
    /// after a moment, and whenever a session says that a block is due.
    pub fn supply<S: SuppliedServer>(
        &mut self,
        server: &S,
        membership: &mut Membership,
    ) -> Result<(), Failure<S::Error>> {
        // The first place that was not asked for yet; and since the registry has answered last, how
        // often it was read, and how often others were first at a tag.
        let (mut from, mut rounds, mut lost) = (0, 0, 0);
        loop {
            let mut asks = self.asks(server, from);
            if asks.is_empty() {
                return Ok(());
            }
            if lost == MOST_LOST || rounds == MOST_ROUNDS {
                return Err(Failure::Contended);
            }
            rounds += 1;
            asks.truncate(MOST_CHANGES);
            let Some(reading) = read(server, membership, asks.iter().map(|(_, ask)| ask.tag))? else { continue };
            let answer = |(place, ask): (usize, Ask)| {
                let record = reading.tags.get(&ask.tag);
                let answer = record.map(|record| record.answer(&ask, &reading.fleet, reading.now_ms));
                let (grant, new) = answer.unwrap_or((Grant::Unknown, None));
                ((place, ask, grant), (ask.tag, new))
            };
            let (granted, new): (Vec<_>, Vec<_>) = asks.into_iter().map(answer).unzip();
            let mut below = granted.iter().filter(|(_, _, grant)| *grant == Grant::Forgot).peekable();
            if below.peek().is_some() {
                report(server, below.map(|(_, ask, _)| SupplyNotice::Below { tag: ask.tag, above: ask.above }))?;
                // No generation has begun since the values were had, or the tag would jump.
                let begun = membership.begins_generation(&reading, server.nonce());
                exchange::write_fleet(server, &reading, begun)?;
                continue;
            }
            match write(server, &reading, &new)? {
                Swapped::Written => {
                    let mut notices = Vec::new();
                    for (place, ask, grant) in granted {
                        from = place + 1;
                        self.receive(server, place, &ask, grant, &mut notices);
                    }
                    // All that the registry has given is noted before.
                    report(server, notices)?;
                    (rounds, lost) = (0, 0);
                }
                Swapped::Refused => lost += 1,
                Swapped::Forgotten => {}
            }
        }
    }

    /// Takes out what is left in all places, and gives it back, as far as no other server has
    /// reserved a block after it. Sessions draw nothing from then on, until the next
    /// [`supply`](Self::supply).
    ///
    /// # Errors
    /// [`Failure`]. What was left is lost then, unless the message arrives later.
    pub fn give_back<S: SuppliedServer>(
        &mut self,
        server: &S,
        membership: &mut Membership,
    ) -> Result<(), Failure<S::Error>> {
        let mut returns = self.take_out(server);
        // A tag falls out once another server was first at it, so that this ends by itself.
        let mut rounds = 0..MOST_ROUNDS;
        while !returns.is_empty() {
            rounds.next().ok_or(Failure::Contended)?;
            let some = &returns[..returns.len().min(MOST_CHANGES)];
            let Some(reading) = read(server, membership, some.iter().map(|given| given.tag))? else { continue };
            let take_back = |given: &Return| {
                let record = reading.tags.get(&given.tag);
                (given.tag, record.and_then(|record| record.take_back(given, &reading.fleet, reading.now_ms)))
            };
            let new: Vec<_> = some.iter().map(take_back).collect();
            if write(server, &reading, &new)? == Swapped::Written {
                returns.drain(..new.len());
                rounds = 0..MOST_ROUNDS;
                let given = new.into_iter().filter_map(|(tag, new)| Some((tag, new?.next)));
                report(server, given.map(|(tag, first)| SupplyNotice::GivenBack { tag, first }))?;
            }
        }
        Ok(())
    }

    /// Returns what is to be asked for places from this one on.
    fn asks<S: SuppliedServer>(&mut self, server: &S, from: usize) -> Vec<(usize, Ask)> {
        let now_ms = server.running_ms();
        let claimed = server.claimed().into_iter().filter(|claimed| (from..PLACES).contains(&claimed.place));
        claimed.filter_map(|claimed| Some((claimed.place, self.ask(server, claimed, now_ms)?))).collect()
    }

    fn ask<S: SuppliedServer>(&mut self, server: &S, claimed: Claimed, now_ms: i64) -> Option<Ask> {
        let Claimed { place: at, claim, tag, least } = claimed;
        let (place, known) = (server.places().get(at)?, &mut self.known[at]);
        if known.claim != claim {
            *known = LastSeenTag::new(claim);
        }
        let since_ms = now_ms.saturating_sub(known.answered_ms);
        let needs_refill = place.room().is_some() && place.needs_refill();
        if needs_refill {
            known.wanted_ms.get_or_insert(now_ms);
        }
        let asks = match place.state() {
            State::Ended | State::NoJump | State::TooFar => needs_refill && since_ms >= AGAIN_AFTER_MS,
            _ => needs_refill,
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

    /// Takes the registry's answer for a place, when all that it says is written.
    fn receive<S: SuppliedServer>(
        &mut self,
        server: &S,
        at: usize,
        ask: &Ask,
        grant: Grant,
        notices: &mut Vec<SupplyNotice>,
    ) {
        let Some(place) = server.places().get(at) else { return };
        let (known, tag) = (&mut self.known[at], ask.tag);
        known.answered_ms = server.running_ms();
        let mut report = |notice| notices.push(notice);
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
                server.drop_minimum(at, known.claim, ask.least);
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

/// Reads tags as a member of a fleet that is not closed. Returns `None` if something of the fleet
/// had to be written first.
fn read<S: SuppliedServer>(
    server: &S,
    membership: &mut Membership,
    tags: impl Iterator<Item = Tag>,
) -> Result<Option<Reading>, Failure<S::Error>> {
    let reading = exchange::read(server, membership, &Wanted::tags(tags.collect()))?;
    if reading.fleet.closed {
        return Err(Failure::Closed);
    }
    match membership.amends(&reading, &server.member(), server.nonce()) {
        Some(amended) => exchange::write_fleet(server, &reading, amended).map(|()| None),
        None => Ok(Some(reading)),
    }
}

/// Writes the tags' records that are new.
fn write<S: SuppliedServer>(
    server: &S,
    reading: &Reading,
    new: &[(Tag, Option<TagRecord>)],
) -> Result<Swapped, Failure<S::Error>> {
    let was = |tag| reading.tags.get(&tag).map(|record| record.nonce);
    let change = |&(tag, new): &(Tag, Option<_>)| new.map(|_| RecordChange::Tag { tag, was: was(tag), record: new });
    let changes: Vec<_> = new.iter().filter_map(change).collect();
    if changes.is_empty() {
        return Ok(Swapped::Written);
    }
    exchange::swap(server, reading, changes).map_err(Failure::Away)
}

fn report<S: SuppliedServer>(
    server: &S,
    notices: impl IntoIterator<Item = SupplyNotice>,
) -> Result<(), Failure<S::Error>> {
    notices.into_iter().try_for_each(|notice| server.report(notice)).map_err(ended::<S>)
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
