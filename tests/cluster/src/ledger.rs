//! The ledger: which ids clients have seen, and which they have been told are stored. It is kept
//! outside the server, so that any copy of the database can be compared with it.
//!
//! Every scenario of a crash, a failover or a restore runs the same [`Load`] and makes the same
//! checks on each copy ([`Ledger::check`]). This file knows nothing of the extension's internals,
//! except that each lane has a mark, and of the SQL edition's, except that it shows its last id.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use postgres::{Client, Error, NoTls};
use snowflake_core::id::layout::{Field, Layout};

use crate::drawing::{Draw, Running, assert_unique};
use crate::marks::Marks;
use crate::outcome::wait_until;
use crate::refusal::{Refusal, refused};
use crate::scratch;
use crate::server::Server;

/// After so many turns a session rests between two, as a client does that has something else to do.
/// Stories that begin with a crash see it at full speed, and long ones leave the processors to
/// other tests.
const HURRIED_TURNS: usize = 200;
const REST: Duration = Duration::from_millis(5);

/// In which lanes each worker number (`None`: the layout has no worker) was drawn: 0 is the primary
/// lane, 1 the backup lane.
type Lanes = BTreeMap<Option<u32>, BTreeSet<usize>>;

/// Sessions that draw and insert until they are told to end, or until the server is gone.
///
/// Their table `ledger` has no unique constraint on purpose. The database has to store an id that
/// comes twice, so that it is found here. It must not turn it into an error that a client would
/// retry.
#[derive(Debug)]
pub struct Load {
    sessions: Vec<Session>,
    end: Arc<AtomicBool>,
    layout: Layout,
    lanes: Lanes,
    directory: PathBuf,
}

#[derive(Debug)]
struct Session {
    /// The number of ids that the session has been told are stored.
    stored: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<Refusal>>,
    file: PathBuf,
}

impl Load {
    /// Starts sessions in the database `postgres`.
    ///
    /// # Panics
    ///
    /// Panics if they cannot connect, or if the extension is missing.
    #[must_use]
    #[track_caller]
    pub fn start(server: &Server, sessions: usize) -> Self {
        Self::start_at(&server.connection(), sessions)
    }

    /// Starts sessions in a database. It may be called again for the same database, because the
    /// table stays.
    ///
    /// # Panics
    ///
    /// Panics like [`Load::start`].
    #[must_use]
    #[track_caller]
    pub fn start_in(server: &Server, database: &str, sessions: usize) -> Self {
        Self::start_at(server.connection().dbname(database), sessions)
    }

    /// Starts sessions in the database of a connection. It may be called again like
    /// [`Load::start_in`].
    ///
    /// # Panics
    ///
    /// Panics like [`Load::start`].
    #[must_use]
    #[track_caller]
    pub fn start_at(connection: &postgres::Config, sessions: usize) -> Self {
        let connect = || connection.connect(NoTls).expect("the server accepts a connection");
        let mut client = connect();
        client
            .batch_execute("CREATE TABLE IF NOT EXISTS ledger (id bigint DEFAULT snowflake_next(), session int)")
            .expect("the table can be created");
        let directory = scratch::new_directory();
        let end = Arc::new(AtomicBool::new(false));
        let start = |number: usize| {
            let client = connect();
            let (stored, end) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&end));
            let file = directory.join(number.to_string());
            let notes = OpenOptions::new().append(true).create_new(true).open(&file).expect("the directory is new");
            let notes = Notes { file: notes, stored: Arc::clone(&stored) };
            Session { stored, thread: thread::spawn(move || run(client, number, notes, &end)), file }
        };
        Self {
            sessions: (0..sessions).map(start).collect(),
            end,
            layout: layout_of(&mut client),
            lanes: lanes_of(&mut client),
            directory,
        }
    }

    /// Waits until each session has been told that `ids` more ids are stored.
    ///
    /// # Panics
    ///
    /// Panics if that does not happen, or if a session ends before.
    #[track_caller]
    pub fn wait_for(&self, ids: usize) {
        let stored = || self.sessions.iter().map(|session| session.stored.load(Ordering::Relaxed));
        let wanted: Vec<usize> = stored().map(|stored| stored + ids).collect();
        wait_until("the load", || {
            let reached = stored().zip(&wanted).all(|(stored, wanted)| stored >= *wanted);
            assert!(reached || !self.is_over(), "a session of the load ended too early");
            reached
        });
    }

    /// Returns whether a session has ended because it lost its connection.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.sessions.iter().any(|session| session.thread.is_finished())
    }

    /// Returns whether all sessions have ended because they lost their connection.
    #[must_use]
    pub fn are_all_over(&self) -> bool {
        self.sessions.iter().all(|session| session.thread.is_finished())
    }

    /// Ends the sessions, unless they have lost their server already, and returns what they have
    /// noted.
    ///
    /// # Panics
    ///
    /// Panics if a statement was refused while its session was connected, or if two ids are the
    /// same.
    #[must_use]
    #[track_caller]
    pub fn end(self) -> Ledger {
        let (ledger, refusals) = self.end_with_refusals();
        assert!(refusals.is_empty(), "the load was refused {} times: {:?}", refusals.len(), refusals.first());
        ledger
    }

    /// Ends the sessions like [`Load::end`], and returns the errors that they survived, too.
    ///
    /// # Panics
    ///
    /// Panics if two ids are the same.
    #[must_use]
    #[track_caller]
    pub fn end_with_refusals(mut self) -> (Ledger, Vec<Refusal>) {
        self.end.store(true, Ordering::Relaxed);
        let mut ledger = Ledger { layout: Some(self.layout), lanes: self.lanes.clone(), ..Ledger::default() };
        let mut refusals = Vec::new();
        for session in std::mem::take(&mut self.sessions) {
            wait_until("the end of the load", || session.thread.is_finished());
            refusals.extend(session.thread.join().expect("a session only notes what it sees"));
            ledger.read(&fs::read_to_string(session.file).expect("the session's file is there"));
        }
        assert_unique(&ledger.seen);
        (ledger, refusals)
    }
}

impl Drop for Load {
    /// Tells the sessions to end when a test has failed, and does not wait for them.
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// One client's file. It notes an id as `seen` when the client has received it, and as `stored`
/// when the client has been told that its transaction is committed.
struct Notes {
    file: File,
    stored: Arc<AtomicUsize>,
}

impl Notes {
    fn write(&mut self, what: &str, ids: &[i64]) {
        let lines: String = ids.iter().map(|id| format!("{what} {id}\n")).collect();
        self.file.write_all(lines.as_bytes()).expect("the client's file is writable");
    }

    fn seen(&mut self, ids: &[i64]) {
        self.write("seen", ids);
    }

    fn stored(&mut self, ids: &[i64]) {
        self.write("stored", ids);
        // Relaxed: only a count to wait for; the ids go through the file.
        self.stored.fetch_add(ids.len(), Ordering::Relaxed);
    }
}

/// Draws in one session until the end.
fn run(mut client: Client, number: usize, mut notes: Notes, end: &AtomicBool) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    // Each session begins with a different kind of statement.
    for turn in number.. {
        // Relaxed: nothing else depends on it.
        if end.load(Ordering::Relaxed) {
            break;
        }
        if let Err(error) = draw(&mut client, number, turn, &mut notes) {
            // 57P: the server terminates its sessions.
            if client.is_closed() || error.code().is_none_or(|code| code.code().starts_with("57P")) {
                break;
            }
            refusals.push(refused::<()>(Err(error)));
            let _ = client.batch_execute("ROLLBACK");
        }
        if turn - number >= HURRIED_TURNS {
            thread::sleep(REST);
        }
    }
    refusals
}

/// Draws in one of the ways in which clients get ids: stored by one statement, one or many; only
/// read; read inside a transaction that is then rolled back or committed.
fn draw(client: &mut Client, session: usize, turn: usize, notes: &mut Notes) -> Result<(), Error> {
    let insert = format!("INSERT INTO ledger (session) VALUES ({session}) RETURNING id");
    match turn % 6 {
        0 | 1 => {
            let ids = client.ids(&insert)?;
            notes.seen(&ids);
            notes.stored(&ids);
        }
        2 => {
            let ids = client.ids(&format!("INSERT INTO ledger SELECT snowflake_batch(20), {session} RETURNING id"))?;
            notes.seen(&ids);
            notes.stored(&ids);
        }
        3 => notes.seen(&client.ids("SELECT snowflake_next() FROM generate_series(1, 3)")?),
        kind => {
            client.batch_execute("BEGIN")?;
            let ids = client.ids(&insert)?;
            notes.seen(&ids);
            let commit = kind == 4;
            client.batch_execute(if commit { "COMMIT" } else { "ROLLBACK" })?;
            if commit {
                notes.stored(&ids);
            }
        }
    }
    Ok(())
}

/// What a copy of the database has to fulfil.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// The same data directory after a crash or a stop: each id that a client was told is stored is
    /// there, and no id that any client has seen comes again.
    Seen,
    /// A copy of an earlier state: no id that it holds comes again. Clients may have seen more ids.
    Held,
}

/// The result of a copy's first draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// An id, above all ids that it must be above.
    Drawn(i64),
    /// Error 58000: the copy has noticed that its clock is behind.
    Refused(Refusal),
}

impl Next {
    /// Expects an id.
    ///
    /// # Panics
    ///
    /// Panics if there was none.
    #[track_caller]
    pub fn drawn(self) -> i64 {
        match self {
            Self::Drawn(id) => id,
            Self::Refused(refusal) => panic!("an id must be drawn: {refusal:?}"),
        }
    }

    /// Expects a refusal, and returns by how many milliseconds the clock is behind.
    ///
    /// # Panics
    ///
    /// Panics if an id was drawn, or if the refusal has another reason.
    #[track_caller]
    pub fn refused(self) -> i64 {
        match self {
            Self::Drawn(id) => panic!("{id} was drawn, although the clock is behind"),
            Self::Refused(refusal) => behind_ms(&refusal),
        }
    }
}

/// Reads from a refusal's message by how much the clock is behind.
#[track_caller]
fn behind_ms(refusal: &Refusal) -> i64 {
    let number = refusal.message.strip_prefix("clock is ").and_then(|rest| rest.split(' ').next());
    let number = number.filter(|_| refusal.sqlstate == "58000").and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("58000 with the milliseconds that the clock is behind was expected: {refusal:?}"))
}

/// The ids that clients have seen, and those that they have been told are stored.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Every id that a client has received.
    pub seen: Vec<i64>,
    /// Those of them that a client was told are stored.
    pub stored: Vec<i64>,
    layout: Option<Layout>,
    lanes: Lanes,
}

impl Ledger {
    fn read(&mut self, notes: &str) {
        for line in notes.lines() {
            let (what, id) = line.split_once(' ').expect("each line is a word and an id");
            let id = id.parse().expect("each line is a word and an id");
            match what {
                "seen" => self.seen.push(id),
                "stored" => self.stored.push(id),
                _ => panic!("a client's file has the line {line:?}"),
            }
        }
    }

    /// Adds what another load in the same database has noted.
    ///
    /// # Panics
    ///
    /// Panics if an id is in both.
    #[track_caller]
    pub fn add(&mut self, other: Self) {
        self.seen.extend(other.seen);
        self.stored.extend(other.stored);
        self.layout = self.layout.or(other.layout);
        for (worker, lanes) in other.lanes {
            self.lanes.entry(worker).or_default().extend(lanes);
        }
        assert_unique(&self.seen);
    }

    /// Compares the database `postgres` of a copy with this ledger. The copy is running, and is not
    /// a standby.
    ///
    /// 1. No id is stored twice. Every id's tick ends at or below the mark of its lane. With the
    ///    SQL edition, no stored id is above the last one.
    /// 2. With [`Promise::Seen`], everything that clients were told is stored is there.
    /// 3. The next id is greater than every stored one of the same worker, and with
    ///    [`Promise::Seen`] than every one that clients have seen; or it is refused because the
    ///    clock is behind.
    /// 4. If it is drawn, then some hundred more are drawn and stored, and all of this still holds.
    ///
    /// It can be called again after the clock was set or the server was restarted. What it has
    /// drawn itself then counts as held.
    ///
    /// # Panics
    ///
    /// Panics if one of these does not hold.
    #[track_caller]
    pub fn check(&self, copy: &Server, promise: Promise) -> Next {
        self.check_in(copy, "postgres", promise)
    }

    /// Compares a database of a copy with this ledger, like [`Ledger::check`].
    ///
    /// # Panics
    ///
    /// Panics like [`Ledger::check`].
    #[track_caller]
    pub fn check_in(&self, copy: &Server, database: &str, promise: Promise) -> Next {
        self.check_at(copy.connection().dbname(database), promise)
    }

    /// Compares the database of a connection with this ledger, like [`Ledger::check`].
    ///
    /// # Panics
    ///
    /// Panics like [`Ledger::check`].
    #[track_caller]
    pub fn check_at(&self, copy: &postgres::Config, promise: Promise) -> Next {
        let mut client = copy.connect(NoTls).expect("the server accepts a connection");
        let layout = self.layout.unwrap_or_else(|| layout_of(&mut client));
        let held = self.check_held(&mut client, promise);
        let known: BTreeSet<i64> = match promise {
            Promise::Seen => held.iter().chain(&self.seen).copied().collect(),
            Promise::Held => held.iter().copied().collect(),
        };

        let (mut client, first) = insert(client, "VALUES (snowflake_next(), -1)");
        let first = match first {
            Ok(ids) => ids[0],
            Err(error) => {
                let refusal = refused::<()>(Err(error));
                behind_ms(&refusal);
                // Not only single ids.
                let (mut client, batch) = insert(client, "SELECT snowflake_batch(10), -1");
                assert_eq!(refused(batch).sqlstate, "58000");
                assert_eq!(rows(&mut client).len(), held.len(), "what is refused leaves nothing behind");
                return Next::Refused(refusal);
            }
        };
        let of_same_worker = known.iter().filter(|id| worker(&layout, **id) == worker(&layout, first));
        if let Some(greatest) = of_same_worker.max() {
            assert!(first > *greatest, "{first} was drawn although there is {greatest}");
        }
        let mut drawn = vec![first];
        for select in ["SELECT snowflake_next(), -1 FROM generate_series(1, 200)", "SELECT snowflake_batch(200), -1"] {
            let ids;
            (client, ids) = insert(client, select);
            drawn.extend(ids.expect("after the first id others follow"));
        }
        assert_unique(&drawn);
        for id in &drawn {
            assert!(!known.contains(id), "{id} was drawn again");
        }
        assert_eq!(self.check_held(&mut client, promise).len(), held.len() + drawn.len());
        Next::Drawn(first)
    }

    /// Checks what can be checked without drawing, also on a standby (points 1 and 2 of
    /// [`Ledger::check`]), and returns the stored ids.
    ///
    /// # Panics
    ///
    /// Panics like [`Ledger::check`].
    #[track_caller]
    pub fn check_held(&self, client: &mut Client, promise: Promise) -> Vec<i64> {
        let layout = self.layout.unwrap_or_else(|| layout_of(client));
        let held = rows(client);
        assert_unique(&held);
        let mut bounded = held.clone();
        if promise == Promise::Seen {
            let there: BTreeSet<i64> = held.iter().copied().collect();
            for id in &self.stored {
                assert!(there.contains(id), "{id} was committed and is not there");
            }
            bounded.extend(&self.seen);
        }
        // What bounds the ids is read after the rows. If others draw at the same time, it can only
        // have moved on.
        if has_edition(client) {
            let last = client.ids("SELECT last_id FROM snowflake_stat").expect("the owner may read it")[0];
            // A crash may forget an id that was only seen. The next draw shows that it does not
            // come again.
            assert!(held.iter().all(|id| *id <= last), "a stored id is above the last one, {last}");
            return held;
        }
        let marks = [client.mark_ms(), client.backup_mark_ms()];
        for id in bounded {
            let end_ms = layout.created_at_ms(id).expect("the id is one of the layout's") + layout.unit().ms();
            // A worker number that this ledger does not know may have been drawn in either lane.
            let lanes = self.lanes.get(&worker(&layout, id));
            let bounds = (0..marks.len()).filter(|lane| lanes.is_none_or(|lanes| lanes.contains(lane)));
            let bound = bounds.map(|lane| marks[lane]).max().flatten();
            assert!(
                bound.is_some_and(|mark| end_ms <= mark),
                "{id}, whose tick ends at {end_ms}, is above the mark {bound:?}"
            );
        }
        held
    }
}

/// A draw may have to wait for the mark, so it runs in a thread: a test that fails must not hang.
#[track_caller]
fn insert(client: Client, select: &str) -> (Client, Result<Vec<i64>, Error>) {
    Running::start(client, &format!("INSERT INTO ledger {select} RETURNING id")).end()
}

#[track_caller]
fn rows(client: &mut Client) -> Vec<i64> {
    client.ids("SELECT id FROM ledger").expect("the ledger can be read")
}

fn worker(layout: &Layout, id: i64) -> Option<u32> {
    layout.parts(id).expect("the id is one of the layout's").worker
}

/// Whether the session's ids come from the SQL edition.
fn has_edition(client: &mut Client) -> bool {
    client.value("to_regclass('snowflake_word') IS NOT NULL") == "true"
}

fn layout_of(client: &mut Client) -> Layout {
    let of_edition = "SELECT layout FROM snowflake_stat";
    let of_extension = "current_setting('snowflake_id.layout')";
    let sql = if has_edition(client) { of_edition } else { of_extension };
    let text = client.value(sql);
    Layout::parse(&text).expect("the server runs with it")
}

/// The worker numbers of a server, each with its lane.
fn lanes_of(client: &mut Client) -> Lanes {
    if has_edition(client) {
        return Lanes::new();
    }
    let Some(max) = layout_of(client).max_of(Field::Worker) else {
        return Lanes::from([(None, BTreeSet::from([0]))]);
    };
    let number = client.value("current_setting('snowflake_id.worker_id')");
    let number: i64 = number.parse().expect("the setting is a number");
    // A leased number may change while the load runs.
    let Ok(number) = u32::try_from(number) else { return Lanes::new() };
    let half = u32::try_from(max.div_ceil(2)).expect("a worker number is an int");
    let mut lanes = Lanes::from([(Some(number), BTreeSet::from([0]))]);
    if client.value("current_setting('snowflake_id.backup_worker')") == "on" {
        lanes.insert(Some(number + half), BTreeSet::from([1]));
    }
    lanes
}
