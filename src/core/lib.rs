//! Layouts, ids and the generator of `snowflake_id`, without PostgreSQL.
//!
//! This is a crate of its own so that it can be tested without a server: exhaustively ([loom]), for
//! all values (proptest) and from a fuzzer. It has no dependencies and no `unsafe`, and never
//! sleeps, logs or allocates while an id is drawn.
//!
//! | question | file |
//! |---|---|
//! | What do the bits of an id mean? | [`layout`] |
//! | How is an id packed, read back and printed? | [`id`] |
//! | How is an id written as a short text? | [`encoding`] |
//! | Which numbers does every id of a server carry? | [`identity`] |
//! | How do they change while sessions draw? | [`numbers`] |
//! | Can two servers have the same numbers? | [`lease`] |
//! | What does a fleet's registry hold? | [`registry`] |
//! | What does a server know of its fleet, and what does it write of it? | [`membership`] |
//! | How do a server and an operator read the registry and change it? | [`exchange`] |
//! | What may an operator do to a fleet? | [`operate`] |
//! | When does a server ask the registry again? | [`pace`] |
//! | How do many servers share one dense space of values? | [`segment`] |
//! | What can such a space be called? | [`tag`] |
//! | Can two ids be equal? When is a draw refused? | [`generator`] |
//! | How does a busy session draw with little work? | [`known_tick`] |
//! | When does a draw wait, and for what? | [`mod@draw`] |
//! | Which ids were drawn in a span of time? | [`bounds`] |
//! | Between which limits is a time of which something is computed? | [`computed`] |
//! | What happens after a crash, a failover or a restore? | [`mark`] |
//! | How far may a database draw, and how do its sessions know? | [`published`] |
//! | Up to which id does a reader miss nothing? | [`settled`] |
//! | Which atomics are there? | [`atomic`] |
//! | Where does the time come from? How is an instant written? | [`clock`] |
//! | Which number stands for a text? | [`fnv`] |
//! | What does a word mean here? | `docs/internals/glossary.md` |
//! | Which word did a user mean, and how much of it does an error repeat? | [`spelling`] |
//!
//! Each error is in the file that raises it: variants that hold facts, and for each one line of
//! text in PostgreSQL's message style. The extension adds SQLSTATE, DETAIL and HINT.
//!
//! ```
//! use snowflake_core::generator::{Generator, Limits, NO_MARK};
//! use snowflake_core::identity::IdStamp;
//! use snowflake_core::layout::Layout;
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
pub mod bounds;
pub mod clock;
pub mod computed;
pub mod draw;
pub mod encoding;
pub mod exchange;
pub mod fnv;
pub mod generator;
pub mod id;
pub mod identity;
pub mod known_tick;
pub mod layout;
pub mod lease;
pub mod mark;
pub mod membership;
pub mod numbers;
pub mod operate;
pub mod pace;
pub mod published;
pub mod registry;
pub mod segment;
pub mod settled;
pub mod spelling;
pub mod tag;
