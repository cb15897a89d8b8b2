//! `snowflake_convert` and `snowflake_convert_columns`: a column that has drawn from a sequence, or
//! from nowhere, draws snowflake ids, and nothing else about its tables has changed.
//!
//! Most tests write a schema once, with what is to change in braces,
//! `id {serial -> bigint DEFAULT snowflake_next()}`: what becomes of the left side is held against
//! the right side, dump against dump ([`database`]). So is what becomes of it when somebody runs
//! the returned statements by hand.
//!
//! - [`column`]: every kind of column, its default, its sequence
//! - [`values`]: what is stored already must be below what will be drawn
//! - [`rewrite`]: integer columns, and all that refer to them
//! - [`refusals`]: who may, on what, and what stands in the way
//! - [`sessions`]: others that insert, lock, change or convert the same tables meanwhile
//! - [`schema`]: many columns at once, and what depends on them
//! - [`any_schema`]: random tables that refer to each other

#[path = "convert/any_schema.rs"]
mod any_schema;
#[path = "convert/column.rs"]
mod column;
#[path = "convert/database.rs"]
mod database;
// The simulation's: the same numbers for the same seed, everywhere.
#[path = "../../../src/core/tests/simulation/random.rs"]
mod random;
#[path = "convert/refusals.rs"]
mod refusals;
#[path = "convert/rewrite.rs"]
mod rewrite;
#[path = "convert/schema.rs"]
mod schema;
#[path = "convert/sessions.rs"]
mod sessions;
#[path = "convert/values.rs"]
mod values;
