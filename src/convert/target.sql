-- $1 relation, $2 attribute: facts about the relation, and about the column if there is one.
SELECT c.oid::regclass::text::cstring,
       c.relkind IN ('r', 'p'),
       c.oid < 16384,
       pg_has_role(c.relowner, 'USAGE'),
       a.attnum,
       a.attname::text::cstring,
       format_type(a.atttypid, a.atttypmod)::cstring,
       CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype),
       a.attgenerated <> '',
       (WITH RECURSIVE up (rel) AS (
            SELECT c.oid
          UNION
            SELECT i.inhparent FROM up JOIN pg_inherits i ON i.inhrelid = rel
                                       JOIN pg_attribute b ON b.attrelid = i.inhparent AND b.attname = a.attname
        )
        SELECT min(p.oid::regclass::text)::cstring
        FROM up JOIN pg_class p ON p.oid = rel JOIN pg_attribute b ON b.attrelid = rel AND b.attname = a.attname
        WHERE b.attinhcount = 0 AND a.attinhcount > 0),
       CASE CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
           WHEN 'int2'::regtype THEN 32767 WHEN 'int4'::regtype THEN 2147483647 ELSE 9223372036854775807 END,
       t.typtype = 'd',
       a.attidentity = 'a'
FROM pg_class c
     LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = $2::text::name AND a.attnum > 0 AND NOT a.attisdropped
     LEFT JOIN pg_type t ON t.oid = a.atttypid
WHERE c.oid = $1
