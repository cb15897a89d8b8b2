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
