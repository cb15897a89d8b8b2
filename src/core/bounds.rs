//! From times to ids: where in the order of ids an instant falls.
//!
//! An id's time is the start of its tick, and the tick is the id's high bits. So a condition on an id's time is one comparison
//! of the id itself with a bound, which an index on the ids can answer, whatever worker and sequence lie below. Exact, since
//! ticks start at whole milliseconds.

use crate::error::IdError;
use crate::layout::Layout;

/// An instant at a precision beyond the core's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant {
    /// Milliseconds since 1970, rounded down.
    pub ms: i64,
    /// Whether it is later than that, by less than a millisecond.
    pub later: bool,
}

impl Layout {
    /// The smallest id whose time is an instant or later: the first one of the first tick that starts then. So
    /// `first_id_at(from) <= id && id < first_id_at(to)` picks the ids whose time is in `from..to`.
    ///
    /// ```
    /// use snowflake_core::bounds::Instant;
    /// use snowflake_core::layout::Layout;
    /// let layout = Layout::parse("snowflake")?;
    /// let noon = Instant { ms: 1_800_000_000_000, later: false };
    /// let id = layout.first_id_at(Some(noon))?;
    /// assert_eq!(layout.created_at_ms(id)?, noon.ms);
    /// assert!(layout.created_at_ms(id - 1)? < noon.ms);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`IdError::Time`] for an instant before the epoch or after the start of the last tick (`None`: infinite).
    pub fn first_id_at(&self, instant: Option<Instant>) -> Result<i64, IdError> {
        instant
            .filter(|instant| instant.ms >= self.epoch_ms())
            .map(|instant| self.first_tick_at(instant))
            .filter(|tick| *tick <= self.last_tick())
            .map(|tick| self.pack(tick, 0, 0))
            .ok_or(IdError::Time {
                // Rounded away from what the layout holds.
                time_ms: instant
                    .map(|Instant { ms, later }| ms.saturating_add((later && ms >= self.epoch_ms()).into())),
                first_ms: self.epoch_ms(),
                last_ms: self.last_instant_ms(),
            })
    }

    /// The first tick that starts at an instant since the epoch, or later.
    fn first_tick_at(&self, Instant { ms, later }: Instant) -> u64 {
        // The tick that holds the last millisecond which is too early, and one more: -1 + 1 for the epoch itself.
        // Saturating: far beyond any layout.
        let too_early_ms = if later { ms } else { ms - 1 };
        self.tick_at(too_early_ms).saturating_add(1) as u64
    }
}
