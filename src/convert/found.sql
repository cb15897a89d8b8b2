-- $1 tables, $2 their columns, in pairs: the objects that depend on one of them in a way that
-- forbids another type. These include columns made of its table's row type (as an array, a domain,
-- a range, or a part of another row type), and expressions that name such a type. This file is put
-- in front of others.
WITH RECURSIVE narrow AS (SELECT * FROM unnest($1, $2) AS narrow (rel, att)),
     made_of (rel, type) AS (
    SELECT DISTINCT rel, t.oid FROM narrow JOIN pg_type t ON t.typrelid = rel
  UNION
    SELECT m.rel, CASE WHEN d.classid = 'pg_type'::regclass THEN d.objid ELSE c.reltype END
    FROM made_of m
         JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid = m.type
         LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind IN ('c', 'v')
    WHERE d.classid = 'pg_type'::regclass OR c.reltype <> 0
),
     found (rel, att, classid, objid, objsubid) AS (
    SELECT rel, att, classid, objid, objsubid
    FROM narrow
         JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = rel AND d.refobjsubid = att
         LEFT JOIN pg_attrdef e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
    WHERE d.classid IN ('pg_rewrite'::regclass, 'pg_trigger'::regclass, 'pg_policy'::regclass,
                        'pg_publication_rel'::regclass, 'pg_proc'::regclass)
       OR e.adnum <> att
  UNION
    SELECT m.rel, 0, classid, objid, objsubid
    FROM made_of m
         JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid = m.type AND d.deptype = 'n'
         LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
    WHERE d.classid IN ('pg_rewrite'::regclass, 'pg_constraint'::regclass, 'pg_trigger'::regclass, 'pg_policy'::regclass,
                        'pg_attrdef'::regclass, 'pg_statistic_ext'::regclass)
       OR c.relkind IN ('r', 'm', 'p', 'f') OR d.objsubid = 0 AND c.oid IS NOT NULL
       -- A function that uses the type in its body or in a default, whose trees then name it. (The
       -- arguments and the result alone add a dependency, too, from PostgreSQL 19 on the same one.)
       OR d.classid = 'pg_proc'::regclass
          AND (SELECT concat(proargdefaults, prosqlbody) ~ format(E' %s\\M', m.type) FROM pg_proc WHERE oid = d.objid)
)
