//! Ids: packing parts into 63 bits, reading them back, printing them.
//!
//! This file checks every number before it shifts it, and never masks one because a masked number
//! would be another server's id. The generator draws ids, and packs them with `Layout::pack`.

use std::fmt;

use crate::clock::Utc;
use crate::id::layout::{Bits, Field, Layout};

/// The parts of an id. A field that the layout lacks is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// Ticks since the layout's epoch.
    pub tick: u64,
    /// The start of the tick, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// The number of the datacenter.
    pub datacenter: Option<u32>,
    /// The number of the worker.
    pub worker: Option<u32>,
    /// The number of the id within its tick.
    pub sequence: u32,
}

/// For people, always in UTC: `2026-11-20T09:28:48.220Z #17 @(3,5)` is sequence 17 of datacenter 3,
/// worker 5.
impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", Utc(self.created_at_ms), self.sequence)?;
        match (self.datacenter, self.worker) {
            (Some(datacenter), Some(worker)) => write!(f, " @({datacenter},{worker})"),
            (None, Some(worker)) => write!(f, " @({worker})"),
            (Some(datacenter), None) => write!(f, " @({datacenter},)"),
            (None, None) => Ok(()),
        }
    }
}

impl Bits {
    #[inline]
    fn put(self, number: u64) -> u64 {
        debug_assert!(number <= self.max());
        number << self.shift
    }

    #[inline]
    fn get(self, id: u64) -> u64 {
        (id >> self.shift) & self.max()
    }

    /// The number as SQL shows it. It fits because the width is at most 31.
    fn number(self, id: u64) -> Option<u32> {
        (self.bits > 0).then(|| self.get(id) as u32)
    }
}

impl Layout {
    /// Composes an id; `fixed` holds the datacenter's and the worker's bits ([`Self::fixed_bits`]).
    #[inline]
    pub(crate) fn pack(&self, tick: u64, fixed: u64, sequence: u64) -> i64 {
        (self.time.put(tick) | fixed | self.sequence.put(sequence)) as i64
    }

    /// Composes the id of a lane's word (`generator.rs`).
    #[inline(always)]
    pub(crate) fn pack_word(&self, fixed: u64, word: u64) -> i64 {
        self.pack(word >> self.sequence.bits, fixed, word & self.sequence.max())
    }

    /// Returns the last id of a tick, whatever its numbers.
    pub(crate) fn last_id_of(&self, tick: u64) -> i64 {
        self.pack(tick, 0, 0) | (1_i64 << self.time.shift).wrapping_sub(1)
    }

    /// Returns the last id of the ticks that end at or before an instant (in milliseconds since
    /// 1970), whatever its numbers; 0 if no tick does.
    pub(crate) fn last_id_of_ticks_until(&self, end_ms: i64) -> i64 {
        let tick = u64::try_from(self.tick_at(end_ms).saturating_sub(1));
        tick.map_or(0, |tick| self.last_id_of(tick.min(self.last_tick())))
    }

    /// Checks the numbers that all ids of a lane share, and puts them into place.
    ///
    /// # Errors
    /// [`IdError`] for a number outside its field's range, one that is missing, or one without a
    /// field.
    pub(crate) fn fixed_bits(&self, datacenter: Option<i64>, worker: Option<i64>) -> Result<u64, IdError> {
        Ok(self.checked(Field::Datacenter, datacenter)? | self.checked(Field::Worker, worker)?)
    }

    /// A number in its place. Accepts 0 for a field that the layout lacks, so that one call serves
    /// every layout.
    fn checked(&self, field: Field, number: Option<i64>) -> Result<u64, IdError> {
        let bits = self.field(field);
        match number {
            None if bits.bits == 0 => Ok(0),
            None => Err(IdError::PartMissing(field)),
            Some(0) => Ok(0),
            Some(value) if bits.bits == 0 => Err(IdError::NoField { field, value }),
            Some(value) => u64::try_from(value)
                .ok()
                .filter(|number| *number <= bits.max())
                .map(|number| bits.put(number))
                .ok_or(IdError::Part { field, value, max: bits.max() as i64 }),
        }
    }

    /// Composes an id from its parts; `created_at_ms` (milliseconds since 1970) is rounded down to
    /// a tick.
    ///
    /// # Errors
    /// [`IdError::Time`] for a time before the epoch or after the last tick (`None`: infinite),
    /// [`IdError::Part`] for a number outside its field's range, [`IdError::PartMissing`] for a
    /// missing number, and [`IdError::NoField`] for one too many.
    ///
    /// ```
    /// use snowflake_core::id::layout::Layout;
    /// let twitter = Layout::parse("twitter")?;
    /// let id = twitter.compose(Some(1_656_432_460_105), Some(11), Some(26), 0)?;
    /// assert_eq!(id, 1541815603606036480);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compose(
        &self,
        created_at_ms: Option<i64>,
        datacenter: Option<i64>,
        worker: Option<i64>,
        sequence: i64,
    ) -> Result<i64, IdError> {
        let tick = created_at_ms
            .and_then(|ms| u64::try_from(self.tick_at(ms)).ok())
            .filter(|tick| *tick <= self.last_tick())
            .ok_or(IdError::Time {
                time_ms: created_at_ms,
                first_ms: self.epoch_ms(),
                last_ms: self.last_instant_ms(),
            })?;
        let fixed = self.fixed_bits(datacenter, worker)?;
        Ok(self.pack(tick, fixed | self.checked(Field::Sequence, Some(sequence))?, 0))
    }

    /// Checks that `id` can be one of this layout.
    ///
    /// # Errors
    /// [`IdError::Id`] for an id below 0 or above the layout's width.
    #[inline]
    pub fn check(&self, id: i64) -> Result<u64, IdError> {
        let max = self.max_id();
        u64::try_from(id).ok().filter(|_| id <= max).ok_or(IdError::Id { id, max })
    }

    /// The time of an id: the start of its tick, in milliseconds since 1970.
    ///
    /// # Errors
    /// As [`Self::check`].
    #[inline]
    pub fn created_at_ms(&self, id: i64) -> Result<i64, IdError> {
        Ok(self.start_of_ms(self.time.get(self.check(id)?)))
    }

    /// Reads an id back.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn parts(&self, id: i64) -> Result<Parts, IdError> {
        let bits = self.check(id)?;
        let tick = self.time.get(bits);
        Ok(Parts {
            tick,
            created_at_ms: self.start_of_ms(tick),
            datacenter: self.datacenter.number(bits),
            worker: self.worker.number(bits),
            sequence: self.sequence.get(bits) as u32,
        })
    }
}

/// Why a number cannot be an id, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdError {
    /// The id is below 0 or above the layout's width.
    Id {
        /// The offending id.
        id: i64,
        /// The layout's largest id.
        max: i64,
    },
    /// A part does not fit its field.
    Part {
        /// The field.
        field: Field,
        /// The offending number.
        value: i64,
        /// The field's largest number.
        max: i64,
    },
    /// A number other than 0 for a field that the layout lacks.
    NoField {
        /// The field.
        field: Field,
        /// The offending number.
        value: i64,
    },
    /// No number for a field that the layout has.
    PartMissing(Field),
    /// `backup` for a layout without a worker field.
    NoBackup,
    /// A time before the layout's epoch or after its last tick.
    Time {
        /// The offending instant, in milliseconds since 1970, or `None` for an infinite one.
        time_ms: Option<i64>,
        /// The layout's first instant, in milliseconds since 1970.
        first_ms: i64,
        /// The start of the layout's last tick, in milliseconds since 1970.
        last_ms: i64,
    },
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id { id, max } => write!(f, "id {id} is outside the layout's range 0..{max}"),
            Self::Part { field, value, max } => {
                write!(f, "{field} {value} is outside the layout's range 0..{max}")
            }
            Self::NoField { field, value } => {
                write!(f, "{field} {value} is given, but the layout has no {field} field")
            }
            Self::PartMissing(field) => write!(f, "the layout has a {field} field, but no {field} is given"),
            Self::NoBackup => write!(f, "a layout without a worker field has no backup workers"),
            Self::Time { time_ms: Some(ms), .. } => {
                write!(f, "time {} is outside the layout's range", Utc(*ms))
            }
            Self::Time { time_ms: None, .. } => write!(f, "an infinite time is outside the layout's range"),
        }
    }
}

impl std::error::Error for IdError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_printed_with_the_numbers_the_layout_has() {
        let format = |id: i64, layout: &str| Layout::parse(layout).unwrap().parts(id).unwrap().to_string();
        assert_eq!(format(1541815603606036480, "twitter"), "2022-06-28T16:07:40.105Z #0 @(11,26)");
        assert_eq!(format(170505378935607296, "pgedge"), "2024-04-15T12:07:30.175Z #0 @(1)");
        assert_eq!(format(101767036616676231, "mastodon"), "2019-03-17T16:55:45.249Z #37767");
    }

    #[test]
    fn no_number_is_masked() {
        let layout = Layout::parse("js53").unwrap();
        let time = Some(1_800_000_000_000);
        let part = |field, value, max| Err(IdError::Part { field, value, max });
        assert_eq!(layout.compose(time, None, Some(32), 0), part(Field::Worker, 32, 31));
        assert_eq!(layout.compose(time, None, Some(-1), 0), part(Field::Worker, -1, 31));
        assert_eq!(layout.compose(time, None, Some(31), 65_536), part(Field::Sequence, 65_536, 65_535));
        assert_eq!(layout.compose(time, None, None, 0), Err(IdError::PartMissing(Field::Worker)));
        let no_field = IdError::NoField { field: Field::Datacenter, value: 1 };
        assert_eq!(layout.compose(time, Some(1), Some(1), 0), Err(no_field));
        assert_eq!(layout.compose(time, Some(0), Some(1), 0), layout.compose(time, None, Some(1), 0));
        for id in [-1, i64::MIN, 1 << 53, i64::MAX] {
            assert_eq!(layout.check(id), Err(IdError::Id { id, max: (1 << 53) - 1 }));
        }
        let error = layout.check(-1).unwrap_err();
        assert_eq!(error.to_string(), "id -1 is outside the layout's range 0..9007199254740991");
    }

    #[test]
    fn times_outside_the_layout_are_refused() {
        let layout = Layout::parse("js53").unwrap();
        let compose = |ms| layout.compose(ms, None, Some(0), 0);
        let first_ms = layout.epoch_ms();
        let end_ms = layout.last_instant_ms() + 1000;
        assert_eq!(compose(Some(first_ms)), Ok(0));
        assert_eq!(compose(Some(end_ms - 1)), Ok(((1 << 32) - 1) << 21));
        for outside in [Some(first_ms - 1), Some(end_ms), Some(i64::MIN), Some(i64::MAX), None] {
            assert!(matches!(compose(outside), Err(IdError::Time { .. })), "{outside:?}");
        }
    }
}
