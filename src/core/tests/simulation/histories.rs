//! Runs histories on all processors, each on its own.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// How often each event happened.
pub type Counts = BTreeMap<&'static str, u64>;

/// Runs a history for each seed, which panics if it fails, and adds up its counts. Each processor
/// takes the next seed when it is done with one, so the sum is always the same.
///
/// # Panics
///
/// Panics as a history that fails.
pub fn on_all_processors(seeds: Range<u64>, history: impl Fn(u64) -> Counts + Sync) -> Counts {
    let (seeds, sum) = (Mutex::new(seeds), Mutex::new(Counts::new()));
    let share = || {
        let mut counts = Counts::new();
        loop {
            let Some(seed) = seeds.lock().unwrap_or_else(PoisonError::into_inner).next() else { break };
            for (event, times) in history(seed) {
                *counts.entry(event).or_default() += times;
            }
        }
        let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
        for (event, times) in counts {
            *sum.entry(event).or_default() += times;
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let shares: Vec<_> = (0..processors).map(|_| scope.spawn(share)).collect();
        for share in shares {
            share.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    sum.into_inner().unwrap_or_else(PoisonError::into_inner)
}
