-- For each table, without partitions: the step that refuses the way back while a row does not fit.
SELECT format('look for rows of %s whose values do not fit', name)::cstring,
       format('SELECT snowflake_plan.widen_fits(%L);', name)::cstring, format('%s: ACCESS SHARE', name)::cstring
FROM col WHERE is_whole GROUP BY name ORDER BY name
