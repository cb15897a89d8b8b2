import { sql } from 'drizzle-orm';
import { bigint, pgTable, text } from 'drizzle-orm/pg-core';

export const orders = pgTable('orders', {
  id: bigint({ mode: 'bigint' }).primaryKey().default(sql`snowflake_next()`),
  item: text(),
});
