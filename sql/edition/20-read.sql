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
