-- The columns that a trigger of snowflake_widen() keeps equal: the table, the trigger, the narrow
-- column and the wide one, which its condition names first. Any role can make such a trigger, with
-- any condition. This file is put in front of others.
WITH kept AS (
    SELECT tgrelid AS rel, tgname, n.attnum AS att, w.attnum AS wide_att, w.attname AS wide
    FROM pg_trigger
         JOIN pg_attribute w ON w.attrelid = tgrelid AND w.attnum::text = substring(tgqual::text FROM ':varattno ([0-9]+) ')
         JOIN pg_attribute n ON n.attrelid = tgrelid AND n.attnum::text = substring(tgqual::text FROM '.*:varattno ([0-9]+) ')
    WHERE tgfoid = 'snowflake_plan.widen_keep()'::regprocedure AND w.atttypid = 'int8'::regtype
)
