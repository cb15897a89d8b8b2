//! The sessions that draw, and the ledger of what they have seen. It is outside of the servers.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cluster::{Draw, refused};
use postgres::{Client, Config, Error, NoTls};

use super::random::Random;

/// How long a session rests between two statements. A night's ids have to fit into memory.
pub const REST: Duration = Duration::from_millis(50);

/// What sessions do besides drawing ids.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// They draw dense values of the tag `t`.
    pub values: bool,
    /// They insert rows into the table `outbox`.
    pub rows: bool,
    /// They note ids that are not above all that any of them had seen before.
    pub order: bool,
}

/// What sessions have seen.
#[derive(Default)]
pub struct Seen {
    pub ids: Vec<i64>,
    pub values: Vec<i64>,
    /// What was not in order, the first of each session.
    pub disorder: Vec<String>,
    /// Draws that were refused because the server had nothing to draw from, the first of each
    /// session.
    pub refused: Vec<String>,
}

/// The sessions, and the servers to which they connect.
pub struct Sessions {
    places: Arc<Mutex<Vec<Config>>>,
    drawn: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Seen>>,
}

impl Sessions {
    /// Starts so many sessions.
    pub fn start(count: usize, seed: u64, work: Work) -> Self {
        let places = Arc::new(Mutex::new(Vec::new()));
        let (drawn, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let end = Arc::new(AtomicBool::new(false));
        let greatest = Arc::new(AtomicI64::new(0));
        let start = |number: usize| {
            let (places, drawn, refused) = (Arc::clone(&places), Arc::clone(&drawn), Arc::clone(&refused));
            let (end, random) = (Arc::clone(&end), Random::new(seed ^ (number as u64) << 40));
            let greatest = Arc::clone(&greatest);
            thread::spawn(move || session(&places, &drawn, &refused, &end, &greatest, random, work))
        };
        let threads = (0..count).map(start).collect();
        Self { places, drawn, refused, end, threads }
    }

    /// Sends the sessions to these servers, as soon as each connects anew. If there are none, no
    /// session connects any more.
    pub fn connect(&self, places: Vec<Config>) {
        *self.places.lock().expect("no thread panics with it") = places;
    }

    /// Returns how much was drawn.
    pub fn drawn(&self) -> usize {
        self.drawn.load(Ordering::Relaxed)
    }

    /// Returns how many statements were refused.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Fails if a session has met what it must not meet.
    #[track_caller]
    pub fn check(&self) {
        assert!(self.threads.iter().all(|thread| !thread.is_finished()), "a session has ended too early");
    }

    /// Ends all sessions, and returns what they have seen.
    pub fn end(self) -> Seen {
        // Relaxed: nothing else depends on it.
        self.end.store(true, Ordering::Relaxed);
        let mut all = Seen::default();
        for thread in self.threads {
            let seen = thread.join().expect("a session only notes what it sees");
            all.ids.extend(seen.ids);
            all.values.extend(seen.values);
            all.disorder.extend(seen.disorder);
            all.refused.extend(seen.refused);
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
    greatest: &AtomicI64,
    mut random: Random,
    work: Work,
) -> Seen {
    let (mut seen, mut client): (Seen, Option<Client>) = (Seen::default(), None);
    // Relaxed, here and below: nothing else depends on it.
    while !end.load(Ordering::Relaxed) {
        thread::sleep(REST);
        let Some(session) = client.as_mut().filter(|session| !session.is_closed() && random.below(50) > 0) else {
            let all = || places.lock().expect("no thread panics with it").clone();
            let place = Some(all()).filter(|all| !all.is_empty()).map(|all| all[random.below(all.len())].clone());
            client = place.and_then(|place| place.connect(NoTls).ok().filter(|_| !all().is_empty()));
            continue;
        };
        let kind = random.below(4);
        let (is_value, is_row) = (work.values && kind == 0, work.rows && kind == 1);
        let sql = match (is_value, is_row, random.below(3)) {
            (true, _, 0) => "SELECT snowflake_segment_next('t')",
            (true, _, 1) => "SELECT snowflake_segment_next('t') FROM generate_series(1, 5)",
            (true, _, _) => "SELECT snowflake_segment_batch('t', 20)",
            (_, true, 0) => "INSERT INTO outbox SELECT FROM generate_series(1, 5) RETURNING id",
            (_, true, _) => "INSERT INTO outbox DEFAULT VALUES RETURNING id",
            (_, _, 0) => "SELECT snowflake_next()",
            (_, _, 1) => "SELECT snowflake_next() FROM generate_series(1, 5)",
            (_, _, _) => "SELECT snowflake_batch(20)",
        };
        // Half of the rows are committed later than they are inserted.
        let is_open = is_row && random.below(2) == 0;
        // SeqCst, here and below: what was seen before the statement is below its ids.
        let before = greatest.load(Ordering::SeqCst);
        let result = if is_open { in_a_transaction(session, sql) } else { session.ids(sql) };
        match result {
            Ok(more) => {
                if work.order && !is_value {
                    let mut pairs = more.iter().scan(before, |last, id| Some((std::mem::replace(last, *id), *id)));
                    let late = pairs.find(|(before, id)| id <= before).filter(|_| seen.disorder.is_empty());
                    seen.disorder.extend(late.map(|(before, id)| format!("{id} was drawn after {before}")));
                    greatest.fetch_max(more.iter().copied().max().unwrap_or(0), Ordering::SeqCst);
                }
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
                if refusal.sqlstate == "58000" && seen.refused.is_empty() {
                    seen.refused.push(format!("{sql}: {refusal:?}"));
                }
                if is_open {
                    client = None;
                }
            }
        }
    }
    seen
}

/// Runs a statement, rests, and commits it.
fn in_a_transaction(session: &mut Client, sql: &str) -> Result<Vec<i64>, Error> {
    session.batch_execute("BEGIN")?;
    let ids = session.ids(sql)?;
    thread::sleep(REST);
    session.batch_execute("COMMIT")?;
    Ok(ids)
}

/// Returns up to ten of the numbers that are there more than once.
pub fn repeats(mut drawn: Vec<i64>) -> Vec<i64> {
    drawn.sort_unstable();
    drawn.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).take(10).collect()
}
