-- Drawing ids.
CREATE TABLE ids (n serial, id bigint PRIMARY KEY DEFAULT snowflake_next());
INSERT INTO ids SELECT FROM generate_series(1, 10000);
SELECT count(*) FROM ids WHERE (snowflake_parse(id)).worker_id <> 5;
SELECT count(*) AS not_ascending FROM (SELECT id <= lag(id) OVER (ORDER BY n) AS falls FROM ids) f WHERE falls;
SELECT snowflake_last() = max(id) AS last FROM ids;

-- The clock is the server's.
SELECT snowflake_timestamp(id) BETWEEN clock_timestamp() - interval '10 minutes' AND clock_timestamp() + interval '1 second'
    AS now FROM snowflake_next() id;

-- A rollback does not return ids.
BEGIN;
SELECT snowflake_next() AS rolled_back \gset
ROLLBACK;
SELECT snowflake_next() > :rolled_back AS greater, snowflake_last() > :rolled_back AS last;

-- RETURNING, COPY, a prepared statement, PL/pgSQL.
INSERT INTO ids DEFAULT VALUES RETURNING id = snowflake_last() AS returned;
COPY ids (n) FROM stdin;
-1
-2
\.
SELECT count(DISTINCT id) FROM ids WHERE n < 0;
PREPARE draw AS SELECT snowflake_next();
EXECUTE draw \gset first_
EXECUTE draw \gset second_
SELECT :second_snowflake_next > :first_snowflake_next AS ascends;
DO $$
DECLARE
    previous bigint := 0;
    id bigint;
BEGIN
    FOR i IN 1..20000 LOOP
        id := snowflake_next();
        IF id <= previous THEN
            RAISE EXCEPTION 'not ascending';
        END IF;
        previous := id;
    END LOOP;
END $$;

-- Batches.
SELECT count(*), count(DISTINCT id) FROM snowflake_batch(100000) id;
SELECT count(*) AS not_ascending
FROM (SELECT id <= lag(id) OVER (ORDER BY ordinality) AS falls
      FROM snowflake_batch(100000) WITH ORDINALITY AS b(id, ordinality)) f
WHERE falls;
SELECT count(*) FROM snowflake_batch(0);
SELECT count(*) FROM snowflake_batch(1);
SELECT count(*) FROM snowflake_batch(NULL);
SELECT count(*) FROM (SELECT snowflake_batch(1000) LIMIT 10) b;
SELECT id = snowflake_last() AS last FROM snowflake_batch(1) id;

DROP TABLE ids;
