//! `snowflake_id`: 64-bit ids for PostgreSQL, unique across servers, ordered by time, readable in
//! SQL.
//!
//! This file is the map and the entry point; it holds no logic. Each file uses only files that
//! stand below it, so there is no circle. `*` marks files without `unsafe`.
//!
//! ```text
//! entry             the short way into snowflake_next
//!   |
//! functions       * every SQL function for users, one thought each
//!   |
//! keeper            the background worker that leases this server's number and reserves blocks
//! convert         * tables' columns become snowflake columns, or draw from a tag
//! pushdown          conditions on an id's time, planned as conditions on the id
//! utility           DISCARD, which forgets the session's last id; ALTER SYSTEM, checked as a whole
//!   |
//! draw            * drawing: checks, the fast path, what is counted
//! segment         * drawing dense values: a tag's place, the fast path, waiting for a block
//! layouts         * the layouts that this session uses
//! invalidation      what makes known marks wrong: drops, restored dumps, rollbacks
//!   |
//! mark            * a database's mark: what the core's protocol runs over
//! waiting         * how a session sleeps, and what is counted and logged of it
//! stats           * what the views show, and what is counted and logged of draws
//!   |
//! drawing         * what this server draws with, layout and numbers, and where they come from
//! shmem             shared memory: the generator, the numbers, published marks, slots, tags
//! members           the sequences in which a database stores marks, layout, numbers and fleet
//!   |
//! worker            the background worker's process: its start and end, how it waits
//! tags            * the tags that sessions draw dense values from, and what is shown of them
//! lease           * what this server knows of its lease, for sessions and operators
//! slot            * what one backend has drawn and met
//! sequence          a logged number: read, lock, set, flush
//! guc               the settings, and how a wrong one stops the start
//! values            which of their values go together, now and at the next start
//! record            an id's parts as one row
//! steps           * what a condition on a date_trunc, an age or a range says of the time inside
//! zone              the instants at which a zone's clocks can show a local time
//! instant           timestamptz, date and timestamp
//!   |
//! catalog           the extension's own objects, and what is arranged by its functions
//! backend           what this backend may do now, the clock, and how it sleeps
//! error           * every error: SQLSTATE, message, DETAIL and HINT, each in one place
//! configuration     where a value stands: in the configuration files, on the command line
//! backtrace       * what of a panic does not belong in an error's DETAIL
//! text              text of any encoding
//! locked            what lies in shared memory and does not fit an atomic word
//! local             statics that one process has for itself
//! allocator         what happens if Rust gets no memory
//!   |
//! snowflake_registry  a fleet's registry: PostgreSQL through libpq, or etcd
//! snowflake_region    where the parts of the shared memory lie
//!   |
//! snowflake_core  * layouts, ids, the generator, the mark, the lease, segments; knows no PostgreSQL
//! ```
//!
//! | question | file |
//! |---|---|
//! | Can two ids be equal? | `core/generator.rs` |
//! | What happens in a crash? | `core/mark.rs`, and `mark.rs` for PostgreSQL's part |
//! | Can two servers have the same numbers? | `core/lease.rs`, and `keeper.rs` for the process that runs it |
//! | Can two servers get the same dense value? | `core/segment.rs`, and `keeper/supply.rs` for the process that reserves blocks |
//! | When does a draw wait, and for what? | `core/draw.rs`, and `waiting.rs` |
//! | How many of a process's few places for callbacks are taken? | `catalog.rs`: none, or two |
//! | Why does a condition on the time use the primary key? | `pushdown.rs` |
//! | What does SQL offer? | `functions.rs`, and what it installs: `sql/snowflake_id--VERSION.sql` |

use pgrx::prelude::*;

mod allocator;
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
mod keeper;
mod layouts;
mod lease;
mod local;
mod locked;
mod mark;
mod members;
mod pushdown;
mod record;
mod segment;
mod sequence;
mod shmem;
mod slot;
mod stats;
mod steps;
mod tags;
mod text;
mod utility;
mod values;
mod waiting;
mod worker;
mod zone;

::pgrx::pg_module_magic!(name, version);

// What Rust cannot say: sequences, views, grants, and a comment on every object (build.rs).
include!(concat!(env!("OUT_DIR"), "/surface.rs"));

/// Called by PostgreSQL when it loads the library: by the postmaster when preloaded, else by a
/// session.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    backtrace::init();
    guc::init();
    drawing::init();
    shmem::init();
    keeper::init();
    invalidation::init();
    pushdown::init();
    utility::init();
}
