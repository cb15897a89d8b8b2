-- The relations that the switch locks against all other sessions: the tables with their foreign
-- keys' other tables, views of the columns, tables whose policies read the columns, and sequences.
-- As an array, in one text.
, ends AS (
    SELECT rel FROM col
  UNION
    SELECT unnest(ARRAY[conrelid, confrelid]) FROM pg_constraint f
    WHERE contype = 'f' AND EXISTS (SELECT FROM col WHERE col.rel = conrelid AND col.att = ANY (conkey) OR col.rel = confrelid AND col.att = ANY (confkey))
  UNION
    SELECT s.oid FROM col JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = col.rel AND d.refobjsubid = col.att
                                              AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
         JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
  UNION
    SELECT ev_class FROM col JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = col.rel AND d.refobjsubid = col.att
                                                 AND d.classid = 'pg_rewrite'::regclass JOIN pg_rewrite r ON r.oid = d.objid
  UNION
    SELECT polrelid FROM col JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = col.rel AND d.refobjsubid = col.att
                                                 AND d.classid = 'pg_policy'::regclass JOIN pg_policy p ON p.oid = d.objid
)
SELECT array_agg(name ORDER BY oid)::text::cstring, string_agg(name, ', ' ORDER BY oid)::cstring
FROM (SELECT c.oid, format('%I.%I', nspname, relname) FROM ends JOIN pg_class c ON c.oid = rel JOIN pg_namespace n ON n.oid = relnamespace) AS r (oid, name)
