//! Which keys of public ids this session knows, and for how long.
//!
//! A session reads the table of keys (`postgres/public_keys.rs`) at the first use in a transaction,
//! and again:
//!
//! | for | because |
//! |---|---|
//! | an id whose time is more than [`CERTAIN_MS`] after the reading | another key may begin in between |
//! | a text in the form of a token that no known key reads | a newer key may have made it |
//! | the next use after a rollback, of a savepoint, too | what was read may be gone |
//!
//! **Each id has one token.** A new key begins [`AHEAD_MS`] after the clock, and its transaction is
//! refused if it ends later than [`LEAST_AHEAD_MS`] before that. So a key that a session has not
//! seen begins later than the ids that the session conceals without reading again. On a standby,
//! the time of the last transaction replayed stands for the time of the reading. No message between
//! sessions is needed, which a standby would not get.
//!
//! What is wiped when it goes: the keys as read, and the keys derived for at most [`MOST_PREFIXES`]
//! prefixes.

use parking_lot::Mutex;
use snowflake_core::clock::Clock;
use snowflake_core::id::bounds::Instant;
use snowflake_core::id::public::{Keys, Prefix, Token};

use crate::error::Error;
use crate::ids::layouts;
use crate::postgres::backend::{self, WallClock};
use crate::postgres::local::Local;
use crate::postgres::public_keys::{self, PublicKey};
use crate::postgres::text::{beginning, legible};
use crate::shared::shmem;

/// How far ahead of the clock, and of the last id, a new key begins.
const AHEAD_MS: i64 = 10_000;

/// How far ahead of the clock a new key begins when its transaction ends. The difference from
/// [`CERTAIN_MS`] is the time that the commit may take, such as for a synchronous standby.
const LEAST_AHEAD_MS: i64 = 5_000;

/// For how long after the reading the ids' times may be without another one.
const CERTAIN_MS: i64 = 1_000;

/// The most prefixes for which the derived keys are kept.
const MOST_PREFIXES: usize = 64;

/// Before the first reading in a transaction.
const NOT_READ: i64 = i64::MIN;

/// The keys as read last, and those that were derived from them.
struct Known {
    keys: Vec<PublicKey>,
    /// The one derived last at the end.
    of_prefixes: Vec<Keys>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { keys: Vec::new(), of_prefixes: Vec::new() });

/// The first id that this session conceals only after another reading.
static CERTAIN_BEFORE: Local<i64> = Local::new(NOT_READ);

/// The first ids of the keys that this transaction has made, and that must begin in time.
static MADE: Mutex<Vec<i64>> = Mutex::new(Vec::new());

/// Whether there are such keys.
static HAS_MADE: Local<bool> = Local::new(false);

/// Conceals an id.
///
/// # Errors
/// [`Error::PublicId`] for a prefix that is not one, [`Error::NoPublicKey`], and those of reading.
pub fn conceal(id: i64, prefix: &[u8]) -> Result<Token, Error> {
    let mut known = KNOWN.lock();
    if id < CERTAIN_BEFORE.get()
        && let Some(token) = known.of(prefix)?.conceal(id)
    {
        return Ok(token);
    }
    known.read()?;
    let of_prefix = known.of(prefix)?;
    of_prefix.conceal(id).ok_or_else(|| Error::NoPublicKey(known.keys.iter().map(|(first_id, _)| *first_id).min()))
}

/// Returns the id of a token; `None` for any other text.
///
/// # Errors
/// [`Error::PublicId`] for a prefix that is not one, and those of reading.
pub fn reveal(text: &[u8], prefix: &[u8]) -> Result<Option<i64>, Error> {
    let mut known = KNOWN.lock();
    if CERTAIN_BEFORE.get() != NOT_READ {
        let of_prefix = known.of(prefix)?;
        if !of_prefix.is_token(text) {
            return Ok(None);
        }
        let found = of_prefix.reveal(text).filter(|id| *id < CERTAIN_BEFORE.get());
        if found.is_some() {
            return Ok(found);
        }
    }
    known.read()?;
    Ok(known.of(prefix)?.reveal(text))
}

impl Known {
    /// Returns the keys for a prefix.
    #[inline]
    fn of(&mut self, prefix: &[u8]) -> Result<&Keys, Error> {
        let found = self.of_prefixes.iter().rposition(|keys| keys.prefix().as_bytes() == prefix);
        let place = match found {
            Some(place) => place,
            None => self.derive(prefix)?,
        };
        Ok(&self.of_prefixes[place])
    }

    #[cold]
    fn derive(&mut self, prefix: &[u8]) -> Result<usize, Error> {
        let prefix = Prefix::parse(&legible(beginning(prefix)))?;
        let keys = Keys::new(prefix, self.keys.iter().map(|(first_id, key)| (*first_id, key.as_slice())))?;
        if self.of_prefixes.len() == MOST_PREFIXES {
            self.of_prefixes.remove(0);
        }
        self.of_prefixes.push(keys);
        Ok(self.of_prefixes.len() - 1)
    }

    /// Reads the table.
    #[cold]
    fn read(&mut self) -> Result<(), Error> {
        // First the time, so that what is read is at least as new.
        let certain_ms = backend::visible_until_ms(WallClock.now_ms()).saturating_add(CERTAIN_MS);
        let certain_before = first_id_from(certain_ms);
        let keys = public_keys::read()?;
        if keys != self.keys {
            *self = Self { keys, of_prefixes: Vec::new() };
        }
        // Not before, because an error leaves what was known.
        CERTAIN_BEFORE.set(certain_before.unwrap_or(NOT_READ + 1));
        Ok(())
    }
}

/// The first id whose time is this or later: the greatest number where the layout has ended. `None`
/// if the layout is not known.
fn first_id_from(ms: i64) -> Option<i64> {
    let layout = layouts::configured().ok()?;
    Some(layout.first_id_from(Instant { ms, later: false }).unwrap_or(i64::MAX))
}

/// Returns the first id that a new key may conceal: one that is ahead of the clock, and of what
/// this server has drawn.
///
/// # Errors
/// [`Error::Layout`] and [`Error::Id`] if the layout has no such id.
pub fn first_id_of_new_key() -> Result<i64, Error> {
    let layout = layouts::configured()?;
    let last_ms = shmem::greatest_id().map(|id| layout.created_at_ms(id)).transpose()?;
    let ms = last_ms.unwrap_or(i64::MIN).max(WallClock.now_ms()).saturating_add(AHEAD_MS);
    Ok(layout.first_id_at(Some(Instant { ms, later: false }))?)
}

/// Whether a key that begins with this id begins too soon: sessions may not see it in time.
///
/// # Errors
/// [`Error::Layout`].
pub fn begins_too_soon(first_id: i64) -> Result<bool, Error> {
    let layout = layouts::configured()?;
    let least = layout.first_id_from(Instant { ms: WallClock.now_ms() + LEAST_AHEAD_MS, later: false });
    Ok(least.is_none_or(|least| first_id < least) || shmem::greatest_id().is_some_and(|greatest| first_id <= greatest))
}

/// Notes that this transaction has made a key, which is to begin in time if `first_id` is given.
pub fn key_made(first_id: Option<i64>) {
    forget();
    if let Some(first_id) = first_id {
        MADE.lock().push(first_id);
        HAS_MADE.set(true);
    }
}

/// Whether this transaction has made a key that must begin in time. Raises nothing.
pub fn has_made_key() -> bool {
    HAS_MADE.get()
}

/// Refuses the end of a transaction that has made a key and comes too late, unless the key was
/// rolled back to a savepoint.
///
/// # Errors
/// [`Error::PublicKeyTooLate`], [`Error::PublicKeyPrepared`] and those of reading.
pub fn check_made(is_prepared: bool) -> Result<(), Error> {
    let stored = public_keys::read()?;
    let made = MADE.lock();
    for (first_id, _) in stored.iter().filter(|(first_id, _)| made.contains(first_id)) {
        if is_prepared {
            return Err(Error::PublicKeyPrepared);
        } else if begins_too_soon(*first_id)? {
            return Err(Error::PublicKeyTooLate(*first_id));
        }
    }
    Ok(())
}

/// Forgets what was read, at the end of a transaction or of a part that is rolled back. The derived
/// keys stay, for the case that the next reading finds the same. Raises nothing.
pub fn forget() {
    CERTAIN_BEFORE.set(NOT_READ);
}

/// Forgets what holds for one transaction only. Raises nothing.
pub fn end_transaction() {
    forget();
    if HAS_MADE.replace(false) {
        MADE.lock().clear();
    }
}
