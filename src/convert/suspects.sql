-- $3 whether the columns will draw ids: what may fail afterwards, though the catalogs do not
-- connect it with the columns. For each: whether it is a function, and its name, type and reason in
-- one line. Weak reasons come last. `docs/migrate.md` states the rules.
,    holder (rel, att) AS (  -- the columns that will hold ids
    SELECT rel, attnum FROM family WHERE $3
  UNION
    SELECT conrelid, referring
    FROM holder JOIN pg_constraint ON confrelid = rel AND contype = 'f', unnest(confkey, conkey) AS pair (referred, referring)
    WHERE referred = att
),
     concerned AS (SELECT rel FROM holder UNION SELECT rel FROM family),
     members AS (SELECT classid, objid FROM pg_depend WHERE deptype = 'e'),
     -- Integer types that are too narrow, their arrays, and domains over them.
     short AS (
    SELECT t.oid AS type, i.type::text LIKE '%[]' AS is_array
    FROM unnest('{int2, int4, int2[], int4[]}'::regtype[]) AS i (type) JOIN pg_type t ON i.type IN (t.oid, t.typbasetype)
),
     -- All tables, and their columns that could hold a key. A name's words are divided as in
     -- user_id, or as in userId.
     relation AS MATERIALIZED (
    SELECT c.oid AS rel, lower(regexp_replace(relname, '([a-z0-9])([A-Z])', E'\\1_\\2', 'g')) AS words,
           c.oid IN (SELECT rel FROM family) AS is_converted,
           relnamespace IN (SELECT relnamespace FROM family JOIN pg_class ON oid = rel) AS is_near
    FROM pg_class c
    WHERE relkind IN ('r', 'p', 'f', 'c') AND c.oid >= 16384 AND NOT relispartition
          AND ('pg_class'::regclass, c.oid) NOT IN (TABLE members)
),
     candidate AS MATERIALIZED (
    SELECT rel, attnum, attname, is_array, is_near, format_type(atttypid, NULL) AS type_name,
           lower(regexp_replace(attname, '([a-z0-9])([A-Z])', E'\\1_\\2', 'g')) AS words
    FROM relation JOIN pg_attribute ON attrelid = rel AND attnum > 0 AND NOT attisdropped JOIN short ON type = atttypid
    WHERE $3 AND attinhcount = 0 AND attidentity = '' AND attgenerated = ''
          AND (rel, attnum) NOT IN (TABLE holder)
          AND NOT EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND conrelid = rel AND attnum = ANY (conkey))
          AND NOT EXISTS (SELECT FROM pg_attrdef e JOIN pg_depend d ON classid = 'pg_attrdef'::regclass AND objid = e.oid
                                      JOIN pg_sequence ON refclassid = 'pg_class'::regclass AND seqrelid = refobjid
                          WHERE adrelid = rel AND adnum = attnum)
),
     -- The last word of a table's name, and that of a column's name without its ending. Whole
     -- names stand behind a '='.
     noun AS (
    SELECT rel, 0 AS attnum, noun FROM relation, unnest(ARRAY[regexp_replace(words, '^.*_', ''), '=' || words]) AS noun
  UNION
    SELECT rel, attnum, regexp_replace(regexp_replace(words, ending || 's?$', ''), '^.*_', '')
    FROM candidate, unnest('{_id, id}'::text[]) AS ending WHERE is_array OR words ~ (ending || 's?$')
  UNION
    SELECT rel, attnum, '=' || words FROM candidate WHERE words !~ 's$'
),
     form AS (  -- in singular and plural
    SELECT DISTINCT rel, attnum, form
    FROM noun, unnest(ARRAY[noun, regexp_replace(noun, 's$', ''), regexp_replace(noun, 'es$', ''),
                            regexp_replace(noun, 'ies$', 'y'), regexp_replace(noun, 'people$', 'person')]) AS form
),
     named AS (
    SELECT c.rel, c.attnum, count(*) AS matches, min(t.rel::regclass::text) FILTER (WHERE is_converted) AS key_of
    FROM form c JOIN form f USING (form) JOIN relation t ON t.rel = f.rel
    WHERE c.attnum > 0 AND f.attnum = 0
    GROUP BY c.rel, c.attnum
),
     -- Functions with a text, and the words of each.
     source AS MATERIALIZED (
    SELECT p.oid, p.oid::regprocedure::text AS name, lower(proname) AS proname,
           lower(coalesce(pg_get_function_sqlbody(p.oid), prosrc)) AS source,
           prorettype IN (SELECT type FROM short) AS returns,
           EXISTS (SELECT type FROM short WHERE type = ANY (coalesce(proallargtypes, proargtypes::oid[]))) AS takes
    FROM pg_proc p JOIN pg_language l ON l.oid = prolang
    WHERE p.oid >= 16384 AND lanname NOT IN ('c', 'internal') AND ('pg_proc'::regclass, p.oid) NOT IN (TABLE members)
),
     -- A word ends at each character of ASCII but letters, digits, '_' and '$'. One that is called
     -- keeps its '('.
     word AS MATERIALIZED (
    SELECT oid, rtrim(part, '(') AS word, bool_or(part LIKE '%(') AS is_call
    FROM source, regexp_split_to_table(regexp_replace(source, E'"?\\s*\\(', '( ', 'g'), E'[\\x01-#%-'')-/:-@[-^`{-~]+') AS part
    GROUP BY oid, rtrim(part, '(')
  UNION ALL
    -- A name of several words.
    SELECT source.oid, lower(relname), false
    FROM concerned JOIN pg_class c ON c.oid = rel AND relname ~ E'[\\x01-#%-/:-@[-^`{-~]'
         JOIN source ON position(format('"%s"', lower(relname)) IN source) > 0
),
     short_word AS (SELECT DISTINCT oid FROM word WHERE word IN ('int', 'integer', 'int4', 'int2', 'smallint')),
     currval_word AS (
    SELECT oid, min(word) AS word FROM word WHERE word IN ('lastval', 'pg_get_serial_sequence') AND is_call GROUP BY oid
),
     fired AS (
    SELECT tgfoid AS oid, 'trigger of ' || min(rel::regclass::text) AS why
    FROM holder JOIN pg_trigger ON tgrelid = rel AND NOT tgisinternal GROUP BY tgfoid
),
     naming AS (
    SELECT word.oid, 'names ' || min(rel::regclass::text) AS why
    FROM concerned JOIN pg_class c ON c.oid = rel JOIN word ON word = lower(relname)
    GROUP BY word.oid
),
     called (oid, caller) AS (
    SELECT oid, 0::oid FROM (SELECT oid FROM fired UNION SELECT oid FROM naming) AS known WHERE $3
  UNION
    SELECT s.oid, c.oid
    FROM called c JOIN word w ON w.oid = c.oid AND is_call JOIN source s ON s.proname = w.word AND s.oid <> c.oid
),
     -- The sequences that the columns own or draw from.
     drawn AS (
    SELECT DISTINCT s.oid, lower(relname) AS relname
    FROM family JOIN pg_depend d ON (d.refclassid, d.refobjid, d.refobjsubid, d.classid) = ('pg_class'::regclass, rel, attnum, 'pg_class'::regclass)
                                    AND d.deptype IN ('a', 'i')
         JOIN pg_class s ON s.oid = d.objid AND relkind = 'S'
  UNION
    SELECT s.oid, lower(relname)
    FROM family JOIN pg_depend d ON (d.classid, d.objid, d.refclassid) = ('pg_attrdef'::regclass, def, 'pg_class'::regclass)
         JOIN pg_class s ON s.oid = d.refobjid AND relkind = 'S'
),
     suspect (is_function, name, type, reason) AS (
    SELECT false, format('%s.%I', c.rel::regclass, c.attname), type_name,
           CASE WHEN key_of IS NOT NULL THEN 'named like a key of ' || key_of ELSE 'named like a key' END
    FROM candidate c LEFT JOIN named USING (rel, attnum)
    WHERE key_of IS NOT NULL
          OR is_near AND (matches IS NULL AND words ~ '_ids?$'
                          OR EXISTS (SELECT FROM family WHERE attname = c.attname AND attname <> 'id'))
  UNION ALL
    SELECT DISTINCT false, format('%s.%I', adrelid::regclass, a.attname), format_type(atttypid, NULL),
           'generated from ' || format('%s.%I', rel::regclass, f.attname)
    FROM (SELECT rel, attnum, attname FROM holder JOIN pg_attribute ON (attrelid, attnum) = (rel, att)) AS f
         JOIN pg_depend d ON (refclassid, refobjid, refobjsubid, classid) = ('pg_class'::regclass, rel, f.attnum, 'pg_attrdef'::regclass)
         JOIN pg_attrdef e ON e.oid = objid JOIN pg_attribute a ON (attrelid, a.attnum) = (adrelid, adnum) AND attgenerated <> ''
         JOIN short ON type = atttypid
    WHERE attinhcount = 0
  UNION ALL
    SELECT true, s.name, 'function', concat_ws(', ',
           CASE WHEN s.takes THEN 'takes integer' END, CASE WHEN s.returns THEN 'returns integer' END,
           CASE WHEN t.oid IS NOT NULL THEN 'has integer in its text' END,
           coalesce(fired.why, naming.why, 'called by ' || caller.name))
    FROM (SELECT oid, max(caller) AS caller FROM called GROUP BY oid) AS c
         JOIN source s USING (oid) LEFT JOIN fired USING (oid) LEFT JOIN naming USING (oid)
         LEFT JOIN short_word t USING (oid)
         LEFT JOIN source caller ON caller.oid = c.caller
    WHERE s.takes OR s.returns OR t.oid IS NOT NULL
  UNION ALL
    SELECT true, name, 'function', 'names sequence ' || min(drawn.oid::regclass::text)
    FROM source JOIN word USING (oid) JOIN drawn ON word = relname
    GROUP BY source.oid, name
  UNION ALL
    SELECT true, name, 'function', format('calls %s, %s', word, why)
    FROM source JOIN currval_word USING (oid) JOIN naming USING (oid)
    WHERE EXISTS (TABLE drawn)
)
SELECT is_function, translate(format('%s, %s, %s', name, type, string_agg(DISTINCT reason, '; ')), E'\n\r', '  ')::cstring
FROM suspect
GROUP BY is_function, name, type
ORDER BY is_function, every(reason = 'named like a key'), name, type
