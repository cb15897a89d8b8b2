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
