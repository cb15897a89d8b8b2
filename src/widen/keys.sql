-- The foreign keys of the columns. A partitioned table's is built on each partition by itself, as
-- PostgreSQL before 18 builds none of a whole one without its check under a lock. One that refers
-- to a partitioned table, whose new key exists from the switch on, comes in the switch, and is
-- checked in the clean up (is_late). This file is put in front of others.
,    up (oid, top) AS (
    SELECT oid, oid FROM pg_constraint WHERE contype = 'f' AND conparentid = 0
  UNION ALL
    SELECT f.oid, top FROM up JOIN pg_constraint f ON f.conparentid = up.oid
),
     fk AS (
    SELECT f.*, up.top, to_jsonb(f) ->> 'conenforced' = 'false' AS is_unenforced,
           -- From the whole one, because PostgreSQL stores wrong columns of ON DELETE SET in that
           -- of a partition whose columns have other numbers.
           pg_get_constraintdef(top) AS definition, t.confdelsetcols AS set_atts, t.conrelid AS set_rel,
           format('%I.%I', rn.nspname, r.relname) AS name, format('%I.%I', en.nspname, e.relname) AS ref,
           r.relkind = 'p' AS is_partitioned,
           t.confrelid = f.confrelid AND r.relkind <> 'p' AND (w.relkind <> 'p' OR t.convalidated) AS is_unit,
           e.relkind = 'p' AND EXISTS (SELECT FROM col WHERE col.rel = f.confrelid AND col.att = ANY (f.confkey)) AS is_late
    FROM pg_constraint f JOIN up ON up.oid = f.oid JOIN pg_constraint t ON t.oid = top
         JOIN pg_class r ON r.oid = f.conrelid JOIN pg_namespace rn ON rn.oid = r.relnamespace
         JOIN pg_class e ON e.oid = f.confrelid JOIN pg_namespace en ON en.oid = e.relnamespace JOIN pg_class w ON w.oid = t.conrelid
    WHERE EXISTS (SELECT FROM col WHERE col.rel = f.conrelid AND col.att = ANY (f.conkey)
                                        OR col.rel = f.confrelid AND col.att = ANY (f.confkey))
          AND NOT EXISTS (SELECT FROM kept WHERE kept.rel = f.conrelid AND kept.wide_att = ANY (f.conkey)
                                                 OR kept.rel = f.confrelid AND kept.wide_att = ANY (f.confkey))
),
     -- Those of whole partitioned tables: made of a partition's, if there is one, which is checked.
     whole_fk AS (
    SELECT fk.*, (SELECT min(u.oid) FROM fk u WHERE u.top = fk.oid AND u.is_unit) AS unit
    FROM fk WHERE conparentid = 0 AND is_partitioned
),
     -- What is left to check after the switch, with the partition's key for a whole one.
     owed AS (
    SELECT fk.oid, fk.confrelid AS rel, fk.name, fk.conname::text, u.name AS unit, u.conname::text AS unit_con,
           obj_description(fk.oid, 'pg_constraint') AS comment
    FROM fk LEFT JOIN whole_fk w ON w.oid = fk.oid LEFT JOIN fk u ON u.oid = w.unit
    WHERE fk.is_late AND (fk.is_unit AND fk.convalidated AND fk.is_unenforced IS NOT TRUE OR u.oid IS NOT NULL)
)
