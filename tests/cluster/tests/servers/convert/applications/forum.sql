-- A forum: counts kept by triggers, votes without foreign keys, arrays of keys, and a row -1 for
-- accounts that were deleted.
CREATE TABLE members (id serial PRIMARY KEY CONSTRAINT members_short CHECK (id < 2147483648),
    name text NOT NULL DEFAULT 'ada', posts integer NOT NULL DEFAULT 0);
INSERT INTO members VALUES (-1, 'deleted');
CREATE TABLE posts (id serial PRIMARY KEY, author integer NOT NULL REFERENCES members, title text,
    comments integer NOT NULL DEFAULT 0, pinned boolean NOT NULL DEFAULT false);
CREATE TABLE comments (id serial PRIMARY KEY, post integer NOT NULL REFERENCES posts, body text);
CREATE TABLE replies (id serial PRIMARY KEY, post integer NOT NULL REFERENCES posts, parent integer REFERENCES replies);
CREATE TABLE votes (member_id integer, post_id integer, score smallint NOT NULL, PRIMARY KEY (member_id, post_id));
CREATE TABLE pools (id serial PRIMARY KEY, name text, post_ids integer[] NOT NULL DEFAULT '{}');
CREATE TABLE threads (id serial PRIMARY KEY, parent integer REFERENCES threads,
    root integer GENERATED ALWAYS AS (coalesce(parent, id)) STORED);
CREATE TABLE seats (id serial PRIMARY KEY, vip boolean, CONSTRAINT seats_paid CHECK (id < 1000000 OR vip));
CREATE VIEW newest AS SELECT p.id, p.title, m.name FROM posts p JOIN members m ON m.id = p.author ORDER BY p.id DESC;
CREATE MATERIALIZED VIEW busiest AS SELECT author, count(*) AS posts FROM posts GROUP BY author;
CREATE INDEX posts_author ON posts (author, id);

-- A count that any width of key passes.
CREATE FUNCTION count_post() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE members SET posts = posts + 1 WHERE id = new.author;
    RETURN NULL;
END $$;
CREATE TRIGGER counted AFTER INSERT ON posts FOR EACH ROW EXECUTE FUNCTION count_post();

CREATE FUNCTION add_comments(post_id integer, n integer) RETURNS void LANGUAGE sql AS
    'UPDATE posts SET comments = comments + n WHERE id = post_id';
CREATE FUNCTION count_comment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM add_comments(new.post, 1);
    RETURN NULL;
END $$;
CREATE TRIGGER counted AFTER INSERT ON comments FOR EACH ROW EXECUTE FUNCTION count_comment();

CREATE FUNCTION note_reply() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    thread integer := coalesce(new.parent, new.id);
BEGIN
    UPDATE posts SET comments = comments + 1 WHERE id = new.post AND thread > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT ON replies FOR EACH ROW EXECUTE FUNCTION note_reply();

CREATE FUNCTION latest_post() RETURNS integer LANGUAGE sql STABLE AS 'SELECT max(id) FROM posts';
CREATE FUNCTION posts_of(member text) RETURNS TABLE (post_id integer, title text) LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT p.id, p.title FROM posts p JOIN members m ON m.id = p.author WHERE m.name = member;
END $$;
CREATE FUNCTION write_post(name text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO posts (author, title) VALUES (-1, name);
    RETURN currval('posts_id_seq');
END $$;

-- ---
ALTER TABLE members DROP CONSTRAINT members_short; -- breaks: members_short
-- ---
INSERT INTO members (name) VALUES ('bo');
INSERT INTO posts (author, title) SELECT max(id), 'hello' FROM members;
INSERT INTO posts (author, title) VALUES (-1, 'by nobody');
WITH m AS (INSERT INTO members (name) VALUES ('cy') RETURNING id) INSERT INTO posts (author) SELECT -1 FROM m;
INSERT INTO comments (post, body) SELECT max(id), 'first' FROM posts; -- breaks: app.add_comments(integer,integer)
INSERT INTO replies (post) SELECT max(id) FROM posts; -- breaks: app.note_reply()
INSERT INTO votes SELECT -1, max(id), 1 FROM posts ON CONFLICT DO NOTHING; -- breaks: app.votes.post_id
INSERT INTO votes SELECT max(id), 1, 1 FROM members ON CONFLICT DO NOTHING; -- breaks: app.votes.member_id
INSERT INTO votes VALUES (-1, -1, 1) ON CONFLICT DO NOTHING;
INSERT INTO pools (post_ids) SELECT array_agg(id) FROM newest; -- breaks: app.pools.post_ids
INSERT INTO pools (name) VALUES ('empty');
INSERT INTO threads DEFAULT VALUES; -- breaks: app.threads.root
INSERT INTO seats (vip) VALUES (true);
INSERT INTO seats (vip) VALUES (false); -- breaks: seats_paid
SELECT latest_post(); -- breaks: app.latest_post()
SELECT * FROM posts_of('deleted'); -- breaks: app.posts_of(text)
SELECT write_post('again'); -- breaks: app.write_post(text)
SELECT nextval('comments_id_seq'), lastval(); -- breaks: app.comments_id_seq
SELECT m.name, sum(p.comments), m.posts FROM members m LEFT JOIN posts p ON p.author = m.id GROUP BY m.id LIMIT 10;
REFRESH MATERIALIZED VIEW busiest;
UPDATE posts SET title = title || '!' WHERE id = (SELECT id FROM newest LIMIT 1);
DELETE FROM votes WHERE score < 0 AND member_id <> -1;
