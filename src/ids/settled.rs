//! The settled id, for SQL: what is refused, whose snapshot counts, and who holds the id back.
//! `core/draw/settled.rs` finds the id, and argues why a reader that goes up to it misses nothing.
//!
//! A session gives each statement one answer (`core/draw/settled/answers.rs`), so no parallel
//! worker may call the function.

use parking_lot::Mutex;
use pgrx::prelude::*;
use snowflake_core::clock::Clock;
use snowflake_core::draw::settled::answers::Answers;
use snowflake_core::draw::settled::{Promise, Reader};

use crate::error::Error;
use crate::ids::database_mark;
use crate::ids::prepared;
use crate::ids::stamp;
use crate::ids::waiting::Request;
use crate::postgres::backend::{self, WaitEvent, WallClock};
use crate::postgres::catalog;
use crate::postgres::local::Local;
use crate::postgres::snapshot::StatementSnapshot;
use crate::shared::shmem;
use crate::shared::slot::Slot;

/// What this session has answered.
static ANSWERS: Mutex<Answers> = Mutex::new(Answers::new());

/// The promise of this session's database.
static PROMISE: Local<Option<&'static Promise>> = Local::new(None);

/// Returns the settled id for the statement that runs.
///
/// # Errors
/// [`Error::NotPreloaded`], [`Error::NotSet`], [`Error::SettledOnStandby`],
/// [`Error::SettledWithBackup`], [`Error::SettledInParallel`], [`Error::NoSnapshot`],
/// [`Error::SnapshotFromStandby`], [`Error::SettledForgotten`], [`Error::TooManyPrepared`], and
/// those of [`Mark::reach`](snowflake_core::draw::mark::Mark::reach) and
/// [`Mark::covered`](snowflake_core::draw::mark::Mark::covered), as [`Error`] words them.
pub fn settled() -> Result<i64, Error> {
    let layout = stamp::layout().ok_or(Error::NotPreloaded)?;
    if backend::is_in_recovery() {
        return Err(Error::SettledOnStandby);
    }
    if stamp::has_backup() {
        return Err(Error::SettledWithBackup);
    }
    if backend::is_parallel_worker() {
        return Err(Error::SettledInParallel);
    }
    stamp::check()?;
    let statement = StatementSnapshot::active().ok_or(Error::NoSnapshot)?;
    // The primary before knows what has ended since, and this server does not.
    if statement.is_from_recovery() {
        return Err(Error::SnapshotFromStandby);
    }
    let asking = statement.asking();
    if let Some(id) = ANSWERS.lock().find(&asking).map_err(|_| Error::SettledForgotten)? {
        return Ok(id);
    }
    let (promise, request) = (promise()?, Request::new());
    let mark = database_mark::of(layout, &request)?;
    // A reader has done this before, if it has promised something.
    if promise.is_none_or(|promise| promise.id() == 0) {
        mark.reach(layout, &database_mark::terms())?;
    }
    let known = promise.map_or(0, Promise::covered);
    let covered = mark.covered(layout, known)?;
    if let Some(promise) = promise.filter(|_| covered != known) {
        promise.cover(covered);
    }
    let generator = shmem::generator().ok_or(Error::NotPreloaded)?;
    let numbers = shmem::numbers().ok_or(Error::NotPreloaded)?;
    let slots = shmem::slots().ok_or(Error::NotPreloaded)?;
    let reader = Reader { generator, numbers, layout, database: backend::database(), promise, covered };
    let drawing = || stamp::read().ok().flatten();
    let is_alive = |number: usize| slots[number].process(number).is_some();
    prepared::fill()?;
    let id = loop {
        let told = slots.iter().map(Slot::view);
        if let Some(id) = reader.settled(drawing, told, &statement, is_alive, || prepared::least(&statement)) {
            break id;
        }
        static NUMBERS: WaitEvent = WaitEvent::new(c"SnowflakeNumbers");
        backend::nap(&NUMBERS);
        pgrx::check_for_interrupts!();
    };
    Ok(ANSWERS.lock().give(&asking, id))
}

/// Finds the promise of this session's database, or takes one. Returns `None` if all belong to
/// databases that exist.
///
/// # Errors
/// [`Error::NotPreloaded`].
fn promise() -> Result<Option<&'static Promise>, Error> {
    if PROMISE.get().is_none() {
        PROMISE.set(find_promise(shmem::promises().ok_or(Error::NotPreloaded)?)?);
    }
    Ok(PROMISE.get())
}

fn find_promise(all: &'static [Promise]) -> Result<Option<&'static Promise>, Error> {
    let (database, lock) = (backend::database(), &shmem::readers().ok_or(Error::NotPreloaded)?.lock);
    if let Some(promise) = Promise::find(all, database) {
        return Ok(Some(promise));
    }
    // Databases are looked up without the lock. One that is gone stays gone, unless it has been
    // replaced meanwhile.
    let is_gone = |promise: &&Promise| !catalog::database_exists(promise.database());
    let room = all.iter().find(|promise| promise.database() == 0).or_else(|| all.iter().find(is_gone));
    let Some(room) = room else { return Ok(None) };
    let before = room.database();
    let found = lock.change(|()| {
        let found = Promise::find(all, database);
        if found.is_none() && room.database() == before {
            room.take(database);
            return Some(room);
        }
        found
    });
    // Another database was faster.
    found.map_or_else(|| find_promise(all), |promise| Ok(Some(promise)))
}

/// Who holds the settled id back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocker {
    /// A session's process.
    Session(i32),
    /// A prepared transaction.
    Prepared(pg_sys::TransactionId),
}

/// Returns the open transactions of all databases that have drawn, and their first ids: `(database,
/// holder, first id)`.
///
/// # Errors
/// [`Error::NotPreloaded`].
fn holders() -> Result<impl Iterator<Item = (u32, Blocker, i64)>, Error> {
    let slots = shmem::slots().ok_or(Error::NotPreloaded)?.iter().enumerate();
    let sessions = slots.filter_map(|(number, slot)| {
        let (floor, database) = slot.view().open()?;
        Some((database, Blocker::Session(slot.process(number)?), floor))
    });
    let prepared = prepared::running().into_iter().map(|transaction| {
        let xid = pg_sys::TransactionId::from_inner(transaction.xid as u32);
        (transaction.database, Blocker::Prepared(xid), transaction.floor)
    });
    Ok(sessions.chain(prepared))
}

/// Returns who holds back the settled id of this database, and the first id of each.
///
/// # Errors
/// [`Error::NotPreloaded`].
pub fn unsettled() -> Result<impl Iterator<Item = (Blocker, i64)>, Error> {
    let here = |(database, holder, floor)| (database == backend::database()).then_some((holder, floor));
    Ok(holders()?.filter_map(here))
}

/// Returns how far the settled id is behind the clock, in milliseconds, because a transaction holds
/// it back: the most of the databases in which it was asked for; 0 if there is none.
///
/// # Errors
/// [`Error::NotPreloaded`].
pub fn lag_ms() -> Result<i64, Error> {
    let layout = stamp::layout().ok_or(Error::NotPreloaded)?;
    let promises = shmem::promises().ok_or(Error::NotPreloaded)?;
    let is_read = |database| Promise::find(promises, database).is_some_and(|promise| promise.id() != 0);
    let read = holders()?.filter(|(database, _, _)| is_read(*database));
    let least = read.map(|(_, _, floor)| floor).min();
    let created_at_ms = least.and_then(|floor| layout.created_at_ms(floor).ok());
    Ok(created_at_ms.map_or(0, |ms| WallClock.now_ms().saturating_sub(ms).max(0)))
}

/// Notes the end of this session's transaction, once it is visible. Plain, and cheap where the
/// transaction has not drawn.
pub fn end_transaction(has_committed: bool) {
    if let Some(slot) = shmem::slot() {
        slot.view().end(|| has_committed.then(backend::full_xid).flatten());
    }
}
