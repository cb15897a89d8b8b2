-- The queries for the greatest value that each sequence may have given, of those that the columns
-- own or draw from. A sequence that has given none counts as just before its first value.
SELECT CASE WHEN seqincrement > 0
            THEN format('SELECT CASE WHEN is_called THEN last_value ELSE greatest(last_value, -9223372036854775807) - 1 END '
                        'FROM %I.%I', nspname, relname)
            ELSE format('SELECT greatest(last_value, %L::bigint) FROM %I.%I', seqstart, nspname, relname) END::cstring
FROM pg_sequence JOIN pg_class s ON s.oid = seqrelid JOIN pg_namespace n ON n.oid = relnamespace
WHERE EXISTS (SELECT FROM family JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_class'::regclass
                   AND d.refobjid = rel AND d.refobjsubid = attnum AND d.deptype IN ('a', 'i')
              WHERE d.objid = seqrelid)
      OR EXISTS (SELECT FROM family JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = def
                 WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = seqrelid)
ORDER BY seqrelid
