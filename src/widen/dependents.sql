-- $1 tables, $2 their columns to be widened, in pairs: the objects that depend on one of them, or
-- on the sequence of its identity, in a way that forbids its drop. The row type may stay in use:
-- only a column's place in it changes. This file is put in front of others.
WITH RECURSIVE narrow AS (SELECT * FROM unnest($1, $2) AS narrow (rel, att)),
     found (rel, att, classid, objid, objsubid) AS (
    SELECT rel, att, classid, objid, objsubid
    FROM narrow
         JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = rel AND d.refobjsubid = att
         LEFT JOIN pg_attrdef e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
         LEFT JOIN pg_trigger t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
    -- Also what later versions bring, such as property graphs.
    WHERE d.classid NOT IN ('pg_attrdef'::regclass, 'pg_class'::regclass, 'pg_constraint'::regclass, 'pg_statistic_ext'::regclass, 'pg_trigger'::regclass)
          OR tgfoid <> 'snowflake_plan.widen_keep()'::regprocedure OR e.adnum <> att
  UNION ALL
    SELECT rel, att, d.classid, d.objid, d.objsubid
    FROM narrow
         JOIN pg_depend i ON i.refclassid = 'pg_class'::regclass AND i.refobjid = rel AND i.refobjsubid = att
                             AND i.classid = 'pg_class'::regclass AND i.deptype = 'i'
         JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = i.objid AND d.deptype = 'n'
)
