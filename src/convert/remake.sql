-- The objects to drop before the columns can be widened, and all that depend on these in turn: 0
-- and the statements that drop them, in order; 1 and the statements that create them again as they
-- are; 2 and the objects for which no such statements can be written.
,    met (classid, objid, objsubid, depth) AS (
    SELECT classid, objid, objsubid, 1 FROM found
  UNION
    SELECT next.classid, next.objid, next.objsubid, depth + 1
    FROM met m, LATERAL (
        SELECT d.classid, d.objid, d.objsubid
        FROM pg_depend d
             LEFT JOIN pg_attrdef e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
             LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid AND rulename = '_RETURN'
        WHERE d.refclassid = m.classid AND d.refobjid = m.objid AND (m.objsubid = 0 OR d.refobjsubid = m.objsubid)
              AND d.deptype IN ('n', 'a', 'i')
              -- Except for its own parts, which lead back to it.
              AND (e.adrelid, e.adnum::integer) IS DISTINCT FROM (m.objid, m.objsubid) AND r.ev_class IS DISTINCT FROM m.objid
      UNION ALL  -- The object that it is a part of.
        SELECT 'pg_class'::regclass, ev_class, 0 FROM pg_rewrite
        WHERE m.classid = 'pg_rewrite'::regclass AND oid = m.objid AND rulename = '_RETURN'
      UNION ALL
        SELECT m.classid, m.objid, 0 FROM pg_class
        WHERE m.classid = 'pg_class'::regclass AND oid = m.objid AND m.objsubid <> 0 AND relkind IN ('v', 'm')
      UNION ALL
        SELECT 'pg_class'::regclass, adrelid, adnum FROM pg_attrdef e JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
        WHERE m.classid = 'pg_attrdef'::regclass AND e.oid = m.objid AND attgenerated <> ''
      UNION ALL
        SELECT m.classid, tgparentid, 0 FROM pg_trigger
        WHERE m.classid = 'pg_trigger'::regclass AND oid = m.objid AND tgparentid <> 0
      UNION ALL
        SELECT m.classid, conparentid, 0 FROM pg_constraint
        WHERE m.classid = 'pg_constraint'::regclass AND oid = m.objid AND conparentid <> 0
    ) AS next
    WHERE depth < 300  -- Only a cycle gets this deep.
),
     object AS MATERIALIZED (
    SELECT classid, objid, objsubid, depth, identity,
           CASE type WHEN 'statistics object' THEN 'STATISTICS' WHEN 'table constraint' THEN 'CONSTRAINT' ELSE upper(type) END AS kind,
           depth < 250 AND NOT EXISTS (SELECT FROM pg_depend e  -- not an extension's
                                       WHERE e.classid = m.classid AND e.objid = m.objid AND e.deptype = 'e') AS is_free
    FROM (SELECT classid, objid, objsubid, max(depth) AS depth FROM met GROUP BY classid, objid, objsubid) AS m,
         pg_identify_object(classid, objid, objsubid)
    -- Except for parts, which are dropped and created with the whole.
    WHERE CASE classid
              WHEN 'pg_rewrite'::regclass THEN (SELECT rulename = '_RETURN' FROM pg_rewrite WHERE oid = objid)
              WHEN 'pg_trigger'::regclass THEN (SELECT tgisinternal OR tgparentid <> 0 FROM pg_trigger WHERE oid = objid)
              WHEN 'pg_constraint'::regclass THEN
                  (SELECT contype IN ('t', 'n') OR conparentid <> 0 OR coninhcount > 0 AND NOT conislocal FROM pg_constraint WHERE oid = objid)
              WHEN 'pg_attrdef'::regclass THEN
                  (SELECT attgenerated <> '' FROM pg_attrdef e JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
                   WHERE e.oid = objid)
              WHEN 'pg_type'::regclass THEN
                  (SELECT relkind IN ('v', 'm')
                   FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem JOIN pg_class c ON c.oid IN (t.typrelid, e.typrelid)
                   WHERE t.oid = objid)
              WHEN 'pg_class'::regclass THEN
                  (SELECT relnamespace = 'pg_toast'::regnamespace
                          OR objsubid <> 0 AND (relkind IN ('v', 'm') OR attgenerated <> '' AND attinhcount > 0)
                          OR EXISTS (SELECT FROM met k JOIN pg_constraint n ON n.oid = k.objid
                                     WHERE k.classid = 'pg_constraint'::regclass AND n.conindid = c.oid
                                           AND n.contype IN ('p', 'u', 'x'))
                   FROM pg_class c LEFT JOIN pg_attribute ON attrelid = c.oid AND attnum = objsubid AND objsubid <> 0
                   WHERE c.oid = objid)
          END IS NOT TRUE
),
     made (classid, objid, objsubid, drop_it, make_it) AS (
    SELECT classid, objid, objsubid, format('DROP %s %s', kind, identity),
           CASE classid
               WHEN 'pg_rewrite'::regclass THEN rtrim(pg_get_ruledef(objid), ';')
               WHEN 'pg_trigger'::regclass THEN pg_get_triggerdef(objid)
               WHEN 'pg_statistic_ext'::regclass THEN pg_get_statisticsobjdef(objid)
               WHEN 'pg_proc'::regclass THEN
                   (SELECT rtrim(pg_get_functiondef(p.oid), E'\n') FROM pg_proc p WHERE p.oid = objid AND prokind <> 'a')
           END
    FROM object
    WHERE classid IN ('pg_rewrite'::regclass, 'pg_trigger'::regclass, 'pg_statistic_ext'::regclass, 'pg_proc'::regclass)
  UNION ALL
    SELECT classid, objid, objsubid, format('DROP %s %s', kind, identity),
           CASE relkind
               WHEN 'v' THEN format(E'CREATE VIEW %s%s AS\n%s', identity, ' WITH (' || array_to_string(reloptions, ', ') || ')',
                                    rtrim(pg_get_viewdef(c.oid), ';'))
               WHEN 'm' THEN
                   format(E'CREATE MATERIALIZED VIEW %s%s%s%s AS\n%s\nWITH NO DATA', identity,
                          ' USING ' || (SELECT quote_ident(amname) FROM pg_am
                                        WHERE oid = relam AND amname <> current_setting('default_table_access_method')),
                          ' WITH (' || array_to_string(reloptions || (SELECT array_agg('toast.' || option)
                                                                      FROM pg_class t, unnest(t.reloptions) AS option
                                                                      WHERE t.oid = c.reltoastrelid), ', ') || ')',
                          ' TABLESPACE ' || (SELECT quote_ident(spcname) FROM pg_tablespace WHERE oid = c.reltablespace),
                          rtrim(pg_get_viewdef(c.oid), ';'))
               -- A partition's index would have to be attached again.
               WHEN 'i' THEN
                   CASE WHEN NOT relispartition AND NOT EXISTS (SELECT FROM pg_constraint
                                                                WHERE conindid = c.oid AND contype IN ('p', 'u', 'x'))
                        THEN pg_get_indexdef(c.oid) END
           END
    FROM object JOIN pg_class c ON c.oid = objid
    WHERE classid = 'pg_class'::regclass AND objsubid = 0
  UNION ALL
    SELECT classid, objid, objsubid, format('DROP POLICY %s', identity),
           format('CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s', polname,
                  (pg_identify_object('pg_class'::regclass, polrelid, 0)).identity,
                  CASE WHEN polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
                  CASE polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE'
                              ELSE 'ALL' END,
                  (SELECT string_agg(CASE role WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(role)) END, ', ')
                   FROM unnest(polroles) AS role),
                  ' USING (' || pg_get_expr(polqual, polrelid) || ')', ' WITH CHECK (' || pg_get_expr(polwithcheck, polrelid) || ')')
    FROM object JOIN pg_policy p ON p.oid = objid
    WHERE classid = 'pg_policy'::regclass
  UNION ALL
    SELECT classid, objid, objsubid, format('ALTER PUBLICATION %I DROP TABLE ONLY %s', pubname, name),
           format('ALTER PUBLICATION %I ADD TABLE ONLY %s%s%s', pubname, name,
                  ' (' || (SELECT string_agg(quote_ident(attname), ', ' ORDER BY n)
                           FROM unnest(prattrs) WITH ORDINALITY AS attr (attnum, n) JOIN pg_attribute a USING (attnum)
                           WHERE attrelid = prrelid) || ')',
                  ' WHERE (' || pg_get_expr(prqual, prrelid) || ')')
    FROM object JOIN pg_publication_rel r ON r.oid = objid JOIN pg_publication p ON p.oid = prpubid,
         LATERAL (SELECT identity FROM pg_identify_object('pg_class'::regclass, prrelid, 0)) AS rel (name)
    WHERE classid = 'pg_publication_rel'::regclass
  UNION ALL
    SELECT classid, objid, objsubid, format('ALTER %s %s DROP CONSTRAINT %I', alter_what, name, conname),
           format('ALTER %s %s ADD CONSTRAINT %I %s', alter_what, name, conname, pg_get_constraintdef(c.oid))
    FROM object JOIN pg_constraint c ON c.oid = objid,
         LATERAL (SELECT CASE contypid WHEN 0 THEN 'TABLE' ELSE 'DOMAIN' END, identity
                  FROM pg_identify_object(CASE contypid WHEN 0 THEN 'pg_class'::regclass ELSE 'pg_type'::regclass END,
                                          CASE contypid WHEN 0 THEN conrelid ELSE contypid END, 0)) AS rel (alter_what, name)
    WHERE classid = 'pg_constraint'::regclass
  UNION ALL
    SELECT classid, objid, objsubid, format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT', name, attname),
           -- A default of its own would replace the one that draws ids.
           CASE WHEN adrelid NOT IN (SELECT rel FROM narrow)
                THEN format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', name, attname, pg_get_expr(adbin, adrelid)) END
    FROM object JOIN pg_attrdef e ON e.oid = objid JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum,
         LATERAL (SELECT identity FROM pg_identify_object('pg_class'::regclass, adrelid, 0)) AS rel (name)
    WHERE classid = 'pg_attrdef'::regclass
  UNION ALL
    SELECT classid, objid, objsubid, format('ALTER TABLE %s DROP COLUMN %I', name, a.attname),
           format('ALTER TABLE %s ADD COLUMN %I %s%s GENERATED ALWAYS AS (%s) %s%s', name, a.attname,
                  format_type(a.atttypid, a.atttypmod),
                  ' COLLATE ' || (SELECT l.identity FROM pg_identify_object('pg_collation'::regclass, attcollation, 0) l
                                  WHERE attcollation <> typcollation),
                  pg_get_expr(adbin, adrelid), CASE attgenerated WHEN 's' THEN 'STORED' ELSE 'VIRTUAL' END,
                  CASE WHEN a.attnotnull THEN ' NOT NULL' END)
    FROM object JOIN pg_attribute a ON a.attrelid = objid AND a.attnum = objsubid JOIN pg_type t ON t.oid = a.atttypid
         JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum,
         LATERAL (SELECT identity FROM pg_identify_object('pg_class'::regclass, attrelid, 0)) AS rel (name)
    WHERE classid = 'pg_class'::regclass AND objsubid <> 0 AND attgenerated <> ''
),
     owned (classid, objid, objsubid, name, owner, namespace, objtype, acl) AS (
    SELECT classid, objid, objsubid, 'TABLE ' || identity, relowner, relnamespace, 'r'::"char", relacl
    FROM object JOIN pg_class ON oid = objid WHERE classid = 'pg_class'::regclass AND objsubid = 0 AND relkind IN ('v', 'm')
  UNION ALL
    SELECT classid, objid, objsubid, kind || ' ' || identity, proowner, pronamespace, 'f', proacl
    FROM object JOIN pg_proc ON oid = objid WHERE classid = 'pg_proc'::regclass
),
     -- The privileges that creating the object again grants: PostgreSQL's defaults, and the default
     -- privileges of the user who runs the statements (assumed to be the current user). A change of
     -- the owner makes the owner the grantor.
     preset AS (
    SELECT classid, objid, privilege.*, false AS is_users
    FROM owned, aclexplode(acldefault(objtype, owner)) AS privilege
  UNION ALL
    SELECT classid, objid, privilege.*, true
    FROM owned JOIN pg_default_acl ON defaclrole = (SELECT oid FROM pg_roles WHERE rolname = current_user)
                                      AND defaclobjtype = objtype AND defaclnamespace IN (0, namespace),
         aclexplode(defaclacl) AS privilege
),
     granted AS (
    SELECT classid, objid, objsubid, name, owner, '' AS attname, privilege.*
    FROM owned, aclexplode(coalesce(acl, acldefault(objtype, owner))) WITH ORDINALITY AS privilege
  UNION ALL
    SELECT o.classid, o.objid, o.objsubid, 'TABLE ' || (pg_identify_object('pg_class'::regclass, c.oid, 0)).identity, relowner,
           format(' (%I)', attname), privilege.*
    FROM object o JOIN pg_class c ON c.oid = objid
         JOIN pg_attribute ON attrelid = c.oid AND (objsubid = 0 OR attnum = objsubid),
         aclexplode(attacl) WITH ORDINALITY AS privilege
    WHERE o.classid = 'pg_class'::regclass
),
     clone (classid, objid, oid, is_special, generation) AS (
    SELECT classid, objid, t.oid, tgenabled <> 'O', 0
    FROM object JOIN pg_trigger t ON t.oid = objid WHERE classid = 'pg_trigger'::regclass
  UNION ALL
    SELECT classid, objid, t.oid, is_special OR tgenabled <> 'O', generation + 1 FROM clone c JOIN pg_trigger t ON t.tgparentid = c.oid
),
     indexed AS (
    SELECT classid, objid, objsubid, i.*, relname, reltablespace, classid <> 'pg_class'::regclass AS is_constraint,
           (pg_identify_object('pg_class'::regclass, indrelid, 0)).identity AS name,
           (pg_identify_object('pg_class'::regclass, indexrelid, 0)).identity AS index_name
    FROM object LEFT JOIN pg_constraint k ON classid = 'pg_constraint'::regclass AND k.oid = objid AND contype IN ('p', 'u', 'x')
         JOIN pg_index i ON indexrelid = CASE classid WHEN 'pg_class'::regclass THEN objid ELSE conindid END
         JOIN pg_class c ON c.oid = indexrelid
    WHERE objsubid = 0
),
     step (classid, objid, objsubid, number, place, statement) AS (
    SELECT classid, objid, objsubid, 1, 0, make_it FROM made
  UNION ALL
    SELECT o.classid, o.objid, o.objsubid, 2, 0, format('ALTER %s %s OWNER TO %I', kind, identity, pg_get_userbyid(owner))
    FROM object o, LATERAL (
        SELECT owner FROM owned w WHERE w.classid = o.classid AND w.objid = o.objid
      UNION ALL
        SELECT stxowner FROM pg_statistic_ext WHERE o.classid = 'pg_statistic_ext'::regclass AND oid = o.objid
    ) AS its (owner)
  UNION ALL
    SELECT w.classid, w.objid, w.objsubid, 3, grantee,
           format('REVOKE %s ON %s FROM %s', string_agg(DISTINCT privilege_type, ', '), name,
                  CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END)
    FROM owned w JOIN preset p USING (classid, objid)
    WHERE NOT EXISTS (SELECT FROM granted g
                      WHERE (g.classid, g.objid, g.attname, g.grantee, g.privilege_type)
                            = (p.classid, p.objid, '', p.grantee, p.privilege_type))
    GROUP BY w.classid, w.objid, w.objsubid, name, grantee
  UNION ALL
    -- Run as the grantor because PostgreSQL permits no other GRANTED BY.
    SELECT classid, objid, objsubid, 4, row_number() OVER (ORDER BY grantor <> owner, attname, min(ordinality)),
           concat(CASE WHEN grantor <> owner THEN format(E'SET LOCAL ROLE %I;\n', pg_get_userbyid(grantor)) END,
                  format('GRANT %s ON %s TO %s', string_agg(privilege_type || attname, ', ' ORDER BY privilege_type), name,
                         CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END),
                  CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END,
                  CASE WHEN grantor <> owner THEN E';\nRESET ROLE' END)
    FROM granted g
    WHERE EXISTS (SELECT FROM preset p WHERE p.classid = g.classid AND p.objid = g.objid AND is_users)
          OR NOT EXISTS (SELECT FROM preset p
                         WHERE (p.classid, p.objid, '', p.grantor, p.grantee, p.privilege_type, p.is_grantable)
                               = (g.classid, g.objid, g.attname, g.grantor, g.grantee, g.privilege_type, g.is_grantable))
    GROUP BY classid, objid, objsubid, name, attname, owner, grantor, grantee, is_grantable
  UNION ALL
    SELECT o.classid, o.objid, o.objsubid, 5, d.objsubid,
           format('COMMENT ON %s IS %L',
                  CASE WHEN d.objsubid <> 0 THEN 'COLUMN ' || (pg_identify_object(o.classid, o.objid, d.objsubid)).identity
                       WHEN kind = 'DOMAIN CONSTRAINT' THEN format('CONSTRAINT %I ON DOMAIN %s', conname, name)
                       ELSE kind || ' ' || identity END, description)
    FROM object o JOIN pg_description d ON d.classoid = o.classid AND d.objoid = o.objid AND o.objsubid IN (0, d.objsubid)
         LEFT JOIN pg_constraint c ON o.classid = 'pg_constraint'::regclass AND c.oid = o.objid,
         LATERAL (SELECT (pg_identify_object('pg_type'::regclass, contypid, 0)).identity) AS domain (name)
  UNION ALL
    SELECT classid, objid, 0, 6, generation * 1000000000::bigint + row_number() OVER (ORDER BY c.oid),
           format('ALTER TABLE %s %s TRIGGER %I', (pg_identify_object('pg_class'::regclass, tgrelid, 0)).identity,
                  CASE tgenabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' WHEN 'A' THEN 'ENABLE ALWAYS'
                                 ELSE 'ENABLE' END, tgname)
    FROM clone c JOIN pg_trigger t USING (oid) WHERE is_special
  UNION ALL
    SELECT classid, objid, 0, 6, 0,
           format('ALTER TABLE %s %s RULE %I', (pg_identify_object('pg_class'::regclass, ev_class, 0)).identity,
                  CASE ev_enabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END, rulename)
    FROM object JOIN pg_rewrite r ON r.oid = objid WHERE classid = 'pg_rewrite'::regclass AND ev_enabled <> 'O'
  UNION ALL
    SELECT classid, objid, objsubid, 7, attnum,
           format('ALTER TABLE %s ALTER COLUMN %I %s', (pg_identify_object('pg_class'::regclass, attrelid, 0)).identity, attname, change)
    FROM object JOIN pg_attribute a ON attrelid = objid AND attnum > 0 AND (objsubid = 0 OR attnum = objsubid)
         JOIN pg_type t ON t.oid = atttypid JOIN pg_class c ON c.oid = attrelid AND relkind IN ('r', 'p', 'm'),
         LATERAL (VALUES ('SET STATISTICS ' || CASE WHEN attstattarget >= 0 THEN attstattarget END),
                         ('SET STORAGE ' || CASE WHEN attstorage <> typstorage
                                                 THEN CASE attstorage WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL'
                                                                      WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END END),
                         ('SET COMPRESSION ' || CASE attcompression WHEN 'p' THEN 'pglz' WHEN 'l' THEN 'lz4' END),
                         -- pg_attver is PostgreSQL's own option, which it does not accept back.
                         ('SET (' || (SELECT string_agg(option, ', ') FROM unnest(attoptions) AS option
                                      WHERE option NOT LIKE 'pg_attver=%') || ')')) AS setting (change)
    WHERE classid = 'pg_class'::regclass AND change IS NOT NULL
  UNION ALL
    SELECT classid, objid, 0, 7, 0, format('ALTER STATISTICS %s SET STATISTICS %s', identity, stxstattarget)
    FROM object JOIN pg_statistic_ext s ON s.oid = objid WHERE classid = 'pg_statistic_ext'::regclass AND stxstattarget >= 0
  UNION ALL
    SELECT classid, objid, objsubid, 8, number,
           statement
    FROM indexed, LATERAL (
        SELECT 1, format('ALTER INDEX %s SET TABLESPACE %I', index_name, spcname) FROM pg_tablespace WHERE oid = reltablespace
      UNION ALL
        SELECT 2, format('ALTER TABLE %s CLUSTER ON %I', name, relname) WHERE indisclustered
      UNION ALL
        SELECT 3, format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', name, relname) WHERE indisreplident
      UNION ALL
        SELECT 4, format('COMMENT ON INDEX %s IS %L', index_name, description)
        FROM pg_description WHERE is_constraint AND classoid = 'pg_class'::regclass AND objoid = indexrelid
      UNION ALL
        SELECT 4 + attnum, format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', index_name, attnum, attstattarget)
        FROM pg_attribute WHERE attrelid = indexrelid AND attstattarget >= 0
    ) AS setting (number, statement)
  UNION ALL
    SELECT o.classid, o.objid, 0, 9, 0, format('ALTER %s %s DEPENDS ON EXTENSION %I', kind, identity, extname)
    FROM object o JOIN pg_depend d ON d.classid = o.classid AND d.objid = o.objid AND d.deptype = 'x'
         JOIN pg_extension e ON e.oid = d.refobjid
  UNION ALL
    -- Run as its owner, not as the user who creates it, because its query may call any function.
    SELECT classid, objid, 0, 10, 0, format('REFRESH MATERIALIZED VIEW %s', identity)
    FROM object JOIN pg_class c ON c.oid = objid
    WHERE classid = 'pg_class'::regclass AND objsubid = 0 AND relkind = 'm' AND relispopulated
)
SELECT part, statement::cstring FROM (
    SELECT 0, -depth::bigint, o.classid, -o.objid::bigint, objsubid, 0, 0, drop_it
    FROM object o JOIN made USING (classid, objid, objsubid)
    WHERE is_free AND make_it IS NOT NULL
          AND NOT EXISTS (SELECT FROM pg_depend d  -- dropped with that
                               JOIN object p ON d.refclassid = p.classid AND d.refobjid = p.objid AND p.objsubid IN (0, d.refobjsubid)
                          WHERE d.classid = o.classid AND d.objid = o.objid AND o.objsubid IN (0, d.objsubid)
                                AND d.deptype IN ('a', 'i') AND (p.classid, p.objid, p.objsubid) <> (o.classid, o.objid, o.objsubid))
  UNION ALL
    SELECT 1, depth, classid, objid::bigint, objsubid, number, place, statement
    FROM object JOIN step USING (classid, objid, objsubid)
    WHERE is_free
  UNION ALL
    SELECT 2, depth, classid, objid::bigint, objsubid, 0, 0, pg_describe_object(classid, objid, objsubid)
    FROM object LEFT JOIN made USING (classid, objid, objsubid)
    WHERE NOT is_free OR make_it IS NULL
) AS remake (part, depth, classid, objid, objsubid, number, place, statement)
WHERE statement IS NOT NULL  -- NULL for an object that another session is dropping
ORDER BY part, depth, classid, objid, objsubid, number, place
