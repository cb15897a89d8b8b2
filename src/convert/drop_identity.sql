-- The statements that drop the columns' identities, and the column of each. (Since PostgreSQL 17,
-- partitions share their table's identity.)
SELECT format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', name, attname)::cstring, min(place)
FROM family
WHERE attidentity <> '' AND NOT (relispartition AND current_setting('server_version_num')::integer >= 170000)
GROUP BY rel, name, attname
ORDER BY min(place), rel
