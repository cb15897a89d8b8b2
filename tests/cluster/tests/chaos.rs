//! Chaos: three members with standbys and a registry, to which everything happens that may happen,
//! while sessions draw. A ledger outside of the servers holds every id and every dense value that a
//! client saw. No two are equal, and at the end every member draws again.
//!
//! `MINUTES` says how long (1 by default), and `SEED` which events come. `make chaos` prints them.
//! A seed determines the events, and not how the processes run meanwhile. The clocks are stepped by
//! libfaketime, for each server alone.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cluster::registry::ROLE;
use cluster::{Backup, Builder, Draw, Fleet, Paused, Server, Shutdown, faketime_library, refused, skip, wait_until};
use postgres::{Client, Config, NoTls};

/// Members, and sessions for each.
const MEMBERS: usize = 3;
const SESSIONS: usize = 16;

/// Leases are short, so that a pause is longer than one, and a freeze is over soon.
const LEASE: &str = "5s";
const SKEW: &str = "500ms";

/// How long a session rests between two statements. A night's ids have to fit into memory.
const REST: Duration = Duration::from_millis(50);

/// Where the clocks of members are stepped to, in seconds from the right time.
const STEPS_OF_CLOCKS: [f64; 9] = [0.0, 0.0, 0.3, -0.3, 2.0, -2.0, 40.0, 3600.0, -3600.0];

/// Pseudo-random numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ bits >> 31) % end as u64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// What sessions have seen.
#[derive(Default)]
struct Seen {
    ids: Vec<i64>,
    values: Vec<i64>,
}

/// The sessions, and the servers to which they connect.
struct Sessions {
    places: Arc<Mutex<Vec<Config>>>,
    drawn: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Seen>>,
}

impl Sessions {
    fn start(seed: u64) -> Self {
        let places = Arc::new(Mutex::new(Vec::new()));
        let (drawn, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let end = Arc::new(AtomicBool::new(false));
        let start = |number: usize| {
            let (places, drawn, refused) = (Arc::clone(&places), Arc::clone(&drawn), Arc::clone(&refused));
            let (end, random) = (Arc::clone(&end), Random(seed ^ (number as u64) << 40));
            thread::spawn(move || session(&places, &drawn, &refused, &end, random))
        };
        let threads = (0..MEMBERS * SESSIONS).map(start).collect();
        Self { places, drawn, refused, end, threads }
    }

    /// Fails if a session has met what it must not meet.
    #[track_caller]
    fn check(&self) {
        assert!(self.threads.iter().all(|thread| !thread.is_finished()), "a session has ended too early");
    }

    fn end(self) -> Seen {
        // Relaxed: nothing else depends on it.
        self.end.store(true, Ordering::Relaxed);
        let mut all = Seen::default();
        for thread in self.threads {
            let seen = thread.join().expect("a session only notes what it sees");
            all.ids.extend(seen.ids);
            all.values.extend(seen.values);
        }
        all
    }
}

/// Draws until the end, and connects to another server when its own is gone, and sometimes anyway.
fn session(
    places: &Mutex<Vec<Config>>,
    drawn: &AtomicUsize,
    refused_draws: &AtomicUsize,
    end: &AtomicBool,
    mut random: Random,
) -> Seen {
    let (mut seen, mut client): (Seen, Option<Client>) = (Seen::default(), None);
    // Relaxed, here and below: nothing else depends on it.
    while !end.load(Ordering::Relaxed) {
        thread::sleep(REST);
        let Some(session) = client.as_mut().filter(|session| !session.is_closed() && random.below(50) > 0) else {
            let place = {
                let places = places.lock().expect("no thread panics with it");
                (!places.is_empty()).then(|| places[random.below(places.len())].clone())
            };
            client = place.and_then(|place| place.connect(NoTls).ok());
            continue;
        };
        let is_value = random.below(4) == 0;
        let sql = match (is_value, random.below(3)) {
            (false, 0) => "SELECT snowflake_next()",
            (false, 1) => "SELECT snowflake_next() FROM generate_series(1, 5)",
            (false, _) => "SELECT snowflake_batch(20)",
            (true, 0) => "SELECT snowflake_segment_next('t')",
            (true, 1) => "SELECT snowflake_segment_next('t') FROM generate_series(1, 5)",
            (true, _) => "SELECT snowflake_segment_batch('t', 20)",
        };
        match session.ids(sql) {
            Ok(more) => {
                drawn.fetch_add(more.len(), Ordering::Relaxed);
                if is_value { seen.values.extend(more) } else { seen.ids.extend(more) }
            }
            Err(error) if session.is_closed() || error.code().is_none() => client = None,
            Err(error) => {
                refused_draws.fetch_add(1, Ordering::Relaxed);
                let refusal = refused::<()>(Err(error));
                // No lease, no values or a wrong clock; a server that ends; a statement's end.
                let is_expected =
                    refusal.sqlstate == "58000" || refusal.sqlstate.starts_with("57P") || refusal.sqlstate == "57014";
                assert!(is_expected, "{sql}: {refusal:?}");
            }
        }
    }
    seen
}

/// A member of the fleet.
struct Member {
    primary: Server,
    standby: Server,
    paused: Option<(Paused, usize)>,
}

/// Everything.
struct Chaos {
    random: Random,
    step: usize,
    events: [usize; EVENTS.len()],
    registry: Server,
    registry_standby: Server,
    /// When the registry is started again.
    registry_is_away: Option<usize>,
    backup: Option<Backup>,
    members: Vec<Member>,
    /// Servers that should not be: copies, and primaries that were replaced. Each with its end.
    others: Vec<(Server, usize)>,
    /// Registries that are gone. The first one's directory has the link to the present one.
    gone: Vec<Server>,
    link: PathBuf,
    sessions: Sessions,
}

/// What happens: its name, and how it happens. Returns what has happened, or nothing if it cannot
/// happen now.
type Event = (&'static str, fn(&mut Chaos) -> Option<String>);

const EVENTS: [Event; 10] = [
    ("kill", Chaos::kill),
    ("kill a session's process", Chaos::kill_backend),
    ("restart", Chaos::restart),
    ("pause", Chaos::pause),
    ("copy", Chaos::copy),
    ("promote", Chaos::promote),
    ("step a clock", Chaos::step_clock),
    ("registry away", Chaos::registry_away),
    ("registry fails over", Chaos::fail_registry_over),
    ("registry restored", Chaos::restore_registry),
];

impl Chaos {
    fn start(seed: u64) -> Self {
        let Fleet { registry, .. } = Fleet::start();
        // No jump is too short: what a restore forgets is less than a million blocks.
        let tag = "INSERT INTO snowflake_registry.tags (tag, least_step, greatest_step, jump) VALUES ('t', 10, 1000, 1000000)";
        registry.connect().batch_execute(tag).expect("the tag is new");
        let link = directory(&registry).join("registry");
        symlink(directory(&registry), &link).expect("the directory is writable");
        let conninfo = format!("host='{}' user={ROLE} dbname=postgres", link.display());
        let member = || {
            let primary = settings(Server::builder().set("registry", &conninfo)).start_with_extension();
            let standby = primary.standby().faketime().start();
            Member { primary, standby, paused: None }
        };
        let members: Vec<_> = (0..MEMBERS).map(|_| member()).collect();
        let registry_standby = registry.standby().start();
        Self {
            random: Random(seed),
            step: 0,
            events: [0; EVENTS.len()],
            registry,
            registry_standby,
            registry_is_away: None,
            backup: None,
            members,
            others: Vec::new(),
            gone: Vec::new(),
            link,
            sessions: Sessions::start(seed),
        }
    }

    /// One event, and what is due by now.
    fn step(&mut self) {
        self.step += 1;
        self.end_what_is_due();
        let number = self.random.below(EVENTS.len());
        let (name, event) = EVENTS[number];
        if let Some(what) = event(self) {
            self.events[number] += 1;
            println!("step {}: {name}: {what}; {} drawn", self.step, self.sessions.drawn.load(Ordering::Relaxed));
        }
        self.connect_sessions();
        thread::sleep(Duration::from_millis(200 + self.random.below(1000) as u64));
        self.sessions.check();
    }

    fn end_what_is_due(&mut self) {
        let step = self.step;
        for member in &mut self.members {
            member.paused.take_if(|(_, end)| *end <= step);
            // Some servers end by themselves: one with another clock runs for minutes at most.
            for server in [&member.primary, &member.standby] {
                if member.paused.is_none() && !server.is_running() {
                    server.start_again();
                }
            }
        }
        self.others.retain(|(server, end)| *end > step && server.is_running());
        if self.registry_is_away.take_if(|end| *end <= step).is_some() {
            self.registry.start_again();
        }
    }

    /// Sends the sessions to the servers that run now.
    fn connect_sessions(&self) {
        let primaries = self.members.iter().map(|member| &member.primary);
        let others = self.others.iter().map(|(server, _)| server);
        let places = primaries.chain(others).filter(|server| server.is_running()).map(Server::connection).collect();
        *self.sessions.places.lock().expect("no thread panics with it") = places;
    }

    /// Returns a member that is not paused.
    fn awake(&mut self) -> Option<usize> {
        let number = self.random.below(MEMBERS);
        self.members[number].paused.is_none().then_some(number)
    }

    /// Returns the step after some more.
    fn later(&mut self, least: usize, most: usize) -> usize {
        self.step + least + self.random.below(most - least + 1)
    }

    fn kill(&mut self) -> Option<String> {
        let number = self.awake()?;
        let primary = &self.members[number].primary;
        primary.crash();
        primary.start_again();
        Some(format!("member {number}"))
    }

    fn kill_backend(&mut self) -> Option<String> {
        let number = self.awake()?;
        let primary = &self.members[number].primary;
        primary.kill_backend(primary.connect().value("pg_backend_pid()").parse().ok()?);
        primary.wait_until_ready();
        Some(format!("member {number}"))
    }

    fn restart(&mut self) -> Option<String> {
        let number = self.awake()?;
        let how = self.random.of(&[Shutdown::Fast, Shutdown::Immediate]);
        let primary = &self.members[number].primary;
        primary.stop(how);
        primary.start_again();
        Some(format!("member {number}, {how:?}"))
    }

    fn pause(&mut self) -> Option<String> {
        let number = self.awake()?;
        // Some of them for longer than a lease.
        let end = self.later(1, 12);
        self.members[number].paused = Some((self.members[number].primary.pause(), end));
        Some(format!("member {number}, up to step {end}"))
    }

    fn copy(&mut self) -> Option<String> {
        let number = self.awake().filter(|_| self.others.len() < 2)?;
        let copy = self.members[number].primary.base_backup().alone().faketime().start();
        let end = self.later(2, 8);
        self.others.push((copy, end));
        Some(format!("member {number}, up to step {end}"))
    }

    /// Promotes a standby. Its primary lives on.
    fn promote(&mut self) -> Option<String> {
        let number = self.awake().filter(|_| self.others.len() < 2)?;
        let end = self.later(2, 8);
        let member = &mut self.members[number];
        member.standby.promote();
        let standby = member.standby.standby().faketime().start();
        let primary = std::mem::replace(&mut member.standby, standby);
        let old = std::mem::replace(&mut member.primary, primary);
        self.others.push((old, end));
        Some(format!("member {number}; the old primary lives up to step {end}"))
    }

    fn step_clock(&mut self) -> Option<String> {
        let (number, seconds) = (self.random.below(MEMBERS), self.random.of(&STEPS_OF_CLOCKS));
        self.members[number].primary.set_clock_offset(seconds);
        Some(format!("member {number} to {seconds:+} s"))
    }

    fn registry_away(&mut self) -> Option<String> {
        if self.registry_is_away.is_some() {
            return None;
        }
        let end = self.later(1, 10);
        self.registry.crash();
        self.registry_is_away = Some(end);
        Some(format!("up to step {end}"))
    }

    /// Lets the standby take over, sometimes without the last changes.
    fn fail_registry_over(&mut self) -> Option<String> {
        if self.registry_is_away.is_some() {
            return None;
        }
        let is_cut_off = self.random.below(2) == 0;
        if is_cut_off {
            let received = self.registry_standby.cut_off();
            thread::sleep(Duration::from_millis(500));
            self.registry_standby.wait_until_replayed(&received);
        }
        self.registry.crash();
        self.registry_standby.promote();
        let standby = self.registry_standby.standby().start();
        let new = std::mem::replace(&mut self.registry_standby, standby);
        self.replace_registry(new);
        Some(if is_cut_off { "its tail is lost" } else { "orderly" }.to_owned())
    }

    /// Takes a backup of the registry, or replaces the registry by the last one.
    fn restore_registry(&mut self) -> Option<String> {
        if self.registry_is_away.is_some() {
            return None;
        }
        let Some(backup) = self.backup.take() else {
            self.backup = Some(self.registry.base_backup());
            return Some("a backup is taken".to_owned());
        };
        self.registry.crash();
        let new = backup.alone().start();
        new.connect().batch_execute("SELECT snowflake_registry.restored()").expect("an operator may call it");
        self.registry_standby = new.standby().start();
        self.replace_registry(new);
        Some("from the backup".to_owned())
    }

    fn replace_registry(&mut self, new: Server) {
        let link = self.link.with_extension("new");
        symlink(directory(&new), &link).expect("the directory is writable");
        fs::rename(link, &self.link).expect("the directory is writable");
        let old = std::mem::replace(&mut self.registry, new);
        // Only the first one's directory is needed.
        if self.gone.is_empty() {
            self.gone.push(old);
        }
    }

    /// Ends all trouble, waits until every member draws, and checks what was drawn.
    fn end(mut self) {
        self.step = usize::MAX;
        self.end_what_is_due();
        for member in &self.members {
            member.primary.set_clock_offset(0.0);
        }
        self.connect_sessions();
        for (number, member) in self.members.iter().enumerate() {
            wait_until(&format!("member {number} to draw again"), || {
                let draws = |sql: &str| member.primary.connect().ids(sql).is_ok();
                draws("SELECT snowflake_next()") && draws("SELECT snowflake_segment_next('t')")
            });
        }
        let refused = self.sessions.refused.load(Ordering::Relaxed);
        let Seen { ids, values } = self.sessions.end();
        let count = |(name, _): &Event, count: &usize| format!("{count} {name}");
        let events: Vec<_> = EVENTS.iter().zip(&self.events).map(|(event, number)| count(event, number)).collect();
        println!("{} ids, {} dense values, {refused} refused; {}", ids.len(), values.len(), events.join(", "));
        for (what, drawn) in [("ids", ids), ("values", values)] {
            assert!(drawn.len() > 100, "only {} {what}", drawn.len());
            assert_eq!(repeats(drawn), [] as [i64; 0], "{what} that came twice");
        }
    }
}

fn settings(builder: Builder) -> Builder {
    builder
        .set("lease", LEASE)
        .set("max_clock_skew", SKEW)
        .config("dynamic_shared_memory_type", "mmap")
        .config("shared_buffers", "16MB")
        .time_limit()
        .faketime()
}

/// Returns where a server has its socket.
fn directory(server: &Server) -> PathBuf {
    server.data_dir().parent().expect("it has a parent").to_owned()
}

/// Returns up to ten of the numbers that are there more than once.
fn repeats(mut drawn: Vec<i64>) -> Vec<i64> {
    drawn.sort_unstable();
    drawn.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).take(10).collect()
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Says which events have led to a failure.
struct Announced(u64);

impl Drop for Announced {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("SEED={} leads to these events again", self.0);
        }
    }
}

#[test]
fn no_id_and_no_value_comes_twice_in_chaos() {
    if faketime_library().is_none() {
        return skip("libfaketime is not installed");
    }
    let minutes = number("MINUTES").unwrap_or(1);
    let seed = number("SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.expect("it is after 1970").as_secs()
    });
    println!("SEED={seed}, {minutes} minutes");
    let _announced = Announced(seed);
    let (mut chaos, start) = (Chaos::start(seed), Instant::now());
    chaos.connect_sessions();
    while start.elapsed() < Duration::from_secs(60 * minutes) {
        chaos.step();
    }
    chaos.end();
}

/// The ledger finds what comes twice.
#[test]
fn repeats_are_found() {
    assert_eq!(repeats(vec![3, 1, 2, 3, 1, 1]), [1, 1, 3]);
}
