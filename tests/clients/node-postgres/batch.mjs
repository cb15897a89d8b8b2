import pg from 'pg';

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();

const kinds = ['green', 'black'];
const { rows } = await client.query('SELECT snowflake_batch($1) AS id', [1 + kinds.length]);
const [order, ...lines] = rows.map((row) => row.id);

await client.query('BEGIN');
await client.query('INSERT INTO orders (id, item) VALUES ($1, $2)', [order, 'tea']);
const insert = 'INSERT INTO lines (id, order_id, kind) SELECT i, $2, k FROM unnest($1::bigint[], $3::text[]) l (i, k)';
await client.query(insert, [lines, order, kinds]);
await client.query('COMMIT');

await client.end();
