-- $1 table, $2 column: the query for its greatest value.
SELECT format('SELECT max(%I)::bigint FROM %I.%I', attname, nspname, relname)::cstring
FROM pg_attribute JOIN pg_class r ON r.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
WHERE attrelid = $1 AND attnum = $2
