-- From times to ids: the smallest id of a time or later.
SET timezone = 'UTC';
SELECT snowflake_min('2025-01-01Z', 'snowflake') AS epoch, snowflake_min('2026-01-01Z', 'snowflake') AS new_year,
       snowflake_min('2026-01-01Z') = snowflake_min('2026-01-01Z', 'snowflake') AS current;
SELECT snowflake_format(snowflake_min('2026-01-01Z', 'twitter'), 'twitter');
-- Rounds up to a tick: a microsecond later is the next one.
SELECT layout, t, snowflake_timestamp(snowflake_min(t, layout), layout) AS first, snowflake_timestamp(snowflake_min(t, layout) - 1, layout) AS before
FROM (VALUES ('snowflake'), ('sonyflake'), ('js53')) l(layout),
     (VALUES ('2026-01-01 00:00:00Z'::timestamptz), ('2026-01-01 00:00:00.000001Z'), ('2026-01-01 00:00:00.001Z')) i(t)
ORDER BY layout, t;

-- Exact: the ids of a span of time, whatever their worker and sequence.
SELECT count(*), count(*) FILTER (WHERE in_ids = in_time) AS agree FROM (
    SELECT id >= snowflake_min(a, 'twitter') AND id < snowflake_min(b, 'twitter') AS in_ids,
           snowflake_timestamp(id, 'twitter') >= a AND snowflake_timestamp(id, 'twitter') < b AS in_time
    FROM generate_series(-3, 3) ms, generate_series(0, 31, 31) worker, generate_series(0, 4095, 4095) sequence,
         LATERAL (SELECT snowflake_compose('2026-01-01Z'::timestamptz + ms * interval '1 ms', worker, sequence, 31 - worker,
                                           'twitter')) c(id),
         (VALUES ('2025-12-31 23:59:59.9985Z'::timestamptz, '2026-01-01 00:00:00.002Z'::timestamptz),
                 ('2026-01-01Z', '2026-01-01Z'), ('2026-01-01 00:00:00.000001Z', '2026-01-01 00:00:00.001001Z')) s(a, b)) c;

-- It serves as a partition's bound, and in an index condition.
CREATE TABLE ticks (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE ticks_2025 PARTITION OF ticks
    FOR VALUES FROM (snowflake_min('2025-01-01Z', 'snowflake')) TO (snowflake_min('2026-01-01Z', 'snowflake'));
CREATE TABLE ticks_2026 PARTITION OF ticks
    FOR VALUES FROM (snowflake_min('2026-01-01Z', 'snowflake')) TO (snowflake_min('2027-01-01Z', 'snowflake'));
INSERT INTO ticks VALUES (snowflake_compose('2025-12-31 23:59:59.999Z', 1023, 4095)), (snowflake_compose('2026-01-01Z', 0, 0));
SELECT tableoid::regclass, snowflake_timestamp(id) FROM ticks ORDER BY id;
EXPLAIN (COSTS off) SELECT FROM ticks WHERE id >= snowflake_min('2026-06-01Z', 'snowflake');
DROP TABLE ticks;

-- The last tick has a first id; NULL has none.
SELECT snowflake_min('2155-02-07 06:28:15Z', 'js53'), snowflake_min(NULL, 'snowflake') IS NULL AS strict;
