//! The supply of blocks: when a block is reserved, how large it is, and what is given back.
//!
//! A [`Supply`] lies in shared memory, beside the places. One process at a time uses it, the
//! worker, which may end between any two statements. So what is learnt of a block is noted before
//! the block is put in place, and what is given back is taken out and noted before it is sent. A
//! block that was reserved and not put in place is lost.

use super::{Ask, Block, Claimed, GiveBack, Grant, Granted, PLACES, Place, Reserve, Return, State, Tag, TagRegistry};
use crate::lease::Failure;
use crate::pace::{AGAIN_AFTER_MS, MOST_ROUNDS};
use crate::registry::{Change, Fleet, Incarnation, MemberTerms, Reading, SinceIncarnation, Swap, SwapAnswer, Wanted};

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

/// What the worker knows of a place's tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownTag {
    /// Which claim of the place this is about.
    claim: u64,
    /// The tag's id in the registry, once a block was reserved.
    id: Option<u64>,
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
    /// How many blocks were had.
    blocks: u64,
    /// Since when the next block is wanted.
    wanted_ms: Option<i64>,
    /// When the last block was wanted.
    was_wanted_ms: i64,
    /// How long the last block but one has lasted.
    lasted_ms: Option<i64>,
    /// When the registry has answered last.
    answered_ms: i64,
}

impl KnownTag {
    fn new(claim: u64) -> Self {
        Self {
            claim,
            id: None,
            above: i64::MIN,
            before: i64::MIN,
            generation: 0,
            nonce: None,
            step: 0,
            blocks: 0,
            wanted_ms: None,
            was_wanted_ms: 0,
            lasted_ms: None,
            answered_ms: i64::MIN,
        }
    }

    /// Returns the tag's id in the registry, if a block was reserved.
    pub fn id(&self) -> Option<u64> {
        self.id
    }

    /// Returns how many values the next block should have, within the tag's steps; 0 for the least.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// Returns how many blocks this server has had.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns how long a block has lasted, in milliseconds, as far as one was used up.
    pub fn lasted_ms(&self) -> Option<i64> {
        self.lasted_ms
    }

    /// Notes a block, before it is put in place.
    fn note(&mut self, id: u64, block: Block, steps: (u32, u32), generation: u64, nonce: u64) {
        // First up to where values are had: should the process end here, the block is lost.
        self.before = self.above;
        self.above = block.end();
        (self.id, self.generation, self.nonce) = (Some(id), generation, Some(nonce));
        let wanted_ms = self.wanted_ms.take().unwrap_or(self.was_wanted_ms);
        // Between the first two blocks lies only a tenth of one.
        self.lasted_ms = (self.blocks > 1).then(|| wanted_ms.saturating_sub(self.was_wanted_ms));
        self.step = next_step(block.count, self.lasted_ms, steps);
        self.was_wanted_ms = wanted_ms;
        self.blocks += 1;
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

/// The registry as it was read last: what every call compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    version: u64,
    incarnation: Incarnation,
}

/// What the worker of one life of shared memory knows of its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supply {
    /// Which fleet this life belongs to, once it has read a registry.
    fleet: Option<u128>,
    seen: Option<Seen>,
    known: [KnownTag; PLACES],
}

impl Supply {
    /// Makes what is known at the start: nothing.
    #[allow(clippy::new_without_default, reason = "made once, in shared memory; a default would hide that")]
    pub fn new() -> Self {
        Self { fleet: None, seen: None, known: [KnownTag::new(0); PLACES] }
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
        let first_ms = known.filter(|known| known.id.is_some()).map(looks_ms).min()?;
        Some(first_ms.saturating_sub(server.running_ms()).max(0))
    }

    /// Reserves the blocks that are due, all in one call, and puts them in place. From time to
    /// time, it looks whether the tags are still there.
    ///
    /// # Errors
    /// [`Failure`]. Sessions draw on from the blocks that they have. The caller calls this again
    /// after a moment, and whenever a session says that a block is due.
    pub fn supply<R: TagRegistry, S: SuppliedServer>(
        &mut self,
        registry: &R,
        server: &S,
    ) -> Result<(), Failure<R::Error>> {
        for _ in 0..MOST_ROUNDS {
            let (places, asks): (Vec<usize>, Vec<Ask>) = self.asks(server).into_iter().unzip();
            if asks.is_empty() {
                return Ok(());
            }
            let Some(seen) = self.look(registry, server)? else { continue };
            let reserve = Reserve { fleet: seen.version, incarnation: seen.incarnation, asks };
            let Some(grants) = self.as_seen(seen, registry.reserve(&reserve).map_err(Failure::Away)?) else {
                continue;
            };
            let mut forgot = None;
            for ((place, ask), grant) in places.into_iter().zip(&reserve.asks).zip(grants) {
                if grant == Grant::Forgot {
                    server.report(SupplyNotice::Below { tag: ask.tag, above: ask.above });
                    forgot = forgot.max(Some(ask.generation));
                }
                self.receive(server, place, ask, grant);
            }
            let Some(generation) = forgot else { return Ok(()) };
            self.begin_generation(registry, server, generation)?;
        }
        Err(Failure::Contended)
    }

    /// Takes out what is left in all places, and gives it back, as far as no other server has
    /// reserved a block after it. Sessions draw nothing from then on, until the next
    /// [`supply`](Self::supply).
    ///
    /// # Errors
    /// [`Failure`]. What was left is lost then, unless the message arrives later.
    pub fn give_back<R: TagRegistry, S: SuppliedServer>(
        &mut self,
        registry: &R,
        server: &S,
    ) -> Result<(), Failure<R::Error>> {
        let returns = self.take_out(server);
        for _ in 0..MOST_ROUNDS {
            if returns.is_empty() {
                return Ok(());
            }
            let Some(seen) = self.look(registry, server)? else { continue };
            let give_back = GiveBack { fleet: seen.version, incarnation: seen.incarnation, returns: returns.clone() };
            let answer = registry.give_back(&give_back).map_err(Failure::Away)?;
            let Some(taken) = self.as_seen(seen, answer) else { continue };
            for (given, first) in returns.iter().zip(taken) {
                if let Some(first) = first {
                    server.report(SupplyNotice::GivenBack { tag: given.tag, first });
                }
            }
            return Ok(());
        }
        Err(Failure::Contended)
    }

    /// Returns what is to be asked, and for which places.
    fn asks<S: SuppliedServer>(&mut self, server: &S) -> Vec<(usize, Ask)> {
        let now_ms = server.running_ms();
        let claimed = server.claimed().into_iter().filter(|claimed| claimed.place < PLACES);
        claimed.filter_map(|claimed| Some((claimed.place, self.ask(server, claimed, now_ms)?))).collect()
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
        let looks = known.id.is_some() && since_ms >= LOOKED_AT_EVERY_MS;
        let step = asks.then_some(known.step);
        (asks || looks).then(|| {
            let KnownTag { id, above, generation, nonce: was, .. } = *known;
            Ask { tag, id, step, above, least, generation, was, nonce: server.nonce() }
        })
    }

    /// Takes the registry's answer for a place.
    fn receive<S: SuppliedServer>(&mut self, server: &S, at: usize, ask: &Ask, grant: Grant) {
        let Some(place) = server.places().get(at) else { return };
        let (known, tag) = (&mut self.known[at], ask.tag);
        known.answered_ms = server.running_ms();
        let tell = |state, notice| {
            if place.state() != state {
                place.tell(state);
                server.report(notice);
            }
        };
        match grant {
            Grant::Block { id, steps, block, generation, skipped } => {
                let is_same = known.id.is_none_or(|known| known == id);
                let is_right = is_same && block.is_possible() && block.first >= known.above;
                // No claim ends while a block is reserved: only this process frees a place.
                let room = place.room().filter(|_| is_right && place.claimed() == known.claim);
                let Some(room) = room else { return server.report(SupplyNotice::Unusable { tag, block }) };
                known.note(id, block, steps, generation, ask.nonce);
                place.fill(room, block);
                if skipped > 0 {
                    server.report(SupplyNotice::Jumped { tag, skipped, to: block.first });
                }
            }
            // An operator has said where it goes on.
            Grant::Known if place.state() == State::NoJump => place.tell(State::Open),
            Grant::Known | Grant::Forgot => {}
            Grant::Unknown => {
                place.free();
                if known.id.is_some() {
                    server.report(SupplyNotice::Gone(tag));
                }
            }
            Grant::Ended => tell(State::Ended, SupplyNotice::Ended(tag)),
            Grant::NoJump => tell(State::NoJump, SupplyNotice::NoJump(tag)),
            Grant::TooFar => {
                tell(State::TooFar, SupplyNotice::TooFar { tag, from: ask.least.max(ask.above) });
                server.unwish(at, known.claim, ask.least);
            }
        }
    }

    /// Takes out what is left in all places. Returns what can be given back.
    fn take_out<S: SuppliedServer>(&mut self, server: &S) -> Vec<Return> {
        let mut returns = Vec::new();
        for Claimed { place: at, claim, tag, .. } in server.claimed() {
            let Some((place, known)) = server.places().get(at).zip(self.known.get_mut(at)) else { continue };
            let rest = place.take_out();
            // What is given back, and up to where values were had without it. Two blocks without
            // another server's values between them are one.
            let given = match (rest.current, rest.next) {
                (Some(current), Some(next)) if current.end() == next.first => Some((current.first, current.first)),
                // No value of the next block is drawn. So other servers may also give back what
                // lies immediately before it.
                (_, Some(next)) => Some((next.first, known.before)),
                (current, None) => current.map(|current| (current.first, current.first)),
            };
            let last = rest.next.or(rest.current);
            let is_last = known.claim == claim && last.is_some_and(|last| last.end() == known.above);
            // Before it is sent: whatever the answer, these values do not count any more.
            let nonce = known.nonce.take();
            let (Some((first, above)), Some(was), Some(id), true) = (given, nonce, known.id, is_last) else { continue };
            known.above = above;
            returns.push(Return { tag, id, was, first, nonce: server.nonce() });
        }
        returns
    }

    /// Returns the answers, if the registry is the one that was read. Otherwise it is read again
    /// before the next call.
    fn as_seen<T>(&mut self, seen: Seen, granted: Option<Granted<T>>) -> Option<Vec<T>> {
        let granted = granted.filter(|granted| granted.incarnation.since(&seen.incarnation) == SinceIncarnation::Same);
        if granted.is_none() {
            self.seen = None;
        }
        granted.map(|granted| granted.answers)
    }

    /// Returns the registry as it was read last, or reads it. Returns `None` if it has to be read
    /// again, because the fleet's record had to be written first.
    fn look<R: TagRegistry, S: SuppliedServer>(
        &mut self,
        registry: &R,
        server: &S,
    ) -> Result<Option<Seen>, Failure<R::Error>> {
        if self.seen.is_none() {
            let reading = self.read(registry)?;
            if let Some(new) = reading.fleet.amended(&reading, &server.member(), server.nonce()) {
                write_fleet(registry, server, &reading, new)?;
                return Ok(None);
            }
            self.seen = Some(Seen { version: reading.fleet.version, incarnation: reading.incarnation });
        }
        Ok(self.seen)
    }

    /// Begins a generation, because the registry has forgotten what was had in `generation`, unless
    /// one has begun since.
    fn begin_generation<R: TagRegistry, S: SuppliedServer>(
        &mut self,
        registry: &R,
        server: &S,
        generation: u64,
    ) -> Result<(), Failure<R::Error>> {
        self.seen = None;
        let reading = self.read(registry)?;
        if reading.fleet.generation > generation {
            return Ok(());
        }
        let Reading { fleet, incarnation, now_ms, .. } = &reading;
        let new = fleet.begin_generation(*incarnation, *now_ms, server.member().limits, server.nonce());
        write_fleet(registry, server, &reading, new)
    }

    /// Reads the registry. Refuses another fleet than the one that this life has first read, and
    /// one that is closed.
    fn read<R: TagRegistry>(&mut self, registry: &R) -> Result<Reading, Failure<R::Error>> {
        // Any number will do: only the fleet's record is wanted.
        let reading = registry.read(Wanted::Number(0)).map_err(Failure::Away)?;
        let (known, found) = (*self.fleet.get_or_insert(reading.fleet.uuid), reading.fleet.uuid);
        if known != found {
            return Err(Failure::OtherFleet { known, found });
        }
        if reading.fleet.closed { Err(Failure::Closed) } else { Ok(reading) }
    }
}

/// Writes the fleet's record, if nothing has changed since it was read.
fn write_fleet<R: TagRegistry, S: SuppliedServer>(
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
    if new.generation != old.generation {
        server.report(SupplyNotice::Forgot(new));
    } else if new.layout != old.layout {
        server.report(SupplyNotice::Adopted(new));
    }
    Ok(())
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
