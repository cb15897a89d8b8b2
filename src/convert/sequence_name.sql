-- For each column: a free name for the sequence of an identity, as PostgreSQL would choose it. This
-- file is put between family.sql with ours.sql, and others.
,    named_sequence AS (
    SELECT place,
           (SELECT free.name
            FROM generate_series(0, 1000) AS n,
                 format('%I.%I', nspname, format('%s_%s_seq%s', left(relname, 28), left(attname, 28), nullif(n, 0))) AS free (name)
            WHERE to_regclass(free.name) IS NULL
            ORDER BY n
            LIMIT 1) AS sequence
    FROM family JOIN pg_class c ON c.oid = rel JOIN pg_namespace s ON s.oid = relnamespace
    WHERE rel = root
)
