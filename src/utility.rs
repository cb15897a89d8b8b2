//! Statements that concern what a session remembers, or what the server is to start with: a hook in front of PostgreSQL's own.
//!
//! | statement | what is done |
//! |---|---|
//! | `DISCARD ALL`, `DISCARD SEQUENCES` | the session forgets its last id, as `lastval()`: a pooler's next client must not be told it |
//! | `ALTER SYSTEM` | it is refused if the server would not start with it (`guc.rs`) |
//!
//! Any other statement costs a look at its tag. **The hook is plain**: no guard around the statement that is passed on, which
//! would take an error's context away; hence no destructor, no allocation, no panic on its frame.

use std::ffi::c_char;

use pgrx::pg_sys::{self, NodeTag};

use crate::local::Local;
use crate::{backend, draw, guc};

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

/// The hooks that were there before ours.
static PREVIOUS_STARTUP: Local<pg_sys::shmem_startup_hook_type> = Local::new(None);
static PREVIOUS: Local<pg_sys::ProcessUtility_hook_type> = Local::new(None);

/// Asks PostgreSQL to call the hook, when preloaded: once all libraries are. Citus refuses to be loaded after a library with such a
/// hook, and then a server with the wrong order in `shared_preload_libraries`, which only warns, would not start.
pub fn init() {
    if !backend::is_preloading() {
        return;
    }
    // SAFETY: the postmaster has one thread; this is how PostgreSQL chains hooks.
    unsafe {
        PREVIOUS_STARTUP.set(pg_sys::shmem_startup_hook);
        pg_sys::shmem_startup_hook = Some(startup);
    }
}

/// Called by the postmaster at the start, and again after each crash of a backend. Plain: the previous hook may raise.
unsafe extern "C-unwind" fn startup() {
    static IS_INSTALLED: Local<bool> = Local::new(false);
    // SAFETY: as above. The previous hook is called as it would have been.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP.get() {
            previous();
        }
        if !IS_INSTALLED.replace(true) {
            PREVIOUS.set(pg_sys::ProcessUtility_hook);
            pg_sys::ProcessUtility_hook = Some(process);
        }
    }
}

/// Called for each statement that is not planned.
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
    // SAFETY: PostgreSQL calls it with a statement that is valid while it runs (read before it does: DISCARD frees what was
    // prepared), and a node is what its tag says. The statement is passed on as it came.
    unsafe {
        let statement = (*pstmt).utilityStmt;
        let forgets = (*statement).type_ == NodeTag::T_DiscardStmt && {
            let target = (*statement.cast::<pg_sys::DiscardStmt>()).target;
            target == pg_sys::DiscardMode::DISCARD_ALL || target == pg_sys::DiscardMode::DISCARD_SEQUENCES
        };
        if (*statement).type_ == NodeTag::T_AlterSystemStmt {
            guc::check_alter_system(statement.cast());
        }
        let run = PREVIOUS.get().unwrap_or(standard_ProcessUtility);
        run(pstmt, query_string, read_only_tree, context, params, query_env, dest, completion);
        // Only now: a DISCARD ALL that was refused, in a transaction, has discarded nothing.
        if forgets {
            draw::forget_last();
        }
    }
}
