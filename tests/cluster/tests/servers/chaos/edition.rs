//! A member whose ids come from the SQL edition: a server that loads no library, with a standby and
//! a number that the registry does not lease. It promises less than the others (`docs/edition.md`):
//!
//! - The number is its own. So a primary ends before its standby takes over, or before a restored
//!   dump does, and a copy gets another number before it draws.
//! - An id that was only seen can come again after a crash or a failover, if the clock is then
//!   behind that id, or still in its tick. An id that a row holds cannot, whatever the clock says.
//!
//! So the member has lives. One ends where the server can forget what it has drawn. The next one
//! begins with an id that is above all rows which the server then holds. All others of that life
//! are above it. What was seen before can come again only from there on, and only if the clock
//! was no further.
//!
//! What is wrong is noted, because a lie is to be found.

use cluster::{Builder, Draw, Paused, Server, Shutdown, refused, wait_until};
use postgres::Client;
use snowflake_core::id::layout::Layout;

use super::random::Random;
use super::readers::{How, Place, Readers, missed};
use super::registry::KEPT_WAL;
use super::sessions::{Seen, Sessions, Work, repeats};

/// Sessions of the member, and of a copy.
const SESSIONS: usize = 8;
const SESSIONS_OF_A_COPY: usize = 2;

/// The member's number, and the last one for a copy. Each copy has the next one. None is leased
/// ([`RANGE`](super::registry::RANGE)).
const NUMBER: i32 = 500;
const LAST_NUMBER: i32 = 1023;

/// Where its clock is stepped to, in seconds from where it was furthest.
const STEPS_OF_THE_CLOCK: [f64; 8] = [0.0, 0.3, 2.0, 3600.0, -0.15, -0.3, -2.0, -3600.0];

/// The same for a start. Half of the clocks are right.
const CLOCKS_AT_A_START: [f64; 6] = [0.0, 0.0, 0.0, -0.3, -2.0, -3600.0];

/// The member.
pub struct Edition {
    seed: u64,
    step: usize,
    primary: Server,
    standby: Server,
    /// They draw, unless the clock has been behind since the life's start.
    sessions: Option<Sessions>,
    readers: Readers,
    lives: usize,
    /// Copies, each with its sessions and its end.
    copies: Vec<(Server, Sessions, usize)>,
    next_number: i32,
    /// The clock's distance from the right time, and the greatest that it had.
    offset: f64,
    furthest: f64,
    /// Up to which step the clock is behind, and up to which one the server is stopped.
    behind: Option<usize>,
    paused: Option<(Paused, usize)>,
    /// What was seen in the lives before, and by copies, and may not come again.
    seen: Vec<i64>,
    outcome: Outcome,
}

/// What has come of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What clients have seen, without what may have come again.
    pub ids: Vec<i64>,
    /// How much may have come again, because the clock was behind it when a life began.
    pub forgotten: usize,
    pub lives: usize,
    pub refused: usize,
    pub rows_read: usize,
    /// Rows that the reader has missed, or got once more.
    pub missed: Vec<i64>,
    pub again: Vec<i64>,
    /// Where the promises were broken.
    pub faults: Vec<String>,
}

/// What happens to it: its name, and how it happens. Returns what has happened, or nothing if it
/// cannot happen now.
type Event = (&'static str, fn(&mut Edition, &mut Random) -> Option<String>);

const EVENTS: [Event; 9] = [
    ("edition killed", Edition::kill),
    ("edition killed", Edition::kill),
    ("a session of the edition killed", Edition::kill_backend),
    ("edition restarted", Edition::restart),
    ("edition paused", Edition::pause),
    ("edition promoted", Edition::promote),
    ("edition copied", Edition::copy),
    ("edition restored from a dump", Edition::restore),
    ("step the edition's clock", Edition::step_clock),
];

/// Returns the names of all that may happen to it.
pub fn events() -> impl Iterator<Item = &'static str> {
    EVENTS.iter().map(|(name, _)| *name)
}

impl Edition {
    /// Starts it with a text of the edition's file, and runs statements after its installation.
    pub fn start(file: &str, after: &str, seed: u64) -> Self {
        let primary = new_server().start();
        let install = format!("SELECT snowflake_install(worker_id => {NUMBER}, settled => true)");
        // No unique constraint: the ledger has to find what comes twice.
        let table = "CREATE TABLE public.outbox (id bigint DEFAULT snowflake_next()); CREATE INDEX ON outbox (id)";
        let mut session = primary.connect();
        for sql in
            ["CREATE SCHEMA edition; SET search_path = edition", file, &install, "RESET search_path", table, after]
        {
            session.batch_execute(sql).expect("the edition can be installed");
        }
        let standby = primary.standby().faketime().may_run_long().start();
        let readers = Readers::start(How::SettledBefore, vec![place(&primary, 0, None)]);
        let mut edition = Self {
            seed,
            step: 0,
            primary,
            standby,
            sessions: None,
            readers,
            lives: 0,
            copies: Vec::new(),
            next_number: NUMBER + 1,
            offset: 0.0,
            furthest: 0.0,
            behind: None,
            paused: None,
            seen: Vec::new(),
            outcome: Outcome::default(),
        };
        edition.begin();
        edition
    }

    /// Ends what is due by this step, and lets one of the events happen, or none. Returns its name,
    /// and what has happened.
    pub fn happen(&mut self, step: usize, random: &mut Random) -> Option<(&'static str, String)> {
        self.end_what_is_due(step);
        self.begin();
        // As often as not.
        let (name, event) = *EVENTS.get(random.below(2 * EVENTS.len()))?;
        if self.paused.is_some() {
            return None;
        }
        Some((name, event(self, random)?))
    }

    /// Returns how much was drawn in this life.
    pub fn drawn(&self) -> usize {
        self.sessions.as_ref().map_or(0, Sessions::drawn)
    }

    /// Fails if a session or the reader has met what it must not meet.
    #[track_caller]
    pub fn check(&self) {
        self.sessions.iter().for_each(Sessions::check);
        self.readers.check();
    }

    fn end_what_is_due(&mut self, step: usize) {
        self.step = step;
        self.paused.take_if(|(_, end)| *end <= step);
        if self.paused.is_none() {
            assert!(self.primary.is_running() && self.standby.is_running(), "the edition or its standby has ended");
            if self.behind.is_some_and(|end| end <= step) {
                self.set_right();
            }
        }
        for (copy, sessions, end) in std::mem::take(&mut self.copies) {
            if end <= step {
                self.end_sessions(sessions);
            } else {
                self.copies.push((copy, sessions, end));
            }
        }
    }

    // Lives

    /// Begins the next life, unless one has begun, or the clock is behind the last id.
    fn begin(&mut self) {
        if self.sessions.is_some() || self.paused.is_some() {
            return;
        }
        let session = self.primary.connect();
        let Some(first) = self.first_id(session, "the server") else { return };
        self.lives += 1;
        self.outcome.lives += 1;
        self.readers.connect(vec![place(&self.primary, self.lives, Some(first))]);
        let work = Work { rows: true, order: true, ..Work::default() };
        let sessions = Sessions::start(SESSIONS, self.seed ^ (self.lives as u64) << 20, work);
        sessions.connect(vec![self.primary.connection()]);
        self.sessions = Some(sessions);
    }

    /// Draws the first id of a life, unless the clock is behind the last one. Checks that it is
    /// above what the server holds, and what may not come again.
    fn first_id(&mut self, mut session: Client, which: &str) -> Option<i64> {
        let held = session.ids("SELECT id FROM outbox ORDER BY id").expect("the server serves");
        let now = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let now_ms = session.ids(now).expect("the server serves")[0];
        let first = match session.try_draw() {
            Ok(id) => id,
            Err(error) => {
                assert_eq!(refused::<()>(Err(error)).sqlstate, "58000");
                return None;
            }
        };
        if let Some(id) = held.last().filter(|id| **id >= first) {
            self.outcome.faults.push(format!("{first} was drawn first, and {which} holds {id}"));
        }
        let layout = Layout::parse("snowflake").expect("it is built in");
        let number = |id: i64| layout.parts(id).expect("it is one of the layout's").worker;
        let (seen, again): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.seen).into_iter().partition(|id| *id < first || number(*id) != number(first));
        let is_behind = |id: i64| layout.created_at_ms(id).expect("it is one of the layout's") >= now_ms;
        if let Some(id) = again.iter().find(|id| !is_behind(**id)) {
            self.outcome.faults.push(format!("{first} was drawn first, at {now_ms}, after {id} was seen"));
        }
        self.outcome.forgotten += again.len();
        self.seen = seen;
        // What had come twice by then stays.
        self.outcome.ids.extend(repeats(again).into_iter().flat_map(|id| [id; 2]));
        self.seen.push(first);
        Some(first)
    }

    /// Ends the server, or its processes, while sessions draw, and the life with it. `end` returns
    /// when the sessions are gone.
    fn end_life(&mut self, end: impl FnOnce(&Server)) {
        // None of them draws in the next life.
        self.sessions.iter().for_each(|sessions| sessions.connect(Vec::new()));
        end(&self.primary);
        if let Some(sessions) = self.sessions.take() {
            self.end_sessions(sessions);
        }
    }

    fn end_sessions(&mut self, sessions: Sessions) {
        self.outcome.refused += sessions.refused();
        let Seen { ids, disorder, .. } = sessions.end();
        self.seen.extend(ids);
        self.outcome.faults.extend(disorder);
    }

    // The clock

    /// Sets its clock, to so many seconds from where it was furthest.
    pub fn set_clock(&mut self, seconds: f64, random: &mut Random) -> String {
        self.offset = self.furthest + seconds;
        self.furthest = self.furthest.max(self.offset);
        self.primary.set_clock_offset(self.offset);
        self.behind = (seconds < 0.0).then(|| self.step + random.between(1, 4));
        format!("{seconds:+} s")
    }

    fn set_right(&mut self) {
        self.offset = self.furthest;
        self.primary.set_clock_offset(self.offset);
        self.behind = None;
        // A clock that is set back while a draw waits lets it sleep on, until it is cancelled.
        let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        self.primary.connect().batch_execute(cancel).expect("the server serves");
    }

    // Events

    fn kill(&mut self, random: &mut Random) -> Option<String> {
        let is_whole = random.below(2) == 0;
        self.end_life(if is_whole { Server::crash } else { Server::kill_postmaster });
        let clock = self.start_again(random);
        Some(format!("{}, with the clock at {clock}", if is_whole { "all processes" } else { "the postmaster" }))
    }

    fn restart(&mut self, random: &mut Random) -> Option<String> {
        let how = random.of(&[Shutdown::Fast, Shutdown::Immediate]);
        self.end_life(|server| server.stop(how));
        let clock = self.start_again(random);
        Some(format!("{how:?}, with the clock at {clock}"))
    }

    fn start_again(&mut self, random: &mut Random) -> String {
        let clock = self.set_clock(random.of(&CLOCKS_AT_A_START), random);
        self.primary.start_again();
        self.begin();
        clock
    }

    /// Kills everything, and starts again with a clock that is behind by so many seconds.
    pub fn crash(&mut self, seconds: f64, random: &mut Random) {
        self.end_life(Server::crash);
        self.set_clock(-seconds, random);
        self.primary.start_again();
        self.begin();
    }

    /// The server recovers by itself.
    fn kill_backend(&mut self, _: &mut Random) -> Option<String> {
        self.end_life(|server| server.kill_backend(server.connect().pid()));
        self.primary.wait_until_ready();
        self.begin();
        Some("its server recovers".to_owned())
    }

    fn pause(&mut self, random: &mut Random) -> Option<String> {
        let end = self.step + random.between(1, 3);
        self.paused = Some((self.primary.pause(), end));
        Some(format!("up to step {end}"))
    }

    fn promote(&mut self, random: &mut Random) -> Option<String> {
        let is_cut_off = random.below(2) == 0;
        let received = is_cut_off.then(|| self.standby.cut_off());
        if is_cut_off {
            let drawn = self.drawn();
            // What is drawn from here on is lost.
            let has_drawn = || self.sessions.as_ref().is_none_or(|sessions| sessions.drawn() > drawn + 20);
            if self.behind.is_none() {
                wait_until("draws", has_drawn);
            }
        }
        let how = random.of(&[Shutdown::Fast, Shutdown::Immediate]);
        self.end_life(|server| server.stop(how));
        if let Some(received) = received {
            self.standby.wait_until_replayed(&received);
        }
        self.standby.promote();
        std::mem::swap(&mut self.primary, &mut self.standby);
        let clock = self.replaced(random);
        let tail = if is_cut_off { "its tail is lost" } else { "orderly" };
        Some(format!("{how:?}, {tail}, with the clock at {clock}"))
    }

    /// Restores a dump into a new server, which goes on in place of the old one.
    fn restore(&mut self, random: &mut Random) -> Option<String> {
        let dump = self.primary.dump("postgres", "postgres", &[]);
        let new = new_server().start();
        new.restore(&dump, "postgres", &[]);
        self.end_life(|server| server.stop(Shutdown::Fast));
        self.primary = new;
        let clock = self.replaced(random);
        Some(format!("with the clock at {clock}"))
    }

    /// Gives a new primary a clock and a standby, and begins its life.
    fn replaced(&mut self, random: &mut Random) -> String {
        let clock = self.set_clock(random.of(&CLOCKS_AT_A_START), random);
        self.standby = self.primary.standby().faketime().may_run_long().start();
        self.begin();
        clock
    }

    fn copy(&mut self, random: &mut Random) -> Option<String> {
        if !self.copies.is_empty() || self.next_number > LAST_NUMBER {
            return None;
        }
        let clock = format!("{:+.6}", self.furthest);
        let copy = self.primary.base_backup().alone().faketime_from(&clock).may_run_long().start();
        let number = self.next_number;
        self.next_number += 1;
        let install = format!("SELECT edition.snowflake_install(worker_id => {number})");
        copy.connect().batch_execute(&install).expect("the number is the layout's");
        self.first_id(copy.connect(), "the copy").expect("its clock is right");
        let work = Work { rows: true, order: true, ..Work::default() };
        let sessions = Sessions::start(SESSIONS_OF_A_COPY, self.seed ^ (number as u64) << 20, work);
        sessions.connect(vec![copy.connection()]);
        let end = self.step + random.between(1, 4);
        self.copies.push((copy, sessions, end));
        Some(format!("which has the number {number}, up to step {end}"))
    }

    fn step_clock(&mut self, random: &mut Random) -> Option<String> {
        let seconds = random.of(&STEPS_OF_THE_CLOCK);
        Some(self.set_clock(seconds, random))
    }

    /// Ends all trouble, waits until it draws, and tells what has come of it.
    pub fn end(mut self) -> Outcome {
        self.end_what_is_due(usize::MAX);
        self.set_right();
        wait_until("the edition to draw again", || {
            self.begin();
            self.sessions.is_some() && self.primary.connect().try_draw().is_ok()
        });
        let sessions = self.sessions.take().expect("the life has begun");
        self.end_sessions(sessions);
        let got = self.readers.end().remove(0);
        self.outcome.missed = missed(&mut self.primary.connect(), &got);
        self.outcome.rows_read = got.rows.len();
        self.outcome.again = got.again;
        self.outcome.ids.extend(self.seen);
        self.outcome
    }
}

/// Describes a server that loads no library. PostgreSQL's timeouts follow a clock that is stepped,
/// so it has none.
fn new_server() -> Builder {
    Server::builder()
        .without_preload()
        .config("search_path", "public, edition")
        .config("shared_buffers", "16MB")
        .config("wal_keep_size", KEPT_WAL)
        .config("statement_timeout", "0")
        .faketime()
        .may_run_long()
}

fn place(primary: &Server, lives: usize, first: Option<i64>) -> Place {
    Place { primary: primary.connection(), failovers: lives, first }
}
