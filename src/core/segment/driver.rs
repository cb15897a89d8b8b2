//! The loop of the worker with its supply: it performs what the supply wants, and tells it what
//! came of that.
//!
//! ```text
//! request --> step --> effects: report, unwish  (not answered)
//!               ^              read, swap       (answered by the next event)
//!               |              done             (the end)
//!               '--- event <--- perform the last one
//! ```

use super::supply::{SuppliedServer, Supply, SupplyEffect, SupplyEvent, SupplyRequest, SupplyTurn};
use crate::lease::Failure;
use crate::membership::Membership;
use crate::registry::Store;

impl Supply {
    /// Reserves the blocks that are due, many in one swap, and puts them in place. From time to
    /// time, it looks whether the tags are still there.
    ///
    /// # Errors
    /// [`Failure`]. Sessions draw on from the blocks that they have. The caller calls this again
    /// after a moment, and whenever a session says that a block is due.
    pub fn supply<R: Store, S: SuppliedServer>(
        &mut self,
        registry: &R,
        server: &S,
        membership: &mut Membership,
    ) -> Result<(), Failure<R::Error>> {
        self.perform(SupplyRequest::Supply, registry, server, membership, || true).unwrap_or(Ok(()))
    }

    /// Takes out what is left in all places, and gives it back, as far as no other server has
    /// reserved a block after it. Sessions draw nothing from then on, until the next
    /// [`supply`](Self::supply).
    ///
    /// # Errors
    /// [`Failure`]. What was left is lost then, unless the message arrives later.
    pub fn give_back<R: Store, S: SuppliedServer>(
        &mut self,
        registry: &R,
        server: &S,
        membership: &mut Membership,
    ) -> Result<(), Failure<R::Error>> {
        self.perform(SupplyRequest::GiveBack, registry, server, membership, || true).unwrap_or(Ok(()))
    }

    /// Performs a request, for as long as the process `goes_on`, which is asked before and after
    /// each effect. Returns `None` if it has ended. A process may end there; a test lets it.
    pub fn perform<R: Store, S: SuppliedServer>(
        &mut self,
        request: SupplyRequest,
        registry: &R,
        server: &S,
        membership: &mut Membership,
        mut goes_on: impl FnMut() -> bool,
    ) -> Option<Result<(), Failure<R::Error>>> {
        let (mut turn, mut event) = (SupplyTurn::new(request), SupplyEvent::Begin);
        loop {
            let effects = self.step(&mut turn, server, membership, event);
            event = SupplyEvent::Begin;
            for effect in effects {
                if !goes_on() {
                    return None;
                }
                match effect {
                    SupplyEffect::Report(notice) => server.report(notice),
                    SupplyEffect::Unwish { place, claim, least } => server.unwish(place, claim, least),
                    SupplyEffect::Read(wanted) => match registry.read(&wanted) {
                        Ok(reading) => event = SupplyEvent::Read(reading),
                        Err(error) => return Some(Err(Failure::Away(error))),
                    },
                    SupplyEffect::Swap(swap) => match registry.swap(&swap) {
                        Ok(answer) => event = SupplyEvent::Swapped(answer),
                        Err(error) => return Some(Err(Failure::Away(error))),
                    },
                    SupplyEffect::Done(result) => return Some(result.map_err(Failure::without_call)),
                }
                if !goes_on() {
                    return None;
                }
            }
        }
    }
}
