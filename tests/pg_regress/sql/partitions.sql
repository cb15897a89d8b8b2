-- Partitions by time: the bounds are ids, and conditions on the time select partitions.
SET timezone = 'UTC';
SET datestyle = 'ISO';
-- One way to read a partition is enough to show which ones are read.
SET enable_indexscan = off;
SET enable_bitmapscan = off;
SET enable_material = off;
SET enable_memoize = off;
SET max_parallel_workers_per_gather = 0;
\pset format unaligned
\pset tuples_only on

CREATE TABLE hits (id bigint PRIMARY KEY, page integer, text text) PARTITION BY RANGE (id);
CREATE TABLE hits_01 PARTITION OF hits FOR VALUES FROM (snowflake_min('2026-01-01Z', 'snowflake')) TO (snowflake_min('2026-02-01Z', 'snowflake'));
CREATE TABLE hits_02 PARTITION OF hits FOR VALUES FROM (snowflake_min('2026-02-01Z', 'snowflake')) TO (snowflake_min('2026-03-01Z', 'snowflake'));
CREATE TABLE hits_03 PARTITION OF hits FOR VALUES FROM (snowflake_min('2026-03-01Z', 'snowflake')) TO (snowflake_min('2026-04-01Z', 'snowflake'))
    PARTITION BY RANGE (id);
CREATE TABLE hits_03_begin PARTITION OF hits_03 FOR VALUES FROM (snowflake_min('2026-03-01Z', 'snowflake')) TO (snowflake_min('2026-03-16Z', 'snowflake'));
CREATE TABLE hits_03_end PARTITION OF hits_03 FOR VALUES FROM (snowflake_min('2026-03-16Z', 'snowflake')) TO (snowflake_min('2026-04-01Z', 'snowflake'));
INSERT INTO hits SELECT snowflake_compose('2026-01-01Z'::timestamptz + n * interval '1 hour', 1, 0), n % 10, rpad('hit', 300)
FROM generate_series(0, 2159) n;
-- The last id before a bound and the first one after it.
INSERT INTO hits VALUES (snowflake_compose('2026-01-31 23:59:59.999Z', 1023, 4095)), (snowflake_compose('2026-02-01Z', 0, 0));
CREATE TABLE pages (number integer, first timestamptz);
INSERT INTO pages VALUES (1, '2026-03-31Z'), (2, '2026-03-31 12:00Z');
ANALYZE hits, pages;
SELECT tableoid::regclass, count(*), min(snowflake_timestamp(id)), max(snowflake_timestamp(id)) FROM hits GROUP BY tableoid ORDER BY 1;

-- The partitions that a query reads, its conditions, and whether its rows are the same without
-- pushdown.
CREATE FUNCTION pruned(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
    differences bigint;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off, BUFFERS off) ' || query LOOP
        IF line ~ ' on |Removed:|Filter' AND line !~ 'Rows Removed' THEN
            -- PostgreSQL 17 writes the result of an InitPlan in another way.
            RETURN NEXT regexp_replace(regexp_replace(line, ' *\(actual .*\)', ''), '\$0|\(InitPlan 1\)\.col1', 'InitPlan 1');
        END IF;
    END LOOP;
    EXECUTE 'CREATE TEMP TABLE pushed AS ' || query;
    DISCARD PLANS;
    SET LOCAL snowflake_id.enable_time_pushdown = off;
    EXECUTE 'CREATE TEMP TABLE plain AS ' || query;
    SET LOCAL snowflake_id.enable_time_pushdown = on;
    DISCARD PLANS;
    SELECT count(*) INTO differences FROM (
        (TABLE pushed EXCEPT ALL TABLE plain) UNION ALL (TABLE plain EXCEPT ALL TABLE pushed)) d;
    RETURN NEXT (SELECT count(*) FROM pushed) || ' rows, ' || CASE differences WHEN 0 THEN 'the same' ELSE differences || ' differ' END;
    DROP TABLE pushed, plain;
END $$;

-- Pruned when the query is planned: constants, whatever their type and form.
SELECT pruned($$SELECT * FROM hits WHERE snowflake_timestamp(id) >= '2026-03-20Z'$$);
SELECT pruned($$SELECT * FROM hits WHERE snowflake_timestamp(id) < '2026-02-01Z'$$);
SELECT pruned($$SELECT * FROM hits WHERE snowflake_timestamp(id) <= '2026-02-01Z'$$);
SELECT pruned($$SELECT * FROM hits WHERE snowflake_timestamp(id) > '2026-01-31 23:59:59.998999Z' AND snowflake_timestamp(id) < '2026-02-01Z'$$);
SELECT pruned($$SELECT * FROM hits WHERE snowflake_timestamp(id, 'snowflake') BETWEEN '2026-02-10Z' AND '2026-02-11Z'$$);
SELECT pruned($$SELECT * FROM hits WHERE (snowflake_parse(id)).created_at >= timestamptz '2026-03-30Z'$$);
SELECT pruned($$SELECT * FROM hits WHERE snowflake_timestamp(id) < '2026-01-02Z' OR snowflake_timestamp(id) >= '2026-03-31Z'$$);
SELECT pruned($$SELECT * FROM hits WHERE snowflake_timestamp(id) < '2025-06-01Z'$$);

-- From the bound itself on, without the partition before it.
SELECT pruned($$SELECT * FROM hits WHERE snowflake_timestamp(id) >= '2026-02-01Z' AND snowflake_timestamp(id) < '2026-03-01Z'$$);
SELECT pruned($$SELECT * FROM hits WHERE snowflake_timestamp(id) > '2026-02-28 23:59:59.999Z' AND snowflake_timestamp(id) <= '2026-03-15 23:59:59.999Z'$$);

-- Pruned when it starts: the session's zone, a parameter, the time of day.
SELECT pruned($$SELECT * FROM hits WHERE snowflake_timestamp(id) >= date '2026-03-20'$$);
PREPARE since(timestamptz) AS SELECT * FROM hits WHERE snowflake_timestamp(id) >= $1;
SET plan_cache_mode = force_custom_plan;
SELECT pruned($$EXECUTE since('2026-03-20Z')$$);
SET plan_cache_mode = force_generic_plan;
SELECT pruned($$EXECUTE since('2026-03-20Z')$$);
SELECT pruned($$EXECUTE since('2026-03-01Z')$$);
SELECT pruned($$EXECUTE since('infinity')$$);
RESET plan_cache_mode;
DEALLOCATE since;

-- Pruned while it runs: for each row of another table.
SELECT pruned($$SELECT * FROM pages p JOIN hits h ON snowflake_timestamp(h.id) >= p.first$$);
SELECT pruned($$SELECT * FROM hits WHERE snowflake_timestamp(id) > (SELECT max(first) FROM pages)$$);

-- Two days ago, and now, are where one partition ends and the next begins.
CREATE TABLE days (id bigint PRIMARY KEY, text text) PARTITION BY RANGE (id);
DO $$
BEGIN
    EXECUTE format('CREATE TABLE days_before PARTITION OF days FOR VALUES FROM (0) TO (%s)', snowflake_min(now() - interval '2 days'));
    EXECUTE format('CREATE TABLE days_two PARTITION OF days FOR VALUES FROM (%s) TO (%s)',
                   snowflake_min(now() - interval '2 days'), snowflake_min(now()));
    EXECUTE format('CREATE TABLE days_ahead PARTITION OF days FOR VALUES FROM (%s) TO (MAXVALUE)', snowflake_min(now()));
END $$;
INSERT INTO days SELECT snowflake_compose(now() + (n + 0.5) * interval '1 hour', 1, 0), rpad('hit', 1000) FROM generate_series(-96, 23) n;
ANALYZE days;
SELECT pruned($$SELECT * FROM days WHERE snowflake_timestamp(id) >= now() - interval '1 day'$$);
SELECT pruned($$SELECT * FROM days WHERE snowflake_timestamp(id) < now() - interval '3 days'$$);
SELECT pruned($$SELECT * FROM days WHERE snowflake_timestamp(id) > localtimestamp + interval '1 hour'$$);

-- What is pruned is not locked or written either: only one partition is deleted from.
EXPLAIN (COSTS off) DELETE FROM hits WHERE snowflake_timestamp(id) < '2026-01-02Z';
EXPLAIN (COSTS off) UPDATE hits SET page = 0 WHERE snowflake_timestamp(id) >= '2026-03-30Z';
BEGIN;
DELETE FROM hits WHERE snowflake_timestamp(id) < '2026-01-02Z';
SELECT relation::regclass FROM pg_locks WHERE relation::regclass::text ~ '^hits_..$' AND mode = 'RowExclusiveLock';
SELECT count(*) FROM hits WHERE snowflake_timestamp(id) < '2026-01-03Z';
ROLLBACK;

-- Create by time: months of a zone with summer time, each beginning where the one before it ends.
SET timezone = 'Europe/Berlin';
CREATE TABLE months (id bigint) PARTITION BY RANGE (id);
SELECT format('CREATE TABLE months_%s PARTITION OF months FOR VALUES FROM (%s) TO (%s)',
              to_char(month, 'YYYY_MM'), snowflake_min(month, 'snowflake'), snowflake_min(month + interval '1 month', 'snowflake'))
FROM generate_series('2026-03-01'::timestamptz, '2026-05-31', interval '1 month') month
\gexec
SELECT inhrelid::regclass, snowflake_timestamp(bounds[1]::bigint), snowflake_timestamp(bounds[2]::bigint)
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid,
     regexp_match(pg_get_expr(relpartbound, inhrelid), 'FROM \(''(\d+)''\) TO \(''(\d+)''\)') bounds
WHERE inhparent = 'months'::regclass ORDER BY inhrelid::regclass::text;
INSERT INTO months SELECT snowflake_compose('2026-03-31 23:59:59.999'::timestamptz + n * interval '1 ms', 1, 0) FROM generate_series(0, 1) n;
SELECT tableoid::regclass FROM months ORDER BY id;
SET timezone = 'UTC';

-- Attach by time: a constraint with the same condition as the bounds saves the scan of the table,
-- which only the second table needs.
CREATE TABLE hits_04 (LIKE hits INCLUDING ALL);
CREATE TABLE hits_05 (LIKE hits INCLUDING ALL);
INSERT INTO hits_04 VALUES (snowflake_compose('2026-04-30 23:59:59.999Z', 1023, 4095));
INSERT INTO hits_05 VALUES (snowflake_compose('2026-05-01Z', 0, 0));
ALTER TABLE hits_04 ADD CONSTRAINT april CHECK (id >= snowflake_min('2026-04-01Z', 'snowflake') AND id < snowflake_min('2026-05-01Z', 'snowflake'));
SELECT pg_stat_force_next_flush() IS NOT NULL;
BEGIN;
ALTER TABLE hits ATTACH PARTITION hits_04 FOR VALUES FROM (snowflake_min('2026-04-01Z', 'snowflake')) TO (snowflake_min('2026-05-01Z', 'snowflake'));
ALTER TABLE hits ATTACH PARTITION hits_05 FOR VALUES FROM (snowflake_min('2026-05-01Z', 'snowflake')) TO (snowflake_min('2026-06-01Z', 'snowflake'));
SELECT pg_stat_get_xact_numscans('hits_04'::regclass) AS with_constraint, pg_stat_get_xact_numscans('hits_05'::regclass) AS without;
COMMIT;
ALTER TABLE hits_04 DROP CONSTRAINT april;
SELECT pruned($$SELECT * FROM hits WHERE snowflake_timestamp(id) >= '2026-04-15Z'$$);
-- A row outside its bounds is noticed.
CREATE TABLE hits_06 (LIKE hits INCLUDING ALL);
INSERT INTO hits_06 VALUES (snowflake_compose('2026-07-01Z', 0, 0));
ALTER TABLE hits ATTACH PARTITION hits_06 FOR VALUES FROM (snowflake_min('2026-06-01Z', 'snowflake')) TO (snowflake_min('2026-07-01Z', 'snowflake'));

-- Detach by time: all partitions that end before March.
SELECT format('ALTER TABLE hits DETACH PARTITION %s CONCURRENTLY', inhrelid::regclass), format('DROP TABLE %s', inhrelid::regclass)
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = 'hits'::regclass
  AND snowflake_timestamp(substring(pg_get_expr(relpartbound, inhrelid) FROM 'TO \(''(\d+)''\)')::bigint) <= '2026-03-01Z'
ORDER BY inhrelid::regclass::text
\gexec
SELECT pruned($$SELECT * FROM hits WHERE snowflake_timestamp(id) < '2026-03-02Z'$$);

DROP FUNCTION pruned(text);
DROP TABLE hits, hits_06, days, pages, months;
