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
