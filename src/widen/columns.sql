-- $1 tables, $2 their columns to be replaced, in pairs: the name of the column beside each, as a
-- text and as in SQL, the former one's as in SQL, and the type of the one beside. A partition's has
-- the name of its partitioned table's. A new name has the table's number, because a NATURAL JOIN of
-- a session compares all columns whose names are equal.
SELECT name::text::cstring, quote_ident(name)::cstring, quote_ident(attname)::cstring,
       coalesce((SELECT t.typname FROM pg_attribute JOIN pg_type t ON t.oid = atttypid WHERE attrelid = rel AND pg_attribute.attname = name), 'int8')::text::cstring
FROM unnest($1, $2) WITH ORDINALITY AS narrow (rel, att, place) JOIN pg_attribute a ON attrelid = rel AND attnum = att,
     LATERAL (SELECT coalesce(pg_partition_root(rel), rel)) AS root (root),
     LATERAL (SELECT attnum FROM pg_attribute r WHERE r.attrelid = root AND r.attname = a.attname) AS whole (number),
     LATERAL (SELECT coalesce((SELECT min(wide) FROM kept k WHERE k.rel = root AND k.att = number),
                              -- The first that none of the tables has.
                              (SELECT concat('snowflake_widen_', root::oid, '_', number, repeat('_', n)) FROM generate_series(0, 20) AS n
                               WHERE NOT EXISTS (SELECT FROM pg_attribute
                                                 WHERE (attrelid = root OR attrelid IN (SELECT relid FROM pg_partition_tree(root)))
                                                       AND pg_attribute.attname = concat('snowflake_widen_', root::oid, '_', number, repeat('_', n)))
                               ORDER BY n LIMIT 1))) AS wide (name)
ORDER BY place
