-- $3 whether the transaction may have changed the tables: what forbids to widen the columns. For
-- each: which refusal, the table, and the object or the column.
,    named AS (
    SELECT rel, att, attname, c.*
    FROM narrow JOIN pg_attribute ON attrelid = rel AND attnum = att JOIN pg_class c ON c.oid = rel
),
     fk AS (SELECT named.rel, f.* FROM named JOIN pg_constraint f ON contype = 'f' AND (conrelid = rel AND att = ANY (conkey) OR confrelid = rel AND att = ANY (confkey))),
     -- What the switch drops and creates again, with the views of views.
     remade (rel, classid, objid) AS (
    SELECT rel, classid, objid FROM found
  UNION
    SELECT m.rel, d.classid, d.objid
    FROM remade m JOIN pg_rewrite r ON m.classid = 'pg_rewrite'::regclass AND r.oid = m.objid AND rulename = '_RETURN'
         JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = ev_class AND d.objid <> r.oid
),
     -- What only its owner may change.
     owned (rel, classid, objid, owner) AS (
    SELECT rel, 'pg_class'::regclass, c.oid, relowner
    FROM fk JOIN pg_class c ON c.oid = conrelid OR c.oid = confrelid AND (confupdtype IN ('c', 'n', 'd') OR confdeltype IN ('c', 'n', 'd'))
  UNION
    SELECT rel, 'pg_class'::regclass, c.oid, relowner
    FROM remade LEFT JOIN pg_rewrite r ON classid = 'pg_rewrite'::regclass AND r.oid = objid
         LEFT JOIN pg_attrdef e ON classid = 'pg_attrdef'::regclass AND e.oid = objid
         LEFT JOIN pg_policy p ON classid = 'pg_policy'::regclass AND p.oid = objid JOIN pg_class c ON c.oid IN (ev_class, adrelid, polrelid)
  UNION
    SELECT rel, classid, objid, proowner FROM remade JOIN pg_proc ON classid = 'pg_proc'::regclass AND oid = objid
  UNION
    SELECT rel, 'pg_publication'::regclass, p.oid, pubowner
    FROM remade JOIN pg_publication_rel r ON classid = 'pg_publication_rel'::regclass AND r.oid = objid JOIN pg_publication p ON p.oid = prpubid
),
     -- Where the steps create again what has a name in a schema.
     place (rel, namespace) AS (
    SELECT rel, relnamespace FROM named
    WHERE EXISTS (SELECT FROM pg_index i WHERE i.indrelid = rel AND (att = ANY (i.indkey) OR concat(i.indexprs::text, i.indpred::text) ~ format(':varattno %s ', att)))
  UNION
    SELECT rel, c.relnamespace FROM remade JOIN pg_rewrite r ON classid = 'pg_rewrite'::regclass AND r.oid = objid AND rulename = '_RETURN' JOIN pg_class c ON c.oid = ev_class
  UNION
    SELECT rel, pronamespace FROM remade JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
  UNION
    SELECT rel, c.relnamespace
    FROM named JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = rel AND d.refobjsubid = att AND d.deptype = 'i'
         JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
  UNION
    SELECT rel, stxnamespace
    FROM named JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = rel AND d.refobjsubid = att
         JOIN pg_statistic_ext s ON d.classid = 'pg_statistic_ext'::regclass AND s.oid = d.objid
),
     -- The types whose values hold rows of the tables.
     holder (rel, type) AS (
    SELECT rel, reltype FROM named
  UNION
    SELECT rel, next.type FROM holder h, LATERAL (
        SELECT oid FROM pg_type WHERE typelem = h.type AND typcategory = 'A' OR typbasetype = h.type
      UNION ALL
        SELECT unnest(ARRAY[rngtypid, rngmultitypid]) FROM pg_range WHERE rngsubtype = h.type
      UNION ALL
        SELECT reltype FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE atttypid = h.type AND relkind = 'c' AND NOT attisdropped
    ) AS next (type)
)
SELECT refused.reason::text::cstring, refused.rel::regclass::text::cstring, refused.object::text::cstring
FROM (
    SELECT 'inheritance', rel, attname::text FROM named
    WHERE relkind = 'r' AND NOT relispartition AND EXISTS (SELECT FROM pg_inherits WHERE rel IN (inhrelid, inhparent))
  UNION ALL
    SELECT 'foreign', rel, attname FROM named WHERE relkind NOT IN ('r', 'p')
  UNION ALL
    SELECT 'typed', rel, attname FROM named WHERE reloftype <> 0
  UNION ALL
    SELECT 'rows', rel, format('%I of %s', a.attname, attrelid::regclass)
    FROM holder JOIN pg_attribute a ON atttypid = type AND NOT attisdropped JOIN pg_class c ON c.oid = attrelid AND relkind IN ('r', 'p', 'm', 'f')
  UNION ALL
    -- A body that selects the row as a whole names no column of it.
    SELECT 'returns', f.rel, pg_describe_object(classid, objid, 0)
    FROM found f JOIN pg_class c ON c.oid = rel JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
    WHERE prorettype = reltype AND prosqlbody::text !~ format(':varattno 0 :vartype %s ', reltype)
  UNION ALL
    SELECT 'owner', rel, attname FROM named WHERE NOT pg_has_role(relowner, 'USAGE')
  UNION ALL
    SELECT 'owner of', rel, pg_describe_object(classid, objid, 0) FROM owned
    WHERE NOT pg_has_role(owner, 'USAGE') AND (classid <> 'pg_class'::regclass OR objid NOT IN (SELECT rel FROM named))
  UNION ALL
    SELECT 'schema', min(rel), quote_ident(nspname) FROM place JOIN pg_namespace n ON n.oid = namespace
    WHERE NOT has_schema_privilege(n.oid, 'CREATE') GROUP BY nspname
  UNION ALL
    -- Since PostgreSQL 18.
    SELECT 'period', rel, conname FROM named JOIN pg_constraint k ON conrelid = rel AND att = ANY (conkey) OR confrelid = rel AND att = ANY (confkey)
    WHERE to_jsonb(k) ->> 'conperiod' = 'true'
  UNION ALL
    -- No name is left after that of such a trigger, which could change the narrow column after the
    -- wide one has been filled: BEFORE, FOR EACH ROW, on INSERT or UPDATE.
    SELECT 'late', rel, tgname FROM named JOIN pg_trigger ON tgrelid = rel
    WHERE NOT tgisinternal AND tgtype & 3 = 3 AND tgtype & 20 <> 0 AND tgname > '~snowflake_widen_' AND octet_length(tgname) > 57
          AND tgfoid <> 'snowflake_plan.widen_keep()'::regprocedure
  UNION ALL
    SELECT 'changed', rel, attname FROM named
    WHERE NOT $3 AND EXISTS (SELECT FROM pg_locks WHERE locktype = 'relation' AND relation = rel AND pid = pg_backend_pid() AND granted
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                  AND mode NOT IN ('AccessShareLock', 'RowShareLock'))
) AS refused (reason, rel, object)
GROUP BY refused.rel, refused.reason, refused.object
ORDER BY refused.rel, refused.reason, refused.object
