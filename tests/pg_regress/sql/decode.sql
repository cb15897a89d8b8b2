-- Reading ids back.
SET timezone = 'UTC';
SET datestyle = 'ISO';

SELECT * FROM snowflake_parse(1541815603606036480, 'twitter');
SELECT * FROM snowflake_parse(170505378935607296, 'pgedge');
SELECT * FROM snowflake_parse(101767036616676231, 'mastodon');
SELECT * FROM snowflake_parse(314948827708654619, 'sonyflake');
SELECT * FROM snowflake_parse(180363646902239241, 'time:29 worker:21 sequence:13 unit:1s epoch:2016-09-20T00:00:00Z');
SELECT (snowflake_parse(175928847299117063, 'discord')).*;

-- A published TSID, by its text.
SELECT p.* FROM snowflake_decode('0123456789ABC', 'base32') id, snowflake_parse(id, 'tsid') p;

-- The setting's layout is the default one; both forms agree.
SELECT * FROM snowflake_parse(249489561523081219);
SELECT snowflake_parse(249489561523081219) = snowflake_parse(249489561523081219, 'snowflake') AS same;
SELECT snowflake_timestamp(249489561523081219), snowflake_timestamp(249489561523081219, 'snowflake'),
       snowflake_timestamp(1541815603606036480, 'twitter');

-- For readers: always UTC, whatever the session's time zone.
SET timezone = 'Asia/Tokyo';
SELECT snowflake_format(249489561523081219), snowflake_format(1541815603606036480, 'twitter'),
       snowflake_format(101767036616676231, 'mastodon');
SELECT snowflake_timestamp(249489561523081219);
SET timezone = 'UTC';

-- The first and the last id of every layout, beside what layouts.sql lists.
SELECT name FROM snowflake_layouts l, snowflake_parse(0, specification) p
WHERE (p.created_at, coalesce(p.datacenter_id, 0), coalesce(p.worker_id, 0), p.sequence, p.tick) IS DISTINCT FROM (epoch, 0, 0, 0, 0::bigint);
SELECT name FROM snowflake_layouts l,
     LATERAL (SELECT (2::numeric ^ sum(bits) - 1)::bigint AS largest FROM snowflake_layout_fields(l.specification)) f,
     snowflake_parse(largest, l.specification) p
WHERE p.created_at <> last_instant OR p.worker_id IS DISTINCT FROM max_worker_id OR EXISTS (
    SELECT FROM snowflake_layout_fields(l.specification) WHERE 2::numeric ^ bits - 1 <> CASE field WHEN 'time' THEN p.tick
        WHEN 'datacenter' THEN p.datacenter_id WHEN 'worker' THEN p.worker_id ELSE p.sequence END);

-- In a view, an expression index, a generated column, a check and a partition bound.
CREATE TABLE orders (
    id bigint PRIMARY KEY DEFAULT snowflake_next() CHECK (snowflake_timestamp(id, 'snowflake') > '2025-01-01'),
    created_at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, 'snowflake')) STORED,
    note text
);
CREATE INDEX ON orders (snowflake_timestamp(id, 'snowflake'));
CREATE VIEW orders_by_worker AS SELECT (snowflake_parse(id)).worker_id, count(*) FROM orders GROUP BY 1;
INSERT INTO orders (note) SELECT 'n' FROM generate_series(1, 100);
SELECT * FROM orders_by_worker;
SELECT count(*) FROM orders WHERE created_at IS DISTINCT FROM (snowflake_parse(id)).created_at;
CREATE INDEX ON orders (snowflake_timestamp(id));
DROP TABLE orders CASCADE;

-- NULL in, NULL out.
SELECT snowflake_parse(NULL) IS NULL AS parse, snowflake_parse(1, NULL) IS NULL AS parse_layout,
       snowflake_timestamp(NULL) IS NULL AS timestamp, snowflake_format(NULL) IS NULL AS format,
       snowflake_compose(NULL, 1, 1) IS NULL AS compose;
SELECT count(*) FROM snowflake_layout_fields(NULL);

-- In parallel plans.
CREATE TABLE many AS SELECT 249489561523081219 + g AS id FROM generate_series(1, 1000) g;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
-- The function itself must run in the workers.
SET snowflake_id.enable_time_pushdown = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM many WHERE snowflake_timestamp(id) > '2025-01-01';
SELECT count(*) FROM many WHERE snowflake_timestamp(id) > '2025-01-01';
-- Drawing is not parallel, like nextval.
EXPLAIN (COSTS OFF) SELECT count(*) FROM many WHERE snowflake_next() > id;
DROP TABLE many;
