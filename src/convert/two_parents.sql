-- $1 tables, $2 their columns, in pairs: a table that inherits the column from two of them, so
-- neither parent's column can be widened before the other's.
WITH RECURSIVE below (root, rel) AS (
    SELECT rel, rel FROM unnest($1, $2) AS narrow (rel, att) JOIN pg_attribute ON attrelid = rel AND attnum = att
    WHERE attinhcount = 0
  UNION
    SELECT root, inhrelid FROM below JOIN pg_inherits ON inhparent = rel
)
SELECT c.oid::regclass::text::cstring, a.attname::text::cstring
FROM unnest($1, $2) AS narrow (rel, att)
     JOIN pg_class c ON c.oid = rel
     JOIN pg_attribute a ON a.attrelid = rel AND a.attnum = att
WHERE a.attinhcount > 1
      AND 1 < (SELECT count(*) FROM below JOIN pg_attribute b ON b.attrelid = root AND b.attname = a.attname WHERE below.rel = narrow.rel)
