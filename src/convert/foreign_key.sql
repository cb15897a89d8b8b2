-- The first of the columns that refers to another one, by a foreign key of its table or of a part of it: the table that has the
-- foreign key, the column, and the table that it refers to. A column that refers to itself is satisfied by each of its values.
SELECT rel::regclass::text::cstring, attname::text::cstring, f.confrelid::regclass::text::cstring
FROM family JOIN pg_constraint f ON f.contype = 'f' AND f.conparentid = 0 AND f.conrelid = rel,
     unnest(f.conkey, f.confkey) AS key (referring, referred)
WHERE key.referring = attnum AND (f.confrelid, key.referred) <> (rel, attnum)
ORDER BY place, f.conrelid <> root, f.conrelid, f.oid
LIMIT 1
