//! How often things happen in one history: each has rates of its own.

use crate::kit::random::Random;

/// What happens now and then, once in a number of times that each history draws for itself.
#[derive(Debug, Clone, Copy)]
pub enum Chance {
    /// Other sessions and servers act while a call runs.
    Meanwhile,
    /// Other servers act while a message is on its way.
    WhileSent,
    /// A call does not reach the registry.
    CallLost,
    /// A message arrives late.
    Late,
    /// A change is written, and the standby has not confirmed it.
    NotConfirmed,
    /// A change is written and kept, and the answer is lost.
    AnswerLost,
    /// A process ends at a call.
    ProcessEnds,
    /// An operator does something.
    Operates,
}

/// Choices whose weights each history draws for itself.
#[derive(Debug, Clone, Copy)]
pub enum Choice {
    /// What happens next.
    Step,
    /// What happens while a call runs.
    Meanwhile,
    /// What happens to the registry.
    Registry,
    /// What an operator does next.
    Operator,
    /// At which moment an operator does something.
    Scene,
}

/// How often each kind of event happens in one history: from never to four times as often as on
/// average. So histories come that hold much of one fault and none of another, which the same rates
/// for all hardly give (Groce, Zhang, Eide, Chen, Regehr, "Swarm testing", 2012).
#[derive(Debug)]
pub struct Swarm {
    /// For each chance, in quarters.
    chances: [usize; 8],
    /// For each choice's weights, in quarters.
    choices: [[usize; 20]; 5],
}

impl Swarm {
    /// Draws the rates of a history. One in four has the average of all.
    pub fn new(random: &Random) -> Self {
        let is_even = random.one_in(4);
        let quarters = || if is_even { 4 } else { random.pick(&[0, 1, 2, 4, 4, 8, 8, 16]) };
        Self { chances: [(); 8].map(|()| quarters()), choices: [(); 5].map(|()| [(); 20].map(|()| quarters())) }
    }

    /// Returns true once in `times` on average.
    pub fn one_in(&self, random: &Random, chance: Chance, times: usize) -> bool {
        random.below(4 * times) < self.chances[chance as usize]
    }

    /// Returns one of the choices, each as often as its weight says on average.
    pub fn weighed<T: Copy, const N: usize>(&self, random: &Random, choice: Choice, choices: &[(usize, T); N]) -> T {
        let mut drawn = *choices;
        drawn.iter_mut().zip(&self.choices[choice as usize]).for_each(|((weight, _), quarters)| *weight *= quarters);
        let is_possible = drawn.iter().any(|(weight, _)| *weight > 0);
        random.weighed(if is_possible { &drawn } else { choices })
    }
}
