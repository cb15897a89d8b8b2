-- What the user should know before the first step, a line for each. A publication sends a
-- partition's rows as its own, or with publish_via_partition_root as those of the topmost table
-- that it has.
, sent AS (
    SELECT col.name, s.name AS sent_as, col.wide, pubname, pubupdate,
           CASE relreplident WHEN 'd' THEN NOT EXISTS (SELECT FROM pg_index WHERE indrelid = col.rel AND indisprimary)
                             WHEN 'i' THEN NOT EXISTS (SELECT FROM pg_index WHERE indrelid = col.rel AND indisreplident)
                             ELSE relreplident = 'n' END AS has_no_identity
    FROM col JOIN pg_class c ON c.oid = col.rel AND col.relkind = 'r' AND pg_relation_is_publishable(col.rel) CROSS JOIN pg_publication p,
         LATERAL (
             SELECT CASE WHEN pubviaroot THEN (array_agg(up.rel ORDER BY n DESC))[1] ELSE col.rel END
             FROM (SELECT col.rel, 0::bigint UNION SELECT * FROM pg_partition_ancestors(col.rel) WITH ORDINALITY) AS up (rel, n)
                  JOIN pg_class u ON u.oid = up.rel
             -- FOR ALL TABLES lists only what it leaves out.
             WHERE puballtables <> (EXISTS (SELECT FROM pg_publication_rel WHERE prpubid = p.oid AND prrelid = up.rel)
                                    OR NOT puballtables AND EXISTS (SELECT FROM pg_publication_namespace WHERE pnpubid = p.oid AND pnnspid = u.relnamespace))
             HAVING count(*) > 0
         ) AS as_table (rel) JOIN (SELECT DISTINCT rel, name FROM col) AS s ON s.rel = as_table.rel
    WHERE NOT EXISTS (SELECT FROM pg_publication_rel WHERE prpubid = p.oid AND prrelid = as_table.rel AND prattrs IS NOT NULL)
)
SELECT notes.note::cstring
FROM (
    SELECT 1, name, format('%s: column %s becomes the last one, so check each INSERT and COPY without a list of columns, SELECT *, and uses of the row type', name,
                           string_agg(quote_ident(attname), ', ' ORDER BY place))
    FROM col WHERE is_whole GROUP BY name
  UNION
    SELECT 2, name, format('%s: its row type is used by %s', name, pg_describe_object(d.classid, d.objid, d.objsubid))
    FROM col JOIN pg_type t ON t.typrelid = rel JOIN pg_type a ON a.oid IN (t.oid, t.typarray)
         JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid = a.oid AND d.deptype = 'n'
  UNION
    SELECT 3, name, format('%s: the fill''s UPDATE would fire %s, so snowflake_widen_fill() refuses until session_replication_role = replica is set for it, or the trigger is disabled',
                           name, pg_describe_object('pg_trigger'::regclass, t.oid, 0))
    FROM col JOIN pg_trigger t ON tgrelid = rel WHERE tgparentid = 0 AND snowflake_plan.widen_fires(t.oid, 'origin')
  UNION
    SELECT 4, name, format('%s: %s rewrites UPDATE, so snowflake_widen_fill() refuses until session_replication_role = replica is set for it, or the rule is disabled',
                           name, pg_describe_object('pg_rewrite'::regclass, r.oid, 0))
    FROM col JOIN pg_rewrite r ON ev_class = rel AND ev_type = '2' AND ev_enabled IN ('O', 'A')
  UNION
    SELECT 4, name, format('%s: policies hold for its owner as well, so snowflake_widen_fill() refuses a role without BYPASSRLS', name)
    FROM col JOIN pg_class c ON c.oid = rel WHERE relforcerowsecurity
  UNION
    SELECT 5, name, format('%s: generated column %I is computed again in the switch, under its locks, and becomes a last one as well', name, a.attname)
    FROM col JOIN LATERAL unnest(generated) AS g (att) ON is_whole JOIN pg_attribute a ON a.attnum = g.att AND attgenerated <> '' WHERE a.attrelid = rel
  UNION
    SELECT 5, name, format('%s: exclusion constraint %I is built in the switch, under its locks', name, conname)
    FROM col JOIN pg_constraint ON conrelid = rel AND contype = 'x' AND conparentid = 0 JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = conindid
         AND d.refclassid = 'pg_class'::regclass AND d.refobjid = rel AND d.refobjsubid = att
  UNION
    SELECT 5, name, format('%s: constraint %I is DEFERRABLE, but %s', name, conname,
                           CASE contype WHEN 'p' THEN 'checked at once from the build to the switch' ELSE 'checked at once while its new index is built' END)
    FROM col JOIN pg_constraint ON conrelid = rel AND contype IN ('p', 'u') AND conparentid = 0 AND condeferrable AND att = ANY (conkey)
  UNION
    SELECT 6, sent_as, format('%s: publication %I sends all columns, so add column %I bigint on its subscribers first and drop it last, or publish a list of columns',
                              sent_as, pubname, wide)
    FROM sent
  UNION
    SELECT 6, name, format('%s: publication %I sends updates, but the table has no replica identity, so the fill fails until it has one', name, pubname)
    FROM sent WHERE pubupdate AND has_no_identity
  UNION
    -- Checks and indexes are refused, as their texts can be tried.
    SELECT 7, name, format('%s: %s calls %s, so the switch fails unless there is one for bigint', name,
                           pg_describe_object(d.classid, d.objid, d.objsubid), p.oid::regprocedure)
    FROM col JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = rel AND d.refobjsubid = att
                                 AND d.classid IN ('pg_rewrite'::regclass, 'pg_policy'::regclass, 'pg_trigger'::regclass, 'pg_attrdef'::regclass)
         JOIN pg_depend f ON (f.classid, f.objid, f.refclassid) = (d.classid, d.objid, 'pg_proc'::regclass) JOIN pg_proc p ON p.oid = f.refobjid
    WHERE p.proargtypes::oid[] && ARRAY['int2'::regtype, 'int4'::regtype]::oid[]
          AND NOT EXISTS (SELECT FROM pg_proc o WHERE (o.proname, o.pronamespace) = (p.proname, p.pronamespace) AND 'int8'::regtype = ANY (o.proargtypes::oid[]))
) AS notes (number, name, note)
ORDER BY number, name, notes.note
