//! The loop of a process with its holder: it performs what the holder wants, and tells it what came
//! of that.
//!
//! ```text
//! request --> step --> effects: report, extend           (not answered)
//!               ^              enter, leave, read, swap  (answered by the next event)
//!               |              done                      (the end)
//!               '--- event <--- perform the last one
//! ```
//!
//! A call of the registry without an answer ends the turn. What was to be done is kept in the
//! holder, and the next turn goes on with it.

use super::holder::{Effect, Event, Facts, Holder, Nonces, Request, Turn};
use super::{Failure, LeaseTerms, LeasingServer, SharedWords};
use crate::registry::{Reading, Store, Swap, SwapAnswer, Wanted};

/// No registry, for a request that needs none.
struct NoRegistry;

impl Store for NoRegistry {
    type Error = ();

    fn read(&self, _: &Wanted) -> Result<Reading, ()> {
        Err(())
    }

    fn swap(&self, _: &Swap) -> Result<SwapAnswer, ()> {
        Err(())
    }
}

impl Holder {
    /// Begins to draw with the next lease, if the clock has reached it. Needs no registry.
    pub fn enter<S: LeasingServer>(&mut self, server: &S, terms: &LeaseTerms) {
        // Without a registry, there is nothing that can fail.
        let _ = self.perform(Request::Enter, &NoRegistry, server, terms, || true);
    }

    /// Renews what is held, or acquires a number, as far as that can be done now. What is acquired
    /// may begin later than what is held ends: [`gap`](Self::gap).
    ///
    /// # Errors
    /// [`Failure`]. What is held may be drawn with all the same.
    pub fn keep<R: Store, S: LeasingServer>(
        &mut self,
        registry: &R,
        server: &S,
        terms: &LeaseTerms,
    ) -> Result<(), Failure<R::Error>> {
        self.perform(Request::Keep, registry, server, terms, || true).unwrap_or(Ok(()))
    }

    /// Gives back all that is held, will be held, or was asked for without an answer; what is held
    /// from the tick after the last one in which an id was drawn. Draws nothing from then on,
    /// whatever the registry answers; [`keep`](Self::keep) acquires a number again.
    ///
    /// # Errors
    /// [`Failure`]. Up to three numbers stay leased then, each up to its end or until the message
    /// arrives: what was held, what was to be held next, and what was asked for, if the request
    /// has arrived or will. The caller may call this again, and `keep` does the rest first.
    pub fn give_back<R: Store, S: LeasingServer>(&mut self, registry: &R, server: &S) -> Result<(), Failure<R::Error>> {
        // What ids may borrow does not matter to what is given back.
        self.perform(Request::GiveBack, registry, server, &LeaseTerms { max_borrow_ms: 0 }, || true).unwrap_or(Ok(()))
    }

    /// Returns in how many milliseconds [`enter`](Self::enter) will begin to draw with the next
    /// lease, if there is one; 0 for now. The caller must not vary this.
    pub fn enters_in_ms<S: LeasingServer>(&self, server: &S, terms: &LeaseTerms) -> Option<i64> {
        self.begins_in_ms(&facts(server, terms, Nonces::default()))
    }

    /// Performs a request, for as long as the process `goes_on`, which is asked before and after
    /// each effect. Returns `None` if it has ended. A process may end there; a test lets it.
    pub fn perform<R: Store, S: LeasingServer>(
        &mut self,
        request: Request,
        registry: &R,
        server: &S,
        terms: &LeaseTerms,
        mut goes_on: impl FnMut() -> bool,
    ) -> Option<Result<(), Failure<R::Error>>> {
        let (mut turn, mut event) = (Turn::new(request), Event::Begin);
        loop {
            let effects = self.step(&mut turn, &facts(server, terms, nonces(server)), event);
            event = Event::Begin;
            for effect in effects {
                if !goes_on() {
                    return None;
                }
                let SharedWords { numbers, generator, marks } = server.words();
                match effect {
                    Effect::Report(notice) => server.report(notice),
                    Effect::Extend(until_ms) => numbers.extend(until_ms),
                    Effect::Enter(span) => {
                        numbers.enter(marks, generator, server.layout(), &span);
                        event = Event::Entered;
                    }
                    Effect::Leave => event = Event::Left(numbers.leave(marks, generator, server.layout())),
                    Effect::Read(wanted) => {
                        let before_ms = server.now_ms();
                        match registry.read(&wanted) {
                            Ok(reading) => event = Event::Read { reading, before_ms },
                            Err(error) => return Some(Err(Failure::Away(error))),
                        }
                    }
                    Effect::Swap(swap) => match registry.swap(&swap) {
                        Ok(answer) => event = Event::Swapped(answer),
                        Err(error) => return Some(Err(Failure::Away(error))),
                    },
                    Effect::Done(result) => return Some(result.map_err(Failure::without_call)),
                }
                if !goes_on() {
                    return None;
                }
            }
        }
    }
}

fn facts<'a, S: LeasingServer>(server: &'a S, terms: &LeaseTerms, nonces: Nonces) -> Facts<'a> {
    Facts {
        layout: server.layout(),
        datacenter: server.datacenter(),
        has_backup: server.has_backup(),
        terms: *terms,
        now_ms: server.now_ms(),
        nonces,
    }
}

fn nonces<S: LeasingServer>(server: &S) -> Nonces {
    let nonce = || server.nonce();
    Nonces { version: nonce(), proposals: [nonce(), nonce()], name: [nonce(), nonce()], choice: nonce() }
}
