-- $1 tables, $2 their columns, in pairs: the columns that hold their values. These are the same
-- columns of the tables' partitions and children, the foreign key columns of any table that refer
-- to one of these, and so on. This file is put in front of others.
WITH RECURSIVE holds (rel, att) AS (
    SELECT attrelid, attname FROM unnest($1, $2) AS named (rel, att) JOIN pg_attribute ON attrelid = rel AND attnum = att
  UNION
    SELECT next.* FROM holds h, LATERAL (
        SELECT inhrelid, h.att FROM pg_inherits WHERE inhparent = h.rel
      UNION ALL
        SELECT i.inhparent, h.att FROM pg_inherits i JOIN pg_attribute a ON a.attrelid = i.inhparent AND a.attname = h.att
        WHERE i.inhrelid = h.rel
      UNION ALL
        SELECT f.conrelid, b.attname
        FROM pg_attribute a JOIN pg_constraint f ON f.confrelid = a.attrelid AND f.contype = 'f',
             unnest(f.confkey, f.conkey) AS key (referred, referring) JOIN pg_attribute b ON b.attnum = key.referring
        WHERE a.attrelid = h.rel AND a.attname = h.att AND key.referred = a.attnum AND b.attrelid = f.conrelid
    ) AS next (rel, att)
)
