-- A catalogue of music: thirty kinds of entities with their counts, one view over all, domains, and
-- functions that take the table's name and a row's number.
CREATE DOMAIN key AS integer CHECK (VALUE > 0);
CREATE DOMAIN wide_key AS bigint CONSTRAINT wide_key_short CHECK (VALUE < 2147483648);
CREATE TABLE credits (id serial PRIMARY KEY, name text NOT NULL, ref_count integer NOT NULL DEFAULT 0);
CREATE TABLE artists (id serial PRIMARY KEY, gid uuid NOT NULL DEFAULT gen_random_uuid(), last_credit wide_key REFERENCES credits);
INSERT INTO credits (name) SELECT 'credit ' || n FROM generate_series(1, 30) n;
INSERT INTO artists (last_credit) VALUES (1);
CREATE TABLE ratings (artist key NOT NULL, rating smallint);

-- As MusicBrainz counts: one function for all tables, called with the number of the row.
CREATE FUNCTION inc_ref_count(tbl text, row_id integer, n integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('UPDATE %I SET ref_count = ref_count + %s WHERE id = %s', tbl, n, row_id);
END $$;
CREATE FUNCTION a_ins_entity() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM inc_ref_count('credits', new.credit, 1);
    RETURN NULL;
END $$;
DO $$
BEGIN
    FOR n IN 1 .. 30 LOOP
        EXECUTE format('CREATE TABLE entity_%s (id serial PRIMARY KEY, credit integer NOT NULL REFERENCES credits, name text)', n);
        EXECUTE format('INSERT INTO entity_%1$s (credit, name) VALUES (%1$s, ''one'')', n);
    END LOOP;
    EXECUTE 'CREATE VIEW entities AS '
        || (SELECT string_agg(format('SELECT %1$s AS kind, id, credit, name FROM entity_%1$s', n), ' UNION ALL ' ORDER BY n)
            FROM generate_series(1, 30) n);
END $$;
CREATE TRIGGER a_ins AFTER INSERT ON entity_7 FOR EACH ROW EXECUTE FUNCTION a_ins_entity();
CREATE VIEW credited AS SELECT e.kind, count(*), max(e.id) AS latest, c.name FROM entities e JOIN credits c ON c.id = e.credit GROUP BY 1, 4;
CREATE TYPE reference AS (kind text, entity_id integer);
CREATE TABLE edits (id serial PRIMARY KEY CONSTRAINT edits_short CHECK (id BETWEEN 1 AND 2147483647),
    refers reference, at timestamptz NOT NULL DEFAULT now());
CREATE TABLE merges (id serial PRIMARY KEY, into_artist integer NOT NULL REFERENCES artists, "oldIds" integer[]);
CREATE FUNCTION merge_artists(old_ids integer[], new_id integer) RETURNS void LANGUAGE sql AS
    'INSERT INTO merges (into_artist, "oldIds") VALUES (new_id, old_ids)';
CREATE FUNCTION first_artist(OUT artist_id integer, OUT artist_gid uuid) LANGUAGE plpgsql AS $$
BEGIN
    SELECT id, gid INTO artist_id, artist_gid FROM artists ORDER BY id DESC LIMIT 1;
END $$;
CREATE FUNCTION touch_credit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wanted credits.id%TYPE := new.credit;
BEGIN
    IF new.name IS NULL THEN
        new.name := (SELECT name FROM credits WHERE id = wanted);
    END IF;
    RETURN new;
END $$;
CREATE TRIGGER b_ins BEFORE INSERT ON entity_8 FOR EACH ROW EXECUTE FUNCTION touch_credit();

-- ---
ALTER TABLE edits DROP CONSTRAINT edits_short; -- breaks: edits_short
-- ---
INSERT INTO credits (name) VALUES ('new');
INSERT INTO artists DEFAULT VALUES;
INSERT INTO artists (last_credit) SELECT max(id) FROM credits; -- breaks: wide_key_short
INSERT INTO entity_1 (credit, name) SELECT max(id), 'two' FROM credits;
INSERT INTO entity_8 (credit) SELECT max(id) FROM credits;
INSERT INTO entity_7 (credit) VALUES (7); -- breaks: app.inc_ref_count(text,integer,integer)
INSERT INTO entity_30 (credit) SELECT credit FROM entity_29 ORDER BY id DESC LIMIT 1;
WITH c AS (INSERT INTO credits (name) VALUES ('with') RETURNING id) INSERT INTO edits (at) SELECT now() FROM c;
INSERT INTO ratings SELECT max(id), 5 FROM artists; -- breaks: app.ratings.artist
INSERT INTO ratings VALUES (1, 5);
INSERT INTO edits (refers) SELECT ROW('artist', max(id))::reference FROM artists; -- breaks: app.reference.entity_id
INSERT INTO merges (into_artist) SELECT max(id) FROM artists;
INSERT INTO merges (into_artist, "oldIds") SELECT max(id), array_agg(id) FROM artists; -- breaks: app.merges."oldIds"
SELECT merge_artists(ARRAY[1], 1);
SELECT merge_artists(ARRAY(SELECT id FROM artists), 1); -- breaks: app.merge_artists(integer[],integer)
SELECT * FROM first_artist(); -- breaks: app.first_artist()
SELECT setval('edits_id_seq', nextval('edits_id_seq') + 1000); -- breaks: app.edits_id_seq
SELECT count(*), max(latest) FROM credited;
UPDATE credits SET name = upper(name) WHERE id = (SELECT max(credit) FROM entities WHERE kind = 1);
DELETE FROM entity_1 WHERE id = (SELECT max(id) FROM entity_1) AND name = 'three';
