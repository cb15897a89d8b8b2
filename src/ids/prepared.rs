//! Prepared transactions that have drawn (two-phase commit): how they get into the table of
//! `core/draw/settled/prepared.rs`, and what of them outlives a restart.
//!
//! A transaction that has drawn takes a lock before it is prepared. The lock is of the class of
//! advisory locks, and holds the transaction's first id. PostgreSQL keeps it with the prepared
//! transaction, through restarts and promotions, until the transaction has ended. The table is
//! filled from the locks, once in a life of shared memory, before one of these transactions ends:
//!
//! - by a reader;
//! - by a session, before `COMMIT PREPARED` and `ROLLBACK PREPARED` (`utility.rs`);
//! - by a background worker, when it commits. One that applies a subscription with `two_phase` ends
//!   prepared transactions without a command. It reads its subscription in a transaction before.

use std::slice;

use pgrx::pg_sys;
use pgrx::prelude::*;
use snowflake_core::atomic::Ordering;
use snowflake_core::draw::settled::prepared::{self, PreparedTable, PreparedTransaction, SPARE};
use snowflake_core::draw::settled::run::Run;

use crate::error::{Error, OrRaise};
use crate::postgres::backend;
use crate::postgres::local::Local;
use crate::postgres::snapshot::{self, StatementSnapshot};
use crate::shared::shmem::{self, Readers};

/// The fourth field of the lock's tag, by which it differs from the locks of SQL's functions, which
/// have 1 and 2, and from those of other extensions.
const CLASS: u16 = 0x5F1D;

/// A mode that does not conflict with itself.
const LOCK: pg_sys::LOCKMODE = pg_sys::ShareLock as pg_sys::LOCKMODE;

/// Whether this transaction is being prepared: it is entered, if it had drawn before that.
static IS_PREPARING: Local<bool> = Local::new(false);

fn tag(database: u32, floor: i64) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        locktag_field1: database,
        locktag_field2: (floor >> 32) as u32,
        locktag_field3: floor as u32,
        locktag_field4: CLASS,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}

/// Returns the database and the first id of such a lock; `None` for any other lock.
fn read_tag(tag: &pg_sys::LOCKTAG) -> Option<(u32, i64)> {
    let is_ours = tag.locktag_type == pg_sys::LockTagType::LOCKTAG_ADVISORY as u8 && tag.locktag_field4 == CLASS;
    let floor = i64::from(tag.locktag_field2) << 32 | i64::from(tag.locktag_field3);
    is_ours.then_some((tag.locktag_field1, floor))
}

/// Returns the table and its lock; `None` where nothing can be prepared.
fn table() -> Option<(PreparedTable<'static>, &'static Readers)> {
    shmem::prepared().filter(|table| !table.places.is_empty()).zip(shmem::readers())
}

/// Enters this transaction, which is about to be prepared, if it has drawn. Another library may
/// draw its first id after this, in a callback of the same event.
///
/// # Errors
/// [`Error::TooManyPrepared`].
pub fn prepare() -> Result<(), Error> {
    IS_PREPARING.set(true);
    enter()
}

/// Whether this transaction is being prepared. Raises nothing.
#[inline(always)]
pub fn is_preparing() -> bool {
    IS_PREPARING.get()
}

/// Notes that this transaction has drawn its first id.
///
/// # Errors
/// [`Error::TooManyPrepared`], if it is being prepared. It is not prepared then.
pub fn has_drawn() -> Result<(), Error> {
    if is_preparing() { enter() } else { Ok(()) }
}

/// Forgets what holds for one transaction only.
pub fn end_transaction() {
    IS_PREPARING.set(false);
}

fn enter() -> Result<(), Error> {
    let floor = shmem::slot().and_then(|slot| slot.view().floor.get());
    let (Some(floor), Some(xid), Some((table, Readers { lock, .. }))) = (floor, backend::full_xid(), table()) else {
        return Ok(());
    };
    let database = backend::database();
    let tag = tag(database, floor);
    // SAFETY: as an SQL function takes an advisory lock until the end of the transaction. Errors
    // are raised through pgrx's guard.
    unsafe { pg_sys::LockAcquire(&raw const tag, LOCK, false, false) };
    let mut ended = Vec::with_capacity(table.places.len());
    lock.look(|()| ended.extend(table.to_look_at()));
    ended.retain(|xid| !snapshot::is_running(*xid));
    // The later half stays, so that a snapshot finds them one by one.
    ended.sort_unstable();
    ended.truncate(SPARE / 2);
    let has_entered = lock.change(|()| {
        table.make_room(&ended, Run::join);
        table.enter(PreparedTransaction { xid, floor, database })
    });
    if has_entered { Ok(()) } else { Err(Error::TooManyPrepared) }
}

/// Fills the table from the locks of prepared transactions, unless that was done in this life of
/// shared memory. Does nothing in recovery, which has not given these locks back.
///
/// # Errors
/// [`Error::TooManyPrepared`], if more transactions are being prepared than can be.
pub fn fill() -> Result<(), Error> {
    let Some((table, Readers { lock, is_filled, .. })) = table() else { return Ok(()) };
    // Acquire: pairs with the Release below.
    if is_filled.load(Ordering::Acquire) || backend::is_in_recovery() {
        return Ok(());
    }
    // SAFETY: copies the table of locks into memory of the call's context. Errors are raised
    // through pgrx's guard.
    let locks = unsafe {
        let pg_sys::LockData { nelements, locks } = *pg_sys::GetLockStatusData();
        if nelements == 0 { &[] } else { slice::from_raw_parts(locks, nelements as usize) }
    };
    let next_xid = snapshot::next_xid();
    let is_same = |one: &pg_sys::LockInstanceData, other: &pg_sys::LockInstanceData| {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return (one.backend, one.lxid) == (other.backend, other.lxid);
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        return (one.vxid.procNumber, one.vxid.localTransactionId)
            == (other.vxid.procNumber, other.vxid.localTransactionId);
    };
    // A prepared transaction has no process. It holds a lock on its own xid.
    let prepared = || locks.iter().filter(|lock| lock.pid == 0);
    let is_xid =
        |lock: &&pg_sys::LockInstanceData| lock.locktag.locktag_type == pg_sys::LockTagType::LOCKTAG_TRANSACTION as u8;
    let transactions: Vec<_> = prepared()
        .filter_map(|lock| {
            let (database, floor) = read_tag(&lock.locktag)?;
            let xid = prepared().filter(is_xid).find(|other| is_same(lock, other))?.locktag.locktag_field1;
            let xid = snapshot::full_xid(pg_sys::TransactionId::from_inner(xid), next_xid);
            Some(PreparedTransaction { xid, floor, database })
        })
        .collect();
    // Those that were prepared in this life, and have ended, make room.
    let mut ended = Vec::with_capacity(table.places.len());
    lock.look(|()| ended.extend(table.transactions().map(|transaction| transaction.xid)));
    ended.retain(|xid| !snapshot::is_running(*xid));
    let has_room = lock.change(|()| {
        ended.chunks(SPARE).for_each(|ended| table.make_room(ended, Run::join));
        transactions.iter().all(|transaction| table.enter(*transaction))
    });
    if !has_room {
        return Err(Error::TooManyPrepared);
    }
    // Release: pairs with the load above.
    is_filled.store(true, Ordering::Release);
    Ok(())
}

/// Fills the table where a prepared transaction may end next. Guarded, because it allocates, and
/// may raise.
#[pg_guard]
pub extern "C-unwind" fn before_end() {
    fill().or_raise();
}

/// Returns the least first id of the database's prepared transactions that run for the statement's
/// snapshot. The table must be [filled](fill).
pub fn least(statement: &StatementSnapshot) -> Option<i64> {
    let (table, readers) = table()?;
    let (mut known, mut runs) = (Vec::with_capacity(table.places.len()), Vec::with_capacity(prepared::MOST_RUNS));
    readers.lock.look(|()| {
        known.extend(table.transactions());
        runs.extend(table.runs());
    });
    let has_ended_since = |first, last| {
        statement.running().filter(|xid| (first..=last).contains(xid)).any(|xid| !snapshot::is_running(xid))
    };
    let (database, xmax) = (backend::database(), statement.first_unknown());
    prepared::least(database, &known, &runs, statement, xmax, has_ended_since)
}

/// Returns the prepared transactions of all databases that have drawn. For people: those of before
/// a restart are missing while the table has no room for them.
pub fn running() -> Vec<PreparedTransaction> {
    let Some((table, readers)) = table().filter(|_| !backend::is_in_recovery()) else { return Vec::new() };
    _ = fill();
    let mut known = Vec::with_capacity(table.places.len());
    readers.lock.look(|()| known.extend(table.transactions()));
    known.retain(|transaction| snapshot::is_running(transaction.xid));
    known
}
