-- $1 tables, $2 their columns to be widened, $3 the name of the wide column of each. This file is
-- put in front of others.
,    col AS (
    SELECT place, c.rel, c.att, c.wide::name AS wide,
           -- The one that it has, or one that fires after all that could change the narrow column.
           CASE WHEN k.tgname > coalesce(late.tgname, '') THEN k.tgname
                ELSE coalesce(late.tgname || '~' || c.att, '~' || c.wide)::name END AS trigger,
           a.attname, a.attnotnull, a.attidentity, r.relnamespace, r.relowner, format('%I.%I', nspname, relname) AS name, nspname,
           -- An idea of which columns are generated from it.
           ARRAY(SELECT adnum FROM pg_depend d JOIN pg_attrdef e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
                 WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.rel AND d.refobjsubid = c.att AND e.adnum <> c.att) AS generated
    FROM unnest($1, $2, $3) WITH ORDINALITY AS c (rel, att, wide, place)
         JOIN pg_attribute a ON a.attrelid = rel AND a.attnum = att
         JOIN pg_class r ON r.oid = rel JOIN pg_namespace n ON n.oid = relnamespace
         LEFT JOIN kept k ON (k.rel, k.att, k.wide) = (c.rel, c.att, c.wide::name)
         -- BEFORE, FOR EACH ROW, on INSERT or UPDATE.
         LEFT JOIN LATERAL (SELECT max(tgname::text COLLATE "C") AS tgname FROM pg_trigger t
                            WHERE tgrelid = c.rel AND NOT tgisinternal AND tgtype & 3 = 3 AND tgtype & 20 <> 0 AND tgname > ('~' || c.wide)::name
                                  AND tgfoid <> 'snowflake_plan.widen_keep()'::regprocedure) AS late ON true
)
