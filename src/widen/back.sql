-- $1 tables, $2 their columns, in pairs, with $3 left out: the steps that undo what has been made
-- beside them, before the switch. For each: the phase, what it does, the statement, the locks.
,    named AS (
    SELECT k.*, relispartition, format('%I.%I', nspname, relname) AS name,
           (SELECT array_agg(format('%I.%I', tn.nspname, t.relname) ORDER BY t.oid) FROM pg_class t JOIN pg_namespace tn ON tn.oid = t.relnamespace
            WHERE t.oid = rel OR t.oid IN (SELECT relid FROM pg_partition_tree(rel)))::text AS list
    FROM kept k JOIN pg_class c ON c.oid = rel JOIN pg_namespace n ON n.oid = relnamespace
    WHERE (rel, att) IN (SELECT * FROM unnest($1, $2)) AND NOT is_switched
)
SELECT 1, step::cstring, statement::cstring, locks::cstring
FROM (
    SELECT 1, f.oid::bigint, format('drop foreign key %I of %s', conname, name),
           format('CALL snowflake_plan.widen_step(%L, %L, ARRAY[%L]);', format('NOT snowflake_plan.widen_has(%L, ''constraint'', %L)', name, conname),
                  ARRAY[name, ref]::text, format('ALTER TABLE %s DROP CONSTRAINT %I', name, conname)),
           format('%s, %s: ACCESS EXCLUSIVE, for a moment', name, ref)
    FROM pg_constraint f, LATERAL (SELECT format('%I.%I', nspname, relname) FROM pg_class r JOIN pg_namespace n ON n.oid = relnamespace WHERE r.oid = conrelid) AS a (name),
         LATERAL (SELECT format('%I.%I', nspname, relname) FROM pg_class r JOIN pg_namespace n ON n.oid = relnamespace WHERE r.oid = confrelid) AS b (ref)
    WHERE contype = 'f' AND conparentid = 0 AND EXISTS (SELECT FROM named k WHERE k.rel = conrelid AND k.wide_att = ANY (conkey) OR k.rel = confrelid AND k.wide_att = ANY (confkey))
  UNION ALL
    SELECT 2, att, format('drop the trigger and the new column of %s', name),
           format('CALL snowflake_plan.widen_step(%L, %L, ARRAY[%L, %L]);', format('NOT snowflake_plan.widen_has(%L, ''column'', %L)', name, wide),
                  list, format('DROP TRIGGER IF EXISTS %I ON %s', tgname, name), format('ALTER TABLE %s DROP COLUMN %I', name, wide)),
           format('%s: ACCESS EXCLUSIVE, for a moment', name)
    FROM named WHERE NOT relispartition
) AS back (number, place, step, statement, locks)
ORDER BY number, place
