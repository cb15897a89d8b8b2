//! What may fail with ids, though the catalogs do not connect it with the converted columns: a dry
//! run names it, and a call warns of it.

use cluster::Draw;

use super::database::{Database, converted};

/// Each line that is expected is a comment beside what it is about.
const APPLICATION: &str = r#"
    CREATE TABLE users (id serial PRIMARY KEY, name text, num_users integer,
        digit integer GENERATED ALWAYS AS (id % 10) STORED,     -- suspect: app.users.digit, integer, generated from app.users.id
        next bigint GENERATED ALWAYS AS (id + 1::bigint) STORED);
    CREATE TABLE artist_credit (id serial PRIMARY KEY, ref_count integer DEFAULT 0);
    CREATE TABLE recording (id serial PRIMARY KEY,
        artist_credit integer,                                  -- suspect: app.recording.artist_credit, integer, named like a key of app.artist_credit
        "authorId" integer,                                     -- suspect: app.recording."authorId", integer, named like a key
        parent_id smallint,                                     -- suspect: app.recording.parent_id, smallint, named like a key
        last_user_id integer,                                   -- suspect: app.recording.last_user_id, integer, named like a key of app.users
        userid integer,                                         -- suspect: app.recording.userid, integer, named like a key of app.users
        "user" integer,                                         -- suspect: app.recording."user", integer, named like a key of app.users
        tag_ids integer[],                                      -- suspect: app.recording.tag_ids, integer[], named like a key
        liked_users integer[],                                  -- suspect: app.recording.liked_users, integer[], named like a key of app.users
        owner integer REFERENCES users, category_id integer, users integer, valid integer, scores integer[], credit integer, wide_user_id bigint);
    CREATE TABLE categories (id serial PRIMARY KEY);
    CREATE DOMAIN number AS integer;
    CREATE TYPE flag AS (user_id number);                       -- suspect: app.flag.user_id, app.number, named like a key of app.users
    CREATE TABLE days (day date, user_ids integer[]) PARTITION BY LIST (day); -- suspect: app.days.user_ids, integer[], named like a key of app.users
    CREATE TABLE days_all PARTITION OF days DEFAULT;
    -- suspect: app.add(text,integer,integer), function, takes integer, called by app.credit()
    CREATE FUNCTION add(x text, key integer, n integer) RETURNS void LANGUAGE plpgsql AS
        $$BEGIN EXECUTE format('UPDATE %I SET ref_count = ref_count + %s WHERE id = %s', x, n, key); END$$;
    CREATE FUNCTION credit() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN PERFORM app.add('artist_credit', new.artist_credit, 1); RETURN NULL; END$$;
    CREATE TRIGGER credit AFTER INSERT ON recording FOR EACH ROW EXECUTE FUNCTION credit();
    -- suspect: app.counted(), function, has integer in its text, trigger of app.recording
    CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS 'DECLARE key int; BEGIN key := new.id; RETURN new; END';
    CREATE TRIGGER counted BEFORE INSERT ON recording FOR EACH ROW EXECUTE FUNCTION counted();
    -- suspect: app.newest(), function, returns integer, names app.users
    CREATE FUNCTION newest() RETURNS integer LANGUAGE sql AS 'SELECT max(id) FROM app.users';
    -- suspect: app."In body"(integer), function, takes integer, has integer in its text, names app.artist_credit
    CREATE FUNCTION "In body"(a integer) RETURNS text BEGIN ATOMIC SELECT ref_count::text FROM artist_credit WHERE id = a::smallint; END;
    CREATE FUNCTION typed(x text) RETURNS text LANGUAGE plpgsql AS
        $$DECLARE y users.id%TYPE; BEGIN SELECT max(id) INTO y FROM users WHERE name = x; RETURN y; END$$;
    CREATE SCHEMA elsewhere;
    -- suspect: elsewhere.mail.user_id, integer, named like a key of app.users
    CREATE TABLE elsewhere.mail (user_id integer, parent_id integer);
    CREATE TABLE "Größe, alt" (id serial PRIMARY KEY);
    -- suspect: app.largest(), function, returns integer, names app."Größe, alt"
    CREATE FUNCTION largest() RETURNS integer LANGUAGE sql AS 'SELECT max(id) FROM app."Größe, alt"';
    CREATE TABLE größen (id serial PRIMARY KEY);
    -- suspect: app.grow(integer), function, takes integer, names app."größen"
    CREATE FUNCTION grow(integer) RETURNS void LANGUAGE sql AS 'INSERT INTO app.größen DEFAULT VALUES';
    CREATE FUNCTION apart(a integer, b integer) RETURNS integer LANGUAGE sql AS 'SELECT a + b';
    -- suspect: app.drawn(), function, names sequence app.users_id_seq
    CREATE FUNCTION drawn() RETURNS bigint LANGUAGE sql AS $$SELECT nextval('users_id_seq')$$;
    -- suspect: app.last(), function, calls lastval, names app.users
    CREATE FUNCTION last() RETURNS bigint LANGUAGE sql AS 'INSERT INTO users DEFAULT VALUES; SELECT lastval()';
"#;

#[test]
fn a_dry_run_begins_with_what_may_not_take_ids() {
    let database = Database::with("");
    database.connect().batch_execute(APPLICATION).unwrap();
    let (mut session, heard) = database.connect_and_listen();
    let call = r#"ARRAY['users.id', 'artist_credit.id', 'recording.id', '"Größe, alt".id', 'größen.id'], true"#;
    let script = converted(&mut session, &format!("{call}, dry_run => true"));
    let suspects: Vec<_> = script.iter().take_while(|line| line.starts_with("--")).map(String::as_str).collect();
    let mut expected: Vec<_> = APPLICATION.lines().filter_map(|line| Some(&line[line.find("-- suspect")?..])).collect();
    expected.sort_by_key(|line| (line.contains(", function, "), line.ends_with("like a key"), line.to_string()));
    assert_eq!(suspects, expected);
    assert!(script[suspects.len()..].iter().all(|statement| !statement.contains("suspect")));

    // The script runs as it is, and the call says it once.
    session.batch_execute(&format!("BEGIN; {}; ROLLBACK", script.join("\n"))).unwrap();
    session.batch_execute("ALTER TABLE users DROP digit, DROP next; DROP FUNCTION \"In body\"").unwrap();
    heard.lock().unwrap().clear();
    let statements = converted(&mut session, call);
    assert!(!statements.concat().contains("suspect"), "{statements:?}");
    let heard = heard.lock().unwrap();
    let said: Vec<_> = heard.iter().filter(|said| said.contains("may not take new values")).collect();
    assert_eq!(said, ["WARNING: 11 columns and 7 functions may not take new values"]);
}

/// Its values were small until now, so an application can keep them in 32 bits.
#[test]
fn a_bigint_column_has_the_same_suspects() {
    let database = Database::with(
        "CREATE TABLE users (id bigserial PRIMARY KEY, digit integer GENERATED ALWAYS AS (id % 10) STORED);
         CREATE TABLE posts (user_id integer); CREATE TABLE logins (of bigint REFERENCES users);
         CREATE FUNCTION logged_in() RETURNS trigger LANGUAGE plpgsql AS
             $$DECLARE who integer := new.of; BEGIN RETURN new; END$$;
         CREATE TRIGGER logged_in BEFORE INSERT ON logins FOR EACH ROW EXECUTE FUNCTION logged_in();
         CREATE FUNCTION newest() RETURNS integer LANGUAGE sql AS 'SELECT max(id)::int FROM app.users';
         CREATE FUNCTION current() RETURNS bigint LANGUAGE plpgsql AS
             $$BEGIN RETURN currval(pg_get_serial_sequence('users', 'id')); END$$;
         CREATE SEQUENCE shared; ALTER TABLE users ALTER id SET DEFAULT nextval('shared');
         CREATE FUNCTION draw() RETURNS bigint LANGUAGE plpgsql AS $$BEGIN RETURN nextval('app.shared'); END$$",
    );
    let script = converted(&mut database.connect(), "'users', 'id', dry_run => true");
    assert_eq!(
        script[..6],
        [
            "-- suspect: app.posts.user_id, integer, named like a key of app.users",
            "-- suspect: app.users.digit, integer, generated from app.users.id",
            "-- suspect: app.current(), function, calls pg_get_serial_sequence, names app.users",
            "-- suspect: app.draw(), function, names sequence app.shared",
            "-- suspect: app.logged_in(), function, has integer in its text, trigger of app.logins",
            "-- suspect: app.newest(), function, returns integer, has integer in its text, names app.users",
        ]
    );
    assert!(script[6].starts_with("LOCK"), "{script:?}");
}

/// Otherwise the rest of the name would be a statement.
#[test]
fn a_name_of_two_lines_does_not_end_the_comment() {
    let database = Database::with(
        "CREATE TABLE users (id serial PRIMARY KEY);
         CREATE TABLE \"x\r\nDROP TABLE users; --\" (user_id integer);
         CREATE FUNCTION \"y\nDROP TABLE users; --\"(user_id integer) RETURNS void LANGUAGE sql AS 'SELECT FROM app.users'",
    );
    let mut session = database.connect();
    let script = converted(&mut session, "'users', 'id', true, true");
    assert!(script[..2].iter().all(|line| line.starts_with("-- suspect: app.\"")), "{script:?}");
    session.batch_execute(&format!("BEGIN; {}; COMMIT", script.join("\n"))).unwrap();
    assert!(session.ids("INSERT INTO users DEFAULT VALUES RETURNING id").is_ok());
}
