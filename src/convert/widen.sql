-- $1 tables, $2 their columns, in pairs: the statements that make them bigint, and the table that
-- each rewrites, with its partitions and children. A foreign key that refers to a partition instead
-- of the partitioned table prevents a new type for the latter.
WITH narrow AS (SELECT * FROM unnest($1, $2) WITH ORDINALITY AS narrow (rel, att, place)),
     obstacle AS (
    SELECT DISTINCT f.oid, f.conrelid, f.conname,
           (SELECT format('%I.%I', nspname, relname)
            FROM pg_class r JOIN pg_namespace n ON n.oid = relnamespace WHERE r.oid = f.conrelid) AS name
    FROM narrow JOIN pg_class c ON c.oid = rel AND c.relispartition
         JOIN pg_constraint f ON f.confrelid = rel AND f.contype = 'f' AND f.conparentid = 0 AND att = ANY (f.confkey)
)
SELECT statement::cstring, CASE number WHEN 2 THEN rel END FROM (
    SELECT 1, 0, conrelid, conname, format('ALTER TABLE %s DROP CONSTRAINT %I', name, conname) FROM obstacle
  UNION ALL
    SELECT 2, min(place), rel, NULL,
           format('ALTER TABLE %s %s',
                  (SELECT format('%I.%I', nspname, relname)
                   FROM pg_class r JOIN pg_namespace n ON n.oid = relnamespace WHERE r.oid = rel),
                  string_agg(format('ALTER COLUMN %I TYPE bigint', attname), ', ' ORDER BY place))
    FROM narrow JOIN pg_attribute ON attrelid = rel AND attnum = att WHERE attinhcount = 0 GROUP BY rel
  UNION ALL
    SELECT 3, 0, conrelid, conname, format('ALTER TABLE %s ADD CONSTRAINT %I %s', name, conname, pg_get_constraintdef(oid))
    FROM obstacle
  UNION ALL
    SELECT 4, 0, conrelid, conname, format('COMMENT ON CONSTRAINT %I ON %s IS %L', conname, name, description)
    FROM obstacle JOIN pg_description ON classoid = 'pg_constraint'::regclass AND objoid = oid
) AS step (number, place, rel, name, statement)
ORDER BY number, place, rel, name
