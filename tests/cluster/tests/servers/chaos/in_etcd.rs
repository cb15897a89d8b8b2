//! A registry in an etcd of three members: members killed and stopped, the majority lost, all of it
//! away, restored from a snapshot, and its clock stepped by a proxy ([`ClockProxy`]).
//!
//! # What holds while the registry's clock is wrong
//!
//! - **As long as the registry loses nothing, G3 holds, whatever its clock says.** A lease begins
//!   at or after the end of the number's last one, and the record says where that is. So the clock
//!   is stepped far, forward and back. What fails is only that servers get numbers.
//! - **When it loses, its clock must not be behind what it has told by more than the skew.** No
//!   lease ends later than the longest lease and a skew after a time that was told. The freeze ends
//!   a longest lease and two skews after the clock at the restore (`src/core/fleet/registry.rs`).
//!
//! So this registry is restored only when its clock is not behind what it has told
//! ([`ClockProxy::is_behind`]). `a_wrong_restore_of_the_registry_repeats_ids` shows what happens
//! otherwise. Operators see the same clock as members do.

use cluster::{ClockProxy, Etcd, Operated};
use nix::sys::signal::Signal;

use super::operators::tell_restored;
use super::random::Random;
use super::registry::{LEASE_MS, Limits, RANGE, Registry};

/// How far clocks may be apart, in milliseconds.
const SKEW_MS: u32 = 2000;

/// The members of the etcd.
const NODES: usize = 3;

/// Where the registry's clock is stepped to, in seconds from the right time. The first three are
/// within the skew, and stay. The others last some steps, because little is leased meanwhile. After
/// the step back from the greatest one, no restore follows for so long.
const STEPS: [i64; 6] = [0, 1, -1, 10, -10, -3600];

/// The token of the etcd, unless a restore gives it another.
const TOKEN: &str = "one";

/// A snapshot has to be saved before it is restored, so this comes as often again.
const EVENTS: [&str; 7] = [
    "leader killed",
    "etcd stopped",
    "majority lost",
    "registry away",
    "step the registry's clock",
    "registry restored",
    "registry restored",
];

/// What is wrong with the etcd.
enum Trouble {
    Killed(Vec<usize>),
    Stopped(Vec<usize>),
    Unreachable,
}

/// The registry, the proxy through which members reach it, and the one for operators.
pub struct InEtcd {
    etcd: Etcd,
    proxy: ClockProxy,
    operators: ClockProxy,
    /// What is wrong, and up to which step.
    trouble: Option<(Trouble, usize)>,
    /// Up to which step the clock is beyond the skew.
    wrong_clock: Option<usize>,
    has_snapshot: bool,
}

impl InEtcd {
    /// Starts it with a fleet that has the tag `t` only.
    pub fn start() -> Self {
        let etcd = Etcd::start(NODES);
        etcd.make_registry();
        etcd.operate(&["set-range", RANGE[0], RANGE[1]]);
        etcd.operate(&["set-limits", "--lease", &format!("{LEASE_MS} ms"), "--skew", &format!("{SKEW_MS} ms")]);
        etcd.operate(&["create-tag", "t", "--least-step", "10", "--greatest-step", "1000", "--jumps", "true"]);
        let [proxy, operators] = [(); 2].map(|()| ClockProxy::start(&etcd.ports()));
        Self { etcd, proxy, operators, trouble: None, wrong_clock: None, has_snapshot: false }
    }

    /// Kills the member that leads, which lets the others elect another one.
    fn kill_leader(&mut self, step: usize, random: &mut Random) -> String {
        let leader = self.etcd.leader();
        self.kill(vec![leader], step + random.between(1, 4))
    }

    /// Stops a member, which is the leader as often as not.
    fn stop_one(&mut self, step: usize, random: &mut Random) -> String {
        let (number, is_leader, end) = (random.below(NODES), random.below(2) == 0, step + random.between(1, 4));
        let number = if is_leader { self.etcd.leader() } else { number };
        self.stop(vec![number], end)
    }

    fn lose_majority(&mut self, step: usize, random: &mut Random) -> String {
        let (left, is_kill, end) = (random.below(NODES), random.below(2) == 0, step + random.between(1, 8));
        let lost = (0..NODES).filter(|number| *number != left).collect();
        if is_kill { self.kill(lost, end) } else { self.stop(lost, end) }
    }

    fn go_away(&mut self, step: usize, random: &mut Random) -> String {
        let (how, end) = (random.below(3), step + random.between(1, 8));
        let all = (0..NODES).collect();
        match how {
            0 => self.kill(all, end),
            1 => self.stop(all, end),
            _ => {
                self.proxy.close();
                self.trouble = Some((Trouble::Unreachable, end));
                format!("unreachable, up to step {end}")
            }
        }
    }

    fn kill(&mut self, numbers: Vec<usize>, end: usize) -> String {
        for number in &numbers {
            self.etcd.kill_member(*number);
        }
        let text = format!("killed {numbers:?}, up to step {end}");
        self.trouble = Some((Trouble::Killed(numbers), end));
        text
    }

    fn stop(&mut self, numbers: Vec<usize>, end: usize) -> String {
        for number in &numbers {
            self.etcd.signal_member(*number, Signal::SIGSTOP);
        }
        let text = format!("stopped {numbers:?}, up to step {end}");
        self.trouble = Some((Trouble::Stopped(numbers), end));
        text
    }

    /// Saves a snapshot, or restores the last one, under the same token or another one. No server
    /// reaches etcd before an operator has told it, as the page asks.
    fn restore(&mut self, step: usize, random: &mut Random, limits: Limits) -> Option<String> {
        let is_another = random.below(2) == 0;
        if !self.has_snapshot {
            self.etcd.save("snapshot");
            self.has_snapshot = true;
            return Some("a snapshot is saved".to_owned());
        }
        if self.proxy.is_behind() {
            return None;
        }
        self.proxy.close();
        let token = if is_another { format!("step-{step}") } else { TOKEN.to_owned() };
        self.etcd.restore("snapshot", &token);
        let twice = random.below(2) == 0;
        tell_restored(&self.operators, limits, twice);
        self.proxy.open();
        self.has_snapshot = false;
        let (which, told) = (if is_another { "another" } else { "the first" }, if twice { "twice" } else { "once" });
        Some(format!("from the snapshot, with {which} token, told {told}"))
    }

    fn step_clock(&mut self, step: usize, random: &mut Random) -> Option<String> {
        let (seconds, end) = (random.of(&STEPS), step + random.between(1, 8));
        self.set_offset(seconds);
        self.wrong_clock = (seconds.abs() > 1).then_some(end);
        Some(match self.wrong_clock {
            None => format!("to {seconds:+} s"),
            Some(end) => format!("to {seconds:+} s, up to step {end}"),
        })
    }

    fn set_offset(&self, seconds: i64) {
        self.proxy.set_offset(seconds);
        self.operators.set_offset(seconds);
    }
}

impl Registry for InEtcd {
    fn address(&self) -> String {
        self.proxy.address()
    }

    /// Wider than with PostgreSQL, because etcd tells whole seconds only.
    fn events(&self) -> &'static [&'static str] {
        &EVENTS
    }

    fn happen(&mut self, event: usize, step: usize, random: &mut Random, limits: Limits) -> Option<String> {
        if self.trouble.is_some() {
            return None;
        }
        // After the last trouble, it may still have to elect a leader.
        self.etcd.wait();
        match event {
            0 => Some(self.kill_leader(step, random)),
            1 => Some(self.stop_one(step, random)),
            2 => Some(self.lose_majority(step, random)),
            3 => Some(self.go_away(step, random)),
            4 => self.step_clock(step, random),
            _ => self.restore(step, random, limits),
        }
    }

    fn end_what_is_due(&mut self, step: usize) {
        match self.trouble.take_if(|(_, end)| *end <= step) {
            None => {}
            Some((Trouble::Killed(numbers), _)) => {
                numbers.into_iter().for_each(|number| self.etcd.start_member(number));
            }
            Some((Trouble::Stopped(numbers), _)) => {
                numbers.into_iter().for_each(|number| self.etcd.signal_member(number, Signal::SIGCONT));
            }
            Some((Trouble::Unreachable, _)) => self.proxy.open(),
        }
        if self.wrong_clock.is_some_and(|end| end <= step) {
            self.set_offset(0);
            self.wrong_clock = None;
        }
    }

    fn mend(&mut self) {
        self.end_what_is_due(usize::MAX);
        self.etcd.wait();
        self.set_offset(0);
    }

    fn first_limits(&self) -> Limits {
        Limits { lease_ms: LEASE_MS, skew_ms: SKEW_MS }
    }

    fn operated(&self) -> &(dyn Operated + Sync) {
        &self.operators
    }

    /// A change is answered once a majority has it.
    fn wait_until_replicated(&self) {}

    fn has_right_clock(&self) -> bool {
        !self.proxy.is_behind()
    }
}
