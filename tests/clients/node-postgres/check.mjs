// check.mjs strings|numbers: checks what programs rely on that read ids as strings, or with the layout js53 as Numbers.

import assert from 'node:assert/strict';
import pg from 'pg';

const numbers = process.argv[2] === 'numbers';
if (numbers) await import('./numbers.mjs');

const client = new pg.Client();
await client.connect();
const query = async (text, values) => (await client.query(text, values)).rows;

const items = Array.from({ length: 1000 }, (_, n) => `item ${n}`);
const rows = await query('INSERT INTO orders (item) SELECT unnest($1::text[]) RETURNING *', [items]);
const ids = rows.map((row) => row.id);
assert.deepEqual(rows.map((row) => row.item), items, 'the rows come back in their order');
assert.equal(new Set(ids).size, items.length);
assert.ok(ids.every((id) => typeof id === (numbers ? 'number' : 'string')));

// An id finds its row in the form in which it was read, and as a BigInt.
for (const id of [ids[17], BigInt(ids[17])]) {
  assert.deepEqual(await query('SELECT * FROM orders WHERE id = $1', [id]), [rows[17]]);
}
assert.deepEqual((await query('SELECT * FROM orders WHERE id = ANY ($1) ORDER BY id', [ids])), rows);

// JSON keeps them unchanged, here and on the server.
assert.deepEqual(JSON.parse(JSON.stringify(rows)), rows);
const json = (expression) => query(`SELECT ${expression} AS row FROM orders o WHERE id = ANY ($1) ORDER BY id`, [ids]);
const parsed = (await json('to_jsonb(o)')).map(({ row }) => row);

if (numbers) {
  const text = await query('SELECT id::text AS id FROM orders WHERE id = ANY ($1) ORDER BY id', [ids]);
  assert.deepEqual(ids.map(String), text.map((row) => row.id), 'no digit is lost');
  assert.ok(ids.every(Number.isSafeInteger));
  assert.deepEqual(parsed, rows);
} else {
  // The reason for strings: as Numbers, different ids would be equal.
  assert.ok(new Set(ids.map(Number)).size < items.length);
  assert.ok(!ids.some((id) => Number.isSafeInteger(Number(id))));
  // So an id that is a number in JSON changes, too, ...
  assert.ok(new Set(parsed.map((row) => row.id)).size < items.length);
  // ... unless the server writes a string.
  const strings = await json("to_jsonb(o) || jsonb_build_object('id', o.id::text)");
  assert.deepEqual(strings.map(({ row }) => row), rows);
  assert.throws(() => JSON.stringify({ id: BigInt(ids[0]) }), TypeError);
}

await client.end();
