-- $3 a function of the extension, $4 its argument, or NULL if it has none: the statements that make
-- it the columns' default, and the column of each; none for a column that already has it
-- everywhere.
SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %I.%I(%s)', name, attname, nspname, proname,
              quote_literal($4::text))::cstring,
       place
FROM family f, ours
WHERE rel = root AND proname = $3::text::name
      AND EXISTS (SELECT FROM family
                  WHERE place = f.place
                        AND expression IS DISTINCT FROM format('%s%s)', head, '''' || replace($4::text, '''', '''''') || '''::text'))
ORDER BY place
