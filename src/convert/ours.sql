-- The extension's functions: each with its OID, name and schema, and how a default that calls it
-- begins in the catalogs. This file is put between family.sql and others.
,    ours AS (
    SELECT p.oid, proname, nspname, p.oid::regproc || '(' AS head
    FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace
         JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
         JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
    WHERE e.extname = 'snowflake_id'
)
