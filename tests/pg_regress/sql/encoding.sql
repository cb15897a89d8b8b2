-- Text forms of ids, and texts that are not one.

-- From the first to the last id, there and back.
CREATE TABLE ids (id bigint PRIMARY KEY);
INSERT INTO ids VALUES (0), (1), (31), (32), (61), (62), (4294967296), (9007199254740991), (249498276909305860),
    (249498276909305861), (1541815603606036480), (9223372036854775806), (9223372036854775807);
SELECT id, base32, base62, snowflake_decode(base32, 'base32') = id AND snowflake_decode(base62, 'base62') = id AS back
FROM ids, snowflake_encode(id, 'base32') base32, snowflake_encode(id, 'base62') base62 ORDER BY id;

-- The order of the texts is the order of the ids, bytewise.
SELECT bool_and(base32 > before32 AND base62 > before62) AS in_order, count(before32) AS pairs
FROM (SELECT base32, base62, lag(base32) OVER w AS before32, lag(base62) OVER w AS before62
      FROM (SELECT id, snowflake_encode(id, 'base32') COLLATE "C" AS base32, snowflake_encode(id, 'base62') COLLATE "C" AS base62
            FROM (SELECT id FROM ids UNION SELECT n * 9007199254739 FROM generate_series(1, 100000) n) all_ids) texts
      WINDOW w AS (ORDER BY id)) neighbours;

-- As Crockford prescribes: any case, I and L are 1, O is 0, hyphens are ignored.
SELECT snowflake_decode('06xk-5bhkm-0m04', 'base32') AS lower_case, snowflake_decode('o6XK5BHKMOmo4', 'base32') AS with_o,
       snowflake_decode('000000IiLl1-11', 'base32') = snowflake_decode('000000-1111111', 'base32') AS with_i_and_l;
SELECT snowflake_decode('-0-00000-0000-I-Lo-', 'base32') AS one_one_zero;

-- NULL in, NULL out.
SELECT snowflake_encode(NULL, 'base32') IS NULL, snowflake_encode(1, NULL) IS NULL,
       snowflake_decode(NULL, 'base32') IS NULL, snowflake_decode('1', NULL) IS NULL;

-- With named arguments, and with any kind of text: char(n) without its blanks, a value that is
-- stored out of line, or compressed.
SELECT snowflake_decode(encoding => 'base62', text => snowflake_encode(encoding => 'base62', id => 5));
SELECT snowflake_decode('0IQhh4u4pXQ'::char(20), 'base62'::varchar);
CREATE TABLE stored (plain text, compressed text);
ALTER TABLE stored ALTER plain SET STORAGE EXTERNAL;
INSERT INTO stored VALUES (repeat('-', 10000) || '0000000000001', repeat('-', 1000000) || '0000000000002');
SELECT snowflake_decode(plain, 'base32'), snowflake_decode(compressed, 'base32') FROM stored;

-- In a generated column and an index.
CREATE TABLE links (
    id bigint PRIMARY KEY,
    code text COLLATE "C" GENERATED ALWAYS AS (snowflake_encode(id, 'base62')) STORED UNIQUE
);
INSERT INTO links SELECT id FROM ids;
CREATE INDEX links_code32 ON links (snowflake_encode(id, 'base32') COLLATE "C");
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT code FROM links ORDER BY code;
SELECT id FROM links WHERE snowflake_encode(id, 'base32') COLLATE "C" BETWEEN '06XK' AND '06XL';
SELECT id FROM links WHERE id = snowflake_decode('0IQhh4u4pXR', 'base62');
EXPLAIN (COSTS OFF) SELECT id FROM links WHERE id = snowflake_decode('0IQhh4u4pXR', 'base62');
RESET enable_seqscan;

\pset format unaligned
\pset tuples_only on

-- Not an id, not an encoding.
SELECT refusal('SELECT snowflake_encode(-1, ''base32'')');
SELECT refusal('SELECT snowflake_encode(-9223372036854775808, ''base62'')');
SELECT refusal(format('SELECT snowflake_encode(1, %L)', encoding)) FROM (VALUES
    (''), ('base64'), ('BASE32'), ('base62 '), (repeat('x', 10000000))) v (encoding);
SELECT refusal('SELECT snowflake_decode(''0'', ''base64'')');
INSERT INTO links VALUES (-1);

-- Not a text of an id: a wrong character, with its position ...
SELECT format('%L %s: ', text, encoding) || refusal(format('SELECT snowflake_decode(%L, %L)', text, encoding)) FROM (VALUES
    ('06XK5BHKU0M04', 'base32'), ('06XK5BHKM0M04U', 'base32'), ('06XK5BHKM0M04*', 'base32'), ('*~$=', 'base32'),
    ('06XK-5BHK_M0M04', 'base32'), ('06XK5BHKM0M04 ', 'base32'), ('0IQhh4u-4pXQ', 'base62'), ('+', 'base62'),
    (E'0IQhh4u4pXQ\n', 'base62'), ('"', 'base62'), ('\', 'base32'), ('0IQéß', 'base62'), ('0Жх', 'base32'), ('０', 'base32'),
    (U&'0\200B', 'base62'), (U&'o\0301', 'base32'), ('😀', 'base62'), ('hello world', 'base32')) v (text, encoding);
-- ... a wrong length ...
SELECT format('%L %s: ', text, encoding) || refusal(format('SELECT snowflake_decode(%L, %L)', text, encoding)) FROM (VALUES
    ('', 'base32'), ('', 'base62'), ('16J', 'base32'), ('6XK5BHKM0M04', 'base32'), ('06XK5BHKM0M040', 'base32'),
    ('0-0', 'base32'), ('-', 'base32'), ('0IQhh4u4pX', 'base62'), ('0IQhh4u4pXQ0', 'base62'),
    ('249498276909305860', 'base32'), ('249498276909305860', 'base62')) v (text, encoding);
-- ... a number that is too large, from which position on ...
SELECT format('%L %s: ', text, encoding) || refusal(format('SELECT snowflake_decode(%L, %L)', text, encoding)) FROM (VALUES
    ('8000000000000', 'base32'), ('-z-zzzzzzzzzzzz', 'base32'), ('AzL8n0Y58m8', 'base62'), ('AzL8n0Y59m7', 'base62'),
    ('AzM00000000', 'base62'), ('zzzzzzzzzzz', 'base62')) v (text, encoding);
-- ... and no message repeats the whole text.
SELECT refusal('SELECT snowflake_decode(repeat(''0'', 10000000), ''base62'')');
SELECT refusal('SELECT snowflake_decode(repeat(''-'', 10000000) || repeat(''8'', 13), ''base32'')');
SELECT refusal('SELECT snowflake_decode(repeat(''0'', 10000000) || ''!'', ''base62'')');
SELECT refusal('SELECT snowflake_decode(repeat(''é'', 50000000), ''base32'')');

-- In a database of another encoding, where bytes beyond ASCII may even look like UTF-8.
CREATE DATABASE regress_latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0;
CREATE DATABASE regress_euc_jp ENCODING 'EUC_JP' LOCALE 'C' TEMPLATE template0;
\c regress_latin1
CREATE EXTENSION snowflake_id;
SELECT snowflake_decode(snowflake_encode(249498276909305860, 'base62'), 'base62');
SELECT snowflake_decode(U&'0IQ\00e9', 'base62');
SELECT snowflake_decode(U&'0IQ\00c3\00a9', 'base62');
SELECT snowflake_decode(repeat(U&'\00e9', 10000000), 'base62');
SELECT snowflake_encode(1, U&'base\00e932');
\c regress_euc_jp
CREATE EXTENSION snowflake_id;
SELECT snowflake_decode(snowflake_encode(249498276909305860, 'base32'), 'base32');
SELECT snowflake_decode(U&'06X\3042\3044', 'base32');
-- Three bytes of these characters' four look like one of UTF-8.
SELECT octet_length(convert_to(U&'\74E0\4E9C', 'EUC_JP'));
SELECT snowflake_decode(U&'06X\74E0\4E9C', 'base32');
\c regress
DROP DATABASE regress_latin1;
DROP DATABASE regress_euc_jp;
DROP TABLE links, stored, ids;
