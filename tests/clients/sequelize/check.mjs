// Checks what programs rely on: each object has the id of its row, as a string.

import assert from 'node:assert/strict';
import { DataTypes, QueryTypes, Sequelize, literal } from 'sequelize';

const sequelize = new Sequelize(process.env.DATABASE_URL, { logging: false });
const id = { type: DataTypes.BIGINT, primaryKey: true, defaultValue: literal('snowflake_next()') };
const Order = sequelize.define('order', { id, item: DataTypes.TEXT }, { timestamps: false });

const items = Array.from({ length: 1000 }, (_, n) => ({ item: `item ${n}` }));
const rows = await Order.bulkCreate(items);
assert.ok(rows.every((row) => typeof row.id === 'string'));
assert.equal(new Set(rows.map((row) => row.id)).size, items.length);
for (const row of [rows[0], rows[17], rows[999]]) {
  assert.equal((await Order.findByPk(row.id)).item, row.item);
}

const [column] = await sequelize.query(
  "SELECT column_default, data_type FROM information_schema.columns WHERE (table_name, column_name) = ('orders', 'id')",
  { type: Sequelize.QueryTypes.SELECT },
);
assert.deepEqual(column, { column_default: 'snowflake_next()', data_type: 'bigint' });
const [reference] = await sequelize.query(
  "SELECT data_type FROM information_schema.columns WHERE (table_name, column_name) = ('lines', 'orderId')",
  { type: Sequelize.QueryTypes.SELECT },
);
assert.equal(reference.data_type, 'bigint');

// Ids before the insert.
const n = 3;
const drawn = await sequelize.query('SELECT snowflake_batch($1) AS id', { bind: [n], type: QueryTypes.SELECT });
assert.deepEqual(drawn.map((row) => typeof row.id), ['string', 'string', 'string']);
const milk = await Order.create({ id: drawn[0].id, item: 'milk' });
assert.equal((await Order.findByPk(drawn[0].id)).item, milk.item);

await sequelize.close();
