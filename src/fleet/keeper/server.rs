//! This server and its registry, as the core sees them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use snowflake_core::clock::Clock;
use snowflake_core::fleet::exchange::Member;
use snowflake_core::fleet::lease::{self, Holder, LeaseNotice, LeasingServer, SharedWords};
use snowflake_core::fleet::membership::FleetNotice;
use snowflake_core::fleet::page::Kept;
use snowflake_core::fleet::registry::{MemberTerms, Reading, Store, Swap, SwapAnswer, Wanted, WantedTags};
use snowflake_core::fleet::segment::{Claimed, Place, SuppliedServer, SupplyNotice};
use snowflake_core::id::layout::Layout;
use snowflake_registry::{Config, MemberName, RegistryError};

use super::{Keeper, notes};
use crate::error::{Sent, fleet as texts};
use crate::ids::stamp;
use crate::postgres::backend::{self, WallClock};
use crate::settings::guc;
use crate::shared::page::PageError;
use crate::shared::shmem;

/// How long one step of a call of the registry may take: connecting, or a statement.
const STEP: Duration = Duration::from_secs(5);

/// Returns where the registry is, and which server this is.
pub(super) fn config(secret: u128) -> Config {
    let (host, port) = backend::host_and_port();
    Config {
        conninfo: guc::registry(),
        fleet: guc::fleet(),
        member: MemberName {
            host,
            port,
            cluster_name: backend::cluster_name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        secret,
        operator: false,
        timeout: STEP,
    }
}

/// Returns what this server's clock says, in milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    WallClock.now_ms()
}

impl Clock for Keeper<'_> {
    fn now_ms(&self) -> i64 {
        now_ms()
    }
}

impl Member for Keeper<'_> {
    type End = PageError;

    fn member(&self) -> MemberTerms {
        lease::member(self.layout, stamp::has_backup())
    }

    fn nonce(&self) -> u64 {
        self.nonces.set(self.nonces.get() + 1);
        let mut hasher = DefaultHasher::new();
        // Two copies of one memory may get the same random bits, but have no common connection.
        (backend::random_bits(), backend::random_bits(), backend::pid(), self.nonces.get()).hash(&mut hasher);
        (self.registry.borrow().connection_id(), Instant::now()).hash(&mut hasher);
        hasher.finish()
    }

    fn report_fleet(&self, notice: FleetNotice) -> Result<(), PageError> {
        let (level, report) = texts::fleet_notice(&notice);
        report.report(level);
        Ok(())
    }
}

impl LeasingServer for Keeper<'_> {
    fn layout(&self) -> &Layout {
        self.layout
    }

    fn datacenter(&self) -> Option<i64> {
        stamp::datacenter()
    }

    fn has_backup(&self) -> bool {
        stamp::has_backup()
    }

    fn words(&self) -> SharedWords<'_> {
        self.words
    }

    fn saves(&self, holder: &Holder) -> Result<(), PageError> {
        shmem::keep(self.made_for.get(), &Kept { holder: *holder, secret: self.secret })
    }

    fn report(&self, notice: LeaseNotice) -> Result<(), PageError> {
        notes::report(&notice, self.status.get().fleet);
        Ok(())
    }
}

impl SuppliedServer for Keeper<'_> {
    fn places(&self) -> &[Place] {
        self.tags.places()
    }

    fn claimed(&self) -> Vec<Claimed> {
        self.tags.claimed()
    }

    fn drop_minimum(&self, place: usize, claim: u64, least: i64) {
        self.tags.drop_minimum(place, claim, least);
    }

    fn running_ms(&self) -> i64 {
        backend::boot_ms()
    }

    fn report(&self, notice: SupplyNotice) -> Result<(), PageError> {
        let (level, report) = texts::supply_notice(&notice);
        report.report(level);
        Ok(())
    }
}

impl Store for Keeper<'_> {
    type Error = RegistryError;

    fn read(&self, wanted: &Wanted) -> Result<Reading, RegistryError> {
        if wanted.tags != WantedTags::None {
            self.asked.set(self.asked.get() + 1);
        }
        let reading = self.registry.borrow().read(wanted)?;
        self.note_reading(wanted, &reading);
        Ok(reading)
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, RegistryError> {
        let answer = self.registry.borrow().swap(swap)?;
        if let SwapAnswer::Done(_) = answer {
            self.note_swap(swap);
        }
        Ok(answer)
    }
}
