import pg from 'pg';

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();

const { rows } = await client.query('INSERT INTO orders (item) VALUES ($1), ($2) RETURNING *', ['tea', 'coffee']);
console.log(JSON.stringify(rows)); // [{"id":"249498276909305860","item":"tea"},{"id":"249498276909305861","item":"coffee"}]

await client.end();
