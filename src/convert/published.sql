-- $1 tables, $2 their columns to be widened, in pairs: the tables that a publication has, with the
-- publication's name, in one text. A partition is left out if its table is there. (The view
-- pg_publication_tables would lock tables.)
WITH RECURSIVE up (rel, ancestor) AS (
    SELECT DISTINCT rel, rel FROM unnest($1, $2) AS narrow (rel, att)
  UNION
    SELECT rel, inhparent FROM up JOIN pg_class c ON c.oid = ancestor AND c.relispartition JOIN pg_inherits ON inhrelid = ancestor
),
     listed AS (
    SELECT rel, p.oid AS pub
    FROM up JOIN pg_class c ON c.oid = ancestor CROSS JOIN pg_publication p
         LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = ancestor
         LEFT JOIN pg_publication_namespace n ON n.pnpubid = p.oid AND n.pnnspid = relnamespace
    GROUP BY rel, p.oid
    -- FOR ALL TABLES lists only what it leaves out.
    HAVING p.puballtables <> bool_or(r.oid IS NOT NULL OR NOT p.puballtables AND n.oid IS NOT NULL)
),
     published AS (SELECT rel, pub FROM listed WHERE pg_relation_is_publishable(rel))
SELECT string_agg(format('table %s of publication %I', rel::regclass, pubname), chr(10) ORDER BY rel::regclass::text, pubname)::cstring
FROM published JOIN pg_publication p ON p.oid = pub
WHERE NOT EXISTS (SELECT FROM published root JOIN pg_inherits ON inhparent = root.rel JOIN pg_class c ON c.oid = inhrelid
                  WHERE inhrelid = published.rel AND root.pub = published.pub AND relispartition)
HAVING count(*) > 0
