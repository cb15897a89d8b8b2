-- $1 tables, $2 their columns to be widened, in pairs: what forbids that; $3 whether
-- the transaction may have changed the tables. For each: which refusal,
-- the table, and the object or the column.
WITH narrow AS (
    SELECT rel, att, attname, c.*
    FROM unnest($1, $2) AS narrow (rel, att) JOIN pg_attribute ON attrelid = rel AND attnum = att JOIN pg_class c ON c.oid = rel
)
SELECT refused.reason::text::cstring, refused.rel::regclass::text::cstring, refused.object::text::cstring
FROM (
    SELECT 'partitions', rel, attname::text FROM narrow WHERE relkind = 'p' OR relispartition
  UNION ALL
    -- A wide column of such a table that refers to this one.
    SELECT 'partitions', conrelid, key.attname
    FROM narrow JOIN pg_constraint ON contype = 'f' AND confrelid = rel AND att = ANY (confkey)
         JOIN pg_class r ON r.oid = conrelid AND (r.relkind = 'p' OR r.relispartition)
         JOIN pg_attribute key ON key.attrelid = conrelid AND key.attnum = conkey[array_position(confkey, att)]
  UNION ALL
    SELECT 'inheritance', rel, attname FROM narrow
    WHERE relkind = 'r' AND NOT relispartition AND EXISTS (SELECT FROM pg_inherits WHERE rel IN (inhrelid, inhparent))
  UNION ALL
    SELECT 'foreign', rel, attname FROM narrow WHERE relkind NOT IN ('r', 'p')
  UNION ALL
    SELECT 'typed', rel, attname FROM narrow WHERE reloftype <> 0
  UNION ALL
    SELECT 'owner', rel, attname FROM narrow WHERE NOT pg_has_role(relowner, 'USAGE')
  UNION ALL
    -- A key of a range, too (since PostgreSQL 18).
    SELECT 'exclusion', rel, conname FROM narrow JOIN pg_constraint k ON conrelid = rel AND att = ANY (conkey)
    WHERE contype = 'x' OR to_jsonb(k) ->> 'conperiod' = 'true'
  UNION ALL
    SELECT 'exclusion', rel, conname FROM narrow JOIN pg_constraint k ON confrelid = rel AND att = ANY (confkey)
    WHERE to_jsonb(k) ->> 'conperiod' = 'true'
  UNION ALL
    -- Such a trigger could change the narrow column after the wide one has been filled: BEFORE,
    -- FOR EACH ROW, on INSERT or UPDATE.
    SELECT 'late', rel, tgname FROM narrow JOIN pg_trigger ON tgrelid = rel
    WHERE NOT tgisinternal AND tgtype & 3 = 3 AND tgtype & 20 <> 0 AND tgname COLLATE "C" > '~snowflake_widen_' || att
          AND tgfoid <> 'snowflake_plan.widen_keep()'::regprocedure
  UNION ALL
    SELECT 'changed', rel, attname FROM narrow
    WHERE NOT $3 AND EXISTS (SELECT FROM pg_locks WHERE locktype = 'relation' AND relation = rel AND pid = pg_backend_pid() AND granted
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                  AND mode NOT IN ('AccessShareLock', 'RowShareLock'))
) AS refused (reason, rel, object)
GROUP BY refused.rel, refused.reason, refused.object
ORDER BY refused.rel, refused.reason, refused.object
