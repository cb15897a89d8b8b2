-- The mark: what a database stores about its ids, and which roles may change it.
\pset format unaligned
\pset tuples_only on

-- Drawn ids are at or below the mark; the backup lane was never used; layout and numbers are known.
SELECT count(*) FROM snowflake_batch(10);
SELECT last_value >= extract(epoch FROM snowflake_timestamp(snowflake_last())) * 1000 + 1 AS covered, is_called
FROM snowflake_mark;
SELECT last_value, is_called FROM snowflake_mark_backup;
SELECT last_value AS fingerprint, is_called FROM snowflake_mark_layout;
SELECT last_value >> 32 AS worker, is_called FROM snowflake_mark_identity;

-- Every role may read them, and none may write them.
SELECT relname, relacl FROM pg_class WHERE relname ~ '^snowflake_mark' ORDER BY relname COLLATE "C";
CREATE ROLE regress_snowflake_user;
SET ROLE regress_snowflake_user;
SELECT count(*) FROM snowflake_mark;
SELECT setval('snowflake_mark', 0);
SELECT nextval('snowflake_mark');
SELECT snowflake_next() > 0 AS drawn;
SELECT snowflake_advance(0);
SELECT snowflake_advance(0, true);
SELECT snowflake_accept_layout();
SELECT snowflake_reset_mark();
RESET ROLE;
GRANT EXECUTE ON FUNCTION snowflake_advance(bigint) TO regress_snowflake_user;
SET ROLE regress_snowflake_user;
SELECT snowflake_advance(0);
-- The right to the form that can force is granted separately.
SELECT snowflake_advance(0, true);
RESET ROLE;
REVOKE ALL ON FUNCTION snowflake_advance(bigint) FROM regress_snowflake_user;
DROP ROLE regress_snowflake_user;

-- Ids begin above the given one, and never below what was drawn.
SELECT snowflake_advance(snowflake_last());
SELECT snowflake_last() < snowflake_next() AS ascends;
SELECT snowflake_advance(snowflake_compose('2025-01-02Z', 5, 0));
SELECT snowflake_last() < snowflake_next() AS ascends;
-- Another worker's id, half a second ahead: the next one waits for it.
SELECT snowflake_compose(clock_timestamp() + interval '500 ms', 1023, 4095) AS foreign_id \gset
SELECT snowflake_advance(:foreign_id);
SELECT snowflake_next() > :foreign_id AS above;

SELECT snowflake_advance(NULL) IS NULL AND snowflake_advance(NULL, true) IS NULL AND snowflake_advance(0, NULL) IS NULL AS strict;
SELECT snowflake_advance(0, true), snowflake_advance(0, false);
SELECT snowflake_last() < snowflake_next() AS ascends;
-- The running layout is the database's already.
SELECT snowflake_accept_layout();
SELECT snowflake_last() < snowflake_next() AS ascends;

-- If a superuser sets the mark back, it is corrected at the commit. (The time in the message is not
-- shown.)
SET client_min_messages = error;
SELECT setval('snowflake_mark', 1);
RESET client_min_messages;
SELECT last_value > 1 AS put_up FROM snowflake_mark;
