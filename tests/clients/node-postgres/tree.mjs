import pg from 'pg';
import { IdPool } from './pool.mjs';

const database = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const pool = new IdPool(database);

// A question with 2,499 answers, each with its id before any row is stored.
const question = await pool.take();
const answers = await Promise.all(Array.from({ length: 2499 }, () => pool.take()));
const ids = [question, ...answers];
const parents = ids.map((id) => (id === question ? null : question));
const bodies = ids.map((id) => (id === question ? 'tea or coffee?' : 'tea'));

const insert = 'INSERT INTO comments SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[])';
await database.query(insert, [ids, parents, bodies]);
await database.end();
