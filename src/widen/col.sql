-- $1 tables, $2 their columns to be replaced, $3 the name of the column beside each. This file is
-- put in front of others. A column is added, renamed and dropped on the whole of a partitioned
-- table (is_whole), and PostgreSQL does the same to its partitions, also with the trigger.
,    col AS (
    SELECT place, c.rel, c.att, c.wide::name AS wide, NOT relispartition AS is_whole, relkind,
           -- The one that it has, or one that fires after all that could change the former column.
           CASE WHEN k.tgname > coalesce(late.tgname, '') THEN k.tgname
                ELSE coalesce(late.tgname || '~' || c.att, '~' || c.wide)::name END AS trigger,
           a.attname, a.attidentity, r.relnamespace, r.relowner, format('%I.%I', nspname, relname) AS name, nspname,
           -- NOT NULL that does not come from the partitioned table.
           a.attnotnull AND NOT EXISTS (SELECT FROM pg_inherits JOIN pg_attribute p ON p.attrelid = inhparent AND p.attname = a.attname
                                        WHERE inhrelid = c.rel AND p.attnotnull) AS is_not_null,
           coalesce((SELECT format_type(w.atttypid, NULL) FROM pg_attribute w WHERE w.attrelid = c.rel AND w.attname = c.wide::name), 'bigint') AS type,
           -- An idea of which columns are generated from it.
           ARRAY(SELECT adnum FROM pg_depend d JOIN pg_attrdef e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
                 WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.rel AND d.refobjsubid = c.att AND e.adnum <> c.att) AS generated
    FROM unnest($1, $2, $3) WITH ORDINALITY AS c (rel, att, wide, place)
         JOIN pg_attribute a ON a.attrelid = rel AND a.attnum = att
         JOIN pg_class r ON r.oid = rel JOIN pg_namespace n ON n.oid = relnamespace
         LEFT JOIN kept k ON (k.rel, k.att, k.wide) = (c.rel, c.att, c.wide::name)
         -- BEFORE, FOR EACH ROW, on INSERT or UPDATE; also those of single partitions.
         LEFT JOIN LATERAL (SELECT max(tgname::text COLLATE "C") AS tgname FROM pg_trigger t
                            WHERE (tgrelid = c.rel OR tgrelid IN (SELECT relid FROM pg_partition_tree(c.rel)))
                                  AND NOT tgisinternal AND tgtype & 3 = 3 AND tgtype & 20 <> 0 AND tgname > ('~' || c.wide)::name
                                  AND tgfoid <> 'snowflake_plan.widen_keep()'::regprocedure) AS late ON true
)
