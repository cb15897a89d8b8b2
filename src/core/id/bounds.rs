//! From times to ids: where in the order of ids an instant falls.
//!
//! An id's time is the start of its tick, and the tick is the id's high bits. So a condition on an
//! id's time is one comparison of the id with a bound, whatever worker and sequence are in the low
//! bits. An index on the ids can answer it. It is exact because ticks start at whole milliseconds.
//!
//! `first_id_at` is for people, and refuses what the layout cannot hold. The other functions are
//! for the planner, and have an answer for every instant. One function that is compared in four
//! ways would not do: no bigint is above the last id of 63 bits. Also, PostgreSQL prunes partitions
//! exactly only by `id >= first` and `id <= last`. It assumes that `id > last` may match between
//! two ids.

use crate::id::layout::Layout;
use crate::id::parts::IdError;

/// An instant, more precise than a millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant {
    /// Milliseconds since 1970, rounded down.
    pub ms: i64,
    /// Whether the instant is later than that, by less than a millisecond.
    pub later: bool,
}

impl Instant {
    /// Before every instant that an id can carry.
    pub const FIRST: Self = Self { ms: i64::MIN, later: false };
    /// After every instant that an id can carry.
    pub const LAST: Self = Self { ms: i64::MAX, later: true };

    /// Any later instant before the next millisecond. For ids all of these are equal because ticks
    /// start at whole milliseconds.
    fn just_after(self) -> Self {
        Self { later: true, ..self }
    }
}

impl Layout {
    /// The smallest id whose time is an instant or later: the first one of the first tick that
    /// starts then or later. So `first_id_at(from) <= id && id < first_id_at(to)` picks the ids
    /// whose time is in `from..to`.
    ///
    /// ```
    /// use snowflake_core::id::bounds::Instant;
    /// use snowflake_core::id::layout::Layout;
    /// let layout = Layout::parse("snowflake")?;
    /// let noon = Instant { ms: 1_800_000_000_000, later: false };
    /// let id = layout.first_id_at(Some(noon))?;
    /// assert_eq!(layout.created_at_ms(id)?, noon.ms);
    /// assert!(layout.created_at_ms(id - 1)? < noon.ms);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`IdError::Time`] for an instant before the epoch or after the start of the last tick
    /// (`None`: infinite).
    pub fn first_id_at(&self, instant: Option<Instant>) -> Result<i64, IdError> {
        instant
            .filter(|instant| instant.ms >= self.epoch_ms())
            .and_then(|instant| u64::try_from(self.first_tick_at(instant)).ok())
            .filter(|tick| *tick <= self.last_tick())
            .map(|tick| self.pack(tick, 0, 0))
            .ok_or(IdError::Time {
                // Rounded away from the layout's range.
                time_ms: instant
                    .map(|Instant { ms, later }| ms.saturating_add((later && ms >= self.epoch_ms()).into())),
                first_ms: self.epoch_ms(),
                last_ms: self.last_instant_ms(),
            })
    }

    /// The first id whose time is an instant or later. So, for every id and every instant, the id's
    /// time is that or later if and only if there is a first one and
    /// `id >= first_id_from(instant)`.
    ///
    /// ```
    /// use snowflake_core::id::bounds::Instant;
    /// use snowflake_core::id::layout::Layout;
    /// let layout = Layout::parse("js53")?;
    /// let noon = Instant { ms: 1_800_000_000_000, later: false };
    /// assert_eq!(layout.first_id_from(noon), Some(layout.first_id_at(Some(noon))?));
    /// assert_eq!(layout.first_id_from(Instant::FIRST), Some(0));
    /// assert_eq!(layout.first_id_from(Instant::LAST), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn first_id_from(&self, instant: Instant) -> Option<i64> {
        let last = self.last_id_before(instant);
        (last < self.max_id()).then(|| last + 1)
    }

    /// The first id whose time is after an instant.
    pub fn first_id_after(&self, instant: Instant) -> Option<i64> {
        self.first_id_from(instant.just_after())
    }

    /// The last id whose time is before an instant; -1 if there is none. So, for every id and every
    /// instant, the id's time is before it if and only if `id <= last_id_before(instant)`.
    ///
    /// ```
    /// use snowflake_core::id::bounds::Instant;
    /// use snowflake_core::id::layout::Layout;
    /// let layout = Layout::parse("js53")?;
    /// let noon = Instant { ms: 1_800_000_000_000, later: false };
    /// assert_eq!(layout.last_id_before(noon), layout.first_id_at(Some(noon))? - 1);
    /// assert_eq!(layout.last_id_before(Instant::FIRST), -1);
    /// assert_eq!(layout.last_id_before(Instant::LAST), layout.max_id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn last_id_before(&self, instant: Instant) -> i64 {
        match u64::try_from(self.first_tick_at(instant)) {
            Err(_) => -1,
            Ok(tick) if tick > self.last_tick() => self.max_id(),
            Ok(tick) => self.pack(tick, 0, 0) - 1,
        }
    }

    /// The last id whose time is an instant or before; -1 if there is none.
    pub fn last_id_until(&self, instant: Instant) -> i64 {
        self.last_id_before(instant.just_after())
    }

    /// The first tick that starts at an instant or later. Negative before the epoch, and beyond
    /// [`Layout::last_tick`] after the start of the last one.
    fn first_tick_at(&self, Instant { ms, later }: Instant) -> i64 {
        // One more than the tick that holds the last millisecond that is too early: -1 + 1 for the
        // epoch. Saturates only far outside any layout.
        let too_early_ms = if later { ms } else { ms.saturating_sub(1) };
        self.tick_at(too_early_ms).saturating_add(1)
    }
}
