//! What a session forgets, and when. Also what makes known marks wrong: objects that are created or
//! dropped, dumps that are restored, transactions that are rolled back.
//!
//! | event | noticed by | the session forgets |
//! |---|---|---|
//! | a transaction ends, is prepared or is rolled back | `transaction_ends` | its first id, that it can read the database's ids, that it is prepared, whether it has called `setval` or made relations |
//! | the same, and a rollback of a part | both callbacks | which keys of public ids there are |
//! | a rollback of all or a part of it, or PREPARE TRANSACTION, where it has made or dropped relations | `forget_what_was_made` | the marks and the tick that it draws by |
//! | `DISCARD ALL`, `DISCARD SEQUENCES` | `discard`, from `utility.rs` | its last id, which a pooler's next client must not see |
//! | the extension was created anew | `function_called`, from `entry.rs` | the tags' places, and the fleet of the database |
//! | other marks are the database's | `remember` in `database_mark.rs` | the tick, and the leased numbers that it draws with |
//!
//! Each file has its statics, and a function that forgets them. PostgreSQL itself reports changes
//! of what `postgres/catalog.rs` remembers.
//!
//! The session that drops a sequence or a database forgets or releases its published marks. The
//! session that has set a sequence rechecks the marks before it commits. The hooks and callbacks
//! here must stay plain, with no guard and no destructor, because an ERROR may pass them.
//! PostgreSQL does not limit their number.

use std::ffi::{c_int, c_void};
use std::ptr;

use pgrx::pg_sys;
use pgrx::prelude::*;
use snowflake_core::draw::mark::{Stored, WrittenNumbers};
use snowflake_core::draw::published::Published;
use snowflake_core::draw::stamp::IdStamp;

use crate::error::OrRaise;
use crate::ids::database_mark;
use crate::ids::dense;
use crate::ids::members;
use crate::ids::next;
use crate::ids::prepared;
use crate::ids::public;
use crate::ids::sequence::Sequence;
use crate::ids::settled;
use crate::ids::stamp;
use crate::ids::waiting::Request;
use crate::postgres::backend;
use crate::postgres::local::Local;
use crate::shared::shmem;

/// Whether this transaction has called `setval`, perhaps for a sequence of this extension, as a
/// restored dump does.
static CALLS_SETVAL: Local<bool> = Local::new(false);

/// Whether this transaction has created or dropped a relation, perhaps a sequence of this
/// extension.
static MAKES_RELATIONS: Local<bool> = Local::new(false);

/// In a process that copies another server's sequences: what this database held before.
static COPIED_OVER: Local<Option<Stored>> = Local::new(None);

/// The hook that was installed before this one.
static PREVIOUS_OBJECT_ACCESS: Local<pg_sys::object_access_hook_type> = Local::new(None);

/// Asks PostgreSQL to report when transactions end, and when objects are created, dropped and
/// called. (PostgreSQL does not limit the number of such callbacks.)
pub fn init() {
    // SAFETY: the postmaster, or a session, has one thread. This is how PostgreSQL registers
    // callbacks and chains hooks. It runs once, because a library is initialized once per process.
    unsafe {
        pg_sys::RegisterXactCallback(Some(transaction_ends), ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(part_of_transaction_ends), ptr::null_mut());
        if backend::is_preloading() {
            PREVIOUS_OBJECT_ACCESS.set(pg_sys::object_access_hook);
            pg_sys::object_access_hook = Some(object_accessed);
        }
    }
}

/// Called when an object is created or dropped, and for each function in an expression that is
/// about to be executed. Plain, with no guard and no destructor, because the previous hook may
/// raise.
unsafe extern "C-unwind" fn object_accessed(
    access: pg_sys::ObjectAccessType::Type,
    class: pg_sys::Oid,
    object: pg_sys::Oid,
    sub_object: c_int,
    argument: *mut c_void,
) {
    // SAFETY: the previous hook is called as it would have been; MyDatabaseId is a variable of this
    // backend, read by value.
    unsafe {
        if let Some(previous) = PREVIOUS_OBJECT_ACCESS.get() {
            previous(access, class, object, sub_object, argument);
        }
        if access == pg_sys::ObjectAccessType::OAT_FUNCTION_EXECUTE {
            if object == pg_sys::F_SETVAL_REGCLASS_INT8.into() || object == pg_sys::F_SETVAL_REGCLASS_INT8_BOOL.into() {
                CALLS_SETVAL.set(true);
            }
            return;
        }
        let made_or_dropped =
            access == pg_sys::ObjectAccessType::OAT_POST_CREATE || access == pg_sys::ObjectAccessType::OAT_DROP;
        if !made_or_dropped || sub_object != 0 {
            return;
        }
        // A number may be given again, to a database even on purpose, so what is published must not
        // outlive a creation or a drop. A database without the extension needs no place.
        if class == pg_sys::DatabaseRelationId {
            let database = u64::from(object.to_u32());
            shmem::marks_in_use().filter(|marks| marks.owner() >> 32 == database).for_each(Published::forget);
        } else if class == pg_sys::RelationRelationId {
            MAKES_RELATIONS.set(true);
            let owner = members::owner(object);
            shmem::marks_in_use().for_each(|marks| marks.release(owner));
        }
    }
}

/// Called at every end of a transaction. Cheap for a transaction that has set no sequence.
unsafe extern "C-unwind" fn transaction_ends(event: pg_sys::XactEvent::Type, _: *mut c_void) {
    use pg_sys::XactEvent::{XACT_EVENT_COMMIT, XACT_EVENT_PRE_COMMIT, XACT_EVENT_PRE_PREPARE};
    if event != XACT_EVENT_PRE_COMMIT && event != XACT_EVENT_PRE_PREPARE {
        forget_transaction(event == XACT_EVENT_COMMIT);
        return;
    }
    if event == XACT_EVENT_PRE_PREPARE {
        prepare();
    }
    if public::has_made_key() {
        key_made(event == XACT_EVENT_PRE_PREPARE);
    }
    let is_background_worker = backend::is_background_worker();
    if is_background_worker {
        prepared::before_end();
    }
    // A background worker may set sequences without a call in SQL. PostgreSQL's own does so, from
    // 19 on, and pglogical's.
    let may_have_set = CALLS_SETVAL.get() || is_background_worker;
    // SAFETY: a variable of this backend, read by value.
    let database = unsafe { pg_sys::MyDatabaseId };
    if !may_have_set || database == pg_sys::InvalidOid || shmem::generator().is_none() {
        return;
    }
    if backend::has_written() {
        recheck();
    } else if backend::copies_sequences() {
        remember();
    }
}

/// Notes that this transaction is about to be prepared. Guarded, because it may raise.
#[pg_guard]
extern "C-unwind" fn prepare() {
    prepared::prepare().or_raise();
}

/// Refuses a key of public ids that comes too late. Guarded, because it may raise.
#[pg_guard]
extern "C-unwind" fn key_made(is_prepared: bool) {
    public::check_made(is_prepared).or_raise();
}

/// Notes what the database holds before sequences are copied. Such a worker first looks up its
/// subscription, in transactions that write nothing. Guarded, because it may raise.
#[pg_guard]
extern "C-unwind" fn remember() {
    COPIED_OVER.set(database_mark::stored().or_raise());
}

/// Called at every end of a subtransaction, such as a savepoint's.
unsafe extern "C-unwind" fn part_of_transaction_ends(
    event: pg_sys::SubXactEvent::Type,
    _part: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _: *mut c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        forget_what_was_made();
        public::forget();
    }
}

/// Forgets what holds for one transaction only, once PostgreSQL has made its end visible.
fn forget_transaction(has_committed: bool) {
    settled::end_transaction(has_committed);
    if !has_committed {
        // After PREPARE TRANSACTION too, this session no longer sees what it has created.
        forget_what_was_made();
    }
    database_mark::end_transaction();
    prepared::end_transaction();
    public::end_transaction();
    CALLS_SETVAL.set(false);
    MAKES_RELATIONS.set(false);
}

/// Forgets what a pooler's next client must not see. Raises nothing.
pub fn discard() {
    next::forget_last();
}

/// Notes which function draws a dense value. If it is another one than before, the extension was
/// dropped and created again, or that was rolled back: the database may not know its fleet any
/// more. Raises nothing.
#[inline]
pub fn function_called(function: pg_sys::Oid) {
    if dense::is_other_function(function) {
        dense::forget();
    }
}

/// Forgets the marks of a sequence that this transaction has created, because no id may be drawn by
/// them when the sequence is gone.
fn forget_what_was_made() {
    if MAKES_RELATIONS.get() {
        database_mark::forget_known();
    }
}

/// Notices that this transaction has set the sequences itself, which means that it has restored a
/// dump, or copied another server's sequences. Guarded, because it may raise.
#[pg_guard]
extern "C-unwind" fn recheck() {
    let (Some(sequences), Some(layout)) = (members::find(), stamp::layout()) else { return };
    let all = sequences.all().map(|sequence| sequence.is_some_and(Sequence::is_set_by_transaction));
    if all.contains(&true) {
        let [primary, backup, _, _, sets_layout, sets_identity, _] = all;
        if sets_layout {
            sequences.layout.announce();
        }
        let copied_over = COPIED_OVER.get();
        let written =
            WrittenNumbers { copied_over, marks: [primary, backup], layout: sets_layout, identity: sets_identity };
        let drawing = stamp::current().ok();
        let identity = drawing.as_ref().map(IdStamp::identity);
        database_mark::of(layout, &Request::new()).and_then(|mark| mark.recheck(layout, identity, &written)).or_raise();
    }
}
