-- The statements that drop the columns' identities, and the column of each. (Since PostgreSQL 17,
-- partitions share their table's identity.) Where they do not, and in children, defaults may draw
-- from its sequence. These are dropped first.
SELECT statement::cstring, min(place)
FROM (
    SELECT 0, rel, place, format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT', name, attname)
    FROM family f
    WHERE EXISTS (SELECT FROM pg_depend d JOIN pg_depend o ON o.classid = d.refclassid AND o.objid = d.refobjid
                  WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = f.def AND d.refclassid = 'pg_class'::regclass
                        AND o.refclassid = 'pg_class'::regclass AND o.deptype = 'i'
                        AND EXISTS (SELECT FROM family WHERE rel = o.refobjid AND attnum = o.refobjsubid))
  UNION ALL
    SELECT 1, rel, place, format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', name, attname)
    FROM family
    WHERE attidentity <> '' AND NOT (relispartition AND current_setting('server_version_num')::integer >= 170000)
) AS steps (number, rel, place, statement)
GROUP BY number, rel, statement
ORDER BY number, min(place), rel
