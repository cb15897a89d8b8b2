//! Members whose processes are killed about once a second, and nothing else is wrong with them: one
//! process, the postmaster, or all at once. Some are restarted cleanly, while their registry is
//! away. It is for half of the time. Each goes on with its lease (`lives.rs`, `restarts.rs`).

use std::thread;
use std::time::{Duration, Instant};

use cluster::{Draw, Fleet, Leases, Server, Shutdown};

use super::random::Random;
use super::sessions::{Seen, Sessions, Work};

/// Members, and sessions for each.
const MEMBERS: usize = 2;
const SESSIONS: usize = 8;

/// After so many kills the registry goes away, or comes back.
const KILLS: usize = 8;

/// What can be killed.
const VICTIMS: [&str; 4] = ["client backend", "snowflake_id lease", "walwriter", "background writer"];

/// What has come of it.
pub struct Outcome {
    pub kills: usize,
    /// How many of them happened while the registry was away.
    pub kills_without_registry: usize,
    /// How often a postmaster was killed, or stopped.
    pub restarts: usize,
    /// How often it was killed.
    pub killed_postmasters: usize,
    /// Which member had which number at the beginning and at the end.
    pub numbers: Vec<[i64; 2]>,
    /// What the sessions of all members have seen.
    pub seen: Vec<Seen>,
}

/// Kills for so long.
pub fn run(time: Duration, seed: u64) -> Outcome {
    let (fleet, mut random) = (Fleet::start(), Random::new(seed));
    let members: Vec<Server> = (0..MEMBERS)
        .map(|_| {
            let server = fleet.member().may_run_long().start_with_extension();
            let outbox = "CREATE TABLE outbox (id bigint PRIMARY KEY DEFAULT snowflake_next())";
            server.connect().batch_execute(outbox).expect("the server is new");
            server
        })
        .collect();
    let numbers: Vec<i64> = members.iter().map(|server| server.connect().wait_for_lease()).collect();
    members.iter().for_each(|server| fleet.lengthen_the_lease(server));
    let work = Work { rows: true, order: true, ..Work::default() };
    let sessions: Vec<_> = members
        .iter()
        .map(|server| {
            let sessions = Sessions::start(SESSIONS, random.below(1 << 30) as u64, work);
            sessions.connect(vec![server.connection()]);
            sessions
        })
        .collect();
    let (start, mut kills, mut kills_without_registry) = (Instant::now(), 0, 0);
    let (mut restarts, mut killed_postmasters) = (0, 0);
    while start.elapsed() < time {
        if kills % KILLS == 0 {
            if fleet.registry.is_running() && kills > 0 {
                fleet.registry.stop(Shutdown::Immediate);
            } else if !fleet.registry.is_running() {
                fleet.registry.start_again();
            }
        }
        let server = &members[random.below(MEMBERS)];
        let is_restart = random.below(4) == 0;
        if is_restart {
            killed_postmasters += usize::from(restart(server, &mut random, fleet.registry.is_running()));
            restarts += 1;
        }
        if is_restart || kill(server, &mut random) {
            kills += 1;
            kills_without_registry += usize::from(!fleet.registry.is_running());
        }
        thread::sleep(Duration::from_millis(random.between(200, 1200) as u64));
        sessions.iter().for_each(Sessions::check);
    }
    // Without it, what follows would be easier.
    if fleet.registry.is_running() {
        fleet.registry.stop(Shutdown::Immediate);
    }
    let numbers = members.iter().zip(numbers).map(|(server, before)| [before, server.connect().wait_for_lease()]);
    let numbers = numbers.collect();
    let seen = sessions.into_iter().map(Sessions::end).collect();
    Outcome { kills, kills_without_registry, restarts, killed_postmasters, numbers, seen }
}

/// Ends a server, and starts it. A clean stop would give the number back to a registry that
/// answers. Returns whether its postmaster was killed.
fn restart(server: &Server, random: &mut Random, has_registry: bool) -> bool {
    let how = random.below(if has_registry { 3 } else { 4 });
    match how {
        0 => server.crash(),
        1 => server.kill_postmaster(),
        2 => server.stop(Shutdown::Immediate),
        _ => server.stop(Shutdown::Fast),
    }
    server.start_again();
    how < 2
}

/// Kills a process of a server. Returns false if there is none of the kind that was chosen.
fn kill(server: &Server, random: &mut Random) -> bool {
    let mut session = server.connect();
    let sql = format!(
        "SELECT pid::bigint FROM pg_stat_activity WHERE backend_type = '{}' AND pid <> pg_backend_pid()",
        random.of(&VICTIMS)
    );
    let Ok(pids) = session.ids(&sql) else { return false };
    if pids.is_empty() {
        return false;
    }
    let pid = i32::try_from(pids[random.below(pids.len())]).expect("it is a process");
    // It may have ended by now, as sessions do.
    if !server.kills(pid) {
        return false;
    }
    server.wait_until_ready();
    true
}
