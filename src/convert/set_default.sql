-- The statements that give the columns their default, and the column of each; none for a column
-- that already has it everywhere.
SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %I.%I()', name, attname, nspname, proname)::cstring, place
FROM family f, pg_proc p
     JOIN pg_namespace s ON s.oid = p.pronamespace
     JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_extension'::regclass
     JOIN pg_extension e ON e.oid = d.refobjid
WHERE rel = root AND e.extname = 'snowflake_id' AND d.deptype = 'e' AND p.proname = 'snowflake_next'
      AND EXISTS (SELECT FROM family
                  WHERE place = f.place AND expression IS DISTINCT FROM p.oid::regprocedure::text)
ORDER BY place
