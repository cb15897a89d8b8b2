//! The fleet: members with standbys, a registry, the sessions, and what happens to the members.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use cluster::{Builder, Draw, EDITION, Paused, Server, Shutdown, wait_until};

use super::edition::{self, Edition, Outcome};
use super::operators::Operators;
use super::random::Random;
use super::readers::{How, Place, Readers, missed};
use super::registry::{KEPT_WAL, Registry};
use super::sessions::{Seen, Sessions, Work, repeats};

/// Members, and sessions for each.
const MEMBERS: usize = 3;
const SESSIONS: usize = 16;

/// Where the clocks of members are stepped to, in seconds from the right time.
const STEPS_OF_CLOCKS: [f64; 9] = [0.0, 0.0, 0.3, -0.3, 2.0, -2.0, 40.0, 3600.0, -3600.0];

/// A member of the fleet.
struct Member {
    primary: Server,
    standby: Server,
    /// How many primaries it has had before.
    failovers: usize,
    paused: Option<(Paused, usize)>,
}

impl Member {
    fn place(&self) -> Place {
        Place { primary: self.primary.connection(), failovers: self.failovers, first: None }
    }
}

/// Everything.
pub struct Chaos {
    seed: u64,
    random: Random,
    step: usize,
    /// How often each event has happened.
    events: BTreeMap<&'static str, usize>,
    registry: Box<dyn Registry>,
    operators: Operators,
    members: Vec<Member>,
    /// Servers that should not be: copies, and primaries that were replaced. Each with its end.
    others: Vec<(Server, usize)>,
    edition: Edition,
    sessions: Sessions,
    readers: Readers,
}

/// What happens to members: its name, and how it happens. Returns what has happened, or nothing if
/// it cannot happen now.
type Event = (&'static str, fn(&mut Chaos) -> Option<String>);

const EVENTS: [Event; 9] = [
    ("kill", Chaos::kill),
    ("kill a session's process", Chaos::kill_backend),
    ("restart", Chaos::restart),
    ("pause", Chaos::pause),
    ("copy", Chaos::copy),
    ("promote", Chaos::promote),
    ("step a clock", Chaos::step_clock),
    // Twice as often as each of the others.
    ("operators", Chaos::operate),
    ("operators", Chaos::operate),
];

impl Chaos {
    /// Starts the members and the sessions.
    pub fn start(registry: Box<dyn Registry>, seed: u64) -> Self {
        let address = registry.address();
        let settings = |builder: Builder| {
            builder
                .set("registry", &address)
                .config("dynamic_shared_memory_type", "mmap")
                .config("shared_buffers", "16MB")
                .config("wal_keep_size", KEPT_WAL)
                .time_limit()
                .faketime()
                .may_run_long()
        };
        let member = || {
            let primary = settings(Server::builder()).start_with_extension();
            let outbox = "CREATE TABLE outbox (id bigint PRIMARY KEY DEFAULT snowflake_next())";
            primary.connect().batch_execute(outbox).expect("the server is new");
            let standby = primary.standby().faketime().may_run_long().start();
            Member { primary, standby, failovers: 0, paused: None }
        };
        // At once, because the time for it is not long.
        let (members, edition) = thread::scope(|scope| {
            let edition = scope.spawn(|| Edition::start(EDITION, "", seed));
            let members: Vec<_> = (0..MEMBERS).map(|_| scope.spawn(member)).collect();
            let members: Vec<_> = members.into_iter().map(|member| member.join().expect("it starts")).collect();
            (members, edition.join().expect("it starts"))
        });
        let sessions = Sessions::start(MEMBERS * SESSIONS, seed, Work { values: true, rows: true, order: false });
        let readers = Readers::start(How::Settled, members.iter().map(Member::place).collect());
        let events =
            EVENTS.iter().map(|(name, _)| *name).chain(registry.events().iter().copied()).chain(edition::events());
        let chaos = Self {
            seed,
            random: Random::new(seed),
            step: 0,
            events: events.map(|name| (name, 0)).collect(),
            operators: Operators::new(registry.first_limits()),
            registry,
            members,
            others: Vec::new(),
            edition,
            sessions,
            readers,
        };
        chaos.connect_sessions();
        chaos
    }

    /// One event, and what is due by now. What is tried depends on the seed and on the step alone.
    pub fn step(&mut self, step: usize) {
        self.step = step;
        self.random = Random::new(self.seed ^ (step as u64) << 32);
        self.end_what_is_due();
        let of_registry = self.registry.events();
        let number = self.random.below(EVENTS.len() + of_registry.len());
        let (name, happened) = match number.checked_sub(EVENTS.len()) {
            None => (EVENTS[number].0, EVENTS[number].1(self)),
            Some(number) => {
                (of_registry[number], self.registry.happen(number, step, &mut self.random, self.operators.limits()))
            }
        };
        if let Some(what) = happened {
            *self.events.entry(name).or_default() += 1;
            println!("step {step}: {name}: {what}; {} drawn", self.sessions.drawn());
        }
        // Beside it, with numbers of its own.
        let mut random = Random::new(self.seed ^ (step as u64) << 32 ^ 1 << 63);
        if let Some((name, what)) = self.edition.happen(step, &mut random) {
            *self.events.entry(name).or_default() += 1;
            println!("step {step}: {name}: {what}; {} drawn", self.edition.drawn());
        }
        self.connect_sessions();
        thread::sleep(Duration::from_millis(self.random.between(200, 1200) as u64));
        self.sessions.check();
        self.readers.check();
        self.edition.check();
    }

    fn end_what_is_due(&mut self) {
        let step = self.step;
        for (number, member) in self.members.iter_mut().enumerate() {
            member.paused.take_if(|(_, end)| *end <= step);
            if member.paused.is_none() {
                let is_running = member.primary.is_running() && member.standby.is_running();
                assert!(is_running, "member {number} or its standby has ended by itself");
            }
        }
        self.others.retain(|(server, end)| *end > step && server.is_running());
        self.registry.end_what_is_due(step);
        self.operators.end_what_is_due(&*self.registry, step);
    }

    /// Sends the sessions to the servers that run now, and the readers to the primaries.
    fn connect_sessions(&self) {
        let primaries = self.members.iter().map(|member| &member.primary);
        let others = self.others.iter().map(|(server, _)| server);
        let running = primaries.chain(others).filter(|server| server.is_running());
        self.sessions.connect(running.map(Server::connection).collect());
        self.readers.connect(self.members.iter().map(Member::place).collect());
    }

    /// Returns a member that is not paused.
    fn awake(&mut self) -> Option<usize> {
        let number = self.random.below(MEMBERS);
        self.members[number].paused.is_none().then_some(number)
    }

    /// Returns the step after some more.
    fn later(&mut self, least: usize, most: usize) -> usize {
        self.step + self.random.between(least, most)
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
        let copy = self.members[number].primary.base_backup().alone().faketime().may_run_long().start();
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
        let standby = member.standby.standby().faketime().may_run_long().start();
        let primary = std::mem::replace(&mut member.standby, standby);
        let old = std::mem::replace(&mut member.primary, primary);
        member.failovers += 1;
        self.others.push((old, end));
        Some(format!("member {number}; the old primary lives up to step {end}"))
    }

    fn step_clock(&mut self) -> Option<String> {
        let (number, seconds) = (self.random.below(MEMBERS), self.random.of(&STEPS_OF_CLOCKS));
        self.members[number].primary.set_clock_offset(seconds);
        Some(format!("member {number} to {seconds:+} s"))
    }

    fn operate(&mut self) -> Option<String> {
        Some(self.operators.act(&*self.registry, self.step, &mut self.random))
    }

    /// Ends all trouble, waits until every member draws, and checks what was drawn.
    pub fn end(mut self) {
        self.step = usize::MAX;
        self.end_what_is_due();
        self.registry.mend();
        self.operators.mend(&*self.registry);
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
        let refused = self.sessions.refused();
        let Seen { mut ids, values, .. } = self.sessions.end();
        let read = self.readers.end();
        let rows: usize = read.iter().map(|got| got.rows.len()).sum();
        let of_edition = self.edition.end();
        let events: Vec<_> = self.events.iter().map(|(name, count)| format!("{count} {name}")).collect();
        let counts = format!("{} ids, {} dense values, {rows} rows read", ids.len(), values.len());
        println!("{counts}, {refused} refused; {}", events.join(", "));
        let Outcome { ids: edition_ids, forgotten, lives, rows_read, refused, .. } = &of_edition;
        let counts =
            format!("{} ids in {lives} lives, {forgotten} forgotten, {rows_read} rows read", edition_ids.len());
        println!("the edition: {counts}, {refused} refused");
        assert!(ids.len() > 100, "only {} ids", ids.len());
        assert!(values.len() > 100, "only {} values", values.len());
        assert!(rows > 100, "only {rows} rows");
        for (number, (member, got)) in self.members.iter().zip(&read).enumerate() {
            assert_eq!(
                missed(&mut member.primary.connect(), got),
                [] as [i64; 0],
                "rows that member {number}'s reader missed"
            );
            assert_eq!(got.again, [] as [i64; 0], "rows that member {number}'s reader got twice");
        }
        assert!(of_edition.ids.len() > 100 && of_edition.rows_read > 10, "{of_edition:?}");
        assert_eq!(of_edition.faults, [] as [&str; 0], "what the edition does not keep");
        assert_eq!((of_edition.missed, of_edition.again), (vec![], vec![]), "rows missed and read twice");
        ids.extend(of_edition.ids);
        for (what, drawn) in [("ids", ids), ("values", values)] {
            assert_eq!(repeats(drawn), [] as [i64; 0], "{what} that came twice");
        }
    }
}
