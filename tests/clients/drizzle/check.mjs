// check.mjs strings|numbers: checks what programs rely on, with ids of the default layout, and with those of js53.

import assert from 'node:assert/strict';
import { asc, eq, inArray, sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { bigint, customType, pgTable, text } from 'drizzle-orm/pg-core';
import { orders } from './schema.mjs';

const db = drizzle(process.env.DATABASE_URL);

const items = Array.from({ length: 1000 }, (_, n) => ({ item: `item ${n}` }));
const rows = await db.insert(orders).values(items).returning();
const ids = rows.map((row) => row.id);
assert.deepEqual(rows.map(({ item }) => ({ item })), items, 'the rows come back in their order');
assert.equal(new Set(ids).size, items.length);
assert.ok(ids.every((id) => typeof id === 'bigint'));
assert.deepEqual(await db.select().from(orders).where(eq(orders.id, ids[17])), [rows[17]]);

// JSON has no BigInt.
assert.throws(() => JSON.stringify(rows), TypeError);
const json = JSON.stringify(rows, (_, value) => (typeof value === 'bigint' ? String(value) : value));
assert.deepEqual(JSON.parse(json).map((row) => BigInt(row.id)), ids);

// The same table with an id of another type: as Numbers, and as the strings of node-postgres.
const read = async (id) => {
  const table = pgTable('orders', { id: id.primaryKey().default(sql`snowflake_next()`), item: text() });
  const selected = await db.select().from(table).where(inArray(table.id, ids)).orderBy(asc(table.id));
  const [added] = await db.insert(table).values({ item: 'sugar' }).returning();
  assert.equal(typeof added.id, typeof selected[0].id);
  return selected.map((row) => row.id);
};
const asNumbers = await read(bigint({ mode: 'number' }));
const asStrings = await read(customType({ dataType: () => 'bigint' })());
assert.deepEqual(asStrings, ids.map(String));
if (process.argv[2] === 'numbers') {
  assert.deepEqual(asNumbers.map(String), asStrings, 'no digit is lost');
  assert.ok(asNumbers.every(Number.isSafeInteger));
} else {
  assert.ok(new Set(asNumbers).size < items.length, 'different ids are the same Number');
}

// Ids before the insert.
const n = 3;
const drawn = await db.execute(sql`SELECT snowflake_batch(${n}) AS id`);
const [first, ...others] = drawn.rows.map((row) => BigInt(row.id));
assert.ok(others.length === n - 1 && others.every((id) => id > first));
assert.deepEqual(await db.insert(orders).values({ id: first, item: 'milk' }).returning(), [{ id: first, item: 'milk' }]);

await db.$client.end();
