-- The texts that name a column to be widened: of indexes, from the list of columns on, and of CHECK
-- constraints. For each: the object, the table, the text, how often the text names such columns,
-- the object's name for messages, its expressions alone, and the table with the new columns, which
-- may not exist yet. What depends on a generated column is left out, because it is created again
-- after that. The expressions of exclusion constraints and of generated columns follow, without an
-- object: the switch needs no text of them, but would fail if they did not take a bigint.
,    widened (rel, from_it) AS (
    SELECT rel, format('FROM (SELECT *%s FROM ONLY %s) AS %I',
                       string_agg(format(', NULL::%s AS %I', type, wide), '')
                           FILTER (WHERE NOT EXISTS (SELECT FROM pg_attribute w WHERE w.attrelid = rel AND w.attname = wide)),
                       name, (SELECT relname FROM pg_class WHERE oid = rel))
    FROM col GROUP BY rel, name
)
,    idx AS (
    SELECT i.*, x.relname AS index_name, x.reltablespace, am.amname, t.name, t.nspname,
           concat(i.indexprs::text, i.indpred::text) AS tree, i.indkey::int2[] AS keys
    FROM (SELECT DISTINCT rel, name, nspname FROM col) AS t JOIN pg_index i ON i.indrelid = t.rel
         JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am am ON am.oid = x.relam
    WHERE x.relkind = 'i' AND NOT indisexclusion AND EXISTS (SELECT FROM col WHERE col.rel = t.rel AND (col.att = ANY (i.indkey)
                      OR concat(i.indexprs::text, i.indpred::text) ~ format(':varattno %s ', col.att)))
          -- Another widening builds its own anew.
          AND NOT (starts_with(x.relname::text, 'snowflake_widen_')
                   AND EXISTS (SELECT FROM kept WHERE kept.rel = i.indrelid
                               AND (kept.wide_att = ANY (i.indkey) OR concat(i.indexprs::text, i.indpred::text) ~ format(':varattno %s ', kept.wide_att))))
),
     head AS (
    SELECT idx.*, pg_get_indexdef(indexrelid) AS definition,
           format('CREATE %sINDEX %I ON %s USING %I ', CASE WHEN indisunique THEN 'UNIQUE ' END, index_name,
                  regexp_replace(name, '^pg_temp_[0-9]+[.]', 'pg_temp.'), amname) AS beginning
    FROM idx
    WHERE NOT EXISTS (SELECT FROM col WHERE col.rel = indrelid
                      AND (col.generated && keys OR EXISTS (SELECT FROM unnest(col.generated) AS g WHERE tree ~ format(':varattno %s ', g))))
          AND indisvalid
)
SELECT indexrelid, indrelid, concat(substr(definition, length(beginning) + 1, length(definition) - length(beginning) - length(predicate)),
              -- Otherwise the session's default_tablespace would decide.
              ' TABLESPACE ', (SELECT quote_ident(spcname) FROM pg_tablespace
                               WHERE oid = coalesce(NULLIF(reltablespace, 0), (SELECT dattablespace FROM pg_database
                                                                               WHERE datname = current_database()))),
              predicate)::cstring,
       (SELECT count(*) FROM col JOIN unnest(keys) AS key ON key = col.att WHERE col.rel = indrelid)
       + (SELECT coalesce(sum((SELECT count(*) FROM regexp_matches(tree, att, 'g'))), 0)::bigint FROM (SELECT format(':varattno %s ', col.att) AS att FROM col WHERE col.rel = indrelid) AS c),
       format('index %I.%I', nspname, index_name)::cstring,
       concat_ws(', ', pg_get_expr(indexprs, indrelid), pg_get_expr(indpred, indrelid))::cstring, from_it::cstring
FROM head JOIN widened ON rel = indrelid, LATERAL (SELECT coalesce(' WHERE ' || pg_get_expr(indpred, indrelid), '')) AS p (predicate)
UNION ALL
SELECT k.oid, k.conrelid, pg_get_expr(conbin, conrelid)::cstring,
       (SELECT coalesce(sum((SELECT count(*) FROM regexp_matches(conbin::text, att, 'g'))), 0)::bigint
        FROM (SELECT format(':varattno %s ', col.att) AS att FROM col WHERE col.rel = conrelid) AS c),
       format('check constraint "%s" of table %s', conname, conrelid::regclass)::cstring,
       pg_get_expr(conbin, conrelid)::cstring, from_it::cstring
FROM pg_constraint k JOIN widened ON rel = conrelid
-- A partition's follows its partitioned table's.
WHERE contype = 'c' AND coninhcount = 0 AND EXISTS (SELECT FROM col WHERE col.rel = conrelid AND col.att = ANY (conkey))
      AND NOT EXISTS (SELECT FROM kept WHERE kept.rel = conrelid AND kept.wide_att = ANY (conkey))
      AND NOT EXISTS (SELECT FROM col WHERE col.rel = conrelid AND col.generated && conkey)
UNION ALL
SELECT 0, rel, expressions::cstring, names, format('exclusion constraint "%s" of table %s', conname, rel::regclass)::cstring, expressions::cstring, from_it::cstring
FROM widened JOIN pg_constraint k ON conrelid = rel AND contype = 'x' AND conparentid = 0 JOIN pg_index i ON indexrelid = conindid,
     LATERAL (SELECT concat_ws(', ', pg_get_expr(indexprs, rel), pg_get_expr(indpred, rel)),
                     (SELECT coalesce(sum((SELECT count(*) FROM regexp_matches(concat(indexprs::text, indpred::text), format(':varattno %s ', col.att), 'g'))), 0)::bigint
                      FROM col WHERE col.rel = widened.rel)) AS e (expressions, names)
WHERE names > 0
UNION ALL
SELECT 0, rel, pg_get_expr(adbin, rel)::cstring, names, format('generated column "%s" of table %s', attname, rel::regclass)::cstring, pg_get_expr(adbin, rel)::cstring, from_it::cstring
FROM widened JOIN pg_attribute a ON attrelid = rel AND attgenerated <> '' JOIN pg_attrdef ON adrelid = rel AND adnum = attnum,
     LATERAL (SELECT coalesce(sum((SELECT count(*) FROM regexp_matches(adbin::text, format(':varattno %s ', col.att), 'g'))), 0)::bigint
              FROM col WHERE col.rel = widened.rel) AS e (names)
WHERE names > 0
