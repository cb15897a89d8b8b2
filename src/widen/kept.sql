-- The columns that a trigger of snowflake_widen() keeps equal: the table, the trigger, the column
-- that sessions use, and the one beside it, which the trigger's condition names first. Before the
-- switch, the one beside is the wide one, and after it the narrow one. Any role can make such a
-- trigger, with any condition. This file is put in front of others.
WITH RECURSIVE kept AS (
    SELECT tgrelid AS rel, tgname, n.attnum AS att, w.attnum AS wide_att, w.attname AS wide, w.atttypid <> 'int8'::regtype AS is_switched
    FROM pg_trigger
         JOIN pg_attribute w ON w.attrelid = tgrelid AND w.attnum::text = substring(tgqual::text FROM ':varattno ([0-9]+) ')
         JOIN pg_attribute n ON n.attrelid = tgrelid AND n.attnum::text = substring(tgqual::text FROM '.*:varattno ([0-9]+) ')
    WHERE tgfoid = 'snowflake_plan.widen_keep()'::regprocedure
          AND (w.atttypid = 'int8'::regtype AND n.atttypid IN ('int2'::regtype, 'int4'::regtype)
               OR n.atttypid = 'int8'::regtype AND w.atttypid IN ('int2'::regtype, 'int4'::regtype))
)
