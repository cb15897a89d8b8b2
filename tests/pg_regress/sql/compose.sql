-- Composing ids for back-filling: the inverse of reading them.
SET timezone = 'UTC';
SET datestyle = 'ISO';

SELECT snowflake_compose('2026-11-20 09:28:48.22Z', 5, 17) AS id \gset
SELECT snowflake_format(:id);
SELECT snowflake_compose('2022-06-28 16:07:40.105Z', 26, 0, 11, 'twitter');
SELECT snowflake_compose('2020-08-12 17:35:29.98Z', 1051, 0, 0, 'sonyflake');
SELECT snowflake_compose('2026-11-20 09:28:48.22Z', 5, 17, 0) = :id AS datacenter_0_for_none;

-- The time is rounded down to a tick.
SELECT snowflake_compose('2026-11-20 09:28:48.220999Z', 5, 17) = :id AS same_tick;
SELECT snowflake_format(snowflake_compose('2026-11-20 09:28:48.999Z', 5, 17, 0, 'js53'), 'js53');

-- There and back for every built-in layout, at both ends of its time and of its numbers.
SELECT bool_and(snowflake_compose(created_at, coalesce(worker_id, 0), sequence, coalesce(datacenter_id, 0),
       specification) = id) AS same, count(*) / count(DISTINCT name) AS ids_of_each
FROM snowflake_layouts l,
     LATERAL (SELECT (2::numeric ^ sum(bits) - 1)::bigint AS largest FROM snowflake_layout_fields(l.specification)) f,
     LATERAL (VALUES (0), (1), (largest / 3), (largest / 2), (largest - 1), (largest)) i(id),
     snowflake_parse(id, specification);
