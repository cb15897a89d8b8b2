-- The statements that let partitions and children draw from the sequence of their table's identity,
-- where they do not inherit the identity, as only partitions do since PostgreSQL 17.
SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT nextval(%L)', name, attname, sequence)::cstring
FROM family JOIN named_sequence USING (place)
WHERE rel <> root AND NOT (relispartition AND current_setting('server_version_num')::integer >= 170000)
ORDER BY place, rel
