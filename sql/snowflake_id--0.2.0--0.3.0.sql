-- From 0.2.0 to 0.3.0: leases, bounds for ages, ranges, arrays of times and local times.

-- Where the worker number comes from, and what is known of its lease.
CREATE FUNCTION snowflake_lease() RETURNS TABLE (state text, worker_id integer, backup_worker_id integer, datacenter_id integer,
    lease_from timestamptz, lease_until timestamptz, next_worker_id bigint, next_from timestamptz,
    gap_from timestamptz, gap_until timestamptz, registry text, incarnation text,
    fleet uuid, numbers bigint, free_numbers bigint, last_renewal timestamptz, clock_offset_ms bigint, renewals bigint, failures bigint,
    last_error text, last_error_time timestamptz, failing_since timestamptz, pid integer, waits bigint, wait_time double precision, refused bigint, fleet_refused bigint)
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_lease_wrapper';
CREATE VIEW snowflake_lease AS SELECT *, lease_until - clock_timestamp() AS time_left FROM snowflake_lease();
REVOKE ALL ON FUNCTION snowflake_lease() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_lease() TO pg_monitor;
GRANT SELECT ON snowflake_lease TO pg_monitor;
COMMENT ON FUNCTION snowflake_lease() IS
    'where the server''s worker number comes from, and what is known of its lease; see the view of the same name';
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

-- Dense values, in blocks that the registry hands out.
CREATE FUNCTION snowflake_segment_next(tag text) RETURNS bigint
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_segment_next_entry';
CREATE FUNCTION snowflake_segment_batch(tag text, count integer) RETURNS SETOF bigint
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_segment_batch_wrapper';
CREATE FUNCTION snowflake_segment_stat() RETURNS TABLE (tag text, state text, current_from bigint, current_left bigint,
    next_from bigint, next_left bigint, step bigint, blocks bigint, last_block_lasted double precision, waits bigint,
    wait_time double precision, refused bigint, last_error text, failing_since timestamptz)
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_segment_stat_wrapper';
CREATE VIEW snowflake_segment_stat AS SELECT * FROM snowflake_segment_stat();
REVOKE ALL ON FUNCTION snowflake_segment_stat() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_segment_stat() TO pg_monitor;
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
COMMENT ON FUNCTION snowflake_segment_stat() IS
    'the tags that this server draws from; see the view of the same name';
COMMENT ON VIEW snowflake_segment_stat IS
    'the tags that this server draws from, what is left of their blocks, and how long sessions have waited; times in milliseconds';

-- First and last ids for ages, ranges and arrays

CREATE FUNCTION snowflake_from(ts timestamptz, age interval, layout text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_from_aged_wrapper';

CREATE FUNCTION snowflake_after(ts timestamptz, age interval, layout text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_after_aged_wrapper';

CREATE FUNCTION snowflake_before(ts timestamptz, age interval, layout text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_before_aged_wrapper';

CREATE FUNCTION snowflake_until(ts timestamptz, age interval, layout text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_until_aged_wrapper';

CREATE FUNCTION snowflake_lower(during tstzrange, layout text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_lower_wrapper';

CREATE FUNCTION snowflake_upper(during tstzrange, layout text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_upper_wrapper';

CREATE FUNCTION snowflake_lower(times timestamptz[], layout text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_lower_of_array_wrapper';

CREATE FUNCTION snowflake_upper(times timestamptz[], layout text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_upper_of_array_wrapper';

-- First and last ids for local times

CREATE FUNCTION snowflake_from(day date, zone text, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_from_day_of_zone_wrapper';

CREATE FUNCTION snowflake_after(day date, zone text, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_after_day_of_zone_wrapper';

CREATE FUNCTION snowflake_before(day date, zone text, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_before_day_of_zone_wrapper';

CREATE FUNCTION snowflake_until(day date, zone text, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_until_day_of_zone_wrapper';

CREATE FUNCTION snowflake_from(local timestamp, zone text, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_from_local_wrapper';

CREATE FUNCTION snowflake_after(local timestamp, zone text, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_after_local_wrapper';

CREATE FUNCTION snowflake_before(local timestamp, zone text, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_before_local_wrapper';

CREATE FUNCTION snowflake_until(local timestamp, zone text, layout text) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_until_local_wrapper';

-- Steps back, from a limit on what is computed from a time to a limit on that time

CREATE FUNCTION snowflake_instant(ts timestamptz, after boolean) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_instant_wrapper';

CREATE FUNCTION snowflake_instant(ts date, after boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_instant_of_day_wrapper';

CREATE FUNCTION snowflake_instant(ts timestamp, after boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_instant_of_local_wrapper';

CREATE FUNCTION snowflake_local(local timestamp, after boolean) RETURNS timestamp
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_local_wrapper';

CREATE FUNCTION snowflake_local(day date, after boolean) RETURNS timestamp
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_local_of_day_wrapper';

CREATE FUNCTION snowflake_local(year numeric, after boolean) RETURNS timestamp
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_local_of_year_wrapper';

CREATE FUNCTION snowflake_local(ts timestamptz, zone text, upper boolean) RETURNS timestamp
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_local_in_zone_wrapper';

CREATE FUNCTION snowflake_instant(local timestamp, zone text, upper boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_instant_in_zone_wrapper';

CREATE FUNCTION snowflake_instant(local timestamp, zone interval, upper boolean) RETURNS timestamptz
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_instant_at_offset_wrapper';

CREATE FUNCTION snowflake_ceil(local timestamp, unit text) RETURNS timestamp
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_ceil_wrapper';

CREATE FUNCTION snowflake_minus(ts timestamptz, shift interval, upper boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_minus_wrapper';

CREATE FUNCTION snowflake_plus(ts timestamptz, shift interval, upper boolean) RETURNS timestamptz
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_plus_wrapper';

-- What keeps the planner from counting a kept condition twice

CREATE FUNCTION snowflake_checked(condition boolean) RETURNS boolean
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_checked_wrapper';

CREATE FUNCTION snowflake_checked_support(request internal) RETURNS internal
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_checked_support_wrapper';

-- As the other bounds (sql/snowflake_id--0.3.0.sql).
ALTER FUNCTION snowflake_from(timestamptz, interval, text) LEAKPROOF;
ALTER FUNCTION snowflake_after(timestamptz, interval, text) LEAKPROOF;
ALTER FUNCTION snowflake_before(timestamptz, interval, text) LEAKPROOF;
ALTER FUNCTION snowflake_until(timestamptz, interval, text) LEAKPROOF;
ALTER FUNCTION snowflake_lower(tstzrange, text) LEAKPROOF;
ALTER FUNCTION snowflake_upper(tstzrange, text) LEAKPROOF;
ALTER FUNCTION snowflake_lower(timestamptz[], text) LEAKPROOF;
ALTER FUNCTION snowflake_upper(timestamptz[], text) LEAKPROOF;
ALTER FUNCTION snowflake_from(date, text, text) LEAKPROOF;
ALTER FUNCTION snowflake_after(date, text, text) LEAKPROOF;
ALTER FUNCTION snowflake_before(date, text, text) LEAKPROOF;
ALTER FUNCTION snowflake_until(date, text, text) LEAKPROOF;
ALTER FUNCTION snowflake_from(timestamp, text, text) LEAKPROOF;
ALTER FUNCTION snowflake_after(timestamp, text, text) LEAKPROOF;
ALTER FUNCTION snowflake_before(timestamp, text, text) LEAKPROOF;
ALTER FUNCTION snowflake_until(timestamp, text, text) LEAKPROOF;
ALTER FUNCTION snowflake_instant(timestamptz, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_instant(date, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_instant(timestamp, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_local(timestamp, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_local(date, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_local(numeric, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_local(timestamptz, text, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_instant(timestamp, text, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_instant(timestamp, interval, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_ceil(timestamp, text) LEAKPROOF;
ALTER FUNCTION snowflake_minus(timestamptz, interval, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_plus(timestamptz, interval, boolean) LEAKPROOF;
ALTER FUNCTION snowflake_checked(boolean) SUPPORT snowflake_checked_support;

COMMENT ON FUNCTION snowflake_from(timestamptz, interval, text) IS
    'the first id of the given layout whose time is that age before that time or later, NULL if there is none';
COMMENT ON FUNCTION snowflake_after(timestamptz, interval, text) IS
    'the first id of the given layout whose time is after that age before that time, NULL if there is none';
COMMENT ON FUNCTION snowflake_before(timestamptz, interval, text) IS
    'the last id of the given layout whose time is before that age before that time, -1 if there is none';
COMMENT ON FUNCTION snowflake_until(timestamptz, interval, text) IS
    'the last id of the given layout whose time is that age before that time or earlier, -1 if there is none';
COMMENT ON FUNCTION snowflake_lower(tstzrange, text) IS
    'the first id of the given layout that can have a time in that range, NULL if there is none';
COMMENT ON FUNCTION snowflake_upper(tstzrange, text) IS
    'the last id of the given layout that can have a time in that range, -1 if there is none, NULL for an empty range';
COMMENT ON FUNCTION snowflake_lower(timestamptz[], text) IS
    'the first id of the given layout whose time is the least of these or later, NULL if there is none';
COMMENT ON FUNCTION snowflake_upper(timestamptz[], text) IS
    'the last id of the given layout whose time is the greatest of these or before, -1 if there is none, NULL without any';
COMMENT ON FUNCTION snowflake_from(date, text, text) IS
    'the first id of the given layout that can be of that day of the zone or of a later one, NULL if there is none';
COMMENT ON FUNCTION snowflake_after(date, text, text) IS
    'the first id of the given layout that can be of a later day of the zone, NULL if there is none';
COMMENT ON FUNCTION snowflake_before(date, text, text) IS
    'the last id of the given layout that can be of an earlier day of the zone, -1 if there is none';
COMMENT ON FUNCTION snowflake_until(date, text, text) IS
    'the last id of the given layout that can be of that day of the zone or of an earlier one, -1 if there is none';
COMMENT ON FUNCTION snowflake_from(timestamp, text, text) IS
    'the first id of the given layout whose local time in the zone can be that or later, NULL if there is none';
COMMENT ON FUNCTION snowflake_after(timestamp, text, text) IS
    'the first id of the given layout whose local time in the zone can be after that, NULL if there is none';
COMMENT ON FUNCTION snowflake_before(timestamp, text, text) IS
    'the last id of the given layout whose local time in the zone can be before that, -1 if there is none';
COMMENT ON FUNCTION snowflake_until(timestamp, text, text) IS
    'the last id of the given layout whose local time in the zone can be that or before, -1 if there is none';
COMMENT ON FUNCTION snowflake_instant(timestamptz, boolean) IS
    'that time; if the second argument is true, the next one, a microsecond later';
COMMENT ON FUNCTION snowflake_instant(date, boolean) IS
    'the start of that day in the session''s time zone; if the second argument is true, a microsecond later';
COMMENT ON FUNCTION snowflake_instant(timestamp, boolean) IS
    'the time that this local one is in the session''s time zone; if the second argument is true, a microsecond later';
COMMENT ON FUNCTION snowflake_local(timestamp, boolean) IS
    'that local time; if the second argument is true, the next one, a microsecond later';
COMMENT ON FUNCTION snowflake_local(date, boolean) IS
    'the start of that day; if the second argument is true, a microsecond later';
COMMENT ON FUNCTION snowflake_local(numeric, boolean) IS
    'the start of the first year that is not below that number; if the second argument is true, of the first one above it';
COMMENT ON FUNCTION snowflake_local(timestamptz, text, boolean) IS
    'a lower or upper limit on a local time of the zone, from the same limit on the time that it is converted to';
COMMENT ON FUNCTION snowflake_instant(timestamp, text, boolean) IS
    'a lower or upper limit on a time, from the same limit on the local time that the zone''s clocks show';
COMMENT ON FUNCTION snowflake_instant(timestamp, interval, boolean) IS
    'a lower or upper limit on a time, from the same limit on the local time that is an interval ahead of UTC';
COMMENT ON FUNCTION snowflake_ceil(timestamp, text) IS
    'the first start of the unit, such as month, at that local time or later, NULL for a text that is not a unit';
COMMENT ON FUNCTION snowflake_minus(timestamptz, interval, boolean) IS
    'a lower or upper limit on a time, from the same limit on the time that is an interval later';
COMMENT ON FUNCTION snowflake_plus(timestamptz, interval, boolean) IS
    'a lower or upper limit on a time, from the same limit on the time that is an interval earlier';
COMMENT ON FUNCTION snowflake_checked(boolean) IS
    'its argument, which the planner expects to be true: a condition that is kept beside the bounds that it implies';
COMMENT ON FUNCTION snowflake_checked_support(internal) IS
    'tells the planner that snowflake_checked is true';
