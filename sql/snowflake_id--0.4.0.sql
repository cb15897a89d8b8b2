-- Installs the extension: CREATE EXTENSION runs this file. First the functions, in the order of
-- src/functions.rs, which says what each does; then what is in PL/pgSQL, sequences, views, grants,
-- comments.
--
-- src/functions.rs declares each function, too. "make lint" compares what this file creates with
-- what cargo-pgrx generates from there, object by object (tools/install-script).
--
-- All functions in C are STRICT. Those with a layout argument are IMMUTABLE, so indexes, generated
-- columns and partition bounds can use them. Those that read the setting snowflake_id.layout are
-- STABLE.

-- A schema for what only plans and views call: in nobody's search_path, and \df does not show it.
-- If there is one of that name, another role may own it, and could replace what is in it.

DO $$
BEGIN
    IF pg_catalog.to_regnamespace('snowflake_plan') IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'duplicate_schema',
            MESSAGE = 'schema "snowflake_plan" already exists',
            DETAIL = 'The extension "snowflake_id" creates a schema of this name, for functions that only plans and views call.',
            HINT = 'Rename the other schema, or drop it if you do not need it. Then repeat the command.';
    END IF;
END
$$;
CREATE SCHEMA snowflake_plan;

-- Drawing ids

CREATE FUNCTION snowflake_next() RETURNS bigint
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_next_entry';

CREATE FUNCTION snowflake_batch(count integer) RETURNS SETOF bigint
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_batch_wrapper';

CREATE FUNCTION snowflake_last() RETURNS bigint
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_last_wrapper';

-- Reading rows in the order of their ids

CREATE FUNCTION snowflake_settled() RETURNS bigint
STABLE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_settled_wrapper';

-- Reading ids

CREATE FUNCTION snowflake_parse(id bigint, OUT created_at timestamptz, OUT datacenter_id integer, OUT worker_id integer,
    OUT sequence integer, OUT tick bigint)
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_parse_wrapper';

CREATE FUNCTION snowflake_parse(id bigint, layout text, OUT created_at timestamptz, OUT datacenter_id integer,
    OUT worker_id integer, OUT sequence integer, OUT tick bigint)
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_parse_with_wrapper';

CREATE FUNCTION snowflake_timestamp(id bigint) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_timestamp_wrapper';

CREATE FUNCTION snowflake_timestamp(id bigint, layout text) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_timestamp_with_wrapper';

CREATE FUNCTION snowflake_format(id bigint) RETURNS text
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_format_wrapper';

CREATE FUNCTION snowflake_format(id bigint, layout text) RETURNS text
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_format_with_wrapper';

-- Composing ids from their parts

CREATE FUNCTION snowflake_compose(created_at timestamptz, worker_id integer, sequence integer) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_compose_wrapper';

CREATE FUNCTION snowflake_compose(created_at timestamptz, worker_id integer, sequence integer, datacenter_id integer)
    RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_compose_with_datacenter_wrapper';

CREATE FUNCTION snowflake_compose(created_at timestamptz, worker_id integer, sequence integer, datacenter_id integer,
    layout text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_compose_with_wrapper';

-- Ids as short texts

CREATE FUNCTION snowflake_encode(id bigint, encoding text) RETURNS text
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_encode_wrapper';

CREATE FUNCTION snowflake_decode(text text, encoding text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_decode_wrapper';

-- Public ids: ids as tokens for readers outside, and back

CREATE FUNCTION snowflake_conceal(id bigint, prefix text) RETURNS text
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_conceal_wrapper';

CREATE FUNCTION snowflake_reveal(token text, prefix text, required boolean DEFAULT false) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_reveal_wrapper';

CREATE FUNCTION snowflake_reveal(tokens text[], prefix text, required boolean DEFAULT false) RETURNS bigint[]
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_reveal_all_wrapper';

CREATE FUNCTION snowflake_plan.random_public_key() RETURNS bytea
VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_random_public_key_wrapper';

CREATE FUNCTION snowflake_plan.public_key_fingerprint(key bytea) RETURNS text
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_public_key_fingerprint_wrapper';

CREATE FUNCTION snowflake_plan.first_id_of_new_key() RETURNS bigint
VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_first_id_of_new_key_wrapper';

CREATE FUNCTION snowflake_plan.begins_too_soon(first_id bigint) RETURNS boolean
VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_begins_too_soon_wrapper';

CREATE FUNCTION snowflake_plan.public_key_made(first_id bigint, in_time boolean) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_public_key_made_wrapper';

CREATE FUNCTION snowflake_plan.public_keys_table() RETURNS regclass
VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_public_keys_table_wrapper';

-- Bounds of a time span

CREATE FUNCTION snowflake_min(ts timestamptz) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_min_wrapper';

CREATE FUNCTION snowflake_min(ts timestamptz, layout text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_min_with_wrapper';

-- The planner replaces conditions on an id's time by conditions on the id with the following
-- (src/time/pushdown.rs). What a date or a local time means depends on the session's time zone, so
-- those forms are STABLE.

CREATE FUNCTION snowflake_from(ts timestamptz, layout text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_from_wrapper';

CREATE FUNCTION snowflake_from(ts date, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_from_date_wrapper';

CREATE FUNCTION snowflake_from(ts timestamp, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_from_timestamp_wrapper';

CREATE FUNCTION snowflake_after(ts timestamptz, layout text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_after_wrapper';

CREATE FUNCTION snowflake_after(ts date, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_after_date_wrapper';

CREATE FUNCTION snowflake_after(ts timestamp, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_after_timestamp_wrapper';

CREATE FUNCTION snowflake_before(ts timestamptz, layout text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_before_wrapper';

CREATE FUNCTION snowflake_before(ts date, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_before_date_wrapper';

CREATE FUNCTION snowflake_before(ts timestamp, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_before_timestamp_wrapper';

CREATE FUNCTION snowflake_until(ts timestamptz, layout text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_until_wrapper';

CREATE FUNCTION snowflake_until(ts date, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_until_date_wrapper';

CREATE FUNCTION snowflake_until(ts timestamp, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_until_timestamp_wrapper';

-- Limits on a time, from what a condition compares

CREATE FUNCTION snowflake_plan.instant(ts timestamptz, after boolean) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_instant_wrapper';

CREATE FUNCTION snowflake_plan.instant(ts date, after boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_instant_of_day_wrapper';

CREATE FUNCTION snowflake_plan.instant(ts timestamp, after boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_instant_of_local_wrapper';

CREATE FUNCTION snowflake_plan.local(local timestamp, after boolean) RETURNS timestamp
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_local_wrapper';

CREATE FUNCTION snowflake_plan.local(day date, after boolean) RETURNS timestamp
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_local_of_day_wrapper';

CREATE FUNCTION snowflake_plan.local(year numeric, after boolean) RETURNS timestamp
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_local_of_year_wrapper';

CREATE FUNCTION snowflake_plan.local(year double precision, after boolean) RETURNS timestamp
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_local_of_float_year_wrapper';

CREATE FUNCTION snowflake_plan.instant(seconds numeric, after boolean) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_instant_of_seconds_wrapper';

CREATE FUNCTION snowflake_plan.instant(seconds double precision, upper boolean) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_instant_of_float_seconds_wrapper';

CREATE FUNCTION snowflake_plan.local(ts timestamptz, zone text, upper boolean) RETURNS timestamp
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_local_in_zone_wrapper';

CREATE FUNCTION snowflake_plan.instant(local timestamp, zone text, upper boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_instant_in_zone_wrapper';

CREATE FUNCTION snowflake_plan.instant(local timestamp, zone interval, upper boolean) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_instant_at_offset_wrapper';

CREATE FUNCTION snowflake_plan.ceil(local timestamp, unit text) RETURNS timestamp
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_ceil_wrapper';

CREATE FUNCTION snowflake_plan.ceil(ts timestamptz, stride interval, origin timestamptz, upper boolean) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_ceil_of_bin_wrapper';

CREATE FUNCTION snowflake_plan.ceil(local timestamp, stride interval, origin timestamp, upper boolean) RETURNS timestamp
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_ceil_of_local_bin_wrapper';

CREATE FUNCTION snowflake_plan.minus(ts timestamptz, shift interval, upper boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_minus_wrapper';

CREATE FUNCTION snowflake_plan.minus(ts timestamptz, shift interval, zone text, upper boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_minus_in_zone_wrapper';

CREATE FUNCTION snowflake_plan.plus(ts timestamptz, shift interval, upper boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_plus_wrapper';

CREATE FUNCTION snowflake_plan.ago(ts timestamptz, age interval, upper boolean) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_ago_wrapper';

CREATE FUNCTION snowflake_plan.aged(ts timestamptz, age interval, upper boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_aged_wrapper';

CREATE FUNCTION snowflake_plan.lower(during tstzrange) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_lower_wrapper';

CREATE FUNCTION snowflake_plan.upper(during tstzrange) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_upper_wrapper';

CREATE FUNCTION snowflake_plan.lower(times timestamptz[]) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_lower_of_array_wrapper';

CREATE FUNCTION snowflake_plan.upper(times timestamptz[]) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_upper_of_array_wrapper';

CREATE FUNCTION snowflake_plan.local(locals timestamp[], after boolean) RETURNS timestamp
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_local_of_array_wrapper';

CREATE FUNCTION snowflake_plan.local(days date[], after boolean) RETURNS timestamp
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_local_of_days_wrapper';

-- The time of an id beside its bounds, and inside a bound

CREATE FUNCTION snowflake_plan.time_of(id bigint, layout text) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_time_of_entry';

-- What keeps the planner from counting a kept condition twice

CREATE FUNCTION snowflake_plan.checked(condition boolean) RETURNS boolean
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_checked_wrapper';

CREATE FUNCTION snowflake_plan.checked_support(request internal) RETURNS internal
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_checked_support_wrapper';

-- Administering a database's mark

CREATE FUNCTION snowflake_advance(id bigint) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_advance_wrapper';

CREATE FUNCTION snowflake_advance(id bigint, force boolean) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_advance_with_wrapper';

CREATE FUNCTION snowflake_accept_layout() RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_accept_layout_wrapper';

CREATE FUNCTION snowflake_accept_fleet() RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_accept_fleet_wrapper';

CREATE FUNCTION snowflake_reset_mark() RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_reset_mark_wrapper';

-- Converting columns to snowflake columns

CREATE FUNCTION snowflake_convert(relation regclass, attribute name, rewrite boolean DEFAULT false,
    dry_run boolean DEFAULT false) RETURNS SETOF text
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_convert_wrapper';

CREATE FUNCTION snowflake_convert_columns(columns text[], rewrite boolean DEFAULT false, dry_run boolean DEFAULT false)
    RETURNS SETOF text
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_convert_columns_wrapper';

CREATE FUNCTION snowflake_convert_back(relation regclass, attribute name, dry_run boolean DEFAULT false)
    RETURNS SETOF text
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_convert_back_wrapper';

CREATE FUNCTION snowflake_segment_convert(relation regclass, attribute name, tag text, dry_run boolean DEFAULT false)
    RETURNS SETOF text
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_segment_convert_wrapper';

CREATE FUNCTION snowflake_segment_convert_back(relation regclass, attribute name, dry_run boolean DEFAULT false)
    RETURNS SETOF text
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_segment_convert_back_wrapper';

CREATE FUNCTION snowflake_widen(relation regclass, attribute name, convert boolean DEFAULT false)
    RETURNS TABLE (phase text, step text, statement text, locks text)
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_widen_wrapper';

CREATE FUNCTION snowflake_widen_back(relation regclass, attribute name)
    RETURNS TABLE (phase text, step text, statement text, locks text)
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_widen_back_wrapper';

CREATE FUNCTION snowflake_plan.widen_expect(relation regclass, attribute name, fingerprint text) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_widen_expect_wrapper';

CREATE FUNCTION snowflake_plan.lock_for_widen(relations regclass[], exclusive boolean) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_lock_for_widen_wrapper';

CREATE FUNCTION snowflake_plan.widen_note(relation regclass, note text) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_widen_note_wrapper';

-- Partitions by time

CREATE FUNCTION snowflake_plan.require_no_block() RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_require_no_block_wrapper';

CREATE FUNCTION snowflake_plan.lock_for_drop(relation regclass, partition regclass) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_lock_for_drop_wrapper';

CREATE FUNCTION snowflake_plan.lock_for_new(relation regclass) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_lock_for_new_wrapper';

-- Statistics

CREATE FUNCTION snowflake_stat() RETURNS TABLE (
    drawn bigint,
    drawn_backup bigint,
    borrowed bigint,
    used_up_waits bigint,
    used_up_wait_time double precision,
    clock_waits bigint,
    clock_wait_time double precision,
    mark_waits bigint,
    mark_wait_time double precision,
    clock_steps_back bigint,
    clock_steps_back_refused bigint,
    clock_jumps_refused bigint,
    mark_refused bigint,
    layout_refused bigint,
    number_refused bigint,
    time_used_up_refused bigint,
    databases_refused bigint,
    marks_moved bigint,
    mark_move_time double precision,
    last_id bigint,
    last_created_at timestamptz,
    ahead_ms bigint,
    datacenter_id integer,
    worker_id integer,
    backup_worker_id integer,
    layout text,
    last_instant timestamptz,
    databases integer,
    max_databases integer,
    stats_reset timestamptz
)
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_stat_wrapper';

CREATE FUNCTION snowflake_plan.unsettled() RETURNS TABLE (pid integer, transaction xid, first_id bigint)
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_unsettled_wrapper';

CREATE FUNCTION snowflake_plan.settled_lag() RETURNS bigint
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_settled_lag_wrapper';

CREATE FUNCTION snowflake_plan.lease() RETURNS TABLE (state text, worker_id integer, backup_worker_id integer, datacenter_id integer,
    lease_from timestamptz, lease_until timestamptz, next_worker_id bigint, next_from timestamptz,
    gap_from timestamptz, gap_until timestamptz, registry text, incarnation text,
    fleet uuid, numbers bigint, free_numbers bigint, last_renewal timestamptz, clock_offset_ms bigint, renewals bigint, failures bigint,
    last_error text, last_error_time timestamptz, failing_since timestamptz, pid integer, waits bigint, wait_time double precision, refused bigint, fleet_refused bigint)
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_lease_wrapper';

CREATE FUNCTION snowflake_segment_next(tag text) RETURNS bigint
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_segment_next_entry';

CREATE FUNCTION snowflake_segment_batch(tag text, count integer) RETURNS SETOF bigint
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_segment_batch_wrapper';

CREATE FUNCTION snowflake_plan.segment_stat() RETURNS TABLE (tag text, state text, current_from bigint, current_left bigint,
    next_from bigint, next_left bigint, step bigint, blocks bigint, last_block_lasted double precision, waits bigint,
    wait_time double precision, refused bigint, last_error text, failing_since timestamptz)
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_segment_stat_wrapper';

CREATE FUNCTION snowflake_stat_backend() RETURNS TABLE (pid integer, drawn bigint, waits bigint, last_id bigint)
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_stat_backend_wrapper';

CREATE FUNCTION snowflake_stat_reset() RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_stat_reset_wrapper';

-- Layouts

CREATE FUNCTION snowflake_layouts() RETURNS TABLE (
    name text,
    specification text,
    unit text,
    epoch timestamptz,
    first_instant timestamptz,
    last_instant timestamptz,
    ids_per_second bigint,
    min_worker_id integer,
    max_worker_id integer,
    below_2_53 boolean
)
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_layouts_wrapper';

CREATE FUNCTION snowflake_layout_fields()
    RETURNS TABLE (field text, bits integer, shift integer, minimum bigint, maximum bigint)
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_layout_fields_wrapper';

CREATE FUNCTION snowflake_layout_fields(layout text)
    RETURNS TABLE (field text, bits integer, shift integer, minimum bigint, maximum bigint)
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_layout_fields_with_wrapper';

-- What Rust cannot declare: sequences, views, grants, and a comment on every object. build.rs takes
-- all from this line on into the script that cargo-pgrx generates.

-- The mark: what this database stores about the ids drawn in it (src/core/draw/mark.rs). Every role
-- may read these sequences, because pg_dump carries them also for a database owner who is not a
-- superuser. No role may write them. The local ones are not carried: where they differ from the
-- others, a dump was restored.
CREATE SEQUENCE snowflake_mark MINVALUE 0 START 0;
CREATE SEQUENCE snowflake_mark_backup MINVALUE 0 START 0;
CREATE SEQUENCE snowflake_mark_local MINVALUE 0 START 0;
CREATE SEQUENCE snowflake_mark_backup_local MINVALUE 0 START 0;
CREATE SEQUENCE snowflake_mark_layout MINVALUE 0 START 0;
CREATE SEQUENCE snowflake_mark_identity MINVALUE 0 START 0;
CREATE SEQUENCE snowflake_mark_fleet MINVALUE 0 START 0;
GRANT SELECT ON SEQUENCE snowflake_mark, snowflake_mark_backup, snowflake_mark_local, snowflake_mark_backup_local,
    snowflake_mark_layout, snowflake_mark_identity, snowflake_mark_fleet TO PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('snowflake_mark', '');
SELECT pg_catalog.pg_extension_config_dump('snowflake_mark_backup', '');
SELECT pg_catalog.pg_extension_config_dump('snowflake_mark_layout', '');
SELECT pg_catalog.pg_extension_config_dump('snowflake_mark_identity', '');

-- Plans name the schema's functions, so every role may look them up.
GRANT USAGE ON SCHEMA snowflake_plan TO PUBLIC;

-- Partitions by time. The procedure commits after each partition, so it cannot have a search_path
-- of its own. The functions that it calls have one, and the statements that it runs qualify each
-- name.
--
-- CREATE TABLE ... PARTITION OF would lock out readers of the table. ATTACH PARTITION only locks
-- out other changes of its definition. No procedure can run DETACH ... CONCURRENTLY, so a detach
-- locks out all other sessions for a moment. A dry run returns statements for psql, which can run
-- that.

-- The steps that are left, in their order: the statement that locks the table, or the partition to
-- be locked with it, and what to run then. New partitions come first, because without them rows are
-- refused. Old ones come when no new one is missing. To be shown, all come at once, and detach
-- concurrently where that is possible. The bounds of all partitions are those of units, so a new
-- partition overlaps none.
CREATE FUNCTION snowflake_plan.partition_steps(relation regclass, unit text, ahead integer, keep interval, layout text,
    is_shown boolean, OUT lock text, OUT dropped regclass, OUT statements text[]) RETURNS SETOF record
STABLE PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    step CONSTANT interval := '{"hour": "1 hour", "day": "1 day", "week": "7 days", "month": "1 month", "quarter": "3 months",
        "year": "1 year"}'::jsonb ->> unit;
    suffix CONSTANT text := '{"hour": "_YYYY_MM_DD_HH24", "day": "_YYYY_MM_DD", "week": "_IYYY_\"w\"IW", "month": "_YYYY_MM",
        "quarter": "_YYYY_\"q\"Q", "year": "_YYYY"}'::jsonb ->> unit;
    clock CONSTANT text := 'YYYY-MM-DD HH24:MI:SS.MS"Z"';
    utc CONSTANT timestamp := now() AT TIME ZONE 'UTC';
    -- That of the setting, and that of the ids.
    configured CONSTANT text := (SELECT l.specification FROM @extschema@.snowflake_layouts() l WHERE l.name = 'current');
    ids CONSTANT text := coalesce(layout, configured);
    shown CONSTANT text := coalesce((SELECT min(l.name) FROM @extschema@.snowflake_layouts() l
        WHERE ids IN (l.name, l.specification) AND l.name <> 'current'), ids);
    last CONSTANT bigint := @extschema@.snowflake_until('infinity'::timestamptz, ids);
    parent record;
    part record;
    bounds int8range;
    covered int8multirange := '{}';
    old jsonb[] := '{}';
    name text;
    has_default boolean := false;
    start timestamp;
    present bigint;
    gap int8range;
BEGIN
    IF relation IS NULL OR unit IS NULL OR ahead IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = format('argument "%s" must not be NULL',
            CASE WHEN relation IS NULL THEN 'relation' WHEN unit IS NULL THEN 'unit' ELSE 'ahead' END);
    ELSIF step IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('unrecognized unit "%s"', unit),
            HINT = 'The unit must be hour, day, week, month, quarter or year.';
    ELSIF ahead NOT BETWEEN 0 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('ahead %s is outside the range 0..1000', ahead),
            HINT = 'The argument is the number of partitions after the present one.';
    ELSIF utc - keep > utc THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('keep "%s" is negative', keep),
            DETAIL = 'Partitions of the future would be dropped.',
            HINT = 'The argument must be zero or longer, such as ''1 year''. With NULL, no partition is dropped.';
    END IF;
    -- Refuses what is not a layout.
    PERFORM FROM @extschema@.snowflake_layout_fields(ids);

    -- Without a relation, pg_get_expr locks none.
    SELECT format('%I.%I', n.nspname, c.relname) AS name, n.oid AS namespace, n.nspname AS schema, c.relname, c.relkind,
           pg_has_role(c.relowner, 'USAGE') AS is_owner,
           CASE WHEN r.rolname <> current_user THEN format('%I', r.rolname) END AS owner,
           p.partstrat = 'r' AND p.partnatts = 1 AND CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END = 'int8'::regtype
               AS is_by_id,
           a.attname,
           CASE WHEN a.attidentity <> '' THEN 'The column is an identity column.'
                WHEN EXISTS (SELECT FROM pg_depend u LEFT JOIN pg_class s ON u.refclassid = 'pg_class'::regclass AND s.oid = u.refobjid
                             WHERE u.classid = 'pg_attrdef'::regclass AND u.objid = d.oid
                                   AND (s.relkind = 'S' OR u.refclassid = 'pg_proc'::regclass
                                        AND u.refobjid = '@extschema@.snowflake_segment_next(text)'::regprocedure))
                THEN format('The default is %s.', pg_get_expr(d.adbin, 0)) END AS counts,
           EXISTS (SELECT FROM pg_depend u
                   WHERE u.classid = 'pg_attrdef'::regclass AND u.objid = d.oid AND u.refclassid = 'pg_proc'::regclass
                         AND u.refobjid = '@extschema@.snowflake_next()'::regprocedure) AS draws_ids,
           (SELECT format(' USING %I', m.amname) FROM pg_am m WHERE m.oid = c.relam) AS method,
           (SELECT format(' TABLESPACE %I', s.spcname) FROM pg_tablespace s WHERE s.oid = c.reltablespace) AS tablespace
    INTO parent
    FROM pg_class c
         JOIN pg_namespace n ON n.oid = c.relnamespace
         JOIN pg_roles r ON r.oid = c.relowner
         LEFT JOIN pg_partitioned_table p ON p.partrelid = c.oid
         LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = p.partattrs[0]
         LEFT JOIN pg_type t ON t.oid = a.atttypid
         LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.oid = relation;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_table', MESSAGE = format('relation with OID %s does not exist', relation::oid);
    ELSIF parent.relkind <> 'p' THEN
        RAISE EXCEPTION USING ERRCODE = 'wrong_object_type', MESSAGE = format('%s is not a partitioned table', parent.name),
            HINT = 'Name a table that was created with PARTITION BY RANGE (id).';
    ELSIF NOT parent.is_owner THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format('must be owner of table %s', parent.name);
    ELSIF parent.is_by_id IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_table_definition',
            MESSAGE = format('table %s is not partitioned by range of one bigint column', parent.name),
            DETAIL = format('The partition key is %s.', pg_get_partkeydef(relation)),
            HINT = 'The bounds of the partitions must be ids: PARTITION BY RANGE (id).';
    ELSIF parent.counts IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_table_definition',
            MESSAGE = format('column "%s" of table %s does not hold ids that tell the time', parent.attname, parent.name),
            DETAIL = parent.counts, HINT = 'Convert the column with snowflake_convert() first.';
    ELSIF parent.draws_ids AND @extschema@.snowflake_from(now(), ids) IS DISTINCT FROM @extschema@.snowflake_from(now(), configured) THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('ids of table %s do not have layout "%s"', parent.name, layout),
            DETAIL = format('Column "%s" draws ids of layout "%s".', parent.attname,
                coalesce((SELECT min(l.name) FROM @extschema@.snowflake_layouts() l
                          WHERE l.specification = configured AND l.name <> 'current'), configured)),
            HINT = 'Leave out the argument "layout".';
    END IF;

    -- The partitions, in the order of their ids. Each must begin and end with a unit. Otherwise the
    -- unit or the layout may be another one, and what seems to be old may be new. Only below all
    -- ids, as for rows from before a conversion, a partition may begin anywhere.
    FOR part IN
        SELECT p.*, s.starts, e.ends
        FROM (SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS name, c.relkind, i.inhdetachpending AS is_pending, b.bound = 'DEFAULT' AS is_default,
                     substring(b.bound FROM 'FROM \(''?(-?\d+)''?\)')::bigint AS lower,
                     substring(b.bound FROM 'TO \(''?(-?\d+)''?\)')::bigint AS upper
              FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
                   CROSS JOIN pg_get_expr(c.relpartbound, 0) AS b (bound)
              WHERE i.inhparent = relation) AS p
             CROSS JOIN LATERAL (SELECT CASE WHEN p.lower BETWEEN 0 AND last THEN @extschema@.snowflake_timestamp(p.lower, ids) END) AS s (starts)
             CROSS JOIN LATERAL (SELECT CASE WHEN p.upper BETWEEN 0 AND last THEN @extschema@.snowflake_timestamp(p.upper, ids) END) AS e (ends)
        ORDER BY p.lower NULLS FIRST
    LOOP
        IF part.is_default THEN
            has_default := true;
            CONTINUE;
        ELSIF part.upper IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'invalid_table_definition', MESSAGE = format('partition %s has no end', part.name),
                DETAIL = 'No partition can be made above MAXVALUE.',
                HINT = format('Detach the partition, and attach it again up to the first id of a %s.', unit);
        ELSIF NOT coalesce(part.lower <= 0 OR part.lower = @extschema@.snowflake_from(date_trunc(unit, part.starts, 'UTC'), ids), part.lower IS NULL)
              OR part.upper IS DISTINCT FROM @extschema@.snowflake_from(date_trunc(unit, part.ends, 'UTC'), ids) THEN
            RAISE EXCEPTION USING ERRCODE = 'invalid_table_definition',
                MESSAGE = format('partition %s does not begin and end with a %s of UTC', part.name, unit),
                DETAIL = format('The partition is from id %s (%s) to id %s (%s), by layout "%s".', coalesce(part.lower::text, 'MINVALUE'),
                    coalesce(to_char(part.starts AT TIME ZONE 'UTC', clock), 'no time'), part.upper,
                    coalesce(to_char(part.ends AT TIME ZONE 'UTC', clock), 'no time'), shown),
                HINT = 'Name the unit and the layout that the partitions have, or detach this partition.';
        END IF;
        -- A detach that was interrupted has not ended, but no row gets there any more.
        IF NOT part.is_pending THEN
            covered := covered + int8multirange(int8range(part.lower, part.upper));
        END IF;
        IF part.ends <= (utc - keep) AT TIME ZONE 'UTC' THEN
            old := old || to_jsonb(part);
        END IF;
    END LOOP;

    lock := format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', parent.name);
    FOR start IN SELECT generate_series(date_trunc(unit, utc), date_trunc(unit, utc) + ahead * step, step) LOOP
        bounds := int8range(@extschema@.snowflake_from(start AT TIME ZONE 'UTC', ids),
                            @extschema@.snowflake_from((start + step) AT TIME ZONE 'UTC', ids));
        present := coalesce(present, lower(bounds));
        name := parent.relname || to_char(start, suffix);
        CONTINUE WHEN covered @> bounds AND NOT upper_inf(bounds);
        IF upper_inf(bounds) THEN
            RAISE EXCEPTION USING ERRCODE = 'datetime_field_overflow',
                MESSAGE = format('layout "%s" has no ids for the whole %s of partition %I', shown, unit, name),
                DETAIL = format('The last id is of %s.', to_char(@extschema@.snowflake_timestamp(last, ids) AT TIME ZONE 'UTC', clock)),
                HINT = 'Make fewer partitions ahead.';
        ELSIF octet_length(name) > current_setting('max_identifier_length')::integer THEN
            RAISE EXCEPTION USING ERRCODE = 'name_too_long',
                MESSAGE = format('name "%s" is longer than %s bytes', name, current_setting('max_identifier_length')),
                HINT = format('Give table %s a shorter name.', parent.name);
        END IF;
        -- By the snapshot that has shown the partitions, which to_regclass() would not use.
        IF EXISTS (SELECT FROM pg_class c WHERE c.relname = name AND c.relnamespace = parent.namespace) THEN
            RAISE EXCEPTION USING ERRCODE = 'duplicate_table', MESSAGE = format('relation %I.%I already exists', parent.schema, name),
                DETAIL = format('The relation is not the partition of table %s from id %s to id %s.', parent.name, lower(bounds), upper(bounds)),
                HINT = 'Attach the relation with these bounds, rename it, or drop it.';
        END IF;
        covered := covered + int8multirange(bounds);
        name := format('%I.%I', parent.schema, name);
        -- What a partition has of its table, except what it gets when it is attached.
        statements := ARRAY[
            concat(format('CREATE TABLE %s (LIKE %s INCLUDING COMPRESSION INCLUDING CONSTRAINTS INCLUDING DEFAULTS INCLUDING GENERATED '
                          'INCLUDING STORAGE)', name, parent.name), parent.method, parent.tablespace),
            'ALTER TABLE ' || name || ' OWNER TO ' || parent.owner,
            format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)', parent.name, name, lower(bounds), upper(bounds))];
        statements := array_remove(statements, NULL);
        lock := format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE; SELECT snowflake_plan.lock_for_new(%s::oid)', parent.name, relation::oid);
        RETURN NEXT;
        IF NOT is_shown THEN
            RETURN;
        END IF;
    END LOOP;

    FOR part IN SELECT p.* FROM unnest(old) o, jsonb_to_record(o) AS p (oid oid, name text, relkind text, upper bigint, is_pending boolean) LOOP
        -- If the clock or the layout is wrong, all partitions may seem old. Then there is a gap.
        SELECT g INTO gap FROM unnest(int8multirange(int8range(part.upper, present)) - covered) g LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'invalid_table_definition',
                MESSAGE = format('cannot drop partition %s because of a gap between it and the present', part.name),
                DETAIL = format('No partition of table %s has the ids from %s (%s) to %s (%s), by layout "%s".', parent.name,
                    lower(gap), to_char(@extschema@.snowflake_timestamp(lower(gap), ids) AT TIME ZONE 'UTC', clock),
                    upper(gap), to_char(@extschema@.snowflake_timestamp(upper(gap), ids) AT TIME ZONE 'UTC', clock), shown),
                HINT = 'If neither the layout nor the clock is wrong, make a partition for the gap, or drop what is older by hand.';
        END IF;
        -- FINALIZE waits for old snapshots, so no session may have to wait for it.
        dropped := CASE WHEN NOT part.is_pending THEN part.oid END;
        statements := ARRAY[
            concat(format('ALTER TABLE %s DETACH PARTITION %s', parent.name, part.name),
                   CASE WHEN part.is_pending THEN ' FINALIZE' WHEN is_shown AND NOT has_default THEN ' CONCURRENTLY' END),
            format('DROP %sTABLE %s', CASE part.relkind WHEN 'f' THEN 'FOREIGN ' END, part.name)];
        RETURN NEXT;
        IF NOT is_shown THEN
            RETURN;
        END IF;
    END LOOP;
END $$;

-- Takes the locks of the next step, and returns what to run: nothing if another session was faster,
-- NULL if no step is left.
CREATE FUNCTION snowflake_plan.partition_turn(relation regclass, unit text, ahead integer, keep interval, layout text) RETURNS text[]
VOLATILE PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    planned record;
    locked record;
BEGIN
    -- Otherwise what others have committed before the lock may stay unseen.
    IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN
        RAISE EXCEPTION USING ERRCODE = 'active_sql_transaction',
            MESSAGE = format('cannot change partitions in a transaction with isolation level "%s"', current_setting('transaction_isolation')),
            HINT = 'Set "default_transaction_isolation" to READ COMMITTED.';
    END IF;
    SELECT * INTO planned FROM snowflake_plan.partition_steps(relation, unit, ahead, keep, layout, false);
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF current_setting('lock_timeout') = '0' THEN
        PERFORM set_config('lock_timeout', '500ms', true);
    END IF;
    IF planned.dropped IS NULL THEN
        EXECUTE planned.lock;
    ELSE
        PERFORM snowflake_plan.lock_for_drop(relation, planned.dropped);
    END IF;
    SELECT * INTO locked FROM snowflake_plan.partition_steps(relation, unit, ahead, keep, layout, false);
    RETURN CASE WHEN locked IS NOT DISTINCT FROM planned THEN locked.statements ELSE '{}' END;
END $$;

CREATE PROCEDURE snowflake_partitions(relation regclass, unit text, ahead integer DEFAULT 3, keep interval DEFAULT NULL,
    layout text DEFAULT NULL, dry_run boolean DEFAULT false, INOUT statements text DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
    turn text[];
    statement text;
    blocked text;
BEGIN
    statements := NULL;
    IF dry_run THEN
        FOR turn IN SELECT steps.statements FROM snowflake_plan.partition_steps(relation, unit, ahead, keep, layout, true) steps LOOP
            statements := pg_catalog.concat_ws(E'\n', statements, pg_catalog.array_to_string(turn, E';\n') OPERATOR(pg_catalog.||) ';');
        END LOOP;
        RETURN;
    END IF;
    PERFORM snowflake_plan.require_no_block();
    LOOP
        COMMIT;
        BEGIN
            turn := snowflake_plan.partition_turn(relation, unit, ahead, keep, layout);
            EXIT WHEN turn IS NULL;
            FOREACH statement IN ARRAY turn LOOP
                EXECUTE statement;
                statements := pg_catalog.concat_ws(E'\n', statements, statement OPERATOR(pg_catalog.||) ';');
            END LOOP;
        EXCEPTION WHEN lock_not_available THEN
            GET STACKED DIAGNOSTICS blocked = PG_EXCEPTION_DETAIL;
            RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
                MESSAGE = pg_catalog.format('could not lock table %s within "lock_timeout"', relation),
                DETAIL = pg_catalog.concat_ws(' ', NULLIF(blocked, ''), 'What the call did before stays.'),
                HINT = 'Call the procedure again when no long transaction uses the table, or with a longer "lock_timeout".';
        WHEN check_violation THEN
            RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = SQLERRM,
                DETAIL = 'The default partition may have rows of the new one.',
                HINT = 'Detach the default partition, make the new one, and insert these rows into the table.';
        END;
    END LOOP;
END $$;

-- Widening a column while sessions use it (src/widen/mod.rs). The procedures commit, so they cannot
-- have a search_path of their own, and their statements qualify each name.

-- The trigger that keeps a wide column equal to the narrow one (src/widen/trigger.rs). Its
-- condition names both.
CREATE FUNCTION snowflake_plan.widen_keep() RETURNS trigger LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_widen_keep';

-- Whether a table has an object of a step, or its column is bigint by now.
CREATE FUNCTION snowflake_plan.widen_has(relation text, kind text, object text) RETURNS boolean
STABLE STRICT PARALLEL SAFE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE kind
        WHEN 'trigger' THEN EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(relation) AND tgname = object AND tgenabled = 'A')
        WHEN 'constraint' THEN EXISTS (SELECT FROM pg_constraint WHERE conrelid = to_regclass(relation) AND conname = object)
        WHEN 'column' THEN EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass(relation) AND attname = object AND NOT attisdropped)
        WHEN 'bigint' THEN EXISTS (SELECT FROM pg_attribute
                                   WHERE attrelid = to_regclass(relation) AND attname = object AND atttypid = 'bigint'::regtype AND NOT attisdropped)
        WHEN 'invalid' THEN EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass(relation) AND NOT indisvalid)
    END
$$;

-- Makes the trigger, as the caller, who owns the table, in place of one of another name.
CREATE FUNCTION snowflake_plan.widen_begin(relation regclass, narrow name, wide name, trigger name) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    former name;
BEGIN
    FOR former IN
        SELECT tgname FROM pg_trigger JOIN pg_attribute ON attrelid = tgrelid AND attname = wide
        WHERE tgrelid = relation AND tgfoid = 'snowflake_plan.widen_keep()'::regprocedure AND tgname <> trigger
              AND tgqual::text ~ format(':varattno %s ', attnum)
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', former, relation);
    END LOOP;
    EXECUTE format('CREATE OR REPLACE TRIGGER %I BEFORE INSERT OR UPDATE ON %s FOR EACH ROW WHEN (NEW.%I IS DISTINCT FROM NEW.%I) '
                   'EXECUTE FUNCTION snowflake_plan.widen_keep()', trigger, relation, wide, narrow);
    -- What a subscription writes has to be copied as well.
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', relation, trigger);
END $$;

-- Makes the actions of a new foreign key run after those of the one whose place it will take, which
-- change the narrow columns. PostgreSQL runs them in the order of their triggers' names. The new
-- ones would change the rest of a composite key first, and the others then find no row.
CREATE FUNCTION snowflake_plan.widen_follow(relation regclass, name name, former oid) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT format('ALTER TRIGGER %I ON %s RENAME TO %I', tgname, tgrelid::regclass, concat('RI_ConstraintTrigger_az', last.z, '_', t.oid))
        FROM pg_trigger t JOIN pg_constraint k ON k.oid = tgconstraint,
             (SELECT max(substring(tgname FROM '^RI_ConstraintTrigger_a(z*)_')) FROM pg_trigger WHERE tgconstraint = former) AS last (z)
        WHERE k.conrelid = relation AND k.conname = name AND starts_with(tgname::text, 'RI_ConstraintTrigger_a_')
    LOOP
        EXECUTE statement;
    END LOOP;
END $$;

-- Makes a foreign key of a partitioned table, as the caller, of that of a partition. PostgreSQL
-- joins those of the partitions to it, which are checked.
CREATE FUNCTION snowflake_plan.widen_join(relation regclass, name name, part regclass, part_name name) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    definition text := (SELECT regexp_replace(pg_get_constraintdef(oid), ' NOT VALID$', '') FROM pg_constraint WHERE conrelid = part AND conname = part_name);
    unchecked text := (SELECT min(format('"%s" of table %s', conname, conrelid::regclass)) FROM pg_partition_tree(relation) JOIN pg_constraint ON conrelid = relid
                       WHERE contype = 'f' AND conparentid = 0 AND pg_get_constraintdef(oid) = definition || ' NOT VALID');
BEGIN
    IF unchecked IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'object_in_use', MESSAGE = format('foreign key %s is not checked yet', unchecked),
            HINT = 'Run the statements of the phase "check" in their order.';
    END IF;
    EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I %s', relation, name, definition);
END $$;

-- Refuses the way back after the switch, and the clean up, while a foreign key is not checked.
CREATE FUNCTION snowflake_plan.widen_checked(relation regclass) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unchecked text := (
        SELECT min(format('"%s" of table %s', o ->> 1, o ->> 0))
        FROM pg_trigger JOIN pg_attribute w ON w.attrelid = tgrelid AND w.attnum::text = substring(tgqual::text FROM ':varattno ([0-9]+) '),
             jsonb_array_elements(col_description(tgrelid, w.attnum)::jsonb) AS o
        WHERE tgrelid = relation AND tgfoid = 'snowflake_plan.widen_keep()'::regprocedure AND w.atttypid <> 'bigint'::regtype
              AND CASE WHEN o ->> 2 IS NULL
                       THEN EXISTS (SELECT FROM pg_constraint WHERE conrelid = to_regclass(o ->> 0) AND conname = o ->> 1 AND NOT convalidated)
                       ELSE snowflake_plan.widen_has(o ->> 2, 'constraint', o ->> 3) AND NOT snowflake_plan.widen_has(o ->> 0, 'constraint', o ->> 1) END);
BEGIN
    IF unchecked IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'object_in_use', MESSAGE = format('foreign key %s is not checked yet', unchecked),
            HINT = 'Run the statements of the phase "check" first.';
    END IF;
END $$;

-- Refuses the way back after the switch while a value does not fit: the former column is NULL
-- there.
CREATE FUNCTION snowflake_plan.widen_fits(relation regclass) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
    former name;
    present name;
    misfit bigint;
BEGIN
    PERFORM snowflake_plan.widen_checked(relation);
    FOR former, present IN
        SELECT w.attname, n.attname
        FROM pg_trigger
             JOIN pg_attribute w ON w.attrelid = tgrelid AND w.attnum::text = substring(tgqual::text FROM ':varattno ([0-9]+) ')
             JOIN pg_attribute n ON n.attrelid = tgrelid AND n.attnum::text = substring(tgqual::text FROM '.*:varattno ([0-9]+) ')
        WHERE tgrelid = relation AND tgfoid = 'snowflake_plan.widen_keep()'::regprocedure AND w.atttypid <> 'bigint'::regtype
    LOOP
        EXECUTE format('SELECT %I FROM %s WHERE %I IS DISTINCT FROM %1$I LIMIT 1', present, relation, former) INTO misfit;
        IF misfit IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'numeric_value_out_of_range',
                MESSAGE = format('value %s of column "%s" of table %s does not fit into the former column', misfit, present, relation),
                HINT = 'Give its row, and all like it, a value that fits, or keep the new column.';
        END IF;
    END LOOP;
END $$;

-- Whether a trigger would fire for the fill's UPDATE, of the wide columns only, in a session of
-- that replication role.
CREATE FUNCTION snowflake_plan.widen_fires(trigger oid, role text) RETURNS boolean
STABLE STRICT PARALLEL SAFE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT tgisinternal AND tgtype & 16 <> 0 AND cardinality(tgattr::int2[]) = 0 AND tgfoid <> 'snowflake_plan.widen_keep()'::regprocedure
           AND tgenabled = ANY (CASE role WHEN 'replica' THEN '{A,R}' ELSE '{A,O}' END::"char"[])
    FROM pg_trigger WHERE oid = trigger
$$;

-- Where the fill of each table stands. It lies in the comment of the trigger that keeps the columns
-- equal: a table would be in each publication of all tables. It goes with the trigger.
CREATE VIEW snowflake_plan.widen_progress AS
    SELECT tgrelid AS relation, note[3]::bigint AS filenode, note[2]::bigint AS blocks, note[1]::bigint AS next_block,
        note[5]::bigint AS rows, to_timestamp(note[6]::bigint / 1000.0) AS started, to_timestamp(note[7]::bigint / 1000.0) AS updated,
        note[4]::bigint AS blocks_before
    FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_description d ON d.classoid = 'pg_trigger'::regclass AND d.objoid = t.oid,
        LATERAL regexp_match(d.description, '^(\d{1,10}) of (\d{1,10}) blocks of file (\d{1,10}), since block (\d{1,10}); (\d{1,18}) rows from (\d{1,14}) to (\d{1,14}) ms$') AS note
    WHERE tgfoid = 'snowflake_plan.widen_keep()'::regprocedure AND note IS NOT NULL;

CREATE VIEW snowflake_widen_progress AS
    SELECT p.relation::regclass AS relation, p.blocks, p.next_block AS blocks_done, p.rows, p.started, p.updated,
        round((p.rows / greatest(extract(epoch FROM p.updated - p.started), 0.001))::numeric, 1) AS rows_per_second,
        CASE WHEN p.next_block >= p.blocks THEN interval '0'
             WHEN p.next_block > p.blocks_before
             THEN date_trunc('second', (p.updated - p.started) * ((p.blocks - p.next_block)::float8 / (p.next_block - p.blocks_before))) END AS time_left
    FROM snowflake_plan.widen_progress p JOIN pg_catalog.pg_class c ON c.oid = p.relation
    WHERE pg_catalog.pg_has_role(c.relowner, 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE');
GRANT SELECT ON snowflake_widen_progress, snowflake_plan.widen_progress TO PUBLIC;

-- Notes where a fill stands.
CREATE FUNCTION snowflake_plan.widen_stands(relation regclass, next_block bigint, blocks bigint, since bigint, rows bigint, started timestamptz) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT snowflake_plan.widen_note(relation, format('%s of %s blocks of file %s, since block %s; %s rows from %s to %s ms', next_block, blocks,
        pg_relation_filenode(relation), since, rows, floor(extract(epoch FROM started) * 1000), floor(extract(epoch FROM clock_timestamp()) * 1000)))
$$;

-- Notes a batch up to a block.
CREATE FUNCTION snowflake_plan.widen_filled(relation regclass, upto bigint, filled bigint) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT snowflake_plan.widen_stands($1, upto, p.blocks, p.blocks_before, p.rows + filled, p.started)
    FROM snowflake_plan.widen_progress p WHERE p.relation = $1
$$;

-- Takes up the fill where it stopped. A table that has been written anew begins again, and so does
-- one whose fill has ended: a call then finds what is left, if anything is.
CREATE FUNCTION snowflake_plan.widen_take_up(relation regclass) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    size CONSTANT bigint := pg_relation_size(relation) / current_setting('block_size')::bigint;
    begins bigint;
BEGIN
    IF NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = relation), 'USAGE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format('must be owner of table %s', relation);
    END IF;
    SELECT p.next_block INTO begins FROM snowflake_plan.widen_progress p
    WHERE p.relation = widen_take_up.relation AND p.filenode = pg_relation_filenode(p.relation) AND p.next_block < p.blocks;
    PERFORM snowflake_plan.widen_stands(relation, coalesce(begins, 0), size, coalesce(begins, 0), 0, clock_timestamp());
END $$;

-- The next batch of the fill: its first block, the block after it, and the UPDATE; NULL if no block
-- is left, or no column is to be filled.
CREATE FUNCTION snowflake_plan.widen_turn(relation regclass, batch integer, OUT upto bigint, OUT statement text)
STABLE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    begins bigint;
    foreigners text;
    changes text;
    differs text;
BEGIN
    SELECT string_agg(pg_describe_object(classid, oid, 0), E'\n' ORDER BY classid, oid) INTO foreigners
    FROM (SELECT 'pg_trigger'::regclass AS classid, oid FROM pg_trigger
          WHERE tgrelid = relation AND snowflake_plan.widen_fires(oid, current_setting('session_replication_role'))
        UNION ALL
          SELECT 'pg_rewrite'::regclass, oid FROM pg_rewrite
          WHERE ev_class = relation AND ev_type = '2'
                AND ev_enabled = ANY (CASE current_setting('session_replication_role') WHEN 'replica' THEN '{A,R}' ELSE '{A,O}' END::"char"[])) AS fired;
    IF foreigners IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'triggered_action_exception',
            MESSAGE = format('UPDATE of table %s would fire what is not part of snowflake_widen()', relation), DETAIL = foreigners,
            HINT = 'Set session_replication_role to replica in this session, as a superuser can, or disable these meanwhile.';
    END IF;
    SELECT string_agg(format('%I = %I', w.attname, n.attname), ', ' ORDER BY w.attnum),
           string_agg(format('%1$I IS NULL AND %2$I IS NOT NULL OR %1$I IS NOT NULL AND %2$I IS NULL OR %1$I OPERATOR(pg_catalog.<>) %2$I', w.attname, n.attname),
                      ' OR ' ORDER BY w.attnum)
    INTO changes, differs
    FROM pg_trigger
         JOIN pg_attribute w ON w.attrelid = tgrelid AND w.attnum::text = substring(tgqual::text FROM ':varattno ([0-9]+) ')
         JOIN pg_attribute n ON n.attrelid = tgrelid AND n.attnum::text = substring(tgqual::text FROM '.*:varattno ([0-9]+) ')
    WHERE tgrelid = relation AND tgfoid = 'snowflake_plan.widen_keep()'::regprocedure AND w.atttypid = 'bigint'::regtype;
    SELECT p.blocks_done, least(p.blocks_done + batch, p.blocks) INTO begins, upto FROM @extschema@.snowflake_widen_progress p
    WHERE p.relation = widen_turn.relation AND p.blocks_done < p.blocks;
    IF begins IS NULL OR changes IS NULL THEN
        upto := NULL;
        RETURN;
    END IF;
    statement := format('UPDATE ONLY %s SET %s WHERE ctid OPERATOR(pg_catalog.>=) %L AND ctid OPERATOR(pg_catalog.<) %L AND (%s)',
                        (SELECT format('%I.%I', nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = relation),
                        changes, format('(%s,0)', begins), format('(%s,0)', upto), differs);
END $$;

-- Refuses the switch if an index of a table has not been built, or a constraint not been validated.
CREATE FUNCTION snowflake_plan.widen_require(relation regclass, indexes text[], constraints text[]) RETURNS void
STABLE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    missing text;
BEGIN
    SELECT string_agg(name, E'\n' ORDER BY name) INTO missing
    FROM (SELECT format('index %I', n) FROM unnest(indexes) AS n
          WHERE NOT EXISTS (SELECT FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = relation AND relname = n AND indisvalid)
        UNION ALL
          -- A session's search_path can put a function or an operator of another role in the place
          -- of PostgreSQL's. The number of the former index is in the name of the new one.
          SELECT format('index %I calls %s, unlike index %s: drop it, and build it with another search_path', n,
                        pg_describe_object(d.refclassid, d.refobjid, 0), split_part(n, '_', 3)::oid::regclass)
          FROM unnest(indexes) AS n JOIN pg_class x ON relname = n JOIN pg_index ON indexrelid = x.oid AND indrelid = relation
               JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = x.oid AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
          WHERE NOT EXISTS (SELECT FROM pg_depend o WHERE o.classid = d.classid AND o.objid = split_part(n, '_', 3)::oid AND o.refclassid = d.refclassid
                            AND split_part((pg_identify_object(o.refclassid, o.refobjid, 0)).identity, '(', 1)
                                = split_part((pg_identify_object(d.refclassid, d.refobjid, 0)).identity, '(', 1))
        UNION ALL
          SELECT format('constraint %I', n) FROM unnest(constraints) AS n
          WHERE NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = relation AND conname = n AND convalidated)) AS m (name);
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'object_in_use', MESSAGE = format('table %s is not ready for the switch of snowflake_widen()', relation),
            DETAIL = missing, HINT = 'Run the statements of the phase "build" again.';
    END IF;
END $$;

-- Half of deadlock_timeout, and half a second at most, so that a wait ends before PostgreSQL ends
-- another session because of a deadlock.
CREATE FUNCTION snowflake_plan.widen_patience() RETURNS text
STABLE PARALLEL SAFE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT least(500, greatest(1, extract(epoch FROM current_setting('deadlock_timeout')::interval) * 500))::integer || 'ms'
$$;

CREATE PROCEDURE snowflake_widen_fill(relation regclass, blocks integer DEFAULT 100, pause interval DEFAULT '0')
LANGUAGE plpgsql AS $$
DECLARE
    turn record;
    filled bigint;
    batch integer := blocks;
    began timestamptz;
    failures integer := 0;
BEGIN
    IF relation IS NULL OR blocks IS NULL OR pause IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'an argument of snowflake_widen_fill() is NULL';
    ELSIF blocks OPERATOR(pg_catalog.<) 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = pg_catalog.format('blocks %s is outside the range 1..2147483647', blocks),
            HINT = 'The argument is the greatest number of blocks that one transaction fills.';
    END IF;
    COMMIT;
    PERFORM snowflake_plan.widen_take_up(relation);
    LOOP
        COMMIT;
        SELECT * INTO turn FROM snowflake_plan.widen_turn(relation, batch);
        EXIT WHEN turn.statement IS NULL;
        -- A policy that hides rows is an error.
        PERFORM pg_catalog.set_config('row_security', 'off', true), pg_catalog.set_config('lock_timeout', snowflake_plan.widen_patience(), true);
        began := pg_catalog.clock_timestamp();
        BEGIN
            EXECUTE turn.statement;
            GET DIAGNOSTICS filled = ROW_COUNT;
            PERFORM snowflake_plan.widen_filled(relation, turn.upto, filled);
        -- The latter where another session moves a row of the batch to another partition.
        EXCEPTION WHEN lock_not_available OR serialization_failure THEN
            filled := NULL;
        END;
        IF filled IS NULL THEN
            -- Another session has locked rows of the batch. It goes on, and this one waits.
            ROLLBACK;
            failures := failures OPERATOR(pg_catalog.+) 1;
            IF failures OPERATOR(pg_catalog.>) 300 THEN
                RAISE EXCEPTION USING ERRCODE = 'lock_not_available', MESSAGE = pg_catalog.format('could not lock rows of table %s', relation),
                    DETAIL = 'Another transaction has had them locked for minutes. What is filled stays.',
                    HINT = 'Call the procedure again when no long transaction uses the table.';
            END IF;
            batch := pg_catalog.int4larger(1, batch OPERATOR(pg_catalog./) 2);
            PERFORM pg_catalog.pg_sleep(pg_catalog.random());
            CONTINUE;
        END IF;
        failures := 0;
        -- A batch that takes long could meet a session that has waited for its rows for so long
        -- that PostgreSQL would end that session because of a deadlock.
        batch := CASE WHEN pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) began OPERATOR(pg_catalog.>) pg_catalog.interval '250 ms'
                      THEN pg_catalog.int4larger(1, batch OPERATOR(pg_catalog./) 2)
                      WHEN batch OPERATOR(pg_catalog.>) (blocks OPERATOR(pg_catalog./) 2) THEN blocks
                      ELSE batch OPERATOR(pg_catalog.*) 2 END;
        COMMIT;
        PERFORM pg_catalog.pg_sleep(pg_catalog.date_part('epoch', pause));
        -- Standbys that a fill leaves behind would serve old rows.
        WHILE EXISTS (SELECT FROM pg_catalog.pg_stat_replication
                      WHERE pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), replay_lsn) OPERATOR(pg_catalog.>) 1e8) LOOP
            COMMIT;
            PERFORM pg_catalog.pg_sleep(1);
        END LOOP;
    END LOOP;
END $$;

-- Runs the statements of a step in one transaction, under locks that are taken at one moment,
-- unless an expression is true by then. Tries again what fails because of a lock.
CREATE PROCEDURE snowflake_plan.widen_step(unless text, relations text, statements text[], exclusive boolean DEFAULT true)
LANGUAGE plpgsql AS $$
DECLARE
    as_role CONSTANT text := pg_catalog.current_setting('role');
    statement text;
    is_done boolean;
    failures integer := 0;
    blocked text;
BEGIN
    LOOP
        COMMIT;
        -- Otherwise what others have committed before the lock may stay unseen.
        IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.!~~) 'read %' THEN
            RAISE EXCEPTION USING ERRCODE = 'active_sql_transaction',
                MESSAGE = pg_catalog.format('cannot widen a column in a transaction with isolation level "%s"',
                    pg_catalog.current_setting('transaction_isolation')),
                HINT = 'Set "default_transaction_isolation" to READ COMMITTED.';
        END IF;
        EXECUTE 'SELECT ' OPERATOR(pg_catalog.||) unless INTO is_done;
        IF is_done THEN
            RETURN;
        END IF;
        PERFORM snowflake_plan.lock_for_widen(relations::pg_catalog.regclass[], exclusive);
        blocked := NULL;
        BEGIN
            EXECUTE 'SELECT ' OPERATOR(pg_catalog.||) unless INTO is_done;
            IF is_done IS NOT TRUE THEN
                -- As the statements were written, so that no object of another role takes the place
                -- of PostgreSQL's.
                PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
                    pg_catalog.set_config('default_tablespace', '', true),
                    pg_catalog.set_config('standard_conforming_strings', 'on', true),
                    pg_catalog.set_config('lock_timeout', snowflake_plan.widen_patience(), true);
                FOREACH statement IN ARRAY statements LOOP
                    EXECUTE statement;
                    -- A GRANT in another role's name has left it, for the session as well.
                    PERFORM pg_catalog.set_config('role', as_role, false);
                END LOOP;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            blocked := SQLERRM;
        END;
        EXIT WHEN blocked IS NULL;
        ROLLBACK;
        failures := failures OPERATOR(pg_catalog.+) 1;
        IF failures OPERATOR(pg_catalog.>) 100 THEN
            RAISE EXCEPTION USING ERRCODE = 'lock_not_available', MESSAGE = blocked, DETAIL = 'The step has changed nothing.',
                HINT = 'Run the statement again when no long transaction uses the tables.';
        END IF;
        PERFORM pg_catalog.pg_sleep(pg_catalog.random() OPERATOR(pg_catalog.*) 2);
    END LOOP;
    COMMIT;
END $$;

-- The planner replaces conditions on an id's time by these (src/time/pushdown.rs). They are
-- leakproof because they raise nothing, whatever their arguments, so they can run before a row's
-- visibility is known.
ALTER FUNCTION snowflake_from(timestamptz, text) LEAKPROOF;
ALTER FUNCTION snowflake_from(date, text) LEAKPROOF;
ALTER FUNCTION snowflake_from(timestamp, text) LEAKPROOF;
ALTER FUNCTION snowflake_after(timestamptz, text) LEAKPROOF;
ALTER FUNCTION snowflake_after(date, text) LEAKPROOF;
ALTER FUNCTION snowflake_after(timestamp, text) LEAKPROOF;
ALTER FUNCTION snowflake_before(timestamptz, text) LEAKPROOF;
ALTER FUNCTION snowflake_before(date, text) LEAKPROOF;
ALTER FUNCTION snowflake_before(timestamp, text) LEAKPROOF;
ALTER FUNCTION snowflake_until(timestamptz, text) LEAKPROOF;
ALTER FUNCTION snowflake_until(date, text) LEAKPROOF;
ALTER FUNCTION snowflake_until(timestamp, text) LEAKPROOF;
ALTER FUNCTION snowflake_plan.instant(timestamptz, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.instant(date, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.instant(timestamp, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.local(timestamp, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.local(date, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.local(numeric, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.local(double precision, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.instant(numeric, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.instant(double precision, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.local(timestamptz, text, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.instant(timestamp, text, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.instant(timestamp, interval, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.ceil(timestamp, text) LEAKPROOF;
ALTER FUNCTION snowflake_plan.ceil(timestamptz, interval, timestamptz, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.ceil(timestamp, interval, timestamp, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.minus(timestamptz, interval, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.minus(timestamptz, interval, text, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.plus(timestamptz, interval, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.ago(timestamptz, interval, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.aged(timestamptz, interval, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.lower(tstzrange) LEAKPROOF;
ALTER FUNCTION snowflake_plan.upper(tstzrange) LEAKPROOF;
ALTER FUNCTION snowflake_plan.lower(timestamptz[]) LEAKPROOF;
ALTER FUNCTION snowflake_plan.upper(timestamptz[]) LEAKPROOF;
ALTER FUNCTION snowflake_plan.local(timestamp[], boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.local(date[], boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.time_of(bigint, text) LEAKPROOF;
ALTER FUNCTION snowflake_plan.checked(boolean) SUPPORT snowflake_plan.checked_support;

-- Keys of public ids
--
-- The first key makes the table, so a database without public ids has none that could be published,
-- or that a role may not dump. It is no member of the extension: pg_dump carries it like any other
-- table, also without privileges, and only its owner reads it then. The library reads it itself
-- (src/postgres/public_keys.rs), so no role needs a right to it.

-- A subscriber may have the key already, and so may a database into which a dump is restored. The
-- trigger refuses another key, because the log of a subscription whose row violates a unique
-- constraint shows the row (PostgreSQL 18).
CREATE FUNCTION snowflake_plan.skip_known_public_key() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_known boolean;
BEGIN
    EXECUTE format('SELECT bool_and(k.first_id = $1 AND k.key = $2) FROM %s k WHERE k.first_id = $1 OR k.key = $2', TG_RELID::regclass)
        INTO is_known USING NEW.first_id, NEW.key;
    IF NOT is_known THEN
        RAISE EXCEPTION USING ERRCODE = 'unique_violation',
            MESSAGE = format('there is another key for public ids from first_id %s on, or this key with another first_id', NEW.first_id),
            HINT = 'Compare "fingerprint" and "first_id" in the tables "snowflake_public_keys" of both databases.';
    END IF;
    RETURN CASE WHEN is_known THEN NULL ELSE NEW END;
END
$$;

CREATE FUNCTION snowflake_new_public_key(key bytea DEFAULT NULL, first_id bigint DEFAULT NULL,
    for_all boolean DEFAULT false, force boolean DEFAULT false) RETURNS text
VOLATILE PARALLEL UNSAFE SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
-- A statement that is refused holds the key, and would be logged.
SET log_min_error_statement = panic AS $$
DECLARE
    least CONSTANT bigint := -9223372036854775808;
    is_for_all CONSTANT boolean := coalesce(for_all, false);
    new_key CONSTANT bytea := coalesce(key, snowflake_plan.random_public_key());
    name CONSTANT text := snowflake_plan.public_key_fingerprint(new_key);
    new_first_id bigint := first_id;
    keys regclass := snowflake_plan.public_keys_table();
    grantee text;
    has_keys boolean;
    is_known boolean;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        -- The snapshot could be older than the last key.
        RAISE EXCEPTION USING ERRCODE = 'active_sql_transaction',
            MESSAGE = format('cannot make a key for public ids in a transaction of isolation level "%s"',
                current_setting('transaction_isolation')),
            HINT = 'Call snowflake_new_public_key() in a transaction of isolation level "read committed".';
    ELSIF is_for_all AND first_id IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('first_id %s cannot be given for a key for all ids', first_id),
            HINT = 'Leave out either the argument "first_id" or the argument "for_all".';
    END IF;

    IF keys IS NULL THEN
        CREATE TABLE @extschema@.snowflake_public_keys (
            fingerprint text PRIMARY KEY,
            first_id bigint NOT NULL UNIQUE,
            created_at timestamptz NOT NULL DEFAULT now(),
            -- Last, because an error of COPY shows the first 100 characters of a line.
            key bytea NOT NULL CHECK (octet_length(key) BETWEEN 16 AND 64)
        );
        keys := snowflake_plan.public_keys_table();
        -- Statistics hold values, and a dump may have them without the table's rows.
        EXECUTE format('ALTER TABLE %s ALTER COLUMN key SET STATISTICS 0', keys);
        -- Default privileges may have given it to others.
        FOR grantee IN
            SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END
            FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = keys AND a.grantee <> c.relowner
        LOOP
            EXECUTE format('REVOKE ALL ON TABLE %s FROM %s CASCADE', keys, grantee);
        END LOOP;
        -- So the owner of the database can dump it.
        EXECUTE format('GRANT SELECT ON TABLE %s TO pg_database_owner', keys);
        EXECUTE format('COMMENT ON TABLE %s IS %L', keys, 'secret: the keys of public ids, and the first id that each conceals');
    END IF;
    -- DROP EXTENSION ... CASCADE leaves the table without it.
    IF NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = keys AND t.tgname = 'skip_known_public_key') THEN
        EXECUTE format('CREATE TRIGGER skip_known_public_key BEFORE INSERT ON %s '
                       'FOR EACH ROW EXECUTE FUNCTION snowflake_plan.skip_known_public_key()', keys);
        -- In a subscription, too.
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER skip_known_public_key', keys);
    END IF;
    EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', keys);

    EXECUTE format('SELECT count(*) > 0, coalesce(bool_or(k.key = $1 AND (k.first_id = $2 OR $2 IS NULL)), false) FROM %s k', keys)
        INTO has_keys, is_known USING new_key, first_id;
    IF is_for_all THEN
        EXECUTE format('DELETE FROM %s', keys);
        new_first_id := least;
    ELSIF is_known THEN
        RETURN name;
    ELSIF first_id IS NULL THEN
        new_first_id := CASE WHEN has_keys THEN snowflake_plan.first_id_of_new_key() ELSE least END;
    ELSIF has_keys AND NOT coalesce(force, false) AND snowflake_plan.begins_too_soon(first_id) THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('ids from first_id %s on may have been concealed already', first_id),
            DETAIL = 'Their tokens would change, and those given out would stand for no id. A key must begin more than 5 seconds after now.',
            HINT = 'Give a later "first_id". To add a key that other databases have, pass force => true.';
    END IF;
    EXECUTE format('INSERT INTO %s (fingerprint, first_id, key) VALUES ($1, $2, $3)', keys) USING name, new_first_id, new_key;
    PERFORM snowflake_plan.public_key_made(new_first_id, has_keys AND NOT is_for_all AND NOT coalesce(force, false));
    RETURN name;
END
$$;

CREATE FUNCTION snowflake_public_keys() RETURNS SETOF text
VOLATILE PARALLEL UNSAFE SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    keys CONSTANT regclass := snowflake_plan.public_keys_table();
BEGIN
    IF keys IS NOT NULL THEN
        RETURN QUERY EXECUTE format(
            'SELECT format(''SELECT %%s(key => decode(%%L, ''''hex''''), first_id => %%s%%s);'', %L, encode(k.key, ''hex''), k.first_id, '
            'CASE WHEN snowflake_plan.begins_too_soon(k.first_id) THEN '', force => true'' END) FROM %s k ORDER BY k.first_id',
            '@extschema@.snowflake_new_public_key', keys);
    END IF;
END
$$;

-- PostgREST shows a column of such a domain as tokens, and reads tokens for it. It looks for the
-- casts, which PostgreSQL itself ignores, and calls their functions. A function with the domain's
-- name would cast a text of unknown type to bigint.
CREATE FUNCTION snowflake_public_domain(domain text, prefix text) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql AS $$
DECLARE
    parts CONSTANT pg_catalog.text[] := pg_catalog.parse_ident(domain);
    name CONSTANT pg_catalog.text := parts[pg_catalog.cardinality(parts)];
    schema CONSTANT pg_catalog.text :=
        coalesce(parts[pg_catalog.cardinality(parts) OPERATOR(pg_catalog.-) 1], pg_catalog.current_schema());
    of_domain CONSTANT pg_catalog.text := pg_catalog.format('%I.%I', schema, name);
    reader CONSTANT pg_catalog.text := pg_catalog.format('%I.%I', schema, pg_catalog.concat('read_', name));
    level CONSTANT pg_catalog.text := pg_catalog.current_setting('client_min_messages');
BEGIN
    -- Refuses what is not a prefix.
    PERFORM @extschema@.snowflake_reveal(''::pg_catalog.text, prefix, false);
    EXECUTE pg_catalog.format('CREATE DOMAIN %s AS pg_catalog.int8', of_domain);
    -- With the types of what it calls, because another role may add a function for the domain.
    EXECUTE pg_catalog.format('CREATE FUNCTION %I.json(id %s) RETURNS pg_catalog.json STABLE STRICT PARALLEL SAFE LANGUAGE sql AS '
        '%L', schema, of_domain, pg_catalog.format('SELECT pg_catalog.to_json(@extschema@.snowflake_conceal($1::pg_catalog.int8, %L::pg_catalog.text))', prefix));
    EXECUTE pg_catalog.format('CREATE FUNCTION %s(token pg_catalog.json) RETURNS %s STABLE STRICT PARALLEL SAFE LANGUAGE sql AS '
        '%L', reader, of_domain, pg_catalog.format('SELECT @extschema@.snowflake_reveal($1 OPERATOR(pg_catalog.#>>) ''{}''::pg_catalog.text[], %L::pg_catalog.text, true)', prefix));
    EXECUTE pg_catalog.format('CREATE FUNCTION %s(token pg_catalog.text) RETURNS %s STABLE STRICT PARALLEL SAFE LANGUAGE sql AS '
        '%L', reader, of_domain, pg_catalog.format('SELECT @extschema@.snowflake_reveal($1, %L::pg_catalog.text, false)', prefix));
    -- Without three warnings that PostgreSQL ignores the casts.
    PERFORM pg_catalog.set_config('client_min_messages', 'error', true);
    EXECUTE pg_catalog.format('CREATE CAST (%s AS pg_catalog.json) WITH FUNCTION %I.json(%1$s) AS IMPLICIT', of_domain, schema);
    EXECUTE pg_catalog.format('CREATE CAST (pg_catalog.json AS %s) WITH FUNCTION %s(pg_catalog.json) AS IMPLICIT', of_domain, reader);
    EXECUTE pg_catalog.format('CREATE CAST (pg_catalog.text AS %s) WITH FUNCTION %s(pg_catalog.text) AS IMPLICIT', of_domain, reader);
    PERFORM pg_catalog.set_config('client_min_messages', level, true);
END
$$;

-- These affect every session that draws in the database.
REVOKE ALL ON FUNCTION snowflake_advance(bigint), snowflake_advance(bigint, boolean), snowflake_accept_layout(),
    snowflake_accept_fleet(), snowflake_reset_mark() FROM PUBLIC;

-- These lock tables against all other sessions for a while.
REVOKE ALL ON FUNCTION snowflake_convert(regclass, name, boolean, boolean), snowflake_convert_columns(text[], boolean, boolean),
    snowflake_convert_back(regclass, name, boolean), snowflake_segment_convert(regclass, name, text, boolean), snowflake_segment_convert_back(regclass, name, boolean) FROM PUBLIC;

-- A new key decides which ids tokens stand for, and a key conceals and reveals all of them.
REVOKE ALL ON FUNCTION snowflake_new_public_key(bytea, bigint, boolean, boolean), snowflake_public_keys() FROM PUBLIC;

-- The server's counts are for its operators.
CREATE VIEW snowflake_stat AS SELECT *, snowflake_plan.settled_lag() AS settled_lag_ms FROM snowflake_stat();
CREATE VIEW snowflake_stat_backend AS SELECT * FROM snowflake_stat_backend();
CREATE VIEW snowflake_lease AS SELECT *, lease_until - clock_timestamp() AS time_left FROM snowflake_plan.lease();
CREATE VIEW snowflake_segment_stat AS SELECT * FROM snowflake_plan.segment_stat();
REVOKE ALL ON FUNCTION snowflake_stat(), snowflake_stat_backend(), snowflake_stat_reset(), snowflake_plan.lease(),
    snowflake_plan.segment_stat(), snowflake_plan.settled_lag() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_stat(), snowflake_stat_backend(), snowflake_plan.lease(),
    snowflake_plan.segment_stat(), snowflake_plan.settled_lag() TO pg_monitor;
GRANT SELECT ON snowflake_stat, snowflake_stat_backend, snowflake_lease, snowflake_segment_stat TO pg_monitor;

-- A session sees of another user's what pg_stat_activity shows of it.
CREATE VIEW snowflake_unsettled AS
    SELECT held.pid, prepared.gid, coalesce(activity.usename, prepared.owner) AS usename, activity.state,
        coalesce(activity.xact_start, prepared.prepared) AS xact_start, held.first_id
    FROM snowflake_plan.unsettled() AS held
    LEFT JOIN pg_catalog.pg_stat_activity AS activity ON activity.pid = held.pid
    LEFT JOIN pg_catalog.pg_prepared_xacts AS prepared ON prepared.transaction = held.transaction;
GRANT SELECT ON snowflake_unsettled TO PUBLIC;

CREATE VIEW snowflake_layouts AS SELECT * FROM snowflake_layouts();
GRANT SELECT ON snowflake_layouts TO PUBLIC;

COMMENT ON FUNCTION snowflake_next() IS
    'draw the next id: unique across servers, ordered by time';
COMMENT ON FUNCTION snowflake_batch(integer) IS
    'draw a number of ids, ascending';
COMMENT ON FUNCTION snowflake_last() IS
    'the last id drawn in this session';
COMMENT ON FUNCTION snowflake_settled() IS
    'the id up to which a reader misses nothing: all ids at or below it belong to transactions that have ended';
COMMENT ON FUNCTION snowflake_parse(bigint) IS
    'read an id back: its time, datacenter, worker, sequence and tick';
COMMENT ON FUNCTION snowflake_parse(bigint, text) IS
    'read an id of the given layout back: its time, datacenter, worker, sequence and tick';
COMMENT ON FUNCTION snowflake_timestamp(bigint) IS
    'the time of an id';
COMMENT ON FUNCTION snowflake_timestamp(bigint, text) IS
    'the time of an id of the given layout';
COMMENT ON FUNCTION snowflake_format(bigint) IS
    'an id for people: UTC time, sequence, datacenter and worker';
COMMENT ON FUNCTION snowflake_format(bigint, text) IS
    'an id of the given layout for people: UTC time, sequence, datacenter and worker';
COMMENT ON FUNCTION snowflake_compose(timestamptz, integer, integer) IS
    'compose an id from time, worker and sequence';
COMMENT ON FUNCTION snowflake_compose(timestamptz, integer, integer, integer) IS
    'compose an id from time, worker, sequence and datacenter';
COMMENT ON FUNCTION snowflake_compose(timestamptz, integer, integer, integer, text) IS
    'compose an id of the given layout from time, worker, sequence and datacenter';
COMMENT ON FUNCTION snowflake_encode(bigint, text) IS
    'an id as a short text, in base32 or base62, which sorts as the id does under COLLATE "C"';
COMMENT ON FUNCTION snowflake_decode(text, text) IS
    'the id that a text in base32 or base62 stands for';
COMMENT ON FUNCTION snowflake_conceal(bigint, text) IS
    'an id as a token for readers outside, which tells nothing of it';
COMMENT ON FUNCTION snowflake_reveal(text, text, boolean) IS
    'the id of a token; for another text NULL, or an error if it is required';
COMMENT ON FUNCTION snowflake_reveal(text[], text, boolean) IS
    'the ids of tokens; for other texts NULL, or an error if they are required';
COMMENT ON FUNCTION snowflake_new_public_key(bytea, bigint, boolean, boolean) IS
    'make a key of public ids, and return its fingerprint';
COMMENT ON FUNCTION snowflake_public_keys() IS
    'secret: statements that make the keys of public ids again';
COMMENT ON FUNCTION snowflake_public_domain(text, text) IS
    'make a domain of bigint with the casts by which PostgREST shows and reads tokens';
COMMENT ON FUNCTION snowflake_plan.random_public_key() IS
    '32 random bytes';
COMMENT ON FUNCTION snowflake_plan.public_key_fingerprint(bytea) IS
    'the fingerprint of a key of public ids';
COMMENT ON FUNCTION snowflake_plan.first_id_of_new_key() IS
    'the first id that a new key of public ids may conceal';
COMMENT ON FUNCTION snowflake_plan.begins_too_soon(bigint) IS
    'whether a key of public ids from this id on begins before all sessions are sure to see it';
COMMENT ON FUNCTION snowflake_plan.public_key_made(bigint, boolean) IS
    'lets the session see a key of public ids that it has made';
COMMENT ON FUNCTION snowflake_plan.public_keys_table() IS
    'the table of keys of public ids, NULL before the first one';
COMMENT ON FUNCTION snowflake_plan.skip_known_public_key() IS
    'skips a key of public ids that is there already';
COMMENT ON FUNCTION snowflake_layouts() IS
    'the built-in layouts and the current one; see the view of the same name';
COMMENT ON FUNCTION snowflake_layout_fields() IS
    'the fields of the current layout, from the high bits to the low';
COMMENT ON FUNCTION snowflake_layout_fields(text) IS
    'the fields of the given layout, from the high bits to the low';
COMMENT ON FUNCTION snowflake_min(timestamptz) IS
    'the smallest id whose time is that time or later';
COMMENT ON FUNCTION snowflake_min(timestamptz, text) IS
    'the smallest id of the given layout whose time is that time or later';
COMMENT ON FUNCTION snowflake_from(timestamptz, text) IS
    'the first id of the given layout whose time is that time or later, NULL if there is none';
COMMENT ON FUNCTION snowflake_from(date, text) IS
    'the first id of the given layout whose time is the start of that day or later, in the session''s time zone, NULL if there is none';
COMMENT ON FUNCTION snowflake_from(timestamp, text) IS
    'the first id of the given layout whose time is that time or later, in the session''s time zone, NULL if there is none';
COMMENT ON FUNCTION snowflake_after(timestamptz, text) IS
    'the first id of the given layout whose time is after that time, NULL if there is none';
COMMENT ON FUNCTION snowflake_after(date, text) IS
    'the first id of the given layout whose time is after the start of that day, in the session''s time zone, NULL if there is none';
COMMENT ON FUNCTION snowflake_after(timestamp, text) IS
    'the first id of the given layout whose time is after that time, in the session''s time zone, NULL if there is none';
COMMENT ON FUNCTION snowflake_before(timestamptz, text) IS
    'the last id of the given layout whose time is before that time, -1 if there is none';
COMMENT ON FUNCTION snowflake_before(date, text) IS
    'the last id of the given layout whose time is before that day, in the session''s time zone, -1 if there is none';
COMMENT ON FUNCTION snowflake_before(timestamp, text) IS
    'the last id of the given layout whose time is before that time, in the session''s time zone, -1 if there is none';
COMMENT ON FUNCTION snowflake_until(timestamptz, text) IS
    'the last id of the given layout whose time is that time or before, -1 if there is none';
COMMENT ON FUNCTION snowflake_until(date, text) IS
    'the last id of the given layout whose time is the start of that day or before, in the session''s time zone, -1 if there is none';
COMMENT ON FUNCTION snowflake_until(timestamp, text) IS
    'the last id of the given layout whose time is that time or before, in the session''s time zone, -1 if there is none';
COMMENT ON SCHEMA snowflake_plan IS
    'functions that plans show for conditions on an id''s time, and that views and other functions call: not for statements of users';
COMMENT ON FUNCTION snowflake_plan.instant(timestamptz, boolean) IS
    'that time; if the second argument is true, the next one, a microsecond later';
COMMENT ON FUNCTION snowflake_plan.instant(date, boolean) IS
    'the start of that day in the session''s time zone; if the second argument is true, a microsecond later';
COMMENT ON FUNCTION snowflake_plan.instant(timestamp, boolean) IS
    'the time that this local one is in the session''s time zone; if the second argument is true, a microsecond later';
COMMENT ON FUNCTION snowflake_plan.local(timestamp, boolean) IS
    'that local time; if the second argument is true, the next one, a microsecond later';
COMMENT ON FUNCTION snowflake_plan.local(date, boolean) IS
    'the start of that day; if the second argument is true, of the next one';
COMMENT ON FUNCTION snowflake_plan.local(numeric, boolean) IS
    'the start of the first year that is not below that number; if the second argument is true, of the first one above it';
COMMENT ON FUNCTION snowflake_plan.local(double precision, boolean) IS
    'the start of the first year that is not below that number; if the second argument is true, of the first one above it';
COMMENT ON FUNCTION snowflake_plan.instant(numeric, boolean) IS
    'the first time that is not below that number of seconds since 1970; if the second argument is true, the first one above it';
COMMENT ON FUNCTION snowflake_plan.instant(double precision, boolean) IS
    'a lower or upper limit on a time, from the same limit on its seconds since 1970, with a margin for their rounding';
COMMENT ON FUNCTION snowflake_plan.local(timestamptz, text, boolean) IS
    'a lower or upper limit on a local time of the zone, from the same limit on the time that it is converted to';
COMMENT ON FUNCTION snowflake_plan.instant(timestamp, text, boolean) IS
    'a lower or upper limit on a time, from the same limit on the local time that the zone''s clocks show';
COMMENT ON FUNCTION snowflake_plan.instant(timestamp, interval, boolean) IS
    'a lower or upper limit on a time, from the same limit on the local time that is an interval ahead of UTC';
COMMENT ON FUNCTION snowflake_plan.ceil(timestamp, text) IS
    'the first start of the unit, such as month, at that local time or later, NULL for a text that is not a unit';
COMMENT ON FUNCTION snowflake_plan.ceil(timestamptz, interval, timestamptz, boolean) IS
    'a lower or upper limit on a time, from the same limit on what date_bin returns for it';
COMMENT ON FUNCTION snowflake_plan.ceil(timestamp, interval, timestamp, boolean) IS
    'a lower or upper limit on a local time, from the same limit on what date_bin returns for it';
COMMENT ON FUNCTION snowflake_plan.minus(timestamptz, interval, boolean) IS
    'a lower or upper limit on a time, from the same limit on the time that is an interval later';
COMMENT ON FUNCTION snowflake_plan.minus(timestamptz, interval, text, boolean) IS
    'a lower or upper limit on a time, from the same limit on the time that is the interval after it in the given time zone';
COMMENT ON FUNCTION snowflake_plan.plus(timestamptz, interval, boolean) IS
    'a lower or upper limit on a time, from the same limit on the time that is an interval earlier';
COMMENT ON FUNCTION snowflake_plan.ago(timestamptz, interval, boolean) IS
    'the time that is that age before another one, with days of 24 hours; a limit that excludes nothing where such a difference may be an error';
COMMENT ON FUNCTION snowflake_plan.aged(timestamptz, interval, boolean) IS
    'a lower or upper limit on a time, from the same limit on the time whose age() at that one is the interval';
COMMENT ON FUNCTION snowflake_plan.lower(tstzrange) IS
    'the first time of the range, NULL if it is empty';
COMMENT ON FUNCTION snowflake_plan.upper(tstzrange) IS
    'the first time after the range, NULL if it is empty';
COMMENT ON FUNCTION snowflake_plan.lower(timestamptz[]) IS
    'the least of these times, NULL without any';
COMMENT ON FUNCTION snowflake_plan.upper(timestamptz[]) IS
    'the first time after the greatest of these, NULL without any';
COMMENT ON FUNCTION snowflake_plan.local(timestamp[], boolean) IS
    'the least of these local times; if the second argument is true, the first one after the greatest; NULL without any';
COMMENT ON FUNCTION snowflake_plan.local(date[], boolean) IS
    'the start of the first of these days; if the second argument is true, of the day after the last; NULL without any';
COMMENT ON FUNCTION snowflake_plan.time_of(bigint, text) IS
    'the time of an id of the given layout; NULL for a number that is not one';
COMMENT ON FUNCTION snowflake_plan.checked(boolean) IS
    'its argument, which the planner expects to be true: a condition that is kept beside the bounds that it implies';
COMMENT ON FUNCTION snowflake_plan.checked_support(internal) IS
    'tells the planner that snowflake_plan.checked is true';
COMMENT ON FUNCTION snowflake_advance(bigint) IS
    'never again draw an id at or below the given one in this database';
COMMENT ON FUNCTION snowflake_advance(bigint, boolean) IS
    'never again draw an id at or below the given one in this database; if the second argument is true, however far ahead of the clock it is';
COMMENT ON FUNCTION snowflake_accept_layout() IS
    'take the server''s layout for this database''s, though its ids were drawn with another one';
COMMENT ON FUNCTION snowflake_accept_fleet() IS
    'let the fleet that leases the server''s number draw ids in this database, though another fleet has before';
COMMENT ON FUNCTION snowflake_reset_mark() IS
    'begin anew with a new number, after the clock had been far ahead';
COMMENT ON FUNCTION snowflake_convert(regclass, name, boolean, boolean) IS
    'turn a serial, identity or bigint column into one whose default is snowflake_next()';
COMMENT ON FUNCTION snowflake_convert_columns(text[], boolean, boolean) IS
    'turn columns of any tables into such ones at once';
COMMENT ON FUNCTION snowflake_convert_back(regclass, name, boolean) IS
    'turn a column whose default is snowflake_next() into an identity';
COMMENT ON FUNCTION snowflake_segment_convert(regclass, name, text, boolean) IS
    'turn a serial, identity or integer column into one that draws from a tag';
COMMENT ON FUNCTION snowflake_segment_convert_back(regclass, name, boolean) IS
    'turn a column that draws from a tag into an identity';
COMMENT ON FUNCTION snowflake_plan.require_no_block() IS
    'refuses a call of snowflake_partitions in a transaction block';
COMMENT ON FUNCTION snowflake_plan.lock_for_drop(regclass, regclass) IS
    'lock all that the drop of a partition locks, at one moment';
COMMENT ON FUNCTION snowflake_plan.lock_for_new(regclass) IS
    'lock what a new partition locks besides its table, at one moment';
COMMENT ON FUNCTION snowflake_plan.partition_steps(regclass, text, integer, interval, text, boolean) IS
    'what snowflake_partitions has to do';
COMMENT ON FUNCTION snowflake_plan.partition_turn(regclass, text, integer, interval, text) IS
    'lock the table for the next step of snowflake_partitions, and return its statements, NULL if no step is left';
COMMENT ON PROCEDURE snowflake_partitions(regclass, text, integer, interval, text, boolean, text) IS
    'make the partitions of the present and of times to come, and drop old ones';
COMMENT ON FUNCTION snowflake_stat() IS
    'what the server has drawn, waited for and met; see the view of the same name';
COMMENT ON FUNCTION snowflake_stat_backend() IS
    'what each session has drawn; see the view of the same name';
COMMENT ON FUNCTION snowflake_plan.unsettled() IS
    'the open transactions that have drawn ids in this database; see the view snowflake_unsettled';
COMMENT ON FUNCTION snowflake_plan.settled_lag() IS
    'how far snowflake_settled() is behind the clock in a database where it is called, in milliseconds; see the view snowflake_stat';
COMMENT ON FUNCTION snowflake_plan.lease() IS
    'where the server''s worker number comes from, and what is known of its lease; see the view snowflake_lease';
COMMENT ON FUNCTION snowflake_segment_next(text) IS
    'draw the next value of a tag: dense, and unique across servers';
COMMENT ON FUNCTION snowflake_segment_batch(text, integer) IS
    'draw a number of values of a tag, ascending';
COMMENT ON FUNCTION snowflake_plan.segment_stat() IS
    'the tags that this server draws from; see the view snowflake_segment_stat';
COMMENT ON FUNCTION snowflake_stat_reset() IS
    'count what snowflake_stat shows from now on';
COMMENT ON SEQUENCE snowflake_mark IS
    'milliseconds since 1970: the latest time that an id drawn in this database may carry';
COMMENT ON SEQUENCE snowflake_mark_backup IS
    'the same for ids drawn with the backup worker number';
COMMENT ON SEQUENCE snowflake_mark_local IS
    'the same as snowflake_mark, not carried by pg_dump';
COMMENT ON SEQUENCE snowflake_mark_backup_local IS
    'the same as snowflake_mark_backup, not carried by pg_dump';
COMMENT ON SEQUENCE snowflake_mark_layout IS
    'fingerprint of the layout that this database''s ids were drawn with';
COMMENT ON SEQUENCE snowflake_mark_identity IS
    'worker, datacenter and backup_worker that this database''s ids were last drawn with, in one number';
COMMENT ON SEQUENCE snowflake_mark_fleet IS
    'the first 60 bits of the uuid of the fleet that leases numbers for this database, not carried by pg_dump';
COMMENT ON VIEW snowflake_stat IS
    'what the server has drawn, waited for and met since stats_reset, its last id, and its settings; times in milliseconds';
COMMENT ON VIEW snowflake_stat_backend IS
    'the sessions that draw ids, and what each has drawn since it began';
COMMENT ON VIEW snowflake_lease IS
    'where the server''s worker number comes from, and what is known of its lease; times in milliseconds';
COMMENT ON VIEW snowflake_segment_stat IS
    'the tags that this server draws from, what is left of their blocks, and how long sessions have waited; times in milliseconds';
COMMENT ON VIEW snowflake_unsettled IS
    'the open transactions that hold snowflake_settled() back in this database, and the first id of each';
COMMENT ON VIEW snowflake_layouts IS
    'the built-in layouts, and one row, current, for the setting snowflake_id.layout';
COMMENT ON FUNCTION snowflake_widen(regclass, name, boolean) IS
    'the statements that make an integer column bigint while sessions use its table, with all columns that refer to it';
COMMENT ON FUNCTION snowflake_widen_back(regclass, name) IS
    'the statements that undo what those of snowflake_widen() have made, before the switch';
COMMENT ON FUNCTION snowflake_plan.widen_expect(regclass, name, text) IS
    'refuse the switch of snowflake_widen() if objects have changed since it wrote the statements';
COMMENT ON FUNCTION snowflake_plan.lock_for_widen(regclass[], boolean) IS
    'lock relations at one moment, for a step of snowflake_widen()';
COMMENT ON FUNCTION snowflake_plan.widen_keep() IS
    'the trigger that keeps a new bigint column equal to the column that is widened';
COMMENT ON FUNCTION snowflake_plan.widen_has(text, text, text) IS
    'whether a step of snowflake_widen() has been done';
COMMENT ON FUNCTION snowflake_plan.widen_begin(regclass, name, name, name) IS
    'make the trigger that keeps a new bigint column equal to the column that is widened';
COMMENT ON FUNCTION snowflake_plan.widen_follow(regclass, name, oid) IS
    'make the actions of a new foreign key run after those of the former one';
COMMENT ON FUNCTION snowflake_plan.widen_join(regclass, name, regclass, name) IS
    'make a foreign key of a partitioned table of that of a partition';
COMMENT ON FUNCTION snowflake_plan.widen_checked(regclass) IS
    'refuse the way back and the clean up of snowflake_widen() while a foreign key is not checked';
COMMENT ON FUNCTION snowflake_plan.widen_fits(regclass) IS
    'refuse the way back of snowflake_widen() while a value does not fit';
COMMENT ON FUNCTION snowflake_plan.widen_fires(oid, text) IS
    'whether a trigger would fire while snowflake_widen_fill() fills rows';
COMMENT ON VIEW snowflake_plan.widen_progress IS
    'where snowflake_widen_fill() stands; see the view snowflake_widen_progress';
COMMENT ON VIEW snowflake_widen_progress IS
    'where snowflake_widen_fill() stands in each table: blocks, rows, rows a second, time left';
COMMENT ON FUNCTION snowflake_plan.widen_note(regclass, text) IS
    'write the comment of the trigger that keeps a new bigint column equal';
COMMENT ON FUNCTION snowflake_plan.widen_stands(regclass, bigint, bigint, bigint, bigint, timestamptz) IS
    'note where snowflake_widen_fill() stands';
COMMENT ON FUNCTION snowflake_plan.widen_filled(regclass, bigint, bigint) IS
    'note how far snowflake_widen_fill() has come';
COMMENT ON FUNCTION snowflake_plan.widen_take_up(regclass) IS
    'take up snowflake_widen_fill() where it stopped';
COMMENT ON FUNCTION snowflake_plan.widen_turn(regclass, integer) IS
    'the next batch of snowflake_widen_fill()';
COMMENT ON FUNCTION snowflake_plan.widen_require(regclass, text[], text[]) IS
    'refuse the switch of snowflake_widen() if an index or a constraint is missing';
COMMENT ON FUNCTION snowflake_plan.widen_patience() IS
    'how long a step of snowflake_widen() waits for a lock';
COMMENT ON PROCEDURE snowflake_widen_fill(regclass, integer, interval) IS
    'fill the new columns of a table, in batches, and go on where a call stopped';
COMMENT ON PROCEDURE snowflake_plan.widen_step(text, text, text[], boolean) IS
    'run a step of snowflake_widen() in one transaction, under locks that are taken at one moment';
