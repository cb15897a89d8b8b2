import { drizzle } from 'drizzle-orm/node-postgres';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
import { orders } from './schema.mjs';

const db = drizzle(process.env.DATABASE_URL);
await migrate(db, { migrationsFolder: 'drizzle' });

const rows = await db.insert(orders).values([{ item: 'tea' }, { item: 'coffee' }]).returning();
console.log(rows.map(({ id, item }) => `${id} ${item}`)); // [ '249498276909305860 tea', '249498276909305861 coffee' ]

await db.$client.end();
