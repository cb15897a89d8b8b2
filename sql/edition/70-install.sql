-- The installer: checks the numbers as the extension checks its settings, makes the sequence, and
-- makes the functions with all that as constants. No draw reads a table or a setting.
--
-- An argument that is left out stays as it is installed, or has its default: layout "snowflake",
-- max_borrow 100 (milliseconds), settled false. With another number, another layout or another
-- "settled", ids go on above, from a new sequence. That waits for the open transactions that have
-- drawn. A draw that waits meanwhile fails, because its sequence is gone. No draw gets an id by the
-- old numbers later (_snowflake_generation). Because all draws wait behind one that waits, it gives
-- up after a while.

CREATE OR REPLACE FUNCTION @extschema@.snowflake_install(worker_id integer DEFAULT NULL, datacenter_id integer DEFAULT NULL,
    layout text DEFAULT NULL, max_borrow integer DEFAULT NULL, settled boolean DEFAULT NULL, accept boolean DEFAULT false)
RETURNS void LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $install$
#variable_conflict use_variable
DECLARE
    old record;
    caller_timeout CONSTANT text := current_setting('lock_timeout');
    holders text;
    is_installed boolean;
    has_word boolean;
    named text;
    l @extschema@._snowflake_layout;
    old_l @extschema@._snowflake_layout;
    k integer;
    last_tick bigint;
    fixed bigint;
    -- The last tick of which nothing is drawn any more.
    closed bigint;
    old_end_ms bigint;
    word bigint;
    generation bigint;
    granted record;
    setting text;
    constants jsonb;
    template text;
    constant_name text;
    constant_value text;
    check_owners CONSTANT text := 'DO ' || quote_literal(
-- include 02-owners.sql
    );
BEGIN
    IF caller_timeout = '0' THEN
        PERFORM set_config('lock_timeout', '500ms', true);
    END IF;
    -- One at a time.
    PERFORM pg_advisory_xact_lock('@extschema@'::regnamespace::oid::integer, 0);
    -- Functions that draw run with their owner's rights, so the sequence must be the same role's.
    EXECUTE check_owners;
    -- Of another role, it was made after the check, and is not called.
    is_installed := EXISTS (SELECT FROM pg_proc WHERE oid = to_regprocedure('@extschema@._snowflake_installed()')
        AND pg_get_userbyid(proowner) = current_user);
    has_word := to_regclass('@extschema@.snowflake_word') IS NOT NULL;
    IF is_installed THEN
        EXECUTE 'SELECT * FROM @extschema@._snowflake_installed()' INTO STRICT old;
    ELSE
        SELECT NULL::integer AS worker_id, NULL::integer AS datacenter_id, NULL::text AS layout,
            NULL::integer AS max_borrow, NULL::boolean AS settled INTO old;
    END IF;
    layout := coalesce(layout, old.layout, 'snowflake');
    worker_id := coalesce(worker_id, old.worker_id);
    datacenter_id := coalesce(datacenter_id, old.datacenter_id);
    max_borrow := coalesce(max_borrow, old.max_borrow, 100);
    settled := coalesce(settled, old.settled, false);

    l := @extschema@._snowflake_layout_of(layout);
    named := @extschema@._snowflake_known_as(layout);
    IF max_borrow NOT BETWEEN 0 AND 3600000 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('%s ms is outside the valid range for parameter "max_borrow" (0 ms .. 3600000 ms)', max_borrow);
    END IF;
    IF l.datacenter_bits > 0 AND datacenter_id IS NULL OR l.worker_bits > 0 AND worker_id IS NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('parameter "%s" is not set',
                CASE WHEN l.worker_bits > 0 AND worker_id IS NULL THEN 'worker_id' ELSE 'datacenter_id' END),
            HINT = CASE WHEN l.worker_bits > 0 AND worker_id IS NULL
                THEN 'Pass a number that no other database of the fleet has, such as snowflake_install(worker_id => 5).'
                ELSE 'Pass the number of this server''s datacenter.' END;
    END IF;
    fixed := @extschema@._snowflake_place('datacenter'::text, datacenter_id::bigint, l.datacenter_bits, l.datacenter_shift)
        | @extschema@._snowflake_place('worker'::text, worker_id::bigint, l.worker_bits, l.worker_shift);
    worker_id := CASE WHEN l.worker_bits > 0 THEN worker_id END;
    datacenter_id := CASE WHEN l.datacenter_bits > 0 THEN datacenter_id END;

    -- As many bits for values that are not ids as there are, but at least so many that there are
    -- 524,288 of them. A wide sequence then ends the layout's time earlier. Sequences hold values
    -- that were made with this k, so it never changes.
    k := greatest(20, l.sequence_bits + 1, 63 - l.time_bits);
    last_tick := least(l.last_tick, (1::bigint << (63 - k)) - 1);

    IF has_word THEN
        IF NOT is_installed THEN
            RAISE EXCEPTION USING
                ERRCODE = 'object_not_in_prerequisite_state',
                MESSAGE = 'sequence "snowflake_word" exists, but not what it was installed with',
                HINT = 'If no id was drawn in this database, drop the sequence, and repeat the command.';
        END IF;
        IF NOT EXISTS (
            SELECT FROM pg_sequence AS s JOIN pg_class AS c ON c.oid = s.seqrelid
            WHERE s.seqrelid = '@extschema@.snowflake_word'::regclass AND c.relpersistence = 'p'
                AND s.seqtypid = 'bigint'::regtype AND s.seqincrement = 1 AND s.seqcache = 1 AND NOT s.seqcycle
        ) THEN
            RAISE EXCEPTION USING
                ERRCODE = 'object_not_in_prerequisite_state',
                MESSAGE = 'sequence "snowflake_word" was altered',
                HINT = 'Make it a logged sequence AS bigint INCREMENT 1 CACHE 1 NO CYCLE again.';
        END IF;
        IF named <> old.layout AND NOT accept THEN
            RAISE EXCEPTION USING
                ERRCODE = 'object_not_in_prerequisite_state',
                MESSAGE = format('layout "%s" is not the one that this database''s ids were drawn with', named),
                DETAIL = format('They were drawn with layout "%s".', old.layout),
                HINT = 'Install with that layout, or pass the layout as an argument to read ids. To change the layout '
                    'for good, add accept => true.';
        END IF;
    END IF;

    IF NOT has_word OR ROW(worker_id, datacenter_id, named, settled)
            IS DISTINCT FROM ROW(old.worker_id, old.datacenter_id, old.layout, old.settled) THEN
        closed := ((date_part('epoch', clock_timestamp()) * 1000000)::bigint / 1000 - l.epoch_ms) / l.unit_ms;
        IF has_word THEN
            -- Takes the strongest lock in one step.
            ALTER SEQUENCE @extschema@.snowflake_word RENAME TO _snowflake_word_before;
            SELECT last_value + is_called::integer INTO STRICT word FROM @extschema@._snowflake_word_before;
            old_l := @extschema@._snowflake_layout_of(old.layout);
            old_end_ms := old_l.epoch_ms
                + ((word >> greatest(20, old_l.sequence_bits + 1, 63 - old_l.time_bits)) + 1) * old_l.unit_ms;
            -- Rounded up, to a tick of the new layout.
            closed := greatest(closed, (old_end_ms - l.epoch_ms + l.unit_ms - 1) / l.unit_ms - 1);
        END IF;
        -- What was drawn in this tick before, if another installation was here, is not drawn again.
        closed := least(greatest(closed, 0), last_tick);
        EXECUTE format('CREATE SEQUENCE @extschema@.snowflake_word AS bigint MINVALUE 0 START %s CACHE 1 NO CYCLE',
            (closed << k) + (1::bigint << l.sequence_bits));
        IF has_word THEN
            DROP SEQUENCE @extschema@._snowflake_word_before;
        END IF;
    END IF;
    generation := (SELECT seqstart FROM pg_sequence WHERE seqrelid = '@extschema@.snowflake_word'::regclass);
    -- Fails if another role has made one since the check.
    IF NOT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass('@extschema@._snowflake_lock')
            AND pg_get_userbyid(relowner) = current_user) THEN
        CREATE VIEW @extschema@._snowflake_lock AS SELECT 1 AS one;
    END IF;

    -- Each sequence in a database has its own.
    setting := 'snowflake_sql.held_' || to_hex(hashtext('@extschema@')) || '_' || to_hex(generation);
    constants := jsonb_build_object(
        'k', k,
        'sequence_bits', l.sequence_bits,
        'sequence_mask', (1::bigint << l.sequence_bits) - 1,
        'sequence_shift', l.sequence_shift,
        'word_mask', (1::bigint << k) - 1,
        'middle', (1::bigint << k) - (1::bigint << l.sequence_bits),
        -- The first sequence of a tick is below a 64th of them.
        'first_mask', (1::bigint << greatest(l.sequence_bits - 6, 0)) - 1,
        'time_shift', l.time_shift,
        'fixed', fixed,
        'max_id', format('%L::bigint', l.max_id),
        'last_tick', last_tick,
        'last_ms', format('%L::bigint', l.epoch_ms + last_tick * l.unit_ms),
        'epoch_ms', format('%L::bigint', l.epoch_ms),
        'epoch_us', format('%L::bigint', l.epoch_ms * 1000),
        'generation', generation,
        'unit_ms', l.unit_ms,
        'unit_us', l.unit_ms * 1000,
        'max_borrow', max_borrow,
        'borrow_ticks', max_borrow / l.unit_ms,
        'worker_id', coalesce(worker_id::text, 'NULL'),
        'datacenter_id', coalesce(datacenter_id::text, 'NULL'),
        'layout', format('%L::pg_catalog.text', named),
        'settled', settled,
        'setting', setting,
        'hold', CASE WHEN settled THEN 'IF (pg_catalog.current_setting(''' || setting || ''', true) OPERATOR(pg_catalog.=) ''held'') IS NOT TRUE THEN PERFORM @extschema@._snowflake_hold(now_us); END IF;'
            || E'\n    ' ELSE '' END
    );
    FOREACH template IN ARRAY ARRAY[
-- include 50-draw.sql
-- include 55-settled.sql
-- include 56-public.sql
-- include 60-current.sql
    ] LOOP
        FOR constant_name, constant_value IN SELECT c.key, c.value FROM jsonb_each_text(constants) AS c LOOP
            template := replace(template, '@' || constant_name || '@', constant_value);
        END LOOP;
        EXECUTE template;
    END LOOP;

    -- Others may have made objects meanwhile.
    EXECUTE check_owners;

    -- What ALTER DEFAULT PRIVILEGES has granted, here or when a dump was restored. Whoever can
    -- change the sequence can repeat ids, and whoever reads the keys can read and forge public ids.
    FOR granted IN
        SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || c.oid::regclass AS object, a.grantee
        FROM pg_class AS c, aclexplode(c.relacl) AS a
        WHERE a.grantee <> c.relowner
            AND c.oid IN ('@extschema@.snowflake_word'::regclass, '@extschema@._snowflake_lock'::regclass,
                to_regclass('@extschema@.snowflake_public_keys'))
        GROUP BY c.oid, c.relkind, a.grantee
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s', granted.object,
            CASE granted.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(granted.grantee)) END);
    END LOOP;
    PERFORM set_config('lock_timeout', caller_timeout, true);
EXCEPTION
    WHEN lock_not_available THEN
        SELECT string_agg(DISTINCT coalesce(held.pid::text, 'a prepared transaction'), ', ') INTO holders
        FROM pg_locks AS held
        WHERE held.granted AND held.pid IS DISTINCT FROM pg_backend_pid()
            AND held.database = (SELECT here.oid FROM pg_database AS here WHERE here.datname = current_database())
            AND (held.relation IN (SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = '@extschema@'::regnamespace
                    AND c.relname IN ('snowflake_word', 'snowflake_stat', 'snowflake_layouts', '_snowflake_lock'))
                OR held.locktype = 'advisory' AND held.classid = '@extschema@'::regnamespace AND held.objid = 0);
        PERFORM @extschema@._snowflake_raise('55P03'::text, 'could not lock what is installed within '
                || CASE caller_timeout WHEN '0' THEN '500 ms' ELSE '"lock_timeout"' END,
            'These processes hold locks on it: ' || holders || '.',
            'End their transactions, or repeat the command later, or with a longer "lock_timeout". '
                'Draws wait as long as the call does.'::text);
END
$install$;

REVOKE ALL ON FUNCTION @extschema@.snowflake_install(integer, integer, text, integer, boolean, boolean) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.snowflake_install(integer, integer, text, integer, boolean, boolean) IS
    'install what draws ids, or change its number, its layout or the rest';
COMMENT ON FUNCTION @extschema@.snowflake_timestamp(bigint, text) IS 'the time of an id of the given layout';
COMMENT ON FUNCTION @extschema@.snowflake_parse(bigint, text) IS
    'read an id of the given layout back: its time, datacenter, worker, sequence and tick';
COMMENT ON FUNCTION @extschema@.snowflake_format(bigint, text) IS
    'an id of the given layout for people: UTC time, sequence, datacenter and worker';
COMMENT ON FUNCTION @extschema@.snowflake_compose(timestamptz, integer, integer, integer, text) IS
    'compose an id of the given layout from time, worker, sequence and datacenter';
COMMENT ON FUNCTION @extschema@.snowflake_min(timestamptz, text) IS
    'the smallest id of the given layout whose time is that time or later';
COMMENT ON FUNCTION @extschema@.snowflake_from(timestamptz, text) IS
    'the first id of the given layout whose time is that time or later, NULL if there is none';
COMMENT ON FUNCTION @extschema@.snowflake_after(timestamptz, text) IS
    'the first id of the given layout whose time is after that time, NULL if there is none';
COMMENT ON FUNCTION @extschema@.snowflake_before(timestamptz, text) IS
    'the last id of the given layout whose time is before that time, -1 if there is none';
COMMENT ON FUNCTION @extschema@.snowflake_until(timestamptz, text) IS
    'the last id of the given layout whose time is that time or before, -1 if there is none';
COMMENT ON FUNCTION @extschema@.snowflake_encode(bigint, text) IS
    'an id as a short text, in base32 or base62, which sorts as the id does under COLLATE "C"';
COMMENT ON FUNCTION @extschema@.snowflake_decode(text, text) IS 'the id that a text in base32 or base62 stands for';
