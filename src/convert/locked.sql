-- $1 tables, $2 their columns to be widened, in pairs; $3 tables, $4 their columns that will hold
-- ids, in pairs: the relations that PostgreSQL locks for the statements, and the name of each
-- altered one that the caller does not own. These relations are the tables of $3 with their
-- partitions and children, the tables with a column to be widened, the tables at the other end of a
-- foreign key that is created again, and the sequences of these columns.
WITH RECURSIVE narrow AS (SELECT * FROM unnest($1, $2) AS narrow (rel, att)),
     tree (rel, att) AS (
    SELECT attrelid, attname FROM unnest($3, $4) AS named (rel, att) JOIN pg_attribute ON attrelid = rel AND attnum = att
  UNION
    SELECT inhrelid, att FROM tree JOIN pg_inherits ON inhparent = rel
),
     altered (rel, att) AS (
    SELECT rel, attnum FROM tree JOIN pg_attribute ON attrelid = rel AND attname = att
  UNION
    SELECT rel, att FROM narrow
),
     anew AS (
    SELECT f.conrelid, f.confrelid, p.relispartition AND f.conparentid = 0 AND f.confrelid = rel AS is_dropped
    FROM narrow JOIN pg_constraint f ON f.contype = 'f' AND (f.confrelid = rel AND att = ANY (f.confkey)
                                                             OR f.conrelid = rel AND att = ANY (f.conkey))
         JOIN pg_class p ON p.oid = f.confrelid
)
SELECT rel, min(CASE WHEN is_altered AND NOT pg_has_role(relowner, 'USAGE') THEN rel::regclass::text END)::cstring
FROM (
    SELECT rel, true FROM altered
  UNION ALL
    SELECT conrelid, is_dropped FROM anew
  UNION ALL
    SELECT confrelid, false FROM anew
  UNION ALL
    SELECT s.oid, false
    FROM altered JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = rel AND d.refobjsubid = att
                                     AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
         JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
) AS locked (rel, is_altered) JOIN pg_class ON oid = rel
GROUP BY rel
ORDER BY rel
