//! What a server draws with: the layout, the numbers that every id of the server carries, and the
//! code in which a database stores these numbers.
//!
//! `identity` is the word in code; people read "number". Nothing here is atomic or changes: a
//! server that gets other numbers gets another [`Identity`], and with it another [`IdStamp`]. Where
//! the present one stands, and how it changes while sessions draw: `numbers.rs`.

use crate::id::IdError;
use crate::layout::{Field, Layout};

/// Which of a server's two lanes. It is as wide as a word, because a byte within
/// [`IdRun`](crate::generator::IdRun) made copying a run stall for some nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum LaneName {
    /// Exists on every server; composes the server's worker number.
    Primary,
    /// Used with backup workers; composes the worker number + half of the numbers.
    Backup,
}

impl LaneName {
    /// Both lanes.
    pub const ALL: [Self; 2] = [Self::Primary, Self::Backup];

    /// Returns the other lane.
    pub fn other(self) -> Self {
        match self {
            Self::Primary => Self::Backup,
            Self::Backup => Self::Primary,
        }
    }
}

/// The numbers that every id of a server carries, checked against the layout and shifted into
/// place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The datacenter and worker bits of the primary lane and of the backup lane.
    fixed: [u64; 2],
    backup: bool,
}

impl Identity {
    /// Checks a server's numbers. A number is `None` if the layout lacks its field, and only then.
    ///
    /// With `backup`, the upper half of the worker numbers belongs to backup lanes, so `worker`
    /// must be in `0..half`.
    ///
    /// # Errors
    /// [`IdError::Part`] with the range that is valid (halved with `backup`),
    /// [`IdError::PartMissing`], [`IdError::NoField`], [`IdError::NoBackup`].
    pub fn new(layout: &Layout, worker: Option<i64>, datacenter: Option<i64>, backup: bool) -> Result<Self, IdError> {
        let numbers = Self::worker_numbers(layout, backup)?;
        if let Some(value) = worker.filter(|value| backup && !(0..numbers).contains(value)) {
            return Err(IdError::Part { field: Field::Worker, value, max: numbers - 1 });
        }
        // I6: with backup workers, primary lanes of the fleet use 0..half and backup lanes
        // half..2*half.
        let of_backup = worker.map(|value| if backup { value + numbers } else { value });
        Ok(Self { fixed: [layout.fixed_bits(datacenter, worker)?, layout.fixed_bits(datacenter, of_backup)?], backup })
    }

    /// Returns how many servers the layout can number: 2^bits, or half of it with backup workers; 1
    /// without a worker field.
    ///
    /// # Errors
    /// [`IdError::NoBackup`] for backup workers in a layout without a worker field.
    pub fn worker_numbers(layout: &Layout, backup: bool) -> Result<i64, IdError> {
        match (layout.max_of(Field::Worker), backup) {
            (None, true) => Err(IdError::NoBackup),
            (max, _) => Ok((max.unwrap_or(0) as i64 + 1) >> u32::from(backup)),
        }
    }

    /// Whether the server has a backup lane.
    #[inline(always)]
    pub fn has_backup(&self) -> bool {
        self.backup
    }

    /// Returns the datacenter and worker bits of a lane, in place.
    #[inline(always)]
    pub(crate) fn fixed(&self, lane: LaneName) -> u64 {
        self.fixed[lane as usize]
    }

    /// Returns the server's number in a field, 0 if the layout lacks the field.
    pub fn number(&self, layout: &Layout, field: Field) -> u64 {
        let bits = layout.field(field);
        self.fixed[LaneName::Primary as usize] >> bits.shift & bits.max()
    }

    /// Whether two servers can compose the same id at the same time.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.fixed.iter().any(|fixed| other.fixed.contains(fixed))
    }

    /// Packs the numbers into one integer, as a database stores them: the worker (31 bits), the
    /// datacenter (31 bits), whether there is a backup lane (1 bit).
    pub fn code(&self, layout: &Layout) -> i64 {
        let number = |field| self.number(layout, field) as i64;
        number(Field::Worker) << 32 | number(Field::Datacenter) << 1 | i64::from(self.backup)
    }

    /// Whether the numbers of a [`code`](Self::code) have a backup lane.
    pub(crate) fn has_backup_in(code: i64) -> bool {
        code & 1 == 1
    }

    /// Reads the numbers from a [`code`](Self::code).
    ///
    /// # Errors
    /// As for [`Identity::new`], for numbers that do not fit the layout.
    pub fn of_code(layout: &Layout, code: i64) -> Result<Self, IdError> {
        let number = |field, value: i64| layout.max_of(field).map(|_| value & i64::from(i32::MAX));
        let (worker, datacenter) = (number(Field::Worker, code >> 32), number(Field::Datacenter, code >> 1));
        Self::new(layout, worker, datacenter, Self::has_backup_in(code))
    }
}

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

    /// Puts together what [`Numbers`](crate::numbers::Numbers) hold at one moment.
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

    /// Returns the fleet that leases the numbers ([`Fleet::code`](crate::registry::Fleet::code));
    /// `None` for configured ones.
    pub fn fleet(&self) -> Option<i64> {
        self.fleet
    }

    /// Returns the version of the [`Numbers`](crate::numbers::Numbers) that this was read from; 0
    /// for numbers that never change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Packs the numbers into one integer; see [`Identity::code`].
    pub fn code(&self) -> i64 {
        self.identity.code(&self.layout)
    }
}
