//! Every SQL function for users: what its arguments mean. Each does one thing, without `unsafe`.
//! `docs/reference.md` lists the errors by SQLSTATE. What only plans and views call is in the
//! schema `snowflake_plan`: `undo.rs`, and here what views and `snowflake_partitions()` call. That
//! procedure is in PL/pgSQL (`sql/snowflake_id--VERSION.sql`), because it commits.
//!
//! Forms without a `layout` argument read the setting `snowflake_id.layout` and are STABLE. Forms
//! with one, and those that need none, are IMMUTABLE, so generated columns, indexes and partition
//! bounds can use them. All are STRICT, and PARALLEL SAFE unless noted otherwise. SQL does not see
//! the doc comments below: the install script has a COMMENT ON for each function.

use std::ffi::{CStr, CString};

use pgrx::pg_sys::{Oid, TransactionId};
use pgrx::prelude::*;
use snowflake_core::fleet::segment::Block;
use snowflake_core::id::encoding::Encoding;
use snowflake_core::id::layout::{BUILT_IN, Field, Layout};
use snowflake_core::id::public::fingerprint;

use crate::convert::{convert, convert_back, convert_columns, convert_ids_back, convert_to_tag};
use crate::error::{Error, OrRaise};
use crate::ids::database_mark;
use crate::ids::dense;
use crate::ids::layouts;
use crate::ids::next;
use crate::ids::public;
use crate::ids::settled::{self, Blocker};
use crate::ids::stamp;
use crate::ids::stats;
use crate::partitions;
use crate::parts::PartsRow;
use crate::postgres::backend;
use crate::postgres::last_call::{Call, Unread};
use crate::postgres::public_keys;
use crate::postgres::text::{Text, showable};
use crate::settings::guc;
use crate::shared::slot::Counter;
use crate::shared::tags;
use crate::time::instant::{instant, instant_or_end, local_instant, start_of_day, timestamptz, unix_ms};
use crate::widen;

/// The end of the year 9999, in milliseconds since 1970.
const YEAR_9999_MS: i64 = 253_402_300_799_999;

/// Draws the next id. Like `nextval`, it is not undone by a rollback, and is refused where nothing
/// may be written. (SQL calls it through `entry.rs`, which handles the common case.)
#[pg_extern(
    volatile,
    strict,
    parallel_unsafe,
    sql = r#"
CREATE FUNCTION snowflake_next() RETURNS bigint
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_next_entry';
"#
)]
fn snowflake_next() -> i64 {
    next::one().or_raise()
}

/// Draws `count` ids in ascending order (with backup workers: ascending within each worker number).
/// One atomic step reserves a whole run.
#[pg_extern(volatile, strict, parallel_unsafe)]
fn snowflake_batch(count: i32) -> SetOfIterator<'static, i64> {
    SetOfIterator::new(next::batch(count).or_raise().map(OrRaise::or_raise))
}

/// Returns the last id that this session drew, like `lastval`.
#[pg_extern(volatile, strict, parallel_restricted)]
fn snowflake_last() -> i64 {
    next::last().or_raise()
}

/// Returns the settled id, up to which a reader misses nothing: every id of this server and
/// database at or below it belongs to a transaction that has ended for the statement's snapshot,
/// and none will be drawn.
///
/// STABLE, so that a condition with it can use an index. PARALLEL RESTRICTED, because processes
/// that share a statement must share the answer (`ids/settled.rs`).
#[pg_extern(stable, strict, parallel_restricted)]
fn snowflake_settled() -> i64 {
    settled::settled().or_raise()
}

/// Decodes an id. A field that the layout lacks is NULL.
#[pg_extern(
    stable,
    strict,
    parallel_safe,
    sql = r#"
CREATE FUNCTION snowflake_parse(id bigint, OUT created_at timestamptz, OUT datacenter_id integer, OUT worker_id integer,
    OUT sequence integer, OUT tick bigint)
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_parse(id: i64) -> PartsRow {
    PartsRow(layouts::current().or_raise().parts(id).or_raise())
}

/// Decodes an id of the given layout.
#[pg_extern(
    immutable,
    strict,
    parallel_safe,
    sql = r#"
CREATE FUNCTION snowflake_parse(id bigint, layout text, OUT created_at timestamptz, OUT datacenter_id integer,
    OUT worker_id integer, OUT sequence integer, OUT tick bigint)
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_parse_with(id: i64, layout: Text<'_>) -> PartsRow {
    PartsRow(layouts::of(&layout).or_raise().parts(id).or_raise())
}

/// Returns the time of an id: the start of its tick.
#[pg_extern(stable, strict, parallel_safe)]
fn snowflake_timestamp(id: i64) -> TimestampWithTimeZone {
    timestamptz(layouts::current().or_raise().created_at_ms(id).or_raise())
}

/// Returns the time of an id of the given layout.
#[pg_extern(name = "snowflake_timestamp", immutable, strict, parallel_safe)]
fn snowflake_timestamp_with(id: i64, layout: Text<'_>) -> TimestampWithTimeZone {
    timestamptz(layouts::of(&layout).or_raise().created_at_ms(id).or_raise())
}

/// Formats an id for people, always in UTC: `2026-11-20T09:28:48.220Z #17 @(3,5)`, the datacenter
/// and the worker last.
#[pg_extern(stable, strict, parallel_safe)]
fn snowflake_format(id: i64) -> String {
    layouts::current().or_raise().parts(id).or_raise().to_string()
}

/// Formats an id of the given layout for people.
#[pg_extern(name = "snowflake_format", immutable, strict, parallel_safe)]
fn snowflake_format_with(id: i64, layout: Text<'_>) -> String {
    layouts::of(&layout).or_raise().parts(id).or_raise().to_string()
}

/// Composes an id from its parts, for back-filling. The time is rounded down to a tick.
#[pg_extern(stable, strict, parallel_safe)]
fn snowflake_compose(created_at: TimestampWithTimeZone, worker_id: i32, sequence: i32) -> i64 {
    compose(&layouts::current().or_raise(), created_at, worker_id, sequence, None)
}

/// Composes an id with a datacenter. Pass 0 for a field that the layout lacks.
#[pg_extern(name = "snowflake_compose", stable, strict, parallel_safe)]
fn snowflake_compose_with_datacenter(
    created_at: TimestampWithTimeZone,
    worker_id: i32,
    sequence: i32,
    datacenter_id: i32,
) -> i64 {
    compose(&layouts::current().or_raise(), created_at, worker_id, sequence, Some(datacenter_id))
}

/// Composes an id of the given layout.
#[pg_extern(name = "snowflake_compose", immutable, strict, parallel_safe)]
fn snowflake_compose_with(
    created_at: TimestampWithTimeZone,
    worker_id: i32,
    sequence: i32,
    datacenter_id: i32,
    layout: Text<'_>,
) -> i64 {
    compose(&layouts::of(&layout).or_raise(), created_at, worker_id, sequence, Some(datacenter_id))
}

fn compose(
    layout: &Layout,
    created_at: TimestampWithTimeZone,
    worker_id: i32,
    sequence: i32,
    datacenter_id: Option<i32>,
) -> i64 {
    layout
        .compose(unix_ms(created_at), datacenter_id.map(i64::from), Some(worker_id.into()), sequence.into())
        .or_raise()
}

/// Encodes an id as a short text in `base32` (Crockford's, 13 symbols) or `base62` (11 symbols).
/// Texts sort like their ids under `COLLATE "C"`.
#[pg_extern(immutable, strict, parallel_safe)]
fn snowflake_encode(id: i64, encoding: Text<'_>) -> String {
    Encoding::parse(encoding.as_str()).or_raise().encode(id).or_raise()
}

/// Decodes such a text. `base32` accepts any case, I and L as 1, O as 0, and hyphens.
#[pg_extern(immutable, strict, parallel_safe)]
fn snowflake_decode(text: Text<'_>, encoding: Text<'_>) -> i64 {
    Encoding::parse(encoding.as_str()).or_raise().decode(text.characters()).or_raise()
}

/// Conceals an id for readers outside: the token under the key whose range it is in. Any bigint can
/// be concealed. STABLE, because keys come and go.
#[pg_extern(stable, strict, parallel_safe)]
fn snowflake_conceal(id: i64, prefix: Text<'_>) -> String {
    public::conceal(id, prefix.as_bytes()).or_raise().as_str().to_owned()
}

/// Returns the id of a token. For any other text, NULL, or 22023 if it is `required`. The text
/// never appears in an error.
#[pg_extern(
    stable,
    strict,
    parallel_safe,
    sql = r#"
CREATE FUNCTION snowflake_reveal(token text, prefix text, required boolean DEFAULT false) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_reveal(token: Text<'_>, prefix: Text<'_>, required: bool) -> Option<i64> {
    reveal(token.as_bytes(), &prefix, required)
}

/// Does the same for each element of an array.
#[pg_extern(
    name = "snowflake_reveal",
    stable,
    strict,
    parallel_safe,
    sql = r#"
CREATE FUNCTION snowflake_reveal(tokens text[], prefix text, required boolean DEFAULT false) RETURNS bigint[]
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_reveal_all(tokens: Array<'_, &[u8]>, prefix: Text<'_>, required: bool) -> Vec<Option<i64>> {
    // A prefix that is not one is an error, even without a token.
    reveal(b"", &prefix, false);
    tokens.iter().map(|token| token.and_then(|token| reveal(token, &prefix, required))).collect()
}

fn reveal(token: &[u8], prefix: &Text<'_>, required: bool) -> Option<i64> {
    let id = public::reveal(token, prefix.as_bytes()).or_raise();
    if required && id.is_none() {
        Err(Error::NoToken(prefix.as_str().to_owned())).or_raise()
    }
    id
}

/// Makes 32 random bytes, for `snowflake_new_public_key()`, which is in PL/pgSQL because it makes a
/// table. What follows is for that function, too.
#[pg_extern(name = "random_public_key", schema = "snowflake_plan", volatile, strict, parallel_safe)]
fn snowflake_random_public_key() -> Vec<u8> {
    backend::random_bytes::<32>().ok_or(Error::NoRandomBytes).or_raise().to_vec()
}

/// Names a key for people. Refuses one that is too short or too long.
#[pg_extern(name = "public_key_fingerprint", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_public_key_fingerprint(key: &[u8]) -> String {
    fingerprint(key).map_err(Error::from).or_raise()
}

/// Returns the first id that a new key may conceal.
#[pg_extern(name = "first_id_of_new_key", schema = "snowflake_plan", volatile, strict, parallel_safe)]
fn snowflake_first_id_of_new_key() -> i64 {
    public::first_id_of_new_key().or_raise()
}

/// Whether a key from this id on begins before all sessions are sure to see it.
#[pg_extern(name = "begins_too_soon", schema = "snowflake_plan", volatile, strict, parallel_safe)]
fn snowflake_begins_too_soon(first_id: i64) -> bool {
    public::begins_too_soon(first_id).or_raise()
}

/// Lets this session see a key that it has made. If the key must begin `in_time`, the transaction
/// cannot end too late.
#[pg_extern(name = "public_key_made", schema = "snowflake_plan", volatile, strict, parallel_unsafe)]
fn snowflake_public_key_made(first_id: i64, in_time: bool) {
    public::key_made(in_time.then_some(first_id));
}

/// Returns the table of keys, NULL before the first one. Refuses a table that the extension has not
/// made.
#[pg_extern(
    name = "public_keys_table",
    schema = "snowflake_plan",
    volatile,
    strict,
    parallel_safe,
    sql = r#"
CREATE FUNCTION snowflake_plan.public_keys_table() RETURNS regclass
VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_public_keys_table() -> Option<Oid> {
    public_keys::table().map_err(Error::from).or_raise()
}

/// Returns the smallest id whose time is the given one or later (rounded up to a tick).
/// `id >= snowflake_min(x) AND id < snowflake_min(y)` selects exactly the ids of a time span.
#[pg_extern(stable, strict, parallel_safe)]
fn snowflake_min(ts: TimestampWithTimeZone) -> i64 {
    layouts::current().or_raise().first_id_at(instant(ts)).or_raise()
}

/// Does the same for the given layout. Partition bounds can use it.
#[pg_extern(name = "snowflake_min", immutable, strict, parallel_safe)]
fn snowflake_min_with(ts: TimestampWithTimeZone, layout: Text<'_>) -> i64 {
    layouts::of(&layout).or_raise().first_id_at(instant(ts)).or_raise()
}

/// Returns the first id whose time is the given one or later.
///
/// With this function and the next three, the planner turns conditions on an id's time into
/// conditions on the id (`pushdown.rs`). They are leakproof, so an index also serves under
/// row-level security. They raise nothing: the result is NULL if there is no such id, and for a
/// text that is not a layout.
#[pg_extern(immutable, strict, parallel_safe)]
fn snowflake_from(ts: Unread<TimestampWithTimeZone>, layout: Unread<Text<'_>>, call: Call) -> Option<i64> {
    bound(call, layout, |layout| layout.first_id_from(instant_or_end(ts.read())))
}

/// Does the same for the start of a day in the session's time zone, as if compared with a `date`.
#[pg_extern(name = "snowflake_from", stable, strict, parallel_safe)]
fn snowflake_from_date(ts: Unread<Date>, layout: Unread<Text<'_>>, call: Call) -> Option<i64> {
    bound(call, layout, |layout| layout.first_id_from(start_of_day(ts.read())))
}

/// Does the same for a local time in the session's time zone, as if compared with a `timestamp`.
#[pg_extern(name = "snowflake_from", stable, strict, parallel_safe)]
fn snowflake_from_timestamp(ts: Unread<Timestamp>, layout: Unread<Text<'_>>, call: Call) -> Option<i64> {
    bound(call, layout, |layout| layout.first_id_from(local_instant(ts.read())))
}

/// Returns the first id whose time is after the given one.
#[pg_extern(immutable, strict, parallel_safe)]
fn snowflake_after(ts: Unread<TimestampWithTimeZone>, layout: Unread<Text<'_>>, call: Call) -> Option<i64> {
    bound(call, layout, |layout| layout.first_id_after(instant_or_end(ts.read())))
}

/// Does the same for the start of a day in the session's time zone, as if compared with a `date`.
#[pg_extern(name = "snowflake_after", stable, strict, parallel_safe)]
fn snowflake_after_date(ts: Unread<Date>, layout: Unread<Text<'_>>, call: Call) -> Option<i64> {
    bound(call, layout, |layout| layout.first_id_after(start_of_day(ts.read())))
}

/// Does the same for a local time in the session's time zone, as if compared with a `timestamp`.
#[pg_extern(name = "snowflake_after", stable, strict, parallel_safe)]
fn snowflake_after_timestamp(ts: Unread<Timestamp>, layout: Unread<Text<'_>>, call: Call) -> Option<i64> {
    bound(call, layout, |layout| layout.first_id_after(local_instant(ts.read())))
}

/// Returns the last id whose time is before the given one, or -1 if there is none.
#[pg_extern(immutable, strict, parallel_safe)]
fn snowflake_before(ts: Unread<TimestampWithTimeZone>, layout: Unread<Text<'_>>, call: Call) -> Option<i64> {
    bound(call, layout, |layout| Some(layout.last_id_before(instant_or_end(ts.read()))))
}

/// Does the same for the start of a day in the session's time zone, as if compared with a `date`.
#[pg_extern(name = "snowflake_before", stable, strict, parallel_safe)]
fn snowflake_before_date(ts: Unread<Date>, layout: Unread<Text<'_>>, call: Call) -> Option<i64> {
    bound(call, layout, |layout| Some(layout.last_id_before(start_of_day(ts.read()))))
}

/// Does the same for a local time in the session's time zone, as if compared with a `timestamp`.
#[pg_extern(name = "snowflake_before", stable, strict, parallel_safe)]
fn snowflake_before_timestamp(ts: Unread<Timestamp>, layout: Unread<Text<'_>>, call: Call) -> Option<i64> {
    bound(call, layout, |layout| Some(layout.last_id_before(local_instant(ts.read()))))
}

/// Returns the last id whose time is the given one or before, or -1 if there is none.
#[pg_extern(immutable, strict, parallel_safe)]
fn snowflake_until(ts: Unread<TimestampWithTimeZone>, layout: Unread<Text<'_>>, call: Call) -> Option<i64> {
    bound(call, layout, |layout| Some(layout.last_id_until(instant_or_end(ts.read()))))
}

/// Does the same for the start of a day in the session's time zone, as if compared with a `date`.
#[pg_extern(name = "snowflake_until", stable, strict, parallel_safe)]
fn snowflake_until_date(ts: Unread<Date>, layout: Unread<Text<'_>>, call: Call) -> Option<i64> {
    bound(call, layout, |layout| Some(layout.last_id_until(start_of_day(ts.read()))))
}

/// Does the same for a local time in the session's time zone, as if compared with a `timestamp`.
#[pg_extern(name = "snowflake_until", stable, strict, parallel_safe)]
fn snowflake_until_timestamp(ts: Unread<Timestamp>, layout: Unread<Text<'_>>, call: Call) -> Option<i64> {
    bound(call, layout, |layout| Some(layout.last_id_until(local_instant(ts.read()))))
}

fn bound(call: Call, layout: Unread<Text<'_>>, id: impl FnOnce(Layout) -> Option<i64>) -> Option<i64> {
    call.or_last(|| layouts::of(&layout.read()).ok().and_then(id))
}

/// Stops this database from drawing any id at or below `id`: after an import, or on a logical
/// replica that takes over. It raises the marks to the end of the id's tick, and never lowers them.
/// (Revoked from PUBLIC.)
#[pg_extern(volatile, strict, parallel_unsafe)]
fn snowflake_advance(id: i64) {
    next::advance(id, false).or_raise();
}

/// Does the same; with `force`, however far ahead of the clock the id is. (Not a DEFAULT of the
/// form above, because a call with one argument would then match both.)
#[pg_extern(name = "snowflake_advance", volatile, strict, parallel_unsafe)]
fn snowflake_advance_with(id: i64, force: bool) {
    next::advance(id, force).or_raise();
}

/// Accepts the running layout for this database, if its ids were drawn with another one. (Revoked
/// from PUBLIC.)
#[pg_extern(volatile, strict, parallel_unsafe)]
fn snowflake_accept_layout() {
    next::accept_layout().or_raise();
}

/// Lets the fleet that leases this server's number draw ids in this database, if another fleet has
/// before. (Revoked from PUBLIC.)
#[pg_extern(volatile, strict, parallel_unsafe)]
fn snowflake_accept_fleet() {
    next::accept_fleet().or_raise();
}

/// Forgets what this database has drawn, for a server that got a new number because its clock had
/// been far ahead. (Revoked from PUBLIC.)
#[pg_extern(volatile, strict, parallel_unsafe)]
fn snowflake_reset_mark() {
    next::reset_mark().or_raise();
}

/// Turns a serial, identity or bigint column into a snowflake column. It drops the old default or
/// identity, and the column's own sequence unless something else uses it, and makes
/// `snowflake_next()` the default. (Revoked from PUBLIC.)
///
/// Returns the statements that it ran. With `dry_run`, returns those that it would run, including
/// those that drop and recreate what depends on a column to widen. The default's function has no
/// schema in them where the search_path finds it. With `rewrite`, widens smallint and integer
/// columns, and the foreign key columns that refer to them.
#[pg_extern(
    volatile,
    strict,
    parallel_unsafe,
    sql = r#"
CREATE FUNCTION snowflake_convert(relation regclass, attribute name, rewrite boolean DEFAULT false,
    dry_run boolean DEFAULT false) RETURNS SETOF text
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_convert(relation: Oid, attribute: &CStr, rewrite: bool, dry_run: bool) -> SetOfIterator<'static, Vec<u8>> {
    SetOfIterator::new(convert(relation, attribute, rewrite, dry_run).or_raise())
}

/// Does the same for columns of any tables, named `schema.table.column` or `table.column`, in one
/// plan. Each table is rewritten at most once, and all locks are taken at the same moment. A column
/// that is named twice counts once. (Revoked from PUBLIC.)
#[pg_extern(
    volatile,
    strict,
    parallel_unsafe,
    sql = r#"
CREATE FUNCTION snowflake_convert_columns(columns text[], rewrite boolean DEFAULT false, dry_run boolean DEFAULT false)
    RETURNS SETOF text
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_convert_columns(
    columns: Array<'_, &[u8]>,
    rewrite: bool,
    dry_run: bool,
) -> SetOfIterator<'static, Vec<u8>> {
    SetOfIterator::new(convert_columns(columns.iter(), rewrite, dry_run).or_raise())
}

/// Turns a column whose default is `snowflake_next()` into an identity, which counts on above all
/// stored values and all ids that this server has drawn. Partitions and children that do not
/// inherit the identity draw from its sequence. (Revoked from PUBLIC.)
#[pg_extern(
    volatile,
    strict,
    parallel_unsafe,
    sql = r#"
CREATE FUNCTION snowflake_convert_back(relation regclass, attribute name, dry_run boolean DEFAULT false)
    RETURNS SETOF text
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_convert_back(relation: Oid, attribute: &CStr, dry_run: bool) -> SetOfIterator<'static, Vec<u8>> {
    SetOfIterator::new(convert_ids_back(relation, attribute, dry_run).or_raise())
}

/// Turns a serial, identity or integer column into one that draws from a tag, which goes on where
/// the column stands: above all stored values, and all that its sequences may have given. Apart
/// from that, it does what `snowflake_convert` does. It never widens. (Revoked from PUBLIC.)
///
/// A function of its own, because a form of `snowflake_convert` with a tag would change what calls
/// mean: the untyped `'true'` in `snowflake_convert('t', 'id', 'true')` would name a tag, and
/// `GRANT EXECUTE ON FUNCTION snowflake_convert` would not be unique.
#[pg_extern(
    volatile,
    strict,
    parallel_unsafe,
    sql = r#"
CREATE FUNCTION snowflake_segment_convert(relation regclass, attribute name, tag text, dry_run boolean DEFAULT false)
    RETURNS SETOF text
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_segment_convert(
    relation: Oid,
    attribute: &CStr,
    tag: &[u8],
    dry_run: bool,
) -> SetOfIterator<'static, Vec<u8>> {
    dense::check_length(tag).or_raise();
    let tag = CString::new(tag).expect("a text holds no NUL");
    SetOfIterator::new(convert_to_tag(relation, attribute, &tag, dry_run).or_raise())
}

/// Turns a column that draws from a tag into an identity, which goes on above all stored values and
/// all that the registry has handed out. Other servers must not draw from the tag any more. A
/// separate function, because a NULL for the tag is more often a mistake than a wish. (Revoked from
/// PUBLIC.)
#[pg_extern(
    volatile,
    strict,
    parallel_unsafe,
    sql = r#"
CREATE FUNCTION snowflake_segment_convert_back(relation regclass, attribute name, dry_run boolean DEFAULT false)
    RETURNS SETOF text
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_segment_convert_back(relation: Oid, attribute: &CStr, dry_run: bool) -> SetOfIterator<'static, Vec<u8>> {
    SetOfIterator::new(convert_back(relation, attribute, dry_run).or_raise())
}

/// Returns the statements that make a column bigint while sessions use its table, with all columns
/// that refer to it, in order and phase by phase. Changes nothing itself. With `convert`, the last
/// statement makes the column a snowflake column.
#[pg_extern(
    volatile,
    strict,
    parallel_unsafe,
    sql = r#"
CREATE FUNCTION snowflake_widen(relation regclass, attribute name, convert boolean DEFAULT false)
    RETURNS TABLE (phase text, step text, statement text, locks text)
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
#[allow(clippy::type_complexity, reason = "pgrx reads the columns from the type")]
fn snowflake_widen(
    relation: Oid,
    attribute: &CStr,
    convert: bool,
) -> TableIterator<
    'static,
    (
        name!(phase, Option<Vec<u8>>),
        name!(step, Option<Vec<u8>>),
        name!(statement, Option<Vec<u8>>),
        name!(locks, Option<Vec<u8>>),
    ),
> {
    TableIterator::new(widen::widen(relation, attribute, convert).or_raise().into_iter().map(Into::into))
}

/// Returns the statements that undo what those of `snowflake_widen` have made, before the switch.
#[pg_extern(
    volatile,
    strict,
    parallel_unsafe,
    sql = r#"
CREATE FUNCTION snowflake_widen_back(relation regclass, attribute name)
    RETURNS TABLE (phase text, step text, statement text, locks text)
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
#[allow(clippy::type_complexity, reason = "pgrx reads the columns from the type")]
fn snowflake_widen_back(
    relation: Oid,
    attribute: &CStr,
) -> TableIterator<
    'static,
    (
        name!(phase, Option<Vec<u8>>),
        name!(step, Option<Vec<u8>>),
        name!(statement, Option<Vec<u8>>),
        name!(locks, Option<Vec<u8>>),
    ),
> {
    TableIterator::new(widen::widen_back(relation, attribute).or_raise().into_iter().map(Into::into))
}

/// Refuses the switch of `snowflake_widen` if it would lose what has changed since.
#[pg_extern(
    name = "widen_expect",
    schema = "snowflake_plan",
    volatile,
    strict,
    parallel_unsafe,
    sql = r#"
CREATE FUNCTION snowflake_plan.widen_expect(relation regclass, attribute name, fingerprint text) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_widen_expect(relation: Oid, attribute: &CStr, fingerprint: &[u8]) {
    widen::expect(relation, attribute, fingerprint).or_raise();
}

/// Locks relations of the caller's at one moment, for a step of `snowflake_widen`.
#[pg_extern(
    name = "lock_for_widen",
    schema = "snowflake_plan",
    volatile,
    strict,
    parallel_unsafe,
    sql = r#"
CREATE FUNCTION snowflake_plan.lock_for_widen(relations regclass[], exclusive boolean) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_lock_for_widen(relations: Array<'_, Oid>, exclusive: bool) {
    let relations: Vec<_> = relations.iter().flatten().collect();
    widen::lock(&relations, exclusive).or_raise();
}

/// Notes where the fill of `snowflake_widen` stands. For a table that the caller does not own, or
/// that is not widened, it notes nothing.
#[pg_extern(
    name = "widen_note",
    schema = "snowflake_plan",
    volatile,
    strict,
    parallel_unsafe,
    sql = r#"
CREATE FUNCTION snowflake_plan.widen_note(relation regclass, note text) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_widen_note(relation: Oid, note: &str) {
    widen::note(relation, note);
}

/// Refuses a call of `snowflake_partitions()` in a transaction block, before it changes anything.
#[pg_extern(name = "require_no_block", schema = "snowflake_plan", volatile, strict, parallel_unsafe)]
fn snowflake_require_no_block() {
    backend::require_no_block(c"snowflake_partitions()");
}

/// Locks all that the drop of a partition locks, at one moment, for `snowflake_partitions()`.
/// For a caller who does not own both, it locks nothing.
#[pg_extern(
    name = "lock_for_drop",
    schema = "snowflake_plan",
    volatile,
    strict,
    parallel_unsafe,
    sql = r#"
CREATE FUNCTION snowflake_plan.lock_for_drop(relation regclass, partition regclass) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_lock_for_drop(relation: Oid, partition: Oid) {
    partitions::lock_for_drop(relation, partition).or_raise();
}

/// Locks what a new partition locks besides its table, at one moment. For a caller who does not own
/// the table, it locks nothing.
#[pg_extern(
    name = "lock_for_new",
    schema = "snowflake_plan",
    volatile,
    strict,
    parallel_unsafe,
    sql = r#"
CREATE FUNCTION snowflake_plan.lock_for_new(relation regclass) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_lock_for_new(relation: Oid) {
    partitions::lock_for_new(relation).or_raise();
}

/// Returns what the server has counted since the last reset, its last id and its settings. Times
/// are in milliseconds. The view of the same name reads it, for `pg_monitor` only. On a standby all
/// counts are 0.
#[pg_extern(volatile, strict, parallel_restricted)]
#[allow(clippy::type_complexity, reason = "pgrx reads the columns from the type")]
fn snowflake_stat() -> TableIterator<
    'static,
    (
        name!(drawn, i64),
        name!(drawn_backup, i64),
        name!(borrowed, i64),
        name!(used_up_waits, i64),
        name!(used_up_wait_time, f64),
        name!(clock_waits, i64),
        name!(clock_wait_time, f64),
        name!(mark_waits, i64),
        name!(mark_wait_time, f64),
        name!(clock_steps_back, i64),
        name!(clock_steps_back_refused, i64),
        name!(clock_jumps_refused, i64),
        name!(mark_refused, i64),
        name!(layout_refused, i64),
        name!(number_refused, i64),
        name!(time_used_up_refused, i64),
        name!(databases_refused, i64),
        name!(marks_moved, i64),
        name!(mark_move_time, f64),
        name!(last_id, Option<i64>),
        name!(last_created_at, Option<TimestampWithTimeZone>),
        name!(ahead_ms, i64),
        name!(datacenter_id, Option<i32>),
        name!(worker_id, Option<i32>),
        name!(backup_worker_id, Option<i32>),
        name!(layout, String),
        name!(last_instant, TimestampWithTimeZone),
        name!(databases, i32),
        name!(max_databases, i32),
        name!(stats_reset, TimestampWithTimeZone),
    ),
> {
    let server = stats::ServerFigures::read().or_raise();
    let stats::ServerFigures { layout, layout_text, numbers, .. } = server;
    TableIterator::once((
        server.count(Counter::Drawn),
        server.count(Counter::DrawnBackup),
        server.count(Counter::Borrowed),
        server.count(Counter::UsedUpWaits),
        server.time_ms(Counter::UsedUpWaitMicros),
        server.count(Counter::ClockWaits),
        server.time_ms(Counter::ClockWaitMicros),
        server.count(Counter::MarkWaits),
        server.time_ms(Counter::MarkWaitMicros),
        server.count(Counter::ClockStepsBack),
        server.count(Counter::ClockStepsBackRefused),
        server.count(Counter::ClockJumpsRefused),
        server.count(Counter::MarkRefused),
        server.count(Counter::LayoutRefused),
        server.count(Counter::NumberRefused),
        server.count(Counter::TimeUsedUpRefused),
        server.count(Counter::DatabasesRefused),
        server.count(Counter::MarksMoved),
        server.time_ms(Counter::MoveMicros),
        server.last.map(|(id, _)| id),
        server.last.map(|(_, created_at_ms)| timestamptz(created_at_ms)),
        server.ahead_ms,
        numbers.datacenter,
        numbers.worker,
        numbers.backup_worker,
        layout_text.to_owned(),
        timestamptz(layout.last_instant_ms()),
        database_mark::places_taken() as i32,
        guc::max_databases() as i32,
        timestamptz(server.reset_ms),
    ))
}

/// Returns the open transactions that hold the settled id of this database back: the process of a
/// session's, the xid of a prepared one, and the first id of each. The view `snowflake_unsettled`
/// reads it.
#[pg_extern(name = "unsettled", schema = "snowflake_plan", volatile, strict, parallel_restricted)]
#[allow(clippy::type_complexity, reason = "pgrx reads the columns from the type")]
fn snowflake_unsettled()
-> TableIterator<'static, (name!(pid, Option<i32>), name!(transaction, Option<TransactionId>), name!(first_id, i64))> {
    let holders: Vec<_> = settled::unsettled().or_raise().collect();
    TableIterator::new(holders.into_iter().map(|(holder, first_id)| match holder {
        Blocker::Session(pid) => (Some(pid), None, first_id),
        Blocker::Prepared(xid) => (None, Some(xid), first_id),
    }))
}

/// Returns how far the settled id is behind the clock, in milliseconds, because a transaction holds
/// it back: the most of the databases in which it was asked for; 0 if there is none. The view
/// `snowflake_stat` reads it, for `pg_monitor` only.
#[pg_extern(name = "settled_lag", schema = "snowflake_plan", volatile, strict, parallel_restricted)]
fn snowflake_settled_lag() -> i64 {
    settled::lag_ms().or_raise()
}

/// Returns where the server's number comes from, and what is known of its lease: one row, on
/// standbys too. Times are in milliseconds. The view `snowflake_lease` reads it, for `pg_monitor`
/// only.
#[pg_extern(name = "lease", schema = "snowflake_plan", volatile, strict, parallel_restricted)]
#[allow(clippy::type_complexity, reason = "pgrx reads the columns from the type")]
fn snowflake_lease() -> TableIterator<
    'static,
    (
        name!(state, String),
        name!(worker_id, Option<i32>),
        name!(backup_worker_id, Option<i32>),
        name!(datacenter_id, Option<i32>),
        name!(lease_from, Option<TimestampWithTimeZone>),
        name!(lease_until, Option<TimestampWithTimeZone>),
        name!(next_worker_id, Option<i64>),
        name!(next_from, Option<TimestampWithTimeZone>),
        name!(gap_from, Option<TimestampWithTimeZone>),
        name!(gap_until, Option<TimestampWithTimeZone>),
        name!(registry, Option<String>),
        name!(incarnation, Option<String>),
        name!(fleet, Option<pgrx::Uuid>),
        name!(numbers, Option<i64>),
        name!(free_numbers, Option<i64>),
        name!(last_renewal, Option<TimestampWithTimeZone>),
        name!(clock_offset_ms, Option<i64>),
        name!(renewals, i64),
        name!(failures, i64),
        name!(last_error, Option<String>),
        name!(last_error_time, Option<TimestampWithTimeZone>),
        name!(failing_since, Option<TimestampWithTimeZone>),
        name!(pid, Option<i32>),
        name!(waits, i64),
        name!(wait_time, f64),
        name!(refused, i64),
        name!(fleet_refused, i64),
    ),
> {
    let server = stats::ServerFigures::read().or_raise();
    let stats::OfLease { state, status, registry } = stats::OfLease::read().or_raise();
    // Whatever a registry's record says: the view subtracts instants.
    let instant = |ms: Option<i64>| ms.map(|ms| timestamptz(ms.clamp(0, YEAR_9999_MS)));
    TableIterator::once((
        state.to_owned(),
        server.numbers.worker,
        server.numbers.backup_worker,
        server.numbers.datacenter,
        instant(status.held.map(|held| held.from_ms)),
        instant(status.held.map(|held| held.until_ms)),
        status.next.map(|next| next.worker),
        instant(status.next.map(|next| next.from_ms)),
        instant(status.gap.map(|(from_ms, _)| from_ms)),
        instant(status.gap.map(|(_, until_ms)| until_ms)),
        registry,
        status.incarnation.map(|incarnation| format!("{}/{}", incarnation.store, incarnation.timeline)),
        status.fleet.map(|uuid| pgrx::Uuid::from_bytes(uuid.to_be_bytes())),
        status.numbers.map(|(all, _)| all),
        status.numbers.map(|(_, free)| free),
        instant(status.renewed_ms),
        status.offset_ms,
        status.renewals,
        status.failures,
        status.failing.map(|failing| failing.whole.text()),
        instant(status.failed_ms),
        instant(status.failing.map(|failing| failing.since_ms)),
        Some(status.pid).filter(|pid| *pid != 0),
        server.count(Counter::LeaseWaits),
        server.time_ms(Counter::LeaseWaitMicros),
        server.count(Counter::LeaseRefused),
        server.count(Counter::FleetRefused),
    ))
}

/// Draws the next value of a tag: dense, unique across the fleet, ascending on this server. Like
/// `nextval`, it is not undone by a rollback, and is refused where nothing may be written. (SQL
/// calls it through `entry.rs`, which handles the common case.)
#[pg_extern(
    volatile,
    strict,
    parallel_unsafe,
    sql = r#"
CREATE FUNCTION snowflake_segment_next(tag text) RETURNS bigint
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_segment_next_entry';
"#
)]
fn snowflake_segment_next(tag: Text<'_>) -> i64 {
    dense::one(tag.as_bytes()).or_raise()
}

/// Draws `count` values of a tag in ascending order. One atomic step takes all that a block has.
#[pg_extern(volatile, strict, parallel_unsafe)]
fn snowflake_segment_batch(tag: Text<'_>, count: i32) -> SetOfIterator<'static, i64> {
    SetOfIterator::new(dense::batch(tag.as_bytes(), count).or_raise().map(OrRaise::or_raise))
}

/// Returns the tags that this server's sessions draw from, and what is left of their blocks. Times
/// are in milliseconds. The view `snowflake_segment_stat` reads it, for `pg_monitor` only.
#[pg_extern(name = "segment_stat", schema = "snowflake_plan", volatile, strict, parallel_restricted)]
#[allow(clippy::type_complexity, reason = "pgrx reads the columns from the type")]
fn snowflake_segment_stat() -> TableIterator<
    'static,
    (
        name!(tag, String),
        name!(state, String),
        name!(current_from, Option<i64>),
        name!(current_left, i64),
        name!(next_from, Option<i64>),
        name!(next_left, i64),
        name!(step, Option<i64>),
        name!(blocks, i64),
        name!(last_block_lasted, Option<f64>),
        name!(waits, i64),
        name!(wait_time, f64),
        name!(refused, i64),
        name!(last_error, Option<String>),
        name!(failing_since, Option<TimestampWithTimeZone>),
    ),
> {
    let (rows, failing) = stats::tags().or_raise();
    TableIterator::new(rows.into_iter().map(move |tags::TagRow { tag, state, rest, counts }| {
        let left = |block: Option<Block>| block.map_or(0, |block| block.count.into());
        (
            showable(tag.as_str()),
            stats::name_of(state).to_owned(),
            rest.current.map(|block| block.first),
            left(rest.current),
            rest.next.map(|block| block.first),
            left(rest.next),
            (counts.blocks > 0).then_some(counts.step.into()),
            counts.blocks as i64,
            counts.lasted_ms.map(|ms| ms as f64),
            counts.waits as i64,
            counts.wait_micros as f64 / 1000.0,
            counts.refused as i64,
            failing.map(|failing| failing.whole.text()),
            failing.map(|failing| timestamptz(failing.since_ms)),
        )
    }))
}

/// Returns the sessions that have drawn, or waited to, since each began. The view of the same name
/// reads it, for `pg_monitor` only.
#[pg_extern(volatile, strict, parallel_restricted)]
fn snowflake_stat_backend()
-> TableIterator<'static, (name!(pid, i32), name!(drawn, i64), name!(waits, i64), name!(last_id, Option<i64>))> {
    let sessions = stats::backends().or_raise();
    TableIterator::new(
        sessions.map(|session| (session.pid, session.drawn as i64, session.waits as i64, session.last_id)),
    )
}

/// Resets the counts of `snowflake_stat`, but not its last id or the counts of sessions; and those
/// of draws from tags that waited or were refused. (Revoked
/// from PUBLIC.)
#[pg_extern(volatile, strict, parallel_unsafe)]
fn snowflake_stat_reset() {
    stats::reset().or_raise();
}

/// Returns one row for each built-in layout, and `current` for the setting's. The view of the same
/// name reads it.
#[pg_extern(stable, strict, parallel_safe)]
#[allow(clippy::type_complexity, reason = "pgrx reads the columns from the type")]
fn snowflake_layouts() -> TableIterator<
    'static,
    (
        name!(name, String),
        name!(specification, String),
        name!(unit, String),
        name!(epoch, TimestampWithTimeZone),
        name!(first_instant, TimestampWithTimeZone),
        name!(last_instant, TimestampWithTimeZone),
        name!(ids_per_second, i64),
        name!(min_worker_id, Option<i32>),
        name!(max_worker_id, Option<i32>),
        name!(below_2_53, bool),
    ),
> {
    let built_in = BUILT_IN.iter().map(|(name, line)| {
        let layout = Layout::parse(line).or_raise();
        (*name, layout, layout.max_of(Field::Worker).map(|max| max as i32))
    });
    let current = layouts::configured().or_raise();
    let current = [("current", current, stamp::max_worker_id(&current))];
    TableIterator::new(built_in.chain(current).map(|(name, layout, max_worker_id)| {
        (
            name.to_owned(),
            layout.to_string(),
            layout.unit().name().to_owned(),
            timestamptz(layout.epoch_ms()),
            timestamptz(layout.epoch_ms()),
            timestamptz(layout.last_instant_ms()),
            layout.ids_per_second() as i64,
            max_worker_id.map(|_| 0),
            max_worker_id,
            layout.max_id() < 1 << 53,
        )
    }))
}

/// Returns the fields of the setting's layout, from the high bits to the low.
#[pg_extern(stable, strict, parallel_safe)]
fn snowflake_layout_fields() -> TableIterator<
    'static,
    (name!(field, String), name!(bits, i32), name!(shift, i32), name!(minimum, i64), name!(maximum, i64)),
> {
    TableIterator::new(fields(&layouts::configured().or_raise()))
}

/// Returns the fields of a layout, from the high bits to the low.
#[pg_extern(name = "snowflake_layout_fields", immutable, strict, parallel_safe)]
fn snowflake_layout_fields_with(
    layout: Text<'_>,
) -> TableIterator<
    'static,
    (name!(field, String), name!(bits, i32), name!(shift, i32), name!(minimum, i64), name!(maximum, i64)),
> {
    TableIterator::new(fields(&layouts::of(&layout).or_raise()))
}

/// Rows of `snowflake_layout_fields`. Widths are at most 62 bits, so all numbers fit.
fn fields(layout: &Layout) -> impl Iterator<Item = (String, i32, i32, i64, i64)> + use<> {
    let fields: Vec<_> = layout.fields().collect();
    fields
        .into_iter()
        .map(|field| (field.field.name().to_owned(), field.bits as i32, field.shift as i32, 0, field.max as i64))
}
