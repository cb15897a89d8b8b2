//! Helpers for tests that draw: a server that can draw, a session that draws, and one that is
//! observed while it waits.
//!
//! A statement that may wait runs in its own thread ([`Running`]), and every wait for it ends,
//! because a test that fails must not hang. Only a frozen clock ([`Server::freeze_clock`]) makes it
//! certain which id comes next.

use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::{self, JoinHandle};

use postgres::{Client, Error};
pub use snowflake_core::clock::DAY_MS;
use snowflake_core::clock::parse_instant;
use snowflake_core::id::layout::Layout;

use crate::clock::{faketime_library, frozen_at};
use crate::outcome::{skip, wait_until};
use crate::server::{Builder, Server};

/// The worker number of [`Server::drawing`].
pub const WORKER: u32 = 5;

impl Server {
    /// Describes a server that can draw ids: preloaded, and with a worker number.
    #[must_use]
    pub fn drawing() -> Builder {
        Self::builder().set("worker_id", &WORKER.to_string())
    }

    /// Stops the server's clock at an instant, in milliseconds since 1970 (see [`instant`]).
    ///
    /// # Panics
    ///
    /// Panics if the server was not made with [`Builder::faketime`].
    pub fn freeze_clock(&self, instant_ms: i64) {
        self.set_clock(&frozen_at(instant_ms));
    }

    /// Stops the server's clock at an instant like [`Server::freeze_clock`], as if the server had
    /// run for two hours since the first load of this start.
    ///
    /// At the first load, all ids that a predecessor can have drawn by then count as drawn, so a
    /// first draw under a frozen clock would wait for ever. This function makes the first load
    /// earlier, in a transaction that is rolled back, so that nothing is drawn or counted. The load
    /// must not be before the layout's epoch, and not so early that the clock seems to have jumped
    /// since.
    #[track_caller]
    pub fn freeze_clock_after_first_load(&self, instant_ms: i64) {
        const UPTIME_MS: i64 = 7_200_000;
        let mut session = self.connect_to("template1");
        let layout = Layout::parse(&session.value("current_setting('snowflake_id.layout')")).expect("it is a layout");
        let settings = "SELECT setting::bigint FROM pg_settings WHERE name IN ('snowflake_id.max_borrow', \
                        'snowflake_id.max_clock_jump') ORDER BY name";
        let settings = session.ids(settings).expect("the library is preloaded");
        let (max_borrow_ms, max_clock_jump_ms) = (settings[0], settings[1]);
        let is_jump = max_clock_jump_ms > 0 && max_clock_jump_ms < 2 * UPTIME_MS;
        let is_early = instant_ms - UPTIME_MS < layout.epoch_ms();
        let uptime_ms = if is_jump || is_early { max_borrow_ms + layout.unit().ms() } else { UPTIME_MS };
        self.freeze_clock(instant_ms - uptime_ms);
        session.batch_execute("BEGIN; CREATE EXTENSION snowflake_id; SAVEPOINT created").expect("template1 has none");
        let first = Running::start(session, "SELECT snowflake_next()");
        if self.waits_for_the_clock(&first) {
            self.connect().execute("SELECT pg_cancel_backend($1)", &[&first.pid]).expect("it is the same user");
        }
        // Without a worker number the draw is refused, and there is no first load.
        let (pid, (mut session, _)) = (first.pid, first.end());
        let reset = "ROLLBACK TO created; SELECT snowflake_stat_reset(); ROLLBACK";
        session.batch_execute(reset).expect("a superuser may reset statistics");
        drop(session);
        wait_until_gone(&mut self.connect(), pid);
        self.freeze_clock(instant_ms);
    }

    /// Makes the first load of this start, in a transaction that is rolled back. The clock must not
    /// be frozen.
    ///
    /// # Panics
    ///
    /// Panics if it fails.
    #[track_caller]
    pub fn load_first(&self) {
        let draw = "BEGIN; CREATE EXTENSION snowflake_id; SELECT snowflake_next(); ROLLBACK";
        self.connect_to("template1").batch_execute(draw).expect("an id can be drawn");
    }

    /// Waits until the backend waits for the clock.
    ///
    /// # Panics
    ///
    /// Panics if it never does.
    #[track_caller]
    pub fn wait_until_waiting(&self, pid: i32) {
        let mut observer = self.connect();
        let sql = "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Extension'";
        wait_until("a session that waits", || observer.query_opt(sql, &[&pid]).unwrap().is_some());
    }

    /// Waits until the backend waits for a lock.
    ///
    /// # Panics
    ///
    /// Panics if it never does.
    #[track_caller]
    pub fn wait_until_locked(&self, pid: i32) {
        let mut observer = self.connect();
        let sql = "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'";
        wait_until("a session that waits for a lock", || observer.query_opt(sql, &[&pid]).unwrap().is_some());
    }
}

impl Builder {
    /// Sets one of the extension's settings; `snowflake_id.` is put before the name.
    #[must_use]
    pub fn set(self, name: &str, value: &str) -> Self {
        self.config(&format!("snowflake_id.{name}"), value)
    }

    /// Starts the server with the extension and a frozen clock (see [`Server::freeze_clock`]).
    /// Without libfaketime it returns `None`, and the test is reported as skipped.
    #[must_use]
    #[track_caller]
    pub fn start_frozen(self, instant_ms: i64) -> Option<Server> {
        if faketime_library().is_none() {
            skip("libfaketime is not installed");
            return None;
        }
        // Long before, so that nothing depends on the time of the server's start.
        let server = self.faketime_from("-20y").start_with_extension();
        server.freeze_clock_after_first_load(instant_ms);
        Some(server)
    }

    /// Ends every statement after five minutes, so that sessions that draw in a loop end when a
    /// test has failed. (This does not work with a frozen clock, which PostgreSQL's timeouts
    /// follow.)
    #[must_use]
    pub fn time_limit(self) -> Self {
        self.config("statement_timeout", "300s")
    }
}

/// Reads an instant such as `2026-06-01T12:00:00Z`, in milliseconds since 1970.
#[must_use]
pub fn instant(text: &str) -> i64 {
    parse_instant(text).expect("a test writes its instants correctly")
}

/// An hour in milliseconds.
pub const HOUR_MS: i64 = 3_600_000;

/// An instant at which tests freeze the clock, in milliseconds since 1970: 2026-06-01 12:00 UTC.
#[must_use]
pub fn noon() -> i64 {
    instant("2026-06-01T12:00:00Z")
}

/// A session that draws.
pub trait Draw {
    /// Draws an id, or returns why not.
    ///
    /// # Errors
    ///
    /// Whatever the server says.
    fn try_draw(&mut self) -> Result<i64, Error>;

    /// Draws an id.
    fn draw(&mut self) -> i64;

    /// Draws ids, and returns them in the order of their rows.
    fn draw_batch(&mut self, count: i32) -> Vec<i64>;

    /// Returns the first column, of type bigint, of a statement's rows.
    ///
    /// # Errors
    ///
    /// Whatever the server says.
    fn ids(&mut self, sql: &str) -> Result<Vec<i64>, Error>;

    /// Returns the one value of a statement, as text; a NULL as `"NULL"`.
    fn value(&mut self, sql: &str) -> String;

    /// Returns the process id of the session's backend.
    fn pid(&mut self) -> i32;
}

impl Draw for Client {
    fn try_draw(&mut self) -> Result<i64, Error> {
        Ok(self.query_one("SELECT snowflake_next()", &[])?.get(0))
    }

    #[track_caller]
    fn draw(&mut self) -> i64 {
        self.try_draw().expect("an id can be drawn")
    }

    #[track_caller]
    fn draw_batch(&mut self, count: i32) -> Vec<i64> {
        self.ids(&format!("SELECT * FROM snowflake_batch({count})")).expect("ids can be drawn")
    }

    fn ids(&mut self, sql: &str) -> Result<Vec<i64>, Error> {
        Ok(self.query(sql, &[])?.iter().map(|row| row.get(0)).collect())
    }

    #[track_caller]
    fn value(&mut self, sql: &str) -> String {
        let row = self.query_one(&format!("SELECT ({sql})::text"), &[]).expect("the statement succeeds");
        row.get::<_, Option<String>>(0).unwrap_or_else(|| "NULL".to_owned())
    }

    fn pid(&mut self) -> i32 {
        self.query_one("SELECT pg_backend_pid()", &[]).expect("the session is open").get(0)
    }
}

/// A statement that runs in a thread of its own.
#[derive(Debug)]
pub struct Running {
    /// The backend's process id.
    pub pid: i32,
    thread: JoinHandle<(Client, Result<Vec<i64>, Error>)>,
}

impl Running {
    /// Starts a statement whose first column is of type bigint.
    #[must_use]
    pub fn start(mut session: Client, sql: &str) -> Self {
        let sql = sql.to_owned();
        let pid = session.pid();
        let run = move || {
            let result = session.ids(&sql);
            (session, result)
        };
        // Not a scoped thread, because a scope would wait for a session that never returns, even if
        // the test has failed.
        Self { pid, thread: thread::spawn(run) }
    }

    /// Returns whether the statement has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the statement, and returns the session and the statement's result.
    ///
    /// # Panics
    ///
    /// Panics if it does not end.
    #[track_caller]
    pub fn end(self) -> (Client, Result<Vec<i64>, Error>) {
        wait_until("the end of a statement", || self.is_over());
        self.thread.join().expect("the thread only runs the statement")
    }
}

/// Waits until a backend has ended, as another session sees it.
///
/// # Panics
///
/// Panics if it does not end.
#[track_caller]
pub fn wait_until_gone(observer: &mut Client, pid: i32) {
    let backends = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    wait_until("the end of a session", || observer.value(&backends) == "0");
}

/// Runs `draw` in several sessions at once, each in a thread, with the session's index. Returns
/// what each has drawn, in that order.
///
/// # Panics
///
/// Panics if one of them does.
#[track_caller]
pub fn at_once(server: &Server, sessions: usize, draw: impl Fn(usize, Client) -> Vec<i64> + Sync) -> Vec<Vec<i64>> {
    let clients: Vec<_> = (0..sessions).map(|_| server.connect()).collect();
    let start = Barrier::new(sessions);
    thread::scope(|scope| {
        let run = |(session, client)| {
            let (draw, start) = (&draw, &start);
            scope.spawn(move || {
                start.wait();
                draw(session, client)
            })
        };
        let threads: Vec<_> = clients.into_iter().enumerate().map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("a session's assertions hold")).collect()
    })
}

/// The greatest id that any session has received. It checks the order of draws without a clock: a
/// session reads it before it sends a statement, and each id that the statement draws must be
/// greater.
#[derive(Debug, Default)]
pub struct Known(AtomicI64);

impl Known {
    /// Returns the bound for a draw that begins now.
    #[must_use]
    pub fn now(&self) -> i64 {
        // SeqCst here and below: a read sees every id that was received before it.
        self.0.load(Ordering::SeqCst)
    }

    /// Checks ids whose draw began when `bound` was known, and makes them known.
    ///
    /// # Panics
    ///
    /// Panics if one of them is not above the bound.
    #[track_caller]
    pub fn received(&self, bound: i64, ids: &[i64]) {
        for id in ids {
            assert!(*id > bound, "{id} was drawn after {bound} had been received");
        }
        self.0.fetch_max(ids.iter().copied().max().unwrap_or(0), Ordering::SeqCst);
    }

    /// Runs a statement that draws, checks its ids and returns them.
    #[track_caller]
    pub fn draw(&self, statement: impl FnOnce() -> Vec<i64>) -> Vec<i64> {
        let bound = self.now();
        let ids = statement();
        self.received(bound, &ids);
        ids
    }
}

/// Asserts that each id is greater than the one before it.
///
/// # Panics
///
/// Panics with the first pair that is not.
#[track_caller]
pub fn assert_ascending(ids: &[i64]) {
    for (number, pair) in ids.windows(2).enumerate() {
        assert!(pair[0] < pair[1], "of {} ids, number {number} is {} and the next is {}", ids.len(), pair[0], pair[1]);
    }
}

/// Returns the greatest id.
///
/// # Panics
///
/// Panics if there is none.
#[must_use]
#[track_caller]
pub fn greatest(ids: &[i64]) -> i64 {
    ids.iter().copied().max().expect("ids were drawn")
}

/// Asserts that no id occurs twice, and returns how many there are.
///
/// # Panics
///
/// Panics if one does.
#[track_caller]
pub fn assert_unique<'a>(ids: impl IntoIterator<Item = &'a i64>) -> usize {
    let mut ids: Vec<i64> = ids.into_iter().copied().collect();
    ids.sort_unstable();
    for pair in ids.windows(2) {
        assert_ne!(pair[0], pair[1], "an id was drawn twice");
    }
    ids.len()
}
