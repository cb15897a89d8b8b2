-- Public ids: an id enciphered under a prefix, as a text for readers outside, by pgcrypto. The
-- extension's src/core/id/public.rs has the form, which is the same, bit for bit.
--
-- snowflake_conceal and snowflake_reveal run with the rights of the role that installs, because the
-- keys are not everyone's. They call functions of pgcrypto alone: its schema is looked up in the
-- catalog, and search_path decides nothing. A function with just these types is the one that was
-- looked up.
--
-- The keys are read by a VOLATILE function, which sees what was committed before the call. The
-- snapshot of a long statement would miss a key that conceals ids drawn since. A transaction with
-- one snapshot would miss it always, so there an id is refused if a later key may conceal it. Such
-- a key begins at least 5 s after its commit begins, of which the commit may take 4.
--
-- The first key makes the table, so that nobody's dump or subscription has a table without a key.
-- What others are granted on it by default is revoked. The functions that show or make keys run
-- with the caller's rights, as snowflake_advance does.

-- The schema of pgcrypto's functions, quoted. Who owns the extension or its schema can move it, and
-- put other functions in its place while they are looked up by name. They would run with the rights
-- of the role that installs, so only its equals may own these. What is a member now is looked up as
-- of now, and not as of a transaction's snapshot.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_pgcrypto() RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $pgcrypto$
DECLARE
    extension oid;
    schema text;
    functions oid[];
BEGIN
    SELECT e.oid, quote_ident(n.nspname) INTO extension, schema
    FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace JOIN pg_database AS b ON b.datname = current_database()
    WHERE e.extname = 'pgcrypto' AND pg_has_role(e.extowner, current_user, 'MEMBER')
        AND pg_has_role(CASE pg_get_userbyid(n.nspowner) WHEN 'pg_database_owner' THEN b.datdba ELSE n.nspowner END, current_user, 'MEMBER');
    functions := ARRAY[to_regprocedure(schema || '.encrypt(bytea, bytea, text)'), to_regprocedure(schema || '.decrypt(bytea, bytea, text)'),
        to_regprocedure(schema || '.hmac(bytea, bytea, text)'), to_regprocedure(schema || '.gen_random_bytes(integer)')];
    IF (SELECT count(*) FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = ANY (functions)
            AND d.refclassid = 'pg_extension'::regclass AND d.refobjid = extension AND d.deptype = 'e') <> 4 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'feature_not_supported',
            MESSAGE = 'public ids need the extension "pgcrypto"',
            DETAIL = format('It and its schema must belong to role "%s", to one of its members, or to a superuser.', current_user),
            HINT = 'Run CREATE EXTENSION pgcrypto.';
    END IF;
    RETURN schema;
END
$pgcrypto$;

-- The table of keys, NULL before the first one. Another role may make a table of that name, or a
-- view that runs what that role likes, if it can create objects in the schema.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_public_keys_table() RETURNS regclass
LANGUAGE plpgsql VOLATILE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $table$
DECLARE
    keys CONSTANT regclass := to_regclass('@extschema@.snowflake_public_keys');
BEGIN
    IF (SELECT c.relkind <> 'r' OR pg_get_userbyid(c.relowner) <> current_user FROM pg_class AS c WHERE c.oid = keys) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'table "snowflake_public_keys" was not made by the SQL edition',
            DETAIL = format('It does not belong to role "%s", or is not a table.', current_user),
            HINT = 'If it was restored from a dump without owners, give it to that role with ALTER TABLE. Otherwise rename or drop it.';
    END IF;
    RETURN keys;
END
$table$;

-- Refuses a text that is not a prefix. The caller's collation may hold other texts for equal, or
-- may not support a search in them. So it gets no further than here, and than what is below.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_check_prefix(prefix text) RETURNS void
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $prefix$
BEGIN
    IF prefix COLLATE "C" !~ '^[a-z]([a-z_]{0,14}[a-z])?$' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('"%s" is not a prefix of public ids', @extschema@._snowflake_quoted(prefix)),
            HINT = 'A prefix has 1 to 16 small letters from a to z and underscores, and begins and ends with a letter.';
    END IF;
END
$prefix$;

-- The block of an id, by the key whose range it is in.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_encipher(id bigint, prefix text) RETURNS bytea
LANGUAGE plpgsql VOLATILE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $encipher$
DECLARE
    pgcrypto CONSTANT text := @extschema@._snowflake_pgcrypto();
    block bytea;
    first_of_all bigint;
BEGIN
    IF @extschema@._snowflake_public_keys_table() IS NOT NULL THEN
        EXECUTE replace($query$
            SELECT @pgcrypto@.encrypt(int8send($1) || decode('0000000000000000', 'hex'),
                @pgcrypto@.hmac(convert_to('snowflake_id public id 1', 'UTF8') || decode('00', 'hex') || convert_to($2, 'UTF8'),
                    k.key, 'sha256'::text), 'aes-ecb/pad:none'::text)
            FROM @extschema@.snowflake_public_keys AS k WHERE k.first_id <= $1 ORDER BY k.first_id DESC LIMIT 1
            $query$, '@pgcrypto@', pgcrypto) INTO block USING id, prefix;
        IF block IS NULL THEN
            EXECUTE 'SELECT min(k.first_id) FROM @extschema@.snowflake_public_keys AS k' INTO first_of_all;
        END IF;
    END IF;
    IF first_of_all IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'no key conceals ids before the first key''s',
            DETAIL = format('The first key conceals ids from %s.', first_of_all),
            HINT = 'Add the key that conceals these ids in other databases, or one from the least bigint on.';
    ELSIF block IS NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'this database has no key for public ids',
            HINT = 'Let the owner of the SQL edition call snowflake_new_public_key().';
    END IF;
    RETURN block;
END
$encipher$;

-- The id of a block. All keys are tried, and each gives only ids of its range.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_decipher(block bytea, prefix text) RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $decipher$
DECLARE
    pgcrypto CONSTANT text := @extschema@._snowflake_pgcrypto();
    id bigint;
BEGIN
    IF @extschema@._snowflake_public_keys_table() IS NULL THEN
        RETURN NULL;
    END IF;
    EXECUTE replace($query$
        SELECT i.id FROM (
            SELECT k.first_id, lead(k.first_id) OVER (ORDER BY k.first_id) AS next_id, @pgcrypto@.decrypt($1,
                @pgcrypto@.hmac(convert_to('snowflake_id public id 1', 'UTF8') || decode('00', 'hex') || convert_to($2, 'UTF8'),
                    k.key, 'sha256'::text), 'aes-ecb/pad:none'::text) AS plain
            FROM @extschema@.snowflake_public_keys AS k
        ) AS p, LATERAL (SELECT ('x' || encode(substr(p.plain, 1, 8), 'hex'))::bit(64)::bigint) AS i (id)
        WHERE substr(p.plain, 9) = decode('0000000000000000', 'hex')
            AND i.id >= p.first_id AND (p.next_id IS NULL OR i.id < p.next_id)
        ORDER BY p.first_id DESC LIMIT 1
        $query$, '@pgcrypto@', pgcrypto) INTO id USING block, prefix;
    RETURN id;
END
$decipher$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_conceal(id bigint, prefix text) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $conceal$
DECLARE
    letters CONSTANT text COLLATE "C" := '0123456789abcdefghjkmnpqrstvwxyz';
    word text COLLATE "C" := '';
    block bytea;
    high bigint;
    low bigint;
BEGIN
    PERFORM @extschema@._snowflake_check_prefix(prefix);
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
        AND @epoch_ms@ + (id >> @time_shift@) * @unit_ms@
            > (date_part('epoch', transaction_timestamp()) * 1000000)::bigint / 1000 + 1000
    THEN
        RAISE EXCEPTION USING
            ERRCODE = 'active_sql_transaction',
            MESSAGE = format('cannot conceal id %s with isolation level "%s"', id, current_setting('transaction_isolation')),
            DETAIL = 'The id''s time is more than 1 s after the transaction''s start, so a key that the transaction cannot see may conceal it.',
            HINT = 'Conceal the id in another transaction, or with READ COMMITTED.';
    END IF;
    block := @extschema@._snowflake_encipher(id, prefix COLLATE "C");
    high := ('x' || encode(substr(block, 1, 8), 'hex'))::bit(64)::bigint;
    low := ('x' || encode(substr(block, 9), 'hex'))::bit(64)::bigint;
    -- 63 bits as 13 letters, of which the first has 3, then 5 bits of both halves, then 60 bits.
    FOR place IN 0 .. 12 LOOP
        word := word || substr(letters, ((high >> (61 - 5 * place)) & CASE place WHEN 0 THEN 7 ELSE 31 END)::integer + 1, 1);
    END LOOP;
    word := word || substr(letters, (((high & 1) << 4) | ((low >> 60) & 15))::integer + 1, 1);
    FOR place IN 1 .. 12 LOOP
        word := word || substr(letters, ((low >> (60 - 5 * place)) & 31)::integer + 1, 1);
    END LOOP;
    RETURN prefix || '_' || word;
END
$conceal$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_reveal(token text, prefix text, required boolean DEFAULT false) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $reveal$
DECLARE
    letters CONSTANT text COLLATE "C" := '0123456789abcdefghjkmnpqrstvwxyz';
    start CONSTANT text COLLATE "C" := prefix || '_';
    word CONSTANT text COLLATE "C" := token;
    id bigint;
    value bigint;
    high bigint := 0;
    middle bigint := 0;
    low bigint := 0;
BEGIN
    PERFORM @extschema@._snowflake_check_prefix(prefix);
    -- Capitals are other texts, and so is a number above 128 bits.
    IF octet_length(word) = octet_length(start) + 26 AND left(word, length(start)) = start
        AND substr(word, length(start) + 1) ~ '^[0-7][0-9a-hjkmnp-tv-z]{25}$'
    THEN
        FOR place IN 1 .. 26 LOOP
            value := strpos(letters, substr(word, length(start) + place, 1)) - 1;
            IF place <= 13 THEN
                high := (high << 5) | value;
            ELSIF place = 14 THEN
                middle := value;
            ELSE
                low := (low << 5) | value;
            END IF;
        END LOOP;
        id := @extschema@._snowflake_decipher(int8send((high << 1) | (middle >> 4)) || int8send((middle << 60) | low),
            prefix COLLATE "C");
    END IF;
    IF id IS NULL AND required THEN
        -- Without the text, which may be a token of another database.
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the text is not a public id of this database with the prefix "%s"', prefix),
            HINT = 'Check the text, the prefix, and whether the key that has made it is still there.';
    END IF;
    RETURN id;
END
$reveal$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_reveal(tokens text[], prefix text, required boolean DEFAULT false) RETURNS bigint[]
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $reveal$
BEGIN
    PERFORM @extschema@._snowflake_check_prefix(prefix);
    RETURN ARRAY(SELECT @extschema@.snowflake_reveal(t.token, prefix, required)
        FROM unnest(tokens) WITH ORDINALITY AS t (token, place) ORDER BY t.place);
END
$reveal$;

-- The first id that a new key may conceal: 10 s ahead of the last id, and of each that can be drawn
-- now.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_first_id_of_new_key() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $first$
DECLARE
    now_ms CONSTANT bigint := (date_part('epoch', clock_timestamp()) * 1000000)::bigint / 1000;
    tick bigint := (SELECT (last_value + is_called::integer) >> @k@ FROM @extschema@.snowflake_word);
BEGIN
    tick := greatest(tick, (now_ms + @max_borrow@ - @epoch_ms@) / @unit_ms@) + 10000 / @unit_ms@ + 1;
    IF tick > @last_tick@ THEN
        RAISE EXCEPTION USING
            ERRCODE = 'datetime_field_overflow',
            MESSAGE = format('time %s is outside the layout''s range', @extschema@._snowflake_utc(@epoch_ms@ + tick * @unit_ms@)),
            DETAIL = format('The last instant of layout "%s" is %s.', @layout@, @extschema@._snowflake_utc(@last_ms@));
    END IF;
    RETURN tick << @time_shift@;
END
$first$;

-- Whether a key from this id on begins too soon: ids from there on may be drawn within 5 s, or are
-- drawn already.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_begins_too_soon(first_id bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $soon$
DECLARE
    now_ms CONSTANT bigint := (date_part('epoch', clock_timestamp()) * 1000000)::bigint / 1000;
    last_tick CONSTANT bigint := (SELECT (last_value + is_called::integer) >> @k@ FROM @extschema@.snowflake_word);
BEGIN
    RETURN first_id < (greatest(last_tick, (now_ms + @max_borrow@ + 5000 - @epoch_ms@) / @unit_ms@) + 1) << @time_shift@;
END
$soon$;

-- A row that is there is skipped, so that a dump goes over itself, and a subscription goes on. The
-- trigger refuses another key, because the log of a subscription whose row violates a unique
-- constraint shows the row (PostgreSQL 18).
CREATE OR REPLACE FUNCTION @extschema@._snowflake_skip_known_public_key() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $skip$
DECLARE
    is_known boolean;
BEGIN
    EXECUTE format('SELECT bool_and(k.first_id = $1 AND k.key = $2) FROM %s AS k WHERE k.first_id = $1 OR k.key = $2', TG_RELID::regclass)
        INTO is_known USING NEW.first_id, NEW.key;
    IF NOT is_known THEN
        RAISE EXCEPTION USING
            ERRCODE = 'unique_violation',
            MESSAGE = format('there is another key for public ids from first_id %s on, or this key with another first_id', NEW.first_id),
            HINT = 'Compare "fingerprint" and "first_id" in the tables "snowflake_public_keys" of both databases.';
    END IF;
    RETURN CASE WHEN is_known THEN NULL ELSE NEW END;
END
$skip$;

-- Refuses the commit of a key that begins too soon by then. Only keys that must begin in time are
-- looked at, which snowflake_new_public_key() notes: not one that a dump or a subscription brings.
-- The trigger runs as the owner, because the role that commits may be another one. So it looks
-- first whether the table is the edition's.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_refuse_late_public_key() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $late$
BEGIN
    IF TG_RELID IS DISTINCT FROM to_regclass('@extschema@.snowflake_public_keys')::oid THEN
        RETURN NULL;
    END IF;
    IF NEW.fingerprint = ANY (string_to_array(current_setting('snowflake_sql.new_public_keys', true), ' '))
        AND @extschema@._snowflake_begins_too_soon(NEW.first_id)
    THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'the transaction has kept a new key for too long',
            DETAIL = format('The key is to conceal ids from %s on. Other sessions may conceal these before they see the key.', NEW.first_id),
            HINT = 'Make the key again, and commit within 5 seconds, or give a later "first_id".';
    END IF;
    RETURN NULL;
END
$late$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_new_public_key(key bytea DEFAULT NULL, first_id bigint DEFAULT NULL,
    for_all boolean DEFAULT false, force boolean DEFAULT false) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $new$
#variable_conflict use_variable
DECLARE
    least CONSTANT bigint := -9223372036854775808;
    is_for_all CONSTANT boolean := coalesce(for_all, false);
    is_forced CONSTANT boolean := coalesce(force, false);
    new_key bytea := key;
    name text;
    new_first_id bigint := first_id;
    pgcrypto text;
    grantee oid;
    has_keys boolean;
BEGIN
    PERFORM @extschema@._snowflake_require_writable('snowflake_new_public_key()'::text);
    -- Functions that read the table run with their owner's rights, so it must be the same role's.
    IF current_user <> (SELECT pg_get_userbyid(p.proowner) FROM pg_proc AS p
            WHERE p.oid = '@extschema@.snowflake_new_public_key(bytea, bigint, boolean, boolean)'::regprocedure) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'insufficient_privilege',
            MESSAGE = 'must be owner of function snowflake_new_public_key';
    END IF;
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        -- The snapshot could be older than the last key.
        RAISE EXCEPTION USING
            ERRCODE = 'active_sql_transaction',
            MESSAGE = format('cannot make a key for public ids in a transaction of isolation level "%s"', current_setting('transaction_isolation')),
            HINT = 'Call snowflake_new_public_key() in a transaction of isolation level "read committed".';
    ELSIF octet_length(new_key) NOT BETWEEN 16 AND 64 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('key of %s bytes is outside the range 16..64', octet_length(new_key)),
            HINT = 'Leave out the argument "key", and a key of 32 random bytes is made.';
    ELSIF is_for_all AND first_id IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('first_id %s cannot be given for a key for all ids', first_id),
            HINT = 'Leave out either the argument "first_id" or the argument "for_all".';
    END IF;
    pgcrypto := @extschema@._snowflake_pgcrypto();
    IF new_key IS NULL THEN
        EXECUTE format('SELECT %s.gen_random_bytes(32)', pgcrypto) INTO new_key;
    END IF;
    EXECUTE format('SELECT left(encode(%s.hmac(convert_to(''snowflake_id public key 1'', ''UTF8''), $1, ''sha256''::text), ''hex''), 16)',
        pgcrypto) INTO name USING new_key;
    -- One at a time, and none during an installation.
    PERFORM pg_advisory_xact_lock('@extschema@'::regnamespace::oid::integer, 0);
    IF @extschema@._snowflake_public_keys_table() IS NULL THEN
        CREATE TABLE @extschema@.snowflake_public_keys (
            fingerprint text PRIMARY KEY,
            first_id bigint NOT NULL UNIQUE,
            created_at timestamptz NOT NULL DEFAULT now(),
            -- Last, because an error of COPY shows the first 100 characters of a line.
            key bytea NOT NULL CHECK (octet_length(key) BETWEEN 16 AND 64)
        );
        -- Statistics hold values, and a dump may have them without the table's rows.
        ALTER TABLE @extschema@.snowflake_public_keys ALTER COLUMN key SET STATISTICS 0;
        -- Default privileges may have given it to others.
        FOR grantee IN
            SELECT DISTINCT a.grantee FROM pg_class AS c, aclexplode(c.relacl) AS a
            WHERE c.oid = '@extschema@.snowflake_public_keys'::regclass AND a.grantee <> c.relowner
        LOOP
            EXECUTE format('REVOKE ALL ON TABLE %s FROM %s', '@extschema@.snowflake_public_keys',
                CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END);
        END LOOP;
        COMMENT ON TABLE @extschema@.snowflake_public_keys IS 'secret: the keys of public ids, and the first id that each conceals';
    END IF;
    -- A dump of the extension's table has none of these.
    IF NOT EXISTS (SELECT FROM pg_trigger AS t
            WHERE t.tgrelid = '@extschema@.snowflake_public_keys'::regclass AND t.tgname = 'refuse_late_public_key') THEN
        CREATE TRIGGER skip_known_public_key BEFORE INSERT ON @extschema@.snowflake_public_keys
            FOR EACH ROW EXECUTE FUNCTION @extschema@._snowflake_skip_known_public_key();
        -- In a subscription, too.
        ALTER TABLE @extschema@.snowflake_public_keys ENABLE ALWAYS TRIGGER skip_known_public_key;
        CREATE CONSTRAINT TRIGGER refuse_late_public_key AFTER INSERT ON @extschema@.snowflake_public_keys
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION @extschema@._snowflake_refuse_late_public_key();
    END IF;

    has_keys := EXISTS (SELECT FROM @extschema@.snowflake_public_keys);
    IF is_for_all THEN
        DELETE FROM @extschema@.snowflake_public_keys;
        new_first_id := least;
    ELSIF EXISTS (SELECT FROM @extschema@.snowflake_public_keys AS k
            WHERE k.key = new_key AND (k.first_id = new_first_id OR new_first_id IS NULL)) THEN
        RETURN name;
    ELSIF new_first_id IS NULL THEN
        new_first_id := CASE WHEN has_keys THEN @extschema@._snowflake_first_id_of_new_key() ELSE least END;
        -- Keys that are made within a moment begin one after the other.
        WHILE EXISTS (SELECT FROM @extschema@.snowflake_public_keys AS k WHERE k.first_id = new_first_id) LOOP
            new_first_id := new_first_id + 1;
        END LOOP;
    ELSIF has_keys AND NOT is_forced AND @extschema@._snowflake_begins_too_soon(new_first_id) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('ids from first_id %s on may have been concealed already', new_first_id),
            DETAIL = 'Their tokens would change, and those given out would stand for no id. A key must begin more than 5 seconds after each id that can be drawn now.',
            HINT = 'Give a later "first_id". To add a key that other databases have, pass force => true.';
    END IF;
    IF has_keys AND NOT is_for_all AND NOT is_forced THEN
        PERFORM set_config('snowflake_sql.new_public_keys',
            concat_ws(' ', current_setting('snowflake_sql.new_public_keys', true), name), true);
    END IF;
    INSERT INTO @extschema@.snowflake_public_keys (fingerprint, first_id, key) VALUES (name, new_first_id, new_key);
    RETURN name;
END
$new$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_public_keys() RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $keys$
BEGIN
    IF to_regclass('@extschema@.snowflake_public_keys') IS NOT NULL THEN
        RETURN QUERY SELECT format('SELECT %s(key => decode(%L, ''hex''), first_id => %s%s);', '@extschema@.snowflake_new_public_key',
            encode(k.key, 'hex'), k.first_id, CASE WHEN @extschema@._snowflake_begins_too_soon(k.first_id) THEN ', force => true' END)
        FROM @extschema@.snowflake_public_keys AS k ORDER BY k.first_id;
    END IF;
END
$keys$;

-- PostgREST shows a column of such a domain as tokens, and reads tokens for it. It looks for the
-- casts, which PostgreSQL itself ignores, and calls their functions. A function with the domain's
-- name would cast a text of unknown type to bigint.
CREATE OR REPLACE FUNCTION @extschema@.snowflake_public_domain(domain text, prefix text) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE AS $domain$
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
        '%L', schema, of_domain, pg_catalog.format('SELECT pg_catalog.to_json(%s.snowflake_conceal($1::pg_catalog.int8, %L::pg_catalog.text))', '@extschema@', prefix));
    EXECUTE pg_catalog.format('CREATE FUNCTION %s(token pg_catalog.json) RETURNS %s STABLE STRICT PARALLEL SAFE LANGUAGE sql AS '
        '%L', reader, of_domain, pg_catalog.format('SELECT %s.snowflake_reveal($1 OPERATOR(pg_catalog.#>>) ''{}''::pg_catalog.text[], %L::pg_catalog.text, true)', '@extschema@', prefix));
    EXECUTE pg_catalog.format('CREATE FUNCTION %s(token pg_catalog.text) RETURNS %s STABLE STRICT PARALLEL SAFE LANGUAGE sql AS '
        '%L', reader, of_domain, pg_catalog.format('SELECT %s.snowflake_reveal($1, %L::pg_catalog.text, false)', '@extschema@', prefix));
    -- Without three warnings that PostgreSQL ignores the casts.
    PERFORM pg_catalog.set_config('client_min_messages', 'error', true);
    EXECUTE pg_catalog.format('CREATE CAST (%s AS pg_catalog.json) WITH FUNCTION %I.json(%1$s) AS IMPLICIT', of_domain, schema);
    EXECUTE pg_catalog.format('CREATE CAST (pg_catalog.json AS %s) WITH FUNCTION %s(pg_catalog.json) AS IMPLICIT', of_domain, reader);
    EXECUTE pg_catalog.format('CREATE CAST (pg_catalog.text AS %s) WITH FUNCTION %s(pg_catalog.text) AS IMPLICIT', of_domain, reader);
    PERFORM pg_catalog.set_config('client_min_messages', level, true);
END
$domain$;

-- A new key decides which ids tokens stand for, and a key conceals and reveals all of them.
REVOKE ALL ON FUNCTION @extschema@.snowflake_new_public_key(bytea, bigint, boolean, boolean), @extschema@.snowflake_public_keys()
    FROM PUBLIC;

COMMENT ON FUNCTION @extschema@.snowflake_conceal(bigint, text) IS 'an id as a token for readers outside, which tells nothing of it';
COMMENT ON FUNCTION @extschema@.snowflake_reveal(text, text, boolean) IS
    'the id of a token; for another text NULL, or an error if it is required';
COMMENT ON FUNCTION @extschema@.snowflake_reveal(text[], text, boolean) IS
    'the ids of tokens; for other texts NULL, or an error if they are required';
COMMENT ON FUNCTION @extschema@.snowflake_new_public_key(bytea, bigint, boolean, boolean) IS
    'make a key of public ids, and return its fingerprint';
COMMENT ON FUNCTION @extschema@.snowflake_public_keys() IS 'secret: statements that make the keys of public ids again';
COMMENT ON FUNCTION @extschema@.snowflake_public_domain(text, text) IS
    'make a domain of bigint with the casts by which PostgREST shows and reads tokens';
