-- $3 a function of the extension, $4 its argument, or NULL if it has none: the statements that make
-- it the columns' default, and the column of each; none for a column that already has it
-- everywhere.
SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %I.%I(%s)', name, attname, nspname, proname,
              quote_literal($4::text))::cstring,
       place
FROM family f, pg_proc p
     JOIN pg_namespace s ON s.oid = p.pronamespace
     JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_extension'::regclass
     JOIN pg_extension e ON e.oid = d.refobjid
WHERE rel = root AND e.extname = 'snowflake_id' AND d.deptype = 'e' AND p.proname = $3::text::name
      AND EXISTS (SELECT FROM family
                  WHERE place = f.place
                        AND expression IS DISTINCT FROM format('%s(%s)', p.oid::regproc, '''' || replace($4::text, '''', '''''') || '''::text'))
ORDER BY place
