-- $1 a table: its name, and its size with indexes, partitions and children. A comment of SQL can
-- contain both.
WITH RECURSIVE tree (rel) AS (
    SELECT $1
  UNION
    SELECT inhrelid FROM tree JOIN pg_inherits ON inhparent = rel
)
SELECT translate($1::regclass::text, chr(10) || chr(13), '  ')::cstring,
       pg_size_pretty((SELECT coalesce(sum(pg_total_relation_size(rel)), 0) FROM tree))::cstring
