-- From 0.2.0 to 0.3.0: leases, tags, settled ids, and limits on a time for ages, ranges, arrays and
-- local times.
-- What 0.2.0 has stays where it is.

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
GRANT USAGE ON SCHEMA snowflake_plan TO PUBLIC;

-- Where the worker number comes from, and what is known of its lease.
CREATE FUNCTION snowflake_plan.lease() RETURNS TABLE (state text, worker_id integer, backup_worker_id integer, datacenter_id integer,
    lease_from timestamptz, lease_until timestamptz, next_worker_id bigint, next_from timestamptz,
    gap_from timestamptz, gap_until timestamptz, registry text, incarnation text,
    fleet uuid, numbers bigint, free_numbers bigint, last_renewal timestamptz, clock_offset_ms bigint, renewals bigint, failures bigint,
    last_error text, last_error_time timestamptz, failing_since timestamptz, pid integer, waits bigint, wait_time double precision, refused bigint, fleet_refused bigint)
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_lease_wrapper';
CREATE VIEW snowflake_lease AS SELECT *, lease_until - clock_timestamp() AS time_left FROM snowflake_plan.lease();
REVOKE ALL ON FUNCTION snowflake_plan.lease() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_plan.lease() TO pg_monitor;
GRANT SELECT ON snowflake_lease TO pg_monitor;
COMMENT ON FUNCTION snowflake_plan.lease() IS
    'where the server''s worker number comes from, and what is known of its lease; see the view snowflake_lease';
COMMENT ON VIEW snowflake_lease IS
    'where the server''s worker number comes from, and what is known of its lease; times in milliseconds';

-- Which fleet leases numbers for ids of this database.
CREATE SEQUENCE snowflake_mark_fleet MINVALUE 0 START 0;
GRANT SELECT ON SEQUENCE snowflake_mark_fleet TO PUBLIC;
COMMENT ON SEQUENCE snowflake_mark_fleet IS
    'the first 60 bits of the uuid of the fleet that leases numbers for this database, not carried by pg_dump';
CREATE FUNCTION snowflake_accept_fleet() RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_accept_fleet_wrapper';
REVOKE ALL ON FUNCTION snowflake_accept_fleet() FROM PUBLIC;
COMMENT ON FUNCTION snowflake_accept_fleet() IS
    'let the fleet that leases the server''s number draw ids in this database, though another fleet has before';

-- Reading rows in the order of their ids.
CREATE FUNCTION snowflake_settled() RETURNS bigint
STABLE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_settled_wrapper';
CREATE FUNCTION snowflake_plan.unsettled() RETURNS TABLE (pid integer, transaction xid, first_id bigint)
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_unsettled_wrapper';
CREATE FUNCTION snowflake_plan.settled_lag() RETURNS bigint
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_settled_lag_wrapper';
CREATE OR REPLACE VIEW snowflake_stat AS SELECT *, snowflake_plan.settled_lag() AS settled_lag_ms FROM snowflake_stat();
REVOKE ALL ON FUNCTION snowflake_plan.settled_lag() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_plan.settled_lag() TO pg_monitor;
-- A session sees of another user's what pg_stat_activity shows of it.
CREATE VIEW snowflake_unsettled AS
    SELECT held.pid, prepared.gid, coalesce(activity.usename, prepared.owner) AS usename, activity.state,
        coalesce(activity.xact_start, prepared.prepared) AS xact_start, held.first_id
    FROM snowflake_plan.unsettled() AS held
    LEFT JOIN pg_catalog.pg_stat_activity AS activity ON activity.pid = held.pid
    LEFT JOIN pg_catalog.pg_prepared_xacts AS prepared ON prepared.transaction = held.transaction;
GRANT SELECT ON snowflake_unsettled TO PUBLIC;
COMMENT ON FUNCTION snowflake_settled() IS
    'the id up to which a reader misses nothing: all ids at or below it belong to transactions that have ended';
COMMENT ON FUNCTION snowflake_plan.unsettled() IS
    'the open transactions that have drawn ids in this database; see the view snowflake_unsettled';
COMMENT ON FUNCTION snowflake_plan.settled_lag() IS
    'how far snowflake_settled() is behind the clock in a database where it is called, in milliseconds; see the view snowflake_stat';
COMMENT ON VIEW snowflake_unsettled IS
    'the open transactions that hold snowflake_settled() back in this database, and the first id of each';

-- Dense values, in blocks that the registry hands out.
CREATE FUNCTION snowflake_segment_next(tag text) RETURNS bigint
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_segment_next_entry';
CREATE FUNCTION snowflake_segment_batch(tag text, count integer) RETURNS SETOF bigint
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_segment_batch_wrapper';
CREATE FUNCTION snowflake_plan.segment_stat() RETURNS TABLE (tag text, state text, current_from bigint, current_left bigint,
    next_from bigint, next_left bigint, step bigint, blocks bigint, last_block_lasted double precision, waits bigint,
    wait_time double precision, refused bigint, last_error text, failing_since timestamptz)
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_segment_stat_wrapper';
CREATE VIEW snowflake_segment_stat AS SELECT * FROM snowflake_plan.segment_stat();
REVOKE ALL ON FUNCTION snowflake_plan.segment_stat() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_plan.segment_stat() TO pg_monitor;
GRANT SELECT ON snowflake_segment_stat TO pg_monitor;
CREATE FUNCTION snowflake_segment_convert(relation regclass, attribute name, tag text, dry_run boolean DEFAULT false)
    RETURNS SETOF text
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_segment_convert_wrapper';
CREATE FUNCTION snowflake_segment_convert_back(relation regclass, attribute name, dry_run boolean DEFAULT false)
    RETURNS SETOF text
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_segment_convert_back_wrapper';
REVOKE ALL ON FUNCTION snowflake_segment_convert(regclass, name, text, boolean),
    snowflake_segment_convert_back(regclass, name, boolean) FROM PUBLIC;
COMMENT ON FUNCTION snowflake_segment_convert(regclass, name, text, boolean) IS
    'turn a serial, identity or integer column into one that draws from a tag';
COMMENT ON FUNCTION snowflake_segment_convert_back(regclass, name, boolean) IS
    'turn a column that draws from a tag into an identity';
COMMENT ON FUNCTION snowflake_segment_next(text) IS
    'draw the next value of a tag: dense, and unique across servers';
COMMENT ON FUNCTION snowflake_segment_batch(text, integer) IS
    'draw a number of values of a tag, ascending';
COMMENT ON FUNCTION snowflake_plan.segment_stat() IS
    'the tags that this server draws from; see the view snowflake_segment_stat';
COMMENT ON VIEW snowflake_segment_stat IS
    'the tags that this server draws from, what is left of their blocks, and how long sessions have waited; times in milliseconds';

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

CREATE FUNCTION snowflake_plan.local(ts timestamptz, zone text, upper boolean) RETURNS timestamp
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_local_in_zone_wrapper';

CREATE FUNCTION snowflake_plan.instant(local timestamp, zone text, upper boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_instant_in_zone_wrapper';

CREATE FUNCTION snowflake_plan.instant(local timestamp, zone interval, upper boolean) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_instant_at_offset_wrapper';

CREATE FUNCTION snowflake_plan.ceil(local timestamp, unit text) RETURNS timestamp
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_ceil_wrapper';

CREATE FUNCTION snowflake_plan.minus(ts timestamptz, shift interval, upper boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_minus_wrapper';

CREATE FUNCTION snowflake_plan.plus(ts timestamptz, shift interval, upper boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_plus_wrapper';

CREATE FUNCTION snowflake_plan.ago(ts timestamptz, age interval, upper boolean) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_ago_wrapper';

CREATE FUNCTION snowflake_plan.lower(during tstzrange) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_lower_wrapper';

CREATE FUNCTION snowflake_plan.upper(during tstzrange) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_upper_wrapper';

CREATE FUNCTION snowflake_plan.lower(times timestamptz[]) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_lower_of_array_wrapper';

CREATE FUNCTION snowflake_plan.upper(times timestamptz[]) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_upper_of_array_wrapper';

-- What keeps the planner from counting a kept condition twice

CREATE FUNCTION snowflake_plan.checked(condition boolean) RETURNS boolean
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_checked_wrapper';

CREATE FUNCTION snowflake_plan.checked_support(request internal) RETURNS internal
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_checked_support_wrapper';

-- As the bounds (sql/snowflake_id--0.3.0.sql).
ALTER FUNCTION snowflake_plan.instant(timestamptz, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.instant(date, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.instant(timestamp, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.local(timestamp, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.local(date, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.local(numeric, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.local(timestamptz, text, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.instant(timestamp, text, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.instant(timestamp, interval, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.ceil(timestamp, text) LEAKPROOF;
ALTER FUNCTION snowflake_plan.minus(timestamptz, interval, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.plus(timestamptz, interval, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.ago(timestamptz, interval, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plan.lower(tstzrange) LEAKPROOF;
ALTER FUNCTION snowflake_plan.upper(tstzrange) LEAKPROOF;
ALTER FUNCTION snowflake_plan.lower(timestamptz[]) LEAKPROOF;
ALTER FUNCTION snowflake_plan.upper(timestamptz[]) LEAKPROOF;
ALTER FUNCTION snowflake_plan.checked(boolean) SUPPORT snowflake_plan.checked_support;

COMMENT ON SCHEMA snowflake_plan IS
    'functions that plans show for conditions on an id''s time, and that views read: not for statements of users';
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
COMMENT ON FUNCTION snowflake_plan.local(timestamptz, text, boolean) IS
    'a lower or upper limit on a local time of the zone, from the same limit on the time that it is converted to';
COMMENT ON FUNCTION snowflake_plan.instant(timestamp, text, boolean) IS
    'a lower or upper limit on a time, from the same limit on the local time that the zone''s clocks show';
COMMENT ON FUNCTION snowflake_plan.instant(timestamp, interval, boolean) IS
    'a lower or upper limit on a time, from the same limit on the local time that is an interval ahead of UTC';
COMMENT ON FUNCTION snowflake_plan.ceil(timestamp, text) IS
    'the first start of the unit, such as month, at that local time or later, NULL for a text that is not a unit';
COMMENT ON FUNCTION snowflake_plan.minus(timestamptz, interval, boolean) IS
    'a lower or upper limit on a time, from the same limit on the time that is an interval later';
COMMENT ON FUNCTION snowflake_plan.plus(timestamptz, interval, boolean) IS
    'a lower or upper limit on a time, from the same limit on the time that is an interval earlier';
COMMENT ON FUNCTION snowflake_plan.ago(timestamptz, interval, boolean) IS
    'the time that is that age before another one, with days of 24 hours; a limit that excludes nothing where such a difference may be an error';
COMMENT ON FUNCTION snowflake_plan.lower(tstzrange) IS
    'the first time of the range, NULL if it is empty';
COMMENT ON FUNCTION snowflake_plan.upper(tstzrange) IS
    'the first time after the range, NULL if it is empty';
COMMENT ON FUNCTION snowflake_plan.lower(timestamptz[]) IS
    'the least of these times, NULL without any';
COMMENT ON FUNCTION snowflake_plan.upper(timestamptz[]) IS
    'the first time after the greatest of these, NULL without any';
COMMENT ON FUNCTION snowflake_plan.checked(boolean) IS
    'its argument, which the planner expects to be true: a condition that is kept beside the bounds that it implies';
COMMENT ON FUNCTION snowflake_plan.checked_support(internal) IS
    'tells the planner that snowflake_plan.checked is true';
