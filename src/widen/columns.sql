-- $1 tables, $2 their columns to be widened, in pairs: the name of the wide column of each, as a
-- text and as in SQL, and the narrow one's as in SQL.
SELECT name::text::cstring, quote_ident(name)::cstring, quote_ident(attname)::cstring
FROM unnest($1, $2) WITH ORDINALITY AS narrow (rel, att, place) JOIN pg_attribute a ON attrelid = rel AND attnum = att,
     LATERAL (SELECT coalesce((SELECT min(wide) FROM kept k WHERE k.rel = narrow.rel AND k.att = narrow.att),
                              -- The first that the table has not.
                              (SELECT concat('snowflake_widen_', att, repeat('_', n)) FROM generate_series(0, 20) AS n
                               WHERE NOT EXISTS (SELECT FROM pg_attribute
                                                 WHERE attrelid = rel AND attname = concat('snowflake_widen_', att, repeat('_', n)))
                               ORDER BY n LIMIT 1))) AS wide (name)
ORDER BY place
