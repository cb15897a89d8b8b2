-- Every error: SQLSTATE, message, DETAIL and HINT.
SET timezone = 'UTC';
\pset format unaligned
\pset tuples_only on

-- Not an id.
SELECT refusal('SELECT snowflake_last()');
SELECT refusal('SELECT snowflake_parse(-1)');
SELECT refusal('SELECT snowflake_timestamp(-9223372036854775808)');
SELECT refusal('SELECT snowflake_format(-1)');
SELECT refusal('SELECT snowflake_parse(9007199254740992, ''js53'')');
SELECT refusal('SELECT snowflake_timestamp(9007199254740992, ''js53'')');
SELECT refusal('SELECT snowflake_format(9007199254740992, ''js53'')');

-- Not a layout.
SELECT refusal(format('SELECT snowflake_parse(1, %L)', layout)) FROM (VALUES
    (''), ('twiter'), ('Twitter'), ('twitter js53'), ('time:41'), ('time:41 worker:10 sequence:12'),
    ('time:41 worker:10 sequence:12 unit:1ms'), ('time:0 sequence:12'), ('time:41 sequence:32'), ('time:41 machine:10'),
    ('time:41 worker:5 worker:6'), ('worker:10 time:41'), ('time:41 sequence:12 unit:2ms'),
    ('time:41 sequence:12 unit:1ms epoch:2025-01-01'), ('time:41 sequence:12 unit:1ms epoch:2025-01-01T00:00:00'),
    ('time:41 unit:1ms sequence:12'), ('time:41 worker:11 sequence:12 unit:1ms epoch:2025-01-01T00:00:00Z'),
    ('time:60 sequence:2 unit:1s epoch:2025-01-01T00:00:00Z'),
    ('time:41 sequence:' || repeat('9', 100)), (repeat('x', 300)), (U&'\0442\0438\043A')) v(layout);
SELECT refusal('SELECT snowflake_timestamp(1, ''twiter'')');
SELECT refusal('SELECT snowflake_format(1, ''twiter'')');
SELECT refusal('SELECT * FROM snowflake_layout_fields(''twiter'')');
SELECT refusal('SELECT snowflake_compose(now(), 1, 1, 0, ''twiter'')');

-- Invalid parts.
SELECT refusal('SELECT snowflake_compose(now(), 1024, 0)');
SELECT refusal('SELECT snowflake_compose(now(), -1, 0)');
SELECT refusal('SELECT snowflake_compose(now(), 1, 4096)');
SELECT refusal('SELECT snowflake_compose(now(), 1, -1)');
SELECT refusal('SELECT snowflake_compose(now(), 1, 1, 1)');
SELECT refusal('SELECT snowflake_compose(now(), 1, 1, 32, ''twitter'')');
SELECT refusal('SELECT snowflake_compose(now(), 1, 1, 0, ''mastodon'')');
SELECT refusal('SELECT snowflake_compose(''2024-12-31 23:59:59.999Z'', 1, 1)');
SELECT refusal('SELECT snowflake_compose(''2094-09-07 15:47:35.552Z'', 1, 1)');
SELECT refusal('SELECT snowflake_compose(''infinity'', 1, 1)');
SELECT refusal('SELECT snowflake_compose(''-infinity'', 1, 1)');
SELECT refusal('SELECT snowflake_compose(''4713-01-01 BC'', 1, 1)');
SELECT refusal('SELECT snowflake_compose(''294276-12-31 23:59:59.999999Z'', 1, 1)');

-- Batches.
SELECT refusal('SELECT snowflake_batch(-1)');
SELECT refusal('SELECT count(*) FROM snowflake_batch(-2147483648)');

-- Where nothing may be written, like nextval.
BEGIN READ ONLY;
SELECT refusal('SELECT snowflake_next()');
SELECT refusal('SELECT snowflake_batch(1)');
SELECT refusal('SELECT snowflake_batch(0)');
ROLLBACK;

-- Times outside the layout's range, to the microsecond.
SELECT refusal('SELECT snowflake_min(''2024-12-31 23:59:59.999999Z'')');
SELECT refusal('SELECT snowflake_min(''-infinity'')');
SELECT refusal('SELECT snowflake_min(''infinity'', ''js53'')');
SELECT refusal('SELECT snowflake_min(''2155-02-07 06:28:15.000001Z'', ''js53'')');
SELECT refusal('SELECT snowflake_min(''294276-12-31Z'')');
SELECT refusal('SELECT snowflake_min(''2026-01-01Z'', ''twiter'')');

-- The mark.
SELECT refusal('SELECT snowflake_advance(-1)');
-- (The clock's time in the DETAIL is not shown.)
SELECT regexp_replace(refusal(format('SELECT snowflake_advance(%s)', arguments)), 'clock says [^;]*;', 'clock says ...;')
FROM (VALUES ('9223372036854775807'), ('9223372036854775807, false')) v (arguments);
SELECT count(*) FROM snowflake_batch(1);
SELECT refusal('SELECT snowflake_reset_mark()');
BEGIN READ ONLY;
SELECT refusal('SELECT snowflake_advance(0)');
SELECT refusal('SELECT snowflake_accept_layout()');
SELECT refusal('SELECT snowflake_reset_mark()');
COMMIT;

-- A wrong value in ALTER SYSTEM is refused, and changes nothing.
\pset tuples_only off
ALTER SYSTEM SET snowflake_id.worker_id = -2;
ALTER SYSTEM SET snowflake_id.worker_id = 'five';
\set VERBOSITY terse
ALTER SYSTEM SET snowflake_id.layout = 'twiter';
\set VERBOSITY default
ALTER SYSTEM SET snowflake_id.layout = '';
ALTER SYSTEM SET snowflake_id.on_rollback = 'ignore';
ALTER SYSTEM SET snowflake_id.backup_worker = 'perhaps';
SELECT count(*) AS changed FROM pg_file_settings WHERE name LIKE 'snowflake_id.%' AND sourcefile LIKE '%auto.conf';
SET snowflake_id.layout = 'twitter';
SET snowflake_id.worker_id = 6;

-- A function of the library in a database without the extension.
CREATE FUNCTION draw() RETURNS bigint LANGUAGE c AS '$libdir/snowflake_id', 'snowflake_next_entry';
CREATE FUNCTION read(bigint) RETURNS timestamptz LANGUAGE c AS '$libdir/snowflake_id', 'snowflake_timestamp_wrapper';
SET client_min_messages = warning;
DROP EXTENSION snowflake_id CASCADE;
\pset tuples_only on
SELECT refusal('SELECT draw()');
SELECT read(0) = '2025-01-01Z' AS read;
DROP FUNCTION draw(), read(bigint);
RESET client_min_messages;
\pset tuples_only off

-- A layout that is not even UTF-8.
CREATE DATABASE regress_latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0;
\c regress_latin1
CREATE EXTENSION snowflake_id;
SELECT snowflake_format(1, 'js53');
\set VERBOSITY terse
SELECT snowflake_format(1, U&'caf\00e9');
\set VERBOSITY default
\c regress
DROP DATABASE regress_latin1;
