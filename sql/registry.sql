-- Makes the registry of a fleet: the records from which servers lease their worker numbers. Run it
-- in any database of any PostgreSQL 13 or later that all servers of the fleet reach:
--
--     psql -v ON_ERROR_STOP=1 -d ids -f registry.sql
--
-- It needs a role that may create a schema, and nothing preloaded. That role owns the registry, and
-- calls the functions for operators. The servers need a role of their own, which may do no more
-- than this:
--
--     CREATE ROLE snowflake LOGIN;
--     ALTER ROLE snowflake SET statement_timeout = '10s';
--     GRANT USAGE ON SCHEMA snowflake_registry TO snowflake;
--     GRANT EXECUTE ON FUNCTION snowflake_registry.read, snowflake_registry.swap_fleet,
--         snowflake_registry.swap_number, snowflake_registry.reserve_blocks,
--         snowflake_registry.return_blocks TO snowflake;
--
-- Run it again with each new version of snowflake_id, before the servers have that version. It then
-- replaces functions, views, comments and triggers, and adds tables. Records, the fleet's uuid and
-- granted rights stay. It says what it has changed, and which GRANT a role of servers lacks.
--
-- The schema's owner runs it. Another role, such as a superuser, has to name the owner, which it
-- then becomes. Otherwise a role that may create a schema could leave one here that takes over the
-- role that runs this:
--
--     psql -v ON_ERROR_STOP=1 -v owner=dba -d ids -f registry.sql
--
-- With -v owner=... a new registry belongs to that role, too.
--
-- A server gives a statement up after five seconds. The timeout ends it in the registry, too, so
-- that no session stays behind each time.
--
-- A registry that was lost, and is made again, must not lease a number before the lost leases
-- have ended. So say how long they may have been, and how far clocks may have been apart:
--
--     psql -v lost=true -v lease='10 min' -v skew='1 min' -d ids -f registry.sql
--
-- The servers decide, and the registry compares and writes (src/core/registry.rs, src/registry).
-- These rules it also checks by itself, against mistakes and against a thief of the servers'
-- password. Every server reads all records, so a thief can still end another server's lease.
--
-- * Numbers: the leases of one number never overlap: a new one begins at or after the end of the
--   one before. It is of a number in the range, of the fleet's generation, and not before the
--   freeze. Only its holder moves its end. It ends at most the longest lease and two skews after
--   the registry's clock, also if it is empty. Its count grows, and leaves room for the next one.
--   What an operator keeps with reserve() stays kept.
-- * Fleets: servers bring layout and range once, and the default limits. They change no limit and
--   nothing else that an operator sets. A registry that shows another store or timeline begins a
--   generation, unless an operator vouches for its standby. The generation grows by the timelines.
--   Its freeze is as long as the limits need, and no longer than the greatest limits need.
-- * Tags: the next value rises by the jumps of the generations since, and by at most 10,000,000,000
--   and a block. It falls only for the last server that has reserved a block: once, by at most two
--   blocks, and to none of another server's values.
-- * Nothing is deleted, and no table is read but by these functions.
--
-- tests/cluster/tests/servers/fleet_security.rs and registry_tags.rs try to break each of them with
-- the servers' role.
--
-- Order of locks: a change of a number locks the fleet's row FOR SHARE, and then the number's row.
-- A change of the fleet locks the fleet's row FOR UPDATE at once. A transaction that first shared
-- that lock, and then wanted it alone, would deadlock with another one like it.
--
-- Instants are milliseconds since 1970. A bigint may stand for an unsigned number, by its bits.

\set ON_ERROR_STOP on
\set QUIET on
-- Before anything else: the database's owner may have set another path, on which functions and
-- operators take the place of PostgreSQL's own.
SET search_path = pg_catalog, pg_temp;
\pset format unaligned
\pset tuples_only on

\if :{?lost}
\else
    \set lost false
\endif
SELECT to_regnamespace('snowflake_registry') IS NOT NULL AS is_there,
    pg_is_in_recovery() AS in_recovery, NOT current_setting('fsync')::boolean AS fsync_off \gset

\if :in_recovery
    \warn 'registry.sql: this server is a standby. Run it on the primary.'
    DO $$ BEGIN RAISE EXCEPTION 'nothing was made'; END $$;
\endif
\if :fsync_off
    \warn 'registry.sql: "fsync" is off here, so a crash could make a registry lose leases. Set it to on first.'
    DO $$ BEGIN RAISE EXCEPTION 'nothing was made'; END $$;
\endif
\if :{?owner}
\else
    SELECT current_user AS owner \gset
\endif
\if :is_there
    -- Nothing in the schema is called, not even as its owner: a function can RESET ROLE. So the
    -- version is what the function's source says. (Replaced by this file, it would hide which
    -- registry this is.)
    SELECT n.nspowner <> coalesce(to_regrole(quote_ident(:'owner')), 0) AS is_of_other, n.nspowner::regrole AS real_owner
    FROM pg_namespace n WHERE n.nspname = 'snowflake_registry' \gset
    \if :is_of_other
        \warn 'registry.sql: schema snowflake_registry belongs to role' :real_owner', and not to' :owner'.'
        \warn 'If you trust that role with the registry, run this file as that role, or add -v owner=...'
        DO $$ BEGIN RAISE EXCEPTION 'nothing was changed'; END $$;
    \endif
    SELECT coalesce(max(substring(p.prosrc FROM '^\s*SELECT ([0-9]{1,9})\s*$')), 'unknown') AS was_version,
        coalesce(max(p.prosrc), '') <> 'SELECT 1' AS is_other
    FROM pg_proc p
    WHERE p.pronamespace = to_regnamespace('snowflake_registry') AND p.proname = 'version' AND p.pronargs = 0 \gset
    \if :is_other
        \warn 'registry.sql: this database has a registry of version' :was_version', and this file is for version 1. Use the file of the snowflake_id that the servers have.'
        DO $$ BEGIN RAISE EXCEPTION 'nothing was changed'; END $$;
    \endif
    \if :lost
        \warn 'registry.sql: "lost" is for a registry that is made anew. For one that was restored, call snowflake_registry.restored().'
        DO $$ BEGIN RAISE EXCEPTION 'nothing was changed'; END $$;
    \endif
\endif
\if :lost
    \if :{?lease}
    \else
        \warn 'registry.sql: "lost" also needs the fleet''s longest lease, such as -v lease=''10 min''.'
        DO $$ BEGIN RAISE EXCEPTION 'nothing was made'; END $$;
    \endif
    \if :{?skew}
    \else
        \warn 'registry.sql: "lost" also needs how far clocks may be apart, such as -v skew=''1 min''.'
        DO $$ BEGIN RAISE EXCEPTION 'nothing was made'; END $$;
    \endif
\endif

-- What the schema has, each object with all that makes it. A query, because it is asked twice.
\set contents '(SELECT coalesce(json_object_agg(o.name, o.value), ''{}'') FROM (SELECT format(''function %s(%s)'', p.proname, pg_get_function_identity_arguments(p.oid)), concat(pg_get_functiondef(p.oid), obj_description(p.oid, ''pg_proc'')) FROM pg_proc p WHERE p.pronamespace = to_regnamespace(''snowflake_registry'') AND p.prokind = ''f'' UNION ALL SELECT format(''%s %s'', CASE c.relkind WHEN ''v'' THEN ''view'' ELSE ''table'' END, c.relname), concat(CASE c.relkind WHEN ''v'' THEN pg_get_viewdef(c.oid) END, obj_description(c.oid, ''pg_class''), (SELECT string_agg(concat(a.attname, a.atttypid, a.attnotnull, pg_get_expr(d.adbin, d.adrelid), col_description(a.attrelid, a.attnum)), '' '' ORDER BY a.attnum) FROM pg_attribute a LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum) WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), (SELECT string_agg(pg_get_triggerdef(t.oid), '' '' ORDER BY t.tgname) FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal)) FROM pg_class c WHERE c.relnamespace = to_regnamespace(''snowflake_registry'') AND c.relkind IN (''r'', ''v'')) AS o (name, value))'

BEGIN;

-- That a table or a trigger is there, or not there yet, is not worth a notice.
SET LOCAL client_min_messages = warning;

\if :is_there
    -- What is new belongs to the registry's owner, too: functions that run with other rights could
    -- not read its tables. It stays so up to the end. And where this reads a table, no policy runs.
    SET LOCAL ROLE :"owner";
    SET LOCAL row_security = off;
    -- Servers see the old file or this one. They wait meanwhile, but not for a session that holds
    -- this up. All changes lock this table first.
    SET LOCAL lock_timeout = '3s';
    LOCK TABLE snowflake_registry.fleets IN ACCESS EXCLUSIVE MODE;
    -- What there was, to say what this has changed.
    SELECT :contents AS was \gset
\else
    CREATE SCHEMA snowflake_registry AUTHORIZATION :"owner";
    SET LOCAL ROLE :"owner";
\endif

COMMENT ON SCHEMA snowflake_registry IS
    'registry of snowflake_id: which server may draw ids with which worker number, and for which time';

CREATE OR REPLACE FUNCTION snowflake_registry.version() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 1';

COMMENT ON FUNCTION snowflake_registry.version() IS
    'version of the registry, which servers compare with the one that they need';

-- What this server is

CREATE OR REPLACE FUNCTION snowflake_registry.now_ms() RETURNS bigint
LANGUAGE sql VOLATILE AS $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

COMMENT ON FUNCTION snowflake_registry.now_ms() IS
    'the registry''s clock, in milliseconds since 1970';

CREATE OR REPLACE FUNCTION snowflake_registry.incarnation(OUT store bigint, OUT timeline bigint)
LANGUAGE sql VOLATILE AS $$
    SELECT s.system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
    FROM pg_control_system() s
$$;

COMMENT ON FUNCTION snowflake_registry.incarnation() IS
    'which life of which server this is: system identifier and timeline; a failover and a restore change it';

CREATE OR REPLACE FUNCTION snowflake_registry.new_version() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT ('x' || right(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint
$$;

COMMENT ON FUNCTION snowflake_registry.new_version() IS
    'a random number, for a change of a fleet''s record';

CREATE OR REPLACE FUNCTION snowflake_registry.instant(ms bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    -- What no calendar of PostgreSQL holds is infinitely far away.
    SELECT CASE WHEN ms < -210866803200000 THEN '-infinity' WHEN ms > 9224318015999999 THEN 'infinity'
        ELSE to_timestamp(ms / 1000.0) END
$$;

COMMENT ON FUNCTION snowflake_registry.instant(bigint) IS
    'milliseconds since 1970 as timestamptz';

CREATE OR REPLACE FUNCTION snowflake_registry.ms(span interval) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT ceil(extract(epoch FROM span) * 1000)::bigint $$;

COMMENT ON FUNCTION snowflake_registry.ms(interval) IS
    'an interval in milliseconds, rounded up';

-- Records

CREATE TABLE IF NOT EXISTS snowflake_registry.fleets (
    name text PRIMARY KEY CHECK (name <> ''),
    uuid uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    layout bigint,
    backup boolean,
    first_worker bigint CHECK (first_worker >= 0),
    last_worker bigint CHECK (last_worker >= first_worker),
    loses_nothing boolean NOT NULL DEFAULT false,
    closed boolean NOT NULL DEFAULT false,
    longest_ms bigint NOT NULL DEFAULT 0 CHECK (longest_ms >= 0),
    skew_ms bigint NOT NULL DEFAULT 0 CHECK (skew_ms >= 0),
    grace_ms bigint NOT NULL DEFAULT 0 CHECK (grace_ms >= 0),
    store bigint NOT NULL,
    timeline bigint NOT NULL,
    generation bigint NOT NULL DEFAULT 1,
    horizon_ms bigint NOT NULL DEFAULT -9223372036854775808,
    freeze_ms bigint NOT NULL DEFAULT -9223372036854775808,
    version bigint NOT NULL DEFAULT snowflake_registry.new_version(),
    lease_ms bigint NOT NULL DEFAULT 0 CHECK (lease_ms >= 0),
    clock_skew_ms bigint NOT NULL DEFAULT 0 CHECK (clock_skew_ms >= 0),
    CHECK ((layout IS NULL) = (backup IS NULL)),
    CHECK ((first_worker IS NULL) = (last_worker IS NULL))
) WITH (fillfactor = 50);

-- An earlier build of this file lacks these.
ALTER TABLE snowflake_registry.fleets ADD COLUMN IF NOT EXISTS lease_ms bigint NOT NULL DEFAULT 0 CHECK (lease_ms >= 0),
    ADD COLUMN IF NOT EXISTS clock_skew_ms bigint NOT NULL DEFAULT 0 CHECK (clock_skew_ms >= 0);

COMMENT ON TABLE snowflake_registry.fleets IS 'one record for each fleet';
COMMENT ON COLUMN snowflake_registry.fleets.name IS 'name of the fleet (snowflake_id.fleet)';
COMMENT ON COLUMN snowflake_registry.fleets.uuid IS 'which fleet; a running server refuses another one than it has first read';
COMMENT ON COLUMN snowflake_registry.fleets.layout IS
    'fingerprint of the ids'' layout; NULL until the first server brings its own';
COMMENT ON COLUMN snowflake_registry.fleets.backup IS
    'whether each server also has a backup number; NULL until the first server brings its own';
COMMENT ON COLUMN snowflake_registry.fleets.first_worker IS
    'first number that may be leased; NULL until the first server brings all of its layout''s';
COMMENT ON COLUMN snowflake_registry.fleets.last_worker IS 'last number that may be leased';
COMMENT ON COLUMN snowflake_registry.fleets.loses_nothing IS
    'whether an operator vouches that a failover of the registry loses nothing';
COMMENT ON COLUMN snowflake_registry.fleets.closed IS
    'whether nothing is leased or renewed, because the registry is being moved';
COMMENT ON COLUMN snowflake_registry.fleets.longest_ms IS
    'longest that a lease may be, in milliseconds; 0 until the first server writes ten minutes';
COMMENT ON COLUMN snowflake_registry.fleets.skew_ms IS
    'how far clocks may be apart at most, in milliseconds; 0 until the first server writes a minute';
COMMENT ON COLUMN snowflake_registry.fleets.grace_ms IS
    'for how long after the registry''s start no number is acquired, in milliseconds';
COMMENT ON COLUMN snowflake_registry.fleets.store IS 'system identifier of the registry when this record was written';
COMMENT ON COLUMN snowflake_registry.fleets.timeline IS 'timeline of the registry when this record was written';
COMMENT ON COLUMN snowflake_registry.fleets.generation IS 'how often the registry may have lost leases or blocks';
COMMENT ON COLUMN snowflake_registry.fleets.horizon_ms IS
    'records of an older generation that end at or before this may have changed hands, in milliseconds since 1970';
COMMENT ON COLUMN snowflake_registry.fleets.freeze_ms IS
    'numbers of an older generation are leased from here on, in milliseconds since 1970';
COMMENT ON COLUMN snowflake_registry.fleets.version IS 'another random number with each change of this record';
COMMENT ON COLUMN snowflake_registry.fleets.lease_ms IS
    'how long leases are, in milliseconds, up to longest_ms; 0 for ten minutes';
COMMENT ON COLUMN snowflake_registry.fleets.clock_skew_ms IS
    'how far clocks may be apart now, in milliseconds, up to skew_ms; 0 for a minute';

CREATE TABLE IF NOT EXISTS snowflake_registry.numbers (
    fleet text NOT NULL REFERENCES snowflake_registry.fleets,
    datacenter integer NOT NULL CHECK (datacenter >= -1),
    worker bigint NOT NULL CHECK (worker >= 0),
    holder uuid NOT NULL,
    nonce bigint NOT NULL,
    count bigint NOT NULL,
    server bigint NOT NULL,
    from_ms bigint NOT NULL,
    until_ms bigint NOT NULL CHECK (until_ms >= from_ms),
    generation bigint NOT NULL,
    renewed_ms bigint NOT NULL,
    offset_ms bigint NOT NULL,
    host text NOT NULL,
    port integer NOT NULL,
    cluster_name text NOT NULL,
    version text NOT NULL,
    PRIMARY KEY (fleet, datacenter, worker)
) WITH (fillfactor = 50);

COMMENT ON TABLE snowflake_registry.numbers IS
    'the last lease of each number that was ever leased; rows are never deleted';
COMMENT ON COLUMN snowflake_registry.numbers.fleet IS 'name of the fleet';
COMMENT ON COLUMN snowflake_registry.numbers.datacenter IS 'datacenter number, -1 in a layout without that field';
COMMENT ON COLUMN snowflake_registry.numbers.worker IS 'worker number';
COMMENT ON COLUMN snowflake_registry.numbers.holder IS 'random name of the lease';
COMMENT ON COLUMN snowflake_registry.numbers.nonce IS 'another random number with each change of this record';
COMMENT ON COLUMN snowflake_registry.numbers.count IS 'greater with each change of this record';
COMMENT ON COLUMN snowflake_registry.numbers.server IS 'fingerprint of the server''s host and port';
COMMENT ON COLUMN snowflake_registry.numbers.from_ms IS 'start of the lease''s first tick, in milliseconds since 1970';
COMMENT ON COLUMN snowflake_registry.numbers.until_ms IS 'end of the lease''s last tick, in milliseconds since 1970';
COMMENT ON COLUMN snowflake_registry.numbers.generation IS 'the fleet''s generation when the lease was written last';
COMMENT ON COLUMN snowflake_registry.numbers.renewed_ms IS
    'the registry''s clock at that time, in milliseconds since 1970';
COMMENT ON COLUMN snowflake_registry.numbers.offset_ms IS
    'how far the server''s clock was ahead of the registry''s, in milliseconds';
COMMENT ON COLUMN snowflake_registry.numbers.host IS 'host name of the server';
COMMENT ON COLUMN snowflake_registry.numbers.port IS 'port of the server';
COMMENT ON COLUMN snowflake_registry.numbers.cluster_name IS 'cluster_name of the server';
COMMENT ON COLUMN snowflake_registry.numbers.version IS 'version of snowflake_id on the server';

CREATE OR REPLACE FUNCTION snowflake_registry.keep_numbers() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'records of numbers cannot be deleted',
        DETAIL = 'Without the end of its last lease, a number could be leased for ids that were drawn already.',
        HINT = 'A number is free by itself when its lease has ended. To keep it from being leased, call snowflake_registry.set_range().';
END $$;

COMMENT ON FUNCTION snowflake_registry.keep_numbers() IS
    'refuse to delete records of numbers';

DROP TRIGGER IF EXISTS keep_numbers ON snowflake_registry.numbers;
CREATE TRIGGER keep_numbers BEFORE DELETE OR TRUNCATE ON snowflake_registry.numbers
EXECUTE FUNCTION snowflake_registry.keep_numbers();

CREATE TABLE IF NOT EXISTS snowflake_registry.history (
    fleet text NOT NULL REFERENCES snowflake_registry.fleets,
    datacenter integer NOT NULL,
    worker bigint NOT NULL,
    from_ms bigint NOT NULL,
    until_ms bigint,
    holder uuid NOT NULL,
    host text NOT NULL,
    port integer NOT NULL,
    cluster_name text NOT NULL,
    version text NOT NULL,
    PRIMARY KEY (fleet, datacenter, worker, from_ms, holder)
);

COMMENT ON TABLE snowflake_registry.history IS 'one row for each lease that ever began, until prune() removes it';
COMMENT ON COLUMN snowflake_registry.history.fleet IS 'name of the fleet';
COMMENT ON COLUMN snowflake_registry.history.datacenter IS 'datacenter number, -1 in a layout without that field';
COMMENT ON COLUMN snowflake_registry.history.worker IS 'worker number';
COMMENT ON COLUMN snowflake_registry.history.from_ms IS 'start of the lease''s first tick, in milliseconds since 1970';
COMMENT ON COLUMN snowflake_registry.history.until_ms IS
    'end of the lease''s last tick; NULL while the number''s record has it';
COMMENT ON COLUMN snowflake_registry.history.holder IS 'random name of the lease';
COMMENT ON COLUMN snowflake_registry.history.host IS 'host name of the server';
COMMENT ON COLUMN snowflake_registry.history.port IS 'port of the server';
COMMENT ON COLUMN snowflake_registry.history.cluster_name IS 'cluster_name of the server';
COMMENT ON COLUMN snowflake_registry.history.version IS 'version of snowflake_id on the server';

-- For servers. Each call is a transaction. src/registry/postgres.rs knows the SQLSTATEs SF001 to
-- SF004. SF005 is reported as it stands: no server's own rules permit such a change.

CREATE OR REPLACE FUNCTION snowflake_registry.check_server() RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION USING ERRCODE = 'SF001', MESSAGE = 'registry is a standby';
    ELSIF current_setting('transaction_read_only')::boolean THEN
        RAISE EXCEPTION USING ERRCODE = 'SF002', MESSAGE = 'registry is read-only';
    ELSIF NOT current_setting('fsync')::boolean THEN
        RAISE EXCEPTION USING ERRCODE = 'SF003', MESSAGE = 'registry has "fsync" off';
    END IF;
END $$;

COMMENT ON FUNCTION snowflake_registry.check_server() IS
    'refuse a server that cannot keep what it is told: a standby, read-only, or with "fsync" off';

CREATE OR REPLACE FUNCTION snowflake_registry.begin_change(patience_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM snowflake_registry.check_server();
    -- These last until the end of the transaction. A SET clause of the function would end before
    -- the commit.
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- The warning that a wait for a synchronous standby was cancelled must reach the server.
    PERFORM set_config('client_min_messages', 'warning', true);
    -- When a server gives up, what waits for a lock here on its behalf must not stay behind.
    IF patience_ms > 0 THEN
        PERFORM set_config('lock_timeout', least(patience_ms, 2147483647)::text, true);
    END IF;
END $$;

COMMENT ON FUNCTION snowflake_registry.begin_change(bigint) IS
    'prepare the transaction for a change: durable at its commit, and no endless wait for locks';

CREATE OR REPLACE FUNCTION snowflake_registry.no_fleet(fleet text) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF fleet IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'fleet is NULL',
            HINT = 'Give the value of "snowflake_id.fleet", which is ''default'' unless it is set, or leave the argument out.';
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'SF004', MESSAGE = format('there is no fleet "%s"', fleet),
        HINT = format('Call snowflake_registry.add_fleet(%L) to make it.', fleet);
END $$;

COMMENT ON FUNCTION snowflake_registry.no_fleet(text) IS
    'raise the error that a fleet does not exist, or is NULL';

CREATE OR REPLACE FUNCTION snowflake_registry.begin_lease(old snowflake_registry.numbers, new snowflake_registry.numbers) RETURNS void
LANGUAGE sql VOLATILE AS $$
    -- The holder before may have been killed, and could not do this itself.
    UPDATE snowflake_registry.history SET until_ms = old.until_ms
    WHERE (fleet, datacenter, worker, from_ms, holder) = (old.fleet, old.datacenter, old.worker, old.from_ms, old.holder);
    INSERT INTO snowflake_registry.history
    VALUES (new.fleet, new.datacenter, new.worker, new.from_ms, NULL, new.holder, new.host, new.port, new.cluster_name,
        new.version)
$$;

COMMENT ON FUNCTION snowflake_registry.begin_lease(snowflake_registry.numbers, snowflake_registry.numbers) IS
    'note in the history that a number''s lease has ended, and another one begins';

-- What it answers was another type.
DO $$
DECLARE
    old regprocedure := to_regprocedure('snowflake_registry.read(text, integer, bigint)');
BEGIN
    IF pg_get_function_result(old) NOT LIKE '% clock_skew_ms bigint,%' THEN
        EXECUTE format('ALTER FUNCTION %s RENAME TO old_read', old);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION snowflake_registry.read(fleet text, datacenter integer, worker bigint)
RETURNS TABLE (version integer, uuid uuid, layout bigint, backup boolean, first_worker bigint, last_worker bigint,
    loses_nothing boolean, closed boolean, longest_ms bigint, skew_ms bigint, lease_ms bigint, clock_skew_ms bigint,
    grace_ms bigint, written_store bigint,
    written_timeline bigint, fleet_generation bigint, horizon_ms bigint, freeze_ms bigint, fleet_version bigint,
    store bigint, timeline bigint, now_ms bigint, up_ms bigint,
    number bigint, holder uuid, nonce bigint, count bigint, server bigint, from_ms bigint, until_ms bigint,
    generation bigint, renewed_ms bigint, offset_ms bigint)
-- STABLE: all queries see the same moment.
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM snowflake_registry.check_server();
    RETURN QUERY
        SELECT snowflake_registry.version(), f.uuid, f.layout, f.backup, f.first_worker, f.last_worker,
            f.loses_nothing, f.closed, f.longest_ms, f.skew_ms, f.lease_ms, f.clock_skew_ms, f.grace_ms, f.store,
            f.timeline, f.generation, f.horizon_ms, f.freeze_ms, f.version,
            i.store, i.timeline, snowflake_registry.now_ms(),
            snowflake_registry.ms(clock_timestamp() - pg_postmaster_start_time()),
            NULL::bigint, NULL::uuid, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
            NULL::bigint, NULL::bigint, NULL::bigint
        FROM snowflake_registry.fleets f, snowflake_registry.incarnation() i WHERE f.name = read.fleet;
    IF NOT FOUND THEN
        PERFORM snowflake_registry.no_fleet(fleet);
    END IF;
    RETURN QUERY
        SELECT NULL::integer, NULL::uuid, NULL::bigint, NULL::boolean, NULL::bigint, NULL::bigint,
            NULL::boolean, NULL::boolean, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
            NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
            NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
            n.worker, n.holder, n.nonce, n.count, n.server, n.from_ms, n.until_ms,
            n.generation, n.renewed_ms, n.offset_ms
        FROM snowflake_registry.numbers n
        WHERE n.fleet = read.fleet AND n.datacenter = read.datacenter AND (read.worker IS NULL OR n.worker = read.worker);
END $$;

COMMENT ON FUNCTION snowflake_registry.read(text, integer, bigint) IS
    'for servers: the fleet''s record and what this registry is, then the records of a number, or of all';

CREATE OR REPLACE FUNCTION snowflake_registry.swap_fleet(fleet text, patience_ms bigint, was_version bigint, was_store bigint,
    was_timeline bigint, layout bigint, backup boolean, first_worker bigint, last_worker bigint, longest_ms bigint,
    skew_ms bigint, generation bigint, horizon_ms bigint, freeze_ms bigint, version bigint,
    OUT done boolean, OUT store bigint, OUT timeline bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old snowflake_registry.fleets;
    now_ms bigint := snowflake_registry.now_ms();
    -- As check_limits() has them.
    most_lease_ms CONSTANT bigint := 2592000000;
    most_skew_ms CONSTANT bigint := 3600000;
    -- As DEFAULT_LEASE_MS and DEFAULT_SKEW_MS have them (src/core/registry.rs).
    default_lease_ms CONSTANT bigint := 600000;
    default_skew_ms CONSTANT bigint := 60000;
BEGIN
    PERFORM snowflake_registry.begin_change(patience_ms);
    SELECT * INTO old FROM snowflake_registry.fleets f WHERE f.name = swap_fleet.fleet FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM snowflake_registry.no_fleet(fleet);
    END IF;
    SELECT i.store, i.timeline INTO store, timeline FROM snowflake_registry.incarnation() i;
    -- NULL is not what was read.
    done := (old.version = was_version AND store = was_store AND timeline = was_timeline AND NOT old.closed) IS TRUE;
    IF NOT done THEN
        RETURN;
    END IF;
    -- A server brings what is not known yet. Only an operator changes what is.
    IF (old.layout IS NOT NULL AND (old.layout, old.backup) IS DISTINCT FROM (swap_fleet.layout, swap_fleet.backup))
        OR (old.first_worker IS NOT NULL
            AND (old.first_worker, old.last_worker) IS DISTINCT FROM (swap_fleet.first_worker, swap_fleet.last_worker))
        -- Every first server writes the same limits. A registry that has lost them gets them
        -- again.
        OR coalesce(nullif(old.longest_ms, 0), default_lease_ms) IS DISTINCT FROM swap_fleet.longest_ms
        OR coalesce(nullif(old.skew_ms, 0), default_skew_ms) IS DISTINCT FROM swap_fleet.skew_ms
    THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005',
            MESSAGE = 'a server cannot change the layout, the range or the limits of a fleet';
    -- Otherwise the registry would not show any more that it has lost something.
    ELSIF swap_fleet.generation = old.generation AND (store, timeline) <> (old.store, old.timeline)
        AND NOT (store = old.store AND old.loses_nothing)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005',
            MESSAGE = format('a registry that may have lost leases or blocks cannot stay in generation %s', old.generation),
            DETAIL = format('Its record was written by store %s on timeline %s, and this is store %s on timeline %s.',
                old.store, old.timeline, store, timeline);
    -- A generation grows by the registry's timelines, as Fleet::begin_generation says
    -- (src/core/registry.rs).
    ELSIF swap_fleet.generation NOT IN (old.generation,
            old.generation + CASE WHEN store = old.store THEN greatest(timeline - old.timeline, 1) ELSE 1 END)
        OR (swap_fleet.generation = old.generation
            AND (old.horizon_ms, old.freeze_ms) IS DISTINCT FROM (swap_fleet.horizon_ms, swap_fleet.freeze_ms))
    THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005',
            MESSAGE = format('generation %s cannot follow generation %s with that horizon and that freeze',
            swap_fleet.generation, old.generation);
    -- The longest that an operator can set. Limits and freezes beyond them would last for ever.
    ELSIF swap_fleet.longest_ms NOT BETWEEN 0 AND most_lease_ms OR swap_fleet.skew_ms NOT BETWEEN 0 AND most_skew_ms
        OR (swap_fleet.freeze_ms <> old.freeze_ms OR swap_fleet.horizon_ms <> old.horizon_ms)
            AND (swap_fleet.freeze_ms > now_ms + most_lease_ms + 2 * most_skew_ms
                OR swap_fleet.horizon_ms > now_ms + 2 * most_skew_ms)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005', MESSAGE = 'limits or freeze of a fleet cannot be that long',
            DETAIL = format('A lease of %s ms, clocks that are %s ms apart, a horizon at %s and a freeze until %s were asked for.',
                swap_fleet.longest_ms, swap_fleet.skew_ms, snowflake_registry.instant(swap_fleet.horizon_ms),
                snowflake_registry.instant(swap_fleet.freeze_ms));
    -- A server has read the clock before. A freeze that ends too early would not cover leases that
    -- may be lost.
    ELSIF swap_fleet.generation <> old.generation AND (swap_fleet.horizon_ms < now_ms - 60000 + 2 * swap_fleet.skew_ms
        OR swap_fleet.freeze_ms::numeric - swap_fleet.horizon_ms < swap_fleet.longest_ms)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005',
            MESSAGE = format('generation %s cannot begin with a freeze until %s', swap_fleet.generation,
                snowflake_registry.instant(swap_fleet.freeze_ms));
    END IF;
    UPDATE snowflake_registry.fleets f SET layout = swap_fleet.layout, backup = swap_fleet.backup,
        first_worker = swap_fleet.first_worker, last_worker = swap_fleet.last_worker,
        longest_ms = swap_fleet.longest_ms, skew_ms = swap_fleet.skew_ms, store = swap_fleet.store,
        timeline = swap_fleet.timeline, generation = swap_fleet.generation, horizon_ms = swap_fleet.horizon_ms,
        freeze_ms = swap_fleet.freeze_ms, version = swap_fleet.version
    WHERE f.name = swap_fleet.fleet;
END $$;

COMMENT ON FUNCTION snowflake_registry.swap_fleet(text, bigint, bigint, bigint, bigint, bigint, boolean, bigint, bigint,
    bigint, bigint, bigint, bigint, bigint, bigint) IS
    'for servers: replace a fleet''s record, if it and the registry are what the server has read';

CREATE OR REPLACE FUNCTION snowflake_registry.swap_number(fleet text, patience_ms bigint, was_version bigint, was_store bigint,
    was_timeline bigint, datacenter integer, worker bigint, was_nonce bigint, holder uuid, nonce bigint, count bigint,
    server bigint, from_ms bigint, until_ms bigint, generation bigint, renewed_ms bigint, offset_ms bigint, host text,
    port integer, cluster_name text, version text,
    OUT done boolean, OUT store bigint, OUT timeline bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f snowflake_registry.fleets;
    old snowflake_registry.numbers;
    is_new boolean;
    now_ms bigint;
    latest_ms bigint;
BEGIN
    PERFORM snowflake_registry.begin_change(patience_ms);
    SELECT * INTO f FROM snowflake_registry.fleets s WHERE s.name = swap_number.fleet FOR SHARE;
    IF NOT FOUND THEN
        PERFORM snowflake_registry.no_fleet(fleet);
    END IF;
    SELECT i.store, i.timeline INTO store, timeline FROM snowflake_registry.incarnation() i;
    done := (f.version = was_version AND store = was_store AND timeline = was_timeline AND NOT f.closed) IS TRUE;
    IF NOT done THEN
        RETURN;
    END IF;
    SELECT * INTO old FROM snowflake_registry.numbers n
    WHERE n.fleet = swap_number.fleet AND n.datacenter = swap_number.datacenter AND n.worker = swap_number.worker
    FOR UPDATE;
    done := old.nonce IS NOT DISTINCT FROM was_nonce;
    IF NOT done THEN
        RETURN;
    END IF;

    now_ms := snowflake_registry.now_ms();
    -- The skew counts twice, because the registry may have moved to a server whose clock is behind.
    latest_ms := now_ms + f.longest_ms + 2 * f.skew_ms;
    -- What only people read. A clock may be off by any time, which the views must be able to show.
    offset_ms := greatest(least(offset_ms, 1000000000000000), -1000000000000000);
    host := left(host, 255);
    cluster_name := left(cluster_name, 255);
    version := left(version, 255);

    -- What every server keeps to by itself, too.
    is_new := old.holder IS DISTINCT FROM swap_number.holder;
    IF is_new AND from_ms < old.until_ms THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005',
            MESSAGE = format('a lease of number %s cannot begin %s ms before the end of the one before it',
            worker, old.until_ms - from_ms);
    ELSIF is_new AND coalesce(old.generation <> f.generation, true) AND from_ms < f.freeze_ms THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005',
            MESSAGE = format('a lease of number %s cannot begin %s ms before the end of the freeze',
            worker, f.freeze_ms - from_ms);
    ELSIF is_new AND (worker BETWEEN f.first_worker AND f.last_worker) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005',
            MESSAGE = format('number %s cannot be leased, because the range is %s to %s',
            worker, coalesce(f.first_worker::text, 'NULL'), coalesce(f.last_worker::text, 'NULL'));
    ELSIF old.server = 0 AND old.host = '' AND old.until_ms > now_ms AND (NOT is_new OR until_ms <= from_ms) THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005',
            MESSAGE = format('number %s is kept until %s', worker, snowflake_registry.instant(old.until_ms)),
            DETAIL = 'An operator has kept it with reserve(). A lease may only follow.';
    ELSIF server = 0 THEN
        -- This, and no host, is how reserve() keeps a number.
        RAISE EXCEPTION USING ERRCODE = 'SF005',
            MESSAGE = format('a lease of number %s must have the fingerprint of a server', worker);
    ELSIF generation <> f.generation AND (is_new OR until_ms > old.until_ms OR generation <> old.generation) THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005',
            MESSAGE = format('a lease of number %s cannot be of generation %s, because the fleet has generation %s',
                worker, generation, f.generation);
    ELSIF NOT is_new AND from_ms <> old.from_ms THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005',
            MESSAGE = format('a lease of number %s cannot begin at another time than before', worker);
    ELSIF NOT is_new AND until_ms > old.until_ms AND old.generation <> f.generation AND old.until_ms <= f.horizon_ms THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005',
            MESSAGE = format('a lease of number %s that may have changed hands cannot be renewed', worker);
    ELSIF from_ms < -210866803200000 THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005', MESSAGE = format('a lease of number %s cannot begin at %s ms', worker, from_ms);
    -- A lease that is empty, because it is given back before it begins, may lie after a freeze, in
    -- the tick that begins then. A tick is a second at most. Otherwise a number could be taken away
    -- for ever.
    ELSIF until_ms > greatest(old.until_ms, latest_ms, CASE WHEN until_ms <= from_ms THEN f.freeze_ms + 1000 END) THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005', MESSAGE = format('a lease of number %s cannot end that late', worker),
            DETAIL = format('It would end at %s. The fleet''s longest lease is %s ms, and its clocks may be %s ms apart.',
                snowflake_registry.instant(until_ms), f.longest_ms, f.skew_ms);
    -- A count that grows by one a millisecond leaves room for the next one, whatever it is.
    ELSIF count NOT BETWEEN coalesce(old.count, 0) + 1 AND greatest(now_ms, coalesce(old.count, 0) + 1) THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005',
            MESSAGE = format('count of number %s cannot go from %s to %s', worker, coalesce(old.count, 0), count),
            DETAIL = format('It must be greater, and at most %s.', greatest(now_ms, coalesce(old.count, 0) + 1));
    END IF;

    IF old.nonce IS NULL THEN
        INSERT INTO snowflake_registry.numbers
        VALUES (fleet, datacenter, worker, holder, nonce, count, server, from_ms, until_ms, generation, renewed_ms,
            offset_ms, host, port, cluster_name, version)
        -- Another server may have made it since.
        ON CONFLICT DO NOTHING;
        done := FOUND;
    ELSE
        UPDATE snowflake_registry.numbers n SET holder = swap_number.holder, nonce = swap_number.nonce,
            count = swap_number.count, server = swap_number.server, from_ms = swap_number.from_ms,
            until_ms = swap_number.until_ms, generation = swap_number.generation, renewed_ms = swap_number.renewed_ms,
            offset_ms = swap_number.offset_ms, host = swap_number.host, port = swap_number.port,
            cluster_name = swap_number.cluster_name, version = swap_number.version
        WHERE n.fleet = swap_number.fleet AND n.datacenter = swap_number.datacenter AND n.worker = swap_number.worker;
    END IF;
    IF done AND is_new THEN
        PERFORM snowflake_registry.begin_lease(old, n) FROM snowflake_registry.numbers n
        WHERE n.fleet = swap_number.fleet AND n.datacenter = swap_number.datacenter AND n.worker = swap_number.worker;
    END IF;
END $$;

COMMENT ON FUNCTION snowflake_registry.swap_number(text, bigint, bigint, bigint, bigint, integer, bigint, bigint, uuid,
    bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint, text, integer, text, text) IS
    'for servers: replace a number''s record, if it, the fleet''s and the registry are what the server has read';

-- For operators: the registry's owner. Each says what it has done.

CREATE OR REPLACE FUNCTION snowflake_registry.locked(fleet text) RETURNS snowflake_registry.fleets
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    f snowflake_registry.fleets;
BEGIN
    PERFORM snowflake_registry.begin_change(0);
    SELECT * INTO f FROM snowflake_registry.fleets s WHERE s.name = locked.fleet FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM snowflake_registry.no_fleet(fleet);
    END IF;
    RETURN f;
END $$;

COMMENT ON FUNCTION snowflake_registry.locked(text) IS
    'lock a fleet''s record for a change';

CREATE OR REPLACE FUNCTION snowflake_registry.check_span(setting text, span interval, shortest interval, longest interval) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF span NOT BETWEEN shortest AND longest THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('%s cannot be %s', setting, span),
            DETAIL = format('It must be from %s to %s.', shortest, longest),
            HINT = 'Give it as an interval, such as ''10 min''.';
    END IF;
END $$;

COMMENT ON FUNCTION snowflake_registry.check_span(text, interval, interval, interval) IS
    'refuse an interval that is outside of a range';

CREATE OR REPLACE FUNCTION snowflake_registry.check_limits(lease interval, skew interval) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    -- A limit that was typed wrongly would make a freeze of years.
    PERFORM snowflake_registry.check_span('lease', lease, '1 s', '30 d');
    PERFORM snowflake_registry.check_span('skew', skew, '10 ms', '1 h');
END $$;

COMMENT ON FUNCTION snowflake_registry.check_limits(interval, interval) IS
    'refuse a lease or a skew that no fleet can have';

CREATE OR REPLACE FUNCTION snowflake_registry.add_fleet(fleet text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM snowflake_registry.begin_change(0);
    IF coalesce(fleet, '') = '' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a fleet needs a name',
            HINT = 'Give the value of "snowflake_id.fleet" on its servers.';
    END IF;
    INSERT INTO snowflake_registry.fleets (name, store, timeline)
    SELECT add_fleet.fleet, i.store, i.timeline FROM snowflake_registry.incarnation() i
    ON CONFLICT (name) DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42710', MESSAGE = format('fleet "%s" exists already', fleet),
            HINT = 'Servers can use it. A registry that was lost needs snowflake_registry.lost().';
    END IF;
    RETURN format('Fleet "%s" is there. Its first server brings layout and range.', fleet);
END $$;

COMMENT ON FUNCTION snowflake_registry.add_fleet(text) IS
    'add a fleet, whose servers lease numbers of their own';

CREATE OR REPLACE FUNCTION snowflake_registry.with_limits(INOUT f snowflake_registry.fleets, longest_ms bigint, skew_ms bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    -- As DEFAULT_LEASE_MS and DEFAULT_SKEW_MS have them (src/core/registry.rs).
    default_lease_ms CONSTANT bigint := 600000;
    default_skew_ms CONSTANT bigint := 60000;
BEGIN
    -- What is used stays what it was: a raise that a failover can lose must not be used.
    f.lease_ms := least(coalesce(nullif(f.lease_ms, 0), default_lease_ms), coalesce(nullif(f.longest_ms, 0), default_lease_ms));
    f.clock_skew_ms := least(coalesce(nullif(f.clock_skew_ms, 0), default_skew_ms), coalesce(nullif(f.skew_ms, 0), default_skew_ms));
    f.longest_ms := with_limits.longest_ms;
    f.skew_ms := with_limits.skew_ms;
END $$;

COMMENT ON FUNCTION snowflake_registry.with_limits(snowflake_registry.fleets, bigint, bigint) IS
    'a fleet''s record with other limits; how long leases are, and how far clocks may be apart now, is not raised with them';

CREATE OR REPLACE FUNCTION snowflake_registry.begin_generation(old snowflake_registry.fleets, lease interval, skew interval,
    INOUT generation bigint, OUT freeze_ms bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    new_longest_ms bigint := greatest(old.longest_ms, snowflake_registry.ms(lease));
    new_skew_ms bigint := greatest(old.skew_ms, snowflake_registry.ms(skew));
    used snowflake_registry.fleets := snowflake_registry.with_limits(old, new_longest_ms, new_skew_ms);
    -- As Fleet::begin_generation does (src/core/registry.rs).
    new_horizon_ms bigint := snowflake_registry.now_ms() + 2 * new_skew_ms;
BEGIN
    PERFORM snowflake_registry.check_limits(lease, skew);
    IF new_longest_ms = 0 OR new_skew_ms = 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = 'longest lease and skew of the lost leases are not known',
            HINT = 'Give the greatest limits that were set for the fleet with snowflake_registry.set_limits(). Unless you set any, they were 10 min and 1 min.';
    END IF;
    freeze_ms := new_horizon_ms + new_longest_ms;
    -- A generation that was begun on a timeline since may be lost.
    SELECT CASE WHEN i.store = old.store
        THEN greatest(begin_generation.generation, old.generation + i.timeline - old.timeline)
        ELSE begin_generation.generation END INTO generation
    FROM snowflake_registry.incarnation() i;
    UPDATE snowflake_registry.fleets f SET longest_ms = new_longest_ms, skew_ms = new_skew_ms, lease_ms = used.lease_ms,
        clock_skew_ms = used.clock_skew_ms, store = i.store,
        timeline = i.timeline, generation = begin_generation.generation, horizon_ms = new_horizon_ms,
        freeze_ms = begin_generation.freeze_ms, version = snowflake_registry.new_version()
    FROM snowflake_registry.incarnation() i WHERE f.name = old.name;
END $$;

COMMENT ON FUNCTION snowflake_registry.begin_generation(snowflake_registry.fleets, interval, interval, bigint) IS
    'begin a generation: no number of an older one is leased before the lost leases have ended';

CREATE OR REPLACE FUNCTION snowflake_registry.cut_leases(fleet text, latest_ms bigint, dry_run boolean) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n snowflake_registry.numbers;
BEGIN
    -- What reserve() keeps is an operator's.
    FOR n IN SELECT * FROM snowflake_registry.numbers s
             WHERE s.fleet = cut_leases.fleet AND s.until_ms > latest_ms AND NOT (s.server = 0 AND s.host = '') LOOP
        RAISE WARNING USING MESSAGE = format(CASE WHEN dry_run IS NOT FALSE THEN 'number %s is leased until %s, and would become free at %s'
                ELSE 'number %s was leased until %s, and becomes free at %s now' END,
                n.worker, snowflake_registry.instant(n.until_ms), snowflake_registry.instant(latest_ms)),
            DETAIL = format('No lease of fleet "%s" may end that late.', fleet);
        UPDATE snowflake_registry.history h SET from_ms = least(h.from_ms, latest_ms)
        WHERE (h.fleet, h.datacenter, h.worker, h.from_ms, h.holder) = (n.fleet, n.datacenter, n.worker, n.from_ms, n.holder);
        -- The nonce stays, so that a server that lives recognizes its lease.
        UPDATE snowflake_registry.numbers s SET from_ms = least(s.from_ms, latest_ms), until_ms = latest_ms
        WHERE (s.fleet, s.datacenter, s.worker) = (n.fleet, n.datacenter, n.worker);
    END LOOP;
END $$;

COMMENT ON FUNCTION snowflake_registry.cut_leases(text, bigint, boolean) IS
    'end leases that end later than any may; the freeze of the new generation outlasts all others';

-- It had one argument less.
DROP FUNCTION IF EXISTS snowflake_registry.restored(text, interval, interval);

CREATE OR REPLACE FUNCTION snowflake_registry.restored(fleet text DEFAULT 'default', lease interval DEFAULT NULL,
    skew interval DEFAULT NULL, dry_run boolean DEFAULT false) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old snowflake_registry.fleets := snowflake_registry.locked(fleet);
    new record;
    jumped text;
    stopped text;
BEGIN
    BEGIN
        SELECT * INTO new FROM snowflake_registry.begin_generation(old, lease, skew, old.generation + 1);
        PERFORM snowflake_registry.cut_leases(fleet, new.freeze_ms, dry_run);
        -- As TagRecord::restored does (src/core/segment/record.rs).
        WITH jump AS (
            SELECT t.tag, t.next_value AS was, least(9223372036854775807, t.next_value + t.jump::numeric * t.greatest_step * (
                greatest(new.generation - t.generation, 0) + greatest(snowflake_registry.now_ms() - t.written_ms, 0) / 1000))::bigint AS becomes
            FROM snowflake_registry.tags t WHERE t.fleet = restored.fleet AND t.jump IS NOT NULL
        ), written AS (
            UPDATE snowflake_registry.tags t SET nonce = snowflake_registry.new_version(), generation = new.generation,
                next_value = j.becomes
            FROM jump j WHERE t.fleet = restored.fleet AND t.tag = j.tag
        )
        SELECT string_agg(format('"%s" from %s to %s', j.tag, j.was, j.becomes), ', ' ORDER BY j.tag) INTO jumped FROM jump j;
        SELECT string_agg(format('"%s" at %s', t.tag, t.next_value), ', ' ORDER BY t.tag) INTO stopped
        FROM snowflake_registry.tags t WHERE t.fleet = restored.fleet AND t.jump IS NULL;
        IF dry_run IS NOT FALSE THEN
            RAISE EXCEPTION USING ERRCODE = 'SF006', MESSAGE = 'dry run';
        END IF;
    EXCEPTION WHEN SQLSTATE 'SF006' THEN
        -- What this block has written is undone. The variables stay.
        RETURN format('Nothing was changed. Without dry_run, numbers are leased again for ids from %s on.',
                snowflake_registry.instant(new.freeze_ms))
            || coalesce(' These tags jump ahead: ' || jumped || '. To choose the next_value of one yourself, set its jump to NULL first.', '')
            || coalesce(' These tags give no values until you set their next_value: ' || stopped || '.', '');
    END;
    RETURN format('Generation %s of fleet "%s" has begun. Servers that hold a lease draw up to its end, and renew it if it ends after the horizon. Numbers are leased again for ids from %s on.',
            new.generation, fleet, snowflake_registry.instant(new.freeze_ms))
        || coalesce(' These tags have jumped ahead: ' || jumped || '.', '')
        || coalesce(' These tags give no values until you set their next_value: ' || stopped || '.', '');
END $$;

COMMENT ON FUNCTION snowflake_registry.restored(text, interval, interval, boolean) IS
    'after a restore: begin a generation; lease and skew are the greatest limits that were set, if the backup may not know them; dry_run => true only says what would be done';

CREATE OR REPLACE FUNCTION snowflake_registry.lost(lease interval, skew interval, fleet text DEFAULT 'default',
    uuid uuid DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old snowflake_registry.fleets := snowflake_registry.locked(fleet);
    new record;
BEGIN
    IF EXISTS (SELECT FROM snowflake_registry.numbers n WHERE n.fleet = lost.fleet) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('fleet "%s" has leases', fleet),
            HINT = 'This is for a registry that was just made anew. For one that was restored, call snowflake_registry.restored().';
    ELSIF lost.uuid IS NOT NULL THEN
        UPDATE snowflake_registry.fleets f SET uuid = lost.uuid WHERE f.name = lost.fleet;
    END IF;
    -- The lost registry may have had many generations. Its servers must see that this one is newer.
    SELECT * INTO new
    FROM snowflake_registry.begin_generation(old, lease, skew, greatest(old.generation + 1, snowflake_registry.now_ms() / 1000));
    RETURN format('Fleet "%s" is made anew. Numbers are leased for ids from %s on, when all lost leases have ended.',
        fleet, snowflake_registry.instant(new.freeze_ms))
        || CASE WHEN lost.uuid IS NULL
            THEN ' To servers it is another fleet. For the same one, call this again with uuid => the lost one''s.' ELSE '' END;
END $$;

COMMENT ON FUNCTION snowflake_registry.lost(interval, interval, text, uuid) IS
    'in a registry that was lost and is made anew: lease nothing before the lost leases have ended; uuid is that of the lost fleet';

CREATE OR REPLACE FUNCTION snowflake_registry.layout_numbers(layout bigint, backup boolean) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    -- What the line of a built-in layout means never changes. (BUILT_IN in src/core/layout.rs)
    SELECT CASE layout
            WHEN 659112385214155961 THEN 1024       -- snowflake
            WHEN 7366546996939299186 THEN 32        -- twitter, in each datacenter
            WHEN 8876148683603590667 THEN 32        -- js53
            WHEN 6716042574934541900 THEN 4194304   -- baidu
            WHEN 903937532760564967 THEN 1024       -- leaf
            WHEN 7478322222171316616 THEN 32        -- discord, in each datacenter
            WHEN 5163230396149121768 THEN 8192      -- instagram
            WHEN 3545235968293553177 THEN 1         -- mastodon
            WHEN 3129586852765729314 THEN 65536     -- sonyflake
            WHEN 8438707181393898272 THEN 1024      -- cosid
            WHEN 4107238148521907482 THEN 1024      -- pgedge
        END / CASE WHEN backup THEN 2 ELSE 1 END
$$;

COMMENT ON FUNCTION snowflake_registry.layout_numbers(bigint, boolean) IS
    'how many numbers a built-in layout with this fingerprint has for servers; NULL for any other layout';

CREATE OR REPLACE FUNCTION snowflake_registry.set_range(first_worker bigint, last_worker bigint, fleet text DEFAULT 'default') RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old snowflake_registry.fleets := snowflake_registry.locked(fleet);
    numbers bigint := snowflake_registry.layout_numbers(old.layout, old.backup);
BEGIN
    IF first_worker < 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('range cannot begin at %s, because numbers begin at 0', first_worker),
            HINT = 'Give the first and the last number that may be leased, from 0 on.';
    ELSIF (first_worker <= last_worker) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('range %s to %s has no numbers', coalesce(first_worker::text, 'NULL'),
                coalesce(last_worker::text, 'NULL')),
            HINT = 'Give the first and the last number that may be leased, from 0 on. Numbers that are set on servers must lie outside.';
    ELSIF last_worker >= numbers THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('range %s to %s has numbers that the layout does not have', first_worker, last_worker),
            DETAIL = format('The fleet''s layout has the numbers 0 to %s. Servers would renew nothing, and stop drawing when their leases end.', numbers - 1),
            HINT = 'Give numbers of the layout.';
    END IF;
    UPDATE snowflake_registry.fleets f SET first_worker = set_range.first_worker, last_worker = set_range.last_worker,
        version = snowflake_registry.new_version()
    WHERE f.name = set_range.fleet;
    RETURN format('Numbers %s to %s may be leased.', first_worker, last_worker)
        || CASE WHEN numbers IS NULL
            THEN ' Servers refuse a range with numbers beyond their layout''s: they renew nothing, and stop drawing when their leases end.'
            ELSE '' END;
END $$;

COMMENT ON FUNCTION snowflake_registry.set_range(bigint, bigint, text) IS
    'set which numbers may be leased; those that are set on servers must lie outside';

CREATE OR REPLACE FUNCTION snowflake_registry.set_limits(lease interval, skew interval, fleet text DEFAULT 'default') RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old snowflake_registry.fleets := snowflake_registry.locked(fleet);
    new_longest_ms bigint := coalesce(snowflake_registry.ms(lease), old.longest_ms);
    new_skew_ms bigint := coalesce(snowflake_registry.ms(skew), old.skew_ms);
    used snowflake_registry.fleets := snowflake_registry.with_limits(old, new_longest_ms, new_skew_ms);
BEGIN
    PERFORM snowflake_registry.check_limits(lease, skew);
    -- What the first server has written may be lost.
    IF NOT EXISTS (SELECT FROM snowflake_registry.incarnation() i WHERE (i.store, i.timeline) = (old.store, old.timeline)) THEN
        -- As DEFAULT_LEASE_MS and DEFAULT_SKEW_MS have them (src/core/registry.rs).
        old.longest_ms := coalesce(nullif(old.longest_ms, 0), 600000);
        old.skew_ms := coalesce(nullif(old.skew_ms, 0), 60000);
    END IF;
    IF lease IS NOT NULL AND new_longest_ms < old.longest_ms OR skew IS NOT NULL AND new_skew_ms < old.skew_ms THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'limits of a fleet cannot be lowered',
            DETAIL = format('The longest lease is %s ms, and clocks may be %s ms apart. Leases of that length may still run, or be lost at a failover.',
                old.longest_ms, old.skew_ms),
            HINT = 'Call snowflake_registry.set_lease() instead, which servers follow at their next renewal.';
    END IF;
    UPDATE snowflake_registry.fleets f SET longest_ms = new_longest_ms, skew_ms = new_skew_ms, lease_ms = used.lease_ms,
        clock_skew_ms = used.clock_skew_ms, version = snowflake_registry.new_version()
    WHERE f.name = set_limits.fleet;
    RETURN CASE WHEN new_longest_ms = 0 OR new_skew_ms = 0
        THEN 'The limit is set, and the first server brings the other one. It cannot be lowered. Each freeze lasts as long as the longest lease and two skews.'
        ELSE format('Leases may be %s long, and clocks %s apart. This cannot be lowered. Each freeze lasts %s from now on.',
            make_interval(secs => new_longest_ms / 1000.0), make_interval(secs => new_skew_ms / 1000.0),
            make_interval(secs => (new_longest_ms + 2 * new_skew_ms) / 1000.0)) END
        || CASE WHEN used.lease_ms < new_longest_ms OR used.clock_skew_ms < new_skew_ms
            THEN ' Call set_lease() to use what is permitted now, when no failover can lose this.' ELSE '' END;
END $$;

COMMENT ON FUNCTION snowflake_registry.set_limits(interval, interval, text) IS
    'raise how long a lease may be, and how far clocks may be apart, which cannot be lowered; NULL leaves a limit as it is';

CREATE OR REPLACE FUNCTION snowflake_registry.set_lease(lease interval, skew interval, fleet text DEFAULT 'default') RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old snowflake_registry.fleets := snowflake_registry.locked(fleet);
    -- As DEFAULT_LEASE_MS and DEFAULT_SKEW_MS have them (src/core/registry.rs).
    longest_ms bigint := coalesce(nullif(old.longest_ms, 0), 600000);
    most_skew_ms bigint := coalesce(nullif(old.skew_ms, 0), 60000);
    new_lease_ms bigint := coalesce(snowflake_registry.ms(lease), old.lease_ms);
    new_skew_ms bigint := coalesce(snowflake_registry.ms(skew), old.clock_skew_ms);
BEGIN
    PERFORM snowflake_registry.check_limits(lease, skew);
    IF snowflake_registry.ms(lease) > longest_ms OR snowflake_registry.ms(skew) > most_skew_ms THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'leases and clock skew cannot be beyond the fleet''s limits',
            DETAIL = format('Leases may be %s long, and clocks %s apart.', make_interval(secs => longest_ms / 1000.0),
                make_interval(secs => most_skew_ms / 1000.0)),
            HINT = 'Raise the limits first with snowflake_registry.set_limits(), and call this when no failover of the registry can lose that. A longer lease that is lost together with its limit would be leased again too early.';
    END IF;
    UPDATE snowflake_registry.fleets f SET lease_ms = new_lease_ms, clock_skew_ms = new_skew_ms,
        version = snowflake_registry.new_version()
    WHERE f.name = set_lease.fleet;
    RETURN format('Leases are %s long, and clocks may be %s apart, from each server''s next renewal on.',
        make_interval(secs => least(coalesce(nullif(new_lease_ms, 0), 600000), longest_ms) / 1000.0),
        make_interval(secs => least(coalesce(nullif(new_skew_ms, 0), 60000), most_skew_ms) / 1000.0));
END $$;

COMMENT ON FUNCTION snowflake_registry.set_lease(interval, interval, text) IS
    'set how long leases are, and how far clocks may be apart, up to the fleet''s limits; NULL leaves one as it is';

CREATE OR REPLACE FUNCTION snowflake_registry.check_noted(f snowflake_registry.fleets) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    -- A failover that loses nothing changes the timeline alone.
    IF EXISTS (SELECT FROM snowflake_registry.incarnation() i
               WHERE i.store <> f.store OR i.timeline <> f.timeline AND NOT f.loses_nothing) THEN
        RAISE EXCEPTION USING ERRCODE = '55000',
            MESSAGE = format('registry may have lost leases of fleet "%s", which no server has noted yet', f.name),
            DETAIL = 'It has failed over, or was restored, since the fleet''s record was written. This call would hide that.',
            HINT = 'Let a server of the fleet reach the registry, which takes up to ten seconds. Without one, call snowflake_registry.restored(). Then call this again.';
    END IF;
END $$;

COMMENT ON FUNCTION snowflake_registry.check_noted(snowflake_registry.fleets) IS
    'refuse what would hide that the registry has failed over or was restored';

CREATE OR REPLACE FUNCTION snowflake_registry.set_loses_nothing(loses_nothing boolean, fleet text DEFAULT 'default') RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old snowflake_registry.fleets := snowflake_registry.locked(fleet);
BEGIN
    IF loses_nothing IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'loses_nothing cannot be NULL',
            HINT = 'Give true only where replication is synchronous, so that a failover loses nothing. Else give false.';
    END IF;
    IF loses_nothing THEN
        PERFORM snowflake_registry.check_noted(old);
    END IF;
    UPDATE snowflake_registry.fleets f SET loses_nothing = set_loses_nothing.loses_nothing,
        version = snowflake_registry.new_version()
    WHERE f.name = set_loses_nothing.fleet;
    RETURN CASE WHEN loses_nothing
        THEN 'A failover of the registry freezes nothing from now on. Replication must be synchronous. Set this to false before a restore.'
        ELSE 'A failover of the registry freezes what may be lost.' END;
END $$;

COMMENT ON FUNCTION snowflake_registry.set_loses_nothing(boolean, text) IS
    'vouch that a failover of the registry loses nothing, because its replication is synchronous; or no longer';

CREATE OR REPLACE FUNCTION snowflake_registry.set_grace(grace interval, fleet text DEFAULT 'default') RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old snowflake_registry.fleets := snowflake_registry.locked(fleet);
BEGIN
    PERFORM snowflake_registry.check_span('grace', coalesce(grace, '-1 s'), '0 s', '1 d');
    UPDATE snowflake_registry.fleets f SET grace_ms = snowflake_registry.ms(grace), version = snowflake_registry.new_version()
    WHERE f.name = set_grace.fleet;
    RETURN format('For %s after a start of the registry, servers renew, and none acquires a number.', grace);
END $$;

COMMENT ON FUNCTION snowflake_registry.set_grace(interval, text) IS
    'set for how long after the registry''s start no number is acquired, so that holders show first what it has lost';

CREATE OR REPLACE FUNCTION snowflake_registry.close(fleet text DEFAULT 'default') RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old snowflake_registry.fleets := snowflake_registry.locked(fleet);
BEGIN
    -- open() then says that nothing was lost.
    PERFORM snowflake_registry.check_noted(old);
    UPDATE snowflake_registry.fleets f SET closed = true, version = snowflake_registry.new_version() WHERE f.name = close.fleet;
    RETURN format('Fleet "%s" is closed: nothing is leased or renewed. Servers draw ids until their leases end.', fleet);
END $$;

COMMENT ON FUNCTION snowflake_registry.close(text) IS
    'refuse every change from servers, to move the registry';

CREATE OR REPLACE FUNCTION snowflake_registry.open(fleet text DEFAULT 'default', moved boolean DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old snowflake_registry.fleets := snowflake_registry.locked(fleet);
BEGIN
    IF moved AND NOT old.closed THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('fleet "%s" is not closed', fleet),
            HINT = 'A registry is moved while it is closed. If it was restored, call snowflake_registry.restored().';
    ELSIF old.closed AND moved IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = format('fleet "%s" is closed for a move', fleet),
            DETAIL = 'If servers have reached a moved copy of this registry, and this one is opened, both lease the same numbers, and ids come twice.',
            HINT = 'In the registry that was moved to, call open(moved => true). To give up the move, and only if no server has reached an opened copy, call open(moved => false) in the old one.';
    END IF;
    UPDATE snowflake_registry.fleets f SET closed = false, version = snowflake_registry.new_version(),
        store = CASE WHEN moved THEN i.store ELSE f.store END,
        timeline = CASE WHEN moved THEN i.timeline ELSE f.timeline END
    FROM snowflake_registry.incarnation() i WHERE f.name = open.fleet;
    RETURN format('Fleet "%s" is open.', fleet) || CASE WHEN moved IS TRUE OR NOT old.closed THEN ''
        ELSE ' This is right only if no server has reached a moved copy of this registry that was opened. If one has, close this one again, and use that copy.' END;
END $$;

COMMENT ON FUNCTION snowflake_registry.open(text, boolean) IS
    'end what close() has begun; moved => true says that this is the closed registry, moved whole, so that nothing is frozen; moved => false gives up the move, if no server has reached an opened copy';

CREATE OR REPLACE FUNCTION snowflake_registry.reset_settings(fleet text DEFAULT 'default') RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old snowflake_registry.fleets := snowflake_registry.locked(fleet);
    -- Clocks may be apart by the skew, and the registry's own may have been.
    latest_ms bigint := greatest((SELECT max(n.until_ms) FROM snowflake_registry.numbers n
        WHERE n.fleet = reset_settings.fleet AND NOT (n.server = 0 AND n.host = '')) + 2 * old.skew_ms,
        -- By then, all leases that are lost have ended.
        old.freeze_ms);
    is_whole boolean := (old.first_worker, old.last_worker)
        = (0, snowflake_registry.layout_numbers(old.layout, old.backup) - 1);
BEGIN
    PERFORM snowflake_registry.check_noted(old);
    IF latest_ms > snowflake_registry.now_ms() THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('servers of fleet "%s" may still draw ids', fleet),
            DETAIL = format('The last lease, and what clocks may be apart, end at %s.', snowflake_registry.instant(latest_ms)),
            HINT = 'Stop all servers of the fleet cleanly, so that they give their numbers back, wait until then, and call this again.';
    END IF;
    UPDATE snowflake_registry.fleets f SET layout = NULL, backup = NULL, longest_ms = 0, skew_ms = 0,
        -- Where the next server's limits are greater, that is a raise, which a failover can lose.
        -- So what is used stays. (DEFAULT_LEASE_MS, DEFAULT_SKEW_MS in src/core/registry.rs)
        lease_ms = CASE WHEN f.longest_ms BETWEEN 1 AND 599999 THEN f.longest_ms ELSE 0 END,
        clock_skew_ms = CASE WHEN f.skew_ms BETWEEN 1 AND 59999 THEN f.skew_ms ELSE 0 END,
        first_worker = CASE WHEN is_whole THEN NULL ELSE f.first_worker END,
        last_worker = CASE WHEN is_whole THEN NULL ELSE f.last_worker END, version = snowflake_registry.new_version()
    WHERE f.name = reset_settings.fleet;
    RETURN format('The next server brings layout and backup_worker to fleet "%s". Limits are as for a new fleet.', fleet)
        || CASE WHEN old.longest_ms BETWEEN 1 AND 599999 OR old.skew_ms BETWEEN 1 AND 59999
            THEN ' Leases and clocks stay within the limits that there were. Call snowflake_registry.set_lease() to use more.'
            ELSE '' END
        || CASE WHEN is_whole OR old.first_worker IS NULL THEN ' It brings the range, too.'
            ELSE format(' The range stays %s to %s.', old.first_worker, old.last_worker) END;
END $$;

COMMENT ON FUNCTION snowflake_registry.reset_settings(text) IS
    'forget what the first server has brought: layout, backup_worker, and the range if it was all of the layout; also limits and what set_lease() has set; for a fleet that draws nothing';

-- It had one argument less.
DROP FUNCTION IF EXISTS snowflake_registry.reserve(bigint, timestamptz, integer, text);

CREATE OR REPLACE FUNCTION snowflake_registry.reserve(worker bigint, until timestamptz, datacenter integer DEFAULT -1,
    fleet text DEFAULT 'default', force boolean DEFAULT false) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f snowflake_registry.fleets := snowflake_registry.locked(fleet);
    old snowflake_registry.numbers;
    until_ms bigint;
    now_ms bigint := snowflake_registry.now_ms();
    name uuid := gen_random_uuid();
    numbers bigint := snowflake_registry.layout_numbers(f.layout, f.backup);
BEGIN
    IF coalesce(worker, -1) < 0 OR coalesce(datacenter, -2) < -1 THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('worker %s of datacenter %s is not a number that a server can have', coalesce(worker::text, 'NULL'),
                coalesce(datacenter::text, 'NULL')),
            HINT = 'Numbers begin at 0. In a layout without a datacenter field, leave the datacenter out.';
    ELSIF worker >= numbers THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('the layout has no number %s', worker),
            DETAIL = format('The fleet''s layout has the numbers 0 to %s.', numbers - 1),
            HINT = 'Give the number that was set on a server. With "backup_worker", that is the one below the half of all.';
    ELSIF isfinite(until) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('a number cannot be kept until %s', coalesce(until::text, 'NULL')),
            HINT = 'Give the highest mark of all databases that had the number. To keep a number for good, call snowflake_registry.set_range().';
    ELSIF until > clock_timestamp() + interval '30 days' AND force IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('number %s would be kept until %s, more than 30 days from now', worker, until),
            DETAIL = 'This cannot be undone.',
            HINT = 'Check the mark that it comes from. If it is right, add force => true. To keep a number for good, call snowflake_registry.set_range().';
    END IF;
    -- A lost lease of the number may run. Its server would stop drawing, because the number is
    -- taken.
    PERFORM snowflake_registry.check_noted(f);
    until_ms := ceil(extract(epoch FROM until) * 1000)::bigint;
    SELECT * INTO old FROM snowflake_registry.numbers n
    WHERE n.fleet = reserve.fleet AND n.datacenter = reserve.datacenter AND n.worker = reserve.worker FOR UPDATE;
    IF old.until_ms + f.skew_ms > now_ms THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('number %s is leased', worker),
            DETAIL = format('Its lease ends at %s.', snowflake_registry.instant(old.until_ms)),
            HINT = 'Set a range without it, restart the server that has it, and wait until that lease has ended.';
    ELSIF f.freeze_ms > now_ms AND coalesce(old.generation < f.generation, true) THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('a lost lease of number %s may still run', worker),
            DETAIL = format('The registry has lost leases, which end before %s.', snowflake_registry.instant(f.freeze_ms)),
            HINT = 'Call this again then. Until then, the number is not leased to another server.';
    ELSIF until_ms < old.until_ms THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('number %s has a lease that ended later', worker),
            DETAIL = format('It ended at %s.', snowflake_registry.instant(old.until_ms)),
            HINT = 'No action is needed: the number is leased only for ids after that.';
    END IF;
    INSERT INTO snowflake_registry.numbers
    VALUES (fleet, datacenter, worker, name, snowflake_registry.new_version(), coalesce(old.count, 0) + 1, 0,
        coalesce(old.until_ms, least(now_ms, until_ms)), until_ms, f.generation, now_ms, 0, '', 0, '', '')
    ON CONFLICT ON CONSTRAINT numbers_pkey DO UPDATE SET holder = excluded.holder, nonce = excluded.nonce,
        count = excluded.count, server = excluded.server, from_ms = excluded.from_ms, until_ms = excluded.until_ms,
        generation = excluded.generation, renewed_ms = excluded.renewed_ms, offset_ms = excluded.offset_ms,
        host = excluded.host, port = excluded.port, cluster_name = excluded.cluster_name, version = excluded.version;
    PERFORM snowflake_registry.begin_lease(old, n) FROM snowflake_registry.numbers n
    WHERE n.fleet = reserve.fleet AND n.datacenter = reserve.datacenter AND n.worker = reserve.worker;
    RETURN format('Number %s is reserved until %s: it is not leased for ids before that. This cannot be undone.', worker, until);
END $$;

COMMENT ON FUNCTION snowflake_registry.reserve(bigint, timestamptz, integer, text, boolean) IS
    'keep a number that was set on a server from being leased for ids before an instant, the highest mark of that server''s databases; force => true permits one more than 30 days ahead';

CREATE OR REPLACE FUNCTION snowflake_registry.prune(before timestamptz, fleet text DEFAULT 'default') RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f snowflake_registry.fleets;
    latest_ms bigint;
    pruned bigint;
BEGIN
    PERFORM snowflake_registry.begin_change(0);
    -- Without a lock: servers go on, and a lease that ends meanwhile is not old enough.
    SELECT * INTO f FROM snowflake_registry.fleets s WHERE s.name = prune.fleet;
    IF NOT FOUND THEN
        PERFORM snowflake_registry.no_fleet(fleet);
    END IF;
    latest_ms := snowflake_registry.now_ms() - f.longest_ms - 2 * f.skew_ms;
    IF (before <= snowflake_registry.instant(latest_ms)) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('leases that end before %s cannot be pruned', coalesce(before::text, 'NULL')),
            DETAIL = format('They may still be drawn with. What has ended before %s can be pruned.',
                snowflake_registry.instant(latest_ms)),
            HINT = 'Give an earlier time. Keep leases for as long as you may ask which server drew an id.';
    END IF;
    -- The last lease of a number has no end here.
    DELETE FROM snowflake_registry.history h
    WHERE h.fleet = prune.fleet AND h.until_ms < ceil(extract(epoch FROM before) * 1000);
    GET DIAGNOSTICS pruned = ROW_COUNT;
    RETURN format('Pruned leases%s: %s. Leases left: %s.',
        CASE WHEN isfinite(before) THEN format(' that ended before %s', before) ELSE '' END, pruned,
        (SELECT count(*) FROM snowflake_registry.history h WHERE h.fleet = prune.fleet));
END $$;

COMMENT ON FUNCTION snowflake_registry.prune(timestamptz, text) IS
    'forget leases that ended before an instant, so that drawn_by() no longer finds them; each number keeps its last one';

-- For people

CREATE OR REPLACE VIEW snowflake_registry.fleet AS
SELECT n.fleet, nullif(n.datacenter, -1) AS datacenter, n.worker,
    CASE WHEN n.until_ms <= c.now_ms
            THEN CASE WHEN n.generation < f.generation AND f.freeze_ms > c.now_ms THEN 'frozen' ELSE 'free' END
        WHEN n.server = 0 AND n.host = '' THEN 'reserved'
        ELSE CASE WHEN n.from_ms > c.now_ms THEN 'ahead' ELSE 'held' END
            || CASE WHEN n.worker NOT BETWEEN f.first_worker AND f.last_worker THEN ', outside the range' ELSE '' END
        END AS state,
    nullif(n.host, '') AS host, nullif(n.port, 0) AS port, nullif(n.cluster_name, '') AS cluster_name,
    nullif(n.version, '') AS version,
    snowflake_registry.instant(n.from_ms) AS begins, snowflake_registry.instant(n.until_ms) AS ends,
    make_interval(secs => least(greatest(n.until_ms::numeric - greatest(n.from_ms, c.now_ms), 0), 1e15) / 1000.0) AS remaining,
    snowflake_registry.instant(n.renewed_ms) AS renewed,
    make_interval(secs => greatest(least(n.offset_ms, 1e15), -1e15) / 1000.0) AS clock_offset
FROM snowflake_registry.numbers n JOIN snowflake_registry.fleets f ON f.name = n.fleet
    CROSS JOIN snowflake_registry.now_ms() AS c (now_ms)
ORDER BY n.fleet, n.datacenter, n.worker;

COMMENT ON VIEW snowflake_registry.fleet IS 'who holds which number, and until when';
COMMENT ON COLUMN snowflake_registry.fleet.fleet IS 'name of the fleet';
COMMENT ON COLUMN snowflake_registry.fleet.datacenter IS 'datacenter number, NULL in a layout without that field';
COMMENT ON COLUMN snowflake_registry.fleet.worker IS 'worker number';
COMMENT ON COLUMN snowflake_registry.fleet.state IS
    'held; ahead: leased, for ids of a later time; both with ", outside the range" if set_range() has left the number out since; reserved: kept from being leased; frozen: free at the end of the freeze; free';
COMMENT ON COLUMN snowflake_registry.fleet.host IS 'host name of the server that holds or held it';
COMMENT ON COLUMN snowflake_registry.fleet.port IS 'port of that server';
COMMENT ON COLUMN snowflake_registry.fleet.cluster_name IS 'cluster_name of that server';
COMMENT ON COLUMN snowflake_registry.fleet.version IS 'version of snowflake_id on that server';
COMMENT ON COLUMN snowflake_registry.fleet.begins IS 'from when on ids may carry the number';
COMMENT ON COLUMN snowflake_registry.fleet.ends IS 'until when ids may carry the number, if it is not renewed';
COMMENT ON COLUMN snowflake_registry.fleet.remaining IS 'how much of that is left';
COMMENT ON COLUMN snowflake_registry.fleet.renewed IS 'when the lease was written last';
COMMENT ON COLUMN snowflake_registry.fleet.clock_offset IS
    'how far the server''s clock was ahead of the registry''s then';

CREATE OR REPLACE VIEW snowflake_registry.leases AS
SELECT h.fleet, nullif(h.datacenter, -1) AS datacenter, h.worker, nullif(h.host, '') AS host, nullif(h.port, 0) AS port,
    nullif(h.cluster_name, '') AS cluster_name, nullif(h.version, '') AS version, snowflake_registry.instant(h.from_ms) AS begins,
    snowflake_registry.instant(coalesce(n.until_ms, h.until_ms)) AS ends
FROM snowflake_registry.history h LEFT JOIN snowflake_registry.numbers n
    ON (n.fleet, n.datacenter, n.worker, n.from_ms, n.holder) = (h.fleet, h.datacenter, h.worker, h.from_ms, h.holder)
ORDER BY h.fleet, h.datacenter, h.worker, h.from_ms;

COMMENT ON VIEW snowflake_registry.leases IS 'all leases that ever began, but those that prune() has removed';
COMMENT ON COLUMN snowflake_registry.leases.fleet IS 'name of the fleet';
COMMENT ON COLUMN snowflake_registry.leases.datacenter IS 'datacenter number, NULL in a layout without that field';
COMMENT ON COLUMN snowflake_registry.leases.worker IS 'worker number';
COMMENT ON COLUMN snowflake_registry.leases.host IS 'host name of the server; NULL where reserve() has kept the number';
COMMENT ON COLUMN snowflake_registry.leases.port IS 'port of the server';
COMMENT ON COLUMN snowflake_registry.leases.cluster_name IS 'cluster_name of the server';
COMMENT ON COLUMN snowflake_registry.leases.version IS 'version of snowflake_id on the server';
COMMENT ON COLUMN snowflake_registry.leases.begins IS 'from when on ids may carry the number';
COMMENT ON COLUMN snowflake_registry.leases.ends IS 'until when; NULL if the registry has lost it';

CREATE OR REPLACE FUNCTION snowflake_registry.drawn_by(created_at timestamptz, worker bigint, datacenter integer DEFAULT NULL,
    fleet text DEFAULT 'default') RETURNS SETOF snowflake_registry.leases
LANGUAGE sql STABLE AS $$
    SELECT * FROM snowflake_registry.leases l
    WHERE l.fleet = drawn_by.fleet AND l.datacenter IS NOT DISTINCT FROM drawn_by.datacenter
        AND l.worker = drawn_by.worker AND l.begins <= drawn_by.created_at AND coalesce(l.ends > drawn_by.created_at, true)
$$;

COMMENT ON FUNCTION snowflake_registry.drawn_by(timestamptz, bigint, integer, text) IS
    'which server drew an id; the arguments are parts of snowflake_parse(id)';

-- Tags: dense values, in blocks that servers reserve (src/core/segment.rs). An operator inserts,
-- changes and deletes rows. The servers only call the two functions below, which decide as
-- src/core/segment/record.rs does.

CREATE TABLE IF NOT EXISTS snowflake_registry.tags (
    fleet text NOT NULL DEFAULT 'default' REFERENCES snowflake_registry.fleets,
    tag text NOT NULL CHECK (octet_length(tag) BETWEEN 1 AND 63),
    next_value bigint NOT NULL DEFAULT 1,
    least_step integer NOT NULL DEFAULT 1000 CHECK (least_step BETWEEN 1 AND 10000000),
    greatest_step integer NOT NULL DEFAULT 1000000 CHECK (greatest_step BETWEEN least_step AND 10000000),
    jump integer CHECK (jump >= 1),
    description text,
    id bigint NOT NULL DEFAULT snowflake_registry.new_version(),
    nonce bigint NOT NULL DEFAULT snowflake_registry.new_version(),
    generation bigint NOT NULL DEFAULT 0,
    written_ms bigint NOT NULL DEFAULT snowflake_registry.now_ms(),
    returnable_from bigint NOT NULL DEFAULT 9223372036854775807,
    PRIMARY KEY (fleet, tag)
) WITH (fillfactor = 50);

-- An earlier build of this file had a default, so that every tag jumped.
ALTER TABLE snowflake_registry.tags ALTER COLUMN jump DROP DEFAULT;
-- And it lacks these.
SELECT (extract(epoch FROM now()) * 1000)::bigint AS added_ms \gset
-- A default that is a function would rewrite the table, and run what its constraints call.
ALTER TABLE snowflake_registry.tags ADD COLUMN IF NOT EXISTS written_ms bigint NOT NULL DEFAULT :added_ms,
    ADD COLUMN IF NOT EXISTS returnable_from bigint NOT NULL DEFAULT 9223372036854775807;
ALTER TABLE snowflake_registry.tags ALTER COLUMN written_ms SET DEFAULT snowflake_registry.now_ms();

COMMENT ON TABLE snowflake_registry.tags IS 'one record for each space of dense values';
COMMENT ON COLUMN snowflake_registry.tags.fleet IS 'name of the fleet';
COMMENT ON COLUMN snowflake_registry.tags.tag IS 'name of the tag, up to 63 bytes';
COMMENT ON COLUMN snowflake_registry.tags.next_value IS 'first value of the next block; may be raised, and not lowered';
COMMENT ON COLUMN snowflake_registry.tags.least_step IS 'fewest values of a block';
COMMENT ON COLUMN snowflake_registry.tags.greatest_step IS 'most values of a block';
COMMENT ON COLUMN snowflake_registry.tags.jump IS
    'how many greatest steps the tag jumps ahead when the registry may have lost leases or blocks: more than it can lose; NULL if the tag gives nothing then until next_value is set';
COMMENT ON COLUMN snowflake_registry.tags.description IS 'what the values are for';
COMMENT ON COLUMN snowflake_registry.tags.id IS 'random number, which another tag of the same name does not have';
COMMENT ON COLUMN snowflake_registry.tags.nonce IS 'another random number with each change of next_value';
COMMENT ON COLUMN snowflake_registry.tags.generation IS 'the fleet''s generation when next_value was written';
COMMENT ON COLUMN snowflake_registry.tags.written_ms IS 'when next_value was written, in milliseconds since 1970';
COMMENT ON COLUMN snowflake_registry.tags.returnable_from IS
    'from where on values may be given back: the first of the blocks that the last server has reserved one after the other';

CREATE OR REPLACE FUNCTION snowflake_registry.keep_tags() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    fleet_generation bigint := coalesce((SELECT f.generation FROM snowflake_registry.fleets f WHERE f.name = new.fleet), 0);
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF new.nonce <> old.nonce THEN
            -- Functions of this file, which have looked at everything.
            new.written_ms := snowflake_registry.now_ms();
            RETURN new;
        END IF;
        -- Larger blocks may be lost, and the tag must jump over them, too.
        IF new.greatest_step < old.greatest_step AND new.jump = old.jump THEN
            new.jump := least(2147483647, ceil(old.jump::numeric * old.greatest_step / nullif(new.greatest_step, 0)));
            RAISE NOTICE 'jump of tag "%" is % greatest steps now, as many values as before', old.tag, new.jump;
        END IF;
        IF (new.fleet, new.tag, new.id) IS DISTINCT FROM (old.fleet, old.tag, old.id) THEN
            RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('tag "%s" cannot be renamed', old.tag),
                DETAIL = 'Servers have values of it under this name.',
                HINT = 'Insert another tag, and set its next_value.';
        ELSIF new.next_value = old.next_value THEN
            IF old.jump IS NULL AND new.jump IS NOT NULL AND old.generation < fleet_generation THEN
                RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('tag "%s" needs a next value, too', old.tag),
                    DETAIL = 'The registry may have lost values of it, and it had no jump then.',
                    HINT = 'Set next_value as well, above all values that servers have had.';
            END IF;
            RETURN new;
        ELSIF new.next_value < old.next_value THEN
            RAISE EXCEPTION USING ERRCODE = '22023',
                MESSAGE = format('next value of tag "%s" cannot be lowered from %s to %s', old.tag, old.next_value, new.next_value),
                DETAIL = 'Servers have had the values before it.',
                HINT = 'To begin anew, delete the tag and insert it again, when no server uses it any more.';
        END IF;
    END IF;
    new.generation := fleet_generation;
    new.nonce := snowflake_registry.new_version();
    new.written_ms := snowflake_registry.now_ms();
    RETURN new;
END $$;

COMMENT ON FUNCTION snowflake_registry.keep_tags() IS
    'note when a tag is written, and refuse what would give values of it twice';

DROP TRIGGER IF EXISTS keep_tags ON snowflake_registry.tags;
CREATE TRIGGER keep_tags BEFORE INSERT OR UPDATE ON snowflake_registry.tags
FOR EACH ROW EXECUTE FUNCTION snowflake_registry.keep_tags();

CREATE OR REPLACE FUNCTION snowflake_registry.reserve_blocks(fleet text, patience_ms bigint, was_version bigint, was_store bigint,
    was_timeline bigint, tags text[], ids bigint[], steps bigint[], aboves bigint[], leasts bigint[], generations bigint[],
    nonces bigint[], was_nonces bigint[])
RETURNS TABLE (done boolean, store bigint, timeline bigint, number integer, answer text, id bigint, least_step bigint,
    greatest_step bigint, first_value bigint, value_count bigint, generation bigint, skipped bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f snowflake_registry.fleets;
    t snowflake_registry.tags;
    above bigint;
    jumps numeric;
    next_number numeric;
    known_number numeric;
    first_number numeric;
    last_end CONSTANT numeric := 9223372036854775807;
BEGIN
    PERFORM snowflake_registry.begin_change(patience_ms);
    SELECT * INTO f FROM snowflake_registry.fleets s WHERE s.name = reserve_blocks.fleet FOR SHARE;
    IF NOT FOUND THEN
        PERFORM snowflake_registry.no_fleet(fleet);
    END IF;
    SELECT i.store, i.timeline INTO store, timeline FROM snowflake_registry.incarnation() i;
    done := (f.version = was_version AND store = was_store AND timeline = was_timeline AND NOT f.closed) IS TRUE;
    IF NOT done THEN
        RETURN NEXT;
        RETURN;
    END IF;
    -- Each tag once, because a call is bounded by what it may do with one.
    IF cardinality(tags) > 1000 OR cardinality(tags) > (SELECT count(DISTINCT u.tag) FROM unnest(tags) AS u (tag)) THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005', MESSAGE = 'a call can ask for 1000 tags, and for each of them once';
    END IF;
    -- In one order, so that two servers do not wait for each other.
    FOR number IN SELECT u.at FROM unnest(tags) WITH ORDINALITY AS u (tag, at) ORDER BY u.tag COLLATE "C" LOOP
        answer := NULL;
        SELECT * INTO t FROM snowflake_registry.tags s WHERE s.fleet = reserve_blocks.fleet AND s.tag = tags[number]
        FOR UPDATE;
        -- The trigger knows by another nonce that it is this function that writes.
        IF nonces[number] IS NULL OR nonces[number] = t.nonce THEN
            RAISE EXCEPTION USING ERRCODE = 'SF005', MESSAGE = format('tag "%s" needs a new nonce', tags[number]);
        END IF;
        jumps := greatest(f.generation - t.generation, 0);
        above := coalesce(aboves[number], -9223372036854775808);
        id := t.id;
        least_step := t.least_step;
        greatest_step := t.greatest_step;
        generation := f.generation;
        IF t.id IS NULL OR ids[number] <> t.id THEN
            answer := 'unknown';
        ELSIF jumps = 0 AND t.next_value < above AND t.generation <= generations[number] THEN
            answer := 'forgot';
        ELSIF jumps > 0 AND t.jump IS NULL THEN
            answer := 'no jump';
            -- What the server has had, so that the operator cannot set less.
            -- As much as one call may raise a tag; the next look adds to it.
            UPDATE snowflake_registry.tags s SET next_value = least(above, s.next_value::numeric + 10000000000),
                nonce = nonces[number]
            WHERE s.fleet = t.fleet AND s.tag = t.tag AND above > s.next_value;
        ELSIF steps[number] IS NULL THEN
            answer := 'known';
        ELSE
            next_number := least(t.next_value + jumps * coalesce(t.jump, 0) * t.greatest_step, last_end);
            known_number := greatest(next_number, above);
            -- A wish may only raise.
            first_number := greatest(known_number, leasts[number]);
            value_count := least(greatest(steps[number], t.least_step), t.greatest_step, last_end - least(first_number, last_end));
            IF first_number > least(next_number + 10000000000, last_end) THEN
                -- Otherwise one call could use up the tag for ever.
                answer := 'too far';
            ELSIF value_count <= 0 THEN
                answer := 'ended';
            ELSE
                answer := 'block';
                first_value := first_number;
                skipped := least(known_number - t.next_value, last_end);
                UPDATE snowflake_registry.tags s SET next_value = reserve_blocks.first_value + reserve_blocks.value_count,
                    nonce = nonces[number], generation = f.generation,
                    -- A server that knows the last block's nonce has reserved it.
                    returnable_from = CASE WHEN t.nonce = was_nonces[number] AND first_number = t.next_value
                        THEN least(t.returnable_from, reserve_blocks.first_value) ELSE reserve_blocks.first_value END
                WHERE s.fleet = t.fleet AND s.tag = t.tag;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

COMMENT ON FUNCTION snowflake_registry.reserve_blocks(text, bigint, bigint, bigint, bigint, text[], bigint[], bigint[],
    bigint[], bigint[], bigint[], bigint[], bigint[]) IS
    'for servers: reserve blocks of several tags, if the fleet''s record and the registry are what the server has read';

-- What it answers was another type.
DO $$
DECLARE
    old regprocedure := to_regprocedure('snowflake_registry.return_blocks(text, bigint, bigint, bigint, bigint, text[], bigint[], '
        'bigint[], bigint[], bigint[])');
BEGIN
    IF pg_get_function_result(old) LIKE '% taken boolean)' THEN
        EXECUTE format('ALTER FUNCTION %s RENAME TO old_return_blocks', old);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION snowflake_registry.return_blocks(fleet text, patience_ms bigint, was_version bigint, was_store bigint,
    was_timeline bigint, tags text[], ids bigint[], was_nonces bigint[], first_values bigint[], nonces bigint[])
RETURNS TABLE (done boolean, store bigint, timeline bigint, number integer, taken_from bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f snowflake_registry.fleets;
BEGIN
    PERFORM snowflake_registry.begin_change(patience_ms);
    SELECT * INTO f FROM snowflake_registry.fleets s WHERE s.name = return_blocks.fleet FOR SHARE;
    IF NOT FOUND THEN
        PERFORM snowflake_registry.no_fleet(fleet);
    END IF;
    SELECT i.store, i.timeline INTO store, timeline FROM snowflake_registry.incarnation() i;
    done := (f.version = was_version AND store = was_store AND timeline = was_timeline AND NOT f.closed) IS TRUE;
    IF NOT done THEN
        RETURN NEXT;
        RETURN;
    END IF;
    FOR number IN SELECT u.at FROM unnest(tags) WITH ORDINALITY AS u (tag, at) ORDER BY u.tag COLLATE "C" LOOP
        taken_from := NULL;
        IF nonces[number] IS NULL OR nonces[number] = was_nonces[number] THEN
            RAISE EXCEPTION USING ERRCODE = 'SF005', MESSAGE = format('tag "%s" needs a new nonce', tags[number]);
        END IF;
        UPDATE snowflake_registry.tags s SET next_value = greatest(first_values[number], s.returnable_from),
            nonce = nonces[number], returnable_from = 9223372036854775807
        WHERE s.fleet = return_blocks.fleet AND s.tag = tags[number] AND s.id = ids[number]
            AND s.nonce = was_nonces[number] AND s.generation = f.generation
            -- What lies before the server's own blocks, other servers have drawn.
            AND greatest(first_values[number], s.returnable_from) < s.next_value
            -- No server has more than two blocks.
            AND s.next_value::numeric - first_values[number] <= 2 * s.greatest_step::bigint
        RETURNING s.next_value INTO taken_from;
        RETURN NEXT;
    END LOOP;
END $$;

COMMENT ON FUNCTION snowflake_registry.return_blocks(text, bigint, bigint, bigint, bigint, text[], bigint[], bigint[],
    bigint[], bigint[]) IS
    'for servers: give back what is left of the last block of several tags, where no block was reserved since';

-- Functions for servers that had other arguments or answers. The servers may call the new ones.
DO $$
DECLARE
    old record;
    server regrole;
BEGIN
    FOR old IN SELECT p.oid, p.proowner, p.proacl, replace(p.proname, 'old_', '') AS name FROM pg_proc p
               WHERE p.pronamespace = 'snowflake_registry'::regnamespace
                   AND (p.proname = 'reserve_blocks' AND p.pronargs < 13 OR p.proname IN ('old_read', 'old_return_blocks')) LOOP
        EXECUTE format('DROP FUNCTION %s', old.oid::regprocedure);
        FOR server IN SELECT a.grantee FROM aclexplode(old.proacl) a WHERE a.grantee NOT IN (0, old.proowner) LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION snowflake_registry.%I TO %s', old.name, server);
        END LOOP;
    END LOOP;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA snowflake_registry FROM PUBLIC;
GRANT USAGE ON SCHEMA snowflake_registry TO pg_monitor;
GRANT SELECT ON snowflake_registry.fleet, snowflake_registry.leases TO pg_monitor;
GRANT EXECUTE ON FUNCTION snowflake_registry.version(), snowflake_registry.now_ms(), snowflake_registry.instant(bigint),
    snowflake_registry.drawn_by(timestamptz, bigint, integer, text) TO pg_monitor;

\if :is_there
\else
    SELECT snowflake_registry.add_fleet('default');
\endif
\if :lost
    SELECT snowflake_registry.lost(:'lease', :'skew');
\endif

\if :is_there
    -- Before the end, because all of this is still the owner's. :'was' is what there was.
    SELECT coalesce(string_agg(n.name, ', ' ORDER BY n.name) FILTER (WHERE w.name IS NULL), '') AS new,
        coalesce(string_agg(n.name, ', ' ORDER BY n.name) FILTER (WHERE w.value <> n.value), '') AS changed,
        coalesce(string_agg(w.name, ', ' ORDER BY w.name) FILTER (WHERE n.name IS NULL), '') AS gone
    FROM json_each_text(:'was') AS w (name, value) FULL JOIN json_each_text(:contents) AS n (name, value) ON n.name = w.name \gset
    -- No row is read: a table that was found may have columns of types whose casts another role has
    -- made.
    SELECT :'new' <> '' AS has_new, :'changed' <> '' AS has_changed, :'gone' <> '' AS has_gone,
        concat(:'new', :'changed', :'gone') = '' AS is_same \gset
    -- A role that may read is one of servers.
    SELECT coalesce(string_agg(format('GRANT EXECUTE ON FUNCTION snowflake_registry.%I TO %s;', p.proname, g.role), E'\n    '
            ORDER BY g.role::text, p.proname), '') AS grants, count(*) > 0 AS lacks_grants
    FROM (SELECT a.grantee::regrole FROM pg_proc r, aclexplode(r.proacl) a
          WHERE r.oid = to_regprocedure('snowflake_registry.read(text, integer, bigint)') AND a.grantee NOT IN (0, r.proowner)) AS g (role),
        pg_proc p
    WHERE p.pronamespace = to_regnamespace('snowflake_registry')
        AND p.proname IN ('swap_fleet', 'swap_number', 'reserve_blocks', 'return_blocks')
        AND NOT has_function_privilege(g.role, p.oid, 'EXECUTE') \gset
\endif

COMMIT;

\if :is_there
    \echo registry.sql: this database had a registry already (version :was_version). Records and rights are as they were.
    \if :is_same
        \echo 'Nothing has changed.'
    \endif
    \if :has_new
        \echo New: :new
    \endif
    \if :has_changed
        \echo Changed: :changed
    \endif
    \if :has_gone
        \echo Gone: :gone
    \endif
    \if :lacks_grants
        \echo Roles of servers lack rights. Run:
        \echo '   ' :grants
    \endif
\endif
