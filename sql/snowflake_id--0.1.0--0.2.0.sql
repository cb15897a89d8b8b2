-- From 0.1.0 to 0.2.0: statistics, tables that move in, text forms, an advance that is forced.

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

CREATE FUNCTION snowflake_stat_backend() RETURNS TABLE (pid integer, drawn bigint, waits bigint, last_id bigint)
VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_stat_backend_wrapper';

CREATE FUNCTION snowflake_stat_reset() RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_stat_reset_wrapper';

CREATE FUNCTION snowflake_convert(relation regclass, attribute name, rewrite boolean DEFAULT false,
    dry_run boolean DEFAULT false) RETURNS SETOF text
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_convert_wrapper';

CREATE FUNCTION snowflake_convert_columns(columns text[], rewrite boolean DEFAULT false, dry_run boolean DEFAULT false)
    RETURNS SETOF text
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_convert_columns_wrapper';

-- They take tables away from everybody else for a while.
REVOKE ALL ON FUNCTION snowflake_convert(regclass, name, boolean, boolean), snowflake_convert_columns(text[], boolean, boolean)
    FROM PUBLIC;

-- What the server counts concerns those who operate it.
CREATE VIEW snowflake_stat AS SELECT * FROM snowflake_stat();
CREATE VIEW snowflake_stat_backend AS SELECT * FROM snowflake_stat_backend();
REVOKE ALL ON FUNCTION snowflake_stat(), snowflake_stat_backend(), snowflake_stat_reset() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_stat(), snowflake_stat_backend() TO pg_monitor;
GRANT SELECT ON snowflake_stat, snowflake_stat_backend TO pg_monitor;

COMMENT ON FUNCTION snowflake_convert(regclass, name, boolean, boolean) IS
    'turn a serial, identity or bigint column into one whose default is snowflake_next()';
COMMENT ON FUNCTION snowflake_convert_columns(text[], boolean, boolean) IS
    'turn columns of any tables into such ones at once';
COMMENT ON FUNCTION snowflake_stat() IS
    'what the server has drawn, waited for and met; see the view of the same name';
COMMENT ON FUNCTION snowflake_stat_backend() IS
    'what each session has drawn; see the view of the same name';
COMMENT ON FUNCTION snowflake_stat_reset() IS
    'count what snowflake_stat shows from now on';
COMMENT ON VIEW snowflake_stat IS
    'what the server has drawn, waited for and met since stats_reset, its last id, and its settings; times in milliseconds';
COMMENT ON VIEW snowflake_stat_backend IS
    'the sessions that draw ids, and what each has drawn since it began';

CREATE FUNCTION snowflake_encode(id bigint, encoding text) RETURNS text
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_encode_wrapper';

CREATE FUNCTION snowflake_decode(text text, encoding text) RETURNS bigint
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_decode_wrapper';

COMMENT ON FUNCTION snowflake_encode(bigint, text) IS
    'an id as a short text, in base32 or base62, which sorts as the id does under COLLATE "C"';
COMMENT ON FUNCTION snowflake_decode(text, text) IS
    'the id that a text in base32 or base62 stands for';

CREATE FUNCTION snowflake_advance(id bigint, force boolean) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_advance_with_wrapper';

-- It concerns everybody who draws.
REVOKE ALL ON FUNCTION snowflake_advance(bigint, boolean) FROM PUBLIC;

COMMENT ON FUNCTION snowflake_advance(bigint, boolean) IS
    'never again draw an id at or below the given one in this database; if the second argument is true, however far ahead of the clock it is';
