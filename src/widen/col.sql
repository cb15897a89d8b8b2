-- $1 tables, $2 their columns to be widened, $3 the name of the wide column of each. This file is
-- put in front of others.
,    col AS (
    SELECT place, c.rel, c.att, c.wide::name AS wide, a.attname, a.attnotnull, a.attidentity, a.attcollation, r.relname, r.relnamespace,
           r.relowner, format('%I.%I', nspname, relname) AS name, nspname,
           -- An idea of which columns are generated from it.
           ARRAY(SELECT adnum FROM pg_depend d JOIN pg_attrdef e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
                 WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.rel AND d.refobjsubid = c.att AND e.adnum <> c.att) AS generated
    FROM unnest($1, $2, $3) WITH ORDINALITY AS c (rel, att, wide, place)
         JOIN pg_attribute a ON a.attrelid = rel AND a.attnum = att
         JOIN pg_class r ON r.oid = rel JOIN pg_namespace n ON n.oid = relnamespace
)
