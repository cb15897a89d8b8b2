-- Refuses objects with the names of the edition that belong to another role, which a role with
-- CREATE on the schema can make. Else the role that installs would run what they contain, and
-- CREATE OR REPLACE would leave them to their owner. What is the installing role's, such a role can
-- neither replace nor drop. An overload that such a role adds after the check is not called,
-- because each call in these files has exactly the types of what it calls.
DECLARE
    names CONSTANT name[] := '{snowflake_word, _snowflake_word_before, _snowflake_lock, snowflake_stat, snowflake_layouts, _snowflake_layout, snowflake_public_keys}';
    object text;
    owner name;
BEGIN
    -- With an older snapshot than the command's, the check would miss what was made since.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'feature_not_supported',
            MESSAGE = format('the SQL edition cannot be installed with isolation level "%s"', current_setting('transaction_isolation')),
            HINT = 'Run its file, and snowflake_install(), in a transaction with READ COMMITTED.';
    END IF;
    SELECT pg_describe_object(found.class, found.id, 0), r.rolname INTO object, owner
    FROM (
        SELECT 'pg_proc'::regclass, p.oid, p.proowner, p.pronamespace FROM pg_proc AS p WHERE p.proname ~ '^_?snowflake_'
        UNION ALL
        SELECT 'pg_class'::regclass, c.oid, c.relowner, c.relnamespace FROM pg_class AS c WHERE c.relname = ANY (names)
        UNION ALL
        SELECT 'pg_type'::regclass, t.oid, t.typowner, t.typnamespace FROM pg_type AS t WHERE t.typname = ANY (names)
    ) AS found (class, id, owner, namespace), pg_roles AS r
    WHERE found.namespace = '@extschema@'::regnamespace AND r.oid = found.owner AND r.rolname <> current_user
    ORDER BY found.class DESC, found.id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'insufficient_privilege',
            MESSAGE = format('%s belongs to role "%s"', object, owner),
            DETAIL = format('All objects of the SQL edition belong to the role that runs its file. The current role is "%s".', current_user),
            HINT = format('If that role has installed the edition, run SET ROLE %s, and repeat the command. Else drop the object, or '
                'install into a schema in which no other role can create objects.', quote_ident(owner));
    END IF;
END
