-- Makes the registry of a fleet: the records from which servers lease their worker numbers, and
-- reserve dense values. Run it in any database of any PostgreSQL 13 or later that all servers of
-- the fleet reach:
--
--     psql -X -q -v ON_ERROR_STOP=1 -d ids -f registry.sql
--
-- "snowflake-registry create" runs the same statements. All of them are one transaction.
--
-- The file needs a role that may create a schema, and nothing preloaded. That role owns the
-- registry, and operates it with the program "snowflake-registry". The servers need a role of
-- their own, which may do no more than this:
--
--     CREATE ROLE snowflake LOGIN;
--     ALTER ROLE snowflake SET statement_timeout = '10s';
--     GRANT USAGE ON SCHEMA snowflake_registry TO snowflake;
--     GRANT EXECUTE ON FUNCTION snowflake_registry.read, snowflake_registry.swap TO snowflake;
--
-- Run the file again with each new version of snowflake_id, before the servers have that version.
-- It then replaces functions, views, comments and triggers. Records, the fleet's uuid and granted
-- rights stay. Notices name what has changed, and which GRANT a role of servers lacks.
--
-- The schema's owner runs the file. Another role, such as a superuser, has to name the owner, which
-- it then becomes. Otherwise a role that may create a schema could leave one here that takes over
-- the role that runs this:
--
--     psql -X -q -v ON_ERROR_STOP=1 -d ids \
--         -c "SET snowflake_registry.owner = 'dba'" -f registry.sql
--
-- A new registry then belongs to that role, too.
--
-- A server gives a statement up after five seconds. The timeout ends it in the registry, too, so
-- that no session stays behind each time.
--
-- Servers and operators decide (src/core), and the registry compares and writes. They call two
-- functions, read() and swap(). For each write of a server, triggers check the rules below, against
-- mistakes and against a thief of the servers' password. An operator's write must only keep to the
-- constraints of the tables.
--
-- * A record that a server has written holds that server's secret, which nothing shows. Only with
--   the secret can a lease be renewed or given back, and values of a tag be given back.
-- * Numbers: the leases of one number never overlap: a new one begins at or after the end of the
--   one before. It is written when that end is at most the skew in use away, for a number in the
--   range, in the fleet's generation, and begins after the freeze. Only its holder moves its end.
--   It ends at most the longest lease and two skews after the registry's clock, also if it is
--   empty. Its count grows, and leaves room for the next one. What an operator keeps stays kept. A
--   fleet has no more records of numbers than an operator can read at once, and none of a
--   datacenter that a built-in layout does not have.
-- * Fleets: servers bring layout and range once, and the default limits. They change no limit and
--   nothing else that an operator sets. A registry that shows another store or timeline begins a
--   generation, unless an operator vouches for its standby. The generation grows by the timelines.
--   Its freeze is as long as the limits need, and no longer than the greatest limits need.
-- * Tags: a server changes the next value, and nothing that an operator sets. The next value rises
--   by all jumps of the generations since, and by at most 10,000,000,000 and a block. It falls only
--   for the last server that has reserved a block: once, by at most two blocks, and to none of
--   another server's values. A tag that does not jump stays stopped until an operator sets its next
--   value.
-- * A server deletes nothing and makes no tag, and no table is read but by these functions. They do
--   not list tags, whose names a server has to know.
--
-- A number's record is deleted only if it has ended by the fleet's freeze, whoever deletes it: the
-- number is leased from there on. "snowflake-registry drop-numbers" raises the freeze first.
--
-- tests/cluster/tests/servers/fleet_security/thief.rs tries to break each of them.
--
-- Order of locks: a swap locks the fleet's row FOR SHARE, or FOR UPDATE at once if it changes that
-- row or is an operator's. A transaction that first shared that lock, and then wanted it alone,
-- would deadlock with another one like it. Before that, a server's swap that makes a number's
-- record locks a row of new_numbers, so that transactions make such records one after the other, in
-- each of 64 parts. (A session could hold an advisory lock by itself.) Then it locks the rows of
-- numbers and of tags, each in the order of their names, and writes when all are as compared.
--
-- Instants are milliseconds since 1970. A bigint may stand for an unsigned number, by its bits.

BEGIN;

-- Before anything else: the database's owner may have set another path, on which functions and
-- operators take the place of PostgreSQL's own.
SET LOCAL search_path = pg_catalog, pg_temp;
-- That a table or a trigger is there, or not there yet, is not worth a notice.
SET LOCAL client_min_messages = warning;
-- Where this reads a table, no policy runs.
SET LOCAL row_security = off;
-- Servers see the old file or this one. They wait meanwhile, but not for a session that holds this
-- up.
SET LOCAL lock_timeout = '3s';

-- What the schema has, each object with all that makes it. A query, because it is asked twice.
SET LOCAL snowflake_registry.contents = $query$
    SELECT coalesce(json_object_agg(o.name, o.value), '{}') FROM (
        SELECT format('function %s(%s)', p.proname, pg_get_function_identity_arguments(p.oid)),
            concat(pg_get_functiondef(p.oid), obj_description(p.oid, 'pg_proc'))
        FROM pg_proc p WHERE p.pronamespace = to_regnamespace('snowflake_registry') AND p.prokind = 'f'
        UNION ALL
        SELECT format('%s %s', CASE c.relkind WHEN 'v' THEN 'view' ELSE 'table' END, c.relname),
            concat(CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid) END, obj_description(c.oid, 'pg_class'),
                (SELECT string_agg(concat(a.attname, a.atttypid, a.attnotnull, pg_get_expr(d.adbin, d.adrelid),
                        col_description(a.attrelid, a.attnum)), ' ' ORDER BY a.attnum)
                 FROM pg_attribute a LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
                (SELECT string_agg(pg_get_triggerdef(t.oid), ' ' ORDER BY t.tgname)
                 FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal))
        FROM pg_class c WHERE c.relnamespace = to_regnamespace('snowflake_registry') AND c.relkind IN ('r', 'v')
    ) AS o (name, value)
$query$;

-- Refuses what must not be, becomes the owner, and notes what is there.
DO $$
DECLARE
    owner_name text := coalesce(nullif(current_setting('snowflake_registry.owner', true), ''), current_user);
    was_owner oid := (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'snowflake_registry');
    source text;
    was text := '';
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION USING ERRCODE = '25006', MESSAGE = 'this server is a standby',
            HINT = 'Run registry.sql on the primary.';
    ELSIF NOT current_setting('fsync')::boolean THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = '"fsync" is off here',
            DETAIL = 'A crash could make a registry lose leases.', HINT = 'Set "fsync" to on first.';
    -- By this, the database's owner could name itself.
    ELSIF EXISTS (SELECT FROM pg_db_role_setting s, unnest(s.setconfig) AS c (line)
                  WHERE lower(split_part(c.line, '=', 1)) = 'snowflake_registry.owner') THEN
        RAISE EXCEPTION USING ERRCODE = '55000',
            MESSAGE = '"snowflake_registry.owner" is set for a database or a role',
            HINT = 'Reset it there with ALTER DATABASE or ALTER ROLE. Set it in the session that runs registry.sql.';
    ELSIF was_owner <> coalesce(to_regrole(quote_ident(owner_name)), 0) THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = format('schema "snowflake_registry" belongs to role "%s", and not to "%s"',
                pg_get_userbyid(was_owner), owner_name),
            HINT = format('If you trust that role with the registry, run registry.sql as that role, or first run: '
                'SET snowflake_registry.owner = %L;', pg_get_userbyid(was_owner));
    END IF;
    IF was_owner IS NULL THEN
        EXECUTE format('CREATE SCHEMA snowflake_registry AUTHORIZATION %I', owner_name);
    ELSE
        -- Nothing in the schema is called, not even as its owner: a function can RESET ROLE. So the
        -- version is what the function's source says. (Replaced by this file, it would hide which
        -- registry this is.)
        source := (SELECT max(p.prosrc) FROM pg_proc p
            WHERE p.pronamespace = to_regnamespace('snowflake_registry') AND p.proname = 'version' AND p.pronargs = 0);
        IF source IS DISTINCT FROM 'SELECT 2' THEN
            RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format(
                    'this database has a registry of version %s, and this file is for version 2',
                    coalesce(substring(source FROM '^[[:space:]]*SELECT ([0-9]{1,9})[[:space:]]*$'), 'unknown')),
                HINT = CASE WHEN source = 'SELECT 1' THEN
                    'Nothing converts it. Drop the schema "snowflake_registry", and make the registry again with "snowflake-registry lost".'
                    ELSE 'Use the file of the snowflake_id that the servers have.' END;
        END IF;
    END IF;
    -- What is new belongs to the registry's owner, too: functions that run with other rights could
    -- not read its tables. It stays so up to the end.
    EXECUTE format('SET LOCAL ROLE %I', owner_name);
    IF was_owner IS NOT NULL THEN
        -- All changes lock this table first.
        LOCK TABLE snowflake_registry.fleets IN ACCESS EXCLUSIVE MODE;
        EXECUTE current_setting('snowflake_registry.contents') INTO was;
    END IF;
    PERFORM set_config('snowflake_registry.was', was, true);
END $$;

COMMENT ON SCHEMA snowflake_registry IS
    'registry of snowflake_id: which server may draw ids with which worker number, and for which time';

-- STABLE, because a plan that is kept does not notice that an IMMUTABLE function was replaced.
CREATE OR REPLACE FUNCTION snowflake_registry.version() RETURNS integer
LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT 2';

COMMENT ON FUNCTION snowflake_registry.version() IS
    'version of the registry, which servers compare with the one that they need';

-- What this server is

CREATE OR REPLACE FUNCTION snowflake_registry.now_ms() RETURNS bigint
LANGUAGE sql VOLATILE AS $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

COMMENT ON FUNCTION snowflake_registry.now_ms() IS
    'the registry''s clock, in milliseconds since 1970';

CREATE OR REPLACE FUNCTION snowflake_registry.store() RETURNS bigint
LANGUAGE sql VOLATILE AS $$ SELECT (pg_control_system()).system_identifier $$;

COMMENT ON FUNCTION snowflake_registry.store() IS
    'system identifier of this server; a restore into another server changes it';

CREATE OR REPLACE FUNCTION snowflake_registry.timeline() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
$$;

COMMENT ON FUNCTION snowflake_registry.timeline() IS
    'timeline of this server; a failover and a restore change it';

CREATE OR REPLACE FUNCTION snowflake_registry.new_version() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT ('x' || right(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint
$$;

COMMENT ON FUNCTION snowflake_registry.new_version() IS
    'a random number, for a change of a record';

CREATE OR REPLACE FUNCTION snowflake_registry.instant(ms bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    -- What no calendar of PostgreSQL holds is infinitely far away.
    SELECT CASE WHEN ms < -210866803200000 THEN '-infinity' WHEN ms > 9224318015999999 THEN 'infinity'
        ELSE to_timestamp(ms / 1000.0) END
$$;

COMMENT ON FUNCTION snowflake_registry.instant(bigint) IS
    'milliseconds since 1970 as timestamptz';

-- Records. Whatever a person types, the numbers stay within what servers and views can use.

CREATE TABLE IF NOT EXISTS snowflake_registry.fleets (
    name text PRIMARY KEY CHECK (name <> ''),
    uuid uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    layout bigint,
    backup boolean,
    first_worker bigint CHECK (first_worker >= 0),
    last_worker bigint CHECK (last_worker >= first_worker),
    loses_nothing boolean NOT NULL DEFAULT false,
    closed boolean NOT NULL DEFAULT false,
    -- As MOST_LEASE_MS and MOST_SKEW_MS have them (src/core/fleet/registry.rs). Limits and freezes
    -- beyond them would last for ever.
    longest_ms bigint NOT NULL DEFAULT 0 CHECK (longest_ms BETWEEN 0 AND 2592000000),
    skew_ms bigint NOT NULL DEFAULT 0 CHECK (skew_ms BETWEEN 0 AND 3600000),
    lease_ms bigint NOT NULL DEFAULT 0 CHECK (lease_ms BETWEEN 0 AND 2592000000),
    clock_skew_ms bigint NOT NULL DEFAULT 0 CHECK (clock_skew_ms BETWEEN 0 AND 3600000),
    store bigint NOT NULL,
    timeline bigint NOT NULL,
    generation bigint NOT NULL DEFAULT 1 CHECK (generation >= 0),
    horizon_ms bigint NOT NULL DEFAULT -9223372036854775808 CHECK (horizon_ms <= 9224318015999999),
    freeze_ms bigint NOT NULL DEFAULT -9223372036854775808 CHECK (freeze_ms <= 9224318015999999),
    version bigint NOT NULL DEFAULT snowflake_registry.new_version(),
    CHECK ((layout IS NULL) = (backup IS NULL)),
    CHECK ((first_worker IS NULL) = (last_worker IS NULL))
) WITH (fillfactor = 50);

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
COMMENT ON COLUMN snowflake_registry.fleets.lease_ms IS
    'how long leases are, in milliseconds, up to longest_ms; 0 for ten minutes';
COMMENT ON COLUMN snowflake_registry.fleets.clock_skew_ms IS
    'how far clocks may be apart now, in milliseconds, up to skew_ms; 0 for a minute';
COMMENT ON COLUMN snowflake_registry.fleets.store IS 'system identifier of the registry when this record was written';
COMMENT ON COLUMN snowflake_registry.fleets.timeline IS 'timeline of the registry when this record was written';
COMMENT ON COLUMN snowflake_registry.fleets.generation IS 'how often the registry may have lost leases or blocks';
COMMENT ON COLUMN snowflake_registry.fleets.horizon_ms IS
    'records of an older generation that end at or before this may have changed hands, in milliseconds since 1970';
COMMENT ON COLUMN snowflake_registry.fleets.freeze_ms IS
    'numbers of an older generation are leased from here on, in milliseconds since 1970';
COMMENT ON COLUMN snowflake_registry.fleets.version IS 'another random number with each change of this record';

CREATE TABLE IF NOT EXISTS snowflake_registry.numbers (
    fleet text NOT NULL REFERENCES snowflake_registry.fleets,
    datacenter integer NOT NULL CHECK (datacenter >= -1),
    worker bigint NOT NULL CHECK (worker >= 0),
    holder uuid NOT NULL,
    nonce bigint NOT NULL,
    count bigint NOT NULL,
    server bigint NOT NULL,
    from_ms bigint NOT NULL CHECK (from_ms >= -210866803200000),
    until_ms bigint NOT NULL CHECK (until_ms BETWEEN from_ms AND 9224318015999999),
    generation bigint NOT NULL CHECK (generation >= 0),
    renewed_ms bigint NOT NULL,
    offset_ms bigint NOT NULL,
    host text NOT NULL,
    port integer NOT NULL CHECK (port BETWEEN 0 AND 65535),
    cluster_name text NOT NULL,
    version text NOT NULL,
    secret uuid,
    PRIMARY KEY (fleet, datacenter, worker)
) WITH (fillfactor = 50);

COMMENT ON TABLE snowflake_registry.numbers IS
    'the last lease of each number, until an operator deletes it';
COMMENT ON COLUMN snowflake_registry.numbers.fleet IS 'name of the fleet';
COMMENT ON COLUMN snowflake_registry.numbers.datacenter IS 'datacenter number, -1 in a layout without that field';
COMMENT ON COLUMN snowflake_registry.numbers.worker IS 'worker number';
COMMENT ON COLUMN snowflake_registry.numbers.holder IS 'random name of the lease';
COMMENT ON COLUMN snowflake_registry.numbers.nonce IS 'another random number with each change of this record';
COMMENT ON COLUMN snowflake_registry.numbers.count IS 'greater with each change of this record';
COMMENT ON COLUMN snowflake_registry.numbers.server IS
    'fingerprint of the server''s host and port; 0 if an operator keeps the number from being leased';
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
COMMENT ON COLUMN snowflake_registry.numbers.secret IS
    'what only the lease''s holder knows, and must not be shown; NULL if no server can renew the lease';

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

COMMENT ON TABLE snowflake_registry.history IS 'one row for each lease that ever began, until an operator prunes it';
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

CREATE TABLE IF NOT EXISTS snowflake_registry.new_numbers (
    fleet text,
    part bigint,
    made bigint NOT NULL,
    PRIMARY KEY (fleet, part)
) WITH (fillfactor = 50);

COMMENT ON TABLE snowflake_registry.new_numbers IS
    'each row is locked by a server''s transaction that makes the record of a number, so that these are counted one after the other';
COMMENT ON COLUMN snowflake_registry.new_numbers.fleet IS 'name of the fleet';
COMMENT ON COLUMN snowflake_registry.new_numbers.part IS 'part of the fleet''s numbers (snowflake_registry.part)';
COMMENT ON COLUMN snowflake_registry.new_numbers.made IS
    'how often servers have made records; changed each time, so that no transaction counts what it saw before';

CREATE TABLE IF NOT EXISTS snowflake_registry.tags (
    fleet text NOT NULL DEFAULT 'default' REFERENCES snowflake_registry.fleets,
    tag text NOT NULL CHECK (octet_length(tag) BETWEEN 1 AND 63),
    next_value bigint NOT NULL DEFAULT 1,
    least_step integer NOT NULL DEFAULT 1000 CHECK (least_step BETWEEN 1 AND 10000000),
    greatest_step integer NOT NULL DEFAULT 1000000 CHECK (greatest_step BETWEEN least_step AND 10000000),
    jumps boolean NOT NULL DEFAULT false,
    description text,
    id bigint NOT NULL DEFAULT snowflake_registry.new_version(),
    nonce bigint NOT NULL DEFAULT snowflake_registry.new_version(),
    generation bigint NOT NULL DEFAULT 0 CHECK (generation >= 0),
    written_ms bigint NOT NULL DEFAULT snowflake_registry.now_ms(),
    returnable_from bigint NOT NULL DEFAULT 9223372036854775807,
    secret uuid,
    PRIMARY KEY (fleet, tag)
) WITH (fillfactor = 50);

COMMENT ON TABLE snowflake_registry.tags IS
    'one record for each space of dense values; an operator inserts, changes and deletes rows';
COMMENT ON COLUMN snowflake_registry.tags.fleet IS 'name of the fleet';
COMMENT ON COLUMN snowflake_registry.tags.tag IS 'name of the tag, up to 63 bytes';
COMMENT ON COLUMN snowflake_registry.tags.next_value IS 'first value of the next block; may be raised, and not lowered';
COMMENT ON COLUMN snowflake_registry.tags.least_step IS 'fewest values of a block';
COMMENT ON COLUMN snowflake_registry.tags.greatest_step IS 'most values of a block';
COMMENT ON COLUMN snowflake_registry.tags.jumps IS
    'whether the tag jumps ahead by 1,000,000,000 when the registry may have lost leases or blocks; otherwise the tag gives nothing then until next_value is set';
COMMENT ON COLUMN snowflake_registry.tags.description IS 'what the values are for';
COMMENT ON COLUMN snowflake_registry.tags.id IS 'random number, which another tag of the same name does not have';
COMMENT ON COLUMN snowflake_registry.tags.nonce IS 'another random number with each change of this record';
COMMENT ON COLUMN snowflake_registry.tags.generation IS 'the fleet''s generation when next_value was written';
COMMENT ON COLUMN snowflake_registry.tags.written_ms IS 'when next_value was written, in milliseconds since 1970';
COMMENT ON COLUMN snowflake_registry.tags.returnable_from IS
    'from where on values may be given back: the first of the blocks that the last server has reserved one after the other';
COMMENT ON COLUMN snowflake_registry.tags.secret IS
    'what only the server knows that has reserved the last block, and must not be shown; NULL if no server can give it back';

-- For servers and operators. Each call is a transaction. src/registry/postgres.rs knows the
-- SQLSTATEs, except SF005:
--
--     SF001  the registry is a standby
--     SF002  the registry is read-only
--     SF003  the registry has "fsync" off
--     SF004  the registry has no such fleet
--     SF005  the rules do not permit a server's change; shown as any other error

CREATE OR REPLACE FUNCTION snowflake_registry.check_server() RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION USING ERRCODE = 'SF001', MESSAGE = 'registry is a standby';
    ELSIF current_setting('transaction_read_only')::boolean THEN
        RAISE EXCEPTION USING ERRCODE = 'SF002', MESSAGE = 'registry is read-only';
    ELSIF NOT current_setting('fsync')::boolean THEN
        RAISE EXCEPTION USING ERRCODE = 'SF003', MESSAGE = 'registry has "fsync" off';
    END IF;
    RETURN true;
END $$;

COMMENT ON FUNCTION snowflake_registry.check_server() IS
    'refuse a server that cannot keep what it is told: a standby, read-only, or with "fsync" off';

CREATE OR REPLACE FUNCTION snowflake_registry.begin_change(patience_ms bigint, writer text) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- An assignment takes a third of the time of PERFORM.
    is_set text := snowflake_registry.check_server();
BEGIN
    -- These last until the end of the transaction. A SET clause of the function would end before
    -- the commit.
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        is_set := set_config('synchronous_commit', 'on', true);
    END IF;
    -- The warning that a wait for a synchronous standby was cancelled must reach the server.
    is_set := set_config('client_min_messages', 'warning', true);
    -- When a server gives up, what waits for a lock here on its behalf must not stay behind.
    IF patience_ms > 0 THEN
        is_set := set_config('lock_timeout', least(patience_ms, 2147483647)::text, true);
    END IF;
    -- The triggers check what a server writes.
    RETURN set_config('snowflake_registry.writer', writer, true);
END $$;

COMMENT ON FUNCTION snowflake_registry.begin_change(bigint, text) IS
    'prepare the transaction for a change by a ''server'' or an ''operator'': durable at its commit, and no endless wait for locks';

CREATE OR REPLACE FUNCTION snowflake_registry.check_operator() RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
    owner_name CONSTANT name := (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace n WHERE n.nspname = 'snowflake_registry');
BEGIN
    IF NOT pg_has_role(session_user, owner_name, 'MEMBER') THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = format('role "%s" is not an operator of the registry', session_user),
            DETAIL = format('The registry belongs to role "%s".', owner_name);
    END IF;
    RETURN true;
END $$;

COMMENT ON FUNCTION snowflake_registry.check_operator() IS
    'refuse a session whose role is not a member of the one that owns the registry';

CREATE OR REPLACE FUNCTION snowflake_registry.no_fleet(fleet text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'SF004', MESSAGE = format('there is no fleet "%s"', fleet);
END $$;

COMMENT ON FUNCTION snowflake_registry.no_fleet(text) IS 'raise the error that a fleet does not exist';

CREATE OR REPLACE FUNCTION snowflake_registry.refuse(why text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'SF005', MESSAGE = why,
        HINT = 'A server that follows the rules never sends this. If the registry was restored, run "snowflake-registry restored". If not, see "A password is stolen" in the runbook.';
END $$;

COMMENT ON FUNCTION snowflake_registry.refuse(text) IS
    'raise the error that no server''s own rules permit a change';

CREATE OR REPLACE FUNCTION snowflake_registry.makers() RETURNS SETOF text
LANGUAGE sql VOLATILE AS $$
    -- A lock on the table lasts as long as the transaction, also where the row was locked in a
    -- savepoint. Transactions that wait for the row are not left out: one that holds it may wait.
    SELECT coalesce('process ' || l.pid || format(' (transaction %s)', l.virtualtransaction),
        format('prepared transaction "%s"', p.gid))
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
        LEFT JOIN (pg_locks x JOIN pg_prepared_xacts p ON p.transaction = x.transactionid)
            ON l.pid IS NULL AND x.locktype = 'transactionid' AND x.virtualtransaction = l.virtualtransaction
    WHERE l.locktype = 'relation' AND l.relation = to_regclass('snowflake_registry.new_numbers')
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND l.mode = 'RowExclusiveLock' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
    ORDER BY coalesce(a.xact_start, p.prepared)
$$;

COMMENT ON FUNCTION snowflake_registry.makers() IS
    'which transactions make records of numbers, or wait for one that does, the oldest first';

CREATE OR REPLACE FUNCTION snowflake_registry.part(datacenter integer, worker bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT (worker % 64 + datacenter % 64 + 64) % 64 $$;

COMMENT ON FUNCTION snowflake_registry.part(integer, bigint) IS
    'which of 64 parts a number belongs to, so that many servers can start at once';

CREATE OR REPLACE FUNCTION snowflake_registry.make_parts() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO snowflake_registry.new_numbers SELECT new.name, p.part, 0 FROM generate_series(0, 63) AS p (part)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

COMMENT ON FUNCTION snowflake_registry.make_parts() IS
    'make the rows that are locked where records of a fleet''s numbers are made, so that all can be looked at';

CREATE OR REPLACE FUNCTION snowflake_registry.make_numbers(fleet text, numbers jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    part bigint;
BEGIN
    FOR part IN SELECT DISTINCT snowflake_registry.part(r.datacenter, r.worker)
                FROM jsonb_to_recordset(numbers) AS r (datacenter integer, worker bigint, was bigint)
                WHERE r.was IS NULL ORDER BY 1 LOOP
        INSERT INTO snowflake_registry.new_numbers AS s VALUES (fleet, part, 1)
        ON CONFLICT ON CONSTRAINT new_numbers_pkey DO UPDATE SET made = s.made + 1;
    END LOOP;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION USING ERRCODE = '55P03', MESSAGE = 'another transaction makes the record of a number, and has not ended',
        DETAIL = concat('It is of ', coalesce((SELECT string_agg(m.maker, ' or ') FROM snowflake_registry.makers() AS m (maker)),
            'a session that has ended meanwhile'), '.');
END $$;

COMMENT ON FUNCTION snowflake_registry.make_numbers(text, jsonb) IS
    'wait until no other transaction makes records of the same parts of a fleet''s numbers';

CREATE OR REPLACE FUNCTION snowflake_registry.shown() RETURNS json
LANGUAGE sql VOLATILE AS $$
    SELECT json_build_object('version', snowflake_registry.version(), 'store', snowflake_registry.store(),
        'timeline', snowflake_registry.timeline(), 'now_ms', snowflake_registry.now_ms())
$$;

COMMENT ON FUNCTION snowflake_registry.shown() IS
    'what read() shows of the registry: its version, store and timeline, its clock, and for how long it has been up';

CREATE OR REPLACE FUNCTION snowflake_registry.shown(n snowflake_registry.numbers) RETURNS text
LANGUAGE sql STABLE AS $$
    -- All are numbers, or letters of a uuid. So this is JSON, in a third of the time.
    SELECT format('{"datacenter":%s,"worker":%s,"holder":"%s","nonce":%s,"count":%s,"server":%s,"from_ms":%s,'
            '"until_ms":%s,"generation":%s,"renewed_ms":%s,"offset_ms":%s}',
        n.datacenter, n.worker, n.holder, n.nonce, n.count, n.server, n.from_ms,
        n.until_ms, n.generation, n.renewed_ms, n.offset_ms)
$$;

COMMENT ON FUNCTION snowflake_registry.shown(snowflake_registry.numbers) IS
    'what read() shows of a number''s record: all but its secret, and what only people read';

CREATE OR REPLACE FUNCTION snowflake_registry.shown(t snowflake_registry.tags) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT json_build_object('tag', t.tag, 'id', t.id, 'next_value', t.next_value, 'least_step', t.least_step,
        'greatest_step', t.greatest_step, 'jumps', t.jumps, 'nonce', t.nonce, 'generation', t.generation,
        'written_ms', t.written_ms, 'returnable_from', t.returnable_from)::text
$$;

COMMENT ON FUNCTION snowflake_registry.shown(snowflake_registry.tags) IS
    'what read() shows of a tag''s record: all but its secret, and what only people read';

CREATE OR REPLACE FUNCTION snowflake_registry.read(fleet text, numbers text, datacenter integer, worker bigint, tags text[])
RETURNS TABLE (kind text, record text)
-- STABLE: all queries see the same moment.
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_ready CONSTANT boolean := snowflake_registry.check_server();
BEGIN
    kind := 'registry';
    record := snowflake_registry.shown();
    RETURN NEXT;
    kind := 'fleet';
    record := (SELECT row_to_json(f) FROM snowflake_registry.fleets f WHERE f.name = read.fleet);
    IF record IS NULL THEN
        PERFORM snowflake_registry.no_fleet(fleet);
    END IF;
    RETURN NEXT;
    CASE numbers
        WHEN 'none' THEN NULL;
        WHEN 'one' THEN
            RETURN QUERY SELECT 'number', snowflake_registry.shown(n) FROM snowflake_registry.numbers n
                WHERE n.fleet = read.fleet AND n.datacenter = read.datacenter AND n.worker = read.worker;
        WHEN 'datacenter' THEN
            RETURN QUERY SELECT 'number', snowflake_registry.shown(n) FROM snowflake_registry.numbers n
                WHERE n.fleet = read.fleet AND n.datacenter = read.datacenter;
        WHEN 'all' THEN
            RETURN QUERY SELECT 'number', snowflake_registry.shown(n) FROM snowflake_registry.numbers n
                WHERE n.fleet = read.fleet;
    END CASE;
    IF tags IS NULL AND snowflake_registry.check_operator() THEN
        RETURN QUERY SELECT 'tag', snowflake_registry.shown(t) FROM snowflake_registry.tags t WHERE t.fleet = read.fleet;
    ELSIF tags <> '{}' THEN
        RETURN QUERY SELECT 'tag', snowflake_registry.shown(t) FROM snowflake_registry.tags t
            WHERE t.fleet = read.fleet AND t.tag = ANY (read.tags);
    END IF;
END $$;

COMMENT ON FUNCTION snowflake_registry.read(text, text, integer, bigint, text[]) IS
    'what this registry is, a fleet''s record, and those of numbers (''none'', ''one'', all of a ''datacenter'', or ''all'') and of tags (NULL for all)';

CREATE OR REPLACE FUNCTION snowflake_registry.swap(fleet text, patience_ms bigint, was_version bigint, was_store bigint,
    was_timeline bigint, operator boolean, new_fleet jsonb, numbers jsonb, tags jsonb,
    OUT done boolean, OUT store bigint, OUT timeline bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- NULL counts as true.
    is_operator CONSTANT boolean := operator IS NOT FALSE;
    writer CONSTANT text := snowflake_registry.begin_change(patience_ms, CASE WHEN is_operator THEN 'operator' ELSE 'server' END);
    records CONSTANT bigint := (new_fleet IS NOT NULL)::integer + coalesce(jsonb_array_length(numbers), 0)
        + coalesce(jsonb_array_length(tags), 0);
    is_permitted CONSTANT boolean := NOT is_operator OR snowflake_registry.check_operator();
    f snowflake_registry.fleets;
    change jsonb;
BEGIN
    IF records > 100 THEN
        PERFORM snowflake_registry.refuse('one call cannot change more than 100 records');
    END IF;
    IF NOT is_operator AND EXISTS (SELECT FROM jsonb_array_elements(numbers) AS c (value) WHERE c.value ->> 'was' IS NULL) THEN
        PERFORM snowflake_registry.make_numbers(fleet, numbers);
    END IF;
    IF is_operator OR new_fleet IS NOT NULL THEN
        SELECT * INTO f FROM snowflake_registry.fleets s WHERE s.name = swap.fleet FOR UPDATE;
    ELSE
        SELECT * INTO f FROM snowflake_registry.fleets s WHERE s.name = swap.fleet FOR SHARE;
    END IF;
    IF NOT FOUND THEN
        PERFORM snowflake_registry.no_fleet(fleet);
    END IF;
    store := snowflake_registry.store();
    timeline := snowflake_registry.timeline();
    -- NULL is not what was read.
    done := (f.version = was_version AND store = was_store AND timeline = was_timeline
        AND (is_operator OR NOT f.closed)) IS TRUE;
    -- All records are locked and compared before anything is written. A single one is compared as
    -- it is written.
    IF done AND numbers IS NOT NULL AND records > 1 THEN
        SELECT coalesce(bool_and(n.nonce IS NOT DISTINCT FROM c.was), true) INTO done
        FROM (SELECT * FROM jsonb_to_recordset(numbers) AS r (datacenter integer, worker bigint, was bigint)
              ORDER BY r.datacenter, r.worker) c
            LEFT JOIN LATERAL (SELECT s.nonce FROM snowflake_registry.numbers s
                WHERE s.fleet = swap.fleet AND s.datacenter = c.datacenter AND s.worker = c.worker FOR UPDATE) n ON true;
    END IF;
    IF done AND tags IS NOT NULL AND records > 1 THEN
        SELECT coalesce(bool_and(t.nonce IS NOT DISTINCT FROM c.was), true) INTO done
        FROM (SELECT * FROM jsonb_to_recordset(tags) AS r (tag text, was bigint) ORDER BY r.tag COLLATE "C") c
            LEFT JOIN LATERAL (SELECT s.nonce FROM snowflake_registry.tags s
                WHERE s.fleet = swap.fleet AND s.tag = c.tag FOR UPDATE) t ON true;
    END IF;
    IF NOT done THEN
        RETURN;
    END IF;

    -- What an operator's change does not name stays as it was. A server names all of a record, and
    -- above all its secret: what was there must not prove that the record is its own.
    IF new_fleet IS NOT NULL THEN
        UPDATE snowflake_registry.fleets s SET (uuid, layout, backup, first_worker, last_worker, loses_nothing, closed,
                longest_ms, skew_ms, lease_ms, clock_skew_ms, store, timeline, generation, horizon_ms, freeze_ms,
                version)
            = (SELECT r.uuid, r.layout, r.backup, r.first_worker, r.last_worker, r.loses_nothing, r.closed,
                r.longest_ms, r.skew_ms, r.lease_ms, r.clock_skew_ms, r.store, r.timeline, r.generation, r.horizon_ms,
                r.freeze_ms, r.version
               FROM jsonb_populate_record(CASE WHEN is_operator THEN s END, new_fleet) r)
        WHERE s.name = swap.fleet;
    END IF;
    FOR change IN SELECT c.value FROM jsonb_array_elements(numbers) AS c (value) LOOP
        IF change ->> 'was' IS NULL THEN
            INSERT INTO snowflake_registry.numbers SELECT *
            FROM jsonb_populate_record(NULL::snowflake_registry.numbers, change || jsonb_build_object('fleet', fleet))
            ON CONFLICT DO NOTHING;
        ELSIF (change ->> 'delete')::boolean THEN
            DELETE FROM snowflake_registry.numbers s
            WHERE s.fleet = swap.fleet AND s.datacenter = (change ->> 'datacenter')::integer
                AND s.worker = (change ->> 'worker')::bigint AND s.nonce = (change ->> 'was')::bigint;
        ELSE
            UPDATE snowflake_registry.numbers s SET (holder, nonce, count, server, from_ms, until_ms, generation,
                    renewed_ms, offset_ms, host, port, cluster_name, version, secret)
                = (SELECT r.holder, r.nonce, r.count, r.server, r.from_ms, r.until_ms, r.generation,
                    r.renewed_ms, r.offset_ms, r.host, r.port, r.cluster_name, r.version, r.secret
                   FROM jsonb_populate_record(CASE WHEN is_operator THEN s END, change) r)
            WHERE s.fleet = swap.fleet AND s.datacenter = (change ->> 'datacenter')::integer
                AND s.worker = (change ->> 'worker')::bigint AND s.nonce = (change ->> 'was')::bigint;
        END IF;
        IF NOT FOUND AND records = 1 THEN
            done := false;
        ELSIF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = '40001',
                MESSAGE = concat('number ', change ->> 'worker', ' of datacenter ' || nullif(change ->> 'datacenter', '-1'),
                    format(' of fleet "%s" has changed meanwhile', fleet));
        END IF;
    END LOOP;
    FOR change IN SELECT c.value FROM jsonb_array_elements(tags) AS c (value) LOOP
        IF change ->> 'was' IS NULL THEN
            INSERT INTO snowflake_registry.tags SELECT *
            FROM jsonb_populate_record(NULL::snowflake_registry.tags, change || jsonb_build_object('fleet', fleet))
            ON CONFLICT DO NOTHING;
        ELSIF (change ->> 'delete')::boolean THEN
            DELETE FROM snowflake_registry.tags s
            WHERE s.fleet = swap.fleet AND s.tag = change ->> 'tag' AND s.nonce = (change ->> 'was')::bigint;
        ELSE
            UPDATE snowflake_registry.tags s SET (id, next_value, least_step, greatest_step, jumps, nonce, generation,
                    written_ms, returnable_from, secret)
                = (SELECT r.id, r.next_value, r.least_step, r.greatest_step, r.jumps, r.nonce, r.generation,
                    r.written_ms, r.returnable_from, r.secret
                   FROM jsonb_populate_record(CASE WHEN is_operator THEN s END, change) r)
            WHERE s.fleet = swap.fleet AND s.tag = change ->> 'tag' AND s.nonce = (change ->> 'was')::bigint;
        END IF;
        IF NOT FOUND AND records = 1 THEN
            done := false;
        ELSIF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = '40001',
                MESSAGE = format('tag "%s" of fleet "%s" has changed meanwhile', change ->> 'tag', fleet);
        END IF;
    END LOOP;
END $$;

COMMENT ON FUNCTION snowflake_registry.swap(text, bigint, bigint, bigint, bigint, boolean, jsonb, jsonb, jsonb) IS
    'write a fleet''s record, and those of numbers and tags, if these, the fleet''s and the registry are what was read';

-- What is checked of a server's write. Values that are NULL, and must not be, are left to the
-- tables' constraints.

CREATE OR REPLACE FUNCTION snowflake_registry.check_fleet() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    now_ms CONSTANT bigint := snowflake_registry.now_ms();
    -- As MOST_LEASE_MS and MOST_SKEW_MS have them (src/core/fleet/registry.rs).
    most_lease_ms CONSTANT bigint := 2592000000;
    most_skew_ms CONSTANT bigint := 3600000;
    store CONSTANT bigint := snowflake_registry.store();
    timeline CONSTANT bigint := snowflake_registry.timeline();
    why text;
BEGIN
    why := CASE
        WHEN (new.uuid, new.loses_nothing, new.closed, new.lease_ms, new.clock_skew_ms)
                IS DISTINCT FROM (old.uuid, old.loses_nothing, old.closed, old.lease_ms, old.clock_skew_ms)
            -- A server brings what is not known yet.
            OR old.layout IS NOT NULL AND (new.layout, new.backup) IS DISTINCT FROM (old.layout, old.backup)
            OR old.first_worker IS NOT NULL
                AND (new.first_worker, new.last_worker) IS DISTINCT FROM (old.first_worker, old.last_worker)
            -- Every first server writes the same limits. A registry that has lost them gets them
            -- again. (DEFAULT_LEASE_MS, DEFAULT_SKEW_MS in src/core/fleet/registry.rs)
            OR new.longest_ms IS DISTINCT FROM coalesce(nullif(old.longest_ms, 0), 600000)
            OR new.skew_ms IS DISTINCT FROM coalesce(nullif(old.skew_ms, 0), 60000)
            THEN 'a server cannot change what an operator sets, nor the layout, the range or the limits of a fleet'
        WHEN new.version = old.version THEN 'a change of a fleet needs another version'
        WHEN (new.store, new.timeline) IS DISTINCT FROM (store, timeline)
            THEN format('this is store %s on timeline %s', store, timeline)
        -- Otherwise the registry would not show any more that it has lost something.
        WHEN new.generation = old.generation AND (store, timeline) <> (old.store, old.timeline)
                AND NOT (store = old.store AND old.loses_nothing)
            THEN format('a registry that may have lost leases or blocks cannot stay in generation %s', old.generation)
        -- As Fleet::begin_generation says (src/core/fleet/registry.rs).
        WHEN new.generation NOT IN (old.generation,
                old.generation + CASE WHEN store = old.store THEN greatest(timeline - old.timeline, 1) ELSE 1 END)
            OR new.generation = old.generation
                AND (new.horizon_ms, new.freeze_ms) IS DISTINCT FROM (old.horizon_ms, old.freeze_ms)
            THEN format('generation %s cannot follow generation %s with that horizon and that freeze', new.generation,
                old.generation)
        WHEN new.generation <> old.generation AND (new.freeze_ms > now_ms + most_lease_ms + 2 * most_skew_ms
                OR new.horizon_ms > now_ms + 2 * most_skew_ms)
            THEN format('a freeze cannot last until %s', snowflake_registry.instant(new.freeze_ms))
        -- A server has read the clock before. A freeze that ends too early would not cover leases
        -- that may be lost.
        WHEN new.generation <> old.generation AND (new.horizon_ms < now_ms - 60000 + 2 * new.skew_ms
                OR new.freeze_ms::numeric - new.horizon_ms < new.longest_ms)
            THEN format('generation %s cannot begin with a freeze until %s', new.generation,
                snowflake_registry.instant(new.freeze_ms))
    END;
    IF why IS NOT NULL THEN
        PERFORM snowflake_registry.refuse(why);
    END IF;
    RETURN new;
END $$;

COMMENT ON FUNCTION snowflake_registry.check_fleet() IS
    'refuse a change of a fleet''s record that no server''s own rules permit';

CREATE OR REPLACE FUNCTION snowflake_registry.check_number() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    f snowflake_registry.fleets;
    now_ms CONSTANT bigint := snowflake_registry.now_ms();
    -- All of old is NULL for a number's first lease.
    is_new CONSTANT boolean := new.holder IS DISTINCT FROM old.holder;
    used_skew_ms bigint;
    why text;
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM snowflake_registry.refuse('a server cannot delete the record of a number');
    END IF;
    SELECT * INTO f FROM snowflake_registry.fleets s WHERE s.name = new.fleet;
    used_skew_ms := least(coalesce(nullif(f.clock_skew_ms, 0), 60000), f.skew_ms);
    why := CASE
        WHEN new.nonce = old.nonce THEN 'needs another nonce'
        -- This is how an operator keeps a number.
        WHEN new.server = 0 THEN 'needs the fingerprint of a server'
        WHEN NOT is_new AND coalesce(new.secret <> old.secret, true) THEN 'belongs to another server'
        WHEN NOT is_new AND new.from_ms <> old.from_ms THEN 'cannot begin at another time than before'
        -- A server takes a number that is over by its own clock, which may be ahead by the skew in
        -- use (used_skew_ms in src/core/fleet/registry.rs). A server's record that is empty was
        -- given back before it began. An operator's is empty if it was reserved twice.
        WHEN is_new AND (old.server = 0 OR old.until_ms > old.from_ms) AND old.until_ms > now_ms + used_skew_ms
            THEN format('cannot be taken before %s', snowflake_registry.instant(old.until_ms))
        WHEN is_new AND new.from_ms < old.until_ms
            THEN format('cannot begin %s ms before the end of the one before it', old.until_ms::numeric - new.from_ms)
        WHEN is_new AND coalesce(old.generation <> f.generation, true) AND new.from_ms < f.freeze_ms
            THEN format('cannot begin %s ms before the end of the freeze', f.freeze_ms::numeric - new.from_ms)
        WHEN is_new AND (new.worker BETWEEN f.first_worker AND f.last_worker) IS NOT TRUE
            THEN format('is outside of the range %s to %s', coalesce(f.first_worker::text, 'NULL'),
                coalesce(f.last_worker::text, 'NULL'))
        -- Of the built-in layouts (BUILT_IN in src/core/id/layout.rs), two have datacenters 0 to
        -- 31.
        WHEN is_new AND CASE
                WHEN f.layout IN (7366546996939299186, 7478322222171316616) THEN new.datacenter NOT BETWEEN 0 AND 31
                WHEN f.layout IN (659112385214155961, 8876148683603590667, 6716042574934541900, 903937532760564967,
                    5163230396149121768, 3545235968293553177, 3129586852765729314, 8438707181393898272,
                    4107238148521907482, 6138977074444365288, 714955673124139298) THEN new.datacenter <> -1
            END
            THEN 'is of a datacenter that the fleet''s layout does not have'
        -- What is given back keeps its generation.
        WHEN new.generation <> f.generation AND (is_new OR new.until_ms > old.until_ms OR new.generation <> old.generation)
            THEN format('cannot be of generation %s, because the fleet has generation %s', new.generation, f.generation)
        WHEN NOT is_new AND new.generation <> old.generation AND old.until_ms <= f.horizon_ms
            THEN 'may have changed hands, and cannot be renewed'
        -- The skew counts twice, because the registry may have moved to a server whose clock is
        -- behind. A lease that is empty, because it is given back before it begins, may lie after a
        -- freeze, in the tick that begins then. A tick is a second at most. Otherwise a number
        -- could be taken away for ever.
        WHEN new.until_ms > greatest(old.until_ms, now_ms + f.longest_ms + 2 * f.skew_ms,
                CASE WHEN new.until_ms <= new.from_ms THEN f.freeze_ms + 1000 END)
            THEN format('cannot end as late as %s', snowflake_registry.instant(new.until_ms))
        -- A count that grows by one a millisecond leaves room for the next one, whatever it is.
        WHEN new.count NOT BETWEEN coalesce(old.count, 0) + 1 AND greatest(now_ms, coalesce(old.count, 0) + 1)
            THEN format('cannot have count %s, only %s to %s', new.count, coalesce(old.count, 0) + 1,
                greatest(now_ms, coalesce(old.count, 0) + 1))
    END;
    IF why IS NOT NULL THEN
        PERFORM snowflake_registry.refuse(concat('lease of number ', new.worker,
            ' of datacenter ' || nullif(new.datacenter, -1), ' ', why));
    END IF;
    -- An answer has 131,072 records at most (MOST_RECORDS in src/registry/lib.rs). Operators read
    -- all of numbers and all of tags in one. A server that follows the rules may meet this bound,
    -- too.
    IF TG_OP = 'INSERT'
        AND (SELECT count(*) FROM snowflake_registry.numbers s
             WHERE s.fleet = new.fleet AND snowflake_registry.part(s.datacenter, s.worker)
                 = snowflake_registry.part(new.datacenter, new.worker)) >= 120000 / 64 THEN
        RAISE EXCEPTION USING ERRCODE = 'SF005',
            MESSAGE = concat('lease of number ', new.worker, ' of datacenter ' || nullif(new.datacenter, -1),
                ' would be one record too many: the fleet can have 120000'),
            HINT = 'Delete records of leases that are over, with "snowflake-registry drop-numbers".';
    END IF;
    -- What only people read. A clock may be off by any time, which the views must be able to show.
    new.offset_ms := greatest(least(new.offset_ms, 1000000000000000), -1000000000000000);
    new.host := left(new.host, 255);
    new.cluster_name := left(new.cluster_name, 255);
    new.version := left(new.version, 255);
    RETURN new;
END $$;

COMMENT ON FUNCTION snowflake_registry.check_number() IS
    'refuse a change of a number''s record that no server''s own rules permit';

CREATE OR REPLACE FUNCTION snowflake_registry.check_tag() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    fleet_generation bigint;
    due numeric;
    reached numeric;
    -- Whether the server has reserved the last block.
    is_own CONSTANT boolean := coalesce(new.secret = old.secret, false);
    is_stopped boolean;
    why text;
BEGIN
    IF TG_OP <> 'UPDATE' THEN
        PERFORM snowflake_registry.refuse('a server cannot make or delete a tag');
    END IF;
    fleet_generation := (SELECT f.generation FROM snowflake_registry.fleets f WHERE f.name = new.fleet);
    due := greatest(fleet_generation - old.generation, 0);
    is_stopped := due > 0 AND NOT old.jumps;
    -- From here on, no server has had a value. (JUMP in src/core/fleet/segment.rs)
    reached := old.next_value + due * old.jumps::integer * 1000000000;
    why := CASE
        -- The table's own error would show the row.
        WHEN num_nulls(new.next_value, new.nonce, new.generation, new.returnable_from) > 0 THEN 'lacks a value'
        WHEN (new.id, new.least_step, new.greatest_step, new.jumps)
                IS DISTINCT FROM (old.id, old.least_step, old.greatest_step, old.jumps)
            THEN 'has what only an operator sets'
        WHEN new.nonce = old.nonce THEN 'needs another nonce'
        -- A server tells what it has had, and gets nothing.
        WHEN is_stopped AND (new.generation <> old.generation OR new.next_value <= old.next_value)
            THEN 'does not jump, and waits for an operator'
        WHEN NOT is_stopped AND new.generation <> fleet_generation
            THEN format('cannot be of generation %s, because the fleet has generation %s', new.generation, fleet_generation)
        -- Otherwise one call could use up the tag for ever. (FARTHEST in src/core/fleet/segment.rs)
        WHEN new.next_value > reached + 10000000000 + old.greatest_step
            THEN format('cannot go on from %s to %s', old.next_value, new.next_value)
        WHEN NOT is_stopped AND new.next_value > reached AND new.returnable_from < reached
                AND NOT (is_own AND due = 0 AND new.returnable_from >= old.returnable_from)
            THEN format('cannot be given back from %s on', new.returnable_from)
        -- What lies before the server's own blocks, other servers have drawn. A server has two
        -- blocks at most, and gives them back once.
        WHEN new.next_value <= reached AND NOT (is_own AND due = 0
                AND new.next_value >= greatest(old.returnable_from, old.next_value::numeric - 2 * old.greatest_step)
                AND new.next_value < old.next_value AND new.returnable_from = 9223372036854775807)
            THEN format('cannot go on from %s to %s', reached, new.next_value)
    END;
    IF why IS NOT NULL THEN
        PERFORM snowflake_registry.refuse(format('tag "%s" %s', old.tag, why));
    END IF;
    new.written_ms := snowflake_registry.now_ms();
    RETURN new;
END $$;

COMMENT ON FUNCTION snowflake_registry.check_tag() IS
    'refuse a change of a tag''s record that no server''s own rules permit';

-- What is kept, whoever writes.

CREATE OR REPLACE FUNCTION snowflake_registry.keep_numbers() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' AND old.until_ms <= (SELECT least(f.freeze_ms, snowflake_registry.now_ms())
            FROM snowflake_registry.fleets f WHERE f.name = old.fleet) THEN
        RETURN old;
    END IF;
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'records of numbers cannot be deleted',
        DETAIL = 'Without the end of its last lease, a number could be leased for ids that were drawn already.',
        HINT = 'A number is free by itself when its lease has ended. To delete records of leases that are over, run "snowflake-registry drop-numbers".';
END $$;

COMMENT ON FUNCTION snowflake_registry.keep_numbers() IS
    'refuse to delete records of numbers that end later than the fleet''s freeze';

CREATE OR REPLACE FUNCTION snowflake_registry.note_lease() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        UPDATE snowflake_registry.history h SET until_ms = old.until_ms
        WHERE (h.fleet, h.datacenter, h.worker, h.from_ms, h.holder)
            = (old.fleet, old.datacenter, old.worker, old.from_ms, old.holder);
    ELSIF new.holder IS DISTINCT FROM old.holder THEN
        -- The holder before may have been killed, and could not do this itself.
        UPDATE snowflake_registry.history h SET until_ms = old.until_ms
        WHERE (h.fleet, h.datacenter, h.worker, h.from_ms, h.holder)
            = (old.fleet, old.datacenter, old.worker, old.from_ms, old.holder);
        INSERT INTO snowflake_registry.history
        VALUES (new.fleet, new.datacenter, new.worker, new.from_ms, NULL, new.holder, new.host, new.port,
            new.cluster_name, new.version);
    ELSE
        UPDATE snowflake_registry.history h SET from_ms = new.from_ms
        WHERE (h.fleet, h.datacenter, h.worker, h.from_ms, h.holder)
            = (old.fleet, old.datacenter, old.worker, old.from_ms, old.holder);
    END IF;
    RETURN NULL;
END $$;

COMMENT ON FUNCTION snowflake_registry.note_lease() IS
    'note in the history that a number''s lease has ended, and another one begins';

CREATE OR REPLACE FUNCTION snowflake_registry.keep_tags() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    fleet_generation bigint;
    is_closed boolean;
    due numeric;
BEGIN
    IF TG_OP = 'INSERT' THEN
        -- Locked, so that a swap that closes the fleet waits for this tag, or is seen here. A move
        -- has copied the tags then, or "lost" has found that there is none.
        SELECT f.generation, f.closed INTO fleet_generation, is_closed
        FROM snowflake_registry.fleets f WHERE f.name = new.fleet FOR SHARE;
        IF is_closed THEN
            RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('fleet "%s" is closed', new.fleet),
                DETAIL = 'No tag is made meanwhile, because the registry may be copied already, or is being made again.',
                HINT = 'Wait until the fleet is open, and insert the tag then. After a move, insert it in the registry that was moved to.';
        END IF;
    ELSE
        SELECT f.generation INTO fleet_generation FROM snowflake_registry.fleets f WHERE f.name = new.fleet;
    END IF;
    fleet_generation := coalesce(fleet_generation, 0);
    IF TG_OP = 'UPDATE' THEN
        -- What is set must not take the place of the jumps that are due. (JUMP in
        -- src/core/fleet/segment.rs)
        due := old.next_value;
        IF old.jumps AND new.jumps THEN
            due := least(9223372036854775807,
                due + 1000000000::numeric * greatest(fleet_generation - old.generation, 0));
        END IF;
        -- With them, the tag is of the fleet's generation.
        IF new.next_value = old.next_value AND (new.least_step, new.greatest_step, new.jumps)
                IS DISTINCT FROM (old.least_step, old.greatest_step, old.jumps) THEN
            new.next_value := due;
        END IF;
        IF (new.fleet, new.tag, new.id) IS DISTINCT FROM (old.fleet, old.tag, old.id) THEN
            RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('tag "%s" cannot be renamed', old.tag),
                DETAIL = 'Servers have values of it under this name.',
                HINT = 'Make another tag with "snowflake-registry create-tag" or an INSERT, and set its next_value.';
        ELSIF new.next_value < old.next_value OR new.next_value > old.next_value AND new.next_value < due THEN
            RAISE EXCEPTION USING ERRCODE = '22023',
                MESSAGE = format('next value of tag "%s" cannot be lowered from %s to %s', old.tag, due, new.next_value),
                DETAIL = 'Servers have had the values before it.',
                HINT = 'To begin anew, wait until no server uses the tag. Delete it with "snowflake-registry drop-tag" or DELETE, and make it again with "snowflake-registry create-tag" or INSERT.';
        ELSIF new.next_value = old.next_value THEN
            IF new.jumps AND NOT old.jumps AND old.generation < fleet_generation THEN
                RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('tag "%s" needs a next value, too', old.tag),
                    DETAIL = 'The registry may have lost values of it, and it did not jump then.',
                    HINT = 'Set next_value as well, above all values that servers have had.';
            END IF;
            -- What a server has decided with other steps is refused.
            new.nonce := CASE WHEN (new.least_step, new.greatest_step, new.jumps)
                IS DISTINCT FROM (old.least_step, old.greatest_step, old.jumps)
                THEN snowflake_registry.new_version() ELSE old.nonce END;
            RETURN new;
        END IF;
    END IF;
    new.generation := fleet_generation;
    new.nonce := snowflake_registry.new_version();
    new.written_ms := snowflake_registry.now_ms();
    new.returnable_from := 9223372036854775807;
    new.secret := NULL;
    RETURN new;
END $$;

COMMENT ON FUNCTION snowflake_registry.keep_tags() IS
    'note when an operator writes a tag by SQL, and refuse what would give values of it twice';

DROP TRIGGER IF EXISTS check_fleet ON snowflake_registry.fleets;
CREATE TRIGGER check_fleet BEFORE UPDATE ON snowflake_registry.fleets FOR EACH ROW
WHEN (current_setting('snowflake_registry.writer', true) = 'server') EXECUTE FUNCTION snowflake_registry.check_fleet();

DROP TRIGGER IF EXISTS make_parts ON snowflake_registry.fleets;
CREATE TRIGGER make_parts AFTER INSERT ON snowflake_registry.fleets FOR EACH ROW
EXECUTE FUNCTION snowflake_registry.make_parts();

DROP TRIGGER IF EXISTS check_number ON snowflake_registry.numbers;
CREATE TRIGGER check_number BEFORE INSERT OR UPDATE OR DELETE ON snowflake_registry.numbers FOR EACH ROW
WHEN (current_setting('snowflake_registry.writer', true) = 'server') EXECUTE FUNCTION snowflake_registry.check_number();

DROP TRIGGER IF EXISTS check_tag ON snowflake_registry.tags;
CREATE TRIGGER check_tag BEFORE INSERT OR UPDATE OR DELETE ON snowflake_registry.tags FOR EACH ROW
WHEN (current_setting('snowflake_registry.writer', true) = 'server') EXECUTE FUNCTION snowflake_registry.check_tag();

DROP TRIGGER IF EXISTS keep_tags ON snowflake_registry.tags;
CREATE TRIGGER keep_tags BEFORE INSERT OR UPDATE ON snowflake_registry.tags FOR EACH ROW
WHEN (coalesce(current_setting('snowflake_registry.writer', true), '') = '')
EXECUTE FUNCTION snowflake_registry.keep_tags();

DROP TRIGGER IF EXISTS keep_numbers ON snowflake_registry.numbers;
CREATE TRIGGER keep_numbers BEFORE DELETE ON snowflake_registry.numbers FOR EACH ROW
EXECUTE FUNCTION snowflake_registry.keep_numbers();

DROP TRIGGER IF EXISTS keep_all_numbers ON snowflake_registry.numbers;
CREATE TRIGGER keep_all_numbers BEFORE TRUNCATE ON snowflake_registry.numbers
EXECUTE FUNCTION snowflake_registry.keep_numbers();

DROP TRIGGER IF EXISTS note_last_lease ON snowflake_registry.numbers;
CREATE TRIGGER note_last_lease AFTER DELETE ON snowflake_registry.numbers FOR EACH ROW
EXECUTE FUNCTION snowflake_registry.note_lease();

DROP TRIGGER IF EXISTS note_first_lease ON snowflake_registry.numbers;
CREATE TRIGGER note_first_lease AFTER INSERT ON snowflake_registry.numbers FOR EACH ROW
EXECUTE FUNCTION snowflake_registry.note_lease();

DROP TRIGGER IF EXISTS note_lease ON snowflake_registry.numbers;
CREATE TRIGGER note_lease AFTER UPDATE ON snowflake_registry.numbers FOR EACH ROW
WHEN (new.holder <> old.holder OR new.from_ms <> old.from_ms) EXECUTE FUNCTION snowflake_registry.note_lease();

-- For people

CREATE OR REPLACE VIEW snowflake_registry.fleet AS
SELECT n.fleet, nullif(n.datacenter, -1) AS datacenter, n.worker,
    CASE WHEN n.until_ms <= c.now_ms
            THEN CASE WHEN n.generation < f.generation AND f.freeze_ms > c.now_ms THEN 'frozen' ELSE 'free' END
        WHEN n.server = 0 THEN 'reserved'
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
    'held; ahead: leased, for ids of a later time; both with ", outside the range" if an operator has left the number out since; reserved: kept from being leased; frozen: free at the end of the freeze; free';
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

COMMENT ON VIEW snowflake_registry.leases IS 'all leases that ever began, but those that an operator has pruned';
COMMENT ON COLUMN snowflake_registry.leases.fleet IS 'name of the fleet';
COMMENT ON COLUMN snowflake_registry.leases.datacenter IS 'datacenter number, NULL in a layout without that field';
COMMENT ON COLUMN snowflake_registry.leases.worker IS 'worker number';
COMMENT ON COLUMN snowflake_registry.leases.host IS 'host name of the server; NULL where an operator has kept the number';
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

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA snowflake_registry FROM PUBLIC;
GRANT USAGE ON SCHEMA snowflake_registry TO pg_monitor;
GRANT SELECT ON snowflake_registry.fleet, snowflake_registry.leases TO pg_monitor;
GRANT EXECUTE ON FUNCTION snowflake_registry.version(), snowflake_registry.now_ms(), snowflake_registry.instant(bigint),
    snowflake_registry.drawn_by(timestamptz, bigint, integer, text) TO pg_monitor;

SET LOCAL client_min_messages = notice;

-- Makes the first fleet, or says what has changed. No row of a table that was found is read: it may
-- have columns of types whose casts another role has made.
DO $$
DECLARE
    was text := current_setting('snowflake_registry.was');
    is_text text;
    what record;
    lacks record;
BEGIN
    IF was = '' THEN
        INSERT INTO snowflake_registry.fleets (name, store, timeline)
        VALUES ('default', snowflake_registry.store(), snowflake_registry.timeline());
        RAISE NOTICE 'registry is made: fleet "default" is there, and its first server brings layout and range';
        RETURN;
    END IF;
    EXECUTE current_setting('snowflake_registry.contents') INTO is_text;
    SELECT string_agg(n.name, ', ' ORDER BY n.name) FILTER (WHERE w.name IS NULL) AS new,
        string_agg(n.name, ', ' ORDER BY n.name) FILTER (WHERE w.value <> n.value) AS changed,
        string_agg(w.name, ', ' ORDER BY w.name) FILTER (WHERE n.name IS NULL) AS gone INTO what
    FROM json_each_text(was::json) AS w (name, value) FULL JOIN json_each_text(is_text::json) AS n (name, value)
        ON n.name = w.name;
    RAISE NOTICE 'this database had a registry already: records and rights are as they were';
    IF what.new IS NOT NULL THEN
        RAISE NOTICE 'new: %', what.new;
    END IF;
    IF what.changed IS NOT NULL THEN
        RAISE NOTICE 'changed: %', what.changed;
    END IF;
    IF what.gone IS NOT NULL THEN
        RAISE NOTICE 'gone: %', what.gone;
    END IF;
    IF coalesce(what.new, what.changed, what.gone) IS NULL THEN
        RAISE NOTICE 'nothing has changed';
    END IF;
    -- A role that may read is one of servers.
    FOR lacks IN SELECT g.grantee::regrole AS role, format('%I.%I', 'snowflake_registry', p.proname) AS function
                 FROM pg_proc r, aclexplode(r.proacl) g, pg_proc p
                 WHERE r.pronamespace = to_regnamespace('snowflake_registry') AND r.proname = 'read'
                     AND g.grantee NOT IN (0, r.proowner) AND p.pronamespace = r.pronamespace AND p.proname = 'swap'
                     AND NOT has_function_privilege(g.grantee, p.oid, 'EXECUTE')
                 ORDER BY 1, 2 LOOP
        RAISE NOTICE USING MESSAGE = format('role %s lacks a right that servers need', lacks.role),
            HINT = format('Run: GRANT EXECUTE ON FUNCTION %s TO %s;', lacks.function, lacks.role);
    END LOOP;
END $$;

COMMIT;
