-- The objects of the extension: each with its volatility, privileges and comment. (Without the row
-- types of views, which belong to an extension from PostgreSQL 17 on.)
CREATE EXTENSION snowflake_id;
SELECT pg_describe_object(d.classid, d.objid, 0) COLLATE "C" AS object
FROM pg_depend d
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'snowflake_id' AND d.deptype = 'e' AND d.classid <> 'pg_type'::regclass
ORDER BY object;

-- Forms without a layout are STABLE (they depend on a setting), forms with it IMMUTABLE; all are
-- STRICT, except for those in PL/pgSQL.
SELECT p.oid::regprocedure AS function, pg_get_function_result(p.oid) AS result,
       p.provolatile AS volatile, p.proisstrict AS strict, p.proparallel AS parallel
FROM pg_proc p
JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'snowflake_id'
ORDER BY p.oid::regprocedure::text COLLATE "C";

-- Objects without a comment: none.
SELECT pg_describe_object(d.classid, d.objid, 0) AS without_comment
FROM pg_depend d
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'snowflake_id' AND d.deptype = 'e' AND d.classid <> 'pg_type'::regclass
  AND obj_description(d.objid, d.classid::regclass::name) IS NULL;

SELECT extrelocatable AS relocatable FROM pg_extension WHERE extname = 'snowflake_id';

-- The settings, with their context, bounds and defaults.
SELECT name, vartype, context, unit, min_val, max_val, enumvals, boot_val
FROM pg_settings WHERE name LIKE 'snowflake_id.%' ORDER BY name;
SELECT name, short_desc FROM pg_settings WHERE name LIKE 'snowflake_id.%' ORDER BY name;

-- An ordinary role may draw and decode, and change nothing.
CREATE ROLE regress_snowflake_user;
SET ROLE regress_snowflake_user;
SELECT snowflake_next() > 0 AS drawn;
SELECT count(*) > 11 AS layouts FROM snowflake_layouts;
SET snowflake_id.worker_id = 7;
SET snowflake_id.datacenter_id = 7;
SET snowflake_id.layout = 'twitter';
SET snowflake_id.backup_worker = on;
SET snowflake_id.on_rollback = 'wait';
SET snowflake_id.max_borrow = '1h';
SET snowflake_id.max_clock_jump = 0;
SET snowflake_id.no_such_setting = 1;
RESET ROLE;
DROP ROLE regress_snowflake_user;

-- The extension can be created in any schema, and works there without search_path.
DROP EXTENSION snowflake_id;
CREATE SCHEMA ids;
CREATE EXTENSION snowflake_id SCHEMA ids;
SELECT ids.snowflake_format(249489561523081219, 'snowflake');
SELECT count(*) FROM ids.snowflake_layouts;
ALTER EXTENSION snowflake_id SET SCHEMA public;
DROP EXTENSION snowflake_id;
DROP SCHEMA ids;
CREATE EXTENSION snowflake_id;

-- For the files that follow: an error with its SQLSTATE and all its parts.
CREATE FUNCTION refusal(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    state text;
    message text;
    detail text;
    hint text;
BEGIN
    EXECUTE statement;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    -- layouts.sql lists the built-in layouts.
    hint := regexp_replace(hint, '(?<=^The built-in layouts are ).*', '...');
    RETURN concat_ws(E'\n', state || ' ' || message, 'DETAIL: ' || nullif(detail, ''), 'HINT: ' || nullif(hint, ''));
END $$;
