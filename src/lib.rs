//! `snowflake_id`: 64-bit ids for PostgreSQL, unique across servers, ordered by time, readable in SQL.
//!
//! This file is the map and the entry point; it holds no logic. Nothing points up:
//!
//! ```text
//! entry                    the short way into snowflake_next
//!   |
//! functions                every SQL function, one thought each; no unsafe
//! pushdown                 conditions on an id's time, planned as conditions on the id
//! utility                  DISCARD, which forgets the session's last id, and ALTER SYSTEM, which is judged as a whole
//!   |-- convert            tables' columns become snowflake columns; no unsafe
//!   |-- draw               drawing: checks, waits, what to do after a rollback; no unsafe
//!   |-- layouts            the layouts this session uses; no unsafe
//!   |-- record, text       an id's parts as one row; text of any encoding
//!         |
//!       mark               where the mark is stored, and what makes a session read it anew
//!         |
//!       stats              what is counted, waited for and logged; no unsafe
//!         |
//!       catalog            the extension's own objects, and what is arranged by its functions
//!       shmem              the generator, the marks and the backends' slots in shared memory
//!         |
//!       guc                the settings, and how a wrong one stops the start
//!       values             which of their values go together, now and at the next start
//!       configuration      where a value stands: in the configuration files, on the command line
//!       backend            what this backend may do now, the clock, and how it waits
//!       error              every error's SQLSTATE, DETAIL and HINT; no unsafe
//!       backtrace          what of a panic is not for an error's DETAIL; no unsafe
//!       instant            timestamptz, date and timestamp
//!       local              statics that one process has for itself
//!         |
//!       snowflake_core     layouts, ids, the generator, the mark; knows no PostgreSQL
//! ```
//!
//! Can two ids be equal? `core/generator.rs`. What happens in a crash? `core/mark.rs`, and `mark.rs` for PostgreSQL's part.
//! How many of a process's few places for callbacks are taken? None, or two: `catalog.rs`.
//! Why does a condition on the time use the primary key? `pushdown.rs`.
//! What does SQL offer? `functions.rs`, and sequences, views, grants and comments in `sql/surface.sql`.

use pgrx::prelude::*;

mod backend;
mod backtrace;
mod catalog;
mod configuration;
mod convert;
mod draw;
mod drawing;
mod entry;
mod error;
mod functions;
mod guc;
mod instant;
mod invalidation;
mod layouts;
mod local;
mod mark;
mod members;
mod pushdown;
mod record;
mod sequence;
mod shmem;
mod slot;
mod stats;
mod text;
mod utility;
mod values;
mod waiting;

::pgrx::pg_module_magic!(name, version);

// What Rust cannot say: sequences, views, grants, and a comment on every object.
pgrx::extension_sql_file!("../sql/surface.sql", name = "surface", finalize);

/// Called by PostgreSQL when it loads the library: by the postmaster when preloaded, else by a session.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    backtrace::init();
    guc::init();
    drawing::init();
    shmem::init();
    invalidation::init();
    pushdown::init();
    utility::init();
}
