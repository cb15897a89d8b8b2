//! What operators do to the registry meanwhile, through their program: sometimes two at once, from
//! two places. They follow the pages: they use no limit before all standbys have it, and restore no
//! registry whose clock is behind.

use std::thread;

use cluster::{Operated, wait_until};

use super::random::Random;
use super::registry::{Limits, RANGE, Registry};

/// The longest lease that operators permit, in milliseconds.
const MOST_LEASE_MS: u32 = 8000;

/// Operators of one fleet, and what they remember of it.
pub struct Operators {
    /// The greatest limits that they have set, also where the registry has lost them since.
    limits: Limits,
    /// Up to which step the fleet is closed.
    closed: Option<usize>,
}

/// Commands, each of which is run when the one before has ended.
type Commands = Vec<Vec<String>>;

impl Operators {
    /// Begins with the limits that the registry was started with.
    pub fn new(limits: Limits) -> Self {
        Self { limits, closed: None }
    }

    /// The greatest limits that were set.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// One of them, or two at once, do something. Returns what it is.
    pub fn act(&mut self, registry: &dyn Registry, step: usize, random: &mut Random) -> String {
        let places: Vec<Commands> = (0..random.between(1, 2)).map(|_| self.choose(registry, step, random)).collect();
        let told: Vec<String> = thread::scope(|scope| {
            let operated = registry.operated();
            let run = |commands: &Commands| perform(operated, commands);
            let places: Vec<_> = places.iter().map(|commands| scope.spawn(move || run(commands))).collect();
            places.into_iter().map(|place| place.join().expect("a command ends")).collect()
        });
        // A failover must not lose a limit that is used.
        registry.wait_until_replicated();
        told.join("; at once: ")
    }

    fn choose(&mut self, registry: &dyn Registry, step: usize, random: &mut Random) -> Commands {
        let one = |words: &[&str]| vec![words.iter().map(|word| (*word).to_owned()).collect()];
        match random.below(9) {
            0 => {
                let (first, last) = (random.of(&["0", "1"]), random.of(&["6", "7", "9"]));
                one(&["set-range", first, last])
            }
            1 => {
                self.closed = Some(step + random.between(1, 4));
                one(&["close"])
            }
            2 => one(&["open", "--not-moved"]),
            3 => {
                self.limits.lease_ms = (self.limits.lease_ms + 500).min(MOST_LEASE_MS);
                let (longest, lease) = (ms(self.limits.lease_ms), ms(random.between(3000, 8000) as u32));
                [one(&["set-limits", "--lease", &longest]), one(&["set-lease", "--lease", &lease])].concat()
            }
            4 => one(&["set-lease", "--lease", &ms(random.between(2000, 5000) as u32)]),
            5 => one(&["reserve", &random.below(10).to_string(), "in 2 s"]),
            6 => {
                let (least, greatest) = (random.between(5, 20).to_string(), random.between(500, 2000).to_string());
                one(&["set-tag", "t", "--least-step", &least, "--greatest-step", &greatest])
            }
            7 => one(&random.of(&[["create-tag", "other"], ["drop-tag", "other"], ["prune", "1 h ago"]])),
            // Nothing was lost. That costs a freeze, and nothing else.
            _ if registry.has_right_clock() => vec![restored(self.limits)],
            _ => one(&["check"]),
        }
    }

    /// Ends what is due by this step.
    pub fn end_what_is_due(&mut self, registry: &dyn Registry, step: usize) {
        if self.closed.is_some_and(|end| end <= step) && registry.operated().try_operate(&OPEN).is_ok() {
            self.closed = None;
        }
    }

    /// Leaves the fleet as it was at the start.
    pub fn mend(&mut self, registry: &dyn Registry) {
        let does = |arguments: &[&str]| registry.operated().try_operate(arguments).is_ok();
        wait_until("an open fleet", || does(&OPEN));
        wait_until("the range", || does(&["set-range", RANGE[0], RANGE[1]]));
        self.closed = None;
    }
}

const OPEN: [&str; 2] = ["open", "--not-moved"];

fn ms(ms: u32) -> String {
    format!("{ms} ms")
}

/// Says that a registry was restored, before any server reaches it: once, or by two operators at
/// once, of whom one may be refused.
pub fn tell_restored(registry: &(dyn Operated + Sync), limits: Limits, twice: bool) {
    let command = restored(limits);
    let tell = || registry.try_operate(&command.iter().map(String::as_str).collect::<Vec<_>>());
    // Again, if an etcd has just elected another leader.
    wait_until("an operator's word", || {
        let told: Vec<_> = thread::scope(|scope| {
            let both: Vec<_> = (0..1 + usize::from(twice)).map(|_| scope.spawn(tell)).collect();
            both.into_iter().map(|one| one.join().expect("the command ends")).collect()
        });
        told.iter().any(Result::is_ok)
    });
}

/// Returns the command after a restore of a registry that may not know its greatest limits.
fn restored(limits: Limits) -> Vec<String> {
    let Limits { lease_ms, skew_ms } = limits;
    ["restored", "--lease", &ms(lease_ms), "--skew", &ms(skew_ms)].map(str::to_owned).into()
}

/// Runs commands, and tells what came of them. They may be refused, and the registry may be away.
fn perform(registry: &(dyn Operated + Sync), commands: &Commands) -> String {
    let mut told = Vec::new();
    for command in commands {
        let words: Vec<_> = ["--timeout", "2 s"].into_iter().chain(command.iter().map(String::as_str)).collect();
        let output = registry.operate_once(&words);
        let status = output.status.code();
        told.push(format!("{} ({})", command.join(" "), status.unwrap_or(-1)));
        assert!(matches!(status, Some(0 | 1 | 3 | 4)), "{command:?}: {output:?}");
        if status != Some(0) {
            break;
        }
    }
    told.join(", ")
}
