-- The tables, without partitions, with a column that holds the values.
SELECT c.oid
FROM holds JOIN pg_class c ON c.oid = rel
WHERE relkind IN ('r', 'p') AND NOT relispartition AND pg_has_role(relowner, 'USAGE')
GROUP BY c.oid
ORDER BY c.oid
