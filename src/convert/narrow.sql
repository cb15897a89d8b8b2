-- $1 tables, $2 their columns, in pairs: the columns that hold their values and have to become
-- bigint, and for each whether something forbids it. These are the same columns of the tables'
-- partitions and children, the foreign key columns of any table that refer to one of these, and so
-- on.
WITH RECURSIVE holds (rel, att) AS (
    SELECT attrelid, attname FROM unnest($1, $2) AS named (rel, att) JOIN pg_attribute ON attrelid = rel AND attnum = att
  UNION
    SELECT next.* FROM holds h, LATERAL (
        SELECT inhrelid, h.att FROM pg_inherits WHERE inhparent = h.rel
      UNION ALL
        SELECT i.inhparent, h.att FROM pg_inherits i JOIN pg_attribute a ON a.attrelid = i.inhparent AND a.attname = h.att
        WHERE i.inhrelid = h.rel
      UNION ALL
        SELECT f.conrelid, b.attname
        FROM pg_attribute a JOIN pg_constraint f ON f.confrelid = a.attrelid AND f.contype = 'f',
             unnest(f.confkey, f.conkey) AS key (referred, referring) JOIN pg_attribute b ON b.attnum = key.referring
        WHERE a.attrelid = h.rel AND a.attname = h.att AND key.referred = a.attnum AND b.attrelid = f.conrelid
    ) AS next (rel, att)
)
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
