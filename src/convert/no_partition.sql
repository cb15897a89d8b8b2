-- $1 table, $2 column, $3 id: the query whether no partition accepts that id, if the table is
-- partitioned by the column alone.
SELECT format('SELECT (%s) IS NOT TRUE FROM (SELECT %s::bigint AS %I) AS next',
              coalesce(string_agg(constraintdef, ' OR '), 'false'), $3, attname)::cstring
FROM pg_partitioned_table JOIN pg_attribute ON attrelid = partrelid
     LEFT JOIN (SELECT inhparent, coalesce(pg_get_partition_constraintdef(inhrelid), 'true')  -- NULL: accepts every value
                FROM pg_inherits) AS partition (inhparent, constraintdef) ON inhparent = partrelid
WHERE partrelid = $1 AND attnum = $2 AND partnatts = 1 AND partattrs[0] = attnum
GROUP BY attname
