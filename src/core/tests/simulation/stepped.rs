//! A process that is stopped at each call of its registry, so that anything can come in between. It
//! runs on a thread of its own, and whoever steps it answers for the registry.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use snowflake_core::registry::{Reading, Store, Swap, SwapAnswer, Wanted};

/// What a process asks for, and then stops.
#[derive(Debug)]
pub enum Step<T> {
    Read(Wanted),
    Swap(Swap),
    Random,
    /// It is over.
    Over(T),
}

enum Answer {
    Read(Reading),
    Swapped(SwapAnswer),
    Random(u64),
}

/// There is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoAnswer;

impl From<Infallible> for NoAnswer {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// The registry, as the process sees it.
pub struct Remote<T> {
    steps: Sender<Step<T>>,
    answers: Receiver<Option<Answer>>,
}

impl<T> Remote<T> {
    /// Stops until there is an answer, or until nobody steps the process any more.
    fn stops(&self, step: Step<T>) -> Result<Answer, NoAnswer> {
        self.steps.send(step).map_err(|_| NoAnswer)?;
        self.answers.recv().ok().flatten().ok_or(NoAnswer)
    }

    pub fn random(&self) -> u64 {
        // Nobody sees what a process does that is not stepped any more.
        let Ok(Answer::Random(random)) = self.stops(Step::Random) else { return 0 };
        random
    }
}

impl<T> Store for Remote<T> {
    type Error = NoAnswer;

    fn read(&self, wanted: &Wanted) -> Result<Reading, NoAnswer> {
        let Answer::Read(reading) = self.stops(Step::Read(wanted.clone()))? else { panic!("that is no reading") };
        Ok(reading)
    }

    fn swap(&self, swap: &Swap) -> Result<SwapAnswer, NoAnswer> {
        let Answer::Swapped(answer) = self.stops(Step::Swap(swap.clone()))? else { panic!("that is no answer") };
        Ok(answer)
    }
}

/// A process that is stepped.
pub struct Stepped<T> {
    steps: Receiver<Step<T>>,
    answers: Sender<Option<Answer>>,
}

impl<T: Send + 'static> Stepped<T> {
    /// Begins what a process does.
    pub fn begin(process: impl FnOnce(&Remote<T>) -> T + Send + 'static) -> Self {
        let ((send_step, steps), (answers, receive_answer)) = (channel(), channel());
        let remote = Remote { steps: send_step, answers: receive_answer };
        let run = move || {
            let result = process(&remote);
            // Nobody may wait for it any more.
            let _ = remote.steps.send(Step::Over(result));
        };
        // There may be a thousand.
        thread::Builder::new().stack_size(1 << 18).spawn(run).unwrap();
        Self { steps, answers }
    }

    /// Lets it go on to its next step. It must have been answered.
    pub fn next(&self) -> Step<T> {
        self.steps.recv().expect("the process panics")
    }

    fn answer(&self, answer: Option<Answer>) {
        self.answers.send(answer).expect("the process waits");
    }

    /// Answers a [`Step::Read`].
    pub fn reads(&self, reading: Option<Reading>) {
        self.answer(reading.map(Answer::Read));
    }

    /// Answers a [`Step::Swap`].
    pub fn swaps(&self, answer: Option<SwapAnswer>) {
        self.answer(answer.map(Answer::Swapped));
    }

    /// Answers a [`Step::Random`].
    pub fn draws(&self, random: u64) {
        self.answer(Some(Answer::Random(random)));
    }
}
