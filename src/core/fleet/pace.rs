//! When a server asks the registry again.
//!
//! A registry that is away is asked each second, so that it is used as soon as it is back. A
//! registry that does not answer in time is different: it may be asked for more than it can do.
//! What a server gives up is work that is done for nothing. If all servers asked again at once, the
//! registry would stay as busy as it is, and answer none of them. So after each such failure a
//! server waits for a longer time, and each server for another one.
//!
//! The same holds for a record that many servers want to change in one moment. Of those that have
//! read it, one is first, and the others have to read again. If they did so at once, a thousand
//! servers would read it a thousand times each.

/// How long to wait after a failure, and until a tag that can give nothing is asked for again, in
/// milliseconds.
pub const AGAIN_AFTER_MS: i64 = 1000;

/// How long to wait while a failure is new, and for how long it is new, in milliseconds. A registry
/// may be starting.
const AGAIN_SOON_MS: i64 = 200;
const SOON_MS: i64 = 3000;

/// How long to wait at most, in milliseconds, if the registry does not answer in time. A server
/// gives a call up after five seconds. So about a quarter of a fleet asks at once.
pub const LONGEST_MS: i64 = 32_000;

/// How long to wait at most, in milliseconds, if others were first, and how long at most for the
/// first time. Of a thousand servers, one then comes about every two milliseconds.
pub const LONGEST_CONTENDED_MS: i64 = 4000;
const FIRST_CONTENDED_MS: i64 = 50;

/// How often one call asks the registry again after a refusal, before it leaves the rest to the
/// next call.
pub(crate) const MOST_ROUNDS: u32 = 8;

/// How often others may be first at a tag, before a call leaves the rest to the next one, which
/// comes after a wait.
pub(crate) const MOST_LOST: u32 = 3;

/// How often all numbers are counted, in milliseconds: once a minute, and more rarely where more
/// than a hundred are leased. The registry then sends each server a hundred records a minute.
const COUNTED_EVERY_MS: i64 = 60_000;
const COUNTED_PER_NUMBER_MS: i64 = 600;

/// How a registry has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptFailure {
    /// It did not answer in time, or said that it has too much to do.
    Overloaded,
    /// Others have changed what it holds at each try.
    Contended,
    /// Anything else: it is away, refuses, or has nothing to give.
    Otherwise,
}

/// When one server asks the registry again after a failure.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    /// The first failure since the last success, in milliseconds of the caller's clock.
    failing_since_ms: Option<i64>,
    /// How long the last wait could have been, in milliseconds; 0 if the registry was neither
    /// overloaded nor contended.
    longest_ms: i64,
}

impl Pace {
    /// Notes that the registry did what it was asked for.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Notes a failure. Returns how long to wait now, in milliseconds: 160 to 240 while failures
    /// are new, then 800 to 1200; 1000 to 32,000 if the registry is overloaded; and 0 to 4000 if
    /// others were first. `now_ms` is of a clock that is not set back. `random` has random bits.
    pub fn failed(&mut self, failed: AttemptFailure, now_ms: i64, random: u64) -> i64 {
        let since_ms = *self.failing_since_ms.get_or_insert(now_ms);
        let (least_ms, first_ms, most_ms) = match failed {
            AttemptFailure::Overloaded => (AGAIN_AFTER_MS, 2 * AGAIN_AFTER_MS, LONGEST_MS),
            AttemptFailure::Contended => (0, FIRST_CONTENDED_MS, LONGEST_CONTENDED_MS),
            AttemptFailure::Otherwise => {
                self.longest_ms = 0;
                let is_new = now_ms.saturating_sub(since_ms) < SOON_MS;
                return varied_ms(if is_new { AGAIN_SOON_MS } else { AGAIN_AFTER_MS }, random);
            }
        };
        self.longest_ms = (self.longest_ms * 2).clamp(first_ms, most_ms);
        least_ms + (random % (self.longest_ms - least_ms + 1) as u64) as i64
    }
}

/// Varies a wait by a fifth in either direction, so that servers that have started together do not
/// come together.
pub fn varied_ms(wait_ms: i64, random: u64) -> i64 {
    wait_ms - wait_ms / 5 + wait_ms * (random % 401) as i64 / 1000
}

/// Returns when to count all numbers again, in milliseconds from now, where so many are leased.
pub fn counts_in_ms(leased: i64) -> i64 {
    leased.saturating_mul(COUNTED_PER_NUMBER_MS).max(COUNTED_EVERY_MS)
}
