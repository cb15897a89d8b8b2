-- The sequences that belong to the columns: the column of each, whether it is an identity's, and
-- what else uses it, if anything. An identity's sequence is dropped before the other columns get
-- their new defaults.
SELECT (SELECT format('%I.%I', nspname, s.relname) FROM pg_namespace n WHERE n.oid = s.relnamespace)::cstring,
       min(place),
       o.deptype = 'i',
       (SELECT string_agg(DISTINCT pg_describe_object(u.classid, u.objid, u.objsubid), E'\n')::cstring
        FROM pg_depend u
        WHERE u.refclassid = 'pg_class'::regclass AND u.refobjid = o.objid AND u.deptype = 'n'
              AND NOT (u.classid = 'pg_attrdef'::regclass AND u.objid IN (SELECT def FROM family WHERE def IS NOT NULL)))
FROM family
     JOIN pg_depend o ON o.refclassid = 'pg_class'::regclass AND o.refobjid = rel AND o.refobjsubid = attnum
                         AND o.classid = 'pg_class'::regclass AND o.deptype IN ('a', 'i')
     JOIN pg_class s ON s.oid = o.objid AND s.relkind = 'S'
GROUP BY o.objid, o.deptype, s.relname, s.relnamespace
ORDER BY min(place), o.objid
