//! What a session knows of the keys of public ids, and which keys it may make. The rules are the
//! core's (`core/id/known_keys.rs`), and the table is `postgres/public_keys.rs`.

use parking_lot::Mutex;
use snowflake_core::clock::Clock;
use snowflake_core::id::bounds::Instant;
use snowflake_core::id::known_keys::{AHEAD_MS, CERTAIN_MS, KnownKeys, LEAST_AHEAD_MS, PublicKey, Table};
use snowflake_core::id::public::{Prefix, Token};

use crate::error::Error;
use crate::ids::database_mark;
use crate::ids::layouts;
use crate::postgres::backend::{self, WallClock};
use crate::postgres::local::Local;
use crate::postgres::public_keys;
use crate::postgres::text::{beginning, legible};
use crate::settings::guc;

/// Before the first reading in a transaction.
const NOT_READ: i64 = i64::MIN;

static KNOWN: Mutex<KnownKeys> = Mutex::new(KnownKeys::new());

/// The first id that this session conceals only after another reading. Not in the mutex, because a
/// transaction also ends where an error has left the process with the mutex locked.
static CERTAIN_BEFORE: Local<i64> = Local::new(NOT_READ);

/// The first ids of the keys that this transaction has made, and that must begin in time.
static MADE: Mutex<Vec<i64>> = Mutex::new(Vec::new());

/// Whether there are such keys.
static HAS_MADE: Local<bool> = Local::new(false);

/// The table of keys, as this session sees it now.
struct Stored;

impl Table for Stored {
    type Error = Error;

    fn certain_before(&self) -> i64 {
        CERTAIN_BEFORE.get()
    }

    fn read(&self) -> Result<Vec<PublicKey>, Error> {
        // First the time, so that what is read is at least as new.
        let certain_ms = backend::visible_until_ms(WallClock.now_ms()).saturating_add(CERTAIN_MS);
        let certain_before = first_id_from(certain_ms);
        let keys = public_keys::read()?;
        // Not before, because an error leaves what was known.
        CERTAIN_BEFORE.set(certain_before.unwrap_or(NOT_READ + 1));
        Ok(keys)
    }
}

/// Conceals an id.
///
/// # Errors
/// [`Error::PublicId`] for a prefix that is not one, [`Error::NoPublicKey`], and those of reading.
pub fn conceal(id: i64, prefix: &[u8]) -> Result<Token, Error> {
    let prefix = read_prefix(prefix)?;
    let mut known = KNOWN.lock();
    known.conceal(id, &prefix, &Stored)?.ok_or_else(|| Error::NoPublicKey(known.first_id()))
}

/// Returns the id of a token; `None` for any other text.
///
/// # Errors
/// [`Error::PublicId`] for a prefix that is not one, and those of reading.
pub fn reveal(text: &[u8], prefix: &[u8]) -> Result<Option<i64>, Error> {
    let prefix = read_prefix(prefix)?;
    KNOWN.lock().reveal(text, &prefix, &Stored)
}

#[inline]
fn read_prefix(text: &[u8]) -> Result<Prefix, Error> {
    match Prefix::of(text) {
        Some(prefix) => Ok(prefix),
        None => Ok(Prefix::parse(&legible(beginning(text)))?),
    }
}

/// The first id whose time is this or later: the greatest number where the layout has ended. `None`
/// if the layout is not known.
fn first_id_from(ms: i64) -> Option<i64> {
    let layout = layouts::configured().ok()?;
    Some(layout.first_id_from(Instant { ms, later: false }).unwrap_or(i64::MAX))
}

/// Returns the first id that a new key may conceal: one that is ahead of the clock, and of what was
/// drawn in this database.
///
/// # Errors
/// [`Error::Layout`] and [`Error::Id`] if the layout has no such id, and those of reading the mark.
pub fn first_id_of_new_key() -> Result<i64, Error> {
    let ms = mark_ms()?.max(reached_ms()).saturating_add(AHEAD_MS);
    Ok(layouts::configured()?.first_id_at(Some(Instant { ms, later: false }))?)
}

/// Whether a key that begins with this id begins too soon: sessions may not see it in time, or the
/// database may have such ids.
///
/// # Errors
/// [`Error::Layout`], and those of reading the mark.
pub fn begins_too_soon(first_id: i64) -> Result<bool, Error> {
    let ms = mark_ms()?.max(reached_ms() + LEAST_AHEAD_MS);
    let least = layouts::configured()?.first_id_from(Instant { ms, later: false });
    Ok(least.is_none_or(|least| first_id < least))
}

/// The time that ids can have now, because they may run ahead of the clock. A burst of draws gets
/// there while a key is being committed.
fn reached_ms() -> i64 {
    WallClock.now_ms() + guc::max_borrow_ms()
}

/// The mark of this session's database, in milliseconds since 1970. No id that was drawn is above
/// it: not before this start, and not elsewhere, as far as `snowflake_advance()` was told.
fn mark_ms() -> Result<i64, Error> {
    let marks = database_mark::stored()?.map(|stored| stored.marks_ms.into_iter().chain(stored.local_ms));
    Ok(marks.into_iter().flatten().max().unwrap_or(0))
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
    // Not locked any more, because reading the mark may end the process, and so the transaction.
    let made = MADE.lock().clone();
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
