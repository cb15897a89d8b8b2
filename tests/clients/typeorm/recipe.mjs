import { DataSource, EntitySchema } from 'typeorm';

const id = { type: 'bigint', primary: true, default: () => 'snowflake_next()' };
const Order = new EntitySchema({
  name: 'Order',
  tableName: 'orders',
  columns: { id, item: { type: 'text', nullable: true } },
  relations: { lines: { type: 'one-to-many', target: 'Line', inverseSide: 'order', cascade: true } },
});
const Line = new EntitySchema({
  name: 'Line',
  tableName: 'lines',
  columns: { id },
  relations: { order: { type: 'many-to-one', target: 'Order', inverseSide: 'lines' } },
});

const db = new DataSource({ type: 'postgres', url: process.env.DATABASE_URL, entities: [Order, Line], synchronize: true });
await db.initialize();

const orders = db.getRepository(Order);
const tea = await orders.save({ item: 'tea', lines: [{}, {}] });
const others = await orders.save([{ item: 'coffee' }, { item: 'cocoa' }]);
console.log(JSON.stringify([tea, ...others].map(({ id, item }) => ({ id, item }))));

await db.destroy();
