//! Tests that each id keeps its token while keys are made, and that each session reveals it: random
//! histories of sessions with long transactions, of a standby that lags, of commits that take a
//! while, and of keys that are rolled back.
//!
//! The sessions are the core's. The world around them can lie, and each lie is found.

use std::cell::{Cell, RefCell};

use snowflake_core::id::known_keys::{AHEAD_MS, CERTAIN_MS, KnownKeys, LEAST_AHEAD_MS, PublicKey, Table};
use snowflake_core::id::public::{Keys, Prefix, PublicIdError};
use zeroize::Zeroizing;

use crate::kit::random::Random;

const SESSIONS: usize = 4;

/// The session on a standby. The others are on the primary.
const STANDBY: usize = 3;

/// The longest time from the last check of a commit until others see it.
const LONGEST_COMMIT_MS: i64 = LEAST_AHEAD_MS - CERTAIN_MS - 1;

const HISTORIES: u64 = 20_000;

/// What is done wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// A session reads once in a transaction.
    KeptThroughFirstId,
    /// A reading is valid for as long as a new key is ahead.
    CertainTooLong,
    /// A session sees the keys of the transaction's snapshot.
    OldSnapshot,
    /// A rollback to a savepoint leaves what was read.
    RollbackKept,
    /// A session that has not found a text's key does not read again.
    NotTriedAgain,
    /// A standby goes by its clock.
    StandbyClock,
    /// A new key begins at once.
    BeginsAtOnce,
    /// A transaction may keep a key for as long as it likes.
    LateCommit,
    /// A commit takes longer than the difference of the two times.
    LongCommit,
}

/// The first id of a time.
fn id_of(ms: i64) -> i64 {
    ms << 22
}

/// What a transaction left: the keys, and when it ended.
type Commit = (Vec<PublicKey>, i64);

#[derive(Default)]
struct Session {
    known: KnownKeys,
    /// What `Table::certain_before` says.
    certain_before: Cell<i64>,
    /// How many commits its snapshot has.
    snapshot: usize,
    /// The key that it has made, and not committed.
    own: Option<PublicKey>,
    /// The ids that its transaction has concealed, with their tokens.
    concealed: Vec<(i64, String)>,
    /// The last reading of the transaction.
    reading: RefCell<Option<Vec<PublicKey>>>,
}

struct World {
    lie: Option<Lie>,
    now_ms: i64,
    commits: Vec<Commit>,
    /// How many of them the standby has replayed.
    replayed: usize,
    /// A key that is being committed, and when others see it.
    committing: Option<(PublicKey, i64)>,
    /// What was given out.
    given: Vec<(i64, String)>,
}

/// The table as a session sees it.
struct Seen<'a> {
    world: &'a World,
    session: &'a Session,
    number: usize,
    /// Whether a text is being revealed.
    reveals: bool,
}

impl World {
    fn lies(&self, lie: Lie) -> bool {
        self.lie == Some(lie)
    }

    fn seen_by(&self, number: usize) -> &Commit {
        &self.commits[if number == STANDBY { self.replayed } else { self.commits.len() } - 1]
    }

    /// Another transaction ends.
    fn commit(&mut self, key: Option<PublicKey>) {
        let mut keys = self.commits.last().expect("the first key").0.clone();
        keys.extend(key);
        self.commits.push((keys, self.now_ms));
    }

    /// The key that is being committed becomes visible.
    fn end_commit(&mut self) {
        if let Some((key, _)) = self.committing.take_if(|(_, at_ms)| *at_ms <= self.now_ms) {
            self.commit(Some(key));
        }
    }
}

impl Table for Seen<'_> {
    type Error = PublicIdError;

    fn certain_before(&self) -> i64 {
        match self.session.certain_before.get() {
            i64::MIN => i64::MIN,
            _ if self.world.lies(Lie::KeptThroughFirstId) => i64::MAX,
            certain_before => certain_before,
        }
    }

    fn read(&self) -> Result<Vec<PublicKey>, PublicIdError> {
        let (world, session) = (self.world, self.session);
        let until_ms = match world.seen_by(self.number) {
            (_, ended_ms) if self.number == STANDBY && !world.lies(Lie::StandbyClock) => *ended_ms,
            _ => world.now_ms,
        };
        let certain_ms = if world.lies(Lie::CertainTooLong) { AHEAD_MS } else { CERTAIN_MS };
        session.certain_before.set(id_of(until_ms + certain_ms));
        let reading = session.reading.borrow().clone().filter(|_| self.reveals && world.lies(Lie::NotTriedAgain));
        let keys = reading.unwrap_or_else(|| {
            let (keys, _) = if world.lies(Lie::OldSnapshot) {
                &world.commits[session.snapshot - 1]
            } else {
                world.seen_by(self.number)
            };
            keys.iter().chain(&session.own).cloned().collect()
        });
        session.reading.replace(Some(keys.clone()));
        Ok(keys)
    }
}

/// Plays a history. Returns whether each id has kept its token, and each session has revealed it.
fn holds(seed: u64, lie: Option<Lie>) -> bool {
    let random = Random::new(seed);
    let prefix = Prefix::parse("ord").unwrap();
    let new_key = |first_id: i64| (first_id, Zeroizing::new([random.bits().to_be_bytes(); 4].concat()));
    let mut world = World {
        lie,
        now_ms: 1_000_000,
        commits: vec![(vec![new_key(i64::MIN)], 999_000)],
        replayed: 1,
        committing: None,
        given: Vec::new(),
    };
    let mut sessions: [Session; SESSIONS] = Default::default();
    let begin = |session: &mut Session, commits: usize| {
        session.certain_before.set(i64::MIN);
        session.reading.replace(None);
        session.snapshot = commits;
    };
    sessions.iter_mut().for_each(|session| begin(session, 1));
    for _ in 0..60 {
        let number = random.below(SESSIONS);
        let maker = sessions.iter().position(|session| session.own.is_some());
        let session = &mut sessions[number];
        match random.below(12) {
            0..3 => {
                world.now_ms += random.pick(&[10, 500, 900, 1500, 4000, 9500]);
                world.end_commit();
            }
            // The table is locked by one maker at a time, until others see its key.
            3 if number != STANDBY && maker.is_none() && world.committing.is_none() => {
                let ahead = if world.lies(Lie::BeginsAtOnce) { 0 } else { AHEAD_MS };
                session.own = Some(new_key(id_of(world.now_ms + ahead)));
                session.certain_before.set(i64::MIN);
            }
            // The session's transaction ends.
            4 => {
                let least_ms = world.now_ms + LEAST_AHEAD_MS;
                let is_late = session.own.as_ref().is_some_and(|(first_id, _)| *first_id < id_of(least_ms));
                let concealed = std::mem::take(&mut session.concealed);
                match session.own.take() {
                    Some(_) if is_late && !world.lies(Lie::LateCommit) && !world.lies(Lie::BeginsAtOnce) => {}
                    own => {
                        world.given.extend(concealed);
                        let longest = LONGEST_COMMIT_MS * if world.lies(Lie::LongCommit) { 3 } else { 1 };
                        world.committing =
                            own.map(|key| (key, world.now_ms + random.of(0..=longest))).or(world.committing);
                        world.end_commit();
                    }
                }
                begin(session, world.commits.len());
            }
            // To a savepoint before it has made a key.
            5 => {
                session.own = None;
                session.concealed.clear();
                if !world.lies(Lie::RollbackKept) {
                    session.certain_before.set(i64::MIN);
                }
            }
            6 => world.commit(None),
            7 => world.replayed = world.commits.len() - random.below(world.commits.len() - world.replayed + 1),
            // An id that was drawn, in a row that the session sees.
            8..11 => {
                let last_ms = if number == STANDBY { world.seen_by(number).1 } else { world.now_ms };
                let id = id_of(last_ms - random.pick(&[0, 0, 400, 3000, 20_000]));
                let mut known = std::mem::take(&mut session.known);
                let token =
                    known.conceal(id, &prefix, &Seen { world: &world, session, number, reveals: false }).unwrap();
                session.known = known;
                session.concealed.push((id, token.expect("a key for all ids").as_str().to_owned()));
            }
            _ if !world.given.is_empty() => {
                let (id, token) = &world.given[random.below(world.given.len())];
                let (keys, _) = world.seen_by(number);
                let keys = keys.iter().chain(&session.own).map(|(first_id, key)| (*first_id, key.as_slice()));
                let keys = Keys::new(prefix, keys).unwrap();
                let mut known = std::mem::take(&mut session.known);
                let revealed =
                    known.reveal(token.as_bytes(), &prefix, &Seen { world: &world, session, number, reveals: true });
                session.known = known;
                if keys.reveal(token.as_bytes()) == Some(*id) && revealed != Ok(Some(*id)) {
                    return false;
                }
            }
            _ => {}
        }
    }
    world.now_ms += 100_000;
    world.end_commit();
    let (keys, _) = world.commits.last().unwrap();
    let keys = Keys::new(prefix, keys.iter().map(|(first_id, key)| (*first_id, key.as_slice()))).unwrap();
    world.given.iter().all(|(id, token)| keys.conceal(*id).is_some_and(|of_id| of_id.as_str() == token))
}

#[test]
fn each_id_keeps_its_token_in_all_sessions_while_keys_are_made() {
    for seed in 0..HISTORIES {
        assert!(holds(seed, None), "history {seed}");
    }
}

#[test]
fn each_lie_of_the_world_is_found() {
    for lie in [
        Lie::KeptThroughFirstId,
        Lie::CertainTooLong,
        Lie::OldSnapshot,
        Lie::RollbackKept,
        Lie::NotTriedAgain,
        Lie::StandbyClock,
        Lie::BeginsAtOnce,
        Lie::LateCommit,
        Lie::LongCommit,
    ] {
        let found = (0..HISTORIES).find(|seed| !holds(*seed, Some(lie)));
        println!("{lie:?} is found in history {found:?}");
        assert!(found.is_some(), "{lie:?}");
    }
}
