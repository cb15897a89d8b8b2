-- From 0.2.0 to 0.3.0.

-- Where the worker number comes from, and what is known of its lease.
CREATE FUNCTION snowflake_lease() RETURNS TABLE (state text, worker_id integer, backup_worker_id integer, datacenter_id integer,
    lease_from timestamptz, lease_until timestamptz, next_worker_id bigint, next_from timestamptz, registry text, incarnation text,
    last_renewal timestamptz, clock_offset_ms bigint, renewals bigint, failures bigint, last_error text, failing_since timestamptz,
    pid integer, waits bigint, wait_time double precision, refused bigint)
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_lease_wrapper';
CREATE VIEW snowflake_lease AS SELECT *, lease_until - clock_timestamp() AS time_left FROM snowflake_lease();
REVOKE ALL ON FUNCTION snowflake_lease() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_lease() TO pg_monitor;
GRANT SELECT ON snowflake_lease TO pg_monitor;
COMMENT ON FUNCTION snowflake_lease() IS
    'where the server''s worker number comes from, and what is known of its lease; see the view of the same name';
COMMENT ON VIEW snowflake_lease IS
    'where the server''s worker number comes from, and what is known of its lease; times in milliseconds';
