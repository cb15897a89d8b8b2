-- Each object and what it depends on, one per line.
SELECT string_agg(DISTINCT format('%s depends on %s',
           CASE WHEN r.rulename = '_RETURN' THEN pg_describe_object('pg_class'::regclass, r.ev_class, 0)
                ELSE pg_describe_object(classid, objid, objsubid) END,
           pg_describe_object('pg_class'::regclass, rel, att)), E'\n')::cstring
FROM found LEFT JOIN pg_rewrite r ON classid = 'pg_rewrite'::regclass AND r.oid = objid
