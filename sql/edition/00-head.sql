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
