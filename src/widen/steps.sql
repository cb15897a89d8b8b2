-- $4 the objects whose texts name such columns, $5 these texts with the wide columns: all steps, in
-- order. For each: the phase, what it does, the statement, the locks. Those of the switch are parts
-- of one statement, and have no semicolon.
,    -- For names: the columns of each table that this call widens. Another one may widen others.
     listed AS (
    SELECT rel, CASE WHEN length(list) > 12 THEN left(md5(list), 12) ELSE list END AS list
    FROM (SELECT rel, string_agg(att::text, '_' ORDER BY att) AS list FROM col GROUP BY rel) AS l
),
     version AS (SELECT current_setting('server_version_num')::integer AS version),
     -- With the new columns' names.
     keyed AS (
    SELECT fk.*,
           (SELECT string_agg(quote_ident(coalesce(col.wide, a.attname)), ', ' ORDER BY n)
            FROM unnest(conkey) WITH ORDINALITY AS key (att, n) JOIN pg_attribute a ON attrelid = conrelid AND attnum = key.att
                 LEFT JOIN col ON col.rel = conrelid AND col.att = key.att) AS keys,
           (SELECT string_agg(quote_ident(coalesce(col.wide, a.attname)), ', ' ORDER BY n)
            FROM unnest(confkey) WITH ORDINALITY AS key (att, n) JOIN pg_attribute a ON attrelid = confrelid AND attnum = key.att
                 LEFT JOIN col ON col.rel = confrelid AND col.att = key.att) AS refs,
           ' (' || (SELECT string_agg(quote_ident(coalesce(col.wide, a.attname)), ', ' ORDER BY n)
                    FROM unnest(set_atts) WITH ORDINALITY AS key (att, n) JOIN pg_attribute a ON attrelid = set_rel AND attnum = key.att
                         LEFT JOIN col ON col.rel = conrelid AND col.attname = a.attname) || ')' AS set_columns
    FROM fk WHERE is_unit AND NOT is_late
),
     action (code, action) AS (VALUES ('r', 'RESTRICT'), ('c', 'CASCADE'), ('n', 'SET NULL'), ('d', 'SET DEFAULT')),
     new_fk AS (
    SELECT keyed.oid, top, conname, conrelid, confrelid, convalidated, condeferrable, condeferred, is_unenforced, name, ref,
           concat('snowflake_widen_', oid, '_', (SELECT list FROM listed WHERE rel = conrelid), '_', (SELECT list FROM listed WHERE rel = confrelid)) AS helper,
           concat('FOREIGN KEY (', keys, ') REFERENCES ', ref, ' (', refs, ')', CASE confmatchtype WHEN 'f' THEN ' MATCH FULL' END,
                  ' ON UPDATE ' || (SELECT action FROM action WHERE code = confupdtype::text),
                  ' ON DELETE ' || (SELECT action || coalesce(set_columns, '') FROM action WHERE code = confdeltype::text),
                  -- Not before the former one, which a session may have deferred by its name.
                  CASE WHEN condeferrable THEN ' DEFERRABLE INITIALLY DEFERRED' END) AS definition,
           confupdtype IN ('c', 'n', 'd') OR confdeltype IN ('c', 'n', 'd') AS has_action
    FROM keyed
),
     renamed AS (SELECT * FROM unnest($4, $5) AS renamed (oid, definition)),
     idx AS (
    SELECT i.*, x.relname AS index_name, x.relispartition, k.oid AS con, k.conname, k.contype, k.condeferrable, k.condeferred, renamed.definition,
           concat('snowflake_widen_', i.indexrelid, '_', (SELECT list FROM listed WHERE listed.rel = i.indrelid)) AS helper, t.name, t.nspname
    FROM renamed JOIN pg_index i ON i.indexrelid = renamed.oid JOIN pg_class x ON x.oid = i.indexrelid
         JOIN (SELECT DISTINCT rel, name, nspname FROM col) AS t ON t.rel = i.indrelid
         LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.contype IN ('p', 'u') AND k.conrelid = i.indrelid
),
     -- Those of whole partitioned tables have no rows: the switch makes them of the partitions'.
     whole_idx AS (
    SELECT DISTINCT i.indexrelid, x.relname AS index_name, x.relispartition, indisclustered, indisreplident, k.oid AS con, k.conname, t.name, t.nspname,
           coalesce(spcname, '') AS tablespace
    FROM col AS t JOIN pg_index i ON i.indrelid = t.rel JOIN pg_class x ON x.oid = i.indexrelid LEFT JOIN pg_tablespace s ON s.oid = x.reltablespace
         LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.contype IN ('p', 'u') AND k.conrelid = t.rel
    WHERE x.relkind = 'I' AND NOT indisexclusion AND (t.att = ANY (i.indkey) OR concat(i.indexprs::text, i.indpred::text) ~ format(':varattno %s ', t.att))
          AND NOT EXISTS (SELECT FROM col g, unnest(g.generated) AS n
                          WHERE g.rel = t.rel AND (n = ANY (i.indkey) OR concat(i.indexprs::text, i.indpred::text) ~ format(':varattno %s ', n)))
),
     any_idx AS (
    SELECT indexrelid, index_name, relispartition, indisclustered, indisreplident, con, conname, name, nspname FROM idx
  UNION ALL
    SELECT indexrelid, index_name, relispartition, indisclustered, indisreplident, con, conname, name, nspname FROM whole_idx
),
     -- PostgreSQL builds such a constraint only under a lock, so the switch does.
     exclusion AS (
    SELECT DISTINCT k.oid, k.conname, name, nspname, coalesce(spcname, '') AS tablespace, indexrelid, x.relname AS index_name, indisclustered
    FROM col JOIN pg_constraint k ON k.conrelid = rel AND contype = 'x' JOIN pg_index i ON indexrelid = conindid
         JOIN pg_class x ON x.oid = indexrelid LEFT JOIN pg_tablespace s ON s.oid = x.reltablespace
    WHERE conparentid = 0 AND (att = ANY (indkey) OR concat(indexprs::text, indpred::text) ~ format(':varattno %s ', att))
          AND NOT EXISTS (SELECT FROM col g, unnest(generated) AS n
                          WHERE g.rel = col.rel AND (n = ANY (indkey) OR concat(indexprs::text, indpred::text) ~ format(':varattno %s ', n)))
),
     chk AS (
    SELECT k.*, renamed.definition, concat('snowflake_widen_', k.oid, '_', (SELECT list FROM listed WHERE listed.rel = conrelid)) AS helper, t.name, to_jsonb(k) ->> 'conenforced' = 'false' AS is_unenforced
    FROM renamed JOIN pg_constraint k ON k.oid = renamed.oid JOIN (SELECT DISTINCT rel, name FROM col) AS t ON t.rel = conrelid
),
     -- Constraints of snowflake_widen() itself, by the wide column's number in its name: that both
     -- columns are equal, and that none is NULL.
     own AS (
    SELECT col.*, replace(wide, 'snowflake_widen_', 'snowflake_widen_equal_') AS equal, replace(wide, 'snowflake_widen_', 'snowflake_widen_not_null_') AS not_null
    FROM col
),
     -- NOT NULL has a constraint since PostgreSQL 18.
     not_nulls AS (
    SELECT own.rel, own.att, own.name, k.oid, conname, convalidated, CASE WHEN connoinherit THEN ' NO INHERIT' END AS no_inherit
    FROM own JOIN pg_constraint k ON conrelid = own.rel AND contype = 'n' AND conkey[1] = own.att WHERE is_not_null
),
     -- What is checked for each table: by its name, the constraint, its definition.
     added AS (
    SELECT name, 1 AS number, place, equal AS con, format('CHECK (%I IS NOT DISTINCT FROM %I)', wide, attname) AS definition, true AS is_validated, '' AS suffix FROM own WHERE is_whole
  UNION ALL
    SELECT own.name, 2, place, not_null, format('CHECK (%I IS NOT NULL)%s', wide, no_inherit), convalidated IS NOT FALSE, ''
    FROM own LEFT JOIN not_nulls USING (rel, att) WHERE is_not_null
  UNION ALL
    SELECT name, 3, oid::bigint, helper, format('CHECK (%s)%s', definition, CASE WHEN connoinherit THEN ' NO INHERIT' END), convalidated,
           CASE WHEN is_unenforced THEN ' NOT ENFORCED' ELSE '' END
    FROM chk
),
     -- Sequences that a column owns, or that its identity has.
     seq AS (
    SELECT col.*, s.oid AS seq, s.relname AS seq_name, s.relacl AS seq_acl, format('%I', sn.nspname) AS seq_schema, d.deptype = 'i' AS is_identity, q.*
    FROM col JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = col.rel AND d.refobjsubid = col.att
                                 AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
         JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S' JOIN pg_namespace sn ON sn.oid = s.relnamespace
         JOIN pg_sequence q ON q.seqrelid = s.oid
),
     bounds (type, least, greatest) AS (
    VALUES ('int2'::regtype, -32768::bigint, 32767::bigint), ('int4', -2147483648, 2147483647), ('int8', -9223372036854775808, 9223372036854775807)
),
     -- Statistics of several columns.
     stats AS (
    SELECT DISTINCT s.oid, format('%I.%I', n.nspname, stxname) AS name, stxowner, (to_jsonb(s) ->> 'stxstattarget')::integer AS target,
           pg_get_statisticsobjdef(s.oid) AS definition
    FROM col JOIN pg_statistic_ext s ON stxrelid = col.rel JOIN pg_namespace n ON n.oid = stxnamespace
    WHERE EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_statistic_ext'::regclass AND d.objid = s.oid
                  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = col.rel AND d.refobjsubid = col.att)
          AND NOT EXISTS (SELECT FROM pg_depend d JOIN col g ON g.rel = stxrelid WHERE d.classid = 'pg_statistic_ext'::regclass AND d.objid = s.oid
                          AND d.refclassid = 'pg_class'::regclass AND d.refobjid = stxrelid AND d.refobjsubid = ANY (g.generated))
),
     tables AS (
    SELECT rel, name, is_whole, relkind, min(place) AS place,
           (SELECT array_agg(format('%I.%I', n.nspname, c.relname) ORDER BY c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
            WHERE c.oid = rel OR c.oid IN (SELECT relid FROM pg_partition_tree(rel)))::text AS list
    FROM col GROUP BY rel, name, is_whole, relkind
),
     -- What was built for objects that have been dropped since, or that have another number in a
     -- restored dump (is_left), and what another widening has built with a narrow column, which it
     -- builds anew.
     orphan AS (
    SELECT 1 AS number, true AS is_left, i.indexrelid AS oid, ARRAY[i.indrelid]::regclass[] AS tables, format('DROP INDEX IF EXISTS %I.%I', nspname, x.relname) AS statement
    FROM kept JOIN col ON col.rel = kept.rel AND col.att = kept.att JOIN pg_index i ON i.indrelid = kept.rel JOIN pg_class x ON x.oid = i.indexrelid
    WHERE starts_with(x.relname::text, 'snowflake_widen_') AND x.relname NOT IN (SELECT helper FROM idx)
          AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = x.oid AND contype = 'u')
          AND (kept.wide_att = ANY (i.indkey) OR concat(i.indexprs::text, i.indpred::text) ~ format(':varattno %s ', kept.wide_att))
  UNION
    SELECT 0, true, k.oid, array_remove(ARRAY[conrelid, confrelid], 0::oid)::regclass[], format('ALTER TABLE %I.%I DROP CONSTRAINT IF EXISTS %I', n.nspname, r.relname, conname)
    FROM kept JOIN col ON col.rel = kept.rel AND col.att = kept.att
         JOIN pg_constraint k ON k.conrelid = kept.rel AND kept.wide_att = ANY (conkey) OR k.confrelid = kept.rel AND kept.wide_att = ANY (confkey)
         JOIN pg_class r ON r.oid = conrelid JOIN pg_namespace n ON n.oid = r.relnamespace
    WHERE contype IN ('c', 'f', 'u') AND coninhcount = 0 AND starts_with(conname::text, 'snowflake_widen_')
          AND conname NOT IN (SELECT helper FROM new_fk UNION ALL SELECT helper FROM idx UNION ALL SELECT helper FROM chk UNION ALL SELECT equal FROM own
                              UNION ALL SELECT not_null FROM own)
  UNION
    SELECT 0, false, k.oid, '{}', format('ALTER TABLE %I.%I DROP CONSTRAINT %I', n.nspname, r.relname, conname)
    FROM col JOIN pg_constraint k ON k.conrelid = col.rel AND col.att = ANY (conkey) OR k.confrelid = col.rel AND col.att = ANY (confkey)
         JOIN pg_class r ON r.oid = conrelid JOIN pg_namespace n ON n.oid = r.relnamespace
    WHERE contype = 'f' AND conparentid = 0 AND starts_with(conname::text, 'snowflake_widen_')
          AND EXISTS (SELECT FROM kept WHERE kept.rel = conrelid AND kept.wide_att = ANY (conkey)
                                             OR kept.rel = confrelid AND kept.wide_att = ANY (confkey))
),
     step (phase, number, place, part, step, statement, locks) AS (
    SELECT 1, 1, col.place, 0, format('add a bigint column beside %s.%I, and a trigger that fills it', name, attname),
           format('CALL snowflake_plan.widen_step(%L, %L, ARRAY[%L, %L]);',
                  format('snowflake_plan.widen_has(%L, ''trigger'', %L) OR snowflake_plan.widen_has(%L, ''bigint'', %L)', name, trigger, name, attname),
                  list, format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS %I bigint', name, wide),
                  format('SELECT snowflake_plan.widen_begin(%L, %L, %L, %L)', name, attname, wide, trigger)),
           format('%s: ACCESS EXCLUSIVE, for a moment', name)
    FROM col JOIN tables USING (rel, name) WHERE col.is_whole
  UNION ALL
    SELECT 2, 1, place, 0, format('fill the new columns of %s', name), format('CALL %I.snowflake_widen_fill(%L);', nspname, name),
           format('%s: ROW EXCLUSIVE, and the rows of a batch', name)
    FROM tables, pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'snowflake_id' AND relkind = 'r'
  UNION ALL
    -- A new foreign key would depend on such an index, which the switch could not drop then.
    SELECT 3, number - 1, oid::bigint, 0, 'drop what was built for an object that is gone',
           format('CALL snowflake_plan.widen_step(''false'', %L, ARRAY[%L]);', tables, statement), format('%s: ACCESS EXCLUSIVE, for a moment', array_to_string(tables, ', '))
    FROM orphan WHERE is_left
  UNION ALL
    SELECT 3, 1, t.place * 1000 + a.number, a.place, format('check new rows of %s', name),
           format('CALL snowflake_plan.widen_step(%L, %L, ARRAY[%L]);', format('snowflake_plan.widen_has(%L, ''constraint'', %L)', name, con), list,
                  format('ALTER TABLE %s ADD CONSTRAINT %I %s%s', name, con, a.definition, CASE WHEN suffix = '' THEN ' NOT VALID' ELSE suffix END)),
           format('%s: ACCESS EXCLUSIVE, for a moment', name)
    FROM added a JOIN tables t USING (name)
  UNION ALL
    SELECT 3, 2, t.place, 0, format('check all rows of %s', name),
           format('ALTER TABLE %s %s;', name, string_agg(format('VALIDATE CONSTRAINT %I', con), ', ' ORDER BY a.number, a.place)),
           format('%s: SHARE UPDATE EXCLUSIVE', name)
    FROM added a JOIN tables t USING (name) WHERE is_validated AND suffix = '' GROUP BY name, t.place
  UNION ALL
    SELECT 3, 3, indexrelid::bigint, part, format(CASE part WHEN 1 THEN 'drop what a failed build of index %I.%I left' ELSE 'build index %I.%I anew' END, nspname, index_name),
           CASE part WHEN 1 THEN
               format('CALL snowflake_plan.widen_step(%L, ''{}'', ARRAY[%L]);',
                      format('NOT snowflake_plan.widen_has(%L, ''invalid'', '''')', format('%I.%I', nspname, helper)), format('DROP INDEX IF EXISTS %I.%I', nspname, helper))
           ELSE format('CREATE %sINDEX CONCURRENTLY IF NOT EXISTS %I ON %s USING %s;', CASE WHEN indisunique THEN 'UNIQUE ' END, helper, name,
                       concat((SELECT amname || ' ' FROM pg_class x JOIN pg_am am ON am.oid = x.relam WHERE x.oid = indexrelid), definition)) END,
           CASE part WHEN 1 THEN format('%s: ACCESS EXCLUSIVE, for a moment, if there is such an index', name) ELSE format('%s: SHARE UPDATE EXCLUSIVE', name) END
    FROM idx, (VALUES (1), (2)) AS parts (part)
  UNION ALL
    -- An index by itself would check each row.
    SELECT 3, 3, indexrelid::bigint, 3, format('check as late as constraint %I of %s', conname, name),
           format('CALL snowflake_plan.widen_step(%L, %L, ARRAY[%L]);', format('snowflake_plan.widen_has(%L, ''constraint'', %L)', name, helper), list,
                  format('ALTER TABLE %s ADD CONSTRAINT %I UNIQUE USING INDEX %2$I DEFERRABLE%s', name, helper, CASE WHEN condeferred THEN ' INITIALLY DEFERRED' END)),
           format('%s: ACCESS EXCLUSIVE, for a moment', name)
    FROM idx JOIN tables USING (name) WHERE contype = 'u' AND condeferrable
  UNION ALL
    SELECT 3, 4, oid::bigint, part, format(CASE part WHEN 1 THEN 'check new rows of %s by foreign key %I' ELSE 'check all rows of %s by foreign key %I' END, name, conname),
           CASE part WHEN 1 THEN
               format('CALL snowflake_plan.widen_step(%L, %L, ARRAY[%L%s], %s);', format('snowflake_plan.widen_has(%L, ''constraint'', %L)', name, helper),
                      ARRAY[name, ref]::text,
                      format('ALTER TABLE %s ADD CONSTRAINT %I %s%s', name, helper, definition, CASE WHEN is_unenforced THEN ' NOT ENFORCED' ELSE ' NOT VALID' END),
                      CASE WHEN has_action THEN format(', %L', format('SELECT snowflake_plan.widen_follow(%L, %L, %s)', name, helper, top)) END, has_action::text)
           ELSE format('ALTER TABLE %s VALIDATE CONSTRAINT %I;', name, helper) END,
           CASE part WHEN 1 THEN format('%s, %s: %sEXCLUSIVE, for a moment', name, ref, CASE WHEN has_action THEN 'ACCESS ' ELSE 'SHARE ROW ' END) ELSE format('%s: SHARE UPDATE EXCLUSIVE; %s: ROW SHARE', name, ref) END
    FROM new_fk, (VALUES (1), (2)) AS parts (part)
    WHERE part = 1 OR convalidated AND is_unenforced IS NOT TRUE
  UNION ALL
    SELECT 3, 5, place, 0, format('collect statistics of %s', name), format('ANALYZE %s;', name), format('%s: SHARE UPDATE EXCLUSIVE', name) FROM tables WHERE is_whole
  UNION ALL
    -- The switch. What depends on the columns is dropped before (11), and created after (90).
    SELECT 4, 29, t.place, 0, NULL,
           format('SELECT snowflake_plan.widen_require(%L, %L, %L)', t.name, indexes, constraints), NULL
    FROM tables t, LATERAL (
        SELECT ARRAY(SELECT helper FROM idx WHERE idx.name = t.name ORDER BY 1),
               ARRAY(SELECT con FROM added a WHERE a.name = t.name AND is_validated AND suffix = ''
                     UNION ALL SELECT helper FROM new_fk f WHERE f.name = t.name AND convalidated AND is_unenforced IS NOT TRUE
                     UNION ALL SELECT helper FROM idx WHERE idx.name = t.name AND contype = 'u' AND condeferrable ORDER BY 1)
    ) AS needed (indexes, constraints)
    WHERE indexes <> '{}' OR constraints <> '{}'
  UNION ALL
    SELECT 4, 30, place, 0, NULL, format('DROP TRIGGER IF EXISTS %I ON %s', trigger, name), NULL FROM col WHERE is_whole
  UNION ALL
    SELECT 4, 31, oid::bigint, 0, NULL, format('ALTER TABLE %s DROP CONSTRAINT %I', name, conname), NULL FROM fk WHERE conparentid = 0
  UNION ALL
    SELECT 4, 32, seq::bigint, 0, NULL, format('ALTER SEQUENCE %s.%I OWNED BY NONE', seq_schema, seq_name), NULL FROM seq WHERE NOT is_identity
  UNION ALL
    SELECT 4, 33, place, 0, NULL, CASE WHEN version < 180000 THEN format('ALTER TABLE %s ALTER COLUMN %I SET NOT NULL', own.name, wide)
           ELSE format('ALTER TABLE %s ADD CONSTRAINT %I NOT NULL %I%s%s', own.name, not_null || 'x', wide, no_inherit, CASE WHEN NOT convalidated THEN ' NOT VALID' END) END, NULL
    FROM own LEFT JOIN not_nulls USING (rel, att), version WHERE is_not_null
  UNION ALL
    SELECT 4, 34, place, 0, NULL, format('ALTER TABLE %s DROP CONSTRAINT %I', name, not_null), NULL FROM own WHERE is_not_null
  UNION ALL
    SELECT 4, 34, place, 1, NULL, format('ALTER TABLE %s DROP CONSTRAINT %I', name, equal), NULL FROM own WHERE is_whole
  UNION ALL
    SELECT 4, 35, seq::bigint, 1, NULL,
           format('ALTER TABLE %s ALTER COLUMN %I ADD GENERATED %s AS IDENTITY (SEQUENCE NAME %s.snowflake_widen_%s START WITH %s INCREMENT BY %s MINVALUE %s MAXVALUE %s CACHE %s%s CYCLE)',
                  name, wide, CASE attidentity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END, seq_schema, seq, seqstart, seqincrement,
                  CASE WHEN seqincrement < 0 AND seqmin = (SELECT least FROM bounds WHERE bounds.type = seqtypid) THEN (SELECT least FROM bounds WHERE bounds.type = seq.type::regtype) ELSE seqmin END,
                  CASE WHEN seqincrement > 0 AND seqmax = (SELECT greatest FROM bounds WHERE bounds.type = seqtypid) THEN (SELECT greatest FROM bounds WHERE bounds.type = seq.type::regtype) ELSE seqmax END,
                  seqcache, CASE WHEN seqcycle THEN '' ELSE ' NO' END), NULL
    FROM seq WHERE is_identity
  UNION ALL
    SELECT 4, 35, seq::bigint, 2, NULL,
           format('SELECT pg_catalog.setval(%L, last_value, is_called) FROM %s.%I', format('%s.snowflake_widen_%s', seq_schema, seq), seq_schema, seq_name), NULL
    FROM seq WHERE is_identity
  UNION ALL
    SELECT 4, CASE WHEN is_left THEN 36 + number ELSE 35 END, oid::bigint, number, NULL, statement, NULL FROM orphan
  UNION ALL
    -- The former column stays until the clean up: a value that does not fit is NULL there.
    SELECT 4, 38, oid::bigint, 0, NULL, format('ALTER TABLE %s DROP CONSTRAINT %I', name, conname), NULL
    FROM (SELECT oid, name, conname FROM chk UNION ALL SELECT oid, name, conname FROM exclusion
          UNION ALL SELECT con, name, conname FROM any_idx WHERE con IS NOT NULL AND NOT relispartition) AS c
  UNION ALL
    SELECT 4, 38, indexrelid::bigint, 1, NULL, format('DROP INDEX %I.%I', nspname, index_name), NULL FROM any_idx WHERE con IS NULL AND NOT relispartition
  UNION ALL
    SELECT 4, 38, oid::bigint, 2, NULL, format('DROP STATISTICS %s', name), NULL FROM stats
  UNION ALL
    SELECT 4, 39, col.place, number, NULL, format('ALTER TABLE %s%s ALTER COLUMN %I DROP %s', place_of, name, attname, what), NULL
    FROM col, LATERAL (
        SELECT 1, 'ONLY ', 'DEFAULT' FROM pg_attrdef WHERE adrelid = rel AND adnum = att
      UNION ALL
        SELECT 2, '', 'IDENTITY' FROM seq WHERE seq.place = col.place AND is_identity
      UNION ALL
        -- Also on partitions: one that got a primary key by itself keeps it after its whole.
        SELECT 3, '', 'NOT NULL' FROM pg_attribute WHERE attrelid = rel AND attnum = att AND attnotnull
    ) AS its (number, place_of, what)
  UNION ALL
    SELECT 4, 40, place, part, NULL, CASE part WHEN 1 THEN format('ALTER TABLE %s RENAME COLUMN %I TO %I', name, attname, wide || 'x')
                                               WHEN 2 THEN format('ALTER TABLE %s RENAME COLUMN %I TO %I', name, wide, attname)
                                               WHEN 3 THEN format('ALTER TABLE %s RENAME COLUMN %I TO %I', name, wide || 'x', wide)
                                               WHEN 4 THEN format('SELECT snowflake_plan.widen_begin(%L, %L, %L, %L)', name, attname, wide, trigger)
                                               ELSE format('COMMENT ON COLUMN %s.%I IS NULL', name, wide) END, NULL
    FROM col, generate_series(1, 5) AS part WHERE is_whole
  UNION ALL
    SELECT 4, 42, own.place, 0, NULL, format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', own.name, not_null || 'x', conname), NULL
    FROM own JOIN not_nulls USING (rel, att)
  UNION ALL
    SELECT 4, 43, indexrelid::bigint, 0, NULL,
           CASE WHEN con IS NULL THEN format('ALTER INDEX %I.%I RENAME TO %I', nspname, helper, index_name)
                WHEN contype = 'u' AND condeferrable THEN format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', name, helper, conname)
                ELSE format('ALTER TABLE %s ADD CONSTRAINT %I %s USING INDEX %I%s%s', name, conname, CASE contype WHEN 'p' THEN 'PRIMARY KEY' ELSE 'UNIQUE' END, helper,
                            CASE WHEN condeferrable THEN ' DEFERRABLE' END, CASE WHEN condeferred THEN ' INITIALLY DEFERRED' END) END, NULL
    FROM idx
  UNION ALL
    -- The name is the former one, so the text that PostgreSQL writes is that of the new columns.
    SELECT 4, 43, oid::bigint, 0, NULL, concat(format('SELECT pg_catalog.set_config(''default_tablespace'', %L, true); ', tablespace),
                                               format('ALTER TABLE %s ADD CONSTRAINT %I %s', name, conname, pg_get_constraintdef(oid))), NULL FROM exclusion
  UNION ALL
    SELECT 4, 44, indexrelid::bigint, 0, NULL, concat(format('SELECT pg_catalog.set_config(''default_tablespace'', %L, true); ', tablespace),
           CASE WHEN con IS NULL THEN pg_get_indexdef(indexrelid)
                ELSE format('ALTER TABLE ONLY %s ADD CONSTRAINT %I %s', name, conname, pg_get_constraintdef(con)) END), NULL
    FROM whole_idx
  UNION ALL
    SELECT 4, 45, i.indexrelid::bigint, 0, NULL, format('ALTER INDEX %I.%I ATTACH PARTITION %I.%I', w.nspname, w.index_name, i.nspname, i.index_name), NULL
    FROM any_idx i JOIN pg_inherits ON inhrelid = i.indexrelid JOIN whole_idx w ON w.indexrelid = inhparent
  UNION ALL
    SELECT 4, 46, oid::bigint, 0, NULL, format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', name, helper, conname), NULL
    FROM (SELECT oid, name, helper, conname FROM chk UNION ALL SELECT oid, name, helper, conname FROM new_fk) AS c
  UNION ALL
    SELECT 4, 47, oid::bigint, 0, NULL, format('ALTER TABLE %s ALTER CONSTRAINT %I DEFERRABLE INITIALLY IMMEDIATE', name, conname), NULL
    FROM new_fk WHERE condeferrable AND NOT condeferred
  UNION ALL
    SELECT 4, 48, oid::bigint, 0, NULL,
           format('ALTER TABLE %s ADD CONSTRAINT %I %s%s', name, conname, definition, CASE WHEN convalidated AND is_unenforced IS NOT TRUE THEN ' NOT VALID' END), NULL
    FROM fk WHERE is_unit AND is_late
  UNION ALL
    SELECT 4, 49, oid::bigint, 0, NULL, format('ALTER TABLE %s ADD CONSTRAINT %I %s', name, conname, definition), NULL
    FROM whole_fk WHERE unit IS NULL OR NOT is_late
  UNION ALL
    SELECT 4, 50, seq::bigint, part, NULL,
           CASE part WHEN 1 THEN CASE WHEN is_identity THEN format('ALTER SEQUENCE %s.snowflake_widen_%s RENAME TO %I', seq_schema, seq, seq_name)
                                      WHEN seqtypid <> type::regtype THEN format('ALTER SEQUENCE %s.%I AS %s', seq_schema, seq_name, type) END
                     WHEN 2 THEN CASE WHEN NOT is_identity THEN format('ALTER SEQUENCE %s.%I OWNED BY %s.%I', seq_schema, seq_name, name, attname) END
                     WHEN 3 THEN CASE WHEN is_identity THEN (SELECT format('COMMENT ON SEQUENCE %s.%I IS %L', seq_schema, seq_name, description) FROM pg_description
                                                             WHERE classoid = 'pg_class'::regclass AND objoid = seq AND objsubid = 0) END END, NULL
    FROM seq, generate_series(1, 3) AS part
  UNION ALL
    SELECT 4, 51, seq::bigint, ordinality, NULL, format('GRANT %s ON SEQUENCE %s.%I TO %s%s', privilege_type, seq_schema, seq_name,
                                               CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END, CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END), NULL
    FROM seq, aclexplode(seq_acl) WITH ORDINALITY WHERE is_identity AND grantee <> relowner
  UNION ALL
    SELECT 4, 52, place, 0, NULL, format('ALTER TABLE ONLY %s ALTER COLUMN %I SET DEFAULT %s', name, attname, pg_get_expr(adbin, adrelid)), NULL
    FROM col JOIN pg_attrdef ON adrelid = rel AND adnum = att
  UNION ALL
    SELECT 4, 53, col.place, number, NULL, change, NULL
    FROM col JOIN pg_attribute a ON a.attrelid = rel AND a.attnum = att, LATERAL (
        SELECT 1, format('ALTER TABLE ONLY %s ALTER COLUMN %I SET STATISTICS %s', name, col.attname, attstattarget) WHERE attstattarget >= 0
      UNION ALL
        SELECT 2, format('ALTER TABLE ONLY %s ALTER COLUMN %I SET (%s)', name, col.attname, options)
        -- pg_attver is PostgreSQL's own option, which it does not accept back.
        FROM (SELECT string_agg(option, ', ') FROM unnest(attoptions) AS option WHERE option NOT LIKE 'pg_attver=%') AS kept (options)
        WHERE options IS NOT NULL
      UNION ALL
        -- The one beside may have one of the switch before.
        SELECT 3, format('COMMENT ON COLUMN %s.%I IS %L', name, col.attname, col_description(rel, att))
        WHERE col_description(rel, att) IS NOT NULL
              OR EXISTS (SELECT FROM pg_attribute w WHERE w.attrelid = rel AND w.attname = col.wide AND col_description(rel, w.attnum) IS NOT NULL)
      UNION ALL
        SELECT 4, format('SECURITY LABEL FOR %I ON COLUMN %s.%I IS %L', provider, name, col.attname, label)
        FROM pg_seclabel WHERE classoid = 'pg_class'::regclass AND objoid = rel AND objsubid = att
      UNION ALL
        -- In the grantor's name, if the session may use it.
        SELECT 4 + ordinality, concat(CASE WHEN grantor <> relowner AND pg_has_role(session_user, grantor, 'MEMBER') THEN format('SET LOCAL ROLE %I; ', pg_get_userbyid(grantor)) END,
                         format('GRANT %s (%I) ON %s TO %s', privilege_type, col.attname, name, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END),
                         CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END)
        FROM aclexplode(a.attacl) WITH ORDINALITY
    ) AS setting (number, change)
  UNION ALL
    SELECT 4, 54, indexrelid::bigint, number, NULL, change, NULL
    FROM (SELECT indexrelid, index_name, indisclustered, indisreplident, name, nspname FROM any_idx
          UNION ALL SELECT indexrelid, index_name, indisclustered, false, name, nspname FROM exclusion) AS i, LATERAL (
        SELECT 1, format('ALTER TABLE %s CLUSTER ON %I', name, index_name) WHERE indisclustered
      UNION ALL
        SELECT 2, format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', name, index_name) WHERE indisreplident
      UNION ALL
        SELECT 3, format('COMMENT ON INDEX %I.%I IS %L', nspname, index_name, description)
        FROM pg_description WHERE classoid = 'pg_class'::regclass AND objoid = indexrelid AND objsubid = 0
      UNION ALL
        SELECT 3 + attnum, format('ALTER INDEX %I.%I ALTER COLUMN %s SET STATISTICS %s', nspname, index_name, attnum, attstattarget)
        FROM pg_attribute WHERE attrelid = indexrelid AND attstattarget >= 0
    ) AS setting (number, change)
  UNION ALL
    SELECT 4, 55, c.oid::bigint, 0, NULL, format('COMMENT ON CONSTRAINT %I ON %s IS %L', conname, name, description), NULL
    FROM (SELECT oid, name, conname FROM chk UNION ALL SELECT oid, name, conname FROM fk WHERE is_unit
          UNION ALL SELECT oid, name, conname FROM whole_fk WHERE unit IS NULL OR NOT is_late
          UNION ALL SELECT con, name, conname FROM any_idx WHERE con IS NOT NULL UNION ALL SELECT oid, name, conname FROM exclusion
          UNION ALL SELECT oid, name, conname FROM not_nulls) AS c
         JOIN pg_description ON classoid = 'pg_constraint'::regclass AND objoid = c.oid
  UNION ALL
    SELECT 4, 56, oid::bigint, part, NULL,
           CASE part WHEN 1 THEN definition
                     WHEN 2 THEN format('ALTER STATISTICS %s OWNER TO %I', name, pg_get_userbyid(stxowner))
                     WHEN 3 THEN CASE WHEN target >= 0 THEN format('ALTER STATISTICS %s SET STATISTICS %s', name, target) END
                     WHEN 4 THEN (SELECT format('COMMENT ON STATISTICS %s IS %L', name, description) FROM pg_description WHERE classoid = 'pg_statistic_ext'::regclass AND objoid = oid) END, NULL
    FROM stats, generate_series(1, 4) AS part
  UNION ALL
    -- For a call after the switch.
    SELECT 4, 57, min(place), 0, NULL, format('COMMENT ON COLUMN %s.%I IS %L', name, min(wide::text), list), NULL
    FROM col JOIN (SELECT rel, jsonb_agg(jsonb_build_array(name, conname, unit, unit_con, comment) ORDER BY oid) FROM owed GROUP BY rel) AS o (rel, list) USING (rel)
    GROUP BY name, list
)
SELECT phase, number, step::cstring, statement::cstring, locks::cstring
FROM step WHERE statement IS NOT NULL
ORDER BY phase, number, place, part
