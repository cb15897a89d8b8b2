-- $4 the tables, without partitions, and $5 and $6 tables and columns, in pairs, of a former switch:
-- the steps after the switch. Before it they follow from the columns, and after it from what it has
-- left: the former columns, and their comments. For each: the phase, what it does, the statement,
-- the locks.
,    left_over AS (
    SELECT name, conname, unit, unit_con, comment FROM owed
  UNION
    SELECT o ->> 0, o ->> 1, o ->> 2, o ->> 3, o ->> 4
    FROM kept JOIN pg_description ON classoid = 'pg_class'::regclass AND objoid = rel AND objsubid = wide_att, jsonb_array_elements(description::jsonb) AS o
    WHERE (rel, att) IN (SELECT * FROM unnest($5, $6))
),
     former AS (
    SELECT rel, name, attname, wide, trigger, CASE type WHEN 'bigint' THEN 'NOT ' END AS is_not FROM col WHERE is_whole
  UNION ALL
    SELECT rel, format('%I.%I', nspname, relname), attname, wide, tgname, 'NOT '
    FROM kept JOIN pg_class c ON c.oid = rel JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_attribute ON attrelid = rel AND attnum = att
    WHERE NOT relispartition AND (rel, att) IN (SELECT * FROM unnest($5, $6)) AND (rel, att) NOT IN (SELECT rel, att FROM col)
),
     tree AS (
    SELECT root AS rel, format('%I.%I', r.nspname, r.relname) AS name, array_agg(format('%I.%I', n.nspname, c.relname) ORDER BY c.oid)::text AS list
    FROM unnest($4) AS root JOIN (SELECT c.oid, relname, nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace) AS r ON r.oid = root
         JOIN pg_class c ON c.oid = root OR c.oid IN (SELECT relid FROM pg_partition_tree(root)) JOIN pg_namespace n ON n.oid = c.relnamespace
    GROUP BY root, r.nspname, r.relname
)
SELECT phase, step::cstring, statement::cstring, locks::cstring
FROM (
    SELECT 5, 1, name, conname, format('check all rows of %s by foreign key %I', name, conname), format('ALTER TABLE %s VALIDATE CONSTRAINT %I;', name, conname),
           format('%s: SHARE UPDATE EXCLUSIVE; the table that it refers to: ROW SHARE', name)
    FROM left_over WHERE unit IS NULL
  UNION ALL
    SELECT 5, 2, name, conname, format('make foreign key %I of %s of those of its partitions', conname, name),
           format('CALL snowflake_plan.widen_step(%L, %L, ARRAY[%L%s]);',
                  format('NOT snowflake_plan.widen_has(%L, ''constraint'', %L) OR snowflake_plan.widen_has(%L, ''constraint'', %L)', unit, unit_con, name, conname),
                  ARRAY[name]::text, format('SELECT snowflake_plan.widen_join(%L, %L, %L, %L)', name, conname, unit, unit_con),
                  CASE WHEN comment IS NOT NULL THEN format(', %L', format('COMMENT ON CONSTRAINT %I ON %s IS %L', conname, name, comment)) END),
           format('%s, and the table that it refers to: SHARE ROW EXCLUSIVE, for a moment', name)
    FROM left_over WHERE unit IS NOT NULL
  UNION ALL
    SELECT 6, 1, name, '', format('collect statistics of %s', name), format('ANALYZE %s;', name), format('%s: SHARE UPDATE EXCLUSIVE', name) FROM tree
  UNION ALL
    SELECT 6, 2, f.name, wide::text, format('drop the former column of %s.%I', f.name, attname),
           format('CALL snowflake_plan.widen_step(%L, %L, ARRAY[%L, %L, %L]);',
                  format('NOT snowflake_plan.widen_has(%L, ''column'', %L) OR %ssnowflake_plan.widen_has(%1$L, ''bigint'', %4$L)', f.name, wide, is_not, attname),
                  list, format('SELECT snowflake_plan.widen_checked(%L)', f.name), format('DROP TRIGGER IF EXISTS %I ON %s', trigger, f.name), format('ALTER TABLE %s DROP COLUMN %I', f.name, wide)),
           format('%s: ACCESS EXCLUSIVE, for a moment', f.name)
    FROM former f JOIN tree USING (rel)
) AS step (phase, number, place, part, step, statement, locks)
ORDER BY phase, number, place, part
