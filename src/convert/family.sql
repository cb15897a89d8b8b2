-- $1 tables, $2 their columns, in pairs: the columns in their tables, partitions and children.
-- This file is put in front of others.
WITH RECURSIVE named_column AS (SELECT * FROM unnest($1, $2) WITH ORDINALITY AS named_column (root, att, place)),
     tree (place, root, rel) AS (
    SELECT place, root, root FROM named_column
  UNION
    SELECT place, root, inhrelid FROM tree JOIN pg_inherits ON inhparent = rel
),
     family AS (
    SELECT place, root, rel, a.attnum, a.attname, a.attidentity, c.relispartition, d.oid AS def,
           -- As with standard_conforming_strings, which doubles no backslash (chr(92)).
           CASE WHEN current_setting('standard_conforming_strings')::boolean THEN pg_get_expr(d.adbin, d.adrelid)
                ELSE replace(pg_get_expr(d.adbin, d.adrelid), repeat(chr(92), 2), chr(92)) END AS expression,
           (SELECT format('%I.%I', nspname, c.relname) FROM pg_namespace n WHERE n.oid = c.relnamespace) AS name
    FROM named_column JOIN tree USING (place, root)
         JOIN pg_attribute named ON named.attrelid = root AND named.attnum = att
         JOIN pg_attribute a ON a.attrelid = rel AND a.attname = named.attname
         JOIN pg_class c ON c.oid = rel
         LEFT JOIN pg_attrdef d ON d.adrelid = rel AND d.adnum = a.attnum
)
