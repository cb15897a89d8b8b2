//! One of the extension's sequences: a number that is logged, which a session reads, locks, sets
//! and makes durable.
//!
//! A sequence's record in WAL (and so on every standby and in every backup) comes before the
//! record of any row that is written later. pg_dump carries it, and no rollback undoes it. Which
//! sequences there are: `members.rs`.

use std::ffi::c_int;

use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::error::Error;

/// A sequence, by its OID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence(pub pg_sys::Oid);

/// A lock mode that conflicts with itself, but not with what the transactions of earlier writers
/// still hold.
const LOCK: pg_sys::LOCKMODE = pg_sys::ShareUpdateExclusiveLock as pg_sys::LOCKMODE;

/// commands/sequence.h: the one row of a sequence.
#[repr(C)]
struct SequenceRow {
    last_value: i64,
    log_count: i64,
    is_called: bool,
}

impl Sequence {
    /// Reads the value, or `None` if it was never set. (PostgreSQL's own function for it would keep
    /// a lock until the end of the transaction, but a waiting session must hold no lock.)
    ///
    /// # Errors
    /// [`Error::NoExtension`] if the sequence is gone.
    pub fn read(self) -> Result<Option<i64>, Error> {
        self.look(|buffer| {
            // SAFETY: a sequence has one page with one row, as PostgreSQL's own sequence.c reads
            // it; the page is pinned and locked while the row is copied.
            unsafe {
                let page = pg_sys::BufferGetPage(buffer);
                let first_item = (*page.cast::<pg_sys::PageHeaderData>()).pd_linp.as_ptr();
                let tuple = page.add((*first_item).lp_off() as usize).cast::<pg_sys::HeapTupleHeaderData>();
                let row = tuple.cast::<u8>().add((*tuple).t_hoff.into()).cast::<SequenceRow>();
                (*row).is_called.then(|| (*row).last_value)
            }
        })
    }

    /// Returns when the value is durable, whichever session has set it. Where `wal_level` is
    /// minimal and the sequence is new, as for [`flush`].
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn flush_value(self) -> Result<(), Error> {
        // SAFETY: the page is pinned. It has the end of the log record that has set the value.
        let end = self.look(|buffer| unsafe { pg_sys::BufferGetLSNAtomic(buffer) })?;
        // SAFETY: the record was inserted before it was on the page.
        unsafe { pg_sys::XLogFlush(end) };
        Ok(())
    }

    /// Looks at the sequence's page, which is pinned and locked meanwhile.
    fn look<T>(self, look: impl FnOnce(pg_sys::Buffer) -> T) -> Result<T, Error> {
        // SAFETY: a relation that is gone is null, and one that is no sequence is left alone.
        // Errors are raised through pgrx's guard.
        unsafe {
            let relation = pg_sys::try_relation_open(self.0, pg_sys::AccessShareLock as _);
            if relation.is_null() {
                return Err(Error::NoExtension);
            }
            // The number may have been given to another relation by now.
            if (*(*relation).rd_rel).relkind as u8 != pg_sys::RELKIND_SEQUENCE {
                pg_sys::relation_close(relation, pg_sys::AccessShareLock as _);
                return Err(Error::NoExtension);
            }
            let buffer = pg_sys::ReadBuffer(relation, 0);
            #[cfg(not(feature = "pg19"))]
            pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE as _);
            // What LockBuffer, an inline function since then, calls.
            #[cfg(feature = "pg19")]
            pg_sys::LockBufferInternal(buffer, pg_sys::BufferLockMode::BUFFER_LOCK_SHARE);
            let found = look(buffer);
            pg_sys::UnlockReleaseBuffer(buffer);
            pg_sys::relation_close(relation, pg_sys::AccessShareLock as _);
            Ok(found)
        }
    }

    /// Sets the value, and logs it. Runs as the bootstrap superuser, because PUBLIC may only read.
    /// The transaction gets an id and keeps its lock on the sequence, as with `nextval`.
    pub fn set(self, value: i64) {
        // SAFETY: setval is called with its two arguments, of the types it has. If it raises, the
        // end of the (sub)transaction restores the user; otherwise the last call does.
        unsafe {
            let (mut user, mut context) = (pg_sys::InvalidOid, 0);
            pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
            let as_superuser = context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as c_int;
            pg_sys::SetUserIdAndSecContext(pg_sys::BOOTSTRAP_SUPERUSERID.into(), as_superuser);
            pgrx::direct_function_call_as_datum(pg_sys::setval_oid, &[self.0.into_datum(), value.into_datum()]);
            pg_sys::SetUserIdAndSecContext(user, context);
        }
    }

    /// Locks the sequence against other sessions that lock it this way. Returns false if one of
    /// them has the lock and `wait` is false.
    pub fn lock(self, wait: bool) -> bool {
        // SAFETY: any transaction may call these; a relation that is gone can be locked too. Errors
        // (cancel, deadlock) are raised through pgrx's guard.
        unsafe {
            if wait {
                pg_sys::LockRelationOid(self.0, LOCK);
                return true;
            }
            pg_sys::ConditionalLockRelationOid(self.0, LOCK)
        }
    }

    /// Releases the lock.
    pub fn unlock(self) {
        // SAFETY: as above, for a lock that this session has taken.
        unsafe { pg_sys::UnlockRelationOid(self.0, LOCK) };
    }

    /// Whether this transaction has set the sequence. Its lock shows that, because `setval` keeps
    /// it to the end.
    pub fn is_set_by_transaction(self) -> bool {
        let mode = pg_sys::RowExclusiveLock as pg_sys::LOCKMODE;
        // SAFETY: looks at this backend's own table of locks; the tag is SET_LOCKTAG_RELATION's.
        // MyDatabaseId is read by value.
        unsafe {
            let tag = pg_sys::LOCKTAG {
                locktag_field1: pg_sys::MyDatabaseId.to_u32(),
                locktag_field2: self.0.to_u32(),
                locktag_field3: 0,
                locktag_field4: 0,
                locktag_type: pg_sys::LockTagType::LOCKTAG_RELATION as u8,
                locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
            };
            #[cfg(any(feature = "pg15", feature = "pg16"))]
            return pg_sys::LockHeldByMe(&raw const tag, mode);
            #[cfg(not(any(feature = "pg15", feature = "pg16")))]
            return pg_sys::LockHeldByMe(&raw const tag, mode, false);
        }
    }

    /// Announces a change of the sequence's definition, so that every session plans anew what
    /// depends on it.
    pub fn announce(self) {
        // SAFETY: the invalidation takes effect for others when the transaction commits. Errors are
        // raised through pgrx's guard.
        unsafe { pg_sys::CacheInvalidateRelcacheByRelid(self.0) };
    }
}

/// Returns when all that this session has set is durable, whatever `synchronous_commit` says. Any
/// role can switch that off, which would void the promise for all.
pub fn flush() {
    // SAFETY: XactLastRecEnd is the end of this backend's last log record. (It is 0 if `wal_level`
    // is minimal and the sequence is new. The commit that makes the sequence visible to others then
    // makes it durable as a whole.)
    unsafe { pg_sys::XLogFlush(pg_sys::XactLastRecEnd) };
}
