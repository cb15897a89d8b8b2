-- The columns that a trigger of snowflake_widen() keeps equal: the table, the trigger, the narrow
-- column and the wide one. A restored dump may number columns anew, so the arguments' names decide
-- where the wide column's number does not fit (trigger.rs). Any role can make such a trigger, with
-- any arguments. This file is put in front of others.
WITH kept AS (
    SELECT tgrelid AS rel, tgname, tgenabled, n.attnum AS att, w.attnum AS wide_att, w.attname AS wide
    FROM (SELECT *, string_to_array(encode(tgargs, 'escape'), E'\\000') AS args FROM pg_trigger
          WHERE tgfoid = 'snowflake_plan.widen_keep()'::regprocedure AND tgnargs = 4) AS t
         JOIN pg_attribute w ON w.attrelid = tgrelid AND encode(convert_to(w.attname, getdatabaseencoding()), 'escape') = args[3]
         JOIN pg_attribute n ON n.attrelid = tgrelid AND NOT n.attisdropped
                                AND CASE WHEN w.attnum::text = args[2] THEN n.attnum::text = args[1]
                                         ELSE encode(convert_to(n.attname, getdatabaseencoding()), 'escape') = args[4] END
)
