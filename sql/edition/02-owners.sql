-- Refuses objects with the names of the edition that belong to another role, which a role with
-- CREATE on the schema can make. Else the role that installs would run what they contain, and
-- CREATE OR REPLACE would leave them to their owner. What is the installing role's, such a role can
-- neither replace nor drop.
DECLARE
    names CONSTANT name[] := '{snowflake_word, _snowflake_word_before, _snowflake_lock, snowflake_stat, snowflake_layouts, _snowflake_layout}';
    object text;
    owner name;
BEGIN
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
