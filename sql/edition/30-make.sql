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
