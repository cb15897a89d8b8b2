//! The marks of a database: how a test reads them, how it checks a refusal, and how it gets through
//! the wait of the first draw after a start.
//!
//! The extension is expected in a schema of the session's search_path, as in the database
//! `postgres` of a test's server.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postgres::Client;
use snowflake_core::id::layout::Layout;

use crate::drawing::{Draw, HOUR_MS, Running};
use crate::outcome::wait_until;
use crate::plans::rows;
use crate::refusal::{Refusal, refused};
use crate::server::{Server, Shutdown};

/// How far the mark is moved beyond the end of the tick that is wanted.
pub const MARK_AHEAD_MS: i64 = 1000;

/// `snowflake_id.max_borrow` unless a test sets it.
pub const MAX_BORROW_MS: i64 = 100;

/// A session that reads the marks of its database.
pub trait Marks {
    /// Returns the primary lane's mark, in milliseconds since 1970; `None` if nothing was ever
    /// drawn.
    fn mark_ms(&mut self) -> Option<i64>;

    /// Returns the backup lane's mark, in milliseconds since 1970; `None` if nothing
    /// was ever drawn from it.
    fn backup_mark_ms(&mut self) -> Option<i64>;
}

impl Marks for Client {
    #[track_caller]
    fn mark_ms(&mut self) -> Option<i64> {
        mark_of(self, "snowflake_mark")
    }

    #[track_caller]
    fn backup_mark_ms(&mut self) -> Option<i64> {
        mark_of(self, "snowflake_mark_backup")
    }
}

#[track_caller]
fn mark_of(session: &mut Client, sequence: &str) -> Option<i64> {
    let sql = format!("SELECT CASE WHEN is_called THEN last_value END FROM {sequence}");
    session.query_one(&sql, &[]).expect("every role may read a mark").get(0)
}

/// Returns names and values of all sequences of the extension; a value that was never set is NULL.
///
/// # Panics
///
/// Panics if sequences are missing.
#[must_use]
#[track_caller]
pub fn stored(session: &mut Client) -> Vec<String> {
    let sequences =
        "SELECT sequencename, last_value FROM pg_sequences WHERE sequencename ^@ 'snowflake_mark' ORDER BY 1";
    let stored = rows(session, sequences).expect("every role may read a mark");
    assert!(stored.len() >= 6, "{stored:?}");
    stored
}

/// Asserts that the mark of the session's database is not below an id of the layout `snowflake`
/// that was drawn in it.
///
/// # Panics
///
/// Panics if it is.
#[track_caller]
pub fn assert_marked(session: &mut Client, id: i64) {
    let mark = session.mark_ms();
    assert!(mark >= Some(end_ms("snowflake", id)), "the mark is {mark:?} and the tick of {id} ends later");
}

/// Returns the start of an id's tick, in milliseconds since 1970.
///
/// # Panics
///
/// Panics if there is no such layout, or no such id in it. So do the functions below.
#[must_use]
#[track_caller]
pub fn start_ms(layout: &str, id: i64) -> i64 {
    Layout::parse(layout).unwrap().created_at_ms(id).unwrap()
}

/// Returns the end of an id's tick, which the mark of its lane must have reached, in milliseconds
/// since 1970.
#[must_use]
#[track_caller]
pub fn end_ms(layout: &str, id: i64) -> i64 {
    start_ms(layout, id) + Layout::parse(layout).unwrap().unit().ms()
}

/// Returns an id's worker number.
#[must_use]
#[track_caller]
pub fn worker(layout: &str, id: i64) -> u32 {
    Layout::parse(layout).unwrap().parts(id).unwrap().worker.unwrap()
}

/// Expects the refusal of a first draw because the clock is too far behind the mark. Returns by how
/// much, in milliseconds.
#[track_caller]
pub fn behind_the_mark_ms(refusal: &Refusal) -> i64 {
    assert_eq!(refusal.sqlstate, "58000", "{refusal:?}");
    let number = refusal
        .message
        .strip_prefix("clock is ")
        .and_then(|rest| rest.strip_suffix(" ms behind the last id that may have been drawn"));
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{refusal:?}"))
}

impl Server {
    /// Starts the server again with a frozen clock, and makes its first load
    /// ([`Server::freeze_clock_after_first_load`]). Sessions then only check the mark of their
    /// database.
    #[track_caller]
    pub fn start_again_at(&self, instant_ms: i64) {
        self.freeze_clock(instant_ms - 7_200_000);
        self.start_again();
        self.freeze_clock_after_first_load(instant_ms);
    }

    /// Stops the server in fast mode, and starts it again like [`Server::start_again_at`].
    #[track_caller]
    pub fn restart_at(&self, instant_ms: i64) {
        self.stop(Shutdown::Fast);
        self.start_again_at(instant_ms);
    }

    /// Crashes the server, and starts it again with its clock an hour before `now_ms`. Asserts that
    /// it then draws nothing in the database, and nothing at or below `greatest` once its clock is
    /// right.
    ///
    /// # Panics
    ///
    /// Panics if it does.
    #[track_caller]
    pub fn assert_remembers(&self, database: &str, now_ms: i64, greatest: i64) {
        self.crash();
        self.start_again_at(now_ms - HOUR_MS);
        let mut session = self.connect_to(database);
        assert_marked(&mut session, greatest);
        behind_the_mark_ms(&refused(session.try_draw()));
        self.freeze_clock(session.mark_ms().expect("it was asserted above"));
        assert!(session.draw() > greatest);
    }

    /// Stops the clock at an instant like [`Server::freeze_clock`], and makes a session that waits
    /// for the clock read it now, instead of after its sleep of up to a second.
    #[track_caller]
    pub fn freeze_clock_and_wake(&self, instant_ms: i64, waiting: &Running) {
        self.freeze_clock(instant_ms);
        // Any signal that sets the latch will do. The configuration is the same as before.
        kill(Pid::from_raw(waiting.pid), Signal::SIGHUP).expect("the session is open");
    }

    /// Runs a statement that must be refused, in a new session, and returns what the server says.
    ///
    /// # Panics
    ///
    /// Panics if it succeeds, or if it waits for the clock, which would never end while the clock
    /// is frozen.
    #[track_caller]
    pub fn refused_draw(&self, sql: &str) -> Refusal {
        let running = Running::start(self.connect(), sql);
        assert!(!self.waits_for_the_clock(&running), "the statement must be refused, but it waits");
        refused(running.end().1)
    }

    /// Runs a statement that has to wait for the clock, and then sets the clock to an instant.
    /// Returns the session, and the statement's first column.
    ///
    /// # Panics
    ///
    /// Panics if it does not wait, or fails, or does not end.
    #[track_caller]
    pub fn draw_through_wait(&self, sql: &str, until_ms: i64) -> (Client, Vec<i64>) {
        let waiting = Running::start(self.connect(), sql);
        if self.waits_for_the_clock(&waiting) {
            self.freeze_clock_and_wake(until_ms, &waiting);
        } else {
            panic!("the statement must wait, but it returned {:?}", waiting.end().1);
        }
        let (session, ids) = waiting.end();
        (session, ids.expect("ids are drawn after the wait"))
    }

    /// Runs the first statement that draws after a start in the database `postgres`. It waits
    /// twice: for the mark, and then for the end of the tick in which it was loaded. The clock is
    /// set to an instant for each. Returns the statement's first column.
    ///
    /// # Panics
    ///
    /// Panics if it does not wait, or fails, or does not end.
    #[track_caller]
    pub fn draw_through_first_load(&self, sql: &str, mark_ms: i64, then_ms: i64) -> Vec<i64> {
        let waiting = Running::start(self.connect(), sql);
        if !self.waits_for_the_clock(&waiting) {
            panic!("the statement must wait, but it returned {:?}", waiting.end().1);
        }
        let mut observer = self.connect();
        let before_ms = observer.mark_ms();
        self.freeze_clock_and_wake(mark_ms, &waiting);
        wait_until("the mark to be loaded", || observer.mark_ms() != before_ms);
        self.freeze_clock_and_wake(then_ms, &waiting);
        waiting.end().1.expect("ids are drawn after the wait")
    }

    /// Waits until a statement waits for the clock, which returns true, or ends, which returns
    /// false.
    ///
    /// # Panics
    ///
    /// Panics if it does neither; it may wait for a lock.
    #[must_use]
    #[track_caller]
    pub fn waits_for_the_clock(&self, running: &Running) -> bool {
        let mut observer = self.connect();
        let waits = "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Extension'";
        wait_until("a statement to end or to wait", || {
            running.is_over() || observer.query_opt(waits, &[&running.pid]).unwrap().is_some()
        });
        !running.is_over()
    }
}
