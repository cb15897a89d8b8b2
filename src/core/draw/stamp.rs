//! What a server draws with: the layout, its numbers, and how long it may draw with them.

use crate::id::identity::Identity;
use crate::id::layout::Layout;
use crate::id::parts::IdError;

/// The end of numbers that are drawn with for good, in milliseconds since 1970.
pub const NO_END: i64 = i64::MAX;

/// What ids are drawn with: a layout, a server's numbers in their place there, and how long they
/// may be drawn with. They are one value, so that numbers are never composed with another layout or
/// drawn beyond their own end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdStamp {
    layout: Layout,
    identity: Identity,
    until_ms: i64,
    fleet: Option<i64>,
    version: u64,
}

impl IdStamp {
    /// Checks a server's numbers against its layout. They never end and never change.
    ///
    /// # Errors
    /// As for [`Identity::new`].
    pub fn new(layout: Layout, worker: Option<i64>, datacenter: Option<i64>, backup: bool) -> Result<Self, IdError> {
        let identity = Identity::new(&layout, worker, datacenter, backup)?;
        Ok(Self { layout, identity, until_ms: NO_END, fleet: None, version: 0 })
    }

    /// Puts together what [`Numbers`](crate::draw::numbers::Numbers) hold at one moment.
    pub(crate) fn leased(layout: Layout, identity: Identity, until_ms: i64, fleet: i64, version: u64) -> Self {
        Self { layout, identity, until_ms, fleet: Some(fleet), version }
    }

    /// Returns the layout.
    #[inline(always)]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the server's numbers.
    #[inline(always)]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the instant at which the last tick of these numbers ends, in milliseconds since
    /// 1970; [`NO_END`] if they are not leased.
    #[inline]
    pub fn until_ms(&self) -> i64 {
        self.until_ms
    }

    /// Whether the numbers are leased, and not set in the configuration.
    pub fn is_leased(&self) -> bool {
        self.fleet.is_some()
    }

    /// Returns the fleet that leases the numbers
    /// ([`Fleet::code`](crate::fleet::registry::Fleet::code)); `None` for configured ones.
    pub fn fleet(&self) -> Option<i64> {
        self.fleet
    }

    /// Returns the version of the [`Numbers`](crate::draw::numbers::Numbers) that this was read
    /// from; 0 for numbers that never change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Packs the numbers into one integer; see [`Identity::code`].
    pub fn code(&self) -> i64 {
        self.identity.code(&self.layout)
    }
}
