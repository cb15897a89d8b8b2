// Checks what programs rely on: each object has the id of its row, as a BigInt, and so has each reference.

import assert from 'node:assert/strict';
import { PrismaPg } from '@prisma/adapter-pg';
import { PrismaClient } from './generated/index.js';

const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }) });

const tea = await prisma.order.findFirst({ where: { item: 'tea' }, include: { lines: true } });
assert.deepEqual(tea.lines.map(({ kind }) => kind).sort(), ['black', 'green']);
assert.ok(tea.lines.every((line) => line.orderId === tea.id && line.id > tea.id));

const items = Array.from({ length: 1000 }, (_, n) => ({ item: `item ${n}` }));
const rows = await prisma.order.createManyAndReturn({ data: items });
assert.deepEqual(rows.map(({ item }) => ({ item })), items, 'the rows come back in their order');
assert.ok(rows.every((row) => typeof row.id === 'bigint'));
assert.equal(new Set(rows.map((row) => row.id)).size, items.length);
for (const row of [rows[0], rows[17], rows[999]]) {
  assert.deepEqual(await prisma.order.findUnique({ where: { id: row.id } }), row);
}
assert.throws(() => JSON.stringify(rows), TypeError);

// The next page of a cursor, which came as a string from JSON.
const cursor = String(rows[997].id);
const page = await prisma.order.findMany({ where: { id: { gt: BigInt(cursor) } }, orderBy: { id: 'asc' } });
assert.deepEqual(page, rows.slice(998));

// Ids before the insert.
const n = 3;
const drawn = await prisma.$queryRaw`SELECT snowflake_batch(${n}::int) AS id`;
assert.deepEqual(drawn.map((row) => typeof row.id), ['bigint', 'bigint', 'bigint']);
const milk = await prisma.order.create({ data: { id: drawn[0].id, item: 'milk' } });
assert.deepEqual(milk, { id: drawn[0].id, item: 'milk' });

await prisma.$disconnect();
