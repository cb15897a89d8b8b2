-- $1 tables, $2 their columns, in pairs: those that a switch has put in the place of others, which
-- are still there.
SELECT rel, att FROM kept WHERE (rel, att) IN (SELECT * FROM unnest($1, $2)) AND is_switched ORDER BY rel, att
