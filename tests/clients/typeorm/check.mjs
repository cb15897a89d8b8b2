// Checks what programs rely on: each object has the id of its row as a string, and the schema has the default.

import assert from 'node:assert/strict';
import { DataSource, EntitySchema, MoreThan } from 'typeorm';

const id = { type: 'bigint', primary: true, default: () => 'snowflake_next()' };
const Order = new EntitySchema({ name: 'Order', tableName: 'orders', columns: { id, item: { type: 'text', nullable: true } } });
const db = new DataSource({ type: 'postgres', url: process.env.DATABASE_URL, entities: [Order] });
await db.initialize();
const orders = db.getRepository(Order);

const columns = await db.query(
  `SELECT table_name, column_name, column_default, data_type FROM information_schema.columns
   WHERE table_name IN ('orders', 'lines') AND data_type = 'bigint' ORDER BY 1 DESC, 2`,
);
assert.deepEqual(columns.map(Object.values), [
  ['orders', 'id', 'snowflake_next()', 'bigint'],
  ['lines', 'id', 'snowflake_next()', 'bigint'],
  ['lines', 'orderId', null, 'bigint'],
]);
const [{ count }] = await db.query('SELECT count(*) FROM lines WHERE "orderId" = (SELECT min(id) FROM orders)');
assert.equal(count, '2');

const objects = Array.from({ length: 1000 }, (_, n) => ({ item: `item ${n}` }));
await orders.save(objects);
assert.ok(objects.every((row) => typeof row.id === 'string'));
assert.equal(new Set(objects.map((row) => row.id)).size, objects.length);
for (const row of [objects[0], objects[17], objects[999]]) {
  assert.equal((await orders.findOneBy({ id: row.id })).item, row.item);
}
const page = await orders.find({ where: { id: MoreThan(objects[997].id) }, order: { id: 'ASC' } });
assert.deepEqual(page, objects.slice(998));

// Ids before the insert.
const n = 3;
const drawn = await db.query('SELECT snowflake_batch($1) AS id', [n]);
assert.deepEqual(drawn.map((row) => typeof row.id), ['string', 'string', 'string']);
await orders.insert({ id: drawn[0].id, item: 'milk' });
assert.equal((await orders.findOneBy({ id: drawn[0].id })).item, 'milk');

await db.destroy();

// What a migration would change, with the default as the database shows it, and with its schema.
for (const [shown, changes] of [
  ['snowflake_next()', []],
  ['public.snowflake_next()', ['ALTER TABLE "orders" ALTER COLUMN "id" SET DEFAULT public.snowflake_next()']],
]) {
  const columns = { id: { ...id, default: () => shown }, item: { type: 'text', nullable: true } };
  const entities = [new EntitySchema({ name: 'Order', tableName: 'orders', columns })];
  const other = new DataSource({ type: 'postgres', url: process.env.DATABASE_URL, entities });
  await other.initialize();
  const { upQueries } = await other.driver.createSchemaBuilder().log();
  assert.deepEqual(upQueries.map(({ query }) => query), changes);
  await other.destroy();
}
