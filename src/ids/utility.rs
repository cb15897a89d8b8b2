//! Intercepts utility statements that affect what a session remembers.
//!
//! | statement | what is done |
//! |---|---|
//! | `DISCARD ALL`, `DISCARD SEQUENCES` | the session forgets its last id, which a pooler's next client must not see |
//! | `COMMIT PREPARED`, `ROLLBACK PREPARED` | readers learn of all that was prepared before the start |
//!
//! Any other statement costs a look at its tag. **The hook is plain**: a guard around the statement
//! that it passes on would lose an error's context. So it must never panic, allocate, or hold a
//! value with a destructor. What it calls before that is guarded.

use std::ffi::c_char;

use pgrx::pg_sys::{self, NodeTag};

use crate::ids::{invalidation, prepared};
use crate::postgres::backend;
use crate::postgres::local::Local;

unsafe extern "C-unwind" {
    /// tcop/utility.h
    fn standard_ProcessUtility(
        pstmt: *mut pg_sys::PlannedStmt,
        query_string: *const c_char,
        read_only_tree: bool,
        context: pg_sys::ProcessUtilityContext::Type,
        params: pg_sys::ParamListInfo,
        query_env: *mut pg_sys::QueryEnvironment,
        dest: *mut pg_sys::DestReceiver,
        completion: *mut pg_sys::QueryCompletion,
    );
}

/// The hooks that were installed before ours.
static PREVIOUS_STARTUP: Local<pg_sys::shmem_startup_hook_type> = Local::new(None);
static PREVIOUS: Local<pg_sys::ProcessUtility_hook_type> = Local::new(None);

/// What installs other hooks with this one.
static ALSO: Local<Option<unsafe fn()>> = Local::new(None);

/// Installs the hook, when preloaded, after all libraries are loaded, and calls `also` then, once.
/// Citus refuses to be loaded after a library with such a hook, or one for planning. A wrong order
/// in `shared_preload_libraries`, which otherwise causes a warning, would then prevent the start.
pub fn init(also: unsafe fn()) {
    if !backend::is_preloading() {
        return;
    }
    // SAFETY: the postmaster has one thread; this is how PostgreSQL chains hooks.
    unsafe {
        ALSO.set(Some(also));
        PREVIOUS_STARTUP.set(pg_sys::shmem_startup_hook);
        pg_sys::shmem_startup_hook = Some(startup);
    }
}

/// Called by the postmaster at the start, and again after each crash of a backend. Plain, because
/// the previous hook may raise.
unsafe extern "C-unwind" fn startup() {
    static IS_INSTALLED: Local<bool> = Local::new(false);
    // SAFETY: as above. The previous hook is called as it would have been without ours.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP.get() {
            previous();
        }
        if !IS_INSTALLED.replace(true) {
            PREVIOUS.set(pg_sys::ProcessUtility_hook);
            pg_sys::ProcessUtility_hook = Some(process);
            if let Some(install) = ALSO.get() {
                install();
            }
        }
    }
}

/// Called for each utility statement.
#[allow(clippy::too_many_arguments, reason = "PostgreSQL's signature")]
unsafe extern "C-unwind" fn process(
    pstmt: *mut pg_sys::PlannedStmt,
    query_string: *const c_char,
    read_only_tree: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    query_env: *mut pg_sys::QueryEnvironment,
    dest: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: PostgreSQL calls it with a statement, which is valid until it runs. It is read before
    // that, because DISCARD frees what was prepared. A node's type is what its tag says. The
    // statement is passed on unchanged.
    unsafe {
        let statement = (*pstmt).utilityStmt;
        let forgets = (*statement).type_ == NodeTag::T_DiscardStmt && {
            let target = (*statement.cast::<pg_sys::DiscardStmt>()).target;
            target == pg_sys::DiscardMode::DISCARD_ALL || target == pg_sys::DiscardMode::DISCARD_SEQUENCES
        };
        if (*statement).type_ == NodeTag::T_TransactionStmt {
            let kind = (*statement.cast::<pg_sys::TransactionStmt>()).kind;
            if kind == pg_sys::TransactionStmtKind::TRANS_STMT_COMMIT_PREPARED
                || kind == pg_sys::TransactionStmtKind::TRANS_STMT_ROLLBACK_PREPARED
            {
                prepared::before_end();
            }
        }
        let run = PREVIOUS.get().unwrap_or(standard_ProcessUtility);
        run(pstmt, query_string, read_only_tree, context, params, query_env, dest, completion);
        // Only now, because a DISCARD ALL that is refused in a transaction discards nothing.
        if forgets {
            invalidation::discard();
        }
    }
}
