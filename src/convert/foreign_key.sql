-- The columns that refer to another one, by a foreign key of their table or of a part of it. For
-- each: the table that has the first such foreign key, the column, the table that it refers to, and
-- the column's place. A column that refers to itself is left out because any value satisfies it.
SELECT DISTINCT ON (place)
       rel::regclass::text::cstring, attname::text::cstring, f.confrelid::regclass::text::cstring, place::bigint
FROM family JOIN pg_constraint f ON f.contype = 'f' AND f.conparentid = 0 AND f.conrelid = rel,
     unnest(f.conkey, f.confkey) AS key (referring, referred)
WHERE key.referring = attnum AND (f.confrelid, key.referred) <> (rel, attnum)
ORDER BY place, f.conrelid <> root, f.conrelid, f.oid
