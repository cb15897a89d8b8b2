//! How a conversion, or a step of `snowflake_partitions()`, locks the tables that other sessions
//! use. It waits so that they pass: a wait in a table's queue is short, and between two waits there
//! is a pause in which nothing is held and no session waits for this one. No `unsafe`.
//!
//! Never waits for one relation while it holds another. Some sessions lock a table before the one
//! that it refers to, in a statement, and some after it, in a transaction. No order would be free
//! of deadlocks with both.

use std::ffi::CString;

use pgrx::Spi;
use pgrx::pg_sys::panic::ErrorReportWithLevel;
use pgrx::prelude::PgSqlErrorCode;

use crate::error::{Blocker, Busy};
use crate::postgres::backend::{self, Lock, WaitEvent};
use crate::postgres::text::legible;

/// The longest wait in the queue of a table, in milliseconds. Sessions that come later wait behind
/// it.
const LONGEST_WAIT_MS: i64 = 300;

/// How long all of it may take where `lock_timeout` is 0, in milliseconds.
const PATIENCE_MS: i64 = 5 * 60 * 1000;

/// How often a NOTICE names what is waited for, in milliseconds.
const NOTICE_MS: i64 = 1000;

/// How often a pause has become twice as long, at most: to 2.4 seconds.
const MOST_DOUBLINGS: u32 = 3;

/// `$1` a relation, `$2` whether a reader is in the way: each transaction of another session that
/// has the relation locked, or waits for that, by its virtual id, its name, and the relation's. A
/// prepared transaction has no process.
const HOLDERS: &str = "
SELECT l.virtualtransaction::cstring,
       coalesce('process ' || l.pid,
                (SELECT format('prepared transaction \"%s\"', p.gid)
                 FROM pg_locks x JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
                 WHERE x.locktype = 'transactionid' AND x.pid IS NULL AND x.virtualtransaction = l.virtualtransaction),
                'a prepared transaction')::cstring,
       $1::regclass::text::cstring
FROM pg_locks l
WHERE l.locktype = 'relation' AND l.relation = $1 AND l.pid IS DISTINCT FROM pg_backend_pid()
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND ($2 OR l.mode NOT IN ('AccessShareLock', 'RowShareLock'))
ORDER BY l.granted DESC, l.pid";

/// Takes locks until the transaction ends. `find` finds them again when all are taken: if others
/// are missing, this releases them all, and begins anew. Both lists are in ascending order.
///
/// # Errors
/// [`Busy`] when `lock_timeout` has passed, in all, or five minutes where it is 0. Those of `find`.
pub fn lock_relations<E: From<Busy>>(
    mut locks: Vec<Lock>,
    mut find: impl FnMut() -> Result<Vec<Lock>, E>,
) -> Result<(), E> {
    let limit_ms = backend::lock_timeout_ms().unwrap_or(PATIENCE_MS);
    let begin_ms = backend::boot_ms();
    let mut notice_ms = begin_ms + LONGEST_WAIT_MS;
    // Nothing is waited for at first.
    let mut waited_for = None;
    let mut holders = Vec::new();
    let mut blocker = None;
    let mut doublings = 0;
    loop {
        let start_ms = backend::boot_ms();
        let left_ms = begin_ms + limit_ms - start_ms;
        let mut busy = waited_for;
        let mut found = None;
        let attempt = || {
            busy = lock_all(&locks, waited_for, LONGEST_WAIT_MS.min(left_ms));
            if busy.is_some() {
                return false;
            }
            let again = found.insert(find());
            again.as_ref().map_or(true, |again| again.iter().all(|lock| has(&locks, *lock)))
        };
        let if_too_late = |report: &ErrorReportWithLevel| {
            (report.sql_error_code() == PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE).then_some(false)
        };
        let is_locked = backend::in_subtransaction(attempt, |is_locked| *is_locked, if_too_late);
        match found.transpose()? {
            Some(_) if is_locked => return Ok(()),
            Some(again) => {
                (locks, waited_for) = (again, None);
                continue;
            }
            None => {}
        }
        // A wait for another lock, in `find`, counts as one for the first.
        let busy = busy.or(waited_for).unwrap_or(0);
        let was_waited_for = waited_for == Some(busy);
        let (now_ms, former) = (backend::boot_ms(), std::mem::replace(&mut holders, holders_of(locks[busy])));
        // The queue has just let others pass. Only what was there before has blocked.
        let stays = |holder: &&(CString, Blocker)| was_waited_for && former.iter().any(|(id, _)| *id == holder.0);
        if let Some((_, found)) = holders.iter().find(stays).or(holders.first()) {
            blocker = Some(found.clone());
        }
        let left_ms = begin_ms + limit_ms - now_ms;
        if left_ms <= 0 {
            return Err(Busy { blocker, is_patience: backend::lock_timeout_ms().is_none() }.into());
        }
        if let Some(blocker) = blocker.as_ref().filter(|_| now_ms >= notice_ms) {
            blocker.send();
            notice_ms = now_ms + NOTICE_MS;
        }
        // As long as others may have waited for this session, or longer.
        pause(((now_ms - start_ms) << doublings).clamp(1, (left_ms / 2).max(1)));
        if was_waited_for {
            doublings = (doublings + 1).min(MOST_DOUBLINGS);
        }
        waited_for = Some(busy);
    }
}

/// Whether an ascending list has a lock's relation.
fn has(locks: &[Lock], lock: Lock) -> bool {
    locks.binary_search_by_key(&lock.relation.to_u32(), |lock| lock.relation.to_u32()).is_ok()
}

/// Locks all, or returns the place of one that is not free. May wait for one of them before it
/// locks the others; raises 55P03 if the wait runs out.
fn lock_all(locks: &[Lock], waited_for: Option<usize>, wait_ms: i64) -> Option<usize> {
    if let Some(place) = waited_for {
        backend::lock_within(locks[place], wait_ms);
    }
    (0..locks.len()).find(|place| Some(*place) != waited_for && !backend::lock_if_free(locks[*place]))
}

/// Sleeps while nothing is held.
fn pause(pause_ms: i64) {
    static LOCKS: WaitEvent = WaitEvent::new(c"SnowflakeLocks");
    let end_ms = backend::boot_ms() + pause_ms;
    loop {
        let left_ms = end_ms - backend::boot_ms();
        if left_ms <= 0 {
            return;
        }
        backend::sleep(left_ms, &LOCKS);
        pgrx::check_for_interrupts!();
    }
}

/// Returns what is in the way of a lock, or waits for that.
fn holders_of(lock: Lock) -> Vec<(CString, Blocker)> {
    backend::with_trusted_settings(|| {
        Spi::connect(|client| {
            let rows = client
                .select(HOLDERS, None, &[lock.relation.into(), lock.is_against_readers.into()])
                .expect("PostgreSQL raises errors itself");
            let texts = rows.map(|row| {
                [1, 2, 3].map(|number| row.get::<CString>(number).ok().flatten().expect("the query yields no NULL"))
            });
            let name = |text: &CString| legible(text.to_bytes()).into_owned();
            texts.map(|[id, holder, table]| (id, Blocker { holder: name(&holder), table: name(&table) })).collect()
        })
    })
}
