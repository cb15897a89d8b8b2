-- The statements after which the columns are not identities, and for which of the columns. (From PostgreSQL 17 on, partitions have their table's.)
SELECT format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', name, attname)::cstring, min(place)
FROM family
WHERE attidentity <> '' AND NOT (relispartition AND current_setting('server_version_num')::integer >= 170000)
GROUP BY rel, name, attname
ORDER BY min(place), rel
