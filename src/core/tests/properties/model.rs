//! Models the generator as it is described, without its tricks: a (tick, sequence) pair per lane,
//! i128, no bits.
//!
//! `generator.rs` must agree with this oracle, draw by draw. The oracle must never call into it,
//! and shares only its vocabulary ([`DrawRefusal`], [`LaneName`]).

use snowflake_core::draw::generator::DrawRefusal;
use snowflake_core::id::identity::LaneName;
use snowflake_core::id::layout::Field;

use crate::spec::Spec;

/// The place of an id within its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its tick.
    pub tick: i128,
    /// Its number within the tick.
    pub sequence: i128,
}

impl Place {
    /// Returns the place `steps` further on, across the ends of ticks.
    pub fn after(self, steps: i128, spec: &Spec) -> Self {
        let size = spec.size(Field::Sequence);
        let sequence = self.sequence + steps;
        Self { tick: self.tick + sequence / size, sequence: sequence % size }
    }
}

/// Returns the first sequence of a tick: Fibonacci hashing into the first 1/64 of the range.
pub fn start(spec: &Spec, tick: i128) -> i128 {
    let share = spec.size(Field::Sequence) / 64;
    let hash = tick * 0x9E37_79B9_7F4A_7C15 % (1 << 64);
    hash * share / (1 << 64)
}

/// The last id drawn from one lane. A new lane acts as if its very first place had been drawn.
#[derive(Debug, Clone, Copy)]
pub struct Lane {
    last: Place,
}

impl Lane {
    /// Returns a lane from which nothing was drawn.
    pub fn new() -> Self {
        Self { last: Place { tick: 0, sequence: 0 } }
    }

    /// Draws a run and returns its first and last place.
    pub fn draw(
        &mut self,
        name: LaneName,
        spec: &Spec,
        now_ms: i64,
        allowance_ms: i64,
        mark_ms: i64,
        count: u32,
    ) -> Result<(Place, Place), DrawRefusal> {
        let ms = |wide: i128| i64::try_from(wide).unwrap();
        let allowed_ms = i128::from(now_ms) + i128::from(allowance_ms);
        let now = spec.tick_at(now_ms.into());
        let limit = spec.tick_at(allowed_ms);
        if now < 0 {
            return Err(DrawRefusal::BeforeEpoch { now_ms });
        }
        let first = Place { tick: now, sequence: start(spec, now) }.max(self.last.after(1, spec));
        let last = first.after(i128::from(count) - 1, spec);
        if last.tick > spec.last_tick() {
            return Err(DrawRefusal::TimeUsedUp);
        }
        if self.last.tick > limit {
            // The wait counts from the clock plus the allowance, like the decision. The message
            // states the whole distance.
            let start_ms = spec.start_ms(self.last.tick);
            return Err(DrawRefusal::Behind {
                behind_ms: ms(start_ms - i128::from(now_ms)),
                wait_ms: ms(start_ms - allowed_ms),
            });
        }
        if last.tick > limit {
            return Err(DrawRefusal::UsedUp { wait_ms: ms(spec.start_ms(last.tick) - allowed_ms) });
        }
        let end_ms = spec.start_ms(last.tick + 1);
        if end_ms > mark_ms.into() {
            return Err(DrawRefusal::MarkReached { lane: name, end_ms: ms(end_ms) });
        }
        self.last = last;
        Ok((first, last))
    }
}

/// The lanes of one server.
#[derive(Debug)]
pub struct Generator {
    primary: Lane,
    backup: Lane,
}

impl Generator {
    /// Returns a generator that has drawn nothing.
    pub fn new() -> Self {
        Self { primary: Lane::new(), backup: Lane::new() }
    }

    /// Draws from the first lane that serves. Otherwise returns the refusal of the lane that would
    /// serve soonest, or of the earlier one of equals.
    pub fn draw(
        &mut self,
        spec: &Spec,
        with_backup: bool,
        now_ms: i64,
        max_borrow_ms: i64,
        marks_ms: [i64; 2],
        count: u32,
    ) -> Result<(LaneName, Place, Place), DrawRefusal> {
        let mut order = vec![(LaneName::Primary, max_borrow_ms)];
        if with_backup {
            order = vec![(LaneName::Primary, 0), (LaneName::Backup, 0), (LaneName::Backup, max_borrow_ms)];
        }
        let mut refusals = Vec::new();
        for (name, allowance_ms) in order {
            let (lane, mark_ms) = match name {
                LaneName::Primary => (&mut self.primary, marks_ms[0]),
                LaneName::Backup => (&mut self.backup, marks_ms[1]),
            };
            match lane.draw(name, spec, now_ms, allowance_ms, mark_ms, count) {
                Ok((first, last)) => return Ok((name, first, last)),
                Err(refusal @ DrawRefusal::MarkReached { .. }) => return Err(refusal),
                Err(refusal) => refusals.push(refusal),
            }
        }
        // The sort is stable, so of equal waits the earlier lane's comes first.
        refusals.sort_by_key(|refusal| match refusal {
            DrawRefusal::UsedUp { wait_ms } | DrawRefusal::Behind { wait_ms, .. } => *wait_ms,
            _ => i64::MAX,
        });
        Err(refusals[0])
    }
}
