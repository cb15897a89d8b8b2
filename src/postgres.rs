//! What PostgreSQL is to this library: the process, its memory, catalogs and texts. Nothing here
//! knows of ids.

pub mod allocator;
pub mod backend;
pub mod backtrace;
pub mod catalog;
pub mod last_call;
pub mod local;
pub mod public_keys;
pub mod restricted;
pub mod snapshot;
pub mod text;
