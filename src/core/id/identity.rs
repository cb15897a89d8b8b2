//! The numbers that every id of a server carries, and the code in which a database stores them.
//!
//! `identity` is the word in code; people read "number". Nothing here is atomic or changes: a
//! server that gets other numbers gets another [`Identity`], and with it another
//! [`IdStamp`](crate::draw::stamp::IdStamp). Where the present one stands, and how it changes while
//! sessions draw: `draw/numbers.rs`.

use crate::id::layout::{Field, Layout};
use crate::id::parts::IdError;

/// Which of a server's two lanes. It is as wide as a word, because a byte within
/// [`IdRun`](crate::draw::generator::IdRun) made copying a run stall for some nanoseconds.
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
