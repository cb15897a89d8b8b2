-- $1 a column's name as in SQL: the number of its parts; the table, quoted where needed; the
-- column.
SELECT cardinality(parts),
       array_to_string(ARRAY(SELECT quote_ident(part) FROM unnest(parts) WITH ORDINALITY AS p (part, n)
                             WHERE n < cardinality(parts) ORDER BY n), '.')::cstring,
       parts[cardinality(parts)]::cstring
FROM parse_ident($1::text) AS parts
