-- Conditions on an id's time are conditions on the id: each with its plan, and its rows compared
-- with those without pushdown.
SET timezone = 'UTC';
SET datestyle = 'ISO';
-- These settings leave one plan for each case. The rows are wide and an index reads few of them, by
-- index scans and nested loops.
SET enable_bitmapscan = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET enable_memoize = off;
SET max_parallel_workers_per_gather = 0;
\pset format unaligned
\pset tuples_only on

-- A hit each minute, from the first to the seventh of January 2026.
CREATE TABLE hits (id bigint PRIMARY KEY, page integer NOT NULL, text text);
INSERT INTO hits SELECT snowflake_compose('2026-01-01Z'::timestamptz + n * interval '1 minute', n % 8, n % 4096), n % 10, rpad('hit', 300)
FROM generate_series(0, 10079) n;
-- A hit each hour for ten days, the last one half an hour ago.
CREATE TABLE recent (id bigint PRIMARY KEY, text text);
INSERT INTO recent SELECT snowflake_compose(now() - (n + 0.5) * interval '1 hour', 1, 0), rpad('hit', 1000) FROM generate_series(0, 239) n;
CREATE TABLE pages (number integer PRIMARY KEY, first timestamptz, day date, instant timestamp);
INSERT INTO pages SELECT n, t, t::date, t FROM (SELECT n, '2026-01-07 12:00Z'::timestamptz + n * interval '1 hour' FROM generate_series(0, 3) n) p(n, t);
ANALYZE hits, recent, pages;

-- The plan of a query, and whether its rows are the same without pushdown.
CREATE FUNCTION shown(query text, counted boolean DEFAULT true) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
    counts bigint;
    differences bigint;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS off) ' || query LOOP
        -- PostgreSQL 17 writes the result of an InitPlan in another way.
        RETURN NEXT regexp_replace(regexp_replace(line, '\$0|\(InitPlan 1\)\.col1', 'InitPlan 1'), ' \(returns .*\)', '');
    END LOOP;
    EXECUTE 'CREATE TEMP TABLE pushed AS ' || query;
    DISCARD PLANS;
    SET LOCAL snowflake_id.enable_time_pushdown = off;
    EXECUTE 'CREATE TEMP TABLE plain AS ' || query;
    SET LOCAL snowflake_id.enable_time_pushdown = on;
    DISCARD PLANS;
    SELECT count(*) INTO counts FROM pushed;
    SELECT count(*) INTO differences FROM (
        (TABLE pushed EXCEPT ALL TABLE plain) UNION ALL (TABLE plain EXCEPT ALL TABLE pushed)) d;
    DROP TABLE pushed, plain;
    RETURN NEXT CASE WHEN differences > 0 THEN differences || ' rows differ' WHEN counted THEN counts || ' rows, the same'
        ELSE 'the same rows' END;
END $$;

-- The same for a statement that changes hits, which is undone each time.
CREATE FUNCTION changed(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    pushed text := '';
    plain text := '';
    counts bigint;
BEGIN
    RETURN QUERY EXECUTE 'EXPLAIN (COSTS off) ' || statement;
    BEGIN
        EXECUTE statement;
        GET DIAGNOSTICS counts = ROW_COUNT;
        SELECT md5(string_agg(h::text, ',' ORDER BY id)) INTO pushed FROM hits h;
        RAISE EXCEPTION 'undo' USING ERRCODE = 'U0001';
    EXCEPTION WHEN SQLSTATE 'U0001' THEN
    END;
    BEGIN
        SET LOCAL snowflake_id.enable_time_pushdown = off;
        EXECUTE statement;
        SELECT md5(string_agg(h::text, ',' ORDER BY id)) INTO plain FROM hits h;
        RAISE EXCEPTION 'undo' USING ERRCODE = 'U0001';
    EXCEPTION WHEN SQLSTATE 'U0001' THEN
    END;
    RETURN NEXT counts || CASE WHEN pushed = plain THEN ' rows, the same' ELSE ' rows, but others without pushdown' END;
END $$;

-- Without pushdown the function is called for each row.
SET snowflake_id.enable_time_pushdown = off;
EXPLAIN (COSTS off) SELECT * FROM hits WHERE snowflake_timestamp(id) >= '2026-01-07Z';
RESET snowflake_id.enable_time_pushdown;

-- Each operator, on either side.
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) < '2026-01-02Z'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) <= '2026-01-02Z'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) > '2026-01-07Z'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) >= '2026-01-07Z'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) BETWEEN '2026-01-03Z' AND '2026-01-04Z'$$);
SELECT shown($$SELECT * FROM hits WHERE '2026-01-02Z' > snowflake_timestamp(id)$$);
SELECT shown($$SELECT * FROM hits WHERE '2026-01-02Z' >= snowflake_timestamp(id)$$);
SELECT shown($$SELECT * FROM hits WHERE '2026-01-07Z' < snowflake_timestamp(id)$$);
SELECT shown($$SELECT * FROM hits WHERE '2026-01-07Z' <= snowflake_timestamp(id)$$);
-- Below OR and NOT, and beside other conditions.
SELECT shown($$SELECT * FROM hits WHERE page = 3 AND NOT snowflake_timestamp(id) < '2026-01-07Z'$$);
SET enable_bitmapscan = on;
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) < '2026-01-01 01:00Z' OR snowflake_timestamp(id) >= '2026-01-07 23:00Z'$$);
SET enable_bitmapscan = off;
-- Two columns of one table, or a volatile time, cannot be looked up in an index.
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) > timestamptz '2026-01-07Z' - page * interval '1 day'$$);
EXPLAIN (COSTS off) SELECT * FROM hits WHERE snowflake_timestamp(id) > clock_timestamp();

-- Against date and timestamp, as the comparison itself reads them: in the session's zone.
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) >= date '2026-01-07'$$);
SELECT shown($$SELECT * FROM hits WHERE date '2026-01-07' > snowflake_timestamp(id) AND snowflake_timestamp(id) > date '2026-01-06'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) <= timestamp '2026-01-01 12:00'$$);
SELECT shown($$SELECT * FROM recent WHERE snowflake_timestamp(id) >= current_date$$, false);
SELECT shown($$SELECT * FROM recent WHERE snowflake_timestamp(id) < localtimestamp - interval '9 days'$$);
SET timezone = 'Asia/Tokyo';
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) >= date '2026-01-07'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) < timestamp '2026-01-01 12:00'$$);
SET timezone = 'UTC';

-- Times that are known only when the query runs.
SELECT shown($$SELECT * FROM recent WHERE snowflake_timestamp(id) >= now() - interval '1 day'$$);
SELECT shown($$SELECT * FROM recent WHERE snowflake_timestamp(id) < now() - interval '1 day' AND snowflake_timestamp(id) > now() - interval '2 days'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) > (SELECT max(first) FROM pages)$$);

-- In parallel plans too.
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
SELECT shown($$SELECT count(text) FROM hits WHERE snowflake_timestamp(id) >= timestamp '2026-01-07 00:00'$$);
SET max_parallel_workers_per_gather = 0;

-- Parameters: a custom plan knows their values, a generic one does not.
PREPARE since(timestamptz) AS SELECT * FROM hits WHERE snowflake_timestamp(id) >= $1;
PREPARE between_days(date, date) AS SELECT * FROM hits WHERE snowflake_timestamp(id) >= $1 AND snowflake_timestamp(id) < $2;
PREPARE until(timestamp) AS SELECT * FROM hits WHERE snowflake_timestamp(id) <= $1;
SET plan_cache_mode = force_custom_plan;
SELECT shown($$EXECUTE since('2026-01-07Z')$$);
SELECT shown($$EXECUTE between_days('2026-01-02', '2026-01-03')$$);
SELECT shown($$EXECUTE until('2026-01-01 12:00')$$);
SELECT shown($$EXECUTE since(NULL)$$);
SET plan_cache_mode = force_generic_plan;
SELECT shown($$EXECUTE since('2026-01-07Z')$$);
SELECT shown($$EXECUTE between_days('2026-01-02', '2026-01-03')$$);
SELECT shown($$EXECUTE until('2026-01-01 12:00')$$);
SELECT shown($$EXECUTE since(NULL)$$);
RESET plan_cache_mode;
DEALLOCATE ALL;

-- Joins: the time comes from another table.
SELECT shown($$SELECT * FROM pages p JOIN hits h ON snowflake_timestamp(h.id) >= p.first$$);
SELECT shown($$SELECT * FROM pages p, hits h WHERE p.day <= snowflake_timestamp(h.id)$$);
SELECT shown($$SELECT * FROM pages p, hits h WHERE snowflake_timestamp(h.id) > p.instant$$);
SELECT shown($$SELECT * FROM pages p, LATERAL (SELECT * FROM hits h WHERE snowflake_timestamp(h.id) >= p.first ORDER BY id LIMIT 2) h$$);
SELECT shown($$SELECT * FROM pages p WHERE EXISTS (SELECT FROM hits h WHERE snowflake_timestamp(h.id) > p.first + interval '10 hours' AND page >= 0)$$);

-- The times of two ids: either table may be searched, whichever comes first.
SELECT shown($$SELECT count(*) FROM recent r JOIN hits h ON snowflake_timestamp(h.id) > snowflake_timestamp(r.id)$$);
SELECT shown($$SELECT count(*) FROM hits h JOIN recent r ON snowflake_timestamp(h.id) > snowflake_timestamp(r.id)$$);
SELECT shown($$SELECT count(*) FROM hits h JOIN recent r ON snowflake_timestamp(r.id) < snowflake_timestamp(h.id)$$);
SELECT shown($$SELECT count(*) FROM recent r JOIN hits h
    ON snowflake_timestamp(h.id) BETWEEN snowflake_timestamp(r.id) AND snowflake_timestamp(r.id) + interval '1 h'$$);
SELECT shown($$SELECT count(*) FROM hits h JOIN recent r
    ON snowflake_timestamp(h.id) BETWEEN snowflake_timestamp(r.id) AND snowflake_timestamp(r.id) + interval '1 h'$$);
SELECT shown($$SELECT count(*) FROM recent r WHERE NOT EXISTS (SELECT FROM hits h WHERE snowflake_timestamp(h.id) > snowflake_timestamp(r.id))$$);

-- Outer joins: the hit may be on the side that is always kept, or on the side that may be missing.
SELECT shown($$SELECT * FROM hits h LEFT JOIN pages p ON h.page = p.number WHERE snowflake_timestamp(h.id) >= '2026-01-07 23:00Z'$$);
SELECT shown($$SELECT * FROM pages p LEFT JOIN hits h ON h.page = p.number AND snowflake_timestamp(h.id) >= '2026-01-07 23:30Z'$$);
SELECT shown($$SELECT * FROM pages p LEFT JOIN hits h ON snowflake_timestamp(h.id) >= p.first + interval '11 hours'$$);
SELECT shown($$SELECT * FROM hits h RIGHT JOIN pages p ON h.page = p.number AND snowflake_timestamp(h.id) < '2026-01-01 00:05Z'$$);
-- Here the condition decides whether there is a partner, not whether there is a row.
SELECT shown($$SELECT count(*) AS hits, count(p.number) AS pages FROM hits h LEFT JOIN pages p ON h.page = p.number AND snowflake_timestamp(h.id) >= '2026-01-07 23:30Z'$$);
SELECT shown($$SELECT count(*) AS rows, count(h.id) AS hits, count(p.number) AS pages FROM hits h FULL JOIN pages p ON h.page = p.number AND p.number < 2
    WHERE snowflake_timestamp(h.id) >= '2026-01-07 23:30Z' OR h.id IS NULL$$);

-- Subqueries, CTEs and views are merged into the query, inlined functions too.
SELECT shown($$SELECT * FROM (SELECT *, snowflake_timestamp(id) AS created_at FROM hits) h WHERE created_at >= '2026-01-07Z'$$);
SELECT shown($$WITH h AS (SELECT *, snowflake_timestamp(id) AS created_at FROM hits) SELECT * FROM h WHERE created_at < '2026-01-01 01:00Z'$$);
SELECT shown($$WITH h AS MATERIALIZED (SELECT * FROM hits WHERE snowflake_timestamp(id) < '2026-01-01 01:00Z') SELECT id FROM h$$);
SELECT shown($$SELECT * FROM hits WHERE id IN (SELECT id + 0 FROM hits WHERE snowflake_timestamp(id) >= '2026-01-07 23:55Z' AND page > 5)$$);
CREATE VIEW timed_hits AS SELECT id, snowflake_timestamp(id) AS created_at, page FROM hits;
CREATE VIEW parsed_hits AS SELECT id, (snowflake_parse(id)).*, page FROM hits;
SELECT shown($$SELECT * FROM timed_hits WHERE created_at >= '2026-01-07Z'$$);
SELECT shown($$SELECT * FROM timed_hits WHERE created_at BETWEEN '2026-01-03Z' AND '2026-01-04Z' AND page = 5$$);
SELECT shown($$SELECT page, worker_id FROM parsed_hits WHERE created_at >= '2026-01-07Z'$$);
CREATE FUNCTION created_at(h hits) RETURNS timestamptz STABLE LANGUAGE sql RETURN snowflake_timestamp(h.id);
CREATE FUNCTION is_since(id bigint, t timestamptz) RETURNS boolean STABLE LANGUAGE sql AS 'SELECT snowflake_timestamp(id) >= t';
CREATE FUNCTION hits_since(t timestamptz) RETURNS SETOF hits STABLE LANGUAGE sql AS 'SELECT * FROM hits WHERE snowflake_timestamp(id) >= t';
SELECT shown($$SELECT * FROM hits h WHERE h.created_at >= '2026-01-07Z'$$);
SELECT shown($$SELECT * FROM hits WHERE is_since(id, '2026-01-07Z')$$);
SELECT shown($$SELECT * FROM hits_since('2026-01-07 12:00Z') WHERE page < 5$$);

-- PL/pgSQL: its statements are planned like any other.
CREATE FUNCTION count_since(t timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXPLAIN (COSTS off) SELECT * FROM hits WHERE snowflake_timestamp(id) >= t LOOP
        RAISE NOTICE '%', line;
    END LOOP;
    RETURN (SELECT count(*) FROM hits WHERE snowflake_timestamp(id) >= t);
END $$;
SELECT count_since('2026-01-07Z');

-- UPDATE, DELETE, MERGE.
SELECT changed($$UPDATE hits SET text = 'changed' WHERE snowflake_timestamp(id) >= '2026-01-07 12:00Z'$$);
SELECT changed($$UPDATE hits h SET text = p.number FROM pages p
    WHERE snowflake_timestamp(h.id) >= p.first AND snowflake_timestamp(h.id) < p.first + interval '1 hour'$$);
SELECT changed($$DELETE FROM hits WHERE snowflake_timestamp(id) < '2026-01-02Z'$$);
EXPLAIN (COSTS off) DELETE FROM recent WHERE snowflake_timestamp(id) < now() - interval '9 days';
SELECT changed($$DELETE FROM timed_hits WHERE created_at < '2026-01-02Z'$$);
SELECT changed($$MERGE INTO hits h USING pages p ON snowflake_timestamp(h.id) BETWEEN p.first AND p.first + interval '59 minutes'
    WHEN MATCHED AND p.number = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET text = 'merged'$$);

-- UNION ALL: by the id, and by a time that the view shows beside the id.
CREATE TABLE old_hits (LIKE hits INCLUDING ALL);
INSERT INTO old_hits SELECT snowflake_compose('2025-12-01Z'::timestamptz + n * interval '1 hour', 1, 0), 1, rpad('old', 300)
FROM generate_series(0, 743) n;
ANALYZE old_hits;
CREATE VIEW all_hits AS SELECT id, page FROM hits UNION ALL SELECT id, page FROM old_hits;
CREATE VIEW all_timed_hits AS SELECT id, snowflake_timestamp(id) AS created_at, page FROM hits
    UNION ALL SELECT id, snowflake_timestamp(id), page FROM old_hits;
SELECT shown($$SELECT * FROM all_hits WHERE snowflake_timestamp(id) BETWEEN '2025-12-31Z' AND '2026-01-01 01:00Z'$$);
SELECT shown($$SELECT * FROM all_timed_hits WHERE created_at BETWEEN '2025-12-31Z' AND '2026-01-01 01:00Z'$$);

-- (A view that shows only the time has no id to look up.)
CREATE VIEW all_times AS SELECT snowflake_timestamp(id) AS created_at FROM hits UNION ALL SELECT snowflake_timestamp(id) FROM old_hits;
SELECT shown($$SELECT * FROM all_times WHERE created_at BETWEEN '2025-12-31Z' AND '2026-01-01 01:00Z'$$);

-- The other ways to say it: the field of snowflake_parse(), and a layout.
SELECT shown($$SELECT * FROM hits WHERE (snowflake_parse(id)).created_at >= '2026-01-07Z'$$);
SELECT shown($$SELECT * FROM hits WHERE (snowflake_parse(id, 'snowflake')).created_at < date '2026-01-02'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id, 'snowflake') >= '2026-01-07Z'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id, 'time:41 worker:10 sequence:12 unit:1ms epoch:2025-01-01T00:00:00Z') <= '2026-01-02Z'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id, 'pgedge') < '2024-01-02Z'$$);
-- A text that is not a layout is refused, as without pushdown. A layout that is not a constant is
-- left alone.
EXPLAIN (COSTS off) SELECT * FROM hits WHERE snowflake_timestamp(id, 'twiter') >= '2026-01-07Z';
\set VERBOSITY terse
SELECT count(*) FROM hits WHERE snowflake_timestamp(id, 'twiter') >= '2026-01-07Z';
\set VERBOSITY default
EXPLAIN (COSTS off) SELECT * FROM hits WHERE snowflake_timestamp(id, text) >= '2026-01-07Z';
-- A layout of fewer than 63 bits ends the range of ids, and a domain over bigint is as good as
-- bigint.
CREATE DOMAIN js_id AS bigint CHECK (VALUE BETWEEN 0 AND 9007199254740991);
CREATE TABLE js_hits (id js_id PRIMARY KEY, text text);
INSERT INTO js_hits SELECT snowflake_compose('2026-01-01Z'::timestamptz + n * interval '1 minute', 3, n, 0, 'js53'), rpad('hit', 300)
FROM generate_series(0, 1439) n;
ANALYZE js_hits;
SELECT shown($$SELECT * FROM js_hits WHERE snowflake_timestamp(id, 'js53') >= '2026-01-01 23:00Z'$$);
SELECT shown($$SELECT * FROM js_hits WHERE snowflake_timestamp(id, 'js53') < '2026-01-01 01:00Z'$$);

-- Times that no id can have.
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) >= 'infinity'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) <= 'infinity'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) > '-infinity'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) < '-infinity'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) > '2024-12-31 23:59:59.999999Z'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) <= '2024-12-31 23:59:59.999999Z'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) >= '2094-09-07 15:47:35.551001Z'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) < '294276-12-31 23:59:59.999999Z'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) < date '5874897-12-31'$$);
SELECT shown($$SELECT * FROM hits WHERE snowflake_timestamp(id) > date '4713-01-01 BC'$$);
SELECT shown($$SELECT * FROM js_hits WHERE snowflake_timestamp(id, 'js53') >= '-infinity'$$);
SELECT shown($$SELECT * FROM js_hits WHERE snowflake_timestamp(id, 'js53') <= 'infinity'$$);

-- Microseconds between two ticks: the ids of three ticks, their first and their last, against every
-- time around the second.
CREATE TABLE ticks (layout text, id bigint);
INSERT INTO ticks SELECT layout, snowflake_min('2026-01-01Z'::timestamptz + n * unit, layout) + last
FROM (VALUES ('snowflake', interval '1 ms', 4194303), ('sonyflake', '10 ms', 16777215), ('js53', '1 s', 2097151)) l(layout, unit, size),
     generate_series(-1, 1) n, LATERAL (VALUES (0), (size)) e(last);
CREATE FUNCTION ids_whose_time(layout text, operator text, t timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    counts bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM ticks WHERE layout = %1$L AND snowflake_timestamp(id, %1$L) %2$s %3$L', layout, operator, t) INTO counts;
    RETURN counts;
END $$;
CREATE FUNCTION ids_whose_time_without(layout text, operator text, t timestamptz) RETURNS bigint LANGUAGE sql
    SET snowflake_id.enable_time_pushdown = off AS 'SELECT ids_whose_time(layout, operator, t)';
SELECT layout, operator, string_agg(ids_whose_time(layout, operator, t)::text, ' ' ORDER BY t) AS pushed,
       string_agg(ids_whose_time_without(layout, operator, t)::text, ' ' ORDER BY t) AS plain
FROM (VALUES ('snowflake', interval '1 ms'), ('sonyflake', '10 ms'), ('js53', '1 s')) l(layout, unit),
     (VALUES ('<'), ('<='), ('>'), ('>=')) o(operator), generate_series(-1, 2) n,
     LATERAL (SELECT '2026-01-01Z'::timestamptz + n * unit + us * interval '1 us' FROM generate_series(-1, 1) us) i(t)
GROUP BY layout, operator ORDER BY layout COLLATE "C", operator COLLATE "C";

-- The bounds themselves: the first id of a time or later, and of later; the last id before a time,
-- and of that time or before.
\pset tuples_only off
SELECT oid::regprocedure AS function, provolatile AS volatile, proleakproof AS leakproof FROM pg_proc
WHERE proname IN ('snowflake_from', 'snowflake_after', 'snowflake_before', 'snowflake_until')
   OR pronamespace = 'snowflake_plan'::regnamespace AND proname NOT IN ('lease', 'segment_stat', 'settled_lag', 'unsettled') ORDER BY oid::regprocedure::text COLLATE "C";
\pset null none
SELECT layout, t, snowflake_from(t, layout) AS "from", snowflake_after(t, layout) AS after,
       snowflake_before(t, layout) AS before, snowflake_until(t, layout) AS until
FROM (VALUES ('snowflake'), ('js53')) l(layout),
     (VALUES ('-infinity'::timestamptz), ('2018-12-31 23:59:59.999999Z'), ('2019-01-01Z'), ('2025-01-01Z'), ('2025-01-01 00:00:00.000001Z'),
             ('2025-01-01 00:00:01Z'), ('2094-09-07 15:47:35.551Z'), ('2155-02-07 06:28:15Z'), ('2155-02-07 06:28:15.000001Z'), ('infinity')) i(t)
ORDER BY layout COLLATE "C", t;
-- They are one less or more than each other, and agree with snowflake_min().
SELECT count(*), count(*) FILTER (WHERE snowflake_from(t, layout) = snowflake_min(t, layout)
                                    AND snowflake_from(t, layout) = snowflake_before(t, layout) + 1
                                    AND snowflake_after(t, layout) = snowflake_min(t + interval '1 us', layout)
                                    AND snowflake_after(t, layout) = snowflake_until(t, layout) + 1) AS agree
FROM (VALUES ('snowflake'), ('sonyflake'), ('js53'), ('twitter'), ('mastodon')) l(layout),
     LATERAL (SELECT '2026-01-01Z'::timestamptz + ms * interval '1 ms' + us * interval '1 us'
              FROM generate_series(-2, 2) ms, generate_series(-1, 1) us) i(t);
-- NULL for a text that is not a layout, and for NULL.
SELECT snowflake_from(now(), 'twiter'), snowflake_after(current_date, ''), snowflake_before(now(), 'twiter'), snowflake_until(localtimestamp, ''),
       snowflake_from(NULL::timestamptz, 'snowflake'), snowflake_before(localtimestamp, NULL);
-- The ids whose time is in a range: the first and the last.
SELECT range, snowflake_from(snowflake_plan.lower(range), 'js53') AS "from", snowflake_before(snowflake_plan.upper(range), 'js53') AS before
FROM unnest('{"[2026-01-01Z,2026-01-01 00:00:01Z)","(2026-01-01Z,2026-01-01 00:00:01Z]","[2026-01-01Z,2026-01-01Z]",empty,"(,)","[,2026-01-01Z)",
             "(-infinity,infinity)","[infinity,)","[,-infinity]","[2019-01-01Z,2019-01-02Z)","(2155-02-07 06:28:15Z,2156-01-01Z)"}'::tstzrange[]) range;
SELECT range, snowflake_plan.lower(range), snowflake_plan.upper(range)
FROM unnest('{"[2026-01-01Z,2026-01-01 00:00:01Z)","(2026-01-01Z,2026-01-01 00:00:01Z]",empty,"(,)","(-infinity,infinity]"}'::tstzrange[]) range;
SELECT snowflake_plan.lower(tstzrange(now(), now())), snowflake_plan.upper(tstzrange(now(), now())), snowflake_plan.lower(NULL::tstzrange);
-- The ids whose time is between the least and the greatest of an array.
SELECT times, snowflake_from(snowflake_plan.lower(times), 'js53') AS "from", snowflake_before(snowflake_plan.upper(times), 'js53') AS before
FROM (VALUES ('{2026-01-01 00:00:02Z,2026-01-01Z,2026-01-01 00:00:01Z}'::timestamptz[]), ('{NULL,2026-01-01Z,NULL}'), ('{{2026-01-01Z},{-infinity}}'),
             ('{infinity}'), ('{}'), ('{NULL}'), (NULL)) v(times);
-- An age has days of 24 hours and months of 30 days, as when intervals are compared. Where a
-- difference may raise an error, nothing is bounded.
SELECT t, age, snowflake_from(snowflake_plan.ago(t, age, false), 'js53') AS "from", snowflake_after(snowflake_plan.ago(t, age, false), 'js53') AS after,
       snowflake_before(snowflake_plan.ago(t, age, true), 'js53') AS before, snowflake_until(snowflake_plan.ago(t, age, true), 'js53') AS until
FROM (VALUES ('2026-01-01 00:00:01Z'::timestamptz, '1 s'::interval), ('2026-02-01 00:00:01Z', '1 month 1 day 1 s'), ('2026-01-01Z', '0.000001 s'),
             ('2026-01-01Z', '-1 day'), ('2026-01-01Z', '178000000 years'), ('2026-01-01Z', '-178000000 years'), ('infinity', '1 day'),
             ('-infinity', '1 day'), ('294276-12-31Z', '1 day'), ('1999-12-31Z', '1 day')) v(t, age);
SELECT snowflake_plan.ago(now(), NULL, true);
-- The ids whose local time can fulfil a condition. In Havana, midnight came twice: at 04:00 and at
-- 05:00 in UTC. In Apia, a day was left out. An abbreviation can have any offset.
SELECT zone, day, snowflake_plan.instant(snowflake_plan.local(day, false), zone, false) AS "from",
       snowflake_plan.instant(snowflake_plan.local(day, true), zone, false) AS after,
       snowflake_plan.instant(snowflake_plan.local(day, false), zone, true) AS before,
       snowflake_plan.instant(snowflake_plan.local(day, true), zone, true) AS until
FROM (VALUES ('America/Havana', date '2025-11-02'), ('America/St_Johns', '2010-11-07'), ('Australia/Lord_Howe', '2026-04-05'),
             ('Pacific/Apia', '2011-12-30'), ('UTC', '2026-01-01'), ('TimeZone', '2026-01-01'), ('CET', '2026-01-01'), ('Nowhere/Land', '2026-01-01')) v(zone, day);
SELECT local, snowflake_plan.instant(local, 'America/Havana', false) AS "from",
       snowflake_plan.instant(snowflake_plan.local(local, true), 'America/Havana', false) AS after,
       snowflake_plan.instant(local, 'America/Havana', true) AS before,
       snowflake_plan.instant(snowflake_plan.local(local, true), 'America/Havana', true) AS until
FROM (VALUES (timestamp '2025-11-02 00:30'), ('2025-11-01 23:30'), ('2025-11-02 02:00'), ('2025-11-03 00:00')) v(local);
-- Steps back. The next start of a unit, of a year, and a time or the next one.
SELECT unit, snowflake_plan.ceil('2026-01-01', unit) AS start, snowflake_plan.ceil('2026-01-01 00:00:00.000001', unit) AS after, snowflake_plan.ceil('0101-02-03 BC', unit) AS bc,
       snowflake_plan.ceil('infinity', unit) AS infinite, snowflake_plan.ceil('294276-12-31 23:59:59.999999', unit) AS last
FROM unnest('{microseconds,millisecond,second,minute,hour,day,Week,month,quarter,year,decade,century,millennium,quarters,mon}'::text[]) unit;
SELECT year, snowflake_plan.local(year, false) AS from, snowflake_plan.local(year, true) AS after
FROM unnest('{2026,2026.5,1,0,-1,-0.5,NaN,Infinity,-Infinity,1e30,-1e30}'::numeric[]) year;
SELECT t, snowflake_plan.instant(t, false) AS instant, snowflake_plan.instant(t, true) AS after, snowflake_plan.local(t AT TIME ZONE 'UTC', true) AS local
FROM unnest('{2026-01-01Z,infinity,-infinity,294276-12-31 23:59:59.999999Z,4714-11-24Z BC}'::timestamptz[]) t;
SELECT day, snowflake_plan.instant(day, false) AS instant, snowflake_plan.local(day, false) AS local, snowflake_plan.local(day, true) AS after
FROM unnest('{2026-01-01,infinity,-infinity,5874897-12-31,4714-11-24 BC}'::date[]) day;
-- Limits on the local time of an instant, and on the instant of a local time, while clocks are set
-- back and forward.
SELECT zone, t, snowflake_plan.local(t, zone, false) AS lower, snowflake_plan.local(t, zone, true) AS upper
FROM (VALUES ('America/Havana', '2025-11-02 05:00Z'::timestamptz), ('America/Havana', '2025-11-09 05:00Z'), ('Pacific/Apia', '2011-12-30 10:00Z'),
             ('CET', '2026-01-01Z'), ('Nowhere/Land', '2026-01-01Z'), ('UTC', 'infinity'), ('UTC', '-infinity')) v(zone, t);
SELECT zone, snowflake_plan.instant(timestamp '2025-11-02', zone, false) AS lower, snowflake_plan.instant(timestamp '2025-11-02', zone, true) AS upper
FROM unnest('{America/Havana,America/New_York,UTC,CET}'::text[]) zone;
SELECT zone, snowflake_plan.instant(timestamp '2026-01-01', zone, false) AS lower, snowflake_plan.instant(timestamp '2026-01-01', zone, true) AS upper
FROM unnest('{02:00,-09:30,00:00:01.9,1 day,1 month}'::interval[]) zone;
-- Where a month is too short, its last day is taken, so more times can lead there.
SET TimeZone = 'Europe/Berlin';
SELECT t, shift, snowflake_plan.minus(t, shift, false) AS lower, snowflake_plan.minus(t, shift, true) AS upper, snowflake_plan.plus(t, shift, false) AS plus
FROM (VALUES ('2026-01-01'::timestamptz, '1 hour'::interval), ('2026-04-01', '1 day'), ('2026-03-29 12:00', '1 day'), ('2026-02-28 12:00', '1 month'),
             ('2026-03-28 12:00', '1 month'), ('2026-03-31 12:00', '1 month'), ('2026-03-30 12:00', '-1 month'), ('2026-02-01', '1 month -1 day'),
             ('2026-01-01', '1001 years'), ('infinity', '1 month'), ('-infinity', '1 month'), ('2026-01-01', '-178000000 years')) v(t, shift);
SET TimeZone = 'UTC';
SELECT snowflake_plan.ceil(NULL, 'day'), snowflake_plan.local(NULL::numeric, true), snowflake_plan.minus(now(), NULL, true);
SELECT snowflake_plan.instant(timestamp 'infinity', 'UTC', false), snowflake_plan.instant(timestamp '-infinity', 'UTC', true),
       snowflake_plan.instant(snowflake_plan.local(date '5874897-12-31', true), 'UTC', false);
-- A date and a timestamp are those of the session's zone.
CREATE FUNCTION new_year(OUT day text, OUT midnight text, OUT agree boolean) LANGUAGE sql AS $$
    SELECT concat_ws(' ', snowflake_from(d, l), snowflake_after(d, l), snowflake_before(d, l), snowflake_until(d, l)),
           concat_ws(' ', snowflake_from(t, l), snowflake_after(t, l), snowflake_before(t, l), snowflake_until(t, l)),
           concat_ws(' ', snowflake_from(z, l), snowflake_after(z, l), snowflake_before(z, l), snowflake_until(z, l))
           = ALL (ARRAY[concat_ws(' ', snowflake_from(d, l), snowflake_after(d, l), snowflake_before(d, l), snowflake_until(d, l)),
                        concat_ws(' ', snowflake_from(t, l), snowflake_after(t, l), snowflake_before(t, l), snowflake_until(t, l))])
    FROM (VALUES (date '2026-01-01', timestamp '2026-01-01', '2026-01-01'::text::timestamptz, 'snowflake')) v(d, t, z, l) $$;
SELECT * FROM new_year();
SET timezone = 'America/New_York';
SELECT * FROM new_year();
SET timezone = 'UTC';
SELECT snowflake_from('infinity'::date, 'js53') AS "from", snowflake_after('-infinity'::date, 'js53') AS after,
       snowflake_before('infinity'::date, 'js53') AS before, snowflake_until('-infinity'::timestamp, 'js53') AS until,
       snowflake_from('5874897-12-31'::date, 'js53') AS late, snowflake_after('4713-01-01 BC'::date, 'js53') AS early,
       snowflake_before('5874897-12-31'::date, 'js53') AS late, snowflake_until('4713-01-01 BC'::date, 'js53') AS early;

-- A column of a view that grouping sets make NULL.
CREATE VIEW hits_of_pages AS SELECT snowflake_timestamp(h.id) AS created_at, p.first FROM hits h LEFT JOIN pages p ON p.number = h.page;
SELECT shown($$SELECT created_at, count(first) FROM hits_of_pages WHERE created_at >= '2026-01-07 23:50Z' GROUP BY ROLLUP (1)$$);
DROP VIEW hits_of_pages;
SELECT shown($$SELECT date_trunc('hour', created_at) AS hour, count(*) FROM timed_hits WHERE created_at >= '2026-01-07 22:00Z' GROUP BY ROLLUP (1)$$);

-- Not rewritten: the time of a row that an outer join makes NULL, while the id is that of another
-- row, which stays.
SELECT shown($$SELECT h.id FROM hits h LEFT JOIN LATERAL (SELECT snowflake_timestamp(h.id) AS time) s ON h.page = 1
    WHERE s.time >= '2026-01-07 23:00Z' OR h.id < 132300000000000000$$);
SELECT shown($$SELECT h.id FROM hits h LEFT JOIN LATERAL (SELECT snowflake_timestamp(h.id) AS time FROM pages WHERE number = h.page) s ON true
    WHERE s.time >= '2026-01-07 23:00Z' OR h.id < 132300000000000000$$);
SELECT shown($$SELECT p.number, t.page FROM pages p LEFT JOIN timed_hits t ON t.page = p.number AND t.id >= 134778087014400000
    WHERE t.created_at >= '2026-01-07 23:30Z' OR p.number = 9$$);

-- The recipes: a histogram by hour, the busy curve and the load per worker, pages by time, ids as
-- strings.
SELECT date_trunc('hour', snowflake_timestamp(id)) AS hour, count(*) FROM hits
WHERE snowflake_timestamp(id) >= '2026-01-07 21:30Z' GROUP BY 1 ORDER BY 1;
SELECT date_trunc('hour', p.created_at) AS hour, p.worker_id, count(*) FROM hits, snowflake_parse(id) p
WHERE snowflake_timestamp(id) >= '2026-01-07 23:00Z' GROUP BY 1, 2 ORDER BY 1, 2;
SELECT id, page, snowflake_timestamp(id) FROM hits WHERE snowflake_timestamp(id) < '2026-01-03Z' ORDER BY id DESC LIMIT 2;
EXPLAIN (COSTS off) SELECT id, page, snowflake_timestamp(id) FROM hits WHERE snowflake_timestamp(id) < '2026-01-03Z' ORDER BY id DESC LIMIT 2;
SELECT to_jsonb(h) - 'text' || jsonb_build_object('id', h.id::text) AS hit FROM hits h WHERE snowflake_timestamp(id) >= '2026-01-07 23:59Z';

DROP VIEW timed_hits, parsed_hits, all_hits, all_timed_hits, all_times;
DROP FUNCTION created_at(hits), is_since(bigint, timestamptz), hits_since(timestamptz), count_since(timestamptz),
    ids_whose_time(text, text, timestamptz), ids_whose_time_without(text, text, timestamptz), new_year(), shown(text, boolean), changed(text);
DROP TABLE hits, recent, pages, old_hits, js_hits, ticks;
DROP DOMAIN js_id;
