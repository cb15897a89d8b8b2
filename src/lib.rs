//! `snowflake_id`: 64-bit ids for PostgreSQL, unique across servers, ordered by time, readable in
//! SQL.
//!
//! This file is the map and the entry point; it holds no logic. A folder is a room. Each file uses
//! only files that stand below it, and each room only rooms below it, so there is no circle
//! (`tools/map`). `*` marks files without `unsafe`.
//!
//! ```text
//! entry                the short way into snowflake_next
//!   |
//! functions          * every SQL function, one thought each
//!   |
//! parts                an id's parts as one row
//!   |
//! fleet/               the background worker
//!   keeper             leases this server's number, and reserves blocks
//!   worker             the worker's process: its start and end, how it waits
//!   |
//! partitions         * the locks under which an old partition is dropped
//!   |
//! widen/               integer columns become bigint while sessions use them
//!   trigger            the trigger that keeps the wide column equal to the narrow one
//!   names            * an expression of a column, with another column in its place
//!   unwidenable      * the errors of that
//!   |
//! convert            * tables' columns become snowflake columns, or draw from a tag
//!   |
//! locks              * how a transaction locks tables that others use, and they pass meanwhile
//!   |
//! time/                what a condition on an id's time means for the id
//!   pushdown           conditions on an id's time, planned as conditions on the id
//!   undo               what a condition on a date_trunc or the like says of the time inside
//!   zone               the instants at which a zone's clocks can show a local time
//!   instant            timestamptz, date and timestamp
//!   |
//! ids/                 what a session does to draw
//!   utility            DISCARD, which forgets the session's last id
//!   invalidation       what a session forgets, and when; what makes known marks wrong
//!   next             * drawing: checks, the fast path, what is counted
//!   dense            * drawing dense values: a tag's place, the fast path, waiting for a block
//!   public           * what this session knows of the keys of public ids, and which it may make
//!   layouts          * the layouts that this session uses
//!   settled          * up to which id a reader misses nothing: refusals, one answer for a statement
//!   prepared           what a prepared transaction has drawn, through restarts
//!   database_mark    * a database's mark: what the core's protocol runs over
//!   waiting          * how a session sleeps, and what is counted and logged of it
//!   stats            * what the views show, and what is counted and logged of draws
//!   stamp            * what this server draws with, layout and numbers, and where they come from
//!   members            the sequences in which a database stores marks, layout, numbers and fleet
//!   sequence           a logged number: read, lock, set, flush
//!   |
//! shared/              what lies in shared memory
//!   shmem              the generator, the numbers, published marks, slots, tags
//!   tags             * the tags that sessions draw dense values from, and what is shown of them
//!   lease_status     * what this server knows of its lease, for sessions and operators
//!   slot             * what one backend has drawn and met
//!   locked             what does not fit an atomic word
//!   page               what a crash of a backend must not lose of a lease
//!   |
//! settings/
//!   guc                what each may be, and which of their values go together
//!   configuration      where a value stands: in the configuration files, on the command line
//!   |
//! error              * every error: SQLSTATE, message, DETAIL and HINT, each in one place
//!   |
//! postgres/            what PostgreSQL is to this library
//!   public_keys        the table of keys of public ids
//!   catalog            the extension's own objects, and what is arranged by its functions
//!   restricted         work as another role, whose errors are caught
//!   backend            what this backend may do now, the clock, and how it sleeps
//!   backtrace        * what of a panic does not belong in an error's DETAIL
//!   text               text of any encoding
//!   snapshot           which transactions run for a statement
//!   last_call          what a function remembers between its calls at one place of a plan
//!   local              statics that one process has for itself
//!   allocator          what happens if Rust gets no memory
//!   |
//! snowflake_registry   a fleet's registry: PostgreSQL through libpq, or etcd
//! snowflake_region     where the parts of the shared memory lie
//!   |
//! snowflake_core     * layouts, ids, the generator, the mark, the lease, segments; knows no PostgreSQL
//! ```
//!
//! | question | file |
//! |---|---|
//! | Can two ids be equal? | `core/draw/generator.rs` |
//! | What happens in a crash? | `core/draw/mark.rs`, and `ids/database_mark.rs` for PostgreSQL's part; for a lease, `core/fleet/page.rs`, and `shared/page.rs` |
//! | Which rows does a reader in the order of ids miss? | `core/draw/settled.rs`, and `ids/settled.rs` for SQL |
//! | Can two servers have the same numbers? | `core/fleet/lease.rs`, and `fleet/keeper.rs` for the process that runs it |
//! | Can two servers get the same dense value? | `core/fleet/segment.rs`, and `fleet/keeper.rs` for the process that reserves blocks |
//! | When does a draw wait, and for what? | `core/draw/session.rs`, and `ids/waiting.rs` |
//! | How many of a process's few places for callbacks are taken? | `postgres/catalog.rs`: none, or two |
//! | Why does a condition on the time use the primary key? | `time/pushdown.rs` |
//! | What can an operator do with a fleet's registry? | `core/fleet/operate.rs`, and `operator/main.rs` for the program |
//! | Can an id get another public id? | `core/id/known_keys.rs`, and `core/id/public.rs` for what a public id is |
//! | What does SQL offer? | `functions.rs`, and what it installs: `sql/snowflake_id--VERSION.sql` |
//! | What does a word mean? | `docs/internals/glossary.md` |

use pgrx::prelude::*;

mod convert;
mod entry;
mod error;
mod fleet;
mod functions;
mod ids;
mod locks;
mod partitions;
mod parts;
mod postgres;
mod settings;
mod shared;
mod time;
mod widen;

::pgrx::pg_module_magic!(name, version);

// What Rust cannot say: sequences, views, grants, and a comment on every object (build.rs).
include!(concat!(env!("OUT_DIR"), "/surface.rs"));

/// Called by PostgreSQL when it loads the library: by the postmaster when preloaded, else by a
/// session.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    postgres::backtrace::init();
    settings::guc::init();
    ids::stamp::init();
    shared::shmem::init();
    fleet::keeper::init();
    ids::invalidation::init();
    time::pushdown::init();
    ids::utility::init(time::pushdown::init_planner);
}
