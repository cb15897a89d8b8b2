-- Drawing. snowflake_install() makes these functions, with the constants of the installation.
--
-- The word is a sequence of PostgreSQL, snowflake_word: logged, with CACHE 1. A value of it:
--
--      63                    @k@                @sequence_bits@               0
--     +----------------------+------------------+----------------+
--     | tick                 | 0, or used up    | sequence       |
--     +----------------------+------------------+----------------+
--
-- The datacenter and the worker are added when the id is composed. A draw is one nextval. Its value
-- is an id if its tick is not behind the clock's, and nothing is in the middle. Else the tick must
-- be changed, by setval, which is done with a lock held (_snowflake_forward).
--
-- Why no value comes twice (nextval takes no lock, so that others draw while the lock is held):
--
-- - A tick begins with setval alone. Between its last sequence and the next tick lie at least
--   524,288 values, which are not ids: 4,190,208 with the default layout. A session that gets one
--   of them waits for the lock, and each holder that finds more than 262,144 used up sets back to
--   their first. So between a holder's read of the last value and its setval, nextval would have
--   to be called 262,144 times to get into the next tick, and that tick must not be past. Each
--   session calls it once, and waits. One whose wait ends by a timeout can call it again, at most
--   every millisecond.
-- - The holder sets to a later tick than the one that it has read, so above all that was drawn, or
--   within the values that are not ids.
-- - setval and nextval are not undone by a rollback.
--
-- The lock is that of a view, _snowflake_lock, which only the owner may take, and roles with the
-- rights of pg_write_all_data or pg_maintain. An advisory lock would be everyone's. The mode
-- conflicts with itself, but with no lock that further roles can hold on a view. A stronger one
-- would write WAL, or end the fast path of other locks. A table would do as well, but vacuum visits
-- it, and publications FOR ALL TABLES contain it.
--
-- The lock is taken in a block whose end is an error that the block itself catches. So each end of
-- the block releases it: this one, an error, a cancel, another cancel right after that, the end of
-- the session. It is never held to a commit.
--
-- A session may have begun a function of an installation that has been replaced since. nextval
-- waits for the commit of the other installation, and each sequence has its own generation. So a
-- generation that is compared after nextval tells whether the constants are those of the sequence.
-- From then on no other installation commits, until the transaction ends. The planner puts the
-- generation in place of its function, so that the comparison costs nothing.
--
-- Every prefix of WAL that holds a row holds the record of the sequence that covers the row's id:
-- that record was written before nextval returned. An id that was only seen, and whose record was
-- not flushed, can come again after a crash, if the clock is then behind its tick or still in it.
--
-- The functions belong to the role that installs, and run with its rights, because setval must not
-- be everyone's. Other roles have no right on the sequence. All names and operators in
-- snowflake_next are qualified, because SET costs a microsecond for each id. So its constants have
-- their type and no sign outside of quotes.

CREATE OR REPLACE FUNCTION @extschema@._snowflake_generation() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT @generation@::bigint';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_next() RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER AS $next$
DECLARE
    -- Read before nextval: see 55-settled.sql.
    now_us bigint := (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())
        OPERATOR(pg_catalog.*) 1000000::double precision)::bigint;
    now_tick bigint := (now_us OPERATOR(pg_catalog.-) @epoch_us@) OPERATOR(pg_catalog./) @unit_us@::bigint;
    word bigint;
    tick bigint;
BEGIN
    @hold@word := pg_catalog.nextval('@extschema@.snowflake_word'::pg_catalog.regclass);
    tick := word OPERATOR(pg_catalog.>>) @k@;
    IF (tick OPERATOR(pg_catalog.>=) now_tick)
        AND (tick OPERATOR(pg_catalog.<=) (now_tick OPERATOR(pg_catalog.+) @borrow_ticks@::bigint))
        AND ((word OPERATOR(pg_catalog.&) @middle@::bigint) OPERATOR(pg_catalog.=) 0::bigint)
        AND (@extschema@._snowflake_generation() OPERATOR(pg_catalog.=) @generation@::bigint)
    THEN
        RETURN ((tick OPERATOR(pg_catalog.<<) @time_shift@)
            OPERATOR(pg_catalog.|) ((word OPERATOR(pg_catalog.&) @sequence_mask@::bigint) OPERATOR(pg_catalog.<<) @sequence_shift@))
            OPERATOR(pg_catalog.|) @fixed@::bigint;
    END IF;
    IF @extschema@._snowflake_generation() OPERATOR(pg_catalog.<>) @generation@::bigint THEN
        RETURN @extschema@.snowflake_next(); -- That of the other installation.
    END IF;
    RETURN @extschema@._snowflake_forward(now_tick);
END
$next$;

-- Changes the tick if that is due, and draws: from the clock's tick on, and from the one that the
-- caller has read, from which the clock may have been set back since.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_forward(least_tick bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $forward$
DECLARE
    now_ms bigint;
    now_tick bigint;
    next_word bigint;
    tick bigint;
    target bigint;
    reached_ms bigint;
    allowed_ms bigint;
    wait_ms bigint;
    word bigint;
BEGIN
    LOOP
        word := NULL;
        BEGIN
            LOCK TABLE @extschema@._snowflake_lock IN SHARE UPDATE EXCLUSIVE MODE;
            now_ms := (date_part('epoch', clock_timestamp()) * 1000000)::bigint / 1000;
            IF now_ms < @epoch_ms@ THEN
                RAISE EXCEPTION USING
                    ERRCODE = 'datetime_field_overflow',
                    MESSAGE = 'clock is before the layout''s epoch',
                    DETAIL = format('The clock says %s, and the epoch is %s.', @extschema@._snowflake_utc(now_ms),
                        @extschema@._snowflake_utc(@epoch_ms@)),
                    HINT = 'Check the server''s clock and its time synchronization, and the epoch of the layout.';
            END IF;
            now_tick := (now_ms - @epoch_ms@) / @unit_ms@;
            -- Where is_called is false, last_value is not drawn yet.
            SELECT last_value + is_called::integer INTO STRICT next_word FROM @extschema@.snowflake_word;
            tick := next_word >> @k@;
            IF (next_word & @word_mask@) > @sequence_mask@ + 262144 THEN
                PERFORM setval('@extschema@.snowflake_word', (tick << @k@) + @sequence_mask@ + 1, false);
            END IF;
            target := greatest(now_tick, least_tick, tick + ((next_word & @middle@) <> 0)::integer);
            IF target > @last_tick@ THEN
                RAISE EXCEPTION USING
                    ERRCODE = 'sequence_generator_limit_exceeded',
                    MESSAGE = format('the time of layout "%s" has run out', @layout@),
                    DETAIL = format('Its last instant was %s.', @extschema@._snowflake_utc(@last_ms@)),
                    HINT = 'Check the server''s clock. If it is right, choose another layout for new ids; old ids can still be read.';
            END IF;
            reached_ms := @epoch_ms@ + greatest(tick, least_tick) * @unit_ms@;
            allowed_ms := now_ms + @max_borrow@;
            IF @epoch_ms@ + target * @unit_ms@ > allowed_ms THEN
                -- All that the clock permits is drawn, or the clock is behind.
                wait_ms := CASE WHEN reached_ms > allowed_ms THEN reached_ms
                    ELSE @epoch_ms@ + target * @unit_ms@ END - allowed_ms;
                IF reached_ms > allowed_ms AND wait_ms > @max_borrow@ THEN
                    RAISE EXCEPTION USING
                        ERRCODE = 'system_error',
                        MESSAGE = format('clock is %s ms behind the last id', reached_ms - now_ms),
                        DETAIL = format('Ids may run ahead of the clock by up to %s ms ("max_borrow"). The server draws '
                            'ids again once its clock reaches %s.', @max_borrow@, @extschema@._snowflake_utc(reached_ms - @max_borrow@)),
                        HINT = 'Check the server''s time synchronization, and whether "max_borrow" was lowered or '
                            'snowflake_advance() was called.' || CASE WHEN wait_ms <= 60000 THEN '' ELSE
                            ' If ids were drawn while the clock was far ahead, or an advance went too far, drop the '
                            'sequence snowflake_word, and call snowflake_install() with a number that no server of the fleet has had.' END;
                END IF;
            ELSE
                IF target <> tick THEN
                    -- Not always 0 first, because a table that gets few ids in a tick would hold
                    -- mostly even ones, which shard badly.
                    PERFORM setval('@extschema@.snowflake_word', (target << @k@) | (hashint8(target) & @first_mask@), false);
                END IF;
                word := nextval('@extschema@.snowflake_word');
            END IF;
            RAISE EXCEPTION USING ERRCODE = 'SFREL', MESSAGE = 'the lock is released';
        EXCEPTION
            WHEN SQLSTATE 'SFREL' THEN NULL;
        END;
        IF word IS NULL THEN
            PERFORM pg_sleep(wait_ms / 1000.0);
        ELSIF word >> @k@ = target AND word & @middle@ = 0 THEN
            RETURN (target << @time_shift@) | ((word & @sequence_mask@) << @sequence_shift@) | @fixed@;
        END IF;
        -- Else the other sessions have used the tick up.
    END LOOP;
END
$forward$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_batch(count integer) RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $batch$
BEGIN
    PERFORM @extschema@._snowflake_require_writable('snowflake_batch()'::text);
    IF count < 0 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('count %s is outside the range 0..2147483647', count);
    END IF;
    FOR i IN 1 .. count LOOP
        RETURN NEXT @extschema@.snowflake_next();
    END LOOP;
END
$batch$;

CREATE OR REPLACE FUNCTION @extschema@._snowflake_require_writable(command text) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $writable$
BEGIN
    IF current_setting('transaction_read_only')::boolean THEN
        RAISE EXCEPTION USING
            ERRCODE = 'read_only_sql_transaction',
            MESSAGE = CASE WHEN pg_is_in_recovery() THEN format('cannot execute %s during recovery', command)
                ELSE format('cannot execute %s in a read-only transaction', command) END;
    END IF;
END
$writable$;

-- What the sequence has given to this session last. DISCARD SEQUENCES makes the session forget it.
-- After a draw that was refused, there may be none.
CREATE OR REPLACE FUNCTION @extschema@.snowflake_last() RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $last$
DECLARE
    now_us bigint := (date_part('epoch', clock_timestamp()) * 1000000)::bigint;
    word bigint;
BEGIN
    @hold@BEGIN
        word := currval('@extschema@.snowflake_word');
    EXCEPTION
        WHEN object_not_in_prerequisite_state THEN NULL;
    END;
    IF word IS NULL OR word & @middle@ <> 0 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'no id has been drawn in this session yet',
            HINT = 'Call snowflake_next() first.';
    END IF;
    RETURN ((word >> @k@) << @time_shift@) | ((word & @sequence_mask@) << @sequence_shift@) | @fixed@;
END
$last$;

-- Counts the id's tick as used up.
CREATE OR REPLACE FUNCTION @extschema@.snowflake_advance(id bigint, force boolean) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $advance$
DECLARE
    tick bigint := least(id >> @time_shift@, @last_tick@);
    id_ms bigint := @epoch_ms@ + (id >> @time_shift@) * @unit_ms@;
    now_ms bigint := (date_part('epoch', clock_timestamp()) * 1000000)::bigint / 1000;
BEGIN
    PERFORM @extschema@._snowflake_require_writable('snowflake_advance()'::text);
    IF id < 0 OR id > @max_id@ THEN
        PERFORM @extschema@._snowflake_refuse_id(id, @max_id@);
    END IF;
    IF NOT force AND id_ms - now_ms > 86400000 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('id with time %s is too far ahead of the clock', @extschema@._snowflake_utc(id_ms)),
            DETAIL = format('The clock says %s; an advance may go up to 86400000 ms ahead of it.', @extschema@._snowflake_utc(now_ms)),
            HINT = format('Check that the value is an id of this layout, and check the server''s clock. To advance anyway, call '
                'snowflake_advance(id, true). This database then draws no ids until the clock has passed %s, and '
                'neither a rollback nor a restart undoes that.', @extschema@._snowflake_utc(id_ms));
    END IF;
    -- Waits for another installation before the lock is held, and holds it off until the end of the
    -- transaction.
    PERFORM FROM @extschema@.snowflake_word;
    IF @extschema@._snowflake_generation() <> @generation@ THEN
        PERFORM @extschema@.snowflake_advance(id, force);
        RETURN;
    END IF;
    BEGIN
        LOCK TABLE @extschema@._snowflake_lock IN SHARE UPDATE EXCLUSIVE MODE;
        IF (SELECT last_value + is_called::integer FROM @extschema@.snowflake_word) < (tick << @k@) + @sequence_mask@ + 1 THEN
            PERFORM setval('@extschema@.snowflake_word', (tick << @k@) + @sequence_mask@ + 1, false);
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'SFREL', MESSAGE = 'the lock is released';
    EXCEPTION
        WHEN SQLSTATE 'SFREL' THEN NULL;
    END;
END
$advance$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_advance(id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $advance$
BEGIN
    PERFORM @extschema@.snowflake_advance(id, false);
END
$advance$;

-- These affect every session that draws. _snowflake_forward draws, so it must not get round what
-- snowflake_next does before. They run with the caller's rights, so that a right to execute them,
-- which ALTER DEFAULT PRIVILEGES may give, is not enough.
REVOKE ALL ON FUNCTION @extschema@.snowflake_advance(bigint), @extschema@.snowflake_advance(bigint, boolean),
    @extschema@._snowflake_forward(bigint) FROM PUBLIC;
