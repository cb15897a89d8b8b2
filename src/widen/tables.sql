-- The tables with a column that holds the values.
SELECT format('%I.%I', nspname, relname)::cstring
FROM holds JOIN pg_class c ON c.oid = rel JOIN pg_namespace n ON n.oid = relnamespace
WHERE relkind = 'r' AND pg_has_role(relowner, 'USAGE')
GROUP BY nspname, relname
ORDER BY nspname, relname
