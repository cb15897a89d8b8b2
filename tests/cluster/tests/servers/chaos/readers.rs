//! Readers of the members' outboxes. Each goes on from the settled id that it got, through crashes
//! and restarts of its member. After a failover, it goes on from the greatest row that it got and
//! the new primary holds. Where the SQL edition may draw ids again that were only seen, it goes on
//! from these.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use cluster::{Draw, refused, wait_until};
use postgres::{Client, Config, Error, NoTls};

use super::sessions::REST;

/// A member's primary, and how many the member has had before. With the SQL edition, how many lives
/// ([`Edition`](super::edition::Edition)).
#[derive(Clone)]
pub struct Place {
    pub primary: Config,
    pub failovers: usize,
    /// With the SQL edition, the first id of this life. All that follow are above it.
    pub first: Option<i64>,
}

/// How readers read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Settled,
    /// With the SQL edition: in a statement before.
    SettledBefore,
    /// The control: from the greatest id that was seen, to the greatest one that is there.
    GreatestId,
}

/// What a reader got.
#[derive(Default)]
pub struct Got {
    pub rows: BTreeSet<i64>,
    /// Rows that it got once more.
    pub again: Vec<i64>,
}

/// A reader for each member. Each returns what it got.
pub struct Readers {
    places: Arc<Mutex<Vec<Place>>>,
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Got>>,
}

impl Readers {
    /// Starts a reader for each of these places.
    pub fn start(how: How, places: Vec<Place>) -> Self {
        let numbers = 0..places.len();
        let (places, end) = (Arc::new(Mutex::new(places)), Arc::new(AtomicBool::new(false)));
        let start = |number: usize| {
            let (places, end) = (Arc::clone(&places), Arc::clone(&end));
            thread::spawn(move || {
                let place = || places.lock().expect("no thread panics with it")[number].clone();
                Reader::new(how, place()).read_all(place, &end)
            })
        };
        let threads = numbers.map(start).collect();
        Self { places, end, threads }
    }

    /// Sends the readers to where the primaries are now.
    pub fn connect(&self, places: Vec<Place>) {
        *self.places.lock().expect("no thread panics with it") = places;
    }

    /// Fails if a reader has met what it must not meet.
    #[track_caller]
    pub fn check(&self) {
        assert!(self.threads.iter().all(|thread| !thread.is_finished()), "a reader has ended too early");
    }

    /// Ends the readers once they have got all there is, and returns what they got. Nobody may
    /// write any more.
    pub fn end(self) -> Vec<Got> {
        // Release: pairs with the load in `read_all`. What is written was written before.
        self.end.store(true, Ordering::Release);
        wait_until("the readers to end", || self.threads.iter().all(JoinHandle::is_finished));
        self.threads.into_iter().map(|thread| thread.join().expect("a reader's assertions hold")).collect()
    }
}

struct Reader {
    how: How,
    /// Where the session is, if there is one.
    place: Place,
    session: Option<Client>,
    got: Got,
    /// From where it goes on, and at which of the member's primaries that holds.
    last: i64,
    last_at: usize,
}

impl Reader {
    fn new(how: How, place: Place) -> Self {
        let last_at = place.failovers;
        Self { how, place, session: None, got: Got::default(), last: 0, last_at }
    }

    fn read_all(mut self, place: impl Fn() -> Place, end: &AtomicBool) -> Got {
        loop {
            // Acquire: pairs with the Release in `end`.
            let is_last = end.load(Ordering::Acquire);
            let place = place();
            let is_here = self.place.failovers == place.failovers;
            let Some(mut session) = self.session.take().filter(|session| is_here && !session.is_closed()) else {
                self.session = place.primary.connect(NoTls).ok();
                self.place = place;
                thread::sleep(REST);
                continue;
            };
            match self.read(&mut session) {
                Ok(is_all) if is_all && is_last => return self.got,
                Ok(_) => self.session = Some(session),
                Err(error) if session.is_closed() || error.code().is_none() => {}
                Err(error) => {
                    let refusal = refused::<()>(Err(error));
                    // A clock that is behind after a start; a server that ends; a statement's end.
                    let is_expected = refusal.sqlstate == "58000"
                        || refusal.sqlstate.starts_with("57P")
                        || refusal.sqlstate == "57014";
                    assert!(is_expected, "{refusal:?}");
                    self.session = Some(session);
                }
            }
            thread::sleep(REST);
        }
    }

    /// Reads what there is, and returns whether that was all.
    fn read(&mut self, session: &mut Client) -> Result<bool, Error> {
        if self.last_at != self.place.failovers {
            match self.place.first {
                // Rows below it were all read, and those from there on can be others now.
                Some(first) if first <= self.last => {
                    self.last = first - 1;
                    self.got.rows.retain(|id| *id < first);
                }
                Some(_) => {}
                None => {
                    let held = session.ids("SELECT id FROM outbox ORDER BY id DESC")?;
                    self.last = held.into_iter().find(|id| self.got.rows.contains(id)).unwrap_or(0);
                }
            }
            self.last_at = self.place.failovers;
        }
        let (rows, last) = match self.how {
            How::Settled => {
                let rows = session.query(
                    "WITH s AS MATERIALIZED (SELECT snowflake_settled() AS settled)
                     SELECT settled, id FROM s LEFT JOIN outbox ON id > $1 AND id <= settled ORDER BY id",
                    &[&self.last],
                )?;
                let settled: i64 = rows[0].get(0);
                assert!(settled >= self.last, "the settled id falls from {} to {settled}", self.last);
                (rows.iter().filter_map(|row| row.get(1)).collect(), settled)
            }
            How::SettledBefore => {
                let settled: Option<i64> = session.query_one("CALL snowflake_settled()", &[])?.get(0);
                // It can be lower than the one before, or not be known.
                let settled = settled.unwrap_or(self.last).max(self.last);
                let between = format!("id > {} AND id <= {settled}", self.last);
                (session.ids(&format!("SELECT id FROM outbox WHERE {between} ORDER BY id"))?, settled)
            }
            How::GreatestId => {
                let rows = session.ids(&format!("SELECT id FROM outbox WHERE id > {} ORDER BY id", self.last))?;
                let last = rows.last().copied().unwrap_or(self.last);
                (rows, last)
            }
        };
        self.last = last;
        for id in rows {
            if !self.got.rows.insert(id) {
                self.got.again.push(id);
            }
        }
        let left = format!("SELECT count(*) FROM outbox WHERE id > {last}");
        Ok(session.ids(&left)? == [0])
    }
}

/// Returns up to ten of the rows that a reader has not got.
pub fn missed(primary: &mut Client, got: &Got) -> Vec<i64> {
    let held = primary.ids("SELECT id FROM outbox ORDER BY id").expect("the server serves");
    held.into_iter().filter(|id| !got.rows.contains(id)).take(10).collect()
}
