-- snowflake_id, SQL edition: 64-bit ids that are unique and ordered by time, in plain SQL and
-- PL/pgSQL, for servers that load no library. PostgreSQL 13 or later; no superuser is needed.
-- Everything goes into the first schema of the search_path, which must not have the extension. No
-- other role should be able to create objects there.
--
-- Install it, or change it later, then without CREATE SCHEMA:
--
--     psql -1 -c "CREATE SCHEMA snowflake" -c "SET LOCAL search_path = snowflake" \
--         -f snowflake_id-sql.sql -c "SELECT snowflake_install(worker_id => 5)"
--
-- The file has no commands of psql, so it also serves as a migration of any tool. For a later
-- version of the file, run both again. The number is for this database alone: no other database of
-- the fleet may have it, and a copy of this one needs another. Layouts, encodings, results and
-- errors are those of the extension. Other roles draw as soon as they have USAGE on the schema.
-- Later calls of snowflake_install come from the role that has run the file. Both refuse objects of
-- these names that belong to another role.
--
-- | call | what it does |
-- |---|---|
-- | snowflake_install(worker_id, datacenter_id, layout, max_borrow, settled, accept) | Makes the functions that draw. An argument that is left out stays as it is. |
-- | snowflake_next(), snowflake_batch(count), snowflake_last() | Draw ids. |
-- | snowflake_advance(id [, force]) | No id at or below this one is drawn from now on. |
-- | snowflake_parse, snowflake_timestamp, snowflake_format (id [, layout]) | Read an id. |
-- | snowflake_compose(created_at, worker_id, sequence [, datacenter_id [, layout]]) | Makes an id. |
-- | snowflake_min(ts [, layout]); snowflake_from, _after, _before, _until (ts, layout) | Bounds of a time. |
-- | snowflake_encode(id, encoding), snowflake_decode(text, encoding) | Short texts. |
-- | snowflake_layouts, snowflake_layout_fields([layout]), snowflake_stat | What there is. |
-- | snowflake_conceal(id, prefix), snowflake_reveal(token, prefix [, required]) | Public ids; need pgcrypto. |
-- | snowflake_new_public_key([key, first_id, for_all, force]), snowflake_public_keys() | Their keys. |
-- | snowflake_public_domain(domain, prefix) | A domain for PostgREST. |
-- | CALL snowflake_settled(NULL) | The id up to which the next statement misses no row. |
--
-- Not here: leases and registries, tags (snowflake_segment_...), backup workers, waiting for a
-- clock that was set back, max_clock_jump, conditions on an id's time that use the index (write
-- id >= snowflake_min(...)), snowflake_convert, snowflake_reset_mark, snowflake_accept_layout (that
-- is "accept"), counts of draws and of sessions, snowflake_unsettled. These do not exist.
--
-- What differs: snowflake_settled is a procedure, because its answer is right only for statements
-- that begin after it (55-settled.sql). snowflake_next raises what nextval raises where nothing may
-- be written. A wide time or sequence ends what can be drawn, not what can be read, before the
-- layout does (last_instant of snowflake_stat). Functions whose names begin with "_snowflake" are
-- not for statements of users.
--
-- "tools/edition" builds this file from sql/edition. Change it there.

DO $edition$
DECLARE
    schema CONSTANT pg_catalog.text := pg_catalog.current_schema();
BEGIN
    IF schema IS NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_schema_name',
            MESSAGE = 'no schema has been selected to create in',
            HINT = 'Put an existing schema first into search_path.';
    END IF;
    IF pg_catalog.current_setting('server_version_num')::integer OPERATOR(pg_catalog.<) 130000 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'feature_not_supported',
            MESSAGE = 'the SQL edition of snowflake_id needs PostgreSQL 13 or later';
    END IF;
    -- As CREATE EXTENSION: the schema's name becomes part of many texts.
    IF pg_catalog.translate(schema, '"$''\@', '') OPERATOR(pg_catalog.<>) schema THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_schema_name',
            MESSAGE = pg_catalog.format('schema name "%s" has a character that is not supported', schema),
            HINT = 'Install into a schema without quotes, dollar signs, backslashes and at signs in its name.';
    END IF;
    IF schema OPERATOR(pg_catalog.~) '^pg_' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_schema_name',
            MESSAGE = pg_catalog.format('cannot install into schema "%s"', schema),
            DETAIL = 'Temporary schemas and those of the system cannot keep what was drawn.',
            HINT = 'Put another schema first into search_path.';
    END IF;
    IF EXISTS (
        SELECT FROM pg_catalog.pg_extension
        WHERE extname OPERATOR(pg_catalog.=) 'snowflake_id'
            AND extnamespace OPERATOR(pg_catalog.=) pg_catalog.quote_ident(schema)::pg_catalog.regnamespace::pg_catalog.oid
    ) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'duplicate_object',
            MESSAGE = pg_catalog.format('extension "snowflake_id" is installed in schema "%s"', schema),
            HINT = 'Put another schema first into search_path.';
    END IF;
END
$edition$;

DO $edition$
DECLARE
    path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
    schema CONSTANT pg_catalog.text := pg_catalog.quote_ident(pg_catalog.current_schema());
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    EXECUTE pg_catalog.replace($statements$
-- Before anything is made, replaced or called.

DO
$template$
-- Refuses objects with the names of the edition that belong to another role, which a role with
-- CREATE on the schema can make. Else the role that installs would run what they contain, and
-- CREATE OR REPLACE would leave them to their owner. What is the installing role's, such a role can
-- neither replace nor drop. An overload that such a role adds after the check is not called,
-- because each call in these files has exactly the types of what it calls.
DECLARE
    names CONSTANT name[] := '{snowflake_word, _snowflake_word_before, _snowflake_lock, snowflake_stat, snowflake_layouts, _snowflake_layout, snowflake_public_keys}';
    object text;
    owner name;
BEGIN
    -- With an older snapshot than the command's, the check would miss what was made since.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'feature_not_supported',
            MESSAGE = format('the SQL edition cannot be installed with isolation level "%s"', current_setting('transaction_isolation')),
            HINT = 'Run its file, and snowflake_install(), in a transaction with READ COMMITTED.';
    END IF;
    SELECT pg_describe_object(found.class, found.id, 0), r.rolname INTO object, owner
    FROM (
        SELECT 'pg_proc'::regclass, p.oid, p.proowner, p.pronamespace FROM pg_proc AS p WHERE p.proname ~ '^_?snowflake_'
        UNION ALL
        SELECT 'pg_class'::regclass, c.oid, c.relowner, c.relnamespace FROM pg_class AS c WHERE c.relname = ANY (names)
        UNION ALL
        SELECT 'pg_type'::regclass, t.oid, t.typowner, t.typnamespace FROM pg_type AS t WHERE t.typname = ANY (names)
    ) AS found (class, id, owner, namespace), pg_roles AS r
    WHERE found.namespace = '@extschema@'::regnamespace AND r.oid = found.owner AND r.rolname <> current_user
    ORDER BY found.class DESC, found.id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%s belongs to role "%s"', object, owner),
            DETAIL = format('All objects of the SQL edition belong to the role that runs its file. The current role is "%s".', current_user),
            HINT = format('If that role has installed the edition, run SET ROLE %s, and repeat the command. Else drop the object, or '
                'install into a schema in which no other role can create objects.', quote_ident(owner));
    END IF;
END
$template$
;
$statements$, '@extschema@', schema);
    PERFORM pg_catalog.set_config('search_path', path, true);
END
$edition$;

DO $edition$
DECLARE
    path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
    schema CONSTANT pg_catalog.text := pg_catalog.quote_ident(pg_catalog.current_schema());
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    EXECUTE pg_catalog.replace($statements$
-- Errors whose parts depend on what was found. RAISE cannot leave a DETAIL or a HINT out.

CREATE OR REPLACE FUNCTION @extschema@._snowflake_raise(state text, message text, detail text, hint text) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF detail IS NULL AND hint IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = state, MESSAGE = message;
    ELSIF detail IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = state, MESSAGE = message, HINT = hint;
    ELSIF hint IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = state, MESSAGE = message, DETAIL = detail;
    END IF;
    RAISE EXCEPTION USING ERRCODE = state, MESSAGE = message, DETAIL = detail, HINT = hint;
END
$$;
$statements$, '@extschema@', schema);
    PERFORM pg_catalog.set_config('search_path', path, true);
END
$edition$;

DO $edition$
DECLARE
    path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
    schema CONSTANT pg_catalog.text := pg_catalog.quote_ident(pg_catalog.current_schema());
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    EXECUTE pg_catalog.replace($statements$
-- Layouts: the text of one, the places of its fields, and the built-in names.
--
-- A built-in name is looked up in an expression that the planner computes once for a constant
-- (_snowflake_layout_of). Any other text is read by _snowflake_layout_read, which returns what is
-- wrong with it instead of raising it, because the bounds of 30-make.sql must raise nothing.

-- The number of bits of each field, 0 if the layout lacks it, and the number of bits below it.
DO $$
BEGIN
    -- Fails if another role has made one since the check.
    IF NOT EXISTS (SELECT FROM pg_type WHERE oid = to_regtype('@extschema@._snowflake_layout')
            AND pg_get_userbyid(typowner) = current_user) THEN
        CREATE TYPE @extschema@._snowflake_layout AS (
            time_bits integer, time_shift integer,
            datacenter_bits integer, datacenter_shift integer,
            worker_bits integer, worker_shift integer,
            sequence_bits integer, sequence_shift integer,
            unit_ms bigint, epoch_ms bigint,
            max_id bigint, last_tick bigint
        );
    END IF;
END
$$;

-- The meaning of a name never changes.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_built_in(OUT place integer, OUT name text, OUT line text)
RETURNS SETOF record LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    VALUES
        (1, 'snowflake', 'time:41 worker:10 sequence:12 unit:1ms epoch:2025-01-01T00:00:00Z'),
        (2, 'twitter', 'time:41 datacenter:5 worker:5 sequence:12 unit:1ms epoch:2010-11-04T01:42:54.657Z'),
        (3, 'js53', 'time:32 worker:5 sequence:16 unit:1s epoch:2019-01-01T00:00:00Z'),
        (4, 'baidu', 'time:28 worker:22 sequence:13 unit:1s epoch:2016-05-19T16:00:00Z'),
        (5, 'leaf', 'time:41 worker:10 sequence:12 unit:1ms epoch:2010-11-04T01:42:54.657Z'),
        (6, 'discord', 'time:41 worker:5 datacenter:5 sequence:12 unit:1ms epoch:2015-01-01T00:00:00Z'),
        (7, 'instagram', 'time:40 worker:13 sequence:10 unit:1ms epoch:2011-08-24T21:07:01.721Z'),
        (8, 'mastodon', 'time:47 sequence:16 unit:1ms epoch:1970-01-01T00:00:00Z'),
        (9, 'sonyflake', 'time:39 sequence:8 worker:16 unit:10ms epoch:2014-09-01T00:00:00Z'),
        (10, 'cosid', 'time:41 worker:10 sequence:12 unit:1ms epoch:2019-12-24T16:00:00Z'),
        (11, 'pgedge', 'time:41 worker:10 sequence:12 unit:1ms epoch:2023-01-01T00:00:00Z'),
        (12, 'tsid', 'time:41 worker:10 sequence:12 unit:1ms epoch:2020-01-01T00:00:00Z'),
        (13, 'sonyflake2', 'time:39 sequence:8 worker:16 unit:10ms epoch:2025-01-01T00:00:00Z')
$$;

-- As much of a user's text as an error repeats.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_quoted(word text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE WHEN char_length(word) > 40 THEN left(word, 40) || '...' ELSE word END;
END
$$;

-- An instant as RFC 3339 writes it, in milliseconds since 1970, from the year 1 to 9999. The fault
-- is "malformed" or "no zone".
CREATE OR REPLACE FUNCTION @extschema@._snowflake_instant_of(instant text, OUT ms bigint, OUT fault text)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part text[] := regexp_match(instant,
        '^([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})([.][0-9]{1,3})?(Z|[+-][0-9]{2}:[0-9]{2})?$');
    year integer := part[1];
    month integer := part[2];
    day integer := part[3];
    zone_minutes integer := 0;
    -- Counted from March of the year 400 before, so that nothing is negative.
    shifted integer := year + 400 - (month <= 2)::integer;
    days bigint;
BEGIN
    fault := 'malformed';
    IF part IS NULL OR month NOT BETWEEN 1 AND 12 OR part[4]::integer > 23 OR part[5]::integer > 59
        OR part[6]::integer > 59 THEN
        RETURN;
    END IF;
    IF day NOT BETWEEN 1 AND (ARRAY[31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])[month]
            + (month = 2 AND year % 4 = 0 AND (year % 100 <> 0 OR year % 400 = 0))::integer THEN
        RETURN;
    END IF;
    IF part[8] IS NULL THEN
        fault := 'no zone';
        RETURN;
    END IF;
    IF part[8] <> 'Z' THEN
        IF substr(part[8], 2, 2)::integer > 23 OR substr(part[8], 5, 2)::integer > 59 THEN
            RETURN;
        END IF;
        zone_minutes := substr(part[8], 2, 2)::integer * 60 + substr(part[8], 5, 2)::integer;
        IF left(part[8], 1) = '-' THEN
            zone_minutes := -zone_minutes;
        END IF;
    END IF;
    days := shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400
        + (153 * ((month + 9) % 12) + 2) / 5 + day - 1 - 719468 - 146097;
    ms := days * 86400000 + (part[4]::integer * 60 + part[5]::integer - zone_minutes) * 60000
        + part[6]::integer * 1000 + rpad(substr(coalesce(part[7], '.0'), 2), 3, '0')::integer;
    IF ms < -62135596800000 OR ms > 253402300799999 THEN
        ms := NULL;
        RETURN;
    END IF;
    fault := NULL;
END
$$;

-- The layout that a text names or spells out, or what is wrong with the text.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_layout_read(layout text, OUT parts @extschema@._snowflake_layout,
    OUT fault text)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- What the extension takes for white space.
    blanks CONSTANT text := E' \t\n\r\f';
    spelt text;
    word text;
    key text;
    value text;
    quoted text;
    fields text[] := '{}';
    widths integer[] := '{}';
    unit bigint;
    epoch bigint;
    instant record;
    most integer;
    total integer := 0;
    shift integer;
BEGIN
    IF octet_length(layout) > 256 THEN
        fault := format('layout has %s bytes, which exceeds the limit of 256', octet_length(layout));
        RETURN;
    END IF;
    spelt := btrim(layout, blanks);
    IF spelt = '' THEN
        fault := 'layout is empty';
        RETURN;
    END IF;
    SELECT known.line INTO value FROM @extschema@._snowflake_built_in() AS known
    WHERE known.name = spelt COLLATE "C";
    IF FOUND THEN
        spelt := value;
    ELSIF spelt !~ format('[:%s]', blanks) THEN
        fault := format('unknown layout "%s"', @extschema@._snowflake_quoted(spelt));
        RETURN;
    END IF;

    FOREACH word IN ARRAY regexp_split_to_array(spelt, format('[%s]+', blanks)) LOOP
        quoted := @extschema@._snowflake_quoted(word);
        IF strpos(word, ':') = 0 THEN
            fault := format('layout word "%s" is not of the form name:value', quoted);
            RETURN;
        END IF;
        key := left(word, strpos(word, ':') - 1);
        value := substr(word, strpos(word, ':') + 1);
        IF key = 'unit' AND unit IS NOT NULL OR key = 'epoch' AND epoch IS NOT NULL THEN
            fault := format('layout word "%s" repeats a field', quoted);
        ELSIF key = 'unit' AND epoch IS NOT NULL THEN
            fault := format('layout word "%s" is out of order: fields come first, then unit, then epoch', quoted);
        ELSIF key = 'unit' THEN
            unit := CASE value WHEN '1ms' THEN 1 WHEN '10ms' THEN 10 WHEN '100ms' THEN 100 WHEN '1s' THEN 1000 END;
            IF unit IS NULL THEN
                fault := format('unit in layout word "%s" is not one of 1ms, 10ms, 100ms, 1s', quoted);
            END IF;
        ELSIF key = 'epoch' THEN
            instant := @extschema@._snowflake_instant_of(value);
            epoch := instant.ms;
            IF instant.fault = 'no zone' THEN
                fault := format('epoch in layout word "%s" has no time zone', quoted);
            ELSIF instant.fault IS NOT NULL THEN
                fault := format('epoch in layout word "%s" is not an instant in the years 0001 to 9999', quoted);
            END IF;
        ELSIF key <> ALL (ARRAY['time', 'datacenter', 'worker', 'sequence']) THEN
            fault := format('unknown layout field "%s"', quoted);
        ELSIF key = ANY (fields) THEN
            fault := format('layout word "%s" repeats a field', quoted);
        ELSIF unit IS NOT NULL OR epoch IS NOT NULL THEN
            fault := format('layout word "%s" is out of order: fields come first, then unit, then epoch', quoted);
        ELSIF fields = '{}' AND key <> 'time' THEN
            fault := format('layout word "%s" comes before "time", which must be the first field', quoted);
        ELSE
            most := CASE key WHEN 'time' THEN 62 ELSE 31 END;
            -- More digits than two are too many, but for zeros in front.
            IF value !~ '^0*[1-9][0-9]?$' OR value::integer > most THEN
                fault := format('width in layout word "%s" is outside the range 1..%s', quoted, most);
            ELSE
                fields := fields || key;
                widths := widths || value::integer;
                total := total + value::integer;
            END IF;
        END IF;
        IF fault IS NOT NULL THEN
            RETURN;
        END IF;
    END LOOP;

    fault := CASE
        WHEN NOT 'time' = ANY (fields) THEN 'layout has no "time"'
        WHEN NOT 'sequence' = ANY (fields) THEN 'layout has no "sequence"'
        WHEN total > 63 THEN format('layout fields add up to %s bits, which exceeds the limit of 63', total)
        WHEN unit IS NULL THEN 'layout has no "unit"'
        WHEN epoch IS NULL THEN 'layout has no "epoch"'
        -- The first instant after those of timestamptz.
        WHEN epoch + power(2::numeric, widths[1]) * unit > 9224318016000000
            THEN format('layout word "time:%s" reaches beyond the last instant of timestamptz', widths[1])
    END;
    IF fault IS NOT NULL THEN
        RETURN;
    END IF;
    parts := ROW(0, 0, 0, 0, 0, 0, 0, 0, unit, epoch, (((1::bigint << (total - 1)) - 1) << 1) + 1,
        (1::bigint << widths[1]) - 1);
    shift := total;
    FOR i IN 1 .. array_length(fields, 1) LOOP
        shift := shift - widths[i];
        CASE fields[i]
            WHEN 'time' THEN
                parts.time_bits := widths[i];
                parts.time_shift := shift;
            WHEN 'datacenter' THEN
                parts.datacenter_bits := widths[i];
                parts.datacenter_shift := shift;
            WHEN 'worker' THEN
                parts.worker_bits := widths[i];
                parts.worker_shift := shift;
            WHEN 'sequence' THEN
                parts.sequence_bits := widths[i];
                parts.sequence_shift := shift;
        END CASE;
    END LOOP;
END
$$;

-- The layout that a text names or spells out.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_layout_parse(layout text) RETURNS @extschema@._snowflake_layout
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    outcome record := @extschema@._snowflake_layout_read(layout);
BEGIN
    IF outcome.fault IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = outcome.fault,
            HINT = CASE WHEN outcome.fault LIKE 'unknown layout "%'
                THEN (SELECT format('The built-in layouts are %s.', string_agg(known.name, ', ' ORDER BY known.place))
                    FROM @extschema@._snowflake_built_in() AS known)
                ELSE (SELECT format('A layout is written like "%s".', known.line)
                    FROM @extschema@._snowflake_built_in() AS known WHERE known.place = 1)
            END;
    END IF;
    RETURN outcome.parts;
END
$$;

-- The same, without a call for the built-in names. The planner puts the expression in place of the
-- function, and computes it if the text is a constant. So all names in it are qualified.
DO $$
DECLARE
    cases text;
BEGIN
    SELECT string_agg(format('WHEN (layout COLLATE pg_catalog."C") OPERATOR(pg_catalog.=) %L THEN %L::@extschema@._snowflake_layout',
            known.name, @extschema@._snowflake_layout_parse(known.line)::text), ' ' ORDER BY known.place)
    INTO cases FROM @extschema@._snowflake_built_in() AS known;
    EXECUTE format('CREATE OR REPLACE FUNCTION @extschema@._snowflake_layout_of(layout text) '
        'RETURNS @extschema@._snowflake_layout LANGUAGE sql IMMUTABLE PARALLEL SAFE AS %L',
        format('SELECT CASE %s ELSE @extschema@._snowflake_layout_parse(layout) END', cases));
END
$$;

-- The fields of a layout, from the high bits to the low.
CREATE OR REPLACE FUNCTION @extschema@.snowflake_layout_fields(layout text)
RETURNS TABLE (field text, bits integer, shift integer, minimum bigint, maximum bigint)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE ROWS 4 SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    l @extschema@._snowflake_layout := @extschema@._snowflake_layout_of(layout);
BEGIN
    RETURN QUERY SELECT named.*, 0::bigint, (1::bigint << named.bits) - 1
    FROM (VALUES ('time', l.time_bits, l.time_shift), ('datacenter', l.datacenter_bits, l.datacenter_shift),
        ('worker', l.worker_bits, l.worker_shift), ('sequence', l.sequence_bits, l.sequence_shift)) AS named (field, bits, shift)
    WHERE named.bits > 0 ORDER BY named.shift DESC;
END
$$;

-- The line that spells a layout out; one layout has one line.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_layout_line(layout text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l @extschema@._snowflake_layout := @extschema@._snowflake_layout_of(layout);
BEGIN
    RETURN (
        SELECT string_agg(shown.field || ':' || shown.bits, ' ' ORDER BY shown.shift DESC)
        FROM @extschema@.snowflake_layout_fields(layout) AS shown
    ) || ' unit:' || @extschema@._snowflake_unit(l.unit_ms)
        || ' epoch:' || replace(@extschema@._snowflake_utc(l.epoch_ms), '.000Z', 'Z');
END
$$;

-- The name of a tick's length.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_unit(ms bigint) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE ms WHEN 1000 THEN '1s' ELSE ms || 'ms' END;
END
$$;

-- The layout as messages show it: the name of a built-in one, the line of any other.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_known_as(layout text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    spelt text := @extschema@._snowflake_layout_line(layout);
BEGIN
    RETURN coalesce((SELECT known.name FROM @extschema@._snowflake_built_in() AS known WHERE known.line = spelt), spelt);
END
$$;

-- Instants

-- The instant that many milliseconds after 1970, for the planner to put in place of the function.
-- Days and the rest are exact, where a product of an interval and a double precision is not. A zone
-- that is an interval depends on no setting; the name UTC does, from PostgreSQL 18 on.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_at(ms bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT pg_catalog.timezone('0'::interval, '1970-01-01 00:00:00'::timestamp without time zone OPERATOR(pg_catalog.+)
        pg_catalog.make_interval(days => (ms OPERATOR(pg_catalog./) 86400000)::integer,
            secs => (ms OPERATOR(pg_catalog.%) 86400000)::double precision OPERATOR(pg_catalog./) 1000::double precision))
$$;

-- An instant's milliseconds since 1970, rounded down, and whether it is later than that. NULL for
-- the infinite ones.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_instant(ts timestamptz, OUT ms bigint, OUT later boolean)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    utc timestamp;
    us_of_day bigint;
BEGIN
    IF isfinite(ts) THEN
        utc := timezone('0'::interval, ts);
        -- A double precision holds a day's microseconds, but not those since 1970.
        us_of_day := round(date_part('epoch', utc::time) * 1000000);
        ms := (utc::date - date '1970-01-01')::bigint * 86400000 + us_of_day / 1000;
        later := us_of_day % 1000 <> 0;
    END IF;
END
$$;

-- An instant for people: always UTC, always with milliseconds; years before 0 with a minus sign.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_utc(ms bigint) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    utc timestamp;
    year integer;
BEGIN
    IF ms >= 9224318016000000 THEN
        RETURN '294277-01-01T00:00:00.000Z'; -- Right after the last timestamp.
    END IF;
    utc := timezone('0'::interval, @extschema@._snowflake_at(ms));
    year := date_part('year', utc);
    IF year < 0 THEN
        year := year + 1; -- The year 0 is 1 BC.
    END IF;
    RETURN CASE WHEN year < 0 THEN '-' ELSE '' END || lpad(abs(year)::text, greatest(4, length(abs(year)::text)), '0')
        || to_char(utc, '-MM-DD"T"HH24:MI:SS.MS"Z"');
END
$$;
$statements$, '@extschema@', schema);
    PERFORM pg_catalog.set_config('search_path', path, true);
END
$edition$;

DO $edition$
DECLARE
    path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
    schema CONSTANT pg_catalog.text := pg_catalog.quote_ident(pg_catalog.current_schema());
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    EXECUTE pg_catalog.replace($statements$
-- Reading ids of a layout that is given. The forms without a layout are in 60-current.sql.

-- Refuses what is not an id of the layout. Its type is that of the expression which calls it.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_refuse_id(id bigint, max_id bigint) RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 1 SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'invalid_parameter_value',
        MESSAGE = format('id %s is outside the layout''s range 0..%s', id, max_id),
        HINT = 'The id may have been drawn with another layout, or by something else.';
END
$$;

-- The planner puts the expression in place of the function, which is why it is not STRICT (NULL
-- gives NULL all the same), and why all names are qualified.
CREATE OR REPLACE FUNCTION @extschema@.snowflake_timestamp(id bigint, layout text) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN id OPERATOR(pg_catalog.>=) 0::bigint AND id OPERATOR(pg_catalog.<=) (@extschema@._snowflake_layout_of(layout)).max_id
        THEN @extschema@._snowflake_at(((id OPERATOR(pg_catalog.>>) (@extschema@._snowflake_layout_of(layout)).time_shift)
            OPERATOR(pg_catalog.*) (@extschema@._snowflake_layout_of(layout)).unit_ms)
            OPERATOR(pg_catalog.+) (@extschema@._snowflake_layout_of(layout)).epoch_ms)
        ELSE @extschema@._snowflake_refuse_id(id, (@extschema@._snowflake_layout_of(layout)).max_id)
    END
$$;

-- A field that the layout lacks is NULL.
CREATE OR REPLACE FUNCTION @extschema@.snowflake_parse(id bigint, layout text, OUT created_at timestamptz,
    OUT datacenter_id integer, OUT worker_id integer, OUT sequence integer, OUT tick bigint)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l @extschema@._snowflake_layout := @extschema@._snowflake_layout_of(layout);
BEGIN
    IF id < 0 OR id > l.max_id THEN
        PERFORM @extschema@._snowflake_refuse_id(id, l.max_id);
    END IF;
    tick := id >> l.time_shift;
    created_at := @extschema@._snowflake_at(tick * l.unit_ms + l.epoch_ms);
    IF l.datacenter_bits > 0 THEN
        datacenter_id := (id >> l.datacenter_shift) & ((1::bigint << l.datacenter_bits) - 1);
    END IF;
    IF l.worker_bits > 0 THEN
        worker_id := (id >> l.worker_shift) & ((1::bigint << l.worker_bits) - 1);
    END IF;
    sequence := (id >> l.sequence_shift) & ((1::bigint << l.sequence_bits) - 1);
END
$$;

-- For people, always in UTC: 2026-11-20T09:28:48.220Z #17 @(3,5)
CREATE OR REPLACE FUNCTION @extschema@.snowflake_format(id bigint, layout text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l @extschema@._snowflake_layout := @extschema@._snowflake_layout_of(layout);
    p record := @extschema@.snowflake_parse(id, layout);
BEGIN
    RETURN @extschema@._snowflake_utc(p.tick * l.unit_ms + l.epoch_ms) || ' #' || p.sequence || CASE
        WHEN p.datacenter_id IS NOT NULL THEN format(' @(%s,%s)', p.datacenter_id, p.worker_id)
        WHEN p.worker_id IS NOT NULL THEN format(' @(%s)', p.worker_id)
        ELSE ''
    END;
END
$$;
$statements$, '@extschema@', schema);
    PERFORM pg_catalog.set_config('search_path', path, true);
END
$edition$;

DO $edition$
DECLARE
    path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
    schema CONSTANT pg_catalog.text := pg_catalog.quote_ident(pg_catalog.current_schema());
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    EXECUTE pg_catalog.replace($statements$
-- Making ids from their parts, and the ids at which a span of time begins and ends.

-- Refuses an instant that the layout cannot hold; NULL is an infinite one.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_refuse_time(ms bigint, l @extschema@._snowflake_layout) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'datetime_field_overflow',
        MESSAGE = CASE WHEN ms IS NULL THEN 'an infinite time is outside the layout''s range'
            ELSE format('time %s is outside the layout''s range', @extschema@._snowflake_utc(ms)) END,
        DETAIL = format('The layout holds times from %s to %s.', @extschema@._snowflake_utc(l.epoch_ms),
            @extschema@._snowflake_utc(l.epoch_ms + l.last_tick * l.unit_ms));
END
$$;

-- A number in its place. 0 suits a layout that lacks the field.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_place(field text, number bigint, bits integer, shift integer) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF bits = 0 THEN
        IF number <> 0 THEN
            RAISE EXCEPTION USING
                ERRCODE = 'invalid_parameter_value',
                MESSAGE = format('%s %s is given, but the layout has no %s field', field, number, field),
                HINT = format('Pass 0 as the %s, or choose another layout.', field);
        END IF;
        RETURN 0;
    END IF;
    IF number IS NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the layout has a %s field, but no %s is given', field, field),
            HINT = format('Use the form of the function that takes %s_id.', field);
    END IF;
    IF number < 0 OR number >= 1::bigint << bits THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('%s %s is outside the layout''s range 0..%s', field, number, (1::bigint << bits) - 1);
    END IF;
    RETURN number << shift;
END
$$;

-- Without a datacenter, that is NULL.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_compose(created_at timestamptz, worker_id integer, sequence integer,
    datacenter_id integer, layout text) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l @extschema@._snowflake_layout := @extschema@._snowflake_layout_of(layout);
    -- Rounded down. An instant before the epoch is refused, so that a division that rounds towards
    -- 0 serves.
    ms bigint := (@extschema@._snowflake_instant(created_at)).ms;
    tick bigint := (ms - l.epoch_ms) / l.unit_ms;
BEGIN
    IF ms IS NULL OR ms < l.epoch_ms OR tick > l.last_tick THEN
        PERFORM @extschema@._snowflake_refuse_time(ms, l);
    END IF;
    RETURN (tick << l.time_shift)
        | @extschema@._snowflake_place('datacenter'::text, datacenter_id::bigint, l.datacenter_bits, l.datacenter_shift)
        | @extschema@._snowflake_place('worker'::text, worker_id::bigint, l.worker_bits, l.worker_shift)
        | @extschema@._snowflake_place('sequence'::text, sequence::bigint, l.sequence_bits, l.sequence_shift);
END
$$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_compose(created_at timestamptz, worker_id integer, sequence integer,
    datacenter_id integer, layout text) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN @extschema@._snowflake_compose(created_at, worker_id, sequence, datacenter_id, layout);
END
$$;

-- The first tick that starts at an instant or later; with "after", after the instant. It may lie
-- outside of the layout.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_first_tick(ts timestamptz, l @extschema@._snowflake_layout, after boolean)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    instant record := @extschema@._snowflake_instant(ts);
    -- The last millisecond that is too early.
    early_ms bigint := instant.ms - l.epoch_ms - CASE WHEN instant.later OR after THEN 0 ELSE 1 END;
BEGIN
    IF NOT isfinite(ts) THEN
        RETURN CASE WHEN ts > '2000-01-01' THEN l.last_tick + 1 ELSE -1 END;
    END IF;
    RETURN early_ms / l.unit_ms - (early_ms % l.unit_ms < 0)::integer + 1;
END
$$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_min(ts timestamptz, layout text) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l @extschema@._snowflake_layout := @extschema@._snowflake_layout_of(layout);
    instant record := @extschema@._snowflake_instant(ts);
    tick bigint := @extschema@._snowflake_first_tick(ts, l, false);
BEGIN
    IF instant.ms IS NULL OR instant.ms < l.epoch_ms OR tick > l.last_tick THEN
        -- Rounded away from the layout's range.
        PERFORM @extschema@._snowflake_refuse_time(instant.ms + (instant.later AND instant.ms >= l.epoch_ms)::integer, l);
    END IF;
    RETURN tick << l.time_shift;
END
$$;

-- These four raise nothing: NULL for a text that is not a layout.

-- The last id before a tick; -1 if there is none.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_last_before(ts timestamptz, layout text, after boolean) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l @extschema@._snowflake_layout := (@extschema@._snowflake_layout_read(layout)).parts;
    tick bigint := @extschema@._snowflake_first_tick(ts, l, after);
BEGIN
    RETURN CASE WHEN tick < 0 THEN -1 WHEN tick > l.last_tick THEN l.max_id ELSE (tick << l.time_shift) - 1 END;
END
$$;

-- The first id after that one; NULL if there is none.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_first_from(ts timestamptz, layout text, after boolean) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l @extschema@._snowflake_layout := (@extschema@._snowflake_layout_read(layout)).parts;
    last bigint := @extschema@._snowflake_last_before(ts, layout, after);
BEGIN
    RETURN CASE WHEN last < l.max_id THEN last + 1 END;
END
$$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_from(ts timestamptz, layout text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT @extschema@._snowflake_first_from(ts, layout, false)';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_after(ts timestamptz, layout text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT @extschema@._snowflake_first_from(ts, layout, true)';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_before(ts timestamptz, layout text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT @extschema@._snowflake_last_before(ts, layout, false)';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_until(ts timestamptz, layout text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT @extschema@._snowflake_last_before(ts, layout, true)';
$statements$, '@extschema@', schema);
    PERFORM pg_catalog.set_config('search_path', path, true);
END
$edition$;

DO $edition$
DECLARE
    path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
    schema CONSTANT pg_catalog.text := pg_catalog.quote_ident(pg_catalog.current_schema());
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    EXECUTE pg_catalog.replace($statements$
-- Ids as short texts: base32 (Douglas Crockford's) and base62, both in the order of bytes.

-- The alphabet of an encoding, the text of the largest id, and the length of that and all others.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_encoding(encoding text, OUT symbols text, OUT largest text, OUT length integer)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    CASE encoding COLLATE "C"
        WHEN 'base32' THEN
            symbols := '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
            largest := '7ZZZZZZZZZZZZ';
            length := 13;
        WHEN 'base62' THEN
            symbols := '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
            largest := 'AzL8n0Y58m7';
            length := 11;
        ELSE
            RAISE EXCEPTION USING
                ERRCODE = 'invalid_parameter_value',
                MESSAGE = format('unknown encoding "%s"', @extschema@._snowflake_quoted(encoding)),
                HINT = 'The encodings are base32 and base62.';
    END CASE;
END
$$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_encode(id bigint, encoding text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    e record := @extschema@._snowflake_encoding(encoding);
    base bigint := char_length(e.symbols);
    rest bigint := id;
    encoded text := '';
BEGIN
    IF id < 0 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('id %s is outside the range 0..9223372036854775807', id);
    END IF;
    FOR i IN 1 .. e.length LOOP
        encoded := substr(e.symbols, (rest % base)::integer + 1, 1) || encoded;
        rest := rest / base;
    END LOOP;
    RETURN encoded;
END
$$;

-- A character in an error: itself if it is visible on its own, else its code point.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_character(symbol text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF ascii(symbol) > 127 AND current_setting('server_encoding') <> 'UTF8' THEN
        RETURN 'non-ASCII character';
    END IF;
    RETURN CASE
        -- Controls, combining marks, spaces but the common one, and marks of direction.
        WHEN ascii(symbol) NOT BETWEEN 32 AND 126
            AND (ascii(symbol) < 161 OR ascii(symbol) = 173 OR ascii(symbol) BETWEEN 768 AND 879
                OR ascii(symbol) BETWEEN 8192 AND 8207 OR ascii(symbol) BETWEEN 8232 AND 8239
                OR ascii(symbol) BETWEEN 8287 AND 8303 OR ascii(symbol) IN (12288, 65279))
        THEN format('character U+%s', lpad(upper(to_hex(ascii(symbol))), 4, '0'))
        ELSE format('character "%s"', symbol)
    END;
END
$$;

-- A character that is not a symbol is reported first, then a wrong length, then a number that is
-- too large. Positions count the text's characters from 1, hyphens included.
CREATE OR REPLACE FUNCTION @extschema@.snowflake_decode(text text, encoding text) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    e record := @extschema@._snowflake_encoding(encoding);
    base bigint := char_length(e.symbols);
    is_base32 boolean := e.length = 13;
    readable integer := char_length(substring(text FROM
        CASE WHEN is_base32 THEN '^[0-9A-TV-Za-tv-z-]*' ELSE '^[0-9A-Za-z]*' END));
    symbols text;
    place integer;
    id bigint := 0;
BEGIN
    IF readable < char_length(text) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('%s at position %s is not a %s symbol',
                @extschema@._snowflake_character(substr(text, readable + 1, 1)), readable + 1, encoding),
            DETAIL = format('The symbols are %s.', e.symbols) || CASE WHEN is_base32
                THEN ' Lower case is read as upper case, I and L as 1, and O as 0. Hyphens are ignored, and there is no check symbol.'
                ELSE '' END;
    END IF;
    symbols := CASE WHEN is_base32
        THEN translate(text, 'abcdefghjkmnpqrstvwxyziIlLoO-', 'ABCDEFGHJKMNPQRSTVWXYZ111100') ELSE text END;
    IF char_length(symbols) <> e.length THEN
        place := char_length(text);
        IF char_length(symbols) > e.length THEN
            -- Of the first symbol too many.
            place := char_length(substring(text FROM format('^(?:-*[^-]){%s}-*', e.length))) + 1;
        END IF;
        PERFORM @extschema@._snowflake_raise('22023'::text,
            format('%s text "%s" %s position %s, with %s symbols instead of %s', encoding,
                @extschema@._snowflake_quoted(text),
                CASE WHEN char_length(symbols) < e.length THEN 'ends after' ELSE 'continues at' END,
                place, char_length(symbols), e.length),
            CASE WHEN is_base32 THEN 'Hyphens do not count, and there is no check symbol.' END,
            CASE WHEN char_length(symbols) < e.length THEN 'Texts are padded with zeros on the left.' END);
    END IF;
    IF symbols > e.largest COLLATE "C" THEN
        -- Of the first symbol with which the text is above the largest one, whatever follows.
        place := 1;
        WHILE left(symbols, place) <= left(e.largest, place) COLLATE "C" LOOP
            place := place + 1;
        END LOOP;
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('%s text "%s" exceeds the largest id at position %s', encoding,
                @extschema@._snowflake_quoted(text), char_length(substring(text FROM format('^(?:-*[^-]){%s}', place)))),
            DETAIL = format('The largest id, 9223372036854775807, is "%s".', e.largest);
    END IF;
    FOR i IN 1 .. e.length LOOP
        id := id * base + (strpos(e.symbols, substr(symbols, i, 1)) - 1);
    END LOOP;
    RETURN id;
END
$$;
$statements$, '@extschema@', schema);
    PERFORM pg_catalog.set_config('search_path', path, true);
END
$edition$;

DO $edition$
DECLARE
    path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
    schema CONSTANT pg_catalog.text := pg_catalog.quote_ident(pg_catalog.current_schema());
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    EXECUTE pg_catalog.replace($statements$
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
$template$
-- Refuses objects with the names of the edition that belong to another role, which a role with
-- CREATE on the schema can make. Else the role that installs would run what they contain, and
-- CREATE OR REPLACE would leave them to their owner. What is the installing role's, such a role can
-- neither replace nor drop. An overload that such a role adds after the check is not called,
-- because each call in these files has exactly the types of what it calls.
DECLARE
    names CONSTANT name[] := '{snowflake_word, _snowflake_word_before, _snowflake_lock, snowflake_stat, snowflake_layouts, _snowflake_layout, snowflake_public_keys}';
    object text;
    owner name;
BEGIN
    -- With an older snapshot than the command's, the check would miss what was made since.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'feature_not_supported',
            MESSAGE = format('the SQL edition cannot be installed with isolation level "%s"', current_setting('transaction_isolation')),
            HINT = 'Run its file, and snowflake_install(), in a transaction with READ COMMITTED.';
    END IF;
    SELECT pg_describe_object(found.class, found.id, 0), r.rolname INTO object, owner
    FROM (
        SELECT 'pg_proc'::regclass, p.oid, p.proowner, p.pronamespace FROM pg_proc AS p WHERE p.proname ~ '^_?snowflake_'
        UNION ALL
        SELECT 'pg_class'::regclass, c.oid, c.relowner, c.relnamespace FROM pg_class AS c WHERE c.relname = ANY (names)
        UNION ALL
        SELECT 'pg_type'::regclass, t.oid, t.typowner, t.typnamespace FROM pg_type AS t WHERE t.typname = ANY (names)
    ) AS found (class, id, owner, namespace), pg_roles AS r
    WHERE found.namespace = '@extschema@'::regnamespace AND r.oid = found.owner AND r.rolname <> current_user
    ORDER BY found.class DESC, found.id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%s belongs to role "%s"', object, owner),
            DETAIL = format('All objects of the SQL edition belong to the role that runs its file. The current role is "%s".', current_user),
            HINT = format('If that role has installed the edition, run SET ROLE %s, and repeat the command. Else drop the object, or '
                'install into a schema in which no other role can create objects.', quote_ident(owner));
    END IF;
END
$template$
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
$template$
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
$template$,
$template$
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
$template$,
$template$
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
$template$,
$template$
-- The forms without a layout, and what there is. snowflake_install() makes these, too: the layout
-- of the installation is a constant in them. They are STABLE, because another installation may
-- change it.

CREATE OR REPLACE FUNCTION @extschema@.snowflake_timestamp(id bigint) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $f$SELECT @extschema@.snowflake_timestamp(id, @layout@)$f$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_parse(id bigint, OUT created_at timestamptz, OUT datacenter_id integer,
    OUT worker_id integer, OUT sequence integer, OUT tick bigint)
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $f$
    SELECT p.created_at, p.datacenter_id, p.worker_id, p.sequence, p.tick FROM @extschema@.snowflake_parse(id, @layout@) AS p
$f$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_format(id bigint) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE AS $f$SELECT @extschema@.snowflake_format(id, @layout@)$f$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_compose(created_at timestamptz, worker_id integer, sequence integer)
RETURNS bigint LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $f$
    SELECT @extschema@._snowflake_compose(created_at, worker_id, sequence, NULL::integer, @layout@)
$f$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_compose(created_at timestamptz, worker_id integer, sequence integer,
    datacenter_id integer) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE AS $f$
    SELECT @extschema@.snowflake_compose(created_at, worker_id, sequence, datacenter_id, @layout@)
$f$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_min(ts timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE AS $f$SELECT @extschema@.snowflake_min(ts, @layout@)$f$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_layout_fields()
RETURNS TABLE (field text, bits integer, shift integer, minimum bigint, maximum bigint)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 4 AS $f$SELECT f.* FROM @extschema@.snowflake_layout_fields(@layout@) AS f$f$;

-- What was installed.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_installed(OUT worker_id integer, OUT datacenter_id integer, OUT layout text,
    OUT max_borrow integer, OUT settled boolean)
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
    SELECT @worker_id@::integer, @datacenter_id@::integer, @layout@, @max_borrow@::integer, @settled@::boolean
$f$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_layouts()
RETURNS TABLE (name text, specification text, unit text, epoch timestamptz, first_instant timestamptz,
    last_instant timestamptz, ids_per_second bigint, min_worker_id integer, max_worker_id integer, below_2_53 boolean)
LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 14 SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT known.name, @extschema@._snowflake_layout_line(known.line), @extschema@._snowflake_unit(l.unit_ms),
        @extschema@._snowflake_at(l.epoch_ms), @extschema@._snowflake_at(l.epoch_ms),
        @extschema@._snowflake_at(l.epoch_ms + l.last_tick * l.unit_ms),
        1000 / l.unit_ms * (1::bigint << l.sequence_bits),
        CASE WHEN l.worker_bits > 0 THEN 0 END,
        CASE WHEN l.worker_bits > 0 THEN ((1::bigint << l.worker_bits) - 1)::integer END,
        l.max_id < 9007199254740992
    FROM (SELECT b.place, b.name, b.line FROM @extschema@._snowflake_built_in() AS b UNION ALL SELECT 99, 'current', @layout@) AS known,
        @extschema@._snowflake_layout_of(known.line) AS l
    ORDER BY known.place;
END
$f$;

CREATE OR REPLACE VIEW @extschema@.snowflake_layouts AS SELECT * FROM @extschema@.snowflake_layouts();
GRANT SELECT ON @extschema@.snowflake_layouts TO PUBLIC;

-- last_id is the greatest id that may have been drawn, and last_instant is the end of what this
-- edition draws with the layout.
CREATE OR REPLACE FUNCTION @extschema@._snowflake_stat(OUT last_id bigint, OUT last_created_at timestamptz, OUT ahead_ms bigint,
    OUT datacenter_id integer, OUT worker_id integer, OUT layout text, OUT last_instant timestamptz, OUT settled boolean)
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
    word bigint;
BEGIN
    SELECT last_value - (NOT is_called)::integer INTO STRICT word FROM @extschema@.snowflake_word;
    last_id := ((word >> @k@) << @time_shift@) | (least(word & @word_mask@, @sequence_mask@) << @sequence_shift@) | @fixed@;
    last_created_at := @extschema@._snowflake_at(@epoch_ms@ + (word >> @k@) * @unit_ms@);
    ahead_ms := greatest(0, ceil(date_part('epoch', last_created_at - clock_timestamp()) * 1000));
    datacenter_id := @datacenter_id@;
    worker_id := @worker_id@;
    layout := @layout@;
    last_instant := @extschema@._snowflake_at(@last_ms@);
    settled := @settled@;
END
$f$;
REVOKE ALL ON FUNCTION @extschema@._snowflake_stat() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @extschema@._snowflake_stat() TO pg_monitor;

CREATE OR REPLACE VIEW @extschema@.snowflake_stat AS SELECT * FROM @extschema@._snowflake_stat();
GRANT SELECT ON @extschema@.snowflake_stat TO pg_monitor;

COMMENT ON FUNCTION @extschema@.snowflake_next() IS 'draw the next id: unique in this database, ordered by time';
COMMENT ON FUNCTION @extschema@.snowflake_batch(integer) IS 'draw a number of ids, ascending';
COMMENT ON FUNCTION @extschema@.snowflake_last() IS 'the last id drawn in this session';
COMMENT ON FUNCTION @extschema@.snowflake_advance(bigint) IS 'never again draw an id at or below the given one in this database';
COMMENT ON PROCEDURE @extschema@.snowflake_settled(bigint) IS
    'the id up to which statements after this one miss nothing: all ids at or below it belong to transactions that have ended';
COMMENT ON SEQUENCE @extschema@.snowflake_word IS 'the last tick and sequence drawn: never to be set by hand';
COMMENT ON VIEW @extschema@.snowflake_layouts IS 'the built-in layouts, and one row, current, for the installation''s';
COMMENT ON VIEW @extschema@.snowflake_stat IS 'the last id, how far it is ahead of the clock, and what is installed';
$template$
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
$statements$, '@extschema@', schema);
    PERFORM pg_catalog.set_config('search_path', path, true);
END
$edition$;

DO $edition$
DECLARE
    path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
    schema CONSTANT pg_catalog.text := pg_catalog.quote_ident(pg_catalog.current_schema());
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    EXECUTE pg_catalog.replace($statements$
-- Again, because others may have made objects while the file ran.

DO
$template$
-- Refuses objects with the names of the edition that belong to another role, which a role with
-- CREATE on the schema can make. Else the role that installs would run what they contain, and
-- CREATE OR REPLACE would leave them to their owner. What is the installing role's, such a role can
-- neither replace nor drop. An overload that such a role adds after the check is not called,
-- because each call in these files has exactly the types of what it calls.
DECLARE
    names CONSTANT name[] := '{snowflake_word, _snowflake_word_before, _snowflake_lock, snowflake_stat, snowflake_layouts, _snowflake_layout, snowflake_public_keys}';
    object text;
    owner name;
BEGIN
    -- With an older snapshot than the command's, the check would miss what was made since.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'feature_not_supported',
            MESSAGE = format('the SQL edition cannot be installed with isolation level "%s"', current_setting('transaction_isolation')),
            HINT = 'Run its file, and snowflake_install(), in a transaction with READ COMMITTED.';
    END IF;
    SELECT pg_describe_object(found.class, found.id, 0), r.rolname INTO object, owner
    FROM (
        SELECT 'pg_proc'::regclass, p.oid, p.proowner, p.pronamespace FROM pg_proc AS p WHERE p.proname ~ '^_?snowflake_'
        UNION ALL
        SELECT 'pg_class'::regclass, c.oid, c.relowner, c.relnamespace FROM pg_class AS c WHERE c.relname = ANY (names)
        UNION ALL
        SELECT 'pg_type'::regclass, t.oid, t.typowner, t.typnamespace FROM pg_type AS t WHERE t.typname = ANY (names)
    ) AS found (class, id, owner, namespace), pg_roles AS r
    WHERE found.namespace = '@extschema@'::regnamespace AND r.oid = found.owner AND r.rolname <> current_user
    ORDER BY found.class DESC, found.id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%s belongs to role "%s"', object, owner),
            DETAIL = format('All objects of the SQL edition belong to the role that runs its file. The current role is "%s".', current_user),
            HINT = format('If that role has installed the edition, run SET ROLE %s, and repeat the command. Else drop the object, or '
                'install into a schema in which no other role can create objects.', quote_ident(owner));
    END IF;
END
$template$
;
$statements$, '@extschema@', schema);
    PERFORM pg_catalog.set_config('search_path', path, true);
END
$edition$;
