-- What Rust cannot say: the view, and a comment on every object.

CREATE VIEW snowflake_layouts AS SELECT * FROM snowflake_layouts();
GRANT SELECT ON snowflake_layouts TO PUBLIC;

COMMENT ON FUNCTION snowflake_next() IS
    'draw the next id: unique across servers, ordered by time';
COMMENT ON FUNCTION snowflake_batch(integer) IS
    'draw a number of ids, ascending';
COMMENT ON FUNCTION snowflake_last() IS
    'the last id drawn in this session';
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
COMMENT ON FUNCTION snowflake_layouts() IS
    'the built-in layouts and the current one; see the view of the same name';
COMMENT ON FUNCTION snowflake_layout_fields() IS
    'the fields of the current layout, from the high bits to the low';
COMMENT ON FUNCTION snowflake_layout_fields(text) IS
    'the fields of the given layout, from the high bits to the low';
COMMENT ON VIEW snowflake_layouts IS
    'the built-in layouts, and one row, current, for the setting snowflake_id.layout';
