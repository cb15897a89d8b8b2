-- $3 a function of the extension, $4 its argument, or NULL if it has none, $5 the function of that
-- name that the caller's search_path finds: the statements that make it the columns' default; the
-- column of each; and how the caller reads it, if that is shorter. None for a column that already
-- has the default everywhere.
SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %I.%s', name, attname, nspname, call)::cstring,
       place,
       CASE WHEN oid = $5 THEN format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', name, attname, call)::cstring END
FROM family f, ours, LATERAL (SELECT format('%I(%s)', proname, quote_literal($4::text) || '::text')) AS c (call)
WHERE rel = root AND proname = $3::text::name
      AND EXISTS (SELECT FROM family
                  WHERE place = f.place
                        AND expression IS DISTINCT FROM format('%s%s)', head, '''' || replace($4::text, '''', '''''') || '''::text'))
ORDER BY place
