-- Whether one of the columns draws ids by default.
SELECT EXISTS (SELECT FROM family, pg_proc p
                    JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
                    JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
               WHERE e.extname = 'snowflake_id' AND p.proname = 'snowflake_next' AND expression = p.oid::regprocedure::text)
