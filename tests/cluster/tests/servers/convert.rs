//! `snowflake_convert` and `snowflake_convert_columns`: a column that drew from a sequence, or had
//! no default, draws snowflake ids afterwards. Nothing else about its tables changes.
//!
//! Most tests write a schema once, with each change in braces:
//! `id {serial -> bigint DEFAULT snowflake_next()}`. The left side is converted and then compared
//! with the right side, dump against dump ([`database`]). The same is done with the returned
//! statements, run by hand.
//!
//! - [`column`]: every kind of column, its default, its sequence
//! - [`values`]: stored values must be below the ids to come
//! - [`rewrite`]: integer columns, and all that refer to them
//! - [`refusals`]: who may convert which tables, and what prevents it
//! - [`sessions`]: other sessions that insert, lock, change or convert the same tables meanwhile
//! - [`schema`]: many columns at once, and what depends on them
//! - [`suspects`]: what may fail afterwards, though the catalogs do not connect it
//! - [`any_schema`]: random tables that refer to each other
//! - [`applications`]: schemas as real applications have them, with their statements, in and back
//! - [`back`]: `snowflake_convert_back`, the way back to an identity

pub mod any_schema;
mod applications;
mod back;
mod column;
pub mod database;
mod refusals;
mod rewrite;
mod schema;
mod sessions;
mod suspects;
mod values;
