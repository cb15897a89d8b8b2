-- The layouts and their fields.
SET timezone = 'UTC';
SET datestyle = 'ISO';
SELECT name, specification FROM snowflake_layouts;
SELECT name, unit, epoch, last_instant, ids_per_second, min_worker_id, max_worker_id, below_2_53 FROM snowflake_layouts;
SELECT snowflake_timestamp(1, 'twiter');
SELECT count(*) FROM snowflake_layouts WHERE first_instant <> epoch;
SELECT * FROM snowflake_layout_fields();
SELECT * FROM snowflake_layout_fields('twitter');
SELECT * FROM snowflake_layout_fields('sonyflake');
SELECT * FROM snowflake_layout_fields('time:30 sequence:1 unit:100ms epoch:2025-01-01T00:00:00Z');
