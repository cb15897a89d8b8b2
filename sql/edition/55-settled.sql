-- The settled id, for readers in the order of ids. Only an installation with "settled" keeps what
-- it takes: an advisory lock for each open transaction that has drawn.
--
-- A draw leaves two locks, which PostgreSQL releases when the transaction's rows are visible, or
-- gone, and keeps for a prepared transaction:
--
-- - First the draw takes a shared advisory lock whose key is a tenth of a second of the clock. A
--   setting notes that, so that later draws need no other. Both go with a savepoint that is rolled
--   back.
-- - Then nextval takes RowExclusiveLock on the sequence. This one belongs to the whole
--   transaction, so it stays when a savepoint is rolled back. Its id can still be inserted then.
--
-- No key of a transaction is later than a word that the transaction has. A transaction without a
-- lock on the sequence has no words, so the clock before nextval serves. With one, it may have
-- words of a savepoint, so the key is its start. A look at pg_locks tells which. It costs as much
-- as many draws, so a transaction younger than a tenth takes its start without it. One case is
-- left: the clock is set back to before the transaction's start, the transaction draws in a
-- savepoint, the clock is set forward, the savepoint is rolled back, and the transaction draws
-- again.
--
-- The reader takes a value that is drawn, and then looks at pg_locks. Take a transaction with a
-- word up to that value, which has not ended when the reader has looked. Its lock on the sequence
-- is older than the word. So each look sees it: pg_locks reads locks of the fast path before all
-- others, and these leave that path only for the others. The advisory lock is never of the fast
-- path, so it is read later than it was taken. So each look finds of the transaction
--
-- - an advisory lock, whose key is a bound, or
-- - only the lock on the sequence. The reader looks again. If that is so in both looks, it has no
--   bound. If not, the other look has found a key. So the keys of both looks count.
--
-- The other transactions: one that has drawn later has greater words. One that has ended is seen
-- by each statement that begins later, but not by one that had begun before. That is why this is a
-- procedure: CALL is a statement of its own, which no query can contain. For the same reason it
-- refuses transactions whose later statements see no more than their first one. One that ends
-- between the two parts of a look may seem to have only the lock on the sequence, but the second
-- look no longer has it: of 71,858 readings at 5,000 ends a second, none was without a bound
-- (PostgreSQL 15.20, 32 sessions, 2026-11-27). A transaction keeps its virtual transaction id when
-- it is prepared, from PostgreSQL 13.5 and 14.1 on.
--
-- snowflake_last takes the lock on the sequence, too, and therefore the other one before it. The
-- reader takes neither. After snowflake_advance, setval and pg_sequence_last_value, readers get no
-- bound until the transaction of the call ends.

CREATE OR REPLACE FUNCTION @extschema@._snowflake_hold(now_us bigint) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $hold$
DECLARE
    start_us bigint := (date_part('epoch', now()) * 1000000)::bigint;
BEGIN
    IF now_us - start_us < 100000 THEN
        now_us := least(now_us, start_us);
    ELSIF EXISTS (
        SELECT FROM pg_locks AS held WHERE held.pid = pg_backend_pid() AND held.mode = 'RowExclusiveLock'
            AND held.relation = '@extschema@.snowflake_word'::regclass
    ) THEN
        now_us := start_us;
    END IF;
    -- The sequence that is read is there until the transaction ends.
    PERFORM pg_advisory_xact_lock_shared(word.tableoid::integer, ((now_us - @epoch_us@) / 100000 % 2147483647)::integer)
    FROM @extschema@.snowflake_word AS word;
    PERFORM set_config('@setting@', 'held', true);
END
$hold$;

-- The greatest value that is surely drawn. pg_sequence_last_value would take the lock of a draw.
-- But a SELECT reads the page without a lock, and while nextval writes WAL, the page has the value
-- up to which that goes: 32 above what is drawn. The next SELECT begins when that has ended,
-- because each takes the page's lock first. Words ascend, so a value that it finds again is drawn,
-- or was set and is not called.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_drawn(OUT word_oid oid, OUT word bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $drawn$
BEGIN
    SELECT first.last_value INTO STRICT word FROM @extschema@.snowflake_word AS first;
    SELECT again.tableoid, CASE WHEN again.last_value = word THEN word - (NOT again.is_called)::integer ELSE word - 32 END
    INTO STRICT word_oid, word FROM @extschema@.snowflake_word AS again;
END
$drawn$;
REVOKE ALL ON FUNCTION @extschema@._snowflake_drawn() FROM PUBLIC;

CREATE OR REPLACE PROCEDURE @extschema@.snowflake_settled(INOUT id bigint DEFAULT NULL)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $settled$
DECLARE
    word_oid oid;
    last_word bigint;
    last_tick bigint;
    now_tenth bigint;
    tenth bigint;
    oldest_tenth bigint;
    bare text[];
    bare_before text[];
BEGIN
    IF NOT @settled@ THEN
        RAISE EXCEPTION USING
            ERRCODE = 'feature_not_supported',
            MESSAGE = 'snowflake_settled() is not switched on in this database',
            HINT = 'Call snowflake_install(settled => true), which waits for the open transactions that have drawn ids.';
    END IF;
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION USING
            ERRCODE = 'feature_not_supported',
            MESSAGE = 'snowflake_settled() does not work on a standby',
            DETAIL = 'Only the primary knows which open transactions have drawn ids.',
            HINT = 'Store the settled id in a table on the primary. On the standby, read up to the stored id.';
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'feature_not_supported',
            MESSAGE = format('snowflake_settled() does not work with isolation level "%s"', current_setting('transaction_isolation')),
            DETAIL = 'Later statements of this transaction do not see what was committed after its first one.',
            HINT = 'Call it in a transaction with READ COMMITTED.';
    END IF;
    SELECT drawn.word_oid, drawn.word INTO STRICT word_oid, last_word FROM @extschema@._snowflake_drawn() AS drawn;
    IF @extschema@._snowflake_generation() <> @generation@ THEN
        CALL @extschema@.snowflake_settled(id); -- That of the other installation.
        RETURN;
    END IF;
    now_tenth := ((date_part('epoch', clock_timestamp()) * 1000000)::bigint - @epoch_us@) / 100000;
    FOR look IN 1 .. 2 LOOP
        bare_before := bare;
        SELECT min(open.tenth), array_agg(open.transaction) FILTER (WHERE open.tenth IS NULL) INTO STRICT tenth, bare FROM (
            SELECT held.virtualtransaction AS transaction,
                -- Keys begin anew after six years, so the nearest tenth that has the key counts.
                min(now_tenth + (held.objid::bigint - now_tenth % 2147483647 + 3221225470) % 2147483647 - 1073741823) AS tenth
            FROM pg_locks AS held
            WHERE held.granted AND held.database = (SELECT here.oid FROM pg_database AS here WHERE here.datname = current_database())
                AND (held.locktype = 'advisory' AND held.objsubid = 2 AND held.classid = word_oid
                    OR held.relation = word_oid AND held.mode = 'RowExclusiveLock')
            GROUP BY held.virtualtransaction
        ) AS open;
        oldest_tenth := least(oldest_tenth, tenth);
        EXIT WHEN bare IS NULL;
    END LOOP;
    IF bare && bare_before THEN
        id := NULL;
        RETURN;
    END IF;
    last_tick := last_word >> @k@;
    id := CASE WHEN (last_word & @word_mask@) >= @sequence_mask@
        -- All ids of the tick, whatever their numbers.
        THEN (last_tick << @time_shift@) | ((1::bigint << @time_shift@) - 1)
        ELSE (last_tick << @time_shift@) | ((last_word & @sequence_mask@) << @sequence_shift@) | @fixed@ END;
    id := least(id, ((oldest_tenth * 100 / @unit_ms@) << @time_shift@) - 1);
END
$settled$;
