-- The queries for the greatest value that each sequence may have given, of those that the columns
-- own or draw from. A sequence that has given none counts as just before its first value. A client
-- may use all values up to the next one. A sequence that counts down, or cycles, may have given its
-- greatest.
SELECT CASE WHEN seqincrement > 0 AND NOT seqcycle
            THEN format('SELECT CASE WHEN is_called THEN least(last_value::numeric + %s, 9223372036854775807)::bigint '
                        'ELSE greatest(last_value, -9223372036854775807) - 1 END FROM %I.%I', seqincrement - 1, nspname, relname)
            ELSE format('SELECT %L::bigint', seqmax) END::cstring
FROM pg_sequence JOIN pg_class s ON s.oid = seqrelid JOIN pg_namespace n ON n.oid = relnamespace
WHERE EXISTS (SELECT FROM family JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_class'::regclass
                   AND d.refobjid = rel AND d.refobjsubid = attnum AND d.deptype IN ('a', 'i')
              WHERE d.objid = seqrelid)
      OR EXISTS (SELECT FROM family JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = def
                 WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = seqrelid)
ORDER BY seqrelid
