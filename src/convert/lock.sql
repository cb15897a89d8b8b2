-- $1 tables, $2 their columns, in pairs: the statement that locks out other sessions. It locks
-- partitions and children together with their tables.
SELECT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE',
              string_agg((SELECT format('%I.%I', nspname, relname)
                          FROM pg_class r JOIN pg_namespace n ON n.oid = relnamespace WHERE r.oid = rel), ', ' ORDER BY rel))::cstring
FROM (SELECT DISTINCT rel FROM unnest($1, $2) AS altered (rel, att) JOIN pg_attribute ON attrelid = rel AND attnum = att
      WHERE attinhcount = 0) AS altered
HAVING count(*) > 0
