//! Makes random numbers that depend on the seed alone, on every machine and with every version of
//! every library.

use std::cell::Cell;
use std::ops::RangeInclusive;

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug)]
pub struct Random(Cell<u64>);

impl Random {
    /// Returns the generator for a seed.
    pub fn new(seed: u64) -> Self {
        Self(Cell::new(seed.wrapping_mul(0xD134_2543_DE82_EF95)))
    }

    fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0.set(state);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`, which must not be 0.
    pub fn below(&self, end: usize) -> usize {
        // The high bits of a product are as good as a remainder, and need no division.
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// Returns a number that no other call is expected to return.
    pub fn bits(&self) -> u64 {
        self.below(usize::MAX) as u64
    }

    /// Returns true once in `times`.
    pub fn one_in(&self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns a number of the range.
    pub fn of(&self, range: RangeInclusive<i64>) -> i64 {
        range.start() + self.below((range.end() - range.start() + 1) as usize) as i64
    }

    /// Returns one of the choices.
    pub fn pick<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns one of the choices, each as often as its weight says.
    pub fn weighed<T: Copy>(&self, choices: &[(usize, T)]) -> T {
        let mut at = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in choices {
            if at < *weight {
                return *choice;
            }
            at -= weight;
        }
        unreachable!("the weights add up")
    }
}
