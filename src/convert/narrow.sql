-- The columns that hold the values and have to become bigint, and for each whether something
-- forbids it.
SELECT c.oid,
       a.attnum,
       c.oid::regclass::text::cstring,
       a.attname::text::cstring,
       format_type(a.atttypid, a.atttypmod)::cstring,
       a.atttypid IN ('int2'::regtype, 'int4'::regtype),
       EXISTS (SELECT FROM pg_depend d  -- for each column in the partition key, also in an expression
               WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = a.attnum AND d.deptype = 'i'
                     AND d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND d.refobjsubid = 0),
       c.reloftype <> 0,
       a.attinhcount > 0
FROM holds h
     JOIN pg_class c ON c.oid = h.rel
     JOIN pg_attribute a ON a.attrelid = h.rel AND a.attname = h.att
     JOIN pg_type t ON t.oid = a.atttypid
WHERE CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END <> 'int8'::regtype
ORDER BY c.oid <> ALL ($1), c.oid, a.attnum
