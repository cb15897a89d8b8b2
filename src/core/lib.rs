//! Layouts, ids and the generator of `snowflake_id`, without PostgreSQL.
//!
//! This is a crate of its own so that it can be tested without a server: exhaustively ([loom]), for
//! all values (proptest) and from a fuzzer. It has no `unsafe`, no dependencies but the cipher of
//! public ids, and never sleeps, logs or allocates while an id is drawn.
//!
//! A folder is a room. Each file uses only files that stand below it, and each room only rooms
//! below it (`tools/map`).
//!
//! ```text
//! fleet/               what the servers of a fleet share
//!   operate            what an operator may do to a fleet
//!   page               what the next life of a server goes on from, after a crash
//!   lease              whether two servers can have the same numbers
//!   segment            how many servers share one dense space of values
//!   exchange           how a server and an operator read the registry and change it
//!   membership         what a server knows of its fleet, and what it writes of it
//!   registry           what a fleet's registry holds
//!   tag                what a dense space of values can be called
//!   pace               when a server asks the registry again
//!   bytes              how a value is written as bytes, and read back
//!   |
//! draw/                how the sessions of a server draw ids
//!   session            when a draw waits, and for what
//!   settled            up to which id a reader misses nothing
//!   mark               what happens after a crash, a failover or a restore
//!   numbers            how a server's numbers change while sessions draw
//!   known_tick         how a busy session draws with little work
//!   published          how far a database may draw, and how its sessions know
//!   generator          whether two ids can be equal, and when a draw is refused
//!   stamp              what a server draws with
//!   |
//! id/                  what an id is
//!   bounds             which ids were drawn in a span of time
//!   identity           which numbers every id of a server carries
//!   parts              how an id is packed, read back and printed
//!   layout             what the bits of an id mean
//!   encoding           how an id is written as a short text
//!   known_keys         which keys of public ids a session knows, and for how long
//!   public             how an id is enciphered for readers outside
//!   computed           between which limits a time is of which something is computed
//!   spelling           which word a user meant, and how much of it an error repeats
//!   fnv                which number stands for a text
//!   |
//! clock                where the time comes from, and how an instant is written
//! atomic               which atomics there are
//! ```
//!
//! What a word means here: `docs/internals/glossary.md`.
//!
//! Each error is in the file that raises it: variants that hold facts, and for each one line of
//! text in PostgreSQL's message style. The extension adds SQLSTATE, DETAIL and HINT.
//!
//! ```
//! use snowflake_core::draw::generator::{Generator, Limits, NO_MARK};
//! use snowflake_core::draw::stamp::IdStamp;
//! use snowflake_core::id::layout::Layout;
//!
//! let layout = Layout::parse("snowflake")?;
//! let drawing = IdStamp::new(layout, Some(5), None, false)?;
//! let limits = Limits { max_borrow_ms: 100, marks_ms: [NO_MARK; 2] };
//! let clock = || 1_800_000_000_000;
//! let run = Generator::new().draw(&drawing, &clock, &limits, 1).expect("the clock is within the layout");
//! let id = run.last_id();
//! assert_eq!(layout.parts(id)?.to_string(), "2027-01-15T08:00:00.000Z #6 @(5)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [loom]: https://docs.rs/loom

#![forbid(unsafe_code)]

pub mod atomic;
pub mod clock;
pub mod draw;
pub mod fleet;
pub mod id;
