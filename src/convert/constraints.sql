-- $3 the next value, $4 whether columns become bigint: the CHECK constraints, of tables and of
-- domains, on the columns that hold the values. For each: its description, its definition, the
-- table and the column; whether the column is one of those to be converted; the table's owner; and
-- the query whether the value satisfies it, unless the constraint names other columns as well.
-- Constraints that are inherited are left out, and tables of owners that the caller is not.
,    own AS (
    SELECT attrelid AS rel, attname AS att FROM unnest($1, $2) AS named (rel, att) JOIN pg_attribute ON attrelid = rel AND attnum = att
  UNION
    SELECT inhrelid, att FROM own JOIN pg_inherits ON inhparent = rel
),
     holder AS (
    SELECT c.oid AS rel, relowner, a.attnum, a.attname, a.atttypid, (h.rel, h.att) IN (TABLE own) AS is_own,
           CASE WHEN t.oid IN ('int2'::regtype, 'int4'::regtype) AND NOT $4 THEN format_type(t.oid, NULL) ELSE 'bigint' END AS type,
           -- Rows with the value do not come into a partition that its bounds keep them out of, if
           -- all tables above it are partitioned by the column alone.
           CASE WHEN relispartition AND NOT EXISTS (
                    SELECT FROM pg_partition_ancestors(c.oid) AS above (rel) JOIN pg_partitioned_table ON partrelid = above.rel
                         LEFT JOIN pg_attribute k ON k.attrelid = partrelid AND k.attnum = partattrs[0]
                    WHERE above.rel <> c.oid AND (partnatts <> 1 OR k.attname IS DISTINCT FROM a.attname))
                THEN pg_get_partition_constraintdef(c.oid) END AS bounds
    FROM holds h JOIN pg_class c ON c.oid = h.rel JOIN pg_attribute a ON a.attrelid = h.rel AND a.attname = h.att
         JOIN pg_type t ON t.oid = a.atttypid
    WHERE pg_has_role(relowner, 'USAGE')
)
SELECT concat(format('check constraint "%s"', conname), CASE WHEN contypid <> 0 THEN ' of domain ' || contypid::regtype END)::cstring,
       pg_get_constraintdef(c.oid)::cstring, rel::regclass::text::cstring, attname::text::cstring, is_own, relowner,
       CASE WHEN contypid <> 0 OR conkey = ARRAY[attnum]
            THEN format('SELECT CASE WHEN (%s) IS FALSE THEN true ELSE (%s) END FROM (SELECT %s::%s AS %I) AS next', coalesce(bounds, 'true'),
                        pg_get_expr(conbin, conrelid), $3, type, CASE WHEN contypid <> 0 THEN 'value' ELSE attname END)::cstring END
FROM holder JOIN pg_constraint c ON contype = 'c' AND coninhcount = 0 AND (contypid = atttypid OR conrelid = rel AND (attnum = ANY (conkey) OR 0 = ANY (conkey)))
WHERE to_jsonb(c) ->> 'conenforced' IS DISTINCT FROM 'false'  -- since PostgreSQL 18
ORDER BY NOT is_own, holder.rel, attnum, contypid, conname
