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

SET datestyle = 'ISO';
\pset format unaligned
\pset tuples_only on
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
DROP FUNCTION ids_whose_time(text, text, timestamptz), ids_whose_time_without(text, text, timestamptz), new_year();
DROP TABLE ticks;
