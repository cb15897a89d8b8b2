-- From 0.3.0 to 0.4.0: public ids, and the widening of integer keys.

-- Public ids: ids as tokens for readers outside, and back

CREATE FUNCTION snowflake_conceal(id bigint, prefix text) RETURNS text
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_conceal_wrapper';

CREATE FUNCTION snowflake_reveal(token text, prefix text, required boolean DEFAULT false) RETURNS bigint
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_reveal_wrapper';

CREATE FUNCTION snowflake_reveal(tokens text[], prefix text, required boolean DEFAULT false) RETURNS bigint[]
STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_reveal_all_wrapper';

CREATE FUNCTION snowflake_plan.random_public_key() RETURNS bytea
VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_random_public_key_wrapper';

CREATE FUNCTION snowflake_plan.public_key_fingerprint(key bytea) RETURNS text
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_public_key_fingerprint_wrapper';

CREATE FUNCTION snowflake_plan.first_id_of_new_key() RETURNS bigint
VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_first_id_of_new_key_wrapper';

CREATE FUNCTION snowflake_plan.begins_too_soon(first_id bigint) RETURNS boolean
VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_begins_too_soon_wrapper';

CREATE FUNCTION snowflake_plan.public_key_made(first_id bigint, in_time boolean) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_public_key_made_wrapper';

CREATE FUNCTION snowflake_plan.public_keys_table() RETURNS regclass
VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_public_keys_table_wrapper';

-- Keys of public ids
--
-- The first key makes the table, so a database without public ids has none that could be published,
-- or that a role may not dump. It is no member of the extension: pg_dump carries it like any other
-- table, also without privileges, and only its owner reads it then. The library reads it itself
-- (src/postgres/public_keys.rs), so no role needs a right to it.

-- A subscriber may have the key already, and so may a database into which a dump is restored. The
-- trigger refuses another key, because the log of a subscription whose row violates a unique
-- constraint shows the row (PostgreSQL 18).
CREATE FUNCTION snowflake_plan.skip_known_public_key() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_known boolean;
BEGIN
    EXECUTE format('SELECT bool_and(k.first_id = $1 AND k.key = $2) FROM %s k WHERE k.first_id = $1 OR k.key = $2', TG_RELID::regclass)
        INTO is_known USING NEW.first_id, NEW.key;
    IF NOT is_known THEN
        RAISE EXCEPTION USING ERRCODE = 'unique_violation',
            MESSAGE = format('there is another key for public ids from first_id %s on, or this key with another first_id', NEW.first_id),
            HINT = 'Compare "fingerprint" and "first_id" in the tables "snowflake_public_keys" of both databases.';
    END IF;
    RETURN CASE WHEN is_known THEN NULL ELSE NEW END;
END
$$;

CREATE FUNCTION snowflake_new_public_key(key bytea DEFAULT NULL, first_id bigint DEFAULT NULL,
    for_all boolean DEFAULT false, force boolean DEFAULT false) RETURNS text
VOLATILE PARALLEL UNSAFE SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
-- A statement that is refused holds the key, and would be logged.
SET log_min_error_statement = panic AS $$
DECLARE
    least CONSTANT bigint := -9223372036854775808;
    is_for_all CONSTANT boolean := coalesce(for_all, false);
    new_key CONSTANT bytea := coalesce(key, snowflake_plan.random_public_key());
    name CONSTANT text := snowflake_plan.public_key_fingerprint(new_key);
    new_first_id bigint := first_id;
    keys regclass := snowflake_plan.public_keys_table();
    grantee text;
    has_keys boolean;
    is_known boolean;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        -- The snapshot could be older than the last key.
        RAISE EXCEPTION USING ERRCODE = 'active_sql_transaction',
            MESSAGE = format('cannot make a key for public ids in a transaction of isolation level "%s"',
                current_setting('transaction_isolation')),
            HINT = 'Call snowflake_new_public_key() in a transaction of isolation level "read committed".';
    ELSIF is_for_all AND first_id IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('first_id %s cannot be given for a key for all ids', first_id),
            HINT = 'Leave out either the argument "first_id" or the argument "for_all".';
    END IF;

    IF keys IS NULL THEN
        CREATE TABLE @extschema@.snowflake_public_keys (
            fingerprint text PRIMARY KEY,
            first_id bigint NOT NULL UNIQUE,
            created_at timestamptz NOT NULL DEFAULT now(),
            -- Last, because an error of COPY shows the first 100 characters of a line.
            key bytea NOT NULL CHECK (octet_length(key) BETWEEN 16 AND 64)
        );
        keys := snowflake_plan.public_keys_table();
        -- Statistics hold values, and a dump may have them without the table's rows.
        EXECUTE format('ALTER TABLE %s ALTER COLUMN key SET STATISTICS 0', keys);
        -- Default privileges may have given it to others.
        FOR grantee IN
            SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END
            FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = keys AND a.grantee <> c.relowner
        LOOP
            EXECUTE format('REVOKE ALL ON TABLE %s FROM %s CASCADE', keys, grantee);
        END LOOP;
        -- So the owner of the database can dump it.
        EXECUTE format('GRANT SELECT ON TABLE %s TO pg_database_owner', keys);
        EXECUTE format('COMMENT ON TABLE %s IS %L', keys, 'secret: the keys of public ids, and the first id that each conceals');
    END IF;
    -- DROP EXTENSION ... CASCADE leaves the table without it.
    IF NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = keys AND t.tgname = 'skip_known_public_key') THEN
        EXECUTE format('CREATE TRIGGER skip_known_public_key BEFORE INSERT ON %s '
                       'FOR EACH ROW EXECUTE FUNCTION snowflake_plan.skip_known_public_key()', keys);
        -- In a subscription, too.
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER skip_known_public_key', keys);
    END IF;
    EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', keys);

    EXECUTE format('SELECT count(*) > 0, coalesce(bool_or(k.key = $1 AND (k.first_id = $2 OR $2 IS NULL)), false) FROM %s k', keys)
        INTO has_keys, is_known USING new_key, first_id;
    IF is_for_all THEN
        EXECUTE format('DELETE FROM %s', keys);
        new_first_id := least;
    ELSIF is_known THEN
        RETURN name;
    ELSIF first_id IS NULL THEN
        new_first_id := CASE WHEN has_keys THEN snowflake_plan.first_id_of_new_key() ELSE least END;
    ELSIF has_keys AND NOT coalesce(force, false) AND snowflake_plan.begins_too_soon(first_id) THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('ids from first_id %s on may have been concealed already', first_id),
            DETAIL = 'Their tokens would change, and those given out would stand for no id. A key must begin more than 5 seconds after now.',
            HINT = 'Give a later "first_id". To add a key that other databases have, pass force => true.';
    END IF;
    EXECUTE format('INSERT INTO %s (fingerprint, first_id, key) VALUES ($1, $2, $3)', keys) USING name, new_first_id, new_key;
    PERFORM snowflake_plan.public_key_made(new_first_id, has_keys AND NOT is_for_all AND NOT coalesce(force, false));
    RETURN name;
END
$$;

CREATE FUNCTION snowflake_public_keys() RETURNS SETOF text
VOLATILE PARALLEL UNSAFE SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    keys CONSTANT regclass := snowflake_plan.public_keys_table();
BEGIN
    IF keys IS NOT NULL THEN
        RETURN QUERY EXECUTE format(
            'SELECT format(''SELECT %%s(key => decode(%%L, ''''hex''''), first_id => %%s%%s);'', %L, encode(k.key, ''hex''), k.first_id, '
            'CASE WHEN snowflake_plan.begins_too_soon(k.first_id) THEN '', force => true'' END) FROM %s k ORDER BY k.first_id',
            '@extschema@.snowflake_new_public_key', keys);
    END IF;
END
$$;

-- PostgREST shows a column of such a domain as tokens, and reads tokens for it. It looks for the
-- casts, which PostgreSQL itself ignores, and calls their functions. A function with the domain's
-- name would cast a text of unknown type to bigint.
CREATE FUNCTION snowflake_public_domain(domain text, prefix text) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql AS $$
DECLARE
    parts CONSTANT pg_catalog.text[] := pg_catalog.parse_ident(domain);
    name CONSTANT pg_catalog.text := parts[pg_catalog.cardinality(parts)];
    schema CONSTANT pg_catalog.text :=
        coalesce(parts[pg_catalog.cardinality(parts) OPERATOR(pg_catalog.-) 1], pg_catalog.current_schema());
    of_domain CONSTANT pg_catalog.text := pg_catalog.format('%I.%I', schema, name);
    reader CONSTANT pg_catalog.text := pg_catalog.format('%I.%I', schema, pg_catalog.concat('read_', name));
    level CONSTANT pg_catalog.text := pg_catalog.current_setting('client_min_messages');
BEGIN
    -- Refuses what is not a prefix.
    PERFORM @extschema@.snowflake_reveal(''::pg_catalog.text, prefix, false);
    EXECUTE pg_catalog.format('CREATE DOMAIN %s AS pg_catalog.int8', of_domain);
    -- With the types of what it calls, because another role may add a function for the domain.
    EXECUTE pg_catalog.format('CREATE FUNCTION %I.json(id %s) RETURNS pg_catalog.json STABLE STRICT PARALLEL SAFE LANGUAGE sql AS '
        '%L', schema, of_domain, pg_catalog.format('SELECT pg_catalog.to_json(@extschema@.snowflake_conceal($1::pg_catalog.int8, %L::pg_catalog.text))', prefix));
    EXECUTE pg_catalog.format('CREATE FUNCTION %s(token pg_catalog.json) RETURNS %s STABLE STRICT PARALLEL SAFE LANGUAGE sql AS '
        '%L', reader, of_domain, pg_catalog.format('SELECT @extschema@.snowflake_reveal($1 OPERATOR(pg_catalog.#>>) ''{}''::pg_catalog.text[], %L::pg_catalog.text, true)', prefix));
    EXECUTE pg_catalog.format('CREATE FUNCTION %s(token pg_catalog.text) RETURNS %s STABLE STRICT PARALLEL SAFE LANGUAGE sql AS '
        '%L', reader, of_domain, pg_catalog.format('SELECT @extschema@.snowflake_reveal($1, %L::pg_catalog.text, false)', prefix));
    -- Without three warnings that PostgreSQL ignores the casts.
    PERFORM pg_catalog.set_config('client_min_messages', 'error', true);
    EXECUTE pg_catalog.format('CREATE CAST (%s AS pg_catalog.json) WITH FUNCTION %I.json(%1$s) AS IMPLICIT', of_domain, schema);
    EXECUTE pg_catalog.format('CREATE CAST (pg_catalog.json AS %s) WITH FUNCTION %s(pg_catalog.json) AS IMPLICIT', of_domain, reader);
    EXECUTE pg_catalog.format('CREATE CAST (pg_catalog.text AS %s) WITH FUNCTION %s(pg_catalog.text) AS IMPLICIT', of_domain, reader);
    PERFORM pg_catalog.set_config('client_min_messages', level, true);
END
$$;

-- A new key decides which ids tokens stand for, and a key conceals and reveals all of them.
REVOKE ALL ON FUNCTION snowflake_new_public_key(bytea, bigint, boolean, boolean), snowflake_public_keys() FROM PUBLIC;

COMMENT ON FUNCTION snowflake_conceal(bigint, text) IS
    'an id as a token for readers outside, which tells nothing of it';
COMMENT ON FUNCTION snowflake_reveal(text, text, boolean) IS
    'the id of a token; for another text NULL, or an error if it is required';
COMMENT ON FUNCTION snowflake_reveal(text[], text, boolean) IS
    'the ids of tokens; for other texts NULL, or an error if they are required';
COMMENT ON FUNCTION snowflake_new_public_key(bytea, bigint, boolean, boolean) IS
    'make a key of public ids, and return its fingerprint';
COMMENT ON FUNCTION snowflake_public_keys() IS
    'secret: statements that make the keys of public ids again';
COMMENT ON FUNCTION snowflake_public_domain(text, text) IS
    'make a domain of bigint with the casts by which PostgREST shows and reads tokens';
COMMENT ON FUNCTION snowflake_plan.random_public_key() IS
    '32 random bytes';
COMMENT ON FUNCTION snowflake_plan.public_key_fingerprint(bytea) IS
    'the fingerprint of a key of public ids';
COMMENT ON FUNCTION snowflake_plan.first_id_of_new_key() IS
    'the first id that a new key of public ids may conceal';
COMMENT ON FUNCTION snowflake_plan.begins_too_soon(bigint) IS
    'whether a key of public ids from this id on begins before all sessions are sure to see it';
COMMENT ON FUNCTION snowflake_plan.public_key_made(bigint, boolean) IS
    'lets the session see a key of public ids that it has made';
COMMENT ON FUNCTION snowflake_plan.public_keys_table() IS
    'the table of keys of public ids, NULL before the first one';
COMMENT ON FUNCTION snowflake_plan.skip_known_public_key() IS
    'skips a key of public ids that is there already';
COMMENT ON SCHEMA snowflake_plan IS
    'functions that plans show for conditions on an id''s time, and that views and other functions call: not for statements of users';
CREATE FUNCTION snowflake_widen(relation regclass, attribute name, convert boolean DEFAULT false)
    RETURNS TABLE (phase text, step text, statement text, locks text)
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_widen_wrapper';

CREATE FUNCTION snowflake_widen_back(relation regclass, attribute name)
    RETURNS TABLE (phase text, step text, statement text, locks text)
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_widen_back_wrapper';

CREATE FUNCTION snowflake_plan.widen_expect(relation regclass, attribute name, fingerprint text) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_widen_expect_wrapper';

CREATE FUNCTION snowflake_plan.lock_for_widen(relations regclass[], exclusive boolean) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_lock_for_widen_wrapper';

CREATE FUNCTION snowflake_plan.widen_note(relation regclass, note text) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_widen_note_wrapper';

-- Widening a column while sessions use it (src/widen/mod.rs). The procedures commit, so they cannot
-- have a search_path of their own, and their statements qualify each name.

-- The trigger that keeps a wide column equal to the narrow one (src/widen/trigger.rs). Its
-- condition names both.
CREATE FUNCTION snowflake_plan.widen_keep() RETURNS trigger LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_widen_keep';

-- Whether a table has an object of a step, or its column is bigint by now.
CREATE FUNCTION snowflake_plan.widen_has(relation text, kind text, object text) RETURNS boolean
STABLE STRICT PARALLEL SAFE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE kind
        WHEN 'trigger' THEN EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(relation) AND tgname = object AND tgenabled = 'A')
        WHEN 'constraint' THEN EXISTS (SELECT FROM pg_constraint WHERE conrelid = to_regclass(relation) AND conname = object)
        WHEN 'column' THEN EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass(relation) AND attname = object AND NOT attisdropped)
        WHEN 'bigint' THEN EXISTS (SELECT FROM pg_attribute
                                   WHERE attrelid = to_regclass(relation) AND attname = object AND atttypid = 'bigint'::regtype AND NOT attisdropped)
        WHEN 'invalid' THEN EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass(relation) AND NOT indisvalid)
    END
$$;

-- Makes the trigger, as the caller, who owns the table, in place of one of another name.
CREATE FUNCTION snowflake_plan.widen_begin(relation regclass, narrow name, wide name, trigger name) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    former name;
BEGIN
    FOR former IN
        SELECT tgname FROM pg_trigger JOIN pg_attribute ON attrelid = tgrelid AND attname = wide
        WHERE tgrelid = relation AND tgfoid = 'snowflake_plan.widen_keep()'::regprocedure AND tgname <> trigger
              AND tgqual::text ~ format(':varattno %s ', attnum)
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', former, relation);
    END LOOP;
    EXECUTE format('CREATE OR REPLACE TRIGGER %I BEFORE INSERT OR UPDATE ON %s FOR EACH ROW WHEN (NEW.%I IS DISTINCT FROM NEW.%I) '
                   'EXECUTE FUNCTION snowflake_plan.widen_keep()', trigger, relation, wide, narrow);
    -- What a subscription writes has to be copied as well.
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', relation, trigger);
END $$;

-- Makes the actions of a new foreign key run after those of the one whose place it will take, which
-- change the narrow columns. PostgreSQL runs them in the order of their triggers' names. The new
-- ones would change the rest of a composite key first, and the others then find no row.
CREATE FUNCTION snowflake_plan.widen_follow(relation regclass, name name, former oid) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT format('ALTER TRIGGER %I ON %s RENAME TO %I', tgname, tgrelid::regclass, concat('RI_ConstraintTrigger_az', last.z, '_', t.oid))
        FROM pg_trigger t JOIN pg_constraint k ON k.oid = tgconstraint,
             (SELECT max(substring(tgname FROM '^RI_ConstraintTrigger_a(z*)_')) FROM pg_trigger WHERE tgconstraint = former) AS last (z)
        WHERE k.conrelid = relation AND k.conname = name AND starts_with(tgname::text, 'RI_ConstraintTrigger_a_')
    LOOP
        EXECUTE statement;
    END LOOP;
END $$;

-- Makes a foreign key of a partitioned table, as the caller, of that of a partition. PostgreSQL
-- joins those of the partitions to it, which are checked.
CREATE FUNCTION snowflake_plan.widen_join(relation regclass, name name, part regclass, part_name name) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    definition text := (SELECT regexp_replace(pg_get_constraintdef(oid), ' NOT VALID$', '') FROM pg_constraint WHERE conrelid = part AND conname = part_name);
    unchecked text := (SELECT min(format('"%s" of table %s', conname, conrelid::regclass)) FROM pg_partition_tree(relation) JOIN pg_constraint ON conrelid = relid
                       WHERE contype = 'f' AND conparentid = 0 AND pg_get_constraintdef(oid) = definition || ' NOT VALID');
BEGIN
    IF unchecked IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'object_in_use', MESSAGE = format('foreign key %s is not checked yet', unchecked),
            HINT = 'Run the statements of the phase "check" in their order.';
    END IF;
    EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I %s', relation, name, definition);
END $$;

-- Refuses the way back after the switch, and the clean up, while a foreign key is not checked.
CREATE FUNCTION snowflake_plan.widen_checked(relation regclass) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unchecked text := (
        SELECT min(format('"%s" of table %s', o ->> 1, o ->> 0))
        FROM pg_trigger JOIN pg_attribute w ON w.attrelid = tgrelid AND w.attnum::text = substring(tgqual::text FROM ':varattno ([0-9]+) '),
             jsonb_array_elements(col_description(tgrelid, w.attnum)::jsonb) AS o
        WHERE tgrelid = relation AND tgfoid = 'snowflake_plan.widen_keep()'::regprocedure AND w.atttypid <> 'bigint'::regtype
              AND CASE WHEN o ->> 2 IS NULL
                       THEN EXISTS (SELECT FROM pg_constraint WHERE conrelid = to_regclass(o ->> 0) AND conname = o ->> 1 AND NOT convalidated)
                       ELSE snowflake_plan.widen_has(o ->> 2, 'constraint', o ->> 3) AND NOT snowflake_plan.widen_has(o ->> 0, 'constraint', o ->> 1) END);
BEGIN
    IF unchecked IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'object_in_use', MESSAGE = format('foreign key %s is not checked yet', unchecked),
            HINT = 'Run the statements of the phase "check" first.';
    END IF;
END $$;

-- Refuses the way back after the switch while a value does not fit: the former column is NULL
-- there.
CREATE FUNCTION snowflake_plan.widen_fits(relation regclass) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
    former name;
    present name;
    misfit bigint;
BEGIN
    PERFORM snowflake_plan.widen_checked(relation);
    FOR former, present IN
        SELECT w.attname, n.attname
        FROM pg_trigger
             JOIN pg_attribute w ON w.attrelid = tgrelid AND w.attnum::text = substring(tgqual::text FROM ':varattno ([0-9]+) ')
             JOIN pg_attribute n ON n.attrelid = tgrelid AND n.attnum::text = substring(tgqual::text FROM '.*:varattno ([0-9]+) ')
        WHERE tgrelid = relation AND tgfoid = 'snowflake_plan.widen_keep()'::regprocedure AND w.atttypid <> 'bigint'::regtype
    LOOP
        EXECUTE format('SELECT %I FROM %s WHERE %I IS DISTINCT FROM %1$I LIMIT 1', present, relation, former) INTO misfit;
        IF misfit IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'numeric_value_out_of_range',
                MESSAGE = format('value %s of column "%s" of table %s does not fit into the former column', misfit, present, relation),
                HINT = 'Give its row, and all like it, a value that fits, or keep the new column.';
        END IF;
    END LOOP;
END $$;

-- Whether a trigger would fire for the fill's UPDATE, of the wide columns only, in a session of
-- that replication role.
CREATE FUNCTION snowflake_plan.widen_fires(trigger oid, role text) RETURNS boolean
STABLE STRICT PARALLEL SAFE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT tgisinternal AND tgtype & 16 <> 0 AND cardinality(tgattr::int2[]) = 0 AND tgfoid <> 'snowflake_plan.widen_keep()'::regprocedure
           AND tgenabled = ANY (CASE role WHEN 'replica' THEN '{A,R}' ELSE '{A,O}' END::"char"[])
    FROM pg_trigger WHERE oid = trigger
$$;

-- Where the fill of each table stands. It lies in the comment of the trigger that keeps the columns
-- equal: a table would be in each publication of all tables. It goes with the trigger.
CREATE VIEW snowflake_plan.widen_progress AS
    SELECT tgrelid AS relation, note[3]::bigint AS filenode, note[2]::bigint AS blocks, note[1]::bigint AS next_block,
        note[5]::bigint AS rows, to_timestamp(note[6]::bigint / 1000.0) AS started, to_timestamp(note[7]::bigint / 1000.0) AS updated,
        note[4]::bigint AS blocks_before
    FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_description d ON d.classoid = 'pg_trigger'::regclass AND d.objoid = t.oid,
        LATERAL regexp_match(d.description, '^(\d{1,10}) of (\d{1,10}) blocks of file (\d{1,10}), since block (\d{1,10}); (\d{1,18}) rows from (\d{1,14}) to (\d{1,14}) ms$') AS note
    WHERE tgfoid = 'snowflake_plan.widen_keep()'::regprocedure AND note IS NOT NULL;

CREATE VIEW snowflake_widen_progress AS
    SELECT p.relation::regclass AS relation, p.blocks, p.next_block AS blocks_done, p.rows, p.started, p.updated,
        round((p.rows / greatest(extract(epoch FROM p.updated - p.started), 0.001))::numeric, 1) AS rows_per_second,
        CASE WHEN p.next_block >= p.blocks THEN interval '0'
             WHEN p.next_block > p.blocks_before
             THEN date_trunc('second', (p.updated - p.started) * ((p.blocks - p.next_block)::float8 / (p.next_block - p.blocks_before))) END AS time_left
    FROM snowflake_plan.widen_progress p JOIN pg_catalog.pg_class c ON c.oid = p.relation
    WHERE pg_catalog.pg_has_role(c.relowner, 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE');
GRANT SELECT ON snowflake_widen_progress, snowflake_plan.widen_progress TO PUBLIC;

-- Notes where a fill stands.
CREATE FUNCTION snowflake_plan.widen_stands(relation regclass, next_block bigint, blocks bigint, since bigint, rows bigint, started timestamptz) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT snowflake_plan.widen_note(relation, format('%s of %s blocks of file %s, since block %s; %s rows from %s to %s ms', next_block, blocks,
        pg_relation_filenode(relation), since, rows, floor(extract(epoch FROM started) * 1000), floor(extract(epoch FROM clock_timestamp()) * 1000)))
$$;

-- Notes a batch up to a block.
CREATE FUNCTION snowflake_plan.widen_filled(relation regclass, upto bigint, filled bigint) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT snowflake_plan.widen_stands($1, upto, p.blocks, p.blocks_before, p.rows + filled, p.started)
    FROM snowflake_plan.widen_progress p WHERE p.relation = $1
$$;

-- Takes up the fill where it stopped. A table that has been written anew begins again, and so does
-- one whose fill has ended: a call then finds what is left, if anything is.
CREATE FUNCTION snowflake_plan.widen_take_up(relation regclass) RETURNS void
VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    size CONSTANT bigint := pg_relation_size(relation) / current_setting('block_size')::bigint;
    begins bigint;
BEGIN
    IF NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = relation), 'USAGE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format('must be owner of table %s', relation);
    END IF;
    SELECT p.next_block INTO begins FROM snowflake_plan.widen_progress p
    WHERE p.relation = widen_take_up.relation AND p.filenode = pg_relation_filenode(p.relation) AND p.next_block < p.blocks;
    PERFORM snowflake_plan.widen_stands(relation, coalesce(begins, 0), size, coalesce(begins, 0), 0, clock_timestamp());
END $$;

-- The next batch of the fill: its first block, the block after it, and the UPDATE; NULL if no block
-- is left, or no column is to be filled.
CREATE FUNCTION snowflake_plan.widen_turn(relation regclass, batch integer, OUT upto bigint, OUT statement text)
STABLE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    begins bigint;
    foreigners text;
    changes text;
    differs text;
BEGIN
    SELECT string_agg(pg_describe_object(classid, oid, 0), E'\n' ORDER BY classid, oid) INTO foreigners
    FROM (SELECT 'pg_trigger'::regclass AS classid, oid FROM pg_trigger
          WHERE tgrelid = relation AND snowflake_plan.widen_fires(oid, current_setting('session_replication_role'))
        UNION ALL
          SELECT 'pg_rewrite'::regclass, oid FROM pg_rewrite
          WHERE ev_class = relation AND ev_type = '2'
                AND ev_enabled = ANY (CASE current_setting('session_replication_role') WHEN 'replica' THEN '{A,R}' ELSE '{A,O}' END::"char"[])) AS fired;
    IF foreigners IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'triggered_action_exception',
            MESSAGE = format('UPDATE of table %s would fire what is not part of snowflake_widen()', relation), DETAIL = foreigners,
            HINT = 'Set session_replication_role to replica in this session, as a superuser can, or disable these meanwhile.';
    END IF;
    SELECT string_agg(format('%I = %I', w.attname, n.attname), ', ' ORDER BY w.attnum),
           string_agg(format('%1$I IS NULL AND %2$I IS NOT NULL OR %1$I IS NOT NULL AND %2$I IS NULL OR %1$I OPERATOR(pg_catalog.<>) %2$I', w.attname, n.attname),
                      ' OR ' ORDER BY w.attnum)
    INTO changes, differs
    FROM pg_trigger
         JOIN pg_attribute w ON w.attrelid = tgrelid AND w.attnum::text = substring(tgqual::text FROM ':varattno ([0-9]+) ')
         JOIN pg_attribute n ON n.attrelid = tgrelid AND n.attnum::text = substring(tgqual::text FROM '.*:varattno ([0-9]+) ')
    WHERE tgrelid = relation AND tgfoid = 'snowflake_plan.widen_keep()'::regprocedure AND w.atttypid = 'bigint'::regtype;
    SELECT p.blocks_done, least(p.blocks_done + batch, p.blocks) INTO begins, upto FROM @extschema@.snowflake_widen_progress p
    WHERE p.relation = widen_turn.relation AND p.blocks_done < p.blocks;
    IF begins IS NULL OR changes IS NULL THEN
        upto := NULL;
        RETURN;
    END IF;
    statement := format('UPDATE ONLY %s SET %s WHERE ctid OPERATOR(pg_catalog.>=) %L AND ctid OPERATOR(pg_catalog.<) %L AND (%s)',
                        (SELECT format('%I.%I', nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = relation),
                        changes, format('(%s,0)', begins), format('(%s,0)', upto), differs);
END $$;

-- Refuses the switch if an index of a table has not been built, or a constraint not been validated.
CREATE FUNCTION snowflake_plan.widen_require(relation regclass, indexes text[], constraints text[]) RETURNS void
STABLE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    missing text;
BEGIN
    SELECT string_agg(name, E'\n' ORDER BY name) INTO missing
    FROM (SELECT format('index %I', n) FROM unnest(indexes) AS n
          WHERE NOT EXISTS (SELECT FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = relation AND relname = n AND indisvalid)
        UNION ALL
          -- A session's search_path can put a function or an operator of another role in the place
          -- of PostgreSQL's. The number of the former index is in the name of the new one.
          SELECT format('index %I calls %s, unlike index %s: drop it, and build it with another search_path', n,
                        pg_describe_object(d.refclassid, d.refobjid, 0), split_part(n, '_', 3)::oid::regclass)
          FROM unnest(indexes) AS n JOIN pg_class x ON relname = n JOIN pg_index ON indexrelid = x.oid AND indrelid = relation
               JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = x.oid AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
          WHERE NOT EXISTS (SELECT FROM pg_depend o WHERE o.classid = d.classid AND o.objid = split_part(n, '_', 3)::oid AND o.refclassid = d.refclassid
                            AND split_part((pg_identify_object(o.refclassid, o.refobjid, 0)).identity, '(', 1)
                                = split_part((pg_identify_object(d.refclassid, d.refobjid, 0)).identity, '(', 1))
        UNION ALL
          SELECT format('constraint %I', n) FROM unnest(constraints) AS n
          WHERE NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = relation AND conname = n AND convalidated)) AS m (name);
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'object_in_use', MESSAGE = format('table %s is not ready for the switch of snowflake_widen()', relation),
            DETAIL = missing, HINT = 'Run the statements of the phase "build" again.';
    END IF;
END $$;

-- Half of deadlock_timeout, and half a second at most, so that a wait ends before PostgreSQL ends
-- another session because of a deadlock.
CREATE FUNCTION snowflake_plan.widen_patience() RETURNS text
STABLE PARALLEL SAFE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT least(500, greatest(1, extract(epoch FROM current_setting('deadlock_timeout')::interval) * 500))::integer || 'ms'
$$;

CREATE PROCEDURE snowflake_widen_fill(relation regclass, blocks integer DEFAULT 100, pause interval DEFAULT '0')
LANGUAGE plpgsql AS $$
DECLARE
    turn record;
    filled bigint;
    batch integer := blocks;
    began timestamptz;
    failures integer := 0;
BEGIN
    IF relation IS NULL OR blocks IS NULL OR pause IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'an argument of snowflake_widen_fill() is NULL';
    ELSIF blocks OPERATOR(pg_catalog.<) 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = pg_catalog.format('blocks %s is outside the range 1..2147483647', blocks),
            HINT = 'The argument is the greatest number of blocks that one transaction fills.';
    END IF;
    COMMIT;
    PERFORM snowflake_plan.widen_take_up(relation);
    LOOP
        COMMIT;
        SELECT * INTO turn FROM snowflake_plan.widen_turn(relation, batch);
        EXIT WHEN turn.statement IS NULL;
        -- A policy that hides rows is an error.
        PERFORM pg_catalog.set_config('row_security', 'off', true), pg_catalog.set_config('lock_timeout', snowflake_plan.widen_patience(), true);
        began := pg_catalog.clock_timestamp();
        BEGIN
            EXECUTE turn.statement;
            GET DIAGNOSTICS filled = ROW_COUNT;
            PERFORM snowflake_plan.widen_filled(relation, turn.upto, filled);
        -- The latter where another session moves a row of the batch to another partition.
        EXCEPTION WHEN lock_not_available OR serialization_failure THEN
            filled := NULL;
        END;
        IF filled IS NULL THEN
            -- Another session has locked rows of the batch. It goes on, and this one waits.
            ROLLBACK;
            failures := failures OPERATOR(pg_catalog.+) 1;
            IF failures OPERATOR(pg_catalog.>) 300 THEN
                RAISE EXCEPTION USING ERRCODE = 'lock_not_available', MESSAGE = pg_catalog.format('could not lock rows of table %s', relation),
                    DETAIL = 'Another transaction has had them locked for minutes. What is filled stays.',
                    HINT = 'Call the procedure again when no long transaction uses the table.';
            END IF;
            batch := pg_catalog.int4larger(1, batch OPERATOR(pg_catalog./) 2);
            PERFORM pg_catalog.pg_sleep(pg_catalog.random());
            CONTINUE;
        END IF;
        failures := 0;
        -- A batch that takes long could meet a session that has waited for its rows for so long
        -- that PostgreSQL would end that session because of a deadlock.
        batch := CASE WHEN pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) began OPERATOR(pg_catalog.>) pg_catalog.interval '250 ms'
                      THEN pg_catalog.int4larger(1, batch OPERATOR(pg_catalog./) 2)
                      WHEN batch OPERATOR(pg_catalog.>) (blocks OPERATOR(pg_catalog./) 2) THEN blocks
                      ELSE batch OPERATOR(pg_catalog.*) 2 END;
        COMMIT;
        PERFORM pg_catalog.pg_sleep(pg_catalog.date_part('epoch', pause));
        -- Standbys that a fill leaves behind would serve old rows.
        WHILE EXISTS (SELECT FROM pg_catalog.pg_stat_replication
                      WHERE pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), replay_lsn) OPERATOR(pg_catalog.>) 1e8) LOOP
            COMMIT;
            PERFORM pg_catalog.pg_sleep(1);
        END LOOP;
    END LOOP;
END $$;

-- Runs the statements of a step in one transaction, under locks that are taken at one moment,
-- unless an expression is true by then. Tries again what fails because of a lock.
CREATE PROCEDURE snowflake_plan.widen_step(unless text, relations text, statements text[], exclusive boolean DEFAULT true)
LANGUAGE plpgsql AS $$
DECLARE
    as_role CONSTANT text := pg_catalog.current_setting('role');
    statement text;
    is_done boolean;
    failures integer := 0;
    blocked text;
BEGIN
    LOOP
        COMMIT;
        -- Otherwise what others have committed before the lock may stay unseen.
        IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.!~~) 'read %' THEN
            RAISE EXCEPTION USING ERRCODE = 'active_sql_transaction',
                MESSAGE = pg_catalog.format('cannot widen a column in a transaction with isolation level "%s"',
                    pg_catalog.current_setting('transaction_isolation')),
                HINT = 'Set "default_transaction_isolation" to READ COMMITTED.';
        END IF;
        EXECUTE 'SELECT ' OPERATOR(pg_catalog.||) unless INTO is_done;
        IF is_done THEN
            RETURN;
        END IF;
        PERFORM snowflake_plan.lock_for_widen(relations::pg_catalog.regclass[], exclusive);
        blocked := NULL;
        BEGIN
            EXECUTE 'SELECT ' OPERATOR(pg_catalog.||) unless INTO is_done;
            IF is_done IS NOT TRUE THEN
                -- As the statements were written, so that no object of another role takes the place
                -- of PostgreSQL's.
                PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
                    pg_catalog.set_config('default_tablespace', '', true),
                    pg_catalog.set_config('standard_conforming_strings', 'on', true),
                    pg_catalog.set_config('lock_timeout', snowflake_plan.widen_patience(), true);
                FOREACH statement IN ARRAY statements LOOP
                    EXECUTE statement;
                    -- A GRANT in another role's name has left it, for the session as well.
                    PERFORM pg_catalog.set_config('role', as_role, false);
                END LOOP;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            blocked := SQLERRM;
        END;
        EXIT WHEN blocked IS NULL;
        ROLLBACK;
        failures := failures OPERATOR(pg_catalog.+) 1;
        IF failures OPERATOR(pg_catalog.>) 100 THEN
            RAISE EXCEPTION USING ERRCODE = 'lock_not_available', MESSAGE = blocked, DETAIL = 'The step has changed nothing.',
                HINT = 'Run the statement again when no long transaction uses the tables.';
        END IF;
        PERFORM pg_catalog.pg_sleep(pg_catalog.random() OPERATOR(pg_catalog.*) 2);
    END LOOP;
    COMMIT;
END $$;

COMMENT ON FUNCTION snowflake_widen(regclass, name, boolean) IS
    'the statements that make an integer column bigint while sessions use its table, with all columns that refer to it';
COMMENT ON FUNCTION snowflake_widen_back(regclass, name) IS
    'the statements that undo what those of snowflake_widen() have made, before the switch';
COMMENT ON FUNCTION snowflake_plan.widen_expect(regclass, name, text) IS
    'refuse the switch of snowflake_widen() if objects have changed since it wrote the statements';
COMMENT ON FUNCTION snowflake_plan.lock_for_widen(regclass[], boolean) IS
    'lock relations at one moment, for a step of snowflake_widen()';
COMMENT ON FUNCTION snowflake_plan.widen_keep() IS
    'the trigger that keeps a new bigint column equal to the column that is widened';
COMMENT ON FUNCTION snowflake_plan.widen_has(text, text, text) IS
    'whether a step of snowflake_widen() has been done';
COMMENT ON FUNCTION snowflake_plan.widen_begin(regclass, name, name, name) IS
    'make the trigger that keeps a new bigint column equal to the column that is widened';
COMMENT ON FUNCTION snowflake_plan.widen_follow(regclass, name, oid) IS
    'make the actions of a new foreign key run after those of the former one';
COMMENT ON FUNCTION snowflake_plan.widen_join(regclass, name, regclass, name) IS
    'make a foreign key of a partitioned table of that of a partition';
COMMENT ON FUNCTION snowflake_plan.widen_checked(regclass) IS
    'refuse the way back and the clean up of snowflake_widen() while a foreign key is not checked';
COMMENT ON FUNCTION snowflake_plan.widen_fits(regclass) IS
    'refuse the way back of snowflake_widen() while a value does not fit';
COMMENT ON FUNCTION snowflake_plan.widen_fires(oid, text) IS
    'whether a trigger would fire while snowflake_widen_fill() fills rows';
COMMENT ON VIEW snowflake_plan.widen_progress IS
    'where snowflake_widen_fill() stands; see the view snowflake_widen_progress';
COMMENT ON VIEW snowflake_widen_progress IS
    'where snowflake_widen_fill() stands in each table: blocks, rows, rows a second, time left';
COMMENT ON FUNCTION snowflake_plan.widen_note(regclass, text) IS
    'write the comment of the trigger that keeps a new bigint column equal';
COMMENT ON FUNCTION snowflake_plan.widen_stands(regclass, bigint, bigint, bigint, bigint, timestamptz) IS
    'note where snowflake_widen_fill() stands';
COMMENT ON FUNCTION snowflake_plan.widen_filled(regclass, bigint, bigint) IS
    'note how far snowflake_widen_fill() has come';
COMMENT ON FUNCTION snowflake_plan.widen_take_up(regclass) IS
    'take up snowflake_widen_fill() where it stopped';
COMMENT ON FUNCTION snowflake_plan.widen_turn(regclass, integer) IS
    'the next batch of snowflake_widen_fill()';
COMMENT ON FUNCTION snowflake_plan.widen_require(regclass, text[], text[]) IS
    'refuse the switch of snowflake_widen() if an index or a constraint is missing';
COMMENT ON FUNCTION snowflake_plan.widen_patience() IS
    'how long a step of snowflake_widen() waits for a lock';
COMMENT ON PROCEDURE snowflake_widen_fill(regclass, integer, interval) IS
    'fill the new columns of a table, in batches, and go on where a call stopped';
COMMENT ON PROCEDURE snowflake_plan.widen_step(text, text, text[], boolean) IS
    'run a step of snowflake_widen() in one transaction, under locks that are taken at one moment';
