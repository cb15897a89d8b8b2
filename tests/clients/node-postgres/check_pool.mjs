// Checks what a program relies on that takes ids from a pool, many at once.

import assert from 'node:assert/strict';
import pg from 'pg';
import { IdPool } from './pool.mjs';

const database = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const batches = [];
let refused = 0;
const counted = {
  async query(...statement) {
    if (refused > 0) {
      refused -= 1;
      throw new Error('refused');
    }
    const result = await database.query(...statement);
    batches.push(result.rows.map(({ id }) => BigInt(id)));
    return result;
  },
};

const pool = new IdPool(counted, 100);
const ids = await Promise.all(Array.from({ length: 4000 }, () => pool.take()));
assert.equal(new Set(ids).size, 4000);
assert.ok(batches.length >= 40 && batches.length <= 42, `${batches.length} batches`);
assert.ok(ids.every((id, n) => n === 0 || BigInt(id) > BigInt(ids[n - 1])), 'they ascend');

// A failed draw is an error of the call that waits for it, and the next call tries again.
const other = new IdPool(counted, 100);
refused = 1;
await assert.rejects(other.take(), /refused/);
assert.ok(BigInt(await other.take()) > BigInt(ids.at(-1)));

// An id that is too old is not used.
const now = performance.now.bind(performance);
const last = batches.at(-1).at(-1);
performance.now = () => now() + 60_000;
assert.ok(BigInt(await other.take()) > last);
await database.end();
