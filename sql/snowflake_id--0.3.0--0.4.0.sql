-- From 0.3.0 to 0.4.0: public ids.

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
    EXECUTE pg_catalog.format('CREATE FUNCTION %I.json(id %s) RETURNS pg_catalog.json STABLE STRICT PARALLEL SAFE LANGUAGE sql AS '
        '%L', schema, of_domain, pg_catalog.format('SELECT pg_catalog.to_json(@extschema@.snowflake_conceal($1, %L::pg_catalog.text))', prefix));
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
