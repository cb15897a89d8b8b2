//! The worker's part of segments: it reserves blocks of the tags that sessions draw from, and gives
//! the rest back at the end.
//!
//! What is reserved, and when, the core decides (`core/segment/supply.rs`). Sessions wake the
//! worker when a block is due. A registry that does not answer holds up the lease and the blocks
//! alike: this process asks for both, over one connection.

use pgrx::prelude::*;
use snowflake_core::clock::Clock;
use snowflake_core::lease::{self, Failure};
use snowflake_core::registry::MemberTerms;
use snowflake_core::segment::{
    Claimed, GiveBack, Grant, Granted, Place, Reserve, SuppliedServer, Supply, SupplyNotice, TagRegistry,
};
use snowflake_registry as registry;

use super::notes::{kept, own, worded};
use super::{Keeper, again_in_ms};
use crate::error::fleet as texts;
use crate::ids::stamp;
use crate::ids::stats::MINUTE_MS;
use crate::postgres::backend;
use crate::settings::guc;
use crate::shared::shmem::{self, Topic};
use crate::shared::tags::Failing;

impl Keeper<'_> {
    /// Reserves the blocks that are due. Returns when to come again, in milliseconds from now.
    pub(super) fn supply(&self, supply: &mut Supply) -> i64 {
        let now_ms = backend::boot_ms();
        if now_ms < self.supplies_at_ms.get() {
            return self.supplies_at_ms.get() - now_ms;
        }
        let asked = self.asked.get();
        let result = supply.supply(self, self);
        if self.asked.get() != asked {
            self.tags.show(supply);
        }
        match result {
            // Another block may have become due during the call, which has used up the wake-up.
            Ok(()) if self.asked.get() != asked => {
                self.note_supplied();
                self.supply_pace.take();
                0
            }
            Ok(()) => supply.looks_in_ms(self).unwrap_or(i64::MAX),
            Err(failure) => {
                self.note_not_supplied(&failure);
                let wait_ms = again_in_ms(&self.supply_pace, &failure);
                self.supplies_at_ms.set(backend::boot_ms().saturating_add(wait_ms));
                wait_ms
            }
        }
    }

    /// Gives back what is left of all blocks, as far as that is possible.
    pub(super) fn give_back_blocks(&self, supply: &mut Supply) {
        let has_tags = !self.tags.claimed().is_empty();
        if let Err(failure) = supply.give_back(self, self)
            && has_tags
        {
            texts::blocks_kept(&failure, guc::registry_kind(), own()).report(PgLogLevel::LOG);
        }
    }

    fn note_supplied(&self) {
        if let Some(Failing { since_ms, .. }) = self.tags.note_failing(None) {
            texts::supplies_again(since_ms).report(PgLogLevel::LOG);
        }
    }

    /// Notes and logs a failure: the first, and then once a minute.
    fn note_not_supplied(&self, failure: &Failure<registry::RegistryError>) {
        let worded = worded(failure);
        let error = kept(&worded);
        let before = self.tags.failing();
        let since_ms = before.map_or_else(|| self.now_ms(), |failing| failing.since_ms);
        self.tags.note_failing(Some(Failing { since_ms, error }));
        let is_due = shmem::is_due(Topic::SupplyFails, MINUTE_MS);
        if !self.worker.is_ending() && (before.is_none() || is_due) {
            texts::with_consequence(texts::NO_BLOCKS, worded).report(PgLogLevel::WARNING);
        }
    }
}

impl TagRegistry for Keeper<'_> {
    fn reserve(&self, reserve: &Reserve) -> Result<Option<Granted<Grant>>, registry::RegistryError> {
        self.asked.set(self.asked.get() + 1);
        self.registry.borrow().reserve(reserve)
    }

    fn give_back(&self, give_back: &GiveBack) -> Result<Option<Granted<Option<i64>>>, registry::RegistryError> {
        self.registry.borrow().give_back(give_back)
    }
}

impl SuppliedServer for Keeper<'_> {
    fn places(&self) -> &[Place] {
        self.tags.places()
    }

    fn claimed(&self) -> Vec<Claimed> {
        self.tags.claimed()
    }

    fn unwish(&self, place: usize, claim: u64, least: i64) {
        self.tags.unwish(place, claim, least);
    }

    fn member(&self) -> MemberTerms {
        lease::member(self.layout, stamp::has_backup(), self.limits.get())
    }

    fn running_ms(&self) -> i64 {
        backend::boot_ms()
    }

    fn nonce(&self) -> u64 {
        lease::LeasingServer::nonce(self)
    }

    fn report(&self, notice: SupplyNotice) {
        match &notice {
            SupplyNotice::Adopted(fleet) => lease::LeasingServer::report(self, lease::LeaseNotice::Adopted(*fleet)),
            SupplyNotice::Forgot(fleet) => lease::LeasingServer::report(self, lease::LeaseNotice::Forgot(*fleet)),
            _ => {}
        }
        if let Some((level, report)) = texts::supply_notice(&notice) {
            report.report(level);
        }
    }
}
