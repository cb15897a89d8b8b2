-- $1 a column's name as SQL has it: how many parts it has; the table, quoted as it needs; the column.
SELECT cardinality(parts),
       array_to_string(ARRAY(SELECT quote_ident(part) FROM unnest(parts) WITH ORDINALITY AS p (part, n)
                             WHERE n < cardinality(parts) ORDER BY n), '.')::cstring,
       parts[cardinality(parts)]::cstring
FROM parse_ident($1::text) AS parts
