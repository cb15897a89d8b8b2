-- The settled id, for readers in the order of ids. Only an installation with "settled" keeps what
-- it takes: an advisory lock for each open transaction that has drawn.
--
-- The first draw of a transaction takes a shared lock whose key is the clock's tenth of a second,
-- read before nextval. The word that it then gets is never behind that. PostgreSQL releases the
-- lock when the transaction's rows are visible, or gone, and keeps it for a prepared transaction.
-- A setting that ends with the transaction, or with the savepoint, notes that the lock is there.
--
-- The reader takes the last word first, and the oldest lock after it. A transaction that has drawn
-- up to that word is seen by its lock, or it has ended before. Then each statement that begins
-- later sees its rows, but one that had begun before does not. That is why this is a procedure:
-- CALL is a statement of its own, which no query can contain. For the same reason it refuses
-- transactions whose later statements see no more than their first one.

CREATE OR REPLACE FUNCTION @extschema@._snowflake_hold(now_us bigint) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $hold$
BEGIN
    -- The sequence that is read is there until the transaction ends.
    PERFORM pg_advisory_xact_lock_shared(word.tableoid::integer, ((now_us - @epoch_us@) / 100000 % 2147483647)::integer)
    FROM @extschema@.snowflake_word AS word;
    PERFORM set_config('@setting@', 'held', true);
END
$hold$;

CREATE OR REPLACE PROCEDURE @extschema@.snowflake_settled(INOUT id bigint DEFAULT NULL)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $settled$
DECLARE
    word_oid oid;
    last_word bigint;
    last_tick bigint;
    now_tenth bigint;
    oldest_tenth bigint;
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
            HINT = 'On the primary, call snowflake_settled(), and after it pg_current_wal_insert_lsn(). On the '
                'standby, read up to that id once pg_last_wal_replay_lsn() has reached that position.';
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'feature_not_supported',
            MESSAGE = format('snowflake_settled() does not work with isolation level "%s"', current_setting('transaction_isolation')),
            DETAIL = 'Later statements of this transaction do not see what was committed after its first one.',
            HINT = 'Call it in a transaction with READ COMMITTED.';
    END IF;
    -- The value and whether it is drawn, read together. What was set and is not drawn yet does not
    -- count.
    SELECT word.tableoid, coalesce(pg_sequence_last_value(word.tableoid), word.last_value - 1)
    INTO STRICT word_oid, last_word FROM @extschema@.snowflake_word AS word;
    IF @extschema@._snowflake_generation() <> @generation@ THEN
        CALL @extschema@.snowflake_settled(id); -- That of the other installation.
        RETURN;
    END IF;
    now_tenth := ((date_part('epoch', clock_timestamp()) * 1000000)::bigint - @epoch_us@) / 100000;
    -- Keys begin anew after six years, so the nearest tenth that has the key counts.
    SELECT min(now_tenth + (held.objid::bigint - now_tenth % 2147483647 + 3221225470) % 2147483647 - 1073741823)
    INTO oldest_tenth FROM pg_locks AS held
    WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 2 AND held.classid = word_oid
        AND held.database = (SELECT here.oid FROM pg_database AS here WHERE here.datname = current_database());
    last_tick := last_word >> @k@;
    id := CASE WHEN (last_word & @word_mask@) >= @sequence_mask@
        -- All ids of the tick, whatever their numbers.
        THEN (last_tick << @time_shift@) | ((1::bigint << @time_shift@) - 1)
        ELSE (last_tick << @time_shift@) | ((last_word & @sequence_mask@) << @sequence_shift@) | @fixed@ END;
    id := least(id, ((oldest_tenth * 100 / @unit_ms@) << @time_shift@) - 1);
END
$settled$;
